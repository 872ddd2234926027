/* JPEG files, one image each, by libjpeg-turbo: baseline 4:2:0 written, everything the library decodes read.
 *
 * Writing: rows go to the encoder as they arrive, straight from the caller's buffer; only a row cut in two is gathered.
 * The encoding is held in memory up to HOLD_BYTES, because the comment segments that pad a file to the requested size
 * must stand before the frame, and how much is missing is known only at the end. A larger image streams to the store
 * through a buffer and is not padded; shape then aims at the requested size itself.
 *
 * Reading: one decompressor per thread (mr_decoder_private), reset by jpeg_abort after each image. libjpeg calls
 * damaged or missing data a warning and invents pixels; here such a warning is an error.
 *
 * What must stay true: libjpeg leaves by longjmp to the nearest setjmp of the same object, so everything a function
 * needs after that lives in the writer or reader struct, never in a local variable; no pointer to a caller's buffer
 * survives a call. */
#include "format/format.h"
#include "base/content.h"
#include "format/format_bytes.h"
#include "format/image_file.h"
#include "format/image_synth.h"

#include <stdio.h> /* before jpeglib.h, which needs FILE and size_t */

#include <errno.h>
#include <jpeglib.h>
#include <jerror.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_BYTES (4u * 1024u * 1024u)
#define STREAM_BYTES (256u * 1024u)
#define ROWS_PER_CALL 16
#define DEFAULT_QUALITY 85u
#define MAX_SCANS 500  /* progressive files with more only burn time */
#define HEAD_BYTES 20u /* SOI and the JFIF segment, after which comments go */
#define COMMENT_MAX 65537u
#define EDGE 2u /* columns beside a part that its chroma is interpolated from */

static unsigned quality_of(const struct mr_writer_spec *spec)
{
    return spec->quality ? spec->quality : DEFAULT_QUALITY;
}

/* ---- how large, how like: measured on pictures of 1024 x 768 ---- */

static const struct calibration {
    unsigned quality;
    double bytes_per_pixel[2], psnr_db[2]; /* grey, colour */
} calibration[] = {
    {1, {0.01331, 0.01731}, {18.9, 17.9}},  {2, {0.01331, 0.01731}, {18.9, 17.9}},
    {3, {0.01467, 0.01869}, {19.0, 17.9}},  {4, {0.01891, 0.02295}, {19.3, 18.4}},
    {5, {0.02488, 0.02893}, {19.6, 19.1}},  {7, {0.03841, 0.04252}, {20.1, 19.8}},
    {10, {0.05825, 0.06238}, {20.7, 20.4}}, {12, {0.07018, 0.07439}, {20.9, 20.7}},
    {15, {0.08627, 0.09053}, {21.3, 21.1}}, {20, {0.10880, 0.11315}, {21.7, 21.6}},
    {25, {0.13092, 0.13530}, {22.1, 22.0}}, {30, {0.15395, 0.15845}, {22.4, 22.3}},
    {35, {0.17745, 0.18209}, {22.8, 22.7}}, {40, {0.19842, 0.20311}, {23.2, 23.1}},
    {45, {0.22060, 0.22540}, {23.6, 23.5}}, {50, {0.24021, 0.24519}, {24.0, 23.9}},
    {55, {0.25995, 0.26512}, {24.5, 24.4}}, {60, {0.28289, 0.28835}, {25.1, 25.0}},
    {65, {0.30921, 0.31507}, {26.0, 25.8}}, {70, {0.33930, 0.34614}, {27.0, 26.9}},
    {75, {0.37199, 0.38040}, {28.4, 28.2}}, {80, {0.41581, 0.42728}, {30.3, 30.0}},
    {85, {0.47004, 0.48582}, {32.8, 32.3}}, {90, {0.55347, 0.57563}, {36.3, 35.4}},
    {92, {0.59335, 0.61948}, {38.3, 37.0}}, {94, {0.66780, 0.70038}, {40.8, 39.0}},
    {95, {0.71691, 0.75346}, {42.3, 40.0}}, {96, {0.77701, 0.82327}, {44.2, 41.3}},
    {97, {0.84904, 0.90511}, {46.5, 42.7}}, {98, {0.93425, 1.00592}, {49.7, 44.3}},
    {99, {1.07910, 1.19319}, {54.5, 46.0}}, {100, {1.16227, 1.33505}, {58.4, 46.8}},
};

