/* What `millrace gen` wrote, or would write (dry_run), of one split. */
#ifndef MR_REPORT_SPLIT_TEXT_H
#define MR_REPORT_SPLIT_TEXT_H

#include "base/strbuf.h"
#include "job/job_generate.h"

#include <jansson.h>

void mr_report_split(const struct mr_job_split *s, bool dry_run, struct mr_strbuf *o);
json_t *mr_report_split_json(const struct mr_job_split *s, bool dry_run);

#endif
