/* `millrace tune`: the best settings of a program, by replay and few measurements (src/loop/tune.h). */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "report/print.h"
#include "cli/trial_args.h"
#include "loop/tune.h"
#include "report/tune_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIRST_STEPS 130 /* of a program that is traced first: the default window, and some more */

struct tune_options {
    struct mr_strings what;
    struct mr_trial_args args;
    int64_t threads;
    uint64_t budget;
    bool json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct tune_options, name)
static const struct mr_option tune_options[] = {
    {FIELD(what), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "A trace, or the results folder of a 'millrace run'. Behind '--': a program and its arguments, which is "
            "traced first."},
    {FIELD(budget), .type = MR_OPT_DURATION, .def = "0s",
     .doc = "Measures as many settings as this time allows, at most 5; 0 is no limit.", .example = "--budget 10min"},
    MR_TRIAL_ARGS_ROWS(offsetof(struct tune_options, args)),
    MR_ROW_THREADS(offsetof(struct tune_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct tune_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int print(struct mr_strbuf *text, struct mr_error *err)
{
    int rc = mr_cli_print_text(text, err);
    fflush(stdout);
    return rc;
}

static int tune(struct mr_tune *u, const struct tune_options *o, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    mr_tune_plan_text(u, o->args.dry_run, &text);
    int rc = o->json ? 0 : print(&text, err);
    mr_strbuf_done(&text);
    if (!rc && !o->args.dry_run)
        rc = mr_tune_run(u, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_tune_json(u, !o->args.dry_run), err);
    else if (!rc && !o->args.dry_run) {
        mr_tune_result_text(u, &text);
        rc = print(&text, err);
    }
    if (rc || o->args.dry_run)
        return rc;
    int status = mr_trial_exit_status(&u->trial);
    bool shows = o->args.apply || o->args.write || !o->json;
    if (shows && !status && !u->trial.own)
        rc = mr_trial_apply(&u->trial, o->args.write, o->json, o->args.write || o->args.apply, err);
    return rc ? rc : status;
}

/* A program: what is behind '--', or a first word that is no trace. */
static bool is_program(const struct tune_options *o)
{
    struct stat st;
    return o->what.n > 1 || stat(o->what.item[0], &st) != 0;
}

static int trace_first(struct mr_command_ctx *ctx, struct mr_scratch *scratch, char trace[PATH_MAX],
                       struct mr_error *err)
{
    const struct tune_options *o = ctx->options;
    char log[PATH_MAX];
    char **argv = mr_arena_alloc(ctx->arena, (o->what.n + 1) * sizeof(*argv));
    int rc = argv ? mr_scratch_open(scratch, err) : mr_error_set(err, -ENOMEM, "cannot start the program");
    if (rc)
        return rc;
    for (unsigned i = 0; i < o->what.n; i++)
        argv[i] = (char *)(uintptr_t)o->what.item[i];
    snprintf(trace, PATH_MAX, "%.4000s/first.mrt", scratch->folder);
    snprintf(log, sizeof log, "%.4000s/first.log", scratch->folder);
    return mr_tune_trace(argv, FIRST_STEPS, scratch, trace, log, o->args.limit, ctx->stop, err);
}

static int tune_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct tune_options *o = ctx->options;
    struct mr_scratch first = {.hold = -1};
    struct mr_trial_request q;
    struct mr_tune u;
    char trace[PATH_MAX];
    if (!o->what.n) {
        mr_error_plain(err, MR_E_USAGE, "no trace and no program given");
        return mr_error_hint(err, "millrace tune run.mrt"), MR_E_USAGE;
    }
    int rc = mr_trial_args_request(&o->args, (unsigned)o->threads, ctx->stop, &q, err);
    q.path = o->what.item[0];
    if (!rc && is_program(o)) {
        rc = trace_first(ctx, &first, trace, err);
        q.path = trace;
    }
    rc = rc ? rc : mr_tune_open(&q, o->budget, &u, err);
    if (!rc) {
        rc = tune(&u, o, err);
        mr_tune_close(&u);
    }
    mr_scratch_close(&first);
    return rc;
}

const struct mr_command mr_cmd_tune = {
    .name = "tune",
    .synopsis = "[options] TRACE | -- PROGRAM [ARGUMENTS]",
    .summary = "search settings by replay, measure at most five of them on the program",
    .details =
        "Replays the batches of a trace under some hundred settings (workers, batches ahead, data in memory, saves "
        "written behind, where the report has such a finding), takes the simplest one near the best and its "
        "neighbours, at "
        "most five, and measures them on the program as 'millrace try' does, in turn with the program as it is. The "
        "best "
        "one is measured twice; its verdict and diff end the table. The order of the samples stays.\n\n"
        "Exit status as of 'try'; 3 also where nothing would gain 2 %.\n\n"
        "Example:\n  millrace tune run.mrt",
    .table = {.section = "tune",
              .doc = "Tuning.",
              .options = tune_options,
              .struct_bytes = sizeof(struct tune_options)},
    .run = tune_run,
};
