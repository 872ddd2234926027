/* The shared engine: an event-driven simulation in which the PFS, every storage class and every network link are
 * shared among the transfers in flight.
 *
 *   node:  staging threads p_0 ──> staging buffer ──> consumer (compute) ──barrier over all nodes──> next step
 *          filler threads p_j  ──> class j
 *
 * A thread carries one item at a time: `grain` consecutive samples of the node's stream (staging) or of a fill list. An
 * item is moved source by source, with one flow in every resource a source uses (PFS; or a peer's class, its link and
 * ours; or an own class); then the thread spends the preprocessing and write time, and the item is there. grain = 1 is
 * exact; the default grows with the run, so that the work stays bounded (mr_sim_grain); doc/guides/simulator.md states
 * the error.
 *
 * When the tables of who holds what would not fit, an item is a node's whole step and its sources come from the
 * policy's expected-value form instead of its instances; everything else stays the same.
 *
 * Files: sim_stream.c has the samples of an item, sim_stage.c chooses items, sim_transfer.c moves them; here are the
 * consumers, the events and the set-up.
 *
 * Invariants
 *  S1. Staged and not yet consumed MB <= capacity of class 0, except that the current step may always be staged. Where
 *      staged samples serve later accesses (a run over tiers): MB that claims take.
 *  S2. Items of a node start in stream order.
 *  S3. Staging is at most one epoch ahead of the consumer. */
#include "sim/sim_shared_internal.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLAIMS_LEAST 64u /* samples ahead; as src/tier/executor.c has it */
#define CLAIMS_MOST 4096u

/* ---- consuming ---- */

static void finish_step(struct shared *x, uint32_t node)
{
    struct sim_node *n = &x->nodes[node];
    assert(!n->waiting_at_barrier && x->at_barrier < x->s->nodes);
    n->waiting_at_barrier = true;
    x->barrier_s = fmax(x->barrier_s, n->t);
    if (++x->at_barrier == x->s->nodes)
        mr_shared_add_timer(x, x->barrier_s, TIMER_BARRIER, 0);
}

static float *item_done(struct shared *x, uint32_t node, uint64_t item)
{
    return &x->done_at[item / x->items_per_epoch % 2][node * x->items_per_epoch + item % x->items_per_epoch];
}

/* Compute that one item brings. A step of given length whose reads come on demand begins when all of them are there;
 * else a step is computed item by item. */
static double compute_of(const struct shared *x, double mb, bool is_last)
{
    if (!(x->s->step_s > 0))
        return mb / x->s->system.compute_mbps;
    if (!x->ops->prefetches)
        return is_last ? x->s->step_s : 0;
    return x->s->step_s / (double)x->items_per_step;
}

/* Computes as far as items of the current step have arrived. */
static void consume(struct shared *x, uint32_t node)
{
    struct sim_node *n = &x->nodes[node];
    uint64_t end = (x->step + 1) * x->items_per_step;
    assert(n->consumed <= n->next_item); /* S2: what is consumed has been staged */
    while (n->consumed < end) {
        float done = *item_done(x, node, n->consumed);
        if (done < 0)
            return;
        double mb = mr_shared_item_mb(x, node, n->consumed);
        double at = x->base_s[n->consumed / x->items_per_epoch % 2] + (double)done;
        double compute_s = compute_of(x, mb, n->consumed + 1 == end);
        n->ready_s = fmax(n->ready_s, at);
        if (at > n->t) {
            n->wait_s += at - n->t;
            n->t = at;
        }
        n->t += compute_s;
        n->compute_s += compute_s;
        n->step_mb += mb;
        x->out->consumed_mb += mb;
        n->consumed++;
    }
    if (!n->waiting_at_barrier)
        finish_step(x, node);
}

/* naive: the consumer reads by itself, one item after the other. */
static void read_on_demand(struct shared *x, uint32_t node)
{
    if (x->nodes[node].next_item < (x->step + 1) * x->items_per_step)
        mr_shared_stage_next(x, node * x->threads_per_node);
}

static void start_step(struct shared *x)
{
    x->step_start = x->now;
    x->at_barrier = 0;
    x->barrier_s = 0;
    mr_shared_release_claims(x);
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        struct sim_node *n = &x->nodes[i];
        n->waiting_at_barrier = false;
        n->t = x->now;
        n->wait_s = n->compute_s = n->ready_s = 0;
        n->staged_mb -= n->step_mb;
        n->step_mb = 0;
    }
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        mr_shared_stage_all(x, i);
        if (x->ops->prefetches)
            consume(x, i);
        else
            read_on_demand(x, i);
    }
}

