/* A workload and its plan as text and JSON: `run --dry-run`, `workloads show`. */
#ifndef MR_REPORT_WORKLOAD_TEXT_H
#define MR_REPORT_WORKLOAD_TEXT_H

#include "base/strbuf.h"
#include "conf/plan.h"
#include "conf/workload.h"

/* One line: `before`, `first`, `between`, `second` and `after`; the two in the middle come from files and are escaped. */
void mr_report_line(struct mr_strbuf *o, const char *before, const char *first, const char *between, const char *second,
                    const char *after);
/* Every value with its origin, or only those that are not defaults. */
void mr_report_config(const struct mr_workload *w, bool all, struct mr_strbuf *o);
void mr_report_plan(const struct mr_workload *w, const struct mr_workload_plan *p, struct mr_strbuf *o);
/* {"name", "file", "source", ...}, the plan with units in the keys, the expectations. NULL when out of memory. */
json_t *mr_report_workload_json(const struct mr_workload *w);
json_t *mr_report_plan_json(const struct mr_workload *w, const struct mr_workload_plan *p);

#endif
