/* What calls wait for, what files look like, and who made whom wait, on traces with exactly known answers.
 *
 * test-label: concurrent */
#include "base/common.h"
#include "event/mrt_sink.h"
#include "explain/explain.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000ull
#define MIB (1ll << 20)

struct world {
    struct mr_mrt_sink *sink;
    struct mr_event_sink *events;
    char path[32];
    bool unranked; /* no launcher gave the processes numbers */
    size_t exempt; /* but to this one; SIZE_MAX: none */
};

static void open_world(struct world *w, uint32_t ranks)
{
    struct mr_error err;
    w->unranked = false;
    w->exempt = SIZE_MAX;
    snprintf(w->path, sizeof w->path, "/tmp/mr-calls-XXXXXX");
    close(mkstemp(w->path));
    assert_int_equal(
        mr_mrt_sink_open_sim(w->path, &(struct mr_mrt_sim){.world = ranks, .program = "test"}, &w->sink, &err), 0);
    w->events = mr_mrt_sink_get(w->sink);
}

static void call(struct world *w, uint16_t kind, uint32_t rank, uint32_t tid, const char *file, uint64_t start,
                 uint64_t end, uint64_t offset, int64_t bytes)
{
    w->events->emit(w->events, &(struct mr_event){.kind = kind,
                                                  .rank = rank,
                                                  .tid = tid,
                                                  .start_ns = start,
                                                  .dur_ns = end - start,
                                                  .path_id = w->events->intern(w->events, file),
                                                  .offset = offset,
                                                  .result = bytes});
}

static void span_of(struct world *w, const char *category, const char *name, uint32_t rank, uint32_t tid,
                    uint64_t start, uint64_t end, const struct mr_mrt_arg *arg, unsigned args)
{
    const struct mr_event e = {.kind = MR_EV_REGION,
                               .rank = rank,
                               .tid = tid,
                               .start_ns = start,
                               .dur_ns = end - start,
                               .path_id = mr_mrt_sink_site(w->sink, category, name)};
    mr_mrt_sink_emit_args(w->sink, &e, arg, args);
}

static void span(struct world *w, const char *category, const char *name, uint32_t rank, uint32_t tid, uint64_t start,
                 uint64_t end, int64_t step)
{
    span_of(w, category, name, rank, tid, start, end,
            &(struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "step"), step, false}, 1);
}

