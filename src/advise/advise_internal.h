/* Inside the advisor: what every rule gets, and how it answers.
 *
 * To add a rule: write `bool mr_rule_xy1(struct mr_advice *a, struct mr_draft *d)` in the rule_*.c of its subject, and
 * give it a row in MR_RULES: id, the seconds it may claim, its condition in words. The function looks at the
 * explanation only (a pure function, no clock, no files) and either
 *   - fills the draft and returns true: title, fix, formula, saves (low, high), confidence; or
 *   - returns mr_silent(a, "why"): every rule that does not fire says why, for `report --explain`.
 * What happens to the draft then (advise.c) is the same for all rules: the impact gate, severity, order.
 *
 * A1 A rule claims at most the seconds of its pools: time that was lost to what it blames. Where nobody waited, the
 *    finding is a note ("potential").
 * A2 adds_s of all findings that share a pool sum up to no more than the pool.
 * A3 What the trace cannot tell (NAN) never makes a rule fire. */
#ifndef MR_ADVISE_ADVISE_INTERNAL_H
#define MR_ADVISE_ADVISE_INTERNAL_H

#include "advise/advise.h"

#include <math.h>

/* What a finding can give back: bits 0 to MR_STALL_CAUSE_COUNT - 1 are the causes of the data stall. */
#define MR_POOL(cause) (1u << MR_STALL_##cause)
enum {
    MR_POOL_CHECKPOINT = 1u << MR_STALL_CAUSE_COUNT,
    MR_POOL_BARRIER = MR_POOL_CHECKPOINT << 1,
    MR_POOL_STARTUP = MR_POOL_BARRIER << 1,
    MR_POOL_COMPUTE = MR_POOL_STARTUP << 1,   /* step-time inflation: nobody waits, steps take longer */
    MR_POOL_CALL_READ = MR_POOL_COMPUTE << 1, /* counters: seconds of a rank in reads, ... */
    MR_POOL_CALL_WRITE = MR_POOL_CALL_READ << 1,
    MR_POOL_CALL_META = MR_POOL_CALL_WRITE << 1,
    MR_POOL_EVALUATION = MR_POOL_CALL_META << 1, /* waits of evaluation */
    MR_POOL_LOGGING = MR_POOL_EVALUATION << 1,   /* the training thread's own files */
};
#define MR_POOL_READ (MR_POOL(STORAGE) | MR_POOL(PAGE_CACHE) | MR_POOL(NETWORK) | MR_POOL(METADATA))
#define MR_POOL_CPU (MR_POOL(DECODE) | MR_POOL(TRANSFORM) | MR_POOL(QUEUE))
#define MR_POOL_STALL                                                                                                  \
    (MR_POOL_READ | MR_POOL_CPU | MR_POOL(CPU) | MR_POOL(COPY) | MR_POOL(NOT_STARTED) | MR_POOL(WORKER) |              \
     MR_POOL(UNKNOWN))
#define MR_POOL_CALLS (MR_POOL_CALL_READ | MR_POOL_CALL_WRITE | MR_POOL_CALL_META)
#define MR_POOLS (MR_STALL_CAUSE_COUNT + 9)

struct mr_prediction; /* advise_replay.c */

/* ---- whether loads beside each other slow each other down (advise_scaling.c) ---- */
enum mr_scales {
    MR_SCALES_UNKNOWN,
    MR_SCALES_GROWS,  /* each has its own share: more workers get more */
    MR_SCALES_SHARED, /* a rate, a lock, a connection for all */
};
enum mr_waits { MR_WAITS_STORAGE, MR_WAITS_NETWORK, MR_WAITS_OTHER }; /* OTHER: locks, sleep, devices */
struct mr_scaling {
    uint8_t scales, waits_for; /* enum mr_scales; enum mr_waits: most of what loads wait for */
    double slope, error;       /* of the wait of loads over the loads in flight, logarithms; NAN unknown */
    double in_flight;          /* loads, mean; NAN unknown */
    double lock_share;         /* of the wait: in locks and messages between processes */
};
/* False: no memory. */
bool mr_scaling_of(const struct mr_explanation *x, struct mr_scaling *out);

struct mr_draft {
    struct mr_finding f;
    uint32_t pools;
    double weight; /* 0: 1. Between findings of like seconds: cheap and certain changes first */
};

