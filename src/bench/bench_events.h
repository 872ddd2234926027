/* The trainer's events (doc/internals/events.md): steps with their parts, checkpoints, drains, and at the
 * end the rank's sums. Everything is taken from what stands on the board, so that the trace and the board cannot
 * disagree. */
#ifndef MR_BENCH_BENCH_EVENTS_H
#define MR_BENCH_BENCH_EVENTS_H

#include "bench/trainer.h"
#include "event/emit.h"

/* The rank is ready to train: how it loads, and what the machine is, as arguments (run_trace.h: settings). */
void mr_bench_emit_open(const struct mr_bench_params *p, uint64_t start_ns, uint64_t end_ns);
/* The rank is done: from when it was ready to train until now, and its sums. */
void mr_bench_emit_rank(struct mr_events *e, uint64_t origin_ns, const struct mr_bench_rank *r);

#endif
