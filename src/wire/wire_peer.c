/* Who is there: greeting, recognising, finding silent, cutting off. Progress thread only.
 *
 * Greeting (wire_greet.h). Of two nodes the one with the lower rank connects and is the initiator (W11); the other
 * answers over the same connection, which becomes its peer's when the proof is right. From the connection's key both
 * take a token for each direction, which every later message must show, because a message of the transport does not name
 * its sender. A greeting that does not lead there and a message without its token are a stranger's: dropped, counted,
 * disconnected. */
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
    assert(p->connected || is_first(w, peer)); /* W11 */
    if (!p->connected)
        p->connected = w->transport->ops->connect(w->transport, peer, w->addresses + peer * w->address_bytes,
                                                  w->address_bytes) == 0;
    if (!p->connected)
        mr_wire_peer_doom(w, peer, "it could not be connected to");
    return p->connected;
}

/* ---- hellos ---- */

static void heard(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    p->heard_ns = w->now_ns;
    if (mr_wire_peer_state(w, peer) != PEER_SILENT)
        return;
    set_state(w, peer, p->established ? PEER_READY : PEER_GREETING);
    mr_wire_peer_work(w, peer);
}

static struct mr_greet_self self_of(const struct mr_wire *w)
{
    struct mr_greet_self self = {
        .key = w->secret, .use = MR_GREET_WIRE, .rank = w->p.rank, .world = w->p.world, .window = w->grant};
    memcpy(self.data_set, w->p.data_set, sizeof self.data_set);
    return self;
}

static void establish(struct mr_wire *w, uint32_t peer, const struct mr_greet *g)
{
    struct peer *p = &w->peer[peer];
    uint64_t from_initiator = mr_load_le64(g->session), from_responder = mr_load_le64(g->session + 8);
    if (!p->established) {
        p->established = true;
        p->window = p->credits = MR_MIN(w->p.window, g->window);
        p->token_in = is_first(w, peer) ? from_responder : from_initiator;
        p->token_out = is_first(w, peer) ? from_initiator : from_responder;
        set_state(w, peer, PEER_READY);
    }
    heard(w, peer);
    mr_wire_peer_work(w, peer);
}

static enum mr_wire_arrival stranger(struct mr_wire *w)
{
    mr_wire_count(w, COUNT_STRANGERS, 1);
    return MR_WIRE_STRANGER;
}

/* Of the connection that this node has made to the peer. */
static enum mr_wire_arrival challenged(struct mr_wire *w, uint32_t peer, const uint8_t *bytes, size_t len)
{
    struct peer *p = &w->peer[peer];
    struct mr_greet_self self = self_of(w);
    if (!is_first(w, peer) || mr_wire_peer_state(w, peer) == PEER_GONE)
        return MR_WIRE_DROP;
    if (!mr_greet_prove(&self, &p->greet, bytes, len, p->proof)) {
        mr_wire_count(w, COUNT_STRANGERS, 1);
        mr_wire_peer_doom(w, peer, "it does not have the job's secret");
        return MR_WIRE_DROP;
    }
    want(w, peer, WANT_PROOF);
    establish(w, peer, &p->greet);
    return MR_WIRE_DROP;
}

/* From somebody who has connected to this node. */
static enum mr_wire_arrival greeted(struct mr_wire *w, struct mr_wire_from *from, const uint8_t *bytes, size_t len,
                                    uint64_t *tag)
{
    struct mr_greet_self self = self_of(w);
    struct mr_greet *g = from->greet;
    if (mr_greet_kind(bytes, len) == MR_GREET_HELLO) {
        if (!mr_greet_answer(&self, g, bytes, len, from->answer))
            return stranger(w);
        from->answer_len = MR_GREET_CHALLENGE_BYTES;
        return MR_WIRE_ANSWER;
    }
    if (!mr_greet_accept(&self, g, bytes, len) || is_first(w, g->peer) || w->peer[g->peer].established ||
        mr_wire_peer_state(w, g->peer) == PEER_GONE)
        return stranger(w);
    w->peer[g->peer].connected = true;
    establish(w, g->peer, g);
    *tag = g->peer;
    return MR_WIRE_PEER;
}

enum mr_wire_arrival mr_wire_peer_greeting(struct mr_wire *w, struct mr_wire_from *from, const uint8_t *bytes,
                                           size_t len, uint64_t *tag)
{
    if (from->greet)
        return greeted(w, from, bytes, len, tag);
    if (from->peer == MR_WIRE_NOBODY)
        return stranger(w);
    /* A proof that comes twice says nothing new. */
    return mr_greet_kind(bytes, len) == MR_GREET_CHALLENGE ? challenged(w, from->peer, bytes, len) : MR_WIRE_DROP;
}

uint32_t mr_wire_peer_of(struct mr_wire *w, const struct mr_wire_from *from, const struct mr_wire_message *m)
{
    if (m->rank >= w->p.world || m->rank == w->p.rank || !w->peer[m->rank].established ||
        m->token != w->peer[m->rank].token_in || (from->peer != MR_WIRE_NOBODY && from->peer != m->rank) ||
        from->greet) {
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
    } rows[] = {{WANT_PING, MR_WIRE_PING}, {WANT_PONG, MR_WIRE_PONG}};
    struct mr_greet_self self = self_of(w);
    unsigned greeting = p->wants & (WANT_HELLO | WANT_PROOF);
    p->wants &= ~greeting;
    if (greeting & WANT_PROOF) { /* it is later than a HELLO */
        memcpy(p->control, p->proof, sizeof p->proof);
        return sizeof p->proof;
    }
    if (greeting && mr_greet_begin(&self, &p->greet, peer, p->control))
        return MR_GREET_HELLO_BYTES;
    if (greeting)
        mr_wire_peer_doom(w, peer, "there is no randomness to greet it with");
    for (unsigned i = 0; i < MR_ARRAY_LEN(rows); i++) {
        if (!(p->wants & rows[i].want))
            continue;
        p->wants &= ~rows[i].want;
        struct mr_wire_message m = {.kind = rows[i].kind, .rank = w->p.rank, .token = p->token_out};
        mr_wire_message_encode(&m, p->control);
        return MR_WIRE_MESSAGE_BYTES;
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
