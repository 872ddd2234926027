/* Linux's asynchronous I/O three ways, for tests/cli/test_trace_strays.sh: kernel_aio WAY FILE, WAY = syscall, raw (by
 * instruction) or libaio. Four rounds of eight reads of 512 bytes, one of them beyond the end of the file, and two
 * writes of 100. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N 10
static int (*io_setup)(int, void *), (*io_destroy)(aio_context_t), (*io_submit)(aio_context_t, long, struct iocb **);
static int (*io_getevents)(aio_context_t, long, long, struct io_event *, void *),
    (*io_cancel)(aio_context_t, struct iocb *, struct io_event *);
static int (*io_pgetevents)(aio_context_t, long, long, struct io_event *, void *, void *);
static const char *way;

static long do_call(long n, long a, long b, long c, long d, long e)
{
    long r = -ENOSYS;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    if (*way == 'r') {
        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                         : "rcx", "r11", "memory");
        return r;
    }
#endif
    r = syscall(n, a, b, c, d, e);
    return r < 0 ? -errno : r;
}

static int by_library(void)
{
    void *l = dlopen("libaio.so.1", RTLD_NOW | RTLD_GLOBAL);
    l = l ? l : dlopen("libaio.so.1t64", RTLD_NOW | RTLD_GLOBAL);
    if (!l)
        return -1;
    *(void **)&io_setup = dlsym(RTLD_DEFAULT, "io_setup");
    *(void **)&io_destroy = dlsym(RTLD_DEFAULT, "io_destroy");
    *(void **)&io_submit = dlsym(RTLD_DEFAULT, "io_submit");
    *(void **)&io_getevents = dlsym(RTLD_DEFAULT, "io_getevents");
    *(void **)&io_pgetevents = dlsym(RTLD_DEFAULT, "io_pgetevents");
    *(void **)&io_cancel = dlsym(RTLD_DEFAULT, "io_cancel");
    return io_setup && io_submit && io_getevents && io_destroy && io_cancel ? 0 : -1;
}

static int round_of(aio_context_t ctx, int fd)
{
    static char data[N][512];
    struct iocb b[N] = {0}, *list[N];
    struct io_event e[N];
    for (int i = 0; i < N; i++) {
        b[i].aio_fildes = (unsigned)fd;
        b[i].aio_lio_opcode = i < 8 ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
        b[i].aio_buf = (unsigned long)data[i];
        b[i].aio_nbytes = i < 8 ? 512 : 100;
        b[i].aio_offset = i == 7 ? 1 << 20 : i * 512;
        list[i] = &b[i];
    }
    long got = 0, n = io_submit ? io_submit(ctx, N, list) : do_call(SYS_io_submit, (long)ctx, N, (long)list, 0, 0);
    if (n != N)
        return -1;
    while (got < N) {
        n = io_getevents ? io_getevents(ctx, 1, N - got, e, NULL)
                         : do_call(SYS_io_getevents, (long)ctx, 1, N - got, (long)e, 0);
        if (n <= 0)
            return -1;
        got += n;
    }
    return 0;
}

int main(int argc, char **argv)
{
    aio_context_t ctx = 0;
    if (argc < 3)
        return 2;
    way = argv[1];
    int fd = open(argv[2], O_RDWR), bad = 0;
    if (fd < 0 || (!strcmp(way, "libaio") && by_library() < 0))
        return 77;
    if (io_setup ? io_setup(N, &ctx) : do_call(SYS_io_setup, N, (long)&ctx, 0, 0, 0))
        return 77;
    for (int i = 0; i < 4; i++)
        bad |= round_of(ctx, fd);
    if (io_destroy)
        io_destroy(ctx);
    return bad != 0;
}
