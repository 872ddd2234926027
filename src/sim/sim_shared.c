/* The shared engine: an event-driven simulation in which the PFS, every storage class and every network link are truly
 * shared among the transfers that use them at the moment.
 *
 *   node:  staging threads p_0 ──> staging buffer ──> consumer (compute) ──barrier over all nodes──> next step
 *          filler threads p_j  ──> class j
 *
 * A thread carries one item at a time: `grain` consecutive samples of the node's stream (staging) or of a fill list. An
 * item is moved source by source, with one flow in every resource a source uses (PFS; or a peer's class, its link and
 * ours; or an own class); then the thread spends the preprocessing and write time, and the item is there. grain = 1 is
 * exact; the default grows with the run, so that the work stays bounded (mr_sim_grain); doc/simulator.md states the
 * error.
 *
 * When the tables of who holds what would not fit, an item is a node's whole step and its sources come from the
 * policy's expected behaviour (policy/expected.h) instead of the directory; everything else stays the same.
 *
 * Invariants: S1 staged, not yet consumed MB <= capacity of class 0, except that the current step may always be staged.
 * S2 items of a node start in stream order. S3 the stager is at most one epoch ahead of the consumer. */
#include "sim/sim.h"
#include "sim/fair_pool.h"
#include "sim/sim_trace.h"
#include "policy/expected.h"
#include "policy/policy.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_THREAD UINT32_MAX /* a transfer that nobody waits for */

enum timer_kind { TIMER_WRITTEN, TIMER_NEXT_READ, TIMER_BARRIER };

struct timer {
    double when;
    enum timer_kind kind;
    uint32_t who; /* thread or node */
};

struct demand { /* what is still to be moved of an item, in MB by source; one source after the other */
    double pfs, peer, class[MR_CLASS_MAX];
    double pfs_requests;
    struct mr_source peer_at;
};

struct thread {
    uint32_t node;
    uint8_t class; /* 0: staging */
    bool busy;
    uint8_t flows; /* not yet ended */
    struct demand todo;
    uint64_t item; /* staging: item number over the whole run */
    double write_s;
    uint32_t n_ids;
    uint32_t *ids;    /* fillers: what is being fetched */
    uint64_t waiters; /* fillers: staging threads of the node that wait for it, by bit */
    /* For the trace: when the item was started, and what is being moved now. */
    double started_s, part_start_s, part_mb, item_mb;
    uint8_t part; /* MR_SIM_TRACE_PFS, a class or MR_SIM_TRACE_PEER */
};

struct sim_node {
    double t;           /* compute is scheduled up to here */
    uint64_t next_item; /* to stage */
    uint64_t consumed;  /* items consumed */
    double staged_mb, step_mb;
    uint32_t pfs_flows;
    bool waiting_at_barrier;
    double busy_since; /* for the trace: computing without a gap from here to t */
};

struct shared {
    struct mr_sim_workload *w;
    const struct mr_scenario *s;
    struct mr_policy policy;
    struct mr_directory dir;
    struct mr_expected *expected; /* or NULL: the exact tables above are in use */
    struct mr_clockwork clock;
    struct sim_node *nodes;
    struct thread *threads;
    uint32_t n_threads, threads_per_node, idle_fillers, n_fillers;
    struct timer *timers;
    uint32_t n_timers, cap_timers;
    uint32_t *ids[2];      /* streams of two consecutive epochs, [node][epoch_len] */
    uint64_t epoch_loaded; /* epochs [0, epoch_loaded) have been loaded */
    float *done_at[2];     /* item completion, relative to epoch_base_s: [node][items_per_epoch]; < 0 = not yet */
    double base_s[2];
    uint64_t grain, items_per_step, items_per_epoch, epoch_len;
    uint64_t step; /* over all epochs */
    uint32_t at_barrier;
    uint32_t pfs_clients;
    double now, barrier_s;
    bool training, out_of_memory;
    int failed; /* the code in err, when an epoch could not be loaded in the middle of the run */
    struct mr_sim_result *out;
    double step_start, epoch_start;
    struct mr_error *err;
};

/* ---- pools ---- */

enum { POOL_PFS, POOL_METADATA, POOL_FIRST_NODE };

