/* Reading and building schemas: see schema.h; the byte table is in doc/internals/fields.md. A schema comes from a
 * manifest, so it is untrusted input. Invariants after a successful parse:
 *   1. every packed column's data lies inside section 17 and has count * width bytes;
 *   2. columns of samples have N values, columns of layouts F, each below L;
 *   3. names are sound and differ; the first field is no label and at most one is;
 *   4. a variable axis is below the number of dimensions, and its dimension is 0. */
#include "dataset/schema.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECTION_VERSION 1u
#define HEAD_BYTES 16u
#define FIELD_BYTES 128u
#define COLUMN_BYTES 40u
#define NO_COLUMN 0xffffffffu
#define DATA_ALIGN 8u

enum {
    F_NAME = 0,
    F_LEN = 4,
    F_DTYPE = 8,
    F_STORAGE,
    F_ROLE,
    F_NDIM,
    F_VARIABLE,
    F_DIMS = 16,
    F_SUM = 80,
    F_MIN = 88,
    F_MAX = 96,
    F_COLUMN = 104
};
enum { C_ENC = 0, C_WIDTH = 1, C_COUNT = 8, C_BASE = 16, C_STEP = 24, C_DATA = 32 };
enum { FIXED = 255, ANY_SHAPE = 254 };

static const unsigned raw_width[MR_FC_COUNT] = {6, 5, 3, 4};