static void calibrated(unsigned quality, bool colour, double *bytes_per_pixel, double *psnr_db)
{
    size_t hi = 1;
    while (hi + 1 < MR_ARRAY_LEN(calibration) && calibration[hi].quality < quality)
        hi++;
    const struct calibration *a = &calibration[hi - 1], *b = &calibration[hi];
    double t = ((double)quality - a->quality) / ((double)b->quality - a->quality);
    *bytes_per_pixel = a->bytes_per_pixel[colour] + t * (b->bytes_per_pixel[colour] - a->bytes_per_pixel[colour]);
    *psnr_db = a->psnr_db[colour] + t * (b->psnr_db[colour] - a->psnr_db[colour]);
}

static int jpeg_shape(const struct mr_writer_spec *spec, uint64_t want_bytes, struct mr_sample_info *info,
                      struct mr_error *err)
{
    if (spec->quality > 100)
        return mr_error_plain(err, MR_E_CONFIG, "JPEG quality %u is not possible (1 to 100)", spec->quality);
    bool colour = mr_image_channels(spec) == 3;
    double per_pixel, psnr;
    calibrated(quality_of(spec), colour, &per_pixel, &psnr);
    struct mr_image_model model = {
        .fixed_bytes = colour ? 625 : 330, /* markers and tables */
        .per_pixel = per_pixel / 1.0034,   /* the calibration includes the edge term at its size */
        .edge = 3,
        .spread = 0.013,
        .spread_edge = 4,
        .block = colour ? 16 : 8,
        .channels = colour ? 3 : 1,
        .pad_limit_bytes = HOLD_BYTES,
    };
    return mr_image_shape(spec, &model, want_bytes, info, err);
}

/* The smallest signal-to-noise ratio an undamaged file has: the calibrated one less a decibel, and less again for small
 * images, where shapes are a larger part. More than 36 dB proves nothing more: another picture has about 14. */
static double psnr_floor(const struct mr_writer_spec *spec, const struct mr_sample_info *info)
{
    double per_pixel, psnr;
    calibrated(quality_of(spec), mr_image_dims_channels(&info->dims) == 3, &per_pixel, &psnr);
    return MR_MIN(psnr, 36.0) - 1 - 32 / sqrt(sqrt((double)(info->dims.dim[0] * info->dims.dim[1])));
}

static int jpeg_check(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                      const struct mr_sample_out *have, struct mr_error *err)
{
    const struct mr_content *c = content;
    struct mr_image_difference diff;
    int rc = mr_image_compare(c->seed, info, have, &diff, err);
    if (rc < 0)
        return rc;
    double mean = diff.squares / (double)info->bytes, floor_db = psnr_floor(spec, info);
    double psnr = mean > 0 ? 10 * log10(255.0 * 255.0 / mean) : INFINITY;
    if (psnr >= floor_db)
        return 0;
    mr_error_plain(
        err, MR_E_CORRUPT,
        "sample %llu does not resemble its content (peak signal-to-noise ratio %.1f dB, want at least %.1f dB)",
        (unsigned long long)info->id, psnr, floor_db);
    return MR_E_CORRUPT;
}

/* ---- writing ---- */

struct jpeg_writer {
    struct mr_writer base;
    struct mr_store *store;
    struct mr_object *object;
    struct mr_writer_spec spec;
    struct mr_sample_info info;
    struct jpeg_compress_struct codec;
    struct jpeg_error_mgr manager;
    struct jpeg_destination_mgr destination;
    jmp_buf leave;
    struct mr_error *err; /* of the call in progress */
    int rc;               /* set before leaving */
    uint8_t *buffer, *row;
    size_t capacity, row_bytes, row_fill;
    bool holding, codec_made, begun, ended;
    uint64_t flushed, written; /* bytes of file in the store; bytes of pixels taken */
    char *path;
};

