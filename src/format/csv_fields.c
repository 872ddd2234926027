/* CSV files whose records have several fields: one per column, called as in the header. A column of integers is i8, of
 * other numbers f8 (empty cells are NaN), anything else text without its quotes. A file of numbers alone stays one array
 * per record, unless columns are asked for by name. An integer column "label" is kept in the manifest.
 *
 * A ref is the cell with its quotes. Layout version 2:
 *
 *   0  1  version = 2
 *   1  1  flags: 1 gzip
 *   2  1  element type of a number
 *   3  1  1: a number, 0: text */
#include "format/csv_parts.h"
#include "format/field_gather.h"
#include "format/field_names.h"
#include "format/stream_out.h"
#include "format/text_values.h"
#include "base/vec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CELL_VERSION 2
#define CELL_BYTES 4u
#define CELL_GZIP 1

typedef unsigned long long ull;

/* ---- layout and reading ---- */

bool mr_csv_is_cell(const struct mr_layout *layout)
{
    return layout->len == CELL_BYTES && *(const uint8_t *)layout->data == CELL_VERSION;
}

bool mr_csv_cell_gzip(const struct mr_layout *layout)
{
    return mr_csv_is_cell(layout) && (((const uint8_t *)layout->data)[1] & CELL_GZIP);
}

static int put_layout(bool gzip, enum mr_dtype dtype, bool number, struct mr_layout *out, struct mr_error *err)
{
    const uint8_t b[CELL_BYTES] = {CELL_VERSION, gzip ? CELL_GZIP : 0, (uint8_t)dtype, number};
    return mr_layout_make(b, sizeof b, out, err);
}

int mr_csv_cell_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    bool gzip = b[1] & CELL_GZIP;
    if (b[1] > CELL_GZIP || b[2] >= MR_DTYPE_COUNT || b[3] > 1)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a CSV column (%zu bytes)", layout->len);
    *out = (struct mr_read_cost){.access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = 1.0,
                                 .note = gzip   ? "gzip: the whole file is inflated once"
                                         : b[3] ? "text: every number is parsed"
                                                : "the text of the cell"};
    return 0;
}

/* The text of a cell: without its quotes, doubled ones halved. */
static size_t unquote(const char *p, size_t len, char *dst)
{
    size_t n = 0;
    if (!len || *p != '"') {
        memcpy(dst, p, len);
        return len;
    }
    for (size_t i = 1; i < len; i++) {
        if (p[i] == '"' && (i + 1 == len || p[i + 1] != '"'))
            break;
        i += p[i] == '"';
        dst[n++] = p[i];
    }
    return n;
}

int mr_csv_cell_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                       const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    struct mr_number num;
    struct mr_text_sink sink;
    struct mr_read_cost cost;
    int rc = mr_csv_cell_cost(layout, &cost, err); /* checks it */
    char *text = mr_decoder_scratch(d, 0, len + 1);
    if (rc < 0)
        return rc;
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot decode a cell of %zu bytes", len);
    size_t n = len ? unquote(raw, len, text) : 0;
    out->label = ref->label;
    out->dims = (struct mr_dims){.n = 0};
    if (!b[3]) {
        out->dtype = MR_U8;
        out->dims = (struct mr_dims){1, {n}};
        if (out->dst && out->dst_cap < n) {
            out->bytes = n;
            return mr_error_plain(err, MR_E_LIMIT, "the text has %zu bytes, the buffer %zu", n, out->dst_cap);
        }
        if (out->dst && n)
            memcpy(out->dst, text, n);
        out->data = out->dst ? out->dst : text;
        out->bytes = n;
        return 0;
    }
    const char *p = text, *end = text + n;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    static const char nan_text[] = "nan";
    if (p == end) { /* an empty cell among numbers */
        p = nan_text;
        end = nan_text + 3;
    }
    out->dtype = (enum mr_dtype)b[2];
    out->bytes = mr_dtype_bytes(out->dtype);
    if (out->dst && out->dst_cap < out->bytes)
        return mr_error_plain(err, MR_E_LIMIT, "a number has %zu bytes, the buffer %zu", out->bytes, out->dst_cap);
    void *dst = out->dst ? out->dst : mr_decoder_scratch(d, 1, 16);
    if (!dst)
        return mr_error_set(err, -ENOMEM, "cannot decode a cell of %zu bytes", len);
    mr_text_sink_init(&sink, out->dtype, dst, out->bytes);
    if (mr_number_lex(p, end, true, &num) != (size_t)(end - p) || !mr_text_sink_add(&sink, &num) ||
        sink.bytes != out->bytes)
        return mr_error_plain(err, MR_E_FORMAT, "the cell at offset %llu, '%.*s', is no number of type %s",
                              (ull)ref->raw.offset, (int)MR_MIN(n, (size_t)40), text, mr_dtype_numpy(out->dtype));
    out->data = dst;
    return 0;
}

/* ---- finding ---- */

