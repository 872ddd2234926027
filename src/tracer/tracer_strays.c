/* Stray system calls, seen by Syscall User Dispatch (Linux 5.11, x86-64): the kernel sends SIGSYS for a system call
 * whose instruction lies outside one address range; the handler records the call and makes it from inside the range.
 * Chosen over a seccomp filter because it ends with exec and is not inherited: a filter stays for ever and would kill
 * every static or setuid program that is started.
 *
 * The range holds the C library's text, whose calls are recorded by the wrappers, and the gate: a page of ours beside
 * it, or, where there is no room, the unused end of that text's last page. As the last choice the range also covers
 * libraries that lie between.
 *
 *   gate: entry 0         syscall; ret               the tracer's own calls (mr_gate)
 *         entries 1, 2    mov $15, %rax; syscall     return from our handler
 *         the rest        syscall; jmp *slot         "in place": a call that is not recorded runs on the program's
 * stack with the program's registers, as if nothing had happened; one entry per calling address
 *
 * Invariants
 *  S1. Every system call instruction of the tracer lies in the gate (mr_sys6), so the handler never interrupts itself.
 *  S2. A forced SIGSYS that is blocked or has no handler ends the program. So the real mask never has it (wrap_signal.c
 * and the handler strip it and remember what the program believes), and its real action is always ours. S3. The handler
 * runs with the mask of the interrupted code, on the program's alternate stack where there is one (goroutine stacks are
 * too small for a signal frame): a signal interrupts the call it makes as it would have interrupted the original. S4.
 * Recording needs more stack than a signal stack may have left: it runs on a stack of our own per thread. Signals are
 * blocked then: the kernel would take an alternate stack for free, and a handler could leave ours by longjmp. S5.
 * Threads are armed that have the C library's thread-local storage: made by pthread_create, thrd_create or as the first
 * thread of a process. Others, made by a raw clone, are left alone. */
#include "tracer/tracer_strays.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

__thread int mr_strays_silent __attribute__((tls_model("initial-exec")));

#if defined(__x86_64__)

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#define DISPATCH_OFF 0
#define DISPATCH_ON 1
#define ALLOW 0
#define BLOCK 1
#define RESTORER 0x04000000u /* SA_RESTORER */
#define PAGE 4096u
#define ENTRY 8u
#define ENTRIES (PAGE / ENTRY)
#define FIRST_ENTRY 3u
#define INT80_SHARE 8u /* one in so many entries is for 32-bit calls */
#define STACK_BYTES (256u << 10)
#define SIGSYS_BIT (1ull << (SIGSYS - 1))

__asm__(".text\n.hidden mr_plain_gate\n.globl mr_plain_gate\n.type mr_plain_gate, @function\nmr_plain_gate:\n    "
        "syscall\n    ret\n"
        ".size mr_plain_gate, .-mr_plain_gate\n");
extern MR_HIDDEN const char mr_plain_gate[];
const void *mr_gate = mr_plain_gate;

struct kernel_action {
    void *handler;
    uint64_t flags;
    void *restorer;
    uint64_t mask;
};

static uint8_t *gate; /* NULL: not on */
static unsigned entries;
static _Atomic uintptr_t *slots; /* by entry: where it returns to */
static uintptr_t range_from, range_to;
static volatile char selector = BLOCK;
static _Atomic uint64_t masked;     /* by signal: its handler's mask had SIGSYS */
static struct kernel_action theirs; /* what the program set for SIGSYS */
static _Atomic uint32_t theirs_lock;
static pthread_key_t end_key;

static __thread struct {
    uint8_t *stack;
    uint32_t ends; /* rounds of the thread's destructors seen */
    bool armed, on_stack, blocked, pending;
} st __attribute__((tls_model("initial-exec")));

bool mr_strays_on(void)
{
    return st.armed;
}

bool mr_strays_used(void)
{
    return gate;
}

/* ---- the gate ---- */

struct layout {
    uintptr_t text_from, text_to; /* of the C library */
    uintptr_t hole;               /* two free pages that no code lies between and that text */
    uintptr_t far_hole;           /* the same, with other libraries between */
};

