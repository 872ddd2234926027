/* How a row becomes a wrapper. The C name is w_<name>; the exported symbol comes from the assembler label, so system
 * headers cannot disagree. The pointer to the real function starts at a boot function that looks it up, so the hot path
 * has neither a test nor a lock for it. In a row's recording expression t0, t1, r and the arguments are visible. */
#ifndef MR_TRACER_WRAP_H
#define MR_TRACER_WRAP_H

#include "tracer/tracer_core.h"

#define MILLRACE_TRACE_INSIDE 1 /* <millrace/trace.h>: these functions are ours */

#include <fcntl.h>

#define MR_REAL(ret, name, params, args) MR_REAL_IN(, ret, name, params, args)
#define MR_REAL_IN(where, ret, name, params, args)                                                                     \
    static ret boot_##name params;                                                                                     \
    static where ret(*real_##name) params = boot_##name;                                                               \
    static ret boot_##name params                                                                                      \
    {                                                                                                                  \
        *(void **)&real_##name = mr_next(#name);                                                                       \
        return real_##name args;                                                                                       \
    }

/* For what most programs call (MR_HOT): one cache line holds the pointers. */
#define MR_NEAR __attribute__((section(".data.millrace")))
/* Of two names for the same call a program uses one: those for files beyond 2 GiB (`64`) lie behind the others, code
 * and pointers. */
#define MR_NEAR64 __attribute__((section(".data.millrace64")))
#define MR_TOGETHER64 __attribute__((section(".text.hot.millrace64")))
#define MR_SYMBOL_IN(where, ret, name, params)                                                                         \
    MR_EXPORT where ret w_##name params __asm__(#name);                                                                \
    ret w_##name params

#define MR_SYMBOL(ret, name, params)                                                                                   \
    MR_EXPORT ret w_##name params __asm__(#name);                                                                      \
    ret w_##name params

#define MR_WRAP(ret, name, params, args, ...)                                                                          \
    MR_REAL(ret, name, params, args)                                                                                   \
    MR_SYMBOL(ret, name, params) MR_WRAPPING(ret, name, args, __VA_ARGS__)
#define MR_WRAP_HOT(ret, name, params, args, ...) MR_WRAP_IN(MR_NEAR, MR_TOGETHER, ret, name, params, args, __VA_ARGS__)
#define MR_WRAP_IN(near, together, ret, name, params, args, ...)                                                       \
    MR_REAL_IN(near, ret, name, params, args)                                                                          \
    MR_SYMBOL_IN(together, ret, name, params) MR_WRAPPING(ret, name, args, __VA_ARGS__)
/* The same under a second name, of files beyond 2 GiB on 32 bits, which is another function: a library that stands in
 * for one of them (LD_PRELOAD) need not do so for the other, and each leads to its own next. */
#define MR_WRAP_2(ret, name, name64, params, args, ...)                                                                \
    MR_WRAP(ret, name, params, args, __VA_ARGS__)                                                                      \
    MR_WRAP(ret, name64, params, args, __VA_ARGS__)
#define MR_WRAP_HOT_2(ret, name, name64, params, args, ...)                                                            \
    MR_WRAP_HOT(ret, name, params, args, __VA_ARGS__)                                                                  \
    MR_WRAP_IN(MR_NEAR64, MR_TOGETHER64, ret, name64, params, args, __VA_ARGS__)
#define MR_WRAPPING(ret, name, args, ...)                                                                              \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        uint64_t t0 = mr_stamp();                                                                                      \
        ret r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        __VA_ARGS__;                                                                                                   \
        return r;                                                                                                      \
    }

/* As MR_WRAP with FD, for the calls that programs make most, often many alike: what the record needs is loaded before
 * the call, when nobody waits for it, and all that is not usual is done elsewhere. `direct` is the same call by
 * mr_direct; `expected` the usual result; `as` is the call that the event names. */