/* ---- events ---- */

/* Unless it has been evicted on its way, the sample is where it was planned to go. */
static void sample_arrived(struct shared *x, uint32_t thread, uint64_t k, uint32_t id, uint64_t access)
{
    const struct shared_thread *t = &x->threads[thread];
    uint8_t *held = mr_held(x, t->node, id);
    if (t->keep[k] != MR_NOT_HELD && *held == MR_INCOMING)
        *held = t->keep[k];
    const struct mr_outcome o = {.from = (enum mr_source_kind)t->from[k], .kept = *held < MR_INCOMING};
    mr_policy_result(&x->world.nodes[t->node], access, id, &o);
}

/* The write of an item, and the samples that are ready with it. */
static void trace_item(const struct shared *x, uint32_t thread)
{
    const struct shared_thread *t = &x->threads[thread];
    struct mr_sim_part p = mr_shared_part(x, thread, x->now - (t->write_s - t->latency_s), x->now);
    for (unsigned k = 0; k < MR_SIM_SOURCES; k++) {
        p.samples += t->todo.whole[k].samples;
        p.bytes += t->todo.whole[k].bytes;
    }
    mr_sim_trace_write(x->w->trace, &p, t->class);
    if (t->class > 0)
        return;
    struct item_ids it = mr_shared_item_ids(x, t->node, t->item);
    assert(p.samples == it.n); /* V2: each came from one source */
    for (uint64_t k = 0; k < it.n; k++) {
        p.sample = it.ids[k];
        p.bytes = mr_sim_sample_bytes(x->w, it.ids[k]);
        mr_sim_trace_row(x->w->trace, &p);
    }
}

static void item_arrived(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    assert(t->busy && t->flows == 0);
    t->busy = false;
    if (x->w->trace)
        trace_item(x, thread);
    if (t->class > 0) {
        for (uint32_t k = 0; k < t->n_ids && !mr_is_expected(x); k++)
            sample_arrived(x, thread, k, t->ids[k], t->deadlines[k]);
        mr_shared_release_waiters(x, thread);
        if (!mr_shared_fill_next(x, thread))
            x->idle_fillers++;
        return;
    }
    if (!mr_is_expected(x)) {
        struct item_ids it = mr_shared_item_ids(x, t->node, t->item);
        for (uint64_t k = 0; k < it.n; k++)
            sample_arrived(x, thread, k, it.ids[k], mr_shared_access(x, t->node, it.access + k));
    }
    mr_shared_release_waiters(x, thread);
    *item_done(x, t->node, t->item) = (float)(x->now - x->base_s[t->item / x->items_per_epoch % 2]);
    if (!x->ops->prefetches) {
        consume(x, t->node);
        if (!x->nodes[t->node].waiting_at_barrier)
            mr_shared_add_timer(x, x->nodes[t->node].t, TIMER_NEXT_READ, t->node);
        return;
    }
    consume(x, t->node);
    mr_shared_stage_all(x, t->node);
}

static void flow_ended(struct shared *x, uint32_t pool)
{
    uint32_t thread = mr_pool_end_first(&x->clock, pool);
    if (thread == NO_THREAD)
        return;
    if (pool == POOL_PFS)
        mr_shared_end_pfs_flow(x, thread);
    assert(x->threads[thread].busy && x->threads[thread].flows > 0);
    if (--x->threads[thread].flows == 0)
        mr_shared_advance_item(x, thread);
}

static uint64_t step_bytes(const struct shared *x, uint32_t node, uint64_t step)
{
    uint64_t bytes = 0;
    for (uint64_t item = step * x->items_per_step; item < (step + 1) * x->items_per_step; item++) {
        struct item_ids it = mr_shared_item_ids(x, node, item);
        for (uint64_t k = 0; k < it.n; k++)
            bytes += mr_sim_sample_bytes(x->w, it.ids[k]);
    }
    return bytes;
}

/* The step that has just ended. */
static void trace_step(struct shared *x)
{
    uint64_t step = x->step - 1;
    uint32_t epoch = (uint32_t)(step / x->w->steps_per_epoch);
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        const struct sim_node *n = &x->nodes[i];
        mr_sim_trace_step(x->w->trace, &(struct mr_sim_step){.node = i,
                                                             .epoch = epoch,
                                                             .step = step % x->w->steps_per_epoch,
                                                             .start_s = x->step_start,
                                                             .end_s = x->now,
                                                             .wait_s = n->wait_s,
                                                             .compute_s = n->compute_s,
                                                             .ready_s = n->ready_s,
                                                             .bytes = step_bytes(x, i, step)});
    }
    if (x->step % x->w->steps_per_epoch == 0 || x->step == mr_sim_steps(x->w)) {
        mr_sim_trace_epoch(x->w->trace, epoch, x->epoch_start, x->now);
        x->epoch_start = x->now;
    }
}

