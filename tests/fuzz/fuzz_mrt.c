/* Any bytes as a .mrt trace, and, because checksums keep a fuzzer out of the blocks, any bytes as the payload of an events block (input
 * that does not start like a file: 4 bytes of count, then payload): no crash, no leak, no endless work. */
#include "event/trace_read.h"

#include <stdlib.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_function(void *user, const struct mr_mrt_aggregate *a)
{
    (void)user, (void)a;
}

/* Readers index arrays with these. */
static void on_bucket(void *user, unsigned bucket, uint64_t count)
{
    (void)user, (void)count;
    if (bucket >= MR_HIST_BUCKETS)
        abort();
}

static void on_size(void *user, uint64_t size, uint64_t count)
{
    (void)user, (void)size, (void)count;
}

static void on_sizes(void *user, const struct mr_mrt_sizes *s)
{
    (void)user, (void)s;
}

static void on_file(void *user, const struct mr_tally_file *row)
{
    (void)user, (void)row;
}

static const struct mr_mrt_visitor visitor = {on_function, on_bucket, on_size, on_sizes, on_bucket, on_file};

static int decode_payload(const uint8_t *data, size_t size)
{
    struct mr_mrt_view v = {.payload = data + 4, .head = {.type = MR_MRT_EVENTS, .payload_bytes = (uint32_t)size - 4}};
    struct mr_error err;
    v.head.count = (uint32_t)(data[0] | data[1] << 8) % 5000;
    uint32_t n = v.head.count > mr_mrt_args(&v) ? v.head.count : mr_mrt_args(&v);
    n = n > 100000 ? 100000 : n;
    if (mr_mrt_args(&v) > n)
        return 0;
    uint64_t *words = calloc((size_t)n + 1, 8 * 5);
    uint32_t *halves = calloc((size_t)n + 1, 4 * 3);
    uint16_t *shorts = calloc((size_t)n + 1, 2 * 2);
    uint8_t *bytes = calloc((size_t)n + 1, 1);
    void *scratch = malloc(MR_MRT_SCRATCH(n) + 8), *zstd = ZSTD_createDCtx();
    if (words && halves && shorts && bytes && scratch && zstd) {
        const struct mr_columns c = {.start_ns = words, .end_ns = words + n, .offset = words + 2 * n, .result = (int64_t *)(words + 3 * n), .arg_value = words + 4 * n,
                                     .file = halves, .arg_event = halves + n, .arg_key = halves + 2 * n, .call = shorts, .fd = shorts + n, .arg_type = bytes};
        (void)mr_mrt_decode(&v, MR_WANT_ALL, 0, zstd, scratch, &c, &err);
        (void)mr_mrt_aggregates(&v, &visitor, NULL, &err);
    }
    ZSTD_freeDCtx(zstd);
    free(words);
    free(halves);
    free(shorts);
    free(bytes);
    free(scratch);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 64 && data[0] != 0x89)
        return decode_payload(data, size);
    struct mr_trace *t;
    struct mr_error err;
    struct mr_batch b = {0};
    if (mr_trace_create(&t, &err) < 0)
        return 0;
    if (mr_trace_add_memory(t, data, size, "fuzz", &err) == 0 && mr_trace_finish(t, &err) == 0)
        for (size_t c = 0; c < t->chunks; c++) {
            (void)mr_trace_read(t, c, MR_WANT_ALL, &b, &err);
            if (!t->chunk[c].imported)
                (void)mr_mrt_aggregates(&t->chunk[c].view, &visitor, NULL, &err);
        }
    mr_batch_done(&b);
    mr_trace_free(t);
    return 0;
}
