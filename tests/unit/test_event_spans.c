/* Spans of other tools: torch.profiler's JSON with steps, waits, kernels and idle time of the accelerator; TimeLogger's
 * CSV with its columns in any order. */
#include "base/common.h"
#include "base/strbuf.h"
#include "import/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CORPUS MR_SOURCE_DIR "/tests/fuzz/corpus/"

static struct mr_trace *load(const char *path)
{
    struct mr_trace *t;
    struct mr_error err;
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    if (mr_trace_add(t, path, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    return t;
}

/* Count and summed duration of the spans "category.name"; `first` is the start of the first one. */
struct sum {
    uint64_t n, dur_ns, first_ns;
    int64_t arg; /* the last argument of the last one, -1 none */
};

static struct sum sum_of(const struct mr_trace *t, const char *want)
{
    struct mr_event_batch b = {0};
    struct sum s = {.first_ns = UINT64_MAX, .arg = -1};
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, NULL), 0);
        for (uint32_t i = 0; i < b.count; i++) {
            struct mr_trace_string category, name;
            char have[256];
            mr_trace_label(b.process, b.c.call[i], b.c.file[i], &category, &name);
            snprintf(have, sizeof have, "%.*s.%.*s", (int)category.len, category.text, (int)name.len, name.text);
            if (strcmp(have, want) != 0)
                continue;
            s.n++;
            s.dur_ns += b.c.end_ns[i] - b.c.start_ns[i];
            s.first_ns = MR_MIN(s.first_ns, b.c.start_ns[i]);
            for (uint32_t a = 0; a < b.args; a++)
                if (b.c.arg_event[a] == i)
                    s.arg = (int64_t)b.c.arg_value[a];
        }
    }
    mr_event_batch_done(&b);
    return s;
}

static void profiler_has_waits_steps_and_idle(void **state)
{
    (void)state;
    struct mr_trace *t = load(CORPUS "kineto/three_steps.pt.trace.json");
    const uint64_t origin = 1700000000000000000ull + 1000000500ull;
    struct sum wait = sum_of(t, "data_loader.DataLoader.next"), idle = sum_of(t, "accelerator.idle");
    assert_int_equal(wait.n, 3);
    assert_int_equal(wait.dur_ns, 12000000);
    assert_int_equal(wait.first_ns, origin);
    assert_int_equal(sum_of(t, "train.optimizer.step").n, 3);
    assert_int_equal(sum_of(t, "barrier.gloo:all_reduce").n, 1);
    struct sum step = sum_of(t, "profiler.ProfilerStep");
    assert_int_equal(step.n, 3);
    assert_int_equal(step.arg, 14);
    assert_int_equal(sum_of(t, "kernel.void gemm<float>(int)").n, 3);
    assert_int_equal(sum_of(t, "cpu_op.aten::\"linear\"").n, 3);
    assert_int_equal(idle.n, 3); /* each wait until its kernel at 3 ms; the one before ended with its step */
    assert_int_equal(idle.dur_ns, 3 * 3000000);
    assert_int_equal(idle.first_ns, origin);
    assert_int_equal(t->processes, 1); /* streams are threads of it; the profiler's own track is left out */
    assert_int_equal(t->process[0].rank, 3);
    assert_string_equal(t->node[t->process[0].node].name, "n1");
    assert_int_equal(t->skipped_lines, 0);
    assert_int_equal(t->notes, 1);
    mr_trace_free(t);
}

static void cut_profile_keeps_what_is_whole(void **state)
{
    (void)state;
    struct mr_trace *t = load(CORPUS "kineto/cut.json");
    assert_int_equal(t->skipped_lines, 1);
    assert_true(t->skipped_bytes > 0);
    assert_in_range(sum_of(t, "data_loader.DataLoader.next").n, 1, 3);
    mr_trace_free(t);
}

