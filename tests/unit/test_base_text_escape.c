/* Text from files on its way to a terminal, a log or a CI system: nothing in it may act there. */
#include "base/log.h"
#include "base/text_escape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static const struct {
    const char *raw, *shown;
} cases[] = {
    {"plain 'name' \xc3\xa4 \xe2\x82\xac", "plain 'name' \xc3\xa4 \xe2\x82\xac"},
    {"a\nb\r\tc\033[31m\x7f", "a\\x0ab\\x0d\\x09c\\x1b[31m\\x7f"},
    {"\xff\xc2\x9b"
     "31m",
     "\\xff\\xc2\\x9b31m"},
    {"\xc0\xaf \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80",
     "\\xc0\\xaf \\xe0\\x80\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80"},
    {"left\xe2\x80\xaeright", "left\\xe2\\x80\\xaeright"},
    {"::error::no", "\\x3a:error::no"},
    {"  ::error::no", "  \\x3a:error::no"},
    {"a::b", "a::b"},
    {"x ##vso[task] ###", "x #\\x23vso[task] #\\x23\\x23"},
    {"#1", "#1"},
    {"\xe2\x82", "\\xe2\\x82"}, /* cut off */
};

static void what_would_act_is_shown(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256], again[256];
        struct mr_strbuf s = {0};
        assert_string_equal(mr_text_escape(cases[i].raw, out, sizeof out), cases[i].shown);
        assert_string_equal(mr_text_escape(out, again, sizeof again), out);
        mr_strbuf_text(&s, cases[i].raw);
        assert_string_equal(s.text, cases[i].shown);
        mr_strbuf_done(&s);
        for (size_t cap = 1; cap < sizeof out; cap++)
            assert_true(strlen(mr_text_escape(cases[i].raw, out, cap)) < cap);
    }
}

static void names_can_be_turned_back(void **state)
{
    char out[64];
    (void)state;
    assert_string_equal(mr_name_escape("a\\x0a\n", out, sizeof out), "a\\\\x0a\\x0a");
}

static void errors_are_escaped(void **state)
{
    struct mr_error err;
    (void)state;
    mr_error_plain(&err, MR_E_FORMAT, "cannot read '%s'", "a\n::error::b\033]0;x\a");
    assert_string_equal(err.message, "cannot read 'a\\x0a::error::b\\x1b]0;x\\x07'");
    mr_error_context(&err, "in '%s'", "\r");
    assert_string_equal(err.context, "in '\\x0d'");
    mr_error_hint(&err, "%s", "\x1b");
    assert_string_equal(err.hint, "\\x1b");
}

static char logged[4096];
static void keep(void *user, enum mr_log_level level, const char *text)
{
    (void)user;
    (void)level;
    strncpy(logged, text, sizeof logged - 1);
}

static void log_lines_are_escaped(void **state)
{
    (void)state;
    mr_log_set_sink(keep, NULL, MR_LOG_WARN);
    mr_log(MR_LOG_WARN, "name '%s'", "\n##[error]");
    assert_string_equal(logged, "name '\\x0a#\\x23[error]'");
    mr_log_set_sink(NULL, NULL, MR_LOG_WARN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_would_act_is_shown),
        cmocka_unit_test(names_can_be_turned_back),
        cmocka_unit_test(errors_are_escaped),
        cmocka_unit_test(log_lines_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
