/* Comparisons: the statistics against tables, how often equal sides are called different, whether a real difference is
 * found, and the rules C1 to C4 of compare.h. */
#include "base/common.h"
#include "base/rng.h"
#include "compare/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void student_and_holm_agree_with_tables(void **state)
{
    (void)state;
    /* two-sided 5 %, 1 % and 0.1 % points of Student's t */
    static const struct {
        double df, t, p;
    } known[] = {{1, 12.706, 0.05}, {2, 9.925, 0.01}, {4, 4.604, 0.01}, {8, 3.355, 0.01}, {30, 3.646, 0.001}};
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++) {
        assert_float_equal(mr_student_p(known[i].t, known[i].df), known[i].p, known[i].p * 0.01);
        assert_float_equal(mr_student_quantile(known[i].p, known[i].df), known[i].t, 0.001);
    }
    double p[] = {0.01, 0.04, 0.03, 0.005}, w[] = {1, 1, 1, 1};
    static const double holm[] = {0.03, 0.06, 0.06, 0.02}; /* R: p.adjust(p, "holm") */
    assert_int_equal(mr_holm(p, w, 4), 0);
    for (int i = 0; i < 4; i++)
        assert_float_equal(p[i], holm[i], 1e-12);
    double q[] = {0.01, 0.01}, v[] = {3, 1};
    assert_int_equal(mr_holm(q, v, 2), 0);
    assert_float_equal(q[0], 0.01 / 3 * 4, 1e-12); /* its three quarters of the level */
    assert_float_equal(q[1], 0.01 / 3 * 4, 1e-12); /* then all of it; never less than the one before */
}

#define STEPS 1000

/* Steps of 1 s with a deviation of 0.1 s; `memory` makes neighbours alike. */
static void make_steps(struct mr_compare_step *step, size_t n, double memory, uint64_t seed)
{
    double state = 0;
    for (size_t i = 0; i < n; i++) {
        state = memory * state + sqrt(1 - memory * memory) * mr_rng_normal(seed, MR_RNG_TEST, i);
        step[i] = (struct mr_compare_step){.s = {(float)(1 + 0.1 * state), 0.5f, (float)(0.5 + 0.1 * state)}};
    }
}

static void blocks_see_that_neighbours_are_alike(void **state)
{
    (void)state;
    static struct mr_compare_step step[STEPS];
    struct mr_step_errors e;
    make_steps(step, STEPS, 0, 7);
    assert_int_equal(mr_step_errors_of(step, STEPS, 1, &e), 0);
    double independent = 0.1 * sqrt(STEPS); /* of the sum */
    assert_float_equal(e.sum[MR_PART_STEP], independent, 0.2 * independent);
    assert_true(e.share[MR_PART_STALL] > 0 && e.share[MR_PART_STEP] < 1e-9);
    make_steps(step, STEPS, 0.8, 7); /* true error: sqrt((1 + 0.8) / (1 - 0.8)) = 3 times as large */
    assert_int_equal(mr_step_errors_of(step, STEPS, 1, &e), 0);
    assert_true(e.sum[MR_PART_STEP] > 1.7 * independent);
    assert_int_equal(mr_step_errors_of(step, 3, 1, &e), 0);
    assert_true(isnan(e.sum[MR_PART_STEP])); /* nothing can be said of three steps */
}

static void tail_is_that_of_the_steps(void **state)
{
    (void)state;
    static struct mr_compare_step step[STEPS];
    struct mr_step_figures f;
    for (int i = 0; i < STEPS; i++)
        step[i] = (struct mr_compare_step){.s = {(float)((i * 7) % STEPS), 0, 1}};
    mr_step_figures_of(step, STEPS, &f);
    assert_float_equal(f.p99_step, 989, 1.01);
    assert_float_equal(f.sum[MR_PART_STALL], STEPS, 1e-3);
}

/* ---- whole comparisons ---- */

