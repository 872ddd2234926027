/* What annotations add to the events inside them: the arguments of the spans around an event, and the facts of its
 * process.
 *
 * An event inherits from the spans of its own thread that it lies in, the inner ones before the outer ones, and then
 * from the facts (metadata) that its process, or the one that started it, had stated by then. A loader's threads and
 * workers run ahead of the step that another thread is in, so they do not inherit its spans. */
#ifndef MR_REPORT_CONTEXT_H
#define MR_REPORT_CONTEXT_H

#include "import/trace_read.h"

/* A key and its value; the ids are strings of `process`. */
struct mr_inherited_arg {
    const struct mr_trace_process *process;
    uint32_t key;
    uint8_t type; /* enum of MR_MORE_... */
    uint64_t value;
};

struct mr_context;

int mr_context_create(const struct mr_trace *t, struct mr_context **out, struct mr_error *err);
void mr_context_free(struct mr_context *x);
/* Call before looking up the events of a chunk. Chunks are entered in their order. */
int mr_context_enter(struct mr_context *x, size_t chunk, struct mr_error *err);
/* What event i of the chunk inherits: each key once, without those in its own rows [arg, arg_end) of the arguments.
 * *list is valid until the next call. */
size_t mr_context_of(struct mr_context *x, const struct mr_event_batch *b, uint32_t i, uint32_t arg, uint32_t arg_end,
                     const struct mr_inherited_arg **list);

#endif