static void encode_error(j_common_ptr codec)
{
    struct jpeg_writer *w = MR_CONTAINER_OF(codec->err, struct jpeg_writer, manager);
    char text[JMSG_LENGTH_MAX];
    if (w->rc == 0) {
        codec->err->format_message(codec, text);
        w->rc = mr_error_plain(w->err, MR_E_INTERNAL, "cannot encode '%s': %s", w->path, text);
    }
    longjmp(w->leave, 1);
}

static void encode_message(j_common_ptr codec, int level)
{
    (void)codec, (void)level;
}

static void destination_init(j_compress_ptr codec)
{
    struct jpeg_writer *w = MR_CONTAINER_OF(codec, struct jpeg_writer, codec);
    codec->dest->next_output_byte = w->buffer;
    codec->dest->free_in_buffer = w->capacity;
}

static int flush_bytes(struct jpeg_writer *w, size_t len, struct mr_error *err)
{
    int rc = mr_object_write(w->object, w->buffer, len, w->flushed, err);
    if (rc >= 0)
        w->flushed += len;
    return rc < 0 ? rc : 0;
}

/* libjpeg calls it only with the whole buffer used, whatever free_in_buffer says. */
static boolean destination_full(j_compress_ptr codec)
{
    struct jpeg_writer *w = MR_CONTAINER_OF(codec, struct jpeg_writer, codec);
    w->holding = false;
    w->rc = flush_bytes(w, w->capacity, w->err);
    if (w->rc < 0)
        longjmp(w->leave, 1);
    destination_init(codec);
    return TRUE;
}

/* The last bytes stay in the buffer: sample_end pads and writes them. */
static void destination_term(j_compress_ptr codec)
{
    (void)codec;
}

static void jpeg_writer_abort(struct mr_writer *base)
{
    struct jpeg_writer *w = (struct jpeg_writer *)base;
    if (!w)
        return;
    if (w->codec_made)
        jpeg_destroy_compress(&w->codec);
    mr_object_abandon(w->object);
    mr_object_close(w->object, NULL);
    free(w->buffer);
    free(w->row);
    free(w->path);
    free(w);
}

static int jpeg_spec_check(const char *path, const struct mr_writer_spec *spec, struct mr_error *err)
{
    if (spec->samples != 1)
        return mr_error_plain(err, MR_E_CONFIG, "cannot write '%s': a JPEG file holds one sample, not %llu", path,
                              (unsigned long long)spec->samples);
    if (spec->compression != MR_COMP_NONE)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot write '%s': JPEG files are not compressed again", path);
    if (spec->quality > 100)
        return mr_error_plain(err, MR_E_CONFIG, "cannot write '%s': JPEG quality %u is not possible (1 to 100)", path,
                              spec->quality);
    return 0;
}

static int jpeg_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                            struct mr_writer **out, struct mr_error *err)
{
    int rc = jpeg_spec_check(path, spec, err);
    if (rc < 0)
        return rc;
    struct jpeg_writer *w = calloc(1, sizeof(*w));
    char *copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    }
    w->store = s;
    w->path = copy;
    w->spec = *spec;
    rc = mr_object_open(s, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &w->object, err);
    if (rc < 0) {
        jpeg_writer_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int encoder_start(struct jpeg_writer *w, struct mr_error *err)
{
    struct jpeg_compress_struct *z = &w->codec;
    w->err = err;
    w->rc = 0;
    z->err = jpeg_std_error(&w->manager);
    w->manager.error_exit = encode_error;
    w->manager.emit_message = encode_message;
    if (setjmp(w->leave))
        return w->rc;
    jpeg_create_compress(z);
    w->codec_made = true;
    w->destination = (struct jpeg_destination_mgr){.init_destination = destination_init,
                                                   .empty_output_buffer = destination_full,
                                                   .term_destination = destination_term};
    z->dest = &w->destination;
    z->image_height = (JDIMENSION)w->info.dims.dim[0];
    z->image_width = (JDIMENSION)w->info.dims.dim[1];
    z->input_components = (int)mr_image_dims_channels(&w->info.dims);
    z->in_color_space = z->input_components == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(z);
    jpeg_set_quality(z, (int)quality_of(&w->spec), TRUE);
    jpeg_start_compress(z, TRUE);
    return 0;
}

static int jpeg_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct jpeg_writer *w = (struct jpeg_writer *)base;
    if (w->begun)
        return mr_error_plain(err, MR_E_INTERNAL, "a second sample for the JPEG file '%s'", w->path);
    int rc = mr_image_dims_check(info, err);
    if (rc < 0)
        return rc;
    w->begun = true;
    w->info = *info;
    w->holding = info->file_bytes > 0 && info->file_bytes <= HOLD_BYTES;
    w->capacity = w->holding ? (size_t)(info->file_bytes + info->file_bytes / 8) + 4096 : STREAM_BYTES;
    w->row_bytes = (size_t)info->dims.dim[1] * mr_image_dims_channels(&info->dims);
    w->buffer = malloc(w->capacity);
    w->row = malloc(w->row_bytes);
    if (!w->buffer || !w->row)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", w->path);
    return encoder_start(w, err);
}

