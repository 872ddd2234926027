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

/* The same for fields: a few samples of the first ones. */
struct fuzz_fields {
    struct mr_sample_ref ref[8][16];
    struct mr_layout *layout;
    unsigned n, fields;
};

static inline int fuzz_keep_sample(void *user, const struct mr_sample_ref *refs, unsigned n, const char *key,
                                   struct mr_error *err)
{
    struct fuzz_fields *f = user;
    (void)key, (void)err;
    if (f->n < MR_ARRAY_LEN(f->ref))
        memcpy(f->ref[f->n++], refs, MR_MIN(n, 16u) * sizeof(*refs));
    return 0;
}

static inline int fuzz_keep_fields(void *user, const struct mr_field *fields, struct mr_layout *layouts, unsigned n,
                                   struct mr_error *err)
{
    struct fuzz_fields *f = user;
    (void)err;
    f->layout = calloc(n, sizeof(*f->layout));
    if (!f->layout)
        abort();
    memcpy(f->layout, layouts, n * sizeof(*layouts));
    f->fields = n;
    for (unsigned k = 0; k < n; k++)
        if (!fields[k].name[0] || fields[k].dims.n > MR_DIMS_MAX)
            abort();
    return 0;
}

static inline void fuzz_scan_and_read_fields(const struct mr_format_ops *f, const char *path, unsigned scan_flags)
{
    static struct mr_decoder *d;
    struct mr_error err;
    struct mr_object *o;
    struct mr_growbuf raw = {0};
    struct fuzz_fields found = {.n = 0};
    const struct mr_field_sink sink = {.user = &found, .sample = fuzz_keep_sample, .done = fuzz_keep_fields};
    const struct mr_field_ops *ops = mr_format_fields(f);
    if (!d)
        d = mr_decoder_create();
    if (!ops || ops->scan(fuzz_store(), path, scan_flags, &sink, &err) < 0)
        found.n = 0;
    if (mr_object_open(fuzz_store(), path, MR_OBJ_READ, &o, &err) < 0)
        abort();
    for (unsigned i = 0; i < found.n; i++)
        for (unsigned k = 0; k < MR_MIN(found.fields, 16u); k++) {
            struct mr_sample_out out = {0};
            if (found.layout[k].data &&
                mr_format_read_sample(f, o, d, &found.layout[k], &found.ref[i][k], i % 2, &raw, &out, &err) >= 0 &&
                out.bytes && ((const volatile uint8_t *)out.data)[out.bytes - 1] == 1 && out.dims.n > MR_DIMS_MAX)
                abort();
        }
    for (unsigned k = 0; k < found.fields; k++)
        free(found.layout[k].data);
    free(found.layout);
    free(raw.data);
    mr_object_close(o, NULL);
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
    if (f)
        fuzz_scan_and_read_fields(f, path, 0);
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
