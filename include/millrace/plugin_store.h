/* A store, as a plug-in provides it (and as every built-in one does): the one seam under everything that moves bytes.
 * Formats, data sets, the loader and checkpoints see objects and ranges, never open(2). A store is a stack: at the
 * bottom a backend (posix, uring, mmap, memory, null, yours), above it any number of shims (throttle, fault, trace,
 * yours), each with the same interface. <millrace/plugin_shim.h> has the engine that makes a shim short.
 *
 * Two ways to do I/O, on every backend:
 *   direct   mr_object_read / mr_object_write: in the calling thread, complete when they return. What a worker thread
 *            that has nothing else to do should use; one system call on posix.
 *   queued   an mr_ioq per thread: submit many mr_io, reap completions. What one thread that wants many requests in
 *            flight should use. The posix backend serves queues with worker threads, uring with a ring; a backend
 *            without queues of its own uses the mr_workq_* functions at the end of this file.
 *
 * Paths are as the backend understands them; posix takes any path.
 * Thread safety: a store and its objects may be used from all threads; an mr_ioq belongs to one thread.
 * Ownership: `open` returns a malloc'ed store that `close` frees; a shim takes the store below on success and closes
 * it. Errors: -errno, or MR_E_UNSUPPORTED from a stub, always with path, offset, want and have (mr_store_fail_*); `err`
 * may be NULL and is untouched on success; outputs are set only on success. read and write may return short counts and
 * -EINTR at any time: callers use mr_object_*, which repeat.
 * Costs: read, write, submit and reap are the hot path: no allocation in the steady state.
 *
 * How to write one: examples/plugins/store_skeleton.c; the conformance suite takes plug-ins (doc/guides/plugins.md). An
 * operation that makes no sense points to a shared stub that returns MR_E_UNSUPPORTED with a message; it is never
 * NULL. */
#ifndef MILLRACE_PLUGIN_STORE_H
#define MILLRACE_PLUGIN_STORE_H

#include <millrace/error.h>
#include <millrace/plugin_option.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_STORE_ABI 3

struct mr_store;
struct mr_object;
struct mr_ioq;

enum mr_object_flags {
    MR_OBJ_READ = 1,
    MR_OBJ_WRITE = 2,
    MR_OBJ_CREATE = 4, /* create if missing (with parents: no; see mr_store_mkdirs) */
    MR_OBJ_TRUNCATE = 8,
    MR_OBJ_EXCLUSIVE = 16,
    MR_OBJ_DIRECT = 32, /* bypass the page cache; falls back with one log note where the file system refuses */
    MR_OBJ_RANDOM = 64, /* advise random access: no read-ahead */
    MR_OBJ_KNOWN =
        128, /* for reading: the caller has opened this path before, so nobody asks again whether it is a file, which
                takes a system call. If it was replaced by a pipe meanwhile, opening waits for a writer */
};

/* What a backend can do. Callers ask (mr_store_require) before they begin, so a store that cannot do what they need is
 * refused with the reason instead of failing half-way. CAP_WRITE alone promises this much: a new object can be written
 * once, front to back, and is complete after its close. */
enum mr_store_caps {
    MR_STORE_CAP_WRITE = 1,
    MR_STORE_CAP_DIRECT = 2,
    MR_STORE_CAP_PERSISTENT = 4,    /* content outlives the process */
    MR_STORE_CAP_CONTENT = 8,       /* reads return what was written; only null lacks it */
    MR_STORE_CAP_RENAME = 16,       /* files and folders; a reader sees the old or the new, never half */
    MR_STORE_CAP_OFFSET_WRITE = 32, /* any range in any order, also over what is there; truncate */
    MR_STORE_CAP_APPEND = 64,       /* an object that was closed can be opened again and extended at its end */
    MR_STORE_CAP_MULTIPART = 128,   /* a new object's bytes can be written in any order, by several threads, each once;
                                       those of its first 5 MiB also again before its close */
    MR_STORE_CAP_WHOLE_PUT = 256,   /* a new object has no name before its close and all its bytes after it */
};

