/* The inner loops of preprocessing. Plain C that a compiler turns into vector code; compiled twice, once for every CPU
 * and, on x86, once for AVX2 and FMA, because eight values at a time and a byte-to-word widening are what these loops
 * live on. Both compute the same sums in the same order, but FMA rounds once where a multiplication and an addition
 * round twice: float results may differ in the last bit between CPUs, bytes where a value lies within that of a half.
 */
#include "loader/preprocess_kernels.h"

#include "base/common.h"

#include <float.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) /* checked, it compiles for 15 s */
#pragma GCC optimize("O3") /* vectorise; the rest of the tree is built without */
#endif

#define INLINE static inline __attribute__((always_inline))
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

INLINE void blend_two(float *restrict row, const uint8_t *restrict a, const uint8_t *restrict b, float wa, float wb,
                      size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] = wa * (float)a[i] + wb * (float)b[i];
}

INLINE void add_two(float *restrict row, const uint8_t *restrict a, const uint8_t *restrict b, float wa, float wb,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] += wa * (float)a[i] + wb * (float)b[i];
}

/* Two rows at a time: half the traffic to the sums. An odd last row counts twice with weight 0. */
INLINE void blend_rows(float *row, const uint8_t *src, size_t stride, const float *weight, int32_t taps, size_t n)
{
    for (int32_t t = 0; t < taps; t += 2) {
        const uint8_t *a = src + (size_t)t * stride, *b = t + 1 < taps ? a + stride : a;
        float wb = t + 1 < taps ? weight[t + 1] : 0;
        if (t == 0)
            blend_two(row, a, b, weight[t], wb, n);
        else
            add_two(row, a, b, weight[t], wb, n);
    }
}

/* The sum of a pixel's taps: its channels, at most four, side by side; what lies beyond them is computed and not used.
 */
INLINE v4f sum_taps(const float *at, const float *w, unsigned channels, int32_t n)
{
    v4f sum = {0, 0, 0, 0};
    for (int32_t t = 0; t < n; t++) {
        v4f v;
        memcpy(&v, at + (size_t)t * channels, sizeof v);
        sum += v * w[t];
    }
    return sum;
}

INLINE v4f between(v4f v, float low, float high)
{
    v4f lows = {low, low, low, low}, highs = {high, high, high, high};
    v4i below = v<lows, above = v> highs; /* a comparison is a mask */
    return (v4f)(((v4i)v & ~(below | above)) | ((v4i)lows & below) | ((v4i)highs & above));
}

/* With `each` a constant the loop over the taps is unrolled and no branch depends on the data. */
INLINE void make_floats(const float *row, unsigned channels, const struct mr_taps *taps, size_t pixels,
                        const struct mr_row_out *out, int32_t each)
{
    const size_t pixel_step = out->pixel_step, channel_step = out->channel_step;
    float *to = out->at;
    v4f scale = {0}, bias = {0};
    const float low = out->clip ? 0 : -FLT_MAX, high = out->clip ? 255 : FLT_MAX;
    for (unsigned c = 0; c < channels; c++) {
        scale[c] = out->scale[c];
        bias[c] = out->bias[c];
    }
    for (size_t x = 0; x < pixels; x++) {
        v4f v = sum_taps(row + (size_t)taps->start[x] * channels, taps->weight + x * taps->width, channels,
                         each ? each : taps->count[x]);
        v = between(v, low, high) * scale + bias;
        for (unsigned c = 0; c < channels; c++)
            to[x * pixel_step + c * channel_step] = v[c];
    }
}

INLINE void make_bytes(const float *row, unsigned channels, const struct mr_taps *taps, size_t pixels,
                       const struct mr_row_out *out, int32_t each)
{
    const size_t pixel_step = out->pixel_step, channel_step = out->channel_step;
    uint8_t *to = out->at;
    for (size_t x = 0; x < pixels; x++) {
        v4f v = sum_taps(row + (size_t)taps->start[x] * channels, taps->weight + x * taps->width, channels,
                         each ? each : taps->count[x]);
        v4i r = __builtin_convertvector(v + 0.5f, v4i);
        r &= r >= 0; /* a comparison is a mask */
        r = (r & (r <= 255)) | (255 & (r > 255));
        for (unsigned c = 0; c < channels; c++)
            to[x * pixel_step + c * channel_step] = (uint8_t)r[c];
    }
}

