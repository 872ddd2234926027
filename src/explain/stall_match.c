/* Which worker made the batch of a wait, and when it was asked for. Batches that carry numbers are matched by them, and
 * by time where several loaders or epochs use the same numbers. Without numbers PyTorch's rule stands in: worker k of w
 * makes batches k, k + w, k + 2w ...
 *
 * From that follows what is asked of the second pass: on the worker's thread, inside the wait, what did it do for this
 * batch, and before that for earlier ones? */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BESIDE_MOST 4000000u /* questions about threads beside a wait: memory is bounded */
#define SLACK 5000000u       /* ns: a span ends a little after the batch has been handed over */

/* ---- by number ---- */

struct place {
    uint64_t batch, end;
    uint32_t rank, make;
};

static int by_batch(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->batch != y->batch)
        return x->batch < y->batch ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static bool agree(uint64_t a, uint64_t b)
{
    return a == UNKNOWN || b == UNKNOWN || a == b;
}

static bool fits(const struct explain_wait *w, const struct explain_make *m)
{
    bool same_epoch = m->epoch != UNKNOWN && m->epoch == w->epoch;
    return agree(m->loader, w->loader) && agree(m->epoch, w->epoch) && m->start < w->end &&
           (same_epoch || m->end > w->begun);
}

/* The part of the batch that was ready last, of those that can be meant. */
static uint32_t find_make(const struct explain_job *j, const struct place *p, size_t n, const struct explain_wait *w)
{
    size_t lo = 0, hi = n;
    const struct place key = {.rank = w->rank, .batch = w->batch, .end = w->end + SLACK};
    while (lo < hi) { /* the first that ends too late */
        size_t mid = (lo + hi) / 2;
        if (by_batch(&p[mid], &key) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = lo; i > 0 && p[i - 1].rank == w->rank && p[i - 1].batch == w->batch; i--)
        if (fits(w, &j->make.item[p[i - 1].make]))
            return p[i - 1].make;
    return NO_INDEX;
}

/* *numbered: all makes have numbers. */
static int match_by_number(struct explain_job *j, bool *numbered)
{
    struct place *p = malloc((j->make.n + 1) * sizeof(*p));
    size_t n = 0;
    if (!p)
        return -ENOMEM;
    for (uint32_t i = 0; i < j->make.n; i++) {
        const struct explain_make *m = &j->make.item[i];
        if (m->batch != UNKNOWN && j->lane[m->lane].rank != NO_INDEX)
            p[n++] = (struct place){.batch = m->batch, .end = m->end, .rank = j->lane[m->lane].rank, .make = i};
    }
    *numbered = n == j->make.n;
    qsort(p, n, sizeof(*p), by_batch);
    for (size_t i = 0; i < j->wait.n; i++)
        j->wait.item[i].make = j->wait.item[i].last ? NO_INDEX : find_make(j, p, n, &j->wait.item[i]);
    free(p);
    return 0;
}

/* ---- by order ---- */

/* Makes of one thread in one epoch. */
struct queue {
    uint32_t lane, pid, first, n;
};

static int by_pid(const void *a, const void *b)
{
    const struct queue *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static size_t epoch_queues(const struct explain_job *j, uint32_t rank, uint64_t from, uint64_t to, struct queue *q)
{
    size_t n = 0;
    for (uint32_t i = 0; i < j->lanes; i++) {
        const struct explain_lane *l = &j->lane[i];
        if (l->rank != rank || !l->makes)
            continue;
        struct queue x = {.lane = i, .pid = j->t->process[l->process].pid};
        for (uint32_t m = l->make; m < l->make + l->makes; m++)
            if (j->make.item[m].batch == UNKNOWN && !j->make.item[m].item && j->make.item[m].start >= from &&
                j->make.item[m].start < to) {
                x.first = x.n ? x.first : m;
                x.n++;
            }
        if (x.n)
            q[n++] = x;
    }
    qsort(q, n, sizeof(*q), by_pid);
    return n;
}

static int match_by_order(struct explain_job *j, uint32_t rank)
{
    const struct explain_rank *r = &j->rank[rank];
    struct queue *q = malloc((j->lanes + 1) * sizeof(*q));
    if (!q)
        return -ENOMEM;
    for (uint32_t i = r->wait, end; i < r->wait + r->waits; i = end) {
        const struct explain_wait *first = &j->wait.item[i];
        for (end = i; end < r->wait + r->waits && j->wait.item[end].begun == first->begun; end++)
            continue;
        uint64_t to = end < r->wait + r->waits ? j->wait.item[end].begun : UINT64_MAX;
        size_t n = epoch_queues(j, rank, first->begun, to, q);
        for (uint32_t k = 0; n && k < end - i; k++) {
            struct queue *x = &q[k % n];
            struct explain_wait *w = &j->wait.item[i + k];
            if (w->make == NO_INDEX && !w->last && k / n < x->n && j->make.item[x->first + k / n].start < w->end) {
                w->make = (uint32_t)(x->first + k / n);
                j->unmatched = true;
            }
        }
    }
    free(q);
    return 0;
}

/* ---- by time ---- */

/* Of items it is not known to which batch they belong: the one that was ready last before the wait ended held it up. */
static void match_by_time(struct explain_job *j)
{
    uint64_t *best = calloc(j->wait.n + 1, sizeof(*best));
    for (uint32_t i = 0; best && i < j->make.n; i++) {
        const struct explain_make *m = &j->make.item[i];
        uint32_t rank = j->lane[m->lane].rank;
        if (!m->item || rank == NO_INDEX)
            continue;
        uint32_t lo = j->rank[rank].wait, hi = lo + j->rank[rank].waits, end = hi;
        while (lo < hi) { /* the first wait that ends after it */
            uint32_t mid = (lo + hi) / 2;
            if (j->wait.item[mid].end < m->end)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo < end && j->wait.item[lo].make != NO_INDEX && !best[lo])
            continue; /* the loop made it itself */
        if (lo < end && m->end > j->wait.item[lo].start && m->end >= best[lo]) {
            best[lo] = m->end;
            j->wait.item[lo].make = i;
            j->unmatched = true;
        }
    }
    free(best);
}

/* ---- the end of an epoch, and requests ---- */

/* The iterator's last word is no wait for data: nobody made a batch for it, and it delivered none. */
static void mark_last(struct explain_job *j, const struct explain_rank *r)
{
    bool rows = false, makes = false;
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        rows |= j->wait.item[i].rows != UNKNOWN && j->wait.item[i].rows;
        makes |= j->wait.item[i].make != NO_INDEX;
    }
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        struct explain_wait *w = &j->wait.item[i];
        bool ends = i + 1 == r->wait + r->waits || j->wait.item[i + 1].begun != w->begun;
        bool empty = w->rows == 0 || (rows && w->rows == UNKNOWN);
        w->last = w->last || (w->make == NO_INDEX && (empty || (makes && ends && w->rows == UNKNOWN)));
    }
}

