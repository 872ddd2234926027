/* NPY: one array per file. One sample per file is the whole array; several samples are the rows of its first axis.
 * The payload lies in one piece behind the header, so a sample is one range, read in place. Exceptions, all told by the
 * layout: big-endian files are swapped in decode, a Fortran-ordered sample is transposed in decode, and rows of a
 * Fortran-ordered file, which lie interleaved, are sorted out once for the whole file (MR_ACCESS_UNPACK).
 *
 * Layout: version u8 = 1, then the array description of array_common.h. */
#include "format/npy_header.h"
#include "base/cgroup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NPY_LAYOUT_VERSION 1
#define ROWS_WITHOUT_BYTES_MAX (1u << 20) /* rows of no bytes cost nothing on disk: a bound against absurd counts */

struct npy_writer {
    struct mr_array_writer a;
    uint64_t rows;       /* samples of the whole file */
    uint64_t end;        /* part with the last sample: size of the file; else 0 */
    bool without_header; /* a part other than the first */
};

static int npy_layout(const struct mr_array_desc *a, struct mr_layout *out, struct mr_error *err)
{
    uint8_t data[1 + MR_ARRAY_DESC_MAX] = {NPY_LAYOUT_VERSION};
    return mr_array_layout_make(data, 1 + mr_array_desc_encode(a, data + 1), out, err);
}

static int npy_layout_get(const struct mr_layout *layout, struct mr_array_desc *a, struct mr_error *err)
{
    const uint8_t *data = layout->data;
    size_t used;
    if (layout->len < 1 || data[0] != NPY_LAYOUT_VERSION)
        return mr_error_plain(err, MR_E_FORMAT, "bad npy layout (%zu bytes)", layout->len);
    int rc = mr_array_desc_decode(data + 1, layout->len - 1, a, &used, err);
    if (rc == 0 && used != layout->len - 1)
        return mr_error_plain(err, MR_E_FORMAT, "bad npy layout (%zu bytes)", layout->len);
    return rc;
}

static bool interleaved(const struct mr_array_desc *a)
{
    return (a->flags & MR_ARRAY_ROWS) && (a->flags & MR_ARRAY_FORTRAN) && a->dims.n > 0;
}

static int npy_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    if (spec->compression != MR_COMP_NONE) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "npy files cannot be compressed ('%s')", path);
        return mr_error_hint(err, "use format npz with compression zip"), MR_E_UNSUPPORTED;
    }
    if (spec->samples != 1 && spec->dims.n == MR_DIMS_MAX)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "samples of several per npy file may have %u axes at most",
                              MR_DIMS_MAX - 1);
    struct npy_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->rows = spec->samples;
    int rc = mr_array_writer_init(&w->a, &mr_format_npy, s, path, spec, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->a.base;
    return 0;
}

static size_t build_header(uint64_t rows, enum mr_dtype dtype, const struct mr_dims *dims,
                           uint8_t header[MR_NPY_BUILD_MAX])
{
    uint64_t shape[MR_NPY_AXES];
    unsigned n = 0;
    if (rows != 1)
        shape[n++] = rows;
    for (unsigned i = 0; i < dims->n; i++)
        shape[n++] = dims->dim[i];
    return mr_npy_header_build(dtype, shape, n, header);
}

static int npy_write_header(struct npy_writer *w, struct mr_error *err)
{
    uint8_t header[MR_NPY_BUILD_MAX];
    size_t len = build_header(w->rows, w->a.info.dtype, &w->a.info.dims, header);
    return mr_array_output_add(&w->a.out, header, len, err);
}

static uint64_t npy_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one)
{
    return spec->compression == MR_COMP_NONE && spec->fixed_size && one->dims.n < MR_DIMS_MAX ? one->bytes : 0;
}

static int npy_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                         const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                         struct mr_error *err)
{
    uint8_t header[MR_NPY_BUILD_MAX];
    uint64_t payload = build_header(spec->samples, one->dtype, &one->dims, header);
    struct npy_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->rows = spec->samples;
    w->without_header = first > 0;
    w->end = first + n == spec->samples ? payload + spec->samples * one->bytes : 0;
    uint64_t at = first ? payload + first * one->bytes : 0;
    int rc = mr_array_writer_init_part(&w->a, &mr_format_npy, s, path, spec, at, n, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->a.base;
    return 0;
}

static int npy_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct npy_writer *w = (struct npy_writer *)base;
    int rc = mr_array_writer_begin(&w->a, info, err);
    return rc == 0 && w->a.begun == 1 && !w->without_header ? npy_write_header(w, err) : rc;
}

