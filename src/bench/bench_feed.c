/* Feeds: see bench_feed.h. How a workload's reader keys become loader parameters is decided here and nowhere else:
 *
 *   read_threads     engine threads; 0 reads in the trainer's own thread (policy naive)
 *   policy, tiers    as the loader's; with tiers all epochs are announced, whatever the page cache. An evaluation
 * stages prefetch_size    batches read ahead; 0: with PyTorch 2, as its loader does, else none (read when asked, in
 * parallel) shuffle keys     mr_workload_order_name; the window of order buffer is shuffle_size transfer_size    reads
 * are split into pieces of it odirect          bypasses the page cache preprocess_time  spent in the engine threads
 * after decoding, on the CPU unless asked to sleep preprocess.*     real preprocessing, before that
 * record_length_bytes_resize   bytes of each sample that go to the
 * trainer */
#include "bench/bench_feed.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "event/emit.h"
#include "loader/group_share.h"
#include "loader/loader_together.h"
#include "loader/policy_choice.h"
#include "wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct transform {
    struct mr_dist time;
    uint64_t seed, resize_bytes;
    bool sleeps;
    const _Atomic uint32_t *stop;
};

struct feed {
    struct mr_loader *loader;
    struct transform transform;
    struct mr_preprocess_params preprocess;
    struct mr_pattern *pattern;
    struct mr_dataset *set; /* pattern: where samples lie */
    struct mr_store *pattern_store;
    uint64_t row_max; /* pattern: bytes of a sample that the trainer gets */
    uint64_t *row_bytes;
    struct share *share;
    char dataset[4096], *store;
    uint32_t batch_size;
    uint64_t n_batches, delivered; /* synthetic */
    uint64_t fake_bytes;
    atomic_bool stopped;
};

/* ---- emulated preprocessing ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec;
}

static int64_t preprocess(void *user, uint64_t epoch, uint64_t id, void *row, size_t row_bytes, size_t bytes)
{
    const struct transform *t = user;
    (void)row, (void)row_bytes;
    if (t->time.kind != MR_DIST_CONSTANT || t->time.a > 0) {
        double s = mr_bench_draw(&t->time, t->seed, MR_RNG_PREPROCESS, mr_mix64(epoch) + id);
        uint64_t ns = (uint64_t)(s * 1e9);
        if (t->sleeps) {
            mr_bench_compute(MR_COMPUTE_SLEEP, ns, t->stop);
        } else { /* by this thread's CPU time: a crowded machine takes longer, as it would for real work */
            uint64_t end = cpu_ns() + ns;
            while (cpu_ns() < end && !atomic_load_explicit(t->stop, memory_order_relaxed))
                ;
        }
    }
    return (int64_t)(t->resize_bytes ? MR_MIN(bytes, t->resize_bytes) : bytes);
}

/* ---- the loader's parameters ---- */

static unsigned look_ahead(const struct mr_bench_params *p)
{
    const struct mr_conf_reader *r = &p->workload->reader;
    int64_t n = p->lookahead >= 0 ? p->lookahead : r->prefetch_size;
    if (n == 0 && p->lookahead < 0 && r->data_loader == MR_DL_PYTORCH)
        n = 2;
    return (unsigned)n;
}

/* Tiers serve the training set; a mistake in the keys is the loader's to tell. */
static bool has_tiers(const struct mr_bench_params *p, struct mr_policy_choice *out)
{
    const struct mr_conf_reader *r = &p->workload->reader;
    bool through_loader = p->workload->pattern.unit == MR_UNIT_SAMPLE && p->workload->dataset.format != MR_CF_SYNTHETIC;
    return through_loader && mr_policy_choose(r->policy, r->tiers, p->allow_reorder, out, NULL) == 0 && out->tiers;
}

bool mr_feed_opens_together(const struct mr_bench_params *p)
{
    struct mr_policy_choice c;
    return mr_share_wanted(p) || has_tiers(p, &c);
}

