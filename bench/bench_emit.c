/* What an event costs its producer, in CPU time: encoding and writing included, as the thread that emits does both.
 * Prints one line per kind: name, ns of CPU time per event, bytes of trace per event. Usage: bench_emit [FILE]. */
#include "base/clock.h"
#include "base/common.h"
#include "event/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 3000000u

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void emit_row(struct mr_events *e, uint64_t i)
{
    const struct mr_where at = {
        .epoch = i >> 20, .step = MR_UNKNOWN, .batch = i / 64, .sample = i * 2654435761u % 1000003};
    mr_emit(e, MR_SPAN_FETCH_STORE, 1000 + i * 90000, 1000 + i * 90000 + 40000 + i % 977, &at, 114660);
}

/* A call of the storage stack: no arguments. */
static void emit_call(struct mr_events *e, uint64_t i)
{
    struct mr_event_sink *s = mr_events_calls(e);
    s->emit(s, &(struct mr_event){.kind = MR_EV_READ,
                                  .start_ns = 1000 + i * 90000,
                                  .dur_ns = 40000 + i % 977,
                                  .offset = i % 64 * 114660,
                                  .result = 114660,
                                  .path_id = 1 + (uint32_t)(i / 64 % 2000)});
}

static void emit_step(struct mr_events *e, uint64_t i)
{
    const struct mr_where at = {.epoch = i >> 12, .step = i, .batch = i & 4095, .sample = MR_UNKNOWN};
    const struct mr_emit_arg args[] = {{.name = "load_ns", .value = (int64_t)(i % 1000)},
                                       {.name = "copy_ns"},
                                       {.name = "compute_ns", .value = 3000000},
                                       {.name = "barrier_ns", .value = (int64_t)(i % 7919)},
                                       {.name = "checkpoint_ns"},
                                       {.name = "compute_wall_ns", .value = 3050000},
                                       {.name = "sample_bytes", .value = 64 * 114660},
                                       {.name = "read_bytes", .value = 64 * 114660},
                                       {.name = "samples", .value = 64},
                                       {.name = "block", .value = 1},
                                       {.name = "phase"}};
    uint64_t start = 1000 + i * 3100000;
    mr_emit_args(e, MR_SPAN_STEP, start, start + 3090000, &at, 64 * 114660, args, MR_ARRAY_LEN(args));
}

static int measure(const char *name, const char *path, unsigned n, void (*emit)(struct mr_events *e, uint64_t i))
{
    struct mr_events_file *f;
    struct mr_error err;
    struct stat st;
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double start = cpu_s();
        if (mr_events_open(path, MR_LEVEL_CALL, 0, 1, &f, &err) < 0)
            return fprintf(stderr, "%s\n", err.message), 1;
        for (unsigned i = 0; i < n; i++)
            emit(mr_events_of(f, 0), i);
        if (mr_events_close(f, false, &err) < 0)
            return fprintf(stderr, "%s\n", err.message), 1;
        best = MR_MIN(best, (cpu_s() - start) / n * 1e9);
    }
    if (stat(path, &st) != 0)
        return 1;
    printf("%s %.1f %.2f\n", name, best, (double)st.st_size / n);
    return 0;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "bench_emit.mrt";
    int rc = measure("row", path, EVENTS, emit_row);
    if (!rc)
        rc = measure("call", path, EVENTS, emit_call);
    if (!rc)
        rc = measure("step", path, EVENTS / 10, emit_step);
    unlink(path);
    return rc;
}
