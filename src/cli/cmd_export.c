/* `millrace export`: a trace in the format of another tool. */
#include "advise/explain_open.h"
#include "base/log.h"
#include "cli/commands.h"
#include "launch/untraced.h"
#include "report/export.h"
#include "report/export_tensorboard.h"

#include <string.h>

struct export_options {
    struct mr_strings trace;
    const char *out;
    int format;
};

static const char *const formats[] = {"perfetto", "chrome", "pfw", "csv", "timelogger", "tensorboard", NULL};

enum { FORMAT_TENSORBOARD = 5 };

#define FIELD(name) .key = #name, .offset = offsetof(struct export_options, name)
static const struct mr_option export_options[] = {
    {FIELD(trace), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "Traces, or folders of them; '-' is standard input."},
    {FIELD(format), .type = MR_OPT_ENUM, .def = "perfetto", .choices = formats, .short_flag = 'f',
     .doc = "perfetto: protobuf for ui.perfetto.dev; chrome: Chrome JSON; pfw: DFTracer's classic layout, gzip; csv: "
            "one line per event, with its arguments as a JSON object ('args') and, in another ('inherited'), what the "
            "annotations around it say; timelogger: one line per span that the program named, with node, epoch, start "
            "and end in seconds, duration, pid, thread and name; tensorboard: a folder with event files, scalars for "
            "each step."},
    {FIELD(out), .type = MR_OPT_STRING, .def = "", .short_flag = 'o',
     .doc = "The file to write; '-' is standard output. Of tensorboard: a folder.", .example = "-o run.pftrace"},
    MR_OPTION_END,
};

/* The only format that wants an explanation: steps and where their time went. */
static int export_tensorboard(const struct mr_trace *t, const struct export_options *o,
                              const struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    const struct mr_explain_how how = {
        .explain = {.rank = -1, .step_from = -1, .source = o->trace.item[0], .pictures = true, .stop = ctx->stop},
        .folder = o->trace.item[0]};
    int rc = mr_explain_trace(t, &how, &x, err);
    if (!rc && !x->steps)
        mr_log(MR_LOG_WARN, "the trace has no training steps: there are scalars of its I/O only");
    rc = rc ? rc : mr_export_tensorboard(x, o->out, err);
    mr_explanation_free(x);
    return rc;
}

static int export_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct export_options *o = ctx->options;
    struct mr_trace *t = NULL;
    if (!o->trace.n || !*o->out) {
        mr_error_plain(err, MR_E_USAGE, o->trace.n ? "no output file given" : "no trace given");
        return mr_error_hint(err, "millrace export --format perfetto -o run.pftrace run.mrt"), MR_E_USAGE;
    }
    int rc = mr_trace_create(&t, err);
    if (rc == 0)
        t->stop = ctx->stop;
    for (unsigned i = 0; i < o->trace.n && rc == 0; i++)
        mr_warn_unfinished(o->trace.item[i]);
    rc = rc ? rc : mr_trace_add_all(t, (const char *const *)o->trace.item, o->trace.n, 0, err);
    rc = rc ? rc : mr_trace_finish(t, err);
    if (rc == 0 && mr_trace_reads(t, o->out)) {
        rc = mr_error_plain(err, MR_E_USAGE, "'%s' is one of the traces: it would be overwritten", o->out);
        mr_error_hint(err, "name another file with -o");
    }
    if (rc == 0 && (t->skipped_bytes || t->skipped_lines))
        mr_log(MR_LOG_WARN, "%llu bytes and %llu lines are damaged and left out", (unsigned long long)t->skipped_bytes,
               (unsigned long long)t->skipped_lines);
    if (rc == 0 && o->format == FORMAT_TENSORBOARD)
        rc = export_tensorboard(t, o, ctx, err);
    else
        rc = rc ? rc : mr_export(t, (enum mr_export_format)o->format, o->out, err);
    mr_trace_free(t);
    return rc;
}

const struct mr_command mr_cmd_export = {
    .name = "export",
    .synopsis = "[options] -o FILE TRACE...",
    .summary = "write a trace for Perfetto, Chrome, DFTracer, TensorBoard or a spreadsheet",
    .details = "Reads any trace that 'millrace report' reads. Names keep every byte; what a format cannot carry is "
               "escaped.\n\n"
               "Examples:\n  millrace export -f perfetto -o run.pftrace run.mrt\n"
               "  millrace export -f timelogger -o snippets.csv run.mrt\n"
               "  millrace export -f tensorboard -o logs run.mrt",
    .table = {.section = "export",
              .doc = "Export.",
              .options = export_options,
              .struct_bytes = sizeof(struct export_options)},
    .run = export_run,
};
