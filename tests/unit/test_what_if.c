/* The replay as a function of settings: the same settings give the trace's own seconds, and changed ones what the
 * arithmetic of the case gives. */
#include "explain_testlib.h"

#include "advise/replay.h"
#include "advise/what_if.h"
#include "base/clock.h"
#include "millrace/error.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct mr_what_if *opened(struct mr_explanation *x)
{
    struct mr_error err = {0};
    struct mr_what_if *w = NULL;
    assert_int_equal(mr_what_if_open(x, &w, &err), 0);
    return w;
}

static struct mr_what_if_result with(struct mr_what_if *w, struct mr_what_if_settings s)
{
    struct mr_error err = {0};
    struct mr_what_if_result out;
    assert_int_equal(mr_what_if_run(w, &s, &out, &err), 0);
    return out;
}

/* 100 steps of 0.1 s; a worker reads each batch of 1 MB in 0.4 s: 30 s of waits, but for the first. */
static struct mr_explanation *one_reader(void)
{
    struct mr_explanation *x = xt_new(1, 100, 0.1);
    x->facts.framework = "pytorch";
    x->facts.batch = 1;
    x->facts.sample_bytes = 1e6;
    xt_stall(x, MR_STALL_STORAGE, 30);
    xt_loading(x, 1, 2, 0.4, 0, 1);
    xt_reads(x, 100, 1000000, 0.4);
    return x;
}

static void settings_that_stay_give_the_seconds_of_the_trace(void **state)
{
    (void)state;
    struct mr_explanation *x = one_reader();
    struct mr_what_if *w = opened(x);
    struct mr_what_if_settings now;
    struct mr_what_if_result r = with(w, mr_what_if_same());
    assert_float_equal(r.stall_s, 30, 0.1);
    assert_float_equal(r.wall_s, 40, 0.1);
    mr_what_if_now(w, &now);
    assert_float_equal(now.workers, 1, 0);
    assert_float_equal(now.ahead, 2, 0);
    assert_float_equal(with(w, now).wall_s, 40, 0.2);
    mr_what_if_close(w);
    mr_explanation_free(x);
}

static void workers_storage_and_caches_change_the_waits(void **state)
{
    (void)state;
    struct mr_explanation *x = one_reader();
    struct mr_what_if *w = opened(x);
    struct mr_what_if_settings s = mr_what_if_same();
    s.workers = 2;
    assert_float_equal(with(w, s).stall_s, 10, 0.5);
    s.workers = 4;
    s.ahead = 8;
    assert_float_equal(with(w, s).stall_s, 0.4, 0.1);
    s.storage_bytes_per_s = 5e6; /* a batch each 0.2 s, with any number of readers */
    assert_float_equal(with(w, s).stall_s, 10, 0.5);
    s.storage_bytes_per_s = INFINITY;
    assert_float_equal(with(w, s).stall_s, 0.4, 0.1);
    s = mr_what_if_same();
    s.cached_share = 0.5; /* 0.2 s are left of each read */
    assert_float_equal(with(w, s).stall_s, 10, 0.5);
    s = mr_what_if_same();
    s.stream_bytes_per_s = 1e7;
    s.read_latency_s = 0.05;
    assert_float_equal(with(w, s).stall_s, 5.2, 0.5);
    s.read_bytes = 5e5; /* the latency twice */
    assert_float_equal(with(w, s).stall_s, 10.2, 0.5);
    s.workers = 0; /* nothing beside the compute */
    assert_float_equal(with(w, s).stall_s, 20, 1);
    mr_what_if_close(w);
    mr_explanation_free(x);
}

static void saves_beside_training_block_for_a_copy(void **state)
{
    (void)state;
    struct mr_explanation *x = one_reader();
    xt_checkpoints(x, 4, 8, 1000000000);
    struct mr_what_if *w = opened(x);
    struct mr_what_if_settings s = mr_what_if_same();
    assert_float_equal(with(w, s).checkpoint_s, 8, 0.1);
    s.saves = MR_WHAT_IF_SAVES_ASYNC;
    s.save_bytes_per_s = 1e10;
    assert_float_equal(with(w, s).checkpoint_s, 0.4, 0.1);
    assert_float_equal(with(w, s).wall_s, 40 + 0.4, 0.3);
    mr_what_if_close(w);
    mr_explanation_free(x);
}

/* The next save, and the end, wait for one that is still being written. */
static void saves_that_come_too_fast_wait_for_each_other(void **state)
{
    (void)state;
    const struct mr_replay_save s[] = {{2, 3, 1e9}, {2, 1, 1e9}, {2, 0.5, 1e9}};
    assert_float_equal(mr_replay_saves(s, 3, 0, 1), 1 + 1.5, 1e-9);
    assert_float_equal(mr_replay_saves(s, 3, 1e-10, 1), 0.3 + 1 + 1.5, 1e-9);
    assert_float_equal(mr_replay_saves(s, 3, 1, 0), 6, 1e-9);
    assert_float_equal(mr_replay_saves(s, 0, 1, 1), 0, 0);
}

static void traces_without_steps_and_bad_settings_are_refused(void **state)
{
    (void)state;
    struct mr_error err = {0};
    struct mr_what_if *w = NULL;
    struct mr_what_if_result out;
    struct mr_explanation *x = xt_new(1, 0, 0.1);
    assert_int_equal(mr_what_if_open(x, &w, &err), MR_E_UNSUPPORTED);
    assert_null(w);
    mr_explanation_free(x);
    x = one_reader();
    w = opened(x);
    struct mr_what_if_settings s = mr_what_if_same();
    s.workers = -1;
    assert_int_equal(mr_what_if_run(w, &s, &out, &err), -EINVAL);
    mr_what_if_close(w);
    mr_what_if_close(NULL);
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_stay_give_the_seconds_of_the_trace),
        cmocka_unit_test(workers_storage_and_caches_change_the_waits),
        cmocka_unit_test(saves_beside_training_block_for_a_copy),
        cmocka_unit_test(saves_that_come_too_fast_wait_for_each_other),
        cmocka_unit_test(traces_without_steps_and_bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
