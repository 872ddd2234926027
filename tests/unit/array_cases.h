/* Shared by the tests of the array formats: writes samples with known content through a memory or posix store, reads
 * them back through plan and decode, and collects what scan finds. Included by test programs only. */
#ifndef MR_TESTS_ARRAY_CASES_H
#define MR_TESTS_ARRAY_CASES_H

#include "base/content.h"
#include "format/format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CASE_MAX_SAMPLES 4096

struct found {
    struct mr_sample_ref ref[CASE_MAX_SAMPLES];
    unsigned n;
    struct mr_layout layout;
};

static inline void found_done(struct found *f)
{
    free(f->layout.data);
    memset(f, 0, sizeof *f);
}

static inline int collect_ref(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err)
{
    struct found *f = user;
    (void)key;
    if (f->n == CASE_MAX_SAMPLES)
        return mr_error_plain(err, MR_E_LIMIT, "too many samples for the test");
    f->ref[f->n++] = *ref;
    return 0;
}

static inline void die(const struct mr_error *err)
{
    fail_msg("%s [%s]", err->message, err->context);
}

static inline struct mr_store *open_store(const char *spec)
{
    struct mr_store *s = NULL;
    struct mr_error err = {0};
    if (mr_store_open(spec, &s, &err) < 0)
        die(&err);
    return s;
}

/* The content of sample `id`, byte for byte. Booleans are 0 or 1. */
static inline void content_of(enum mr_dtype t, uint64_t id, uint64_t offset, void *dst, size_t len)
{
    const struct mr_content c = {.seed = 42, .compress_percent = 40};
    mr_content_fill(&c, id, offset, dst, len);
    for (size_t i = 0; t == MR_BOOL && i < len; i++)
        ((uint8_t *)dst)[i] &= 1;
}

static inline uint64_t dims_bytes(enum mr_dtype t, const struct mr_dims *dims)
{
    uint64_t n = mr_dtype_bytes(t);
    for (unsigned i = 0; i < dims->n; i++)
        n *= dims->dim[i];
    return n;
}

/* Sample i of a file with varying sizes has (i * 37 + 5) % 700 elements. */
static inline struct mr_dims dims_of(const struct mr_writer_spec *spec, uint64_t i)
{
    if (spec->fixed_size)
        return spec->dims;
    return (struct mr_dims){.n = 1, .dim = {(i * 37 + 5) % 700}};
}

static inline int64_t label_for(uint64_t i)
{
    return (int64_t)(i * 3) - 4;
}

/* Writes a file in pieces of at most `piece` bytes; what the writer reports goes to *f. Returns the first error. */
static inline int write_case(const struct mr_format_ops *ops, struct mr_store *s, const char *path,
                             const struct mr_writer_spec *spec, size_t piece, struct found *f, uint64_t *file_bytes,
                             struct mr_error *err)
{
    struct mr_writer *w = NULL;
    int rc = ops->writer_open(s, path, spec, &w, err);
    if (rc < 0)
        return rc;
    uint8_t *buf = malloc(piece);
    for (uint64_t i = 0; i < spec->samples && rc == 0; i++) {
        struct mr_dims dims = dims_of(spec, i);
        struct mr_sample_info info = {.id = i,
                                      .dtype = spec->dtype,
                                      .dims = dims,
                                      .bytes = dims_bytes(spec->dtype, &dims),
                                      .label = label_for(i)};
        rc = ops->sample_begin(w, &info, err);
        for (uint64_t at = 0; at < info.bytes && rc == 0; at += piece) {
            size_t n = info.bytes - at < piece ? (size_t)(info.bytes - at) : piece;
            content_of(spec->dtype, i, at, buf, n);
            rc = ops->sample_data(w, buf, n, err);
        }
        if (rc == 0 && i < CASE_MAX_SAMPLES)
            rc = ops->sample_end(w, &f->ref[i], err);
    }
    free(buf);
    if (rc < 0) {
        ops->writer_abort(w);
        return rc;
    }
    f->n = (unsigned)spec->samples;
    return ops->writer_close(w, &f->layout, file_bytes, err);
}

/* Reads sample i the way a reader does, unpacking first where the layout says so. out->data lives in raw or d. */
struct reader {
    const struct mr_format_ops *ops;
    struct mr_object *object;
    struct mr_decoder *decoder;
    struct mr_growbuf raw;
    void *unpacked;
    size_t unpacked_len;
};

