/* What 'try' and 'tune' have in common on the command line. */
#ifndef MR_CLI_TRIAL_ARGS_H
#define MR_CLI_TRIAL_ARGS_H

#include "cli/command.h"
#include "loop/trial.h"

struct mr_trial_args {
    const char *steps, *out;
    uint64_t limit;
    bool apply, write, keep_saves, dry_run;
};

#define MR_TRIAL_ARG(at, name, kind, ...)                                                                              \
    {                                                                                                                  \
        .key = #name, .offset = (at) + offsetof(struct mr_trial_args, name), .type = MR_OPT_##kind, __VA_ARGS__        \
    }
#define MR_TRIAL_ARGS_ROWS(at)                                                                                         \
    MR_TRIAL_ARG(at, steps, STRING, .def = "",                                                                         \
                 .doc = "The steps that are compared, FROM:TO, the last one left out; each run ends behind them. "     \
                        "Default: 20:120, fewer where the recorded run had fewer.",                                    \
                 .example = "--steps 20:120"),                                                                         \
        MR_TRIAL_ARG(at, limit, DURATION, .def = "0s",                                                                 \
                     .doc = "The longest that a run may take to the end of its window; 0 is a minute and four times "  \
                            "what the recorded run took."),                                                            \
        MR_TRIAL_ARG(at, out, STRING, .def = "",                                                                       \
                     .doc = "Keeps the traces and what the runs printed in this folder: a1.mrt, b1.mrt, a1.log ...",   \
                     .example = "--out tried"),                                                                        \
        MR_TRIAL_ARG(at, keep_saves, BOOL, .def = "false",                                                             \
                     .doc = "The program saves checkpoints where it always does. By default they go to folders "       \
                            "beside, on the same storage, which are removed."),                                        \
        MR_TRIAL_ARG(at, apply, BOOL, .def = "false",                                                                  \
                     .doc = "Also prints the change as a unified diff of the script, where it gains something."),      \
        MR_TRIAL_ARG(at, write, BOOL, .def = "false",                                                                  \
                     .doc = "Also changes the script so: the only case in which a file of yours is edited. Implies "   \
                            "--apply."),                                                                               \
        MR_TRIAL_ARG(at, dry_run, BOOL, .def = "false", .short_flag = 'n',                                             \
                     .doc = "Prints what would be run and changed, and what is predicted; runs nothing.")

/* All of a request but the trace, the finding and the repeats. */
int mr_trial_args_request(const struct mr_trial_args *a, unsigned threads, const atomic_bool *stop,
                          struct mr_trial_request *out, struct mr_error *err);
/* 0 gains, 3 does not, 6 not decided. */
int mr_trial_exit_status(const struct mr_trial *t);
/* Prints the diff unless `silent`, and with `write` changes the script. `wanted`: that there is none is an error. */
int mr_trial_apply(const struct mr_trial *t, bool write, bool silent, bool wanted, struct mr_error *err);

#endif
