/* HDF5 filter pipelines: deflate (zlib format), shuffle and Fletcher-32 in any order, undone in memory. */
#ifndef MR_FORMAT_HDF5_FILTER_H
#define MR_FORMAT_HDF5_FILTER_H

#include "format/hdf5_file.h"

#define MR_H5_DEFLATE 1
#define MR_H5_SHUFFLE 2
#define MR_H5_FLETCHER32 3

struct mr_h5_pipeline {
    struct mr_h5_filter filter[MR_H5_FILTERS];
    unsigned n;
};

/* MR_E_UNSUPPORTED, naming the filter, if there is one that we cannot undo. */
int mr_h5_pipeline_check(const struct mr_h5_pipeline *p, struct mr_error *err);
/* Can `stored` bytes be a chunk of `chunk_bytes`? Checked before memory for the chunk is taken. */
int mr_h5_pipeline_plausible(const struct mr_h5_pipeline *p, uint64_t stored, uint64_t chunk_bytes,
                             struct mr_error *err);
/* Bytes that each of the two work buffers of mr_h5_unfilter needs. */
size_t mr_h5_unfilter_bytes(uint64_t chunk_bytes);
/* Undoes the filters of one chunk (those not set in `mask`). `work` are two buffers of mr_h5_unfilter_bytes; *out
 * points into one of them, or to raw if nothing was to be done. The result has exactly chunk_bytes. `inflater` is a
 * struct libdeflate_decompressor. Checksums are compared if `verify`. */
int mr_h5_unfilter(const struct mr_h5_pipeline *p, uint32_t mask, void *inflater, const uint8_t *raw, size_t len,
                   uint64_t chunk_bytes, uint8_t *const work[2], bool verify, const uint8_t **out,
                   struct mr_error *err);
uint32_t mr_h5_fletcher32(const uint8_t *data, size_t len);

#endif
