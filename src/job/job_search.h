/* Many jobs in a row: a sweep over the values of keys, and the search for the most accelerators that stay busy. Every
 * point is a job of its own, resolved with its own options and overrides and run in this process (its ranks are
 * forked), so a point is exactly what the user would get by hand; its results lie in a folder of their own. */
#ifndef MR_JOB_JOB_SEARCH_H
#define MR_JOB_JOB_SEARCH_H

#include "job/job.h"

struct mr_job_point {
    char value[128], out[4096]; /* the values of the keys; the results folder */
    double ranks, au, samples_per_s, read_bytes_per_s, stall_p99_s, data_share, duration_s;
    uint64_t steps, samples, sample_bytes, read_bytes; /* the work that was done */
    bool measured;
    enum mr_job_verdict verdict;
    char limiter[192], because[512]; /* because: why there is no verdict */
};

/* A figure of repeated runs. The interval covers the true median with `confidence`; of fewer than six runs it is the
 * least and the most. */
struct mr_job_spread {
    double median, low, high, confidence;
};

/* Repeated runs of one point. */
struct mr_job_repeats {
    size_t n; /* measured */
    struct mr_job_spread au, samples_per_s;
    bool same_work;
    char other_work[256]; /* what differed */
};

struct mr_job_search {
    char keys[512];              /* those swept over, separated by spaces */
    char out[2048];              /* the folder that holds the points' */
    struct mr_job_point *points; /* of repeated runs: the medians */
    size_t n;
    unsigned repeat;                /* runs of each point */
    struct mr_job_point *runs;      /* [repeat][n] in the order they were made; NULL: each point is one run */
    struct mr_job_repeats *repeats; /* [n] */
    uint64_t best, limit; /* mr_job_find_max: the most ranks that stay busy (0: not even one); where the search ended */
    bool is_left;         /* this process was a rank of a point, which is over: tell nothing and end */
};

/* `base` is resolved and not run. An axis is "KEY=VALUE,VALUE,..." (conf/sweep.h); KEY is an option of the job or a key
 * of the workload. All values and folders are checked before the first run. With repeat > 1 every point is run so
 * often, all points in turn before the next round, so that a machine that gets slower or faster does not favour one of
 * them; without axes the job itself is the only point. Stops at the first run that fails. Also after an error *out
 * holds the points measured until then; free it with mr_job_search_done in every case. */
int mr_job_sweep(const struct mr_job *base, const struct mr_strings *axes, unsigned repeat, struct mr_job_search *out,
                 struct mr_error *err);
/* job_repeat.c: puts the medians of `n` runs, `stride` apart, into the point, and their spread and agreement into *out.
 * Runs that were not measured are left out. */
void mr_job_sum_repeats(const struct mr_job_point *runs, size_t n, size_t stride, struct mr_job_point *point,
                        struct mr_job_repeats *out);
/* Median and interval; sorts the values. */
struct mr_job_spread mr_job_spread_of(double *values, size_t n);
/* Doubles the ranks until the AU falls below the workload's metric.au, then halves the gap. Makes the data set first
 * where that is allowed. Points are sorted by ranks. */
int mr_job_find_max(struct mr_job *base, uint64_t max_ranks, struct mr_job_search *out, struct mr_error *err);
void mr_job_search_done(struct mr_job_search *s);

#endif
