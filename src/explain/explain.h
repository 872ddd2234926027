/* An explanation: where the time of a run or a traced program went, why, and what would change it. One struct, filled
 * once, from which the terminal text, the JSON, the page, comparisons and budgets are all made: a figure that is shown
 * twice is the same number.
 *
 *     trace ──mr_explain──> struct mr_explanation ──mr_advise──> findings, verdict ──> text, JSON, page, compare, check
 *
 * Who fills what:
 *   explain_*.c, stall_*.c   everything but `finding` and `verdict`
 *   src/advise               `finding`, `verdict`
 *
 * Times are nanoseconds since `start_ns` of the explanation unless a name ends in _s. MR_TIME_UNKNOWN and NAN mean that
 * the trace cannot say; 0 means none. Whoever shows a figure shows unknown as unknown. All memory belongs to the
 * explanation; names are valid UTF-8, NUL-terminated, and may hold anything else (hostile file names): whoever prints
 * them escapes them. */
#ifndef MR_EXPLAIN_EXPLAIN_H
#define MR_EXPLAIN_EXPLAIN_H

#include "base/arena.h"
#include "import/counters.h"
#include "import/trace_read.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_TIME_UNKNOWN UINT64_MAX

/* What the host of a rank spent its time on; disjoint, they add up to the window. Priority as in
 * doc/reference/metrics.md. */
#define MR_TIME_CLASSES(X)                                                                                             \
    X(COMPUTE, "compute", "compute")                                                                                   \
    X(STALL, "data_stall", "data stall")      /* waiting for the next batch */                                         \
    X(CHECKPOINT, "checkpoint", "checkpoint") /* blocked by saving or restoring */                                     \
    X(BARRIER, "barrier", "barrier")          /* waiting for other ranks */                                            \
    X(COPY, "copy", "copy to device")                                                                                  \
    X(LOGGING, "logging", "logging")  /* the training thread's own logs, histories, settings */                        \
    X(STARTUP, "startup", "start-up") /* before the first step */                                                      \
    X(OTHER, "other", "other")
enum mr_time_class {
#define MR_TIME_ENUM(name, key, text) MR_TIME_##name,
    MR_TIME_CLASSES(MR_TIME_ENUM)
#undef MR_TIME_ENUM
        MR_TIME_CLASS_COUNT
};

/* Why the consumer waited; they add up to the stall. A wait is followed backwards through what held the row of its
 * batch that was ready last. */
#define MR_STALL_CAUSES(X)                                                                                             \
    X(STORAGE, "storage", "storage")                                                                                   \
    X(PAGE_CACHE, "page_cache", "page cache") /* reads at memory speed */                                              \
    X(METADATA, "metadata", "open/stat")                                                                               \
    X(NETWORK, "network", "network")  /* sockets to other hosts */                                                     \
    X(DECODE, "decode", "decode CPU") /* decoding, parsing; CPU time of the reader between its calls */                \
    X(TRANSFORM, "transform", "transform")                                                                             \
    X(CPU, "cpu_wait", "waiting for a CPU") /* ready to run, and others had the CPUs */                                \
    X(QUEUE, "queue", "collate/queue")      /* collating, passing the batch on */                                      \
    X(COPY, "copy", "copy")                                                                                            \
    X(NOT_STARTED, "not_started", "not started") /* a reader was idle and nobody had asked for the batch */            \
    X(WORKER, "worker",                                                                                                \
      "worker busy/waiting") /* asked for, but its worker was busy with something none of the above  \
                                                  tells: sleeping, waiting for a lock */                 \
    X(UNKNOWN, "unknown", "unknown")
enum mr_stall_cause {
#define MR_STALL_ENUM(name, key, text) MR_STALL_##name,
    MR_STALL_CAUSES(MR_STALL_ENUM)
#undef MR_STALL_ENUM
        MR_STALL_CAUSE_COUNT
};

