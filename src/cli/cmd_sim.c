/* `millrace sim`: how long would this training run take, under which policy? Prints one sorted table, a table over the
 * points of a sweep, or how much storage a node needs. The scenario is a file, or a workload and a machine put
 * together. */
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/sim_output.h"
#include "job/job_options.h"
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
    const char *scenario, *policy, *sweep, *svg, *trace, *from, *config_dir;
    int compat, method;
    int64_t seeds, grain, threads;
    uint64_t memory;
    double max_stall;
    bool plan, list, access, json;
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
    ROW("sweep", sweep, STRING, "", .doc = "Runs once for every value of a key.", .example = "--sweep nodes=1,2,4,8"),
    ROW("from", from, STRING, "", .doc = "Takes data set, compute and rates from the results folder of a finished run.",
        .example = "--from results/unet3d nodes=8"),
    ROW("svg", svg, STRING, "", .doc = "With --sweep: also writes a plot.", .example = "--svg nodes.svg"),
    ROW("trace", trace, STRING, "",
        .doc =
            "Writes the simulated run's events, for 'millrace report' and 'millrace export'; with several policies one "
            "file each, named FILE-POLICY.mrt.",
        .example = "--trace sim.mrt"),
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
    ROW("method", method, ENUM, "auto", .choices = mr_cli_sim_methods,
        .doc =
            "exact: every sample's place is known. expected: whole steps, sources by the policy's expected behaviour; "
            "for very "
            "large runs. auto: exact, unless its tables exceed --memory."),
    ROW("memory", memory, BYTES, "4GiB", .doc = "The most memory the simulation may take."),
    ROW("threads", threads, INT, "0", .min = 0, .max = 64,
        .doc = "Threads of the expected method; 0: as many as processors. The exact one takes one."),
    ROW("config_dir", config_dir, STRING, "", .doc = "Folder searched first for scenarios/ and systems/."),
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

/* ---- the scenario ---- */

static bool has_key(const char *word, const char *key)
{
    size_t n = strlen(key);
    return strncmp(word, key, n) == 0 && word[n] == '=';
}

/* Words for the workload are those with a dot (reader.batch_size=4) or Hydra's signs; the others set keys of the
 * scenario. */
static bool for_workload(const char *word)
{
    return strchr("+~", word[0]) || memchr(word, '.', strcspn(word, "="));
}

struct request {          /* what is to be simulated, as words */
    const char *workload; /* or NULL: the scenario option says it */
    struct mr_strings workload_words, scenario_words;
};

static int sort_words(struct mr_command_ctx *ctx, const char *extra, struct request *out, struct mr_error *err)
{
    *out = (struct request){0};
    out->workload_words.item = mr_arena_alloc(ctx->arena, (ctx->overrides.n + 1) * sizeof(char *));
    out->scenario_words.item = mr_arena_alloc(ctx->arena, (ctx->overrides.n + 2) * sizeof(char *));
    if (!out->workload_words.item || !out->scenario_words.item)
        return mr_error_set(err, -ENOMEM, "overrides");
    for (unsigned i = 0; i < ctx->overrides.n; i++) {
        const char *word = ctx->overrides.item[i];
        if (has_key(word, "workload"))
            out->workload = word + strlen("workload=");
        else if (for_workload(word))
            out->workload_words.item[out->workload_words.n++] = word;
        else
            out->scenario_words.item[out->scenario_words.n++] = word;
    }
    if (extra)
        out->scenario_words.item[out->scenario_words.n++] = extra;
    return 0;
}

/* The training of a workload, on the machine of system=NAME or the workload's own. */
static int scenario_of_workload(struct mr_command_ctx *ctx, const struct request *q, const struct mr_strings *search,
                                struct mr_scenario *out, struct mr_error *err)
{
    struct mr_job_options options;
    struct mr_job *j = mr_arena_alloc(ctx->arena, sizeof(*j));
    int rc = j ? mr_options_defaults(&mr_job_options_table, ctx->arena, &options, err)
               : mr_error_set(err, -ENOMEM, "workload '%s'", q->workload);
    options.workload = q->workload;
    const struct mr_job_request req = {.options = &options,
                                       .overrides = q->workload_words,
                                       .search_path = *search,
                                       .envp = environ,
                                       .arena = ctx->arena,
                                       .stop = ctx->stop,
                                       .is_local = true};
    if (!rc)
        rc = mr_job_resolve(&req, j, err);
    if (rc)
        return rc;
    mr_cli_log_notes(j->w);
    return mr_job_study_scenario(j, NULL, &q->scenario_words, out, err);
}

