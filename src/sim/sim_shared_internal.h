/* What the files of the shared engine have in common; sim_shared.c says how it works. */
#ifndef MR_SIM_SHARED_INTERNAL_H
#define MR_SIM_SHARED_INTERNAL_H

#include "base/heap.h"
#include "policy/policy.h"
#include "sim/fair_pool.h"
#include "sim/sim.h"
#include "sim/sim_trace.h"
#include "sim/sim_world.h"

#define NO_THREAD UINT32_MAX /* a transfer that nobody waits for */

enum timer_kind { TIMER_WRITTEN, TIMER_NEXT_READ, TIMER_BARRIER };

struct shared_demand { /* what is still to be moved of an item, in MB by source; one source after the other */
    double pfs, peer, class[MR_CLASS_MAX];
    double pfs_requests;
    uint32_t peer_node; /* and where it has it */
    unsigned peer_class;
    struct {
        uint32_t samples;
        uint64_t bytes;
    } whole[MR_SIM_SOURCES]; /* the same for the trace, by MR_SIM_FROM_* or class; not of expected sources */
};

struct shared_thread {
    uint32_t node;
    uint8_t class; /* 0: staging */
    bool busy;
    uint8_t flows; /* not yet ended */
    struct shared_demand todo;
    uint64_t item; /* staging: item number over the whole run */
    double write_s;
    uint32_t n_ids;
    uint32_t *ids;        /* fillers: what is being fetched */
    uint64_t *deadlines;  /* fillers: of each */
    uint8_t *keep, *from; /* per sample: the class it goes to, or MR_NOT_HELD; enum mr_source_kind */
    uint64_t waiters;     /* fillers: staging threads of the node that wait for it, by bit */
    /* For the trace: when what is being moved now was begun, and the part of write_s that the
     * requests to the PFS take. */
    double part_start_s, latency_s;
    bool moving;
    uint8_t part; /* MR_SIM_FROM_PFS, a class or MR_SIM_FROM_PEER */
};

struct sim_node {
    double t;           /* compute is scheduled up to here */
    uint64_t next_item; /* to stage */
    uint64_t consumed;  /* items consumed */
    double staged_mb, step_mb;
    uint64_t planned; /* with claims: items whose samples have one */
    double claimed_mb;
    uint32_t pfs_flows;
    bool waiting_at_barrier;
    double wait_s, compute_s, ready_s; /* for the trace: of the step; when the last of its items came */
};

struct shared {
    struct mr_sim_workload *w;
    const struct mr_scenario *s;
    const struct mr_policy_ops *ops;
    struct mr_sim_world world; /* with an instance of the policy for every node */
    struct mr_policy expected; /* without ops: the instances are in use */
    uint8_t *held;             /* who really has what: [node * samples + id]: class, MR_NOT_HELD or MR_INCOMING */
    /* Where staged samples serve later accesses: accesses that have claims on a sample, and MR_TAKES_ROOM: [node *
     * samples + id]; NULL: each access stages its own. And for each access of two consecutive epochs whether it is the
     * first to claim its sample, which then has to be fetched: [node][epoch_len]. */
    uint8_t *staged, *fetches[2];
    uint64_t claims_ahead; /* samples */
    struct mr_clockwork clock;
    struct sim_node *nodes;
    struct shared_thread *threads;
    uint32_t n_threads, threads_per_node, idle_fillers, n_fillers;
    struct mr_heap timers; /* by time; the value is a kind << 32 | who: a thread or a node */
    uint32_t *ids[2];      /* streams of two consecutive epochs, [node][epoch_len] */
    uint64_t epoch_loaded; /* epochs [0, epoch_loaded) have been loaded */
    float *done_at[2];     /* item completion, relative to epoch_base_s: [node][items_per_epoch]; < 0 = not yet */
    double base_s[2];
    uint64_t grain, items_per_step, items_per_epoch, epoch_len;
    uint64_t step; /* over all epochs */
    uint32_t at_barrier;
    uint32_t pfs_clients;
    double now, barrier_s;
    bool training, out_of_memory;
    int failed; /* the code in err, when an epoch could not be loaded in the middle of the run */
    struct mr_sim_result *out;
    double step_start, epoch_start;
    struct mr_error *err;
};

enum { POOL_PFS, POOL_METADATA, POOL_FIRST_NODE };

static inline uint32_t mr_pool_in(uint32_t node)
{
    return POOL_FIRST_NODE + node * (2 + MR_CLASS_MAX);
}

static inline uint32_t mr_pool_out(uint32_t node)
{
    return mr_pool_in(node) + 1;
}

static inline uint32_t mr_pool_class(uint32_t node, unsigned class)
{
    return mr_pool_in(node) + 2 + class;
}

static inline bool mr_is_expected(const struct shared *x)
{
    return x->expected.ops != NULL;
}

static inline uint8_t *mr_held(const struct shared *x, uint32_t node, uint64_t id)
{
    return &x->held[node * x->s->samples + id];
}

/* ---- sim_stream.c: which samples an item has ---- */

struct item_ids {
    const uint32_t *ids;
    uint64_t n, access; /* access number of the first one, over all epochs */
};
struct item_ids mr_shared_item_ids(const struct shared *x, uint32_t node, uint64_t item);
double mr_shared_item_mb(const struct shared *x, uint32_t node, uint64_t item);
int mr_shared_load_epoch(struct shared *x, uint64_t epoch);
/* The number of a node's k-th access, over all epochs. */
uint64_t mr_shared_access(const struct shared *x, uint32_t node, uint64_t k);

/* ---- sim_stage.c: claims on staged samples ---- */

#define MR_TAKES_ROOM 0x80u /* in staged[]: the sample is in no class, so the buffer holds it */
/* Claims the samples of as many items ahead as the buffer has room for; those of the current step in any case. */
void mr_shared_claim(struct shared *x, uint32_t node);
/* Samples of the step before have no claim of its any longer. */
void mr_shared_release_claims(struct shared *x);

/* ---- sim_transfer.c: moving an item; they note it where memory is exhausted ---- */

void mr_shared_add_timer(struct shared *x, double when, enum timer_kind kind, uint32_t who);
void mr_shared_add_flow(struct shared *x, uint32_t pool, double mb, uint32_t thread);
void mr_shared_end_pfs_flow(struct shared *x, uint32_t thread);
/* Makes a staging thread wait for the thread of its node that is fetching `id`. If that one has just finished its flows
 * the wait lasts until its write is over, too. */
void mr_shared_wait_for(struct shared *x, uint32_t thread, uint32_t id);
void mr_shared_release_waiters(struct shared *x, uint32_t thread);
void mr_shared_launch(struct shared *x, uint32_t thread, const struct shared_demand *d);
/* Starts the next part of an item, or its write when everything has been moved. */
void mr_shared_advance_item(struct shared *x, uint32_t thread);

/* What the thread carries, for the trace, from start_s to end_s; without source, samples and bytes. */
struct mr_sim_part mr_shared_part(const struct shared *x, uint32_t thread, double start_s, double end_s);

/* ---- sim_stage.c: what a free thread does next; false when there is nothing ---- */

bool mr_shared_stage_next(struct shared *x, uint32_t thread);
void mr_shared_stage_all(struct shared *x, uint32_t node);
bool mr_shared_fill_next(struct shared *x, uint32_t thread);

#endif