/* Bits of mr_gather_field.any. */
#define HAS_TEXT 1u
#define HAS_FLOAT 2u
#define HAS_EMPTY 4u
#define HAS_WIDE 8u /* an integer beyond 32 bits, which cannot be a label */
#define HAS_NUMBER 16u
#define NOBODY UINT32_MAX

struct fields_scan {
    struct mr_gather g;
    const char *path;
    struct mr_csv_facts facts;
    char (*name)[MR_FIELD_NAME_MAX]; /* of each column */
    size_t columns, cap;
    unsigned *at; /* the field of each column, or NOBODY */
    size_t at_cap;
    uint32_t label; /* its column, or NOBODY */
    struct mr_gather_whole whole;
};

static int name_column(struct fields_scan *t, const struct mr_csv_cell *c, struct mr_error *err)
{
    if (mr_vec_reserve(&t->name, &t->cap, t->columns + 1, sizeof(*t->name)) < 0 ||
        mr_vec_reserve(&t->at, &t->at_cap, t->columns + 1, sizeof(*t->at)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot keep %zu columns", t->columns + 1);
    if (c->full_len > c->len || c->len >= MR_FIELD_NAME_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "the name of column %u in '%s' has %zu bytes", c->column, t->path,
                              c->full_len);
    char *name = t->name[t->columns];
    memset(name, 0, MR_FIELD_NAME_MAX);
    memcpy(name, c->text, c->len);
    if (!c->len)
        snprintf(name, MR_FIELD_NAME_MAX, "column%u", c->column);
    if (strcasecmp(name, "label") == 0 && t->label == NOBODY)
        t->label = c->column;
    t->at[t->columns++] = NOBODY;
    return 0;
}

static int take_cell(void *user, const struct mr_csv_cell *c, struct mr_error *err)
{
    struct fields_scan *t = user;
    const struct mr_gather_value v = {
        .ref = {.raw = c->where}, .dtype = MR_U8, .storage = MR_FIELD_TEXT, .dims = {1, {c->full_len}}};
    unsigned k;
    if (c->record == 0)
        return name_column(t, c, err);
    if (c->column >= t->columns)
        return 0; /* the end of the record says what is wrong */
    const char *name = t->name[c->column];
    int rc = mr_gather_find(&t->g, name, strlen(name), NULL, &k, err);
    if (rc)
        return rc == MR_GATHER_SKIP ? 0 : rc;
    if (!t->g.samples) {
        t->at[c->column] = k;
        if (!t->g.has_primary && c->column != t->label) {
            t->g.primary = k;
            t->g.has_primary = true;
        }
    }
    struct mr_gather_field *f = &t->g.field[k];
    f->any |= c->empty ? HAS_EMPTY : c->integer ? HAS_NUMBER : c->number ? HAS_NUMBER | HAS_FLOAT : HAS_TEXT;
    f->any |= c->integer && c->value > INT32_MIN && c->value <= INT32_MAX ? 0 : HAS_WIDE;
    if (c->column == t->label && c->integer)
        t->g.label = c->value;
    return mr_gather_value(&t->g, k, &v, NULL, err);
}

static int take_record(void *user, uint64_t record, struct mr_error *err)
{
    struct fields_scan *t = user;
    (void)record;
    return mr_gather_sample(&t->g, NULL, err);
}

static int settle_column(void *user, struct mr_gather_field *f, unsigned k, bool primary, struct mr_layout *out,
                         struct mr_error *err)
{
    const struct fields_scan *t = user;
    if (!f)
        return put_layout(t->facts.gzip, MR_U8, false, out, err);
    bool number = !(f->any & HAS_TEXT) && (f->any & HAS_NUMBER);
    bool label = t->label != NOBODY && t->at[t->label] == k && !primary && number &&
                 !(f->any & (HAS_WIDE | HAS_FLOAT | HAS_EMPTY));
    f->field.role = primary ? MR_FIELD_INPUT : mr_field_role_of_name(f->name);
    if (number) {
        f->field.dtype = f->any & (HAS_FLOAT | HAS_EMPTY) ? MR_F64 : MR_I64;
        f->field.storage = label ? MR_FIELD_LABEL : MR_FIELD_RAW;
        f->field.variable = MR_FIELD_FIXED;
        f->field.dims = (struct mr_dims){.n = 0};
    }
    return label ? 0 : put_layout(t->facts.gzip, number ? f->field.dtype : MR_U8, number, out, err);
}

/* Records as they are: an array of their numbers, or their bytes; and their labels. */
static int report_whole(struct fields_scan *t, const struct mr_field_sink *sink, struct mr_layout *whole,
                        struct mr_error *err)
{
    const struct mr_csv_facts *f = &t->facts;
    const struct mr_field data = {.name = "data",
                                  .dtype = !f->numbers   ? MR_U8
                                           : f->integers ? MR_I64
                                                         : MR_F64,
                                  .storage = f->numbers ? MR_FIELD_RAW : MR_FIELD_TEXT,
                                  .role = MR_FIELD_INPUT,
                                  .variable = f->numbers ? MR_FIELD_FIXED : 0,
                                  .dims = {1, {f->numbers ? f->columns - f->labelled : 0}}};
    return mr_gather_whole_report(&t->whole, &data, f->labelled, whole, sink, err);
}

static int scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                       struct mr_error *err)
{
    struct fields_scan t = {.path = path, .label = NOBODY};
    const struct mr_csv_events events = {.user = &t, .cell = take_cell, .record = take_record};
    struct mr_layout whole = {0};
    (void)flags;
    mr_gather_init(&t.g, sink, path, "column");
    int rc = mr_csv_walk(s, path, mr_gather_whole_keep, &t.whole, NULL, &t.facts, &whole, err);
    if (rc >= 0 && sink->n_wanted && !t.facts.header)
        rc = mr_error_plain(err, MR_E_FORMAT, "the columns of '%s' have no names: it has no header", path);
    bool columns = t.facts.header && (sink->n_wanted || !t.facts.numbers) && t.whole.n;
    if (rc >= 0 && columns)
        rc = mr_csv_walk(s, path, NULL, NULL, &events, NULL, NULL, err);
    if (rc >= 0)
        rc = columns ? mr_gather_finish(&t.g, settle_column, &t, err) : report_whole(&t, sink, &whole, err);
    free(whole.data);
    mr_gather_done(&t.g);
    free(t.whole.item);
    free(t.name);
    free(t.at);
    return rc < 0 ? rc : 0;
}

/* ---- writing ---- */

struct fields_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_text_printer printer;
    struct mr_sample_info info;
    uint64_t start, written;
    bool gzip;
    unsigned n;
    struct mr_field field[]; /* names are borrowed until the writer is closed */
};

