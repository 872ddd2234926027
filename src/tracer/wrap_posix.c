/* POSIX and Linux calls. Most are one row each: result, name, parameters, arguments, what to record. The few that need
 * a look before the call, or variable arguments, are written out below the rows. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

typedef int64_t off;
typedef const char *path;

uint32_t mr_path_failed(int64_t result, int dirfd, const char *p)
{
    bool sure = result == -ENOENT || result == -EEXIST || result == -EACCES || result == -ENOTDIR ||
                result == -EISDIR || result == -ELOOP;
    if (!p || (!sure && mr_sys3(SYS_faccessat, AT_FDCWD, p, 0) == -EFAULT))
        return 0;
    return *p || dirfd != AT_FDCWD ? mr_path_id(dirfd, p) : 0; /* an empty path is not the working directory */
}

/* Probes without reading: rt_sigprocmask with an invalid `how` gives EINVAL, or EFAULT if the buffer is unreadable. */
bool mr_readable(const void *start, uint64_t bytes)
{
    uintptr_t from = (uintptr_t)start;
    if (!bytes || from + bytes < from)
        return false;
    for (uint64_t at = from & ~7ull; at < from + bytes; at = (at | 4095) + 1)
        if (mr_sys4(SYS_rt_sigprocmask, -1, (const void *)(uintptr_t)at, NULL, 8) != -EINVAL)
            return false;
    return true;
}

uint64_t mr_iov_bytes(const struct iovec *v, int64_t n, int64_t result)
{
    uint64_t sum = 0;
    if (result == -1 && (n <= 0 || n > IOV_MAX || !mr_readable(v, (uint64_t)n * sizeof(*v))))
        return 0; /* it may have failed before the kernel looked at the vector */
    for (int64_t i = 0; i < n; i++)
        sum += v[i].iov_len;
    return sum;
}
#define IOV(v, n) mr_iov_bytes(v, (int64_t)(n), r)

/* Reading and writing. */
MR_WRAP_DATA(MR_NEAR, MR_TOGETHER, ssize_t, read, read, (int fd, void *b, size_t n), (fd, b, n),
             (SYS_read, fd, (long)b, (long)n, 0), fd, NONE, n)
MR_WRAP_DATA(MR_NEAR, MR_TOGETHER, ssize_t, write, write, (int fd, const void *b, size_t n), (fd, b, n),
             (SYS_write, fd, (long)b, (long)n, 0), fd, NONE, n)
#define MR_PREAD(near, together, name)                                                                                 \
    MR_WRAP_DATA(near, together, ssize_t, name, pread, (int fd, void *b, size_t n, off o), (fd, b, n, o),              \
                 (SYS_pread64, fd, (long)b, (long)n, o), fd, o, n)
#define MR_PWRITE(near, together, name)                                                                                \
    MR_WRAP_DATA(near, together, ssize_t, name, pwrite, (int fd, const void *b, size_t n, off o), (fd, b, n, o),       \
                 (SYS_pwrite64, fd, (long)b, (long)n, o), fd, o, n)
MR_PREAD(MR_NEAR, MR_TOGETHER, pread)
MR_PWRITE(MR_NEAR, MR_TOGETHER, pwrite)
MR_PREAD(MR_NEAR64, MR_TOGETHER64, pread64)
MR_PWRITE(MR_NEAR64, MR_TOGETHER64, pwrite64)
/* The C library's public second names, which some old libraries use. */
MR_ALIAS(__read, read)
MR_ALIAS(__write, write)
MR_ALIAS(__pread64, pread64)
MR_ALIAS(__pwrite64, pwrite64)
MR_WRAP(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), FD(readv, fd, NONE, IOV(v, n)))
MR_WRAP(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), FD(writev, fd, NONE, IOV(v, n)))
MR_WRAP_2(ssize_t, preadv, preadv64, (int fd, const struct iovec *v, int n, off o), (fd, v, n, o),
          FD(preadv, fd, o, IOV(v, n)))
MR_WRAP_2(ssize_t, pwritev, pwritev64, (int fd, const struct iovec *v, int n, off o), (fd, v, n, o),
          FD(pwritev, fd, o, IOV(v, n)))
MR_WRAP_2(ssize_t, preadv2, preadv64v2, (int fd, const struct iovec *v, int n, off o, int f), (fd, v, n, o, f),
          FD(preadv2, fd, o, IOV(v, n)))
MR_WRAP_2(ssize_t, pwritev2, pwritev64v2, (int fd, const struct iovec *v, int n, off o, int f), (fd, v, n, o, f),
          FD(pwritev2, fd, o, IOV(v, n)))
MR_WRAP(ssize_t, __read_chk, (int fd, void *b, size_t n, size_t c), (fd, b, n, c), FD(read, fd, NONE, n))
MR_WRAP_2(ssize_t, __pread_chk, __pread64_chk, (int fd, void *b, size_t n, off o, size_t c), (fd, b, n, o, c),
          FD(pread, fd, o, n))
#define MR_LSEEK(near, together, name)                                                                                 \
    MR_WRAP_PLAIN(near, together, off, name, lseek, (int fd, off o, int w), (fd, o, w), (SYS_lseek, fd, o, w, 0), fd,  \
                  o, 0, r)
MR_LSEEK(MR_NEAR, MR_TOGETHER, lseek)
MR_LSEEK(MR_NEAR64, MR_TOGETHER64, lseek64)
MR_ALIAS(llseek, lseek)
MR_ALIAS(__lseek, lseek)

static const void *module_of(void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) ? info.dli_fbase : NULL;
}

/* Libraries that change the C library's code in memory (hooks at the beginning of a function, jumps instead of system
 * calls) want to be asked. */
static bool is_unchanged(const uint8_t *code)
{
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};
    code += memcmp(code, endbr, sizeof(endbr)) ? 0 : sizeof(endbr);
    bool jumps = code[0] == 0xe9 || code[0] == 0xeb || code[0] == 0xff || code[0] == 0x68 || code[0] == 0xcc;
    bool loads_address = (code[0] & 0xf0) == 0x40 && (code[1] & 0xf8) == 0xb8;
    for (unsigned i = 0; i < 32 && !jumps && !loads_address; i++)
        if (code[i] == 0x0f && code[i + 1] == 0x05) /* syscall */
            return true;
    return false;
}

