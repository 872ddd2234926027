/* The best settings of a program, found by replays of its trace and measured on it:
 *
 *   trace ──what_if.h──> all settings, in virtual time ──> the simplest near the best, and its neighbours (at most 5)
 *         ──> A c1 c2 c3 .. best A ──> the best one against A ──> verdict
 *
 *   T1 nothing is recommended that was not measured;
 *   T2 at most MR_TUNE_MOST settings are measured, each once, the best one and A twice;
 *   T3 the order of the samples stays: no setting changes it. */
#ifndef MR_LOOP_TUNE_H
#define MR_LOOP_TUNE_H

#include "loop/trial.h"

#define MR_TUNE_MOST 5u
#define MR_TUNE_KEYS 5u

struct mr_tune_setting {
    const char *set[MR_TUNE_KEYS + 1]; /* KEY=VALUE, as mr_trial_request.set */
    const char *text;                  /* the same in one line */
    double predicted_s;                /* of the window */
    double measured_s;                 /* mean of its runs; NAN: not measured, or it failed */
    const char *failed;                /* the last line of the program; NULL */
};

struct mr_tune {
    struct mr_trial trial;          /* A and the best one; its finding is the best setting */
    size_t searched;                /* settings that were replayed */
    double searched_s;              /* how long that took */
    double base_s, base_measured_s; /* of the window: recorded, measured */
    struct mr_tune_setting setting[MR_TUNE_MOST];
    size_t settings, best;
};

/* `request`: its `path`, steps, `out`, limits. `budget_ns`: fewer settings are measured where they would take longer; 0:
 * no limit. MR_E_UNSUPPORTED: nothing in the trace can be replayed. MR_E_BUDGET: by the replay nothing gains 2 %. */
int mr_tune_open(const struct mr_trial_request *request, uint64_t budget_ns, struct mr_tune *out, struct mr_error *err);
/* Runs the program. MR_E_INCOMPLETE as mr_trial_run. */
int mr_tune_run(struct mr_tune *u, struct mr_error *err);
void mr_tune_close(struct mr_tune *u);

/* Runs a program for the first time, traced to `trace`, to the end of that many steps. Its output goes to `log`. */
int mr_tune_trace(char *const *argv, uint64_t steps, const struct mr_scratch *scratch, const char *trace,
                  const char *log, uint64_t limit_ns, const atomic_bool *stop, struct mr_error *err);

#endif
