/* What the order of a scenario asks of a cache, before any policy: how often a node reads a sample, how far apart two
 * reads of it lie, and how many reads leave the node for a cache of any size. Costs one walk of the order for every
 * node, size and placement; a scenario of more than 2e10 accesses is refused. */
#ifndef MR_SIM_ACCESS_STUDY_H
#define MR_SIM_ACCESS_STUDY_H

#include "sim/sim.h"

#define MR_ACCESS_BINS 10
#define MR_ACCESS_RATIOS 6
extern const double mr_access_ratios[MR_ACCESS_RATIOS]; /* sizes of the cache, as shares of the data set */

struct mr_access_study {
    uint64_t *uses;                        /* [0 ... epochs]: samples that node 0 reads so often */
    uint64_t reuse[MR_ACCESS_BINS], first; /* accesses by reuse distance, in tenths of the samples; first ones */
    double outside[MR_ACCESS_RATIOS][3];   /* reads per access that leave the node; by enum mr_placement */
};

int mr_access_study(const struct mr_scenario *s, struct mr_access_study *out, struct mr_error *err);
void mr_access_study_done(struct mr_access_study *a);
/* Samples that a node reads k times if every epoch deals them at random. */
double mr_access_expected_uses(const struct mr_scenario *s, uint32_t k);

#endif
