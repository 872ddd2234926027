/* Units that samples share, for the threads of a loader: kept while there is room, gone when all their rows were served in
 * a pass that serves each once, and their memory used again. */
#include "dataset/unit_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define BYTES 1000u

/* The unit of file 0 at `key`; true: it had to be made, of memory that begins at *from. */
static bool get(struct mr_unit_cache *c, uint64_t key, struct mr_cached_unit **u, void **from)
{
    bool mine;
    *u = mr_unit_cache_get(c, 0, key, &mine);
    assert_non_null(*u);
    if (mine) {
        struct mr_unit_memory m = mr_unit_cache_memory(c, BYTES);
        *from = m.data;
        mr_unit_cache_fill(c, *u, m, BYTES);
    }
    return mine;
}

static void a_unit_goes_when_all_its_rows_were_served_once(void **state)
{
    struct mr_unit_cache *c = mr_unit_cache_create(100 * BYTES, true);
    struct mr_cached_unit *a, *b;
    void *first = NULL, *second = NULL;
    (void)state;
    assert_true(get(c, 7, &a, &first));
    mr_unit_cache_put(c, a, 6, 10);
    assert_false(get(c, 7, &a, &first)); /* four are left */
    assert_false(get(c, 7, &b, &first));
    mr_unit_cache_put(c, a, 4, 10); /* gone, and in use */
    assert_ptr_equal(b->data, first);
    mr_unit_cache_put(c, b, 0, 10);
    assert_true(get(c, 7, &a, &second));
    assert_ptr_equal(second, first); /* its memory again */
    mr_unit_cache_put(c, a, 10, 10);
    mr_unit_cache_free(c);
}

static void units_are_kept_up_to_a_limit(void **state)
{
    struct mr_unit_cache *c = mr_unit_cache_create(3 * BYTES, false);
    struct mr_cached_unit *u;
    void *from;
    (void)state;
    for (uint64_t key = 0; key < 3; key++) {
        assert_true(get(c, key, &u, &from));
        mr_unit_cache_put(c, u, 10, 10);
    }
    for (uint64_t key = 0; key < 3; key++) {
        assert_false(get(c, key, &u, &from));
        mr_unit_cache_put(c, u, 10, 10);
    }
    assert_true(get(c, 3, &u, &from)); /* the oldest goes */
    mr_unit_cache_put(c, u, 1, 10);
    assert_false(get(c, 2, &u, &from));
    mr_unit_cache_put(c, u, 1, 10);
    assert_true(get(c, 0, &u, &from));
    mr_unit_cache_put(c, u, 1, 10);
    mr_unit_cache_free(c);
}

static void a_unit_that_cannot_be_read_is_not_kept(void **state)
{
    struct mr_unit_cache *c = mr_unit_cache_create(3 * BYTES, false);
    bool mine;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct mr_cached_unit *u = mr_unit_cache_get(c, 0, 1, &mine);
        assert_true(mine);
        mr_unit_cache_fill(c, u, (struct mr_unit_memory){0}, 0);
        mr_unit_cache_put(c, u, 0, 0);
    }
    mr_unit_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_goes_when_all_its_rows_were_served_once),
        cmocka_unit_test(units_are_kept_up_to_a_limit),
        cmocka_unit_test(a_unit_that_cannot_be_read_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
