/* LBANN's dynamic store: the first reader of a sample keeps it in memory and serves everybody else from then on. */
#include "policy/policy_internal.h"

static void keep_if_first(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k)
{
    (void)k;
    struct mr_directory *d = p->world.dir;
    double used = d->used_mb[node * MR_CLASS_MAX + 1];
    if (d->holders[id] == 0 && used + d->size_mb[id] <= p->world.system->classes[1].capacity_mb)
        mr_directory_put(d, node, id, 1);
}

static int create(struct mr_policy *p, struct mr_error *err)
{
    if (p->world.system->n_classes < 2)
        return mr_error_set(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
    return 0;
}

const struct mr_policy_ops mr_policy_lbann_dynamic_ops = {
    MR_POLICY_HEAD,     .name = "lbann-dynamic", .doc = "the first reader of a sample keeps it and serves the others",
    .prefetches = true, .from_classes = true,    .from_peers = true,
    .create = create,   .keep = keep_if_first};
