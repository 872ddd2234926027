/* The emulated trainer: runs a workload's epochs, evaluations and checkpoints over the public loader and checkpoint
 * interfaces and writes down every step. It prints nothing and computes no metric; src/metrics does that from the
 * series.
 *
 *   board (shared memory of the local ranks)  <── steps, checkpoints, state of every rank ──  mr_bench_run on each rank
 *        └──> live line, summary, results of a job that broke
 *
 * The board outlives any rank: whoever survives can write the result. Under MPI each process has a board of its own and
 * mr_bench_collect brings the series to rank 0 at the end. */
#ifndef MR_BENCH_TRAINER_H
#define MR_BENCH_TRAINER_H

#include "comm/comm.h"
#include "conf/plan.h"
#include "metrics/metrics.h"

#include <millrace/checkpoint.h>
#include <millrace/loader.h>
#include <stdatomic.h>
#include <sys/types.h>

struct mr_events;

enum mr_bench_compute { MR_COMPUTE_SLEEP, MR_COMPUTE_SPIN, MR_COMPUTE_GEMM };
enum mr_bench_cache { MR_CACHE_ASIS, MR_CACHE_COLD, MR_CACHE_WARM };

/* What a rank is doing now; one list gives the code and the words of "every rank waits for". */
#define MR_BENCH_STATES(X)                                                                                             \
    X(MR_BENCH_START, "starting")                                                                                      \
    X(MR_BENCH_CACHE, "preparing the page cache")                                                                      \
    X(MR_BENCH_PRELOAD, "reading the data set into memory")                                                            \
    X(MR_BENCH_LOAD, "waiting for a batch")                                                                            \
    X(MR_BENCH_COMPUTE, "computing")                                                                                   \
    X(MR_BENCH_BARRIER, "waiting for the other ranks")                                                                 \
    X(MR_BENCH_SAVE, "writing a checkpoint")                                                                           \
    X(MR_BENCH_RESTORE, "reading a checkpoint")                                                                        \
    X(MR_BENCH_PAUSE, "pausing between checkpoints")                                                                   \
    X(MR_BENCH_OPEN, "opening the data set")                                                                           \
    X(MR_BENCH_REDUCE, "summing gradients over the ranks")                                                             \
    X(MR_BENCH_OUTPUT, "writing its output files")                                                                     \
    X(MR_BENCH_DRAIN, "waiting for the burst buffer to drain")                                                         \
    X(MR_BENCH_KEEP, "copying samples to the SSD for the next run")                                                    \
    X(MR_BENCH_DONE, "done")
enum mr_bench_state {
#define MR_BENCH_STATE_ENUM(name, text) name,
    MR_BENCH_STATES(MR_BENCH_STATE_ENUM)
#undef MR_BENCH_STATE_ENUM
};
const char *mr_bench_state_text(enum mr_bench_state s);

/* What the fields of samples cost; where there are more, the last one is the sum of the others. */
#define MR_BENCH_FIELDS 64u
struct mr_bench_fields {
    uint32_t n;
    struct mr_bench_field {
        char name[64];
        uint64_t samples, stored_bytes, bytes, decode_ns, transform_ns;
    } field[MR_BENCH_FIELDS];
};
/* The field of that name, made if it is not there. */
struct mr_bench_field *mr_bench_field(struct mr_bench_fields *f, const char *name);
void mr_bench_fields_add(struct mr_bench_fields *sum, const struct mr_bench_fields *one);

struct mr_bench_loader_stats {
    struct mr_loader_stats stats; /* its limiter is not used: pointers do not travel */
    struct mr_bench_fields fields;
    char limiter[16];
    char chosen[192]; /* tiers and policy, as the loader says them */
};

/* One rank on the board. Written by that rank only; counters last, so what they cover is complete. */
struct mr_bench_rank {
    _Atomic uint32_t state;
    _Atomic uint64_t since_ns; /* monotonic: when it entered the state */
    _Atomic uint64_t beats;    /* counts up while its process runs (bench_pulse.h) */
    _Atomic uint64_t n_steps, n_checkpoints, n_drains;
    _Atomic uint64_t origin_ns;                                /* monotonic time of the series' 0 */
    _Atomic uint64_t compute_ns, wall_ns, samples, read_bytes; /* training so far, for the live line */
    pid_t pid;
    struct mr_bench_loader_stats loader;
    uint64_t peak_rss_bytes;
    uint64_t rows_crc; /* with MR_LOADER_VERIFY: sum of the CRC-32C of every row the trainer got */
    double preload_s;
    uint64_t drain_wait_ns,
        drains_left; /* burst buffer: waited for it outside of saves; checkpoints in it at the end */
    struct mr_bench_cold {
        uint64_t cold_bytes, total_bytes, unknown_files;
    } cold; /* of this rank's part of the files, whenever the cache was prepared; where checkpoints are read back,
               before each */
};

struct mr_bench_board {
    _Atomic uint32_t stop; /* end soon, whatever the reason */
    uint32_t world;
    _Atomic bool in_use; /* a thread that could not be ended may still look at it: never unmapped */
    uint64_t step_cap, checkpoint_cap, drain_cap;
    size_t map_bytes;
    struct mr_bench_rank *ranks;
    struct mr_step *steps;                   /* [world][step_cap] */
    struct mr_checkpoint_event *checkpoints; /* [world][checkpoint_cap] */
    struct mr_drain_event *drains;           /* [world][drain_cap] */
};

