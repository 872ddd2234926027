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

static void count(const struct shared *x, struct shared_demand *d, unsigned source, uint32_t id)
{
    assert(source < MR_SIM_SOURCES);
    d->whole[source].samples++;
    d->whole[source].bytes += mr_sim_sample_bytes(x->w, id);
}

/* Takes the first source that has the sample now; the PFS has everything. A sample that is on its way into an own class
 * is waited for rather than read from the PFS again. Adds the demand; returns what was taken. */
static enum mr_source_kind take_source(struct shared *x, uint32_t thread, uint32_t id,
                                       const struct mr_plan_source *source, unsigned n, struct shared_demand *d)
{
    uint32_t node = x->threads[thread].node;
    double mb = x->w->size_mb[id];
    for (unsigned i = 0; i < n; i++) {
        uint32_t who = source[i].kind == MR_FROM_PEER ? source[i].node : node;
        uint8_t at = *mr_held(x, who, id);
        if (source[i].kind == MR_FROM_CLASS && at < MR_INCOMING) {
            d->class[at] += mb;
            count(x, d, at, id);
            return MR_FROM_CLASS;
        }
        if (source[i].kind == MR_FROM_PEER && at < MR_INCOMING) {
            d->peer += mb;
            d->peer_node = who;
            d->peer_class = at;
            count(x, d, MR_SIM_FROM_PEER, id);
            return MR_FROM_PEER;
        }
    }
    if (source[0].kind == MR_FROM_CLASS && *mr_held(x, node, id) == MR_INCOMING) {
        mr_shared_wait_for(x, thread, id);
        d->class[source[0].storage_class] += mb;
        count(x, d, source[0].storage_class, id);
        return MR_FROM_CLASS;
    }
    d->pfs += mb;
    d->pfs_requests++;
    count(x, d, MR_SIM_FROM_PFS, id);
    mr_sim_trace_source(x->w->trace, node, id);
    return MR_FROM_PFS;
}

static void evict(struct shared *x, uint32_t node, const uint64_t *ids, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        *mr_held(x, node, ids[i]) = MR_NOT_HELD;
}

/* ---- claims: what is staged stays for a later access that is known by then ---- */

static uint8_t *fetches_of(const struct shared *x, uint32_t node, uint64_t access)
{
    return &x->fetches[access / x->epoch_len % 2][node * x->epoch_len + access % x->epoch_len];
}

static bool claim_item(struct shared *x, uint32_t node, bool must)
{
    struct sim_node *n = &x->nodes[node];
    struct item_ids it = mr_shared_item_ids(x, node, n->planned);
    uint8_t *claims = x->staged + node * x->s->samples;
    double more = 0;
    for (uint64_t k = 0; k < it.n; k++)
        if (!claims[it.ids[k]] && *mr_held(x, node, it.ids[k]) == MR_NOT_HELD)
            more += x->w->size_mb[it.ids[k]];
    if (!must && n->claimed_mb + more > x->s->system.classes[0].capacity_mb)
        return false;
    for (uint64_t k = 0; k < it.n; k++) {
        uint8_t *of = &claims[it.ids[k]];
        *fetches_of(x, node, it.access + k) = !*of;
        if (!*of && *mr_held(x, node, it.ids[k]) == MR_NOT_HELD)
            *of = MR_TAKES_ROOM;
        ++*of;
    }
    n->claimed_mb += more;
    n->planned++;
    return true;
}

void mr_shared_claim(struct shared *x, uint32_t node)
{
    struct sim_node *n = &x->nodes[node];
    uint64_t now = (x->step + 1) * x->items_per_step, ahead = n->consumed + x->claims_ahead / x->grain;
    uint64_t end = MR_MIN(mr_sim_steps(x->w) * x->items_per_step, MR_MAX(now, ahead));
    while (n->planned < end && !x->failed) {
        uint64_t epoch = n->planned / x->items_per_epoch;
        if (epoch > x->step / x->w->steps_per_epoch + 1)
            return;
        if (epoch >= x->epoch_loaded && (x->failed = mr_shared_load_epoch(x, epoch)))
            return;
        if (!claim_item(x, node, n->planned < now))
            return;
    }
}

