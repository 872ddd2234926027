/* Two ranks prove to each other that they have the job's key, before anything else: over a connection of the exchange
 * (wire_tcp.c) and of the wire (wire_peer.c) alike. The table of bytes is in doc/internals/wire.md.
 *
 *   initiator                                responder
 *   begin: HELLO, nonce        ──────────>   answer: is it for me, of my job's size? nonce, own proof
 *   prove: is its proof right? <──────────   CHALLENGE
 *          PROOF               ──────────>   accept: is its proof right? then it is that rank
 *
 * A proof is BLAKE2s, keyed with the job's key, of which of the two it is, the whole HELLO, the CHALLENGE without its
 * proof, and the data set. So it holds for these two ranks in these two roles and for these two nonces only: neither a
 * message sent back nor one of another greeting passes. The key is never sent.
 *
 * Everything here works on bytes and blocks nowhere. Memory is the caller's. */
#ifndef MR_WIRE_GREET_H
#define MR_WIRE_GREET_H

#include "base/mac.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_GREET_VERSION 2
#define MR_GREET_HELLO_BYTES 64
#define MR_GREET_CHALLENGE_BYTES 96
#define MR_GREET_PROOF_BYTES 64

enum mr_greet_kind { MR_GREET_HELLO = 1, MR_GREET_CHALLENGE, MR_GREET_PROOF };
enum mr_greet_use { MR_GREET_EXCHANGE = 1, MR_GREET_WIRE };

/* This side, for all its greetings. */
struct mr_greet_self {
    const uint8_t *key; /* MR_MAC_BYTES */
    enum mr_greet_use use;
    uint32_t rank, world;
    uint32_t window; /* requests that the other may have waiting here; the exchange: 0 */
    uint8_t data_set[16];
};

/* One greeting; all zero before it. */
struct mr_greet {
    bool begun;      /* initiator: HELLO is made; responder: it has come */
    bool done;       /* the other side has proven itself: peer, window and session are set */
    uint8_t count;   /* messages that came */
    uint32_t peer;   /* initiator: from begin on */
    uint32_t window; /* the other side's */
    uint8_t hello[MR_GREET_HELLO_BYTES], challenge[MR_GREET_CHALLENGE_BYTES];
    uint8_t session[MR_MAC_BYTES]; /* a key that only these two have, for this connection */
};

/* Draws the nonce. False: there is no randomness. Called again it gives the same HELLO. */
bool mr_greet_begin(const struct mr_greet_self *self, struct mr_greet *g, uint32_t peer,
                    uint8_t out[MR_GREET_HELLO_BYTES]);
/* The others: false if the message is none that belongs here, or the proof is wrong; the connection is a stranger's
 * then. A message that comes again gets the same answer, a few times. */
bool mr_greet_answer(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len,
                     uint8_t out[MR_GREET_CHALLENGE_BYTES]);
bool mr_greet_prove(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len,
                    uint8_t out[MR_GREET_PROOF_BYTES]);
bool mr_greet_accept(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len);
/* The kind of a message of a greeting, 0 if it is none. */
enum mr_greet_kind mr_greet_kind(const uint8_t *bytes, size_t len);

#endif
