/* PNG files, one image each, by libpng: 8-bit grey or colour written, everything libpng reads read.
 *
 * Writing: rows go to libpng as they arrive; only a row cut in two is gathered. A file that came out smaller than
 * requested gets one private ancillary chunk ("miPd", spaces) before its end, which every reader skips.
 *
 * Reading: palettes become colour, 1-, 2- and 4-bit greys become 8-bit, a transparency chunk becomes an alpha channel,
 * 16-bit samples stay 16-bit in machine order; channels are kept (1 to 4). Ancillary chunks are skipped unread, so
 * their compressed texts and profiles cannot be bombs, but their checksums count: any bad CRC is an error.
 *
 * What must stay true: libpng leaves by longjmp, so everything a function needs after that lives in the writer or
 * reader struct, never in a local variable. */
#include "format/format.h"
#include "base/content.h"
#include "format/format_bytes.h"
#include "format/image_file.h"
#include "format/image_synth.h"
#include "format/stream_out.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_OVERHEAD 12u /* length, type, checksum */
#define END_BYTES CHUNK_OVERHEAD
#define DEFAULT_LEVEL 1
#define SIDE_LIMIT 1000000u
#define BUFFER_BYTES (256u * 1024u)

/* PNG always deflates. Without a compression in the spec the level is the fast one; with one it is what the spec says.
 */
static int level_of(const struct mr_writer_spec *spec)
{
    return spec->compression == MR_COMP_NONE ? DEFAULT_LEVEL : spec->compression_level;
}

/* By level, filter "sub" (level 0: none), for grey and colour; measured on pictures of 1024 x 768, 128 x 96 and 40
 * x 30. */
static const struct calibration {
    double bytes_per_pixel[2], edge[2];
} calibration[10] = {
    [0] = {{1.00035, 3.0010}, {0.9, 0.3}}, [1] = {{0.9062, 2.276}, {2, 7.2}}, [2] = {{0.9062, 2.198}, {2, 8.5}},
    [3] = {{0.9062, 2.179}, {2, 8.8}},     [4] = {{0.9032, 2.705}, {2, 1.4}}, [5] = {{0.9032, 2.705}, {2, 1.4}},
    [6] = {{0.9032, 2.705}, {2, 1.4}},     [7] = {{0.9032, 2.705}, {2, 1.4}}, [8] = {{0.9032, 2.705}, {2, 1.4}},
    [9] = {{0.9032, 2.705}, {2, 1.4}},
};

static int png_spec_check(const struct mr_writer_spec *spec, struct mr_error *err)
{
    int level = level_of(spec);
    if (level < 0 || level > 9)
        return mr_error_plain(err, MR_E_CONFIG, "PNG compression level %d is not possible (0 to 9)", level);
    return 0;
}

static int png_shape(const struct mr_writer_spec *spec, uint64_t want_bytes, struct mr_sample_info *info,
                     struct mr_error *err)
{
    int rc = png_spec_check(spec, err);
    if (rc < 0)
        return rc;
    unsigned channels = mr_image_channels(spec);
    const struct calibration *k = &calibration[level_of(spec)];
    struct mr_image_model model = {
        .fixed_bytes = 63, /* signature, header, first data chunk, end */
        .per_pixel = k->bytes_per_pixel[channels == 3],
        .edge = k->edge[channels == 3],
        .spread = 0.005,
        .spread_edge = 2,
        .block = 1,
        .channels = channels,
        .pad_limit_bytes = UINT64_MAX,
    };
    return mr_image_shape(spec, &model, want_bytes, info, err);
}

static int png_check(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                     const struct mr_sample_out *have, struct mr_error *err)
{
    const struct mr_content *c = content;
    struct mr_image_difference diff;
    (void)spec;
    int rc = mr_image_compare(c->seed, info, have, &diff, err);
    if (rc < 0)
        return rc;
    if (diff.first != UINT64_MAX)
        return mr_error_plain(err, MR_E_CORRUPT, "sample %llu differs from its content at byte %llu of %llu",
                              (unsigned long long)info->id, (unsigned long long)diff.first,
                              (unsigned long long)info->bytes);
    return 0;
}

/* ---- writing ---- */

struct png_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_writer_spec spec;
    struct mr_sample_info info;
    png_structp png;
    png_infop header;
    jmp_buf leave;
    struct mr_error *err; /* of the call in progress */
    int rc;
    uint8_t *row;
    size_t row_bytes, row_fill;
    bool begun, ended;
    uint64_t written;
    char *path;
};

static void encode_error(png_structp png, png_const_charp text)
{
    struct png_writer *w = png_get_error_ptr(png);
    if (w->rc == 0)
        w->rc = mr_error_plain(w->err, MR_E_INTERNAL, "cannot encode '%s': %s", w->path, text);
    longjmp(w->leave, 1);
}

static void ignore_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void encode_bytes(png_structp png, png_bytep data, size_t len)
{
    struct png_writer *w = png_get_io_ptr(png);
    int rc = mr_stream_out_put(w->out, data, len, w->err);
    if (rc < 0) {
        w->rc = rc;
        longjmp(w->leave, 1);
    }
}