/* Hands over whole rows; leaves by longjmp on failure. */
static void encode_rows(struct jpeg_writer *w, const uint8_t *data, size_t rows)
{
    while (rows) {
        JSAMPROW pointers[ROWS_PER_CALL];
        JDIMENSION n = (JDIMENSION)MR_MIN(rows, (size_t)ROWS_PER_CALL);
        for (JDIMENSION i = 0; i < n; i++)
            pointers[i] = (JSAMPROW)(uintptr_t)(data + i * w->row_bytes); /* read only, whatever the type says */
        JDIMENSION done = jpeg_write_scanlines(&w->codec, pointers, n);
        data += done * w->row_bytes;
        rows -= done;
    }
}

/* The same for any number of bytes: a row cut in two is gathered in w->row. */
static void encode_pixels(struct jpeg_writer *w, const uint8_t *in, size_t len)
{
    if (w->row_fill) {
        size_t n = MR_MIN(len, w->row_bytes - w->row_fill);
        memcpy(w->row + w->row_fill, in, n);
        w->row_fill += n;
        if (w->row_fill < w->row_bytes)
            return;
        encode_rows(w, w->row, 1);
        in += n;
        len -= n;
    }
    encode_rows(w, in, len / w->row_bytes);
    w->row_fill = len % w->row_bytes;
    memcpy(w->row, in + (len - w->row_fill), w->row_fill);
}

static int jpeg_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct jpeg_writer *w = (struct jpeg_writer *)base;
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

/* Comment segments of `pad` bytes in all, or, below the 4 bytes of an empty one, fill bytes, which may precede any
 * marker. */
static void write_padding(uint8_t *to, size_t pad)
{
    while (pad) {
        size_t n = MR_MIN(pad, (size_t)COMMENT_MAX);
        if (pad != n && pad - n < 4)
            n -= 4;
        if (n < 4) {
            memset(to, 0xff, n);
        } else {
            to[0] = 0xff;
            to[1] = 0xfe;
            to[2] = (uint8_t)((n - 2) >> 8);
            to[3] = (uint8_t)(n - 2);
            memset(to + 4, ' ', n - 4);
        }
        to += n;
        pad -= n;
    }
}

static int encoder_finish(struct jpeg_writer *w, struct mr_error *err)
{
    w->err = err;
    w->rc = 0;
    if (setjmp(w->leave))
        return w->rc;
    jpeg_finish_compress(&w->codec);
    return 0;
}

static int jpeg_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct jpeg_writer *w = (struct jpeg_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = encoder_finish(w, err);
    if (rc < 0)
        return rc;
    size_t have = w->capacity - w->destination.free_in_buffer;
    if (w->holding && have < w->info.file_bytes) {
        size_t pad = (size_t)w->info.file_bytes - have;
        memmove(w->buffer + HEAD_BYTES + pad, w->buffer + HEAD_BYTES, have - HEAD_BYTES);
        write_padding(w->buffer + HEAD_BYTES, pad);
        have += pad;
    }
    rc = flush_bytes(w, have, err);
    if (rc < 0)
        return rc;
    w->ended = true;
    *ref = (struct mr_sample_ref){.raw = {0, w->flushed}, .label = w->info.label};
    return 0;
}

