/* Finding columns and rows: see parquet_scan.h. The footer says where column chunks lie; chunks above
 * MR_PQ_SPLIT_BYTES are cut at pages, which the file's index of pages names, or else their headers, so that one row of
 * many does not cost all of them. Rows of lists can only be counted by an index or by pages of version 2: without,
 * such a chunk stays whole. Column data are not read. */
#include "format/parquet_scan.h"
#include "base/vec.h"
#include "format/array_common.h"
#include "format/field_names.h"
#include "format/parquet_codec.h"
#include "format/parquet_thrift.h"
#include "format/parquet_unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_WINDOW 512u
#define HEADER_MAX ((uint64_t)1 << 20)
#define INDEX_MAX ((uint64_t)64 << 20)

typedef unsigned long long ull;

struct scan {
    struct mr_object *o;
    struct mr_pq_file file;
    uint8_t *buf;
    size_t cap;
};

int mr_pq_spans_add(struct mr_pq_spans *s, const struct mr_pq_span *page, bool first_of_chunk, bool whole)
{
    struct mr_pq_span *last = s->n ? &s->item[s->n - 1] : NULL;
    bool small = !first_of_chunk && (whole || last->bytes < MR_PQ_SPLIT_BYTES / 2);
    if (small && (uint64_t)last->bytes + page->bytes <= UINT32_MAX) {
        last->bytes += page->bytes;
        return 0;
    }
    if (MR_VEC_RESERVE(s, s->n + 1) < 0)
        return -ENOMEM;
    s->item[s->n++] = *page;
    return 0;
}

uint64_t mr_pq_fixed_bytes(const struct mr_pq_type *t, const struct mr_dims *dims)
{
    uint64_t bytes = mr_dtype_bytes((enum mr_dtype)t->dtype);
    if (dims)
        return mr_array_bytes(dims, (enum mr_dtype)t->dtype, &bytes) && bytes <= MR_LIMIT_SAMPLE_BYTES ? bytes : 0;
    return t->max_rep ? 0 : mr_pq_value_bytes(t);
}

uint64_t mr_pq_mean_bytes(uint64_t bytes, uint64_t rows)
{
    return rows ? bytes / rows + (bytes % rows != 0) : 0;
}

static int read_at(struct scan *s, uint64_t offset, uint64_t len, struct mr_error *err)
{
    if (len > s->cap) {
        free(s->buf);
        s->buf = malloc(len);
        s->cap = s->buf ? len : 0;
        if (!s->buf)
            return mr_error_set(err, -ENOMEM, "cannot read %llu bytes", (ull)len);
    }
    int rc = mr_object_read(s->o, s->buf, len, offset, err);
    return rc < 0 ? rc : 0;
}

/* ---- units ---- */

struct cutting {
    const struct mr_pq_chunk *chunk;
    uint64_t first_row, rows; /* of the chunk's row group */
    struct mr_pq_spans *out;
    bool any;           /* a data page has been added */
    uint64_t data_from; /* where the first one lies */
    uint64_t next_row;
};

/* A data page of the chunk; its rows begin with `row` of the group. */
static int add_page(struct cutting *c, uint64_t offset, uint64_t bytes, uint64_t row, struct mr_error *err)
{
    const struct mr_pq_chunk *k = c->chunk;
    if (!c->any)
        c->data_from = offset;
    struct mr_pq_span page = {.offset = offset, .bytes = (uint32_t)bytes, .first_row = c->first_row + row};
    if (k->dictionary && c->data_from > k->dictionary && c->data_from - k->dictionary <= UINT32_MAX) {
        page.dictionary = k->dictionary;
        page.dictionary_bytes = (uint32_t)(c->data_from - k->dictionary);
    }
    bool first = !c->any;
    if (first && row != 0)
        return mr_error_plain(err, MR_E_FORMAT, "the first page of a column chunk begins with row %llu", (ull)row);
    c->any = true;
    return mr_pq_spans_add(c->out, &page, first, false) == 0 ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the pages");
}

