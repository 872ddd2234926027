/* Budgets: limits for the figures of a report, checked by `millrace check`. A file of them:
 *
 *     baseline: runs/main              # optional: runs that "baseline" stands for
 *     budget:
 *       - au            >= 0.90
 *       - stall_pct     <= 5
 *       - wall_s        <= baseline * 1.03
 *       - findings.critical == 0
 *
 * A name is a key of `millrace report --json`, with dots between the levels (verdict.stall_share, trust.cold_fraction),
 * its last part alone where only one key ends so (au), "findings." and a severity, "total" or a rule (how many), "run."
 * and a key of summary.json's "millrace" object, or one of the short names in budget.c. A figure that is not known
 * meets no limit. */
#ifndef MR_REPORT_BUDGET_H
#define MR_REPORT_BUDGET_H

#include "base/arena.h"

#include <jansson.h>
#include <millrace/error.h>
#include <stdbool.h>

enum mr_budget_op {
    MR_BUDGET_AT_LEAST,
    MR_BUDGET_AT_MOST,
    MR_BUDGET_ABOVE,
    MR_BUDGET_BELOW,
    MR_BUDGET_IS,
    MR_BUDGET_IS_NOT
};

struct mr_budget_line {
    const char *text; /* as it stands in the file */
    const char *name;
    enum mr_budget_op op;
    bool of_baseline;
    double factor; /* the limit, or what the baseline is multiplied with */
    unsigned line; /* of the file */
    /* by mr_budget_check */
    double have, limit; /* NAN unknown */
    bool met;
};

struct mr_budget {
    const char *file, *baseline; /* baseline: NULL none */
    struct mr_budget_line *line;
    unsigned lines;
};

/* MR_E_CONFIG with file and line for what cannot be read. Everything lives in the arena. */
int mr_budget_load(const char *path, struct mr_arena *a, struct mr_budget *out, struct mr_error *err);
/* One line, as from the command line. */
int mr_budget_parse_line(const char *text, struct mr_arena *a, struct mr_budget_line *out, struct mr_error *err);

/* The figures of one report: {"name": number}. `report` is the object of report --json, `summary` that of summary.json
 * or NULL. A new reference; NULL without memory. */
json_t *mr_budget_figures(const json_t *report, const json_t *summary);
/* The mean of each figure over several reports; a figure that one of them lacks is unknown. A new reference. */
json_t *mr_budget_mean(json_t *const *figures, size_t n);
/* Fills `have`, `limit` and `met` of all lines. MR_E_CONFIG for a name that no report has. `baseline` may be NULL when
 * no line asks for it. */
int mr_budget_check(struct mr_budget *b, const json_t *figures, const json_t *baseline, struct mr_error *err);

#endif
