/* Checkpoints of a virtual run. Every rank writes its files one after the other, all share the storage; a model without
 * rates for writing writes as fast as it reads. What training waits for depends on the engine:
 *
 *   sync    the slowest rank's write
 *   async   a copy at the rate of memory (class "ram", else the first one); the write goes on behind. The copy has room
 *           for one checkpoint: the next save waits until the one before is written
 *   burst   a write to the node's device (the first class that is not memory), and one client copies it on behind. The
 *           buffer's capacity is what may lie in it
 *
 * What is still under way at the end, or when one is loaded, is waited for. */
#include "base/common.h"
#include "job/job_predict.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MB 1e6

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Who has the least is done first, and leaves its share to the others. */
double mr_job_shared_s(const struct mr_system *sys, bool writes, double *mb, uint32_t n)
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

/* What one save takes in front of the training and behind it, and how many may be behind; 0: any number. */
struct engine {
    double front_s, behind_s;
    uint64_t room;
    bool in_one_go; /* the buffer has all of it before any goes on, and room for all of it before any comes */
};

static const struct mr_storage_class *find_class(const struct mr_system *sys, bool memory)
{
    for (unsigned i = 0; i < sys->n_classes; i++) {
        bool is_ram = strcmp(sys->classes[i].name, "ram") == 0,
             is_staging = strcmp(sys->classes[i].name, "staging") == 0;
        if (memory ? is_ram : !is_ram && !is_staging)
            return &sys->classes[i];
    }
    return memory ? &sys->classes[0] : NULL;
}

static int find_engine(const struct mr_job *j, const struct mr_system *sys, double most_mb,
                       struct mr_job_checkpoints *c, struct engine *out, struct mr_error *err)
{
    const struct mr_conf_burst_buffer *buffer = &j->w->burst_buffer;
    const char *engine = j->w->checkpoint.engine;
    c->engine = *buffer->folder ? "burst" : engine && *engine ? engine : "sync";
    if (strcmp(c->engine, "burst") == 0 && !*buffer->folder) {
        mr_error_plain(err, MR_E_CONFIG, "the checkpoint engine 'burst' needs a burst buffer");
        return mr_error_hint(err, "say where it is: checkpoint.burst_buffer.folder=FOLDER"), MR_E_CONFIG;
    }
    *out = (struct engine){.front_s = c->save_s};
    if (strcmp(c->engine, "async") == 0) {
        double rate = mr_class_write_mbps(find_class(sys, true));
        *out = (struct engine){most_mb / rate, c->save_s, 1, false};
    } else if (strcmp(c->engine, "burst") == 0) {
        const struct mr_storage_class *device = find_class(sys, false);
        double all = c->bytes / MB, lone = all;
        if (!device) {
            mr_error_plain(err, MR_E_UNSUPPORTED, "the model '%s' has no device of the node for a burst buffer",
                           sys->name);
            return mr_error_hint(err, "add a class to it, or leave it out with 'checkpoint.burst_buffer.folder='"),
                   MR_E_UNSUPPORTED;
        }
        double capacity = buffer->capacity ? (double)buffer->capacity / MB : device->capacity_mb;
        if (capacity >= all) /* else every save goes around the buffer */
            *out = (struct engine){most_mb / mr_class_write_mbps(device), mr_job_shared_s(sys, true, &lone, 1),
                                   (uint64_t)fmin(capacity / all, 1e9), true};
    }
    return 0;
}

