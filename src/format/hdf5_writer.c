/* The HDF5 writer: samples in the dataset 'records', shape (n, *dims), labels in 'labels' (int64), left out when no
 * sample has one. Contiguous unless chunks or compression are asked for. Payload streams to its place behind the
 * reserved metadata; chunked data passes through one band:
 *
 *   axes before a (chunk 1) | axis a, the first with chunks of more than one row | axes behind a
 *   a band is chunk[a] rows of axis a; when it is full, each chunk in it is cut out, compressed and appended
 *
 * so memory is bounded by a band, not by the sample. Chunks come out in the order of the index. Uncompressed bands that
 * are one chunk each are not buffered at all. */
#include "format/hdf5_layout.h"
#include "base/vec.h"
#include "format/hdf5_write.h"
#include "format/hdf5_writer.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_AUTO_BYTES (16u << 20)
#define BAND_MAX_BYTES ((uint64_t)1 << 30)

struct h5_writer {
    struct mr_array_writer a;
    struct mr_h5_dataset d; /* 'records' */
    struct mr_dims chunk_dims;
    int level; /* 0 = no deflate */
    bool streamed;
    uint64_t rows, first; /* of the whole file; number of our first sample in it */
    bool part;            /* others write the rest */
    bool follows;         /* the output stands where its data begin: it is a field */
    /* chunked */
    unsigned axis;                           /* the banded one */
    uint64_t row_bytes;                      /* of one index of that axis */
    uint64_t row;                            /* first row of the band on that axis */
    uint64_t band_rows, band_len, band_used; /* rows, bytes wanted and present */
    uint8_t *band, *chunk, *packed;
    size_t packed_cap;
    struct libdeflate_compressor *deflater;
    struct mr_h5_chunk *map;
    uint64_t chunks;
    size_t chunk_cap;
    uint64_t first_chunk; /* of the current sample */
};

/* A chunk of at most CHUNK_AUTO_BYTES: one sample, or as many of its leading rows as fit. */
static void auto_chunk(struct mr_h5_dataset *d)
{
    uint64_t bytes = mr_dtype_bytes(d->dtype);
    d->chunk[0] = 1;
    for (unsigned i = d->n; i-- > 1;) {
        uint64_t most = MR_MAX(CHUNK_AUTO_BYTES / bytes, 1);
        d->chunk[i] = MR_MAX(MR_MIN(d->dim[i], most), 1);
        bytes *= d->chunk[i];
    }
}

static int choose_chunk(struct h5_writer *w, struct mr_error *err)
{
    struct mr_h5_dataset *d = &w->d;
    unsigned skip = d->n - w->chunk_dims.n;
    if (w->chunk_dims.n == 0) {
        auto_chunk(d);
    } else if (skip > 1 || w->chunk_dims.n > d->n) {
        return mr_error_plain(err, MR_E_CONFIG, "chunk shape has %u axes, samples have %u", w->chunk_dims.n, d->n - 1);
    } else {
        d->chunk[0] = 1;
        for (unsigned i = 0; i < w->chunk_dims.n; i++) {
            if (w->chunk_dims.dim[i] == 0)
                return mr_error_plain(err, MR_E_CONFIG, "chunk shape has a zero on axis %u", i);
            d->chunk[i + skip] = MR_MIN(w->chunk_dims.dim[i], MR_MAX(d->dim[i + skip], 1));
        }
    }
    uint64_t bytes = mr_dtype_bytes(d->dtype);
    for (unsigned i = 0; i < d->n; i++)
        if (!mr_mul_ok(bytes, d->chunk[i], &bytes) || bytes >= UINT32_MAX)
            return mr_error_plain(err, MR_E_CONFIG, "chunks of 4 GiB or more are not possible in hdf5");
    d->chunk_bytes = bytes;
    return 0;
}