struct mr_advice {
    struct mr_explanation *x;
    const struct mr_explain_facts *f;
    double run_s; /* what severity is a share of: the training window, else the run */
    double pool_s[MR_POOLS];
    double waited_s, waited_share, waited_steady_share; /* for data: all; without the first step of the run */
    double evaluation_s;                                /* of it: in steps of evaluation, whose loader is another one */
    /* At barriers, for ranks that waited for data: belongs to their waits, and is in their pools; mean of ranks, as all
     * these figures are. Of it: for waits of training. */
    double held_s, held_training_s, held_cause_s[MR_STALL_CAUSE_COUNT];
    /* The rest, in training: all; reading; decode...; not started. Rules about the pipeline speak of these. */
    double cause_s[MR_STALL_CAUSE_COUNT], steady_share, stall_s, stall_share, read_s, cpu_s, late_s;
    double checkpoint_s, barrier_s, startup_s;
    double imbalance_s; /* of barrier_s: for neither data nor saves of other ranks */
    double steps;       /* of training, of one rank */
    double busy;        /* share of the workers' time with something to do; NAN */
    bool starved;       /* training waits for data 5 % of the time or more */
    bool waits;         /* training and evaluation together do */
    bool own;           /* our loader: all readers of a rank work on one batch */
    struct mr_scaling scaling;
    struct mr_prediction *training, *evaluation; /* the batches for replays; made when a rule needs them */
    double replayed, now_s, then_s;              /* the last prediction: batches, waits as they were and changed */
    const char *why;
    bool failed; /* no memory */
};

#define MR_STARVED 0.05 /* share of the run from which waiting for data is a problem */

struct mr_rule {
    const char *id;
    bool (*check)(struct mr_advice *a, struct mr_draft *d);
    uint32_t pools;
    const char *condition;
};
extern const struct mr_rule mr_rules[];
extern const unsigned mr_rule_count;