bool mr_data_calls_are_plain(void)
{
    void *of_libc = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    const void *libc = module_of(of_libc);
    void *const function[] = {mr_next("read"),   mr_next("write"),    mr_next("pread"), mr_next("pread64"),
                              mr_next("pwrite"), mr_next("pwrite64"), mr_next("lseek"), mr_next("lseek64")};
    bool plain = libc != NULL;
    for (unsigned i = 0; i < MR_ARRAY_LEN(function); i++)
        plain = plain && module_of(function[i]) == libc && is_unchanged(function[i]);
    return plain;
}

/* Between descriptors. */
uint64_t mr_offset_before(const int64_t *at, int64_t result)
{
    if (!at || (result < 0 && !mr_readable(at, sizeof(*at)))) /* a call that failed may not have looked at it */
        return NONE;
    return (uint64_t)(*at - MR_MAX(result, (int64_t)0));
}
MR_WRAP_2(ssize_t, sendfile, sendfile64, (int o, int i, off *p, size_t n), (o, i, p, n),
          COPY(sendfile, i, o, mr_offset_before(p, r), n))
MR_WRAP(ssize_t, splice, (int i, off *a, int o, off *b, size_t n, unsigned f), (i, a, o, b, n, f),
        COPY(splice, i, o, mr_offset_before(a, r), n))
MR_WRAP(ssize_t, tee, (int i, int o, size_t n, unsigned f), (i, o, n, f), COPY(tee, i, o, NONE, n))
MR_WRAP(ssize_t, vmsplice, (int fd, const struct iovec *v, size_t n, unsigned f), (fd, v, n, f),
        FD(vmsplice, fd, NONE, IOV(v, n)))
MR_WRAP(ssize_t, copy_file_range, (int i, off *a, int o, off *b, size_t n, unsigned f), (i, a, o, b, n, f),
        COPY(copy_file_range, i, o, mr_offset_before(a, r), n))

/* Making descriptors. */
MR_WRAP_2(int, creat, creat64, (path p, mode_t m), (p, m), OPENED(creat, CWD, p, O_CREAT | O_WRONLY | O_TRUNC))
void mr_put_open2(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *p, const void *how, int fd)
{
    const struct {
        uint64_t flags, mode, resolve;
    } *h = how;
    const uint64_t in_root = 0x10; /* RESOLVE_IN_ROOT: '/' is the directory, so that the path alone says another file */
    uint32_t file = fd >= 0 && h->resolve & in_root ? mr_file_resolve(fd) : 0;
    if (!file)
        mr_put_open(t0, t1, call, dirfd, p, fd >= 0 ? h->flags : NONE, fd);
    else if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, mr_fd1(fd), h->flags, fd);
}
MR_WRAP(int, openat2, (int d, path p, void *how, size_t n), (d, p, how, n),
        mr_put_open2(t0, t1, CALL(openat2), d, p, how, r))
MR_WRAP_2(int, __open_2, __open64_2, (path p, int f), (p, f), OPENED(open, CWD, p, f))
MR_WRAP_2(int, __openat_2, __openat64_2, (int d, path p, int f), (d, p, f), OPENED(openat, d, p, f))
MR_WRAP_2(int, mkstemp, mkstemp64, (char *p), (p), OPENED(mkstemp, CWD, p, O_CREAT | O_RDWR))
MR_WRAP_2(int, mkostemp, mkostemp64, (char *p, int f), (p, f), OPENED(mkostemp, CWD, p, O_CREAT | O_RDWR | f))
MR_WRAP_2(int, mkstemps, mkstemps64, (char *p, int s), (p, s), OPENED(mkstemps, CWD, p, O_CREAT | O_RDWR))
MR_WRAP_2(int, mkostemps, mkostemps64, (char *p, int s, int f), (p, s, f),
          OPENED(mkostemps, CWD, p, O_CREAT | O_RDWR | f))
MR_WRAP(int, shm_open, (path p, int f, mode_t m), (p, f, m), mr_file_set(r, 0); FD0(shm_open, r, f))
static void put_shm_unlink(uint64_t t0, uint64_t t1, path p, int64_t result)
{
    char full[300] = "/dev/shm/";
    if (result < 0 && mr_path_failed(result, CWD, p) == 0)
        return;
    while (*p == '/')
        p++;
    size_t n = strnlen(p, sizeof(full) - 10);
    memcpy(full + 9, p, n);
    full[9 + n] = 0;
    mr_put_path(t0, t1, CALL(unlink), CWD, full, NONE, result);
}
MR_WRAP(int, shm_unlink, (path p), (p), put_shm_unlink(t0, t1, p, r ? -errno : 0))
MR_WRAP(int, open_by_handle_at, (int d, void *h, int f), (d, h, f), mr_file_set(r, 0); FD0(open_by_handle_at, r, f))
MR_WRAP(int, memfd_create, (path p, unsigned f), (p, f), mr_file_set(r, 0); FD0(memfd_create, r, f))
MR_WRAP(int, dup, (int fd), (fd), if (r >= 0) mr_file_dup(fd, r); FD0(dup, fd, NONE))
MR_WRAP(int, dup2, (int fd, int to), (fd, to), if (r >= 0) mr_file_dup(fd, r); FD0(dup2, fd, NONE))
MR_ALIAS(__dup2, dup2)
MR_WRAP(int, dup3, (int fd, int to, int f), (fd, to, f), if (r >= 0) mr_file_dup(fd, r); FD0(dup3, fd, NONE))
MR_WRAP(int, pipe, (int p[2]), (p), if (!r) mr_file_set(p[0], 0), mr_file_set(p[1], 0); PATH(pipe, CWD, NULL, NONE))
MR_ALIAS(__pipe, pipe)
MR_WRAP(int, pipe2, (int p[2], int f), (p, f), if (!r) mr_file_set(p[0], 0), mr_file_set(p[1], 0);
        PATH(pipe2, CWD, NULL, f))
