/* States of real trainings: what is saved comes back bit for bit, whatever its shape; memory is bounded by the ring;
 * ranks complete a checkpoint without talking; errors are told once, and nothing torn is ever loaded. test-label:
 * concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "unit/checkpoint_test.h"

#include <errno.h>
#include <millrace/state.h>
#include <pthread.h>
#include <sys/resource.h>

static struct mr_saver_params params(void)
{
    return (struct mr_saver_params){
        .size = sizeof(struct mr_saver_params), .folder = ct_dir, .world = 1, .fsync = true, .copy_threads = 2};
}

static struct mr_saver *open_saver(const struct mr_saver_params *p)
{
    struct mr_saver *s;
    struct mr_error e = {0};
    if (mr_saver_open(p, &s, &e))
        fail_msg("%s", e.message);
    return s;
}

static struct mr_state_reader *open_state(uint64_t step)
{
    struct mr_state_reader *r;
    struct mr_error e = {0};
    struct mr_state_params p = {.size = sizeof p, .folder = ct_dir, .step = step, .threads = 3};
    if (mr_state_open(&p, &r, &e))
        fail_msg("%s", e.message);
    return r;
}

static void expect_tensor(struct mr_state_reader *r, uint32_t rank, const char *name, const void *want, uint64_t bytes)
{
    struct mr_error e = {0};
    size_t i = mr_state_find(r, rank, name);
    assert_int_not_equal(i, SIZE_MAX);
    assert_int_equal(mr_state_tensor(r, i)->bytes, bytes);
    uint8_t *have = malloc(bytes + 1);
    assert_non_null(have);
    if (mr_state_read(r, &(struct mr_state_range){i, 0, bytes, have, 0}, 1, &e))
        fail_msg("%s: %s", name, e.message);
    assert_memory_equal(have, want, bytes);
    free(have);
}

static void *random_bytes(size_t n, uint64_t seed)
{
    uint8_t *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(mr_mix64(seed + i / 8) >> (8 * (i % 8)));
    return p;
}

/* All of a state: odd sizes, views with gaps, reversed, broadcast, transposed, tied, empty, one value, odd names. */
static void state_comes_back_bit_for_bit(void **unused)
{
    (void)unused;
    float *big = random_bytes(3000 * 1001 * sizeof(float), 1); /* more than one chunk */
    uint16_t half[7] = {1, 2, 3, 4, 5, 6, 7};
    uint8_t flag = 1;
    double one = 0.1;
    struct mr_tensor t[] = {
        {.name = "flag", .dtype = "BOOL", .data = &flag},
        {.name = "big", .dtype = "F32", .dims = 2, .shape = (uint64_t[]){3000, 1001}, .data = big},
        {.name = "../../etc/passwd\n\"<b>", .dtype = "BF16", .dims = 1, .shape = (uint64_t[]){7}, .data = half},
        {.name = "transposed",
         .dtype = "F32",
         .dims = 2,
         .shape = (uint64_t[]){1001, 3000},
         .strides = (int64_t[]){4, 1001 * 4},
         .data = big},
        {.name = "reversed",
         .dtype = "F16",
         .dims = 1,
         .shape = (uint64_t[]){7},
         .strides = (int64_t[]){-2},
         .data = half + 6},
        {.name = "columns",
         .dtype = "F32",
         .dims = 2,
         .shape = (uint64_t[]){3000, 10},
         .strides = (int64_t[]){1001 * 4, 4},
         .data = big + 5},
        {.name = "broadcast",
         .dtype = "U8",
         .dims = 2,
         .shape = (uint64_t[]){5, 3},
         .strides = (int64_t[]){0, 0},
         .data = &flag},
        {.name = "empty", .dtype = "I64", .dims = 2, .shape = (uint64_t[]){0, 9}},
        {.name = "tied", .dtype = "F32", .dims = 2, .shape = (uint64_t[]){3000, 1001}, .data = big},
        {.name = "scalar", .dtype = "F64", .data = &one},
    };
    struct mr_state state = {sizeof state, t, MR_ARRAY_LEN(t), "{\"lr\": 0.1}", "{\"epoch\": 3}", NULL};
    struct mr_saver_params p = params();
    struct mr_saver *s = open_saver(&p);
    struct mr_save_result res;
    struct mr_error e = {0};
    assert_int_equal(mr_saver_save(s, 7, &state, &res, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);

    struct mr_state_reader *r = open_state(MR_ALL_STEPS);
    assert_int_equal(mr_state_step(r), 7);
    assert_int_equal(mr_state_tensors(r), MR_ARRAY_LEN(t));
    expect_tensor(r, 0, "big", big, 3000 * 1001 * 4);
    expect_tensor(r, 0, "tied", big, 3000 * 1001 * 4);
    expect_tensor(r, 0, "flag", &flag, 1);
    expect_tensor(r, 0, "../../etc/passwd\n\"<b>", half, 14);
    expect_tensor(r, 0, "reversed", (uint16_t[]){7, 6, 5, 4, 3, 2, 1}, 14);
    expect_tensor(r, 0, "broadcast", "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", 15);
    expect_tensor(r, 0, "scalar", &one, 8);
    expect_tensor(r, 0, "empty", "", 0);
    float *turned = malloc(3000 * 1001 * sizeof(float)), *columns = malloc(3000 * 10 * sizeof(float));
    for (size_t i = 0; i < 1001; i++)
        for (size_t k = 0; k < 3000; k++)
            turned[i * 3000 + k] = big[k * 1001 + i];
    for (size_t i = 0; i < 3000; i++)
        memcpy(columns + i * 10, big + i * 1001 + 5, 40);
    expect_tensor(r, UINT32_MAX, "transposed", turned, 3000 * 1001 * 4);
    expect_tensor(r, 0, "columns", columns, 3000 * 10 * 4);
    char *text;
    assert_int_equal(mr_state_json(r, 0, "state", &text, &e), 0);
    assert_string_equal(text, "{\"lr\": 0.1}");
    free(text);
    assert_int_equal(mr_state_json(r, 0, "loader", &text, &e), 0);
    assert_string_equal(text, "{\"epoch\": 3}");
    free(text);
    /* a range out of the middle, over a border of chunks */
    size_t at = mr_state_find(r, 0, "big");
    uint8_t *middle = malloc(100000);
    for (uint64_t offset = 8300000; offset < 8400000; offset += 33333) {
        assert_int_equal(mr_state_read(r, &(struct mr_state_range){at, offset, 100000, middle, 0}, 1, &e), 0);
        assert_memory_equal(middle, (uint8_t *)big + offset, 100000);
    }
    assert_int_equal(mr_state_read(r, &(struct mr_state_range){at, 3000 * 1001 * 4, 1, middle, 0}, 1, &e), MR_E_USAGE);
    mr_state_close(r);
    free(middle), free(columns), free(turned), free(big);
}

static void state_refuses_what_cannot_be_saved(void **unused)
{
    (void)unused;
    float x[4] = {0};
    const struct {
        struct mr_tensor t[2];
        size_t n;
        const char *says;
    } bad[] = {
        {{{.name = "a", .dtype = "F31", .data = x}}, 1, "F31"},
        {{{.name = "", .dtype = "F32", .data = x}}, 1, "no name"},
        {{{.name = "__metadata__", .dtype = "F32", .data = x}}, 1, "__metadata__"},
        {{{.name = "a\xff", .dtype = "F32", .data = x}}, 1, "UTF-8"},
        {{{.name = "a", .dtype = "F32", .data = x}, {.name = "a", .dtype = "F32", .data = x + 1}}, 2, "named 'a'"},
        {{{.name = "a", .dtype = "F32", .dims = 1, .shape = (uint64_t[]){4}}}, 1, "nothing to take"},
        {{{.name = "a", .dtype = "F32", .dims = 2, .shape = (uint64_t[]){1ull << 40, 1ull << 40}, .data = x}},
         1,
         "elements"},
    };
    struct mr_saver_params p = params();
    struct mr_saver *s = open_saver(&p);
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        struct mr_error e = {0};
        struct mr_state state = {sizeof state, bad[i].t, bad[i].n, NULL, NULL, NULL};
        assert_true(mr_saver_save(s, 1, &state, NULL, &e) < 0);
        if (!strstr(e.message, bad[i].says))
            fail_msg("case %zu: %s", i, e.message);
    }
    struct mr_saver *second;
    struct mr_error e = {0};
    assert_int_equal(mr_saver_open(&p, &second, &e), -EBUSY);
    assert_int_equal(mr_saver_close(s, &e), 0);
    assert_int_equal(ct_count(ct_dir, ""), 0);
    struct mr_state_reader *r;
    struct mr_state_params q = {.size = sizeof q, .folder = ct_dir, .step = MR_ALL_STEPS};
    assert_int_equal(mr_state_open(&q, &r, &e), MR_E_INCOMPLETE);
}

