/* Calls whose event must say exactly what happened. Works in the current folder; the first word names the group. Each
 * line of standard output is an event that must be in the trace: NAME|RESULT|FILE|OFFSET|BYTES ASKED FOR|FD, where * is
 * anything, a file without '/' lies in the folder, and one after a * has no folder; a line that begins with ! is an
 * event that must not be there besides. Built with -DWITH_LIBURING where that is there. */
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <mntent.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#ifdef WITH_LIBURING
#include <liburing.h>
#endif

static char text[1 << 20];
static size_t used;
static char b[65536];
static char *volatile bad_pointer = (char *)8; /* the compiler must not know */
#define BAD bad_pointer

/* An event that must be there. */
static void __attribute__((format(printf, 1, 2))) expect(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    used += (size_t)vsnprintf(text + used, sizeof(text) - used, format, a);
    va_end(a);
    text[used++] = '\n';
}

#define MUST(x) ((x) ? (void)0 : (fprintf(stderr, "exact: %s: %s\n", #x, strerror(errno)), exit(1)))

/* Pointers that the kernel, or the C library, never looked at: the same error as without the tracer, and no crash. */
static void pointers(void)
{
    struct iocb *none[2] = {NULL, (struct iocb *)BAD};
    aio_context_t ctx = 0;
    MUST(rename("/no/such/folder", BAD) == -1 && errno == ENOENT);
    expect("rename|%d|/no/such/folder|*|*|*", -ENOENT);
    MUST(link("/no/such/folder", BAD) == -1 && errno == ENOENT);
    expect("link|%d|/no/such/folder|*|*|*", -ENOENT);
    MUST(symlink("", BAD) == -1 && errno == ENOENT);
    expect("symlink|%d||*|*|*", -ENOENT);
#ifdef SYS_symlink
    MUST(syscall(SYS_symlink, "", BAD) == -1 && errno == ENOENT);
    expect("symlink|%d||*|*|*", -ENOENT);
    MUST(syscall(SYS_rename, BAD, "/no/such/folder") == -1 && errno == EFAULT);
    expect("rename|%d||*|*|*", -EFAULT);
    MUST(syscall(SYS_stat, "/etc/passwd", BAD) == -1 && errno == EFAULT);
    expect("stat|%d|/etc/passwd|*|*|*", -EFAULT);
#endif
    MUST(getxattr("/etc/passwd", BAD, NULL, 0) == -1 && errno == EFAULT);
    expect("getxattr|%d|/etc/passwd|*|*|*", -EFAULT);
    MUST(execve("/no/such/program", (char **)BAD, (char **)BAD) == -1 && errno == ENOENT);
    expect("execve|%d|/no/such/program|*|*|*", -ENOENT);
    MUST(syscall(SYS_execveat, AT_FDCWD, BAD, BAD, BAD, 0) == -1 && errno == EFAULT);
    expect("execveat|%d||*|*|*", -EFAULT);
    MUST(execve("/tmp", (char *[]){"tmp", NULL}, NULL) == -1 && errno == EACCES);
    expect("execve|%d|/tmp|*|*|*", -EACCES);
    struct iovec v[2] = {{b, 10}, {b, 20}};
    int fd = open("/dev/zero", O_RDONLY);
    MUST(preadv(fd, v, 2, -7) == -1 && errno == EINVAL && readv(fd, (struct iovec *)BAD, 2) == -1 &&
         syscall(SYS_writev, -1, v, 2) == -1);
    expect("preadv|%d|/dev/zero|-7|30|%d", -EINVAL, fd);
    expect("readv|%d|/dev/zero||0|%d", -EFAULT, fd);
    expect("writev|%d|||30|*", -EBADF);
    MUST(sendfile(1, -9, NULL, 50) == -1 && errno == EBADF);
    expect("sendfile|%d|||50|", -EBADF);
    off_t from = 77;
    MUST(sendfile(1, -9, &from, 51) == -1 && errno == EBADF && sendfile(1, -9, (off_t *)BAD, 52) == -1);
    expect("sendfile|%d||77|51|", -EBADF);
    expect("sendfile|%d|||52|", -errno);
    if (syscall(SYS_io_setup, 4, &ctx) != 0)
        return;
    MUST(syscall(SYS_io_submit, ctx, 1L, BAD) == -1 && errno == EFAULT);
    expect("io_submit|%d||*|*|*", -EFAULT);
    MUST(syscall(SYS_io_submit, ctx, 2L, none) == -1 && errno == EFAULT);
    expect("io_submit|%d||*|*|*", -EFAULT);
}

