/* The replay against closed forms and against a simulation in small steps of time that is written without its ideas:
 * everything moves on a little, at every step, for as long as anything does. */
#include "advise/replay.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST 60

static void fill(struct mr_replay_batch *b, size_t n, double read, double cpu, double compute)
{
    for (size_t i = 0; i < n; i++)
        b[i] = (struct mr_replay_batch){
            .read_s = (float)read, .cpu_s = (float)cpu, .compute_s = (float)compute, .bytes = 1e6f};
}

static double stall(const struct mr_replay_batch *b, size_t n, struct mr_replay_setup s)
{
    struct mr_replay_result out;
    assert_true(mr_replay_run(b, n, &s, &out));
    double compute = 0;
    for (size_t i = 0; i < n; i++)
        compute += (double)b[i].compute_s + (double)b[i].rest_s;
    if (!(s.compute_cpus > 0))
        assert_float_equal(out.wall_s, out.stall_s + compute, 1e-4);
    return out.stall_s;
}

static void closed_forms(void **state)
{
    (void)state;
    struct mr_replay_batch b[100];
    fill(b, 100, 0.3, 0.1, 0.1);
    /* Nothing ahead: every batch is waited for. */
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){0}), 40, 1e-3);
    /* One worker is the limit: the first load, then load - compute each. */
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 1, .ahead = 2}), 0.4 + 99 * 0.3, 1e-3);
    /* Four keep up. */
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 4, .ahead = 8}), 0.4, 1e-3);
    /* A team makes the first batch four times as fast, and each other one while the loop computes. */
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 4, .ahead = 2, .team = true}), 0.1, 1e-3);
    /* Nothing ahead, with a team: a quarter each. */
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 4, .team = true}), 10, 1e-3);
    /* The storage gives 5 MB/s to all: a batch of 1 MB each 0.2 s. */
    fill(b, 100, 0.3, 0, 0.1);
    double limited = stall(b, 100, (struct mr_replay_setup){.workers = 8, .ahead = 16, .storage = 5e6});
    assert_float_equal(limited, 100 * 0.2 - 96 * 0.1, 0.01); /* the last four come at once */
    /* Two CPUs: 0.1 s of them for each batch on 2 of 8 workers. */
    fill(b, 100, 0, 0.4, 0.1);
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 8, .ahead = 16, .cpus = 2}),
                       100 * 0.2 - 99 * 0.1, 1.7);
    /* A lock: one at a time, however many workers. */
    for (unsigned i = 0; i < 100; i++)
        b[i] = (struct mr_replay_batch){.other_s = 0.3f, .compute_s = 0.1f};
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 8, .ahead = 16, .serial = 1}),
                       100 * 0.3 - 99 * 0.1, 2.5);
}

/* Two at a time of eight, whatever their bytes; what workers set up is in their first batch after each start. */
/* A window is replayed behind what came before it: its workers have started, and their batches are ready. */
static void batches_that_do_not_count_fill_the_queue(void **state)
{
    (void)state;
    struct mr_replay_batch b[100];
    const struct mr_replay_setup four = {.workers = 4, .ahead = 8}, one = {.workers = 1, .ahead = 2};
    struct mr_replay_result out;
    fill(b, 100, 0.3, 0.1, 0.1);
    for (size_t i = 0; i < 20; i++)
        b[i].uncounted = true;
    assert_true(mr_replay_run(b, 100, &four, &out));
    assert_float_equal(out.stall_s, 0, 1e-3);
    assert_true(mr_replay_run(b, 100, &one, &out));
    assert_float_equal(out.stall_s, 80 * 0.3, 1e-3);
    assert_float_equal(out.wall_s, 0.4 + 99 * 0.3 + 100 * 0.1, 1e-3);
}

