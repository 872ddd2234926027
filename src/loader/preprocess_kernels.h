/* The inner loops of preprocessing, chosen once for the CPU. */
#ifndef MR_LOADER_PREPROCESS_KERNELS_H
#define MR_LOADER_PREPROCESS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which source pixels make a pixel of the result, along one axis: count[i] weights, which sum to 1, from start[i] on.
 */
struct mr_taps {
    const int32_t *start, *count;
    const float *weight; /* width weights per pixel */
    size_t width;
    int32_t each; /* so many taps for every pixel; 0: they differ */
};

/* Where one row of the result goes: element (pixel x, channel c) at x * pixel_step + c * channel_step. */
struct mr_row_out {
    void *at;
    size_t pixel_step, channel_step;
    const float *scale, *bias; /* float: value * scale[c] + bias[c]; NULL: bytes, rounded */
    bool clip; /* floats: what lies outside of 0 to 255 before that is moved to its end; bytes always are */
};

struct mr_preprocess_kernels {
    /* row[i] = sum over t of weight[t] * src[t * stride + i], i < n. */
    void (*blend_rows)(float *row, const uint8_t *src, size_t stride, const float *weight, int32_t taps, size_t n);
    /* Pixels of the result from a blended row; the row has 4 floats more than it has values. */
    void (*make_pixels)(const float *row, unsigned channels, const struct mr_taps *taps, size_t pixels,
                        const struct mr_row_out *out);
    /* Pixels taken over as they are, every step-th byte forward (1) or backward (-1); table: 256 floats per channel, or
     * NULL. */
    void (*take_pixels)(const uint8_t *src, unsigned channels, ptrdiff_t step, size_t pixels, const float *table,
                        const struct mr_row_out *out);
};

const struct mr_preprocess_kernels *mr_preprocess_kernels(void);

#endif