static void encode_flush(png_structp png)
{
    (void)png;
}

static void png_writer_abort(struct mr_writer *base)
{
    struct png_writer *w = (struct png_writer *)base;
    if (!w)
        return;
    if (w->png)
        png_destroy_write_struct(&w->png, &w->header);
    mr_stream_out_abort(w->out);
    free(w->row);
    free(w->path);
    free(w);
}

static int png_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    if (spec->samples != 1)
        return mr_error_plain(err, MR_E_CONFIG, "cannot write '%s': a PNG file holds one sample, not %llu", path,
                              (unsigned long long)spec->samples);
    int rc = png_spec_check(spec, err);
    if (rc < 0)
        return rc;
    struct png_writer *w = calloc(1, sizeof(*w));
    char *copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    }
    w->path = copy;
    w->spec = *spec;
    rc = mr_stream_out_open(s, path, MR_COMP_NONE, 0, BUFFER_BYTES, &w->out, err);
    if (rc < 0) {
        png_writer_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int encoder_start(struct png_writer *w, struct mr_error *err)
{
    w->err = err;
    w->rc = 0;
    if (setjmp(w->leave))
        return w->rc;
    w->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, w, encode_error, ignore_warning);
    if (w->png)
        w->header = png_create_info_struct(w->png);
    if (!w->header)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", w->path);
    png_set_write_fn(w->png, w, encode_bytes, encode_flush);
    png_set_IHDR(w->png, w->header, (png_uint_32)w->info.dims.dim[1], (png_uint_32)w->info.dims.dim[0], 8,
                 mr_image_dims_channels(&w->info.dims) == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(w->png, level_of(&w->spec));
    png_set_compression_buffer_size(w->png, BUFFER_BYTES / 4);
    png_set_filter(w->png, PNG_FILTER_TYPE_BASE, level_of(&w->spec) ? PNG_FILTER_SUB : PNG_FILTER_NONE);
    png_write_info(w->png, w->header);
    return 0;
}

static int png_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct png_writer *w = (struct png_writer *)base;
    if (w->begun)
        return mr_error_plain(err, MR_E_INTERNAL, "a second sample for the PNG file '%s'", w->path);
    int rc = mr_image_dims_check(info, err);
    if (rc < 0)
        return rc;
    w->begun = true;
    w->info = *info;
    w->row_bytes = (size_t)info->dims.dim[1] * mr_image_dims_channels(&info->dims);
    w->row = malloc(w->row_bytes);
    if (!w->row)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", w->path);
    return encoder_start(w, err);
}

/* Hands over whole rows; a row cut in two is gathered in w->row. Leaves by longjmp on failure. */
static void encode_pixels(struct png_writer *w, const uint8_t *in, size_t len)
{
    while (len) {
        if (w->row_fill == 0 && len >= w->row_bytes) {
            png_write_row(w->png, in);
            in += w->row_bytes;
            len -= w->row_bytes;
            continue;
        }
        size_t n = MR_MIN(len, w->row_bytes - w->row_fill);
        memcpy(w->row + w->row_fill, in, n);
        in += n;
        len -= n;
        w->row_fill += n;
        if (w->row_fill == w->row_bytes) {
            png_write_row(w->png, w->row);
            w->row_fill = 0;
        }
    }
}

static int png_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct png_writer *w = (struct png_writer *)base;
    if (!w->begun || len > w->info.bytes - w->written)
        return mr_error_plain(err, MR_E_INTERNAL, "more pixels than announced for '%s' (want %llu bytes)", w->path,
                              (unsigned long long)w->info.bytes);
    w->written += len;
    w->err = err;
    w->rc = 0;
    if (setjmp(w->leave))
        return w->rc;
    encode_pixels(w, data, len);
    return 0;
}

/* One chunk of spaces that brings the file to the requested size, where at least an empty chunk is missing. */
static void write_padding(struct png_writer *w)
{
    uint8_t spaces[4096];
    uint64_t have = mr_stream_out_position(w->out) + END_BYTES;
    if (w->info.file_bytes < have + CHUNK_OVERHEAD)
        return;
    uint64_t pad = MR_MIN(w->info.file_bytes - have - CHUNK_OVERHEAD, (uint64_t)PNG_UINT_31_MAX);
    memset(spaces, ' ', sizeof spaces);
    png_write_chunk_start(w->png, (png_const_bytep) "miPd", (png_uint_32)pad);
    for (uint64_t done = 0; done < pad; done += sizeof spaces)
        png_write_chunk_data(w->png, spaces, (size_t)MR_MIN(pad - done, (uint64_t)sizeof spaces));
    png_write_chunk_end(w->png);
}

static int encoder_finish(struct png_writer *w, struct mr_error *err)
{
    w->err = err;
    w->rc = 0;
    if (setjmp(w->leave))
        return w->rc;
    write_padding(w);
    png_write_end(w->png, NULL);
    return 0;
}

static int png_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct png_writer *w = (struct png_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = encoder_finish(w, err);
    if (rc < 0)
        return rc;
    w->ended = true;
    *ref = (struct mr_sample_ref){.raw = {0, mr_stream_out_position(w->out)}, .label = w->info.label};
    return 0;
}

