/* `millrace run`: emulated training, evaluation and checkpointing of a workload, on as many ranks as asked; or, with
 * --dry-run, what that would amount to; with --virtual, how long it would take; with --sweep and
 * --find-max-accelerators, many runs. The work is done by src/job; this file parses, chooses and prints. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "report/page_output.h"
#include "report/run_live.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "conf/job_options.h"
#include "job/job.h"
#include "job/job_tiers.h"
#include "report/page.h"
#include "report/run_text.h"
#include "report/workload_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_options {
    struct mr_job_options job;
    struct mr_strings sweep;
    const char *html;
    bool dry_run, json, find_max, is_virtual, anonymous;
    int64_t max_ranks, repeat;
};

#define ROW(key, field, type, def, ...) MR_OPTION(run_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option run_rows[] = {
    MR_JOB_OPTION_ROWS(offsetof(struct run_options, job)),
    ROW("dry_run", dry_run, BOOL, "false", .short_flag = 'n',
        .doc = "Prints the resolved configuration, files, bytes, steps and the expected duration; reads and writes no "
               "data."),
    ROW("find_max_accelerators", find_max, BOOL, "false",
        .doc = "Searches the largest number of ranks on this machine whose AU stays at the workload's metric.au or "
               "above."),
    ROW("max_ranks", max_ranks, INT, "64", .min = 1, .max = 4096, .doc = "Where that search ends."),
    ROW("repeat", repeat, INT, "1", .min = 1, .max = 1000,
        .doc = "Runs so often, in turn with the other points of a sweep, and prints medians with their intervals and "
               "whether every "
               "run did the same work."),
    ROW("sweep", sweep, STRINGS, "[]", .flags = MR_OPTF_REPEAT,
        .doc = "Runs once for every value of a key of the workload or an option of this command, and prints one table. "
               "Given "
               "several times: once for every combination.",
        .example = "--sweep reader.read_threads=1,2,4,8 --sweep reader.batch_size=4,8"),
    ROW("virtual", is_virtual, BOOL, "false",
        .doc = "Predicts the run on the virtual clock with a storage model; reads and writes no data."),
    ROW("html", html, STRING, "", .doc = MR_DOC_HTML " The run's trace then has every event.",
        .example = "--html run.html"),
    ROW("anonymous", anonymous, BOOL, "false", .doc = "With --html: " MR_DOC_ANONYMOUS),
    ROW("json", json, BOOL, "false", .short_flag = 'j', .doc = "Prints the result as JSON."),
    MR_OPTION_END,
};

/* ---- dry run ---- */

static int print_plan_json(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    struct mr_strbuf how = {0};
    mr_job_tell_policy(j, &how);
    json_t *root =
        json_pack("{s:s, s:o?, s:o?, s:s, s:o?, s:o?}", "schema", "millrace.dry_run/1", "workload",
                  mr_report_workload_json(w), "plan", mr_report_plan_json(w, &j->plan), "reads_with",
                  how.text ? how.text : "", "config", mr_workload_to_json(w), "notes", mr_strings_to_json(&w->notes));
    mr_strbuf_done(&how);
    return mr_cli_print_json(stdout, root, err);
}

static int print_plan_text(const struct mr_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    struct mr_strbuf how = {0}, text = {0};
    bool all = mr_log_shows(MR_LOG_INFO);
    bool are_logged = mr_log_shows(MR_LOG_NOTE); /* then the notes stand on standard error already */
    if (w->workflow.train)
        mr_job_tell_policy(j, &how);
    mr_report_line(&text, "workload ", *w->name ? w->name : "(defaults only)", *w->file ? " (" : "", w->file,
                   *w->file ? ")" : "");
    if (*w->extra.source)
        mr_report_line(&text, "source   ", w->extra.source, "", "", "");
    mr_strbuf_puts(&text, "\nplan\n");
    mr_report_plan(w, &j->plan, &text);
    if (how.text && *how.text)
        mr_strbuf_printf(&text, "  %-28s %s\n", "reads with", how.text);
    mr_strbuf_done(&how);
    mr_strbuf_puts(&text, all ? "\nconfiguration\n" : "\nconfiguration (what is not default; -v shows every key)\n");
    mr_report_config(w, all, &text);
    if (w->notes.n && !are_logged)
        mr_strbuf_puts(&text, "\nnotes\n");
    for (unsigned i = 0; i < w->notes.n && !are_logged; i++)
        mr_report_line(&text, "  ", w->notes.item[i], "", "", "");
    return mr_cli_print_text(&text, err);
}

