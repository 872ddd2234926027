/* The floor of preprocessing: the middle of the picture, resized, normalised, in planes. What a careful programmer
 * writes for exactly this: weights computed once for the one size all pictures have, rows first, then columns, floats
 * in between. It checks nothing. */
#include "base/common.h"
#include "floors.h"

#include <math.h>
#include <stdlib.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

struct weights {
    int first, count;
    float w[64];
};

struct floor_preprocess {
    unsigned height, width, crop, out; /* of the picture; sides of the part and of the result */
    struct weights *weights;
    float *rows; /* crop rows of out pixels, 3 channels */
};

struct floor_preprocess *floor_preprocess_create(unsigned height, unsigned width, unsigned crop, unsigned out)
{
    struct floor_preprocess *f = calloc(1, sizeof(*f));
    double scale = (double)crop / out, support = MR_MAX(scale, 1.0);
    if (!f || !(f->weights = calloc(out, sizeof(*f->weights))) ||
        !(f->rows = calloc((size_t)crop * out * 3, sizeof(float))) || 2 * support + 1 > 64)
        bench_die("cannot make a floor for %u to %u pixels", crop, out);
    *f = (struct floor_preprocess){
        .height = height, .width = width, .crop = crop, .out = out, .weights = f->weights, .rows = f->rows};
    for (unsigned i = 0; i < out; i++) {
        double middle = (i + 0.5) * scale, sum = 0;
        struct weights *w = &f->weights[i];
        w->first = (int)MR_MAX(0.0, floor(middle - support + 0.5));
        w->count = (int)MR_MIN((double)crop, floor(middle + support + 0.5)) - w->first;
        for (int k = 0; k < w->count; k++)
            sum += MR_MAX(0.0, 1 - fabs((w->first + k + 0.5 - middle) / support));
        for (int k = 0; k < w->count; k++)
            w->w[k] = (float)(MR_MAX(0.0, 1 - fabs((w->first + k + 0.5 - middle) / support)) / sum);
    }
    return f;
}

void floor_preprocess_free(struct floor_preprocess *f)
{
    if (!f)
        return;
    free(f->weights);
    free(f->rows);
    free(f);
}

void floor_preprocess(struct floor_preprocess *f, const uint8_t *pixels, float *dst)
{
    const unsigned out = f->out, top = (f->height - f->crop) / 2, left = (f->width - f->crop) / 2;
    for (unsigned y = 0; y < f->crop; y++) {
        const uint8_t *src = pixels + ((size_t)(top + y) * f->width + left) * 3;
        float *row = f->rows + (size_t)y * out * 3;
        for (unsigned x = 0; x < out; x++) {
            const struct weights *w = &f->weights[x];
            float r = 0, g = 0, b = 0;
            for (int k = 0; k < w->count; k++) {
                const uint8_t *p = src + (size_t)(w->first + k) * 3;
                r += w->w[k] * (float)p[0];
                g += w->w[k] * (float)p[1];
                b += w->w[k] * (float)p[2];
            }
            row[x] = r;
            row[out + x] = g;
            row[2 * out + x] = b;
        }
    }
    for (unsigned c = 0; c < 3; c++)
        for (unsigned y = 0; y < out; y++) {
            const struct weights *w = &f->weights[y];
            float *to = dst + ((size_t)c * out + y) * out;
            for (unsigned x = 0; x < out; x++)
                to[x] = 0;
            for (int k = 0; k < w->count; k++) {
                const float *from = f->rows + (size_t)(w->first + k) * out * 3 + (size_t)c * out;
                for (unsigned x = 0; x < out; x++)
                    to[x] += w->w[k] * from[x];
            }
            for (unsigned x = 0; x < out; x++)
                to[x] *= 1.0f / 255;
        }
}
