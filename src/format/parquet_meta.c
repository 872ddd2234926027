/* Footers and page headers of Parquet: see parquet_meta.h. */
#include "format/parquet_meta.h"
#include "base/vec.h"
#include "format/array_common.h"
#include "format/parquet_thrift.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_BYTES (64u * 1024u) /* most footers lie in what is read first */
#define FOOTER_MAX ((uint64_t)1 << 30)
#define GROUPS_MAX ((uint64_t)1 << 24)

typedef unsigned long long ull;

/* ---- schema ---- */

enum repetition { REQUIRED, OPTIONAL, REPEATED };
enum logical { NO_LOGICAL = 0, STRING = 1, LIST = 3, ENUM = 4, DECIMAL = 5, INTEGER = 10, JSON = 12, FLOAT16 = 15 };

struct element {
    int type, repetition, children, converted, logical;
    uint32_t length;
    const char *name;
    size_t name_len;
    int bits;
    bool is_signed;
};

static void read_logical(struct mr_thrift *t, unsigned type, struct element *e)
{
    struct mr_thrift_field f = {0}, g = {0};
    if (type != MR_THRIFT_STRUCT) {
        mr_thrift_skip(t, type);
        return;
    }
    while (mr_thrift_next(t, &f)) {
        e->logical = f.id;
        if (f.id != INTEGER || f.type != MR_THRIFT_STRUCT) {
            mr_thrift_skip(t, f.type);
            continue;
        }
        for (g = (struct mr_thrift_field){0}; mr_thrift_next(t, &g);) {
            int64_t v = mr_thrift_int(t, g.type);
            e->bits = g.id == 1 ? (int)v : e->bits;
            e->is_signed = g.id == 2 ? v : e->is_signed;
        }
    }
}

static void read_element(struct mr_thrift *t, struct element *e)
{
    struct mr_thrift_field f = {0};
    *e = (struct element){.type = -1, .converted = -1};
    while (mr_thrift_next(t, &f))
        switch (f.id) {
        case 1: e->type = (int)mr_thrift_int(t, f.type); break;
        case 2: e->length = (uint32_t)mr_thrift_int(t, f.type); break;
        case 3: e->repetition = (int)mr_thrift_int(t, f.type); break;
        case 4: e->name = (const char *)mr_thrift_bytes(t, f.type, &e->name_len); break;
        case 5: e->children = (int)mr_thrift_int(t, f.type); break;
        case 6: e->converted = (int)mr_thrift_int(t, f.type); break;
        case 10: read_logical(t, f.type, e); break;
        default: mr_thrift_skip(t, f.type);
        }
    if (e->converted >= 11 && e->converted <= 18 && !e->bits) { /* UINT_8 ... INT_64 */
        e->bits = 8 << (e->converted - 11) % 4;
        e->is_signed = e->converted >= 15;
    }
}

static bool is_decimal(const struct element *e)
{
    return e->logical == DECIMAL || e->converted == 5;
}

static bool is_text(const struct element *e)
{
    return e->logical == STRING || e->logical == ENUM || e->logical == JSON || e->converted == 0 || e->converted == 4 ||
           e->converted == 19;
}

static uint8_t int_dtype(const struct element *e, unsigned most_bits)
{
    static const uint8_t dtype[2][4] = {{MR_U8, MR_U16, MR_U32, MR_U64}, {MR_I8, MR_I16, MR_I32, MR_I64}};
    bool fits = (e->bits == 8 || e->bits == 16 || e->bits == 32 || e->bits == 64) && (unsigned)e->bits <= most_bits;
    unsigned bits = fits ? (unsigned)e->bits : most_bits;
    return dtype[fits ? e->is_signed : 1][__builtin_ctz(bits) - 3];
}

