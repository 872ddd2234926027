/* Time split and causes of the stall on traces with exactly known answers: a training loop of 500 ms compute and
 * batches that take 500 ms, in five shapes. Times are virtual, so every expectation is exact to the nanosecond or a
 * stated tolerance.
 *
 * test-label: concurrent */
#include "base/common.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/explain_made.h"

#define MS 1000000ull
#define STEPS 40u

/* A trace that is being made: PyTorch's names, one rank; tid 0 trains, tid 1 + w are workers. */
struct world {
    struct mr_mrt_sink *sink;
    struct mr_event_sink *events;
    char path[32];
    uint32_t wait, iter, fetch, collate, decode, save, file;
    uint32_t key_batch, key_epoch, key_worker, key_workers, key_prefetch, key_rows, key_cpu;
    uint64_t workers, prefetch;
};

static void open_world(struct world *w, uint64_t workers, uint64_t prefetch)
{
    snprintf(w->path, sizeof w->path, "/tmp/mr-stall-XXXXXX");
    open_made(w->path, &w->sink);
    w->events = mr_mrt_sink_get(w->sink);
    w->wait = mr_mrt_sink_site(w->sink, "data_loader", "DataLoader.next");
    w->iter = mr_mrt_sink_site(w->sink, "data_loader", "DataLoader.iter");
    w->fetch = mr_mrt_sink_site(w->sink, "data_loader", "fetch");
    w->collate = mr_mrt_sink_site(w->sink, "data_loader", "collate");
    w->decode = mr_mrt_sink_site(w->sink, "decode", "jpeg");
    w->save = mr_mrt_sink_site(w->sink, "checkpoint", "save");
    w->file = w->events->intern(w->events, "/data/train.bin");
    w->key_batch = mr_mrt_sink_key(w->sink, "batch");
    w->key_epoch = mr_mrt_sink_key(w->sink, "epoch");
    w->key_worker = mr_mrt_sink_key(w->sink, "worker");
    w->key_workers = mr_mrt_sink_key(w->sink, "workers");
    w->key_prefetch = mr_mrt_sink_key(w->sink, "prefetch");
    w->key_rows = mr_mrt_sink_key(w->sink, "rows");
    w->key_cpu = mr_mrt_sink_key(w->sink, "cpu_ns");
    w->workers = workers;
    w->prefetch = prefetch;
}

static void span(struct world *w, uint32_t site, uint32_t tid, uint64_t start, uint64_t end,
                 const struct mr_mrt_arg *arg, unsigned n)
{
    const struct mr_event e = {
        .kind = MR_EV_REGION, .tid = tid, .start_ns = start, .dur_ns = end - start, .path_id = site};
    mr_mrt_sink_emit_args(w->sink, &e, arg, n);
}

static void put_read(struct world *w, uint32_t tid, uint64_t start, uint64_t end, int64_t bytes)
{
    w->events->emit(w->events, &(struct mr_event){.kind = MR_EV_READ,
                                                  .tid = tid,
                                                  .start_ns = start,
                                                  .dur_ns = end - start,
                                                  .path_id = w->file,
                                                  .offset = 0,
                                                  .result = bytes});
}

static void put_wait(struct world *w, uint64_t batch, uint64_t start, uint64_t end)
{
    const struct mr_mrt_arg arg[] = {{.key = w->key_batch, .value = (int64_t)batch},
                                     {.key = w->key_epoch, .value = 0},
                                     {.key = w->key_workers, .value = (int64_t)w->workers},
                                     {.key = w->key_prefetch, .value = (int64_t)w->prefetch},
                                     {.key = w->key_rows, .value = 8}};
    span(w, w->wait, 0, start, end, arg, MR_ARRAY_LEN(arg));
}

static void put_fetch(struct world *w, uint64_t batch, uint32_t tid, uint64_t start, uint64_t end, uint64_t cpu)
{
    const struct mr_mrt_arg arg[] = {{.key = w->key_batch, .value = (int64_t)batch},
                                     {.key = w->key_epoch, .value = 0},
                                     {.key = w->key_worker, .value = (int64_t)tid - 1},
                                     {.key = w->key_cpu, .value = (int64_t)cpu}};
    span(w, w->fetch, tid, start, end, arg, MR_ARRAY_LEN(arg));
}

static struct mr_explanation *explain(struct world *w)
{
    return explain_made(w->sink, w->path);
}

static double share(const struct mr_explanation *x, uint64_t ns)
{
    return (double)ns / (double)x->train_ns;
}

/* Of the stall. */
static double part(const struct mr_explanation *x, unsigned cause)
{
    return (double)x->stall[cause] / (double)x->ns[MR_TIME_STALL];
}

static void check_sums(const struct mr_explanation *x)
{
    for (size_t r = 0; r < x->ranks; r++) {
        uint64_t sum = 0, causes = 0;
        for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
            sum += x->rank[r].ns[c];
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            causes += x->rank[r].stall[c];
        assert_true(sum == x->rank[r].end_ns - x->rank[r].start_ns);
        assert_true(causes == x->rank[r].ns[MR_TIME_STALL]);
    }
    for (size_t i = 0; i < x->steps; i++) {
        uint64_t sum = 0, causes = 0;
        for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++)
            sum += x->step[i].ns[c];
        for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
            causes += x->step[i].stall[c];
        assert_true(sum == x->step[i].end_ns - x->step[i].start_ns);
        assert_true(causes == x->step[i].ns[MR_TIME_STALL]);
    }
}