static uint32_t pool_in(uint32_t node)
{
    return POOL_FIRST_NODE + node * (2 + MR_CLASS_MAX);
}

static uint32_t pool_out(uint32_t node)
{
    return pool_in(node) + 1;
}

static uint32_t pool_class(uint32_t node, unsigned class)
{
    return pool_in(node) + 2 + class;
}

static void update_pfs_rate(struct shared *x)
{
    const struct mr_system *m = &x->s->system;
    if (x->pfs_clients == 0)
        return;
    double rate = fmin(mr_curve_at(&m->pfs_mbps, x->pfs_clients), x->pfs_clients * m->pfs_link_mbps);
    if (m->pfs_stream_mbps > 0) /* all flows are equal, so a limit for each is one for their sum */
        rate = fmin(rate, x->clock.pools[POOL_PFS].n * m->pfs_stream_mbps);
    mr_pool_set_rate(&x->clock, POOL_PFS, x->now, rate);
}

static void add_flow(struct shared *x, uint32_t pool, double mb, uint32_t thread)
{
    if (!mr_pool_add(&x->clock, pool, x->now, mb, thread))
        x->out_of_memory = true;
    if (thread != NO_THREAD)
        x->threads[thread].flows++;
}

static void add_pfs_flow(struct shared *x, uint32_t thread, double mb, double requests)
{
    struct sim_node *n = &x->nodes[x->threads[thread].node];
    if (x->s->system.pfs_metadata_per_s > 0)
        add_flow(x, POOL_METADATA, requests, thread);
    x->threads[thread].write_s += requests * x->s->system.pfs_latency_s; /* a thread's requests come one by one */
    x->clock.pools[POOL_PFS].rate = fmax(x->clock.pools[POOL_PFS].rate, 1e-9);
    add_flow(x, POOL_PFS, mb, thread);
    bool new_client = n->pfs_flows++ == 0;
    x->pfs_clients += new_client;
    if (new_client || x->s->system.pfs_stream_mbps > 0)
        update_pfs_rate(x);
}

static void end_pfs_flow(struct shared *x, uint32_t thread)
{
    struct sim_node *n = &x->nodes[x->threads[thread].node];
    bool gone = --n->pfs_flows == 0;
    x->pfs_clients -= gone;
    if (gone || x->s->system.pfs_stream_mbps > 0)
        update_pfs_rate(x);
}

/* ---- timers ---- */

static void add_timer(struct shared *x, double when, enum timer_kind kind, uint32_t who)
{
    if (x->n_timers == x->cap_timers) {
        uint32_t cap = x->cap_timers ? x->cap_timers * 2 : 64;
        struct timer *t = realloc(x->timers, cap * sizeof(*t));
        if (!t) {
            x->out_of_memory = true;
            return;
        }
        x->timers = t;
        x->cap_timers = cap;
    }
    uint32_t i = x->n_timers++;
    for (; i > 0 && x->timers[(i - 1) / 2].when > when; i = (i - 1) / 2)
        x->timers[i] = x->timers[(i - 1) / 2];
    x->timers[i] = (struct timer){when, kind, who};
}

static struct timer pop_timer(struct shared *x)
{
    struct timer top = x->timers[0], last = x->timers[--x->n_timers];
    uint32_t i = 0;
    for (uint32_t k; (k = 2 * i + 1) < x->n_timers; i = k) {
        if (k + 1 < x->n_timers && x->timers[k + 1].when < x->timers[k].when)
            k++;
        if (x->timers[k].when >= last.when)
            break;
        x->timers[i] = x->timers[k];
    }
    if (x->n_timers)
        x->timers[i] = last;
    return top;
}

/* ---- streams ---- */

static int load_ids(struct shared *x, uint64_t epoch)
{
    int rc = mr_sim_load_epoch(x->w, (uint32_t)epoch, x->err);
    uint32_t *into = x->ids[epoch % 2];
    for (uint64_t step = 0; step < x->w->steps_per_epoch && !rc; step++)
        for (uint32_t i = 0; i < x->s->nodes; i++)
            memcpy(into + i * x->epoch_len + step * x->w->per_node,
                   x->w->stream + step * x->s->batch + i * x->w->per_node, x->w->per_node * sizeof(*into));
    if (!rc && x->policy.ops->redraw)
        for (uint32_t i = 0; i < x->s->nodes; i++)
            x->policy.ops->redraw(&x->policy, (uint32_t)epoch, i, into + i * x->epoch_len, x->epoch_len, x->s->seed);
    return rc;
}