void mr_shared_release_claims(struct shared *x)
{
    for (uint32_t i = 0; i < x->s->nodes && x->staged; i++) {
        uint64_t end = x->step * x->items_per_step, item = x->step ? end - x->items_per_step : end;
        for (; item < end; item++) {
            struct item_ids it = mr_shared_item_ids(x, i, item);
            for (uint64_t k = 0; k < it.n; k++) {
                uint8_t *of = &x->staged[i * x->s->samples + it.ids[k]];
                assert(*of & (uint8_t)~MR_TAKES_ROOM);
                if (--*of == MR_TAKES_ROOM)
                    x->nodes[i].claimed_mb -= x->w->size_mb[it.ids[k]];
                *of = *of == MR_TAKES_ROOM ? 0 : *of;
            }
        }
    }
}

static bool may_stage(struct shared *x, uint32_t node, double mb)
{
    const struct sim_node *n = &x->nodes[node];
    uint64_t epoch = n->next_item / x->items_per_epoch;
    if (n->next_item >= mr_sim_steps(x->w) * x->items_per_step || epoch > x->step / x->w->steps_per_epoch + 1)
        return false;
    bool current_step = n->next_item < (x->step + 1) * x->items_per_step;
    if (x->staged) {
        mr_shared_claim(x, node);
        return n->next_item < n->planned;
    }
    return current_step || n->staged_mb + mb <= x->s->system.classes[0].capacity_mb;
}

/* Where the samples of an item come from, one by one, and which of them stay. */
static void find_sources(struct shared *x, uint32_t thread, uint64_t item, struct shared_demand *d)
{
    struct shared_thread *t = &x->threads[thread];
    struct item_ids it = mr_shared_item_ids(x, t->node, item);
    for (uint64_t k = 0; k < it.n; k++) {
        uint32_t id = it.ids[k];
        struct mr_plan plan;
        mr_policy_plan(&x->world.nodes[t->node], mr_shared_access(x, t->node, it.access + k), id, &plan);
        evict(x, t->node, plan.evict, plan.n_evict);
        bool is_staged = x->staged && !*fetches_of(x, t->node, it.access + k);
        if (is_staged) { /* of its own memory; nothing moves */
            count(x, d, 1, id);
            x->out->class_mb[0] += x->w->size_mb[id];
            x->out->epochs[MR_MIN(item / x->items_per_epoch, MR_SIM_EPOCHS_TOLD - 1u)].own_mb += x->w->size_mb[id];
        }
        t->from[k] = is_staged ? MR_FROM_CLASS : (uint8_t)take_source(x, thread, id, plan.source, plan.n_sources, d);
        t->keep[k] = MR_NOT_HELD;
        uint8_t *held = mr_held(x, t->node, id);
        if (plan.keep == MR_NOT_HELD || *held != MR_NOT_HELD || (plan.keep_only_from_pfs && t->from[k] != MR_FROM_PFS))
            continue;
        t->keep[k] = (uint8_t)plan.keep;
        *held = MR_INCOMING;
    }
}

/* The same for a whole step by the policy's expected shares; the peer is drawn evenly. */
static void find_expected_sources(struct shared *x, uint32_t node, uint64_t item, double mb, struct shared_demand *d)
{
    struct mr_expected_split split;
    uint64_t random = mr_rng_at(x->s->seed, MR_RNG_ORDER, item * x->s->nodes + node);
    double position = (double)item / (double)x->items_per_epoch;
    x->ops->expected->stage(x->expected.state, node, position, mr_rng_unit(random), &split);
    uint32_t peer = x->s->nodes > 1 ? (node + 1 + (uint32_t)(random % (x->s->nodes - 1))) % x->s->nodes : node;
    *d = (struct shared_demand){.pfs = mb * split.pfs,
                                .pfs_requests = (double)x->w->per_node * split.pfs,
                                .peer = mb * split.peer,
                                .peer_node = peer,
                                .peer_class = split.peer_class};
    for (unsigned j = 1; j < x->s->system.n_classes; j++)
        d->class[j] = mb * split.own[j];
}

