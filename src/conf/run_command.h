/* The command that repeats a run, for findings that suggest to run it again with one thing changed. Every option and
 * every key of the workload that was set on the command line or in the environment comes back, in canonical form, by
 * the tables of options and of the workload: a new row is part of it without another line of code.
 *
 *   summary.json: options, config ──mr_run_command──> "w.yaml --seed 7 reader.batch_size=4"
 *   ──mr_run_command_with "reader.batch_size=8"──> "w.yaml --seed 7 reader.batch_size=8"
 *
 * Left out: options with MR_OPTF_RESULT and their keys (a second run in the same results folder is refused), secrets
 * (never printed). */
#ifndef MR_CONF_RUN_COMMAND_H
#define MR_CONF_RUN_COMMAND_H

#include "base/arena.h"

#include <jansson.h>

/* The words after `millrace run`, quoted for a shell, from what mr_job_options_to_json and mr_workload_to_json wrote.
 * NULL: unknown (something is missing, or a value is too long), or out of memory. */
const char *mr_run_command(const json_t *options, const json_t *config, struct mr_arena *a);
/* The command with `settings` (words that need no quotes) at its end, and without the words that set the same:
 * reader.read_threads=8 also replaces --threads, which would win over it. NULL when out of memory. */
const char *mr_run_command_with(const char *command, const char *settings, struct mr_arena *a);

#endif
