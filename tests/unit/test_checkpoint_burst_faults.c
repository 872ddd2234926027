/* Any call fails, on either side: saves succeed all the same, drains tell, nothing is torn or lost. (Kills:
 * test_checkpoint_kills.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/rng.h"
#include "unit/checkpoint_burst_test.h"

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
    } cases[] = {{"open", "EIO", 8, 8},        {"write", "ENOSPC", 8, 6},  {"fsync", "EIO", 8, 8},
                 {"close", "ENOSPC", 4, 6},    {"rename", "EIO", 4, 2},    {"mkdir", "EROFS", 1, 2},
                 {"allocate", "ENOSPC", 4, 4}, {"unlink", "EACCES", 2, 0}, {"list", "EIO", 2, 1},
                 {"read", "EIO", 6, 0}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
        unsigned buffer = sweep_buffer(cases[i].op, cases[i].error), final = sweep_final(cases[i].op, cases[i].error);
        if (buffer < cases[i].buffer || final < cases[i].final)
            fail_msg("op=%s: only %u and %u calls failed", cases[i].op, buffer, final);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_survives_any_call_failing_on_either_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
