/* Raw files: nothing but payload. A file anybody wrote is one sample; files of ours may hold several of one size, one
 * after the other, which only the manifest can tell apart. The skeleton to copy for a new format.
 *
 * Layout: byte 0 version = 1. */
#include "format/format_bytes.h"
#include "format/stream_out.h"

#include <errno.h>
#include <stdlib.h>

#define RAW_LAYOUT_VERSION 1

struct raw_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_sample_info info;
    uint64_t start, written;
};

static int raw_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    if (spec->compression != MR_COMP_NONE)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write '%s': raw files are not compressed", path);
    if (spec->samples > 1 && !spec->fixed_size) {
        mr_error_plain(err, MR_E_UNSUPPORTED,
                       "cannot write '%s': raw files of several samples need samples of one size", path);
        return mr_error_hint(err, "use format indexed_binary, or one sample per file"), MR_E_UNSUPPORTED;
    }
    struct raw_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = mr_stream_out_open(s, path, MR_COMP_NONE, 0, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static uint64_t raw_part_bytes(const struct mr_writer_spec *spec, const struct mr_sample_info *one)
{
    return spec->compression == MR_COMP_NONE && spec->fixed_size ? one->bytes : 0;
}

static int raw_part_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                         const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                         struct mr_error *err)
{
    struct raw_writer *w = calloc(1, sizeof(*w));
    (void)n;
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = mr_stream_out_open_part(s, path, 0, first * one->bytes, spec->samples * one->bytes, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int raw_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct raw_writer *w = (struct raw_writer *)base;
    (void)err;
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    return 0;
}

static int raw_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct raw_writer *w = (struct raw_writer *)base;
    w->written += len;
    return mr_stream_out_put(w->out, data, len, err);
}

static int raw_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct raw_writer *w = (struct raw_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, w->written}, .label = w->info.label};
    return 0;
}

static void raw_writer_abort(struct mr_writer *base)
{
    struct raw_writer *w = (struct raw_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int raw_layout(struct mr_layout *layout, struct mr_error *err)
{
    return mr_layout_make(&(uint8_t){RAW_LAYOUT_VERSION}, 1, layout, err);
}

static int raw_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct raw_writer *w = (struct raw_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    int rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = raw_layout(&made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

static int raw_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    struct mr_store_stat st;
    int rc = mr_store_stat(s, path, &st, err);
    if (rc < 0)
        return rc;
    struct mr_sample_ref ref = {.raw = {0, st.bytes}, .label = MR_LABEL_NONE};
    rc = fn(user, &ref, NULL, err);
    return rc < 0 ? rc : raw_layout(layout, err);
}

static int raw_check_layout(const struct mr_layout *layout, struct mr_error *err)
{
    if (layout->len != 1 || *(const uint8_t *)layout->data != RAW_LAYOUT_VERSION)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a raw file (want 1 byte of version %d, have %zu bytes)",
                              RAW_LAYOUT_VERSION, layout->len);
    return 0;
}

static int raw_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    int rc = raw_check_layout(layout, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){.access = MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .verbatim = true,
                                 .note = "one range per sample, nothing to decode"};
    return 0;
}

const struct mr_format_ops mr_format_raw = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "raw",
    .doc = "Plain bytes: a file is one sample; files written by us may hold several of one size.",
    .extensions = ".raw,.bin,.dat",
    .caps = MR_FMT_MULTI | MR_FMT_VERBATIM,
    .shape = mr_format_shape_flat,
    .synth = mr_format_synth_content,
    .check = mr_format_check_equal,
    .writer_open = raw_writer_open,
    .sample_begin = raw_sample_begin,
    .sample_data = raw_sample_data,
    .sample_end = raw_sample_end,
    .writer_close = raw_writer_close,
    .writer_abort = raw_writer_abort,
    .part_bytes = raw_part_bytes,
    .part_open = raw_part_open,
    .side_suffixes = "",
    .scan = raw_scan,
    .cost = raw_cost,
    .unpack = mr_format_no_unpack,
    .plan = mr_format_plan_single,
    .decode = mr_format_decode_bytes,
};
