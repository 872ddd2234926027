/* Inside the executor: one struct, and what its files do with it. */
#ifndef MR_TIER_EXECUTOR_INTERNAL_H
#define MR_TIER_EXECUTOR_INTERNAL_H

#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"
#include "dataset/fetch.h"
#include "policy/policy.h"
#include "tier/executor.h"
#include "tier/holdings.h"
#include "cache/ssd.h"
#include "tier/tier_internal.h"
#include "tier/work.h"

#include <pthread.h>

#define EXECUTOR_RUN 64u    /* accesses planned under one lock */
#define EXECUTOR_BLOCK 256u /* rows whose ids are asked for at once */
#define EXECUTOR_NO_SSD 0xff
#define EXECUTOR_EXTRA 64u /* what checksums add to a sample at most, as far as planning is concerned */
#define EXECUTOR_SSDS_MAX (MR_POLICY_CLASS_MAX - 2)

struct mr_peers;

/* A sample on its way into its place. */
struct mr_fetching {
    struct mr_work_job job; /* first member */
    struct mr_executor *x;
    struct mr_holding *e;
    uint64_t access;                    /* for which the policy planned it, or the deadline of the fill */
    uint64_t asked_ns, began_ns;        /* planned; when the device, or the peer, that is at it began; 0: none has */
    uint32_t first_waiter, last_waiter; /* slots of rings; MR_HOLDING_NONE */
    bool fill, tells;                   /* tells: the policy wants the result */
    bool only_from_pfs;
    uint8_t ssd;     /* that has it; EXECUTOR_NO_SSD */
    uint8_t n_peers; /* still to be asked */
    uint32_t peer[2];
    uint64_t wanted_ns;       /* when a rank was first seen waiting for it */
    uint64_t retry_ns;        /* a peer said `not yet`: ask again then */
    struct mr_fetching *next; /* in the list of free ones, or of those that wait for retry_ns */
};

/* A copy to an SSD on its way. */
struct mr_spilling {
    struct mr_work_job job; /* first member */
    struct mr_holding *e;
    uint8_t ssd;
    bool staged; /* its place counts as staging until it is written */
};

struct planned_result {
    uint64_t access, id;
    struct mr_outcome outcome;
};

/* Where the planner is. */
struct walk {
    uint64_t epoch, row;
    uint32_t rank;        /* of the node */
    uint64_t block, rows; /* rows whose ids are at hand: block ... block + rows */
    uint64_t *ids;        /* [rank * EXECUTOR_BLOCK + row - block] */
    bool end;             /* no epoch is left */
    uint64_t next_access; /* E1: all before it are planned */
    bool planned;         /* the policy was asked for the access at hand, which then waits for room: */
    unsigned keep;
    bool only_from_pfs, tells;
    uint8_t n_peers;
    uint32_t peer[2];
};

struct ssd_device {
    struct mr_ssd *ssd;
    struct mr_work *reads, *writes;
    struct mr_traffic *device;
    atomic_bool refuses;    /* writes failed: nothing is written any more */
    uint64_t spill_bytes;   /* waiting to be written */
    uint64_t full_until_ns; /* it refused a write for lack of room; nothing is tried until then */
    struct mr_executor *x;
    uint8_t index;
};

struct mr_executor {
    struct mr_tier_params p;
    struct mr_segment *segment;
    struct mr_tier_board *board;
    struct mr_dataset_info info;
    uint32_t node, nodes, ranks, depth, classes;
    uint32_t *first_rank;
    uint64_t *capacity;
    enum mr_policy_id policy_id;
    unsigned read_flags; /* RAW and, where wanted, VERIFY */
    unsigned extra;      /* bytes that a sample may have beyond what the manifest says */

    pthread_t planner;
    pthread_t planner_self; /* the planner's own, for asserts */
    bool started;
    atomic_bool closing;
    bool failed; /* the job is over; the planner sets it, under the lock */
    bool alone;  /* peers are not asked */

    /* The planner's (E5). */
    struct mr_schedule *schedule;
    struct mr_policy_world world;
    struct mr_policy policy;
    struct walk walk;
    bool sought, fills_end;
    uint64_t watched_ns, stalled_ns, calm_since, counted_ns; /* executor_watch.c */
    struct mr_fetch_planner sizer;                           /* what a sample's stored bytes are */
    struct mr_fetch sized;
    uint64_t world_epoch, world_position;

    pthread_mutex_t lock; /* all below */
    struct mr_holdings h;
    uint64_t staging;
    uint32_t *slot_holding,
        *slot_next;    /* [rank * depth + n % depth]: what the delivery has a claim on; who waits next */
    uint64_t *planned; /* deliveries of each rank */
    MR_VEC(struct planned_result) results;
    struct mr_fetching *free_fetches;
    uint32_t fetches, fills; /* under way */
    uint32_t spills, pins;
    uint64_t spill_order;
    uint64_t spill_limit; /* bytes of staging that copies to an SSD may take */
    uint64_t begun_ns;
    _Atomic uint64_t source_one; /* bytes per second of one read of the source, the last one; 0: there was none */
    uint64_t probed_ns;          /* when a read went to the source only to find that out */
    uint64_t starved_ns, starved_sum_ns; /* when a rank was last seen waiting; how long, in all */
    bool waits_for_room;                 /* the planner wants to hear when a place is given back */
    bool listed;                         /* ranks find everything by themselves, or there is no room for the list: */
    uint64_t directory;                  /* its place, or MR_SPACE_NONE */
    uint8_t *was_read;                   /* bit per sample: read from the source before */

    struct mr_work *source;
    struct mr_traffic *source_device;
    struct ssd_device ssd[EXECUTOR_SSDS_MAX];
    uint32_t n_ssds;
    struct mr_peers *peers;
};

