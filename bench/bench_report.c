/* Makes a trace as a PyTorch training of many ranks leaves it, for bench/run_report: of each rank one thread waits for
 * batches, computes, meets the others and saves now and then; four workers make the batches, of 32 files each that are
 * opened, read in pieces and closed. Times are virtual; sizes and times vary by a hash, so that a second run makes the
 * same trace.
 *
 *   bench_report FILE EVENTS RANKS FILES */
#include "base/rng.h"
#include "event/mrt_sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define WORKERS 4u
#define ROWS 32u
#define READS 4u /* of a file */

struct maker {
    struct mr_mrt_sink *sink;
    struct mr_event_sink *events;
    uint32_t wait, fetch, barrier, step, save, batch, epoch, loader, worker, workers, prefetch, rows, cpu;
    uint32_t *file, files;
    uint64_t made;
};

static void span(struct maker *m, uint32_t site, uint32_t rank, uint32_t tid, uint64_t start, uint64_t end,
                 const struct mr_mrt_arg *arg, unsigned args)
{
    const struct mr_event e = {
        .kind = MR_EV_REGION, .rank = rank, .tid = tid, .start_ns = start, .dur_ns = end - start, .path_id = site};
    mr_mrt_sink_emit_args(m->sink, &e, arg, args);
    m->made++;
}

static uint64_t call(struct maker *m, uint16_t kind, uint32_t rank, uint32_t tid, uint32_t file, uint64_t start,
                     uint64_t dur, uint64_t offset, int64_t result)
{
    m->events->emit(m->events, &(struct mr_event){.kind = kind,
                                                  .rank = rank,
                                                  .tid = tid,
                                                  .start_ns = start,
                                                  .dur_ns = dur,
                                                  .path_id = file,
                                                  .offset = offset,
                                                  .result = result});
    m->made++;
    return start + dur;
}

/* A batch by its worker; returns when it is ready. */
static uint64_t make_batch(struct maker *m, uint32_t rank, uint64_t step, uint64_t start)
{
    uint32_t worker = (uint32_t)(step % WORKERS);
    uint64_t t = start, hash = mr_mix64(step << 16 | rank);
    for (unsigned row = 0; row < ROWS; row++) {
        hash = mr_mix64(hash + row);
        uint32_t file = m->file[hash % m->files];
        t = call(m, MR_EV_OPEN, rank, 1 + worker, file, t, 20000 + hash % 50000, UINT64_MAX, 5);
        for (unsigned r = 0; r < READS; r++)
            t = call(m, MR_EV_READ, rank, 1 + worker, file, t, 100000 + (hash >> r) % 400000, r * 32768, 32768) + 3000;
        t = call(m, MR_EV_CLOSE, rank, 1 + worker, file, t, 2000, UINT64_MAX, 0) + 100000;
    }
    const struct mr_mrt_arg arg[] = {{m->batch, (int64_t)step, false},
                                     {m->epoch, 0, false},
                                     {m->loader, 0, false},
                                     {m->worker, worker, false},
                                     {m->cpu, (int64_t)(t - start) / 3, false}};
    span(m, m->fetch, rank, 1 + worker, start, t, arg, 5);
    return t;
}

struct clocks {
    uint64_t now, free[WORKERS], ready[2 * WORKERS];
};

static void rank_step(struct maker *m, uint32_t rank, uint64_t step, struct clocks *c)
{
    uint64_t *ready = &c->ready[step % (2 * WORKERS)], *free_at = &c->free[step % WORKERS];
    *ready = *free_at = make_batch(m, rank, step, *free_at > c->now ? *free_at : c->now);
    uint64_t got = *ready > c->now ? *ready : c->now + 50000, computed = got + (10 + mr_mix64(step ^ rank) % 10) * MS;
    const struct mr_mrt_arg arg[] = {{m->batch, (int64_t)step, false}, {m->epoch, 0, false},    {m->loader, 0, false},
                                     {m->workers, WORKERS, false},     {m->prefetch, 8, false}, {m->rows, ROWS, false}};
    span(m, m->wait, rank, 0, c->now, got, arg, 6);
    span(m, m->barrier, rank, 0, computed, computed + MS, NULL, 0);
    span(m, m->step, rank, 0, computed + MS, computed + 2 * MS, NULL, 0);
    c->now = computed + 2 * MS;
    if (rank == 0 && step % 1000 == 999) {
        span(m, m->save, rank, 0, c->now, c->now + 200 * MS, NULL, 0);
        c->now += 200 * MS;
    }
}

static void name_all(struct maker *m)
{
    char path[64];
    m->wait = mr_mrt_sink_site(m->sink, "data_loader", "DataLoader.next");
    m->fetch = mr_mrt_sink_site(m->sink, "data_loader", "fetch");
    m->barrier = mr_mrt_sink_site(m->sink, "barrier", "backward");
    m->step = mr_mrt_sink_site(m->sink, "train", "optimizer.step");
    m->save = mr_mrt_sink_site(m->sink, "checkpoint", "torch.serialization.save");
    uint32_t *const key[] = {&m->batch,   &m->epoch,    &m->loader, &m->worker,
                             &m->workers, &m->prefetch, &m->rows,   &m->cpu};
    static const char *const name[] = {"batch", "epoch", "loader", "worker", "workers", "prefetch", "rows", "cpu_ns"};
    for (unsigned i = 0; i < sizeof key / sizeof key[0]; i++)
        *key[i] = mr_mrt_sink_key(m->sink, name[i]);
    for (uint32_t i = 0; i < m->files; i++) {
        snprintf(path, sizeof path, "/data/train/class-%03u/%08u.jpg", i % 1000, i);
        m->file[i] = m->events->intern(m->events, path);
    }
}

int main(int argc, char **argv)
{
    struct maker m = {.files = argc == 5 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0};
    struct mr_error err;
    uint64_t events = argc == 5 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t ranks = argc == 5 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    if (!m.files || !ranks || !events) {
        fprintf(stderr, "usage: bench_report FILE EVENTS RANKS FILES\n");
        return 2;
    }
    struct clocks *clock = calloc(ranks, sizeof(*clock));
    m.file = calloc(m.files, sizeof(*m.file));
    if (!clock || !m.file ||
        mr_mrt_sink_open_sim(argv[1], &(struct mr_mrt_sim){.world = ranks, .program = "train"}, &m.sink, &err)) {
        free(clock);
        free(m.file);
        return 1;
    }
    m.events = mr_mrt_sink_get(m.sink);
    name_all(&m);
    for (uint64_t step = 0; m.made < events; step++)
        for (uint32_t r = 0; r < ranks; r++)
            rank_step(&m, r, step, &clock[r]);
    int rc = mr_mrt_sink_close(m.sink, &err);
    printf("%llu\n", (unsigned long long)m.made);
    free(clock);
    free(m.file);
    return rc ? 1 : 0;
}
