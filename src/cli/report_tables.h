/* The tables of `millrace report`: who ran, what was called, how long, on which files; and its JSON, which holds these
 * and the explanation. */
#ifndef MR_CLI_REPORT_TABLES_H
#define MR_CLI_REPORT_TABLES_H

#include "analyze/summary.h"
#include "cli/report_run.h"
#include "explain/explain.h"

/* `top`: how many files. */
void mr_report_print_tables(const struct mr_summary *s, int64_t top);
/* `x` and `run` may be NULL: not asked for, not of our own trainer. */
int mr_report_print_json(const struct mr_summary *s, const struct mr_explanation *x, const struct mr_report_run *run,
                         int64_t top, struct mr_error *err);

#endif
