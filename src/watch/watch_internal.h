/* What the files of src/watch share: the sums that screens are made of. See watch.h and README.md. */
#ifndef MR_WATCH_WATCH_INTERNAL_H
#define MR_WATCH_WATCH_INTERNAL_H

#include "import/trace_read.h"
#include "watch/watch.h"
#include "watch/watch_tail.h"

#define WINDOW_NS (5 * MR_NS_PER_S)
#define NO_ROW UINT32_MAX
#define WORKERS_MOST 64u
#define LOADERS_MOST 16u
#define MOUNTS_MOST 64u

/* Two windows: the one that is filled and the one before. A sum over the last 5 to 10 seconds is now + before. */
struct watch_sum {
    double now, before;
};

/* Spans of one kind on one thread, in the order of their ends: nested ones count once. */
struct watch_union {
    uint64_t from, to, ns; /* of the last group */
};

enum watch_part { PART_STEP, PART_STALL, PART_BARRIER, PART_SAVE, PART_IDLE, PARTS };

struct watch_loader {
    uint64_t id, steps, batches; /* batches: of an epoch, as the program says; 0 unknown */
    bool optimised;              /* it trains */
};

struct watch_worker {
    int64_t number;
    struct watch_sum batches, ns;
};

/* A rank: the process that trains, with its workers. */
struct watch_row {
    int32_t rank;
    uint32_t process, tid;                        /* tid: of the thread that trains */
    bool own;                                     /* of our own trainer: steps come whole */
    bool waits, idles;                            /* waits for data are seen; idle times of an accelerator */
    uint64_t steps, evaluated, first_ns, last_ns; /* first step's begin, last step's end */
    /* The step at hand. */
    bool open;
    uint64_t start_ns, wait_end_ns, part[PARTS];
    uint64_t over_ns; /* its loader was found at its end; 0 */
    struct watch_union barrier, save;
    struct watch_loader loader[LOADERS_MOST];
    unsigned loaders, at; /* at: of the step at hand */
    uint64_t epoch_arg;   /* of the step at hand; UINT64_MAX unknown */
    /* Epochs: a training step of another loader or another number begins one. */
    uint64_t epoch_loader, epoch_number, epochs_done, in_epoch, epoch_steps; /* epoch_steps: of the last whole one */
    bool in_any_epoch;
    uint64_t batches, steps_set; /* of the training loader's epoch, of all, as the program says; 0 unknown */
    struct watch_sum sum[PARTS], n, read_bytes;
    struct watch_worker worker[WORKERS_MOST];
    unsigned workers;
};

struct watch_process {
    uint8_t *tag; /* of each string: what it means (watch_events.c); 0 not looked at yet */
    size_t tags;
    uint32_t row; /* index; NO_ROW: not known yet */
};

struct watch_mount {
    const char *path, *type;
    struct watch_sum read_bytes, written_bytes, opens, calls, ns;
};

struct mr_watch {
    char *word, *path;
    bool is_folder;
    struct mr_tail *tail;
    size_t tails;
    struct mr_trace *t; /* processes, names, mounts; one chunk at a time */
    struct mr_event_batch batch;
    struct watch_process *process; /* as t->process */
    size_t process_cap;
    struct watch_row *row;
    size_t rows, row_cap;
    struct watch_mount mount[MOUNTS_MOST];
    unsigned mounts;
    uint64_t first_ns, last_ns, events; /* of the trace, real time */
    uint64_t window_ns, before_ns;      /* begin of the window that is filled, of the one before; 0: none */
    uint64_t epochs, steps;             /* how long the job is; 0 unknown */
    const char *epochs_by;              /* NULL: nothing says how many */
    double utilisation;
    bool ended, whole, read_words;
    unsigned turns;          /* of all files */
    uint64_t quiet_since_ns; /* monotonic: nothing new and no writer since; 0 */
    char program[512];
    struct mr_watch_rank *shown; /* of the last figures */
    size_t shown_cap;
};

/* watch_events.c. One block: mr_tail_block_fn. */
int mr_watch_block(void *watch, const struct mr_mrt_view *v, struct mr_error *err);

/* watch_steps.c. What happens on the thread that trains; times are real. */
struct watch_at {
    uint64_t start, end, loader, epoch; /* UINT64_MAX unknown */
};
void mr_watch_wait(struct watch_row *r, const struct watch_at *at);
void mr_watch_optimiser(struct watch_row *r, const struct watch_at *at);
void mr_watch_part(struct watch_row *r, enum watch_part part, const struct watch_at *at);
void mr_watch_own_step(struct watch_row *r, const struct watch_at *at, const uint64_t part[PARTS], bool trains);
/* Events may be missing: the step at hand is not counted. */
void mr_watch_gap(struct watch_row *r);
/* Nothing follows: the step at hand is over. */
void mr_watch_last(struct watch_row *r, uint64_t end);
void mr_watch_loader(struct watch_row *r, uint64_t loader, uint64_t batches);
void mr_watch_fetch(struct watch_row *r, int64_t worker, uint64_t ns);
/* Closes the window that is filled, once it is over. */
void mr_watch_turn(struct mr_watch *w);

#endif
