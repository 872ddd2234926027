/* One execution of a preset: rank threads over real files. What they read is decided by the pattern engine
 * (bench/pattern.h) or, for unit sample, by the loader, as in `millrace run`; here are the ranks around it: steps, the
 * barrier, checkpoints, outputs.
 *
 * Ranks that are read for (collective) have a pattern of their own over the store of the rank that reads for them.
 *
 * Invariants
 *  1. A failure or stop sets job->failed; every wait has it in its condition.
 *  2. Steps and times of a rank are written by its own thread and read after it was joined. */
#include "base/common.h"
#include "job/check_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static bool over(const struct check_job *j)
{
    return atomic_load(&j->failed) || (j->stop && atomic_load(j->stop));
}

static bool pattern_over(void *user)
{
    const struct check_rank *r = user;
    return over(r->job);
}

static void fail(struct check_rank *r, int rc, const struct mr_error *why)
{
    r->rc = rc;
    r->err = *why;
    atomic_store(&r->job->failed, true);
}

static void barrier(struct check_job *j)
{
    pthread_mutex_lock(&j->lock);
    uint32_t round = j->round;
    if (++j->waiting == j->world) {
        j->waiting = 0;
        j->round++;
        pthread_cond_broadcast(&j->cond);
    }
    while (j->round == round && !over(j)) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 50000000; /* a lost stop costs no more than that */
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&j->cond, &j->lock, &t);
    }
    pthread_mutex_unlock(&j->lock);
}

static void sleep_s(const struct check_job *j, double seconds)
{
    if (seconds > 0)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + (uint64_t)(seconds * j->slowdown * 1e9), j->stop);
}

static void prepare_samples(void *user, uint64_t epoch, uint64_t first, uint64_t n)
{
    const struct check_rank *r = user;
    (void)epoch, (void)first;
    sleep_s(r->job, mr_dist_mean(&r->job->w->reader.preprocess_time) * (double)n);
}

/* ---- the trainer's side ---- */

static bool saver_stopped(void *user)
{
    return over(user);
}

/* With a burst buffer checkpoints are written by the engine of `millrace run`: that one has the drain. Not traced. */
static int open_saver(struct check_rank *r, struct mr_error *err)
{
    struct check_job *j = r->job;
    char folder[4200], burst_folder[4200], store[1200], burst[1200];
    if (!*j->burst || r->id || !j->shape->writes_checkpoints)
        return 0;
    snprintf(folder, sizeof folder, "%s/checkpoints", j->folder);
    snprintf(burst_folder, sizeof burst_folder, "%s/burst", j->folder);
    snprintf(store, sizeof store, "%s%sposix", j->storage, *j->storage ? ":" : "");
    snprintf(burst, sizeof burst, "%s:posix", j->burst);
    const struct mr_checkpoint_params p = {.folder = folder,
                                           .store = store,
                                           .world = 1,
                                           .fsync = j->w->checkpoint.fsync,
                                           .stopped = saver_stopped,
                                           .burst_folder = burst_folder,
                                           .burst_store = burst,
                                           .user = j};
    return mr_checkpointer_open(&p, &r->saver, err);
}

static int save_in_burst_buffer(struct check_rank *r, uint64_t step, struct mr_error *err)
{
    const struct mr_check_shape *s = r->job->shape;
    struct mr_checkpoint_file files[MR_ARRAY_LEN(s->checkpoint_bytes)] = {0};
    struct mr_checkpoint_result result;
    for (unsigned i = 0; i < s->checkpoint_files; i++) {
        snprintf(files[i].name, sizeof files[i].name, "checkpoint-%u", i);
        files[i].bytes = s->checkpoint_bytes[i];
    }
    int rc = mr_checkpoint_save(r->saver, step, files, s->checkpoint_files, &result, err);
    return rc || result.buffered ? rc : mr_error_plain(err, MR_E_INCOMPLETE, "the burst buffer was not used");
}

/* After the last step. */
static int drain(struct check_rank *r, struct mr_error *err)
{
    struct mr_checkpoint_drained d;
    uint64_t t0 = r->job->start_ns;
    if (!r->saver)
        return 0;
    int rc = mr_checkpoint_drain(r->saver, err);
    for (; r->n_drains < r->n_checkpoints && mr_checkpoint_drains(r->saver, r->n_drains, &d, 1) == 1; r->n_drains++)
        r->drains[r->n_drains] = (struct mr_drain_event){.queued_ns = d.queued_ns - t0,
                                                         .start_ns = d.start_ns - t0,
                                                         .duration_ns = d.end_ns - d.start_ns,
                                                         .bytes = d.bytes,
                                                         .files = d.files,
                                                         .step = d.step,
                                                         .failed = d.code != 0};
    return rc;
}