static struct mr_explanation *explain(struct world *w, const struct mr_explain_options *opt)
{
    const struct mr_explain_options all = {.threads = 2, .rank = -1, .step_from = -1, .source = "test"};
    struct mr_error err;
    struct mr_trace *t;
    struct mr_explanation *x = NULL;
    assert_int_equal(mr_mrt_sink_close(w->sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, w->path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    for (size_t p = 0; p < t->processes && w->unranked; p++)
        if (p != w->exempt)
            t->process[p].rank = t->process[p].world = -1;
    assert_int_equal(mr_explain(t, opt ? opt : &all, &x, &err), 0);
    mr_trace_free(t);
    unlink(w->path);
    return x;
}

static void pipes_are_not_storage_and_fast_reads_are_page_cache(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1);
    call(&w, MR_EV_READ, 0, 0, "pipe:[77]", 0, 900 * MS, UINT64_MAX, 100);          /* another process */
    call(&w, MR_EV_READ, 0, 1, "/data/slow", 100 * MS, 200 * MS, 0, 4 * MIB);       /* 100 ms */
    call(&w, MR_EV_READ, 0, 2, "/data/slow", 150 * MS, 250 * MS, 4 * MIB, 4 * MIB); /* together 150 ms */
    call(&w, MR_EV_READ, 0, 1, "/data/fast", 300 * MS, 300 * MS + 5000, 0, 4096);   /* 5 us */
    call(&w, MR_EV_OPEN, 0, 1, "/data/fast", 400 * MS, 403 * MS, UINT64_MAX, 5);
    call(&w, MR_EV_READ, 0, 3, "/lib/python3/module.pyc", 120 * MS, 121 * MS, 0, MIB); /* code is no data */
    call(&w, MR_EV_READ, 0, 1, "socket:[inet 10.0.0.1:443]", 500 * MS, 520 * MS, UINT64_MAX, 1000);
    struct mr_explanation *x = explain(&w, NULL);
    assert_true(x->wait[MR_WAIT_IPC] == 900 * MS);
    assert_true(x->wait[MR_WAIT_STORAGE] == 150 * MS);
    assert_true(x->wait[MR_WAIT_PAGE_CACHE] == 5000);
    assert_true(x->wait[MR_WAIT_METADATA] == 3 * MS);
    assert_true(x->wait[MR_WAIT_NETWORK] == 20 * MS);
    assert_false(x->facts.has_steps);
    assert_true(x->rank[0].read_bytes == 8 * MIB + 4096); /* of files */
    assert_true(x->rank[0].io_ns == 153 * MS + 5000);
    assert_int_equal(x->files, 2); /* the pipe and the module are not in the table */
    mr_explanation_free(x);
}

/* O_DIRECT: a read past the page cache is storage at any speed, of the descriptor that was opened so. */
static void direct_reads_are_storage_at_any_speed(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 1);
    for (unsigned i = 0; i < 3; i++) {
        struct mr_event e = {.kind = MR_EV_OPEN, .start_ns = i * 10 * MS, .dur_ns = 1000, .fd = 6, .result = 5};
        e.path_id = w.events->intern(w.events, i == 1 ? "/data/direct" : "/data/cached");
        e.offset = i == 1 ? 040000 | 0100000 : i == 2 ? 020200000 | 2 : 0; /* O_TMPFILE holds a bit of it */
        w.events->emit(w.events, &e);
        e = (struct mr_event){.kind = MR_EV_READ, .start_ns = i * 10 * MS + 2000, .dur_ns = MS, .fd = 6};
        e.path_id = w.events->intern(w.events, i == 1 ? "/data/direct" : "/data/cached");
        e.result = 4 * MIB;
        w.events->emit(w.events, &e);
    }
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(x->wait[MR_WAIT_STORAGE], MS);
    assert_int_equal(x->wait[MR_WAIT_PAGE_CACHE], 2 * MS);
    mr_explanation_free(x);
}

static const struct mr_explain_file *file_of(const struct mr_explanation *x, const char *path)
{
    for (size_t i = 0; i < x->files; i++)
        if (!strcmp(x->file[i].path, path))
            return &x->file[i];
    fail();
    return NULL;
}

static void patterns_are_named_by_stream(void **state)
{
    struct world w;
    uint64_t t = 0;
    (void)state;
    open_world(&w, 1);
    for (uint64_t k = 0; k < 64; k++, t += MS) {
        call(&w, MR_EV_READ, 0, 1, "/d/whole", t, t + MS / 2, k * 65536, 65536);
        /* two threads, each streaming a half of one file */
        call(&w, MR_EV_READ, 0, 2, "/d/halves", t, t + MS / 2, k * 65536, 65536);
        call(&w, MR_EV_READ, 0, 3, "/d/halves", t, t + MS / 2, (64 + k) * 65536, 65536);
        call(&w, MR_EV_READ, 0, 4, "/d/strided", t, t + MS / 2, k * 1000000, 4096);
        call(&w, MR_EV_READ, 0, 5, "/d/records", t, t + MS / 2, k * 37 % 64 * 100000, 4096);
        call(&w, MR_EV_READ, 0, 6, "/d/random", t, t + MS / 2, k * 37 % 64 * 100000, (int64_t)(1000 + k * 13));
        if (k < 3) /* all but the header, once in each epoch */
            call(&w, MR_EV_READ, 0, 7, "/d/array", t, t + MS / 2, 128, 1000000);
    }
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(file_of(x, "/d/whole")->pattern, MR_PATTERN_WHOLE_FILE);
    assert_true(file_of(x, "/d/halves")->consecutive == file_of(x, "/d/halves")->streamed);
    assert_int_equal(file_of(x, "/d/halves")->pattern, MR_PATTERN_WHOLE_FILE);
    assert_int_equal(file_of(x, "/d/array")->pattern, MR_PATTERN_WHOLE_FILE);
    assert_int_equal(file_of(x, "/d/strided")->pattern, MR_PATTERN_STRIDED);
    assert_int_equal(file_of(x, "/d/records")->pattern, MR_PATTERN_SHUFFLED_RECORDS);
    assert_int_equal(file_of(x, "/d/random")->pattern, MR_PATTERN_RANDOM);
    assert_int_equal(x->groups, 1);
    assert_string_equal(x->group[0].name, "/d/*");
    assert_int_equal(x->group[0].files, 6);
    mr_explanation_free(x);
}

