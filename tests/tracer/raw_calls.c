/* System calls by instruction, for tests/cli/test_trace_strays.sh: raw_calls MODE FILE ROUNDS. Every mode checks that
 * the calls do what they do without a tracer; a round is openat, read, pread64, write, close of FILE and one getppid.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

static const char *file;
static long rounds;

static long raw(long n, long a, long b, long c, long d, long e)
{
    long r;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return r;
}

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            dprintf(2, "raw_calls: line %d: %s\n", __LINE__, #x);                                                      \
            _exit(9);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void *work(void *arg)
{
    char b[8];
    for (long i = 0; i < rounds; i++) {
        errno = 77;
        long fd = raw(SYS_openat, AT_FDCWD, (long)file, O_RDWR, 0, 0);
        CHECK(fd >= 0);
        CHECK(raw(SYS_read, fd, (long)b, 5, 0, 0) == 5);
        CHECK(raw(SYS_pread64, fd, (long)b, 3, 2, 0) == 3);
        CHECK(raw(SYS_write, fd, (long)"x", 1, 0, 0) == 1);
        CHECK(raw(SYS_close, fd, 0, 0, 0, 0) == 0);
        CHECK(raw(SYS_getppid, 0, 0, 0, 0, 0) == getppid());
        CHECK(raw(SYS_read, -1, (long)b, 1, 0, 0) == -EBADF);
        CHECK(errno == 77);
    }
    return arg;
}

static void threads(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&t[i], NULL, work, NULL));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}

static void forks(void)
{
    int status;
    for (int i = 0; i < 3; i++)
        if (!fork()) {
            work(NULL);
            _exit(5);
        }
    for (int i = 0; i < 3; i++)
        CHECK(wait(&status) > 0 && WEXITSTATUS(status) == 5);
    long pid = raw(SYS_fork, 0, 0, 0, 0, 0);
    if (!pid) {
        work(NULL);
        raw(SYS_exit_group, 6, 0, 0, 0, 0);
    }
    CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
    pid = raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
        work(NULL);
        _exit(7);
    }
    CHECK(waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
}

/* Everything is blocked, in the mask and in a handler's mask. */
static void in_handler(int s)
{
    (void)s;
    work(NULL);
}

static void blocked(void)
{
    sigset_t all, old, now;
    struct sigaction a = {.sa_handler = in_handler}, back;
    sigfillset(&all);
    CHECK(!sigprocmask(SIG_SETMASK, &all, &old) && !sigismember(&old, SIGSYS));
    work(NULL);
    CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &now) && sigismember(&now, SIGSYS) && sigismember(&now, SIGUSR1));
    CHECK(!sigprocmask(SIG_SETMASK, &old, &now) && sigismember(&now, SIGSYS));
    uint64_t mask = ~0ull, before = 0;
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, 8, 0) == 0 &&
          !(before & 1ull << (SIGSYS - 1)));
    work(NULL);
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, (long)&mask, 8, 0) == 0 && mask & 1ull << (SIGSYS - 1));
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, 8, 0, 8, 0) == -EFAULT);
    sigfillset(&a.sa_mask);
    CHECK(!sigaction(SIGUSR1, &a, NULL) && !raise(SIGUSR1));
    CHECK(!sigaction(SIGUSR1, NULL, &back) && sigismember(&back.sa_mask, SIGSYS));
}

/* Every way to wait with a mask, and to set one: a handler that makes raw calls runs meanwhile. */
static void ask_for_alarm(void)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

static int in_thread(void *arg)
{
    work(arg);
    return 3;
}