/* What calls waited for, stalling anybody or not: unions over all threads of a rank, mean over ranks. */
#define MR_WAIT_CLASSES(X)                                                                                             \
    X(STORAGE, "storage")                                                                                              \
    X(PAGE_CACHE, "page_cache")                                                                                        \
    X(METADATA, "metadata")                                                                                            \
    X(IPC, "ipc")                                                                                                      \
    X(NETWORK, "network")
enum mr_wait_class {
#define MR_WAIT_ENUM(name, key) MR_WAIT_##name,
    MR_WAIT_CLASSES(MR_WAIT_ENUM)
#undef MR_WAIT_ENUM
        MR_WAIT_CLASS_COUNT
};

enum mr_explain_phase { MR_EXPLAIN_TRAIN, MR_EXPLAIN_EVAL };

/* One step of one rank: from the beginning of its wait to the beginning of the next one's. */
struct mr_explain_step {
    uint32_t rank, epoch;
    uint64_t step;  /* over the run, from 0; by rank in time order */
    uint64_t batch; /* within the epoch; MR_TIME_UNKNOWN */
    uint64_t start_ns, end_ns;
    uint64_t ns[MR_TIME_CLASS_COUNT];
    uint64_t tail_ns[MR_TIME_CLASS_COUNT]; /* of ns: behind its last barrier; all of it where it has none */
    uint64_t collective_ns;                /* the accelerator waited for other ranks, beside whatever the host did */
    uint64_t stall[MR_STALL_CAUSE_COUNT];
    uint64_t behind_ns; /* of the stall: the reader was still busy with earlier batches (whatever the cause) */
    uint64_t accelerator_idle_ns; /* MR_TIME_UNKNOWN */
    uint64_t bytes;               /* read for its batch; MR_TIME_UNKNOWN */
    uint32_t worker;              /* index of the worker that delivered it, UINT32_MAX unknown */
    uint32_t file;                /* index of the file that was read last or longest for it, UINT32_MAX none */
    uint8_t phase;                /* enum mr_explain_phase */
};

struct mr_explain_rank {
    int32_t rank; /* -1: the trace names none, all processes are one */
    const char *host;
    uint64_t start_ns, end_ns; /* window: first event to last; ns[] add up to it */
    uint64_t train_ns;         /* of it: the training window */
    uint64_t after_ns;         /* of ns[MR_TIME_OTHER]: behind the training window */
    uint64_t ns[MR_TIME_CLASS_COUNT];
    uint64_t stall[MR_STALL_CAUSE_COUNT], wait[MR_WAIT_CLASS_COUNT];
    uint64_t behind_ns, accelerator_idle_ns;
    uint64_t steps, samples, read_bytes, written_bytes, read_calls, write_calls, metadata_calls;
    /* Calls, bytes and io_*: of the training window where there are steps. */
    uint64_t io_ns;            /* union of data and metadata calls on storage */
    uint64_t io_sum_ns;        /* the same, summed over threads */
    uint64_t io_in_compute_ns; /* of io_ns: while the rank computed */
    bool ended;                /* the trace has its end */
};

/* What the batch of a step took those that made it, all of them together: metadata calls, reads, work on a CPU, and
 * neither (sleep, a lock, no free CPU), locks and messages between processes a part of that; from being ready to the
 * training loop; of an epoch's first, from the epoch's begin to the begin of its load. */
struct mr_explain_batch {
    uint32_t step;           /* index */
    bool known;              /* false: nothing is known but the step */
    uint64_t from_ns, to_ns; /* of the load, by makers other than the loop; both 0: there were none */
    float meta_s, read_s, cpu_s, other_s, lock_s, hand_s, start_s, bytes;
};

/* A thread or process that prepares batches. */
struct mr_explain_worker {
    uint32_t rank, pid, tid, id;
    const char *label; /* "worker 1", "reader 0" */
    uint64_t start_ns, end_ns, batches;
    uint64_t ns[MR_STALL_CAUSE_COUNT]; /* what it did, by the same names */
    uint64_t idle_ns;                  /* had nothing to do */
    uint64_t blocked_ns;               /* could not hand over what it had: the consumer was behind */
    uint64_t cpu_ns;                   /* MR_TIME_UNKNOWN */
};

