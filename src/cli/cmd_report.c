/* `millrace report`: where the time of a run or a traced program went, why, and what would change it; tables of calls
 * and files. One explanation, filled once, is what text, JSON and page show. */
#include "advise/advise.h"
#include "advise/explain_open.h"
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "measure/measure_loader.h"
#include "report/page_output.h"
#include "report/print.h"
#include "launch/untraced.h"
#include "analyze/summary.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "loop/injection.h"
#include "report/page.h"
#include "report/report_csv.h"
#include "report/report_run.h"
#include "report/report_tables.h"
#include "report/report_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct report_options {
    struct mr_strings trace;
    const char *steps, *path, *time, *explain, *html, *csv;
    int64_t rank, top, threads;
    bool json, all, tables, anonymous, measure;
};

#define RANGE_MAX 9e9        /* seconds as ns fit 64 bits */
#define SPANS_EVENTS 200000u /* spans of larger traces are listed on the page only: they cost another look */

#define FIELD(name) .key = #name, .offset = offsetof(struct report_options, name)
static const struct mr_option report_options[] = {
    {FIELD(trace), .type = MR_OPT_STRINGS, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REPEAT,
     .doc = "The results folder of a 'millrace run', or traces: .mrt, DFTracer's .pfw, the Chrome JSON of "
            "torch.profiler, the CSV of TimeLogger, all also gzipped, logs of Darshan or the text of its parsers, or "
            "folders of them; '-' is standard input."},
    {FIELD(steps), .type = MR_OPT_STRING, .def = "",
     .doc = "Only what starts during these training steps of its rank: spans with an argument 'step'.",
     .example = "--steps 10:20"},
    {FIELD(rank), .type = MR_OPT_INT, .def = "-1", .min = -1, .max = 0x1p31, .doc = "Only this rank; -1 takes all."},
    {FIELD(path), .type = MR_OPT_STRING, .def = "",
     .doc = "Only events on files that match this glob: '*' also matches '/', {one,two} is either, 'FOLDER/' the "
            "folder and all below it.",
     .example = "--path '/data/*.npz'"},
    {FIELD(time), .type = MR_OPT_STRING, .def = "", .doc = "Only this part of the run, in seconds from its start.",
     .example = "--time 10:60.5"},
    {FIELD(all), .type = MR_OPT_BOOL, .def = "false", .doc = "Every finding, every cause and the tables."},
    {FIELD(tables), .type = MR_OPT_BOOL, .def = "false",
     .doc = "The tables: calls and regions, sizes, ranks, files; of a run also its own figures."},
    {FIELD(explain), .type = MR_OPT_STRING, .def = "",
     .doc = "One rule of the advisor: condition, measured values, evidence, formula, and why other rules are silent.",
     .example = "--explain PF1"},
    {FIELD(html), .type = MR_OPT_STRING, .def = "", .doc = MR_DOC_HTML, .example = "--html report.html"},
    {FIELD(csv), .type = MR_OPT_STRING, .def = "",
     .doc = "Also writes steps.csv, ranks.csv, files.csv, timeline.csv and metrics.txt (OpenMetrics) into this folder.",
     .example = "--csv tables"},
    {FIELD(anonymous), .type = MR_OPT_BOOL, .def = "false", .doc = MR_DOC_ANONYMOUS " Not with --json and tables."},
    {FIELD(measure), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Where a program decodes pictures: reads some of them with our own loader for two seconds, on this "
            "machine, for the "
            "advice LD1. Without it a report of one trace is always the same."},
    {FIELD(top), .type = MR_OPT_INT, .def = "10", .min = 0, .max = 1e6, .doc = "How many files to list."},
    MR_ROW_THREADS(offsetof(struct report_options, threads), MR_DOC_THREADS),
    MR_ROW_JSON(offsetof(struct report_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* One end of a range: a number that is not negative, an integer if `whole`. Returns what follows it, NULL if there is
 * none. */
static const char *parse_end(const char *text, bool whole, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0 && v <= RANGE_MAX) || (whole && v != floor(v)))
        return NULL;
    *out = v;
    return end;
}

/* "a:b", ":b", "a:" or "a"; *to is -1 for an open end. Steps are integers, and "a" alone is one step; a range of time
 * must not be empty. */
static int parse_range(const char *key, const char *text, bool steps, double *from, double *to, struct mr_error *err)
{
    const char *at = text;
    *from = 0;
    *to = -1;
    if (*at != ':')
        at = parse_end(at, steps, from);
    if (at && !*at && steps)
        *to = *from;
    else if (at && *at == ':' && at[1])
        at = parse_end(at + 1, steps, to);
    else if (at && *at == ':')
        at++;
    if (at && !*at && (*to < 0 || *to > *from || (steps && *to == *from)))
        return 0;
    mr_error_plain(err, MR_E_USAGE, "bad value '%s' for '--%s': want FROM:TO%s", text, key,
                   steps ? ", whole numbers" : ", in seconds");
    return mr_error_hint(err, "for example --%s 10:20", key), MR_E_USAGE;
}

static int read_filters(const struct report_options *o, struct mr_summary_options *s, struct mr_error *err)
{
    double from, to;
    int rc = 0;
    *s =
        (struct mr_summary_options){.threads = (unsigned)o->threads, .rank = o->rank, .step_from = -1, .path = o->path};
    if (*o->steps) {
        rc = parse_range("steps", o->steps, true, &from, &to, err);
        s->step_from = (int64_t)from;
        s->step_to = to < 0 ? INT64_MAX : (int64_t)to;
    }
    if (rc == 0 && *o->time) {
        rc = parse_range("time", o->time, false, &from, &to, err);
        s->from_ns = (uint64_t)(from * 1e9 + 0.5); /* rounded: 0.3 is a little less as a double */
        s->to_ns = to < 0 ? 0 : (uint64_t)(to * 1e9 + 0.5);
    }
    return rc;
}

static bool has_filter(const struct report_options *o)
{
    return o->trace.n != 1 || *o->steps || *o->path || *o->time || o->rank >= 0;
}

/* Whether filters leave anything. */
static bool left(const struct mr_explanation *x, const struct report_options *o)
{
    return *o->steps ? x->steps > 0 : x->ranks > 0;
}

/* Colour only for a person at a terminal that has it. */
static bool wants_colour(void)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* Whether 'millrace try' measures the best finding on the program that was traced. */
static bool can_try(const struct report_options *o, const struct mr_explanation *x)
{
    return o->trace.n == 1 && !x->facts.own_run && !(x->facts.nodes > 1) && x->start && x->start->command &&
           x->start->command[0] && x->finding[0].severity > MR_SEVERITY_NOTE &&
           mr_injection_possible(x, &x->finding[0]);
}

/* A command that exists and leads on. */
static const char *next_command(const struct report_options *o, const struct mr_explanation *x, struct mr_arena *a)
{
    char word[4200];
    struct mr_strbuf paths = {0};
    if (!o->trace.n || o->anonymous)
        return NULL;
    for (unsigned i = 0; i < o->trace.n; i++)
        mr_strbuf_printf(&paths, " %s", mr_shell_word(o->trace.item[i], word, sizeof word));
    bool quiet = x->findings && mr_report_shown(x) == 0; /* notes about a run that is fine */
    bool why = x->facts.has_steps && !x->facts.own_run && x->verdict.verdict == MR_VERDICT_INPUT &&
               x->verdict.cause == MR_STALL_UNKNOWN;
    const char *next = NULL;
    if (why && !x->findings)
        next = "millrace trace -o run.mrt -- python train.py    # sees workers and I/O";
    else if (x->findings && !quiet)
        next = mr_arena_printf(a, "millrace report%s --explain %s%s%s%s", paths.text, x->finding[0].id,
                               can_try(o, x) ? mr_arena_printf(a, "\n       millrace try %s", x->finding[0].id) : "",
                               can_try(o, x) ? paths.text : "",
                               can_try(o, x) ? "    # measures it, on the program itself" : "");
    else
        next = mr_arena_printf(a, "millrace report%s %s", paths.text,
                               quiet                                     ? "--all"
                               : !x->facts.has_steps && x->snippets      ? "--html report.html"
                               : !x->facts.has_steps || x->facts.own_run ? "--tables"
                                                                         : "--html report.html");
    mr_strbuf_done(&paths);
    return next;
}

static int print_screen(const struct report_options *o, const struct mr_explanation *x, struct mr_arena *a,
                        struct mr_error *err)
{
    struct mr_strbuf text = {0};
    struct mr_report_text how = {.colour = wants_colour(), .all = o->all, .next = next_command(o, x, a)};
    mr_report_text(x, &how, &text);
    return mr_cli_print_text(&text, err);
}

static int print_rule(const struct mr_explanation *x, const char *id, struct mr_error *err)
{
    char *text = NULL;
    int rc = mr_advise_text(x, id, &text, err);
    if (!rc)
        mr_cli_put_text(text, stdout);
    free(text);
    return rc;
}

/* What one call of the command works with. */
struct report {
    const struct report_options *o;
    struct mr_trace *t;
    struct mr_summary *s;
    struct mr_explanation *x;
    struct mr_report_run *run;
};

static void report_done(struct report *r)
{
    mr_report_run_free(r->run);
    mr_explanation_free(r->x);
    mr_summary_free(r->s);
    mr_trace_free(r->t);
}

static int open_trace(struct report *r, const atomic_bool *stop, struct mr_error *err)
{
    const struct report_options *o = r->o;
    for (unsigned i = 0; i < o->trace.n; i++) {
        mr_warn_unfinished(o->trace.item[i]);
        mr_warn_untraced(o->trace.item[i]);
    }
    return mr_explain_read((const char *const *)o->trace.item, o->trace.n, (unsigned)o->threads, stop, &r->t, err);
}

/* What the report is of; for programs a path. */
static const char *sources(const struct report_options *o, struct mr_arena *a)
{
    const char *first = o->trace.item[0];
    if (o->trace.n < 2 || o->json)
        return first;
    return o->trace.n == 2 ? mr_arena_printf(a, "%s, %s", first, o->trace.item[1])
                           : mr_arena_printf(a, "%s and %u others", first, o->trace.n - 1);
}

static int explain(struct report *r, const struct mr_summary_options *filters, const atomic_bool *stop,
                   struct mr_arena *a, struct mr_error *err)
{
    const struct mr_explain_how how = {
        .explain = {.threads = filters->threads,
                    .rank = filters->rank,
                    .step_from = filters->step_from,
                    .step_to = filters->step_to,
                    .from_ns = filters->from_ns,
                    .to_ns = filters->to_ns,
                    .source = sources(r->o, a),
                    .path = r->o->trace.n == 1 && !r->o->anonymous ? r->o->trace.item[0] : NULL,
                    .workload = mr_report_run_workload_name(r->run),
                    .pictures = *r->o->html || *r->o->csv || !r->t->sees ||
                                r->t->events < SPANS_EVENTS, /* the screen lists named spans */
                    .stop = stop},
        .folder = r->o->trace.item[0],
        .measure = r->o->measure ? mr_measure_loader : NULL,
    };
    int rc = mr_explain_trace(r->t, &how, &r->x, err);
    return rc || !r->o->anonymous ? rc : mr_explanation_anonymise(r->x, err);
}

static int print_report(struct report *r, struct mr_arena *a, struct mr_error *err)
{
    const struct report_options *o = r->o;
    bool tables = o->tables || o->all || *o->path; /* of single files there are only tables */
    if (o->json)
        return mr_report_print_json(r->s, r->x, r->run ? mr_report_run_json(r->run) : NULL, o->top, err);
    if (*o->explain)
        return print_rule(r->x, o->explain, err);
    int rc = *o->path ? 0 : print_screen(o, r->x, a, err);
    if (rc || !tables)
        return rc;
    if (!*o->path)
        putchar('\n');
    struct mr_strbuf text = {0};
    if (r->run)
        mr_report_run_text(r->run, r->x, &text);
    if ((rc = mr_cli_print_text(&text, err)))
        return rc;
    mr_report_print_tables(stdout, r->s, o->top);
    return 0;
}

/* Tables have names that nothing replaces, and of single files there is no explanation. */
static int check_page(const struct report_options *o, struct mr_error *err)
{
    if (o->anonymous && (*o->csv || o->json || o->tables || o->all || *o->path))
        return mr_error_plain(err, MR_E_USAGE, "--anonymous does not go with %s, which shows names",
                              *o->csv     ? "--csv"
                              : o->json   ? "--json"
                              : o->tables ? "--tables"
                              : o->all    ? "--all"
                                          : "--path");
    if ((*o->html || *o->csv) && *o->path)
        return mr_error_plain(err, MR_E_USAGE, "--%s shows a whole run: leave out --path", *o->html ? "html" : "csv");
    if (strcmp(o->html, "-") == 0 && o->json)
        return mr_error_plain(err, MR_E_USAGE, "--html - and --json both write to standard output");
    return 0;
}

static int write_page(const struct report *r, struct mr_error *err)
{
    const struct mr_page_request q = {.path = r->o->html,
                                      .title = "millrace report",
                                      .w = r->run ? mr_report_run_workload(r->run) : NULL,
                                      .anonymous = r->o->anonymous};
    return mr_cli_write_page(r->x, &q, err);
}

/* Zeros of a trace with nothing in it would look like a result. */
static int check_events(const struct report *r, struct mr_error *err)
{
    const struct mr_trace *t = r->t;
    const char *name = r->o->trace.item[0], *more = r->o->trace.n > 1 ? " and the others" : "";
    if (t->events || t->counters)
        return 0;
    if (!t->skipped_lines && !t->skipped_bytes && !t->unended)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no event in '%s'%s", name, more);
    if (t->gone)
        return mr_error_plain(err, MR_E_FORMAT,
                              "none of the %llu events that '%s'%s had can be read (%llu bytes are damaged)",
                              (unsigned long long)t->gone, name, more, (unsigned long long)t->skipped_bytes);
    return mr_error_plain(
        err, MR_E_FORMAT,
        "there is no event in '%s'%s: it was cut off or is no trace (%llu bytes and %llu %s cannot be read)", name,
        more, (unsigned long long)t->skipped_bytes, (unsigned long long)t->skipped_lines,
        mr_plural(t->skipped_lines, "line", "lines"));
}

/* What is left of a damaged trace is worth reading, and no result. */
static int check_whole(const struct report *r, struct mr_error *err)
{
    const struct mr_trace *t = r->t;
    if (!t->skipped_bytes && !t->unfinished)
        return 0;
    return mr_error_plain(err, MR_E_INCOMPLETE,
                          t->skipped_bytes ? "the trace is cut off or damaged: figures are of the part that is left"
                                           : "the trace does not reach its end: figures are of the part that is there");
}

/* Filters that leave nothing. Programs that read JSON or tables get empty ones; a screen of zeros would look like a
 * result. */
static int say_nothing_left(const struct report *r, struct mr_error *err)
{
    const struct report_options *o = r->o;
    const char *why = *o->steps      ? ": steps are spans with an argument 'step'"
                      : o->rank >= 0 ? ": ranks are those of MPI, Slurm or torchrun"
                                     : "";
    if (!o->json && !r->s)
        return mr_error_plain(err, MR_E_FORMAT, "no event of %llu matches%s", (unsigned long long)r->t->events, why);
    mr_log(MR_LOG_WARN, "no event of %llu matches%s", (unsigned long long)r->t->events, why);
    return 0;
}

static int report_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct report_options *o = ctx->options;
    struct report r = {.o = o};
    struct mr_summary_options filters;
    if (!o->trace.n) {
        mr_error_plain(err, MR_E_USAGE, "no trace given");
        return mr_error_hint(err, "millrace report run.mrt"), MR_E_USAGE;
    }
    int rc = check_page(o, err);
    rc = rc ? rc : read_filters(o, &filters, err);
    rc = rc ? rc : open_trace(&r, ctx->stop, err);
    rc = rc ? rc : check_events(&r, err);
    filters.top_files = o->top ? (size_t)o->top : 1; /* 0 would be all */
    bool tables = o->json || o->tables || o->all || *o->path;
    if (rc == 0 && tables)
        rc = mr_summarise(r.t, &filters, ctx->stop, &r.s, err);
    if (rc == 0 && !has_filter(o)) /* a part of a run has no figures of its own */
        rc = mr_report_run_open(o->trace.item[0], r.t, ctx->arena, &r.run, err);
    if (rc == 0 && !*o->path)
        rc = explain(&r, &filters, ctx->stop, ctx->arena, err);
    bool none = rc == 0 && r.t->events && (r.s ? !r.s->events : has_filter(o) && !*o->path && !left(r.x, o));
    if (none)
        rc = say_nothing_left(&r, err);
    if (rc == 0 && strcmp(o->html, "-") != 0)
        rc = print_report(&r, ctx->arena, err);
    if (rc == 0 && *o->csv)
        rc = mr_report_csv(o->csv, r.x, err);
    if (rc == 0 && *o->html)
        rc = write_page(&r, err);
    rc = rc ? rc : check_whole(&r, err);
    report_done(&r);
    return rc;
}

