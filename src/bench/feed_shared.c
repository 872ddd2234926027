/* Ranks that read for others: reader.file_access collective and mpio. The feed of a rank has one feed for each rank that
 * it reads for, or none, and delivers the rows that the exchange gives it (feed_exchange.h); patterns may be read
 * through MPI-IO (feed_mpi.h). */
#include "base/clock.h"
#include "base/common.h"
#include "bench/feed_exchange.h"
#include "bench/feed_mpi.h"
#include "event/emit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct shared_feed {
    struct feed base;
    struct mr_comm *comm;
    uint32_t readers, n_inner;
    struct feed **inner; /* of the ranks that this one reads for */
    struct feed_exchange *exchange;
    struct feed_mpi *mpi;     /* or NULL */
    struct mr_events *events; /* samples: where the waits of the steps go; or NULL */
    uint64_t epoch, delivered;
    atomic_bool stopped;
    _Atomic uint64_t batches, samples, sample_bytes, read_bytes, wait_ns; /* of this rank, for stats */
};

bool mr_feed_is_shared(const struct mr_bench_params *p)
{
    const struct mr_workload *w = p->workload;
    bool collective = w->reader.file_access == MR_FA_COLLECTIVE || w->reader.file_access == MR_FA_MPIO;
    return collective && w->dataset.format != MR_CF_SYNTHETIC && w->pattern.unit != MR_CONF_UNIT_NONE;
}

/* ---- checks: the same answer on every rank ---- */

static int check_mpio(const struct mr_bench_params *p, struct mr_error *err)
{
    if (!mr_comm_has_mpi_io(p->comm)) {
        mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio needs MPI");
        return mr_error_hint(err, "start with 'mpirun -n N millrace run ...', or say 'reader.file_access=collective'"),
               MR_E_CONFIG;
    }
    if (p->workload->pattern.unit == MR_CONF_UNIT_SAMPLE) {
        mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio reads files or records, not through the loader");
        return mr_error_hint(err, "add 'pattern.unit=record', or say 'reader.file_access=collective'"), MR_E_CONFIG;
    }
    if (p->store && *p->store && strcmp(p->store, "posix") != 0)
        return mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio cannot read through the storage stack '%s'",
                              p->store);
    return 0;
}

static int check_policy(const struct mr_bench_params *p, struct mr_error *err)
{
    struct mr_loader_choice c;
    int rc = mr_bench_choose_policy(p->workload, p->threads, &c, err);
    if (rc || (!c.tiers && !c.is_perfect))
        return rc;
    mr_error_plain(err, MR_E_USAGE, "policy '%s' and reader.file_access collective do not go together", c.policy);
    return mr_error_hint(err, "leave out reader.file_access: tiers read every byte once per node"), MR_E_USAGE;
}

static int check(const struct mr_bench_params *p, struct mr_error *err)
{
    const struct mr_workload *w = p->workload;
    bool mpio = w->reader.file_access == MR_FA_MPIO, memory = w->reader.read_type == MR_CONF_READ_MEMORY,
         samples = w->pattern.unit == MR_CONF_UNIT_SAMPLE;
    int rc = mpio ? check_mpio(p, err) : 0;
    if (rc)
        return rc;
    if (memory && (mpio || samples)) {
        mr_error_plain(err, MR_E_CONFIG, "reader.read_type memory and reader.file_access %s do not go together here",
                       mpio ? "mpio" : "collective");
        return mr_error_hint(err, "with 'reader.file_access=collective pattern.unit=file' they do"), MR_E_CONFIG;
    }
    if (w->pattern.same_offsets && w->pattern.collective_readers > 1)
        return mr_error_plain(err, MR_E_CONFIG,
                              "with pattern.same_offsets all ranks get one batch, which one rank reads: "
                              "pattern.collective_readers must be 1");
    return samples ? check_policy(p, err) : 0;
}

/* ---- epochs and batches ---- */

