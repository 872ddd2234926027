/* Every formula, once: what the steps of a run amount to. Pure arithmetic over per-step series; the live display, the
 * summary, offline analysis and tests all call this. Two families:
 *
 *   mr_metrics_compute   ours: exact times, wall clock, real bytes (definitions in doc/reference/metrics.md)
 *   mr_dlio_compute      the DLIO benchmark's, by its formulas and under its names, faults included, for comparison
 *
 * A step is a row of consecutive times inside one rank:
 *
 *   start |-- load --|-- copy --|-- compute --|-- barrier --|.. rest ..| end |-- checkpoint --| next start
 *
 * load, copy, compute and barrier are disjoint parts of [start, end); what they leave over is "other" (oversleeping,
 * bookkeeping, scheduling). A checkpoint follows a step and belongs to it, outside [start, end). Times are nanoseconds
 * since the start of the run. */
#ifndef MR_METRICS_METRICS_H
#define MR_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_phase { MR_PHASE_TRAIN, MR_PHASE_EVAL };

struct mr_step {
    uint64_t start_ns, end_ns;
    uint64_t load_ns, copy_ns, compute_ns, barrier_ns, checkpoint_ns;
    uint64_t compute_wall_ns;             /* compute and oversleeping; DLIO counts all of it as compute */
    uint64_t sample_bytes, read_bytes;    /* given to the trainer; read from the store */
    uint32_t samples, epoch, block, step; /* step: number within its epoch and phase, from 0; block: DLIO's, from 1 */
    uint8_t phase;                        /* enum mr_phase */
};

struct mr_checkpoint_event {
    uint64_t start_ns, duration_ns, write_ns, fsync_ns, read_ns, bytes, files, step;
    uint64_t wait_ns;       /* burst buffer: of the duration, waiting for the drain */
    bool is_load, buffered; /* buffered: written to the burst buffer */
};

/* One checkpoint copied from the burst buffer to where it stays. */
struct mr_drain_event {
    uint64_t queued_ns, start_ns, duration_ns, bytes, files, step;
    bool failed;
};

/* One rank's part of a run. Steps in time order. */
struct mr_rank_series {
    uint32_t rank;
    const struct mr_step *steps;
    size_t n;
    const struct mr_checkpoint_event *checkpoints;
    size_t n_checkpoints;
    const struct mr_drain_event *drains;
    size_t n_drains;
    uint64_t drain_wait_ns; /* waited for the burst buffer outside of saves: at the end, before reading back */
};

struct mr_quantiles {
    double p50, p95, p99, max, mean;
};

/* Shares of the window from the first step's start to the last one's end or checkpoint; they add up to 1. */
struct mr_split {
    double compute, checkpoint, data, barrier, copy, other;
};

struct mr_metrics_epoch {
    uint32_t epoch;
    uint64_t steps; /* of one rank */
    double duration_s, au, samples_per_s, read_bytes_per_s, stall_share, first_step_s;
};

#define MR_METRICS_EPOCHS_MAX 4096