static void choose_policy(const struct mr_bench_params *p, bool eval, struct mr_loader_params *out)
{
    const struct mr_conf_reader *r = &p->workload->reader;
    struct mr_policy_choice c;
    bool tiered = has_tiers(p, &c);
    out->policy = out->threads == 0 ? "naive" : "staging";
    if ((eval && tiered) || (!*r->policy && !*r->tiers))
        return;
    out->policy = *r->policy ? r->policy : NULL;
    out->tiers = *r->tiers ? r->tiers : NULL;
    out->threads = MR_MAX(out->threads, 1u);
    out->peers = (enum mr_loader_peers)r->peers;
    out->allow_reorder = p->allow_reorder;
    out->exchange = mr_wire_exchange_comm;
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
    out->threads = p->threads ? p->threads : (unsigned)w->reader.read_threads;
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

/* ---- an access pattern ---- */

static void pattern_prepare(void *user, uint64_t epoch, uint64_t first, uint64_t n)
{
    struct feed *f = user;
    for (uint64_t i = 0; i < n && !atomic_load_explicit(f->transform.stop, memory_order_relaxed); i++)
        preprocess(&f->transform, epoch, first + i, NULL, 0, 0);
}

static int read_header(struct feed *f, const struct mr_bench_params *p, struct mr_error *err)
{
    const struct mr_conf_pattern *c = &p->workload->pattern;
    struct mr_store_stat st;
    char path[2 * MR_NAME_MAX];
    if (!c->header_reads)
        return 0;
    int rc = 0;
    if (c->header_file)
        snprintf(path, sizeof path, "%s/header", p->data);
    else
        rc = mr_dataset_file_path(f->set, 0, path, err);
    if (!rc)
        rc = mr_store_stat(f->pattern_store, path, &st, err);
    return rc ? rc : mr_pattern_read_header(c, f->pattern_store, path, st.bytes, err);
}

/* What belongs to a pattern but is no batch: the header. */
static int pattern_start(struct feed *f, const struct mr_bench_params *p, struct mr_error *err)
{
    const struct mr_conf_pattern *c = &p->workload->pattern;
    bool needs_set = c->unit != MR_UNIT_NONE || (c->header_reads && !c->header_file);
    int rc = mr_store_open_with_events(f->store, mr_events_calls(p->events), &f->pattern_store, err);
    if (!rc && needs_set)
        rc = mr_dataset_open(f->dataset, NULL, &f->set, err);
    return rc ? rc : read_header(f, p, err);
}

static int pattern_open(struct feed *f, const struct mr_bench_params *p, const struct mr_loader_params *lp,
                        struct mr_fetch_source *source, struct mr_error *err)
{
    bool prepares = f->transform.time.kind != MR_DIST_CONSTANT || f->transform.time.a > 0;
    const struct mr_pattern_params pp = {.workload = p->workload,
                                         .dataset = f->set,
                                         .store = f->pattern_store,
                                         .rank = lp->order.rank,
                                         .world = lp->order.world,
                                         .seed = p->seed,
                                         .readers = lp->threads,
                                         .prefetch = lp->lookahead,
                                         .file_passes = (uint64_t)p->workload->pattern.file_passes,
                                         .max_steps = p->calls_only ? 0 : p->plan->total_steps,
                                         .drop_last = p->workload->reader.drop_last && !p->calls_only,
                                         .whole_epochs = p->calls_only,
                                         .keep = !p->calls_only || mr_share_wanted(p),
                                         .verify = (lp->flags & MR_LOADER_VERIFY_CONTENT) != 0,
                                         .source = source,
                                         .prepare = prepares ? pattern_prepare : NULL,
                                         .user = f};
    int rc = mr_pattern_open(&pp, &f->pattern, err);
    if (rc)
        return rc;
    f->n_batches = pp.file_passes && !pp.whole_epochs ? p->plan->steps_per_epoch : mr_pattern_batches(f->pattern);
    f->n_batches = pp.whole_epochs ? MR_MAX(f->n_batches, 1u) : f->n_batches;
    f->row_max = f->transform.resize_bytes ? f->transform.resize_bytes : UINT64_MAX;
    f->row_bytes = calloc(lp->batch_size, sizeof(*f->row_bytes));
    if (!f->row_bytes)
        return mr_error_set(err, -ENOMEM, "cannot make a batch");
    return p->workload->reader.read_type == MR_READ_MEMORY ? mr_pattern_preload(f->pattern, err) : 0;
}

static int pattern_next(struct feed *f, struct feed_batch *out, struct mr_error *err)
{
    struct mr_pattern_batch b;
    int rc = mr_pattern_next(f->pattern, &b, err);
    if (rc <= 0)
        return rc;
    *out = (struct feed_batch){.n = b.n, .rows = b.rows, .bytes = f->row_bytes, .read_bytes = b.read_bytes};
    if (!b.rows) /* dropped */
        out->sample_bytes = b.sample_bytes;
    for (uint32_t i = 0; b.rows && i < b.n; i++) {
        f->row_bytes[i] = MR_MIN(b.bytes[i], f->row_max);
        out->sample_bytes += f->row_bytes[i];
    }
    return 1;
}

/* ---- one interface ---- */

void mr_bench_set_path(const struct mr_bench_params *p, bool eval, char *out, size_t cap)
{
    int n = snprintf(out, cap, "%s/%s", p->data ? p->data : "", eval ? "valid" : "train");
    if (p->first_files[eval] && n > 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, "@files=%llu", (unsigned long long)p->first_files[eval]);
}

/* A set that is held in memory is read before the first step; a stop ends that, too. */
static int load(struct feed *f, struct mr_error *err)
{
    int rc;
    while ((rc = mr_loader_load(f->loader, 50 * MR_NS_PER_MS, err)) == MR_E_TIMEOUT)
        if (atomic_load(f->transform.stop))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    return rc;
}

/* The parameters that a feed's own parts serve, and what it reads. */
static int loader_open(struct feed *f, const struct mr_bench_params *p, bool eval, struct mr_loader_params *lp,
                       struct mr_error *err)
{
    const struct mr_workload *w = p->workload;
    bool grouped = !eval && mr_share_wanted(p);
    struct mr_loader_group group;
    int rc = mr_bench_preprocess_params(w, eval, p->seed, &f->preprocess, err);
    if (rc < 0)
        return rc;
    if (rc > 0)
        lp->preprocess = &f->preprocess;
    if (f->transform.resize_bytes || f->transform.time.kind != MR_DIST_CONSTANT || f->transform.time.a > 0) {
        lp->transform = preprocess;
        lp->transform_user = &f->transform;
    }
    if (w->reader.read_type == MR_READ_MEMORY && !eval)
        lp->flags |= MR_LOADER_IN_MEMORY;
    if (grouped) {
        group = mr_share_group(p);
        lp->group = &group;
        lp->store = p->store;
    }
    rc = mr_loader_open(lp, &f->loader, err);
    if (!rc)
        f->n_batches = mr_loader_batches_per_epoch(f->loader);
    return rc ? rc : load(f, err);
}

/* Headers are read by who reads, for each rank it reads for. */
static int start_pattern_parts(struct feed *f, const struct mr_bench_params *p, int unit, struct mr_error *err)
{
    bool grouped = unit == MR_UNIT_SAMPLE && mr_share_wanted(p);
    struct mr_loader_group group = mr_share_group(p);
    uint32_t times = grouped ? mr_group_feeds(&group) : 1;
    int rc = 0;
    for (uint32_t i = 0; i < times && !rc; i++)
        rc = i ? read_header(f, p, err) : pattern_start(f, p, err);
    return grouped ? mr_comm_agree(p->comm, rc, err) : rc;
}

static int feed_open_kind(struct feed *f, const struct mr_bench_params *p, bool eval, uint32_t rank,
                          struct mr_fetch_source *source, struct mr_error *err)
{
    const struct mr_workload *w = p->workload;
    struct mr_loader_params lp;
    int unit = eval ? MR_UNIT_SAMPLE : w->pattern.unit, rc = 0;
    mr_bench_loader_params(p, eval, &lp);
    lp.order.rank = rank;
    f->batch_size = lp.batch_size;
    mr_bench_set_path(p, eval, f->dataset, sizeof f->dataset);
    f->store = mr_group_store_spec(p->store, p->comm->rank, rank);
    if (!eval && (unit != MR_UNIT_SAMPLE || w->pattern.header_reads))
        rc = start_pattern_parts(f, p, unit, err);
    if (rc)
        return rc;
    if (w->dataset.format == MR_CF_SYNTHETIC || unit == MR_UNIT_NONE) {
        f->n_batches = eval ? p->plan->eval_steps : p->plan->steps_per_epoch;
        f->fake_bytes = (uint64_t)(p->plan->record_bytes * lp.batch_size);
        return 0;
    }
    lp.dataset = f->dataset;
    lp.store = f->store;
    f->transform = (struct transform){.time = w->reader.preprocess_time,
                                      .seed = p->seed,
                                      .sleeps = p->preprocess_sleeps,
                                      .resize_bytes = (uint64_t)w->dataset.record_length_bytes_resize,
                                      .stop = &p->board->stop};
    return unit == MR_UNIT_SAMPLE ? loader_open(f, p, eval, &lp, err) : pattern_open(f, p, &lp, source, err);
}

static int finish_open(struct feed *f, int rc, struct feed **out)
{
    if (rc)
        mr_feed_close(f);
    else
        *out = f;
    return rc;
}

int mr_feed_open_for(const struct mr_bench_params *p, bool eval, uint32_t rank, struct mr_fetch_source *source,
                     struct feed **out, struct mr_error *err)
{
    struct feed *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    return finish_open(f, feed_open_kind(f, p, eval, rank, source, err), out);
}

int mr_feed_open(const struct mr_bench_params *p, bool eval, struct feed **out, struct mr_error *err)
{
    bool shared = !eval && mr_share_wanted(p);
    int rc = shared ? mr_share_check(p, err) : 0;
    if (rc)
        return rc;
    if (!shared || p->workload->pattern.unit == MR_UNIT_SAMPLE)
        return mr_feed_open_for(p, eval, p->comm->rank, NULL, out, err);
    struct feed *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    return finish_open(f, mr_share_open(p, &f->share, &f->n_batches, err), out);
}

void mr_feed_close(struct feed *f)
{
    if (!f)
        return;
    mr_share_close(f->share);
    mr_loader_close(f->loader);
    mr_pattern_close(f->pattern);
    mr_dataset_close(f->set);
    mr_store_close(f->pattern_store);
    free(f->row_bytes);
    free(f->store);
    free(f);
}

void mr_feed_close_together(struct feed *f)
{
    if (!f)
        return;
    mr_loader_close_together(f->loader);
    f->loader = NULL;
    mr_feed_close(f);
}

void mr_feed_detach(struct feed *f)
{
    if (f && f->share)
        mr_share_detach(f->share);
}

uint64_t mr_feed_batches(const struct feed *f)
{
    return f->n_batches;
}

int mr_feed_start_epoch(struct feed *f, uint64_t epoch, struct mr_error *err)
{
    f->delivered = 0;
    if (f->share)
        return mr_share_start_epoch(f->share, epoch, err);
    if (f->pattern) /* its items go on from epoch to epoch */
        return epoch ? 0 : mr_pattern_preload(f->pattern, err);
    return f->loader ? mr_loader_start_epoch(f->loader, epoch, err) : 0;
}

int mr_feed_next(struct feed *f, struct feed_batch *out, struct mr_error *err)
{
    *out = (struct feed_batch){0};
    if (f->share)
        return mr_share_next(f->share, out, err);
    if (f->pattern)
        return pattern_next(f, out, err);
    if (f->loader) {
        struct mr_batch *b;
        int rc = mr_loader_next(f->loader, &b, err);
        if (rc <= 0)
            return rc;
        *out = (struct feed_batch){
            .n = b->n, .rows = b->rows, .bytes = b->bytes, .read_bytes = b->read_bytes, .loader_batch = b};
        for (uint32_t i = 0; i < b->n; i++)
            out->sample_bytes += b->bytes[i];
        return 1;
    }
    if (atomic_load(&f->stopped))
        return mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped");
    if (f->delivered == f->n_batches)
        return 0;
    f->delivered++;
    out->n = f->batch_size;
    out->sample_bytes = f->fake_bytes;
    return 1;
}

void mr_feed_release(struct feed *f, struct feed_batch *b)
{
    if (b->loader_batch)
        mr_loader_release(f->loader, b->loader_batch);
    b->loader_batch = NULL;
    if (f->pattern)
        mr_pattern_release(f->pattern);
}

uint64_t mr_feed_pieces(struct feed *f)
{
    return f->pattern ? mr_pattern_pieces(f->pattern) : 0;
}

int mr_feed_drain(struct feed *f, struct mr_error *err)
{
    return f->loader ? mr_loader_drain(f->loader, err) : 0;
}

int mr_feed_finish(struct feed *f, struct mr_error *err)
{
    if (f->share)
        return mr_share_finish(f->share, err);
    return f->pattern ? mr_pattern_finish(f->pattern, err) : 0;
}

void mr_feed_stop(struct feed *f)
{
    atomic_store(&f->stopped, true);
    if (f->loader)
        mr_loader_stop(f->loader);
    if (f->pattern)
        mr_pattern_stop(f->pattern);
    if (f->share)
        mr_share_stop(f->share);
}

void mr_feed_stats(struct feed *f, struct mr_bench_loader_stats *out)
{
    if (f->share)
        mr_share_stats(f->share, out);
    if (!f->loader && !f->pattern)
        return;
    if (f->loader)
        mr_loader_get_stats(f->loader, &out->stats);
    else
        mr_pattern_get_stats(f->pattern, &out->stats);
    snprintf(out->limiter, sizeof out->limiter, "%s", out->stats.lifetime_limiter);
    snprintf(out->chosen, sizeof out->chosen, "%s", f->loader ? mr_loader_chosen(f->loader) : "");
    out->stats.limiter = out->stats.lifetime_limiter = NULL;
}
