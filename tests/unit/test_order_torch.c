/* The torch mode against vectors made with PyTorch's DistributedSampler(shuffle=True) of torch 1.13.0 (Debian 12). A
 * vector is the FNV-1a hash of the ids of one rank. tests/python/test_order_torch.py compares with a live torch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/common.h"
#include <millrace/order.h>

static const struct vector {
    uint64_t n;
    uint32_t world, rank;
    uint64_t epoch, seed;
    bool drop_last;
    uint64_t len, hash;
} vectors[] = {
    {10, 1, 0, 0, 0ull, false, 10, 0x5fb755c895d353d6ull},
    {10, 3, 2, 0, 0ull, false, 4, 0xbb23f866c74f0a40ull},
    {10, 3, 2, 0, 0ull, true, 3, 0xbf6f35185d712cc1ull},
    {10, 3, 1, 5, 42ull, false, 4, 0xf2489fba20835334ull},
    {1, 1, 0, 0, 7ull, false, 1, 0xaf63bd4c8601b7dfull},
    {1, 4, 3, 2, 7ull, false, 1, 0xaf63bd4c8601b7dfull},
    {3, 16, 15, 1, 1ull, false, 1, 0xaf63bd4c8601b7dfull}, /* padding longer than the data set */
    {3, 16, 15, 1, 1ull, true, 0, 0xcbf29ce484222325ull},
    {2, 7, 6, 9, 123ull, false, 1, 0xaf63bc4c8601b62cull},
    {1000, 8, 5, 3, 1234567890123ull, false, 125, 0xbe2b10da6e1fc8d9ull},
    {1000, 8, 5, 3, 4294967294ull, true, 125, 0x39e8930a79055c18ull}, /* seed + epoch passes 2^32 */
    {1001, 16, 15, 0, 9223372036854775798ull, false, 63, 0x7d79feeb4fb8ad6full},
    {4096, 7, 0, 11, 999ull, true, 585, 0xe024417f06639ddbull},
    {65537, 64, 63, 2, 17ull, false, 1025, 0x47c1531765b38ee2ull},
    {100003, 3, 2, 100, 18446744073709551611ull, false, 33335, 0x49377bed3d148efeull}, /* seed -5 */
    {1281167, 8, 7, 89, 42ull, true, 160145, 0x4178d3e815d439adull},
};

static void torch_mode_equals_the_vectors(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MR_ARRAY_LEN(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct mr_order_params p = {.mode = MR_ORDER_TORCH,
                                    .samples = v->n,
                                    .seed = v->seed,
                                    .rank = v->rank,
                                    .world = v->world,
                                    .drop_last = v->drop_last,
                                    .shuffle_each_epoch = true};
        struct mr_order *o;
        struct mr_error e;
        assert_int_equal(mr_order_create(&p, &o, &e), 0);
        assert_int_equal(mr_order_set_epoch(o, v->epoch, &e), 0);
        assert_int_equal(mr_order_rank_len(o), v->len);
        uint64_t hash = 0xcbf29ce484222325ull, *ids = calloc(v->len + 1, sizeof(*ids));
        assert_int_equal(mr_order_get(o, 0, ids, v->len + 1), v->len);
        for (uint64_t k = 0; k < v->len; k++)
            hash = (hash ^ ids[k]) * 0x100000001b3ull;
        assert_int_equal(hash, v->hash);
        free(ids);
        mr_order_free(o);
    }
}

static void torch_randperm_of_seed_42_is_the_known_one(void **state)
{
    (void)state;
    static const uint64_t want[20] = {2, 14, 18, 15, 1, 10, 0, 4, 6, 11, 8, 3, 7, 17, 13, 12, 19, 5, 16, 9};
    struct mr_order_params p = {
        .mode = MR_ORDER_AUTO, .samples = 20, .seed = 42, .world = 1, .shuffle_each_epoch = true};
    struct mr_order *o;
    uint64_t ids[20];
    assert_int_equal(mr_order_create(&p, &o, NULL), 0);
    assert_int_equal(mr_order_mode_of(o), MR_ORDER_TORCH); /* auto is torch for small data sets */
    assert_int_equal(mr_order_get(o, 0, ids, 20), 20);
    assert_memory_equal(ids, want, sizeof want);
    mr_order_free(o);
    p.samples = MR_ORDER_AUTO_TORCH_MAX + 1;
    assert_int_equal(mr_order_create(&p, &o, NULL), 0);
    assert_int_equal(mr_order_mode_of(o), MR_ORDER_CIPHER);
    mr_order_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_mode_equals_the_vectors),
        cmocka_unit_test(torch_randperm_of_seed_42_is_the_known_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
