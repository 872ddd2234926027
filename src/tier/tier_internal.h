/* Inside the tiers: what tier.c has, and what its parts ask it for. */
#ifndef MR_TIER_TIER_INTERNAL_H
#define MR_TIER_TIER_INTERNAL_H

#include "tier/tier.h"

/* For the source of an engine thread (tier_source.c). */
struct mr_segment *mr_tier_segment(struct mr_tier *t);
uint32_t mr_tier_local_rank(const struct mr_tier *t);
/* As `over` of waits: this rank was told to stop. `t` is a struct mr_tier. */
bool mr_tier_stopped(void *t);

/* One of this rank's samples was found in memory, without the leader. */
void mr_tier_count_found(struct mr_tier *t, uint64_t bytes);

/* The node's figures, in mr_segment_shared: written by the leader (and for what ranks find by themselves, by them),
 * read by every rank. */
struct mr_tier_count {
    _Atomic uint64_t samples, bytes, wait_ns;
};
struct mr_tier_board {
    struct mr_tier_count from[MR_TIER_FROMS], fills[MR_TIER_FROMS];
    _Atomic uint64_t source_bytes, source_reads, distinct_bytes;
    _Atomic uint64_t served, served_bytes, refetched, corrupt, ssd_refused;
    _Atomic uint64_t ram_bytes, ram_capacity, ssd_bytes, ssd_capacity, staging_capacity;
    _Atomic uint64_t source_busy_ns; /* ends minus beginnings of the times with reads in flight: while there are, the
                                        present time is to be added */
    _Atomic uint32_t source_reading; /* in flight */
    _Atomic uint32_t threads, peers_lost;
};

#endif