/* dtype and storage of a leaf, or why there is none. */
static void describe_leaf(const struct element *e, bool list, struct mr_pq_column *c)
{
    struct mr_pq_type *t = &c->type;
    t->physical = (uint8_t)(e->type >= 0 && e->type <= MR_PQ_FIXED ? e->type : MR_PQ_INT96);
    t->length = e->length;
    if (is_decimal(e)) {
        c->refused = "decimals are not read";
        return;
    }
    switch (t->physical) {
    case MR_PQ_BOOLEAN: t->dtype = MR_BOOL; break;
    case MR_PQ_INT32: t->dtype = int_dtype(e, 32); break;
    case MR_PQ_INT64: t->dtype = int_dtype(e, 64); break;
    case MR_PQ_FLOAT: t->dtype = MR_F32; break;
    case MR_PQ_DOUBLE: t->dtype = MR_F64; break;
    case MR_PQ_BYTES:
        t->dtype = MR_U8;
        c->is_text = is_text(e);
        c->refused = list ? "lists of byte strings are not read" : NULL;
        break;
    case MR_PQ_FIXED:
        t->dtype = e->logical == FLOAT16 && e->length == 2 ? MR_F16 : MR_U8;
        if (e->length == 0 || e->length > MR_PQ_PAGE_MAX)
            c->refused = "its type has no length";
        else if (list && t->dtype == MR_U8)
            c->refused = "lists of byte strings are not read";
        break;
    default: c->refused = "its type (INT96, or one that is not known) is not read";
    }
}

struct schema {
    struct mr_thrift *t;
    uint64_t left; /* elements that are still to come */
    MR_VEC(struct mr_pq_column) columns;
    bool no_memory;
};

static bool next_element(struct schema *s, struct element *e)
{
    *e = (struct element){0};
    if (!mr_thrift_more(s->t, &s->left)) {
        s->t->failed = true;
        return false;
    }
    read_element(s->t, e);
    return !s->t->failed;
}

/* Every leaf is a column of the file, also below a group that we do not read. */
static struct mr_pq_column *add_leaf(struct schema *s, const struct element *top, const struct element *leaf)
{
    struct mr_pq_column *c = MR_VEC_ADD(&s->columns);
    if (!c) {
        s->no_memory = true;
        return NULL;
    }
    *c = (struct mr_pq_column){0};
    size_t n = MR_MIN(top->name_len, sizeof c->name - 1);
    if (n)
        memcpy(c->name, top->name, n);
    if (top->name_len >= sizeof c->name)
        c->refused = "its name is too long";
    else if (leaf)
        describe_leaf(leaf, leaf != top || top->repetition == REPEATED, c);
    return c;
}

/* What lies below a group that is neither a column nor a list of one: leaves that are refused. */
static void add_nested(struct schema *s, const struct element *top, uint64_t children, unsigned depth)
{
    struct element e;
    if (depth > 64)
        s->t->failed = true;
    for (uint64_t i = 0; i < children && !s->t->failed && !s->no_memory; i++) {
        if (!next_element(s, &e))
            return;
        if (e.children > 0) {
            add_nested(s, top, (uint64_t)e.children, depth + 1);
            continue;
        }
        struct mr_pq_column *c = add_leaf(s, top, NULL);
        if (c)
            c->refused = "it is nested: flat columns and lists of one level are read";
    }
}

static unsigned def_of(const struct element *e)
{
    return e->repetition != REQUIRED;
}

/* The top group has one child, which is repeated: its leaf, or a group of one leaf. */
static void add_list(struct schema *s, const struct element *top)
{
    struct element mid, leaf;
    if (!next_element(s, &mid))
        return;
    unsigned def = def_of(top) + 1u;
    bool fits = mid.repetition == REPEATED && top->repetition != REPEATED && mid.children <= 1;
    if (fits && mid.children == 0) {
        struct mr_pq_column *c = add_leaf(s, top, &mid);
        if (c)
            c->type.max_def = c->type.list_def = (uint8_t)def, c->type.max_rep = 1;
        return;
    }
    if (!fits) {
        struct mr_pq_column *c;
        if (mid.children > 0)
            add_nested(s, top, (uint64_t)mid.children, 0);
        else if ((c = add_leaf(s, top, NULL)))
            c->refused = "it is nested: flat columns and lists of one level are read";
        return;
    }
    if (!next_element(s, &leaf))
        return;
    if (leaf.children > 0) {
        add_nested(s, top, (uint64_t)leaf.children, 0);
        return;
    }
    struct mr_pq_column *c = add_leaf(s, top, &leaf);
    if (!c)
        return;
    if (leaf.repetition == REPEATED)
        c->refused = "it is nested: flat columns and lists of one level are read";
    c->type.list_def = (uint8_t)def;
    c->type.max_def = (uint8_t)(def + def_of(&leaf));
    c->type.max_rep = 1;
}

