/* Readers of other tools' traces: every flavour of .pfw, and Darshan DXT text. */
#include "base/rng.h"
#include "base/strbuf.h"
#include "import/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct mr_trace *import(const char *text,
                               int (*fn)(struct mr_trace *, const char *, size_t, const char *, struct mr_error *))
{
    struct mr_trace *t;
    struct mr_error err;
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(fn(t, text, strlen(text), "test", &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    return t;
}

static void text_is(const struct mr_trace_string *s, const char *want)
{
    assert_int_equal(s->len, strlen(want));
    assert_memory_equal(s->text, want, s->len);
}

static void pfw_classic_with_hashes_and_late_names(void **state)
{
    struct mr_event_batch b = {0};
    struct mr_trace_string cat, name;
    (void)state;
    struct mr_trace *t =
        import("[\n"
               "{\"id\":1,\"name\":\"pread64\",\"cat\":\"POSIX\",\"pid\":5,\"tid\":6,\"ts\":1700000000000000,\"dur\":"
               "12,\"ph\":\"X\",\"args\":{\"hhash\":11,"
               "\"p_idx\":-1,\"level\":1,\"ret\":100,\"offset\":4096,\"count\":4096,\"fd\":4,\"fhash\":"
               "12345678901234567890}}\n"
               "{\"id\":2,\"name\":\"FH\",\"cat\":\"dftracer\",\"pid\":5,\"tid\":6,\"ph\":\"M\",\"args\":{\"hhash\":11,"
               "\"name\":\"/data/a b\",\"value\":12345678901234567890}}\n"
               "{\"id\":3,\"name\":\"HH\",\"cat\":\"dftracer\",\"pid\":5,\"tid\":6,\"ph\":\"M\",\"args\":{\"hhash\":11,"
               "\"name\":\"node7\",\"value\":11}}\n"
               "{\"id\":4,\"name\":\"train.step\",\"cat\":\"ai\",\"pid\":5,\"tid\":6,\"ts\":1700000000000100,\"dur\":5,"
               "\"ph\":\"X\",\"args\":{\"hhash\":11,\"step\":7,\"lr\":0.5,\"tag\":\"x\"}}\n"
               "{\"id\":5,\"name\":\"brok",
               mr_pfw_import);
    assert_int_equal(t->events, 2);
    assert_int_equal(t->skipped_lines, 1);
    assert_int_equal(t->nodes, 1);
    assert_string_equal(t->node[0].name, "node7");
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.call[0], MR_CALL_pread);
    assert_int_equal(b.c.result[0], 100);
    assert_int_equal(b.c.offset[0], 4096);
    assert_int_equal(b.c.fd[0], 5);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], 12000);
    text_is(mr_trace_string(b.process, b.c.file[0]), "/data/a b");
    assert_int_equal(b.c.arg_type[0], MR_MORE_COUNT);
    assert_int_equal(b.c.arg_value[0], 4096);
    mr_trace_label(b.process, b.c.call[1], b.c.file[1], &cat, &name);
    text_is(&cat, "ai");
    text_is(&name, "train.step");
    assert_int_equal(b.args, 4);
    assert_int_equal(b.c.arg_type[2], MR_MORE_DOUBLE);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void pfw_new_layout_with_numbers_and_hex(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    struct mr_trace *t =
        import("{\"name\":\"FH\",\"cat\":\"dftracer\",\"ph\":4,\"args\":{\"name\":\"/"
               "x\\\"\\u00e9\\n\",\"value\":\"9af3c1\"}}\n"
               "{\"name\":\"read\",\"cat\":\"POSIX\",\"type\":3,\"pid\":\"1\",\"tid\":\"2\",\"ts\":"
               "\"1700000000000000000\",\"dur\":\"250\",\"ph\":1,\"args\":{\"fhash\":\"9af3c1\",\"ret\":\"9\"}},\n"
               "{\"name\":\"cpu\",\"cat\":\"sys\",\"pid\":1,\"tid\":2,\"ts\":1700000000000000500,\"ph\":2,\"args\":{"
               "\"user\":3.5}}\n]",
               mr_pfw_import);
    assert_int_equal(t->events, 2);
    assert_int_equal(t->skipped_lines, 0);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], 250); /* ns, told by their size */
    text_is(mr_trace_string(b.process, b.c.file[0]), "/x\"\xc3\xa9\n");
    assert_int_equal(b.c.call[1], MR_CALL_counter);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

