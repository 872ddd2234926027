/* Facts that no timing tells: how a run was set up and what its machine is. Of our own runs both are in the trace, as
 * told when a rank was ready to train. Of other programs the machine is known where the trace was taken on this one,
 * which is what most people do: trace, then report. */
#include "explain/explain_settings.h"
#include "base/cgroup.h"
#include "base/common.h"
#include "base/workers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TMPFS 0x01021994
#define OVERLAY 0x794c7630

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

void mr_explain_settings(const struct mr_run_trace *run, struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    const struct mr_run_rank *r = NULL;
    for (uint32_t k = 0; k < run->world && !r; k++)
        r = run->rank[k].settings.n ? &run->rank[k] : NULL;
    if (!r)
        return;
    take(&f->workers, mr_run_rank_setting(r, "threads"));
    take(&f->prefetch, mr_run_rank_setting(r, "lookahead"));
    take(&f->batch, mr_run_rank_setting(r, "batch_size"));
    take(&f->cpus_per_node, mr_run_rank_setting(r, "cpus"));
    take(&f->memory_bytes, mr_run_rank_setting(r, "memory_bytes"));
    take(&f->memory_free_bytes, mr_run_rank_setting(r, "memory_free_bytes"));
    double decoders = mr_run_rank_setting(r, "decode_threads");
    if (decoders > 0)
        f->decode_threads = decoders;
    f->cpus_per_rank = f->cpus_per_node / ranks_per_node(f);
    f->sharded = mr_run_rank_setting(r, "sharded") > 0;
    f->global_shuffle = mr_run_rank_setting(r, "global_shuffle") > 0 && f->ranks > 1;
    const char *format = unpacked(x, r);
    f->format = format && *format ? format : f->format;
}

/* Free on the local disk that temporary files go to; NAN where that is memory, or part of a container's layers. */
static double local_free(void)
{
    const char *folder = getenv("TMPDIR");
    struct statfs fs;
    struct statvfs room;
    folder = folder && *folder ? folder : "/tmp";
    if (statfs(folder, &fs) != 0 || statvfs(folder, &room) != 0 || fs.f_type == TMPFS || fs.f_type == OVERLAY)
        return NAN;
    return (double)room.f_bavail * (double)room.f_frsize;
}

void mr_explain_machine_here(struct mr_explanation *x)
{
    struct mr_explain_facts *f = &x->facts;
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !x->ranks || !x->rank[0].host || strcmp(x->rank[0].host, host) != 0)
        return;
    struct mr_machine_memory m = mr_machine_memory();
    if (!isfinite(f->cpus_per_node)) {
        f->cpus_per_node = mr_cpus_available();
        f->cpus_per_rank = f->cpus_per_node / ranks_per_node(f);
    }
    if (!isfinite(f->memory_bytes) && m.total_bytes) {
        f->memory_bytes = (double)m.total_bytes;
        f->memory_free_bytes = (double)m.free_bytes;
    }
    if (!isfinite(f->local_free_bytes))
        f->local_free_bytes = local_free();
}

/* ---- sums of the readers ---- */

static double figure(const struct mr_run_trace *run, const char *name)
{
    double sum = 0;
    for (uint32_t k = 0; k < run->world; k++) {
        const struct mr_run_figure *f = mr_run_rank_figure(&run->rank[k], name);
        sum += f && !f->is_real ? (double)f->value : 0;
    }
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
        f->worker_cpu = fmin(1, figure(run, "loader_cpu_ns") / (read + decode + transform));
    if (!(f->read_bytes > 0)) { /* without events of calls */
        f->read_bytes = bytes;
        f->delivered_bytes = delivered;
        f->epoch_bytes = f->epochs > 0 ? bytes / f->epochs : NAN;
        f->node_epoch_bytes = f->epoch_bytes / fmax(1, f->nodes);
        f->dataset_bytes = f->epoch_bytes;
        f->sample_bytes = bytes / fmax(1, figure(run, "loader_samples"));
    }
    return estimate_causes(x, read, decode, transform, figure(run, "loader_idle_ns"));
}
