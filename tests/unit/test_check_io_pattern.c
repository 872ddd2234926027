/* The figures over storage calls, on lists whose answers are known by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/common.h"
#include "metrics/io_pattern.h"

#include <errno.h>
#include <math.h>

#define READ(r, t, f, at, off, len)                                                                                    \
    {                                                                                                                  \
        .kind = MR_EV_READ, .rank = r, .tid = t, .path_id = f, .start_ns = at, .dur_ns = 10, .offset = off,            \
        .result = len                                                                                                  \
    }
#define OPEN(r, t, f, at)                                                                                              \
    {                                                                                                                  \
        .kind = MR_EV_OPEN, .rank = r, .tid = t, .path_id = f, .start_ns = at, .dur_ns = 0                             \
    }

static const uint64_t sizes[] = {0, 100, 100, 100};

static double get(struct mr_event *e, size_t n, uint32_t ranks, const char *name)
{
    struct mr_io_calls c = {.events = e,
                            .n = n,
                            .file_bytes = sizes,
                            .n_paths = 3,
                            .ranks = ranks,
                            .dataset_bytes = 300,
                            .start_ns = 0,
                            .end_ns = 1000,
                            .train_start_ns = 50};
    double v = -77;
    assert_int_equal(mr_io_pattern_get(&c, name, &v), 0);
    return v;
}
#define CHECK(e, ranks, name, want) assert_true(fabs(get(e, MR_ARRAY_LEN(e), ranks, name) - (want)) < 1e-9)

static void sizes_and_sums(void **state)
{
    (void)state;
    struct mr_event e[] = {READ(0, 1, 1, 0, 0, 25), READ(0, 1, 1, 20, 25, 25), READ(0, 1, 1, 40, 50, 25),
                           READ(0, 1, 1, 60, 75, 20), READ(0, 1, 1, 80, 95, 0)};
    CHECK(e, 1, "posix.read.count", 4); /* the call at the end of the file is none */
    CHECK(e, 1, "posix.read.bytes", 95);
    CHECK(e, 1, "posix.read.modal_size", 25);
    CHECK(e, 1, "posix.read.mean_size", 23.75);
    CHECK(e, 1, "posix.read.max_size", 25);
    CHECK(e, 1, "posix.read.size_share.25", 0.75);
    CHECK(e, 1, "posix.read.size_share.25+20", 1);
    CHECK(e, 1, "posix.read.head1.size_share.25", 1);
    CHECK(e, 1, "posix.read.tail3.modal_size", 20);
    CHECK(e, 1, "posix.read.request_bytes_per_s", 95 / 40e-9);
    CHECK(e, 1, "posix.read.before_training_share", 75.0 / 95);
    CHECK(e, 1, "posix.read.during_training_count", 1);
    CHECK(e, 1, "posix.read.per_dataset_byte", 95.0 / 300);
    CHECK(e, 1, "posix.write.count", 0);
    CHECK(e, 1, "io.share_darshan", 0.05);
}

/* Two threads that stream the two halves of a file: consecutive by stream, not so by Darshan's definition. */
static void two_streams_of_one_file_are_consecutive(void **state)
{
    (void)state;
    struct mr_event e[] = {READ(0, 1, 1, 0, 0, 10), READ(0, 2, 1, 5, 50, 10), READ(0, 1, 1, 20, 10, 10),
                           READ(0, 2, 1, 25, 60, 10)};
    CHECK(e, 1, "posix.read.consecutive_share", 1);
    CHECK(e, 1, "posix.read.sequential_share", 1);
    CHECK(e, 1, "posix.read.consecutive_share_darshan", 0);
    CHECK(e, 1, "posix.read.sequential_share_darshan", 0.5); /* 50 after 10, 60 after 20 */
    CHECK(e, 1, "posix.read.concurrency_in_rank", 2);
}

