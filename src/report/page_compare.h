/* The page of a comparison: what changed and how sure that is, the steps of all sides over each other, how their
 * lengths are distributed, and every run as a mark. */
#ifndef MR_REPORT_PAGE_COMPARE_H
#define MR_REPORT_PAGE_COMPARE_H

#include "compare/compare.h"

/* "-" for standard output. -errno; a failure leaves no half page. */
int mr_page_compare_write(const char *path, const struct mr_compare *c, struct mr_error *err);

#endif