/* After every n-th step rank 0 writes, the others wait. */
static int checkpoint(struct check_rank *r, uint64_t step, struct mr_step *record, struct mr_error *err)
{
    struct check_job *j = r->job;
    const struct mr_check_shape *s = j->shape;
    if (!s->writes_checkpoints || (step + 1) % (uint64_t)j->w->checkpoint.steps_between_checkpoints)
        return 0;
    uint64_t start = mr_now_ns(), bytes = 0;
    int rc = r->id      ? 0
             : r->saver ? save_in_burst_buffer(r, step, err)
                        : mr_pattern_write_files(r->store, j->folder, "checkpoint", 0, s->checkpoint_bytes,
                                                 s->checkpoint_files, j->w->checkpoint.fsync, err);
    barrier(j);
    record->checkpoint_ns = mr_now_ns() - start;
    for (unsigned i = 0; i < s->checkpoint_files; i++)
        bytes += s->checkpoint_bytes[i];
    r->checkpoints[r->n_checkpoints++] = (struct mr_checkpoint_event){.start_ns = start - j->start_ns,
                                                                      .duration_ns = record->checkpoint_ns,
                                                                      .bytes = r->id ? 0 : bytes,
                                                                      .step = step};
    return rc;
}

static int one_step(struct check_rank *r, uint64_t step, struct mr_error *err)
{
    struct check_job *j = r->job;
    struct mr_step rec = {.samples = (uint32_t)j->w->reader.batch_size, .step = (uint32_t)step, .block = 1};
    struct mr_pattern_batch b;
    uint64_t t0 = mr_now_ns();
    int rc = r->pattern ? mr_pattern_next(r->pattern, &b, err) : 0;
    if (rc < 0)
        return rc;
    uint64_t t1 = mr_now_ns();
    if (!r->train_start_ns)
        r->train_start_ns = t1;
    sleep_s(j, j->shape->step_s);
    uint64_t t2 = mr_now_ns();
    barrier(j);
    uint64_t t3 = mr_now_ns();
    if (r->pattern)
        mr_pattern_release(r->pattern);
    rec.start_ns = t0 - j->start_ns;
    rec.end_ns = t3 - j->start_ns;
    rec.load_ns = t1 - t0;
    rec.compute_ns = rec.compute_wall_ns = t2 - t1;
    rec.barrier_ns = t3 - t2;
    rc = checkpoint(r, step, &rec, err);
    r->steps[r->n_steps++] = rec;
    return rc;
}

static int read_header(struct check_rank *r, struct mr_error *err)
{
    const struct mr_check_data *d = r->job->data;
    return r->job->w->pattern.header_reads && d
               ? mr_pattern_read_header(&r->job->w->pattern, r->store, d->path[0], d->file_bytes[0], err)
               : 0;
}

static int pattern_rank(struct check_rank *r, struct mr_error *err)
{
    struct check_job *j = r->job;
    const struct mr_uints *outputs = &j->w->pattern.outputs;
    bool memory = j->w->reader.read_type == MR_READ_MEMORY;
    int rc = read_header(r, err);
    if (!rc && r->pattern && memory)
        rc = mr_pattern_preload(r->pattern, err);
    if (rc) /* before the barrier: the others must not wait for this rank */
        atomic_store(&j->failed, true);
    barrier(j);
    if (!rc && r->pattern && !memory)
        rc = mr_pattern_preload(r->pattern, err);
    for (uint64_t s = 0; s < r->steps_cap && !rc && !over(j); s++)
        rc = one_step(r, s, err);
    r->end_ns = mr_now_ns();
    if (!rc && r->pattern && !over(j))
        rc = mr_pattern_finish(r->pattern, err);
    if (!rc && !over(j))
        rc = drain(r, err);
    if (!rc && outputs->n)
        rc = mr_pattern_write_files(r->store, j->folder, "output", r->id, outputs->item, outputs->n,
                                    j->w->checkpoint.fsync, err);
    if (!r->n_steps || outputs->n)
        r->end_ns = mr_now_ns();
    return rc;
}

/* ---- the loader's side ---- */

static void store_text(const struct check_rank *r, char *out, size_t cap)
{
    const struct check_job *j = r->job;
    snprintf(out, cap, "trace(file=\"%s/rank-%u.tsv\"):%s%sposix", j->folder, r->id, j->storage,
             *j->storage ? ":" : "");
}

