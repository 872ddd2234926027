/* The fast way through runs of bytes: whatever it takes is exactly what the slow way reads, and it never takes what the
 * slow way would refuse. */
#include "base/rng.h"
#include "format/text_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t draw(uint64_t *at, uint64_t below)
{
    return mr_rng_below(mr_rng_at(11, MR_RNG_TEST, (*at)++), below);
}

/* One number 0..255 in its shortest form and its separator; 0 when it is anything else. */
static size_t one_slowly(const char *p, const char *end, char separator, uint8_t *out)
{
    struct mr_number n;
    int64_t v;
    size_t len = mr_number_lex(p, end, false, &n);
    if (!len || p + len >= end || p[len] != separator || !mr_number_to_int64(&n, &v) || n.negative || v > 255)
        return 0;
    *out = (uint8_t)v;
    return len + 1;
}

static void check(const char *text, size_t len, char separator, size_t room)
{
    uint8_t *have = malloc(room + 1), want;
    char *copy = malloc(len); /* exact, so that reading beyond it is caught */
    const char *rest = NULL;
    memcpy(copy, text, len);
    size_t n = mr_text_run_u8(copy, copy + len, separator, have, room, &rest);
    assert_true(n <= room && rest >= copy && rest <= copy + len);
    const char *p = copy;
    for (size_t i = 0; i < n; i++) {
        size_t step = one_slowly(p, copy + len, separator, &want);
        assert_true(step > 0);
        assert_int_equal(have[i], want);
        p += step;
    }
    assert_ptr_equal(p, rest);
    free(copy);
    free(have);
}

static void run_takes_what_the_slow_way_takes(void **state)
{
    (void)state;
    uint64_t at = 0;
    static char text[1024];
    for (unsigned round = 0; round < 20000; round++) {
        size_t len = 0;
        char separator = draw(&at, 2) ? ',' : '\t';
        uint64_t junk = draw(&at, 3) ? 400 : 6; /* one in so many is something else */
        while (len < 900) {
            static const char *const odd[] = {"007", "256",  "999", "-1", "1000", " 5", "",
                                              "1.0", "\xff", "0",   "00", "1e1",  "\""};
            if (draw(&at, junk) == 0)
                len += (size_t)snprintf(text + len, 8, "%s", odd[draw(&at, MR_ARRAY_LEN(odd))]);
            else
                len += (size_t)snprintf(text + len, 8, "%u", (unsigned)draw(&at, 256));
            text[len++] = draw(&at, 500) ? separator : ';';
        }
        check(text, draw(&at, len + 1), separator, draw(&at, 400));
    }
}

static void run_takes_all_but_the_tail_of_plain_text(void **state)
{
    (void)state;
    static char text[8192];
    uint8_t have[2048];
    const char *rest;
    size_t len = 0;
    for (unsigned v = 0; v < 2048; v++)
        len += (size_t)snprintf(text + len, 8, "%u,", v % 256);
    size_t n = mr_text_run_u8(text, text + len, ',', have, sizeof have, &rest);
    assert_true(n >= 2048 - 40);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(have[i], i % 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_takes_what_the_slow_way_takes),
        cmocka_unit_test(run_takes_all_but_the_tail_of_plain_text),
    };
    return cmocka_run_group_tests_name("format_text_run", tests, NULL, NULL);
}