/* One cycle of a profiler with a schedule: `steps` steps of 10 ms from `at_us`, and the call that finds no more. */
static void put_cycle(struct mr_strbuf *s, unsigned at_us, unsigned steps, bool end)
{
    static const char head[] = "{\"schemaVersion\":1,\"deviceProperties\":[],\"host_name\":\"n1\","
                               "\"baseTimeNanoseconds\":1700000000000000000,\"traceEvents\":[\n";
    static const char span[] =
        "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":7,\"tid\":7,\"ts\":%u,\"dur\":%u}\n";
    static const char next[] = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
    mr_strbuf_puts(s, head);
    for (unsigned i = 0; i < steps; i++) {
        mr_strbuf_printf(s, span, i ? "," : "", "cpu_op", "aten::mm", at_us + 10000 * i + 4000, 5000);
        mr_strbuf_printf(s, span, ",", "user_annotation", next, at_us + 10000 * i, 3000);
    }
    if (end) { /* the next iterator draws its seed */
        mr_strbuf_printf(s, span, ",", "user_annotation", next, at_us + 10000 * steps, 2000);
        mr_strbuf_printf(s, span, ",", "cpu_op", "aten::random_", at_us + 10000 * steps + 2500, 10);
    }
    mr_strbuf_puts(s, "]}\n");
}

static void profiler_cycles_are_one_process_and_ends_no_steps(void **state)
{
    struct mr_strbuf a = {0}, b = {0};
    struct mr_trace *t;
    (void)state;
    put_cycle(&a, 1000, 3, false);
    put_cycle(&b, 500000, 4, true);
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    assert_int_equal(mr_trace_add_memory(t, a.text, a.len, "a", NULL), 0);
    assert_int_equal(mr_trace_add_memory(t, b.text, b.len, "b", NULL), 0);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    assert_int_equal(t->processes, 1);
    assert_int_equal(sum_of(t, "data_loader.DataLoader.next").n, 7);
    assert_int_equal(sum_of(t, "cpu_op.aten::mm").n, 7); /* the names of both files */
    assert_int_equal(sum_of(t, "cpu_op.aten::random_").n, 1);
    struct sum end = sum_of(t, "data_loader.DataLoader.end"); /* of the first file, and of the loader */
    assert_int_equal(end.n, 2);
    assert_int_equal(end.dur_ns, 2000000);
    assert_int_equal(end.first_ns, 1700000000000000000ull + 30000000); /* when its last event ended */
    mr_trace_free(t);
    mr_strbuf_done(&a);
    mr_strbuf_done(&b);
}

static void timelogger_snippets(void **state)
{
    (void)state;
    struct mr_trace *t = load(CORPUS "timelogger/snippets.csv");
    struct sum s = sum_of(t, "time.augment, twice");
    assert_int_equal(s.n, 1);
    assert_int_equal(s.dur_ns, 500000000);
    assert_int_equal(s.first_ns, 1700000000250000000ull);
    assert_int_equal(s.arg, 0); /* the epoch */
    s = sum_of(t, "time.decode");
    assert_int_equal(s.n, 2);
    assert_int_equal(s.dur_ns, 1625000001);
    assert_int_equal(s.arg, 1);
    assert_int_equal(sum_of(t, "time.backwards").dur_ns, 0);
    assert_int_equal(t->skipped_lines, 2);
    assert_int_equal(t->nodes, 2);
    assert_int_equal(t->processes, 2);
    mr_trace_free(t);
    t = load(CORPUS "timelogger/other_columns.csv");
    s = sum_of(t, "compute.forward");
    assert_int_equal(s.n, 2);
    assert_int_equal(s.dur_ns, 500000000);
    assert_int_equal(s.arg, 11);
    assert_int_equal(t->process[0].rank, 2);
    mr_trace_free(t);
}

static void other_files_are_neither(void **state)
{
    (void)state;
    static const char csv[] = "epoch,train,block\n0,1,2\n", pfw[] = "[\n{\"name\":\"a\",\"ph\":\"X\"}\n";
    assert_false(mr_timelogger_is(csv, sizeof csv - 1));
    assert_false(mr_timelogger_is("", 0));
    assert_false(mr_timelogger_is(pfw, sizeof pfw - 1));
    assert_false(mr_kineto_is(pfw, sizeof pfw - 1));
    assert_false(mr_kineto_is("{\"traceEvents\":[]}", 18)); /* anybody's Chrome JSON */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiler_has_waits_steps_and_idle),
        cmocka_unit_test(cut_profile_keeps_what_is_whole),
        cmocka_unit_test(profiler_cycles_are_one_process_and_ends_no_steps),
        cmocka_unit_test(timelogger_snippets),
        cmocka_unit_test(other_files_are_neither),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