/* Storage that gives 20 MB/s to whoever asks: reads of 200 kB, in turn, by one to four threads. Each is followed by an
 * empty one at the end of its file; every tenth waited for a credit that the throttle had saved up. */
static void storage_that_shares_one_rate_has_it_for_a_limit(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 1);
    uint64_t t = MS, queued[4] = {0};
    for (unsigned i = 0; i < 400; i++) {
        unsigned threads = i < 200 ? 1 : 4, tid = i % threads;
        uint64_t end = t + (i % 10 ? 10 : 1) * MS, asked = threads > 1 && queued[tid] ? queued[tid] : t;
        char file[32];
        snprintf(file, sizeof file, "/d/%u", i);
        call(&w, MR_EV_READ, 0, tid, file, asked, end, 0, 200000);
        call(&w, MR_EV_READ, 0, tid, file, end, end + 900, 200000, 0);
        queued[tid] = end + 1000;
        t = end;
    }
    struct mr_explanation *x = explain(&w, NULL);
    assert_true(x->facts.stream_bytes_per_s[0] > 20e6 && x->facts.stream_bytes_per_s[0] < 23e6);
    assert_true(x->facts.stream_bytes_per_s[1] < 1.11 * x->facts.stream_bytes_per_s[0]);
    assert_int_equal(x->read_sizes.zero, 400);
    assert_true(x->read_sizes.p50_ns > 5 * MS); /* the ends of files have no latency */
    assert_true(x->read_sizes.storage_p50_ns > 5 * MS && x->read_sizes.storage_p99_ns < 60 * MS);
    mr_explanation_free(x);
}

/* Two ranks: rank 1 waits for data, rank 0 at the barrier for it. */
static struct world two_ranks(void)
{
    struct world w;
    open_world(&w, 2);
    for (int64_t s = 0; s < 10; s++) {
        uint64_t t = (uint64_t)s * 100 * MS;
        span(&w, "compute", "train", 0, 0, t, t + 60 * MS, s);
        span(&w, "train", "barrier", 0, 0, t + 60 * MS, t + 100 * MS, s);
        span(&w, "loader", "wait", 1, 0, t, t + 40 * MS, s);
        call(&w, MR_EV_READ, 1, 0, "/d/x", t, t + 40 * MS, 0, MIB);
        span(&w, "compute", "train", 1, 0, t + 40 * MS, t + 100 * MS, s);
    }
    return w;
}

static void the_late_rank_is_the_culprit(void **state)
{
    (void)state;
    struct world w = two_ranks();
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(x->ranks, 2);
    assert_true(x->rank[0].ns[MR_TIME_BARRIER] == 10 * 40 * MS);
    assert_true(x->rank[0].ns[MR_TIME_COMPUTE] == 10 * 60 * MS);
    assert_true(x->rank[1].ns[MR_TIME_STALL] == 10 * 40 * MS);
    assert_true(x->ns[MR_TIME_STALL] == 5 * 40 * MS);
    assert_int_equal(x->worst_rank, 1);
    assert_int_equal(x->culprits, 1);
    assert_int_equal(x->culprit[0].rank, 1);
    assert_int_equal(x->culprit[0].steps, 9); /* in the first one ranks wait for each other's start */
    assert_true(x->culprit[0].lost_ns == 9 * 40 * MS);
    assert_true(x->culprit[0].cause[MR_TIME_STALL] == 9 * 40 * MS);
    assert_true(x->rank[1].stall[MR_STALL_STORAGE] == 10 * 40 * MS); /* it reads by itself */
    mr_explanation_free(x);
}