static void loader_params(const struct check_rank *r, char *store, size_t cap, struct mr_loader_params *p)
{
    const struct check_job *j = r->job;
    mr_loader_params_init(p);
    store_text(r, store, cap);
    p->dataset = j->data->folder;
    p->store = store;
    p->batch_size = (uint32_t)j->w->reader.batch_size;
    p->drop_last_batch = j->w->reader.drop_last;
    p->threads = MR_MAX(j->readers, 1u);
    p->lookahead = j->prefetch;
    p->transfer_bytes = j->w->reader.transfer_size;
    p->io = MR_LOADER_IO_THREADS;
    mr_order_mode_parse(mr_workload_order_name(j->w), &p->order.mode, &p->order.window, NULL);
    p->order.window = (uint64_t)j->w->reader.shuffle_size;
    p->order.samples_per_file = j->data->samples_per_file;
    p->order.rank = r->id;
    p->order.world = j->world;
    p->order.seed = (uint64_t)j->w->train.seed;
    p->order.shuffle_each_epoch = true;
    p->order.drop_last = j->w->reader.drop_last;
}

static int loader_step(struct check_rank *r, struct mr_loader *l, uint32_t epoch, struct mr_error *err)
{
    struct check_job *j = r->job;
    struct mr_batch *b;
    uint64_t t0 = mr_now_ns();
    int got = mr_loader_next(l, &b, err);
    if (got <= 0)
        return got;
    uint64_t t1 = mr_now_ns();
    if (!r->train_start_ns)
        r->train_start_ns = t1;
    struct mr_step rec = {
        .samples = b->n, .epoch = epoch, .step = (uint32_t)b->index, .block = 1, .read_bytes = b->read_bytes};
    mr_loader_release(l, b);
    sleep_s(j, j->shape->step_s);
    uint64_t t2 = mr_now_ns();
    rec.start_ns = t0 - j->start_ns;
    rec.end_ns = t2 - j->start_ns;
    rec.load_ns = t1 - t0;
    rec.compute_ns = rec.compute_wall_ns = t2 - t1;
    r->steps[r->n_steps++] = rec;
    return 1;
}

static int loader_rank(struct check_rank *r, struct mr_error *err)
{
    struct check_job *j = r->job;
    struct mr_loader_params p;
    struct mr_loader *l = NULL;
    char store[8192];
    loader_params(r, store, sizeof store, &p);
    int rc = mr_loader_open(&p, &l, err);
    r->opened_ns = mr_now_ns();
    for (uint32_t e = 0; e < (uint32_t)j->w->train.epochs && !rc && !over(j); e++) {
        rc = mr_loader_start_epoch(l, e, err);
        while (!rc && !over(j) && r->n_steps < r->steps_cap && (rc = loader_step(r, l, e, err)) > 0)
            rc = 0;
    }
    r->end_ns = mr_now_ns();
    mr_loader_close(l);
    return rc;
}

static void *rank_main(void *arg)
{
    struct check_rank *r = arg;
    struct mr_error err;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* sleeps of ordinary threads end up to 50 us late */
    int rc = r->job->w->pattern.unit == MR_UNIT_SAMPLE ? loader_rank(r, &err) : pattern_rank(r, &err);
    if (rc && !(rc == MR_E_INTERRUPTED && over(r->job)))
        fail(r, rc, &err);
    return NULL;
}

/* ---- the whole ---- */

static int open_pattern(struct check_job *j, struct check_rank *r, uint32_t readers, struct mr_error *err)
{
    const struct mr_pattern_params p = {.workload = j->w,
                                        .dataset = j->data->set,
                                        .store = j->ranks[r->id % readers].store,
                                        .rank = r->id,
                                        .world = j->world,
                                        .seed = (uint64_t)j->w->train.seed,
                                        .readers = j->readers,
                                        .prefetch = j->prefetch,
                                        .file_passes = j->shape->file_passes,
                                        .whole_epochs = true,
                                        .over = pattern_over,
                                        .prepare = prepare_samples,
                                        .user = r};
    return mr_pattern_open(&p, &r->pattern, err);
}

static int prepare_rank(struct check_job *j, uint32_t id, uint32_t readers, struct mr_error *err)
{
    struct check_rank *r = &j->ranks[id];
    const struct mr_workload *w = j->w;
    bool reads = j->shape->reads && j->data && j->data->set && w->pattern.unit != MR_UNIT_NONE &&
                 w->pattern.unit != MR_UNIT_SAMPLE;
    uint64_t limit = j->shape->steps, from_data = 0;
    int rc = reads ? open_pattern(j, r, readers, err) : 0;
    if (rc)
        return rc;
    if (reads)
        from_data =
            MR_MAX(mr_pattern_batches(r->pattern), 1u) * (j->shape->file_passes ? 1 : (uint64_t)w->train.epochs);
    if (w->pattern.unit == MR_UNIT_SAMPLE)
        from_data = (j->shape->plan.steps_per_epoch + 1) * (uint64_t)w->train.epochs;
    r->steps_cap = from_data && limit ? MR_MIN(from_data, limit) : MR_MAX(from_data, limit);
    r->steps = calloc(r->steps_cap + 1, sizeof(*r->steps));
    r->checkpoints = calloc(r->steps_cap + 1, sizeof(*r->checkpoints));
    r->drains = calloc(r->steps_cap + 1, sizeof(*r->drains));
    rc = r->steps && r->checkpoints && r->drains ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the steps of the check");
    return rc ? rc : open_saver(r, err);
}

