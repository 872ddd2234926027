/* Pictures for JPEG and PNG: see image_synth.h.
 *
 * The texture is the sum of two constants, made once per process: a periodic tile with the coarse octaves, which each
 * cell of CELL x CELL_ROWS pixels takes at an offset drawn from (seed, sample, cell), and a strip of white noise, which
 * each row of a cell takes at an offset of its own. Either alone would repeat within the window of deflate; the sum
 * does not. Large-scale colours stay within [BASE_LOW, BASE_HIGH], the texture within +-(TILE_MAX + NOISE_MAX), so
 * their sum needs no saturation: three loads, two additions and one store per byte, which makes pixels cost a few per
 * cent of their encoding. Work goes in bands of rows: where the shapes begin and end is computed once per row, the
 * horizontal gradient once per cell and band.
 *
 * What must stay true: the result depends on nothing but the arguments; changing anything here changes
 * MR_IMAGE_VERSION, because data sets on disk are verified against it. */
#include "format/image_synth.h"
#include "base/content.h"
#include "base/rng.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define CELL 256u      /* pixels across, a power of two */
#define CELL_ROWS 128u /* a power of two */
#define CELL_BYTES_MAX (CELL * 3u)
#define BAND 128u
#define SHAPES 5u
#define NOISE (1u << 15) /* pixels of white noise */
#define NOISE_MAX 40
#define TILE_MAX 46
#define BASE_LOW (NOISE_MAX + TILE_MAX)
#define BASE_HIGH (255 - BASE_LOW)
#define FALL 14 /* largest change of brightness from top to bottom, either way */

/* Rows are stored twice side by side, so that a cell can start anywhere without wrapping. */
static int8_t tile_rgb[CELL_ROWS][2 * CELL * 3];
static int8_t tile_grey[CELL_ROWS][2 * CELL];
/* The same value for all channels of a pixel; the first CELL pixels are repeated at the end. */
static int8_t noise_rgb[(NOISE + CELL) * 3];
static int8_t noise_grey[NOISE + CELL];
static pthread_once_t tile_once = PTHREAD_ONCE_INIT;

static int lattice(unsigned stream, unsigned scale, unsigned x, unsigned y)
{
    x &= CELL / scale - 1;
    y &= CELL_ROWS / scale - 1;
    return (int)(mr_rng_at(0x7e87u, MR_RNG_CONTENT, ((uint64_t)stream << 32) | (y << 16) | x) & 0xff) - 128;
}

/* Bilinear value noise on a periodic lattice of spacing `scale`; -128..127. */
static int value_noise(unsigned stream, unsigned scale, unsigned x, unsigned y)
{
    int s = (int)scale, fx = (int)(x % scale), fy = (int)(y % scale);
    unsigned lx = x / scale, ly = y / scale;
    int top = lattice(stream, scale, lx, ly) * (s - fx) + lattice(stream, scale, lx + 1, ly) * fx;
    int bottom = lattice(stream, scale, lx, ly + 1) * (s - fx) + lattice(stream, scale, lx + 1, ly + 1) * fx;
    return (top * (s - fy) + bottom * fy) / (s * s);
}

static int8_t tile_value(int v)
{
    return (int8_t)MR_MAX(-TILE_MAX, MR_MIN(TILE_MAX, v / 256));
}

static void tile_make(void)
{
    for (unsigned y = 0; y < CELL_ROWS; y++)
        for (unsigned x = 0; x < CELL; x++) {
            int luma = 62 * value_noise(2, 2, x, y) + 40 * value_noise(3, 4, x, y) + 40 * value_noise(4, 8, x, y) +
                       40 * value_noise(5, 16, x, y);
            int red = luma + 16 * value_noise(6, 4, x, y), blue = luma + 16 * value_noise(7, 4, x, y);
            for (unsigned copy = 0; copy < 2; copy++) {
                int8_t *px = &tile_rgb[y][(size_t)(copy * CELL + x) * 3];
                px[0] = tile_value(red);
                px[1] = tile_grey[y][copy * CELL + x] = tile_value(luma);
                px[2] = tile_value(blue);
            }
        }
    for (unsigned i = 0; i < NOISE + CELL; i++) {
        uint64_t bits = mr_rng_at(0x7e88u, MR_RNG_CONTENT, i % NOISE);
        noise_grey[i] = (int8_t)((int)mr_rng_below(bits, 2 * NOISE_MAX + 1) - NOISE_MAX);
        memset(&noise_rgb[(size_t)i * 3], noise_grey[i], 3);
    }
}

