/* mlockall locks a program's memory, not ours: the rings are half a gigabyte of address space of which little is used.
 * Locked, all of it would be there, in shared memory, and a program with a limit of locked memory (RLIMIT_MEMLOCK)
 * would be refused where it is not without the tracer. So its mappings are locked one by one, without the rings.
 * Nothing is recorded: it is not I/O. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define ON_FAULT 4 /* MCL_ONFAULT; MLOCK_ONFAULT is 1 */

bool mr_future_locked;

/* A forked child has its parent's rings, too. Nobody else shares as many bytes. */
static bool is_ring(uint64_t bytes, bool is_shared)
{
    return is_shared && (bytes == MR_RING_SEGMENT_BYTES(0) || bytes == MR_RING_SEGMENT_BYTES(1));
}

typedef void each_mapping(uintptr_t from, uintptr_t to, void *arg);

/* The start of a line of /proc/self/maps, read byte by byte: FROM-TO rwxs */
struct line {
    uintptr_t from, to;
    enum { IN_FROM, IN_TO, AT_R, AT_W, AT_X, AT_SHARED, IN_REST } at;
};

static uintptr_t with_digit(uintptr_t v, char c)
{
    return v * 16 + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void look_at(struct line *l, char c, each_mapping *each, void *arg)
{
    bool is_kernels = (intptr_t)l->to < 0; /* its own page */
    if (c == '\n')
        *l = (struct line){0};
    else if (c == '-' && l->at == IN_FROM)
        l->at = IN_TO;
    else if (c == ' ' && l->at == IN_TO)
        l->at = AT_R;
    else if (l->at == IN_FROM)
        l->from = with_digit(l->from, c);
    else if (l->at == IN_TO)
        l->to = with_digit(l->to, c);
    else if (l->at == AT_SHARED && !is_kernels && !is_ring(l->to - l->from, c == 's'))
        each(l->from, l->to, arg);
    if (l->at >= AT_R && l->at < IN_REST && c != ' ')
        l->at++;
}

static bool for_each_mapping(each_mapping *each, void *arg)
{
    char b[512]; /* stacks may be small */
    struct line l = {0};
    long n, fd = mr_open(AT_FDCWD, "/proc/self/maps", O_RDONLY);
    if (fd < 0)
        return false;
    while ((n = mr_sys3(SYS_read, fd, b, sizeof(b))) > 0)
        for (long i = 0; i < n; i++)
            look_at(&l, b[i], each, arg);
    mr_sys1(SYS_close, fd);
    return n == 0;
}

static void add(uintptr_t from, uintptr_t to, void *sum)
{
    *(uint64_t *)sum += to - from;
}

/* As the kernel, which ignores what cannot be locked. */
static void lock_one(uintptr_t from, uintptr_t to, void *flags)
{
    mr_sys3(SYS_mlock2, from, to - from, *(int *)flags & ON_FAULT ? 1 : 0);
}

static bool may_lock_any(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    return mr_sys2(SYS_capget, &header, data) == 0 && data[0].effective & 1u << CAP_IPC_LOCK;
}

/* Whether the program would be allowed to, if the rings were not there. */
static bool would_be_allowed(void)
{
    struct rlimit limit = {0};
    uint64_t sum = 0;
    if (!for_each_mapping(add, &sum) || mr_sys4(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, &limit))
        return false;
    return sum <= limit.rlim_cur || may_lock_any();
}

MR_REAL(int, munlockall, (void), ())
MR_SYMBOL(int, munlockall, (void))
{
    mr_future_locked = false;
    return real_munlockall();
}

MR_REAL(int, mlockall, (int flags), (flags))
MR_SYMBOL(int, mlockall, (int flags))
{
    bool ours =
        mr_enter() && flags & MCL_CURRENT && !(flags & ~(MCL_CURRENT | MCL_FUTURE | ON_FAULT)) && would_be_allowed();
    if (!ours) {
        int r = real_mlockall(flags); /* a refusal, or no business of ours */
        mr_future_locked = r ? mr_future_locked : flags & MCL_FUTURE;
        return r;
    }
    if (flags & MCL_FUTURE) {
        int r = real_mlockall(flags & ~MCL_CURRENT);
        if (r)
            return r;
    } else if (mr_future_locked) {
        real_munlockall(); /* nothing else takes it back */
    }
    mr_future_locked = flags & MCL_FUTURE;
    for_each_mapping(lock_one, &flags);
    return 0;
}
