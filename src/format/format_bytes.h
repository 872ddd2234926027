/* What formats share whose samples are plain bytes at one place in the file. */
#ifndef MR_FORMAT_FORMAT_BYTES_H
#define MR_FORMAT_FORMAT_BYTES_H

#include "format/format.h"

/* A decode operation: the planned bytes are the payload, handed out in place as one row of uint8. */
int mr_format_decode_bytes(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                           unsigned flags, const void *raw, size_t len, struct mr_sample_out *out,
                           struct mr_error *err);
/* Did the writer get the bytes that sample_begin announced? MR_E_INTERNAL if not. */
int mr_format_check_written(const struct mr_sample_info *info, uint64_t written, struct mr_error *err);
/* A malloc'ed copy of `data` as a layout. */
int mr_layout_make(const void *data, size_t len, struct mr_layout *layout, struct mr_error *err);

#endif
