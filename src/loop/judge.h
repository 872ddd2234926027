/* Whether a change helped: arithmetic over the windows of the runs, no I/O. doc/internals/loop.md says how.
 *
 *   J1 an interval is never narrower than what whole runs of one side say, unless chance explains their difference by
 *      that of their blocks;
 *   J2 a verdict other than "not decided" needs two runs or more on both sides;
 *   J3 the sign of a verdict is that of the whole step: waits that turn into slower compute are no gain. */
#ifndef MR_LOOP_JUDGE_H
#define MR_LOOP_JUDGE_H

#include "loop/window.h"

#include <stddef.h>

#define MR_TRIAL_VERDICTS(X)                                                                                           \
    X(CONFIRMED, "confirmed")                                                                                          \
    X(SMALLER, "smaller than predicted")                                                                               \
    X(NO_GAIN, "no gain")                                                                                              \
    X(HARMFUL, "harmful")                                                                                              \
    X(UNDECIDED, "not decided")
enum mr_trial_verdict {
#define MR_TRIAL_ENUM(name, text) MR_TRIAL_##name,
    MR_TRIAL_VERDICTS(MR_TRIAL_ENUM)
#undef MR_TRIAL_ENUM
};
const char *mr_trial_verdict_name(enum mr_trial_verdict v);

/* A figure of both sides, and how much less it is in B: [low, high] covers it with 95 %. NAN: one run on a side. */
struct mr_saving {
    double a, b, saved, low, high;
};

struct mr_prediction_share {
    double share, low, high; /* of the waits; NAN: nothing was predicted */
};

struct mr_judgement {
    enum mr_trial_verdict verdict;
    struct mr_saving wait, rest, gain; /* gain: of the wait, less what the rest takes longer for sure */
    double predicted_s, predicted_low_s, predicted_high_s; /* of the window, by A's waits */
    size_t more;      /* of UNDECIDED: runs of each side that it would take in all; 0: nobody can say */
    double between_a; /* seconds between the largest and the smallest wait of A's runs */
};

/* n windows of each side, of the same steps. */
int mr_judge(const struct mr_window *a, const struct mr_window *b, size_t n,
             const struct mr_prediction_share *predicted, struct mr_judgement *out, struct mr_error *err);

#endif
