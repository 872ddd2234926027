/* The explanation as members of the JSON object of `millrace report --json` (schema millrace.report/1). Every key has
 * its unit; what is not known is null. */
#ifndef MR_REPORT_REPORT_JSON_H
#define MR_REPORT_REPORT_JSON_H

#include "explain/explain.h"
#include "report/out_stream.h"

/* Writes `"verdict":{...},\n"time":{...},...` without braces around, and without a comma at the end. */
void mr_report_json(struct mr_out *o, const struct mr_explanation *x);

#endif
