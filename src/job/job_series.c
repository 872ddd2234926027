/* Series that outlive the job. Forked ranks share a board, so whoever survives writes everybody's steps; under MPI each
 * process has its own, and when a rank dies the launcher ends the others at once or a second later. Therefore every MPI
 * rank appends its steps to rank-R.steps.csv while it runs (five times a second), and rank 0 keeps a summary marked
 * incomplete beside them, with everybody's steps as far as they are in the files: soon after the start, every few
 * seconds, and at once when it is told to stop. A job that ends well replaces all of it.
 *
 * A rank that has been in one state for a while says so in rank-R.state, where rank 0 finds it when nothing moves: MPI
 * calls belong to the trainer's thread, which may be the one that waits.
 *
 * Runs in the watcher's thread; the files are opened before and closed after it. */
#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "job/job_internal.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_NS (150 * MR_NS_PER_MS) /* the other ranks' last lines are on their way */

#define SAVE_FIRST_NS MR_NS_PER_S
#define SAVE_EVERY_NS (5 * MR_NS_PER_S)
#define SAVE_SHARE 50 /* at most a fiftieth of the time of one thread */

struct mr_job_series {
    struct mr_job *job;
    FILE *file;
    uint64_t written, stop_ns, save_ns; /* steps in the file; when the stop was seen; when to save next */
    bool saved;                         /* after the stop */
    long *read_to;                      /* rank 0: how far every other rank's file has been read */
    uint64_t told_ns;                   /* since_ns of the state that is in the state file; 0: none */
};

static const char header[] =
    "epoch,phase,block,step,start_ns,end_ns,load_ns,copy_ns,compute_ns,compute_wall_ns,barrier_ns,"
    "checkpoint_ns,samples,sample_bytes,read_bytes\n";

void mr_job_put_steps(FILE *f, const struct mr_step *s, uint64_t first, uint64_t n)
{
    if (first == 0)
        fputs(header, f);
    for (uint64_t i = first; i < n; i++) {
        const struct mr_step *x = &s[i];
        fprintf(f,
                "%u,%s,%u,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                ",%" PRIu64 ",%u,%" PRIu64 ",%" PRIu64 "\n",
                x->epoch, x->phase == MR_PHASE_TRAIN ? "train" : "eval", x->block, x->step, x->start_ns, x->end_ns,
                x->load_ns, x->copy_ns, x->compute_ns, x->compute_wall_ns, x->barrier_ns, x->checkpoint_ns, x->samples,
                x->sample_bytes, x->read_bytes);
    }
}

static bool parse_step(const char *line, struct mr_step *x)
{
    char phase[8];
    int end = 0;
    *x = (struct mr_step){0};
    int got = sscanf(line,
                     "%u,%7[a-z],%u,%u,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64
                     ",%" SCNu64 ",%u,%" SCNu64 ",%" SCNu64 "\n%n",
                     &x->epoch, phase, &x->block, &x->step, &x->start_ns, &x->end_ns, &x->load_ns, &x->copy_ns,
                     &x->compute_ns, &x->compute_wall_ns, &x->barrier_ns, &x->checkpoint_ns, &x->samples,
                     &x->sample_bytes, &x->read_bytes, &end);
    x->phase = got == 15 && !strcmp(phase, "eval") ? MR_PHASE_EVAL : MR_PHASE_TRAIN;
    return got == 15 && end > 0 && line[end - 1] == '\n'; /* a last line that was cut does not count */
}

/* Appends what rank k has written behind *at. */
static void load_stream(struct mr_job *j, uint32_t k, long *at)
{
    struct mr_bench_board *b = j->result.board;
    uint64_t n = atomic_load(&b->ranks[k].n_steps);
    char path[4200], line[512];
    snprintf(path, sizeof path, "%s/rank-%u.steps.csv", j->out, k);
    FILE *f = mr_fopen_regular(path);
    if (!f)
        return;
    if (fseek(f, *at, SEEK_SET) == 0)
        while (n < b->step_cap && fgets(line, sizeof line, f) && line[strlen(line) - 1] == '\n') {
            n += parse_step(line, &b->steps[(uint64_t)k * b->step_cap + n]); /* the header is none */
            *at = ftell(f);
        }
    fclose(f);
    atomic_store(&b->ranks[k].n_steps, n);
}

/* The other ranks' steps, as far as they have written them, onto this rank's board. */
static void load_streams(struct mr_job_series *st)
{
    for (uint32_t k = 0; k < st->job->result.board->world; k++)
        if (k != st->job->comm->rank)
            load_stream(st->job, k, &st->read_to[k]);
}

void mr_job_series_load(struct mr_job *j)
{
    for (uint32_t k = 0; k < j->result.board->world; k++) {
        long start = 0;
        if (k == j->comm->rank)
            continue;
        atomic_store(&j->result.board->ranks[k].n_steps, 0); /* from the beginning */
        load_stream(j, k, &start);
    }
}

/* ---- what a rank waits for ---- */

static void state_path(const struct mr_job *j, uint32_t rank, char path[4200])
{
    snprintf(path, 4200, "%s/rank-%u.state", j->out, rank);
}

/* When the state has lasted half of the time after which rank 0 will ask. By wall clock: each node has its own
 * monotonic one. */