static int load_epoch(struct shared *x, uint64_t epoch)
{
    int rc = x->expected ? 0 : load_ids(x, epoch);
    x->base_s[epoch % 2] = x->now;
    for (uint64_t k = 0; k < x->s->nodes * x->items_per_epoch; k++)
        x->done_at[epoch % 2][k] = -1;
    x->epoch_loaded = epoch + 1;
    return rc;
}

/* For policies: a node's accesses of an epoch, before any redrawing. */
static int policy_stream(void *user, uint32_t epoch, uint32_t node, uint32_t *out, struct mr_error *err)
{
    struct shared *x = user;
    if (x->epoch_loaded != epoch + 1u || x->training) {
        int rc = mr_sim_load_epoch(x->w, epoch, err);
        if (rc)
            return rc;
        x->epoch_loaded = epoch + 1u;
    }
    for (uint64_t step = 0; step < x->w->steps_per_epoch; step++)
        memcpy(out + step * x->w->per_node, x->w->stream + step * x->s->batch + node * x->w->per_node,
               x->w->per_node * sizeof(*out));
    return 0;
}

struct item_ids {
    const uint32_t *ids;
    uint64_t n, access; /* access number of the first one, over all epochs */
};

static struct item_ids item_ids(const struct shared *x, uint32_t node, uint64_t item)
{
    uint64_t epoch = item / x->items_per_epoch, in_epoch = item % x->items_per_epoch;
    uint64_t step = in_epoch / x->items_per_step, first = in_epoch % x->items_per_step * x->grain;
    uint64_t at = step * x->w->per_node + first;
    return (struct item_ids){x->ids[epoch % 2] + node * x->epoch_len + at, MR_MIN(x->grain, x->w->per_node - first),
                             epoch * x->epoch_len + at};
}

static double item_mb(const struct shared *x, uint32_t node, uint64_t item)
{
    if (x->expected)
        return x->w->step_mb[item * x->s->nodes + node];
    struct item_ids it = item_ids(x, node, item);
    double mb = 0;
    for (uint64_t k = 0; k < it.n; k++)
        mb += x->w->size_mb[it.ids[k]];
    return mb;
}

/* ---- starting items ---- */

static double staging_write_s(const struct shared *x, double mb)
{
    const struct mr_system *m = &x->s->system;
    return fmax(mb / m->preprocess_mbps, mb * m->classes[0].threads / mr_class_write_mbps(&m->classes[0]));
}

static void add_demand(struct demand *d, struct mr_source src, double mb)
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

/* Makes a staging thread wait for the thread of its node that is fetching `id`. If that one has just finished its flows
 * the wait lasts until its write is over, too. */
static void wait_for(struct shared *x, uint32_t thread, uint32_t id)
{
    uint32_t first = x->threads[thread].node * x->threads_per_node;
    for (uint32_t k = 0; k < x->threads_per_node; k++) {
        struct thread *t = &x->threads[first + k];
        if (!t->busy || first + k == thread || (t->waiters >> (thread - first) & 1))
            continue;
        const uint32_t *ids = t->ids;
        uint64_t n = t->n_ids;
        if (t->class == 0) {
            struct item_ids it = item_ids(x, t->node, t->item);
            ids = it.ids;
            n = it.n;
        }
        for (uint64_t i = 0; i < n; i++)
            if (ids[i] == id) {
                t->waiters |= (uint64_t)1 << (thread - first);
                x->threads[thread].flows++;
                return;
            }
    }
}

static uint32_t lane(const struct shared *x, uint32_t thread)
{
    return MR_SIM_LANE_THREADS + thread % x->threads_per_node;
}

static void begin_part(struct shared *x, struct thread *t, unsigned part, double mb)
{
    t->part = (uint8_t)part;
    t->part_mb = mb;
    t->part_start_s = x->now;
}

