/* Presets as text and JSON: a line of the list, expectations, the result of a check. JSON is NULL when out of memory. */
#ifndef MR_REPORT_PRESET_TEXT_H
#define MR_REPORT_PRESET_TEXT_H

#include "base/strbuf.h"
#include "conf/plan.h"
#include "conf/workload.h"
#include "preset/check.h"

/* One line of `workloads list`, and the heads of its columns. */
void mr_report_preset_heads(int name_width, struct mr_strbuf *o);
void mr_report_preset(const struct mr_workload *w, const struct mr_workload_plan *p, int name_width,
                      struct mr_strbuf *o);
json_t *mr_report_preset_json(const struct mr_workload *w, const struct mr_workload_plan *p);

void mr_report_expectations(const struct mr_workload_extra *x, struct mr_strbuf *o);

void mr_report_preset_check(const struct mr_check_report *r, struct mr_strbuf *o);
json_t *mr_report_preset_check_json(const struct mr_check_report *r);

#endif
