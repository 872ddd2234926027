/* The executor: what the leader of a node does. One thread plans the node's accesses in their order, asks the policy,
 * and starts what is needed; devices (work.h) bring the bytes; whoever completes something delivers it.
 *
 *   planner thread                                 threads of devices
 *   reclaim what ranks are done with               read into the place ─> READY ─> deliver to all who wait
 *   plan as far as rings and staging allow ──push──>      │ failed: next source, in the end FAILED to all who wait
 *   fills, while devices have time         ──push──>      │ kept on an SSD: copy ──push──> its writer
 *
 * Invariants
 *  E1. Accesses are planned once each, in ascending order; the delivery's number is the count of the rank's samples
 *      since the seek.
 *  E2. A place is taken when an access is planned: threads of devices never wait for memory.
 *  E3. One sample has at most one fetch under way; others join it.
 *  E4. The oldest access that is not planned gets room in the end: when nothing is out any more that could come back,
 *      copies of the RAM class are given up for it.
 *  E5. Policy and schedule belong to the planner thread; results reach it through a list.
 *  E6. Every delivery that was planned becomes READY or FAILED, or its ring is emptied by a seek.
 *
 * Lock order: executor's lock, then a device's. */
#ifndef MR_TIER_EXECUTOR_H
#define MR_TIER_EXECUTOR_H

#include "tier/tier.h"

#include <millrace/dataset.h>

struct mr_executor;
struct mr_ssd;
struct mr_tier_board;

struct mr_executor_params {
    const struct mr_tier_params *tier; /* borrowed, as all here */
    struct mr_segment *segment;
    struct mr_tier_board *board;
    uint32_t node, nodes;
    const uint32_t *first_rank; /* nodes + 1 */
    uint32_t classes;
    const uint64_t *capacity; /* [node * classes + class], of all nodes */
    struct mr_ssd **ssd;      /* class 2 + i; NULL where this node has none */
    uint32_t n_ssds;
    bool alone; /* other nodes are not asked, and nothing is kept for them */
};
/* Makes the world for the order's epoch from its beginning, so that a policy that does not suit is found here. Nothing
 * is read before a seek. MR_E_UNSUPPORTED, -ENOMEM, -errno. */
int mr_executor_create(const struct mr_executor_params *p, struct mr_executor **out, struct mr_error *err);
/* Before it starts: other nodes are asked through `peers`, which is the executor's from here on. */
struct mr_peers;
void mr_executor_use_peers(struct mr_executor *x, struct mr_peers *peers);
/* Before it starts: there is no wire after all. */
int mr_executor_alone(struct mr_executor *x, struct mr_error *err);
/* The threads begin. */
int mr_executor_start(struct mr_executor *x, struct mr_error *err);
/* Waits until copies to SSDs that were begun or wait are written; `over` ends it (MR_E_INTERRUPTED). Accepts NULL. */
int mr_executor_drain(struct mr_executor *x, bool (*over)(void *user), void *user, struct mr_error *err);
void mr_executor_free(struct mr_executor *x); /* ends threads; accepts NULL */

/* What all samples take with their places rounded up, and a margin, so that a policy sees that all of it fits. */
uint64_t mr_executor_set_bytes(const struct mr_dataset_info *info, unsigned read_flags);
/* Deliveries of a rank that may be out: what staging holds of its samples, and two batches at least. */
uint32_t mr_executor_depth(const struct mr_tier_params *p, uint32_t local_ranks, uint64_t staging);

#endif
