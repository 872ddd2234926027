/* Bytes of an NPZ layout; see npz_layout.h. */
#include "format/npz_layout.h"

#include <string.h>

#define NPZ_LAYOUT_VERSION 1
#define NPZ_FIXED 28u

static size_t layout_encode(const struct mr_npz_layout *l, uint8_t data[NPZ_FIXED + MR_ARRAY_DESC_MAX])
{
    data[0] = NPZ_LAYOUT_VERSION;
    data[1] = (uint8_t)l->mode;
    data[2] = (uint8_t)l->place.descriptor_bytes;
    data[3] = l->strip;
    mr_store_le32(data + 4, l->place.prefix_bytes);
    mr_store_le32(data + 8, l->npy_bytes);
    mr_store_le64(data + 12, l->member_offset);
    mr_store_le64(data + 20, l->packed_bytes);
    return NPZ_FIXED + mr_array_desc_encode(&l->desc, data + NPZ_FIXED);
}

int mr_npz_layout_put(const struct mr_npz_layout *l, struct mr_layout *out, struct mr_error *err)
{
    uint8_t data[NPZ_FIXED + MR_ARRAY_DESC_MAX];
    return mr_array_layout_make(data, layout_encode(l, data), out, err);
}

bool mr_npz_layout_equal(const struct mr_npz_layout *a, const struct mr_npz_layout *b)
{
    uint8_t x[NPZ_FIXED + MR_ARRAY_DESC_MAX], y[NPZ_FIXED + MR_ARRAY_DESC_MAX];
    size_t n = layout_encode(a, x);
    return n == layout_encode(b, y) && memcmp(x, y, n) == 0;
}

int mr_npz_layout_get(const struct mr_layout *layout, struct mr_npz_layout *out, struct mr_error *err)
{
    const uint8_t *data = layout->data;
    size_t used;
    if (layout->len < NPZ_FIXED || data[0] != NPZ_LAYOUT_VERSION || data[1] > MR_NPZ_UNIT || data[3] > 1)
        return mr_error_plain(err, MR_E_FORMAT, "bad npz layout (%zu bytes)", layout->len);
    struct mr_npz_layout l = {.mode = data[1],
                              .strip = data[3],
                              .place = {.prefix_bytes = mr_load_le32(data + 4), .descriptor_bytes = data[2]},
                              .npy_bytes = mr_load_le32(data + 8),
                              .member_offset = mr_load_le64(data + 12),
                              .packed_bytes = mr_load_le64(data + 20)};
    int rc = mr_array_desc_decode(data + NPZ_FIXED, layout->len - NPZ_FIXED, &l.desc, &used, err);
    if (rc < 0)
        return rc;
    unsigned dd = l.place.descriptor_bytes;
    if (used != layout->len - NPZ_FIXED || (dd != 0 && dd != 12 && dd != 16 && dd != 20 && dd != 24) ||
        l.place.prefix_bytes < MR_ZIP_LOCAL_BYTES || l.place.prefix_bytes > MR_ZIP_LOCAL_BYTES + 2 * UINT16_MAX ||
        l.npy_bytes > MR_LIMIT_HEADER_BYTES)
        return mr_error_plain(err, MR_E_FORMAT, "bad npz layout (%zu bytes)", layout->len);
    *out = l;
    return 0;
}
