/* The trace of a job: step-level events in the results folder, or with --trace every event in a file of the user's
 * choice. Each rank that is a process writes a part of its own, PATH.rank-R; when all are done the reporter joins them
 * to PATH. Parts of ranks on hosts that do not share the folder stay where they are, and that is said. */
#include "base/common.h"
#include "base/log.h"
#include "event/emit.h"
#include "event/mrt_file.h"
#include "job/job_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mr_job_trace_path(const struct mr_job *j, char *out, size_t cap)
{
    if (*j->opt.trace)
        snprintf(out, cap, "%s", j->opt.trace);
    else
        snprintf(out, cap, "%s/trace.mrt", j->out);
}

static void part_path(const struct mr_job *j, uint32_t rank, char *out, size_t cap)
{
    char whole[4200];
    mr_job_trace_path(j, whole, sizeof whole);
    if (j->comm->world == 1)
        snprintf(out, cap, "%s", whole);
    else
        snprintf(out, cap, "%s.rank-%u", whole, rank);
}

int mr_job_trace_open(struct mr_job *j, struct mr_error *err)
{
    char path[4300];
    bool asked = *j->opt.trace || j->req.traces_all;
    struct mr_error why;
    part_path(j, j->comm->rank, path, sizeof path);
    int rc = mr_events_open(path, asked ? MR_LEVEL_CALL : MR_LEVEL_STEP, j->comm->rank, j->comm->world, &j->events,
                            asked ? err : &why);
    if (!rc || asked)
        return rc;
    mr_log(MR_LOG_WARN, "this run leaves no trace: %s", why.message);
    return 0;
}

void mr_job_trace_close(struct mr_job *j)
{
    struct mr_error err;
    bool left_behind = atomic_load(&j->result.board->in_use);
    if (mr_events_close(j->events, left_behind, &err) < 0)
        mr_log(MR_LOG_WARN, "the trace of rank %u is incomplete: %s", j->comm->rank, err.message);
    j->events = NULL;
}

/* The parts that are there, one behind the other; those are removed when the whole is complete. */
static int join_parts(const struct mr_job *j, const char *whole, uint32_t *missing, struct mr_error *err)
{
    struct mr_mrt_writer *w = NULL;
    struct mr_error second;
    char part[4300];
    *missing = 0;
    int rc = mr_mrt_writer_open(whole, false, &w, err);
    for (uint32_t r = 0; r < j->comm->world && !rc; r++) {
        part_path(j, r, part, sizeof part);
        if (access(part, R_OK) != 0)
            ++*missing;
        else
            rc = mr_mrt_join(w, part, err);
    }
    int closed = mr_mrt_writer_close(w, rc ? &second : err);
    rc = rc ? rc : closed;
    for (uint32_t r = 0; r < j->comm->world && !rc; r++) {
        part_path(j, r, part, sizeof part);
        unlink(part);
    }
    return rc;
}

/* So that the results folder leads to its trace, wherever that was put; one of an earlier run is not this one's. */
static void link_into_results(const struct mr_job *j)
{
    char full[PATH_MAX], link[4200];
    struct stat a, b;
    snprintf(link, sizeof link, "%s/trace.mrt", j->out);
    if (!*j->opt.trace || !realpath(j->opt.trace, full) || stat(full, &a) != 0)
        return;
    if (stat(link, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return;
    if ((unlink(link) != 0 && errno != ENOENT) || symlink(full, link) != 0)
        mr_log(MR_LOG_WARN, "cannot name the trace in '%s': %s", j->out, strerror(errno));
}

void mr_job_trace_drop(const struct mr_job *j)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/trace.mrt", j->out);
    if (!j->result.is_whole)
        unlink(path);
}

void mr_job_trace_join(struct mr_job *j)
{
    char whole[4200];
    uint32_t missing = 0;
    struct mr_error err;
    mr_job_trace_path(j, whole, sizeof whole);
    int rc = j->comm->world > 1 ? join_parts(j, whole, &missing, &err) : 0;
    if (rc)
        mr_log(MR_LOG_WARN, "the ranks' traces could not be joined, they are '%s.rank-*': %s", whole, err.message);
    else if (missing)
        mr_job_note(&j->notes, j->arena, "the trace lacks %u of %u ranks, whose hosts do not see '%s'", missing,
                    j->comm->world, whole);
    link_into_results(j);
}
