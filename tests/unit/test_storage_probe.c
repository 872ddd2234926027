/* What more readers of a storage get: the block in a trace, the measurement, and what an explanation makes of it. */
#include "base/common.h"
#include "event/mrt_sink.h"
#include "event/storage_probe.h"
#include "explain/explain.h"
#include "probe/places_probe.h"

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

static const struct mr_storage_probe asked = {{1, 4}, {100e6, 250e6}};

static void a_block_reads_as_it_was_written(void **state)
{
    uint8_t block[MR_STORAGE_PROBE_BLOCK];
    struct mr_storage_probe got = {.streams = {0}};
    (void)state;
    assert_true(mr_storage_probe_block(0, &asked, block) <= sizeof block);
    assert_true(mr_storage_probe_read(block + MR_MRT_HEADER, 24, &got));
    assert_memory_equal(&got, &asked, sizeof got);
    for (size_t len = 0; len < 24; len++)
        assert_false(mr_storage_probe_read(block + MR_MRT_HEADER, len, &got));
    const struct mr_storage_probe bad[] = {{{1, 4}, {NAN, 1}}, {{1, 4}, {-1, 1}}, {{0, 4}, {1, 1}}, {{4, 4}, {1, 1}}};
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        mr_storage_probe_block(0, &bad[i], block);
        assert_false(mr_storage_probe_read(block + MR_MRT_HEADER, 24, &got));
    }
}

/* A loop that reads for itself, 10 ms of 20, 1 MiB each. */
static void write_trace(const char *path)
{
    struct mr_mrt_sink *sink;
    struct mr_error err;
    assert_int_equal(mr_mrt_sink_open_sim(path, &(struct mr_mrt_sim){.world = 1, .program = "test"}, &sink, &err), 0);
    struct mr_event_sink *s = mr_mrt_sink_get(sink);
    uint32_t file = s->intern(s, "/data/x"), step = mr_mrt_sink_site(sink, "train", "optimizer.step");
    const struct mr_mrt_arg number = {mr_mrt_sink_key(sink, "optimizer"), 0, false};
    for (uint64_t i = 0, t = MS; i < 40; i++, t += 20 * MS) {
        s->emit(s, &(struct mr_event){
                       .kind = MR_EV_READ, .start_ns = t, .dur_ns = 10 * MS, .path_id = file, .result = 1 << 20});
        const struct mr_event e = {.kind = MR_EV_REGION, .start_ns = t + 18 * MS, .dur_ns = MS, .path_id = step};
        mr_mrt_sink_emit_args(sink, &e, &number, 1);
    }
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
}

static struct mr_explanation *explain(const char *path)
{
    const struct mr_explain_options opt = {.threads = 1, .rank = -1, .step_from = -1};
    struct mr_explanation *x = NULL;
    struct mr_trace *t;
    struct mr_error err;
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    assert_int_equal(mr_explain(t, &opt, &x, &err), 0);
    assert_int_equal(t->unended, 0);
    mr_trace_free(t);
    return x;
}

static void it_stands_behind_a_trace_and_scales_its_rate(void **state)
{
    char path[] = "/tmp/mr-probe-XXXXXX";
    uint8_t block[MR_STORAGE_PROBE_BLOCK];
    struct mr_mrt_writer *w;
    struct mr_error err;
    (void)state;
    close(mkstemp(path));
    write_trace(path);
    struct mr_explanation *x = explain(path);
    assert_true(isnan(x->facts.streams[0]) && x->steps == 40);
    mr_explanation_free(x);
    assert_int_equal(mr_mrt_writer_open(path, true, &w, &err), 0);
    assert_int_equal(mr_mrt_writer_append(w, block, mr_storage_probe_block(0, &asked, block), &err), 0);
    assert_int_equal(mr_mrt_writer_close(w, &err), 0);
    x = explain(path);
    const struct mr_explain_facts *f = &x->facts;
    assert_int_equal(x->steps, 40);
    assert_true(f->streams[0] == 1 && f->streams[1] == 4);
    assert_true(fabs(f->stream_bytes_per_s[0] / f->busy_bytes_per_s - 1) < 1e-9);
    assert_true(fabs(f->stream_bytes_per_s[1] / f->busy_bytes_per_s - 2.5) < 1e-9);
    mr_explanation_free(x);
    unlink(path);
}

static void pieces_are_read_once_and_files_that_are_gone_give_no_answer(void **state)
{
    static const struct mr_place_piece gone[4] = {{"/nonexistent/a", 0, 1}, {"/nonexistent/b", 0, 1}, {"/c/d", 0, 1}};
    const atomic_bool stop = false;
    char path[] = "/tmp/mr-pieces-XXXXXX";
    struct mr_place_piece piece[64];
    (void)state;
    int fd = mkstemp(path);
    assert_int_equal(ftruncate(fd, 64 << 20), 0);
    close(fd);
    for (size_t i = 0; i < 64; i++)
        piece[i] = (struct mr_place_piece){path, i << 20, 1 << 20};
    double rate = mr_probe_pieces(piece, 64, 2, 5, &stop); /* a hole: maybe too quick to count */
    assert_true(rate >= 0 && rate <= 64 * (1 << 20) / 0.05);
    assert_true(mr_probe_pieces(gone, 3, 1, 1, &stop) == 0);
    assert_true(mr_probe_pieces(piece, 1, 2, 1, &stop) == 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_reads_as_it_was_written),
        cmocka_unit_test(it_stands_behind_a_trace_and_scales_its_rate),
        cmocka_unit_test(pieces_are_read_once_and_files_that_are_gone_give_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
