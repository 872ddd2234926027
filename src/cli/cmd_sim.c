/* `millrace sim`: how long would this training run take, under which policy? Prints one sorted table, a table over the
 * points of a sweep, or how much storage a node needs. The scenario is a file, or a workload and a machine put
 * together. */
#include "cli/commands.h"
#include "report/page_output.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "base/common.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/strbuf.h"
#include "base/temp_folder.h"
#include "report/sim_text.h"
#include "advise/explain_open.h"
#include "job/job_scenario.h"
#include "model/system_yaml.h"
#include "sim/scenario_yaml.h"
#include "sim/study.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_options {
    const char *scenario, *policy, *trace, *from, *config_dir, *html;
    struct mr_strings sweep;
    int compat, method;
    int64_t seeds, grain, threads;
    uint64_t memory;
    double max_stall;
    bool plan, list, access, json, csv, allow_plugins;
};

static const char *const compat_names[] = {"none", "thesis", NULL};

#define ROW(key, field, type, def, ...) MR_OPTION(sim_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option sim_rows[] = {
    ROW("scenario", scenario, STRING, "", .flags = MR_OPTF_POSITIONAL,
        .doc = "A scenario file, or the name of a shipped one; or give workload=NAME system=NAME.",
        .example = "millrace sim thesis-2"),
    ROW("policy", policy, STRING, "all", .short_flag = 'p', .doc = "Policies, separated by commas, or all.",
        .example = "--policy nopfs,millrace"),
    ROW("compat", compat, ENUM, "none", .choices = compat_names,
        .doc = "none: resources are truly shared. thesis: the rules of the published simulator, with its quirks."),
    ROW("seeds", seeds, INT, "1", .min = 1, .max = 1000, .doc = "Runs with so many seeds and prints means and spread."),
    ROW("sweep", sweep, STRINGS, "[]", .flags = MR_OPTF_REPEAT,
        .doc = "Runs once for every value of a key. Given several times: once for every combination.",
        .example = "--sweep nodes=1,2,4,8 --sweep class1=10GB,100GB"),
    ROW("from", from, STRING, "",
        .doc = "Takes data set, compute, rates and tiers from the results folder of a finished run; nothing changed, "
               "prediction and measurement of its own policy stand side by side.",
        .example = "--from results/unet3d nodes=8"),
    ROW("trace", trace, STRING, "",
        .doc =
            "Writes the simulated run's events, for 'millrace report' and 'millrace export'; with several policies one "
            "file each, named FILE-POLICY.mrt.",
        .example = "--trace sim.mrt"),
    ROW("html", html, STRING, "", .doc = MR_DOC_HTML " With one policy the simulated run is explained like a real one.",
        .example = "--html sim.html"),
    ROW("plan", plan, BOOL, "false",
        .doc = "Finds the least storage per node that keeps stall under --max-stall for one policy (millrace, or "
               "--policy)."),
    ROW("max_stall", max_stall, DOUBLE, "0.01", .min = 0, .max = 1,
        .doc = "With --plan: the stall allowed, as a share of the run time."),
    ROW("access", access, BOOL, "false",
        .doc = "Instead of policies: how often a node reads a sample, how far apart, and the reads that leave it for a "
               "cache of any size under "
               "random, frequency and next-use placement."),
    ROW("list", list, BOOL, "false", .doc = "Lists the scenarios and systems that can be named."),
    ROW("grain", grain, INT, "0", .min = 0, .max = 1e6,
        .doc = "Samples moved together: 1 is exact, larger is faster; 0 chooses by the length of the run."),
    ROW("method", method, ENUM, "auto", .choices = mr_sim_method_names,
        .doc =
            "exact: every sample's place is known. expected: whole steps, sources by the policy's expected behaviour; "
            "for very "
            "large runs. auto: exact, unless its tables exceed --memory."),
    ROW("memory", memory, BYTES, "4GiB", .doc = "The most memory the simulation may take."),
    ROW("threads", threads, INT, "0", .min = 0, .max = 64,
        .doc = "Threads of the expected method; 0: as many as processors. The exact one takes one."),
    ROW("config_dir", config_dir, STRING, "", .doc = "Folder searched first for scenarios/ and systems/."),
    ROW("allow_plugins", allow_plugins, BOOL, "false", .doc = MR_DOC_ALLOW_PLUGINS),
    ROW("csv", csv, BOOL, "false", .doc = "Prints one line of CSV for every policy, and with --sweep for every point."),
    ROW("json", json, BOOL, "false", .short_flag = 'j', .doc = "Prints one JSON object."),
    MR_OPTION_END,
};

