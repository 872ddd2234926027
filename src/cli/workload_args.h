/* Shared by the commands that take a workload: where presets are searched. */
#ifndef MR_CLI_WORKLOAD_ARGS_H
#define MR_CLI_WORKLOAD_ARGS_H

#include "conf/workload.h"

/* --config-dir (may be ""), then $MILLRACE_WORKLOADS, then ../share/millrace/workloads beside the program, then the
 * source tree's workloads/ when the program lies in a build folder of it. */
int mr_cli_search_path(const char *config_dir, struct mr_arena *a, struct mr_strings *out, struct mr_error *err);

/* What happens with plug-ins that a workload names. Refused until a command sets something else. */
enum mr_cli_plugins {
    MR_CLI_PLUGINS_REFUSED, /* those of a file are refused, those of an override (the user's own word) are loaded */
    MR_CLI_PLUGINS_ALLOWED, /* --allow-plugins */
    MR_CLI_PLUGINS_UNUSED   /* the command only looks: none is loaded, whoever named it */
};
void mr_cli_set_plugins(enum mr_cli_plugins how);
/* The same from a command's two options. */
static inline void mr_cli_choose_plugins(bool looks, bool allow)
{
    mr_cli_set_plugins(looks ? MR_CLI_PLUGINS_UNUSED : allow ? MR_CLI_PLUGINS_ALLOWED : MR_CLI_PLUGINS_REFUSED);
}
/* The loader of mr_workload_set_plugin_loader. */
int mr_cli_load_plugin(const char *path, enum mr_origin from, struct mr_error *err);
#define MR_DOC_ALLOW_PLUGINS                                                                                           \
    "Loads the plug-ins that the workload file names. They are code that runs with your rights: read a file of "       \
    "somebody else's first."

/* What a workload's author should know, each as a note. */
void mr_cli_log_notes(const struct mr_workload *w);
/* Resolves with this process's environment and logs each note. `workload` may be NULL when the overrides name one. */
int mr_cli_workload(const char *workload, const char *config_dir, const struct mr_strings *overrides, bool lenient,
                    struct mr_arena *a, struct mr_workload **out, struct mr_error *err);

/* The width of a column for these names, `least` or more: a long name must not push the next columns aside. */
int mr_cli_widest(const struct mr_strings *names, int least);

#endif
