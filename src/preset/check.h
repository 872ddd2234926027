/* `millrace workloads check`: a preset at a small scale against the figures of its source.
 *
 *   preset ──scale──> shape ──gen──> data ──┐
 *                                           ├─> check_execute: the trainer, ranks as threads ──> trace ──> figures
 *   storage model ──> throttle text ────────┘
 *
 * The trainer is that of `millrace run`; what its ranks share is the emulated storage (a throttle group), the
 * collectives and the files. Every figure comes from the trace of the run (check_collect.c), never from the plan that
 * made it, except those of the plan itself (plan.*, checkpoint sizes of models too large to write). */
#ifndef MR_PRESET_CHECK_H
#define MR_PRESET_CHECK_H

#include "base/arena.h"
#include "conf/plan.h"
#include "metrics/io_pattern.h"
#include "metrics/metrics.h"
#include "store/store.h"

#include <millrace/dataset.h>

#include <stdatomic.h>

#define MR_CHECK_FILES_MAX 8 /* of a checkpoint */

/* A preset made small. Ratios are small / full: what counts and bytes are divided by before they meet their target. */
struct mr_check_shape {
    struct mr_workload w; /* the scaled one */
    struct mr_workload_plan full, plan;
    uint32_t ranks;
    double factor; /* asked */
    double bytes_ratio, files_ratio, ranks_ratio, write_ratio, record_ratio;
    double data_bytes;           /* of the data set to generate */
    double step_s;               /* compute of one step */
    uint64_t file_passes, steps; /* of all ranks; of each rank, at most (0: no limit) */
    uint64_t checkpoint_bytes[MR_CHECK_FILES_MAX];
    unsigned checkpoint_files;
    bool reads, writes_checkpoints;
    bool compute_cut; /* steps compute for less time than their data would ask for: utilisation means nothing */
};
/* factor 0: the preset's own. MR_E_CONFIG when the preset makes no sense. */
int mr_check_scale(const struct mr_workload *w, double factor, struct mr_check_shape *out, struct mr_error *err);

struct mr_check_extent {
    uint32_t file;
    uint64_t offset, bytes;
};
struct mr_check_data {
    struct mr_store *store; /* bare: what looks places up does not show in the trace */
    struct mr_dataset *set; /* NULL for a single header file */
    char folder[4096];
    char **path; /* of each file */
    uint64_t *file_bytes;
    uint32_t n_files;
    struct mr_check_extent *sample;
    uint64_t n_samples, samples_per_file, bytes;
    bool shares_units; /* samples lie in units that are read as a whole */
};
/* Generates the training set in folder/data (or takes the one that is there) and looks where its samples lie. */
int mr_check_data_make(const struct mr_check_shape *s, const char *folder, const atomic_bool *stop, struct mr_arena *a,
                       struct mr_check_data *out, struct mr_error *err);
void mr_check_data_done(struct mr_check_data *d);

/* One execution: on which storage, with how many readers and how much prefetch. */
struct mr_check_variant {
    const char *storage;       /* throttle text, or "" for the bare file system */
    const char *burst;         /* of a burst buffer before it, or NULL: checkpoints are written to `storage` */
    bool async;                /* checkpoints are copied in memory and written behind */
    int64_t threads, prefetch; /* -1: the preset's */
    double slowdown; /* storage and compute are this much slower, measured times divided by it; already in `storage` */
};
struct mr_check_run {
    struct mr_io_calls calls;
    struct mr_metrics *metrics;
    uint64_t *file_bytes; /* calls.file_bytes */
    double runtime_s;     /* first step's start (or first call) to the end */
    double checkpoint_share, checkpoint_s;
    double drain_s, drain_overlap; /* burst buffer: mean, share while training went on */
    uint64_t drains;
    uint64_t checkpoints;
    double repeated_samples, missed_samples; /* loader: over all epochs */
    double out_of_order; /* samples not in the batch, files or records not in the place the order has; NAN: unknown */
    double barrier_violations; /* steps that a rank began before all had computed the one before */
    uint64_t steps;
    uint32_t epochs_run;
};
int mr_check_execute(const struct mr_check_shape *s, const struct mr_check_data *d, const struct mr_check_variant *v,
                     const char *folder, const atomic_bool *stop, struct mr_check_run *out, struct mr_error *err);
void mr_check_run_done(struct mr_check_run *r);

/* ---- one preset ---- */

enum mr_check_verdict { MR_CHECK_OK, MR_CHECK_FAIL, MR_CHECK_NATIVE, MR_CHECK_SKIPPED };
struct mr_check_line {
    const struct mr_expectation *e;
    double measured, ratio; /* ratio 1: not scaled */
    enum mr_check_verdict verdict;
    const char *why; /* why skipped, "" otherwise */
};
struct mr_check_report {
    const char *name, *skipped; /* reason, or NULL */
    struct mr_check_shape shape;
    struct mr_check_line *lines;
    unsigned n_lines, failed, attempts;
    double seconds;
};
struct mr_check_params {
    double scale;
    const char *dir;
    bool keep;
    const struct mr_strings *search;
    const atomic_bool *stop;
};
/* Fills the report even when expectations fail; an error means that the check could not be made. */
int mr_check_preset(const struct mr_workload *w, const struct mr_check_params *p, struct mr_arena *a,
                    struct mr_check_report *out, struct mr_error *err);

#endif