void mr_closed_range(unsigned first, unsigned last, long flags)
{
    if (flags & 2) /* CLOSE_RANGE_UNSHARE */
        mr_files_unshared();
    if (!(flags & 4)) /* CLOSE_RANGE_CLOEXEC */
        mr_file_forget_range(first, last);
}
MR_WRAP(int, close_range, (unsigned a, unsigned b, int f), (a, b, f), if (!r) mr_closed_range(a, b, f);
        PATH(close_range, CWD, NULL, a))

/* On descriptors. */
MR_WRAP(int, fsync, (int fd), (fd), FD0(fsync, fd, NONE))
MR_WRAP(int, fdatasync, (int fd), (fd), FD0(fdatasync, fd, NONE))
MR_WRAP(int, syncfs, (int fd), (fd), FD0(syncfs, fd, NONE))
MR_WRAP(int, sync_file_range, (int fd, off o, off n, unsigned f), (fd, o, n, f), FD(sync_file_range, fd, o, n))
MR_WRAP_2(int, ftruncate, ftruncate64, (int fd, off o), (fd, o), FD0(ftruncate, fd, o))
MR_WRAP_2(int, fallocate, fallocate64, (int fd, int m, off o, off n), (fd, m, o, n), FD(fallocate, fd, o, n))
MR_WRAP(int, flock, (int fd, int op), (fd, op), FD0(flock, fd, op))
MR_WRAP_2(int, lockf, lockf64, (int fd, int op, off n), (fd, op, n), FD0(lockf, fd, op))
MR_WRAP(ssize_t, readahead, (int fd, off o, size_t n), (fd, o, n), FD(readahead, fd, o, n))
MR_WRAP(ssize_t, getdents64, (int fd, void *b, size_t n), (fd, b, n), FD0(getdents64, fd, NONE))
MR_WRAP_2(ssize_t, getdirentries, getdirentries64, (int fd, char *b, size_t n, off *p), (fd, b, n, p),
          FD0(getdents64, fd, NONE))
MR_WRAP_HOT_2(int, fstat, fstat64, (int fd, void *s), (fd, s), FD0(fstat, fd, NONE))
MR_WRAP_2(int, __fxstat, __fxstat64, (int v, int fd, void *s), (v, fd, s), FD0(fstat, fd, NONE))
MR_WRAP_2(int, fstatfs, fstatfs64, (int fd, void *s), (fd, s), FD0(fstatfs, fd, NONE))
MR_WRAP_2(int, fstatvfs, fstatvfs64, (int fd, void *s), (fd, s), FD0(fstatvfs, fd, NONE))
MR_WRAP(int, fchmod, (int fd, mode_t m), (fd, m), FD0(fchmod, fd, m))
MR_WRAP(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g), FD0(fchown, fd, NONE))
MR_WRAP(int, futimens, (int fd, const void *t), (fd, t), FD0(futimens, fd, NONE))
MR_WRAP(int, futimes, (int fd, const void *t), (fd, t), FD0(futimes, fd, NONE))
MR_WRAP(int, fchdir, (int fd), (fd), mr_cwd_changed(); FD0(fchdir, fd, NONE))
MR_WRAP(ssize_t, fgetxattr, (int fd, path k, void *v, size_t n), (fd, k, v, n), FD0(fgetxattr, fd, NONE))
MR_WRAP(int, fsetxattr, (int fd, path k, const void *v, size_t n, int f), (fd, k, v, n, f), FD0(fsetxattr, fd, NONE))
MR_WRAP(ssize_t, flistxattr, (int fd, char *v, size_t n), (fd, v, n), FD0(flistxattr, fd, NONE))
MR_WRAP(int, fremovexattr, (int fd, path k), (fd, k), FD0(fremovexattr, fd, NONE))

/* By path. */
/* After a success a relative path means something else: the new place goes by its own name. */
static void put_moved(uint64_t t0, uint64_t t1, unsigned call, path p, int r)
{
    if (r == 0)
        mr_cwd_changed();
    mr_put_path(t0, t1, call, CWD, r == 0 && *p != '/' ? "." : p, NONE, r);
}
/* -1 with errno as it was means "no limit", not an error. */
#define MR_CONF(name, params, args, record)                                                                            \
    MR_REAL(long, name, params, args)                                                                                  \
    MR_SYMBOL(long, name, params)                                                                                      \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        int before = errno;                                                                                            \
        errno = 0;                                                                                                     \
        uint64_t t0 = mr_stamp();                                                                                      \
        long r = real_##name args;                                                                                     \
        uint64_t t1 = mr_stamp();                                                                                      \
        int64_t result = r == -1 ? -errno : 0;                                                                         \
        if (!errno)                                                                                                    \
            errno = before;                                                                                            \
        record;                                                                                                        \
        return r;                                                                                                      \
    }
MR_CONF(pathconf, (path p, int k), (p, k), mr_put_path(t0, t1, CALL(pathconf), CWD, p, (uint64_t)k, result))
MR_CONF(fpathconf, (int fd, int k), (fd, k),
        mr_put_fd(t0, t1, CALL(fpathconf), fd, (uint64_t)k, (uint64_t)result, result))
MR_WRAP_HOT_2(int, stat, stat64, (path p, void *s), (p, s), PATH(stat, CWD, p, NONE))
MR_WRAP_2(int, lstat, lstat64, (path p, void *s), (p, s), PATH(lstat, CWD, p, NONE))
MR_WRAP_2(int, fstatat, fstatat64, (int d, path p, void *s, int f), (d, p, s, f), PATH(fstatat, d, p, NONE))
MR_WRAP_2(int, __xstat, __xstat64, (int v, path p, void *s), (v, p, s), PATH(stat, CWD, p, NONE))
MR_WRAP_2(int, __lxstat, __lxstat64, (int v, path p, void *s), (v, p, s), PATH(lstat, CWD, p, NONE))
MR_WRAP_2(int, __fxstatat, __fxstatat64, (int v, int d, path p, void *s, int f), (v, d, p, s, f),
          PATH(fstatat, d, p, NONE))