static int dry_run(struct mr_job *j, bool json, struct mr_error *err)
{
    int rc = mr_job_make_plan(j, err);
    if (rc)
        return rc;
    return json ? print_plan_json(j, err) : print_plan_text(j, err);
}

/* ---- running ---- */

static int report(const struct mr_job *j, bool json, int code, const struct mr_error *why, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    int rc = 0;
    if (j->result.is_whole && !json)
        mr_report_job(j, true, &text);
    if (j->result.is_whole)
        rc = json ? mr_cli_print_json(stdout, mr_job_summary_json(j), err) : mr_cli_print_text(&text, err);
    if (code < 0 && j->comm && mr_comm_is_launched(j->comm))
        mr_cli_tell_error(code, why);
    return rc;
}

static int report_text(const struct mr_job *j, int code, const struct mr_error *why, struct mr_error *err)
{
    return report(j, false, code, why, err);
}

static int report_json(const struct mr_job *j, int code, const struct mr_error *why, struct mr_error *err)
{
    return report(j, true, code, why, err);
}

static const struct mr_job_display text_display = {mr_run_live_start, mr_run_live_tick, mr_run_live_end, report_text};
static const struct mr_job_display json_display = {mr_run_live_start, mr_run_live_tick, mr_run_live_end, report_json};
/* A point of a search: only stalls are told while it runs. */
static const struct mr_job_display point_display = {mr_run_live_start, mr_run_live_tick, mr_run_live_end, NULL};

/* Ranks that are not the reporter end in silence: one tells what all agreed on. */
static int end_silently(int rc)
{
    return freopen("/dev/null", "w", stderr) ? rc : MR_E_INTERNAL;
}

static int write_page(const struct mr_job *j, const struct run_options *o, struct mr_error *err)
{
    const struct mr_page_request q = {o->html, "millrace run", j->w, o->anonymous};
    struct mr_explanation *x = j->result.explained;
    if (!x)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no page: the trace of this run cannot be explained");
    int rc = o->anonymous ? mr_explanation_anonymise(x, err) : 0;
    return rc ? rc : mr_cli_write_page(x, &q, err);
}

static int run_job(struct mr_command_ctx *ctx, struct mr_job *j, struct mr_error *err)
{
    const struct run_options *o = ctx->options;
    int rc = mr_job_run(j, err);
    bool is_reporter = j->result.is_reporter;
    if (*o->html && is_reporter && j->result.is_whole) {
        int page = write_page(j, o, rc ? NULL : err);
        rc = rc ? rc : page;
    }
    mr_job_done(j);
    ctx->whole = rc == 0;
    return is_reporter ? rc : end_silently(rc);
}

/* DLIO's first command: generate_data without train. */
static int generate_only(struct mr_job *j, bool json, struct mr_error *err)
{
    int rc = mr_job_prepare_data(j, err);
    if (rc)
        return rc;
    if (json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:s, s:b, s:I, s:I}", "schema", "millrace.run_generate/1", "folder",
                                           j->data, "generated", j->made_data, "train_samples",
                                           (json_int_t)j->info.samples, "train_bytes", (json_int_t)j->info.file_bytes),
                                 err);
    printf("the data set %s in '%s': %llu training samples\n", j->made_data ? "was generated" : "was there already",
           j->data, (unsigned long long)j->info.samples);
    return 0;
}

/* --expect of repeated runs: as of one, by the median. */
static int expect_repeats(const struct mr_job *j, const struct mr_job_search *s, struct mr_error *err)
{
    const struct mr_job_point *p = &s->points[0];
    if (p->au < j->w->metric.au)
        return mr_error_plain(err, MR_E_BUDGET, "the median AU is %.1f %%, below the target of %.1f %%", 100 * p->au,
                              100 * j->w->metric.au);
    if (p->verdict != MR_JOB_PASS)
        return mr_error_plain(err, MR_E_INCOMPLETE, "no verdict, because %s", p->because);
    return 0;
}

