/* Draining of ring files.
 *
 * Encoding takes CPU time that a busy program would miss. Records therefore stay in their rings, where they survive a
 * kill as well as in the file, until a CPU is idle, a ring or memory fills up, or they get old (FRESH_NS).
 *
 * Invariants
 *  C1. Strings are written after head was read and before the events up to head: every name precedes its use.
 *  C2. written moves only after the block is in the file; a collector killed in between leaves the same events in the
 *      ring, and readers drop the older copy (same process, thread, sequence). Memory is freed after that, and tail
 *      moves last (R6).
 *  C3. A ring file is removed only when its process is gone and everything in it is written. */
#include "event/collect_internal.h"
#include "base/process.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/vec.h"
#include "event/mounts.h"
#include "event/start.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SESSION_BYTES 4096

#define URGENT (MR_RING_CELLS / 4 * 3) /* cells of a thread that do not wait for an idle CPU */
#define MEMORY_BYTES (256ull << 20)    /* what all rings may hold before memory is given back */
#define FRESH_NS (10 * MR_NS_PER_S)    /* then blocks that are not full are written as well */
#define WATCHED_NS (MR_NS_PER_S / 2)   /* the same while `millrace watch` reads the trace */
#define GONE_RINGS 32                  /* rings of ended processes that may wait */
#define ENDED_SLOTS 32                 /* slots of ended threads that may wait */

static uint64_t ticks_now(const struct mr_ring_header *h)
{
#if defined(__x86_64__)
    if (h->tick_is_tsc)
        return __builtin_ia32_rdtsc();
#endif
    (void)h;
    return mr_now_ns();
}

/* The rings' counter runs on; a second point of it now gives the rate. After a reboot the counters no longer belong
 * together, and the pair stored by the process is all there is. */
static struct mr_calibration calibrate(const struct mr_ring_header *h)
{
    struct mr_calibration c = {
        .tick0 = h->tick0, .mono0 = h->mono0, .real0 = h->real0, .tick1 = h->tick0, .mono1 = h->mono0};
    uint64_t best = UINT64_MAX, tick = 0, mono = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t a = ticks_now(h), m = mr_now_ns(), b = ticks_now(h);
        if (b - a < best) {
            best = b - a;
            tick = h->tick_is_tsc ? a + (b - a) / 2 : m;
            mono = m;
        }
    }
    if (tick > h->tick0 && mono > h->mono0) {
        c.tick1 = tick;
        c.mono1 = mono;
    }
    return c;
}

static void *map_file(const char *path, size_t want, bool writable)
{
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    void *p = MAP_FAILED;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size >= want)
        p = mmap(NULL, want, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static struct mr_ring_header *map_segment(struct mr_collector *c, const char *stem, unsigned segment)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s%u.ring", c->spool, stem, segment);
    struct mr_ring_header *h = map_file(path, MR_RING_SEGMENT_BYTES(segment), true);
    if (h && (__atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) != MR_RING_MAGIC || h->version != MR_RING_VERSION ||
              h->segment != segment || h->process_bytes > MR_RING_PROCESS_BYTES)) {
        munmap(h, MR_RING_SEGMENT_BYTES(segment));
        return NULL;
    }
    return h;
}

int mr_collect_append(struct mr_collector *c, const uint8_t *block, size_t n, struct mr_error *err)
{
    return n ? mr_mrt_writer_append(c->writer, block, n, err) : 0;
}

/* Before and after exec. Processes of two containers may have the same pid. */
static bool same_process(const struct ring *a, const struct ring *b)
{
    return a->pid == b->pid && a->pid_space == b->pid_space;
}

/* Mounts and start, once in a file; not for rings that an earlier run left, maybe on another machine. */
static int write_surroundings(struct mr_collector *c, uint64_t key, uint64_t now, struct mr_error *err)
{
    bool wanted = !c->mounts_written && c->live;
    int rc = mr_collect_append(c, c->buffer, wanted ? mr_mounts_block(key, now, c->buffer) : 0, err);
    c->mounts_written = true;
    if (rc || !wanted || !c->argv)
        return rc;
    return mr_collect_append(c, c->buffer, mr_start_block(key, now, c->argv, c->buffer), err);
}

