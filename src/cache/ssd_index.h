/* The bytes of an index file (NNNN.idx of an SSD folder; table in doc/guides/tiers.md): reading whatever lies there,
 * and writing. Works on memory only. */
#ifndef MR_CACHE_SSD_INDEX_H
#define MR_CACHE_SSD_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_SSD_VERSION 1u
#define MR_SSD_BLOCK 4096u /* samples begin at multiples of it */
#define MR_SSD_HEADER 64u  /* of an index file */
#define MR_SSD_RECORD 32u  /* of a sample in it */

struct mr_ssd_header {
    uint8_t data_set[16];
    uint64_t salt; /* seed of the records' checks: a record of another file is none here */
    uint32_t number;
};

/* A sample that is here, or (length 0) one that is not here any more. */
struct mr_ssd_record {
    uint64_t id, hash;
    uint32_t block, length;
};

void mr_ssd_header_write(const struct mr_ssd_header *h, uint8_t out[MR_SSD_HEADER]);
/* False: torn, or not ours; then *version is another one where only that is wrong, else 0. */
bool mr_ssd_header_read(const uint8_t *bytes, size_t n, struct mr_ssd_header *out, uint32_t *version);
void mr_ssd_record_write(const struct mr_ssd_record *r, uint64_t salt, uint8_t out[MR_SSD_RECORD]);
bool mr_ssd_record_read(const uint8_t bytes[MR_SSD_RECORD], uint64_t salt, struct mr_ssd_record *out);
/* Blocks that a sample takes. */
static inline uint64_t mr_ssd_blocks(uint64_t length)
{
    return (length + MR_SSD_BLOCK - 1) / MR_SSD_BLOCK;
}

#endif
