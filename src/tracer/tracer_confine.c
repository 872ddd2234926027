/* Programs that confine themselves by seccomp: a call of ours that their filter does not allow would end them. The
 * filter is therefore tried out, before it is installed, on every system call the tracer makes; if it refuses one,
 * tracing ends in this process with one line, and what was recorded is safe. A filter that looks at arguments is asked
 * with zeros. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#else
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

static const int needed[] = {SYS_openat,    SYS_read,           SYS_write,     SYS_close,       SYS_ftruncate,
                             SYS_mmap,      SYS_munmap,         SYS_madvise,   SYS_readlinkat,  SYS_unlinkat,
                             SYS_getcwd,    SYS_getpid,         SYS_gettid,    SYS_getppid,     SYS_uname,
                             SYS_prlimit64, SYS_rt_sigprocmask, SYS_nanosleep, SYS_sched_yield, SYS_faccessat,
                             SYS_getrandom, SYS_sigaltstack};

static bool jump(const struct sock_filter *f, uint32_t a, uint32_t x)
{
    uint32_t k = BPF_SRC(f->code) == BPF_X ? x : f->k;
    switch (BPF_OP(f->code)) {
    case BPF_JEQ: return a == k;
    case BPF_JGT: return a > k;
    case BPF_JGE: return a >= k;
    default: return a & k; /* BPF_JSET */
    }
}

static uint32_t compute(const struct sock_filter *f, uint32_t a, uint32_t x)
{
    uint32_t k = BPF_SRC(f->code) == BPF_X ? x : f->k;
    switch (BPF_OP(f->code)) {
    case BPF_ADD: return a + k;
    case BPF_SUB: return a - k;
    case BPF_MUL: return a * k;
    case BPF_DIV: return k ? a / k : 0;
    case BPF_AND: return a & k;
    case BPF_OR: return a | k;
    case BPF_XOR: return a ^ k;
    case BPF_LSH: return k < 32 ? a << k : 0;
    case BPF_RSH: return k < 32 ? a >> k : 0;
    default: return -a; /* BPF_NEG */
    }
}

static uint32_t load(const struct sock_filter *f, const struct seccomp_data *d, const uint32_t *memory)
{
    if (BPF_MODE(f->code) == BPF_ABS)
        return f->k + 4 <= sizeof(*d) ? *(const uint32_t *)(const void *)((const char *)d + (f->k & ~3u)) : 0;
    if (BPF_MODE(f->code) == BPF_LEN)
        return sizeof(*d);
    return BPF_MODE(f->code) == BPF_MEM ? memory[f->k % BPF_MEMWORDS] : f->k;
}

/* What the filter answers to a system call; the kernel's own rules of classic BPF: jumps go forward only, so it ends.
 */
static uint32_t answer(const struct sock_fprog *p, int number)
{
    const struct seccomp_data d = {.nr = number, .arch = OUR_ARCH};
    uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = {0};
    for (uint32_t pc = 0; pc < p->len; pc++) {
        const struct sock_filter *f = &p->filter[pc];
        switch (BPF_CLASS(f->code)) {
        case BPF_LD: a = load(f, &d, memory); break;
        case BPF_LDX: x = load(f, &d, memory); break;
        case BPF_ST: memory[f->k % BPF_MEMWORDS] = a; break;
        case BPF_STX: memory[f->k % BPF_MEMWORDS] = x; break;
        case BPF_ALU: a = compute(f, a, x); break;
        case BPF_JMP: pc += BPF_OP(f->code) == BPF_JA ? f->k : jump(f, a, x) ? f->jt : f->jf; break;
        case BPF_RET: return BPF_RVAL(f->code) == BPF_A ? a : f->k;
        default:
            if (BPF_MISCOP(f->code) == BPF_TAX)
                x = a;
            else
                a = x;
        }
    }
    return SECCOMP_RET_KILL_THREAD;
}

static bool can_read(const void *at)
{
    return at && mr_sys3(SYS_faccessat, AT_FDCWD, at, 0) != -EFAULT;
}

static bool allows(const struct sock_fprog *p, int number)
{
    uint32_t action = answer(p, number) & SECCOMP_RET_ACTION_FULL;
    return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

static bool lets_us_live(const struct sock_fprog *p)
{
    if (!can_read(p) || !can_read(p->filter))
        return true; /* the kernel will refuse it */
    for (size_t i = 0; i < MR_ARRAY_LEN(needed); i++)
        if (!allows(p, needed[i]))
            return false;
    if (!allows(p, SYS_getsockname) || !allows(p, SYS_getpeername))
        mr_names_ask_no_sockets(); /* they keep the kernel's names */
    return true;
}

/* Whether it matters which code makes a system call. */
static bool asks_where_from(const struct sock_fprog *p)
{
    for (uint32_t i = 0; can_read(p) && can_read(p->filter) && i < p->len; i++) {
        const struct sock_filter *f = &p->filter[i];
        if (f->code == (BPF_LD | BPF_W | BPF_ABS) &&
            f->k - offsetof(struct seccomp_data, instruction_pointer) < sizeof(uint64_t))
            return true;
    }
    return false;
}

void mr_before_confine(long mode, const void *filter)
{
    if (mode == SECCOMP_MODE_FILTER && asks_where_from(filter))
        mr_never_direct();
    if (!mr_live.alive || mr_tls.vforked || (mode == SECCOMP_MODE_FILTER && lets_us_live(filter)))
        return;
    mr_leaving();
    mr_stop_tracing("the program forbids itself system calls that tracing needs (seccomp)", 0);
}
