/* The folder of a trial, and the process that removes it: also when `try` is killed (L4 of doc/internals/loop.md).
 *
 *   try ──fork──> cleaner   waits for the end of the pipe `hold`
 *    └──fork──> keepers     inherit the writing end, so the folder stays while one of them lives
 *
 * Files of the traced program that lie elsewhere (saves beside the user's checkpoints) are in folders that are named in
 * the file `others` of this one, a line each; they are removed, too, where their name has MR_SCRATCH_NAME in it. */
#ifndef MR_LOOP_SCRATCH_H
#define MR_LOOP_SCRATCH_H

#include <millrace/error.h>

#include <limits.h>
#include <sys/types.h>

#define MR_SCRATCH_NAME ".millrace-try-"

struct mr_scratch {
    char folder[PATH_MAX];
    int hold; /* writing end; -1: none */
    pid_t cleaner;
};

/* In $TMPDIR or /tmp. Before threads are started: it forks. */
int mr_scratch_open(struct mr_scratch *out, struct mr_error *err);
/* A new folder in `parent`, to be removed with the other one; `out` has room for PATH_MAX. */
int mr_scratch_beside(const struct mr_scratch *s, const char *parent, char *out, struct mr_error *err);
/* Removes the folder, and returns when that is done. Accepts one that was never opened ({.hold = -1}). */
void mr_scratch_close(struct mr_scratch *s);

#endif
