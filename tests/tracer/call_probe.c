/* One call of every kind, for the coverage test: each line of standard output names a call that must be in the trace.
 * Files live in the folder given as the first word. Nothing here checks the tracer; tests/cli/test_trace_coverage.sh
 * does. */
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

static char b[8192];
static int failures;

#define DO(name, expr)                                                                                                 \
    do {                                                                                                               \
        if (!(expr)) {                                                                                                 \
            dprintf(2, "probe: %s failed: %s\n", #name, strerror(errno));                                              \
            failures++;                                                                                                \
        }                                                                                                              \
        names[count++] = #name;                                                                                        \
    } while (0)
static const char *names[256];
static int count;

static int visit(const char *p, const struct stat *s, int f, struct FTW *w)
{
    (void)p, (void)s, (void)f, (void)w;
    return 0;
}

static void data_calls(void)
{
    struct iovec v[2] = {{b, 100}, {b + 100, 200}};
    int fd, out, p[2], q[2];
    off_t o = 0;
    loff_t lo = 0;
    DO(open, (fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    DO(write, write(fd, b, 8192) == 8192);
    DO(pwrite, pwrite(fd, b, 4096, 4096) == 4096);
    DO(writev, writev(fd, v, 2) == 300);
    DO(pwritev, pwritev(fd, v, 2, 10) == 300);
    DO(pwritev2, pwritev2(fd, v, 2, 10, 0) == 300);
    DO(lseek, lseek(fd, 0, SEEK_SET) == 0);
    DO(read, read(fd, b, 100) == 100);
    DO(pread, pread(fd, b, 100, 50) == 100);
    DO(readv, readv(fd, v, 2) == 300);
    DO(preadv, preadv(fd, v, 2, 10) == 300);
    DO(preadv2, preadv2(fd, v, 2, 10, 0) == 300);
    DO(fsync, fsync(fd) == 0);
    DO(fdatasync, fdatasync(fd) == 0);
    DO(sync_file_range, sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
    DO(syncfs, syncfs(fd) == 0);
    DO(ftruncate, ftruncate(fd, 8192) == 0);
    DO(posix_fallocate, posix_fallocate(fd, 0, 100) == 0);
    DO(fallocate, fallocate(fd, 0, 0, 4096) == 0 || errno == EOPNOTSUPP);
    DO(posix_fadvise, posix_fadvise(fd, 0, 100, POSIX_FADV_SEQUENTIAL) == 0);
    DO(readahead, readahead(fd, 0, 4096) == 0);
    DO(creat, (out = creat("b", 0600)) >= 0);
    DO(sendfile, sendfile(out, fd, &o, 1000) == 1000);
    DO(copy_file_range, copy_file_range(fd, &lo, out, NULL, 1000, 0) == 1000);
    DO(pipe, pipe(p) == 0);
    DO(pipe2, pipe2(q, O_CLOEXEC) == 0);
    lo = 0;
    DO(splice, splice(fd, &lo, p[1], NULL, 1000, 0) == 1000);
    DO(tee, tee(p[0], q[1], 500, 0) == 500);
    DO(vmsplice, vmsplice(q[1], v, 1, 0) == 100);
    DO(dup, close(dup(fd)) == 0);
    DO(dup2, dup2(fd, 90) == 90);
    DO(dup3, dup3(fd, 91, O_CLOEXEC) == 91);
    DO(fcntl, fcntl(fd, F_GETFL) >= 0);
    DO(flock, flock(fd, LOCK_SH) == 0);
    DO(lockf, lockf(fd, F_TEST, 0) == 0);
    DO(dprintf, dprintf(out, "%s", "hello") == 5);
    void *m;
    DO(mmap, (m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED);
    DO(madvise, madvise(m, 4096, MADV_NORMAL) == 0);
    DO(msync, msync(m, 4096, MS_SYNC) == 0);
    DO(munmap, munmap(m, 4096) == 0);
    struct aiocb a = {.aio_fildes = fd, .aio_buf = b, .aio_nbytes = 100};
    const struct aiocb *list[1] = {&a};
    struct aiocb *items[1] = {&a};
    DO(aio_read, aio_read(&a) == 0);
    DO(aio_suspend, aio_suspend(list, 1, NULL) == 0);
    DO(aio_return_read, aio_return(&a) == 100);
    DO(aio_write, aio_write(&a) == 0 && aio_suspend(list, 1, NULL) == 0);
    DO(aio_return_write, aio_return(&a) == 100);
    a.aio_lio_opcode = LIO_READ;
    DO(lio_listio, lio_listio(LIO_WAIT, items, 1, NULL) == 0 && aio_return(&a) == 100);
    DO(close, close(fd) == 0 && close(out) == 0 && close(90) == 0);
    DO(close_range, close_range(91, 91, 0) == 0);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
    char name[] = "tmpXXXXXX", name2[] = "tm2XXXXXX", folder[] = "dirXXXXXX";
    DO(mkstemp, close(mkstemp(name)) == 0 && unlink(name) == 0);
    DO(mkostemp, close(mkostemp(name2, O_CLOEXEC)) == 0 && unlink(name2) == 0);
    DO(mkdtemp, mkdtemp(folder) && rmdir(folder) == 0);
    DO(memfd_create, (fd = memfd_create("x", 0)) >= 0 && close(fd) == 0);
}

static void path_calls(void)
{
    struct stat s;
    struct statx x;
    struct statfs f;
    struct statvfs vf;
    struct timeval t[2] = {{0}};
    struct timespec ts[2] = {{0}};
    int dir, fd;
    DO(stat, stat("a", &s) == 0);
    DO(lstat, lstat("a", &s) == 0);
    DO(fstatat, fstatat(AT_FDCWD, "a", &s, 0) == 0);
    DO(statx, statx(AT_FDCWD, "a", 0, STATX_ALL, &x) == 0);
    DO(statfs, statfs(".", &f) == 0);
    DO(statvfs, statvfs(".", &vf) == 0);
    DO(access, access("a", R_OK) == 0);
    DO(faccessat, faccessat(AT_FDCWD, "a", R_OK, 0) == 0);
    DO(truncate, truncate("a", 4096) == 0);
    DO(mkdir, mkdir("d", 0700) == 0);
    DO(openat, (dir = openat(AT_FDCWD, "d", O_RDONLY | O_DIRECTORY)) >= 0);
    DO(openat, (fd = openat(dir, "f", O_RDWR | O_CREAT, 0600)) >= 0);
    DO(fstat, fstat(fd, &s) == 0);
    DO(fstatfs, fstatfs(fd, &f) == 0);
    DO(fstatvfs, fstatvfs(fd, &vf) == 0);
    DO(fchmod, fchmod(fd, 0600) == 0);
    DO(fchown, fchown(fd, (uid_t)-1, (gid_t)-1) == 0);
    DO(futimens, futimens(fd, NULL) == 0);
    DO(futimes, futimes(fd, t) == 0);
    close(fd);
    DO(mkdirat, mkdirat(dir, "e", 0700) == 0);
    DO(unlinkat, unlinkat(dir, "e", AT_REMOVEDIR) == 0);
    DO(renameat, renameat(dir, "f", dir, "g") == 0);
    DO(renameat2, renameat2(dir, "g", dir, "h", 0) == 0);
    DO(linkat, linkat(dir, "h", dir, "i", 0) == 0);
    DO(symlinkat, symlinkat("h", dir, "j") == 0);
    DO(readlinkat, readlinkat(dir, "j", b, 100) == 1);
    DO(fchmodat, fchmodat(dir, "h", 0600, 0) == 0);
    DO(fchownat, fchownat(dir, "h", (uid_t)-1, (gid_t)-1, 0) == 0);
    DO(utimensat, utimensat(dir, "h", ts, 0) == 0);
    DO(mkfifoat, mkfifoat(dir, "k", 0600) == 0);
    close(dir);
    DO(link, link("a", "c") == 0);
    DO(symlink, symlink("a", "l") == 0);
    DO(readlink, readlink("l", b, 100) == 1);
    DO(rename, rename("c", "c2") == 0);
    DO(unlink, unlink("c2") == 0);
    DO(remove, remove("l") == 0);
    DO(chmod, chmod("a", 0600) == 0);
    DO(chown, chown("a", (uid_t)-1, (gid_t)-1) == 0);
    DO(lchown, lchown("a", (uid_t)-1, (gid_t)-1) == 0);
    DO(utime, utime("a", NULL) == 0);
    DO(utimes, utimes("a", t) == 0);
    DO(mkfifo, mkfifo("ff", 0600) == 0);
    DO(realpath, realpath("a", b) != NULL);
    DO(getcwd, getcwd(b, sizeof(b)) != NULL);
    DO(chdir, chdir("d") == 0 && chdir("..") == 0);
    getxattr("a", "user.x", b, 10);
    DO(getxattr, 1);
    DO(listxattr, listxattr("a", b, sizeof(b)) >= 0 || errno == EOPNOTSUPP);
    DIR *d;
    DO(opendir, (d = opendir("d")) != NULL);
    DO(readdir, readdir(d) != NULL);
    rewinddir(d);
    DO(rewinddir, 1);
    DO(closedir, closedir(d) == 0);
    struct dirent **list;
    int n;
    DO(scandir, (n = scandir("d", &list, NULL, NULL)) > 0);
    while (n-- > 0)
        free(list[n]);
    free(list);
    glob_t g;
    DO(glob, glob("*", 0, NULL, &g) == 0);
    globfree(&g);
    DO(nftw, nftw("d", visit, 4, FTW_PHYS) == 0);
    mode_t m = umask(077);
    umask(m);
    DO(umask, 1);
    DO(rmdir, mkdir("z", 0700) == 0 && rmdir("z") == 0);
    sync();
    DO(sync, 1);
}

static void stream_calls(void)
{
    FILE *f;
    char *line = NULL;
    size_t cap = 0;
    int n;
    fpos_t pos;
    DO(fopen, (f = fopen("s", "w+")) != NULL);
    DO(fwrite, fwrite("0123456789\n", 1, 11, f) == 11);
    DO(fputs, fputs("line two\n", f) >= 0);
    DO(fputc, fputc('x', f) == 'x');
    DO(putc, putc('y', f) == 'y');
    DO(fprintf, fprintf(f, "%d\n", 42) == 3);
    DO(putw, putw(7, f) == 0);
    DO(fflush, fflush(f) == 0);
    DO(ftell, ftell(f) > 0);
    DO(fseek, fseek(f, 0, SEEK_SET) == 0);
    DO(fgets, fgets(b, 100, f) != NULL);
    DO(getline, getline(&line, &cap, f) > 0);
    DO(fgetc, fgetc(f) == 'x');
    DO(getc, getc(f) == 'y');
    DO(ungetc, ungetc('1', f) == '1');
    DO(fscanf, fscanf(f, "%d", &n) == 1);
    rewind(f);
    DO(rewind, 1);
    DO(fread, fread(b, 1, 5, f) == 5);
    DO(fgetpos, fgetpos(f, &pos) == 0);
    DO(fsetpos, fsetpos(f, &pos) == 0);
    DO(fseeko, fseeko(f, 1, SEEK_SET) == 0);
    DO(ftello, ftello(f) == 1);
    DO(getdelim, getdelim(&line, &cap, ':', f) > 0);
    DO(freopen, (f = freopen("s", "r", f)) != NULL);
    DO(fclose, fclose(f) == 0);
    free(line);
    DO(tmpfile, (f = tmpfile()) != NULL && fclose(f) == 0);
    DO(fdopen, (f = fdopen(open("s", O_RDONLY), "r")) != NULL && fclose(f) == 0);
    DO(popen, (f = popen("true", "r")) != NULL);
    DO(pclose, pclose(f) == 0);
}

static void process_calls(void)
{
    extern char **environ;
    char *args[] = {"true", NULL};
    pid_t pid;
    int status;
    pid = fork();
    if (!pid)
        _exit(0);
    DO(fork, waitpid(pid, &status, 0) == pid);
    DO(posix_spawnp,
       posix_spawnp(&pid, "true", NULL, NULL, args, environ) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
    pid = fork();
    if (!pid)
        execlp("true", "true", (char *)NULL);
    DO(execlp, waitpid(pid, &status, 0) == pid && status == 0);
    DO(system, system("true") == 0);
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]) < 0)
        return 2;
    memset(b, 'x', sizeof(b));
    data_calls();
    path_calls();
    stream_calls();
    process_calls();
    for (int i = 0; i < count; i++)
        printf("%s\n", names[i]);
    return failures != 0;
}