static inline uint32_t slot_of_delivery(const struct mr_executor *x, uint32_t rank, uint64_t n)
{
    return rank * x->depth + (uint32_t)(n & (x->depth - 1));
}
static inline void count_up(struct mr_tier_count *c, uint64_t bytes, uint64_t wait_ns)
{
    atomic_fetch_add_explicit(&c->samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->wait_ns, wait_ns, memory_order_relaxed);
}
#define board_add(field, n) atomic_fetch_add_explicit(&(field), (n), memory_order_relaxed)
#define board_set(field, n) atomic_store_explicit(&(field), (n), memory_order_relaxed)

/* The world (executor_world.c): schedule, policy and walk for a place in the training. */
int mr_executor_make_world(struct mr_executor *x, uint64_t epoch, uint64_t position, struct mr_error *err);
void mr_executor_free_world(struct mr_executor *x);
/* Room that a sample's stored bytes take, as far as the manifest knows. */
uint64_t mr_executor_bytes_of(void *x, uint64_t id);
/* Its stored bytes exactly. */
uint64_t mr_executor_exact_bytes(struct mr_executor *x, uint64_t id);
/* The id of the access at hand; false: there is none. *err on failure of the schedule. */
bool mr_executor_at(struct mr_executor *x, uint64_t *id, uint64_t *access);
void mr_executor_advance(struct mr_executor *x);

/* Planning (executor_plan.c): as much as may be planned now; the planner thread. True: something was. */
bool mr_executor_plan(struct mr_executor *x);
bool mr_executor_fill(struct mr_executor *x);
void mr_executor_reclaim(struct mr_executor *x);
/* Empties the rings; under the lock. */
void mr_executor_empty_rings(struct mr_executor *x);

/* Watching (executor_watch.c); the planner thread, now and then. */
void mr_executor_watch(struct mr_executor *x);
/* Bytes per second that the source gives: measured, else estimated from its last read, as if its threads did not hinder
 * each other; 0: nothing is known. */
double mr_executor_source_rate(const struct mr_executor *x, const struct mr_work_load *source);
/* A rank has waited a moment ago and often before, the SSD is slower than the source, and has so much to do that the source would have the
 * bytes first. Under the lock. */
bool mr_executor_source_is_sooner(const struct mr_executor *x, uint8_t ssd);
/* What the SSDs hold, and which nodes are silent, for the board. */
void mr_executor_count(struct mr_executor *x);

/* For peers (executor_plan.c); under the lock. Begins to load what lies on an SSD; false: there is no room now. */
bool mr_executor_load_for_peer(struct mr_executor *x, struct mr_holding *e, uint64_t id, uint8_t ssd);
/* Will the node have it by the rule when it has planned as far as others may have? Where all that is known is who plans
 * to keep it (holds_by_plan): will it have read it before the peer needs it? */
bool mr_executor_will_hold(struct mr_executor *x, uint64_t id, uint32_t peer);
/* The first access for which it reads from the source now; MR_NO_ACCESS: there is none. */
uint64_t mr_executor_need(struct mr_executor *x);
/* Is what this node fetches worth waiting for? By the rule it is. By plans two nodes may ask each other for the same
 * sample: then who needs it first reads it, and the other one waits. */
bool mr_executor_comes_first(struct mr_executor *x, const struct mr_fetching *f, uint32_t peer);

/* Fetching (executor_fetch.c); under the lock unless said otherwise. */
struct mr_fetching *mr_fetching_new(struct mr_executor *x, struct mr_holding *e);
/* Sends it to the next of its sources. */
void mr_fetching_go(struct mr_executor *x, struct mr_fetching *f);
/* It is needed for a delivery, too. */
void mr_fetching_join(struct mr_executor *x, struct mr_fetching *f, uint32_t slot, uint64_t access);
/* The bytes are there, or did not come from any source; the lock must not be held. */
void mr_fetch_completed(struct mr_executor *x, struct mr_fetching *f, uint64_t bytes, enum mr_tier_from from);
void mr_fetching_failed(struct mr_executor *x, struct mr_fetching *f, const struct mr_error *err);
/* Its SSD did not have it: goes on with the next source. The lock must not be held. */
void mr_fetching_next(struct mr_executor *x, struct mr_fetching *f);
int mr_executor_start_source(struct mr_executor *x, struct mr_error *err);

/* SSDs (executor_ssd.c). */
int mr_executor_start_ssds(struct mr_executor *x, struct mr_error *err);
/* Which SSD has it; EXECUTOR_NO_SSD. */
uint8_t mr_executor_find_ssd(struct mr_executor *x, uint64_t id);
/* A READY sample belongs to an SSD class: copy it there if it is not there. Under the lock. */
void mr_executor_spill(struct mr_executor *x, struct mr_holding *e);
/* The same for one that stays in memory, for later runs: if there is room for the whole set. */
void mr_executor_copy(struct mr_executor *x, struct mr_holding *e);
/* Gives a copy up that has not begun. The entry may be gone afterwards. */
void mr_executor_cancel_spill(struct mr_executor *x, struct mr_holding *e);
/* Those of one SSD, or of all (EXECUTOR_NO_SSD), that take room of staging; with `all` the others, too. */
void mr_executor_cancel_spills(struct mr_executor *x, uint8_t ssd, bool all);
/* Is the SSD clearly slower to write than the source to read? Under the lock. */
bool mr_executor_writes_slowly(const struct mr_executor *x, const struct ssd_device *d);
void mr_executor_end_spill(struct mr_executor *x, struct mr_spilling *s, int rc);
/* The policy gave it up: it may go from the SSD when room is needed. */
void mr_executor_unhold(struct mr_executor *x, unsigned storage_class, uint64_t id);

#endif
