/* Sample content: see content.h. Eight interleaved xoshiro256+ generators as GCC vectors: 64 bytes per step, which the
 * compiler turns into two AVX2 or one AVX-512 operation each; identical bytes on every machine (little-endian). */
#include "base/content.h"
#include "base/common.h"
#include "base/rng.h"

#include <string.h>

typedef uint64_t lanes __attribute__((vector_size(64)));

#define LINE 64u

#define GOLDEN 0x9e3779b97f4a7c15ull

struct generator {
    lanes a, b, d, e;
};

/* mr_mix64 of eight numbers. Forced inline, as all that is given vectors, so that it is compiled for the instruction
 * set of its caller; by address, since how vectors are passed depends on that set. */
__attribute__((always_inline)) static inline void mix_lanes(lanes *v)
{
    const uint64_t by = 0xd6e8feb86659fd93ull;
    lanes x = *v ^ *v >> 32;
    x *= by;
    x ^= x >> 32;
    x *= by;
    *v = x ^ x >> 32;
}

/* The states are mr_mix64 of z + 1..32 times the golden ratio, eight for each of the four words. */
__attribute__((always_inline)) static inline void seed_block(const struct mr_content *c, uint64_t sample,
                                                             uint64_t block, struct generator *g)
{
    const lanes steps = {GOLDEN * 1, GOLDEN * 2, GOLDEN * 3, GOLDEN * 4,
                         GOLDEN * 5, GOLDEN * 6, GOLDEN * 7, GOLDEN * 8};
    uint64_t key = mr_rng_at(c->seed, MR_RNG_CONTENT, sample);
    lanes z = steps + mr_mix64(key ^ mr_mix64(block + GOLDEN));
    *g = (struct generator){z, z + GOLDEN * 8, z + GOLDEN * 16, z + GOLDEN * 24};
    mix_lanes(&g->a);
    mix_lanes(&g->b);
    mix_lanes(&g->d);
    mix_lanes(&g->e);
}

/* Zero lines are spread evenly: line i is zero when the running share crosses an integer there. */
static bool line_is_zero(unsigned percent, unsigned line)
{
    return (line + 1) * percent / 100 != line * percent / 100;
}

/* The next line; steps. */
__attribute__((always_inline)) static inline void next_line(struct generator *g, lanes *out)
{
    *out = g->a + g->e;
    lanes t = g->b << 17;
    g->d ^= g->a;
    g->e ^= g->b;
    g->b ^= g->d;
    g->a ^= g->e;
    g->d ^= t;
    g->e = (g->e << 45) | (g->e >> 19);
}

/* The first `len` bytes of a block. Small samples pay only for the lines they have. */
MR_SIMD_CLONES static void fill_block(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst,
                                      size_t len)
{
    struct generator g;
    lanes out;
    seed_block(c, sample, block, &g);
    for (size_t n = len / LINE; n; n--, dst += LINE) {
        next_line(&g, &out);
        memcpy(dst, &out, LINE);
    }
    if (len % LINE) {
        next_line(&g, &out);
        memcpy(dst, &out, len % LINE);
    }
}

/* The same with a share of zero lines. */
MR_SIMD_CLONES static void fill_sparse_block(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst,
                                             size_t len)
{
    struct generator g;
    lanes out;
    seed_block(c, sample, block, &g);
    for (unsigned line = 0; line * LINE < len; line++) {
        next_line(&g, &out);
        if (line_is_zero(c->compress_percent, line))
            out ^= out;
        memcpy(dst + line * LINE, &out, MR_MIN((size_t)LINE, len - line * LINE));
    }
}

static void make_block(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst, size_t len)
{
    if (c->compress_percent)
        fill_sparse_block(c, sample, block, dst, len);
    else
        fill_block(c, sample, block, dst, len);
}

/* Two whole blocks at once: the steps of a generator depend on each other, those of two do not, so the second is nearly
 * free. */
MR_SIMD_CLONES static void fill_two_blocks(const struct mr_content *c, uint64_t sample, uint64_t block, uint8_t *dst)
{
    struct generator g, h;
    lanes first, second;
    seed_block(c, sample, block, &g);
    seed_block(c, sample, block + 1, &h);
    for (size_t at = 0; at < MR_CONTENT_BLOCK; at += LINE) {
        next_line(&g, &first);
        next_line(&h, &second);
        memcpy(dst + at, &first, LINE);
        memcpy(dst + MR_CONTENT_BLOCK + at, &second, LINE);
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
            make_block(c, sample, block, out, n);
        } else {
            make_block(c, sample, block, edge, at + n);
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
        make_block(c, sample, (offset + done) / MR_CONTENT_BLOCK, want, at + n);
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
