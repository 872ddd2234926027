/* tf.train.Example on the wire: enough protocol buffer to find the payload and the label of a record anybody wrote, and
 * to write ours. Finding looks at the bytes through a callback, so that a scan need not read a large payload to skip
 * it.
 *
 *   Example { Features features = 1 }    Features { map<string, Feature> feature = 1 }
 *   Feature { oneof BytesList = 1, FloatList = 2, Int64List = 3 }   each list: repeated value = 1
 *
 * The payload is the single-valued bytes feature called image/encoded, image, image_raw, data or x (in this order of
 * preference), else the only bytes feature there is. The label is the first value of the int64 feature label or
 * image/class/label. Unknown fields and features are skipped. */
#ifndef MR_FORMAT_TF_EXAMPLE_H
#define MR_FORMAT_TF_EXAMPLE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_tf_source {
    /* `len` (at most MR_TF_LOOK_MAX) bytes at `offset`; valid until the next call. */
    int (*get)(void *ctx, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err);
    void *ctx;
};
#define MR_TF_LOOK_MAX 64u

struct mr_tf_found {
    bool is_example; /* well-formed and has a payload; otherwise the rest is not set */
    uint64_t payload_offset, payload_length;
    int64_t label; /* or MR_LABEL_NONE */
};

/* Looks at [offset, offset + len) of the source. Malformed bytes are not an error: the record is then no Example. */
int mr_tf_example_find(const struct mr_tf_source *src, uint64_t offset, uint64_t len, struct mr_tf_found *out,
                       struct mr_error *err);

/* Everything of an Example {label, size, image} up to the first byte of the image, which comes last; returns its
 * length. The whole Example is that many bytes plus the payload. MR_LABEL_NONE leaves the label out. */
#define MR_TF_PREFIX_MAX 160u
size_t mr_tf_example_prefix(uint64_t payload_bytes, int64_t label, uint8_t out[MR_TF_PREFIX_MAX]);

#endif
