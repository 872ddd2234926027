/* `millrace run --virtual`: the same workload on the virtual clock against a storage model, in seconds instead of
 * hours. The simulator (src/sim) plays the order, the batches and the compute time of the workload on every rank; the
 * model says how the storage shares its bandwidth among them. Checkpoints are synchronous: every rank writes its files one
 * after the other, all share the storage, and training waits for the slowest; models have one bandwidth, so writing is as
 * fast as reading. What is printed is a prediction and says so. */
#include "base/common.h"
#include "base/strbuf.h"
#include "cli/run_internal.h"
#include "model/system_yaml.h"
#include "sim/sim.h"

#include <errno.h>
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
    double record = w->dataset.format == MR_CF_SYNTHETIC ? 1e-3 : p->record_bytes; /* nothing is read, and no size is not one */
    double step_mb = (double)w->reader.batch_size * record / MB;
    snprintf(s->name, sizeof s->name, "%s", *w->name ? w->name : "workload");
    s->nodes = p->ranks;
    s->samples = p->train_samples;
    s->batch = (uint64_t)w->reader.batch_size * p->ranks;
    s->epochs = (uint32_t)w->train.epochs;
    s->drop_last = w->reader.drop_last;
    s->size_mean_mb = record / MB;
    s->size_stdev_mb = w->dataset.format == MR_CF_SYNTHETIC ? 0 : w->dataset.record_length_bytes_stdev / MB;
    s->seed = r->seed;
    s->order_mode = strcmp(mr_workload_order_name(w), "sequential") ? MR_ORDER_TORCH : MR_ORDER_SEQUENTIAL;
    s->system.compute_mbps = p->compute_s > 0 ? step_mb / p->compute_s : 1e9;
    double preprocess = mr_dist_mean(&w->reader.preprocess_time);
    unsigned threads = r->opt->threads ? (unsigned)r->opt->threads : (unsigned)w->reader.read_threads;
    /* The workload says what preprocessing costs; the model's rate is that of its own source's application. */
    s->system.preprocess_mbps = preprocess > 0 ? record / MB / preprocess * MR_MAX(threads, 1u) : 1e9;
    struct mr_storage_class *staging = &s->system.classes[0];
    int64_t ahead = r->opt->lookahead >= 0 ? r->opt->lookahead : w->reader.prefetch_size;
    staging->threads = MR_MAX(threads, 1u);
    staging->capacity_mb = fmax(step_mb, (double)MR_MAX(ahead, 1) * step_mb);
}

/* ---- checkpoints ---- */

struct virtual_checkpoint {
    double bytes, once_s, total_s; /* one checkpoint; all that are written and read */
    uint64_t writes, reads, files;
    uint32_t writers;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Who has the least is done first, and leaves its share to the others. */
static double shared_write_s(const struct mr_system *sys, double *mb, uint32_t n)
{
    double t = 0, done = 0;
    qsort(mb, n, sizeof(*mb), by_size);
    for (uint32_t i = 0; i < n; i++) {
        double clients = n - i, rate = mr_curve_at(&sys->pfs_mbps, clients) / clients;
        if (sys->pfs_link_mbps > 0)
            rate = fmin(rate, sys->pfs_link_mbps);
        if (sys->pfs_stream_mbps > 0)
            rate = fmin(rate, sys->pfs_stream_mbps);
        t += (mb[i] - done) / rate;
        done = mb[i];
    }
    return t;
}

static int predict_checkpoints(const struct run *r, const struct mr_system *sys, struct virtual_checkpoint *out,
                               struct mr_error *err)
{
    const struct mr_plan *p = &r->plan;
    *out = (struct virtual_checkpoint){.writes = p->checkpoint.writes, .reads = p->checkpoint.reads};
    if (!r->w->workflow.checkpoint || !(out->writes + out->reads))
        return 0;
    double *mb = calloc(p->ranks, sizeof(*mb));
    uint64_t most_files = 0;
    int rc = mb ? 0 : mr_error_set(err, -ENOMEM, "cannot predict the checkpoints of %u ranks", p->ranks);
    for (uint32_t k = 0; k < p->ranks && !rc; k++) {
        struct mr_checkpoint_file *files = NULL;
        uint64_t n = 0;
        rc = mr_bench_checkpoint_files(r->w, p, k, &files, &n, err);
        for (uint64_t i = 0; i < n && !rc; i++)
            mb[out->writers] += (double)files[i].bytes / MB;
        free(files);
        out->files += n;
        most_files = MR_MAX(most_files, n);
        out->bytes += mb[out->writers] * MB;
        out->writers += mb[out->writers] > 0;
    }
    if (!rc)
        out->once_s = shared_write_s(sys, mb, out->writers) + (double)most_files * sys->pfs_latency_s;
    out->total_s = out->once_s * (double)(out->writes + out->reads);
    free(mb);
    return rc;
}

static json_t *checkpoint_json(const struct virtual_checkpoint *c)
{
    return json_pack("{s:I, s:I, s:i, s:I, s:f, s:f, s:f}", "saves", (json_int_t)c->writes, "loads", (json_int_t)c->reads,
                     "writers", (int)c->writers, "files", (json_int_t)c->files, "bytes", c->bytes, "duration_s", c->once_s,
                     "total_s", c->total_s);
}

static void print_checkpoint(const struct virtual_checkpoint *c)
{
    char size[MR_HUMAN_LEN];
    if (c->writes + c->reads)
        printf("  checkpoints   %llu written and %llu read, %s by %u rank%s in %.2f s each; %.2f s in all\n",
               (unsigned long long)c->writes, (unsigned long long)c->reads, mr_human_bytes(c->bytes, size), c->writers,
               c->writers == 1 ? "" : "s", c->once_s, c->total_s);
}

static int checkpoints_only(const struct run *r, const struct mr_system *sys, struct mr_error *err)
{
    struct virtual_checkpoint c;
    int rc = predict_checkpoints(r, sys, &c, err);
    double total = c.total_s + r->plan.pause_s;
    if (rc)
        return rc;
    if (r->opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:b, s:s, s:s, s:i, s:f, s:o}", "schema", "millrace.virtual_run/1",
                                           "simulated", 1, "workload", r->w->name, "system", sys->name, "ranks",
                                           (int)r->plan.ranks, "duration_s", total, "checkpoint", checkpoint_json(&c)),
                                 err);
    printf("SIMULATED: %.2f s for the checkpoints of %u ranks on model '%s'\n", total, r->plan.ranks, sys->name);
    print_checkpoint(&c);
    if (r->plan.pause_s > 0)
        printf("  pauses        %.2f s\n", r->plan.pause_s);
    return 0;
}

