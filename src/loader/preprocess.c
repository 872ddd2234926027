/* Preprocessing of pictures: see <millrace/preprocess.h>. One row of the result at a time: the source rows it is made
 * of are blended into one row of floats, the row's pixels are blended from that, and each value is normalised and put
 * where it belongs. A picture that is not resized is taken over pixel by pixel, with a table instead of arithmetic.
 *
 * Flipping is mirroring the horizontal weights, so it costs nothing. */
#include <millrace/preprocess.h>

#include "base/common.h"
#include "base/rng.h"
#include "loader/preprocess_kernels.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAWS 64u /* per sample and epoch, at most */

struct axis {
    int32_t *start, *count;
    float *weight;
    size_t pixels, width; /* room */
};

struct mr_preprocess {
    struct mr_preprocess_params p;
    const struct mr_preprocess_kernels *k;
    struct axis x, y;
    float *row;
    size_t row_cap;
    float scale[MR_PREPROCESS_CHANNELS], bias[MR_PREPROCESS_CHANNELS];
    float table[256 * MR_PREPROCESS_CHANNELS];
};

/* A picture, and a part of one. */
struct picture {
    const uint8_t *pixels;
    uint32_t height, width, channels;
};
struct rect {
    uint32_t top, left, height, width;
};

void mr_preprocess_params_init(struct mr_preprocess_params *p)
{
    *p = (struct mr_preprocess_params){
        .scale_min = 0.08, .scale_max = 1, .ratio_min = 3.0 / 4, .ratio_max = 4.0 / 3, .stdev = {1, 1, 1, 1}};
}

static int check(const struct mr_preprocess_params *p, struct mr_error *err)
{
    bool sized = p->crop == MR_CROP_CENTER || p->crop == MR_CROP_RANDOM;
    if (sized && (!p->crop_height || !p->crop_width))
        return mr_error_plain(err, MR_E_USAGE, "a crop of %u x %u pixels is empty", p->crop_height, p->crop_width);
    if (!p->height != !p->width)
        return mr_error_plain(err, MR_E_USAGE, "resizing to %u x %u pixels needs both sides", p->height, p->width);
    if (p->crop == MR_CROP_RANDOM_RESIZED && !p->height)
        return mr_error_plain(err, MR_E_USAGE, "a crop of random size needs the size to resize it to");
    if (MR_MAX(MR_MAX(p->crop_height, p->crop_width), MR_MAX(p->height, p->width)) > MR_PREPROCESS_SIDE_MAX)
        return mr_error_plain(err, MR_E_USAGE, "a side of a picture has at most %u pixels", MR_PREPROCESS_SIDE_MAX);
    if (!(p->scale_min > 0 && p->scale_min <= p->scale_max && p->scale_max <= 1))
        return mr_error_plain(err, MR_E_USAGE, "a crop's share of the area lies between 0 and 1, not from %g to %g",
                              p->scale_min, p->scale_max);
    if (!(p->ratio_min > 0 && p->ratio_min <= p->ratio_max && p->ratio_max <= 1e6))
        return mr_error_plain(err, MR_E_USAGE, "aspect ratios from %g to %g make no sense", p->ratio_min, p->ratio_max);
    if (!(p->flip >= 0 && p->flip <= 1))
        return mr_error_plain(err, MR_E_USAGE, "a probability lies between 0 and 1, not at %g", p->flip);
    for (unsigned c = 0; c < MR_PREPROCESS_CHANNELS; c++)
        if (!isfinite(p->mean[c]) || !isfinite(p->stdev[c]) || !(p->stdev[c] > 0))
            return mr_error_plain(err, MR_E_USAGE,
                                  "channel %u cannot be normalised by mean %g and standard deviation %g", c,
                                  (double)p->mean[c], (double)p->stdev[c]);
    return 0;
}