static void a_gap_is_sequential_but_not_consecutive(void **state)
{
    (void)state;
    struct mr_event e[] = {READ(0, 1, 1, 0, 0, 10), READ(0, 1, 1, 20, 10, 10), READ(0, 1, 1, 40, 50, 10),
                           READ(0, 1, 1, 60, 20, 10)};
    CHECK(e, 1, "posix.read.consecutive_share", 1.0 / 3);
    CHECK(e, 1, "posix.read.sequential_share", 2.0 / 3);
    CHECK(e, 1, "posix.read.concurrency_in_rank", 1);
}

/* Reading a file again from its start after opening it again is no jump backwards. */
static void a_new_open_starts_a_new_stream(void **state)
{
    (void)state;
    struct mr_event e[] = {OPEN(0, 1, 1, 0),  READ(0, 1, 1, 1, 0, 50),  READ(0, 1, 1, 20, 50, 50),
                           OPEN(0, 1, 1, 40), READ(0, 1, 1, 41, 0, 50), READ(0, 1, 1, 60, 50, 50)};
    CHECK(e, 1, "posix.read.consecutive_share", 1);
    CHECK(e, 1, "posix.read.file_passes", 2);
    CHECK(e, 1, "posix.read.once_share", 0);
    CHECK(e, 1, "posix.read.per_open", 2);
    CHECK(e, 1, "posix.open.count", 2);
    CHECK(e, 1, "posix.read.pass_bytes_cv", 0);
}

static void sharing_counts_ranks_per_byte(void **state)
{
    (void)state;
    struct mr_event same[] = {READ(0, 1, 1, 0, 0, 60), READ(1, 2, 1, 0, 0, 60), READ(2, 3, 1, 0, 0, 60),
                              READ(2, 3, 1, 20, 0, 60)};
    CHECK(same, 3, "posix.read.sharing_degree", 3);
    CHECK(same, 3, "posix.read.rank_overlap_share", 1);
    CHECK(same, 3, "posix.read.disjoint_files_share", 0);
    struct mr_event apart[] = {READ(0, 1, 1, 0, 0, 100), READ(1, 2, 2, 0, 0, 100), READ(2, 3, 3, 0, 0, 100)};
    CHECK(apart, 3, "posix.read.sharing_degree", 1);
    CHECK(apart, 3, "posix.read.rank_overlap_share", 0);
    CHECK(apart, 3, "posix.read.disjoint_files_share", 1);
    CHECK(apart, 3, "posix.read.files_touched", 3);
    CHECK(apart, 3, "posix.read.once_share", 1);
    struct mr_event half[] = {READ(0, 1, 1, 0, 0, 60), READ(1, 2, 1, 0, 40, 60)};
    CHECK(half, 2, "posix.read.sharing_degree", 1.2);
    CHECK(half, 2, "posix.read.rank_overlap_share", 0.2);
}

static void nothing_read_has_no_share(void **state)
{
    (void)state;
    struct mr_event e[] = {OPEN(0, 1, 1, 0)};
    assert_true(isnan(get(e, 1, 1, "posix.read.consecutive_share")));
    assert_true(isnan(get(e, 1, 1, "posix.read.request_bytes_per_s")));
    assert_true(isnan(get(e, 1, 1, "posix.read.size_share.5")));
    CHECK(e, 1, "posix.read.bytes", 0);
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "posix",
                                      "posix.read.",
                                      "posix.read.speed",
                                      "posix.read.size_share.x",
                                      "posix.read.head.count",
                                      "posix.seek.count",
                                      "io.share"};
    struct mr_event e[] = {READ(0, 1, 1, 0, 0, 60)};
    struct mr_io_calls c = {.events = e, .n = 1, .file_bytes = sizes, .n_paths = 3, .ranks = 1, .end_ns = 1};
    for (size_t i = 0; i < MR_ARRAY_LEN(bad); i++) {
        double v = 42;
        assert_int_equal(mr_io_pattern_get(&c, bad[i], &v), -ENOENT);
        assert_true(v == 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_sums),
        cmocka_unit_test(two_streams_of_one_file_are_consecutive),
        cmocka_unit_test(a_gap_is_sequential_but_not_consecutive),
        cmocka_unit_test(a_new_open_starts_a_new_stream),
        cmocka_unit_test(sharing_counts_ranks_per_byte),
        cmocka_unit_test(nothing_read_has_no_share),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
