/* Facts that no timing tells: how a run was set up and what its machine is. Of our own runs both are in the trace, as
 * told when a rank was ready to train. Of other programs the machine is known where the trace was taken on this one,
 * which is what most people do: trace, then report. What changes from one report to the next (free memory, room on a
 * disk) comes from the trace alone: a report of one trace is always the same. */
#include "explain/explain_settings.h"
#include "base/cgroup.h"
#include "base/common.h"
#include "base/workers.h"
#include "base/regular_file.h"
#include "conf/run_command.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void take(double *fact, double value)
{
    if (isfinite(value))
        *fact = value;
}

static const char *unpacked(struct mr_explanation *x, const struct mr_run_rank *r)
{
    for (size_t i = 0; i < r->settings.n; i++)
        if (strcmp(r->settings.item[i].name, "format") == 0) {
            char text[sizeof(int64_t) + 1] = {0};
            memcpy(text, &r->settings.item[i].value, sizeof(int64_t));
            return mr_arena_strdup(&x->arena, text);
        }
    return NULL;
}

static double ranks_per_node(const struct mr_explain_facts *f)
{
    return fmax(1, (isfinite(f->ranks) ? f->ranks : 1) / fmax(1, isfinite(f->nodes) ? f->nodes : 1));
}

static double figure_of(const struct mr_run_rank *r, const char *name)
{
    const struct mr_run_figure *f = mr_run_rank_figure(r, name);
    return f && !f->is_real ? (double)f->value : 0;
}

/* Figures of a node are told by each of its ranks, which follow each other. */
static void take_tiers(const struct mr_run_trace *run, struct mr_explain_facts *f)
{
    static const char *const names[] = {"tier_ram_samples", "tier_ssd_samples", "tier_peer_samples",
                                        "tier_source_samples"};
    double samples[4] = {0}, all = 0, read = 0, distinct = 0, node = -1;
    for (uint32_t k = 0; k < run->world; k++) {
        const struct mr_run_rank *r = &run->rank[k];
        if (!(figure_of(r, "tier_used") > 0))
            continue;
        for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++) {
            samples[i] += figure_of(r, names[i]);
            all += figure_of(r, names[i]);
        }
        if (figure_of(r, "tier_node") == node)
            continue;
        node = figure_of(r, "tier_node");
        read += figure_of(r, "node_source_bytes");
        distinct += figure_of(r, "node_distinct_bytes");
        if (figure_of(r, "nodes") > 1)
            distinct = fmin(distinct, figure_of(r, "node_set_bytes"));
    }
    if (!(all > 0))
        return;
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++)
        f->from[i] = samples[i] / all;
    f->source_bytes = read;
    f->source_reread = distinct > 0 ? read / distinct : NAN;
}

void mr_explain_settings(const struct mr_run_trace *run, struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    const struct mr_run_rank *r = NULL;
    for (uint32_t k = 0; k < run->world && !r; k++)
        r = run->rank[k].settings.n ? &run->rank[k] : NULL;
    if (!r)
        return;
    take_tiers(run, f);
    take(&f->workers, mr_run_rank_setting(r, "threads"));
    take(&f->prefetch, mr_run_rank_setting(r, "lookahead"));
    take(&f->batch, mr_run_rank_setting(r, "batch_size"));
    take(&f->cpus_per_node, mr_run_rank_setting(r, "cpus"));
    take(&f->memory_bytes, mr_run_rank_setting(r, "memory_bytes"));
    take(&f->memory_free_bytes, mr_run_rank_setting(r, "memory_free_bytes"));
    double room = mr_run_rank_setting(r, "local_free_bytes");
    if (room > 0)
        f->local_free_bytes = room;
    double decoders = mr_run_rank_setting(r, "decode_threads");
    if (decoders > 0)
        f->decode_threads = decoders;
    f->cpus_per_rank = f->cpus_per_node / ranks_per_node(f);
    f->simulated = mr_run_rank_setting(r, "simulated") > 0;
    f->queued = mr_run_rank_setting(r, "queued") > 0;
    f->sharded = mr_run_rank_setting(r, "sharded") > 0;
    f->global_shuffle = mr_run_rank_setting(r, "global_shuffle") > 0 && f->ranks > 1;
    const char *format = unpacked(x, r);
    f->format = format && *format ? format : f->format;
}

