/* The wire's messages as bytes. Little-endian, fixed lengths; the table is in doc/internals/wire.md. Decoding checks
 * magic, kind and length, never more: what a message may do is decided by wire_peer.c. */
#ifndef MR_WIRE_FRAME_H
#define MR_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_WIRE_VERSION 1
#define MR_WIRE_HELLO_BYTES 80
#define MR_WIRE_MESSAGE_BYTES 48

enum mr_wire_kind {
    MR_WIRE_HELLO = 1, /* the first message of a node to another */
    MR_WIRE_WELCOME,   /* the answer to it */
    MR_WIRE_REFUSE,    /* or this: right secret, but another version or data set */
    MR_WIRE_REQUEST,
    MR_WIRE_REPLY,
    MR_WIRE_PING, /* are you there? sent to a peer found silent */
    MR_WIRE_PONG,
    MR_WIRE_KINDS
};

/* HELLO, WELCOME, REFUSE. */
struct mr_wire_hello {
    uint8_t kind;
    uint16_t version;
    uint32_t rank, world, window;
    uint64_t token; /* the receiver must put it into whatever it sends to the sender of this */
    uint8_t data_set[16], secret[32];
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

/* The kind of a frame, 0 if it is none of ours. */
uint8_t mr_wire_frame_kind(const uint8_t *bytes, size_t len);
void mr_wire_hello_encode(const struct mr_wire_hello *h, uint8_t out[MR_WIRE_HELLO_BYTES]);
bool mr_wire_hello_decode(const uint8_t *bytes, size_t len, struct mr_wire_hello *out);
void mr_wire_message_encode(const struct mr_wire_message *m, uint8_t out[MR_WIRE_MESSAGE_BYTES]);
bool mr_wire_message_decode(const uint8_t *bytes, size_t len, struct mr_wire_message *out);

#endif