/* Bytes of each rank that writes, and what a synchronous save and a load take. */
static int measure(const struct mr_job *j, const struct mr_system *sys, struct mr_job_checkpoints *out, double *most_mb,
                   struct mr_error *err)
{
    const struct mr_workload_plan *p = &j->plan;
    double *mb = calloc(p->ranks, sizeof(*mb));
    uint64_t most_files = 0;
    int rc = mb ? 0 : mr_error_set(err, -ENOMEM, "cannot predict the checkpoints of %u ranks", p->ranks);
    for (uint32_t k = 0; k < p->ranks && !rc; k++) {
        struct mr_checkpoint_file *files = NULL;
        uint64_t n = 0;
        rc = mr_bench_checkpoint_files(j->w, p, k, &files, &n, err);
        for (uint64_t i = 0; i < n && !rc; i++)
            mb[out->writers] += (double)files[i].bytes / MB;
        free(files);
        out->files += n;
        most_files = MR_MAX(most_files, n);
        out->bytes += mb[out->writers] * MB;
        *most_mb = fmax(*most_mb, mb[out->writers]);
        out->writers += mb[out->writers] > 0;
    }
    double latency = (double)most_files * sys->pfs_latency_s;
    if (!rc) {
        out->save_s = mr_job_shared_s(sys, true, mb, out->writers) + latency;
        out->load_s = mr_job_shared_s(sys, false, mb, out->writers) + latency;
    }
    free(mb);
    return rc;
}

/* Seconds of training, or of pauses, before each save, and after the last. */
static void find_gaps(const struct mr_job *j, double train_s, double *gap, double *rest)
{
    const struct mr_workload_plan *p = &j->plan;
    uint64_t writes = MR_MAX(p->checkpoint.writes, 1u),
             every = (uint64_t)MR_MAX(j->w->checkpoint.steps_between_checkpoints, 0);
    if (!j->w->workflow.train) {
        uint64_t all = p->checkpoint.writes + p->checkpoint.reads;
        *gap = all > 1 ? p->pause_s / (double)(all - 1) : 0;
        *rest = p->checkpoint.reads ? *gap : 0;
        return;
    }
    *gap = every && p->total_steps ? train_s * (double)every / (double)p->total_steps : train_s / (double)writes;
    *rest = fmax(0, train_s - *gap * (double)writes);
}

/* One save that begins at `start`: until training goes on, and in *durable until it is where it stays. */
static double play_save(const struct engine *e, double start, double room, double before, double *durable)
{
    double copied = start + e->front_s;
    if (e->behind_s > 0)
        copied = e->in_one_go ? fmax(start, room) + e->front_s : fmax(copied, room);
    double from = e->in_one_go ? copied : start;
    *durable = e->behind_s > 0 ? fmax(fmax(from, before) + e->behind_s, copied) : copied;
    return copied;
}

/* Plays the saves one after the other. */
static void play_saves(const struct engine *e, double gap, double rest, bool pauses, struct mr_job_checkpoints *c)
{
    double now = 0, waited = 0, durable = 0, *done = calloc(c->writes + 1, sizeof(*done));
    for (uint64_t k = 0; done && k < c->writes; k++) {
        double room = e->room && k >= e->room ? done[k - e->room] : 0;
        now += k || !pauses ? gap : 0;
        double start = now;
        now = play_save(e, start, room, k ? done[k - 1] : 0, &done[k]);
        waited += now - start;
        durable += done[k] - start;
    }
    double last = done && c->writes ? done[c->writes - 1] : 0;
    free(done);
    c->tail_s = fmax(0, last - (now + rest));
    c->save_s = c->writes ? waited / (double)c->writes : 0;
    c->durable_s = c->writes ? durable / (double)c->writes : 0;
    c->total_s = waited + c->tail_s + c->load_s * (double)c->reads;
}

int mr_job_predict_checkpoints(const struct mr_job *j, const struct mr_system *sys, double train_s,
                               struct mr_job_checkpoints *out, struct mr_error *err)
{
    const struct mr_plan_checkpoint *p = &j->plan.checkpoint;
    struct engine e;
    double most_mb = 0, gap, rest;
    *out = (struct mr_job_checkpoints){.writes = p->writes, .reads = p->reads, .engine = "sync"};
    if (!j->w->workflow.checkpoint || !(out->writes + out->reads))
        return 0;
    int rc = measure(j, sys, out, &most_mb, err);
    if (!rc)
        rc = find_engine(j, sys, most_mb, out, &e, err);
    if (rc)
        return rc;
    find_gaps(j, train_s, &gap, &rest);
    play_saves(&e, gap, rest, !j->w->workflow.train, out);
    return 0;
}
