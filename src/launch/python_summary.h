/* What happened to the Python programs of a traced run: see python_summary.c. */
#ifndef MR_LAUNCH_PYTHON_SUMMARY_H
#define MR_LAUNCH_PYTHON_SUMMARY_H

#include <stddef.h>

/* Removes the file `python` of the spool folder; one line about what it says goes to `out`, which is empty if no Python
 * ran. `on`: Python was to be instrumented. */
void mr_python_summary(const char *spool, int on, char *out, size_t cap);

#endif
