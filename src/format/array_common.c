/* Array helpers: see array_common.h. Everything that turns sizes from a file into memory goes through the checked
 * arithmetic here; gather and swap trust their arguments, which their callers have checked. */
#include "format/array_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_BUFFER_BYTES (256u << 10)

bool mr_array_bytes(const struct mr_dims *dims, enum mr_dtype dtype, uint64_t *out)
{
    uint64_t n = mr_dtype_bytes(dtype);
    for (unsigned i = 0; i < dims->n; i++)
        if (!mr_mul_ok(n, dims->dim[i], &n))
            return false;
    *out = n;
    return true;
}

size_t mr_array_desc_encode(const struct mr_array_desc *a, uint8_t out[MR_ARRAY_DESC_MAX])
{
    out[0] = (uint8_t)a->dtype;
    out[1] = (uint8_t)a->flags;
    out[2] = (uint8_t)a->dims.n;
    out[3] = 0;
    mr_store_le64(out + 4, a->rows);
    for (unsigned i = 0; i < a->dims.n; i++)
        mr_store_le64(out + 12 + 8 * i, i == 0 && (a->flags & MR_ARRAY_FLEX) ? 0 : a->dims.dim[i]);
    return 12 + 8 * (size_t)a->dims.n;
}

int mr_array_desc_decode(const uint8_t *data, size_t len, struct mr_array_desc *out, size_t *used, struct mr_error *err)
{
    struct mr_array_desc a = {0};
    if (len < 12 || data[0] >= MR_DTYPE_COUNT || data[1] > 31 || data[2] > MR_DIMS_MAX || data[3] != 0 ||
        len - 12 < 8u * data[2])
        return mr_error_plain(err, MR_E_FORMAT, "bad array layout (%zu bytes)", len);
    a.dtype = data[0];
    a.flags = data[1];
    a.dims.n = data[2];
    a.rows = mr_load_le64(data + 4);
    for (unsigned i = 0; i < a.dims.n; i++)
        a.dims.dim[i] = mr_load_le64(data + 12 + 8 * i);
    uint64_t bytes, total;
    if (!mr_array_bytes(&a.dims, a.dtype, &bytes) || bytes > MR_LIMIT_SAMPLE_BYTES ||
        !mr_mul_ok(bytes, MR_MAX(a.rows, 1), &total))
        return mr_error_plain(err, MR_E_LIMIT, "array layout describes a sample of more than %llu bytes",
                              (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if ((a.flags & MR_ARRAY_FLEX) && (a.dims.n == 0 || (a.flags & MR_ARRAY_ROWS)))
        return mr_error_plain(err, MR_E_FORMAT, "bad array layout (flags %u)", a.flags);
    *out = a;
    *used = 12 + 8 * (size_t)a.dims.n;
    return 0;
}

int mr_array_desc_resolve(struct mr_array_desc *a, uint64_t payload_bytes, struct mr_error *err)
{
    uint64_t have = 0;
    if (a->flags & MR_ARRAY_FLEX) {
        struct mr_dims rest = a->dims;
        rest.dim[0] = 1;
        if (!mr_array_bytes(&rest, a->dtype, &have) || have == 0 || payload_bytes % have ||
            payload_bytes > MR_LIMIT_SAMPLE_BYTES)
            return mr_error_plain(err, MR_E_FORMAT, "sample of %llu bytes is not a whole number of rows of %llu bytes",
                                  (unsigned long long)payload_bytes, (unsigned long long)have);
        a->dims.dim[0] = payload_bytes / have;
        return 0;
    }
    if (!mr_array_bytes(&a->dims, a->dtype, &have) || have != payload_bytes)
        return mr_error_plain(err, MR_E_FORMAT, "sample has %llu bytes, its shape needs %llu",
                              (unsigned long long)payload_bytes, (unsigned long long)have);
    return 0;
}

unsigned mr_dtype_swap_unit(enum mr_dtype t)
{
    return t == MR_C64 ? 4 : t == MR_C128 ? 8 : mr_dtype_bytes(t);
}

void mr_array_swap(void *dst, const void *src, uint64_t n, unsigned unit)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
    for (uint64_t i = 0; i < n; i++, d += unit, s += unit) {
        if (unit == 2) {
            uint16_t v;
            memcpy(&v, s, 2);
            v = __builtin_bswap16(v);
            memcpy(d, &v, 2);
        } else if (unit == 4) {
            uint32_t v;
            memcpy(&v, s, 4);
            v = __builtin_bswap32(v);
            memcpy(d, &v, 4);
        } else if (unit == 8) {
            uint64_t v;
            memcpy(&v, s, 8);
            v = __builtin_bswap64(v);
            memcpy(d, &v, 8);
        } else {
            d[0] = s[0];
        }
    }
}

void mr_array_gather(void *dst, const void *src, const struct mr_dims *dims, const uint64_t stride[MR_DIMS_MAX],
                     unsigned elem)
{
    uint64_t index[MR_DIMS_MAX] = {0}, inner = dims->n ? dims->dim[dims->n - 1] : 1;
    uint64_t inner_stride = dims->n ? stride[dims->n - 1] : 0;
    const uint8_t *row = src;
    uint8_t *out = dst;
    for (unsigned i = 0; i < dims->n; i++)
        if (dims->dim[i] == 0)
            return;
    for (;;) {
        if (inner_stride == elem) {
            memcpy(out, row, inner * elem);
            out += inner * elem;
        } else {
            const uint8_t *p = row;
            for (uint64_t i = 0; i < inner; i++, p += inner_stride, out += elem)
                memcpy(out, p, elem);
        }
        int axis = (int)dims->n - 2;
        for (; axis >= 0; axis--) {
            row += stride[axis];
            if (++index[axis] < dims->dim[axis])
                break;
            row -= stride[axis] * dims->dim[axis];
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

bool mr_array_is_plain(const struct mr_array_desc *a)
{
    bool one_axis = a->dims.n + ((a->flags & MR_ARRAY_ROWS) ? 1 : 0) <= 1;
    bool swap = (a->flags & MR_ARRAY_SWAP) && mr_dtype_swap_unit(a->dtype) > 1;
    return !swap && (one_axis || !(a->flags & (MR_ARRAY_FORTRAN | MR_ARRAY_LAST)));
}

/* Byte strides of the axes of one sample and of the sample axis, for the order in the file. */
static uint64_t strides(const struct mr_array_desc *a, uint64_t stride[MR_DIMS_MAX])
{
    uint64_t step = mr_dtype_bytes(a->dtype), row_stride = 0;
    bool rows = a->flags & MR_ARRAY_ROWS, last = a->flags & MR_ARRAY_LAST, fortran = a->flags & MR_ARRAY_FORTRAN;
    if (rows && last != fortran) { /* the sample axis varies fastest */
        row_stride = step;
        step *= a->rows;
    }
    for (unsigned i = 0; i < a->dims.n; i++) {
        unsigned axis = fortran ? i : a->dims.n - 1 - i;
        stride[axis] = step;
        step *= a->dims.dim[axis];
    }
    return rows && last == fortran ? step : row_stride;
}

void mr_array_normalise(void *dst, const void *src, const struct mr_array_desc *a)
{
    uint64_t stride[MR_DIMS_MAX], row_bytes = 0, row_stride = strides(a, stride);
    uint64_t rows = (a->flags & MR_ARRAY_ROWS) ? a->rows : 1;
    unsigned elem = mr_dtype_bytes(a->dtype), unit = mr_dtype_swap_unit(a->dtype);
    (void)mr_array_bytes(&a->dims, a->dtype, &row_bytes); /* checked by the caller */
    if (row_bytes == 0)
        return;
    for (uint64_t r = 0; r < rows; r++)
        mr_array_gather((uint8_t *)dst + r * row_bytes, (const uint8_t *)src + r * row_stride, &a->dims, stride, elem);
    if ((a->flags & MR_ARRAY_SWAP) && unit > 1)
        mr_array_swap(dst, dst, rows * row_bytes / unit, unit);
}

int mr_array_target(struct mr_decoder *d, unsigned slot, uint64_t bytes, struct mr_sample_out *out, void **target,
                    struct mr_error *err)
{
    if (bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "sample of %llu bytes exceeds the limit of %llu",
                              (unsigned long long)bytes, (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if (out->dst && out->dst_cap < bytes) {
        out->bytes = bytes;
        return mr_error_plain(err, MR_E_LIMIT, "sample needs %llu bytes, the buffer has %zu", (unsigned long long)bytes,
                              out->dst_cap);
    }
    void *p = out->dst ? out->dst : mr_decoder_scratch(d, slot, MR_MAX(bytes, 1));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot get %llu bytes for a sample", (unsigned long long)bytes);
    *target = p;
    return 0;
}

int mr_array_deliver(const void *data, uint64_t bytes, struct mr_sample_out *out, struct mr_error *err)
{
    out->bytes = bytes;
    if (!out->dst || out->dst == data) {
        out->data = data;
        return 0;
    }
    if (out->dst_cap < bytes)
        return mr_error_plain(err, MR_E_LIMIT, "sample needs %llu bytes, the buffer has %zu", (unsigned long long)bytes,
                              out->dst_cap);
    if (bytes)
        memcpy(out->dst, data, bytes);
    out->data = out->dst;
    return 0;
}

int mr_array_deliver_as(struct mr_decoder *d, unsigned slot, struct mr_array_desc *a, const void *payload,
                        uint64_t bytes, struct mr_sample_out *out, struct mr_error *err)
{
    int rc = mr_array_desc_resolve(a, bytes, err);
    if (rc < 0)
        return rc;
    struct mr_array_desc one = *a;
    one.flags &= ~(unsigned)(MR_ARRAY_ROWS | MR_ARRAY_LAST);
    if (mr_array_is_plain(&one)) {
        rc = mr_array_deliver(payload, bytes, out, err);
    } else {
        void *p;
        if ((rc = mr_array_target(d, slot, bytes, out, &p, err)) < 0)
            return rc;
        mr_array_normalise(p, payload, &one);
        rc = mr_array_deliver(p, bytes, out, err);
    }
    out->dtype = a->dtype;
    out->dims = a->dims;
    return rc;
}

int mr_array_layout_make(const void *data, size_t len, struct mr_layout *out, struct mr_error *err)
{
    void *copy = malloc(MR_MAX(len, 1));
    if (!copy)
        return mr_error_set(err, -ENOMEM, "cannot keep a layout of %zu bytes", len);
    memcpy(copy, data, len);
    *out = (struct mr_layout){.data = copy, .len = len};
    return 0;
}

static int output_open(struct mr_array_output *o, struct mr_store *s, const char *path, unsigned flags,
                       struct mr_error *err)
{
    *o = (struct mr_array_output){.buf = malloc(OUTPUT_BUFFER_BYTES)};
    if (!o->buf)
        return mr_error_set(err, -ENOMEM, "cannot get a write buffer for '%s'", path);
    int rc = mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE | flags, &o->object, err);
    if (rc < 0) {
        free(o->buf);
        *o = (struct mr_array_output){0};
    }
    return rc;
}

int mr_array_output_open(struct mr_array_output *o, struct mr_store *s, const char *path, struct mr_error *err)
{
    return output_open(o, s, path, MR_OBJ_TRUNCATE, err);
}

int mr_array_output_open_part(struct mr_array_output *o, struct mr_store *s, const char *path, uint64_t offset,
                              struct mr_error *err)
{
    int rc = output_open(o, s, path, 0, err);
    if (rc >= 0)
        o->start = offset;
    return rc;
}

static int output_flush(struct mr_array_output *o, struct mr_error *err)
{
    if (o->len == 0)
        return 0;
    int rc = mr_object_write(o->object, o->buf, o->len, o->start, err);
    if (rc < 0)
        return rc;
    o->start += o->len;
    o->len = 0;
    return 0;
}

int mr_array_output_add(struct mr_array_output *o, const void *data, size_t len, struct mr_error *err)
{
    if (len == 0)
        return 0;
    int rc;
    if (len > OUTPUT_BUFFER_BYTES - o->len && (rc = output_flush(o, err)) < 0)
        return rc;
    if (len >= OUTPUT_BUFFER_BYTES) {
        rc = mr_object_write(o->object, data, len, o->start, err);
        if (rc < 0)
            return rc;
        o->start += len;
        return 0;
    }
    if (data != o->buf + o->len) /* it was made in place: mr_array_output_here */
        memcpy(o->buf + o->len, data, len);
    o->len += len;
    return 0;
}

void *mr_array_output_here(struct mr_array_output *o, size_t len)
{
    if (len >= OUTPUT_BUFFER_BYTES || (len > OUTPUT_BUFFER_BYTES - o->len && output_flush(o, NULL) < 0))
        return NULL; /* what failed here fails again, and is told, when the bytes are added */
    return o->buf + o->len;
}

int mr_array_output_zeros(struct mr_array_output *o, uint64_t len, struct mr_error *err)
{
    static const uint8_t zeros[4096];
    while (len) {
        size_t n = (size_t)MR_MIN(len, sizeof zeros);
        int rc = mr_array_output_add(o, zeros, n, err);
        if (rc < 0)
            return rc;
        len -= n;
    }
    return 0;
}

int mr_array_output_patch(struct mr_array_output *o, uint64_t offset, const void *data, size_t len,
                          struct mr_error *err)
{
    if (offset >= o->start) {
        memcpy(o->buf + (offset - o->start), data, len);
        return 0;
    }
    if (len > o->start - offset) { /* half in the file, half in the buffer */
        size_t head = (size_t)(o->start - offset);
        memcpy(o->buf, (const uint8_t *)data + head, len - head);
        len = head;
    }
    return mr_object_write(o->object, data, len, offset, err);
}

int mr_array_output_close(struct mr_array_output *o, struct mr_error *err)
{
    int rc = output_flush(o, err);
    if (rc < 0)
        mr_object_abandon(o->object);
    int close_rc = mr_object_close(o->object, rc < 0 ? NULL : err);
    free(o->buf);
    *o = (struct mr_array_output){0};
    return rc < 0 ? rc : close_rc;
}

void mr_array_output_abort(struct mr_array_output *o)
{
    mr_object_abandon(o->object);
    (void)mr_object_close(o->object, NULL); /* the caller reports the first error */
    free(o->buf);
    *o = (struct mr_array_output){0};
}

/* All but the output, for n samples. */
static int prepare_writer(struct mr_array_writer *w, const struct mr_format_ops *ops, const char *path,
                          const struct mr_writer_spec *spec, uint64_t n, struct mr_error *err)
{
    w->base.ops = ops;
    w->samples = n;
    w->info.dtype = spec->dtype;
    w->info.dims = spec->dims;
    uint64_t label_bytes = 0;
    bool keeps = ops->caps & MR_FMT_LABEL;
    if (keeps && !mr_mul_ok(n, sizeof(*w->labels), &label_bytes))
        return mr_error_plain(err, MR_E_LIMIT, "too many samples for '%s'", path);
    w->path = strdup(path);
    w->labels = keeps ? malloc(MR_MAX(label_bytes, 1)) : NULL;
    if (!w->path || (keeps && !w->labels)) {
        mr_array_writer_done(w);
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    }
    return 0;
}

int mr_array_writer_init(struct mr_array_writer *w, const struct mr_format_ops *ops, struct mr_store *s,
                         const char *path, const struct mr_writer_spec *spec, struct mr_error *err)
{
    int rc = prepare_writer(w, ops, path, spec, spec->samples, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_array_output_open(&w->out, s, path, err)) < 0)
        mr_array_writer_done(w);
    return rc;
}

int mr_array_writer_init_part(struct mr_array_writer *w, const struct mr_format_ops *ops, struct mr_store *s,
                              const char *path, const struct mr_writer_spec *spec, uint64_t offset, uint64_t n,
                              struct mr_error *err)
{
    int rc = prepare_writer(w, ops, path, spec, n, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_array_output_open_part(&w->out, s, path, offset, err)) < 0)
        mr_array_writer_done(w);
    return rc;
}

static bool same_dims(const struct mr_dims *a, const struct mr_dims *b)
{
    return a->n == b->n && memcmp(a->dim, b->dim, a->n * sizeof(a->dim[0])) == 0;
}

int mr_array_writer_begin(struct mr_array_writer *w, const struct mr_sample_info *info, struct mr_error *err)
{
    uint64_t bytes = 0;
    if (w->begun != w->ended || w->begun == w->samples)
        return mr_error_plain(
            err, MR_E_USAGE, "cannot begin sample %llu of '%s': %s", (unsigned long long)info->id, w->path,
            w->begun != w->ended ? "the one before has not ended" : "all announced samples are written");
    if (!mr_array_bytes(&info->dims, info->dtype, &bytes) || bytes != info->bytes)
        return mr_error_plain(err, MR_E_USAGE, "sample %llu has %llu bytes, its shape needs %llu",
                              (unsigned long long)info->id, (unsigned long long)info->bytes, (unsigned long long)bytes);
    if (w->begun > 0 && (info->dtype != w->info.dtype || (!w->vary && !same_dims(&info->dims, &w->info.dims)))) {
        mr_error_plain(err, MR_E_USAGE, "sample %llu differs in shape from the first one of '%s'",
                       (unsigned long long)info->id, w->path);
        return mr_error_hint(
                   err, "'%s' keeps samples of one shape in a file: write one sample per file, or use npz or tfrecord",
                   w->base.ops->name),
               MR_E_USAGE;
    }
    w->info = *info;
    w->got = 0;
    if (w->labels)
        w->labels[w->begun] = info->label;
    w->begun++;
    w->any_label |= info->label != MR_LABEL_NONE;
    return 0;
}

int mr_array_writer_take(struct mr_array_writer *w, size_t len, struct mr_error *err)
{
    if (w->begun == w->ended || len > w->info.bytes - w->got)
        return mr_error_plain(err, MR_E_USAGE, "too many bytes for sample %llu of '%s' (want %llu, have %llu)",
                              (unsigned long long)w->info.id, w->path, (unsigned long long)w->info.bytes,
                              (unsigned long long)(w->got + len));
    w->got += len;
    return 0;
}

int mr_array_writer_end(struct mr_array_writer *w, struct mr_error *err)
{
    if (w->begun == w->ended || w->got != w->info.bytes)
        return mr_error_plain(err, MR_E_USAGE, "sample %llu of '%s' is incomplete (want %llu bytes, have %llu)",
                              (unsigned long long)w->info.id, w->path, (unsigned long long)w->info.bytes,
                              (unsigned long long)w->got);
    w->ended++;
    return 0;
}

int mr_array_writer_complete(const struct mr_array_writer *w, struct mr_error *err)
{
    if (w->ended == w->samples && w->begun == w->ended)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "'%s' is closed after %llu of %llu samples", w->path,
                          (unsigned long long)w->ended, (unsigned long long)w->samples);
}

void mr_array_writer_done(struct mr_array_writer *w)
{
    if (w->out.object || w->out.buf)
        mr_array_output_abort(&w->out);
    free(w->path);
    free(w->labels);
    w->path = NULL;
    w->labels = NULL;
}

int mr_array_deflate_level(int asked)
{
    return asked >= 1 && asked <= 9 ? asked : 4;
}
