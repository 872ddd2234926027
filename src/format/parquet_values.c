/* Encodings of Parquet's values: see parquet_values.h. Hot: the loops over values have no branch per value that could
 * be taken wrongly often, and loads of 8 bytes are done where 8 bytes are there. */
#include "format/parquet_values.h"
#include "base/common.h"

#include <string.h>

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* ---- runs ---- */

/* 8 numbers of W bits, W known where this is compiled; reads 8 bytes from each number's first on. */
#define UNPACK_8(W)                                                                                                    \
    case W:                                                                                                            \
        for (uint64_t g = 0; g < groups; g++, p += W, out += 8)                                                        \
            for (unsigned i = 0; i < 8; i++) {                                                                         \
                uint64_t v;                                                                                            \
                memcpy(&v, p + i * W / 8, 8);                                                                          \
                out[i] = (uint32_t)(v >> i * W % 8 & ((1ull << W) - 1));                                               \
            }                                                                                                          \
        break;

/* `groups` groups; 8 bytes behind the last one can be read. */
MR_SIMD_CLONES
static void unpack_groups(const uint8_t *p, unsigned width, uint64_t groups, uint32_t *out)
{
    switch (width) {
        UNPACK_8(1)
        UNPACK_8(2)
        UNPACK_8(3)
        UNPACK_8(4)
        UNPACK_8(5)
        UNPACK_8(6)
        UNPACK_8(7)
        UNPACK_8(8)
        UNPACK_8(9)
        UNPACK_8(10)
        UNPACK_8(11)
        UNPACK_8(12)
        UNPACK_8(13)
        UNPACK_8(14)
        UNPACK_8(15)
        UNPACK_8(16)
        UNPACK_8(17)
        UNPACK_8(18)
        UNPACK_8(19)
        UNPACK_8(20)
        UNPACK_8(21)
        UNPACK_8(22)
        UNPACK_8(23)
        UNPACK_8(24)
        UNPACK_8(25)
        UNPACK_8(26)
        UNPACK_8(27)
        UNPACK_8(28)
        UNPACK_8(29)
        UNPACK_8(30)
        UNPACK_8(31)
        UNPACK_8(32)
    default: memset(out, 0, groups * 8 * sizeof(*out));
    }
}

static bool next_run(struct mr_pq_runs *r)
{
    uint64_t head;
    do {
        if (!varint(&r->at, r->end, &head))
            return false;
        r->packed = head & 1;
        r->left = head >> 1;
        if (r->left > (uint64_t)1 << 40)
            return false;
        if (r->packed) {
            r->left *= 8;
            continue;
        }
        unsigned bytes = (r->width + 7) / 8;
        if ((size_t)(r->end - r->at) < bytes)
            return false;
        r->value = 0;
        for (unsigned i = 0; i < bytes; i++)
            r->value |= (uint32_t)r->at[i] << 8 * i;
        r->at += bytes;
    } while (r->left == 0);
    return true;
}

/* Whole groups out of the packed run at hand: what was unpacked, at most `max` numbers. The last group of a page may be
 * cut where its numbers are not needed. */
static uint64_t take_packed(struct mr_pq_runs *r, uint64_t max, uint32_t *out)
{
    uint64_t n = MR_MIN(r->left, MR_MIN(max, MR_PQ_RUN_BLOCK)), have = (uint64_t)(r->end - r->at);
    uint64_t groups = (n + 7) / 8, safe = r->width ? (have >= 8 ? (have - 8) / r->width : 0) : groups;
    safe = MR_MIN(groups, safe);
    unpack_groups(r->at, r->width, safe, out);
    r->at += safe * r->width;
    for (uint64_t g = safe; g < groups; g++) { /* at the end of the bytes */
        uint8_t tail[32 + 8] = {0};
        uint64_t want = MR_MIN(n - 8 * g, 8u), need = (want * r->width + 7) / 8, there = (uint64_t)(r->end - r->at);
        if (there < need)
            return 0;
        memcpy(tail, r->at, MR_MIN(there, r->width));
        unpack_groups(tail, r->width, 1, out + 8 * g);
        r->at += MR_MIN(there, r->width);
    }
    r->left -= n;
    if (n % 8) /* only at the end of what is wanted */
        r->left = 0;
    return n;
}

bool mr_pq_runs_take(struct mr_pq_runs *r, uint64_t max, uint32_t *out, uint64_t *n, bool *equal)
{
    if (r->left == 0 && !next_run(r))
        return false;
    *equal = !r->packed;
    if (r->packed) {
        *n = take_packed(r, max, out);
        return *n > 0;
    }
    out[0] = r->value;
    *n = MR_MIN(r->left, max);
    r->left -= *n;
    return true;
}

