/* `millrace sim`: how long would this training run take, under which policy? Prints one sorted table per point, or a table
 * over the points of a sweep. */
#include "cli/commands.h"
#include "cli/workload_args.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "sim/scenario_yaml.h"
#include "sim/study.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim_options {
    const char *scenario, *policy, *sweep, *config_dir;
    int compat, method;
    int64_t seeds, grain, threads;
    uint64_t memory;
    bool json;
};

static const char *const compat_names[] = {"none", "thesis", NULL};
static const char *const method_names[] = {"auto", "exact", "expected", NULL}; /* enum mr_sim_method */

#define FIELD(f) .offset = offsetof(struct sim_options, f)
static const struct mr_option sim_rows[] = {
    {.key = "scenario", FIELD(scenario), .type = MR_OPT_STRING, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
     .doc = "A scenario file, or the name of a shipped one.", .example = "millrace sim thesis-2"},
    {.key = "policy", FIELD(policy), .type = MR_OPT_STRING, .def = "all", .short_flag = 'p',
     .doc = "Policies, separated by commas, or all.", .example = "--policy nopfs,millrace"},
    {.key = "compat", FIELD(compat), .type = MR_OPT_ENUM, .def = "none", .choices = compat_names,
     .doc = "none: resources are truly shared. thesis: the rules of the published simulator, with its quirks."},
    {.key = "seeds", FIELD(seeds), .type = MR_OPT_INT, .def = "1", .min = 1, .max = 1000,
     .doc = "Runs with so many seeds and prints means and spread."},
    {.key = "sweep", FIELD(sweep), .type = MR_OPT_STRING, .def = "",
     .doc = "Runs once for every value of a key.", .example = "--sweep nodes=1,2,4,8"},
    {.key = "grain", FIELD(grain), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 1e6,
     .doc = "Samples moved together: 1 is exact, larger is faster; 0 chooses by the length of the run."},
    {.key = "method", FIELD(method), .type = MR_OPT_ENUM, .def = "auto", .choices = method_names,
     .doc = "exact: every sample's place is known. expected: whole steps, sources by the policy's expected behaviour; for very "
            "large runs. auto: exact, unless its tables exceed --memory."},
    {.key = "memory", FIELD(memory), .type = MR_OPT_BYTES, .def = "4GiB", .doc = "The most memory the simulation may take."},
    {.key = "threads", FIELD(threads), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 64,
     .doc = "Threads of the expected method; 0: as many as processors. The exact one takes one."},
    {.key = "config_dir", FIELD(config_dir), .type = MR_OPT_STRING, .def = "", .doc = "Folder searched first for scenarios/ and systems/."},
    {.key = "json", FIELD(json), .type = MR_OPT_BOOL, .def = "false", .short_flag = 'j', .doc = "Prints one JSON object."},
    MR_OPTION_END,
};

