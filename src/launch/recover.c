/* Completing an interrupted trace: the collector runs once over the rings that were left behind. */
#include "launch/recover.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The spool folder and the trace file. */
static int locate(const char *from, const char *want, char spool[PATH_MAX], char out[PATH_MAX], struct mr_error *err)
{
    struct stat st;
    char link[PATH_MAX];
    if (stat(from, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!realpath(from, spool))
            return mr_error_set(err, -errno, "cannot find '%s'", from);
        size_t n = strlen(from);
        if (*want)
            snprintf(out, PATH_MAX, "%s", want);
        else if (n > 6 && !strcmp(from + n - 6, ".spool"))
            snprintf(out, PATH_MAX, "%.*s", (int)(n - 6), from);
        else
            snprintf(out, PATH_MAX, "%.4000s/recovered.mrt", spool);
        return 0;
    }
    snprintf(link, sizeof(link), "%.4000s.spool", from);
    if (!realpath(link, spool)) {
        char word[1024];
        mr_error_plain(err, MR_E_FORMAT, "nothing to recover for '%s': there is no '%s'", from, link);
        return mr_error_hint(err, "a complete trace needs no recovery; look at it with 'millrace report %s'",
                             mr_shell_word(from, word, sizeof word)),
               MR_E_FORMAT;
    }
    snprintf(out, PATH_MAX, "%.4000s", *want ? want : from);
    return 0;
}

/* Rings of ended processes that are still there could not be read. Names each in a warning; returns how many. */
static unsigned warn_unreadable(const char *spool)
{
    DIR *d = opendir(spool);
    unsigned n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        long pid = strtol(e->d_name, NULL, 10);
        if (len < 5 || strcmp(e->d_name + len - 5, ".ring") != 0 || pid <= 0 || kill((pid_t)pid, 0) == 0 ||
            errno != ESRCH)
            continue;
        mr_log(MR_LOG_WARN, "'%s/%s' cannot be recovered: it is damaged, or of another version of millrace", spool,
               e->d_name);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

/* Whether `millrace trace` has made the folder. The collector, which opens the file, looks what is in it. */
static bool has_session(const char *spool)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/session", spool);
    return access(path, F_OK) == 0;
}

/* Beside the rings, what `millrace trace` would have read when it ended. */
static void remove_notes(const char *spool)
{
    static const char *const names[] = {"python", "unseen"};
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.4000s/%s", spool, names[i]);
        unlink(path);
    }
}

int mr_recover(const char *from, const char *out, struct mr_recovery *result, struct mr_error *err)
{
    char spool[PATH_MAX], link[PATH_MAX + 8];
    struct mr_recovery r = {0};
    struct mr_collector *c = NULL;
    int rc = locate(from, out, spool, r.out, err);
    bool fresh = rc == 0 && access(r.out, F_OK) != 0;
    bool ours = rc == 0 && has_session(spool);
    rc = rc ? rc : mr_collector_open(spool, r.out, false, true, 0, &c, err);
    if (rc == 0 && ours)
        remove_notes(spool);
    rc = rc ? rc : mr_collector_close(c, &r.stats, err);
    if (rc < 0)
        return rc;
    snprintf(link, sizeof(link), "%s.spool", r.out);
    if (access(spool, F_OK) != 0)
        unlink(link);
    r.unreadable = warn_unreadable(spool);
    r.nothing = fresh && !r.stats.events && !r.stats.processes;
    if (r.nothing) { /* leave a folder that is no spool as it was */
        unlink(r.out);
        r.stats.bytes = 0;
    }
    *result = r;
    return 0;
}
