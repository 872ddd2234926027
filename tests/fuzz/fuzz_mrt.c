/* Any bytes as a mrt trace: no crash, no leak, no endless work. */
#include "event/trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_aggregate(void *user, const struct mr_mrt_aggregate *a, bool of_size, unsigned bucket, uint64_t count)
{
    (void)user, (void)a, (void)of_size, (void)bucket, (void)count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_trace *t;
    struct mr_error err;
    struct mr_batch b = {0};
    if (mr_trace_create(&t, &err) < 0)
        return 0;
    if (mr_trace_add_memory(t, data, size, "fuzz", &err) == 0 && mr_trace_finish(t, &err) == 0)
        for (size_t c = 0; c < t->chunks; c++) {
            (void)mr_trace_read(t, c, MR_WANT_ALL, &b, &err);
            if (!t->chunk[c].imported)
                (void)mr_mrt_aggregates(&t->chunk[c].view, on_aggregate, NULL, &err);
        }
    mr_batch_done(&b);
    mr_trace_free(t);
    return 0;
}
