/* See watch_find.h. Processes lead to their trace by what they hold open: `millrace trace` its output, the ranks of
 * `millrace run` their parts. A traced program leads to `millrace trace`, which is above it or, once it is orphaned,
 * drains the spool that its environment names. */
#include "watch/watch_find.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/vec.h"
#include "event/raw.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANCESTORS 64

/* ---- a process ---- */

static bool is_trace_name(const char *path)
{
    const char *name = strrchr(path, '/'), *end = name ? strstr(name, ".mrt") : NULL;
    return end && (!end[4] || !strncmp(end + 4, ".rank-", 6));
}

/* A trace that the process holds open. */
static bool trace_of(long pid, char path[PATH_MAX])
{
    char dir[64];
    bool found = false;
    snprintf(dir, sizeof dir, "/proc/%ld/fd", pid);
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && !found && (e = readdir(d));) {
        char target[PATH_MAX];
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        found = is_trace_name(target);
        if (found)
            snprintf(path, PATH_MAX, "%s", target);
    }
    if (d)
        closedir(d);
    return found;
}

static long parent_of(long pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* names may have brackets and blanks */
    return end && strlen(end) > 4 ? strtol(end + 4, NULL, 10) : 0;
}

/* The page of the collector in a spool folder; NULL: there is none of this version. */
static struct mr_session *map_session(const char *spool)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%.4000s/session", spool);
    int fd = mr_openat_regular(AT_FDCWD, path, O_RDWR | O_NOFOLLOW, 0, &st);
    if (fd < 0)
        return NULL;
    struct mr_session *s = st.st_size >= (off_t)sizeof(*s)
                               ? mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                               : MAP_FAILED;
    close(fd);
    if (s == MAP_FAILED)
        return NULL;
    if (s->magic == MR_SESSION_MAGIC && s->version == MR_RING_VERSION)
        return s;
    munmap(s, sizeof(*s));
    return NULL;
}

/* The collector of a program that has lost its parents. */
static long collector_of(long pid)
{
    static const char name[] = "MILLRACE_SPOOL=";
    char path[64];
    char *line = NULL;
    size_t cap = 0;
    long found = 0;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&line, &cap, '\0', f) > 0)
        if (!strncmp(line, name, sizeof name - 1)) {
            struct mr_session *s = map_session(line + sizeof name - 1);
            found = s ? (long)s->collector_pid : 0;
            if (s)
                munmap(s, sizeof(*s));
        }
    free(line);
    if (f)
        fclose(f);
    return found;
}

/* A part of a run stands for the run. */
static void whole_run(char path[PATH_MAX])
{
    char *name = strrchr(path, '/');
    if (name && !strncmp(name, "/trace.mrt", 10))
        name[name == path] = '\0';
}

static int find_process(long pid, char path[PATH_MAX], struct mr_error *err)
{
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/%ld", pid);
    if (access(proc, F_OK) != 0)
        return mr_error_plain(err, -ESRCH, "there is no process %ld, and no file of that name", pid);
    bool found = false;
    long at = pid;
    for (unsigned i = 0; i < ANCESTORS && at > 0 && !found; i++, at = found ? at : parent_of(at))
        found = trace_of(at, path);
    long collector = found ? 0 : collector_of(pid);
    found = found || (collector && trace_of(collector, path));
    if (found)
        return whole_run(path), 0;
    mr_error_plain(err, MR_E_USAGE, "process %ld writes no trace", pid);
    return mr_error_hint(err, "start the program with 'millrace trace -o run.mrt -- PROGRAM'"), MR_E_USAGE;
}

int mr_watch_find(const char *word, char path[PATH_MAX], struct mr_error *err)
{
    bool number = *word && strspn(word, "0123456789") == strlen(word) && strlen(word) < 10;
    if (number && access(word, F_OK) != 0)
        return find_process(strtol(word, NULL, 10), path, err);
    if (strlen(word) >= PATH_MAX)
        return mr_error_plain(err, MR_E_USAGE, "the path is too long");
    snprintf(path, PATH_MAX, "%s", word);
    return 0;
}

/* ---- a folder ---- */

struct names {
    MR_VEC(char *) of;
};

static int add_name(struct names *l, const char *folder, const char *name)
{
    char **to = MR_VEC_ADD(&l->of);
    if (!to)
        return -ENOMEM;
    int n = asprintf(to, "%s/%s", folder, name);
    l->of.n -= n < 0;
    return n < 0 ? -ENOMEM : 0;
}

int mr_watch_parts(const char *folder, char ***out, size_t *n, struct mr_error *err)
{
    struct names whole = {0}, part = {0};
    DIR *d = opendir(folder);
    int rc = d ? 0 : mr_error_set(err, -errno, "cannot read '%s'", folder);
    for (const struct dirent *e; d && !rc && (e = readdir(d));) {
        const char *end = strstr(e->d_name, ".mrt");
        if (end && (!end[4] || !strncmp(end + 4, ".rank-", 6)) && add_name(end[4] ? &part : &whole, folder, e->d_name))
            rc = mr_error_set(err, -ENOMEM, "cannot read '%s'", folder);
    }
    if (d)
        closedir(d);
    struct names *best = part.of.n ? &part : &whole, *rest = part.of.n ? &whole : &part;
    for (size_t i = 0; i < rest->of.n; i++)
        free(rest->of.item[i]);
    free(rest->of.item);
    *out = best->of.item;
    *n = best->of.n;
    return rc;
}

/* ---- the collector ---- */

void mr_watch_request(const char *trace, unsigned seconds)
{
    char spool[PATH_MAX];
    snprintf(spool, sizeof spool, "%.4000s.spool", trace);
    struct mr_session *s = mr_is_foreign_link(spool) ? NULL : map_session(spool);
    if (!s)
        return;
    atomic_store_explicit(&s->watched_until_ns, mr_now_ns() + seconds * MR_NS_PER_S, memory_order_relaxed);
    munmap(s, sizeof(*s));
}
