/* The order of an access pattern, counted from who began what: mr_check_count_displaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "preset/check_internal.h"

#define N(list) (sizeof(list) / sizeof(*(list)))

/* Five items; the third is read twice. */
static uint64_t five[] = {3, 0, 4, 1, 2, 4};

static double count(const struct mr_check_begin *begun, size_t n, size_t least)
{
    const struct mr_check_items want = {.item = five, .n = N(five), .least = least, .kinds = 6};
    double displaced = -1;
    assert_int_equal(mr_check_count_displaced(&want, begun, n, &displaced), 0);
    return displaced;
}

static void nothing_is_displaced_in_the_order_itself(void **state)
{
    (void)state;
    const struct mr_check_begin all[] = {{1, 3}, {1, 0}, {1, 4}, {1, 1}, {1, 2}, {1, 4}};
    assert_true(count(all, N(all), N(five)) == 0);
    assert_true(count(all, 4, 3) == 0); /* begun ahead of what is needed */
    assert_true(count(NULL, 0, 0) == 0);
}

static void one_reader_must_keep_the_order_to_the_item(void **state)
{
    (void)state;
    const struct mr_check_begin swapped[] = {{1, 0}, {1, 3}, {1, 4}, {1, 1}, {1, 2}, {1, 4}};
    const struct mr_check_begin reversed[] = {{1, 4}, {1, 2}, {1, 1}, {1, 4}, {1, 0}, {1, 3}};
    assert_true(count(swapped, N(swapped), N(five)) == 1);
    assert_true(count(reversed, N(reversed), N(five)) == 3); /* 4 2 4 are in order */
}

static void readers_may_overtake_each_other(void **state)
{
    (void)state;
    /* Reader 2 took the first place, and was preempted until reader 1 had all others. */
    const struct mr_check_begin late[] = {{1, 0}, {1, 4}, {1, 1}, {1, 2}, {1, 4}, {2, 3}};
    /* Reader 2 took the third place, the first of item 4, but begins it after reader 1 began the last one. */
    const struct mr_check_begin same_item[] = {{1, 3}, {1, 0}, {1, 1}, {1, 2}, {1, 4}, {2, 4}};
    assert_true(count(late, N(late), N(five)) == 0);
    assert_true(count(same_item, N(same_item), N(five)) == 0);
}

static void each_of_several_readers_goes_forward(void **state)
{
    (void)state;
    const struct mr_check_begin back[] = {{1, 3}, {2, 4}, {1, 1}, {2, 0}, {1, 2}, {1, 4}};
    assert_true(count(back, N(back), N(five)) == 1);
}

static void what_nobody_began_counts_as_far_as_it_was_needed(void **state)
{
    (void)state;
    const struct mr_check_begin some[] = {{1, 3}, {1, 4}, {1, 1}};
    assert_true(count(some, N(some), N(five)) == 3);
    assert_true(count(some, N(some), 4) == 1);
    assert_true(count(NULL, 0, N(five)) == 6);
}

static void what_has_no_place_counts(void **state)
{
    (void)state;
    const struct mr_check_begin other[] = {{1, 3}, {1, 5}, {1, 0}, {1, 0}};
    assert_true(count(other, N(other), 2) == 2); /* 5 is not in the list, 0 only once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_displaced_in_the_order_itself),
        cmocka_unit_test(one_reader_must_keep_the_order_to_the_item),
        cmocka_unit_test(readers_may_overtake_each_other),
        cmocka_unit_test(each_of_several_readers_goes_forward),
        cmocka_unit_test(what_nobody_began_counts_as_far_as_it_was_needed),
        cmocka_unit_test(what_has_no_place_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
