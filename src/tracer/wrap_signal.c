/* What keeps stray system calls (tracer_strays.c) working in programs that block signals, set handlers and start
 * threads: the real mask never has SIGSYS, its real action stays ours, and new threads are armed. The program sees what
 * it set. Without MILLRACE_TRACE_STRAYS every function here is a plain call of the real one. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_strays.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <threads.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

/* ---- masks ---- */

static bool has(const sigset_t *m)
{
    return m && sigismember(m, SIGSYS) == 1;
}

/* The mask itself, or a copy of it without SIGSYS. */
const sigset_t *mr_wait_mask(const sigset_t *m, sigset_t *space)
{
    if (!mr_strays_on() || !has(m))
        return m;
    *space = *m;
    sigdelset(space, SIGSYS);
    return space;
}

typedef int mask_fn(int how, const sigset_t *set, sigset_t *old);

static int change_mask(mask_fn *real, int how, const sigset_t *set, sigset_t *old)
{
    sigset_t space;
    if (!mr_strays_on())
        return real(how, set, old);
    bool before = mr_strays_blocked(), in = has(set), any = set != NULL;
    int r = real(how, how == SIG_UNBLOCK ? set : mr_wait_mask(set, &space), old);
    if (r)
        return r;
    if (old && before)
        sigaddset(old, SIGSYS);
    if (any && (how == SIG_SETMASK || in))
        mr_strays_block(how == SIG_UNBLOCK ? false : in);
    return 0;
}

MR_REAL(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
MR_SYMBOL(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old))
{
    return change_mask(real_sigprocmask, how, set, old);
}

MR_REAL(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
MR_SYMBOL(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old))
{
    return change_mask(real_pthread_sigmask, how, set, old);
}

#define OLD_BIT (1 << (SIGSYS - 1))
MR_REAL(int, sigblock, (int m), (m))
MR_SYMBOL(int, sigblock, (int m))
{
    if (!mr_strays_on())
        return real_sigblock(m);
    bool before = m & OLD_BIT ? mr_strays_block(true) : mr_strays_blocked();
    return real_sigblock(m & ~OLD_BIT) | (before ? OLD_BIT : 0);
}

MR_REAL(int, sigsetmask, (int m), (m))
MR_SYMBOL(int, sigsetmask, (int m))
{
    if (!mr_strays_on())
        return real_sigsetmask(m);
    return real_sigsetmask(m & ~OLD_BIT) | (mr_strays_block(m & OLD_BIT) ? OLD_BIT : 0);
}

/* Handlers that run during these have their mask. */
MR_REAL(int, sigsuspend, (const sigset_t *m), (m))
MR_SYMBOL(int, sigsuspend, (const sigset_t *m))
{
    sigset_t space;
    return real_sigsuspend(mr_wait_mask(m, &space));
}

/* ---- handlers ---- */

MR_REAL(int, sigaction, (int number, const struct sigaction *act, struct sigaction *old), (number, act, old))
MR_SYMBOL(int, sigaction, (int number, const struct sigaction *act, struct sigaction *old))
{
    if (!mr_strays_used())
        return real_sigaction(number, act, old);
    if (number == SIGSYS)
        return mr_strays_action(act, old);
    struct sigaction copy;
    bool strip = act && has(&act->sa_mask), had = mr_strays_masked(number, -1), any = act != NULL;
    if (strip) {
        copy = *act;
        sigdelset(&copy.sa_mask, SIGSYS);
        act = &copy;
    }
    int r = real_sigaction(number, act, old);
    if (r == 0 && any)
        mr_strays_masked(number, strip);
    if (r == 0 && old && had)
        sigaddset(&old->sa_mask, SIGSYS);
    return r;
}
MR_ALIAS(__sigaction, sigaction)

typedef void (*handler)(int);

static handler set_handler(handler h, int flags)
{
    struct sigaction act = {.sa_handler = h, .sa_flags = flags}, old;
    mr_strays_action(&act, &old);
    return old.sa_handler;
}

#define MR_SIGNAL(name, flags)                                                                                         \
    MR_REAL(handler, name, (int number, handler h), (number, h))                                                       \
    MR_SYMBOL(handler, name, (int number, handler h))                                                                  \
    {                                                                                                                  \
        return number == SIGSYS && mr_strays_used() ? set_handler(h, flags) : real_##name(number, h);                  \
    }
MR_SIGNAL(signal, SA_RESTART)
MR_SIGNAL(bsd_signal, SA_RESTART)
MR_SIGNAL(sysv_signal, (int)(SA_RESETHAND | SA_NODEFER))
MR_SIGNAL(__sysv_signal, (int)(SA_RESETHAND | SA_NODEFER))

