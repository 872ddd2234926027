/* The .mrt container: what goes in comes out, damage is skipped, duplicates are dropped. */
#include "base/common.h"
#include "base/rng.h"
#include "import/trace_read.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N 5000
static const struct mr_calibration cal = {
    .tick0 = 1000, .mono0 = 5000000, .real0 = 1700000000000000000ull, .tick1 = 2001000, .mono1 = 6000000};

struct event {
    uint64_t t0, dur, offset;
    int64_t result;
    uint32_t file;
    uint16_t call, fd;
    unsigned extras;
    bool repeat;
    uint64_t end;
};

static uint64_t draw(uint64_t *n)
{
    return mr_rng_at(42, MR_RNG_TEST, (*n)++);
}

/* A value of random width: small ones and 64-bit extremes are both likely. */
static uint64_t wide(uint64_t *n)
{
    return draw(n) >> draw(n) % 64;
}

static uint64_t put_record(uint64_t *ring, uint64_t at, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t word[] = {a, b, c, d};
    for (unsigned i = 0; i < 4; i++)
        ring[at++ & (MR_RING_CELLS - 1)] = word[i];
    return at;
}

/* What a repeat refers to. */
struct before {
    uint64_t end, offset;
    int64_t result;
};

/* An event like the one before: file, descriptor and, unless it is lseek, the result of the last record. Many come soon
 * and are short, as the short form wants it, or just too late, too long or too far. */
static void make_alike(struct event *e, const struct event *last, const struct before *b, uint64_t *seed)
{
    static const uint16_t call[] = {MR_CALL_read, MR_CALL_write, MR_CALL_pread, MR_CALL_pwrite, MR_CALL_lseek};
    unsigned kind = (unsigned)(draw(seed) % 5);
    int64_t near = (int64_t)draw(seed) >> (draw(seed) % 2 ? 32 : 44), far = (int64_t)draw(seed) >> 17;
    *e = (struct event){.dur = draw(seed) % (draw(seed) % 2 ? 65536 : 70000),
                        .offset = draw(seed) % 3 ? b->offset + (uint64_t)near : (uint64_t)far,
                        .file = last->file,
                        .call = call[kind],
                        .fd = last->fd,
                        .repeat = true};
    if (kind < MR_SHORT_pread || !MR_RAW_FITS48(e->offset))
        e->offset = kind < MR_SHORT_pread ? MR_NO_OFFSET : 0;
    e->result = kind == MR_SHORT_lseek ? (int64_t)e->offset : b->result;
}

static uint64_t put_repeat(uint64_t *ring, uint64_t at, const struct event *e, const struct before *b, uint64_t *shorts)
{
    static const uint16_t kind[] = {[MR_CALL_read] = MR_SHORT_read,
                                    [MR_CALL_write] = MR_SHORT_write,
                                    [MR_CALL_pread] = MR_SHORT_pread,
                                    [MR_CALL_pwrite] = MR_SHORT_pwrite,
                                    [MR_CALL_lseek] = MR_SHORT_lseek};
    uint64_t gap = e->t0 - b->end;
    int64_t step = e->offset == MR_NO_OFFSET ? 0 : (int64_t)(e->offset - b->offset);
    if (gap < 4096 && e->dur < 65536 && step >= INT32_MIN && step <= INT32_MAX) {
        ring[at++ & (MR_RING_CELLS - 1)] =
            (uint64_t)step << 32 | e->dur << 16 | MR_RAW_SHORT | gap << 3 | kind[e->call];
        (*shorts)++;
    } else {
        ring[at++ & (MR_RING_CELLS - 1)] = e->offset << 16 | MR_RAW_REPEAT | e->call;
        ring[at++ & (MR_RING_CELLS - 1)] = gap << 32 | e->dur;
    }
    return at;
}

/* Fills a ring as the tracer does, with continuation records where values do not fit. e[i].end is the position after
 * event i. */
