/* Inside the wire: what its files share. Not for other folders.
 *
 * Invariants (asserts name them):
 *   W1  Only the progress thread uses the transport, from its start to its end.
 *   W2  A slot is in one state, and in one place: FREE on the free stack or in the ring, QUEUED in its peer's queue,
 * SENT / RECEIVING at the peer, DRAINING with its header still lent to the transport. Other threads write only `ask`,
 * and only of a slot they took from the free stack. W3  `done` is called once for each accepted request, without the
 * lock; after it the wire does not touch dst. W4  For each peer: credits + requests without a reply = the window it
 * granted. A reply returns its credit even if nobody waits for it any more. W5  What serve pinned is released once,
 * after the transport has given the bytes back. W6  At most cap bytes are written to dst, and only for the reply that
 * carries the slot's present seq. W7  A peer moves NEW -> GREETING -> READY, to SILENT and back, and to GONE, where it
 * stays. W8  Entries in use <= grant * (world - 1) + sends: a peer that asks for more than it was granted is cut off.
 *   W9  Event handlers call no operation of the transport: they leave marks, the loop acts.
 *   W10 In a forked child nothing is touched: the thread is not there, and UCX's descriptors are the parent's.
 *   W11 Of two nodes the one with the lower rank connects first; the other never does. UCX 1.13 aborts
 * the process, seldom, when two nodes connect to each other over TCP at the same moment. Lock: one mutex, for the free
 * stack, the ring and the sleeping flag; nothing is called with it held. */
#ifndef MR_WIRE_INTERNAL_H
#define MR_WIRE_INTERNAL_H

#include "wire/wire.h"
#include "wire/wire_frame.h"
#include "wire/wire_transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define MR_WIRE_NONE UINT32_MAX

enum slot_state { SLOT_FREE, SLOT_QUEUED, SLOT_SENT, SLOT_RECEIVING, SLOT_DRAINING };
struct ask { /* written by the caller's thread, handed over by the ring */
    uint32_t peer;
    uint64_t id, deadline_ns;
    uint8_t *dst;
    size_t cap;
    mr_wire_done_fn *done;
    void *ctx;
};
struct slot {
    struct ask ask;
    /* The progress thread's. */
    enum slot_state state;
    bool lent; /* the header, to the transport */
    uint32_t seq, prev, next;
    uint64_t since_ns; /* queued, then sent */
    size_t len;
    uint64_t hash;
    uint8_t header[MR_WIRE_MESSAGE_BYTES];
};

enum peer_state { PEER_NEW, PEER_GREETING, PEER_READY, PEER_SILENT, PEER_GONE };
enum { WANT_HELLO = 1, WANT_PROOF = 2, WANT_PING = 4, WANT_PONG = 8 };
struct peer {
    _Atomic int state;
    bool connected, established, on_work, control_lent;
    unsigned wants;
    const char *doomed;    /* why it must go; set by events, acted upon by the loop (W9) */
    uint64_t token_in;     /* it must show this to us */
    uint64_t token_out;    /* we must show this to it */
    struct mr_greet greet; /* where this node is the initiator */
    uint8_t proof[MR_GREET_PROOF_BYTES];
    uint32_t window, credits;
    uint32_t queue_head, queue_tail;
    uint32_t asked;   /* its requests that have no reply yet */
    uint32_t sending; /* replies to it that the transport holds */
    uint32_t receiving;
    uint64_t heard_ns, silent_ns, ping_ns, gone_ns;
    uint64_t moved_ns; /* a transfer with it began or ended */
    uint8_t control[MR_GREET_HELLO_BYTES];
};

struct entry { /* a request of a peer */
    bool busy, has_pin;
    uint32_t peer, slot, seq, next;
    uint64_t id, deadline_ns;
    void *pin;
    uint8_t header[MR_WIRE_MESSAGE_BYTES];
};

struct mr_wire {
    struct mr_wire_params p;
    uint8_t secret[MR_WIRE_SECRET_BYTES];
    pid_t pid;
    struct mr_wire_transport *transport;
    uint8_t *addresses; /* world * address_bytes */
    size_t address_bytes;

    pthread_t thread;
    bool started;
    _Atomic int thread_id;
    int wake_fd, transport_fd;
    pthread_mutex_t lock;
    pthread_cond_t room;
    bool sleeping, stop; /* under lock */
    uint32_t waiters;    /* in wait_room, under lock */
    uint32_t free_count, *free_stack;
    uint32_t ring_head, ring_count, *ring;
    _Atomic bool closed;