/* One line of some flavour. With `odd` it carries a member that no reader knows and no other line has, so that it
 * cannot have the shape of an earlier line. */
static void add_pfw_line(struct mr_strbuf *s, uint64_t i, bool odd)
{
    static const char *const values[] = {"4096",
                                         "-5",
                                         "\"77\"",
                                         "0.25",
                                         "1e3",
                                         "1234567890123456789",
                                         "99999999999999999999",
                                         "\"\"",
                                         "\"a\\\"b\\\\\"",
                                         "-",
                                         "true",
                                         "{\"x\":[1,2]}",
                                         "\"\\u00e9\\n\""};
    uint64_t r = mr_rng_at(9, MR_RNG_TEST, i);
    mr_strbuf_printf(s, "%s{", r & 1 ? "" : " ");
    if (odd)
        mr_strbuf_printf(s, "\"odd%llu\":0,", (unsigned long long)i);
    mr_strbuf_printf(s, "\"name\":\"%s\",\"cat\":\"%s\",", r >> 1 & 1 ? "pread" : "step\\t1",
                     r >> 2 & 1 ? "POSIX" : "ai");
    mr_strbuf_printf(s, r >> 3 & 1 ? "\"pid\":%u,\"tid\":%u," : "\"pid\":\"%u\",\"tid\":\"%u\",",
                     (unsigned)(r >> 4 & 1), (unsigned)(r >> 5 & 3));
    mr_strbuf_printf(s, "\"ts\":%llu%s,\"dur\":%u,", 1700000000000000ull + i * 7, r >> 7 & 7 ? "" : ".5",
                     (unsigned)(r >> 10 & 1023));
    mr_strbuf_printf(s, r >> 20 & 1 ? "\"ph\":\"X\",\"args\":{" : "\"ph\": 1 , \"args\" : {");
    mr_strbuf_printf(s, "\"hostname\":\"n%u\",\"ret\":%s,\"fname\":\"/d/%u\",", (unsigned)(r >> 21 & 1),
                     values[(r >> 22) % 13], (unsigned)(r >> 30 & 7));
    mr_strbuf_printf(s, "\"count\":%s,\"%s\":%s}", values[(r >> 33) % 13], r >> 40 & 1 ? "step" : "tag",
                     values[(r >> 44) % 13]);
    mr_strbuf_printf(s, "%s\n", r >> 50 & 7 ? "}" : r >> 53 & 1 ? "}," : r >> 54 & 1 ? "" : "}\r");
}

static void same_columns(const struct mr_event_batch *a, const struct mr_event_batch *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->args, b->args);
    for (uint32_t i = 0; i < a->count; i++) {
        const struct mr_trace_string *x = mr_trace_string(a->process, a->c.file[i]),
                                     *y = mr_trace_string(b->process, b->c.file[i]);
        assert_int_equal(a->c.start_ns[i], b->c.start_ns[i]);
        assert_int_equal(a->c.end_ns[i], b->c.end_ns[i]);
        assert_int_equal(a->c.call[i], b->c.call[i]);
        assert_int_equal(a->c.result[i], b->c.result[i]);
        assert_int_equal(x->len, y->len);
        assert_memory_equal(x->text, y->text, x->len);
    }
    for (uint32_t i = 0; i < a->args; i++) {
        assert_int_equal(a->c.arg_event[i], b->c.arg_event[i]);
        assert_int_equal(a->c.arg_type[i], b->c.arg_type[i]);
        if (a->c.arg_type[i] != MR_MORE_TEXT)
            assert_int_equal(a->c.arg_value[i], b->c.arg_value[i]);
    }
}