/* By the index of pages. 1: it is not usable. */
static int cut_by_index(struct scan *s, struct cutting *c, struct mr_error *err)
{
    const struct mr_pq_chunk *k = c->chunk;
    if (!k->index || !k->index_bytes || k->index_bytes > INDEX_MAX)
        return 1;
    int rc = read_at(s, k->index, k->index_bytes, err);
    struct mr_thrift t = {.at = s->buf, .end = s->buf + (rc ? 0 : k->index_bytes)};
    struct mr_thrift_field f = {0};
    uint64_t row_before = 0, end = 0;
    while (rc == 0 && mr_thrift_next(&t, &f)) {
        unsigned item;
        if (f.id != 1) {
            mr_thrift_skip(&t, f.type);
            continue;
        }
        for (uint64_t n = mr_thrift_list(&t, f.type, &item); rc == 0 && mr_thrift_more(&t, &n);) {
            uint64_t v[4] = {0};
            for (struct mr_thrift_field g = {0}; mr_thrift_next(&t, &g);)
                v[g.id >= 1 && g.id <= 3 ? g.id : 0] = (uint64_t)mr_thrift_int(&t, g.type);
            bool fits =
                v[1] >= MR_MAX(k->offset, end) && v[2] && v[2] <= k->bytes && v[1] - k->offset <= k->bytes - v[2];
            if (!fits || v[3] < row_before || v[3] >= MR_MAX(c->rows, 1u) || (end && v[1] != end))
                return mr_error_plain(err, MR_E_FORMAT, "the index of pages does not fit its column chunk");
            end = v[1] + v[2];
            row_before = v[3];
            rc = add_page(c, v[1], v[2], v[3], err);
        }
    }
    if (rc)
        return rc;
    return t.failed ? mr_error_plain(err, MR_E_FORMAT, "the index of pages is damaged") : !c->any;
}

/* The header of the page at `offset`, whatever its size. */
static int read_header(struct scan *s, uint64_t offset, uint64_t left, struct mr_pq_page *page, struct mr_error *err)
{
    for (uint64_t window = HEADER_WINDOW;; window *= 8) {
        uint64_t n = MR_MIN(window, left);
        int rc = read_at(s, offset, n, err);
        if (rc)
            return rc;
        rc = mr_pq_page_parse(s->buf, n, left, page, err);
        if (rc == 0 || n == left || window > HEADER_MAX)
            return rc;
    }
}

/* By the pages' own headers. 1: they do not say how many rows they have. */
static int cut_by_headers(struct scan *s, const struct mr_pq_type *t, struct cutting *c, struct mr_error *err)
{
    const struct mr_pq_chunk *k = c->chunk;
    uint64_t row = 0, from = k->offset, at = k->offset, end = k->offset + k->bytes;
    while (at < end) {
        struct mr_pq_page page;
        int rc = read_header(s, at, end - at, &page, err);
        if (rc)
            return rc;
        uint64_t bytes = page.header_bytes + page.bytes;
        at += bytes;
        if (page.type != MR_PQ_DATA_PAGE && page.type != MR_PQ_DATA_PAGE_V2) {
            from = c->any ? from : at; /* a dictionary stands before the data */
            continue;
        }
        if (page.type == MR_PQ_DATA_PAGE && t->max_rep)
            return 1;
        if ((rc = add_page(c, from, at - from, row, err)))
            return rc;
        from = at;
        row += page.type == MR_PQ_DATA_PAGE_V2 ? page.rows : page.values;
    }
    if (row != c->rows)
        return mr_error_plain(err, MR_E_FORMAT, "the pages of a column chunk have %llu rows, its row group %llu",
                              (ull)row, (ull)c->rows);
    return 0;
}

/* The units of one chunk. */
static int cut_chunk(struct scan *s, const struct mr_pq_type *t, struct cutting *c, struct mr_error *err)
{
    const struct mr_pq_chunk *k = c->chunk;
    size_t before = c->out->n;
    int rc = 1;
    if (k->bytes > MR_PQ_SPLIT_BYTES)
        rc = cut_by_index(s, c, err);
    if (rc == 1 && k->bytes > MR_PQ_SPLIT_BYTES) {
        c->out->n = before;
        c->any = false;
        rc = cut_by_headers(s, t, c, err);
    }
    if (rc <= 0)
        return rc;
    c->out->n = before;
    struct mr_pq_span whole = {.offset = k->offset, .bytes = (uint32_t)k->bytes, .first_row = c->first_row};
    if (k->bytes > UINT32_MAX)
        return mr_error_plain(err, MR_E_LIMIT,
                              "a column chunk of %llu bytes without an index of its pages is too large", (ull)k->bytes);
    return mr_pq_spans_add(c->out, &whole, true, true) == 0 ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the chunks");
}

/* ---- columns ---- */

