/* Properties of the arena, the growing string and the human-readable figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/strbuf.h"

static void arena_memory_is_zeroed_aligned_and_disjoint(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    unsigned char *ptr[400];
    size_t len[400], sum = 0;
    for (unsigned i = 0; i < 400; i++) {
        uint64_t r = mr_rng_at(7, MR_RNG_TEST, i);
        len[i] = i % 50 == 49 ? 100000 + r % 100000 : r % 300;
        ptr[i] = mr_arena_alloc(&a, len[i]);
        assert_non_null(ptr[i]);
        assert_int_equal((uintptr_t)ptr[i] % 16, 0);
        for (size_t k = 0; k < len[i]; k++)
            assert_int_equal(ptr[i][k], 0);
        memset(ptr[i], (int)(i & 0xff) | 1, len[i]);
        sum += len[i];
    }
    for (unsigned i = 0; i < 400; i++) /* nobody wrote into somebody else's piece */
        for (size_t k = 0; k < len[i]; k++)
            assert_int_equal(ptr[i][k], (i & 0xff) | 1);
    assert_true(a.used_bytes >= sum && a.used_bytes < sum + 400 * 32);
    mr_arena_done(&a);
    assert_null(a.head);
    mr_arena_done(&a);
}

static void arenas_can_be_joined(void **state)
{
    static const size_t sizes[] = {1, 100, 20000, 70000, 30}; /* also chunks of their own */
    (void)state;
    for (unsigned empty = 0; empty < 4; empty++) { /* bits: which of the two */
        struct mr_arena a[2] = {{0}};
        char *text[2][5] = {{0}};
        for (unsigned k = 0; k < 2; k++)
            for (unsigned i = 0; i < 5 && !(empty & 1u << k); i++) {
                text[k][i] = mr_arena_alloc(&a[k], sizes[i]);
                memset(text[k][i], 'a' + (int)(5 * k + i), sizes[i]);
            }
        size_t used = a[0].used_bytes + a[1].used_bytes;
        mr_arena_join(&a[0], &a[1]);
        assert_null(a[1].head);
        assert_int_equal(a[0].used_bytes, used);
        mr_arena_done(&a[1]);
        assert_non_null(mr_arena_alloc(&a[0], 50));
        for (unsigned k = 0; k < 2; k++)
            for (unsigned i = 0; i < 5 && text[k][i]; i++)
                for (size_t n = 0; n < sizes[i]; n++)
                    assert_int_equal(text[k][i][n], 'a' + (int)(5 * k + i));
        mr_arena_done(&a[0]); /* a sanitizer sees what is left, or freed twice */
    }
}

static void arena_refuses_absurd_sizes(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    assert_null(mr_arena_alloc(&a, SIZE_MAX));
    assert_null(mr_arena_alloc(&a, SIZE_MAX - 15));
    mr_arena_done(&a);
}

static void arena_strings_are_copied_and_terminated(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    char text[] = "millrace";
    char *whole = mr_arena_strdup(&a, text), *part = mr_arena_strndup(&a, text, 4),
         *past = mr_arena_strndup(&a, text, 99);
    char *made = mr_arena_printf(&a, "%s-%04d", text, 42);
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(whole, "millrace");
    assert_string_equal(part, "mill");
    assert_string_equal(past, "millrace");
    assert_string_equal(made, "millrace-0042");
    mr_arena_done(&a);
}

static void strbuf_grows_and_hands_over(void **state)
{
    (void)state;
    struct mr_strbuf s = {0};
    for (int i = 0; i < 5000; i++)
        mr_strbuf_printf(&s, "%d,", i % 10);
    assert_int_equal(s.len, 10000);
    assert_memory_equal(s.text + 9990, "5,6,7,8,9,", 11);
    mr_strbuf_done(&s);
    assert_int_equal(s.len, 0);
    mr_strbuf_putc(&s, 'a');
    mr_strbuf_puts(&s, "bc");
    mr_strbuf_add(&s, "d\0e", 3);
    char *text = mr_strbuf_take(&s);
    assert_memory_equal(text, "abcd\0e", 7);
    assert_null(s.text);
    free(text);
    text = mr_strbuf_take(&s); /* an empty one still gives a string */
    assert_string_equal(text, "");
    free(text);
    mr_strbuf_done(&s);
}

static void human_figures_read_as_documented(void **state)
{
    (void)state;
    char out[MR_HUMAN_LEN];
    assert_string_equal(mr_human_bytes(0, out), "0 B");
    assert_string_equal(mr_human_bytes(1536, out), "1.50 KiB");
    assert_string_equal(mr_human_bytes(1610612736.0, out), "1.50 GiB");
    assert_string_equal(mr_human_rate(3.2 * 1073741824, out), "3.20 GiB/s");
    assert_string_equal(mr_human_ns(1300000, out), "1.30 ms");
    assert_string_equal(mr_human_ns(125e9, out), "2 min 05 s");
    assert_string_equal(mr_human_ns(7260e9, out), "2 h 01 min");
    assert_string_equal(mr_human_count(1281167, out), "1,281,167");
    assert_string_equal(mr_human_count(999, out), "999");
    assert_string_equal(mr_human_count(18446744073709551615ull, out), "18,446,744,073,709,551,615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_is_zeroed_aligned_and_disjoint),
        cmocka_unit_test(arenas_can_be_joined),
        cmocka_unit_test(arena_refuses_absurd_sizes),
        cmocka_unit_test(arena_strings_are_copied_and_terminated),
        cmocka_unit_test(strbuf_grows_and_hands_over),
        cmocka_unit_test(human_figures_read_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
