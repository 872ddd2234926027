/* What the files of this folder share: each policy's ops and the helpers for shards and fill lists. */
#ifndef MR_POLICY_POLICY_INTERNAL_H
#define MR_POLICY_POLICY_INTERNAL_H

#include "policy/policy.h"

#define MR_POLICY_EXTERN(id, ops) extern const struct mr_policy_ops mr_policy_##ops##_ops;
MR_POLICY_LIST(MR_POLICY_EXTERN)
#undef MR_POLICY_EXTERN

/* What begins every built-in policy's ops. */
#define MR_POLICY_HEAD .abi = MR_POLICY_ABI, .size = sizeof(struct mr_policy_ops)

/* A list of samples to fill into one class of one node, in order. */
struct mr_fill_list {
    uint32_t *ids;
    uint64_t n, at;
};

/* One list per node and class: [node * MR_CLASS_MAX + class]. */
struct mr_fill_plan {
    uint32_t nodes;
    struct mr_fill_list *lists;
};
int mr_fill_plan_init(struct mr_fill_plan *f, uint32_t nodes);
void mr_fill_plan_done(struct mr_fill_plan *f);
struct mr_fill_list *mr_fill_plan_list(struct mr_fill_plan *f, uint32_t node, unsigned class);
/* Room for n ids; returns -ENOMEM or 0. */
int mr_fill_list_reserve(struct mr_fill_list *l, uint64_t n);

/* Shard of a node: [begin(node), begin(node + 1)). */
static inline uint32_t mr_shard_begin(const struct mr_policy_world *w, uint32_t node)
{
    return (uint32_t)((uint64_t)node * w->samples / w->nodes);
}

/* Shared by the policies whose state is a fill plan and nothing else. */
uint32_t mr_fill_plan_next(struct mr_policy *p, uint32_t node, unsigned class);
void mr_fill_plan_free(struct mr_policy *p);

#endif
