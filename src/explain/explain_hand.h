/* Loops without a data loader: what explain_hand.c and explain_hand_train.c share. H1 to H7 are rules of the first. */
#ifndef MR_EXPLAIN_EXPLAIN_HAND_H
#define MR_EXPLAIN_EXPLAIN_HAND_H

#include "explain/explain_internal.h"

enum kind { KNOWN, WEAK, STRONG }; /* no data; data beside data, or if it is long; data */

struct act {
    uint64_t start, end;
    uint64_t taken; /* of it: waiting for others */
    uint8_t kind;
};

/* A train span. */
struct train {
    uint64_t start, end, awake, optimizer; /* awake: since the one before; UNKNOWN */
    uint64_t threads, threads_delay;       /* other threads since the one before: on a CPU; ready to run without one */
    uint64_t delay;                        /* of it: ready to run, and others had the CPUs */
    uint64_t faults;                       /* since the one before, on pages that had to be read */
    uint64_t forward;                      /* when the forward pass before it began; UNKNOWN */
    bool steps, device;                    /* of an optimiser; a device may be waited for */
};

struct phase {
    uint64_t start, end, taken, weak;
    bool strong, evaluates; /* evaluates: for a step of an evaluation */
};

/* A whole model was called. */
struct forward {
    uint64_t start, end;
    bool evaluates;
};

struct hand {
    struct explain_job *j;
    uint32_t rank, lane;
    MR_VEC(struct act) act;
    MR_VEC(struct train) train;
    MR_VEC(struct forward) forward;
    MR_VEC(struct phase) phase;             /* of the gap at hand */
    size_t at;                              /* acts before it end before the gap */
    uint64_t usual;                         /* gap */
    uint64_t seen;                          /* optimisers of this step, bits */
    uint64_t stepped;                       /* when the last optimiser's step ended */
    uint64_t own, taken;                    /* waited */
    uint64_t asleep, unclear, tails, backs; /* H5 */
    bool loads;                             /* torch.load() reads the data */
    bool bursts;                            /* H6 */
    bool teaches; /* models are called without gradients in most steps: that is no evaluation */
};

/* ---- explain_hand_train.c: 0, or -ENOMEM ---- */
/* Train spans, calls of models, the usual gap, and whether torch.load() reads the data. */
int mr_hand_list_train(struct hand *h);
/* H6, once the thread's acts are known. */
int mr_hand_find_bursts(struct hand *h);
/* The first model called at `at` or later, and before `to`; NULL: none. */
const struct forward *mr_hand_next_forward(const struct hand *h, uint64_t at, uint64_t to);

#endif
