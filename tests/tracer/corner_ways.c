/* Programs in corners, each chosen by its name, for tests/cli/test_trace_corners.sh: they end as they do without the
 * tracer, and what they do to FILE is known. Usage: corner_ways NAME FILE. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *file;

static void reads(int n)
{
    char b[8];
    int fd = open(file, O_RDONLY);
    for (int i = 0; i < n; i++)
        (void)!pread(fd, b, 1, 0);
    close(fd);
}

/* Inlined by the compiler: the library is called once per buffer. */
static int inlined(void)
{
    char name[4096];
    int c, n = 0;
    snprintf(name, sizeof(name), "%s.out", file);
    FILE *f = fopen(name, "w");
    for (int i = 0; i < 10000; i++)
        putc_unlocked('a' + i % 26, f);
    fclose(f);
    f = fopen(name, "r");
    while ((c = getc_unlocked(f)) != EOF)
        n++;
    fclose(f);
    return n != 10000;
}

/* Between calls that the library sees, in buffers that those have filled; what is on standard output when the program
 * ends is nobody's call. */
static int mixed(void)
{
    char name[4096], b[64];
    int n = 0, c;
    snprintf(name, sizeof(name), "%s.out", file);
    FILE *f = fopen(name, "w+");
    for (int i = 0; i < 5000; i++) {
        putc_unlocked('a', f);
        if (i % 100 == 0)
            n += fprintf(f, "%d\n", i);
        if (i % 700 == 0)
            fflush(NULL);
    }
    n += 5000;
    rewind(f);
    getc(f);
    for (int i = 1; i < n && (c = getc_unlocked(f)) != EOF; i++)
        if (i % 1000 == 0 && fgets(b, 10, f))
            i += (int)strlen(b);
    fclose(f);
    printf("%d", n);
    putchar_unlocked('\n');
    putchar_unlocked('\n');
    return 0;
}

/* A child in the parent's memory ends; the parent goes on. They share one thread's storage, so they take turns. */
static int in_memory(void *arg)
{
    usleep(20000);
    reads(5);
    if (arg)
        _exit(0);
    return 0;
}
static int shared(void)
{
    static char stack[2][65536] __attribute__((aligned(16)));
    for (int i = 0; i < 2; i++) {
        int status,
            pid = clone(in_memory, stack[i] + sizeof(stack[i]), CLONE_VM | CLONE_FILES | SIGCHLD, i ? stack : NULL);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    reads(40000);
    return 0;
}

/* Forbids itself nearly everything: by strict mode, or a filter set in one of two ways. */
static int confined(const char *how)
{
    struct sock_filter f[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog p = {sizeof(f) / sizeof(*f), f};
    char b[8];
    int fd = open(file, O_RDONLY);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 77;
    if (*how == 's'   ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
        : *how == 'p' ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)
                      : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
        return 77;
    for (int i = 0; i < 50000; i++)
        (void)!read(fd, b, 1);
    (void)!write(1, "free\n", 5);
    syscall(*how == 's' ? SYS_exit : SYS_exit_group, 0);
    return 1;
}

/* A permissive filter: tracing goes on. */
static int filtered(void)
{
    struct sock_filter f[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
                              BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog p = {sizeof(f) / sizeof(*f), f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
        return 77;
    reads(100);
    return 0;
}

/* Another thread changes the environment while system() runs. */
static void *changes(void *arg)
{
    char name[32];
    usleep(30000);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "CORNER%d", i);
        setenv(name, "x", 1);
    }
    return arg;
}
static int environment(void)
{
    pthread_t t;
    char name[32];
    int n = 0;
    pthread_create(&t, NULL, changes, NULL);
    int r = system("sleep 0.2");
    pthread_join(t, NULL);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "CORNER%d", i);
        n += getenv(name) != NULL;
    }
    return r || n != 200;
}

/* No more memory can be mapped: the calls are recorded with their file all the same. */
static int no_memory(void)
{
    struct rlimit none = {1, 1};
    if (setrlimit(RLIMIT_AS, &none))
        return 77;
    reads(3000);
    _exit(0);
}

/* One exec that fails, and one by number with an empty environment. */
static int execs(void)
{
    char *args[] = {"cat", (char *)file, NULL}, *none[] = {NULL};
    int status;
    execve("/nonexistent/program", args, none);
    execvp("no-such-program-anywhere", args);
    pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_execve, "/bin/cat", args, none);
        _exit(1);
    }
    return waitpid(pid, &status, 0) != pid || status;
}

