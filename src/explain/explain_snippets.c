/* Spans that the program named itself: how often, how long, and single ones for a timeline per thread. Collected in the
 * second pass by each of its workers, by process and site; put together by category and name afterwards. Only for pages
 * (options.pictures). */
#include "base/common.h"
#include "base/map.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENT_MOST 512u /* names in one worker: 15 KiB each */
#define ROWS_MOST 200u
#define SPANS_MOST 4000u

struct row {
    uint32_t process, site;
    uint64_t sum;
    struct mr_histogram time;
};

struct explain_snippets {
    struct mr_map index; /* process and site: row + 1 */
    MR_VEC(struct row *) row;
    MR_VEC(struct mr_explain_snippet_span) span; /* snippet: row */
    uint64_t seen, every;
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
    for (size_t i = 0; i < s->row.n; i++)
        free(s->row.item[i]);
    free(s->row.item);
    free(s->span.item);
    mr_map_done(&s->index);
    free(s);
}

static struct row *row_of(struct explain_snippets *s, uint32_t process, uint32_t site, size_t *at)
{
    uint64_t *index = mr_map_put(&s->index, (uint64_t)process << 32 | site);
    if (!index)
        return NULL;
    if (!*index) {
        struct row **slot = MR_VEC_ADD(&s->row), *r = slot ? malloc(sizeof(*r)) : NULL;
        if (slot)
            *slot = r;
        if (!r)
            return s->row.n -= slot != NULL, NULL;
        *r = (struct row){.process = process, .site = site};
        mr_histogram_init(&r->time);
        *index = s->row.n;
    }
    *at = (size_t)*index - 1;
    return s->row.item[*at];
}

/* Every n-th span; when there are too many, every second of them stays. */
static int keep_span(struct explain_snippets *s, const struct explain_job *j, const struct explain_lane *l, size_t row,
                     uint64_t start, uint64_t end)
{
    if (s->seen++ % s->every)
        return 0;
    if (s->span.n == SPANS_MOST) {
        for (size_t i = 0; i < SPANS_MOST / 2; i++)
            s->span.item[i] = s->span.item[2 * i];
        s->span.n = SPANS_MOST / 2;
        s->every *= 2;
    }
    struct mr_explain_snippet_span *p = MR_VEC_ADD(&s->span);
    if (!p)
        return -ENOMEM;
    *p = (struct mr_explain_snippet_span){.snippet = (uint32_t)row,
                                          .pid = j->t->process[l->process].pid,
                                          .tid = l->tid,
                                          .start_ns = start - j->x->start_ns,
                                          .end_ns = end - j->x->start_ns};
    return 0;
}

int mr_explain_count_snippet(struct explain_job *j, struct explain_worker *w, const struct explain_lane *l,
                             uint32_t site, uint64_t start, uint64_t end)
{
    size_t at;
    if (!is_named_by_program(j->site[l->process][site].role) || end < start || start < j->x->start_ns)
        return 0;
    if (!w->snippets && !(w->snippets = calloc(1, sizeof(*w->snippets))))
        return -ENOMEM;
    struct explain_snippets *s = w->snippets;
    s->every = MR_MAX(s->every, 1);
    if (s->row.n >= DIFFERENT_MOST && !mr_map_get(&s->index, (uint64_t)l->process << 32 | site))
        return 0;
    struct row *r = row_of(s, l->process, site, &at);
    if (!r)
        return -ENOMEM;
    r->sum += end - start;
    mr_histogram_add(&r->time, end - start);
    return keep_span(s, j, l, at, start, end);
}

/* ---- together ---- */

struct whole {
    struct mr_explain_snippet out;
    struct mr_histogram time;
    uint32_t place; /* after sorting */
};

struct collect {
    struct explain_job *j;
    struct mr_map index; /* of category and name: whole + 1 */
    MR_VEC(struct whole *) whole;
};

static const char *text_of(struct explain_job *j, const struct mr_trace_string *s)
{
    return mr_arena_strndup(&j->x->arena, s->text ? s->text : "", s->text ? s->len : 0);
}

