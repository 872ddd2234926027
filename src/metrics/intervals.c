/* Interval sets. */
#include "metrics/intervals.h"
#include "base/common.h"
#include "base/vec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int mr_intervals_grow(struct mr_intervals *v)
{
    return MR_VEC_RESERVE(v, v->n + 1);
}

static int by_start(const void *a, const void *b)
{
    const struct mr_interval *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

void mr_intervals_normalise(struct mr_intervals *v)
{
    size_t n = 0, i = 1;
    while (i < v->n && v->item[i].start > v->item[i - 1].end)
        i++;
    if (i >= v->n)
        return; /* already normal: the usual case */
    for (i = 1; i < v->n && v->item[i].start >= v->item[i - 1].start; i++)
        continue;
    if (i < v->n)
        qsort(v->item, v->n, sizeof(*v->item), by_start);
    for (i = 1; i < v->n; i++) {
        if (v->item[i].start <= v->item[n].end)
            v->item[n].end = MR_MAX(v->item[n].end, v->item[i].end);
        else
            v->item[++n] = v->item[i];
    }
    assert(n < v->n);
    v->n = n + 1;
}

int mr_intervals_merge(struct mr_intervals *a, struct mr_intervals *b, struct mr_intervals *scratch)
{
    if (!a->n || !b->n) {
        if (!a->n) {
            struct mr_intervals t = *a;
            *a = *b;
            *b = t;
        }
        b->n = 0;
        return 0;
    }
    scratch->n = 0;
    if (MR_VEC_RESERVE(scratch, a->n + b->n) < 0)
        return -ENOMEM;
    size_t i = 0, k = 0;
    while (i < a->n || k < b->n) {
        bool from_a = k == b->n || (i < a->n && a->item[i].start <= b->item[k].start);
        struct mr_interval x = from_a ? a->item[i++] : b->item[k++];
        if (scratch->n && x.start <= scratch->item[scratch->n - 1].end) {
            struct mr_interval *last = &scratch->item[scratch->n - 1];
            last->end = MR_MAX(last->end, x.end);
        } else {
            scratch->item[scratch->n++] = x;
        }
    }
    assert(scratch->n <= a->n + b->n && scratch->n <= scratch->cap);
    struct mr_intervals t = *a;
    *a = *scratch;
    *scratch = t;
    b->n = 0;
    return 0;
}

uint64_t mr_intervals_length(const struct mr_intervals *v)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < v->n; i++)
        sum += v->item[i].end - v->item[i].start;
    return sum;
}

uint64_t mr_intervals_common(const struct mr_intervals *a, const struct mr_intervals *b)
{
    uint64_t sum = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        uint64_t start = MR_MAX(a->item[i].start, b->item[k].start), end = MR_MIN(a->item[i].end, b->item[k].end);
        if (start < end)
            sum += end - start;
        if (a->item[i].end < b->item[k].end)
            i++;
        else
            k++;
    }
    return sum;
}

int mr_intervals_has(const struct mr_intervals *v, uint64_t point)
{
    size_t lo = 0, hi = v->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (v->item[mid].end <= point)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < v->n && v->item[lo].start <= point;
}

void mr_intervals_done(struct mr_intervals *v)
{
    free(v->item);
    *v = (struct mr_intervals){0};
}
