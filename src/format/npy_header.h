/* The header of a .npy array: magic, version, length, and a Python dict literal with dtype, order and shape. Versions
 * 1, 2 and 3 are read; version 1 is written, padded as numpy does so that the payload starts at a multiple of 64.
 * Object arrays (they need pickle), structured and text types are refused with a message that says so. */
#ifndef MR_FORMAT_NPY_HEADER_H
#define MR_FORMAT_NPY_HEADER_H

#include "format/array_common.h"

#define MR_NPY_PREFIX 12u /* this many bytes tell the header's length, in every version */
#define MR_NPY_AXES (MR_DIMS_MAX + 1)
#define MR_NPY_BUILD_MAX 512u /* no header we write is longer */

struct mr_npy_header {
    enum mr_dtype dtype;
    unsigned flags; /* MR_ARRAY_SWAP, MR_ARRAY_FORTRAN */
    unsigned n;
    uint64_t shape[MR_NPY_AXES];
    uint64_t payload_offset; /* from the magic */
    uint64_t payload_bytes;
};

/* Total header length (= payload offset) from the first MR_NPY_PREFIX bytes; limited to MR_LIMIT_HEADER_BYTES. */
int mr_npy_header_length(const uint8_t prefix[MR_NPY_PREFIX], uint64_t *out, struct mr_error *err);
/* Parses a complete header; data may be longer. */
int mr_npy_header_parse(const uint8_t *data, size_t len, struct mr_npy_header *out, struct mr_error *err);
/* Reads and parses the header that starts at `offset` of an object, where `limit` bytes belong to the array; checks
 * that the payload fits into them. */
int mr_npy_header_read(struct mr_object *o, uint64_t offset, uint64_t limit, struct mr_npy_header *out,
                       struct mr_error *err);
/* Writes a version 1 header; returns its length. Always the same length for arrays of up to 2 axes, so that files which
 * differ only in size share one layout. */
size_t mr_npy_header_build(enum mr_dtype dtype, const uint64_t *shape, unsigned n, uint8_t out[MR_NPY_BUILD_MAX]);
/* The description of one sample: the whole array (rows = false), or one index of the first or last axis. A whole array
 * gets MR_ARRAY_FLEX where its first dimension can follow from the payload's length. */
int mr_npy_header_desc(const struct mr_npy_header *h, bool rows, bool last, struct mr_array_desc *out,
                       struct mr_error *err);

#endif