static int read_schema(struct mr_thrift *t, unsigned type, struct mr_pq_file *f, struct mr_error *err)
{
    unsigned item;
    struct schema s = {.t = t};
    struct element root, e;
    s.left = mr_thrift_list(t, type, &item);
    bool there = next_element(&s, &root);
    for (int i = 0; there && i < root.children && !t->failed && !s.no_memory; i++) {
        if (!next_element(&s, &e))
            break;
        if (e.children == 0) {
            struct mr_pq_column *c = add_leaf(&s, &e, &e);
            if (c) {
                c->type.max_def = (uint8_t)def_of(&e);
                c->type.max_rep = e.repetition == REPEATED;
                c->type.list_def = c->type.max_rep;
            }
        } else if (e.children == 1) {
            add_list(&s, &e);
        } else {
            add_nested(&s, &e, (uint64_t)e.children, 0);
        }
    }
    free(f->column);
    f->column = s.columns.item;
    f->n_columns = (unsigned)s.columns.n;
    if (s.no_memory)
        return mr_error_set(err, -ENOMEM, "cannot keep the columns of the file");
    return t->failed || s.left ? mr_error_plain(err, MR_E_FORMAT, "bad footer: its schema is damaged") : 0;
}

/* ---- row groups ---- */

static void read_statistics(struct mr_thrift *t, unsigned type, struct mr_pq_chunk *c)
{
    struct mr_thrift_field f = {0};
    if (type != MR_THRIFT_STRUCT) {
        mr_thrift_skip(t, type);
        return;
    }
    while (mr_thrift_next(t, &f))
        if (f.id == 3)
            c->nulls = (uint64_t)mr_thrift_int(t, f.type);
        else
            mr_thrift_skip(t, f.type);
}

static uint32_t read_encodings(struct mr_thrift *t, unsigned type)
{
    unsigned item;
    uint32_t all = 0;
    uint64_t n = mr_thrift_list(t, type, &item);
    while (mr_thrift_more(t, &n))
        all |= 1u << ((unsigned)mr_thrift_int(t, item) & 31);
    return all;
}

static void read_chunk_meta(struct mr_thrift *t, unsigned type, struct mr_pq_chunk *c)
{
    struct mr_thrift_field f = {0};
    uint64_t data = 0;
    if (type != MR_THRIFT_STRUCT) {
        mr_thrift_skip(t, type);
        return;
    }
    while (mr_thrift_next(t, &f))
        switch (f.id) {
        case 2: c->encodings = read_encodings(t, f.type); break;
        case 4: c->codec = (uint8_t)mr_thrift_int(t, f.type); break;
        case 5: c->values = (uint64_t)mr_thrift_int(t, f.type); break;
        case 7: c->bytes = (uint64_t)mr_thrift_int(t, f.type); break;
        case 9: data = (uint64_t)mr_thrift_int(t, f.type); break;
        case 11: c->dictionary = (uint64_t)mr_thrift_int(t, f.type); break;
        case 12: read_statistics(t, f.type, c); break;
        default: mr_thrift_skip(t, f.type);
        }
    /* Some writers give a dictionary that is not there the offset 0, or one behind the data. */
    if (c->dictionary >= data)
        c->dictionary = 0;
    c->offset = c->dictionary ? c->dictionary : data;
}

static void read_chunk(struct mr_thrift *t, struct mr_pq_chunk *c, bool *elsewhere)
{
    struct mr_thrift_field f = {0};
    size_t len;
    *c = (struct mr_pq_chunk){0};
    while (mr_thrift_next(t, &f))
        switch (f.id) {
        case 1: mr_thrift_bytes(t, f.type, &len), *elsewhere |= len > 0; break;
        case 3: read_chunk_meta(t, f.type, c); break;
        case 4: c->index = (uint64_t)mr_thrift_int(t, f.type); break;
        case 5: c->index_bytes = (uint64_t)mr_thrift_int(t, f.type); break;
        case 8: *elsewhere = true, mr_thrift_skip(t, f.type); break;
        default: mr_thrift_skip(t, f.type);
        }
}

static int read_columns(struct mr_thrift *t, unsigned type, struct mr_pq_file *f, uint64_t group, struct mr_error *err)
{
    unsigned item;
    uint64_t n = mr_thrift_list(t, type, &item), i = 0;
    bool elsewhere = false;
    if (n != f->n_columns)
        return mr_error_plain(err, MR_E_FORMAT, "bad footer: row group %llu has %llu columns, the schema %u",
                              (ull)group, (ull)n, f->n_columns);
    while (mr_thrift_more(t, &n))
        read_chunk(t, &f->chunk[group * f->n_columns + i++], &elsewhere);
    return elsewhere
               ? mr_error_plain(err, MR_E_UNSUPPORTED, "columns that are encrypted or in other files are not read")
               : 0;
}

