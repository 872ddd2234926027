/* A store that compares instead of writing: a format's writer, run over it, produces a file's bytes again, and each
 * write is held against what lies in the real store. So "is this generated file intact" needs no stored checksum,
 * covers every byte (headers and side-cars too), and names the first byte that differs. A writer may patch bytes it
 * wrote before (headers): only what differs from the last write to a place counts. One object of this store belongs to
 * one thread; the store may be shared. */
#ifndef MR_DATASET_COMPARE_STORE_H
#define MR_DATASET_COMPARE_STORE_H

#include "store/store.h"

enum mr_diff_kind { MR_DIFF_NONE, MR_DIFF_MISSING, MR_DIFF_SIZE, MR_DIFF_BYTES };

struct mr_file_diff {
    enum mr_diff_kind kind;
    uint64_t offset;     /* BYTES */
    uint64_t want, have; /* SIZE: bytes; BYTES: values */
    char path[1024];     /* which file: a side-car may be the bad one */
};

struct mr_compare_shim;
/* `real` is borrowed. */
int mr_compare_create(struct mr_store *real, struct mr_compare_shim **out, struct mr_error *err);
void mr_compare_free(struct mr_compare_shim *c);
struct mr_store *mr_compare_store(struct mr_compare_shim *c);
/* The first difference since the last call, which is thereby forgotten. One thread at a time per mr_compare. */
void mr_compare_take(struct mr_compare_shim *c, struct mr_file_diff *out);

#endif