/* A line of /proc/self/maps: "from-to rwxp ...". */
static bool read_line(const char *p, uintptr_t *from, uintptr_t *to, bool *code)
{
    uintptr_t v[2] = {0};
    for (int i = 0; i < 2; i++, p++)
        for (; *p != '-' && *p != ' '; p++) {
            if (!*p || *p == '\n')
                return false;
            v[i] = v[i] * 16 + (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
        }
    *from = v[0];
    *to = v[1];
    *code = p[2] == 'x';
    return true;
}

/* The nearest free pages below the text that hold `inside`, else above. */
static void find_hole(const char *maps, uintptr_t inside, struct layout *l)
{
    uintptr_t end = 0;
    bool code_above = false;
    for (const char *p = maps; *p;) {
        uintptr_t from, to;
        bool code;
        if (!read_line(p, &from, &to, &code) || from >= 1ull << 47)
            break;
        if (end && from - end >= 2 * PAGE) {
            if (!l->text_from)
                l->hole = l->far_hole = from - 2 * PAGE;
            else if (!l->hole && !code_above)
                l->hole = end;
        }
        if (code && inside >= from && inside < to) {
            l->text_from = from;
            l->text_to = to;
        } else if (code && !l->text_from) {
            l->hole = 0;
        } else if (code) {
            code_above = true;
        }
        end = to;
        const char *next = strchr(p, '\n');
        if (!next)
            break;
        p = next + 1;
    }
}

static bool read_layout(const void *inside, struct layout *l)
{
    size_t cap = 4u << 20, n = 0;
    char *text = mr_map_pages(cap);
    long fd = text ? mr_sys4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0) : -1, r;
    memset(l, 0, sizeof(*l));
    if (fd >= 0) {
        while (n + 1 < cap && (r = mr_sys3(SYS_read, fd, text + n, cap - 1 - n)) > 0)
            n += (size_t)r;
        find_hole(text, (uintptr_t)inside, l);
        mr_sys1(SYS_close, fd);
    }
    if (text)
        mr_sys2(SYS_munmap, text, cap);
    return l->text_from;
}