static void end_part(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    if (t->part_mb > 0)
        mr_sim_trace_read(x->w->trace, t->node, lane(x, thread), t->part, t->part_start_s, x->now, t->part_mb);
    t->part_mb = 0;
}

/* Starts the next part of an item, or its write when everything has been moved. */
static void advance_item(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    struct demand *d = &t->todo;
    end_part(x, thread);
    if (d->pfs > 0) {
        begin_part(x, t, MR_SIM_TRACE_PFS, d->pfs);
        add_pfs_flow(x, thread, d->pfs, d->pfs_requests);
        x->out->pfs_mb += d->pfs;
        d->pfs = 0;
        return;
    }
    if (d->peer > 0) {
        begin_part(x, t, MR_SIM_TRACE_PEER, d->peer);
        add_flow(x, pool_class(d->peer_at.node, d->peer_at.class), d->peer, thread);
        add_flow(x, pool_out(d->peer_at.node), d->peer, thread);
        add_flow(x, pool_in(t->node), d->peer, thread);
        x->out->peer_mb += d->peer;
        d->peer = 0;
        return;
    }
    for (unsigned j = 1; j < x->s->system.n_classes; j++)
        if (d->class[j] > 0) {
            begin_part(x, t, j, d->class[j]);
            add_flow(x, pool_class(t->node, j), d->class[j], thread);
            x->out->class_mb[j] += d->class[j];
            d->class[j] = 0;
            return;
        }
    add_timer(x, x->now + t->write_s, TIMER_WRITTEN, thread);
}

static void launch(struct shared *x, uint32_t thread, const struct demand *d)
{
    x->threads[thread].busy = true;
    x->threads[thread].started_s = x->now;
    x->threads[thread].todo = *d;
    if (x->threads[thread].flows == 0) /* else it waits for another thread first */
        advance_item(x, thread);
}

