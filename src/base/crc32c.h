/* CRC-32C (Castagnoli), as TFRecord and our own file formats use it. Carry-less multiplication on 512-bit registers
 * where the CPU has it, the crc32 instruction on three streams, or slicing-by-8; same result everywhere. Start with crc
 * 0; chain by passing the previous result. */
#ifndef MR_BASE_CRC32C_H
#define MR_BASE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len);
/* The same in one of the ways of crc32c.c, slowest first, for tests. False: this CPU or so short a piece does not allow
 * it. */
enum mr_crc32c_way { MR_CRC32C_PLAIN, MR_CRC32C_THREE_WAY, MR_CRC32C_FOLDING };
bool mr_crc32c_by(enum mr_crc32c_way way, uint32_t *crc, const void *data, size_t len);

/* The CRC-32 of zip and gzip, about twice as fast as libdeflate's, of the head of the piece: tells how many bytes it
 * has taken (a multiple of 256; 0 where the CPU does not fold). The rest is the library's. */
size_t mr_crc32_fold(uint32_t *crc, const void *data, size_t len);

/* TFRecord's masking: stored checksums of checksummed data stay well-behaved. */
static inline uint32_t mr_crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
