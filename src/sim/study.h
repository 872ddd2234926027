/* Studies: one scenario under several policies and seeds, sweeps over one key, and the least storage that avoids stalls. */
#ifndef MR_SIM_STUDY_H
#define MR_SIM_STUDY_H

#include "sim/sim.h"

enum mr_sim_method {
    MR_SIM_AUTO,     /* exact, unless its tables would not fit memory_bytes */
    MR_SIM_EXACT,    /* every sample's place is known */
    MR_SIM_EXPECTED, /* whole steps, sources by the policy's expected behaviour */
};

/* One policy over all seeds: means, and the spread of the run time. */
struct mr_study_row {
    struct mr_sim_result mean;
    double time_min_s, time_max_s;
};

struct mr_study {
    struct mr_scenario scenario;
    struct mr_sim_bounds bounds; /* means over seeds */
    double dataset_mb;
    uint64_t grain;
    enum mr_sim_method method; /* the one taken */
    unsigned n;
    struct mr_study_row rows[MR_POLICY_COUNT];
};

struct mr_study_options {
    bool policies[MR_POLICY_COUNT];
    bool thesis;
    unsigned seeds;
    uint64_t grain; /* 0 = automatic */
    enum mr_sim_method method;
    double memory_bytes; /* for MR_SIM_AUTO, and the most the expected method may take */
    unsigned threads;    /* the expected method runs policies side by side */
    const atomic_bool *stop;
};

/* Rows come out by ascending time, impossible ones last. */
int mr_study_run(const struct mr_scenario *s, const struct mr_study_options *o, struct mr_study *out, struct mr_error *err);

#endif
