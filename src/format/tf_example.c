/* See tf_example.h. A cursor is a range of the source; every nested message gets its own, cut from its parent, so that
 * no length in hostile input can lead outside the record. Functions return 1 = done, 0 = malformed, negative = the
 * source failed. Groups (wire types 3 and 4) do not occur in Examples and count as malformed. */
#include "format/tf_example.h"
#include "format/format.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LEN = 2, WIRE_FIXED32 = 5 };

struct cursor {
    const struct mr_tf_source *src;
    uint64_t at, end;
    struct mr_error *err;
};

struct field {
    uint64_t number;
    unsigned wire;
    uint64_t value;     /* VARINT */
    struct cursor body; /* LEN */
};

struct feature {
    unsigned kind; /* 1 bytes, 2 floats, 3 integers, 0 none */
    uint64_t values;
    uint64_t offset, length; /* first bytes value */
    uint64_t integer;        /* first integer */
};

struct search {
    unsigned best_rank; /* of the payload candidate; lower is better */
    uint64_t offset, length;
    unsigned unnamed; /* bytes features without a known name */
    uint64_t unnamed_offset, unnamed_length;
    unsigned label_rank;
    int64_t label;
};

static const char *const payload_names[] = {"image/encoded", "image", "image_raw", "data", "x"};
static const char *const label_names[] = {"label", "image/class/label"};

static int read_varint(struct cursor *c, uint64_t *out)
{
    const uint8_t *p;
    size_t room = (size_t)MR_MIN(c->end - c->at, (uint64_t)10);
    if (!room)
        return 0;
    int rc = c->src->get(c->src->ctx, c->at, room, &p, c->err);
    if (rc < 0)
        return rc;
    uint64_t v = 0;
    for (size_t i = 0; i < room; i++) {
        if (i == 9 && p[i] > 1)
            return 0;
        v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (!(p[i] & 0x80)) {
            c->at += i + 1;
            *out = v;
            return 1;
        }
    }
    return 0;
}

static int skip(struct cursor *c, uint64_t bytes)
{
    if (bytes > c->end - c->at)
        return 0;
    c->at += bytes;
    return 1;
}

static int next_field(struct cursor *c, struct field *f)
{
    uint64_t tag, len;
    int rc = read_varint(c, &tag);
    if (rc <= 0)
        return rc;
    *f = (struct field){.number = tag >> 3, .wire = (unsigned)(tag & 7)};
    if (f->number == 0)
        return 0;
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(c, &f->value);
    case WIRE_FIXED64: return skip(c, 8);
    case WIRE_FIXED32: return skip(c, 4);
    case WIRE_LEN:
        rc = read_varint(c, &len);
        if (rc <= 0)
            return rc;
        f->body = *c;
        rc = skip(c, len);
        f->body.end = c->at;
        return rc;
    default: return 0;
    }
}

static int read_bytes_list(struct cursor c, struct feature *out)
{
    struct field f;
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc <= 0)
            return rc;
        if (f.number != 1 || f.wire != WIRE_LEN)
            continue;
        if (out->values++ == 0) {
            out->offset = f.body.at;
            out->length = f.body.end - f.body.at;
        }
    }
    return 1;
}

/* Packed ([tag LEN] varint*) and unpacked ([tag VARINT])* lists are both legal; only the first value matters here. */
static int read_int64_list(struct cursor c, struct feature *out)
{
    struct field f;
    while (c.at < c.end && !out->values) {
        int rc = next_field(&c, &f);
        if (rc <= 0)
            return rc;
        if (f.number != 1)
            continue;
        if (f.wire == WIRE_VARINT) {
            out->integer = f.value;
            out->values = 1;
        } else if (f.wire == WIRE_LEN && f.body.at < f.body.end) {
            rc = read_varint(&f.body, &out->integer);
            if (rc <= 0)
                return rc;
            out->values = 1;
        }
    }
    return 1;
}

static int read_feature(struct cursor c, struct feature *out)
{
    struct field f;
    *out = (struct feature){0};
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc <= 0)
            return rc;
        if (f.wire != WIRE_LEN || f.number > 3)
            continue;
        /* A oneof: the last one given counts. */
        *out = (struct feature){.kind = (unsigned)f.number};
        rc = 1;
        if (f.number == 1)
            rc = read_bytes_list(f.body, out);
        else if (f.number == 3)
            rc = read_int64_list(f.body, out);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* The index of the key in the list, or `count` when it is another name. */
static int key_rank(const struct cursor *key, const char *const *names, unsigned count, unsigned *rank)
{
    const uint8_t *p = NULL;
    uint64_t len = key->end - key->at;
    *rank = count;
    if (len == 0 || len > MR_TF_LOOK_MAX)
        return 1;
    int rc = key->src->get(key->src->ctx, key->at, (size_t)len, &p, key->err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < count; i++)
        if (strlen(names[i]) == len && memcmp(names[i], p, (size_t)len) == 0)
            *rank = i;
    return 1;
}

