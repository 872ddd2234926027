/* The Parquet reader on arbitrary files, and the decoder of pages on arbitrary units. */
#include "format/parquet_unit.h"
#include "fuzz_array.h"

#include <string.h>

static void check_rows(const struct mr_unit_memory *m, size_t len)
{
    const uint8_t *unit = m->data;
    const void *at;
    uint64_t bytes;
    for (uint64_t row = 0; mr_pq_unit_row(unit, len, row, &at, &bytes); row++)
        if ((const uint8_t *)at < unit || bytes > len || (const uint8_t *)at + bytes > unit + len)
            abort();
}

/* Values that stay where they were read are those that are decoded elsewhere. */
static void compare_here(const struct mr_pq_type *t, const uint8_t *data, size_t size, const void *unit, size_t len)
{
    struct mr_unit_memory m = {malloc(MR_UNIT_HEAD + size), MR_UNIT_HEAD + size};
    struct mr_error err;
    const void *a, *b;
    uint64_t n, k;
    size_t here_len;
    memcpy((uint8_t *)m.data + MR_UNIT_HEAD, data, size);
    int rc = mr_pq_unit_here(t, &m, size, &here_len, &err);
    if (rc == 0 && !unit)
        abort();
    if (rc == 0) {
        check_rows(&m, here_len);
        uint64_t row = 0;
        for (; mr_pq_unit_row(unit, len, row, &a, &n); row++)
            if (!mr_pq_unit_row(m.data, here_len, row, &b, &k) || k != n || (n && memcmp(a, b, n) != 0))
                abort();
        if (mr_pq_unit_row(m.data, here_len, row, &b, &k))
            abort();
    } else if (rc < 0 && unit) {
        abort();
    }
    free(m.data);
}

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
        {.physical = MR_PQ_FLOAT, .dtype = MR_F32},
        {.physical = MR_PQ_DOUBLE, .dtype = MR_F64, .max_def = 1},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(types); i++) {
        struct mr_unit_memory m = {0};
        size_t len = 0;
        bool ok = mr_pq_unit_decode(&types[i], data, size, &m, &len, &err) == 0;
        if (ok)
            check_rows(&m, len);
        compare_here(&types[i], data, size, ok ? m.data : NULL, len);
        free(m.data);
    }
    return 0;
}
