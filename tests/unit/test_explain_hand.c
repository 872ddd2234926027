/* Training loops without a data loader, on traces with exactly known answers: steps, waits and causes where the thread
 * that trains reads by itself or takes batches over, "incomplete" where nobody can know. Times are virtual.
 *
 * test-label: concurrent */
#include "base/common.h"
#include "event/calls.h"

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
#define NOBODY UINT64_MAX

/* A trace that is being made: tid 0 trains, the others help. `now` is where tid 0 stands. */
struct world {
    struct mr_mrt_sink *sink;
    struct mr_event_sink *events;
    char path[32];
    uint64_t now, slept, since; /* slept: in this gap, of tid 0; since: when it began */
    uint64_t forward;           /* when the forward pass began; 0: nobody told */
    uint64_t faults;            /* in this gap, on pages that had to be read */
    bool device;
    bool mute; /* train spans say nothing */
};

static void open_world(struct world *w)
{
    *w = (struct world){.now = 10 * MS, .since = NOBODY};
    snprintf(w->path, sizeof w->path, "/tmp/mr-hand-XXXXXX");
    open_made(w->path, &w->sink);
    w->events = mr_mrt_sink_get(w->sink);
}

static void put_span(struct world *w, uint32_t tid, const char *category, const char *name, uint64_t start,
                     uint64_t end, const struct mr_mrt_arg *arg, unsigned n)
{
    const struct mr_event e = {.kind = MR_EV_REGION,
                               .tid = tid,
                               .start_ns = start,
                               .dur_ns = end - start,
                               .path_id = mr_mrt_sink_site(w->sink, category, name)};
    mr_mrt_sink_emit_args(w->sink, &e, arg, n);
}

static void put_call(struct world *w, uint32_t tid, enum mr_event_kind kind, const char *path, uint64_t start,
                     uint64_t end, int64_t result)
{
    w->events->emit(w->events, &(struct mr_event){.kind = kind,
                                                  .tid = tid,
                                                  .start_ns = start,
                                                  .dur_ns = end - start,
                                                  .path_id = w->events->intern(w->events, path),
                                                  .result = result});
}

/* tid 0 goes on for so long: computing, asleep in nothing, in a call, in a span. */
static void compute(struct world *w, uint64_t ns)
{
    w->now += ns;
}

static void sleep_unseen(struct world *w, uint64_t ns)
{
    w->now += ns;
    w->slept += ns;
}

static void call(struct world *w, enum mr_event_kind kind, const char *path, uint64_t ns, int64_t result)
{
    put_call(w, 0, kind, path, w->now, w->now + ns, result);
    w->now += ns;
    w->slept += ns > MS ? ns : 0;
}

static void read_file(struct world *w, uint64_t ns)
{
    call(w, MR_EV_READ, "/data/train.bin", ns, 1 << 20);
}

static void region(struct world *w, const char *category, const char *name, uint64_t ns, bool asleep)
{
    put_span(w, 0, category, name, w->now, w->now + ns, NULL, 0);
    w->now += ns;
    w->slept += asleep ? ns : 0;
}

static void train(struct world *w, const char *name, uint64_t ns, int64_t optimizer)
{
    struct mr_mrt_arg arg[5];
    unsigned n = 0;
    bool told = w->since != NOBODY && !w->mute;
    if (optimizer >= 0)
        arg[n++] = (struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "optimizer"), optimizer, false};
    if (told)
        arg[n++] =
            (struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "awake_ns"), (int64_t)(w->now - w->since - w->slept), false};
    if (told && w->forward)
        arg[n++] = (struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "forward_ns"), (int64_t)(w->now - w->forward), false};
    if (told && w->forward && w->device)
        arg[n++] = (struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "device"), 1, false};
    if (told && w->faults)
        arg[n++] = (struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "major_faults"), (int64_t)w->faults, false};
    put_span(w, 0, "train", name, w->now, w->now + ns, arg, n);
    w->forward = w->faults = 0;
    w->now += ns;
    w->since = w->now;
    w->slept = 0;
}

static void backward(struct world *w, uint64_t ns)
{
    train(w, "backward", ns, -1);
}

static void step(struct world *w)
{
    train(w, "optimizer.step", MS, 0);
}

static struct mr_explanation *explain(struct world *w)
{
    return explain_made(w->sink, w->path);
}