/* The loop reads by itself: half of the time is stall, all of it storage. */
static void serial_reading_is_half_stall_on_storage(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 0, 0);
    uint64_t t = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
        put_read(&w, 0, t, t + 500 * MS, 100 << 20);
        put_fetch(&w, b, 0, t, t + 500 * MS, 1 * MS);
        put_wait(&w, b, t, t + 500 * MS);
    }
    put_wait(&w, STEPS, t, t); /* the loop's end */
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_int_equal(x->steps, STEPS);
    assert_true(share(x, x->ns[MR_TIME_STALL]) > 0.49 && share(x, x->ns[MR_TIME_STALL]) < 0.51);
    assert_true(part(x, MR_STALL_STORAGE) > 0.99);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
    assert_true(x->facts.workers == 0);
    assert_true(x->behind_ns == 0);
    mr_explanation_free(x);
}

/* Workers that make batches of `make` ms for a loop that computes `compute` ms; `ahead` batches are asked for ahead. */
struct pool {
    uint32_t workers;
    uint64_t ahead, make, compute;
    bool decodes;
};

static void put_work(struct world *w, const struct pool *p, uint64_t batch, uint32_t tid, uint64_t start)
{
    uint64_t end = start + p->make * MS;
    if (!p->decodes)
        put_read(w, tid, start, end, 100 << 20);
    put_fetch(w, batch, tid, start, end, p->decodes ? p->make * MS : 1 * MS);
}

static struct mr_explanation *run_pool(const struct pool *p)
{
    struct world w;
    uint64_t free_at[8] = {0}, ready[STEPS], asked[STEPS], now = 10 * MS;
    open_world(&w, p->workers, p->ahead);
    span(&w, w.iter, 0, now - 1 * MS, now, NULL, 0);
    uint64_t begun = now - 1 * MS;
    for (uint64_t b = 0; b < STEPS; b++)
        asked[b] = b < p->ahead ? begun : UINT64_MAX;
    for (uint64_t b = 0; b < STEPS; b++) {
        /* Batches are asked for when an earlier one is taken: with none ahead, when the wait for it begins. */
        for (uint64_t k = b; k < STEPS && k <= b + p->ahead; k++) {
            if (asked[k] == UINT64_MAX && (p->ahead ? k < b + p->ahead : k == b))
                asked[k] = now;
            if (asked[k] == UINT64_MAX || (k > b && !p->ahead))
                continue;
        }
        uint32_t tid = (uint32_t)(b % p->workers);
        uint64_t start = MR_MAX(asked[b], free_at[tid]);
        ready[b] = start + p->make * MS;
        free_at[tid] = ready[b];
        put_work(&w, p, b, 1 + tid, start);
        uint64_t got = MR_MAX(now, ready[b]);
        put_wait(&w, b, now, MR_MAX(got, now + 1));
        if (p->ahead && b + p->ahead < STEPS)
            asked[b + p->ahead] = got;
        now = MR_MAX(got, now + 1) + p->compute * MS;
    }
    put_wait(&w, STEPS, now, now);
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    return x;
}

static void two_ahead_with_two_readers_hardly_stall(void **state)
{
    (void)state;
    struct mr_explanation *x = run_pool(&(struct pool){.workers = 2, .ahead = 4, .make = 500, .compute = 500});
    /* the first batch is waited for, nothing else */
    assert_true(x->ns[MR_TIME_STALL] - x->step[0].ns[MR_TIME_STALL] < x->train_ns / 50);
    assert_true(share(x, x->ns[MR_TIME_STALL]) < 0.04);
    mr_explanation_free(x);
}

/* Nobody asks before the loop waits, and the readers have nothing to do meanwhile. */
static void depth_0_with_idle_readers_is_not_started(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 2, 0);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 1000 * MS) {
        put_read(&w, 1 + b % 2, now, now + 500 * MS, 100 << 20);
        put_fetch(&w, b, 1 + b % 2, now, now + 500 * MS, 1 * MS);
        const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b}, {.key = w.key_rows, .value = 8}};
        span(&w, w.wait, 0, now, now + 500 * MS, arg, MR_ARRAY_LEN(arg));
    }
    put_wait(&w, STEPS, now, now);
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_true(share(x, x->ns[MR_TIME_STALL]) > 0.49);
    assert_true(part(x, MR_STALL_NOT_STARTED) > 0.9);
    assert_int_equal(x->verdict.cause, MR_STALL_NOT_STARTED);
    mr_explanation_free(x);
}

static void slow_decode_is_decode(void **state)
{
    (void)state;
    struct mr_explanation *x =
        run_pool(&(struct pool){.workers = 2, .ahead = 4, .make = 2000, .compute = 500, .decodes = true});
    assert_true(part(x, MR_STALL_DECODE) > 0.95);
    assert_int_equal(x->verdict.cause, MR_STALL_DECODE);
    mr_explanation_free(x);
}