static int start_chunks(struct h5_writer *w, struct mr_error *err)
{
    struct mr_h5_dataset *d = &w->d;
    int rc = choose_chunk(w, err);
    if (rc < 0)
        return rc;
    while (w->axis + 1 < d->n && d->chunk[w->axis] == 1)
        w->axis++;
    w->row_bytes = mr_dtype_bytes(d->dtype);
    w->streamed = !w->level;
    for (unsigned i = w->axis + 1; i < d->n; i++) {
        w->row_bytes *= d->dim[i]; /* at most the size of a sample, which is checked */
        w->streamed &= d->chunk[i] == d->dim[i];
    }
    w->band_rows = MR_MIN(d->chunk[w->axis], d->dim[w->axis]);
    w->band_len = w->band_rows * w->row_bytes;
    if (w->streamed)
        return 0;
    if (w->band_len > BAND_MAX_BYTES)
        return mr_error_plain(err, MR_E_CONFIG,
                              "chunks of this shape need %llu bytes of buffer (limit %llu): use flatter ones",
                              (unsigned long long)w->band_len, (unsigned long long)BAND_MAX_BYTES);
    w->band = malloc(MR_MAX(w->band_len, 1));
    w->chunk = malloc(d->chunk_bytes);
    if (w->level) {
        w->deflater = libdeflate_alloc_compressor(w->level);
        w->packed_cap = libdeflate_zlib_compress_bound(w->deflater, d->chunk_bytes);
        w->packed = malloc(w->packed_cap);
    }
    if (!w->band || !w->chunk || (w->level && (!w->deflater || !w->packed)))
        return mr_error_set(err, -ENOMEM, "cannot buffer chunks of %llu bytes", (unsigned long long)d->chunk_bytes);
    return 0;
}

/* Called when the shape is known: at the first sample, or at the end of a file without any. */
static int start_file(struct h5_writer *w, struct mr_error *err)
{
    struct mr_h5_dataset *d = &w->d;
    d->dtype = w->a.info.dtype;
    d->n = w->a.info.dims.n + 1;
    d->dim[0] = w->rows;
    for (unsigned i = 1; i < d->n; i++)
        d->dim[i] = w->a.info.dims.dim[i - 1];
    int rc = w->first || w->follows ? 0 : mr_array_output_zeros(&w->a.out, MR_H5_META_BYTES, err);
    d->addr = w->follows ? mr_array_output_pos(&w->a.out) : MR_H5_META_BYTES;
    d->storage = w->level || w->chunk_dims.n ? MR_H5_CHUNKED : MR_H5_CONTIGUOUS;
    if (w->level) {
        d->filters = 1;
        d->filter[0] = (struct mr_h5_filter){.id = MR_H5_DEFLATE, .value = (uint32_t)w->level};
    }
    return rc == 0 && d->storage == MR_H5_CHUNKED ? start_chunks(w, err) : rc;
}

int mr_h5_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                      struct mr_error *err)
{
    if (!spec->fixed_size && spec->samples > 1) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "hdf5 keeps samples of one shape in a file ('%s')", path);
        return mr_error_hint(err, "write one sample per file, or use npz, tfrecord or indexed_binary"),
               MR_E_UNSUPPORTED;
    }
    struct h5_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = mr_array_writer_init(&w->a, &mr_format_hdf5, s, path, spec, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->rows = spec->samples;
    w->chunk_dims = spec->chunk_dims;
    w->level = spec->compression == MR_COMP_NONE ? 0 : mr_array_deflate_level(spec->compression_level);
    *out = &w->a.base;
    return 0;
}

uint64_t mr_h5_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one)
{
    return spec->compression == MR_COMP_NONE && !spec->chunk_dims.n && spec->fixed_size ? one->bytes : 0;
}

int mr_h5_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                    const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                    struct mr_error *err)
{
    struct h5_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    uint64_t at = first ? MR_H5_META_BYTES + first * one->bytes : 0;
    int rc = mr_array_writer_init_part(&w->a, &mr_format_hdf5, s, path, spec, at, n, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->rows = spec->samples;
    w->first = first;
    w->part = true;
    *out = &w->a.base;
    return 0;
}

int mr_h5_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct h5_writer *w = (struct h5_writer *)base;
    int rc = mr_array_writer_begin(&w->a, info, err);
    if (rc == 0 && w->a.begun == 1)
        rc = start_file(w, err);
    w->first_chunk = w->chunks;
    return rc;
}