static double part(const struct mr_explanation *x, unsigned cause)
{
    return (double)x->stall[cause] / (double)x->ns[MR_TIME_STALL];
}

static void assert_stall(const struct mr_explanation *x, uint64_t ns)
{
    uint64_t stall = x->ns[MR_TIME_STALL];
    assert_true(stall >= ns - ns / 100 && stall <= ns + ns / 100);
}

/* ---- reading in the loop ---- */

static void own_reads_are_waits_for_storage(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        call(&w, MR_EV_OPEN, "/data/train.bin", MS / 10, 3);
        read_file(&w, 50 * MS);
        compute(&w, 10 * MS);
        backward(&w, 39 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 50 * MS + STEPS * MS / 10);
    assert_true(part(x, MR_STALL_STORAGE) > 0.98);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
    assert_true(x->facts.no_loader && x->facts.workers == 0 && x->facts.prefetch == 0);
    assert_string_equal(x->facts.framework, "pytorch");
    assert_string_equal(x->finding[0].id, "PF1");
    assert_non_null(strstr(x->finding[0].snippet[1], "Dataset"));
    mr_explanation_free(x);
}

/* H3: every batch of an accumulated step is a step, one batch for two optimisers is one. */
static void steps_are_batches(void **state)
{
    (void)state;
    for (unsigned two = 0; two < 2; two++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            read_file(&w, 10 * MS);
            for (int64_t o = 0; o <= (int64_t)two; o++) {
                compute(&w, 5 * MS);
                backward(&w, 20 * MS);
                if (two || i % 4 == 3)
                    train(&w, "optimizer.step", MS, o);
            }
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_stall(x, STEPS * 10 * MS);
        mr_explanation_free(x);
    }
}

/* H3: weights that are changed by hand; a loop that has its data in memory has steps, too. */
static void backward_passes_are_steps_where_there_is_no_optimizer(void **state)
{
    (void)state;
    for (unsigned reads = 0; reads < 2; reads++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            if (reads)
                read_file(&w, 10 * MS);
            compute(&w, 20 * MS);
            backward(&w, 20 * MS);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_stall(x, reads * STEPS * 10 * MS);
        assert_int_equal(x->verdict.verdict, reads ? MR_VERDICT_INPUT : MR_VERDICT_HEALTHY);
        mr_explanation_free(x);
    }
}

/* H1, H2: what a loop does beside reading does not make its computing a wait. */
static void stray_calls_do_not_stretch_waits(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        compute(&w, 20 * MS); /* loss.item() */
        call(&w, MR_EV_WRITE, "/logs/events", MS / 100, 100);
        compute(&w, 5 * MS);
        read_file(&w, 10 * MS);
        compute(&w, 9 * MS);
        call(&w, MR_EV_STAT, "/run/stop", MS / 100, -1);
        call(&w, MR_EV_READ, "/proc/self/statm", MS / 100, 20);
        call(&w, MR_EV_READ, "/lib/late.py", MS / 100, 2000);
        call(&w, MR_EV_WAIT, "/dev/pts/0", 2 * MS, 1);
        region(&w, "reader", "numpy.save", 2 * MS, false);
        compute(&w, MS);
        backward(&w, 40 * MS);
        call(&w, MR_EV_READ, "/data/train.bin", MS / 100, 100); /* clipping looks at a list: no step of its own */
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 10 * MS + STEPS * MS / 100);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    mr_explanation_free(x);
}

/* H2: decoding between many reads is part of the wait. */
static void many_reads_and_what_lies_between_are_one_wait(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned k = 0; k < 10; k++) {
            read_file(&w, MS / 100);
            compute(&w, k < 9 ? 5 * MS : 0);
        }
        compute(&w, 5 * MS);
        backward(&w, 19 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 45 * MS + STEPS * MS / 10);
    assert_true(part(x, MR_STALL_DECODE) > 0.98);
    assert_string_equal(x->finding[0].id, "PF1");
    mr_explanation_free(x);
}

/* H6: lines of a file that is read in large pieces; the same time without a read is a batch, too. Metrics behind each step
 * of a loop that reads in each step are none. */