static void account_step(struct shared *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < x->s->nodes; i++)
        sum += x->nodes[i].t - x->step_start;
    double mean = sum / x->s->nodes, steps = (double)mr_sim_steps(x->w);
    if (mean > 0)
        x->out->imbalance += fmax(0, x->now - x->step_start - mean) / mean / steps;
    if (x->step > x->w->skip_first && x->step + x->w->skip_last <= mr_sim_steps(x->w)) {
        x->out->counted_s += x->now - x->step_start;
        x->out->counted_steps++;
    }
    if (x->step == x->w->steps_per_epoch)
        x->out->first_epoch_s = x->now;
    uint64_t epoch = (x->step - 1) / x->w->steps_per_epoch;
    x->out->epochs[MR_MIN(epoch, MR_SIM_EPOCHS_TOLD - 1u)].time_s += x->now - x->step_start;
    if (x->w->trace)
        trace_step(x);
}

static void timer_fired(struct shared *x, uint64_t timer)
{
    uint32_t who = (uint32_t)timer;
    switch ((enum timer_kind)(timer >> 32)) {
    case TIMER_WRITTEN: item_arrived(x, who); break;
    case TIMER_NEXT_READ: read_on_demand(x, who); break;
    case TIMER_BARRIER:
        x->step++;
        account_step(x);
        if (x->step < mr_sim_steps(x->w))
            start_step(x);
        break;
    }
}

/* Runs one event; false when none is left. */
static bool run_event(struct shared *x)
{
    uint32_t pool;
    double flow_s = mr_clockwork_next(&x->clock, &pool);
    double timer_s = x->timers.n ? x->timers.item[0].key : INFINITY;
    if (flow_s == INFINITY && timer_s == INFINITY)
        return false;
    x->now = fmin(flow_s, timer_s);
    if (timer_s <= flow_s)
        timer_fired(x, mr_heap_pop(&x->timers).value);
    else
        flow_ended(x, pool);
    return true;
}

/* ---- set-up ---- */

static int alloc_samples(const struct shared *x, struct shared_thread *t)
{
    t->keep = malloc(x->grain);
    t->from = malloc(x->grain);
    t->ids = t->class > 0 ? malloc(x->grain * sizeof(*t->ids)) : NULL;
    t->deadlines = t->class > 0 ? malloc(x->grain * sizeof(*t->deadlines)) : NULL;
    return t->keep && t->from && (t->class == 0 || (t->ids && t->deadlines)) ? 0 : -ENOMEM;
}

static int init_threads(struct shared *x)
{
    const struct mr_system *m = &x->s->system;
    x->threads_per_node = 0;
    for (unsigned j = 0; j < m->n_classes; j++)
        x->threads_per_node += m->classes[j].threads;
    x->n_threads = x->threads_per_node * x->s->nodes;
    x->threads = calloc(x->n_threads, sizeof(*x->threads));
    if (!x->threads)
        return -ENOMEM;
    for (uint32_t i = 0; i < x->n_threads; i++) {
        struct shared_thread *t = &x->threads[i];
        t->node = i / x->threads_per_node;
        uint32_t k = i % x->threads_per_node;
        while (k >= m->classes[t->class].threads)
            k -= m->classes[t->class ++].threads;
        if (!mr_is_expected(x) && alloc_samples(x, t))
            return -ENOMEM;
    }
    return 0;
}

static int init_pools(struct shared *x)
{
    const struct mr_system *m = &x->s->system;
    if (mr_clockwork_init(&x->clock, POOL_FIRST_NODE + x->s->nodes * (2 + MR_CLASS_MAX)))
        return -ENOMEM;
    x->clock.pools[POOL_METADATA].rate = m->pfs_metadata_per_s;
    x->clock.pools[POOL_PFS].in_turn = m->pfs_in_turn;
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        x->clock.pools[mr_pool_in(i)].rate = x->clock.pools[mr_pool_out(i)].rate = m->network_mbps;
        for (unsigned j = 0; j < m->n_classes; j++)
            x->clock.pools[mr_pool_class(i, j)].rate_by_flows = &m->classes[j].read_mbps;
    }
    return 0;
}