MR_WRAP(int, statx, (int d, path p, int f, unsigned m, void *s), (d, p, f, m, s), PATH(statx, d, p, NONE))
MR_WRAP_2(int, statfs, statfs64, (path p, void *s), (p, s), PATH(statfs, CWD, p, NONE))
MR_ALIAS(__statfs, statfs)
MR_WRAP_2(int, statvfs, statvfs64, (path p, void *s), (p, s), PATH(statvfs, CWD, p, NONE))
MR_WRAP(int, access, (path p, int m), (p, m), PATH(access, CWD, p, m))
MR_WRAP(int, faccessat, (int d, path p, int m, int f), (d, p, m, f), PATH(faccessat, d, p, m))
MR_WRAP(int, name_to_handle_at, (int d, path p, void *h, int *m, int f), (d, p, h, m, f),
        PATH(name_to_handle_at, d, p, f))
MR_WRAP(int, euidaccess, (path p, int m), (p, m), PATH(euidaccess, CWD, p, m))
MR_WRAP(int, eaccess, (path p, int m), (p, m), PATH(eaccess, CWD, p, m))
MR_WRAP_2(int, truncate, truncate64, (path p, off o), (p, o), PATH(truncate, CWD, p, o))
MR_WRAP(int, unlink, (path p), (p), PATH(unlink, CWD, p, NONE))
MR_WRAP(int, unlinkat, (int d, path p, int f), (d, p, f), PATH(unlinkat, d, p, f))
MR_WRAP(int, remove, (path p), (p), PATH(remove, CWD, p, NONE))
MR_WRAP(int, mkdir, (path p, mode_t m), (p, m), PATH(mkdir, CWD, p, m))
MR_WRAP(int, mkdirat, (int d, path p, mode_t m), (d, p, m), PATH(mkdirat, d, p, m))
MR_WRAP(int, rmdir, (path p), (p), PATH(rmdir, CWD, p, NONE))
MR_WRAP(int, mknod, (path p, mode_t m, dev_t v), (p, m, v), PATH(mknod, CWD, p, m))
MR_WRAP(int, mknodat, (int d, path p, mode_t m, dev_t v), (d, p, m, v), PATH(mknodat, d, p, m))
MR_WRAP(int, __xmknod, (int v, path p, mode_t m, dev_t *n), (v, p, m, n), PATH(mknod, CWD, p, m))
MR_WRAP(int, __xmknodat, (int v, int d, path p, mode_t m, dev_t *n), (v, d, p, m, n), PATH(mknodat, d, p, m))
MR_WRAP(int, mkfifo, (path p, mode_t m), (p, m), PATH(mkfifo, CWD, p, m))
MR_WRAP(int, mkfifoat, (int d, path p, mode_t m), (d, p, m), PATH(mkfifoat, d, p, m))
MR_WRAP(int, chmod, (path p, mode_t m), (p, m), PATH(chmod, CWD, p, m))
MR_WRAP(int, lchmod, (path p, mode_t m), (p, m), PATH(chmod, CWD, p, m))
MR_WRAP(int, fchmodat, (int d, path p, mode_t m, int f), (d, p, m, f), PATH(fchmodat, d, p, m))
MR_WRAP(int, chown, (path p, uid_t u, gid_t g), (p, u, g), PATH(chown, CWD, p, NONE))
MR_WRAP(int, lchown, (path p, uid_t u, gid_t g), (p, u, g), PATH(lchown, CWD, p, NONE))
MR_WRAP(int, fchownat, (int d, path p, uid_t u, gid_t g, int f), (d, p, u, g, f), PATH(fchownat, d, p, NONE))
MR_WRAP(int, utime, (path p, const void *t), (p, t), PATH(utime, CWD, p, NONE))
MR_WRAP(int, utimes, (path p, const void *t), (p, t), PATH(utimes, CWD, p, NONE))
MR_WRAP(int, lutimes, (path p, const void *t), (p, t), PATH(lutimes, CWD, p, NONE))
MR_WRAP(int, futimesat, (int d, path p, const void *t), (d, p, t), PATH(futimesat, d, p, NONE))
MR_WRAP(int, utimensat, (int d, path p, const void *t, int f), (d, p, t, f), PATH(utimensat, d, p, NONE))
MR_WRAP(int, chdir, (path p), (p), put_moved(t0, t1, CALL(chdir), p, r))
MR_WRAP(int, chroot, (path p), (p), put_moved(t0, t1, CALL(chroot), p, r))
MR_WRAP(ssize_t, readlink, (path p, char *b, size_t n), (p, b, n), PATH(readlink, CWD, p, NONE))
MR_WRAP(ssize_t, readlinkat, (int d, path p, char *b, size_t n), (d, p, b, n), PATH(readlinkat, d, p, NONE))
MR_WRAP(ssize_t, __readlink_chk, (path p, char *b, size_t n, size_t c), (p, b, n, c), PATH(readlink, CWD, p, NONE))
MR_WRAP(ssize_t, __readlinkat_chk, (int d, path p, char *b, size_t n, size_t c), (d, p, b, n, c),
        PATH(readlinkat, d, p, NONE))
MR_WRAP(int, symlink, (path a, path p), (a, p), SECOND_PATH(symlink, CWD, p))
MR_WRAP(int, symlinkat, (path a, int d, path p), (a, d, p), SECOND_PATH(symlinkat, d, p))
MR_WRAP(int, link, (path a, path b), (a, b), PATHS(link, CWD, a, CWD, b))
MR_WRAP(int, linkat, (int d, path a, int e, path b, int f), (d, a, e, b, f), PATHS(linkat, d, a, e, b))
/* The working directory, or one above it, may have another name now. */
MR_WRAP(int, rename, (path a, path b), (a, b), PATHS(rename, CWD, a, CWD, b); mr_cwd_changed())
MR_WRAP(int, renameat, (int d, path a, int e, path b), (d, a, e, b), PATHS(renameat, d, a, e, b); mr_cwd_changed())
MR_WRAP(int, renameat2, (int d, path a, int e, path b, unsigned f), (d, a, e, b, f), PATHS(renameat2, d, a, e, b);
        mr_cwd_changed())
