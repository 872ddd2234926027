/* The proof that all ranks together read every sample once: it holds for real orders and fails for wrong claims. */
#include "order/order_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct mr_order_params params(enum mr_order_mode mode, uint64_t samples, uint32_t world, bool drop_last)
{
    return (struct mr_order_params){.samples = samples,
                                    .mode = mode,
                                    .seed = 5,
                                    .world = world,
                                    .window = mode == MR_ORDER_BUFFER ? 16 : 0,
                                    .drop_last = drop_last,
                                    .shuffle_each_epoch = true};
}

/* Checks the order of `made` against what `claimed` says. */
static struct mr_order_check check(const struct mr_order_params *made, const struct mr_order_params *claimed)
{
    atomic_bool stop = false;
    struct mr_order *order;
    struct mr_order_check c;
    assert_int_equal(mr_order_create(made, &order, NULL), 0);
    assert_int_equal(mr_order_check(order, claimed, &stop, &c, NULL), 0);
    mr_order_free(order);
    return c;
}

static void order_check_accepts_padding_and_drop_last(void **state)
{
    (void)state;
    static const enum mr_order_mode modes[] = {MR_ORDER_SEQUENTIAL, MR_ORDER_TORCH, MR_ORDER_CIPHER, MR_ORDER_BUFFER};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct mr_order_params p = params(modes[i], 1009, 8, false);
        struct mr_order_check c = check(&p, &p);
        assert_true(c.is_permutation);
        assert_int_equal(c.read, 1016);
        assert_int_equal(c.repeated, 7);
        p.drop_last = true;
        c = check(&p, &p);
        assert_true(c.is_permutation);
        assert_int_equal(c.left_out, 1);
    }
}

static void order_check_finds_missing_repeated_and_outside(void **state)
{
    (void)state;
    struct mr_order_params made = params(MR_ORDER_TORCH, 1000, 4, false), claimed = made;
    claimed.samples = 1001;
    struct mr_order_check c = check(&made, &claimed);
    assert_false(c.is_permutation);
    assert_int_equal(c.left_out, 1);
    claimed.samples = 999;
    c = check(&made, &claimed);
    assert_false(c.is_permutation);
    assert_int_equal(c.outside, 1);
    claimed = made;
    claimed.world = 3; /* one rank is never asked */
    c = check(&made, &claimed);
    assert_false(c.is_permutation);
    assert_int_equal(c.left_out, 250);
}

static void order_check_stops_and_refuses(void **state)
{
    (void)state;
    atomic_bool stop = true;
    struct mr_order_params p = params(MR_ORDER_SEQUENTIAL, 100, 1, false);
    struct mr_order *order;
    struct mr_order_check c;
    assert_int_equal(mr_order_create(&p, &order, NULL), 0);
    assert_int_equal(mr_order_check(order, &p, &stop, &c, NULL), MR_E_INTERRUPTED);
    p.samples = MR_ORDER_CHECK_MAX + 1;
    assert_int_equal(mr_order_check(order, &p, &stop, &c, NULL), MR_E_USAGE);
    mr_order_free(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_check_accepts_padding_and_drop_last),
        cmocka_unit_test(order_check_finds_missing_repeated_and_outside),
        cmocka_unit_test(order_check_stops_and_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
