/* Reads, writes and seeks in an order drawn from a seed, on two files in turn, with signal handlers that read in
 * between, in several threads. Every call is written down by the program itself: "thread name offset result descriptor
 * before after" (ns of a clock), in the order of the thread, on standard output. What handlers do goes to a third
 * descriptor and is not written down. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CALLS 40000
#define SIZE 100000
#define FAR (4ll << 30) /* farther than the short form of a repeat reaches */

struct call {
    const char *name;
    long long offset, result; /* offset -1: none */
    int fd;
    long long before, after;
};

struct work {
    const char *dir;
    unsigned number;
    long tid;
    struct call call[CALLS];
};

static int other = -1;
static volatile size_t everything = SIZE_MAX;
static int signals;

static void on_signal(int number)
{
    char byte;
    int keep = errno;
    (void)number;
    if (pread(other, &byte, 1, __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED) % 1000) != 1)
        abort();
    errno = keep;
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void *run(void *arg)
{
    struct work *w = arg;
    static __thread char buffer[8192];
    uint64_t x = 88172645463325252ull + w->number;
    int fd[2];
    for (int i = 0; i < 2; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/t%u.%d", w->dir, w->number, i);
        fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd[i] < 0 || ftruncate(fd[i], SIZE + (i ? FAR : 0)))
            abort();
    }
    w->tid = syscall(SYS_gettid);
    unsigned way = 0, file = 0;
    size_t size = 4096;
    for (int i = 0; i < CALLS; i++) {
        struct call *c = &w->call[i];
        if (next(&x) % 8 == 0)
            way = (unsigned)(next(&x) % 9);
        if (next(&x) % 30 == 0)
            file = !file;
        if (next(&x) % 30 == 0)
            size = next(&x) % 3 ? 4096 : next(&x) % 100;
        off_t at = (off_t)(next(&x) % (SIZE + 100)) + (file && next(&x) % 4 == 0 ? FAR : 0);
        for (volatile unsigned wait = next(&x) % 10 ? 0 : next(&x) % 20000; wait;
             wait--) { /* sooner and later than the short form wants */
        }
        c->fd = fd[file];
        c->offset = -1;
        c->before = now();
        switch (way) {
        case 0: c->name = "read", c->result = read(c->fd, buffer, size); break;
        case 1: c->name = "pread", c->offset = at, c->result = pread(c->fd, buffer, size, at); break;
        case 2:
            c->name = "pwrite", c->offset = at % (SIZE - 8192), c->result = pwrite(c->fd, buffer, size, c->offset);
            break;
        case 3: c->name = "lseek", c->offset = at, c->result = lseek(c->fd, at, SEEK_SET); break;
        case 4:
            c->name = i % 2 ? "lseek" : "read";
            if (i % 2)
                c->offset = at, c->result = lseek(c->fd, at, SEEK_SET);
            else
                c->result = read(c->fd, buffer, size);
            break;
        case 5: c->name = "lseek", c->offset = -5, c->result = lseek(c->fd, -5, SEEK_CUR); break;
        case 6:
            c->name = "lseek", c->offset = -1, c->result = lseek(c->fd, -1, SEEK_SET);
            break; /* fails with the result its offset is */
        case 7:
            c->name = "pread", c->offset = at, c->result = pread(c->fd, buffer, everything, at);
            break; /* as many bytes as its result */
        default: c->name = "fsync", c->result = fsync(c->fd); break;
        }
        if (c->result == -1)
            c->result = -errno;
        c->after = now();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct work work[3];
    pthread_t thread[3];
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    if (argc != 2 || (other = open("/proc/self/exe", O_RDONLY)) < 0)
        return 2;
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned i = 0; i < 3; i++) {
        work[i].dir = argv[1];
        work[i].number = i;
        if (pthread_create(&thread[i], NULL, run, &work[i]))
            return 2;
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    for (unsigned i = 0; i < 3; i++)
        for (int k = 0; k < CALLS; k++)
            printf("%ld %s %lld %lld %d %lld %lld\n", work[i].tid, work[i].call[k].name, work[i].call[k].offset,
                   work[i].call[k].result, work[i].call[k].fd, work[i].call[k].before, work[i].call[k].after);
    fprintf(stderr, "%d\n", signals);
    return 0;
}
