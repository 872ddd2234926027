/* Series that outlive the job. Forked ranks share a board, so whoever survives writes everybody's steps; under MPI each
 * process has its own, and when a rank dies the launcher ends the others at once or a second later. Therefore every MPI
 * rank appends its steps to rank-R.steps.csv while it runs (five times a second), rank 0 leaves a summary marked
 * incomplete at the start, and, when it is told to stop, at once one with everybody's steps as far as they are in the
 * files. A job that ends well replaces all of it.
 *
 * Runs in the watcher's thread; the files are opened before and closed after it. */
#include "base/clock.h"
#include "base/common.h"
#include "cli/run_internal.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_NS (150 * MR_NS_PER_MS) /* the other ranks' last lines are on their way */

struct run_stream {
    struct run *run;
    FILE *file;
    uint64_t written, stop_ns;
    bool saved;
};

static const char header[] = "epoch,phase,block,step,start_ns,end_ns,load_ns,copy_ns,compute_ns,compute_wall_ns,barrier_ns,"
                             "checkpoint_ns,samples,sample_bytes,read_bytes\n";

void mr_run_put_steps(FILE *f, const struct mr_step *s, uint64_t first, uint64_t n)
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
                     &x->compute_ns, &x->compute_wall_ns, &x->barrier_ns, &x->checkpoint_ns, &x->samples, &x->sample_bytes,
                     &x->read_bytes, &end);
    x->phase = got == 15 && !strcmp(phase, "eval") ? MR_PHASE_EVAL : MR_PHASE_TRAIN;
    return got == 15 && end > 0 && line[end - 1] == '\n'; /* a last line that was cut does not count */
}

/* The other ranks' steps, as far as they have written them, onto this rank's board. */
void mr_run_load_streams(struct run *r)
{
    struct mr_bench_board *b = r->board;
    char path[4200], line[512];
    for (uint32_t k = 0; k < b->world; k++) {
        uint64_t n = 0;
        snprintf(path, sizeof path, "%s/rank-%u.steps.csv", r->out, k);
        FILE *f = k == r->comm->rank ? NULL : fopen(path, "re");
        if (!f)
            continue;
        while (n < b->step_cap && fgets(line, sizeof line, f))
            n += parse_step(line, &b->steps[(uint64_t)k * b->step_cap + n]);
        fclose(f);
        if (n > atomic_load(&b->ranks[k].n_steps))
            atomic_store(&b->ranks[k].n_steps, n);
    }
}

static void save_incomplete(struct run *r, const char *why)
{
    struct mr_error ignored, before = r->why;
    int code = r->code;
    r->code = MR_E_INCOMPLETE;
    mr_error_plain(&r->why, MR_E_INCOMPLETE, "%s", why);
    mr_run_compute_figures(r);
    if (mr_run_write_summary(r, &ignored) < 0) /* the end of the run will say that the folder cannot be written */
        mr_error_plain(&ignored, 0, "%s", "");
    r->code = code;
    r->why = before;
}

int mr_run_stream_open(struct run *r, struct run_stream **out, struct mr_error *err)
{
    struct mr_store *s = NULL;
    char path[4200];
    int rc = mr_store_open("posix", &s, err);
    if (!rc)
        rc = mr_store_mkdirs(s, r->out, err);
    mr_store_close(s);
    struct run_stream *st = rc < 0 ? NULL : calloc(1, sizeof(*st));
    if (rc >= 0 && !st)
        rc = mr_error_set(err, -ENOMEM, "cannot keep the series of this rank");
    if (rc < 0)
        return rc;
    st->run = r;
    snprintf(path, sizeof path, "%s/rank-%u.steps.csv", r->out, r->comm->rank);
    st->file = fopen(path, "we");
    if (!st->file) {
        rc = mr_error_set(err, -errno, "cannot write '%s'", path);
        mr_error_hint(err, "choose another folder with --out");
        free(st);
        return rc;
    }
    if (r->comm->rank == 0)
        save_incomplete(r, "the job ended before it could write its summary; what each rank measured is in its series");
    *out = st;
    return 0;
}

static void append(struct run_stream *st)
{
    const struct run *r = st->run;
    uint64_t n = atomic_load_explicit(&r->board->ranks[r->comm->rank].n_steps, memory_order_acquire);
    if (n == st->written)
        return;
    mr_run_put_steps(st->file, r->board->steps + (uint64_t)r->comm->rank * r->board->step_cap, st->written, n);
    fflush(st->file); /* what fails here fails again, and is reported, when the results are written */
    st->written = n;
}

void mr_run_stream_tick(struct run_stream *st)
{
    struct run *r = st->run;
    append(st);
    if (st->saved || r->comm->rank != 0 || !atomic_load(&r->board->stop))
        return;
    uint64_t now = mr_now_ns();
    if (!st->stop_ns) {
        st->stop_ns = now;
    } else if (now - st->stop_ns >= SETTLE_NS) {
        mr_run_load_streams(r);
        save_incomplete(r, "the job was told to stop, and ended before it could agree on why");
        st->saved = true;
    }
}

void mr_run_stream_close(struct run_stream *st)
{
    if (!st)
        return;
    append(st);
    fclose(st->file);
    free(st);
}
