/* Any bytes as a .mrt trace, and, because checksums keep a fuzzer out of the blocks, any bytes as the payload of an
 * events block (input that does not start like a file: 4 bytes of count, then payload): no crash, no leak, no endless
 * work. Some of the payloads are also sealed into a file and summarised. */
#include "analyze/summary.h"
#include "import/trace_read.h"

#include <stdlib.h>
#include <string.h>
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
    v.head.count = (uint32_t)(data[0] | data[1] << 8) % 300;
    uint32_t n = v.head.count > mr_mrt_args(&v) ? v.head.count : mr_mrt_args(&v);
    n = n > 1000 ? 1000 : n;
    if (mr_mrt_args(&v) > n)
        return 0;
    uint64_t *words = calloc((size_t)n + 1, 8 * 5);
    uint32_t *halves = calloc((size_t)n + 1, 4 * 3);
    uint16_t *shorts = calloc((size_t)n + 1, 2 * 2);
    uint8_t *bytes = calloc((size_t)n + 1, 1);
    void *scratch = malloc(MR_MRT_SCRATCH(n) + 8);
    static void *zstd; /* one for all: making it takes longer than the rest */
    zstd = zstd ? zstd : ZSTD_createDCtx();
    if (words && halves && shorts && bytes && scratch && zstd) {
        const struct mr_columns c = {.start_ns = words,
                                     .end_ns = words + n,
                                     .offset = words + 2 * n,
                                     .result = (int64_t *)(words + 3 * n),
                                     .arg_value = words + 4 * n,
                                     .file = halves,
                                     .arg_event = halves + n,
                                     .arg_key = halves + 2 * n,
                                     .call = shorts,
                                     .fd = shorts + n,
                                     .arg_type = bytes};
        (void)mr_mrt_decode(&v, MR_WANT_ALL, 0, zstd, scratch, &c, &err);
        (void)mr_mrt_aggregates(&v, &visitor, NULL, &err);
    }
    free(words);
    free(halves);
    free(shorts);
    free(bytes);
    free(scratch);
    return 0;
}

static void summarise_payload(const uint8_t *data, size_t size)
{
    static const struct mr_summary_options filters[] = {{.threads = 1, .rank = -1, .step_from = -1},
                                                        {.threads = 1, .rank = -1, .step_from = -1, .from_ns = 1},
                                                        {.threads = 1, .rank = -1, .step_from = 0, .step_to = 9}};
    static const uint8_t id[16];
    struct mr_mrt_block b = {.type = MR_MRT_EVENTS,
                             .key = 1,
                             .tid = 1,
                             .count = (uint32_t)(data[0] | data[1] << 8) % 300,
                             .first_ns = 100,
                             .last_ns = 100000,
                             .payload_bytes = (uint32_t)size - 4};
    struct mr_trace *t = NULL;
    struct mr_summary *s = NULL;
    struct mr_error err;
    uint8_t *file = malloc(MR_MRT_HEADER * 2 + size + 16);
    if (!file || mr_trace_create(&t, &err) < 0) {
        free(file);
        return;
    }
    mr_mrt_file_header(0, id, file);
    memcpy(file + MR_MRT_HEADER * 2, data + 4, size - 4);
    size_t n = MR_MRT_HEADER + mr_mrt_seal(file + MR_MRT_HEADER, &b);
    if (mr_trace_add_memory(t, file, n, "fuzz", &err) == 0 && mr_trace_finish(t, &err) == 0)
        (void)mr_summarise(t, &filters[data[3] % 3], NULL, &s, &err);
    mr_summary_free(s);
    mr_trace_free(t);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 64 && data[0] != 0x89) {
        if (data[2] % 64 == 63)
            summarise_payload(data, size);
        return decode_payload(data, size);
    }
    struct mr_trace *t;
    struct mr_error err;
    static struct mr_event_batch b; /* kept: its memory is large */
    if (mr_trace_create(&t, &err) < 0)
        return 0;
    if (mr_trace_add_memory(t, data, size, "fuzz", &err) == 0 && mr_trace_finish(t, &err) == 0)
        for (size_t c = 0; c < t->chunks; c++) {
            (void)mr_trace_read(t, c, MR_WANT_ALL, &b, &err);
            if (!t->chunk[c].imported)
                (void)mr_mrt_aggregates(&t->chunk[c].view, &visitor, NULL, &err);
        }
    mr_trace_free(t);
    return 0;
}