const struct mr_command mr_cmd_report = {
    .name = "report",
    .synopsis = "[options] TRACE...",
    .summary = "explain traces: where the time went, why, what to change",
    .details =
        "Reads the results folder of a 'millrace run', traces of 'millrace trace', DFTracer and torch.profiler, logs "
        "of "
        "Darshan and the CSV of TimeLogger, several at once, and says where the time of the training went, why it "
        "waited for data, and what would change "
        "it by how many seconds. 'doc/guides/explain.md' describes how it is computed.\n\n"
        "With --tables: who ran, how time splits between compute and I/O, every function with counts, bytes, times and "
        "sizes, and the busiest files. Overlap is computed by exact interval unions, over all and for every rank. Size "
        "quantiles are exact "
        "while a function has at most 256 different sizes per 32768 events and 4096 in all, otherwise within 3.2 %, as "
        "latency quantiles are; between two values both are interpolated, as NumPy does it. Everything else is exact. "
        "With filters, processes, threads and nodes are those of which something is left.\n\n"
        "Example:\n  millrace report --time 10:60 run.mrt\n  millrace report results/unet3d --html report.html\n  "
        "millrace report results/unet3d --csv tables",
    .table = {.section = "report",
              .doc = "Report.",
              .options = report_options,
              .struct_bytes = sizeof(struct report_options)},
    .run = report_run,
};