enum mr_access_pattern {
    MR_PATTERN_NONE,
    MR_PATTERN_WHOLE_FILE,
    MR_PATTERN_STREAMING,
    MR_PATTERN_STRIDED,
    MR_PATTERN_SHUFFLED_RECORDS,
    MR_PATTERN_RANDOM
};
const char *mr_access_pattern_name(enum mr_access_pattern p);

struct mr_explain_file {
    const char *path, *fs; /* fs NULL: unknown */
    uint64_t read_bytes, written_bytes, reads, writes, opens, calls, dur_ns;
    uint64_t size;                              /* largest end of a read or write: a lower bound */
    uint64_t unique_bytes;                      /* MR_TIME_UNKNOWN where it was not followed */
    uint32_t ranks;                             /* that touched it */
    uint64_t small_reads;                       /* below 64 KiB, end-of-file reads apart */
    uint64_t consecutive, sequential, streamed; /* reads: exactly behind / behind the last of its stream; reads that are
                                                   not a stream's first */
    uint8_t pattern;                            /* enum mr_access_pattern */
    bool own_log;                               /* a log, history or settings file of the thread that trains: no data */
};

/* Files of one folder with one ending, together: a million files are a few groups. */
struct mr_explain_group {
    const char *name; /* folder, a star and the ending */
    uint64_t files, read_bytes, written_bytes, reads, opens, dur_ns, unique_bytes;
    uint8_t pattern;
    bool checkpoint, data; /* written by checkpoints; read for batches */
};

/* A field of the samples that our loader read, over all ranks: bytes as stored, and as given to the program. */
struct mr_explain_field {
    const char *name;
    uint64_t samples, stored_bytes, bytes, decode_ns, transform_ns; /* ns: of all threads */
};

/* Who made whom wait at the barrier of steps: `rank` came last. */
struct mr_explain_culprit {
    uint32_t rank;
    uint64_t steps;                       /* in which it came last and somebody waited */
    uint64_t waited_ns;                   /* by all others, summed */
    uint64_t lost_ns;                     /* of the job: sum over steps of (last - mean of the others) */
    uint64_t cause[MR_TIME_CLASS_COUNT];  /* what it did meanwhile */
    uint64_t stall[MR_STALL_CAUSE_COUNT]; /* of its stall, why */
};

struct mr_explain_checkpoint {
    uint32_t rank;
    uint64_t start_ns, end_ns;                                 /* blocking, unless `beside` */
    uint64_t write_ns, fsync_ns, drain_start_ns, drain_end_ns; /* MR_TIME_UNKNOWN where there is none */
    uint64_t bytes;
    const char *path, *fs; /* NULL unknown */
    bool is_load, buffered;
    bool beside; /* by a thread that does not train: training waits for it only where its time says so */
};

/* A span that the program named (annotations, TimeLogger's snippets): one row per category and name. */
struct mr_explain_snippet {
    const char *category, *name;
    uint64_t count, sum_ns, min_ns, p25_ns, median_ns, p75_ns, p99_ns, max_ns;
};

/* Single spans of snippets, for a timeline per thread; thinned evenly to at most 4000 in all, by thread, then time. */
struct mr_explain_snippet_span {
    uint32_t snippet, pid, tid; /* snippet: index */
    uint64_t start_ns, end_ns;
};

/* What each thread of a rank did during one slow step and the time its batch took, for a picture. Spans of one lane do
 * not overlap. lanes 0: nobody knows. */
struct mr_explain_lane_span {
    uint64_t start_ns, end_ns, batch; /* MR_TIME_UNKNOWN: of no batch */
    uint32_t lane;
    uint8_t kind; /* enum mr_stall_cause; MR_STALL_CAUSE_COUNT + enum mr_time_class for the consumer's own time */
};
struct mr_explain_lanes {
    uint32_t rank;
    uint64_t step, start_ns, end_ns;
    const char **name; /* "main", "worker 1" */
    size_t lanes;      /* at most 64 */
    struct mr_explain_lane_span *span;
    size_t spans; /* at most 2000 */
};