/* One worker for what needs two: the wait is for what it did with earlier batches, too. */
static void too_few_workers_are_behind(void **state)
{
    (void)state;
    struct mr_explanation *x = run_pool(&(struct pool){.workers = 1, .ahead = 2, .make = 1000, .compute = 500});
    assert_true(part(x, MR_STALL_STORAGE) > 0.95);
    assert_true(x->behind_ns > x->ns[MR_TIME_STALL] * 9 / 10);
    assert_true(share(x, x->ns[MR_TIME_STALL]) > 0.48 && share(x, x->ns[MR_TIME_STALL]) < 0.53);
    assert_int_equal(x->workers, 1);
    assert_true(x->worker[0].ns[MR_STALL_STORAGE] == STEPS * 1000 * MS);
    mr_explanation_free(x);
}

/* In no call and no span: off the CPU is not decoding. */
static void time_off_the_cpu_is_the_workers(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1, 2);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 400 * MS) { /* 100 ms on a CPU, 200 ms asleep, always busy */
        put_fetch(&w, b, 1, now, now + 400 * MS, 100 * MS);
        put_wait(&w, b, now + 1, now + 400 * MS);
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_true(part(x, MR_STALL_DECODE) > 0.24 && part(x, MR_STALL_DECODE) < 0.26);
    assert_true(part(x, MR_STALL_WORKER) > 0.74 && part(x, MR_STALL_WORKER) < 0.76);
    mr_explanation_free(x);
}

/* Calls inside spans are the calls; what is left of a span is the span's. */
static void calls_inside_spans_are_counted_once(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 0, 0);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 200 * MS) {
        put_read(&w, 0, now + 10 * MS, now + 40 * MS, 1 << 20);        /* 30 ms storage */
        span(&w, w.decode, 0, now + 5 * MS, now + 65 * MS, NULL, 0);   /* 60 - 30 ms decode */
        span(&w, w.collate, 0, now + 70 * MS, now + 90 * MS, NULL, 0); /* 20 ms */
        put_fetch(&w, b, 0, now, now + 100 * MS, 60 * MS);             /* 20 ms in none: 10 of them on a CPU */
        put_wait(&w, b, now, now + 100 * MS);
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_true(x->ns[MR_TIME_STALL] == STEPS * 100 * MS);
    assert_true(x->stall[MR_STALL_STORAGE] == STEPS * 30 * MS);
    assert_true(x->stall[MR_STALL_DECODE] == STEPS * 40 * MS);
    assert_true(x->stall[MR_STALL_QUEUE] == STEPS * 20 * MS);
    assert_true(x->stall[MR_STALL_WORKER] == STEPS * 10 * MS);
    assert_true(x->rank[0].wait[MR_WAIT_STORAGE] == STEPS * 30 * MS);
    mr_explanation_free(x);
}

static void checkpoints_are_not_compute(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 0, 0);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 200 * MS) {
        put_wait(&w, b, now, now + 1 * MS);
        if (b % 10 == 9)
            span(&w, w.save, 0, now + 150 * MS, now + 190 * MS, NULL, 0);
    }
    put_wait(&w, STEPS, now, now);
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_true(x->ns[MR_TIME_CHECKPOINT] == 4 * 40 * MS);
    assert_true(x->ns[MR_TIME_COMPUTE] == STEPS * 199 * MS - 4 * 40 * MS);
    assert_int_equal(x->checkpoints, 4);
    mr_explanation_free(x);
}

/* A wait for a batch of one of several loaders, of epoch `epoch`. */
static void put_loader_wait(struct world *w, uint64_t loader, uint64_t epoch, uint64_t batch, uint64_t start,
                            uint64_t end)
{
    const struct mr_mrt_arg arg[] = {{.key = w->key_batch, .value = (int64_t)batch},
                                     {.key = w->key_epoch, .value = (int64_t)epoch},
                                     {.key = mr_mrt_sink_key(w->sink, "loader"), .value = (int64_t)loader},
                                     {.key = w->key_workers, .value = 1},
                                     {.key = w->key_prefetch, .value = 2},
                                     {.key = w->key_rows, .value = 8}};
    span(w, w->wait, 0, start, end, arg, MR_ARRAY_LEN(arg));
}

static void put_loader_fetch(struct world *w, uint64_t loader, uint64_t batch, uint32_t tid, uint64_t start,
                             uint64_t end)
{
    const struct mr_mrt_arg arg[] = {{.key = w->key_batch, .value = (int64_t)batch},
                                     {.key = w->key_epoch, .value = 0},
                                     {.key = mr_mrt_sink_key(w->sink, "loader"), .value = (int64_t)loader},
                                     {.key = w->key_worker, .value = 0},
                                     {.key = w->key_cpu, .value = (int64_t)(end - start)}};
    span(w, w->fetch, tid, start, end, arg, MR_ARRAY_LEN(arg));
}

