/* MILLRACE_TRACE_PYTHON: what `millrace trace --python` does to the environment is done here for the library alone, and
 * for programs that are started with another PYTHONPATH, or none, before their main. Python then finds our
 * sitecustomize first, which instruments libraries as they are imported. */
#include "base/common.h"
#include "tracer/tracer_core.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

#define VARIABLE "PYTHONPATH="
#define AUTOLOAD "/millrace/trace/autoload"

/* Folders of Python sources, seen from the one that the library is in: where it was built, unpacked or installed. */
static const char *const places[] = {"/../python", "/../share/millrace/python", "/../../share/millrace/python",
                                     "/../../../share/millrace/python"};

static bool is_there(char folder[MR_PATH_BYTES], size_t n)
{
    mr_copy_text(folder + n, MR_PATH_BYTES - n, AUTOLOAD "/sitecustomize.py");
    bool there = mr_sys3(SYS_faccessat, AT_FDCWD, folder, R_OK) == 0;
    folder[n] = 0;
    return there;
}

static bool find_folder(char out[MR_PATH_BYTES])
{
    size_t folder = mr_library_path(out, MR_PATH_BYTES, NULL);
    while (folder && out[--folder] != '/') {
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(places); i++) {
        size_t n = folder + strlen(places[i]);
        if (n + sizeof(AUTOLOAD "/sitecustomize.py") > MR_PATH_BYTES)
            continue;
        mr_copy_text(out + folder, MR_PATH_BYTES - folder, places[i]);
        if (is_there(out, n))
            return true;
    }
    return false;
}

/* Whether it is there already, by whatever path: put by the command, or by the program that started this one. */
static bool lists_autoload(const char *value)
{
    const size_t tail = sizeof(AUTOLOAD) - 1;
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, ":");
        if (n > tail && !memcmp(p + n - tail, AUTOLOAD, tail))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}

/* The environment with "PYTHONPATH=<folder>/millrace/trace/autoload:<folder>:<as before>". It stays: the program may
 * keep pointers to it. */
static void put_first(const char *folder, const char *before)
{
    size_t n = 0, k = 0, len = sizeof(VARIABLE) + 2 * strlen(folder) + sizeof(AUTOLOAD) + strlen(before) + 2;
    while (environ[n])
        n++;
    char **copy = mr_map_pages((n + 2) * sizeof(*copy) + len), *text = copy ? (char *)(copy + n + 2) : NULL;
    if (!copy)
        return;
    const char *const parts[] = {VARIABLE, folder, AUTOLOAD, ":", folder, *before ? ":" : "", before};
    for (size_t i = 0, at = 0; i < MR_ARRAY_LEN(parts); i++)
        at += mr_copy_text(text + at, len - at, parts[i]);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], VARIABLE, sizeof(VARIABLE) - 1) != 0)
            copy[k++] = environ[i];
    copy[k++] = text;
    copy[k] = NULL;
    environ = copy;
}

void mr_python_begin(void)
{
    char folder[MR_PATH_BYTES];
    const char *before = "";
    for (char **e = environ; e && *e; e++)
        if (!strncmp(*e, VARIABLE, sizeof(VARIABLE) - 1))
            before = *e + sizeof(VARIABLE) - 1;
    if (!environ || lists_autoload(before))
        return;
    if (find_folder(folder))
        put_first(folder, before);
    else
        mr_say_plain("MILLRACE_TRACE_PYTHON: the Python files are not where they belong beside the library; Python "
                     "programs are not instrumented");
}
