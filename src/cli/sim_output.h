/* Showing simulations: tables, JSON, and the plot of a sweep. */
#ifndef MR_CLI_SIM_OUTPUT_H
#define MR_CLI_SIM_OUTPUT_H

#include "base/strbuf.h"
#include "sim/access_study.h"
#include "sim/study.h"

#include <jansson.h>
#include <stdio.h>

extern const char *const mr_cli_sim_methods[];

/* The studies of one key's values, in the order given. */
struct mr_cli_sweep {
    char key[64];
    unsigned n;
    char value[64][32];
    struct mr_study *studies;
};

/* The policy's row, or NULL. */
const struct mr_sim_result *mr_cli_find_policy(const struct mr_study *st, enum mr_policy_id p);

void mr_cli_print_study(const struct mr_study *st, bool thesis);
void mr_cli_print_sweep(const struct mr_cli_sweep *sw);
void mr_cli_print_plan_study(const struct mr_storage_plan *p, const struct mr_scenario *s);
void mr_cli_print_access(const struct mr_scenario *s, const struct mr_access_study *a);
/* NULL when out of memory. */
json_t *mr_cli_study_json(const struct mr_study *st, bool thesis, unsigned seeds);
json_t *mr_cli_sweep_json(const struct mr_cli_sweep *sw, bool thesis, unsigned seeds);
json_t *mr_cli_plan_study_json(const struct mr_storage_plan *p, const struct mr_scenario *s);
json_t *mr_cli_access_json(const struct mr_scenario *s, const struct mr_access_study *a);
/* A self-contained SVG: run time over the key's values, one line per policy, the bound dashed. */
int mr_cli_sweep_svg(const struct mr_cli_sweep *sw, struct mr_strbuf *out, struct mr_error *err);

#endif
