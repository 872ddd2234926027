/* What a policy does on average, without tables of who holds what: for runs so large that one byte per node and sample
 * would not fit. Under full shuffling a node reads a sample in an epoch with probability 1/N, independently from epoch
 * to epoch, so the share of its accesses that find the sample in an own class, at a peer or only on the PFS follows
 * from the position in the run. The engine (sim_shared.c) applies the shares to whole steps. doc/simulator.md derives
 * the formulas and states the error against the exact engine.
 *
 * Positions are in epochs (1.5 = in the middle of the second). Policies that redraw batches have no such form. */
#ifndef MR_POLICY_EXPECTED_H
#define MR_POLICY_EXPECTED_H

#include "policy/policy.h"

struct mr_expected;

/* Shares of a step's bytes by source; they add up to 1. */
struct mr_expected_split {
    double pfs, peer, class[MR_CLASS_MAX];
    unsigned peer_class; /* where the peer has it */
};

/* Uses the numbers of `w` only, neither directory nor stream. MR_E_UNSUPPORTED when the policy has no such form. */
int mr_expected_create(enum mr_policy_id policy, const struct mr_policy_world *w, struct mr_expected **out,
                       struct mr_error *err);
void mr_expected_free(struct mr_expected *x);
/* Where the accesses of `node` at `position` come from. `draw` in [0, 1) chooses among a peer's classes. */
void mr_expected_stage(struct mr_expected *x, uint32_t node, double position, double draw,
                       struct mr_expected_split *out);
/* The next bytes a filler of `class` fetches from the PFS, at most max_mb, when staging has come to `position`; 0:
 * done. */
double mr_expected_fill(struct mr_expected *x, uint32_t node, unsigned class, double position, double max_mb);

#endif
