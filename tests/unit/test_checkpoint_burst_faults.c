/* Any call fails, on either side: saves succeed all the same, drains tell, nothing is torn or lost. And a job with a
 * burst buffer is killed at any moment: the final folder holds complete checkpoints and temporary ones, never a torn
 * one; nothing that a save reported is lost; the next run finishes the drain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/rng.h"
#include "unit/checkpoint_burst_test.h"

/* ---- any call fails ---- */

/* Two saves and their drains make about so many calls of a kind; which comes when depends on the threads. */
#define CALLS 18

/* The n-th call of a kind fails in the buffer: the save succeeds all the same, in the buffer or around it. */
static unsigned sweep_buffer(const char *op, const char *error)
{
    unsigned around = 0, failed = 0;
    for (unsigned n = 1; n <= CALLS; n++) {
        char spec[128];
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,error=%s):posix", op, n, error);
        struct mr_checkpointer *c = OPEN(.burst = spec);
        bool went_around = false;
        for (uint64_t step = 1; step <= 2; step++) {
            save(c, step, &r);
            went_around |= !r.buffered;
            assert_true(r.buffered || final_has(step));
        }
        int rc = mr_checkpoint_drain(c, &e);
        if (rc && (!strstr(e.message, ct_dir) || !strstr(e.hint, "burst")))
            fail_msg("%s: the error does not say where: %s / %s", spec, e.message, e.hint);
        mr_checkpointer_close(c);
        around += went_around;
        failed += rc != 0;
        expect_recovery(2, spec);
        assert_int_equal(ct_teardown(NULL), 0);
    }
    return around + failed;
}

/* The n-th call fails on the final storage: saves do not notice, the drain tells; what is there is whole. */
static unsigned sweep_final(const char *op, const char *error)
{
    unsigned failed = 0;
    for (unsigned n = 1; n <= CALLS; n++) {
        char spec[128];
        struct mr_checkpoint_result r;
        struct mr_checkpoint_drained d[4];
        struct mr_error e = {0};
        assert_int_equal(ct_setup_in_memory(NULL), 0);
        snprintf(spec, sizeof spec, "fault(op=%s,nth=%u,error=%s):posix", op, n, error);
        struct mr_checkpointer *c = OPEN(.final = spec);
        for (uint64_t step = 1; step <= 2; step++) {
            save(c, step, &r);
            assert_true(r.buffered);
        }
        int rc = mr_checkpoint_drain(c, &e);
        assert_int_equal(mr_checkpoint_drains(c, 0, d, 4), 2);
        assert_int_equal(mr_checkpoint_buffered(c), (d[0].code != 0) + (d[1].code != 0));
        assert_int_equal(rc, d[0].code ? d[0].code : d[1].code);
        if (rc && (!strstr(e.context, "draining the checkpoint of step") || !strstr(e.hint, "next run")))
            fail_msg("%s: the error does not say where: %s / %s", spec, e.context, e.hint);
        mr_checkpointer_close(c);
        for (uint64_t step = 1; step <= 2; step++)
            if (!d[step - 1].code || final_has(step))
                expect_final(step);
        failed += rc != 0;
        expect_recovery(2, spec);
        assert_int_equal(ct_teardown(NULL), 0);
    }
    return failed;
}

static void burst_survives_any_call_failing_on_either_side(void **state)
{
    (void)state;
    const struct {
        const char *op, *error;
        unsigned buffer, final; /* so many calls can fail: a sweep that meets none tests nothing */
    } cases[] = {{"open", "EIO", 8, 8},        {"write", "ENOSPC", 8, 8},  {"fsync", "EIO", 8, 8},
                 {"close", "ENOSPC", 4, 6},    {"rename", "EIO", 4, 2},    {"mkdir", "EROFS", 1, 2},
                 {"allocate", "ENOSPC", 4, 4}, {"unlink", "EACCES", 2, 0}, {"list", "EIO", 2, 1},
                 {"read", "EIO", 6, 0}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
        unsigned buffer = sweep_buffer(cases[i].op, cases[i].error), final = sweep_final(cases[i].op, cases[i].error);
        if (buffer < cases[i].buffer || final < cases[i].final)
            fail_msg("op=%s: only %u and %u calls failed", cases[i].op, buffer, final);
    }
}

/* ---- killed ---- */

static struct mr_checkpointer *open_on(bool burst)
{
    struct mr_checkpointer *c;
    struct mr_error e = {0};
    char folder[320], buffer[320];
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    snprintf(buffer, sizeof buffer, "%s/burst", ct_dir);
    struct mr_checkpoint_params p = {.folder = folder,
                                     .world = 1,
                                     .fsync = true,
                                     .buffer_bytes = 4096,
                                     .random_content = true,
                                     .keep_last = burst ? 3 : 0,
                                     .burst_folder = burst ? buffer : NULL,
                                     .burst_bytes = 4 * BYTES};
    if (mr_checkpointer_open(&p, &c, &e))
        fail_msg("%s", e.message);
    return c;
}

static struct mr_checkpointer *open_burst(void)
{
    return open_on(true);
}

/* Every folder with a final name holds all that its list says. */
static void expect_whole(uint64_t round)
{
    char folder[320];
    struct mr_checkpointer *c = open_on(false);
    struct mr_checkpoint_result r;
    struct mr_error e = {0};
    snprintf(folder, sizeof folder, "%s/final", ct_dir);
    DIR *d = opendir(folder);
    for (const struct dirent *x; d && (x = readdir(d));) {
        unsigned long long step;
        char rest;
        if (sscanf(x->d_name, "step-%llu%c", &step, &rest) != 1)
            continue;
        if (mr_checkpoint_load(c, step, 0, &r, &e) || r.files != FILES)
            fail_msg("round %llu: step %llu is torn: %s", (unsigned long long)round, step, e.message);
    }
    if (d)
        closedir(d);
    mr_checkpointer_close(c);
}

static void burst_killed_at_any_moment_tears_and_loses_nothing(void **state)
{
    (void)state;
    unsigned unfinished = 0;
    for (uint64_t round = 0; round < ct_kills(30, 250); round++) {
        uint64_t done =
                     ct_save_and_kill(open_burst, files, FILES, (unsigned)(mr_rng_at(2, MR_RNG_FAULT, round) % 30000)),
                 step = 0;
        assert_true(done > 0);
        expect_whole(round);
        struct mr_checkpointer *c = open_on(true);
        struct mr_checkpoint_result r;
        struct mr_error e = {0};
        if (mr_checkpoint_newest(c, &step, &e) || step < done)
            fail_msg("round %llu: %llu was saved, the newest is %llu: %s", (unsigned long long)round,
                     (unsigned long long)done, (unsigned long long)step, e.message);
        if (round % 2) { /* otherwise the next job finds it as it is */
            unfinished += mr_checkpoint_recover(c);
            if (mr_checkpoint_drain(c, &e) || mr_checkpoint_buffered(c) || mr_checkpoint_load(c, UINT64_MAX, 0, &r, &e))
                fail_msg("round %llu: %s", (unsigned long long)round, e.message);
            assert_false(r.buffered);
            assert_int_equal(r.files, FILES);
        }
        mr_checkpointer_close(c);
    }
    assert_true(unfinished > 0); /* or the test has met no drain */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_survives_any_call_failing_on_either_side),
        cmocka_unit_test_setup_teardown(burst_killed_at_any_moment_tears_and_loses_nothing, ct_setup_in_memory,
                                        ct_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