static int init_items(struct shared *x, uint64_t grain)
{
    x->grain = mr_is_expected(x) ? x->w->per_node : grain;
    x->epoch_len = x->w->steps_per_epoch * x->w->per_node;
    x->items_per_step = (x->w->per_node + x->grain - 1) / x->grain;
    x->items_per_epoch = x->items_per_step * x->w->steps_per_epoch;
    x->nodes = calloc(x->s->nodes, sizeof(*x->nodes));
    for (int k = 0; k < 2; k++) {
        if (!mr_is_expected(x))
            x->ids[k] = malloc(x->s->nodes * x->epoch_len * sizeof(*x->ids[k]));
        x->done_at[k] = malloc(x->s->nodes * x->items_per_epoch * sizeof(*x->done_at[k]));
        if ((!mr_is_expected(x) && !x->ids[k]) || !x->done_at[k])
            return -ENOMEM;
    }
    return x->nodes ? 0 : -ENOMEM;
}

/* As far ahead as the tiers' rings reach (mr_executor_depth). */
static int init_claims(struct shared *x)
{
    double room = x->s->system.classes[0].capacity_mb / x->s->size_mean_mb;
    x->claims_ahead = CLAIMS_LEAST;
    while ((double)x->claims_ahead < fmax(room, 2 * (double)x->w->per_node) && x->claims_ahead < CLAIMS_MOST)
        x->claims_ahead *= 2;
    x->staged = calloc(x->s->nodes, x->s->samples);
    for (int k = 0; k < 2; k++)
        x->fetches[k] = calloc(x->s->nodes, x->epoch_len);
    return x->staged && x->fetches[0] && x->fetches[1] ? 0 : -ENOMEM;
}

static int shared_init(struct shared *x, enum mr_policy_id policy, uint64_t grain)
{
    bool expected = x->w->step_mb != NULL;
    x->ops = mr_policy_get_ops(policy);
    int rc = mr_sim_world_init(&x->world, x->w, policy, expected, x->err);
    if (!rc && expected)
        rc = mr_policy_create_expected(policy, &x->world.world, &x->expected, x->err);
    if (!rc)
        rc = init_items(x, grain);
    if (!rc && (init_threads(x) || init_pools(x)))
        rc = -ENOMEM;
    if (rc || expected)
        return rc;
    x->held = malloc(x->s->nodes * x->s->samples);
    if (!x->held)
        return -ENOMEM;
    memset(x->held, MR_NOT_HELD, x->s->nodes * x->s->samples);
    return x->s->staging_serves && x->ops->prefetches ? init_claims(x) : 0;
}

static void shared_done(struct shared *x)
{
    mr_policy_free_expected(&x->expected);
    mr_sim_world_done(&x->world);
    free(x->held);
    free(x->staged);
    mr_clockwork_done(&x->clock);
    for (uint32_t i = 0; x->threads && i < x->n_threads; i++) {
        free(x->threads[i].ids);
        free(x->threads[i].deadlines);
        free(x->threads[i].keep);
        free(x->threads[i].from);
    }
    free(x->threads);
    free(x->nodes);
    mr_heap_done(&x->timers);
    for (int k = 0; k < 2; k++) {
        free(x->ids[k]);
        free(x->done_at[k]);
        free(x->fetches[k]);
    }
}

static void start_fillers(struct shared *x)
{
    for (uint32_t i = 0; i < x->n_threads; i++) {
        if (x->threads[i].class == 0)
            continue;
        x->n_fillers++;
        if (!mr_shared_fill_next(x, i))
            x->idle_fillers++;
    }
}

static int run(struct shared *x, const atomic_bool *stop)
{
    x->epoch_loaded = 0;
    start_fillers(x);
    if (x->ops->preloads) {
        while (x->idle_fillers < x->n_fillers && run_event(x)) {
        }
        x->out->preload_s = x->epoch_start = x->now;
    }
    mr_sim_trace_begin(x->w->trace, x->now);
    x->training = true;
    int rc = mr_shared_load_epoch(x, 0);
    if (rc)
        return rc;
    start_step(x);
    uint64_t steps = mr_sim_steps(x->w), seen = 0;
    while (x->step < steps && !x->out_of_memory && !x->failed) {
        if (!run_event(x) && !x->failed)
            return mr_error_set(x->err, MR_E_INTERNAL, "the simulation of '%s' is stuck in step %llu: no event is left",
                                mr_policy_name(x->out->policy), (unsigned long long)x->step);
        if (x->step != seen && stop && atomic_load(stop))
            return mr_error_set(x->err, MR_E_INTERRUPTED, "stopped in step %llu", (unsigned long long)x->step);
        seen = x->step;
    }
    mr_sim_trace_end(x->w->trace, x->now);
    return x->failed ? x->failed : x->out_of_memory ? -ENOMEM : 0;
}

