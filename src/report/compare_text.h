/* A comparison on the terminal. */
#ifndef MR_REPORT_COMPARE_TEXT_H
#define MR_REPORT_COMPARE_TEXT_H

#include "compare/compare.h"

#include <stdio.h>

void mr_compare_print(FILE *f, const struct mr_compare *c);

#endif
