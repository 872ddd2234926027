/* Shared by the fuzz targets of formats: the input is a file; it is scanned, and every sample found is read with and
 * without verification. Nothing may crash, leak or run away. */
#ifndef MR_TESTS_FUZZ_FORMAT_H
#define MR_TESTS_FUZZ_FORMAT_H

#include "format/format.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_found {
    struct mr_sample_ref ref[32];
    unsigned n;
};

static inline int fuzz_keep(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct fuzz_found *f = user;
    (void)key, (void)err;
    if (f->n < MR_ARRAY_LEN(f->ref))
        f->ref[f->n++] = *ref;
    return 0;
}

static inline struct mr_store *fuzz_store(void)
{
    static struct mr_store *s;
    if (!s && mr_store_open("memory", &s, NULL) < 0)
        abort();
    return s;
}

static inline void fuzz_put(const char *path, const uint8_t *data, size_t size)
{
    struct mr_object *o;
    if (mr_object_open(fuzz_store(), path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, NULL) < 0 ||
        (size && mr_object_write(o, data, size, 0, NULL) < 0) || mr_object_close(o, NULL) < 0)
        abort();
}

static inline void fuzz_scan_and_read(const char *format, const char *path)
{
    static struct mr_decoder *d;
    struct mr_error err;
    struct fuzz_found found = {.n = 0};
    struct mr_layout layout = {0};
    const struct mr_format_ops *f = mr_format_find(format, &err);
    struct mr_object *o;
    if (!d)
        d = mr_decoder_create();
    if (!f || f->scan(fuzz_store(), path, fuzz_keep, &found, &layout, &err) < 0)
        return;
    if (mr_object_open(fuzz_store(), path, MR_OBJ_READ, &o, &err) < 0)
        abort();
    struct mr_growbuf raw = {0};
    for (unsigned i = 0; i < found.n; i++)
        for (unsigned flags = 0; flags <= MR_READ_VERIFY; flags++) {
            struct mr_sample_out out = {0};
            if (mr_format_read_sample(f, o, d, &layout, &found.ref[i], flags, &raw, &out, &err) >= 0 && out.bytes)
                if (((const volatile uint8_t *)out.data)[out.bytes - 1] == 1 && out.dims.n > MR_DIMS_MAX)
                    abort();
        }
    free(raw.data);
    free(layout.data);
    mr_object_close(o, NULL);
}

#endif
