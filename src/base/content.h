/* Sample content: bytes as a pure function of (seed, sample, offset). Any reader can verify any part of any sample, and
 * the generator can produce a 600 MB record in small pieces. Filling runs at several times the speed of a page-cache
 * write, so that generating never limits.
 *
 * The stream of a sample is cut into blocks of MR_CONTENT_BLOCK bytes; each block is a xoshiro256+ sequence of 8 lanes
 * seeded from (seed, sample, block), so random access costs at most one block. `compress_percent` of every block's
 * 64-byte lines (spread evenly, the same lines for every block) are zero instead: a compressor finds about that share,
 * a deduplicating store finds nothing. Versioned by MR_CONTENT_VERSION. */
#ifndef MR_BASE_CONTENT_H
#define MR_BASE_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#define MR_CONTENT_VERSION 1
#define MR_CONTENT_BLOCK 32768u

struct mr_content {
    uint64_t seed;
    unsigned compress_percent; /* 0 = incompressible ... 100 = all zero */
};

/* Writes bytes [offset, offset+len) of the sample's stream to dst. Any alignment; fastest when offset is a multiple of
 * MR_CONTENT_BLOCK. */
void mr_content_fill(const struct mr_content *c, uint64_t sample, uint64_t offset, void *dst, size_t len);
/* Compares; returns the index of the first differing byte, or len if all are equal. */
size_t mr_content_verify(const struct mr_content *c, uint64_t sample, uint64_t offset, const void *src, size_t len);

#endif