static void put_optimizer(struct world *w, uint64_t start)
{
    span(w, mr_mrt_sink_site(w->sink, "train", "optimizer.step"), 0, start, start + MS, NULL, 0);
}

/* zip(a, b): the loop waits for two batches before it computes. */
static void batches_of_two_loaders_are_one_step(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1, 2);
    for (uint64_t b = 0, t = 10 * MS; b < STEPS; b++, t += 100 * MS) {
        put_loader_wait(&w, 0, 0, b, t, t + 5 * MS);
        put_loader_wait(&w, 1, 0, b, t + 5 * MS + 1000, t + 45 * MS);
        put_optimizer(&w, t + 90 * MS);
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_int_equal(x->steps, STEPS);
    for (size_t i = 0; i < x->steps; i++)
        assert_true(x->step[i].phase != MR_EXPLAIN_EVAL && x->step[i].ns[MR_TIME_STALL] == 45 * MS - 1000);
    mr_explanation_free(x);
}

/* A validation that computes next to nothing, before each epoch: its last batch and the epoch's first are no step, and it
 * stays a validation. */
static void a_batch_right_behind_a_validation_is_no_step_with_it(void **state)
{
    struct world w;
    size_t evaluations = 0;
    (void)state;
    open_world(&w, 1, 2);
    for (uint64_t e = 0, t = 10 * MS; e < 4; e++) {
        for (uint64_t b = 0; b < 5; b++, t += 6 * MS)
            put_loader_wait(&w, 0, e, b, t, t + 5 * MS);
        for (uint64_t b = 0; b < 10; b++, t += 100 * MS) {
            put_loader_wait(&w, 1, e, b, t, t + 5 * MS);
            put_optimizer(&w, t + 90 * MS);
        }
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_int_equal(x->steps, 4 * 15);
    for (size_t i = 0; i < x->steps; i++)
        evaluations += x->step[i].phase == MR_EXPLAIN_EVAL;
    assert_int_equal(evaluations, 4 * 5);
    mr_explanation_free(x);
}

/* next(iter(loader)): the end of its workers belongs to the wait, and the iterator is made too often. */
static void an_iterator_for_each_batch_is_waited_for_to_its_end(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1, 2);
    for (uint64_t b = 0, t = 10 * MS; b < STEPS; b++, t += 200 * MS) {
        const struct mr_mrt_arg arg[] = {{.key = w.key_epoch, .value = (int64_t)b},
                                         {.key = mr_mrt_sink_key(w.sink, "loader"), .value = 0}};
        span(&w, w.iter, 0, t, t + 30 * MS, arg, 2);
        put_loader_wait(&w, 0, b, 0, t + 31 * MS, t + 60 * MS);
        span(&w, mr_mrt_sink_site(w.sink, "data_loader", "DataLoader.shutdown"), 0, t + 61 * MS, t + 100 * MS, arg, 2);
        put_optimizer(&w, t + 190 * MS);
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_int_equal(x->steps, STEPS);
    assert_true(x->ns[MR_TIME_STALL] == STEPS * 100 * MS);
    assert_string_equal(x->finding[0].id, "EP1");
    assert_non_null(strstr(x->finding[0].fix, "iterator once"));
    mr_explanation_free(x);
}

/* By turns, each with a step of its own: they stay apart. */
static void loaders_taken_by_turns_are_steps_of_their_own(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1, 2);
    for (uint64_t b = 0, t = 10 * MS; b < STEPS; b++, t += 100 * MS) {
        put_loader_wait(&w, b % 2, 0, b / 2, t, t + 5 * MS);
        put_optimizer(&w, t + 90 * MS);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_true(x->facts.epochs == 1);
    mr_explanation_free(x);
}

/* DataLoader(...) inside the loop over epochs: a loader of one epoch each time, and one for evaluation behind it, whose
 * slow batches say nothing about the training's. */
static void loaders_made_anew_are_epochs(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1, 2);
    uint64_t t = 10 * MS;
    for (uint64_t e = 0; e < 40; e++) {
        for (uint64_t b = 0; b < 10; b++, t += 50 * MS) {
            put_loader_fetch(&w, 2 * e, b, 1, t - 5 * MS, t - 1 * MS);
            put_loader_wait(&w, 2 * e, 0, b, t, t + 1 * MS);
            put_optimizer(&w, t + 40 * MS);
        }
        put_loader_fetch(&w, 2 * e + 1, 0, 2, t, t + 29 * MS);
        put_loader_wait(&w, 2 * e + 1, 0, 0, t, t + 30 * MS);
        t += 60 * MS;
    }
    struct mr_explanation *x = explain(&w);
    size_t evaluations = 0;
    check_sums(x);
    for (size_t i = 0; i < x->steps; i++)
        evaluations += x->step[i].phase == MR_EXPLAIN_EVAL;
    assert_int_equal(x->steps, 440);
    assert_int_equal(evaluations, 40);
    assert_true(x->facts.epochs == 40);
    assert_true(x->facts.batch_load_s > 0.0039 && x->facts.batch_load_s < 0.0041);
    mr_explanation_free(x);
}