    /* The progress thread's. */
    struct slot *slot;
    struct peer *peer;
    struct entry *entry;
    uint32_t entries, entry_free, fifo_head, fifo_tail, grant, sending;
    uint32_t *work, work_count; /* peers to look at */
    uint32_t greeted;           /* the next peer to greet unasked (W11) */
    uint64_t now_ns, check_ns;
    bool closing;
    _Atomic uint64_t count[8 + MR_WIRE_STATUSES];
};

enum { COUNT_REQUESTS, COUNT_IN, COUNT_SERVED, COUNT_OUT, COUNT_STRANGERS, COUNT_TIMEOUTS, COUNT_WAKEUPS, COUNT_ENDED };

static inline void mr_wire_count(struct mr_wire *w, unsigned what, uint64_t n)
{
    atomic_fetch_add_explicit(&w->count[what], n, memory_order_relaxed);
}
static inline enum peer_state mr_wire_peer_state(const struct mr_wire *w, uint32_t peer)
{
    return (enum peer_state)atomic_load_explicit(&w->peer[peer].state, memory_order_relaxed);
}
static inline void mr_wire_check_by(struct mr_wire *w, uint64_t when_ns)
{
    if (when_ns < w->check_ns)
        w->check_ns = when_ns;
}

/* What a tag names: the kind in the high half, the index in the low one. */
enum { TAG_SLOT = 1, TAG_ENTRY, TAG_CONTROL };
static inline uint64_t mr_wire_tag(uint32_t kind, uint32_t index)
{
    return (uint64_t)kind << 32 | index;
}

/* wire_wireup.c: exchanges addresses, secret and what must be equal. */
int mr_wire_wire_up(struct mr_wire *w, int local, struct mr_error *err); /* local: this node has failed already */

/* wire_engine.c */
void *mr_wire_engine_run(void *wire);
extern const struct mr_wire_events mr_wire_engine_events;
void mr_wire_engine_wake(struct mr_wire *w); /* any thread */

/* wire_ask.c: this node's requests */
bool mr_wire_ask_take(struct mr_wire *w); /* from the ring; true if there was one */
void mr_wire_ask_send(struct mr_wire *w, uint32_t peer);
enum mr_wire_arrival mr_wire_ask_reply(struct mr_wire *w, struct peer *p, const struct mr_wire_message *m, size_t len,
                                       void **dst, uint64_t *tag);
void mr_wire_ask_received(struct mr_wire *w, uint32_t slot, bool ok);
void mr_wire_ask_sent(struct mr_wire *w, uint32_t slot);
void mr_wire_ask_check(struct mr_wire *w);                                           /* deadlines */
void mr_wire_ask_end_all(struct mr_wire *w, uint32_t peer, enum mr_wire_status why); /* QUEUED and SENT */
void mr_wire_ask_end_rest(struct mr_wire *w); /* the transport is closed: whatever is left */

/* wire_serve.c: requests of others */
bool mr_wire_serve_init(struct mr_wire *w);
void mr_wire_serve_request(struct mr_wire *w, uint32_t peer, const struct mr_wire_message *m);
bool mr_wire_serve_send(struct mr_wire *w); /* true if something was sent */
void mr_wire_serve_sent(struct mr_wire *w, uint32_t entry);
void mr_wire_serve_end_rest(struct mr_wire *w);

/* wire_peer.c: who is there */
void mr_wire_peer_work(struct mr_wire *w, uint32_t peer); /* marks it for the loop */
bool mr_wire_peer_connect(struct mr_wire *w, uint32_t peer);
void mr_wire_peer_act(struct mr_wire *w, uint32_t peer); /* the loop: connects, sends what is wanted, cuts off */
void mr_wire_peer_doom(struct mr_wire *w, uint32_t peer, const char *why);
void mr_wire_peer_greet_some(struct mr_wire *w); /* unasked, a few at a time */
void mr_wire_peer_silent(struct mr_wire *w, uint32_t peer);
void mr_wire_peer_check(struct mr_wire *w); /* silence, stalls, pings */
enum mr_wire_arrival mr_wire_peer_greeting(struct mr_wire *w, struct mr_wire_from *from, const uint8_t *bytes,
                                           size_t len, uint64_t *tag);
/* The peer a message comes from, MR_WIRE_NONE if its token is not right; notes that it was heard of. */
uint32_t mr_wire_peer_of(struct mr_wire *w, const struct mr_wire_from *from, const struct mr_wire_message *m);

#endif
