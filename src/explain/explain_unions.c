/* Unions over the threads of a rank, round by round. The lists of all threads of a rank are united per class; what lies
 * before the end of the round is measured, the rest waits for the next one. */
#include "base/common.h"
#include "base/workers.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Threads of a rank, for uniting. */
struct union_job {
    struct explain_job *j;
    uint32_t *first, *lane; /* by rank: where its lanes begin in `lane` */
};

/* Unites neighbours until one is left: every interval is looked at log2(lists) times. */
static int unite_lists(struct mr_intervals **list, size_t n, struct mr_intervals *scratch)
{
    for (size_t step = 1; step < n; step *= 2)
        for (size_t i = 0; i + step < n; i += 2 * step)
            if (mr_intervals_merge(list[i], list[i + step], scratch) < 0)
                return -ENOMEM;
    return 0;
}

/* Cuts a normal list at `end`; what lies behind goes to `rest`. */
static int cut(struct mr_intervals *v, uint64_t end, struct mr_intervals *rest)
{
    size_t keep = v->n;
    rest->n = 0;
    while (keep && v->item[keep - 1].start >= end)
        keep--;
    bool through = keep && v->item[keep - 1].end > end;
    if (MR_VEC_RESERVE(rest, v->n - keep + 1) < 0)
        return -ENOMEM;
    if (through) {
        rest->item[rest->n++] = (struct mr_interval){end, v->item[keep - 1].end};
        v->item[keep - 1].end = end;
    }
    if (v->n > keep)
        memcpy(rest->item + rest->n, v->item + keep, (v->n - keep) * sizeof(*v->item));
    rest->n += v->n - keep;
    v->n = keep;
    return 0;
}

/* Adds a copy of a normal list to a union. */
static int unite_copy(struct mr_intervals *to, const struct mr_intervals *from, struct mr_intervals *scratch)
{
    struct mr_intervals copy = {0};
    if (!from->n)
        return 0;
    if (MR_VEC_RESERVE(&copy, from->n) < 0)
        return -ENOMEM;
    memcpy(copy.item, from->item, from->n * sizeof(*from->item));
    copy.n = from->n;
    int rc = mr_intervals_merge(to, &copy, scratch);
    mr_intervals_done(&copy);
    return rc;
}

/* Leaves what lies behind `from`. */
static void drop_before(struct mr_intervals *v, uint64_t from)
{
    size_t gone = 0;
    while (gone < v->n && v->item[gone].end <= from)
        gone++;
    if (gone)
        memmove(v->item, v->item + gone, (v->n - gone) * sizeof(*v->item));
    v->n -= gone;
    if (v->n && v->item[0].start < from)
        v->item[0].start = from;
}

/* |v and compute|; the compute list is long, so it is entered where the last round left it. */
static uint64_t in_compute(struct explain_rank *r, const struct mr_intervals *v)
{
    if (!v->n)
        return 0;
    while (r->compute_at < r->compute.n && r->compute.item[r->compute_at].end <= v->item[0].start)
        r->compute_at++;
    const struct mr_intervals rest = {.item = r->compute.item + r->compute_at, .n = r->compute.n - r->compute_at};
    return rest.n ? mr_intervals_common(v, &rest) : 0;
}

static int unite_class(const struct union_job *u, uint32_t rank, unsigned c, struct mr_intervals **list,
                       struct mr_intervals *scratch, struct mr_intervals *io)
{
    struct explain_job *j = u->j;
    struct explain_rank *r = &j->rank[rank];
    size_t n = 1;
    list[0] = &r->carry[c];
    for (uint32_t i = u->first[rank]; i < u->first[rank + 1]; i++) {
        struct explain_lane *l = &j->lane[u->lane[i]];
        if (l->apart[c])
            mr_intervals_normalise(&l->set[c]);
        l->apart[c] = false;
        if (l->set[c].n)
            list[n++] = &l->set[c];
    }
    struct mr_intervals rest = {0};
    int rc = unite_lists(list, n, scratch);
    rc = rc ? rc : cut(&r->carry[c], j->round_end, &rest);
    if (!rc) {
        j->x->rank[rank].wait[c] += mr_intervals_length(&r->carry[c]);
        if (c == MR_WAIT_STORAGE || c == MR_WAIT_PAGE_CACHE || c == MR_WAIT_METADATA)
            rc = unite_copy(io, &r->carry[c], scratch);
    }
    free(r->carry[c].item);
    r->carry[c] = rest;
    for (size_t i = 1; i < n; i++)
        list[i]->n = 0;
    return rc;
}

static int unite_rank(struct mr_worker_ctx *ctx, uint64_t rank, struct mr_error *err)
{
    const struct union_job *u = ctx->user;
    struct explain_job *j = u->j;
    struct explain_rank *r = &j->rank[rank];
    struct mr_intervals io = {0}, *scratch = &j->worker[ctx->thread].scratch;
    struct mr_intervals **list = malloc((u->first[rank + 1] - u->first[rank] + 1) * sizeof(*list));
    int rc = list ? 0 : -ENOMEM;
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT && !rc; c++)
        rc = unite_class(u, (uint32_t)rank, c, list, scratch, &io);
    if (!rc) {
        drop_before(&io, j->run ? 0 : r->train_from);
        r->union_ns += mr_intervals_length(&io);
        r->in_compute_ns += in_compute(r, &io);
    }
    mr_intervals_done(&io);
    free(list);
    return rc ? mr_error_set(err, rc, "cannot explain the trace") : 0;
}

int mr_explain_unite(struct explain_job *j, struct mr_error *err)
{
    struct union_job u = {.j = j};
    u.first = calloc(j->ranks + 2, sizeof(*u.first));
    u.lane = malloc((j->lanes + 1) * sizeof(*u.lane));
    int rc = u.first && u.lane ? 0 : mr_error_set(err, -ENOMEM, "cannot explain the trace");
    for (uint32_t l = 0; l < j->lanes && !rc; l++)
        if (j->lane[l].rank != NO_INDEX)
            u.first[j->lane[l].rank + 2]++;
    for (uint32_t r = 2; r < j->ranks + 2 && !rc; r++)
        u.first[r] += u.first[r - 1];
    for (uint32_t l = 0; l < j->lanes && !rc; l++)
        if (j->lane[l].rank != NO_INDEX)
            u.lane[u.first[j->lane[l].rank + 1]++] = l;
    if (!rc)
        rc = mr_workers_run(j->workers, j->ranks, 1, unite_rank, &u, j->opt->stop, err);
    free(u.first);
    free(u.lane);
    return rc;
}