INLINE void make_pixels_of(const float *row, unsigned channels, const struct mr_taps *taps, size_t pixels,
                           const struct mr_row_out *out, int32_t each)
{
    if (out->scale)
        make_floats(row, channels, taps, pixels, out, each);
    else
        make_bytes(row, channels, taps, pixels, out, each);
}

INLINE void make_pixels(const float *row, unsigned channels, const struct mr_taps *taps, size_t pixels,
                        const struct mr_row_out *out)
{
    switch (taps->each) {
    case 2: make_pixels_of(row, channels, taps, pixels, out, 2); break;
    case 3: make_pixels_of(row, channels, taps, pixels, out, 3); break;
    case 4: make_pixels_of(row, channels, taps, pixels, out, 4); break;
    case 5: make_pixels_of(row, channels, taps, pixels, out, 5); break;
    case 6: make_pixels_of(row, channels, taps, pixels, out, 6); break;
    case 7: make_pixels_of(row, channels, taps, pixels, out, 7); break;
    default: make_pixels_of(row, channels, taps, pixels, out, taps->each);
    }
}

INLINE void take_pixels(const uint8_t *src, unsigned channels, ptrdiff_t step, size_t pixels, const float *table,
                        const struct mr_row_out *out)
{
    for (unsigned c = 0; c < channels; c++) {
        const float *t = table ? table + 256 * c : NULL;
        for (size_t x = 0; x < pixels; x++) {
            uint8_t v = src[(ptrdiff_t)x * step * (ptrdiff_t)channels + c];
            if (table)
                ((float *)out->at)[x * out->pixel_step + c * out->channel_step] = t[v];
            else
                ((uint8_t *)out->at)[x * out->pixel_step + c * out->channel_step] = v;
        }
    }
}

/* The number of channels is a constant in each copy, so that the loops over it disappear. */
#define KERNELS(suffix, attribute)                                                                                     \
    attribute static void blend_rows_##suffix(float *row, const uint8_t *src, size_t stride, const float *weight,      \
                                              int32_t taps, size_t n)                                                  \
    {                                                                                                                  \
        blend_rows(row, src, stride, weight, taps, n);                                                                 \
    }                                                                                                                  \
    attribute static void make_pixels_##suffix(const float *row, unsigned channels, const struct mr_taps *taps,        \
                                               size_t pixels, const struct mr_row_out *out)                            \
    {                                                                                                                  \
        if (channels == 3)                                                                                             \
            make_pixels(row, 3, taps, pixels, out);                                                                    \
        else if (channels == 1)                                                                                        \
            make_pixels(row, 1, taps, pixels, out);                                                                    \
        else                                                                                                           \
            make_pixels(row, channels, taps, pixels, out);                                                             \
    }                                                                                                                  \
    attribute static void take_pixels_##suffix(const uint8_t *src, unsigned channels, ptrdiff_t step, size_t pixels,   \
                                               const float *table, const struct mr_row_out *out)                       \
    {                                                                                                                  \
        if (channels == 3)                                                                                             \
            take_pixels(src, 3, step, pixels, table, out);                                                             \
        else                                                                                                           \
            take_pixels(src, channels, step, pixels, table, out);                                                      \
    }                                                                                                                  \
    static const struct mr_preprocess_kernels kernels_##suffix = {                                                     \
        .blend_rows = blend_rows_##suffix, .make_pixels = make_pixels_##suffix, .take_pixels = take_pixels_##suffix}

KERNELS(any, );
#if defined(__x86_64__)
KERNELS(avx2, __attribute__((target("avx2,fma"))));
#endif

const struct mr_preprocess_kernels *mr_preprocess_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &kernels_avx2;
#endif
    return &kernels_any;
}