/* PyTorch asks for a batch when the one `prefetch` before it was handed over, for the first ones when the epoch
 * begins. */
static void find_requests(struct explain_job *j, const struct explain_rank *r)
{
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        struct explain_wait *w = &j->wait.item[i];
        uint64_t ahead = w->prefetch;
        if (ahead == UNKNOWN || !ahead || w->last)
            continue;
        if (w->batch < ahead) {
            w->requested = w->begun;
            continue;
        }
        for (uint32_t k = i; k-- > r->wait && i - k < 4096 && j->wait.item[k].end > w->begun;)
            if (j->wait.item[k].batch + ahead == w->batch && j->wait.item[k].epoch == w->epoch &&
                j->wait.item[k].loader == w->loader) {
                w->requested = j->wait.item[k].end;
                break;
            }
    }
}

int mr_explain_match(struct explain_job *j)
{
    bool numbered = true;
    int rc = match_by_number(j, &numbered);
    for (uint32_t r = 0; r < j->ranks && !rc; r++) {
        rc = numbered ? 0 : match_by_order(j, r);
        if (!j->rank[r].hand) /* there is no iterator */
            mark_last(j, &j->rank[r]);
        find_requests(j, &j->rank[r]);
    }
    return rc;
}

/* ---- questions to the second pass ---- */

static int add_ask(struct explain_job *j, uint32_t wait, uint32_t lane, uint32_t make, uint64_t start, uint64_t end,
                   bool behind)
{
    if (start >= end)
        return 0;
    struct explain_ask *a = MR_VEC_ADD(&j->ask);
    if (!a)
        return -ENOMEM;
    *a = (struct explain_ask){
        .start = start, .end = end, .lane = lane, .make = make, .wait = wait, .file = NO_INDEX, .behind = behind};
    return 0;
}

/* Where the worker's time that a wait stands for begins. Passing a batch on takes a while, but the worker goes on
 * meanwhile: when it is what limits the loop, every batch comes late by that while, and the wait is as long as if there
 * were none. So as much of the worker's time before the wait is asked for as passes from the batch's end to the wait's,
 * as far as no wait before has asked for it. */
