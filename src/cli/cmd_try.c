/* `millrace try`: a finding of a report tried on the program itself (src/loop). */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "cli/print.h"
#include "loop/apply.h"
#include "loop/trial.h"
#include "report/trial_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct try_options {
    struct mr_strings what, set;
    const char *steps, *out;
    int64_t repeat, threads;
    uint64_t limit;
    bool apply, write, keep_saves, dry_run, json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct try_options, name)
static const struct mr_option try_options[] = {
    {FIELD(what), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc =
         "The finding, as 'millrace report' names it (PF1, TH2 ...), and the trace. Without a finding: the first one "
         "that can be tried."},
    {FIELD(set), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "Instead of a finding: an argument of the DataLoader that trains (num_workers, prefetch_factor, "
            "persistent_workers, pin_memory); of a run of our own an option or a key of its workload.",
     .example = "--set num_workers=8"},
    {FIELD(steps), .type = MR_OPT_STRING, .def = "",
     .doc = "The steps that are compared, FROM:TO, the last one left out; each run ends behind them. Default: 20:120, "
            "fewer where the recorded run had fewer.",
     .example = "--steps 20:120"},
    {FIELD(repeat), .type = MR_OPT_INT, .def = "2", .min = 1, .max = 100,
     .doc = "Runs of each side, in turn: A B B A. One alone gives no verdict."},
    {FIELD(limit), .type = MR_OPT_DURATION, .def = "0s",
     .doc = "The longest that a run may take to the end of its window; 0 is a minute and four times what the recorded "
            "run took."},
    {FIELD(out), .type = MR_OPT_STRING, .def = "",
     .doc = "Keeps the traces and what the runs printed in this folder: a1.mrt, b1.mrt, a1.log ...",
     .example = "--out tried"},
    {FIELD(keep_saves), .type = MR_OPT_BOOL, .def = "false",
     .doc = "The program saves checkpoints where it always does. By default they go to folders beside, on the same "
            "storage, which are removed."},
    {FIELD(apply), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also prints the change as a unified diff of the script, where it gains something."},
    {FIELD(write), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also changes the script so: the only case in which a file of yours is edited. Implies --apply."},
    {FIELD(dry_run), .type = MR_OPT_BOOL, .def = "false", .short_flag = 'n',
     .doc = "Prints what would be run and changed, and what is predicted; runs nothing."},
    MR_ROW_THREADS(offsetof(struct try_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct try_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* FROM:TO, whole numbers. */
static int parse_steps(const char *text, int64_t *from, int64_t *to, struct mr_error *err)
{
    char *end = NULL;
    *from = *to = 0;
    if (!*text)
        return 0;
    *from = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (*from >= 0 && *end == ':' && isdigit((unsigned char)end[1]))
        *to = strtoll(end + 1, &end, 10);
    if (*from >= 0 && !*end && *to > *from && *to < 1000000000)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "bad value '%s' for '--steps': want FROM:TO, whole numbers, FROM below TO", text);
    return mr_error_hint(err, "for example --steps 20:120"), MR_E_USAGE;
}

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
    *q = (struct mr_trial_request){.path = o->what.item[o->what.n - 1],
                                   .id = o->what.n == 2 ? o->what.item[0] : NULL,
                                   .set = set,
                                   .repeat = (unsigned)o->repeat,
                                   .out = o->out,
                                   .keep_saves = o->keep_saves,
                                   .limit_ns = o->limit,
                                   .threads = (unsigned)o->threads,
                                   .stop = ctx->stop};
    return parse_steps(o->steps, &q->from, &q->to, err);
}

/* Gains end with 0. */
static int status_of(const struct mr_trial *t)
{
    switch (t->judgement.verdict) {
    case MR_TRIAL_CONFIRMED:
    case MR_TRIAL_SMALLER: return 0;
    case MR_TRIAL_UNDECIDED: return mr_error_exit_status(MR_E_INCOMPLETE);
    default: return mr_error_exit_status(MR_E_BUDGET);
    }
}

static int print_text(struct mr_strbuf *text, struct mr_error *err)
{
    int rc = mr_cli_print_text(text, err);
    fflush(stdout);
    return rc;
}

/* The diff, and the script changed. */
static int apply(const struct mr_trial *t, const struct try_options *o, struct mr_error *err)
{
    json_t *places = NULL;
    char *diff = NULL;
    bool write = o->write && !o->dry_run;
    int rc = mr_injection_places(t->finding, &places, err);
    rc = rc ? rc : mr_apply(places, write, &diff, err);
    if (!rc && !o->json) {
        putchar('\n');
        mr_cli_put_text(diff, stdout);
    }
    if (!rc && write)
        mr_log(MR_LOG_NOTE, "the script was changed as shown");
    json_decref(places);
    free(diff);
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
    if (!rc && !o->dry_run)
        rc = mr_trial_run(t, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_trial_json(t, !o->dry_run), err);
    if (!rc && !o->json && !o->dry_run) {
        mr_trial_result_text(t, &text);
        rc = print_text(&text, err);
    }
    int status = o->dry_run ? 0 : status_of(t);
    if (!rc && (o->apply || o->write) && !status)
        rc = apply(t, o, err);
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