/* The code of a gate that will lie at `at`, with `n` entries and these slots. False if the slots are too far away. */
static bool write_code(uint8_t *code, uintptr_t at, unsigned n, const _Atomic uintptr_t *slot)
{
    static const uint8_t call[] = {0x0f, 0x05, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
    static const uint8_t back[] = {0x48, 0xc7, 0xc0, 0x0f, 0,    0,    0,    0x0f,
                                   0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
    for (unsigned i = FIRST_ENTRY; i < n; i++) {
        int64_t distance = (int64_t)(uintptr_t)&slot[i] - (int64_t)(at + (i + 1) * ENTRY);
        uint8_t in_place[ENTRY] = {0x0f, 0x05, 0xff, 0x25};
        if (distance != (int32_t)distance)
            return false;
        if (i >= n - n / INT80_SHARE) {
            in_place[0] = 0xcd; /* int $0x80 */
            in_place[1] = 0x80;
        }
        for (int k = 0; k < 4; k++)
            in_place[4 + k] = (uint8_t)((uint32_t)distance >> 8 * k);
        memcpy(code + i * ENTRY, in_place, ENTRY);
    }
    memcpy(code, call, sizeof(call));
    memcpy(code + ENTRY, back, sizeof(back));
    return true;
}

static bool use_gate(uintptr_t at, unsigned n, _Atomic uintptr_t *slot, uintptr_t from, uintptr_t to)
{
    gate = (uint8_t *)at;
    entries = n;
    slots = slot;
    range_from = MR_MIN(at, from);
    range_to = MR_MAX(at + n * ENTRY, to);
    return true;
}

/* Two pages of our own. */
static bool gate_in_hole(uintptr_t hole, const struct layout *l)
{
    if (!hole)
        return false;
    long p = mr_sys6(SYS_mmap, (long)hole, 2 * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != (long)hole)
        return false;
    _Atomic uintptr_t *slot = (void *)(p + PAGE);
    if (!write_code((uint8_t *)p, hole, ENTRIES, slot) || mr_sys3(SYS_mprotect, p, PAGE, PROT_READ | PROT_EXEC) < 0) {
        mr_sys2(SYS_munmap, p, 2 * PAGE);
        return false;
    }
    return use_gate(hole, ENTRIES, slot, l->text_from, l->text_to);
}

/* The unused end of the last page of the C library's text; our copy of that page only. */
static bool gate_in_padding(const struct layout *l, const uint8_t *base)
{
    static _Atomic uintptr_t slot[ENTRIES];
    static uint8_t code[PAGE];
    const Elf64_Ehdr *e = (const void *)base;
    const Elf64_Phdr *h = (const void *)(base + e->e_phoff);
    uintptr_t end = 0;
    for (unsigned i = 0; i < e->e_phnum; i++)
        if (h[i].p_type == PT_LOAD && h[i].p_flags & PF_X && (uintptr_t)base + h[i].p_vaddr >= l->text_from)
            end = MR_ALIGN_UP((uintptr_t)base + h[i].p_vaddr + h[i].p_memsz, 16);
    unsigned n = end && end < l->text_to && l->text_to - end < PAGE ? (unsigned)((l->text_to - end) / ENTRY) : 0;
    for (unsigned i = 0; i < n * ENTRY; i++)
        if (((const uint8_t *)end)[i])
            n = 0;
    if (n < 64 || !write_code(code, end, n, slot))
        return false;
    long fd = mr_sys4(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long r = mr_sys4(SYS_pwrite64, fd, code, n * ENTRY, end);
    mr_sys1(SYS_close, fd);
    return r == (long)(n * ENTRY) && !memcmp((const void *)end, code, n * ENTRY) &&
           use_gate(end, n, slot, l->text_from, l->text_to);
}

static bool make_gate(void)
{
    struct layout l;
    Dl_info info;
    void *inside = dlsym(RTLD_NEXT, "gnu_get_libc_version");
    if (!inside || !dladdr(inside, &info) || !read_layout(inside, &l))
        return false;
    return gate_in_hole(l.hole, &l) || gate_in_padding(&l, info.dli_fbase) || gate_in_hole(l.far_hole, &l);
}

/* The entry that returns to `back`; NULL if all are taken. */
static const uint8_t *entry_for(uintptr_t back, bool int80)
{
    unsigned old = entries / INT80_SHARE, first = int80 ? entries - old : FIRST_ENTRY,
             n = int80 ? old : entries - old - FIRST_ENTRY;
    unsigned at = (unsigned)(back * 0x9e3779b97f4a7c15ull >> 40) % n;
    for (unsigned i = 0; i < n; i++, at = (at + 1) % n) {
        uintptr_t empty = 0;
        if (atomic_load_explicit(&slots[first + at], memory_order_relaxed) == back ||
            atomic_compare_exchange_strong(&slots[first + at], &empty, back) || empty == back)
            return gate + (first + at) * ENTRY;
    }
    return NULL;
}

/* ---- arming ---- */

static long set_action(const struct kernel_action *act, struct kernel_action *old)
{
    return mr_sys4(SYS_rt_sigaction, SIGSYS, act, old, 8);
}

static void thread_end(void *arg)
{
    if (++st.ends < 4) { /* other destructors come after this one: stay until the last round */
        pthread_setspecific(end_key, arg);
        return;
    }
    mr_sys6(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, 0, 0);
    st.armed = false;
    if (st.stack)
        mr_sys2(SYS_munmap, st.stack, STACK_BYTES);
    st.stack = NULL;
}

static long arm(void)
{
    uint64_t bit = SIGSYS_BIT, old = 0;
    mr_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &bit, &old, 8);
    if (old & bit)
        st.blocked = true;
    if (!st.stack)
        st.stack = mr_map_pages(STACK_BYTES);
    long rc = mr_sys6(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_ON, (long)range_from,
                      (long)(range_to - range_from), (long)&selector, 0);
    st.armed = rc == 0 && st.stack;
    return st.stack ? rc : -ENOMEM;
}

void mr_strays_thread(void)
{
    if (!gate)
        return;
    int keep = errno;
    st.on_stack = false;
    if (arm() == 0)
        pthread_setspecific(end_key, st.stack);
    errno = keep;
}

/* What pthread_atfork calls; by this name it need not be there (mr_leave_foreign). */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *module)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static void in_child(void)
{
    if (gate && st.armed) {
        st.on_stack = false;
        arm();
    }
}

static bool has_own_memory(long number, const long *a)
{
    if (number == SYS_fork)
        return true;
    if (number == SYS_clone)
        return !(a[0] & CLONE_VM);
    return number == SYS_clone3 && !(*(const uint64_t *)a[0] & CLONE_VM);
}

void mr_strays_after_fork(long number, const long *a)
{
    if ((number == SYS_fork || number == SYS_clone || number == SYS_clone3) && gate && has_own_memory(number, a))
        in_child();
}

void mr_strays_disowned(void)
{
    st.armed = false;
}

/* ---- what the program believes ---- */

bool mr_strays_blocked(void)
{
    return st.blocked;
}

bool mr_strays_block(bool blocked)
{
    bool before = st.blocked;
    st.blocked = blocked;
    if (!blocked && st.pending) {
        st.pending = false;
        mr_sys3(SYS_tgkill, mr_sys0(SYS_getpid), mr_sys0(SYS_gettid), SIGSYS);
    }
    return before;
}

bool mr_strays_masked(int number, int set)
{
    uint64_t bit = number > 0 && number < 65 ? 1ull << (number - 1) : 0;
    uint64_t before = set < 0 ? atomic_load(&masked)
                      : set   ? atomic_fetch_or(&masked, bit)
                              : atomic_fetch_and(&masked, ~bit);
    return before & bit;
}

int mr_strays_action(const struct sigaction *act, struct sigaction *old)
{
    mr_spin_lock(&theirs_lock);
    struct kernel_action before = theirs;
    if (act) {
        theirs = (struct kernel_action){.handler = (void *)act->sa_handler, .flags = (uint64_t)(uint32_t)act->sa_flags};
        memcpy(&theirs.mask, &act->sa_mask, 8);
    }
    mr_spin_unlock(&theirs_lock);
    if (old) {
        memset(old, 0, sizeof(*old));
        *(void **)&old->sa_handler = before.handler;
        old->sa_flags = (int)before.flags;
        memcpy(&old->sa_mask, &before.mask, 8);
    }
    return 0;
}

/* A SIGSYS that is not about a stray call goes to the program. */
static void forward(int number, siginfo_t *info, void *context)
{
    mr_spin_lock(&theirs_lock);
    struct kernel_action a = theirs;
    if (a.flags & SA_RESETHAND && a.handler != SIG_IGN)
        theirs.handler = SIG_DFL;
    mr_spin_unlock(&theirs_lock);
    bool forced = info->si_code > 0;
    if (!forced && st.blocked) {
        st.pending = true;
        return;
    }
    if (a.handler == SIG_IGN && !forced)
        return;
    if (a.handler == SIG_DFL || a.handler == SIG_IGN) {
        const struct kernel_action end = {.handler = SIG_DFL};
        set_action(&end, NULL);
        mr_sys3(SYS_tgkill, mr_sys0(SYS_getpid), mr_sys0(SYS_gettid), SIGSYS);
    } else if (a.flags & SA_SIGINFO) {
        ((void (*)(int, siginfo_t *, void *))a.handler)(number, info, context);
    } else {
        ((void (*)(int))a.handler)(number);
    }
}

/* ---- the handler ---- */

struct trapped {
    ucontext_t *uc;
    long number, arg[6], result;
    struct mr_syscall call;
    struct mr_exec exec;
};

static greg_t *reg(struct trapped *t, int which)
{
    return &t->uc->uc_mcontext.gregs[which];
}

static long issue(const struct trapped *t)
{
    return mr_sys6(t->number, t->arg[0], t->arg[1], t->arg[2], t->arg[3], t->arg[4], t->arg[5]);
}

static void in_place(struct trapped *t, bool int80)
{
    const uint8_t *entry = entry_for((uintptr_t)*reg(t, REG_RIP), int80);
    if (entry)
        *reg(t, REG_RIP) = (greg_t)entry;
    else
        *reg(t, REG_RAX) = int80 ? -ENOSYS : issue(t);
}

/* Memory of the program that may not be there: 0 or -EFAULT, as the kernel would say. */
static long copy(bool in, void *ours, const void *at, size_t n)
{
    struct iovec one = {ours, n}, two = {(void *)at, n};
    long rc = mr_sys6(in ? SYS_process_vm_readv : SYS_process_vm_writev, mr_sys0(SYS_getpid), (long)&one, 1, (long)&two,
                      1, 0);
    if (rc == -EPERM || rc == -ENOSYS) { /* forbidden here: trust the program */
        memcpy(in ? ours : (void *)at, in ? at : ours, n);
        return 0;
    }
    return rc == (long)n ? 0 : -EFAULT;
}

static long raw_sigprocmask(struct trapped *t)
{
    const uint64_t *set = (void *)t->arg[1];
    uint64_t *old = (void *)t->arg[2], now;
    bool before = st.blocked;
    long r = issue(t);
    if (r)
        return r;
    if (old && before)
        *old |= SIGSYS_BIT;
    if (set) {
        mr_sys4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
        bool has = now & SIGSYS_BIT;
        /* The real mask never has it, so only a call that can take it away says that it is unblocked. */
        if (has || t->arg[0] == SIG_SETMASK)
            mr_strays_block(has);
        else if (t->arg[0] == SIG_UNBLOCK && *set & SIGSYS_BIT)
            mr_strays_block(false);
        now &= ~SIGSYS_BIT;
        memcpy(&t->uc->uc_sigmask, &now, 8);
    }
    return 0;
}

static long raw_sigaction(struct trapped *t)
{
    int number = (int)t->arg[0];
    const void *act = (void *)t->arg[1];
    void *old = (void *)t->arg[2];
    struct kernel_action now = {0}, before;
    if (t->arg[3] != 8)
        return -EINVAL;
    if (act && copy(true, &now, act, sizeof(now)))
        return -EFAULT;
    if (number == SIGSYS) {
        mr_spin_lock(&theirs_lock);
        before = theirs;
        if (act)
            theirs = now;
        mr_spin_unlock(&theirs_lock);
    } else {
        bool strip = act && now.mask & SIGSYS_BIT, had = mr_strays_masked(number, -1);
        now.mask &= ~SIGSYS_BIT;
        long r = mr_sys4(SYS_rt_sigaction, number, act ? &now : NULL, &before, 8);
        if (r)
            return r;
        if (act)
            mr_strays_masked(number, strip);
        if (had)
            before.mask |= SIGSYS_BIT;
    }
    return old ? copy(false, &before, old, sizeof(before)) : 0;
}

/* Waiting calls with a mask: handlers that run meanwhile have that mask. */
static bool strip_wait(struct trapped *t)
{
    static const struct {
        uint16_t number;
        uint8_t mask;
    } waits[] = {{SYS_rt_sigsuspend, 0}, {SYS_ppoll, 3}, {SYS_epoll_pwait, 4}, {SYS_epoll_pwait2, 4}};
    uint64_t mask;
    for (size_t i = 0; i < MR_ARRAY_LEN(waits); i++)
        if (waits[i].number == t->number && t->arg[waits[i].mask] &&
            !copy(true, &mask, (void *)t->arg[waits[i].mask], 8) && mask & SIGSYS_BIT) {
            mask &= ~SIGSYS_BIT;
            long given = t->arg[waits[i].mask];
            t->arg[waits[i].mask] = (long)&mask;
            *reg(t, REG_RAX) = issue(t);
            t->arg[waits[i].mask] = given;
            return true;
        }
    uint64_t pair[2];
    if (t->number == SYS_pselect6 && t->arg[5] && !copy(true, pair, (void *)t->arg[5], 16) && pair[0] &&
        !copy(true, &mask, (void *)pair[0], 8) && mask & SIGSYS_BIT) {
        mask &= ~SIGSYS_BIT;
        pair[0] = (uint64_t)&mask;
        long given = t->arg[5];
        t->arg[5] = (long)pair;
        *reg(t, REG_RAX) = issue(t);
        t->arg[5] = given;
        return true;
    }
    return false;
}

static void record(void *arg)
{
    struct trapped *t = arg;
    if (t->result < 0 && t->result > -4096) {
        errno = (int)-t->result;
        mr_syscall_end(&t->call, -1, true);
    } else {
        mr_syscall_end(&t->call, t->result, true);
    }
}

static void on_own_stack(void (*f)(void *), void *arg)
{
    void *top = st.stack + STACK_BYTES;
    __asm__ volatile("movq %%rsp, %%rbx\n\tmovq %[top], %%rsp\n\tcall *%[f]\n\tmovq %%rbx, %%rsp"
                     : "+D"(arg)
                     : [top] "r"(top), [f] "r"(f)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1",
                       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
                       "xmm13", "xmm14", "xmm15");
}

static void with_stack(void (*f)(void *), void *arg)
{
    /* Where a signal interrupted the tracer, addresses on the stack tell whether it was left by longjmp: stay on it. */
    if (st.on_stack || mr_tls.busy) {
        f(arg);
        return;
    }
    uint64_t before = mr_signals_block();
    st.on_stack = true;
    on_own_stack(f, arg);
    st.on_stack = false;
    mr_signals_restore(before);
}

static void enter(void *arg)
{
    *(bool *)arg = mr_enter();
}

static void begin_call(void *arg)
{
    struct trapped *t = arg;
    mr_syscall_begin(&t->call, t->number, t->arg);
}

/* True if the call is one that is recorded. */
static bool begins(struct trapped *t)
{
    if (!mr_syscall_is_deep(t->number))
        return mr_syscall_begin(&t->call, t->number, t->arg);
    with_stack(begin_call, t);
    return true;
}

static void put_process(void *arg)
{
    const struct trapped *t = arg;
    if (mr_enter())
        mr_put(t->call.t0, mr_stamp(), t->number == SYS_fork ? MR_CALL_sys_fork : MR_CALL_sys_clone, 0, 0, MR_NO_OFFSET,
               t->result);
}

static void before_exec(void *arg)
{
    struct trapped *t = arg;
    bool at = t->number == SYS_execveat;
    uint32_t file =
        mr_enter() ? mr_path_failed(MR_UNREAD, at ? (int)t->arg[0] : AT_FDCWD, (const char *)t->arg[at]) : 0;
    mr_exec_begin(&t->exec, at ? MR_CALL_sys_execveat : MR_CALL_sys_execve, file, 0, true);
}

static void after_exec(void *arg)
{
    const struct trapped *t = arg;
    mr_exec_failed(&t->exec, (int)-t->result);
}

static void before_exit(void *arg)
{
    (void)arg;
    mr_before_exit();
}

/* Calls that concern the mechanism itself, or the process. True if done. */
static bool special(struct trapped *t)
{
    switch (t->number) {
    case SYS_rt_sigprocmask: *reg(t, REG_RAX) = raw_sigprocmask(t); return true;
    case SYS_rt_sigaction: *reg(t, REG_RAX) = raw_sigaction(t); return true;
    case SYS_rt_sigsuspend:
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2: return strip_wait(t);
    case SYS_fork:
    case SYS_clone:
    case SYS_clone3: {
        uint64_t a[6] = {0}; /* flags, pidfd, child_tid, parent_tid, exit_signal, stack */
        if (t->number == SYS_clone)
            a[0] = (uint64_t)t->arg[0], a[5] = (uint64_t)t->arg[1];
        else if (t->number == SYS_clone3 && copy(true, a, (void *)t->arg[0], sizeof(a)))
            return false;
        if (a[0] & CLONE_VM || a[5])
            return false; /* the child goes on elsewhere: in place */
        t->call.t0 = mr_stamp();
        t->result = issue(t);
        *reg(t, REG_RAX) = t->result;
        if (t->result == 0) {
            mr_after_fork();
            in_child();
        } else {
            with_stack(put_process, t);
        }
        return true;
    }
    case SYS_execve:
    case SYS_execveat:
        with_stack(before_exec, t);
        t->result = issue(t);
        *reg(t, REG_RAX) = t->result;
        with_stack(after_exec, t);
        return true;
    case SYS_exit_group: with_stack(before_exit, NULL); return false;
    case SYS_prctl:
        if (t->arg[0] == PR_SET_SYSCALL_USER_DISPATCH)
            st.armed = false;
        return false;
    case SYS_arch_prctl: /* another thread-local storage: the handler could no longer run */
        if (t->arg[0] == 0x1002) {
            mr_sys6(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, DISPATCH_OFF, 0, 0, 0, 0);
            st.armed = false;
        }
        return false;
    default: return false;
    }
}

static void on_sigsys(int number, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    const greg_t *g = uc->uc_mcontext.gregs;
    if (info->si_code != SYS_USER_DISPATCH || !st.armed) {
        forward(number, info, context);
        return;
    }
    int keep = errno;
    bool on = false;
    struct trapped t = {.uc = uc,
                        .number = (int)g[REG_RAX],
                        .arg = {g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10], g[REG_R8], g[REG_R9]}};
    if (atomic_load_explicit(&mr_off, memory_order_relaxed))
        selector = ALLOW; /* tracing has ended */
    if (info->si_arch != AUDIT_ARCH_X86_64) {
        in_place(&t, true);
    } else if (special(&t)) {
        /* done */
    } else {
        if (mr_live.active)
            on = true;
        else
            with_stack(enter, &on);
        if (on && !mr_tls.vforked && !mr_strays_silent && begins(&t)) {
            t.result = issue(&t);
            t.call.t1 = mr_stamp();
            uc->uc_mcontext.gregs[REG_RAX] = t.result;
            with_stack(record, &t);
        } else {
            in_place(&t, false);
        }
    }
    errno = keep;
}

