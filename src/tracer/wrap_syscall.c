/* syscall(2): programs that bypass the C library's functions but not the library itself (openat2 has no other way). A row
 * per system call says where its arguments are. */
#undef _FILE_OFFSET_BITS
#include "tracer/wrap.h"

#include <stdarg.h>
#include <sys/syscall.h>

enum shape { ON_FD, ON_PATH, MAKES_FD, CLOSES };

struct row {
    uint16_t number, call;
    uint8_t shape;
    int8_t fd, path, count, offset; /* argument numbers; -1 none. path: `fd` is its directory or -1 */
};

static const struct row rows[] = {
    {SYS_read, CALL(read), ON_FD, 0, -1, 2, -1},
    {SYS_write, CALL(write), ON_FD, 0, -1, 2, -1},
    {SYS_pread64, CALL(pread), ON_FD, 0, -1, 2, 3},
    {SYS_pwrite64, CALL(pwrite), ON_FD, 0, -1, 2, 3},
    {SYS_lseek, CALL(lseek), ON_FD, 0, -1, -1, 1},
    {SYS_fsync, CALL(fsync), ON_FD, 0, -1, -1, -1},
    {SYS_fdatasync, CALL(fdatasync), ON_FD, 0, -1, -1, -1},
    {SYS_fstat, CALL(fstat), ON_FD, 0, -1, -1, -1},
    {SYS_getdents64, CALL(getdents64), ON_FD, 0, -1, -1, -1},
    {SYS_ftruncate, CALL(ftruncate), ON_FD, 0, -1, -1, 1},
    {SYS_fallocate, CALL(fallocate), ON_FD, 0, -1, 3, 2},
    {SYS_openat, CALL(openat), MAKES_FD, 0, 1, -1, 2},
    {SYS_openat2, CALL(openat2), MAKES_FD, 0, 1, -1, -1},
    {SYS_close, CALL(close), CLOSES, 0, -1, -1, -1},
    {SYS_newfstatat, CALL(fstatat), ON_PATH, 0, 1, -1, -1},
    {SYS_statx, CALL(statx), ON_PATH, 0, 1, -1, -1},
    {SYS_faccessat, CALL(faccessat), ON_PATH, 0, 1, -1, -1},
    {SYS_unlinkat, CALL(unlinkat), ON_PATH, 0, 1, -1, -1},
    {SYS_mkdirat, CALL(mkdirat), ON_PATH, 0, 1, -1, -1},
    {SYS_readlinkat, CALL(readlinkat), ON_PATH, 0, 1, -1, -1},
#ifdef SYS_open
    {SYS_open, CALL(open), MAKES_FD, -1, 0, -1, 1},
    {SYS_stat, CALL(stat), ON_PATH, -1, 0, -1, -1},
    {SYS_lstat, CALL(lstat), ON_PATH, -1, 0, -1, -1},
    {SYS_access, CALL(access), ON_PATH, -1, 0, -1, -1},
    {SYS_unlink, CALL(unlink), ON_PATH, -1, 0, -1, -1},
    {SYS_mkdir, CALL(mkdir), ON_PATH, -1, 0, -1, -1},
    {SYS_creat, CALL(creat), MAKES_FD, -1, 0, -1, -1},
#endif
};

static const struct row *find(long number)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++)
        if (rows[i].number == number)
            return &rows[i];
    return NULL;
}

static void record(const struct row *w, const long *a, uint64_t t0, uint64_t t1, long r)
{
    uint64_t offset = w->offset >= 0 ? (uint64_t)a[w->offset] : MR_NO_OFFSET;
    int fd = w->fd >= 0 ? (int)a[w->fd] : AT_FDCWD;
    if (w->shape == MAKES_FD)
        mr_put_open(t0, t1, w->call, fd, (const char *)a[w->path], offset, (int)r);
    else if (w->shape == ON_PATH)
        mr_put_path(t0, t1, w->call, fd, (const char *)a[w->path], offset, r);
    else
        mr_put_fd(t0, t1, w->call, fd, offset, w->count >= 0 ? (uint64_t)a[w->count] : (uint64_t)(r == -1 ? -errno : r), r);
    if (w->shape == CLOSES)
        mr_file_set(fd, 0);
}

MR_REAL(long, syscall, (long n, long a, long b, long c, long d, long e, long f), (n, a, b, c, d, e, f))
MR_EXPORT long w_syscall(long n, ...) __asm__("syscall");
long w_syscall(long n, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    const struct row *w = mr_enter() ? find(n) : NULL;
    if (!w)
        return real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
    uint64_t t0 = mr_stamp();
    long r = real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
    uint64_t t1 = mr_stamp();
    record(w, a, t0, t1, r);
    return r;
}
