/* A heat map as a PNG inside the SVG: 512 x 256 cells as rectangles would be 6 MB, as an image of 64 shades they are at
 * most 130 KB. Shades are one colour with rising opacity, so that the same image is right on light and on dark pages;
 * cell values can be read back from the pixels (value = opacity x data-most), which the script does for its tips. */
#include "base/common.h"
#include "report/svg_chart.h"
#include "report/svg_axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define SHADES 64 /* and one more: unknown */

static const uint8_t hues[][3] = {
    [MR_HEAT_BLUE] = {31, 111, 139}, [MR_HEAT_GREEN] = {106, 143, 47}, [MR_HEAT_RED] = {181, 54, 42}};

struct png {
    uint8_t *bytes;
    size_t len;
};

static void put_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Appends a chunk; there is room. */
static void put_chunk(struct png *p, const char type[4], const uint8_t *data, size_t n)
{
    uint8_t *at = p->bytes + p->len;
    put_be32(at, (uint32_t)n);
    memcpy(at + 4, type, 4);
    if (n)
        memcpy(at + 8, data, n);
    put_be32(at + 8 + n, (uint32_t)crc32(crc32(0, NULL, 0), at + 4, (uInt)(n + 4)));
    p->len += n + 12;
}

static uint8_t shade(double v)
{
    if (!isfinite(v))
        return SHADES;
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    long s = lround(v * (SHADES - 1));
    return (uint8_t)(s == 0 && v > 0 ? 1 : s); /* little is not nothing */
}

/* Rows of palette indices, each behind its filter byte 0. */
static uint8_t *pixels(size_t rows, size_t columns, const double *value)
{
    uint8_t *raw = malloc(rows * (columns + 1));
    for (size_t r = 0; raw && r < rows; r++) {
        raw[r * (columns + 1)] = 0;
        for (size_t k = 0; k < columns; k++)
            raw[r * (columns + 1) + 1 + k] = shade(value[r * columns + k]);
    }
    return raw;
}

static void put_palette(struct png *p, enum mr_heat_hue hue)
{
    uint8_t colour[3 * (SHADES + 1)], alpha[SHADES + 1];
    for (unsigned i = 0; i < SHADES; i++) {
        memcpy(colour + (size_t)3 * i, hues[hue], 3);
        alpha[i] = (uint8_t)lround(255.0 * i / (SHADES - 1));
    }
    memset(colour + (size_t)3 * SHADES, 128, 3);
    alpha[SHADES] = 60;
    put_chunk(p, "PLTE", colour, sizeof colour);
    put_chunk(p, "tRNS", alpha, sizeof alpha);
}

static struct png encode(size_t rows, size_t columns, const double *value, enum mr_heat_hue hue)
{
    uint8_t head[13] = {[8] = 8, [9] = 3}, *raw = pixels(rows, columns, value);
    uLong room = compressBound((uLong)(rows * (columns + 1)));
    uint8_t *packed = malloc(room);
    struct png p = {.bytes = malloc(room + 1024)};
    bool ok = raw && packed && p.bytes && compress2(packed, &room, raw, (uLong)(rows * (columns + 1)), 9) == Z_OK;
    if (ok) {
        memcpy(p.bytes, "\x89PNG\r\n\x1a\n", 8);
        p.len = 8;
        put_be32(head, (uint32_t)columns);
        put_be32(head + 4, (uint32_t)rows);
        put_chunk(&p, "IHDR", head, sizeof head);
        put_palette(&p, hue);
        put_chunk(&p, "IDAT", packed, room);
        put_chunk(&p, "IEND", NULL, 0);
    } else {
        free(p.bytes);
        p = (struct png){0};
    }
    free(raw);
    free(packed);
    return p;
}

void mr_chart_heat(struct mr_chart *c, size_t rows, size_t columns, const double *value, enum mr_heat_hue hue,
                   double most, enum mr_unit unit, size_t ranks_per_row, size_t ranks)
{
    struct png p = encode(rows, columns, value, hue);
    if (!p.bytes) {
        c->out->failed = true;
        return;
    }
    mr_strbuf_printf(
        c->out,
        "<image class=\"heat\" width=\"%.0f\" height=\"%.0f\" preserveAspectRatio=\"none\" "
        "data-rows=\"%zu\" data-columns=\"%zu\" data-most=\"%.9g\" data-u=\"%d\" data-per=\"%zu\" data-ranks=\"%zu\" "
        "href=\"data:image/png;base64,",
        MR_PLOT_WIDTH, MR_PLOT_HEIGHT, rows, columns, most, (int)unit, ranks_per_row, ranks);
    mr_html_base64(c->out, p.bytes, p.len);
    mr_strbuf_puts(c->out, "\"/>");
    free(p.bytes);
}