/* torch.save(f), f.flush(), os.fsync(f): one checkpoint, and flushing belongs to it. */
static void parts_of_a_checkpoint_are_one(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 0, 0);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 200 * MS) {
        put_wait(&w, b, now, now + 1 * MS);
        if (b % 10 < 9)
            continue;
        span(&w, w.save, 0, now + 150 * MS, now + 170 * MS, NULL, 0);
        span(&w, w.save, 0, now + 175 * MS, now + 190 * MS, NULL, 0);
    }
    put_wait(&w, STEPS, now, now);
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_true(x->ns[MR_TIME_CHECKPOINT] == 4 * 40 * MS);
    assert_int_equal(x->checkpoints, 4);
    mr_explanation_free(x);
}

/* Saved in every step, longer than a step takes: still one checkpoint for each. */
static void checkpoints_of_different_steps_stay_apart(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 0, 0);
    uint64_t now = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, now += 200 * MS) {
        put_wait(&w, b, now, now + 1 * MS);
        span(&w, w.save, 0, now + 20 * MS, now + 200 * MS, NULL, 0);
    }
    put_wait(&w, STEPS, now, now);
    struct mr_explanation *x = explain(&w);
    assert_true(x->ns[MR_TIME_CHECKPOINT] == STEPS * 180 * MS);
    assert_int_equal(x->checkpoints, STEPS);
    mr_explanation_free(x);
}

/* A pipeline that tells nothing but how much CPU time went by while the program waited; its thread reads beside. */
static void of_silent_pipelines_threads_beside_the_waits_tell(void **state)
{
    (void)state;
    for (unsigned reads = 0; reads < 2; reads++) {
        struct world w;
        open_world(&w, 0, 0);
        uint32_t next = mr_mrt_sink_site(w.sink, "data_loader", "OwnedIterator.next");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_cpu, .value = (int64_t)(reads ? 50 * MS : 450 * MS)},
                                             {.key = mr_mrt_sink_key(w.sink, "between_ns"), .value = 0}};
            put_read(&w, 7, t + 10 * MS, t + (reads ? 460 : 15) * MS, 100 << 20);
            span(&w, next, 0, t, t + 500 * MS, arg, b ? 2 : 1);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
        assert_true(part(x, reads ? MR_STALL_STORAGE : MR_STALL_DECODE) > 0.85);
        assert_true(x->facts.causes_estimated && x->facts.workers == 0); /* nothing happens between the waits */
        assert_string_equal(x->finding[0].id, "PF1");
        mr_explanation_free(x);
    }
}

/* Inside a compiled function nobody says what happened between the waits: only the pipeline's own numbers count. */
static void of_compiled_waits_the_pipeline_tells_what_is_ahead(void **state)
{
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t next = mr_mrt_sink_site(w.sink, "data_loader", "OwnedIterator.next");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_cpu, .value = (int64_t)(480 * MS)},
                                             {.key = w.key_workers, .value = 1},
                                             {.key = w.key_prefetch, .value = 2}};
            span(&w, next, 0, t, t + 500 * MS, arg, told ? 3 : 1);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
        assert_int_equal(x->verdict.cause, MR_STALL_DECODE);
        if (told)
            assert_true(x->facts.workers == 1 && x->facts.prefetch == 2 && x->facts.batch_load_s > 0.9);
        else
            assert_false(x->facts.workers >= 0); /* unknown, not 0 */
        mr_explanation_free(x);
    }
}

static void put_socket(struct world *w, enum mr_event_kind kind, uint32_t tid, uint64_t start, uint64_t end,
                       int64_t bytes)
{
    w->events->emit(w->events, &(struct mr_event){.kind = kind,
                                                  .tid = tid,
                                                  .start_ns = start,
                                                  .dur_ns = end - start,
                                                  .path_id = w->events->intern(w->events, "socket:[inet 127.0.0.1:80]"),
                                                  .result = bytes});
}

