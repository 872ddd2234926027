/* Resizing along one axis: which source pixels make a pixel of the result, and how much of each. The filters are
 * Pillow's, and so are the places where a filter is cut off. */
#ifndef MR_LOADER_PREPROCESS_WEIGHTS_H
#define MR_LOADER_PREPROCESS_WEIGHTS_H

#include <millrace/preprocess.h>

/* One direction of a resize: `length` source pixels from `start` on, of which `limit` may be used, become `to`. Pixels
 * are counted from source pixel `origin`; start and length are whole numbers unless the source is a reduced picture.
 * A pixel of the result is made of what lies nearer than `support` to its middle. */
struct mr_line {
    double start, length, support;
    int64_t origin, limit;
    uint32_t to;
    enum mr_filter filter;
};

/* `length` pixels from `at` on of a picture that was reduced by `shrink` (0 and 1: not) become `to`. */
struct mr_line mr_line_of(uint32_t at, uint32_t length, uint32_t to, unsigned shrink, enum mr_filter filter);
/* The source pixels that n pixels of the result from `start` on are made of. */
void mr_line_needed(const struct mr_line *l, uint32_t start, uint32_t n, uint32_t *at, uint32_t *len);

struct mr_resize_axis {
    int32_t *start, *count;
    float *weight;        /* `width` per pixel of the result */
    size_t pixels, width; /* room */
};
void mr_axis_done(struct mr_resize_axis *a);
/* Weights of n pixels of the result from `begin` on; starts count from source pixel `origin`. -ENOMEM; allocates only
 * what no earlier call needed. */
int mr_axis_weigh(struct mr_resize_axis *a, const struct mr_line *l, uint32_t begin, uint32_t n, uint32_t origin,
                  bool mirrored);
/* Gives every pixel as many taps as the one with most has, with weights of 0, inside `limit` source pixels: loops of
 * one length need no branch that nobody can predict. Returns how many, or 0: not possible. */
int32_t mr_axis_even_out(struct mr_resize_axis *a, uint32_t n, uint32_t limit);

#endif