static struct whole *whole_of(struct collect *c, const struct row *r)
{
    struct mr_trace_string category, name;
    mr_trace_label(&c->j->t->process[r->process], MR_CALL_region, r->site, &category, &name);
    uint64_t key = mr_hash_bytes(name.text, name.len, mr_hash_bytes(category.text, category.len, 7));
    uint64_t *at = mr_map_put(&c->index, key);
    if (!at)
        return NULL;
    if (!*at) {
        struct whole **slot = MR_VEC_ADD(&c->whole), *w = slot ? calloc(1, sizeof(*w)) : NULL;
        if (slot)
            *slot = w;
        if (!w)
            return c->whole.n -= slot != NULL, NULL;
        mr_histogram_init(&w->time);
        w->out.category = text_of(c->j, &category);
        w->out.name = text_of(c->j, &name);
        *at = c->whole.n;
        if (!w->out.category || !w->out.name)
            return NULL;
    }
    return c->whole.item[*at - 1];
}

static int by_time(const void *a, const void *b)
{
    const struct whole *x = *(struct whole *const *)a, *y = *(struct whole *const *)b;
    return (x->out.sum_ns < y->out.sum_ns) - (x->out.sum_ns > y->out.sum_ns);
}

static int by_thread(const void *a, const void *b)
{
    const struct mr_explain_snippet_span *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
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
    qsort(c->whole.item, c->whole.n, sizeof(*c->whole.item), by_time);
    size_t n = MR_MIN(c->whole.n, (size_t)ROWS_MOST);
    x->snippet = mr_arena_alloc(&x->arena, (n + 1) * sizeof(*x->snippet));
    if (!x->snippet)
        return -ENOMEM;
    for (size_t i = 0; i < c->whole.n; i++) {
        c->whole.item[i]->place = (uint32_t)i;
        if (i >= n)
            continue;
        fill(c->whole.item[i]);
        x->snippet[x->snippets++] = c->whole.item[i]->out;
    }
    return 0;
}

/* The spans of all workers, thinned once more to what one picture has. */
static int keep_spans(struct collect *c)
{
    struct explain_job *j = c->j;
    struct mr_explanation *x = j->x;
    size_t all = 0, at = 0;
    for (unsigned w = 0; w < j->workers; w++)
        all += j->worker[w].snippets ? j->worker[w].snippets->span.n : 0;
    size_t every = all / SPANS_MOST + 1;
    x->snippet_span = mr_arena_alloc(&x->arena, (all / every + 2) * sizeof(*x->snippet_span));
    if (!x->snippet_span)
        return -ENOMEM;
    for (unsigned w = 0; w < j->workers; w++) {
        const struct explain_snippets *s = j->worker[w].snippets;
        for (size_t i = 0; s && i < s->span.n; i++, at++) {
            const struct whole *whole = whole_of(c, s->row.item[s->span.item[i].snippet]);
            if (at % every || !whole || whole->place >= x->snippets)
                continue;
            x->snippet_span[x->snippet_spans] = s->span.item[i];
            x->snippet_span[x->snippet_spans++].snippet = whole->place;
        }
    }
    qsort(x->snippet_span, x->snippet_spans, sizeof(*x->snippet_span), by_thread);
    return 0;
}

/* Sorting moved the rows: the index follows them. */
static void follow(struct collect *c)
{
    for (size_t i = 0; i < c->whole.n; i++) {
        const struct mr_explain_snippet *s = &c->whole.item[i]->out;
        uint64_t key = mr_hash_bytes(s->name, strlen(s->name), mr_hash_bytes(s->category, strlen(s->category), 7));
        uint64_t *at = mr_map_put(&c->index, key);
        if (at)
            *at = i + 1;
    }
}

int mr_explain_finish_snippets(struct explain_job *j)
{
    struct collect c = {.j = j};
    int rc = 0;
    for (unsigned w = 0; w < j->workers && !rc; w++)
        for (size_t i = 0; j->worker[w].snippets && i < j->worker[w].snippets->row.n && !rc; i++) {
            const struct row *r = j->worker[w].snippets->row.item[i];
            struct whole *whole = whole_of(&c, r);
            if (whole) {
                mr_histogram_merge(&whole->time, &r->time);
                whole->out.sum_ns += r->sum;
            }
            rc = whole ? 0 : -ENOMEM;
        }
    rc = rc || !c.whole.n ? rc : keep_rows(&c);
    if (!rc && c.whole.n) {
        follow(&c);
        rc = keep_spans(&c);
    }
    for (size_t i = 0; i < c.whole.n; i++)
        free(c.whole.item[i]);
    free(c.whole.item);
    mr_map_done(&c.index);
    return rc;
}