int mr_preprocess_create(const struct mr_preprocess_params *p, struct mr_preprocess **out, struct mr_error *err)
{
    int rc = check(p, err);
    if (rc)
        return rc;
    struct mr_preprocess *x = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "cannot make a preprocessor");
    x->p = *p;
    x->k = mr_preprocess_kernels();
    for (unsigned c = 0; c < MR_PREPROCESS_CHANNELS; c++) {
        x->scale[c] = (float)(1 / (255.0 * (double)p->stdev[c]));
        x->bias[c] = (float)(-(double)p->mean[c] / (double)p->stdev[c]);
        for (unsigned v = 0; v < 256; v++)
            x->table[256 * c + v] = (float)v * x->scale[c] + x->bias[c];
    }
    *out = x;
    return 0;
}

static void free_axis(struct axis *a)
{
    free(a->start);
    free(a->count);
    free(a->weight);
}

void mr_preprocess_free(struct mr_preprocess *x)
{
    if (!x)
        return;
    free_axis(&x->x);
    free_axis(&x->y);
    free(x->row);
    free(x);
}

static void result_size(const struct mr_preprocess_params *p, uint64_t *height, uint64_t *width)
{
    if (p->height) {
        *height = p->height;
        *width = p->width;
    } else if (p->crop != MR_CROP_NONE) {
        *height = p->crop_height;
        *width = p->crop_width;
    }
}

size_t mr_preprocess_bytes(const struct mr_preprocess_params *p, uint64_t height, uint64_t width, uint64_t channels)
{
    result_size(p, &height, &width);
    return (size_t)(height * width * channels) * (p->to_float ? sizeof(float) : 1);
}

void mr_preprocess_shape(const struct mr_preprocess_params *p, struct mr_sample *s)
{
    uint64_t height = s->dims[0], width = s->dims[1], channels = s->dims[2];
    bool first = p->planar && s->n_dims == 3;
    result_size(p, &height, &width);
    s->dims[0] = first ? channels : height;
    s->dims[1] = first ? height : width;
    s->dims[2] = first ? width : channels;
    memcpy(s->dtype, p->to_float ? "f4" : "u1", 3);
}

/* ---- what is cut out ---- */

static double draw(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, unsigned n)
{
    return mr_rng_unit(mr_rng_at(x->p.seed ^ mr_mix64(epoch + 1), MR_RNG_AUGMENT, id * DRAWS + n));
}

static struct rect centered(const struct picture *in, uint32_t height, uint32_t width)
{
    return (struct rect){
        .top = (in->height - height) / 2, .left = (in->width - width) / 2, .height = height, .width = width};
}

/* The largest part from the middle whose aspect ratio is allowed. */
static struct rect widest(const struct mr_preprocess_params *p, const struct picture *in)
{
    double ratio = (double)in->width / in->height;
    uint32_t height = in->height, width = in->width;
    if (ratio < p->ratio_min)
        height = (uint32_t)MR_MIN((double)in->height, MR_MAX(1.0, round(in->width / p->ratio_min)));
    else if (ratio > p->ratio_max)
        width = (uint32_t)MR_MIN((double)in->width, MR_MAX(1.0, round(in->height * p->ratio_max)));
    return centered(in, height, width);
}

static struct rect random_resized(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct picture *in)
{
    const struct mr_preprocess_params *p = &x->p;
    double area = (double)in->height * in->width, low = log(p->ratio_min), high = log(p->ratio_max);
    for (unsigned i = 0; i < 10; i++) {
        double part = area * (p->scale_min + (p->scale_max - p->scale_min) * draw(x, epoch, id, 4 * i + 4));
        double ratio = exp(low + (high - low) * draw(x, epoch, id, 4 * i + 5));
        double width = round(sqrt(part * ratio)), height = round(sqrt(part / ratio));
        if (width < 1 || height < 1 || width > in->width || height > in->height)
            continue;
        return (struct rect){.top = (uint32_t)(draw(x, epoch, id, 4 * i + 6) * (in->height - height + 1)),
                             .left = (uint32_t)(draw(x, epoch, id, 4 * i + 7) * (in->width - width + 1)),
                             .height = (uint32_t)height,
                             .width = (uint32_t)width};
    }
    return widest(p, in);
}

