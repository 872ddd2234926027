/* `millrace trace`: runs a program under the tracer (src/launch). The program's standard streams, exit status and
 * signals are its own; ours are a line on stderr at the end, and warnings. */
#include "cli/commands.h"
#include "measure/trace_probe.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "event/calls.h"
#include "event/path_glob.h"
#include "event/raw.h"
#include "launch/trace_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct trace_options {
    const char *out;
    struct mr_strings include, exclude, groups, program;
    uint64_t max_size, linger;
    int64_t signal, sample;
    bool start, python, strays, mmap, probe;
};

struct globs {
    char *include, *exclude; /* as mr_globs_match takes them */
};

#define FIELD(name) .key = #name, .offset = offsetof(struct trace_options, name)
#define ROW(key, field, type, def, ...) MR_OPTION(trace_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option trace_options[] = {
    {FIELD(out), .type = MR_OPT_STRING, .def = "millrace.mrt", .short_flag = 'o',
     .doc = "The trace file; created with mode 0600.", .example = "-o run1.mrt"},
    {FIELD(include), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc =
         "Only files whose absolute path matches one of these globs: '*' (also matches '/'), '?', [a-z], {one,two}; "
         "'FOLDER/' is the folder and all below it. Decided when a file is opened, by the path that the program gives.",
     .example = "--include '/data/*' --include '*.npz'"},
    {FIELD(exclude), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "No files that match one of these globs.", .example = "--exclude '/proc/*'"},
    {FIELD(groups), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_REPEAT,
     .doc = "Only these groups of calls: layers (posix, stdio, uring, mpiio, hdf5, app), kinds (open, read, write, "
            "stat, list ...) or names of calls.",
     .example = "--groups posix,app"},
    {FIELD(max_size), .type = MR_OPT_BYTES, .def = "0", .max = 0x1p62,
     .doc = "Keeps about this much of the newest events; 0 keeps all.", .example = "--max-size 1GiB"},
    {FIELD(start), .type = MR_OPT_BOOL, .def = "true",
     .doc = "Records from the start; --no-start waits for the signal or for millrace_trace_start() in the program."},
    {FIELD(signal), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 64,
     .doc = "A signal (number) that switches recording on and off; 0 installs no handler.", .example = "--signal 12"},
    {FIELD(sample), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 1e9,
     .doc = "Of a call that a thread makes more than 1000 times keep every N-th; how many were left out is counted "
            "exactly. 0 keeps all.",
     .example = "--sample 100"},
    {FIELD(python), .type = MR_OPT_BOOL, .def = "true",
     .doc =
         "Instruments Python programs: the wait for every batch of PyTorch's DataLoader and what its workers did for "
         "it, decoding, transforms, optimiser steps, load and save of arrays, models and images. --no-python leaves "
         "them alone."},
    {FIELD(strays), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also records system calls that bypass the C library (inline assembly, Go, other runtimes). Each costs "
            "some microseconds more. Needs Linux 5.11 on x86-64."},
    {FIELD(mmap), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Also records page faults on mapped files, through the kernel's perf events: which page was touched, when, "
            "and whether it had to be read. Works with statically linked programs, too."},
    {FIELD(probe), .type = MR_OPT_BOOL, .def = "true",
     .doc = "Where a training waited for storage with one reader: asks its data files for a second, when it has ended, "
            "what more readers would get; the answer is in the trace. --no-probe leaves them alone."},
    {FIELD(linger), .type = MR_OPT_DURATION, .def = "2s",
     .doc = "How long to wait for processes that outlive the program; later events are kept for 'millrace recover'."},
    ROW("program", program, STRINGS, "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT | MR_OPTF_REST,
        .doc = "The program and its arguments; options of 'trace' come before it."),
    MR_OPTION_END,
};

/* "a:b:c"; NULL for an empty list. */
static const char *join(const struct mr_strings *list, struct mr_arena *a)
{
    const char *text = NULL;
    for (unsigned i = 0; i < list->n; i++)
        text = text ? mr_arena_printf(a, "%s:%s", text, list->item[i]) : list->item[i];
    return text;
}

