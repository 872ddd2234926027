/* The verdict of a trial from windows made by hand: what is sure, what is not, and how often equal sides get a verdict
 * that they must not get. */
#include "base/common.h"
#include "base/rng.h"
#include "compare/compare_stats.h"
#include "loop/judge.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS 100
#define RUNS 4

static struct mr_window_step memory[2 * RUNS][STEPS];

struct made {
    double wait, rest;       /* of a step */
    double noise, run_noise; /* of a step, of a whole run: standard deviations, as shares of the step */
};

static uint64_t draws;

static double normal(void)
{
    return mr_rng_normal(5, MR_RNG_TEST, draws++);
}

/* Every ninth step waits ninefold: what differs from step to step is no noise. */
static struct mr_window window_of(size_t at, const struct made *m)
{
    struct mr_window w = {.to = STEPS, .steps = STEPS, .step = memory[at]};
    double all = 1 + m->run_noise * normal();
    for (size_t i = 0; i < STEPS; i++) {
        double wait = i % 9 == 8 ? 9 * m->wait : 0, noise = m->noise * (m->wait + m->rest) * normal();
        w.step[i] = (struct mr_window_step){
            .s = {[MR_WINDOW_DATA] = fmax(0, wait * all + noise), [MR_WINDOW_REST] = m->rest * all}};
        w.sum[MR_WINDOW_DATA] += w.step[i].s[MR_WINDOW_DATA];
        w.sum[MR_WINDOW_REST] += w.step[i].s[MR_WINDOW_REST];
    }
    w.wait_s = w.sum[MR_WINDOW_DATA];
    w.wall_s = w.wait_s + w.sum[MR_WINDOW_REST];
    return w;
}

static struct mr_judgement judged(const struct made *a, const struct made *b, size_t n, double said, double low,
                                  double high)
{
    struct mr_window as[RUNS], bs[RUNS];
    struct mr_judgement j;
    struct mr_error err;
    const struct mr_prediction_share p = {said, low, high};
    for (size_t i = 0; i < n; i++) {
        as[i] = window_of(i, a);
        bs[i] = window_of(RUNS + i, b);
    }
    assert_int_equal(mr_judge(as, bs, n, &p, &j, &err), 0);
    return j;
}

static void f_test_agrees_with_tables(void **state)
{
    (void)state; /* upper 5 % points */
    static const struct {
        double df, other, f;
    } known[] = {{1, 10, 4.965}, {3, 20, 3.098}, {10, 10, 2.978}};
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        assert_float_equal(mr_f_test(known[i].f, known[i].df, known[i].other), 0.05, 0.0002);
}

static void sure_gain_is_confirmed_or_smaller(void **state)
{
    (void)state;
    const struct made a = {0.03, 0.01, 0.01, 0.002}, b = {0.003, 0.01, 0.01, 0.002}, half = {0.021, 0.01, 0.01, 0.002};
    struct mr_judgement j = judged(&a, &b, 2, 0.9, 0.8, 0.95);
    assert_int_equal(j.verdict, MR_TRIAL_CONFIRMED);
    assert_float_equal(j.wait.saved / j.wait.a, 0.9, 0.03);
    assert_true(j.gain.high - j.gain.low < 0.2 * j.wait.a);
    assert_int_equal(judged(&a, &b, 2, 0.5, 0.4, 0.6).verdict, MR_TRIAL_CONFIRMED); /* more than was said */
    assert_int_equal(judged(&a, &half, 2, 0.9, 0.8, 0.95).verdict, MR_TRIAL_SMALLER);
    assert_int_equal(judged(&a, &half, 2, 0.9, 0.1, 0.95).verdict, MR_TRIAL_CONFIRMED); /* within the interval */
}

static void nothing_gained_is_no_gain_and_a_loss_is_harm(void **state)
{
    (void)state;
    const struct made a = {0.001, 0.03, 0.005, 0.001}, worse = {0.004, 0.03, 0.005, 0.001};
    assert_int_equal(judged(&a, &a, 2, 0.9, 0.8, 0.95).verdict, MR_TRIAL_NO_GAIN);
    assert_int_equal(judged(&a, &worse, 2, 0.9, 0.8, 0.95).verdict, MR_TRIAL_HARMFUL);
}

static void waits_that_turn_into_slower_compute_are_no_gain(void **state)
{
    (void)state;
    const struct made a = {0.01, 0.03, 0.002, 0.001}, moved = {0.001, 0.039, 0.002, 0.001};
    struct mr_judgement j = judged(&a, &moved, 3, 0.9, 0.8, 0.95);
    assert_true(j.wait.low > 0 && j.rest.high < 0);
    assert_int_equal(j.verdict, MR_TRIAL_NO_GAIN);
}

static void noise_of_whole_runs_is_not_decided(void **state)
{
    (void)state;
    const struct made a = {0.02, 0.02, 0.01, 0.3}, b = {0.017, 0.02, 0.01, 0.3};
    unsigned undecided = 0;
    for (unsigned k = 0; k < 40; k++) {
        struct mr_judgement j = judged(&a, &b, 2, 0.15, 0.13, 0.17);
        undecided += j.verdict == MR_TRIAL_UNDECIDED;
        assert_true(j.verdict != MR_TRIAL_UNDECIDED || j.more == 0 || j.more > 2);
    }
    assert_true(undecided > 30);
    assert_int_equal(judged(&a, &b, 1, 0.15, 0.13, 0.17).verdict, MR_TRIAL_UNDECIDED); /* J2 */
}

/* What was promised is out of reach, and the saving may be none: more runs are not asked for. */
static void promises_out_of_reach_are_no_gain(void **state)
{
    (void)state;
    const struct made a = {0.02, 0.02, 0.01, 0.05};
    unsigned none = 0, undecided = 0;
    for (unsigned k = 0; k < 40; k++) {
        none += judged(&a, &a, 3, 0.9, 0.8, 0.95).verdict == MR_TRIAL_NO_GAIN;
        undecided += judged(&a, &a, 3, NAN, NAN, NAN).verdict == MR_TRIAL_UNDECIDED;
    }
    assert_true(none >= 30);
    assert_true(undecided >= 10); /* of the same runs, where nothing was promised */
}

/* Equal sides: at most 5 % of them may look like a gain or a loss; the limits of 1 and 2 % of the window leave fewer. */
static void equal_sides_seldom_get_a_sign(void **state)
{
    (void)state;
    static const double run_noise[] = {0.001, 0.02, 0.1};
    for (size_t k = 0; k < MR_ARRAY_LEN(run_noise); k++) {
        const struct made a = {0.02, 0.02, 0.02, run_noise[k]};
        unsigned signs = 0;
        for (unsigned i = 0; i < 200; i++) {
            struct mr_judgement j = judged(&a, &a, 2, 0.9, 0.8, 0.95);
            signs += j.verdict == MR_TRIAL_CONFIRMED || j.verdict == MR_TRIAL_SMALLER || j.verdict == MR_TRIAL_HARMFUL;
        }
        assert_true(signs <= 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f_test_agrees_with_tables),
        cmocka_unit_test(sure_gain_is_confirmed_or_smaller),
        cmocka_unit_test(nothing_gained_is_no_gain_and_a_loss_is_harm),
        cmocka_unit_test(waits_that_turn_into_slower_compute_are_no_gain),
        cmocka_unit_test(noise_of_whole_runs_is_not_decided),
        cmocka_unit_test(promises_out_of_reach_are_no_gain),
        cmocka_unit_test(equal_sides_seldom_get_a_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
