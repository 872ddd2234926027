/* Shared by the commands that take a workload: where presets are searched. */
#ifndef MR_CLI_WORKLOAD_ARGS_H
#define MR_CLI_WORKLOAD_ARGS_H

#include "conf/workload.h"

/* --config-dir (may be ""), then $MILLRACE_WORKLOADS, then ../share/millrace/workloads beside the program, then the
 * source tree's workloads/ when the program lies in a build folder of it. */
int mr_cli_search_path(const char *config_dir, struct mr_arena *a, struct mr_strings *out, struct mr_error *err);

/* What a workload's author should know, each as a note. */
void mr_cli_log_notes(const struct mr_workload *w);
/* Resolves with this process's environment and logs each note. `workload` may be NULL when the overrides name one. */
int mr_cli_workload(const char *workload, const char *config_dir, const struct mr_strings *overrides, bool lenient,
                    struct mr_arena *a, struct mr_workload **out, struct mr_error *err);

/* The width of a column for these names, `least` or more: a long name must not push the next columns aside. */
int mr_cli_widest(const struct mr_strings *names, int least);

#endif