struct mr_store_stat {
    uint64_t bytes;
    uint64_t mtime_ns;
    bool is_dir;
    unsigned direct_align; /* 0 = direct I/O not possible */
};

enum mr_io_op { MR_IO_READ, MR_IO_WRITE, MR_IO_READ_PATH, MR_IO_FSYNC };

/* One queued request; caller-owned, must stay put until reaped. READ_PATH opens `path`, reads the range and closes: the
 * common case of one sample per file, which uring does as one linked pair. For READ_PATH with len = the buffer's
 * capacity, a shorter file is not an error: result tells. A backend completes a READ or WRITE in full: result < len
 * means the end of the file (or enough; or, above a fault shim, an injected short transfer). mr_io_error turns a result
 * into a message. */
struct mr_io {
    enum mr_io_op op;
    unsigned flags;           /* MR_OBJ_DIRECT for READ_PATH */
    struct mr_object *object; /* READ, WRITE, FSYNC */
    const char *path;         /* READ_PATH */
    void *buf;
    size_t len;
    size_t enough; /* READ: so many bytes will do (a direct read asks for whole blocks, and a file may end inside its
                      last): when they are there nobody looks for the others. 0: all */
    uint64_t offset;
    void *user;                  /* the caller's */
    int64_t result;              /* bytes moved, or negative code */
    uint64_t submit_ns, done_ns; /* set by the queue when the store was opened with timing */
    /* backend's scratch space; do not touch */
    struct mr_io *next;
    int backend_fd;
    int backend_state;
    uint64_t backend_word;
};

typedef int mr_store_list_fn(void *user, const char *name, bool is_dir, struct mr_error *err);

struct mr_store_ops {
    uint32_t abi, size; /* MR_STORE_ABI, sizeof(struct mr_store_ops) */
    const char *name, *doc;
    unsigned caps;         /* of a backend; a shim has those of what is below it */
    unsigned caps_removed; /* of a shim: what its stack cannot do although the backend could; usually 0 */
    bool is_shim;
    struct mr_option_table options;

    /* `lower` is NULL for a backend; a shim takes ownership of it on success only. */
    int (*open)(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err);
    void (*close)(struct mr_store *s);

    int (*object_open)(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                       struct mr_error *err);
    int (*object_close)(struct mr_object *o, struct mr_error *err); /* frees o in any case */
    int (*object_size)(struct mr_object *o, uint64_t *bytes, struct mr_error *err);
    int64_t (*read)(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err);
    int64_t (*write)(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err);
    int (*fsync)(struct mr_object *o, struct mr_error *err);
    int (*allocate)(struct mr_object *o, uint64_t bytes, struct mr_error *err); /* reserve space; may be a no-op */
    int (*truncate)(struct mr_object *o, uint64_t bytes, struct mr_error *err);

    int (*stat)(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err);
    int (*list)(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err);
    int (*mkdir)(struct mr_store *s, const char *path, struct mr_error *err); /* existing directory is fine */
    int (*unlink)(struct mr_store *s, const char *path, struct mr_error *err);
    int (*rename)(struct mr_store *s, const char *from, const char *to, struct mr_error *err);
    int (*sync_dir)(struct mr_store *s, const char *path,
                    struct mr_error *err); /* make creations and renames durable */
    int (*free_space)(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err);

    /* Page-cache control on our own files, no root: drop clean pages; which fraction of the range is resident. */
    int (*drop_cache)(struct mr_object *o, struct mr_error *err);
    int (*resident)(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err);

