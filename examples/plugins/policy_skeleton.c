/* A policy as a plug-in: read ahead like 'staging', and keep what arrives wherever a storage class of the node has
 * room, first come, first kept; nothing is ever evicted. The header <millrace/plugin_policy.h> says what each operation
 * promises.
 *
 *     millrace sim SCENARIO --policy first-fit */
#include <millrace/plugin.h>
#include <millrace/plugin_policy.h>

/* The scenario may not suit the policy: say why, and the table shows it. */
static int create(struct mr_policy *p, struct mr_error *err)
{
    if (mr_policy_classes(&p->world) < 2)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
    p->state = NULL; /* what a policy remembers; `free` gives it back */
    return 0;
}

/* Access k of `node` has brought the sample: it stays in the first class with room, unless the node has it already. */
static void keep(struct mr_policy *p, uint32_t node, uint32_t id, uint64_t k)
{
    struct mr_directory *d = p->world.dir;
    (void)k;
    if (d->held[(uint64_t)node * d->samples + id] != MR_NOT_HELD)
        return;
    for (unsigned c = 1; c < mr_policy_classes(&p->world); c++)
        if (mr_directory_used_mb(d, node, c) + (double)d->size_mb[id] <= mr_policy_capacity_mb(&p->world, c)) {
            mr_directory_put(d, node, id, c);
            return;
        }
}

static const struct mr_policy_ops first_fit = {
    .abi = MR_POLICY_ABI,
    .size = sizeof(struct mr_policy_ops),
    .name = "first-fit",
    .doc = "read ahead, keep what fits, first come, first kept: the policy to copy for a plug-in",
    .prefetches = true,
    .from_classes = true,
    .from_peers = true,
    .create = create,
    .keep = keep,
};

MR_PLUGIN_DEFINE({MR_PLUGIN_POLICY, &first_fit});
