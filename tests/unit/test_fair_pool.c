/* Pools of the simulator: shared equally, or served one after the other. */
#include "sim/fair_pool.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// clang-format off
#include <cmocka.h>
// clang-format on

/* Three flows of 10, 20 and 10 MB in a pool of 10 MB/s; the third comes after one second. When each ends, in order. */
static void run(bool in_turn, uint32_t order[3], double end[3])
{
    struct mr_clockwork c;
    uint32_t pool;
    assert_int_equal(mr_clockwork_init(&c, 1), 0);
    c.pools[0].in_turn = in_turn;
    mr_pool_set_rate(&c, 0, 0, 10);
    assert_true(mr_pool_add(&c, 0, 0, 10, 0));
    assert_true(mr_pool_add(&c, 0, 0, 20, 1));
    assert_true(mr_pool_add(&c, 0, 0.5, 10, 2));
    for (unsigned i = 0; i < 3; i++) {
        end[i] = mr_clockwork_next(&c, &pool);
        order[i] = mr_pool_end_first(&c, pool);
    }
    assert_true(isinf(mr_clockwork_next(&c, &pool)));
    mr_clockwork_done(&c);
}

static void those_who_share_get_equal_parts(void **state)
{
    (void)state;
    uint32_t order[3];
    double end[3];
    run(false, order, end);
    /* 2.5 MB each until 0.5 s; then a third each: 0 has 7.5 left, until 2.75 s; 2 has 2.5, 1 10 left */
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 2);
    assert_true(fabs(end[0] - 2.75) < 1e-9 && fabs(end[1] - 3.25) < 1e-9 && fabs(end[2] - 4) < 1e-9);
}

static void in_turn_the_first_one_has_all(void **state)
{
    (void)state;
    uint32_t order[3];
    double end[3];
    run(true, order, end);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    assert_true(fabs(end[0] - 1) < 1e-9 && fabs(end[1] - 3) < 1e-9 && fabs(end[2] - 4) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_share_get_equal_parts),
        cmocka_unit_test(in_turn_the_first_one_has_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
