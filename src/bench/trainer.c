/* The training loop. One thread per rank runs it; a second one, the watcher, passes a stop on to the loader and the
 * board and calls the display.
 *
 * Invariants
 *  T1 every rank enters the same collectives in the same order: one per step (stop, failure and "checkpoint now" travel
 * with it, so that all ranks leave the loop at the same step), one agreement per phase border. T2 a step is written to
 * the board completely before it is counted. T3 a rank that fails goes on to the step's collective with the bad news;
 * only a rank that died is missed, and the communicator tells. T4 board->stop only makes waits end; what it means is
 * decided in the collective. */
#include "base/common.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/rng.h"
#include "bench/bench_events.h"
#include "bench/bench_pulse.h"
#include "bench/trainer_internal.h"
#include "metrics/series_emit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WATCH_NS (20 * MR_NS_PER_MS)
#define TICK_NS (200 * MR_NS_PER_MS)

/* ---- the watcher ---- */

static void watch_once(struct trainer *t)
{
    if (t->p->stop && atomic_load(t->p->stop))
        atomic_store(&t->board->stop, 1);
    if (t->active && atomic_load(&t->board->stop))
        mr_feed_stop(t->active);
}

static void *watch(void *arg)
{
    struct trainer *t = arg;
    uint64_t next_tick = mr_now_ns() + TICK_NS;
    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t at = (uint64_t)until.tv_nsec + WATCH_NS;
        until.tv_sec += (time_t)(at / MR_NS_PER_S);
        until.tv_nsec = (long)(at % MR_NS_PER_S);
        pthread_cond_timedwait(&t->wake, &t->lock, &until);
        watch_once(t);
        if (mr_now_ns() < next_tick || t->quit)
            continue;
        next_tick = mr_now_ns() + TICK_NS;
        if (t->active)
            mr_feed_stats(t->active, &t->me->loader);
        if (t->p->tick) {
            pthread_mutex_unlock(&t->lock);
            t->p->tick(t->p->tick_user);
            pthread_mutex_lock(&t->lock);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int start_watcher(struct trainer *t, struct mr_error *err)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = pthread_create(&t->watcher, NULL, watch, t);
    t->watching = rc == 0;
    return rc ? mr_error_set(err, -rc, "cannot start the watcher thread") : 0;
}

static void stop_watcher(struct trainer *t)
{
    if (t->watching) {
        pthread_mutex_lock(&t->lock);
        t->quit = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->watcher, NULL);
    }
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
}

/* Which feed a stop concerns; the last statistics of the one before are kept. */
static void set_active(struct trainer *t, struct feed *f)
{
    pthread_mutex_lock(&t->lock);
    if (t->active && t->active != f && t->active == t->train)
        mr_feed_stats(t->active, &t->me->loader);
    t->active = f;
    watch_once(t);
    pthread_mutex_unlock(&t->lock);
}

/* ---- the step's collective ---- */

struct verdict {
    bool stop, failed, save, time_up;
};

static bool time_is_up(const struct trainer *t)
{
    return t->p->max_ns && t->comm->rank == 0 && since_start(t) >= t->p->max_ns;
}

static int sync_step(struct trainer *t, int my_code, bool save_due, struct verdict *v, struct mr_error *err)
{
    uint64_t word[4] = {my_code == MR_E_INTERRUPTED || atomic_load(&t->board->stop),
                        my_code < 0 && my_code != MR_E_INTERRUPTED, save_due, time_is_up(t)};
    if (word[1])
        atomic_store(&t->board->stop, 1); /* the others need not finish their waits */
    int rc = mr_comm_allreduce_u64(t->comm, word, MR_ARRAY_LEN(word), MR_COMM_MAX, err);
    *v = (struct verdict){.stop = word[0], .failed = word[1], .save = word[2], .time_up = word[3]};
    if (rc)
        atomic_store(&t->board->stop, 1);
    return rc;
}

/* What the whole job makes of it: the lowest failing rank's error, or the interruption. */
static int settle(struct trainer *t, int my_code, const struct verdict *v, struct mr_error *err)
{
    t->ended = true;
    if (v->failed)
        return mr_comm_agree(t->comm, my_code < 0 && my_code != MR_E_INTERRUPTED ? my_code : 0, err);
    if (t->p->stop && atomic_load(t->p->stop))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted: another rank was told to stop");
}