static struct mr_compare_run make_run(double wall, double spread, uint64_t seed)
{
    struct mr_compare_run r = {.path = "run", .au_target = NAN};
    double factor = 1 + spread * mr_rng_normal(seed, MR_RNG_TEST + 1, 0);
    r.work = (struct mr_compare_work){1, 100, 1000, 100000, 100000, MR_TIME_UNKNOWN};
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++)
        r.value[m] = r.within[m] = NAN;
    for (int k = 0; k < MR_STALL_CAUSE_COUNT; k++)
        r.cause[k] = NAN;
    r.value[MR_COMPARE_WALL] = wall * factor;
    r.value[MR_COMPARE_STALL] = 0.3 + 0.3 * (factor - 1);
    r.value[MR_COMPARE_AU] = 0.6 - 0.3 * (factor - 1);
    r.value[MR_COMPARE_STEP_P99] = 0.05 * factor * (1 + 3 * spread * mr_rng_normal(seed, MR_RNG_TEST + 2, 0));
    r.value[MR_COMPARE_SAMPLES_RATE] = 1000 / r.value[MR_COMPARE_WALL];
    return r;
}

static void add_side(struct mr_compare *c, const char *name, size_t runs, double wall, double spread, uint64_t seed)
{
    assert_int_equal(mr_vec_reserve(&c->side, &c->side_cap, c->sides + 1, sizeof(*c->side)), 0);
    struct mr_compare_side *s = &c->side[c->sides++];
    *s = (struct mr_compare_side){.name = name};
    for (size_t i = 0; i < runs; i++)
        *MR_VEC_ADD(&s->run) = make_run(wall, spread, mr_mix64(seed) + i);
}

static const struct mr_compare_options defaults = {.level = 0.01, .least = 0.01};

static struct mr_compare compare(size_t n, size_t m, double change, double spread, uint64_t seed)
{
    struct mr_compare c = {0};
    add_side(&c, "a", n, 10, spread, 2 * seed);
    add_side(&c, "b", m, 10 * (1 + change), spread, 2 * seed + 1);
    assert_int_equal(mr_compare_judge(&c, &defaults, NULL), 0);
    return c;
}

static bool found_any(const struct mr_compare *c)
{
    for (int m = 0; m < MR_COMPARE_METRIC_COUNT; m++)
        if (c->row[m].change[1].verdict == MR_COMPARE_BETTER || c->row[m].change[1].verdict == MR_COMPARE_WORSE)
            return true;
    return false;
}

static void equal_sides_are_hardly_ever_called_different(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 6; n += 2) {
        int wrong = 0;
        for (uint64_t i = 0; i < 500; i++) {
            struct mr_compare c = compare(n, n, 0, 0.05, 1000 * n + i);
            wrong += found_any(&c);
            mr_compare_done(&c);
        }
        assert_in_range(wrong, 0, 12); /* 5 of 500 expected; more than 12 has a chance of 0.2 % */
    }
}

static void ten_percent_are_found(void **state)
{
    (void)state;
    int found = 0, right = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct mr_compare c = compare(5, 5, i % 2 ? -0.1 : 0.1, 0.01, i);
        const struct mr_compare_change *x = &c.row[MR_COMPARE_WALL].change[1];
        found += x->verdict == MR_COMPARE_BETTER || x->verdict == MR_COMPARE_WORSE;
        right += x->verdict == (i % 2 ? MR_COMPARE_BETTER : MR_COMPARE_WORSE);
        mr_compare_done(&c);
    }
    assert_int_equal(found, 100);
    assert_int_equal(right, 100);
}

static void one_run_never_wins(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 3; n += 2) {
        struct mr_compare c = compare(n, 4 - n, -0.9, 0, 1);
        assert_false(found_any(&c));
        assert_int_equal(c.row[MR_COMPARE_WALL].change[1].verdict, MR_COMPARE_ONE_RUN);
        assert_int_equal(c.note.n, 1);
        assert_non_null(strstr(c.note.item[0], "--repeat"));
        mr_compare_done(&c);
    }
}

