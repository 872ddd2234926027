/* Inside a trial: what trial.c, trial_own.c and tune.c share. */
#ifndef MR_LOOP_TRIAL_INTERNAL_H
#define MR_LOOP_TRIAL_INTERNAL_H

#include "advise/what_if.h"
#include "loop/trial.h"

/* The words that repeat a run of ours, with the change where `run` has it; argv has room for 5. `base`: a path in the
 * trial's folder of which names of new folders are made. */
int mr_trial_own_command(struct mr_trial *t, const struct mr_trial_one *run, const char *base, char **argv,
                         struct mr_error *err);

/* The parts of mr_trial_run: the folder, the data, room for so many runs; one run more; the verdict over all of them. */
int mr_trial_start(struct mr_trial *t, size_t most, struct mr_error *err);
int mr_trial_next(struct mr_trial *t, bool changed, struct mr_error *err);
int mr_trial_judge(struct mr_trial *t, struct mr_error *err);
/* Seconds of the window's waits that settings save by the replay `w` of an explanation that counts the window. */
int mr_trial_settings_save(const struct mr_trial *t, struct mr_what_if *w, const struct mr_what_if_settings *s,
                           double *saves, struct mr_error *err);

#endif
