/* Simulations as text, JSON, CSV, plot and page. */
#ifndef MR_REPORT_SIM_TEXT_H
#define MR_REPORT_SIM_TEXT_H

#include "base/strbuf.h"
#include "conf/sweep.h"
#include "explain/explain.h"
#include "job/job_scenario.h"
#include "sim/access_study.h"
#include "sim/study.h"

#include <jansson.h>

/* The studies of a sweep's points, or one study without axes. */
struct mr_sim_sweep {
    struct mr_sweep grid;
    struct mr_study *studies; /* one per point; the caller frees */
};

void mr_report_study(const struct mr_study *st, bool thesis, struct mr_strbuf *o);
void mr_report_sweep(const struct mr_sim_sweep *sw, struct mr_strbuf *o);
/* One line per point and policy: the swept keys, then its figures; `millrace sim --csv`. */
void mr_report_sweep_csv(const struct mr_sim_sweep *sw, struct mr_strbuf *o);
void mr_report_storage_plan(const struct mr_storage_plan *p, const struct mr_scenario *s, struct mr_strbuf *o);
void mr_report_access(const struct mr_scenario *s, const struct mr_access_study *a, struct mr_strbuf *o);
/* The run's own policy among the study's, beside what the run measured; nothing (JSON: null) where the study lacks it.
 */
void mr_report_against(const struct mr_study *st, const struct mr_job_measured *m, struct mr_strbuf *o);
json_t *mr_report_against_json(const struct mr_study *st, const struct mr_job_measured *m);
/* NULL when out of memory. */
json_t *mr_report_study_json(const struct mr_study *st, bool thesis, unsigned seeds);
json_t *mr_report_sweep_json(const struct mr_sim_sweep *sw, bool thesis, unsigned seeds);
json_t *mr_report_storage_plan_json(const struct mr_storage_plan *p, const struct mr_scenario *s);
json_t *mr_report_access_json(const struct mr_scenario *s, const struct mr_access_study *a);
/* The plot of a sweep over one key with at most MR_PLOT_POINTS_MAX values: run time over the values, one line per
 * policy, the bound dashed; with several seeds bars from the least to the most. */
int mr_report_sweep_svg(const struct mr_sim_sweep *sw, struct mr_strbuf *out, struct mr_error *err);
/* The page of a study or a sweep; `x` explains the simulated trace of the one policy, or is NULL. */
int mr_report_sim_page(const struct mr_sim_sweep *sw, const struct mr_explanation *x, const char *path,
                       struct mr_error *err);

#endif