static void release_waiters(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    uint32_t first = t->node * x->threads_per_node;
    for (uint64_t left = t->waiters; left; left &= left - 1) {
        uint32_t waiter = first + (uint32_t)__builtin_ctzll(left);
        if (--x->threads[waiter].flows == 0)
            advance_item(x, waiter);
    }
    t->waiters = 0;
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
static void find_sources(struct shared *x, uint32_t thread, uint64_t item, struct demand *d)
{
    uint32_t node = x->threads[thread].node;
    struct item_ids it = item_ids(x, node, item);
    for (uint64_t k = 0; k < it.n; k++) {
        uint32_t id = it.ids[k];
        struct mr_source src = mr_policy_source(&x->policy, node, id);
        add_demand(d, src, x->w->size_mb[id]);
        if (src.kind == MR_FROM_INCOMING)
            wait_for(x, thread, id);
        else if (src.kind == MR_FROM_PFS && x->policy.ops->will_keep && x->policy.ops->will_keep(&x->policy, node, id))
            mr_directory_announce(&x->dir, node, id);
    }
}

/* The same for a whole step by the policy's expected shares; the peer is drawn evenly. */
static void find_expected_sources(struct shared *x, uint32_t node, uint64_t item, double mb, struct demand *d)
{
    struct mr_expected_split split;
    uint64_t random = mr_rng_at(x->s->seed, MR_RNG_ORDER, item * x->s->nodes + node);
    double position = (double)item / (double)x->items_per_epoch;
    mr_expected_stage(x->expected, node, position, mr_rng_unit(random), &split);
    uint32_t peer = x->s->nodes > 1 ? (node + 1 + (uint32_t)(random % (x->s->nodes - 1))) % x->s->nodes : node;
    *d = (struct demand){.pfs = mb * split.pfs,
                         .pfs_requests = (double)x->w->per_node * split.pfs,
                         .peer = mb * split.peer,
                         .peer_at = {MR_FROM_PEER, peer, split.peer_class}};
    for (unsigned j = 1; j < x->s->system.n_classes; j++)
        d->class[j] = mb * split.class[j];
}

/* Starts the next item of a node on a free staging thread; false when there is nothing to start. */
static bool stage_next(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    struct sim_node *n = &x->nodes[t->node];
    uint64_t epoch = n->next_item / x->items_per_epoch;
    if (epoch >= x->s->epochs || epoch > x->step / x->w->steps_per_epoch + 1)
        return false;
    if (epoch >= x->epoch_loaded && (x->failed = load_epoch(x, epoch)))
        return false;
    double mb = item_mb(x, t->node, n->next_item);
    if (!may_stage(x, t->node, mb))
        return false;
    struct demand d = {0};
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
    launch(x, thread, &d);
    return true;
}

static void stage_all(struct shared *x, uint32_t node)
{
    if (!x->policy.ops->prefetches)
        return;
    uint32_t first = node * x->threads_per_node;
    for (uint32_t k = 0; k < x->s->system.classes[0].threads; k++)
        if (!x->threads[first + k].busy && !stage_next(x, first + k))
            return;
}

/* The next samples of a fill list; returns their MB, 0 when there are none. */
static double next_fill(struct shared *x, struct thread *t, struct demand *d)
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

static double next_expected_fill(struct shared *x, const struct thread *t, struct demand *d)
{
    double step_mb = x->w->total_mb / (double)x->s->samples * (double)x->w->per_node;
    double position = (double)x->nodes[t->node].next_item / (double)x->items_per_epoch;
    d->pfs = mr_expected_fill(x->expected, t->node, t->class, position, step_mb);
    d->pfs_requests = d->pfs / step_mb * (double)x->w->per_node;
    return d->pfs;
}

static bool fill_next(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    struct demand d = {0};
    double mb = x->expected ? next_expected_fill(x, t, &d) : next_fill(x, t, &d);
    if (!(mb > 0))
        return false;
    const struct mr_storage_class *k = &x->s->system.classes[t->class];
    t->write_s = mb * k->threads / mr_class_write_mbps(k);
    t->item_mb = mb;
    launch(x, thread, &d);
    return true;
}

/* ---- consuming ---- */

static void finish_step(struct shared *x, uint32_t node)
{
    struct sim_node *n = &x->nodes[node];
    n->waiting_at_barrier = true;
    x->barrier_s = fmax(x->barrier_s, n->t);
    if (++x->at_barrier == x->s->nodes)
        add_timer(x, x->barrier_s, TIMER_BARRIER, 0);
}

static float *item_done(struct shared *x, uint32_t node, uint64_t item)
{
    return &x->done_at[item / x->items_per_epoch % 2][node * x->items_per_epoch + item % x->items_per_epoch];
}

static void trace_compute(struct shared *x, uint32_t node)
{
    const struct sim_node *n = &x->nodes[node];
    if (n->t > n->busy_since)
        mr_sim_trace_span(x->w->trace, MR_SPAN_COMPUTE, node, MR_SIM_LANE_TRAIN, n->busy_since, n->t);
}

/* Computes as far as items of the current step are there. */
static void consume(struct shared *x, uint32_t node)
{
    struct sim_node *n = &x->nodes[node];
    uint64_t end = (x->step + 1) * x->items_per_step;
    while (n->consumed < end) {
        float done = *item_done(x, node, n->consumed);
        if (done < 0)
            return;
        double mb = item_mb(x, node, n->consumed);
        double at = x->base_s[n->consumed / x->items_per_epoch % 2] + (double)done;
        if (at > n->t) {
            trace_compute(x, node);
            mr_sim_trace_span(x->w->trace, MR_SPAN_WAIT, node, MR_SIM_LANE_TRAIN, n->t, at);
            n->busy_since = n->t = at;
        }
        n->t += x->s->step_s > 0 ? x->s->step_s / (double)x->items_per_step : mb / x->s->system.compute_mbps;
        n->step_mb += mb;
        x->out->consumed_mb += mb;
        n->consumed++;
    }
    if (!n->waiting_at_barrier) {
        trace_compute(x, node);
        finish_step(x, node);
    }
}

/* naive: the consumer reads by itself, one item after the other. */
static void read_on_demand(struct shared *x, uint32_t node)
{
    if (x->nodes[node].next_item < (x->step + 1) * x->items_per_step)
        stage_next(x, node * x->threads_per_node);
}

static void start_step(struct shared *x)
{
    x->step_start = x->now;
    x->at_barrier = 0;
    x->barrier_s = 0;
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        struct sim_node *n = &x->nodes[i];
        n->waiting_at_barrier = false;
        n->t = n->busy_since = x->now;
        n->staged_mb -= n->step_mb;
        n->step_mb = 0;
    }
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        stage_all(x, i);
        if (x->policy.ops->prefetches)
            consume(x, i);
        else
            read_on_demand(x, i);
    }
}

