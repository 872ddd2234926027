/* See the header. Medians, because single steps of a training vary by more than the two per cent that count. */
#include "checkpoint/state_pace.h"

#include "base/clock.h"
#include "base/common.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RATE_FIRST (128 * MR_MIB)
#define RATE_LEAST (8 * MR_MIB)
#define RATE_MOST (64ull << 30) /* beyond what a drain reaches: no limit */
#define QUIET_LEAST 5           /* steps, to compare with */
#define PAUSE 20                /* times the usual: an evaluation, not a step */

struct mr_pace {
    pthread_mutex_t lock;
    pthread_cond_t hurried;
    uint64_t most, rate; /* rate 0: no step was told of yet */
    uint64_t last_step_ns, next_ns;
    uint64_t quiet[MR_PACE_QUIET], busy[MR_PACE_WINDOW];
    unsigned n_quiet, at_quiet, n_busy;
    bool active; /* something was moved since the last step */
    unsigned hurry;
};

struct mr_pace *mr_pace_create(uint64_t most)
{
    struct mr_pace *p = calloc(1, sizeof(*p));
    pthread_condattr_t monotonic;
    if (!p)
        return NULL;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->hurried, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->most = most;
    return p;
}

void mr_pace_free(struct mr_pace *p)
{
    if (!p)
        return;
    pthread_cond_destroy(&p->hurried);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static uint64_t median(const uint64_t *v, unsigned n)
{
    uint64_t sorted[MR_PACE_QUIET];
    memcpy(sorted, v, n * sizeof(*v));
    qsort(sorted, n, sizeof(*sorted), by_size);
    return sorted[n / 2];
}

static void judge(struct mr_pace *p, uint64_t usual)
{
    uint64_t now = median(p->busy, p->n_busy);
    p->n_busy = 0;
    bool slower = (double)now > MR_PACE_SLOWER * (double)usual;
    p->rate = slower ? MR_MAX(p->rate / 2, RATE_LEAST) : MR_MIN(p->rate + p->rate / 2, RATE_MOST);
}

void mr_pace_step(struct mr_pace *p, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    uint64_t took = now_ns - p->last_step_ns, usual = p->n_quiet ? median(p->quiet, p->n_quiet) : 0;
    bool first = !p->last_step_ns, counts = !first && (!usual || took < PAUSE * usual);
    p->last_step_ns = now_ns;
    if (first)
        p->rate = RATE_FIRST;
    if (counts && !p->active) {
        p->quiet[p->at_quiet] = took;
        p->at_quiet = (p->at_quiet + 1) % MR_PACE_QUIET;
        p->n_quiet = MR_MIN(p->n_quiet + 1, (unsigned)MR_PACE_QUIET);
    } else if (counts && p->n_quiet >= QUIET_LEAST) {
        p->busy[p->n_busy++] = took;
        if (p->n_busy == MR_PACE_WINDOW)
            judge(p, usual);
    }
    p->active = false;
    pthread_mutex_unlock(&p->lock);
}

/* The lock is held. */
static uint64_t limit(const struct mr_pace *p)
{
    uint64_t rate = p->hurry ? 0 : p->rate;
    if (p->most && (!rate || p->most < rate))
        return p->most;
    return rate;
}

uint64_t mr_pace_take(struct mr_pace *p, uint64_t bytes, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    uint64_t rate = limit(p), at = MR_MAX(now_ns, p->next_ns);
    p->active = true;
    if (rate)
        p->next_ns = at + (uint64_t)((double)bytes * 1e9 / (double)rate);
    pthread_mutex_unlock(&p->lock);
    return rate ? at : now_ns;
}

void mr_pace_wait(struct mr_pace *p, uint64_t until_ns)
{
    struct timespec t = {(time_t)(until_ns / MR_NS_PER_S), (long)(until_ns % MR_NS_PER_S)};
    pthread_mutex_lock(&p->lock);
    while (!p->hurry && mr_now_ns() < until_ns)
        pthread_cond_timedwait(&p->hurried, &p->lock, &t);
    p->active = true;
    if (p->hurry)
        p->next_ns = 0;
    pthread_mutex_unlock(&p->lock);
}

void mr_pace_hurry(struct mr_pace *p, bool begins)
{
    pthread_mutex_lock(&p->lock);
    p->hurry = begins ? p->hurry + 1 : p->hurry - 1;
    if (begins)
        pthread_cond_broadcast(&p->hurried);
    pthread_mutex_unlock(&p->lock);
}

uint64_t mr_pace_rate(struct mr_pace *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t rate = limit(p);
    pthread_mutex_unlock(&p->lock);
    return rate;
}
