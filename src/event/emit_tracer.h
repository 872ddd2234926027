/* Events of our own code inside somebody else's program, which `millrace trace` watches: they go to the tracer as its
 * annotations do (millrace/trace.h), and end up beside the program's calls and spans. */
#ifndef MR_EVENT_EMIT_TRACER_H
#define MR_EVENT_EMIT_TRACER_H

#include "event/emit.h"

struct mr_emit_tracer;
/* NULL where no tracer is in this process, or no memory. */
struct mr_emit_tracer *mr_emit_tracer_create(void);
void mr_emit_tracer_free(struct mr_emit_tracer *t);
void mr_emit_tracer_put(const struct mr_emit_tracer *t, enum mr_span what, uint64_t start_ns, uint64_t end_ns,
                        const struct mr_where *at, int64_t value, const struct mr_emit_arg *more, unsigned n_more);

#endif