/* ---- events ---- */

static void item_arrived(struct shared *x, uint32_t thread)
{
    struct thread *t = &x->threads[thread];
    t->busy = false;
    mr_sim_trace_span(x->w->trace, t->class > 0 ? MR_SPAN_FILL : MR_SPAN_STAGE, t->node, lane(x, thread), t->started_s,
                      x->now);
    if (t->class > 0) {
        mr_sim_trace_write(x->w->trace, t->node, lane(x, thread), t->class, x->now - t->write_s, x->now, t->item_mb);
        for (uint32_t k = 0; k < t->n_ids && !x->expected; k++)
            if (x->dir.held[t->node * x->dir.samples + t->ids[k]] >= MR_INCOMING)
                mr_directory_put(&x->dir, t->node, t->ids[k], t->class);
        release_waiters(x, thread);
        if (!fill_next(x, thread))
            x->idle_fillers++;
        return;
    }
    if (x->policy.ops->keep && !x->expected) {
        struct item_ids it = item_ids(x, t->node, t->item);
        for (uint64_t k = 0; k < it.n; k++)
            x->policy.ops->keep(&x->policy, t->node, it.ids[k], it.access + k);
    }
    release_waiters(x, thread);
    *item_done(x, t->node, t->item) = (float)(x->now - x->base_s[t->item / x->items_per_epoch % 2]);
    if (!x->policy.ops->prefetches) {
        consume(x, t->node);
        if (!x->nodes[t->node].waiting_at_barrier)
            add_timer(x, x->nodes[t->node].t, TIMER_NEXT_READ, t->node);
        return;
    }
    consume(x, t->node);
    stage_all(x, t->node);
}

static void flow_ended(struct shared *x, uint32_t pool)
{
    uint32_t thread = mr_pool_end_first(&x->clock, pool);
    if (thread == NO_THREAD)
        return;
    if (pool == POOL_PFS)
        end_pfs_flow(x, thread);
    if (--x->threads[thread].flows == 0)
        advance_item(x, thread);
}

/* The step that has just ended: the nodes' waiting for each other, and what it took beyond the compute of its slowest
 * node. */
static void trace_step(struct shared *x)
{
    double compute_s = 0;
    uint32_t epoch = (uint32_t)((x->step - 1) / x->w->steps_per_epoch);
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        const struct sim_node *n = &x->nodes[i];
        compute_s = fmax(compute_s, mr_sim_compute_s(x->s, n->step_mb));
        if (n->t < x->now)
            mr_sim_trace_span(x->w->trace, MR_SPAN_BARRIER, i, MR_SIM_LANE_TRAIN, n->t, x->now);
    }
    mr_sim_trace_step(x->w->trace, x->step - 1, epoch, x->step_start, x->now, x->now - x->step_start - compute_s);
    if (x->step % x->w->steps_per_epoch == 0) {
        mr_sim_trace_epoch(x->w->trace, epoch, x->epoch_start, x->now);
        x->epoch_start = x->now;
    }
}

static void account_step(struct shared *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < x->s->nodes; i++)
        sum += x->nodes[i].t - x->step_start;
    double mean = sum / x->s->nodes, steps = (double)(x->w->steps_per_epoch * x->s->epochs);
    if (mean > 0)
        x->out->imbalance += fmax(0, x->now - x->step_start - mean) / mean / steps;
    if (x->step == x->w->steps_per_epoch)
        x->out->first_epoch_s = x->now;
    if (x->w->trace)
        trace_step(x);
}

static void timer_fired(struct shared *x, struct timer t)
{
    switch (t.kind) {
    case TIMER_WRITTEN: item_arrived(x, t.who); break;
    case TIMER_NEXT_READ: read_on_demand(x, t.who); break;
    case TIMER_BARRIER:
        x->step++;
        account_step(x);
        if (x->step < x->w->steps_per_epoch * x->s->epochs)
            start_step(x);
        break;
    }
}

