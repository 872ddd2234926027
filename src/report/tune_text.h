/* A search for settings as text and as JSON. */
#ifndef MR_REPORT_TUNE_TEXT_H
#define MR_REPORT_TUNE_TEXT_H

#include "base/strbuf.h"
#include "loop/tune.h"

#include <jansson.h>

/* What is going to be measured; `is_all`: with the settings, where nothing follows. */
void mr_tune_plan_text(const struct mr_tune *u, bool is_all, struct mr_strbuf *out);
/* Behind it: what was predicted and measured, the best one's figures and verdict. */
void mr_tune_result_text(const struct mr_tune *u, struct mr_strbuf *out);
/* "millrace.tune/1". `ran`: with the result. A new reference; NULL without memory. */
json_t *mr_tune_json(const struct mr_tune *u, bool ran);

#endif