static int describe(struct mr_collector *c, struct ring *r, struct mr_error *err)
{
    struct mr_ring_header *h = r->segment[0];
    const struct mr_mrt_block b = {.type = MR_MRT_PROCESS,
                                   .key = r->key,
                                   .count = 1,
                                   .first_ns = h->mono0,
                                   .last_ns = h->mono0,
                                   .payload_bytes = h->process_bytes};
    if (r->described)
        return 0;
    memcpy(c->buffer + MR_MRT_HEADER, (uint8_t *)h + MR_RING_PROCESS_AT, h->process_bytes);
    r->described = true;
    for (size_t i = 0; i < c->rings && !r->counted; i++) /* an image after exec is the same process */
        r->counted = same_process(&c->ring[i], r) && c->ring[i].counted;
    c->stats.processes += !r->counted;
    r->counted = true;
    int rc = mr_collect_append(c, c->buffer, mr_mrt_seal(c->buffer, &b), err);
    return rc ? rc : write_surroundings(c, r->key, h->mono0, err);
}

static int drain_strings(struct mr_collector *c, struct ring *r, struct mr_error *err)
{
    struct mr_ring_header *h = r->segment[0];
    uint64_t said = atomic_load_explicit(&h->strings_used, memory_order_acquire); /* once: it grows while we look */
    uint64_t used = MR_MIN(said, MR_RING_STRING_BYTES);
    int rc = describe(c, r, err);
    while (rc == 0 && r->strings_bytes < used) {
        uint64_t bytes;
        uint32_t count;
        const uint8_t *from = (uint8_t *)h + MR_RING_STRINGS_AT + r->strings_bytes;
        size_t n = mr_mrt_encode_strings(c->workspace, from, used - r->strings_bytes, r->key, r->strings + 1, c->buffer,
                                         MR_MRT_EVENTS_MAX, &bytes, &count);
        if (!count)
            break;
        rc = mr_collect_append(c, c->buffer, n, err);
        r->strings_bytes += bytes;
        r->strings += count;
    }
    return rc;
}

/* Size limit: two files of half the size take turns. True if a block of events of n bytes belongs in the next one; a
 * file whose names alone fill it gets one block all the same. */
bool mr_collect_is_full(const struct mr_collector *c, size_t n)
{
    return c->max_bytes && c->has_events && mr_mrt_writer_bytes(c->writer) + n > c->max_bytes / 2;
}

/* The older file goes. Names are written again into the new one. */
int mr_collect_turn_over(struct mr_collector *c, struct mr_error *err)
{
    char old[4096];
    c->has_events = c->mounts_written = false;
    c->stats.dropped |= c->turns++ > 0; /* the file before the last one goes */
    c->session->turns = c->turns;       /* for recover, should we be killed */
    snprintf(old, sizeof(old), "%s.1", c->out);
    int rc = mr_mrt_writer_close(c->writer, err);
    c->writer = NULL;
    if (rc == 0 && rename(c->out, old) < 0)
        rc = mr_error_set(err, -errno, "cannot rename '%s'", c->out);
    rc = rc ? rc : mr_mrt_writer_open(c->out, false, &c->writer, err);
    for (size_t i = 0; i < c->rings && rc == 0; i++) {
        c->ring[i].described = false;
        c->ring[i].strings = 0;
        c->ring[i].strings_bytes = 0;
    }
    return rc;
}