/* Runs one event; false when none is left. */
static bool run_event(struct shared *x)
{
    uint32_t pool;
    double flow_s = mr_clockwork_next(&x->clock, &pool);
    double timer_s = x->n_timers ? x->timers[0].when : INFINITY;
    if (flow_s == INFINITY && timer_s == INFINITY)
        return false;
    x->now = fmin(flow_s, timer_s);
    if (timer_s <= flow_s)
        timer_fired(x, pop_timer(x));
    else
        flow_ended(x, pool);
    return true;
}

/* ---- set-up ---- */

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
        struct thread *t = &x->threads[i];
        t->node = i / x->threads_per_node;
        uint32_t k = i % x->threads_per_node;
        while (k >= m->classes[t->class].threads)
            k -= m->classes[t->class ++].threads;
        if (t->class > 0 && !x->expected && !(t->ids = malloc(x->grain * sizeof(*t->ids))))
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
    for (uint32_t i = 0; i < x->s->nodes; i++) {
        x->clock.pools[pool_in(i)].rate = x->clock.pools[pool_out(i)].rate = m->network_mbps;
        for (unsigned j = 0; j < m->n_classes; j++)
            x->clock.pools[pool_class(i, j)].rate_by_flows = &m->classes[j].read_mbps;
    }
    return 0;
}

/* For policies: a sample goes from one node to another without anybody asking for it. It uses both links. */
static void policy_moved(void *user, uint32_t from, uint32_t to, uint32_t id)
{
    struct shared *x = user;
    if (from == to)
        return;
    add_flow(x, pool_out(from), x->w->size_mb[id], NO_THREAD);
    add_flow(x, pool_in(to), x->w->size_mb[id], NO_THREAD);
    x->out->peer_mb += x->w->size_mb[id];
    /* Nobody waits for it, so its end is not followed: the trace has the time without other traffic. */
    mr_sim_trace_read(x->w->trace, to, MR_SIM_LANE_MOVED, MR_SIM_TRACE_PEER, x->now,
                      x->now + x->w->size_mb[id] / x->s->system.network_mbps, x->w->size_mb[id]);
}

static int init_items(struct shared *x, uint64_t grain)
{
    x->grain = x->expected ? x->w->per_node : grain;
    x->epoch_len = x->w->steps_per_epoch * x->w->per_node;
    x->items_per_step = (x->w->per_node + x->grain - 1) / x->grain;
    x->items_per_epoch = x->items_per_step * x->w->steps_per_epoch;
    x->nodes = calloc(x->s->nodes, sizeof(*x->nodes));
    for (int k = 0; k < 2; k++) {
        if (!x->expected)
            x->ids[k] = malloc(x->s->nodes * x->epoch_len * sizeof(*x->ids[k]));
        x->done_at[k] = malloc(x->s->nodes * x->items_per_epoch * sizeof(*x->done_at[k]));
        if ((!x->expected && !x->ids[k]) || !x->done_at[k])
            return -ENOMEM;
    }
    return x->nodes ? 0 : -ENOMEM;
}

static int shared_init(struct shared *x, enum mr_policy_id policy, uint64_t grain)
{
    struct mr_policy_world world = {.system = &x->s->system,
                                    .nodes = x->s->nodes,
                                    .epochs = x->s->epochs,
                                    .samples = x->s->samples,
                                    .steps_per_epoch = x->w->steps_per_epoch,
                                    .per_node = x->w->per_node,
                                    .size_mb = x->w->size_mb,
                                    .total_mb = x->w->total_mb,
                                    .dir = &x->dir,
                                    .stream = policy_stream,
                                    .moved = policy_moved,
                                    .user = x};
    int rc = 0;
    if (x->w->step_mb) {
        x->policy.ops = mr_policy_get_ops(policy);
        rc = mr_expected_create(policy, &world, &x->expected, x->err);
    }
    if (!rc)
        rc = init_items(x, grain);
    if (!rc && (init_threads(x) || init_pools(x)))
        rc = -ENOMEM;
    if (rc || x->expected)
        return rc;
    rc = mr_directory_init(&x->dir, x->s->nodes, x->s->samples, x->w->size_mb, x->err);
    return rc ? rc : mr_policy_create(policy, &world, &x->policy, x->err);
}