static int parse_policies(const char *text, bool chosen[MR_POLICY_MAX], struct mr_error *err)
{
    if (strcmp(text, "all") == 0) {
        for (int p = 0; p < mr_policy_count(); p++)
            chosen[p] = true;
        return 0;
    }
    if (!*text) {
        mr_error_plain(err, MR_E_USAGE, "--policy is empty");
        return mr_error_hint(err, "'millrace help policies' lists them; 'all' runs every one"), MR_E_USAGE;
    }
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)MR_MIN(n, sizeof name - 1), at);
        enum mr_policy_id id;
        int rc = mr_policy_parse(name, &id, err);
        if (rc)
            return rc;
        chosen[id] = true;
        at += n + (at[n] == ',');
    }
    return 0;
}

/* `extra`: words of a sweep's point. */
static int load_scenario(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_strings *extra,
                         bool is_first, struct mr_scenario *out, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    const struct mr_job_study_request q = {.scenario = o->scenario,
                                           .from = o->from,
                                           .words = ctx->overrides,
                                           .more_words = *extra,
                                           .search_path = *search,
                                           .envp = environ,
                                           .arena = ctx->arena,
                                           .stop = ctx->stop,
                                           .logs_notes = is_first};
    return mr_job_choose_scenario(&q, out, err);
}

/* ---- list ---- */

static int list_all(struct mr_command_ctx *ctx, const struct mr_strings *search, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_strings scenarios = {0}, systems = {0}, none = {0};
    int rc = mr_model_list_files("scenarios", search, ctx->arena, &scenarios, err);
    if (!rc)
        rc = mr_model_list_files("systems", search, ctx->arena, &systems, err);
    json_t *a = json_array(), *b = json_array();
    if (!rc && !o->json)
        puts("scenarios");
    for (unsigned i = 0; i < scenarios.n && !rc; i++) {
        struct mr_scenario s;
        char count[MR_HUMAN_LEN];
        rc = mr_scenario_load(scenarios.item[i], search, &none, ctx->arena, &s, err);
        if (!rc && !o->json)
            printf("  %-*s %5u %-6s %10s samples, %3u %-7s on %s\n", mr_cli_widest(&scenarios, 22), scenarios.item[i],
                   s.nodes, s.nodes == 1 ? "node," : "nodes,", mr_human_count(s.samples, count), s.epochs,
                   s.epochs == 1 ? "epoch" : "epochs", s.system.name);
        if (!rc)
            json_array_append_new(a, json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", scenarios.item[i], "system",
                                               s.system.name, "nodes", (json_int_t)s.nodes, "samples",
                                               (json_int_t)s.samples, "epochs", (json_int_t)s.epochs));
    }
    if (!rc && !o->json)
        puts("systems");
    for (unsigned i = 0; i < systems.n && !rc; i++) {
        struct mr_system s;
        rc = mr_system_load(systems.item[i], search, ctx->arena, &s, err);
        if (!rc && !o->json)
            printf("  %-*s %s\n", mr_cli_widest(&systems, 22), systems.item[i], s.source);
        if (!rc)
            json_array_append_new(b, json_pack("{s:s, s:s, s:i}", "name", systems.item[i], "source", s.source,
                                               "classes", (int)s.n_classes));
    }
    if (rc || !o->json) {
        json_decref(a);
        json_decref(b);
        return rc;
    }
    return mr_cli_print_json(
        stdout, json_pack("{s:s, s:o, s:o}", "schema", "millrace.sim_list/1", "scenarios", a, "systems", b), err);
}