static void masks(void)
{
    sigset_t m;
    struct sigaction a = {.sa_handler = in_handler};
    struct epoll_event e;
    int fd = epoll_create1(0), r = 0;
    thrd_t t;
    sigemptyset(&m);
    sigaddset(&m, SIGALRM);
    CHECK(!sigprocmask(SIG_BLOCK, &m, NULL)); /* comes only while waiting */
    sigfillset(&m);
    sigdelset(&m, SIGALRM);
    CHECK(!sigaction(SIGALRM, &a, NULL));
    ask_for_alarm();
    CHECK(sigsuspend(&m) < 0 && errno == EINTR);
    ask_for_alarm();
    CHECK(ppoll(NULL, 0, NULL, &m) < 0 && errno == EINTR);
    ask_for_alarm();
    CHECK(pselect(0, NULL, NULL, NULL, NULL, &m) < 0 && errno == EINTR);
    ask_for_alarm();
    CHECK(epoll_pwait(fd, &e, 1, -1, &m) < 0 && errno == EINTR);
    ask_for_alarm();
    CHECK(epoll_pwait2(fd, &e, 1, NULL, &m) < 0 && errno == EINTR);
    ask_for_alarm();
    CHECK(raw(SYS_ppoll, 0, 0, 0, (long)&m, 8) == -EINTR);
    ask_for_alarm();
    CHECK(raw(SYS_rt_sigsuspend, (long)&m, 8, 0, 0, 0) == -EINTR);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    const int sys = 1 << (SIGSYS - 1);
    CHECK(!(sigblock(~0) & sys));
    work(NULL);
    CHECK(sigsetmask(0) & sys);
    CHECK(!(sigsetmask(0) & sys));
    CHECK(thrd_create(&t, in_thread, NULL) == thrd_success && thrd_join(t, &r) == thrd_success && r == 3);
    CHECK(sysv_signal(SIGSYS, SIG_IGN) == SIG_DFL && !raise(SIGSYS) && sysv_signal(SIGSYS, SIG_DFL) == SIG_IGN);
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) >= 0);
}

/* Signals interrupt raw calls as they do without a tracer. */
static int pipe_fd[2];
static volatile int got;
static void on_alarm(int s)
{
    (void)s;
    got++;
}
static void on_alarm_write(int s)
{
    (void)s;
    got++;
    raw(SYS_write, pipe_fd[1], (long)"y", 1, 0, 0);
}

static void interrupted(void)
{
    char c = 0;
    struct sigaction a = {.sa_handler = on_alarm};
    /* Again and again: a busy machine may take the first one before the call. */
    const struct itimerval soon = {.it_value = {.tv_usec = 30000}, .it_interval = {.tv_usec = 30000}}, never = {0};
    CHECK(!pipe(pipe_fd) && !sigaction(SIGALRM, &a, NULL));
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(raw(SYS_read, pipe_fd[0], (long)&c, 1, 0, 0) == -EINTR && got >= 1);
    setitimer(ITIMER_REAL, &never, NULL);
    got = 0;
    a = (struct sigaction){.sa_handler = on_alarm_write, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &a, NULL));
    setitimer(ITIMER_REAL, &soon, NULL);
    CHECK(raw(SYS_read, pipe_fd[0], (long)&c, 1, 0, 0) == 1 && c == 'y' && got >= 1);
    setitimer(ITIMER_REAL, &never, NULL);
    got = 0;
    setitimer(ITIMER_REAL, &soon, NULL); /* a call that is not recorded */
    CHECK(raw(SYS_pause, 0, 0, 0, 0, 0) == -EINTR && got >= 1);
    setitimer(ITIMER_REAL, &never, NULL);
}

/* The program's own SIGSYS. */
static volatile int own;
static void on_sys(int s, siginfo_t *i, void *u)
{
    (void)u;
    own += s == SIGSYS && i->si_pid == getpid();
}

static void own_handler(void)
{
    struct sigaction a = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO}, old;
    CHECK(!sigaction(SIGSYS, NULL, &old) && old.sa_handler == SIG_DFL);
    CHECK(!sigaction(SIGSYS, &a, NULL));
    work(NULL);
    CHECK(own == 0 && !kill(getpid(), SIGSYS) && own == 1);
    CHECK(!sigaction(SIGSYS, NULL, &old) && old.sa_sigaction == on_sys);
    sigset_t m;
    sigemptyset(&m);
    sigaddset(&m, SIGSYS);
    CHECK(!sigprocmask(SIG_BLOCK, &m, NULL) && !raise(SIGSYS) && own == 1);
    work(NULL);
    CHECK(!sigprocmask(SIG_UNBLOCK, &m, NULL) && own == 2);
    signal(SIGSYS, SIG_IGN);
    CHECK(!raise(SIGSYS) && own == 2 && signal(SIGSYS, SIG_DFL) == SIG_IGN);
}

