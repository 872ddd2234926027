/* Progress: counters that any thread advances, and one thread that draws them.
 *
 * Invariants: 1. Only the drawing thread writes to the stream until stop has joined it; then the caller does. 2. The
 * counters are atomics; `limiter` and `stopping` are guarded by `lock`. 3. Without a stream no thread exists.
 *
 * The rate shown and used for the ETA is smoothed exponentially over about five seconds, so that one slow file does not
 * make the ETA jump; the final line gives the plain average instead. */
#include "base/progress.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define TTY_PERIOD_NS (200 * MR_NS_PER_MS)
#define LINE_PERIOD_NS (10 * MR_NS_PER_S)
#define SMOOTH_S 5.0

struct mr_progress {
    struct mr_progress_options opt;
    bool tty;
    uint64_t start_ns;
    _Atomic uint64_t units, bytes;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;
    char limiter[64];
    pthread_t thread;
    /* The drawing thread's own: */
    uint64_t last_ns, last_units, last_bytes;
    double unit_rate, byte_rate;
};

static void smooth(double *rate, double now, double dt_s, bool first)
{
    double keep = first ? 0 : exp(-dt_s / SMOOTH_S);
    *rate = keep * *rate + (1 - keep) * now;
}

static void update_rates(struct mr_progress *p, uint64_t now_ns)
{
    double dt = (double)(now_ns - p->last_ns) / 1e9;
    if (dt < 1e-3)
        return;
    uint64_t units = atomic_load(&p->units), bytes = atomic_load(&p->bytes);
    bool first = p->last_ns == p->start_ns;
    assert(units >= p->last_units && bytes >= p->last_bytes); /* invariant 2: counters only advance */
    smooth(&p->unit_rate, (double)(units - p->last_units) / dt, dt, first);
    smooth(&p->byte_rate, (double)(bytes - p->last_bytes) / dt, dt, first);
    p->last_ns = now_ns;
    p->last_units = units;
    p->last_bytes = bytes;
}

static void add_counts(struct mr_progress *p, struct mr_strbuf *s, uint64_t units, uint64_t bytes)
{
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    const struct mr_progress_options *o = &p->opt;
    if (o->total)
        mr_strbuf_printf(s, "%s / %s %s", mr_human_count(units, a), mr_human_count(o->total, b), o->unit);
    else
        mr_strbuf_printf(s, "%s %s", mr_human_count(units, a), o->unit);
    if (bytes || o->total_bytes)
        mr_strbuf_printf(s, ", %s", mr_human_bytes((double)bytes, a));
}

static void add_rate(struct mr_progress *p, struct mr_strbuf *s, double unit_rate, double byte_rate)
{
    char a[MR_HUMAN_LEN];
    if (byte_rate > 0)
        mr_strbuf_printf(s, ", %s", mr_human_rate(byte_rate, a));
    else if (unit_rate > 0)
        mr_strbuf_printf(s, ", %.*f %s/s", unit_rate < 10 ? 2 : 0, unit_rate, p->opt.unit);
}

/* Bytes predict the remaining time better than files of unequal size; negative: unknown. */
static double eta_s(const struct mr_progress *p, uint64_t units, uint64_t bytes)
{
    const struct mr_progress_options *o = &p->opt;
    if (o->total_bytes && p->byte_rate > 0)
        return bytes < o->total_bytes ? (double)(o->total_bytes - bytes) / p->byte_rate : 0;
    if (o->total && p->unit_rate > 0)
        return units < o->total ? (double)(o->total - units) / p->unit_rate : 0;
    return -1;
}

static void format_line(struct mr_progress *p, struct mr_strbuf *s)
{
    uint64_t units = atomic_load(&p->units), bytes = atomic_load(&p->bytes);
    char a[MR_HUMAN_LEN];
    mr_strbuf_printf(s, "%s: ", p->opt.verb);
    add_counts(p, s, units, bytes);
    double share = p->opt.total_bytes ? (double)bytes / (double)p->opt.total_bytes
                   : p->opt.total     ? (double)units / (double)p->opt.total
                                      : -1;
    if (share >= 0)
        mr_strbuf_printf(s, " (%.0f %%)", 100 * MR_MIN(share, 1.0));
    add_rate(p, s, p->unit_rate, p->byte_rate);
    double eta = eta_s(p, units, bytes);
    if (eta >= 0)
        mr_strbuf_printf(s, ", ETA %s", mr_human_ns(ceil(eta) * 1e9, a));
    pthread_mutex_lock(&p->lock);
    if (p->limiter[0])
        mr_strbuf_printf(s, ", limited by %s", p->limiter);
    pthread_mutex_unlock(&p->lock);
}