/* ---- run ---- */

static const struct mr_strings no_words;

/* The scenario of a point, checked: a sweep must not fail at its last value after an hour. */
static int load_point(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_sim_sweep *sw,
                      unsigned point, struct mr_scenario *out, struct mr_error *err)
{
    const char *words[MR_SWEEP_AXES];
    struct mr_strings extra = {.item = words};
    for (unsigned x = 0; x < sw->grid.n_axes; x++) {
        words[extra.n++] =
            mr_arena_printf(ctx->arena, "%s=%s", sw->grid.axis[x].key, mr_sweep_value(&sw->grid, point, x));
        if (!words[x])
            return mr_error_set(err, -ENOMEM, "sweep");
    }
    int rc = load_scenario(ctx, search, &extra, point == 0, out, err);
    if (!rc)
        rc = mr_scenario_check(out, err);
    if (!rc && out->batch_asked != out->batch)
        mr_log(MR_LOG_NOTE, "a batch of %llu does not divide among %u nodes; steps of %llu are simulated",
               (unsigned long long)out->batch_asked, out->nodes, (unsigned long long)out->batch);
    return rc;
}

static bool one_policy(const struct mr_study_options *so)
{
    unsigned n = 0;
    for (int p = 0; p < mr_policy_count(); p++)
        n += so->policies[p];
    return n == 1;
}

static int write_page(const struct sim_options *o, const struct mr_sim_sweep *sw, const struct mr_study_options *so,
                      struct mr_error *err)
{
    struct mr_explanation *x = NULL;
    const struct mr_explain_how how = {
        .explain = {.rank = -1, .step_from = -1, .source = o->scenario, .pictures = true, .stop = so->stop}};
    int rc = so->trace && one_policy(so) ? mr_explain_open(&so->trace, 1, &how, &x, err) : 0;
    rc = rc ? rc : mr_report_sim_page(sw, x, o->html, err);
    if (!rc)
        mr_cli_tell_page(o->html);
    mr_explanation_free(x);
    return rc;
}

/* One study; `run` is what it can be held against, or NULL. */
static int show_study(const struct sim_options *o, const struct mr_study *st, const struct mr_study_options *so,
                      const struct mr_job_measured *run, struct mr_error *err)
{
    if (o->json) {
        json_t *j = mr_report_study_json(st, so->thesis, so->seeds);
        if (j && run)
            json_object_set_new(j, "against", mr_report_against_json(st, run));
        return mr_cli_print_json(stdout, j, err);
    }
    struct mr_strbuf text = {0};
    mr_report_study(st, so->thesis, &text);
    if (run)
        mr_report_against(st, run, &text);
    return mr_cli_print_text(&text, err);
}

static int show_sweep(const struct sim_options *o, const struct mr_sim_sweep *sw, const struct mr_study_options *so,
                      const struct mr_job_measured *run, struct mr_error *err)
{
    int rc = *o->html ? write_page(o, sw, so, err) : 0;
    if (rc || strcmp(o->html, "-") == 0)
        return rc;
    if (!o->csv && !sw->grid.n_axes)
        return show_study(o, &sw->studies[0], so, run, err);
    if (o->json)
        return mr_cli_print_json(stdout, mr_report_sweep_json(sw, so->thesis, so->seeds), err);
    struct mr_strbuf text = {0};
    if (o->csv)
        mr_report_sweep_csv(sw, &text);
    else
        mr_report_sweep(sw, &text);
    return mr_cli_print_text(&text, err);
}

/* On a terminal only: a short study need not talk in a log. */
static int start_progress(const struct mr_sim_sweep *sw, struct mr_study_options *so, struct mr_error *err)
{
    unsigned policies = 0;
    for (int p = 0; p < mr_policy_count(); p++)
        policies += so->policies[p];
    const struct mr_progress_options po = {.verb = "simulating",
                                           .unit = "runs",
                                           .total = (uint64_t)policies * so->seeds * sw->grid.n,
                                           .stream = stderr,
                                           .force_tty = -1};
    return isatty(STDERR_FILENO) && mr_log_shows(MR_LOG_NOTE) ? mr_progress_start(&po, &so->progress, err) : 0;
}