static void close_patterns(struct check_job *j)
{
    for (uint32_t i = 0; j->ranks && i < j->world; i++) {
        mr_pattern_close(j->ranks[i].pattern);
        j->ranks[i].pattern = NULL;
    }
}

static void free_ranks(struct check_job *j)
{
    close_patterns(j);
    for (uint32_t i = 0; j->ranks && i < j->world; i++) {
        struct check_rank *r = &j->ranks[i];
        mr_store_close(r->store);
        mr_checkpointer_close(r->saver);
        free(r->steps);
        free(r->checkpoints);
        free(r->drains);
    }
    free(j->ranks);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->cond);
}

/* All ranks share one emulated device: the group. */
static void set_storage(const char *storage, char out[1024])
{
    static atomic_uint number;
    size_t len = strlen(storage);
    if (!len || storage[len - 1] != ')')
        snprintf(out, 1024, "%s", storage);
    else
        snprintf(out, 1024, "%.*s,group=check-%d-%u)", (int)(len - 1), storage, (int)getpid(),
                 atomic_fetch_add(&number, 1));
}

static int open_ranks(struct check_job *j, struct mr_error *err)
{
    const struct mr_workload *w = j->w;
    bool collective = w->reader.file_access == MR_FA_COLLECTIVE || w->reader.file_access == MR_FA_MPIO;
    uint32_t readers = collective ? (uint32_t)MR_MIN(w->pattern.collective_readers, (int64_t)j->world) : j->world;
    int rc = 0;
    char text[8192];
    j->ranks = calloc(j->world, sizeof(*j->ranks));
    if (!j->ranks)
        return mr_error_set(err, -ENOMEM, "cannot start the ranks");
    for (uint32_t i = 0; i < j->world && !rc; i++) {
        struct check_rank *r = &j->ranks[i];
        r->job = j;
        r->id = i;
        store_text(r, text, sizeof text);
        if (w->pattern.unit != MR_UNIT_SAMPLE)
            rc = mr_store_open(text, &r->store, err);
    }
    for (uint32_t i = 0; i < j->world && !rc; i++)
        rc = prepare_rank(j, i, readers, err);
    return rc;
}

static int run_ranks(struct check_job *j, struct mr_error *err)
{
    uint32_t started = 0;
    int rc = 0;
    j->start_ns = mr_now_ns();
    for (; started < j->world && !rc; started++) {
        rc = -pthread_create(&j->ranks[started].thread, NULL, rank_main, &j->ranks[started]);
        if (rc)
            break;
    }
    if (rc) {
        mr_error_set(err, rc, "cannot start the ranks");
        atomic_store(&j->failed, true);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(j->ranks[i].thread, NULL);
    for (uint32_t i = 0; i < j->world && !rc; i++)
        if ((rc = j->ranks[i].rc)) {
            *err = j->ranks[i].err;
            mr_error_context(err, "rank %u", i);
        }
    if (!rc && j->stop && atomic_load(j->stop))
        rc = mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    return rc;
}

int mr_check_execute(const struct mr_check_shape *s, const struct mr_check_data *d, const struct mr_check_variant *v,
                     const char *folder, const atomic_bool *stop, struct mr_check_run *out, struct mr_error *err)
{
    struct check_job j = {.shape = s,
                          .data = d,
                          .w = &s->w,
                          .stop = stop,
                          .slowdown = v->slowdown,
                          .world = s->ranks,
                          .readers = (unsigned)(v->threads >= 0 ? v->threads : s->w.reader.read_threads),
                          .prefetch = (unsigned)(v->prefetch >= 0 ? v->prefetch : s->w.reader.prefetch_size)};
    memset(out, 0, sizeof(*out));
    snprintf(j.folder, sizeof j.folder, "%s", folder);
    set_storage(v->storage, j.storage);
    if (v->burst)
        set_storage(v->burst, j.burst);
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.cond, NULL);
    int rc = open_ranks(&j, err);
    if (!rc)
        rc = run_ranks(&j, err);
    close_patterns(&j);
    if (!rc)
        rc = mr_check_collect(&j, out, err);
    free_ranks(&j);
    if (rc)
        mr_check_run_done(out);
    return rc;
}
