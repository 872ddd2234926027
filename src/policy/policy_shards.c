/* Policies that copy a fixed shard of the data set to every node before training starts: DeepIO (ordered and
 * opportunistic), LBANN's preloaded store, locality-aware loading and parallel data staging. They differ in the class
 * they use, in what follows the own shard, and in whether batches are redrawn from what is local. */
#include "policy/policy_internal.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>

/* Appends ids [from, to) while the class has room. */
static void append_range(const struct mr_policy_world *w, struct mr_fill_list *l, uint32_t from, uint32_t to,
                         double *left)
{
    for (uint32_t id = from; id < to && w->size_mb[id] <= *left; id++) {
        *left -= w->size_mb[id];
        l->ids[l->n++] = id;
    }
}

static int plan_shards(struct mr_policy *p, unsigned class, bool rest_too, struct mr_error *err)
{
    const struct mr_policy_world *w = &p->world;
    struct mr_fill_plan *f = calloc(1, sizeof(*f));
    p->state = f;
    if (!f || mr_fill_plan_init(f, w->nodes))
        return mr_error_set(err, -ENOMEM, "planning shards");
    for (uint32_t i = 0; i < w->nodes; i++) {
        struct mr_fill_list *l = mr_fill_plan_list(f, i, class);
        if (mr_fill_list_reserve(l, rest_too ? w->samples : w->samples / w->nodes + 1))
            return mr_error_set(err, -ENOMEM, "planning shards");
        double left = w->system->classes[class].capacity_mb;
        for (uint32_t k = 0; k < (rest_too ? w->nodes : 1); k++) {
            uint32_t shard =
                (i + k) % w->nodes; /* own shard first, then the neighbours', so that no peer is asked by all */
            append_range(w, l, mr_shard_begin(w, shard), mr_shard_begin(w, shard + 1), &left);
        }
    }
    return 0;
}

static int need_class(const struct mr_policy *p, struct mr_error *err)
{
    if (p->world.system->n_classes < 2)
        return mr_error_set(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
    return 0;
}

static int create_in_memory(struct mr_policy *p, struct mr_error *err)
{
    int rc = need_class(p, err);
    return rc ? rc : plan_shards(p, 1, false, err);
}

static int create_in_last(struct mr_policy *p, struct mr_error *err)
{
    int rc = need_class(p, err);
    return rc ? rc : plan_shards(p, p->world.system->n_classes - 1, false, err);
}

static int create_lbann(struct mr_policy *p, struct mr_error *err)
{
    int rc = need_class(p, err);
    if (rc)
        return rc;
    double room = p->world.nodes * p->world.system->classes[1].capacity_mb;
    if (p->world.total_mb > room)
        return mr_error_set(err, MR_E_UNSUPPORTED, "the data set (%.0f MB) does not fit all nodes' class 1 (%.0f MB)",
                            p->world.total_mb, room);
    return plan_shards(p, 1, false, err);
}

static int create_parallel(struct mr_policy *p, struct mr_error *err)
{
    int rc = need_class(p, err);
    return rc ? rc : plan_shards(p, p->world.system->n_classes - 1, true, err);
}

/* Draws the node's accesses without replacement from the samples it may use, again from the start when they run out. */
static void redraw_from(struct mr_policy *p, uint32_t epoch, uint32_t node, uint32_t partner, uint32_t *ids, uint64_t n,
                        uint64_t seed)
{
    const struct mr_directory *d = p->world.dir;
    uint32_t *pool = malloc(d->samples * sizeof(*pool));
    uint64_t m = 0;
    for (uint32_t id = 0; pool && id < d->samples; id++)
        if (d->held[(uint64_t)node * d->samples + id] < MR_INCOMING ||
            d->held[(uint64_t)partner * d->samples + id] < MR_INCOMING)
            pool[m++] = id;
    for (uint64_t k = 0; k < n && m; k++) {
        uint64_t at = k % m;
        uint64_t pick = at + mr_rng_below(mr_rng_at(seed + epoch, MR_RNG_ORDER, (uint64_t)node << 40 | k), m - at);
        uint32_t id = pool[pick];
        pool[pick] = pool[at];
        pool[at] = id;
        ids[k] = id;
    }
    free(pool);
}

static void redraw_local(struct mr_policy *p, uint32_t epoch, uint32_t node, uint32_t *ids, uint64_t n, uint64_t seed)
{
    redraw_from(p, epoch, node, node, ids, n, seed);
}

static void redraw_with_previous(struct mr_policy *p, uint32_t epoch, uint32_t node, uint32_t *ids, uint64_t n,
                                 uint64_t seed)
{
    redraw_from(p, epoch, node, (node + p->world.nodes - 1) % p->world.nodes, ids, n, seed);
}

#define SHARD_OPS                                                                                                      \
    .prefetches = true, .from_classes = true, .from_peers = true, .preloads = true, .free = mr_fill_plan_free,         \
    .next_fill = mr_fill_plan_next

const struct mr_policy_ops mr_policy_deepio_ordered_ops = {
    MR_POLICY_HEAD, .name = "deepio-ordered", .doc = "shards preloaded into memory, staged from own or peer memory",
    SHARD_OPS, .create = create_in_memory};
const struct mr_policy_ops mr_policy_deepio_opportunistic_ops = {
    MR_POLICY_HEAD,
    .name = "deepio-opportunistic",
    .doc = "as deepio-ordered, batches redrawn from cached samples",
    .reorders = true,
    SHARD_OPS,
    .create = create_in_memory,
    .redraw = redraw_with_previous};
const struct mr_policy_ops mr_policy_lbann_preload_ops = {
    MR_POLICY_HEAD, .name = "lbann-preload", .doc = "as deepio-ordered; needs the data set to fit all nodes' memory",
    SHARD_OPS, .create = create_lbann};
const struct mr_policy_ops mr_policy_locality_aware_ops = {
    MR_POLICY_HEAD, .name = "locality-aware",
    .doc = "shards preloaded into the last class, batch items read where they are held", SHARD_OPS,
    .create = create_in_last};
const struct mr_policy_ops mr_policy_parallel_staging_ops = {
    MR_POLICY_HEAD,
    .name = "parallel-staging",
    .doc = "shards copied to the last class, batches redrawn from local samples",
    .reorders = true,
    SHARD_OPS,
    .create = create_parallel,
    .fill_from_peers = true,
    .redraw = redraw_local};