static inline int reader_open(struct reader *r, const struct mr_format_ops *ops, struct mr_store *s, const char *path,
                              const struct mr_layout *layout, struct mr_error *err)
{
    struct mr_read_cost cost;
    *r = (struct reader){.ops = ops, .decoder = mr_decoder_create()};
    int rc = mr_object_open(s, path, MR_OBJ_READ, &r->object, err);
    if (rc == 0)
        rc = ops->cost(layout, &cost, err);
    if (rc == 0 && cost.access == MR_ACCESS_UNPACK) {
        void *data = NULL;
        size_t len = 0;
        rc = mr_store_read_file(s, path, 1u << 30, &data, &len, err);
        if (rc == 0)
            rc = ops->unpack(layout, data, len, &r->unpacked, &r->unpacked_len, err);
        free(data);
    }
    return rc;
}

static inline int reader_get(struct reader *r, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                             unsigned flags, struct mr_sample_out *out, struct mr_error *err)
{
    if (!r->unpacked)
        return mr_format_read_sample(r->ops, r->object, r->decoder, layout, ref, flags, &r->raw, out, err);
    struct mr_extent ext[1];
    unsigned n = 0;
    int rc = r->ops->plan(layout, ref, flags, ext, 1, &n, err);
    if (rc < 0)
        return rc;
    if (ext[0].offset > r->unpacked_len || ext[0].length > r->unpacked_len - ext[0].offset)
        return mr_error_plain(err, MR_E_FORMAT, "range outside the unpacked bytes");
    return r->ops->decode(r->decoder, layout, ref, flags, (char *)r->unpacked + ext[0].offset, ext[0].length, out, err);
}

static inline void reader_close(struct reader *r)
{
    (void)mr_object_close(r->object, NULL);
    mr_decoder_free(r->decoder);
    free(r->raw.data);
    free(r->unpacked);
}

/* Every sample of f must have the dtype, shape, label and content that write_case gave it. */
static inline void check_case(const struct mr_format_ops *ops, struct mr_store *s, const char *path,
                              const struct mr_writer_spec *spec, const struct found *f, unsigned flags, bool labels)
{
    struct mr_error err = {0};
    struct reader r;
    if (reader_open(&r, ops, s, path, &f->layout, &err) < 0)
        die(&err);
    assert_int_equal(f->n, spec->samples);
    for (unsigned i = 0; i < f->n; i++) {
        struct mr_dims dims = dims_of(spec, i);
        uint64_t bytes = dims_bytes(spec->dtype, &dims);
        uint8_t *want = malloc(bytes + 1), *dst = malloc(bytes + 1);
        content_of(spec->dtype, i, 0, want, bytes);
        for (unsigned own = 0; own < 2; own++) { /* into a buffer of ours, and where the decoder likes */
            struct mr_sample_out out = {.dst = own ? dst : NULL, .dst_cap = own ? bytes : 0};
            if (reader_get(&r, &f->layout, &f->ref[i], flags, &out, &err) < 0)
                die(&err);
            assert_int_equal(out.bytes, bytes);
            assert_int_equal(out.dtype, spec->dtype);
            assert_int_equal(out.dims.n, dims.n);
            assert_memory_equal(out.dims.dim, dims.dim, dims.n * sizeof dims.dim[0]);
            if (bytes)
                assert_memory_equal(out.data, want, bytes);
            if (own && bytes)
                assert_ptr_equal(out.data, dst);
            if (labels)
                assert_int_equal(out.label, label_for(i));
        }
        free(want);
        free(dst);
    }
    reader_close(&r);
}

/* Write, read back by the writer's refs, then scan and read back by what the scan found. */
static inline void round_trip(const struct mr_format_ops *ops, struct mr_store *s, const char *path,
                              const struct mr_writer_spec *spec, size_t piece)
{
    static struct found written, scanned;
    struct mr_error err = {0};
    uint64_t file_bytes = 0;
    memset(&written, 0, sizeof written);
    memset(&scanned, 0, sizeof scanned);
    if (write_case(ops, s, path, spec, piece, &written, &file_bytes, &err) < 0)
        die(&err);
    struct mr_store_stat st;
    assert_int_equal(mr_store_stat(s, path, &st, &err), 0);
    assert_int_equal(st.bytes, file_bytes);
    check_case(ops, s, path, spec, &written, 0, true);
    check_case(ops, s, path, spec, &written, MR_READ_VERIFY, true);
    int (*scan)(struct mr_store *, const char *, mr_scan_fn *, void *, struct mr_layout *, struct mr_error *) =
        ops->scan;
    if (!(ops->caps & MR_FMT_LABEL) && spec->samples != 1 && ops->scan_rows)
        scan = ops->scan_rows;
    if (scan(s, path, collect_ref, &scanned, &scanned.layout, &err) < 0)
        die(&err);
    check_case(ops, s, path, spec, &scanned, MR_READ_VERIFY, ops->caps & MR_FMT_LABEL);
    found_done(&written);
    found_done(&scanned);
}

#endif
