/* What the files of an explanation share. A trace goes through them in this order:
 *
 *   explain_names.c    words
 *   explain_sites.c    sites, argument names and paths of every process, made global; ranks and threads
 *   explain_gather.c   first pass: spans that come a few times for each batch
 *   explain_jit.c      which compiled functions of JAX's are steps
 *   explain_logs.c     what the thread that trains reads and writes for itself
 *   explain_hand.c     waits of a loop that has no data loader: a pass over the thread that trains
 *   explain_steps.c    waits, steps, and what each rank's time went to
 *   explain_own.c      the same of a run of our own trainer
 *   stall_match.c      which worker made the batch of a wait, when it was asked for, what is to be asked of its calls
 *   explain_scan.c     second pass: every call, in rounds over time
 *   stall_pieces.c     of one thread: what its time went to, piece by piece
 *   explain_calls.c    of one thread: sums, sizes, files, pictures
 *   explain_unions.c   unions over the threads of a rank
 *   stall_helpers.c    threads and processes that work while the maker of a batch sleeps
 *   stall_cause.c      why each wait took as long as it did
 *   explain_culprits.c who made whom wait
 *   explain_files.c, explain_facts.c, explain_batches.c, explain_ranks.c, explain_places.c, explain_trust.c   what is left
 *
 * Invariants
 *  X1. The classes of a rank's time are disjoint and add up to its window.
 *  X2. The causes of a step's stall add up to its stall.
 *  X3. Pieces of a thread are disjoint: a call inside a span is counted once, as the call.
 *  X4. A thread's calls are looked at by one worker at a time and in order; what is kept by thread needs no lock. */
#ifndef MR_EXPLAIN_EXPLAIN_INTERNAL_H
#define MR_EXPLAIN_EXPLAIN_INTERNAL_H

#include "analyze/region_rules.h"
#include "analyze/run_trace.h"
#include "base/histogram.h"
#include "base/map.h"
#include "base/vec.h"
#include "event/fd_class.h"
#include "explain/explain.h"
#include "explain/explain_flight.h"
#include "metrics/intervals.h"

#define NO_INDEX UINT32_MAX
#define UNKNOWN MR_TIME_UNKNOWN

/* Arguments of spans that mean something here. */
#define EXPLAIN_KEYS(X)                                                                                                \
    X(BATCH, "batch")                                                                                                  \
    X(EPOCH, "epoch")                                                                                                  \
    X(STEP, "step")                                                                                                    \
    X(LOADER, "loader")                                                                                                \
    X(WORKER, "worker")                                                                                                \
    X(WORKERS, "workers")                                                                                              \
    X(PREFETCH, "prefetch")                                                                                            \
    X(ROWS, "rows")                                                                                                    \
    X(BYTES, "bytes")                                                                                                  \
    X(CPU, "cpu_ns")                                                                                                   \
    X(DELAY, "delay_ns")                                                                                               \
    X(THREADS, "threads_ns")                                                                                           \
    X(THREADS_DELAY, "threads_delay_ns")                                                                               \
    X(BETWEEN, "between_ns")                                                                                           \
    X(AWAKE, "awake_ns")                                                                                               \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(MEMORY_COPY, "memory")                                                                                           \
    X(EVALUATES, "evaluates")                                                                                          \
    X(FORWARD, "forward_ns")                                                                                           \
    X(DEVICE, "device")                                                                                                \
    X(READERS, "readers")                                                                                              \
    X(READ, "read_ns")                                                                                                 \
    X(DECODE, "decode_ns")                                                                                             \
    X(TRANSFORM, "transform_ns")                                                                                       \
    X(IDLE, "idle_ns")                                                                                                 \
    X(FAULTS, "major_faults")                                                                                          \
    X(CPUS, "cpus")                                                                                                    \
    X(MEMORY, "memory_bytes")                                                                                          \
    X(LOCAL_FREE, "local_free_bytes")                                                                                  \
    X(MEMORY_FREE, "memory_free_bytes")                                                                                \
    X(RANK, "rank")                                                                                                    \
    X(WORLD, "world")