/* Frees the memory of written records: whole pages of [from, to). Where the file system cannot do that, it stays. */
static void give_back(struct mr_slot *s, uint64_t from, uint64_t to)
{
    assert(from <= to); /* R2, R6 */
    const uint64_t page = 4096 / sizeof(s->cell[0]);
    for (uint64_t a = MR_ALIGN_UP(from, page), b = to / page * page; a < b;) {
        uint64_t end = MR_MIN(b, (a / MR_RING_CELLS + 1) * MR_RING_CELLS);
        if (madvise(&s->cell[a & (MR_RING_CELLS - 1)], (end - a) * sizeof(s->cell[0]), MADV_REMOVE) < 0)
            return;
        a = end;
    }
    atomic_store_explicit(&s->freed, to, memory_order_relaxed);
}

/* Drains a slot in whole blocks until less than `keep` cells are left; keep 0 takes everything. */
static int drain_slot(struct mr_collector *c, struct ring *r, struct mr_slot *s, unsigned index, uint64_t keep,
                      bool *busy, struct mr_error *err)
{
    uint32_t expected = 0;
    int rc = 0;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire),
             from = atomic_load_explicit(&s->written, memory_order_acquire);
    if (head == from || head - from - mr_slot_gap(s, from, head) < keep)
        return 0;
    if (!atomic_compare_exchange_strong(&s->drain_lock, &expected, 1)) {
        if (!r->gone)
            return 0;                    /* its own thread is draining it */
        atomic_store(&s->drain_lock, 1); /* the holder died */
    }
    *busy = true;
    rc = drain_strings(c, r, err);
    for (from = atomic_load(&s->written);
         rc == 0 && from < head && head - from <= MR_RING_CELLS && head - from - mr_slot_gap(s, from, head) >= keep;) {
        struct mr_calibration cal = calibrate(r->segment[0]);
        struct mr_carry carry = mr_slot_carry(s);
        struct mr_mrt_block b;
        size_t n = mr_mrt_encode_events(c->workspace, s->cell, MR_RING_CELLS - 1, head, &carry, &cal, r->key, s->tid,
                                        (uint64_t)index << 48 | from, atomic_load(&s->lost), c->buffer, &b);
        if (b.count && mr_collect_is_full(c, n)) {
            rc = mr_collect_turn_over(c, err);
            rc = rc ? rc : drain_strings(c, r, err);
            continue;
        }
        assert(carry.at >= from); /* R2: written never moves back */
        rc = b.count ? mr_collect_append(c, c->buffer, n, err) : 0;
        if (rc == 0) {
            c->has_events |= b.count > 0;
            r->events += b.count;
            c->session->recorded += b.count;
            mr_slot_carry_set(s, &carry);
            atomic_store_explicit(&s->written, carry.at, memory_order_release);
            if (c->tight && !r->gone)
                give_back(s, atomic_load(&s->tail), carry.at);
            from = carry.at;
            atomic_store_explicit(&s->tail, from, memory_order_release);
            rc = drain_strings(c, r, err);
        }
    }
    atomic_store_explicit(&s->drain_lock, 0, memory_order_release);
    return rc;
}

static bool map_segments(struct mr_collector *c, struct ring *r, uint32_t segments)
{
    assert(segments <= MR_RING_SEGMENTS);
    if (segments > r->segments) {
        struct mr_ring_header **more = realloc(r->segment, segments * sizeof(*more));
        if (!more)
            return false;
        memset(more + r->segments, 0, (segments - r->segments) * sizeof(*more));
        r->segment = more;
        r->segments = segments;
    }
    for (uint32_t g = 0; g < segments; g++)
        if (!r->segment[g])
            r->segment[g] = map_segment(c, r->name, g);
    return true;
}

static uint64_t keep_for(enum hurry hurry)
{
    static const uint64_t keep[] = {
        [WAIT] = URGENT, [IDLE_CPU] = MR_BLOCK_CELLS, [CATCH_UP] = MR_BLOCK_CELLS, [EVERYTHING] = 0};
    return keep[hurry];
}

