/* TFRecords whose Examples have several features: a field per feature. A single string is its bytes, several are joined
 * with a zero byte between them; floats are f4, integers i8. The payload (tf_example.h) comes first, or where there is
 * none the first feature that is no label; `label` and `image/class/label` are kept in the manifest where every record
 * has one integer of 32 bits. A record that is no Example is one field, its bytes.
 *
 * A string's ref is its bytes, as without fields; that of numbers is their packed run or, with aux 1, the list's
 * message, as that of several strings is. Checksums cover whole records: VERIFY checks them through the payload.
 *
 * Layout version 2:
 *
 *   0  1  version = 2
 *   1  1  flags: 1 gzip, 2 no ref has aux 1
 *   2  1  kind: bytes = 1, floats = 2, integers = 3
 *   3  1  0
 *   4     array description, with MR_ARRAY_FLEX where lengths differ
 *
 * We write one Features message per field, which readers of protocol buffers join: so that a field's place is known
 * before the next one's length is. f4 becomes floats, i8 integers, other types bytes. */
#include "base/crc32c.h"
#include "base/vec.h"
#include "format/array_common.h"
#include "format/field_gather.h"
#include "format/field_names.h"
#include "format/tf_example.h"
#include "format/tfrecord_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FEATURE_VERSION 2
#define FEATURE_HEAD 4u
#define ALL_DENSE 2

typedef unsigned long long ull;

/* ---- layout and reading ---- */

struct feature_layout {
    unsigned flags;
    enum mr_tf_kind kind;
    struct mr_array_desc desc;
};

bool mr_tfr_is_feature(const struct mr_layout *layout)
{
    return layout->len > FEATURE_HEAD && *(const uint8_t *)layout->data == FEATURE_VERSION;
}

bool mr_tfr_feature_gzip(const struct mr_layout *layout)
{
    return mr_tfr_is_feature(layout) && (((const uint8_t *)layout->data)[1] & MR_TFR_GZIP);
}

static int put_layout(const struct feature_layout *l, struct mr_layout *out, struct mr_error *err)
{
    uint8_t b[FEATURE_HEAD + MR_ARRAY_DESC_MAX] = {FEATURE_VERSION, (uint8_t)l->flags, (uint8_t)l->kind, 0};
    return mr_layout_make(b, FEATURE_HEAD + mr_array_desc_encode(&l->desc, b + FEATURE_HEAD), out, err);
}

static int get_layout(const struct mr_layout *layout, struct feature_layout *l, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    size_t used = 0;
    int rc = mr_array_desc_decode(b + FEATURE_HEAD, layout->len - FEATURE_HEAD, &l->desc, &used, err);
    if (rc < 0)
        return rc;
    l->flags = b[1];
    l->kind = b[2];
    unsigned type = l->kind == MR_TF_FLOATS ? MR_F32 : l->kind == MR_TF_INTEGERS ? MR_I64 : l->desc.dtype;
    if (b[1] > (MR_TFR_GZIP | ALL_DENSE) || b[2] < MR_TF_BYTES || b[2] > MR_TF_INTEGERS || b[3] ||
        used != layout->len - FEATURE_HEAD || type != l->desc.dtype || (l->desc.flags & ~(unsigned)MR_ARRAY_FLEX))
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a feature (%zu bytes)", layout->len);
    return 0;
}

int mr_tfr_feature_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct feature_layout l = {0};
    int rc = get_layout(layout, &l, err);
    if (rc < 0)
        return rc;
    bool gzip = l.flags & MR_TFR_GZIP, parsed = l.kind == MR_TF_INTEGERS || !(l.flags & ALL_DENSE);
    *out = (struct mr_read_cost){.access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .verbatim = !gzip && !parsed,
                                 .note = gzip     ? "gzip: the whole file is inflated once"
                                         : parsed ? "one range per value, which is parsed"
                                                  : "one range per value, nothing to decode"};
    return 0;
}

struct numbers {
    uint8_t *dst;
    size_t cap, bytes; /* bytes counts on beyond cap */
};