/* TCP is network on the loopback, too; the time to the first bytes of an answer is the server's. */
static void waiting_for_a_server_is_network(void **state)
{
    (void)state;
    for (unsigned slow = 0; slow < 2; slow++) {
        struct world w;
        open_world(&w, 1, 2);
        uint64_t t = 10 * MS, first = (slow ? 400 : 10) * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            put_socket(&w, MR_EV_WRITE, 1, t, t + MS / 10, 100);
            put_socket(&w, MR_EV_READ, 1, t + MS, t + MS + first, 1000);
            put_socket(&w, MR_EV_READ, 1, t + 2 * MS + first, t + 450 * MS, 50 << 20);
            put_fetch(&w, b, 1, t, t + 450 * MS, 5 * MS);
            put_wait(&w, b, t, t + 450 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_true(part(x, MR_STALL_NETWORK) > 0.95);
        assert_int_equal(x->verdict.cause, MR_STALL_NETWORK);
        assert_string_equal(x->facts.peer, "127.0.0.1:80");
        assert_true(x->facts.net_requests == STEPS);
        assert_true(slow == (x->facts.net_answer_s > x->facts.net_transfer_s));
        assert_non_null(strstr(x->verdict.line[1], "127.0.0.1:80"));
        assert_true(slow == (strstr(x->verdict.line[1], "rate limit") != NULL));
        mr_explanation_free(x);
    }
}

/* While the worker sleeps, in no call or in its collate function, what other threads of its process read is the cause,
 * as far as it covers the sleep; what they write is not. */
static void helpers_are_followed_while_the_worker_sleeps(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 4; k++) { /* much and little reading; in a span; only writes */
        struct world w;
        open_world(&w, 1, 2);
        uint32_t collate = mr_mrt_sink_site(w.sink, "data_loader", "collate");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            for (uint32_t helper = 2; helper < 4 && k != 3; helper++)
                put_read(&w, helper, t + 10 * MS, t + (k == 1 ? 110 : 410) * MS, 100 << 20);
            if (k == 3)
                w.events->emit(w.events, &(struct mr_event){.kind = MR_EV_WRITE,
                                                            .tid = 2,
                                                            .start_ns = t,
                                                            .dur_ns = 500 * MS,
                                                            .path_id = w.file,
                                                            .result = 100 << 20});
            if (k == 2)
                span(&w, collate, 1, t, t + 500 * MS, NULL, 0);
            put_fetch(&w, b, 1, t, t + 500 * MS, 5 * MS);
            put_wait(&w, b, t, t + 500 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        double storage = part(x, MR_STALL_STORAGE), rest = part(x, MR_STALL_WORKER);
        assert_true(k == 1 ? storage > 0.35 && storage < 0.45 : k == 3 ? storage < 0.01 : storage > 0.95);
        assert_true(k == 1 ? rest > 0.5 : k == 3 ? rest > 0.95 : rest < 0.05);
        assert_int_equal(x->verdict.cause, k % 2 ? MR_STALL_WORKER : MR_STALL_STORAGE);
        assert_true(k % 2 || x->facts.batch_read_s > x->facts.batch_decode_s);
        mr_explanation_free(x);
    }
}

/* Decoding that other programs keep off the CPU waits for one, also in other threads of the process, for which the worker
 * sleeps (way 2); the same time asleep is the worker's (way 0). */
static void waiting_for_a_cpu_is_a_cause_of_its_own(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 3; waits++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t delay = mr_mrt_sink_key(w.sink, waits == 2 ? "threads_delay_ns" : "delay_ns");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b},
                                             {.key = w.key_epoch, .value = 0},
                                             {.key = w.key_worker, .value = 0},
                                             {.key = w.key_cpu, .value = 300 * MS},
                                             {.key = delay, .value = 680 * MS}};
            span(&w, w.fetch, 1, t, t + 990 * MS, arg, waits ? 5 : 4);
            put_wait(&w, b, t + 500 * MS, t + 990 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_true(part(x, MR_STALL_DECODE) > 0.2 && part(x, MR_STALL_DECODE) < 0.4);
        assert_true(part(x, MR_STALL_CPU) > (waits ? 0.6 : -1) && part(x, MR_STALL_CPU) < (waits ? 0.75 : 0.01));
        assert_int_equal(x->verdict.cause, waits ? MR_STALL_CPU : MR_STALL_WORKER);
        assert_true(part(x, MR_STALL_WORKER) < (waits ? 0.05 : 0.8));
        assert_true(waits || part(x, MR_STALL_WORKER) > 0.6);
        mr_explanation_free(x);
    }
}

/* Who wakes up in a call needs a CPU to return: run-queue delay beyond all work lies in such calls. */
static void a_sleep_that_ends_without_a_cpu_waits_for_one(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t delay = mr_mrt_sink_key(w.sink, "delay_ns");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b},
                                             {.key = w.key_epoch, .value = 0},
                                             {.key = w.key_worker, .value = 0},
                                             {.key = w.key_cpu, .value = 20 * MS},
                                             {.key = delay, .value = 680 * MS}};
            w.events->emit(w.events, &(struct mr_event){.kind = MR_EV_WAIT,
                                                        .call = MR_CALL_sem_wait,
                                                        .tid = 1,
                                                        .start_ns = t + 20 * MS,
                                                        .dur_ns = 970 * MS});
            span(&w, w.fetch, 1, t, t + 990 * MS, arg, waits ? 5 : 4);
            put_wait(&w, b, t + 500 * MS, t + 990 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_true(part(x, MR_STALL_CPU) > (waits ? 0.6 : -1) && part(x, MR_STALL_CPU) < (waits ? 0.75 : 0.01));
        assert_int_equal(x->verdict.cause, waits ? MR_STALL_CPU : MR_STALL_WORKER);
        mr_explanation_free(x);
    }
}

/* Copies out of the page cache in the middle of which others got the CPU look as slow as a storage; a thread that never
 * slept waited for none. Asleep in them, it did. */