struct mr_field mr_pq_field(const struct mr_pq_column *c, bool primary)
{
    struct mr_field f = {.name = c->name,
                         .dtype = (enum mr_dtype)c->type.dtype,
                         .storage = c->is_text ? MR_FIELD_TEXT : MR_FIELD_RAW,
                         .role = primary ? MR_FIELD_INPUT : mr_field_role_of_name(c->name),
                         .variable = MR_FIELD_FIXED};
    bool is_fixed = c->type.physical == MR_PQ_FIXED && c->type.dtype == MR_U8;
    if (c->has_dims) {
        f.dims = c->dims;
    } else if (is_fixed) {
        f.dims = (struct mr_dims){.n = 1, .dim = {c->type.length}};
    } else if (c->type.max_rep || c->type.physical == MR_PQ_BYTES) {
        f.dims.n = 1;
        f.variable = 0;
    }
    return f;
}

static const char *encoding_refused(const struct mr_pq_chunk *k)
{
    if (k->encodings >> MR_PQ_DELTA_LENGTH & 1)
        return "its encoding DELTA_LENGTH_BYTE_ARRAY is not read";
    if (k->encodings >> MR_PQ_DELTA_BYTES & 1)
        return "its encoding DELTA_BYTE_ARRAY is not read";
    return NULL;
}

static int refuse(const struct mr_pq_column *c, const char *why, struct mr_error *err)
{
    mr_error_plain(err, MR_E_UNSUPPORTED, "column '%s' cannot be read: %s", c->name, why);
    return mr_error_hint(err, "name the columns to keep with --fields"), MR_E_UNSUPPORTED;
}

static int check_column(const struct mr_pq_file *f, unsigned c, struct mr_error *err)
{
    const struct mr_pq_column *col = &f->column[c];
    char why[128];
    if (!*col->name)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "column %u has no name", c);
    if (col->refused)
        return refuse(col, col->refused, err);
    for (uint64_t g = 0; g < f->n_groups; g++) {
        const struct mr_pq_chunk *k = &f->chunk[g * f->n_columns + c];
        const char *reason = encoding_refused(k);
        if (!reason && k->codec != col->type.codec)
            reason = "its row groups are compressed in different ways";
        if (!reason && !mr_pq_codec_is_read(k->codec)) {
            snprintf(why, sizeof why, "its compression '%s' is not read", mr_pq_codec_name(k->codec));
            reason = why;
        }
        if (!reason && k->nulls && col->type.max_rep == 0) {
            snprintf(why, sizeof why, "%llu of its values in row group %llu are null", (ull)k->nulls, (ull)g);
            reason = why;
        }
        if (reason)
            return refuse(col, reason, err);
    }
    return 0;
}

/* The layout of a column, and what its rows take on average. */
static int open_column(struct scan *s, unsigned c, struct mr_layout *out, uint64_t *mean, struct mr_error *err)
{
    const struct mr_pq_file *f = &s->file;
    const struct mr_pq_column *col = &f->column[c];
    struct mr_pq_spans spans = {0};
    uint64_t row = 0, bytes = 0;
    int rc = check_column(f, c, err);
    for (uint64_t g = 0; g < f->n_groups && rc == 0; g++) {
        const struct mr_pq_chunk *k = &f->chunk[g * f->n_columns + c];
        struct cutting cut = {.chunk = k, .first_row = row, .rows = f->group_rows[g], .out = &spans};
        if (cut.rows)
            rc = cut_chunk(s, &col->type, &cut, err);
        row += cut.rows;
        bytes += k->bytes;
        if (rc < 0)
            mr_error_context(err, "in column '%s' of row group %llu", col->name, (ull)g);
    }
    struct mr_pq_layout l = {
        .type = col->type, .is_text = col->is_text, .has_dims = col->has_dims, .dims = col->dims, .rows = f->rows};
    if (rc == 0)
        rc = mr_pq_layout_make(&l, spans.item, spans.n, out, err);
    *mean = mr_pq_fixed_bytes(&l.type, l.has_dims ? &l.dims : NULL);
    if (*mean == 0)
        *mean = mr_pq_mean_bytes(bytes, f->rows);
    free(spans.item);
    return rc;
}

static int open_scan(struct scan *s, struct mr_store *store, const char *path, struct mr_error *err)
{
    int rc = mr_object_open(store, path, MR_OBJ_READ, &s->o, err);
    return rc < 0 ? rc : mr_pq_file_read(s->o, &s->file, err);
}