MR_WRAP(ssize_t, getxattr, (path p, path k, void *v, size_t n), (p, k, v, n), PATH(getxattr, CWD, p, NONE))
MR_WRAP(ssize_t, lgetxattr, (path p, path k, void *v, size_t n), (p, k, v, n), PATH(lgetxattr, CWD, p, NONE))
MR_WRAP(int, setxattr, (path p, path k, const void *v, size_t n, int f), (p, k, v, n, f), PATH(setxattr, CWD, p, NONE))
MR_WRAP(int, lsetxattr, (path p, path k, const void *v, size_t n, int f), (p, k, v, n, f),
        PATH(lsetxattr, CWD, p, NONE))
MR_WRAP(ssize_t, listxattr, (path p, char *v, size_t n), (p, v, n), PATH(listxattr, CWD, p, NONE))
MR_WRAP(ssize_t, llistxattr, (path p, char *v, size_t n), (p, v, n), PATH(llistxattr, CWD, p, NONE))
MR_WRAP(int, removexattr, (path p, path k), (p, k), PATH(removexattr, CWD, p, NONE))
MR_WRAP(int, lremovexattr, (path p, path k), (p, k), PATH(lremovexattr, CWD, p, NONE))

/* Calls that give NULL on failure, or their error instead of setting errno. */
#define NULL_FAILS(p) ((p) ? 0 : -(int64_t)errno)
MR_WRAP(char *, realpath, (path p, char *o), (p, o), mr_put_path(t0, t1, CALL(realpath), CWD, p, NONE, NULL_FAILS(r)))
MR_WRAP(char *, __realpath_chk, (path p, char *o, size_t n), (p, o, n),
        mr_put_path(t0, t1, CALL(realpath), CWD, p, NONE, NULL_FAILS(r)))
MR_WRAP(char *, canonicalize_file_name, (path p), (p), mr_put_path(t0, t1, CALL(realpath), CWD, p, NONE, NULL_FAILS(r)))
MR_WRAP(char *, mkdtemp, (char *p), (p), mr_put_path(t0, t1, CALL(mkdtemp), CWD, p, NONE, NULL_FAILS(r)))
MR_WRAP(char *, getcwd, (char *b, size_t n), (b, n), mr_put(t0, t1, CALL(getcwd), 0, 0, NONE, NULL_FAILS(r)))
MR_WRAP(char *, __getcwd_chk, (char *b, size_t n, size_t c), (b, n, c),
        mr_put(t0, t1, CALL(getcwd), 0, 0, NONE, NULL_FAILS(r)))
MR_WRAP(char *, getwd, (char *b), (b), mr_put(t0, t1, CALL(getcwd), 0, 0, NONE, NULL_FAILS(r)))
MR_WRAP(char *, __getwd_chk, (char *b, size_t c), (b, c), mr_put(t0, t1, CALL(getcwd), 0, 0, NONE, NULL_FAILS(r)))
MR_WRAP(char *, get_current_dir_name, (void), (), mr_put(t0, t1, CALL(getcwd), 0, 0, NONE, NULL_FAILS(r)))
/* It returns the error; -1, which is EPERM (a sealed memory file), would mean errno. */
static void put_fallocate(uint64_t t0, uint64_t t1, int fd, off o, off n, int error)
{
    int keep = errno;
    errno = error;
    mr_put_fd(t0, t1, CALL(posix_fallocate), fd, (uint64_t)o, (uint64_t)n, error ? -1 : 0);
    errno = keep;
}
MR_WRAP_2(int, posix_fallocate, posix_fallocate64, (int fd, off o, off n), (fd, o, n),
          put_fallocate(t0, t1, fd, o, n, r))
MR_WRAP_2(int, posix_fadvise, posix_fadvise64, (int fd, off o, off n, int a), (fd, o, n, a),
          mr_put_fd(t0, t1, CALL(posix_fadvise), fd, (uint64_t)o, (uint64_t)n, -(int64_t)r))
MR_WRAP_HOT(int, isatty, (int fd), (fd), mr_put_fd0(t0, t1, CALL(isatty), fd, NONE, r ? r : -1))
MR_WRAP(mode_t, umask, (mode_t m), (m), mr_put(t0, t1, CALL(umask), 0, 0, m, (int64_t)r))

/* Directories. */
static void put_dir(uint64_t t0, uint64_t t1, unsigned call, DIR *d, int64_t result)
{
    int fd = d ? dirfd(d) : -1;
    mr_put_fd(t0, t1, call, fd, NONE, (uint64_t)result, result);
}
MR_WRAP(DIR *, opendir, (path p), (p), mr_put_open(t0, t1, CALL(opendir), CWD, p, NONE, r ? dirfd(r) : -1))
MR_WRAP(DIR *, fdopendir, (int fd), (fd),
        mr_put_fd(t0, t1, CALL(fdopendir), fd, NONE, (uint64_t)NULL_FAILS(r), NULL_FAILS(r)))
MR_WRAP_2(void *, readdir, readdir64, (DIR * d), (d), put_dir(t0, t1, CALL(readdir), d, r != NULL))
MR_WRAP_2(int, readdir_r, readdir64_r, (DIR * d, void *e, void **o), (d, e, o),
          put_dir(t0, t1, CALL(readdir_r), d, -(int64_t)r))
MR_WRAP(long, telldir, (DIR * d), (d), put_dir(t0, t1, CALL(telldir), d, r))
typedef int dir_select(const void *);
typedef int dir_order(const void *, const void *);
MR_WRAP_2(int, scandir, scandir64, (path p, void *l, dir_select *s, dir_order *o), (p, l, s, o),
          PATH(scandir, CWD, p, NONE))
MR_WRAP_2(int, scandirat, scandirat64, (int d, path p, void *l, dir_select *s, dir_order *o), (d, p, l, s, o),
          PATH(scandirat, d, p, NONE))