/* All points are loaded and checked before the first is simulated. Without --sweep there is one point. */
static int run_points(struct mr_command_ctx *ctx, const struct mr_strings *search, struct mr_study_options *so,
                      struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_sim_sweep sw;
    int rc = mr_sweep_parse(&o->sweep, ctx->arena, &sw.grid, err);
    if (rc)
        return rc;
    sw.studies = calloc(sw.grid.n, sizeof(*sw.studies));
    struct mr_scenario *points = calloc(sw.grid.n, sizeof(*points));
    if (!points || !sw.studies)
        rc = mr_error_set(err, -ENOMEM, "cannot hold the sweep");
    for (unsigned i = 0; i < sw.grid.n && !rc; i++)
        rc = load_point(ctx, search, &sw, i, &points[i], err);
    if (!rc)
        rc = start_progress(&sw, so, err);
    for (unsigned i = 0; i < sw.grid.n && !rc; i++)
        rc = mr_study_run(&points[i], so, &sw.studies[i], err);
    mr_progress_stop(so->progress);
    so->progress = NULL;
    /* A scenario that was changed is not the run's any more; the published rules have no epochs. */
    struct mr_job_measured run;
    bool same = *o->from && !ctx->overrides.n && !o->sweep.n && !so->thesis;
    if (!rc && same)
        rc = mr_job_load_measured(o->from, &run, err);
    if (!rc)
        rc = show_sweep(o, &sw, so, same ? &run : NULL, err);
    free(points);
    free(sw.studies);
    return rc;
}

/* A page of one policy shows its simulated run, for which a trace is made and removed again; where the run cannot be
 * traced (several seeds, the expected method) the page has the study alone. */
static int run_for_page(struct mr_command_ctx *ctx, const struct mr_strings *search, struct mr_study_options *so,
                        struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    char folder[4096], trace[4200];
    if (!*o->html || so->trace || o->sweep.n || !one_policy(so) || so->thesis || so->seeds != 1 ||
        so->method == MR_SIM_EXPECTED)
        return run_points(ctx, search, so, err);
    int rc = mr_temp_folder_make("", "sim", folder, sizeof folder, err);
    if (rc)
        return rc;
    snprintf(trace, sizeof trace, "%s/sim.mrt", folder);
    so->trace = trace;
    rc = run_points(ctx, search, so, err);
    so->trace = NULL;
    int removed = mr_temp_folder_remove(folder, rc ? NULL : err);
    return rc ? rc : removed;
}

static int run_plan(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_study_options *so,
                    struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    enum mr_policy_id policy = MR_POLICY_MILLRACE;
    struct mr_scenario s;
    int rc = strcmp(o->policy, "all") ? mr_policy_parse(o->policy, &policy, err) : 0;
    if (!rc)
        rc = load_scenario(ctx, search, &no_words, true, &s, err);
    struct mr_storage_plan *plan = rc ? NULL : calloc(1, sizeof(*plan));
    if (!rc)
        rc = plan ? mr_study_plan(&s, policy, o->max_stall, so, plan, err) : mr_error_set(err, -ENOMEM, "planning");
    struct mr_strbuf text = {0};
    if (!rc && !o->json)
        mr_report_storage_plan(plan, &s, &text);
    if (!rc)
        rc = o->json ? mr_cli_print_json(stdout, mr_report_storage_plan_json(plan, &s), err)
                     : mr_cli_print_text(&text, err);
    free(plan);
    return rc;
}

static int run_access(struct mr_command_ctx *ctx, const struct mr_strings *search, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_access_study a;
    struct mr_scenario s;
    int rc = load_scenario(ctx, search, &no_words, true, &s, err);
    if (!rc)
        rc = mr_access_study(&s, &a, err);
    if (rc)
        return rc;
    struct mr_strbuf text = {0};
    if (!o->json)
        mr_report_access(&s, &a, &text);
    rc = o->json ? mr_cli_print_json(stdout, mr_report_access_json(&s, &a), err) : mr_cli_print_text(&text, err);
    mr_access_study_done(&a);
    return rc;
}