struct mr_metrics {
    uint64_t steps, samples, sample_bytes, read_bytes; /* over all ranks, training */
    double duration_s;          /* first step's start to the last one's end, any rank, training and evaluation */
    double au, au_low, au_high; /* mean over ranks; 95 % bootstrap interval over steps */
    double au_cold, au_warm;    /* first epoch; later ones; NAN where there is none */
    uint64_t au_steps;          /* counted, of one rank */
    double samples_per_s, sample_bytes_per_s, read_bytes_per_s; /* by the wall clock of training, first step included */
    struct mr_quantiles stall_s;                                /* load per step */
    double stalled_steps;                                       /* share of steps whose load is over 5 % of the step */
    double first_step_load_s;
    double epoch_start_share; /* of all waiting: in the first steps of epochs, when the pipeline is empty */
    struct mr_quantiles step_s;
    struct mr_split split, worst_split; /* mean over ranks; the rank with the most data stall */
    uint32_t worst_rank;
    double ceiling;                                   /* speed-up if neither data nor checkpoints ever stalled */
    double compute_mean_s, demand_bytes_per_s;        /* what all ranks together would take if never kept waiting */
    double supply_bytes_per_s, headroom;              /* while data was the limiter; NAN when it never was */
    double imbalance, imbalance_cv, imbalance_cost_s; /* of the ranks' step times before the barrier */
    int64_t straggler;                                /* rank that is slowest too often, or -1 */
    double eval_au, eval_samples_per_s;               /* NAN without evaluation */
    uint64_t saves, loads, save_bytes, load_bytes;    /* checkpoints; bytes over all ranks */
    struct mr_quantiles save_s, load_s;               /* slowest rank of each */
    double save_bytes_per_s, load_bytes_per_s;        /* bytes of all ranks over the slowest rank's time */
    double fsync_share;                           /* time in fsync / time in fsync and write, of the files' own calls */
    struct mr_metrics_drains {                    /* burst buffer */
        uint64_t buffered, drains, failed, bytes; /* saves that went there; copies made, of all ranks */
        struct mr_quantiles drain_s;
        double total_s, overlap_s, bytes_per_s; /* overlap: while training went on and waited for no drain */
        double overlap_share;                   /* NAN without drains */
        double room_wait_s, end_wait_s;         /* of the rank that waited longest */
    } drain;
    uint32_t n_epochs;
    struct mr_metrics_epoch epochs[MR_METRICS_EPOCHS_MAX];
};

/* Of the bootstrap; training steps at the start (1: the pipeline is empty) and the end of the run that are not in AU.
 */
struct mr_metrics_params {
    uint64_t seed, exclude_start, exclude_end;
};

/* n series, at least one; ranks without steps are left out. `out` is large: not on the stack of a thread. */
void mr_metrics_compute(const struct mr_rank_series *series, size_t n, const struct mr_metrics_params *p,
                        struct mr_metrics *out);

/* Linear interpolation between the closest ranks (numpy's default); q in [0, 1]. Sorts `values`. 0 for n = 0. */
double mr_quantile(double *values, size_t n, double q);

/* How often to save: Daly's estimate of the interval, in seconds, that loses least time to saves and to what is
 * computed again after a failure; *young is its first term, *lost the share of the time that is lost then, to first
 * order. */
double mr_checkpoint_interval(double cost_s, double mtbf_s, double *young_s, double *lost);

/* ---- DLIO ---- */

struct mr_dlio_params {
    uint32_t batch_size, batch_size_eval;
    double record_bytes;
    uint64_t exclude_start, exclude_end;
    uint64_t steps_per_epoch, eval_steps;
    double au_target; /* 0.9 */
};

struct mr_dlio_metrics {
    uint32_t epochs, evals;
    double train_au[MR_METRICS_EPOCHS_MAX], train_throughput[MR_METRICS_EPOCHS_MAX]; /* percent; samples per second */
    double eval_au[MR_METRICS_EPOCHS_MAX], eval_throughput[MR_METRICS_EPOCHS_MAX];
    double train_au_mean, train_au_stdev, train_throughput_mean, train_throughput_stdev, train_io_mean, train_io_stdev;
    double eval_au_mean, eval_au_stdev, eval_throughput_mean, eval_throughput_stdev, eval_io_mean, eval_io_stdev;
    bool train_meets, eval_meets;
    double save_io_mean, save_io_stdev, save_duration_mean, save_duration_stdev; /* GiB/s and s, rank 0 */
    double load_io_mean, load_io_stdev, load_duration_mean, load_duration_stdev;
    double checkpoint_gib; /* of all ranks */
};

void mr_dlio_compute(const struct mr_rank_series *series, size_t n, const struct mr_dlio_params *p,
                     struct mr_dlio_metrics *out);

#endif
