/* `millrace run --virtual`: the same workload on the virtual clock against a storage model, in seconds instead of
 * hours. The simulator (src/sim) plays the order, the batches and the compute time of the workload on every rank; the
 * model says how the storage shares its bandwidth among them. Whole epochs, the last one that total_training_steps cuts
 * short, and an evaluation are played apart and added up. Checkpoints are synchronous: every rank writes its files one
 * after the other, all share the storage, and training waits for the slowest; a model without rates for writing writes
 * as fast as it reads. What is printed is a prediction and says so. */
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
    bool store = !*r->opt->system && strchr(name, '('); /* what 'workloads check' shapes real storage with */
    if (!*name || store) {
        mr_error_plain(err, MR_E_USAGE, "a virtual run needs a storage model%s%s%s", store ? "; the workload's '" : "",
                       store ? name : "", store ? "' shapes real storage" : "");
        return mr_error_hint(err, "name one of workloads/systems or a file: --system lassen"), MR_E_USAGE;
    }
    int rc = mr_cli_search_path(r->opt->config_dir, r->ctx->arena, &search, err);
    return rc ? rc : mr_system_load(name, &search, r->ctx->arena, out, err);
}

/* ---- training and evaluation ---- */

/* Steps of one kind that are played in a row. */
struct part {
    uint64_t samples, steps, epochs, batch; /* steps of an epoch; batch of one rank */
    double compute_s;
    bool shuffled;
};

struct played {
    double time_s, first_epoch_s, compute_s, read_bytes;
};

/* Whether samples come from storage at all; with read_type memory they come once, before the first step. */
static bool reads_samples(const struct run *r)
{
    return r->w->dataset.format != MR_CF_SYNTHETIC && r->w->pattern.unit != MR_UNIT_NONE;
}

static void make_scenario(const struct run *r, const struct mr_system *sys, const struct part *part, bool reads,
                          struct mr_scenario *s)
{
    const struct mr_workload *w = r->w;
    const struct mr_plan *p = &r->plan;
    double record = reads ? p->record_bytes : 1e-3; /* nothing is read, and no size is not one */
    double step_mb = (double)part->batch * record / MB;
    double preprocess = mr_dist_mean(&w->reader.preprocess_time);
    unsigned threads = r->opt->threads ? (unsigned)r->opt->threads : (unsigned)w->reader.read_threads;
    int64_t ahead = r->opt->lookahead >= 0 ? r->opt->lookahead : w->reader.prefetch_size;
    *s = (struct mr_scenario){.system = *sys,
                              .nodes = p->ranks,
                              .batch = part->batch * p->ranks,
                              .epochs = (uint32_t)part->epochs,
                              .drop_last = true, /* a last batch that is smaller is taken for a full one */
                              .size_mean_mb = record / MB,
                              .size_stdev_mb = reads ? w->dataset.record_length_bytes_stdev / MB : 0,
                              .seed = r->seed,
                              .order_mode = part->shuffled ? MR_ORDER_TORCH : MR_ORDER_SEQUENTIAL,
                              .step_s = part->compute_s};
    snprintf(s->name, sizeof s->name, "%s", *w->name ? w->name : "workload");
    s->samples = MR_MAX(part->samples, part->steps * s->batch);
    s->system.compute_mbps = 1e9;
    /* The workload says what preprocessing costs; the model's rate is that of its own source's application. */
    s->system.preprocess_mbps = preprocess > 0 && reads ? record / MB / preprocess * MR_MAX(threads, 1u) : 1e9;
    s->system.classes[0].threads = MR_MAX(threads, 1u);
    s->system.classes[0].capacity_mb = fmax(step_mb, (double)MR_MAX(ahead, 1) * step_mb);
}

static bool is_naive(const struct run *r)
{
    return (r->opt->threads ? r->opt->threads : r->w->reader.read_threads) == 0;
}

static int play(const struct run *r, const struct mr_system *sys, const struct part *part, bool reads,
                struct played *sum, struct mr_error *err)
{
    struct mr_scenario s;
    struct mr_sim_workload w = {0};
    struct mr_sim_bounds bounds;
    struct mr_sim_result res = {0};
    enum mr_policy_id policy;
    if (!part->steps || !part->epochs)
        return 0;
    make_scenario(r, sys, part, reads, &s);
    int rc = mr_policy_parse(is_naive(r) ? "naive" : "staging", &policy, err);
    if (!rc)
        rc = mr_scenario_check(&s, err);
    if (!rc)
        rc = mr_sim_workload_init(&w, &s, err);
    if (!rc)
        rc = mr_sim_bounds(&w, &bounds, err);
    if (!rc)
        rc = mr_sim_shared(&w, policy, 0, r->ctx->stop, &res, err);
    if (!rc && !res.possible)
        rc = mr_error_plain(err, MR_E_CONFIG, "the model cannot run this workload: %s", res.why);
    mr_sim_workload_done(&w);
    if (rc)
        return rc;
    sum->first_epoch_s = sum->time_s > 0 ? sum->first_epoch_s : res.first_epoch_s;
    sum->time_s += res.time_s;
    sum->compute_s += part->compute_s > 0 ? bounds.compute_only_s : 0;
    sum->read_bytes += reads ? res.pfs_mb * MB : 0;
    return 0;
}

