/* One execution of a preset: the trainer of `millrace run`, with ranks that are threads of this process, on emulated
 * storage that they share, told as one trace. What the preset's figures are computed from is that trace alone
 * (check_collect.c).
 *
 *   shape + variant ──> workload, plan ──> mr_bench_run on each rank ──> FOLDER/run.mrt
 *
 * What differs from an ordinary run: compute and storage are slower by the same factor where the preset asks for it
 * (a slow machine can then keep up), compute takes the scaled step's mean time, and access patterns read to the end of
 * their last epoch even where no batch needs it. */
#include "base/common.h"
#include "event/emit.h"
#include "preset/check_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS_ROOM ((uint64_t)1 << 20) /* on the board; memory is used as it is written */

struct check_rank {
    struct mr_bench_params p;
    struct mr_comm *comm;
    pthread_t thread;
    int rc;
    struct mr_error err;
};

static struct mr_dist constant(double seconds)
{
    return (struct mr_dist){.kind = MR_DIST_CONSTANT, .a = seconds};
}

/* The scaled workload as the trainer is to run it. */
static void set_workload(struct check_job *j, const struct mr_check_variant *v)
{
    const struct mr_check_shape *s = j->shape;
    struct mr_workload *w = &j->w;
    *w = s->w;
    w->workflow.train = true;
    w->workflow.evaluation = false;
    w->workflow.checkpoint = s->writes_checkpoints;
    w->train.computation_time = constant(s->step_s * j->slowdown);
    /* Through the loader it is proven what is read; with a pattern also what that does to the time. */
    w->reader.preprocess_time =
        constant(w->pattern.unit == MR_CONF_UNIT_SAMPLE ? 0 : mr_dist_mean(&s->w.reader.preprocess_time) * j->slowdown);
    w->reader.read_threads = v->threads >= 0 ? v->threads : w->reader.read_threads;
    w->pattern.file_passes = (int64_t)s->file_passes;
    if (w->pattern.unit == MR_CONF_UNIT_SAMPLE)
        w->reader.read_threads = MR_MAX(w->reader.read_threads, 1);
    if (s->file_passes || w->pattern.unit == MR_CONF_UNIT_NONE)
        w->train.epochs = 1;
    w->checkpoint.files = (struct mr_uints){.n = s->checkpoint_files, .item = j->checkpoint_bytes};
    memcpy(j->checkpoint_bytes, s->checkpoint_bytes, sizeof j->checkpoint_bytes);
    w->burst_buffer.folder = *j->burst ? j->burst_folder : "";
    w->burst_buffer.store = j->burst;
    if (v->async)
        w->checkpoint.engine = "async";
}

static void set_plan(struct check_job *j)
{
    const struct mr_check_shape *s = j->shape;
    j->plan = s->plan;
    j->plan.ranks = s->ranks;
    if (j->w.pattern.unit == MR_CONF_UNIT_SAMPLE)
        return;
    j->plan.total_steps = s->steps ? s->steps : UINT64_MAX;
    if (j->w.pattern.unit == MR_CONF_UNIT_NONE)
        j->plan.steps_per_epoch = s->steps;
}

/* All ranks share one emulated device: the group. */
static void set_storage(const char *storage, char out[1024])
{
    static atomic_uint number;
    size_t len = strlen(storage);
    if (!len || storage[len - 1] != ')')
        snprintf(out, 1024, "%sposix", storage);
    else
        snprintf(out, 1024, "%.*s,group=check-%d-%u):posix", (int)(len - 1), storage, (int)getpid(),
                 atomic_fetch_add(&number, 1));
}

static uint64_t largest_file(const struct mr_check_shape *s)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < s->checkpoint_files; i++)
        most = MR_MAX(most, s->checkpoint_bytes[i]);
    return most;
}

static struct mr_bench_params params_of(struct check_job *j, uint32_t rank, struct mr_comm *comm,
                                        const struct mr_check_variant *v)
{
    return (struct mr_bench_params){
        .workload = &j->w,
        .plan = &j->plan,
        .comm = comm,
        .board = j->board,
        .stop = j->stop,
        .data = j->data_folder,
        .store = j->storage,
        .checkpoint_folder = j->checkpoint_folder,
        .checkpoint_store = j->storage,
        .checkpoint_buffer_bytes = largest_file(j->shape), /* the application writes a file in one call */
        .output_folder = j->output_folder,
        .lookahead = v->prefetch >= 0 ? v->prefetch : j->w.reader.prefetch_size,
        .io = MR_LOADER_IO_THREADS,
        .preprocess_sleeps = true,
        .seed = (uint64_t)j->w.train.seed,
        .events = mr_events_of(j->events, rank),
        .calls_only = true,
    };
}

