/* Studies: one scenario under several policies and seeds, sweeps over one key, and the least storage that avoids
 * stalls. */
#ifndef MR_SIM_STUDY_H
#define MR_SIM_STUDY_H

#include "base/progress.h"
#include "sim/sim.h"

enum mr_sim_method {
    MR_SIM_AUTO,     /* exact, unless its tables would not fit memory_bytes */
    MR_SIM_EXACT,    /* every sample's place is known */
    MR_SIM_EXPECTED, /* whole steps, sources by the policy's expected behaviour */
};
extern const char *const mr_sim_method_names[]; /* ends with NULL */

/* One policy over all seeds: means, and the spread of the run time. */
struct mr_study_row {
    struct mr_sim_result mean;
    double time_min_s, time_max_s;
};

/* False: the policy reads only part of the data set in an epoch, so its time is that of another training. */
bool mr_study_is_comparable(const struct mr_study_row *row);

struct mr_study {
    struct mr_scenario scenario;
    struct mr_sim_bounds bounds; /* means over seeds */
    double dataset_mb;
    uint64_t grain;
    enum mr_sim_method method; /* the one taken */
    unsigned seeds;
    unsigned n;
    struct mr_study_row rows[MR_POLICY_MAX];
};

struct mr_study_options {
    bool policies[MR_POLICY_MAX];
    bool thesis;
    unsigned seeds;
    uint64_t grain; /* 0 = automatic */
    enum mr_sim_method method;
    double memory_bytes; /* for MR_SIM_AUTO, and the most the expected method may take */
    unsigned threads;    /* the expected method runs policies side by side */
    const atomic_bool *stop;
    struct mr_progress *progress; /* or NULL: one unit for every policy and seed */
    const char *trace; /* or NULL: a .mrt file; with several policies their names come before its ending. The exact
                          engine only, one seed */
};
/* The trace of a policy: o->trace, or with the policy's name in it where several are chosen. MR_E_USAGE when it is too
 * long. */
int mr_study_trace_path(const struct mr_study_options *o, enum mr_policy_id policy, char out[4096],
                        struct mr_error *err);

/* Rows come out by ascending time: comparable ones first, then those that are not, then impossible ones. */
int mr_study_run(const struct mr_scenario *s, const struct mr_study_options *o, struct mr_study *out,
                 struct mr_error *err);

/* ---- how much storage ---- */

#define MR_STORAGE_CURVE_MAX 32

struct mr_storage_answer {
    unsigned class;
    char class_name[32];
    double capacity_mb; /* the least that keeps the stall within the limit */
    unsigned n;
    struct {
        double capacity_mb, time_s, stall;
    } curve[MR_STORAGE_CURVE_MAX]; /* what was tried, by ascending capacity */
};

/* stall: share of the run time. Class 1 is planned without any further class, each further class with those before it
 * as the scenario has them. Where even room for everything stalls more (the first read of the data set does not hide),
 * `reachable` is false and the answers are the least capacities that come within max_stall of that run time. */
struct mr_storage_plan {
    enum mr_policy_id policy;
    double max_stall, best_stall;
    bool reachable;
    unsigned n_answers;
    struct mr_storage_answer answers[MR_CLASS_MAX];
};
/* `o` gives seeds, grain and method; its policies are ignored. MR_E_UNSUPPORTED when the system has no class to plan.
 */
int mr_study_plan(const struct mr_scenario *s, enum mr_policy_id policy, double max_stall,
                  const struct mr_study_options *o, struct mr_storage_plan *out, struct mr_error *err);

#endif