/* ---- checkpoints ---- */

/* Copies finished drains of the burst buffer to the board. One of an earlier run's may have begun before the series. */
void mr_trainer_note_drains(struct trainer *t)
{
    struct mr_checkpoint_drained d;
    uint64_t n = atomic_load(&t->me->n_drains);
    while (t->saver && n < t->board->drain_cap && mr_checkpoint_drains(t->saver, n, &d, 1) == 1) {
        uint64_t start = MR_MAX(d.start_ns, t->origin_ns);
        struct mr_drain_event *row = &t->board->drains[(uint64_t)t->comm->rank * t->board->drain_cap + n];
        *row = (struct mr_drain_event){.queued_ns = MR_MAX(d.queued_ns, t->origin_ns) - t->origin_ns,
                                       .start_ns = start - t->origin_ns,
                                       .duration_ns = MR_MAX(d.end_ns, start) - start,
                                       .bytes = d.bytes,
                                       .files = d.files,
                                       .step = d.step,
                                       .failed = d.code != 0};
        atomic_store(&t->me->n_drains, ++n);
        mr_series_emit_drain(t->p->events, t->origin_ns, row);
    }
}

static void note_checkpoint(struct trainer *t, uint64_t start, uint64_t step, const struct mr_checkpoint_result *r,
                            bool load)
{
    uint64_t n = atomic_load(&t->me->n_checkpoints);
    if (n >= t->board->checkpoint_cap)
        return;
    struct mr_checkpoint_event *row = &t->board->checkpoints[(uint64_t)t->comm->rank * t->board->checkpoint_cap + n];
    *row = (struct mr_checkpoint_event){.start_ns = start,
                                        .duration_ns = r->duration_ns,
                                        .write_ns = r->write_ns,
                                        .fsync_ns = r->fsync_ns,
                                        .read_ns = r->read_ns,
                                        .wait_ns = r->wait_ns,
                                        .bytes = r->bytes,
                                        .files = r->files,
                                        .step = step,
                                        .is_load = load,
                                        .buffered = r->buffered};
    atomic_store(&t->me->n_checkpoints, n + 1);
    mr_series_emit_checkpoint(t->p->events, t->origin_ns, row);
}

static int save(struct trainer *t, uint64_t step, struct mr_error *err)
{
    struct mr_checkpoint_result r = {0};
    uint64_t start = since_start(t);
    enter(t, MR_BENCH_SAVE);
    int rc = 0;
    if (t->p->workload->checkpoint.rank_sync)
        rc = mr_comm_barrier(t->comm, err);
    if (!rc)
        rc = mr_checkpoint_save(t->saver, step, t->files, t->n_files, &r, err);
    if (!rc)
        note_checkpoint(t, start, step, &r, false);
    mr_trainer_note_drains(t);
    t->last_save_ns = mr_now_ns();
    return rc;
}

/* Waits for the burst buffer, or for what is written behind: at the end, and before checkpoints are read back. */
static int drain(struct trainer *t, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    if (!t->saver)
        return 0;
    enter(t, MR_BENCH_DRAIN);
    int rc = mr_checkpoint_drain(t->saver, err);
    t->me->drain_wait_ns += mr_now_ns() - start;
    mr_trainer_note_drains(t);
    return rc;
}

static int restore(struct trainer *t, uint64_t step, struct mr_error *err)
{
    const struct mr_conf_checkpoint *c = &t->p->workload->checkpoint;
    struct mr_checkpoint_result r = {0};
    /* Another node's share: what the neighbour's ranks wrote; on one node, the next rank's. */
    uint32_t shift = !c->recovery_rank_shift ? 0 : t->comm->local_world < t->comm->world ? t->comm->local_world : 1;
    int rc = drain(t, err);
    if (rc)
        return rc;
    enter(t, MR_BENCH_RESTORE);
    rc = mr_bench_checkpoint_cache(t->p->checkpoint_folder, t->p->cache, t->comm->rank, t->comm->world, &t->me->cold,
                                   err);
    if ((rc = mr_comm_agree(t->comm, rc, err)) != 0)
        return rc;
    uint64_t start = since_start(t);
    rc = mr_checkpoint_load(t->saver, step, shift % t->comm->world, &r, err);
    if (!rc)
        note_checkpoint(t, start, step, &r, true);
    return rc;
}