/* ---- the whole ---- */

static int print(const struct run *r, const struct mr_scenario *s, const struct mr_sim_bounds *bounds,
                 const struct mr_sim_result *res, const struct virtual_checkpoint *ckpt, const char *policy,
                 struct mr_error *err)
{
    double au = res->time_s > 0 ? fmin(1, bounds->compute_only_s / res->time_s) : 0;
    double samples = (double)r->plan.steps_per_epoch * (double)r->w->reader.batch_size * r->plan.ranks * s->epochs;
    double stall = fmax(0, res->time_s - bounds->compute_only_s);
    char rate[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
    if (r->opt->json)
        return mr_cli_print_json(stdout,
                                 json_pack("{s:s, s:b, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
                                           "schema", "millrace.virtual_run/1", "simulated", 1, "workload", r->w->name,
                                           "system", s->system.name, "policy", policy, "ranks", (int)s->nodes, "au", au,
                                           "au_target", r->w->metric.au, "duration_s", res->time_s + ckpt->total_s, "stall_s", stall,
                                           "first_epoch_s", res->first_epoch_s, "samples_per_s",
                                           res->time_s > 0 ? samples / res->time_s : 0.0, "read_bytes",
                                           res->pfs_mb * MB, "compute_only_s", bounds->compute_only_s, "training_s",
                                           res->time_s, "checkpoint", checkpoint_json(ckpt)),
                                 err);
    printf("SIMULATED: AU %.1f %% (target %.0f %%): %s; %s\n", 100 * au, 100 * r->w->metric.au,
           au >= r->w->metric.au ? "PASS" : "FAIL",
           stall > 0.05 * res->time_s ? "limited by storage" : "storage is not the limit");
    printf("  workload      %s: %u rank%s x batch %lld on model '%s', policy %s\n", s->name, s->nodes,
           s->nodes == 1 ? "" : "s", (long long)r->w->reader.batch_size, s->system.name, policy);
    printf("  duration      %.2f s, of which the first epoch %.2f s; compute alone %.2f s\n", res->time_s + ckpt->total_s,
           res->first_epoch_s, bounds->compute_only_s);
    print_checkpoint(ckpt);
    printf("  stall         %.2f s (%.1f %%)\n", stall, 100 * stall / fmax(res->time_s, 1e-9));
    printf("  throughput    %.1f samples/s, %s read in all, %s\n", samples / fmax(res->time_s, 1e-9),
           mr_human_bytes(res->pfs_mb * MB, size), mr_human_rate(res->pfs_mb * MB / fmax(res->time_s, 1e-9), rate));
    puts("  not simulated: evaluation, decoding beyond the model's preprocessing rate");
    return 0;
}

int mr_run_virtual(struct run *r, struct mr_error *err)
{
    struct mr_scenario s = {0};
    struct mr_sim_workload w = {0};
    struct mr_sim_bounds bounds;
    struct mr_sim_result res = {0};
    bool naive = (r->opt->threads ? r->opt->threads : r->w->reader.read_threads) == 0;
    struct virtual_checkpoint ckpt = {0};
    enum mr_policy_id policy;
    int rc = mr_plan_make(r->w, (uint32_t)r->opt->ranks, &r->plan, err);
    if (!rc)
        rc = load_system(r, &s.system, err);
    if (!rc && !r->w->workflow.train)
        return checkpoints_only(r, &s.system, err);
    if (!rc)
        rc = predict_checkpoints(r, &s.system, &ckpt, err);
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
        rc = print(r, &s, &bounds, &res, &ckpt, naive ? "naive" : "staging", err);
    mr_sim_workload_done(&w);
    return rc;
}