/* Paths that say less than the file. */
static void paths(void)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = {.flags = O_RDWR | O_CREAT, .mode = 0600, .resolve = 0x10}; /* RESOLVE_IN_ROOT */
    struct stat s;
    MUST(stat("", &s) == -1 && errno == ENOENT);
    expect("stat|%d||*|*|*", -ENOENT);
    MUST(open("", O_RDONLY) == -1 && errno == ENOENT);
    expect("open|%d||*|*|*", -ENOENT);
    MUST(mkdir("sub", 0700) == 0);
    int dir = open("sub", O_RDONLY | O_DIRECTORY), fd = (int)syscall(SYS_openat2, dir, "/inside", &how, sizeof(how));
    if (fd >= 0) {
        expect("openat2|%d|sub/inside|%d|*|%d", fd, O_RDWR | O_CREAT, fd);
        MUST(write(fd, b, 5) == 5);
        expect("write|5|sub/inside||5|%d", fd);
        close(fd);
    }
    fd = open("gone", O_RDWR | O_CREAT, 0600);
    MUST(unlink("gone") == 0 && fstatat(fd, "", &s, AT_EMPTY_PATH) == 0);
    expect("fstatat|0|gone|*|*|*");
    MUST(syscall(SYS_utimensat, fd, NULL, NULL, 0) == 0);
    expect("utimensat|0|gone|*|*|*");
    int r = (int)syscall(452, AT_FDCWD, "sub", 0700, 0); /* fchmodat2 */
    expect("fchmodat|%d|sub|%d|*|*", r < 0 ? -errno : r, 0700);
    struct {
        uint64_t value;
        uint32_t size, flags;
    } x = {(uintptr_t) "ab", 2, 0};
    r = (int)syscall(463, dir, "", AT_EMPTY_PATH, "user.key", &x, sizeof(x)); /* setxattrat */
    expect("setxattr|%d|sub|*|*|*", r < 0 ? -errno : r);
    MUST(chdir("sub") == 0 && rename("../sub", "../moved") == 0 && (fd = creat("late", 0600)) >= 0);
    expect("creat|%d|moved/late|*|*|%d", fd, fd);
    MUST(dup2(fd, 0) == 0 && (fd = open("/dev/stdin", O_WRONLY)) >= 0 && write(fd, b, 9) == 9);
    expect("write|9|moved/late||9|%d", fd);
    MUST((fd = open("/proc/self/cwd/late", O_RDONLY)) >= 0);
    expect("open|%d|moved/late|*|*|%d", fd, fd);
    MUST(openat(-5, "somewhere", O_RDONLY) == -1 && errno == EBADF);
    expect("openat|%d|*somewhere|*|*|*", -EBADF);
    errno = ENOENT;
    MUST(pathconf(".", _PC_SYMLINK_MAX) == -1 && errno == ENOENT);
    expect("pathconf|0|*|%d|*|*", _PC_SYMLINK_MAX); /* no limit is no error */
}

/* A thread that has left the working directory of the others. */
static void *elsewhere(void *turn)
{
    MUST(mkdir("apart", 0700) == 0 && unshare(CLONE_FS) == 0 && chdir("apart") == 0);
    int fd = creat("here", 0600);
    expect("creat|%d|apart/here|*|*|%d", fd, fd);
    pthread_barrier_wait(turn);
    pthread_barrier_wait(turn);
    fd = creat("again", 0600);
    expect("creat|%d|apart/again|*|*|%d", fd, fd);
    return NULL;
}

/* A thread that has descriptors of its own: a number is two files. */
static bool by_range;
static void *own_files(void *number)
{
    int fd = creat("both", 0600);
    int r = by_range ? syscall(SYS_close_range, 1000, 1001, 2 /* CLOSE_RANGE_UNSHARE */) : unshare(CLONE_FILES);
    if (r == -1 && errno == ENOSYS)
        exit(77);
    MUST(close(fd) == 0 && creat("mine", 0600) == fd && write(fd, b, 11) == 11);
    expect("write|11|mine||11|%d", fd);
    *(int *)number = fd;
    return NULL;
}

