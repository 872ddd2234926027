/* Events of the store s3 (event/emit.h): each request as a span from its start to its end, repeats included, with the
 * connection and the first byte of its last try; and their sums when the store is closed, at every level of events.
 * Bucket and key are in the calls of the storage stack, not here. */
#include "base/clock.h"
#include "base/common.h"
#include "event/emit.h"
#include "store/store.h"
#include "store/store_s3.h"

static void emit_request(void *user, const struct mr_s3_op *op)
{
    struct mr_events *e = ((struct s3_store *)user)->events;
    if (!mr_events_want(e, MR_LEVEL_SAMPLE))
        return;
    const struct mr_emit_arg arg[] = {{.name = "connect_ns", .value = (int64_t)op->connect_ns},
                                      {.name = "first_byte_ns", .value = (int64_t)op->first_byte_ns},
                                      {.name = "tries", .value = (int64_t)op->tries},
                                      {.name = "status", .value = op->status}};
    int64_t bytes = (int64_t)(op->got + op->body_bytes);
    mr_emit_args(e, MR_SPAN_REQUEST, op->submit_ns, mr_now_ns(), &MR_NOWHERE, op->code ? op->code : bytes, arg,
                 MR_ARRAY_LEN(arg));
}

void mr_store_emit_requests(struct mr_store *s, struct mr_events *e)
{
    while (s->lower)
        s = s->lower;
    if (s->ops != &mr_store_s3_ops || !mr_events_want(e, MR_LEVEL_STEP))
        return;
    store_of(s)->events = e;
    mr_s3_client_watch(store_of(s)->client, emit_request, s);
}

void mr_s3_emit_sums(const struct s3_store *s)
{
    uint64_t now = mr_now_ns();
    if (!s->events)
        return;
    const struct mr_s3_stats *st = mr_s3_client_stats(s->client);
#define SUM(field)                                                                                                     \
    {                                                                                                                  \
        .name = "objects_" #field, .value = (int64_t)st->field                                                         \
    }
    const struct mr_emit_arg arg[] = {SUM(requests), SUM(answers),    SUM(retries),       SUM(slowdowns),
                                      SUM(hedges),   SUM(connects),   SUM(bytes_in),      SUM(bytes_out),
                                      SUM(failures), SUM(connect_ns), SUM(first_byte_ns), SUM(answer_ns)};
#undef SUM
    mr_emit_args(s->events, MR_SPAN_OBJECTS, now, now, &MR_NOWHERE, 0, arg, MR_ARRAY_LEN(arg));
}
