/* What a replay of 10,000 batches costs (src/advise/replay.h): `report` makes some dozens of them, `tune` will make
 * thousands. Prints the CPU time, least and median of 21
 * rounds, by workers; exit 3 when a median is over the budget.
 *
 *   bench_replay */
#include "advise/replay.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCHES 10000u
#define ROUNDS 21
#define BUDGET_MS 10.0

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of this process: other programs on the machine do not count. */
static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + (double)t.tv_nsec / 1e6;
}

static double draw(uint64_t k, double from, double to)
{
    return from + (to - from) * mr_rng_unit(mr_rng_at(1, MR_RNG_TEST, k));
}

int main(void)
{
    static const unsigned workers[] = {1, 4, 8, 16};
    struct mr_replay_batch *b = calloc(BATCHES, sizeof(*b));
    int code = b ? 0 : 1;
    for (uint64_t i = 0; b && i < BATCHES; i++)
        b[i] = (struct mr_replay_batch){.read_s = (float)draw(3 * i, 0.1, 1),
                                        .cpu_s = (float)draw(3 * i + 1, 0.05, 0.2),
                                        .compute_s = (float)draw(3 * i + 2, 0.05, 0.15),
                                        .bytes = 1e6f};
    for (unsigned w = 0; b && w < sizeof workers / sizeof *workers; w++) {
        struct mr_replay_setup s = {.workers = workers[w], .ahead = 2 * workers[w], .storage = 8e6, .cpus = 4};
        struct mr_replay_result out;
        double ms[ROUNDS];
        for (int k = 0; k < ROUNDS; k++) {
            double from = cpu_ms();
            if (!mr_replay_run(b, BATCHES, &s, &out))
                return 1;
            ms[k] = cpu_ms() - from;
        }
        qsort(ms, ROUNDS, sizeof(*ms), ascending);
        bool over = ms[ROUNDS / 2] > BUDGET_MS;
        printf("replay of %u batches, %2u workers: %5.2f ms, at least %.2f ms (budget %.0f ms)%s\n", BATCHES,
               workers[w], ms[ROUNDS / 2], ms[0], BUDGET_MS, over ? "  OVER" : "");
        code = over ? 3 : code;
    }
    free(b);
    return code;
}