/* All descriptors are in use when children begin. */
static int crowded(void)
{
    struct rlimit r;
    int fd = open(file, O_RDONLY), status = 1;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_max <= 64)
        return 77;
    r.rlim_cur = 64;
    if (setrlimit(RLIMIT_NOFILE, &r))
        return 77;
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    pid_t pid = fork();
    if (pid == 0) {
        char b;
        for (int i = 0; i < 50; i++)
            (void)!pread(fd, &b, 1, 0);
        _exit(getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur != 64 || open(file, O_RDONLY) >= 0);
    }
    return waitpid(pid, &status, 0) != pid || status;
}

/* A program that has thrown its environment away has children, and they start programs. */
static int no_environment(void)
{
    int status = 1;
    clearenv();
    pid_t pid = fork();
    if (pid == 0) {
        reads(7);
        execl("/proc/self/exe", "corner_ways", "reads", file, NULL);
        _exit(1);
    }
    return waitpid(pid, &status, 0) != pid || status;
}

static int only_reads(void)
{
    reads(11);
    return getenv("PATH") != NULL;
}

/* Children under a limit of file sizes that they may raise: it is as they have set it. */
static int small_files(void)
{
    struct rlimit r;
    int status = 1, fd = open(file, O_RDONLY);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = 1000;
    if (r.rlim_max < 1 << 30 || setrlimit(RLIMIT_FSIZE, &r))
        return 77;
    pid_t pid = fork();
    if (pid == 0) {
        char b;
        int memory = memfd_create("grows", 0);
        for (int i = 0; i < 50; i++)
            (void)!pread(fd, &b, 1, 0);
        getrlimit(RLIMIT_FSIZE, &r);
        _exit(r.rlim_cur != 1000 || ftruncate(memory, 1000) || ftruncate(memory, 1001) == 0 || errno != EFBIG);
    }
    return waitpid(pid, &status, 0) != pid || status;
}

/* A signal handler with little stack left: 5500 bytes above a page that must not be touched. It opens, reads by a
 * number the tracer does not know, and has children that do the same, start a program and end. */
#define LEFT 5500
static char *stack;
static volatile int stack_bad;
static int ended(pid_t pid)
{
    int status = 1;
    return waitpid(pid, &status, 0) != pid || status;
}
static __attribute__((noinline)) void with_little(volatile char *used)
{
    *used = 0;
    reads(3);
    char *args[] = {"true", NULL}, *none[] = {NULL};
    pid_t pid = fork();
    if (pid == 0) {
        reads(3);
        _exit(0);
    }
    stack_bad |= ended(pid);
    pid = vfork();
    if (pid == 0) {
        execvpe("true", args, none);
        _exit(1);
    }
    stack_bad |= ended(pid);
}
static void on_little(int number)
{
    (void)number;
    char here;
    with_little(__builtin_alloca((size_t)(&here - stack - LEFT)));
}
static int little_stack(void)
{
    size_t size = 65536;
    stack = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE))
        return 77;
    stack += 4096;
    const stack_t s = {.ss_sp = stack, .ss_size = size};
    struct sigaction act = {.sa_handler = on_little, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&s, NULL) || sigaction(SIGUSR1, &act, NULL))
        return 77;
    raise(SIGUSR1);
    return stack_bad;
}

/* The threads of a forked child make its first calls, all at once; then come those of the thread that forked, which has
 * calls of the parent behind it. */
static _Atomic int at_start;
static void *first_reads(void *arg)
{
    char b[8];
    for (at_start++; at_start < 2;) {
    }
    for (int i = 0; i < 50; i++)
        (void)!pread(*(int *)arg, b, 1, 0);
    return NULL;
}
static pid_t fork_by(int way)
{
    if (way % 3 == 1)
        return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#if __GLIBC_PREREQ(2, 34)
    if (way % 3 == 2)
        return _Fork();
#endif
    return fork();
}
static int together(void)
{
    int fd = open(file, O_RDONLY), bad = 0;
    char b[8];
    for (int i = 0; i < 42; i++) {
        (void)!pread(fd, b, 1, 0);
        pid_t pid = fork_by(i);
        if (pid == 0) {
            pthread_t t[2];
            for (int k = 0; k < 2; k++)
                if (pthread_create(&t[k], NULL, first_reads, &fd))
                    _exit(1);
            for (int k = 0; k < 2; k++)
                pthread_join(t[k], NULL);
            for (int k = 0; k < 20; k++)
                (void)!pread(fd, b, 1, 0);
            _exit(0);
        }
        for (int k = 0; k < 10; k++)
            (void)!pread(fd, b, 1, 0);
        bad |= ended(pid);
    }
    return bad;
}

