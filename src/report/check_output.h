/* The result of `millrace check`, for people and for machines. */
#ifndef MR_REPORT_CHECK_OUTPUT_H
#define MR_REPORT_CHECK_OUTPUT_H

#include "report/budget.h"

#include <stdio.h>

struct mr_check_result {
    const struct mr_budget *budget; /* checked */
    size_t runs, baseline_runs;
    bool incomplete, untrusted;
};

/* Whether the line was checked: neither figure nor limit is unknown or infinite. */
bool mr_check_knows(const struct mr_budget_line *l);

void mr_check_print(FILE *f, const struct mr_check_result *r);
int mr_check_print_json(FILE *f, const struct mr_check_result *r, struct mr_error *err);
/* ::error lines of GitHub's workflows, one per miss. */
void mr_check_print_github(FILE *f, const struct mr_check_result *r);
/* JUnit XML: one test case per line of the budget. */
int mr_check_write_junit(const char *path, const char *what, const struct mr_check_result *r, struct mr_error *err);

#endif