static void files(void)
{
    pthread_t t;
    int fd = -1;
    MUST(pthread_create(&t, NULL, own_files, &fd) == 0 && pthread_join(t, NULL) == 0);
    MUST(write(fd, b, 21) == 21 && close(fd) == 0);
    expect("write|21|both||21|%d", fd);
    expect("close|0|both|*|*|%d", fd);
}

static void directories(void)
{
    pthread_barrier_t turn;
    pthread_t t;
    pthread_barrier_init(&turn, NULL, 2);
    MUST(pthread_create(&t, NULL, elsewhere, &turn) == 0);
    pthread_barrier_wait(&turn);
    int fd = creat("there", 0600);
    expect("creat|%d|there|*|*|%d", fd, fd);
    pthread_barrier_wait(&turn);
    pthread_join(t, NULL);
}

/* A mapping stays one after it could not be taken away. */
static void mappings(void)
{
    int fd = open("mapped", O_RDWR | O_CREAT, 0600);
    MUST(ftruncate(fd, 8192) == 0);
    char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(m != MAP_FAILED && munmap(m + 1, 4096) == -1 && errno == EINVAL && munmap(m, 0) == -1);
    expect("munmap|%d|mapped|*|4096|*", -EINVAL);
    MUST(msync(m, 8192, MS_SYNC) == 0 && munmap(m, 8192) == 0);
    expect("msync|0|mapped|*|8192|*");
    expect("munmap|0|mapped|*|8192|*");
}

static void streams(void)
{
    char line[100];
    FILE *old = stderr;
    MUST(stderr = fopen("complaints", "w"));
    errno = ENOENT;
    perror("here");
    errno = 12345;
    perror(NULL);
    expect("perror|%d|complaints||*|*", 6 + (int)strlen(strerror(ENOENT)) + 1);
    expect("perror|%d|complaints||*|*", (int)strlen(strerror(12345)) + 1);
    MUST(fflush(stderr) == 0 &&
         ftell(stderr) == 6 + (long)strlen(strerror(ENOENT)) + 1 + (long)strlen(strerror(12345)) + 1);
    fclose(stderr);
    stderr = old;
    int n = open("lines", O_RDWR | O_CREAT, 0600);
    MUST(write(n, "a\0b\ncd\n\0\0\0\n", 11) == 11 && close(n) == 0);
    FILE *f = fopen("lines", "r");
    MUST(f && fgets(line, sizeof(line), f));
    expect("fgets|4|lines||*|*");
    MUST(fgets(line, 3, f));
    expect("fgets|2|lines||*|*");
    MUST(fgets(line, sizeof(line), f) && fgets(line, sizeof(line), f));
    expect("fgets|1|lines||*|*");
    expect("fgets|4|lines||*|*");
    rewind(f);
    MUST(fread(b, 8, 10, f) == 1); /* and three bytes of the second */
    expect("fread|11|lines||80|*");
    MUST(fread(b, 8, 10, f) == 0 && fread(b, 0, 10, f) == 0);
    expect("fread|0|lines||80|*");
    expect("fread|0|lines||0|*");
    MUST(fwrite(b, 2, 3, f) == 0);
    expect("fwrite|%d|lines||6|*", -EBADF);
    MUST(fputc('x', f) == EOF);
    expect("fputc|%d|lines||0|*", -EBADF);
    fclose(f);
    MUST((f = fopen(".", "r")) && fread(b, 1, 10, f) == 0 && ferror(f));
    expect("fread|%d|.||10|*", -EISDIR);
}

/* The kernel has its own copy of a control block once it was submitted. */
/* The error of an operation that failed is the operation's, not what errno happens to be. */
static void posix_aio(void)
{
    struct aiocb a = {.aio_fildes = -1, .aio_buf = b, .aio_nbytes = 5, .aio_offset = 3};
    MUST(aio_read(&a) == 0);
    while (aio_error(&a) == EINPROGRESS)
        sched_yield();
    errno = ENOTTY;
    MUST(aio_return(&a) == -1 && errno == ENOTTY);
    expect("aio_return_read|%d||3|5|", -EBADF);
}