/* An ellipse of one colour, or (ry = 0) everything right of a slanted line. Later ones cover earlier ones. */
struct shape {
    double cx, cy, rx, ry;
};

struct picture {
    uint64_t key, height, width;
    unsigned channels;
    int start[3], slope[3], fall; /* gradient: colour at the left, change to the right, change downwards */
    struct shape shape[SHAPES];
    uint8_t pattern[SHAPES][CELL_BYTES_MAX]; /* a shape's colour, repeated */
};

struct span {
    uint32_t from, to; /* columns; empty if from >= to */
};

/* What all cells of a row share. */
struct row {
    struct span span[SHAPES];
    uint8_t shift; /* brightness, modulo 256 */
};

static int draw(uint64_t key, unsigned counter, int lo, int hi)
{
    return lo + (int)mr_rng_below(mr_rng_at(key, MR_RNG_CONTENT, counter), (uint64_t)(hi - lo) + 1);
}

static int draw_colour(uint64_t key, unsigned counter)
{
    return draw(key, counter, BASE_LOW + FALL, BASE_HIGH - FALL);
}

static void picture_init(struct picture *p, uint64_t seed, uint64_t sample, const struct mr_dims *dims)
{
    p->key = mr_rng_at(seed, MR_RNG_CONTENT, sample);
    p->height = dims->dim[0];
    p->width = dims->dim[1];
    p->channels = mr_image_dims_channels(dims);
    for (unsigned c = 0; c < 3; c++) {
        p->start[c] = draw_colour(p->key, c);
        p->slope[c] = draw_colour(p->key, 3 + c) - p->start[c];
    }
    p->fall = draw(p->key, 6, -FALL, FALL);
    for (unsigned s = 0; s < SHAPES; s++) {
        struct shape *e = &p->shape[s];
        unsigned at = 16 + 16 * s;
        e->cx = (double)p->width * draw(p->key, at, 0, 1000) / 1000;
        e->cy = (double)p->height * draw(p->key, at + 1, 0, 1000) / 1000;
        e->rx = (double)p->width * draw(p->key, at + 2, 60, 300) / 1000;
        e->ry = s ? (double)p->height * draw(p->key, at + 3, 60, 300) / 1000 : 0;
        for (unsigned i = 0; i < p->channels; i++)
            p->pattern[s][i] = (uint8_t)draw_colour(p->key, at + 4 + i);
        for (unsigned n = p->channels; n < CELL * p->channels; n *= 2) /* CELL is a power of two */
            memcpy(p->pattern[s] + n, p->pattern[s], n);
    }
}

static struct span shape_span(const struct picture *p, const struct shape *e, uint64_t y)
{
    double left, right = (double)p->width, dy = (double)y - e->cy;
    if (e->ry == 0) {
        left = e->cx + (e->rx - 0.18 * (double)p->width) * (dy / (double)p->height) * 4;
    } else {
        double t = dy / e->ry, u = 1 - t * t;
        if (u <= 0)
            return (struct span){0, 0};
        double half = e->rx * sqrt(u);
        left = e->cx - half;
        right = MR_MIN(right, e->cx + half);
    }
    if (left >= right || right <= 0)
        return (struct span){0, 0};
    return (struct span){left > 0 ? (uint32_t)left : 0, (uint32_t)right};
}

