/* The floors of reading: pread of exactly the sample's bytes, then nothing, or the decoder that cannot be avoided. */
#include "floors.h"
#include "bench.h"

#include <stdio.h> /* before jpeglib.h */

#include <errno.h>
#include <fcntl.h>
#include <jpeglib.h>
#include <libdeflate.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct floor_reader {
    enum floor_decoder decoder;
    uint8_t *raw;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr jpeg_manager;
    struct libdeflate_decompressor *deflate;
    const uint8_t *png_at;
};

struct floor_reader *floor_reader_create(enum floor_decoder decoder, size_t max_bytes)
{
    struct floor_reader *r = calloc(1, sizeof(*r));
    if (!r || !(r->raw = aligned_alloc(4096, (max_bytes + 8191) / 4096 * 4096)))
        bench_die("no memory");
    memset(r->raw, 0, max_bytes);
    r->decoder = decoder;
    if (decoder == FLOOR_JPEG) {
        r->jpeg.err = jpeg_std_error(&r->jpeg_manager);
        jpeg_create_decompress(&r->jpeg);
    }
    r->deflate = libdeflate_alloc_decompressor();
    return r;
}

void floor_reader_free(struct floor_reader *r)
{
    if (r->decoder == FLOOR_JPEG)
        jpeg_destroy_decompress(&r->jpeg);
    libdeflate_free_decompressor(r->deflate);
    free(r->raw);
    free(r);
}

static void decode_jpeg(struct floor_reader *r, size_t len, uint8_t *dst)
{
    struct jpeg_decompress_struct *z = &r->jpeg;
    jpeg_mem_src(z, r->raw, len);
    jpeg_read_header(z, TRUE);
    z->out_color_space = z->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(z);
    size_t row = (size_t)z->output_width * (size_t)z->output_components;
    while (z->output_scanline < z->output_height) {
        JSAMPROW rows[16];
        for (unsigned i = 0; i < 16; i++)
            rows[i] = dst + ((size_t)z->output_scanline + i) * row;
        jpeg_read_scanlines(z, rows, 16);
    }
    jpeg_finish_decompress(z);
}

static void png_bytes(png_structp png, png_bytep to, size_t len)
{
    struct floor_reader *r = png_get_io_ptr(png);
    memcpy(to, r->png_at, len);
    r->png_at += len;
}

static void decode_png(struct floor_reader *r, uint8_t *dst)
{
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    r->png_at = r->raw;
    png_set_read_fn(png, r, png_bytes);
    png_read_info(png, info);
    size_t row = png_get_rowbytes(png, info), rows = png_get_image_height(png, info);
    for (size_t y = 0; y < rows; y++)
        png_read_row(png, dst + y * row, NULL);
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
}

/* Decimal numbers below 256, each followed by one separator: a tight parser of exactly this text, which believes it.
 * The text ends with something that is no digit. */
static void decode_numbers(const uint8_t *p, uint8_t *dst, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        unsigned v = (unsigned)*p++ - '0', d;
        while ((d = (unsigned)*p++ - '0') <= 9)
            v = v * 10 + d;
        dst[n] = (uint8_t)v;
    }
}

/* The fields of a CSV record behind its label. */
static void decode_csv(uint8_t *p, size_t len, uint8_t *dst, size_t count)
{
    p[len] = '\n'; /* the raw buffer has room */
    const uint8_t *comma = memchr(p, ',', len);
    if (!comma)
        bench_die("the floor finds no label in a CSV record");
    decode_numbers(comma + 1, dst, count);
}

/* The array of the record; names before it may hold digits. */
static void decode_json(const uint8_t *p, size_t len, uint8_t *dst, size_t cap)
{
    const uint8_t *array = memchr(p, '[', len);
    if (!array)
        bench_die("the floor finds no array in a JSON record");
    decode_numbers(array + 1, dst, cap);
}

void floor_read_sample(struct floor_reader *r, const struct floor_sample *s, uint8_t *dst)
{
    uint8_t *to = r->decoder == FLOOR_COPY ? dst : r->raw;
    int fd = s->fd >= 0 ? s->fd : open(s->path, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    if (fd < 0)
        bench_die("cannot open '%s': %s", s->path, strerror(errno));
    if (pread(fd, to, s->bytes, (off_t)s->offset) != (ssize_t)s->bytes)
        bench_die("cannot read '%s'", s->path);
    if (s->fd < 0)
        close(fd);
    int bad = 0;
    switch (r->decoder) {
    case FLOOR_COPY: break;
    case FLOOR_JPEG: decode_jpeg(r, s->bytes, dst); break;
    case FLOOR_PNG: decode_png(r, dst); break;
    case FLOOR_DEFLATE:
        bad = libdeflate_deflate_decompress(r->deflate, to, s->bytes, dst, s->decoded_bytes + FLOOR_SLACK, &got);
        break;
    case FLOOR_ZLIB:
        bad = libdeflate_zlib_decompress(r->deflate, to, s->bytes, dst, s->decoded_bytes + FLOOR_SLACK, &got);
        break;
    case FLOOR_NUMBERS: decode_csv(to, s->bytes, dst, s->decoded_bytes); break;
    case FLOOR_JSON: decode_json(to, s->bytes, dst, s->decoded_bytes); break;
    }
    if (bad)
        bench_die("the floor cannot decode '%s' at %llu", s->path, (unsigned long long)s->offset);
}
