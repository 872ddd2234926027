/* What carries the wire's messages: one struct of operations. The UCX module is one, the fault shim wraps another one.
 *
 * A message is a header (at most MR_WIRE_HEADER_MAX bytes) and perhaps bytes. The transport is reliable and keeps the
 * order of messages between two nodes, or reports the peer as failed. All calls come from one thread at a time: the
 * opener until the progress thread starts, that thread then, the closer after it was joined. Events come from within
 * progress(), `sent` also from within its send(). Event handlers call no operation.
 *
 *   T1  send() borrows header and data until sent(tag).
 *   T2  Every send() and every accepted arrival ends in exactly one sent() or received(), also after disconnect().
 *   T3  After disconnect(peer) nothing more arrives from the peer's connection into an accepted dst once its
 *       received() was delivered.
 * To add a transport: fill the table, export MR_WIRE_MODULE_SYMBOL from millrace_wire_<name>.so. */
#ifndef MR_WIRE_TRANSPORT_H
#define MR_WIRE_TRANSPORT_H

#include "wire/wire_greet.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_WIRE_TRANSPORT_ABI 2
#define MR_WIRE_MODULE_SYMBOL "mr_wire_module_open"
#define MR_WIRE_HEADER_MAX 128
#define MR_WIRE_ADDRESS_MAX 65536
#define MR_WIRE_NOBODY UINT32_MAX

struct mr_wire_transport;

enum mr_wire_arrival {
    MR_WIRE_DROP,    /* the message needs no bytes, or they are not wanted */
    MR_WIRE_TAKE,    /* put its `len` bytes into *dst; received(*tag) follows */
    MR_WIRE_ANSWER,  /* send the answer back over the connection it came over; no bytes */
    MR_WIRE_PEER,    /* it has greeted rightly: the connection it came over is that of peer *tag; no bytes */
    MR_WIRE_STRANGER /* drop it, and the connection it came over */
};

/* The connection that a message came over. */
struct mr_wire_from {
    uint32_t peer;          /* whose it is; MR_WIRE_NOBODY: nobody's yet, or the message does not name it */
    struct mr_greet *greet; /* of nobody's: the greeting over it, all zero when it begins; else NULL */
    uint8_t *answer;        /* where greet is: room for MR_WIRE_HEADER_MAX bytes of an answer */
    size_t answer_len;
};

struct mr_wire_events {
    void *ctx;
    enum mr_wire_arrival (*arrived)(void *ctx, struct mr_wire_from *from, const uint8_t *header, size_t header_len,
                                    size_t len, void **dst, uint64_t *tag);
    void (*received)(void *ctx, uint64_t tag, bool ok);
    void (*sent)(void *ctx, uint64_t tag, bool ok);
    void (*failed)(void *ctx, uint32_t peer, const char *why); /* its connection broke */
};

struct mr_wire_transport_params {
    uint32_t world;
    const char *devices, *transports; /* as in mr_wire_params */
    struct mr_wire_events events;
};

struct mr_wire_transport_ops {
    uint32_t abi;
    const char *name;
    int (*address)(struct mr_wire_transport *t, uint8_t *buf, size_t cap, size_t *len, struct mr_error *err);
    /* Does nothing if the peer's connection is here already (MR_WIRE_PEER). */
    int (*connect)(struct mr_wire_transport *t, uint32_t peer, const uint8_t *address, size_t len);
    /* Nonzero: could not be started, and sent() will not come. */
    int (*send)(struct mr_wire_transport *t, uint32_t peer, const void *header, size_t header_len, const void *data,
                size_t len, uint64_t tag);
    void (*disconnect)(struct mr_wire_transport *t, uint32_t peer);
    unsigned (*progress)(struct mr_wire_transport *t); /* how much was done; 0: nothing to do now */
    int (*fd)(struct mr_wire_transport *t);            /* readable when there is something to do, once armed */
    bool (*arm)(struct mr_wire_transport *t);          /* false: progress first */
    uint64_t (*wake_ns)(struct mr_wire_transport *t);  /* wants progress() by then; UINT64_MAX: no wish */
    void (*close)(struct mr_wire_transport *t);
};

struct mr_wire_transport {
    const struct mr_wire_transport_ops *ops;
};

typedef int mr_wire_module_open_fn(uint32_t abi, const struct mr_wire_transport_params *p,
                                   struct mr_wire_transport **out, struct mr_error *err);
/* Finds and loads the UCX module, and opens a transport of it. */
int mr_wire_module_load(const struct mr_wire_transport_params *p, struct mr_wire_transport **out, struct mr_error *err);
/* Where the module is; false if this installation has none. */
bool mr_wire_module_find(char *path, size_t cap);

#endif