/* Equal bins over the window of the job; at most 2000. Arrays of `bins`. */
struct mr_explain_timeline {
    uint32_t bins;
    uint64_t bin_ns;
    double *read_bytes, *written_bytes;   /* spread over each call's duration */
    double *in_flight;                    /* mean number of data calls in flight */
    double *stall, *compute, *checkpoint; /* share of the ranks that did it, 0 to 1 */
    double *ready;                        /* batches ready and not taken, mean over ranks; NULL unknown */
};

/* Rank x time; at most 512 x 256 cells, ranks put together where there are more. value[row * columns + column]. */
struct mr_explain_heat {
    uint32_t rows, columns, ranks_per_row;
    uint64_t column_ns;
    double *read_bytes, *written_bytes, *stall; /* stall: share 0 to 1 */
};

/* Offsets over time of the busiest files, thinned evenly to at most 4000 points in all. */
struct mr_explain_access {
    uint64_t at_ns, offset, bytes;
    uint32_t file, rank;
    bool write;
};

#define MR_EXPLAIN_SIZE_BINS 48 /* log2: bin k has sizes of [2^k, 2^(k+1)); 0 bytes apart */
struct mr_explain_sizes {
    uint64_t ops[MR_EXPLAIN_SIZE_BINS], bytes[MR_EXPLAIN_SIZE_BINS], dur_ns[MR_EXPLAIN_SIZE_BINS];
    uint64_t zero, zero_ns;                  /* end-of-file reads; how long they took */
    uint64_t p50_ns, p95_ns, p99_ns, max_ns; /* latency of data calls */
    uint64_t storage_p50_ns, storage_p99_ns; /* of reads that did not come at memory speed; 0: none */
    uint64_t top_size[8], top_ops[8];
    unsigned top;
};

/* Requests to object storage, of all ranks; client NULL: none were seen. NAN unknown. */
struct mr_explain_objects {
    const char *client; /* "boto3", "millrace": the library that makes them */
    const char *peer;   /* HOST:PORT that sent most; NULL: our own runs do not tell */
    bool tls;
    double requests, bytes, connections;      /* connections: made meanwhile */
    double connect_s, first_byte_s, answer_s; /* summed: connecting; until the first byte; until the last one */
    double in_flight;                         /* mean, while there is one */
    double retries, slowdowns;
};