static void *npy_sample_room(struct mr_writer *base, size_t len)
{
    return mr_array_output_here(&((struct npy_writer *)base)->a.out, len);
}

static int npy_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct npy_writer *w = (struct npy_writer *)base;
    int rc = mr_array_writer_take(&w->a, len, err);
    return rc < 0 ? rc : mr_array_output_add(&w->a.out, data, len, err);
}

static int npy_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct npy_writer *w = (struct npy_writer *)base;
    int rc = mr_array_writer_end(&w->a, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {mr_array_output_pos(&w->a.out) - w->a.info.bytes, w->a.info.bytes},
                                  .label = w->a.info.label};
    return 0;
}

static void npy_writer_free(struct npy_writer *w)
{
    mr_array_writer_done(&w->a);
    free(w);
}

static int npy_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct npy_writer *w = (struct npy_writer *)base;
    struct mr_npy_header h = {.dtype = w->a.info.dtype};
    struct mr_array_desc desc;
    int rc = mr_array_writer_complete(&w->a, err);
    if (rc == 0 && w->a.samples == 0)
        rc = npy_write_header(w, err);
    bool rows = w->rows != 1;
    if (rows)
        h.shape[h.n++] = w->rows;
    for (unsigned i = 0; i < w->a.info.dims.n; i++)
        h.shape[h.n++] = w->a.info.dims.dim[i];
    if (rc == 0)
        rc = mr_npy_header_desc(&h, rows, false, &desc, err);
    uint64_t size = mr_array_output_pos(&w->a.out);
    if (rc == 0 && w->end)
        rc = w->a.out.object->store->ops->truncate(w->a.out.object, w->end, err);
    if (rc == 0)
        rc = mr_array_output_close(&w->a.out, err);
    if (rc == 0)
        rc = npy_layout(&desc, layout, err);
    if (rc == 0)
        *file_bytes = size;
    npy_writer_free(w);
    return rc;
}

static void npy_writer_abort(struct mr_writer *base)
{
    if (base)
        npy_writer_free((struct npy_writer *)base);
}

