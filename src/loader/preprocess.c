/* Preprocessing of pictures: see <millrace/preprocess.h>. One row of the result at a time: the source rows it is made
 * of are blended into one row of floats, the row's pixels are blended from that, and each value is normalised and put
 * where it belongs. A picture that is not resized is taken over pixel by pixel, with a table instead of arithmetic.
 *
 * Flipping is mirroring the horizontal weights, so it costs nothing. */
#include <millrace/preprocess.h>

#include "base/common.h"
#include "base/rng.h"
#include "loader/preprocess_kernels.h"
#include "loader/preprocess_part.h"
#include "loader/preprocess_weights.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAWS 64u /* per sample and epoch, at most */

struct mr_preprocess {
    struct mr_preprocess_params p;
    const struct mr_preprocess_kernels *k;
    struct mr_resize_axis x, y;
    float *row;
    size_t row_cap;
    uint8_t *rgb; /* a picture that had another number of channels */
    size_t rgb_cap;
    void *scratch;
    size_t scratch_cap;
    float scale[MR_PREPROCESS_CHANNELS], bias[MR_PREPROCESS_CHANNELS];
    float table[256 * MR_PREPROCESS_CHANNELS];
};

/* The part of a picture that was decoded; top and left say where in the picture it lies. All of it counts pixels of the
 * picture reduced by `shrink`. */
struct picture {
    const uint8_t *pixels;
    uint32_t height, width, channels;
    uint32_t top, left;
    unsigned shrink;
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
    if (p->last_crop == MR_CROP_RANDOM_RESIZED || (p->last_crop != MR_CROP_NONE && (!p->last_height || !p->last_width)))
        return mr_error_plain(err, MR_E_USAGE, "the crop after resizing needs a fixed size of at least one pixel");
    if (p->shorter_side && p->height)
        return mr_error_plain(err, MR_E_USAGE, "resize to a shorter side or to height x width, not both");
    if (!p->height != !p->width)
        return mr_error_plain(err, MR_E_USAGE, "resizing to %u x %u pixels needs both sides", p->height, p->width);
    if (p->crop == MR_CROP_RANDOM_RESIZED && !p->height)
        return mr_error_plain(err, MR_E_USAGE, "a crop of random size needs the size to resize it to");
    const uint32_t crops = MR_MAX(MR_MAX(p->crop_height, p->crop_width), MR_MAX(p->last_height, p->last_width));
    if (MR_MAX(MR_MAX(crops, p->shorter_side), MR_MAX(p->height, p->width)) > MR_PREPROCESS_SIDE_MAX)
        return mr_error_plain(err, MR_E_USAGE, "a side of a picture has at most %u pixels", MR_PREPROCESS_SIDE_MAX);
    if (MR_MAX(p->pad[0], p->pad[2]) && MR_MAX(p->pad[0], p->pad[2]) >= p->last_width)
        return mr_error_plain(err, MR_E_USAGE, "padding of %u and %u pixels is as wide as the crop of %u", p->pad[0],
                              p->pad[2], p->last_width);
    if (MR_MAX(p->pad[1], p->pad[3]) && MR_MAX(p->pad[1], p->pad[3]) >= p->last_height)
        return mr_error_plain(err, MR_E_USAGE, "padding of %u and %u pixels is as high as the crop of %u", p->pad[1],
                              p->pad[3], p->last_height);
    if (!(p->scale_min > 0 && p->scale_min <= p->scale_max && p->scale_max <= 1))
        return mr_error_plain(err, MR_E_USAGE, "a crop's share of the area lies between 0 and 1, not from %g to %g",
                              p->scale_min, p->scale_max);
    if (!(p->ratio_min > 0 && p->ratio_min <= p->ratio_max && p->ratio_max <= 1e6))
        return mr_error_plain(err, MR_E_USAGE, "aspect ratios from %g to %g make no sense", p->ratio_min, p->ratio_max);
    if ((unsigned)p->filter > MR_FILTER_RANDOM)
        return mr_error_plain(err, MR_E_USAGE, "there is no resize filter %d", (int)p->filter);
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
            x->table[256 * c + v] = ((float)v / 255.0f - p->mean[c]) / p->stdev[c]; /* rounds as frameworks do */
    }
    *out = x;
    return 0;
}

void mr_preprocess_free(struct mr_preprocess *x)
{
    if (!x)
        return;
    mr_axis_done(&x->x);
    mr_axis_done(&x->y);
    free(x->row);
    free(x->rgb);
    free(x->scratch);
    free(x);
}

