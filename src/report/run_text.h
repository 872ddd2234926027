/* A job as text and JSON: its summary, the table of a sweep or a search, a prediction. The JSON of a single run is
 * mr_job_summary_json. */
#ifndef MR_REPORT_RUN_TEXT_H
#define MR_REPORT_RUN_TEXT_H

#include "base/strbuf.h"
#include "job/job.h"
#include "job/job_predict.h"
#include "job/job_search.h"

/* Verdict first, at most 40 lines; `explains`: with the verdict and the findings of the advisor. */
void mr_report_job(const struct mr_job *j, bool explains, struct mr_strbuf *o);

/* The measured points of a sweep, or of the search for the most accelerators (find_max). `whole`: all were measured. */
void mr_report_search(const struct mr_job *j, const struct mr_job_search *s, bool find_max, bool whole,
                      struct mr_strbuf *o);
json_t *mr_report_search_json(const struct mr_job *j, const struct mr_job_search *s, bool find_max, bool whole);

void mr_report_prediction(const struct mr_job *j, const struct mr_job_prediction *p, struct mr_strbuf *o);
json_t *mr_report_prediction_json(const struct mr_job *j, const struct mr_job_prediction *p);

#endif