static void put(struct numbers *n, const void *data, size_t len)
{
    if (n->bytes <= n->cap && len <= n->cap - n->bytes && len)
        memcpy(n->dst + n->bytes, data, len);
    n->bytes += len;
}

static bool put_varints(struct numbers *n, const uint8_t *p, const uint8_t *end)
{
    uint64_t v;
    while (p < end) {
        if (!mr_tf_get_varint(&p, end, &v))
            return false;
        mr_store_le64(&v, v);
        put(n, &v, sizeof v);
    }
    return true;
}

/* Every value of a list's message. */
static bool put_list(enum mr_tf_kind kind, struct numbers *n, const uint8_t *p, const uint8_t *end)
{
    bool first = true;
    while (p < end) {
        uint64_t tag, v = 0;
        if (!mr_tf_get_varint(&p, end, &tag))
            return false;
        unsigned wire = tag & 7;
        bool ours = tag >> 3 == 1;
        const uint8_t *at = p;
        if (wire == 0 || wire == 2) {
            if (!mr_tf_get_varint(&p, end, &v))
                return false;
            at = p;
        }
        uint64_t len = wire == 2 ? v : wire == 5 ? 4 : wire == 1 ? 8 : 0;
        if ((wire != 0 && wire != 1 && wire != 2 && wire != 5) || len > (uint64_t)(end - p))
            return false;
        p += len;
        if (!ours)
            continue;
        if (kind == MR_TF_INTEGERS && wire == 0) {
            mr_store_le64(&v, v);
            put(n, &v, sizeof v);
        } else if (kind == MR_TF_INTEGERS ? wire != 2 || !put_varints(n, at, p) : wire != 2 && wire != 5) {
            return false;
        } else if (kind != MR_TF_INTEGERS) {
            if (kind == MR_TF_BYTES && !first)
                put(n, "", 1);
            put(n, at, (size_t)len);
        }
        first = false;
    }
    return true;
}

int mr_tfr_feature_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                          const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct feature_layout l = {0};
    int rc = get_layout(layout, &l, err);
    out->label = ref->label;
    if (rc < 0)
        return rc;
    if (!ref->aux && l.kind != MR_TF_INTEGERS)
        return mr_array_deliver_as(d, 0, &l.desc, raw, len, out, err);
    size_t most = l.kind == MR_TF_INTEGERS ? 8 * len : len; /* a number takes at least a byte */
    bool here = out->dst != NULL;
    struct numbers n = {.dst = here ? out->dst : mr_decoder_scratch(d, 0, MR_MAX(most, (size_t)1)),
                        .cap = here ? out->dst_cap : most};
    if (!n.dst)
        return mr_error_set(err, -ENOMEM, "cannot get %zu bytes for a feature", most);
    const uint8_t *p = raw, *end = p + len;
    if (ref->aux ? !put_list(l.kind, &n, p, end) : !put_varints(&n, p, end))
        return mr_error_plain(err, MR_E_FORMAT, "the feature at offset %llu is no list of values",
                              (ull)ref->raw.offset);
    if (n.bytes > n.cap) {
        out->bytes = n.bytes;
        return mr_error_plain(err, MR_E_LIMIT, "the feature has %zu bytes, the buffer %zu", n.bytes, n.cap);
    }
    if ((rc = mr_array_desc_resolve(&l.desc, n.bytes, err)) < 0)
        return rc;
    out->data = n.dst;
    out->bytes = n.bytes;
    out->dtype = l.desc.dtype;
    out->dims = l.desc.dims;
    return 0;
}

/* ---- finding ---- */

#define NO_LABEL 1u /* bits of mr_gather_field.any */
#define SPARSE 2u   /* a ref has aux 1 */
#define EMPTY 4u    /* a Feature without a list */

struct fields_scan {
    struct mr_gather g;
    struct mr_tf_list list;
    bool raw; /* records are no Examples */
    bool gzip, named;
    unsigned label; /* number of its field */
    bool has_label;
};

static int source_get(void *ctx, uint64_t offset, size_t len, const uint8_t **out, struct mr_error *err)
{
    return mr_stream_in_get(ctx, offset, len, out, err);
}

