/* The engine of all shims, for a store of a plug-in that stands in front of another. A shim sees every call on its way
 * down (before) and up (after) and may delay, refuse, shorten or spoil it; the engine does the rest: it wraps objects,
 * forwards all operations, and runs queues.
 *
 *    caller ──> before ──> lower store ──> after ──> hold until call.due_ns ──> caller
 *
 * The same two functions serve direct and queued calls, so a shim cannot behave differently on the two.
 *
 * To write one: embed struct mr_shim as the first member of your store, call mr_shim_init in `open` (it takes `lower`;
 * `close` closes it with mr_store_close and frees the store), list MR_SHIM_OPS in the ops table. before and after are
 * called from many threads at once and must not allocate. */
#ifndef MILLRACE_PLUGIN_SHIM_H
#define MILLRACE_PLUGIN_SHIM_H

#include <millrace/plugin_store.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct mr_clock;

enum mr_shim_kind {
    MR_SHIM_OPEN,
    MR_SHIM_CLOSE,
    MR_SHIM_READ,
    MR_SHIM_READ_PATH, /* open, read and close in one */
    MR_SHIM_WRITE,
    MR_SHIM_FSYNC,
    MR_SHIM_ALLOCATE,
    MR_SHIM_TRUNCATE,
    MR_SHIM_STAT,
    MR_SHIM_LIST,
    MR_SHIM_MKDIR,
    MR_SHIM_UNLINK,
    MR_SHIM_RENAME,
    MR_SHIM_SYNC_DIR,
};

struct mr_shim_call {
    enum mr_shim_kind kind;
    const char *path;
    void *buf;  /* reads only */
    size_t len; /* reads and writes; `before` may shorten it, not below 1 */
    uint64_t offset;
    uint64_t stream;   /* who calls: a thread, or one place in a queue; never 0 */
    uint64_t start_ns; /* by the shim's clock */
    uint64_t due_ns;   /* the call ends no earlier; 0 = when the lower store is done */
    int64_t result;    /* valid in `after`; may be changed there */
    uint32_t tag;      /* set while opening an object, seen again in all its calls */
    bool spoil;        /* the shim's own note from before to after */
};

struct mr_shim {
    struct mr_store base;
    struct mr_clock *clock;
    /* 0, or a negative code with err set: the call fails with it and the lower store never sees it. */
    int (*before)(struct mr_shim *s, struct mr_shim_call *c, struct mr_error *err);
    void (*after)(struct mr_shim *s, struct mr_shim_call *c);
    void (*woke)(struct mr_shim *s, struct mr_shim_call *c); /* after waiting for due_ns; may be NULL */
};

struct mr_shim_object {
    struct mr_object base;
    struct mr_object *lower;
    uint32_t tag;
};

/* Fills the common part; takes `lower`. */
void mr_shim_init(struct mr_shim *s, const struct mr_store_ops *ops, struct mr_store *lower,
                  int (*before)(struct mr_shim *, struct mr_shim_call *, struct mr_error *),
                  void (*after)(struct mr_shim *, struct mr_shim_call *));
/* The first shim of this kind in a stack, or NULL. */
struct mr_shim *mr_shim_find(struct mr_store *s, const struct mr_store_ops *ops);

int mr_shim_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                        struct mr_error *err);
int mr_shim_object_close(struct mr_object *o, struct mr_error *err);
int mr_shim_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err);
int64_t mr_shim_read(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err);
int64_t mr_shim_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err);
int mr_shim_fsync(struct mr_object *o, struct mr_error *err);
int mr_shim_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err);
int mr_shim_truncate(struct mr_object *o, uint64_t bytes, struct mr_error *err);
int mr_shim_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err);
int mr_shim_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err);
int mr_shim_mkdir(struct mr_store *s, const char *path, struct mr_error *err);
int mr_shim_unlink(struct mr_store *s, const char *path, struct mr_error *err);
int mr_shim_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err);
int mr_shim_sync_dir(struct mr_store *s, const char *path, struct mr_error *err);
int mr_shim_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err);
int mr_shim_drop_cache(struct mr_object *o, struct mr_error *err);
int mr_shim_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err);
int mr_shim_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err);
void mr_shim_ioq_free(struct mr_ioq *q);
int mr_shim_ioq_submit(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err);
int mr_shim_ioq_register(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err);
int mr_shim_ioq_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err);

/* The part of the ops table that is the same in every shim. */
#define MR_SHIM_OPS                                                                                                    \
    .abi = MR_STORE_ABI, .size = sizeof(struct mr_store_ops), .is_shim = true, .object_open = mr_shim_object_open,     \
    .object_close = mr_shim_object_close, .object_size = mr_shim_object_size, .read = mr_shim_read,                    \
    .write = mr_shim_write, .fsync = mr_shim_fsync, .allocate = mr_shim_allocate, .truncate = mr_shim_truncate,        \
    .stat = mr_shim_stat, .list = mr_shim_list, .mkdir = mr_shim_mkdir, .unlink = mr_shim_unlink,                      \
    .rename = mr_shim_rename, .sync_dir = mr_shim_sync_dir, .free_space = mr_shim_free_space,                          \
    .drop_cache = mr_shim_drop_cache, .resident = mr_shim_resident, .ioq_create = mr_shim_ioq_create,                  \
    .ioq_free = mr_shim_ioq_free, .ioq_submit = mr_shim_ioq_submit, .ioq_reap = mr_shim_ioq_reap,                      \
    .ioq_register = mr_shim_ioq_register

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
