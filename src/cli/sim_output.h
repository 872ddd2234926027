/* Showing simulations: tables, JSON, and the plot of a sweep. */
#ifndef MR_CLI_SIM_OUTPUT_H
#define MR_CLI_SIM_OUTPUT_H

#include "base/strbuf.h"
#include "conf/option.h"
#include "explain/explain.h"
#include "job/job_scenario.h"
#include "sim/access_study.h"
#include "sim/study.h"

#include <jansson.h>
#include <stdio.h>

extern const char *const mr_cli_sim_methods[];

#define MR_CLI_SWEEP_AXES 4
#define MR_CLI_SWEEP_POINTS 1024

struct mr_cli_axis {
    const char *key, *value[64];
    unsigned n;
};

/* The studies of one key's values, or of a grid of several: n points, the last key runs fastest. */
struct mr_cli_sweep {
    unsigned n_axes, n;
    struct mr_cli_axis axis[MR_CLI_SWEEP_AXES];
    struct mr_study *studies; /* one per point; the caller frees */
};

/* From "KEY=VALUE,VALUE..." texts; strings live in the arena. Without texts: one point and no key. MR_E_USAGE. */
int mr_cli_sweep_parse(const struct mr_strings *texts, struct mr_arena *a, struct mr_cli_sweep *out,
                       struct mr_error *err);
const char *mr_cli_sweep_value(const struct mr_cli_sweep *sw, unsigned point, unsigned axis);

void mr_cli_print_study(const struct mr_study *st, bool thesis);
void mr_cli_print_sweep(const struct mr_cli_sweep *sw);
/* One line per point and policy: the swept keys, then its figures; `millrace sim --csv`. */
void mr_cli_print_csv(const struct mr_cli_sweep *sw);
void mr_cli_print_plan_study(const struct mr_storage_plan *p, const struct mr_scenario *s);
void mr_cli_print_access(const struct mr_scenario *s, const struct mr_access_study *a);
/* The run's own policy among the study's, beside what the run measured; nothing (JSON: null) where the study lacks it.
 */
void mr_cli_print_against(const struct mr_study *st, const struct mr_job_measured *m);
json_t *mr_cli_against_json(const struct mr_study *st, const struct mr_job_measured *m);
/* NULL when out of memory. */
json_t *mr_cli_study_json(const struct mr_study *st, bool thesis, unsigned seeds);
json_t *mr_cli_sweep_json(const struct mr_cli_sweep *sw, bool thesis, unsigned seeds);
json_t *mr_cli_plan_study_json(const struct mr_storage_plan *p, const struct mr_scenario *s);
json_t *mr_cli_access_json(const struct mr_scenario *s, const struct mr_access_study *a);
/* A self-contained SVG: run time over the one key's values, one line per policy, the bound dashed; with several seeds
 * bars from the least to the most. */
int mr_cli_sweep_svg(const struct mr_cli_sweep *sw, struct mr_strbuf *out, struct mr_error *err);
/* The page of a study or a sweep; `x` explains the simulated trace of the one policy, or is NULL. */
int mr_cli_sim_page(const struct mr_cli_sweep *sw, const struct mr_explanation *x, const char *path,
                    struct mr_error *err);

#endif
