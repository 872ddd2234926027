/* The formulas on series small enough to compute by hand. */
#include "metrics/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define MS 1000000ull

/* load, compute, barrier in ms; one after the other without gaps, plus 1 ms of other. */
static struct mr_step make(uint64_t start_ms, unsigned load, unsigned compute, unsigned barrier)
{
    return (struct mr_step){.start_ns = start_ms * MS,
                            .end_ns = (start_ms + load + compute + barrier + 1) * MS,
                            .load_ns = load * MS,
                            .compute_ns = compute * MS,
                            .compute_wall_ns = compute * MS,
                            .barrier_ns = barrier * MS,
                            .samples = 2,
                            .sample_bytes = 200,
                            .read_bytes = 300,
                            .block = 1};
}

static const struct mr_metrics_params usual = {.seed = 1, .exclude_start = 1};
static struct mr_metrics metrics;
static struct mr_dlio_metrics dlio;

static void utilisation_leaves_the_first_step_out(void **state)
{
    (void)state;
    struct mr_step s[3] = {make(0, 50, 10, 0), make(61, 9, 10, 0), make(81, 4, 10, 0)};
    for (uint32_t i = 0; i < 3; i++)
        s[i].step = i;
    struct mr_rank_series r = {.steps = s, .n = 3};
    mr_metrics_compute(&r, 1, &usual, &metrics);
    assert_float_equal(metrics.au, 20.0 / (20 + 15), 1e-12);
    assert_int_equal(metrics.au_steps, 2);
    assert_true(isnan(metrics.au_warm));
    assert_true(metrics.au_low >= 10.0 / 20 - 1e-12 && metrics.au_high <= 10.0 / 15 + 1e-12);
    assert_float_equal(metrics.duration_s, 0.096, 1e-12);
    assert_float_equal(metrics.samples_per_s, 6 / 0.096, 1e-9);
    assert_float_equal(metrics.read_bytes_per_s, 900 / 0.096, 1e-6);
    assert_float_equal(metrics.stalled_steps, 1, 1e-12);
    assert_float_equal(metrics.stall_s.p50, 0.009, 1e-12);
    assert_float_equal(metrics.stall_s.max, 0.050, 1e-12);
    assert_float_equal(metrics.first_step_load_s, 0.050, 1e-12);
    assert_float_equal(metrics.demand_bytes_per_s, 300 / 0.010, 1e-6);
    assert_true(isnan(metrics.supply_bytes_per_s)); /* of three steps the first fills the pipeline */
}

/* Steps that wait while the pipeline fills do not make a storage slow that keeps up from then on. */
static void supply_and_headroom_leave_out_the_filling_of_the_pipeline(void **state)
{
    (void)state;
    struct mr_step s[8];
    for (uint32_t i = 0; i < 8; i++) {
        s[i] = make(i * 100, i % 2 ? 0 : 50, 10, 0);
        s[i].epoch = i / 2;
        s[i].step = i % 2;
    }
    struct mr_rank_series r = {.steps = s, .n = 8};
    mr_metrics_compute(&r, 1, &usual, &metrics);
    assert_float_equal(metrics.stalled_steps, 0.5, 1e-12);
    assert_true(isnan(metrics.supply_bytes_per_s) && isnan(metrics.headroom));
    for (uint32_t i = 1; i < 8; i += 2)
        s[i] = make(i * 100, 9, 10, 0), s[i].step = 1;
    mr_metrics_compute(&r, 1, &usual, &metrics);
    assert_float_equal(metrics.supply_bytes_per_s, 300 / 0.020, 1e-6);
}

