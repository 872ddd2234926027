/* The wire's messages after the greeting (wire_greet.h) as bytes. Little-endian, fixed lengths; the table is in
 * doc/internals/wire.md. Decoding checks magic, kind and length, never more: what a message may do is decided by
 * wire_peer.c. */
#ifndef MR_WIRE_FRAME_H
#define MR_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_WIRE_VERSION 2
#define MR_WIRE_MESSAGE_BYTES 48

enum mr_wire_kind {
    MR_WIRE_REQUEST = 4, /* behind those of the greeting */
    MR_WIRE_REPLY,
    MR_WIRE_PING, /* are you there? sent to a peer found silent */
    MR_WIRE_PONG,
    MR_WIRE_KINDS
};

/* REQUEST, REPLY, PING, PONG. */
struct mr_wire_message {
    uint8_t kind, status; /* REPLY: enum mr_wire_frame_status */
    uint32_t rank;
    uint64_t token;
    uint32_t slot, seq; /* the asker's; a reply repeats them */
    uint64_t id;        /* REQUEST: the sample */
    uint64_t time_us;   /* REQUEST: time left */
    uint64_t len, hash; /* REPLY; at the place of id and time_us */
};
enum mr_wire_frame_status { MR_WIRE_FRAME_BYTES, MR_WIRE_FRAME_NOT_YET, MR_WIRE_FRAME_NO, MR_WIRE_FRAME_STATUSES };

void mr_wire_message_encode(const struct mr_wire_message *m, uint8_t out[MR_WIRE_MESSAGE_BYTES]);
bool mr_wire_message_decode(const uint8_t *bytes, size_t len, struct mr_wire_message *out);

#endif