static void scan_done(struct scan *s)
{
    mr_pq_file_done(&s->file);
    free(s->buf);
    if (s->o)
        (void)mr_object_close(s->o, NULL); /* nothing was written */
}

/* One payload per row: the first column. */
int mr_pq_scan(struct mr_store *store, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
               struct mr_error *err)
{
    struct scan s = {0};
    struct mr_layout made = {0};
    uint64_t mean = 0;
    int rc = open_scan(&s, store, path, err);
    if (rc >= 0)
        rc = open_column(&s, 0, &made, &mean, err);
    for (uint64_t i = 0; rc >= 0 && i < s.file.rows; i++) {
        struct mr_sample_ref ref = mr_pq_ref(i, mean);
        rc = fn(user, &ref, NULL, err);
    }
    scan_done(&s);
    if (rc < 0)
        return free(made.data), mr_error_context(err, "in '%s'", path), rc;
    *layout = made;
    return 0;
}

/* ---- several fields ---- */

struct selection {
    unsigned n;
    unsigned *column; /* of each field */
    struct mr_field *field;
    struct mr_layout *layout;
    struct mr_sample_ref *ref;
    uint64_t *mean;
};

static int find_column(const struct mr_pq_file *f, const char *name, unsigned *out, struct mr_error *err)
{
    for (unsigned c = 0; c < f->n_columns; c++)
        if (strcmp(f->column[c].name, name) == 0) {
            *out = c;
            return 0;
        }
    return mr_error_plain(err, MR_E_FORMAT, "the file has no column '%.80s'", name);
}

static int choose(struct scan *s, const struct mr_field_sink *sink, struct selection *x, struct mr_error *err)
{
    const struct mr_pq_file *f = &s->file;
    unsigned n = sink->n_wanted ? sink->n_wanted : f->n_columns;
    if (n > MR_FIELDS_MAX) {
        mr_error_plain(err, MR_E_LIMIT, "the file has %u columns, a data set at most %u fields", n, MR_FIELDS_MAX);
        return mr_error_hint(err, "name the columns to keep with --fields"), MR_E_LIMIT;
    }
    x->column = calloc(n, sizeof(*x->column));
    x->field = calloc(n, sizeof(*x->field));
    x->layout = calloc(n, sizeof(*x->layout));
    x->ref = calloc(n, sizeof(*x->ref));
    x->mean = calloc(n, sizeof(*x->mean));
    if (!x->column || !x->field || !x->layout || !x->ref || !x->mean)
        return mr_error_set(err, -ENOMEM, "cannot look at %u columns", n);
    int rc = 0;
    for (; x->n < n && rc == 0; x->n++) {
        unsigned i = x->n;
        x->column[i] = i;
        rc = sink->n_wanted ? find_column(f, sink->wanted[i], &x->column[i], err) : 0;
        if (rc == 0)
            rc = open_column(s, x->column[i], &x->layout[i], &x->mean[i], err);
        if (rc == 0)
            x->field[i] = mr_pq_field(&f->column[x->column[i]], i == 0);
    }
    return rc;
}

static int report(const struct scan *s, const struct mr_field_sink *sink, struct selection *x, struct mr_error *err)
{
    int rc = 0;
    for (uint64_t i = 0; rc >= 0 && i < s->file.rows; i++) {
        for (unsigned k = 0; k < x->n; k++)
            x->ref[k] = mr_pq_ref(i, x->mean[k]);
        rc = sink->sample(sink->user, x->ref, x->n, NULL, err);
    }
    if (rc < 0)
        return rc;
    rc = sink->done(sink->user, x->field, x->layout, x->n, err);
    memset(x->layout, 0, x->n * sizeof(*x->layout)); /* they are the sink's */
    return rc;
}

int mr_pq_scan_fields(struct mr_store *store, const char *path, unsigned flags, const struct mr_field_sink *sink,
                      struct mr_error *err)
{
    struct scan s = {0};
    struct selection x = {0};
    (void)flags; /* rows are samples */
    int rc = open_scan(&s, store, path, err);
    if (rc >= 0)
        rc = choose(&s, sink, &x, err);
    if (rc >= 0)
        rc = report(&s, sink, &x, err);
    for (unsigned i = 0; i < x.n; i++)
        free(x.layout[i].data);
    free(x.column);
    free(x.field);
    free(x.layout);
    free(x.ref);
    free(x.mean);
    scan_done(&s);
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    return rc < 0 ? rc : 0;
}
