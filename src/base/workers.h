/* Worker pool: runs fn(user, index) for index 0..n-1 on `threads` threads, each index once. The first failure stops the
 * hand-out of further indices; its error is returned. Indices are handed out in ascending order, one at a time or in
 * runs of `grain`. `stop` (may be NULL) ends the work early with MR_E_INTERRUPTED. The calling thread works too, so
 * threads = 1 creates none. */
#ifndef MR_BASE_WORKERS_H
#define MR_BASE_WORKERS_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdint.h>

struct mr_worker_ctx {
    unsigned thread; /* 0 .. threads-1, for per-thread state */
    void *user;
};

typedef int mr_work_fn(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err);

int mr_workers_run(unsigned threads, uint64_t n, uint64_t grain, mr_work_fn *fn, void *user, const atomic_bool *stop,
                   struct mr_error *err);
/* CPUs this process may use (affinity and cgroup quota respected), at least 1. */
unsigned mr_cpus_available(void);

#endif
