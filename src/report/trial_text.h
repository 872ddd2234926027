/* A trial as text and as JSON. */
#ifndef MR_REPORT_TRIAL_TEXT_H
#define MR_REPORT_TRIAL_TEXT_H

#include "base/strbuf.h"
#include "loop/trial.h"

#include <jansson.h>

/* What is going to be run: program, change, window, prediction. */
void mr_trial_plan_text(const struct mr_trial *t, struct mr_strbuf *out);
/* Behind it: figures and verdict. */
void mr_trial_result_text(const struct mr_trial *t, struct mr_strbuf *out);
/* "millrace.try/1". `ran`: with the result. A new reference; NULL without memory. */
json_t *mr_trial_json(const struct mr_trial *t, bool ran);

#endif
