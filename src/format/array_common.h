/* What NPY, NPZ and HDF5 share: sizes computed without overflow, the description of an array as it stands in a layout,
 * byte swapping, gathering of strided elements, and the buffered file writer. All functions work on memory only, except
 * mr_array_output_*, which writes through the storage layer. Thread-safe as far as the arguments are distinct. */
#ifndef MR_FORMAT_ARRAY_COMMON_H
#define MR_FORMAT_ARRAY_COMMON_H

#include "format/format.h"

extern const struct mr_format_ops mr_format_npy, mr_format_npz, mr_format_hdf5;

/* a * b and a + b; false on overflow. */
static inline bool mr_mul_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool mr_add_ok(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* product(dims) * element size; false on overflow. Dimensions of 0 give 0 only if no product before them overflows. */
bool mr_array_bytes(const struct mr_dims *dims, enum mr_dtype dtype, uint64_t *out);

/* How the elements of an array lie in a file. */
enum mr_array_flags {
    MR_ARRAY_SWAP = 1,    /* big-endian in the file */
    MR_ARRAY_FORTRAN = 2, /* first axis varies fastest */
    MR_ARRAY_ROWS = 4,    /* the array holds several samples; dims are those of one */
    MR_ARRAY_LAST = 8,    /* with ROWS: samples are counted by the last axis, not the first (DLIO's NPZ files) */
    MR_ARRAY_FLEX = 16,   /* dims[0] is not stored: it follows from the length of the sample's range */
};
struct mr_array_desc {
    enum mr_dtype dtype;
    unsigned flags;
    uint64_t rows; /* with MR_ARRAY_ROWS */
    struct mr_dims dims;
};

/* Encoded: dtype u8, flags u8, ndim u8, reserved u8, rows u64, dims u64 each. */
#define MR_ARRAY_DESC_MAX (4 + 8 + 8 * MR_DIMS_MAX)
size_t mr_array_desc_encode(const struct mr_array_desc *a, uint8_t out[MR_ARRAY_DESC_MAX]);
/* Checks every field. *used = bytes consumed, so that the caller's own fields may follow. */
int mr_array_desc_decode(const uint8_t *data, size_t len, struct mr_array_desc *out, size_t *used,
                         struct mr_error *err);
/* Fills dims[0] of a FLEX description from the payload's length. */
int mr_array_desc_resolve(struct mr_array_desc *a, uint64_t payload_bytes, struct mr_error *err);

/* The unit that is reversed for big-endian data: complex numbers swap their halves separately. */
unsigned mr_dtype_swap_unit(enum mr_dtype t);
/* Reverses each `unit` bytes of n*unit bytes; dst == src is allowed. */
void mr_array_swap(void *dst, const void *src, uint64_t n, unsigned unit);
/* dst in C order from src, where element (i0, i1, ...) lies at src + sum(i_k * stride_k) bytes. */
void mr_array_gather(void *dst, const void *src, const struct mr_dims *dims, const uint64_t stride[MR_DIMS_MAX],
                     unsigned elem);
/* All rows of a ROWS array whose rows are not contiguous (Fortran order, last axis), as C-ordered little-endian rows
 * one after the other; or, without ROWS, the one sample. `src` holds the whole array. */
void mr_array_normalise(void *dst, const void *src, const struct mr_array_desc *a);
/* Do the bytes in the file differ from the C-ordered little-endian rows? */
bool mr_array_is_plain(const struct mr_array_desc *a);
/* Gives the payload to the caller: into out->dst if that is set (MR_E_LIMIT with out->bytes if it is too small), else
 * as a pointer to `data`, which must then live as long as raw or the decoder. */
int mr_array_deliver(const void *data, uint64_t bytes, struct mr_sample_out *out, struct mr_error *err);
/* Where a decoder may put `bytes` of result: out->dst, or scratch slot `slot` when there is none. */
int mr_array_target(struct mr_decoder *d, unsigned slot, uint64_t bytes, struct mr_sample_out *out, void **target,
                    struct mr_error *err);

/* The same for one sample's bytes in the order of the file, which `a` describes; slot is where they are rearranged. */
int mr_array_deliver_as(struct mr_decoder *d, unsigned slot, struct mr_array_desc *a, const void *payload,
                        uint64_t bytes, struct mr_sample_out *out, struct mr_error *err);

/* A copy of `data` as a layout. */
int mr_array_layout_make(const void *data, size_t len, struct mr_layout *out, struct mr_error *err);

/* A file written from front to back through one buffer, so that a small file costs one system call, with later patches
 * of earlier bytes (headers). Pieces of at least the buffer's size are written directly, without a copy. */
struct mr_array_output {
    struct mr_object *object;
    uint8_t *buf;
    size_t len;     /* bytes in buf */
    uint64_t start; /* file offset of buf[0] */
};
int mr_array_output_open(struct mr_array_output *o, struct mr_store *s, const char *path, struct mr_error *err);
/* A part of a file that others write as well: from `offset` on, what else is there stays. */
int mr_array_output_open_part(struct mr_array_output *o, struct mr_store *s, const char *path, uint64_t offset,
                              struct mr_error *err);
int mr_array_output_add(struct mr_array_output *o, const void *data, size_t len, struct mr_error *err);
/* Where the next `len` bytes may be made in place, to be added at once; NULL when they are too many for the buffer. */
void *mr_array_output_here(struct mr_array_output *o, size_t len);
int mr_array_output_zeros(struct mr_array_output *o, uint64_t len, struct mr_error *err);
int mr_array_output_patch(struct mr_array_output *o, uint64_t offset, const void *data, size_t len,
                          struct mr_error *err);
static inline uint64_t mr_array_output_pos(const struct mr_array_output *o)
{
    return o->start + o->len;
}
/* Writes what is left and closes the object; frees the buffer in any case. */
int mr_array_output_close(struct mr_array_output *o, struct mr_error *err);
void mr_array_output_abort(struct mr_array_output *o);

/* What the three array writers have in common; first member of each. All samples of a file have the dtype and, unless
 * `vary`, the shape of the first. */
struct mr_array_writer {
    struct mr_writer base;
    struct mr_array_output out;
    char *path;
    uint64_t samples; /* announced */
    uint64_t begun, ended;
    uint64_t got; /* payload bytes of the current sample so far */
    bool vary;
    struct mr_sample_info info; /* current, or the first one to come */
    int64_t *labels;            /* NULL: the format keeps none */
    bool any_label;
};
/* Opens the file and allocates the label array; on failure nothing is left to undo. */
/* For the n samples that lie from `offset` on in a file that others write as well. */
int mr_array_writer_init_part(struct mr_array_writer *w, const struct mr_format_ops *ops, struct mr_store *s,
                              const char *path, const struct mr_writer_spec *spec, uint64_t offset, uint64_t n,
                              struct mr_error *err);
int mr_array_writer_init(struct mr_array_writer *w, const struct mr_format_ops *ops, struct mr_store *s,
                         const char *path, const struct mr_writer_spec *spec, struct mr_error *err);
int mr_array_writer_begin(struct mr_array_writer *w, const struct mr_sample_info *info, struct mr_error *err);
int mr_array_writer_take(struct mr_array_writer *w, size_t len, struct mr_error *err);
int mr_array_writer_end(struct mr_array_writer *w, struct mr_error *err);
/* Were all announced samples written? */
int mr_array_writer_complete(const struct mr_array_writer *w, struct mr_error *err);
/* Frees what init made; the output must have been closed or is aborted here. */
void mr_array_writer_done(struct mr_array_writer *w);
/* Level for deflate: 1..9; anything else means the default, 4. */
int mr_array_deflate_level(int asked);

#endif
