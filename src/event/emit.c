/* Emitting: see emit.h. */
#include "event/emit.h"

struct mr_events {
    enum mr_event_level level;
};

bool mr_events_want(const struct mr_events *e, enum mr_event_level level)
{
    return e && level <= e->level;
}

void mr_emit(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
             int64_t value)
{
    mr_emit_args(e, what, start_ns, end_ns, at, value, NULL, 0);
}

void mr_emit_args(struct mr_events *e, enum mr_span what, uint64_t start_ns, uint64_t end_ns, const struct mr_where *at,
                  int64_t value, const struct mr_emit_arg *arg, unsigned args)
{
    (void)e, (void)what, (void)start_ns, (void)end_ns, (void)at, (void)value, (void)arg, (void)args;
}

struct mr_event_sink *mr_events_calls(struct mr_events *e)
{
    (void)e;
    return NULL;
}