static int drain_ring(struct mr_collector *c, struct ring *r, enum hurry hurry, bool *busy, struct mr_error *err)
{
    uint32_t said = atomic_load(&r->segment[0]->segments), segments = MR_MIN(said, MR_RING_SEGMENTS);
    int rc = map_segments(c, r, segments)
                 ? 0
                 : mr_error_set(err, -ENOMEM, "cannot follow %u threads", segments * MR_RING_SLOTS);
    for (uint32_t g = 0; g < segments && rc == 0; g++)
        for (unsigned i = 0; r->segment[g] && i < mr_ring_slots(r->segment[g]) && rc == 0; i++) {
            struct mr_slot *s = mr_ring_slot(r->segment[g], i);
            uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
            bool done = state == MR_SLOT_DONE && (hurry > WAIT || c->ended_before > ENDED_SLOTS);
            rc = drain_slot(c, r, s, g * MR_RING_SLOTS + i, done ? 0 : keep_for(hurry), busy, err);
            if (rc == 0 && state == MR_SLOT_DONE && atomic_load(&s->head) == atomic_load(&s->written))
                atomic_store_explicit(&s->state, MR_SLOT_FREE, memory_order_release);
            else
                c->ended += state == MR_SLOT_DONE;
        }
    return rc;
}

/* A process is gone when the kernel no longer knows it, when it is a zombie (except one whose first thread ended before
 * the others), or when it runs another image. In another pid namespace only the process itself can tell us; one that
 * was killed there counts as running. */
bool mr_collect_process_gone(const struct ring *r)
{
    if (r->foreign) {
        uint32_t state = atomic_load(&r->segment[0]->state);
        return state == MR_RING_EXITED ||
               (state == MR_RING_EXEC && r->exec_ns && mr_now_ns() - r->exec_ns > MR_NS_PER_S); /* it may fail yet */
    }
    return mr_process_gone((pid_t)r->pid);
}

/* A process that has recorded since the last pass was alive a moment ago: no need to ask the kernel yet. */
static bool has_recorded(struct ring *r)
{
    uint64_t heads = 0;
    for (uint32_t g = 0; g < r->segments; g++)
        for (unsigned i = 0; r->segment[g] && i < mr_ring_slots(r->segment[g]); i++) {
            struct mr_slot *s = mr_ring_slot(r->segment[g], i);
            heads += atomic_load_explicit(&s->head, memory_order_relaxed);
        }
    bool more = heads != r->heads;
    r->heads = heads;
    return more;
}

static void unmap_ring(struct mr_collector *c, struct ring *r, bool remove_files)
{
    for (uint32_t g = 0; g < r->segments; g++) {
        char path[4096];
        if (!r->segment[g])
            continue;
        munmap(r->segment[g], MR_RING_SEGMENT_BYTES(g));
        r->segment[g] = NULL;
        snprintf(path, sizeof(path), "%s/%s%u.ring", c->spool, r->name, g);
        if (remove_files)
            unlink(path);
    }
    free(r->segment);
    r->segment = NULL;
    r->segments = 0;
}

static uint64_t count_lost(const struct ring *r, uint32_t *threads, uint64_t *skipped)
{
    uint64_t lost = atomic_load(&r->segment[0]->lost);
    *threads = 0;
    memset(skipped, 0, MR_SLOT_CALLS * sizeof(*skipped));
    for (uint32_t g = 0; g < r->segments; g++)
        for (unsigned i = 0; r->segment[g] && i < mr_ring_slots(r->segment[g]); i++) {
            struct mr_slot *s = mr_ring_slot(r->segment[g], i);
            *threads += s->tid != 0;
            lost += atomic_load(&s->lost);
            for (unsigned c = 0; s->tid && c < MR_SLOT_CALLS; c++)
                skipped[c] += atomic_load_explicit(&s->skipped[c], memory_order_relaxed);
        }
    return lost;
}

