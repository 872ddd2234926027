/* A run of our own trainer inside a report: its figures, before the tables of its trace. */
#ifndef MR_REPORT_REPORT_RUN_H
#define MR_REPORT_REPORT_RUN_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "conf/workload.h"
#include "import/trace_read.h"
#include "explain/explain.h"

#include <jansson.h>

/* Figures of the run, computed from the trace. With the results folder of a run (summary.json in it) they are those of
 * the summary, and a difference is logged as a warning; of a trace alone those that need no workload. *out is NULL when
 * the trace is not of `millrace run`. */
struct mr_report_run;
int mr_report_run_open(const char *path, const struct mr_trace *t, struct mr_arena *a, struct mr_report_run **out,
                       struct mr_error *err);
/* The file or preset that the run was of; NULL: unknown. */
const char *mr_report_run_workload_name(const struct mr_report_run *r);
/* x: of the same trace, or NULL. */
void mr_report_run_text(struct mr_report_run *r, struct mr_explanation *x, struct mr_strbuf *o);
/* A new reference; NULL when out of memory. */
json_t *mr_report_run_json(const struct mr_report_run *r);
/* The workload of a results folder, NULL of a trace alone; lives as long as `r` and the arena. */
const struct mr_workload *mr_report_run_workload(const struct mr_report_run *r);
void mr_report_run_free(struct mr_report_run *r);

#endif
