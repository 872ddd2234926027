/* HDF5: samples are the rows of one dataset. We write 'records' (n, *dims) and 'labels'; of a foreign file we take
 * 'records', 'data', 'x' or 'images', else the largest dataset of numbers, and integers named like labels.
 *
 * Metadata is read once, by scan, with a parser of our own (hdf5_file.h); no HDF5 library, no global lock. Samples are
 * then ranges of the file like those of any format: see hdf5_layout.h for the three ways they can lie. */
#include "format/hdf5_layout.h"
#include "format/hdf5_writer.h"
#include "base/log.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_MAX (1u << 26)
#define AUX_LIMIT (1u << 24)

void mr_h5_copy_box(uint8_t *dst, const uint64_t *dst_stride, const uint8_t *src, const uint64_t *src_stride,
                    const uint64_t *box, unsigned n, unsigned elem)
{
    uint64_t index[MR_H5_AXES] = {0}, run = (n ? box[n - 1] : 1) * elem;
    for (unsigned i = 0; i < n; i++)
        if (box[i] == 0)
            return;
    for (;;) {
        memcpy(dst, src, run);
        int axis = (int)n - 2;
        for (; axis >= 0; axis--) {
            dst += dst_stride[axis];
            src += src_stride[axis];
            if (++index[axis] < box[axis])
                break;
            dst -= dst_stride[axis] * box[axis];
            src -= src_stride[axis] * box[axis];
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* ---- scan ---- */

struct h5_scan {
    struct mr_h5_file f;
    struct mr_h5_dataset data, labels;
    bool has_data, has_labels;
    int rank;            /* of data's name: 0 is best */
    uint64_t elements;   /* of data */
    struct mr_error why; /* why the best-named dataset cannot be read */
    int why_rank;
    int64_t *label;
    mr_scan_fn *fn;
    void *user;
};

#define RANK_OTHER 10

static int rank_of(const char *path, const char *const *names)
{
    const char *leaf = strrchr(path, '/');
    leaf = leaf ? leaf + 1 : path;
    for (int i = 0; names[i]; i++)
        if (strcmp(leaf, names[i]) == 0)
            return i;
    return RANK_OTHER;
}

static bool is_integer(enum mr_dtype t)
{
    return t <= MR_I64 || t == MR_BOOL;
}

static int consider(void *user, const char *path, uint64_t header, struct mr_error *err)
{
    static const char *const data_names[] = {"records", "data", "x", "images", NULL};
    static const char *const label_names[] = {"labels", "label", "y", "targets", NULL};
    struct h5_scan *s = user;
    struct mr_h5_dataset d;
    int rank = rank_of(path, data_names);
    struct mr_error why = {0};
    int rc = mr_h5_dataset_read(&s->f, header, path, &d, &why);
    if (rc == MR_E_UNSUPPORTED) { /* a string or table beside the samples is fine */
        if (rank < s->why_rank || s->why.code == 0) {
            s->why = why;
            s->why_rank = rank;
        }
        return 0;
    }
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    if (rank_of(path, label_names) < RANK_OTHER) {
        bool column = d.n == 1 || (d.n == 2 && d.dim[1] == 1);
        if (!s->has_labels && column && is_integer(d.dtype) && d.dim[0] <= LABELS_MAX) {
            s->labels = d;
            s->has_labels = true;
            return 0;
        }
    }
    if (d.n == 0)
        return 0;
    uint64_t elements = mr_dtype_bytes(d.dtype);
    for (unsigned i = 0; i < d.n; i++)
        if (!mr_mul_ok(elements, d.dim[i], &elements))
            elements = UINT64_MAX;
    if (!s->has_data || rank < s->rank || (rank == s->rank && elements > s->elements)) {
        s->data = d;
        s->has_data = true;
        s->rank = rank;
        s->elements = elements;
    }
    return 0;
}

static int64_t load_integer(const uint8_t *p, enum mr_dtype t)
{
    unsigned n = mr_dtype_bytes(t), shift = 64 - 8 * n;
    uint64_t v = mr_h5_uint(p, n);
    bool is_signed = t == MR_I8 || t == MR_I16 || t == MR_I32;
    return is_signed ? (int64_t)(v << shift) >> shift : (int64_t)v;
}

/* Puts `n` labels from file bytes, starting with number `first`. */
static void put_labels(struct h5_scan *s, const uint8_t *data, uint64_t first, uint64_t n)
{
    unsigned elem = mr_dtype_bytes(s->labels.dtype);
    for (uint64_t i = 0; i < n && first + i < s->labels.dim[0]; i++) {
        uint8_t b[16] = {0};
        if (s->labels.swap)
            mr_array_swap(b, data + i * elem, 1, elem);
        else
            memcpy(b, data + i * elem, elem);
        s->label[first + i] = load_integer(b, s->labels.dtype);
    }
}

static int chunked_labels(struct h5_scan *s, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->labels;
    struct mr_h5_pipeline p = {.n = d->filters};
    memcpy(p.filter, d->filter, sizeof p.filter);
    struct mr_h5_chunk *map = NULL;
    uint64_t count = 0;
    int rc;
    if ((rc = mr_h5_pipeline_check(&p, err)) < 0 || (rc = mr_h5_chunk_map(&s->f, d, &map, &count, err)) < 0)
        return rc;
    for (uint64_t i = 0; i < count && rc == 0; i++)
        if (map[i].addr != MR_H5_UNDEF)
            rc = mr_h5_pipeline_plausible(&p, map[i].bytes, d->chunk_bytes, err);
    if (rc < 0) {
        free(map);
        return rc;
    }
    size_t size = mr_h5_unfilter_bytes(d->chunk_bytes);
    uint8_t *work[2] = {malloc(size), malloc(size)};
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!work[0] || !work[1] || !inflater)
        rc = mr_error_set(err, -ENOMEM, "cannot read labels");
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        if (map[i].addr == MR_H5_UNDEF)
            continue;
        const uint8_t *data = NULL;
        uint8_t *raw = malloc(map[i].bytes);
        if (!raw)
            rc = mr_error_set(err, -ENOMEM, "cannot read labels");
        if (rc == 0)
            rc = mr_h5_read(&s->f, map[i].addr, raw, map[i].bytes, "labels", err);
        if (rc == 0)
            rc = mr_h5_unfilter(&p, map[i].mask, inflater, raw, map[i].bytes, d->chunk_bytes, work, true, &data, err);
        /* A chunk wider than the one column pads each row. */
        uint64_t width = d->n == 2 ? d->chunk[1] : 1;
        for (uint64_t k = 0; rc == 0 && k < d->chunk[0]; k++)
            put_labels(s, data + k * width * mr_dtype_bytes(d->dtype), i * d->chunk[0] + k, 1);
        free(raw);
    }
    libdeflate_free_decompressor(inflater);
    free(work[0]);
    free(work[1]);
    free(map);
    return rc;
}

static int read_labels(struct h5_scan *s, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->labels;
    if (!s->has_labels || d->dim[0] != s->data.dim[0] || d->dim[0] == 0)
        return 0;
    s->label = malloc(d->dim[0] * sizeof(*s->label));
    if (!s->label)
        return mr_error_set(err, -ENOMEM, "cannot keep %llu labels", (unsigned long long)d->dim[0]);
    for (uint64_t i = 0; i < d->dim[0]; i++)
        put_labels(s, d->fill, i, 1);
    if (d->storage == MR_H5_CHUNKED)
        return chunked_labels(s, err);
    if (d->addr == MR_H5_UNDEF)
        return 0;
    uint8_t *raw = malloc(d->bytes);
    int rc = raw ? mr_h5_read(&s->f, d->addr, raw, d->bytes, "labels", err)
                 : mr_error_set(err, -ENOMEM, "cannot read labels");
    if (rc == 0)
        put_labels(s, raw, 0, d->dim[0]);
    free(raw);
    return rc;
}

static int64_t label_of(const struct h5_scan *s, uint64_t i)
{
    return s->label ? s->label[i] : MR_LABEL_NONE;
}

static int emit_contiguous(struct h5_scan *s, uint64_t sample_bytes, struct mr_error *err)
{
    bool missing = s->data.addr == MR_H5_UNDEF;
    int rc = 0;
    for (uint64_t i = 0; i < s->data.dim[0] && rc >= 0; i++) {
        struct mr_sample_ref ref = {.label = label_of(s, i)};
        if (!missing)
            ref.raw = (struct mr_extent){s->f.base + s->data.addr + i * sample_bytes, sample_bytes};
        rc = s->fn(s->user, &ref, NULL, err);
    }
    return rc < 0 ? rc : 0;
}

/* The mode that fits the chunks; see hdf5_layout.h. */
static enum mr_h5_mode choose_mode(const struct mr_h5_dataset *d, const struct mr_h5_chunk *map, uint64_t count)
{
    bool whole = true, exact = true, masked = false;
    for (unsigned i = 1; i < d->n; i++) {
        whole &= d->chunk[i] >= d->dim[i];
        exact &= d->chunk[i] == d->dim[i];
    }
    for (uint64_t i = 0; i < count; i++)
        masked |= map[i].mask != 0;
    if (exact && d->filters == 0)
        return MR_H5_DIRECT;
    return whole && !masked && d->filters && d->chunk[0] <= AUX_LIMIT ? MR_H5_CHUNK : MR_H5_MAP;
}

static struct mr_sample_ref chunk_ref(const struct mr_h5_dataset *d, enum mr_h5_mode mode,
                                      const struct mr_h5_chunk *map, uint64_t per_sample, uint64_t sample_bytes,
                                      uint64_t i)
{
    struct mr_sample_ref ref = {.raw = {0, 0}};
    uint64_t row = i % d->chunk[0];
    const struct mr_h5_chunk *c = map + i / d->chunk[0] * per_sample;
    if (mode == MR_H5_MAP) {
        ref.aux = (uint32_t)i;
        for (uint64_t k = 0; k < per_sample; k++)
            ref.raw.length += c[k].addr == MR_H5_UNDEF ? 0 : c[k].bytes;
        ref.raw.offset = c[0].addr == MR_H5_UNDEF ? 0 : c[0].addr;
    } else if (c->addr != MR_H5_UNDEF && mode == MR_H5_DIRECT) {
        ref.raw = (struct mr_extent){c->addr + row * sample_bytes, sample_bytes};
    } else if (mode == MR_H5_CHUNK) {
        ref.aux = (uint32_t)row;
        if (c->addr != MR_H5_UNDEF)
            ref.raw = (struct mr_extent){c->addr, c->bytes};
    }
    return ref;
}

static int emit_chunked(struct h5_scan *s, uint64_t sample_bytes, struct mr_h5_layout *l, struct mr_layout *layout,
                        struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->data;
    struct mr_h5_chunk *map = NULL;
    uint64_t count = 0;
    int rc;
    l->pipeline.n = d->filters;
    memcpy(l->pipeline.filter, d->filter, sizeof l->pipeline.filter);
    if ((rc = mr_h5_pipeline_check(&l->pipeline, err)) < 0 || (rc = mr_h5_chunk_map(&s->f, d, &map, &count, err)) < 0)
        return rc;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        if (map[i].addr == MR_H5_UNDEF)
            continue;
        map[i].addr += s->f.base; /* from here on addresses are offsets in the file */
        rc = mr_h5_pipeline_plausible(&l->pipeline, map[i].bytes, d->chunk_bytes, err);
    }
    l->mode = choose_mode(d, map, count);
    if (l->mode == MR_H5_DIRECT) {
        l->pipeline.n = 0;
    } else {
        l->chunk_axes = d->n;
        memcpy(l->chunk, d->chunk, sizeof l->chunk);
    }
    if (l->mode == MR_H5_MAP && d->dim[0] > AUX_LIMIT)
        rc = mr_error_plain(err, MR_E_LIMIT, "%llu samples in chunks of this shape (limit %u)",
                            (unsigned long long)d->dim[0], AUX_LIMIT);
    uint64_t bands = d->dim[0] / d->chunk[0] + (d->dim[0] % d->chunk[0] != 0), per_sample = bands ? count / bands : 0;
    for (uint64_t i = 0; i < d->dim[0] && rc >= 0; i++) {
        struct mr_sample_ref ref = {.aux = l->mode == MR_H5_MAP ? (uint32_t)i
                                                                : 0}; /* samples without bytes have no chunks */
        if (count)
            ref = chunk_ref(d, l->mode, map, per_sample, sample_bytes, i);
        ref.label = label_of(s, i);
        rc = s->fn(s->user, &ref, NULL, err);
    }
    if (rc >= 0)
        rc = mr_h5_layout_make(l, map, l->mode == MR_H5_MAP ? count : 0, layout, err);
    free(map);
    return rc;
}