bool mr_explain_is_here(const struct mr_explanation *x)
{
    char host[256] = "";
    return gethostname(host, sizeof host - 1) == 0 && x->ranks && x->rank[0].host && !strcmp(x->rank[0].host, host);
}

void mr_explain_machine_here(struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    if (isfinite(f->cpus_per_node) && !isfinite(f->cpus_per_rank)) /* the trace says */
        f->cpus_per_rank = f->cpus_per_node / ranks_per_node(f);
    if (!mr_explain_is_here(x))
        return;
    if (!isfinite(f->cpus_per_node)) {
        f->cpus_per_node = mr_cpus_available();
        f->cpus_per_rank = f->cpus_per_node / ranks_per_node(f);
    }
    uint64_t memory = isfinite(f->memory_bytes) ? 0 : mr_machine_memory().total_bytes;
    if (memory)
        f->memory_bytes = (double)memory;
}

/* ---- sums of the readers ---- */

static double figure(const struct mr_run_trace *run, const char *name)
{
    double sum = 0;
    for (uint32_t k = 0; k < run->world; k++)
        sum += figure_of(&run->rank[k], name);
    return sum;
}

struct shares {
    unsigned cause[4];
    double share[4];
};

/* Moves unknown waits to the causes; what rounding leaves goes to the largest. */
static void share_out(uint64_t stall[MR_STALL_CAUSE_COUNT], const struct shares *s)
{
    uint64_t all = stall[MR_STALL_UNKNOWN], left = all;
    unsigned largest = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t part = MR_MIN(left, (uint64_t)((double)all * s->share[i]));
        stall[s->cause[i]] += part;
        left -= part;
        largest = s->share[i] > s->share[largest] ? i : largest;
    }
    stall[s->cause[largest]] += left;
    stall[MR_STALL_UNKNOWN] = 0;
}

/* A trace of steps alone does not tell what a batch waited for, but what the readers did: in the end they either read,
 * decoded, transformed, or had nothing to do. Waits are shared out by that. */
static bool estimate_causes(struct mr_explanation *x, double read, double decode, double transform, double idle)
{
    double all = read + decode + transform + idle;
    const struct shares s = {{MR_STALL_STORAGE, MR_STALL_DECODE, MR_STALL_TRANSFORM, MR_STALL_NOT_STARTED},
                             {read / all, decode / all, transform / all, idle / all}};
    if (!(all > 0) || (double)x->stall[MR_STALL_UNKNOWN] < 0.9 * (double)x->ns[MR_TIME_STALL])
        return false;
    share_out(x->stall, &s);
    for (size_t i = 0; i < x->ranks; i++)
        share_out(x->rank[i].stall, &s);
    for (size_t i = 0; i < x->steps; i++)
        share_out(x->step[i].stall, &s);
    return true;
}

/* CPU time that the readers' work takes. Decoding that does not sleep but was off the CPU waited for one: others had
 * it, and more readers would wait as well. */
static double cpu_of(const struct mr_run_trace *run, double decode)
{
    double sleeps = run->world ? mr_run_rank_setting(&run->rank[0], "preprocess_sleeps") : NAN;
    return fmax(figure(run, "loader_cpu_ns"), sleeps > 0 ? 0 : decode);
}

