/* Tiers of states: what is saved into memory or a node's disk gets to the folder, in order, within the capacity, whole;
 * after a kill, a failing tier or a lost node the nearest complete checkpoint is found and loads; the drain slows down
 * when the training's steps do. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "amount.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "checkpoint/state_pace.h"
#include "unit/checkpoint_test.h"

#include <errno.h>
#include <millrace/state.h>
#include <pthread.h>

#define VALUES 300000ull
#define BYTES (VALUES * 8)

static char tier_dir[2][300], final_dir[300];
static struct mr_saver_tier tiers[2];

static int setup(void **state)
{
    int rc = ct_setup_in_memory(state);
    snprintf(tier_dir[0], sizeof tier_dir[0], "%s/memory", ct_dir);
    snprintf(tier_dir[1], sizeof tier_dir[1], "%s/disk", ct_dir);
    snprintf(final_dir, sizeof final_dir, "%s/final", ct_dir);
    for (int i = 0; i < 2; i++)
        tiers[i] = (struct mr_saver_tier){.folder = tier_dir[i]};
    return rc;
}

static struct mr_saver_params params(void)
{
    return (struct mr_saver_params){.size = sizeof(struct mr_saver_params),
                                    .folder = final_dir,
                                    .world = 1,
                                    .fsync = true,
                                    .copy_threads = 2,
                                    .tier = tiers,
                                    .tiers = 2,
                                    .commit_timeout_s = 60};
}

static struct mr_saver *open_saver(const struct mr_saver_params *p)
{
    struct mr_saver *s;
    struct mr_error e = {0};
    if (mr_saver_open(p, &s, &e))
        fail_msg("%s", e.message);
    return s;
}

static int save_step(struct mr_saver *s, uint64_t step, struct mr_error *e)
{
    uint64_t n = VALUES, *v = malloc(BYTES);
    for (uint64_t i = 0; i < n; i++)
        v[i] = step + i;
    struct mr_tensor t = {.name = "v", .dtype = "U64", .dims = 1, .shape = &n, .data = v};
    struct mr_state state = {.size = sizeof state, .tensor = &t, .tensors = 1, .json = "{}", .loader = "[1]"};
    int rc = mr_saver_save(s, step, &state, NULL, e);
    free(v);
    return rc;
}

static void expect_state(const char *folder, uint64_t step, const char *after)
{
    struct mr_state_reader *r;
    struct mr_error e = {0};
    struct mr_state_params p = {.size = sizeof p, .folder = folder, .step = step};
    uint64_t *v = calloc(VALUES, sizeof *v);
    char *text = NULL;
    if (mr_state_open(&p, &r, &e) || mr_state_read(r, &(struct mr_state_range){0, 0, BYTES, v, 0}, 1, &e) ||
        mr_state_json(r, mr_state_tensor(r, 0)->rank, "loader", &text, &e))
        fail_msg("after %s: step %llu in '%s': %s", after, (unsigned long long)step, folder, e.message);
    for (uint64_t i = 0; i < VALUES; i++)
        assert_int_equal(v[i], step + i);
    assert_string_equal(text, "[1]");
    mr_state_close(r);
    free(v);
    free(text);
}

/* Loads what a restart would; returns its step. */
static uint64_t expect_nearest(const struct mr_saver_params *p, size_t *place, const char *after)
{
    uint64_t step;
    char folder[400];
    struct mr_error e = {0};
    if (mr_state_nearest(p, &step, place, &e))
        fail_msg("after %s: %s", after, e.message);
    if (*place < p->tiers)
        snprintf(folder, sizeof folder, "%s/rank-%05u", p->tier[*place].folder, p->rank);
    else
        snprintf(folder, sizeof folder, "%s", p->folder);
    expect_state(folder, step, after);
    return step;
}

static int count(const char *dir)
{
    return ct_count(dir, "");
}