static int add_chunk(struct h5_writer *w, uint64_t addr, uint64_t bytes, struct mr_error *err)
{
    if (mr_vec_reserve(&w->map, &w->chunk_cap, w->chunks + 1, sizeof(*w->map)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep %llu chunks", (unsigned long long)w->chunks + 1);
    w->map[w->chunks++] = (struct mr_h5_chunk){.addr = addr, .bytes = (uint32_t)bytes};
    return 0;
}

/* Moves to the next band of the axis. */
static void next_band(struct h5_writer *w)
{
    uint64_t dim = w->d.dim[w->axis];
    w->row += w->band_rows;
    if (w->row >= dim)
        w->row = 0;
    w->band_rows = MR_MIN(w->d.chunk[w->axis], dim - w->row);
    w->band_len = w->band_rows * w->row_bytes;
    w->band_used = 0;
}

/* Copies one chunk out of the band, zero-padded at the edges. `origin` is its corner on the axes from the banded one
 * on. */
static void cut_chunk(const struct h5_writer *w, const uint64_t *origin)
{
    const struct mr_h5_dataset *d = &w->d;
    unsigned n = d->n - w->axis;
    uint64_t box[MR_H5_AXES], from[MR_H5_AXES], to[MR_H5_AXES], src = 0, step_from = mr_dtype_bytes(d->dtype),
                                                                step_to = step_from;
    for (unsigned i = n; i-- > 0;) {
        unsigned axis = w->axis + i;
        uint64_t have = i ? d->dim[axis] : w->band_rows;
        from[i] = step_from;
        to[i] = step_to;
        src += origin[i] * step_from;
        box[i] = MR_MIN(d->chunk[axis], have - origin[i]);
        step_from *= i ? d->dim[axis] : 1;
        step_to *= d->chunk[axis];
    }
    mr_h5_copy_box(w->chunk, to, w->band + src, from, box, n, mr_dtype_bytes(d->dtype));
}

static int put_one_chunk(struct h5_writer *w, const uint64_t *origin, struct mr_error *err)
{
    memset(w->chunk, 0, w->d.chunk_bytes);
    cut_chunk(w, origin);
    const uint8_t *data = w->chunk;
    size_t len = w->d.chunk_bytes;
    if (w->level) {
        len = libdeflate_zlib_compress(w->deflater, w->chunk, w->d.chunk_bytes, w->packed, w->packed_cap);
        data = w->packed;
        if (len == 0)
            return mr_error_plain(err, MR_E_INTERNAL, "a chunk could not be compressed");
    }
    int rc = add_chunk(w, mr_array_output_pos(&w->a.out), len, err);
    return rc < 0 ? rc : mr_array_output_add(&w->a.out, data, len, err);
}

static int flush_band(struct h5_writer *w, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &w->d;
    uint64_t origin[MR_H5_AXES] = {0};
    unsigned n = d->n - w->axis;
    for (;;) {
        int rc = put_one_chunk(w, origin, err);
        if (rc < 0)
            return rc;
        unsigned i = n;
        while (--i > 0) {
            origin[i] += d->chunk[w->axis + i];
            if (origin[i] < d->dim[w->axis + i])
                break;
            origin[i] = 0;
        }
        if (i == 0)
            break;
    }
    next_band(w);
    return 0;
}

/* Uncompressed data whose bands are chunks goes straight to the file. */
static int stream_data(struct h5_writer *w, const uint8_t *data, size_t len, struct mr_error *err)
{
    int rc = 0;
    while (len && rc == 0) {
        size_t n = (size_t)MR_MIN(len, w->band_len - w->band_used);
        if (w->band_used == 0)
            rc = add_chunk(w, mr_array_output_pos(&w->a.out), w->d.chunk_bytes, err);
        if (rc == 0)
            rc = mr_array_output_add(&w->a.out, data, n, err);
        data += n;
        len -= n;
        w->band_used += n;
        if (rc == 0 && w->band_used == w->band_len) {
            rc = mr_array_output_zeros(&w->a.out, w->d.chunk_bytes - w->band_len, err);
            next_band(w);
        }
    }
    return rc;
}

void *mr_h5_sample_room(struct mr_writer *base, size_t len)
{
    struct h5_writer *w = (struct h5_writer *)base;
    return w->d.storage == MR_H5_CONTIGUOUS ? mr_array_output_here(&w->a.out, len) : NULL;
}

int mr_h5_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct h5_writer *w = (struct h5_writer *)base;
    const uint8_t *p = data;
    int rc = mr_array_writer_take(&w->a, len, err);
    if (rc < 0)
        return rc;
    if (w->d.storage == MR_H5_CONTIGUOUS)
        return mr_array_output_add(&w->a.out, data, len, err);
    if (w->streamed)
        return stream_data(w, data, len, err);
    while (len && rc == 0) {
        size_t n = (size_t)MR_MIN(len, w->band_len - w->band_used);
        memcpy(w->band + w->band_used, p, n);
        w->band_used += n;
        p += n;
        len -= n;
        if (w->band_used == w->band_len)
            rc = flush_band(w, err);
    }
    return rc;
}

/* How the samples of the file will be read; as scan would decide it. */
static enum mr_h5_mode mode_of(const struct h5_writer *w)
{
    const struct mr_h5_dataset *d = &w->d;
    bool whole = true;
    if (d->storage == MR_H5_CONTIGUOUS)
        return MR_H5_DIRECT;
    for (unsigned i = 1; i < d->n; i++)
        whole &= d->chunk[i] >= d->dim[i];
    if (whole && w->streamed)
        return MR_H5_DIRECT;
    return whole && d->chunk[0] == 1 ? MR_H5_CHUNK : MR_H5_MAP;
}

int mr_h5_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct h5_writer *w = (struct h5_writer *)base;
    int rc = mr_array_writer_end(&w->a, err);
    if (rc < 0)
        return rc;
    uint64_t bytes = w->a.info.bytes, number = w->a.ended - 1;
    struct mr_sample_ref r = {.label = w->a.info.label};
    enum mr_h5_mode mode = mode_of(w);
    if (mode == MR_H5_DIRECT && bytes) {
        r.raw = (struct mr_extent){mr_array_output_pos(&w->a.out) - bytes, bytes};
        if (w->d.storage == MR_H5_CHUNKED) /* padding may follow the last row */
            r.raw.offset = w->map[w->chunks - 1].addr + number % w->d.chunk[0] * bytes;
    } else if (mode == MR_H5_CHUNK && bytes) {
        r.raw = (struct mr_extent){w->map[w->chunks - 1].addr, w->map[w->chunks - 1].bytes};
    } else if (mode == MR_H5_MAP) {
        if (number >= 1u << 24)
            return mr_error_plain(err, MR_E_LIMIT, "more than %u samples in one hdf5 file with chunks of this shape",
                                  1u << 24);
        r.aux = (uint32_t)number;
        for (uint64_t i = w->first_chunk; i < w->chunks; i++)
            r.raw.length += w->map[i].bytes;
        r.raw.offset = w->first_chunk < w->chunks ? w->map[w->first_chunk].addr : 0;
    }
    *ref = r;
    return 0;
}

