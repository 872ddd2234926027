/* What our own programs tell about themselves: the producers' side of the one event stream. Loader, trainer,
 * checkpoints and store shims of one rank emit spans into a struct mr_events; they end up in a .mrt beside the calls
 * that a traced program makes, so that one analysis (src/analyze) serves both.
 *
 *     struct mr_where at = {.epoch = 3, .step = 17, .batch = MR_UNKNOWN, .sample = MR_UNKNOWN};
 *     mr_emit(events, MR_SPAN_COMPUTE, start_ns, end_ns, &at, 0);
 *
 * A span has a site of a fixed category and name (the table below), a start and an end on the monotonic clock, a value
 * (bytes unless the table says otherwise) and where in the training it belongs. The rank is that of the struct
 * mr_events. An instant has start == end. To add a span: a row at the end of the table, its meaning in
 * doc/internals/events.md.
 *
 * Threads: any thread may emit; each has a buffer of its own, no lock is taken until it is full. Every function accepts
 * NULL events and does nothing: producers need no `if`. Cost: see bench/RESULTS.md (event cost). */
#ifndef MR_EVENT_EMIT_H
#define MR_EVENT_EMIT_H

#include "event/event.h"

#include <millrace/error.h>
#include <stdbool.h>

#define MR_UNKNOWN UINT64_MAX

/* Where in the training something happened; MR_UNKNOWN where nobody can say. batch counts within the epoch, step over
 * the whole run. */
struct mr_where {
    uint64_t epoch, step, batch, sample;
};
#define MR_NOWHERE ((struct mr_where){MR_UNKNOWN, MR_UNKNOWN, MR_UNKNOWN, MR_UNKNOWN})

/* How much is told. A level includes those before it. */
enum mr_event_level {
    MR_LEVEL_STEP,   /* steps, epochs, checkpoints: some ten events a step */
    MR_LEVEL_SAMPLE, /* what the loader does for each sample */
    MR_LEVEL_CALL,   /* each call of the storage stack */
};

/* X(name, level, category, name in the trace) */
/* clang-format off */
#define MR_SPANS(X) \
    X(FETCH_STORE,  SAMPLE, "loader",     "fetch store")     /* bytes came from the storage stack */ \
    X(FETCH_RAM,    SAMPLE, "loader",     "fetch ram")       /* from the node's memory */ \
    X(FETCH_SSD,    SAMPLE, "loader",     "fetch ssd") \
    X(FETCH_PEER,   SAMPLE, "loader",     "fetch peer") \
    X(DECODE,       SAMPLE, "loader",     "decode") \
    X(TRANSFORM,    SAMPLE, "loader",     "transform")       /* preprocessing and the caller's transform */ \
    X(ROW_READY,    SAMPLE, "loader",     "row ready")       /* instant; value: bytes of the row */ \
    X(BATCH_READY,  STEP,   "loader",     "batch ready")     /* instant; value: rows */ \
    X(WAIT,         STEP,   "loader",     "wait")            /* the consumer inside next(); value: rows */ \
    X(OPEN,         STEP,   "train",      "open")            /* data set, loader, page cache, until the first step */ \
    X(RUN,          STEP,   "train",      "run")             /* from there to the end */ \
    X(EPOCH,        STEP,   "train",      "epoch") \
    X(STEP,         STEP,   "train",      "step")            /* with all of struct mr_step as arguments */ \
    X(LOAD,         STEP,   "train",      "load")            /* the trainer waiting for its batch */ \
    X(COPY,         STEP,   "train",      "copy")            /* to the emulated device */ \
    X(COMPUTE,      STEP,   "compute",    "compute") \
    X(BARRIER,      STEP,   "train",      "barrier") \
    X(EVALUATION,   STEP,   "train",      "evaluation") \
    X(SAVE,         STEP,   "checkpoint", "save")            /* one rank's whole save */ \
    X(RESTORE,      STEP,   "checkpoint", "restore") \
    X(SNAPSHOT,     STEP,   "checkpoint", "snapshot")        /* making the bytes */ \
    X(CKPT_WRITE,   STEP,   "checkpoint", "write")           /* one file; value: bytes */ \
    X(CKPT_FSYNC,   STEP,   "checkpoint", "fsync") \
    X(CKPT_RENAME,  STEP,   "checkpoint", "rename") \
    X(DRAIN,        STEP,   "checkpoint", "drain")           /* burst buffer to its place; value: bytes */ \
    X(DRAIN_WAIT,   STEP,   "checkpoint", "wait for drain") \
    X(RANK_FIGURES, STEP,   "train",      "rank figures")    /* instant at the end; the rank's sums as arguments */ \
    X(FILL,         SAMPLE, "background", "fill")            /* a sample brought into a class ahead of use; arguments source, class */ \
    X(COPY_SSD,     SAMPLE, "background", "copy to ssd")     /* a sample written to an SSD; argument class */ \
    X(DRAIN_PIECE,  STEP,   "checkpoint", "drain piece")     /* part of a checkpoint on its way from a tier or burst buffer */ \
    X(FIELD,        STEP,   "loader",     "field")           /* instant at the end of an epoch and of the loader; what a field cost so far: NAME:samples, NAME:stored_bytes ... */ \
    X(REQUEST,      SAMPLE, "storage",    "request")         /* to object storage, repeats included; value: bytes of bodies */ \
    X(OBJECTS,      STEP,   "storage",    "object storage")  /* instant when a store is closed: sums over its requests as arguments */
