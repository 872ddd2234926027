/* `millrace recover`: turns what a killed trace left behind into a whole .mrt file. */
#include "cli/commands.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "event/collect.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recover_options {
    const char *from, *out;
    bool json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct recover_options, name)
static const struct mr_option recover_options[] = {
    {FIELD(from), .type = MR_OPT_STRING, .def = "", .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED,
     .doc = "The trace file of the interrupted 'millrace trace', its spool folder, or the folder given as "
            "MILLRACE_TRACE_OUT."},
    {FIELD(out), .type = MR_OPT_STRING, .def = "", .short_flag = 'o',
     .doc = "The trace file to write or continue; by default the interrupted one, or FOLDER/recovered.mrt."},
    {FIELD(json), .type = MR_OPT_BOOL, .def = "false", .short_flag = 'j', .doc = "Prints one JSON object."},
    MR_OPTION_END,
};

static int locate(const struct recover_options *o, char spool[PATH_MAX], char out[PATH_MAX], struct mr_error *err)
{
    struct stat st;
    char link[PATH_MAX];
    if (stat(o->from, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!realpath(o->from, spool))
            return mr_error_set(err, -errno, "cannot find '%s'", o->from);
        size_t n = strlen(o->from);
        if (*o->out)
            snprintf(out, PATH_MAX, "%s", o->out);
        else if (n > 6 && !strcmp(o->from + n - 6, ".spool"))
            snprintf(out, PATH_MAX, "%.*s", (int)(n - 6), o->from);
        else
            snprintf(out, PATH_MAX, "%.4000s/recovered.mrt", spool);
        return 0;
    }
    snprintf(link, sizeof(link), "%.4000s.spool", o->from);
    if (!realpath(link, spool)) {
        mr_error_plain(err, MR_E_FORMAT, "nothing to recover for '%s': there is no '%s'", o->from, link);
        return mr_error_hint(err, "a complete trace needs no recovery; look at it with 'millrace report %s'", o->from),
               MR_E_FORMAT;
    }
    snprintf(out, PATH_MAX, "%.4000s", *o->out ? o->out : o->from);
    return 0;
}

/* Rings of ended processes that are still there: they could not be read. Names each, and counts them. */
static unsigned tell_unreadable(const char *spool)
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

static int recover_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct recover_options *o = ctx->options;
    char spool[PATH_MAX], out[PATH_MAX], link[PATH_MAX + 8], n1[MR_HUMAN_LEN], n2[MR_HUMAN_LEN];
    struct mr_collector *c = NULL;
    struct mr_collect_stats s;
    int rc = locate(o, spool, out, err);
    bool fresh = rc == 0 && access(out, F_OK) != 0;
    rc = rc ? rc : mr_collector_open(spool, out, false, true, 0, &c, err);
    rc = rc ? rc : mr_collector_close(c, &s, err);
    if (rc < 0)
        return rc;
    snprintf(link, sizeof(link), "%s.spool", out);
    if (access(spool, F_OK) != 0)
        unlink(link);
    unsigned unreadable = tell_unreadable(spool);
    bool nothing = fresh && !s.events && !s.processes;
    if (nothing) { /* a folder of something else is left as it was */
        unlink(out);
        s.bytes = 0;
    }
    if (o->json)
        printf("{\"schema\":\"millrace.recover/"
               "1\",\"events\":%llu,\"processes\":%llu,\"lost_events\":%llu,\"killed_processes\":%u,"
               "\"running_processes\":%u,\"unreadable_rings\":%u,\"file_bytes\":%llu}\n",
               (unsigned long long)s.events, (unsigned long long)s.processes, (unsigned long long)s.lost, s.killed,
               s.running, unreadable, (unsigned long long)s.bytes);
    else if (nothing)
        printf("nothing to recover in '%s'\n", o->from);
    else
        printf("recovered %s events of %s process%s into '%s'\n", mr_human_count(s.events, n1),
               mr_human_count(s.processes, n2), s.processes == 1 ? "" : "es", out);
    if (s.running)
        mr_log(MR_LOG_WARN, "%u processes still run", s.running);
    return 0;
}

const struct mr_command mr_cmd_recover = {
    .name = "recover",
    .synopsis = "[options] TRACE|FOLDER",
    .summary = "Completes a trace that was interrupted.",
    .details = "Events live in shared memory until they are written to the trace, so a killed program or a killed "
               "collector loses nothing. "
               "This command writes what is left into the trace file and removes the leftovers.\n\n"
               "Example:\n  millrace recover run.mrt",
    .table = {.section = "recover",
              .doc = "Recovery.",
              .options = recover_options,
              .struct_bytes = sizeof(struct recover_options)},
    .run = recover_run,
};