enum explain_key {
#define EXPLAIN_KEY_ENUM(name, text) KEY_##name,
    EXPLAIN_KEYS(EXPLAIN_KEY_ENUM)
#undef EXPLAIN_KEY_ENUM
        KEYS
};
/* More of them, of places alone. */
#define EXPLAIN_PLACE_KEYS(X)                                                                                          \
    X(FILE, "file")                                                                                                    \
    X(LINE, "line")                                                                                                    \
    X(BY, "by")                                                                                                        \
    X(DATA_SET, "data_set")                                                                                            \
    X(FACTOR, "prefetch_factor")                                                                                       \
    X(PERSISTENT, "persistent_workers")                                                                                \
    X(PINNED, "pin_memory")                                                                                            \
    X(BATCH_SIZE, "batch_size")
enum explain_place_key {
    KEY_BEFORE_PLACES = KEYS - 1,
#define EXPLAIN_KEY_ENUM(name, text) KEY_##name,
    EXPLAIN_PLACE_KEYS(EXPLAIN_KEY_ENUM)
#undef EXPLAIN_KEY_ENUM
        KEYS_ALL
};

/* A span of the first pass. */
struct explain_span {
    uint64_t start, end;
    uint64_t place; /* of its event in the trace: what else is equal is in this order, whoever read it first */
    uint32_t lane, rank;
    uint8_t role;
    uint64_t arg[KEYS]; /* UNKNOWN where it has none */
};

/* The program makes something: explain_places.c. */
struct explain_place {
    uint64_t place; /* as explain_span's */
    uint32_t lane, site;
    uint64_t arg[KEYS_ALL]; /* texts: ids of strings; UNKNOWN */
};

/* What a loader told of a field so far. `process`: its lane until all are together. */
struct explain_cost {
    uint32_t process, key; /* key: of the string NAME:MEASURE */
    uint64_t loader, value;
};

/* A worker makes a batch, or its part of one: from its first row to its last. */
struct explain_make {
    uint64_t start, end, place;           /* place: as explain_span's */
    uint64_t epoch, batch, loader;        /* UNKNOWN */
    uint64_t cpu_ns;                      /* on a CPU, or ready to run without one; UNKNOWN */
    uint64_t delay_ns;                    /* of cpu_ns: without one */
    uint64_t threads_ns;                  /* CPU time of other threads of the process */
    uint64_t threads_delay;               /* they were ready to run, without one */
    uint64_t bytes;                       /* read for it; second pass */
    uint64_t faults;                      /* on pages that had to be read from a disk */
    uint64_t cause[MR_STALL_CAUSE_COUNT]; /* pieces; second pass */
    uint32_t lane, worker;                /* worker: number the program gave it, NO_INDEX unknown */
    bool own;                             /* rows of our own loader: between them is no work */
    bool item;                            /* one sample, of which batch nobody knows */
    bool far;                             /* a task of a cluster's worker */
    bool task;                            /* of a pool: an item, where a loop without a loader waits for it */
};

/* What the threads of our own loader did so far, all together, when a batch was ready; readers UNKNOWN: not told. */
struct explain_readers {
    uint64_t readers, read, decode, transform, idle;
};

/* A wait of the consumer. */
struct explain_wait {
    uint64_t start, end;
    uint64_t epoch, batch, loader, rows, bytes, workers, prefetch;
    uint64_t begun;     /* when its epoch began: nobody could have asked for the batch before */
    uint64_t requested; /* when the batch was asked for; UNKNOWN */
    uint64_t ready;     /* batch ready, of our own loader; UNKNOWN */
    struct explain_readers sums;
    uint64_t idle;                   /* of the accelerator; UNKNOWN */
    uint64_t cpu;                    /* time that the process spent on CPUs meanwhile; UNKNOWN */
    uint64_t between;                /* other threads' since the wait before; UNKNOWN */
    uint64_t threads;                /* without a loader: CPU time of other threads of the process */
    uint64_t threads_delay;          /* those were ready to run without a CPU */
    uint64_t own_delay;              /* of own_cpu: ready to run, and others had the CPUs */
    uint64_t own_cpu;                /* without a loader: on a CPU, or ready to run; UNKNOWN */
    uint64_t faults;                 /* without a loader: on pages that had to be read */
    uint32_t rank, lane, step, make; /* step: index, NO_INDEX: none; make: of the part that was ready last */
    bool last;                       /* the iterator had no more: not a wait for data */
    bool taken;                      /* without a loader: something that others made, which nobody followed */
};

/* A part of a wait in which a worker did something: what, the second pass finds out. */
struct explain_ask {
    uint64_t start, end;
    uint64_t cause[MR_STALL_CAUSE_COUNT];
    uint64_t longest; /* of its calls on a file, and which */
    uint32_t lane, make, wait, file;
    bool behind; /* it was with an earlier batch */
    bool beside; /* any thread, of which nobody knows for which batch it worked */
};