static void *rank_main(void *arg)
{
    struct check_rank *r = arg;
    r->rc = mr_bench_run(&r->p, &r->err);
    if (r->rc)
        mr_comm_fail(r->comm, &r->err);
    return NULL;
}

/* The cause is the error of a rank that did not only hear of another's. */
static int job_error(const struct check_rank *r, uint32_t world, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < world; i++)
        if (r[i].rc && (!rc || (rc == MR_E_PEER && r[i].rc != MR_E_PEER))) {
            rc = r[i].rc;
            *err = r[i].err;
        }
    return rc;
}

static int run_ranks(struct check_job *j, struct check_rank *r, struct mr_error *err)
{
    uint32_t started = 0;
    int rc = 0;
    for (; started < j->world && !rc; started += !rc)
        rc = -pthread_create(&r[started].thread, NULL, rank_main, &r[started]);
    if (rc) {
        struct mr_error why;
        mr_error_set(&why, rc, "cannot start rank %u of the check", started);
        mr_comm_fail(r[0].comm, &why);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(r[i].thread, NULL);
    if (rc)
        return mr_error_set(err, rc, "cannot start rank %u of the check", started);
    return job_error(r, j->world, err);
}

static int open_job(struct check_job *j, const struct mr_check_variant *v, struct check_rank *r, struct mr_error *err)
{
    struct mr_comm *comm[MR_CHECK_RANKS_MAX];
    char path[4200];
    snprintf(path, sizeof path, "%s/run.mrt", j->folder);
    int rc = mr_bench_board_create(j->world, STEPS_ROOM, STEPS_ROOM, &j->board, err);
    if (!rc)
        rc = mr_events_open_threads(path, MR_LEVEL_CALL, j->world, &j->events, err);
    if (!rc)
        rc = mr_comm_threads_open(j->world, comm, err);
    for (uint32_t i = 0; i < j->world && !rc; i++) {
        r[i].comm = comm[i];
        r[i].p = params_of(j, i, comm[i], v);
    }
    return rc;
}

int mr_check_execute(const struct mr_check_shape *s, const struct mr_check_data *d, const struct mr_check_variant *v,
                     const char *folder, const atomic_bool *stop, struct mr_check_run *out, struct mr_error *err)
{
    struct check_job *j = calloc(1, sizeof(*j));
    struct check_rank *r = calloc(MR_CHECK_RANKS_MAX, sizeof(*r));
    int rc = j && r ? 0 : mr_error_set(err, -ENOMEM, "cannot start the check");
    memset(out, 0, sizeof(*out));
    if (!rc) {
        *j = (struct check_job){.shape = s, .data = d, .stop = stop, .slowdown = v->slowdown, .world = s->ranks};
        snprintf(j->folder, sizeof j->folder, "%s", folder);
        snprintf(j->data_folder, sizeof j->data_folder, "%s/data", folder);
        snprintf(j->output_folder, sizeof j->output_folder, "%s/output", folder);
        snprintf(j->checkpoint_folder, sizeof j->checkpoint_folder, "%s/checkpoints", folder);
        snprintf(j->burst_folder, sizeof j->burst_folder, "%s/burst", folder);
        set_storage(v->storage, j->storage);
        if (v->burst)
            set_storage(v->burst, j->burst);
        set_workload(j, v);
        set_plan(j);
        rc = open_job(j, v, r, err);
    }
    if (!rc)
        rc = run_ranks(j, r, err);
    for (uint32_t i = 0; r && i < MR_CHECK_RANKS_MAX; i++)
        mr_comm_close(r[i].comm);
    if (j) {
        struct mr_error why;
        int closed = mr_events_close(j->events, j->board && atomic_load(&j->board->in_use), &why);
        if (!rc && closed) {
            rc = closed;
            *err = why;
        }
    }
    if (!rc)
        rc = mr_check_collect(j, out, err);
    if (j)
        mr_bench_board_free(j->board);
    free(j);
    free(r);
    if (rc)
        mr_check_run_done(out);
    return rc;
}
