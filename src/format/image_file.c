/* Image files: see image_file.h. Layout: byte 0 version = 1. */
#include "format/image_file.h"
#include "format/format_bytes.h"

#include <errno.h>
#include <string.h>

#define IMAGE_LAYOUT_VERSION 1
#define IMAGE_SLACK_BYTES MR_MIB /* a tiny file may hold a plain image of this size whatever the ratio */

int mr_image_layout(struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make(&(uint8_t){IMAGE_LAYOUT_VERSION}, 1, layout, err);
}

int mr_image_layout_check(const struct mr_layout *layout, struct mr_error *err)
{
    if (layout->len != 1 || *(const uint8_t *)layout->data != IMAGE_LAYOUT_VERSION)
        return mr_error_plain(err, MR_E_FORMAT,
                              "bad layout of an image file (want 1 byte of version %d, have %zu bytes)",
                              IMAGE_LAYOUT_VERSION, layout->len);
    return 0;
}

int mr_image_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    int rc = mr_image_layout_check(layout, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){.access = MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .note = "the whole file is one image and is decoded"};
    return 0;
}

int mr_image_scan(struct mr_store *s, const char *path, const char *kind, const void *magic, size_t magic_len,
                  mr_scan_fn *fn, void *user, struct mr_layout *layout, struct mr_error *err)
{
    struct mr_object *o = NULL;
    uint64_t bytes = 0;
    unsigned char head[16];
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    rc = mr_object_size(o, &bytes, err);
    if (rc >= 0 && bytes >= magic_len)
        rc = mr_object_read(o, head, magic_len, 0, err);
    if (rc >= 0 && (bytes < magic_len || memcmp(head, magic, magic_len) != 0)) {
        rc = mr_error_plain(err, MR_E_FORMAT,
                            "'%s' is not a %s file: it does not begin with the %s signature (%llu bytes)", path, kind,
                            kind, (unsigned long long)bytes);
        mr_error_hint(err, "look at it with 'file', and remove or rename it if it is something else");
    }
    struct mr_error close_err;
    int close_rc = mr_object_close(o, &close_err);
    if (rc >= 0 && close_rc < 0) {
        rc = close_rc;
        if (err)
            *err = close_err;
    }
    if (rc < 0)
        return rc;
    struct mr_sample_ref ref = {.raw = {0, bytes}, .label = MR_LABEL_NONE};
    rc = fn(user, &ref, NULL, err);
    return rc < 0 ? rc : mr_image_layout(layout, err);
}

int mr_image_limit_check(size_t file_len, uint64_t height, uint64_t width, unsigned channels, enum mr_dtype dtype,
                         struct mr_error *err)
{
    /* Sides are below 2^31 and a pixel has at most 8 bytes, but the product needs more than 64 bits in the worst case.
     */
    unsigned __int128 need = (unsigned __int128)height * width * channels * mr_dtype_bytes(dtype);
    unsigned __int128 most = (unsigned __int128)file_len * MR_LIMIT_UNPACK_RATIO + IMAGE_SLACK_BYTES;
    if (need > most || need > MR_LIMIT_UNPACKED_BYTES)
        return mr_error_plain(
            err, MR_E_LIMIT,
            "image of %llu x %llu pixels in %zu bytes is beyond the limit (%u bytes of pixels per byte of file)",
            (unsigned long long)width, (unsigned long long)height, file_len, MR_LIMIT_UNPACK_RATIO);
    return 0;
}

int mr_image_out_prepare(struct mr_decoder *d, size_t file_len, uint64_t height, uint64_t width, unsigned channels,
                         enum mr_dtype dtype, struct mr_sample_out *out, uint8_t **pixels, struct mr_error *err)
{
    int rc = mr_image_limit_check(file_len, height, width, channels, dtype, err);
    if (rc < 0)
        return rc;
    size_t bytes = (size_t)(height * width * channels * mr_dtype_bytes(dtype));
    if (out->dst && out->dst_cap < bytes) {
        out->bytes = bytes;
        return mr_error_plain(err, MR_E_LIMIT, "image of %llu x %llu pixels does not fit (want %zu bytes, have %zu)",
                              (unsigned long long)width, (unsigned long long)height, bytes, out->dst_cap);
    }
    void *to = out->dst ? out->dst : mr_decoder_scratch(d, 0, bytes);
    if (!to)
        return mr_error_set(err, -ENOMEM, "cannot hold an image of %zu bytes", bytes);
    out->data = to;
    out->bytes = bytes;
    out->dtype = dtype;
    out->dims = (struct mr_dims){.n = 3, .dim = {height, width, channels}};
    *pixels = to;
    return 0;
}
