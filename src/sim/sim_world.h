/* The world that policies decide on, made of a scenario; and who really has which sample, which is the engines'. */
#ifndef MR_SIM_SIM_WORLD_H
#define MR_SIM_SIM_WORLD_H

#include "policy/policy.h"
#include "sim/sim.h"

#define MR_INCOMING 0xfe /* on its way into a class of this node; nobody can read it yet */

struct mr_sim_world {
    struct mr_policy_world world;
    struct mr_policy_memo memo;
    uint64_t *capacity;
    struct mr_policy *nodes; /* one instance per node; empty for the expected-value form */
};
/* Makes the world and an instance of the policy for every node. Errors: those of the policy. `expected` leaves schedule
 * and instances out. */
int mr_sim_world_init(struct mr_sim_world *sw, struct mr_sim_workload *w, enum mr_policy_id policy, bool expected,
                      struct mr_error *err);
void mr_sim_world_done(struct mr_sim_world *sw);
uint64_t mr_sim_bytes(const struct mr_sim_workload *w, uint64_t id);

#endif