static void a_copy_that_others_interrupt_is_no_storage(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t delay = mr_mrt_sink_key(w.sink, "delay_ns");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b},
                                             {.key = w.key_epoch, .value = 0},
                                             {.key = w.key_worker, .value = 0},
                                             {.key = w.key_cpu, .value = 190 * MS},
                                             {.key = delay, .value = 800 * MS}};
            for (unsigned k = 0; k < 20; k++)
                w.events->emit(w.events, &(struct mr_event){.kind = MR_EV_READ,
                                                            .call = MR_CALL_pread,
                                                            .tid = 1,
                                                            .start_ns = t + k * 45 * MS,
                                                            .dur_ns = 30 * MS,
                                                            .path_id = w.file,
                                                            .result = 4096});
            span(&w, w.fetch, 1, t, t + 990 * MS, arg, waits ? 5 : 4);
            put_wait(&w, b, t + 500 * MS, t + 990 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_int_equal(x->verdict.cause, waits ? MR_STALL_CPU : MR_STALL_STORAGE);
        assert_true(waits ? part(x, MR_STALL_STORAGE) < 0.01 && part(x, MR_STALL_CPU) > 0.7
                          : part(x, MR_STALL_STORAGE) > 0.5);
        mr_explanation_free(x);
    }
}

/* The wait for a lock on a file, which another process holds, is the wait for a lock. */
static void a_lock_on_a_file_is_a_lock(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 1, 2);
    uint64_t t = 10 * MS;
    for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
        w.events->emit(w.events, &(struct mr_event){.kind = MR_EV_HANDLE,
                                                    .call = MR_CALL_flock,
                                                    .tid = 1,
                                                    .start_ns = t + 10 * MS,
                                                    .dur_ns = 600 * MS,
                                                    .path_id = w.file});
        put_fetch(&w, b, 1, t, t + 990 * MS, 20 * MS);
        put_wait(&w, b, t + 500 * MS, t + 990 * MS);
    }
    struct mr_explanation *x = explain(&w);
    check_sums(x);
    assert_int_equal(x->verdict.cause, MR_STALL_WORKER);
    assert_true((double)x->batch[1].lock_s > 0.55 && (double)x->batch[1].lock_s < 0.65);
    mr_explanation_free(x);
}

/* A batch that is ready and does not come, while the worker is at the next one: passing it on; without a CPU for the
 * worker there is none for the thread that passes it on either. */
static void batches_that_no_cpu_passes_on_wait_for_one(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t delay = mr_mrt_sink_key(w.sink, "delay_ns");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 500 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b},
                                             {.key = w.key_epoch, .value = 0},
                                             {.key = w.key_worker, .value = 0},
                                             {.key = w.key_cpu, .value = (waits ? 100 : 490) * MS},
                                             {.key = delay, .value = 390 * MS}};
            span(&w, w.fetch, 1, t, t + 495 * MS, arg, waits ? 5 : 4);
            put_wait(&w, b, t + 600 * MS, t + 900 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_int_equal(x->verdict.cause, waits ? MR_STALL_CPU : MR_STALL_DECODE); /* else the worker is the limit */
        assert_true(part(x, waits ? MR_STALL_CPU : MR_STALL_DECODE) > 0.85);
        mr_explanation_free(x);
    }
}

/* One worker, 8 ms of compute. A batch comes late while its worker computes the next one (it has Python's lock): the
 * worker is the limit. Where it waits to be asked for, passing on is. */
static void a_batch_that_comes_late_from_a_busy_worker_waits_for_its_work(void **state)
{
    (void)state;
    for (unsigned limit = 0; limit < 2; limit++) {
        struct world w;
        open_world(&w, 1, 2);
        uint64_t each = (limit ? 15 : 33) * MS, late = (limit ? 30 : 25) * MS;
        uint64_t made = 10 * MS + each, free_at = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++) {
            put_fetch(&w, b, 1, made - each, made, each);
            uint64_t come = made + late;
            put_wait(&w, b, free_at, MR_MAX(come, free_at));
            free_at = MR_MAX(come, free_at) + 8 * MS;
            made = (limit ? come - late + 38 * MS : made + each); /* the limit: one is passed on at a time */
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_true(part(x, limit ? MR_STALL_QUEUE : MR_STALL_DECODE) > 0.9);
        mr_explanation_free(x);
    }
}

/* A worker that is off the CPU because pages of a mapped file come from a disk: storage, as far as the number of pages
 * accounts for it; a few pages beside a long sleep do not. */
static void pages_of_mapped_files_are_storage(void **state)
{
    static const struct {
        int64_t faults;
        double storage, worker;
    } cases[] = {{0, 0, 0.7}, {1, 0.03, 0.67}, {5, 0.7, 0}, {200, 0.7, 0}};
    (void)state;
    for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct world w;
        open_world(&w, 1, 2);
        uint32_t faults = mr_mrt_sink_key(w.sink, "major_faults");
        uint64_t t = 10 * MS;
        for (uint64_t b = 0; b < STEPS; b++, t += 1000 * MS) {
            const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b},
                                             {.key = w.key_epoch, .value = 0},
                                             {.key = w.key_worker, .value = 0},
                                             {.key = w.key_cpu, .value = 297 * MS},
                                             {.key = faults, .value = cases[i].faults}};
            span(&w, w.fetch, 1, t, t + 990 * MS, arg, 5);
            put_wait(&w, b, t + 500 * MS, t + 990 * MS);
        }
        struct mr_explanation *x = explain(&w);
        check_sums(x);
        assert_true(fabs(part(x, MR_STALL_STORAGE) - cases[i].storage) < 0.02);
        assert_true(fabs(part(x, MR_STALL_WORKER) - cases[i].worker) < 0.02);
        assert_true(fabs(x->facts.batch_read_s -
                         MR_MIN((double)cases[i].faults * (cases[i].faults < 4 ? 0.02 : 0.5), 0.693)) < 1e-6);
        mr_explanation_free(x);
    }
}

