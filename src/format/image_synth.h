/* Image-like pixels for the JPEG and PNG writers, and the model that says how large their encodings will be.
 *
 * A picture is a pure function of (seed, sample, height, width, channels): a tinted gradient, a few ellipses and one
 * straight edge (large-scale structure), plus a texture with a falling spectrum (what makes photographs cost bits). Any
 * byte range can be produced alone, so a writer needs no whole image in memory and a reader can check any part. All
 * arithmetic that reaches a pixel is integer or correctly rounded, so pictures are the same on every machine.
 *
 * The texture's strength is fixed; a requested file size is met by choosing the dimensions (aspect 4:3), because bytes
 * per pixel are nearly constant for a given quality or compression level. See doc/reference/format-image.md. */
#ifndef MR_FORMAT_IMAGE_SYNTH_H
#define MR_FORMAT_IMAGE_SYNTH_H

#include "format/format.h"

#define MR_IMAGE_VERSION 1
#define MR_IMAGE_MAX_SIDE 65500u /* of libjpeg; kept for PNG as well */

/* Bytes [offset, offset+len) of the interleaved pixels (rows, then columns, then channels) of a sample. Channels 1
 * or 3. */
void mr_image_fill(uint64_t seed, uint64_t sample, const struct mr_dims *dims, uint64_t offset, void *dst, size_t len);

/* The synth operation of both formats; `content` is a struct mr_content, whose compress_percent has no effect here. */
void mr_image_synth(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                    uint64_t offset, void *dst, size_t len);

/* Checks that dims describe an image of ours: h x w (grey) or h x w x c, c = 1 or 3, sides within the limit. */
int mr_image_dims_check(const struct mr_sample_info *info, struct mr_error *err);
unsigned mr_image_dims_channels(const struct mr_dims *dims); /* of dims that passed the check */

/* How a decoded sample differs from its picture. */
struct mr_image_difference {
    uint64_t first; /* byte, UINT64_MAX if there is none */
    double squares; /* sum of squared differences */
};
/* Regenerates the picture and compares; MR_E_CORRUPT if the shapes differ. */
int mr_image_compare(uint64_t seed, const struct mr_sample_info *info, const struct mr_sample_out *have,
                     struct mr_image_difference *out, struct mr_error *err);

/* How large the encoding of a picture of h x w becomes: fixed_bytes + per_pixel * (h * w + a third of what fills up the
 * last blocks + edge * sqrt(h * w)). Single pictures lie within spread + spread_edge / sqrt(h * w) above that
 * (relative). */
struct mr_image_model {
    double fixed_bytes, per_pixel, edge, spread, spread_edge;
    unsigned block, channels;
    uint64_t pad_limit_bytes; /* larger files are not padded: aim at the middle instead of below */
};

/* Fills dtype, dims, bytes and file_bytes of `info` for a requested file size: the shape operation of both formats. A
 * spec with fixed two- or three-dimensional dims gets exactly those and no size target. */
int mr_image_shape(const struct mr_writer_spec *spec, const struct mr_image_model *m, uint64_t want_bytes,
                   struct mr_sample_info *info, struct mr_error *err);
/* Channels that a spec asks for: 1 if its third dimension says so, or it has only two; otherwise 3. */
unsigned mr_image_channels(const struct mr_writer_spec *spec);

#endif
