/* Steps, checkpoints and drains as events: see series_emit.h. */
#include "metrics/series_emit.h"
#include "base/common.h"
#include "metrics/series_fields.h"

#include <assert.h>

#define ARG(field) {.name = #field, .value = (int64_t)s->field},

/* The parts lie behind each other: load, copy, compute, and the barrier at the end. */
static void emit_parts(struct mr_events *e, uint64_t start, const struct mr_step *s, const struct mr_where *at)
{
    uint64_t loaded = start + s->load_ns, copied = loaded + s->copy_ns, end = start + (s->end_ns - s->start_ns);
    assert(copied + s->compute_wall_ns + s->barrier_ns <= end); /* the parts are disjoint (metrics.h) */
    mr_emit(e, MR_SPAN_LOAD, start, loaded, at, (int64_t)s->sample_bytes);
    if (s->copy_ns)
        mr_emit(e, MR_SPAN_COPY, loaded, copied, at, (int64_t)s->sample_bytes);
    if (s->compute_wall_ns)
        mr_emit(e, MR_SPAN_COMPUTE, copied, copied + s->compute_wall_ns, at, 0);
    mr_emit(e, MR_SPAN_BARRIER, end - s->barrier_ns, end, at, 0);
}

void mr_series_emit_step(struct mr_events *e, uint64_t origin_ns, const struct mr_step *s, uint64_t number)
{
    struct mr_where at = {.epoch = s->epoch, .step = number, .batch = s->step, .sample = MR_UNKNOWN};
    uint64_t start = origin_ns + s->start_ns;
    if (!mr_events_want(e, MR_LEVEL_STEP))
        return;
    const struct mr_emit_arg args[] = {MR_STEP_FIELDS(ARG)};
    emit_parts(e, start, s, &at);
    mr_emit_args(e, MR_SPAN_STEP, start, origin_ns + s->end_ns, &at, (int64_t)s->sample_bytes, args,
                 MR_ARRAY_LEN(args));
}

void mr_series_emit_checkpoint(struct mr_events *e, uint64_t origin_ns, const struct mr_checkpoint_event *s)
{
    const struct mr_emit_arg args[] = {MR_CHECKPOINT_FIELDS(ARG)};
    struct mr_where at = MR_NOWHERE;
    at.step = s->step;
    mr_emit_args(e, s->is_load ? MR_SPAN_RESTORE : MR_SPAN_SAVE, origin_ns + s->start_ns,
                 origin_ns + s->start_ns + s->duration_ns, &at, (int64_t)s->bytes, args, MR_ARRAY_LEN(args));
}

void mr_series_emit_drain(struct mr_events *e, uint64_t origin_ns, const struct mr_drain_event *s)
{
    const struct mr_emit_arg args[] = {MR_DRAIN_FIELDS(ARG)};
    struct mr_where at = MR_NOWHERE;
    at.step = s->step;
    mr_emit_args(e, MR_SPAN_DRAIN, origin_ns + s->start_ns, origin_ns + s->start_ns + s->duration_ns, &at,
                 (int64_t)s->bytes, args, MR_ARRAY_LEN(args));
}