static int emit_samples(struct h5_scan *s, struct mr_layout *layout, struct mr_error *err)
{
    const struct mr_h5_dataset *d = &s->data;
    struct mr_h5_layout l = {
        .mode = MR_H5_DIRECT,
        .desc = {.dtype = d->dtype, .flags = MR_ARRAY_ROWS | (d->swap ? MR_ARRAY_SWAP : 0), .rows = d->dim[0]}};
    uint64_t bytes = 0, limit = MR_MAX(s->f.size, 4096) * MR_LIMIT_UNPACK_RATIO;
    l.desc.dims.n = d->n - 1;
    memcpy(l.desc.dims.dim, d->dim + 1, (d->n - 1) * sizeof(d->dim[0]));
    memcpy(l.fill, d->fill, sizeof l.fill);
    if (!mr_array_bytes(&l.desc.dims, d->dtype, &bytes) || bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "samples of '%s' exceed the limit of %llu bytes", d->path,
                              (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if (d->dim[0] > limit / MR_MAX(bytes, 1))
        return mr_error_plain(err, MR_E_LIMIT, "'%s' claims %llu samples of %llu bytes in a file of %llu", d->path,
                              (unsigned long long)d->dim[0], (unsigned long long)bytes, (unsigned long long)s->f.size);
    if (d->storage == MR_H5_CHUNKED)
        return emit_chunked(s, bytes, &l, layout, err);
    int rc = emit_contiguous(s, bytes, err);
    return rc < 0 ? rc : mr_h5_layout_make(&l, NULL, 0, layout, err);
}

static int hdf5_scan(struct mr_store *store, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                     struct mr_error *err)
{
    struct h5_scan s = {.fn = fn, .user = user, .rank = RANK_OTHER, .why_rank = RANK_OTHER};
    struct mr_object *o;
    int rc = mr_object_open(store, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    if ((rc = mr_h5_open(o, &s.f, err)) == 0 && (rc = mr_h5_walk(&s.f, consider, &s, err)) == 0) {
        bool preferred_unreadable = s.why.code && s.why_rank < s.rank;
        if ((!s.has_data && s.why.code) || preferred_unreadable) {
            if (err)
                *err = s.why;
            rc = s.why.code;
        } else if (!s.has_data) {
            rc = mr_error_plain(err, MR_E_FORMAT, "the file has no dataset with at least one axis");
        }
    }
    if (rc == 0 && (rc = read_labels(&s, err)) == 0)
        rc = emit_samples(&s, layout, err);
    if (rc == 0)
        mr_log(MR_LOG_INFO, "'%s': %llu samples from dataset '%s', labels from %s%s%s", path,
               (unsigned long long)s.data.dim[0], s.data.path, s.label ? "'" : "nowhere", s.label ? s.labels.path : "",
               s.label ? "'" : "");
    else
        mr_error_context(err, "in '%s'", path);
    free(s.label);
    (void)mr_object_close(o, NULL); /* nothing was written */
    return rc;
}

/* ---- reading ---- */

static int hdf5_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct mr_h5_layout l;
    int rc = mr_h5_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    struct mr_read_cost c = {.access = MR_ACCESS_RANGE, .bytes_read_per_payload_byte = 1.0};
    bool swap = l.desc.flags & MR_ARRAY_SWAP;
    if (l.mode == MR_H5_DIRECT) {
        c.verbatim = !swap;
        c.note = swap ? "big-endian: swapped in memory" : "payload read in place";
    } else {
        uint64_t unit = l.pipeline.n ? l.chunk_bytes : l.slab_bytes;
        if (l.sample_bytes)
            c.bytes_read_per_payload_byte = (double)unit * (double)l.per_sample / (double)l.sample_bytes;
        c.note = l.pipeline.n == 0 ? "chunks cut through samples: several ranges are read and put together"
                 : l.chunk[0] > 1  ? "several samples per filtered chunk: the whole chunk is read and decoded for each "
                                     "(before compression)"
                                   : "filtered chunks: read and decoded as a whole (before compression)";
    }
    *out = c;
    return 0;
}

/* The part of chunk number `c` (of a MAP) that sample row `row` needs. */
static struct mr_extent chunk_extent(const struct mr_h5_layout *l, const struct mr_h5_chunk *c, uint64_t row)
{
    if (c->addr == MR_H5_UNDEF)
        return (struct mr_extent){0, 0};
    if (l->pipeline.n)
        return (struct mr_extent){c->addr, c->bytes};
    return (struct mr_extent){c->addr + row * l->slab_bytes, l->slab_bytes};
}

static int plan_map(const struct mr_h5_layout *l, const struct mr_sample_ref *ref, struct mr_extent *ext, unsigned max,
                    unsigned *n, struct mr_error *err)
{
    uint64_t needed = 0, end = MR_H5_UNDEF;
    if (ref->aux >= l->desc.rows)
        return mr_error_plain(err, MR_E_FORMAT, "sample %u of %llu in this file", ref->aux,
                              (unsigned long long)l->desc.rows);
    uint64_t first = ref->aux / l->chunk[0] * l->per_sample, row = ref->aux % l->chunk[0];
    for (uint64_t i = 0; i < l->per_sample; i++) {
        struct mr_h5_chunk c = mr_h5_layout_chunk(l, first + i);
        struct mr_extent e = chunk_extent(l, &c, row);
        if (e.length == 0)
            continue;
        if (e.offset == end && needed && needed <= max) {
            ext[needed - 1].length += e.length; /* neighbours in the file are one range */
        } else if (e.offset != end) {
            if (needed < max)
                ext[needed] = e;
            needed++;
        }
        if (!mr_add_ok(e.offset, e.length, &end))
            return mr_error_plain(err, MR_E_FORMAT, "bad chunk map: chunk at %llu", (unsigned long long)e.offset);
    }
    *n = (unsigned)MR_MIN(needed, UINT32_MAX);
    return needed <= max ? 0
                         : mr_error_plain(err, MR_E_LIMIT, "the sample has %llu ranges, room for %u",
                                          (unsigned long long)needed, max);
}

static int hdf5_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                     struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    (void)flags; /* checksums, where there are any, lie inside the chunks */
    enum mr_h5_mode mode;
    int rc = mr_h5_layout_mode(layout, &mode, err);
    if (rc < 0)
        return rc;
    if (mode == MR_H5_MAP) {
        struct mr_h5_layout l;
        rc = mr_h5_layout_get(layout, &l, err);
        return rc < 0 ? rc : plan_map(&l, ref, ext, max, n, err);
    }
    *n = ref->raw.length ? 1 : 0;
    if (*n > max)
        return mr_error_plain(err, MR_E_LIMIT, "no room for the sample's range");
    if (*n)
        ext[0] = ref->raw;
    return 0;
}

static struct libdeflate_decompressor *inflater_of(struct mr_decoder *d)
{
    static const char key; /* its address names the slot */
    void **slot = mr_decoder_private(d, &key, (void (*)(void *))libdeflate_free_decompressor);
    if (slot && !*slot)
        *slot = libdeflate_alloc_decompressor();
    return slot ? *slot : NULL;
}

static void fill_values(const struct mr_h5_layout *l, uint8_t *dst)
{
    unsigned elem = mr_dtype_bytes(l->desc.dtype);
    for (uint64_t at = 0; at < l->sample_bytes; at += elem)
        memcpy(dst + at, l->fill, elem);
}

/* Copies the part of one unfiltered chunk row that belongs to the sample into its place. `which` counts the chunks of
 * the sample in row-major order. */
static void place_slab(const struct mr_h5_layout *l, uint64_t which, const uint8_t *slab, uint8_t *dst)
{
    unsigned n = l->desc.dims.n, elem = mr_dtype_bytes(l->desc.dtype);
    uint64_t box[MR_DIMS_MAX], to[MR_DIMS_MAX], from[MR_DIMS_MAX], at = 0, step_to = elem, step_from = elem;
    for (unsigned i = n; i-- > 0;) {
        uint64_t origin = which % l->along[i + 1] * l->chunk[i + 1];
        which /= l->along[i + 1];
        to[i] = step_to;
        from[i] = step_from;
        box[i] = MR_MIN(l->chunk[i + 1], l->desc.dims.dim[i] - origin);
        at += origin * step_to;
        step_to *= l->desc.dims.dim[i];
        step_from *= l->chunk[i + 1];
    }
    mr_h5_copy_box(dst + at, to, slab, from, box, n, elem);
}

/* Undoes the filters of one chunk and puts the sample's row of it into dst. */
static int place_chunk(struct mr_decoder *d, const struct mr_h5_layout *l, uint64_t which, uint64_t row, uint32_t mask,
                       const uint8_t *raw, size_t len, bool verify, uint8_t *dst, struct mr_error *err)
{
    if (l->pipeline.n == 0) {
        place_slab(l, which, raw, dst);
        return 0;
    }
    int rc = mr_h5_pipeline_plausible(&l->pipeline, len, l->chunk_bytes, err);
    if (rc < 0)
        return rc;
    struct libdeflate_decompressor *inflater = inflater_of(d);
    size_t size = mr_h5_unfilter_bytes(l->chunk_bytes);
    uint8_t *const work[2] = {mr_decoder_scratch(d, 1, size),
                              l->pipeline.n > 1 ? mr_decoder_scratch(d, 2, size) : NULL};
    const uint8_t *chunk = NULL;
    if (!inflater || !work[0] || (l->pipeline.n > 1 && !work[1]))
        return mr_error_set(err, -ENOMEM, "cannot decode a chunk of %llu bytes", (unsigned long long)l->chunk_bytes);
    rc = mr_h5_unfilter(&l->pipeline, mask, inflater, raw, len, l->chunk_bytes, work, verify, &chunk, err);
    if (rc == 0)
        place_slab(l, which, chunk + row * l->slab_bytes, dst);
    return rc;
}

static int decode_map(struct mr_decoder *d, const struct mr_h5_layout *l, const struct mr_sample_ref *ref, bool verify,
                      const uint8_t *raw, size_t len, uint8_t *dst, struct mr_error *err)
{
    uint64_t first = ref->aux / l->chunk[0] * l->per_sample, row = ref->aux % l->chunk[0];
    if (ref->aux >= l->desc.rows)
        return mr_error_plain(err, MR_E_FORMAT, "sample %u of %llu in this file", ref->aux,
                              (unsigned long long)l->desc.rows);
    bool holes = false;
    for (uint64_t i = 0; i < l->per_sample && !holes; i++)
        holes = mr_h5_layout_chunk(l, first + i).addr == MR_H5_UNDEF;
    if (holes) /* the chunks that exist then overwrite their part */
        fill_values(l, dst);
    for (uint64_t i = 0; i < l->per_sample; i++) {
        struct mr_h5_chunk c = mr_h5_layout_chunk(l, first + i);
        struct mr_extent e = chunk_extent(l, &c, row);
        if (e.length == 0)
            continue;
        if (e.length > len)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "unexpected end of sample (want %llu bytes of chunk %llu, have %zu)",
                                  (unsigned long long)e.length, (unsigned long long)(first + i), len);
        int rc = place_chunk(d, l, i, row, c.mask, raw, e.length, verify, dst, err);
        if (rc < 0)
            return rc;
        raw += e.length;
        len -= e.length;
    }
    return len == 0 ? 0 : mr_error_plain(err, MR_E_FORMAT, "%zu bytes too many for the sample", len);
}

