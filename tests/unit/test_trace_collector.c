/* The collector against live writers: every record of two threads that fill their rings as fast as they can is drained
 * once, in order, names before use.
 *
 * test-label: concurrent */
#include "base/common.h"
#include "event/collect.h"
#include "import/trace_read.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define EVENTS (MR_RING_CELLS / 3 * 2 + 150000u) /* cells of a ring and a part of its second lap */

struct writer {
    struct mr_ring_header *ring;
    unsigned slot, laps;
    _Atomic int *names_lock;
};

static uint32_t add_name(struct writer *w, uint32_t number)
{
    struct mr_ring_header *h = w->ring;
    while (atomic_exchange(w->names_lock, 1))
        sched_yield();
    uint64_t at = atomic_load(&h->strings_used);
    struct mr_arena_string *s = (void *)((char *)h + MR_RING_STRINGS_AT + at);
    s->len = (uint32_t)snprintf(s->text, 32, "/w%u/f%u", w->slot, number);
    s->kind = MR_STR_PATH;
    uint32_t id = atomic_load(&h->strings) + 1;
    atomic_store(&h->strings, id);
    atomic_store_explicit(&h->strings_used, at + MR_ARENA_STRING_BYTES(s->len), memory_order_release);
    atomic_store(w->names_lock, 0);
    return id;
}

/* Writes as a traced thread does, repeats and others by turns; waits where a real one would encode its own page. Slot 1
 * starts over as soon as it may (R7), slot 0 uses its whole ring. */
static void *write_events(void *arg)
{
    struct writer *w = arg;
    struct mr_slot *s = mr_ring_slot(w->ring, w->slot);
    uint32_t file = 0;
    uint64_t at = 0;
    for (uint64_t i = 0; i < EVENTS; i++) {
        uint64_t tail, base = at / MR_RING_CELLS * MR_RING_CELLS;
        if (i % 1000 == 0)
            file = add_name(w, (uint32_t)(i / 1000));
        while (at - (tail = atomic_load_explicit(&s->tail, memory_order_acquire)) >= MR_RING_CELLS - 8 ||
               (w->slot == 1 && !w->laps && at - base > MR_RING_CELLS - 32 && tail < base + MR_BLOCK_CELLS))
            sched_yield();
        if (w->slot == 1 && tail >= base + MR_BLOCK_CELLS && at - base > MR_BLOCK_CELLS + 5 &&
            at - base < MR_RING_CELLS - 2) {
            s->cell[at & (MR_RING_CELLS - 1)] = MR_RAW_SKIP;
            atomic_store(&s->skip_at, at + 1);
            at = base + MR_RING_CELLS;
            atomic_store_explicit(&s->head, at, memory_order_release);
            w->laps++;
        }
        const uint64_t record[3][4] = {
            {i << 16 | MR_CALL_pread, (uint64_t)file << 32 | 5, 1000 + i * 10, (uint64_t)w->slot << 16 | 1},
            {i << 16 | MR_RAW_REPEAT | MR_CALL_pread, 5ull << 32 | 5},
            {1ull << 32 | 5 << 16 | MR_RAW_SHORT | 5 << 3 | MR_SHORT_pread}};
        for (unsigned kind = i % 4 < 3 ? i % 4 : 2, k = 0; k < (4u >> kind); k++)
            s->cell[at++ & (MR_RING_CELLS - 1)] = record[kind][k];
        atomic_store_explicit(&s->head, at, memory_order_release);
    }
    atomic_store_explicit(&s->state, MR_SLOT_DONE, memory_order_release);
    return NULL;
}

