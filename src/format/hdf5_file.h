/* Reading HDF5 metadata without the HDF5 library: superblock (versions 0 to 3), object headers (1 and 2), groups
 * (symbol tables, compact and dense links), dataset descriptions and every chunk index of the format. Read once, by
 * scan; what a reader of samples needs is then in the layout, so that samples are read from any thread with no lock and
 * no library.
 *
 * Hostile input is expected. Addresses are relative to the base address and checked against the file before each read;
 * a budget of metadata reads, proportional to the file, ends loops and shared sub-trees; checksums of the newer
 * structures are verified. What is not understood is refused as unsupported, never guessed.
 *
 * References to section numbers in the .c files mean the "HDF5 File Format Specification", version 3. */
#ifndef MR_FORMAT_HDF5_FILE_H
#define MR_FORMAT_HDF5_FILE_H

#include "format/array_common.h"

#define MR_H5_UNDEF UINT64_MAX
#define MR_H5_AXES (MR_DIMS_MAX + 1)
#define MR_H5_FILTERS 6u
#define MR_H5_PATH_MAX 256u

struct mr_h5_file {
    struct mr_object *object;
    uint64_t size, base;
    unsigned offset_bytes, length_bytes;
    uint64_t root;   /* object header of the root group */
    uint64_t budget; /* metadata reads left */
};

/* Fuzzing only: false makes the parser accept wrong metadata checksums, which a fuzzer cannot guess. */
extern bool mr_h5_verify_checksums;

int mr_h5_open(struct mr_object *o, struct mr_h5_file *out, struct mr_error *err);
/* Reads metadata; `what` names it in errors. */
int mr_h5_read(struct mr_h5_file *f, uint64_t addr, void *buf, size_t len, const char *what, struct mr_error *err);
/* Is the range inside the file? */
bool mr_h5_inside(const struct mr_h5_file *f, uint64_t addr, uint64_t len);
/* Little-endian integer of n <= 8 bytes; addresses of all ones become MR_H5_UNDEF. */
uint64_t mr_h5_uint(const uint8_t *p, unsigned n);
uint64_t mr_h5_address(const struct mr_h5_file *f, const uint8_t *p);
/* The checksum of HDF5 metadata (Jenkins' lookup3), and its check for `len` bytes of which the last 4 are the sum. */
uint32_t mr_h5_checksum(const void *data, size_t len);
int mr_h5_check(const uint8_t *data, size_t len, const char *what, uint64_t addr, struct mr_error *err);

/* Calls fn for each message of an object header. `addr` is the file address of the message's data. */
enum mr_h5_message {
    MR_H5_DATASPACE = 1,
    MR_H5_LINK_INFO = 2,
    MR_H5_DATATYPE = 3,
    MR_H5_FILL_OLD = 4,
    MR_H5_FILL = 5,
    MR_H5_LINK = 6,
    MR_H5_EXTERNAL = 7,
    MR_H5_LAYOUT = 8,
    MR_H5_PIPELINE = 11,
    MR_H5_CONTINUATION = 16,
    MR_H5_SYMBOL_TABLE = 17,
};
typedef int mr_h5_message_fn(void *user, unsigned type, unsigned flags, const uint8_t *data, size_t len, uint64_t addr,
                             struct mr_error *err);
int mr_h5_messages(struct mr_h5_file *f, uint64_t header, mr_h5_message_fn *fn, void *user, struct mr_error *err);

enum mr_h5_class { MR_H5_COMPACT = 0, MR_H5_CONTIGUOUS = 1, MR_H5_CHUNKED = 2 };
enum mr_h5_index {
    MR_H5_BTREE1 = 0,
    MR_H5_SINGLE = 1,
    MR_H5_IMPLICIT = 2,
    MR_H5_FIXED = 3,
    MR_H5_EXTENSIBLE = 4,
    MR_H5_BTREE2 = 5
};

struct mr_h5_filter {
    uint16_t id;
    bool optional;
    uint32_t value; /* first client value: shuffle's element size */
};

struct mr_h5_dataset {
    char path[MR_H5_PATH_MAX];
    enum mr_dtype dtype;
    bool swap;
    unsigned n;
    uint64_t dim[MR_H5_AXES], max_dim[MR_H5_AXES];
    enum mr_h5_class storage;
    uint64_t addr, bytes; /* contiguous and compact: of the data */
    enum mr_h5_index index;
    uint64_t chunk[MR_H5_AXES];
    uint64_t chunk_bytes;  /* unfiltered */
    uint64_t single_bytes; /* MR_H5_SINGLE with filters */
    uint32_t single_mask;
    bool wide_sizes; /* filtered sizes in the index have 8 bytes (layout version 5) */
    struct mr_h5_filter filter[MR_H5_FILTERS];
    unsigned filters;
    uint8_t fill[16]; /* one element, in the file's byte order */
};

/* Parses one object as a dataset. MR_E_UNSUPPORTED when it is one that we cannot read (the reason is the message). */
int mr_h5_dataset_read(struct mr_h5_file *f, uint64_t header, const char *path, struct mr_h5_dataset *out,
                       struct mr_error *err);
/* Calls fn for each dataset below the root group. */
typedef int mr_h5_object_fn(void *user, const char *path, uint64_t header, struct mr_error *err);
int mr_h5_walk(struct mr_h5_file *f, mr_h5_object_fn *fn, void *user, struct mr_error *err);

/* Version 2 B-trees, for groups and chunks. `depth` 0 is a leaf. */
typedef int mr_h5_record_fn(void *user, const uint8_t *record, size_t len, struct mr_error *err);
int mr_h5_btree2(struct mr_h5_file *f, uint64_t header, unsigned type_a, unsigned type_b, mr_h5_record_fn *fn,
                 void *user, struct mr_error *err);

/* One chunk of a dataset. */
struct mr_h5_chunk {
    uint64_t addr; /* MR_H5_UNDEF: never written */
    uint32_t bytes, mask;
};
/* Chunks along each axis and in all; refuses counts that the file cannot hold. */
int mr_h5_chunk_grid(const struct mr_h5_file *f, const struct mr_h5_dataset *d, uint64_t along[MR_H5_AXES],
                     uint64_t *count, struct mr_error *err);
/* The whole chunk map, in row-major order of the grid; malloc'ed. Linear in the number of chunks. */
int mr_h5_chunk_map(struct mr_h5_file *f, const struct mr_h5_dataset *d, struct mr_h5_chunk **out, uint64_t *count,
                    struct mr_error *err);

#endif
