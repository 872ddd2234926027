/* The loader as a feed. How a workload's reader keys become loader parameters is decided here and nowhere else:
 *
 *   read_threads      engine threads; 0 reads in the trainer's own thread (policy naive)
 *   policy, tiers     as the loader's; with tiers all epochs are announced, whatever the page cache. Evaluations use
 *                     policy staging
 *   prefetch_size     batches read ahead; 0: with PyTorch 2, as its loader does, else none (read on demand, in parallel)
 *   shuffle keys      mr_pattern_order; the window of order buffer is shuffle_size
 *   transfer_size     reads are split into pieces of it
 *   odirect           bypasses the page cache
 *   preprocess_time   spent in the engine threads after decoding, on the CPU unless asked to sleep
 *   preprocess.*      real preprocessing, before that
 *   fields            those that are read are the fields of the batches (conf/sample_fields.h)
 *   record_length_bytes_resize   bytes of each sample that reach the trainer */
#include "bench/bench_feed.h"
#include "base/clock.h"
#include "base/common.h"
#include "conf/sample_fields.h"
#include "event/emit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parameters ---- */

static unsigned look_ahead(const struct mr_bench_params *p)
{
    const struct mr_conf_reader *r = &p->workload->reader;
    int64_t n = p->lookahead >= 0 ? p->lookahead : r->prefetch_size;
    if (n == 0 && p->lookahead < 0 && r->data_loader == MR_DL_PYTORCH)
        n = 2;
    return (unsigned)n;
}

static unsigned read_threads(const struct mr_workload *w, unsigned threads)
{
    return threads ? threads : (unsigned)w->reader.read_threads;
}

/* Without a policy and tiers. */
static const char *plain_policy(const struct mr_workload *w, unsigned threads)
{
    return read_threads(w, threads) ? "staging" : "naive";
}

int mr_bench_choose_policy(const struct mr_workload *w, unsigned threads, struct mr_loader_choice *out,
                           struct mr_error *err)
{
    const struct mr_conf_reader *r = &w->reader;
    return mr_loader_choose(*r->policy || *r->tiers ? r->policy : plain_policy(w, threads), r->tiers, out, err);
}

/* Tiers serve the training set. A mistake in the keys is reported by mr_loader_open. */
static bool has_tiers(const struct mr_bench_params *p)
{
    struct mr_loader_choice c;
    bool through_loader =
        p->workload->pattern.unit == MR_CONF_UNIT_SAMPLE && p->workload->dataset.format != MR_CF_SYNTHETIC;
    return through_loader && mr_bench_choose_policy(p->workload, p->threads, &c, NULL) == 0 && c.tiers;
}

bool mr_feed_opens_together(const struct mr_bench_params *p)
{
    return mr_feed_is_shared(p) || has_tiers(p);
}

static void choose_policy(const struct mr_bench_params *p, bool eval, struct mr_loader_params *out)
{
    const struct mr_conf_reader *r = &p->workload->reader;
    bool tiered = has_tiers(p);
    out->policy = plain_policy(p->workload, p->threads);
    if ((eval && tiered) || (!*r->policy && !*r->tiers))
        return;
    out->policy = *r->policy ? r->policy : NULL;
    out->tiers = *r->tiers ? r->tiers : NULL;
    out->threads = MR_MAX(out->threads, 1u);
    out->peers = (enum mr_loader_peers)r->peers;
    out->exchange = mr_comm_exchange;
    out->exchange_ctx = p->comm;
    if (!tiered || !p->plan->steps_per_epoch)
        return;
    out->last_epoch = (MR_MAX(p->plan->total_steps, 1u) - 1) / p->plan->steps_per_epoch;
    out->epochs_known = true;
}

void mr_bench_loader_params(const struct mr_bench_params *p, bool eval, struct mr_loader_params *out)
{
    const struct mr_workload *w = p->workload;
    mr_loader_params_init(out);
    out->order.seed = p->seed;
    out->order.rank = p->comm->rank;
    out->order.world = p->comm->world;
    out->order.drop_last = w->reader.drop_last;
    out->order.shuffle_each_epoch = w->train.seed_change_epoch;
    out->order.window = 1;
    if (eval)
        out->order.mode = MR_ORDER_SEQUENTIAL;
    else
        mr_pattern_order(w, &out->order);
    out->batch_size = (uint32_t)(eval ? w->reader.batch_size_eval : w->reader.batch_size);
    out->drop_last_batch = w->reader.drop_last;
    out->threads = read_threads(w, p->threads);
    out->lookahead = look_ahead(p);
    out->io = p->io;
    out->flags = p->loader_flags | (w->reader.odirect ? MR_LOADER_DIRECT : 0) | MR_LOADER_IN_PLACE;
    /* Across the border of epochs, unless the page cache changes there. Evaluations come when they come. */
    if (!eval && !(p->cache_each_epoch && p->cache != MR_CACHE_ASIS) && p->plan->steps_per_epoch)
        out->last_epoch = (MR_MAX(p->plan->total_steps, 1u) - 1) / p->plan->steps_per_epoch;
    choose_policy(p, eval, out);
    out->transfer_bytes = w->reader.transfer_size;
    out->events = p->events;
}

/* ---- the feed ---- */

struct loader_feed {
    struct feed base;
    struct mr_loader *loader;
    struct mr_events *quiet; /* for_others: the events without those of steps */
    struct mr_feed_work work;
    struct mr_preprocess_params preprocess;
};

static struct mr_loader *loader_of(struct feed *f)
{
    return ((struct loader_feed *)f)->loader;
}

