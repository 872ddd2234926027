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
#define MR_TF_LOOK_MAX 4096u

struct mr_tf_found {
    bool is_example; /* well-formed and has a payload; otherwise the rest is not set */
    uint64_t payload_offset, payload_length;
    int64_t label; /* or MR_LABEL_NONE */
};

/* Looks at [offset, offset + len) of the source. Malformed bytes are not an error: the record is then no Example. */
int mr_tf_example_find(const struct mr_tf_source *src, uint64_t offset, uint64_t len, struct mr_tf_found *out,
                       struct mr_error *err);

/* ---- all features ---- */

enum mr_tf_kind { MR_TF_NONE, MR_TF_BYTES, MR_TF_FLOATS, MR_TF_INTEGERS }; /* NONE: an empty Feature */

struct mr_tf_feature {
    char name[256];
    size_t name_len;
    enum mr_tf_kind kind;
    uint64_t values;
    uint64_t list_at, list_bytes; /* the list's message */
    /* The only string, or all numbers in one packed run: where they lie. Else `dense` is false and the list's message is
     * to be parsed. */
    bool dense;
    uint64_t at, bytes;
    int64_t first; /* the first integer */
};
struct mr_tf_list {
    struct mr_tf_feature *item;
    size_t n, cap;
};
/* The features of a record, in its order; a name that comes twice has its last value. Returns 1; 0: the record is no
 * Example, or has no feature; negative codes of the source, MR_E_LIMIT, -ENOMEM. `out` keeps its memory. */
int mr_tf_example_list(const struct mr_tf_source *src, uint64_t offset, uint64_t len, struct mr_tf_list *out,
                       struct mr_error *err);

/* Appending to a message; `p` has room for 11 bytes. Return what is behind. */
uint8_t *mr_tf_put_len(uint8_t *p, unsigned number, uint64_t len);
uint8_t *mr_tf_put_varint(uint8_t *p, uint64_t v);
/* How long a field of `len` bytes is with its header. */
uint64_t mr_tf_len_field(uint64_t len);
/* The next varint at *p; false: it does not end before `end`, or has more than 64 bits. */
bool mr_tf_get_varint(const uint8_t **p, const uint8_t *end, uint64_t *out);

/* Everything of an Example {label, size, image} up to the first byte of the image, which comes last; returns its
 * length. The whole Example is that many bytes plus the payload. MR_LABEL_NONE leaves the label out. */
#define MR_TF_PREFIX_MAX 160u
size_t mr_tf_example_prefix(uint64_t payload_bytes, int64_t label, uint8_t out[MR_TF_PREFIX_MAX]);

#endif