static uint64_t ask_from(const struct explain_wait *w, const struct explain_make *m, uint64_t asked)
{
    uint64_t tail = m->end > w->start ? explain_span_ns(m->end, w->end) : 0;
    return MR_MAX(explain_span_ns(tail, w->start), MR_MIN(asked, w->start));
}

/* What helpers of a thread did in the part of a wait that the question is about. */
static int ask_helpers(struct explain_job *j, uint32_t wait, uint32_t lane, uint64_t start, uint64_t end)
{
    const struct explain_wait *w = &j->wait.item[wait];
    int rc = 0;
    start = MR_MAX(start, w->start);
    end = MR_MIN(end, w->end);
    for (size_t i = 0; i < j->helper.n && !rc && j->ask.n < BESIDE_MOST && start < end; i++) {
        const struct explain_lane *l = &j->lane[j->helper.item[i]];
        if (!mr_explain_helps(l, &j->lane[lane]) || l->first_ns >= end || l->last_ns <= start)
            continue;
        rc = add_ask(j, wait, j->helper.item[i], NO_INDEX, start, end, false);
        if (!rc)
            j->ask.item[j->ask.n - 1].beside = true;
    }
    return rc;
}

/* A pipeline that does not tell who makes what, but how much the process computed: what did its threads read? */
static int ask_beside(struct explain_job *j, uint32_t wait)
{
    const struct explain_wait *w = &j->wait.item[wait];
    int rc = 0;
    for (uint32_t i = 0; i < j->lanes && !rc && j->ask.n < BESIDE_MOST; i++) {
        size_t before = j->ask.n;
        if (j->lane[i].rank != w->rank || i == w->lane || j->lane[i].first_ns >= w->end ||
            j->lane[i].last_ns <= w->start)
            continue;
        rc = add_ask(j, wait, i, NO_INDEX, w->start, w->end, false);
        if (!rc && j->ask.n > before)
            j->ask.item[before].beside = true;
    }
    return rc;
}

static int ask_of(struct explain_job *j, uint32_t wait, uint64_t *asked)
{
    const struct explain_wait *w = &j->wait.item[wait];
    if (w->make == NO_INDEX) {
        int rc = add_ask(j, wait, w->lane, NO_INDEX, w->start, w->end, false); /* perhaps the consumer reads itself */
        if (!rc && w->cpu == UNKNOWN && !j->run && w->sums.readers == UNKNOWN)
            return ask_helpers(j, wait, w->lane, w->start, w->end);
        return rc || w->cpu == UNKNOWN ? rc : ask_beside(j, wait);
    }
    const struct explain_make *m = &j->make.item[w->make];
    const struct explain_lane *l = &j->lane[m->lane];
    uint64_t from = m->lane == w->lane ? w->start : ask_from(w, m, asked[m->lane]);
    int rc = add_ask(j, wait, m->lane, w->make, MR_MAX(m->start, from), MR_MIN(m->end, w->end), false);
    if (!rc && !m->own)
        rc = ask_helpers(j, wait, m->lane, from, m->end);
    for (uint32_t k = w->make; !rc && m->lane != w->lane && k-- > l->make && j->make.item[k].end > from;)
        rc = add_ask(j, wait, m->lane, k, MR_MAX(j->make.item[k].start, from),
                     MR_MIN(MR_MIN(j->make.item[k].end, m->start), w->end), true);
    asked[m->lane] = MR_MAX(asked[m->lane], MR_MIN(m->end, w->end));
    return rc;
}

static int ask_order(const void *a, const void *b)
{
    const struct explain_ask *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

int mr_explain_ask(struct explain_job *j)
{
    if (mr_explain_find_helpers(j))
        return -ENOMEM;
    match_by_time(j);                                       /* gaps between compute are waits only now */
    uint64_t *asked = calloc(j->lanes + 1, sizeof(*asked)); /* by thread: until when */
    int rc = asked ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < j->wait.n && !rc; i++)
        if (j->wait.item[i].step != NO_INDEX && !j->wait.item[i].last)
            rc = ask_of(j, i, asked);
    free(asked);
    if (j->ask.n)
        qsort(j->ask.item, j->ask.n, sizeof(*j->ask.item), ask_order);
    for (uint32_t i = 0; i < j->ask.n; i++) {
        struct explain_lane *l = &j->lane[j->ask.item[i].lane];
        l->ask = l->asks ? l->ask : i;
        l->asks++;
    }
    return rc;
}
