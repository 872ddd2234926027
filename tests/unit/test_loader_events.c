/* What the loader tells: one span per station of every sample, with its place; nothing that nobody wants; and beside it
 * the calls of the storage stack. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "event/emit.h"
#include "import/trace_read.h"
#include "loader_fixture.h"

#define SAMPLES 30u
#define EPOCHS 2u

/* What a trace holds of one loader. */
struct told {
    uint64_t spans[MR_SPAN_COUNT], bytes[MR_SPAN_COUNT], ns[MR_SPAN_COUNT];
    uint64_t reads, read_bytes;      /* calls of the stack */
    uint64_t ready[EPOCHS][SAMPLES]; /* rows ready, by sample */
    uint64_t misplaced;
};

static void note_span(struct told *x, enum mr_span what, const struct mr_event_batch *b, uint32_t i)
{
    uint64_t epoch = UINT64_MAX, batch = UINT64_MAX, sample = UINT64_MAX;
    for (uint32_t a = 0; a < b->args; a++) {
        if (b->c.arg_event[a] != i)
            continue;
        const struct mr_trace_string *key = mr_trace_string(b->process, b->c.arg_key[a]);
        uint64_t *to = key->text[0] == 'e' ? &epoch : key->text[0] == 'b' ? &batch : &sample;
        *to = (uint64_t)b->c.arg_value[a];
    }
    x->spans[what]++;
    x->bytes[what] += (uint64_t)b->c.result[i];
    x->ns[what] += b->c.end_ns[i] - b->c.start_ns[i];
    if (epoch >= EPOCHS || batch >= (SAMPLES + 6) / 7)
        x->misplaced++;
    else if (what <= MR_SPAN_ROW_READY && sample >= SAMPLES)
        x->misplaced++;
    else if (what == MR_SPAN_ROW_READY)
        x->ready[epoch][sample]++;
}

static enum mr_span span_of(const struct mr_event_batch *b, uint32_t i)
{
    struct mr_trace_string category, name;
    mr_trace_label(b->process, b->c.call[i], b->c.file[i], &category, &name);
    for (unsigned s = 0; s < MR_SPAN_COUNT; s++) {
        const char *c, *n = mr_span_name((enum mr_span)s, &c);
        if (name.len == strlen(n) && !memcmp(name.text, n, name.len) && category.len == strlen(c))
            return (enum mr_span)s;
    }
    return MR_SPAN_COUNT;
}

static void read_back(const char *path, struct told *out)
{
    struct mr_error err;
    struct mr_trace *t;
    struct mr_event_batch b = {0};
    *out = (struct told){0};
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        for (uint32_t i = 0; i < b.count; i++) {
            enum mr_span s = span_of(&b, i);
            const struct mr_trace_string *file = mr_trace_string(b.process, b.c.file[i]);
            if (s < MR_SPAN_COUNT)
                note_span(out, s, &b, i);
            else if (file->len > 4 && !memcmp(file->text + file->len - 4, ".npz", 4) && b.c.result[i] > 100) {
                out->reads++;
                out->read_bytes += (uint64_t)b.c.result[i];
            }
        }
    }
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static int64_t spend(void *user, uint64_t epoch, uint64_t id, void *row, size_t cap, size_t bytes)
{
    (void)user, (void)epoch, (void)id, (void)row, (void)cap;
    usleep(100);
    return (int64_t)bytes;
}

static struct told run(const char *set, enum mr_event_level level, enum mr_loader_io io, const char *policy,
                       struct mr_loader_stats *stats)
{
    char path[512], trace[512];
    uint64_t ids[100];
    struct mr_error err;
    struct mr_events_file *f;
    struct told x;
    snprintf(trace, sizeof trace, "%s/trace.mrt", root);
    struct mr_loader_params p = params(set, path);
    p.io = io;
    p.policy = policy;
    p.transform = spend;
    p.last_epoch = EPOCHS - 1;
    assert_int_equal(mr_events_open(trace, level, 0, 1, &f, &err), 0);
    p.events = mr_events_of(f, 0);
    struct mr_loader *l = must_open(&p);
    for (uint64_t e = 0; e < EPOCHS; e++)
        assert_int_equal(read_epoch(l, e, ids, UINT64_MAX), SAMPLES);
    mr_loader_get_stats(l, stats);
    mr_loader_close(l);
    assert_int_equal(mr_events_close(f, false, &err), 0);
    read_back(trace, &x);
    return x;
}