static struct mr_ring_header *make_ring(const char *spool)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%d.00000000000000aa.0.ring", spool, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)MR_RING_SEGMENT_BYTES(0)), 0);
    struct mr_ring_header *h = mmap(NULL, MR_RING_SEGMENT_BYTES(0), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(h != MAP_FAILED);
    h->version = MR_RING_VERSION;
    h->key = 0xaa;
    h->pid = (uint32_t)getpid();
    h->tick0 = h->mono0 = 1;
    h->real0 = 1700000000000000000ull;
    const struct mr_process_info p = {.pid = h->pid,
                                      .rank = -1,
                                      .world = -1,
                                      .local_rank = -1,
                                      .local_world = -1,
                                      .start_ns = 1,
                                      .start_real_ns = h->real0,
                                      .host = "h",
                                      .host_len = 1,
                                      .exe = "e",
                                      .exe_len = 1,
                                      .cmdline = "c",
                                      .cmdline_len = 1};
    h->process_bytes = (uint32_t)mr_mrt_encode_process(&p, (uint8_t *)h + MR_RING_PROCESS_AT, MR_RING_PROCESS_BYTES);
    atomic_store(&h->state, MR_RING_RUNNING);
    atomic_store(&h->segments, 1);
    for (unsigned i = 0; i < 2; i++) {
        mr_ring_slot(h, i)->tid = 100 + i;
        atomic_store(&mr_ring_slot(h, i)->state, MR_SLOT_LIVE);
    }
    h->slots_present = 2;
    __atomic_store_n(&h->magic, MR_RING_MAGIC, __ATOMIC_RELEASE);
    return h;
}

static void check_trace(const char *path)
{
    struct mr_trace *t;
    struct mr_error err;
    struct mr_event_batch b = {0};
    uint64_t seen[2] = {0};
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(t->events, 2 * EVENTS);
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        unsigned k = b.tid - 100;
        assert_true(k < 2);
        for (uint32_t i = 0; i < b.count; i++) {
            char want[32];
            uint64_t n = seen[k]++;
            assert_int_equal(b.c.offset[i], n);
            assert_int_equal(b.c.result[i], k);
            assert_int_equal(b.c.end_ns[i] - b.c.start_ns[i], 5);
            assert_true(i == 0 || b.c.start_ns[i] == b.c.start_ns[i - 1] + 10);
            snprintf(want, sizeof(want), "/w%u/f%u", k, (unsigned)(n / 1000));
            const struct mr_trace_string *s = mr_trace_string(b.process, b.c.file[i]);
            assert_int_equal(s->len, strlen(want));
            assert_memory_equal(s->text, want, s->len);
        }
    }
    assert_int_equal(seen[0], EVENTS);
    assert_int_equal(seen[1], EVENTS);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

/* A folder with a spool, a trace file, a collector and a ring of this process. */
struct place {
    char dir[32], out[64], spool[64], path[128]; /* path: of the ring */
    struct mr_collector *c;
    struct mr_ring_header *ring;
};

/* False: there is no such folder. */
static bool begin_in(struct place *p, const char *where)
{
    struct mr_error err;
    snprintf(p->dir, sizeof(p->dir), "%s/mr-collect-XXXXXX", where);
    if (!mkdtemp(p->dir))
        return false;
    snprintf(p->spool, sizeof(p->spool), "%s/spool", p->dir);
    snprintf(p->out, sizeof(p->out), "%s/t.mrt", p->dir);
    snprintf(p->path, sizeof(p->path), "%s/%d.00000000000000aa.0.ring", p->spool, (int)getpid());
    assert_int_equal(mkdir(p->spool, 0700), 0);
    assert_int_equal(mr_collector_open(p->spool, p->out, true, false, 0, &p->c, &err), 0);
    p->ring = make_ring(p->spool);
    return true;
}

static void end(struct place *p)
{
    munmap(p->ring, MR_RING_SEGMENT_BYTES(0));
    unlink(p->path);
    snprintf(p->path, sizeof(p->path), "%s/session", p->spool);
    unlink(p->path);
    rmdir(p->spool);
    unlink(p->out);
    rmdir(p->dir);
}

