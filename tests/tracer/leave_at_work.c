/* leave_at_work WAY FILE: threads read FILE without a pause and count in FILE.progress; the process leaves in the given
 * way while they do. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 3
static int fd;
static volatile uint64_t *done; /* a line each */

static void *work(void *arg)
{
    char b[16];
    for (volatile uint64_t *n = arg; pread(fd, b, sizeof(b), 0) >= 0;)
        ++*n;
    return NULL;
}

int main(int argc, char **argv)
{
    char path[4096], *none[] = {NULL};
    if (argc < 3)
        return 2;
    snprintf(path, sizeof(path), "%s.progress", argv[2]);
    int counter = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (counter < 0 || ftruncate(counter, 64 * THREADS))
        return 2;
    done = mmap(NULL, 64 * THREADS, PROT_READ | PROT_WRITE, MAP_SHARED, counter, 0);
    fd = open(argv[2], O_RDONLY);
    for (int i = 0; i < THREADS; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, work, (void *)(done + 8 * i)))
            return 2;
    }
    for (int i = 0; i < THREADS; i++)
        while (done[8 * i] < 40000)
            usleep(1000);
    const char *way = argv[1];
    if (!strcmp(way, "_exit"))
        _exit(0);
    if (!strcmp(way, "quick_exit"))
        quick_exit(0);
    if (!strcmp(way, "abort"))
        abort();
    if (!strcmp(way, "exec"))
        execl("/bin/true", "true", (char *)NULL);
    if (!strcmp(way, "failed_exec")) {
        execve(argv[2], none, none); /* not executable, or no program */
        usleep(20000);
    }
    if (!strcmp(way, "raise"))
        raise(SIGKILL);
    return 0;
}
