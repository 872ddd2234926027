/* What only the page shows: the spans that the program named, and what each thread did during one slow step. */
#include "analyze/summary.h"
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SNIPPETS 200u
#define LANES 64u
#define LANE_SPANS 2000u

/* Functions of the summary that are no calls, in the order of their time. */
int mr_explain_snippets(struct explain_job *j, struct mr_error *err)
{
    struct mr_explanation *x = j->x;
    const struct mr_summary_options opt = {.threads = j->opt->threads,
                                           .from_ns = j->opt->from_ns,
                                           .to_ns = j->opt->to_ns,
                                           .rank = j->opt->rank,
                                           .step_from = j->opt->step_from,
                                           .step_to = j->opt->step_to,
                                           .path = "",
                                           .top_files = 1};
    struct mr_summary *s = NULL;
    bool wanted = j->opt->pictures && !x->snippets; /* explain_snippets.c has them with their single spans */
    int rc = wanted ? mr_summarise(j->t, &opt, j->opt->stop, &s, err) : 0;
    if (rc || !s)
        return rc;
    x->snippet = mr_arena_alloc(&x->arena, SNIPPETS * sizeof(*x->snippet));
    for (size_t i = 0; x->snippet && i < s->functions && x->snippets < SNIPPETS; i++) {
        const struct mr_function *f = &s->function[i];
        if (f->call)
            continue;
        x->snippet[x->snippets++] = (struct mr_explain_snippet){.category = mr_arena_strdup(&x->arena, f->category),
                                                                .name = mr_arena_strdup(&x->arena, f->name),
                                                                .count = f->count,
                                                                .sum_ns = f->dur_ns,
                                                                .min_ns = f->dur_min,
                                                                .p25_ns = f->dur_25,
                                                                .median_ns = f->dur_median,
                                                                .p75_ns = f->dur_75,
                                                                .p99_ns = f->dur_99,
                                                                .max_ns = f->dur_max};
    }
    bool failed = !x->snippet;
    for (size_t i = 0; i < x->snippets; i++)
        failed |= !x->snippet[i].category || !x->snippet[i].name;
    mr_summary_free(s);
    return failed ? mr_error_set(err, -ENOMEM, "cannot explain the trace") : 0;
}

/* ---- threads of a slow step ---- */

/* The training step with the longest stall; the first one of a run only where there is no other. */
static const struct mr_explain_step *slow_step(const struct mr_explanation *x)
{
    const struct mr_explain_step *best = NULL;
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        bool first = best && best->step == 0 && s->step != 0;
        if (s->phase == MR_EXPLAIN_TRAIN && s->ns[MR_TIME_STALL] &&
            (!best || first || (s->step && s->ns[MR_TIME_STALL] > best->ns[MR_TIME_STALL])))
            best = s;
    }
    return best;
}

static void add_span(struct mr_explain_lanes *l, uint32_t lane, uint64_t start, uint64_t end, uint64_t batch,
                     unsigned kind)
{
    start = MR_MAX(start, l->start_ns);
    end = MR_MIN(end, l->end_ns);
    if (start < end && l->spans < LANE_SPANS)
        l->span[l->spans++] = (struct mr_explain_lane_span){
            .start_ns = start, .end_ns = end, .batch = batch, .lane = lane, .kind = (uint8_t)kind};
}

/* What a make spent most of its time on. */
static unsigned main_cause(const struct explain_make *m)
{
    unsigned best = MR_STALL_DECODE;
    uint64_t told = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        told += m->cause[c];
        best = m->cause[c] > m->cause[best] ? c : best;
    }
    return m->own || m->cause[best] > explain_span_ns(told, m->end - m->start) ? best : MR_STALL_DECODE;
}

static void add_consumer(const struct explain_job *j, struct mr_explain_lanes *l)
{
    const struct explain_rank *r = &j->rank[l->rank];
    uint64_t at = l->start_ns;
    for (uint32_t i = r->wait; i < r->wait + r->waits; i++) {
        const struct explain_wait *w = &j->wait.item[i];
        uint64_t start = w->start - j->x->start_ns, end = w->end - j->x->start_ns;
        if (end <= l->start_ns || start >= l->end_ns || w->last)
            continue;
        add_span(l, 0, at, start, UNKNOWN, MR_STALL_CAUSE_COUNT + MR_TIME_COMPUTE);
        add_span(l, 0, start, end, w->batch, MR_STALL_CAUSE_COUNT + MR_TIME_STALL);
        at = MR_MAX(at, end);
    }
    add_span(l, 0, at, l->end_ns, UNKNOWN, MR_STALL_CAUSE_COUNT + MR_TIME_COMPUTE);
}

/* After the second pass and keep_steps: times of steps count from the start of the trace. */
int mr_explain_slow_step(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    struct mr_explain_lanes *l = &x->lanes;
    const struct mr_explain_step *s = j->opt->pictures && !l->lanes ? slow_step(x) : NULL; /* or by explain_lanes.c */
    if (!s || j->rank[s->rank].consumer == NO_INDEX || !x->workers)
        return 0;
    uint64_t len = s->end_ns - s->start_ns;
    *l = (struct mr_explain_lanes){.rank = s->rank,
                                   .step = s->step,
                                   .start_ns = explain_span_ns(MR_MIN(2 * len, s->start_ns), s->start_ns),
                                   .end_ns = s->end_ns};
    l->name = mr_arena_alloc(&x->arena, LANES * sizeof(*l->name));
    l->span = mr_arena_alloc(&x->arena, LANE_SPANS * sizeof(*l->span));
    if (!l->name || !l->span)
        return -ENOMEM;
    l->name[l->lanes++] = "main";
    add_consumer(j, l);
    for (uint32_t i = 0; i < j->lanes && l->lanes < LANES; i++) {
        const struct explain_lane *k = &j->lane[i];
        if (k->rank != s->rank || k->worker == NO_INDEX)
            continue;
        l->name[l->lanes] = x->worker[k->worker].label;
        for (uint32_t m = k->make; m < k->make + k->makes; m++) {
            const struct explain_make *make = &j->make.item[m];
            add_span(l, (uint32_t)l->lanes, make->start - x->start_ns, make->end - x->start_ns, make->batch,
                     main_cause(make));
        }
        l->lanes++;
    }
    return 0;
}
