/* Interval algebra against a bitmap. */
#include "base/rng.h"
#include "metrics/intervals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SPAN 400

static void fill(struct mr_intervals *v, uint8_t *map, uint64_t seed, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t start = mr_rng_at(seed, MR_RNG_TEST, 2 * i) % SPAN, len = mr_rng_at(seed, MR_RNG_TEST, 2 * i + 1) % 12;
        uint64_t end = start + len < SPAN ? start + len : SPAN;
        assert_int_equal(mr_intervals_add(v, start, end), 0);
        for (uint64_t k = start; k < end; k++)
            map[k] = 1;
    }
    mr_intervals_normalise(v);
}

static void union_common_and_membership_agree_with_a_bitmap(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        struct mr_intervals a = {0}, b = {0}, s = {0};
        uint8_t x[SPAN] = {0}, y[SPAN] = {0};
        uint64_t length = 0, common = 0, both = 0;
        fill(&a, x, round * 2 + 1, (unsigned)(round % 40));
        fill(&b, y, round * 2 + 2, (unsigned)(round % 17));
        for (int i = 0; i < SPAN; i++) {
            length += x[i];
            common += x[i] & y[i];
            both += x[i] | y[i];
            assert_int_equal(!!mr_intervals_has(&a, (uint64_t)i), x[i]);
        }
        assert_int_equal(mr_intervals_length(&a), length);
        assert_int_equal(mr_intervals_common(&a, &b), common);
        for (size_t i = 1; i < a.n; i++)
            assert_true(a.item[i].start > a.item[i - 1].end);
        assert_int_equal(mr_intervals_merge(&a, &b, &s), 0);
        assert_int_equal(mr_intervals_length(&a), both);
        for (size_t i = 1; i < a.n; i++)
            assert_true(a.item[i].start > a.item[i - 1].end);
        mr_intervals_done(&a);
        mr_intervals_done(&b);
        mr_intervals_done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(union_common_and_membership_agree_with_a_bitmap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
