/* The picture of one slow step: what every thread of a rank did while its batch was made.
 *
 * The step is chosen before the second pass, by the longest wait that is not the first of its epoch; the pieces that
 * the second pass gives to causes (stall_pieces.c) are then kept where they lie in its window. They are disjoint in a
 * thread (X3), and a thread is one worker's at a time, so that each list has one writer. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MOST 64u
#define PIECES_MOST 400u /* of one thread */
#define SPANS_MOST 2000u

static bool is_first(const struct explain_job *j, const struct explain_wait *w)
{
    const struct mr_explain_step *s = &j->step.item[w->step];
    return s->step == 0 || (s > j->step.item && (s[-1].epoch != s->epoch || s[-1].rank != s->rank));
}

void mr_explain_choose_slow(struct explain_job *j)
{
    const struct explain_wait *best = NULL;
    bool best_first = true;
    if (!j->opt->pictures)
        return;
    for (size_t i = 0; i < j->wait.n; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->last || w->step == NO_INDEX || w->step >= j->step.n || w->end <= w->start)
            continue;
        bool first = is_first(j, w);
        if (!best || (best_first && !first) || (best_first == first && w->end - w->start > best->end - best->start)) {
            best = w;
            best_first = first;
        }
    }
    if (!best)
        return;
    const struct mr_explain_step *s = &j->step.item[best->step];
    uint64_t wait = best->end - best->start,
             make = best->make < j->make.n ? j->make.item[best->make].start : best->start;
    uint64_t earliest = best->start > 2 * wait ? best->start - 2 * wait : 0; /* the wait is to be seen */
    j->slow_rank = best->rank;
    j->slow_step = best->step;
    j->slow_from = MR_MAX(MR_MIN(make, best->start), earliest);
    j->slow_to = MR_MIN(s->end_ns, best->end + wait);
}

void mr_explain_keep_piece(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                           enum mr_stall_cause cause)
{
    start = MR_MAX(start, j->slow_from);
    end = MR_MIN(end, j->slow_to);
    if (start >= end || l->piece.n >= PIECES_MOST)
        return;
    struct mr_explain_lane_span *last = l->piece.n ? &l->piece.item[l->piece.n - 1] : NULL;
    uint64_t near = (j->slow_to - j->slow_from) / 1000; /* what a picture cannot show apart is one */
    if (last && last->kind == cause && start >= last->end_ns && start - last->end_ns <= near) {
        last->end_ns = end;
        return;
    }
    if (end - start < near / 4)
        return;
    struct mr_explain_lane_span *p = MR_VEC_ADD(&l->piece);
    if (!p)
        return; /* a piece less in the picture */
    *p = (struct mr_explain_lane_span){.start_ns = start, .end_ns = end, .batch = UNKNOWN, .kind = (uint8_t)cause};
}

/* ---- afterwards ---- */

struct build {
    struct explain_job *j;
    struct mr_explain_lanes *out;
    uint32_t lane;
};

static void add_span(struct build *b, uint64_t start, uint64_t end, unsigned kind, uint64_t batch)
{
    const struct explain_job *j = b->j;
    uint64_t near = (j->slow_to - j->slow_from) / 4000;
    start = MR_MAX(start, j->slow_from);
    end = MR_MIN(end, j->slow_to);
    if (start + near >= end || b->out->spans >= SPANS_MOST)
        return;
    b->out->span[b->out->spans++] = (struct mr_explain_lane_span){.start_ns = start - j->x->start_ns,
                                                                  .end_ns = end - j->x->start_ns,
                                                                  .batch = batch,
                                                                  .lane = b->lane,
                                                                  .kind = (uint8_t)kind};
}

