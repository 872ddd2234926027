/* The results folder of a job: summary.json, config.json, one series of steps per rank and the checkpoints. Every file
 * is written beside its name and renamed, so what is there is whole. */
#include "base/common.h"
#include "base/regular_file.h"
#include "job/job_internal.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the folder ---- */

void mr_job_choose_out(const struct mr_job *j, char *out, size_t cap)
{
    const struct mr_workload *w = j->w;
    char stamp[64];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    if (*j->opt.out || *w->output.folder) {
        snprintf(out, cap, "%s", *j->opt.out ? j->opt.out : w->output.folder);
        return;
    }
    snprintf(out, cap, "results/%s-%s", *w->name ? w->name : "run", stamp);
    for (unsigned i = 2; access(out, F_OK) == 0; i++)
        snprintf(out, cap, "results/%s-%s-%u", *w->name ? w->name : "run", stamp, i);
}

/* Whether a file that a run would replace was not written by one: `mark` stands in the first bytes of ours. A workload
 * file of somebody else's may name any folder for its results. */
static bool is_foreign(const char *out, const char *name, const char *mark)
{
    char path[4300], first[4096];
    snprintf(path, sizeof path, "%s/%s", out, name);
    FILE *f = mr_fopen_regular(path);
    if (!f)
        return access(path, F_OK) == 0;
    size_t n = fread(first, 1, sizeof first, f);
    fclose(f);
    return n && !memmem(first, n, mark, strlen(mark));
}

int mr_job_check_out(const struct mr_job_options *opt, const char *out, struct mr_error *err)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/summary.json", out);
    bool config = !opt->overwrite && is_foreign(out, "config.json", "\"origin\"");
    if (config || (!opt->overwrite && is_foreign(out, "trace.mrt", "MRT"))) {
        mr_error_plain(err, MR_E_USAGE, "the results folder '%s' holds a %s that is not of a run", out,
                       config ? "config.json" : "trace.mrt");
        return mr_error_hint(err, "choose another folder with --out, or replace it with --overwrite"), MR_E_USAGE;
    }
    if (opt->overwrite || access(path, F_OK) != 0)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "the results of another run are in '%s'", out);
    return mr_error_hint(err, "choose another folder with --out, or replace them with --overwrite"), MR_E_USAGE;
}

int mr_job_make_out(struct mr_job *j, struct mr_error *err)
{
    struct mr_store *s;
    bool given = *j->opt.out || *j->w->output.folder;
    if (given && mr_job_check_out(&j->opt, j->out, err))
        return MR_E_USAGE;
    j->made_out = !given || access(j->out, F_OK) != 0;
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    rc = mr_store_mkdirs(s, given ? j->out : "results", err);
    mr_store_close(s);
    while (rc >= 0 && !given && mkdir(j->out, 0777) != 0) {
        if (errno != EEXIST)
            rc = mr_error_set(err, -errno, "cannot make the folder '%s'", j->out);
        else
            mr_job_choose_out(j, j->out, sizeof j->out); /* another run was quicker */
    }
    if (rc >= 0 && access(j->out, W_OK | X_OK) != 0)
        rc = mr_error_set(err, -errno, "cannot write to the results folder '%s'", j->out);
    if (rc < 0)
        mr_error_hint(err, "choose another folder with --out");
    return rc < 0 ? rc : 0;
}

/* ---- files ---- */

/* Opens NAME.tmp in the results folder. */
static FILE *begin(const struct mr_job *j, const char *name, char tmp[4300], struct mr_error *err)
{
    snprintf(tmp, 4300, "%s/%s.tmp", j->out, name);
    FILE *f = mr_fcreate_anew(tmp);
    if (!f)
        mr_error_set(err, -errno, "cannot write '%s'", tmp);
    return f;
}

static int finish(const struct mr_job *j, FILE *f, const char *name, const char *tmp, struct mr_error *err)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/%s", j->out, name);
    errno = 0;
    bool bad = ferror(f) != 0;
    bad |= fflush(f) != 0;
    int code = bad ? errno : 0;
    if (fclose(f) != 0 && !bad) {
        bad = true;
        code = errno;
    }
    if (!bad && rename(tmp, path) == 0)
        return 0;
    code = code ? code : errno ? errno : EIO;
    unlink(tmp);
    return mr_error_set(err, -code, "cannot write '%s'", path);
}

