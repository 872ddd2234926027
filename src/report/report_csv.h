/* The tables of an explanation for a spreadsheet or a time-series database: steps.csv, ranks.csv, files.csv,
 * timeline.csv and metrics.txt (OpenMetrics) in one folder. The first line of a CSV names the columns, with the unit in
 * each name; what is not known is empty. The figures are those of the report. */
#ifndef MR_REPORT_REPORT_CSV_H
#define MR_REPORT_REPORT_CSV_H

#include "explain/explain.h"

/* Makes the folder if it is not there. Each file is whole or not there. */
int mr_report_csv(const char *folder, const struct mr_explanation *x, struct mr_error *err);

#endif