static void wait_of(struct world *w, uint32_t rank, int64_t loader, uint64_t start, uint64_t end)
{
    span_of(w, "data_loader", "DataLoader.next", rank, 0, start, end,
            &(struct mr_mrt_arg){mr_mrt_sink_key(w->sink, "loader"), loader, false}, 1);
}

/* One step of a rank of a traced PyTorch program: waits for data, computes, meets the others; returns its end. */
static uint64_t torch_step(struct world *w, uint32_t rank, uint64_t t, uint64_t wait, uint64_t compute,
                           uint64_t barrier)
{
    wait_of(w, rank, 0, t, t + wait);
    span(w, "barrier", "backward", rank, 0, t + wait + compute, t + wait + compute + barrier, -1);
    t += wait + compute + barrier;
    span(w, "train", "optimizer.step", rank, 0, t, t + 2 * MS, -1);
    return t + 2 * MS;
}

/* Rank 0 saves, and evaluates, between steps: the others wait for it in the step behind that. No clock tells: the
 * ranks' clocks are an hour apart. */
static void what_is_done_between_steps_is_a_reason(void **state)
{
    (void)state;
    const uint64_t hour = 3600000 * MS;
    struct world w;
    open_world(&w, 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        uint64_t t = rank * hour;
        for (unsigned s = 0; s < 20; s++) {
            bool behind_save = s % 5 == 0 && s, behind_eval = s == 13;
            uint64_t late = rank ? (behind_save ? 50 * MS : 0) + (behind_eval ? 80 * MS : 0) : 0;
            t = torch_step(&w, rank, t, 1 * MS, 10 * MS, 3 * MS + late);
            if (rank == 0 && s % 5 == 4) {
                span(&w, "checkpoint", "torch.serialization.save", 0, 0, t, t + 50 * MS, -1);
                t += 50 * MS;
            }
            if (rank == 0 && s == 12)
                for (unsigned e = 0; e < 8; e++, t += 10 * MS)
                    wait_of(&w, 0, 1, t, t + 6 * MS);
        }
    }
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(x->ranks, 3);
    assert_int_equal(x->culprits, 1);
    assert_int_equal(x->culprit[0].rank, 0);
    assert_int_equal(x->culprit[0].steps, 4);
    assert_true(x->culprit[0].lost_ns == (3 * 50 + 80) * MS);
    assert_true(x->culprit[0].waited_ns == 2 * (3 * 50 + 80) * MS);
    assert_true(x->culprit[0].cause[MR_TIME_CHECKPOINT] == 3 * 50 * MS);
    assert_true(x->culprit[0].cause[MR_TIME_STALL] == 8 * 6 * MS);
    mr_explanation_free(x);
}

/* Processes that learn their rank from the program: the first one to come is rank 1. */
static void ranks_have_the_numbers_they_were_told(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 2);
    for (uint32_t process = 0; process < 2; process++) {
        const struct mr_mrt_arg told[] = {{mr_mrt_sink_key(w.sink, "rank"), 1 - process, false},
                                          {mr_mrt_sink_key(w.sink, "world"), 4, false}};
        span_of(&w, "startup", "init_process_group", process, 0, 0, MS, told, 2);
        for (unsigned s = 0; s < 5; s++)
            torch_step(&w, process, (1 + s) * 100 * MS, process ? 1 * MS : 41 * MS, 10 * MS, process ? 40 * MS : 0);
    }
    w.unranked = true;
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(x->ranks, 2);
    assert_int_equal(x->culprits, 1);
    assert_int_equal(x->rank[x->culprit[0].rank].rank, 1);
    assert_int_equal(x->trust.ranks_missing, 2);
    mr_explanation_free(x);
}