static int consider(struct search *s, const struct cursor *key, const struct feature *f)
{
    unsigned rank;
    if (f->kind == 1 && f->values == 1) {
        int rc = key_rank(key, payload_names, MR_ARRAY_LEN(payload_names), &rank);
        if (rc <= 0)
            return rc;
        if (rank == MR_ARRAY_LEN(payload_names)) {
            s->unnamed++;
            s->unnamed_offset = f->offset;
            s->unnamed_length = f->length;
        } else if (rank <= s->best_rank) {
            s->best_rank = rank;
            s->offset = f->offset;
            s->length = f->length;
        }
    } else if (f->kind == 3 && f->values) {
        int rc = key_rank(key, label_names, MR_ARRAY_LEN(label_names), &rank);
        if (rc <= 0)
            return rc;
        if (rank < MR_ARRAY_LEN(label_names) && rank <= s->label_rank) {
            s->label_rank = rank;
            s->label = (int64_t)f->integer;
        }
    }
    return 1;
}

static int read_map_entry(struct cursor c, struct search *s)
{
    struct field f;
    struct cursor key = {.src = c.src, .err = c.err};
    struct feature feature = {0};
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc <= 0)
            return rc;
        if (f.wire != WIRE_LEN)
            continue;
        if (f.number == 1)
            key = f.body;
        else if (f.number == 2 && (rc = read_feature(f.body, &feature)) <= 0)
            return rc;
    }
    return consider(s, &key, &feature);
}

static int read_features(struct cursor c, struct search *s)
{
    struct field f;
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc > 0 && f.number == 1 && f.wire == WIRE_LEN)
            rc = read_map_entry(f.body, s);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

int mr_tf_example_find(const struct mr_tf_source *src, uint64_t offset, uint64_t len, struct mr_tf_found *out,
                       struct mr_error *err)
{
    struct cursor c = {.src = src, .at = offset, .end = offset + len, .err = err};
    struct search s = {
        .best_rank = MR_ARRAY_LEN(payload_names), .label_rank = MR_ARRAY_LEN(label_names), .label = MR_LABEL_NONE};
    struct field f;
    *out = (struct mr_tf_found){.label = MR_LABEL_NONE};
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc > 0 && f.number == 1 && f.wire == WIRE_LEN)
            rc = read_features(f.body, &s);
        if (rc <= 0)
            return rc;
    }
    if (s.best_rank < MR_ARRAY_LEN(payload_names))
        *out = (struct mr_tf_found){true, s.offset, s.length, s.label};
    else if (s.unnamed == 1)
        *out = (struct mr_tf_found){true, s.unnamed_offset, s.unnamed_length, s.label};
    return 0;
}

/* ---- writing ---- */

static size_t varint_len(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* The header of a length-delimited field; field numbers are below 16, so the tag is one byte. */
static uint8_t *put_len(uint8_t *p, unsigned number, uint64_t len)
{
    *p++ = (uint8_t)(number << 3 | WIRE_LEN);
    return put_varint(p, len);
}

static uint64_t len_field(uint64_t len)
{
    return 1 + varint_len(len) + len;
}

static uint8_t *put_key(uint8_t *p, const char *key)
{
    size_t n = strlen(key);
    p = put_len(p, 1, n);
    memcpy(p, key, n);
    return p + n;
}

/* Features.feature[key].int64_list = [v], packed as TensorFlow writes it. */
static uint64_t int64_entry_len(const char *key, uint64_t v)
{
    uint64_t list = len_field(varint_len(v)), feature = len_field(list);
    return len_field(strlen(key)) + len_field(feature);
}

static uint8_t *put_int64_entry(uint8_t *p, const char *key, uint64_t v)
{
    uint64_t packed = varint_len(v), list = len_field(packed);
    p = put_len(p, 1, int64_entry_len(key, v));
    p = put_key(p, key);
    p = put_len(p, 2, len_field(list));
    p = put_len(p, 3, list);
    p = put_len(p, 1, packed);
    return put_varint(p, v);
}

size_t mr_tf_example_prefix(uint64_t payload_bytes, int64_t label, uint8_t out[MR_TF_PREFIX_MAX])
{
    uint64_t list = len_field(payload_bytes), feature = len_field(list);
    uint64_t image = len_field(strlen("image")) + len_field(feature);
    uint64_t features = len_field(image) + len_field(int64_entry_len("size", payload_bytes));
    if (label != MR_LABEL_NONE)
        features += len_field(int64_entry_len("label", (uint64_t)label));
    uint8_t *p = put_len(out, 1, features);
    if (label != MR_LABEL_NONE)
        p = put_int64_entry(p, "label", (uint64_t)label);
    p = put_int64_entry(p, "size", payload_bytes);
    p = put_len(p, 1, image);
    p = put_key(p, "image");
    p = put_len(p, 2, feature);
    p = put_len(p, 1, list);
    p = put_len(p, 1, payload_bytes);
    return (size_t)(p - out);
}
