/* Fair pools: see fair_pool.h. Invariant: for every pool, next_s = seen_s + (top.ends - virtual_time) * n / rate. */
#include "sim/fair_pool.h"

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
        free(c->pools[i].heap);
    free(c->pools);
    free(c->heap);
    c->pools = NULL;
    c->heap = NULL;
}

static void place(struct mr_clockwork *c, uint32_t at, uint32_t pool)
{
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
}

static void advance(struct mr_pool *p, double now_s)
{
    if (p->n && now_s > p->seen_s)
        p->virtual_time += (now_s - p->seen_s) * p->rate / p->n;
    p->seen_s = now_s;
}

static void reschedule(struct mr_clockwork *c, uint32_t pool)
{
    struct mr_pool *p = &c->pools[pool];
    if (p->rate_by_flows && p->n)
        p->rate = mr_curve_at(p->rate_by_flows, p->n);
    if (p->n == 0)
        p->next_s = INFINITY;
    else
        p->next_s = p->seen_s + fmax(0, p->heap[0].ends - p->virtual_time) * p->n / p->rate;
    reorder(c, pool);
}

bool mr_pool_add(struct mr_clockwork *c, uint32_t pool, double now_s, double mb, uint32_t transfer)
{
    struct mr_pool *p = &c->pools[pool];
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 8;
        struct mr_flow *heap = realloc(p->heap, cap * sizeof(*heap));
        if (!heap)
            return false;
        p->heap = heap;
        p->cap = cap;
    }
    advance(p, now_s);
    struct mr_flow f = {p->virtual_time + mb, transfer};
    uint32_t i = p->n++;
    for (; i > 0 && p->heap[(i - 1) / 2].ends > f.ends; i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = f;
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
    uint32_t transfer = p->heap[0].transfer;
    advance(p, p->next_s);
    p->virtual_time = fmax(p->virtual_time, p->heap[0].ends);
    struct mr_flow x = p->heap[--p->n];
    uint32_t i = 0;
    for (uint32_t k; (k = 2 * i + 1) < p->n; i = k) {
        if (k + 1 < p->n && p->heap[k + 1].ends < p->heap[k].ends)
            k++;
        if (p->heap[k].ends >= x.ends)
            break;
        p->heap[i] = p->heap[k];
    }
    if (p->n)
        p->heap[i] = x;
    if (p->n == 0)
        p->virtual_time = 0; /* keeps precision over long runs */
    reschedule(c, pool);
    return transfer;
}