static void h5_writer_done(struct h5_writer *w)
{
    libdeflate_free_compressor(w->deflater);
    free(w->band);
    free(w->chunk);
    free(w->packed);
    free(w->map);
    mr_array_writer_done(&w->a);
}

static void h5_writer_free(struct h5_writer *w)
{
    h5_writer_done(w);
    free(w);
}

static int make_layout(struct h5_writer *w, struct mr_layout *layout, struct mr_error *err)
{
    struct mr_h5_layout l = {
        .mode = mode_of(w),
        .desc = {.dtype = w->d.dtype, .flags = MR_ARRAY_ROWS, .rows = w->d.dim[0], .dims = w->a.info.dims}};
    if (l.mode != MR_H5_DIRECT) {
        l.pipeline.n = w->d.filters;
        l.pipeline.filter[0] = w->d.filter[0];
        l.chunk_axes = w->d.n;
        memcpy(l.chunk, w->d.chunk, sizeof l.chunk);
    }
    return mr_h5_layout_make(&l, w->map, l.mode == MR_H5_MAP ? w->chunks : 0, layout, err);
}

static void labels_to_le(struct h5_writer *w)
{
    for (uint64_t i = 0; i < w->a.samples; i++) /* as little-endian, on any machine */
        mr_store_le64(&w->a.labels[i], (uint64_t)w->a.labels[i]);
}

