/* What the network between the ranks of a job delivers. */
#ifndef MR_PROBE_NETWORK_PROBE_H
#define MR_PROBE_NETWORK_PROBE_H

#include "comm/comm.h"

/* Point to point, from rank 0 to each of the others in turn; the slowest pair counts. */
struct mr_network_rates {
    uint32_t ranks; /* 0: not measured */
    double bytes_per_s, latency_s;
};

/* Collective: every rank calls it; only rank 0's figures are meaningful. MR_E_USAGE with fewer than two ranks. */
int mr_network_measure(struct mr_comm *c, struct mr_network_rates *out, struct mr_error *err);

#endif
