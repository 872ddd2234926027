/* What a benchmark's own process has taken so far. */
#ifndef MR_BENCH_SELF_H
#define MR_BENCH_SELF_H

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static inline double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 0: the system does not tell. */
static inline double resident_mib(void)
{
    long pages = 0, ignored = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

#endif