/* Starts the next item of a node on a free staging thread; false when there is nothing to start. */
bool mr_shared_stage_next(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    assert(t->class == 0 && !t->busy);
    struct sim_node *n = &x->nodes[t->node];
    uint64_t epoch = n->next_item / x->items_per_epoch;
    if (n->next_item >= mr_sim_steps(x->w) * x->items_per_step || epoch > x->step / x->w->steps_per_epoch + 1)
        return false;
    if (epoch >= x->epoch_loaded && (x->failed = mr_shared_load_epoch(x, epoch)))
        return false;
    double mb = mr_shared_item_mb(x, t->node, n->next_item);
    if (!may_stage(x, t->node, mb))
        return false;
    struct shared_demand d = {0};
    if (mr_is_expected(x))
        find_expected_sources(x, t->node, n->next_item, mb, &d);
    else
        find_sources(x, thread, n->next_item, &d);
    t->item = n->next_item++;
    t->write_s = staging_write_s(x, mb);
    /* Threads that start alike and move equal sizes would read all at once and write all at once for ever, and leave
     * the PFS idle in between; real ones drift apart. The first write takes up to twice as long. */
    if (t->item < x->s->system.classes[0].threads && x->ops->prefetches)
        t->write_s *= 1 + mr_rng_unit(mr_rng_at(x->s->seed, MR_RNG_ORDER, UINT64_MAX - thread));
    n->staged_mb += mb;
    assert(t->item < (x->step + 1) * x->items_per_step || /* S1 */
           (x->staged ? n->claimed_mb : n->staged_mb) <= x->s->system.classes[0].capacity_mb + 1e-6);
    assert(t->item / x->items_per_epoch <= x->step / x->w->steps_per_epoch + 1); /* S3 */
    mr_shared_launch(x, thread, &d);
    return true;
}

void mr_shared_stage_all(struct shared *x, uint32_t node)
{
    if (!x->ops->prefetches)
        return;
    uint32_t first = node * x->threads_per_node;
    for (uint32_t k = 0; k < x->s->system.classes[0].threads; k++)
        if (!x->threads[first + k].busy && !mr_shared_stage_next(x, first + k))
            return;
}

/* The next samples to fill; returns their MB, 0 when there are none. */
static double next_fill(struct shared *x, uint32_t thread, struct shared_demand *d)
{
    struct shared_thread *t = &x->threads[thread];
    struct mr_fill fill;
    double mb = 0;
    t->n_ids = 0;
    while (t->n_ids < x->grain && mr_policy_next_fill(&x->world.nodes[t->node], t->class, MR_NO_ACCESS, &fill)) {
        uint32_t id = (uint32_t)fill.id;
        evict(x, t->node, fill.evict, fill.n_evict);
        t->from[t->n_ids] = (uint8_t)take_source(x, thread, id, fill.source, fill.n_sources, d);
        mb += x->w->size_mb[id];
        if (*mr_held(x, t->node, id) == MR_NOT_HELD)
            *mr_held(x, t->node, id) = MR_INCOMING;
        t->keep[t->n_ids] = (uint8_t)fill.storage_class;
        t->deadlines[t->n_ids] = fill.deadline;
        t->ids[t->n_ids++] = id;
    }
    return mb;
}

static double next_expected_fill(struct shared *x, const struct shared_thread *t, struct shared_demand *d)
{
    double step_mb = x->w->total_mb / (double)x->s->samples * (double)x->w->per_node;
    double position = (double)x->nodes[t->node].next_item / (double)x->items_per_epoch;
    if (x->ops->expected->fill)
        d->pfs = x->ops->expected->fill(x->expected.state, t->node, t->class, position, step_mb * 1e6) / 1e6;
    d->pfs_requests = d->pfs / step_mb * (double)x->w->per_node;
    return d->pfs;
}

bool mr_shared_fill_next(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    assert(t->class > 0 && !t->busy);
    struct shared_demand d = {0};
    double mb = mr_is_expected(x) ? next_expected_fill(x, t, &d) : next_fill(x, thread, &d);
    if (!(mb > 0))
        return false;
    const struct mr_storage_class *k = &x->s->system.classes[t->class];
    t->write_s = mb * k->threads / mr_class_write_mbps(k);
    mr_shared_launch(x, thread, &d);
    return true;
}