/* R9: the exec that the process was in when it ended. */
static int drain_exec(struct mr_collector *c, struct ring *r, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t g = 0; g < r->segments; g++)
        for (unsigned i = 0; r->segment[g] && i < mr_ring_slots(r->segment[g]) && rc == 0; i++) {
            struct mr_slot *s = mr_ring_slot(r->segment[g], i);
            struct mr_mrt_block b;
            uint32_t taken;
            if (!atomic_load(&s->exec_set))
                continue;
            struct mr_calibration cal = calibrate(r->segment[0]);
            size_t n = mr_mrt_encode_records(c->workspace, &s->exec, 1, &cal, r->key, s->tid,
                                             (uint64_t)(g * MR_RING_SLOTS + i) << 48 | atomic_load(&s->head),
                                             atomic_load(&s->lost), c->buffer, &taken, &b);
            rc = mr_collect_append(c, c->buffer, n, err);
            c->has_events = true;
            r->events++;
        }
    return rc;
}

/* Writes the rest of a ring whose process has gone (or is left behind) and lets go of it. */
static int finish_ring(struct mr_collector *c, struct ring *r, enum mr_mrt_how how, struct mr_error *err)
{
    bool busy;
    uint32_t threads;
    int rc = drain_ring(c, r, EVERYTHING, &busy, err);
    rc = rc ? rc : drain_strings(c, r, err);
    if (rc == 0 && (how == MR_HOW_EXEC || how == MR_HOW_KILLED))
        rc = drain_exec(c, r, err);
    if (rc < 0)
        return rc;
    uint64_t skipped[MR_SLOT_CALLS];
    uint64_t lost = count_lost(r, &threads, skipped);
    c->stats.lost += lost;
    c->stats.events += r->events;
    c->stats.unnamed += atomic_load(&r->segment[0]->strings_full);
    c->stats.killed += how == MR_HOW_KILLED;
    rc = mr_collect_append(
        c, c->buffer, mr_mrt_encode_end(r->key, how, threads, r->events, lost, mr_now_ns(), skipped, c->buffer), err);
    assert(!r->finished && how != 0); /* C3: a ring ends once, and says how */
    r->finished = true;
    if (rc == 0)
        unmap_ring(c, r, how != MR_HOW_RUNNING);
    return rc;
}

static struct ring *find_ring(struct mr_collector *c, const char *stem)
{
    for (size_t i = 0; i < c->rings; i++)
        if (!strcmp(c->ring[i].name, stem))
            return &c->ring[i];
    return NULL;
}

/* Maps the ring files that are new in the spool. */
static int look_for_rings(struct mr_collector *c, struct mr_error *err)
{
    DIR *d = opendir(c->spool);
    if (!d)
        return mr_error_set(err, -errno, "cannot read the spool folder '%s'", c->spool);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 8 || strcmp(e->d_name + n - 7, ".0.ring") != 0)
            continue;
        char stem[256];
        snprintf(stem, sizeof(stem), "%.*s", (int)(n - 6), e->d_name);
        if (find_ring(c, stem))
            continue;
        struct mr_ring_header *h = map_segment(c, stem, 0);
        if (!h)
            continue; /* not yet complete */
        if (mr_vec_reserve(&c->ring, &c->cap, c->rings + 1, sizeof(*c->ring)) < 0) {
            closedir(d);
            return mr_error_set(err, -ENOMEM, "cannot follow %zu processes", c->rings + 1);
        }
        struct ring *r = &c->ring[c->rings];
        memset(r, 0, sizeof(*r));
        r->segment = malloc(sizeof(*r->segment));
        r->name = strdup(stem);
        r->key = h->key;
        r->pid = h->pid;
        r->pid_space = h->pid_space;
        r->mono0 = h->mono0;
        r->foreign = h->pid_space && c->pid_space && h->pid_space != c->pid_space;
        if (!r->name || !r->segment) {
            munmap(h, MR_RING_SEGMENT_BYTES(0));
            free(r->segment);
            free(r->name);
            break;
        }
        r->segment[0] = h;
        r->segments = 1;
        c->rings++;
        for (size_t i = 0; i + 1 < c->rings; i++) /* a younger image of the same process: exec has happened */
            if (same_process(&c->ring[i], r) && !c->ring[i].finished && c->ring[i].mono0 < r->mono0)
                c->ring[i].gone = true;
    }
    closedir(d);
    return 0;
}