static void shared_done(struct shared *x)
{
    if (!x->expected)
        mr_policy_free(&x->policy);
    mr_expected_free(x->expected);
    mr_directory_done(&x->dir);
    mr_clockwork_done(&x->clock);
    for (uint32_t i = 0; x->threads && i < x->n_threads; i++)
        free(x->threads[i].ids);
    free(x->threads);
    free(x->nodes);
    free(x->timers);
    for (int k = 0; k < 2; k++) {
        free(x->ids[k]);
        free(x->done_at[k]);
    }
}

static void start_fillers(struct shared *x)
{
    for (uint32_t i = 0; i < x->n_threads; i++) {
        if (x->threads[i].class == 0)
            continue;
        x->n_fillers++;
        if (!x->policy.ops->next_fill || !fill_next(x, i))
            x->idle_fillers++;
    }
}

static int run(struct shared *x, const atomic_bool *stop)
{
    x->epoch_loaded = 0;
    start_fillers(x);
    if (x->policy.ops->preloads) {
        while (x->idle_fillers < x->n_fillers && run_event(x)) {
        }
        x->out->preload_s = x->epoch_start = x->now;
        mr_sim_trace_preload(x->w->trace, x->now);
    }
    x->training = true;
    int rc = load_epoch(x, 0);
    if (rc)
        return rc;
    start_step(x);
    uint64_t steps = x->w->steps_per_epoch * x->s->epochs, seen = 0;
    while (x->step < steps && !x->out_of_memory && !x->failed) {
        if (!run_event(x) && !x->failed)
            return mr_error_set(x->err, MR_E_INTERNAL, "the simulation of '%s' stands still in step %llu",
                                mr_policy_name(x->out->policy), (unsigned long long)x->step);
        if (x->step != seen && stop && atomic_load(stop))
            return mr_error_set(x->err, MR_E_INTERRUPTED, "stopped in step %llu", (unsigned long long)x->step);
        seen = x->step;
    }
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
    if (!x->policy.ops->redraw)
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

/* Every request is immediate: compute and barriers are all there is. */
static int trace_perfect(struct mr_sim_workload *w, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    double now = 0;
    int rc = 0;
    for (uint32_t e = 0; e < s->epochs && !rc; e++) {
        double begin = now;
        rc = mr_sim_load_epoch(w, e, err);
        for (uint64_t step = 0; step < w->steps_per_epoch && !rc; step++) {
            double end[2] = {now, now}; /* of a node, of the slowest */
            for (int pass = 0; pass < 2; pass++)
                for (uint32_t i = 0; i < s->nodes; i++) {
                    const uint32_t *ids = w->stream + step * s->batch + i * w->per_node;
                    double mb = 0;
                    for (uint64_t k = 0; k < w->per_node; k++)
                        mb += w->size_mb[ids[k]];
                    end[0] = now + mr_sim_compute_s(s, mb);
                    end[1] = fmax(end[1], end[0]);
                    if (pass == 0)
                        mr_sim_trace_span(w->trace, MR_SPAN_COMPUTE, i, MR_SIM_LANE_TRAIN, now, end[0]);
                    else if (end[1] > end[0])
                        mr_sim_trace_span(w->trace, MR_SPAN_BARRIER, i, MR_SIM_LANE_TRAIN, end[0], end[1]);
                }
            mr_sim_trace_step(w->trace, e * w->steps_per_epoch + step, e, now, end[1], 0);
            now = end[1];
        }
        mr_sim_trace_epoch(w->trace, e, begin, now);
    }
    return rc;
}

int mr_sim_shared(struct mr_sim_workload *w, enum mr_policy_id policy, uint64_t grain, const atomic_bool *stop,
                  struct mr_sim_result *out, struct mr_error *err)
{
    struct mr_sim_result r = {.policy = policy, .possible = true, .randomness = 1};
    if (policy == MR_POLICY_PERFECT) {
        struct mr_sim_bounds b;
        int rc = mr_sim_bounds(w, &b, err);
        r.time_s = b.compute_only_s;
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