MR_WRAP_2(int, nftw, nftw64, (path p, void *f, int n, int g), (p, f, n, g), PATH(nftw, CWD, p, NONE))
MR_WRAP_2(int, ftw, ftw64, (path p, void *f, int n), (p, f, n), PATH(ftw, CWD, p, NONE))
/* For functions that return their own numbers for errors; -1 would mean errno. */
static void put_own_error(uint64_t t0, uint64_t t1, unsigned call, path p, int error)
{
    int keep = errno;
    errno = error;
    mr_put_path(t0, t1, call, CWD, p, NONE, error ? -1 : 0);
    errno = keep;
}
MR_WRAP_2(int, glob, glob64, (path p, int f, void *e, void *g), (p, f, e, g), put_own_error(t0, t1, CALL(glob), p, r))
MR_WRAP_2(void *, fts_open, fts64_open, (char *const *p, int f, void *c), (p, f, c),
          mr_put_path(t0, t1, CALL(fts_open), CWD, r ? p[0] : NULL, (uint64_t)f, NULL_FAILS(r)))
MR_WRAP_2(void *, fts_read, fts64_read, (void *f), (f), mr_put(t0, t1, CALL(fts_read), 0, 0, NONE, r != NULL))
MR_WRAP_2(void *, fts_children, fts64_children, (void *f, int o), (f, o),
          mr_put(t0, t1, CALL(fts_children), 0, 0, NONE, r != NULL))
MR_WRAP(int, wordexp, (path p, void *w, int f), (p, w, f), put_own_error(t0, t1, CALL(wordexp), p, r))
MR_WRAP_2(int, fts_close, fts64_close, (void *f), (f), mr_put(t0, t1, CALL(fts_close), 0, 0, NONE, r ? -errno : 0))

/* Mapped files. Anonymous memory is not I/O, and neither are calls on it. */
void mr_put_map(uint64_t t0, uint64_t t1, unsigned call, int fd, int flags, uint64_t offset, uint64_t len,
                const void *at)
{
    bool of_file = fd >= 0 && !(flags & MAP_ANONYMOUS);
    if (at != MAP_FAILED)
        mr_mapping_set(at, len, of_file ? mr_file_of(fd) : MR_NOT_MAPPED);
    if (!of_file)
        return;
    if (mr_ring_mapped && at != MAP_FAILED)
        mr_ring_mapped(fd, offset, (void *)at);
    mr_put_fd(t0, t1, call, fd, offset, len, at == MAP_FAILED ? -errno : (int64_t)(uintptr_t)at);
}
/* munmap, msync, madvise and the like. */
void mr_put_memory(uint64_t t0, uint64_t t1, unsigned call, const void *at, uint64_t len, int64_t result)
{
    const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = len};
    int keep = errno;
    uint32_t file = mr_mapping_get(at, len);
    if (result == 0 && (call == CALL(munmap) || call == CALL(sys_munmap))) {
        if (mr_ring_unmapped)
            mr_ring_unmapped(at, len);
        mr_mapping_set(at, len, MR_NOT_MAPPED);
    }
    if (file != MR_NOT_MAPPED && file != MR_FILE_EXCLUDED)
        mr_put_slow(t0, t1, call, file, 0, (uintptr_t)at, result, &extra, 1);
    errno = keep;
}
/* Whoever watches page faults (millrace trace --mmap) has made the file. */
static void tell_moved(const void *from, const void *to, uint64_t len)
{
    const struct mr_moved m = {
        .time_ns = mr_clock_stamp(), .from = (uintptr_t)from, .to = (uintptr_t)to, .len = len, .pid = mr_process.pid};
    long fd = mr_spool_open("moved", O_WRONLY | O_APPEND);
    if (fd < 0)
        return;
    mr_write_quietly(fd, &(struct iovec){(void *)&m, sizeof(m)}, 1);
    mr_sys1(SYS_close, fd);
}
/* A mapping that was moved, or grew, to `to`; MAP_FAILED: it was not. */
void mr_put_moved(uint64_t t0, uint64_t t1, unsigned call, const void *from, uint64_t old_len, const void *to,
                  uint64_t new_len)
{
    const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = new_len};
    int keep = errno;
    uint32_t file = mr_mapping_get(from, old_len);
    if (to != MAP_FAILED) {
        if (mr_ring_unmapped)
            mr_ring_unmapped(from, old_len);
        mr_mapping_set(from, old_len, MR_NOT_MAPPED);
        mr_mapping_set(to, new_len, file);
        if (file != MR_NOT_MAPPED && mr_config.collected)
            tell_moved(from, to, new_len);
    }
    if (file != MR_NOT_MAPPED && file != MR_FILE_EXCLUDED)
        mr_put_slow(t0, t1, call, file, 0, (uintptr_t)from, to == MAP_FAILED ? -keep : 0, &extra, 1);
    errno = keep;
}
MR_WRAP_2(void *, mmap, mmap64, (void *a, size_t n, int p, int f, int fd, off o), (a, n, p, f, fd, o),
          mr_put_map(t0, t1, CALL(mmap), fd, f, (uint64_t)o, n, r))
MR_REAL(int, munmap, (void *a, size_t n), (a, n))
MR_SYMBOL(int, munmap, (void *a, size_t n))
{
    if (!mr_enter())
        return real_munmap(a, n);
    uint32_t file = mr_mapping_get(a, n);
    bool refused = (uintptr_t)a & 4095 || !n || (uintptr_t)a + n < n;
    if (mr_ring_unmapped && !refused)
        mr_ring_unmapped(a, n);
    if (file != MR_NOT_MAPPED && !refused) /* before: another thread may get the address the moment it is free */
        mr_mapping_set(a, n, MR_NOT_MAPPED);
    uint64_t t0 = mr_stamp();
    int r = real_munmap(a, n);
    uint64_t t1 = mr_stamp();
    const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = n};
    if (file != MR_NOT_MAPPED && file != MR_FILE_EXCLUDED)
        mr_put_slow(t0, t1, CALL(munmap), file, 0, (uintptr_t)a, r ? -errno : 0, &extra, 1);
    return r;
}
MR_WRAP(int, msync, (void *a, size_t n, int f), (a, n, f), mr_put_memory(t0, t1, CALL(msync), a, n, r ? -errno : 0))
MR_WRAP(int, madvise, (void *a, size_t n, int f), (a, n, f), mr_put_memory(t0, t1, CALL(madvise), a, n, r ? -errno : 0))
MR_WRAP(int, mlock, (const void *a, size_t n), (a, n), mr_put_memory(t0, t1, CALL(mlock), a, n, r ? -errno : 0))
MR_WRAP(int, mlock2, (const void *a, size_t n, unsigned f), (a, n, f),
        mr_put_memory(t0, t1, CALL(mlock), a, n, r ? -errno : 0))
