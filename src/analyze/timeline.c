/* Unions over many threads, slice by slice. */
#include "analyze/timeline.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int room(struct mr_intervals *v, size_t n)
{
    if (n <= v->cap)
        return 0;
    free(v->item);
    v->cap = MR_MAX(n, v->cap * 2 + 64);
    v->item = malloc(v->cap * sizeof(*v->item));
    if (!v->item)
        v->cap = 0;
    return v->item ? 0 : -ENOMEM;
}

/* Union of two normal lists, neither empty; out has room for both. Which list comes next is as good as random, so the
 * loop has no branch on it. */
static size_t unite(const struct mr_interval *a, size_t an, const struct mr_interval *b, size_t bn,
                    struct mr_interval *out)
{
    const struct mr_interval *a_end = a + an, *b_end = b + bn;
    struct mr_interval now = a->start <= b->start ? *a : *b;
    size_t n = 0;
    while (a < a_end && b < b_end) {
        bool from_a = a->start <= b->start;
        const struct mr_interval *x = from_a ? a : b;
        uint64_t start = x->start, end = x->end;
        a += from_a;
        b += !from_a;
        bool apart = start > now.end;
        out[n] = now;
        n += apart;
        now.start = apart ? start : now.start;
        now.end = MR_MAX(now.end, end);
    }
    bool a_left = a < a_end;
    const struct mr_interval *end = a_left ? a_end : b_end;
    for (const struct mr_interval *x = a_left ? a : b; x < end; x++) {
        bool apart = x->start > now.end;
        out[n] = now;
        n += apart;
        now.start = apart ? x->start : now.start;
        now.end = MR_MAX(now.end, x->end);
    }
    out[n] = now;
    return n + 1;
}

/* Unites the topmost list with items that lie elsewhere. */
static int unite_top(struct mr_pile *p, const struct mr_interval *item, size_t n)
{
    assert(p->used > 0 && n > 0);
    struct mr_intervals *top = &p->level[p->used - 1], t = *top;
    if (room(&p->spare, top->n + n) < 0)
        return -ENOMEM;
    p->spare.n = unite(top->item, top->n, item, n, p->spare.item);
    *top = p->spare;
    p->spare = t;
    return 0;
}

static int settle(struct mr_pile *p, bool all)
{
    int rc = 0;
    while (rc == 0 && p->used > 1 &&
           (all || p->used == MR_PILE || p->level[p->used - 2].n <= 2 * p->level[p->used - 1].n)) {
        struct mr_intervals *top = &p->level[--p->used];
        rc = unite_top(p, top->item, top->n);
    }
    return rc;
}

static int pile_add(struct mr_pile *p, const struct mr_interval *item, size_t n)
{
    int rc = 0;
    if (!n)
        return 0;
    if (p->used && p->level[p->used - 1].n <= 2 * n) {
        rc = unite_top(p, item, n);
    } else {
        assert(p->used < MR_PILE); /* settle keeps one free */
        struct mr_intervals *v = &p->level[p->used];
        if (room(v, n) < 0)
            return -ENOMEM;
        memcpy(v->item, item, n * sizeof(*item));
        v->n = n;
        p->used++;
    }
    return rc ? rc : settle(p, false);
}

/* The first interval that ends after `t`. */
static size_t first_after(const struct mr_intervals *v, uint64_t t)
{
    size_t lo = 0, hi = v->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (v->item[mid].end <= t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Adds the part of a run's list in [from, to). Only its first and last intervals can reach over the borders; they are
 * added as copies. */
static int add_part(struct mr_pile *p, const struct mr_intervals *v, uint64_t from, uint64_t to)
{
    size_t i = first_after(v, from), end = first_after(v, to);
    if (end < v->n && v->item[end].start < to)
        end++;
    if (i >= end)
        return 0;
    struct mr_interval first = v->item[i], last = v->item[end - 1];
    first.start = MR_MAX(first.start, from);
    first.end = MR_MIN(first.end, to);
    last.start = MR_MAX(last.start, from);
    last.end = MR_MIN(last.end, to);
    int rc = pile_add(p, &first, 1);
    if (rc == 0 && end - i > 1)
        rc = pile_add(p, &last, 1);
    return rc || end - i <= 2 ? rc : pile_add(p, v->item + i + 1, end - i - 2);
}

static void measure(struct mr_pile pile[MR_SETS], struct mr_time_split *out)
{
    static const struct mr_intervals none;
    const struct mr_intervals *set[MR_SETS];
    for (unsigned s = 0; s < MR_SETS; s++) {
        set[s] = pile[s].used ? &pile[s].level[0] : &none;
        out->ns[s] += mr_intervals_length(set[s]);
    }
    out->a_and_c += mr_intervals_common(set[MR_SET_A], set[MR_SET_C]);
    out->p_and_c += mr_intervals_common(set[MR_SET_P], set[MR_SET_C]);
}

static int end_group(struct mr_timeline *t, struct mr_time_split *split, bool only)
{
    int rc = 0;
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++)
        rc = settle(&t->group[s], true);
    if (rc == 0)
        measure(t->group, split);
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++) {
        if (t->group[s].used && !only)
            rc = pile_add(&t->all[s], t->group[s].level[0].item, t->group[s].level[0].n);
        t->group[s].used = 0;
    }
    return rc;
}

int mr_timeline_slice(struct mr_timeline *t, const struct mr_run *run, size_t runs, uint64_t from, uint64_t to,
                      struct mr_time_split *all, struct mr_time_split *group)
{
    int rc = 0;
    bool only = !runs || run[0].group == run[runs - 1].group;
    struct mr_time_split one = {0};
    for (unsigned s = 0; s < MR_SETS; s++)
        t->group[s].used = t->all[s].used = 0;
    for (size_t i = 0; i < runs && rc == 0; i++) {
        for (unsigned s = 0; s < MR_SETS && rc == 0; s++)
            rc = add_part(&t->group[s], &run[i].set[s], from, to);
        if (rc == 0 && (i + 1 == runs || run[i + 1].group != run[i].group))
            rc = end_group(t, only ? &one : &group[run[i].group], only);
    }
    for (unsigned s = 0; s < MR_SETS && rc == 0 && !only; s++)
        rc = settle(&t->all[s], true);
    if (rc < 0 || !runs)
        return rc;
    if (!only) {
        measure(t->all, all);
        return 0;
    }
    struct mr_time_split *to_add[] = {all, &group[run[0].group]};
    for (unsigned k = 0; k < MR_ARRAY_LEN(to_add); k++) {
        for (unsigned s = 0; s < MR_SETS; s++)
            to_add[k]->ns[s] += one.ns[s];
        to_add[k]->a_and_c += one.a_and_c;
        to_add[k]->p_and_c += one.p_and_c;
    }
    return 0;
}

static void pile_done(struct mr_pile *p)
{
    for (unsigned i = 0; i < MR_PILE; i++)
        mr_intervals_done(&p->level[i]);
    mr_intervals_done(&p->spare);
}

void mr_timeline_done(struct mr_timeline *t)
{
    for (unsigned s = 0; s < MR_SETS; s++) {
        pile_done(&t->group[s]);
        pile_done(&t->all[s]);
    }
}
