/* Preprocessing of pictures, for real: what a training job does between decoding a sample and handing it to the
 * accelerator.
 *
 *   decoded picture ──> crop ──> resize ──> crop ──> flip ──> normalise to float32, or bytes ──> rows of pixels or
 * planes
 *
 * All of it happens in one pass over the output, so nothing of the size of a picture is written in between. Sizes are
 * reduced by filters as wide as the reduction, as Pillow and torchvision do on pictures; results differ from theirs by
 * rounding only, because the intermediate values are not rounded here.
 *
 * What is drawn at random (place and size of the crop, flip, filter) is a pure function of (seed, epoch, sample): every
 * run, with any number of threads and ranks and after any resume, makes the same pictures.
 *
 *     struct mr_preprocess_params p;
 *     mr_preprocess_params_init(&p);
 *     p.crop = MR_CROP_RANDOM_RESIZED;  p.height = p.width = 224;  p.flip = 0.5;  p.to_float = p.planar = true;
 *     loader_params.preprocess = &p;        // the loader's threads do it
 *
 * Samples must be unsigned bytes of shape height x width or height x width x channels, with 1 to 4 channels: what JPEG
 * and PNG decode to, and arrays of that shape in any other format. Anything else is MR_E_USAGE with what it is instead.
 *
 * Thread-safety: a preprocessor holds scratch memory and belongs to one thread. Ownership: create allocates, free
 * releases and accepts NULL. */
#ifndef MILLRACE_PREPROCESS_H
#define MILLRACE_PREPROCESS_H

#include <millrace/dataset.h>
#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_PREPROCESS_CHANNELS 4u
#define MR_PREPROCESS_SIDE_MAX 65536u /* pixels */

enum mr_crop {
    MR_CROP_NONE,           /* the whole picture */
    MR_CROP_CENTER,         /* crop_height x crop_width from the middle; a smaller picture is an error (but see pad) */
    MR_CROP_RANDOM,         /* the same from anywhere */
    MR_CROP_RANDOM_RESIZED, /* a share of the area between scale_min and scale_max with an aspect ratio between
                               ratio_min and ratio_max, anywhere; the middle when ten draws do not fit. Needs height and
                               width */
};

/* How a picture is resized: Pillow's filters of these names, which torchvision has, too (for its tensors bilinear and
 * bicubic, with antialias). All but `nearest` grow with the reduction. */
enum mr_filter {
    MR_FILTER_BILINEAR, /* a triangle */
    MR_FILTER_BICUBIC,  /* a = -0.5 */
    MR_FILTER_NEAREST,  /* the pixel below the middle; nothing is blended */
    MR_FILTER_BOX,
    MR_FILTER_HAMMING,
    MR_FILTER_LANCZOS, /* three lobes */
    MR_FILTER_RANDOM,  /* bilinear or bicubic, drawn for each sample and epoch, as timm does */
};

struct mr_preprocess_params {
    enum mr_crop crop;
    uint32_t crop_height, crop_width;
    double scale_min, scale_max; /* 0.08 and 1 */
    double ratio_min, ratio_max; /* width over height: 3/4 and 4/3 */
    uint32_t height, width;      /* of the result; 0: as it was cut out */
    double flip;                 /* probability that left and right change places; 0 and 1 are certain */
    bool to_float;               /* float32, (value / 255 - mean) / stdev; else bytes */
    float mean[MR_PREPROCESS_CHANNELS], stdev[MR_PREPROCESS_CHANNELS]; /* 0 and 1; with to_float only */
    bool planar; /* channels x height x width; else height x width x channels */
    uint64_t seed;
    /* Resize so that the shorter side has so many pixels, the longer one in proportion (rounded down, as torchvision
     * does); 0: to height x width, if those are set. */
    uint32_t shorter_side;
    /* What is cut out of the resized picture: MR_CROP_NONE, MR_CROP_CENTER (an odd rest is halved to the even number,
     * as torchvision does) or MR_CROP_RANDOM. Only the pixels that are left are computed. */
    enum mr_crop last_crop;
    uint32_t last_height, last_width;
    /* Three channels whatever the picture has: grey becomes three equal ones, alpha is dropped. */
    bool rgb;
    /* Quick rather than exact: a JPEG picture that is reduced to a half or less is decoded at 1/2, 1/4 or 1/8 of its
     * size, where it is still at least as large as the result. Edges come out a little softer or harder. */
    bool fast;
    /* Around the resized picture, before last_crop: so many pixels of value `fill` at the left, top, right and bottom,
     * each fewer than the crop has. With pad_if_needed a picture that is smaller than the crop gets more: at a random
     * place on both sides what is missing, in the middle half of it on each (an odd one at the right and the bottom).
     */
    uint32_t pad[4];
    bool pad_if_needed;
    uint8_t fill[MR_PREPROCESS_CHANNELS];
    enum mr_filter filter; /* of the resize; bilinear */
    /* Bicubic and Lanczos overshoot at edges. Values are clipped to those of bytes, as where pictures are resized;
     * true: not with to_float, as where float tensors are. */
    bool overshoot;
};
void mr_preprocess_params_init(struct mr_preprocess_params *p);

