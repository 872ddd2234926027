/* System calls by number: of syscall(2), which programs use to bypass the C library's functions but not the library
 * itself, and of instructions outside it (tracer_strays.c). A row per system call says what it does and where its
 * arguments are. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_strays.h"
#include "tracer/wrap.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum shape {
    ON_FD = 1, /* fd; count and offset where there are any */
    ON_IOV,    /* fd; iovec at `count` - 1, their number at `count` */
    ON_PATH,   /* path, relative to fd */
    ON_PATH_2, /* the same behind another path */
    OPENS,     /* path, relative to fd; makes a descriptor */
    OPENS_HOW, /* openat2 */
    NAMELESS,  /* makes a descriptor that the kernel names */
    CLOSES,
    CLOSES_ALL,
    TWO_PATHS, /* path and the one at `count`; their directories at fd and `offset`, -1 the working directory */
    COPIES,    /* fd in, `path` out, bytes `count`, pointer to the offset `offset` */
    DUPS,
    CONTROLS, /* fcntl */
    PIPES,
    MAPS,
    ON_MEMORY,
    MOVES,   /* changes the working directory by path */
    SUBMITS, /* io_submit, io_getevents */
    COMPLETES,
    CANCELS,    /* io_cancel */
    RING_SETUP, /* io_uring_setup, io_uring_enter */
    RING_ENTER,
    RING_REGISTER,
    PLAIN,
};

struct row {
    uint16_t call, raw; /* as a function, as a stray */
    uint8_t shape;
    int8_t fd, path, count, offset; /* argument numbers; -1 none */
};

