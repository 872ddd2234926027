/* A job on the virtual clock against a storage model, in seconds instead of hours: how long it would take, and how busy
 * the accelerators would be. */
#ifndef MR_JOB_JOB_PREDICT_H
#define MR_JOB_JOB_PREDICT_H

#include "job/job_scenario.h"

struct mr_job_played {
    double time_s, first_epoch_s, compute_s, read_bytes;
    double counted_s, counted_compute_s; /* of steps that count for the AU, as in a run */
};

struct mr_job_checkpoints {
    double bytes, save_s, load_s, total_s; /* one checkpoint, on average; all that training waits for */
    uint64_t writes, reads, files;
    uint32_t writers;
    const char *engine; /* sync, async, burst */
    double durable_s;   /* one, until it is where it stays; sync: save_s */
    double tail_s;      /* of total_s: what is still under way at the end */
};

struct mr_job_prediction {
    struct mr_system system;
    const char *policy;               /* that reads as the loader would */
    struct mr_job_played train, eval; /* all of training; one evaluation */
    double preload_s, eval_s;         /* read_type memory; all evaluations */
    struct mr_job_checkpoints ckpt;
    double duration_s, au, stall_s, samples_per_s; /* of all; of training */
    double au_low, au_high; /* by the spread of the model's rates; NAN: the model does not know it */
    const char *missing;    /* what the rates leave out, for which the range was widened; NULL: nothing known */
    bool other_reads; /* rates of direct reads, as 'calibrate' measures them, stand for reads through the page cache */
};

/* Its checkpoints, in a training of so many seconds without them. */
int mr_job_predict_checkpoints(const struct mr_job *j, const struct mr_system *sys, double train_s,
                               struct mr_job_checkpoints *out, struct mr_error *err);
/* How long n clients take for so many MB each, sharing the storage; sorts them. */
double mr_job_shared_s(const struct mr_system *sys, bool writes, double *mb, uint32_t n);
/* Needs a resolved job; makes its plan. The machine is the one of mr_job_load_system. */
int mr_job_predict(struct mr_job *j, struct mr_job_prediction *out, struct mr_error *err);

#endif