static int scenario_of_run(struct mr_command_ctx *ctx, const struct request *q, const struct mr_strings *search,
                           struct mr_scenario *out, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_job_measured measured;
    struct mr_job *j = mr_arena_alloc(ctx->arena, sizeof(*j));
    int rc = j ? mr_job_load_measured(o->from, &measured, err) : mr_error_set(err, -ENOMEM, "run '%s'", o->from);
    if (!rc)
        rc = mr_job_load(o->from, search, ctx->arena, j, err);
    if (rc)
        return rc;
    rc = mr_job_study_scenario(j, &measured, &q->scenario_words, out, err);
    mr_job_done(j);
    return rc;
}

/* `extra` is one more key=value, or NULL. */
static int load_scenario(struct mr_command_ctx *ctx, const struct mr_strings *search, const char *extra,
                         struct mr_scenario *out, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct request q;
    int rc = sort_words(ctx, extra, &q, err);
    if (rc)
        return rc;
    int sources = (q.workload != NULL) + (*o->scenario != '\0') + (*o->from != '\0');
    if (sources != 1) {
        mr_error_plain(err, MR_E_USAGE,
                       sources ? "give one of a scenario, a workload and --from"
                               : "nothing to simulate: give a scenario, or workload=NAME system=NAME");
        return mr_error_hint(err,
                             "'millrace sim --list' shows scenarios and systems, 'millrace workloads list' workloads"),
               MR_E_USAGE;
    }
    if (q.workload)
        return scenario_of_workload(ctx, &q, search, out, err);
    if (q.workload_words.n)
        return mr_error_plain(err, MR_E_USAGE, "'%s' sets a key of a workload, but there is none",
                              q.workload_words.item[0]);
    if (*o->from)
        return scenario_of_run(ctx, &q, search, out, err);
    return mr_scenario_load(o->scenario, search, &q.scenario_words, ctx->arena, out, err);
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
        rc = mr_scenario_load(scenarios.item[i], search, &none, ctx->arena, &s, err);
        if (!rc && !o->json)
            printf("  %-22s %5u nodes, %8llu samples, %3u epochs on %s\n", scenarios.item[i], s.nodes,
                   (unsigned long long)s.samples, s.epochs, s.system.name);
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
            printf("  %-22s %s\n", systems.item[i], s.source);
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

static int run_one(struct mr_command_ctx *ctx, const struct mr_strings *search, const char *extra,
                   const struct mr_study_options *so, struct mr_study *out, struct mr_error *err)
{
    struct mr_scenario s;
    int rc = load_scenario(ctx, search, extra, &s, err);
    if (rc)
        return rc;
    if (s.batch_asked != s.batch)
        mr_log(MR_LOG_NOTE, "a batch of %llu does not divide among %u nodes; steps of %llu are simulated",
               (unsigned long long)s.batch_asked, s.nodes, (unsigned long long)s.batch);
    return mr_study_run(&s, so, out, err);
}

static int parse_sweep(const char *text, struct mr_cli_sweep *sw, struct mr_error *err)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1])
        return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': want KEY=VALUE,VALUE,... like nodes=1,2,4", text);
    snprintf(sw->key, sizeof sw->key, "%.*s", (int)MR_MIN(eq - text, 60), text);
    for (const char *at = eq + 1; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof sw->value[0] || sw->n == MR_ARRAY_LEN(sw->value))
            return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': 1 to %zu values of at most %zu characters", text,
                                  MR_ARRAY_LEN(sw->value), sizeof sw->value[0] - 1);
        memcpy(sw->value[sw->n++], at, n);
        at += n + (at[n] == ',');
    }
    sw->studies = calloc(sw->n, sizeof(*sw->studies));
    return sw->studies ? 0 : mr_error_set(err, -ENOMEM, "sweep");
}