static enum mr_mrt_how how_ended(const struct ring *r)
{
    uint32_t state = atomic_load(&r->segment[0]->state);
    return state == MR_RING_EXEC ? MR_HOW_EXEC : state == MR_RING_EXITED ? MR_HOW_EXIT : MR_HOW_KILLED;
}

/* True if fewer tasks want to run than there are CPUs, not counting us: a glance, but there is one every few
 * milliseconds. */
static bool cpu_is_idle(const struct mr_collector *c)
{
    char text[128];
    ssize_t n = c->load >= 0 ? pread(c->load, text, sizeof(text) - 1, 0) : -1;
    if (n <= 0)
        return true;
    text[n] = 0;
    const char *p = text;
    for (int field = 0; field < 3 && p; field++)
        p = strchr(p + (field > 0), ' ');
    return !p || strtol(p, NULL, 10) <= c->cpus;
}

/* Bytes that the rings hold. */
static uint64_t memory_used(const struct mr_collector *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->rings; i++)
        for (uint32_t g = 0; !c->ring[i].finished && g < c->ring[i].segments; g++) {
            char path[4096];
            struct stat st;
            snprintf(path, sizeof(path), "%s/%s%u.ring", c->spool, c->ring[i].name, g);
            if (stat(path, &st) == 0)
                bytes += (uint64_t)st.st_blocks * 512;
        }
    return bytes;
}

/* How far the rings are emptied in this pass. */
static enum hurry decide(struct mr_collector *c, uint64_t now, unsigned *waiting)
{
    bool starved = false;
    *waiting = 0;
    for (size_t i = 0; i < c->rings; i++)
        if (!c->ring[i].finished) {
            starved |= atomic_exchange(&c->ring[i].segment[0]->starved, 0) != 0;
            *waiting += c->ring[i].gone;
        }
    if (starved || now - c->weighed_ns > 100 * MR_NS_PER_MS) {
        struct statvfs fs;
        uint64_t limit = MEMORY_BYTES, memory = memory_used(c);
        if (statvfs(c->spool, &fs) == 0)
            limit = MR_MIN(limit, ((uint64_t)fs.f_bavail * fs.f_frsize + memory) / 2);
        c->tight = starved || memory > limit;
        c->weighed_ns = now;
    }
    c->ended_before = c->ended;
    c->ended = 0;
    if (c->closing || starved)
        return EVERYTHING;
    /* Whoever reads the trace of a running program finds what is older than that. */
    bool watched = now < atomic_load_explicit(&c->session->watched_until_ns, memory_order_relaxed);
    if (now - c->emptied_ns > (watched ? WATCHED_NS : FRESH_NS)) {
        c->emptied_ns = c->caught_up_ns = now;
        return EVERYTHING;
    }
    uint64_t age = now - c->caught_up_ns;
    bool idle = cpu_is_idle(c);
    /* With a size limit the order in which rings are drained decides what is kept: it must be near the order in time.
     */
    if (c->max_bytes || c->tight || (idle && age > MR_NS_PER_S)) {
        c->caught_up_ns = now;
        return CATCH_UP;
    }
    return idle ? IDLE_CPU : WAIT;
}

