/* The steps of a window: what a run did and waited for in them, mean over its ranks. */
#ifndef MR_LOOP_WINDOW_H
#define MR_LOOP_WINDOW_H

#include "explain/explain.h"

/* Parts of the window's time; they add up to it. */
#define MR_WINDOW_PARTS(X)                                                                                             \
    X(DATA, "data", "wait for data")                                                                                   \
    X(CHECKPOINT, "checkpoints", "checkpoints")                                                                        \
    X(RANKS, "ranks", "wait for other ranks")                                                                          \
    X(LOGGING, "logging", "logging")                                                                                   \
    X(OUTSIDE, "outside", "outside the steps") /* of whole runs */                                                     \
    X(REST, "rest", "everything else")
enum mr_window_part {
#define MR_WINDOW_ENUM(name, key, text) MR_WINDOW_##name,
    MR_WINDOW_PARTS(MR_WINDOW_ENUM)
#undef MR_WINDOW_ENUM
        MR_WINDOW_PART_COUNT
};

struct mr_window_step {
    double s[MR_WINDOW_PART_COUNT];
};

struct mr_window {
    uint64_t from, to; /* steps [from, to) of each rank */
    struct mr_window_step *step;
    size_t steps;
    double sum[MR_WINDOW_PART_COUNT], wait_s, wall_s; /* wait: all but the rest */
    double bytes;                                     /* read for them by all ranks; NAN unknown */
};

/* Takes the steps from an explanation; mr_window_done frees. MR_E_INCOMPLETE: a rank has fewer. */
int mr_window_of(const struct mr_explanation *x, uint64_t from, uint64_t to, struct mr_window *out,
                 struct mr_error *err);
/* All steps, and what lies before and behind them: data that are read first, saves that end last. */
int mr_window_whole(const struct mr_explanation *x, struct mr_window *out, struct mr_error *err);
void mr_window_done(struct mr_window *w);
/* Steps that the rank with the fewest of them has. */
uint64_t mr_window_most(const struct mr_explanation *x);

#endif