/* Size after resizing a picture, or what was cut out of it, of this size. */
static void resized_size(const struct mr_preprocess_params *p, uint64_t *height, uint64_t *width)
{
    if (p->height) {
        *height = p->height;
        *width = p->width;
    } else if (p->shorter_side && *height && *width) {
        uint64_t shorter = MR_MIN(*height, *width), longer = MR_MAX(*height, *width), side = p->shorter_side;
        uint64_t other = (uint64_t)((double)(side * longer) / (double)shorter);
        bool upright = *height > *width;
        *height = upright ? other : side;
        *width = upright ? side : other;
    }
}

static void result_size(const struct mr_preprocess_params *p, uint64_t *height, uint64_t *width)
{
    if (p->crop == MR_CROP_CENTER || p->crop == MR_CROP_RANDOM) {
        *height = p->crop_height;
        *width = p->crop_width;
    }
    resized_size(p, height, width);
    if (p->last_crop != MR_CROP_NONE) {
        *height = p->last_height;
        *width = p->last_width;
    }
}

size_t mr_preprocess_bytes(const struct mr_preprocess_params *p, uint64_t height, uint64_t width, uint64_t channels)
{
    result_size(p, &height, &width);
    return (size_t)(height * width * (p->rgb ? 3 : channels)) * (p->to_float ? sizeof(float) : 1);
}

void mr_preprocess_shape(const struct mr_preprocess_params *p, struct mr_sample *s)
{
    if (p->rgb) {
        s->n_dims = 3;
        s->dims[2] = 3;
    }
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

struct size {
    uint32_t height, width;
};

static struct mr_rect centered(struct size in, uint32_t height, uint32_t width)
{
    return (struct mr_rect){
        .top = (in.height - height) / 2, .left = (in.width - width) / 2, .height = height, .width = width};
}

/* The largest part from the middle whose aspect ratio is allowed. */
static struct mr_rect widest(const struct mr_preprocess_params *p, struct size in)
{
    double ratio = (double)in.width / in.height;
    uint32_t height = in.height, width = in.width;
    if (ratio < p->ratio_min)
        height = (uint32_t)MR_MIN((double)in.height, MR_MAX(1.0, round(in.width / p->ratio_min)));
    else if (ratio > p->ratio_max)
        width = (uint32_t)MR_MIN((double)in.width, MR_MAX(1.0, round(in.height * p->ratio_max)));
    return centered(in, height, width);
}

static struct mr_rect random_resized(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, struct size in)
{
    const struct mr_preprocess_params *p = &x->p;
    double area = (double)in.height * in.width, low = log(p->ratio_min), high = log(p->ratio_max);
    for (unsigned i = 0; i < 10; i++) {
        double part = area * (p->scale_min + (p->scale_max - p->scale_min) * draw(x, epoch, id, 4 * i + 4));
        double ratio = exp(low + (high - low) * draw(x, epoch, id, 4 * i + 5));
        double width = round(sqrt(part * ratio)), height = round(sqrt(part / ratio));
        if (width < 1 || height < 1 || width > in.width || height > in.height)
            continue;
        return (struct mr_rect){.top = (uint32_t)(draw(x, epoch, id, 4 * i + 6) * (in.height - height + 1)),
                                .left = (uint32_t)(draw(x, epoch, id, 4 * i + 7) * (in.width - width + 1)),
                                .height = (uint32_t)height,
                                .width = (uint32_t)width};
    }
    return widest(p, in);
}

static int too_small(uint64_t id, struct size in, uint32_t height, uint32_t width, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "sample %llu is a picture of %u x %u pixels, the crop has %u x %u",
                   (unsigned long long)id, in.height, in.width, height, width);
    return mr_error_hint(err, "choose a smaller crop, or one of random size, and resize it"), MR_E_USAGE;
}

static struct mr_rect anywhere(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, unsigned first_draw,
                               struct size in, uint32_t height, uint32_t width)
{
    return (struct mr_rect){.top = (uint32_t)(draw(x, epoch, id, first_draw) * (in.height - height + 1.0)),
                            .left = (uint32_t)(draw(x, epoch, id, first_draw + 1) * (in.width - width + 1.0)),
                            .height = height,
                            .width = width};
}

/* The crop before resizing. */
static int cut(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, struct size in, struct mr_rect *out,
               struct mr_error *err)
{
    const struct mr_preprocess_params *p = &x->p;
    if (p->crop == MR_CROP_NONE) {
        *out = (struct mr_rect){.height = in.height, .width = in.width};
        return 0;
    }
    if (p->crop == MR_CROP_RANDOM_RESIZED) {
        *out = random_resized(x, epoch, id, in);
        return 0;
    }
    if (p->crop_height > in.height || p->crop_width > in.width)
        return too_small(id, in, p->crop_height, p->crop_width, err);
    *out = p->crop == MR_CROP_RANDOM ? anywhere(x, epoch, id, 2, in, p->crop_height, p->crop_width)
                                     : centered(in, p->crop_height, p->crop_width);
    return 0;
}