static void slots_and_what_workers_set_up(void **state)
{
    (void)state;
    struct mr_replay_batch b[100];
    fill(b, 100, 0.3, 0, 0.1);
    for (unsigned i = 0; i < 100; i++)
        b[i].bytes = (float)(1 + i % 7);
    assert_float_equal(stall(b, 100, (struct mr_replay_setup){.workers = 8, .ahead = 16, .slots = 2}),
                       100 * 0.15 - 99 * 0.1, 1.5);
    fill(b, 40, 0.1, 0, 0.2);
    for (unsigned i = 0; i < 40; i++)
        b[i].epoch = i / 10;
    struct mr_replay_setup s = {.workers = 2, .ahead = 4, .drains = true, .starts = true, .init_s = 0.5};
    assert_float_equal(stall(b, 40, s), 4 * 0.6, 1e-3);
    s.starts = false;
    assert_float_equal(stall(b, 40, s), 0.6 + 3 * 0.1, 1e-3);
    struct mr_replay_result out;
    for (unsigned i = 0; i < 40; i++)
        b[i] = (struct mr_replay_batch){.other_s = 0.3f, .compute_s = 0.1f};
    s = (struct mr_replay_setup){.workers = 4, .ahead = 8, .serial = 1};
    assert_true(mr_replay_run(b, 40, &s, &out));
    assert_true(out.other_slow > 3 && out.other_slow < 4.01); /* four in turn */
}

static void epochs_that_drain_begin_anew(void **state)
{
    (void)state;
    struct mr_replay_batch b[40];
    fill(b, 40, 0.1, 0, 0.2);
    for (unsigned i = 0; i < 40; i++) {
        b[i].epoch = i / 10;
        b[i].start_s = 0.5f;
    }
    struct mr_replay_setup s = {.workers = 2, .ahead = 4, .drains = true, .starts = true};
    assert_float_equal(stall(b, 40, s), 4 * 0.6, 1e-3);
    s.starts = false;
    assert_float_equal(stall(b, 40, s), 0.6 + 3 * 0.1, 1e-3);
    s.drains = false;
    assert_float_equal(stall(b, 40, s), 0.6, 1e-3);
}

/* ---- in small steps ---- */

#define STEP 0.0005
struct slow_actor {
    double left[4]; /* meta, read, other, cpu */
    size_t batch;
    bool busy;
    size_t next;
};

static bool moves(struct slow_actor *w, unsigned stage)
{
    for (unsigned k = 0; k < stage; k++)
        if (w->left[k] > 1e-12)
            return false;
    return w->left[stage] > 1e-12;
}

static double in_steps(const struct mr_replay_batch *b, size_t n, const struct mr_replay_setup *s)
{
    struct slow_actor w[8] = {0};
    bool ready[MOST] = {0};
    size_t consumed = 0;
    double busy_until = 0, computes = 0, rests = 0, waited = 0;
    for (unsigned i = 0; i < s->workers; i++)
        w[i].next = i;
    for (double t = 0; consumed < n || computes > 0 || rests > 0; t += STEP) {
        (void)busy_until;
        bool waits = computes <= 0 && rests <= 0;
        if (waits && consumed < n && ready[consumed]) {
            computes = (double)b[consumed].compute_s;
            rests = (double)b[consumed].rest_s;
            consumed++;
            waits = false;
        }
        size_t limit = MR_MIN(consumed + MR_MAX(s->ahead, waits ? 1u : 0u), n);
        double rate = 0, cpu = computes > 0 ? s->compute_cpus : 0, other = 0;
        for (unsigned i = 0; i < s->workers; i++) {
            if (!w[i].busy && w[i].next < limit) {
                const struct mr_replay_batch *x = &b[w[i].next];
                w[i] = (struct slow_actor){.batch = w[i].next, .busy = true, .next = w[i].next + s->workers};
                w[i].left[0] = (double)x->meta_s;
                w[i].left[1] = (double)x->read_s;
                w[i].left[2] = (double)x->other_s;
                w[i].left[3] = (double)x->cpu_s;
            }
            rate += w[i].busy && moves(&w[i], 1) ? (double)b[w[i].batch].bytes / (double)b[w[i].batch].read_s : 0;
            cpu += w[i].busy && moves(&w[i], 3);
            other += w[i].busy && moves(&w[i], 2);
        }
        double speed[4] = {1, s->storage > 0 && rate > s->storage ? s->storage / rate : 1,
                           s->serial > 0 && other > s->serial ? s->serial / other : 1,
                           s->cpus > 0 && cpu > s->cpus ? s->cpus / cpu : 1};
        for (unsigned i = 0; i < s->workers; i++) {
            if (!w[i].busy)
                continue;
            unsigned stage = 0;
            while (stage < 4 && !moves(&w[i], stage))
                stage++;
            if (stage < 4)
                w[i].left[stage] -= STEP * speed[stage];
            if (stage == 4 || (stage == 3 && w[i].left[3] <= 1e-12)) {
                ready[w[i].batch] = true;
                w[i].busy = false;
            }
        }
        waited += waits && consumed < n ? STEP : 0;
        if (computes > 0)
            computes -= STEP * (s->compute_cpus > 0 ? speed[3] : 1);
        else if (rests > 0)
            rests -= STEP;
    }
    return waited;
}