static void reads_in_large_pieces_serve_the_gaps_without_one(void **state)
{
    (void)state;
    static const unsigned periods[] = {1, 4, 7,
                                       (STEPS + 2) / 3}; /* the last: three reads, one of them before the first step */
    for (size_t k = 0; k < MR_ARRAY_LEN(periods); k++) {
        struct world w;
        unsigned every = periods[k];
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            compute(&w, 10 * MS);
            if (i % every == 0)
                read_file(&w, MS);
            compute(&w, 10 * MS);
            w.forward = w.now;
            region(&w, "train", "forward", 5 * MS, false);
            backward(&w, 10 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        if (every == 1)
            assert_in_range(x->ns[MR_TIME_STALL], (STEPS - 1) * 11 * MS, STEPS * 11 * MS);
        else
            assert_in_range(x->ns[MR_TIME_STALL], (STEPS - 1) * 20 * MS, STEPS * 21 * MS);
        assert_true(part(x, MR_STALL_DECODE) > 0.9);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
        mr_explanation_free(x);
    }
}

/* H7 */
static void calls_of_models_are_steps_where_nothing_trains(void **state)
{
    struct world w;
    const struct mr_mrt_arg evaluates = {0, 1, false};
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        struct mr_mrt_arg arg[2] = {evaluates, evaluates};
        read_file(&w, 10 * MS);
        compute(&w, 5 * MS);
        arg[0].key = mr_mrt_sink_key(w.sink, "evaluates");
        arg[1].key = mr_mrt_sink_key(w.sink, "awake_ns");
        arg[1].value = 15 * MS;
        put_span(&w, 0, "train", "forward", w.now, w.now + 20 * MS, arg, 2);
        w.now += 20 * MS;
        compute(&w, 10 * MS);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 15 * MS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    for (size_t i = 0; i < x->steps; i++)
        assert_int_equal(x->step[i].phase, MR_EXPLAIN_TRAIN);
    mr_explanation_free(x);
}

/* H5: one read, and then computing that may be anything. */
static void decoding_that_no_span_tells_is_incomplete(void **state)
{
    (void)state;
    for (unsigned spans = 0; spans < 3; spans++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            read_file(&w, MS / 100);
            if (spans)
                region(&w, spans == 1 ? "decode" : "reader", spans == 1 ? "Image.load" : "h5py.Dataset.__getitem__",
                       40 * MS, false);
            compute(&w, spans ? 10 * MS : 50 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->verdict.verdict, spans ? MR_VERDICT_INPUT : MR_VERDICT_INCOMPLETE);
        assert_int_equal(x->trust.blind, spans ? MR_BLIND_NOT : MR_BLIND_DECODE);
        assert_true(!spans || part(x, MR_STALL_DECODE) > 0.98);
        mr_explanation_free(x);
    }
}

/* H2: where the forward pass is told, all before it is the data's; with a device it may be a copy that waits. */
static void what_lies_before_the_forward_pass_is_decoding(void **state)
{
    (void)state;
    for (unsigned device = 0; device < 2; device++) {
        struct world w;
        open_world(&w);
        w.device = device;
        for (unsigned i = 0; i < STEPS; i++) {
            read_file(&w, MS / 100);
            compute(&w, 20 * MS);
            if (!device)
                read_file(&w, MS / 100);
            compute(&w, 20 * MS);
            w.forward = w.now;
            compute(&w, 30 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_int_equal(x->verdict.verdict, device ? MR_VERDICT_INCOMPLETE : MR_VERDICT_INPUT);
        assert_int_equal(x->trust.blind, device ? MR_BLIND_DECODE : MR_BLIND_NOT);
        if (!device) {
            assert_true(part(x, MR_STALL_DECODE) > 0.98);
            assert_stall(x, (STEPS - 1) * 40 * MS + (STEPS - 1) * MS / 50);
            assert_string_equal(x->finding[0].id, "PF1");
        }
        mr_explanation_free(x);
    }
}

/* H2: a mapped file is read by page faults, in no call: with the faults counted the sleep before the forward pass is a
 * wait for storage; without them it is unknown what it was. */
static void pages_of_mapped_files_are_waits_for_storage(void **state)
{
    (void)state;
    for (unsigned counted = 0; counted < 2; counted++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            compute(&w, 5 * MS);
            sleep_unseen(&w, 35 * MS);
            w.faults = counted ? 100 : 0;
            w.forward = w.now;
            compute(&w, 20 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->verdict.verdict, counted ? MR_VERDICT_INPUT : MR_VERDICT_INCOMPLETE);
        assert_int_equal(x->trust.blind, counted ? MR_BLIND_NOT : MR_BLIND_ASLEEP);
        if (counted) {
            assert_int_equal(x->steps, STEPS);
            assert_stall(x, (STEPS - 1) * 40 * MS);
            assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
            assert_true(part(x, MR_STALL_STORAGE) > 0.86 && part(x, MR_STALL_DECODE) > 0.11);
        }
        mr_explanation_free(x);
    }
}

/* L5: a thread of the program saves, and the one that trains waits until it has, in a future or a semaphore: no data. A
 * sleep beside a save that goes on behind it is for something else. */
static void waiting_for_an_own_save_is_a_checkpoint(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            compute(&w, 10 * MS);
            w.forward = w.now;
            backward(&w, 20 * MS);
            step(&w);
            if (i % 10 != 5)
                continue;
            put_span(&w, 1, "checkpoint", "torch.save", w.now - 10 * MS, w.now + (way ? 100 : 130) * MS, NULL, 0);
            put_call(&w, 1, MR_EV_WRITE, "/out/c.pt", w.now, w.now + 90 * MS, 1 << 20);
            if (way < 2) {
                region(&w, "queue", "Future.result", 101 * MS, true);
                continue;
            }
            w.events->emit(w.events,
                           &(struct mr_event){
                               .kind = MR_EV_WAIT, .call = MR_CALL_sem_wait, .start_ns = w.now, .dur_ns = 101 * MS});
            sleep_unseen(&w, 101 * MS);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->checkpoints, 4);
        assert_true(x->checkpoint[0].beside);
        assert_int_equal(x->ns[MR_TIME_CHECKPOINT], way ? 4 * 101 * MS : 0);
        assert_int_equal(x->ns[MR_TIME_STALL], way ? 0 : 4 * 101 * MS);
        mr_explanation_free(x);
    }
}

/* L6: a state that is packed and written piece by piece is a checkpoint with what lies between its writes; a text, or
 * little, is logging. */
static void a_state_written_by_hand_is_a_checkpoint(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        const char *path = way == 1 ? "/out/history.csv" : "/out/model.bin";
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            compute(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
            if (i % 10 != 5)
                continue;
            call(&w, MR_EV_OPEN, path, MS, 3);
            for (unsigned k = 0; k < 4; k++) {
                compute(&w, 150 * MS);
                call(&w, MR_EV_WRITE, path, 10 * MS, way == 2 ? 100 : 2 << 20);
            }
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->checkpoints, way ? 0 : 4);
        assert_int_equal(x->ns[MR_TIME_CHECKPOINT], way ? 0 : 4 * 641 * MS);
        uint64_t text = way == 1 ? 4 * 600 * MS : 4 * 4 * 100 * 100; /* L3: 2 MiB are 150 ms and more */
        assert_int_equal(x->ns[MR_TIME_LOGGING], way ? 4 * 41 * MS + text : 0);
        if (!way) {
            assert_int_equal(x->checkpoint[0].bytes, 8 << 20);
            assert_string_equal(x->checkpoint[0].path, path);
            assert_int_equal(x->verdict.verdict, MR_VERDICT_CHECKPOINT);
        }
        mr_explanation_free(x);
    }
}

