/* Sets of half-open intervals [start, end) in ns, and what is measured on them: exact, never by time buckets. A list is
 * "normal" when it is sorted and its intervals neither overlap nor touch. */
#ifndef MR_METRICS_INTERVALS_H
#define MR_METRICS_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

struct mr_interval {
    uint64_t start, end;
};

/* Zero-initialise; mr_intervals_done frees. */
struct mr_intervals {
    struct mr_interval *item;
    size_t n, cap;
};

int mr_intervals_grow(struct mr_intervals *v);
/* Adds one; empty ones are ignored. Joins it with the last one if they touch, so lists added in order stay normal.
 * Returns 0 or -ENOMEM. */
static inline int mr_intervals_add(struct mr_intervals *v, uint64_t start, uint64_t end)
{
    if (start >= end)
        return 0;
    if (v->n) {
        struct mr_interval *last = &v->item[v->n - 1];
        if (start >= last->start && start <= last->end) {
            last->end = last->end > end ? last->end : end;
            return 0;
        }
    }
    if (v->n == v->cap) {
        int rc = mr_intervals_grow(v);
        if (rc < 0)
            return rc;
    }
    v->item[v->n++] = (struct mr_interval){start, end};
    return 0;
}
/* Makes any list normal. */
void mr_intervals_normalise(struct mr_intervals *v);
/* Union of two normal lists into `a`; `b` is emptied. `scratch` is a list whose memory is reused. */
int mr_intervals_merge(struct mr_intervals *a, struct mr_intervals *b, struct mr_intervals *scratch);
/* Total length |A| of a normal list. */
uint64_t mr_intervals_length(const struct mr_intervals *v);
/* |A intersected with B| of two normal lists. |A minus B| = |A| - this. */
uint64_t mr_intervals_common(const struct mr_intervals *a, const struct mr_intervals *b);
/* Whether a normal list holds the point. */
int mr_intervals_has(const struct mr_intervals *v, uint64_t point);
void mr_intervals_done(struct mr_intervals *v);

#endif
