/* BLAKE2s with a key, after RFC 7693; see mac.h. */
#include "base/mac.h"
#include "base/common.h"

#include <string.h>

static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void mix(uint32_t v[16], unsigned a, unsigned b, unsigned c, unsigned d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

static void compress(struct mr_mac *m, bool last)
{
    uint32_t v[16], w[16];
    memcpy(v, m->h, sizeof m->h);
    memcpy(v + 8, initial, sizeof initial);
    v[12] ^= (uint32_t)m->done;
    v[13] ^= (uint32_t)(m->done >> 32);
    v[14] ^= last ? UINT32_MAX : 0;
    for (unsigned i = 0; i < 16; i++)
        w[i] = mr_load_le32(m->block + 4 * (size_t)i);
    for (unsigned r = 0; r < 10; r++) {
        const uint8_t *s = order[r];
        for (unsigned i = 0; i < 4; i++)
            mix(v, i, 4 + i, 8 + i, 12 + i, w[s[2 * i]], w[s[2 * i + 1]]);
        for (unsigned i = 0; i < 4; i++)
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, w[s[8 + 2 * i]], w[s[9 + 2 * i]]);
    }
    for (unsigned i = 0; i < 8; i++)
        m->h[i] ^= v[i] ^ v[i + 8];
}

void mr_mac_init(struct mr_mac *m, const uint8_t key[MR_MAC_BYTES])
{
    *m = (struct mr_mac){.filled = sizeof m->block}; /* the key, padded with zeros, is the first block */
    memcpy(m->h, initial, sizeof initial);
    m->h[0] ^= 0x01010000 ^ MR_MAC_BYTES << 8 ^ MR_MAC_BYTES;
    memcpy(m->block, key, MR_MAC_BYTES);
}

/* A full block waits: the last one is hashed otherwise. */
void mr_mac_add(struct mr_mac *m, const void *data, size_t len)
{
    for (const uint8_t *p = data; len > 0;) {
        if (m->filled == sizeof m->block) {
            m->done += sizeof m->block;
            compress(m, false);
            m->filled = 0;
        }
        size_t n = MR_MIN(len, sizeof m->block - m->filled);
        memcpy(m->block + m->filled, p, n);
        m->filled += n;
        p += n;
        len -= n;
    }
}

void mr_mac_done(struct mr_mac *m, uint8_t out[MR_MAC_BYTES])
{
    memset(m->block + m->filled, 0, sizeof m->block - m->filled);
    m->done += m->filled;
    compress(m, true);
    for (unsigned i = 0; i < 8; i++)
        mr_store_le32(out + 4 * (size_t)i, m->h[i]);
    explicit_bzero(m, sizeof *m);
}

void mr_mac_derive(const uint8_t key[MR_MAC_BYTES], const char *purpose, const void *bound, size_t len,
                   uint8_t out[MR_MAC_BYTES])
{
    struct mr_mac m;
    mr_mac_init(&m, key);
    mr_mac_add(&m, purpose, strlen(purpose) + 1);
    mr_mac_add(&m, bound, len);
    mr_mac_done(&m, out);
}

bool mr_mac_same(const uint8_t a[MR_MAC_BYTES], const uint8_t b[MR_MAC_BYTES])
{
    volatile uint8_t different = 0;
    for (unsigned i = 0; i < MR_MAC_BYTES; i++)
        different = different | (uint8_t)(a[i] ^ b[i]);
    return different == 0;
}