static int write_svg(const struct mr_cli_sweep *sw, const char *path, struct mr_error *err)
{
    struct mr_strbuf svg = {0};
    int rc = mr_cli_sweep_svg(sw, &svg, err);
    FILE *f = rc ? NULL : fopen(path, "we");
    bool ok = f && fwrite(svg.text, 1, svg.len, f) == svg.len;
    if (f && fclose(f))
        ok = false;
    if (!rc && !ok)
        rc = mr_error_set(err, -errno, "cannot write '%s'", path);
    mr_strbuf_done(&svg);
    return rc;
}

static int run_sweep(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_study_options *so,
                     struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_cli_sweep sw = {0};
    int rc = parse_sweep(o->sweep, &sw, err);
    for (unsigned i = 0; i < sw.n && !rc; i++)
        rc = run_one(ctx, search, mr_arena_printf(ctx->arena, "%s=%s", sw.key, sw.value[i]), so, &sw.studies[i], err);
    if (!rc && *o->svg)
        rc = write_svg(&sw, o->svg, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_cli_sweep_json(&sw, so->thesis, so->seeds), err);
    else if (!rc)
        mr_cli_print_sweep(&sw);
    free(sw.studies);
    return rc;
}

static int run_plan(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_study_options *so,
                    struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    enum mr_policy_id policy = MR_POLICY_MILLRACE;
    struct mr_scenario s;
    int rc = strcmp(o->policy, "all") ? mr_policy_parse(o->policy, &policy, err) : 0;
    if (!rc)
        rc = load_scenario(ctx, search, NULL, &s, err);
    struct mr_storage_plan *plan = rc ? NULL : calloc(1, sizeof(*plan));
    if (!rc)
        rc = plan ? mr_study_plan(&s, policy, o->max_stall, so, plan, err) : mr_error_set(err, -ENOMEM, "planning");
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_cli_plan_study_json(plan, &s), err);
    else if (!rc)
        mr_cli_print_plan_study(plan, &s);
    free(plan);
    return rc;
}

static int run_study(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_study_options *so,
                     struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_study *st = calloc(1, sizeof(*st));
    if (!st)
        return mr_error_set(err, -ENOMEM, "simulating");
    int rc = run_one(ctx, search, NULL, so, st, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, mr_cli_study_json(st, so->thesis, so->seeds), err);
    else if (!rc)
        mr_cli_print_study(st, so->thesis);
    free(st);
    return rc;
}

static int run_access(struct mr_command_ctx *ctx, const struct mr_strings *search, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_access_study a;
    struct mr_scenario s;
    int rc = load_scenario(ctx, search, NULL, &s, err);
    if (!rc)
        rc = mr_access_study(&s, &a, err);
    if (rc)
        return rc;
    if (o->json)
        rc = mr_cli_print_json(stdout, mr_cli_access_json(&s, &a), err);
    else
        mr_cli_print_access(&s, &a);
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
    int rc = parse_policies(o->policy, so.policies, err);
    if (!rc && *o->svg && !*o->sweep)
        rc = mr_error_plain(err, MR_E_USAGE, "--svg plots a sweep; give --sweep KEY=VALUES, too");
    if (!rc && o->plan && *o->sweep)
        rc = mr_error_plain(err, MR_E_USAGE, "--plan and --sweep exclude each other");
    if (!rc && *o->trace && (o->plan || *o->sweep || o->access))
        rc = mr_error_plain(err, MR_E_USAGE, "--trace writes one run; it does not go with --plan, --sweep or --access");
    if (!rc && o->access && (o->plan || *o->sweep))
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
    return *o->sweep ? run_sweep(ctx, &search, &so, err) : run_study(ctx, &search, &so, err);
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
        "  millrace sim thesis-1 --policy staging,nopfs,millrace --sweep nodes=1,2,4,8 --svg nodes.svg\n"
        "  millrace sim thesis-2 --plan --max-stall 0.05\n"
        "  millrace sim thesis-1 -p staging --trace sim.mrt; millrace report sim.mrt\n",
    .table = {"sim", "Simulation.", sim_rows, sizeof(struct sim_options)},
    .takes_overrides = true,
    .run = sim_run,
};
