/* What a reader of samples needs to know about an HDF5 file: its layout. Three ways a sample can lie:
 *   DIRECT  one range of exactly its bytes: contiguous datasets, and unfiltered chunks whose rows are whole samples.
 *   CHUNK   inside one (filtered) chunk, whose range is in the sample's ref; aux is the row in the chunk.
 *   MAP     spread over several chunks; aux is the sample's number, and the layout has the chunk map.
 * A range of length 0 for a sample with bytes means that it was never written: all fill values.
 *
 * Encoded: version u8 = 1, mode u8, filters u8, chunk axes u8 (0 or axes of the dataset), entry bytes u8 (MAP: 12 or
 * 16, else 0), 3 zero bytes, fill u8[16], per filter: id u16, 0 u16, value u32; chunk dims u64 each; array description
 * (array_common.h); MAP: chunk count u64, per chunk: address u64 (all ones: none), bytes u32, and mask u32 with 16. */
#ifndef MR_FORMAT_HDF5_LAYOUT_H
#define MR_FORMAT_HDF5_LAYOUT_H

#include "format/hdf5_filter.h"

enum mr_h5_mode { MR_H5_DIRECT, MR_H5_CHUNK, MR_H5_MAP };

struct mr_h5_layout {
    enum mr_h5_mode mode;
    struct mr_h5_pipeline pipeline;
    unsigned chunk_axes;
    uint64_t chunk[MR_H5_AXES];
    uint8_t fill[16];
    struct mr_array_desc desc; /* ROWS: of one sample; rows = number of samples */
    const uint8_t *map;        /* inside the encoded layout */
    uint64_t map_count;
    unsigned entry_bytes;
    /* derived */
    uint64_t sample_bytes, chunk_bytes, slab_bytes; /* slab: one row of a chunk */
    uint64_t along[MR_H5_AXES];                     /* chunks on each axis */
    uint64_t per_sample;                            /* chunks that one sample touches */
};

/* `map` may be NULL unless the mode is MAP. */
int mr_h5_layout_make(const struct mr_h5_layout *l, const struct mr_h5_chunk *map, uint64_t count,
                      struct mr_layout *out, struct mr_error *err);
/* Checks all but the map's entries, in constant time. Runs once per sample, so `l` is filled where it lies: after an
 * error its content is undefined. */
int mr_h5_layout_get(const struct mr_layout *layout, struct mr_h5_layout *l, struct mr_error *err);
/* The mode alone: all that planning needs of a layout without a map. */
int mr_h5_layout_mode(const struct mr_layout *layout, enum mr_h5_mode *out, struct mr_error *err);
/* The entry of one chunk. */
struct mr_h5_chunk mr_h5_layout_chunk(const struct mr_h5_layout *l, uint64_t number);

#endif
