/* The tiers end to end, on one node: every sample once per epoch with the right bytes; with room for the set in memory
 * every byte is read once and never again; with room for half of it no sample that is held is read again; seeking uses
 * what is there. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"
#include "tier_fixture.h"

#define SAMPLES 400u
#define BYTES 5000u

static uint64_t *sum, samples, set_bytes;

static struct tier_case plain(void)
{
    return (struct tier_case){.set = "raw",
                              .policy = "millrace",
                              .spec = "ram=64MiB,staging=256KiB",
                              .batch = 8,
                              .epochs = 4,
                              .samples = SAMPLES,
                              .threads = 2,
                              .sum = sum};
}

static void move_set(const char *set, bool away)
{
    char here[600], gone[600];
    snprintf(here, sizeof here, "%s/%s/train", root, set);
    snprintf(gone, sizeof gone, "%s/%s/gone", root, set);
    assert_int_equal(rename(away ? here : gone, away ? gone : here), 0);
}

static void must(int rc, const struct tier_rank *k)
{
    if (rc)
        fail_msg("%d: %s / %s (%d wrong)", rc, k->err.message, k->err.context, (int)k->bad);
}

static void every_byte_is_read_once(void **state)
{
    (void)state;
    struct tier_case c = plain();
    for (uint32_t world = 1; world <= 3; world++) {
        uint64_t each = (SAMPLES + world - 1) / world * c.epochs;
        struct shared_figures *f = run_ranks(&c, world, 0, 0, each);
        for (uint32_t r = 0; r < world; r++) {
            assert_int_equal(f[r].delivered, each);
            assert_int_equal(f[r].stats.source_reads, SAMPLES);
            assert_int_equal(f[r].stats.source_bytes, set_bytes);
            assert_int_equal(f[r].stats.distinct_bytes, set_bytes);
            assert_int_equal(f[r].stats.from[MR_TIER_SOURCE].samples, SAMPLES);
            assert_int_equal(f[r].stats.from[MR_TIER_RAM].samples, each * world - SAMPLES);
        }
        done_figures(f, world);
    }
}

/* The files are gone after the first epoch. */
static void later_epochs_need_no_source(void **state)
{
    (void)state;
    struct tier_case c = plain();
    static struct tier_rank k;
    must(tier_rank_open(&k, &c, 0, 1, NULL), &k);
    must(tier_rank_read(&k, 0, 0, SAMPLES), &k);
    move_set("raw", true);
    int rc = tier_rank_read(&k, 1, 0, 3 * SAMPLES);
    move_set("raw", false);
    must(rc, &k);
    tier_rank_close(&k, true);
}

static void half_of_the_set_stays(void **state)
{
    (void)state;
    struct tier_case c = plain();
    c.spec = "ram=1000000,staging=128KiB"; /* half of it: 195 samples of 5,120 bytes */
    c.epochs = 5;
    for (uint32_t world = 1; world <= 2; world++) {
        uint64_t each = SAMPLES / world * c.epochs;
        struct shared_figures *f = run_ranks(&c, world, 0, 0, each);
        uint64_t held = 1000000 / 5056, least = SAMPLES + (SAMPLES - held) * (c.epochs - 1);
        assert_int_equal(f[0].delivered, each);
        if (f[0].stats.source_reads > least + least / 20)
            fail_msg("%llu reads, %llu are the least", (unsigned long long)f[0].stats.source_reads,
                     (unsigned long long)least);
        assert_true(f[0].stats.ram_bytes <= 1000000);
        done_figures(f, world);
    }
}

