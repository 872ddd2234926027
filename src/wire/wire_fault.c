/* The fault shim; see wire_fault.h. Messages pass through unchanged until the chosen one. A slow message and all after
 * it wait in a list with copies of their headers and bytes, so that the order stays; it allocates, and may: it is a
 * test. */
#include "wire/wire_fault.h"
#include "base/clock.h"
#include "base/common.h"

#include <stdlib.h>
#include <string.h>

struct held { /* a message with bytes of our own */
    struct held *next;
    uint32_t peer;
    uint64_t tag;
    size_t header_len, len;
    bool going;
    uint8_t header[MR_WIRE_HEADER_MAX];
    uint8_t data[];
};

struct shim {
    struct mr_wire_transport base;
    struct mr_wire_transport *inner;
    struct mr_wire_fault *fault;
    struct mr_wire_events events;
    uint64_t sent, sent_bytes;
    struct held *first, **last; /* copies, freed at close */
    uint64_t waiting;           /* of them slow ones that have not gone */
    uint64_t due_ns;            /* when those go */
};

const char *mr_wire_fault_name(enum mr_wire_fault_kind kind)
{
    static const char *const names[] = {"none", "closed", "silent", "slow", "short", "long", "flip"};
    return (unsigned)kind < MR_ARRAY_LEN(names) ? names[kind] : "unknown";
}

static bool next_number(const char **text, uint64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoull(*text, &end, 10);
    bool more = *end == ':';
    *text = end + more;
    return more || !*end;
}

bool mr_wire_fault_parse(const char *text, uint32_t *node, struct mr_wire_fault *out)
{
    uint64_t whom, ms = 0;
    *out = (struct mr_wire_fault){.kind = MR_WIRE_FAULT_KINDS};
    if (!next_number(&text, &whom) || whom > UINT32_MAX)
        return false;
    size_t n = strcspn(text, ":");
    for (unsigned k = 0; k < MR_WIRE_FAULT_KINDS; k++)
        if (strlen(mr_wire_fault_name(k)) == n && memcmp(mr_wire_fault_name(k), text, n) == 0)
            out->kind = k;
    if (out->kind == MR_WIRE_FAULT_KINDS || text[n] != ':')
        return false;
    text += n + 1;
    if (!next_number(&text, &out->at) || (*text && !next_number(&text, &ms)) || *text)
        return false;
    *node = (uint32_t)whom;
    out->delay_ns = ms * MR_NS_PER_MS;
    return true;
}

static struct shim *of(struct mr_wire_transport *t)
{
    return MR_CONTAINER_OF(t, struct shim, base);
}

static int fault_address(struct mr_wire_transport *t, uint8_t *buf, size_t cap, size_t *len, struct mr_error *err)
{
    return of(t)->inner->ops->address(of(t)->inner, buf, cap, len, err);
}

static int fault_connect(struct mr_wire_transport *t, uint32_t peer, const uint8_t *address, size_t len)
{
    return of(t)->inner->ops->connect(of(t)->inner, peer, address, len);
}

/* Is this message the one? Also counts it. */
static bool is_chosen(struct shim *s, size_t len)
{
    uint64_t n = s->sent++, n_bytes = s->sent_bytes;
    s->sent_bytes += len > 0;
    switch (s->fault->kind) {
    case MR_WIRE_FAULT_CLOSED:
    case MR_WIRE_FAULT_SILENT: return n >= s->fault->at;
    case MR_WIRE_FAULT_SLOW: return n == s->fault->at || s->waiting > 0;
    case MR_WIRE_FAULT_SHORT:
    case MR_WIRE_FAULT_LONG:
    case MR_WIRE_FAULT_FLIP: return len > 0 && n_bytes == s->fault->at;
    default: return false;
    }
}

static struct held *copy_of(uint32_t peer, const void *header, size_t header_len, const void *data, size_t len,
                            size_t room, uint64_t tag)
{
    struct held *h = calloc(1, sizeof(*h) + MR_MAX(len, room));
    if (!h)
        return NULL;
    h->peer = peer;
    h->tag = tag;
    h->header_len = header_len;
    h->len = len;
    memcpy(h->header, header, header_len);
    if (len)
        memcpy(h->data, data, len);
    return h;
}

