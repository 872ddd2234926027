/* Requests of other nodes: a queue in order of arrival, served when fewer than `sends` replies are on their way, so
 * that at most so many samples are pinned. serve() is asked only then, not when the request comes. Progress thread
 * only. */
#include "wire/wire_internal.h"
#include "base/common.h"

#include <assert.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

bool mr_wire_serve_init(struct mr_wire *w)
{
    uint32_t others = w->p.world - 1;
    w->grant = others ? MR_MAX(1u, MR_MIN(w->p.window, w->p.serve_max / others)) : 0;
    w->entries = w->grant * others + w->p.sends;
    w->entry = calloc(w->entries, sizeof(*w->entry));
    if (!w->entry)
        return false;
    for (uint32_t i = 0; i < w->entries; i++)
        w->entry[i].next = i + 1 < w->entries ? i + 1 : MR_WIRE_NONE;
    w->entry_free = 0;
    w->fifo_head = w->fifo_tail = MR_WIRE_NONE;
    return true;
}

static void free_entry(struct mr_wire *w, uint32_t i)
{
    struct entry *e = &w->entry[i];
    assert(e->busy && !e->has_pin); /* W5 */
    e->busy = false;
    e->next = w->entry_free;
    w->entry_free = i;
}

static void release(struct mr_wire *w, struct entry *e)
{
    if (!e->has_pin)
        return;
    e->has_pin = false;
    if (w->p.release)
        w->p.release(w->p.serve_ctx, e->pin);
}

void mr_wire_serve_request(struct mr_wire *w, uint32_t peer, const struct mr_wire_message *m)
{
    struct peer *p = &w->peer[peer];
    if (p->asked >= w->grant) {
        mr_wire_peer_doom(w, peer, "it asked for more at a time than it was granted");
        return;
    }
    uint32_t i = w->entry_free;
    assert(i != MR_WIRE_NONE); /* W8 */
    struct entry *e = &w->entry[i];
    w->entry_free = e->next;
    uint64_t time_ns = MR_MIN(m->time_us, UINT64_MAX / 2 / MR_NS_PER_US) * MR_NS_PER_US;
    *e = (struct entry){
        .busy = true,
        .peer = peer,
        .slot = m->slot,
        .seq = m->seq,
        .id = m->id,
        .deadline_ns = w->now_ns + time_ns,
        .next = MR_WIRE_NONE,
    };
    p->asked++;
    if (w->fifo_tail != MR_WIRE_NONE)
        w->entry[w->fifo_tail].next = i;
    else
        w->fifo_head = i;
    w->fifo_tail = i;
}

/* Fills the reply; a request that came too late is answered as well, because the answer returns its credit. */
static struct mr_wire_bytes answer(struct mr_wire *w, struct entry *e, struct mr_wire_message *m)
{
    struct mr_wire_bytes bytes = {0};
    enum mr_wire_answer a = MR_WIRE_HAVE_NOT;
    if (w->now_ns > e->deadline_ns)
        a = MR_WIRE_HAVE_LATER;
    else if (w->p.serve)
        a = w->p.serve(w->p.serve_ctx, e->peer, e->id, e->deadline_ns, &bytes);
    *m = (struct mr_wire_message){
        .kind = MR_WIRE_REPLY,
        .status = a == MR_WIRE_HAVE         ? MR_WIRE_FRAME_BYTES
                  : a == MR_WIRE_HAVE_LATER ? MR_WIRE_FRAME_NOT_YET
                                            : MR_WIRE_FRAME_NO,
        .rank = w->p.rank,
        .token = w->peer[e->peer].token_out,
        .slot = e->slot,
        .seq = e->seq,
    };
    if (a != MR_WIRE_HAVE)
        return (struct mr_wire_bytes){0};
    e->has_pin = true;
    e->pin = bytes.pin;
    m->len = bytes.len;
    m->hash = bytes.has_hash ? bytes.hash : XXH3_64bits(bytes.data, bytes.len);
    return bytes;
}

static void reply(struct mr_wire *w, uint32_t i)
{
    struct entry *e = &w->entry[i];
    struct peer *p = &w->peer[e->peer];
    struct mr_wire_message m;
    p->asked--; /* its credit travels with the reply */
    if (mr_wire_peer_state(w, e->peer) == PEER_GONE || p->doomed || !p->established) {
        free_entry(w, i);
        return;
    }
    struct mr_wire_bytes bytes = answer(w, e, &m);
    mr_wire_message_encode(&m, e->header);
    if (p->sending == 0)
        p->moved_ns = w->now_ns;
    w->sending++;
    p->sending++;
    mr_wire_check_by(w, w->now_ns + w->p.stall_ns);
    mr_wire_count(w, COUNT_SERVED, 1);
    mr_wire_count(w, COUNT_OUT, bytes.len);
    if (w->transport->ops->send(w->transport, e->peer, e->header, sizeof(e->header), bytes.data, bytes.len,
                                mr_wire_tag(TAG_ENTRY, i)) != 0) {
        mr_wire_peer_doom(w, e->peer, "a reply could not be sent");
        mr_wire_serve_sent(w, i);
    }
}

bool mr_wire_serve_send(struct mr_wire *w)
{
    bool any = false;
    while (w->fifo_head != MR_WIRE_NONE && w->sending < w->p.sends) {
        uint32_t i = w->fifo_head;
        w->fifo_head = w->entry[i].next;
        if (w->fifo_head == MR_WIRE_NONE)
            w->fifo_tail = MR_WIRE_NONE;
        reply(w, i);
        any = true;
    }
    return any;
}

void mr_wire_serve_sent(struct mr_wire *w, uint32_t i)
{
    struct entry *e = &w->entry[i];
    struct peer *p = &w->peer[e->peer];
    assert(w->sending > 0 && p->sending > 0);
    w->sending--;
    p->sending--;
    p->moved_ns = w->now_ns;
    release(w, e);
    free_entry(w, i);
}

void mr_wire_serve_end_rest(struct mr_wire *w)
{
    for (uint32_t i = 0; i < w->entries; i++)
        if (w->entry[i].busy)
            release(w, &w->entry[i]);
}