static int write_steps(const struct mr_job *j, const struct mr_rank_series *s, struct mr_error *err)
{
    char name[64], tmp[4300];
    snprintf(name, sizeof name, "rank-%u.steps.csv", s->rank);
    FILE *f = begin(j, name, tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    mr_job_put_steps(f, s->steps, 0, s->n);
    return finish(j, f, name, tmp, err);
}

static int write_checkpoints(const struct mr_job *j, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = begin(j, "checkpoints.csv", tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    fputs("rank,kind,step,start_ns,duration_ns,write_ns,fsync_ns,read_ns,bytes,files,wait_ns,buffered\n", f);
    for (uint32_t k = 0; k < j->result.board->world; k++)
        for (size_t i = 0; i < j->result.series[k].n_checkpoints; i++) {
            const struct mr_checkpoint_event *c = &j->result.series[k].checkpoints[i];
            fprintf(f,
                    "%u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                    ",%" PRIu64 ",%d\n",
                    k, c->is_load ? "load" : "save", c->step, c->start_ns, c->duration_ns, c->write_ns, c->fsync_ns,
                    c->read_ns, c->bytes, c->files, c->wait_ns, c->buffered);
        }
    return finish(j, f, "checkpoints.csv", tmp, err);
}

static int write_drains(const struct mr_job *j, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = begin(j, "drains.csv", tmp, err);
    if (!f)
        return err ? err->code : -EIO;
    fputs("rank,step,queued_ns,start_ns,duration_ns,bytes,files,failed\n", f);
    for (uint32_t k = 0; k < j->result.board->world; k++)
        for (size_t i = 0; i < j->result.series[k].n_drains; i++) {
            const struct mr_drain_event *d = &j->result.series[k].drains[i];
            fprintf(f, "%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d\n", k, d->step,
                    d->queued_ns, d->start_ns, d->duration_ns, d->bytes, d->files, d->failed);
        }
    return finish(j, f, "drains.csv", tmp, err);
}

static int write_json(const struct mr_job *j, const char *name, json_t *value, struct mr_error *err)
{
    char tmp[4300];
    FILE *f = value ? begin(j, name, tmp, err) : NULL;
    if (!f) {
        json_decref(value);
        return value && err ? err->code : mr_error_set(err, -ENOMEM, "cannot write '%s'", name);
    }
    int rc = json_dumpf(value, f, JSON_INDENT(2));
    json_decref(value);
    fputc('\n', f);
    (void)rc; /* a failed write shows in the stream */
    return finish(j, f, name, tmp, err);
}

int mr_job_write_summary(const struct mr_job *j, struct mr_error *err)
{
    return write_json(j, "summary.json", mr_job_summary_json(j), err);
}

/* An earlier run in the same folder may have had more ranks, or checkpoints: its series would pass for this one's. */
static void remove_stale(const struct mr_job *j)
{
    char path[4300];
    if (!j->result.metrics->saves && !j->result.metrics->loads) {
        snprintf(path, sizeof path, "%s/checkpoints.csv", j->out);
        unlink(path);
    }
    if (!(j->result.metrics->drain.drains + j->result.metrics->drain.failed)) {
        snprintf(path, sizeof path, "%s/drains.csv", j->out);
        unlink(path);
    }
    for (uint32_t k = j->result.board->world;; k++) {
        snprintf(path, sizeof path, "%s/rank-%u.steps.csv", j->out, k);
        if (unlink(path) != 0)
            break;
    }
}

int mr_job_write_results(const struct mr_job *j, struct mr_error *err)
{
    struct mr_store *s;
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    rc = mr_store_mkdirs(s, j->out, err);
    mr_store_close(s);
    if (rc >= 0)
        rc = mr_job_write_summary(j, err); /* first: the most valuable */
    if (rc >= 0)
        rc = write_json(j, "config.json", mr_workload_to_json(j->w), err);
    for (uint32_t k = 0; rc >= 0 && k < j->result.board->world; k++)
        rc = write_steps(j, &j->result.series[k], err);
    if (rc >= 0 && (j->result.metrics->saves || j->result.metrics->loads))
        rc = write_checkpoints(j, err);
    if (rc >= 0 && j->result.metrics->drain.drains + j->result.metrics->drain.failed)
        rc = write_drains(j, err);
    if (rc >= 0)
        remove_stale(j);
    return rc < 0 ? rc : 0;
}
