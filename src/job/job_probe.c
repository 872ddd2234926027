/* Would more streams bring more bytes? A run that waits for reads keeps all its threads reading, so it cannot tell a
 * device that gives 40 MB/s to all from one that gives 40 MB/s to each. After such a run the storage is asked: samples
 * of the run's own data set are read through the run's own store by as many threads as the run had, and then by as many
 * as it would need, for at most a second each.
 *
 * Data that the run found outside the page cache must be read from there again: the probe drops the pages of the files
 * it is going to read (they are there only because of the run) and reads no sample twice. Where a device reads all that
 * is left in a moment, there is no answer.
 *
 * The time ends with the last stream: with fewer of them at the end a rate is told too low rather than too high. */
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/workers.h"
#include "job/job_internal.h"
#include "store/store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MOST 128u
#define REQUEST_MOST (4u << 20)
#define SAMPLES_MOST 4096u
#define PROBE_LEAST_NS (250 * MR_NS_PER_MS)
#define PROBE_MOST_NS MR_NS_PER_S
#define STALL_LEAST 0.05 /* of the time, waiting for data: below it nobody asks what more threads would bring */
#define READS_EACH 8u    /* a stream has made by then, if it is quick enough */

struct probe {
    struct mr_store *store;
    struct mr_sample_place *places;
    uint64_t begin, n; /* those of this measurement */
    uint8_t *buffers;  /* request bytes for each stream */
    size_t request;
    unsigned streams;
    const atomic_bool *stop;
    uint64_t start_ns;
    atomic_uint_fast64_t reads, bytes;
};

static bool is_over(struct probe *p)
{
    uint64_t past = mr_now_ns() - p->start_ns;
    return atomic_load(p->stop) || past > PROBE_MOST_NS ||
           (past > PROBE_LEAST_NS && atomic_load(&p->reads) >= (uint64_t)READS_EACH * p->streams);
}

static int read_place(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct probe *p = ctx->user;
    const struct mr_sample_place *at = &p->places[p->begin + index % p->n];
    void *buffer = p->buffers + ctx->thread * p->request;
    struct mr_object *o;
    if (is_over(p))
        return MR_E_TIMEOUT; /* hands out no more */
    int rc = mr_object_open(p->store, at->path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    int64_t got = 1;
    for (uint64_t done = 0; done < at->bytes && got > 0 && !is_over(p); done += (uint64_t)MR_MAX(got, 0)) {
        got = mr_object_read_some(o, buffer, (size_t)MR_MIN((uint64_t)p->request, at->bytes - done), at->offset + done,
                                  err);
        atomic_fetch_add(&p->reads, got > 0);
        atomic_fetch_add(&p->bytes, got > 0 ? (uint64_t)got : 0);
    }
    mr_object_close(o, NULL);
    return got < 0 ? (int)got : 0;
}

/* Threads of a rank that load a batch in the time one computes. */
static double needed_threads(const struct mr_job *j)
{
    struct mr_job_loaders l = mr_job_sum_loaders(j);
    double compute_s = j->result.metrics->compute_mean_s, batches = 0;
    for (uint32_t k = 0; k < j->result.board->world; k++)
        batches += (double)j->result.board->ranks[k].loader.stats.batches;
    return batches > 0 && compute_s > 0 ? ceil((l.read + l.decode + l.transform) / batches / 1e9 / compute_s * 1.1) : 0;
}

/* Bytes per second of so many streams; 0: no answer. `once`: no sample twice. */
static double measure(struct probe *p, unsigned streams, bool once)
{
    struct mr_error err;
    if (!p->n)
        return 0;
    p->streams = streams;
    atomic_store(&p->reads, 0);
    atomic_store(&p->bytes, 0);
    p->start_ns = mr_now_ns();
    int rc = mr_workers_run(streams, once ? p->n : UINT32_MAX, 1, read_place, p, p->stop, &err);
    double took_s = (double)(mr_now_ns() - p->start_ns) / 1e9;
    bool enough = took_s * 1e9 > 0.2 * PROBE_LEAST_NS && atomic_load(&p->reads) >= streams;
    return enough && (!rc || rc == MR_E_TIMEOUT) ? (double)atomic_load(&p->bytes) / took_s : 0;
}

/* Samples from all over the set, in no order that a device could guess. */
static uint64_t choose_places(const struct mr_job *j, struct mr_dataset *ds, struct mr_sample_place *places)
{
    uint64_t all = mr_dataset_count(ds), n = MR_MIN(all, (uint64_t)SAMPLES_MOST), found = 0;
    uint64_t stride = all / MR_MAX(n, 1u);
    for (uint64_t i = 0; i < n; i++)
        found += mr_dataset_locate(ds, i * stride, &places[found], NULL) == 0 && places[found].bytes > 0;
    for (uint64_t i = found; i > 1; i--) {
        uint64_t k = mr_rng_below(mr_rng_at(j->seed, MR_RNG_TEST, i), i);
        struct mr_sample_place last = places[i - 1];
        places[i - 1] = places[k];
        places[k] = last;
    }
    return found;
}

static void drop(struct mr_store *s, const struct mr_sample_place *places, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct mr_object *o;
        if (i && places[i].file == places[i - 1].file)
            continue;
        if (mr_object_open(s, places[i].path, MR_OBJ_READ, &o, NULL) < 0)
            return;
        s->ops->drop_cache(o, NULL);
        mr_object_close(o, NULL);
    }
}