/* Room for `world` ranks; memory is only used as it is written. */
int mr_bench_board_create(uint32_t world, uint64_t steps, uint64_t checkpoints, struct mr_bench_board **out,
                          struct mr_error *err);
void mr_bench_board_free(struct mr_bench_board *b);
/* The series of all ranks; `out` has room for b->world. */
void mr_bench_board_series(const struct mr_bench_board *b, struct mr_rank_series *out);

struct mr_bench_params {
    const struct mr_workload *workload;
    const struct mr_workload_plan *plan;
    struct mr_comm *comm;
    struct mr_bench_board *board;
    const atomic_bool *stop; /* of this process */
    const char *data;        /* folder with train/ and valid/ */
    uint64_t first_files[2]; /* of train/ and valid/, only so many files; 0 = all */
    const char *store;       /* storage stack; "{rank}" in it becomes the rank's number */
    const char *checkpoint_folder, *checkpoint_store;
    const char *output_folder; /* of pattern.outputs; written through checkpoint_store */
    unsigned threads;          /* 0 = reader.read_threads */
    int64_t lookahead;         /* batches; -1 = reader.prefetch_size */
    enum mr_loader_io io;
    enum mr_bench_compute compute;
    bool preprocess_sleeps; /* emulate preprocessing without using the CPU */
    bool device_copy;       /* copy each batch into a second buffer, as a host-to-device transfer would */
    unsigned loader_flags;  /* enum mr_loader_flags */
    uint64_t seed;
    enum mr_bench_cache cache;
    bool cache_each_epoch;
    unsigned keep_last;
    uint64_t checkpoint_every_ns; /* 0 = not by time */
    uint64_t max_ns;              /* stop after so long; 0 = run to the end */
    uint64_t rank_timeout_ns;     /* a rank whose process does nothing for so long is lost; 0 = never */
    struct mr_events *events;     /* where this rank tells what it does (event/emit.h); or NULL */
    bool calls_only; /* access patterns: only the calls matter. Items that no batch needs are read, too, and what was
                        read is dropped */
    uint64_t checkpoint_buffer_bytes; /* of a writer of checkpoints: the largest write; 0 = 4 MiB */
    void (*tick)(void *user);         /* called five times a second by a thread of its own; or NULL */
    void *tick_user;
};

/* Collective. Returns when all is done, or with the job's error: MR_E_INTERRUPTED after a stop, MR_E_PEER when a rank
 * died, the failing rank's own error otherwise. The board holds what was measured until then. */
int mr_bench_run(const struct mr_bench_params *p, struct mr_error *err);
/* Collective. Makes rank 0's board complete where ranks have boards of their own. */
int mr_bench_collect(struct mr_comm *c, struct mr_bench_board *b, struct mr_error *err);

/* ---- parts, for tests and other uses ---- */

/* The data set that training or evaluation reads, for mr_dataset_open. */
void mr_bench_set_path(const struct mr_bench_params *p, bool eval, char *out, size_t cap);

/* Draw `counter` of a distribution, in its unit (seconds); negative draws are folded, as DLIO does. */
double mr_bench_draw(const struct mr_dist *d, uint64_t seed, uint64_t stream, uint64_t counter);
/* Keeps the CPU or the clock busy for `ns`; returns early when *stop is set. Returns the time that counts as compute.
 */
uint64_t mr_bench_compute(enum mr_bench_compute kind, uint64_t ns, const _Atomic uint32_t *stop);
/* The files rank `rank` of plan->ranks writes at a checkpoint. *out is malloc'ed (NULL for none). */
int mr_bench_checkpoint_files(const struct mr_workload *w, const struct mr_workload_plan *p, uint32_t rank,
                              struct mr_checkpoint_file **out, uint64_t *n, struct mr_error *err);
/* What reader.policy and reader.tiers of a workload amount to with `threads` reading threads (0: reader.read_threads):
 * decided here for the trainer, the dry run and the prediction. Without either key threads stage, and none is "naive".
 * Errors: those of mr_loader_choose. */
int mr_bench_choose_policy(const struct mr_workload *w, unsigned threads, struct mr_loader_choice *out,
                           struct mr_error *err);
/* The loader's parameters that follow from a workload; strings are borrowed. */
void mr_bench_loader_params(const struct mr_bench_params *p, bool eval, struct mr_loader_params *out);
/* What reader.preprocess asks for: 1 and the parameters, 0 when nothing, MR_E_CONFIG for what makes no sense. An
 * evaluation draws nothing at random: crops come from the middle, parts of random size are the whole picture, nothing
 * is flipped. */
int mr_bench_preprocess_params(const struct mr_workload *w, bool eval, uint64_t seed, struct mr_preprocess_params *out,
                               struct mr_error *err);
/* Makes this rank's share of a data set's files cold or warm, and measures how much of them is outside the page cache.
 */
int mr_bench_set_cache(const char *dataset, enum mr_bench_cache mode, uint32_t rank, uint32_t world,
                       const _Atomic uint32_t *stop, struct mr_bench_cold *cold, struct mr_error *err);
/* The same before a checkpoint is read back: COLD drops the pages of all checkpoints in the folder, this rank's share
 * of the files; what was cold is added to *cold. Every rank must be done before one reads. */
int mr_bench_checkpoint_cache(const char *folder, enum mr_bench_cache mode, uint32_t rank, uint32_t world,
                              struct mr_bench_cold *cold, struct mr_error *err);

#endif
