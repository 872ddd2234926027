/* The trace of a simulated run, read back by the code that reads the trace of `millrace run`: its figures are those of
 * the simulator's own result (rule 4 of doc/internals/events.md), for every policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "analyze/run_trace.h"
#include "base/common.h"
#include "sim/study.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES 4u
#define EPOCHS 3u
#define SAMPLES 1000u
#define BATCH 40u

static void add_class(struct mr_system *m, const char *name, double capacity, double mbps)
{
    struct mr_storage_class *k = &m->classes[m->n_classes++];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->capacity_mb = capacity;
    k->threads = 2;
    assert_int_equal(mr_curve_add(&k->read_mbps, 2, mbps, NULL), 0);
}

/* Classes for a part of the set, so that samples come from all sources. */
static struct mr_scenario make_scenario(double latency_s)
{
    struct mr_scenario s = {.nodes = NODES,
                            .batch = BATCH,
                            .epochs = EPOCHS,
                            .samples = SAMPLES,
                            .drop_last = true,
                            .seed = 7,
                            .size_mean_mb = .25,
                            .size_stdev_mb = .05};
    struct mr_system *m = &s.system;
    snprintf(m->name, sizeof m->name, "small");
    m->compute_mbps = 100;
    m->preprocess_mbps = 400;
    m->network_mbps = 1000;
    m->pfs_link_mbps = 2000;
    m->pfs_latency_s = latency_s;
    assert_int_equal(mr_curve_add(&m->pfs_mbps, 1, 66, NULL), 0);
    assert_int_equal(mr_curve_add(&m->pfs_mbps, 4, 146, NULL), 0);
    add_class(m, "staging", 20, 20000);
    add_class(m, "ram", 20, 20000);
    add_class(m, "ssd", 25, 300);
    return s;
}

static char folder[] = "/tmp/mr-sim-trace-XXXXXX";

static struct mr_run_trace *read_run(const char *path)
{
    struct mr_trace *t = NULL;
    struct mr_run_trace *run = NULL;
    struct mr_error err = {0};
    if (mr_trace_create(&t, &err) || mr_trace_add_all(t, &path, 1, 1, &err) || mr_trace_finish(t, &err) ||
        mr_run_trace_read(t, &run, &err))
        fail_msg("%s: %s", path, err.message);
    mr_trace_free(t);
    return run;
}

static uint64_t sum(const struct mr_run_trace *run, const char *name)
{
    uint64_t all = 0;
    for (uint32_t k = 0; k < run->world; k++) {
        const struct mr_run_figure *f = mr_run_rank_figure(&run->rank[k], name);
        all += f ? (uint64_t)f->value : 0;
    }
    return all;
}

static void near(const char *policy, const char *what, double have, double want, double unit)
{
    if (!(fabs(have - want) <= unit))
        fail_msg("%s, %s: %.9g in the trace, %.9g in the result", policy, what, have, want);
}

/* Every rank but the slowest one of a step waits for it. */
static void check_barriers(const struct mr_run_trace *run)
{
    for (size_t i = 0; i < run->rank[0].steps.n; i++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t k = 0; k < NODES; k++) {
            const struct mr_step *s = &run->rank[k].steps.item[i];
            assert_int_equal(s->load_ns + s->compute_ns + s->barrier_ns, s->end_ns - s->start_ns); /* V1 */
            least = MR_MIN(least, s->barrier_ns);
        }
        assert_true(least <= 2000); /* rounding of items' times (float) */
    }
}

/* Times to the nanosecond of every step; AU by the definition of metrics.h. */
static void check_times(const struct mr_run_trace *run, const struct mr_sim_result *r, const struct mr_scenario *s)
{
    const char *name = mr_policy_name(r->policy);
    struct mr_rank_series series[NODES];
    struct mr_metrics *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    assert_int_equal(run->world, NODES);
    mr_run_trace_series(run, series);
    mr_metrics_compute(series, NODES, &(struct mr_metrics_params){.seed = 1}, m);
    assert_int_equal(m->steps, NODES * EPOCHS * (SAMPLES / BATCH));
    assert_int_equal(m->samples, EPOCHS * SAMPLES);
    near(name, "time", m->duration_s + r->preload_s, r->time_s, 1e-6);
    near(name, "AU", m->au, r->consumed_mb / s->system.compute_mbps / NODES / (r->time_s - r->preload_s), 1e-6);
    check_barriers(run);
    assert_int_equal(m->n_epochs, EPOCHS);
    for (unsigned e = 0; e < EPOCHS && r->epochs[e].time_s > 0; e++)
        near(name, "epoch", m->epochs[e].duration_s, r->epochs[e].time_s, 1e-6);
    for (uint32_t k = 0; k < NODES; k++) {
        assert_true(run->rank[k].known && run->rank[k].ended);
        assert_int_equal(run->rank[k].steps.n, EPOCHS * (SAMPLES / BATCH));
        near(name, "preload", (double)run->rank[k].origin_ns / 1e9, r->preload_s, 1e-9);
        assert_true(mr_run_rank_setting(&run->rank[k], "simulated") == 1);
        assert_true(mr_run_rank_setting(&run->rank[k], "batch_size") == BATCH / NODES);
        assert_true(mr_run_rank_setting(&run->rank[k], "samples") == SAMPLES);
    }
    free(m);
}

