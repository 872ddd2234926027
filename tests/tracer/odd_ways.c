/* Programs that do unusual things, each a function: what it prints is the same with and without the tracer, and what it
 * does to its files is known, so that tests can count it in the trace. Usage: odd_ways FOLDER [NAME]. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
static char dir[PATH_MAX], name[PATH_MAX];
static const char *at(const char *n)
{
    snprintf(name, sizeof(name), "%s/%s", dir, n);
    return name;
}
static void put(const char *n, size_t bytes)
{
    int fd = open(at(n), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    char b[4096];
    memset(b, 'x', sizeof b);
    while (bytes) {
        size_t k = bytes < sizeof b ? bytes : sizeof b;
        if (write(fd, b, k) != (ssize_t)k)
            exit(9);
        bytes -= k;
    }
    close(fd);
}
static int status_of(pid_t p)
{
    int s = -1;
    waitpid(p, &s, 0);
    return s;
}

static void t_opath(void)
{
    put("opath", 10);
    int d = open(dir, O_PATH | O_DIRECTORY);
    int f = openat(d, "opath", O_PATH);
    char c;
    printf("O_PATH read %zd errno %d\n", read(f, &c, 1), errno);
    struct stat st;
    int looked = fstat(f, &st); /* not among the arguments: their order is anybody's */
    printf("fstat %d %ld\n", looked, (long)st.st_size);
    char p[64];
    snprintf(p, 64, "/proc/self/fd/%d", f);
    int g = open(p, O_RDONLY);
    printf("reopen read %zd\n", read(g, &c, 1));
    close(g);
    close(f);
    close(d);
}
static void t_tmpfile(void)
{
    int f = open(dir, O_TMPFILE | O_RDWR, 0600);
    printf("tmpfile %d write %zd\n", f >= 0, write(f, "abc", 3));
    char p[64];
    snprintf(p, 64, "/proc/self/fd/%d", f);
    unlink(at("linked"));
    printf("linkat %d\n", linkat(AT_FDCWD, p, AT_FDCWD, at("linked"), AT_SYMLINK_FOLLOW));
    close(f);
}
static void t_memfd(void)
{
    int f = memfd_create("mem \"x\"\n", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    printf("memfd write %zd\n", write(f, "hello", 5));
    char b[8];
    printf("pread %zd\n", pread(f, b, 8, 0));
    printf("seal %d\n", fcntl(f, F_ADD_SEALS, F_SEAL_WRITE));
    printf("write after seal %zd %d\n", write(f, "x", 1), errno);
    close(f);
}
static void t_dup2(void)
{
    put("d1", 10);
    put("d2", 20);
    int a = open(at("d1"), O_RDONLY), b = open(at("d2"), O_RDONLY);
    char buf[64];
    printf("a %zd\n", read(a, buf, 64));
    printf("dup2 %d\n", dup2(b, a) == a);
    printf("a now %zd\n", read(a, buf, 64));
    close(b);
    printf("still open: %ld\n", (long)lseek(a, 0, SEEK_SET));
    printf("a again %zd\n", read(a, buf, 64));
    close(a);
}
static void *racer(void *v)
{
    int n = 0;
    for (int i = 0; i < 2000; i++) {
        int f = open(v, O_RDONLY);
        char c[16];
        if (f < 0)
            abort();
        if (read(f, c, 16) == 10)
            n++;
        close(f);
    }
    return (void *)(long)n;
}
static void t_race(void)
{
    put("race", 10);
    static char p[PATH_MAX];
    snprintf(p, sizeof(p), "%s", at("race"));
    pthread_t t[8];
    long sum = 0;
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, racer, p);
    for (int i = 0; i < 8; i++) {
        void *r;
        pthread_join(t[i], &r);
        sum += (long)r;
    }
    printf("race %ld\n", sum);
}
static volatile int sig_fd, sig_n;
static void on_alarm(int s)
{
    (void)s;
    int k = errno;
    if (write(sig_fd, "s", 1) == 1)
        sig_n++;
    errno = k;
}
static void t_signal(void)
{
    put("sigsrc", 4096);
    sig_fd = open(at("sigout"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, NULL);
    struct itimerval it = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &it, NULL);
    int f = open(at("sigsrc"), O_RDONLY);
    char b[64];
    int bad = 0;
    for (int i = 0; i < 200000; i++) {
        if (pread(f, b, 64, i % 64 * 64) != 64)
            bad++;
    }
    it = (struct itimerval){0};
    setitimer(ITIMER_REAL, &it, NULL);
    close(f);
    struct stat st;
    fstat(sig_fd, &st);
    printf("signal bad %d, size equals count %d, some %d\n", bad, st.st_size == sig_n, sig_n > 0);
    fprintf(stderr, "sigout write %d\n", sig_n);
    close(sig_fd);
}
static sigjmp_buf jb;
static void on_jump(int s)
{
    (void)s;
    char c = 'j';
    (void)!write(sig_fd, &c, 1);
    siglongjmp(jb, 1);
}
static void t_longjmp(void)
{
    sig_fd = open(at("jumpout"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    put("jsrc", 4096);
    signal(SIGALRM, on_jump);
    volatile int n = 0;
    int f = open(at("jsrc"), O_RDONLY);
    volatile long reads = 0;
    struct itimerval it = {{0, 0}, {0, 300}};
    while (n < 200) {
        if (sigsetjmp(jb, 1)) {
            n++;
        } else {
            setitimer(ITIMER_REAL, &it, NULL);
            char b[64];
            for (;;) {
                if (pread(f, b, 64, 0) == 64)
                    reads++;
            }
        }
    }
    struct stat st;
    fstat(sig_fd, &st);
    printf("jumps %d written %ld\n", n, (long)st.st_size);
    char b[64];
    for (int i = 0; i < 100; i++)
        (void)!pread(f, b, 1, i);
    close(f);
    close(sig_fd);
}
static void t_spawn(void)
{
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 1, strcmp(at("spawned"), "") ? name : "", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    posix_spawn_file_actions_addclose(&fa, 0);
    pid_t p;
    char *av[] = {"echo", "spawned text", NULL};
    extern char **environ;
    printf("spawn %d\n", posix_spawn(&p, "/bin/echo", &fa, NULL, av, environ));
    printf("status %x\n", status_of(p));
    posix_spawn_file_actions_destroy(&fa);
    struct stat st;
    stat(at("spawned"), &st);
    printf("size %ld\n", (long)st.st_size);
}
static void t_fexecve(void)
{
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        int f = open("/bin/echo", O_RDONLY | O_CLOEXEC);
        char *av[] = {"echo", "fexecve", NULL}, *ev[] = {NULL};
        fexecve(f, av, ev);
        _exit(9);
    }
    printf("fexecve %x\n", status_of(p));
    p = fork();
    if (!p) {
        char *av[] = {"echo", "execveat", NULL}, *ev[] = {NULL};
        int d = open("/bin", O_PATH);
        syscall(SYS_execveat, d, "echo", av, ev, 0);
        _exit(9);
    }
    printf("execveat %x\n", status_of(p));
}
static void *forker(void *v)
{
    (void)v;
    pid_t p = fork();
    if (!p) {
        int f = open(at("forked"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        int ok = write(f, "12345", 5) == 5;
        close(f);
        _exit(ok ? 0 : 1);
    }
    return (void *)(long)status_of(p);
}
static void t_fork_thread(void)
{
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, forker, NULL);
    pthread_join(t, &r);
    printf("fork in thread %lx\n", (long)r);
}
static void t_daemon(void)
{
    int pp[2];
    if (pipe(pp))
        return;
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        setsid();
        if (fork())
            _exit(0);
        for (int i = 0; i < 1024; i++)
            if (i != pp[1])
                close(i);
        open("/dev/null", O_RDWR);
        int f = open(at("daemon"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        int k = write(f, "daemon", 6) == 6;
        close(f);
        char c = k ? 'y' : 'n';
        (void)!write(pp[1], &c, 1);
        _exit(0);
    }
    status_of(p);
    close(pp[1]);
    char c = '?';
    (void)!read(pp[0], &c, 1);
    close(pp[0]);
    printf("daemon %c\n", c);
}
static void t_iov(void)
{
    put("iov", 100000);
    int f = open(at("iov"), O_RDONLY);
    static struct iovec v[1024];
    static char b[1024][128];
    for (int i = 0; i < 1024; i++)
        v[i] = (struct iovec){b[i], 64};
    printf("readv %zd\n", readv(f, v, 1024));
    printf("too many %zd %d\n", readv(f, v, 1025), errno);
    printf("negative %zd %d\n", readv(f, v, -1), errno);
    printf("bad pointer %zd %d\n", readv(f, (void *)8, 3), errno);
    printf("preadv2 %zd\n", preadv2(f, v, 10, 0, RWF_HIPRI * 0));
    v[1].iov_len = -1;
    printf("neg len %zd %d\n", readv(f, v, 3), errno);
    close(f);
}
static void t_sparse(void)
{
    int f = open(at("sparse"), O_CREAT | O_TRUNC | O_RDWR, 0600);
    printf("pwrite %zd\n", pwrite(f, "end", 3, (off_t)1 << 42));
    char b[8];
    printf("pread %zd\n", pread(f, b, 3, (off_t)1 << 42));
    printf("seek data %ld\n", (long)lseek(f, 0, SEEK_DATA));
    printf("neg %zd %d\n", pread(f, b, 1, -5), errno);
    printf("huge ftruncate %d %d\n", ftruncate(f, LLONG_MAX), errno);
    printf("ftruncate %d\n", ftruncate(f, 0));
    close(f);
    unlink(at("sparse"));
}
static void t_names(void)
{
    const char *n[] = {"new\nline", "quo\"te", "back\\slash", "ctl\x01\x7f", "latin\xe9\xff\xfe", "tab\tx",
                       ",comma",    "日本語",  " ",           "{json}",      "per%scent"};
    for (unsigned i = 0; i < sizeof n / sizeof *n; i++) {
        int f = open(at(n[i]), O_CREAT | O_WRONLY, 0600);
        printf("name %u %d", i, f >= 0);
        printf(" %zd", write(f, "z", 1));
        close(f);
        printf(" %d\n", unlink(at(n[i])));
    }
    char longp[5000];
    memset(longp, 'a', sizeof longp);
    longp[4999] = 0;
    printf("5000 bytes: %d %d\n", open(longp, O_RDONLY), errno);
    longp[4095] = 0;
    printf("4095 bytes: %d %d\n", open(longp, O_RDONLY), errno);
    char deep[4096] = "";
    size_t k = (size_t)snprintf(deep, sizeof deep, "%s", dir);
    while (k < 4000)
        k += (size_t)snprintf(deep + k, sizeof deep - k, "/.");
    snprintf(deep + k, sizeof deep - k, "/iov");
    int f = open(deep, O_RDONLY);
    printf("long ok %d\n", f >= 0);
    close(f);
    printf("empty %d %d\n", open("", O_RDONLY), errno);
    printf("null %d %d\n", open(NULL, O_RDONLY), errno);
}
static void t_rlimit(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    struct rlimit low = r;
    low.rlim_cur = 20;
    setrlimit(RLIMIT_NOFILE, &low);
    int n = 0, f;
    int fds[64];
    while ((f = open("/dev/null", O_RDONLY)) >= 0 && n < 64)
        fds[n++] = f;
    printf("low limit: %d errno %d\n", n, errno);
    while (n)
        close(fds[--n]);
    low.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &low);
    f = open(at("iov"), O_RDONLY);
    int hi = (int)(r.rlim_max > 70000 ? 70000 : r.rlim_max - 1);
    printf("high dup %d\n", dup2(f, hi) == hi);
    char b[8];
    printf("read high %zd\n", read(hi, b, 8));
    close(hi);
    close(f);
    setrlimit(RLIMIT_NOFILE, &r);
}
static void t_ns(void)
{
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        (void)!unshare(CLONE_NEWUSER | CLONE_NEWNS);
        int f = open(at("iov"), O_RDONLY);
        char b[8];
        ssize_t k = read(f, b, 8);
        _exit(k == 8 ? 0 : 1);
    }
    printf("ns %x\n", status_of(p));
}
static int clone_child(void *v)
{
    (void)v;
    int f = open(at("iov"), O_RDONLY);
    char b[8];
    int k = read(f, b, 8) == 8;
    close(f);
    return k ? 0 : 1;
}
static void t_clone(void)
{
    static char st[65536];
    int p = clone(clone_child, st + sizeof st, SIGCHLD, NULL);
    printf("clone %x\n", status_of(p));
    p = clone(clone_child, st + sizeof st, SIGCHLD | CLONE_VM | CLONE_VFORK, NULL);
    printf("clone vm vfork %x\n", status_of(p));
    p = clone(clone_child, st + sizeof st, SIGCHLD | CLONE_FILES, NULL);
    printf("clone files %x\n", status_of(p));
}
static void t_vfork(void)
{
    for (int i = 0; i < 50; i++) {
        pid_t p = vfork();
        if (!p) {
            int f = open(at("iov"), O_RDONLY);
            close(f);
            if (i % 2)
                _exit(i);
            execl("/bin/true", "true", (char *)0);
            _exit(99);
        }
        int s = status_of(p);
        if (s != (i % 2 ? i << 8 : 0))
            printf("vfork %d: %x\n", i, s);
    }
    printf("vforks\n");
    char c[8];
    int f = open(at("iov"), O_RDONLY);
    printf("after %zd\n", read(f, c, 8));
    close(f);
}
static void t_mmap(void)
{
    put("map", 8192);
    int f = open(at("map"), O_RDWR);
    char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    close(f);
    m[0] = 'q';
    printf("msync %d\n", msync(m, 8192, MS_SYNC));
    m = mremap(m, 8192, 16384, MREMAP_MAYMOVE);
    printf("mremap %d\n", m != MAP_FAILED);
    munmap(m, 16384);
    printf("bad munmap %d %d\n", munmap((void *)1, 10), errno);
}
static void t_dir(void)
{
    DIR *d = opendir(dir);
    int n = 0;
    struct dirent *e;
    while ((e = readdir(d)))
        n++;
    long pos = telldir(d);
    (void)pos;
    rewinddir(d);
    int m = 0;
    while ((e = readdir(d)))
        m++;
    printf("dir %d same %d\n", n > 3, n == m);
    closedir(d);
    printf("opendir none %d %d\n", opendir("/none/x") == NULL, errno);
    struct dirent **l;
    printf("scandir %d\n", scandir(dir, &l, NULL, alphasort) == n);
}
static void t_std(void)
{
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        close(0);
        close(1);
        close(2);
        int a = open("/dev/null", O_RDONLY), b = open(at("std1"), O_CREAT | O_TRUNC | O_WRONLY, 0600),
            c = open("/dev/null", O_WRONLY);
        int ok = a == 0 && b == 1 && c == 2;
        printf("to file\n");
        fflush(stdout);
        _exit(ok ? 0 : 1);
    }
    printf("std closed %x\n", status_of(p));
    struct stat st;
    stat(at("std1"), &st);
    printf("size %ld\n", (long)st.st_size);
}
static void t_stdio(void)
{
    FILE *f = fopen(at("stdio"), "w+");
    setvbuf(f, NULL, _IOFBF, 100);
    for (int i = 0; i < 50; i++)
        fprintf(f, "line %d %s\n", i, "x");
    rewind(f);
    char l[100];
    int n = 0;
    while (fgets(l, 100, f))
        n++;
    printf("lines %d eof %d\n", n, feof(f) != 0);
    fseek(f, 0, SEEK_SET);
    int a;
    char s[10];
    printf("scan %d\n", fscanf(f, "line %d %9s", &a, s));
    ungetc('Q', f);
    printf("getc %c\n", getc(f));
    fseek(f, 0, SEEK_SET);
    char *lp = NULL;
    size_t ln = 0;
    printf("getline %zd\n", getline(&lp, &ln, f));
    free(lp);
    f = freopen(at("iov"), "r", f);
    printf("freopen %d %d\n", f != NULL, getc(f));
    fclose(f);
    f = tmpfile();
    printf("tmpfile %d\n", fputs("abc", f) >= 0);
    fclose(f);
    f = fmemopen(l, 100, "w");
    fprintf(f, "mem");
    fclose(f);
    printf("fmemopen %s\n", l);
    char *bp;
    size_t bn;
    f = open_memstream(&bp, &bn);
    fprintf(f, "stream %d", 5);
    fclose(f);
    printf("%s %zu\n", bp, bn);
    free(bp);
    f = popen("echo popen; exit 3", "r");
    printf("%s", fgets(l, 100, f));
    printf("pclose %x\n", pclose(f));
}

