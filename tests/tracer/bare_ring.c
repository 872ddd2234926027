/* io_uring without liburing, for tests/cli/test_trace_strays.sh: bare_ring WAY FILE, WAY = syscall or raw (by
 * instruction). Ten rounds of four reads of 512 bytes and a write of 100, on entries that are used in another order
 * than that of the ring; a child that inherited the ring; and a call on the ring's descriptor after its memory is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 5
static const char *way;

static long do_call(long n, long a, long b, long c, long d, long e, long f)
{
    long r = -ENOSYS;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    if (*way == 'r') {
        __asm__ volatile("syscall"
                         : "=a"(r)
                         : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
        return r;
    }
#endif
    r = syscall(n, a, b, c, d, e, f);
    return r == -1 ? -errno : r;
}

int main(int argc, char **argv)
{
    struct io_uring_params p = {0};
    static char data[N][512];
    if (argc < 3)
        return 2;
    way = argv[1];
    int fd = open(argv[2], O_RDWR), ring = (int)do_call(SYS_io_uring_setup, 8, (long)&p, 0, 0, 0, 0);
    if (fd < 0 || ring < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
        return 77;
    size_t bytes = p.sq_off.array + p.sq_entries * 4, more = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    bytes = bytes > more ? bytes : more;
    char *q = (char *)do_call(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqe = (void *)do_call(SYS_mmap, 0, (long)(p.sq_entries * sizeof(*sqe)), PROT_READ | PROT_WRITE,
                                               MAP_SHARED, ring, IORING_OFF_SQES);
    unsigned *tail = (void *)(q + p.sq_off.tail), *array = (void *)(q + p.sq_off.array),
             *head = (void *)(q + p.cq_off.head), mask = p.sq_entries - 1;
    for (int i = 0; i < 10; i++) {
        unsigned t = *tail;
        for (unsigned k = 0; k < N; k++) {
            unsigned at = N - 1 - k; /* another order */
            sqe[at] = (struct io_uring_sqe){.opcode = k < 4 ? IORING_OP_READ : IORING_OP_WRITE,
                                            .fd = fd,
                                            .addr = (uintptr_t)data[k],
                                            .len = k < 4 ? 512 : 100,
                                            .off = k * 512,
                                            .user_data = k};
            array[t++ & mask] = at;
        }
        __atomic_store_n(tail, t, __ATOMIC_RELEASE);
        if (do_call(SYS_io_uring_enter, ring, N, N, IORING_ENTER_GETEVENTS, 0, 0) != N)
            return 1;
        __atomic_store_n(head, *head + N, __ATOMIC_RELEASE);
    }
    madvise(q, bytes, MADV_DONTFORK);
    pid_t pid = fork();
    if (!pid)
        _exit(do_call(SYS_io_uring_enter, ring, 0, 0, 0, 0, 0) != 0);
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        return 1;
    do_call(SYS_munmap, (long)q, (long)bytes, 0, 0, 0, 0);
    return do_call(SYS_io_uring_enter, ring, 0, 0, 0, 0, 0) != 0;
}
