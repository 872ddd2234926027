#include "loader/preprocess_weights.h"

#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- filters: value at a distance of x source pixels, for a size that does not change ---- */

static double triangle(double x)
{
    return MR_MAX(0.0, 1 - fabs(x));
}

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

static double box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI);
}

static double hamming(double x)
{
    return fabs(x) < 1 ? sinc(x) * (0.54 + 0.46 * cos(x * M_PI)) : 0;
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*at)(double x);
    double support;
} filters[] = {
    [MR_FILTER_BILINEAR] = {triangle, 1}, [MR_FILTER_BICUBIC] = {cubic, 2},   [MR_FILTER_NEAREST] = {NULL, 0},
    [MR_FILTER_BOX] = {box, 0.5},         [MR_FILTER_HAMMING] = {hamming, 1}, [MR_FILTER_LANCZOS] = {lanczos, 3},
};

/* ---- lines ---- */

struct mr_line mr_line_of(uint32_t at, uint32_t length, uint32_t to, unsigned shrink, enum mr_filter filter)
{
    struct mr_line l = {.length = length, .origin = at, .limit = length, .to = to, .filter = filter};
    if (shrink > 1) {
        l.origin = at / shrink;
        l.limit = (at + length + shrink - 1) / shrink - l.origin;
        l.start = (double)at / shrink - (double)l.origin;
        l.length = (double)length / shrink;
    }
    l.support = filters[filter].support * MR_MAX(l.length / to, 1.0);
    return l;
}

/* The middle of pixel i of the result, in source pixels. */
static double middle_of(const struct mr_line *l, uint32_t i)
{
    const double scale = l->length / l->to;
    if (l->filter != MR_FILTER_NEAREST)
        return l->start + (i + 0.5) * scale;
    double middle = l->start + 0.5 * scale; /* Pillow adds up, and a middle may lie on the border of two pixels */
    for (uint32_t k = 0; k < i; k++)
        middle += scale;
    return middle;
}

/* Source pixels [*first, *last) that make a pixel with this middle, at least one. */
static void reach(const struct mr_line *l, double middle, int64_t *first, int64_t *last)
{
    if (l->filter == MR_FILTER_NEAREST) {
        *first = MR_MIN((int64_t)middle, l->limit - 1);
        *last = *first + 1;
        return;
    }
    *first = MR_MAX((int64_t)(middle - l->support + 0.5), 0);
    *last = MR_MIN((int64_t)(middle + l->support + 0.5), l->limit);
}

void mr_line_needed(const struct mr_line *l, uint32_t start, uint32_t n, uint32_t *at, uint32_t *len)
{
    int64_t low, high, other;
    reach(l, middle_of(l, start), &low, &other);
    reach(l, middle_of(l, start + n - 1), &other, &high);
    *at = (uint32_t)(l->origin + low);
    *len = (uint32_t)(high - low);
}

/* ---- weights ---- */

void mr_axis_done(struct mr_resize_axis *a)
{
    free(a->start);
    free(a->count);
    free(a->weight);
    *a = (struct mr_resize_axis){0};
}

static int grow_axis(struct mr_resize_axis *a, size_t pixels, size_t width)
{
    if (pixels <= a->pixels && width <= a->width)
        return 0;
    pixels = MR_MAX(pixels, a->pixels);
    width = MR_MAX(width, a->width);
    int32_t *start = calloc(pixels, sizeof(*start)), *count = calloc(pixels, sizeof(*count));
    float *weight = calloc(pixels * width, sizeof(*weight));
    if (!start || !count || !weight) {
        free(start);
        free(count);
        free(weight);
        return -ENOMEM;
    }
    mr_axis_done(a);
    a->start = start;
    a->count = count;
    a->weight = weight;
    a->pixels = pixels;
    a->width = width;
    return 0;
}

/* Weights of source pixels [first, last) around `middle`; they sum to 1. */
static void weigh_pixel(const struct mr_line *l, double middle, int64_t first, int64_t last, float *out)
{
    const double wide = 1 / MR_MAX(l->length / l->to, 1.0);
    double sum = 0;
    if (l->filter == MR_FILTER_NEAREST) {
        out[0] = 1;
        return;
    }
    for (int64_t k = first; k < last; k++) {
        double w = filters[l->filter].at(((double)k + 0.5 - middle) * wide);
        out[k - first] = (float)w;
        sum += w;
    }
    for (int64_t k = first; k < last; k++)
        out[k - first] = (float)((double)out[k - first] / sum);
}

int mr_axis_weigh(struct mr_resize_axis *a, const struct mr_line *l, uint32_t begin, uint32_t n, uint32_t origin,
                  bool mirrored)
{
    int rc = grow_axis(a, n, (size_t)(2 * ceil(l->support)) + 1);
    double middle = middle_of(l, begin);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        int64_t first, last;
        uint32_t at = mirrored ? n - 1 - i : i;
        reach(l, middle, &first, &last);
        weigh_pixel(l, middle, first, last, a->weight + at * a->width);
        a->start[at] = (int32_t)(l->origin + first - origin);
        a->count[at] = (int32_t)(last - first);
        middle = l->filter == MR_FILTER_NEAREST ? middle + l->length / l->to : middle_of(l, begin + i + 1);
    }
    return rc;
}

int32_t mr_axis_even_out(struct mr_resize_axis *a, uint32_t n, uint32_t limit)
{
    int32_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = MR_MAX(most, a->count[i]);
    if ((uint32_t)most > limit || (size_t)most > a->width)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        float *w = a->weight + i * a->width;
        int32_t have = a->count[i], back = MR_MAX(a->start[i] + most - (int32_t)limit, 0);
        memmove(w + back, w, (size_t)have * sizeof(*w));
        for (int32_t t = 0; t < most; t++)
            if (t < back || t >= back + have)
                w[t] = 0;
        a->start[i] -= back;
        a->count[i] = most;
    }
    return most;
}