/* ---- from a callback, in bounded memory ---- */

struct source {
    uint64_t seed;
    int fail_at; /* piece that fails; -1 none */
    _Atomic int pieces;
};

static int pull(void *user, uint64_t offset, void *into, size_t n, struct mr_error *err)
{
    struct source *s = user;
    uint8_t *out = into;
    if (atomic_fetch_add(&s->pieces, 1) == s->fail_at)
        return mr_error_plain(err, -EIO, "the device is gone");
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)((offset + i) * s->seed >> 7);
    return 0;
}

static void state_larger_than_its_ring(void **unused)
{
    (void)unused;
    const uint64_t bytes = 150ull << 20;
    struct source from = {.seed = 0x9e3779b97f4a7c15ull, .fail_at = -1};
    struct mr_tensor t = {.name = "x", .dtype = "U8", .dims = 1, .shape = &bytes, .pull = pull, .user = &from};
    struct mr_state state = {sizeof state, &t, 1, NULL, NULL, NULL};
    struct mr_saver_params p = params();
    p.ring_bytes = 16 << 20;
    struct mr_saver *s = open_saver(&p);
    struct mr_error e = {0};
    struct mr_save_result res;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(mr_saver_save(s, 1, &state, &res, &e), 0);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
    /* a failing callback fails this save, at once, and nothing else */
    from.fail_at = atomic_load(&from.pieces) + 5;
    assert_int_equal(mr_saver_save(s, 2, &state, &res, &e), -EIO);
    assert_non_null(strstr(e.message, "device is gone"));
    assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    struct mr_state_reader *r = open_state(MR_ALL_STEPS);
    assert_int_equal(mr_state_step(r), 1);
    uint8_t *want = malloc(bytes);
    from.fail_at = -1;
    assert_int_equal(pull(&from, 0, want, bytes, &e), 0);
    expect_tensor(r, 0, "x", want, bytes);
    mr_state_close(r);
    free(want);
    assert_int_equal(ct_count(ct_dir, ".tmp"), 0);
}

