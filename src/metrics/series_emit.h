/* The rows of a rank's series as events of its trace (doc/internals/events.md): what src/analyze/run_trace.h reads back. The
 * trainer and the simulator write their steps with these functions, so that both have the same spans with the same
 * arguments.
 *
 * Times of a row are relative to origin_ns, the clock's value when the rank was ready to train. */
#ifndef MR_METRICS_SERIES_EMIT_H
#define MR_METRICS_SERIES_EMIT_H

#include "event/emit.h"
#include "metrics/metrics.h"

/* A step, and its parts one behind the other: load, copy, compute, and the barrier at the end. `number` of a training
 * step counts over the whole run; MR_UNKNOWN for evaluation. */
void mr_series_emit_step(struct mr_events *e, uint64_t origin_ns, const struct mr_step *s, uint64_t number);
void mr_series_emit_checkpoint(struct mr_events *e, uint64_t origin_ns, const struct mr_checkpoint_event *s);
void mr_series_emit_drain(struct mr_events *e, uint64_t origin_ns, const struct mr_drain_event *s);

#endif
