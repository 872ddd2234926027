/* Runs a program under the tracer: sets up the spool folder and the environment, starts the program, drains its rings
 * into one .mrt beside it, passes signals on, waits for descendants. What `millrace trace` does, without its options
 * and its messages. One at a time per process: it installs signal handlers. */
#ifndef MR_LAUNCH_TRACE_PROGRAM_H
#define MR_LAUNCH_TRACE_PROGRAM_H

#include "event/collect.h"
#include "launch/trace_environment.h"

#include <signal.h>
#include <stdatomic.h>

struct mr_trace_program_options {
    char *const *argv; /* of the program, ends with NULL */
    const char *out;   /* the trace file */
    struct mr_trace_settings settings;
    const char *include_globs, *exclude_globs; /* the settings' lists, as mr_globs_match takes them; for page faults */
    bool mmap;                                 /* record page faults on mapped files */
    uint64_t max_bytes;                        /* about this much of the newest events; 0: all */
    uint64_t linger_ns;                        /* how long to wait for processes that outlive the program */
    const sigset_t *ignored;                   /* signals that the program is to ignore from the start */
    const atomic_bool *stop;                   /* set before the program runs: start nothing */
};

struct mr_trace_program_result {
    struct mr_collect_stats stats;
    int status;           /* as waitpid gives it */
    int exec_errno;       /* why the program could not be executed; 0: it ran. Without a spool, nothing was written */
    char spool[PATH_MAX]; /* where events of processes that still run, or could not be written, remain */
    char python[512];     /* what was done with Python programs, a line to be told; empty: there were none */
    bool incomplete;      /* the trace could not be written or finished; a warning said why */
};

/* Fails (negative code, err filled) only when the program was not started. Warnings go to the log as they come up: that
 * page faults cannot be recorded, that writing the trace failed while the program goes on. */
int mr_trace_program(const struct mr_trace_program_options *opt, struct mr_trace_program_result *out,
                     struct mr_error *err);

#endif