static void fields_abort(struct mr_writer *base)
{
    struct fields_writer *w = (struct fields_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int put_header(struct fields_writer *w, struct mr_error *err)
{
    int rc = 0;
    for (unsigned k = 0; k < w->n && rc >= 0; k++) {
        rc = k ? mr_stream_out_put(w->out, ",", 1, err) : 0;
        if (rc >= 0)
            rc = mr_stream_out_put(w->out, w->field[k].name, strlen(w->field[k].name), err);
    }
    return rc < 0 ? rc : mr_stream_out_put(w->out, "\n", 1, err);
}

static int fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    for (unsigned k = 0; k < n; k++)
        if (fields[k].dims.n || fields[k].dtype == MR_C64 || fields[k].dtype == MR_C128) {
            mr_error_plain(err, MR_E_UNSUPPORTED, "field '%s': a column of a CSV file holds one real number per sample",
                           fields[k].name);
            return mr_error_hint(err, "give it the shape '-', or use another format"), MR_E_UNSUPPORTED;
        }
    struct fields_writer *w = calloc(1, sizeof(*w) + n * sizeof(w->field[0]));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->n = n;
    memcpy(w->field, fields, n * sizeof(w->field[0]));
    w->gzip = spec->compression == MR_COMP_GZIP;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    rc = put_header(w, err);
    if (rc < 0)
        fields_abort(&w->base);
    else
        *out = &w->base;
    return rc < 0 ? rc : 0;
}

static int fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = field ? mr_stream_out_put(w->out, ",", 1, err) : 0;
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    w->printer = (struct mr_text_printer){.dtype = info->dtype};
    return rc;
}

static int fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    w->written += len;
    return mr_text_print(&w->printer, w->out, data, len, err);
}

/* Behind the last field that has values: the label, and the end of the line. */
static int end_line(struct fields_writer *w, unsigned field, struct mr_error *err)
{
    char text[32];
    int rc = 0;
    for (unsigned k = field + 1; k < w->n; k++)
        if (w->field[k].storage != MR_FIELD_LABEL)
            return 0;
    for (unsigned k = field + 1; k < w->n && rc >= 0; k++) {
        int len = snprintf(text, sizeof text, ",%lld", (long long)w->info.label);
        rc = mr_stream_out_put(w->out, text, (size_t)len, err);
    }
    return rc < 0 ? rc : mr_stream_out_put(w->out, "\n", 1, err);
}

static int fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, mr_stream_out_position(w->out) - w->start}, .label = w->info.label};
    return end_line(w, field, err);
}

static int column_layout(void *writer, unsigned k, struct mr_layout *out, struct mr_error *err)
{
    const struct fields_writer *w = writer;
    return put_layout(w->gzip, w->field[k].dtype, true, out, err);
}

static int fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    uint64_t bytes = 0;
    int rc = mr_stream_out_close(w->out, &bytes, err);
    w->out = NULL;
    rc = mr_field_layouts(w->field, w->n, rc, column_layout, w, layouts, err);
    if (rc >= 0)
        *file_bytes = bytes;
    fields_abort(&w->base);
    return rc;
}

const struct mr_field_ops mr_csv_field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = scan_fields,
    .writer_open = fields_open,
    .begin = fields_begin,
    .data = fields_data,
    .end = fields_end,
    .writer_close = fields_close,
    .writer_abort = fields_abort,
};