static int parse_policies(const char *text, bool chosen[MR_POLICY_COUNT], struct mr_error *err)
{
    if (strcmp(text, "all") == 0) {
        for (int p = 0; p < MR_POLICY_COUNT; p++)
            chosen[p] = true;
        return 0;
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

/* ---- text ---- */

static void print_bar(double share)
{
    int n = (int)lround(fmin(1, share) * 24);
    for (int i = 0; i < n; i++)
        fputs("█", stdout);
}

static void print_row(const struct mr_study *st, const struct mr_study_row *row, double slowest)
{
    const struct mr_sim_result *r = &row->mean;
    char pfs[MR_HUMAN_LEN], peer[MR_HUMAN_LEN];
    if (!r->possible) {
        printf("%-21s  cannot run: %s\n", mr_policy_name(r->policy), r->why);
        return;
    }
    printf("%-21s %11.2f %8.3f %9.2f %11s %11s  ", mr_policy_name(r->policy), r->time_s, r->time_s / st->bounds.io_aware_s,
           r->stall_s, mr_human_bytes(r->pfs_mb * 1e6, pfs), mr_human_bytes(r->peer_mb * 1e6, peer));
    print_bar(r->time_s / slowest);
    if (mr_policy_reorders(r->policy))
        printf(" reorders: %.0f %% of the samples per epoch", 100 * r->randomness);
    putchar('\n');
}

static void print_study(const struct mr_study *st, const struct sim_options *o)
{
    char size[MR_HUMAN_LEN];
    const struct mr_scenario *s = &st->scenario;
    printf("%s on %s: %u nodes, %u epochs, %llu samples, %s%s\n", s->name, s->system.name, s->nodes, s->epochs,
           (unsigned long long)s->samples, mr_human_bytes(st->dataset_mb * 1e6, size),
           o->compat ? ", rules of the published simulator" : "");
    printf("lower bounds: compute only %.2f s, with the first read of every sample %.2f s\n\n", st->bounds.compute_only_s,
           st->bounds.io_aware_s);
    printf("%-21s %11s %8s %9s %11s %11s\n", "POLICY", "TIME s", "x BOUND", "STALL s", "FROM PFS", "FROM PEERS");
    double slowest = 0;
    for (unsigned i = 0; i < st->n; i++)
        slowest = fmax(slowest, st->rows[i].mean.time_s);
    for (unsigned i = 0; i < st->n; i++)
        print_row(st, &st->rows[i], slowest);
    if (st->method == MR_SIM_EXPECTED)
        printf("\nexpected behaviour on whole steps instead of every sample's place (exact tables: %.0f GB); see doc/simulator.md\n",
               mr_sim_exact_bytes(s) / 1e9);
    else if (st->grain > 1)
        printf("\n%llu samples are moved together; --grain 1 is exact\n", (unsigned long long)st->grain);
}

/* ---- JSON ---- */

static json_t *row_json(const struct mr_study *st, const struct mr_study_row *row)
{
    const struct mr_sim_result *r = &row->mean;
    if (!r->possible)
        return json_pack("{s:s, s:b, s:s}", "name", mr_policy_name(r->policy), "possible", 0, "why", r->why);
    json_t *classes = json_array();
    double local = 0;
    for (unsigned j = 1; j < st->scenario.system.n_classes; j++) {
        local += r->class_mb[j];
        json_array_append_new(classes, json_real(r->class_mb[j] * 1e6));
    }
    double moved = local + r->pfs_mb + r->peer_mb;
    return json_pack("{s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:b, s:f}",
                     "name", mr_policy_name(r->policy), "possible", 1, "time_s", r->time_s, "time_min_s", row->time_min_s,
                     "time_max_s", row->time_max_s, "ratio_to_bound", r->time_s / st->bounds.io_aware_s, "stall_s",
                     r->stall_s, "stall_first_epoch_s", r->stall_first_epoch_s, "stall_later_s",
                     fmax(0, r->stall_s - r->stall_first_epoch_s), "preload_s", r->preload_s, "pfs_bytes", r->pfs_mb * 1e6,
                     "peer_bytes", r->peer_mb * 1e6, "class_bytes", classes, "local_hit_ratio", moved > 0 ? local / moved : 0.0,
                     "peer_hit_ratio", moved > 0 ? r->peer_mb / moved : 0.0, "consumed_bytes", r->consumed_mb * 1e6,
                     "imbalance", r->imbalance, "changes_order", (int)mr_policy_reorders(r->policy),
                     "distinct_samples_per_epoch_ratio", r->randomness);
}

static json_t *study_json(const struct mr_study *st, const struct sim_options *o)
{
    json_t *rows = json_array();
    for (unsigned i = 0; i < st->n; i++)
        json_array_append_new(rows, row_json(st, &st->rows[i]));
    const struct mr_scenario *s = &st->scenario;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:{s:f, s:f}, s:o}", "schema",
                     "millrace.sim/1", "scenario", s->name, "system", s->system.name, "compat", compat_names[o->compat],
                     "method", method_names[st->method], "nodes", (json_int_t)s->nodes, "epochs", (json_int_t)s->epochs, "samples", (json_int_t)s->samples,
                     "batch", (json_int_t)s->batch, "seed", (json_int_t)s->seed, "seeds", (json_int_t)o->seeds,
                     "dataset_bytes", st->dataset_mb * 1e6, "grain_samples", (json_int_t)st->grain, "bounds",
                     "compute_only_s", st->bounds.compute_only_s, "io_aware_s", st->bounds.io_aware_s, "policies", rows);
}

/* ---- sweep ---- */

struct sweep {
    char key[64];
    unsigned n;
    char value[64][32];
    struct mr_study *studies;
};

static int parse_sweep(const char *text, struct sweep *sw, struct mr_error *err)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1])
        return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': want KEY=VALUE,VALUE,... like nodes=1,2,4", text);
    snprintf(sw->key, sizeof sw->key, "%.*s", (int)MR_MIN(eq - text, 60), text);
    for (const char *at = eq + 1; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof sw->value[0] || sw->n == MR_ARRAY_LEN(sw->value))
            return mr_error_plain(err, MR_E_USAGE, "bad sweep '%s': at most %zu values", text, MR_ARRAY_LEN(sw->value));
        memcpy(sw->value[sw->n++], at, n);
        at += n + (at[n] == ',');
    }
    sw->studies = calloc(sw->n, sizeof(*sw->studies));
    return sw->studies ? 0 : mr_error_set(err, -ENOMEM, "sweep");
}

static const struct mr_sim_result *find_policy(const struct mr_study *st, enum mr_policy_id p)
{
    for (unsigned i = 0; i < st->n; i++)
        if (st->rows[i].mean.policy == p)
            return &st->rows[i].mean;
    return NULL;
}

