/* Analysis helpers on an access order: how often samples are read, how far apart uses lie, and how many reads leave the
 * node for a cache of any size under three placements. */
#ifndef MR_SIM_PLACEMENT_H
#define MR_SIM_PLACEMENT_H

#include "sim/sim.h"

enum mr_placement { MR_PLACE_RANDOM, MR_PLACE_FREQUENCY, MR_PLACE_NEXT_USE };

/* Reads that leave a node per access (fills included), mean over nodes, when every node caches `cache_ratio` of the
 * samples: random: a fixed random subset; frequency: the samples the node reads most often; next_use: Belady with
 * bypass. Samples count as equally large. */
int mr_sim_outside_reads(struct mr_sim_workload *w, double cache_ratio, enum mr_placement placement, double *out,
                         struct mr_error *err);

/* How many samples node 0 reads k times over the run: counts[k] for k = 0 ... epochs. */
int mr_sim_frequency(struct mr_sim_workload *w, uint64_t *counts, struct mr_error *err);

/* Reuse distance of node 0's accesses (distinct samples between two uses of the same one): histogram over `bins` equal
 * bins of [0, samples); first uses are counted in *cold. */
int mr_sim_reuse_distance(struct mr_sim_workload *w, uint64_t *hist, unsigned bins, uint64_t *cold,
                          struct mr_error *err);

#endif