/* Those that older headers do not know have the same number everywhere. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif

/* clang-format off */
#define ROW(number, as, shape, fd, path, count, offset) \
    [SYS_##number] = {CALL(as), CALL(sys_##number), shape, fd, path, count, offset},
static const struct row rows[] = {
    ROW(read, read, ON_FD, 0, -1, 2, -1)
    ROW(write, write, ON_FD, 0, -1, 2, -1)
    ROW(pread64, pread, ON_FD, 0, -1, 2, 3)
    ROW(pwrite64, pwrite, ON_FD, 0, -1, 2, 3)
    ROW(readv, readv, ON_IOV, 0, -1, 2, -1)
    ROW(writev, writev, ON_IOV, 0, -1, 2, -1)
    ROW(preadv, preadv, ON_IOV, 0, -1, 2, 3)
    ROW(pwritev, pwritev, ON_IOV, 0, -1, 2, 3)
    ROW(preadv2, preadv2, ON_IOV, 0, -1, 2, 3)
    ROW(pwritev2, pwritev2, ON_IOV, 0, -1, 2, 3)
    ROW(vmsplice, vmsplice, ON_IOV, 0, -1, 2, -1)
    ROW(lseek, lseek, ON_FD, 0, -1, -1, 1)
    ROW(fsync, fsync, ON_FD, 0, -1, -1, -1)
    ROW(fdatasync, fdatasync, ON_FD, 0, -1, -1, -1)
    ROW(syncfs, syncfs, ON_FD, 0, -1, -1, -1)
    ROW(sync_file_range, sync_file_range, ON_FD, 0, -1, 2, 1)
    ROW(fstat, fstat, ON_FD, 0, -1, -1, -1)
    ROW(fstatfs, fstatfs, ON_FD, 0, -1, -1, -1)
    ROW(getdents64, getdents64, ON_FD, 0, -1, -1, -1)
    ROW(ftruncate, ftruncate, ON_FD, 0, -1, -1, 1)
    ROW(fallocate, fallocate, ON_FD, 0, -1, 3, 2)
    ROW(fadvise64, posix_fadvise, ON_FD, 0, -1, 2, 1)
    ROW(readahead, readahead, ON_FD, 0, -1, 2, 1)
    ROW(flock, flock, ON_FD, 0, -1, -1, 1)
    ROW(fchmod, fchmod, ON_FD, 0, -1, -1, 1)
    ROW(fchown, fchown, ON_FD, 0, -1, -1, -1)
    ROW(fgetxattr, fgetxattr, ON_FD, 0, -1, -1, -1)
    ROW(fsetxattr, fsetxattr, ON_FD, 0, -1, -1, -1)
    ROW(flistxattr, flistxattr, ON_FD, 0, -1, -1, -1)
    ROW(fremovexattr, fremovexattr, ON_FD, 0, -1, -1, -1)
    ROW(openat, openat, OPENS, 0, 1, -1, 2)
    ROW(openat2, openat2, OPENS_HOW, 0, 1, -1, -1)
    ROW(memfd_create, memfd_create, NAMELESS, -1, -1, -1, 1)
    ROW(open_by_handle_at, open_by_handle_at, NAMELESS, -1, -1, -1, 2)
    ROW(close, close, CLOSES, 0, -1, -1, -1)
    ROW(close_range, close_range, CLOSES_ALL, -1, -1, 1, 0)
    ROW(newfstatat, fstatat, ON_PATH, 0, 1, -1, -1)
    ROW(statx, statx, ON_PATH, 0, 1, -1, -1)
    ROW(statfs, statfs, ON_PATH, -1, 0, -1, -1)
    ROW(faccessat, faccessat, ON_PATH, 0, 1, -1, 2)
    ROW(faccessat2, faccessat, ON_PATH, 0, 1, -1, 2)
    ROW(truncate, truncate, ON_PATH, -1, 0, -1, 1)
    ROW(unlinkat, unlinkat, ON_PATH, 0, 1, -1, 2)
    ROW(mkdirat, mkdirat, ON_PATH, 0, 1, -1, 2)
    ROW(mknodat, mknodat, ON_PATH, 0, 1, -1, 2)
    ROW(fchmodat, fchmodat, ON_PATH, 0, 1, -1, 2)
    ROW(fchownat, fchownat, ON_PATH, 0, 1, -1, -1)
    ROW(utimensat, utimensat, ON_PATH, 0, 1, -1, -1)
    ROW(readlinkat, readlinkat, ON_PATH, 0, 1, -1, -1)
    ROW(symlinkat, symlinkat, ON_PATH_2, 1, 2, -1, -1)
    ROW(chroot, chroot, MOVES, -1, 0, -1, -1)
    ROW(chdir, chdir, MOVES, -1, 0, -1, -1)
    ROW(fchdir, fchdir, MOVES, 0, -1, -1, -1)
    ROW(getxattr, getxattr, ON_PATH, -1, 0, -1, -1)
    ROW(lgetxattr, lgetxattr, ON_PATH, -1, 0, -1, -1)
    ROW(setxattr, setxattr, ON_PATH, -1, 0, -1, -1)
    ROW(lsetxattr, lsetxattr, ON_PATH, -1, 0, -1, -1)
    ROW(listxattr, listxattr, ON_PATH, -1, 0, -1, -1)
    ROW(llistxattr, llistxattr, ON_PATH, -1, 0, -1, -1)
    ROW(removexattr, removexattr, ON_PATH, -1, 0, -1, -1)
    ROW(lremovexattr, lremovexattr, ON_PATH, -1, 0, -1, -1)
    ROW(fchmodat2, fchmodat, ON_PATH, 0, 1, -1, 2)
    ROW(setxattrat, setxattr, ON_PATH, 0, 1, -1, -1)
    ROW(getxattrat, getxattr, ON_PATH, 0, 1, -1, -1)
    ROW(listxattrat, listxattr, ON_PATH, 0, 1, -1, -1)
    ROW(removexattrat, removexattr, ON_PATH, 0, 1, -1, -1)
    ROW(linkat, linkat, TWO_PATHS, 0, 1, 3, 2)
    ROW(renameat2, renameat2, TWO_PATHS, 0, 1, 3, 2)
#ifdef SYS_renameat
    ROW(renameat, renameat, TWO_PATHS, 0, 1, 3, 2)
#endif
    ROW(sendfile, sendfile, COPIES, 1, 0, 3, 2)
    ROW(splice, splice, COPIES, 0, 2, 4, 1)
    ROW(tee, tee, COPIES, 0, 1, 2, -1)
    ROW(copy_file_range, copy_file_range, COPIES, 0, 2, 4, 1)
    ROW(dup, dup, DUPS, 0, -1, -1, -1)
    ROW(dup3, dup3, DUPS, 0, -1, -1, -1)
    ROW(fcntl, fcntl, CONTROLS, 0, -1, -1, 1)
    ROW(pipe2, pipe2, PIPES, -1, 0, -1, 1)
    ROW(mmap, mmap, MAPS, 4, -1, 1, 5)
    ROW(munmap, munmap, ON_MEMORY, -1, -1, 1, 0)
    ROW(msync, msync, ON_MEMORY, -1, -1, 1, 0)
    ROW(madvise, madvise, ON_MEMORY, -1, -1, 1, 0)
    ROW(mremap, mremap, ON_MEMORY, -1, -1, 2, 0)
    ROW(sync, sync, PLAIN, -1, -1, -1, -1)
    ROW(getcwd, getcwd, PLAIN, -1, -1, -1, -1)
    ROW(umask, umask, PLAIN, -1, -1, -1, 0)
    ROW(io_setup, io_setup, PLAIN, -1, -1, -1, -1)
    ROW(io_submit, io_submit, SUBMITS, -1, -1, -1, -1)
    ROW(io_getevents, io_getevents, COMPLETES, -1, -1, -1, -1)
    ROW(io_uring_setup, none, RING_SETUP, -1, -1, -1, -1)
    ROW(io_uring_enter, none, RING_ENTER, 0, -1, -1, -1)
    ROW(io_uring_register, io_uring_register, RING_REGISTER, 0, -1, -1, 1)
    ROW(io_destroy, io_destroy, PLAIN, -1, -1, -1, -1)
    ROW(io_cancel, io_cancel, CANCELS, -1, -1, -1, -1)
    ROW(io_pgetevents, io_getevents, COMPLETES, -1, -1, -1, -1)
    ROW(name_to_handle_at, name_to_handle_at, ON_PATH, 0, 1, -1, -1)
    ROW(ioctl, ioctl, ON_FD, 0, -1, -1, 1)
    ROW(remap_file_pages, remap_file_pages, ON_MEMORY, -1, -1, 1, 0)
    ROW(mlock, mlock, ON_MEMORY, -1, -1, 1, 0)
    ROW(mlock2, mlock, ON_MEMORY, -1, -1, 1, 0)
    ROW(munlock, munlock, ON_MEMORY, -1, -1, 1, 0)
#ifdef SYS_open
    ROW(open, open, OPENS, -1, 0, -1, 1)
    ROW(creat, creat, OPENS, -1, 0, -1, -1)
    ROW(stat, stat, ON_PATH, -1, 0, -1, -1)
    ROW(lstat, lstat, ON_PATH, -1, 0, -1, -1)
    ROW(access, access, ON_PATH, -1, 0, -1, 1)
    ROW(unlink, unlink, ON_PATH, -1, 0, -1, -1)
    ROW(mkdir, mkdir, ON_PATH, -1, 0, -1, 1)
    ROW(rmdir, rmdir, ON_PATH, -1, 0, -1, -1)
    ROW(mknod, mknod, ON_PATH, -1, 0, -1, 1)
    ROW(chmod, chmod, ON_PATH, -1, 0, -1, 1)
    ROW(chown, chown, ON_PATH, -1, 0, -1, -1)
    ROW(lchown, lchown, ON_PATH, -1, 0, -1, -1)
    ROW(utime, utime, ON_PATH, -1, 0, -1, -1)
    ROW(utimes, utimes, ON_PATH, -1, 0, -1, -1)
    ROW(futimesat, futimesat, ON_PATH, 0, 1, -1, -1)
    ROW(readlink, readlink, ON_PATH, -1, 0, -1, -1)
    ROW(symlink, symlink, ON_PATH_2, -1, 1, -1, -1)
    ROW(link, link, TWO_PATHS, -1, 0, 1, -1)
    ROW(rename, rename, TWO_PATHS, -1, 0, 1, -1)
    ROW(getdents, getdents64, ON_FD, 0, -1, -1, -1)
    ROW(dup2, dup2, DUPS, 0, -1, -1, -1)
    ROW(pipe, pipe, PIPES, -1, 0, -1, -1)
#endif
};
/* clang-format on */

static const struct row *find(long number)
{
    return number >= 0 && (size_t)number < MR_ARRAY_LEN(rows) && rows[number].shape ? &rows[number] : NULL;
}

bool mr_syscall_is_deep(long number)
{
    const struct row *w = find(number);
    return w && (w->shape == SUBMITS || w->shape == RING_ENTER);
}

bool mr_syscall_begin(struct mr_syscall *s, long number, const long *arg)
{
    const struct row *w = find(number);
    if (!w)
        return false;
    *s = (struct mr_syscall){.row = w, .arg = arg};
    if (w->shape == CLOSES)
        s->file = mr_file_closing((int)arg[0]);
    s->t0 = mr_stamp();
    if (w->shape == SUBMITS && arg[1] > 0 && arg[2])
        mr_libaio_submitting((void *)arg[2], arg[1], s->t0);
    if (w->shape == RING_ENTER && mr_ring_look)
        mr_ring_look(mr_ring_fd((int)arg[0], (unsigned)arg[3]), true);
    return true;
}

static void put_on_fd(const struct mr_syscall *s, unsigned call, uint64_t t1, int fd, uint64_t offset, long r)
{
    const struct row *w = s->row;
    uint64_t count = (uint64_t)(r == -1 ? -errno : r);
    if (w->shape == ON_IOV) {
        count = mr_iov_bytes((const void *)s->arg[w->count - 1], s->arg[w->count], r);
    } else if (w->shape == ON_FD && w->count >= 0) {
        count = (uint64_t)s->arg[w->count];
    }
    mr_put_fd(s->t0, t1, call, fd, offset, count, r);
}

static void put_copy(const struct mr_syscall *s, unsigned call, uint64_t t1, int fd, long r)
{
    const struct row *w = s->row;
    const int64_t *at = w->offset >= 0 ? (const int64_t *)s->arg[w->offset] : NULL;
    mr_put_copy(s->t0, t1, call, fd, (int)s->arg[w->path], mr_offset_before(at, r), (uint64_t)s->arg[w->count], r);
}

static void put_rest(const struct mr_syscall *s, unsigned call, uint64_t t1, int fd, uint64_t offset, long r)
{
    const struct row *w = s->row;
    const long *a = s->arg;
    switch (w->shape) {
    case CLOSES:
        if (s->file != MR_FILE_EXCLUDED)
            mr_put(s->t0, t1, call, s->file, fd >= 0 ? (uint32_t)MR_MIN(fd, 0xfffe) + 1 : 0, MR_NO_OFFSET,
                   r == -1 ? -errno : r);
        break;
    case CLOSES_ALL:
        if (!r)
            mr_closed_range((unsigned)a[0], (unsigned)a[1], a[2]);
        mr_put_path(s->t0, t1, call, AT_FDCWD, NULL, offset, r);
        break;
    case NAMELESS:
        if (r >= 0)
            mr_file_set((int)r, 0);
        mr_put_fd(s->t0, t1, call, (int)r, offset, (uint64_t)(r == -1 ? -errno : r), r);
        break;
    case RING_SETUP:
        if (r >= 0) {
            mr_file_set((int)r, 0);
            if (mr_ring_made)
                mr_ring_made((int)r, (const void *)a[1]);
        }
        mr_put_fd(s->t0, t1, call, (int)r, offset, (uint64_t)(r == -1 ? -errno : r), r);
        break;
    case RING_ENTER:
        if (mr_ring_look) {
            fd = mr_ring_fd(fd, (unsigned)a[3]);
            mr_ring_look(fd, false);
        }
        mr_put_fd(s->t0, t1, call, fd, MR_NO_OFFSET, (uint64_t)(r == -1 ? -errno : r), r);
        break;
    case SUBMITS:
        mr_libaio_submitted((void *)a[2], a[1], r);
        mr_put(s->t0, t1, call, 0, 0, MR_NO_OFFSET, r == -1 ? -errno : r);
        break;
    case COMPLETES:
        if (r > 0)
            mr_libaio_completed((const void *)a[3], r, t1);
        mr_put(s->t0, t1, call, 0, 0, MR_NO_OFFSET, r == -1 ? -errno : r);
        break;
    case CANCELS:
        if (r == 0 && a[2])
            mr_libaio_completed((const void *)a[2], 1, t1);
        mr_put(s->t0, t1, call, 0, 0, MR_NO_OFFSET, r == -1 ? -errno : r);
        break;
    case RING_REGISTER:
        if (r >= 0 && mr_ring_registered)
            mr_ring_registered(fd, (unsigned)a[1], (const void *)a[2],
                               a[1] == 6 || a[1] == 14 || a[1] == 20 ? (unsigned)r : (unsigned)a[3]);
        put_on_fd(s, call, t1, fd, offset, r);
        break;
    case PIPES:
        if (!r)
            mr_file_set(((const int *)a[0])[0], 0), mr_file_set(((const int *)a[0])[1], 0);
        mr_put_path(s->t0, t1, call, AT_FDCWD, NULL, offset, r);
        break;
    case MAPS:
        mr_put_map(s->t0, t1, call, fd, (int)a[3], offset, (uint64_t)a[1], r == -1 ? MAP_FAILED : (void *)r);
        break;
    case ON_MEMORY:
        if (call == CALL(mremap) || call == CALL(sys_mremap)) {
            mr_put_moved(s->t0, t1, call, (const void *)a[0], (uint64_t)a[1], r == -1 ? MAP_FAILED : (void *)r,
                         (uint64_t)a[2]);
            break;
        }
        mr_put_memory(s->t0, t1, call, (const void *)a[0], (uint64_t)a[w->count], r == -1 ? -errno : 0);
        break;
    default: mr_put(s->t0, t1, call, 0, 0, offset, r == -1 ? -errno : r);
    }
}

void mr_syscall_end(const struct mr_syscall *s, long r, bool raw)
{
    uint64_t t1 = s->t1;
    const struct row *w = s->row;
    const long *a = s->arg;
    uint64_t offset = w->offset >= 0 ? (uint64_t)a[w->offset] : MR_NO_OFFSET;
    int fd = w->fd >= 0 ? (int)a[w->fd] : AT_FDCWD;
    unsigned call = raw || !w->call ? w->raw : w->call;
    switch (w->shape) {
    case ON_FD:
    case ON_IOV: put_on_fd(s, call, t1, fd, offset, r); break;
    case DUPS:
        if (r >= 0)
            mr_file_dup(fd, (int)r);
        put_on_fd(s, call, t1, fd, offset, r);
        break;
    case CONTROLS:
        if (r >= 0 && (a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC))
            mr_file_dup(fd, (int)r);
        put_on_fd(s, call, t1, fd, offset, r);
        break;
    case OPENS: mr_put_open(s->t0, t1, call, fd, (const char *)a[w->path], offset, (int)r); break;
    case OPENS_HOW: mr_put_open2(s->t0, t1, call, fd, (const char *)a[w->path], (const void *)a[2], (int)r); break;
    case MOVES:
        if (!r)
            mr_cwd_changed();
        if (w->path < 0) {
            put_on_fd(s, call, t1, fd, offset, r);
            break;
        }
        if (!r && *(const char *)a[w->path] != '/') { /* a relative path means something else now */
            mr_put_path(s->t0, t1, call, AT_FDCWD, ".", offset, r);
            break;
        } /* fall through */
    case ON_PATH: mr_put_path(s->t0, t1, call, fd, (const char *)a[w->path], offset, r); break;
    case ON_PATH_2: mr_put_second_path(s->t0, t1, call, fd, (const char *)a[w->path], r); break;
    case TWO_PATHS:
        mr_put_path2(s->t0, t1, call, fd, (const char *)a[w->path], w->offset >= 0 ? (int)offset : AT_FDCWD,
                     (const char *)a[w->count], r);
        mr_cwd_changed(); /* by rename */
        break;
    case COPIES: put_copy(s, call, t1, fd, r); break;
    default: put_rest(s, call, t1, fd, offset, r);
    }
}

MR_REAL(long, syscall, (long n, long a, long b, long c, long d, long e, long f), (n, a, b, c, d, e, f))
MR_EXPORT long w_syscall(long n, ...) __asm__("syscall");
long w_syscall(long n, ...)
{
    long a[6];
    struct mr_syscall s;
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    long done;
    if (mr_process_call(n, a, &done))
        return done;
    if (!mr_enter() || mr_strays_silent || !mr_syscall_begin(&s, n, a)) {
        long r = real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (r == 0) {
            mr_after_fork();
            mr_strays_after_fork(n, a);
        }
        return r;
    }
    long r = real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
    s.t1 = mr_stamp();
    mr_syscall_end(&s, r, false);
    return r;
}