MR_WRAP(int, munlock, (const void *a, size_t n), (a, n), mr_put_memory(t0, t1, CALL(munlock), a, n, r ? -errno : 0))
MR_WRAP(int, remap_file_pages, (void *a, size_t n, int p, size_t o, int f), (a, n, p, o, f),
        mr_put_memory(t0, t1, CALL(remap_file_pages), a, n, r ? -errno : 0))
MR_WRAP(int, posix_madvise, (void *a, size_t n, int f), (a, n, f),
        mr_put_memory(t0, t1, CALL(posix_madvise), a, n, -(int64_t)r))

/* Asynchronous I/O: the submission, and at aio_return what was moved. A control block is read before it is handed over:
 * whoever is told of the end may free it at once. */
struct asked {
    uint64_t offset, bytes;
    int fd, opcode;
};
static struct asked asked_of(const struct aiocb *a)
{
    return (struct asked){(uint64_t)a->aio_offset, a->aio_nbytes, a->aio_fildes, a->aio_lio_opcode};
}
static void put_asked(uint64_t t0, uint64_t t1, unsigned call, const struct asked *a, int64_t result)
{
    if (result == -1)
        result = -errno;
    mr_put_fd(t0, t1, call, a->fd, a->offset, a->bytes, result);
}
static void put_aio(uint64_t t0, uint64_t t1, unsigned call, const struct aiocb *a, int64_t result)
{
    struct asked q = asked_of(a);
    put_asked(t0, t1, call, &q, result);
}
static unsigned aio_returned(const struct aiocb *a)
{
    return a->aio_lio_opcode == LIO_READ    ? CALL(aio_return_read)
           : a->aio_lio_opcode == LIO_WRITE ? CALL(aio_return_write)
                                            : CALL(aio_return_fsync);
}
#define MR_AIO_CALL(name, as, params, args)                                                                            \
    MR_REAL(int, name, params, args)                                                                                   \
    MR_SYMBOL(int, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter() || !a)                                                                                         \
            return real_##name args;                                                                                   \
        struct asked q = asked_of(a);                                                                                  \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        put_asked(t0, t1, CALL(as), &q, r);                                                                            \
        return r;                                                                                                      \
    }
MR_AIO_CALL(aio_read, aio_read, (struct aiocb * a), (a))
MR_AIO_CALL(aio_read64, aio_read, (struct aiocb * a), (a))
MR_AIO_CALL(aio_write, aio_write, (struct aiocb * a), (a))
MR_AIO_CALL(aio_write64, aio_write, (struct aiocb * a), (a))
MR_AIO_CALL(aio_fsync, aio_fsync, (int op, struct aiocb *a), (op, a))
MR_AIO_CALL(aio_fsync64, aio_fsync, (int op, struct aiocb *a), (op, a))
MR_WRAP_2(int, aio_error, aio_error64, (const struct aiocb *a), (a), put_aio(t0, t1, CALL(aio_error), a, -(int64_t)r))
/* The error of an operation that failed is not in errno, where aio_return leaves what was there. */
static void put_returned(uint64_t t0, uint64_t t1, const struct aiocb *a, int64_t result)
{
    int keep = errno;
    errno = a->__error_code;
    put_aio(t0, t1, aio_returned(a), a, result);
    errno = keep;
}
MR_WRAP_2(ssize_t, aio_return, aio_return64, (struct aiocb * a), (a), put_returned(t0, t1, a, r))
MR_WRAP_2(int, aio_suspend, aio_suspend64, (const struct aiocb *const *l, int n, const void *t), (l, n, t),
          mr_put(t0, t1, CALL(aio_suspend), 0, 0, (uint64_t)n, r ? -errno : 0))
MR_WRAP_2(int, aio_cancel, aio_cancel64, (int fd, struct aiocb *a), (fd, a), FD0(aio_cancel, fd, NONE))
MR_REAL(int, lio_listio, (int m, struct aiocb *const *l, int n, void *s), (m, l, n, s))
MR_SYMBOL(int, lio_listio, (int m, struct aiocb *const *l, int n, void *s))
{
    struct asked few[16], *q = few;
    size_t bytes = n > 16 ? (size_t)n * sizeof(*q) : 0;
    if (!mr_enter() || n < 0 || !l || (bytes && !(q = mr_map_pages(bytes))))
        return real_lio_listio(m, l, n, s);
    for (int i = 0; i < n; i++)
        q[i] = l[i] ? asked_of(l[i]) : (struct asked){.opcode = LIO_NOP};
    uint64_t t0 = mr_stamp();
    int r = real_lio_listio(m, l, n, s), keep = errno;
    uint64_t t1 = mr_stamp();
    mr_put(t0, t1, CALL(lio_listio), 0, 0, (uint64_t)n, r == -1 ? -keep : r);
    for (int i = 0; i < n && (r != -1 || keep == EIO || keep == EAGAIN || keep == EINTR); i++)
        if (q[i].opcode != LIO_NOP)
            put_asked(t0, t1, q[i].opcode == LIO_READ ? CALL(aio_read) : CALL(aio_write), &q[i], 0);
    if (bytes)
        mr_sys2(SYS_munmap, q, bytes);
    errno = keep;
    return r;
}
MR_ALIAS(lio_listio64, lio_listio)

