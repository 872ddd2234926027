/* Opening and closing what a training run needs. Storage may hang in both; a stop must end the job all the same, so what
 * may hang runs in a thread of its own, which is left behind when it does not return in time. */
#include "base/common.h"
#include "bench/bench_events.h"
#include "bench/trainer_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#define LEAVE_NS (3 * MR_NS_PER_S)

/* ---- checkpoints ---- */

static int agree(void *user, int code, struct mr_error *err)
{
    struct trainer *t = user;
    return mr_comm_agree(t->comm, code, err);
}

/* Asked by the writing threads before every piece. */
static bool save_stopped(void *user)
{
    const struct trainer *t = user;
    return atomic_load(&t->board->stop) != 0;
}

static int sum(void *user, uint64_t *value, struct mr_error *err)
{
    struct trainer *t = user;
    return mr_comm_allreduce_u64(t->comm, value, 1, MR_COMM_SUM, err);
}

static int open_saver(struct trainer *t, struct mr_error *err)
{
    const struct mr_workload *w = t->p->workload;
    struct mr_checkpoint_params p = {.folder = t->p->checkpoint_folder,
                                     .store = t->p->checkpoint_store,
                                     .rank = t->comm->rank,
                                     .world = t->comm->world,
                                     .fsync = w->checkpoint.fsync,
                                     .buffer_bytes = t->p->checkpoint_buffer_bytes,
                                     .keep_last = t->p->keep_last,
                                     .random_content = w->checkpoint.randomize_tensor,
                                     .seed = t->p->seed,
                                     .agree = agree,
                                     .stopped = save_stopped,
                                     .burst_folder = w->burst_buffer.folder,
                                     .burst_store = w->burst_buffer.store,
                                     .burst_bytes = w->burst_buffer.capacity,
                                     .sum = sum,
                                     .user = t,
                                     .engine = w->checkpoint.engine,
                                     .events = t->p->events};
    if (!w->workflow.checkpoint)
        return 0;
    int rc = mr_bench_checkpoint_files(w, t->p->plan, t->comm->rank, &t->files, &t->n_files, err);
    return rc ? rc : mr_checkpointer_open(&p, &t->saver, err);
}

/* ---- feeds ---- */

/* Opening reads the manifest (and with read_type memory everything), from storage that may hang. So that a stop is
 * heard, it runs in a thread of its own and is left behind when it does not come back soon after one; what it may still
 * touch then stays allocated until the process ends. A feed that all ranks open together is opened here: it needs the
 * thread of the collectives. */
struct opener {
    struct mr_bench_params p;
    bool eval;
    struct feed *feed;
    struct mr_error err;
    int rc;
    atomic_bool done;
};

static void *open_one(void *arg)
{
    struct opener *o = arg;
    o->rc = mr_feed_open(&o->p, o->eval, &o->feed, &o->err);
    atomic_store(&o->done, true);
    return NULL;
}

static bool wait_for_opener(struct trainer *t, struct opener *o)
{
    uint64_t stopped_ns = 0, nap = 20 * MR_NS_PER_US;
    while (!atomic_load(&o->done)) {
        uint64_t now = mr_now_ns();
        if (t->p->stop && atomic_load(t->p->stop))
            atomic_store(&t->board->stop, 1);
        if (atomic_load(&t->board->stop) && !stopped_ns)
            stopped_ns = now;
        if (stopped_ns && now - stopped_ns > LEAVE_NS)
            return false;
        mr_clock_sleep_until(mr_clock_real(), now + nap, NULL);
        nap = MR_MIN(2 * nap, MR_NS_PER_MS);
    }
    return true;
}

static int open_feed(struct trainer *t, bool eval, struct feed **out, struct mr_error *err)
{
    if (!eval && mr_feed_opens_together(t->p)) {
        enter(t, MR_BENCH_OPEN);
        return mr_feed_open(t->p, eval, out, err);
    }
    struct opener *o = calloc(1, sizeof(*o));
    pthread_t id;
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open the data set");
    o->p = *t->p;
    o->eval = eval;
    if (t->p->workload->reader.read_type != MR_CONF_READ_MEMORY)
        enter(t, MR_BENCH_OPEN);
    int rc = pthread_create(&id, NULL, open_one, o);
    if (rc) {
        free(o);
        return mr_error_set(err, -rc, "cannot open the data set");
    }
    if (!wait_for_opener(t, o)) {
        t->board->in_use = true;
        pthread_detach(id);
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted while opening the data set");
    }
    pthread_join(id, NULL);
    rc = o->rc;
    if (rc)
        *err = o->err;
    else
        *out = o->feed;
    free(o);
    return rc;
}

/* ---- all ---- */

static int open_gradients(struct trainer *t, struct mr_error *err)
{
    t->n_gradients = (t->p->workload->train.allreduce_bytes + sizeof(double) - 1) / sizeof(double);
    if (!t->n_gradients || !t->p->workload->workflow.train)
        return 0;
    t->gradients = calloc(t->n_gradients, sizeof(*t->gradients));
    if (t->gradients)
        return 0;
    mr_error_set(err, -ENOMEM, "no memory for %llu bytes of gradients",
                 (unsigned long long)t->p->workload->train.allreduce_bytes);
    return mr_error_hint(err, "lower train.allreduce_bytes"), -ENOMEM;
}

