/* This node's requests, from the ring to `done`. Progress thread only, but for the lock around free stack and ring.
 *
 *   ring ──> QUEUED ──(credit)──> SENT ──reply──> RECEIVING ──bytes, hash──> done ──> FREE
 *               └────────────────────┴── deadline, peer silent or gone: done, then DRAINING until the header is
 * back
 *
 * A slot whose bytes are arriving cannot be ended by a deadline: somebody writes to dst. It ends when the transport
 * gives dst back, and the transport does so at the latest when the peer is disconnected (T2). */
#include "wire/wire_internal.h"
#include "base/common.h"

#include <assert.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static void queue_push(struct mr_wire *w, uint32_t i)
{
    struct slot *s = &w->slot[i];
    struct peer *p = &w->peer[s->ask.peer];
    s->state = SLOT_QUEUED;
    s->since_ns = w->now_ns;
    s->next = MR_WIRE_NONE;
    s->prev = p->queue_tail;
    if (p->queue_tail != MR_WIRE_NONE)
        w->slot[p->queue_tail].next = i;
    else
        p->queue_head = i;
    p->queue_tail = i;
}

static void queue_remove(struct mr_wire *w, uint32_t i)
{
    struct slot *s = &w->slot[i];
    struct peer *p = &w->peer[s->ask.peer];
    assert(s->state == SLOT_QUEUED); /* W2 */
    if (s->prev != MR_WIRE_NONE)
        w->slot[s->prev].next = s->next;
    else
        p->queue_head = s->next;
    if (s->next != MR_WIRE_NONE)
        w->slot[s->next].prev = s->prev;
    else
        p->queue_tail = s->prev;
}

static void free_slot(struct mr_wire *w, uint32_t i)
{
    pthread_mutex_lock(&w->lock);
    assert(w->free_count < w->p.slots && !w->slot[i].lent); /* W2 */
    w->slot[i].state = SLOT_FREE;
    w->free_stack[w->free_count++] = i;
    if (w->waiters)
        pthread_cond_signal(&w->room);
    pthread_mutex_unlock(&w->lock);
}

/* W3: the one place that calls done. */
static void finish(struct mr_wire *w, uint32_t i, enum mr_wire_status status)
{
    struct slot *s = &w->slot[i];
    assert(s->state != SLOT_FREE && s->state != SLOT_DRAINING);
    if (s->state == SLOT_QUEUED)
        queue_remove(w, i);
    if (s->state == SLOT_RECEIVING)
        w->peer[s->ask.peer].receiving--;
    s->seq++; /* W6: a reply that comes after this finds nobody */
    s->state = SLOT_DRAINING;
    mr_wire_count(w, COUNT_ENDED + status, 1);
    if (status == MR_WIRE_OK)
        mr_wire_count(w, COUNT_IN, s->len);
    s->ask.done(s->ask.ctx, status, status == MR_WIRE_OK ? s->len : 0);
    if (!s->lent)
        free_slot(w, i);
}

bool mr_wire_ask_take(struct mr_wire *w)
{
    bool any = false;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        uint32_t i = MR_WIRE_NONE;
        if (w->ring_count) {
            i = w->ring[w->ring_head];
            w->ring_head = (w->ring_head + 1) % w->p.slots;
            w->ring_count--;
        }
        pthread_mutex_unlock(&w->lock);
        if (i == MR_WIRE_NONE)
            return any;
        any = true;
        struct slot *s = &w->slot[i];
        assert(s->state == SLOT_FREE && !s->lent); /* W2 */
        enum peer_state state = mr_wire_peer_state(w, s->ask.peer);
        queue_push(w, i);
        if (w->closing || state == PEER_SILENT || state == PEER_GONE) {
            finish(w, i, w->closing ? MR_WIRE_CLOSED : MR_WIRE_GONE);
            continue;
        }
        mr_wire_check_by(w, s->ask.deadline_ns);
        mr_wire_peer_work(w, s->ask.peer);
    }
}

static void send_one(struct mr_wire *w, struct peer *p, uint32_t i)
{
    struct slot *s = &w->slot[i];
    struct mr_wire_message m = {
        .kind = MR_WIRE_REQUEST,
        .rank = w->p.rank,
        .token = p->token_out,
        .slot = i,
        .seq = s->seq,
        .id = s->ask.id,
        .time_us = s->ask.deadline_ns > w->now_ns ? (s->ask.deadline_ns - w->now_ns) / MR_NS_PER_US : 0,
    };
    queue_remove(w, i);
    s->state = SLOT_SENT;
    s->since_ns = w->now_ns;
    s->lent = true;
    p->credits--;
    mr_wire_message_encode(&m, s->header);
    if (w->transport->ops->send(w->transport, s->ask.peer, s->header, sizeof(s->header), NULL, 0,
                                mr_wire_tag(TAG_SLOT, i)) != 0) {
        s->lent = false;
        mr_wire_peer_doom(w, s->ask.peer, "a request could not be sent");
    }
}

void mr_wire_ask_send(struct mr_wire *w, uint32_t peer)
{
    struct peer *p = &w->peer[peer];
    while (p->queue_head != MR_WIRE_NONE && p->established && !(p->wants & WANT_PROOF) && p->credits > 0 &&
           !p->doomed && mr_wire_peer_state(w, peer) == PEER_READY)
        send_one(w, p, p->queue_head);
}

