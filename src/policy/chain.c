/* Who keeps a sample between its reads: see chain.h. Pure arithmetic on at most MR_CHAIN_MAX reads. */
#include "policy/chain.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

unsigned mr_chain_next_own(const struct mr_chain *c, unsigned i)
{
    for (unsigned k = i + 1; k < c->n; k++)
        if (c->node[k] == c->node[i])
            return k;
    return c->n;
}

struct span { /* reads low ... high of the chain lie in the window */
    unsigned low, high;
};

static struct span window_of(const struct mr_chain *c, uint64_t anchor, uint64_t window)
{
    struct span w = {0, 0};
    while (w.low < c->n && c->epoch[w.low] < anchor)
        w.low++;
    w.high = w.low;
    while (w.high + 1 < c->n && c->epoch[w.high + 1] <= anchor + window)
        w.high++;
    return w;
}

/* Marks short stays, and the steps between reads of the window that they cover. */
static void short_stays(const struct mr_chain *c, struct span w, uint64_t reach, const unsigned *next, uint8_t *keep,
                        bool *covered)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (next[i] == c->n || c->when[next[i]] - c->when[i] > reach)
            continue;
        bool seen_by_all = c->epoch[next[i]] - c->epoch[i] <= MR_CHAIN_MARGIN;
        if (!seen_by_all && !(i >= w.low && next[i] <= w.high))
            continue;
        keep[i] |= MR_CHAIN_OWN;
        for (unsigned k = i > w.low ? i : w.low; k < next[i] && k < w.high; k++)
            covered[k] = true;
    }
}

/* The cheapest way to cover the steps low ... high: cost[k] is that of everything up to read k, from[k] the read whose
 * reader covers the last part, begin[k] where that part begins. */
static void shortest_path(const struct mr_chain *c, struct span w, uint64_t reach, const unsigned *next,
                          const bool *covered, uint8_t *keep)
{
    uint64_t cost[MR_CHAIN_MAX];
    unsigned from[MR_CHAIN_MAX], begin[MR_CHAIN_MAX];
    cost[w.low] = 0;
    for (unsigned k = w.low + 1; k <= w.high; k++) {
        cost[k] = cost[k - 1] + (covered[k - 1] ? 0 : c->when[k] - c->when[k - 1]);
        from[k] = begin[k] = k - 1;
        for (unsigned i = w.low; i < k; i++) {
            if (next[i] < k || next[i] > w.high || c->when[next[i]] - c->when[i] <= reach)
                continue;
            uint64_t more = c->when[next[i]] - c->when[i] - reach;
            for (unsigned b = i; b < k; b++)
                if (cost[b] + more < cost[k]) {
                    cost[k] = cost[b] + more;
                    from[k] = i;
                    begin[k] = b | MR_CHAIN_MAX; /* a longer stay */
                }
        }
    }
    for (unsigned k = w.high; k > w.low; k = begin[k] % MR_CHAIN_MAX)
        if (begin[k] >= MR_CHAIN_MAX)
            keep[from[k]] |= MR_CHAIN_OWN;
        else if (!covered[k - 1])
            keep[k - 1] |= MR_CHAIN_NEXT;
}

void mr_chain_cover(const struct mr_chain *c, uint64_t anchor, uint64_t window, uint64_t reach,
                    uint8_t keep[MR_CHAIN_MAX])
{
    unsigned next[MR_CHAIN_MAX];
    bool covered[MR_CHAIN_MAX] = {0};
    struct span w = window_of(c, anchor, window);
    assert(c->n <= MR_CHAIN_MAX);
    memset(keep, 0, MR_CHAIN_MAX);
    for (unsigned i = 0; i < c->n; i++)
        next[i] = mr_chain_next_own(c, i);
    short_stays(c, w, reach, next, keep, covered);
    if (w.low == c->n || c->epoch[w.low] > anchor + window)
        return; /* no read in this window */
    shortest_path(c, w, reach, next, covered, keep);
    /* Without a read in the border's epoch the windows do not meet: the last reader bridges the gap. */
    if (c->epoch[w.high] < anchor + window)
        keep[w.high] |= MR_CHAIN_NEXT;
}