static int read_group(struct mr_thrift *t, struct mr_pq_file *f, uint64_t group, struct mr_error *err)
{
    struct mr_thrift_field x = {0};
    int rc = 0;
    int64_t rows = -1;
    bool has_columns = false;
    while (rc == 0 && mr_thrift_next(t, &x)) {
        if (x.id == 1 && !has_columns) {
            rc = read_columns(t, x.type, f, group, err);
            has_columns = true;
        } else if (x.id == 3) {
            rows = mr_thrift_int(t, x.type);
        } else {
            mr_thrift_skip(t, x.type);
        }
    }
    if (rc == 0 && (t->failed || !has_columns || rows < 0))
        return mr_error_plain(err, MR_E_FORMAT, "bad footer: row group %llu is damaged", (ull)group);
    if (rc == 0)
        f->group_rows[group] = (uint64_t)rows;
    return rc;
}

static int read_groups(struct mr_thrift *t, unsigned type, struct mr_pq_file *f, struct mr_error *err)
{
    unsigned item;
    uint64_t n = mr_thrift_list(t, type, &item), chunks = 0;
    if (f->group_rows || !mr_mul_ok(n, f->n_columns, &chunks) || n > GROUPS_MAX ||
        chunks > (uint64_t)(t->end - t->at)) /* every chunk takes bytes */
        return mr_error_plain(err, MR_E_FORMAT, "bad footer: %llu row groups of %u columns do not fit it", (ull)n,
                              f->n_columns);
    f->group_rows = calloc(MR_MAX(n, 1u), sizeof(*f->group_rows));
    f->chunk = calloc(MR_MAX(chunks, 1u), sizeof(*f->chunk));
    if (!f->group_rows || !f->chunk)
        return mr_error_set(err, -ENOMEM, "cannot keep %llu column chunks", (ull)chunks);
    int rc = 0;
    while (rc == 0 && mr_thrift_more(t, &n))
        rc = read_group(t, f, f->n_groups++, err);
    return rc;
}

/* ---- key and value pairs ---- */

static bool parse_shape(const char *text, size_t len, struct mr_dims *out)
{
    struct mr_dims d = {0};
    size_t i = 0;
    if (len == 1 && text[0] == '-') {
        *out = d;
        return true;
    }
    while (i < len && d.n < MR_DIMS_MAX) {
        uint64_t v = 0;
        size_t first = i;
        for (; i < len && text[i] >= '0' && text[i] <= '9' && v < MR_LIMIT_SAMPLE_BYTES; i++)
            v = v * 10 + (uint64_t)(text[i] - '0');
        if (i == first || v == 0 || (i < len && text[i] != 'x'))
            return false;
        d.dim[d.n++] = v;
        i++;
    }
    if (i != len + 1)
        return false;
    *out = d;
    return true;
}

static void keep_shape(struct mr_pq_file *f, const char *key, size_t key_len, const char *value, size_t len)
{
    size_t skip = strlen(MR_PQ_SHAPE_KEY);
    if (key_len <= skip || memcmp(key, MR_PQ_SHAPE_KEY, skip) != 0)
        return;
    for (unsigned i = 0; i < f->n_columns; i++) {
        struct mr_pq_column *c = &f->column[i];
        if (strlen(c->name) == key_len - skip && memcmp(c->name, key + skip, key_len - skip) == 0)
            c->has_dims = parse_shape(value, len, &c->dims);
    }
}

static void read_pairs(struct mr_thrift *t, unsigned type, struct mr_pq_file *f)
{
    unsigned item;
    uint64_t n = mr_thrift_list(t, type, &item);
    while (mr_thrift_more(t, &n)) {
        struct mr_thrift_field x = {0};
        const char *key = "", *value = "";
        size_t key_len = 0, value_len = 0;
        while (mr_thrift_next(t, &x))
            if (x.id == 1)
                key = (const char *)mr_thrift_bytes(t, x.type, &key_len);
            else if (x.id == 2)
                value = (const char *)mr_thrift_bytes(t, x.type, &value_len);
            else
                mr_thrift_skip(t, x.type);
        if (!t->failed)
            keep_shape(f, key, key_len, value, value_len);
    }
}

/* ---- the whole ---- */

void mr_pq_file_done(struct mr_pq_file *f)
{
    free(f->column);
    free(f->group_rows);
    free(f->chunk);
    *f = (struct mr_pq_file){0};
}