/* ---- written out ---- */

MR_REAL_IN(MR_NEAR, int, close, (int fd), (fd))
MR_SYMBOL_IN(MR_TOGETHER, int, close, (int fd))
{
    if (!mr_enter())
        return real_close(fd);
    uint32_t file = mr_file_closing(fd);
    uint64_t t0 = mr_stamp();
    int r = real_close(fd);
    uint64_t t1 = mr_stamp();
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, CALL(close), file, fd >= 0 ? (uint32_t)MR_MIN(fd, 0xfffe) + 1 : 0, NONE, r == -1 ? -errno : r);
    return r;
}

MR_ALIAS(__close, close)

MR_REAL(int, closedir, (DIR * d), (d))
MR_SYMBOL(int, closedir, (DIR * d))
{
    if (!mr_enter() || !d)
        return real_closedir(d);
    int fd = dirfd(d);
    uint32_t file = mr_file_closing(fd);
    uint64_t t0 = mr_stamp();
    int r = real_closedir(d);
    uint64_t t1 = mr_stamp();
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, CALL(closedir), file, mr_fd1(fd), NONE, r == -1 ? -errno : r);
    return r;
}

/* Not recorded: it makes the terminal standard input, output and error, and closes it. */
MR_REAL(int, login_tty, (int fd), (fd))
MR_SYMBOL(int, login_tty, (int fd))
{
    int r = real_login_tty(fd);
    for (int i = 0; r == 0 && i <= 3; i++)
        mr_file_set(i < 3 ? i : fd, 0);
    return r;
}

MR_VOID(sync, (void), (), mr_put(t0, t1, CALL(sync), 0, 0, NONE, 0))
MR_VOID(rewinddir, (DIR * d), (d), put_dir(t0, t1, CALL(rewinddir), d, 0))
MR_VOID(seekdir, (DIR * d, long o), (d, o), put_dir(t0, t1, CALL(seekdir), d, 0))
MR_VOID(closefrom, (int fd), (fd), mr_file_forget_range((unsigned)MR_MAX(fd, 0), ~0u);
        mr_put(t0, t1, CALL(closefrom), 0, 0, (uint64_t)fd, 0))

#define MR_OPEN(near, together, name, as, dir, params, with_mode, args)                                                \
    MR_REAL_IN(near, int, name, with_mode, args)                                                                       \
    MR_EXPORT together int w_##name params __asm__(#name);                                                             \
    int w_##name params                                                                                                \
    {                                                                                                                  \
        va_list ap;                                                                                                    \
        va_start(ap, f);                                                                                               \
        mode_t m = f & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                                                 \
        va_end(ap);                                                                                                    \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        OPENED(as, dir, p, f);                                                                                         \
        return r;                                                                                                      \
    }
MR_OPEN(MR_NEAR, MR_TOGETHER, open, open, CWD, (path p, int f, ...), (path p, int f, mode_t m), (p, f, m))
MR_OPEN(MR_NEAR64, MR_TOGETHER64, open64, open, CWD, (path p, int f, ...), (path p, int f, mode_t m), (p, f, m))
MR_OPEN(MR_NEAR, MR_TOGETHER, openat, openat, d, (int d, path p, int f, ...), (int d, path p, int f, mode_t m),
        (d, p, f, m))
MR_OPEN(MR_NEAR64, MR_TOGETHER64, openat64, openat, d, (int d, path p, int f, ...), (int d, path p, int f, mode_t m),
        (d, p, f, m))
MR_ALIAS(__open, open)
MR_ALIAS(__open64, open64)

static void put_fcntl(uint64_t t0, uint64_t t1, int fd, int cmd, int r)
{
    if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
        mr_file_dup(fd, r);
    FD0(fcntl, fd, cmd);
}
#define MR_FCNTL(name)                                                                                                 \
    MR_REAL(int, name, (int fd, int cmd, void *arg), (fd, cmd, arg))                                                   \
    MR_EXPORT int w_##name(int fd, int cmd, ...) __asm__(#name);                                                       \
    int w_##name(int fd, int cmd, ...)                                                                                 \
    {                                                                                                                  \
        va_list ap;                                                                                                    \
        va_start(ap, cmd);                                                                                             \
        void *arg = va_arg(ap, void *);                                                                                \
        va_end(ap);                                                                                                    \
        if (!mr_enter())                                                                                               \
            return real_##name(fd, cmd, arg);                                                                          \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name(fd, cmd, arg);                                                                             \
        uint64_t t1 = mr_stamp();                                                                                      \
        put_fcntl(t0, t1, fd, cmd, r);                                                                                 \
        return r;                                                                                                      \
    }
MR_FCNTL(fcntl)
MR_FCNTL(fcntl64)
MR_ALIAS(__fcntl, fcntl)

MR_REAL(int, ioctl, (int fd, unsigned long op, void *arg), (fd, op, arg))
MR_EXPORT int w_ioctl(int fd, unsigned long op, ...) __asm__("ioctl");
int w_ioctl(int fd, unsigned long op, ...)
{
    va_list ap;
    va_start(ap, op);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!mr_enter())
        return real_ioctl(fd, op, arg);
    uint64_t t0 = mr_stamp();
    int r = real_ioctl(fd, op, arg);
    uint64_t t1 = mr_stamp();
    FD0(ioctl, fd, op);
    return r;
}

MR_REAL(void *, mremap, (void *a, size_t n, size_t m, int f, void *b), (a, n, m, f, b))
MR_EXPORT void *w_mremap(void *a, size_t n, size_t m, int f, ...) __asm__("mremap");
void *w_mremap(void *a, size_t n, size_t m, int f, ...)
{
    va_list ap;
    va_start(ap, f);
    void *b = va_arg(ap, void *);
    va_end(ap);
    bool on = mr_enter();
    uint64_t t0 = mr_stamp();
    void *r = real_mremap(a, n, m, f, b);
    uint64_t t1 = mr_stamp();
    if (on)
        mr_put_moved(t0, t1, CALL(mremap), a, n, r, m);
    return r;
}
