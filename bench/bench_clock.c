/* Clocks, threads that start together, and the end of a benchmark that cannot measure. See bench.h. */
#include "base/common.h"
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("bench: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct bench_time bench_clock(void)
{
    return (struct bench_time){.wall_s = clock_s(CLOCK_MONOTONIC), .cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID)};
}

struct bench_time bench_since(struct bench_time start)
{
    struct bench_time now = bench_clock();
    return (struct bench_time){.wall_s = now.wall_s - start.wall_s, .cpu_s = now.cpu_s - start.cpu_s};
}

struct thread_arg {
    void (*fn)(void *user, unsigned thread);
    void *user;
    unsigned thread;
    pthread_barrier_t *start;
    double started_s, ended_s, cpu_s;
};

static void *thread_main(void *p)
{
    struct thread_arg *a = p;
    pthread_barrier_wait(a->start);
    a->started_s = clock_s(CLOCK_MONOTONIC);
    a->cpu_s = -clock_s(CLOCK_THREAD_CPUTIME_ID);
    a->fn(a->user, a->thread);
    a->cpu_s += clock_s(CLOCK_THREAD_CPUTIME_ID);
    a->ended_s = clock_s(CLOCK_MONOTONIC);
    return NULL;
}

struct bench_time bench_threads(unsigned threads, void (*fn)(void *user, unsigned thread), void *user)
{
    pthread_t id[16];
    struct thread_arg arg[16];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned t = 0; t < threads; t++) {
        arg[t] = (struct thread_arg){.fn = fn, .user = user, .thread = t, .start = &start};
        if (pthread_create(&id[t], NULL, thread_main, &arg[t]) != 0)
            bench_die("cannot start a thread");
    }
    double from = INFINITY, to = 0, cpu = 0;
    for (unsigned t = 0; t < threads; t++) {
        pthread_join(id[t], NULL);
        from = MR_MIN(from, arg[t].started_s);
        to = MR_MAX(to, arg[t].ended_s);
        cpu += arg[t].cpu_s;
    }
    pthread_barrier_destroy(&start);
    return (struct bench_time){.wall_s = to - from, .cpu_s = cpu};
}
