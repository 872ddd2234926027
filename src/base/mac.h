/* A keyed hash that proves knowledge of a key: BLAKE2s with a key (RFC 7693), 32 bytes of key and of result. Chosen
 * over HMAC-SHA-256 because the key goes in by itself (no second pass), over SipHash because 64 bits are few for a
 * proof, and over a library because this is shorter than linking one. The test has the vectors of the reference. */
#ifndef MR_BASE_MAC_H
#define MR_BASE_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_MAC_BYTES 32

struct mr_mac {
    uint32_t h[8];
    uint64_t done; /* bytes hashed */
    uint8_t block[64];
    size_t filled;
};
void mr_mac_init(struct mr_mac *m, const uint8_t key[MR_MAC_BYTES]);
void mr_mac_add(struct mr_mac *m, const void *data, size_t len);
void mr_mac_done(struct mr_mac *m, uint8_t out[MR_MAC_BYTES]); /* wipes *m */
/* A key for one purpose, from a key and what it is bound to. */
void mr_mac_derive(const uint8_t key[MR_MAC_BYTES], const char *purpose, const void *bound, size_t len,
                   uint8_t out[MR_MAC_BYTES]);
/* Takes as long for different bytes as for equal ones. */
bool mr_mac_same(const uint8_t a[MR_MAC_BYTES], const uint8_t b[MR_MAC_BYTES]);

#endif