/* Files of tensors, which are read as checkpoints are. */
static void tensors_loaded_at_every_step_are_data(void **state)
{
    (void)state;
    for (unsigned often = 0; often < 2; often++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            if (often || i == 5) {
                put_call(&w, 0, MR_EV_READ, "/data/b.pt", w.now, w.now + 30 * MS, 1 << 20);
                region(&w, "checkpoint", "torch.serialization.load", 30 * MS, true);
            }
            compute(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_int_equal(x->verdict.verdict, often ? MR_VERDICT_INPUT : MR_VERDICT_HEALTHY);
        assert_int_equal(x->ns[MR_TIME_CHECKPOINT], often ? 0 : 30 * MS);
        assert_int_equal(x->checkpoints, !often);
        mr_explanation_free(x);
    }
}

/* H4 */
static void evaluation_has_steps_of_its_own(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned k = 0; i == 20 && k < 30; k++) {
            read_file(&w, 10 * MS);
            compute(&w, 20 * MS);
        }
        read_file(&w, 10 * MS);
        compute(&w, 10 * MS);
        backward(&w, 20 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    size_t evaluates = 0;
    for (size_t i = 0; i < x->steps; i++)
        evaluates += x->step[i].phase == MR_EXPLAIN_EVAL;
    assert_int_equal(evaluates, 30);
    assert_int_equal(x->steps, STEPS + 30);
    assert_stall(x, (STEPS + 30) * 10 * MS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    mr_explanation_free(x);
}

static void call_model(struct world *w, uint64_t ns, bool evaluates)
{
    const struct mr_mrt_arg arg = {.key = mr_mrt_sink_key(w->sink, "evaluates"), .value = 1};
    put_span(w, 0, "train", "forward", w->now, w->now + ns, &arg, evaluates);
    w->now += ns;
}

/* nanoGPT's loop: a few batches of evaluation now and then, and each batch is read behind the forward pass of the one
 * before. Calls of the model part what would look like one wait. */
static void evaluation_is_known_by_calls_of_the_model(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned k = 0; i % 10 == 0 && k < 5; k++) {
            read_file(&w, MS);
            compute(&w, MS); /* decodes */
            call_model(&w, 8 * MS, true);
        }
        call_model(&w, 20 * MS, false);
        read_file(&w, MS);
        compute(&w, MS);
        backward(&w, 40 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    size_t evaluates = 0;
    for (size_t i = 0; i < x->steps; i++)
        evaluates += x->step[i].phase == MR_EXPLAIN_EVAL;
    assert_int_equal(evaluates, 20); /* also before the first step */
    assert_int_equal(x->steps, STEPS + 20);
    assert_stall(x, (STEPS + 20) * 2 * MS);
    assert_int_equal(x->rank[0].ns[MR_TIME_STARTUP], 0);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    assert_int_equal(x->trust.blind, MR_BLIND_NOT);
    mr_explanation_free(x);
}

/* What is evaluated before the first step without reading anything is evaluation, too, and no start-up. */
static void evaluation_from_memory_is_no_startup(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    read_file(&w, 30 * MS);
    compute(&w, 1500 * MS);
    for (unsigned k = 0; k < 5; k++)
        call_model(&w, 100 * MS, true);
    for (unsigned i = 0; i < STEPS; i++) {
        call_model(&w, 10 * MS, false);
        backward(&w, 20 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->step[0].phase, MR_EXPLAIN_EVAL);
    assert_int_equal(x->step[1].phase, MR_EXPLAIN_TRAIN);
    assert_int_equal(x->rank[0].ns[MR_TIME_STARTUP], 1530 * MS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    mr_explanation_free(x);
}

/* A teacher without gradients in every step is no evaluation. */
static void a_teacher_is_no_evaluation(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        read_file(&w, 10 * MS);
        call_model(&w, 10 * MS, true);
        call_model(&w, 10 * MS, false);
        backward(&w, 20 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 10 * MS);
    for (size_t i = 0; i < x->steps; i++)
        assert_int_equal(x->step[i].phase, MR_EXPLAIN_TRAIN);
    mr_explanation_free(x);
}

/* A thread of the program's own reads ahead and hands over by a queue: what it reads is what is waited for. */
static void a_producer_behind_a_queue_is_followed(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        put_call(&w, 1, MR_EV_READ, "/data/train.bin", w.now - 5 * MS, w.now + 30 * MS, 1 << 20);
        region(&w, "queue", "Queue.get", 30 * MS, true);
        compute(&w, 5 * MS);
        backward(&w, 10 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_stall(x, STEPS * 30 * MS);
    assert_true(part(x, MR_STALL_STORAGE) > 0.95);
    assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
    mr_explanation_free(x);
}

/* ---- the loop's own files ---- */

/* L3: text is made before it is written, as far as its bytes need it; what is computed besides is no logging. */
static void the_text_of_logs_is_logging(void **state)
{
    (void)state;
    for (unsigned metrics = 0; metrics < 2; metrics++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            compute(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
            compute(&w, metrics ? 20 * MS : 2 * MS);
            call(&w, MR_EV_WRITE, "/run/log.jsonl", MS / 10, metrics ? 100 : 30000);
        }
        struct mr_explanation *x = explain(&w);
        uint64_t logged = (STEPS - 1) * (MS / 10 + (metrics ? 100 * 100 : 2 * MS));
        assert_true(x->ns[MR_TIME_LOGGING] >= logged && x->ns[MR_TIME_LOGGING] < logged + 3 * MS);
        assert_int_equal(x->verdict.verdict, metrics ? MR_VERDICT_HEALTHY : MR_VERDICT_LOGGING);
        mr_explanation_free(x);
    }
}

static void logs_and_settings_are_no_data(void **state)
{
    (void)state;
    for (unsigned data = 0; data < 2; data++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            if (data)
                read_file(&w, 30 * MS);
            compute(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
            call(&w, MR_EV_OPEN, "/run/config.json", MS / 10, 3);
            call(&w, MR_EV_READ, "/run/config.json", MS, 200);
            call(&w, MR_EV_OPEN, "/run/history.json", MS / 10, 3);
            call(&w, MR_EV_READ, "/run/history.json", MS, 100000);
            compute(&w, 2 * MS); /* parses, formats */
            call(&w, MR_EV_OPEN, "/run/history.json", MS / 10, 3);
            call(&w, MR_EV_WRITE, "/run/history.json", MS, 100100);
        }
        struct mr_explanation *x = explain(&w);
        uint64_t logged = STEPS * (5 * MS + 3 * MS / 10);
        assert_true(x->ns[MR_TIME_LOGGING] > logged - logged / 20 && x->ns[MR_TIME_LOGGING] <= logged);
        if (data)
            assert_stall(x, STEPS * 30 * MS);
        else
            assert_true(x->ns[MR_TIME_STALL] == 0);
        assert_int_equal(x->verdict.verdict, data ? MR_VERDICT_INPUT : MR_VERDICT_LOGGING);
        assert_int_equal(x->facts.files, data);
        bool found = false;
        for (size_t i = 0; i < x->findings; i++)
            found |= !strcmp(x->finding[i].id, "LG1");
        assert_true(found && (data || !strcmp(x->finding[0].id, "LG1")));
        mr_explanation_free(x);
    }
}

/* torch.save() into memory, and a write of that behind it, also behind the last step: one checkpoint with its file. */
static void a_save_into_memory_is_what_is_written_behind_it(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        compute(&w, 20 * MS);
        backward(&w, 20 * MS);
        step(&w);
        if (i % 10 != 9)
            continue;
        const struct mr_mrt_arg arg = {.key = mr_mrt_sink_key(w.sink, "memory"), .value = 1};
        put_span(&w, 0, "checkpoint", "torch.serialization.save", w.now, w.now + 50 * MS, &arg, 1);
        compute(&w, 51 * MS);
        call(&w, MR_EV_OPEN, "/run/last.ckpt", MS, 3);
        call(&w, MR_EV_WRITE, "/run/last.ckpt", 30 * MS, 100 << 20);
        call(&w, MR_EV_WRITE, "/run/last.ckpt", 30 * MS, 100 << 20);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->checkpoints, STEPS / 10);
    for (size_t i = 0; i < x->checkpoints; i++) {
        assert_true(x->checkpoint[i].bytes == 200u << 20);
        assert_string_equal(x->checkpoint[i].path, "/run/last.ckpt");
        assert_true(x->checkpoint[i].end_ns - x->checkpoint[i].start_ns == 112 * MS);
    }
    assert_true(x->ns[MR_TIME_CHECKPOINT] >= STEPS / 10 * 112 * MS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_CHECKPOINT);
    mr_explanation_free(x);
}

/* ---- no reading at all ---- */

/* What the loop does between its steps: it computes, it sleeps in a way that nobody sees, and nobody told. */
static void memory_is_healthy_only_if_the_thread_was_awake(void **state)
{
    static const uint8_t blind[] = {MR_BLIND_NOT, MR_BLIND_ASLEEP, MR_BLIND_ASLEEP};
    (void)state;
    for (unsigned way = 0; way < MR_ARRAY_LEN(blind); way++) {
        struct world w;
        open_world(&w);
        w.mute = way == 2;
        read_file(&w, 5 * MS); /* before the loop: no wait of it */
        for (unsigned i = 0; i < STEPS; i++) {
            if (way == 1)
                sleep_unseen(&w, 30 * MS);
            compute(&w, 30 * MS);
            backward(&w, 19 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_int_equal(x->ns[MR_TIME_STALL], 0);
        assert_int_equal(x->trust.blind, blind[way]);
        assert_int_equal(x->verdict.verdict, way ? MR_VERDICT_INCOMPLETE : MR_VERDICT_HEALTHY);
        mr_explanation_free(x);
    }
}

/* ---- handovers ---- */

/* Two workers of a pool make batches of 60 ms for a loop that computes 10 ms. */
static struct mr_explanation *run_pool(bool tasks)
{
    struct world w;
    uint64_t free_at[2] = {10 * MS, 10 * MS};
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t start = free_at[i % 2], end = start + 60 * MS;
        const struct mr_mrt_arg cpu = {.key = mr_mrt_sink_key(w.sink, "cpu_ns"), .value = 60 * MS};
        if (tasks)
            put_span(&w, 1 + i % 2, "pool", "task", start, end, &cpu, 1);
        free_at[i % 2] = end;
        region(&w, "queue", "IMapIterator.next", end + MS / 10 - MR_MIN(w.now, end), true);
        compute(&w, 3 * MS);
        backward(&w, 6 * MS);
        step(&w);
    }
    return explain(&w);
}

/* Ray Data: a thread of the program waits for what workers of a cluster make, and hands it over. */
static void what_a_cluster_makes_is_not_its_messengers(void **state)
{
    struct world w;
    uint64_t start = 10 * MS;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++, start += 30 * MS) {
        uint64_t end = start + 30 * MS;
        const struct mr_mrt_arg busy = {mr_mrt_sink_key(w.sink, "cpu_ns"), 29 * MS, false},
                                idle = {mr_mrt_sink_key(w.sink, "cpu_ns"), MS / 10, false};
        put_span(&w, 2, "pool", "ray task", start, end, &busy, 1);
        put_call(&w, 1, MR_EV_READ, "socket:[inet 10.0.0.1:80]", start, end, 100);
        put_span(&w, 1, "pool", "task", start, end, &idle, 1);
        region(&w, "queue", "Queue.get", end + MS / 10 - MR_MIN(w.now, end), true);
        compute(&w, 3 * MS);
        backward(&w, 6 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_DECODE);
    assert_true(part(x, MR_STALL_NETWORK) < 0.1);
    assert_true(x->workers == 1);
    mr_explanation_free(x);
}

static void what_a_pool_makes_is_followed_by_its_tasks(void **state)
{
    (void)state;
    struct mr_explanation *x = run_pool(true);
    assert_int_equal(x->steps, STEPS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_DECODE);
    assert_true(part(x, MR_STALL_DECODE) > 0.9);
    assert_true(x->workers == 2 && x->facts.workers == 2);
    mr_explanation_free(x);
    x = run_pool(false);
    assert_int_equal(x->steps, STEPS);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_UNKNOWN);
    mr_explanation_free(x);
}

/* An event loop: the thread sleeps in epoll_wait while others work. */
static void waiting_for_others_in_a_call_is_a_wait(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        call(&w, MR_EV_WAIT, "anon_inode:[eventpoll]", 20 * MS, 1);
        compute(&w, 10 * MS);
        backward(&w, 20 * MS);
        step(&w);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_stall(x, STEPS * 20 * MS);
    assert_int_equal(x->verdict.cause, MR_STALL_UNKNOWN);
    mr_explanation_free(x);
}

/* ---- what stays as it was ---- */

/* A program with a loader is explained by its waits, whatever its pools and its own thread do. */
static void with_a_loader_nothing_changes(void **state)
{
    uint64_t stall[2];
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            const struct mr_mrt_arg batch = {.key = mr_mrt_sink_key(w.sink, "batch"), .value = i};
            put_span(&w, 1, "data_loader", "fetch", w.now, w.now + 20 * MS, &batch, 1);
            if (more) {
                put_span(&w, 2, "pool", "task", w.now, w.now + 19 * MS, NULL, 0);
                put_span(&w, 0, "queue", "multiprocessing.Queue.get", w.now, w.now + 20 * MS, NULL, 0);
            }
            put_span(&w, 0, "data_loader", "DataLoader.next", w.now, w.now + 20 * MS, &batch, 1);
            w.now += 20 * MS;
            if (more)
                read_file(&w, 10 * MS);
            else
                compute(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_false(x->facts.no_loader);
        assert_int_equal(x->workers, 1);
        assert_int_equal(x->worker[0].tid, 1);
        stall[more] = x->ns[MR_TIME_STALL];
        mr_explanation_free(x);
    }
    assert_int_equal(stall[0], stall[1]);
}

/* Few steps, and steps of several threads, are no loop that is understood. */
static void other_loops_stay_incomplete(void **state)
{
    (void)state;
    for (unsigned few = 0; few < 2; few++) {
        struct world w;
        open_world(&w);
        for (unsigned i = 0; i < (few ? 2 : STEPS); i++) {
            read_file(&w, 10 * MS);
            backward(&w, 20 * MS);
            step(&w);
            if (!few)
                put_span(&w, 1, "train", "optimizer.step", w.now, w.now + MS,
                         &(struct mr_mrt_arg){.key = mr_mrt_sink_key(w.sink, "optimizer"), .value = 1}, 1);
        }
        struct mr_explanation *x = explain(&w);
        assert_false(x->facts.has_steps);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
        mr_explanation_free(x);
    }
}

/* On a device the loop may read while the device is still busy with the step before: only its idle time counts. */
static void what_the_device_idles_counts(void **state)
{
    (void)state;
    for (unsigned busy = 0; busy < 2; busy++) {
        struct world w;
        open_world(&w);
        w.device = true;
        for (unsigned s = 0; s < STEPS; s++) {
            read_file(&w, 20 * MS);
            uint64_t idle = busy ? MS / 4 : 19 * MS;
            put_span(&w, 0, "accelerator", "idle", w.now - idle, w.now, NULL, 0);
            w.forward = w.now;
            compute(&w, 4 * MS);
            backward(&w, 20 * MS);
            step(&w);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->steps, STEPS);
        assert_true(x->ns[MR_TIME_STALL] == STEPS * 20 * MS);
        assert_true(x->rank[0].accelerator_idle_ns == STEPS * (busy ? MS / 4 : 19 * MS));
        assert_int_equal(x->verdict.verdict, busy ? MR_VERDICT_HEALTHY : MR_VERDICT_INPUT);
        mr_explanation_free(x);
    }
}

/* A compiled step of TensorFlow fetches its batches inside: the span is all there is, and tells of no wait. */
static void compiled_steps_tell_of_no_waits(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    for (unsigned s = 0; s < STEPS; s++) {
        put_span(&w, 0, "train", "optimizer.step", w.now, w.now + 20 * MS, NULL, 0);
        w.now += 20 * MS;
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, 0);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_steps_tell_of_no_waits),
        cmocka_unit_test(what_the_device_idles_counts),
        cmocka_unit_test(own_reads_are_waits_for_storage),
        cmocka_unit_test(steps_are_batches),
        cmocka_unit_test(backward_passes_are_steps_where_there_is_no_optimizer),
        cmocka_unit_test(stray_calls_do_not_stretch_waits),
        cmocka_unit_test(many_reads_and_what_lies_between_are_one_wait),
        cmocka_unit_test(reads_in_large_pieces_serve_the_gaps_without_one),
        cmocka_unit_test(calls_of_models_are_steps_where_nothing_trains),
        cmocka_unit_test(decoding_that_no_span_tells_is_incomplete),
        cmocka_unit_test(what_lies_before_the_forward_pass_is_decoding),
        cmocka_unit_test(pages_of_mapped_files_are_waits_for_storage),
        cmocka_unit_test(waiting_for_an_own_save_is_a_checkpoint),
        cmocka_unit_test(a_state_written_by_hand_is_a_checkpoint),
        cmocka_unit_test(tensors_loaded_at_every_step_are_data),
        cmocka_unit_test(evaluation_has_steps_of_its_own),
        cmocka_unit_test(evaluation_is_known_by_calls_of_the_model),
        cmocka_unit_test(evaluation_from_memory_is_no_startup),
        cmocka_unit_test(a_teacher_is_no_evaluation),
        cmocka_unit_test(a_producer_behind_a_queue_is_followed),
        cmocka_unit_test(the_text_of_logs_is_logging),
        cmocka_unit_test(logs_and_settings_are_no_data),
        cmocka_unit_test(a_save_into_memory_is_what_is_written_behind_it),
        cmocka_unit_test(memory_is_healthy_only_if_the_thread_was_awake),
        cmocka_unit_test(what_a_cluster_makes_is_not_its_messengers),
        cmocka_unit_test(what_a_pool_makes_is_followed_by_its_tasks),
        cmocka_unit_test(waiting_for_others_in_a_call_is_a_wait),
        cmocka_unit_test(with_a_loader_nothing_changes),
        cmocka_unit_test(other_loops_stay_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