static unsigned rank_of(const char *name, size_t len, const char *const *names, unsigned n)
{
    unsigned i = 0;
    while (i < n && (strlen(names[i]) != len || memcmp(names[i], name, len) != 0))
        i++;
    return i;
}

static unsigned label_rank(const struct mr_tf_feature *f)
{
    static const char *const names[] = {"label", "image/class/label"};
    bool one = f->kind == MR_TF_INTEGERS && f->values == 1;
    return one ? rank_of(f->name, f->name_len, names, 2) : 2;
}

/* The payload by its name; else the only string; else the first feature that is no label. */
static const struct mr_tf_feature *choose_primary(struct fields_scan *t)
{
    static const char *const names[] = {"image/encoded", "image", "image_raw", "data", "x"};
    const unsigned none = MR_ARRAY_LEN(names);
    const struct mr_tf_feature *best = NULL, *string = NULL, *any = NULL;
    unsigned rank = none, strings = 0;
    for (size_t i = 0; i < t->list.n; i++) {
        const struct mr_tf_feature *f = &t->list.item[i];
        if (!mr_gather_wants(&t->g, f->name, f->name_len))
            continue;
        unsigned r = rank_of(f->name, f->name_len, names, none);
        if (r < rank) {
            rank = r;
            best = f;
        }
        if (f->kind == MR_TF_BYTES && f->values == 1) {
            string = f;
            strings++;
        }
        if (label_rank(f) == 2 && (!any || strcmp(f->name, any->name) < 0))
            any = f;
    }
    t->named = best || strings == 1;
    return best ? best : strings == 1 ? string : any ? any : &t->list.item[0];
}

