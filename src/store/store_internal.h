/* What the files of the store folder share and nobody else sees: the backends' symbols, the stubs for operations that
 * make no sense, and the one place that words I/O errors. */
#ifndef MR_STORE_STORE_INTERNAL_H
#define MR_STORE_STORE_INTERNAL_H

#include "store/store.h"

extern const struct mr_store_ops mr_store_posix_ops, mr_store_uring_ops, mr_store_mmap_ops, mr_store_memory_ops,
    mr_store_null_ops, mr_store_throttle_ops, mr_store_fault_ops, mr_store_trace_ops;

/* Largest single transfer handed to the kernel, which itself stops at 2 GiB - 4 KiB. A power of two keeps direct I/O
 * aligned across the pieces. */
#define MR_STORE_MAX_TRANSFER ((size_t)1 << 30)
/* An interrupted call is repeated; one that is interrupted this often in a row is reported, so no fault hangs us. */
#define MR_STORE_MAX_RETRIES 1000

/* "cannot read 4096 bytes at 8192 of 'x' (got 512): Input/output error", with a hint where there is one. */
int mr_store_fail_range(struct mr_error *err, int code, const char *verb, const char *path, size_t want,
                        uint64_t offset, size_t have);
/* "cannot open 'x': No such file or directory", with a hint where there is one. */
int mr_store_fail_path(struct mr_error *err, int code, const char *verb, const char *path);

/* Shared stubs: MR_E_UNSUPPORTED with the backend's name. */
int mr_store_no_drop_cache(struct mr_object *o, struct mr_error *err);
int mr_store_no_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err);
int mr_store_no_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err);

/* A row every backend has. */
#define MR_STORE_TIMING_OPTION(options_struct)                                                                         \
    {                                                                                                                  \
        .key = "timing", .type = MR_OPT_BOOL, .offset = offsetof(options_struct, timing), .def = "false",              \
        .doc = "Stamp every queued request with its submit and completion time."                                       \
    }

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

/* Checks room in a queue: 0, or MR_E_USAGE with the figures. */
int mr_ioq_check_room(const struct mr_ioq *q, unsigned in_flight, unsigned n, struct mr_error *err);
/* Before memory is registered: 0, or MR_E_USAGE. */
int mr_ioq_check_register(unsigned in_flight, const struct iovec *iov, unsigned n, struct mr_error *err);
int mr_ioq_check_depth(unsigned depth, struct mr_error *err);
#define MR_IOQ_MAX_DEPTH 4096u

#endif
