/* The drawing layer of pages: names stay text, axes have round numbers, shapes stay inside, a page replaces its file
 * only when it is whole. */
#include "base/common.h"
#include "report/page_shell.h"
#include "report/svg_axis.h"
#include "report/svg_chart.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_text(const char *in, const char *want)
{
    struct mr_strbuf o = {0};
    mr_html_text(&o, in);
    assert_string_equal(o.text ? o.text : "", want);
    mr_strbuf_done(&o);
}

static void hostile_text_is_written_out(void **state)
{
    (void)state;
    expect_text("<script>alert('x')</script>", "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
    expect_text("a\"b&c", "a&quot;b&amp;c");
    expect_text("a\x1b[31m\x07\rb", "a\\x1b[31m\\x07\\x0db");
    expect_text("two\nlines\tof it", "two\nlines\tof it");
    expect_text("gpj\xe2\x80\xae.exe", "gpj\\u202e.exe"); /* right-to-left override */
    expect_text("\xe2\x81\xa6x\xe2\x81\xa9\xc2\x85\x7f", "\\u2066x\\u2069\\u0085\\u007f");
    expect_text("\xff\xc0\xaf ok \xc3\xa9", "\\xff\\xc0\\xaf ok \xc3\xa9"); /* not UTF-8, and an e with an accent */
    expect_text("\xef\xbf\xbf", "\\uffff");                                 /* no character of XML */
}

static void line_ends_in_names_are_seen(void **state)
{
    (void)state;
    struct mr_strbuf o = {0};
    mr_html_name(&o, "a\nb\tc", 40);
    assert_string_equal(o.text, "<bdi>a\\x0ab\\x09c</bdi>");
    mr_strbuf_done(&o);
}

static void long_names_are_cut_in_the_middle_between_characters(void **state)
{
    (void)state;
    char name[4097];
    struct mr_strbuf o = {0};
    for (unsigned i = 0; i < 4096; i += 2)
        memcpy(name + i, "\xc3\xa9", 2); /* two bytes each */
    name[4096] = '\0';
    mr_html_name(&o, name, 61);
    assert_true(o.len < 700);
    assert_null(strstr(o.text, "\\x")); /* no character was cut in two */
    assert_non_null(strstr(o.text, "…"));
    mr_strbuf_done(&o);
}

static void figures_have_three_digits_and_unknown_is_said(void **state)
{
    (void)state;
    char t[MR_HUMAN_LEN];
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, 3.7104, t), "3.71 s");
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, 0.0214, t), "21.4 ms");
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, 0, t), "0 s");
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, 451.2, t), "451 s");
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, 7384, t), "2 h 03 min");
    assert_string_equal(mr_unit_text(MR_UNIT_SHARE, 0.3104, t), "31.0 %");
    assert_string_equal(mr_unit_text(MR_UNIT_COUNT, 235910, t), "235,910");
    assert_string_equal(mr_unit_text(MR_UNIT_SECONDS, NAN, t), "unknown");
    assert_true(isnan(mr_ns_to_s(UINT64_MAX)));
    struct mr_strbuf o = {0};
    mr_html_value(&o, MR_UNIT_SECONDS, NAN, "time.x_s");
    assert_non_null(strstr(o.text, "unknown"));
    assert_null(strstr(o.text, "nan"));
    mr_strbuf_done(&o);
}