/* Text in the explanation's arena; "" and a->failed without memory. */
const char *mr_say(struct mr_advice *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mr_set_silence(struct mr_advice *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Why a rule does not fire; false, for `return mr_silent(...)`. */
#define mr_silent(a, ...) (mr_set_silence(a, __VA_ARGS__), false)
/* Shorter words for figures in sentences; text in the arena. */
const char *mr_say_s(struct mr_advice *a, double seconds);
const char *mr_say_bytes(struct mr_advice *a, double bytes);
const char *mr_say_rate(struct mr_advice *a, double bytes_per_s); /* decimal: "40 MB/s", as storage is sold */
const char *mr_say_share(struct mr_advice *a, double share);      /* "31 %" */
const char *mr_say_count(struct mr_advice *a, double n);          /* "1,281,167" */

static inline bool mr_known(double x)
{
    return isfinite(x);
}
static inline double mr_known_or(double x, double otherwise)
{
    return isfinite(x) ? x : otherwise;
}
static inline double mr_stall_s(const struct mr_advice *a, unsigned cause)
{
    return a->cause_s[cause];
}
double mr_pool_s(const struct mr_advice *a, uint32_t pools);
/* Share of the run with I/O of a rank going on, stalling anybody or not. */
double mr_io_share(const struct mr_advice *a);
/* Waits for data, or hidden I/O that is worth a note. */
bool mr_reads_matter(const struct mr_advice *a);

/* What rules and predictions start from. `x` is only read until mr_advise puts findings into it. */
void mr_advice_prepare(struct mr_advice *a, struct mr_explanation *x);

/* ---- the loader's settings (advise_settings.c), and what a change of them saves (advise_replay.c) ---- */

/* How a rank's batches are prepared: as it was, or as a rule would have it. */
struct mr_pipeline {
    double workers, ahead; /* 0 workers: the consumer loads; 0 ahead: loading starts when asked */
    double read_s, cpu_s;  /* of one batch on one worker, mean */
    double compute_s;
    double limit_s;                 /* a step is not shorter: storage at its limit; 0 none known */
    double cpus;                    /* of a rank; NAN unknown */
    bool team;                      /* all workers load one batch together */
    bool keeps;                     /* workers live on from epoch to epoch */
    double storage;                 /* bytes per second of a rank; 0: no limit known */
    double slots;                   /* readers that read at a time, where no rate is known; 0: all */
    double serial;                  /* waits for neither storage nor a CPU that make progress at a time; 0: all */
    double meta_x, read_x, cpu_x;   /* times what they took; 0: as they were */
    double read_s_per_byte;         /* of one reader, instead of what reads took; 0: what they took */
    double tier_rate;               /* bytes per second of one reader, from epoch tier_from on; 0: none */
    double tier_share, tier_meta_x; /* of the bytes; times what metadata calls took */
    uint32_t tier_from;
    double hand_s, pack_s; /* more for each batch: of the loop, of the worker */
    double start_s;        /* more for workers to start */
};
struct mr_pipeline mr_pipeline_now(const struct mr_advice *a);
struct mr_pipeline mr_pipeline_of_evaluation(const struct mr_advice *a);
bool mr_pipeline_known(const struct mr_pipeline *p);
/* Adds what it costs to take batches from processes where the loop loaded them itself. */
void mr_pipeline_hand_over(const struct mr_advice *a, struct mr_pipeline *q);

/* Seconds that changing the run's own pipeline into `q` saves: the share of the wait that goes away in a replay of the
 * run's batches, of the measured wait. Fills saves_s with its interval; false, and nothing is filled, where too little
 * is known. */
bool mr_predict(struct mr_advice *a, struct mr_draft *d, const struct mr_pipeline *q);
/* The seconds alone, less than 0 where it would wait longer; NAN where too little is known. */
double mr_predict_s(struct mr_advice *a, const struct mr_pipeline *q);
/* The same of the evaluation's waits, with so many workers that live on. */
bool mr_predict_evaluation(struct mr_advice *a, struct mr_draft *d, double workers);
/* Reading all that a rank reads in an epoch once, by so many readers; NAN where too little is known. */
double mr_read_once_s(struct mr_advice *a, double readers);
/* Waits for what all loads share: a lock, a connection, a server's rate. */
bool mr_waits_in_turn(const struct mr_advice *a);
/* How the last prediction came about, in words. `what`: the change. */
const char *mr_replay_formula(struct mr_advice *a, const char *what);
void mr_prediction_free(struct mr_prediction *r);
/* Workers beyond which nothing is gained: enough for the compute, the CPUs, the storage. */
double mr_workers_wanted(const struct mr_advice *a, const struct mr_pipeline *p);
double mr_ahead_wanted(const struct mr_advice *a, const struct mr_pipeline *p);
/* Bytes per second that the storage has at most for the job; NAN unknown. */
double mr_storage_limit(const struct mr_advice *a);
/* The storage gives less than is asked for, and more readers do not get more. */
bool mr_storage_is_limit(const struct mr_advice *a);

/* More workers and more batches ahead, in every framework. */
void mr_change_loading(struct mr_advice *a, struct mr_draft *d, double workers, double ahead);
/* The run once more: of our own with `settings` (words for a shell), of a program as it was. NULL unknown. */
const char *mr_try_run(struct mr_advice *a, const char *settings);
/* A data set in memory. */
void mr_change_to_memory(struct mr_advice *a, struct mr_draft *d);
/* Data that have to be written anew, to try them. */
void mr_change_to_new_data(struct mr_advice *a, struct mr_draft *d);
/* Most of the bytes that were read are pictures. */
bool mr_has_pictures(const struct mr_explanation *x);
/* The text, where the data have that format or theirs is not known: no advice about h5py for pictures. */
const char *mr_if_format(const struct mr_advice *a, const char *format, const char *text);

/* ---- changes as data (advise_changes.c) ---- */

#define MR_TARGET_LOADER "torch.utils.data.DataLoader"
#define MR_TARGET_EVALUATION "torch.utils.data.DataLoader of evaluation"
#define MR_TARGET_OUR_LOADER "millrace.torch.DataLoader"
#define MR_TARGET_DATASET "tf.data.Dataset"
#define MR_TARGET_EVALUATED "tf.data.Dataset of evaluation"
#define MR_TARGET_SAVE "torch.save"
#define MR_TARGET_PROGRAM "program"
#define MR_TARGET_FILES "data files"
#define MR_TARGET_MACHINE "machine"

/* Values are texts: "4", "true", "ssd=/tmp/cache:1GiB"; `from` may be NULL. Each returns the change, for its note; NULL
 * without memory, and for an option that 'run' refuses beside those of the command line. */
struct mr_change *mr_change_option(struct mr_advice *a, struct mr_draft *d, const char *key, const char *from,
                                   const char *to);
struct mr_change *mr_change_argument(struct mr_advice *a, struct mr_draft *d, const char *target, const char *key,
                                     const char *from, const char *to);
void mr_change_code(struct mr_advice *a, struct mr_draft *d, enum mr_idiom framework, const char *text);
void mr_change_storage(struct mr_advice *a, struct mr_draft *d, const char *target, const char *text);
void mr_change_note(struct mr_change *c, const char *note);
void mr_change_drop(struct mr_draft *d, enum mr_idiom framework);
/* "4", or NULL where it is not known. */
const char *mr_say_number(struct mr_advice *a, double x);
/* Snippets and, where the rule has none of its own, the command. */
void mr_changes_finish(struct mr_advice *a, struct mr_draft *d);

/* ---- what tiers and copies are taken to give, where nothing better is known; bytes per second of one thread ---- */
#define MR_RAM_RATE 5e9
#define MR_SSD_RATE 1e9
#define MR_COPY_RATE 5e9    /* of a state in memory */
#define MR_LOCAL_RATE 1e9   /* writing to a local NVMe or to memory */
#define MR_STAGED_META 0.05 /* opening a file in memory, against the storage's */

/* ---- checkpoints (rule_checkpoint.c) ---- */
struct mr_replay_save;
/* The saves of the rank that the others wait for, as long as all of them are blocked; to be freed. -ENOMEM. */
int mr_checkpoint_saves(const struct mr_advice *a, struct mr_replay_save **out, size_t *n);

/* ---- ranks that others wait for (rule_run.c) ---- */
/* The rank that is last again and again, for a reason of its own; NULL: there is none. Where the storage is the limit,
 * some rank is always last for want of bytes: that is no straggler. */
const struct mr_explain_culprit *mr_straggler(const struct mr_advice *a);
int mr_culprit_rank(const struct mr_advice *a, const struct mr_explain_culprit *c);
unsigned mr_culprit_class(const struct mr_explain_culprit *c); /* enum mr_time_class: what it did longer than others */
const char *mr_culprit_does(struct mr_advice *a, const struct mr_explain_culprit *c); /* in words */

/* ---- after the rules ---- */
int mr_advise_verdict(struct mr_advice *a); /* advise_verdict.c */

/* id, function, pools, condition in words */
#define MR_RULES(X)                                                                                                    \
    X(PF1, mr_rule_pf1, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 % of the time, at most one batch ahead or readers idle while nobody "                     \
      "had asked for the batch, and readers quick enough to keep up once they start earlier")                          \
    X(PF2, mr_rule_pf2, MR_POOL(COPY), "copies to the accelerator take over 10 % of the waits for data")               \
    X(TH1, mr_rule_th1, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 %, a good part for reads, readers busy, fewer of them than the "                          \
      "storage and the CPUs allow")                                                                                    \
    X(TH2, mr_rule_th2, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 %, a good part for decoding, workers busy, fewer of them than CPUs")                      \
    X(TH3, mr_rule_th3, MR_POOL_READ,                                                                                  \
      "more readers may help (TH1) and reads are below 1 MiB: size and number trade off")                              \
    X(TH4, mr_rule_th4, MR_POOL_READ | MR_POOL(NOT_STARTED),                                                           \
      "waits for reads, and more readers get less than 15 % more bytes: the storage is at its "                        \
      "limit")                                                                                                         \
    X(CPU1, mr_rule_cpu1, MR_POOL_CPU | MR_POOL(WORKER) | MR_POOL(NOT_STARTED),                                        \
      "waits for decoding with all CPUs taken")                                                                        \
    X(LD1, mr_rule_ld1, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 %, half of a batch's load or more is decoding, pictures, PyTorch's loader")               \
    X(CPU2, mr_rule_cpu2, MR_POOL(CPU), "a tenth of the waits for data or more: ready to run, and no CPU free")        \
    X(LG1, mr_rule_lg1, MR_POOL_LOGGING,                                                                               \
      "the training thread's own logs, histories and settings take 1 % of the time")                                   \
    X(NB1, mr_rule_nb1, MR_POOL_COMPUTE, "CPUs over 90 % busy and most steps compute 20 % longer than the quick ones") \
    X(IO1, mr_rule_io1, MR_POOL_READ,                                                                                  \
      "the pipeline gets less than half of what the same readers get from the storage alone, with"                     \
      " CPUs free")                                                                                                    \
    X(HR1, mr_rule_hr1, 0, "the same run on storage that takes no time is slower than the accelerators ask for")       \
    X(EV1, mr_rule_ev1, MR_POOL_EVALUATION, "evaluation waits for its data over 5 % of the time")                      \
    X(EP1, mr_rule_ep1, MR_POOL_STALL, "the first step of an epoch takes over three times the usual")                  \
    X(SZ1, mr_rule_sz1, MR_POOL(STORAGE) | MR_POOL(PAGE_CACHE) | MR_POOL(NETWORK),                                     \
      "over half of the bytes in reads below 64 KiB that get less than a quarter of the rate of "                      \
      "large ones")                                                                                                    \
    X(SZ2, mr_rule_sz2, MR_POOL(STORAGE) | MR_POOL(NETWORK), "TFRecord files read with the default buffer of 256 KiB") \
    X(OB1, mr_rule_ob1, MR_POOL(STORAGE) | MR_POOL(NETWORK),                                                           \
      "object storage is asked for less than 1 MiB at a time, and half of a request's time or more is"                 \
      " until its first byte")                                                                                         \
    X(OB2, mr_rule_ob2, MR_POOL(STORAGE) | MR_POOL(NETWORK),                                                           \
      "fewer than 8 requests of a rank to object storage in flight, and half of their time or more is"                 \
      " until the first byte")                                                                                         \
    X(OB3, mr_rule_ob3, MR_POOL(STORAGE) | MR_POOL(NETWORK),                                                           \
      "one request of a rank to object storage at a time, of 1 MiB or more, which waits for its bytes")                \
    X(OB4, mr_rule_ob4, MR_POOL(STORAGE) | MR_POOL(NETWORK),                                                           \
      "half of the requests to object storage or more open a new connection")                                          \
    X(OB5, mr_rule_ob5, MR_POOL(STORAGE) | MR_POOL(NETWORK),                                                           \
      "one request to object storage in a hundred or more is a repeat")                                                \
    X(MD1, mr_rule_md1, MR_POOL(METADATA),                                                                             \
      "over 100 opens per 1,000 samples that take time, or open and stat at least 20 % of the "                        \
      "waits for reads")                                                                                               \
    X(MD2, mr_rule_md2, MR_POOL_READ | MR_POOL_STARTUP,                                                                \
      "a file below 1 MiB read by over 10 calls below 4 KiB, less than half of them consecutive")                      \
    X(FM1, mr_rule_fm1, MR_POOL_CPU, "text is parsed while data are loaded, over 30 % of the load")                    \
    X(FM2, mr_rule_fm2, MR_POOL_STALL, "HDF5 or NPZ files, nothing read ahead (PF1)")                                  \
    X(AMP1, mr_rule_amp1, MR_POOL_READ, "over 1.3 bytes read for each byte delivered")                                 \
    X(EOF1, mr_rule_eof1, MR_POOL_READ, "more than one empty read per opened file")                                    \
    X(RA1, mr_rule_ra1, MR_POOL(STORAGE), "small random reads on a device that reads far ahead")                       \
    X(CA1, mr_rule_ca1, MR_POOL_READ,                                                                                  \
      "a file of at most a tenth of the memory with a good part of the reads, read at least twice")                    \
    X(CA2, mr_rule_ca2, MR_POOL_STALL,                                                                                 \
      "what a node reads in an epoch fits into 80 % of its free memory, and comes from storage")                       \
    X(CA3, mr_rule_ca3, MR_POOL_STALL,                                                                                 \
      "what a node reads in an epoch fits into 90 % of its free local disk, and comes from shared"                     \
      " storage")                                                                                                      \
    X(CA4, mr_rule_ca4, MR_POOL_READ,                                                                                  \
      "the data set fits into all nodes together, and shared storage is read more than once over")                     \
    X(CA5, mr_rule_ca5, MR_POOL_READ, "the data set does not fit into all nodes together, and is read again")          \
    X(ST1, mr_rule_st1, MR_POOL_READ, "Lustre, stripes at least four times as large as reads")                         \
    X(ST2, mr_rule_st2, MR_POOL_READ, "Lustre, big files with one stripe, several readers")                            \
    X(SH1, mr_rule_sh1, MR_POOL_READ, "sharding is configured, and all ranks read the same bytes")                     \
    X(SH2, mr_rule_sh2, MR_POOL_READ, "all ranks read the same bytes in an epoch")                                     \
    X(SH3, mr_rule_sh3, MR_POOL_READ, "samples are dealt to the ranks anew in every epoch, and reads cost time")       \
    X(SH4, mr_rule_sh4, MR_POOL_READ,                                                                                  \
      "one file has 80 % of the reads of several ranks, and waits for reads take over 5 %")                            \
    X(SC1, mr_rule_sc1, MR_POOL_STALL, "waits grow with the number of ranks (several runs)")                           \
    X(CK1, mr_rule_ck1, MR_POOL_CHECKPOINT,                                                                            \
      "checkpoints block over 3 % of the time and are written slower than a local tier could")                         \
    X(CK2, mr_rule_ck2, MR_POOL_CHECKPOINT, "checkpoints block over 3 % of the time, most of it writing")              \
    X(CK4, mr_rule_ck4, MR_POOL_CHECKPOINT,                                                                            \
      "checkpoints block over 3 % of the time and follow each other so fast that writing beside training would not be" \
      " done in time")                                                                                                 \
    X(CK3, mr_rule_ck3, MR_POOL_CHECKPOINT | MR_POOL_BARRIER, "rank 0 writes all checkpoints while the others wait")   \
    X(TL1, mr_rule_tl1, MR_POOL_READ,                                                                                  \
      "one read in a hundred takes over ten times the usual, and few steps make up the waits")                         \
    X(TL2, mr_rule_tl2, MR_POOL_BARRIER, "the same rank is last in most steps")                                        \
    X(VIS1, mr_rule_vis1, 0, "data files opened or mapped, of which hardly anything is read by calls in the trace")    \
    X(CCH1, mr_rule_cch1, 0, "a benchmark run of which less than half came from the device")                           \
    X(CLK1, mr_rule_clk1, 0, "clocks of hosts differ by more than a tenth of a step or 10 ms")                         \
    X(TRC1, mr_rule_trc1, 0, "events were lost")                                                                       \
    X(SZ3, mr_rule_sz3, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                        \
      "counters: requests below 32 KiB on the average, or half of them below 10 KB, several per open")                 \
    X(ALN1, mr_rule_aln1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                      \
      "counters: small requests of which 30 % or more are not aligned")                                                \
    X(RND1, mr_rule_rnd1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                      \
      "counters: under 70 % of the offsets ascend and under 30 % follow the one before")                               \
    X(REP1, mr_rule_rep1, MR_POOL_CALL_READ, "counters: half of all bytes are read again by the same ranks")           \
    X(MD3, mr_rule_md3, MR_POOL_CALLS,                                                                                 \
      "counters: under 1 KiB per open, or metadata 20 % of the calls and 10 % of the run")                             \
    X(FIL1, mr_rule_fil1, MR_POOL_CALLS, "counters: 32 or more processes with a file or more for each")                \
    X(SYN1, mr_rule_syn1, MR_POOL_CALL_WRITE | MR_POOL_CALL_META, "counters: a sync for every second write or more")   \
    X(IMB1, mr_rule_imb1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                      \
      "counters: a rank with 1.5 times the mean bytes or more")                                                        \
    X(OST1, mr_rule_ost1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                      \
      "counters: a big shared file on one OST, or an OST with three times the mean bytes")                             \
    X(LIB1, mr_rule_lib1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE, "counters: 30 % or more of the bytes through stdio") \
    X(COL1, mr_rule_col1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE,                                                      \
      "counters: a shared file by independent MPI-IO calls that are small, or interleaved by 32 ranks or more")        \
    X(MPI1, mr_rule_mpi1, MR_POOL_CALL_READ | MR_POOL_CALL_WRITE, "counters: a file shared by processes without MPI-IO")

#define MR_RULE_DECLARE(id, function, pools, condition) bool function(struct mr_advice *a, struct mr_draft *d);
MR_RULES(MR_RULE_DECLARE)
#undef MR_RULE_DECLARE

#endif