#define EXPLAIN_STREAMS 512u /* files that a thread reads at once and that are followed; a power of two */
#define EXPLAIN_COVERED 8192u
#define EXPLAIN_BYTE_PARTS 256u

/* Where a thread stands in an open file. */
struct explain_stream {
    uint32_t file; /* + 1; 0 free */
    uint16_t fd;
    uint8_t started;
    uint8_t direct;            /* opened with O_DIRECT */
    uint64_t at;               /* position of the descriptor */
    uint64_t first;            /* where the pass began */
    uint64_t end, start, size; /* of the last read: its end, where it began, how long it was */
    int64_t stride;
};

/* A checkpoint, with what the second pass finds out. */
struct explain_save {
    struct mr_explain_checkpoint c;
    uint64_t most; /* bytes of one write, and to which file */
    uint32_t lane, file;
};

/* A thread. */
struct explain_lane {
    uint32_t process, tid, rank, worker; /* worker: index into x->worker, NO_INDEX: it makes no batches */
    size_t chunk, chunks;
    uint64_t first_ns, last_ns;
    uint32_t make, makes, ask, asks; /* its parts of job.make and job.ask, by start */
    uint32_t save, saves;            /* its part of job.checkpoint, by start */
    bool consumer, serves_all;       /* serves_all: a helper of a process in which nobody makes batches */
    /* second pass */
    uint32_t make_at, ask_at, save_at;
    bool net_asked;              /* it has sent something on a socket and got nothing back yet */
    uint64_t poll_from, poll_to; /* waited for any of several descriptors: for that of the next call; to 0: none */
    struct mr_interval *covered; /* the last pieces, disjoint, by start */
    uint32_t n_covered;
    uint64_t floor; /* what lies before is forgotten */
    struct explain_stream *stream;
    struct explain_talk *talk; /* explain_objects.c */
    struct mr_map sizes;       /* of reads: how often each came; the first few thousand different ones */
    struct mr_intervals set[MR_WAIT_CLASS_COUNT]; /* calls of this round */
    bool apart[MR_WAIT_CLASS_COUNT];              /* the list is not normal */
    MR_VEC(struct mr_explain_lane_span) piece;    /* in the window of the slow step */
};

struct explain_file {
    const char *path; /* not NUL-terminated */
    const char *fs;
    uint32_t len;
    uint8_t kind; /* enum mr_fd_class */
    bool saved;   /* written behind a save into memory: explain_logs.c */
    bool log;     /* the training thread's own: explain_logs.c */
    bool state;   /* a checkpoint written by hand: explain_logs.c */
    bool code;    /* a module of the program, or what the kernel tells of the machine: no data */
};

/* Counters of a file, in one worker of the second pass. */
struct explain_tally {
    uint64_t read_bytes, written_bytes, reads, writes, opens, calls, dur_ns, end;
    uint64_t small_reads, consecutive, sequential, streamed, strided, same_size;
    uint64_t ranks;                                                   /* bits, by rank modulo 64 */
    uint64_t net_answer_ns, net_transfer_ns, net_bytes, net_requests; /* sockets: explain_calls.c */
    uint64_t maps, faulted; /* into memory; bytes of read_bytes that page faults tell of */
    bool for_batch, for_checkpoint;
};

/* Where a step of a loop without a loader begins. */
struct explain_begin {
    uint64_t at;
    bool evaluates;
};

struct explain_rank {
    struct mr_intervals compute;                    /* normal */
    struct mr_intervals carry[MR_WAIT_CLASS_COUNT]; /* what reaches into the next round */
    struct mr_intervals save;                       /* blocked by a checkpoint */
    struct mr_intervals log;                        /* the consumer's own logs and settings */
    struct mr_intervals state;                      /* the consumer writes checkpoints by hand */
    struct mr_intervals held;                       /* the consumer waits for saves of its rank's other threads */
    uint64_t from, to;                              /* looked at */
    uint64_t train_from;                            /* the first step begins; 0 without steps */
    uint32_t consumer;                              /* lane; NO_INDEX: none */
    uint32_t passer;                                /* lane that waits for the loader and hands over; NO_INDEX: none */
    MR_VEC(struct explain_begin) begin;             /* without a loader */
    uint64_t trained;                               /* without a loader: the last step ends */
    bool hand;                                      /* it has no loader: explain_hand.c */
    uint8_t rest;                                   /* enum mr_time_class: what nothing says of the time of a step */
    uint32_t span, spans, wait, waits, step, steps; /* its parts of job.span, job.wait, job.step */
    uint64_t union_ns, in_compute_ns;               /* of calls on storage; second pass */
    size_t compute_at;                              /* intervals before it end before the round */
};