static void print_sweep(const struct sweep *sw, const bool *chosen)
{
    printf("run time in seconds\n%-21s", sw->key);
    for (unsigned i = 0; i < sw->n; i++)
        printf(" %11s", sw->value[i]);
    printf("\n%-21s", "(bound)");
    for (unsigned i = 0; i < sw->n; i++)
        printf(" %11.2f", sw->studies[i].bounds.io_aware_s);
    putchar('\n');
    for (int p = 0; p < MR_POLICY_COUNT; p++) {
        if (!chosen[p])
            continue;
        printf("%-21s", mr_policy_name((enum mr_policy_id)p));
        for (unsigned i = 0; i < sw->n; i++) {
            const struct mr_sim_result *r = find_policy(&sw->studies[i], (enum mr_policy_id)p);
            if (r && r->possible)
                printf(" %11.2f", r->time_s);
            else
                printf(" %11s", "-");
        }
        putchar('\n');
    }
}

/* ---- run ---- */

static int load_and_run(struct mr_command_ctx *ctx, const struct mr_strings *search, const char *extra,
                        const struct mr_study_options *so, struct mr_study *out, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_strings overrides = {.n = ctx->overrides.n + (extra != NULL)};
    overrides.item = mr_arena_alloc(ctx->arena, (overrides.n + 1) * sizeof(*overrides.item));
    if (!overrides.item)
        return mr_error_set(err, -ENOMEM, "overrides");
    for (unsigned i = 0; i < ctx->overrides.n; i++)
        overrides.item[i] = ctx->overrides.item[i];
    if (extra)
        overrides.item[ctx->overrides.n] = extra;
    struct mr_scenario s;
    int rc = mr_scenario_load(o->scenario, search, &overrides, ctx->arena, &s, err);
    return rc ? rc : mr_study_run(&s, so, out, err);
}

static int run_sweep(struct mr_command_ctx *ctx, const struct mr_strings *search, const struct mr_study_options *so,
                     struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct sweep sw = {0};
    int rc = parse_sweep(o->sweep, &sw, err);
    for (unsigned i = 0; i < sw.n && !rc; i++)
        rc = load_and_run(ctx, search, mr_arena_printf(ctx->arena, "%s=%s", sw.key, sw.value[i]), so, &sw.studies[i], err);
    if (!rc && o->json) {
        json_t *points = json_array();
        for (unsigned i = 0; i < sw.n; i++)
            json_array_append_new(points, json_pack("{s:s, s:o}", "value", sw.value[i], "result", study_json(&sw.studies[i], o)));
        rc = mr_cli_print_json(stdout, json_pack("{s:s, s:s, s:o}", "schema", "millrace.sim_sweep/1", "key", sw.key, "points", points), err);
    } else if (!rc) {
        print_sweep(&sw, so->policies);
    }
    free(sw.studies);
    return rc;
}

static int sim_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct sim_options *o = ctx->options;
    struct mr_study_options so = {.thesis = o->compat == 1, .seeds = (unsigned)o->seeds, .grain = (uint64_t)o->grain,
                                  .method = (enum mr_sim_method)o->method, .memory_bytes = (double)o->memory,
                                  .threads = o->threads ? (unsigned)o->threads : (unsigned)sysconf(_SC_NPROCESSORS_ONLN), .stop = ctx->stop};
    struct mr_strings search;
    int rc = parse_policies(o->policy, so.policies, err);
    if (!rc)
        rc = mr_cli_search_path(o->config_dir, ctx->arena, &search, err);
    if (rc)
        return rc;
    if (*o->sweep)
        return run_sweep(ctx, &search, &so, err);
    struct mr_study *st = calloc(1, sizeof(*st));
    if (!st)
        return mr_error_set(err, -ENOMEM, "simulating");
    rc = load_and_run(ctx, &search, NULL, &so, st, err);
    if (!rc && o->json)
        rc = mr_cli_print_json(stdout, study_json(st, o), err);
    else if (!rc)
        print_study(st, o);
    free(st);
    return rc;
}

const struct mr_command mr_cmd_sim = {
    .name = "sim",
    .synopsis = "SCENARIO [key=value ...] [options]",
    .summary = "simulate a training run under prefetching policies",
    .details = "Predicts how long a training run takes, how long the nodes wait for data and where the bytes come from, for every\n"
               "prefetching policy, without running it. The PFS, the storage classes of the nodes and the network are shared truly\n"
               "among all transfers. Two lower bounds are printed: compute only, and with the first read of every sample.\n"
               "\n"
               "Any key of the scenario can be set on the command line: nodes=8 epochs=20 class1=64GiB pfs_factor=2.\n"
               "\n"
               "Examples:\n"
               "  millrace sim thesis-2\n"
               "  millrace sim thesis-2 --compat thesis --seeds 4\n"
               "  millrace sim imagenet-1k --policy staging,nopfs,millrace --sweep nodes=1,2,4,8\n",
    .table = {"sim", "Simulation.", sim_rows, sizeof(struct sim_options)},
    .takes_overrides = true,
    .run = sim_run,
};
