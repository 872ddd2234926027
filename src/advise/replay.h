/* Replays the batches of a rank in virtual time: what its training loop would wait with other settings.
 *
 *   batch ──> worker: metadata ─> read ─> other waits ─> CPU ──ready──> loop: hand-over ─> compute ─> rest of the step
 *               │                   │          │          │                                  │
 *        look-ahead, order       storage    serial       CPUs  <─────────────────────────────┘
 *
 * Stages take what they took in the trace, batch by batch. Three resources are shared by all that use them at a time:
 *   storage   an aggregate rate: together readers get no more bytes per second
 *   CPUs      so many run at full speed; beyond, all slow down alike
 *   serial    waits that are neither (a lock, one connection): so many make progress at a time
 * All of a resource's users slow down by the same factor, so a resource is one clock that runs slower.
 *
 * Batches are handed out as PyTorch does it (batch k to worker k modulo workers), at most `ahead` of them unfinished or
 * waiting; a team makes each batch together, one after the other. Without workers the loop makes its batches itself.
 *
 * Pure functions: no clock, no I/O; the same input gives the same result. Not thread-safe for one struct mr_replay. */
#ifndef MR_ADVISE_REPLAY_H
#define MR_ADVISE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_replay_batch {
    float meta_s, read_s, other_s, cpu_s; /* of one worker, undisturbed */
    float hand_s;                         /* from ready to the loop */
    float compute_s, rest_s;              /* of the step; rest: whatever no loader changes */
    float start_s;                        /* where workers start with it: from the epoch's begin to the load's */
    float bytes;                          /* read */
    uint32_t epoch;
    bool uncounted; /* replayed, but its wait is not part of the result */
};

#define MR_REPLAY_WORKERS 64

struct mr_replay_setup {
    unsigned workers, ahead; /* workers 0: the loop loads; ahead 0: a load starts when it is asked for */
    bool team;
    bool drains;         /* nothing is loaded for an epoch before it begins (an iterator for each) */
    bool starts;         /* workers start anew with each epoch, and take start_s for it */
    double storage;      /* bytes per second; 0: no limit */
    double slots;        /* instead: so many workers read at a time, each as fast as alone; 0: no such limit */
    double cpus;         /* 0: no limit */
    double compute_cpus; /* that a step's compute keeps busy; 0: it runs elsewhere */
    double serial;       /* other waits that make progress at a time; 0: all */
    double meta_x, read_x, other_x, cpu_x, hand_x, compute_x; /* times what the batch says; 0: 1 */
    double read_s_per_byte;                                   /* instead of what the batch says; 0: what it says */
    double tier_share;      /* of the bytes of epochs from tier_from on: from a tier in front of the storage */
    double tier_s_per_byte; /* of one reader of it */
    double tier_meta_x;     /* metadata calls of what the tier has, times what they took */
    uint32_t tier_from;
    double start_s; /* more for workers to start */
    double init_s;  /* more for the first batch of a worker that has started: what it sets up */
    double hand_s;  /* more for each batch: of the loop; and of the worker, on a CPU */
    double pack_s;
};

struct mr_replay_result {
    double wall_s, stall_s;     /* of all batches; stall: load or wait, hand-over included, of those that count */
    double read_slow, cpu_slow; /* how much longer than undisturbed reads and CPU work took; 1: not */
    double compute_slow, other_slow;
};

/* n batches in order. False: no memory. */
bool mr_replay_run(const struct mr_replay_batch *b, size_t n, const struct mr_replay_setup *s,
                   struct mr_replay_result *out);

/* A checkpoint of a rank: how long it blocked training, and how long training went on behind it, to the next one or to
 * the end of the run. */
struct mr_replay_save {
    double blocked_s, between_s, bytes;
};
/* Seconds that training is blocked when a save keeps it for `front_s_per_byte` only, and the rest, `back_x` times as
 * long as it blocked, goes on behind it. One at a time: the next save, and the end of the run, wait for it. */
double mr_replay_saves(const struct mr_replay_save *s, size_t n, double front_s_per_byte, double back_x);

#endif