/* More threads at a time than a ring file has slots, then many short ones; and threads cancelled anywhere. */
static pthread_barrier_t all_here;
static char thread_file[PATH_MAX];
static sem_t descriptors;
static void *reader(void *together)
{
    char b[16];
    access(thread_file, F_OK); /* so that each has been seen before the first one ends */
    if (together)
        pthread_barrier_wait(&all_here);
    sem_wait(&descriptors);
    int f = open(thread_file, O_RDONLY);
    for (int i = 0; i < 20; i++)
        if (pread(f, b, 16, 0) != 10)
            abort();
    close(f);
    sem_post(&descriptors);
    return NULL;
}
static void *endless(void *v)
{
    (void)v;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;)
        close(open("/dev/null", O_RDONLY));
    return NULL;
}
static void t_threads(void)
{
    static pthread_t t[600];
    pthread_attr_t small;
    put("threads", 10);
    snprintf(thread_file, sizeof(thread_file), "%s", at("threads"));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&all_here, NULL, 600);
    sem_init(&descriptors, 0, 100); /* there may be few */
    for (int i = 0; i < 600; i++)
        pthread_create(&t[i], &small, reader, t);
    for (int i = 0; i < 600; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 1000; i++) {
        pthread_create(&t[0], &small, reader, NULL);
        pthread_join(t[0], NULL);
    }
    for (int i = 0; i < 50; i++) {
        pthread_create(&t[0], NULL, endless, NULL);
        usleep(500);
        pthread_cancel(t[0]);
        pthread_join(t[0], NULL);
        close(open(at("threads"), O_RDONLY));
    }
    printf("threads\n");
}

int main(int argc, char **argv)
{
    if (!realpath(argv[1], dir))
        return 8;
    setvbuf(stdout, NULL, _IOFBF, 65536);
    struct {
        const char *n;
        void (*f)(void);
    } t[] = {{"opath", t_opath},     {"tmpfile", t_tmpfile},
             {"memfd", t_memfd},     {"dup2", t_dup2},
             {"race", t_race},       {"signal", t_signal},
             {"longjmp", t_longjmp}, {"spawn", t_spawn},
             {"fexecve", t_fexecve}, {"fork_thread", t_fork_thread},
             {"daemon", t_daemon},   {"iov", t_iov},
             {"sparse", t_sparse},   {"names", t_names},
             {"rlimit", t_rlimit},   {"ns", t_ns},
             {"clone", t_clone},     {"vfork", t_vfork},
             {"mmap", t_mmap},       {"dir", t_dir},
             {"std", t_std},         {"stdio", t_stdio},
             {"threads", t_threads}};
    for (unsigned i = 0; i < sizeof t / sizeof *t; i++)
        if (argc < 3 || !strcmp(argv[2], t[i].n)) {
            printf("== %s\n", t[i].n);
            errno = 0;
            t[i].f();
            fflush(stdout);
        }
    return 0;
}