/* Words that say where they are. */
static int pull_words(void *user, uint64_t offset, void *into, size_t n, struct mr_error *err)
{
    uint64_t *out = into;
    (void)user, (void)err;
    for (size_t i = 0; i < n / 8; i++) /* pieces begin at multiples of eight bytes: the header's length is one of 64 */
        out[i] = offset / 8 + i;
    return 0;
}

/* Twenty GiB through a ring of one: memory is the ring's, and all of it comes back. */
static void state_of_20_gib(void **unused)
{
    (void)unused;
    if (!getenv("MR_TEST_FULL"))
        skip();
    const uint64_t words = (20ull << 30) / 8, slice = 64 << 20;
    struct mr_tensor t = {.name = "x", .dtype = "U64", .dims = 1, .shape = &words, .pull = pull_words};
    struct mr_state state = {sizeof state, &t, 1, NULL, NULL, NULL};
    struct mr_saver_params p = params();
    struct mr_error e = {0};
    struct rusage before, after;
    p.ring_bytes = 1 << 30;
    p.direct = true;
    getrusage(RUSAGE_SELF, &before);
    struct mr_saver *s = open_saver(&p);
    if (mr_saver_save(s, 1, &state, NULL, &e) || mr_saver_close(s, &e))
        fail_msg("%s", e.message);
    getrusage(RUSAGE_SELF, &after);
    long grown = after.ru_maxrss - before.ru_maxrss; /* KiB */
    print_message("20 GiB saved in %ld MiB of memory\n", grown >> 10);
    assert_true(grown < 1100 << 10);
    struct mr_state_reader *r = open_state(1);
    uint64_t *v = malloc(slice);
    for (uint64_t at = 0; at < words * 8; at += slice) {
        if (mr_state_read(r, &(struct mr_state_range){0, at, slice, v, 0}, 1, &e))
            fail_msg("%s", e.message);
        for (uint64_t i = 0; i < slice / 8; i += 511)
            assert_int_equal(v[i], at / 8 + i);
    }
    free(v);
    mr_state_close(r);
}