static int shared_start(struct feed *base, uint64_t epoch, struct mr_error *err)
{
    struct shared_feed *f = (struct shared_feed *)base;
    f->epoch = epoch;
    f->delivered = 0;
    return mr_feed_exchange_start_epoch(f->exchange, epoch, err);
}

static void emit_wait(struct shared_feed *f, uint64_t start_ns, uint64_t end_ns, const struct feed_batch *b)
{
    const struct mr_where at = {.epoch = f->epoch, .step = MR_UNKNOWN, .batch = f->delivered, .sample = MR_UNKNOWN};
    if (b)
        mr_emit(f->events, MR_SPAN_BATCH_READY, end_ns, end_ns, &at, (int64_t)b->n);
    mr_emit(f->events, MR_SPAN_WAIT, start_ns, end_ns, &at, b ? (int64_t)b->n : 0);
}

/* Collective: a rank that was stopped takes part and reports it (G1). */
static int shared_next(struct feed *base, struct feed_batch *out, struct mr_error *err)
{
    struct shared_feed *f = (struct shared_feed *)base;
    uint64_t start = mr_now_ns();
    int rc =
        f->delivered < base->n_batches ? mr_feed_exchange_next(f->exchange, atomic_load(&f->stopped), out, err) : 0;
    uint64_t end = mr_now_ns();
    atomic_fetch_add_explicit(&f->wait_ns, end - start, memory_order_relaxed);
    if (rc && mr_events_want(f->events, MR_LEVEL_STEP))
        emit_wait(f, start, end, rc > 0 ? out : NULL);
    if (rc <= 0)
        return rc;
    f->delivered++;
    atomic_fetch_add_explicit(&f->batches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->samples, out->n, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->sample_bytes, out->sample_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&f->read_bytes, out->read_bytes, memory_order_relaxed);
    return rc;
}

static int shared_finish(struct feed *base, struct mr_error *err)
{
    struct shared_feed *f = (struct shared_feed *)base;
    int rc = 0;
    for (uint32_t i = 0; i < f->n_inner && !rc && !f->mpi; i++)
        rc = mr_feed_finish(f->inner[i], err);
    return rc;
}

static void shared_stop(struct feed *base)
{
    struct shared_feed *f = (struct shared_feed *)base;
    atomic_store(&f->stopped, true);
    for (uint32_t i = 0; i < f->n_inner; i++)
        mr_feed_stop(f->inner[i]);
}

/* The reading is of all ranks that this one reads for, the batches are its own. */
static void shared_stats(struct feed *base, struct mr_bench_loader_stats *out)
{
    struct shared_feed *f = (struct shared_feed *)base;
    struct mr_loader_stats sum = {.batches = atomic_load(&f->batches),
                                  .samples = atomic_load(&f->samples),
                                  .sample_bytes = atomic_load(&f->sample_bytes),
                                  .read_bytes = atomic_load(&f->read_bytes),
                                  .wait_ns = atomic_load(&f->wait_ns)};
    struct mr_bench_fields fields = {0};
    for (uint32_t i = 0; i < f->n_inner; i++) {
        mr_feed_stats(f->inner[i], out);
        mr_bench_fields_add(&fields, &out->fields);
        const struct mr_loader_stats *one = &out->stats;
        sum.read_ns += one->read_ns;
        sum.decode_ns += one->decode_ns;
        sum.transform_ns += one->transform_ns;
        sum.idle_ns += one->idle_ns;
        sum.cpu_ns += one->cpu_ns;
        sum.slab_bytes += one->slab_bytes;
        sum.threads += one->threads;
        sum.ready_mean = MR_MAX(sum.ready_mean, one->ready_mean);
        sum.empty_ratio = MR_MAX(sum.empty_ratio, one->empty_ratio);
        sum.recent_ns = MR_MAX(sum.recent_ns, one->recent_ns);
        sum.recent_samples_per_s += one->recent_samples_per_s;
        sum.recent_bytes_per_s += one->recent_bytes_per_s;
        sum.recent_read_bytes_per_s += one->recent_read_bytes_per_s;
        sum.recent_wait_ratio = MR_MAX(sum.recent_wait_ratio, one->recent_wait_ratio);
    }
    out->stats = sum;
    out->fields = fields;
}

