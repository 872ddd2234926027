/* Changes of level in series of runs: found where they are, and hardly any in noise. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "base/sizes.h"
#include "history/change_points.h"

#include <math.h>

static double noise(uint64_t seed, uint64_t i)
{
    double u = ((double)(mr_mix64(mr_mix64(seed + 1) + i) >> 11) + 0.5) / 9007199254740992.0;
    return mr_normal_quantile(u);
}

static void changes_are_found_at_their_run(void **state)
{
    (void)state;
    unsigned right = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        double v[24];
        struct mr_change_point c[8];
        for (unsigned i = 0; i < 24; i++)
            v[i] = (i < 8 ? 10 : i < 16 ? 12 : 10.8) * (1 + 0.01 * noise(seed, i));
        size_t n = mr_change_points(v, 24, 0.01, 0.02, 0, c, 8);
        right += n == 2 && c[0].at == 8 && c[1].at == 16 && fabs(c[0].before - 10) < 0.2 && fabs(c[0].after - 12) < 0.2;
    }
    assert_true(right >= 190);
}

static void noise_has_no_levels(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        double v[40];
        struct mr_change_point c[8];
        size_t n = 4 + seed % 37;
        for (size_t i = 0; i < n; i++)
            v[i] = 10 * (1 + 0.05 * noise(seed, i));
        wrong += mr_change_points(v, n, 0.01, 0.02, 0, c, 8) > 0;
    }
    assert_true(wrong <= 20);
}

static void small_constant_and_short_series_have_none(void **state)
{
    (void)state;
    const double same[] = {1, 1, 1, 1, 1, 1}, little[] = {100, 100, 100, 100.5, 100.5, 100.5}, few[] = {1, 2, 3},
                 one_off[] = {1, 1.01, 0.99, 5, 1, 1.01, 0.99, 1};
    struct mr_change_point c[4];
    assert_int_equal(mr_change_points(same, 6, 0.01, 0.02, 0, c, 4), 0);
    assert_int_equal(mr_change_points(little, 6, 0.01, 0.02, 0, c, 4), 0);
    assert_int_equal(mr_change_points(few, 3, 0.01, 0.02, 0, c, 4), 0);
    assert_int_equal(mr_change_points(one_off, 8, 0.01, 0.02, 0, c, 4), 0);
    assert_int_equal(mr_change_points(same, 0, 0.01, 0.02, 0, c, 4), 0);
    const double steps[] = {1, 1, 1, 2, 2, 2, 4, 4, 4};
    assert_int_equal(mr_change_points(steps, 9, 0.01, 0.02, 0, c, 1), 1); /* no more than there is room for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_found_at_their_run),
        cmocka_unit_test(noise_has_no_levels),
        cmocka_unit_test(small_constant_and_short_series_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