static int jpeg_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                             struct mr_error *err)
{
    struct jpeg_writer *w = (struct jpeg_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = w->flushed;
    int rc =
        w->ended ? 0 : mr_error_plain(err, MR_E_INTERNAL, "the JPEG file '%s' was closed without an image", w->path);
    if (rc < 0)
        mr_object_abandon(w->object);
    int close_rc = mr_object_close(w->object, rc < 0 ? NULL : err);
    w->object = NULL;
    jpeg_writer_abort(base);
    rc = rc < 0 ? rc : close_rc;
    if (rc >= 0)
        rc = mr_image_layout(&made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- reading ---- */

struct jpeg_reader {
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr manager;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    bool made;
    char text[JMSG_LENGTH_MAX];
    uint8_t *pixels; /* of the image in progress */
    struct mr_part part;
    uint8_t *cmyk; /* four-channel rows, owned by the decoder's scratch */
    int rc;        /* 0, or what failed outside libjpeg */
};

static void decode_error(j_common_ptr codec)
{
    struct jpeg_reader *r = MR_CONTAINER_OF(codec->err, struct jpeg_reader, manager);
    codec->err->format_message(codec, r->text);
    longjmp(r->leave, 1);
}

/* Warnings that leave every pixel intact; all others mean missing or invented data. */
static bool is_harmless(int code)
{
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
}

static void decode_message(j_common_ptr codec, int level)
{
    if (level < 0 && !is_harmless(codec->err->msg_code))
        decode_error(codec);
}

static void decode_progress(j_common_ptr codec)
{
    struct jpeg_decompress_struct *z = (struct jpeg_decompress_struct *)codec;
    struct jpeg_reader *r = MR_CONTAINER_OF(codec->err, struct jpeg_reader, manager);
    if (z->input_scan_number <= MAX_SCANS)
        return;
    snprintf(r->text, sizeof r->text, "more than %d scans", MAX_SCANS);
    longjmp(r->leave, 1);
}

static void reader_free(void *p)
{
    struct jpeg_reader *r = p;
    if (r->made)
        jpeg_destroy_decompress(&r->codec);
    free(r);
}

static struct jpeg_reader *reader_get(struct mr_decoder *d)
{
    void **slot = mr_decoder_private(d, &mr_format_jpeg, reader_free);
    if (!slot || *slot)
        return slot ? *slot : NULL;
    struct jpeg_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->codec.err = jpeg_std_error(&r->manager);
    r->manager.error_exit = decode_error;
    r->manager.emit_message = decode_message;
    r->progress.progress_monitor = decode_progress;
    if (setjmp(r->leave)) {
        free(r);
        return NULL;
    }
    jpeg_create_decompress(&r->codec);
    r->made = true;
    r->codec.progress = &r->progress;
    *slot = r;
    return r;
}

/* Adobe writes CMYK inverted: 255 is no ink. */
static void cmyk_to_rgb(const uint8_t *from, uint8_t *to, size_t pixels, bool inverted)
{
    uint8_t flip = inverted ? 0 : 255;
    for (size_t i = 0; i < pixels; i++, from += 4, to += 3)
        for (unsigned c = 0; c < 3; c++)
            to[c] = (uint8_t)(((unsigned)(from[c] ^ flip) * (unsigned)(from[3] ^ flip) + 127) / 255);
}

static void decode_rows_cmyk(struct jpeg_reader *r)
{
    struct jpeg_decompress_struct *z = &r->codec;
    while (z->output_scanline < z->output_height) {
        uint8_t *to = r->pixels + (size_t)z->output_scanline * z->output_width * 3;
        JSAMPROW row = r->cmyk;
        if (jpeg_read_scanlines(z, &row, 1) == 1)
            cmyk_to_rgb(r->cmyk, to, z->output_width, z->saw_Adobe_marker);
    }
}

/* Rows of the part, which is all of the picture where nothing was chosen. */
static void decode_rows(struct jpeg_reader *r)
{
    struct jpeg_decompress_struct *z = &r->codec;
    size_t row_bytes = (size_t)z->output_width * (size_t)z->output_components;
    JDIMENSION top = (JDIMENSION)r->part.top, end = top + (JDIMENSION)r->part.height;
    while (z->output_scanline < end) {
        JSAMPROW rows[ROWS_PER_CALL];
        JDIMENSION n = MR_MIN((JDIMENSION)ROWS_PER_CALL, end - z->output_scanline);
        for (JDIMENSION i = 0; i < n; i++)
            rows[i] = r->pixels + ((size_t)(z->output_scanline - top) + i) * row_bytes;
        jpeg_read_scanlines(z, rows, n);
    }
}

static bool is_cmyk(const struct jpeg_decompress_struct *z)
{
    return z->jpeg_color_space == JCS_CMYK || z->jpeg_color_space == JCS_YCCK;
}

static uint64_t reduced(uint64_t pixels, unsigned shrink)
{
    return shrink > 1 ? (pixels + shrink - 1) / shrink : pixels;
}

/* The decoder makes a smaller picture of the same coefficients; from here on the part counts its pixels. A pixel more
 * on each side, because the filter around a result's pixel reaches further in a small picture. */
static void reduce(struct jpeg_reader *r)
{
    struct jpeg_decompress_struct *z = &r->codec;
    struct mr_part *p = &r->part;
    uint64_t bottom = MR_MIN(reduced(p->top + p->height, p->shrink) + 1, reduced(z->image_height, p->shrink));
    uint64_t right = MR_MIN(reduced(p->left + p->width, p->shrink) + 1, reduced(z->image_width, p->shrink));
    z->scale_num = 1;
    z->scale_denom = p->shrink;
    p->top = p->top / p->shrink - (p->top >= p->shrink);
    p->left = p->left / p->shrink - (p->left >= p->shrink);
    p->height = bottom - p->top;
    p->width = right - p->left;
}

/* Asks which part is needed and widens it to what can be decoded exactly: chroma is interpolated from its neighbours,
 * so the outermost columns and rows of what is decoded are right only at the picture's own edge. */
static int choose_part(struct jpeg_reader *r, const struct mr_sample_out *out, struct mr_error *err)
{
    struct jpeg_decompress_struct *z = &r->codec;
    struct mr_part *p = &r->part;
    *p = (struct mr_part){.height = z->image_height,
                          .width = z->image_width,
                          .full_height = z->image_height,
                          .full_width = z->image_width};
    if (!out->choose_part || is_cmyk(z))
        return 0;
    int rc = out->choose_part(out->choose_user, p, err);
    if (rc < 0)
        return rc;
    if (p->top + p->height > z->image_height || p->left + p->width > z->image_width || !p->height || !p->width)
        return mr_error_plain(err, MR_E_INTERNAL, "a part outside of the picture was asked for");
    if (p->shrink > 1)
        reduce(r);
    uint64_t right = MR_MIN(p->left + p->width + EDGE, reduced(z->image_width, p->shrink));
    p->left -= MR_MIN(p->left, (uint64_t)EDGE);
    p->width = right - p->left;
    return 0;
}

/* Starts decompression of the part: columns are cut to whole blocks by the library, which says how. */
static void start_part(struct jpeg_reader *r)
{
    struct jpeg_decompress_struct *z = &r->codec;
    struct mr_part *p = &r->part;
    jpeg_start_decompress(z);
    if (p->width < z->output_width) {
        JDIMENSION left = (JDIMENSION)p->left, width = (JDIMENSION)p->width;
        jpeg_crop_scanline(z, &left, &width);
        p->left = left;
        p->width = width;
    }
}

/* Provides memory for the part. Between start and the first row. */
static int reader_prepare(struct mr_decoder *d, struct jpeg_reader *r, size_t len, struct mr_sample_out *out,
                          struct mr_error *err)
{
    struct jpeg_decompress_struct *z = &r->codec;
    unsigned channels = z->out_color_space == JCS_GRAYSCALE ? 1 : 3;
    int rc = mr_image_out_prepare(d, len, r->part.height, r->part.width, channels, MR_U8, out, &r->pixels, err);
    if (rc < 0)
        return rc;
    r->cmyk = is_cmyk(z) ? mr_decoder_scratch(d, 1, (size_t)z->image_width * 4) : NULL;
    if (is_cmyk(z) && !r->cmyk)
        return mr_error_set(err, -ENOMEM, "cannot decode an image %u pixels wide", z->image_width);
    if (out->choose_part)
        out->part = r->part;
    return 0;
}

/* Chooses the output form and the part, checks the size. Between header and decompression. */
static int reader_choose(struct jpeg_reader *r, size_t len, const struct mr_sample_out *out, struct mr_error *err)
{
    struct jpeg_decompress_struct *z = &r->codec;
    bool grey = z->jpeg_color_space == JCS_GRAYSCALE;
    z->out_color_space = grey ? JCS_GRAYSCALE : is_cmyk(z) ? JCS_CMYK : JCS_RGB;
    int rc = mr_image_limit_check(len, z->image_height, z->image_width, grey ? 1 : 3, MR_U8, err);
    return rc < 0 ? rc : choose_part(r, out, err);
}

static void decode_part(struct jpeg_reader *r)
{
    struct jpeg_decompress_struct *z = &r->codec;
    if (r->cmyk) {
        decode_rows_cmyk(r);
    } else {
        if (r->part.top)
            jpeg_skip_scanlines(z, (JDIMENSION)r->part.top);
        decode_rows(r);
    }
    if (z->output_scanline < z->output_height)
        jpeg_abort_decompress(z); /* nobody needs the rows below */
    else
        jpeg_finish_decompress(z);
}

/* Leaves by setjmp with r->text set, or returns r->rc. */
static int decode_image(struct mr_decoder *d, struct jpeg_reader *r, const void *raw, size_t len,
                        struct mr_sample_out *out, struct mr_error *err)
{
    if (setjmp(r->leave)) {
        uint64_t at = r->codec.src ? len - MR_MIN((uint64_t)len, r->codec.src->bytes_in_buffer) : 0;
        jpeg_abort_decompress(&r->codec);
        return mr_error_plain(err, MR_E_FORMAT, "bad JPEG data near byte %llu of %zu: %s", (unsigned long long)at, len,
                              r->text);
    }
    jpeg_mem_src(&r->codec, raw, len);
    jpeg_read_header(&r->codec, TRUE);
    r->rc = reader_choose(r, len, out, err);
    if (r->rc >= 0) {
        start_part(r);
        r->rc = reader_prepare(d, r, len, out, err);
    }
    if (r->rc < 0) {
        jpeg_abort_decompress(&r->codec);
        return r->rc;
    }
    decode_part(r);
    return 0;
}

/* Data sets have PNG pictures with a JPEG's name (ImageNet has one); they are decoded as what they are. */
static bool is_png(const void *raw, size_t len)
{
    static const char signature[] = "\x89PNG\r\n\x1a\n";
    return len > sizeof signature - 1 && memcmp(raw, signature, sizeof signature - 1) == 0;
}

static int jpeg_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                       unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    int rc = mr_image_layout_check(layout, err);
    if (rc < 0)
        return rc;
    if (len == 0)
        return mr_error_plain(err, MR_E_FORMAT, "bad JPEG data: the file is empty");
    if (is_png(raw, len))
        return mr_format_png.decode(d, layout, ref, flags, raw, len, out, err);
    struct jpeg_reader *r = reader_get(d);
    if (!r)
        return mr_error_set(err, -ENOMEM, "cannot create a JPEG decoder");
    rc = decode_image(d, r, raw, len, out, err);
    if (rc < 0)
        return rc;
    out->label = ref->label;
    return 0;
}

static int jpeg_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                     struct mr_error *err)
{
    return mr_image_scan(s, path, "JPEG", "\xff\xd8\xff", 3, fn, user, layout, err);
}

const struct mr_format_ops mr_format_jpeg = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "jpeg",
    .doc =
        "JPEG: one image per file, decoded to height x width x channels of uint8; written with picture-like content.",
    .extensions = ".jpg,.jpeg,.jpe",
    .caps = MR_FMT_LOSSY | MR_FMT_DTYPE,
    .shape = jpeg_shape,
    .synth = mr_image_synth,
    .check = jpeg_check,
    .writer_open = jpeg_writer_open,
    .sample_begin = jpeg_sample_begin,
    .sample_data = jpeg_sample_data,
    .sample_end = jpeg_sample_end,
    .writer_close = jpeg_writer_close,
    .writer_abort = jpeg_writer_abort,
    .side_suffixes = "",
    .scan = jpeg_scan,
    .cost = mr_image_cost,
    .unpack = mr_format_no_unpack,
    .plan = mr_format_plan_single,
    .decode = jpeg_decode,
};