/* Counters of one rank in one worker. */
struct explain_sums {
    uint64_t extents,
        extent_reads; /* sum of hashes of (file, offset, size) of reads: equal for ranks that read the same */
    uint64_t read_bytes, written_bytes, read_calls, write_calls, metadata_calls, io_sum_ns;
};

/* Who is at the other end of sockets: explain_objects.c. */
struct explain_peer {
    uint32_t file;
    uint64_t requests, bytes, first_byte_ns, answer_ns, connects, connect_ns;
    uint64_t reads, headers; /* headers: reads that brought five bytes */
};

struct explain_worker {
    struct mr_event_batch batch;
    struct explain_sums *sums; /* by rank */
    struct explain_tally *file;
    struct mr_explain_sizes read, write;
    struct mr_histogram *read_time, *write_time, *storage_time; /* storage: reads that were not of memory */
    /* Bytes in units of 1/EXPLAIN_BYTE_PARTS, and ns: sums of whole numbers are the same in any order. */
    uint64_t *read_bins, *write_bins, *flight_bins, *heat_read, *heat_write;
    MR_VEC(struct mr_explain_access) access; /* those whose hash is a multiple of access_every, a power of two */
    struct explain_snippets *snippets;
    uint64_t access_every;
    struct explain_flight flight, answers; /* reads of storage; waits for answers from the network */
    struct explain_flight requests;        /* on sockets: explain_objects.c */
    struct mr_map peer_of;                 /* of a file + 1: place in `peer`, plus one */
    MR_VEC(struct explain_peer) peer;
    MR_VEC(struct explain_span) span; /* first pass */
    MR_VEC(struct explain_make) make;
    MR_VEC(struct explain_place) place;
    MR_VEC(struct explain_cost) cost;
    struct mr_intervals scratch;
};

struct explain_job {
    const struct mr_trace *t;
    const struct mr_explain_options *opt;
    struct mr_explanation *x;
    struct mr_run_trace *run; /* of our own trainer; NULL: none in the trace */
    /* names, by process; processes with one table of strings share them */
    struct mr_region_class **site;
    uint8_t **key; /* + 1 */
    uint32_t **file_of;
    uint16_t **snippet_of;  /* + 1; 0: not named by the program, or one of too many */
    struct mr_map snippets; /* by category and name: number + 1 */
    uint32_t named;         /* snippets that have numbers */
    bool *owns, *kept;      /* made its tables; has spans of the first pass */
    struct mr_map paths;
    MR_VEC(struct explain_file) file;
    size_t root;       /* process that one would start to see it again */
    int32_t *number;   /* of the rank that a process is, by process; -1: nobody says */
    int32_t world;     /* ranks of the job; 0: nobody says */
    uint32_t *rank_of; /* by process; NO_INDEX: in none */
    struct explain_rank *rank;
    uint32_t ranks;
    struct explain_lane *lane;
    uint32_t lanes;
    uint32_t *lane_of; /* by chunk */
    struct explain_worker *worker;
    unsigned workers;
    MR_VEC(struct explain_span) span; /* by rank, then start */
    MR_VEC(struct explain_make) make; /* by lane, then start */
    MR_VEC(struct explain_place) place;
    MR_VEC(struct explain_wait) wait; /* by rank, then start */
    MR_VEC(struct explain_ask) ask;
    MR_VEC(struct mr_explain_step) step;
    MR_VEC(struct explain_save) checkpoint; /* by thread, then start */
    uint32_t *order;                        /* chunks by time */
    size_t ordered, first_chunk;
    MR_VEC(uint32_t) unit; /* of a round: chunks by thread; units begin where unit_first says */
    MR_VEC(uint32_t) unit_first;
    uint64_t round_end;
    uint64_t bin_ns, column_ns;
    uint32_t bins, columns, rows, ranks_per_row;
    uint8_t call_kind[MR_CALL_COUNT], call_layer[MR_CALL_COUNT];
    uint64_t slow_from, slow_to; /* window of the step that the page shows thread by thread; to 0: none */
    uint32_t slow_rank, slow_step;
    uint8_t blind;           /* enum mr_blind */
    bool compiled;           /* steps are calls of compiled functions (JAX) */
    bool unmatched;          /* batches of waits have no numbers: matched by order */
    bool summed;             /* causes of some waits are from sums over readers */
    MR_VEC(uint32_t) helper; /* lanes: stall_helpers.c */
    struct {                 /* ns: makers asleep in waits; of it, what helpers read meanwhile */
        double asleep, reads;
    } helped;
    struct { /* of waits whose causes are from what all threads did meanwhile, in ns and in sum: the waits, CPU
                       time in them and between them, calls in them */
        double waits, cpu, between, io;
        size_t n, told; /* told: those that say what happened since the wait before */
    } beside;
};

