/* See tf_example.h. A cursor is a range of the source; every nested message gets its own, cut from its parent, so that
 * no length in hostile input can lead outside the record. Functions return 1 = done, 0 = malformed, negative = the
 * source failed. Groups (wire types 3 and 4) do not occur in Examples and count as malformed. */
#include "format/tf_example.h"
#include "base/vec.h"
#include "format/format.h"

#include <errno.h>
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

/* ---- all features ---- */

/* How many varints a packed run has: each ends with a byte whose highest bit is 0. */
static int count_varints(const struct cursor *c, uint64_t *n)
{
    for (uint64_t at = c->at; at < c->end;) {
        const uint8_t *p;
        size_t len = (size_t)MR_MIN(c->end - at, (uint64_t)MR_TF_LOOK_MAX);
        int rc = c->src->get(c->src->ctx, at, len, &p, c->err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < len; i++)
            *n += !(p[i] & 0x80);
        at += len;
        if (at == c->end && (p[len - 1] & 0x80))
            return 0;
    }
    return 1;
}

/* One piece of a list of numbers: a packed run, or one number of its own. */
static int add_numbers(const struct field *f, unsigned pieces, struct mr_tf_feature *out)
{
    bool integers = out->kind == MR_TF_INTEGERS, packed = f->wire == WIRE_LEN;
    struct cursor body = f->body;
    uint64_t v = 0;
    int rc = 1;
    if (!packed && f->wire != (integers ? WIRE_VARINT : WIRE_FIXED32))
        return 0;
    if (integers && !out->values) {
        if (packed && body.at < body.end && (rc = read_varint(&body, &v)) <= 0)
            return rc;
        out->first = (int64_t)(packed ? v : f->value);
    }
    out->dense = packed && pieces == 1;
    if (out->dense) {
        out->at = f->body.at;
        out->bytes = f->body.end - f->body.at;
    }
    if (!packed)
        out->values++;
    else if (integers)
        return count_varints(&f->body, &out->values);
    else if ((f->body.end - f->body.at) % 4)
        return 0;
    else
        out->values += (f->body.end - f->body.at) / 4;
    return 1;
}

static int read_list(struct cursor c, struct mr_tf_feature *out)
{
    struct field f;
    unsigned pieces = 0;
    out->list_at = c.at;
    out->list_bytes = c.end - c.at;
    out->dense = true; /* no values */
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc <= 0)
            return rc;
        if (f.number != 1)
            continue;
        pieces++;
        if (out->kind != MR_TF_BYTES) {
            if ((rc = add_numbers(&f, pieces, out)) <= 0)
                return rc;
            continue;
        }
        if (f.wire != WIRE_LEN)
            return 0;
        out->values++;
        out->dense = pieces == 1;
        out->at = f.body.at;
        out->bytes = f.body.end - f.body.at;
    }
    return 1;
}

static int list_feature(struct cursor c, struct mr_tf_feature *out)
{
    struct field f;
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc > 0 && f.wire == WIRE_LEN && f.number <= 3) {
            out->kind = (enum mr_tf_kind)f.number;
            out->values = out->at = out->bytes = 0;
            rc = read_list(f.body, out);
        }
        if (rc <= 0)
            return rc;
    }
    return 1;
}

static int list_entry(struct cursor c, struct mr_tf_list *out)
{
    struct field f;
    struct mr_tf_feature x = {.dense = true};
    while (c.at < c.end) {
        const uint8_t *p = NULL;
        int rc = next_field(&c, &f);
        if (rc > 0 && f.wire == WIRE_LEN && f.number == 1) {
            uint64_t len = f.body.end - f.body.at;
            if (len >= sizeof x.name)
                return mr_error_plain(c.err, MR_E_LIMIT, "a feature's name has %llu bytes (limit %zu)",
                                      (unsigned long long)len, sizeof x.name - 1);
            if (len && (rc = c.src->get(c.src->ctx, f.body.at, (size_t)len, &p, c.err)) < 0)
                return rc;
            if (len)
                memcpy(x.name, p, (size_t)len);
            x.name_len = (size_t)len;
            rc = 1;
        } else if (rc > 0 && f.wire == WIRE_LEN && f.number == 2) {
            rc = list_feature(f.body, &x);
        }
        if (rc <= 0)
            return rc;
    }
    for (size_t i = 0; i < out->n; i++)
        if (out->item[i].name_len == x.name_len && memcmp(out->item[i].name, x.name, x.name_len) == 0) {
            out->item[i] = x;
            return 1;
        }
    struct mr_tf_feature *room = MR_VEC_ADD(out);
    if (!room)
        return mr_error_set(c.err, -ENOMEM, "cannot keep %zu features", out->n + 1);
    *room = x;
    return 1;
}

