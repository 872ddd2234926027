/* Inside one execution of a check: check_execute.c runs the trainer, check_collect.c makes figures of its trace. */
#ifndef MR_JOB_CHECK_INTERNAL_H
#define MR_JOB_CHECK_INTERNAL_H

#include "bench/trainer.h"
#include "job/check.h"

#define MR_CHECK_RANKS_MAX 8

struct mr_events_file;

struct check_job {
    const struct mr_check_shape *shape;
    const struct mr_check_data *data; /* or NULL: nothing is read */
    const atomic_bool *stop;
    struct mr_workload w; /* as the trainer runs it */
    struct mr_plan plan;
    uint64_t checkpoint_bytes[MR_CHECK_FILES_MAX];
    char folder[4096], data_folder[4200], output_folder[4200], checkpoint_folder[4200], burst_folder[4200];
    char storage[1024], burst[1024]; /* storage stacks; burst "": none */
    double slowdown;
    uint32_t world;
    struct mr_bench_board *board;
    struct mr_events_file *events;
};

/* check_order.c: both 0 where the trainer keeps its promises. */
struct mr_run_trace;
double mr_check_barrier_violations(const struct mr_run_trace *t);
int mr_check_out_of_order(const struct check_job *j, struct mr_run_trace *t, double *out, struct mr_error *err);

/* The figures of FOLDER/run.mrt into *out. */
int mr_check_collect(const struct check_job *j, struct mr_check_run *out, struct mr_error *err);

#endif
