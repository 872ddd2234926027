/* Fair pools: see fair_pool.h. The clockwork is an indexed heap, which base/heap.h is not: a pool moves in it when its
 * next event does, so it knows its place.
 *
 * Invariants
 *  1. For every pool, next_s = seen_s + (end of the top flow - virtual_time) * sharers / rate; INFINITY without flows.
 *  2. heap[pools[i].at] == i, and no pool has an earlier next_s than its parent. */
#include "sim/fair_pool.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

int mr_clockwork_init(struct mr_clockwork *c, uint32_t pools)
{
    c->n = pools;
    c->pools = calloc(pools, sizeof(*c->pools));
    c->heap = malloc(pools * sizeof(*c->heap));
    if (!c->pools || !c->heap)
        return -ENOMEM;
    for (uint32_t i = 0; i < pools; i++) {
        c->pools[i].next_s = INFINITY;
        c->pools[i].at = i;
        c->heap[i] = i;
    }
    return 0;
}

void mr_clockwork_done(struct mr_clockwork *c)
{
    for (uint32_t i = 0; c->pools && i < c->n; i++)
        mr_heap_done(&c->pools[i].flows);
    free(c->pools);
    free(c->heap);
    c->pools = NULL;
    c->heap = NULL;
}

static void place(struct mr_clockwork *c, uint32_t at, uint32_t pool)
{
    assert(at < c->n && pool < c->n); /* invariant 2 */
    c->heap[at] = pool;
    c->pools[pool].at = at;
}

/* Restores the order of the clockwork after next_s of a pool changed. */
static void reorder(struct mr_clockwork *c, uint32_t pool)
{
    double key = c->pools[pool].next_s;
    uint32_t i = c->pools[pool].at;
    for (; i > 0 && c->pools[c->heap[(i - 1) / 2]].next_s > key; i = (i - 1) / 2)
        place(c, i, c->heap[(i - 1) / 2]);
    for (uint32_t k; (k = 2 * i + 1) < c->n; i = k) {
        if (k + 1 < c->n && c->pools[c->heap[k + 1]].next_s < c->pools[c->heap[k]].next_s)
            k++;
        if (c->pools[c->heap[k]].next_s >= key)
            break;
        place(c, i, c->heap[k]);
    }
    place(c, i, pool);
    assert(i == 0 || c->pools[c->heap[(i - 1) / 2]].next_s <= key); /* invariant 2 */
}

/* Among how many the rate is shared now. */
static double sharers(const struct mr_pool *p)
{
    return p->in_turn ? 1 : (double)p->flows.n;
}

static void advance(struct mr_pool *p, double now_s)
{
    if (p->flows.n && now_s > p->seen_s)
        p->virtual_time += (now_s - p->seen_s) * p->rate / sharers(p);
    p->seen_s = now_s;
}

static void reschedule(struct mr_clockwork *c, uint32_t pool)
{
    struct mr_pool *p = &c->pools[pool];
    if (p->rate_by_flows && p->flows.n)
        p->rate = mr_curve_at(p->rate_by_flows, (double)p->flows.n);
    if (p->flows.n == 0)
        p->next_s = INFINITY;
    else
        p->next_s = p->seen_s + fmax(0, p->flows.item[0].key - p->virtual_time) * sharers(p) / p->rate;
    assert(p->next_s >= p->seen_s); /* invariant 1 */
    reorder(c, pool);
}

bool mr_pool_add(struct mr_clockwork *c, uint32_t pool, double now_s, double mb, uint32_t transfer)
{
    struct mr_pool *p = &c->pools[pool];
    assert(mb >= 0);
    advance(p, now_s);
    double end = (p->in_turn ? fmax(p->virtual_time, p->last_end) : p->virtual_time) + mb;
    if (mr_heap_push(&p->flows, end, transfer))
        return false;
    p->last_end = end;
    reschedule(c, pool);
    return true;
}

void mr_pool_set_rate(struct mr_clockwork *c, uint32_t pool, double now_s, double rate)
{
    advance(&c->pools[pool], now_s);
    c->pools[pool].rate = rate;
    reschedule(c, pool);
}

double mr_clockwork_next(const struct mr_clockwork *c, uint32_t *pool)
{
    *pool = c->heap[0];
    return c->pools[c->heap[0]].next_s;
}

uint32_t mr_pool_end_first(struct mr_clockwork *c, uint32_t pool)
{
    struct mr_pool *p = &c->pools[pool];
    assert(p->flows.n > 0); /* invariant 1: an idle pool has no next event */
    advance(p, p->next_s);
    struct mr_heap_item first = mr_heap_pop(&p->flows);
    p->virtual_time = fmax(p->virtual_time, first.key);
    if (p->flows.n == 0)
        p->virtual_time = p->last_end = 0; /* keeps precision over long runs */
    reschedule(c, pool);
    return (uint32_t)first.value;
}