/* ---- ranks ---- */

struct rank {
    pthread_t thread;
    uint32_t rank, world;
    const char *store;
    int code;
    char message[768];
};

static void *rank_main(void *user)
{
    struct rank *k = user;
    struct mr_saver_params p = params();
    p.rank = k->rank;
    p.world = k->world;
    p.store = k->store;
    p.job = "job 17";
    p.commit_timeout_s = 20;
    p.keep_last = 2;
    struct mr_saver *s = open_saver(&p);
    struct mr_error e = {0};
    for (uint64_t step = 1; step <= 4; step++) { /* all ranks the same, whatever fails */
        uint64_t value = 1000 * step + k->rank, n = 1;
        struct mr_tensor t = {.name = "x", .dtype = "I64", .dims = 1, .shape = &n, .data = &value};
        struct mr_state state = {sizeof state, &t, 1, NULL, NULL, NULL};
        int rc = mr_saver_save(s, step, &state, NULL, k->code ? NULL : &e);
        k->code = k->code ? k->code : rc;
    }
    int rc = mr_saver_close(s, k->code ? NULL : &e);
    k->code = k->code ? k->code : rc;
    snprintf(k->message, sizeof k->message, "%s", e.message);
    return NULL;
}

static void run_ranks(struct rank *rank, uint32_t world)
{
    for (uint32_t i = 0; i < world; i++) {
        rank[i].rank = i;
        rank[i].world = world;
        assert_int_equal(pthread_create(&rank[i].thread, NULL, rank_main, &rank[i]), 0);
    }
    for (uint32_t i = 0; i < world; i++)
        pthread_join(rank[i].thread, NULL);
}

static void state_of_several_ranks(void **unused)
{
    (void)unused;
    struct rank rank[3] = {0};
    run_ranks(rank, 3);
    for (int i = 0; i < 3; i++)
        if (rank[i].code)
            fail_msg("rank %d: %s", i, rank[i].message);
    struct mr_state_reader *r = open_state(MR_ALL_STEPS);
    assert_int_equal(mr_state_step(r), 4);
    assert_int_equal(mr_state_world(r), 3);
    for (uint32_t i = 0; i < 3; i++)
        expect_tensor(r, i, "x", &(uint64_t){4000 + i}, 8);
    mr_state_close(r);
    assert_int_equal(ct_count(ct_dir, ".tmp"), 0);
    assert_int_equal(ct_count(ct_dir, ""), 3); /* two checkpoints and the pointer to the latest */
}

/* A look that fails says nothing about what the leader does: it is not taken for a save that was given up. */
static void state_of_a_rank_that_cannot_look(void **unused)
{
    (void)unused;
    struct rank rank[3] = {{.store = NULL}, {.store = "fault(op=stat,path=*.tmp,every=1,error=EIO):posix"}};
    run_ranks(rank, 3);
    for (int i = 0; i < 3; i++)
        if (rank[i].code)
            fail_msg("rank %d: %s", i, rank[i].message);
}

/* One rank's storage fails: every rank learns it, with the reason, and what was there before stays. */
static void state_of_ranks_with_a_failing_one(void **unused)
{
    (void)unused;
    for (int bad = 0; bad < 3; bad++) {
        struct rank rank[3] = {0};
        rank[bad].store = "fault(op=write,path=*.safetensors,nth=2,error=EIO):posix";
        run_ranks(rank, 3);
        for (int i = 0; i < 3; i++)
            assert_true(rank[i].code < 0);
        assert_int_equal(rank[bad].code, -EIO);
        struct mr_state_reader *r = open_state(MR_ALL_STEPS);
        assert_int_equal(mr_state_step(r), 4); /* only the second failed */
        for (uint32_t i = 0; i < 3; i++)
            expect_tensor(r, i, "x", &(uint64_t){1000 * mr_state_step(r) + i}, 8);
        mr_state_close(r);
        ct_teardown(NULL);
        assert_int_equal(ct_setup(NULL), 0);
    }
}

