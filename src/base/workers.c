/* The worker pool: one shared counter hands out runs of indices; no queue, so nothing is allocated per item.
 *
 * Invariants: 1. Each index is handed out at most once, in ascending order. 2. After `halt` is set no further run is
 * handed out; runs under way end at the next index. 3. All threads are joined before the function returns, so `user`
 * may live on the caller's stack. 4. Of several failures the one with the lowest index is reported, so that the same
 * input mostly gives the same message whatever the threads' timing. */
#include "base/workers.h"
#include "base/common.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <errno.h>

struct job {
    _Atomic uint64_t next;
    atomic_bool halt;
    uint64_t n, grain;
    mr_work_fn *fn;
    void *user;
    const atomic_bool *stop;
    pthread_mutex_t lock; /* guards the three below */
    int code;
    uint64_t failed_index;
    struct mr_error error;
};

struct worker {
    struct job *job;
    unsigned thread;
    pthread_t id;
};

static bool take_run(struct job *j, uint64_t *first, uint64_t *end)
{
    uint64_t at = atomic_load(&j->next);
    do {
        if (at >= j->n || atomic_load(&j->halt))
            return false;
        *end = j->n - at > j->grain ? at + j->grain : j->n;
    } while (!atomic_compare_exchange_weak(&j->next, &at, *end));
    *first = at;
    assert(at < *end && *end <= j->n); /* invariant 1 */
    return true;
}

static void note_failure(struct job *j, int code, uint64_t index, const struct mr_error *e)
{
    assert(code < 0 && index < j->n);
    atomic_store(&j->halt, true);
    pthread_mutex_lock(&j->lock);
    if (!j->code || index < j->failed_index) {
        j->code = code;
        j->failed_index = index;
        j->error = *e;
    }
    pthread_mutex_unlock(&j->lock);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct job *j = w->job;
    struct mr_worker_ctx ctx = {.thread = w->thread, .user = j->user};
    struct mr_error e = {0};
    uint64_t i, end;
    while (take_run(j, &i, &end))
        for (; i < end && !atomic_load_explicit(&j->halt, memory_order_relaxed); i++) {
            int code;
            if (j->stop && atomic_load_explicit(j->stop, memory_order_relaxed))
                code = mr_error_plain(&e, MR_E_INTERRUPTED, "interrupted");
            else
                code = j->fn(&ctx, i, &e);
            if (code < 0) {
                note_failure(j, code, i, &e);
                return NULL;
            }
        }
    return NULL;
}

int mr_workers_run(unsigned threads, uint64_t n, uint64_t grain, mr_work_fn *fn, void *user, const atomic_bool *stop,
                   struct mr_error *err)
{
    if (n == 0)
        return 0;
    grain = MR_MAX(grain, (uint64_t)1);
    uint64_t runs = n / grain + (n % grain != 0);
    threads = (unsigned)MR_MIN((uint64_t)MR_MAX(threads, 1u), runs);
    struct worker *w = calloc(threads, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot start %u worker threads", threads);
    struct job j = {.n = n, .grain = grain, .fn = fn, .user = user, .stop = stop};
    pthread_mutex_init(&j.lock, NULL);
    unsigned started = 1;
    for (unsigned t = 0; t < threads; t++)
        w[t] = (struct worker){.job = &j, .thread = t};
    /* A thread limit only costs parallelism: the calling thread alone can do all the work. */
    while (started < threads && pthread_create(&w[started].id, NULL, work, &w[started]) == 0)
        started++;
    work(&w[0]);
    for (unsigned t = 1; t < started; t++)
        pthread_join(w[t].id, NULL);
    assert(j.code < 0 || atomic_load(&j.next) == n); /* invariant 1: nothing was left out */
    pthread_mutex_destroy(&j.lock);
    free(w);
    if (j.code && err)
        *err = j.error;
    return j.code;
}
