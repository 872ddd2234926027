/* Who is there: greeting, recognising, finding silent, cutting off. Progress thread only.
 *
 * Greeting. The first request to a peer connects and sends HELLO with version, data set and secret; the peer, which
 * knows our address from the launcher, connects back to that address and answers WELCOME. Each carries a random token
 * that the other must show in every later message, because a message of the transport does not tell who sent it. A
 * HELLO without the secret and a message without its token are a stranger's: dropped, counted, disconnected, not
 * answered. */
#include "wire/wire_internal.h"
#include "base/common.h"

#include <assert.h>
#include <string.h>

#define PING_NS MR_NS_PER_S
#define GREET_NS (10 * MR_NS_PER_MS) /* so many at a time, so often: 1,000 nodes in a third of a second */
#define GREET_MANY 32u

void mr_wire_peer_work(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    if (p->on_work)
        return;
    p->on_work = true;
    assert(w->work_count < w->p.world);
    w->work[w->work_count++] = peer;
}

void mr_wire_peer_doom(struct mr_wire *w, uint32_t peer, const char *why)
{
    if (!w->peer[peer].doomed)
        w->peer[peer].doomed = why;
    mr_wire_peer_work(w, peer);
}

static void set_state(struct mr_wire *w, uint32_t peer, enum peer_state to)
{
    assert(mr_wire_peer_state(w, peer) != PEER_GONE); /* W7 */
    atomic_store(&w->peer[peer].state, (int)to);
}

static void want(struct mr_wire *w, uint32_t peer, unsigned what)
{
    w->peer[peer].wants |= what;
    mr_wire_peer_work(w, peer);
}

static bool is_first(const struct mr_wire *w, uint32_t peer) /* W11 */
{
    return w->p.rank < peer;
}

bool mr_wire_peer_connect(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    assert(p->connected || is_first(w, peer) || p->heard_ns); /* W11 */
    if (!p->connected)
        p->connected = w->transport->ops->connect(w->transport, peer, w->addresses + peer * w->address_bytes,
                                                  w->address_bytes) == 0;
    if (!p->connected)
        mr_wire_peer_doom(w, peer, "it could not be connected to");
    return p->connected;
}

/* ---- hellos ---- */

/* Takes as long for a wrong secret as for the right one. */
static bool same_secret(const uint8_t *a, const uint8_t *b)
{
    uint8_t different = 0;
    for (unsigned i = 0; i < MR_WIRE_SECRET_BYTES; i++)
        different |= a[i] ^ b[i];
    return different == 0;
}

static void heard(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    p->heard_ns = w->now_ns;
    if (mr_wire_peer_state(w, peer) != PEER_SILENT)
        return;
    set_state(w, peer, p->established ? PEER_READY : PEER_GREETING);
    mr_wire_peer_work(w, peer);
}

static void establish(struct mr_wire *w, uint32_t peer, const struct mr_wire_hello *h)
{
    struct peer *p = &w->peer[peer];
    if (!p->established) {
        p->established = true;
        p->window = p->credits = MR_MIN(w->p.window, h->window);
        set_state(w, peer, PEER_READY);
    }
    p->token_out = h->token;
}

enum mr_wire_arrival mr_wire_peer_hello(struct mr_wire *w, const struct mr_wire_hello *h, uint64_t *tag)
{
    if (!same_secret(h->secret, w->secret) || h->rank >= w->p.world || h->rank == w->p.rank) {
        mr_wire_count(w, COUNT_STRANGERS, 1);
        return MR_WIRE_STRANGER;
    }
    if (mr_wire_peer_state(w, h->rank) == PEER_GONE)
        return MR_WIRE_DROP;
    heard(w, h->rank);
    *tag = h->rank;
    if (h->kind == MR_WIRE_REFUSE) {
        mr_wire_peer_doom(w, h->rank, "it is of another version or has another data set");
        return MR_WIRE_DROP;
    }
    if (h->version != MR_WIRE_VERSION || h->world != w->p.world || h->window == 0 ||
        memcmp(h->data_set, w->p.data_set, sizeof(h->data_set)) != 0) {
        want(w, h->rank, WANT_REFUSE);
        return MR_WIRE_PEER;
    }
    establish(w, h->rank, h);
    if (h->kind == MR_WIRE_HELLO)
        want(w, h->rank, WANT_WELCOME);
    mr_wire_peer_work(w, h->rank);
    return MR_WIRE_PEER;
}

uint32_t mr_wire_peer_of(struct mr_wire *w, const struct mr_wire_message *m)
{
    if (m->rank >= w->p.world || m->rank == w->p.rank || m->token != w->peer[m->rank].token_in) {
        mr_wire_count(w, COUNT_STRANGERS, 1);
        return MR_WIRE_NONE;
    }
    heard(w, m->rank);
    if (m->kind == MR_WIRE_PING)
        want(w, m->rank, WANT_PONG);
    return m->rank;
}

/* ---- the loop's part ---- */