/* begin returns before the copy; after the fence the tensors may go. The description may go at once. */
static void state_copied_behind(void **unused)
{
    (void)unused;
    uint64_t n = 5 << 20, *v = malloc(n * sizeof(*v));
    struct mr_saver_params p = params();
    struct mr_saver *s = open_saver(&p);
    struct mr_save_result r;
    struct mr_error e = {0};
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint64_t i = 0; i < n; i++)
            v[i] = step * n + i;
        {
            uint64_t shape[2] = {n / 2, 2};
            int64_t strides[2] = {8, (int64_t)(n / 2 * 8)};
            char name[] = "v";
            struct mr_tensor t = {
                .name = name, .dtype = "U64", .dims = 2, .shape = shape, .strides = strides, .data = v};
            struct mr_state state = {sizeof state, &t, 1, NULL, NULL, NULL};
            assert_int_equal(mr_saver_begin(s, step, &state, &e), 0);
            memset(shape, 0x55, sizeof shape), memset(strides, 0x55, sizeof strides), memset(&t, 0x55, sizeof t),
                name[0] = 0;
        }
        assert_int_equal(mr_saver_fence(s, &r, &e), 0);
        assert_int_equal(r.bytes, n * 8);
    }
    memset(v, 0, n * 8);
    assert_int_equal(mr_saver_fence(s, &r, &e), 0); /* nothing under way */
    assert_int_equal(mr_saver_close(s, &e), 0);
    struct mr_state_reader *rd = open_state(3);
    for (uint64_t i = 0; i < n; i++)
        v[i] = 3 * n + i / 2 + i % 2 * (n / 2);
    expect_tensor(rd, 0, "v", v, n * 8);
    mr_state_close(rd);
    free(v);
}

/* ---- faults ---- */

static int save_step(struct mr_saver *s, uint64_t step, struct mr_error *e)
{
    uint64_t n = 300000, *v = malloc(n * sizeof(*v));
    for (uint64_t i = 0; i < n; i++)
        v[i] = step + i;
    struct mr_tensor t = {.name = "v", .dtype = "U64", .dims = 1, .shape = &n, .data = v};
    struct mr_state state = {sizeof state, &t, 1, "{}", NULL, NULL};
    int rc = mr_saver_save(s, step, &state, NULL, e);
    free(v); /* the copy is made: the caller's memory may go */
    return rc;
}

/* The newest complete one is at least this one, and holds what its step says. Returns its step. */
static uint64_t expect_sound(uint64_t at_least, const char *after)
{
    struct mr_state_reader *r;
    struct mr_error e = {0};
    struct mr_state_params p = {.size = sizeof p, .folder = ct_dir, .step = MR_ALL_STEPS};
    if (mr_state_open(&p, &r, &e))
        fail_msg("after %s: %s", after, e.message);
    uint64_t step = mr_state_step(r), n = 300000, *v = malloc(n * sizeof(*v));
    if (step < at_least)
        fail_msg("after %s: newest is %llu, want %llu", after, (unsigned long long)step, (unsigned long long)at_least);
    if (mr_state_read(r, &(struct mr_state_range){0, 0, n * sizeof(*v), v, 0}, 1, &e))
        fail_msg("after %s: %s", after, e.message);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(v[i], step + i);
    mr_state_close(r);
    free(v);
    return step;
}