static int check_chunk(const struct mr_pq_file *f, uint64_t g, unsigned c, uint64_t end, struct mr_error *err)
{
    const struct mr_pq_chunk *k = &f->chunk[g * f->n_columns + c];
    const char *name = f->column[c].name;
    if (k->offset < 4 || k->offset > end || k->bytes > end - k->offset)
        return mr_error_plain(err, MR_E_FORMAT,
                              "column '%s' of row group %llu: unexpected end of file (want %llu bytes at %llu, "
                              "the footer begins at %llu)",
                              name, (ull)g, (ull)k->bytes, (ull)k->offset, (ull)end);
    if (k->values > MR_LIMIT_SAMPLE_BYTES || (k->values && !k->bytes) ||
        (!f->column[c].type.max_rep && !f->column[c].refused && k->values != f->group_rows[g]))
        return mr_error_plain(err, MR_E_FORMAT, "column '%s' of row group %llu has %llu values for %llu rows", name,
                              (ull)g, (ull)k->values, (ull)f->group_rows[g]);
    return 0;
}

static int check_file(struct mr_pq_file *f, int64_t rows, uint64_t end, struct mr_error *err)
{
    uint64_t sum = 0;
    for (uint64_t g = 0; g < f->n_groups; g++) {
        for (unsigned c = 0; c < f->n_columns; c++) {
            int rc = check_chunk(f, g, c, end, err);
            if (rc)
                return rc;
        }
        if (!mr_add_ok(sum, f->group_rows[g], &sum) || sum > INT64_MAX)
            return mr_error_plain(err, MR_E_FORMAT, "bad footer: its row groups have too many rows");
    }
    for (unsigned c = 0; c < f->n_columns && f->n_groups; c++)
        f->column[c].type.codec = f->chunk[c].codec;
    if (rows < 0 || sum != (uint64_t)rows)
        return mr_error_plain(err, MR_E_FORMAT, "bad footer: %lld rows, its row groups have %llu", (long long)rows,
                              (ull)sum);
    f->rows = sum;
    return 0;
}

int mr_pq_file_parse(const void *footer, size_t len, uint64_t end, struct mr_pq_file *out, struct mr_error *err)
{
    struct mr_thrift t = {.at = footer, .end = (const uint8_t *)footer + len};
    struct mr_thrift_field x = {0};
    struct mr_pq_file f = {0};
    int64_t rows = -1;
    int rc = 0;
    while (rc == 0 && mr_thrift_next(&t, &x))
        switch (x.id) {
        case 2: rc = read_schema(&t, x.type, &f, err); break;
        case 3: rows = mr_thrift_int(&t, x.type); break;
        case 4: rc = read_groups(&t, x.type, &f, err); break;
        case 5: read_pairs(&t, x.type, &f); break;
        default: mr_thrift_skip(&t, x.type);
        }
    if (rc == 0 && t.failed)
        rc = mr_error_plain(err, MR_E_FORMAT, "bad footer: it is damaged at byte %zu of %zu",
                            (size_t)(t.at - (const uint8_t *)footer), len);
    if (rc == 0 && !f.n_columns)
        rc = mr_error_plain(err, MR_E_FORMAT, "the file has no columns");
    if (rc == 0)
        rc = check_file(&f, rows, end, err);
    if (rc < 0)
        mr_pq_file_done(&f);
    else
        *out = f;
    return rc;
}

static int check_magic(const uint8_t *end, uint64_t size, struct mr_error *err)
{
    if (memcmp(end, "PARE", 4) == 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "the file is encrypted");
    return memcmp(end, "PAR1", 4) == 0
               ? 0
               : mr_error_plain(err, MR_E_FORMAT,
                                "this is no Parquet file, or it was cut (want 'PAR1' in its last 4 bytes of %llu)",
                                (ull)size);
}