/* Two readers in each of four epochs, made anew every time by a pipeline that does not tell how many it has. */
static void readers_made_anew_are_as_many_as_live_at_once(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 1, 2);
    uint32_t item = mr_mrt_sink_site(w.sink, "data_loader", "torchdata.element");
    uint32_t wait = mr_mrt_sink_site(w.sink, "data_loader", "torchdata.LoaderIterator.next");
    for (uint32_t b = 0; b < 40; b++) {
        uint64_t t = (10 + 100ull * b) * MS;
        span(&w, item, 1 + b / 10 * 2 + b % 2, t - 5 * MS, t + 40 * MS, NULL, 0);
        span(&w, wait, 0, t, t + 41 * MS, NULL, 0);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->workers, 8);
    assert_true(x->facts.workers == 2);
    assert_string_equal(x->facts.framework, "pytorch");
    mr_explanation_free(x);
}

/* A thread waits for the loader and hands its batches over to the one that trains. */
static struct mr_explanation *run_handover(bool seen)
{
    struct world w;
    open_world(&w, 1, 2);
    uint32_t step = mr_mrt_sink_site(w.sink, "train", "optimizer.step");
    uint32_t get = mr_mrt_sink_site(w.sink, "queue", "Queue.get");
    for (uint64_t b = 0, t = 10 * MS; b < STEPS; b++, t += 100 * MS) {
        const struct mr_mrt_arg arg[] = {{.key = w.key_batch, .value = (int64_t)b}, {.key = w.key_rows, .value = 8}};
        put_fetch(&w, b, 2, t, t + 50 * MS, 50 * MS);
        span(&w, w.wait, 1, t, t + 50 * MS, arg, MR_ARRAY_LEN(arg));
        if (seen)
            span(&w, get, 0, t, t + 50 * MS, NULL, 0);
        span(&w, step, 0, t + 90 * MS, t + 99 * MS, NULL, 0);
    }
    return explain(&w);
}

static void handover_that_nobody_sees_is_incomplete(void **state)
{
    (void)state;
    struct mr_explanation *x = run_handover(false);
    assert_true(x->trust.blind);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    mr_explanation_free(x);
    x = run_handover(true);
    assert_false(x->trust.blind);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_true(share(x, x->ns[MR_TIME_STALL]) > 0.4);
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_made_anew_are_as_many_as_live_at_once),
        cmocka_unit_test(a_batch_that_comes_late_from_a_busy_worker_waits_for_its_work),
        cmocka_unit_test(pages_of_mapped_files_are_storage),
        cmocka_unit_test(handover_that_nobody_sees_is_incomplete),
        cmocka_unit_test(serial_reading_is_half_stall_on_storage),
        cmocka_unit_test(two_ahead_with_two_readers_hardly_stall),
        cmocka_unit_test(depth_0_with_idle_readers_is_not_started),
        cmocka_unit_test(slow_decode_is_decode),
        cmocka_unit_test(too_few_workers_are_behind),
        cmocka_unit_test(time_off_the_cpu_is_the_workers),
        cmocka_unit_test(calls_inside_spans_are_counted_once),
        cmocka_unit_test(checkpoints_are_not_compute),
        cmocka_unit_test(batches_of_two_loaders_are_one_step),
        cmocka_unit_test(a_batch_right_behind_a_validation_is_no_step_with_it),
        cmocka_unit_test(an_iterator_for_each_batch_is_waited_for_to_its_end),
        cmocka_unit_test(loaders_taken_by_turns_are_steps_of_their_own),
        cmocka_unit_test(loaders_made_anew_are_epochs),
        cmocka_unit_test(parts_of_a_checkpoint_are_one),
        cmocka_unit_test(checkpoints_of_different_steps_stay_apart),
        cmocka_unit_test(of_silent_pipelines_threads_beside_the_waits_tell),
        cmocka_unit_test(of_compiled_waits_the_pipeline_tells_what_is_ahead),
        cmocka_unit_test(waiting_for_a_server_is_network),
        cmocka_unit_test(helpers_are_followed_while_the_worker_sleeps),
        cmocka_unit_test(waiting_for_a_cpu_is_a_cause_of_its_own),
        cmocka_unit_test(a_sleep_that_ends_without_a_cpu_waits_for_one),
        cmocka_unit_test(a_copy_that_others_interrupt_is_no_storage),
        cmocka_unit_test(a_lock_on_a_file_is_a_lock),
        cmocka_unit_test(batches_that_no_cpu_passes_on_wait_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
