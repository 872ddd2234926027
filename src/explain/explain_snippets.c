/* Spans that the program named itself: how often, how long, and single ones for a timeline per thread. Collected in the
 * second pass by each of its workers, by process and site; put together by category and name afterwards. Only for pages
 * (options.pictures). */
#include "base/common.h"
#include "base/map.h"
#include "base/rng.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENT_MOST 512u /* names: 15 KiB each, in each worker */
#define ROWS_MOST 200u
#define SPANS_MOST 4000u

struct row {
    uint32_t process, site; /* one of those with this name */
    uint64_t sum;
    struct mr_histogram time;
};

struct explain_snippets {
    struct row *row[DIFFERENT_MOST]; /* by number; NULL: none seen */
    MR_VEC(struct mr_explain_snippet_span) span;
    uint64_t every; /* spans are kept whose hash is a multiple of it, a power of two */
};

/* Spans of loaders and checkpoints have pictures of their own. */
static bool is_named_by_program(unsigned role)
{
    return role == MR_ROLE_NONE || role == MR_ROLE_STEP || role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP ||
           role == MR_ROLE_OPTIMIZER || role == MR_ROLE_EVALUATION;
}

void mr_explain_snippets_free(struct explain_snippets *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < DIFFERENT_MOST; i++)
        free(s->row[i]);
    free(s->span.item);
    free(s);
}

/* Numbers in the order of the trace's names, not of its spans. */
int mr_explain_number_snippet(struct explain_job *j, size_t process, uint32_t site,
                              const struct mr_trace_string *category, const struct mr_trace_string *name)
{
    if (!is_named_by_program(j->site[process][site].role) || (!j->opt->pictures && !j->opt->snippets))
        return 0;
    uint64_t key = mr_hash_bytes(name->text, name->len, mr_hash_bytes(category->text, category->len, 7));
    uint64_t *at = j->named < DIFFERENT_MOST || mr_map_get(&j->snippets, key) ? mr_map_put(&j->snippets, key) : NULL;
    if (!at)
        return j->named < DIFFERENT_MOST ? -ENOMEM : 0;
    if (!*at)
        *at = ++j->named;
    j->snippet_of[process][site] = (uint16_t)*at;
    return 0;
}

static struct row *row_of(struct explain_snippets *s, size_t number, uint32_t process, uint32_t site)
{
    if (s->row[number])
        return s->row[number];
    struct row *r = s->row[number] = malloc(sizeof(*r));
    if (!r)
        return NULL;
    *r = (struct row){.process = process, .site = site};
    mr_histogram_init(&r->time);
    return r;
}

/* The order in which spans come depends on the threads; which of them stay depends on what they are. */
static uint64_t hash_of(const struct mr_explain_snippet_span *p)
{
    return mr_mix64(mr_mix64(p->start_ns ^ mr_mix64(p->end_ns)) ^ ((uint64_t)p->pid << 32 | p->tid));
}

static size_t thin(struct mr_explain_snippet_span *p, size_t n, uint64_t every)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!(hash_of(&p[i]) % every))
            p[kept++] = p[i];
    return kept;
}

/* When there are too many, about half of them stay. A worker has room for twice as many as are shown. */
static int keep_span(struct explain_snippets *s, const struct explain_job *j, const struct explain_lane *l, size_t row,
                     uint64_t start, uint64_t end)
{
    const struct mr_explain_snippet_span span = {.snippet = (uint32_t)row,
                                                 .pid = j->t->process[l->process].pid,
                                                 .tid = l->tid,
                                                 .start_ns = start - j->x->start_ns,
                                                 .end_ns = end - j->x->start_ns};
    if (hash_of(&span) % s->every)
        return 0;
    while (s->span.n >= 2 * SPANS_MOST && s->every < EXPLAIN_EVERY_MOST) {
        s->every *= 2;
        s->span.n = thin(s->span.item, s->span.n, s->every);
    }
    if (s->span.n >= 2 * SPANS_MOST || hash_of(&span) % s->every)
        return 0;
    struct mr_explain_snippet_span *p = MR_VEC_ADD(&s->span);
    if (p)
        *p = span;
    return p ? 0 : -ENOMEM;
}

int mr_explain_count_snippet(struct explain_job *j, struct explain_worker *w, const struct explain_lane *l,
                             uint32_t site, uint64_t start, uint64_t end)
{
    uint32_t number = j->snippet_of[l->process][site];
    if (!number || end < start || start < j->x->start_ns)
        return 0;
    if (!w->snippets && !(w->snippets = calloc(1, sizeof(*w->snippets))))
        return -ENOMEM;
    struct explain_snippets *s = w->snippets;
    s->every = MR_MAX(s->every, 1);
    struct row *r = row_of(s, number - 1, l->process, site);
    if (!r)
        return -ENOMEM;
    r->sum += end - start;
    mr_histogram_add(&r->time, end - start);
    return keep_span(s, j, l, number - 1, start, end);
}

/* ---- together ---- */

struct whole {
    struct mr_explain_snippet out;
    struct mr_histogram time;
    uint32_t place; /* after sorting */
};

