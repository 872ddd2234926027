/* Inside a job: what its files share. job_resolve.c makes one, job_data.c provides the data set, job_run.c runs it,
 * job_series.c saves what is measured where ranks do not share memory, job_trust.c and job_doubts.c say how far the
 * result can be trusted, job_summary.c computes and job_files.c writes it. */
#ifndef MR_JOB_JOB_INTERNAL_H
#define MR_JOB_JOB_INTERNAL_H

#include "job/job.h"

/* Appends a line to a list in the arena. */
void mr_job_note(struct mr_strings *list, struct mr_arena *a, const char *fmt, ...) MR_PRINTF(3, 4);

/* job_data.c: fits the workload's counts to the training set if it is there already. */
bool mr_job_fit_data(struct mr_job *j);
/* The store to open the set with, past the shims; NULL: the default. */
const char *mr_job_data_store(const struct mr_job *j);
/* dataset.keep_files=false: removes what this job generated. */
int mr_job_remove_data(const struct mr_job *j, struct mr_error *err);

/* job_series.c: the series of ranks that share no memory, written while they run. */
struct mr_job_series;
int mr_job_series_open(struct mr_job *j, struct mr_job_series **out, struct mr_error *err);
void mr_job_series_tick(struct mr_job_series *st);
void mr_job_series_close(struct mr_job_series *st);
/* The other ranks' steps, from their files onto this rank's board. */
void mr_job_series_load(struct mr_job *j);
void mr_job_put_steps(FILE *f, const struct mr_step *s, uint64_t first, uint64_t n); /* with a header before number 0 */

/* job_trace.c: the events of this rank, and all ranks' in one file at the end. */
int mr_job_trace_open(struct mr_job *j, struct mr_error *err);
void mr_job_trace_close(struct mr_job *j);
void mr_job_trace_join(struct mr_job *j);
/* Of a job without a result: nothing is left behind. */
void mr_job_trace_drop(const struct mr_job *j);

/* job_load.c: mr_job_load, and the summary itself (a new reference). */
int mr_job_load_summary(const char *folder, const struct mr_strings *search, struct mr_arena *a, struct mr_job *out,
                        json_t **summary, struct mr_error *err);

/* job_trust.c */
void mr_job_measure_trust(struct mr_job *j);
/* job_doubts.c: the doubts that follow from what was measured. Needs the figures. */
void mr_job_find_doubts(struct mr_job *j);
/* job_run.c: whether what the job's store returns is anything at all. */
bool mr_job_store_has_content(const struct mr_job *j);
json_t *mr_job_trust_json(const struct mr_job *j);

/* job_explain.c: fills in result.explained from the run's trace. After the probe, before the results are written. */
void mr_job_explain(struct mr_job *j);
double mr_job_storage_limit(const struct mr_job *j); /* bytes per second; NAN: storage is not the limit */
/* job_scenario.c: threads keep many requests in flight each. */
bool mr_job_queues_reads(const struct mr_job *j);
/* job_probe.c: fills in result.probe where storage was the limit. Takes up to two seconds. */
void mr_job_probe_storage(struct mr_job *j);

/* job_files.c: the results folder. */
/* --out, the workload's output.folder, or a name of its own that no folder has yet. */
void mr_job_choose_out(const struct mr_job *j, char *out, size_t cap);
/* MR_E_USAGE where results lie that must not be lost. */
int mr_job_check_out(const struct mr_job_options *opt, const char *out, struct mr_error *err);
int mr_job_make_out(struct mr_job *j, struct mr_error *err);
int mr_job_write_summary(const struct mr_job *j, struct mr_error *err);

#endif
