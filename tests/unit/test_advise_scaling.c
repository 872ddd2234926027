/* Whether more workers get more, as far as a trace shows it, and what that makes of predictions: own shares give a
 * number, what is shared ends the claim, and what nobody can know is a trial. Loads made by hand. */
#include "explain_testlib.h"

#include "advise/advise_internal.h"
#include "explain/explain_flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { OWN_SHARES, ONE_FOR_ALL };

static void advise(struct mr_explanation *x)
{
    struct mr_error err = {0};
    assert_int_equal(mr_advise(x, &err), 0);
}

/* 100 steps of 0.02 s that wait 10 s in all; two workers make a batch in 0.2 s each. */
static struct mr_explanation *two_workers(enum mr_stall_cause cause, double read, double cpu)
{
    struct mr_explanation *x = xt_new(1, 100, 0.02);
    x->facts.framework = "pytorch";
    x->facts.program = "python train.py";
    x->facts.cpus_per_rank = 8;
    x->facts.worker_cpu = 0.02;
    xt_stall(x, cause, 8);
    xt_loading(x, 2, 4, read, cpu, 1);
    return x;
}

/* Its loads: in rounds, every third of one worker alone. A load waits 0.2 s, or, for what all share, 0.1 s for each
 * that runs beside it, itself counted in. `noise`: of every second load, this much more. */
static void give_loads(struct mr_explanation *x, int shares, bool reads, double noise)
{
    double at = 0;
    x->batch = xt_alloc(x, x->steps * sizeof(*x->batch));
    for (uint32_t i = 0, round = 0; i < x->steps; round++) {
        unsigned beside = round % 3 ? 2 : 1;
        double wait = shares == OWN_SHARES ? 0.2 : 0.1 * beside;
        for (unsigned k = 0; k < beside && i < x->steps; k++, i++) {
            double own = wait * (1 + (i % 2 ? noise : 0));
            x->step[i].worker = k;
            x->batch[x->batches++] = (struct mr_explain_batch){.step = i,
                                                               .known = true,
                                                               .from_ns = XT_NS(at),
                                                               .to_ns = XT_NS(at + own),
                                                               .read_s = reads ? (float)own : 0,
                                                               .other_s = reads ? 0 : (float)own,
                                                               .bytes = 1e6f};
        }
        at += wait * (1 + noise);
    }
}

static struct mr_scaling scaling_of(const struct mr_explanation *x)
{
    struct mr_scaling s;
    assert_true(mr_scaling_of(x, &s));
    return s;
}

static void loads_show_whether_they_share(void **state)
{
    (void)state;
    for (int shares = OWN_SHARES; shares <= ONE_FOR_ALL; shares++) {
        struct mr_explanation *x = two_workers(MR_STALL_WORKER, 0.001, 0.2);
        give_loads(x, shares, false, 0.02);
        struct mr_scaling s = scaling_of(x);
        assert_int_equal(s.scales, shares == OWN_SHARES ? MR_SCALES_GROWS : MR_SCALES_SHARED);
        assert_float_equal(s.slope, shares, 0.1);
        assert_int_equal(s.waits_for, MR_WAITS_OTHER);
        mr_explanation_free(x);
    }
}

/* The same waits: with shares of their own more workers are a number, with one for all they are no advice. */
static void what_all_share_ends_the_claim_of_more_workers(void **state)
{
    (void)state;
    struct mr_explanation *x = two_workers(MR_STALL_WORKER, 0.001, 0.2);
    give_loads(x, OWN_SHARES, false, 0.02);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "TH2");
    assert_non_null(f);
    assert_false(mr_finding_is_bound(f));
    assert_true(f->saves_s > 6);
    assert_non_null(strstr(x->verdict.line[2], "Best fix (TH2)"));
    mr_explanation_free(x);
    x = two_workers(MR_STALL_WORKER, 0.001, 0.2);
    give_loads(x, ONE_FOR_ALL, false, 0.02);
    advise(x);
    assert_null(xt_finding(x, "TH2"));
    assert_non_null(strstr(xt_silence(x, "TH2"), "more workers wait as long"));
    mr_explanation_free(x);
}