/* The sample's bytes, in file byte order, in `dst`. */
static int decode_into(struct mr_decoder *d, const struct mr_h5_layout *l, const struct mr_sample_ref *ref, bool verify,
                       const uint8_t *raw, size_t len, uint8_t *dst, struct mr_error *err)
{
    if (l->mode == MR_H5_MAP)
        return decode_map(d, l, ref, verify, raw, len, dst, err);
    if (l->mode == MR_H5_DIRECT) {
        memcpy(dst, raw, len);
        return 0;
    }
    if (ref->aux >= l->chunk[0])
        return mr_error_plain(err, MR_E_FORMAT, "row %u of a chunk of %llu", ref->aux, (unsigned long long)l->chunk[0]);
    /* Just deflate around just this sample: inflate to where it goes. */
    if (l->pipeline.n == 1 && l->pipeline.filter[0].id == MR_H5_DEFLATE && l->chunk_bytes == l->sample_bytes) {
        size_t got = 0;
        struct libdeflate_decompressor *inflater = inflater_of(d);
        if (!inflater)
            return mr_error_set(err, -ENOMEM, "cannot decode a chunk");
        if (libdeflate_zlib_decompress(inflater, raw, len, dst, l->sample_bytes, &got) != LIBDEFLATE_SUCCESS ||
            got != l->sample_bytes)
            return mr_error_plain(err, MR_E_CORRUPT, "deflated chunk at %llu is damaged (want %llu bytes)",
                                  (unsigned long long)ref->raw.offset, (unsigned long long)l->sample_bytes);
        return 0;
    }
    return place_chunk(d, l, 0, ref->aux, 0, raw, len, verify, dst, err);
}