static int play_training(const struct run *r, const struct mr_system *sys, struct played *sum, struct mr_error *err)
{
    const struct mr_plan *p = &r->plan;
    bool reads = reads_samples(r) && r->w->reader.read_type != MR_READ_MEMORY;
    struct part whole = {.samples = p->train_samples,
                         .steps = p->steps_per_epoch,
                         .epochs = p->total_steps / p->steps_per_epoch,
                         .batch = (uint64_t)r->w->reader.batch_size,
                         .compute_s = p->compute_s,
                         .shuffled = strcmp(mr_workload_order_name(r->w), "sequential") != 0};
    struct part rest = whole;
    rest.steps = p->total_steps % p->steps_per_epoch;
    rest.samples = 0;
    rest.epochs = 1;
    int rc = play(r, sys, &whole, reads, sum, err);
    return rc ? rc : play(r, sys, &rest, reads, sum, err);
}

static int play_evaluation(const struct run *r, const struct mr_system *sys, struct played *once, struct mr_error *err)
{
    const struct mr_plan *p = &r->plan;
    struct part part = {.samples = p->eval_samples,
                        .steps = p->evaluations ? p->eval_steps : 0,
                        .epochs = 1,
                        .batch = (uint64_t)r->w->reader.batch_size_eval,
                        .compute_s = mr_dist_mean(&r->w->evaluation.eval_time)};
    return play(r, sys, &part, r->w->dataset.format != MR_CF_SYNTHETIC, once, err);
}

/* ---- checkpoints ---- */