/* Sleeps between checkpoints; all ranks leave it together. */
static int pause_between(struct trainer *t, struct mr_error *err)
{
    struct verdict v;
    double s = t->p->workload->checkpoint.time_between_checkpoints;
    enter(t, MR_BENCH_PAUSE);
    if (s > 0)
        mr_bench_compute(MR_COMPUTE_SLEEP, (uint64_t)(s * 1e9), &t->board->stop);
    int rc = sync_step(t, 0, false, &v, err);
    return rc ? rc : v.stop ? settle(t, 0, &v, err) : 0;
}

static int checkpoints_only(struct trainer *t, struct mr_error *err)
{
    const struct mr_plan_checkpoint *c = &t->p->plan->checkpoint;
    int rc = 0;
    for (uint64_t i = 0; !rc && i < c->writes; i++) {
        if (i > 0)
            rc = pause_between(t, err);
        if (!rc)
            rc = save(t, i + 1, err);
    }
    for (uint64_t i = 0; !rc && i < c->reads; i++) {
        if (i > 0 || c->writes)
            rc = pause_between(t, err);
        bool all_kept = c->writes && !t->p->keep_last;
        if (!rc)
            rc = restore(t, all_kept ? i % c->writes + 1 : UINT64_MAX, err);
    }
    return rc;
}

static bool epoch_schedule(uint64_t epoch, int64_t first, int64_t every)
{
    int64_t done = (int64_t)epoch + 1;
    return done >= first && every > 0 && (done - first) % every == 0;
}

static bool save_after_step(const struct trainer *t)
{
    const struct mr_workload *w = t->p->workload;
    if (!t->saver)
        return false;
    if (t->p->checkpoint_every_ns)
        return t->comm->rank == 0 && mr_now_ns() - t->last_save_ns >= t->p->checkpoint_every_ns;
    int64_t every = w->checkpoint.steps_between_checkpoints;
    return every > 0 && (t->trained + 1) % (uint64_t)every == 0;
}

static bool save_after_epoch(const struct trainer *t, uint64_t epoch)
{
    const struct mr_conf_checkpoint *c = &t->p->workload->checkpoint;
    if (!t->saver || t->p->checkpoint_every_ns || c->steps_between_checkpoints > 0)
        return false;
    return epoch_schedule(epoch, c->checkpoint_after_epoch, c->epochs_between_checkpoints);
}

/* ---- a step ---- */

static int copy_to_device(struct trainer *t, const struct feed_batch *b, struct mr_error *err)
{
    if (!b->rows)
        return 0;
    if (b->sample_bytes > t->device_bytes) {
        void *grown = realloc(t->device, b->sample_bytes);
        if (!grown)
            return mr_error_set(err, -ENOMEM, "no memory for the copy of a batch");
        t->device = grown;
        t->device_bytes = b->sample_bytes;
    }
    uint8_t *to = t->device;
    for (uint32_t i = 0; i < b->n; i++) {
        memcpy(to, b->rows[i], b->bytes[i]);
        to += b->bytes[i];
    }
    return 0;
}

/* What this rank really got, whoever read it: the same for any order of the same rows. */
static void sum_rows(struct trainer *t, const struct feed_batch *b)
{
    for (uint32_t i = 0; b->rows && i < b->n; i++)
        t->me->rows_crc += mr_crc32c(0, b->rows[i], b->bytes[i]);
}

/* Tells the steps of the board up to number n. A step is told when the next one is there: a checkpoint after its epoch
 * still belongs to it. */
void mr_trainer_emit_steps(struct trainer *t, uint64_t n)
{
    const struct mr_step *mine = t->board->steps + (uint64_t)t->comm->rank * t->board->step_cap;
    for (; t->told < n; t->told++) {
        bool trains = mine[t->told].phase == MR_PHASE_TRAIN;
        mr_series_emit_step(t->p->events, t->origin_ns, &mine[t->told], trains ? t->told_trained : MR_UNKNOWN);
        t->told_trained += trains;
    }
}