/* What the program and the machine are, as far as known; NAN unknown. Rules ask here. */
struct mr_explain_facts {
    const char *program;   /* "millrace run", "python train.py" */
    const char *framework; /* "millrace", "pytorch", "tensorflow", "grain", "jax", "" */
    const char *device;    /* "ext4", "nfs" ...: file system of most read bytes; NULL unknown */
    double ranks, nodes, cpus_per_node, cpus_per_rank, memory_bytes, memory_free_bytes;
    double workers;                        /* readers of one rank; 0: the consumer reads itself */
    double prefetch;                       /* batches ahead of one rank */
    double batch, sample_bytes;            /* rows of a batch; stored bytes of a sample */
    double batch_load_s, batch_load_p99_s; /* t_l: one worker, one batch, from start to ready */
    double batch_read_s, batch_decode_s;   /* of it: storage and metadata; decode, transform, collate */
    double compute_s;                      /* t_c: compute of a step, median */
    double evaluation_workers, evaluation_load_s, evaluation_compute_s,
        evaluation_cpu; /* the same of evaluation's loader and steps */
    double step_s, step_p99_s, stall_p50_s, stall_p99_s, stall_max_s, stalled_steps; /* stalled: share over 5 % */
    double queue_empty; /* share of waits that found no batch ready */
    double in_flight;   /* data reads in flight while there is one, of one rank */
    double epochs, epoch_bytes, dataset_bytes, node_epoch_bytes; /* read per epoch by all / distinct / by one node */
    double files, opens, opens_per_sample, metadata_share;       /* opens: of all files, in training */
    double read_bytes, written_bytes, delivered_bytes;
    double busy_bytes_per_s, wall_bytes_per_s, request_bytes_per_s;
    double au, au_low, au_high, au_cold, ceiling, headroom, samples_per_s;
    double shared_share;  /* of the distinct bytes: read by more than one rank */
    double reread_ratio;  /* bytes read / distinct bytes */
    double first_step_s;  /* first step of an epoch, median of epochs after the first */
    double worker_cpu;    /* share of their busy time that workers spent on a CPU */
    double cold_fraction; /* device bytes / requested bytes */
    double accelerator_idle_share, accelerator_utilisation;
    const char *workload;    /* of our own runs: its name or file, for commands to try; NULL unknown */
    const char *ended_early; /* of our own runs: why; NULL: it ran to its end, or nobody knows */
    const char
        *format; /* "csv", "npz", "tfrecord"...: of our own runs, else by the ending of most bytes; NULL unknown */
    double demand_bytes_per_s; /* what all ranks ask for: bytes of their steps / compute of a step */
    /* What more streams bring (the probe after a run, `calibrate`, or the trace itself where the number of reads in
     * flight changed): bytes per second of the whole job with streams[0] and streams[1] readers of one rank. NAN:
     * nobody tried. */
    double streams[2], stream_bytes_per_s[2];
    /* The time of a read of storage over the reads in flight, of an answer from the network over the answers that are
     * waited for, as logarithms: 0 each has its own share, 1 one rate for all. Slopes, their standard errors. */
    double flight_slope, flight_error, answer_slope, answer_error;
    double knee;             /* readers of one rank beyond which the storage gives no more; NAN unknown */
    double storage_busy;     /* share of the run with at least one data call on storage in flight, mean over ranks */
    double same_offsets;     /* 1: all ranks made the same reads (file, offset, size), in whatever order; NAN: not so */
    double decode_threads;   /* threads of one rank that decode; NAN: those that read */
    double cpu_demand_s;     /* of those that make batches: on a CPU, or ready to run without one */
    double cpu_busy;         /* share of the CPUs of a node that the job used */
    double local_free_bytes; /* free on a local SSD of a node */
    double stripe_count, stripe_bytes; /* of the files with most bytes; NAN: not Lustre */
    double read_ahead_bytes;           /* of the device */
    double harness_samples_per_s;      /* the same run on storage that takes no time */
    double our_sample_s; /* of one thread of our loader, for a picture of this data set, measured here; NAN: not */
    double mapped_bytes, fault_bytes; /* of data files: mapped into memory; seen as page faults */
    double opened_bytes;              /* sizes of data files that were opened and hardly read by calls */
    double checkpoint_bytes_per_s;    /* while saving, of one rank */
    double fast_write_bytes_per_s;    /* of a faster tier with room, of one rank; NAN: none known */
    const char *peer;                 /* HOST:PORT that makers of batches waited for most; NULL: none */
    double net_answer_s, net_transfer_s, net_bytes,
        net_requests; /* of all peers: to the first bytes of an answer, behind
                                                                     them; summed over threads */
    struct mr_explain_objects objects;
    double from[4];        /* with tiers: share of the samples from memory, SSD, peers, the source; NAN without */
    double source_bytes;   /* with tiers: read from the data set's files by all nodes */
    double source_reread;  /* the same over its distinct bytes */
    double bound_spare_s;  /* with tiers: training beyond the bound that is printed beside it */
    bool program_cut;      /* `program` is not the whole command line, or not as it was */
    bool causes_estimated; /* why batches came late is an estimate from the readers' sums */
    bool no_loader;        /* the training loop reads its data itself, or takes it from threads of its own */
    bool persistent;       /* workers live on from epoch to epoch */
    bool team;             /* readers make a batch together (our own loader), not one each */
    bool queued;           /* each reader keeps many requests in flight: more readers are no more of them */
    bool sharded;          /* every rank is to read a part of its own */
    bool shuffled, global_shuffle, counters_only, simulated, own_run, checkpoints, has_steps, has_workers;
};

