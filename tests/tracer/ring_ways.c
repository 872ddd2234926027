/* What liburing can do beyond plain reads, for tests/cli/test_trace_corners.sh: ring_ways WAY FILE. Prints "name count"
 * lines of what must be in the trace with FILE as its file; 77 where the kernel has no io_uring. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct io_uring ring;
static char data[4096][8];

static int results(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        struct io_uring_cqe *c;
        if (io_uring_wait_cqe(&ring, &c) < 0)
            exit(1);
        sum += c->res;
        io_uring_cqe_seen(&ring, c);
    }
    return sum;
}

static struct io_uring_sqe *next(void)
{
    struct io_uring_sqe *s = io_uring_get_sqe(&ring);
    if (!s)
        exit(1);
    return s;
}

static int run(int n)
{
    return io_uring_submit_and_wait(&ring, (unsigned)n) < 0 ? exit(1), 0 : results(n);
}

/* By registered numbers; number 0 is opened and closed through the ring, and must not be taken for standard input. */
static int fixed(const char *file)
{
    int fd = open(file, O_RDONLY), list[] = {-1, fd};
    if (io_uring_register_files(&ring, list, 2) < 0)
        return 77;
    close(fd);
    for (int i = 0; i < 10; i++) {
        struct io_uring_sqe *s = next();
        io_uring_prep_read(s, 1, data[i], 3, 0);
        s->flags |= IOSQE_FIXED_FILE;
        if (run(1) != 3)
            return 1;
    }
    io_uring_prep_openat_direct(next(), AT_FDCWD, file, O_RDONLY, 0, 0);
    if (run(1) < 0)
        return 77;
    struct io_uring_sqe *s = next();
    io_uring_prep_read(s, 0, data[0], 2, 0);
    s->flags |= IOSQE_FIXED_FILE;
    if (run(1) != 2)
        return 1;
    io_uring_prep_close_direct(next(), 0);
    run(1);
    /* The same as one chain: the name is known before the file is open. */
    io_uring_prep_openat_direct(s = next(), AT_FDCWD, file, O_RDONLY, 0, 0);
    s->flags |= IOSQE_IO_LINK;
    io_uring_prep_read(s = next(), 0, data[0], 2, 0);
    s->flags |= IOSQE_FIXED_FILE | IOSQE_IO_LINK;
    io_uring_prep_close_direct(next(), 0);
    if (run(3) != 2)
        return 1;
    /* A number that keeps its file, because opening another one fails. */
    io_uring_prep_openat_direct(next(), AT_FDCWD, "/nonexistent/file", O_RDONLY, 0, 1);
    run(1);
    io_uring_prep_read(s = next(), 1, data[0], 2, 0);
    s->flags |= IOSQE_FIXED_FILE;
    bool kept = run(1) == 2;
    char c;
    (void)!read(0, &c, 1);
    printf("uring_read %d\nuring_open 2\nuring_close 2\n", kept ? 13 : 12);
    return 0;
}

/* More in flight than a table of fixed size holds. */
static int deep(const char *file)
{
    int fd = open(file, O_RDONLY);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 4000; i++) {
            struct io_uring_sqe *s = next();
            io_uring_prep_read(s, fd, data[i], 3, 0);
            s->user_data = (unsigned)i;
        }
        io_uring_submit(&ring);
    }
    results(8000);
    puts("uring_read 8000");
    return 0;
}

/* Completions that only inline functions look at, of a ring that is never given back; one operation that reports no
 * success. */
static int quiet(const char *file)
{
    int fd = open(file, O_RDONLY);
    struct io_uring_cqe *c;
    for (int i = 0; i < 9; i++) {
        struct io_uring_sqe *s = next();
        io_uring_prep_read(s, fd, data[i], 3, 0);
        s->flags |= i == 8 ? IOSQE_CQE_SKIP_SUCCESS : 0;
    }
    io_uring_submit(&ring);
    usleep(50000);
    for (int n = 0; n < 8;)
        if (io_uring_peek_cqe(&ring, &c) == 0) {
            io_uring_cqe_seen(&ring, c);
            n++;
        }
    puts("uring_read 9");
    return 0;
}

/* Pointers that lead nowhere: the completion says so. */
static int bad(const char *file)
{
    int fd = open(file, O_RDONLY);
    struct iovec v[2] = {{data[0], 2}, {data[1], 1}};
    struct iovec *const wrong[] = {NULL, (struct iovec *)8, (struct iovec *)(~0ul - 4095),
                                   (struct iovec *)0x800000000000};
    for (unsigned i = 0; i < 4; i++) {
        io_uring_prep_readv(next(), fd, wrong[i], 2, 0);
        if (run(1) != -EFAULT)
            return 1;
    }
    io_uring_prep_readv(next(), fd, v, 2, 0);
    if (run(1) != 3)
        return 1;
    puts("uring_readv 5");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3 || io_uring_queue_init(4096, &ring, 0) < 0)
        return 77;
    if (!strcmp(argv[1], "bad"))
        return bad(argv[2]);
    return !strcmp(argv[1], "fixed") ? fixed(argv[2]) : !strcmp(argv[1], "deep") ? deep(argv[2]) : quiet(argv[2]);
}
