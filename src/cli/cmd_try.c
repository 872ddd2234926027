/* `millrace try`: a finding of a report tried on the program itself (src/loop). */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "measure/measure_loader.h"
#include "report/print.h"
#include "cli/trial_args.h"
#include "loop/trial.h"
#include "report/trial_text.h"

#include <stdlib.h>
#include <string.h>

struct try_options {
    struct mr_strings what, set;
    struct mr_trial_args args;
    int64_t repeat, threads;
    bool json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct try_options, name)
static const struct mr_option try_options[] = {
    {FIELD(what), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc =
         "The finding, as 'millrace report' names it (PF1, TH2 ...), and the trace. Without a finding: the first one "
         "that can be tried."},
    {FIELD(set), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "Instead of a finding: an argument of the DataLoader that trains (num_workers, prefetch_factor, "
            "persistent_workers, pin_memory), data=memory, data=disk or saver=ours; of a run of our own an option or a "
            "key of "
            "its workload.",
     .example = "--set num_workers=8"},
    {FIELD(repeat), .type = MR_OPT_INT, .def = "2", .min = 1, .max = 100,
     .doc = "Runs of each side, in turn: A B B A. One alone gives no verdict."},
    MR_TRIAL_ARGS_ROWS(offsetof(struct try_options, args)),
    MR_ROW_THREADS(offsetof(struct try_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct try_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int make_request(const struct mr_command_ctx *ctx, struct mr_trial_request *q, struct mr_error *err)
{
    const struct try_options *o = ctx->options;
    const char **set = o->set.n ? mr_arena_alloc(ctx->arena, (o->set.n + 1) * sizeof(*set)) : NULL;
    for (unsigned i = 0; set && i < o->set.n; i++)
        set[i] = o->set.item[i];
    if (o->set.n && o->what.n > 1)
        return mr_error_plain(err, MR_E_USAGE, "--set takes the place of a finding: leave '%s' out", o->what.item[0]);
    if (!o->what.n || o->what.n > 2) {
        mr_error_plain(err, MR_E_USAGE, o->what.n ? "more than a finding and a trace given" : "no trace given");
        return mr_error_hint(err, "millrace try TH2 run.mrt"), MR_E_USAGE;
    }
    int rc = mr_trial_args_request(&o->args, (unsigned)o->threads, ctx->stop, q, err);
    q->path = o->what.item[o->what.n - 1];
    q->id = o->what.n == 2 ? o->what.item[0] : NULL;
    q->set = set;
    q->measure = mr_measure_loader;
    q->repeat = (unsigned)o->repeat;
    return rc;
}

static int print_text(struct mr_strbuf *text, struct mr_error *err)
{
    int rc = mr_cli_print_text(text, err);
    fflush(stdout);
    return rc;
}

static int run_trial(struct mr_trial *t, const struct try_options *o, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    int rc = 0;
    mr_trial_plan_text(t, &text);
    if (!o->json)
        rc = print_text(&text, err);
    mr_strbuf_done(&text);
    if (!rc && !o->args.dry_run)
        rc = mr_trial_run(t, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_trial_json(t, !o->args.dry_run), err);
    if (!rc && !o->json && !o->args.dry_run) {
        mr_trial_result_text(t, &text);
        rc = print_text(&text, err);
    }
    int status = o->args.dry_run ? 0 : mr_trial_exit_status(t);
    if (!rc && (o->args.apply || o->args.write) && !status)
        rc = mr_trial_apply(t, o->args.write && !o->args.dry_run, o->json, true, err);
    return rc ? rc : status;
}

static int try_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct mr_trial_request q;
    struct mr_trial t;
    int rc = make_request(ctx, &q, err);
    rc = rc ? rc : mr_trial_open(&q, &t, err);
    if (rc)
        return rc;
    rc = run_trial(&t, ctx->options, err);
    mr_trial_close(&t);
    return rc;
}

const struct mr_command mr_cmd_try = {
    .name = "try",
    .synopsis = "[options] [FINDING] TRACE",
    .summary = "try a finding's change on the program itself: predicted beside measured",
    .details =
        "Runs the program of a trace again, by its recorded command line in its folder: as it is (A) and with the "
        "change "
        "of a finding (B), A B B A, and compares the same steps of both. The program is not edited: the change is made "
        "while it runs (arguments of PyTorch's DataLoader; torch.save by our saver). Each run is traced and ends "
        "behind the "
        "window; checkpoints go to folders that are removed. A run of our own is repeated whole, with the finding's "
        "options.\n\n"
        "The verdict is 'confirmed', 'smaller than predicted' (exit status 0), 'no gain', 'harmful' (3), or 'not "
        "decided' "
        "(6), with the runs that it would take. A program that cannot be run again, or ends before the window, ends "
        "with "
        "6. What else the program writes, it writes again.\n\n"
        "Example:\n  millrace trace -o run.mrt -- python train.py\n  millrace report run.mrt\n  millrace try TH2 "
        "run.mrt",
    .table = {.section = "try", .doc = "Trials.", .options = try_options, .struct_bytes = sizeof(struct try_options)},
    .run = try_run,
};