/* How the program was started; the lists end with NULL. What may be a secret is in no trace. */
struct mr_explain_start {
    const char *folder;       /* NULL unknown */
    const char **command;     /* as it was given to `millrace trace`; empty: the tracer was loaded without it */
    const char **launcher;    /* of the mpirun, srun or torchrun above; empty: none */
    const char **environment; /* NAME=VALUE: what matters to a training, or was set for this run */
};
/* A call by which the program makes a loader or writes a checkpoint. */
struct mr_explain_place {
    const char *call;     /* "torch.utils.data.DataLoader", "torch.save" */
    const char *file;     /* of the program's own code; NULL unknown */
    const char *by;       /* the library that the program calls there, which makes it; NULL: the program itself */
    const char *data_set; /* class of a loader's data set */
    unsigned line, times; /* times: how often it was made like this */
    double loader;        /* number of the first of these loaders, as in steps; NAN: it is no loader */
    double workers, prefetch_factor, batch, persistent, pinned; /* its arguments; NAN: not set, or not known */
    bool trains, evaluates;                                     /* what its batches were for */
};

struct mr_explain_note {
    const char *text;
    bool serious; /* a figure may be wrong because of it */
};
/* Why the waits of a training loop are not known. */
enum mr_blind {
    MR_BLIND_NOT,
    MR_BLIND_HANDOVER, /* it gets its batches from a thread in a way that nobody sees */
    MR_BLIND_ASLEEP,   /* without a loader: it sleeps in no call and no span */
    MR_BLIND_ASYNC,    /* without a loader: the device computes beside the loop, and may have been busy meanwhile */
    MR_BLIND_DECODE,   /* without a loader: what it computes may be decoding */
};
struct mr_explain_trust {
    uint64_t events, lost, gone, recorded, skipped_bytes, sampled_out, untraced;
    uint32_t ranks_missing;                                  /* of the world the ranks name */
    double clock_offset_s, clock_residual_s, overhead_share; /* NAN unknown */
    bool cut, clock_jump;
    bool unfinished;              /* the trace is still being written, or was cut off: a note says which */
    uint8_t blind;                /* enum mr_blind */
    struct mr_explain_note *note; /* limits of the source ("counters only: no stall can be computed"), doubts */
    size_t notes;
};

/* Everything that was recorded is there, as far as the trace tells. */
static inline bool mr_trust_complete(const struct mr_explain_trust *t)
{
    return !t->cut && !t->lost && !t->ranks_missing && !t->unfinished;
}

enum mr_severity { MR_SEVERITY_NOTE, MR_SEVERITY_MINOR, MR_SEVERITY_MAJOR, MR_SEVERITY_CRITICAL };
const char *mr_severity_name(enum mr_severity s); /* "note", "minor", "major", "critical" */

/* What a finding changes, as data: snippets and the command are made from it (src/advise/advise_changes.c). */
#define MR_CHANGE_KINDS(X)                                                                                             \
    X(OPTION, "option")       /* a key of the workload, or an option of `millrace run` ("--cache") */                  \
    X(INJECTION, "injection") /* an argument of a call that the program makes: can be changed while it starts */       \
    X(CODE, "code")           /* lines that somebody has to write */                                                   \
    X(STORAGE, "storage")     /* where or how files lie, or what surrounds the program: a command of the shell */
enum mr_change_kind {
#define MR_CHANGE_ENUM(name, key) MR_CHANGE_##name,
    MR_CHANGE_KINDS(MR_CHANGE_ENUM)
#undef MR_CHANGE_ENUM
        MR_CHANGE_KIND_COUNT
};
/* Whose change it is: the same advice is listed for each framework that has a way to do it. */
#define MR_IDIOMS(X)                                                                                                   \
    X(MILLRACE, "millrace", "our workload file")                                                                       \
    X(PYTORCH, "pytorch", "PyTorch")                                                                                   \
    X(TENSORFLOW, "tensorflow", "tf.data")                                                                             \
    X(ANY, "any", "shell")