/* Shows the points measured until `rc`, and returns that, or why they could not be shown. */
static int print_search(const struct mr_job *j, const struct mr_job_search *s, const struct run_options *o, int rc,
                        struct mr_error *err)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++)
        any |= s->points[i].measured;
    if (!any && rc)
        return rc;
    struct mr_strbuf text = {0};
    struct mr_error failed;
    if (!o->json)
        mr_report_search(j, s, o->find_max, !rc, &text);
    int printed = o->json ? mr_cli_print_json(stdout, mr_report_search_json(j, s, o->find_max, !rc), &failed)
                          : mr_cli_print_text(&text, &failed);
    if (!rc && printed)
        *err = failed;
    return rc ? rc : printed;
}

static int run_search(struct mr_job *j, const struct run_options *o, struct mr_error *err)
{
    struct mr_job_search s;
    int rc = o->find_max ? mr_job_find_max(j, (uint64_t)o->max_ranks, &s, err)
                         : mr_job_sweep(j, &o->sweep, (unsigned)o->repeat, &s, err);
    if (s.is_left)
        rc = end_silently(rc);
    else
        rc = print_search(j, &s, o, rc, err);
    if (!rc && !s.is_left && o->job.expect)
        rc = expect_repeats(j, &s, err);
    mr_job_search_done(&s);
    return rc;
}

static int run_virtual(struct mr_job *j, bool json, struct mr_error *err)
{
    struct mr_job_prediction p;
    struct mr_strbuf text = {0};
    int rc = mr_job_predict(j, &p, err);
    if (rc || json)
        return rc ? rc : mr_cli_print_json(stdout, mr_report_prediction_json(j, &p), err);
    mr_report_prediction(j, &p, &text);
    return mr_cli_print_text(&text, err);
}

/* ---- what was asked ---- */

/* Many runs, not one. */
static bool searches(const struct run_options *o)
{
    return o->sweep.n || o->find_max || o->repeat > 1;
}

/* Of the ways to run only one can be meant. */
static int check_modes(const struct run_options *o, struct mr_error *err)
{
    if (*o->job.system && !o->is_virtual)
        return mr_error_plain(err, MR_E_USAGE, "--system needs --virtual, without which it has no effect");
    if (o->repeat > 1 && (o->dry_run || o->is_virtual || o->find_max))
        return mr_error_plain(err, MR_E_USAGE, "--repeat and %s exclude each other",
                              o->dry_run      ? "--dry-run"
                              : o->is_virtual ? "--virtual"
                                              : "--find-max-accelerators");
    if (o->find_max && o->job.ranks)
        return mr_error_plain(err, MR_E_USAGE,
                              "--find-max-accelerators chooses the ranks: leave --ranks out, or give --max-ranks");
    if (o->job.expect && (o->dry_run || o->is_virtual || o->sweep.n || o->find_max))
        return mr_error_plain(err, MR_E_USAGE,
                              "--expect judges one run: leave out --dry-run, --virtual, --sweep and "
                              "--find-max-accelerators");
    if (*o->html && (o->dry_run || o->is_virtual || searches(o)))
        return mr_error_plain(err, MR_E_USAGE,
                              "--html shows one run: leave out --dry-run, --virtual, --sweep, --repeat and "
                              "--find-max-accelerators");
    if (o->anonymous && !*o->html)
        return mr_error_plain(err, MR_E_USAGE, "--anonymous needs --html, without which it has no effect");
    const char *given[4];
    unsigned n = 0;
    if (o->dry_run)
        given[n++] = "--dry-run";
    if (o->is_virtual)
        given[n++] = "--virtual";
    if (o->sweep.n)
        given[n++] = "--sweep";
    if (o->find_max)
        given[n++] = "--find-max-accelerators";
    return n < 2 ? 0 : mr_error_plain(err, MR_E_USAGE, "%s and %s exclude each other", given[0], given[1]);
}