#define MR_WRAP_PLAIN(near, together, ret, name, as, params, args, direct, fd, offset, count, expected)                \
    MR_REAL_IN(near, ret, name, params, args)                                                                          \
    static __attribute__((noinline)) ret unusual_##name params                                                         \
    {                                                                                                                  \
        if (mr_file_plain(fd) == MR_FILE_EXCLUDED || !mr_enter())                                                      \
            return real_##name args;                                                                                   \
        uint64_t t0 = mr_stamp();                                                                                      \
        ret r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        return (ret)mr_put_unusual(t0, t1, MR_CALL_FD(CALL(as), fd), (uint64_t)(offset), (uint64_t)(count), r);        \
    }                                                                                                                  \
    static __attribute__((noinline)) together ret threaded_##name(MR_LIST params, uint32_t file)                       \
    {                                                                                                                  \
        uint64_t t0 = mr_stamp_by(1);                                                                                  \
        ret r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp_by(1);                                                                                  \
        if (MR_UNLIKELY(r == -1))                                                                                      \
            return (ret)mr_put_unusual(t0, t1, MR_CALL_FD(CALL(as), fd), (uint64_t)(offset), (uint64_t)(count), r);    \
        return (ret)PUT_PLAIN(as, file, fd, offset, count, expected);                                                  \
    }                                                                                                                  \
    MR_SYMBOL_IN(together, ret, name, params)                                                                          \
    {                                                                                                                  \
        uint32_t file = mr_file_plain(fd);                                                                             \
        if (MR_UNLIKELY(file - 1 >= MR_FILE_EXCLUDED - 1))                                                             \
            return unusual_##name args;                                                                                \
        if (MR_UNLIKELY(!mr_alone()))                                                                                  \
            return threaded_##name(MR_LIST args, file);                                                                \
        uint64_t t0 = mr_stamp_by(1);                                                                                  \
        ret r = (ret)mr_direct direct;                                                                                 \
        uint64_t t1 = mr_stamp_by(1);                                                                                  \
        if (MR_UNLIKELY(MR_DIRECT_REFUSED(r)))                                                                         \
            return (ret)mr_put_refused(t0, t1, MR_CALL_FD(CALL(as), fd), (uint64_t)(offset), (uint64_t)(count), r);    \
        return (ret)PUT_PLAIN(as, file, fd, offset, count, expected);                                                  \
    }
#define MR_LIST(...) __VA_ARGS__
#define PUT_PLAIN(name, file, fd, offset, count, expected)                                                             \
    mr_put_plain(t0, t1, CALL(name), MR_SHORT_##name, file, fd, (uint64_t)(offset), (uint64_t)(count),                 \
                 (uint64_t)(expected), (uint64_t)r)

#define MR_WRAP_DATA(near, together, ret, name, as, params, args, direct, fd, offset, count)                           \
    MR_WRAP_PLAIN(near, together, ret, name, as, params, args, direct, fd, offset, count, count)

