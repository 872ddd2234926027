/* Writing HDF5 without the HDF5 library: the oldest form of the format (superblock 0, symbol table group, version 1
 * object headers and B-trees), which every version of the library reads. The metadata of our files has a fixed place,
 * the first MR_H5_META_BYTES (more with many datasets), and is written last, so that an unfinished file is no HDF5 file. */
#ifndef MR_FORMAT_HDF5_WRITE_H
#define MR_FORMAT_HDF5_WRITE_H

#include "format/hdf5_file.h"

#define MR_H5_META_BYTES 4096u

/* A dataset of the root group, as the metadata describes it: storage, addr, bytes, n, dim, dtype, chunk and filters
 * count; filter[0] can only be deflate, with its level as value. NULL: there is none of this name after all. */
struct mr_h5_member {
    const char *name;
    const struct mr_h5_dataset *dataset;
};
/* Room that the metadata of these takes, whatever becomes of the datasets. */
uint64_t mr_h5_metadata_bytes(const struct mr_h5_member *m, unsigned n);
/* Writes superblock, root group and the headers of the datasets, whose names ascend. */
void mr_h5_metadata(const struct mr_h5_member *m, unsigned n, uint64_t file_bytes, uint8_t *out, size_t bytes);
/* Writes the version 1 B-tree of a chunked dataset at the current end of the file; *root = its address. */
int mr_h5_write_btree(struct mr_array_output *o, const struct mr_h5_dataset *d, const struct mr_h5_chunk *map,
                      uint64_t count, uint64_t *root, struct mr_error *err);

#endif
