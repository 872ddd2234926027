/* Moving an item in the shared engine: flows in the pools that it uses, part by part, then the time of its write. */
#include "sim/sim_shared_internal.h"

#include <assert.h>
#include <math.h>

static void update_pfs_rate(struct shared *x)
{
    const struct mr_system *m = &x->s->system;
    if (x->pfs_clients == 0)
        return;
    double rate = fmin(mr_curve_at(&m->pfs_mbps, x->pfs_clients), x->pfs_clients * m->pfs_link_mbps);
    if (m->pfs_stream_mbps > 0) /* all flows are equal, so a limit for each is one for their sum */
        rate = fmin(rate, (double)x->clock.pools[POOL_PFS].flows.n * m->pfs_stream_mbps);
    mr_pool_set_rate(&x->clock, POOL_PFS, x->now, rate);
}

void mr_shared_add_flow(struct shared *x, uint32_t pool, double mb, uint32_t thread)
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
        mr_shared_add_flow(x, POOL_METADATA, requests, thread);
    double latency_s = requests * x->s->system.pfs_latency_s; /* a thread's requests come one by one */
    x->threads[thread].latency_s += latency_s;
    x->threads[thread].write_s += latency_s;
    x->clock.pools[POOL_PFS].rate = fmax(x->clock.pools[POOL_PFS].rate, 1e-9);
    mr_shared_add_flow(x, POOL_PFS, mb, thread);
    bool new_client = n->pfs_flows++ == 0;
    x->pfs_clients += new_client;
    if (new_client || x->s->system.pfs_stream_mbps > 0)
        update_pfs_rate(x);
}

void mr_shared_end_pfs_flow(struct shared *x, uint32_t thread)
{
    struct sim_node *n = &x->nodes[x->threads[thread].node];
    assert(n->pfs_flows > 0 && x->pfs_clients > 0);
    bool gone = --n->pfs_flows == 0;
    x->pfs_clients -= gone;
    if (gone || x->s->system.pfs_stream_mbps > 0)
        update_pfs_rate(x);
}

void mr_shared_add_timer(struct shared *x, double when, enum timer_kind kind, uint32_t who)
{
    if (mr_heap_push(&x->timers, when, (uint64_t)kind << 32 | who))
        x->out_of_memory = true;
}