static int open_parts(struct trainer *t, struct mr_error *err)
{
    int rc = open_gradients(t, err);
    return rc ? rc : open_saver(t, err);
}

int mr_trainer_open(struct trainer *t, struct mr_error *err)
{
    const struct mr_workload *w = t->p->workload;
    bool reads = w->workflow.train && w->dataset.format != MR_CF_SYNTHETIC;
    bool evaluates = w->workflow.evaluation && t->p->plan->eval_samples;
    int rc = mr_comm_agree(t->comm, open_parts(t, err), err);
    if (!rc && reads)
        rc = mr_trainer_prepare_cache(t, false, err);
    if (!rc && reads && evaluates)
        rc = mr_trainer_prepare_cache(t, true, err);
    if (rc || !w->workflow.train)
        return rc;
    uint64_t start = mr_now_ns();
    if (w->reader.read_type == MR_CONF_READ_MEMORY)
        enter(t, MR_BENCH_PRELOAD);
    rc = open_feed(t, false, &t->train, err);
    if (w->reader.read_type == MR_CONF_READ_MEMORY)
        t->me->preload_s = (double)(mr_now_ns() - start) / 1e9;
    if (!mr_feed_is_shared(t->p)) /* what is opened together was agreed on */
        rc = mr_comm_agree(t->comm, rc, err);
    if (!rc) { /* files that do not divide evenly: what is left of a rank's own is read at the end */
        t->epoch_steps = mr_feed_batches(t->train);
        rc = mr_comm_allreduce_u64(t->comm, &t->epoch_steps, 1, MR_COMM_MIN, err);
    }
    if (rc || !evaluates)
        return rc;
    return mr_comm_agree(t->comm, open_feed(t, true, &t->eval, err), err);
}

/* ---- closing ---- */

/* Closing a loader waits for its threads, and a thread that reads from storage that hangs may never come back. After a
 * failure or a stop the result matters more: the loader is closed by a thread of its own and left behind if that takes
 * too long. What it may still touch then stays allocated until the process ends. */
struct closer {
    struct feed *feed;
    struct mr_checkpointer *saver; /* its drain writes to storage that may hang, too */
    atomic_bool done;
};

static void *close_one(void *arg)
{
    struct closer *c = arg;
    mr_feed_close(c->feed);
    mr_checkpointer_close(c->saver);
    atomic_store(&c->done, true);
    return NULL;
}

static void close_or_leave(struct feed *f, struct mr_checkpointer *saver, struct mr_bench_board *b)
{
    struct closer *c = f || saver ? calloc(1, sizeof(*c)) : NULL;
    pthread_t id;
    if (!c)
        return;
    c->feed = f;
    c->saver = saver;
    if (pthread_create(&id, NULL, close_one, c) != 0) {
        b->in_use = true;
        return;
    }
    uint64_t until = mr_now_ns() + LEAVE_NS;
    while (!atomic_load(&c->done) && mr_now_ns() < until)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
    if (!atomic_load(&c->done)) {
        b->in_use = true;
        pthread_detach(id);
        return;
    }
    pthread_join(id, NULL);
    free(c);
}

/* A loader that was stopped closes alone, and a stop may have reached some ranks only: then all of them do. */
static void agree_on_closing(struct trainer *t)
{
    uint64_t stopped = atomic_load(&t->board->stop) != 0;
    if (t->train && mr_feed_opens_together(t->p) &&
        (mr_comm_allreduce_u64(t->comm, &stopped, 1, MR_COMM_MAX, NULL) || stopped))
        mr_feed_stop(t->train);
}

void mr_trainer_close(struct trainer *t, bool broken)
{
    struct rusage use;
    if (t->train && t->active == t->train)
        mr_feed_stats(t->train, &t->me->loader);
    mr_feed_detach(t->train);
    mr_trainer_note_drains(t);
    t->me->drains_left = t->saver ? mr_checkpoint_buffered(t->saver) : 0;
    if (broken) {
        if (t->train)
            mr_feed_stop(t->train); /* it closes alone */
        close_or_leave(t->train, NULL, t->board);
        close_or_leave(t->eval, NULL, t->board);
        close_or_leave(NULL, t->saver, t->board);
    } else {
        agree_on_closing(t);
        mr_feed_close_together(t->train);
        mr_feed_close(t->eval);
        mr_checkpointer_close(t->saver);
    }
    free(t->files);
    free(t->device);
    free(t->gradients);
    if (getrusage(RUSAGE_SELF, &use) == 0)
        t->me->peak_rss_bytes = (uint64_t)use.ru_maxrss * 1024;
    mr_trainer_emit_steps(t, atomic_load(&t->me->n_steps));
    mr_bench_emit_rank(t->p->events, t->origin_ns, t->me);
    enter(t, MR_BENCH_DONE);
}
