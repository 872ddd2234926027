/* Properties of the hash map, the heap and the growing array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/vec.h"

enum { MANY = 20000 };

/* Keys that a careless hash would put side by side or on top of each other, 0 and the largest among them. */
static uint64_t key_of(uint64_t i, int how)
{
    return how == 0 ? i : how == 1 ? i << 32 : how == 2 ? i * 4096 : UINT64_MAX - i;
}

static void map_finds_every_key_and_no_other(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct mr_map m = {0};
        assert_int_equal(mr_map_get(&m, 0), 0);
        for (uint64_t i = 0; i < MANY; i++) {
            uint64_t *v = mr_map_put(&m, key_of(i, how));
            assert_non_null(v);
            assert_int_equal(*v, 0);
            *v = i + 1;
        }
        for (uint64_t i = 0; i < MANY; i++) {
            assert_int_equal(mr_map_get(&m, key_of(i, how)), i + 1);
            assert_int_equal(*mr_map_put(&m, key_of(i, how)), i + 1);
            assert_int_equal(mr_map_get(&m, key_of(i + MANY, how)), 0);
        }
        assert_int_equal(m.used, MANY);
        mr_map_done(&m);
        assert_null(m.slot);
    }
}

static void map_next_visits_every_entry_once(void **state)
{
    (void)state;
    struct mr_map m = {0};
    size_t at = 0, seen = 0;
    uint64_t sum = 0;
    assert_null(mr_map_next(&m, &at));
    for (uint64_t i = 1; i <= 1000; i++)
        *mr_map_put(&m, i * 7) = i;
    at = 0;
    for (const struct mr_map_slot *s; (s = mr_map_next(&m, &at)); seen++) {
        assert_int_equal(s->key, s->value * 7);
        sum += s->value;
    }
    assert_int_equal(seen, 1000);
    assert_int_equal(sum, 1000 * 1001 / 2);
    assert_true(mr_map_reserve(&m, 2 * 131072));
    assert_int_equal(mr_map_get(&m, 7), 1);
    assert_true(m.slots >= 4 * 131072);
    mr_map_clear(&m);
    assert_int_equal(mr_map_get(&m, 7), 0);
    at = 0;
    assert_null(mr_map_next(&m, &at));
    mr_map_done(&m);
}

static void map_forgets_a_key_whose_value_stayed_zero(void **state)
{
    (void)state;
    struct mr_map m = {0};
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(*mr_map_put(&m, i), 0);
    size_t at = 0;
    assert_null(mr_map_next(&m, &at));
    *mr_map_put(&m, 5) = 1;
    assert_int_equal(mr_map_get(&m, 5), 1);
    assert_int_equal(mr_map_get(&m, 6), 0);
    mr_map_done(&m);
}

static void hash_depends_on_every_byte_the_length_and_the_seed(void **state)
{
    (void)state;
    unsigned char text[40] = {0};
    struct mr_map seen = {0};
    for (size_t len = 0; len <= sizeof text; len++)
        for (uint64_t seed = 0; seed < 4; seed++)
            assert_int_equal((*mr_map_put(&seen, mr_hash_bytes(text, len, seed)))++, 0);
    for (size_t i = 0; i < sizeof text; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            text[i] ^= (unsigned char)(1u << bit);
            assert_int_equal((*mr_map_put(&seen, mr_hash_bytes(text, sizeof text, 0)))++, 0);
            text[i] = 0;
        }
    assert_int_equal(mr_hash_bytes("abcdefghijk", 9, 1), mr_hash_bytes("abcdefghixy", 9, 1));
    mr_map_done(&seen);
}

static void heap_gives_the_least_key_first_and_loses_nothing(void **state)
{
    (void)state;
    struct mr_heap h = {0};
    uint64_t in = 0, out = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t r = mr_rng_at(1, MR_RNG_TEST, i);
        assert_int_equal(mr_heap_push(&h, (double)(r % 1000) - 500, i), 0);
        in += i;
        if (r % 3 == 0)
            out += mr_heap_pop(&h).value;
    }
    double before = -1e9;
    while (h.n) {
        struct mr_heap_item x = mr_heap_pop(&h);
        assert_true(x.key >= before);
        before = x.key;
        out += x.value;
    }
    assert_int_equal(in, out);
    mr_heap_done(&h);
    mr_heap_done(&h);
}

static void vec_keeps_what_was_added_while_it_grows(void **state)
{
    (void)state;
    MR_VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t *x = MR_VEC_ADD(&v);
        assert_non_null(x);
        *x = i;
    }
    assert_int_equal(v.n, MANY);
    assert_true(v.cap >= MANY && v.cap < 4 * MANY);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(v.item[i], i);
    free(v.item);
}

static void vec_reserve_without_memory_changes_nothing(void **state)
{
    (void)state;
    uint64_t *item = NULL;
    size_t cap = 0;
    assert_int_equal(mr_vec_reserve(&item, &cap, 3, sizeof(*item)), 0);
    assert_true(cap >= 3);
    uint64_t *was = item;
    size_t had = cap;
    assert_int_equal(mr_vec_reserve(&item, &cap, SIZE_MAX / 4, sizeof(*item)), -ENOMEM);
    /* So many that their bytes, modulo 2^64, are few again. */
    assert_int_equal(mr_vec_reserve(&item, &cap, SIZE_MAX / sizeof(*item) + 3, sizeof(*item)), -ENOMEM);
    assert_int_equal(mr_vec_reserve(&item, &cap, 2, sizeof(*item)), 0);
    assert_ptr_equal(item, was);
    assert_int_equal(cap, had);
    free(item);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_finds_every_key_and_no_other),
        cmocka_unit_test(map_next_visits_every_entry_once),
        cmocka_unit_test(map_forgets_a_key_whose_value_stayed_zero),
        cmocka_unit_test(hash_depends_on_every_byte_the_length_and_the_seed),
        cmocka_unit_test(heap_gives_the_least_key_first_and_loses_nothing),
        cmocka_unit_test(vec_keeps_what_was_added_while_it_grows),
        cmocka_unit_test(vec_reserve_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