void mr_shared_wait_for(struct shared *x, uint32_t thread, uint32_t id)
{
    uint32_t first = x->threads[thread].node * x->threads_per_node;
    for (uint32_t k = 0; k < x->threads_per_node; k++) {
        struct shared_thread *t = &x->threads[first + k];
        if (!t->busy || first + k == thread || (t->waiters >> (thread - first) & 1))
            continue;
        const uint32_t *ids = t->ids;
        uint64_t n = t->n_ids;
        if (t->class == 0) {
            struct item_ids it = mr_shared_item_ids(x, t->node, t->item);
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

struct mr_sim_part mr_shared_part(const struct shared *x, uint32_t thread, double start_s, double end_s)
{
    const struct shared_thread *t = &x->threads[thread];
    struct mr_sim_part p = {.node = t->node,
                            .thread = thread % x->threads_per_node,
                            .start_s = start_s,
                            .end_s = end_s,
                            .sample = UINT64_MAX};
    if (t->class > 0) {
        p.epoch = p.batch = UINT64_MAX;
        p.sample = t->n_ids == 1 ? t->ids[0] : UINT64_MAX;
        return p;
    }
    struct item_ids it = mr_shared_item_ids(x, t->node, t->item);
    p.epoch = t->item / x->items_per_epoch;
    p.batch = t->item % x->items_per_epoch / x->items_per_step;
    p.sample = it.n == 1 ? it.ids[0] : UINT64_MAX;
    return p;
}

/* The first part of an item begins with the item: it may have waited for another thread. */
static void begin_part(struct shared *x, struct shared_thread *t, unsigned part)
{
    t->part = (uint8_t)part;
    if (t->moving)
        t->part_start_s = x->now;
    t->moving = true;
}

static bool is_moved(const struct shared_demand *d)
{
    double left = d->pfs + d->peer;
    for (unsigned j = 0; j < MR_CLASS_MAX; j++)
        left += d->class[j];
    return !(left > 0);
}

/* The requests' own time comes behind the bytes, in front of the write. */
static void end_part(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    if (!t->moving || !x->w->trace)
        return;
    double latency_s = t->part == MR_SIM_FROM_PFS && is_moved(&t->todo) ? t->latency_s : 0;
    struct mr_sim_part p = mr_shared_part(x, thread, t->part_start_s, x->now + latency_s);
    p.source = t->part;
    p.peer = t->todo.peer_node;
    p.samples = t->todo.whole[t->part].samples;
    p.bytes = t->todo.whole[t->part].bytes;
    if (t->class > 0)
        mr_sim_trace_fill(x->w->trace, &p, t->class);
    else
        mr_sim_trace_fetch(x->w->trace, &p);
}

/* Where the bytes of a thread's item are told: its epoch, or for a fill the one that is trained now. */
static struct mr_sim_epoch *epoch_of(struct shared *x, const struct shared_thread *t)
{
    uint64_t e = t->class == 0 ? t->item / x->items_per_epoch : x->step / x->w->steps_per_epoch;
    return &x->out->epochs[e < MR_SIM_EPOCHS_TOLD ? e : MR_SIM_EPOCHS_TOLD - 1];
}

void mr_shared_advance_item(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    struct shared_demand *d = &t->todo;
    assert(t->busy && t->flows == 0);
    end_part(x, thread);
    if (d->pfs > 0) {
        begin_part(x, t, MR_SIM_FROM_PFS);
        add_pfs_flow(x, thread, d->pfs, d->pfs_requests);
        x->out->pfs_mb += d->pfs;
        epoch_of(x, t)->pfs_mb += d->pfs;
        d->pfs = 0;
        return;
    }
    if (d->peer > 0) {
        begin_part(x, t, MR_SIM_FROM_PEER);
        mr_shared_add_flow(x, mr_pool_class(d->peer_node, d->peer_class), d->peer, thread);
        mr_shared_add_flow(x, mr_pool_out(d->peer_node), d->peer, thread);
        mr_shared_add_flow(x, mr_pool_in(t->node), d->peer, thread);
        x->out->peer_mb += d->peer;
        epoch_of(x, t)->peer_mb += d->peer;
        d->peer = 0;
        return;
    }
    for (unsigned j = 1; j < x->s->system.n_classes; j++)
        if (d->class[j] > 0) {
            begin_part(x, t, j);
            mr_shared_add_flow(x, mr_pool_class(t->node, j), d->class[j], thread);
            x->out->class_mb[j] += d->class[j];
            epoch_of(x, t)->own_mb += d->class[j];
            d->class[j] = 0;
            return;
        }
    mr_shared_add_timer(x, x->now + t->write_s, TIMER_WRITTEN, thread);
}

void mr_shared_launch(struct shared *x, uint32_t thread, const struct shared_demand *d)
{
    assert(thread < x->n_threads && !x->threads[thread].busy);
    x->threads[thread].busy = true;
    x->threads[thread].moving = false;
    x->threads[thread].part_start_s = x->now;
    x->threads[thread].latency_s = 0;
    x->threads[thread].todo = *d;
    if (x->threads[thread].flows == 0) /* else it waits for another thread first */
        mr_shared_advance_item(x, thread);
}

void mr_shared_release_waiters(struct shared *x, uint32_t thread)
{
    struct shared_thread *t = &x->threads[thread];
    uint32_t first = t->node * x->threads_per_node;
    for (uint64_t left = t->waiters; left; left &= left - 1) {
        uint32_t waiter = first + (uint32_t)__builtin_ctzll(left);
        assert(x->threads[waiter].flows > 0 && x->threads[waiter].class == 0);
        if (--x->threads[waiter].flows == 0)
            mr_shared_advance_item(x, waiter);
    }
    t->waiters = 0;
}