int mr_collector_poll(struct mr_collector *c, bool *busy, struct mr_error *err)
{
    uint64_t now = mr_now_ns();
    unsigned waiting;
    bool look = c->closing || now - c->scanned_ns > 5 * MR_NS_PER_MS;
    int rc = look ? look_for_rings(c, err) : 0;
    if (look)
        c->scanned_ns = now;
    enum hurry hurry = decide(c, now, &waiting);
    *busy = false;
    for (size_t i = 0; i < c->rings && rc == 0; i++) {
        struct ring *r = &c->ring[i];
        if (r->finished)
            continue;
        if (atomic_load(&r->segment[0]->state) != MR_RING_EXEC)
            r->exec_ns = 0;
        else if (!r->exec_ns || c->closing)
            r->exec_ns = c->closing ? 1 : now;
        /* Asked before draining: what a process wrote before it was seen gone is then certainly drained. */
        if (look && !r->gone && (c->closing || !has_recorded(r)))
            r->gone = mr_collect_process_gone(r);
        if (r->gone && !r->gone_ns)
            r->gone_ns = now;
        if (r->gone && (hurry > WAIT || waiting > GONE_RINGS || now - r->gone_ns > MR_NS_PER_S))
            rc = finish_ring(c, r, how_ended(r), err);
        else
            rc = drain_ring(c, r, r->gone ? WAIT : hurry, busy, err);
    }
    if (rc < 0)
        atomic_store(&c->session->collecting, MR_SESSION_OFF);
    return rc;
}

void mr_collector_program(struct mr_collector *c, char *const *argv)
{
    c->argv = argv;
}

void mr_collector_expect(struct mr_collector *c, unsigned processes)
{
    c->stats.running = processes;
}

unsigned mr_collector_running(struct mr_collector *c)
{
    unsigned n = 0;
    for (size_t i = 0; i < c->rings; i++)
        n += !c->ring[i].finished && !c->ring[i].gone && !mr_collect_process_gone(&c->ring[i]);
    return n;
}

/* Whether the file is new, or a collector made it; one that was killed while it did leaves zeros. */
static bool is_session(int fd)
{
    static const char zeros[SESSION_BYTES];
    char page[SESSION_BYTES];
    uint64_t magic;
    ssize_t n = pread(fd, page, sizeof page, 0);
    if (n != (ssize_t)sizeof page)
        return n == 0;
    memcpy(&magic, page, sizeof magic);
    return magic == MR_SESSION_MAGIC || memcmp(page, zeros, sizeof page) == 0;
}

static int make_session(struct mr_collector *c, struct mr_error *err)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/session", c->spool);
    int fd = mr_openat_regular(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, NULL);
    if (fd >= 0 && !is_session(fd)) {
        close(fd);
        fd = MR_E_FORMAT;
    }
    if (fd == MR_E_FORMAT)
        return mr_error_plain(err, MR_E_FORMAT,
                              "'%s' holds no interrupted trace: its file 'session' is of something else", c->spool);
    if (fd < 0)
        return mr_error_set(err, fd, "cannot create '%s'", path);
    int full =
        posix_fallocate(fd, 0, SESSION_BYTES); /* without memory, writing to the mapping would end us by SIGBUS */
    errno = full;
    void *p = !full ? mmap(NULL, SESSION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    int rc = p == MAP_FAILED ? mr_error_set(err, -errno, "cannot map '%s'", path) : 0;
    close(fd);
    if (rc < 0)
        return rc;
    c->session = p;
    if (!c->live && c->session->magic == MR_SESSION_MAGIC) { /* of a collector that was killed */
        c->turns = c->session->turns;
        c->stats.dropped = c->turns > 1;
        c->before = c->session->recorded;
    }
    c->session->version = MR_RING_VERSION;
    c->session->collector_pid = (uint32_t)getpid();
    atomic_store(&c->session->collecting, c->live);
    c->session->magic = MR_SESSION_MAGIC;
    return 0;
}

static void collector_free(struct mr_collector *c)
{
    for (size_t i = 0; i < c->rings; i++) {
        unmap_ring(c, &c->ring[i], false);
        free(c->ring[i].name);
    }
    if (c->session)
        munmap(c->session, SESSION_BYTES);
    if (c->load >= 0)
        close(c->load);
    free(c->ring);
    free(c->workspace);
    free(c->buffer);
    free(c->spool);
    free(c->out);
    free(c);
}

