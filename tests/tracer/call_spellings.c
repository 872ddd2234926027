/* Every other spelling of a call, for the coverage test: the 64-bit, fortified, unlocked and old names, by the C
 * library's own symbols, since headers no longer give most of them. Works in the folder given as the first word; each
 * line of standard output is a call that must be in the trace, as often as it is printed. Symbols that this C library
 * does not have are left out. */
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <wchar.h>
#include <wordexp.h>

static const char *names[512];
static int count, failures;
static void *libc;
static char b[8192];
static wchar_t w[100];

/* The symbol as a program would get it; NULL if the C library has none. */
static void *find(const char *symbol)
{
    return dlsym(libc, symbol) ? dlsym(RTLD_DEFAULT, symbol) : NULL;
}

#define TRY(call, symbol, ret, params, check)                                                                          \
    do {                                                                                                               \
        ret(*fn) params = (ret(*) params)find(#symbol);                                                                \
        if (fn && !(check)) {                                                                                          \
            dprintf(2, "spellings: %s failed: %s\n", #symbol, strerror(errno));                                        \
            failures++;                                                                                                \
        }                                                                                                              \
        if (fn)                                                                                                        \
            names[count++] = #call;                                                                                    \
    } while (0)

typedef const char *path;

static void descriptors(void)
{
    struct iovec v[2] = {{b, 100}, {b + 100, 200}};
    int fd = open("a", O_RDWR), other = creat("other", 0600);
    off64_t o = 0;
    TRY(open, open64, int, (path, int, ...), close(fn("a", O_RDONLY)) == 0);
    TRY(open, __open, int, (path, int, ...), close(fn("a", O_RDONLY)) == 0);
    TRY(open, __open64, int, (path, int, ...), close(fn("a", O_RDONLY)) == 0);
    TRY(open, __open_2, int, (path, int), close(fn("a", O_RDONLY)) == 0);
    TRY(open, __open64_2, int, (path, int), close(fn("a", O_RDONLY)) == 0);
    TRY(openat, openat64, int, (int, path, int, ...), close(fn(AT_FDCWD, "a", O_RDONLY)) == 0);
    TRY(openat, __openat_2, int, (int, path, int), close(fn(AT_FDCWD, "a", O_RDONLY)) == 0);
    TRY(openat, __openat64_2, int, (int, path, int), close(fn(AT_FDCWD, "a", O_RDONLY)) == 0);
    TRY(creat, creat64, int, (path, mode_t), close(fn("c", 0600)) == 0);
    TRY(close, __close, int, (int), fn(dup(fd)) == 0);
    TRY(read, __read, ssize_t, (int, void *, size_t), fn(fd, b, 10) == 10);
    TRY(read, __read_chk, ssize_t, (int, void *, size_t, size_t), fn(fd, b, 10, sizeof(b)) == 10);
    TRY(write, __write, ssize_t, (int, const void *, size_t), fn(other, b, 10) == 10);
    TRY(pread, pread64, ssize_t, (int, void *, size_t, off64_t), fn(fd, b, 10, 1) == 10);
    TRY(pread, __pread64, ssize_t, (int, void *, size_t, off64_t), fn(fd, b, 10, 1) == 10);
    TRY(pread, __pread_chk, ssize_t, (int, void *, size_t, off64_t, size_t), fn(fd, b, 10, 1, sizeof(b)) == 10);
    TRY(pread, __pread64_chk, ssize_t, (int, void *, size_t, off64_t, size_t), fn(fd, b, 10, 1, sizeof(b)) == 10);
    TRY(pwrite, pwrite64, ssize_t, (int, const void *, size_t, off64_t), fn(other, b, 10, 1) == 10);
    TRY(pwrite, __pwrite64, ssize_t, (int, const void *, size_t, off64_t), fn(other, b, 10, 1) == 10);
    TRY(preadv, preadv64, ssize_t, (int, const struct iovec *, int, off64_t), fn(fd, v, 2, 1) == 300);
    TRY(pwritev, pwritev64, ssize_t, (int, const struct iovec *, int, off64_t), fn(other, v, 2, 1) == 300);
    TRY(preadv2, preadv64v2, ssize_t, (int, const struct iovec *, int, off64_t, int), fn(fd, v, 2, 1, 0) == 300);
    TRY(pwritev2, pwritev64v2, ssize_t, (int, const struct iovec *, int, off64_t, int), fn(other, v, 2, 1, 0) == 300);
    TRY(lseek, lseek64, off64_t, (int, off64_t, int), fn(fd, 5, SEEK_SET) == 5);
    TRY(lseek, llseek, off64_t, (int, off64_t, int), fn(fd, 5, SEEK_SET) == 5);
    TRY(lseek, __lseek, off64_t, (int, off64_t, int), fn(fd, 5, SEEK_SET) == 5);
    TRY(sendfile, sendfile64, ssize_t, (int, int, off64_t *, size_t), fn(other, fd, &o, 100) == 100);
    TRY(ftruncate, ftruncate64, int, (int, off64_t), fn(other, 4096) == 0);
    TRY(truncate, truncate64, int, (path, off64_t), fn("c", 4096) == 0);
    TRY(fallocate, fallocate64, int, (int, int, off64_t, off64_t), fn(other, 0, 0, 100) == 0 || errno == EOPNOTSUPP);
    TRY(posix_fallocate, posix_fallocate64, int, (int, off64_t, off64_t), fn(other, 0, 100) == 0);
    TRY(isatty, isatty, int, (int), fn(fd) == 0);
    TRY(posix_fadvise, posix_fadvise64, int, (int, off64_t, off64_t, int), fn(fd, 0, 0, POSIX_FADV_NORMAL) == 0);
    TRY(fcntl, fcntl64, int, (int, int, ...), fn(fd, F_GETFL) >= 0);
    TRY(fcntl, __fcntl, int, (int, int, ...), fn(fd, F_GETFL) >= 0);
    TRY(dup2, __dup2, int, (int, int), fn(fd, 95) == 95 && close(95) == 0);
    int ends[2];
    TRY(pipe, __pipe, int, (int *), fn(ends) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    int (*terminal)(int) = (int (*)(int))find("login_tty");
    pid_t child = fork(); /* it gets a session of its own */
    if (child == 0)
        _exit(terminal && terminal(-1) != -1);
    int status = 1;
    failures += waitpid(child, &status, 0) != child || status != 0;
    TRY(lockf, lockf64, int, (int, int, off64_t), fn(fd, F_TEST, 0) == 0);
    int n;
    TRY(ioctl, ioctl, int, (int, unsigned long, ...), fn(fd, FIONREAD, &n) == 0);
    void *m = MAP_FAILED;
    TRY(mmap, mmap64, void *, (void *, size_t, int, int, int, off64_t),
        (m = fn(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
    TRY(mlock, mlock, int, (const void *, size_t), fn(m, 4096) == 0 || errno == ENOMEM || errno == EPERM);
    TRY(mlock, mlock2, int, (const void *, size_t, unsigned), fn(m, 4096, 0) == 0 || errno == ENOMEM || errno == EPERM);
    TRY(munlock, munlock, int, (const void *, size_t), fn(m, 4096) == 0);
    TRY(remap_file_pages, remap_file_pages, int, (void *, size_t, int, size_t, int), fn(m, 4096, 0, 0, 0) == -1);
    TRY(fpathconf, fpathconf, long, (int, int), fn(fd, _PC_NAME_MAX) > 0);
    TRY(pathconf, pathconf, long, (path, int), fn("a", _PC_NAME_MAX) > 0);
    TRY(posix_madvise, posix_madvise, int, (void *, size_t, int), fn(m, 4096, POSIX_MADV_NORMAL) == 0);
    TRY(mremap, mremap, void *, (void *, size_t, size_t, int, ...), (m = fn(m, 8192, 4096, 0)) != MAP_FAILED);
    munmap(m, 4096);
    TRY(shm_open, shm_open, int, (path, int, mode_t),
        (n = fn("/spelling-probe", O_RDWR | O_CREAT, 0600)) >= 0 && close(n) == 0);
    TRY(unlink, shm_unlink, int, (path), fn("/spelling-probe") == 0);
    struct {
        struct file_handle h;
        char room[128];
    } handle = {.h.handle_bytes = 128};
    int mount;
    TRY(name_to_handle_at, name_to_handle_at, int, (int, path, void *, int *, int),
        fn(AT_FDCWD, "a", &handle.h, &mount, 0) == 0 || errno == EOPNOTSUPP);
    handle.h.handle_bytes = 128;
    if (name_to_handle_at(AT_FDCWD, "a", &handle.h, &mount, 0) == 0)
        TRY(open_by_handle_at, open_by_handle_at, int, (int, void *, int),
            (n = fn(AT_FDCWD, &handle.h, O_RDONLY)) >= 0 ? close(n) == 0
                                                         : errno == EPERM || errno == EOPNOTSUPP || errno == ESTALE);
    struct {
        uint64_t flags, mode, resolve;
    } how = {.flags = O_RDONLY};
    TRY(openat2, openat2, int, (int, path, void *, size_t),
        (n = fn(AT_FDCWD, "a", &how, sizeof(how))) >= 0 && close(n) == 0);
    names[count++] = "openat2"; /* for the C library that has no function for it */
    n = (int)syscall(SYS_openat2, AT_FDCWD, "a", &how, sizeof(how));
    failures += n < 0 ? errno != ENOSYS && errno != EPERM : close(n) != 0;
    int top = dup(fd);
    TRY(closefrom, closefrom, void, (int), (fn(top), fcntl(top, F_GETFD) < 0));
    close(fd);
    close(other);
}

static void temporary(void)
{
    char t[8][16];
    for (int i = 0; i < 8; i++)
        strcpy(t[i], i % 2 ? "tXXXXXX" : "tXXXXXX.x");
    TRY(mkstemp, mkstemp64, int, (char *), close(fn(t[1])) == 0);
    TRY(mkostemp, mkostemp64, int, (char *, int), close(fn(t[3], 0)) == 0);
    TRY(mkstemps, mkstemps, int, (char *, int), close(fn(t[0], 2)) == 0);
    TRY(mkstemps, mkstemps64, int, (char *, int), close(fn(t[2], 2)) == 0);
    TRY(mkostemps, mkostemps, int, (char *, int, int), close(fn(t[4], 2, 0)) == 0);
    TRY(mkostemps, mkostemps64, int, (char *, int, int), close(fn(t[6], 2, 0)) == 0);
    FILE *f;
    TRY(tmpfile, tmpfile64, FILE *, (void), (f = fn()) && fclose(f) == 0);
}

static int visit(path p, const struct stat *s, int f)
{
    (void)p, (void)s, (void)f;
    return 0;
}
static int visit2(path p, const struct stat *s, int f, struct FTW *x)
{
    (void)x;
    return visit(p, s, f);
}

static void paths(void)
{
    struct stat s;
    struct statfs f;
    struct statvfs v;
    int fd = open("a", O_RDONLY);
    dev_t none = 0;
    TRY(stat, stat64, int, (path, struct stat *), fn("a", &s) == 0);
    TRY(lstat, lstat64, int, (path, struct stat *), fn("a", &s) == 0);
    TRY(fstat, fstat64, int, (int, struct stat *), fn(fd, &s) == 0);
    TRY(fstatat, fstatat64, int, (int, path, struct stat *, int), fn(AT_FDCWD, "a", &s, 0) == 0);
    TRY(stat, __xstat, int, (int, path, struct stat *), fn(1, "a", &s) == 0);
    TRY(stat, __xstat64, int, (int, path, struct stat *), fn(1, "a", &s) == 0);
    TRY(lstat, __lxstat, int, (int, path, struct stat *), fn(1, "a", &s) == 0);
    TRY(lstat, __lxstat64, int, (int, path, struct stat *), fn(1, "a", &s) == 0);
    TRY(fstat, __fxstat, int, (int, int, struct stat *), fn(1, fd, &s) == 0);
    TRY(fstat, __fxstat64, int, (int, int, struct stat *), fn(1, fd, &s) == 0);
    TRY(fstatat, __fxstatat, int, (int, int, path, struct stat *, int), fn(1, AT_FDCWD, "a", &s, 0) == 0);
    TRY(fstatat, __fxstatat64, int, (int, int, path, struct stat *, int), fn(1, AT_FDCWD, "a", &s, 0) == 0);
    TRY(statfs, statfs64, int, (path, struct statfs *), fn("a", &f) == 0);
    TRY(statfs, __statfs, int, (path, struct statfs *), fn("a", &f) == 0);
    TRY(fstatfs, fstatfs64, int, (int, struct statfs *), fn(fd, &f) == 0);
    TRY(statvfs, statvfs64, int, (path, struct statvfs *), fn("a", &v) == 0);
    TRY(fstatvfs, fstatvfs64, int, (int, struct statvfs *), fn(fd, &v) == 0);
    TRY(euidaccess, euidaccess, int, (path, int), fn("a", R_OK) == 0);
    TRY(eaccess, eaccess, int, (path, int), fn("a", R_OK) == 0);
    TRY(mknod, mknod, int, (path, mode_t, dev_t), fn("n1", S_IFREG | 0600, 0) == 0);
    TRY(mknodat, mknodat, int, (int, path, mode_t, dev_t), fn(AT_FDCWD, "n2", S_IFREG | 0600, 0) == 0);
    TRY(mknod, __xmknod, int, (int, path, mode_t, dev_t *), fn(0, "n3", S_IFREG | 0600, &none) == 0);
    TRY(mknodat, __xmknodat, int, (int, int, path, mode_t, dev_t *), fn(0, AT_FDCWD, "n4", S_IFREG | 0600, &none) == 0);
    TRY(lutimes, lutimes, int, (path, const struct timeval *), fn("a", NULL) == 0);
    TRY(futimesat, futimesat, int, (int, path, const struct timeval *), fn(AT_FDCWD, "a", NULL) == 0);
    TRY(chmod, lchmod, int, (path, mode_t), fn("a", 0600) == 0 || errno == EOPNOTSUPP);
    TRY(realpath, canonicalize_file_name, char *, (path), (fn("a"), 1));
    TRY(realpath, __realpath_chk, char *, (path, char *, size_t), fn("a", b, sizeof(b)) != NULL);
    TRY(readlink, __readlink_chk, ssize_t, (path, char *, size_t, size_t), fn("l", b, 10, sizeof(b)) == 1);
    TRY(readlinkat, __readlinkat_chk, ssize_t, (int, path, char *, size_t, size_t),
        fn(AT_FDCWD, "l", b, 10, sizeof(b)) == 1);
    TRY(getcwd, __getcwd_chk, char *, (char *, size_t, size_t), fn(b, sizeof(b), sizeof(b)) != NULL);
    TRY(getcwd, getwd, char *, (char *), fn(b) != NULL);
    TRY(getcwd, __getwd_chk, char *, (char *, size_t), fn(b, sizeof(b)) != NULL);
    TRY(getcwd, get_current_dir_name, char *, (void), (fn(), 1));
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    TRY(fchdir, fchdir, int, (int), fn(dir) == 0);
    TRY(chroot, chroot, int, (path), fn("no such folder") < 0);
    close(dir);
    close(fd);
}

static void attributes(void)
{
    int fd = open("a", O_RDWR);
#define OK(x) ((x) >= 0 || errno == EOPNOTSUPP || errno == ENODATA || errno == EPERM)
    TRY(setxattr, setxattr, int, (path, path, const void *, size_t, int), OK(fn("a", "user.k", "v", 1, 0)));
    TRY(lsetxattr, lsetxattr, int, (path, path, const void *, size_t, int), OK(fn("a", "user.k", "v", 1, 0)));
    TRY(fsetxattr, fsetxattr, int, (int, path, const void *, size_t, int), OK(fn(fd, "user.k", "v", 1, 0)));
    TRY(lgetxattr, lgetxattr, ssize_t, (path, path, void *, size_t), OK(fn("a", "user.k", b, 10)));
    TRY(fgetxattr, fgetxattr, ssize_t, (int, path, void *, size_t), OK(fn(fd, "user.k", b, 10)));
    TRY(llistxattr, llistxattr, ssize_t, (path, char *, size_t), OK(fn("a", b, sizeof(b))));
    TRY(flistxattr, flistxattr, ssize_t, (int, char *, size_t), OK(fn(fd, b, sizeof(b))));
    TRY(removexattr, removexattr, int, (path, path), OK(fn("a", "user.k")));
    TRY(lremovexattr, lremovexattr, int, (path, path), OK(fn("a", "user.k")));
    TRY(fremovexattr, fremovexattr, int, (int, path), OK(fn(fd, "user.k")));
    close(fd);
}

static void folders(void)
{
    DIR *d = NULL;
    struct dirent e, *out, **list;
    int n;
    glob_t g;
    char *roots[] = {".", NULL};
    FTS *t = NULL;
    TRY(fdopendir, fdopendir, DIR *, (int), (d = fn(open(".", O_RDONLY | O_DIRECTORY))) != NULL);
    TRY(readdir, readdir64, struct dirent *, (DIR *), fn(d) != NULL);
    TRY(readdir_r, readdir_r, int, (DIR *, struct dirent *, struct dirent **), fn(d, &e, &out) == 0);
    TRY(readdir_r, readdir64_r, int, (DIR *, struct dirent *, struct dirent **), fn(d, &e, &out) == 0);
    TRY(telldir, telldir, long, (DIR *), fn(d) >= 0);
    TRY(seekdir, seekdir, void, (DIR *, long), (fn(d, 0), 1));
    closedir(d);
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    off64_t base;
    TRY(getdents64, getdents64, ssize_t, (int, void *, size_t), fn(fd, b, sizeof(b)) > 0);
    TRY(getdents64, getdirentries, ssize_t, (int, char *, size_t, off64_t *), fn(fd, b, sizeof(b), &base) >= 0);
    TRY(getdents64, getdirentries64, ssize_t, (int, char *, size_t, off64_t *), fn(fd, b, sizeof(b), &base) >= 0);
    close(fd);
    TRY(scandir, scandir64, int, (path, struct dirent ***, void *, void *), (n = fn(".", &list, NULL, NULL)) > 0);
    TRY(scandirat, scandirat, int, (int, path, struct dirent ***, void *, void *),
        fn(AT_FDCWD, ".", &list, NULL, NULL) > 0);
    TRY(scandirat, scandirat64, int, (int, path, struct dirent ***, void *, void *),
        fn(AT_FDCWD, ".", &list, NULL, NULL) > 0);
    TRY(glob, glob64, int, (path, int, void *, glob_t *), fn("*", 0, NULL, &g) == 0);
    wordexp_t words;
    TRY(wordexp, wordexp, int, (path, wordexp_t *, int), fn("*", &words, WRDE_NOCMD) == 0);
    TRY(ftw, ftw, int, (path, void *, int), fn(".", visit, 4) == 0);
    TRY(ftw, ftw64, int, (path, void *, int), fn(".", visit, 4) == 0);
    TRY(nftw, nftw64, int, (path, void *, int, int), fn(".", visit2, 4, FTW_PHYS) == 0);
    TRY(fts_open, fts_open, FTS *, (char *const *, int, void *),
        (t = fn(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL)) != NULL);
    TRY(fts_read, fts_read, FTSENT *, (FTS *), fn(t) != NULL);
    TRY(fts_children, fts_children, FTSENT *, (FTS *, int), fn(t, 0) != NULL);
    TRY(fts_close, fts_close, int, (FTS *), fn(t) == 0);
    TRY(fts_open, fts64_open, FTS *, (char *const *, int, void *),
        (t = fn(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL)) != NULL);
    TRY(fts_read, fts64_read, FTSENT *, (FTS *), fn(t) != NULL);
    TRY(fts_children, fts64_children, FTSENT *, (FTS *, int), fn(t, 0) != NULL);
    TRY(fts_close, fts64_close, int, (FTS *), fn(t) == 0);
}

static void asynchronous(void)
{
    int fd = open("a", O_RDWR);
    struct aiocb a = {.aio_fildes = fd, .aio_buf = b, .aio_nbytes = 100};
    const struct aiocb *wait_for[] = {&a};
    struct aiocb *list[] = {&a};
#define FINISH (aio_suspend(wait_for, 1, NULL) == 0 && aio_return(&a) >= 0)
    TRY(aio_read, aio_read64, int, (struct aiocb *), fn(&a) == 0);
    TRY(aio_suspend, aio_suspend64, int, (const struct aiocb *const *, int, const void *), fn(wait_for, 1, NULL) == 0);
    TRY(aio_error, aio_error, int, (const struct aiocb *), fn(&a) == 0);
    TRY(aio_error, aio_error64, int, (const struct aiocb *), fn(&a) == 0);
    TRY(aio_return_read, aio_return64, ssize_t, (struct aiocb *), fn(&a) == 100);
    TRY(aio_write, aio_write64, int, (struct aiocb *), fn(&a) == 0 && FINISH);
    TRY(aio_fsync, aio_fsync, int, (int, struct aiocb *), fn(O_SYNC, &a) == 0 && FINISH);
    TRY(aio_fsync, aio_fsync64, int, (int, struct aiocb *), fn(O_SYNC, &a) == 0 && FINISH);
    TRY(aio_cancel, aio_cancel, int, (int, struct aiocb *), fn(fd, NULL) == AIO_ALLDONE);
    TRY(aio_cancel, aio_cancel64, int, (int, struct aiocb *), fn(fd, NULL) == AIO_ALLDONE);
    a.aio_lio_opcode = LIO_READ;
    TRY(lio_listio, lio_listio64, int, (int, struct aiocb *const *, int, void *),
        fn(LIO_WAIT, list, 1, NULL) == 0 && FINISH);
    close(fd);
}

/* ---- streams ---- */

typedef int vfile(FILE *, path, va_list);
typedef int vfile_chk(FILE *, int, path, va_list);
typedef int vplain(path, va_list);
typedef int vplain_chk(int, path, va_list);
typedef int wfile(FILE *, const wchar_t *, va_list);
typedef int wfile_chk(FILE *, int, const wchar_t *, va_list);
typedef int wplain(const wchar_t *, va_list);
typedef int wplain_chk(int, const wchar_t *, va_list);
#define VIA(type, name, params, last, args)                                                                            \
    static int name params                                                                                             \
    {                                                                                                                  \
        va_list a;                                                                                                     \
        va_start(a, last);                                                                                             \
        int r = ((type *)fn)args;                                                                                      \
        va_end(a);                                                                                                     \
        return r;                                                                                                      \
    }
VIA(vfile, via_file, (void *fn, FILE *f, path s, ...), s, (f, s, a))
VIA(vfile_chk, via_file_chk, (void *fn, FILE *f, path s, ...), s, (f, 1, s, a))
VIA(vplain, via_plain, (void *fn, path s, ...), s, (s, a))
VIA(vplain_chk, via_plain_chk, (void *fn, path s, ...), s, (1, s, a))
VIA(wfile, via_wide, (void *fn, FILE *f, const wchar_t *s, ...), s, (f, s, a))
VIA(wfile_chk, via_wide_chk, (void *fn, FILE *f, const wchar_t *s, ...), s, (f, 1, s, a))
VIA(wplain, via_wplain, (void *fn, const wchar_t *s, ...), s, (s, a))
VIA(wplain_chk, via_wplain_chk, (void *fn, const wchar_t *s, ...), s, (1, s, a))
typedef int vfd(int, path, va_list);
typedef int vfd_chk(int, int, path, va_list);
VIA(vfd, via_fd, (void *fn, int fd, path s, ...), s, (fd, s, a))
VIA(vfd_chk, via_fd_chk, (void *fn, int fd, path s, ...), s, (fd, 1, s, a))

static void written_streams(void)
{
    FILE *f = NULL;
    fpos_t pos;
    TRY(fopen, fopen64, FILE *, (path, path), (f = fn("s", "w+")) != NULL);
    TRY(fwrite, fwrite_unlocked, size_t, (const void *, size_t, size_t, FILE *),
        fn("12 34 56 78 90 1 2 3 4 5 6 7 8 9\n", 1, 33, f) == 33);
    TRY(fwrite, _IO_fwrite, size_t, (const void *, size_t, size_t, FILE *), fn("abc\n", 1, 4, f) == 4);
    TRY(fputs, fputs_unlocked, int, (path, FILE *), fn("line\n", f) >= 0);
    TRY(fputs, _IO_fputs, int, (path, FILE *), fn("line\n", f) >= 0);
    TRY(fputc, fputc_unlocked, int, (int, FILE *), fn('c', f) == 'c');
    TRY(putc, putc_unlocked, int, (int, FILE *), fn('c', f) == 'c');
    TRY(putc, _IO_putc, int, (int, FILE *), fn('\n', f) == '\n');
    TRY(fprintf, __fprintf_chk, int, (FILE *, int, path, ...), fn(f, 1, "%d\n", 5) == 2);
    TRY(fprintf, _IO_fprintf, int, (FILE *, path, ...), fn(f, "%d\n", 5) == 2);
    TRY(vfprintf, vfprintf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d\n", 7) == 2);
    TRY(vfprintf, _IO_vfprintf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d\n", 7) == 2);
    TRY(vfprintf, __vfprintf_chk, vfile_chk *, (void), via_file_chk((void *)fn, f, "%d\n", 7) == 2);
    TRY(fflush, fflush_unlocked, int, (FILE *), fn(f) == 0);
    TRY(fseeko, fseeko64, int, (FILE *, off64_t, int), fn(f, 0, SEEK_SET) == 0);
    TRY(ftello, ftello64, off64_t, (FILE *), fn(f) == 0);
    TRY(fgetpos, fgetpos64, int, (FILE *, fpos_t *), fn(f, &pos) == 0);
    TRY(fsetpos, fsetpos64, int, (FILE *, const fpos_t *), fn(f, &pos) == 0);
    TRY(setvbuf, setvbuf, int, (FILE *, char *, int, size_t), fn(f, NULL, _IOFBF, 4096) == 0);
    TRY(freopen, freopen64, FILE *, (path, path, FILE *), (f = fn("s", "r", f)) != NULL);
    TRY(fclose, _IO_fclose, int, (FILE *), fn(f) == 0);
    int fd = creat("d", 0600);
    TRY(dprintf, __dprintf_chk, int, (int, int, path, ...), fn(fd, 1, "%d", 5) == 1);
    TRY(vdprintf, vdprintf, int, (int, path, va_list), via_fd((void *)fn, fd, "%d", 7) == 1);
    TRY(vdprintf, __vdprintf_chk, vfd_chk *, (void), via_fd_chk((void *)fn, fd, "%d", 7) == 1);
    close(fd);
}

static void read_streams(void)
{
    FILE *f = NULL;
    int n;
    char *line = NULL;
    size_t cap = 0;
    TRY(fopen, __setmntent, FILE *, (path, path), (f = fn("s", "r")) != NULL);
    TRY(fclose, __endmntent, int, (FILE *), fn(f) == 1);
    TRY(fopen, _IO_fopen, FILE *, (path, path), (f = fn("s", "r")) != NULL);
    TRY(vfscanf, vfscanf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d", &n) == 1 && n == 12);
    TRY(vfscanf, __vfscanf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d", &n) == 1);
    TRY(vfscanf, __isoc99_vfscanf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d", &n) == 1);
    TRY(vfscanf, __isoc23_vfscanf, int, (FILE *, path, va_list), via_file((void *)fn, f, "%d", &n) == 1);
    TRY(fscanf, __isoc99_fscanf, int, (FILE *, path, ...), fn(f, "%d", &n) == 1);
    TRY(fscanf, __isoc23_fscanf, int, (FILE *, path, ...), fn(f, "%d", &n) == 1);
    TRY(fgetc, fgetc_unlocked, int, (FILE *), fn(f) == ' ');
    TRY(getc, getc_unlocked, int, (FILE *), fn(f) > 0);
    TRY(getc, _IO_getc, int, (FILE *), fn(f) > 0);
    TRY(ungetc, _IO_ungetc, int, (int, FILE *), fn('x', f) == 'x');
    TRY(fgets, fgets_unlocked, char *, (char *, int, FILE *), fn(b, 3, f) != NULL);
    TRY(fgets, _IO_fgets, char *, (char *, int, FILE *), fn(b, 3, f) != NULL);
    TRY(fgets, __fgets_chk, char *, (char *, size_t, int, FILE *), fn(b, sizeof(b), 3, f) != NULL);
    TRY(fgets, __fgets_unlocked_chk, char *, (char *, size_t, int, FILE *), fn(b, sizeof(b), 3, f) != NULL);
    TRY(fread, fread_unlocked, size_t, (void *, size_t, size_t, FILE *), fn(b, 1, 2, f) == 2);
    TRY(fread, _IO_fread, size_t, (void *, size_t, size_t, FILE *), fn(b, 1, 2, f) == 2);
    TRY(fread, __fread_chk, size_t, (void *, size_t, size_t, size_t, FILE *), fn(b, sizeof(b), 1, 2, f) == 2);
    TRY(fread, __fread_unlocked_chk, size_t, (void *, size_t, size_t, size_t, FILE *), fn(b, sizeof(b), 1, 2, f) == 2);
    TRY(getdelim, __getdelim, ssize_t, (char **, size_t *, int, FILE *), fn(&line, &cap, ':', f) > 0);
    rewind(f);
    TRY(getw, getw, int, (FILE *), fn(f) != EOF);
    fclose(f);
    free(line);
    TRY(fdopen, _IO_fdopen, FILE *, (int, path), (f = fn(open("s", O_RDONLY), "r")) && fclose(f) == 0);
    TRY(popen, _IO_popen, FILE *, (path, path), (f = fn("true", "r")) && pclose(f) == 0);
    TRY(fmemopen, fmemopen, FILE *, (void *, size_t, path), (f = fn(b, sizeof(b), "r")) && fclose(f) == 0);
    TRY(open_memstream, open_memstream, FILE *, (char **, size_t *), (f = fn(&line, &cap)) && fclose(f) == 0);
    wchar_t *wide;
    TRY(open_memstream, open_wmemstream, FILE *, (wchar_t **, size_t *), (f = fn(&wide, &cap)) && fclose(f) == 0);
    const cookie_io_functions_t io = {0};
    TRY(fopencookie, fopencookie, FILE *, (void *, path, cookie_io_functions_t),
        (f = fn(NULL, "r", io)) && fclose(f) == 0);
}

static void other_streams(void)
{
    FILE *f = fopen("q", "w+");
    fpos_t pos;
    fputs("some text", f);
    TRY(setvbuf, _IO_setvbuf, int, (FILE *, char *, int, size_t), fn(f, NULL, _IOFBF, 4096) == 0);
    TRY(setvbuf, setbuf, void, (FILE *, char *), (fn(f, NULL), 1));
    TRY(setvbuf, setbuffer, void, (FILE *, char *, size_t), (fn(f, NULL, 0), 1));
    TRY(setvbuf, setlinebuf, void, (FILE *), (fn(f), 1));
    TRY(fflush, _IO_fflush, int, (FILE *), fn(f) == 0);
    TRY(ftell, _IO_ftell, long, (FILE *), fn(f) >= 0);
    TRY(fgetpos, _IO_fgetpos, int, (FILE *, fpos_t *), fn(f, &pos) == 0);
    TRY(fgetpos, _IO_fgetpos64, int, (FILE *, fpos_t *), fn(f, &pos) == 0);
    TRY(fsetpos, _IO_fsetpos, int, (FILE *, const fpos_t *), fn(f, &pos) == 0);
    TRY(fsetpos, _IO_fsetpos64, int, (FILE *, const fpos_t *), fn(f, &pos) == 0);
    TRY(putc, __overflow, int, (FILE *, int), fn(f, 'x') == 'x');
    rewind(f);
    TRY(getc, __uflow, int, (FILE *), fn(f) == 's');
    fclose(f);
}

static void wide_streams(void)
{
    FILE *f = fopen("w", "w+");
    int n;
    TRY(fputwc, fputwc, wint_t, (wchar_t, FILE *), fn(L'1', f) == L'1');
    TRY(fputwc, fputwc_unlocked, wint_t, (wchar_t, FILE *), fn(L' ', f) == L' ');
    TRY(putwc, putwc, wint_t, (wchar_t, FILE *), fn(L'2', f) == L'2');
    TRY(putwc, putwc_unlocked, wint_t, (wchar_t, FILE *), fn(L' ', f) == L' ');
    TRY(fputws, fputws, int, (const wchar_t *, FILE *), fn(L"3 4 5 6 7 8 9\n", f) >= 0);
    TRY(fputws, fputws_unlocked, int, (const wchar_t *, FILE *), fn(L"two\nthree\nfour\nfive\n", f) >= 0);
    TRY(fwprintf, fwprintf, int, (FILE *, const wchar_t *, ...), fn(f, L"%d\n", 5) == 2);
    TRY(fwprintf, __fwprintf_chk, int, (FILE *, int, const wchar_t *, ...), fn(f, 1, L"%d\n", 5) == 2);
    TRY(vfwprintf, vfwprintf, int, (FILE *, const wchar_t *, va_list), via_wide((void *)fn, f, L"%d\n", 5) == 2);
    TRY(vfwprintf, __vfwprintf_chk, wfile_chk *, (void), via_wide_chk((void *)fn, f, L"%d\n", 5) == 2);
    rewind(f);
    TRY(fwscanf, fwscanf, int, (FILE *, const wchar_t *, ...), fn(f, L"%d", &n) == 1 && n == 1);
    TRY(fwscanf, __isoc99_fwscanf, int, (FILE *, const wchar_t *, ...), fn(f, L"%d", &n) == 1);
    TRY(fwscanf, __isoc23_fwscanf, int, (FILE *, const wchar_t *, ...), fn(f, L"%d", &n) == 1);
    TRY(vfwscanf, vfwscanf, int, (FILE *, const wchar_t *, va_list), via_wide((void *)fn, f, L"%d", &n) == 1);
    TRY(vfwscanf, __isoc99_vfwscanf, int, (FILE *, const wchar_t *, va_list), via_wide((void *)fn, f, L"%d", &n) == 1);
    TRY(vfwscanf, __isoc23_vfwscanf, int, (FILE *, const wchar_t *, va_list), via_wide((void *)fn, f, L"%d", &n) == 1);
    TRY(fgetwc, fgetwc, wint_t, (FILE *), fn(f) != WEOF);
    TRY(fgetwc, fgetwc_unlocked, wint_t, (FILE *), fn(f) != WEOF);
    TRY(getwc, getwc, wint_t, (FILE *), fn(f) != WEOF);
    TRY(getwc, getwc_unlocked, wint_t, (FILE *), fn(f) != WEOF);
    TRY(ungetwc, ungetwc, wint_t, (wint_t, FILE *), fn(L'x', f) == L'x');
    TRY(fgetws, fgetws, wchar_t *, (wchar_t *, int, FILE *), fn(w, 100, f) != NULL);
    TRY(fgetws, fgetws_unlocked, wchar_t *, (wchar_t *, int, FILE *), fn(w, 100, f) != NULL);
    TRY(fgetws, __fgetws_chk, wchar_t *, (wchar_t *, size_t, int, FILE *), fn(w, 100, 100, f) != NULL);
    TRY(fgetws, __fgetws_unlocked_chk, wchar_t *, (wchar_t *, size_t, int, FILE *), fn(w, 100, 100, f) != NULL);
    fclose(f);
}

static void standard_streams(void)
{
    int n;
    TRY(puts, puts, int, (path), fn("line") >= 0);
    TRY(puts, _IO_puts, int, (path), fn("line") >= 0);
    TRY(putchar, putchar, int, (int), fn('x') == 'x');
    TRY(putchar, putchar_unlocked, int, (int), fn('x') == 'x');
    TRY(printf, __printf_chk, int, (int, path, ...), fn(1, "%d", 5) == 1);
    TRY(printf, _IO_printf, int, (path, ...), fn("%d", 5) == 1);
    TRY(vprintf, vprintf, int, (path, va_list), via_plain((void *)fn, "%d", 5) == 1);
    TRY(vprintf, __vprintf_chk, vplain_chk *, (void), via_plain_chk((void *)fn, "%d", 5) == 1);
    TRY(getchar, getchar, int, (void), fn() == '1');
    TRY(getchar, getchar_unlocked, int, (void), fn() == '2');
    TRY(scanf, scanf, int, (path, ...), fn("%d", &n) == 1 && n == 34);
    TRY(scanf, __isoc99_scanf, int, (path, ...), fn("%d", &n) == 1);
    TRY(scanf, __isoc23_scanf, int, (path, ...), fn("%d", &n) == 1);
    TRY(vscanf, vscanf, int, (path, va_list), via_plain((void *)fn, "%d", &n) == 1);
    TRY(vscanf, __isoc99_vscanf, int, (path, va_list), via_plain((void *)fn, "%d", &n) == 1);
    TRY(vscanf, __isoc23_vscanf, int, (path, va_list), via_plain((void *)fn, "%d", &n) == 1);
    TRY(gets, gets, char *, (char *), fn(b) != NULL);
    TRY(gets, _IO_gets, char *, (char *), fn(b) != NULL);
    TRY(gets, __gets_chk, char *, (char *, size_t), fn(b, sizeof(b)) != NULL);
    freopen("ow", "w", stdout);
    freopen("w", "r", stdin);
    TRY(putwchar, putwchar, wint_t, (wchar_t), fn(L'x') == L'x');
    TRY(putwchar, putwchar_unlocked, wint_t, (wchar_t), fn(L'x') == L'x');
    TRY(wprintf, wprintf, int, (const wchar_t *, ...), fn(L"%d", 5) == 1);
    TRY(wprintf, __wprintf_chk, int, (int, const wchar_t *, ...), fn(1, L"%d", 5) == 1);
    TRY(vwprintf, vwprintf, int, (const wchar_t *, va_list), via_wplain((void *)fn, L"%d", 5) == 1);
    TRY(vwprintf, __vwprintf_chk, wplain_chk *, (void), via_wplain_chk((void *)fn, L"%d", 5) == 1);
    TRY(getwchar, getwchar, wint_t, (void), fn() == L'1');
    TRY(getwchar, getwchar_unlocked, wint_t, (void), fn() == L' ');
    TRY(fwscanf, wscanf, int, (const wchar_t *, ...), fn(L"%d", &n) == 1);
    TRY(fwscanf, __isoc99_wscanf, int, (const wchar_t *, ...), fn(L"%d", &n) == 1);
    TRY(fwscanf, __isoc23_wscanf, int, (const wchar_t *, ...), fn(L"%d", &n) == 1);
    TRY(vfwscanf, vwscanf, int, (const wchar_t *, va_list), via_wplain((void *)fn, L"%d", &n) == 1);
    TRY(vfwscanf, __isoc99_vwscanf, int, (const wchar_t *, va_list), via_wplain((void *)fn, L"%d", &n) == 1);
    TRY(vfwscanf, __isoc23_vwscanf, int, (const wchar_t *, va_list), via_wplain((void *)fn, L"%d", &n) == 1);
}

extern pid_t __vfork(void) __attribute__((returns_twice));
extern const char *__asan_default_options(void)
    __attribute__((weak)); /* only under the tracer; a sanitizer would call it */
extern _Noreturn void __longjmp_chk(jmp_buf, int);

/* Signals and jumps move no data, but their wrappers must pass on what they are given. */
static void jumps(void)
{
    static jmp_buf j;
    static volatile int jumped;
    typedef void (*handler)(int);
    if (!_setjmp(j))
        _longjmp(j, 1);
    jumped++;
    if (!_setjmp(j))
        __longjmp_chk(j, 1);
    failures += ++jumped != 2;
    handler (*set)(int, handler) = (handler(*)(int, handler))find("__sysv_signal");
    failures += set && (set(SIGUSR2, SIG_IGN) != SIG_DFL || raise(SIGUSR2));
    set = (handler(*)(int, handler))find("bsd_signal");
    failures += set && set(SIGUSR2, SIG_DFL) != SIG_IGN;
    struct sigaction a;
    int (*get)(int, const struct sigaction *, struct sigaction *) = (void *)find("__sigaction");
    failures += get && (get(SIGUSR2, NULL, &a) || a.sa_handler != SIG_DFL);
}

static int child_main(void *arg)
{
    (void)arg;
    return 0;
}

/* A child by fork, vfork or clone, or one that execs. */
static int child_ends(pid_t pid)
{
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
#define IN_CHILD(call, symbol, params, expr)                                                                           \
    do {                                                                                                               \
        int(*fn) params = (int(*) params)find(#symbol);                                                                \
        pid_t pid = fn ? fork() : -1;                                                                                  \
        if (pid == 0) {                                                                                                \
            expr;                                                                                                      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
        if (fn) {                                                                                                      \
            failures += !child_ends(pid);                                                                              \
            names[count++] = #call;                                                                                    \
        }                                                                                                              \
    } while (0)

static void processes(void)
{
    extern char **environ;
    static char stack[65536] __attribute__((aligned(16)));
    char *args[] = {"true", NULL};
    path prog = access("/bin/true", X_OK) == 0 ? "/bin/true" : "/usr/bin/true";
    pid_t pid;
    TRY(posix_spawn, posix_spawn, int, (pid_t *, path, const void *, const void *, char *const *, char *const *),
        fn(&pid, prog, NULL, NULL, args, environ) == 0 && child_ends(pid));
    TRY(clone, clone, int, (int (*)(void *), void *, int, void *, ...),
        child_ends(fn(child_main, stack + sizeof(stack), SIGCHLD, NULL)));
    pid_t (*bare)(void) = (pid_t(*)(void))find("_Fork");
    if (bare) {
        pid = bare();
        if (pid == 0)
            _exit(0);
        failures += !child_ends(pid);
        names[count++] = "fork";
    }
    pid_t (*old)(void) = (pid_t(*)(void))find("__fork");
    if (old) {
        pid = old();
        if (pid == 0)
            _Exit(0);
        failures += !child_ends(pid);
        names[count++] = "fork";
    }
    pid = __vfork();
    if (pid == 0)
        _exit(0);
    failures += !child_ends(pid);
    names[count++] = "vfork";
    pid = fork();
    if (pid == 0)
        quick_exit(0);
    failures += !child_ends(pid);
    names[count++] = "fork";
    pid = fork();
    if (pid == 0) {
        if (daemon(1, 1) < 0)
            _exit(1);
        _exit(0);
    }
    failures += !child_ends(pid);
    names[count++] = "fork";
    IN_CHILD(execv, execv, (path, char *const *), fn(prog, args));
    IN_CHILD(execve, execve, (path, char *const *, char *const *), fn(prog, args, environ));
    IN_CHILD(execvp, execvp, (path, char *const *), fn("true", args));
    IN_CHILD(execvpe, execvpe, (path, char *const *, char *const *), fn("true", args, environ));
    IN_CHILD(execl, execl, (path, path, ...), fn(prog, "true", (char *)NULL));
    IN_CHILD(execle, execle, (path, path, ...), fn(prog, "true", (char *)NULL, environ));
    IN_CHILD(fexecve, fexecve, (int, char *const *, char *const *),
             fn(open(prog, O_RDONLY | O_CLOEXEC), args, environ));
    IN_CHILD(execveat, execveat, (int, path, char *const *, char *const *, int), fn(AT_FDCWD, prog, args, environ, 0));
}

int main(int argc, char **argv)
{
    libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    if (!libc || argc < 2 || chdir(argv[1]) < 0)
        return 2;
    memset(b, 'x', sizeof(b));
    int fd = creat("a", 0600), out = dup(1);
    if (write(fd, b, sizeof(b)) < 0 || symlink("a", "l") < 0)
        return 2;
    close(fd);
    descriptors();
    temporary();
    paths();
    attributes();
    folders();
    asynchronous();
    written_streams();
    read_streams();
    other_streams();
    wide_streams();
    processes();
    jumps();
    freopen("o", "w", stdout);
    freopen("s", "r", stdin);
    standard_streams();
    freopen("e", "w", stderr);
    TRY(perror, perror, void, (path), (fn("probe"), 1));
    for (int i = 0; i < count; i++)
        dprintf(out, "%s\n", names[i]);
    TRY(fcloseall, fcloseall, int, (void), fn() == 0);
    dprintf(out, "fcloseall\n");
    return failures != 0;
}
