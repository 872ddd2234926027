/* Inside one execution of a check: check_execute.c runs the ranks, check_collect.c makes figures of what they did. */
#ifndef MR_JOB_CHECK_INTERNAL_H
#define MR_JOB_CHECK_INTERNAL_H

#include "bench/pattern.h"
#include "job/check.h"

#include <millrace/checkpoint.h>

#include <pthread.h>

struct check_job;
struct check_rank {
    struct check_job *job;
    uint32_t id;
    struct mr_store *store;     /* whoever reads for this rank reads through the reader's */
    struct mr_pattern *pattern; /* what feeds this rank, or NULL */
    pthread_t thread;
    struct mr_step *steps;
    uint64_t n_steps, steps_cap;
    struct mr_checkpoint_event *checkpoints;
    uint64_t n_checkpoints;
    struct mr_checkpointer *saver; /* rank 0 with a burst buffer */
    struct mr_drain_event *drains;
    uint64_t n_drains;
    uint64_t train_start_ns, end_ns;
    uint64_t opened_ns; /* loader: what it read before, to learn sizes, belongs to no epoch */
    int rc;
    struct mr_error err;
};

struct check_job {
    const struct mr_check_shape *shape;
    const struct mr_check_data *data;
    const struct mr_workload *w;
    const atomic_bool *stop;
    char burst[1024]; /* "": none */
    char folder[4096], storage[1024];
    unsigned readers, prefetch;
    double slowdown;
    struct check_rank *ranks;
    uint32_t world;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the barrier */
    pthread_cond_t cond;
    uint32_t waiting, round;
    uint64_t start_ns;
};

/* Calls and steps of all ranks into *out; closes the ranks' stores. */
int mr_check_collect(struct check_job *j, struct mr_check_run *out, struct mr_error *err);

#endif