void mr_wire_ask_sent(struct mr_wire *w, uint32_t i)
{
    struct slot *s = &w->slot[i];
    assert(s->lent);
    s->lent = false;
    if (s->state == SLOT_DRAINING)
        free_slot(w, i);
}

static void reply_bytes(struct mr_wire *w, struct peer *p, uint32_t i, const struct mr_wire_message *m)
{
    struct slot *s = &w->slot[i];
    s->state = SLOT_RECEIVING;
    s->len = (size_t)m->len;
    s->hash = m->hash;
    p->receiving++;
    p->moved_ns = w->now_ns;
    mr_wire_check_by(w, w->now_ns + w->p.stall_ns);
}

enum mr_wire_arrival mr_wire_ask_reply(struct mr_wire *w, struct peer *p, const struct mr_wire_message *m, size_t len,
                                       void **dst, uint64_t *tag)
{
    uint32_t peer = (uint32_t)(p - w->peer);
    if (p->credits >= p->window) { /* W4: more replies than requests */
        mr_wire_peer_doom(w, peer, "it answered what nobody asked");
        return MR_WIRE_DROP;
    }
    p->credits++;
    mr_wire_peer_work(w, peer);
    struct slot *s = m->slot < w->p.slots ? &w->slot[m->slot] : NULL;
    if (!s || s->state != SLOT_SENT || s->seq != m->seq || s->ask.peer != peer) /* W6: too late, or never asked */
        return MR_WIRE_DROP;
    if (m->status != MR_WIRE_FRAME_BYTES) {
        finish(w, m->slot, m->status == MR_WIRE_FRAME_NOT_YET ? MR_WIRE_NOT_YET : MR_WIRE_NO);
        return MR_WIRE_DROP;
    }
    if (m->len != len || len > s->ask.cap) { /* W6 */
        finish(w, m->slot, m->len != len ? MR_WIRE_CORRUPT : MR_WIRE_TOO_LONG);
        return MR_WIRE_DROP;
    }
    reply_bytes(w, p, m->slot, m);
    if (len == 0) {
        mr_wire_ask_received(w, m->slot, true);
        return MR_WIRE_DROP;
    }
    *dst = s->ask.dst;
    *tag = mr_wire_tag(TAG_SLOT, m->slot);
    return MR_WIRE_TAKE;
}

void mr_wire_ask_received(struct mr_wire *w, uint32_t i, bool ok)
{
    struct slot *s = &w->slot[i];
    assert(s->state == SLOT_RECEIVING); /* W2, and T2: once */
    w->peer[s->ask.peer].moved_ns = w->now_ns;
    if (!ok)
        finish(w, i, w->closing ? MR_WIRE_CLOSED : MR_WIRE_GONE);
    else
        finish(w, i, XXH3_64bits(s->ask.dst, s->len) == s->hash ? MR_WIRE_OK : MR_WIRE_CORRUPT);
}

/* Silent: nothing heard from the peer for half of the time this one had. Replies come in the order of requests, so the
 * oldest one runs out first, and that is the one timeout which a dead peer costs. A live peer that is wrongly found
 * silent is used again as soon as it is heard of. */
static void end_late(struct mr_wire *w, uint32_t i)
{
    struct slot *s = &w->slot[i];
    uint32_t peer = s->ask.peer;
    uint64_t allowed_ns = s->ask.deadline_ns - MR_MIN(s->since_ns, s->ask.deadline_ns);
    bool silent = w->now_ns - w->peer[peer].heard_ns >= allowed_ns / 2;
    finish(w, i, MR_WIRE_LATE);
    enum peer_state state = mr_wire_peer_state(w, peer);
    if (silent && state != PEER_SILENT && state != PEER_GONE)
        mr_wire_peer_silent(w, peer);
}

void mr_wire_ask_check(struct mr_wire *w)
{
    for (uint32_t i = 0; i < w->p.slots; i++) {
        struct slot *s = &w->slot[i];
        if (s->state != SLOT_QUEUED && s->state != SLOT_SENT)
            continue;
        if (s->ask.deadline_ns <= w->now_ns)
            end_late(w, i);
        else
            mr_wire_check_by(w, s->ask.deadline_ns);
    }
}

void mr_wire_ask_end_all(struct mr_wire *w, uint32_t peer, enum mr_wire_status why)
{
    for (uint32_t i = 0; i < w->p.slots; i++) {
        struct slot *s = &w->slot[i];
        if ((s->state == SLOT_QUEUED || s->state == SLOT_SENT) && (peer == MR_WIRE_NONE || s->ask.peer == peer))
            finish(w, i, why);
    }
}

void mr_wire_ask_end_rest(struct mr_wire *w)
{
    for (uint32_t i = 0; i < w->p.slots; i++) {
        struct slot *s = &w->slot[i];
        s->lent = false; /* there is no transport any more */
        if (s->state == SLOT_DRAINING)
            free_slot(w, i);
        else if (s->state != SLOT_FREE)
            finish(w, i, MR_WIRE_CLOSED);
    }
}
