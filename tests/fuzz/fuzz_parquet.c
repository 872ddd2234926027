/* The Parquet reader on arbitrary files, and the decoder of pages on arbitrary units. */
#include "format/parquet_unit.h"
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mr_format_ops *f = mr_format_find("parquet", NULL);
    struct mr_layout layout = {0};
    struct fuzz_found found = {.n = 0};
    struct mr_error err;
    mr_pq_unit_limit = 1 << 20; /* a few bytes can mean millions of equal values */
    fuzz_put("f.parquet", data, size);
    if (f->scan(fuzz_store(), "f.parquet", fuzz_keep_few, &found, &layout, &err) >= 0) {
        free(layout.data);
        fuzz_scan_and_read("parquet", "f.parquet");
    }
    /* One column of each kind, whose pages are the input. */
    static const struct mr_pq_type types[] = {
        {.physical = MR_PQ_INT32, .dtype = MR_I16, .max_def = 1},
        {.physical = MR_PQ_INT64, .dtype = MR_I64, .codec = MR_PQ_SNAPPY},
        {.physical = MR_PQ_BYTES, .dtype = MR_U8, .codec = MR_PQ_LZ4},
        {.physical = MR_PQ_FLOAT, .dtype = MR_F32, .max_rep = 1, .list_def = 2, .max_def = 3},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++) {
        void *unit;
        size_t len;
        const void *at;
        uint64_t bytes;
        if (mr_pq_unit_decode(&types[i], data, size, &unit, &len, &err) < 0)
            continue;
        for (uint64_t row = 0; mr_pq_unit_row(unit, len, row, &at, &bytes); row++)
            if ((const uint8_t *)at < (uint8_t *)unit || bytes > len ||
                (const uint8_t *)at + bytes > (uint8_t *)unit + len)
                abort();
        free(unit);
    }
    return 0;
}
