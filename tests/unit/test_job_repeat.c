/* Repeated runs: medians, intervals that cover what they claim to, and runs that did other work are not repeats. */
#include "base/common.h"
#include "job/job_search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void intervals_are_those_of_order_statistics(void **state)
{
    (void)state;
    /* n, which value from each end, and how surely the median lies between: from tables of the binomial */
    static const struct {
        size_t n, k;
        double confidence;
    } known[] = {{1, 1, 0},      {2, 1, 0.5},    {5, 1, 0.9375},  {6, 1, 0.96875},
                 {8, 1, 0.9922}, {9, 2, 0.9609}, {20, 6, 0.9586}, {100, 40, 0.9648}};
    for (size_t t = 0; t < MR_ARRAY_LEN(known); t++) {
        double v[100];
        for (size_t i = 0; i < known[t].n; i++)
            v[i] = (double)((i * 37) % known[t].n); /* 0 .. n-1 in some order: 37 divides none of them */
        struct mr_job_spread s = mr_job_spread_of(v, known[t].n);
        assert_float_equal(s.median, (double)(known[t].n - 1) / 2, 1e-12);
        assert_float_equal(s.low, (double)known[t].k - 1, 1e-12);
        assert_float_equal(s.high, (double)(known[t].n - known[t].k), 1e-12);
        assert_float_equal(s.confidence, known[t].confidence, 1e-4);
    }
    assert_true(isnan(mr_job_spread_of(NULL, 0).median));
}

/* Three repeats of two points, as they are made: in turn. */
static void fill(struct mr_job_point runs[6])
{
    memset(runs, 0, 6 * sizeof(*runs));
    for (size_t i = 0; i < 6; i++)
        runs[i] = (struct mr_job_point){.measured = true,
                                        .verdict = MR_JOB_PASS,
                                        .ranks = 2,
                                        .steps = 10 + i % 2,
                                        .samples = 40,
                                        .sample_bytes = 4000,
                                        .read_bytes = 4096,
                                        .au = 0.9 + 0.01 * (double)i,
                                        .samples_per_s = 100 + (double)i};
}

static void medians_and_the_same_work(void **state)
{
    (void)state;
    struct mr_job_point runs[6], point = {0};
    struct mr_job_repeats r;
    fill(runs);
    mr_job_sum_repeats(&runs[1], 3, 2, &point, &r);
    assert_true(r.same_work && r.n == 3 && point.measured && point.verdict == MR_JOB_PASS);
    assert_float_equal(point.au, 0.93, 1e-12);
    assert_float_equal(point.samples_per_s, 103, 1e-12);
    assert_float_equal(r.samples_per_s.low, 101, 1e-12);
    assert_float_equal(r.samples_per_s.high, 105, 1e-12);
    runs[5].read_bytes++;
    mr_job_sum_repeats(&runs[1], 3, 2, &point, &r);
    assert_false(r.same_work);
    assert_int_equal(point.verdict, MR_JOB_NO_VERDICT);
    assert_string_equal(point.because, "repeat 3 did other work: 4097 bytes read, the first had 4096");
    runs[5].measured = false; /* stopped before it: no difference */
    mr_job_sum_repeats(&runs[1], 3, 2, &point, &r);
    assert_true(r.same_work && r.n == 2 && point.verdict == MR_JOB_PASS);
}

static void repeats_that_disagree_have_no_verdict(void **state)
{
    (void)state;
    struct mr_job_point runs[6], point = {0};
    struct mr_job_repeats r;
    fill(runs);
    runs[2].verdict = MR_JOB_FAIL;
    mr_job_sum_repeats(runs, 3, 2, &point, &r);
    assert_int_equal(point.verdict, MR_JOB_NO_VERDICT);
    assert_string_equal(point.because, "the repeats disagree: 2 pass, 1 fail");
    fill(runs);
    runs[2].verdict = MR_JOB_NO_VERDICT;
    snprintf(runs[2].because, sizeof runs[2].because, "it was warm");
    mr_job_sum_repeats(runs, 3, 2, &point, &r);
    assert_int_equal(point.verdict, MR_JOB_NO_VERDICT);
    assert_string_equal(point.because, "it was warm (repeat 2)");
    memset(&point, 0, sizeof point);
    memset(runs, 0, sizeof runs);
    mr_job_sum_repeats(runs, 3, 2, &point, &r);
    assert_false(point.measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_are_those_of_order_statistics),
        cmocka_unit_test(medians_and_the_same_work),
        cmocka_unit_test(repeats_that_disagree_have_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
