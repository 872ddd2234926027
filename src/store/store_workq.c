/* Worker threads behind a store's queues.
 *
 * Invariants
 *  1. A request is in exactly one place: the pool's list, a worker's hands, its queue's done list, the caller's hands.
 *  2. Pool fields are read and written under pool->lock, done lists under their queue's lock; in_flight belongs to the
 *     queue's owner thread alone.
 *  3. The two locks are never held together (workers take one, release it, take the other).
 *  4. A worker does not touch a request or its queue after the queue's lock is released with that request on the done
 *     list: the owner may free both at once.
 *  5. Every wait ends: workers on `stop`, reapers because min is cut to what is in flight and every request completes.
 */
#include "store/store_workq.h"

#include "base/common.h"
#include "base/workers.h"
#include "store/store_internal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define MAX_THREADS 256u
#define MAX_GRAB 8u /* requests one worker takes at a time when many wait */

struct mr_workpool {
    struct mr_store *store;
    mr_io_exec_fn *exec;
    bool is_inline, timing;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct mr_io *head, **tail;
    unsigned queued, idle;
    unsigned threads, started;
    bool stop;
    pthread_t thread[];
};

struct workq {
    struct mr_ioq base;
    struct mr_workpool *pool;
    unsigned in_flight; /* submitted and not yet reaped; owner only */
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    struct mr_io *done, **done_tail;
    unsigned done_count, wanted; /* wanted > 0: the owner sleeps until done_count reaches it */
};

static void complete(struct workq *q, struct mr_io *io)
{
    io->next = NULL;
    pthread_mutex_lock(&q->lock);
    *q->done_tail = io;
    q->done_tail = &io->next;
    q->done_count++;
    if (q->wanted && q->done_count >= q->wanted) {
        q->wanted = 0;
        pthread_cond_signal(&q->done_cond);
    }
    pthread_mutex_unlock(&q->lock);
}

static void execute(struct mr_workpool *p, struct mr_io *io)
{
    io->result = p->exec(p->store, io);
    if (p->timing)
        io->done_ns = mr_now_ns();
    complete((struct workq *)(uintptr_t)io->backend_word, io);
}

/* Takes one request, or a small run of them when more wait than there are threads. */
static struct mr_io *grab(struct mr_workpool *p)
{
    unsigned n = MR_MAX(1u, MR_MIN(MAX_GRAB, p->queued / p->threads));
    assert(p->head && p->queued >= n); /* invariant 1 */
    struct mr_io *first = p->head, *last = first;
    for (unsigned i = 1; i < n; i++)
        last = last->next;
    p->head = last->next;
    if (!p->head)
        p->tail = &p->head;
    last->next = NULL;
    p->queued -= n;
    return first;
}

static void *worker(void *arg)
{
    struct mr_workpool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->head && !p->stop) {
            p->idle++;
            pthread_cond_wait(&p->work, &p->lock);
            p->idle--;
        }
        if (!p->head)
            break;
        struct mr_io *io = grab(p);
        pthread_mutex_unlock(&p->lock);
        while (io) {
            struct mr_io *next = io->next; /* invariant 4 */
            execute(p, io);
            io = next;
        }
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Starts the threads, with asynchronous signals left to the program's own threads. */
static int start_threads(struct mr_workpool *p, struct mr_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (rc == 0 && p->started < p->threads) {
        rc = pthread_create(&p->thread[p->started], NULL, worker, p);
        if (rc == 0)
            p->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    unsigned started = p->started;
    if (rc != 0 && started > 0)
        p->threads = started; /* fewer than asked still serve */
    pthread_mutex_unlock(&p->lock);
    if (started == 0)
        return mr_error_set(err, -rc, "cannot start I/O threads of store '%s' (want %u, have 0)", p->store->ops->name,
                            p->threads);
    return 0;
}

static unsigned default_threads(void)
{
    return MR_MAX(8u, MR_MIN(32u, 4 * mr_cpus_available()));
}

static int pool_create(struct mr_store *s, unsigned threads, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                       struct mr_error *err)
{
    struct mr_workpool *p = calloc(1, sizeof(*p) + threads * sizeof(p->thread[0]));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot create the I/O threads of store '%s'", s->ops->name);
    p->store = s;
    p->exec = exec;
    p->timing = timing;
    p->threads = threads;
    p->is_inline = threads == 0;
    p->tail = &p->head;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    *out = p;
    return 0;
}

int mr_workpool_create(struct mr_store *s, unsigned threads, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                       struct mr_error *err)
{
    return pool_create(s, threads ? MR_MIN(threads, MAX_THREADS) : default_threads(), exec, timing, out, err);
}

int mr_workpool_create_inline(struct mr_store *s, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                              struct mr_error *err)
{
    return pool_create(s, 0, exec, timing, out, err);
}

void mr_workpool_free(struct mr_workpool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->thread[i], NULL);
    assert(!p->head && p->queued == 0); /* invariant 1: queues are freed before their pool */
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int mr_workq_create(struct mr_workpool *p, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    int rc = mr_ioq_check_depth(depth, err);
    if (rc == 0 && !p->is_inline)
        rc = start_threads(p, err);
    if (rc < 0)
        return rc;
    struct workq *q = calloc(1, sizeof(*q));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot create an I/O queue of depth %u", depth);
    q->base = (struct mr_ioq){.store = p->store, .depth = depth};
    q->pool = p;
    q->done_tail = &q->done;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->done_cond, NULL);
    *out = &q->base;
    return 0;
}