int mr_collector_open(const char *spool, const char *out, bool live, bool resume, uint64_t max_bytes,
                      struct mr_collector **result, struct mr_error *err)
{
    struct mr_collector *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot start the collector");
    c->live = live;
    c->max_bytes = max_bytes;
    c->caught_up_ns = c->emptied_ns = mr_now_ns();
    c->cpus = sysconf(_SC_NPROCESSORS_ONLN);
    c->load = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    struct stat space;
    c->pid_space = stat("/proc/self/ns/pid", &space) == 0 ? (uint64_t)space.st_ino : 0;
    c->spool = strdup(spool);
    c->out = strdup(out);
    c->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    c->buffer = aligned_alloc(64, MR_MRT_EVENTS_MAX + 4096);
    int rc =
        c->spool && c->out && c->workspace && c->buffer ? 0 : mr_error_set(err, -ENOMEM, "cannot start the collector");
    if (rc == 0)
        memset(c->workspace, 0, mr_mrt_workspace_bytes());
    if (rc == 0 && max_bytes && max_bytes / MR_LIMIT_PARTS < MR_BLOCK_EVENTS) /* a block is a small part of the limit */
        mr_mrt_workspace_block(c->workspace, (uint32_t)MR_MAX(max_bytes / MR_LIMIT_PARTS, 256));
    rc = rc ? rc : make_session(c, err);
    rc = rc ? rc : mr_mrt_writer_open(out, resume, &c->writer, err);
    if (rc < 0) {
        collector_free(c);
        return rc;
    }
    *result = c;
    return 0;
}

/* Rings of processes that were ended while they made them: there is nothing in them. */
static void remove_unborn(struct mr_collector *c)
{
    DIR *d = opendir(c->spool);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        uint64_t magic = 1;
        int fd = n > 7 && !strcmp(e->d_name + n - 7, ".0.ring")
                     ? openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                     : -1;
        if (fd < 0)
            continue;
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        ssize_t got = pread(fd, &magic, sizeof(magic), 0);
        close(fd);
        if ((got == 0 || (got == sizeof(magic) && !magic)) && pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
}

int mr_collector_close(struct mr_collector *c, struct mr_collect_stats *stats, struct mr_error *err)
{
    bool busy;
    if (!c)
        return 0;
    c->closing = true;
    int rc = c->max_bytes ? mr_collect_join_files(c, err)
                          : 0; /* what processes wrote themselves is older than what is left in the rings */
    rc = rc ? rc : mr_collector_poll(c, &busy, err);
    atomic_store(&c->session->collecting, 0); /* whoever still runs drains itself from here on */
    for (size_t i = 0; i < c->rings && rc == 0; i++)
        if (!c->ring[i].finished) {
            c->stats.running++;
            c->ring[i].left = true;
            rc = finish_ring(c, &c->ring[i], MR_HOW_RUNNING, err);
        }
    rc = rc ? rc : mr_collect_join_files(c, err);
    if (rc == 0 && c->turns) {
        char old[4096];
        snprintf(old, sizeof(old), "%s.1", c->out);
        rc = mr_collect_join_file(c, old, false, err);
    }
    if (rc == 0 && c->stats.dropped) /* whole processes may be gone, and what they have recorded with them */
        rc = mr_collect_append(
            c, c->buffer,
            mr_mrt_encode_end(0, MR_HOW_EXIT, 0, c->before + c->stats.events, 0, mr_now_ns(), NULL, c->buffer), err);
    struct mr_error second;
    int closed = mr_mrt_writer_close(c->writer, rc ? &second : err);
    c->stats.bytes = 0;
    struct stat st;
    if (stat(c->out, &st) == 0)
        c->stats.bytes = (uint64_t)st.st_size;
    if (!c->stats.running && rc == 0) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/session", c->spool);
        unlink(path);
        remove_unborn(c);
        rmdir(c->spool);
    }
    *stats = c->stats;
    collector_free(c);
    return rc ? rc : closed;
}
