/* Shared by the fuzz targets of the array formats: fuzz_format.h, and also rows, unpacking, and hostile layouts. */
#ifndef MR_TESTS_FUZZ_ARRAY_H
#define MR_TESTS_FUZZ_ARRAY_H

#include "format/array_common.h"
#include "fuzz_format.h"

/* Stops a scan that lists more than a fuzzer needs. */
static inline int fuzz_keep_few(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct fuzz_found *f = user;
    (void)key;
    if (f->n == MR_ARRAY_LEN(f->ref))
        return mr_error_plain(err, MR_E_LIMIT, "enough");
    f->ref[f->n++] = *ref;
    return 0;
}

static inline void fuzz_rows_and_unpack(const struct mr_format_ops *f, const char *path, const uint8_t *data,
                                        size_t size)
{
    static struct mr_decoder *d;
    struct mr_error err;
    struct fuzz_found found = {.n = 0};
    struct mr_layout layout = {0};
    struct mr_read_cost cost;
    void *unpacked = NULL;
    size_t len = 0;
    if (!d)
        d = mr_decoder_create();
    for (unsigned rows = 0; rows < 2; rows++) {
        fuzz_scan_and_read_fields(f, path, rows ? MR_SCAN_ROWS : 0);
        int (*scan)(struct mr_store *, const char *, mr_scan_fn *, void *, struct mr_layout *, struct mr_error *) =
            rows ? f->scan_rows : f->scan;
        found.n = 0;
        if (!scan || scan(fuzz_store(), path, fuzz_keep_few, &found, &layout, &err) < 0)
            continue;
        if (f->cost(&layout, &cost, &err) < 0)
            abort(); /* a layout of our own making */
        if (cost.access == MR_ACCESS_UNPACK && f->unpack(&layout, data, size, &unpacked, &len, &err) >= 0) {
            for (unsigned i = 0; i < found.n; i++) {
                struct mr_extent e;
                unsigned n;
                struct mr_sample_out out = {0};
                if (f->plan(&layout, &found.ref[i], 0, &e, 1, &n, &err) < 0 || e.offset > len ||
                    e.length > len - e.offset)
                    abort(); /* scan promised it */
                (void)f->decode(d, &layout, &found.ref[i], 0, (char *)unpacked + e.offset, e.length, &out, &err);
            }
            free(unpacked);
        }
        free(layout.data);
        layout = (struct mr_layout){0};
    }
}

#endif
