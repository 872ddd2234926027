/* Maps a file and touches pages of it, for tests/cli/test_trace_mmap.sh: touch_pages FILE [moved]. The main thread
 * touches pages 3 and 1027, a second thread 2050, a forked child 3075 of the inherited mapping and, after unmapping
 * half of it, 5125 through a mapping of its own at an offset; anonymous memory over the unmapped half belongs to no
 * file. With `moved`, instead: page 3, then 20, 40 (moved elsewhere by mremap) and 1000 (new behind the moved part),
 * and 60 in a forked child. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 8192L
static volatile char *map;

static void *thread(void *arg)
{
    (void)map[2050 * PAGE];
    return arg;
}

static int moved(int fd)
{
    int status = 1;
    map = mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    void *block = mmap((void *)(map + 64 * PAGE), PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0); /* it cannot grow in its place */
    if (map == MAP_FAILED || block == MAP_FAILED || madvise((void *)map, 64 * PAGE, MADV_RANDOM) < 0)
        return 2;
    (void)map[3 * PAGE];
    map = mremap((void *)map, 64 * PAGE, 2048 * PAGE, MREMAP_MAYMOVE);
    if (map == MAP_FAILED)
        return 2;
    (void)map[20 * PAGE];
    (void)map[40 * PAGE];
    (void)map[1000 * PAGE];
    if (!fork()) {
        (void)map[60 * PAGE];
        _exit(0);
    }
    return wait(&status) > 0 ? status != 0 : 2;
}

int main(int argc, char **argv)
{
    pthread_t t;
    int status = 1, fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0)
        return 2;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (argc > 2)
        return moved(fd);
    map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED || madvise((void *)map, PAGES * PAGE, MADV_RANDOM) < 0)
        return 2;
    (void)map[3 * PAGE + 77];
    (void)map[1027 * PAGE];
    (void)map[3 * PAGE + 99]; /* there already */
    if (pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL))
        return 2;
    if (!fork()) {
        (void)map[3075 * PAGE];
        munmap((void *)(map + 4096 * PAGE), 4096 * PAGE);
        volatile char *own = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, fd, 5120 * PAGE);
        volatile char *none = mmap((void *)(map + 4096 * PAGE), 1024 * PAGE, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (own == MAP_FAILED || none == MAP_FAILED || madvise((void *)own, 16 * PAGE, MADV_RANDOM) < 0)
            _exit(1);
        (void)own[5 * PAGE];
        none[100 * PAGE] = 1;
        _exit(0);
    }
    return wait(&status) > 0 ? status != 0 : 2;
}