/* The hot loop; sums stay within a byte by construction. */
MR_SIMD_CLONES static void add_texture(uint8_t *restrict dst, const uint8_t *restrict base, uint8_t shift,
                                       const int8_t *restrict tile, const int8_t *restrict noise, size_t n)
{
    typedef uint8_t v __attribute__((vector_size(32)));
    size_t i = 0;
    for (; i + sizeof(v) <= n; i += sizeof(v)) {
        v b, t, r;
        memcpy(&b, base + i, sizeof b);
        memcpy(&t, tile + i, sizeof t);
        memcpy(&r, noise + i, sizeof r);
        b += t + r + shift;
        memcpy(dst + i, &b, sizeof b);
    }
    for (; i < n; i++)
        dst[i] = (uint8_t)(base[i] + shift + tile[i] + noise[i]);
}

/* One cell's part of one row: `column` is its gradient; bytes [from, to) of it go to dst. */
struct cell {
    uint64_t x0;
    unsigned width;
    uint8_t column[CELL_BYTES_MAX];
};

static void fill_row(const struct picture *p, const struct cell *cell, const struct row *row, uint64_t y, size_t from,
                     size_t to, uint8_t *dst)
{
    unsigned c = p->channels;
    uint8_t shaped[CELL_BYTES_MAX];
    const uint8_t *base = cell->column;
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t a = MR_MAX(row->span[s].from, cell->x0), b = MR_MIN(row->span[s].to, cell->x0 + cell->width);
        if (a >= b)
            continue;
        if (a == cell->x0 && b == cell->x0 + cell->width) {
            base = p->pattern[s];
            continue;
        }
        if (base != shaped)
            memcpy(shaped, base, (size_t)cell->width * c);
        base = shaped;
        memcpy(shaped + (a - cell->x0) * c, p->pattern[s], (b - a) * c);
    }
    uint64_t at = mr_mix64(p->key ^ ((y / CELL_ROWS) << 32 | cell->x0 / CELL));
    unsigned tx = (unsigned)at & (CELL - 1), ty = (unsigned)((at >> 16) + y) & (CELL_ROWS - 1);
    size_t strip = mr_mix64(at ^ y) & (NOISE - 1);
    const int8_t *tile = c == 3 ? &tile_rgb[ty][(size_t)tx * 3] : &tile_grey[ty][tx];
    const int8_t *noise = c == 3 ? &noise_rgb[strip * 3] : &noise_grey[strip];
    add_texture(dst, base + from, row->shift, tile + from, noise + from, to - from);
}

static void cell_init(const struct picture *p, uint64_t x0, struct cell *cell)
{
    cell->x0 = x0;
    cell->width = (unsigned)MR_MIN((uint64_t)CELL, p->width - x0);
    for (unsigned c = 0; c < p->channels; c++) {
        int64_t step = p->slope[c] * (INT64_C(1) << 24) / (int64_t)p->width;
        int64_t v = p->start[c] * (INT64_C(1) << 24) + (int64_t)x0 * step;
        for (unsigned x = 0; x < cell->width; x++, v += step)
            cell->column[x * p->channels + c] = (uint8_t)(v >> 24);
    }
}

/* Rows [y0, y1) of the picture, as far as they lie in [offset, end). */
static void fill_band(const struct picture *p, uint64_t y0, uint64_t y1, uint64_t offset, uint64_t end, uint8_t *dst)
{
    uint64_t row_bytes = p->width * p->channels;
    struct row rows[BAND];
    for (uint64_t y = y0; y < y1; y++) {
        rows[y - y0].shift = (uint8_t)((int64_t)p->fall * (int64_t)y / (int64_t)p->height);
        for (unsigned s = 0; s < SHAPES; s++)
            rows[y - y0].span[s] = shape_span(p, &p->shape[s], y);
    }
    for (uint64_t x0 = 0; x0 < p->width; x0 += CELL) {
        struct cell cell;
        cell_init(p, x0, &cell);
        for (uint64_t y = y0; y < y1; y++) {
            uint64_t begin = y * row_bytes + x0 * p->channels, stop = begin + (uint64_t)cell.width * p->channels;
            uint64_t from = MR_MAX(begin, offset), to = MR_MIN(stop, end);
            if (from < to)
                fill_row(p, &cell, &rows[y - y0], y, (size_t)(from - begin), (size_t)(to - begin),
                         dst + (from - offset));
        }
    }
}