static int cut(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct picture *in, struct rect *out,
               struct mr_error *err)
{
    const struct mr_preprocess_params *p = &x->p;
    if (p->crop == MR_CROP_NONE) {
        *out = (struct rect){.height = in->height, .width = in->width};
        return 0;
    }
    if (p->crop == MR_CROP_RANDOM_RESIZED) {
        *out = random_resized(x, epoch, id, in);
        return 0;
    }
    if (p->crop_height > in->height || p->crop_width > in->width) {
        mr_error_plain(err, MR_E_USAGE, "sample %llu is a picture of %u x %u pixels, the crop has %u x %u",
                       (unsigned long long)id, in->height, in->width, p->crop_height, p->crop_width);
        return mr_error_hint(err, "choose a smaller crop, or one of random size, and resize it"), MR_E_USAGE;
    }
    *out = centered(in, p->crop_height, p->crop_width);
    if (p->crop == MR_CROP_RANDOM) {
        out->top = (uint32_t)(draw(x, epoch, id, 2) * (in->height - p->crop_height + 1.0));
        out->left = (uint32_t)(draw(x, epoch, id, 3) * (in->width - p->crop_width + 1.0));
    }
    return 0;
}

/* ---- weights ---- */

static int grow_axis(struct axis *a, size_t pixels, size_t width)
{
    if (pixels <= a->pixels && width <= a->width)
        return 0;
    pixels = MR_MAX(pixels, a->pixels);
    width = MR_MAX(width, a->width);
    free_axis(a);
    *a = (struct axis){.start = calloc(pixels, sizeof(int32_t)),
                       .count = calloc(pixels, sizeof(int32_t)),
                       .weight = calloc(pixels * width, sizeof(float)),
                       .pixels = pixels,
                       .width = width};
    if (a->start && a->count && a->weight)
        return 0;
    free_axis(a);
    *a = (struct axis){0};
    return -ENOMEM;
}

/* The triangle around each pixel's middle, as wide as the reduction but never narrower than the distance of two pixels.
 */
static int weigh(struct axis *a, uint32_t from, uint32_t to, bool mirrored)
{
    double scale = (double)from / to, support = MR_MAX(scale, 1.0);
    int rc = grow_axis(a, to, (size_t)(2 * ceil(support)) + 1);
    for (uint32_t i = 0; rc == 0 && i < to; i++) {
        double middle = (i + 0.5) * scale, sum = 0;
        int64_t first = MR_MAX((int64_t)(middle - support + 0.5), 0),
                last = MR_MIN((int64_t)(middle + support + 0.5), (int64_t)from);
        uint32_t at = mirrored ? to - 1 - i : i;
        float *w = a->weight + at * a->width;
        for (int64_t k = first; k < last; k++)
            sum += MR_MAX(0.0, 1 - fabs(((double)k + 0.5 - middle) / support));
        for (int64_t k = first; k < last; k++)
            w[k - first] = (float)(MR_MAX(0.0, 1 - fabs(((double)k + 0.5 - middle) / support)) / sum);
        a->start[at] = (int32_t)first;
        a->count[at] = (int32_t)(last - first);
    }
    return rc;
}

/* ---- making the result ---- */

static void place_row(const struct mr_preprocess *x, void *dst, uint64_t height, uint64_t width, uint32_t channels,
                      uint64_t row, struct mr_row_out *out)
{
    size_t at = (size_t)(row * width) * (x->p.planar ? 1 : channels);
    *out = (struct mr_row_out){.at = x->p.to_float ? (void *)((float *)dst + at) : (void *)((uint8_t *)dst + at),
                               .pixel_step = x->p.planar ? 1 : channels,
                               .channel_step = x->p.planar ? (size_t)(height * width) : 1,
                               .scale = x->p.to_float ? x->scale : NULL,
                               .bias = x->bias};
}

static void take_over(const struct mr_preprocess *x, const struct picture *in, const struct rect *r, bool flip,
                      void *dst)
{
    for (uint32_t y = 0; y < r->height; y++) {
        const uint8_t *src = in->pixels + ((size_t)(r->top + y) * in->width + r->left) * in->channels;
        struct mr_row_out out;
        place_row(x, dst, r->height, r->width, in->channels, y, &out);
        if (!flip && !x->p.to_float && (!x->p.planar || in->channels == 1))
            memcpy(out.at, src, (size_t)r->width * in->channels);
        else
            x->k->take_pixels(flip ? src + (size_t)(r->width - 1) * in->channels : src, in->channels, flip ? -1 : 1,
                              r->width, x->p.to_float ? x->table : NULL, &out);
    }
}