enum mr_idiom {
#define MR_IDIOM_ENUM(name, key, text) MR_IDIOM_##name,
    MR_IDIOMS(MR_IDIOM_ENUM)
#undef MR_IDIOM_ENUM
        MR_IDIOM_COUNT
};
struct mr_change {
    uint8_t kind, framework;
    const char *target;    /* what is changed: "workload", "torch.utils.data.DataLoader", "data files" ... */
    const char *key;       /* of the target: "reader.read_threads", "num_workers"; NULL: the target as a whole */
    const char *from, *to; /* from: NULL unknown, or not set. of lines of code and of commands: the text */
    const char *note;      /* a comment to it; NULL */
    const char *file;      /* where the program makes the target; NULL unknown */
    unsigned line;
};

struct mr_finding {
    const char *id; /* "PF1" */
    uint8_t severity;
    double saves_s, saves_low_s, saves_high_s; /* of the wall time; NAN: nobody can say */
    double confidence;                         /* 0 to 1 */
    const char *title;                         /* one line with numbers: the diagnosis */
    const char *evidence;                      /* measured values behind it, a few lines */
    const char *formula;                       /* how saves_s was computed, with the numbers put in */
    const char *fix;                           /* one line: what to change */
    struct mr_change *change;                  /* the same as data, by framework */
    size_t changes;
    const char *snippet[MR_IDIOM_COUNT]; /* made of them, in the framework's language; NULL: none of it */
    const char *command;                 /* a command that exists and tries it; NULL */
    bool potential;                      /* hidden behind compute now: would matter if compute got faster */
    bool counted;  /* saves_s follows from a replay of the counted steps (mr_explanation.counted_to) */
    double adds_s; /* of saves_s: beyond what the findings before this one save already. saves_s is for this change
                      alone; several of one cause do not add up, adds_s do */
};
/* What it saves is what it may save at best: the trace leaves open how much less it is. A number is printed only where
 * its interval is within a quarter of it to either side. */
static inline bool mr_finding_is_bound(const struct mr_finding *f)
{
    return f->saves_s > 0 && f->saves_high_s - f->saves_low_s > 0.5 * f->saves_s;
}

/* A rule that did not fire, and why: for --explain. */
struct mr_silence {
    const char *id, *why;
};

/* INCOMPLETE: what is needed to say is missing. */
#define MR_VERDICT_CLASSES(X)                                                                                          \
    X(HEALTHY, "healthy")                                                                                              \
    X(INPUT, "input-bound")                                                                                            \
    X(CHECKPOINT, "checkpoint-bound")                                                                                  \
    X(IMBALANCE, "imbalance-bound")                                                                                    \
    X(LOGGING, "logging-bound")                                                                                        \
    X(STARTUP, "startup-bound")                                                                                        \
    X(IO, "io-bound") /* counters only, or no steps: most of the time goes to I/O */                                   \
    X(INCOMPLETE, "incomplete")
enum mr_verdict_class {
#define MR_VERDICT_ENUM(name, key) MR_VERDICT_##name,
    MR_VERDICT_CLASSES(MR_VERDICT_ENUM)
#undef MR_VERDICT_ENUM
        MR_VERDICT_CLASS_COUNT
};
struct mr_verdict {
    uint8_t verdict;                  /* enum mr_verdict_class */
    uint8_t cause;                    /* enum mr_stall_cause with the largest share, where there is a stall */
    double stall_share, stall_s;      /* mean over ranks; NAN: counters only */
    double evaluation_s;              /* of stall_s: in steps of evaluation */
    double storage_limit_bytes_per_s; /* what the storage gives at most, where that is less than is asked for; NAN */
    const char *line[3];              /* headline, why, best fix; the last ones may be NULL */
    const char *missing;              /* INCOMPLETE: what */
};