static inline uint64_t explain_span_ns(uint64_t start, uint64_t end)
{
    return end > start ? end - start : 0;
}

/* ---- explain_sites.c; 0 or -ENOMEM ---- */
int mr_explain_gather_names(struct explain_job *j);
int mr_explain_gather_lanes(struct explain_job *j);

/* ---- explain_gather.c ---- */
int mr_explain_gather_spans(struct explain_job *j, struct mr_error *err);
/* After makes were added: their order, and the parts of the threads. */
void mr_explain_sort_makes(struct explain_job *j);

/* ---- explain_jit.c: before anything else looks at spans ---- */
int mr_explain_find_jits(struct explain_job *j);
/* Without a loader: whether the device may have computed while the loop waited so long for its data. */
bool mr_explain_device_overlaps(const struct explain_job *j, uint32_t rank, uint32_t lane, uint64_t waits);

/* ---- explain_ranks.c ---- */
int mr_explain_assign_ranks(struct explain_job *j);
int mr_explain_finish_ranks(struct explain_job *j);

/* ---- explain_culprits.c ---- */
int mr_explain_find_culprits(struct explain_job *j);

/* ---- explain_waits.c ---- */
int mr_explain_find_waits(struct explain_job *j);
/* What others tell of the waits of a rank: idle time of its accelerator, batches that are ready. */
void mr_explain_place_facts(struct explain_job *j, const struct explain_rank *r);

/* ---- explain_hand.c ---- */
int mr_explain_find_hand(struct explain_job *j, struct mr_error *err);
/* The one thread with the optimiser's steps, of a rank without a loader; NO_INDEX: none. */
uint32_t mr_explain_trainer_of(const struct explain_job *j, const struct explain_rank *r);

/* ---- explain_logs.c: before explain_hand.c, whose data they are not ---- */
int mr_explain_find_logs(struct explain_job *j, struct mr_error *err);

/* ---- stall_match.c ---- */
int mr_explain_match(struct explain_job *j);
/* After the steps are known: what the second pass is to find out. */
int mr_explain_ask(struct explain_job *j);

/* ---- stall_helpers.c ---- */
int mr_explain_find_helpers(struct explain_job *j);
double mr_explain_span_sleep(const struct explain_make *m);
bool mr_explain_helps(const struct explain_lane *helper, const struct explain_lane *l);
void mr_explain_follow_helpers(struct explain_job *j, const uint64_t beside[MR_STALL_CAUSE_COUNT],
                               const uint64_t cpu[2], unsigned from, uint64_t cause[MR_STALL_CAUSE_COUNT]);

/* ---- explain_steps.c, explain_own.c ---- */
int mr_explain_find_steps(struct explain_job *j);
int mr_explain_own_steps(struct explain_job *j);
/* Leaves the steps that are wanted, and narrows the ranks' windows to them. */
void mr_explain_choose_steps(struct explain_job *j);

/* ---- explain_paint.c ---- */
/* A span of a rank's time; where they overlap the one of the highest priority counts. */
struct explain_paint {
    uint64_t start, end;
    uint8_t what; /* enum mr_time_class */
};
int mr_explain_paint(struct explain_job *j, uint32_t rank, const struct explain_paint *paint, size_t n);

/* ---- explain_scan.c ---- */
int mr_explain_scan(struct explain_job *j, struct mr_error *err);

/* ---- stall_pieces.c: 0, or -1 without memory ---- */
int mr_explain_piece(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                     enum mr_stall_cause cause, uint32_t file, uint64_t bytes);

