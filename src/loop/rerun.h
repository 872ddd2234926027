/* One run of a program under the tracer, to the end of its window:
 *
 *   try ──fork──> keeper ──fork──> mr_trace_program ──fork──> the program and its descendants
 *    │  lifeline    │  adopts orphans; reads the marks in a folder
 *    └──────────────┘  ends what is left when every rank has marked its window, when time is up, when `try` is gone
 *
 * The program runs in a session of its own with /dev/null as standard input; what it prints goes to a file. */
#ifndef MR_LOOP_RERUN_H
#define MR_LOOP_RERUN_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_rerun {
    char *const *argv;        /* ends with NULL */
    const char *folder;       /* working folder; NULL: this one */
    const char *const *extra; /* environment: "NAME=VALUE" put on top of this process'; ends with NULL; may be NULL */
    const char *trace;        /* written by the tracer; NULL: the program runs without */
    const char *log;          /* standard output and error */
    const char *marks;        /* window-RANK-WORLD-PID of ranks at the end of their window; NULL: it runs to its end */
    uint64_t limit_ns;        /* then it is ended; 0: none */
    const atomic_bool *stop;
};

struct mr_rerun_result {
    bool reached;   /* every rank came to the end of its window */
    bool late;      /* the limit was reached before */
    int status;     /* of the program, as waitpid gives it; without meaning where it was ended */
    int exec_errno; /* why it could not be executed; 0: it ran */
    uint64_t lost;  /* events */
    uint64_t took_ns;
};

/* Returns when the program and all its descendants are gone. MR_E_INTERRUPTED; -errno: it was not started. */
int mr_rerun(const struct mr_rerun *r, struct mr_rerun_result *out, struct mr_error *err);

#endif
