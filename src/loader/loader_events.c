/* What the loader tells about itself (event/emit.h): fetch, decode, transform and row ready of each sample, batch
 * ready, and the consumer's wait. Times are those that the statistics need anyway; where nobody wants the events of a
 * level, nothing is noted for it. Calls of the storage stack are told by the trace shim, which is put on top if there
 * is none. */
#include "loader/loader_internal.h"
#include "base/clock.h"
#include "event/emit.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

#define SMALL_SAMPLE 4096u /* bytes: telling of each smaller one would cost a good part of loading it */

/* In a program that is traced, and told of nothing else, the loader tells the tracer. What the consumer's own thread
 * reads shows as its calls. */
static void tell_tracer(struct mr_loader *l)
{
    if (!l->p.events && l->read_ahead && !l->fills)
        l->p.events = l->to_tracer = mr_events_of_tracer(MR_LEVEL_SAMPLE);
}

void mr_loader_fit_events(struct mr_loader *l)
{
    if (l->to_tracer && l->info.sample_bytes / MR_MAX(l->info.samples, 1u) < SMALL_SAMPLE)
        l->tells_samples = false;
}

int mr_loader_open_store(struct mr_loader *l, struct mr_error *err)
{
    tell_tracer(l);
    struct mr_event_sink *calls = mr_events_calls(l->p.events);
    l->tells_steps = mr_events_want(l->p.events, MR_LEVEL_STEP);
    l->tells_samples = mr_events_want(l->p.events, MR_LEVEL_SAMPLE);
    if (l->store)
        return 0;
    char *spec;
    int rc = mr_store_spec_for(l->store_spec, l->dataset_path, &spec, err);
    if (rc)
        return rc;
    rc = mr_store_open_with_events(spec, calls, &l->store, err);
    l->owns_store = !rc;
    if (!rc)
        mr_store_emit_requests(l->store, l->p.events);
    free(spec);
    return rc;
}

/* What fills the memory belongs to no epoch. */
static struct mr_where place_of(const struct mr_loader *l, const struct slot *s, uint64_t sample)
{
    if (l->fills)
        return (struct mr_where){MR_UNKNOWN, MR_UNKNOWN, MR_UNKNOWN, sample};
    return (struct mr_where){.epoch = s->batch.epoch, .step = MR_UNKNOWN, .batch = s->batch.index, .sample = sample};
}

void mr_loader_tell_row(struct engine_thread *t, const struct slot *s, uint32_t row, int64_t fetched)
{
    struct mr_events *e = t->loader->p.events;
    const struct row_times *x = &t->row;
    const struct mr_where at = place_of(t->loader, s, s->ids[row]);
    if (!x->fetch_ns) /* it failed before anything was read */
        return;
    uint64_t last = MR_MAX(MR_MAX(x->fetched_ns, x->decoded_ns), x->transformed_ns);
    mr_emit(e, mr_loader_fetch_span(t), x->fetch_ns, x->fetched_ns, &at, fetched);
    if (fetched < 0 || t->loader->fills)
        return;
    if (x->decoded_ns)
        mr_emit(e, MR_SPAN_DECODE, x->decode_ns, x->decoded_ns, &at, (int64_t)s->bytes[row]);
    if (x->transformed_ns)
        mr_emit(e, MR_SPAN_TRANSFORM, x->transform_ns, x->transformed_ns, &at, (int64_t)s->bytes[row]);
    mr_emit(e, MR_SPAN_ROW_READY, last, last, &at, (int64_t)s->bytes[row]);
}

void mr_loader_tell_wait(struct mr_loader *l, const struct slot *s, uint64_t start_ns, uint64_t end_ns, bool delivered)
{
    const struct mr_where at = place_of(l, s, MR_UNKNOWN);
    const struct mr_emit_arg arg[] = {{.name = "workers", .value = (int64_t)l->n_threads},
                                      {.name = "prefetch", .value = (int64_t)l->n_slots - 1}};
    mr_emit_args(l->p.events, MR_SPAN_WAIT, start_ns, end_ns, &at, delivered ? (int64_t)s->n : 0, arg,
                 l->to_tracer ? MR_ARRAY_LEN(arg) : 0);
}

/* With what the threads did so far, all of them together: differences tell why a batch was late.
 * The slot may be another batch's as soon as its last row is counted, so what is told is noted before (row_done). */
void mr_loader_tell_batch(struct mr_loader *l, uint64_t epoch, uint64_t index, uint32_t rows, uint64_t now_ns)
{
    const struct mr_where at = {.epoch = epoch, .step = MR_UNKNOWN, .batch = index, .sample = MR_UNKNOWN};
    if (l->tells_samples) { /* what each thread did is told sample by sample */
        mr_emit(l->p.events, MR_SPAN_BATCH_READY, now_ns, now_ns, &at, (int64_t)rows);
        return;
    }
    struct loader_sums s = mr_loader_thread_sums(l, now_ns);
    const struct mr_emit_arg arg[] = {{.name = "readers", .value = l->read_ahead ? (int64_t)l->n_threads : 0},
                                      {.name = "read_ns", .value = (int64_t)s.read_ns},
                                      {.name = "decode_ns", .value = (int64_t)s.decode_ns},
                                      {.name = "transform_ns", .value = (int64_t)s.transform_ns},
                                      {.name = "idle_ns", .value = (int64_t)s.idle_ns}};
    mr_emit_args(l->p.events, MR_SPAN_BATCH_READY, now_ns, now_ns, &at, (int64_t)rows, arg, MR_ARRAY_LEN(arg));
}

/* Once for all that was delivered since. */
void mr_loader_tell_fields(struct mr_loader *l)
{
    if (!l->tells_steps || !l->n_fields || l->fields_told == l->delivered)
        return;
    const struct mr_where at = {
        .epoch = mr_order_epoch(l->order), .step = MR_UNKNOWN, .batch = MR_UNKNOWN, .sample = MR_UNKNOWN};
    uint64_t now = mr_now_ns();
    l->fields_told = l->delivered;
    for (unsigned k = 0; k < l->n_fields; k++) {
        struct mr_loader_field_stats s;
        char name[8][MR_FIELD_NAME_MAX + 16];
        struct mr_emit_arg arg[MR_ARRAY_LEN(name)];
        unsigned n = 0;
        mr_loader_get_field_stats_sized(l, k, &s, sizeof s);
#define PUT(member)                                                                                                    \
    snprintf(name[n], sizeof name[n], "%s:" #member, s.name);                                                          \
    arg[n] = (struct mr_emit_arg){.name = name[n], .value = (int64_t)s.member};                                        \
    n++;
        MR_FIELD_COSTS(PUT)
#undef PUT
        mr_emit_args(l->p.events, MR_SPAN_FIELD, now, now, &at, (int64_t)k, arg, n);
    }
}