/* ---- explain_calls.c ---- */
/* enum mr_wait_class: what a call waited for; MR_WAIT_CLASS_COUNT: nothing that counts. */
unsigned mr_explain_wait_class(const struct explain_job *j, unsigned call, unsigned fd, uint64_t dur, int64_t result);
/* Points of the access map are thinned by a hash of what they are, so that the order in which they come does not matter:
 * those stay whose hash is a multiple of `every`, a power of two. Returns how many. */
#define EXPLAIN_EVERY_MOST (1ull << 40) /* equal points cannot be thinned */
uint64_t mr_explain_access_hash(const struct mr_explain_access *a);
size_t mr_explain_thin_access(struct mr_explain_access *a, size_t n, uint64_t every);
int mr_explain_lane_chunk(struct explain_job *j, struct explain_worker *w, struct explain_lane *l,
                          const struct mr_event_batch *b);

/* ---- explain_objects.c: requests to object storage; 0 or -ENOMEM ---- */
int mr_explain_object_call(const struct explain_job *j, struct explain_worker *w, struct explain_lane *l,
                           const struct mr_event_batch *b, uint32_t i, uint32_t file);
int mr_explain_find_objects(struct explain_job *j);

/* ---- explain_unions.c ---- */
int mr_explain_unite(struct explain_job *j, struct mr_error *err);

/* ---- stall_cause.c ---- */
int mr_explain_attribute_stalls(struct explain_job *j);
/* Of a make: how long it waited for pages of mapped files, as far as its page faults account for that. */
double mr_explain_fault_ns(const struct explain_make *m);
/* Of a make's reads: as long as they lasted because the thread had no CPU, and not because of a storage. */
uint64_t mr_explain_stretched_ns(const struct explain_make *m);

/* ---- explain_checkpoints.c ---- */
int mr_explain_find_checkpoints(struct explain_job *j);
/* Whether two spans that save, one after the other, are parts of one checkpoint. */
bool mr_explain_same_save(const struct explain_job *j, const struct explain_span *a, const struct explain_span *b);
/* A write or fsync of a thread that saves; true if it belongs to a checkpoint. */
bool mr_explain_count_save(struct explain_job *j, struct explain_lane *l, unsigned kind, uint64_t start, uint64_t end,
                           uint64_t bytes, uint32_t file);
int mr_explain_finish_checkpoints(struct explain_job *j);

/* ---- explain_lanes.c: the threads of one slow step ---- */
void mr_explain_choose_slow(struct explain_job *j);
void mr_explain_keep_piece(struct explain_job *j, struct explain_lane *l, uint64_t start, uint64_t end,
                           enum mr_stall_cause cause);
int mr_explain_finish_lanes(struct explain_job *j);

/* ---- explain_snippets.c: spans that the program named ---- */
int mr_explain_number_snippet(struct explain_job *j, size_t process, uint32_t site,
                              const struct mr_trace_string *category, const struct mr_trace_string *name);
int mr_explain_count_snippet(struct explain_job *j, struct explain_worker *w, const struct explain_lane *l,
                             uint32_t site, uint64_t start, uint64_t end);
int mr_explain_finish_snippets(struct explain_job *j);
void mr_explain_snippets_free(struct explain_snippets *s);

/* ---- explain_files.c, explain_facts.c, explain_trust.c ---- */
int mr_explain_finish_files(struct explain_job *j);
int mr_explain_finish_pictures(struct explain_job *j);
int mr_explain_finish_sizes(struct explain_job *j);
int mr_explain_facts(struct explain_job *j);
/* x->batch. */
int mr_explain_batches(struct explain_job *j);
void mr_explain_unknown_facts(struct mr_explain_facts *f);
int mr_explain_trust(struct explain_job *j);
/* A copy that is valid UTF-8. */
const char *mr_explain_clean_name(struct mr_arena *a, const char *text, size_t len);

/* ---- explain_places.c: how the program was started, and where it makes what findings speak of ---- */
int mr_explain_places(struct explain_job *j);

/* ---- explain_fields.c: x->field ---- */
int mr_explain_fields(struct explain_job *j);

/* ---- explain_disk.c ---- */
void mr_explain_disk(struct explain_job *j, const struct explain_tally *tally);

/* ---- explain_counters.c ---- */
/* Of a log of counters: what it tells; nothing for other sources. */
int mr_explain_counters(struct explain_job *j);

#endif
