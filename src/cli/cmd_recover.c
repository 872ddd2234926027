/* `millrace recover`: turns what a killed trace left behind into a whole .mrt file. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "launch/recover.h"

struct recover_options {
    const char *from, *out;
    bool json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct recover_options, name)
static const struct mr_option recover_options[] = {
    {FIELD(from), .type = MR_OPT_STRING, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
     .doc = "The trace file of the interrupted 'millrace trace', its spool folder, or the folder given as "
            "MILLRACE_TRACE_OUT."},
    {FIELD(out), .type = MR_OPT_STRING, .def = "", .short_flag = 'o',
     .doc = "The trace file to write or continue; by default the interrupted one, or FOLDER/recovered.mrt."},
    MR_ROW_JSON(offsetof(struct recover_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

static int recover_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct recover_options *o = ctx->options;
    char n1[MR_HUMAN_LEN], n2[MR_HUMAN_LEN];
    struct mr_recovery r;
    int rc = mr_recover(o->from, o->out, &r, err);
    if (rc < 0)
        return rc;
    const struct mr_collect_stats *s = &r.stats;
    if (o->json)
        printf("{\"schema\":\"millrace.recover/"
               "1\",\"events\":%llu,\"processes\":%llu,\"lost_events\":%llu,\"killed_processes\":%u,\"running_"
               "processes\":%u,\"unreadable_rings\":%u,\"file_bytes\":%llu}\n",
               (unsigned long long)s->events, (unsigned long long)s->processes, (unsigned long long)s->lost, s->killed,
               s->running, r.unreadable, (unsigned long long)s->bytes);
    else if (r.nothing)
        printf("nothing to recover in '%s'\n", o->from);
    else
        printf("recovered %s %s of %s %s into '%s'\n", mr_human_count(s->events, n1),
               mr_plural(s->events, "event", "events"), mr_human_count(s->processes, n2),
               mr_plural(s->processes, "process", "processes"), r.out);
    if (s->running)
        mr_log(MR_LOG_WARN, "%u %s running", s->running,
               mr_plural(s->running, "process is still", "processes are still"));
    return 0;
}

const struct mr_command mr_cmd_recover = {
    .name = "recover",
    .synopsis = "[options] TRACE|FOLDER",
    .summary = "complete a trace that was interrupted",
    .details =
        "Events live in shared memory until they are written to the trace, so a killed program or a killed collector "
        "loses nothing. This command writes what is left into the trace file and removes the leftovers.\n\n"
        "Example:\n  millrace recover run.mrt",
    .table = {.section = "recover",
              .doc = "Recovery.",
              .options = recover_options,
              .struct_bytes = sizeof(struct recover_options)},
    .run = recover_run,
};
