/* The file `unseen` in a folder of rings or traces: a letter and a path, each ended by NUL, one for every start. */
#include "launch/untraced.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAMED 5u

/* By the letter before the path; the text continues with "N times: 'path' ...". */
static const struct {
    char why;
    const char *text;
} reasons[] = {
    {'s', "programs that cannot load the tracer (linked statically, or setuid) were started"},
    {'f', "programs that cannot load the tracer (another C library than glibc, or another machine) ran untraced, with "
          "everything they started,"},
    {'r', "processes ran untraced, for lack of memory or because of their limits (ulimit -v, -f),"},
    {'e', "programs ran untraced, with everything they started, because their arguments left no room for the tracer's "
          "variables,"},
    {'v', "programs ran inside Valgrind, where --strays does not work (everything else is recorded),"},
    {'g', "Go programs, whose own system calls are recorded only with --strays (MILLRACE_TRACE_STRAYS=1), ran"},
    {'d', "libraries were loaded with RTLD_DEEPBIND, whose calls bypass the tracer,"},
    {'m', "libraries were loaded by dlmopen, with a C library of their own that is recorded only with --strays "
          "(MILLRACE_TRACE_STRAYS=1),"},
};

/* Of no interest: PyTorch asks ldconfig, which is linked statically, for the places of libraries at every start. */
static bool is_dull(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && !strcmp(name, "/ldconfig");
}

static unsigned count(const char *list, size_t n, char why, const char *path)
{
    unsigned k = 0;
    for (const char *p = list; p < list + n; p += strlen(p) + 1)
        k += *p == why && !is_dull(p + 1) && (!path || !strcmp(p + 1, path));
    return k;
}

/* An entry with the upper-case letter cancels one with the lower-case letter: the start failed. */
static void warn(char why, const char *text, const char *list, size_t n, bool cut)
{
    const char back = (char)(why - 'a' + 'A');
    unsigned noted = count(list, n, why, NULL), cancelled = count(list, n, back, NULL),
             starts = noted - MR_MIN(noted, cancelled), kinds = 0;
    struct mr_strbuf names = {0};
    for (const char *p = list; p < list + n; p += strlen(p) + 1) {
        bool known =
            *p != why || is_dull(p + 1) || (cancelled && count(list, n, back, p + 1) >= count(list, n, why, p + 1));
        for (const char *q = list; q < p && !known; q += strlen(q) + 1)
            known = !strcmp(p, q);
        if (!known && kinds++ < NAMED)
            mr_strbuf_printf(&names, "%s'%s'", kinds > 1 ? ", " : "", p + 1);
    }
    if (starts)
        mr_log(MR_LOG_WARN, "%s %u%s %s: %s%s", text, starts, cut ? " or more" : "", mr_plural(starts, "time", "times"),
               names.text ? names.text : "", kinds > NAMED ? " ..." : "");
    mr_strbuf_done(&names);
}

void mr_warn_untraced(const char *folder)
{
    char path[PATH_MAX], text[8192];
    snprintf(path, sizeof(path), "%.4000s/unseen", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    if (n <= 0)
        return;
    text[n - 1] = 0;
    for (unsigned i = 0; i < MR_ARRAY_LEN(reasons); i++)
        warn(reasons[i].why, reasons[i].text, text, (size_t)n, n == sizeof(text));
}

/* Rings that are not in the trace yet: the program still runs, or the collector was killed. */
static bool has_rings(const char *folder)
{
    DIR *d = opendir(folder);
    bool found = false;
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        found = n > 5 && !strcmp(e->d_name + n - 5, ".ring");
    }
    if (d)
        closedir(d);
    return found;
}

void mr_warn_unfinished(const char *trace)
{
    char spool[PATH_MAX];
    snprintf(spool, sizeof(spool), "%.4000s.spool", trace);
    if (has_rings(trace) || has_rings(spool))
        mr_log(MR_LOG_WARN,
               "'%s' is not complete: the program still runs, or was killed; in that case run 'millrace recover %s'",
               trace, trace);
}
