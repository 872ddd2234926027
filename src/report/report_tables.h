/* The tables of `millrace report`: who ran, what was called, how long, on which files; and its JSON, which holds these
 * and the explanation. */
#ifndef MR_REPORT_REPORT_TABLES_H
#define MR_REPORT_REPORT_TABLES_H

#include "analyze/summary.h"
#include "explain/explain.h"

#include <jansson.h>
#include <stdio.h>

/* `top`: how many files. */
void mr_report_print_tables(FILE *out, const struct mr_summary *s, int64_t top);
/* To standard output. `x` and `run` may be NULL: not asked for, not of our own trainer; takes `run`. */
int mr_report_print_json(const struct mr_summary *s, const struct mr_explanation *x, json_t *run, int64_t top,
                         struct mr_error *err);

#endif
