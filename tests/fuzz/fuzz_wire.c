/* Everything that can come to a node of the wire: the rounds of its wire-up, greetings over connections of nobody and of
 * peers, messages with and without the right token, whatever their fields, broken connections. Any bytes end in refusals
 * and ended requests: never a crash, a request without an end, a pin that stays, or a byte beyond a buffer.
 *
 * The transport is a script: each byte of the input chooses what happens next, the bytes behind it fill its fields. The
 * script has the job's secret, so that it also reaches what only a peer can do. */
#include "base/clock.h"
#include "base/common.h"
#include "wire/wire.h"
#include "wire/wire_frame.h"
#include "wire/wire_transport.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WORLD 4u
#define RANK 1u
#define LINKS 4u /* of nobody */
#define CAP 64u
#define ASKS 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t secret[MR_WIRE_SECRET_BYTES] = "the fuzz target's";

struct script {
    struct mr_wire_transport base;
    struct mr_wire_events events;
    const uint8_t *data;
    size_t size, at;
    int fd;
    atomic_bool over;
    uint64_t lens[WORLD]; /* of what this node has sent */
    /* The other ends. */
    struct mr_greet link[LINKS], theirs[LINKS]; /* this node's side of a connection of nobody, and the stranger's */
    uint32_t owner[LINKS];
    struct mr_greet peer[WORLD]; /* the responders' side of connections that this node has made */
    bool greeted[WORLD];
    uint8_t *dst[ASKS];
    unsigned asked, done, pinned, released;
};

static struct script *of(struct mr_wire_transport *t)
{
    return MR_CONTAINER_OF(t, struct script, base);
}

static uint8_t next(struct script *s)
{
    return s->at < s->size ? s->data[s->at++] : 0;
}

static uint64_t number(struct script *s)
{
    uint64_t v = 0;
    uint8_t how = next(s);
    if (how < 64)
        return how;
    for (unsigned i = 0; i < how % 9; i++)
        v = v << 8 | next(s);
    return v;
}

static struct mr_greet_self self_of(uint32_t rank)
{
    return (struct mr_greet_self){.key = secret, .use = MR_GREET_WIRE, .rank = rank, .world = WORLD, .window = 8};
}

static void arrive(struct script *s, struct mr_wire_from *from, const uint8_t *header, size_t header_len, size_t len)
{
    uint8_t *copy = malloc(header_len ? header_len : 1), answer[MR_WIRE_HEADER_MAX];
    void *dst = NULL;
    uint64_t tag = 0;
    memcpy(copy, header, header_len);
    from->answer = answer;
    enum mr_wire_arrival a = s->events.arrived(s->events.ctx, from, copy, header_len, len, &dst, &tag);
    if (a == MR_WIRE_TAKE) {
        memset(dst, 0x5a, len);
        s->events.received(s->events.ctx, tag, next(s) % 4 != 0);
    }
    for (unsigned k = 0; k < LINKS; k++)
        if (from->greet == &s->link[k] && a == MR_WIRE_PEER)
            s->owner[k] = (uint32_t)tag;
        else if (from->greet == &s->link[k] && a == MR_WIRE_STRANGER)
            s->link[k] = s->theirs[k] = (struct mr_greet){0};
        else if (from->greet == &s->link[k] && a == MR_WIRE_ANSWER) {
            if (from->answer_len > MR_WIRE_HEADER_MAX)
                abort();
            memcpy(s->theirs[k].challenge, answer, MR_GREET_CHALLENGE_BYTES);
        }
    free(copy);
}

static struct mr_wire_from from_link(struct script *s, unsigned k)
{
    return (struct mr_wire_from){.peer = s->owner[k], .greet = s->owner[k] == MR_WIRE_NOBODY ? &s->link[k] : NULL};
}

/* A greeting as a peer would make it, up to the step that the script chooses. */
static void greet(struct script *s, unsigned k, bool prove)
{
    struct mr_greet_self self = self_of(next(s) % 8 ? 0 : next(s) % WORLD);
    uint8_t bytes[MR_GREET_HELLO_BYTES], challenge[MR_GREET_CHALLENGE_BYTES];
    struct mr_wire_from from = from_link(s, k);
    memcpy(challenge, s->theirs[k].challenge, sizeof challenge);
    bool ok = prove ? mr_greet_prove(&self, &s->theirs[k], challenge, sizeof challenge, bytes)
                    : mr_greet_begin(&self, &s->theirs[k], RANK, bytes);
    if (!ok)
        return;
    if (next(s) % 4 == 0)
        bytes[next(s) % sizeof bytes] ^= 1u << next(s) % 8;
    arrive(s, &from, bytes, sizeof bytes, 0);
}