static int emit_rows(const struct mr_array_desc *a, uint64_t payload_offset, mr_scan_fn *fn, void *user,
                     struct mr_error *err)
{
    uint64_t bytes = 0, first = interleaved(a) ? 0 : payload_offset;
    (void)mr_array_bytes(&a->dims, a->dtype, &bytes); /* checked by mr_npy_header_desc */
    if (bytes == 0 && a->rows > ROWS_WITHOUT_BYTES_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "%llu rows without bytes (limit %u)", (unsigned long long)a->rows,
                              ROWS_WITHOUT_BYTES_MAX);
    for (uint64_t i = 0; i < a->rows; i++) {
        struct mr_sample_ref ref = {.raw = {first + i * bytes, bytes}, .label = MR_LABEL_NONE};
        int rc = fn(user, &ref, NULL, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int scan_object(struct mr_object *o, bool rows, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                       struct mr_error *err)
{
    uint64_t size;
    struct mr_npy_header h;
    struct mr_array_desc a;
    int rc;
    if ((rc = mr_object_size(o, &size, err)) < 0 || (rc = mr_npy_header_read(o, 0, size, &h, err)) < 0 ||
        (rc = mr_npy_header_desc(&h, rows, false, &a, err)) < 0)
        return rc;
    if (rows) {
        if (interleaved(&a) && h.payload_bytes > MR_LIMIT_UNPACKED_BYTES)
            return mr_error_plain(err, MR_E_LIMIT, "rows of a Fortran-ordered array of %llu bytes: limit is %llu",
                                  (unsigned long long)h.payload_bytes, (unsigned long long)MR_LIMIT_UNPACKED_BYTES);
        rc = emit_rows(&a, h.payload_offset, fn, user, err);
    } else {
        struct mr_sample_ref ref = {.raw = {h.payload_offset, h.payload_bytes}, .label = MR_LABEL_NONE};
        rc = fn(user, &ref, NULL, err);
    }
    return rc < 0 ? rc : npy_layout(&a, layout, err);
}

static int scan_path(struct mr_store *s, const char *path, bool rows, mr_scan_fn *fn, void *user,
                     struct mr_layout *layout, struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    rc = scan_object(o, rows, fn, user, layout, err);
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    (void)mr_object_close(o, NULL); /* nothing was written */
    return rc;
}

static int npy_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    return scan_path(s, path, false, fn, user, layout, err);
}

static int npy_scan_rows(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                         struct mr_error *err)
{
    return scan_path(s, path, true, fn, user, layout, err);
}

static int npy_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct mr_array_desc a;
    int rc = npy_layout_get(layout, &a, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){
        .access = MR_ACCESS_RANGE, .bytes_read_per_payload_byte = 1.0, .verbatim = mr_array_is_plain(&a)};
    out->note = out->verbatim ? "payload read in place" : "big-endian or Fortran order: rearranged in memory";
    if (interleaved(&a)) {
        out->access = MR_ACCESS_UNPACK;
        out->note = "rows of a Fortran-ordered array lie interleaved: the file is read and transposed as a whole";
    }
    return 0;
}

static int npy_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    struct mr_array_desc a, now;
    struct mr_npy_header h;
    int rc;
    if ((rc = npy_layout_get(layout, &a, err)) < 0 || (rc = mr_npy_header_parse(raw, len, &h, err)) < 0)
        return rc;
    if (!interleaved(&a))
        return mr_format_no_unpack(layout, raw, len, out, out_len, err);
    if (mr_npy_header_desc(&h, true, false, &now, NULL) < 0 || now.dtype != a.dtype || now.flags != a.flags ||
        now.rows != a.rows || now.dims.n != a.dims.n ||
        memcmp(now.dims.dim, a.dims.dim, a.dims.n * sizeof(a.dims.dim[0])) != 0)
        return mr_error_plain(err, MR_E_CHANGED, "the header differs from what the scan saw");
    if (h.payload_bytes > len - h.payload_offset)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu, file has %zu)",
                              (unsigned long long)h.payload_bytes, (unsigned long long)h.payload_offset, len);
    void *p = mr_malloc_within(h.payload_bytes);
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot unpack %llu bytes", (unsigned long long)h.payload_bytes);
    mr_array_normalise(p, (const uint8_t *)raw + h.payload_offset, &a);
    *out = p;
    *out_len = h.payload_bytes;
    return 0;
}

static int npy_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    (void)flags; /* npy has no checksum */
    struct mr_array_desc a;
    int rc;
    if ((rc = npy_layout_get(layout, &a, err)) < 0)
        return rc;
    if (len != ref->raw.length)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of sample (want %llu bytes at %llu, have %zu)",
                              (unsigned long long)ref->raw.length, (unsigned long long)ref->raw.offset, len);
    if ((rc = mr_array_desc_resolve(&a, len, err)) < 0)
        return rc;
    if (mr_array_is_plain(&a) || interleaved(&a)) { /* interleaved rows were put right by unpack */
        rc = mr_array_deliver(raw, len, out, err);
    } else {
        void *p;
        struct mr_array_desc one = a;
        one.flags &= ~(unsigned)MR_ARRAY_ROWS;
        if ((rc = mr_array_target(d, 0, len, out, &p, err)) < 0)
            return rc;
        mr_array_normalise(p, raw, &one);
        rc = mr_array_deliver(p, len, out, err);
    }
    out->dtype = a.dtype;
    out->dims = a.dims;
    out->label = ref->label;
    return rc;
}

const struct mr_format_ops mr_format_npy = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "npy",
    .doc = "NumPy array files: one array per file; all numeric types, both byte orders, C and Fortran order.",
    .extensions = ".npy",
    .caps = MR_FMT_MULTI | MR_FMT_VERBATIM | MR_FMT_DTYPE,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = npy_writer_open,
    .sample_begin = npy_sample_begin,
    .sample_data = npy_sample_data,
    .sample_room = npy_sample_room,
    .sample_end = npy_sample_end,
    .writer_close = npy_writer_close,
    .writer_abort = npy_writer_abort,
    .part_bytes = npy_part_bytes,
    .part_open = npy_part_open,
    .side_suffixes = "",
    .scan = npy_scan,
    .scan_rows = npy_scan_rows,
    .cost = npy_cost,
    .unpack = npy_unpack,
    .plan = mr_format_plan_single,
    .decode = npy_decode,
};
