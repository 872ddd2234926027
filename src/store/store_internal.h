/* What the files of the store folder share and nobody else sees: the backends' symbols, the stubs for operations that
 * make no sense, and the one place that words I/O errors. */
#ifndef MR_STORE_STORE_INTERNAL_H
#define MR_STORE_STORE_INTERNAL_H

#include "store/store.h"

extern const struct mr_store_ops mr_store_posix_ops, mr_store_uring_ops, mr_store_mmap_ops, mr_store_memory_ops,
    mr_store_null_ops, mr_store_s3_ops, mr_store_throttle_ops, mr_store_fault_ops, mr_store_trace_ops,
    mr_store_count_ops;

/* Which emulated device it is: stores of one group have the same. */
void mr_throttle_identity(struct mr_store *throttle, uint64_t *a, uint64_t *b);

/* Keeps the message of a queued request that failed, since a result is a number alone: mr_io_error gives it back for the
 * same path and code. The last 32 are kept. */
void mr_store_note_failure(const char *path, const struct mr_error *why);

/* Largest single transfer handed to the kernel, which itself stops at 2 GiB - 4 KiB. A power of two keeps direct I/O
 * aligned across the pieces. */
#define MR_STORE_MAX_TRANSFER ((size_t)1 << 30)
/* An interrupted call is repeated; one that is interrupted this often in a row is reported, so no fault hangs us. */
#define MR_STORE_MAX_RETRIES 1000

/* A copy of a folder's names, so that a list callback runs without a lock and may use the store. */
struct mr_names {
    struct mr_name {
        char *name;
        bool is_dir;
    } * item;
    size_t count, cap;
};
int mr_names_add(struct mr_names *l, const char *name, bool is_dir); /* 0 or -ENOMEM */
/* Calls fn for each until one fails, then frees the list. */
int mr_names_give(struct mr_names *l, mr_store_list_fn *fn, void *user, struct mr_error *err);
void mr_names_done(struct mr_names *l);

#endif