static int sim_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_study_options so = {.thesis = o->compat == 1,
                                  .seeds = (unsigned)o->seeds,
                                  .grain = (uint64_t)o->grain,
                                  .method = (enum mr_sim_method)o->method,
                                  .memory_bytes = (double)o->memory,
                                  .threads =
                                      o->threads ? (unsigned)o->threads : (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
                                  .stop = ctx->stop,
                                  .trace = *o->trace ? o->trace : NULL};
    struct mr_strings search;
    mr_cli_choose_plugins(false, o->allow_plugins);
    int rc = parse_policies(o->policy, so.policies, err);
    if (!rc && o->csv && (o->json || o->plan || o->access || o->list))
        rc = mr_error_plain(err, MR_E_USAGE, "--csv does not go with --json, --plan, --access or --list");
    if (!rc && o->plan && o->sweep.n)
        rc = mr_error_plain(err, MR_E_USAGE, "--plan and --sweep exclude each other");
    if (!rc && *o->trace && (o->plan || o->sweep.n || o->access))
        rc = mr_error_plain(err, MR_E_USAGE, "--trace writes one run; it does not go with --plan, --sweep or --access");
    if (!rc && *o->html && (o->plan || o->access || o->list))
        rc = mr_error_plain(err, MR_E_USAGE, "--html shows policies; it does not go with --plan, --access or --list");
    if (!rc && strcmp(o->html, "-") == 0 && (o->json || o->csv))
        rc = mr_error_plain(err, MR_E_USAGE, "--html - and %s both write to standard output",
                            o->json ? "--json" : "--csv");
    if (!rc && o->access && (o->plan || o->sweep.n))
        rc = mr_error_plain(err, MR_E_USAGE, "--access looks at one order; it does not go with --plan or --sweep");
    if (!rc)
        rc = mr_cli_search_path(o->config_dir, ctx->arena, &search, err);
    if (rc)
        return rc;
    if (o->list)
        return list_all(ctx, &search, err);
    if (o->access)
        return run_access(ctx, &search, err);
    if (o->plan)
        return run_plan(ctx, &search, &so, err);
    return run_for_page(ctx, &search, &so, err);
}

const struct mr_command mr_cmd_sim = {
    .name = "sim",
    .synopsis = "(SCENARIO | workload=NAME system=NAME | --from RUN) [key=value ...] [options]",
    .summary = "simulate a training run under prefetching policies",
    .details =
        "Predicts how long a training run takes, how long the nodes wait for data and where the bytes come from, for "
        "every "
        "prefetching policy, without running it. The PFS, the storage classes of the nodes and the network are shared "
        "truly "
        "among all transfers. Two lower bounds are printed: compute only, and with the first read of every sample.\n"
        "\n"
        "Any key of the scenario can be set on the command line: nodes=8 epochs=20 class1=64GiB pfs_factor=2 "
        "system=lassen. "
        "Sweeps over staging, class1 and class2 show what storage of a node is worth; --plan finds how much it needs.\n"
        "\n"
        "Examples:\n"
        "  millrace sim thesis-2\n"
        "  millrace sim thesis-2 --compat thesis --seeds 4\n"
        "  millrace sim workload=unet3d_h100 system=lassen nodes=16\n"
        "  millrace sim thesis-1 --policy staging,nopfs,millrace --sweep nodes=1,2,4,8 --html nodes.html\n"
        "  millrace sim thesis-1 -p nopfs,millrace --sweep nodes=2,4 --sweep class1=50MB,300MB --seeds 3 --csv\n"
        "  millrace sim thesis-2 --plan --max-stall 0.05\n"
        "  millrace sim thesis-1 -p staging --trace sim.mrt; millrace report sim.mrt\n"
        "  millrace sim thesis-1 -p millrace --html sim.html\n",
    .table = {"sim", "Simulation.", sim_rows, sizeof(struct sim_options)},
    .takes_overrides = true,
    .run = sim_run,
};
