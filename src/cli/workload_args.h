/* Shared by the commands that take a workload: where presets are searched, and how a workload and its plan are shown.
 */
#ifndef MR_CLI_WORKLOAD_ARGS_H
#define MR_CLI_WORKLOAD_ARGS_H

#include "conf/plan.h"
#include "conf/workload.h"

#include <stdio.h>

/* --config-dir (may be ""), then $MILLRACE_WORKLOADS, then ../share/millrace/workloads beside the program, then the
 * source tree's workloads/ when the program lies in a build folder of it. */
int mr_cli_search_path(const char *config_dir, struct mr_arena *a, struct mr_strings *out, struct mr_error *err);

/* What a workload's author should know, each as a note. */
void mr_cli_log_notes(const struct mr_workload *w);
/* Resolves with this process's environment and logs each note. `workload` may be NULL when the overrides name one. */
int mr_cli_workload(const char *workload, const char *config_dir, const struct mr_strings *overrides, bool lenient,
                    struct mr_arena *a, struct mr_workload **out, struct mr_error *err);

/* Every value with its origin, or only those that are not defaults. */
void mr_cli_print_config(FILE *out, const struct mr_workload *w, bool all);
void mr_cli_print_plan(FILE *out, const struct mr_workload *w, const struct mr_plan *p);
/* {"name", "file", "source", ...}, the plan with units in the keys, the expectations. NULL when out of memory. */
json_t *mr_cli_workload_json(const struct mr_workload *w);
json_t *mr_cli_plan_json(const struct mr_workload *w, const struct mr_plan *p);
/* Prints and frees `root`; -ENOMEM if it is NULL. */
int mr_cli_print_json(FILE *out, json_t *root, struct mr_error *err);

/* The width of a column for these names, `least` or more: a long name must not push the next columns aside. */
int mr_cli_widest(const struct mr_strings *names, int least);

#endif