static bool is_picture(struct mr_stream_in *in, const struct mr_tf_feature *f)
{
    const uint8_t *p;
    if (f->kind != MR_TF_BYTES || !f->dense || f->bytes < 16 || mr_stream_in_get(in, f->at, 8, &p, NULL) < 0)
        return false;
    return memcmp(p, "\xff\xd8\xff", 3) == 0 || memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static int add_feature(struct fields_scan *t, struct mr_stream_in *in, const struct mr_tfr_record *r,
                       const struct mr_tf_feature *f, unsigned k, bool payload, struct mr_error *err)
{
    static const enum mr_dtype dtype[] = {MR_U8, MR_U8, MR_F32, MR_I64};
    struct mr_gather_field *x = &t->g.field[k];
    struct mr_gather_value v = {.dtype = dtype[f->kind], .dims = {1, {f->kind == MR_TF_BYTES ? f->bytes : f->values}}};
    x->any |= f->dense ? 0 : SPARSE;
    x->any |=
        f->kind == MR_TF_INTEGERS && f->values == 1 && f->first > INT32_MIN && f->first <= INT32_MAX ? 0 : NO_LABEL;
    if (f->kind == MR_TF_NONE) { /* it has no type; what others say holds */
        x->any |= EMPTY;
        x->ref = (struct mr_sample_ref){.raw = {r->at + MR_TFR_HEAD, 0}};
        t->g.n_seen += !x->seen;
        x->seen = true;
        return 0;
    }
    x->first = f->kind;
    v.ref.raw = f->dense ? (struct mr_extent){f->at, f->bytes} : (struct mr_extent){f->list_at, f->list_bytes};
    v.ref.aux = !f->dense;
    if (f->kind == MR_TF_BYTES && !f->dense)
        v.dims.dim[0] = f->list_bytes; /* differs anyway */
    if (!x->known && is_picture(in, f)) {
        v.storage = MR_FIELD_JPEG;
        v.any_shape = true;
    } else if (x->known && x->field.storage == MR_FIELD_JPEG) {
        v.any_shape = true;
    }
    int rc = 0;
    if (payload && f->kind == MR_TF_BYTES && f->dense)
        rc = mr_tfr_payload_ref(in, r, f->at, f->bytes, &v.ref, err);
    return rc < 0 ? rc : mr_gather_value(&t->g, k, &v, NULL, err);
}

static int add_bytes(struct fields_scan *t, struct mr_stream_in *in, const struct mr_tfr_record *r,
                     struct mr_error *err)
{
    struct mr_gather_value v = {.dtype = MR_U8, .dims = {1, {r->len}}};
    unsigned k;
    t->raw = true;
    int rc = mr_gather_find(&t->g, "data", 4, NULL, &k, err);
    if (rc == 0)
        rc = mr_tfr_payload_ref(in, r, r->at + MR_TFR_HEAD, r->len, &v.ref, err);
    if (rc == 0)
        rc = mr_gather_value(&t->g, k, &v, NULL, err);
    return rc < 0 ? rc : mr_gather_sample(&t->g, NULL, err);
}

static int take_record(void *user, struct mr_stream_in *in, const struct mr_tfr_record *r, struct mr_error *err)
{
    struct fields_scan *t = user;
    int rc = mr_tf_example_list(&(struct mr_tf_source){source_get, in}, r->at + MR_TFR_HEAD, r->len, &t->list, err);
    if (rc < 0)
        return rc;
    if (rc == 0 && (t->raw || !t->g.samples))
        return add_bytes(t, in, r, err);
    if (rc == 0 || t->raw)
        return mr_error_plain(err, MR_E_FORMAT, "record %llu of '%s' is %s Example, and those before it %s",
                              (ull)r->number, in->path, rc ? "an" : "no", rc ? "are not" : "are");
    const struct mr_tf_feature *first = t->g.samples ? NULL : choose_primary(t);
    unsigned best = 2;
    for (size_t i = 0; i < t->list.n && rc >= 0; i++) {
        const struct mr_tf_feature *f = &t->list.item[i];
        unsigned k;
        rc = mr_gather_find(&t->g, f->name, f->name_len, NULL, &k, err);
        if (rc)
            continue;
        if (!t->g.samples && f != first && label_rank(f) < best) {
            best = label_rank(f);
            t->label = k;
            t->has_label = true;
        }
        if (t->has_label && k == t->label && f->kind == MR_TF_INTEGERS && f->values == 1)
            t->g.label = f->first;
        if (!t->g.samples && f == first)
            t->g.primary = k;
        rc = add_feature(t, in, r, f, k, t->g.samples ? k == mr_gather_primary(&t->g) : f == first, err);
    }
    return rc < 0 ? rc : mr_gather_sample(&t->g, NULL, err);
}

static enum mr_field_role role_of(const struct fields_scan *t, const struct mr_gather_field *f)
{
    enum mr_field_role role = mr_field_role_of_name(f->name);
    if (strncmp(f->name, "image/", 6) == 0 && strcmp(f->name, "image/class/label") != 0)
        return MR_FIELD_OTHER;
    return role != MR_FIELD_INPUT || !t->named ? role : MR_FIELD_OTHER;
}

static int field_layout(const struct fields_scan *t, struct mr_gather_field *f, struct mr_layout *out,
                        struct mr_error *err)
{
    if (f->any & EMPTY)
        mr_field_widen(&f->field, &(struct mr_field){.variable = MR_FIELD_FIXED, .dims = {.n = 1}});
    bool strings = f->field.dtype == MR_U8;
    if (!f->known)
        f->field = (struct mr_field){.dtype = MR_U8, .variable = 0, .dims = {.n = 1}};
    if (strings && (f->any & SPARSE)) {
        f->field.variable = 0;
        f->field.dims = (struct mr_dims){.n = 1};
    }
    if (strings && !(f->any & SPARSE))
        return mr_tfr_layout(t->gzip, out, err);
    struct feature_layout l = {.flags = (t->gzip ? MR_TFR_GZIP : 0) | (f->any & SPARSE ? 0 : ALL_DENSE),
                               .kind = (enum mr_tf_kind)f->first};
    if (f->field.variable == MR_FIELD_FIXED && f->field.dims.dim[0] == 1)
        f->field.dims.n = 0; /* one number in each */
    l.desc = (struct mr_array_desc){
        .dtype = f->field.dtype, .flags = f->field.variable == 0 ? MR_ARRAY_FLEX : 0, .dims = f->field.dims};
    return put_layout(&l, out, err);
}

static int settle_feature(void *user, struct mr_gather_field *f, unsigned k, bool primary, struct mr_layout *out,
                          struct mr_error *err)
{
    const struct fields_scan *t = user;
    if (!f)
        return mr_tfr_layout(t->gzip, out, err);
    bool label = t->has_label && k == t->label && !primary && !(f->any & NO_LABEL);
    enum mr_field_role role = primary ? MR_FIELD_INPUT : label ? MR_FIELD_TARGET : role_of(t, f);
    int rc = label ? 0 : field_layout(t, f, out, err);
    if (label)
        f->field.storage = MR_FIELD_LABEL;
    f->field.role = role;
    return rc;
}

static int scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                       struct mr_error *err)
{
    struct fields_scan t = {0};
    (void)flags;
    mr_gather_init(&t.g, sink, path, "feature");
    int rc = mr_tfr_walk(s, path, take_record, &t, &t.gzip, err);
    if (rc >= 0)
        rc = mr_gather_finish(&t.g, settle_feature, &t, err);
    mr_gather_done(&t.g);
    free(t.list.item);
    return rc < 0 ? rc : 0;
}