void mr_image_fill(uint64_t seed, uint64_t sample, const struct mr_dims *dims, uint64_t offset, void *dst, size_t len)
{
    struct picture p;
    pthread_once(&tile_once, tile_make);
    if (!len)
        return;
    picture_init(&p, seed, sample, dims);
    uint64_t row_bytes = p.width * p.channels, end = offset + len;
    uint64_t rows_end = (end - 1) / row_bytes + 1;
    for (uint64_t y = offset / row_bytes; y < rows_end; y += BAND)
        fill_band(&p, y, MR_MIN(y + BAND, rows_end), offset, end, dst);
}

void mr_image_synth(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                    uint64_t offset, void *dst, size_t len)
{
    const struct mr_content *c = content;
    (void)spec;
    mr_image_fill(c->seed, info->id, &info->dims, offset, dst, len);
}

/* ---- comparing ---- */

int mr_image_compare(uint64_t seed, const struct mr_sample_info *info, const struct mr_sample_out *have,
                     struct mr_image_difference *out, struct mr_error *err)
{
    uint8_t want[32768] = {0};
    const uint8_t *data = have->data;
    unsigned channels = mr_image_dims_channels(&info->dims);
    if (have->dtype != MR_U8 || have->dims.n != 3 || have->bytes != info->bytes || have->dims.dim[2] != channels ||
        have->dims.dim[0] != info->dims.dim[0] || have->dims.dim[1] != info->dims.dim[1])
        return mr_error_plain(
            err, MR_E_CORRUPT,
            "sample %llu has the wrong shape (want %llu x %llu x %u of u1, have %llu x %llu x %llu of %s)",
            (unsigned long long)info->id, (unsigned long long)info->dims.dim[0], (unsigned long long)info->dims.dim[1],
            channels, (unsigned long long)have->dims.dim[0], (unsigned long long)have->dims.dim[1],
            (unsigned long long)have->dims.dim[2], mr_dtype_numpy(have->dtype));
    *out = (struct mr_image_difference){.first = UINT64_MAX};
    for (uint64_t at = 0; at < info->bytes; at += sizeof want) {
        size_t n = (size_t)MR_MIN((uint64_t)sizeof want, info->bytes - at);
        uint64_t sum = 0; /* at most 32768 * 255^2: fits */
        mr_image_fill(seed, info->id, &info->dims, at, want, n);
        if (memcmp(want, data + at, n) == 0)
            continue;
        for (size_t i = 0; i < n; i++) {
            int d = (int)want[i] - data[at + i];
            if (d && out->first == UINT64_MAX)
                out->first = at + i;
            sum += (uint64_t)(d * d);
        }
        out->squares += (double)sum;
    }
    return 0;
}

/* ---- choosing dimensions ---- */

#define MIN_SIDE 8u

unsigned mr_image_dims_channels(const struct mr_dims *dims)
{
    return dims->n == 2 ? 1 : (unsigned)dims->dim[2];
}

int mr_image_dims_check(const struct mr_sample_info *info, struct mr_error *err)
{
    const struct mr_dims *d = &info->dims;
    if (info->dtype != MR_U8)
        return mr_error_plain(err, MR_E_CONFIG, "image samples are of type u1 (uint8), not %s",
                              mr_dtype_numpy(info->dtype));
    if (d->n != 2 && (d->n != 3 || (d->dim[2] != 1 && d->dim[2] != 3))) {
        mr_error_plain(err, MR_E_CONFIG,
                       "an image has height, width and 1 or 3 channels (have %u dimensions, %llu channels)", d->n,
                       d->n == 3 ? (unsigned long long)d->dim[2] : 0);
        return mr_error_hint(err, "give dimensions like 224x224x3, or only a size"), MR_E_CONFIG;
    }
    if (!d->dim[0] || !d->dim[1] || d->dim[0] > MR_IMAGE_MAX_SIDE || d->dim[1] > MR_IMAGE_MAX_SIDE)
        return mr_error_plain(err, MR_E_CONFIG, "an image of %llu x %llu pixels is not possible (each side 1 to %u)",
                              (unsigned long long)d->dim[0], (unsigned long long)d->dim[1], MR_IMAGE_MAX_SIDE);
    return 0;
}

