/* Loops of JAX, on traces with exactly known answers: which compiled function is the step's, evaluation, waits, and
 * "incomplete" where the device may have computed while the loop loaded. Times are virtual. */
#include "advise/advise.h"
#include "base/common.h"
#include "event/mrt_sink.h"
#include "explain/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000ull
#define STEPS 40u

struct world {
    struct mr_mrt_sink *sink;
    struct mr_event_sink *events;
    char path[32];
    uint64_t now, since, slept; /* as handover.py tells: since the last call of a compiled function */
};

static void open_world(struct world *w)
{
    struct mr_error err;
    *w = (struct world){.now = 10 * MS, .since = 10 * MS};
    snprintf(w->path, sizeof w->path, "/tmp/mr-jit-XXXXXX");
    close(mkstemp(w->path));
    assert_int_equal(mr_mrt_sink_open_sim(w->path, &(struct mr_mrt_sim){.world = 1, .program = "test"}, &w->sink, &err),
                     0);
    w->events = mr_mrt_sink_get(w->sink);
}

static void put_span(struct world *w, const char *name, uint64_t ns, const struct mr_mrt_arg *arg, unsigned n)
{
    const struct mr_event e = {
        .kind = MR_EV_REGION, .start_ns = w->now, .dur_ns = ns, .path_id = mr_mrt_sink_site(w->sink, "train", name)};
    mr_mrt_sink_emit_args(w->sink, &e, arg, n);
    w->now += ns;
}

/* evaluates: -1 where the name says nothing. */
static void jit(struct world *w, const char *name, int64_t number, int evaluates, uint64_t ns)
{
    struct mr_mrt_arg arg[3] = {
        {mr_mrt_sink_key(w->sink, "optimizer"), number, false},
        {mr_mrt_sink_key(w->sink, "awake_ns"), (int64_t)(w->now - w->since - w->slept), false},
        {mr_mrt_sink_key(w->sink, "evaluates"), evaluates, false},
    };
    put_span(w, name, ns, arg, evaluates < 0 ? 2 : 3);
    w->since = w->now;
    w->slept = 0;
}

static void device(struct world *w, uint64_t ns)
{
    put_span(w, "wait for device", ns, NULL, 0);
    w->slept += ns;
}

static void read_file(struct world *w, uint64_t ns)
{
    w->events->emit(w->events, &(struct mr_event){.kind = MR_EV_READ,
                                                  .start_ns = w->now,
                                                  .dur_ns = ns,
                                                  .path_id = w->events->intern(w->events, "/data/train.bin"),
                                                  .result = 1 << 20});
    w->now += ns;
    w->slept += ns;
}

static struct mr_explanation *explain(struct world *w)
{
    struct mr_error err;
    struct mr_trace *t;
    struct mr_explanation *x = NULL;
    assert_int_equal(mr_mrt_sink_close(w->sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, w->path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    const struct mr_explain_options opt = {.threads = 1, .rank = -1, .step_from = -1, .source = "test"};
    assert_int_equal(mr_explain(t, &opt, &x, &err), 0);
    assert_int_equal(mr_advise(x, &err), 0);
    mr_trace_free(t);
    unlink(w->path);
    return x;
}

static size_t evaluations(const struct mr_explanation *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->steps; i++)
        n += x->step[i].phase == MR_EXPLAIN_EVAL;
    return n;
}

static void functions_that_train_by_name_are_steps(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        read_file(&w, 20 * MS);
        jit(&w, "jit augment", 0, -1, 2 * MS); /* of the batch: a part of the wait */
        jit(&w, "jit train_step", 1, 0, 10 * MS);
        device(&w, 5 * MS);
        for (unsigned k = 0; i % 10 == 9 && k < 3; k++) {
            read_file(&w, 4 * MS);
            jit(&w, "jit eval_step", 2, 1, 3 * MS);
            device(&w, MS);
        }
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
    assert_int_equal(x->steps, STEPS + 3 * (STEPS / 10 - 1)); /* behind the last step nothing is known */
    assert_int_equal(evaluations(x), 3 * (STEPS / 10 - 1));
    assert_in_range(x->ns[MR_TIME_STALL], STEPS * 20 * MS, STEPS * 22 * MS + 12 * 4 * MS);
    assert_string_equal(x->facts.framework, "jax");
    mr_explanation_free(x);
}

static void without_names_the_one_called_most_is_the_step(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        read_file(&w, 10 * MS);
        jit(&w, "jit f", 4, -1, 10 * MS);
        if (i % 2)
            jit(&w, "jit g", 3, -1, 30 * MS);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_in_range(x->ns[MR_TIME_STALL], STEPS * 10 * MS, STEPS * 10 * MS + MS);
    mr_explanation_free(x);
}

static void a_device_that_is_waited_for_now_and_then_is_incomplete(void **state)
{
    struct world w;
    (void)state;
    for (unsigned ms = 1; ms < 100; ms += 98) {
        open_world(&w);
        for (unsigned i = 0; i < STEPS; i++) {
            read_file(&w, 10 * MS);
            jit(&w, "jit update", 0, 0, MS);
            if (i % 10 == 9)
                device(&w, ms * MS);
        }
        struct mr_explanation *x = explain(&w);
        assert_int_equal(x->verdict.verdict, ms > 1 ? MR_VERDICT_INCOMPLETE : MR_VERDICT_INPUT);
        assert_true(ms == 1 || strstr(x->verdict.missing, "beside the loop"));
        mr_explanation_free(x);
    }
}

static void of_a_process_with_optimisers_they_say_nothing(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    for (unsigned i = 0; i < STEPS; i++) {
        const struct mr_mrt_arg number = {mr_mrt_sink_key(w.sink, "optimizer"), 7, false};
        read_file(&w, 10 * MS);
        put_span(&w, "optimizer.step", 5 * MS, &number, 1);
        jit(&w, "jit update_average", 0, 0, MS);
        jit(&w, "jit update_average", 0, 0, MS);
    }
    struct mr_explanation *x = explain(&w);
    assert_int_equal(x->steps, STEPS);
    assert_string_equal(x->facts.framework, "pytorch");
    mr_explanation_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_that_train_by_name_are_steps),
        cmocka_unit_test(without_names_the_one_called_most_is_the_step),
        cmocka_unit_test(a_device_that_is_waited_for_now_and_then_is_incomplete),
        cmocka_unit_test(of_a_process_with_optimisers_they_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
