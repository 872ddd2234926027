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