struct collect {
    struct explain_job *j;
    struct whole *of[DIFFERENT_MOST], *sorted[DIFFERENT_MOST]; /* of: by number */
    size_t n;
};

static const char *text_of(struct explain_job *j, const struct mr_trace_string *s)
{
    return mr_arena_strndup(&j->x->arena, s->text ? s->text : "", s->text ? s->len : 0);
}

static int add_row(struct collect *c, size_t number, const struct row *r)
{
    struct mr_trace_string category, name;
    struct whole *w = c->of[number];
    if (!w) {
        w = c->of[number] = calloc(1, sizeof(*w));
        if (!w)
            return -ENOMEM;
        c->sorted[c->n++] = w;
        mr_histogram_init(&w->time);
        mr_trace_label(&c->j->t->process[r->process], MR_CALL_region, r->site, &category, &name);
        w->out.category = text_of(c->j, &category);
        w->out.name = text_of(c->j, &name);
        if (!w->out.category || !w->out.name)
            return -ENOMEM;
    }
    mr_histogram_merge(&w->time, &r->time);
    w->out.sum_ns += r->sum;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct whole *x = *(struct whole *const *)a, *y = *(struct whole *const *)b;
    if (x->out.sum_ns != y->out.sum_ns)
        return x->out.sum_ns > y->out.sum_ns ? -1 : 1;
    int order = strcmp(x->out.category, y->out.category);
    return order ? order : strcmp(x->out.name, y->out.name);
}

static int by_thread(const void *a, const void *b)
{
    const struct mr_explain_snippet_span *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    return (x->snippet > y->snippet) - (x->snippet < y->snippet);
}

static void fill(struct whole *w)
{
    const struct mr_histogram *h = &w->time;
    w->out.count = h->count;
    w->out.min_ns = h->min;
    w->out.max_ns = h->max;
    w->out.p25_ns = (uint64_t)mr_histogram_between(h, 0.25);
    w->out.median_ns = (uint64_t)mr_histogram_between(h, 0.5);
    w->out.p75_ns = (uint64_t)mr_histogram_between(h, 0.75);
    w->out.p99_ns = (uint64_t)mr_histogram_between(h, 0.99);
}

static int keep_rows(struct collect *c)
{
    struct mr_explanation *x = c->j->x;
    qsort(c->sorted, c->n, sizeof(*c->sorted), by_time);
    size_t n = MR_MIN(c->n, (size_t)ROWS_MOST);
    x->snippet = mr_arena_alloc(&x->arena, (n + 1) * sizeof(*x->snippet));
    if (!x->snippet)
        return -ENOMEM;
    for (size_t i = 0; i < c->n; i++) {
        c->sorted[i]->place = (uint32_t)i;
        if (i >= n)
            continue;
        fill(c->sorted[i]);
        x->snippet[x->snippets++] = c->sorted[i]->out;
    }
    return 0;
}

/* The spans of all workers, thinned once more to what one picture has. */
static int keep_spans(struct collect *c)
{
    struct explain_job *j = c->j;
    struct mr_explanation *x = j->x;
    size_t all = 0;
    uint64_t every = 1;
    for (unsigned w = 0; w < j->workers; w++) {
        all += j->worker[w].snippets ? j->worker[w].snippets->span.n : 0;
        every = MR_MAX(every, j->worker[w].snippets ? j->worker[w].snippets->every : 1);
    }
    x->snippet_span = mr_arena_alloc(&x->arena, (all + 1) * sizeof(*x->snippet_span));
    if (!x->snippet_span)
        return -ENOMEM;
    for (unsigned w = 0; w < j->workers; w++) {
        const struct explain_snippets *s = j->worker[w].snippets;
        for (size_t i = 0; s && i < s->span.n; i++) {
            const struct whole *whole = c->of[s->span.item[i].snippet];
            if (whole->place >= x->snippets)
                continue;
            x->snippet_span[x->snippet_spans] = s->span.item[i];
            x->snippet_span[x->snippet_spans++].snippet = whole->place;
        }
    }
    x->snippet_spans = thin(x->snippet_span, x->snippet_spans, every);
    for (; x->snippet_spans > SPANS_MOST && every < EXPLAIN_EVERY_MOST; every *= 2)
        x->snippet_spans = thin(x->snippet_span, x->snippet_spans, 2 * every);
    qsort(x->snippet_span, x->snippet_spans, sizeof(*x->snippet_span), by_thread);
    return 0;
}

int mr_explain_finish_snippets(struct explain_job *j)
{
    struct collect *c = calloc(1, sizeof(*c));
    int rc = c ? 0 : -ENOMEM;
    if (c)
        c->j = j;
    for (unsigned w = 0; w < j->workers && !rc; w++)
        for (size_t i = 0; j->worker[w].snippets && i < DIFFERENT_MOST && !rc; i++)
            if (j->worker[w].snippets->row[i])
                rc = add_row(c, i, j->worker[w].snippets->row[i]);
    rc = rc || !c->n ? rc : keep_rows(c);
    if (!rc && c->n)
        rc = keep_spans(c);
    for (size_t i = 0; c && i < c->n; i++)
        free(c->sorted[i]);
    free(c);
    return rc;
}
