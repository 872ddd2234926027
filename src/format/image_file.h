/* What JPEG and PNG share around their codecs: one image per file, layout of one version byte, limits against bombs,
 * and where decoded pixels go. */
#ifndef MR_FORMAT_IMAGE_FILE_H
#define MR_FORMAT_IMAGE_FILE_H

#include "format/format.h"

extern const struct mr_format_ops mr_format_jpeg, mr_format_png;

int mr_image_layout(struct mr_layout *layout, struct mr_error *err);
int mr_image_layout_check(const struct mr_layout *layout, struct mr_error *err);
int mr_image_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);

/* A scan operation: checks that the file begins with `magic` and reports it as one sample. */
int mr_image_scan(struct mr_store *s, const char *path, const char *kind, const void *magic, size_t magic_len,
                  mr_scan_fn *fn, void *user, struct mr_layout *layout, struct mr_error *err);

/* Before anything is allocated: refuses images whose pixels are out of all proportion to the file
 * (MR_LIMIT_UNPACK_RATIO, with some slack for tiny files) or beyond MR_LIMIT_UNPACKED_BYTES. Sets dtype, dims, bytes
 * and data of `out`; data is dst, or scratch slot 0 of the decoder where dst is NULL. MR_E_LIMIT with bytes set where
 * dst is too small. */
int mr_image_out_prepare(struct mr_decoder *d, size_t file_len, uint64_t height, uint64_t width, unsigned channels,
                         enum mr_dtype dtype, struct mr_sample_out *out, uint8_t **pixels, struct mr_error *err);

/* The limits alone, for a picture of which only a part is decoded. */
int mr_image_limit_check(size_t file_len, uint64_t height, uint64_t width, unsigned channels, enum mr_dtype dtype,
                         struct mr_error *err);

#endif