static void record(struct trainer *t, const struct mr_step *s)
{
    uint64_t n = atomic_load_explicit(&t->me->n_steps, memory_order_relaxed);
    if (n >= t->board->step_cap)
        return;
    t->board->steps[(uint64_t)t->comm->rank * t->board->step_cap + n] = *s;
    atomic_store_explicit(&t->me->n_steps, n + 1, memory_order_release);
    mr_trainer_emit_steps(t, n);
    if (s->phase != MR_PHASE_TRAIN)
        return;
    atomic_fetch_add_explicit(&t->me->compute_ns, s->compute_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->me->wall_ns, s->end_ns - s->start_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->me->samples, s->samples, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->me->read_bytes, s->read_bytes, memory_order_relaxed);
}

/* Load, copy, compute; times into *s. */
static int work(struct trainer *t, struct feed *f, const struct mr_dist *time, uint64_t counter, struct mr_step *s,
                struct mr_error *err)
{
    struct feed_batch b;
    enter(t, MR_BENCH_LOAD);
    s->start_ns = since_start(t);
    int rc = mr_feed_next(f, &b, err);
    uint64_t loaded = since_start(t), copied = loaded;
    s->load_ns = loaded - s->start_ns;
    if (rc == 0)
        return mr_error_plain(err, MR_E_INTERNAL, "the loader ended its epoch early");
    if (rc < 0)
        return rc;
    s->samples = b.n;
    s->sample_bytes = b.sample_bytes;
    s->read_bytes = b.read_bytes;
    if (t->p->loader_flags & MR_LOADER_VERIFY)
        sum_rows(t, &b);
    if (t->p->device_copy) {
        rc = copy_to_device(t, &b, err);
        copied = since_start(t);
        s->copy_ns = copied - loaded;
    }
    enter(t, MR_BENCH_COMPUTE);
    double seconds = mr_bench_draw(time, t->p->seed, MR_RNG_COMPUTE, counter);
    s->compute_ns = mr_bench_compute(t->p->compute, (uint64_t)(seconds * 1e9 + 0.5), &t->board->stop);
    s->compute_wall_ns = since_start(t) - copied;
    mr_feed_release(f, &b);
    return rc < 0 ? rc : 0;
}

/* As many bytes as the model has gradients, summed over the ranks. All of them are 0 but the first, which counts the
 * ranks: that they all took part is checked. */
static int reduce(struct trainer *t, struct mr_error *err)
{
    if (!t->n_gradients)
        return 0;
    enter(t, MR_BENCH_REDUCE);
    t->gradients[0] = 1;
    int rc = mr_comm_allreduce_f64(t->comm, t->gradients, t->n_gradients, MR_COMM_SUM, err);
    if (!rc && t->gradients[0] != (double)t->comm->world)
        rc = mr_error_plain(err, MR_E_INTERNAL, "the sum over %u ranks counts %g", t->comm->world, t->gradients[0]);
    return rc;
}

/* One step with its barrier and, if due, its checkpoint. The gradients are summed after the ranks have agreed to go on:
 * a rank that failed must not be waited for there. */
static int step(struct trainer *t, struct feed *f, struct mr_step *s, const struct mr_dist *time, uint64_t counter,
                struct verdict *v, struct mr_error *err)
{
    bool training = s->phase == MR_PHASE_TRAIN;
    int mine = work(t, f, time, counter, s, err);
    uint64_t before = since_start(t);
    enter(t, MR_BENCH_BARRIER);
    int rc = sync_step(t, mine, training && save_after_step(t), v, err);
    bool whole = !mine && !rc && !v->stop && !v->failed;
    if (whole && training)
        rc = reduce(t, err);
    s->end_ns = since_start(t);
    s->barrier_ns = s->end_ns - before;
    whole = whole && !rc;
    if (whole && training && v->save) {
        rc = save(t, t->trained + 1, err);
        s->checkpoint_ns = since_start(t) - s->end_ns;
    }
    if (whole)
        record(t, s);
    if (rc)
        return rc;
    if (v->failed || v->stop)
        return settle(t, mine, v, err);
    t->ended = v->time_up;
    return 0;
}

