/* See the header. Medians, because single steps of a training vary by more than the two per cent that count. */
#include "checkpoint/state_pace.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/cond.h"
#include "store/store.h"
#include "store/traffic.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RATE_FIRST (128 * MR_MIB)
#define RATE_LEAST (8 * MR_MIB)
#define RATE_MOST (64ull << 30) /* beyond what a drain reaches: no limit */
#define QUIET_LEAST 5           /* steps, to compare with */
#define PAUSE 20                /* times the usual: an evaluation, not a step */

struct mr_pace {
    pthread_mutex_t lock;
    pthread_cond_t hurried;
    pthread_mutex_t turn; /* beside reads chunks are moved one after the other; taken before `lock` */
    uint64_t most, rate;  /* rate 0: no step was told of yet */
    bool free;            /* steps were never slower */
    uint64_t moved;       /* in the steps of `busy` */
    uint64_t left, saved_ns,
        interval_ns; /* of the save that is moved: bytes; when it came, and how long after another */
    uint64_t last_step_ns, next_ns;
    uint64_t quiet[MR_PACE_QUIET], busy[MR_PACE_WINDOW];
    unsigned n_quiet, at_quiet, n_busy;
    bool active;       /* something was moved since the last step */
    atomic_uint hurry; /* changed under the lock, which mr_pace_wait holds */
};

struct mr_pace *mr_pace_create(uint64_t most, bool cautious)
{
    struct mr_pace *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->turn, NULL);
    mr_cond_init(&p->hurried);
    p->most = most;
    p->free = !cautious;
    return p;
}

void mr_pace_free(struct mr_pace *p)
{
    if (!p)
        return;
    pthread_cond_destroy(&p->hurried);
    pthread_mutex_destroy(&p->turn);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return MR_ORDER(*x, *y);
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
    uint64_t spent = 0;
    for (unsigned i = 0; i < p->n_busy; i++)
        spent += p->busy[i];
    bool slower = (double)now > MR_PACE_SLOWER * (double)usual;
    if (p->free && slower) { /* from what it was, which nobody limited */
        p->rate = (uint64_t)((double)p->moved * 1e9 / (double)spent);
        p->free = false;
    }
    p->n_busy = 0;
    p->moved = 0;
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
    uint64_t rate = p->hurry || p->free ? 0 : p->rate;
    if (p->most && (!rate || p->most < rate))
        return p->most;
    return rate;
}

uint64_t mr_pace_take(struct mr_pace *p, uint64_t bytes, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    uint64_t rate = limit(p), at = MR_MAX(now_ns, p->next_ns);
    p->active = true;
    p->moved += bytes;
    if (rate)
        p->next_ns = at + (uint64_t)((double)bytes * 1e9 / (double)rate);
    pthread_mutex_unlock(&p->lock);
    return rate ? at : now_ns;
}

void mr_pace_wait(struct mr_pace *p, uint64_t until_ns)
{
    pthread_mutex_lock(&p->lock);
    while (!p->hurry && mr_now_ns() < until_ns)
        mr_cond_wait_until(&p->hurried, &p->lock, until_ns);
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

/* ---- how fast it must be ---- */

void mr_pace_save(struct mr_pace *p, uint64_t bytes, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    p->interval_ns = p->saved_ns ? now_ns - p->saved_ns : 0;
    p->saved_ns = now_ns;
    p->left = MR_MIN(p->left, bytes) + bytes; /* at most one before it; others failed */
    pthread_mutex_unlock(&p->lock);
}

/* Bytes per second to be over in nine tenths of the time; once that has passed, the rest takes as long as a tenth. 0:
 * unknown, or nothing is left. */
static double need_per_s(struct mr_pace *p, uint64_t now_ns)
{
    pthread_mutex_lock(&p->lock);
    double all = (double)p->interval_ns, passed = (double)(now_ns - p->saved_ns);
    double need = all > 0 ? (double)p->left * 1e9 / MR_MAX(0.9 * all - passed, 0.1 * all) : 0;
    pthread_mutex_unlock(&p->lock);
    return need;
}

/* ---- moving ---- */

/* Waits for the device; how many of the bytes may go. */
static size_t pass(const struct mr_pace_way *w, size_t bytes)
{
    for (;;) {
        uint64_t now = mr_now_ns(), wait_ns;
        struct mr_traffic_ask ask = {.class = MR_TRAFFIC_DRAIN,
                                     .hurry = (w->stop && atomic_load(w->stop)) || w->pace->hurry,
                                     .bytes = bytes,
                                     .least = MR_MIN(bytes, MR_TRAFFIC_PIECE),
                                     .need_per_s = need_per_s(w->pace, now)};
        uint64_t got = mr_traffic_take(w->device, &ask, now, &wait_ns);
        if (got)
            return (size_t)got;
        mr_pace_wait(w->pace, now + wait_ns);
    }
}

static int move(const struct mr_pace_way *w, struct mr_object *o, const uint8_t *from, uint8_t *into, size_t n,
                uint64_t at, struct mr_error *err)
{
    int rc = 0;
    for (size_t done = 0; done < n && !rc;) {
        size_t piece = w->pace ? pass(w, n - done) : n;
        uint64_t start = mr_now_ns();
        rc = from ? mr_object_write(o, from + done, piece, at + done, err)
                  : mr_object_read(o, into + done, piece, at + done, err);
        if (w->pace) {
            mr_traffic_done(w->device, piece, start, mr_now_ns());
            pthread_mutex_lock(&w->pace->lock);
            w->pace->left -= w->by_steps ? MR_MIN(piece, w->pace->left) : 0;
            pthread_mutex_unlock(&w->pace->lock);
        }
        done += piece;
    }
    return rc;
}

int mr_pace_move(const struct mr_pace_way *w, struct mr_object *o, const void *from, void *into, size_t n, uint64_t at,
                 struct mr_error *err)
{
    if (w->pace && w->by_steps)
        mr_pace_wait(w->pace, mr_pace_take(w->pace, n, mr_now_ns()));
    bool turns = w->pace && mr_traffic_shared(w->device) && !w->pace->hurry;
    if (turns)
        pthread_mutex_lock(&w->pace->turn);
    int rc = move(w, o, from, into, n, at, err);
    if (!rc && turns && from && w->flush)
        rc = o->store->ops->fsync(o, err);
    if (turns)
        pthread_mutex_unlock(&w->pace->turn);
    return rc;
}