static void kernel_aio(void)
{
    struct iocb *block = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                wrong = {.aio_fildes = 99}, *two[2] = {block, &wrong};
    struct io_event done[8];
    struct iovec v[2] = {{b, 10}, {b + 10, 20}};
    aio_context_t ctx = 0;
    int fd = open("data", O_RDWR | O_CREAT, 0600);
    MUST(write(fd, b, 4096) == 4096);
    if (syscall(SYS_io_setup, 8, &ctx) != 0)
        return;
    for (int i = 0; i < 5; i++) {
        *block = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD,
                               .aio_fildes = (uint32_t)fd,
                               .aio_buf = (uintptr_t)b,
                               .aio_nbytes = 100u + (unsigned)i,
                               .aio_offset = i * 10};
        MUST(syscall(SYS_io_submit, ctx, 1L, &block) == 1);
        expect("io_read|%d|data|%d|%d|%d", 100 + i, i * 10, 100 + i, fd);
    }
    *block = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITEV,
                           .aio_fildes = (uint32_t)fd,
                           .aio_buf = (uintptr_t)v,
                           .aio_nbytes = 2,
                           .aio_offset = 7};
    MUST(syscall(SYS_io_submit, ctx, 2L, two) == 1);
    expect("io_write|30|data|7|30|%d", fd);
    munmap(block, 4096);
    MUST(syscall(SYS_io_getevents, ctx, 6L, 8L, done, NULL) == 6);
}

/* A ring without the library, in memory that the program brings; then entered by its registered number. */
struct bare_ring {
    struct io_uring_params p;
    int fd;
    char *memory; /* entries in the first page, the rings in the second */
};

static unsigned *in_ring(const struct bare_ring *r, uint32_t at)
{
    return (unsigned *)(void *)(r->memory + 4096 + at);
}

typedef int enter_function(unsigned fd, unsigned submit, unsigned wait, unsigned flags, void *mask);
static int enter_by_number(unsigned fd, unsigned submit, unsigned wait, unsigned flags, void *mask)
{
    return (int)syscall(SYS_io_uring_enter, fd, submit, wait, flags, mask, 0L);
}