static void ticks_are_round_and_inside(void **state)
{
    (void)state;
    static const struct mr_axis axes[] = {
        {.low = 0, .high = 451.2, .unit = MR_UNIT_SECONDS}, {.low = 0, .high = 0.0213, .unit = MR_UNIT_SECONDS},
        {.low = 0, .high = 3.3e9, .unit = MR_UNIT_RATE},    {.low = 0, .high = 1, .unit = MR_UNIT_SHARE},
        {.low = 0, .high = 3, .unit = MR_UNIT_COUNT},       {.low = 1, .high = 1e9, .unit = MR_UNIT_BYTES, .log = true},
        {.low = 8, .high = 0, .unit = MR_UNIT_COUNT}};
    for (size_t i = 0; i < MR_ARRAY_LEN(axes); i++) {
        struct mr_tick tick[MR_TICKS_MAX];
        size_t n = mr_axis_ticks(&axes[i], 6, tick);
        assert_in_range(n, 2, 12);
        for (size_t k = 0; k < n; k++) {
            double at = mr_axis_place(&axes[i], tick[k].value);
            assert_true(at > -1e-6 && at < 1 + 1e-6);
            for (size_t j = 0; j < k; j++)
                assert_string_not_equal(tick[j].text, tick[k].text);
        }
    }
    assert_int_equal(mr_axis_ticks(&(struct mr_axis){.low = 0, .high = 0, .unit = MR_UNIT_SECONDS}, 6,
                                   (struct mr_tick[MR_TICKS_MAX]){{0}}),
                     0);
    assert_true(mr_axis_end(0, MR_UNIT_SECONDS) == 1);
    assert_true(mr_axis_end(97, MR_UNIT_NUMBER) == 100);
    assert_true(mr_axis_end(0.93, MR_UNIT_SHARE) == 1);
}

/* A chart of extreme values: nothing but numbers in it. */
static void shapes_survive_any_value(void **state)
{
    (void)state;
    struct mr_strbuf o = {0};
    double v[8] = {0, NAN, INFINITY, -INFINITY, 1e300, -5, 0.5, 1}, heat[4] = {0, 1, NAN, 0.001};
    struct mr_chart c = {.out = &o,
                         .height = 100,
                         .x = {.low = 0, .high = 8, .unit = MR_UNIT_SECONDS, .name = "time"},
                         .y = {.low = 0, .high = 1, .unit = MR_UNIT_SHARE}};
    mr_chart_open(&c, "<title>", "what & why");
    mr_chart_columns(&c, 8, (struct mr_series[]){{"a0", v}, {"a1", v}}, 2, 0.1);
    mr_chart_area(&c, 8, v, "a0", "a \"name\"");
    mr_chart_edge(&c, 8, v, "a1", NULL);
    mr_chart_line(&c, 8, v, v, "a2");
    mr_chart_dots(&c, 8, v, v, "a2");
    mr_chart_box(&c, 1e300, -1e300, 0, 1, "a0", "</title><script>");
    mr_chart_heat(&c, 2, 2, heat, MR_HEAT_RED, 1, MR_UNIT_SHARE, 1, 2);
    mr_chart_note(&c, 1, 1, "start", "<b>");
    mr_chart_close(&c);
    assert_false(o.failed);
    assert_null(strstr(o.text, "nan"));
    assert_null(strstr(o.text, "inf"));
    assert_null(strstr(o.text, "<script"));
    assert_null(strstr(o.text, "<b>"));
    mr_strbuf_done(&o);
}

static void a_page_that_cannot_be_written_leaves_the_old_one(void **state)
{
    (void)state;
    char folder[] = "/tmp/mr_page_XXXXXX", path[64], text[16] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.html", folder);
    struct mr_page_shell p = {.title = "test", .subject = "<subject>"};
    struct mr_error err;
    mr_page_section(&p, "one", "One & two", "caption");
    mr_page_section_end(&p);
    assert_int_equal(mr_page_save(&p, path, &err), 0);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, 15, f) == 15 && memcmp(text, "<!DOCTYPE html>", 15) == 0);
    fclose(f);
    assert_int_equal(mr_page_save(&p, "/dev/full", &err), -28);
    assert_non_null(strstr(err.message, "/dev/full"));
    assert_int_equal(mr_page_save(&p, "/nonexistent/x.html", &err), -2);
    mr_page_done(&p);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_text_is_written_out),
        cmocka_unit_test(line_ends_in_names_are_seen),
        cmocka_unit_test(long_names_are_cut_in_the_middle_between_characters),
        cmocka_unit_test(figures_have_three_digits_and_unknown_is_said),
        cmocka_unit_test(ticks_are_round_and_inside),
        cmocka_unit_test(shapes_survive_any_value),
        cmocka_unit_test(a_page_that_cannot_be_written_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
