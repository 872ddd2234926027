/* The progress thread: the only one that uses the transport (W1). It sleeps when there is nothing to do, in poll() on
 * the transport's event descriptor (armed first) and on an eventfd that mr_wire_request writes to.
 *
 *   take new requests -> transport's progress -> act for marked peers -> send replies -> deadlines -> nothing done:
 * sleep
 *
 * A wake-up is not lost: `sleeping` is set under the lock with the ring empty, and whoever then adds to the ring sees
 * it and writes to the eventfd; the transport promises the same for arm(). */
#include "wire/wire_internal.h"
#include "base/clock.h"
#include "base/common.h"

#include <assert.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- events of the transport (W9) ---- */

static enum mr_wire_arrival on_arrived(void *ctx, struct mr_wire_from *from, const uint8_t *header, size_t header_len,
                                       size_t len, void **dst, uint64_t *tag)
{
    struct mr_wire *w = ctx;
    struct mr_wire_message m;
    if (w->closing)
        return MR_WIRE_DROP;
    if (mr_greet_kind(header, header_len))
        return mr_wire_peer_greeting(w, from, header, header_len, tag);
    if (!mr_wire_message_decode(header, header_len, &m)) {
        mr_wire_count(w, COUNT_STRANGERS, 1);
        return MR_WIRE_STRANGER;
    }
    uint32_t peer = mr_wire_peer_of(w, from, &m);
    if (peer == MR_WIRE_NONE)
        return MR_WIRE_STRANGER;
    if (mr_wire_peer_state(w, peer) == PEER_GONE)
        return MR_WIRE_DROP;
    if (m.kind == MR_WIRE_REPLY)
        return mr_wire_ask_reply(w, &w->peer[peer], &m, len, dst, tag);
    if (m.kind == MR_WIRE_REQUEST)
        mr_wire_serve_request(w, peer, &m);
    return MR_WIRE_DROP;
}

static void on_received(void *ctx, uint64_t tag, bool ok)
{
    assert(tag >> 32 == TAG_SLOT);
    mr_wire_ask_received(ctx, (uint32_t)tag, ok);
}

static void on_sent(void *ctx, uint64_t tag, bool ok)
{
    struct mr_wire *w = ctx;
    uint32_t i = (uint32_t)tag;
    (void)ok; /* a broken connection is told by failed() */
    switch (tag >> 32) {
    case TAG_SLOT: mr_wire_ask_sent(w, i); break;
    case TAG_ENTRY: mr_wire_serve_sent(w, i); break;
    default:
        assert(tag >> 32 == TAG_CONTROL && w->peer[i].control_lent);
        w->peer[i].control_lent = false;
        if (w->peer[i].wants)
            mr_wire_peer_work(w, i);
    }
}

static void on_failed(void *ctx, uint32_t peer, const char *why)
{
    mr_wire_peer_doom(ctx, peer, why);
}

const struct mr_wire_events mr_wire_engine_events = {
    .arrived = on_arrived,
    .received = on_received,
    .sent = on_sent,
    .failed = on_failed,
};

/* ---- the loop ---- */

void mr_wire_engine_wake(struct mr_wire *w)
{
    uint64_t one = 1;
    ssize_t n = write(w->wake_fd, &one, sizeof(one));
    (void)n; /* full: it is awake */
}

static bool act(struct mr_wire *w)
{
    bool any = w->work_count > 0;
    while (w->work_count) {
        uint32_t peer = w->work[--w->work_count];
        w->peer[peer].on_work = false;
        mr_wire_peer_act(w, peer);
    }
    return mr_wire_serve_send(w) || any;
}

static void check(struct mr_wire *w)
{
    if (w->now_ns < w->check_ns)
        return;
    w->check_ns = UINT64_MAX;
    mr_wire_peer_greet_some(w);
    mr_wire_ask_check(w);
    mr_wire_peer_check(w);
}

static bool may_sleep(struct mr_wire *w)
{
    pthread_mutex_lock(&w->lock);
    bool sleep = w->ring_count == 0 && !w->stop;
    w->sleeping = sleep;
    pthread_mutex_unlock(&w->lock);
    return sleep;
}

static void sleep_until_needed(struct mr_wire *w)
{
    struct pollfd fds[2] = {{.fd = w->transport_fd, .events = POLLIN}, {.fd = w->wake_fd, .events = POLLIN}};
    if (!may_sleep(w))
        return;
    if (w->transport->ops->arm(w->transport)) {
        uint64_t until = MR_MIN(w->check_ns, w->transport->ops->wake_ns(w->transport)), now = mr_now_ns();
        uint64_t ns = until > now ? until - now : 0;
        struct timespec t = {.tv_sec = (time_t)(ns / MR_NS_PER_S), .tv_nsec = (long)(ns % MR_NS_PER_S)};
        ppoll(fds, 2, until == UINT64_MAX ? NULL : &t, NULL);
        mr_wire_count(w, COUNT_WAKEUPS, 1);
    }
    pthread_mutex_lock(&w->lock);
    w->sleeping = false;
    pthread_mutex_unlock(&w->lock);
    if (fds[1].revents) {
        uint64_t n;
        ssize_t got = read(w->wake_fd, &n, sizeof(n));
        (void)got;
    }
}

static bool stopped(struct mr_wire *w)
{
    pthread_mutex_lock(&w->lock);
    bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop || w->closing;
}

/* Requests end, buffers come back, pins are released: in this order, since the transport may hold on to both. */
static void shut_down(struct mr_wire *w)
{
    w->closing = true;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->closed, true); /* under the lock: from here on the ring takes nothing */
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->lock);
    mr_wire_ask_take(w);
    mr_wire_ask_end_all(w, MR_WIRE_NONE, MR_WIRE_CLOSED);
    w->transport->ops->close(w->transport);
    w->transport = NULL;
    mr_wire_ask_end_rest(w);
    mr_wire_serve_end_rest(w);
}

void *mr_wire_engine_run(void *wire)
{
    struct mr_wire *w = wire;
    atomic_store(&w->thread_id, (int)syscall(SYS_gettid));
    pthread_setname_np(pthread_self(), "mr-wire");
    while (!stopped(w)) {
        w->now_ns = mr_now_ns();
        bool busy = mr_wire_ask_take(w);
        busy |= w->transport->ops->progress(w->transport) > 0;
        busy |= act(w);
        check(w);
        busy |= act(w); /* what the check has decided */
        if (!busy)
            sleep_until_needed(w);
    }
    shut_down(w);
    return NULL;
}