static void tell_state(struct mr_job_series *st, uint64_t now)
{
    const struct mr_job *j = st->job;
    const struct mr_bench_rank *me = &j->result.board->ranks[j->comm->rank];
    uint64_t since = atomic_load(&me->since_ns);
    char path[4200];
    if (now - MR_MIN(now, since) < j->opt.stall_after_ns / 2 || st->told_ns == since)
        return;
    state_path(j, j->comm->rank, path);
    FILE *f = mr_fcreate_anew(path);
    if (!f)
        return;
    fprintf(f, "%u %llu\n", atomic_load(&me->state), (unsigned long long)mr_wall_ns() - (now - since));
    fclose(f);
    st->told_ns = since;
}

bool mr_job_read_state(const struct mr_job *j, uint32_t rank, enum mr_bench_state *state, double *age_s)
{
    char path[4200];
    unsigned s;
    unsigned long long since;
    state_path(j, rank, path);
    FILE *f = mr_fopen_regular(path);
    if (!f)
        return false;
    bool got = fscanf(f, "%u %llu", &s, &since) == 2;
    fclose(f);
    if (!got)
        return false;
    *state = (enum mr_bench_state)s;
    *age_s = ((double)mr_wall_ns() - (double)since) / 1e9;
    return true;
}

/* ---- saving ---- */

static void save_incomplete(struct mr_job *j, const char *why)
{
    struct mr_error ignored, before = j->result.why;
    int code = j->result.code;
    j->result.code = MR_E_INCOMPLETE;
    mr_error_plain(&j->result.why, MR_E_INCOMPLETE, "%s", why);
    /* what fails here fails again, and is reported, at the end of the run */
    if (mr_job_compute_figures(j, &ignored) < 0 || mr_job_write_summary(j, &ignored) < 0)
        mr_error_plain(&ignored, 0, "%s", "");
    j->result.code = code;
    j->result.why = before;
}

int mr_job_series_open(struct mr_job *j, struct mr_job_series **out, struct mr_error *err)
{
    struct mr_store *s = NULL;
    char path[4200];
    int rc = mr_store_open("posix", &s, err);
    if (!rc)
        rc = mr_store_mkdirs(s, j->out, err);
    mr_store_close(s);
    struct mr_job_series *st = rc < 0 ? NULL : calloc(1, sizeof(*st));
    long *read_to = rc < 0 ? NULL : calloc(j->result.board->world, sizeof(*read_to));
    if (rc >= 0 && (!st || !read_to))
        rc = mr_error_set(err, -ENOMEM, "cannot keep the series of this rank");
    if (rc < 0) {
        free(st);
        free(read_to);
        return rc;
    }
    st->job = j;
    st->read_to = read_to;
    st->save_ns = mr_now_ns() + SAVE_FIRST_NS;
    snprintf(path, sizeof path, "%s/rank-%u.steps.csv", j->out, j->comm->rank);
    st->file = mr_fcreate_anew(path);
    if (!st->file) {
        rc = mr_error_set(err, -errno, "cannot write '%s'", path);
        mr_error_hint(err, "choose another folder with --out");
        free(read_to);
        free(st);
        return rc;
    }
    if (j->comm->rank == 0)
        save_incomplete(j, "the job ended before it could write its summary; what each rank measured is in its series");
    *out = st;
    return 0;
}

static void append(struct mr_job_series *st)
{
    const struct mr_job *j = st->job;
    uint64_t n = atomic_load_explicit(&j->result.board->ranks[j->comm->rank].n_steps, memory_order_acquire);
    if (n == st->written)
        return;
    mr_job_put_steps(st->file, j->result.board->steps + (uint64_t)j->comm->rank * j->result.board->step_cap,
                     st->written, n);
    fflush(st->file); /* what fails here fails again, and is reported, when the results are written */
    st->written = n;
}

/* Everybody's steps so far. The other ranks' files of an earlier run in the same folder are gone: all ranks have opened
 * theirs before the first tick. */
static void save_so_far(struct mr_job_series *st, const char *why)
{
    uint64_t start = mr_now_ns();
    load_streams(st);
    save_incomplete(st->job, why);
    uint64_t end = mr_now_ns();
    st->save_ns = end + MR_MAX(SAVE_EVERY_NS, SAVE_SHARE * (end - start));
}

void mr_job_series_tick(struct mr_job_series *st)
{
    struct mr_job *j = st->job;
    uint64_t now = mr_now_ns();
    append(st);
    tell_state(st, now);
    if (st->saved || j->comm->rank != 0)
        return;
    if (!atomic_load(&j->result.board->stop)) {
        if (now >= st->save_ns)
            save_so_far(st, "the job ended before it could write its summary; this is how far it had come");
    } else if (!st->stop_ns) {
        st->stop_ns = now;
    } else if (now - st->stop_ns >= SETTLE_NS) {
        save_so_far(st, "the job was told to stop, and ended before it could agree on why");
        st->saved = true;
    }
}

void mr_job_series_close(struct mr_job_series *st)
{
    if (!st)
        return;
    char path[4200];
    append(st);
    fclose(st->file);
    state_path(st->job, st->job->comm->rank, path);
    if (st->told_ns)
        unlink(path);
    free(st->read_to);
    free(st);
}