static int check_groups(const struct mr_strings *list, struct mr_error *err)
{
    for (unsigned i = 0; i < list->n; i++)
        for (const char *p = list->item[i]; *p;) {
            size_t k = strcspn(p, ",: ");
            if (k && !mr_call_group_known(p, k)) {
                int rc = mr_error_plain(err, MR_E_USAGE, "there is no group or call '%.*s'", (int)k, p);
                mr_error_hint(err, "layers: posix, stdio, uring, mpiio, hdf5, app; kinds: open, read, write, stat ...; "
                                   "or a call as 'millrace report' names it");
                return rc;
            }
            p += k + (p[k] != 0);
        }
    return 0;
}

/* Two mistakes with globs: a relative one, and a folder without the slash that includes its files. */
static void warn_of_glob(const char *flag, const char *glob, const char *globs)
{
    char inside[PATH_MAX];
    struct stat st;
    snprintf(inside, sizeof(inside), "%.4000s/x", glob);
    if (!strchr("/*?[", *glob))
        mr_log(MR_LOG_WARN, "--%s '%s' matches nothing, because paths are absolute; use '*/%s'", flag, glob, glob);
    else if (!strpbrk(glob, "*?[") && stat(glob, &st) == 0 && S_ISDIR(st.st_mode) && !mr_globs_match(globs, inside))
        mr_log(MR_LOG_WARN, "--%s '%s' matches only the folder itself, not its files; use '%s/'", flag, glob, glob);
}

/* The globs of a flag in the form that mr_globs_match takes; the caller frees *out. */
static int read_globs(const char *flag, const struct mr_strings *list, char **out, struct mr_error *err)
{
    struct mr_arena a = {0};
    const char *text = join(list, &a);
    char *save = NULL;
    *out = calloc(1, MR_GLOBS_BYTES);
    char *copy = *out ? malloc(MR_GLOBS_BYTES) : NULL;
    int rc = copy ? 0 : mr_error_set(err, -ENOMEM, "cannot read the globs of --%s", flag);
    if (rc == 0 && !mr_globs_read(text ? text : "", *out, MR_GLOBS_BYTES))
        rc = mr_error_plain(err, MR_E_USAGE,
                            "the globs of --%s are too long: more than %d bytes, with braces spread out", flag,
                            MR_GLOBS_BYTES);
    if (rc == 0) {
        memcpy(copy, *out, MR_GLOBS_BYTES);
        for (char *glob = strtok_r(copy, "\n", &save); glob; glob = strtok_r(NULL, "\n", &save))
            warn_of_glob(flag, glob, *out);
    }
    free(copy);
    mr_arena_done(&a);
    return rc;
}

static int check_signal(int64_t number, struct mr_error *err)
{
    if (!number || mr_signal_can_switch(number))
        return 0;
    mr_error_plain(err, MR_E_USAGE, "bad value '%lld' for '--signal': no program can handle this signal",
                   (long long)number);
    return mr_error_hint(err, "12 (SIGUSR2) is free in most programs"), MR_E_USAGE;
}

static void print_result(const struct trace_options *o, const struct mr_trace_program_result *r)
{
    const struct mr_collect_stats *s = &r->stats;
    char events[MR_HUMAN_LEN], bytes[MR_HUMAN_LEN], processes[MR_HUMAN_LEN];
    if (r->exec_errno)
        fprintf(stderr, "millrace: cannot run '%s': %s\n", o->program.item[0], strerror(r->exec_errno));
    if (!r->spool[0])
        return;
    mr_log(MR_LOG_NOTE, "%s %s of %s %s%s in '%s' (%s)", mr_human_count(s->events, events),
           mr_plural(s->events, "event", "events"), mr_human_count(s->processes, processes),
           mr_plural(s->processes, "process", "processes"), s->dropped ? ", the newest" : "", o->out,
           mr_human_bytes((double)s->bytes, bytes));
    if (r->python[0])
        mr_log(MR_LOG_NOTE, "%s", r->python);
    if (access(o->out, F_OK) != 0)
        mr_log(MR_LOG_WARN, "'%s' was removed while the program ran", o->out);
    if (s->lost)
        mr_log(MR_LOG_WARN, "%llu %s lost", (unsigned long long)s->lost,
               mr_plural(s->lost, "event was", "events were"));
    if (s->unnamed)
        mr_log(MR_LOG_WARN, "the table of file names is full: %llu %s missing, the events are there without a name",
               (unsigned long long)s->unnamed, mr_plural(s->unnamed, "name is", "names are"));
    if (!s->processes && !r->exec_errno)
        mr_log(MR_LOG_WARN,
               "the program did not load the tracer: it is linked statically, not with glibc, for another machine, or "
               "changes its user (setuid)%s",
               s->events ? "; only its page faults were recorded" : "");
    if (s->running)
        mr_log(MR_LOG_WARN, "%u %s running; add their later events with 'millrace recover --out %s %s'", s->running,
               mr_plural(s->running, "process is still", "processes are still"), o->out, r->spool);
}

