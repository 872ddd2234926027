/* The trace of a simulated run: the same event records as a real one, on the virtual clock, in a .mrt file that
 * `millrace report` reads. Each node is a process with its rank. What there is:
 *
 *   POSIX reads    of "/pfs", "/peer" and "/class1-NAME" ..., one per item and source, bytes exact; writes only into
 *                  classes, by fillers
 *   loader.stage   an item on its way into the staging buffer, reads included; loader.fill into a class
 *   loader.wait    a node's training waits for data; compute.train: it computes; train.barrier: it waits for the others
 *   job.step       on rank 0, with the arguments step and epoch; job.epoch; job.preload
 *   job.stall      what a step took beyond the compute of its slowest node; job.stall and job.preload add up to stall_s
 *
 * Lanes (tid) of a node: 0 the job, 1 the training, from 2 on the prefetch threads. */
#ifndef MR_SIM_SIM_TRACE_H
#define MR_SIM_SIM_TRACE_H

#include "sim/sim.h"

enum mr_sim_span { MR_SPAN_STAGE, MR_SPAN_FILL, MR_SPAN_WAIT, MR_SPAN_COMPUTE, MR_SPAN_BARRIER, MR_SPANS };

#define MR_SIM_LANE_TRAIN 1u
#define MR_SIM_LANE_THREADS 2u

struct mr_sim_trace;

int mr_sim_trace_open(const char *path, const struct mr_scenario *s, struct mr_sim_trace **out, struct mr_error *err);
/* Accepts NULL. Says what went wrong with writing. */
int mr_sim_trace_close(struct mr_sim_trace *t, struct mr_error *err);

/* The following do nothing without a trace (NULL). Times in seconds; class 0 is the PFS, MR_CLASS_MAX a peer. */
#define MR_SIM_TRACE_PFS 0u
#define MR_SIM_TRACE_PEER ((unsigned)MR_CLASS_MAX)
void mr_sim_trace_read(struct mr_sim_trace *t, uint32_t node, uint32_t lane, unsigned source, double start_s,
                       double end_s, double mb);
void mr_sim_trace_write(struct mr_sim_trace *t, uint32_t node, uint32_t lane, unsigned class, double start_s,
                        double end_s, double mb);
void mr_sim_trace_span(struct mr_sim_trace *t, enum mr_sim_span span, uint32_t node, uint32_t lane, double start_s,
                       double end_s);
void mr_sim_trace_preload(struct mr_sim_trace *t, double end_s);
/* step counts over all epochs. */
void mr_sim_trace_step(struct mr_sim_trace *t, uint64_t step, uint32_t epoch, double start_s, double end_s,
                       double stall_s);
void mr_sim_trace_epoch(struct mr_sim_trace *t, uint32_t epoch, double start_s, double end_s);

#endif