static uint64_t fill(uint64_t *ring, struct event *e, size_t n, uint64_t *seed, uint64_t from)
{
    uint64_t at = from, shorts = 0;
    struct before b = {.end = 2000};
    for (size_t i = 0; i < n; i++) {
        e[i] = (struct event){.dur = draw(seed) % 10 ? draw(seed) % 5000 : wide(seed) >> 8,
                              .offset = draw(seed) % 5 ? draw(seed) % 100000 : wide(seed),
                              .result = draw(seed) % 5 ? (int64_t)(draw(seed) % 8192) : (int64_t)wide(seed),
                              .file = (uint32_t)draw(seed) % 50,
                              .call = (uint16_t)(MR_CALL_open + draw(seed) % 20),
                              .fd = (uint16_t)(draw(seed) % 100),
                              .extras = draw(seed) % 8 == 0};
        if (i && draw(seed) % 4 && MR_RAW_FITS48(b.result))
            make_alike(&e[i], &e[i - 1], &b, seed);
        e[i].t0 = b.end + (draw(seed) % 100 ? draw(seed) % 4500 : UINT32_MAX);
        if (e[i].repeat) {
            at = put_repeat(ring, at, &e[i], &b, &shorts);
        } else {
            at = put_record(ring, at, e[i].offset << 16 | e[i].call, (uint64_t)e[i].file << 32 | (uint32_t)e[i].dur,
                            e[i].t0, (uint64_t)e[i].result << 16 | e[i].fd);
            b.result = e[i].result;
        }
        if (!e[i].repeat || e[i].offset != MR_NO_OFFSET)
            b.offset = (uint64_t)((int64_t)(e[i].offset << 16) >> 16);
        b.end = e[i].t0 + (uint32_t)e[i].dur;
        const uint64_t more[4][3] = {{e[i].dur >> 32 != 0, MR_MORE_DURATION, e[i].dur},
                                     {!MR_RAW_FITS48(e[i].offset), MR_MORE_OFFSET, e[i].offset},
                                     {!MR_RAW_FITS48(e[i].result), MR_MORE_RESULT, (uint64_t)e[i].result},
                                     {e[i].extras, MR_MORE_COUNT, 77 + i}};
        for (int k = 0; k < 4; k++)
            if (more[k][0])
                at = put_record(ring, at, MR_CALL_more, more[k][1], more[k][2], 0);
        e[i].end = at;
    }
    assert_true(n < 1000 || (shorts > n / 10 && shorts < n / 10 * 8));
    return at;
}

struct fixture {
    char path[64];
    uint64_t *ring;
    struct mr_carry carry;
    void *workspace;
    uint8_t *out;
    struct event *e;
};

static void setup(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    memcpy(f->path, "/tmp/mrt-XXXXXX", 16);
    close(mkstemp(f->path));
    f->ring = calloc(MR_RING_CELLS, sizeof(*f->ring));
    f->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    memset(f->workspace, 0, mr_mrt_workspace_bytes());
    f->out = aligned_alloc(64, MR_MRT_EVENTS_MAX);
    f->e = calloc(N, sizeof(*f->e));
}

static void teardown(struct fixture *f)
{
    unlink(f->path);
    free(f->ring);
    free(f->workspace);
    free(f->out);
    free(f->e);
}

static void write_names(struct fixture *f, struct mr_mrt_writer *w)
{
    const struct mr_process_info p = {.key = 9,
                                      .pid = 12,
                                      .ppid = 1,
                                      .start_ns = cal.mono0,
                                      .start_real_ns = cal.real0,
                                      .rank = 3,
                                      .world = 8,
                                      .local_rank = -1,
                                      .local_world = -1,
                                      .host = "node",
                                      .host_len = 4,
                                      .exe = "/bin/x",
                                      .exe_len = 6,
                                      .cmdline = "x\0-y",
                                      .cmdline_len = 4};
    struct mr_mrt_block b = {.type = MR_MRT_PROCESS, .key = 9, .count = 1};
    b.payload_bytes = (uint32_t)mr_mrt_encode_process(&p, f->out + 64, MR_RING_PROCESS_BYTES);
    assert_int_equal(mr_mrt_writer_append(w, f->out, mr_mrt_seal(f->out, &b), NULL), 0);
    _Alignas(8) uint8_t arena[1024] = {0};
    uint64_t at = 0, bytes;
    uint32_t taken;
    for (uint32_t i = 1; i <= 50; i++) {
        struct mr_arena_string *s = (void *)(arena + at);
        s->len = 5;
        s->kind = MR_STR_PATH;
        memcpy(s->text, "/f", 2);
        s->text[2] = (char)('0' + i / 10);
        s->text[3] = (char)('0' + i % 10);
        s->text[4] = '\n'; /* names may hold anything */
        at += MR_ARENA_STRING_BYTES(5);
    }
    size_t n = mr_mrt_encode_strings(f->workspace, arena, at, 9, 1, f->out, MR_MRT_EVENTS_MAX, &bytes, &taken);
    assert_int_equal(taken, 50);
    assert_int_equal(mr_mrt_writer_append(w, f->out, n, NULL), 0);
}

/* From f->carry on. */
static size_t encode(struct fixture *f, uint64_t to)
{
    struct mr_mrt_block b;
    return mr_mrt_encode_events(f->workspace, f->ring, MR_RING_CELLS - 1, to, &f->carry, &cal, 9, 77, f->carry.at, 0,
                                f->out, &b);
}

