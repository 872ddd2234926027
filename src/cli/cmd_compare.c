/* `millrace compare`: runs against runs, traces against traces; what changed and how sure that is. */
#include "base/common.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "report/compare_text.h"
#include "cli/dataset_args.h"
#include "compare/compare.h"
#include "report/page_compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct compare_options {
    struct mr_strings side;
    const char *html;
    double level, min_effect;
    int64_t threads;
    bool json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct compare_options, name)
static const struct mr_option compare_options[] = {
    {FIELD(side), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "A side of the comparison: a results folder of 'millrace run', a trace, or a folder of either, each of "
            "which is one run (what 'run --repeat' makes). Several with commas between them are runs of one side; "
            "NAME=... gives the side a name. The first side is the base.",
     .example = "millrace compare base=a1,a2,a3 tuned=b1,b2,b3"},
    {FIELD(level), .type = MR_OPT_DOUBLE, .def = "0.01", .min = 1e-9, .max = 0.5,
     .doc = "Accepted chance of one false 'better' or 'worse' in the whole comparison."},
    {FIELD(min_effect), .type = MR_OPT_DOUBLE, .def = "0.01", .min = 0, .max = 1,
     .doc = "Changes below this are not called better or worse: 0.01 is 1 %, of shares 1 percentage point."},
    {FIELD(html), .type = MR_OPT_STRING, .def = "",
     .doc = "Also writes the comparison as one page: tables, steps over each other, distributions; '-' is standard "
            "output, and nothing else is printed.",
     .example = "--html compare.html"},
    MR_ROW_THREADS(offsetof(struct compare_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct compare_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int print_json(const struct mr_compare *c, struct mr_error *err)
{
    json_t *j = mr_compare_json(c);
    char *text = j ? json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    int rc = text ? 0 : mr_error_set(err, -ENOMEM, "cannot print the comparison");
    if (text)
        puts(text);
    free(text);
    json_decref(j);
    return rc;
}

static int compare_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct compare_options *o = ctx->options;
    const struct mr_compare_options opt = {
        .level = o->level, .least = o->min_effect, .threads = (unsigned)o->threads, .stop = ctx->stop};
    struct mr_compare c = {0};
    int rc = 0;
    if (o->side.n < 2) {
        mr_error_plain(err, MR_E_USAGE, o->side.n ? "only one side given" : "nothing to compare given");
        return mr_error_hint(err, "millrace compare results/base results/tuned"), MR_E_USAGE;
    }
    for (unsigned i = 0; i < o->side.n && !rc; i++)
        rc = mr_compare_add(&c, o->side.item[i], &opt, err);
    rc = rc ? rc : mr_compare_judge(&c, &opt, err);
    bool only_page = !strcmp(o->html, "-");
    if (!rc && o->json && !only_page)
        rc = print_json(&c, err);
    else if (!rc && !only_page)
        mr_compare_print(stdout, &c);
    if (!rc && *o->html)
        rc = mr_page_compare_write(o->html, &c, err);
    mr_compare_done(&c);
    return rc;
}

const struct mr_command mr_cmd_compare = {
    .name = "compare",
    .synopsis = "[options] A B [C...]",
    .summary = "compare runs or traces: same work, what changed, better or worse",
    .details =
        "Says first whether the sides did the same work, then what changed and whether that is better, worse, or "
        "within what runs differ by anyway. A side is one run or several; one run on a side never gives a winner, "
        "because runs of the same thing differ, too: 'millrace run --repeat 5' makes several.\n\n"
        "The test is Student's on the runs, whose spread is never taken to be smaller than a bootstrap over blocks "
        "of steps says; Holm's correction covers all metrics. Runs of other work are compared by rates and shares "
        "only. "
        "doc/guides/compare.md has the details.\n\n"
        "Examples:\n"
        "  millrace compare results/base results/tuned\n"
        "  millrace compare base=a1,a2,a3 tuned=b1,b2,b3\n"
        "  millrace compare before.mrt after.mrt --json\n"
        "  millrace compare results/base results/tuned --html compare.html",
    .table = {.section = "compare",
              .doc = "Comparison.",
              .options = compare_options,
              .struct_bytes = sizeof(struct compare_options)},
    .run = compare_run,
};
