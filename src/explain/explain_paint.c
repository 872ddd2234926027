/* What a rank's time went to: one sweep over the edges of its spans, its steps and its window. At any time the class of
 * the highest priority counts (doc/reference/metrics.md); what no span covers is the rest of a step. Before the first
 * step everything is start-up. So the classes are disjoint and add up to the window (X1). */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first one that is active counts. */
static const uint8_t priority[] = {MR_TIME_COMPUTE, MR_TIME_CHECKPOINT, MR_TIME_STALL,
                                   MR_TIME_BARRIER, MR_TIME_COPY,       MR_TIME_LOGGING};

struct edge {
    uint64_t at;
    uint8_t what;
    int8_t by;
};

struct sweep {
    struct explain_job *j;
    struct explain_rank *r;
    struct mr_explain_rank *out;
    uint32_t rank, step; /* step: the first that ends after `now` */
    uint64_t now, train_from, train_to;
    uint32_t active[MR_TIME_CLASS_COUNT];
    int rc;
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Adds a share of a rank to the bins of a picture. */
static void paint_bins(double *bin, uint32_t bins, uint64_t bin_ns, uint64_t start, uint64_t end, double share)
{
    for (uint64_t b = start / bin_ns; bin && b < bins && b * bin_ns < end; b++) {
        uint64_t from = MR_MAX(start, b * bin_ns), to = MR_MIN(end, (b + 1) * bin_ns);
        bin[b] += share * (double)explain_span_ns(from, to) / (double)bin_ns;
    }
}

static void draw(struct sweep *s, unsigned what, uint64_t start, uint64_t end)
{
    struct explain_job *j = s->j;
    struct mr_explain_timeline *t = &j->x->timeline;
    double share = 1.0 / (double)j->ranks;
    if (!j->bins)
        return;
    start -= j->x->start_ns;
    end -= j->x->start_ns;
    if (what == MR_TIME_STALL)
        paint_bins(t->stall, j->bins, j->bin_ns, start, end, share);
    else if (what == MR_TIME_COMPUTE)
        paint_bins(t->compute, j->bins, j->bin_ns, start, end, share);
    else if (what == MR_TIME_CHECKPOINT)
        paint_bins(t->checkpoint, j->bins, j->bin_ns, start, end, share);
    if (what == MR_TIME_STALL && j->x->heat.stall)
        paint_bins(j->x->heat.stall + (size_t)(s->rank / j->ranks_per_row) * j->columns, j->columns, j->column_ns,
                   start, end, 1.0 / (double)j->ranks_per_row);
}

static void add(struct sweep *s, struct mr_explain_step *step, unsigned what, uint64_t start, uint64_t end)
{
    s->out->ns[what] += end - start;
    if (step) {
        step->ns[what] += end - start;
        step->tail_ns[what] += end - start;
        if (what == MR_TIME_BARRIER)
            memset(step->tail_ns, 0, sizeof step->tail_ns);
    }
    if (what == MR_TIME_OTHER && start >= s->train_to)
        s->out->after_ns += end - start;
    if (what == MR_TIME_COMPUTE && mr_intervals_add(&s->r->compute, start, end) < 0)
        s->rc = -ENOMEM;
    draw(s, what, start, end);
}

/* The class that is on top, MR_TIME_CLASS_COUNT: none. */
static unsigned on_top(const struct sweep *s)
{
    for (unsigned i = 0; i < MR_ARRAY_LEN(priority); i++)
        if (s->active[priority[i]])
            return priority[i];
    return MR_TIME_CLASS_COUNT;
}

/* Time up to `to` is of one class, but for the borders of steps. */
static void advance(struct sweep *s, uint64_t to)
{
    unsigned top = on_top(s);
    while (s->now < to) {
        uint32_t end_step = s->r->step + s->r->steps;
        while (s->step < end_step && s->j->step.item[s->step].end_ns <= s->now)
            s->step++;
        struct mr_explain_step *step = s->step < end_step ? &s->j->step.item[s->step] : NULL;
        bool inside = step && step->start_ns <= s->now;
        uint64_t until = step ? MR_MIN(to, inside ? step->end_ns : step->start_ns) : to;
        unsigned what = top;
        if (s->now < s->train_from)
            what = MR_TIME_STARTUP;
        else if (!inside && (top == MR_TIME_CLASS_COUNT || top == MR_TIME_STALL))
            what = MR_TIME_OTHER; /* a wait of no step: the iterator's end */
        else if (top == MR_TIME_CLASS_COUNT)
            what = s->r->rest;
        add(s, inside ? step : NULL, what, s->now, until);
        s->now = until;
    }
}

static int make_edges(const struct explain_paint *paint, size_t n, struct edge **out, size_t *edges)
{
    struct edge *e = malloc((2 * n + 1) * sizeof(*e));
    if (!e)
        return -ENOMEM;
    *edges = 0;
    for (size_t i = 0; i < n; i++) {
        if (paint[i].start >= paint[i].end)
            continue;
        e[(*edges)++] = (struct edge){paint[i].start, paint[i].what, 1};
        e[(*edges)++] = (struct edge){paint[i].end, paint[i].what, -1};
    }
    qsort(e, *edges, sizeof(*e), by_time);
    *out = e;
    return 0;
}

/* The training window ends with the last step, or with the checkpoint behind it. */
static void find_window(struct sweep *s, const struct explain_paint *paint, size_t n)
{
    struct explain_rank *r = s->r;
    if (!r->steps) {
        s->train_from = r->from;
        s->train_to = UINT64_MAX;
        return;
    }
    s->train_from = s->j->step.item[r->step].start_ns;
    s->train_to = s->j->step.item[r->step + r->steps - 1].end_ns;
    for (size_t i = 0; i < n; i++)
        if (paint[i].what == MR_TIME_CHECKPOINT && paint[i].start >= s->train_to)
            s->train_to = MR_MIN(MR_MAX(s->train_to, paint[i].end), r->to);
    s->out->train_ns = s->train_to - s->train_from;
    r->train_from = s->train_from;
}

int mr_explain_paint(struct explain_job *j, uint32_t rank, const struct explain_paint *paint, size_t n)
{
    struct edge *e;
    size_t edges;
    struct sweep s = {
        .j = j, .r = &j->rank[rank], .out = &j->x->rank[rank], .rank = rank, .step = j->rank[rank].step, .now = 0};
    int rc = make_edges(paint, n, &e, &edges);
    if (rc)
        return rc;
    s.now = s.r->from;
    find_window(&s, paint, n);
    for (size_t i = 0; i < edges; i++) {
        advance(&s, MR_MIN(e[i].at, s.r->to));
        s.active[e[i].what] += (uint32_t)(int32_t)e[i].by;
    }
    advance(&s, s.r->to);
    free(e);
    s.out->start_ns = s.r->from - j->x->start_ns;
    s.out->end_ns = s.r->to - j->x->start_ns;
    uint64_t sum = 0;
    for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
        sum += s.out->ns[c];
    assert(s.rc || sum == s.r->to - s.r->from); /* X1 */
    (void)sum;
    return s.rc;
}
