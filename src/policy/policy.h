/* Policies as engines use them: the registry, and one instance of one node. What a policy is, and how to write one,
 * stands in <millrace/plugin_policy.h>.
 *
 * How to add a built-in policy: one file policy_<name>.c with its ops, one row in MR_POLICY_LIST (policy_list.h). */
#ifndef MR_POLICY_POLICY_H
#define MR_POLICY_POLICY_H

#include "policy/policy_list.h"

#include <millrace/plugin_policy.h>

const struct mr_policy_ops *mr_policy_get_ops(enum mr_policy_id id);

/* What one node decides with. A zeroed one may be freed. */
struct mr_policy {
    const struct mr_policy_ops *ops;
    void *state;
};
/* What an instance needs to know every copy that the node with the most room can hold, at least 64 MiB; the same on all
 * nodes. For worlds that run for real: with less, samples are left to the PFS for which there is room. */
uint64_t mr_policy_memory(const struct mr_policy_world *w);
/* Errors: those of the policy's create. */
int mr_policy_create(enum mr_policy_id id, const struct mr_policy_world *w, uint32_t node, struct mr_policy *out,
                     struct mr_error *err);
void mr_policy_free(struct mr_policy *p);
void mr_policy_plan(const struct mr_policy *p, uint64_t access, uint64_t id, struct mr_plan *out);
static inline bool mr_policy_next_fill(const struct mr_policy *p, unsigned storage_class, uint64_t horizon,
                                       struct mr_fill *out)
{
    return p->ops->next_fill && p->ops->next_fill(p->state, storage_class, horizon, out);
}
static inline void mr_policy_result(const struct mr_policy *p, uint64_t access, uint64_t id, const struct mr_outcome *o)
{
    if (p->ops->on_result)
        p->ops->on_result(p->state, access, id, o);
}
static inline bool mr_policy_holds(const struct mr_policy *p, uint32_t node, uint64_t id, uint64_t access)
{
    return p->ops->holds && p->ops->holds(p->state, node, id, access);
}

/* MR_E_UNSUPPORTED with the reason when the policy has no expected-value form. */
int mr_policy_create_expected(enum mr_policy_id id, const struct mr_policy_world *w, struct mr_policy *out,
                              struct mr_error *err);
void mr_policy_free_expected(struct mr_policy *p);

#endif
