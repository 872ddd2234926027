/* Opening, asking, closing: what other threads call. The rest is the progress thread's (wire_engine.c). */
#include "wire/wire_internal.h"
#include "base/clock.h"
#include "base/common.h"
#include "wire/wire_fault.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

const char *mr_wire_status_name(enum mr_wire_status status)
{
    static const char *const names[MR_WIRE_STATUSES] = {"ok",   "not yet", "no",       "late",
                                                        "gone", "corrupt", "too long", "closed"};
    return (unsigned)status < MR_WIRE_STATUSES ? names[status] : "unknown";
}

/* ---- opening ---- */

static int check_params(const struct mr_wire_params *p, struct mr_error *err)
{
    if (p->world < 1 || p->rank >= p->world || !p->exchange)
        return mr_error_plain(err, MR_E_USAGE, "a wire needs a rank below its world of nodes, and a way to exchange");
    if (p->slots > 1u << 20 || p->window > 1u << 20 || p->sends > 1u << 20 || p->serve_max > 1u << 24 ||
        p->world > 1u << 20)
        return mr_error_plain(err, MR_E_USAGE, "a limit of the wire is beyond a million");
    return 0;
}

static void set_defaults(struct mr_wire_params *p)
{
    p->slots = p->slots ? p->slots : 1024;
    p->window = p->window ? p->window : 64;
    p->serve_max = p->serve_max ? p->serve_max : 16384;
    p->sends = p->sends ? p->sends : 64;
    p->stall_ns = p->stall_ns ? p->stall_ns : 5 * MR_NS_PER_S;
    p->gone_after_ns = p->gone_after_ns ? p->gone_after_ns : 30 * MR_NS_PER_S;
}

static int allocate(struct mr_wire *w, struct mr_error *err)
{
    w->slot = calloc(w->p.slots, sizeof(*w->slot));
    w->free_stack = calloc(w->p.slots, sizeof(*w->free_stack));
    w->ring = calloc(w->p.slots, sizeof(*w->ring));
    w->peer = calloc(w->p.world, sizeof(*w->peer));
    w->work = calloc(w->p.world, sizeof(*w->work));
    if (!w->slot || !w->free_stack || !w->ring || !w->peer || !w->work || !mr_wire_serve_init(w))
        return mr_error_set(err, -ENOMEM, "cannot open the wire");
    for (uint32_t i = 0; i < w->p.slots; i++)
        w->free_stack[i] = w->p.slots - 1 - i;
    w->free_count = w->p.slots;
    for (uint32_t i = 0; i < w->p.world; i++) {
        w->peer[i].queue_head = w->peer[i].queue_tail = MR_WIRE_NONE;
        if (getrandom(&w->peer[i].token_in, sizeof(w->peer[i].token_in), 0) != sizeof(w->peer[i].token_in))
            return mr_error_set(err, -errno, "cannot draw a token for the wire");
    }
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->wake_fd < 0 ? mr_error_set(err, -errno, "cannot open the wire") : 0;
}

