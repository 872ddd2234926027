/* Fair pools: resources that share their rate equally among the transfers that use them (processor sharing), or serve
 * them one after the other as they come (in_turn), and the clockwork that says which transfer ends next. A transfer
 * that needs several resources has one flow in each and ends when the last of them ends, so no resource ever delivers
 * more than its rate and bytes are conserved.
 *
 * Virtual time makes this O(log n) per event: a pool advances by rate/flows per second, and a flow of x MB that joins
 * at virtual time v ends at v + x whatever happens to the others. */
#ifndef MR_SIM_FAIR_POOL_H
#define MR_SIM_FAIR_POOL_H

#include "base/heap.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct mr_pool {
    const struct mr_curve *rate_by_flows; /* or NULL: `rate` is set by the owner */
    double rate;                          /* MB/s over all flows */
    bool in_turn;                         /* the first one that came has all of it */
    double last_end;                      /* in_turn: the virtual time at which the last flow ends */
    double virtual_time, seen_s;
    struct mr_heap flows; /* by the virtual time at which they end; the value is the transfer */
    double next_s;        /* when the top ends, INFINITY if idle */
    uint32_t at;          /* position in the clockwork's heap */
};

/* All pools of a simulation, ordered by their next event. */
struct mr_clockwork {
    uint32_t n;
    struct mr_pool *pools;
    uint32_t *heap;
};

int mr_clockwork_init(struct mr_clockwork *c, uint32_t pools);
void mr_clockwork_done(struct mr_clockwork *c);
/* Adds a flow at time now_s; false when memory is exhausted. */
bool mr_pool_add(struct mr_clockwork *c, uint32_t pool, double now_s, double mb, uint32_t transfer);
/* Changes the rate of a pool that has no curve. */
void mr_pool_set_rate(struct mr_clockwork *c, uint32_t pool, double now_s, double rate);
/* The pool whose flow ends first, and when; INFINITY if all are idle. */
double mr_clockwork_next(const struct mr_clockwork *c, uint32_t *pool);
/* Ends the top flow of a pool at its time; returns its transfer. */
uint32_t mr_pool_end_first(struct mr_clockwork *c, uint32_t pool);

#endif
