/* The table of global options and `millrace --version`. */
#include "cli/globals.h"

#include "base/common.h"
#include "cli/workload_args.h"
#include "report/print.h"
#include "build_info.h"

#include <jansson.h>
#include <millrace/version.h>

#define ROW(key, field, type, def, ...) MR_OPTION(mr_globals, key, field, type, def, __VA_ARGS__)
static const struct mr_option globals_options[] = {
    ROW("help", help, BOOL, "false", .short_flag = 'h', .doc = "Shows the command's help and does nothing else."),
    ROW("verbose", verbose, BOOL, "false", .short_flag = 'v', .doc = "Logs more to standard error."),
    ROW("debug", debug, BOOL, "false", .doc = "Logs everything to standard error."),
    ROW("quiet", quiet, BOOL, "false", .short_flag = 'q', .doc = "Logs only warnings and errors to standard error."),
    MR_OPTION_END,
};

const struct mr_option_table mr_globals_table = {
    .section = "",
    .doc = "Options of every command",
    .options = globals_options,
    .struct_bytes = sizeof(struct mr_globals),
};

static const struct {
    const char *name;
    bool present;
} features[] = {
    {"hdf5", true},
    {"io_uring", MR_BUILD_URING},
    {"mpi", MR_BUILD_MPI},
};

static int print_json(FILE *out, struct mr_error *err)
{
    json_t *f = json_object(), *root = NULL;
    for (size_t i = 0; i < MR_ARRAY_LEN(features); i++)
        json_object_set_new(f, features[i].name, json_boolean(features[i].present));
    root =
        json_pack("{s:s, s:s, s:o, s:s, s:s, s:s}", "schema", "millrace.version/1", "version", MR_VERSION, "features",
                  f, "compiler", MR_BUILD_COMPILER, "build_type", MR_BUILD_TYPE, "sanitizers", MR_BUILD_SANITIZE);
    return mr_cli_print_json(out, root, err);
}

int mr_version_print(FILE *out, bool json, struct mr_error *err)
{
    if (json)
        return print_json(out, err);
    fprintf(out, "millrace %s\nfeatures:", MR_VERSION);
    for (size_t i = 0; i < MR_ARRAY_LEN(features); i++)
        fprintf(out, " %s%s", features[i].present ? "+" : "-", features[i].name);
    fprintf(out, "\nbuilt with: %s, %s%s%s\n", MR_BUILD_COMPILER, MR_BUILD_TYPE,
            *MR_BUILD_SANITIZE ? ", sanitizers " : "", MR_BUILD_SANITIZE);
    return 0;
}
