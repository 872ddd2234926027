/* Sweeps: texts become axes and points, in order; brackets, limits and errors. */
#include "base/common.h"
#include "base/strbuf.h"
#include "conf/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int parse(struct mr_arena *a, struct mr_sweep *out, struct mr_error *err, unsigned n, const char **texts)
{
    const struct mr_strings list = {.n = n, .item = texts};
    return mr_sweep_parse(&list, a, out, err);
}

static void without_texts_there_is_one_point(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_sweep sw;
    struct mr_error err;
    assert_int_equal(parse(&a, &sw, &err, 0, NULL), 0);
    assert_int_equal(sw.n, 1);
    assert_int_equal(sw.n_axes, 0);
    mr_arena_done(&a);
}

static void the_last_axis_moves_fastest(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_sweep sw;
    struct mr_error err;
    const char *texts[] = {"nodes=1,2", "--ranks=4", "class1=1GB,2GB,3GB"};
    assert_int_equal(parse(&a, &sw, &err, 3, texts), 0);
    assert_int_equal(sw.n, 6);
    assert_string_equal(sw.axis[1].key, "ranks");
    static const char *const want[6][3] = {{"1", "4", "1GB"}, {"1", "4", "2GB"}, {"1", "4", "3GB"},
                                           {"2", "4", "1GB"}, {"2", "4", "2GB"}, {"2", "4", "3GB"}};
    for (unsigned i = 0; i < 6; i++)
        for (unsigned x = 0; x < 3; x++)
            assert_string_equal(mr_sweep_value(&sw, i, x), want[i][x]);
    mr_arena_done(&a);
}

static void commas_in_brackets_belong_to_the_value(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_sweep sw;
    struct mr_error err;
    const char *texts[] = {"time={type: normal, mean: [1, 2]},0.5", "tiers=,ram=1GiB", "list=(1,2),3,"};
    assert_int_equal(parse(&a, &sw, &err, 3, texts), 0);
    assert_int_equal(sw.n, 8);
    assert_string_equal(sw.axis[0].value[0], "{type: normal, mean: [1, 2]}");
    assert_string_equal(sw.axis[0].value[1], "0.5");
    assert_string_equal(sw.axis[1].value[0], ""); /* nothing is a value, too */
    assert_string_equal(sw.axis[1].value[1], "ram=1GiB");
    assert_string_equal(sw.axis[2].value[0], "(1,2)");
    assert_int_equal(sw.axis[2].n, 2); /* a comma at the end adds none */
    mr_arena_done(&a);
}

static void refused(const char *text, const char *message)
{
    struct mr_arena a = {0};
    struct mr_sweep sw = {.n = 77};
    struct mr_error err;
    const char *texts[] = {"a=1,2", text};
    assert_int_equal(parse(&a, &sw, &err, 2, texts), MR_E_USAGE);
    if (!strstr(err.message, message))
        fail_msg("'%s' lacks '%s'", err.message, message);
    assert_int_equal(sw.n, 77); /* untouched */
    mr_arena_done(&a);
}

static void what_is_no_sweep_is_refused(void **state)
{
    (void)state;
    refused("nodes", "bad sweep 'nodes': want KEY=VALUE");
    refused("=1,2", "bad sweep '=1,2'");
    refused("--=1", "bad sweep '=1'");
    refused("nodes=", "bad sweep 'nodes='");
    refused("", "bad sweep ''");
    refused("a=3", "'a' is swept twice");
    refused("--a=3", "'a' is swept twice");
}

static void limits_are_the_documented_ones(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_sweep sw;
    struct mr_error err;
    const char *keys[] = {"a=1", "b=1", "c=1", "d=1", "e=1", "f=1", "g=1", "h=1", "i=1"};
    assert_int_equal(parse(&a, &sw, &err, MR_SWEEP_AXES, keys), 0);
    assert_int_equal(parse(&a, &sw, &err, MR_SWEEP_AXES + 1, keys), MR_E_USAGE);
    assert_non_null(strstr(err.message, "at most 8 keys"));

    struct mr_strbuf hundred = {0}, other = {0}, one_more = {0}, value = {0};
    mr_strbuf_puts(&hundred, "x=0");
    for (unsigned i = 1; i < 100; i++)
        mr_strbuf_printf(&hundred, ",%u", i);
    mr_strbuf_printf(&one_more, "y%s,100", hundred.text + 1);
    mr_strbuf_printf(&other, "y%s", hundred.text + 1);
    const char *most[] = {hundred.text, other.text}, *more[] = {hundred.text, one_more.text};
    assert_int_equal(parse(&a, &sw, &err, 2, most), 0);
    assert_int_equal(sw.n, MR_SWEEP_POINTS);
    assert_string_equal(mr_sweep_value(&sw, MR_SWEEP_POINTS - 1, 0), "99");
    assert_int_equal(parse(&a, &sw, &err, 2, more), MR_E_USAGE);
    assert_non_null(strstr(err.message, "more than 10000 points"));

    mr_strbuf_puts(&value, "k=");
    for (unsigned i = 0; i < MR_SWEEP_VALUE_LEN; i++)
        mr_strbuf_putc(&value, 'v');
    const char *text = value.text;
    assert_int_equal(parse(&a, &sw, &err, 1, &text), 0);
    mr_strbuf_putc(&value, 'v');
    text = value.text;
    assert_int_equal(parse(&a, &sw, &err, 1, &text), MR_E_USAGE);
    assert_non_null(strstr(err.message, "longer than 300 characters"));
    mr_strbuf_done(&hundred);
    mr_strbuf_done(&one_more);
    mr_strbuf_done(&other);
    mr_strbuf_done(&value);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_texts_there_is_one_point),       cmocka_unit_test(the_last_axis_moves_fastest),
        cmocka_unit_test(commas_in_brackets_belong_to_the_value), cmocka_unit_test(what_is_no_sweep_is_refused),
        cmocka_unit_test(limits_are_the_documented_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