/* Valgrind runs the program inside itself: the kernel would send SIGSYS for its own system calls. It answers this
 * sequence, which does nothing elsewhere. */
static bool inside_valgrind(void)
{
    const uint64_t running_on_valgrind[6] = {0x1001};
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(running_on_valgrind)
                     : "cc", "memory");
    return answer != 0;
}

void mr_strays_begin(void)
{
    if (inside_valgrind()) {
        mr_note_self('v');
        return;
    }
    if (!make_gate()) {
        mr_say_plain("stray system calls are not recorded: no room for code beside the C library");
        return;
    }
    const struct kernel_action ours = {.handler = (void *)on_sigsys,
                                       .flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | RESTORER,
                                       .restorer = gate + ENTRY};
    set_action(&ours, &theirs);
    long rc = arm();
    if (rc < 0) {
        set_action(&theirs, NULL);
        gate = NULL;
        if (!mr_config.collected) /* otherwise the command has said so */
            mr_say_plain("stray system calls are not recorded: this kernel has no Syscall User Dispatch (Linux 5.11 or "
                         "later, x86-64)");
        return;
    }
    mr_gate = gate;
    pthread_key_create(&end_key, thread_end);
    __register_atfork(NULL, NULL, in_child, __dso_handle);
}

#else /* other machines */

void mr_strays_begin(void)
{
    mr_say_plain("stray system calls are recorded on x86-64 only");
}
void mr_strays_thread(void)
{
}
void mr_strays_after_fork(long number, const long *arg)
{
    (void)number;
    (void)arg;
}
bool mr_strays_on(void)
{
    return false;
}
int mr_strays_action(const struct sigaction *act, struct sigaction *old)
{
    (void)act;
    (void)old;
    return -1;
}
bool mr_strays_block(bool blocked)
{
    (void)blocked;
    return false;
}
bool mr_strays_blocked(void)
{
    return false;
}
bool mr_strays_masked(int number, int set)
{
    (void)number;
    (void)set;
    return false;
}
void mr_strays_disowned(void)
{
}
bool mr_strays_used(void)
{
    return false;
}

#endif
