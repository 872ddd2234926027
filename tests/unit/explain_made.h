/* A trace that a test makes by hand, one simulated rank, and its explanation with advice. */
#ifndef MR_TESTS_EXPLAIN_MADE_H
#define MR_TESTS_EXPLAIN_MADE_H

#include "advise/advise.h"
#include "event/mrt_sink.h"
#include "explain/explain.h"

#include <stdlib.h>
#include <unistd.h>

/* `path` is a template of mkstemp. */
static void open_made(char *path, struct mr_mrt_sink **out)
{
    struct mr_error err;
    close(mkstemp(path));
    assert_int_equal(mr_mrt_sink_open_sim(path, &(struct mr_mrt_sim){.world = 1, .program = "test"}, out, &err), 0);
}

/* Closes and removes it. mr_explanation_free frees the result. */
static struct mr_explanation *explain_made(struct mr_mrt_sink *sink, const char *path)
{
    struct mr_error err;
    struct mr_trace *t;
    struct mr_explanation *x = NULL;
    assert_int_equal(mr_mrt_sink_close(sink, &err), 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    const struct mr_explain_options opt = {
        .threads = 2, .rank = -1, .step_from = -1, .source = "test", .pictures = true};
    assert_int_equal(mr_explain(t, &opt, &x, &err), 0);
    assert_int_equal(mr_advise(x, &err), 0);
    mr_trace_free(t);
    unlink(path);
    return x;
}

#endif
