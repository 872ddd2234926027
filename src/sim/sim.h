/* The simulator: how long a training run takes on a machine under a prefetching policy, without running it.
 *
 * Two engines behind one interface:
 *   shared  (default) an event-driven engine that shares the PFS, every storage class and the network truly among all
 *           active transfers.
 *   thesis  follows the published simulator of the clairvoyant-prefetching thesis with its quirks, to reproduce its
 *           tables. It grants every prefetch thread t(gamma)/gamma, which no PFS does; see doc/guides/simulator.md.
 *
 * Both read the same access order (order module) and sample sizes. Units as in the model: MB, MB/s, seconds. */
#ifndef MR_SIM_SIM_H
#define MR_SIM_SIM_H

#include "model/model.h"
#include "policy/policy_list.h"

#include <millrace/error.h>
#include <millrace/order.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mr_scenario {
    char name[64];
    struct mr_system system;
    uint32_t nodes;       /* N */
    uint64_t samples;     /* F */
    uint64_t batch;       /* B, over all nodes; a multiple of them */
    uint64_t batch_asked; /* what the scenario says, for messages; 0: the same */
    uint32_t epochs;      /* E */
    bool drop_last;
    double size_mean_mb, size_stdev_mb; /* normal, truncated at 0, the mean kept */
    uint64_t seed;
    enum mr_order_mode order_mode;
    double step_s;       /* compute of a node's step, whatever its bytes; 0: by the system's rate (shared engine) */
    uint64_t steps;      /* training ends after so many, in the last epoch at the earliest; 0: with the epochs */
    bool staging_serves; /* a sample that is staged for one access serves another one, too (shared engine, exact) */
};

#define MR_SIM_EPOCHS_TOLD 16 /* the first ones, each by itself */

/* One epoch: how long its steps took, and where the bytes came from that its steps read (fills: that came during it).
 * The shared engine only. */
struct mr_sim_epoch {
    double time_s, pfs_mb, peer_mb, own_mb;
};

struct mr_sim_result {
    enum mr_policy_id policy;
    bool possible; /* false: `why` says why the policy cannot run this scenario */
    char why[160];
    double time_s, stall_s;
    double counted_s; /* of time_s: steps that are not left out (mr_sim_workload); the shared engine only */
    uint64_t counted_steps;
    double first_epoch_s;
    double stall_first_epoch_s;
    double preload_s; /* before the first step */
    double pfs_mb, peer_mb;
    double class_mb[MR_CLASS_MAX]; /* read from each local class; 0: staged already, where staged samples serve */
    double consumed_mb;
    double imbalance;  /* mean over steps of (max - mean) / mean of the nodes' step times */
    double randomness; /* 1 = exact order; for policies that reorder: distinct samples seen per epoch / samples */
    struct mr_sim_epoch epochs[MR_SIM_EPOCHS_TOLD];
};

struct mr_sim_bounds {
    double compute_only_s; /* sum over steps of the slowest node's compute */
    double io_aware_s;     /* and no faster than the PFS can deliver what is needed for the first time */
    double consumed_mb;    /* over the whole run */
};

/* What both engines need and is computed once per scenario: sizes and the access stream. */
struct mr_sim_workload {
    const struct mr_scenario *scenario;
    uint64_t steps_per_epoch, per_node; /* samples of one node in one step */
    float *size_mb;                     /* per sample */
    double total_mb;
    uint32_t *stream; /* ids of one epoch, step by step, node by node: [step][node][per_node]; see mr_sim_load_epoch */
    float *step_mb;   /* MB of one node's step, [epoch][step][node], or NULL; see mr_sim_load_steps */
    struct mr_order *order;
    uint64_t skip_first, skip_last; /* steps at the start and the end that counted_s leaves out */
    struct mr_sim_trace *trace;     /* or NULL: where mr_sim_shared puts its events; borrowed, see sim_trace.h */
};
int mr_sim_workload_init(struct mr_sim_workload *w, const struct mr_scenario *s, struct mr_error *err);
/* The whole bytes of a sample, as the trace counts them. */
uint64_t mr_sim_sample_bytes(const struct mr_sim_workload *w, uint64_t id);
int mr_sim_load_epoch(struct mr_sim_workload *w, uint32_t epoch, struct mr_error *err);
/* Sums up the bytes of every step once, on up to `threads` threads. From then on mr_sim_shared works with expected
 * behaviour instead of exact tables, and mr_sim_bounds is quick. */
int mr_sim_load_steps(struct mr_sim_workload *w, unsigned threads, const atomic_bool *stop, struct mr_error *err);
/* Bytes of memory the exact tables take for the hungriest policy, and those of the expected method. */
double mr_sim_exact_bytes(const struct mr_scenario *s);
double mr_sim_expected_bytes(const struct mr_scenario *s);
void mr_sim_workload_done(struct mr_sim_workload *w);

/* Steps of the whole training. */
static inline uint64_t mr_sim_steps(const struct mr_sim_workload *w)
{
    uint64_t all = w->steps_per_epoch * w->scenario->epochs, limit = w->scenario->steps;
    return limit && limit < all ? limit : all;
}
/* Compute time of one node's step of `mb`. */
double mr_sim_compute_s(const struct mr_scenario *s, double mb);
int mr_sim_bounds(struct mr_sim_workload *w, struct mr_sim_bounds *out, struct mr_error *err);
int mr_sim_thesis(struct mr_sim_workload *w, enum mr_policy_id policy, const atomic_bool *stop,
                  struct mr_sim_result *out, struct mr_error *err);
/* grain: samples per simulated item, 1 = exact, 0 = mr_sim_grain's choice. */
int mr_sim_shared(struct mr_sim_workload *w, enum mr_policy_id policy, uint64_t grain, const atomic_bool *stop,
                  struct mr_sim_result *out, struct mr_error *err);
uint64_t mr_sim_grain(const struct mr_sim_workload *w);

int mr_scenario_check(const struct mr_scenario *s, struct mr_error *err);

#endif