static void collector_drains_live_writers_exactly_once_in_order(void **state)
{
    struct place p;
    struct mr_collect_stats stats;
    struct mr_error err;
    pthread_t thread[2];
    struct writer writer[2];
    _Atomic int names_lock = 0;
    bool busy;
    (void)state;
    assert_true(begin_in(&p, "/tmp"));
    for (unsigned i = 0; i < 2; i++) {
        writer[i] = (struct writer){.ring = p.ring, .slot = i, .names_lock = &names_lock};
        assert_int_equal(pthread_create(&thread[i], NULL, write_events, &writer[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        while (pthread_tryjoin_np(thread[i], NULL) != 0)
            assert_int_equal(mr_collector_poll(p.c, &busy, &err), 0);
    assert_int_equal(mr_collector_close(p.c, &stats, &err), 0);
    assert_int_equal(stats.events, 2 * EVENTS);
    assert_int_equal(stats.lost, 0);
    assert_true(writer[1].laps > 0);
    check_trace(p.out);
    end(&p);
}

static uint64_t blocks_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks;
}

/* A thread that finds no memory says so in its ring; the collector then empties all rings and gives their memory back.
 */
static void starved_program_gets_the_memory_of_its_rings_back(void **state)
{
    struct place p;
    struct mr_collect_stats stats;
    struct mr_error err;
    bool busy;
    (void)state;
    if (!begin_in(&p, "/dev/shm")) {
        print_message("no /dev/shm here\n");
        skip();
    }
    struct mr_slot *s = mr_ring_slot(p.ring, 0);
    uint64_t empty = blocks_of(p.path);
    assert_int_equal(mr_collector_poll(p.c, &busy, &err), 0);
    assert_int_equal(blocks_of(p.path), empty); /* slots that are not there are not looked at: that would take memory */
    const uint32_t records = 100000;
    for (uint64_t i = 0; i < records; i++) {
        s->cell[4 * i] = i << 16 | MR_CALL_pread;
        s->cell[4 * i + 2] = 1000 + i * 10;
    }
    atomic_store(&s->head, 4 * records);
    assert_true(blocks_of(p.path) >= empty + records * sizeof(struct mr_raw) / 512);
    atomic_store(&p.ring->starved, 1);
    assert_int_equal(mr_collector_poll(p.c, &busy, &err), 0);
    assert_int_equal(atomic_load(&s->written), 4 * records);
    assert_int_equal(atomic_load(&s->tail), 4 * records);
    assert_int_equal(atomic_load(&p.ring->starved), 0);
    assert_true(blocks_of(p.path) < empty + 64);
    /* The last page is still in use. */
    assert_int_equal(mr_cell_call(s->cell[4 * records - 4]), MR_CALL_pread);
    assert_int_equal(mr_collector_close(p.c, &stats, &err), 0);
    assert_int_equal(stats.events, records);
    end(&p);
}

/* R8: what a drainer that is killed before it moves `written` leaves. */
static void killed_drainer_leaves_what_the_next_one_needs(void **state)
{
    struct mr_slot *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    (void)state;
    assert_true(s != MAP_FAILED);
    for (uint64_t at = 0, next; at < 50; at = next) {
        next = at + 10;
        assert_int_equal(mr_slot_carry(s).at, at);
        mr_slot_carry_set(s, &(struct mr_carry){.at = next, .end = next});
        assert_int_equal(mr_slot_carry(s).at, at); /* killed here */
        assert_int_equal(mr_slot_carry(s).end, at);
        mr_slot_carry_set(s, &(struct mr_carry){.at = next + 1, .end = next + 1}); /* the next one comes farther */
        mr_slot_carry_set(s, &(struct mr_carry){.at = next, .end = next});
        atomic_store(&s->written, next);
    }
    munmap(s, sizeof(*s));
}

/* Positions that cannot be: the collector comes to an end, and so do the events that can be. */
static void damaged_positions_end_nothing_but_their_slot(void **state)
{
    static const uint64_t written[] = {UINT64_MAX - 1000, 100, UINT64_MAX, MR_RING_CELLS},
                          head[] = {1000, 50, UINT64_MAX - 4, UINT64_MAX};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct place p;
        struct mr_collect_stats stats;
        struct mr_error err;
        assert_true(begin_in(&p, "/tmp"));
        atomic_store(&mr_ring_slot(p.ring, 0)->written, written[i]);
        atomic_store(&mr_ring_slot(p.ring, 0)->head, head[i]);
        mr_ring_slot(p.ring, 1)->cell[0] = MR_CALL_read;
        atomic_store(&mr_ring_slot(p.ring, 1)->head, MR_RECORD_CELLS);
        assert_int_equal(mr_collector_close(p.c, &stats, &err), 0);
        assert_int_equal(stats.events, 1);
        end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(collector_drains_live_writers_exactly_once_in_order),
                                       cmocka_unit_test(starved_program_gets_the_memory_of_its_rings_back),
                                       cmocka_unit_test(killed_drainer_leaves_what_the_next_one_needs),
                                       cmocka_unit_test(damaged_positions_end_nothing_but_their_slot)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