/* The consumer: its waits and what it computed. */
static void add_consumer(struct build *b)
{
    const struct explain_job *j = b->j;
    const struct explain_rank *r = &j->rank[j->slow_rank];
    for (uint32_t i = 0; i < r->waits; i++) {
        const struct explain_wait *w = &j->wait.item[r->wait + i];
        if (!w->last)
            add_span(b, w->start, w->end, MR_STALL_CAUSE_COUNT + MR_TIME_STALL, w->batch);
    }
    for (size_t i = 0; i < r->compute.n; i++)
        add_span(b, r->compute.item[i].start, r->compute.item[i].end, MR_STALL_CAUSE_COUNT + MR_TIME_COMPUTE, UNKNOWN);
}

static int by_start(const void *a, const void *b)
{
    const struct mr_explain_lane_span *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* What no piece tells of a batch's making: decoding where the thread was on a CPU, else it waited for something. */
static unsigned rest_of(const struct explain_make *m)
{
    uint64_t told = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        told += m->cause[c];
    uint64_t whole = explain_span_ns(m->start, m->end), rest = whole > told ? whole - told : 0;
    return m->cpu_ns == UNKNOWN || m->cpu_ns >= rest / 2 ? MR_STALL_DECODE : MR_STALL_WORKER;
}

/* A worker: its pieces by the batch they belong to, and the rest of the making of each batch. */
static void add_worker(struct build *b, const struct explain_lane *l)
{
    size_t k = 0;
    if (l->piece.n)
        qsort(l->piece.item, l->piece.n, sizeof(*l->piece.item), by_start);
    for (uint32_t i = 0; i < l->makes; i++) {
        const struct explain_make *m = &b->j->make.item[l->make + i];
        uint64_t at = m->start;
        if (m->end <= b->j->slow_from || m->start >= b->j->slow_to)
            continue;
        for (; k < l->piece.n && l->piece.item[k].end_ns <= m->start; k++)
            add_span(b, l->piece.item[k].start_ns, l->piece.item[k].end_ns, l->piece.item[k].kind, UNKNOWN);
        for (; k < l->piece.n && l->piece.item[k].start_ns < m->end; k++) {
            const struct mr_explain_lane_span *p = &l->piece.item[k];
            if (!m->own)
                add_span(b, at, p->start_ns, rest_of(m), m->batch);
            add_span(b, MR_MAX(at, p->start_ns), p->end_ns, p->kind, m->batch);
            at = MR_MAX(at, p->end_ns);
        }
        if (!m->own)
            add_span(b, at, m->end, rest_of(m), m->batch);
    }
    for (; k < l->piece.n; k++)
        add_span(b, l->piece.item[k].start_ns, l->piece.item[k].end_ns, l->piece.item[k].kind, UNKNOWN);
}

int mr_explain_finish_lanes(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_lanes *out = &x->lanes;
    if (j->slow_to <= j->slow_from)
        return 0;
    const struct mr_explain_step *s = &j->step.item[j->slow_step];
    struct build b = {.j = j, .out = out};
    out->name = mr_arena_alloc(&x->arena, LANES_MOST * sizeof(*out->name));
    out->span = mr_arena_alloc(&x->arena, SPANS_MOST * sizeof(*out->span));
    if (!out->name || !out->span)
        return -ENOMEM;
    out->rank = j->slow_rank;
    out->step = s->step;
    out->start_ns = MR_MAX(s->start_ns, j->slow_from) - x->start_ns;
    out->end_ns = MR_MIN(s->end_ns, j->slow_to) - x->start_ns;
    out->name[out->lanes++] = "training";
    add_consumer(&b);
    for (uint32_t i = 0; i < j->lanes && out->lanes < LANES_MOST; i++) {
        const struct explain_lane *l = &j->lane[i];
        if (l->rank != j->slow_rank || l->worker == NO_INDEX || l->worker >= x->workers)
            continue;
        size_t before = out->spans;
        b.lane = (uint32_t)out->lanes;
        add_worker(&b, l);
        if (out->spans > before)
            out->name[out->lanes++] = x->worker[l->worker].label;
    }
    if (out->lanes < 2) /* the consumer alone tells nothing that the strip does not */
        *out = (struct mr_explain_lanes){0};
    return 0;
}
