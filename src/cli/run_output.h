/* What `millrace run` shows: the summary, the live line, the table of a search, a prediction. */
#ifndef MR_CLI_RUN_OUTPUT_H
#define MR_CLI_RUN_OUTPUT_H

#include "job/job.h"
#include "job/job_predict.h"
#include "job/job_search.h"

#include <stdio.h>

/* run_live.c: functions of a struct mr_job_display. */
void *mr_run_live_start(const struct mr_job *j);
void mr_run_live_tick(void *live);
void mr_run_live_end(void *live);

/* run_tables.c */
/* Shows what a search has found until `rc`, and returns that, or why it could not be shown. */
int mr_cli_print_search(const struct mr_job *j, const struct mr_job_search *s, bool find_max, bool json, int rc,
                        struct mr_error *err);
int mr_cli_print_prediction(const struct mr_job *j, const struct mr_job_prediction *p, bool json, struct mr_error *err);

#endif
