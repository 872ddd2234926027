/* A finding tried on the program that the trace is of: A as it is, B with the change, A B B A, the same steps of each.
 *
 *     mr_trial_open   reads the trace, chooses finding and window, predicts          nothing runs
 *     mr_trial_run    runs the program 2 x repeat times, judges                      the result is in the struct
 *     mr_trial_close  removes everything that was not asked for
 *
 * Single-threaded while programs run: it forks. */
#ifndef MR_LOOP_TRIAL_H
#define MR_LOOP_TRIAL_H

#include "loop/injection.h"
#include "loop/judge.h"
#include "loop/scratch.h"
#include "loop/stage.h"

struct mr_trial_request {
    const char *path;       /* the trace */
    const char *id;         /* of the finding; NULL: the first one that can be tried */
    const char *const *set; /* instead of a finding: KEY=VALUE, arguments of the loader that trains, or of our own run
                               options and keys of the workload; ends with NULL; NULL: none */
    int64_t from, to;       /* steps [from, to); to 0: chosen */
    unsigned repeat;        /* runs of each side */
    const char *out;        /* traces and outputs of the runs are kept in this folder; "": not */
    bool keep_saves;        /* the program saves where it always does */
    uint64_t limit_ns;      /* for a run; 0: four times what the recorded one took, and a minute */
    unsigned threads;
    int (*measure)(struct mr_explanation *x, const atomic_bool *stop, struct mr_error *err); /* for LD1; NULL: not */
    const atomic_bool *stop;
};

struct mr_trial_one {
    bool changed; /* B */
    double took_s;
    char trace[PATH_MAX]; /* of a run of ours: its results folder */
    struct mr_window window;
};

struct mr_trial {
    struct mr_trial_request req;
    struct mr_arena arena;
    struct mr_explanation *x;         /* of the recorded trace */
    const struct mr_finding *finding; /* with `set` it has no more than a name and changes */
    const char *program;              /* its command line, for a shell */
    bool own, whole; /* a run of ours; all of it is compared, also what lies before and behind its steps */
    uint64_t from, to;
    struct mr_window recorded; /* the window of the recorded run; no steps: it has no such window */
    struct mr_prediction_share predicted;
    struct mr_injection injection;
    struct mr_injected injected;
    struct mr_scratch scratch;
    struct mr_data_files data; /* of a traced program, where they matter; empty: not looked at */
    bool evicts;           /* the page cache's part of them is dropped before each run: the recorded run read storage */
    char staged[PATH_MAX]; /* the copies */
    double staged_s;       /* how long they took */
    struct mr_trial_one *run; /* in the order they were made */
    size_t runs;
    struct mr_judgement judgement;
    const char *failed; /* B ended with an error: its last line; NULL */
    const char *note[8];
    size_t notes;
};

/* MR_E_UNSUPPORTED: the finding cannot be injected, or the program cannot be started again; MR_E_USAGE: no such finding. */
int mr_trial_open(const struct mr_trial_request *req, struct mr_trial *out, struct mr_error *err);
/* MR_E_INCOMPLETE: the program could not be run again, or ended before the window. */
int mr_trial_run(struct mr_trial *t, struct mr_error *err);
void mr_trial_close(struct mr_trial *t);

#endif
