/* The safetensors file that a state becomes, as an image that can be produced range by range, in any order, by many
 * threads: eight bytes with the length of the header, the header as JSON, then the tensors row by row without gaps.
 *
 *   0        8                 8 + n          tensors by size of element, largest first: each starts at a multiple of
 *   | length | header, padded  | tensors ...  its own element's size
 *
 * No data is copied to make an image: it points to the caller's, which must stay until it is done. Tensors that
 * are one and the same (tied weights) lie in the file once; the header's metadata name the others: "same:NAME" with the
 * name of the one that is there. */
#ifndef MR_CHECKPOINT_STATE_IMAGE_H
#define MR_CHECKPOINT_STATE_IMAGE_H

#include "base/arena.h"

#include <millrace/state.h>

#define MR_STATE_CHUNK (8ull << 20) /* unit of copying, writing, checksums and verified reading */
#define MR_STATE_SAME "same:"
#define MR_STATE_HEADER_MAX (100ull << 20) /* what other readers of safetensors allow */

struct mr_state_piece {
    struct mr_tensor
        tensor; /* its shape and strides are copies; name and dtype are the caller's, while it makes the image */
    uint64_t start, bytes; /* in the file */
    uint64_t run;          /* bytes that lie together in memory */
    unsigned outer;        /* dimensions outside of a run */
    unsigned each;         /* bytes of an element */
};

struct mr_state_image {
    char *header; /* with the eight bytes before it; NULL: none */
    uint64_t header_bytes, bytes;
    struct mr_state_piece *piece; /* by start */
    size_t pieces;
    struct mr_arena memory;
    void *after; /* where the device's work has to be; NULL: no tensors there */
};

/* From its return on the caller's mr_tensor need not stay, only what they point to as data or `user`. files_from not 0:
 * each tensor is a file of its own, without a header; the image has them one behind the other, from multiples of that
 * on. */
int mr_state_image_make(const struct mr_state *state, uint64_t files_from, struct mr_state_image *out,
                        struct mr_error *err);
/* Where these bytes lie in the caller's memory in one piece; NULL: they do not. */
const void *mr_state_image_lies(const struct mr_state_image *m, uint64_t at, size_t n);
/* File bytes [at, at + n). */
int mr_state_image_fill(const struct mr_state_image *m, uint64_t at, uint8_t *into, size_t n, struct mr_error *err);
void mr_state_image_done(struct mr_state_image *m);

/* ---- the header, read and checked: every tensor lies inside the file, has as many bytes as its dtype and shape say, and
 * a name that no other has ---- */

struct mr_header_tensor {
    struct mr_stored_tensor is;
    uint64_t start; /* in the file */
    uint32_t file;  /* the reader's number of it */
};

struct mr_header_tensors {
    struct mr_header_tensor *item;
    size_t n, cap;
};

/* `text` is what follows the eight bytes of its length. Adds the tensors to `out`; names are copied into `names`. Tied
 * tensors (MR_STATE_SAME) are added under each of their names. MR_E_CORRUPT names `path`. */
int mr_state_header_parse(const char *text, size_t len, uint64_t file_bytes, const char *path, uint32_t rank,
                          uint32_t file, struct mr_arena *names, struct mr_header_tensors *out, struct mr_error *err);

#endif
