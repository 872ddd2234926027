/* Which ranks of a job share a node, and how its segment comes to all of them. Ranks are on one node if they run on one
 * machine since it started, as one user, and see the same network and processes (so two containers are two nodes). The
 * first rank of a node leads it.
 *
 * Everything here is collective: all ranks of the job call it, and what fails on one rank fails on all, with its
 * message. */
#ifndef MR_TIER_TIER_NODE_H
#define MR_TIER_TIER_NODE_H

#include "base/mac.h"
#include "base/process.h"
#include "tier/tier.h"

struct mr_tier_node {
    uint32_t rank, world; /* of the job */
    uint32_t node, nodes;
    uint32_t local_rank, local_ranks; /* local_rank 0 leads */
    uint32_t *first_rank;             /* of each node, and world at the end */
    struct mr_process_id *process;    /* of each rank; of this node's only they mean something */
    mr_tier_exchange_fn *exchange;
    void *exchange_ctx;
    uint8_t secret[MR_MAC_BYTES]; /* of this job's tiers; what needs a key of its own derives it from this one */
};
/* Errors: MR_E_CONFIG when the ranks of a node do not follow each other, what exchange returned, -ENOMEM. */
int mr_tier_node_find(const struct mr_tier_params *p, struct mr_tier_node *out, struct mr_error *err);
void mr_tier_node_done(struct mr_tier_node *n);

/* The leader comes with its segment in *s and code 0, or with a negative code and the reason in *err, which then is
 * everybody's; the others get theirs in *s, mapped. On failure of any rank all of them fail; then *s is NULL on all
 * ranks but the leaders, who keep theirs. Passes the descriptor over an abstract socket: user and a secret of this job
 * are checked. */
int mr_tier_node_share(const struct mr_tier_node *n, int code, struct mr_segment **s, struct mr_error *err);
/* `len` bytes of every node's leader, in the order of the nodes, to all ranks. */
int mr_tier_node_gather(const struct mr_tier_node *n, const void *mine, size_t len, void *all, struct mr_error *err);
/* All ranks have come here with code 0; else the failure of the first one that has not (with its text from *err). */
int mr_tier_node_agree(const struct mr_tier_node *n, int code, struct mr_error *err);

#endif
