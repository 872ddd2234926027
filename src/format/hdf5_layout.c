/* Encoding and checking HDF5 layouts; see hdf5_layout.h. A layout comes from a manifest, so it is as untrusted as a
 * file: sizes are recomputed from the shapes, and indexes are bounded by them. */
#include "format/hdf5_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT_VERSION 1
#define LAYOUT_FIXED 24u

/* Fills the derived fields; false if a size overflows. */
static bool derive(struct mr_h5_layout *l)
{
    uint64_t inner = mr_dtype_bytes(l->desc.dtype);
    if (!mr_array_bytes(&l->desc.dims, l->desc.dtype, &l->sample_bytes) || l->sample_bytes > MR_LIMIT_SAMPLE_BYTES)
        return false;
    l->per_sample = 1;
    if (l->chunk_axes == 0)
        return true;
    for (unsigned i = 0; i < l->chunk_axes; i++) {
        uint64_t dim = i ? l->desc.dims.dim[i - 1] : l->desc.rows;
        if (l->chunk[i] == 0)
            return false;
        l->along[i] = dim / l->chunk[i] + (dim % l->chunk[i] != 0);
        if (i && (!mr_mul_ok(inner, l->chunk[i], &inner) || !mr_mul_ok(l->per_sample, l->along[i], &l->per_sample)))
            return false;
    }
    l->slab_bytes = inner;
    return mr_mul_ok(inner, l->chunk[0], &l->chunk_bytes) && l->chunk_bytes <= UINT32_MAX;
}

int mr_h5_layout_make(const struct mr_h5_layout *l, const struct mr_h5_chunk *map, uint64_t count,
                      struct mr_layout *out, struct mr_error *err)
{
    unsigned entry = 0;
    if (l->mode == MR_H5_MAP) {
        entry = 12;
        for (uint64_t i = 0; i < count; i++)
            entry = map[i].mask ? 16 : entry;
    }
    size_t head = LAYOUT_FIXED + 8u * l->pipeline.n + 8u * l->chunk_axes + MR_ARRAY_DESC_MAX + 8;
    uint8_t *b = calloc(1, head + count * entry);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot keep a map of %llu chunks", (unsigned long long)count);
    b[0] = LAYOUT_VERSION;
    b[1] = (uint8_t)l->mode;
    b[2] = (uint8_t)l->pipeline.n;
    b[3] = (uint8_t)l->chunk_axes;
    b[4] = (uint8_t)entry;
    memcpy(b + 8, l->fill, sizeof l->fill);
    uint8_t *p = b + LAYOUT_FIXED;
    for (unsigned i = 0; i < l->pipeline.n; i++, p += 8) {
        mr_store_le16(p, l->pipeline.filter[i].id);
        mr_store_le32(p + 4, l->pipeline.filter[i].value);
    }
    for (unsigned i = 0; i < l->chunk_axes; i++, p += 8)
        mr_store_le64(p, l->chunk[i]);
    p += mr_array_desc_encode(&l->desc, p);
    if (entry) {
        mr_store_le64(p, count);
        p += 8;
        for (uint64_t i = 0; i < count; i++, p += entry) {
            mr_store_le64(p, map[i].addr);
            mr_store_le32(p + 8, map[i].bytes);
            if (entry == 16)
                mr_store_le32(p + 12, map[i].mask);
        }
    }
    *out = (struct mr_layout){.data = b, .len = (size_t)(p - b)};
    return 0;
}

static int bad(const struct mr_layout *layout, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_FORMAT, "bad hdf5 layout (%zu bytes)", layout->len);
}

int mr_h5_layout_mode(const struct mr_layout *layout, enum mr_h5_mode *out, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    if (layout->len < LAYOUT_FIXED || b[0] != LAYOUT_VERSION || b[1] > MR_H5_MAP)
        return bad(layout, err);
    *out = b[1];
    return 0;
}

int mr_h5_layout_get(const struct mr_layout *layout, struct mr_h5_layout *l, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    size_t at = LAYOUT_FIXED, used = 0;
    if (layout->len < LAYOUT_FIXED || b[0] != LAYOUT_VERSION || b[1] > MR_H5_MAP || b[2] > MR_H5_FILTERS ||
        b[3] > MR_H5_AXES)
        return bad(layout, err);
    *l = (struct mr_h5_layout){0};
    l->mode = b[1];
    l->pipeline.n = b[2];
    l->chunk_axes = b[3];
    l->entry_bytes = b[4];
    memcpy(l->fill, b + 8, sizeof l->fill);
    if (layout->len - at < 8u * l->pipeline.n + 8u * l->chunk_axes || (l->mode == MR_H5_MAP) != (l->entry_bytes != 0) ||
        (l->entry_bytes != 0 && l->entry_bytes != 12 && l->entry_bytes != 16))
        return bad(layout, err);
    for (unsigned i = 0; i < l->pipeline.n; i++, at += 8)
        l->pipeline.filter[i] = (struct mr_h5_filter){.id = mr_load_le16(b + at), .value = mr_load_le32(b + at + 4)};
    for (unsigned i = 0; i < l->chunk_axes; i++, at += 8)
        l->chunk[i] = mr_load_le64(b + at);
    int rc = mr_h5_pipeline_check(&l->pipeline, err);
    if (rc < 0 || (rc = mr_array_desc_decode(b + at, layout->len - at, &l->desc, &used, err)) < 0)
        return rc;
    at += used;
    if ((l->desc.flags & ~(unsigned)MR_ARRAY_SWAP) != MR_ARRAY_ROWS ||
        (l->mode != MR_H5_DIRECT && l->chunk_axes != l->desc.dims.n + 1) || !derive(l))
        return bad(layout, err);
    if (l->mode == MR_H5_CHUNK && l->per_sample > 1)
        return bad(layout, err);
    if (l->mode == MR_H5_MAP) {
        uint64_t want, room;
        if (layout->len - at < 8 || !mr_mul_ok(l->along[0], l->per_sample, &want))
            return bad(layout, err);
        l->map_count = mr_load_le64(b + at);
        at += 8;
        l->map = b + at;
        if (l->map_count != want || !mr_mul_ok(l->map_count, l->entry_bytes, &room) || room != layout->len - at)
            return bad(layout, err);
    } else if (at != layout->len) {
        return bad(layout, err);
    }
    return 0;
}

struct mr_h5_chunk mr_h5_layout_chunk(const struct mr_h5_layout *l, uint64_t number)
{
    const uint8_t *e = l->map + number * l->entry_bytes;
    return (struct mr_h5_chunk){
        .addr = mr_load_le64(e), .bytes = mr_load_le32(e + 8), .mask = l->entry_bytes == 16 ? mr_load_le32(e + 12) : 0};
}
