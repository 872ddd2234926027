/* Queues for backends whose calls block: requests are executed by a pool of threads that all queues of a store share,
 * or, without a pool, by the submitting thread itself (for memory-like backends a hand-over costs more than the copy).
 *
 *    submit ──> pool list ──> worker: exec(io) ──> queue's done list ──> reap
 *
 * No allocation after creation: requests are linked through mr_io.next. */
#ifndef MR_STORE_STORE_WORKQ_H
#define MR_STORE_STORE_WORKQ_H

#include "store/store.h"

struct mr_workpool;

/* Executes one request completely and returns its result; called from any thread. */
typedef int64_t mr_io_exec_fn(struct mr_store *s, const struct mr_io *io);

/* `threads` 0 = automatic. Threads start with the first queue. */
int mr_workpool_create(struct mr_store *s, unsigned threads, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                       struct mr_error *err);
/* All queues must have been freed. Accepts NULL. */
void mr_workpool_free(struct mr_workpool *p);
/* A pool that runs requests in the submitting thread. */
int mr_workpool_create_inline(struct mr_store *s, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                              struct mr_error *err);

int mr_workq_create(struct mr_workpool *p, unsigned depth, struct mr_ioq **out, struct mr_error *err);
void mr_workq_free(struct mr_ioq *q);
int mr_workq_submit(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err);
/* Nothing to gain: 0 when the call is right. */
int mr_workq_register(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err);
int mr_workq_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err);

/* An exec function over any backend's direct operations; READ_PATH opens and closes an object. */
int64_t mr_io_exec_generic(struct mr_store *s, const struct mr_io *io);

#endif