/* One rank of two stalls, in turn: each loses all of it, half at the barrier. */
static void the_ceiling_counts_what_others_wait_for_a_stall(void **state)
{
    (void)state;
    struct mr_step a[2] = {make(0, 6, 20, 0), make(27, 0, 20, 6)}, b[2] = {make(0, 0, 20, 6), make(27, 6, 20, 0)};
    struct mr_rank_series r[2] = {{.rank = 0, .steps = a, .n = 2}, {.rank = 1, .steps = b, .n = 2}};
    mr_metrics_compute(r, 2, &usual, &metrics);
    assert_float_equal(metrics.ceiling, 54 / 42.0, 1e-12);
    for (unsigned i = 0; i < 2; i++)
        a[i].barrier_ns = b[i].barrier_ns = 0; /* nobody meets: each has its own stall alone */
    mr_metrics_compute(r, 2, &usual, &metrics);
    assert_float_equal(metrics.ceiling, 54 / 48.0, 1e-12);
}

static void utilisation_leaves_out_as_many_steps_as_asked(void **state)
{
    (void)state;
    struct mr_step s[4] = {make(0, 50, 10, 0), make(61, 9, 10, 0), make(81, 4, 10, 0), make(96, 19, 10, 0)};
    const struct {
        uint64_t start, end, steps;
        double au;
    } cases[] = {{0, 0, 4, 40.0 / (61 + 20 + 15 + 30)},
                 {2, 0, 2, 20.0 / 45},
                 {1, 1, 2, 20.0 / 35},
                 {3, 3, 0, NAN},
                 {9, 9, 0, NAN}};
    struct mr_rank_series r = {.steps = s, .n = 4};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mr_metrics_params p = {.seed = 1, .exclude_start = cases[i].start, .exclude_end = cases[i].end};
        mr_metrics_compute(&r, 1, &p, &metrics);
        assert_int_equal(metrics.au_steps, cases[i].steps);
        assert_true(isnan(cases[i].au) ? isnan(metrics.au) : fabs(metrics.au - cases[i].au) < 1e-12);
        assert_true(isnan(cases[i].au) || (metrics.au_low <= metrics.au && metrics.au <= metrics.au_high));
    }
}

/* compute[start : end + 1], proc[: start] and proc[end + 1 :] as Python cuts lists. */
static void dlio_cuts_lists_as_python_does_when_more_is_left_out_than_there_is(void **state)
{
    (void)state;
    struct mr_step s[3] = {make(0, 50, 10, 0), make(61, 9, 10, 0), make(81, 4, 10, 0)};
    struct mr_rank_series r = {.steps = s, .n = 3};
    struct mr_dlio_params p = {.batch_size = 2, .steps_per_epoch = 3, .exclude_start = 0, .exclude_end = 4};
    mr_dlio_compute(&r, 1, &p, &dlio); /* end + 1 = -1: the last step is left out, no more */
    assert_float_equal(dlio.train_au_mean, 100 * 0.020 / (0.096 - 0.014), 1e-9);
    p.exclude_start = 2;
    mr_dlio_compute(&r, 1, &p, &dlio);
    assert_float_equal(dlio.train_au_mean, 0, 1e-12);
    assert_float_equal(dlio.train_throughput_mean, 1 / (0.096 - 0.060 - 0.019 - 0.014) * 2, 1e-9);
}

static void time_split_adds_up_and_takes_the_mean_over_ranks(void **state)
{
    (void)state;
    struct mr_step a[2] = {make(0, 4, 10, 5), make(20, 4, 10, 5)}, b[2] = {make(0, 9, 10, 0), make(20, 9, 10, 0)};
    a[1].checkpoint_ns = b[1].checkpoint_ns = 10 * MS;
    struct mr_rank_series r[2] = {{.rank = 0, .steps = a, .n = 2}, {.rank = 1, .steps = b, .n = 2}};
    mr_metrics_compute(r, 2, &usual, &metrics);
    const struct mr_split *s = &metrics.split;
    assert_float_equal(s->compute + s->data + s->checkpoint + s->barrier + s->copy + s->other, 1, 1e-12);
    assert_float_equal(s->compute, 0.4, 1e-12);
    assert_float_equal(s->data, (8 / 50.0 + 18 / 50.0) / 2, 1e-12);
    assert_float_equal(s->checkpoint, 0.2, 1e-12);
    assert_float_equal(s->barrier, 0.1, 1e-12);
    assert_int_equal(metrics.worst_rank, 1);
    assert_float_equal(metrics.worst_split.data, 18 / 50.0, 1e-12);
    /* Without its batches rank 1 comes 9 ms earlier, and rank 0 waits no longer for it. */
    assert_float_equal(metrics.ceiling, 1 / (1 - (18 + 10) / 50.0), 1e-12);
    assert_float_equal(metrics.imbalance, (19 - 16.5) / 16.5, 1e-12);
    assert_float_equal(metrics.imbalance_cost_s, 2 * 0.0025, 1e-12);
}