/* ---- phases ---- */

int mr_trainer_prepare_cache(struct trainer *t, bool eval, struct mr_error *err)
{
    char path[4096];
    struct mr_bench_cold cold;
    enter(t, MR_BENCH_CACHE);
    mr_bench_set_path(t->p, eval, path, sizeof path);
    int rc = mr_bench_set_cache(path, t->p->cache, t->comm->rank, t->comm->world, &t->board->stop, &cold, err);
    if (rc == 0) { /* both sets, before the first step or, when asked, before every epoch */
        t->me->cold.cold_bytes += cold.cold_bytes;
        t->me->cold.total_bytes += cold.total_bytes;
        t->me->cold.unknown_files += cold.unknown_files;
    }
    return mr_comm_agree(t->comm, rc, err);
}

static void tell_phase(struct trainer *t, enum mr_span what, uint64_t epoch, uint64_t start_ns)
{
    struct mr_where at = MR_NOWHERE;
    at.epoch = epoch;
    mr_emit(t->p->events, what, start_ns, mr_now_ns(), &at, 0);
}

static int train_epoch(struct trainer *t, uint64_t epoch, struct mr_error *err)
{
    const struct mr_workload *w = t->p->workload;
    uint32_t block = 1;
    set_active(t, t->train);
    uint64_t start = mr_now_ns();
    int rc = mr_comm_agree(t->comm, mr_feed_start_epoch(t->train, epoch, err), err);
    for (uint64_t i = 0; !rc && i < t->epoch_steps && t->trained < t->total_steps && !t->ended; i++) {
        struct mr_step s = {.epoch = (uint32_t)epoch, .block = block, .step = (uint32_t)i, .phase = MR_PHASE_TRAIN};
        struct verdict v = {0};
        uint64_t counter = t->trained * t->comm->world + t->comm->rank;
        rc = step(t, t->train, &s, &w->train.computation_time, counter, &v, err);
        if (!rc) {
            t->trained++;
            block += v.save;
        }
    }
    tell_phase(t, MR_SPAN_EPOCH, epoch, start);
    return rc;
}

/* After an epoch: its checkpoint belongs to its last step. */
static int finish_epoch(struct trainer *t, uint64_t epoch, struct mr_error *err)
{
    if (t->ended || !save_after_epoch(t, epoch))
        return 0;
    uint64_t start = since_start(t), n = atomic_load(&t->me->n_steps);
    int rc = save(t, t->trained, err);
    if (!rc && n > 0 && n <= t->board->step_cap)
        t->board->steps[(uint64_t)t->comm->rank * t->board->step_cap + n - 1].checkpoint_ns += since_start(t) - start;
    return rc;
}

static bool cache_changes(const struct trainer *t)
{
    return t->p->cache_each_epoch && t->p->cache != MR_CACHE_ASIS && t->p->workload->dataset.format != MR_CF_SYNTHETIC;
}

static int evaluate(struct trainer *t, uint64_t epoch, struct mr_error *err)
{
    const struct mr_workload *w = t->p->workload;
    if (!t->eval || t->ended ||
        !epoch_schedule(epoch, w->evaluation.eval_after_epoch, w->evaluation.epochs_between_evals))
        return 0;
    int rc = epoch > 0 && cache_changes(t) ? mr_trainer_prepare_cache(t, true, err) : 0;
    if (rc)
        return rc;
    set_active(t, t->eval);
    uint64_t start = mr_now_ns();
    rc = mr_comm_agree(t->comm, mr_feed_start_epoch(t->eval, epoch, err), err);
    for (uint64_t i = 0; !rc && i < mr_feed_batches(t->eval) && !t->ended; i++) {
        struct mr_step s = {.epoch = (uint32_t)epoch, .block = 1, .step = (uint32_t)i, .phase = MR_PHASE_EVAL};
        struct verdict v = {0};
        uint64_t counter =
            ((uint64_t)1 << 48) + (epoch * mr_feed_batches(t->eval) + i) * t->comm->world + t->comm->rank;
        rc = step(t, t->eval, &s, &w->evaluation.eval_time, counter, &v, err);
    }
    tell_phase(t, MR_SPAN_EVALUATION, epoch, start);
    return rc;
}