/* What a peer that this node has connected to answers. */
static void challenge_back(struct script *s, uint32_t peer)
{
    uint8_t challenge[MR_GREET_CHALLENGE_BYTES];
    struct mr_wire_from from = {.peer = peer};
    struct mr_greet_self self = self_of(peer);
    if (!s->greeted[peer] ||
        !mr_greet_answer(&self, &s->peer[peer], s->peer[peer].hello, MR_GREET_HELLO_BYTES, challenge))
        return;
    if (next(s) % 4 == 0)
        challenge[next(s) % sizeof challenge] ^= 1u << next(s) % 8;
    arrive(s, &from, challenge, sizeof challenge, 0);
}

static void raw(struct script *s)
{
    uint8_t bytes[MR_WIRE_HEADER_MAX];
    unsigned k = next(s) % (LINKS + WORLD + 1);
    size_t n = next(s) % (MR_WIRE_HEADER_MAX + 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = next(s);
    struct mr_wire_from from = {.peer = MR_WIRE_NOBODY};
    if (k < LINKS)
        from = from_link(s, k);
    else if (k < LINKS + WORLD && k - LINKS != RANK)
        from.peer = k - LINKS;
    arrive(s, &from, bytes, n, next(s));
}

/* With the token of a greeting that went well, where there was one. */
static void message(struct script *s)
{
    uint32_t peer = next(s) % WORLD;
    const uint8_t *session = peer ? s->peer[peer].session : s->theirs[0].session;
    uint8_t bytes[MR_WIRE_MESSAGE_BYTES];
    struct mr_wire_message m = {.kind = (uint8_t)(MR_WIRE_REQUEST + next(s) % 4),
                                .status = next(s) % (MR_WIRE_FRAME_STATUSES + 1),
                                .rank = peer,
                                .token = mr_load_le64(session + (peer ? 8 : 0)),
                                .slot = (uint32_t)number(s),
                                .seq = (uint32_t)number(s)};
    m.id = m.len = number(s);
    m.time_us = m.hash = number(s);
    mr_wire_message_encode(&m, bytes);
    struct mr_wire_from from = {.peer = next(s) % 2 && peer != RANK ? peer : MR_WIRE_NOBODY};
    arrive(s, &from, bytes, sizeof bytes, next(s) % 2 ? (size_t)MR_MIN(m.len, 4096u) : next(s));
}

static void ended(void *ctx, enum mr_wire_status status, size_t len)
{
    struct script *s = ctx;
    if (status == MR_WIRE_OK && len > CAP)
        abort();
    s->done++;
}

static void ask(struct script *s)
{
    uint32_t peer = next(s) % WORLD;
    if (s->asked == ASKS || !(s->dst[s->asked] = malloc(CAP)))
        return;
    if (mr_wire_request(s->events.ctx, peer, number(s), s->dst[s->asked], CAP, mr_now_ns() + MR_NS_PER_S, ended, s) ==
        0)
        s->asked++;
    else
        free(s->dst[s->asked]);
}

static unsigned step(struct mr_wire_transport *t)
{
    struct script *s = of(t);
    if (s->at >= s->size) {
        atomic_store(&s->over, true);
        return 0;
    }
    uint8_t what = next(s);
    switch (what % 8) {
    case 0: raw(s); break;
    case 1: greet(s, what / 8 % LINKS, false); break;
    case 2: greet(s, what / 8 % LINKS, true); break;
    case 3: challenge_back(s, 2 + what / 8 % 2); break;
    case 4:
    case 5: message(s); break;
    case 6: ask(s); break;
    default:
        if (what / 8 % WORLD != RANK)
            s->events.failed(s->events.ctx, what / 8 % WORLD, "the script says so");
    }
    return 1;
}

static int address(struct mr_wire_transport *t, uint8_t *buf, size_t cap, size_t *len, struct mr_error *err)
{
    (void)t, (void)cap, (void)err;
    memset(buf, 7, *len = 16);
    return 0;
}

static int connect_peer(struct mr_wire_transport *t, uint32_t peer, const uint8_t *bytes, size_t len)
{
    volatile uint8_t last = len ? bytes[len - 1] : 0; /* it may be read */
    (void)t, (void)last;
    return peer < WORLD && peer != RANK ? 0 : -1;
}

static int send_message(struct mr_wire_transport *t, uint32_t peer, const void *header, size_t header_len,
                        const void *data, size_t len, uint64_t tag)
{
    struct script *s = of(t);
    for (size_t i = 0; i < len; i++)
        s->lens[peer] += ((const volatile uint8_t *)data)[i];
    if (mr_greet_kind(header, header_len) == MR_GREET_HELLO) {
        memcpy(s->peer[peer].hello, header, header_len);
        s->greeted[peer] = true;
    } else if (mr_greet_kind(header, header_len) == MR_GREET_PROOF) {
        struct mr_greet_self self = self_of(peer);
        mr_greet_accept(&self, &s->peer[peer], header, header_len);
    }
    s->events.sent(s->events.ctx, tag, true);
    return 0;
}

static void disconnect(struct mr_wire_transport *t, uint32_t peer)
{
    (void)t, (void)peer;
}

static int wait_fd(struct mr_wire_transport *t)
{
    return of(t)->fd;
}

static bool arm(struct mr_wire_transport *t)
{
    return atomic_load(&of(t)->over);
}

static uint64_t wake_ns(struct mr_wire_transport *t)
{
    (void)t;
    return UINT64_MAX;
}

static void close_script(struct mr_wire_transport *t)
{
    (void)t;
}

static const struct mr_wire_transport_ops ops = {.abi = MR_WIRE_TRANSPORT_ABI,
                                                 .name = "script",
                                                 .address = address,
                                                 .connect = connect_peer,
                                                 .send = send_message,
                                                 .disconnect = disconnect,
                                                 .progress = step,
                                                 .fd = wait_fd,
                                                 .arm = arm,
                                                 .wake_ns = wake_ns,
                                                 .close = close_script};

static struct script *opening; /* one at a time */

static int open_script(uint32_t abi, const struct mr_wire_transport_params *p, struct mr_wire_transport **out,
                       struct mr_error *err)
{
    (void)abi, (void)err;
    opening->base.ops = &ops;
    opening->events = p->events;
    *out = &opening->base;
    return 0;
}

/* The others' rows: as this node's own, or what the input has. */
static int all_gather(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct script *s = ctx;
    uint8_t how = next(s);
    (void)err;
    for (uint32_t r = 0; r < WORLD; r++)
        memcpy((uint8_t *)all + r * len, mine, len);
    for (unsigned i = 0; i < how % 8; i++) {
        size_t at = (size_t)(number(s) % (WORLD * len));
        ((uint8_t *)all)[at] = next(s);
    }
    return 0;
}

static enum mr_wire_answer serve(void *ctx, uint32_t peer, uint64_t id, uint64_t deadline_ns, struct mr_wire_bytes *out)
{
    static const uint8_t bytes[256];
    struct script *s = ctx;
    (void)deadline_ns;
    if (peer >= WORLD || peer == RANK)
        abort();
    if (id % 3)
        return id % 3 == 1 ? MR_WIRE_HAVE_LATER : MR_WIRE_HAVE_NOT;
    s->pinned++;
    *out = (struct mr_wire_bytes){.data = bytes, .len = id % sizeof bytes, .pin = s};
    return MR_WIRE_HAVE;
}

static void release(void *ctx, void *pin)
{
    struct script *s = ctx;
    if (pin != s)
        abort();
    s->released++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script s = {.data = data, .size = size, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    struct mr_wire_params p = {.rank = RANK,
                               .world = WORLD,
                               .exchange = all_gather,
                               .exchange_ctx = &s,
                               .secret = secret,
                               .serve = serve,
                               .release = release,
                               .serve_ctx = &s,
                               .slots = 16,
                               .window = 8,
                               .serve_max = 24,
                               .transport = open_script};
    struct mr_error err;
    for (unsigned k = 0; k < LINKS; k++)
        s.owner[k] = MR_WIRE_NOBODY;
    opening = &s;
    s.size = MR_MIN(size, 4000u);
    struct mr_wire *wire = NULL;
    if (mr_wire_open(&p, &wire, &err) == 0) {
        while (!atomic_load(&s.over))
            usleep(20);
        mr_wire_close(wire);
    }
    for (unsigned i = 0; i < s.asked; i++)
        free(s.dst[i]);
    close(s.fd);
    if (s.asked != s.done || s.pinned != s.released)
        abort();
    return 0;
}