/* Bit `bit` of `at` on is where the next packed number lies; runs of equal levels are what matters here. */
bool mr_pq_runs_equal(struct mr_pq_runs *r, uint64_t max, uint32_t *value, uint64_t *n)
{
    if (r->left == 0) {
        r->at += (r->bit + 7) / 8; /* the rest of a packed run */
        r->bit = 0;
        if (!next_run(r))
            return false;
    }
    if (!r->packed) {
        *value = r->value;
        *n = MR_MIN(r->left, max);
        r->left -= *n;
        return true;
    }
    uint32_t first = 0, mask = (1u << r->width) - 1;
    uint64_t k = 0, most = MR_MIN(max, r->left);
    for (; k < most; k++) {
        const uint8_t *p = r->at + r->bit / 8;
        if (p >= r->end)
            break;
        uint32_t two = p[0] | (p + 1 < r->end ? (uint32_t)p[1] << 8 : 0), v = two >> r->bit % 8 & mask;
        if (k && v != first)
            break;
        first = v;
        r->bit += r->width;
        if (r->bit >= 64) {
            r->at += 8;
            r->bit -= 64;
        }
    }
    r->left -= k;
    *value = first;
    *n = k;
    return k > 0;
}

bool mr_pq_unpack_bits(const uint8_t *p, size_t len, uint64_t n, uint8_t *out)
{
    if (len < (n + 7) / 8)
        return false;
    for (uint64_t i = 0; i < n; i++)
        out[i] = p[i / 8] >> i % 8 & 1;
    return true;
}

/* ---- delta ---- */

struct delta {
    const uint8_t *at, *end;
    uint64_t per_mini, minis, left, value;
    unsigned each;
    uint8_t *out;
};

static void put(struct delta *d)
{
    memcpy(d->out, &(uint64_t){d->value}, d->each); /* little-endian machines only, as all of our decoders */
    d->out += d->each;
    d->left--;
}

/* A number of `width` bits (1 to 64) from bit `bit` on; `left` bytes are there. */
static uint64_t bits_at(const uint8_t *p, size_t left, uint64_t bit, unsigned width)
{
    uint8_t bytes[16] = {0};
    size_t at = bit / 8;
    memcpy(bytes, p + at, MR_MIN(sizeof bytes, left - at));
    uint64_t lo = mr_load_le64(bytes), hi = mr_load_le64(bytes + 8);
    unsigned shift = bit % 8;
    uint64_t v = shift ? lo >> shift | hi << (64 - shift) : lo;
    return width == 64 ? v : v & (((uint64_t)1 << width) - 1);
}

static bool delta_mini(struct delta *d, unsigned width, uint64_t min)
{
    uint64_t n = MR_MIN(d->left, d->per_mini), bytes = d->per_mini * width / 8, have = (uint64_t)(d->end - d->at);
    if (width > 64 || (n * width + 7) / 8 > have)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        d->value += min + (width ? bits_at(d->at, have, i * width, width) : 0);
        put(d);
    }
    d->at += MR_MIN(bytes, have);
    return true;
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

static bool delta_block(struct delta *d)
{
    uint64_t min;
    if (!varint(&d->at, d->end, &min) || (uint64_t)(d->end - d->at) < d->minis)
        return false;
    const uint8_t *width = d->at;
    d->at += d->minis;
    for (uint64_t m = 0; m < d->minis && d->left; m++)
        if (!delta_mini(d, width[m], unzigzag(min)))
            return false;
    return true;
}

bool mr_pq_delta(const uint8_t *p, size_t len, uint64_t n, unsigned each, uint8_t *out)
{
    struct delta d = {.at = p, .end = p + len, .each = each, .out = out, .left = n};
    uint64_t block, count, first;
    if (!varint(&d.at, d.end, &block) || !varint(&d.at, d.end, &d.minis) || !varint(&d.at, d.end, &count) ||
        !varint(&d.at, d.end, &first) || count != n)
        return false;
    if (n == 0)
        return true;
    if (block == 0 || block > 1u << 24 || d.minis == 0 || d.minis > block || block % d.minis || block / d.minis % 8)
        return false;
    d.per_mini = block / d.minis;
    d.value = unzigzag(first);
    put(&d);
    while (d.left)
        if (!delta_block(&d))
            return false;
    return true;
}

/* ---- the rest ---- */

MR_SIMD_CLONES
static void unsplit_4(const uint8_t *restrict p, uint64_t n, uint8_t *restrict out)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v = p[i] | (uint32_t)p[n + i] << 8 | (uint32_t)p[2 * n + i] << 16 | (uint32_t)p[3 * n + i] << 24;
        memcpy(out + 4 * i, &v, 4);
    }
}

bool mr_pq_unsplit(const uint8_t *p, size_t len, uint64_t n, unsigned each, uint8_t *out)
{
    if (len / each < n)
        return false;
    if (each == 4) {
        unsplit_4(p, n, out);
        return true;
    }
    for (unsigned b = 0; b < each; b++)
        for (uint64_t i = 0; i < n; i++)
            out[i * each + b] = p[b * n + i];
    return true;
}

void mr_pq_narrow(const uint8_t *p, uint64_t n, unsigned from, unsigned to, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++, p += from, out += to)
        for (unsigned b = 0; b < to; b++)
            out[b] = p[b];
}
