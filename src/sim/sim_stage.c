/* What a free thread of the shared engine does next: staging threads take the items of their node in stream order (S2),
 * as far as the buffer (S1) and the consumer (S3) allow; fillers take what the policy wants in their class. */
#include "sim/sim_shared_internal.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>

static double staging_write_s(const struct shared *x, double mb)
{
    const struct mr_system *m = &x->s->system;
    return fmax(mb / m->preprocess_mbps, mb * m->classes[0].threads / mr_class_write_mbps(&m->classes[0]));
}

static void add_demand(struct shared_demand *d, struct mr_source src, double mb)
{
    switch (src.kind) {
    case MR_FROM_PFS:
        d->pfs += mb;
        d->pfs_requests++;
        break;
    case MR_FROM_PEER:
        d->peer += mb;
        d->peer_at = src;
        break;
    case MR_FROM_CLASS: d->class[src.class] += mb; break;
    case MR_FROM_INCOMING: break; /* nothing to move: wait_for makes the item wait */
    }
}

static bool may_stage(struct shared *x, uint32_t node, double mb)
{
    const struct sim_node *n = &x->nodes[node];
    uint64_t epoch = n->next_item / x->items_per_epoch;
    if (epoch >= x->s->epochs || epoch > x->step / x->w->steps_per_epoch + 1)
        return false;
    bool current_step = n->next_item < (x->step + 1) * x->items_per_step;
    return current_step || n->staged_mb + mb <= x->s->system.classes[0].capacity_mb;
}

/* Where the samples of an item come from, one by one. */
static void find_sources(struct shared *x, uint32_t thread, uint64_t item, struct shared_demand *d)
{
    uint32_t node = x->threads[thread].node;
    struct item_ids it = mr_shared_item_ids(x, node, item);
    for (uint64_t k = 0; k < it.n; k++) {
        uint32_t id = it.ids[k];
        struct mr_source src = mr_policy_source(&x->policy, node, id);
        add_demand(d, src, x->w->size_mb[id]);
        if (src.kind == MR_FROM_INCOMING)
            mr_shared_wait_for(x, thread, id);
        else if (src.kind == MR_FROM_PFS && x->policy.ops->will_keep && x->policy.ops->will_keep(&x->policy, node, id))
            mr_directory_announce(&x->dir, node, id);
    }
}

/* The same for a whole step by the policy's expected shares; the peer is drawn evenly. */
static void find_expected_sources(struct shared *x, uint32_t node, uint64_t item, double mb, struct shared_demand *d)
{
    struct mr_expected_split split;
    uint64_t random = mr_rng_at(x->s->seed, MR_RNG_ORDER, item * x->s->nodes + node);
    double position = (double)item / (double)x->items_per_epoch;
    mr_expected_stage(x->expected, node, position, mr_rng_unit(random), &split);
    uint32_t peer = x->s->nodes > 1 ? (node + 1 + (uint32_t)(random % (x->s->nodes - 1))) % x->s->nodes : node;
    *d = (struct shared_demand){.pfs = mb * split.pfs,
                                .pfs_requests = (double)x->w->per_node * split.pfs,
                                .peer = mb * split.peer,
                                .peer_at = {MR_FROM_PEER, peer, split.peer_class}};
    for (unsigned j = 1; j < x->s->system.n_classes; j++)
        d->class[j] = mb * split.class[j];
}

/* Starts the next item of a node on a free staging thread; false when there is nothing to start. */
bool mr_shared_stage_next(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    assert(t->class == 0 && !t->busy);
    struct sim_node *n = &x->nodes[t->node];
    uint64_t epoch = n->next_item / x->items_per_epoch;
    if (epoch >= x->s->epochs || epoch > x->step / x->w->steps_per_epoch + 1)
        return false;
    if (epoch >= x->epoch_loaded && (x->failed = mr_shared_load_epoch(x, epoch)))
        return false;
    double mb = mr_shared_item_mb(x, t->node, n->next_item);
    if (!may_stage(x, t->node, mb))
        return false;
    struct shared_demand d = {0};
    if (x->expected)
        find_expected_sources(x, t->node, n->next_item, mb, &d);
    else
        find_sources(x, thread, n->next_item, &d);
    t->item = n->next_item++;
    t->write_s = staging_write_s(x, mb);
    /* Threads that start alike and move equal sizes would read all at once and write all at once for ever, and leave
     * the PFS idle in between; real ones drift apart. The first write takes up to twice as long. */
    if (t->item < x->s->system.classes[0].threads && x->policy.ops->prefetches)
        t->write_s *= 1 + mr_rng_unit(mr_rng_at(x->s->seed, MR_RNG_ORDER, UINT64_MAX - thread));
    n->staged_mb += mb;
    assert(t->item < (x->step + 1) * x->items_per_step || n->staged_mb <= x->s->system.classes[0].capacity_mb); /* S1 */
    assert(t->item / x->items_per_epoch <= x->step / x->w->steps_per_epoch + 1);                                /* S3 */
    mr_shared_launch(x, thread, &d);
    return true;
}

void mr_shared_stage_all(struct shared *x, uint32_t node)
{
    if (!x->policy.ops->prefetches)
        return;
    uint32_t first = node * x->threads_per_node;
    for (uint32_t k = 0; k < x->s->system.classes[0].threads; k++)
        if (!x->threads[first + k].busy && !mr_shared_stage_next(x, first + k))
            return;
}

/* The next samples of a fill list; returns their MB, 0 when there are none. */
static double next_fill(struct shared *x, struct shared_thread *t, struct shared_demand *d)
{
    double mb = 0;
    t->n_ids = 0;
    while (t->n_ids < x->grain) {
        uint32_t id = x->policy.ops->next_fill(&x->policy, t->node, t->class);
        if (id == MR_NO_SAMPLE)
            break;
        uint32_t peer = x->policy.ops->fill_from_peers ? mr_directory_peer(&x->dir, t->node, id) : MR_NO_SAMPLE;
        struct mr_source src = {MR_FROM_PFS, t->node, 0};
        if (peer != MR_NO_SAMPLE)
            src = (struct mr_source){MR_FROM_PEER, peer, x->dir.held[peer * x->dir.samples + id]};
        add_demand(d, src, x->w->size_mb[id]);
        mb += x->w->size_mb[id];
        mr_directory_announce(&x->dir, t->node, id);
        t->ids[t->n_ids++] = id;
    }
    return mb;
}

static double next_expected_fill(struct shared *x, const struct shared_thread *t, struct shared_demand *d)
{
    double step_mb = x->w->total_mb / (double)x->s->samples * (double)x->w->per_node;
    double position = (double)x->nodes[t->node].next_item / (double)x->items_per_epoch;
    d->pfs = mr_expected_fill(x->expected, t->node, t->class, position, step_mb);
    d->pfs_requests = d->pfs / step_mb * (double)x->w->per_node;
    return d->pfs;
}

bool mr_shared_fill_next(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    assert(t->class > 0 && !t->busy);
    struct shared_demand d = {0};
    double mb = x->expected ? next_expected_fill(x, t, &d) : next_fill(x, t, &d);
    if (!(mb > 0))
        return false;
    const struct mr_storage_class *k = &x->s->system.classes[t->class];
    t->write_s = mb * k->threads / mr_class_write_mbps(k);
    t->item_mb = mb;
    mr_shared_launch(x, thread, &d);
    return true;
}