/* Always two at a time: loads tell nothing, locks do, and so do waits without any. */
static void locks_are_seen_by_those_that_wait_for_them(void **state)
{
    (void)state;
    static const struct {
        float lock;
        int scales;
    } of[] = {{0.1f, MR_SCALES_SHARED}, {0, MR_SCALES_GROWS}, {0.02f, MR_SCALES_UNKNOWN}};
    for (unsigned k = 0; k < sizeof(of) / sizeof(of[0]); k++) {
        struct mr_explanation *x = two_workers(MR_STALL_WORKER, 0.001, 0.2);
        give_loads(x, OWN_SHARES, false, 0);
        for (uint32_t i = 0; i < x->batches; i++) {
            x->batch[i].from_ns = XT_NS(0.2 * (i / 2));
            x->batch[i].to_ns = XT_NS(0.2 * (i / 2) + 0.2);
            x->batch[i].lock_s = of[k].lock;
        }
        assert_int_equal(scaling_of(x).scales, of[k].scales);
        mr_explanation_free(x);
    }
}

/* One worker: whether two would get more is not in the trace. */
static void a_single_worker_is_a_trial(void **state)
{
    (void)state;
    struct mr_explanation *x = two_workers(MR_STALL_STORAGE, 0.2, 0.001);
    x->facts.workers = 1;
    x->facts.prefetch = 2;
    give_loads(x, OWN_SHARES, true, 0.02);
    for (uint32_t i = 0; i < x->batches; i++) {
        x->step[i].worker = 0;
        x->batch[i].from_ns = XT_NS(0.2 * i);
        x->batch[i].to_ns = XT_NS(0.2 * i + 0.2);
    }
    assert_int_equal(scaling_of(x).scales, MR_SCALES_UNKNOWN);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "TH1");
    assert_non_null(f);
    assert_true(mr_finding_is_bound(f));
    assert_non_null(strstr(x->verdict.line[2], "Worth a trial"));
    mr_explanation_free(x);
}

/* Reads: by their own slope, whatever loads show. */
static void reads_have_a_slope_of_their_own(void **state)
{
    (void)state;
    static const struct {
        double slope, error;
        int scales;
    } of[] = {{0.05, 0.05, MR_SCALES_GROWS},  {0.8, 0.15, MR_SCALES_SHARED},  {0.4, 0.1, MR_SCALES_SHARED},
              {0.3, 0.26, MR_SCALES_UNKNOWN}, {0.1, 0.3, MR_SCALES_UNKNOWN},  {-0.2, 0.1, MR_SCALES_GROWS},
              {NAN, NAN, MR_SCALES_UNKNOWN},  {0.35, 0.30, MR_SCALES_UNKNOWN}};
    for (unsigned k = 0; k < sizeof(of) / sizeof(of[0]); k++) {
        struct mr_explanation *x = two_workers(MR_STALL_STORAGE, 0.2, 0.001);
        give_loads(x, OWN_SHARES, true, 0.02);
        x->facts.flight_slope = of[k].slope;
        x->facts.flight_error = of[k].error;
        x->facts.busy_bytes_per_s = 10e6;
        x->facts.demand_bytes_per_s = 50e6;
        assert_int_equal(scaling_of(x).scales, of[k].scales);
        advise(x);
        const struct mr_finding *more = xt_finding(x, "TH1");
        assert_int_equal(more != NULL, of[k].scales != MR_SCALES_SHARED);
        assert_int_equal(xt_finding(x, "TH4") != NULL, of[k].scales == MR_SCALES_SHARED);
        if (more)
            assert_int_equal(mr_finding_is_bound(more), of[k].scales == MR_SCALES_UNKNOWN);
        mr_explanation_free(x);
    }
}

/* A server that answers one after the other: waits for it are in turn, whatever their bytes. */
static void a_server_that_answers_in_turn_ends_the_claim(void **state)
{
    (void)state;
    struct mr_explanation *x = two_workers(MR_STALL_NETWORK, 0.2, 0.001);
    give_loads(x, OWN_SHARES, true, 0.02);
    x->facts.net_answer_s = 20;
    x->facts.net_transfer_s = 0.1;
    x->facts.answer_slope = 0.9;
    x->facts.answer_error = 0.05;
    advise(x);
    assert_int_equal(scaling_of(x).waits_for, MR_WAITS_NETWORK);
    assert_null(xt_finding(x, "TH1"));
    assert_non_null(strstr(xt_silence(x, "TH1"), "answers one after the other"));
    x->facts.answer_slope = 0;
    advise(x);
    assert_non_null(xt_finding(x, "TH1"));
    assert_false(mr_finding_is_bound(xt_finding(x, "TH1")));
    mr_explanation_free(x);
}