unsigned mr_image_channels(const struct mr_writer_spec *spec)
{
    return spec->dims.n == 2 || (spec->dims.n == 3 && spec->dims.dim[2] == 1) ? 1 : 3;
}

/* Pixels' worth of bytes. Blocks that stick out over the border repeat its pixels and cost about a third; borders and
 * shapes add something that grows with the side. */
static double effective_pixels(const struct mr_image_model *m, double h, double w)
{
    double block = m->block, area = h * w;
    double padded = ceil(h / block) * block * ceil(w / block) * block;
    return area + 0.3 * (padded - area) + m->edge * sqrt(area);
}

/* Aspect 4:3, sides chosen so that effective_pixels comes to `pixels`. */
static void choose_sides(const struct mr_image_model *m, double pixels, uint64_t *height, uint64_t *width)
{
    double area = pixels, h = MIN_SIDE, w = MIN_SIDE;
    for (int round = 0; round < 6; round++) {
        h = MR_MAX((double)MIN_SIDE, round < 3 ? nearbyint(sqrt(area * 0.75)) : h);
        w = MR_MAX((double)MIN_SIDE, floor(area / h));
        double have = effective_pixels(m, h, w);
        area *= MR_MIN(4.0, MR_MAX(0.25, pixels / have));
    }
    *height = (uint64_t)h;
    *width = (uint64_t)w;
}

static int fixed_dims(const struct mr_writer_spec *spec, struct mr_sample_info *info, struct mr_error *err)
{
    struct mr_sample_info fixed = *info;
    fixed.dtype = MR_U8;
    fixed.dims = spec->dims;
    fixed.file_bytes = 0;
    int rc = mr_image_dims_check(&fixed, err);
    if (rc < 0)
        return rc;
    fixed.bytes = fixed.dims.dim[0] * fixed.dims.dim[1] * mr_image_dims_channels(&fixed.dims);
    *info = fixed;
    return 0;
}

int mr_image_shape(const struct mr_writer_spec *spec, const struct mr_image_model *m, uint64_t want_bytes,
                   struct mr_sample_info *info, struct mr_error *err)
{
    if (spec->fixed_size && spec->dims.n >= 2)
        return fixed_dims(spec, info, err);
    double most = (double)MR_IMAGE_MAX_SIDE * MR_IMAGE_MAX_SIDE * 0.75 * m->per_pixel;
    if ((double)want_bytes > most)
        return mr_error_plain(
            err, MR_E_LIMIT,
            "an image file of %llu bytes would need more than %u pixels on a side (largest: %.0f bytes)",
            (unsigned long long)want_bytes, MR_IMAGE_MAX_SIDE, most);
    bool pads = want_bytes <= m->pad_limit_bytes;
    double scan = MR_MAX((double)want_bytes - m->fixed_bytes, 1.0), pixels = scan / m->per_pixel;
    double margin = pads ? m->spread + m->spread_edge / sqrt(pixels) : 0;
    uint64_t height, width;
    choose_sides(m, pixels * (1 - MR_MIN(margin, 0.5)), &height, &width);
    info->dtype = MR_U8;
    info->dims = (struct mr_dims){.n = 3, .dim = {height, width, m->channels}};
    info->bytes = height * width * m->channels;
    info->file_bytes = pads ? want_bytes : 0;
    return 0;
}