static void members(const struct h5_writer *w, const struct mr_h5_dataset *labels, uint64_t size,
                    uint8_t meta[MR_H5_META_BYTES])
{
    const struct mr_h5_member m[2] = {{"labels", w->a.any_label ? labels : NULL}, {"records", &w->d}};
    mr_h5_metadata(m, 2, size, meta, MR_H5_META_BYTES);
}

/* A part: its labels go to their place behind all records; the first one has the metadata, the last one sets the size.
 */
static int finish_part(struct h5_writer *w, uint64_t *file_bytes, struct mr_error *err)
{
    struct mr_array_output *o = &w->a.out;
    uint8_t meta[MR_H5_META_BYTES];
    struct mr_h5_dataset labels = {
        .dtype = MR_I64, .n = 1, .dim = {w->rows}, .storage = MR_H5_CONTIGUOUS, .bytes = 8 * w->rows};
    uint64_t end = mr_array_output_pos(o), last = w->first + w->a.samples;
    w->d.bytes = w->rows * w->a.info.bytes;
    labels.addr = MR_ALIGN_UP(MR_H5_META_BYTES + w->d.bytes, 8);
    uint64_t size = labels.addr + (w->a.any_label ? labels.bytes : 0);
    int rc = 0;
    if (last == w->rows && (rc = o->object->store->ops->truncate(o->object, size, err)) >= 0)
        rc = mr_array_output_zeros(o, labels.addr - end, err);
    labels_to_le(w);
    if (rc >= 0 && w->a.any_label)
        rc = mr_object_write(o->object, w->a.labels, 8 * w->a.samples, labels.addr + 8 * w->first, err);
    members(w, &labels, size, meta);
    if (rc >= 0 && !w->first)
        rc = mr_array_output_patch(o, 0, meta, sizeof meta, err);
    *file_bytes = last == w->rows ? size : w->a.any_label ? labels.addr + 8 * last : end;
    return rc < 0 ? rc : 0;
}

/* Labels, chunk index, then the metadata in front. */
static int finish_file(struct h5_writer *w, uint64_t *file_bytes, struct mr_error *err)
{
    struct mr_array_output *o = &w->a.out;
    uint8_t meta[MR_H5_META_BYTES];
    uint64_t size = mr_array_output_pos(o);
    struct mr_h5_dataset labels = {
        .dtype = MR_I64, .n = 1, .dim = {w->a.samples}, .storage = MR_H5_CONTIGUOUS, .bytes = 8 * w->a.samples};
    w->d.bytes = size - MR_H5_META_BYTES;
    int rc = mr_array_output_zeros(o, MR_ALIGN_UP(size, 8) - size, err);
    labels.addr = mr_array_output_pos(o);
    labels_to_le(w);
    if (rc == 0 && w->a.any_label)
        rc = mr_array_output_add(o, w->a.labels, labels.bytes, err);
    if (rc == 0 && w->d.storage == MR_H5_CHUNKED)
        rc = mr_h5_write_btree(o, &w->d, w->map, w->chunks, &w->d.addr, err);
    size = mr_array_output_pos(o);
    if (rc < 0)
        return rc;
    members(w, &labels, size, meta);
    rc = mr_array_output_patch(o, 0, meta, sizeof meta, err);
    *file_bytes = size;
    return rc;
}