/* As MR_WRAP, for functions without a result. */
#define MR_VOID(name, params, args, ...)                                                                               \
    static void boot_##name params;                                                                                    \
    static void(*real_##name) params = boot_##name;                                                                    \
    static void boot_##name params                                                                                     \
    {                                                                                                                  \
        *(void **)&real_##name = mr_next(#name);                                                                       \
        real_##name args;                                                                                              \
    }                                                                                                                  \
    MR_SYMBOL(void, name, params)                                                                                      \
    {                                                                                                                  \
        bool on = mr_enter();                                                                                          \
        uint64_t t0 = mr_stamp();                                                                                      \
        real_##name args;                                                                                              \
        uint64_t t1 = mr_stamp();                                                                                      \
        if (on) {                                                                                                      \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    }

/* Another exported name for the same wrapper. */
#define MR_ALIAS(name, other)                                                                                          \
    extern MR_EXPORT __typeof__(w_##other) a_##name __asm__(#name) __attribute__((alias(#other)));

/* Whether memory that a program hands over before the kernel has looked at it can be read (T1). */
MR_COLD bool mr_readable(const void *at, uint64_t bytes);

/* Bytes that a vector asks for, after the call; 0 if it failed and the vector cannot be read. */
struct iovec;
MR_HIDDEN uint64_t mr_iov_bytes(const struct iovec *v, int64_t n, int64_t result);

/* The offset that a call was given, which has moved it on by its result. */
MR_HIDDEN uint64_t mr_offset_before(const int64_t *at, int64_t result);

/* The path of a call that failed: 0 if it cannot be read (T1). `result` tells whether the kernel must have read it;
 * MR_UNREAD does not. */
#define MR_UNREAD (-EFAULT)
MR_COLD uint32_t mr_path_failed(int64_t result, int dirfd, const char *path);

/* True if a path may say something else than the file that it leads to. */
MR_COLD bool mr_leads_elsewhere(const char *path, uint64_t flags);

/* The id of a file that was just opened. Where the path is not the file's (".." in it, /proc/self/fd, O_TMPFILE), the
 * kernel's name for it counts. */
MR_HOT uint32_t mr_opened_id(int dirfd, const char *path, uint64_t flags, int fd);

/* An event that names a path. */
MR_HOT void mr_put_path(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, uint64_t offset,
                        int64_t result);
/* The same for a path that the kernel looks at only if it likes the one before it. */
MR_HIDDEN void mr_put_second_path(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, int64_t result);
/* An event that made a descriptor from a path. */
MR_HOT void mr_put_open(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, uint64_t flags, int fd);
/* The same for openat2: `how` is read only if the kernel has read it. */
MR_HIDDEN void mr_put_open2(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, const void *how,
                            int fd);

/* An event that names two paths; filtered only if both are excluded. */
MR_HIDDEN void mr_put_path2(uint64_t t0, uint64_t t1, unsigned call, int dir1, const char *path1, int dir2,
                            const char *path2, int64_t result);
/* Bytes from one descriptor to another. */
MR_HIDDEN void mr_put_copy(uint64_t t0, uint64_t t1, unsigned call, int in, int out, uint64_t offset, uint64_t count,
                           int64_t result);

/* The file of a descriptor that is about to be closed, which is then forgotten: another thread may get the number the
 * moment it is free. */
MR_HOT uint32_t mr_file_closing(int fd);

/* A stream is about to be closed: what inlined functions did to it is recorded (wrap_stdio.c). */
struct _IO_FILE;
MR_HIDDEN void mr_stream_closing(struct _IO_FILE *f);

/* Mapped files by address: file ids, 0 one whose name is not known, MR_NOT_MAPPED memory that is no file's
 * (wrap_posix.c tells when it changes). */
#define MR_NOT_MAPPED 0xfffffffeu
MR_HIDDEN void mr_mapping_set(const void *at, uint64_t len, uint32_t file);
MR_HIDDEN uint32_t mr_mapping_get(const void *at, uint64_t len);

/* String id of something inside a file (a data set): FILE:NAME. MR_FILE_EXCLUDED if a filter says so of the file. */
MR_HIDDEN uint32_t mr_object_id(const char *file, const char *name);

/* A thread gets a working directory of its own (unshare). */
MR_HIDDEN void mr_cwd_unshared(void);
/* Or descriptors: a number alone says no longer which file it is. The kernel is asked from now on, every time. */
MR_HIDDEN void mr_files_unshared(void);
MR_HIDDEN void mr_closed_range(unsigned first, unsigned last, long flags); /* by close_range */

/* The program is about to confine itself (seccomp modes; tracer_confine.c). */
MR_HIDDEN void mr_before_confine(long mode, const void *filter);

/* exec and exit by number (wrap_process.c). */
MR_HIDDEN bool mr_process_call(long number, const long *arg, long *result);
MR_HIDDEN void mr_leaving(void);

/* Mappings of files, and calls on them (wrap_posix.c). */
MR_HIDDEN void mr_put_map(uint64_t t0, uint64_t t1, unsigned call, int fd, int flags, uint64_t offset, uint64_t len,
                          const void *at);
MR_HIDDEN void mr_put_moved(uint64_t t0, uint64_t t1, unsigned call, const void *from, uint64_t old_len, const void *to,
                            uint64_t new_len);
MR_HIDDEN void mr_put_memory(uint64_t t0, uint64_t t1, unsigned call, const void *at, uint64_t len, int64_t result);

#define CALL(c) MR_CALL_##c
#define FD(c, fd, offset, count) mr_put_fd(t0, t1, CALL(c), fd, (uint64_t)(offset), (uint64_t)(count), (int64_t)r)
#define FD0(c, fd, offset) mr_put_fd0(t0, t1, CALL(c), fd, (uint64_t)(offset), (int64_t)r)
#define PATH(c, dir, path, offset) mr_put_path(t0, t1, CALL(c), dir, path, (uint64_t)(offset), (int64_t)r)
#define OPENED(c, dir, path, flags) mr_put_open(t0, t1, CALL(c), dir, path, (uint64_t)(flags), r)
#define SECOND_PATH(c, dir, path) mr_put_second_path(t0, t1, CALL(c), dir, path, (int64_t)r)
#define PATHS(c, d1, p1, d2, p2) mr_put_path2(t0, t1, CALL(c), d1, p1, d2, p2, (int64_t)r)
#define COPY(c, in, out, offset, count) mr_put_copy(t0, t1, CALL(c), in, out, (uint64_t)(offset), count, (int64_t)r)
#define CWD AT_FDCWD
#define NONE MR_NO_OFFSET

#endif