static void pfw_lines_of_known_shapes_read_as_lines_of_new_ones(void **state)
{
    struct mr_strbuf even = {0}, odd = {0};
    struct mr_event_batch a = {0}, b = {0};
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        add_pfw_line(&even, i, false);
        add_pfw_line(&odd, i, true);
    }
    struct mr_trace *x = import(even.text, mr_pfw_import), *y = import(odd.text, mr_pfw_import);
    assert_int_equal(x->events, y->events);
    assert_true(x->events > 15000);
    assert_int_equal(x->skipped_lines, y->skipped_lines);
    assert_true(x->skipped_lines > 100);
    assert_int_equal(x->chunks, y->chunks);
    for (size_t c = 0; c < x->chunks; c++) {
        assert_int_equal(mr_trace_read(x, c, MR_WANT_ALL, &a, NULL), 0);
        assert_int_equal(mr_trace_read(y, c, MR_WANT_ALL, &b, NULL), 0);
        same_columns(&a, &b);
    }
    mr_event_batch_done(&a);
    mr_event_batch_done(&b);
    mr_trace_free(x);
    mr_trace_free(y);
    mr_strbuf_done(&even);
    mr_strbuf_done(&odd);
}

/* A line for ten calls: bytes and time are their sums, and nine more calls are known of. */
static void pfw_aggregated_lines_keep_their_sums(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    struct mr_trace *t = import("{\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":3000,\"dur\":100,"
                                "\"ph\":3,\"args\":{\"dft_cnt\":10,\"size_sum\":40960,"
                                "\"dur_sum\":50,\"dur_min\":1,\"dur_max\":9}}\n"
                                "{\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":4000,\"dur\":7,\"ph\":"
                                "1,\"args\":{\"ret\":5}}\n",
                                mr_pfw_import);
    assert_int_equal(t->events, 2);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.result[0], 40960);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], 50000);
    assert_int_equal(b.c.result[1], 5);
    assert_non_null(t->process[0].skipped);
    assert_int_equal(t->process[0].skipped[MR_CALL_read], 9);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

/* Such lines have been counters, and later have a phase of their own. What was the same in all calls stands there once,
 * without "_sum". */
static void pfw_aggregated_lines_of_every_version(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    struct mr_trace *t =
        import("{\"name\":\"creat64\",\"cat\":\"POSIX\",\"type\":3,\"ts\":3000,\"ph\":3,\"pid\":1,\"tid\":1,\"args\":{"
               "\"hhash\":\"8e\",\"dft_cnt\":1,\"dur\":185,\"mode\":2}}\n"
               "{\"name\":\"read\",\"cat\":\"POSIX\",\"ts\":4000,\"ph\":\"C\",\"pid\":1,\"tid\":1,\"args\":{\"hhash\":"
               "\"8e\",\"dft_cnt\":10,\"dur_sum\":30,\"ret\":4096,\"count\":4096}}\n"
               "{\"name\":\"read\",\"cat\":\"POSIX\",\"ts\":5000,\"ph\":\"C\",\"pid\":1,\"tid\":1,\"args\":{\"hhash\":"
               "\"8e\",\"dur_count\":3,\"dur_sum\":31,\"ret_count\":3,\"ret_sum\":70}}\n"
               "{\"name\":\"f\",\"cat\":\"APP\",\"ts\":6000,\"ph\":\"A\",\"pid\":1,\"tid\":1,\"args\":{\"hhash\":"
               "\"8e\",\"dft_cnt\":5,\"dur\":8,\"ret_sum\":-3}}\n"
               "{\"name\":\"cpu\",\"cat\":\"sys\",\"ts\":7000,\"ph\":2,\"pid\":1,\"tid\":1,\"args\":{\"hhash\":\"8e\","
               "\"user_pct\":12.5}}\n",
               mr_pfw_import);
    static const uint16_t call[] = {MR_CALL_creat, MR_CALL_read, MR_CALL_read, MR_CALL_region, MR_CALL_counter};
    static const uint64_t dur[] = {185000, 30000, 31000, 40000, 0};
    static const int64_t result[] = {MR_NO_RESULT, 40960, 70, 0, 0};
    assert_int_equal(t->events, 5);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(b.c.call[i], call[i]);
        assert_int_equal(b.c.end_ns[i] - b.c.start_ns[i], dur[i]);
        assert_true(b.c.result[i] == result[i]);
    }
    assert_int_equal(t->process[0].skipped[MR_CALL_read], 9 + 2);
    assert_int_equal(t->process[0].skipped[MR_CALL_creat], 0);
    assert_int_equal(t->process[0].skipped[MR_CALL_region], 4);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

