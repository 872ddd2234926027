/* Comparing runs: did they do the same work, what changed, is it better or worse, and how small a difference would have
 * gone unnoticed. Used by `millrace compare` and, for baselines, by `millrace check`.
 *
 *     words ──mr_compare_add──> sides of runs ──mr_compare_judge──> rows, settings, notes ──> text, JSON, page
 *
 * The first side is the base; every other one is compared with it. Rules that must stay true:
 *   C1  a metric gets "better" or "worse" only with two or more runs on both sides, a probability below the level after
 *       Holm's correction for all metrics and sides, and a change of at least the least effect;
 *   C2  runs that did other work are compared by rates and shares only, never by their duration;
 *   C3  a figure that a run does not have is unknown on its side, not zero;
 *   C4  simulated runs are predictions: they are shown, and judge nothing. */
#ifndef MR_COMPARE_COMPARE_H
#define MR_COMPARE_COMPARE_H

#include "base/arena.h"
#include "base/vec.h"
#include "compare/compare_stats.h"
#include "explain/explain.h"

#include <jansson.h>
#include <millrace/error.h>

/* key (as in the JSON), text, unit, what is good: -1 less, 1 more, 0 neither */
#define MR_COMPARE_METRICS(X)                                                                                          \
    X(WALL, "wall_s", "wall", SECONDS, -1)                                                                             \
    X(STEP, "step_s", "step, mean", SECONDS, -1)                                                                       \
    X(STEP_P99, "p99_step_s", "step, p99", SECONDS, -1)                                                                \
    X(STALL, "stall_share", "data stall", SHARE, -1)                                                                   \
    X(STALL_P99, "p99_stall_s", "stall, p99", SECONDS, -1)                                                             \
    X(AU, "au", "AU", SHARE, 1)                                                                                        \
    X(CHECKPOINT, "checkpoint_share", "checkpoint", SHARE, -1)                                                         \
    X(BARRIER, "barrier_share", "barrier", SHARE, -1)                                                                  \
    X(SAMPLES_RATE, "samples_per_s", "samples/s", RATE, 1)                                                             \
    X(READ_BYTES, "read_bytes", "read", BYTES, 0)                                                                      \
    X(READ_RATE, "read_bytes_per_s", "read rate", BYTES_RATE, 0)                                                       \
    X(RAM_BYTES, "ram_bytes", "from RAM", BYTES, 0)                                                                    \
    X(SSD_BYTES, "ssd_bytes", "from SSD", BYTES, 0)                                                                    \
    X(PEER_BYTES, "peer_bytes", "from peers", BYTES, 0)
enum mr_compare_metric {
#define MR_COMPARE_ENUM(name, key, text, unit, good) MR_COMPARE_##name,
    MR_COMPARE_METRICS(MR_COMPARE_ENUM)
#undef MR_COMPARE_ENUM
        MR_COMPARE_METRIC_COUNT
};
enum mr_compare_unit { MR_IN_SECONDS, MR_IN_SHARE, MR_IN_RATE, MR_IN_BYTES, MR_IN_BYTES_RATE };
struct mr_compare_metric_info {
    const char *key, *text;
    enum mr_compare_unit unit;
    int good;
};
extern const struct mr_compare_metric_info mr_compare_metric_info[MR_COMPARE_METRIC_COUNT];

/* What a run did; MR_TIME_UNKNOWN where it does not say. */
struct mr_compare_work {
    uint64_t ranks, steps, samples, sample_bytes, read_bytes;
    uint64_t order; /* hash over rank, epoch, batch and sample of every row; MR_TIME_UNKNOWN */
};

struct mr_compare_run {
    const char *path;
    bool simulated, incomplete, untrusted;
    const char *why;      /* of incomplete or untrusted; may be NULL */
    const char *name;     /* workload or program; NULL unknown */
    uint64_t start_ns;    /* real time; of simulations on their own clock */
    uint8_t verdict;      /* enum mr_verdict_class */
    const char *headline; /* the verdict's first line; may be NULL */
    const char *best;     /* id of the best finding; NULL: there is none */
    struct mr_compare_work work;
    double value[MR_COMPARE_METRIC_COUNT];  /* NAN unknown */
    double cause[MR_STALL_CAUSE_COUNT];     /* shares of the time; NAN unknown */
    double within[MR_COMPARE_METRIC_COUNT]; /* standard error by the run's own steps; NAN unknown */
    double au_target;                       /* NAN: none was set */
    struct mr_compare_step *step;           /* mean over ranks, training only; malloc'ed */
    size_t steps;
    struct mr_explain_snippet *span; /* that the program named, by time; the arena's */
    size_t spans;
    json_t *setting; /* flat object of texts; NULL: nothing known */
    json_t *machine; /* the same, of the environment */
};