static void tiers_drain_in_order(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    struct mr_saved d;
    size_t place;
    char own[400];
    tiers[1].keep_last = 2;
    p.keep_last = 3;
    struct mr_saver *s = open_saver(&p);
    for (uint64_t step = 1; step <= 5; step++)
        assert_int_equal(save_step(s, step, &e), 0);
    assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0);
    assert_int_equal(mr_saver_pending(s), 0);
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(mr_saver_saved(s, i, &d));
        assert_int_equal(d.step, i + 1);
        assert_int_equal(d.code, 0);
    }
    for (uint64_t step = 3; step <= 5; step++)
        expect_state(final_dir, step, "the drain");
    assert_int_equal(count(final_dir), 4); /* three, and the pointer to the latest */
    snprintf(own, sizeof own, "%s/rank-00000", tier_dir[0]);
    assert_int_equal(count(own), 2); /* one, and its own pointer */
    snprintf(own, sizeof own, "%s/rank-00000", tier_dir[1]);
    assert_int_equal(count(own), 3);
    assert_int_equal(expect_nearest(&p, &place, "the drain"), 5);
    assert_int_equal(place, 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    tiers[1].keep_last = 0;
}

static uint64_t bytes_below(const char *dir)
{
    char command[500];
    unsigned long long n = 0;
    snprintf(command, sizeof command, "cat %s/*/*/*.safetensors 2>/dev/null | wc -c", dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &n), 1);
    pclose(f);
    return n;
}

/* Room for one checkpoint only, then for none. */
static void tiers_keep_their_capacity(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    p.tiers = 1;
    for (int round = 0; round < 2; round++) {
        tiers[0].capacity = round ? BYTES / 2 : BYTES + BYTES / 2;
        struct mr_saver *s = open_saver(&p);
        for (uint64_t step = 1; step <= 4; step++) {
            assert_int_equal(save_step(s, step, &e), 0);
            if (round) /* what the larger tier kept goes when the first save comes to be written */
                assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0);
            assert_true(bytes_below(tier_dir[0]) <= tiers[0].capacity);
        }
        assert_int_equal(mr_saver_close(s, &e), 0);
        for (uint64_t step = 1; step <= 4; step++)
            expect_state(final_dir, step, "a small tier");
    }
}

/* A step that is saved again and has grown out of its tier: what the tier has of it is not loaded any more. */
static void tiers_drop_a_step_that_goes_around_them(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    size_t place;
    uint64_t step, n = 2 * VALUES, *v = calloc(n, sizeof *v);
    struct mr_tensor t = {.name = "v", .dtype = "U64", .dims = 1, .shape = &n, .data = v};
    struct mr_state larger = {.size = sizeof larger, .tensor = &t, .tensors = 1};
    p.tiers = 1;
    tiers[0].capacity = BYTES + BYTES / 2;
    for (int sync = 0; sync < 2; sync++) {
        p.sync = sync;
        struct mr_saver *s = open_saver(&p);
        assert_int_equal(save_step(s, 1, &e), 0);
        assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0);
        assert_int_equal(mr_saver_save(s, 1, &larger, NULL, &e), 0);
        assert_int_equal(mr_saver_close(s, &e), 0);
        assert_int_equal(mr_state_nearest(&p, &step, &place, &e), 0);
        assert_int_equal(step, 1);
        assert_int_equal(place, 1); /* the folder */
        assert_int_equal(bytes_below(tier_dir[0]), 0);
    }
    tiers[0].capacity = 0;
    free(v);
}

/* What killed saves leave beside the checkpoints: the pointer half replaced, reasons of failures, what ranks found. */
static void leftovers_go_when_a_job_begins(void **unused)
{
    (void)unused;
    static const char *const left[] = {"latest.tmp.4711.0", ".failed-job-3-0"};
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    char path[400], own[350];
    snprintf(own, sizeof own, "%s/rank-00000", tier_dir[0]);
    for (int round = 0; round < 2; round++) {
        struct mr_saver *s = open_saver(&p);
        assert_int_equal(save_step(s, 1, &e), 0);
        assert_int_equal(mr_saver_close(s, &e), 0);
        for (size_t i = 0; i < 2 * MR_ARRAY_LEN(left); i++) {
            snprintf(path, sizeof path, "%s/%s", i % 2 ? own : final_dir, left[i / 2]);
            if (round)
                assert_int_not_equal(access(path, F_OK), 0);
            else
                ct_write_text(path, "left");
        }
    }
    expect_state(final_dir, 1, "leftovers");
}