/* Compact JSON: everything in one line, with braces inside a name. */
static void pfw_several_objects_in_a_line_are_all_read(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    struct mr_trace *t =
        import("{\"traceEvents\":[{\"name\":\"read\",\"cat\":\"POSIX\",\"ph\":\"X\",\"ts\":1,\"dur\":2,\"pid\":1,"
               "\"tid\":2,\"args\":{\"ret\":5,\"fname\":\"/a },{ b\"}},"
               "{\"name\":\"write\",\"cat\":\"POSIX\",\"ph\":\"X\",\"ts\":4,\"dur\":1,\"pid\":1,\"tid\":2,\"args\":{"
               "\"ret\":6}}{\"name\":\"x\",\"cat\":\"c\",\"ph\":\"X\",\"ts\":9,\"dur\":1,"
               "\"pid\":1,\"tid\":2}]}\r\n",
               mr_pfw_import);
    assert_int_equal(t->events, 3);
    assert_int_equal(t->skipped_lines, 0);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    text_is(mr_trace_string(b.process, b.c.file[0]), "/a },{ b");
    assert_int_equal(b.c.result[1], 6);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

#define LINE(ts, dur, args)                                                                                            \
    "{\"id\":1,\"name\":\"a\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":" ts ",\"dur\":" dur                            \
    ",\"ph\":\"X\",\"args\":{" args "}}\n"

static void time_is(const char *text, uint64_t start, uint64_t dur)
{
    struct mr_event_batch b = {0};
    struct mr_trace *t = import(text, mr_pfw_import);
    assert_int_equal(t->events, 1);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.start_ns[0], start);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], dur);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void pfw_times_are_exact_in_every_unit(void **state)
{
    (void)state;
    time_is(LINE("1700000000.000120", "0.000015", ""), 1700000000000120000, 15000);
    time_is(LINE("1700000000000.66", "0.0015", ""), 1700000000000660000, 1500);
    time_is(LINE("1700000000000000.125", "0.5", ""), 1700000000000000125, 500);
    time_is(LINE("1700000000000000001", "7", ""), 1700000000000000001, 7);
    time_is(LINE("500000000", "15", ""), 500000000000, 15000); /* 500 s after some start, in us */
    time_is(LINE("200000000000", "15", ""), 200000000000000, 15000);
    time_is(LINE("-5", "-5", ""), 0, 0);
    time_is(LINE("9223372036854775807", "9223372036854775807", ""), INT64_MAX / 2, INT64_MAX / 2);
    time_is("\xef\xbb\xbf[\n" LINE("3", "4", ""), 3000, 4000);
}

static void pfw_arguments_keep_their_values(void **state)
{
    struct mr_event_batch b = {0};
    double d;
    (void)state;
    struct mr_trace *t = import(LINE("1", "2",
                                     "\"hostname\":\"n1\",\"f\":\"a\",\"u\":18446744073709551615,\"s\":\"007\",\"q\":"
                                     "\"-7\",\"z\":9223372036854775808,"
                                     "\"hostname\":\"h\",\"level\":4,\"n\":null,\"o\":{\"k\":\"a\\\"b\"}"),
                                mr_pfw_import);
    assert_string_equal(t->node[0].name, "n1");
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.args, 9);
    text_is(mr_trace_string(b.process, (uint32_t)b.c.arg_value[8]), "{\"k\":\"a\\\"b\"}");
    text_is(mr_trace_string(b.process, b.c.arg_key[0]), "f");
    text_is(mr_trace_string(b.process, (uint32_t)b.c.arg_value[0]), "a"); /* keys and texts have ids of their own */
    assert_int_equal(b.c.arg_type[1], MR_MORE_UINT);
    assert_true(b.c.arg_value[1] == UINT64_MAX);
    text_is(mr_trace_string(b.process, (uint32_t)b.c.arg_value[2]), "007");
    assert_int_equal(b.c.arg_type[3], MR_MORE_INT);
    assert_int_equal((int64_t)b.c.arg_value[3], -7);
    assert_int_equal(b.c.arg_type[4], MR_MORE_UINT);
    text_is(mr_trace_string(b.process, b.c.arg_key[5]), "hostname"); /* the program's */
    text_is(mr_trace_string(b.process, b.c.arg_key[6]), "level");
    assert_int_equal(b.c.arg_type[7], MR_MORE_DOUBLE);
    memcpy(&d, &b.c.arg_value[7], 8);
    assert_true(d != d);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void pfw_results_are_numbers_however_written(void **state)
{
    static const char *const written[] = {"5",  "\"5\"",        "4096.0", "1e3",  "18446744073709551615",
                                          "-2", "\"0x7f0010\"", "null",   "\"\"", "1.5"};
    static const int64_t meant[] = {5, 5, 4096, 1000, -1, -2, MR_NO_RESULT, MR_NO_RESULT, MR_NO_RESULT, MR_NO_RESULT};
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(meant); i++) {
        struct mr_event_batch b = {0};
        char line[256];
        snprintf(line, sizeof(line),
                 "{\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":4000,\"dur\":7,\"ph\":\"X\",\"args\":"
                 "{\"ret\":%s}}\n",
                 written[i]);
        struct mr_trace *t = import(line, mr_pfw_import);
        assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
        assert_true(b.c.result[0] == meant[i]);
        mr_event_batch_done(&b);
        mr_trace_free(t);
    }
}