struct mr_compare_side {
    const char *name;
    MR_VEC(struct mr_compare_run) run;
    bool simulated;
};

enum mr_compare_verdict {
    MR_COMPARE_NOT_JUDGED, /* a figure beside others that are judged */
    MR_COMPARE_BETTER,
    MR_COMPARE_WORSE,
    MR_COMPARE_SAME,       /* any difference is below the least effect, or there is none */
    MR_COMPARE_UNDECIDED,  /* none detectable below `detectable` */
    MR_COMPARE_ONE_RUN,    /* C1 */
    MR_COMPARE_OTHER_WORK, /* C2 */
    MR_COMPARE_PREDICTED   /* C4 */
};
const char *mr_compare_verdict_name(enum mr_compare_verdict v); /* "better", "no difference detectable" ... */

/* One metric of one side against the base. */
struct mr_compare_change {
    double change;     /* relative; of shares the difference; NAN unknown */
    double low, high;  /* of the change, at the level after correction; NAN unknown */
    double p;          /* corrected; NAN where it was not tested */
    double detectable; /* the least change that would have been found; NAN unknown */
    uint8_t verdict;
};
struct mr_compare_cell {
    double mean, sd, low, high; /* of the runs; sd NAN for one run */
    size_t n;                   /* runs that have it */
};
struct mr_compare_row {
    bool shown;                       /* some side has it, and it is not 0 everywhere */
    struct mr_compare_cell *cell;     /* [sides] */
    struct mr_compare_change *change; /* [sides]; [0] is empty */
};
struct mr_compare_setting {
    const char *key;
    const char **value; /* [sides]; "" where the side does not have it */
};

/* A span that the program named, on every side: the mean over its runs; NAN where a side does not have it. */
struct mr_compare_span_cell {
    double count, p25_s, median_s, p75_s;
};
struct mr_compare_span {
    const char *category, *name;
    struct mr_compare_span_cell *cell; /* [sides] */
};

struct mr_compare {
    struct mr_arena arena;
    struct mr_compare_side *side;
    size_t sides, side_cap;
    /* by mr_compare_judge */
    double level, least;
    enum mr_compare_same { MR_WORK_SAME, MR_WORK_OTHER, MR_WORK_UNKNOWN } same_work;
    const char *work; /* one line: what was compared, or what differs */
    struct mr_compare_row row[MR_COMPARE_METRIC_COUNT];
    double *cause; /* [MR_STALL_CAUSE_COUNT][sides]: mean; NAN unknown */
    MR_VEC(struct mr_compare_setting) setting;
    MR_VEC(struct mr_compare_span) span;  /* that more than one side has, by time */
    MR_VEC(const char *) note;            /* doubts; what to do to get a verdict */
    size_t tests;                         /* that were corrected for */
    double predicted_s, prediction_error; /* of a simulated side against the last measured one; NAN: there is none */
};

struct mr_compare_options {
    double level; /* 0.01 */
    double least; /* 0.01: 1 %, of shares 1 percentage point */
    unsigned threads;
    const atomic_bool *stop;
};

/* One side of the comparison: a results folder of `millrace run`, a trace, a folder of either (each is one run), or
 * several of these with commas between them; "NAME=..." gives the side a name. MR_E_FORMAT, MR_E_USAGE when the runs of
 * a side have different settings. */
int mr_compare_add(struct mr_compare *c, const char *word, const struct mr_compare_options *opt, struct mr_error *err);
/* Calls fn for the path of each run that a word names; ends when it returns other than 0, and returns that. */
typedef int mr_compare_path_fn(const char *path, void *user, struct mr_error *err);
int mr_compare_each_run(const char *word, mr_compare_path_fn *fn, void *user, struct mr_error *err);
/* One run, of a results folder or a trace; mr_compare_run_done frees. Texts belong to the arena. */
int mr_compare_run_load(const char *path, const struct mr_compare_options *opt, struct mr_arena *a,
                        struct mr_compare_run *out, struct mr_error *err);
void mr_compare_run_done(struct mr_compare_run *r);
/* Fills the rest. At least two sides. */
int mr_compare_judge(struct mr_compare *c, const struct mr_compare_options *opt, struct mr_error *err);
/* compare_spans.c: 0 or -ENOMEM. */
int mr_compare_keep_spans(const struct mr_explanation *x, struct mr_arena *a, struct mr_compare_run *r);
int mr_compare_join_spans(struct mr_compare *c);
/* "millrace.compare/1". A new reference; NULL without memory. */
json_t *mr_compare_json(const struct mr_compare *c);
void mr_compare_done(struct mr_compare *c);

#endif