/* The folder fails: nothing is lost, the error is told once, and the next job drains what is left. */
static void tiers_keep_what_cannot_be_drained(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params(), broken = params();
    size_t place;
    broken.store = "fault(every=1,op=write,path=*final*.safetensors,error=ENOSPC):posix";
    struct mr_saver *s = open_saver(&broken);
    assert_int_equal(save_step(s, 1, &e), 0);
    assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), -ENOSPC);
    assert_non_null(strstr(e.context, "step 1"));
    assert_non_null(strstr(e.hint, "disk"));
    assert_int_equal(mr_saver_wait(s, MR_ALL_STEPS, &e), 0); /* told */
    assert_int_equal(mr_saver_close(s, &e), 0);
    assert_int_equal(ct_count(final_dir, ".tmp"), 0);
    assert_int_equal(expect_nearest(&p, &place, "a full folder"), 1);
    assert_int_equal(place, 0); /* drained to the second tier, and kept in the first */
    s = open_saver(&p);
    assert_int_equal(save_step(s, 2, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    expect_state(final_dir, 1, "the next job");
    expect_state(final_dir, 2, "the next job");
}

/* A tier that cannot be written to costs nothing but its speed. */
static void tiers_that_fail_are_gone_around(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    tiers[0].store = "fault(every=1,op=open,path=*.safetensors,error=EIO):posix";
    struct mr_saver *s = open_saver(&p);
    for (uint64_t step = 1; step <= 2; step++)
        assert_int_equal(save_step(s, step, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    for (uint64_t step = 1; step <= 2; step++)
        expect_state(final_dir, step, "a failing tier");
}

/* ---- the end of the time ---- */

/* A rank that never comes would cost a day: with the end in sight the save is given up in time. What the tiers have
 * by then stays, and a limit of bytes per second is lifted. */
static void tiers_end_in_time(void **unused)
{
    (void)unused;
    struct mr_error e = {0};
    struct mr_saver_params p = params();
    size_t place;
    p.commit_timeout_s = 100000;
    p.world = 2;
    p.job = "a";
    p.tiers = 0;
    struct mr_saver *s = open_saver(&p);
    assert_int_equal(save_step(s, 1, &e), 0);
    assert_int_equal(mr_saver_end_within(s, 200 * 1000 * 1000, &e), 0);
    assert_true(mr_saver_close(s, &e) < 0);
    assert_int_equal(ct_count(final_dir, ".tmp"), 0);
    p = params();
    p.bytes_per_s = p.drain_bytes_per_s = 1; /* for ever */
    p.drain_bytes_per_s = 0;
    s = open_saver(&p);
    assert_int_equal(mr_saver_end_within(s, 3600ull * MR_NS_PER_S, &e), 0);
    assert_int_equal(save_step(s, 2, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    expect_state(final_dir, 2, "the end");
    p.drain_bytes_per_s = 1; /* the drain never gets there */
    p.bytes_per_s = 0;
    s = open_saver(&p);
    for (int k = 0; k < 2; k++) /* the first chunk of a drain is never late */
        assert_int_equal(save_step(s, 3 + (uint64_t)k, &e), 0);
    struct mr_saved d = {0};
    while (!mr_saver_last(s, &d) || d.step != 4)
        usleep(1000);
    assert_int_equal(mr_saver_end_within(s, 100 * 1000 * 1000, &e), 0);
    assert_int_equal(mr_saver_close(s, &e), 0);
    assert_int_equal(expect_nearest(&p, &place, "the end"), 4);
    assert_true(place < 2);
}

/* ---- ranks ---- */

struct rank {
    pthread_t thread;
    uint32_t rank;
    uint64_t first, last, step;
    const char *job, *store;
    size_t place;
    int code;
    struct mr_error err;
};

static struct mr_saver_params rank_params(const struct rank *r)
{
    struct mr_saver_params p = params();
    p.rank = r->rank;
    p.world = 3;
    p.job = r->job;
    p.store = r->store;
    return p;
}

static void *rank_saves(void *user)
{
    struct rank *r = user;
    struct mr_saver *s = NULL;
    struct mr_saver_params p = rank_params(r);
    r->code = mr_saver_open(&p, &s, &r->err);
    for (uint64_t step = r->first; step <= r->last && !r->code; step++)
        r->code = save_step(s, step, &r->err);
    int closed = mr_saver_close(s, r->code ? NULL : &r->err);
    r->code = r->code ? r->code : closed;
    return NULL;
}

static void *rank_looks(void *user)
{
    struct rank *r = user;
    struct mr_saver_params p = rank_params(r);
    r->code = mr_state_nearest(&p, &r->step, &r->place, &r->err);
    return NULL;
}

static void run_ranks(struct rank *r, void *(*fn)(void *))
{
    for (uint32_t i = 0; i < 3; i++) {
        r[i].rank = i;
        assert_int_equal(pthread_create(&r[i].thread, NULL, fn, &r[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(r[i].thread, NULL);
}

static void expect_all(struct rank *r, const char *job, uint64_t step, const size_t place[3])
{
    for (int i = 0; i < 3; i++)
        r[i].job = job;
    run_ranks(r, rank_looks);
    for (int i = 0; i < 3; i++) {
        if (r[i].code)
            fail_msg("%s, rank %d: %s", job, i, r[i].err.message);
        assert_int_equal(r[i].step, step);
        assert_int_equal(r[i].place, place[i]);
    }
}

/* Each drains its own; a node that is lost leaves what the folder has, or what the others can get from it. */
static void tiers_of_ranks(void **unused)
{
    (void)unused;
    struct rank r[3] = {0};
    char own[400];
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 1, .last = 3, .job = "a"};
    run_ranks(r, rank_saves);
    for (int i = 0; i < 3; i++)
        if (r[i].code)
            fail_msg("rank %d: %s", i, r[i].err.message);
    for (uint64_t step = 1; step <= 3; step++)
        expect_state(final_dir, step, "three ranks");
    /* The folder fails for all of them: step 4 is in the tiers only. */
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 4,
                             .last = 4,
                             .job = "b",
                             .store = "fault(every=1,op=write,path=*final*.safetensors,error=EIO):posix"};
    run_ranks(r, rank_saves);
    for (int i = 0; i < 3; i++)
        assert_true(r[i].code < 0);
    expect_all(r, "c", 4, (size_t[]){0, 0, 0});
    /* The node of rank 1 lost its memory; its disk has it. */
    snprintf(own, sizeof own, "%s/rank-00001", tier_dir[0]);
    assert_int_equal(nftw(own, ct_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
    expect_all(r, "d", 4, (size_t[]){0, 1, 0});
    /* And its disk: the newest that all can load is what it finds in the folder; the others have it nearer. */
    snprintf(own, sizeof own, "%s/rank-00001", tier_dir[1]);
    assert_int_equal(nftw(own, ct_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
    expect_all(r, "e", 3, (size_t[]){1, 2, 1});
    /* The next job saves on. */
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 5, .last = 6, .job = "f"};
    run_ranks(r, rank_saves);
    for (int i = 0; i < 3; i++)
        if (r[i].code)
            fail_msg("rank %d: %s", i, r[i].err.message);
    expect_state(final_dir, 6, "a lost node");
    expect_all(r, "g", 6, (size_t[]){0, 0, 0});
    assert_int_equal(ct_count(final_dir, ".tmp"), 0);
}

/* A step that ranks have of different jobs is no common one: they would load one state each. Nor is it drained. */
static void tiers_do_not_mix_saves(void **unused)
{
    (void)unused;
    struct rank r[3] = {0};
    char command[700];
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 1, .last = 1, .job = "a"};
    run_ranks(r, rank_saves);
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 2,
                             .last = 2,
                             .job = "b",
                             .store = "fault(every=1,op=write,path=*final*.safetensors,error=EIO):posix"};
    run_ranks(r, rank_saves);
    expect_all(r, "c", 2, (size_t[]){0, 0, 0});
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command,
                 "sed -i 's/\"save\": *\"[^\"]*\"/\"save\":\"of another job\"/' "
                 "%s/rank-00001/step-000000000002/checkpoint.json",
                 tier_dir[i]);
        assert_int_equal(system(command), 0);
    }
    expect_all(r, "d", 1, (size_t[]){1, 1, 1}); /* the first tier keeps only the last */
    for (int i = 0; i < 3; i++)
        r[i] = (struct rank){.first = 3, .last = 3, .job = "e"};
    run_ranks(r, rank_saves);
    for (int i = 0; i < 3; i++)
        if (r[i].code)
            fail_msg("rank %d: %s", i, r[i].err.message);
    expect_all(r, "f", 3, (size_t[]){0, 0, 0});
    snprintf(command, sizeof command, "test ! -e %s/step-000000000002", final_dir);
    assert_int_equal(system(command), 0);
}

/* ---- faults ---- */

static void tiers_survive_any_call_failing(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"op=open,error=EIO",  "op=write,error=ENOSPC", "op=read,error=EIO",
                                         "op=fsync,error=EIO", "op=rename,error=EIO",   "op=mkdir,error=ENOSPC"};
    for (size_t k = 0; k < 2 * MR_ARRAY_LEN(faults); k++) {
        unsigned calm = 0;
        for (unsigned n = 1; calm < 2; n += mr_test_stride(4)) {
            char spec[128];
            struct mr_error e = {0};
            struct mr_saver_params p = params(), q = p;
            struct mr_saver *s;
            size_t place;
            assert_int_equal(setup(NULL), 0);
            s = open_saver(&p);
            assert_int_equal(save_step(s, 1, &e), 0);
            assert_int_equal(mr_saver_close(s, &e), 0);
            snprintf(spec, sizeof spec, "fault(nth=%u,%s):posix", n, faults[k % MR_ARRAY_LEN(faults)]);
            if (k < MR_ARRAY_LEN(faults))
                q.store = spec;
            else
                tiers[0].store = spec;
            int rc = mr_saver_open(&q, &s, &e);
            if (!rc) {
                rc = save_step(s, 2, &e);
                int closed = mr_saver_close(s, rc ? NULL : &e);
                rc = rc ? rc : closed;
            }
            tiers[0].store = NULL;
            calm = rc ? 0 : calm + 1;
            uint64_t newest = expect_nearest(&p, &place, spec);
            if (newest < (rc ? 1 : 2))
                fail_msg("after %s: step %llu", spec, (unsigned long long)newest);
            s = open_saver(&p); /* and the next job gets everything into the folder */
            if (mr_saver_close(s, &e))
                fail_msg("after %s: %s", spec, e.message);
            expect_state(final_dir, newest, spec);
            ct_teardown(NULL);
            if (n > 60)
                break;
        }
    }
    assert_int_equal(setup(NULL), 0);
}

/* ---- the pace ---- */

/* So many steps of that length, with a drain beside them or without. */
static uint64_t steps(struct mr_pace *p, uint64_t now, unsigned n, uint64_t each, bool drains)
{
    for (unsigned i = 0; i < n; i++) {
        if (drains)
            mr_pace_take(p, 1, now);
        mr_pace_step(p, now += each);
    }
    return now;
}

static void pace_follows_the_steps(void **unused)
{
    (void)unused;
    struct mr_pace *p = mr_pace_create(0, true);
    assert_int_equal(mr_pace_rate(p), 0); /* nobody told of a step */
    assert_int_equal(mr_pace_take(p, 1 << 30, 1000), 1000);
    uint64_t ms = 1000000, now = steps(p, ms, 20, 50 * ms, false), rate = mr_pace_rate(p);
    assert_int_equal(rate, 128 * MR_MIB);
    now = steps(p, now, MR_PACE_WINDOW, 50 * ms, true); /* no slower */
    assert_int_equal(mr_pace_rate(p), rate + rate / 2);
    now = steps(p, now, MR_PACE_WINDOW, 52 * ms, true); /* 4 % slower */
    assert_int_equal(mr_pace_rate(p), (rate + rate / 2) / 2);
    now = steps(p, now, 13 * MR_PACE_WINDOW, 60 * ms, true);
    assert_int_equal(mr_pace_rate(p), 8 * MR_MIB);
    mr_pace_step(p, now += 60000 * ms); /* an evaluation is no step */
    now = steps(p, now, MR_PACE_WINDOW, 50 * ms, true);
    assert_int_equal(mr_pace_rate(p), 12 * MR_MIB);
    uint64_t at = mr_pace_take(p, 12 * MR_MIB, now); /* a second's worth */
    assert_true(mr_pace_take(p, 1, now) - at >= 1000 * ms - 1);
    mr_pace_hurry(p, true);
    assert_int_equal(mr_pace_rate(p), 0);
    mr_pace_wait(p, mr_now_ns() + 3600000 * ms); /* returns at once */
    mr_pace_hurry(p, false);
    assert_int_equal(mr_pace_rate(p), 12 * MR_MIB);
    mr_pace_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pace_follows_the_steps),
        cmocka_unit_test_setup_teardown(tiers_drain_in_order, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_keep_their_capacity, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_drop_a_step_that_goes_around_them, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(leftovers_go_when_a_job_begins, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_keep_what_cannot_be_drained, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_that_fail_are_gone_around, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_end_in_time, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_of_ranks, setup, ct_teardown),
        cmocka_unit_test_setup_teardown(tiers_do_not_mix_saves, setup, ct_teardown),
        cmocka_unit_test_teardown(tiers_survive_any_call_failing, ct_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
