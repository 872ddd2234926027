/* Studies: one scenario under several policies and seeds, sweeps over one key, and the least storage that avoids stalls. */
#ifndef MR_SIM_STUDY_H
#define MR_SIM_STUDY_H

#include "sim/sim.h"

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
    unsigned n;
    struct mr_study_row rows[MR_POLICY_COUNT];
};

struct mr_study_options {
    bool policies[MR_POLICY_COUNT];
    bool thesis;
    unsigned seeds;
    uint64_t grain; /* 0 = automatic */
    const atomic_bool *stop;
};

/* Rows come out by ascending time, impossible ones last. */
int mr_study_run(const struct mr_scenario *s, const struct mr_study_options *o, struct mr_study *out, struct mr_error *err);

#endif
