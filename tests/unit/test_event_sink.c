/* The .mrt sink: events of several threads come back complete, in order, with their names.
 *
 * test-label: concurrent */
#include "event/mrt_sink.h"
#include "import/trace_read.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define THREADS 3
#define EVENTS 40000u

struct job {
    struct mr_mrt_sink *sink;
    uint32_t tid; /* of the thread: events of one are one lane */
};

static void *emit(void *arg)
{
    struct job *j = arg;
    struct mr_event_sink *s = mr_mrt_sink_get(j->sink);
    uint32_t site = mr_mrt_sink_site(j->sink, "train", "step");
    j->tid = (uint32_t)gettid();
    for (uint64_t i = 0; i < EVENTS; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/data/%u", (unsigned)(i / 100));
        struct mr_event e = {
            .start_ns = 1000 + i * 10, .dur_ns = 5, .offset = i, .result = (int64_t)i, .kind = MR_EV_READ};
        if (i % 1000 == 999) {
            e.kind = MR_EV_REGION;
            e.path_id = site;
            e.dur_ns = 1ull << 40;
        } else {
            e.path_id = s->intern(s, path);
        }
        s->emit(s, &e);
    }
    return NULL;
}

static void sink_keeps_every_event_of_every_thread(void **state)
{
    char path[] = "/tmp/mr-sink-XXXXXX";
    struct mr_mrt_sink *sink;
    struct mr_error err;
    pthread_t thread[THREADS];
    struct job job[THREADS];
    struct mr_trace *t;
    struct mr_event_batch b = {0};
    uint64_t seen[THREADS] = {0};
    (void)state;
    close(mkstemp(path));
    assert_int_equal(mr_mrt_sink_open(path, 2, 4, &sink, &err), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        job[i] = (struct job){.sink = sink};
        assert_int_equal(pthread_create(&thread[i], NULL, emit, &job[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(t->events, THREADS * EVENTS);
    assert_int_equal(t->process[0].rank, 2);
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        for (uint32_t i = 0; i < b.count; i++) {
            unsigned who = b.tid == job[0].tid ? 0 : b.tid == job[1].tid ? 1 : 2;
            assert_int_equal(b.tid, job[who].tid);
            uint64_t n = seen[who]++;
            struct mr_trace_string category, name;
            char want[32];
            assert_int_equal(b.c.offset[i], n);
            assert_int_equal(b.c.result[i], n);
            mr_trace_label(b.process, b.c.call[i], b.c.file[i], &category, &name);
            if (n % 1000 == 999) {
                assert_memory_equal(name.text, "step", 4);
                assert_true(b.c.end_ns[i] - b.c.start_ns[i] == 1ull << 40);
                continue;
            }
            assert_int_equal(b.c.call[i], MR_CALL_pread);
            const struct mr_trace_string *s = mr_trace_string(b.process, b.c.file[i]);
            snprintf(want, sizeof(want), "/data/%u", (unsigned)(n / 100));
            assert_int_equal(s->len, strlen(want));
            assert_memory_equal(s->text, want, s->len);
        }
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(seen[i], EVENTS);
    mr_event_batch_done(&b);
    mr_trace_free(t);
    unlink(path);
}

#define WORLD 300u

/* What a simulator does: ranks interleaved on a virtual clock, names shared, arguments on regions. */
static void sink_keeps_simulated_ranks_apart_with_shared_names(void **state)
{
    char path[] = "/tmp/mr-sink-XXXXXX";
    struct mr_mrt_sink *sink;
    struct mr_error err;
    struct mr_trace *t;
    struct mr_event_batch b = {0};
    uint64_t args = 0;
    (void)state;
    close(mkstemp(path));
    assert_int_equal(mr_mrt_sink_open_sim(path,
                                          &(struct mr_mrt_sim){.world = WORLD, .ranks_per_node = 4, .program = "sim"},
                                          &sink, &err),
                     0);
    struct mr_event_sink *s = mr_mrt_sink_get(sink);
    uint32_t compute = mr_mrt_sink_site(sink, "compute", "forward"), step = mr_mrt_sink_key(sink, "step"),
             file = s->intern(s, "/data/a");
    assert_int_equal(file, s->intern(s, "/data/a"));
    for (uint64_t i = 0; i < 50; i++)
        for (uint32_t r = 0; r < WORLD; r++) {
            s->emit(s, &(struct mr_event){.kind = MR_EV_READ,
                                          .rank = r,
                                          .tid = 1 + (uint32_t)(i & 1),
                                          .start_ns = i * 100,
                                          .dur_ns = 60,
                                          .path_id = file,
                                          .offset = i,
                                          .result = 4096 + r});
            mr_mrt_sink_emit_args(
                sink,
                &(struct mr_event){
                    .kind = MR_EV_REGION, .rank = r, .start_ns = i * 100 + 50, .dur_ns = 50, .path_id = compute},
                &(struct mr_mrt_arg){.key = step, .value = (int64_t)i}, 1);
        }
    s->emit(s, &(struct mr_event){.kind = MR_EV_READ, .rank = WORLD, .start_ns = 1});
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(t->events, 2 * 50 * WORLD);
    assert_int_equal(t->lost, 1);
    assert_int_equal(t->processes, WORLD);
    assert_int_equal(t->nodes, WORLD / 4);
    assert_int_equal(t->first_ns, 0);
    assert_int_equal(t->last_ns, 5000);
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        for (uint32_t i = 0; i < b.count; i++) {
            struct mr_trace_string category, name;
            mr_trace_label(b.process, b.c.call[i], b.c.file[i], &category, &name);
            if (b.c.call[i] == MR_CALL_region) {
                assert_int_equal(name.len, 7);
                assert_memory_equal(name.text, "forward", 7);
                continue;
            }
            assert_int_equal(b.c.result[i], 4096 + b.process->rank);
            assert_int_equal(b.c.start_ns[i], b.c.offset[i] * 100);
            assert_memory_equal(mr_trace_string(b.process, b.c.file[i])->text, "/data/a", 7);
        }
        for (uint32_t a = 0; a < b.args; a++, args++) {
            assert_memory_equal(mr_trace_string(b.process, b.c.arg_key[a])->text, "step", 4);
            assert_int_equal(b.c.arg_value[a] * 100 + 50, b.c.start_ns[b.c.arg_event[a]]);
        }
    }
    assert_int_equal(args, 50 * WORLD);
    mr_event_batch_done(&b);
    mr_trace_free(t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sink_keeps_every_event_of_every_thread),
                                       cmocka_unit_test(sink_keeps_simulated_ranks_apart_with_shared_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
