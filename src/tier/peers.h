/* Asking other nodes for samples, and answering them, over the wire. The leader's.
 *
 *   ask    straight into the place of the fetch. `not yet`: again after a moment, as long as nobody waits for it;
 *          anything else: the next source, in the end the data set's
 *   serve  what is READY, pinned by a claim; later: what is on its way, what is on an SSD only (it is loaded then), and
 *          what this node will have by the rule as soon as it has planned that far
 *
 * Invariants
 *  P1. A fetch that was asked for belongs to the wire until its answer, and the place with it.
 *  P2. `serve` and `release` take the executor's lock for a moment and never wait for I/O.
 *  P3. Every fetch ends: a peer that says nothing costs the deadline, once; then it counts as gone, and the source has
 *      everything. */
#ifndef MR_TIER_PEERS_H
#define MR_TIER_PEERS_H

#include "tier/tier.h"
#include "tier/tier_node.h"

struct mr_executor;
struct mr_fetching;
struct mr_peers;

/* Collective: all ranks of the job; x is NULL in those that do not lead. Errors: those of mr_wire_open, MR_E_PEER when
 * another node could not. *out is NULL in ranks that do not lead. */
int mr_peers_open(const struct mr_tier_params *p, const struct mr_tier_node *node, struct mr_executor *x,
                  struct mr_peers **out, struct mr_error *err);
/* What was asked and has no answer goes on with its next source. Accepts NULL. Before the devices are stopped. */
void mr_peers_close(struct mr_peers *p);

/* Asks the next of the fetch's peers; false: there is none that could be asked. Under the executor's lock. */
bool mr_peers_ask(struct mr_peers *p, struct mr_fetching *f);
/* Nodes that are not heard of now. */
uint32_t mr_peers_lost(const struct mr_peers *p);
/* The first access for which one of the nodes around reads from the source now; MR_NO_ACCESS: none does; 0: they have
 * not said yet. Asks them. Under the executor's lock. */
uint64_t mr_peers_need(struct mr_peers *p);
/* Asks again where it is time; under the executor's lock. Returns when to come back, in ns from now; 0: no need. */
uint64_t mr_peers_tick(struct mr_peers *p);

#endif
