/* The mappings of a process against a model: one file and offset per page of a small address space. */
#include "launch/address_map.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define PAGES 64u

static void expect_page(const struct mr_address_map *m, uint64_t at, uint32_t file, uint64_t offset)
{
    const struct mr_mapping *found = mr_address_map_find(m, at);
    assert_int_equal(found ? found->file : 0, file);
    if (file)
        assert_int_equal(found->offset + (at - found->from), offset);
}

static void address_map_new_mapping_replaces_what_it_covers(void **state)
{
    (void)state;
    struct mr_address_map m = {0};
    assert_int_equal(mr_address_map_add(&m, (struct mr_mapping){100, 200, 0, 1}), 0);
    assert_int_equal(mr_address_map_add(&m, (struct mr_mapping){140, 160, 7, 2}), 0); /* cuts the first in two */
    assert_int_equal(m.n, 3);
    expect_page(&m, 139, 1, 39);
    expect_page(&m, 140, 2, 7);
    expect_page(&m, 160, 1, 60);
    expect_page(&m, 200, 0, 0);
    expect_page(&m, 99, 0, 0);
    mr_address_map_done(&m);
}

static void address_map_move_keeps_file_and_offset(void **state)
{
    (void)state;
    struct mr_address_map m = {0}, child = {0};
    mr_address_map_add(&m, (struct mr_mapping){100, 200, 50, 3});
    assert_int_equal(mr_address_map_move(&m, 120, 500, 300), 0);
    expect_page(&m, 500, 3, 70);
    expect_page(&m, 799, 3, 369);
    assert_int_equal(mr_address_map_move(&m, 900, 1000, 10), 0); /* nothing is mapped there */
    expect_page(&m, 1000, 0, 0);
    assert_int_equal(mr_address_map_copy(&child, &m), 0);
    mr_address_map_done(&m);
    expect_page(&child, 500, 3, 70);
    mr_address_map_done(&child);
}

static void address_map_equals_page_table(void **state)
{
    (void)state;
    uint32_t file[PAGES] = {0};
    uint64_t offset[PAGES] = {0};
    struct mr_address_map m = {0};
    for (uint64_t step = 0; step < 5000; step++) {
        uint64_t r = mr_mix64(step + 1), from = r % PAGES, len = (r >> 8) % (PAGES - from) + 1;
        uint32_t number = (uint32_t)(r >> 40) % 4;
        assert_int_equal(mr_address_map_add(&m, (struct mr_mapping){from, from + len, r >> 50, number}), 0);
        for (uint64_t k = 0; k < len; k++) {
            file[from + k] = number;
            offset[from + k] = (r >> 50) + k;
        }
        for (uint64_t at = 0; at < PAGES; at++)
            expect_page(&m, at, file[at], offset[at]);
        for (size_t i = 1; i < m.n; i++)
            assert_true(m.item[i - 1].to <= m.item[i].from);
    }
    mr_address_map_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_map_new_mapping_replaces_what_it_covers),
        cmocka_unit_test(address_map_move_keeps_file_and_offset),
        cmocka_unit_test(address_map_equals_page_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