static int list_features(struct cursor c, struct mr_tf_list *out)
{
    struct field f;
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc > 0 && f.number == 1 && f.wire == WIRE_LEN)
            rc = out->n < MR_FIELDS_MAX ? list_entry(f.body, out)
                                        : mr_error_plain(c.err, MR_E_LIMIT, "more than %u features", MR_FIELDS_MAX);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

int mr_tf_example_list(const struct mr_tf_source *src, uint64_t offset, uint64_t len, struct mr_tf_list *out,
                       struct mr_error *err)
{
    struct cursor c = {.src = src, .at = offset, .end = offset + len, .err = err};
    struct field f;
    out->n = 0;
    while (c.at < c.end) {
        int rc = next_field(&c, &f);
        if (rc > 0 && f.number == 1 && f.wire == WIRE_LEN)
            rc = list_features(f.body, out);
        if (rc <= 0)
            return rc;
    }
    return out->n > 0;
}

bool mr_tf_get_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 10 && *p < end; i++) {
        uint8_t b = *(*p)++;
        if (i == 9 && b > 1)
            return false;
        v |= (uint64_t)(b & 0x7f) << (7 * i);
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* ---- writing ---- */

static size_t varint_len(uint64_t v)
{
    size_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

uint8_t *mr_tf_put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* The header of a length-delimited field; field numbers are below 16, so the tag is one byte. */
uint8_t *mr_tf_put_len(uint8_t *p, unsigned number, uint64_t len)
{
    *p++ = (uint8_t)(number << 3 | WIRE_LEN);
    return mr_tf_put_varint(p, len);
}

uint64_t mr_tf_len_field(uint64_t len)
{
    return 1 + varint_len(len) + len;
}

static uint8_t *put_key(uint8_t *p, const char *key)
{
    size_t n = strlen(key);
    p = mr_tf_put_len(p, 1, n);
    memcpy(p, key, n);
    return p + n;
}

/* Features.feature[key].int64_list = [v], packed as TensorFlow writes it. */
static uint64_t int64_entry_len(const char *key, uint64_t v)
{
    uint64_t list = mr_tf_len_field(varint_len(v)), feature = mr_tf_len_field(list);
    return mr_tf_len_field(strlen(key)) + mr_tf_len_field(feature);
}

static uint8_t *put_int64_entry(uint8_t *p, const char *key, uint64_t v)
{
    uint64_t packed = varint_len(v), list = mr_tf_len_field(packed);
    p = mr_tf_put_len(p, 1, int64_entry_len(key, v));
    p = put_key(p, key);
    p = mr_tf_put_len(p, 2, mr_tf_len_field(list));
    p = mr_tf_put_len(p, 3, list);
    p = mr_tf_put_len(p, 1, packed);
    return mr_tf_put_varint(p, v);
}

size_t mr_tf_example_prefix(uint64_t payload_bytes, int64_t label, uint8_t out[MR_TF_PREFIX_MAX])
{
    uint64_t list = mr_tf_len_field(payload_bytes), feature = mr_tf_len_field(list);
    uint64_t image = mr_tf_len_field(strlen("image")) + mr_tf_len_field(feature);
    uint64_t features = mr_tf_len_field(image) + mr_tf_len_field(int64_entry_len("size", payload_bytes));
    if (label != MR_LABEL_NONE)
        features += mr_tf_len_field(int64_entry_len("label", (uint64_t)label));
    uint8_t *p = mr_tf_put_len(out, 1, features);
    if (label != MR_LABEL_NONE)
        p = put_int64_entry(p, "label", (uint64_t)label);
    p = put_int64_entry(p, "size", payload_bytes);
    p = mr_tf_put_len(p, 1, image);
    p = put_key(p, "image");
    p = mr_tf_put_len(p, 2, feature);
    p = mr_tf_put_len(p, 1, list);
    p = mr_tf_put_len(p, 1, payload_bytes);
    return (size_t)(p - out);
}