static void checkpoints_take_the_slowest_rank(void **state)
{
    (void)state;
    struct mr_checkpoint_event a[2] = {{.duration_ns = 100 * MS, .bytes = 1000},
                                       {.duration_ns = 300 * MS, .bytes = 1000, .is_load = true}};
    struct mr_checkpoint_event b[2] = {{.duration_ns = 200 * MS, .bytes = 500},
                                       {.duration_ns = 100 * MS, .bytes = 500, .is_load = true}};
    struct mr_rank_series r[2] = {{.checkpoints = a, .n_checkpoints = 2},
                                  {.rank = 1, .checkpoints = b, .n_checkpoints = 2}};
    mr_metrics_compute(r, 2, &usual, &metrics);
    assert_int_equal(metrics.saves, 1);
    assert_int_equal(metrics.loads, 1);
    assert_float_equal(metrics.save_s.max, 0.2, 1e-12);
    assert_float_equal(metrics.save_bytes_per_s, 7500, 1e-6);
    assert_float_equal(metrics.load_bytes_per_s, 5000, 1e-6);
    struct mr_dlio_params p = {.batch_size = 1, .batch_size_eval = 1};
    mr_dlio_compute(r, 2, &p, &dlio); /* DLIO looks at rank 0 alone */
    assert_float_equal(dlio.save_duration_mean, 0.1, 1e-12);
    assert_float_equal(dlio.save_io_mean, 1500 / 1073741824.0 / 0.1, 1e-15);
}

static void dlio_counts_two_steps_less_and_trims_the_first(void **state)
{
    (void)state;
    struct mr_step s[4] = {make(0, 50, 10, 0), make(61, 9, 10, 0), make(81, 4, 10, 0), make(96, 4, 10, 0)};
    struct mr_rank_series r = {.steps = s, .n = 4};
    struct mr_dlio_params p = {
        .batch_size = 2, .exclude_start = 1, .steps_per_epoch = 4, .record_bytes = 1048576, .au_target = 0.5};
    mr_dlio_compute(&r, 1, &p, &dlio);
    double trimmed = 0.111 - 0.060;
    assert_int_equal(dlio.epochs, 1);
    assert_float_equal(dlio.train_au_mean, 100 * 0.030 / trimmed, 1e-9);
    assert_float_equal(dlio.train_throughput_mean, 2 * 2 / trimmed, 1e-9);
    assert_float_equal(dlio.train_io_mean, 2 * 2 / trimmed, 1e-9);
    assert_true(dlio.train_meets);
    /* Two blocks: each loses its first step. */
    s[2].block = s[3].block = 2;
    mr_dlio_compute(&r, 1, &p, &dlio);
    double one = 100 * 0.010 / (0.081 - 0.060), two = 100 * 0.010 / (0.030 - 0.014);
    assert_float_equal(dlio.train_au_mean, (one + two) / 2, 1e-9);
    assert_float_equal(dlio.train_throughput_mean, 0, 1e-12);
}

static void quantiles_interpolate(void **state)
{
    (void)state;
    double v[] = {4, 1, 3, 2};
    assert_float_equal(mr_quantile(v, 4, 0.5), 2.5, 1e-12);
    assert_float_equal(mr_quantile(v, 4, 1), 4, 1e-12);
    assert_float_equal(mr_quantile(v, 0, 0.5), 0, 1e-12);
}