static void every_sample_is_told_with_its_place(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 3; how++)
        for (unsigned decoded = 0; decoded < 2; decoded++) {
            struct mr_loader_stats st;
            struct told x =
                run(decoded ? "jpeg" : "npz", MR_LEVEL_SAMPLE, how == 1 ? MR_LOADER_IO_QUEUE : MR_LOADER_IO_THREADS,
                    how == 2 ? "naive" : "staging", &st);
            uint64_t n = EPOCHS * SAMPLES, batches = EPOCHS * ((SAMPLES + 6) / 7);
            assert_int_equal(x.misplaced, 0);
            assert_int_equal(x.spans[MR_SPAN_FETCH_STORE], n);
            assert_int_equal(x.bytes[MR_SPAN_FETCH_STORE], st.read_bytes);
            assert_int_equal(x.spans[MR_SPAN_TRANSFORM], n);
            assert_int_equal(x.ns[MR_SPAN_TRANSFORM], st.transform_ns);
            assert_int_equal(x.spans[MR_SPAN_ROW_READY], n);
            assert_int_equal(x.bytes[MR_SPAN_ROW_READY], st.sample_bytes);
            assert_int_equal(x.spans[MR_SPAN_BATCH_READY], batches);
            assert_int_equal(x.bytes[MR_SPAN_BATCH_READY], n);
            assert_int_equal(x.spans[MR_SPAN_WAIT], batches);
            assert_int_equal(x.ns[MR_SPAN_WAIT], st.wait_ns);
            assert_int_equal(x.bytes[MR_SPAN_WAIT], n);
            assert_int_equal(x.ns[MR_SPAN_DECODE], decoded || how == 1 ? st.decode_ns : 0);
            assert_true(!decoded || x.spans[MR_SPAN_DECODE] == n);
            for (unsigned e = 0; e < EPOCHS; e++)
                for (unsigned s = 0; s < SAMPLES; s++)
                    assert_int_equal(x.ready[e][s], 1);
            assert_int_equal(x.reads, 0);
        }
}

static void a_level_tells_no_more_than_it_says(void **state)
{
    (void)state;
    struct mr_loader_stats st;
    struct told x = run("npz", MR_LEVEL_STEP, MR_LOADER_IO_THREADS, "staging", &st);
    assert_int_equal(x.spans[MR_SPAN_WAIT], EPOCHS * ((SAMPLES + 6) / 7));
    assert_int_equal(x.spans[MR_SPAN_FETCH_STORE] + x.spans[MR_SPAN_ROW_READY] + x.spans[MR_SPAN_TRANSFORM], 0);
    for (int io = MR_LOADER_IO_THREADS; io <= MR_LOADER_IO_QUEUE; io++) {
        x = run("npz", MR_LEVEL_CALL, (enum mr_loader_io)io, "staging", &st);
        assert_int_equal(x.reads, EPOCHS * SAMPLES); /* beside the fetches */
        assert_int_equal(x.read_bytes, st.read_bytes);
        assert_int_equal(x.spans[MR_SPAN_FETCH_STORE], EPOCHS * SAMPLES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_told_with_its_place),
        cmocka_unit_test(a_level_tells_no_more_than_it_says),
    };
    open_root("loader-events");
    make_set("npz", "npz", SAMPLES, 1, 5000, 0);
    make_set("jpeg", "jpeg", SAMPLES, 1, 6000, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    remove_root();
    return rc;
}