static double draw(uint64_t k, double from, double to)
{
    return from + (to - from) * mr_rng_unit(mr_rng_at(5, MR_RNG_TEST, k));
}

static void replay_agrees_with_small_steps(void **state)
{
    (void)state;
    for (uint64_t c = 0; c < 24; c++) {
        struct mr_replay_batch b[MOST];
        for (uint64_t i = 0; i < MOST; i++)
            b[i] = (struct mr_replay_batch){.meta_s = (float)draw(c << 32 | 9 * i, 0, 0.02),
                                            .read_s = (float)draw(c << 32 | (9 * i + 1), 0.02, 0.2),
                                            .other_s = (float)(c % 3 == 1 ? draw(c << 32 | (9 * i + 2), 0, 0.1) : 0),
                                            .cpu_s = (float)draw(c << 32 | (9 * i + 3), 0, 0.1),
                                            .compute_s = (float)draw(c << 32 | (9 * i + 4), 0.01, 0.1),
                                            .rest_s = (float)(i % 10 == 9 ? 0.05 : 0),
                                            .bytes = (float)draw(c << 32 | (9 * i + 5), 1e5, 1e6)};
        unsigned workers = 1 + (unsigned)(c % 6);
        struct mr_replay_setup s = {.workers = workers,
                                    .ahead = workers + (unsigned)(c % 4),
                                    .storage = c % 2 ? draw(c + 1000, 2e6, 2e7) : 0,
                                    .cpus = c % 4 == 2 ? 1.5 : 0,
                                    .serial = c % 3 == 1 ? 1 : 0,
                                    .compute_cpus = c % 4 == 2 ? 1 : 0};
        double got = stall(b, MOST, s), want = in_steps(b, MOST, &s);
        if (fabs(got - want) > 0.02 * want + 0.08)
            fail_msg("case %u: waits of %g s, %g in small steps", (unsigned)c, got, want);
    }
}

static void ten_thousand_batches_are_replayed_in_no_time(void **state)
{
    (void)state;
    size_t n = 10000;
    struct mr_replay_batch *b = calloc(n, sizeof(*b));
    struct mr_replay_setup s = {.workers = 8, .ahead = 16, .storage = 8e6, .cpus = 4};
    struct mr_replay_result out;
    double best = 1;
    assert_non_null(b);
    for (size_t i = 0; i < n; i++)
        b[i] = (struct mr_replay_batch){
            .read_s = (float)draw(i, 0.1, 1), .cpu_s = (float)draw(n + i, 0.05, 0.2), .compute_s = 0.1f, .bytes = 1e6f};
    for (int k = 0; k < 5; k++) {
        uint64_t from = mr_now_ns();
        assert_true(mr_replay_run(b, n, &s, &out));
        best = fmin(best, (double)(mr_now_ns() - from) / 1e9);
    }
    print_message("10,000 batches: %.2f ms\n", 1e3 * best);
    assert_true(best < 0.5); /* bench/ has the budget; here only a slip of an order of magnitude shows */
    free(b);
}

static void the_same_input_gives_the_same_result(void **state)
{
    (void)state;
    struct mr_replay_batch b[MOST];
    struct mr_replay_setup s = {.workers = 3, .ahead = 6, .storage = 5e6};
    fill(b, MOST, 0.2, 0.1, 0.05);
    double first = stall(b, MOST, s);
    for (int i = 0; i < 20; i++)
        assert_true(stall(b, MOST, s) == first);
    assert_float_equal(stall(b, 0, s), 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms),
        cmocka_unit_test(batches_that_do_not_count_fill_the_queue),
        cmocka_unit_test(slots_and_what_workers_set_up),
        cmocka_unit_test(epochs_that_drain_begin_anew),
        cmocka_unit_test(replay_agrees_with_small_steps),
        cmocka_unit_test(ten_thousand_batches_are_replayed_in_no_time),
        cmocka_unit_test(the_same_input_gives_the_same_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