/* What is told of: waiting for reads, by threads that each make one at a time, on storage that more of them may ask. */
static bool is_worth_asking(const struct mr_job *j)
{
    const struct mr_metrics *m = j->result.metrics;
    const char *store = j->opt.store;
    struct mr_job_loaders l = mr_job_sum_loaders(j);
    bool waits = m->split.data >= STALL_LEAST && l.read > l.decode + l.transform && m->compute_mean_s > 0;
    bool plain = !strstr(store, "{rank}") && !strstr(store, "trace") && !strstr(store, "fault"); /* that would write */
    return j->opt.probe && waits && plain && j->info.samples && !j->result.code && !mr_job_queues_reads(j) &&
           mr_job_store_has_content(j);
}

/* Pieces that all streams have read within some two seconds, by the rate of the run: a read cannot be broken off. */
static void fit_time(const struct mr_job *j, struct probe *p, unsigned streams[2])
{
    double rate = fmax(j->result.metrics->read_bytes_per_s, 1), each = 2 * rate / (double)p->request;
    if (streams[1] > each)
        streams[1] = MR_MAX(2 * streams[0], (unsigned)each);
    if (streams[1] > each)
        p->request = (size_t)fmax(2 * rate / streams[1], 4096);
}

static void ask(struct mr_job *j, struct probe *p, unsigned streams[2], bool cold)
{
    uint64_t all = p->n;
    for (int i = 0; i < 2; i++) {
        if (cold) { /* half of them each */
            p->begin = (uint64_t)i * (all / 2);
            p->n = all / 2;
        }
        j->result.probe.streams[i] = streams[i];
        j->result.probe.bytes_per_s[i] = measure(p, streams[i], cold);
        j->result.probe.bytes += atomic_load(&p->bytes);
    }
}

void mr_job_probe_storage(struct mr_job *j)
{
    struct mr_bench_params bp;
    struct mr_dataset *ds = NULL;
    char dataset[4200];
    const struct mr_job_trust *t = &j->result.trust;
    bool cold = t->cold_share > 0.5 && !strstr(j->opt.store, "throttle");
    if (!is_worth_asking(j))
        return;
    unsigned each = MR_MAX(j->result.board->ranks[j->comm->rank].loader.stats.threads, 1u);
    unsigned now = MR_MIN(each * j->result.local_world, STREAMS_MOST / 2);
    double needed = needed_threads(j) * j->result.local_world;
    unsigned streams[2] = {now, (unsigned)fmin(fmax(2.0 * now, needed), STREAMS_MOST)};
    struct probe p = {.stop = j->stop, .places = calloc(SAMPLES_MOST, sizeof(*p.places))};
    mr_job_trainer_params(j, &bp);
    mr_bench_set_path(&bp, false, dataset, sizeof dataset);
    if (p.places && mr_dataset_open(dataset, mr_job_data_store(j), &ds, NULL) == 0 &&
        mr_store_open(j->opt.store, &p.store, NULL) == 0) {
        p.n = choose_places(j, ds, p.places);
        uint64_t largest = 1, piece = j->w->reader.transfer_size ? (uint64_t)j->w->reader.transfer_size : REQUEST_MOST;
        for (uint64_t i = 0; i < p.n; i++)
            largest = MR_MAX(largest, p.places[i].bytes);
        p.request = (size_t)MR_MIN(largest, MR_MIN(piece, (uint64_t)REQUEST_MOST));
        p.buffers = malloc(p.request * STREAMS_MOST);
        if (cold)
            drop(p.store, p.places, p.n);
        fit_time(j, &p, streams);
        if (p.buffers && p.n)
            ask(j, &p, streams, cold);
    }
    mr_store_close(p.store);
    mr_dataset_close(ds);
    free(p.buffers);
    free(p.places);
}