int mr_h5_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes, struct mr_error *err)
{
    struct h5_writer *w = (struct h5_writer *)base;
    struct mr_layout made = {0};
    uint64_t size = 0;
    int rc = mr_array_writer_complete(&w->a, err);
    if (rc == 0 && w->a.samples == 0)
        rc = start_file(w, err);
    if (rc == 0)
        rc = w->part ? finish_part(w, &size, err) : finish_file(w, &size, err);
    if (rc == 0)
        rc = make_layout(w, &made, err);
    if (rc == 0)
        rc = mr_array_output_close(&w->a.out, err);
    if (rc == 0) {
        *layout = made;
        *file_bytes = size;
    } else {
        free(made.data);
    }
    h5_writer_free(w);
    return rc;
}

void mr_h5_writer_abort(struct mr_writer *base)
{
    if (base)
        h5_writer_free((struct h5_writer *)base);
}

/* ---- several datasets ----
 *
 * One writer per field; the output goes from each to the next, as fields come one behind the other. */

#define FIELD_ALIGN 64u

struct h5_fields_writer {
    struct mr_writer base;
    unsigned n, now; /* fields; the one that is being written */
    uint64_t samples, meta_bytes;
    struct mr_field *field; /* names are borrowed until the writer is closed */
    struct h5_writer *w;    /* of each field; a label's has the dataset alone */
    struct mr_h5_member *member;
    unsigned *of; /* field of each member */
};

static void fields_free(struct h5_fields_writer *x)
{
    for (unsigned i = 0; x->w && i < x->n; i++)
        h5_writer_done(&x->w[i]);
    free(x->w);
    free(x->field);
    free(x->member);
    free(x->of);
    free(x);
}

void mr_h5_fields_abort(struct mr_writer *base)
{
    if (base)
        fields_free((struct h5_fields_writer *)base);
}

/* Members in the order of their names. */
static void sort_members(struct h5_fields_writer *x)
{
    for (unsigned i = 0; i < x->n; i++) {
        unsigned at = i;
        for (; at > 0 && strcmp(x->member[at - 1].name, x->field[i].name) > 0; at--) {
            x->member[at] = x->member[at - 1];
            x->of[at] = x->of[at - 1];
        }
        x->member[at] = (struct mr_h5_member){.name = x->field[i].name};
        x->of[at] = i;
    }
}

static int init_field(struct h5_fields_writer *x, unsigned i, const char *path, const struct mr_writer_spec *spec,
                      struct mr_error *err)
{
    struct h5_writer *w = &x->w[i];
    w->a.base.ops = &mr_format_hdf5;
    w->a.samples = w->rows = spec->samples;
    w->a.path = strdup(path);
    w->a.labels = i ? NULL : malloc(MR_MAX(spec->samples, 1u) * sizeof(*w->a.labels));
    w->chunk_dims = spec->chunk_dims;
    w->level = spec->compression == MR_COMP_NONE ? 0 : mr_array_deflate_level(spec->compression_level);
    w->follows = true;
    bool there = w->a.path && (i || w->a.labels);
    return there ? 0 : mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
}

int mr_h5_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                      const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    struct h5_fields_writer *x = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    x->base.ops = &mr_format_hdf5;
    x->n = n;
    x->samples = spec->samples;
    x->w = calloc(n, sizeof(*x->w));
    x->field = calloc(n, sizeof(*x->field));
    x->member = calloc(n, sizeof(*x->member));
    x->of = calloc(n, sizeof(*x->of));
    int rc = x->w && x->field && x->member && x->of ? 0 : mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    for (unsigned i = 0; i < n && rc == 0; i++) {
        x->field[i] = fields[i];
        rc = init_field(x, i, path, spec, err);
    }
    if (rc == 0) {
        sort_members(x);
        x->meta_bytes = mr_h5_metadata_bytes(x->member, n);
        rc = mr_array_output_open(&x->w[0].a.out, s, path, err);
    }
    if (rc == 0)
        rc = mr_array_output_zeros(&x->w[0].a.out, x->meta_bytes, err);
    if (rc < 0)
        fields_free(x);
    else
        *out = &x->base;
    return rc;
}