/* A handler forks, wherever it interrupts the program; the child makes a call in it, and then goes on where the program
 * was. */
static volatile int forks, in_child;
static void fork_here(int number)
{
    int keep = errno;
    (void)number;
    if (!in_child && ++forks && fork() == 0) {
        in_child = 1;
        (void)!access("/", F_OK);
    }
    errno = keep;
}
static int handler(void)
{
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction act = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    int fd = open(file, O_RDONLY), status, bad = 0;
    long mine = 0;
    char b[8];
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (; forks < 300 && !in_child; mine++)
        (void)!pread(fd, b, 1, 0);
    setitimer(ITIMER_REAL, &never, NULL);
    if (in_child) {
        for (int k = 0; k < 50; k++)
            (void)!pread(fd, b, 2, 1);
        _exit(0);
    }
    while (wait(&status) > 0)
        bad |= status;
    printf("%ld %d\n", mine, 50 * forks);
    return bad != 0;
}

/* Many names before and after each of several execs that fail, and jumps out of a handler that interrupts their
 * keeping. */
static sigjmp_buf again;
static void jump(int number)
{
    siglongjmp(again, number);
}
static void many_names(int round)
{
    char name[64];
    for (int i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "/nonexistent/%d/%d", round, i);
        (void)!access(name, F_OK);
    }
}
static int names(void)
{
    char *args[] = {"none", NULL}, *none[] = {NULL};
    if (chmod(file, 0700)) /* there, but no program */
        return 77;
    for (int i = 0; i < 6; i++) {
        many_names(i);
        execve(file, args, none);
    }
    signal(SIGALRM, jump);
    for (volatile int i = 0; i < 200; i++) {
        const struct itimerval soon = {.it_value = {.tv_usec = 200 + i * 7}};
        if (sigsetjmp(again, 1))
            continue;
        setitimer(ITIMER_REAL, &soon, NULL);
        for (int k = 0;; k++)
            many_names(1000 + k);
    }
    reads(7);
    return 0;
}

/* Calls for data that fail in a program of one thread: what came of them, errno, and that a success leaves it alone. */
static int refused(void)
{
    char b[16], fifo[4096];
    snprintf(fifo, sizeof(fifo), "%s.fifo", file);
    int data = open(file, O_RDONLY), full = open("/dev/full", O_WRONLY), folder = open("/", O_RDONLY);
    int pipe = mkfifo(fifo, 0600) ? -1 : open(fifo, O_RDWR);
    long long r;
#define SAY(call) (errno = 0, r = (call), printf("%s %lld %d\n", #call, r, errno))
    for (int i = 0; i < 3; i++) { /* the second and third time they are like the one before */
        SAY(read(data, (void *)8, 4));
        SAY(pread(data, b, 4, -1));
        SAY(pread(pipe, b, 4, 0));
        SAY(pwrite(data, b, 4, 0));
        SAY(write(full, b, 4));
        SAY(read(folder, b, 4));
        SAY(lseek(pipe, 0, SEEK_SET));
        SAY(lseek(data, -1, SEEK_SET));
        SAY(lseek(data, 3, 77));
        SAY(lseek(data, 1, SEEK_SET));
        SAY(pread(data, b, 2, 1));
        SAY(pread(data, b, 100, 3));
    }
    unlink(fifo);
    errno = 1234;
    return pread(data, b, 2, 0) != 2 || lseek(data, 1, SEEK_SET) != 1 || errno != 1234;
}

static void say_cancelled(void *unused)
{
    (void)unused;
    write(1, "cancelled\n", 10);
}

/* A program of one thread may cancel itself: reading ends it. */
static int cancelled(void)
{
    char b[4];
    int fd = open(file, O_RDONLY);
    bool failed = read(fd, b, 1) != 1;
    pthread_cleanup_push(say_cancelled, NULL);
    pthread_cancel(pthread_self());
    failed |= read(fd, b, 1) != 1;
    pthread_cleanup_pop(0);
    return failed ? 3 : 4;
}

/* A program that has the kernel tell it of system calls from outside the C library: reading must not be one. */
static int dispatched(void)
{
    char line[512], b[4];
    static char selector;
    unsigned long from = 0, to = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, " r-xp ") && strstr(line, "/libc.so.6"))
            sscanf(line, "%lx-%lx", &from, &to);
    int fd = open(file, O_RDONLY);
    if (!to || prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, from, to - from, &selector))
        return 77;
    selector = 1; /* block: SIGSYS */
    bool failed = pread(fd, b, 1, 0) != 1 || read(fd, b, 1) != 1 || lseek(fd, 0, SEEK_SET) != 0;
    selector = 0;
    prctl(59, 0, 0, 0, 0);
    return failed;
}