static void shared_detach(struct feed *base)
{
    mr_feed_mpi_detach(((struct shared_feed *)base)->mpi);
}

static void shared_close(struct feed *base, bool together)
{
    struct shared_feed *f = (struct shared_feed *)base;
    (void)together; /* the exchange needs no rank to close */
    mr_feed_mpi_detach(f->mpi);
    mr_feed_exchange_free(f->exchange);
    for (uint32_t i = 0; i < f->n_inner; i++)
        mr_feed_close(f->inner[i]);
    mr_feed_mpi_close(f->mpi);
    free(f->inner);
}

static const struct feed_ops shared_ops = {.start_epoch = shared_start,
                                           .next = shared_next,
                                           .finish = shared_finish,
                                           .stop = shared_stop,
                                           .stats = shared_stats,
                                           .detach = shared_detach,
                                           .close = shared_close};

/* ---- opening ---- */

static int agree_on_calls(void *user, struct mr_error *err)
{
    struct shared_feed *f = user;
    return mr_feed_mpi_agree(f->mpi, f->inner, f->n_inner, err);
}

static int make_up_calls(void *user, struct mr_error *err)
{
    return mr_feed_mpi_make_up(((struct shared_feed *)user)->mpi, err);
}

static int open_inner(struct shared_feed *f, const struct mr_bench_params *p, struct mr_error *err)
{
    const struct feed_around around = {.before = agree_on_calls, .after = make_up_calls, .user = f};
    uint32_t n = mr_feed_exchange_feeds(f->comm, f->readers);
    f->inner = calloc(n + 1, sizeof(struct feed *));
    int rc = f->inner ? 0 : mr_error_set(err, -ENOMEM, "cannot share batches among the ranks");
    for (uint32_t i = 0; i < n && !rc; i++) {
        const struct feed_request q = {.p = p,
                                       .rank = f->comm->rank + i * f->readers,
                                       .for_others = true,
                                       .source = f->mpi ? mr_feed_mpi_source(f->mpi) : NULL};
        rc = mr_feed_open_for(&q, &f->inner[i], err);
        f->n_inner += !rc;
    }
    return rc ? rc
              : mr_feed_exchange_create(f->comm, f->readers, (uint32_t)p->workload->reader.batch_size, f->inner,
                                        f->mpi ? &around : NULL, &f->exchange, err);
}

static int open_shared(struct shared_feed *f, const struct mr_bench_params *p, struct mr_error *err)
{
    int rc = mr_feed_mpi_wanted(p) ? mr_feed_mpi_open(p, f->readers, &f->mpi, err) : 0;
    if (!rc)
        rc = mr_comm_agree(f->comm, open_inner(f, p, err), err);
    uint64_t n = UINT64_MAX;
    for (uint32_t i = 0; i < f->n_inner; i++)
        n = MR_MIN(n, mr_feed_batches(f->inner[i]));
    if (!rc)
        rc = mr_comm_allreduce_u64(f->comm, &n, 1, MR_COMM_MIN, err);
    f->base.n_batches = n;
    return rc;
}

int mr_feed_shared_open(const struct mr_bench_params *p, struct feed **out, struct mr_error *err)
{
    int rc = check(p, err);
    if (rc)
        return rc;
    struct shared_feed *f = calloc(1, sizeof(*f));
    rc = mr_comm_agree(p->comm, f ? 0 : mr_error_set(err, -ENOMEM, "cannot share batches among the ranks"), err);
    if (rc || !f) {
        free(f);
        return rc;
    }
    f->base.ops = &shared_ops;
    f->comm = p->comm;
    f->readers = (uint32_t)MR_MIN(p->workload->pattern.collective_readers, (int64_t)p->comm->world);
    f->events = p->workload->pattern.unit == MR_CONF_UNIT_SAMPLE ? p->events : NULL;
    return mr_feed_finish_open(&f->base, open_shared(f, p, err), out);
}
