/* What tiers tell of their background traffic: every fill, with where it came from, where it stays and its bytes, as
 * often as the statistics count. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "import/trace_read.h"
#include "loader_fixture.h"
#include "tier_fixture.h"

#define SAMPLES 100u
#define BYTES 5000u
#define WORLD 2u

struct told {
    uint64_t fills[MR_TIER_FROMS], bytes[MR_TIER_FROMS];
};

static int64_t arg_of(const struct mr_event_batch *b, uint32_t event, const char *name)
{
    for (uint32_t a = 0; a < b->args; a++) {
        const struct mr_trace_string *key = mr_trace_string(b->process, b->c.arg_key[a]);
        if (b->c.arg_event[a] == event && key->len == strlen(name) && !memcmp(key->text, name, key->len))
            return b->c.arg_value[a];
    }
    fail_msg("an event without argument '%s'", name);
    return 0;
}

static void note(const struct mr_event_batch *b, uint32_t i, struct told *out)
{
    struct mr_trace_string category, name;
    mr_trace_label(b->process, b->c.call[i], b->c.file[i], &category, &name);
    if (name.len != 4 || memcmp(name.text, "fill", 4) != 0)
        return;
    int64_t from = arg_of(b, i, "source"), bytes = arg_of(b, i, "bytes"), kept = arg_of(b, i, "class");
    assert_in_range(from, 0, MR_TIER_FROMS - 1);
    assert_in_range(arg_of(b, i, "sample"), 0, SAMPLES - 1);
    assert_int_equal(kept, 1); /* RAM */
    assert_int_equal(bytes, b->c.result[i]);
    out->fills[from]++;
    out->bytes[from] += (uint64_t)bytes;
}

static void read_back(const char *path, struct told *out)
{
    struct mr_error err;
    struct mr_trace *t;
    struct mr_event_batch b = {0};
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    for (size_t c = 0; c < t->chunks; c++) {
        assert_int_equal(mr_trace_read(t, c, MR_WANT_ALL, &b, &err), 0);
        for (uint32_t i = 0; i < b.count; i++)
            note(&b, i, out);
    }
    mr_event_batch_done(&b);
    mr_trace_free(t);
}

static void every_fill_is_told(void **state)
{
    (void)state;
    if (access(MR_BINARY_DIR "/lib/millrace_wire_ucx.so", R_OK) != 0) /* built without UCX: nodes have no peers */
        skip();
    uint64_t samples, set_bytes, *sum = sums_of("raw", 0, &samples, &set_bytes);
    char trace[512], path[600];
    snprintf(trace, sizeof trace, "%s/trace", root);
    struct tier_case c = {.set = "raw",
                          .store = "throttle(bandwidth=20MB):posix",
                          .policy = "nopfs",
                          .spec = "ram=64MiB,staging=128KiB",
                          .batch = 4,
                          .epochs = 2,
                          .samples = SAMPLES,
                          .threads = 2,
                          .sum = sum,
                          .peers = true,
                          .ranks_per_node = 1,
                          .pause_us = 2000,
                          .trace = trace};
    struct shared_figures *f = run_ranks(&c, WORLD, 0, 0, SAMPLES / WORLD * c.epochs);
    uint64_t all = 0;
    for (uint32_t r = 0; r < WORLD; r++) {
        struct told x = {0};
        snprintf(path, sizeof path, "%s.%u", trace, r);
        read_back(path, &x);
        for (unsigned k = 0; k < MR_TIER_FROMS; k++) {
            assert_int_equal(x.fills[k], f[r].stats.fills[k].samples);
            assert_int_equal(x.bytes[k], f[r].stats.fills[k].bytes);
            all += x.fills[k];
        }
    }
    assert_true(all > 0);
    done_figures(f, WORLD);
    free(sum);
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-events");
    make_set("raw", "raw", SAMPLES, 1, BYTES, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fill_is_told)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