/* One direction of the crop after resizing: `length` pixels with padding before and behind them, of which `want` are
 * taken. */
struct padded {
    uint32_t before, length, behind, want;
};

static void pad_to_size(struct padded *a, bool random)
{
    uint32_t lacks = a->want - MR_MIN(a->want, a->before + a->length + a->behind);
    a->before += random ? lacks : lacks / 2;
    a->behind += random ? lacks : lacks - lacks / 2;
}

/* From `start` on, padding counted: what of the picture that is, and where it comes to lie. */
static void see(const struct padded *a, uint32_t start, uint32_t *at, uint32_t *len, uint32_t *place)
{
    uint32_t end = MR_MIN(start + a->want, a->before + a->length), begin = MR_MAX(start, a->before);
    *at = begin - a->before;
    *len = end - begin;
    *place = begin - start;
}

/* The crop after resizing. */
static int cut_last(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, struct size in,
                    struct mr_preprocess_plan *out, struct mr_error *err)
{
    const struct mr_preprocess_params *p = &x->p;
    const bool random = p->last_crop == MR_CROP_RANDOM;
    out->result = out->place = (struct mr_rect){.height = in.height, .width = in.width};
    if (p->last_crop == MR_CROP_NONE)
        return 0;
    struct padded down = {p->pad[1], in.height, p->pad[3], p->last_height},
                  across = {p->pad[0], in.width, p->pad[2], p->last_width};
    if (p->pad_if_needed) {
        pad_to_size(&down, random);
        pad_to_size(&across, random);
    }
    const struct size all = {down.before + down.length + down.behind, across.before + across.length + across.behind};
    if (down.want > all.height || across.want > all.width)
        return too_small(id, in, down.want, across.want, err);
    struct mr_rect at = random ? anywhere(x, epoch, id, 44, all, down.want, across.want)
                               : (struct mr_rect){.top = (uint32_t)nearbyint((all.height - down.want) / 2.0),
                                                  .left = (uint32_t)nearbyint((all.width - across.want) / 2.0)};
    out->place = (struct mr_rect){.height = down.want, .width = across.want};
    see(&down, at.top, &out->result.top, &out->result.height, &out->place.top);
    see(&across, at.left, &out->result.left, &out->result.width, &out->place.left);
    return 0;
}

/* The pixels that the result is made of, in a picture reduced by `shrink`. */
static struct mr_rect needed_part(const struct mr_preprocess_plan *plan, unsigned shrink)
{
    struct mr_line y = mr_line_of(plan->from.top, plan->from.height, plan->height, shrink, plan->filter);
    struct mr_line x = mr_line_of(plan->from.left, plan->from.width, plan->width, shrink, plan->filter);
    struct mr_rect out;
    mr_line_needed(&y, plan->result.top, plan->result.height, &out.top, &out.height);
    mr_line_needed(&x, plan->result.left, plan->result.width, &out.left, &out.width);
    return out;
}

unsigned mr_preprocess_shrink(const struct mr_preprocess *x, const struct mr_preprocess_plan *plan)
{
    unsigned shrink = 1;
    while (x->p.fast && shrink < 8 && plan->from.height >= 2 * shrink * plan->height &&
           plan->from.width >= 2 * shrink * plan->width)
        shrink *= 2;
    return shrink;
}

int mr_preprocess_plan(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, uint64_t height, uint64_t width,
                       struct mr_preprocess_plan *out, struct mr_error *err)
{
    struct size in = {(uint32_t)height, (uint32_t)width};
    int rc = cut(x, epoch, id, in, &out->from, err);
    if (rc)
        return rc;
    uint64_t h = out->from.height, w = out->from.width;
    resized_size(&x->p, &h, &w);
    if (MR_MAX(h, w) > MR_PREPROCESS_SIDE_MAX || !h || !w)
        return mr_error_plain(err, MR_E_LIMIT, "sample %llu would be resized to %llu x %llu pixels",
                              (unsigned long long)id, (unsigned long long)h, (unsigned long long)w);
    out->height = (uint32_t)h;
    out->width = (uint32_t)w;
    if ((rc = cut_last(x, epoch, id, (struct size){out->height, out->width}, out, err)))
        return rc;
    out->flip = x->p.flip > 0 && draw(x, epoch, id, 0) < x->p.flip;
    out->filter = x->p.filter;
    if (out->filter == MR_FILTER_RANDOM)
        out->filter = draw(x, epoch, id, 1) < 0.5 ? MR_FILTER_BILINEAR : MR_FILTER_BICUBIC;
    if (out->from.height == out->height && out->from.width == out->width) {
        out->need = out->result;
        out->need.top += out->from.top;
        out->need.left += out->from.left;
        return 0;
    }
    out->need = needed_part(out, 1);
    return 0;
}