static void pfw_processes_have_their_ranks(void **state)
{
    (void)state;
    struct mr_trace *t = import("{\"name\":\"PR\",\"cat\":\"dftracer\",\"pid\":7,\"tid\":7,\"ph\":\"M\",\"args\":{"
                                "\"hhash\":\"ab\",\"name\":\"rank\",\"value\":\"3\"}}\n"
                                "{\"name\":\"x\",\"cat\":\"c\",\"pid\":7,\"tid\":8,\"ts\":1,\"dur\":1,\"ph\":\"X\","
                                "\"args\":{\"hhash\":\"ab\"}}\n"
                                "{\"name\":\"x\",\"cat\":\"c\",\"pid\":9,\"tid\":8,\"ts\":1,\"dur\":1,\"ph\":\"X\","
                                "\"args\":{\"hhash\":\"ab\"}}\n"
                                "{\"name\":\"x\",\"cat\":\"c\",\"pid\":10,\"tid\":8,\"ts\":1,\"dur\":1,\"ph\":\"X\","
                                "\"args\":{\"hhash\":\"ab\"}}\n"
                                "{\"name\":\"x\",\"cat\":\"c\",\"pid\":11,\"tid\":8,\"ts\":1,\"dur\":1,\"ph\":\"X\","
                                "\"args\":{\"hhash\":\"ab\"}}\n"
                                "{\"name\":\"PR\",\"cat\":\"dftracer\",\"pid\":11q,\"tid\":11,\"ph\":\"M\",\"args\":{"
                                "\"hhash\":\"ab\",\"name\":\"rank\",\"value\":5}}\n"
                                "{\"name\":\"process_name\",\"cat\":\"dftracer\",\"pid\":9,\"tid\":9,\"ph\":\"M\","
                                "\"args\":{\"hhash\":\"ab\",\"name\":\"Rank 12\",\"value\":\"process_name\"}}\n",
                                mr_pfw_import);
    int seen = 0;
    for (size_t i = 0; i < t->processes; i++)
        seen += t->process[i].rank == (t->process[i].pid == 7    ? 3
                                       : t->process[i].pid == 9  ? 12
                                       : t->process[i].pid == 11 ? 5
                                                                 : -1);
    assert_int_equal(t->processes, 4);
    assert_int_equal(seen, 4);
    mr_trace_free(t);
}

/* A rank that is told without a host, and one that another file of the process has. */
static void pfw_ranks_of_other_lines_and_files(void **state)
{
    static const char *const file[] = {
        "{\"name\":\"PR\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\"args\":{\"name\":\"rank\","
        "\"value\":3}}\n"
        "{\"name\":\"HH\",\"cat\":\"dftracer\",\"pid\":7,\"tid\":7,\"ph\":4,\"args\":{\"hhash\":\"ab\",\"name\":\"n1\","
        "\"value\":\"ab\"}}\n"
        "{\"name\":\"x\",\"cat\":\"c\",\"pid\":7,\"tid\":7,\"ts\":1,\"dur\":1,\"ph\":1,\"args\":{\"hhash\":\"ab\"}}\n",
        "{\"name\":\"x\",\"cat\":\"c\",\"pid\":7,\"tid\":8,\"ts\":1,\"dur\":1,\"ph\":1,\"args\":{\"hhash\":\"ab\"}}\n"
        "{\"name\":\"x\",\"cat\":\"c\",\"pid\":9,\"tid\":9,\"ts\":1,\"dur\":1,\"ph\":1,\"args\":{\"hhash\":\"ab\"}}\n"};
    struct mr_trace *t;
    (void)state;
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(mr_pfw_import(t, file[i], strlen(file[i]), "test", NULL), 0);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    assert_int_equal(t->processes, 3);
    assert_int_equal(t->nodes, 2); /* one under its hash has become the other */
    for (size_t i = 0; i < t->processes; i++)
        assert_int_equal(t->process[i].rank, t->process[i].pid == 7 ? 3 : -1);
    mr_trace_free(t);
}

