/* `millrace check`: a run or a trace against a budget; for continuous integration. */
#include "advise/explain_open.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "report/check_output.h"
#include "cli/dataset_args.h"
#include "compare/compare.h"
#include "explain/explain.h"
#include "history/history.h"
#include "report/budget.h"
#include "report/out_stream.h"
#include "report/report_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct check_options {
    struct mr_strings run, limit;
    const char *budget, *baseline, *history, *junit;
    int64_t threads;
    bool json, github, allow_untrusted;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct check_options, name)
static const struct mr_option check_options[] = {
    {FIELD(run), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "What is checked: a results folder of 'millrace run', a trace, or a folder of several; of several runs the "
            "mean is checked."},
    {FIELD(budget), .type = MR_OPT_STRING, .def = "", .short_flag = 'b',
     .doc = "A YAML file with a list 'budget' of lines NAME OP LIMIT, and 'baseline' where a line asks for it; "
            "doc/guides/compare.md has an example.",
     .example = "--budget budget.yaml"},
    {FIELD(limit), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT, .short_flag = 'l',
     .doc = "One more line of the budget.", .example = "--limit 'stall_pct <= 5'"},
    {FIELD(baseline), .type = MR_OPT_STRING, .def = "",
     .doc = "Runs that 'baseline' stands for; beats the one in the file.", .example = "--baseline results/main"},
    {FIELD(history), .type = MR_OPT_STRING, .def = "",
     .doc =
         "A folder of earlier runs: 'baseline' stands for the newest of the same workload or program that passed. The "
         "result is kept as check.json in the results folder, or TRACE.check.json, for the next check. While none has "
         "passed, lines with 'baseline' are left out.",
     .example = "--history results"},
    {FIELD(junit), .type = MR_OPT_STRING, .def = "", .doc = "Also writes the result as JUnit XML.",
     .example = "--junit check.xml"},
    {FIELD(github), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also prints each miss as an annotation for GitHub's workflows."},
    {FIELD(allow_untrusted), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Limits that are met count although the run has doubts about its own result (see 'trust' in its "
            "summary.json)."},
    MR_ROW_THREADS(offsetof(struct check_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct check_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* ---- figures ---- */

/* The explanation as the object that report --json prints: the same code, so the names and numbers are the same. */
static int report_json(const struct mr_explanation *x, json_t **out, struct mr_error *err)
{
    struct mr_out o;
    json_error_t why;
    int fd = memfd_create("report", MFD_CLOEXEC), copy = fd < 0 ? -1 : dup(fd);
    if (copy < 0) {
        int rc = mr_error_set(err, -errno, "cannot hold the report");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = mr_out_open_fd(&o, copy, "report", err);
    if (!rc) {
        mr_out_text(&o, "{");
        mr_report_json(&o, x);
        mr_out_text(&o, "}");
        rc = mr_out_close(&o, err);
    }
    if (!rc && (lseek(fd, 0, SEEK_SET) < 0 || !(*out = json_loadfd(fd, 0, &why))))
        rc = mr_error_plain(err, MR_E_INTERNAL, "the report is no JSON: %s", why.text);
    close(fd);
    return rc;
}

/* *out stays NULL for what has no summary. One that cannot be read is an error: it may say that the run is not whole. */
static int summary_of(const char *path, json_t **out, struct mr_error *err)
{
    char file[4300];
    json_error_t why;
    snprintf(file, sizeof file, "%s/summary.json", path);
    if (access(file, F_OK) != 0)
        return 0;
    FILE *f = mr_fopen_regular(file);
    *out = f ? json_loadf(f, 0, &why) : NULL;
    if (!f)
        return mr_error_set(err, -errno, "cannot read '%s'", file);
    fclose(f);
    return *out ? 0 : mr_error_plain(err, MR_E_FORMAT, "cannot read '%s': %s, line %d", file, why.text, why.line);
}

struct gather {
    MR_VEC(json_t *) figures;
    unsigned threads;
    const atomic_bool *stop;
    bool incomplete, untrusted;
};

/* A run that doubts its own result, with its first reason. */
static void note_doubts(const char *path, const json_t *summary, struct gather *g)
{
    const json_t *trust = json_object_get(summary, "trust");
    const char *doubt = json_string_value(json_array_get(json_object_get(trust, "doubts"), 0));
    if (!json_is_false(json_object_get(trust, "trusted")))
        return;
    mr_log(MR_LOG_WARN, "'%s' cannot be trusted%s%s", path, doubt ? ": " : "", doubt ? doubt : "");
    g->untrusted = true;
}

static int add_figures(const char *path, struct gather *g, const struct mr_explanation *x, struct mr_error *err)
{
    json_t *report = NULL, *summary = NULL;
    int rc = summary_of(path, &summary, err);
    rc = rc ? rc : report_json(x, &report, err);
    json_t *figures = rc ? NULL : mr_budget_figures(report, summary);
    json_t **to = figures ? MR_VEC_ADD(&g->figures) : NULL;
    if (!rc && !to)
        rc = mr_error_set(err, -ENOMEM, "cannot check '%s'", path);
    if (to)
        *to = json_incref(figures);
    if (json_is_false(json_object_get(summary, "complete")) || x->trust.cut || x->trust.unfinished) {
        mr_log(MR_LOG_WARN, "'%s' is incomplete", path);
        g->incomplete = true;
    }
    note_doubts(path, summary, g);
    json_decref(figures);
    json_decref(report);
    json_decref(summary);
    return rc;
}

static int explain_one(const char *path, void *user, struct mr_error *err)
{
    struct gather *g = user;
    struct mr_explanation *x = NULL;
    const struct mr_explain_how how = {
        .explain = {.threads = g->threads, .rank = -1, .step_from = -1, .stop = g->stop}};
    int rc = mr_explain_open(&path, 1, &how, &x, err);
    rc = rc ? rc : add_figures(path, g, x, err);
    mr_explanation_free(x);
    return rc;
}

/* Mean figures of all runs that the words name. */
static int gather(const struct check_options *o, const char *const *word, unsigned n, const struct mr_command_ctx *ctx,
                  json_t **out, size_t *runs, bool *incomplete, bool *untrusted, struct mr_error *err)
{
    struct gather g = {.threads = (unsigned)o->threads, .stop = ctx->stop};
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = mr_compare_each_run(word[i], explain_one, &g, err);
    if (!rc && g.figures.n) {
        *out = mr_budget_mean(g.figures.item, g.figures.n);
        *runs = g.figures.n;
        *incomplete |= g.incomplete;
        *untrusted |= g.untrusted && !o->allow_untrusted;
    }
    for (size_t i = 0; i < g.figures.n; i++)
        json_decref(g.figures.item[i]);
    free(g.figures.item);
    return rc;
}

/* ---- the last good one ---- */

static bool needs_baseline(const struct mr_budget *b)
{
    for (unsigned i = 0; i < b->lines; i++)
        if (b->line[i].of_baseline)
            return true;
    return false;
}

static void drop_baseline_lines(struct mr_budget *b)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < b->lines; i++)
        if (!b->line[i].of_baseline)
            b->line[kept++] = b->line[i];
    b->lines = kept;
}

/* The baseline of --history. */
static int find_last_good(const struct check_options *o, const struct mr_command_ctx *ctx, struct mr_budget *b,
                          struct mr_error *err)
{
    static char path[4300];
    const struct mr_compare_options how = {.threads = (unsigned)o->threads, .stop = ctx->stop};
    if (!*o->history)
        return 0;
    if (*o->baseline || o->run.n != 1)
        return mr_error_plain(err, MR_E_USAGE,
                              *o->baseline ? "--history and --baseline exclude each other"
                                           : "--history checks one run at a time");
    int rc = mr_history_last_good(o->history, o->run.item[0], &how, path, sizeof path, err);
    if (rc < 0)
        return rc;
    b->baseline = rc ? path : NULL;
    if (!rc && needs_baseline(b)) {
        drop_baseline_lines(b);
        mr_log(MR_LOG_NOTE, "no earlier run in '%s' has passed: lines with 'baseline' are left out", o->history);
    } else if (rc) {
        mr_log(MR_LOG_NOTE, "the last good one is '%s'", path);
    }
    return 0;
}

static int keep_result(const struct check_options *o, const struct mr_check_result *r, struct mr_error *err)
{
    char path[4300];
    if (!*o->history)
        return 0;
    FILE *f = mr_fcreate_anew(mr_history_check_file(o->run.item[0], path, sizeof path));
    if (!f)
        return mr_error_set(err, -errno, "cannot write '%s'", path);
    int rc = mr_check_print_json(f, r, err);
    if (fclose(f) != 0 && !rc)
        rc = mr_error_set(err, -errno, "cannot write '%s'", path);
    return rc;
}

/* ---- the command ---- */

static int read_budget(const struct check_options *o, struct mr_arena *a, struct mr_budget *b, struct mr_error *err)
{
    int rc = *o->budget ? mr_budget_load(o->budget, a, b, err) : 0;
    struct mr_budget_line *all = rc ? NULL : mr_arena_alloc(a, (b->lines + o->limit.n + 1) * sizeof(*all));
    if (rc || !all)
        return rc ? rc : mr_error_set(err, -ENOMEM, "cannot read the budget");
    if (b->lines)
        memcpy(all, b->line, b->lines * sizeof(*all));
    b->line = all;
    for (unsigned i = 0; i < o->limit.n && !rc; i++) {
        rc = mr_budget_parse_line(o->limit.item[i], a, &all[b->lines], err);
        b->lines += !rc;
    }
    if (!rc && !b->lines) {
        mr_error_plain(err, MR_E_USAGE, "no budget given");
        return mr_error_hint(err, "millrace check results/x --limit 'stall_pct <= 5'"), MR_E_USAGE;
    }
    if (*o->baseline)
        b->baseline = o->baseline;
    return rc;
}

static int conclude(const struct mr_check_result *r, struct mr_error *err)
{
    unsigned missed = 0, unknown = 0;
    for (unsigned i = 0; i < r->budget->lines; i++) {
        const struct mr_budget_line *l = &r->budget->line[i];
        bool known = mr_check_knows(l);
        missed += !l->met && known;
        unknown += !known;
    }
    if (missed)
        return mr_error_plain(err, MR_E_BUDGET, "%u of %u %s missed", missed, r->budget->lines,
                              mr_plural(r->budget->lines, "limit", "limits"));
    if (unknown)
        return mr_error_plain(err, MR_E_INCOMPLETE, "%u of %u %s not known: not checked", unknown, r->budget->lines,
                              mr_plural(unknown, "figure is", "figures are"));
    if (r->incomplete)
        return mr_error_plain(err, MR_E_INCOMPLETE, "what was checked is incomplete");
    if (r->untrusted) {
        mr_error_plain(err, MR_E_INCOMPLETE, "what was checked cannot be trusted");
        return mr_error_hint(err, "repeat the run without the doubts above, or add --allow-untrusted"), MR_E_INCOMPLETE;
    }
    return 0;
}

static int check_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct check_options *o = ctx->options;
    struct mr_budget b = {0};
    struct mr_check_result r = {.budget = &b};
    json_t *figures = NULL, *baseline = NULL;
    bool ignored = false;
    if (!o->run.n) {
        mr_error_plain(err, MR_E_USAGE, "nothing to check given");
        return mr_error_hint(err, "millrace check results/x --budget budget.yaml"), MR_E_USAGE;
    }
    int rc = read_budget(o, ctx->arena, &b, err);
    rc = rc ? rc : find_last_good(o, ctx, &b, err);
    rc = rc ? rc : gather(o, o->run.item, o->run.n, ctx, &figures, &r.runs, &r.incomplete, &r.untrusted, err);
    if (!rc && b.baseline && needs_baseline(&b)) {
        const char *word = b.baseline;
        rc = gather(o, &word, 1, ctx, &baseline, &r.baseline_runs, &ignored, &ignored, err);
    }
    rc = rc ? rc : mr_budget_check(&b, figures, baseline, err);
    json_decref(figures);
    json_decref(baseline);
    if (!rc && o->json)
        rc = mr_check_print_json(stdout, &r, err);
    else if (!rc)
        mr_check_print(stdout, &r);
    if (!rc && o->github)
        mr_check_print_github(stdout, &r);
    if (!rc && *o->junit)
        rc = mr_check_write_junit(o->junit, o->run.item[0], &r, err);
    int verdict = rc ? rc : conclude(&r, err);
    struct mr_error why;
    rc = rc ? rc : keep_result(o, &r, verdict ? &why : err);
    return verdict ? verdict : rc;
}

const struct mr_command mr_cmd_check = {
    .name = "check",
    .synopsis = "[options] RUN|TRACE...",
    .summary = "check a run or a trace against a budget; for continuous integration",
    .details =
        "Every line of the budget is a figure of 'millrace report --json', a comparison and a limit: a number, or "
        "'baseline' times one. Ends with status 3 when a limit is missed, with 6 when a figure is not known or the run "
        "is incomplete or cannot be trusted.\n\n"
        "Short names: wall_s, au, stall_pct, stall_s, p50_stall_s, p99_stall_s, p99_step_s, samples_per_s, "
        "cold_fraction; "
        "findings.critical and findings.PF1 count findings; run.KEY is a figure of summary.json.\n\n"
        "Examples:\n"
        "  millrace check results/base --budget budget.yaml --junit check.xml\n"
        "  millrace check results/base --limit 'stall_pct <= 99' --limit 'wall_s > 0'\n"
        "  millrace check results/base --history results --limit 'wall_s <= baseline * 10'",
    .table = {.section = "check",
              .doc = "Check.",
              .options = check_options,
              .struct_bytes = sizeof(struct check_options)},
    .run = check_run,
};
