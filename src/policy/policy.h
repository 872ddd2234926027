/* Policies as the engines use them: the registry and the one rule for choosing a source. What a policy is, and how to
 * write one, stands in <millrace/plugin_policy.h>.
 *
 * How to add a built-in policy: one file policy_<name>.c with its ops, one row in MR_POLICY_LIST (policy_list.h). */
#ifndef MR_POLICY_POLICY_H
#define MR_POLICY_POLICY_H

#include "model/model.h"
#include "policy/policy_list.h"

#include <millrace/plugin_policy.h>

enum mr_source_kind { MR_FROM_PFS, MR_FROM_PEER, MR_FROM_CLASS, MR_FROM_INCOMING };
struct mr_source {
    enum mr_source_kind kind;
    uint32_t node;  /* PEER: who */
    unsigned class; /* PEER and CLASS: which */
};

const struct mr_policy_ops *mr_policy_get_ops(enum mr_policy_id id);
int mr_policy_create(enum mr_policy_id id, const struct mr_policy_world *w, struct mr_policy *p, struct mr_error *err);
void mr_policy_free(struct mr_policy *p);
/* Where staging should take the sample from, now: own class, else a peer, else what is already on its way
 * here, else the PFS, as far as the policy uses them. */
struct mr_source mr_policy_source(const struct mr_policy *p, uint32_t node, uint32_t id);

#endif
