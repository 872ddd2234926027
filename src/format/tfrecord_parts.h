/* What the two sides of TFRecord share: one payload per record (format_tfrecord.c) and a field per feature
 * (tfrecord_fields.c). */
#ifndef MR_FORMAT_TFRECORD_PARTS_H
#define MR_FORMAT_TFRECORD_PARTS_H

#include "format/stream_in.h"
#include "format/stream_out.h"

#define MR_TFR_LAYOUT_VERSION 1
#define MR_TFR_GZIP 1
#define MR_TFR_HEAD 12u
#define MR_TFR_TAIL 4u
#define MR_TFR_PATH_MAX 4096u
#define MR_TFR_INDEX_BUFFER (64u * 1024u)

/* A record: its number, where it begins, and how many bytes of data it has. */
struct mr_tfr_record {
    uint64_t number, at, len;
};
typedef int mr_tfr_fn(void *user, struct mr_stream_in *in, const struct mr_tfr_record *r, struct mr_error *err);
/* All records of a file, by its index where there is one. *gzip: offsets count in the unpacked file. */
int mr_tfr_walk(struct mr_store *s, const char *path, mr_tfr_fn *fn, void *user, bool *gzip, struct mr_error *err);
/* The ref of a payload inside the record, with what VERIFY needs; where that is too much, the checksum is checked. */
int mr_tfr_payload_ref(struct mr_stream_in *in, const struct mr_tfr_record *r, uint64_t offset, uint64_t length,
                       struct mr_sample_ref *ref, struct mr_error *err);
int mr_tfr_layout(bool gzip, struct mr_layout *layout, struct mr_error *err);
int mr_tfr_index_path(const char *path, char out[MR_TFR_PATH_MAX], struct mr_error *err);
int mr_tfr_put_index_line(struct mr_stream_out *index, uint64_t offset, uint64_t size, struct mr_error *err);

/* Layout version 2: numbers, and bytes that are arrays. */
bool mr_tfr_is_feature(const struct mr_layout *layout);
bool mr_tfr_feature_gzip(const struct mr_layout *layout);
int mr_tfr_feature_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);
int mr_tfr_feature_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                          const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err);
extern const struct mr_field_ops mr_tfr_field_ops;

#endif
