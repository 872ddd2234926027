/* How time splits between I/O and compute: exact unions and intersections of intervals over many threads, per group
 * (rank) and over all.
 *
 * A run holds the intervals of a piece of one thread, one normal list per set. mr_timeline_slice looks at a slice of
 * time: it cuts the runs there, unites those of a group, measures, and unites the groups. Slices are independent, so
 * that several threads can take one each and add up what they measured. */
#ifndef MR_ANALYZE_TIMELINE_H
#define MR_ANALYZE_TIMELINE_H

#include "metrics/intervals.h"

#include <stdbool.h>

/* P: calls that move data or metadata (POSIX, STDIO, io_uring ...); A: spans of reader and loader functions, HDF5 and
 * MPI-IO; C: spans of compute. */
enum mr_time_set { MR_SET_P, MR_SET_A, MR_SET_C, MR_SETS };

struct mr_run {
    uint32_t group;
    struct mr_intervals set[MR_SETS];
    uint64_t last_ns;
};

struct mr_time_split {
    uint64_t ns[MR_SETS], a_and_c, p_and_c;
};

/* Unites lists of very different lengths in a good order: a stack of lists, each more than twice as long as the one
 * above. */
#define MR_PILE 48
struct mr_pile {
    struct mr_intervals level[MR_PILE], spare;
    unsigned used;
};

/* Zero-initialise; mr_timeline_done frees. */
struct mr_timeline {
    struct mr_pile group[MR_SETS], all[MR_SETS];
};

/* `run` is sorted by group. Adds to all and to group[run.group]. Returns 0 or -ENOMEM. */
int mr_timeline_slice(struct mr_timeline *t, const struct mr_run *run, size_t runs, uint64_t from, uint64_t to,
                      struct mr_time_split *all, struct mr_time_split *group);
void mr_timeline_done(struct mr_timeline *t);

/* Adds an interval to a list that is being made from events. While they come in the order of their ends the list stays
 * normal; from the first one that does not on, *normal is false, intervals are only collected, and the list must be
 * made normal at the end. Room is the caller's business. */
static inline void mr_run_append(struct mr_interval *item, size_t *n, uint64_t start, uint64_t end, bool *normal)
{
    size_t k = *n;
    if (start >= end)
        return;
    *normal = *normal && (!k || end >= item[k - 1].end);
    while (*normal && k && start <= item[k - 1].end) {
        start = start < item[k - 1].start ? start : item[k - 1].start;
        k--;
    }
    item[k] = (struct mr_interval){start, end};
    *n = k + 1;
}

#endif