/* clang-format on */
enum mr_span {
#define MR_SPAN_ENUM(name, level, category, text) MR_SPAN_##name,
    MR_SPANS(MR_SPAN_ENUM)
#undef MR_SPAN_ENUM
        MR_SPAN_COUNT
};

/* What a field of samples cost: measures in a trace (NAME:samples) and members of the structs that hold them. */
#define MR_FIELD_COSTS(X) X(samples) X(stored_bytes) X(bytes) X(decode_ns) X(transform_ns)

struct mr_events;

/* True where events of this level are wanted: for producers that would have to look at the clock only to tell. */
bool mr_events_want(const struct mr_events *e, enum mr_event_level level);
void mr_emit(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
             int64_t value);

/* An argument of its own; the name is a string constant. */
struct mr_emit_arg {
    const char *name;
    int64_t value; /* of a real number: its bits */
    bool is_real;
};
#define MR_EMIT_ARGS 32 /* arguments of one event, those of its place counted in; what is beyond is left out */
void mr_emit_args(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
                  int64_t value, const struct mr_emit_arg *arg, unsigned args);

/* The sink for the storage stack's calls (mr_store_open_with_events); NULL when calls are not wanted. */
struct mr_event_sink *mr_events_calls(struct mr_events *e);
/* Category and name of a span in a trace. */
const char *mr_span_name(enum mr_span what, const char **category);

/* ---- for our code in somebody else's program ---- */

/* Events that go to the tracer in this process (`millrace trace`), with a number of their own as argument "loader";
 * NULL where there is no tracer. Calls are the tracer's business. */
struct mr_events *mr_events_of_tracer(enum mr_event_level level);
/* The same events but for those of level STEP: for work that no step of this rank waits for. Valid as long as `e` is;
 * NULL when memory is short. */
struct mr_events *mr_events_without_steps(const struct mr_events *e);
void mr_events_release(struct mr_events *e); /* of the functions above; accepts NULL */
/* Around what a program of ours measures about its machine: the tracer in this process records nothing meanwhile, so
 * that a trace has the bytes of the work alone. Returns what `resume` takes. */
bool mr_tracer_pause(void);
void mr_tracer_resume(bool paused);

/* ---- for who starts the run ---- */

/* A .mrt file that this process writes, and in it the events of one rank, or of all ranks where they are threads of one
 * process. Open it after the ranks were forked. The file is complete when it is closed; of a process that is killed the
 * blocks that were full are in it. */
struct mr_events_file;
int mr_events_open(const char *path, enum mr_event_level level, uint32_t rank, uint32_t world,
                   struct mr_events_file **out, struct mr_error *err);
int mr_events_open_threads(const char *path, enum mr_event_level level, uint32_t world, struct mr_events_file **out,
                           struct mr_error *err);
/* The ranks of a simulated job, one per node, on a virtual clock that starts at 0: the times of events are the
 * caller's. One thread emits for all of them. */
int mr_events_open_virtual(const char *path, enum mr_event_level level, uint32_t world, struct mr_events_file **out,
                           struct mr_error *err);
/* On the virtual clock: the thread of the rank that does what is emitted from now on, calls included; 0 at first. On
 * the real clock it is the calling thread, and this does nothing. */
void mr_events_set_lane(struct mr_events *e, uint32_t lane);
/* The events of the process's only rank (index 0), or of rank `index`. Borrowed. */
struct mr_events *mr_events_of(struct mr_events_file *f, uint32_t index);
/* Nobody may emit any more; with `left_behind` somebody might, and memory stays allocated. Accepts NULL. */
int mr_events_close(struct mr_events_file *f, bool left_behind, struct mr_error *err);

#endif