/* A program that locks its memory, with a limit: the tracer's memory is not its own. With more threads than there are
 * rings so far. */
static pthread_barrier_t all_there;
static void *read_locked(void *unused)
{
    pthread_barrier_wait(&all_there);
    reads(10);
    pthread_barrier_wait(&all_there);
    return unused;
}

static long kib_of(const char *what)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && kib < 0 && fgets(line, sizeof(line), f))
        if (!strncmp(line, what, strlen(what)))
            kib = atol(line + strlen(what));
    if (f)
        fclose(f);
    return kib;
}

static int locked(void)
{
    struct rlimit limit;
    unsigned header[2] = {0x20080522, 0}, data[6]; /* of capget, version 3 */
    pthread_t thread[20];
    pthread_attr_t little;
    if (syscall(SYS_capget, header, data))
        return 77;
    data[0] &= ~(1u << 14); /* CAP_IPC_LOCK */
    getrlimit(RLIMIT_MEMLOCK, &limit);
    limit.rlim_cur = limit.rlim_max < 64 << 20 ? limit.rlim_max : 64 << 20;
    if (limit.rlim_cur < 8 << 20 || syscall(SYS_capset, header, data) || setrlimit(RLIMIT_MEMLOCK, &limit))
        return 77;
    if (mlockall(MCL_CURRENT | MCL_FUTURE))
        return 1;
    bool failed = kib_of("VmLck:") < 1000;
    int status = 1;
    pid_t pid = fork(); /* with its parent's memory, but not its locks */
    if (pid == 0) {
        reads(5);
        _exit(mlockall(MCL_CURRENT) != 0 || kib_of("VmLck:") < 1000);
    }
    failed |= waitpid(pid, &status, 0) != pid || status;
    pthread_barrier_init(&all_there, NULL, 20);
    pthread_attr_init(&little);
    pthread_attr_setstacksize(&little, 128 << 10);
    for (int i = 0; i < 20; i++)
        failed |= pthread_create(&thread[i], &little, read_locked, NULL) != 0;
    for (int i = 0; i < 20 && !failed; i++)
        pthread_join(thread[i], NULL);
    failed |= kib_of("RssShmem:") > 64 << 10;
    failed |= mlockall(MCL_CURRENT) != 0 ||
              syscall(SYS_mlockall, (long)MCL_CURRENT) != 0; /* what is mapped from now on is free again */
    long before = kib_of("VmLck:");
    failed |=
        mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED || kib_of("VmLck:") != before;
    failed |= munlockall() != 0 || kib_of("VmLck:") != 0 || mlockall(0) == 0 || errno != EINVAL ||
              mlockall(MCL_CURRENT | 1 << 10) == 0 || errno != EINVAL;
    limit.rlim_cur = 4096;
    failed |=
        setrlimit(RLIMIT_MEMLOCK, &limit) || mlockall(MCL_CURRENT) == 0 || errno != ENOMEM || kib_of("VmLck:") != 0;
    return failed;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const char *name = argv[1];
    file = argv[2];
    return !strcmp(name, "inlined")       ? inlined()
           : !strcmp(name, "mixed")       ? mixed()
           : !strcmp(name, "shared")      ? shared()
           : !strcmp(name, "strict")      ? confined("s")
           : !strcmp(name, "filter")      ? confined("p")
           : !strcmp(name, "filter2")     ? confined("y")
           : !strcmp(name, "filtered")    ? filtered()
           : !strcmp(name, "environment") ? environment()
           : !strcmp(name, "nomemory")    ? no_memory()
           : !strcmp(name, "execs")       ? execs()
           : !strcmp(name, "crowded")     ? crowded()
           : !strcmp(name, "smallfiles")  ? small_files()
           : !strcmp(name, "cleared")     ? no_environment()
           : !strcmp(name, "reads")       ? only_reads()
           : !strcmp(name, "stack")       ? little_stack()
           : !strcmp(name, "together")    ? together()
           : !strcmp(name, "names")       ? names()
           : !strcmp(name, "handler")     ? handler()
           : !strcmp(name, "refused")     ? refused()
           : !strcmp(name, "cancelled")   ? cancelled()
           : !strcmp(name, "dispatched")  ? dispatched()
           : !strcmp(name, "locked")      ? locked()
                                          : 2;
}
