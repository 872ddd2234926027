/* What a traced call costs beyond the bare one, told from a machine's moods: short blocks of calls take turns in one process between the C
 * library's own pread, the floor's and the traced one, so that all see the same moment. Reported is the median of the differences to the
 * bare block beside it; a second series of bare blocks shows how much of that is chance. Threads and forked processes do the same at the
 * same time. */
#include "pair_cost.h"
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

#define CALLS 150    /* in a block: some 40 us */
#define ROUNDS 6000  /* blocks of each kind, over all workers */
#define LEN 4096
#define PLACES 64

typedef ssize_t pread_fn(int, void *, size_t, off_t);
enum kind { BARE, FLOOR, TRACED, BARE_AGAIN, KINDS };

struct worker {
    pread_fn *const *fn;
    const char *file;
    double (*round)[KINDS];
    unsigned rounds;
};

static double block_ns(pread_fn *call, int fd, char *data, uint64_t *x)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < CALLS; i++) {
        *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
        if (call(fd, data, LEN, (off_t)(*x % PLACES * LEN)) != LEN)
            exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / CALLS;
}

static void *measure(void *arg)
{
    struct worker *w = arg;
    char data[LEN];
    uint64_t x = 88172645463325252ull;
    int fd = open(w->file, O_RDONLY);
    if (fd < 0)
        exit(1);
    for (unsigned r = 0; r < w->rounds; r++)
        for (unsigned k = 0; k < KINDS; k++) {
            unsigned kind = (k + r) % KINDS; /* each comes first as often as last */
            w->round[r][kind] = block_ns(w->fn[kind], fd, data, &x);
        }
    close(fd);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median, and mean without the tenth at either end, of the differences to the bare blocks. */
static void compare(double (*round)[KINDS], unsigned rounds, enum kind kind, double *median, double *mean)
{
    double *d = malloc(rounds * sizeof(*d)), sum = 0;
    if (!d)
        exit(1);
    for (unsigned r = 0; r < rounds; r++)
        d[r] = round[r][kind] - (kind == BARE ? 0 : round[r][BARE]);
    qsort(d, rounds, sizeof(*d), by_value);
    for (unsigned r = rounds / 10; r < rounds - rounds / 10; r++)
        sum += d[r];
    *median = d[rounds / 2];
    *mean = sum / (rounds - rounds / 10 * 2);
    free(d);
}

static void run_workers(struct worker *worker, unsigned workers, bool forks)
{
    pthread_t thread[16];
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

int pair_cost(const char *file, const char *floor_library, unsigned workers, bool forks)
{
    void *floor = dlopen(floor_library, RTLD_NOW | RTLD_LOCAL), *(*bare)(void) = NULL;
    if (floor)
        *(void **)&bare = dlsym(floor, "bare_pread");
    if (!bare) {
        fprintf(stderr, "bench_trace: %s\n", dlerror());
        return 1;
    }
    pread_fn *fn[KINDS];
    *(void **)&fn[BARE] = *(void **)&fn[BARE_AGAIN] = bare();
    *(void **)&fn[FLOOR] = dlsym(floor, "pread");
    *(void **)&fn[TRACED] = dlsym(RTLD_DEFAULT, "pread"); /* what the program's own calls would reach */
    if (!fn[BARE] || !fn[FLOOR] || fn[BARE] == fn[TRACED]) {
        fprintf(stderr, "bench_trace: nothing is traced\n");
        return 1;
    }
    workers = MR_MIN(workers, 16u);
    double(*round)[KINDS] = mmap(NULL, ROUNDS * sizeof(*round), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct worker worker[16];
    if (round == MAP_FAILED)
        return 1;
    unsigned each = ROUNDS / workers;
    for (unsigned i = 0; i < workers; i++)
        worker[i] = (struct worker){.fn = fn, .file = file, .round = round + i * each, .rounds = each};
    run_workers(worker, workers, forks);
    for (unsigned k = 0; k < KINDS; k++) {
        double median, mean;
        compare(round, each * workers, (enum kind)k, &median, &mean);
        fprintf(stderr, "%.1f %.1f ", median, mean);
    }
    fprintf(stderr, "\n");
    return 0;
}