/* A line longer than the terminal would wrap and then not be overwritten. */
static size_t terminal_columns(FILE *stream)
{
    struct winsize w;
    int fd = fileno(stream);
    return fd >= 0 && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 10 ? w.ws_col - 1u : 200;
}

static void draw(struct mr_progress *p)
{
    struct mr_strbuf s = {0};
    format_line(p, &s);
    assert(p->opt.stream); /* invariant 3 */
    if (s.text && p->tty) {
        size_t columns = terminal_columns(p->opt.stream);
        fprintf(p->opt.stream, "\r%.*s\033[K", (int)MR_MIN(s.len, columns), s.text);
    } else if (s.text) {
        fprintf(p->opt.stream, "%s\n", s.text);
    }
    fflush(p->opt.stream);
    mr_strbuf_done(&s);
}

static void draw_final(struct mr_progress *p)
{
    struct mr_strbuf s = {0};
    char a[MR_HUMAN_LEN];
    assert(p->opt.stream && p->stopping); /* invariants 1 and 3: the drawing thread has ended */
    double elapsed_s = (double)(mr_now_ns() - p->start_ns) / 1e9;
    uint64_t units = atomic_load(&p->units), bytes = atomic_load(&p->bytes);
    mr_strbuf_printf(&s, "%s: ", p->opt.verb);
    add_counts(p, &s, units, bytes);
    mr_strbuf_printf(&s, " in %s", mr_human_ns(elapsed_s * 1e9, a));
    if (elapsed_s > 0)
        add_rate(p, &s, (double)units / elapsed_s, (double)bytes / elapsed_s);
    if (s.text)
        fprintf(p->opt.stream, p->tty ? "\r%s\033[K\n" : "%s\n", s.text);
    fflush(p->opt.stream);
    mr_strbuf_done(&s);
}

static void *draw_loop(void *arg)
{
    struct mr_progress *p = arg;
    uint64_t next_line_ns = p->start_ns + (p->tty ? TTY_PERIOD_NS : LINE_PERIOD_NS);
    for (uint64_t wake_ns = p->start_ns + TTY_PERIOD_NS;; wake_ns += TTY_PERIOD_NS) {
        struct timespec t = {.tv_sec = (time_t)(wake_ns / MR_NS_PER_S), .tv_nsec = (long)(wake_ns % MR_NS_PER_S)};
        pthread_mutex_lock(&p->lock);
        while (!p->stopping && pthread_cond_timedwait(&p->wake, &p->lock, &t) != ETIMEDOUT) {
        }
        bool stopping = p->stopping;
        pthread_mutex_unlock(&p->lock);
        if (stopping)
            return NULL;
        uint64_t now = mr_now_ns();
        wake_ns = MR_MAX(wake_ns, now - MR_MIN(now, TTY_PERIOD_NS)); /* a suspended process does not catch up */
        update_rates(p, now);
        if (now >= next_line_ns) {
            draw(p);
            next_line_ns = now + (p->tty ? TTY_PERIOD_NS / 2 : LINE_PERIOD_NS);
        }
    }
}

static void init_wake(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

int mr_progress_start(const struct mr_progress_options *opt, struct mr_progress **out, struct mr_error *err)
{
    struct mr_progress *p = calloc(1, sizeof(*p));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot show progress");
    p->opt = *opt;
    p->start_ns = p->last_ns = mr_now_ns();
    pthread_mutex_init(&p->lock, NULL);
    init_wake(&p->wake);
    if (opt->stream) {
        int fd = fileno(opt->stream);
        p->tty = opt->force_tty < 0 ? fd >= 0 && isatty(fd) : opt->force_tty;
        int code = pthread_create(&p->thread, NULL, draw_loop, p);
        if (code) {
            p->opt.stream = NULL;
            mr_progress_stop(p);
            return mr_error_set(err, -code, "cannot start the progress thread");
        }
    }
    *out = p;
    return 0;
}

void mr_progress_add(struct mr_progress *p, uint64_t units, uint64_t bytes)
{
    atomic_fetch_add_explicit(&p->units, units, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
}

void mr_progress_set_limiter(struct mr_progress *p, const char *text)
{
    pthread_mutex_lock(&p->lock);
    snprintf(p->limiter, sizeof p->limiter, "%s", text ? text : "");
    pthread_mutex_unlock(&p->lock);
}

void mr_progress_stop(struct mr_progress *p)
{
    if (!p)
        return;
    if (p->opt.stream) {
        pthread_mutex_lock(&p->lock);
        p->stopping = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        if (atomic_load(&p->units) || !p->opt.only_work)
            draw_final(p);
    }
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
