/* HDF5: samples are the rows of one dataset, or of several (hdf5_scan.c says of which).
 *
 * Metadata is read once, by scan, with a parser of our own (hdf5_file.h); no HDF5 library, no global lock. Samples are
 * then ranges of the file like those of any format: see hdf5_layout.h for the three ways they can lie. */
#include "format/hdf5_layout.h"
#include "format/hdf5_scan.h"
#include "format/hdf5_writer.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

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

static const struct mr_field_ops field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = mr_h5_scan_fields,
    .by_field = true,
    .writer_open = mr_h5_fields_open,
    .begin = mr_h5_fields_begin,
    .data = mr_h5_fields_data,
    .end = mr_h5_fields_end,
    .writer_close = mr_h5_fields_close,
    .writer_abort = mr_h5_fields_abort,
};

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
    .scan = mr_h5_scan,
    .cost = hdf5_cost,
    .unpack = mr_format_no_unpack,
    .plan = hdf5_plan,
    .decode = hdf5_decode,
    .fields = &field_ops,
};
