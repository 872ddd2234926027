/* Spans that a program named, over the sides of a comparison: how long each takes with more ranks, workers or another
 * setting. Sides are put beside each other by category and name; of several runs of a side the figures are the mean. */
#include "base/common.h"
#include "compare/compare.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define SPANS_KEPT 60u  /* of a run, those with most time */
#define SPANS_SHOWN 12u /* of a comparison */

int mr_compare_keep_spans(const struct mr_explanation *x, struct mr_arena *a, struct mr_compare_run *r)
{
    size_t n = MR_MIN(x->snippets, (size_t)SPANS_KEPT);
    r->span = mr_arena_alloc(a, (n + 1) * sizeof(*r->span));
    if (!r->span)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct mr_explain_snippet *s = &r->span[i];
        *s = x->snippet[i];
        s->category = mr_arena_strdup(a, x->snippet[i].category);
        s->name = mr_arena_strdup(a, x->snippet[i].name);
        if (!s->category || !s->name)
            return -ENOMEM;
    }
    r->spans = n;
    return 0;
}

static const struct mr_explain_snippet *find(const struct mr_compare_run *r, const struct mr_explain_snippet *like)
{
    for (size_t i = 0; i < r->spans; i++)
        if (!strcmp(r->span[i].name, like->name) && !strcmp(r->span[i].category, like->category))
            return &r->span[i];
    return NULL;
}

static struct mr_compare_span_cell mean_of(const struct mr_compare_side *side, const struct mr_explain_snippet *like)
{
    struct mr_compare_span_cell c = {0};
    size_t n = 0;
    for (size_t i = 0; i < side->run.n; i++) {
        const struct mr_explain_snippet *s = find(&side->run.item[i], like);
        if (!s)
            continue;
        n++;
        c.count += (double)s->count;
        c.p25_s += (double)s->p25_ns / 1e9;
        c.median_s += (double)s->median_ns / 1e9;
        c.p75_s += (double)s->p75_ns / 1e9;
    }
    double by = n ? (double)n : NAN;
    return (struct mr_compare_span_cell){c.count / by, c.p25_s / by, c.median_s / by, c.p75_s / by};
}

/* Those of the first run that more than one side has, by their time. */
int mr_compare_join_spans(struct mr_compare *c)
{
    const struct mr_compare_run *first = c->sides && c->side[0].run.n ? &c->side[0].run.item[0] : NULL;
    for (size_t i = 0; first && i < first->spans && c->span.n < SPANS_SHOWN; i++) {
        struct mr_compare_span_cell *cell = mr_arena_alloc(&c->arena, c->sides * sizeof(*cell));
        size_t sides = 0;
        if (!cell)
            return -ENOMEM;
        for (size_t s = 0; s < c->sides; s++) {
            cell[s] = mean_of(&c->side[s], &first->span[i]);
            sides += isfinite(cell[s].median_s);
        }
        struct mr_compare_span *to = sides > 1 ? MR_VEC_ADD(&c->span) : NULL;
        if (sides > 1 && !to)
            return -ENOMEM;
        if (to)
            *to = (struct mr_compare_span){first->span[i].category, first->span[i].name, cell};
    }
    return 0;
}