int mr_pq_file_read(struct mr_object *o, struct mr_pq_file *out, struct mr_error *err)
{
    uint64_t size = 0;
    int rc = mr_object_size(o, &size, err);
    if (rc < 0)
        return rc;
    if (size < 12)
        return mr_error_plain(err, MR_E_FORMAT, "a file of %llu bytes is no Parquet file", (ull)size);
    uint64_t have = MR_MIN(size, TAIL_BYTES);
    uint8_t *tail = malloc(have);
    if (!tail)
        return mr_error_set(err, -ENOMEM, "cannot read the footer");
    rc = mr_object_read(o, tail, have, size - have, err);
    if (rc >= 0)
        rc = check_magic(tail + have - 4, size, err);
    uint64_t len = rc < 0 ? 0 : mr_load_le32(tail + have - 8);
    if (rc >= 0 && (len > size - 12 || len > FOOTER_MAX))
        rc = mr_error_plain(err, MR_E_FORMAT, "bad footer: %llu bytes in a file of %llu", (ull)len, (ull)size);
    if (rc >= 0 && len + 8 > have) {
        uint8_t *all = realloc(tail, len + 8);
        rc = all ? mr_object_read(o, all, len + 8, size - len - 8, err)
                 : mr_error_set(err, -ENOMEM, "cannot read a footer of %llu bytes", (ull)len);
        tail = all ? all : tail;
        have = len + 8;
    }
    if (rc >= 0)
        rc = mr_pq_file_parse(tail + have - 8 - len, len, size - len - 8, out, err);
    free(tail);
    return rc < 0 ? rc : 0;
}

/* ---- pages ---- */

static void read_page_head(struct mr_thrift *t, unsigned type, unsigned kind, struct mr_pq_page *p)
{
    struct mr_thrift_field f = {0};
    if (type != MR_THRIFT_STRUCT) {
        mr_thrift_skip(t, type);
        return;
    }
    bool v2 = kind == MR_PQ_DATA_PAGE_V2, v1 = kind == MR_PQ_DATA_PAGE;
    while (mr_thrift_next(t, &f)) {
        bool is_flag = f.type <= MR_THRIFT_FALSE;
        int64_t v = f.type <= MR_THRIFT_I64 ? mr_thrift_int(t, f.type) : (mr_thrift_skip(t, f.type), 0);
        if (v2 && f.id == 7 && is_flag)
            p->is_compressed = v;
        if (is_flag || v < 0 || v > INT32_MAX)
            continue;
        uint32_t u = (uint32_t)v;
        if (f.id == 1)
            p->values = u;
        else if (f.id == (v2 ? 4 : 2))
            p->encoding = (uint8_t)u;
        else if (v1 && f.id == 3)
            p->def_encoding = (uint8_t)u;
        else if (v1 && f.id == 4)
            p->rep_encoding = (uint8_t)u;
        else if (v2 && f.id == 2)
            p->nulls = u;
        else if (v2 && f.id == 3)
            p->rows = u;
        else if (v2 && f.id == 5)
            p->def_bytes = u;
        else if (v2 && f.id == 6)
            p->rep_bytes = u;
    }
}

int mr_pq_page_parse(const uint8_t *p, size_t len, uint64_t within, struct mr_pq_page *out, struct mr_error *err)
{
    struct mr_thrift t = {.at = p, .end = p + len};
    struct mr_thrift_field f = {0};
    struct mr_pq_page page = {.is_compressed = true, .def_encoding = MR_PQ_RLE, .rep_encoding = MR_PQ_RLE, .type = 255};
    int64_t bytes = -1, unpacked = -1;
    while (mr_thrift_next(&t, &f))
        switch (f.id) {
        case 1: page.type = (uint8_t)mr_thrift_int(&t, f.type); break;
        case 2: unpacked = mr_thrift_int(&t, f.type); break;
        case 3: bytes = mr_thrift_int(&t, f.type); break;
        case 4: page.crc = (uint32_t)mr_thrift_int(&t, f.type), page.has_crc = true; break;
        case 5: read_page_head(&t, f.type, MR_PQ_DATA_PAGE, &page); break;
        case 7: read_page_head(&t, f.type, MR_PQ_DICTIONARY_PAGE, &page); break;
        case 8: read_page_head(&t, f.type, MR_PQ_DATA_PAGE_V2, &page); break;
        default: mr_thrift_skip(&t, f.type);
        }
    if (t.failed || bytes < 0 || unpacked < 0)
        return mr_error_plain(err, MR_E_FORMAT, "bad page header");
    if (bytes > MR_PQ_PAGE_MAX || unpacked > MR_PQ_PAGE_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "a page of %lld bytes is over the limit of %u",
                              (long long)MR_MAX(bytes, unpacked), MR_PQ_PAGE_MAX);
    page.header_bytes = (uint32_t)(t.at - p);
    page.bytes = (uint32_t)bytes;
    page.unpacked_bytes = (uint32_t)unpacked;
    if ((uint64_t)bytes + page.header_bytes > within)
        return mr_error_plain(err, MR_E_FORMAT, "a page is cut: want %lld bytes, have %llu", (long long)bytes,
                              (ull)(within - page.header_bytes));
    *out = page;
    return 0;
}
