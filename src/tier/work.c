/* Devices and their threads: see work.h. */
#include "tier/work.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_FIRST 4u
#define WINDOW_NS (100 * MR_NS_PER_MS)

/* Finding the number of threads: try more, keep them if the device got faster by FASTER, else go back and hold on. */
struct tuning {
    bool on, trying;
    unsigned kept;        /* the number before the one that is being tried */
    double kept_rate;     /* bytes per second with it */
    uint64_t since_ns;    /* of the window */
    uint64_t bytes, jobs; /* moved in it */
    uint64_t starved_ns;  /* threads of it that found nothing to do */
    unsigned hold, ahead_for;
};
#define FASTER 1.08
#define HOLD 16u /* windows */

struct worker {
    struct mr_work *w;
    pthread_t id;
    unsigned index;
};

struct mr_work {
    struct mr_work_params p;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    MR_VEC(struct mr_work_job *) heap; /* lock, as all below */
    struct worker worker[MR_WORK_THREADS_MAX];
    unsigned started, limit; /* threads with index < limit work */
    unsigned running, background, idle;
    uint64_t idle_since[MR_WORK_THREADS_MAX];
    bool stop, ahead, hurry;
    struct mr_traffic_reader *reader;
    /* What the device's arbiter looks at, without the lock; written under it. */
    _Atomic unsigned demand_running, demand_threads;
    _Atomic uint64_t demand_jobs, demand_ns; /* that are over, and what they took */
    atomic_bool demand_waits;
    struct tuning tune;
    double rate;
    uint64_t busy_ns, busy_since;
};

/* ---- the heap ---- */

static void put(struct mr_work *w, size_t i, struct mr_work_job *j)
{
    w->heap.item[i] = j;
    j->at = (uint32_t)i;
}

