/* The header of a safetensors file, read and checked: every tensor lies inside the file, has as many bytes as its dtype
 * and shape say, and a name that no other has. */
#ifndef MR_CHECKPOINT_STATE_HEADER_H
#define MR_CHECKPOINT_STATE_HEADER_H

#include "base/arena.h"
#include "base/vec.h"

#include <millrace/state.h>

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