static void state_survives_any_call_failing(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"op=open,error=EIO",        "op=write,error=ENOSPC",  "op=write,error=EIO",
                                         "op=fsync,error=EIO",       "op=close,error=ENOSPC",  "op=rename,error=EIO",
                                         "op=mkdir,error=ENOSPC",    "op=unlink,error=EACCES", "op=list,error=EIO",
                                         "op=allocate,error=ENOSPC", "op=truncate,error=EIO"};
    for (size_t k = 0; k < MR_ARRAY_LEN(faults); k++) {
        unsigned failed = 0, calm = 0;
        for (unsigned n = 1; calm < 3; n++) {
            char spec[128];
            struct mr_error e = {0};
            struct mr_saver_params p = params();
            assert_int_equal(ct_setup_in_memory(NULL), 0);
            struct mr_saver *s = open_saver(&p);
            assert_int_equal(save_step(s, 1, &e), 0);
            assert_int_equal(mr_saver_close(s, &e), 0);
            snprintf(spec, sizeof spec, "fault(nth=%u,%s):posix", n, faults[k]);
            p.store = spec;
            p.keep_last = 1;
            int rc = mr_saver_open(&p, &s, &e);
            if (!rc) {
                rc = save_step(s, 2, &e);
                int closed = mr_saver_close(s, rc ? NULL : &e);
                rc = rc ? rc : closed;
            }
            calm = rc ? 0 : calm + 1;
            failed += rc != 0;
            if (rc && !strstr(e.message, ct_dir))
                fail_msg("%s: the error does not say where: %s", spec, e.message);
            expect_sound(rc ? 1 : 2, spec);
            ct_teardown(NULL);
        }
        if (!failed)
            fail_msg("%s met no call", faults[k]);
    }
    assert_int_equal(ct_setup(NULL), 0);
}

static void flip(const char *file, long at)
{
    char path[512];
    ct_path(path, sizeof path, 1, file);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

static void state_that_was_damaged_is_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *file;
        long at;
    } damage[] = {{"rank-00000.safetensors", 3}, {"rank-00000.safetensors", 40}, {"rank-00000.safetensors", -1},
                  {"rank-00000.sums", 30},       {"rank-00000.sums", 9},         {"rank-00000.state.json", 0},
                  {"checkpoint.json", 40}};
    struct mr_saver_params p = params();
    struct mr_error e = {0};
    struct mr_saver *s = open_saver(&p);
    assert_int_equal(save_step(s, 1, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    for (size_t i = 0; i < MR_ARRAY_LEN(damage); i++) {
        flip(damage[i].file, damage[i].at);
        struct mr_state_reader *r = NULL;
        struct mr_state_params q = {.size = sizeof q, .folder = ct_dir, .step = MR_ALL_STEPS};
        uint64_t *v = malloc(300000 * sizeof(*v));
        char *text = NULL;
        int rc = mr_state_open(&q, &r, &e);
        if (!rc)
            rc = mr_state_read(r, &(struct mr_state_range){0, 0, 300000 * sizeof(*v), v, 0}, 1, &e);
        if (!rc)
            rc = mr_state_json(r, 0, "state", &text, &e);
        if (rc != MR_E_CORRUPT || !strstr(e.message, damage[i].at == 9 || i < 3 ? "rank-00000" : ct_dir))
            fail_msg("damage %zu: code %d: %s", i, rc, e.message);
        mr_state_close(r);
        free(v);
        flip(damage[i].file, damage[i].at);
    }
    expect_sound(1, "repair");
    /* a shard of another step, and one that was cut */
    char one[512], two[512], command[1100];
    s = open_saver(&p);
    assert_int_equal(save_step(s, 2, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    ct_path(one, sizeof one, 1, "rank-00000.safetensors");
    ct_path(two, sizeof two, 2, "rank-00000.safetensors");
    for (int cut = 0; cut < 2; cut++) {
        if (cut)
            snprintf(command, sizeof command, "truncate -s 2000000 %s", two);
        else
            snprintf(command, sizeof command, "cp %s %s", one, two);
        assert_int_equal(system(command), 0);
        struct mr_state_reader *r = NULL;
        struct mr_state_params q = {.size = sizeof q, .folder = ct_dir, .step = 2};
        assert_int_equal(mr_state_open(&q, &r, &e), MR_E_CORRUPT);
        assert_non_null(strstr(e.message, "rank-00000.safetensors"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(state_comes_back_bit_for_bit, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_refuses_what_cannot_be_saved, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_larger_than_its_ring, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_of_20_gib, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_of_several_ranks, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_of_a_rank_that_cannot_look, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_of_ranks_with_a_failing_one, ct_setup, ct_teardown),
        cmocka_unit_test_setup_teardown(state_copied_behind, ct_setup, ct_teardown),
        cmocka_unit_test_teardown(state_survives_any_call_failing, ct_teardown),
        cmocka_unit_test_setup_teardown(state_that_was_damaged_is_refused, ct_setup, ct_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
