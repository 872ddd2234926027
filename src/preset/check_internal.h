/* Inside one execution of a check: check_execute.c runs the trainer, check_collect.c makes figures of its trace. */
#ifndef MR_PRESET_CHECK_INTERNAL_H
#define MR_PRESET_CHECK_INTERNAL_H

#include "bench/trainer.h"
#include "preset/check.h"

#define MR_CHECK_RANKS_MAX 8

struct mr_events_file;

struct check_job {
    const struct mr_check_shape *shape;
    const struct mr_check_data *data; /* or NULL: nothing is read */
    const atomic_bool *stop;
    struct mr_workload w; /* as the trainer runs it */
    struct mr_workload_plan plan;
    uint64_t checkpoint_bytes[MR_CHECK_FILES_MAX];
    char folder[4096], data_folder[4200], output_folder[4200], checkpoint_folder[4200], burst_folder[4200];
    char storage[1024], burst[1024]; /* storage stacks; burst "": none */
    double slowdown;
    uint32_t world;
    struct mr_bench_board *board;
    struct mr_events_file *events;
};

/* check_order.c: both 0 where the trainer keeps its promises. The second for samples that come through the loader. */
struct mr_run_trace;
double mr_check_barrier_violations(const struct mr_run_trace *t);
int mr_check_out_of_order(const struct check_job *j, struct mr_run_trace *t, double *out, struct mr_error *err);

/* check_items.c: the same for access patterns; NAN where the calls cannot tell who wanted what. */
int mr_check_items_out_of_order(const struct check_job *j, const struct mr_io_calls *calls, double *out,
                                struct mr_error *err);

/* What a rank has to read, item by item: files or records, by number. */
struct mr_check_items {
    uint64_t *item; /* [n], each < kinds */
    size_t n;
    size_t least; /* so many of the first must have been begun */
    uint64_t kinds;
};
/* A reader's first read of an item, in the order of time. */
struct mr_check_begin {
    uint32_t tid;
    uint64_t item;
};
/* Items that a reader began after one that comes later, or that have no place in the list, and places that nobody
 * began. 0, -ENOMEM. */
int mr_check_count_displaced(const struct mr_check_items *want, const struct mr_check_begin *begun, size_t n,
                             double *out);

/* The figures of FOLDER/run.mrt into *out. */
int mr_check_collect(const struct check_job *j, struct mr_check_run *out, struct mr_error *err);

#endif