/* Buffers that a fork copied are written by parent and child; equal calls of one microsecond are two calls. */
static void pfw_events_written_twice_count_once(void **state)
{
    struct mr_strbuf s = {0};
    (void)state;
    for (int copy = 0; copy < 3; copy++)
        for (int i = 0; i < 5; i++) /* the last two differ by their ids alone */
            mr_strbuf_printf(&s,
                             "{\"id\":\"%d\",\"name\":\"get\",\"cat\":\"storage\",\"pid\":\"0\",\"tid\":\"3\",\"ts\":"
                             "\"%d\",\"dur\":\"2\",\"ph\":\"X\",\"args\":{\"hostname\":\"a\"}}\n",
                             i, 1700000 + MR_MIN(i, 3) * 10);
    struct mr_trace *t = import(s.text, mr_pfw_import);
    assert_int_equal(t->events, 5);
    assert_int_equal(t->notes, 1);
    assert_non_null(strstr(t->note[0].text, "10 events that a forked process wrote again"));
    mr_trace_free(t);
    mr_strbuf_done(&s);
    t = import("{\"id\":0,\"name\":\"a\",\"cat\":\"x\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":0,\"ph\":\"X\"}\n"
               "{\"id\":0,\"name\":\"a\",\"cat\":\"x\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":0,\"ph\":\"X\"}\n",
               mr_pfw_import);
    assert_int_equal(t->events, 2); /* ids that are all the same tell nothing */
    mr_trace_free(t);
}