/* V2: half a byte of rounding for each sample. */
static void check_bytes(const struct mr_run_trace *run, const struct mr_sim_result *r)
{
    const double unit = 0.5 * EPOCHS * SAMPLES * 2;
    const char *name = mr_policy_name(r->policy);
    uint64_t bytes = sum(run, "loader_sample_bytes"), from = 0;
    static const char *const sources[] = {"tier_ram_bytes", "tier_ssd_bytes", "tier_peer_bytes", "tier_source_bytes"};
    near(name, "bytes consumed", (double)bytes, r->consumed_mb * 1e6, unit);
    if (!sum(run, "tier_used")) {
        near(name, "bytes read", (double)sum(run, "loader_read_bytes"), r->pfs_mb * 1e6, unit);
        if (r->policy == MR_POLICY_NAIVE) /* the consumer reads itself: what reads and writes take, it waits */
            near(name, "waits", (double)sum(run, "loader_wait_ns"),
                 (double)(sum(run, "loader_read_ns") + sum(run, "loader_transform_ns")), EPOCHS * SAMPLES * 4);
        return;
    }
    assert_int_equal(sum(run, "tier_used"), NODES);
    for (unsigned i = 0; i < MR_ARRAY_LEN(sources); i++)
        from += sum(run, sources[i]);
    assert_int_equal(from, bytes);
    near(name, "from the PFS", (double)sum(run, "node_source_bytes"), r->pfs_mb * 1e6, unit);
    near(name, "from peers", (double)sum(run, "node_served_bytes"), r->peer_mb * 1e6, unit);
    near(name, "from RAM", (double)sum(run, "tier_ram_bytes"), r->class_mb[1] * 1e6, unit);
    near(name, "from SSD", (double)sum(run, "tier_ssd_bytes"), r->class_mb[2] * 1e6, unit);
    assert_true(sum(run, "node_distinct_bytes") <= sum(run, "node_source_bytes"));
}

/* Every sample of every batch once, in the epoch that the order has it in. */
static void check_rows(const struct mr_run_trace *run, bool reorders)
{
    uint8_t *seen = calloc(EPOCHS, SAMPLES);
    size_t rows = 0, distinct = 0;
    for (uint32_t k = 0; k < NODES; k++)
        for (size_t i = 0; i < run->rank[k].rows.n; i++, rows++) {
            const struct mr_run_row *x = &run->rank[k].rows.item[i];
            assert_true(x->epoch < EPOCHS && x->batch < SAMPLES / BATCH && x->sample < SAMPLES);
            distinct += !seen[x->epoch * SAMPLES + x->sample]++;
        }
    assert_int_equal(rows, EPOCHS * SAMPLES);
    assert_true(reorders || distinct == rows);
    free(seen);
}

static void check_policies(double latency_s, uint64_t grain)
{
    struct mr_scenario s = make_scenario(latency_s);
    struct mr_study *st = calloc(1, sizeof(*st));
    char base[64], path[4096];
    struct mr_error err = {0};
    snprintf(base, sizeof base, "%s/t.mrt", folder);
    struct mr_study_options o = {.seeds = 1, .grain = grain, .trace = base};
    unsigned traced = 0;
    for (int p = 0; p < MR_POLICY_COUNT; p++)
        o.policies[p] = true;
    if (mr_study_run(&s, &o, st, &err))
        fail_msg("%s", err.message);
    for (unsigned i = 0; i < st->n; i++) {
        const struct mr_sim_result *r = &st->rows[i].mean;
        assert_int_equal(mr_study_trace_path(&o, r->policy, path, &err), 0);
        if (!r->possible)
            continue;
        struct mr_run_trace *run = read_run(path);
        check_times(run, r, &s);
        if (r->policy != MR_POLICY_PERFECT) {
            check_bytes(run, r);
            check_rows(run, mr_policy_reorders(r->policy));
        }
        mr_run_trace_free(run);
        unlink(path);
        traced++;
    }
    assert_true(traced >= 9);
    free(st);
}

static void figures_of_the_trace_are_those_of_the_result(void **state)
{
    (void)state;
    check_policies(0, 1);
}

static void figures_of_coarse_items_are_those_of_the_result(void **state)
{
    (void)state;
    check_policies(0, 4);
}

static void latency_is_time_of_the_reads(void **state)
{
    (void)state;
    check_policies(0.001, 1);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_the_trace_are_those_of_the_result),
        cmocka_unit_test(figures_of_coarse_items_are_those_of_the_result),
        cmocka_unit_test(latency_is_time_of_the_reads),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
