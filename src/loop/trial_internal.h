/* Inside a trial: what trial.c and trial_own.c share. */
#ifndef MR_LOOP_TRIAL_INTERNAL_H
#define MR_LOOP_TRIAL_INTERNAL_H

#include "loop/trial.h"

/* The words that repeat a run of ours, with the change where `run` has it; argv has room for 5. `base`: a path in the
 * trial's folder of which names of new folders are made. */
int mr_trial_own_command(struct mr_trial *t, const struct mr_trial_one *run, const char *base, char **argv,
                         struct mr_error *err);

#endif