static void dxt_text_of_two_ranks(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    const char *text = "# darshan log version: 3.41\n# start_time: 1700000000\n"
                       "# DXT, file_id: 164, file_name: /scratch/a file\n# DXT, rank: 0, hostname: n1\n# DXT, "
                       "write_count: 1, read_count: 1\n"
                       "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"
                       " X_POSIX       0  write        0               0       262144      0.5000      0.7500\n"
                       " X_POSIX       0   read        0          262144           10      1.0000      1.0001\n"
                       "# DXT, file_id: 164, file_name: /scratch/a file\n# DXT, rank: 1, hostname: n2\n"
                       " X_MPIIO       1   read        0               5           10      2.0000      2.5000\n"
                       " bad line\n";
    assert_true(mr_dxt_is(text, strlen(text)));
    struct mr_trace *t = import(text, mr_dxt_import);
    assert_int_equal(t->events, 3);
    assert_int_equal(t->processes, 2);
    assert_int_equal(t->nodes, 2);
    assert_int_equal(t->skipped_lines, 1);
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.call[0], MR_CALL_pwrite);
    assert_int_equal(b.c.call[1], MR_CALL_pread);
    assert_int_equal(b.c.start_ns[0], 1700000000500000000ull);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], 250000000);
    assert_int_equal(b.c.result[0], 262144);
    text_is(mr_trace_string(b.process, b.c.file[0]), "/scratch/a file");
    assert_int_equal(mr_trace_read(t, 1, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.c.call[0], MR_CALL_MPI_File_read_at);
    assert_int_equal(b.process->rank, 1);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

/* Older versions have no offsets of MPI-IO; logs may stand one after the other, each with its own start; names may look
 * like other lines. */
static void dxt_text_of_every_version(void **state)
{
    struct mr_event_batch b = {0};
    (void)state;
    const char *text =
        "\n# darshan log version: 3.10\r\n# exe: ./a # start_time: 5\r\n# start_time: 1700000000\r\n# mount "
        "entry:\t/\text4\r\n   \r\n"
        "# DXT, file_id: 1, file_name: /a/# start_time: 7, rank: 9, hostname: x \r\n# DXT, rank: 3, hostname: n1\r\n"
        "# Module    Rank  Wt/Rd  Segment       Length    Start(s)      End(s)\r\n"
        " X_MPIIO       3  write        0       262144      0.5000      0.7500\r\n"
        "# darshan log version: 3.41\n# start_time: 1700000100\n"
        "# DXT, file_id: 1, file_name: /b\n# DXT, rank: 3, hostname: n1\n"
        "# DXT, mnt_pt: /, fs_type: lustre\n# DXT, Lustre stripe_size: 1048576, Lustre stripe_count: 2\n# DXT, Lustre "
        "OST obdidx: 5 7\n"
        "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)  [OST]\n"
        " X_POSIX       3   read        0              16       262144      0.2500      0.5000  [  5]  [  7]\n"
        " X_STDIO       3   read        1             -1            10      0.1000      0.2000\n"
        "POSIX\t3\t1\tPOSIX_OPENS\t16\t/b\t/\text4\n";
    assert_true(mr_dxt_is(text, strlen(text)));
    struct mr_trace *t = import(text, mr_dxt_import);
    assert_int_equal(t->events, 3);
    assert_int_equal(t->processes, 2);
    assert_int_equal(t->nodes, 1);
    assert_int_equal(t->skipped_lines, 0); /* the counter is for mr_darshan_import */
    assert_int_equal(mr_trace_read(t, 0, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.process->rank, 3);
    assert_int_equal(b.c.call[0], MR_CALL_MPI_File_write_at);
    assert_true(b.c.offset[0] == MR_NO_OFFSET);
    assert_int_equal(b.c.result[0], 262144);
    assert_int_equal(b.c.start_ns[0], 1700000000500000000ull);
    assert_int_equal(b.c.end_ns[0] - b.c.start_ns[0], 250000000);
    text_is(mr_trace_string(b.process, b.c.file[0]), "/a/# start_time: 7, rank: 9, hostname: x ");
    assert_int_equal(mr_trace_read(t, 1, MR_WANT_ALL, &b, NULL), 0);
    assert_int_equal(b.process->rank, 3);
    assert_int_equal(b.c.call[0], MR_CALL_pread);
    assert_int_equal(b.c.offset[0], 16);
    assert_int_equal(b.c.start_ns[0], 1700000100250000000ull);
    assert_int_equal(b.c.call[1], MR_CALL_fread);
    assert_true(b.c.offset[1] == MR_NO_OFFSET);
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void dxt_logs_of_several_processes_stay_apart(void **state)
{
    static const char text[] =
        "# darshan log version: 3.41\n# start_time: 1700000000\n# DXT, file_id: 1, file_name: /a\n# DXT, rank: 0, "
        "hostname: n1\n"
        "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n"
        " X_POSIX       0   read        0               0          100      0.1000      0.2000\n";
    struct mr_trace *t;
    (void)state;
    assert_int_equal(mr_trace_create(&t, NULL), 0);
    for (int i = 0; i < 2; i++) /* two workers of one job, started in the same second */
        assert_int_equal(mr_dxt_import(t, text, strlen(text), "test", NULL), 0);
    assert_int_equal(mr_trace_finish(t, NULL), 0);
    assert_int_equal(t->events, 2);
    assert_int_equal(t->processes, 2);
    assert_int_equal(t->nodes, 1);
    mr_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pfw_classic_with_hashes_and_late_names),
        cmocka_unit_test(pfw_new_layout_with_numbers_and_hex),
        cmocka_unit_test(pfw_lines_of_known_shapes_read_as_lines_of_new_ones),
        cmocka_unit_test(pfw_aggregated_lines_keep_their_sums),
        cmocka_unit_test(pfw_aggregated_lines_of_every_version),
        cmocka_unit_test(pfw_several_objects_in_a_line_are_all_read),
        cmocka_unit_test(pfw_times_are_exact_in_every_unit),
        cmocka_unit_test(pfw_arguments_keep_their_values),
        cmocka_unit_test(pfw_results_are_numbers_however_written),
        cmocka_unit_test(pfw_processes_have_their_ranks),
        cmocka_unit_test(pfw_ranks_of_other_lines_and_files),
        cmocka_unit_test(pfw_events_written_twice_count_once),
        cmocka_unit_test(dxt_text_of_two_ranks),
        cmocka_unit_test(dxt_text_of_every_version),
        cmocka_unit_test(dxt_logs_of_several_processes_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