/* A framework numbers itself after it was started, as launchers do: what it starts later has a number, and reads. */
static void numbers_of_those_that_do_not_train_count_for_nothing(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 2);
    const struct mr_mrt_arg has[] = {{mr_mrt_sink_key(w.sink, "cpus"), 12, false},
                                     {mr_mrt_sink_key(w.sink, "memory_bytes"), 1000, false},
                                     {mr_mrt_sink_key(w.sink, "memory_free_bytes"), 900, false}};
    span_of(&w, "startup", "machine", 0, 0, 0, 1000, has, 3);
    for (unsigned s = 0; s < 5; s++) {
        torch_step(&w, 0, (1 + s) * 100 * MS, 40 * MS, 10 * MS, 0);
        call(&w, MR_EV_READ, 1, 0, "/d/x", (1 + s) * 100 * MS, (1 + s) * 100 * MS + 30 * MS, 0, MIB);
    }
    w.unranked = true;
    w.exempt = 1;
    struct mr_explanation *x = explain(&w, NULL);
    assert_int_equal(x->ranks, 1);
    assert_int_equal(x->rank[0].rank, -1);
    assert_int_equal(x->steps, 5);
    assert_true(x->rank[0].wait[MR_WAIT_STORAGE] == 5 * 30 * MS); /* everything is one rank */
    assert_true(x->facts.cpus_per_node == 12 && x->facts.cpus_per_rank == 12);
    assert_true(x->facts.memory_bytes == 1000 && x->facts.memory_free_bytes == 900);
    mr_explanation_free(x);
}

static void filters_leave_what_was_asked_for(void **state)
{
    (void)state;
    struct world w = two_ranks();
    const struct mr_explain_options some = {.rank = 1, .step_from = 3, .step_to = 4, .source = "test"};
    struct mr_explanation *x = explain(&w, &some);
    assert_int_equal(x->ranks, 1);
    assert_int_equal(x->rank[0].rank, 1);
    assert_int_equal(x->steps, 2);
    assert_int_equal(x->step[0].step, 3);
    assert_true(x->rank[0].end_ns - x->rank[0].start_ns == 200 * MS);
    assert_true(x->rank[0].ns[MR_TIME_STALL] == 80 * MS);
    assert_true(x->rank[0].wait[MR_WAIT_STORAGE] == 80 * MS);
    mr_explanation_free(x);
}

/* Bytes of the pictures are those of the calls. */
static void pictures_hold_every_byte(void **state)
{
    (void)state;
    struct world w = two_ranks();
    const struct mr_explain_options all = {.rank = -1, .step_from = -1, .source = "test", .pictures = true};
    struct mr_explanation *x = explain(&w, &all);
    double bytes = 0, heat = 0, stall = 0;
    for (uint32_t b = 0; b < x->timeline.bins; b++) {
        bytes += x->timeline.read_bytes[b];
        stall += x->timeline.stall[b] * (double)x->timeline.bin_ns;
    }
    for (uint32_t c = 0; c < x->heat.rows * x->heat.columns; c++)
        heat += x->heat.read_bytes[c];
    assert_true(fabs(bytes - 10.0 * MIB) < 1);
    assert_true(fabs(heat - 10.0 * MIB) < 1);
    assert_true(fabs(stall - 5.0 * 40 * MS) < 1000);
    assert_int_equal(x->heat.rows, 2);
    assert_int_equal(x->accesses, 10);
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_are_not_storage_and_fast_reads_are_page_cache),
        cmocka_unit_test(direct_reads_are_storage_at_any_speed),
        cmocka_unit_test(patterns_are_named_by_stream),
        cmocka_unit_test(storage_that_shares_one_rate_has_it_for_a_limit),
        cmocka_unit_test(the_late_rank_is_the_culprit),
        cmocka_unit_test(what_is_done_between_steps_is_a_reason),
        cmocka_unit_test(ranks_have_the_numbers_they_were_told),
        cmocka_unit_test(numbers_of_those_that_do_not_train_count_for_nothing),
        cmocka_unit_test(filters_leave_what_was_asked_for),
        cmocka_unit_test(pictures_hold_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
