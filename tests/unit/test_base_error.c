/* Properties of struct mr_error: what is written, when, and how codes become names and exit statuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include <millrace/dataset.h>
#include <millrace/error.h>
#include <millrace/order.h>

#include "base/arena.h"
#include "checkpoint/checkpoint_list.h"
#include "comm/comm.h"
#include "conf/workload.h"
#include "import/trace_read.h"
#include "policy/policy_list.h"

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
    mr_error_context(&e, "in file '%s'", "f");
    mr_error_context(&e, "rank %d", 3);
    mr_error_context(&e, "rank %d", 3); /* is there already */
    assert_string_equal(e.context, "in file 'f' / rank 3");
    mr_error_hint(&e, "inner");
    mr_error_hint(&e, "outer");
    assert_string_equal(e.hint, "inner");
    mr_error_context(NULL, "x");
    mr_error_hint(NULL, "x");
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
        mr_error_context(&e, "%d %.300s", i, text);
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

/* One caller of mr_error_hint or mr_error_context of every kind: without an err the code is all that a caller learns.
 */
static void error_code_survives_a_hint_without_an_err(void **state)
{
    (void)state;
    static const char bad_key[] = "dataset: {num_file_train: 3}\n", old_list[] = "{";
    enum mr_order_mode mode;
    enum mr_policy_id policy;
    struct mr_arena arena = {0};
    struct mr_workload *w;
    struct mr_checkpoint_list list;
    struct mr_dataset *ds;
    struct mr_trace *t;
    struct mr_comm *c;
    struct mr_comm_file *f;
    assert_int_equal(mr_order_mode_parse("torchh", &mode, NULL, NULL), MR_E_USAGE);
    assert_int_equal(mr_policy_parse("nopf", &policy, NULL), MR_E_USAGE);
    assert_int_equal(mr_workload_parse(bad_key, sizeof bad_key - 1, "w.yaml", false, &arena, &w, NULL), MR_E_CONFIG);
    assert_int_equal(mr_checkpoint_list_parse(old_list, 1, "list", &list, NULL), MR_E_CORRUPT);
    assert_int_equal(mr_dataset_open("/nonexistent/set", NULL, &ds, NULL), -ENOENT);
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    assert_int_equal(mr_trace_add_memory(t, "no trace", 8, "x", NULL), MR_E_FORMAT);
    assert_int_equal(mr_comm_open(1, 1, &c, NULL), 0);
    assert_int_equal(mr_comm_file_open(c, "/dev/null", 1, &f, NULL), MR_E_UNSUPPORTED);
    assert_int_equal(mr_comm_file_read(c, NULL, NULL, SIZE_MAX / 2, 0, NULL), MR_E_LIMIT);
    mr_comm_close(c);
    mr_trace_free(t);
    mr_arena_done(&arena);
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
        cmocka_unit_test(error_code_survives_a_hint_without_an_err),
        cmocka_unit_test(error_codes_have_names_and_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
