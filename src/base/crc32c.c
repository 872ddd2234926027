/* CRC-32C: hardware three-way interleave with a table-driven join, or slicing-by-8 in plain C. The tables are filled
 * once, on first use. Three streams hide the 3-cycle latency of the crc32 instruction; joining shifts a CRC over a
 * fixed distance by table look-up (the shift is linear over GF(2)). */
#include "base/crc32c.h"
#include "base/common.h"

#include <pthread.h>
#include <string.h>

#define POLY 0x82f63b78u
#define LONG_RUN 4096u
#define PAGE_RUN 1344u /* three of them: a record of 4 KiB */
#define SHORT_RUN 256u

static uint32_t slice[8][256];
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
#include <nmmintrin.h>

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
#endif

uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len)
{
    pthread_once(&tables_once, fill_tables);
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_hardware(crc, data, len);
#endif
    return ~crc_plain(crc, data, len);
}