/* ---- writing ---- */

struct bytes {
    uint8_t *item;
    size_t n, cap;
};

struct fields_writer {
    struct mr_writer base;
    struct mr_stream_out *out, *index;
    struct bytes record, value; /* the data of the record so far; the field's value, as its list has it */
    struct mr_sample_info info;
    uint64_t written;
    unsigned n, last; /* the last field that is written */
    bool gzip;
    unsigned carry_len; /* an integer of which only the beginning came */
    uint8_t carry[8];
    struct mr_field field[]; /* names are borrowed until the writer is closed */
};

static enum mr_tf_kind kind_of(enum mr_dtype t)
{
    return t == MR_F32 ? MR_TF_FLOATS : t == MR_I64 ? MR_TF_INTEGERS : MR_TF_BYTES;
}

static void fields_abort(struct mr_writer *base)
{
    struct fields_writer *w = (struct fields_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    mr_stream_out_abort(w->index);
    free(w->record.item);
    free(w->value.item);
    free(w);
}

static int fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    char side[MR_TFR_PATH_MAX];
    int rc = mr_tfr_index_path(path, side, err);
    if (rc < 0)
        return rc;
    struct fields_writer *w = calloc(1, sizeof(*w) + n * sizeof(w->field[0]));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->n = n;
    memcpy(w->field, fields, n * sizeof(w->field[0]));
    for (unsigned k = 0; k < n; k++)
        w->last = fields[k].storage == MR_FIELD_LABEL ? w->last : k;
    w->gzip = spec->compression == MR_COMP_GZIP;
    rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc >= 0)
        rc = mr_stream_out_open(s, side, MR_COMP_NONE, 0, MR_TFR_INDEX_BUFFER, &w->index, err);
    if (rc < 0) {
        fields_abort(&w->base);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int append(struct bytes *b, const void *data, size_t len, struct mr_error *err)
{
    if (MR_VEC_RESERVE(b, b->n + len) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep a record of %zu bytes", b->n + len);
    if (len)
        memcpy(b->item + b->n, data, len);
    b->n += len;
    return 0;
}

/* The value as a Features message of its own. *at: where it lies in the record's data. */
static int append_feature(struct fields_writer *w, const char *name, enum mr_tf_kind kind, size_t *at,
                          struct mr_error *err)
{
    uint8_t head[64 + MR_FIELD_NAME_MAX], *p = head;
    size_t key = strlen(name);
    uint64_t list = mr_tf_len_field(w->value.n), feature = mr_tf_len_field(list);
    uint64_t entry = mr_tf_len_field(key) + mr_tf_len_field(feature);
    p = mr_tf_put_len(p, 1, mr_tf_len_field(entry));
    p = mr_tf_put_len(p, 1, entry);
    p = mr_tf_put_len(p, 1, key);
    memcpy(p, name, key);
    p = mr_tf_put_len(p + key, 2, feature);
    p = mr_tf_put_len(p, (unsigned)kind, list);
    p = mr_tf_put_len(p, 1, w->value.n);
    int rc = append(&w->record, head, (size_t)(p - head), err);
    *at = w->record.n;
    return rc < 0 ? rc : append(&w->record, w->value.item, w->value.n, err);
}

static int put_label(struct fields_writer *w, int64_t label, struct mr_error *err)
{
    uint8_t v[10];
    size_t at;
    for (unsigned k = 0; k < w->n; k++)
        if (w->field[k].storage == MR_FIELD_LABEL) {
            w->value.n = 0;
            int rc = append(&w->value, v, (size_t)(mr_tf_put_varint(v, (uint64_t)label) - v), err);
            return rc < 0 ? rc : append_feature(w, w->field[k].name, MR_TF_INTEGERS, &at, err);
        }
    return 0;
}

static int fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = 0;
    if (field == 0) {
        w->record.n = 0;
        rc = put_label(w, info->label, err);
    }
    w->info = *info;
    w->written = 0;
    w->carry_len = 0;
    w->value.n = 0;
    return rc;
}

static int fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    const uint8_t *p = data, *end = p + len;
    w->written += len;
    if (kind_of(w->info.dtype) != MR_TF_INTEGERS)
        return append(&w->value, data, len, err);
    while (p < end) {
        uint8_t v[10];
        size_t n = MR_MIN((size_t)(end - p), sizeof w->carry - w->carry_len);
        memcpy(w->carry + w->carry_len, p, n);
        w->carry_len += (unsigned)n;
        p += n;
        if (w->carry_len < sizeof w->carry)
            break;
        w->carry_len = 0;
        int rc = append(&w->value, v, (size_t)(mr_tf_put_varint(v, mr_load_le64(w->carry)) - v), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The record, whose data is complete. */
static int put_record(struct fields_writer *w, struct mr_error *err)
{
    uint8_t head[MR_TFR_HEAD], tail[MR_TFR_TAIL];
    uint64_t start = mr_stream_out_position(w->out);
    mr_store_le64(head, w->record.n);
    mr_store_le32(head + 8, mr_crc32c_mask(mr_crc32c(0, head, 8)));
    mr_store_le32(tail, mr_crc32c_mask(mr_crc32c(0, w->record.item, w->record.n)));
    int rc = mr_stream_out_put(w->out, head, sizeof head, err);
    if (rc >= 0)
        rc = mr_stream_out_put(w->out, w->record.item, w->record.n, err);
    if (rc >= 0)
        rc = mr_stream_out_put(w->out, tail, sizeof tail, err);
    return rc < 0 ? rc : mr_tfr_put_index_line(w->index, start, mr_stream_out_position(w->out) - start, err);
}

static int fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    size_t at = 0;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = append_feature(w, w->field[field].name, kind_of(w->info.dtype), &at, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {mr_stream_out_position(w->out) + MR_TFR_HEAD + at, w->value.n},
                                  .label = w->info.label};
    return field == w->last ? put_record(w, err) : 0;
}

static int written_layout(void *writer, unsigned k, struct mr_layout *out, struct mr_error *err)
{
    const struct fields_writer *w = writer;
    const struct mr_field *f = &w->field[k];
    const struct feature_layout l = {.flags = ALL_DENSE | (w->gzip ? MR_TFR_GZIP : 0),
                                     .kind = kind_of(f->dtype),
                                     .desc = {.dtype = f->dtype, .dims = f->dims}};
    return put_layout(&l, out, err);
}

static int fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    uint64_t bytes = 0;
    int rc = mr_stream_out_close(w->out, &bytes, err);
    int index_rc = mr_stream_out_close(w->index, NULL, rc < 0 ? NULL : err);
    w->out = w->index = NULL;
    rc = mr_field_layouts(w->field, w->n, rc < 0 ? rc : index_rc, written_layout, w, layouts, err);
    if (rc >= 0)
        *file_bytes = bytes;
    fields_abort(&w->base);
    return rc;
}

const struct mr_field_ops mr_tfr_field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = scan_fields,
    .writer_open = fields_open,
    .begin = fields_begin,
    .data = fields_data,
    .end = fields_end,
    .writer_close = fields_close,
    .writer_abort = fields_abort,
};