static int loader_start(struct feed *f, uint64_t epoch, struct mr_error *err)
{
    return mr_loader_start_epoch(loader_of(f), epoch, err);
}

static int loader_next(struct feed *f, struct feed_batch *out, struct mr_error *err)
{
    struct mr_batch *b;
    int rc = mr_loader_next(loader_of(f), &b, err);
    if (rc <= 0)
        return rc;
    *out = (struct feed_batch){
        .n = b->n, .rows = b->rows, .bytes = b->bytes, .read_bytes = b->read_bytes, .loader_batch = b};
    for (uint32_t i = 0; i < b->n && !b->n_fields; i++)
        out->sample_bytes += b->bytes[i];
    for (uint32_t k = 0; k < b->n_fields; k++)
        for (uint32_t i = 0; i < b->n; i++)
            out->sample_bytes += b->fields[k]->bytes[i];
    return 1;
}

static void loader_release(struct feed *f, struct feed_batch *b)
{
    if (b->loader_batch)
        mr_loader_release(loader_of(f), b->loader_batch);
    b->loader_batch = NULL;
}

static int loader_drain(struct feed *f, struct mr_error *err)
{
    return mr_loader_drain(loader_of(f), err);
}

static void loader_stop(struct feed *f)
{
    mr_loader_stop(loader_of(f));
}

static void loader_stats(struct feed *f, struct mr_bench_loader_stats *out)
{
    mr_loader_get_stats(loader_of(f), &out->stats);
    snprintf(out->limiter, sizeof out->limiter, "%s", out->stats.lifetime_limiter);
    snprintf(out->chosen, sizeof out->chosen, "%s", mr_loader_chosen(loader_of(f)));
    out->stats.limiter = out->stats.lifetime_limiter = NULL;
    out->fields.n = 0;
    struct mr_loader_field_stats s;
    for (uint32_t k = 0; mr_loader_get_field_stats(loader_of(f), k, &s); k++) {
        struct mr_bench_field *to = mr_bench_field(&out->fields, s.name);
#define ADD(member) to->member += s.member;
        MR_FIELD_COSTS(ADD)
#undef ADD
    }
}

static void loader_close(struct feed *base, bool together)
{
    struct loader_feed *f = (struct loader_feed *)base;
    if (together)
        mr_loader_close_together(f->loader);
    else
        mr_loader_close(f->loader);
    mr_events_release(f->quiet);
}

static const struct feed_ops loader_ops = {.start_epoch = loader_start,
                                           .next = loader_next,
                                           .release = loader_release,
                                           .drain = loader_drain,
                                           .stop = loader_stop,
                                           .stats = loader_stats,
                                           .close = loader_close};

/* A set that is held in memory is read before the first step; a stop ends that, too. */
static int load(struct loader_feed *f, struct mr_error *err)
{
    int rc;
    while ((rc = mr_loader_load(f->loader, 50 * MR_NS_PER_MS, err)) == MR_E_TIMEOUT)
        if (atomic_load(f->work.stop))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    return rc;
}

static int add_preprocessing(struct loader_feed *f, const struct feed_request *q, struct mr_loader_params *lp,
                             struct mr_error *err)
{
    int rc = mr_bench_preprocess_params(q->p->workload, q->eval, q->p->seed, &f->preprocess, err);
    if (rc < 0)
        return rc;
    if (rc > 0)
        lp->preprocess = &f->preprocess;
    f->work = mr_feed_work_of(q->p);
    if (f->work.resize_bytes || mr_feed_work_takes_time(&f->work)) {
        lp->transform = mr_feed_work_do;
        lp->transform_user = &f->work;
    }
    return 0;
}

/* Tables are read column by column, into rows without gaps. */
static int choose_fields(const struct mr_workload *w, struct mr_loader_params *lp, const char ***names,
                         struct mr_error *err)
{
    int rc = mr_sample_fields_names(w, names, &lp->n_fields, err);
    lp->fields = *names;
    if (lp->n_fields)
        lp->flags &= ~(unsigned)MR_LOADER_IN_PLACE;
    if (lp->n_fields && w->dataset.format == MR_CF_PARQUET)
        lp->flags |= MR_LOADER_DENSE;
    return rc;
}

static int open_loader(struct loader_feed *f, const struct feed_request *q, struct mr_error *err)
{
    struct mr_loader_params lp;
    const char **names = NULL;
    mr_bench_loader_params(q->p, q->eval, &lp);
    lp.order.rank = q->rank;
    lp.dataset = f->base.dataset;
    lp.store = f->base.store_spec;
    if (q->p->workload->reader.read_type == MR_CONF_READ_MEMORY && !q->eval)
        lp.flags |= MR_LOADER_IN_MEMORY;
    if (q->for_others && lp.events) {
        lp.events = f->quiet = mr_events_without_steps(lp.events);
        if (!f->quiet)
            return mr_error_set(err, -ENOMEM, "cannot make a feed");
    }
    int rc = add_preprocessing(f, q, &lp, err);
    if (!rc)
        rc = choose_fields(q->p->workload, &lp, &names, err);
    if (!rc)
        rc = mr_loader_open(&lp, &f->loader, err);
    free(names);
    if (rc)
        return rc;
    f->base.n_batches = mr_loader_batches_per_epoch(f->loader);
    return load(f, err);
}

int mr_feed_loader_open(const struct feed_request *q, struct feed **out, struct mr_error *err)
{
    struct loader_feed *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    int rc = mr_feed_init(&f->base, &loader_ops, q, false, err);
    return mr_feed_finish_open(&f->base, rc ? rc : open_loader(f, q, err), out);
}