static int png_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct png_writer *w = (struct png_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    if (!w->ended) {
        mr_error_plain(err, MR_E_INTERNAL, "the PNG file '%s' was closed without an image", w->path);
        png_writer_abort(base);
        return MR_E_INTERNAL;
    }
    int rc = mr_stream_out_close(w->out, &bytes, err);
    w->out = NULL;
    png_writer_abort(base);
    if (rc >= 0)
        rc = mr_image_layout(&made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- reading ---- */

struct png_reader {
    png_structp png;
    png_infop header;
    jmp_buf leave;
    const uint8_t *raw;
    size_t len, at;
    uint8_t *pixels;
    char text[128];
    bool failed; /* text says why */
};

static void decode_error(png_structp png, png_const_charp text)
{
    struct png_reader *r = png_get_error_ptr(png);
    if (!r->text[0])
        snprintf(r->text, sizeof r->text, "%s", text);
    longjmp(r->leave, 1);
}

static void decode_bytes(png_structp png, png_bytep to, size_t len)
{
    struct png_reader *r = png_get_io_ptr(png);
    if (len > r->len - r->at) {
        snprintf(r->text, sizeof r->text, "unexpected end (want %zu bytes at %zu)", len, r->at);
        png_error(png, r->text);
    }
    memcpy(to, r->raw + r->at, len);
    r->at += len;
}

/* Asks libpng for 8- or 16-bit samples without palette or transparency chunk; see the top of the file. */
static void set_transforms(struct png_reader *r)
{
    int type = png_get_color_type(r->png, r->header), depth = png_get_bit_depth(r->png, r->header);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if (png_get_valid(r->png, r->header, PNG_INFO_tRNS))
        png_set_tRNS_to_alpha(r->png);
    if (depth == 16 && *(const uint8_t *)&(uint16_t){1} == 1)
        png_set_swap(r->png);
}

static void decode_rows(struct png_reader *r, uint64_t height, size_t row_bytes, int passes)
{
    for (int pass = 0; pass < passes; pass++)
        for (uint64_t y = 0; y < height; y++)
            png_read_row(r->png, r->pixels + y * row_bytes, NULL);
    png_read_end(r->png, NULL);
}

static void reader_limits(png_structp png)
{
    png_set_user_limits(png, SIDE_LIMIT, SIDE_LIMIT);
    png_set_chunk_malloc_max(png, MR_LIMIT_HEADER_BYTES);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
}

static int decode_image(struct mr_decoder *d, struct png_reader *r, struct mr_sample_out *out, struct mr_error *err)
{
    if (setjmp(r->leave)) {
        r->failed = true;
        return MR_E_FORMAT;
    }
    reader_limits(r->png);
    png_set_read_fn(r->png, r, decode_bytes);
    png_read_info(r->png, r->header);
    set_transforms(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->header);
    enum mr_dtype dtype = png_get_bit_depth(r->png, r->header) == 16 ? MR_U16 : MR_U8;
    uint64_t height = png_get_image_height(r->png, r->header);
    int rc = mr_image_out_prepare(d, r->len, height, png_get_image_width(r->png, r->header),
                                  png_get_channels(r->png, r->header), dtype, out, &r->pixels, err);
    if (rc < 0)
        return rc;
    decode_rows(r, height, png_get_rowbytes(r->png, r->header), passes);
    return 0;
}

static int png_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    (void)flags;
    int rc = mr_image_layout_check(layout, err);
    if (rc < 0)
        return rc;
    struct png_reader r = {.raw = raw, .len = len};
    if (setjmp(r.leave) == 0)
        r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, decode_error, ignore_warning);
    if (r.png)
        r.header = png_create_info_struct(r.png);
    rc = r.header ? decode_image(d, &r, out, err) : mr_error_set(err, -ENOMEM, "cannot create a PNG decoder");
    if (r.failed)
        rc = mr_error_plain(err, MR_E_FORMAT, "bad PNG data near byte %zu of %zu: %s", r.at, len, r.text);
    png_destroy_read_struct(&r.png, &r.header, NULL);
    if (rc < 0)
        return rc;
    out->label = ref->label;
    return 0;
}

static int png_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    return mr_image_scan(s, path, "PNG", "\x89PNG\r\n\x1a\n", 8, fn, user, layout, err);
}

const struct mr_format_ops mr_format_png = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "png",
    .doc = "PNG: one image per file, decoded to height x width x channels of uint8 (or uint16); lossless.",
    .extensions = ".png",
    .caps = MR_FMT_CHECKSUM | MR_FMT_DTYPE,
    .shape = png_shape,
    .synth = mr_image_synth,
    .check = png_check,
    .writer_open = png_writer_open,
    .sample_begin = png_sample_begin,
    .sample_data = png_sample_data,
    .sample_end = png_sample_end,
    .writer_close = png_writer_close,
    .writer_abort = png_writer_abort,
    .side_suffixes = "",
    .scan = png_scan,
    .cost = mr_image_cost,
    .unpack = mr_format_no_unpack,
    .plan = mr_format_plan_single,
    .decode = png_decode,
};