void mr_workq_free(struct mr_ioq *ioq)
{
    if (!ioq)
        return;
    struct workq *q = (struct workq *)ioq;
    struct mr_io *done;
    while (q->in_flight > 0)
        mr_workq_reap(ioq, 1, 1, &done, NULL);
    pthread_cond_destroy(&q->done_cond);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

int mr_workq_submit(struct mr_ioq *ioq, struct mr_io *const *ios, unsigned n, struct mr_error *err)
{
    struct workq *q = (struct workq *)ioq;
    struct mr_workpool *p = q->pool;
    int rc = mr_ioq_check_room(ioq, q->in_flight, n, err);
    if (rc < 0 || n == 0)
        return rc;
    uint64_t now = p->timing ? mr_now_ns() : 0;
    q->in_flight += n;
    for (unsigned i = 0; i < n; i++) {
        ios[i]->submit_ns = now;
        ios[i]->backend_word = (uintptr_t)q;
        ios[i]->next = !p->is_inline && i + 1 < n ? ios[i + 1] : NULL;
        if (p->is_inline)
            execute(p, ios[i]);
    }
    if (p->is_inline)
        return 0;
    pthread_mutex_lock(&p->lock);
    *p->tail = ios[0];
    p->tail = &ios[n - 1]->next;
    p->queued += n;
    unsigned wake = MR_MIN(n, p->idle);
    if (wake > 1 && wake == p->idle)
        pthread_cond_broadcast(&p->work);
    else
        for (unsigned i = 0; i < wake; i++)
            pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

int mr_workq_register(struct mr_ioq *ioq, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    return mr_ioq_check_register(((struct workq *)ioq)->in_flight, iov, n, err);
}

int mr_workq_reap(struct mr_ioq *ioq, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    (void)err;
    struct workq *q = (struct workq *)ioq;
    min = MR_MIN(MR_MIN(min, max), q->in_flight);
    unsigned n = 0;
    pthread_mutex_lock(&q->lock);
    while (q->done_count < min) {
        q->wanted = min;
        pthread_cond_wait(&q->done_cond, &q->lock);
    }
    q->wanted = 0;
    while (n < max && q->done) {
        done[n++] = q->done;
        q->done = q->done->next;
    }
    if (!q->done)
        q->done_tail = &q->done;
    assert(q->done_count >= n && (q->done_count > n) == (q->done != NULL)); /* invariant 1 */
    q->done_count -= n;
    pthread_mutex_unlock(&q->lock);
    assert(q->in_flight >= n); /* invariant 2 */
    q->in_flight -= n;
    return (int)n;
}

static int64_t transfer(struct mr_object *o, const struct mr_io *io)
{
    const struct mr_store_ops *ops = o->store->ops;
    size_t moved = 0;
    unsigned tries = 0;
    while (moved < io->len) {
        char *at = (char *)io->buf + moved;
        int64_t r = io->op == MR_IO_WRITE ? ops->write(o, at, io->len - moved, io->offset + moved, NULL)
                                          : ops->read(o, at, io->len - moved, io->offset + moved, NULL);
        if (r == -EINTR && ++tries < MR_STORE_MAX_RETRIES)
            continue;
        if (r < 0)
            return r;
        if (r == 0)
            break;
        tries = 0;
        moved += (size_t)r;
    }
    return (int64_t)moved;
}

int64_t mr_io_exec_generic(struct mr_store *s, const struct mr_io *io)
{
    if (io->op == MR_IO_FSYNC)
        return s->ops->fsync(io->object, NULL);
    if (io->op != MR_IO_READ_PATH)
        return transfer(io->object, io);
    struct mr_object *o;
    int rc = s->ops->object_open(s, io->path, MR_OBJ_READ | io->flags, &o, NULL);
    if (rc < 0)
        return rc;
    int64_t r = transfer(o, io);
    rc = s->ops->object_close(o, NULL);
    return r < 0 || rc == 0 ? r : rc;
}
