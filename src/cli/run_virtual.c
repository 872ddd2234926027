/* `millrace run --virtual`: the same workload on the virtual clock against a storage model, in seconds instead of
 * hours. The simulator (src/sim) plays the order, the batches and the compute time of the workload on every rank; the
 * model says how the storage shares its bandwidth among them. What is printed is a prediction and says so. */
#include "base/common.h"
#include "base/strbuf.h"
#include "cli/run_internal.h"
#include "model/system_yaml.h"
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6

static int load_system(const struct run *r, struct mr_system *out, struct mr_error *err)
{
    const char *name = *r->opt->system ? r->opt->system : r->w->extra.storage_model;
    struct mr_strings search;
    if (!*name) {
        mr_error_plain(err, MR_E_USAGE, "a virtual run needs a storage model");
        return mr_error_hint(err, "name one of workloads/systems or a file: --system lassen");
    }
    int rc = mr_cli_search_path(r->opt->config_dir, r->ctx->arena, &search, err);
    return rc ? rc : mr_system_load(name, &search, r->ctx->arena, out, err);
}

static void make_scenario(const struct run *r, struct mr_scenario *s)
{
    const struct mr_workload *w = r->w;
    const struct mr_plan *p = &r->plan;
    double step_mb = (double)w->reader.batch_size * p->record_bytes / MB;
    snprintf(s->name, sizeof s->name, "%s", *w->name ? w->name : "workload");
    s->nodes = p->ranks;
    s->samples = p->train_samples;
    s->batch = (uint64_t)w->reader.batch_size * p->ranks;
    s->epochs = (uint32_t)w->train.epochs;
    s->drop_last = w->reader.drop_last;
    s->size_mean_mb = p->record_bytes / MB;
    s->size_stdev_mb = w->dataset.record_length_bytes_stdev / MB;
    s->seed = r->seed;
    s->order_mode = strcmp(mr_workload_order_name(w), "sequential") ? MR_ORDER_TORCH : MR_ORDER_SEQUENTIAL;
    s->system.compute_mbps = p->compute_s > 0 ? step_mb / p->compute_s : 1e9;
    double preprocess = mr_dist_mean(&w->reader.preprocess_time);
    unsigned threads = r->opt->threads ? (unsigned)r->opt->threads : (unsigned)w->reader.read_threads;
    /* The workload says what preprocessing costs; the model's rate is that of its own source's application. */
    s->system.preprocess_mbps = preprocess > 0 ? p->record_bytes / MB / preprocess * MR_MAX(threads, 1u) : 1e9;
    struct mr_storage_class *staging = &s->system.classes[0];
    int64_t ahead = r->opt->lookahead >= 0 ? r->opt->lookahead : w->reader.prefetch_size;
    staging->threads = MR_MAX(threads, 1u);
    staging->capacity_mb = fmax(step_mb, (double)MR_MAX(ahead, 1) * step_mb);
}

static int print(const struct run *r, const struct mr_scenario *s, const struct mr_sim_bounds *bounds,
                 const struct mr_sim_result *res, const char *policy, struct mr_error *err)
{
    double au = res->time_s > 0 ? fmin(1, bounds->compute_only_s / res->time_s) : 0;
    double samples = (double)r->plan.steps_per_epoch * (double)r->w->reader.batch_size * r->plan.ranks * s->epochs;
    double stall = fmax(0, res->time_s - bounds->compute_only_s);
    char rate[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
    if (r->opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:b, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                                           "schema", "millrace.virtual_run/1", "simulated", 1, "workload", r->w->name,
                                           "system", s->system.name, "policy", policy, "ranks", (int)s->nodes, "au", au,
                                           "au_target", r->w->metric.au, "duration_s", res->time_s, "stall_s", stall,
                                           "first_epoch_s", res->first_epoch_s, "samples_per_s",
                                           res->time_s > 0 ? samples / res->time_s : 0.0, "read_bytes",
                                           res->pfs_mb * MB, "compute_only_s", bounds->compute_only_s),
                                 err);
    printf("SIMULATED: AU %.1f %% (target %.0f %%): %s; %s\n", 100 * au, 100 * r->w->metric.au,
           au >= r->w->metric.au ? "PASS" : "FAIL",
           stall > 0.05 * res->time_s ? "limited by storage" : "storage is not the limit");
    printf("  workload      %s: %u rank%s x batch %lld on model '%s', policy %s\n", s->name, s->nodes,
           s->nodes == 1 ? "" : "s", (long long)r->w->reader.batch_size, s->system.name, policy);
    printf("  duration      %.2f s, of which the first epoch %.2f s; compute alone %.2f s\n", res->time_s,
           res->first_epoch_s, bounds->compute_only_s);
    printf("  stall         %.2f s (%.1f %%)\n", stall, 100 * stall / fmax(res->time_s, 1e-9));
    printf("  throughput    %.1f samples/s, %s read in all, %s\n", samples / fmax(res->time_s, 1e-9),
           mr_human_bytes(res->pfs_mb * MB, size), mr_human_rate(res->pfs_mb * MB / fmax(res->time_s, 1e-9), rate));
    puts("  not simulated: checkpoints, evaluation, decoding beyond the model's preprocessing rate");
    return 0;
}

int mr_run_virtual(struct run *r, struct mr_error *err)
{
    struct mr_scenario s = {0};
    struct mr_sim_workload w = {0};
    struct mr_sim_bounds bounds;
    struct mr_sim_result res = {0};
    bool naive = (r->opt->threads ? r->opt->threads : r->w->reader.read_threads) == 0;
    enum mr_policy_id policy;
    if (!r->w->workflow.train)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "only training can be simulated; this workload only writes checkpoints");
    int rc = mr_plan_make(r->w, (uint32_t)r->opt->ranks, &r->plan, err);
    if (!rc)
        rc = load_system(r, &s.system, err);
    if (!rc)
        rc = mr_policy_parse(naive ? "naive" : "staging", &policy, err);
    if (rc)
        return rc;
    r->seed = r->opt->seed >= 0 ? (uint64_t)r->opt->seed : (uint64_t)r->w->train.seed;
    make_scenario(r, &s);
    rc = mr_scenario_check(&s, err);
    if (!rc)
        rc = mr_sim_workload_init(&w, &s, err);
    if (!rc)
        rc = mr_sim_bounds(&w, &bounds, err);
    if (!rc)
        rc = mr_sim_shared(&w, policy, 0, r->ctx->stop, &res, err);
    if (!rc && !res.possible)
        rc = mr_error_plain(err, MR_E_CONFIG, "the model cannot run this workload: %s", res.why);
    if (!rc)
        rc = print(r, &s, &bounds, &res, naive ? "naive" : "staging", err);
    mr_sim_workload_done(&w);
    return rc;
}