/* ---- making the result ---- */

/* Where row `row` of the result goes. */
static void place_row(const struct mr_preprocess *x, void *dst, const struct mr_preprocess_plan *plan,
                      uint32_t channels, uint64_t row, struct mr_row_out *out)
{
    const uint64_t height = plan->place.height, width = plan->place.width;
    const uint64_t left = plan->flip ? width - plan->place.left - plan->result.width : plan->place.left;
    size_t at = (size_t)((plan->place.top + row) * width + left) * (x->p.planar ? 1 : channels);
    *out = (struct mr_row_out){.at = x->p.to_float ? (void *)((float *)dst + at) : (void *)((uint8_t *)dst + at),
                               .pixel_step = x->p.planar ? 1 : channels,
                               .channel_step = x->p.planar ? (size_t)(height * width) : 1,
                               .scale = x->p.to_float ? x->scale : NULL,
                               .bias = x->bias,
                               .clip = !x->p.overshoot};
}

static void take_over(const struct mr_preprocess *x, const struct picture *in, const struct mr_preprocess_plan *plan,
                      void *dst)
{
    const struct mr_rect *r = &plan->need;
    for (uint32_t y = 0; y < r->height; y++) {
        const uint8_t *src =
            in->pixels + ((size_t)(r->top - in->top + y) * in->width + (r->left - in->left)) * in->channels;
        struct mr_row_out out;
        place_row(x, dst, plan, in->channels, y, &out);
        if (!plan->flip && !x->p.to_float && (!x->p.planar || in->channels == 1))
            memcpy(out.at, src, (size_t)r->width * in->channels);
        else
            x->k->take_pixels(plan->flip ? src + (size_t)(r->width - 1) * in->channels : src, in->channels,
                              plan->flip ? -1 : 1, r->width, x->p.to_float ? x->table : NULL, &out);
    }
}

static int grow(void **room, size_t *cap, size_t need)
{
    if (need <= *cap)
        return 0;
    free(*room);
    *cap = 0;
    *room = calloc(1, need);
    if (!*room)
        return -ENOMEM;
    *cap = need;
    return 0;
}

const struct mr_preprocess_params *mr_preprocess_params_of(const struct mr_preprocess *x)
{
    return &x->p;
}

void *mr_preprocess_scratch(struct mr_preprocess *x, size_t bytes)
{
    return grow(&x->scratch, &x->scratch_cap, bytes) < 0 ? NULL : x->scratch;
}

static int resize(struct mr_preprocess *x, const struct picture *in, const struct mr_preprocess_plan *plan, void *dst)
{
    const struct mr_rect *r = &plan->result, *need = &plan->need;
    const struct mr_line lx = mr_line_of(plan->from.left, plan->from.width, plan->width, in->shrink, plan->filter),
                         ly = mr_line_of(plan->from.top, plan->from.height, plan->height, in->shrink, plan->filter);
    size_t values = (size_t)need->width * in->channels; /* the last pixel is read four channels wide */
    if (mr_axis_weigh(&x->x, &lx, r->left, r->width, need->left, plan->flip) < 0 ||
        mr_axis_weigh(&x->y, &ly, r->top, r->height, need->top, false) < 0 ||
        grow((void **)&x->row, &x->row_cap, (values + 4) * sizeof(float)) < 0)
        return -ENOMEM;
    memset(x->row + values, 0, 4 * sizeof(float));
    const struct mr_taps taps = {.start = x->x.start,
                                 .count = x->x.count,
                                 .weight = x->x.weight,
                                 .width = x->x.width,
                                 .each = mr_axis_even_out(&x->x, r->width, need->width)};
    const size_t stride = (size_t)in->width * in->channels;
    const uint8_t *corner =
        in->pixels + (size_t)(need->top - in->top) * stride + (size_t)(need->left - in->left) * in->channels;
    for (uint32_t y = 0; y < r->height; y++) {
        struct mr_row_out out;
        place_row(x, dst, plan, in->channels, y, &out);
        x->k->blend_rows(x->row, corner + (size_t)x->y.start[y] * stride, stride, x->y.weight + y * x->y.width,
                         x->y.count[y], values);
        x->k->make_pixels(x->row, in->channels, &taps, r->width, &out);
    }
    return 0;
}