/* Coarser items for longer runs: at most about 400,000 items per policy and never more than a step per item. */
uint64_t mr_sim_grain(const struct mr_sim_workload *w)
{
    uint64_t accesses = w->steps_per_epoch * w->scenario->batch * w->scenario->epochs;
    return MR_MAX((uint64_t)1, MR_MIN(w->per_node, accesses / 400000));
}

static double randomness_of(const struct shared *x)
{
    if (!x->ops->redraw || mr_is_expected(x))
        return 1;
    unsigned char *seen = calloc(x->s->samples, 1);
    if (!seen)
        return 0;
    uint64_t distinct = 0;
    const uint32_t *ids = x->ids[(x->s->epochs - 1) % 2];
    for (uint64_t k = 0; k < x->s->nodes * x->epoch_len; k++)
        distinct += !seen[ids[k]]++;
    free(seen);
    return (double)distinct / (double)x->s->samples;
}

/* One step in which every request is immediate: compute and the wait for the slowest node. Returns its end. */
static double trace_perfect_step(struct mr_sim_workload *w, uint32_t epoch, uint64_t step, double now)
{
    const struct mr_scenario *s = w->scenario;
    double end = now;
    for (int pass = 0; pass < 2; pass++) /* when the slowest node is done is known after the first */
        for (uint32_t i = 0; i < s->nodes; i++) {
            const uint32_t *ids = w->stream + step * s->batch + i * w->per_node;
            struct mr_sim_step x = {.node = i, .epoch = epoch, .step = step, .start_s = now, .ready_s = now};
            double mb = 0;
            for (uint64_t k = 0; k < w->per_node; k++) {
                mb += w->size_mb[ids[k]];
                x.bytes += mr_sim_sample_bytes(w, ids[k]);
            }
            x.compute_s = mr_sim_compute_s(s, mb);
            end = fmax(end, now + x.compute_s);
            x.end_s = end;
            if (pass == 1)
                mr_sim_trace_step(w->trace, &x);
        }
    return end;
}

static int trace_perfect(struct mr_sim_workload *w, struct mr_error *err)
{
    double now = 0;
    int rc = 0;
    mr_sim_trace_begin(w->trace, now);
    for (uint32_t e = 0; e < w->scenario->epochs && !rc; e++) {
        double begin = now;
        rc = mr_sim_load_epoch(w, e, err);
        for (uint64_t step = 0; step < w->steps_per_epoch && !rc; step++)
            if (e * w->steps_per_epoch + step < mr_sim_steps(w))
                now = trace_perfect_step(w, e, step, now);
        mr_sim_trace_epoch(w->trace, e, begin, now);
    }
    mr_sim_trace_end(w->trace, now);
    return rc;
}

int mr_sim_shared(struct mr_sim_workload *w, enum mr_policy_id policy, uint64_t grain, const atomic_bool *stop,
                  struct mr_sim_result *out, struct mr_error *err)
{
    struct mr_sim_result r = {.policy = policy, .possible = true, .randomness = 1};
    if (policy == MR_POLICY_PERFECT) {
        struct mr_sim_bounds b;
        int rc = mr_sim_bounds(w, &b, err);
        r.time_s = r.counted_s = b.compute_only_s;
        r.counted_steps = mr_sim_steps(w);
        r.consumed_mb = b.consumed_mb;
        if (!rc && w->trace && !w->step_mb)
            rc = trace_perfect(w, err);
        if (!rc)
            *out = r;
        return rc;
    }
    struct mr_error why = {0};
    struct shared x = {.w = w, .s = w->scenario, .out = &r, .err = &why};
    if (grain == 0)
        grain =
            policy == MR_POLICY_NAIVE ? 1 : mr_sim_grain(w); /* reads on demand keep step only when moved together */
    int rc = shared_init(&x, policy, grain);
    if (!rc)
        rc = run(&x, stop);
    r.time_s = x.now;
    r.randomness = rc ? 0 : randomness_of(&x);
    shared_done(&x);
    if (rc == MR_E_UNSUPPORTED) {
        r = (struct mr_sim_result){.policy = policy};
        memcpy(r.why, why.message, sizeof r.why - 1);
        rc = 0;
    } else if (rc == -ENOMEM) {
        return mr_error_set(err, rc, "simulating '%s'", mr_policy_name(policy));
    } else if (rc && err) {
        *err = why;
    }
    if (!rc)
        *out = r;
    return rc;
}
