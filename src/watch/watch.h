/* Watching a running job by the trace that it writes: what `millrace watch` shows. README.md has the way of the data and
 * the invariants.
 *
 *     mr_watch_open("run.mrt", &w, err);
 *     do {
 *         mr_watch_poll(w, stop, err);
 *         mr_watch_figures(w, &figures);
 *         ... show, sleep ...
 *     } while (!figures.ended);
 *
 * Rates and shares are of the last 5 to 10 seconds of the trace. Not thread-safe. */
#ifndef MR_WATCH_WATCH_H
#define MR_WATCH_WATCH_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_watch;

struct mr_watch_rank {
    int32_t rank;                      /* -1: the program has no ranks */
    uint32_t pid;                      /* of the process that trains */
    uint64_t steps, evaluated;         /* so far; steps of evaluation apart */
    uint64_t epoch;                    /* from 1; 0 unknown */
    double step_s;                     /* mean of a training step; NAN: none ended lately */
    double stall, barrier, checkpoint; /* shares of the time: waits for data, for other ranks, for checkpoints; NAN */
    double idle;                       /* share in which the accelerator was idle while the rank waited; NAN */
    double own_s;                      /* of a step: without the waits for other ranks; NAN */
    double quiet_s;                    /* since its last step ended */
};

struct mr_watch_mount {
    const char *path, *type; /* as the trace has them: escape them */
    double read_bytes_per_s, written_bytes_per_s, opens_per_s;
    double in_flight; /* calls at a time, on average */
    double call_s;    /* mean of a call; NAN: none */
};

struct mr_watch_worker {
    uint32_t rank; /* index */
    int64_t number;
    double batch_s, others_s; /* mean of its batches, of those of the rank's other workers */
};

#define MR_WATCH_MOUNTS 4

struct mr_watch_figures {
    const char *path, *program; /* trace or folder; words of the command line with blanks between them, or "" */
    uint64_t elapsed_ns, events, processes;
    double behind_s;        /* how old the newest event is; of a trace that has ended 0 */
    bool ended;             /* nobody writes any more */
    bool whole;             /* ... and the end is in the trace */
    bool gaps;              /* the trace keeps its newest events only: steps between two looks may be missing */
    uint64_t steps;         /* of the rank that is furthest */
    uint64_t epoch, epochs; /* 0 unknown */
    uint64_t all_steps;     /* 0 unknown */
    const char *all_by;     /* what says how many: "--epochs"; NULL */
    double left_s;          /* until its last step; NAN unknown */
    double steps_per_s;     /* of one rank; NAN */
    double stall, barrier, checkpoint, idle; /* means over ranks; NAN unknown */
    double utilisation;                      /* of the accelerator, as the driver counts it; NAN */
    const struct mr_watch_rank *rank;
    size_t ranks;
    size_t late;                 /* index of the rank that others wait for; SIZE_MAX none */
    double late_s;               /* of each step */
    struct mr_watch_worker slow; /* a worker much slower than others of its rank */
    bool has_slow;
    struct mr_watch_mount mount[MR_WATCH_MOUNTS]; /* the busiest first */
    size_t mounts;
};

/* `word`: a trace, a results folder, or a process number. `epochs` and `steps` (0: unknown) say how long the job is. */
int mr_watch_open(const char *word, uint64_t epochs, uint64_t steps, struct mr_watch **out, struct mr_error *err);
/* Reads what is new. MR_E_INTERRUPTED once *stop (may be NULL) is set. */
int mr_watch_poll(struct mr_watch *w, const atomic_bool *stop, struct mr_error *err);
/* The pointers in it are valid until the next poll. */
void mr_watch_figures(struct mr_watch *w, struct mr_watch_figures *out);
/* The path to explain when it has ended. */
const char *mr_watch_path(const struct mr_watch *w);
void mr_watch_close(struct mr_watch *w); /* accepts NULL */

#endif
