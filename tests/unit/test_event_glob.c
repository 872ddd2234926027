/* Globs of paths. */
#include "event/path_glob.h"
#include "base/common.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void patterns_match_as_written(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool hit;
    } row[] = {
        {"*", "", true},
        {"*", "/a/b", true},
        {"/a*", "/a/b/c", true},
        {"/a/?", "/a/b", true},
        {"/a/?", "/a/bc", false},
        {"**/c", "/a/b/c", true},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a-c]x", "dx", true},
        {"[ab", "[ab", true},
        {"*.npz", "a.npz.x", false},
        {"*a*b*c", "xaybzc", true},
        {"*a*b*c", "xaybz", false},
        {"", "a", false},
        {"", "", true},
    };
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(row); i++)
        if (mr_glob(row[i].pattern, strlen(row[i].pattern), row[i].text) != row[i].hit)
            fail_msg("'%s' and '%s'", row[i].pattern, row[i].text);
}

/* The globs that a list becomes, in any order. */
static void becomes(const char *list, const char *const *want)
{
    char out[256], copy[300];
    size_t n = 0, got = 0;
    assert_true(mr_globs_read(list, out, sizeof(out)));
    for (; want[n]; n++) {
        snprintf(copy, sizeof(copy), "\n%s\n", out);
        char line[128];
        snprintf(line, sizeof(line), "\n%s\n", want[n]);
        if (!strstr(copy, line))
            fail_msg("'%s' has no '%s': '%s'", list, want[n], out);
    }
    for (const char *p = out; *p; p += strcspn(p, "\n"), p += *p == '\n')
        got += *p != '\n';
    assert_int_equal(got, n);
}

static void lists_are_spread_out(void **state)
{
    (void)state;
    becomes("", (const char *[]){NULL});
    becomes(":,:", (const char *[]){NULL});
    becomes("/a:/b,/c", (const char *[]){"/a", "/b", "/c", NULL});
    becomes("/data/", (const char *[]){"/data", "/data/*", NULL});
    becomes("/", (const char *[]){"/*", NULL});
    becomes("/x/{a,b}/*,/y", (const char *[]){"/x/a/*", "/x/b/*", "/y", NULL});
    becomes("{a,b}{1,2}", (const char *[]){"a1", "a2", "b1", "b2", NULL});
    becomes("/{a,b{c,d}}/", (const char *[]){"/a", "/a", "/a/*", "/a/*", "/bc", "/bc/*", "/bd", "/bd/*", NULL});
    becomes("/{a,}x", (const char *[]){"/ax", "/x", NULL});
    becomes("/{a}:/b}:/c{", (const char *[]){"/{a}", "/b}", "/c{", NULL}); /* no braces in that sense */
}

static void too_long_lists_are_refused(void **state)
{
    char out[16], list[] = "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}",
                  *large = test_malloc(MR_GLOBS_BYTES);
    (void)state;
    assert_false(mr_globs_read("/a/path/that/is/too/long", out, sizeof(out)));
    assert_string_equal(out, "");
    assert_false(mr_globs_read(list, large, MR_GLOBS_BYTES)); /* 4096 globs of 12 bytes */
    assert_string_equal(large, "");
    test_free(large);
}

static void a_list_matches_if_one_glob_does(void **state)
{
    char out[128];
    (void)state;
    assert_true(mr_globs_read("/a/*:*.{npz,csv}", out, sizeof(out)));
    assert_true(mr_globs_match(out, "/a/b"));
    assert_true(mr_globs_match(out, "/x/y.csv"));
    assert_false(mr_globs_match(out, "/x/y.txt"));
    assert_false(mr_globs_match("", "/x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_written),
        cmocka_unit_test(lists_are_spread_out),
        cmocka_unit_test(too_long_lists_are_refused),
        cmocka_unit_test(a_list_matches_if_one_glob_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
