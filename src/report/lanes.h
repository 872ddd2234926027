/* Lanes of a thread: spans that overlap without nesting (operations of io_uring, async functions) must not be on one
 * track, because viewers take a track for a stack. Calls that nest stay on lane 0, the thread itself. */
#ifndef MR_REPORT_LANES_H
#define MR_REPORT_LANES_H

#include "import/trace_read.h"

/* Zero-initialise; mr_lanes_done frees. */
struct mr_lanes {
    uint16_t *lane;       /* by the event's place in the thread */
    unsigned count;       /* lanes of this thread */
    size_t next;          /* the chunk behind those of this thread */
    uint64_t base, ahead; /* place of the chunk's first event, and of the next chunk's */
    struct mr_event_batch batch;
};

/* Before the events of a chunk are asked about. Chunks are taken in their order. *fresh if a thread begins. Takes some
 * 30 bytes per event of a thread. */
int mr_lanes_enter(struct mr_lanes *l, const struct mr_trace *t, size_t chunk, bool *fresh, struct mr_error *err);
void mr_lanes_done(struct mr_lanes *l);

/* The lane of event i of the chunk. */
static inline unsigned mr_lane_of(const struct mr_lanes *l, uint32_t i)
{
    return l->lane[l->base + i];
}

/* Order of the spans of a thread by start, the outer ones first. Of two alike the one stored later is the outer one:
 * spans are stored at their ends. */
static inline int mr_outer_first(uint64_t start1, uint64_t end1, uint64_t place1, uint64_t start2, uint64_t end2,
                                 uint64_t place2)
{
    if (start1 != start2)
        return start1 < start2 ? -1 : 1;
    if (end1 != end2)
        return end1 > end2 ? -1 : 1;
    return place1 > place2 ? -1 : place1 < place2;
}

/* Whether an event takes time: counters, instants and facts are on no lane. */
static inline bool mr_is_span(unsigned call)
{
    return call != MR_CALL_counter && call != MR_CALL_instant && call != MR_CALL_metadata;
}

#endif