static void seeking_uses_what_is_there(void **state)
{
    (void)state;
    struct tier_case c = plain();
    struct mr_tier_stats s;
    static struct tier_rank k;
    must(tier_rank_open(&k, &c, 0, 1, NULL), &k);
    must(tier_rank_read(&k, 0, 0, 150), &k);
    must(tier_rank_read(&k, 0, 150, 100), &k); /* on from there */
    must(tier_rank_read(&k, 0, 100, 700), &k); /* back, and into the next epoch */
    must(tier_rank_read(&k, 2, 0, 2 * SAMPLES), &k);
    mr_tier_get_stats(k.tier, &s);
    assert_int_equal(s.source_reads, SAMPLES);
    tier_rank_close(&k, true);
}

/* Staging for a few samples only, and none of RAM: everything comes from the source, in every epoch (but what is staged
 * when it is read again). */
static void little_memory_is_enough(void **state)
{
    (void)state;
    struct tier_case c = plain();
    c.policy = "staging";
    c.spec = "staging=32KiB";
    c.epochs = 2;
    for (uint32_t world = 1; world <= 2; world++) {
        uint64_t each = SAMPLES / world * c.epochs;
        struct shared_figures *f = run_ranks(&c, world, 0, 0, each);
        assert_in_range(f[0].stats.source_reads, SAMPLES * c.epochs * 9 / 10, SAMPLES * c.epochs);
        done_figures(f, world);
    }
}

static void every_policy_that_keeps_the_order_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"naive", "staging", "lbann-dynamic", "nopfs", "millrace"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(names); i++) {
        struct tier_case c = plain();
        c.policy = names[i];
        c.epochs = 3;
        struct shared_figures *f = run_ranks(&c, 2, 0, 0, SAMPLES / 2 * c.epochs);
        assert_int_equal(f[0].delivered, SAMPLES / 2 * c.epochs);
        uint64_t most = i < 2 ? SAMPLES * c.epochs : SAMPLES; /* what is staged for an epoch may serve the next */
        assert_in_range(f[0].stats.source_reads, most * 9 / 10, most);
        done_figures(f, 2);
    }
    static struct tier_rank k;
    struct tier_case c = plain();
    c.policy = "deepio-opportunistic";
    assert_int_equal(tier_rank_open(&k, &c, 0, 1, NULL), MR_E_UNSUPPORTED);
    tier_rank_close(&k, false);
}

static void other_formats_and_checksums(void **state)
{
    (void)state;
    static const struct {
        const char *set, *format;
        int64_t files, per_file;
        uint64_t size, stdev;
    } sets[] = {{"npz", "npz", 40, 1, 9000, 3000},
                {"tfrecord", "tfrecord", 4, 10, 3000, 800},
                {"hdf5", "hdf5", 4, 10, 4096, 0},
                {"jpeg", "jpeg", 40, 1, 6000, 0}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(sets); i++)
        for (unsigned verify = 0; verify < 2; verify++) {
            if (!verify)
                make_set(sets[i].set, sets[i].format, sets[i].files, sets[i].per_file, sets[i].size, sets[i].stdev);
            struct tier_case c = plain();
            uint64_t n, bytes;
            c.read_flags = verify ? MR_DATASET_VERIFY : 0;
            uint64_t *own = sums_of(sets[i].set, c.read_flags, &n, &bytes);
            c.set = sets[i].set;
            c.sum = own;
            c.samples = n;
            c.epochs = 2;
            static struct tier_rank k;
            must(tier_rank_open(&k, &c, 0, 1, NULL), &k);
            must(tier_rank_read(&k, 0, 0, n * 2), &k);
            tier_rank_close(&k, true);
            free(own);
        }
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-ram");
    make_set("raw", "raw", SAMPLES, 1, BYTES, 0);
    sum = sums_of("raw", 0, &samples, &set_bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(sum);
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_read_once),     cmocka_unit_test(later_epochs_need_no_source),
        cmocka_unit_test(half_of_the_set_stays),       cmocka_unit_test(seeking_uses_what_is_there),
        cmocka_unit_test(little_memory_is_enough),     cmocka_unit_test(every_policy_that_keeps_the_order_runs),
        cmocka_unit_test(other_formats_and_checksums),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
