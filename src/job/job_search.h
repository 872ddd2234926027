/* Many jobs in a row: a sweep over the values of keys, and the search for the most accelerators that stay busy. Every
 * point is a job of its own, resolved with its own options and overrides and run in this process (its ranks are
 * forked), so a point is exactly what the user would get by hand; its results lie in a folder of their own. */
#ifndef MR_JOB_JOB_SEARCH_H
#define MR_JOB_JOB_SEARCH_H

#include "job/job.h"

struct mr_job_point {
    char value[128], out[4096]; /* the values of the keys; the results folder */
    double ranks, au, samples_per_s, read_bytes_per_s, stall_p99_s, data_share, duration_s;
    bool measured;
    enum mr_job_verdict verdict;
    char limiter[192], because[512]; /* because: why there is no verdict */
};

struct mr_job_search {
    char keys[512]; /* those swept over, separated by spaces */
    char out[2048]; /* the folder that holds the points' */
    struct mr_job_point *points;
    size_t n;
    uint64_t best, limit; /* mr_job_find_max: the most ranks that stay busy (0: not even one); where the search ended */
    bool is_left;         /* this process was a rank of a point, which is over: tell nothing and end */
};

/* `base` is resolved and not run. An axis is "KEY=VALUE,VALUE,..."; KEY is an option of the job or a key of the
 * workload; commas inside brackets belong to the value. The last axis moves fastest. All values are checked before the
 * first run. Stops at the first point that fails. Also after an error *out holds the points measured until then; free
 * it with mr_job_search_done in every case. */
int mr_job_sweep(const struct mr_job *base, const struct mr_strings *axes, struct mr_job_search *out,
                 struct mr_error *err);
/* Doubles the ranks until the AU falls below the workload's metric.au, then halves the gap. Makes the data set first
 * where that is allowed. Points are sorted by ranks. */
int mr_job_find_max(struct mr_job *base, uint64_t max_ranks, struct mr_job_search *out, struct mr_error *err);
void mr_job_search_done(struct mr_job_search *s);

#endif
