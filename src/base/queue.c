/* The bounded queue: a ring under one mutex and two conditions.
 *
 * Invariants: 1. 0 <= len <= cap. 2. Items leave in the order they entered. 3. After stop no item enters; every item
 * that entered can still be popped. 4. Every waiter is woken by the matching operation or by stop. */
#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <errno.h>

struct mr_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    size_t cap, head, len;
    bool stopped;
    void *ring[];
};

int mr_queue_create(size_t capacity, struct mr_queue **out, struct mr_error *err)
{
    if (capacity == 0 || capacity > (size_t)1 << 40)
        return mr_error_plain(err, MR_E_USAGE, "queue capacity %zu is not between 1 and 2^40", capacity);
    struct mr_queue *q = calloc(1, sizeof(*q) + capacity * sizeof(q->ring[0]));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot create a queue of %zu items", capacity);
    q->cap = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, NULL);
    pthread_cond_init(&q->not_full, NULL);
    *out = q;
    return 0;
}

void mr_queue_free(struct mr_queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static bool push(struct mr_queue *q, void *item, bool may_wait)
{
    pthread_mutex_lock(&q->lock);
    while (may_wait && q->len == q->cap && !q->stopped)
        pthread_cond_wait(&q->not_full, &q->lock);
    bool ok = q->len < q->cap && !q->stopped;
    if (ok) {
        q->ring[(q->head + q->len++) % q->cap] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

static bool pop(struct mr_queue *q, void **item, bool may_wait)
{
    pthread_mutex_lock(&q->lock);
    while (may_wait && q->len == 0 && !q->stopped)
        pthread_cond_wait(&q->not_empty, &q->lock);
    bool ok = q->len > 0;
    if (ok) {
        *item = q->ring[q->head];
        q->head = (q->head + 1) % q->cap;
        q->len--;
        pthread_cond_signal(&q->not_full);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

bool mr_queue_push(struct mr_queue *q, void *item)
{
    return push(q, item, true);
}

bool mr_queue_try_push(struct mr_queue *q, void *item)
{
    return push(q, item, false);
}

bool mr_queue_pop(struct mr_queue *q, void **item)
{
    return pop(q, item, true);
}

bool mr_queue_try_pop(struct mr_queue *q, void **item)
{
    return pop(q, item, false);
}

void mr_queue_stop(struct mr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->stopped = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

size_t mr_queue_len(struct mr_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->len;
    pthread_mutex_unlock(&q->lock);
    return n;
}
