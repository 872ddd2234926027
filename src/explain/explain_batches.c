/* What each step's batch took those that made it, for the advisor's replay: sums over the parts of the batch, and how
 * long it took from being ready to the training loop. A worker makes a whole batch; threads that work together make
 * parts of it, which carry its number. Of a loop that loads its data itself, the causes of the wait are the parts. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>

#define BATCHES_MOST 10000u /* of all ranks */

struct key {
    uint64_t epoch, batch, loader;
    uint32_t rank, wait;
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->loader != y->loader)
        return x->loader < y->loader ? -1 : 1;
    return x->batch < y->batch ? -1 : x->batch > y->batch;
}

static float seconds(double ns)
{
    return (float)(fmax(ns, 0) / 1e9);
}

static double reads_of(const uint64_t *cause)
{
    return (double)(cause[MR_STALL_STORAGE] + cause[MR_STALL_PAGE_CACHE] + cause[MR_STALL_NETWORK]);
}

/* Time on a CPU is work; the rest of what no call accounts for is sleep, a lock, or the wait for a CPU. */
static void add_make(struct mr_explain_batch *b, const struct explain_make *m, uint64_t begin)
{
    uint64_t from = explain_span_ns(begin, m->start), to = explain_span_ns(begin, m->end);
    double dur = (double)(m->end - m->start), faults = mr_explain_fault_ns(m);
    double meta = (double)m->cause[MR_STALL_METADATA];
    double read = reads_of(m->cause) - (double)mr_explain_stretched_ns(m) + faults;
    double told = (double)(m->cause[MR_STALL_DECODE] + m->cause[MR_STALL_TRANSFORM] + m->cause[MR_STALL_QUEUE]);
    double left = fmax(0, dur - meta - read);
    double cpu = m->cpu_ns != UNKNOWN ? fmin(left, (double)m->cpu_ns)
                 : m->own             ? fmin(left, told)
                                      : fmax(0, left - (double)m->cause[MR_STALL_WORKER]);
    b->meta_s += seconds(meta);
    b->read_s += seconds(read);
    b->cpu_s += seconds(cpu);
    b->other_s += m->own ? 0 : seconds(left - cpu);
    b->lock_s += m->own ? 0 : seconds(fmin(left - cpu, (double)m->cause[MR_STALL_WORKER]));
    b->bytes += (float)m->bytes;
    b->from_ns = b->to_ns ? MR_MIN(b->from_ns, from) : from;
    b->to_ns = MR_MAX(b->to_ns, to);
}

/* The loop made it itself, as far as the wait's causes account for it. */
static void add_wait(struct mr_explain_batch *b, const struct mr_explain_step *s)
{
    b->meta_s = seconds((double)s->stall[MR_STALL_METADATA]);
    b->read_s = seconds(reads_of(s->stall));
    b->cpu_s = seconds((double)(s->stall[MR_STALL_DECODE] + s->stall[MR_STALL_TRANSFORM] + s->stall[MR_STALL_QUEUE]));
    b->other_s = seconds((double)s->ns[MR_TIME_STALL]) - b->meta_s - b->read_s - b->cpu_s;
    b->other_s = b->other_s > 0 ? b->other_s : 0;
    b->bytes = s->bytes != UNKNOWN ? (float)s->bytes : 0;
}

static void place_wait(const struct explain_job *j, struct mr_explain_batch *b, const struct explain_wait *w)
{
    const struct explain_make *m = w->make != NO_INDEX ? &j->make.item[w->make] : NULL;
    uint64_t ready = m ? m->end : w->ready;
    b->known = true;
    if (ready != UNKNOWN && (!m || m->lane != w->lane))
        b->hand_s = seconds((double)explain_span_ns(MR_MAX(ready, w->start), w->end));
    if (m && m->lane != w->lane)
        b->start_s = seconds((double)explain_span_ns(w->begun, m->start));
}

/* Parts that several threads made, by the number of their batch. */
static int add_parts(struct explain_job *j, const uint32_t *batch_of)
{
    struct key *k = malloc((j->wait.n + 1) * sizeof(*k));
    size_t n = 0;
    if (!k)
        return -ENOMEM;
    for (uint32_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step != NO_INDEX && batch_of[w->step] != NO_INDEX && w->make != NO_INDEX && j->make.item[w->make].own) {
            const struct explain_make *m = &j->make.item[w->make];
            k[n++] =
                (struct key){.epoch = m->epoch, .batch = m->batch, .loader = m->loader, .rank = w->rank, .wait = i};
        }
    }
    qsort(k, n, sizeof(*k), by_key);
    for (size_t i = 0; i < j->make.n && n; i++) {
        const struct explain_make *m = &j->make.item[i];
        if (!m->own)
            continue;
        const struct key wanted = {
            .epoch = m->epoch, .batch = m->batch, .loader = m->loader, .rank = j->lane[m->lane].rank};
        const struct key *at = bsearch(&wanted, k, n, sizeof(*k), by_key);
        if (at)
            add_make(&j->x->batch[batch_of[j->wait.item[at->wait].step]], m, j->x->start_ns);
    }
    free(k);
    return 0;
}

/* The first steps of each rank, as many as fit. */
static void choose(struct explain_job *j, uint32_t *batch_of)
{
    struct mr_explanation *x = j->x;
    size_t each = MR_MAX(BATCHES_MOST / MR_MAX(x->ranks, (size_t)1), (size_t)1), of_rank = 0;
    for (size_t i = 0; i < x->steps; i++) {
        of_rank = i && x->step[i].rank == x->step[i - 1].rank ? of_rank + 1 : 0;
        batch_of[i] = NO_INDEX;
        if (of_rank >= each || x->batches >= BATCHES_MOST)
            continue;
        x->batch[x->batches] = (struct mr_explain_batch){.step = (uint32_t)i};
        batch_of[i] = (uint32_t)x->batches++;
    }
}

int mr_explain_batches(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    size_t room = MR_MIN(x->steps, (size_t)BATCHES_MOST);
    uint32_t *batch_of = malloc((x->steps + 1) * sizeof(*batch_of));
    x->batch = mr_arena_alloc(&x->arena, (room + 1) * sizeof(*x->batch));
    if (!batch_of || !x->batch) {
        free(batch_of);
        return -ENOMEM;
    }
    choose(j, batch_of);
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->step == NO_INDEX || w->step >= x->steps || w->last || batch_of[w->step] == NO_INDEX)
            continue;
        struct mr_explain_batch *b = &x->batch[batch_of[w->step]];
        const struct explain_make *m = w->make != NO_INDEX ? &j->make.item[w->make] : NULL;
        if (m && (m->task || m->item)) /* of which others the batch consists is not known */
            continue;
        place_wait(j, b, w);
        if (m && !m->own)
            add_make(b, m, x->start_ns);
        else if (!m && j->rank[w->rank].hand)
            add_wait(b, &x->step[w->step]);
        else if (!m)
            b->known = false;
    }
    int rc = add_parts(j, batch_of);
    free(batch_of);
    return rc;
}
