/* The posix backend's parts that uring and mmap build on: both keep its objects, folders and page-cache control and
 * replace only how bytes move. */
#ifndef MR_STORE_STORE_POSIX_H
#define MR_STORE_STORE_POSIX_H

#include "store/store.h"
#include "store/store_workq.h"

#include <pthread.h>
#include <stdatomic.h>

/* Direct I/O through our own aligned memory when the caller's range or buffer is not aligned. Buffers are kept, so in
 * the steady state none is allocated. */
#define MR_BOUNCE_BYTES ((size_t)1 << 20)
#define MR_BOUNCE_ALIGN ((size_t)4096) /* a page: every block size that file systems ask for divides it */
#define MR_BOUNCE_KEPT 64

struct mr_bounce {
    pthread_mutex_t lock;
    unsigned count;
    void *kept[MR_BOUNCE_KEPT];
};

/* What the file system of an open file wants for direct I/O; 4096 where it does not say; *off_align 0: it has none. */
void mr_posix_ask_alignment(int fd, unsigned *mem_align, unsigned *off_align);

struct mr_posix_options {
    int64_t threads;
    bool direct, timing;
};
extern const struct mr_option mr_posix_option_rows[];

struct mr_posix_store {
    struct mr_store base;
    bool direct, timing;
    char *root;                  /* mr_store_confine; NULL: not confined */
    bool owner_only;             /* what is made is for the user alone */
    atomic_bool noted_no_direct; /* the one log note was given */
    struct mr_bounce bounce;
    struct mr_workpool *pool;
};

struct mr_posix_object {
    struct mr_object base;
    int fd;
    int fd_buffered;       /* for unaligned ends of direct writes; -1 unless direct and writable */
    atomic_uint off_align; /* 0 = not direct */
    unsigned mem_align;
    char path[];
};

/* `exec` runs what worker threads get from queues. */
int mr_posix_init(struct mr_posix_store *s, const struct mr_store_ops *ops, const struct mr_posix_options *o,
                  mr_io_exec_fn *exec, struct mr_error *err);
void mr_posix_done(struct mr_posix_store *s);
void mr_posix_close(struct mr_store *s);

int mr_posix_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                         struct mr_error *err);
int mr_posix_object_close(struct mr_object *o, struct mr_error *err);
int mr_posix_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err);
int64_t mr_posix_read(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err);
int64_t mr_posix_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err);
int mr_posix_fsync(struct mr_object *o, struct mr_error *err);
int mr_posix_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err);
int mr_posix_truncate(struct mr_object *o, uint64_t bytes, struct mr_error *err);
int mr_posix_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err);
int mr_posix_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err);
int mr_posix_mkdir(struct mr_store *s, const char *path, struct mr_error *err);
int mr_posix_unlink(struct mr_store *s, const char *path, struct mr_error *err);
int mr_posix_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err);
int mr_posix_sync_dir(struct mr_store *s, const char *path, struct mr_error *err);
int mr_posix_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err);
int mr_posix_drop_cache(struct mr_object *o, struct mr_error *err);
int mr_posix_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err);
int mr_posix_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err);

/* Executes one request with plain system calls; no allocation in the steady state. */
int64_t mr_posix_exec(struct mr_store *s, const struct mr_io *io);
/* One log note per store that direct I/O is not possible here. */
void mr_posix_note_no_direct(struct mr_posix_store *s, const char *path);

void *mr_bounce_take(struct mr_bounce *b); /* MR_BOUNCE_BYTES, or NULL when memory is exhausted */
void mr_bounce_give(struct mr_bounce *b, void *buf);

/* The part of the ops table that posix and uring share. */
#define MR_POSIX_OPS                                                                                                   \
    .abi = MR_STORE_ABI, .size = sizeof(struct mr_store_ops),                                                          \
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_DIRECT | MR_STORE_CAP_PERSISTENT | MR_STORE_CAP_CONTENT |                \
            MR_STORE_CAP_RENAME | MR_STORE_CAP_OFFSET_WRITE | MR_STORE_CAP_APPEND,                                     \
    .close = mr_posix_close, .object_open = mr_posix_object_open, .object_close = mr_posix_object_close,               \
    .object_size = mr_posix_object_size, .read = mr_posix_read, .write = mr_posix_write, .fsync = mr_posix_fsync,      \
    .allocate = mr_posix_allocate, .truncate = mr_posix_truncate, .stat = mr_posix_stat, .list = mr_posix_list,        \
    .mkdir = mr_posix_mkdir, .unlink = mr_posix_unlink, .rename = mr_posix_rename, .sync_dir = mr_posix_sync_dir,      \
    .free_space = mr_posix_free_space, .drop_cache = mr_posix_drop_cache, .resident = mr_posix_resident

#endif
