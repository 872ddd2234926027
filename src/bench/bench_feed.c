/* Feeds: see bench_feed.h. What all kinds have in common: which kind a workload needs, the header of a pattern, and
 * calls that a kind has nothing to do for. */
#include "bench/bench_feed.h"
#include "base/common.h"
#include "event/emit.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

void mr_bench_set_path(const struct mr_bench_params *p, bool eval, char *out, size_t cap)
{
    int n = snprintf(out, cap, "%s/%s", p->data ? p->data : "", eval ? "valid" : "train");
    if (p->first_files[eval] && n > 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, "@files=%llu", (unsigned long long)p->first_files[eval]);
}

/* "{rank}" in a storage stack: every rank its own trace file, for example. A rank that reads for others has one more
 * for each of them: "R-for-S". NULL when spec is NULL or memory is short. */
static char *expand_rank(const char *spec, uint32_t rank, uint32_t reads_for)
{
    const char *at = spec ? strstr(spec, "{rank}") : NULL;
    char *out = NULL, name[32];
    if (!spec || !at)
        return spec ? strdup(spec) : NULL;
    char *head = strndup(spec, (size_t)(at - spec)), *tail = expand_rank(at + 6, rank, reads_for);
    snprintf(name, sizeof name, rank == reads_for ? "%u" : "%u-for-%u", rank, reads_for);
    if (!head || !tail || asprintf(&out, "%s%s%s", head, name, tail) < 0)
        out = NULL;
    free(head);
    free(tail);
    return out;
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
        rc = mr_store_stat(f->store, path, &st, err);
    return rc ? rc : mr_pattern_read_header(c, f->store, path, st.bytes, err);
}

/* The manifest, past the shims: it is read once, before the job begins. */
static int open_set(struct feed *f, struct mr_error *err)
{
    char *backend;
    int rc = mr_store_backend_for(mr_store_is_url(f->dataset) ? f->store_spec : NULL, f->dataset, &backend, err);
    if (rc)
        return rc;
    rc = mr_dataset_open(f->dataset, backend, &f->set, err);
    free(backend);
    return rc;
}

int mr_feed_init(struct feed *f, const struct feed_ops *ops, const struct feed_request *q, bool with_files,
                 struct mr_error *err)
{
    const struct mr_bench_params *p = q->p;
    const struct mr_conf_pattern *c = &p->workload->pattern;
    bool header = c->header_reads && !q->eval;
    f->ops = ops;
    mr_bench_set_path(p, q->eval, f->dataset, sizeof f->dataset);
    char *spec = expand_rank(p->store, p->comm->rank, q->rank);
    if (p->store && !spec)
        return mr_error_set(err, -ENOMEM, "cannot make a feed");
    int rc = mr_store_spec_for(spec, f->dataset, &f->store_spec, err);
    free(spec);
    if (rc || (!with_files && !header))
        return rc;
    rc = mr_store_open_with_events(f->store_spec, mr_events_calls(p->events), &f->store, err);
    if (!rc)
        mr_store_emit_requests(f->store, p->events);
    if (!rc && (with_files || !c->header_file))
        rc = open_set(f, err);
    return rc || !header ? rc : read_header(f, p, err);
}

int mr_feed_finish_open(struct feed *f, int rc, struct feed **out)
{
    if (rc)
        mr_feed_close(f);
    else
        *out = f;
    return rc;
}

int mr_feed_open_for(const struct feed_request *q, struct feed **out, struct mr_error *err)
{
    const struct mr_workload *w = q->p->workload;
    int unit = q->eval ? MR_CONF_UNIT_SAMPLE : w->pattern.unit;
    if (w->dataset.format == MR_CF_SYNTHETIC || unit == MR_CONF_UNIT_NONE)
        return mr_feed_synthetic_open(q, out, err);
    return unit == MR_CONF_UNIT_SAMPLE ? mr_feed_loader_open(q, out, err) : mr_feed_pattern_open(q, out, err);
}

int mr_feed_open(const struct mr_bench_params *p, bool eval, struct feed **out, struct mr_error *err)
{
    const struct feed_request q = {.p = p, .eval = eval, .rank = p->comm->rank};
    return !eval && mr_feed_is_shared(p) ? mr_feed_shared_open(p, out, err) : mr_feed_open_for(&q, out, err);
}

/* ---- closing ---- */

static void close_feed(struct feed *f, bool together)
{
    if (!f)
        return;
    if (f->ops && f->ops->close)
        f->ops->close(f, together);
    mr_dataset_close(f->set);
    mr_store_close(f->store);
    free(f->store_spec);
    free(f);
}

void mr_feed_close(struct feed *f)
{
    close_feed(f, false);
}

void mr_feed_close_together(struct feed *f)
{
    close_feed(f, true);
}

void mr_feed_detach(struct feed *f)
{
    if (f && f->ops->detach)
        f->ops->detach(f);
}

/* ---- epochs and batches ---- */

uint64_t mr_feed_batches(const struct feed *f)
{
    return f->n_batches;
}

int mr_feed_start_epoch(struct feed *f, uint64_t epoch, struct mr_error *err)
{
    return f->ops->start_epoch ? f->ops->start_epoch(f, epoch, err) : 0;
}

int mr_feed_next(struct feed *f, struct feed_batch *out, struct mr_error *err)
{
    *out = (struct feed_batch){0};
    return f->ops->next(f, out, err);
}

void mr_feed_release(struct feed *f, struct feed_batch *b)
{
    if (f->ops->release)
        f->ops->release(f, b);
}

uint64_t mr_feed_pieces(struct feed *f)
{
    return f->ops->pieces ? f->ops->pieces(f) : 0;
}

int mr_feed_drain(struct feed *f, struct mr_error *err)
{
    return f->ops->drain ? f->ops->drain(f, err) : 0;
}

int mr_feed_finish(struct feed *f, struct mr_error *err)
{
    return f->ops->finish ? f->ops->finish(f, err) : 0;
}

void mr_feed_stop(struct feed *f)
{
    if (f->ops->stop)
        f->ops->stop(f);
}

void mr_feed_stats(struct feed *f, struct mr_bench_loader_stats *out)
{
    if (f->ops->stats)
        f->ops->stats(f, out);
}