    int (*ioq_create)(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err);
    void (*ioq_free)(struct mr_ioq *q); /* waits for what is in flight; same thread as submit and reap */
    /* All n or none: more than the queue has room for is MR_E_USAGE and nothing is submitted. */
    int (*ioq_submit)(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err);
    /* Waits for at least `min` completions (0 = poll), returns up to `max`; result count, or negative code. A `min`
     * beyond what is in flight is cut to that, so reap never waits for nothing. Any completion order. */
    int (*ioq_reap)(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err);
    /* Names the memory that requests of this queue will use, instead of what was named before; n = 0 takes it back.
     * Requests whose buffer lies inside skip the kernel's page look-up per request (io_uring's fixed buffers); others
     * work as ever. The memory stays the caller's and must stay mapped until it is taken back or the queue is freed; it
     * is pinned meanwhile and counts against RLIMIT_MEMLOCK. Returns 1 when requests will be faster for it, 0 when this
     * store or this machine has no use for it (also when the limit is too low, with a note in the log): nothing changes
     * then. Only with nothing in flight: MR_E_USAGE otherwise. Costs about 100 ns per 4 KiB page. */
    int (*ioq_register)(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err);
};

/* The first member of every backend's store, object and queue struct. */
struct mr_store {
    const struct mr_store_ops *ops;
    struct mr_store *lower;
};
struct mr_object {
    struct mr_store *store;
    const char *path; /* as given to open; owned by the object */
    bool abandoned; /* mr_object_abandon: close gives a new object no name (CAP_WHOLE_PUT). Backends need not set it */
};
struct mr_ioq {
    struct mr_store *store;
    unsigned depth;
};

/* Opens a stack from a text like "posix", "uring,direct=true", "throttle(bandwidth=163MB,latency=8ms):posix",
 * "fault(nth=7,error=EIO):throttle(stream_bandwidth=252MB,bandwidth=1968MB):uring". Leftmost is the outermost shim. A
 * value that holds ',' ':' or a parenthesis goes into double quotes: trace(file="a,b.mrt"):posix. */
int mr_store_open(const char *spec, struct mr_store **out, struct mr_error *err);
void mr_store_close(struct mr_store *s);
/* MR_STORE_CAP_* of the backend under the shims, less what a shim takes away. */
unsigned mr_store_caps(const struct mr_store *s);
/* 0 when the store can do all of `caps`; else MR_E_UNSUPPORTED: "cannot <what>: store 'x' cannot rename". */
int mr_store_require(const struct mr_store *s, unsigned caps, const char *what, struct mr_error *err);
/* Adds a backend or shim under its name; `ops` must outlive all use. abi, size, name, option rows and all operations
 * are checked: MR_E_UNSUPPORTED, MR_E_USAGE, -EEXIST (the name is taken), MR_E_LIMIT. At the start, before stores are
 * opened by other threads. */
int mr_store_register(const struct mr_store_ops *ops, struct mr_error *err);

/* Convenience over ops; all retry EINTR and short transfers unless said otherwise. */
int mr_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out, struct mr_error *err);
int mr_object_close(struct mr_object *o, struct mr_error *err); /* accepts NULL */
/* The bytes written so far are not wanted: where the store gives a new object its name at its close, the close leaves
 * nothing of it. Elsewhere the writer removes it by its name, as ever. Accepts NULL. */
void mr_object_abandon(struct mr_object *o);
int mr_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err);
/* Exactly len bytes, or an error (MR_E_FORMAT "unexpected end of file (want .. at .., file has ..)"). */
int mr_object_read(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err);
/* Up to len bytes; 0 at the end. */
int64_t mr_object_read_some(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err);
int mr_object_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err);
/* Whole file into a malloc'ed buffer (NUL-terminated one past the end); refuses more than `max_bytes`. */
int mr_store_read_file(struct mr_store *s, const char *path, uint64_t max_bytes, void **data, size_t *len,
                       struct mr_error *err);
/* The old or the new content, never half: writes to a temporary beside it, fsyncs, renames, syncs the folder. On a
 * store that cannot rename the file is put in one piece where the store can do that (CAP_WHOLE_PUT); else
 * MR_E_UNSUPPORTED, and nothing was written. */