/* What a worker sets up when it starts is in its first batch, and goes away where it lives on. */
static void what_workers_set_up_is_paid_once_where_they_live_on(void **state)
{
    (void)state;
    struct mr_explanation *x = two_workers(MR_STALL_WORKER, 0.001, 0.03);
    give_loads(x, OWN_SHARES, false, 0);
    for (uint32_t i = 0; i < x->batches; i++) {
        bool first = i % 20 < 2;
        x->step[i].epoch = i / 20;
        x->batch[i].other_s = first ? 1.03f : 0.03f;
        x->step[i].ns[MR_TIME_STALL] = x->step[i].stall[MR_STALL_WORKER] = XT_NS(i % 20 ? 0 : 1.03);
    }
    x->ns[MR_TIME_STALL] = x->stall[MR_STALL_WORKER] = XT_NS(5.15);
    x->first_ns = XT_NS(1.03);
    x->facts.epochs = 5;
    x->facts.step_s = 0.02;
    x->facts.first_step_s = 1.05;
    advise(x);
    const struct mr_finding *f = xt_finding(x, "EP1");
    assert_non_null(f);
    assert_float_equal(f->saves_s, 4, 0.3); /* of four epochs behind the first */
    assert_false(mr_finding_is_bound(f));
    mr_explanation_free(x);
}

/* Workers are started one after the other: three times as many begin three times as late. */
static void more_workers_start_later(void **state)
{
    (void)state;
    double saves[2];
    int workers = 0;
    for (int k = 0; k < 2; k++) {
        struct mr_explanation *x = two_workers(MR_STALL_WORKER, 0.001, 0.2);
        give_loads(x, OWN_SHARES, false, 0.02);
        x->batch[0].start_s = k ? 0.1f : 0;
        advise(x);
        const struct mr_finding *f = xt_finding(x, "TH2");
        assert_int_equal(sscanf(f->fix, "workers 2 -> %d", &workers), 1);
        saves[k] = f->saves_s;
        mr_explanation_free(x);
    }
    assert_float_equal(saves[0] - saves[1], 0.1 * (workers / 2.0 - 1), 0.02);
}

/* ---- the slope of reads ---- */

/* Readers that pause between reads, which last 10 ms: beside each other, or one after the other. Each of them pauses for
 * up to `pause_ms`; every tenth for `away_ms`. */
static void slope_of_readers(unsigned readers, bool in_turn, unsigned pause_ms, unsigned away_ms, double *slope,
                             double *error)
{
    struct explain_flight flight = {0}, *all = &flight;
    uint64_t free_at[4] = {0, 3000000, 6000000, 9000000}, server = 0, ms = 1000000;
    *slope = *error = NAN;
    for (unsigned i = 0; i < 600; i++) {
        unsigned k = 0;
        for (unsigned other = 1; other < readers; other++)
            k = free_at[other] < free_at[k] ? other : k;
        uint64_t from = in_turn && server > free_at[k] ? server : free_at[k], end = from + 10 * ms;
        server = end;
        mr_explain_flight_add(&flight, free_at[k], end, 100000);
        free_at[k] = end + (i * 7919 % 13) * pause_ms * ms / 13 + (i % 10 ? 0 : away_ms * ms);
    }
    assert_int_equal(mr_explain_flight_slope(&all, 1, slope, error), 0);
    free(flight.read.item);
}

static void reads_in_turn_take_longer_the_more_there_are(void **state)
{
    (void)state;
    double slope, error;
    slope_of_readers(2, false, 2, 40, &slope, &error);
    assert_float_equal(slope, 0, 0.02);
    slope_of_readers(2, true, 2, 40, &slope, &error);
    assert_true(slope > 0.5 && slope > 3 * error);
    /* None is away for a turn: each is behind the same others all the time, which shows nothing. */
    slope_of_readers(3, true, 9, 0, &slope, &error);
    assert_true(isnan(slope));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_show_whether_they_share),
        cmocka_unit_test(what_all_share_ends_the_claim_of_more_workers),
        cmocka_unit_test(locks_are_seen_by_those_that_wait_for_them),
        cmocka_unit_test(a_single_worker_is_a_trial),
        cmocka_unit_test(reads_have_a_slope_of_their_own),
        cmocka_unit_test(a_server_that_answers_in_turn_ends_the_claim),
        cmocka_unit_test(what_workers_set_up_is_paid_once_where_they_live_on),
        cmocka_unit_test(more_workers_start_later),
        cmocka_unit_test(reads_in_turn_take_longer_the_more_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