static int resize(struct mr_preprocess *x, const struct picture *in, const struct rect *r, bool flip, uint32_t height,
                  uint32_t width, void *dst)
{
    size_t values = (size_t)r->width * in->channels, need = values + 4; /* the last pixel is read four channels wide */
    if (weigh(&x->x, r->width, width, flip) < 0 || weigh(&x->y, r->height, height, false) < 0)
        return -ENOMEM;
    if (need > x->row_cap) {
        free(x->row);
        x->row_cap = 0;
        x->row = calloc(need, sizeof(float));
        if (!x->row)
            return -ENOMEM;
        x->row_cap = need;
    }
    memset(x->row + values, 0, 4 * sizeof(float));
    const struct mr_taps taps = {.start = x->x.start, .count = x->x.count, .weight = x->x.weight, .width = x->x.width};
    const size_t stride = (size_t)in->width * in->channels;
    for (uint32_t y = 0; y < height; y++) {
        struct mr_row_out out;
        const uint8_t *src =
            in->pixels + (size_t)(r->top + (uint32_t)x->y.start[y]) * stride + (size_t)r->left * in->channels;
        place_row(x, dst, height, width, in->channels, y, &out);
        x->k->blend_rows(x->row, src, stride, x->y.weight + y * x->y.width, x->y.count[y], values);
        x->k->make_pixels(x->row, in->channels, &taps, width, &out);
    }
    return 0;
}

static int look_at(const struct mr_sample *s, uint64_t id, struct picture *out, struct mr_error *err)
{
    uint64_t channels = s->n_dims == 3 ? s->dims[2] : 1;
    bool shaped = (s->n_dims == 2 || s->n_dims == 3) && channels >= 1 && channels <= MR_PREPROCESS_CHANNELS &&
                  s->dims[0] >= 1 && s->dims[1] >= 1 && s->dims[0] <= MR_PREPROCESS_SIDE_MAX &&
                  s->dims[1] <= MR_PREPROCESS_SIDE_MAX;
    if (!shaped || strcmp(s->dtype, "u1") != 0 || s->bytes != s->dims[0] * s->dims[1] * channels) {
        mr_error_plain(err, MR_E_USAGE, "sample %llu is no picture to preprocess: %u axes of '%s', %zu bytes",
                       (unsigned long long)id, s->n_dims, s->dtype, s->bytes);
        return mr_error_hint(err, "want unsigned bytes, height x width or height x width x channels; 'millrace show' "
                                  "says what is there"),
               MR_E_USAGE;
    }
    *out = (struct picture){.pixels = s->data,
                            .height = (uint32_t)s->dims[0],
                            .width = (uint32_t)s->dims[1],
                            .channels = (uint32_t)channels};
    return 0;
}

int mr_preprocess_run(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in, void *dst,
                      size_t cap, size_t *bytes, struct mr_error *err)
{
    struct picture pic = {0};
    struct rect r = {0};
    int rc = look_at(in, id, &pic, err);
    if (rc || (rc = cut(x, epoch, id, &pic, &r, err)))
        return rc;
    uint64_t height = r.height, width = r.width;
    result_size(&x->p, &height, &width);
    *bytes = mr_preprocess_bytes(&x->p, pic.height, pic.width, pic.channels);
    if (*bytes > cap)
        return mr_error_plain(err, MR_E_LIMIT, "the preprocessed sample %llu has %zu bytes, a row %zu",
                              (unsigned long long)id, *bytes, cap);
    bool flip = x->p.flip > 0 && draw(x, epoch, id, 0) < x->p.flip;
    if (height == r.height && width == r.width) {
        take_over(x, &pic, &r, flip, dst);
        return 0;
    }
    rc = resize(x, &pic, &r, flip, (uint32_t)height, (uint32_t)width, dst);
    return rc < 0 ? mr_error_set(err, rc, "cannot resize sample %llu", (unsigned long long)id) : 0;
}