struct mr_explanation {
    struct mr_arena arena;
    const char *source; /* what was explained, as the user named it */
    const char *path;   /* the same for commands to try; NULL: it is not one path */
    uint64_t start_ns;  /* real time */
    uint64_t duration_ns;
    /* Mean over ranks, and the rank with the most stall. stall[] adds up to ns[MR_TIME_STALL]. */
    uint64_t ns[MR_TIME_CLASS_COUNT], stall[MR_STALL_CAUSE_COUNT], wait[MR_WAIT_CLASS_COUNT], behind_ns;
    /* Training window: first step's start to the end of the last step or of the checkpoint behind it, mean over ranks.
     * Shares ("31 % of the time") are of this; start-up and what follows the last step are outside. 0 without steps. */
    uint64_t train_ns;
    uint64_t after_ns;   /* of ns[MR_TIME_OTHER]: behind the training window */
    uint64_t first_ns;   /* of the stall: in the first step of the run, when workers start and nothing is ready yet */
    uint32_t worst_rank; /* index into rank */
    struct mr_explain_rank *rank;
    size_t ranks;
    struct mr_explain_step *step; /* by rank, then time */
    void *step_memory;            /* NULL: the steps are the arena's */
    size_t steps;
    struct mr_explain_batch *batch; /* the first steps of each rank, in their order; at most 10,000 */
    size_t batches;
    struct mr_explain_worker *worker;
    size_t workers;
    struct mr_explain_file *file; /* those with the most bytes; at most 200 */
    size_t files, all_files;
    struct mr_explain_group *group; /* by bytes; at most 50 */
    size_t groups;
    struct mr_explain_field *field; /* by decode and transform; at most 256 */
    size_t fields;
    struct mr_explain_culprit *culprit; /* by lost_ns */
    size_t culprits;
    struct mr_explain_checkpoint *checkpoint;
    size_t checkpoints;
    struct mr_explain_snippet *snippet; /* by time; at most 200 */
    size_t snippets;
    struct mr_explain_snippet_span *snippet_span;
    size_t snippet_spans;
    struct mr_explain_lanes lanes;
    struct mr_explain_timeline timeline;
    struct mr_explain_heat heat;
    struct mr_explain_access *access;
    size_t accesses;
    struct mr_explain_sizes read_sizes, write_sizes;
    double *hit_ratio, *hit_ram_bytes; /* predicted page-cache hit ratio by RAM; hits points */
    size_t hits;
    struct mr_explain_facts facts;
    const struct mr_explain_start *start; /* NULL: the trace does not say */
    struct mr_explain_place *place;       /* of the first rank, in their order; at most 64 */
    size_t places;
    struct mr_explain_trust trust;
    const struct mr_counters *counters; /* of sources without events; NULL: none */
    struct mr_finding *finding;         /* the best first, then what adds most to those before */
    size_t findings;
    struct mr_silence *silence;
    size_t silences;
    struct mr_verdict verdict;
    /* Replays of the advisor count the waits of steps [counted_from, counted_to) of each rank, and take the whole run to
     * be like them; counted_to 0: all steps. */
    uint64_t counted_from, counted_to;
    unsigned unseen_waits; /* bit by wait class: the source does not record such calls */
};

struct mr_explain_options {
    unsigned threads;           /* 0: all CPUs */
    int64_t rank;               /* -1 all */
    int64_t step_from, step_to; /* inclusive; step_from -1: all */
    uint64_t from_ns, to_ns;    /* relative to the trace's first event; to 0 = end */
    const char *source, *path;  /* for `source` and `path`, which may be NULL */
    const char *workload;       /* for facts.workload; may be NULL */
    bool pictures;              /* also timeline, heat, access map: what only the page shows */
    bool snippets;              /* also spans that the program named; pictures have them anyway */
    const atomic_bool *stop;    /* may be NULL */
};

/* Explains a finished trace. Works without steps (then has_steps is false) and without times (counters). */
int mr_explain(const struct mr_trace *t, const struct mr_explain_options *opt, struct mr_explanation **out,
               struct mr_error *err);
void mr_explanation_free(struct mr_explanation *x);

/* The one place of a call, of a loader the one that trains or evaluates; NULL: none, or several. */
const struct mr_explain_place *mr_explain_place_of(const struct mr_explanation *x, const char *call, bool evaluates);

/* A wait of the explanation in seconds; NAN where the source does not record such calls. */
static inline double mr_wait_s(const struct mr_explanation *x, unsigned wait_class)
{
    bool known = x->wait[wait_class] != MR_TIME_UNKNOWN && !(x->unseen_waits >> wait_class & 1);
    return known ? (double)x->wait[wait_class] / 1e9 : (double)NAN;
}

#endif