static int check_options(const struct trace_options *o, struct globs *globs, struct mr_error *err)
{
    if (!o->program.n) {
        mr_error_plain(err, MR_E_USAGE, "no program given");
        return mr_error_hint(err, "millrace trace -o run.mrt -- python train.py"), MR_E_USAGE;
    }
    int rc = check_groups(&o->groups, err);
    rc = rc ? rc : check_signal(o->signal, err);
    rc = rc ? rc : read_globs("include", &o->include, &globs->include, err);
    rc = rc ? rc : read_globs("exclude", &o->exclude, &globs->exclude, err);
    if (rc == 0 && o->strays && !mr_trace_strays_possible())
        mr_log(MR_LOG_WARN, "system calls outside the C library are not recorded: this needs Syscall User Dispatch "
                            "(Linux 5.11 or later, x86-64)");
    return rc;
}

static int run_traced(struct mr_command_ctx *ctx, const struct globs *globs, struct mr_error *err)
{
    const struct trace_options *o = ctx->options;
    struct mr_trace_program_result r;
    char **argv = mr_arena_alloc(ctx->arena, (o->program.n + 1) * sizeof(*argv)); /* zeroed: ends with NULL */
    if (!argv)
        return mr_error_set(err, -ENOMEM, "cannot start '%s'", o->program.item[0]);
    for (unsigned i = 0; i < o->program.n; i++)
        argv[i] = (char *)(uintptr_t)o->program.item[i];
    const struct mr_trace_program_options opt = {
        .argv = argv,
        .out = o->out,
        .settings = {.include = join(&o->include, ctx->arena),
                     .exclude = join(&o->exclude, ctx->arena),
                     .groups = join(&o->groups, ctx->arena),
                     .signal = o->signal,
                     .sample = o->sample,
                     .start = o->start,
                     .python = o->python,
                     .strays = o->strays},
        .include_globs = globs->include,
        .exclude_globs = globs->exclude,
        .mmap = o->mmap,
        .max_bytes = o->max_size,
        .linger_ns = o->linger,
        .ignored = ctx->ignored,
        .stop = ctx->stop,
    };
    int rc = mr_trace_program(&opt, &r, err);
    if (rc < 0)
        return rc;
    print_result(o, &r);
    if (o->probe && r.status == 0 && !r.incomplete && !r.stats.running)
        mr_trace_probe(o->out, r.stats.events, ctx->stop);
    return WIFSIGNALED(r.status) ? 128 + WTERMSIG(r.status) : WEXITSTATUS(r.status);
}

static int trace_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    struct globs globs = {0};
    int rc = check_options(ctx->options, &globs, err);
    rc = rc ? rc : run_traced(ctx, &globs, err);
    free(globs.include);
    free(globs.exclude);
    return rc;
}

const struct mr_command mr_cmd_trace = {
    .name = "trace",
    .synopsis = "[options] [--] PROGRAM [ARGUMENTS]",
    .summary = "record every I/O call of a program, its threads and its children",
    .details = "Runs PROGRAM with a preloaded library that records every call which touches storage, without changing "
               "or rebuilding the program, and writes one trace file. The exit status is the program's (128 + n if "
               "signal n ended it).\n\n"
               "In batch jobs the library works alone: LD_PRELOAD=libmillrace_trace.so with MILLRACE_TRACE_OUT=FOLDER "
               "writes one file per process there; MILLRACE_TRACE_INCLUDE, _EXCLUDE, _GROUPS, _START, _SIGNAL, "
               "_SAMPLE, _MAX_SIZE, _PYTHON and _STRAYS are the options of the same name.\n\n"
               "Statically linked and setuid programs run untraced and are named at the end.\n\n"
               "Example:\n  millrace trace -o run.mrt -- python train.py\n  millrace report run.mrt",
    .table = {.section = "trace",
              .doc = "Recording.",
              .options = trace_options,
              .struct_bytes = sizeof(struct trace_options)},
    .run = trace_run,
};