bool mr_field_name_is_sound(const char *name, size_t len)
{
    if (len == 0 || len >= MR_FIELD_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return false;
    return true;
}

void mr_schema_done(struct mr_schema *s)
{
    free(s->field);
    free(s->names);
    *s = (struct mr_schema){0};
}

int mr_schema_find(const struct mr_schema *s, const char *name)
{
    for (unsigned i = 0; i < s->n; i++)
        if (strcmp(s->field[i].field.name, name) == 0)
            return (int)i;
    return -1;
}

/* ---- parsing ---- */

struct parse {
    const struct mr_schema_source *from;
    const uint8_t *fields, *columns, *names;
    uint32_t n, n_columns, names_bytes;
    struct mr_error *err;
};

static int bad(const struct parse *p, const char *what, uint64_t want, uint64_t have)
{
    mr_error_set(p->err, MR_E_FORMAT, "manifest '%s' is damaged: %s (want %llu, have %llu)", p->from->name, what,
                 (unsigned long long)want, (unsigned long long)have);
    mr_error_context(p->err, "in section 'fields'");
    return mr_error_hint(p->err, "write it again with 'millrace gen' (generated sets) or 'millrace scan'"), MR_E_FORMAT;
}

static int open_section(struct parse *p)
{
    const struct mr_column *c = p->from->fields;
    if (c->encoding != MR_COLUMN_BLOB || p->from->data->encoding != MR_COLUMN_BLOB)
        return bad(p, "sections 16 and 17 are not both there as bytes", MR_COLUMN_BLOB, p->from->data->encoding);
    if (c->count < HEAD_BYTES)
        return bad(p, "bytes of its head", HEAD_BYTES, c->count);
    uint32_t version = mr_load_le32(c->data);
    if (version != SECTION_VERSION)
        return bad(p, "version", SECTION_VERSION, version);
    p->n = mr_load_le32(c->data + 4);
    p->n_columns = mr_load_le32(c->data + 8);
    p->names_bytes = mr_load_le32(c->data + 12);
    uint64_t want = HEAD_BYTES + (uint64_t)p->n * FIELD_BYTES + (uint64_t)p->n_columns * COLUMN_BYTES + p->names_bytes;
    if (p->n == 0 || p->n > MR_FIELDS_MAX)
        return bad(p, "number of fields", MR_FIELDS_MAX, p->n);
    if (want != c->count)
        return bad(p, "bytes of fields, columns and names", want, c->count);
    p->fields = c->data + HEAD_BYTES;
    p->columns = p->fields + (size_t)p->n * FIELD_BYTES;
    p->names = p->columns + (size_t)p->n_columns * COLUMN_BYTES;
    return 0;
}

static int take_column(const struct parse *p, uint32_t number, uint64_t count, struct mr_column *out)
{
    const uint8_t *b = p->columns + (size_t)number * COLUMN_BYTES;
    struct mr_column c = {.encoding = b[C_ENC],
                          .width = b[C_WIDTH],
                          .count = mr_load_le64(b + C_COUNT),
                          .base = mr_load_le64(b + C_BASE),
                          .step = mr_load_le64(b + C_STEP)};
    uint64_t at = mr_load_le64(b + C_DATA), room = p->from->data->count;
    if (c.encoding < MR_COLUMN_CONST || c.encoding > MR_COLUMN_PACKED)
        return bad(p, "encoding of a column", MR_COLUMN_PACKED, c.encoding);
    if (c.count != count)
        return bad(p, "values of a column", count, c.count);
    if (c.encoding == MR_COLUMN_PACKED) {
        if (c.width < 1 || c.width > 8 || at > room || c.count > (room - at) / c.width)
            return bad(p, "data of a column end beyond section 17", room, at);
        c.data = p->from->data->data + at;
        c.data_bytes = c.count * c.width;
    }
    *out = c;
    return 0;
}

static int check_layouts(const struct parse *p, const struct mr_column *c)
{
    if (c->encoding == MR_COLUMN_AFFINE && c->count > 1) { /* written out only where it is small enough to look at */
        __int128 last = (__int128)c->base + (__int128)(int64_t)c->step * (__int128)(c->count - 1);
        if (last < 0 || last >= p->from->layouts)
            return bad(p, "number of a layout", p->from->layouts, (uint64_t)last);
    }
    for (uint64_t i = 0; i < (c->encoding == MR_COLUMN_PACKED ? c->count : MR_MIN(c->count, 1u)); i++)
        if (mr_column_get(c, i, i) >= p->from->layouts)
            return bad(p, "number of a layout", p->from->layouts, mr_column_get(c, i, i));
    return 0;
}

static int take_columns(const struct parse *p, uint32_t first, struct mr_schema_field *f)
{
    if (first > p->n_columns || p->n_columns - first < MR_FC_COUNT)
        return bad(p, "a field's columns", p->n_columns, first);
    for (unsigned k = 0; k < MR_FC_COUNT; k++) {
        int rc = take_column(p, first + k, k == MR_FC_LAYOUT ? p->from->files : p->from->samples, &f->column[k]);
        if (rc)
            return rc;
    }
    f->own = true;
    return check_layouts(p, &f->column[MR_FC_LAYOUT]);
}

static int take_shape(const struct parse *p, const uint8_t *b, struct mr_field *f)
{
    if (b[F_DTYPE] >= MR_DTYPE_COUNT || b[F_STORAGE] >= MR_FIELD_STORAGES || b[F_ROLE] >= MR_FIELD_ROLES)
        return bad(p, "dtype, storage or role of a field", MR_DTYPE_COUNT, b[F_DTYPE]);
    f->dtype = b[F_DTYPE];
    f->storage = b[F_STORAGE];
    f->role = b[F_ROLE];
    f->dims.n = b[F_NDIM];
    if (f->dims.n > MR_DIMS_MAX)
        return bad(p, "dimensions of a field", MR_DIMS_MAX, f->dims.n);
    for (unsigned d = 0; d < f->dims.n; d++)
        f->dims.dim[d] = mr_load_le64(b + F_DIMS + 8 * d);
    unsigned v = b[F_VARIABLE];
    f->variable = v == FIXED ? MR_FIELD_FIXED : v == ANY_SHAPE ? MR_FIELD_ANY_SHAPE : (int)v;
    if (f->variable >= 0 && (v >= f->dims.n || f->dims.dim[v]))
        return bad(p, "variable axis of a field", f->dims.n, v);
    return 0;
}

static int take_field(const struct parse *p, uint32_t i, struct mr_schema *s, char *to)
{
    const uint8_t *b = p->fields + (size_t)i * FIELD_BYTES;
    uint32_t at = mr_load_le32(b + F_NAME), len = mr_load_le32(b + F_LEN), first = mr_load_le32(b + F_COLUMN);
    struct mr_schema_field *f = &s->field[i];
    if (at > p->names_bytes || len > p->names_bytes - at || !mr_field_name_is_sound((const char *)p->names + at, len))
        return bad(p, "name of a field", p->names_bytes, at);
    memcpy(to, p->names + at, len);
    f->field.name = to;
    int rc = take_shape(p, b, &f->field);
    if (rc)
        return rc;
    f->sum_bytes = mr_load_le64(b + F_SUM);
    f->min_bytes = mr_load_le64(b + F_MIN);
    f->max_bytes = mr_load_le64(b + F_MAX);
    bool own = mr_field_is_own(&f->field, i);
    if (own != (first != NO_COLUMN) || (i == 0 && f->field.storage == MR_FIELD_LABEL))
        return bad(p, "columns of a field", own, first);
    return own ? take_columns(p, first, f) : 0;
}

static int check_names(const struct parse *p, const struct mr_schema *s)
{
    unsigned labels = 0;
    for (unsigned i = 0; i < s->n; i++) {
        labels += s->field[i].field.storage == MR_FIELD_LABEL;
        if (mr_schema_find(s, s->field[i].field.name) != (int)i)
            return bad(p, "a name that two fields have", i, (uint64_t)mr_schema_find(s, s->field[i].field.name));
    }
    return labels > 1 ? bad(p, "fields that are labels", 1, labels) : 0;
}

static int reserve(struct mr_schema *s, unsigned n, size_t names, struct mr_error *err)
{
    s->field = calloc(n, sizeof(*s->field));
    s->names = calloc(1, names);
    s->n = n;
    return s->field && s->names ? 0 : mr_error_set(err, -ENOMEM, "cannot keep a schema of %u fields", n);
}

int mr_schema_parse(const struct mr_schema_source *from, struct mr_schema *out, struct mr_error *err)
{
    struct parse p = {.from = from, .err = err};
    struct mr_schema s = {.stored = true};
    int rc = open_section(&p);
    if (rc || (rc = reserve(&s, p.n, (size_t)p.n * MR_FIELD_NAME_MAX, err))) {
        mr_schema_done(&s);
        return rc;
    }
    for (uint32_t i = 0; i < p.n && !rc; i++)
        rc = take_field(&p, i, &s, s.names + (size_t)i * MR_FIELD_NAME_MAX);
    if (!rc)
        rc = check_names(&p, &s);
    if (rc)
        mr_schema_done(&s);
    else
        *out = s;
    return rc;
}

int mr_schema_make_up(enum mr_dtype dtype, const struct mr_dims *dims, uint64_t sum, uint64_t min, uint64_t max,
                      bool has_label, struct mr_schema *out, struct mr_error *err)
{
    static const char names[] = "data\0label";
    struct mr_schema s = {0};
    int rc = reserve(&s, 1 + has_label, sizeof names, err);
    if (rc) {
        mr_schema_done(&s);
        return rc;
    }
    memcpy(s.names, names, sizeof names);
    s.field[0] = (struct mr_schema_field){.field = {.name = s.names,
                                                    .dtype = dtype,
                                                    .variable = dims->n ? MR_FIELD_FIXED : MR_FIELD_ANY_SHAPE,
                                                    .dims = *dims},
                                          .sum_bytes = sum,
                                          .min_bytes = min,
                                          .max_bytes = max};
    if (has_label)
        s.field[1] = (struct mr_schema_field){.field = {.name = s.names + strlen("data") + 1,
                                                        .dtype = MR_I64,
                                                        .storage = MR_FIELD_LABEL,
                                                        .role = MR_FIELD_TARGET,
                                                        .variable = MR_FIELD_FIXED}};
    *out = s;
    return 0;
}

/* ---- building ---- */

struct own_field {
    struct mr_colbuild build[MR_FC_COUNT];
    uint64_t sum, min, max;
};

struct mr_schema_builder {
    unsigned n;
    uint64_t files;
    struct own_field own[];
};

struct mr_schema_builder *mr_schema_builder_create(unsigned n_own)
{
    struct mr_schema_builder *b = calloc(1, sizeof(*b) + n_own * sizeof(b->own[0]));
    if (!b)
        return NULL;
    b->n = n_own;
    for (unsigned i = 0; i < n_own; i++) {
        b->own[i].min = UINT64_MAX;
        for (unsigned k = 0; k < MR_FC_COUNT; k++)
            b->own[i].build[k].raw_width = raw_width[k];
    }
    return b;
}

void mr_schema_builder_free(struct mr_schema_builder *b)
{
    for (unsigned i = 0; b && i < b->n; i++)
        for (unsigned k = 0; k < MR_FC_COUNT; k++)
            mr_colbuild_done(&b->own[i].build[k]);
    free(b);
}

static void count_lengths(struct own_field *o, const struct mr_column *c)
{
    bool constant = c->encoding == MR_COLUMN_CONST;
    for (uint64_t j = 0; j < (constant ? MR_MIN(c->count, 1u) : c->count); j++) {
        uint64_t v = mr_column_get(c, j, j);
        o->sum += constant ? v * c->count : v;
        o->min = MR_MIN(o->min, v);
        o->max = MR_MAX(o->max, v);
    }
}

int mr_schema_builder_add(struct mr_schema_builder *b, const struct mr_field_values *values, const uint64_t *layout)
{
    for (unsigned i = 0; i < b->n; i++) {
        for (unsigned k = 0; k < MR_FC_LAYOUT; k++)
            if (mr_colbuild_add_group(&b->own[i].build[k], &values[i].column[k]) < 0)
                return -ENOMEM;
        if (mr_colbuild_add(&b->own[i].build[MR_FC_LAYOUT], b->files, layout[i]) < 0)
            return -ENOMEM;
        count_lengths(&b->own[i], &values[i].column[MR_FC_LENGTH]);
    }
    b->files++;
    return 0;
}

static void put_field(uint8_t *b, const struct mr_field *f, uint32_t name_at, uint32_t column, const uint64_t sums[3])
{
    mr_store_le32(b + F_NAME, name_at);
    mr_store_le32(b + F_LEN, (uint32_t)strlen(f->name));
    b[F_DTYPE] = (uint8_t)f->dtype;
    b[F_STORAGE] = (uint8_t)f->storage;
    b[F_ROLE] = (uint8_t)f->role;
    b[F_NDIM] = (uint8_t)f->dims.n;
    b[F_VARIABLE] = f->variable == MR_FIELD_FIXED       ? FIXED
                    : f->variable == MR_FIELD_ANY_SHAPE ? ANY_SHAPE
                                                        : (uint8_t)f->variable;
    for (unsigned d = 0; d < f->dims.n; d++)
        mr_store_le64(b + F_DIMS + 8 * d, (int)d == f->variable ? 0 : f->dims.dim[d]);
    for (unsigned k = 0; k < 3; k++)
        mr_store_le64(b + F_SUM + 8 * k, sums[k]);
    mr_store_le32(b + F_COLUMN, column);
}

static void put_column(struct mr_strbuf *columns, struct mr_strbuf *data, struct mr_colbuild *build)
{
    static const char zeros[DATA_ALIGN];
    uint8_t b[COLUMN_BYTES] = {0};
    struct mr_column c;
    mr_colbuild_finish(build, &c);
    b[C_ENC] = c.encoding;
    b[C_WIDTH] = c.width;
    mr_store_le64(b + C_COUNT, c.count);
    mr_store_le64(b + C_BASE, c.base);
    mr_store_le64(b + C_STEP, c.step);
    if (c.data_bytes) {
        mr_strbuf_add(data, zeros, MR_ALIGN_UP(data->len, (size_t)DATA_ALIGN) - data->len);
        mr_store_le64(b + C_DATA, data->len);
        mr_strbuf_add(data, (const char *)c.data, c.data_bytes);
    }
    mr_strbuf_add(columns, (const char *)b, sizeof b);
}

int mr_schema_builder_finish(struct mr_schema_builder *b, const struct mr_field *fields, unsigned n,
                             const uint64_t primary[3], struct mr_strbuf *section, struct mr_strbuf *data,
                             struct mr_error *err)
{
    struct mr_strbuf columns = {0}, names = {0}, records = {0};
    unsigned own = 0;
    for (unsigned i = 0; i < n; i++) {
        uint8_t record[FIELD_BYTES] = {0};
        static const uint64_t none[3];
        uint64_t sums[3];
        memcpy(sums, i ? none : primary, sizeof sums);
        uint32_t column = NO_COLUMN;
        if (mr_field_is_own(&fields[i], i)) {
            struct own_field *o = &b->own[own];
            assert(own < b->n);
            column = own++ * MR_FC_COUNT;
            memcpy(sums, (uint64_t[3]){o->sum, o->min == UINT64_MAX ? 0 : o->min, o->max}, sizeof sums);
            for (unsigned k = 0; k < MR_FC_COUNT; k++)
                put_column(&columns, data, &o->build[k]);
        }
        put_field(record, &fields[i], (uint32_t)names.len, column, sums);
        mr_strbuf_add(&records, (const char *)record, sizeof record);
        mr_strbuf_puts(&names, fields[i].name);
    }
    uint8_t head[HEAD_BYTES];
    mr_store_le32(head, SECTION_VERSION);
    mr_store_le32(head + 4, n);
    mr_store_le32(head + 8, own * MR_FC_COUNT);
    mr_store_le32(head + 12, (uint32_t)names.len);
    mr_strbuf_add(section, (const char *)head, sizeof head);
    mr_strbuf_add(section, records.text, records.len);
    mr_strbuf_add(section, columns.text ? columns.text : "", columns.len);
    mr_strbuf_add(section, names.text, names.len);
    bool failed = section->failed || records.failed || columns.failed || names.failed || data->failed;
    mr_strbuf_done(&columns);
    mr_strbuf_done(&names);
    mr_strbuf_done(&records);
    return failed ? mr_error_set(err, -ENOMEM, "cannot write a schema of %u fields", n) : 0;
}