static int hdf5_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                       unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_h5_layout l;
    int rc = mr_h5_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    out->dtype = l.desc.dtype;
    out->dims = l.desc.dims;
    out->label = ref->label;
    unsigned unit = mr_dtype_swap_unit(l.desc.dtype);
    bool swap = (l.desc.flags & MR_ARRAY_SWAP) && unit > 1,
         missing = len == 0 && l.sample_bytes > 0 && l.mode != MR_H5_MAP;
    if (l.mode != MR_H5_MAP &&
        (len != ref->raw.length || (l.mode == MR_H5_DIRECT && !missing && len != l.sample_bytes)))
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of sample (want %llu bytes at %llu, have %zu)",
                              (unsigned long long)ref->raw.length, (unsigned long long)ref->raw.offset, len);
    if (l.mode == MR_H5_DIRECT && !swap && !missing)
        return mr_array_deliver(raw, len, out, err);
    void *p;
    if ((rc = mr_array_target(d, 0, l.sample_bytes, out, &p, err)) < 0)
        return rc;
    if (missing)
        fill_values(&l, p);
    else if (l.sample_bytes && (rc = decode_into(d, &l, ref, flags & MR_READ_VERIFY, raw, len, p, err)) < 0)
        return rc;
    if (swap)
        mr_array_swap(p, p, l.sample_bytes / unit, unit);
    return mr_array_deliver(p, l.sample_bytes, out, err);
}

const struct mr_format_ops mr_format_hdf5 = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "hdf5",
    .doc = "HDF5 files: rows of the dataset 'records'; contiguous or chunked, deflate, shuffle, Fletcher-32. Needs no "
           "HDF5 library.",
    .extensions = ".h5,.hdf5,.hdf",
    .caps = MR_FMT_MULTI | MR_FMT_LABEL | MR_FMT_CHECKSUM | MR_FMT_VERBATIM | MR_FMT_DTYPE,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = mr_h5_writer_open,
    .sample_begin = mr_h5_sample_begin,
    .sample_data = mr_h5_sample_data,
    .sample_room = mr_h5_sample_room,
    .sample_end = mr_h5_sample_end,
    .writer_close = mr_h5_writer_close,
    .writer_abort = mr_h5_writer_abort,
    .part_bytes = mr_h5_part_bytes,
    .part_open = mr_h5_part_open,
    .side_suffixes = "",
    .scan = hdf5_scan,
    .cost = hdf5_cost,
    .unpack = mr_format_no_unpack,
    .plan = hdf5_plan,
    .decode = hdf5_decode,
};
