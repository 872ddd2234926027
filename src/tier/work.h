/* The scheduler: everything that wants a device of the node (the source, an SSD to read or to write, the wire) is a job
 * with a key; each device has threads that take the job with the least key.
 *
 *   key = urgency (read < fill < copy to an SSD), then the access for which it is needed. A read that somebody waits
 * for is for an earlier access than all that nobody waits for yet, so it comes first by itself.
 *
 * A device with threads = 0 finds out by itself how many are worth having: it adds some while that makes it faster, and
 * goes without some while it is ahead of everybody. Background jobs (fills and copies) pass the arbiter of the device
 * (store/traffic.h), which they share with checkpoints on their way to it, and never take the last thread, so a job
 * that somebody waits for finds one. All other jobs are demand, and the arbiter sees them.
 *
 * Invariants
 *  W1. A job is in at most one heap, and between push and run nobody but the scheduler changes its key.
 *  W2. After mr_work_stop no job runs; those that are left are handed to `drop`, once each.
 *
 * Lock order: callers may hold their own lock when they push; `run` and `drop` are called without the scheduler's. */
#ifndef MR_TIER_WORK_H
#define MR_TIER_WORK_H

#include "store/traffic.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

enum mr_urgency { MR_URGENT_READ, MR_URGENT_FILL, MR_URGENT_SPILL };
#define MR_WORK_IDLE UINT32_MAX
#define MR_WORK_THREADS_MAX 32u

struct mr_work_job {
    uint64_t key;
    uint64_t bytes;
    uint64_t pushed_ns;
    uint32_t at; /* in the heap; MR_WORK_IDLE: it is in none */
};
static inline uint64_t mr_work_key(enum mr_urgency u, uint64_t access)
{
    return (uint64_t)u << 56 | (access & (((uint64_t)1 << 56) - 1));
}
static inline enum mr_urgency mr_work_urgency(const struct mr_work_job *j)
{
    return (enum mr_urgency)(j->key >> 56);
}

struct mr_work;
struct mr_work_params {
    const char *name;
    unsigned threads;          /* 0: found by measuring */
    struct mr_traffic *device; /* borrowed; NULL: background goes as it comes */
    void *user;
    void *(*enter)(void *user); /* what a thread works with, made by itself when it starts; NULL: nothing */
    void (*leave)(void *user, void *mine);
    /* Does the job; it may be freed or pushed again by then. Returns bytes that were moved, for the tuning. */
    uint64_t (*run)(void *user, void *mine, struct mr_work_job *job);
    void (*drop)(void *user, struct mr_work_job *job);
};
/* -ENOMEM, -errno of the first thread. */
int mr_work_start(const struct mr_work_params *p, struct mr_work **out, struct mr_error *err);
/* Waits for the jobs that run; drops the others. Accepts NULL. */
void mr_work_stop(struct mr_work *w);
/* False: no memory, or stopping; the job stays the caller's. */
bool mr_work_push(struct mr_work *w, struct mr_work_job *job);
/* It is needed sooner. One that does not wait here (it runs, or is to be pushed) keeps the key for its next push. */
void mr_work_raise(struct mr_work *w, struct mr_work_job *job, uint64_t key);
/* Takes a waiting job back; false: it runs. */
bool mr_work_take_back(struct mr_work *w, struct mr_work_job *job);
/* Takes back the job with the largest key that waits; NULL: none does. O(waiting). */
struct mr_work_job *mr_work_take_last(struct mr_work *w);
/* Jobs that wait and those that run. */
struct mr_work_load {
    uint32_t waiting, running, background, threads;
    double rate;      /* bytes per second while all threads were busy; 0: not known */
    uint64_t busy_ns; /* in which at least one job ran */
};
void mr_work_load(struct mr_work *w, struct mr_work_load *out);
/* From here on background jobs go as fast as they can (true): nobody waits for anything else. Accepts NULL. */
void mr_work_hurry(struct mr_work *w, bool hurry);
/* Nobody waits for this device's bytes (true), or somebody does: whether fewer threads may be tried, and whether
 * checkpoints hold back. */
void mr_work_ahead(struct mr_work *w, bool ahead);

#endif