/* On an alternate stack, from a stack that has no room for a signal frame: as a goroutine's. */
static void small_stack(void)
{
    stack_t s = {.ss_size = 32 << 10}, old;
    s.ss_sp = mmap(NULL, s.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!sigaltstack(&s, NULL));
    char *tiny = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(tiny, 4096, PROT_NONE);
    char *top = tiny + 4096 + 512; /* 512 bytes, then a fault */
    for (long i = 0; i < rounds; i++) {
        long fd = open(file, O_RDONLY), r;
        char b[8];
        __asm__ volatile("movq %%rsp, %%rbx\n\tmovq %[top], %%rsp\n\tsyscall\n\tmovq %%rbx, %%rsp"
                         : "=a"(r)
                         : "a"(SYS_read), "D"(fd), "S"(b), "d"(5), [top] "r"(top)
                         : "rbx", "rcx", "r11", "memory");
        CHECK(r == 5);
        close((int)fd);
    }
    /* Asked for by instruction: the stack is not in use. */
    CHECK(raw(SYS_sigaltstack, 0, (long)&old, 0, 0, 0) == 0 && old.ss_sp == s.ss_sp && !(old.ss_flags & SS_ONSTACK));
}

/* Registers other than rax, rcx and r11 survive. */
static void registers(void)
{
    double v[4] = {1.5, 2.5, 3.5, 4.5}, w[4];
    long keep[4];
    __asm__ volatile("movsd (%[v]), %%xmm2\n\tmovsd 8(%[v]), %%xmm15\n\tmovq $11, %%r12\n\tmovq $12, %%r13\n\tmovq "
                     "$13, %%r8\n\tmovq $14, %%r9\n\t"
                     "movl %[n], %%eax\n\tmovl $-1, %%edi\n\tsyscall\n\t"
                     "movsd %%xmm2, (%[w])\n\tmovsd %%xmm15, 8(%[w])\n\tmovq %%r12, (%[k])\n\tmovq %%r13, "
                     "8(%[k])\n\tmovq %%r8, 16(%[k])\n\tmovq %%r9, 24(%[k])"
                     :
                     : [v] "r"(v), [w] "r"(w), [k] "r"(keep), [n] "i"(SYS_fsync)
                     : "rax", "rcx", "r11", "rdi", "r8", "r9", "r12", "r13", "xmm2", "xmm15", "memory");
    CHECK(w[0] == 1.5 && w[1] == 2.5 && keep[0] == 11 && keep[1] == 12 && keep[2] == 13 && keep[3] == 14);
}

/* A thread by a raw clone, without thread-local storage: it runs on, unseen. */
static volatile int alive;
static void *raw_thread(void)
{
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long r, flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    __asm__ volatile("syscall\n\ttestq %%rax, %%rax\n\tjnz 1f\n\t"
                     "movl %[getpid], %%eax\n\tsyscall\n\tmovl $1, %[alive]\n\txorl %%edi, %%edi\n\tmovl %[exit], "
                     "%%eax\n\tsyscall\n\t1:"
                     : "=a"(r), [alive] "=m"(alive)
                     : "a"(SYS_clone), "D"(flags), "S"(stack + 65536),
                       "d"(0), [getpid] "i"(SYS_getpid), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    CHECK(r > 0);
    while (!alive)
        sched_yield();
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 3);
    file = argv[2];
    rounds = atol(argv[3]);
    const char *m = argv[1];
    if (!strcmp(m, "single"))
        work(NULL);
    else if (!strcmp(m, "threads"))
        threads();
    else if (!strcmp(m, "forks"))
        forks();
    else if (!strcmp(m, "exec"))
        raw(SYS_execve, (long)argv[0], (long)(char *[]){argv[0], "single", argv[2], argv[3], NULL}, (long)environ, 0,
            0);
    else if (!strcmp(m, "blocked"))
        blocked();
    else if (!strcmp(m, "masks"))
        masks();
    else if (!strcmp(m, "interrupted"))
        interrupted();
    else if (!strcmp(m, "own"))
        own_handler();
    else if (!strcmp(m, "small"))
        small_stack();
    else if (!strcmp(m, "registers"))
        registers();
    else if (!strcmp(m, "thread"))
        raw_thread();
    else
        return 2;
    return 0;
}