/* The next control message that is wanted, into the peer's one buffer. Returns its length, 0 if none. */
static size_t next_control(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    static const struct {
        unsigned want;
        uint8_t kind;
    } rows[] = {{WANT_REFUSE, MR_WIRE_REFUSE},
                {WANT_WELCOME, MR_WIRE_WELCOME},
                {WANT_HELLO, MR_WIRE_HELLO},
                {WANT_PING, MR_WIRE_PING},
                {WANT_PONG, MR_WIRE_PONG}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(rows); i++) {
        if (!(p->wants & rows[i].want))
            continue;
        p->wants &= ~rows[i].want;
        if (rows[i].kind >= MR_WIRE_PING) {
            struct mr_wire_message m = {.kind = rows[i].kind, .rank = w->p.rank, .token = p->token_out};
            mr_wire_message_encode(&m, p->control);
            return MR_WIRE_MESSAGE_BYTES;
        }
        struct mr_wire_hello h = {.kind = rows[i].kind,
                                  .version = MR_WIRE_VERSION,
                                  .rank = w->p.rank,
                                  .world = w->p.world,
                                  .window = w->grant,
                                  .token = p->token_in};
        memcpy(h.data_set, w->p.data_set, sizeof(h.data_set));
        memcpy(h.secret, w->secret, sizeof(h.secret));
        mr_wire_hello_encode(&h, p->control);
        return MR_WIRE_HELLO_BYTES;
    }
    return 0;
}

static void send_control(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    while (p->wants && !p->control_lent && mr_wire_peer_connect(w, peer)) {
        size_t len = next_control(w, peer);
        if (!len)
            return;
        p->control_lent = true;
        if (w->transport->ops->send(w->transport, peer, p->control, len, NULL, 0, mr_wire_tag(TAG_CONTROL, peer)) !=
            0) {
            p->control_lent = false;
            mr_wire_peer_doom(w, peer, "a greeting could not be sent");
            return;
        }
    }
}

/* For good. Its requests end; those whose bytes were arriving end when the transport says so, in a moment. */
static void cut_off(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    set_state(w, peer, PEER_GONE);
    p->gone_ns = w->now_ns;
    p->wants = 0;
    mr_wire_ask_end_all(w, peer, MR_WIRE_GONE);
    if (p->connected)
        w->transport->ops->disconnect(w->transport, peer);
}

static void greet(struct mr_wire *w, uint32_t peer)
{
    set_state(w, peer, PEER_GREETING);
    if (is_first(w, peer))
        want(w, peer, WANT_HELLO);
}

void mr_wire_peer_greet_some(struct mr_wire *w)
{
    uint32_t end = MR_MIN(w->greeted + GREET_MANY, w->p.world);
    for (; w->greeted < end; w->greeted++)
        if (mr_wire_peer_state(w, w->greeted) == PEER_NEW)
            greet(w, w->greeted);
    if (w->greeted < w->p.world)
        mr_wire_check_by(w, w->now_ns + GREET_NS);
}

void mr_wire_peer_act(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    if (mr_wire_peer_state(w, peer) == PEER_GONE)
        return;
    if (!p->doomed && p->queue_head != MR_WIRE_NONE && mr_wire_peer_state(w, peer) == PEER_NEW)
        greet(w, peer);
    if (!p->doomed)
        send_control(w, peer);
    if (!p->doomed)
        mr_wire_ask_send(w, peer);
    if (p->doomed)
        cut_off(w, peer);
}

void mr_wire_peer_silent(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    set_state(w, peer, PEER_SILENT);
    p->silent_ns = w->now_ns;
    p->ping_ns = 0;
    mr_wire_count(w, COUNT_TIMEOUTS, 1);
    mr_wire_ask_end_all(w, peer, MR_WIRE_GONE);
    mr_wire_check_by(w, w->now_ns);
}

static void check_silent(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    if (w->now_ns - p->silent_ns >= w->p.gone_after_ns) {
        mr_wire_peer_doom(w, peer, "it is silent");
        return;
    }
    if (w->now_ns - p->ping_ns >= PING_NS) {
        p->ping_ns = w->now_ns;
        if (p->established || is_first(w, peer))
            want(w, peer, p->established ? WANT_PING : WANT_HELLO);
    }
    mr_wire_check_by(w, MR_MIN(p->ping_ns + PING_NS, p->silent_ns + w->p.gone_after_ns));
}

/* A transfer in which nothing moves for stall_ns. Where even disconnecting does not give the buffers back, the whole
 * transport is closed: that ends everything, and nothing can write into a caller's buffer afterwards. */
static void check_stall(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    bool gone = mr_wire_peer_state(w, peer) == PEER_GONE;
    uint64_t limit = (gone ? p->gone_ns : p->moved_ns) + w->p.stall_ns;
    if (w->now_ns < limit)
        mr_wire_check_by(w, limit);
    else if (!gone)
        mr_wire_peer_doom(w, peer, "it stopped in the middle of a transfer");
    else if (p->receiving)
        w->closing = true;
    mr_wire_check_by(w, w->now_ns + w->p.stall_ns);
}

void mr_wire_peer_check(struct mr_wire *w)
{
    for (uint32_t i = 0; i < w->p.world; i++) {
        struct peer *p = &w->peer[i];
        if (mr_wire_peer_state(w, i) == PEER_SILENT)
            check_silent(w, i);
        if (p->receiving || (p->sending && mr_wire_peer_state(w, i) != PEER_GONE))
            check_stall(w, i);
    }
}