bool mr_explain_reader_sums(const struct mr_run_trace *run, struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    double batches = figure(run, "loader_batches"), read = figure(run, "loader_read_ns");
    double decode = figure(run, "loader_decode_ns"), transform = figure(run, "loader_transform_ns");
    double cold = figure(run, "cold_bytes"), total = figure(run, "cold_total_bytes");
    double bytes = figure(run, "loader_read_bytes"), delivered = figure(run, "loader_sample_bytes");
    if (total > 0)
        f->cold_fraction = cold / total;
    if (!(batches > 0) || !(read + decode + transform > 0))
        return false;
    if (!isfinite(f->batch_load_s)) {
        f->batch_read_s = read / batches / 1e9;
        f->batch_decode_s = (decode + transform) / batches / 1e9;
        f->batch_load_s = f->batch_load_p99_s = f->batch_read_s + f->batch_decode_s;
    }
    if (!isfinite(f->worker_cpu))
        f->worker_cpu = fmin(1, cpu_of(run, decode + transform) / (read + decode + transform));
    if (!(f->read_bytes > 0)) { /* without events of calls */
        f->storage_busy = f->in_flight = f->busy_bytes_per_s = f->request_bytes_per_s = NAN;
        f->wall_bytes_per_s = x->train_ns ? bytes / ((double)x->train_ns / 1e9) : NAN;
        f->read_bytes = bytes;
        f->delivered_bytes = delivered;
        f->epoch_bytes = f->epochs > 0 ? bytes / f->epochs : NAN;
        f->node_epoch_bytes = f->epoch_bytes / fmax(1, f->nodes);
        f->dataset_bytes = f->epoch_bytes;
        f->sample_bytes = bytes / fmax(1, figure(run, "loader_samples"));
    }
    return estimate_causes(x, read, decode, transform, figure(run, "loader_idle_ns"));
}

/* ---- the results folder ---- */

static double number_of(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Which steps of a run count in its AU is in its settings, not in its trace: the run's own figures are shown. */
static void take_figures(struct mr_explain_facts *f, const json_t *run)
{
    take(&f->au, number_of(json_object_get(run, "au")));
    take(&f->au_low, number_of(json_object_get(run, "au_ci95_low")));
    take(&f->au_high, number_of(json_object_get(run, "au_ci95_high")));
    take(&f->au_cold, number_of(json_object_get(run, "au_cold")));
}

void mr_explain_run_summary(struct mr_explanation *x, const json_t *summary)
{
    struct mr_explain_facts *f = &x->facts;
    if (!f->own_run)
        return;
    const char *again =
        mr_run_command(json_object_get(summary, "options"), json_object_get(summary, "config"), &x->arena);
    f->workload = again ? again : f->workload;
    const char *why = json_string_value(json_object_get(json_object_get(summary, "millrace"), "incomplete_reason"));
    f->ended_early = why && *why ? mr_arena_strdup(&x->arena, why) : NULL;
    take_figures(f, json_object_get(summary, "millrace"));
    const json_t *tiers = json_object_get(json_object_get(summary, "millrace"), "tiers");
    double bound = number_of(json_object_get(tiers, "bound_s")),
           ratio = number_of(json_object_get(tiers, "bound_ratio"));
    take(&f->bound_spare_s, isfinite(bound * ratio) ? fmax(0, bound * (ratio - 1)) : NAN);
    const json_t *probe = json_object_get(summary, "storage_probe"), *trust = json_object_get(summary, "trust");
    const json_t *harness = json_object_get(trust, "harness_ceiling_samples_per_s");
    for (unsigned i = 0; i < 2 && probe; i++) {
        take(&f->streams[i], number_of(json_array_get(json_object_get(probe, "streams"), i)));
        take(&f->stream_bytes_per_s[i], number_of(json_array_get(json_object_get(probe, "bytes_per_s"), i)));
    }
    if (json_is_number(harness))
        f->harness_samples_per_s = json_number_value(harness);
}

void mr_explain_run_folder(struct mr_explanation *x, const char *path)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/summary.json", path ? path : "");
    FILE *f = x->facts.own_run && path ? mr_fopen_regular(name) : NULL;
    json_t *summary = f ? json_loadf(f, 0, NULL) : NULL;
    if (f)
        fclose(f);
    mr_explain_run_summary(x, summary);
    json_decref(summary);
}
