/* An access pattern as a feed (pattern.h). */
#include "bench/bench_feed.h"
#include "base/common.h"
#include "conf/sample_fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct pattern_feed {
    struct feed base;
    struct mr_pattern *pattern;
    struct mr_feed_work work;
    uint64_t row_max; /* bytes of a sample that reach the trainer */
    uint64_t *row_bytes;
};

static struct mr_pattern *pattern_of(struct feed *f)
{
    return ((struct pattern_feed *)f)->pattern;
}

/* Items go on from epoch to epoch. */
static int pattern_start(struct feed *f, uint64_t epoch, struct mr_error *err)
{
    return epoch ? 0 : mr_pattern_preload(pattern_of(f), err);
}

static int pattern_next(struct feed *base, struct feed_batch *out, struct mr_error *err)
{
    struct pattern_feed *f = (struct pattern_feed *)base;
    struct mr_pattern_batch b;
    int rc = mr_pattern_next(f->pattern, &b, err);
    if (rc <= 0)
        return rc;
    *out = (struct feed_batch){.n = b.n, .rows = b.rows, .bytes = f->row_bytes, .read_bytes = b.read_bytes};
    bool resized = f->row_max != UINT64_MAX && b.rows;
    out->sample_bytes = resized ? 0 : b.sample_bytes;
    for (uint32_t i = 0; b.rows && i < b.n; i++) {
        f->row_bytes[i] = MR_MIN(b.bytes[i], f->row_max);
        out->sample_bytes += resized ? f->row_bytes[i] : 0;
    }
    return 1;
}

static void pattern_release(struct feed *f, struct feed_batch *b)
{
    (void)b;
    mr_pattern_release(pattern_of(f));
}

static uint64_t pattern_pieces(struct feed *f)
{
    return mr_pattern_pieces(pattern_of(f));
}

static int pattern_finish(struct feed *f, struct mr_error *err)
{
    return mr_pattern_finish(pattern_of(f), err);
}

static void pattern_stop(struct feed *f)
{
    mr_pattern_stop(pattern_of(f));
}

static void pattern_stats(struct feed *f, struct mr_bench_loader_stats *out)
{
    mr_pattern_get_stats(pattern_of(f), &out->stats);
    snprintf(out->limiter, sizeof out->limiter, "%s", out->stats.lifetime_limiter);
    out->chosen[0] = '\0';
    out->stats.limiter = out->stats.lifetime_limiter = NULL;
}

static void pattern_close(struct feed *base, bool together)
{
    struct pattern_feed *f = (struct pattern_feed *)base;
    (void)together;
    mr_pattern_close(f->pattern);
    free(f->row_bytes);
}

static const struct feed_ops pattern_ops = {.start_epoch = pattern_start,
                                            .next = pattern_next,
                                            .release = pattern_release,
                                            .pieces = pattern_pieces,
                                            .finish = pattern_finish,
                                            .stop = pattern_stop,
                                            .stats = pattern_stats,
                                            .close = pattern_close};

static void prepare(void *user, uint64_t epoch, uint64_t first, uint64_t n)
{
    struct mr_feed_work *w = user;
    for (uint64_t i = 0; i < n && !atomic_load_explicit(w->stop, memory_order_relaxed); i++)
        mr_feed_work_do(w, epoch, first + i, NULL, 0, 0);
}

/* The fields that are read, where the workload names them. */
static int select_fields(struct mr_dataset *set, const struct mr_workload *w, struct mr_error *err)
{
    const char **names = NULL;
    uint32_t n = 0;
    int rc = mr_sample_fields_names(w, &names, &n, err);
    if (!rc && n)
        rc = mr_dataset_select(set, names, n, err);
    free(names);
    return rc;
}

static int open_pattern(struct pattern_feed *f, const struct feed_request *q, struct mr_error *err)
{
    const struct mr_bench_params *p = q->p;
    struct mr_loader_params lp;
    mr_bench_loader_params(p, q->eval, &lp);
    f->work = mr_feed_work_of(p);
    const struct mr_pattern_params pp = {.workload = p->workload,
                                         .dataset = f->base.set,
                                         .store = f->base.store,
                                         .rank = q->rank,
                                         .world = lp.order.world,
                                         .seed = p->seed,
                                         .readers = lp.threads,
                                         .prefetch = lp.lookahead,
                                         .file_passes = (uint64_t)p->workload->pattern.file_passes,
                                         .max_steps = p->calls_only ? 0 : p->plan->total_steps,
                                         .drop_last = p->workload->reader.drop_last && !p->calls_only,
                                         .whole_epochs = p->calls_only,
                                         .keep = !p->calls_only || q->for_others,
                                         .verify = (lp.flags & MR_LOADER_VERIFY_CONTENT) != 0,
                                         .source = q->source,
                                         .prepare = mr_feed_work_takes_time(&f->work) ? prepare : NULL,
                                         .user = &f->work};
    int rc = select_fields(f->base.set, p->workload, err);
    if (!rc)
        rc = mr_pattern_open(&pp, &f->pattern, err);
    if (rc)
        return rc;
    uint64_t n = pp.file_passes && !pp.whole_epochs ? p->plan->steps_per_epoch : mr_pattern_batches(f->pattern);
    f->base.n_batches = pp.whole_epochs ? MR_MAX(n, 1u) : n;
    f->row_max = f->work.resize_bytes ? f->work.resize_bytes : UINT64_MAX;
    f->row_bytes = calloc(lp.batch_size, sizeof(*f->row_bytes));
    if (!f->row_bytes)
        return mr_error_set(err, -ENOMEM, "cannot make a batch");
    return p->workload->reader.read_type == MR_CONF_READ_MEMORY ? mr_pattern_preload(f->pattern, err) : 0;
}

int mr_feed_pattern_open(const struct feed_request *q, struct feed **out, struct mr_error *err)
{
    struct pattern_feed *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    int rc = mr_feed_init(&f->base, &pattern_ops, q, true, err);
    return mr_feed_finish_open(&f->base, rc ? rc : open_pattern(f, q, err), out);
}