/* Fills what the result will not cover, and the rest as well. */
static void fill_all(const struct mr_preprocess *x, const struct mr_preprocess_plan *plan, uint32_t channels, void *dst)
{
    const size_t pixels = (size_t)plan->place.height * plan->place.width;
    const size_t step = x->p.planar ? 1 : channels, plane = x->p.planar ? pixels : 1;
    for (uint32_t c = 0; c < channels; c++)
        for (size_t i = 0; i < pixels; i++) {
            if (x->p.to_float)
                ((float *)dst)[c * plane + i * step] = x->table[256 * c + x->p.fill[c]];
            else
                ((uint8_t *)dst)[c * plane + i * step] = x->p.fill[c];
        }
}

/* Gives the picture three channels. */
static int make_rgb(struct mr_preprocess *x, struct picture *pic)
{
    size_t n = (size_t)pic->height * pic->width, c = pic->channels;
    if (grow((void **)&x->rgb, &x->rgb_cap, 3 * n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++)
            x->rgb[3 * i + k] = pic->pixels[c * i + (c > 2 ? k : 0)];
    pic->pixels = x->rgb;
    pic->channels = 3;
    return 0;
}

static int look_at(const struct mr_sample *s, uint64_t id, struct picture *out, struct mr_error *err)
{
    uint64_t channels = s->n_dims == 3 ? s->dims[2] : 1;
    bool shaped = (s->n_dims == 2 || s->n_dims == 3) && channels >= 1 && channels <= MR_PREPROCESS_CHANNELS &&
                  s->dims[0] >= 1 && s->dims[1] >= 1 && s->dims[0] <= MR_PREPROCESS_SIDE_MAX &&
                  s->dims[1] <= MR_PREPROCESS_SIDE_MAX;
    if (!shaped || strcmp(s->dtype, "u1") != 0 || s->bytes != s->dims[0] * s->dims[1] * channels) {
        if (shaped && strcmp(s->dtype, "u2") == 0) {
            mr_error_plain(err, MR_E_USAGE, "sample %llu is a picture with 16 bits per value", (unsigned long long)id);
            return mr_error_hint(err, "convert it to 8 bits; how dark 16 bits become is for you to say"), MR_E_USAGE;
        }
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

static bool holds(const struct picture *pic, const struct mr_rect *r)
{
    return r->top >= pic->top && r->left >= pic->left && r->top + r->height <= pic->top + pic->height &&
           r->left + r->width <= pic->left + pic->width;
}

int mr_preprocess_run_part(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in,
                           const struct mr_part *part, void *dst, size_t cap, size_t *bytes, struct mr_error *err)
{
    struct picture pic = {0};
    struct mr_preprocess_plan plan;
    int rc = look_at(in, id, &pic, err);
    if (rc)
        return rc;
    uint64_t height = part ? part->full_height : pic.height, width = part ? part->full_width : pic.width;
    pic.top = part ? (uint32_t)part->top : 0;
    pic.left = part ? (uint32_t)part->left : 0;
    pic.shrink = part ? part->shrink : 0;
    if ((rc = mr_preprocess_plan(x, epoch, id, height, width, &plan, err)))
        return rc;
    if (pic.shrink > 1)
        plan.need = needed_part(&plan, pic.shrink);
    *bytes = mr_preprocess_bytes(&x->p, height, width, pic.channels);
    if (*bytes > cap)
        return mr_error_plain(err, MR_E_LIMIT, "the preprocessed sample %llu has %zu bytes, a row %zu",
                              (unsigned long long)id, *bytes, cap);
    if (!holds(&pic, &plan.need))
        return mr_error_plain(err, MR_E_INTERNAL, "the decoded part of sample %llu is too small",
                              (unsigned long long)id);
    if (x->p.rgb && pic.channels != 3)
        rc = make_rgb(x, &pic);
    if (!rc && (plan.place.height != plan.result.height || plan.place.width != plan.result.width))
        fill_all(x, &plan, pic.channels, dst);
    if (!rc && plan.from.height == plan.height && plan.from.width == plan.width)
        take_over(x, &pic, &plan, dst);
    else if (!rc)
        rc = resize(x, &pic, &plan, dst);
    return rc < 0 ? mr_error_set(err, rc, "cannot resize sample %llu", (unsigned long long)id) : 0;
}

int mr_preprocess_run(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in, void *dst,
                      size_t cap, size_t *bytes, struct mr_error *err)
{
    return mr_preprocess_run_part(x, epoch, id, in, NULL, dst, cap, bytes, err);
}
