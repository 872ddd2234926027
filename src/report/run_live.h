/* The display of `millrace run` while it runs: the live line. */
#ifndef MR_REPORT_RUN_LIVE_H
#define MR_REPORT_RUN_LIVE_H

#include "job/job.h"

/* run_live.c: functions of a struct mr_job_display. */
void *mr_run_live_start(const struct mr_job *j);
void mr_run_live_tick(void *live);
void mr_run_live_end(void *live);

#endif
