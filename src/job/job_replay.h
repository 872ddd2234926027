/* A finished run again, from its results folder and its trace: the job as it was resolved (summary.json), and a board
 * that holds what the trace says. Figures that are computed from it are the run's own; where they are not, the trace or
 * the summary was changed. */
#ifndef MR_JOB_JOB_REPLAY_H
#define MR_JOB_JOB_REPLAY_H

#include "import/trace_read.h"
#include "job/job.h"

/* The board of a trace; with metrics.h everything that needs no workload follows from it. MR_E_FORMAT when there is no
 * run in it. */
int mr_job_board_from_trace(const struct mr_trace *t, struct mr_bench_board **out, struct mr_error *err);

/* The job of the results folder with what the trace holds; figures are computed. mr_job_done frees the result.
 * *differs is malloc'ed: the first figure of summary.json that the trace does not confirm ("millrace.au: 0.91 in the
 * summary, 0.87 in the trace"), or NULL when all are equal. */
int mr_job_replay(const char *folder, const struct mr_trace *t, struct mr_arena *a, struct mr_job *out, char **differs,
                  struct mr_error *err);

#endif