/* Reads the file back and compares every field with what was put in. */
static void check(struct fixture *f, size_t n, uint64_t skipped)
{
    struct mr_trace *t;
    struct mr_error err;
    struct mr_event_batch b = {0};
    size_t k = 0;
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, f->path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(t->events, n);
    assert_int_equal(t->skipped_bytes > 0, skipped > 0);
    assert_int_equal(t->process[0].rank, 3);
    assert_string_equal(t->node[t->process[0].node].name, "node");
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        uint32_t a = 0;
        for (uint32_t i = 0; i < b.count; i++, k++) {
            const struct event *e = &f->e[k];
            uint64_t start = mr_ticks_to_ns(&cal, e->t0), end = mr_ticks_to_ns(&cal, e->t0 + e->dur);
            uint64_t shift = cal.real0 - cal.mono0;
            assert_int_equal(b.c.start_ns[i], start + shift);
            assert_int_equal(b.c.end_ns[i], end + shift);
            assert_int_equal(b.c.offset[i], e->offset);
            assert_int_equal(b.c.result[i], e->result);
            assert_int_equal(b.c.file[i], e->file);
            assert_int_equal(b.c.call[i], e->call);
            assert_int_equal(b.c.fd[i], e->fd);
            if (e->extras) {
                assert_int_equal(b.c.arg_event[a], i);
                assert_int_equal(b.c.arg_type[a], MR_MORE_COUNT);
                assert_int_equal(b.c.arg_value[a++], 77 + k);
            }
        }
        assert_int_equal(a, b.args);
    }
    const struct mr_trace_string *s = mr_trace_string(&t->process[0], 42);
    assert_int_equal(s->len, 5);
    assert_memory_equal(s->text, "/f42\n", 5);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void mrt_every_value_survives_blocks_of_any_size(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 6; round++) {
        struct fixture f;
        struct mr_mrt_writer *w;
        setup(&f);
        uint64_t seed = round * 1000003, from = round * 65000 * 8, to;
        if (round == 5)
            from = MR_RING_CELLS - 1001; /* goes on at the start of the ring, in the middle of records */
        assert_int_equal(mr_mrt_writer_open(f.path, false, &w, NULL), 0);
        write_names(&f, w);
        to = fill(f.ring, f.e, N, &seed, from);
        f.carry.at = from;
        for (size_t i = 0; f.carry.at < to;) {
            uint64_t step = draw(&seed) % 1500;
            i = MR_MIN(i + step, (uint64_t)N - 1);
            if (f.e[i].end <= f.carry.at)
                continue;
            size_t n = encode(&f, f.e[i].end);
            assert_int_equal(f.carry.at, f.e[i].end);
            assert_int_equal(mr_mrt_writer_append(w, f.out, n, NULL), 0);
        }
        if (round % 2) { /* a killed writer writes no footer */
            struct stat st;
            uint64_t bytes = mr_mrt_writer_bytes(w);
            assert_int_equal(mr_mrt_writer_close(w, NULL), 0);
            assert_int_equal(stat(f.path, &st), 0);
            assert_int_equal(st.st_mode & 0777, 0600);
            assert_int_equal(truncate(f.path, (off_t)bytes), 0);
        } else {
            assert_int_equal(mr_mrt_writer_close(w, NULL), 0);
        }
        check(&f, N, 0);
        teardown(&f);
    }
}

static void mrt_same_events_written_twice_count_once(void **state)
{
    struct fixture f;
    struct mr_mrt_writer *w;
    uint64_t seed = 5, to;
    (void)state;
    setup(&f);
    assert_int_equal(mr_mrt_writer_open(f.path, false, &w, NULL), 0);
    write_names(&f, w);
    to = fill(f.ring, f.e, 1000, &seed, 0);
    size_t n = encode(&f, f.e[500].end);
    assert_int_equal(mr_mrt_writer_append(w, f.out, n, NULL), 0);
    assert_int_equal(mr_mrt_writer_close(w, NULL), 0);
    /* The collector died before it moved the tail; recovery continues the file and takes the whole ring. */
    assert_int_equal(mr_mrt_writer_open(f.path, true, &w, NULL), 0);
    f.carry = (struct mr_carry){0};
    n = encode(&f, to);
    assert_int_equal(mr_mrt_writer_append(w, f.out, n, NULL), 0);
    assert_int_equal(mr_mrt_writer_close(w, NULL), 0);
    check(&f, 1000, 0);
    teardown(&f);
}

