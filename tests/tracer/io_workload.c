/* Workloads with a known number of calls. workload MODE FILE N:
 *   single | threads (2) | forks (8) | burst (200 short-lived workers)   N times open, read, close of FILE each
 *   kill      reads until killed, and stores how many reads were done, with times, in shared memory at FILE.progress
 *   exits     children that leave by exit, _exit, abort, SIGKILL and exec
 *   closeall  closes every descriptor, then works */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *file;
static int times;

static void work(int n)
{
    char b[64];
    for (int i = 0; i < n; i++) {
        int fd = open(file, O_RDONLY);
        if (fd < 0 || read(fd, b, sizeof(b)) < 0 || close(fd) < 0)
            exit(3);
    }
}

static void *thread(void *arg)
{
    (void)arg;
    work(times);
    return NULL;
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Runs until killed. progress[0] counts reads; those after it are the times of the last 64k. */
static void run_for_ever(void)
{
    char name[4096], b[64];
    snprintf(name, sizeof(name), "%s.progress", file);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    size_t bytes = (1u + (1u << 16)) * sizeof(uint64_t);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        exit(3);
    volatile uint64_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fd = open(file, O_RDONLY);
    for (uint64_t i = 0;; i++) {
        if (pread(fd, b, 8, (off_t)(i % 8)) < 0)
            exit(3);
        p[1 + i % (1u << 16)] = now();
        p[0] = i + 1;
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    const char *mode = argv[1];
    file = argv[2];
    times = (int)strtol(argv[3], NULL, 10);
    int children = !strcmp(mode, "forks") ? 8 : !strcmp(mode, "burst") ? 200 : !strcmp(mode, "exits") ? 5 : 0;
    if (!strcmp(mode, "kill"))
        run_for_ever();
    if (!strcmp(mode, "closeall"))
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    if (!strcmp(mode, "threads")) {
        pthread_t t[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&t[i], NULL, thread, NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(t[i], NULL);
    } else if (children) {
        for (int i = 0; i < children; i++)
            if (!fork()) {
                work(times);
                if (!strcmp(mode, "exits")) {
                    signal(SIGABRT, SIG_DFL);
                    struct rlimit none = {0};
                    setrlimit(RLIMIT_CORE, &none);
                    if (i == 1)
                        _exit(0);
                    if (i == 2)
                        abort();
                    if (i == 3)
                        kill(getpid(), SIGKILL);
                    if (i == 4)
                        execl(argv[0], argv[0], "single", file, argv[3], (char *)NULL);
                }
                if (i % 2)
                    _exit(0);
                exit(0);
            }
        while (wait(NULL) > 0) {
        }
    } else {
        work(times);
    }
    return 0;
}
