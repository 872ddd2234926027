/* CRC-32C (and the CRC-32 of zip files, by folding only) in three ways, chosen by what the CPU has; the tables and
 * constants are filled once, on first use. folding    carry-less multiplication on 512-bit registers: 256 bytes at a
 * time are multiplied by x^2048 and the next ones added; what is left in the end is 16 bytes with the same remainder
 *   three-way  the crc32 instruction on three streams, which hides its latency of 3 cycles; joining shifts a CRC over a
 *              fixed distance by table look-up (the shift is linear over GF(2))
 *   plain      slicing-by-8 */
#include "base/crc32c.h"
#include "base/common.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLY 0x82f63b78u
#define ZIP_POLY 0xedb88320u
#define FOLD_BYTES 256u /* four registers */
#define LONG_RUN 4096u
#define PAGE_RUN 1344u /* three of them: a record of 4 KiB */
#define SHORT_RUN 256u

static uint32_t slice[8][256];
static bool can_fold, has_crc32; /* of this CPU */
static uint32_t long_shift[4][256], page_shift[4][256], short_shift[4][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* The CRC register after feeding `n` zero bytes, for a register with one bit set: column of the shift operator. */
static uint32_t shift_zero_bytes(uint32_t crc, size_t n)
{
    while (n--)
        crc = slice[0][crc & 0xff] ^ (crc >> 8);
    return crc;
}

static void fill_shift(uint32_t table[4][256], size_t run)
{
    uint32_t column[32];
    for (int bit = 0; bit < 32; bit++)
        column[bit] = shift_zero_bytes(1u << bit, run);
    for (int k = 0; k < 4; k++)
        for (unsigned v = 0; v < 256; v++) {
            uint32_t r = 0;
            for (int bit = 0; bit < 8; bit++)
                if (v >> bit & 1)
                    r ^= column[8 * k + bit];
            table[k][v] = r;
        }
}

static void fill_fold_constants(void);

static void fill_tables(void)
{
    for (unsigned v = 0; v < 256; v++) {
        uint32_t r = v;
        for (int bit = 0; bit < 8; bit++)
            r = r & 1 ? (r >> 1) ^ POLY : r >> 1;
        slice[0][v] = r;
    }
    for (unsigned v = 0; v < 256; v++)
        for (int k = 1; k < 8; k++)
            slice[k][v] = slice[0][slice[k - 1][v] & 0xff] ^ (slice[k - 1][v] >> 8);
    fill_shift(long_shift, LONG_RUN);
    fill_shift(page_shift, PAGE_RUN);
    fill_shift(short_shift, SHORT_RUN);
    fill_fold_constants();
}

static uint32_t crc_plain(uint32_t crc, const uint8_t *p, size_t len)
{
    while (len >= 8) {
        uint64_t v = mr_load_le64(p) ^ crc;
        crc = slice[7][v & 0xff] ^ slice[6][v >> 8 & 0xff] ^ slice[5][v >> 16 & 0xff] ^ slice[4][v >> 24 & 0xff] ^
              slice[3][v >> 32 & 0xff] ^ slice[2][v >> 40 & 0xff] ^ slice[1][v >> 48 & 0xff] ^ slice[0][v >> 56];
        p += 8;
        len -= 8;
    }
    while (len--)
        crc = slice[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>

static uint32_t shift(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

__attribute__((target("sse4.2"))) static uint32_t crc_three_way(uint32_t crc, const uint8_t *p, size_t run,
                                                                uint32_t table[4][256])
{
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < run; i += 8) {
        a = _mm_crc32_u64(a, load_u64(p + i));
        b = _mm_crc32_u64(b, load_u64(p + run + i));
        c = _mm_crc32_u64(c, load_u64(p + 2 * run + i));
    }
    return shift(table, shift(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t crc_hardware(uint32_t crc, const uint8_t *p, size_t len)
{
    for (; len >= 3 * LONG_RUN; p += 3 * LONG_RUN, len -= 3 * LONG_RUN)
        crc = crc_three_way(crc, p, LONG_RUN, long_shift);
    for (; len >= 3 * PAGE_RUN; p += 3 * PAGE_RUN, len -= 3 * PAGE_RUN)
        crc = crc_three_way(crc, p, PAGE_RUN, page_shift);
    for (; len >= 3 * SHORT_RUN; p += 3 * SHORT_RUN, len -= 3 * SHORT_RUN)
        crc = crc_three_way(crc, p, SHORT_RUN, short_shift);
    for (; len >= 8; p += 8, len -= 8)
        crc = (uint32_t)_mm_crc32_u64(crc, load_u64(p));
    while (len--)
        crc = _mm_crc32_u8(crc, *p++);
    return crc;
}

/* ---- folding ----
 * Bit-reflected: bit 0 of a load is the highest power. A carry-less product of two reflected 64-bit words, read as a
 * reflected 128-bit word, is their product times x; so x^(n - 1) mod P, in the upper half of a word, multiplies by x^n.
 */

/* Multipliers of the two halves of each 128-bit lane: over 2048 bits (the loop), then those that bring the four
 * registers together (over 1536, 1024, 512 bits), then the four lanes (over 384, 256, 128 bits; the last stays). */
struct fold_constants {
    uint64_t loop[8], registers[3][8], lane[8];
};
static struct fold_constants fold_castagnoli, fold_zip;
static uint32_t zip_table[256];

static uint64_t power_of_x(uint32_t poly, unsigned n)
{
    uint32_t r = 0x80000000u;
    while (n--)
        r = r & 1 ? (r >> 1) ^ poly : r >> 1;
    return (uint64_t)r << 32;
}

static void fold_pair(uint32_t poly, uint64_t *pair, unsigned bits)
{
    pair[0] = power_of_x(poly, bits + 63);
    pair[1] = power_of_x(poly, bits - 1);
}

static void fill_fold(uint32_t poly, struct fold_constants *f)
{
    for (unsigned lane = 0; lane < 4; lane++) {
        fold_pair(poly, &f->loop[2 * lane], 2048);
        for (unsigned k = 0; k < 3; k++)
            fold_pair(poly, &f->registers[k][2 * lane], 512 * (3 - k));
        if (lane < 3)
            fold_pair(poly, &f->lane[2 * lane], 128 * (3 - lane));
    }
}

static void fill_fold_constants(void)
{
    fill_fold(POLY, &fold_castagnoli);
    fill_fold(ZIP_POLY, &fold_zip);
    for (unsigned v = 0; v < 256; v++) {
        zip_table[v] = v;
        for (int bit = 0; bit < 8; bit++)
            zip_table[v] = zip_table[v] & 1 ? (zip_table[v] >> 1) ^ ZIP_POLY : zip_table[v] >> 1;
    }
    has_crc32 = __builtin_cpu_supports("sse4.2");
    can_fold = has_crc32 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
               __builtin_cpu_supports("pclmul");
}

#define FOLD_TARGET __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

FOLD_TARGET static inline __m512i fold(__m512i v, __m512i by, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(v, by, 0x00), high = _mm512_clmulepi64_epi128(v, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* xor of the three */
}

/* Sixteen bytes, as two words, with the remainder of `crc` and the first `len` ones, a multiple of FOLD_BYTES. */
FOLD_TARGET static void fold_down(const struct fold_constants *f, uint32_t crc, const uint8_t *p, size_t len,
                                  uint64_t out[2])
{
    __m512i v[4], by = _mm512_loadu_si512(f->loop);
    for (unsigned i = 0; i < 4; i++)
        v[i] = _mm512_loadu_si512(p + 64 * i);
    v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (size_t at = FOLD_BYTES; at < len; at += FOLD_BYTES)
        for (unsigned i = 0; i < 4; i++)
            v[i] = fold(v[i], by, _mm512_loadu_si512(p + at + 64 * i));
    for (unsigned k = 0; k < 3; k++)
        v[3] = fold(v[k], _mm512_loadu_si512(f->registers[k]), v[3]);
    uint64_t lanes[8];
    _mm512_storeu_si512(lanes, fold(v[3], _mm512_loadu_si512(f->lane), _mm512_setzero_si512()));
    __m128i last = _mm512_extracti32x4_epi32(v[3], 3);
    out[0] = lanes[0] ^ lanes[2] ^ lanes[4] ^ (uint64_t)_mm_cvtsi128_si64(last);
    out[1] = lanes[1] ^ lanes[3] ^ lanes[5] ^ (uint64_t)_mm_extract_epi64(last, 1);
}

/* `len` is at least FOLD_BYTES. */
__attribute__((target("sse4.2"))) static uint32_t crc_fold(uint32_t crc, const uint8_t *p, size_t len)
{
    uint64_t rest[2];
    size_t n = len - len % FOLD_BYTES;
    fold_down(&fold_castagnoli, crc, p, n, rest);
    crc = (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, rest[0]), rest[1]);
    return crc_hardware(crc, p + n, len - n);
}

size_t mr_crc32_fold(uint32_t *crc, const void *data, size_t len)
{
    pthread_once(&tables_once, fill_tables);
    uint64_t rest[2];
    size_t n = len - len % FOLD_BYTES;
    if (!can_fold || !n)
        return 0;
    fold_down(&fold_zip, ~*crc, data, n, rest);
    uint32_t r = 0;
    for (int k = 0; k < 2; k++)
        for (int byte = 0; byte < 8; byte++, rest[k] >>= 8)
            r = zip_table[(r ^ rest[k]) & 0xff] ^ (r >> 8);
    *crc = ~r;
    return n;
}
#else
static void fill_fold_constants(void)
{
}

size_t mr_crc32_fold(uint32_t *crc, const void *data, size_t len)
{
    (void)crc, (void)data, (void)len;
    return 0;
}
#endif

static enum mr_crc32c_way best_way(size_t len)
{
    return can_fold && len >= FOLD_BYTES ? MR_CRC32C_FOLDING : has_crc32 ? MR_CRC32C_THREE_WAY : MR_CRC32C_PLAIN;
}

bool mr_crc32c_by(enum mr_crc32c_way way, uint32_t *crc, const void *data, size_t len)
{
    pthread_once(&tables_once, fill_tables);
    if (way > best_way(len))
        return false;
#if defined(__x86_64__)
    if (way == MR_CRC32C_FOLDING)
        return *crc = ~crc_fold(~*crc, data, len), true;
    if (way == MR_CRC32C_THREE_WAY)
        return *crc = ~crc_hardware(~*crc, data, len), true;
#endif
    *crc = ~crc_plain(~*crc, data, len);
    return true;
}

uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&tables_once, fill_tables);
    mr_crc32c_by(best_way(len), &crc, data, len);
    return crc;
}