static int train(struct trainer *t, struct mr_error *err)
{
    uint64_t epochs = (uint64_t)t->p->workload->train.epochs;
    int rc = 0;
    for (uint64_t e = 0; !rc && e < epochs && t->trained < t->total_steps && !t->ended; e++) {
        if (e > 0 && cache_changes(t))
            rc = mr_trainer_prepare_cache(t, false, err);
        if (!rc)
            rc = train_epoch(t, e, err);
        if (!rc)
            rc = finish_epoch(t, e, err);
        if (!rc)
            rc = evaluate(t, e, err);
    }
    return rc;
}

/* The end of a pattern: files it reads beyond the last step, and what every rank writes. */
static int finish_pattern(struct trainer *t, struct mr_error *err)
{
    const struct mr_conf_pattern *c = &t->p->workload->pattern;
    struct mr_store *store = NULL;
    int rc = t->train && !t->ended ? mr_feed_finish(t->train, err) : 0;
    if (!rc && c->outputs.n && t->p->output_folder) {
        enter(t, MR_BENCH_OUTPUT);
        rc = mr_store_open_with_events(t->p->checkpoint_store, mr_events_calls(t->p->events), &store, err);
        if (!rc)
            rc = mr_store_mkdirs(store, t->p->output_folder, err);
        if (!rc)
            rc = mr_pattern_write_files(store, t->p->output_folder, "output", t->comm->rank, c->outputs.item,
                                        c->outputs.n, t->p->workload->checkpoint.fsync, err);
        mr_store_close(store);
    }
    return mr_comm_agree(t->comm, rc, err);
}

/* ---- the end ---- */

/* What the tiers hold goes to the SSD for the next run. Training is over: a stop here costs the next run reads, and
 * nothing of this one. */
static int keep_samples(struct trainer *t, struct mr_error *err)
{
    struct mr_error stopped;
    if (!t->train)
        return 0;
    enter(t, MR_BENCH_KEEP);
    set_active(t, t->train);
    int rc = mr_feed_drain(t->train, &stopped);
    if (rc == MR_E_INTERRUPTED) {
        mr_log(MR_LOG_NOTE, "%s", stopped.message);
        return 0;
    }
    if (rc && err)
        *err = stopped;
    return rc;
}

int mr_bench_run(const struct mr_bench_params *p, struct mr_error *err)
{
    struct trainer t = {.p = p,
                        .comm = p->comm,
                        .board = p->board,
                        .me = &p->board->ranks[p->comm->rank],
                        .total_steps = p->plan->total_steps};
    uint64_t start = mr_now_ns();
    t.me->pid = getpid();
    enter(&t, MR_BENCH_START);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* sleeping threads wake on time: by default 50 us late */
    struct mr_pulse *pulse = NULL;
    int rc = mr_comm_agree(p->comm, start_watcher(&t, err), err);
    if (!rc)
        rc = mr_pulse_start(p->comm, p->board, p->rank_timeout_ns, &pulse, err);
    if (!rc)
        rc = mr_trainer_open(&t, err);
    if (!rc)
        rc = mr_comm_barrier(p->comm, err);
    t.origin_ns = t.last_save_ns = mr_now_ns();
    atomic_store(&t.me->origin_ns, t.origin_ns);
    mr_bench_emit_open(p, start, t.origin_ns);
    if (!rc && t.saver)
        mr_checkpoint_recover(t.saver);
    if (!rc)
        rc = p->workload->workflow.train ? train(&t, err) : checkpoints_only(&t, err);
    if (!rc && p->workload->workflow.train)
        rc = finish_pattern(&t, err);
    if (!rc)
        rc = drain(&t, err);
    if (!rc)
        rc = mr_comm_agree(p->comm, keep_samples(&t, err), err);
    if (!rc)
        rc = mr_comm_barrier(p->comm, err); /* the board is complete when any rank returns */
    if (rc)
        atomic_store(&p->board->stop, 1);
    stop_watcher(&t);
    mr_trainer_close(&t, rc != 0);
    mr_pulse_stop(pulse);
    return rc;
}
