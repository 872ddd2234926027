/* What the parts of a sample in a tar shard are, by what follows the key in their names, and labels in them. */
#ifndef MR_FORMAT_TAR_PARTS_H
#define MR_FORMAT_TAR_PARTS_H

#include "format/stream_in.h"

/* Which part is the payload: that of the lowest rank. */
unsigned mr_tar_payload_rank(const char *ext);
/* The integer that a .cls part is, or the member "label" of a .json part; MR_LABEL_NONE: there is none, which is no
 * error: WebDataset users put anything there. */
int mr_tar_read_label(struct mr_stream_in *in, const struct mr_extent *data, bool json, int64_t *out,
                      struct mr_error *err);

/* Samples of several parts (tar_fields.c). */
#define MR_TAR_LAYOUT_VERSION 1
#define MR_TAR_GZIP 1
extern const struct mr_field_ops mr_tar_field_ops;
/* Layout version 2 (tar_fields.c): an array in a .npy member. */
bool mr_tar_is_array(const struct mr_layout *layout);
int mr_tar_array_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);
int mr_tar_array_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                      struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err);
int mr_tar_array_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                        unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err);
bool mr_tar_array_gzip(const struct mr_layout *layout);
int mr_tar_layout(bool gzip, struct mr_layout *layout, struct mr_error *err);

/* Writing (format_tar.c). */
struct mr_stream_out;
int mr_tar_put_member(struct mr_stream_out *o, const char *name, uint64_t size, struct mr_error *err);
int mr_tar_put_padding(struct mr_stream_out *o, uint64_t size, struct mr_error *err);
int mr_tar_put_label(struct mr_stream_out *o, uint64_t id, int64_t label, struct mr_error *err);

#endif