static void other_work_is_compared_by_rates_only(void **state)
{
    (void)state;
    struct mr_compare c = {0};
    add_side(&c, "a", 3, 10, 0.001, 1);
    add_side(&c, "b", 3, 5, 0.001, 2);
    for (int i = 0; i < 3; i++)
        c.side[1].run.item[i].work.samples = 500;
    assert_int_equal(mr_compare_judge(&c, &defaults, NULL), 0);
    assert_int_equal(c.same_work, MR_WORK_OTHER);
    assert_non_null(strstr(c.work, "1000"));
    assert_int_equal(c.row[MR_COMPARE_WALL].change[1].verdict, MR_COMPARE_OTHER_WORK);
    assert_int_equal(c.row[MR_COMPARE_SAMPLES_RATE].change[1].verdict, MR_COMPARE_BETTER);
    mr_compare_done(&c);
}

static void least_effect_and_unknown_figures(void **state)
{
    (void)state;
    struct mr_compare c = compare(5, 5, 0.005, 0.0001, 3); /* surely different, but nobody cares */
    assert_int_equal(c.row[MR_COMPARE_WALL].change[1].verdict, MR_COMPARE_SAME);
    assert_true(isnan(c.row[MR_COMPARE_BARRIER].change[1].change) && !c.row[MR_COMPARE_BARRIER].shown);
    mr_compare_done(&c);
    c = compare(3, 3, 0, 0.05, 5);
    const struct mr_compare_change *x = &c.row[MR_COMPARE_WALL].change[1];
    assert_int_equal(x->verdict, MR_COMPARE_UNDECIDED);
    assert_true(x->detectable > 0.02 && x->detectable < 1 && x->low < 0 && x->high > 0);
    mr_compare_done(&c);
}

static void runs_that_agree_by_luck_are_not_trusted(void **state)
{
    (void)state;
    struct mr_runs_mean a = {.mean = 10, .sd = 0.0001, .floor = 0.5, .n = 2}, b = a;
    b.mean = 10.5;
    struct mr_difference d = mr_difference_of(&a, &b);
    assert_true(d.p > 0.2); /* the steps inside of the runs spread by more than the runs do */
    a.floor = b.floor = NAN;
    assert_true(mr_difference_of(&a, &b).p < 1e-4);
    struct mr_runs_mean wide = {.mean = 11, .sd = 5, .floor = NAN, .n = 8};
    a = (struct mr_runs_mean){.mean = 10, .sd = 0.01, .floor = NAN, .n = 3};
    assert_float_equal(mr_difference_of(&a, &wide).df, 7, 0.1); /* Welch: the side that spreads decides */
}

static void predictions_judge_nothing(void **state)
{
    (void)state;
    struct mr_compare c = {0};
    add_side(&c, "a", 3, 10, 0.001, 1);
    add_side(&c, "sim", 3, 9, 0, 2);
    c.side[1].simulated = true;
    assert_int_equal(mr_compare_judge(&c, &defaults, NULL), 0);
    assert_false(found_any(&c));
    assert_float_equal(c.predicted_s, 9, 1e-9);
    assert_float_equal(c.prediction_error, -0.1, 0.005);
    mr_compare_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(student_and_holm_agree_with_tables),
        cmocka_unit_test(blocks_see_that_neighbours_are_alike),
        cmocka_unit_test(tail_is_that_of_the_steps),
        cmocka_unit_test(equal_sides_are_hardly_ever_called_different),
        cmocka_unit_test(ten_percent_are_found),
        cmocka_unit_test(one_run_never_wins),
        cmocka_unit_test(other_work_is_compared_by_rates_only),
        cmocka_unit_test(least_effect_and_unknown_figures),
        cmocka_unit_test(runs_that_agree_by_luck_are_not_trusted),
        cmocka_unit_test(predictions_judge_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