static void damage_one_of_two_blocks(bool footer)
{
    struct fixture f;
    struct mr_mrt_writer *w;
    uint64_t seed = 5, to;
    setup(&f);
    assert_int_equal(mr_mrt_writer_open(f.path, false, &w, NULL), 0);
    write_names(&f, w);
    to = fill(f.ring, f.e, 1000, &seed, 0);
    size_t n = encode(&f, to);
    assert_int_equal(mr_mrt_writer_append(w, f.out, n, NULL), 0);
    uint64_t second = mr_mrt_writer_bytes(w);
    assert_int_equal(mr_mrt_writer_append(w, f.out, n, NULL), 0); /* to be destroyed */
    assert_int_equal(mr_mrt_writer_close(w, NULL), 0);
    int fd = open(f.path, O_RDWR);
    uint8_t byte = 0x5a;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)second + 200), 1);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    if (!footer)
        assert_int_equal(ftruncate(fd, st.st_size - 16), 0);
    close(fd);
    check(&f, 1000, 1);
    teardown(&f);
}

static void mrt_damage_costs_only_the_damaged_block(void **state)
{
    (void)state;
    damage_one_of_two_blocks(false);
    damage_one_of_two_blocks(true);
}

struct sums {
    uint64_t count, durations, bytes, sizes, listed_bytes, files, file_calls;
};

static void sum_function(void *user, const struct mr_mrt_aggregate *a)
{
    struct sums *s = user;
    s->count += a->count;
    s->bytes += a->bytes;
}

static void sum_duration(void *user, unsigned bucket, uint64_t count)
{
    struct sums *s = user;
    assert_true(bucket < MR_HIST_BUCKETS);
    s->durations += count;
}

static void sum_size(void *user, uint64_t size, uint64_t count)
{
    struct sums *s = user;
    s->sizes += count;
    s->listed_bytes += size * count;
}

static void sum_sizes(void *user, const struct mr_mrt_sizes *z)
{
    struct sums *s = user;
    assert_true(z->min <= z->max);
    for (unsigned b = 0; b < MR_TALLY_BINS; b++)
        s->sizes += z->bin[b];
}

static void sum_nothing(void *user, unsigned bucket, uint64_t count)
{
    (void)user, (void)bucket, (void)count;
}

static void sum_file(void *user, const struct mr_tally_file *row)
{
    struct sums *s = user;
    s->files++;
    s->file_calls += row->calls;
}

static void mrt_aggregates_agree_with_events(void **state)
{
    static const struct mr_mrt_visitor how = {sum_function, sum_duration, sum_size, sum_sizes, sum_nothing, sum_file};
    struct fixture f;
    struct sums s = {0};
    uint64_t seed = 11, bytes = 0, sizes = 0;
    struct mr_mrt_view v = {0};
    (void)state;
    setup(&f);
    uint64_t to = fill(f.ring, f.e, 2000, &seed, 0);
    for (int round = 0; round < 2; round++) { /* the workspace is as good as new after each block */
        memset(&s, 0, sizeof(s));
        encode(&f, to);
    }
    v.payload = f.out + 64;
    v.head.payload_bytes = mr_load_le32(f.out + 8);
    v.head.count = mr_load_le32(f.out + 28);
    int covers = mr_mrt_aggregates(&v, &how, &s, NULL);
    for (int i = 0; i < 2000; i++)
        if (f.e[i].result >= 0 && mr_kind_moves_data(mr_call_get(f.e[i].call)->kind)) {
            bytes += (uint64_t)f.e[i].result;
            sizes++;
        }
    assert_true(covers & MR_COVERS_FUNCTIONS);
    assert_int_equal(s.count, 2000);
    assert_int_equal(s.durations, 2000);
    assert_int_equal(s.sizes, sizes);
    assert_true(s.bytes == bytes);
    teardown(&f);
}

static void calls_are_found_by_every_spelling(void **state)
{
    static const char *const same[][2] = {{"open", "open64"},     {"stat", "__xstat64"},  {"fstat", "__fxstat"},
                                          {"read", "__read_chk"}, {"open", "__open64_2"}, {"fopen", "fopen64"},
                                          {"lseek", "lseek64"},   {"getc", "_IO_getc"},   {"preadv2", "preadv64v2"}};
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(same); i++) {
        unsigned a = mr_call_find(same[i][0], strlen(same[i][0])), b = mr_call_find(same[i][1], strlen(same[i][1]));
        assert_true(a != MR_CALL_none);
        assert_int_equal(a, b);
    }
    assert_int_equal(mr_call_find("no_such_call", 12), MR_CALL_none);
    for (unsigned c = 1; c < MR_CALL_COUNT; c++)
        assert_true(mr_call_get(c)->name != NULL);
    assert_int_equal(mr_call_get(60000)->kind, mr_call_get(0)->kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mrt_every_value_survives_blocks_of_any_size),
        cmocka_unit_test(mrt_same_events_written_twice_count_once),
        cmocka_unit_test(mrt_damage_costs_only_the_damaged_block),
        cmocka_unit_test(mrt_aggregates_agree_with_events),
        cmocka_unit_test(calls_are_found_by_every_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