/* A changed copy goes out under the original's tag. */
static int send_changed(struct shim *s, struct held *h)
{
    *s->last = h;
    s->last = &h->next;
    h->going = true;
    switch (s->fault->kind) {
    case MR_WIRE_FAULT_SHORT: h->len -= 1; break;
    case MR_WIRE_FAULT_LONG: h->len += 1; break;
    default: h->data[h->len / 2] ^= 0x10;
    }
    return s->inner->ops->send(s->inner, h->peer, h->header, h->header_len, h->data, h->len, h->tag);
}

static int fault_send(struct mr_wire_transport *t, uint32_t peer, const void *header, size_t header_len,
                      const void *data, size_t len, uint64_t tag)
{
    struct shim *s = of(t);
    if (!is_chosen(s, len))
        return s->inner->ops->send(s->inner, peer, header, header_len, data, len, tag);
    s->fault->happened++;
    if (s->fault->kind == MR_WIRE_FAULT_CLOSED) {
        s->inner->ops->disconnect(s->inner, peer);
        return -1;
    }
    if (s->fault->kind == MR_WIRE_FAULT_SILENT) {
        s->events.sent(s->events.ctx, tag, true);
        return 0;
    }
    struct held *h = copy_of(peer, header, header_len, data, len, len + 1, tag);
    if (!h)
        return -1;
    if (s->fault->kind != MR_WIRE_FAULT_SLOW)
        return send_changed(s, h);
    if (s->waiting++ == 0)
        s->due_ns = mr_now_ns() + s->fault->delay_ns;
    *s->last = h;
    s->last = &h->next;
    return 0;
}

static void release_slow(struct shim *s)
{
    if (!s->waiting || mr_now_ns() < s->due_ns)
        return;
    s->waiting = 0;
    for (struct held *h = s->first; h; h = h->next)
        if (!h->going) {
            h->going = true;
            if (s->inner->ops->send(s->inner, h->peer, h->header, h->header_len, h->data, h->len, h->tag) != 0)
                s->events.sent(s->events.ctx, h->tag, false);
        }
}

static unsigned fault_progress(struct mr_wire_transport *t)
{
    struct shim *s = of(t);
    release_slow(s);
    return s->inner->ops->progress(s->inner);
}

static void fault_disconnect(struct mr_wire_transport *t, uint32_t peer)
{
    struct shim *s = of(t);
    for (struct held *h = s->first; h; h = h->next)
        if (!h->going && h->peer == peer) { /* T2 */
            h->going = true;
            s->waiting--;
            s->events.sent(s->events.ctx, h->tag, false);
        }
    s->inner->ops->disconnect(s->inner, peer);
}

static int fault_fd(struct mr_wire_transport *t)
{
    return of(t)->inner->ops->fd(of(t)->inner);
}

static bool fault_arm(struct mr_wire_transport *t)
{
    return of(t)->inner->ops->arm(of(t)->inner);
}

static uint64_t fault_wake_ns(struct mr_wire_transport *t)
{
    struct shim *s = of(t);
    uint64_t due = s->inner->ops->wake_ns(s->inner);
    return s->waiting ? MR_MIN(due, s->due_ns) : due;
}

static void fault_close(struct mr_wire_transport *t)
{
    struct shim *s = of(t);
    for (struct held *h = s->first; h; h = h->next)
        if (!h->going) {
            h->going = true;
            s->events.sent(s->events.ctx, h->tag, false);
        }
    s->inner->ops->close(s->inner);
    while (s->first) {
        struct held *h = s->first;
        s->first = h->next;
        free(h);
    }
    free(s);
}

static const struct mr_wire_transport_ops ops = {
    .abi = MR_WIRE_TRANSPORT_ABI,
    .name = "fault",
    .address = fault_address,
    .connect = fault_connect,
    .send = fault_send,
    .disconnect = fault_disconnect,
    .progress = fault_progress,
    .fd = fault_fd,
    .arm = fault_arm,
    .wake_ns = fault_wake_ns,
    .close = fault_close,
};

struct mr_wire_transport *mr_wire_fault_wrap(struct mr_wire_transport *inner, struct mr_wire_fault *fault,
                                             struct mr_wire_events events)
{
    struct shim *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->base.ops = &ops;
    s->inner = inner;
    s->fault = fault;
    s->events = events;
    s->last = &s->first;
    return &s->base;
}