static int open_transport(struct mr_wire *w, struct mr_error *err)
{
    struct mr_wire_transport_params tp = {
        .world = w->p.world,
        .devices = w->p.devices,
        .transports = w->p.transports,
        .events = mr_wire_engine_events,
    };
    tp.events.ctx = w;
    int rc = w->p.transport ? w->p.transport(MR_WIRE_TRANSPORT_ABI, &tp, &w->transport, err)
                            : mr_wire_module_load(&tp, &w->transport, err);
    if (rc)
        return rc;
    if (w->p.fault) {
        struct mr_wire_transport *shim = mr_wire_fault_wrap(w->transport, w->p.fault, tp.events);
        if (!shim)
            return mr_error_set(err, -ENOMEM, "cannot open the wire");
        w->transport = shim;
    }
    w->transport_fd = w->transport->ops->fd(w->transport);
    if (w->transport_fd < 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the wire's transport cannot be waited for");
    return 0;
}

static int start_thread(struct mr_wire *w, struct mr_error *err)
{
    int rc = pthread_create(&w->thread, NULL, mr_wire_engine_run, w);
    if (rc)
        return mr_error_set(err, -rc, "cannot start the wire's thread");
    w->started = true;
    return 0;
}

static void free_wire(struct mr_wire *w)
{
    if (w->transport)
        w->transport->ops->close(w->transport);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    pthread_cond_destroy(&w->room);
    pthread_mutex_destroy(&w->lock);
    free(w->addresses);
    free(w->entry);
    free(w->work);
    free(w->peer);
    free(w->ring);
    free(w->free_stack);
    free(w->slot);
    free(w);
}

/* Our thread, and those that the transport starts, take no signals: they are the program's. */
static int open_quietly(struct mr_wire *w, int (*step)(struct mr_wire *, struct mr_error *), struct mr_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = step(w, err);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int mr_wire_open(const struct mr_wire_params *p, struct mr_wire **out, struct mr_error *err)
{
    int rc = check_params(p, err);
    if (rc)
        return rc;
    struct mr_wire *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot open the wire");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->room, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->p = *p;
    w->pid = getpid();
    w->wake_fd = -1;
    w->greeted = p->rank + 1; /* W11; check_ns is 0, so the thread greets at once */
    set_defaults(&w->p);
    rc = allocate(w, err);
    rc = rc ? rc : open_quietly(w, open_transport, err);
    /* A node that failed takes part all the same: the others are waiting in the exchange. */
    int local = rc;
    rc = mr_wire_wire_up(w, local, local ? NULL : err);
    rc = local ? local : rc;
    rc = rc ? rc : open_quietly(w, start_thread, err);
    if (rc) {
        free_wire(w);
        return rc;
    }
    *out = w;
    return 0;
}

void mr_wire_close(struct mr_wire *w)
{
    if (!w || w->pid != getpid()) /* W10 */
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_mutex_unlock(&w->lock);
    mr_wire_engine_wake(w);
    pthread_join(w->thread, NULL);
    assert(w->free_count == w->p.slots); /* W2, W3: every request has ended */
    free_wire(w);
}

/* ---- asking ---- */

/* Under the lock. */
static bool submit(struct mr_wire *w, const struct ask *request)
{
    uint32_t i = w->free_stack[--w->free_count];
    struct slot *s = &w->slot[i];
    assert(s->state == SLOT_FREE && !s->lent); /* W2 */
    s->ask = *request;
    w->ring[(w->ring_head + w->ring_count++) % w->p.slots] = i;
    bool wake = w->sleeping;
    w->sleeping = false; /* one write is enough */
    return wake;
}

int mr_wire_request(struct mr_wire *w, uint32_t peer, uint64_t id, void *dst, size_t cap, uint64_t deadline_ns,
                    mr_wire_done_fn *done, void *ctx)
{
    if (w->pid != getpid()) /* W10 */
        return MR_E_UNSUPPORTED;
    if (peer >= w->p.world || peer == w->p.rank || !done || (!dst && cap))
        return MR_E_USAGE;
    enum peer_state state = mr_wire_peer_state(w, peer);
    if (state == PEER_SILENT || state == PEER_GONE)
        return MR_E_PEER;
    if (deadline_ns <= mr_now_ns())
        return MR_E_TIMEOUT;
    struct ask request = {
        .peer = peer, .id = id, .dst = dst, .cap = cap, .deadline_ns = deadline_ns, .done = done, .ctx = ctx};
    int rc = 0;
    bool wake = false;
    pthread_mutex_lock(&w->lock);
    if (atomic_load_explicit(&w->closed, memory_order_relaxed) || w->stop)
        rc = -ESHUTDOWN;
    else if (w->free_count == 0)
        rc = -EAGAIN;
    else
        wake = submit(w, &request);
    pthread_mutex_unlock(&w->lock);
    if (rc)
        return rc;
    mr_wire_count(w, COUNT_REQUESTS, 1);
    if (wake)
        mr_wire_engine_wake(w);
    return 0;
}

int mr_wire_wait_room(struct mr_wire *w, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / MR_NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % MR_NS_PER_S)};
    if (w->pid != getpid())
        return MR_E_UNSUPPORTED;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    w->waiters++;
    while (w->free_count == 0 && !w->stop && !atomic_load(&w->closed) && rc == 0)
        rc = pthread_cond_timedwait(&w->room, &w->lock, &until);
    w->waiters--;
    int result = w->stop || atomic_load(&w->closed) ? -ESHUTDOWN : w->free_count ? 0 : MR_E_TIMEOUT;
    pthread_mutex_unlock(&w->lock);
    return result;
}

bool mr_wire_peer_is_up(const struct mr_wire *w, uint32_t peer)
{
    if (peer >= w->p.world || peer == w->p.rank || w->pid != getpid())
        return false;
    enum peer_state state = mr_wire_peer_state(w, peer);
    return state != PEER_SILENT && state != PEER_GONE;
}

void mr_wire_stats(struct mr_wire *w, struct mr_wire_stats *out)
{
    uint64_t c[MR_ARRAY_LEN(w->count)];
    for (unsigned i = 0; i < MR_ARRAY_LEN(c); i++)
        c[i] = atomic_load_explicit(&w->count[i], memory_order_relaxed);
    *out = (struct mr_wire_stats){
        .requests = c[COUNT_REQUESTS],
        .bytes_in = c[COUNT_IN],
        .served = c[COUNT_SERVED],
        .bytes_out = c[COUNT_OUT],
        .strangers = c[COUNT_STRANGERS],
        .timeouts = c[COUNT_TIMEOUTS],
        .wakeups = c[COUNT_WAKEUPS],
    };
    memcpy(out->ended, &c[COUNT_ENDED], sizeof(out->ended));
}

int mr_wire_thread_id(const struct mr_wire *w)
{
    return atomic_load(&w->thread_id);
}
