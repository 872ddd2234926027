/* The second pass: every call, some million events at a time in the order of time, so that memory is bounded; within a
 * round, the chunks of one thread in order by one worker (X4), threads in parallel. After a round the threads'
 * intervals are united. */
#include "base/common.h"
#include "base/workers.h"
#include "explain/explain_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define ROUND_EVENTS (4u << 20)

struct place {
    uint64_t first;
    uint32_t chunk;
};

static int by_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

static int by_chunk(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_wanted(const struct explain_job *j, const struct mr_trace_chunk *c, uint32_t lane)
{
    uint32_t rank = j->lane[lane].rank;
    if (!c->count || (rank == NO_INDEX && j->opt->rank >= 0))
        return false;
    return rank == NO_INDEX || (c->first_ns < j->rank[rank].to && c->last_ns >= j->rank[rank].from);
}

static int order_chunks(struct explain_job *j)
{
    const struct mr_trace *t = j->t;
    struct place *p = malloc((t->chunks + 1) * sizeof(*p));
    j->order = malloc((t->chunks + 1) * sizeof(*j->order));
    if (!p || !j->order) {
        free(p);
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->chunks; i++)
        if (is_wanted(j, &t->chunk[i], j->lane_of[i]))
            p[j->ordered++] = (struct place){t->chunk[i].first_ns, (uint32_t)i};
    qsort(p, j->ordered, sizeof(*p), by_first);
    for (size_t i = 0; i < j->ordered; i++)
        j->order[i] = p[i].chunk;
    free(p);
    return 0;
}

static int work_unit(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct explain_job *j = ctx->user;
    struct explain_worker *w = &j->worker[ctx->thread];
    int rc = 0;
    for (uint32_t i = j->unit_first.item[index]; i < j->unit_first.item[index + 1] && !rc; i++) {
        uint32_t chunk = j->unit.item[i];
        struct explain_lane *l = &j->lane[j->lane_of[chunk]];
        rc = mr_trace_read(j->t, chunk,
                           MR_WANT_TIME | MR_WANT_CALL | MR_WANT_FILE | MR_WANT_RESULT | MR_WANT_OFFSET | MR_WANT_FD,
                           &w->batch, err);
        if (!rc && (rc = mr_explain_lane_chunk(j, w, l, &w->batch)))
            mr_error_set(err, rc, "cannot explain the trace");
    }
    return rc;
}

/* The next chunks in time, sorted by thread. */
static int choose_round(struct explain_job *j)
{
    uint64_t events = 0;
    size_t n = 0;
    while (j->first_chunk + n < j->ordered && events < ROUND_EVENTS)
        events += j->t->chunk[j->order[j->first_chunk + n++]].count;
    j->unit.n = j->unit_first.n = 0;
    if (MR_VEC_RESERVE(&j->unit, n + 1) < 0 || MR_VEC_RESERVE(&j->unit_first, n + 2) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        j->unit.item[j->unit.n++] = j->order[j->first_chunk + i];
    qsort(j->unit.item, n, sizeof(*j->unit.item), by_chunk);
    for (uint32_t i = 0; i < n; i++)
        if (!i || j->lane_of[j->unit.item[i]] != j->lane_of[j->unit.item[i - 1]])
            j->unit_first.item[j->unit_first.n++] = i;
    j->unit_first.item[j->unit_first.n] = (uint32_t)n;
    j->first_chunk += n;
    assert(n > 0 && j->first_chunk <= j->ordered);
    j->round_end = j->first_chunk < j->ordered ? j->t->chunk[j->order[j->first_chunk]].first_ns : UINT64_MAX;
    return 0;
}

int mr_explain_scan(struct explain_job *j, struct mr_error *err)
{
    int rc = order_chunks(j);
    if (rc)
        return mr_error_set(err, rc, "cannot explain the trace");
    while (!rc && j->first_chunk < j->ordered) {
        rc = choose_round(j);
        if (rc)
            return mr_error_set(err, rc, "cannot explain the trace");
        rc = mr_workers_run(j->workers, j->unit_first.n, 1, work_unit, j, j->opt->stop, err);
        rc = rc ? rc : mr_explain_unite(j, err);
    }
    return rc;
}
