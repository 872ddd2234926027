/* The trace of a simulated run: the events of a real one (event/emit.h, doc/internals/events.md) on the virtual clock. Each node
 * is a rank, alone on its host. `millrace report`, `compare` and `check` read it like the trace of `millrace run`; only
 * the setting "simulated" of train.open marks that its times are virtual. What there is, by the thread (lane) of a
 * rank:
 *
 *   1, the training     train.open with the settings and the preloading, train.run, train.epoch; train.step with all of
 *                       struct mr_step and its parts; loader.wait, loader.batch ready; at the end the rank's figures
 *   2 ..., prefetching  loader.fetch store/ram/ssd/peer, loader.transform (preprocessing and the write into the staging
 *                       buffer), loader.row ready; background.fill and copy to ssd; reads of "/pfs" as calls
 *
 * Rules
 *  V1  A step's load, compute and barrier add up to the step: a simulated node does nothing else.
 *  V2  Bytes are whole and those of the samples: what the ranks got from all sources is what their steps consumed.
 *  V3  Under a policy that keeps samples in classes the ranks have figures of tiers, and, as with real tiers, the reads
 *      of the source are the node's: its steps have read_bytes 0.
 * A step that computes as its samples arrive waits several times: its loader.wait has the length of all and the end of
 * the last one; train.load lies at the start of the step, as the parts of every step do. */
#ifndef MR_SIM_SIM_TRACE_H
#define MR_SIM_SIM_TRACE_H

#include "sim/sim.h"

struct mr_sim_trace;

int mr_sim_trace_open(const char *path, const struct mr_sim_workload *w, enum mr_policy_id policy,
                      struct mr_sim_trace **out, struct mr_error *err);
/* Accepts NULL. Says what went wrong with writing. */
int mr_sim_trace_close(struct mr_sim_trace *t, struct mr_error *err);

/* The following do nothing without a trace (NULL). Times in seconds. */

/* Preloading is over; the first step begins. */
void mr_sim_trace_begin(struct mr_sim_trace *t, double ready_s);
void mr_sim_trace_end(struct mr_sim_trace *t, double end_s);
void mr_sim_trace_epoch(struct mr_sim_trace *t, uint32_t epoch, double start_s, double end_s);

/* Sources: the PFS, the own classes 1, 2, ..., a peer. */
#define MR_SIM_FROM_PFS 0u
#define MR_SIM_FROM_PEER ((unsigned)MR_CLASS_MAX)
#define MR_SIM_SOURCES (MR_CLASS_MAX + 1u)

/* What a thread of a node brought from one source. */
struct mr_sim_part {
    uint32_t node, thread; /* thread: of the node, from 0 */
    unsigned source;
    double start_s, end_s;
    uint64_t samples, bytes;
    uint32_t peer;         /* the node that gave it, of MR_SIM_FROM_PEER */
    uint64_t epoch, batch; /* of a batch; not of a fill */
    uint64_t sample;       /* its number where it is one, else UINT64_MAX */
};
void mr_sim_trace_fetch(struct mr_sim_trace *t, const struct mr_sim_part *p);
/* The same on its way into class `to`, ahead of use. */
void mr_sim_trace_fill(struct mr_sim_trace *t, const struct mr_sim_part *p, unsigned to);
/* Preprocessing and the write after a fetch; after a fill the write into class `to` (0: the staging buffer). The source
 * of the part is not looked at. */
void mr_sim_trace_write(struct mr_sim_trace *t, const struct mr_sim_part *p, unsigned to);
/* A sample is ready at p->end_s. */
void mr_sim_trace_row(struct mr_sim_trace *t, const struct mr_sim_part *p);
/* A node reads `id` from the PFS. */
void mr_sim_trace_source(struct mr_sim_trace *t, uint32_t node, uint32_t id);

struct mr_sim_step {
    uint32_t node, epoch;
    uint64_t step; /* within the epoch */
    double start_s, end_s;
    double wait_s, compute_s; /* the rest of the step is the wait for the slowest node */
    double ready_s;           /* its last sample was there */
    uint64_t bytes;
};
void mr_sim_trace_step(struct mr_sim_trace *t, const struct mr_sim_step *s);

#endif