/* Completes the dataset that was written last: what follows its data in the file. */
static int end_dataset(struct h5_writer *w, struct mr_error *err)
{
    int rc = mr_array_writer_complete(&w->a, err);
    struct mr_array_output *o = &w->a.out;
    uint64_t end = mr_array_output_pos(o);
    w->d.bytes = end - w->d.addr;
    if (rc == 0)
        rc = mr_array_output_zeros(o, MR_ALIGN_UP(end, FIELD_ALIGN) - end, err);
    if (rc == 0 && w->d.storage == MR_H5_CHUNKED)
        rc = mr_h5_write_btree(o, &w->d, w->map, w->chunks, &w->d.addr, err);
    end = mr_array_output_pos(o);
    return rc ? rc : mr_array_output_zeros(o, MR_ALIGN_UP(end, FIELD_ALIGN) - end, err);
}

/* The next field has the output. */
static int move_to(struct h5_fields_writer *x, unsigned field, struct mr_error *err)
{
    int rc = end_dataset(&x->w[x->now], err);
    if (rc < 0)
        return rc;
    x->w[field].a.out = x->w[x->now].a.out;
    x->w[x->now].a.out = (struct mr_array_output){0};
    x->now = field;
    return 0;
}

int mr_h5_fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct h5_fields_writer *x = (struct h5_fields_writer *)base;
    int rc = field == x->now ? 0 : move_to(x, field, err);
    return rc < 0 ? rc : mr_h5_sample_begin(&x->w[field].a.base, info, err);
}

int mr_h5_fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct h5_fields_writer *x = (struct h5_fields_writer *)base;
    return mr_h5_sample_data(&x->w[x->now].a.base, data, len, err);
}

int mr_h5_fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct h5_fields_writer *x = (struct h5_fields_writer *)base;
    return mr_h5_sample_end(&x->w[field].a.base, ref, err);
}

/* The labels of field 0 as a dataset of int64. */
static int put_label_set(struct h5_fields_writer *x, unsigned i, struct mr_error *err)
{
    struct mr_array_output *o = &x->w[x->now].a.out;
    struct h5_writer *first = &x->w[0];
    x->w[i].d = (struct mr_h5_dataset){.dtype = MR_I64,
                                       .n = 1,
                                       .dim = {x->samples},
                                       .storage = MR_H5_CONTIGUOUS,
                                       .addr = mr_array_output_pos(o),
                                       .bytes = 8 * x->samples};
    labels_to_le(first);
    return mr_array_output_add(o, first->a.labels, 8 * x->samples, err);
}

static int finish_fields(struct h5_fields_writer *x, uint64_t *file_bytes, struct mr_error *err)
{
    struct mr_array_output *o = &x->w[x->now].a.out;
    uint8_t *meta = malloc(x->meta_bytes);
    int rc = meta ? end_dataset(&x->w[x->now], err) : mr_error_set(err, -ENOMEM, "cannot write the metadata");
    for (unsigned i = 0; i < x->n && rc == 0; i++)
        if (x->field[i].storage == MR_FIELD_LABEL)
            rc = put_label_set(x, i, err);
    for (unsigned i = 0; i < x->n; i++)
        x->member[i].dataset = &x->w[x->of[i]].d;
    *file_bytes = mr_array_output_pos(o);
    if (rc == 0) {
        mr_h5_metadata(x->member, x->n, *file_bytes, meta, x->meta_bytes);
        rc = mr_array_output_patch(o, 0, meta, x->meta_bytes, err);
    }
    free(meta);
    return rc;
}

int mr_h5_fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct h5_fields_writer *x = (struct h5_fields_writer *)base;
    uint64_t size = 0;
    int rc = finish_fields(x, &size, err);
    memset(layouts, 0, x->n * sizeof(*layouts));
    for (unsigned i = 0; i < x->n && rc == 0; i++)
        if (x->field[i].storage != MR_FIELD_LABEL)
            rc = make_layout(&x->w[i], &layouts[i], err);
    if (rc == 0)
        rc = mr_array_output_close(&x->w[x->now].a.out, err);
    for (unsigned i = 0; i < x->n && rc < 0; i++) {
        free(layouts[i].data);
        layouts[i] = (struct mr_layout){0};
    }
    if (rc == 0)
        *file_bytes = size;
    fields_free(x);
    return rc;
}
