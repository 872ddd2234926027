/* Rates of a system by the size and kind of requests: what a workload gets of them, and that they survive being written
 * and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "model/system_yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct mr_system calibrated(void)
{
    struct mr_system s = {.name = "here",
                          .source = "a test",
                          .preprocess_mbps = 1e6,
                          .network_mbps = 1e6,
                          .pfs_link_mbps = 1e6,
                          .pfs_stream_mbps = 100,
                          .pfs_spread = 0.1,
                          .pfs_mbps = {.n = 1, .x = {1}, .y = {200}},
                          .n_requests = 3,
                          .requests = {{0.1, {100, 50, 0.2}, {0, 0, 0}},
                                       {1, {500, 250, 0.3}, {800, 400, 0.4}},
                                       {4, {1000, 500, 0.5}, {1600, 800, 0.6}}},
                          .n_classes = 1};
    s.classes[0] = (struct mr_storage_class){
        .name = "staging", .capacity_mb = 1000, .threads = 2, .read_mbps = {.n = 1, .x = {1}, .y = {10000}}};
    return s;
}

static void near(double have, double want)
{
    if (fabs(have - want) > 1e-6 * want)
        fail_msg("%g, not %g", have, want);
}

static void fits(double mb, bool buffered, double mbps, double stream, double spread)
{
    struct mr_system s = calibrated();
    assert_true(mr_system_fit(&s, mb, buffered));
    near(mr_curve_at(&s.pfs_mbps, 1), mbps);
    near(s.pfs_stream_mbps, stream);
    near(s.pfs_spread, spread);
}

static void rates_follow_the_size_of_the_requests(void **state)
{
    (void)state;
    fits(1, false, 500, 250, 0.3);
    fits(4, false, 1000, 500, 0.5);
    fits(2.5, false, 2.5 / 0.003, 2.5 / 0.006, 0.5); /* halfway from 2 to 4 ms, and from 4 to 8 */
    fits(0.05, false, 50, 25, 0.2);                  /* as long as the smallest */
    fits(100, false, 1000, 500, 0.5);                /* as fast as the largest */
}

static void buffered_reads_have_rates_of_their_own(void **state)
{
    (void)state;
    fits(1, true, 800, 400, 0.4);
    fits(4, true, 1600, 800, 0.6);
    fits(0.1, true, 80, 40, 0.4); /* the smallest that was measured is 1 MB */
    struct mr_system s = calibrated();
    for (unsigned i = 0; i < s.n_requests; i++)
        s.requests[i].buffered.mbps = 0;
    assert_false(mr_system_fit(&s, 1, true));
    near(s.pfs_mbps.y[0], 200); /* untouched */
    s.n_requests = 0;
    assert_false(mr_system_fit(&s, 1, false));
}

static int read_back(const char *text, struct mr_system *out, struct mr_error *err)
{
    struct mr_arena a = {0};
    struct mr_yaml_node *root;
    struct mr_yaml_reader r = {"here.yaml", &a};
    int rc = mr_yaml_parse(text, strlen(text), "here.yaml", &a, &root, err);
    if (!rc)
        rc = mr_system_read(&r, root, out, err);
    mr_arena_done(&a);
    return rc;
}

static void a_system_survives_its_file(void **state)
{
    (void)state;
    struct mr_system s = calibrated(), back;
    struct mr_strbuf text = {0};
    struct mr_error err;
    mr_system_write(&s, "", &text);
    if (read_back(text.text, &back, &err))
        fail_msg("%s\n%s", err.message, text.text);
    mr_strbuf_done(&text);
    assert_int_equal(back.n_requests, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_memory_equal(&back.requests[i], &s.requests[i], sizeof s.requests[i]);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    static const char *const lists[] = {"[{size: 0, bandwidth: 1MB}]", "[{size: 2MB}, {size: 1MB}]", "5",
                                        "[{size: 1MB, bandwith: 1MB}]", "[{size: 1MB, spread: -1}]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char text[512];
        struct mr_system s;
        struct mr_error err;
        snprintf(text, sizeof text,
                 "name: x\npfs: {bandwidth: 1MB, requests: %s}\nclasses: [{name: a, capacity: 1GB, read: 1GB}]\n",
                 lists[i]);
        if (read_back(text, &s, &err) != MR_E_CONFIG)
            fail_msg("'%s' was not refused", lists[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_the_size_of_the_requests),
        cmocka_unit_test(buffered_reads_have_rates_of_their_own),
        cmocka_unit_test(a_system_survives_its_file),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
