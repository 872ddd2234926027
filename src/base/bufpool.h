/* A budgeted pool of aligned I/O buffers. The budget is never exceeded: a take that does not fit waits
 * (mr_bufpool_take) or fails at once (mr_bufpool_try_take). Buffers are page-aligned (fit for O_DIRECT), faulted in
 * before first use and reused, because first-touch page faults cost more than the copy. Thread-safe.
 *
 * Invariants: 1. in_use + idle <= budget. 2. A buffer is in exactly one of: user's hands, a free list. 3. Every waiter
 * is woken by a give or by mr_bufpool_stop. */
#ifndef MR_BASE_BUFPOOL_H
#define MR_BASE_BUFPOOL_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

struct mr_bufpool;

struct mr_bufpool_stats {
    uint64_t budget_bytes, in_use_bytes, high_water_bytes, waits;
};

/* budget_bytes is a hard limit on the sum of capacities of all buffers the pool owns. */
int mr_bufpool_create(uint64_t budget_bytes, struct mr_bufpool **out, struct mr_error *err);
/* All buffers must have been given back. */
void mr_bufpool_free(struct mr_bufpool *p);
/* A buffer of at least `bytes` capacity. take waits while the budget is exhausted; returns NULL if `bytes` alone
 * exceeds the budget, after mr_bufpool_stop, or when memory is exhausted. */
void *mr_bufpool_take(struct mr_bufpool *p, size_t bytes);
void *mr_bufpool_try_take(struct mr_bufpool *p, size_t bytes);
void mr_bufpool_give(struct mr_bufpool *p, void *buf);
/* Wakes all waiters; later takes return NULL. */
void mr_bufpool_stop(struct mr_bufpool *p);
void mr_bufpool_get_stats(struct mr_bufpool *p, struct mr_bufpool_stats *out);

#endif
