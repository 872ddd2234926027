/* What lies in a segment, for segment.c (the mapping, life and death) and segment_ring.c (deliveries). */
#ifndef MR_TIER_SEGMENT_INTERNAL_H
#define MR_TIER_SEGMENT_INTERNAL_H

#include "base/process.h"
#include "tier/segment.h"

#include <pthread.h>
#include <stdalign.h>

#define MR_SEGMENT_MAGIC 0x544749456572724dull
#define MR_SEGMENT_VERSION 1u
#define MR_SEGMENT_LOOK_NS 100000000ull /* S3 */
#define MR_SEGMENT_WAITING 32u          /* threads of a rank that are listed while they wait */
#define MR_SEGMENT_ERRORS 8u            /* errors of a rank's deliveries that are kept in full */

/* One delivery: a cache line. word = n << 3 | state (S1). */
struct mr_segment_slot {
    alignas(64) _Atomic uint64_t word;
    uint64_t id, at, bytes, began_ns, came_ns;
    int32_t code;
    uint16_t from, error; /* error: index of the text + 1; 0: none */
};

struct mr_segment_error {
    uint64_t used; /* the leader's: n + 1 of the delivery; 0: free */
    struct mr_error text;
};

enum mr_rank_state { MR_RANK_NEW, MR_RANK_JOINED, MR_RANK_LEFT };

/* Of each rank; what the leader writes and what the rank writes lie in lines of their own. */
struct mr_segment_rank {
    /* Leader. */
    alignas(64) _Atomic uint32_t progress; /* the rank's threads wait for it to change */
    _Atomic uint64_t planned;              /* deliveries below it were planned */
    _Atomic uint64_t answered;             /* value of `asks` that the last seek answered */
    /* Rank. */
    alignas(64) _Atomic uint32_t waiters;
    _Atomic uint32_t unlisted; /* of them, without an entry below */
    _Atomic uint32_t state;    /* enum mr_rank_state; process is written before JOINED */
    struct mr_process_id process;
    _Atomic uint64_t asks; /* for a seek; odd while the place is being written */
    _Atomic uint64_t seek_epoch, seek_position;
    alignas(64) _Atomic uint64_t waiting[MR_SEGMENT_WAITING]; /* n + 1; 0: free */
    struct mr_segment_error error[MR_SEGMENT_ERRORS];         /* the leader's */
};

enum mr_segment_failed { MR_FAILED_NONE, MR_FAILED_CLAIMED, MR_FAILED_SET };

struct mr_segment_head {
    uint64_t magic;
    uint32_t version, ranks, depth, first_rank;
    uint64_t total_bytes, shared_at, rank_at, ring_at, data_at, data_bytes;
    struct mr_process_id leader;
    _Atomic uint32_t closing;
    _Atomic uint32_t failed; /* enum mr_segment_failed; `why` is written between CLAIMED and SET, once */
    struct mr_error why;
    _Atomic uint64_t directory_at, directory_samples; /* S6; samples is written first, and 0 while there is none */
    alignas(64) _Atomic uint32_t kick;                /* the leader waits for it to change */
    _Atomic uint32_t leader_waits;
};

struct mr_segment {
    struct mr_segment_head *head;
    struct mr_segment_rank *rank;
    struct mr_segment_slot *ring;
    uint8_t *data, *shared;
    uint64_t map_bytes, mask;
    uint32_t depth, ranks;
    int fd;
    /* The leader's. */
    bool leads;
    pid_t maker;
    uint32_t kick_seen;
    uint64_t looked_ns;
    uint64_t *reclaimed, *asks; /* of each rank; asks: what mr_segment_seek_asked saw last */
    uint64_t unlike_since;      /* ranks ask for different places since then; 0: they do not */
};

static inline struct mr_segment_slot *mr_segment_slot(const struct mr_segment *s, uint32_t rank, uint64_t n)
{
    return &s->ring[(uint64_t)rank * s->depth + (n & s->mask)];
}

/* Wakes all threads of the rank that wait, for whatever. */
void mr_segment_wake_all(struct mr_segment *s, uint32_t rank);
/* Has the other side ended, or told that it will? 0, or a code and the text. `look`: ask the kernel, too. */
int mr_segment_ended(struct mr_segment *s, bool look, struct mr_error *err);

#endif
