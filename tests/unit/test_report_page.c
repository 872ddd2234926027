/* The page of an explanation: below its limit for any run, hostile names stay text, unknown is said, every SVG has a
 * title. `test_report_page --write KIND FILE` writes one, for the tests that open it. */
#include "page_testlib.h"
#include "report/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const kinds[] = {"typical", "tiny", "wide", "long", "hostile", "healthy", "worst"};

static char *page_of(enum explain_kind kind)
{
    struct mr_explanation *x = explain_make(kind);
    struct mr_page_shell shell = {.title = "millrace report", .subject = x->source};
    struct mr_strbuf page = {0};
    mr_page_explain(&shell, x, NULL);
    mr_page_compose(&shell, &page);
    mr_page_done(&shell);
    mr_explanation_free(x);
    assert_false(page.failed);
    assert_true(page.len < MR_PAGE_BYTES_MAX);
    return mr_strbuf_take(&page);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void every_kind_fits_and_is_whole(void **state)
{
    (void)state;
    for (unsigned k = 0; k < MR_ARRAY_LEN(kinds); k++) {
        char *page = page_of((enum explain_kind)k);
        assert_non_null(strstr(page, "</html>"));
        assert_int_equal(count(page, "<details"), count(page, "</details>"));
        assert_int_equal(count(page, "<table"), count(page, "</table>"));
        assert_int_equal(count(page, "<svg"), count(page, "</svg>"));
        assert_null(strstr(page, ">nan"));
        assert_null(strstr(page, "\"nan"));
        assert_null(strstr(page, "-nan"));
        assert_null(strstr(page, "18446744073"));
        free(page);
    }
}

static void hostile_names_stay_text(void **state)
{
    (void)state;
    char *page = page_of(EXPLAIN_HOSTILE);
    assert_int_equal(count(page, "<script"), 1);
    assert_int_equal(count(page, "</style>"), 1);
    assert_null(strstr(page, "<img"));
    assert_null(strstr(page, "\"onload=\"alert"));
    assert_null(strchr(page, 0x1b));
    assert_null(strchr(page, 0x01));
    assert_null(strstr(page, "\xe2\x80\xae"));
    free(page);
}

static void unknown_is_said_and_absent_sections_explained(void **state)
{
    (void)state;
    char *page = page_of(EXPLAIN_TINY);
    assert_non_null(strstr(page, "Unknown from this trace"));
    assert_non_null(strstr(page, "No checkpoints."));
    assert_non_null(strstr(page, "cut off"));
    assert_null(strstr(page, "id=\"sizes\""));
    free(page);
}

static void every_drawing_has_a_title(void **state)
{
    (void)state;
    char *page = page_of(EXPLAIN_TYPICAL);
    static const char *const sections[] = {"findings", "steps",       "ranks",   "time",     "sizes", "access",
                                           "files",    "checkpoints", "workers", "snippets", "trust", "glossary"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(sections); i++) {
        char id[32];
        snprintf(id, sizeof id, "open id=\"%s\"", sections[i]);
        assert_non_null(strstr(page, id));
    }
    size_t drawings = count(page, "<svg role=\"img\"");
    assert_true(drawings > 12);
    for (const char *at = page; (at = strstr(at, "<svg role=\"img\"")); at++)
        assert_true(strncmp(strchr(at, '>') + 1, "<title", 6) == 0);
    free(page);
}

/* A mean of all ranks hides the one that the others wait for; it has a picture of its steps and a bar beside theirs. */
static void the_rank_that_others_wait_for_is_seen(void **state)
{
    (void)state;
    char *page = page_of(EXPLAIN_TYPICAL);
    assert_int_equal(count(page, "The rank that others waited for: rank 5"), 1);
    assert_int_equal(count(page, "Where the training of each rank went"), 1);
    assert_int_equal(count(page, ">Step strip</title>"), 2);
    free(page);
    page = page_of(EXPLAIN_TINY);
    assert_int_equal(count(page, "The rank that others waited for"), 0);
    free(page);
}

/* What identifies somebody is gone, wherever it stood; what belongs together still does. */
static void anonymous_pages_tell_no_names(void **state)
{
    (void)state;
    struct mr_error err;
    struct mr_explanation *x = explain_make(EXPLAIN_TYPICAL);
    struct mr_page_shell shell = {.title = "millrace report"};
    x->trust.note[0].text =
        "node01 wrote '/lustre/run/checkpoint-0009.pt': late; train-00003-of-01024.tfrecord, 3/4 and 5 GiB/s";
    x->verdict.line[1] = "See ./private/notes.txt.";
    x->verdict.line[0] = "Training waited for data.";
    x->checkpoint[0].path = "/home/data/train";
    assert_int_equal(mr_explanation_anonymise(x, &err), 0);
    shell.subject = x->source;
    mr_page_explain(&shell, x, NULL);
    static const char *const gone[] = {"imagenet", "train-0", "lustre/run", "checkpoint-00", "node01",
                                       "node02",   "conda",   "--lr",       "private",       "notes.txt"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(gone); i++)
        assert_null(strstr(shell.body.text, gone[i]));
    assert_non_null(strstr(shell.body.text, ".tfrecord"));
    assert_non_null(strstr(shell.body.text, "3/4 and 5 GiB/s"));
    assert_string_equal(x->verdict.line[0], "Training waited for data."); /* though a folder is called so */
    assert_non_null(strstr(shell.body.text, "python and 3 arguments"));
    assert_true(strncmp(x->trust.note[0].text, x->rank[0].host, strlen(x->rank[0].host)) == 0);
    char *folder = strdup(x->file[0].path);
    *strrchr(folder, '/') = '\0';
    assert_true(strncmp(x->file[1].path, folder, strlen(folder)) == 0);
    assert_string_not_equal(x->file[0].path, x->file[1].path);
    assert_true(strncmp(x->group[0].name, folder, strlen(folder)) == 0);
    free(folder);
    mr_page_done(&shell);
    mr_explanation_free(x);
}

static int write_page(const char *kind, const char *path)
{
    struct mr_error err;
    for (unsigned k = 0; k < MR_ARRAY_LEN(kinds); k++)
        if (strcmp(kind, kinds[k]) == 0) {
            struct mr_explanation *x = explain_make((enum explain_kind)k);
            int rc = mr_page_write(path, x, NULL, &err);
            mr_explanation_free(x);
            if (rc)
                fprintf(stderr, "%s\n", err.message);
            return rc ? 1 : 0;
        }
    fprintf(stderr, "no kind '%s'\n", kind);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return write_page(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_fits_and_is_whole),
        cmocka_unit_test(hostile_names_stay_text),
        cmocka_unit_test(unknown_is_said_and_absent_sections_explained),
        cmocka_unit_test(every_drawing_has_a_title),
        cmocka_unit_test(the_rank_that_others_wait_for_is_seen),
        cmocka_unit_test(anonymous_pages_tell_no_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