int mr_store_write_file(struct mr_store *s, const char *path, const void *data, size_t len, struct mr_error *err);
int mr_store_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err);
int mr_store_mkdirs(struct mr_store *s, const char *path, struct mr_error *err); /* with parents */

/* Makes the message for a finished request whose result is negative, or shorter than asked ("unexpected end of file").
 * Returns the code; 0 and nothing written if the request moved all its bytes, or enough. */
int mr_io_error(const struct mr_io *io, struct mr_error *err);

/* ---- for those who write a store ---- */

/* "cannot read 4096 bytes at 8192 of 'x' (got 512): Input/output error", with a hint where there is one. */
int mr_store_fail_range(struct mr_error *err, int code, const char *verb, const char *path, size_t want,
                        uint64_t offset, size_t have);
/* "cannot open 'x': No such file or directory", with a hint where there is one. */
int mr_store_fail_path(struct mr_error *err, int code, const char *verb, const char *path);

/* Stubs: MR_E_UNSUPPORTED with the backend's name. */
int mr_store_no_drop_cache(struct mr_object *o, struct mr_error *err);
int mr_store_no_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err);
int mr_store_no_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err);

/* Checks room in a queue: 0, or MR_E_USAGE with the figures. */
int mr_ioq_check_room(const struct mr_ioq *q, unsigned in_flight, unsigned n, struct mr_error *err);
/* Before memory is registered: 0, or MR_E_USAGE. */
int mr_ioq_check_register(unsigned in_flight, const struct iovec *iov, unsigned n, struct mr_error *err);
int mr_ioq_check_depth(unsigned depth, struct mr_error *err);
#define MR_IOQ_MAX_DEPTH 4096u

/* A row every backend has. */
#define MR_STORE_TIMING_OPTION(options_struct)                                                                         \
    {                                                                                                                  \
        .key = "timing", .type = MR_OPT_BOOL, .offset = offsetof(options_struct, timing), .def = "false",              \
        .doc = "Stamp every queued request with its submit and completion time."                                       \
    }

/* ---- queues for backends whose calls block ----
 *
 * Requests are executed by a pool of threads that all queues of a store share, or, without a pool, by the submitting
 * thread itself (for memory-like backends a hand-over costs more than the copy).
 *
 *    submit ──> pool list ──> worker: exec(io) ──> queue's done list ──> reap
 *
 * A backend makes one pool in `open`, frees it in `close`, and lists mr_workq_* as its ioq operations; its ioq_create
 * calls mr_workq_create. No allocation after creation: requests are linked through mr_io.next. */
struct mr_workpool;

/* Executes one request completely and returns its result; called from any thread. */
typedef int64_t mr_io_exec_fn(struct mr_store *s, const struct mr_io *io);

/* `threads` 0 = automatic. Threads start with the first queue. */
int mr_workpool_create(struct mr_store *s, unsigned threads, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                       struct mr_error *err);
/* All queues must have been freed. Accepts NULL. */
void mr_workpool_free(struct mr_workpool *p);
/* A pool that runs requests in the submitting thread. */
int mr_workpool_create_inline(struct mr_store *s, mr_io_exec_fn *exec, bool timing, struct mr_workpool **out,
                              struct mr_error *err);

int mr_workq_create(struct mr_workpool *p, unsigned depth, struct mr_ioq **out, struct mr_error *err);
void mr_workq_free(struct mr_ioq *q);
int mr_workq_submit(struct mr_ioq *q, struct mr_io *const *ios, unsigned n, struct mr_error *err);
/* Nothing to gain: 0 when the call is right. */
int mr_workq_register(struct mr_ioq *q, const struct iovec *iov, unsigned n, struct mr_error *err);
int mr_workq_reap(struct mr_ioq *q, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err);

/* An exec function over any backend's direct operations; READ_PATH opens and closes an object. */
int64_t mr_io_exec_generic(struct mr_store *s, const struct mr_io *io);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