static void sift_up(struct mr_work *w, size_t i, struct mr_work_job *j)
{
    while (i && w->heap.item[(i - 1) / 2]->key > j->key) {
        put(w, i, w->heap.item[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(w, i, j);
}

static void sift_down(struct mr_work *w, size_t i, struct mr_work_job *j)
{
    for (;;) {
        size_t k = 2 * i + 1;
        if (k + 1 < w->heap.n && w->heap.item[k + 1]->key < w->heap.item[k]->key)
            k++;
        if (k >= w->heap.n || w->heap.item[k]->key >= j->key)
            break;
        put(w, i, w->heap.item[k]);
        i = k;
    }
    put(w, i, j);
}

static void take_out(struct mr_work *w, struct mr_work_job *j)
{
    size_t i = j->at;
    assert(i < w->heap.n && w->heap.item[i] == j); /* W1 */
    struct mr_work_job *last = w->heap.item[--w->heap.n];
    j->at = MR_WORK_IDLE;
    if (last == j)
        return;
    if (i && w->heap.item[(i - 1) / 2]->key > last->key)
        sift_up(w, i, last);
    else
        sift_down(w, i, last);
}

/* ---- how many threads ---- */

static int start_threads(struct mr_work *w);

static unsigned next_up(unsigned n)
{
    return MR_MIN(n + MR_MAX(n / 2, 1u), MR_WORK_THREADS_MAX);
}

static void restart_window(struct mr_work *w, uint64_t now)
{
    struct tuning *t = &w->tune;
    t->since_ns = now;
    t->bytes = t->jobs = t->starved_ns = 0;
    for (unsigned i = 0; i < w->started; i++)
        if (w->idle_since[i])
            w->idle_since[i] = now;
}

static void set_limit(struct mr_work *w, unsigned limit)
{
    if (w->stop) /* nobody starts any more */
        return;
    w->limit = limit;
    atomic_store_explicit(&w->demand_threads, limit, memory_order_relaxed);
    start_threads(w);
    pthread_cond_broadcast(&w->wake);
}

/* A window with all threads busy says what that number of threads is worth; one without says that there are enough. */
static void judge_busy(struct mr_work *w, double rate)
{
    struct tuning *t = &w->tune;
    t->ahead_for = 0;
    if (t->trying) {
        t->trying = false;
        if (rate < t->kept_rate * FASTER) {
            set_limit(w, t->kept);
            t->hold = HOLD;
            return;
        }
    }
    if (t->hold) {
        t->hold--;
        return;
    }
    t->kept = w->limit;
    t->kept_rate = rate;
    if (next_up(w->limit) > w->limit) {
        t->trying = true;
        set_limit(w, next_up(w->limit));
    }
}

static void judge_idle(struct mr_work *w)
{
    struct tuning *t = &w->tune;
    if (t->trying) { /* it was not needed */
        t->trying = false;
        set_limit(w, t->kept);
    }
    if (w->ahead && ++t->ahead_for >= HOLD && w->limit > 1) {
        t->ahead_for = 0;
        set_limit(w, w->limit - 1);
    }
}

static void judge(struct mr_work *w, uint64_t now)
{
    struct tuning *t = &w->tune;
    uint64_t span = now - t->since_ns;
    if (span < WINDOW_NS || t->jobs < 2u * w->limit)
        return;
    for (unsigned i = 0; i < w->limit && i < w->started; i++)
        if (w->idle_since[i])
            t->starved_ns += now - w->idle_since[i];
    bool busy = t->starved_ns < span * w->limit / 10;
    double rate = (double)t->bytes / ((double)span / 1e9);
    if (busy)
        w->rate = w->rate > 0 ? (3 * w->rate + rate) / 4 : rate;
    if (busy && t->on)
        judge_busy(w, rate);
    else if (t->on)
        judge_idle(w);
    restart_window(w, now);
}

/* ---- threads ---- */

static bool is_background(const struct mr_work_job *j)
{
    return mr_work_urgency(j) >= MR_URGENT_FILL;
}

static bool may_go(struct mr_work *w, const struct mr_work_job *j, uint64_t *wait_ns)
{
    const struct mr_traffic_ask ask = {
        .class = mr_work_urgency(j) == MR_URGENT_FILL ? MR_TRAFFIC_FILL : MR_TRAFFIC_COPY,
        .hurry = w->hurry,
        .bytes = MR_MAX(j->bytes, 1u),
        .least = MR_MAX(j->bytes, 1u),
    };
    return mr_traffic_take(w->p.device, &ask, mr_now_ns(), wait_ns) > 0;
}

/* The job to do now; NULL: none may go. *wait_ns: for so long, if there is one that must wait for its tokens. */
static struct mr_work_job *choose(struct mr_work *w, uint64_t *wait_ns)
{
    *wait_ns = 0;
    if (!w->heap.n)
        return NULL;
    struct mr_work_job *j = w->heap.item[0];
    if (is_background(j)) {
        if (w->limit > 1 && w->background + 1 >= w->limit)
            return NULL;
        if (!may_go(w, j, wait_ns))
            return NULL;
    }
    take_out(w, j);
    return j;
}

static void wait_for_work(struct mr_work *w, unsigned index, uint64_t wait_ns)
{
    struct timespec until;
    uint64_t start = mr_now_ns(), end = start + MR_MIN(wait_ns ? wait_ns : MR_NS_PER_S, MR_NS_PER_S);
    until.tv_sec = (time_t)(end / MR_NS_PER_S);
    until.tv_nsec = (long)(end % MR_NS_PER_S);
    w->idle_since[index] = start;
    w->idle++;
    pthread_cond_timedwait(&w->wake, &w->lock, &until);
    w->idle--;
    if (w->idle_since[index] && index < w->limit)
        w->tune.starved_ns += mr_now_ns() - w->idle_since[index];
    w->idle_since[index] = 0;
}

/* For the arbiter, without the lock. */
static void look(void *user, uint64_t now_ns, struct mr_demand *out)
{
    struct mr_work *w = user;
    (void)now_ns;
    out->reading = atomic_load_explicit(&w->demand_running, memory_order_relaxed);
    out->reads = atomic_load_explicit(&w->demand_jobs, memory_order_relaxed);
    out->read_ns = atomic_load_explicit(&w->demand_ns, memory_order_relaxed);
    out->threads = atomic_load_explicit(&w->demand_threads, memory_order_relaxed);
    out->waits = atomic_load_explicit(&w->demand_waits, memory_order_relaxed);
}

/* Does the job without the lock. */
static void do_job(struct mr_work *w, void *mine, struct mr_work_job *j)
{
    bool background = is_background(j);
    uint64_t start = mr_now_ns(), asked = MR_MAX(j->bytes, 1u);
    if (w->running++ == 0)
        w->busy_since = start;
    w->background += background;
    w->demand_running += !background;
    pthread_mutex_unlock(&w->lock);
    uint64_t bytes = w->p.run(w->p.user, mine, j);
    uint64_t end = mr_now_ns();
    if (background)
        mr_traffic_done(w->p.device, asked, start, end);
    pthread_mutex_lock(&w->lock);
    if (--w->running == 0)
        w->busy_ns += end - w->busy_since;
    w->background -= background;
    w->demand_running -= !background;
    w->demand_jobs += !background;
    w->demand_ns += background ? 0 : end - start;
    w->tune.bytes += bytes;
    w->tune.jobs++;
    judge(w, end);
}

static void *worker_main(void *arg)
{
    struct worker *me = arg;
    struct mr_work *w = me->w;
    void *mine = w->p.enter ? w->p.enter(w->p.user) : NULL;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        uint64_t wait_ns = 0;
        struct mr_work_job *j = me->index < w->limit ? choose(w, &wait_ns) : NULL;
        if (!j) {
            wait_for_work(w, me->index, wait_ns);
            continue;
        }
        do_job(w, mine, j);
    }
    pthread_mutex_unlock(&w->lock);
    if (w->p.leave)
        w->p.leave(w->p.user, mine);
    return NULL;
}

static int start_threads(struct mr_work *w)
{
    while (w->started < w->limit) {
        struct worker *k = &w->worker[w->started];
        *k = (struct worker){.w = w, .index = w->started};
        int rc = pthread_create(&k->id, NULL, worker_main, k);
        if (rc) {
            w->limit = MR_MAX(w->started, 1u);
            return -rc;
        }
        w->started++;
    }
    return 0;
}

int mr_work_start(const struct mr_work_params *p, struct mr_work **out, struct mr_error *err)
{
    struct mr_work *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "no memory for the threads of %s", p->name);
    w->p = *p;
    w->limit = p->threads ? MR_MIN(p->threads, MR_WORK_THREADS_MAX) : THREADS_FIRST;
    w->tune = (struct tuning){.on = p->threads == 0, .since_ns = mr_now_ns(), .hold = 2};
    w->demand_threads = w->limit;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_lock(&w->lock);
    int rc = start_threads(w);
    bool some = w->started > 0;
    pthread_mutex_unlock(&w->lock);
    if (!some) {
        mr_work_stop(w);
        return mr_error_set(err, rc, "cannot start a thread for %s", p->name);
    }
    w->reader = mr_traffic_join(p->device, look, w);
    *out = w;
    return 0;
}

void mr_work_stop(struct mr_work *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->started; i++)
        pthread_join(w->worker[i].id, NULL);
    assert(!w->running); /* W2: what is left was not begun */
    mr_traffic_leave(w->reader);
    for (size_t i = 0; i < w->heap.n; i++) {
        w->heap.item[i]->at = MR_WORK_IDLE;
        w->p.drop(w->p.user, w->heap.item[i]); /* W2 */
    }
    free(w->heap.item);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

bool mr_work_push(struct mr_work *w, struct mr_work_job *job)
{
    pthread_mutex_lock(&w->lock);
    assert(job->at == MR_WORK_IDLE); /* W1 */
    bool there = !w->stop && MR_VEC_ADD(&w->heap) != NULL;
    if (there) {
        job->pushed_ns = mr_now_ns();
        sift_up(w, w->heap.n - 1, job);
    }
    bool wake = there && w->idle, all = w->limit < w->started; /* the one woken may be one that rests */
    pthread_mutex_unlock(&w->lock);
    if (wake && all)
        pthread_cond_broadcast(&w->wake);
    else if (wake)
        pthread_cond_signal(&w->wake);
    return there;
}

void mr_work_raise(struct mr_work *w, struct mr_work_job *job, uint64_t key)
{
    pthread_mutex_lock(&w->lock);
    bool sooner = key < job->key;
    if (sooner)
        job->key = key;
    if (sooner && job->at != MR_WORK_IDLE) {
        sift_up(w, job->at, job);
        if (w->idle) /* it may have waited for tokens, as background jobs do */
            pthread_cond_broadcast(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

bool mr_work_take_back(struct mr_work *w, struct mr_work_job *job)
{
    pthread_mutex_lock(&w->lock);
    bool waits = job->at != MR_WORK_IDLE;
    if (waits)
        take_out(w, job);
    pthread_mutex_unlock(&w->lock);
    return waits;
}

struct mr_work_job *mr_work_take_last(struct mr_work *w)
{
    struct mr_work_job *last = NULL;
    pthread_mutex_lock(&w->lock);
    for (size_t i = w->heap.n / 2; i < w->heap.n; i++) /* leaves */
        if (!last || w->heap.item[i]->key > last->key)
            last = w->heap.item[i];
    if (last)
        take_out(w, last);
    pthread_mutex_unlock(&w->lock);
    return last;
}

void mr_work_load(struct mr_work *w, struct mr_work_load *out)
{
    pthread_mutex_lock(&w->lock);
    *out = (struct mr_work_load){
        .waiting = (uint32_t)w->heap.n,
        .running = w->running,
        .background = w->background,
        .threads = w->limit,
        .rate = w->rate,
        .busy_ns = w->busy_ns + (w->running ? mr_now_ns() - w->busy_since : 0),
    };
    pthread_mutex_unlock(&w->lock);
}

void mr_work_ahead(struct mr_work *w, bool ahead)
{
    pthread_mutex_lock(&w->lock);
    w->ahead = ahead;
    atomic_store_explicit(&w->demand_waits, !ahead, memory_order_relaxed);
    pthread_mutex_unlock(&w->lock);
}

void mr_work_hurry(struct mr_work *w, bool hurry)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->hurry = hurry;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
}