struct virtual_checkpoint {
    double bytes, save_s, load_s, total_s; /* one checkpoint; all that are written and read */
    uint64_t writes, reads, files;
    uint32_t writers;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Who has the least is done first, and leaves its share to the others. */
static double shared_s(const struct mr_system *sys, bool writes, double *mb, uint32_t n)
{
    const struct mr_curve *curve = writes && sys->pfs_write_mbps.n ? &sys->pfs_write_mbps : &sys->pfs_mbps;
    double t = 0, done = 0;
    qsort(mb, n, sizeof(*mb), by_size);
    for (uint32_t i = 0; i < n; i++) {
        double clients = n - i, rate = mr_curve_at(curve, clients) / clients;
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
    double latency = (double)most_files * sys->pfs_latency_s;
    if (!rc) {
        out->save_s = shared_s(sys, true, mb, out->writers) + latency;
        out->load_s = shared_s(sys, false, mb, out->writers) + latency;
    }
    out->total_s = out->save_s * (double)out->writes + out->load_s * (double)out->reads;
    free(mb);
    return rc;
}

static json_t *checkpoint_json(const struct virtual_checkpoint *c)
{
    return json_pack("{s:I, s:I, s:i, s:I, s:f, s:f, s:f, s:f}", "saves", (json_int_t)c->writes, "loads",
                     (json_int_t)c->reads, "writers", (int)c->writers, "files", (json_int_t)c->files, "bytes", c->bytes,
                     "save_s", c->save_s, "load_s", c->load_s, "total_s", c->total_s);
}

static void print_checkpoint(const struct virtual_checkpoint *c)
{
    char size[MR_HUMAN_LEN];
    if (c->writes + c->reads)
        printf(
            "  checkpoints   %s by %u rank%s: %llu written in %.2f s each, %llu read in %.2f s each; %.2f s in all\n",
            mr_human_bytes(c->bytes, size), c->writers, c->writers == 1 ? "" : "s", (unsigned long long)c->writes,
            c->save_s, (unsigned long long)c->reads, c->load_s, c->total_s);
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

struct prediction {
    const struct mr_system *system;
    struct played train, eval; /* all of training; one evaluation */
    double preload_s, eval_s;  /* read_type memory; all evaluations */
    struct virtual_checkpoint ckpt;
};

/* Every rank reads all of it, before the first step. */
static int predict_preload(const struct run *r, struct prediction *v, struct mr_error *err)
{
    if (!reads_samples(r) || r->w->reader.read_type != MR_READ_MEMORY)
        return 0;
    double *mb = calloc(r->plan.ranks, sizeof(*mb));
    if (!mb)
        return mr_error_set(err, -ENOMEM, "cannot predict the reading of %u ranks", r->plan.ranks);
    for (uint32_t k = 0; k < r->plan.ranks; k++)
        mb[k] = r->plan.train_bytes / MB;
    v->preload_s = shared_s(v->system, false, mb, r->plan.ranks);
    v->train.read_bytes += r->plan.train_bytes * r->plan.ranks;
    free(mb);
    return 0;
}

static double duration_s(const struct prediction *v)
{
    return v->preload_s + v->train.time_s + v->eval_s + v->ckpt.total_s;
}

static int print_json(const struct run *r, const struct prediction *v, double au, double samples, struct mr_error *err)
{
    const struct played *t = &v->train;
    json_t *root = json_pack(
        "{s:s, s:b, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "schema",
        "millrace.virtual_run/1", "simulated", 1, "workload", r->w->name, "system", v->system->name, "policy",
        is_naive(r) ? "naive" : "staging", "ranks", (int)r->plan.ranks, "au", au, "au_target", r->w->metric.au,
        "duration_s", duration_s(v), "stall_s", fmax(0, t->time_s - t->compute_s), "first_epoch_s", t->first_epoch_s,
        "samples_per_s", t->time_s > 0 ? samples / t->time_s : 0.0, "read_bytes", t->read_bytes, "compute_only_s",
        t->compute_s, "training_s", t->time_s, "preload_s", v->preload_s, "checkpoint", checkpoint_json(&v->ckpt));
    json_object_set_new(root, "evaluation",
                        json_pack("{s:I, s:I, s:f, s:f, s:f}", "evaluations", (json_int_t)r->plan.evaluations, "steps",
                                  (json_int_t)r->plan.eval_steps, "read_bytes", v->eval.read_bytes, "once_s",
                                  v->eval.time_s, "total_s", v->eval_s));
    return mr_cli_print_json(stdout, root, err);
}

static int print(const struct run *r, const struct prediction *v, struct mr_error *err)
{
    const struct played *t = &v->train;
    double au = t->time_s > 0 ? fmin(1, t->compute_s / t->time_s) : 0, stall = fmax(0, t->time_s - t->compute_s);
    double samples = (double)r->plan.total_steps * (double)r->w->reader.batch_size * r->plan.ranks;
    char rate[MR_HUMAN_LEN], size[MR_HUMAN_LEN];
    if (r->opt->json)
        return print_json(r, v, au, samples, err);
    printf("SIMULATED: AU %.1f %% (target %.0f %%): %s; %s\n", 100 * au, 100 * r->w->metric.au,
           au >= r->w->metric.au ? "PASS" : "FAIL",
           stall > 0.05 * t->time_s ? "limited by storage" : "storage is not the limit");
    printf("  workload      %s: %u rank%s x batch %lld on model '%s', policy %s\n",
           *r->w->name ? r->w->name : "(defaults)", r->plan.ranks, r->plan.ranks == 1 ? "" : "s",
           (long long)r->w->reader.batch_size, v->system->name, is_naive(r) ? "naive" : "staging");
    printf("  duration      %.2f s, of which the first epoch %.2f s; compute alone %.2f s\n", duration_s(v),
           t->first_epoch_s, t->compute_s);
    if (v->preload_s > 0)
        printf("  preload       %.2f s to read the whole set on every rank\n", v->preload_s);
    if (r->plan.evaluations)
        printf("  evaluation    %llu of %llu steps in %.2f s each; %.2f s in all\n",
               (unsigned long long)r->plan.evaluations, (unsigned long long)r->plan.eval_steps, v->eval.time_s,
               v->eval_s);
    print_checkpoint(&v->ckpt);
    printf("  stall         %.2f s (%.1f %%)\n", stall, 100 * stall / fmax(t->time_s, 1e-9));
    printf("  throughput    %.1f samples/s, %s read in all, %s\n", samples / fmax(t->time_s, 1e-9),
           mr_human_bytes(t->read_bytes, size),
           mr_human_rate(t->read_bytes / fmax(t->time_s + v->preload_s, 1e-9), rate));
    printf("  not simulated: decoding beyond reader.preprocess_time, the spread of compute times%s\n",
           r->w->pattern.unit == MR_UNIT_SAMPLE ? "" : ", the calls of the access pattern");
    return 0;
}

int mr_run_virtual(struct run *r, struct mr_error *err)
{
    struct mr_system sys;
    struct prediction v = {.system = &sys};
    int rc = mr_run_make_plan(r, err);
    r->seed = r->opt->seed >= 0 ? (uint64_t)r->opt->seed : (uint64_t)r->w->train.seed;
    if (!rc)
        rc = load_system(r, &sys, err);
    if (!rc && !r->w->workflow.train)
        return checkpoints_only(r, &sys, err);
    if (!rc)
        rc = predict_checkpoints(r, &sys, &v.ckpt, err);
    if (!rc)
        rc = play_training(r, &sys, &v.train, err);
    if (!rc)
        rc = play_evaluation(r, &sys, &v.eval, err);
    if (!rc)
        rc = predict_preload(r, &v, err);
    v.eval_s = v.eval.time_s * (double)r->plan.evaluations;
    return rc ? rc : print(r, &v, err);
}
