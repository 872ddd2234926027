/* What tracing adds to the micro workload (a file is opened, read 998 times in blocks at random places, and closed),
 * told from a machine's moods: in one process files are read by turns with the C library's own functions, with the
 * floor's, with the traced ones, and with the C library's again, so that all see the same moment and the same memory.
 * Reported is the median of the differences to the bare files beside it, and what the second series of bare files
 * differs by, which is chance. Threads and forked processes do the same at the same time. */
#include "turns_cost.h"
#include "base/common.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLS 998
#define LEN 4096
#define PLACES 64
#define LAPS 4 /* so that every file is read in every way */
#define WORKERS 16

enum kind { BARE, FLOOR, TRACED, BARE_AGAIN, KINDS };

struct way {
    int (*open)(const char *, int, ...);
    ssize_t (*pread)(int, void *, size_t, off_t);
    int (*close)(int);
};

struct worker {
    const struct way *way;
    const char *folder;
    double (*turn)[KINDS]; /* ns per event */
    unsigned first, files;
};

static double file_ns(const struct way *way, const char *folder, unsigned number, char *data, uint64_t *x)
{
    char path[4096];
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    snprintf(path, sizeof(path), "%s/sample_%06u.bin", folder, number);
    int fd = way->open(path, O_RDONLY);
    for (int i = 0; i < CALLS; i++) {
        *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
        if (way->pread(fd, data, LEN, (off_t)(*x % PLACES * LEN)) != LEN)
            exit(1);
    }
    way->close(fd);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (CALLS + 2);
}

static void *measure(void *arg)
{
    struct worker *w = arg;
    char *data = aligned_alloc(LEN, LEN);
    uint64_t x = w->first * 2654435761u + 1;
    double(*turn)[KINDS] = w->turn;
    if (!data)
        exit(1);
    for (unsigned lap = 0; lap < LAPS; lap++)
        for (unsigned i = 0; i < w->files; i += KINDS, turn++)
            for (unsigned k = 0; k < KINDS; k++) {
                unsigned kind = (k + i / KINDS + lap) % KINDS; /* each comes first as often as last */
                (*turn)[kind] = file_ns(&w->way[kind], w->folder, w->first + i + k, data, &x);
            }
    free(data);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median of the differences to the bare files, of the bare ones themselves, or of how far they are apart. */
static double middle(double (*turn)[KINDS], unsigned turns, enum kind kind)
{
    double *d = malloc(turns * sizeof(*d));
    if (!d)
        exit(1);
    for (unsigned i = 0; i < turns; i++) {
        double bare = (turn[i][BARE] + turn[i][BARE_AGAIN]) / 2;
        d[i] = kind == BARE ? bare : turn[i][kind] - (kind == BARE_AGAIN ? turn[i][BARE] : bare);
    }
    qsort(d, turns, sizeof(*d), by_value);
    double median = (d[(turns - 1) / 2] + d[turns / 2]) / 2;
    free(d);
    return median;
}

static void run_workers(struct worker *worker, unsigned workers, bool forks)
{
    pthread_t thread[WORKERS];
    if (workers == 1) {
        measure(worker); /* a program of one thread */
        return;
    }
    for (unsigned i = 0; i < workers; i++)
        if (forks && fork() == 0) {
            measure(&worker[i]);
            _exit(0);
        } else if (!forks && pthread_create(&thread[i], NULL, measure, &worker[i])) {
            exit(1);
        }
    for (unsigned i = 0; i < workers && !forks; i++)
        pthread_join(thread[i], NULL);
    while (forks && wait(NULL) > 0) {
    }
}

/* The C library's own functions, which the tracer does not stand in front of for the floor's library; the floor's; and
 * those that the program's calls reach. */
static bool find_ways(const char *floor_library, struct way way[KINDS])
{
    void *floor = dlopen(floor_library, RTLD_NOW | RTLD_LOCAL), *(*bare)(const char *) = NULL;
    if (floor)
        *(void **)&bare = dlsym(floor, "bare_function");
    if (!bare) {
        fprintf(stderr, "bench_trace: %s\n", dlerror());
        return false;
    }
    for (unsigned k = 0; k < KINDS; k++) {
        bool traced = k == TRACED;
        *(void **)&way[k].open = traced ? dlsym(RTLD_DEFAULT, "open") : bare("open");
        *(void **)&way[k].close = traced ? dlsym(RTLD_DEFAULT, "close") : bare("close");
        *(void **)&way[k].pread = traced       ? dlsym(RTLD_DEFAULT, "pread")
                                  : k == FLOOR ? dlsym(floor, "pread")
                                               : bare("pread");
    }
    if (way[BARE].pread != way[TRACED].pread && way[BARE].open != way[TRACED].open)
        return true;
    fprintf(stderr, "bench_trace: nothing is traced\n");
    return false;
}

int turns_cost(const char *folder, unsigned files, const char *floor_library, unsigned workers, bool forks)
{
    struct way way[KINDS];
    struct worker worker[WORKERS];
    workers = MR_MIN(workers, (unsigned)WORKERS);
    unsigned each = files / workers / KINDS * KINDS, turns = each / KINDS * LAPS;
    if (!workers || !each || !find_ways(floor_library, way))
        return 1;
    double(*turn)[KINDS] =
        mmap(NULL, turns * workers * sizeof(*turn), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (turn == MAP_FAILED)
        return 1;
    for (unsigned i = 0; i < workers; i++)
        worker[i] =
            (struct worker){.way = way, .folder = folder, .turn = turn + i * turns, .first = i * each, .files = each};
    run_workers(worker, workers, forks);
    for (unsigned k = 0; k < KINDS; k++)
        fprintf(stderr, "%.1f ", middle(turn, turns * workers, (enum kind)k));
    fprintf(stderr, "\n");
    return 0;
}