/* ---- threads and children ---- */

struct start {
    void *(*run)(void *);
    void *arg;
};

static struct start *start_new(void *(*run)(void *), void *arg)
{
    struct start *s = mr_map_pages(sizeof(*s));
    if (s)
        *s = (struct start){run, arg};
    return s;
}

static void *thread_main(void *p)
{
    struct start s = *(struct start *)p;
    mr_sys2(SYS_munmap, p, sizeof(s));
    mr_strays_thread();
    return s.run(s.arg);
}

MR_REAL(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *arg),
        (t, a, run, arg))
MR_SYMBOL(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *arg))
{
    struct start *s = mr_strays_used() ? start_new(run, arg) : NULL;
    if (!s)
        return real_pthread_create(t, a, run, arg);
    int r = real_pthread_create(t, a, thread_main, s);
    if (r)
        mr_sys2(SYS_munmap, s, sizeof(*s));
    return r;
}

static int thrd_main(void *p)
{
    struct start s = *(struct start *)p;
    mr_sys2(SYS_munmap, p, sizeof(s));
    mr_strays_thread();
    return ((int (*)(void *))(void *)s.run)(s.arg);
}

MR_REAL(int, thrd_create, (thrd_t * t, int (*run)(void *), void *arg), (t, run, arg))
MR_SYMBOL(int, thrd_create, (thrd_t * t, int (*run)(void *), void *arg))
{
    struct start *s = mr_strays_used() ? start_new((void *(*)(void *))(void *)run, arg) : NULL;
    if (!s)
        return real_thrd_create(t, run, arg);
    int r = real_thrd_create(t, thrd_main, s);
    if (r != thrd_success)
        mr_sys2(SYS_munmap, s, sizeof(*s));
    return r;
}

/* A process, not a thread: it has a copy of the words below. */
static int child_main(void *p)
{
    struct start s = *(struct start *)p;
    mr_after_fork();
    mr_strays_after_fork(SYS_clone, (const long[]){0});
    return ((int (*)(void *))(void *)s.run)(s.arg);
}

MR_REAL(int, clone, (int (*run)(void *), void *stack, int flags, void *arg, void *a, void *b, void *c),
        (run, stack, flags, arg, a, b, c))
MR_EXPORT int w_clone(int (*run)(void *), void *stack, int flags, void *arg, ...) __asm__("clone");
int w_clone(int (*run)(void *), void *stack, int flags, void *arg, ...)
{
    va_list ap;
    va_start(ap, arg);
    void *a = va_arg(ap, void *), *b = va_arg(ap, void *), *c = va_arg(ap, void *);
    va_end(ap);
    struct start s = {(void *(*)(void *))(void *)run, arg};
    bool on = mr_enter(), process = !(flags & CLONE_VM) && run && stack;
    uint64_t t0 = mr_stamp();
    int r = process ? real_clone(child_main, stack, flags, &s, a, b, c) : real_clone(run, stack, flags, arg, a, b, c);
    uint64_t t1 = mr_stamp();
    if (on)
        mr_put(t0, t1, CALL(clone), 0, 0, (uint64_t)(unsigned)flags, r == -1 ? -errno : r);
    return r;
}

MR_REAL(pid_t, _Fork, (void), ())
MR_SYMBOL(pid_t, _Fork, (void))
{
    bool on = mr_enter();
    uint64_t t0 = mr_stamp();
    pid_t r = real__Fork();
    uint64_t t1 = mr_stamp();
    if (r == 0) {
        mr_after_fork();
        mr_strays_after_fork(SYS_clone, (const long[]){0});
    } else if (on) {
        mr_put(t0, t1, CALL(fork), 0, 0, NONE, r == -1 ? -errno : r);
    }
    return r;
}

MR_REAL(int, prctl, (int op, long a, long b, long c, long d), (op, a, b, c, d))
MR_EXPORT int w_prctl(int op, ...) __asm__("prctl");
int w_prctl(int op, ...)
{
    va_list ap;
    va_start(ap, op);
    long a = va_arg(ap, long), b = va_arg(ap, long), c = va_arg(ap, long), d = va_arg(ap, long);
    va_end(ap);
    if (op == PR_SET_SECCOMP)
        mr_before_confine(a, (const void *)b);
    if (op == PR_SET_SYSCALL_USER_DISPATCH)
        mr_never_direct(); /* it may want to see all that does not come from the C library */
    int r = real_prctl(op, a, b, c, d);
    if (op == PR_SET_SYSCALL_USER_DISPATCH && r == 0)
        mr_strays_disowned();
    return r;
}