static void an_empty_series_has_no_figures_and_does_not_crash(void **state)
{
    (void)state;
    struct mr_rank_series r[2] = {{.rank = 0}, {.rank = 1}};
    struct mr_dlio_params p = {.batch_size = 1, .batch_size_eval = 1};
    mr_metrics_compute(r, 2, &usual, &metrics);
    mr_dlio_compute(r, 2, &p, &dlio);
    assert_int_equal(metrics.steps, 0);
    assert_true(isnan(metrics.au) && isnan(metrics.headroom));
    assert_int_equal(dlio.epochs, 0);
}

/* Two steps of 100 ms, each followed by a checkpoint of 50 ms; the second waits 20 ms of them for the first's drain.
 * Training ends at 300 ms, the second drain after it. */
static void drains_overlap_with_training_unless_a_save_waits_for_them(void **state)
{
    (void)state;
    struct mr_step s[2] = {make(0, 9, 90, 0), make(150, 9, 90, 0)};
    s[0].checkpoint_ns = s[1].checkpoint_ns = 50 * MS;
    const struct mr_checkpoint_event c[] = {
        {.start_ns = 100 * MS, .duration_ns = 50 * MS, .bytes = 1000, .buffered = true},
        {.start_ns = 250 * MS, .duration_ns = 50 * MS, .bytes = 1000, .wait_ns = 20 * MS, .buffered = true},
        {.start_ns = 400 * MS, .duration_ns = 50 * MS, .bytes = 1000, .is_load = true}};
    const struct mr_drain_event d[] = {{.start_ns = 150 * MS, .duration_ns = 120 * MS, .bytes = 1000},
                                       {.start_ns = 280 * MS, .duration_ns = 40 * MS, .bytes = 1000},
                                       {.start_ns = 320 * MS, .duration_ns = 10 * MS, .bytes = 1000, .failed = true}};
    struct mr_rank_series r = {
        .steps = s, .n = 2, .checkpoints = c, .n_checkpoints = 3, .drains = d, .n_drains = 3, .drain_wait_ns = 30 * MS};
    mr_metrics_compute(&r, 1, &usual, &metrics);
    assert_int_equal(metrics.drain.buffered, 2);
    assert_int_equal(metrics.drain.drains, 2);
    assert_int_equal(metrics.drain.failed, 1);
    assert_int_equal(metrics.drain.bytes, 2000);
    assert_float_equal(metrics.drain.total_s, 0.160, 1e-12);
    assert_float_equal(metrics.drain.overlap_s, 0.100 + 0.020, 1e-12);
    assert_float_equal(metrics.drain.overlap_share, 0.120 / 0.160, 1e-12);
    assert_float_equal(metrics.drain.drain_s.max, 0.120, 1e-12);
    assert_float_equal(metrics.drain.bytes_per_s, 2000 / 0.160, 1e-6);
    assert_float_equal(metrics.drain.room_wait_s, 0.020, 1e-12);
    assert_float_equal(metrics.drain.end_wait_s, 0.030, 1e-12);
    r.n_drains = 0;
    mr_metrics_compute(&r, 1, &usual, &metrics);
    assert_true(isnan(metrics.drain.overlap_share));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utilisation_leaves_the_first_step_out),
        cmocka_unit_test(utilisation_leaves_out_as_many_steps_as_asked),
        cmocka_unit_test(supply_and_headroom_leave_out_the_filling_of_the_pipeline),
        cmocka_unit_test(the_ceiling_counts_what_others_wait_for_a_stall),
        cmocka_unit_test(dlio_cuts_lists_as_python_does_when_more_is_left_out_than_there_is),
        cmocka_unit_test(time_split_adds_up_and_takes_the_mean_over_ranks),
        cmocka_unit_test(checkpoints_take_the_slowest_rank),
        cmocka_unit_test(dlio_counts_two_steps_less_and_trims_the_first),
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(an_empty_series_has_no_figures_and_does_not_crash),
        cmocka_unit_test(drains_overlap_with_training_unless_a_save_waits_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
