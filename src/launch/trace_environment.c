/* The environment of a traced program. Variables that a setting leaves empty are removed: what the caller had in them
 * must not change what is recorded. A program that cannot load the library (another C library, another machine) gets no
 * LD_PRELOAD, or its loader would print an error. */
#include "launch/trace_environment.h"
#include "base/strbuf.h"
#include "event/program_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder of this program, to find what lies beside it. */
static int own_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n <= 0)
        return -1;
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

static const char *first_existing(const char *folder, const char *const *names, char out[PATH_MAX])
{
    for (; *names; names++) {
        char path[PATH_MAX * 2];
        snprintf(path, sizeof(path), "%s/%s", folder, *names);
        if (realpath(path, out))
            return out;
    }
    return NULL;
}

int mr_trace_library_find(char out[PATH_MAX], struct mr_error *err)
{
    static const char *const places[] = {"../lib/libmillrace_trace.so",
                                         "../lib/millrace/libmillrace_trace.so",
                                         "../lib64/millrace/libmillrace_trace.so",
                                         "../lib/x86_64-linux-gnu/millrace/libmillrace_trace.so",
                                         "../lib/aarch64-linux-gnu/millrace/libmillrace_trace.so",
                                         "libmillrace_trace.so",
                                         NULL};
    char folder[PATH_MAX];
    if (own_folder(folder) == 0 && first_existing(folder, places, out))
        return 0;
    mr_error_plain(err, MR_E_CONFIG, "cannot find 'libmillrace_trace.so' near this program");
    return mr_error_hint(err, "install Millrace with 'make install', or run it from its build folder"), MR_E_CONFIG;
}

static void set_or_unset(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void set_number(const char *name, int64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)value);
    set_or_unset(name, value ? number : NULL);
}

static void prepend(const char *name, const char *value, char separator)
{
    const char *old = getenv(name);
    struct mr_strbuf s = {0};
    mr_strbuf_printf(&s, "%s", value);
    if (old && *old)
        mr_strbuf_printf(&s, "%c%s", separator, old);
    if (s.text)
        setenv(name, s.text, 1);
    mr_strbuf_done(&s);
}

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

/* Switching it off where it is off does nothing. */
bool mr_trace_strays_possible(void)
{
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) == 0;
}

static long read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return pread(fd, to, bytes, (off_t)at);
}

/* Whether the loader of this program would reject the library. `depth`: the recursion ends at a script's interpreter.
 */
static bool cannot_load(const char *path, bool *found, unsigned depth)
{
    char first[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *found = fd >= 0 && access(path, X_OK) == 0;
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, first, sizeof(first) - 1, 0);
    bool script = n > 0 && mr_script_program(first, (size_t)n), ignored;
    bool foreign = *found && !script && mr_program_kind(fd, read_at) == MR_PROGRAM_FOREIGN;
    close(fd);
    return foreign || (*found && script && !depth && cannot_load(first, &ignored, 1));
}

/* 0, or why a file cannot be executed. */
static int cannot_run(const char *path, unsigned depth)
{
    struct stat st;
    char first[256];
    if (stat(path, &st) < 0)
        return errno;
    if (!S_ISREG(st.st_mode) || access(path, X_OK) < 0)
        return EACCES;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, first, sizeof(first) - 1, 0) : 0;
    if (fd >= 0) /* else it may be run, but not read */
        close(fd);
    return n > 0 && !depth && mr_script_program(first, (size_t)n) ? cannot_run(first, 1) : 0;
}

int mr_trace_program_missing(const char *name)
{
    int why = ENOENT;
    if (strchr(name, '/'))
        return cannot_run(name, 0);
    const char *p = getenv("PATH");
    for (p = p ? p : "/bin:/usr/bin"; *p; p += strcspn(p, ":") + (p[strcspn(p, ":")] != 0)) {
        char full[PATH_MAX];
        int k = (int)strcspn(p, ":");
        snprintf(full, sizeof(full), "%.*s/%s", k ? k : 1, k ? p : ".", name);
        int now = cannot_run(full, 0);
        if (!now)
            return 0;
        why = now == EACCES ? EACCES : why; /* as execvp has it */
    }
    return *name ? why : ENOENT;
}

static bool program_cannot_load(const char *name)
{
    bool found = false, foreign = false;
    if (strchr(name, '/'))
        return cannot_load(name, &found, 0);
    const char *p = getenv("PATH");
    for (p = p ? p : "/bin:/usr/bin"; *p && !found; p += strcspn(p, ":") + (p[strcspn(p, ":")] != 0)) {
        char full[PATH_MAX];
        int k = (int)strcspn(p, ":");
        snprintf(full, sizeof(full), "%.*s/%s", k ? k : 1, k ? p : ".", name);
        foreign = cannot_load(full, &found, 0);
    }
    return foreign;
}

void mr_trace_environment_set(const struct mr_trace_settings *s, const char *program, const char *library,
                              const char *spool)
{
    setenv("MILLRACE_SPOOL", spool, 1);
    set_or_unset("MILLRACE_TRACE_INCLUDE", s->include);
    set_or_unset("MILLRACE_TRACE_EXCLUDE", s->exclude);
    set_or_unset("MILLRACE_TRACE_GROUPS", s->groups);
    setenv("MILLRACE_TRACE_START", s->start ? "true" : "false", 1);
    set_number("MILLRACE_TRACE_SIGNAL", s->signal);
    set_number("MILLRACE_TRACE_SAMPLE", s->sample);
    set_or_unset("MILLRACE_TRACE_STRAYS", s->strays && mr_trace_strays_possible() ? "1" : NULL);
    if (!program_cannot_load(program))
        prepend("LD_PRELOAD", library, ':');
    /* A program built with a sanitizer insists on being first in the list of libraries; it works as second as well. */
    prepend("ASAN_OPTIONS", "verify_asan_link_order=0", ':');
    setenv("MILLRACE_TRACE_PYTHON", s->python ? "1" : "0", 1); /* the library sees to the rest, in interpreters only */
}
