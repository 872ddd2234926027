/* The verdict of an explanation: which class of trouble a run is in, and the largest cause of its stall. */
#include "explain/explain.h"

#include <errno.h>

/* Shares of the training window from which a class is named: the limits that TensorFlow's profiler uses for "moderately
 * input-bound", so that users know them; 10 % for start-up, which short runs always have some of. */
#define STALL_SHARE 0.05
#define CHECKPOINT_SHARE 0.03
#define BARRIER_SHARE 0.05

static uint8_t largest_cause(const struct mr_explanation *x)
{
    unsigned best = MR_STALL_UNKNOWN;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++)
        if (x->stall[c] > x->stall[best])
            best = c;
    return (uint8_t)best;
}

static uint8_t class_of(const struct mr_explanation *x, double window_ns)
{
    if (!x->facts.has_steps || !(window_ns > 0))
        return MR_VERDICT_INCOMPLETE;
    double stall = (double)x->ns[MR_TIME_STALL] / window_ns;
    double checkpoint = (double)x->ns[MR_TIME_CHECKPOINT] / window_ns;
    double barrier = (double)x->ns[MR_TIME_BARRIER] / window_ns;
    if (stall >= STALL_SHARE && stall >= checkpoint)
        return MR_VERDICT_INPUT;
    if (checkpoint >= CHECKPOINT_SHARE)
        return MR_VERDICT_CHECKPOINT;
    return barrier >= BARRIER_SHARE ? MR_VERDICT_IMBALANCE : MR_VERDICT_HEALTHY;
}

int mr_advise(struct mr_explanation *x, struct mr_error *err)
{
    double window_ns = (double)x->train_ns;
    struct mr_verdict *v = &x->verdict;
    v->verdict = class_of(x, window_ns);
    v->cause = largest_cause(x);
    v->stall_s = (double)x->ns[MR_TIME_STALL] / 1e9;
    v->stall_share = window_ns > 0 ? (double)x->ns[MR_TIME_STALL] / window_ns : 0;
    v->line[0] = v->verdict == MR_VERDICT_INCOMPLETE
                     ? "Incomplete: no training steps were found, so no stall can be computed."
                     : mr_arena_printf(&x->arena, "%s: the ranks waited for data %.1f %% of the training time.",
                                       v->verdict == MR_VERDICT_HEALTHY ? "Healthy" : "Bound", 100 * v->stall_share);
    v->missing = v->verdict == MR_VERDICT_INCOMPLETE ? "training steps" : NULL;
    return v->line[0] ? 0 : mr_error_set(err, -ENOMEM, "cannot judge the run");
}