/* A search starts jobs of its own, on this machine; under mpirun every rank would start them. */
static int check_launcher(const struct run_options *o, struct mr_error *err)
{
    const char *launcher;
    if (!searches(o) || mr_comm_detect_launcher(&launcher) < 2)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "%s cannot be used under %s",
                   o->find_max  ? "--find-max-accelerators"
                   : o->sweep.n ? "--sweep"
                                : "--repeat",
                   launcher);
    return mr_error_hint(err, "run it without, on one machine; or start one job per value"), MR_E_USAGE;
}

static int resolve(struct mr_command_ctx *ctx, struct mr_job *j, struct mr_error *err)
{
    const struct run_options *o = ctx->options;
    bool many = searches(o);
    struct mr_job_request req = {.options = &o->job,
                                 .pictures = *o->html != '\0',
                                 .overrides = ctx->overrides,
                                 .envp = environ,
                                 .arena = ctx->arena,
                                 .stop = ctx->stop,
                                 .display = many      ? &point_display
                                            : o->json ? &json_display
                                                      : &text_display,
                                 .progress = mr_log_shows(MR_LOG_NOTE) ? stderr : NULL,
                                 .is_local = many,
                                 .traces_all = *o->html};
    int rc = mr_cli_search_path(o->job.config_dir, ctx->arena, &req.search_path, err);
    if (!rc)
        rc = mr_job_resolve(&req, j, err);
    if (!rc)
        mr_cli_log_notes(j->w);
    return rc ? rc : mr_job_check(j, err);
}

static int run_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct run_options *o = ctx->options;
    struct mr_job *j = mr_arena_alloc(ctx->arena, sizeof(*j));
    int rc = j ? check_modes(o, err) : mr_error_set(err, -ENOMEM, "cannot start a run");
    mr_cli_choose_plugins(o->dry_run, o->job.allow_plugins);
    if (!rc)
        rc = resolve(ctx, j, err);
    if (!rc)
        rc = check_launcher(o, err);
    if (rc || ((o->dry_run || o->is_virtual) && mr_comm_detect_rank() > 0))
        return rc; /* what rank 0 computes need not be told by all */
    if (o->dry_run)
        return dry_run(j, o->json, err);
    if (o->is_virtual)
        return run_virtual(j, o->json, err);
    if ((rc = mr_job_check_work(j, err)))
        return rc;
    if (!j->w->workflow.train && !j->w->workflow.checkpoint)
        return generate_only(j, o->json, err);
    return searches(o) ? run_search(j, o, err) : run_job(ctx, j, err);
}

const struct mr_command mr_cmd_run = {
    .name = "run",
    .synopsis = "[WORKLOAD] [KEY=VALUE...] [--ranks N] [--data DIR] [--out DIR] [--generate]",
    .summary = "run a workload: emulated training, evaluation and checkpoints on real storage",
    .details =
        "WORKLOAD is a preset ('millrace workloads list') or a file in DLIO's format. Overrides use Hydra's syntax: "
        "workload=NAME, ++workload.reader.batch_size=4, +key=value, key=value, ~key; the prefix 'workload.' may be "
        "left "
        "out. Precedence: default < file < environment < override.\n\n"
        "  millrace run --dry-run unet3d_h100\n"
        "  millrace run unet3d_h100 dataset.num_files_train=28 train.epochs=2 --data /data/unet3d --generate\n"
        "  millrace run resnet50_h100 --data /data/resnet --ranks 4 --cache cold --strict-trust\n"
        "  millrace run unet3d_h100 --data /data/unet3d --find-max-accelerators\n"
        "  millrace run resnet50_h100 --data /data/resnet --sweep reader.read_threads=1,2,4,8\n"
        "  millrace run unet3d_h100 --virtual --system lassen --ranks 64 dataset.num_files_train=4480\n"
        "  mpirun -n 8 millrace run cosmoflow_h100 --data /data/cosmoflow --out results/cosmoflow\n\n"
        "The results folder gets summary.json (DLIO's keys by its formulas, ours beside them), config.json and the "
        "series of every rank's steps. See 'millrace help config' for all keys.\n",
    .table = {.section = "run", .doc = "run", .options = run_rows, .struct_bytes = sizeof(struct run_options)},
    .takes_overrides = true,
    .run = run_run,
};
