/* What the time of one thread went to, piece by piece. Calls and spans come in the order of their ends, so what is
 * inside a span has come before it: a span gets what its inside left over. A list of what is covered already keeps
 * pieces disjoint (X3); it remembers the last few thousand pieces, which is more than a batch's worth of calls.
 *
 * A piece is added to the make it lies in and to the questions about this thread that it overlaps. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void to_makes(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                     enum mr_stall_cause cause)
{
    struct explain_make *m = j->make.item + l->make;
    while (l->make_at && m[l->make_at - 1].end > start)
        l->make_at--;
    while (l->make_at < l->makes && m[l->make_at].end <= start)
        l->make_at++;
    for (uint32_t i = l->make_at; i < l->makes && m[i].start < end; i++)
        m[i].cause[cause] += explain_span_ns(MR_MAX(start, m[i].start), MR_MIN(end, m[i].end));
}

static void to_asks(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                    enum mr_stall_cause cause, uint32_t file)
{
    struct explain_ask *a = j->ask.item + l->ask;
    while (l->ask_at && a[l->ask_at - 1].end > start)
        l->ask_at--;
    while (l->ask_at < l->asks && a[l->ask_at].end <= start)
        l->ask_at++;
    for (uint32_t i = l->ask_at; i < l->asks && a[i].start < end; i++) {
        uint64_t ns = explain_span_ns(MR_MAX(start, a[i].start), MR_MIN(end, a[i].end));
        a[i].cause[cause] += ns;
        if (file != NO_INDEX && ns > a[i].longest) {
            a[i].longest = ns;
            a[i].file = file;
        }
    }
}

static void put(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end, enum mr_stall_cause cause,
                uint32_t file)
{
    if (start >= end)
        return;
    if (l->makes)
        to_makes(j, l, start, end, cause);
    if (l->asks)
        to_asks(j, l, start, end, cause, file);
    if (start < j->slow_to && end > j->slow_from && l->rank == j->slow_rank)
        mr_explain_keep_piece(j, l, start, end, cause);
}

/* Forgets the older half. */
static void forget(struct explain_lane *l)
{
    uint32_t half = l->n_covered / 2;
    assert(half); /* called when the list is full */
    l->floor = l->covered[half - 1].end;
    l->n_covered -= half;
    memmove(l->covered, l->covered + half, l->n_covered * sizeof(*l->covered));
}

/* Covers [start, end) and gives what was free of it to `cause`. */
static void cover(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                  enum mr_stall_cause cause, uint32_t file)
{
    uint32_t first = l->n_covered;
    uint64_t at = start, from = start, to = end;
    while (first && l->covered[first - 1].end >= start)
        first--;
    uint32_t last = first;
    for (; last < l->n_covered && l->covered[last].start <= end; last++) {
        put(j, l, at, MR_MIN(l->covered[last].start, end), cause, file);
        at = MR_MAX(at, l->covered[last].end);
        from = MR_MIN(from, l->covered[last].start);
        to = MR_MAX(to, l->covered[last].end);
    }
    put(j, l, at, end, cause, file);
    if (last == first) { /* nothing to join: make room for one */
        memmove(l->covered + first + 1, l->covered + first, (l->n_covered - first) * sizeof(*l->covered));
        l->n_covered++;
    } else {
        memmove(l->covered + first + 1, l->covered + last, (l->n_covered - last) * sizeof(*l->covered));
        l->n_covered -= last - first - 1;
    }
    l->covered[first] = (struct mr_interval){from, to};
    assert(l->n_covered <= EXPLAIN_COVERED);
}

int mr_explain_piece(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                     enum mr_stall_cause cause, uint32_t file, uint64_t bytes)
{
    if (!l->covered && !(l->covered = calloc(EXPLAIN_COVERED, sizeof(*l->covered))))
        return -1;
    if (l->n_covered == EXPLAIN_COVERED)
        forget(l);
    start = MR_MAX(start, l->floor);
    if (start < end)
        cover(j, l, start, end, cause, file);
    if (bytes && l->makes && l->make_at < l->makes && j->make.item[l->make + l->make_at].start <= start)
        j->make.item[l->make + l->make_at].bytes += bytes;
    return 0;
}