static int read_by(struct bare_ring *r, int fd, unsigned bytes, uint64_t offset, enter_function *enter, int entered,
                   unsigned flags)
{
    unsigned *tail = in_ring(r, r->p.sq_off.tail), at = *tail & *in_ring(r, r->p.sq_off.ring_mask);
    struct io_uring_sqe *q = (struct io_uring_sqe *)(void *)r->memory + at;
    memset(q, 0, sizeof(*q));
    q->opcode = IORING_OP_READ, q->fd = fd, q->addr = (uintptr_t)b, q->len = bytes, q->off = offset, q->user_data = 5;
    in_ring(r, r->p.sq_off.array)[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    MUST(enter((unsigned)entered, 1, 1, IORING_ENTER_GETEVENTS | flags, NULL) == 1);
    unsigned *head = in_ring(r, r->p.cq_off.head);
    int result =
        ((struct io_uring_cqe *)(void *)in_ring(r, r->p.cq_off.cqes))[*head & *in_ring(r, r->p.cq_off.ring_mask)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

static void own_memory(void)
{
    struct bare_ring r = {.p.flags = 1u << 14}; /* IORING_SETUP_NO_MMAP */
    struct {
        uint32_t offset, resv;
        uint64_t data;
    } update = {.offset = ~0u};
    r.memory = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t entries = (uintptr_t)r.memory, both = (uintptr_t)r.memory + 4096;
    memcpy((char *)&r.p.sq_off + 32, &entries, 8);
    memcpy((char *)&r.p.cq_off + 32, &both, 8);
    int fd = open("owned", O_RDWR | O_CREAT, 0600);
    MUST(write(fd, b, 4096) == 4096);
    r.fd = (int)syscall(SYS_io_uring_setup, 8, &r.p);
    if (r.fd < 0)
        return;
    expect("uring_read|%d|owned|7|100|%d", read_by(&r, fd, 100, 7, enter_by_number, r.fd, 0), fd);
    update.data = (unsigned)r.fd;
    if (syscall(SYS_io_uring_register, r.fd, 20, &update, 1) ==
        1) /* IORING_REGISTER_RING_FDS, IORING_ENTER_REGISTERED_RING */
        expect("uring_read|%d|owned|9|200|%d", read_by(&r, fd, 200, 9, enter_by_number, (int)update.offset, 1u << 4),
               fd);
    void *library = dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD);
    enter_function *enter = (enter_function *)dlsym(RTLD_DEFAULT, "io_uring_enter");
    if (library && dlsym(library, "io_uring_enter") && enter) /* since 2.3 */
        expect("uring_read|%d|owned|11|300|%d", read_by(&r, fd, 300, 11, enter, r.fd, 0), fd);
}

#ifdef WITH_LIBURING
static struct io_uring ring;
static int one(void)
{
    struct io_uring_cqe *c = NULL;
    MUST(io_uring_submit(&ring) == 1 && io_uring_wait_cqe(&ring, &c) == 0);
    int r = c->res;
    io_uring_cqe_seen(&ring, c);
    return r;
}

static void uring(void)
{
    if (io_uring_queue_init(8, &ring, 0) != 0)
        return;
    struct io_uring_sqe *q = io_uring_get_sqe(&ring);
    io_uring_prep_openat(q, AT_FDCWD, "ring", O_RDWR | O_CREAT, 0600);
    int fd = one();
    MUST(fd >= 0);
    expect("uring_open|%d|ring|%d|*|%d", fd, O_RDWR | O_CREAT, fd);
    MUST(mkdir("side", 0700) == 0);
    io_uring_prep_openat(io_uring_get_sqe(&ring), AT_FDCWD, "side/../ring", O_RDONLY, 0);
    int same = one();
    expect("uring_open|%d|ring|0|*|%d", same, same);
    io_uring_prep_openat(io_uring_get_sqe(&ring), AT_FDCWD, "side/../none", O_RDONLY, 0);
    MUST(one() == -ENOENT);
    io_uring_prep_fallocate(io_uring_get_sqe(&ring), fd, 0, 10, 5000);
    expect("uring_fallocate|%d|ring|10|5000|%d", one(), fd);
    io_uring_prep_fadvise(io_uring_get_sqe(&ring), fd, 20, 500, POSIX_FADV_NORMAL);
    expect("uring_advise|%d|ring|20|500|%d", one(), fd);
    struct io_uring_cqe *c = NULL;
    unsigned head, n = 0;
    MUST(mkfifo("fifo", 0600) == 0);
    q = io_uring_get_sqe(&ring);
    io_uring_prep_openat(q, AT_FDCWD, "fifo", O_RDONLY, 0); /* ends when somebody writes: after io_uring_submit */
    q->flags |= IOSQE_ASYNC;
    MUST(io_uring_submit(&ring) == 1 && open("fifo", O_WRONLY) >= 0);
    while (!n)
        io_uring_for_each_cqe(&ring, head, c) n++, same = c->res;
    io_uring_cq_advance(&ring, n); /* nothing that the library would know of */
    MUST(close(same) == 0 && open("other", O_RDWR | O_CREAT, 0600) == same);
    io_uring_prep_nop(io_uring_get_sqe(&ring));
    MUST(one() == 0 && write(same, b, 13) == 13);
    expect("write|13|other||13|*");
    io_uring_prep_provide_buffers(io_uring_get_sqe(&ring), b, 4096, 2, 1, 0); /* 2 where others have a descriptor */
    expect("uring_other|%d||*|*|", one());
    q = io_uring_get_sqe(&ring);
    memset(q, 0, sizeof(*q));
    q->opcode = 45; /* IORING_OP_SOCKET */
    q->fd = 1;      /* AF_UNIX */
    q->off = 1;     /* SOCK_STREAM */
    expect("uring_other|%d||*|*|", one());
    q = io_uring_get_sqe(&ring);
    memset(q, 0, sizeof(*q));
    q->opcode = 42; /* IORING_OP_SETXATTR, its path in addr3 */
    q->addr = (uintptr_t) "user.key", q->off = (uintptr_t) "ab", q->len = 2;
    uint64_t path = (uintptr_t) "ring";
    memcpy((char *)q + 48, &path, sizeof(path));
    expect("uring_other|%d|ring|*|*|", one());
    for (int i = 0; i < 8; i++) { /* one tag for all: in the order of their submission, which is that of their ends */
        io_uring_prep_write(q = io_uring_get_sqe(&ring), fd, b, 31 + i, 4000 + i);
        q->flags |= i < 7 ? IOSQE_IO_LINK : 0, q->user_data = i % 3 ? 5 : 6;
        expect("uring_write|%d|ring|%d|%d|%d", 31 + i, 4000 + i, 31 + i, fd);
    }
    MUST(io_uring_submit_and_wait(&ring, 8) == 8);
    io_uring_cq_advance(&ring, 8);
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    io_uring_prep_rw(47, io_uring_get_sqe(&ring), pair[0], b, 40,
                     0); /* IORING_OP_SEND_ZC: two completions, one operation */
    MUST(io_uring_submit(&ring) == 1 && io_uring_wait_cqe(&ring, &c) == 0);
    expect("uring_send|%d|*|*|40|%d", c->res, pair[0]);
    expect("!uring_send|*|*|*|*|*");
    if (c->flags & IORING_CQE_F_MORE) {
        io_uring_cqe_seen(&ring, c);
        MUST(io_uring_wait_cqe(&ring, &c) == 0);
    }
    io_uring_cqe_seen(&ring, c);
    io_uring_prep_rw(49, q = io_uring_get_sqe(&ring), pair[1], NULL, 0,
                     0); /* IORING_OP_READ_MULTISHOT, by the kernel's choice of buffer */
    q->flags |= IOSQE_BUFFER_SELECT, q->buf_group = 1;
    MUST(write(pair[0], b, 7) == 7 && close(pair[0]) == 0);
    same = one();
    if (same > 0) /* not before Linux 6.7 */
        expect("uring_read|%d|*|*|%d|%d", same, same, pair[1]);
    io_uring_queue_exit(&ring);
}
#endif

/* Programs without a folder go by the place where the search finds them. */
static void programs(void)
{
    char here[4096], list[5000], *word[] = {"tool", NULL};
    pid_t child;
    MUST(getcwd(here, sizeof(here)) && mkdir("bin", 0700) == 0);
    int n = open("bin/tool", O_WRONLY | O_CREAT, 0700);
    MUST(write(n, "#!/bin/sh\n", 10) == 10 && close(n) == 0);
    snprintf(list, sizeof(list), "/no/such/folder:%s/bin:/bin:/usr/bin", here);
    MUST(setenv("PATH", list, 1) == 0);
    MUST(posix_spawnp(&child, "tool", NULL, NULL, word, environ) == 0 && waitpid(child, NULL, 0) == child);
    expect("posix_spawnp|*|bin/tool||*|");
    MUST(posix_spawnp(&child, "nosuchtool", NULL, NULL, word, environ) == ENOENT);
    expect("posix_spawnp|%d|*nosuchtool||*|", -ENOENT);
    MUST((child = fork()) >= 0);
    if (!child) {
        execvp("tool", word);
        _exit(1);
    }
    MUST(waitpid(child, NULL, 0) == child);
    expect("execvp|0|bin/tool||*|");
}

/* What could not be opened asked for no bytes; a number that is used again is another file. */
static void descriptors(void)
{
    char line[100];
    MUST(memfd_create("x", ~0u) == -1);
    expect("memfd_create|%d||*||", -EINVAL);
    MUST(syscall(SYS_memfd_create, "x", ~0u) == -1);
    expect("memfd_create|%d||*||", -EINVAL);
    MUST(fdopen(-1, "r") == NULL);
    expect("fdopen|%d||||", -EBADF);
    MUST(!isatty(-1));
    expect("isatty|%d||||", -EBADF);
    int n = open("mounts", O_RDWR | O_CREAT, 0600);
    MUST(write(n, "a b c d 0 0\n", 12) == 12 && close(n) == 0);
    FILE *f = setmntent("mounts", "r");
    MUST(f && fgets(line, sizeof(line), f) && endmntent(f) == 1);
    expect("fopen|%d|mounts||*|%d", n, n);
    expect("fclose|0|mounts||*|%d", n);
    int e = eventfd(1, 0);
    MUST(e == n && read(e, line, 8) == 8);
    expect("read|8|*anon_inode:[eventfd]||8|%d", n);
}

int main(int argc, char **argv)
{
    const char *group = argc > 1 ? argv[1] : "";
    if (!strcmp(group, "pointers"))
        pointers();
    else if (!strcmp(group, "paths"))
        paths();
    else if (!strcmp(group, "files") || (by_range = !strcmp(group, "range")))
        files();
    else if (!strcmp(group, "directories"))
        directories();
    else if (!strcmp(group, "mappings"))
        mappings();
    else if (!strcmp(group, "streams"))
        streams();
    else if (!strcmp(group, "programs"))
        programs();
    else if (!strcmp(group, "descriptors"))
        descriptors();
    else if (!strcmp(group, "aio"))
        kernel_aio(), posix_aio();
    else if (!strcmp(group, "memory"))
        own_memory();
#ifdef WITH_LIBURING
    else if (!strcmp(group, "uring"))
        uring();
#endif
    else
        return 77;
    return fwrite(text, 1, used, stdout) == used ? 0 : 1;
}
