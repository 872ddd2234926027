/* Finding workloads from the command line. The environment and the place of the program are looked at here, never in
 * the libraries. */
#include "cli/workload_args.h"

#include "base/common.h"
#include "base/log.h"

#include <millrace/plugin.h>

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

static void add_folder(struct mr_strings *list, const char *folder)
{
    if (folder && *folder)
        list->item[list->n++] = folder;
}

/* Where the program lies, without its name; "" if unknown. Bare environments (chroot) have no /proc; the kernel has
 * then still told by which name the program was started. `out` holds PATH_MAX. */
static void program_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    const char *started = (const char *)(uintptr_t)getauxval(AT_EXECFN);
    out[n > 0 ? n : 0] = '\0';
    if (n <= 0 && (!started || !realpath(started, out)))
        out[0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
}

/* The folder `levels` above `folder`, which is canonical; "" above the root. */
static const char *folder_above(const char *folder, unsigned levels, struct mr_arena *a)
{
    char *copy = mr_arena_strdup(a, folder);
    for (unsigned i = 0; copy && i < levels; i++) {
        char *slash = strrchr(copy, '/');
        if (slash)
            *slash = '\0';
    }
    return copy ? copy : "";
}

/* A folder that was named must be there: going on without it would find another file of the same name. */
static int add_named(struct mr_strings *list, const char *folder, const char *origin, struct mr_error *err)
{
    struct stat st;
    if (!folder || !*folder)
        return 0;
    int code = stat(folder, &st) != 0 || (S_ISDIR(st.st_mode) && access(folder, R_OK | X_OK) != 0) ? errno
               : S_ISDIR(st.st_mode)                                                               ? 0
                                                                                                   : ENOTDIR;
    if (code)
        return mr_error_set(err, MR_E_USAGE, "cannot read the folder '%s' of '%s': %s", folder, origin, strerror(code));
    add_folder(list, folder);
    return 0;
}

int mr_cli_search_path(const char *config_dir, struct mr_arena *a, struct mr_strings *out, struct mr_error *err)
{
    struct mr_strings list = {.item = mr_arena_alloc(a, 8 * sizeof(*list.item))};
    char exe[PATH_MAX];
    if (!list.item)
        return mr_error_set(err, -ENOMEM, "cannot hold the search path");
    int rc = add_named(&list, config_dir, "--config-dir", err);
    if (!rc)
        rc = add_named(&list, getenv("MILLRACE_WORKLOADS"), "MILLRACE_WORKLOADS", err);
    if (rc)
        return rc;
    program_folder(exe);
    if (*exe) {
        add_folder(&list, mr_arena_printf(a, "%s/share/millrace/workloads", folder_above(exe, 1, a)));
        add_folder(&list, mr_arena_printf(a, "%s/workloads", folder_above(exe, 2, a)));
        add_folder(&list, mr_arena_printf(a, "%s/workloads", folder_above(exe, 3, a))); /* build/<preset>/bin */
    }
    *out = list;
    return 0;
}

static enum mr_cli_plugins plugins = MR_CLI_PLUGINS_REFUSED;

void mr_cli_set_plugins(enum mr_cli_plugins how)
{
    plugins = how;
}

int mr_cli_load_plugin(const char *path, enum mr_origin from, struct mr_error *err)
{
    if (plugins == MR_CLI_PLUGINS_UNUSED) {
        mr_log(MR_LOG_NOTE,
               "the plug-in '%s' is not loaded, because this command runs no code of a workload; names from it are "
               "unknown (to load it anyway: MILLRACE_PLUGIN_PATH)",
               path);
        return 0;
    }
    if (from != MR_ORIGIN_FILE || plugins == MR_CLI_PLUGINS_ALLOWED)
        return mr_plugin_load(path, err);
    mr_error_plain(err, MR_E_CONFIG, "the workload names the plug-in '%s': code that would run with your rights", path);
    return mr_error_hint(err, "if you trust the file and the plug-in, add --allow-plugins"), MR_E_CONFIG;
}

void mr_cli_log_notes(const struct mr_workload *w)
{
    for (unsigned i = 0; i < w->notes.n; i++)
        mr_log(MR_LOG_NOTE, "%s", w->notes.item[i]);
}

int mr_cli_workload(const char *workload, const char *config_dir, const struct mr_strings *overrides, bool lenient,
                    struct mr_arena *a, struct mr_workload **out, struct mr_error *err)
{
    struct mr_workload_request req = {.workload = workload, .envp = environ, .lenient = lenient};
    if (overrides)
        req.overrides = *overrides;
    int rc = mr_cli_search_path(config_dir, a, &req.search_path, err);
    if (!rc)
        rc = mr_workload_resolve(&req, a, out, err);
    if (!rc)
        mr_cli_log_notes(*out);
    return rc;
}

int mr_cli_widest(const struct mr_strings *names, int least)
{
    for (unsigned i = 0; i < names->n; i++)
        least = MR_MAX(least, (int)strlen(names->item[i]));
    return least;
}
