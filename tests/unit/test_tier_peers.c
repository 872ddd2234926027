/* Tiers of several nodes: what one has read the others get from it, so that a byte leaves the source once per job, with
 * room for the set on every node and with room for a part on each; without peers every node reads for itself. Nodes are
 * made of ranks of this machine (ranks_per_node). test-label: concurrent */
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
static bool no_wire;

static struct tier_case nodes_of(uint32_t ranks_per_node, const char *spec)
{
    return (struct tier_case){.set = "raw",
                              .store = "throttle(bandwidth=20MB):posix",
                              .policy = "millrace",
                              .spec = spec,
                              .batch = 4,
                              .epochs = 4,
                              .samples = SAMPLES,
                              .threads = 2,
                              .sum = sum,
                              .peers = true,
                              .ranks_per_node = ranks_per_node};
}

/* Reads of the source, by all nodes together. */
static uint64_t reads_of(const struct shared_figures *f, uint32_t world, uint32_t each)
{
    uint64_t reads = 0;
    for (uint32_t r = 0; r < world; r += each)
        reads += f[r].stats.source_reads;
    return reads;
}

static void a_byte_leaves_the_source_once_per_job(void **state)
{
    (void)state;
    if (no_wire)
        skip();
    static const struct {
        uint32_t world, each;
    } jobs[] = {{2, 1}, {4, 1}, {4, 2}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(jobs); i++) {
        struct tier_case c = nodes_of(jobs[i].each, "ram=64MiB,staging=512KiB");
        uint64_t per_rank = SAMPLES / jobs[i].world * c.epochs;
        struct shared_figures *f = run_ranks(&c, jobs[i].world, 0, 0, per_rank);
        uint64_t reads = reads_of(f, jobs[i].world, jobs[i].each);
        for (uint32_t r = 0; r < jobs[i].world; r++)
            assert_int_equal(f[r].delivered, per_rank);
        if (reads < SAMPLES || reads > SAMPLES * 105 / 100)
            fail_msg("%llu reads for %u samples", (unsigned long long)reads, SAMPLES);
        assert_true(f[0].stats.from[MR_TIER_PEER].samples > 0);
        assert_true(f[0].stats.served > 0);
        assert_int_equal(f[0].stats.nodes, jobs[i].world / jobs[i].each);
        done_figures(f, jobs[i].world);
    }
}

/* By plans alone two nodes ask each other for the same sample: who needs it first reads it. Waiting for each other they
 * would lose a quarter of a second for each, and read it both. */
static void nodes_that_plan_apart_do_not_wait_for_each_other(void **state)
{
    (void)state;
    if (no_wire)
        skip();
    struct tier_case c = nodes_of(1, "ram=64MiB,staging=512KiB");
    c.policy = "nopfs";
    uint64_t per_rank = SAMPLES / 4 * c.epochs;
    uint64_t before = mr_now_ns();
    struct shared_figures *f = run_ranks(&c, 4, 0, 0, per_rank);
    uint64_t took = mr_now_ns() - before, staged = 0;
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(f[r].delivered, per_rank);
        staged += f[r].stats.from[MR_TIER_SOURCE].samples;
    }
    if (staged > SAMPLES * 125 / 100)
        fail_msg("%llu samples staged from the source in %.1f s", (unsigned long long)staged, (double)took / 1e9);
    done_figures(f, 4);
}

static void a_third_of_the_set_on_each_of_four_nodes(void **state)
{
    (void)state;
    if (no_wire)
        skip();
    struct tier_case c = nodes_of(1, "ram=700000,staging=256KiB");
    uint64_t per_rank = SAMPLES / 4 * c.epochs;
    struct shared_figures *f = run_ranks(&c, 4, 0, 0, per_rank);
    uint64_t reads = reads_of(f, 4, 1);
    if (reads > SAMPLES * 110 / 100)
        fail_msg("%llu reads for %u samples", (unsigned long long)reads, SAMPLES);
    done_figures(f, 4);
}

static void without_peers_every_node_reads_for_itself(void **state)
{
    (void)state;
    struct tier_case c = nodes_of(1, "ram=64MiB,staging=512KiB");
    c.peers = false;
    c.epochs = 6;
    struct shared_figures *f = run_ranks(&c, 2, 0, 0, SAMPLES / 2 * c.epochs);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(f[r].stats.from[MR_TIER_PEER].samples, 0);
        assert_true(f[r].stats.source_reads <= SAMPLES);
    }
    done_figures(f, 2);
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-peers");
    make_set("raw", "raw", SAMPLES, 1, BYTES, 0);
    sum = sums_of("raw", 0, &samples, &set_bytes);
    no_wire = access(MR_BINARY_DIR "/lib/millrace_wire_ucx.so", R_OK) != 0; /* built without UCX */
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
        cmocka_unit_test(a_byte_leaves_the_source_once_per_job),
        cmocka_unit_test(nodes_that_plan_apart_do_not_wait_for_each_other),
        cmocka_unit_test(a_third_of_the_set_on_each_of_four_nodes),
        cmocka_unit_test(without_peers_every_node_reads_for_itself),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
