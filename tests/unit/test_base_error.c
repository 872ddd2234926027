/* Properties of struct mr_error: what is written, when, and how codes become names and exit statuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include <millrace/error.h>

static void error_set_appends_the_system_text_only_for_errno(void **state)
{
    (void)state;
    struct mr_error e = {.context = "old", .hint = "old"};
    assert_int_equal(mr_error_set(&e, -ENOENT, "cannot open '%s'", "a"), -ENOENT);
    assert_string_equal(e.message, "cannot open 'a': No such file or directory");
    assert_string_equal(e.context, "");
    assert_string_equal(e.hint, "");
    assert_int_equal(mr_error_set(&e, MR_E_CONFIG, "bad"), MR_E_CONFIG);
    assert_string_equal(e.message, "bad");
    mr_error_plain(&e, -EIO, "plain");
    assert_string_equal(e.message, "plain");
    assert_int_equal(e.code, -EIO);
}

static void error_context_chains_and_first_hint_wins(void **state)
{
    (void)state;
    struct mr_error e = {0};
    mr_error_plain(&e, MR_E_FORMAT, "m");
    assert_int_equal(mr_error_context(&e, "in file '%s'", "f"), MR_E_FORMAT);
    mr_error_context(&e, "rank %d", 3);
    assert_string_equal(e.context, "in file 'f' / rank 3");
    mr_error_hint(&e, "inner");
    mr_error_hint(&e, "outer");
    assert_string_equal(e.hint, "inner");
    assert_int_equal(mr_error_context(NULL, "x"), MR_E_INTERNAL);
    assert_int_equal(mr_error_set(NULL, -EIO, "x"), -EIO);
}

static void error_too_long_text_is_cut_with_dots(void **state)
{
    (void)state;
    struct mr_error e = {0};
    char text[2000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    mr_error_set(&e, -EIO, "%s", text);
    assert_int_equal(strlen(e.message), sizeof e.message - 1);
    assert_string_equal(e.message + sizeof e.message - 4, "...");
    for (int i = 0; i < 10; i++)
        mr_error_context(&e, "%.300s", text);
    assert_int_equal(strlen(e.context), sizeof e.context - 1);
    assert_string_equal(e.context + sizeof e.context - 4, "...");
    mr_error_hint(&e, "%s", text);
    assert_int_equal(strlen(e.hint), sizeof e.hint - 1);
}

static void error_may_quote_itself(void **state)
{
    (void)state;
    struct mr_error e = {0};
    mr_error_plain(&e, -EIO, "inner");
    mr_error_context(&e, "there");
    mr_error_plain(&e, MR_E_PEER, "outer: %s (%s)", e.message, e.context);
    assert_string_equal(e.message, "outer: inner (there)");
}

static void error_codes_have_names_and_exit_statuses(void **state)
{
    (void)state;
    assert_string_equal(mr_error_name(MR_E_CONFIG), "MR_E_CONFIG");
    assert_string_equal(mr_error_name(-ENOENT), strerror(ENOENT));
    assert_string_equal(mr_error_name(0), "ok");
    assert_int_equal(mr_error_exit_status(0), 0);
    assert_int_equal(mr_error_exit_status(MR_E_INTERNAL), 1);
    assert_int_equal(mr_error_exit_status(MR_E_USAGE), 2);
    assert_int_equal(mr_error_exit_status(MR_E_BUDGET), 3);
    assert_int_equal(mr_error_exit_status(MR_E_CORRUPT), 4);
    assert_int_equal(mr_error_exit_status(-ENOSPC), 5);
    assert_int_equal(mr_error_exit_status(MR_E_INCOMPLETE), 6);
    assert_int_equal(mr_error_exit_status(MR_E_INTERRUPTED), 130);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_set_appends_the_system_text_only_for_errno),
        cmocka_unit_test(error_context_chains_and_first_hint_wins),
        cmocka_unit_test(error_too_long_text_is_cut_with_dots),
        cmocka_unit_test(error_may_quote_itself),
        cmocka_unit_test(error_codes_have_names_and_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
