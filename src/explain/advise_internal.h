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
#ifndef MR_EXPLAIN_ADVISE_INTERNAL_H
#define MR_EXPLAIN_ADVISE_INTERNAL_H

#include "explain/explain.h"

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
};
#define MR_POOL_READ (MR_POOL(STORAGE) | MR_POOL(PAGE_CACHE) | MR_POOL(NETWORK) | MR_POOL(METADATA))
#define MR_POOL_CPU (MR_POOL(DECODE) | MR_POOL(TRANSFORM) | MR_POOL(QUEUE))
#define MR_POOL_STALL                                                                                                  \
    (MR_POOL_READ | MR_POOL_CPU | MR_POOL(COPY) | MR_POOL(NOT_STARTED) | MR_POOL(WORKER) | MR_POOL(UNKNOWN))
#define MR_POOL_CALLS (MR_POOL_CALL_READ | MR_POOL_CALL_WRITE | MR_POOL_CALL_META)
#define MR_POOLS (MR_STALL_CAUSE_COUNT + 7)

struct mr_draft {
    struct mr_finding f;
    uint32_t pools;
    double weight; /* 0: 1. Between findings of like seconds: cheap and certain changes first */
    bool labelled; /* a pattern of counters: severity at least minor where the calls took time */
};

struct mr_advice {
    struct mr_explanation *x;
    const struct mr_explain_facts *f;
    double run_s; /* what severity is a share of: the training window, else the run */
    double pool_s[MR_POOLS];
    double stall_s, stall_share, read_s, cpu_s, late_s; /* of the stall: all; reading; decode...; not started */
    double checkpoint_s, barrier_s, startup_s;
    double steps; /* of one rank */
    double busy;  /* share of the workers' time with something to do; NAN */
    bool starved; /* waits for data take 5 % or more */
    bool own;     /* our loader: all readers of a rank work on one batch */
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
bool mr_silent(struct mr_advice *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
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
    return (double)a->x->stall[cause] / 1e9;
}
double mr_pool_s(const struct mr_advice *a, uint32_t pools);

/* ---- the loading pipeline (advise_pipeline.c) ---- */

/* A rank's step as a function of how batches are prepared. */
struct mr_pipeline {
    double workers, ahead; /* 0 workers: the consumer loads; 0 ahead: loading starts when asked */
    double read_s, cpu_s;  /* of one batch on one worker */
    double compute_s;
    double limit_s; /* a step is not shorter: storage at its limit; 0 none known */
    double cpus;    /* of a rank; NAN unknown */
    bool team;      /* all workers load one batch together */
};
struct mr_pipeline mr_pipeline_now(const struct mr_advice *a);
bool mr_pipeline_known(const struct mr_pipeline *p);
/* Stall of the whole run (one rank) with `p`, the filling of the pipeline at the beginning included. */
double mr_pipeline_stall_s(const struct mr_advice *a, const struct mr_pipeline *p);
/* What changing the run's own pipeline into `p` saves: the modelled share of the measured stall. */
double mr_pipeline_saves_s(const struct mr_advice *a, const struct mr_pipeline *p);
/* Workers beyond which nothing is gained: enough for the compute, the CPUs, the storage. */
double mr_workers_wanted(const struct mr_advice *a, const struct mr_pipeline *p);
double mr_ahead_wanted(const struct mr_advice *a, const struct mr_pipeline *p);
/* Bytes per second that the storage has at most for the job; NAN unknown. */
double mr_storage_limit(const struct mr_advice *a);
/* The storage gives less than is asked for, and more readers do not get more. */
bool mr_storage_is_limit(const struct mr_advice *a);

/* How the change is made: snippets of our YAML, PyTorch, tf.data, and the command. */
void mr_fix_loading(struct mr_advice *a, struct mr_draft *d, double workers, double ahead);
const char *mr_try_run(struct mr_advice *a, const char *settings);

/* ---- after the rules ---- */
int mr_advise_verdict(struct mr_advice *a); /* advise_verdict.c */

/* id, function, pools, condition in words */
#define MR_RULES(X)                                                                                                    \
    X(PF1, mr_rule_pf1, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 % of the time, at most one batch ahead or readers idle while nobody had asked for the "   \
      "batch, and the readers are quick enough to keep up once they start earlier")                                    \
    X(PF2, mr_rule_pf2, MR_POOL(COPY), "copies to the accelerator take over 10 % of the waits for data")               \
    X(TH1, mr_rule_th1, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 %, mostly for reads, all readers busy, fewer of them than the storage and the CPUs "      \
      "allow")                                                                                                         \
    X(TH2, mr_rule_th2, MR_POOL_STALL,                                                                                 \
      "waits for data over 5 %, mostly for decoding, all workers busy, fewer of them than CPUs")                       \
    X(TH4, mr_rule_th4, MR_POOL_READ | MR_POOL(NOT_STARTED),                                                           \
      "waits for reads, and more readers get less than 15 % more bytes: the storage is at its limit")                  \
    X(CPU1, mr_rule_cpu1, MR_POOL_CPU | MR_POOL(WORKER) | MR_POOL(NOT_STARTED),                                        \
      "waits for decoding with all CPUs taken: workers over 90 % on a CPU, storage under 30 % busy")                   \
    X(SZ1, mr_rule_sz1, MR_POOL(STORAGE) | MR_POOL(PAGE_CACHE) | MR_POOL(NETWORK),                                     \
      "over half of the bytes in reads below 64 KiB, each slow for its size")                                          \
    X(MD1, mr_rule_md1, MR_POOL(METADATA),                                                                             \
      "over 100 opens per 1,000 samples, or open and stat at least 20 % of the waits for reads")                       \
    X(CK1, mr_rule_ck1, MR_POOL_CHECKPOINT,                                                                            \
      "checkpoints block over 3 % of the time and are written slower than a local tier could")

#define MR_RULE_DECLARE(id, function, pools, condition) bool function(struct mr_advice *a, struct mr_draft *d);
MR_RULES(MR_RULE_DECLARE)
#undef MR_RULE_DECLARE

#endif
