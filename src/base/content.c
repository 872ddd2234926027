/* Sample content: see content.h. Eight interleaved xoshiro256+ generators as GCC vectors: 64 bytes per step, which the
 * compiler turns into two AVX2 or one AVX-512 operation each; identical bytes on every machine (little-endian). */
#include "base/content.h"
#include "base/common.h"
#include "base/rng.h"

#include <string.h>

typedef uint64_t lanes __attribute__((vector_size(64)));

#define LINE 64u

static void seed_block(const struct mr_content *c, uint64_t sample, uint64_t block, lanes s[4])
{
    uint64_t key = mr_rng_at(c->seed, MR_RNG_CONTENT, sample);
    uint64_t z = mr_mix64(key ^ mr_mix64(block + 0x9e3779b97f4a7c15ull));
    for (int w = 0; w < 4; w++)
        for (int l = 0; l < 8; l++) {
            z += 0x9e3779b97f4a7c15ull;
            s[w][l] = mr_mix64(z);
        }
}

/* Zero lines are spread evenly: line i is zero when the running share crosses an integer there. */
static bool line_is_zero(unsigned percent, unsigned line)
{
    return (line + 1) * percent / 100 != line * percent / 100;
}

/* The first `len` bytes of a block. Small samples pay only for the lines they have. */
MR_SIMD_CLONES static void fill_block(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst,
                                      size_t len)
{
    lanes s[4];
    seed_block(c, sample, block, s);
    lanes a = s[0], b = s[1], d = s[2], e = s[3];
    size_t lines = len / LINE, tail = len % LINE;
    for (size_t line = 0; line <= lines; line++) {
        lanes out = a + e;
        lanes t = b << 17;
        if (c->compress_percent && line_is_zero(c->compress_percent, (unsigned)line))
            out ^= out;
        d ^= a;
        e ^= b;
        b ^= d;
        a ^= e;
        d ^= t;
        e = (e << 45) | (e >> 19);
        if (MR_LIKELY(line < lines))
            memcpy(dst + line * LINE, &out, LINE);
        else if (tail)
            memcpy(dst + line * LINE, &out, tail);
    }
}

struct generator {
    lanes a, b, d, e;
};

/* Writes a line and steps. Forced inline, so that it is compiled for the instruction set of its caller. */
__attribute__((always_inline)) static inline void put_line(struct generator *g, uint8_t *dst)
{
    lanes out = g->a + g->e;
    lanes t = g->b << 17;
    memcpy(dst, &out, LINE);
    g->d ^= g->a;
    g->e ^= g->b;
    g->b ^= g->d;
    g->a ^= g->e;
    g->d ^= t;
    g->e = (g->e << 45) | (g->e >> 19);
}

/* Two whole blocks at once: the steps of a generator depend on each other, those of two do not, so the second is nearly free. */
MR_SIMD_CLONES static void fill_two_blocks(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst)
{
    lanes s[4], t[4];
    seed_block(c, sample, block, s);
    seed_block(c, sample, block + 1, t);
    struct generator g = {s[0], s[1], s[2], s[3]}, h = {t[0], t[1], t[2], t[3]};
    for (size_t at = 0; at < MR_CONTENT_BLOCK; at += LINE) {
        put_line(&g, dst + at);
        put_line(&h, dst + MR_CONTENT_BLOCK + at);
    }
}

void mr_content_fill(const struct mr_content *c, uint64_t sample, uint64_t offset, void *dst, size_t len)
{
    uint8_t *out = dst;
    uint8_t edge[MR_CONTENT_BLOCK] __attribute__((aligned(64)));
    while (len) {
        uint64_t block = offset / MR_CONTENT_BLOCK;
        size_t at = (size_t)(offset % MR_CONTENT_BLOCK);
        size_t n = MR_MIN((size_t)MR_CONTENT_BLOCK - at, len);
        if (at == 0 && len >= 2 * MR_CONTENT_BLOCK && !c->compress_percent) {
            n = 2 * MR_CONTENT_BLOCK;
            fill_two_blocks(c, sample, block, out);
        } else if (at == 0) {
            fill_block(c, sample, block, out, n);
        } else {
            fill_block(c, sample, block, edge, at + n);
            memcpy(out, edge + at, n);
        }
        out += n;
        offset += n;
        len -= n;
    }
}

size_t mr_content_verify(const struct mr_content *c, uint64_t sample, uint64_t offset, const void *src, size_t len)
{
    const uint8_t *in = src;
    uint8_t want[MR_CONTENT_BLOCK] __attribute__((aligned(64)));
    size_t done = 0;
    while (done < len) {
        size_t at = (size_t)((offset + done) % MR_CONTENT_BLOCK);
        size_t n = MR_MIN((size_t)MR_CONTENT_BLOCK - at, len - done);
        fill_block(c, sample, (offset + done) / MR_CONTENT_BLOCK, want, at + n);
        if (memcmp(in + done, want + at, n) != 0) {
            while (in[done] == want[at]) {
                done++;
                at++;
            }
            return done;
        }
        done += n;
    }
    return len;
}