struct mr_preprocess;

/* MR_E_USAGE for parameters that contradict each other, -ENOMEM. */
int mr_preprocess_create(const struct mr_preprocess_params *p, struct mr_preprocess **out, struct mr_error *err);
void mr_preprocess_free(struct mr_preprocess *x);
/* Bytes that become of a picture of this shape: they depend on no draw. */
size_t mr_preprocess_bytes(const struct mr_preprocess_params *p, uint64_t height, uint64_t width, uint64_t channels);
/* Turns dtype and dims of a picture into those of what becomes of it; a picture without an axis of channels gets none.
 */
void mr_preprocess_shape(const struct mr_preprocess_params *p, struct mr_sample *s);
/* Makes the sample's picture of this epoch in dst. MR_E_LIMIT when dst is too small; *bytes is what is needed in that
 * case, too. No memory is allocated once the largest picture has been seen. */
int mr_preprocess_run(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in, void *dst,
                      size_t cap, size_t *bytes, struct mr_error *err);

struct mr_rect {
    uint32_t top, left, height, width;
};
/* What becomes of one picture in one epoch, for those who decode or resize elsewhere. */
struct mr_preprocess_plan {
    struct mr_rect from;    /* cut out of the picture */
    uint32_t height, width; /* that is resized to this */
    struct mr_rect result;  /* and this is cut out of the resized picture */
    bool flip;
    struct mr_rect need; /* source pixels that the result is made of */
    /* What is delivered has the size of `place`; the result lies at its top and left (before a flip), the rest is
     * filled. */
    struct mr_rect place;
    enum mr_filter filter; /* never MR_FILTER_RANDOM */
};
/* For a picture of this size. Pure. MR_E_USAGE for a picture smaller than a crop, MR_E_LIMIT for sides beyond the
 * largest. */
int mr_preprocess_plan(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, uint64_t height, uint64_t width,
                       struct mr_preprocess_plan *out, struct mr_error *err);

/* ---- what belongs to a picture ----
 *
 * Masks and boxes of the sample are cut out, resized and flipped as its picture is, since all of that follows from
 * (seed, epoch, sample) and the picture's size. Results equal those of torchvision's v2 functions, given the same cuts. */

/* Dims of a mask (height x width, or masks x height x width, of any type of 1, 2, 4 or 8 bytes) to those of the result. */
void mr_preprocess_mask_shape(const struct mr_preprocess_params *p, struct mr_sample *s);
/* Each pixel is the source's nearest, as PyTorch counts it; around a padded picture it is 0. `out` gets dims and bytes.
 * MR_E_USAGE: no such array; MR_E_LIMIT: dst is too small, and out->bytes is what is needed; -ENOMEM. */
int mr_preprocess_mask(struct mr_preprocess *x, uint64_t epoch, uint64_t id, const struct mr_sample *in, void *dst,
                       size_t cap, struct mr_sample *out, struct mr_error *err);
/* Boxes (x1, y1, x2, y2) of a picture of height x width pixels: an array of floats or integers whose last axis has four,
 * in place. Cuts clamp them to what is left; empty ones stay where they are. */
int mr_preprocess_boxes(const struct mr_preprocess *x, uint64_t epoch, uint64_t id, uint64_t height, uint64_t width,
                        struct mr_sample *boxes, void *data, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
