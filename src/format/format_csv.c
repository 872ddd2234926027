/* CSV as RFC 4180 has it, and TSV: records end with CRLF or LF (the last one may lack it), fields may be quoted and
 * then hold separators, line ends and doubled quotes. One record is one sample. A UTF-8 byte-order mark is skipped,
 * empty lines are no records. Every record of a file has the same number of fields; the first that has not is an error.
 *
 * A file of numbers gives arrays: int64 when all are integers, else float64; ours carry their type in the layout. A
 * file with anything else gives the bytes of the record. A column that the header line calls "label" is the label. The
 * first line is a header when it has a field called label, or a field that is no number above one that is.
 *
 * We write the header label,x0,x1,... and one line per sample, label first (empty where there is none).
 *
 *   layout   0  1  version = 1
 *            1  1  flags: 1 gzip, 2 numbers, 4 has a label column
 *            2  1  element type
 *            3  1  separator
 *            4  4  fields per record
 *            8  4  the label's column
 *           12  1  number of dims n (numbers), then n times 8 bytes */
#include "format/csv_parts.h"
#include "format/format_bytes.h"
#include "format/gzip_inflate.h"
#include "format/stream_in.h"
#include "format/text_values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CSV_LAYOUT_VERSION 1
#define CSV_GZIP 1
#define CSV_NUMBERS 2
#define CSV_LABEL 4
#define CSV_LAYOUT_MIN 13u
#define CSV_FIELDS_MAX (1u << 30)
#define NO_COLUMN UINT32_MAX

typedef unsigned long long ull;

struct csv_layout {
    unsigned flags;
    enum mr_dtype dtype;
    char separator;
    uint32_t fields, label_column;
    struct mr_dims dims;
};

static int pack_layout(const struct csv_layout *l, struct mr_layout *layout, struct mr_error *err)
{
    uint8_t b[CSV_LAYOUT_MIN + 8 * MR_DIMS_MAX] = {CSV_LAYOUT_VERSION, (uint8_t)l->flags, (uint8_t)l->dtype,
                                                   (uint8_t)l->separator};
    mr_store_le32(b + 4, l->fields);
    mr_store_le32(b + 8, l->label_column);
    b[12] = (uint8_t)l->dims.n;
    for (unsigned i = 0; i < l->dims.n; i++)
        mr_store_le64(b + CSV_LAYOUT_MIN + 8 * i, l->dims.dim[i]);
    return mr_layout_make(b, CSV_LAYOUT_MIN + 8 * l->dims.n, layout, err);
}

static int unpack_layout(const struct mr_layout *layout, struct csv_layout *l, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    if (layout->len < CSV_LAYOUT_MIN || b[0] != CSV_LAYOUT_VERSION || b[1] > 7 || b[2] >= MR_DTYPE_COUNT ||
        b[12] > MR_DIMS_MAX || layout->len != CSV_LAYOUT_MIN + 8u * b[12])
        return mr_error_plain(err, MR_E_FORMAT,
                              "bad layout of a CSV file (want at least %u bytes of version %d, have %zu bytes)",
                              CSV_LAYOUT_MIN, CSV_LAYOUT_VERSION, layout->len);
    *l = (struct csv_layout){.flags = b[1],
                             .dtype = b[2],
                             .separator = (char)b[3],
                             .fields = mr_load_le32(b + 4),
                             .label_column = mr_load_le32(b + 8)};
    unsigned per_element;
    uint64_t numbers = 1;
    mr_text_component(l->dtype, &per_element);
    l->dims.n = b[12];
    for (unsigned i = 0; i < l->dims.n; i++) {
        l->dims.dim[i] = mr_load_le64(b + CSV_LAYOUT_MIN + 8 * i);
        if (__builtin_mul_overflow(numbers, l->dims.dim[i], &numbers))
            numbers = UINT64_MAX;
    }
    bool labelled = l->flags & CSV_LABEL;
    if ((l->flags & CSV_NUMBERS) &&
        (l->fields > CSV_FIELDS_MAX || numbers > CSV_FIELDS_MAX || numbers * per_element + labelled != l->fields))
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a CSV file: %u fields cannot hold %llu numbers",
                              l->fields, (ull)numbers);
    return 0;
}

/* ---- writing ---- */

struct csv_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct csv_layout layout;
    struct mr_text_printer printer;
    struct mr_sample_info info;
    uint64_t start, written, samples;
};

static int put_text(struct mr_stream_out *o, const char *text, struct mr_error *err)
{
    return mr_stream_out_put(o, text, strlen(text), err);
}

static int csv_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                           struct mr_writer **out, struct mr_error *err)
{
    struct csv_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->layout =
        (struct csv_layout){.flags = CSV_NUMBERS | CSV_LABEL | (spec->compression == MR_COMP_GZIP ? CSV_GZIP : 0),
                            .dtype = spec->dtype,
                            .separator = ','};
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

/* The first sample decides the columns. */
static int write_header(struct csv_writer *w, const struct mr_sample_info *info, struct mr_error *err)
{
    unsigned per_element;
    enum mr_dtype component = mr_text_component(info->dtype, &per_element);
    uint64_t numbers = info->bytes / mr_dtype_bytes(component);
    if (numbers >= CSV_FIELDS_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "a CSV record of %llu fields is over the limit of %u", (ull)numbers + 1,
                              CSV_FIELDS_MAX);
    w->layout.dtype = info->dtype;
    w->layout.dims = info->dims;
    w->layout.fields = (uint32_t)numbers + 1;
    int rc = put_text(w->out, "label", err);
    for (uint64_t i = 0; i < numbers && rc >= 0; i++) {
        char *p = mr_stream_out_room(w->out, 32, err);
        if (!p)
            return err ? err->code : MR_E_INTERNAL;
        mr_stream_out_advance(w->out, (size_t)snprintf(p, 32, ",x%llu", (ull)i));
    }
    return rc < 0 ? rc : put_text(w->out, "\n", err);
}

static int csv_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct csv_writer *w = (struct csv_writer *)base;
    char label[32] = "";
    int rc = 0;
    if (!w->samples)
        rc = write_header(w, info, err);
    else if (info->bytes != w->info.bytes || info->dtype != w->info.dtype)
        rc = mr_error_plain(err, MR_E_UNSUPPORTED,
                            "samples of one CSV file must have one size (want %llu bytes, have %llu)",
                            (ull)w->info.bytes, (ull)info->bytes);
    if (rc < 0)
        return rc;
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    w->samples++;
    w->printer = (struct mr_text_printer){.dtype = info->dtype, .any = true};
    if (info->label != MR_LABEL_NONE)
        snprintf(label, sizeof label, "%lld", (long long)info->label);
    else if (!info->bytes)
        snprintf(label, sizeof label, "\"\""); /* an empty line would be no record */
    return put_text(w->out, label, err);
}

static int csv_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct csv_writer *w = (struct csv_writer *)base;
    w->written += len;
    return mr_text_print(&w->printer, w->out, data, len, err);
}

static int csv_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct csv_writer *w = (struct csv_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc < 0)
        return rc;
    uint64_t end = mr_stream_out_position(w->out);
    rc = put_text(w->out, "\n", err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, end - w->start}, .label = w->info.label};
    return 0;
}

static void csv_writer_abort(struct mr_writer *base)
{
    struct csv_writer *w = (struct csv_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int csv_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                            struct mr_error *err)
{
    struct csv_writer *w = (struct csv_writer *)base;
    struct csv_layout l = w->layout;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    if (!w->samples) {
        l.dims = (struct mr_dims){.n = 1};
        l.fields = 1;
    }
    int rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = pack_layout(&l, &made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

enum csv_state { RECORD_START, FIELD_START, IN_FIELD, IN_QUOTES, QUOTE_SEEN };

#define CAPTURE 128u

struct csv_scan {
    struct mr_stream_in in;
    mr_scan_fn *fn;
    void *user;
    struct mr_error *err;
    char separator;
    enum csv_state state;
    uint64_t line, record_line; /* from 1 */
    uint64_t records;           /* with the header */
    uint64_t record_start, cr_at;
    uint32_t column, columns;
    char text[CAPTURE]; /* the start of the field, unquoted */
    size_t text_len;
    /* Of the record being read. */
    bool record_numbers, record_integers, header_like;
    int64_t label;
    bool label_bad;
    /* Of the first record, until the second tells whether it is a header. */
    uint8_t *first_text; /* bit per column: a non-empty field that is no number */
    size_t first_text_cap;
    bool first_pending, first_numbers, first_integers, has_header;
    struct mr_sample_ref first;
    uint32_t label_column;
    /* Of all samples. */
    uint64_t samples;
    bool numbers, integers;
    /* For a scan of columns: where the field began, and who gets fields and records. */
    uint64_t cell_start;
    const struct mr_csv_events *events;
};

static void trim(const char **p, size_t *n)
{
    while (*n && (**p == ' ' || **p == '\t'))
        (*p)++, (*n)--;
    while (*n && ((*p)[*n - 1] == ' ' || (*p)[*n - 1] == '\t'))
        (*n)--;
}

/* Notes what kind of field this is. Kept short: it runs once per number of the file. */
static int end_field(struct csv_scan *c, const char *p, size_t n, bool cut, uint64_t end)
{
    struct mr_number num;
    int64_t v = 0;
    const char *text = p;
    const size_t text_len = n;
    if (c->column == CSV_FIELDS_MAX)
        return mr_error_plain(c->err, MR_E_LIMIT, "'%s' line %llu: more than %u fields", c->in.path,
                              (ull)c->record_line, CSV_FIELDS_MAX);
    trim(&p, &n);
    bool number = !cut && n && mr_number_lex(p, p + n, true, &num) == n;
    bool integer = number && mr_number_to_int64(&num, &v);
    if (c->events) {
        const struct mr_csv_cell cell = {.record = c->records,
                                         .column = c->column,
                                         .where = {c->cell_start, end - c->cell_start},
                                         .text = text,
                                         .len = text_len,
                                         .full_len = cut ? c->text_len : text_len,
                                         .number = number,
                                         .integer = integer,
                                         .empty = !n,
                                         .value = v};
        int rc = c->events->cell(c->events->user, &cell, c->err);
        if (rc < 0)
            return rc;
    }
    if (c->records == 0) {
        if (c->column / 8 >= c->first_text_cap) {
            size_t cap = c->first_text_cap ? 2 * c->first_text_cap : 64;
            uint8_t *bits = realloc(c->first_text, cap);
            if (!bits)
                return mr_error_set(c->err, -ENOMEM, "cannot scan '%s'", c->in.path);
            memset(bits + c->first_text_cap, 0, cap - c->first_text_cap);
            c->first_text = bits;
            c->first_text_cap = cap;
        }
        if (n && !number)
            c->first_text[c->column / 8] |= (uint8_t)(1u << c->column % 8);
        if (n == 5 && !cut && strncasecmp(p, "label", 5) == 0 && c->label_column == NO_COLUMN)
            c->label_column = c->column;
    } else if (c->records == 1 && c->column < c->columns && number &&
               (c->first_text[c->column / 8] >> c->column % 8 & 1)) {
        c->header_like = true;
    }
    if (c->column == c->label_column && c->records) {
        c->label = integer ? v : MR_LABEL_NONE;
        c->label_bad |= !integer && n;
    } else {
        c->record_numbers &= number;
        c->record_integers &= integer;
    }
    c->column++;
    return 0;
}

static int report(struct csv_scan *c, const struct mr_sample_ref *ref, bool numbers, bool integers)
{
    c->samples++;
    c->numbers &= numbers;
    c->integers &= integers;
    return c->fn(c->user, ref, NULL, c->err);
}

/* Decides about the first record once the second (or the end of the file) is known. */
static int settle_first(struct csv_scan *c)
{
    c->first_pending = false;
    c->has_header = c->label_column != NO_COLUMN || c->header_like;
    return c->has_header ? 0 : report(c, &c->first, c->first_numbers, c->first_integers);
}

static int end_record(struct csv_scan *c, uint64_t end)
{
    struct mr_sample_ref ref = {.raw = {c->record_start, end - c->record_start}, .label = c->label};
    int rc = 0;
    if (c->records == 0) {
        c->columns = c->column;
        c->first = ref;
        c->first.label = MR_LABEL_NONE;
        c->first_numbers = c->record_numbers;
        c->first_integers = c->record_integers;
        c->first_pending = true;
    } else if (c->column != c->columns) {
        return mr_error_plain(c->err, MR_E_FORMAT, "'%s' line %llu: want %u fields as in the first record, have %u",
                              c->in.path, (ull)c->record_line, c->columns, c->column);
    } else if (c->events) {
        rc = c->events->record(c->events->user, c->records, c->err);
    } else {
        if (c->first_pending)
            rc = settle_first(c);
        if (rc >= 0)
            rc = report(c, &ref, c->record_numbers, c->record_integers);
    }
    c->records++;
    c->state = RECORD_START;
    return rc;
}

static void start_record(struct csv_scan *c, uint64_t at)
{
    c->record_start = at;
    c->record_line = c->line;
    c->column = 0;
    c->record_numbers = c->record_integers = true;
    c->label = MR_LABEL_NONE;
    c->state = FIELD_START;
}

static void capture(struct csv_scan *c, char ch)
{
    if (c->text_len < CAPTURE)
        c->text[c->text_len] = ch;
    c->text_len++;
}

/* A separator or line end outside quotes. `end` is the record's end if it is one. */
static int finish_field(struct csv_scan *c, char ch, uint64_t at)
{
    /* A CR directly before the LF belongs to the line end, not to the field. */
    bool crlf = ch == '\n' && at && c->cr_at == at - 1 && at - 1 >= c->record_start;
    if (crlf && c->state == IN_FIELD && c->text_len)
        c->text_len--;
    int rc = end_field(c, c->text, MR_MIN(c->text_len, (size_t)CAPTURE), c->text_len > CAPTURE, at - crlf);
    c->text_len = 0;
    if (rc < 0)
        return rc;
    if (ch == '\n')
        return end_record(c, at - crlf);
    c->state = FIELD_START;
    return 0;
}

static int feed_byte(struct csv_scan *c, char ch, uint64_t at)
{
    if (ch == '\r')
        c->cr_at = at;
    switch (c->state) {
    case RECORD_START:
        if (ch == '\n' || ch == '\r')
            return 0;
        start_record(c, at);
        /* fallthrough */
    case FIELD_START:
        c->cell_start = at;
        if (ch == '"') {
            c->state = IN_QUOTES;
            return 0;
        }
        c->state = IN_FIELD;
        /* fallthrough */
    case IN_FIELD:
        if (ch == c->separator || ch == '\n')
            return finish_field(c, ch, at);
        capture(c, ch);
        return 0;
    case IN_QUOTES:
        if (ch == '"')
            c->state = QUOTE_SEEN;
        else
            capture(c, ch);
        return 0;
    case QUOTE_SEEN:
        if (ch == '"') {
            capture(c, ch);
            c->state = IN_QUOTES;
            return 0;
        }
        if (ch == c->separator || ch == '\n')
            return finish_field(c, ch, at);
        if (ch == '\r')
            return 0;
        return mr_error_plain(c->err, MR_E_FORMAT, "'%s' line %llu: text after the closing quote of a field",
                              c->in.path, (ull)c->line);
    }
    return 0;
}

/* A plain field that lies within the chunk, taken in one step: the common case. Returns its length, or -1. */
static int64_t plain_field(const struct csv_scan *c, const char *p, size_t n)
{
    for (size_t i = 0; i < n && i < CAPTURE; i++) {
        if (p[i] == c->separator)
            return (int64_t)i;
        if (p[i] == '\n' || p[i] == '\r' || p[i] == '"')
            return -1;
    }
    return -1;
}

static int feed(struct csv_scan *c, const char *p, size_t n, uint64_t base)
{
    for (size_t i = 0; i < n; i++) {
        int64_t len;
        int rc;
        if (c->state == FIELD_START && (len = plain_field(c, p + i, n - i)) >= 0) {
            c->cell_start = base + i;
            rc = end_field(c, p + i, (size_t)len, false, base + i + (uint64_t)len);
            i += (size_t)len;
        } else {
            rc = feed_byte(c, p[i], base + i);
            c->line += p[i] == '\n';
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int scan_end(struct csv_scan *c)
{
    int rc = 0;
    if (c->state == IN_QUOTES)
        return mr_error_plain(
            c->err, MR_E_FORMAT,
            "'%s': unexpected end of file inside the quoted field that starts in the record at line %llu", c->in.path,
            (ull)c->record_line);
    if (c->state != RECORD_START) {
        bool cr = c->cr_at + 1 == c->in.size && c->in.size - 1 >= c->record_start;
        c->cell_start = c->state == FIELD_START ? c->in.size - cr : c->cell_start;
        if (cr && c->state == IN_FIELD && c->text_len)
            c->text_len--;
        rc = end_field(c, c->text, MR_MIN(c->text_len, (size_t)CAPTURE), c->text_len > CAPTURE, c->in.size - cr);
        if (rc >= 0)
            rc = end_record(c, c->in.size - cr);
    }
    if (rc >= 0 && c->first_pending && !c->events)
        rc = settle_first(c);
    return rc;
}

static int scan_stream(struct csv_scan *c)
{
    const uint8_t *p;
    int64_t n;
    uint64_t at = 0;
    while ((n = mr_stream_in_chunk(&c->in, at, &p, c->err)) > 0) {
        size_t skip = at == 0 && n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        int rc = feed(c, (const char *)p + skip, (size_t)n - skip, at + skip);
        if (rc < 0)
            return rc;
        at += (uint64_t)n;
    }
    return n < 0 ? (int)n : scan_end(c);
}

static char separator_of(const char *path)
{
    size_t n = strlen(path);
    bool tsv =
        (n >= 4 && strcasecmp(path + n - 4, ".tsv") == 0) || (n >= 7 && strcasecmp(path + n - 7, ".tsv.gz") == 0);
    return tsv ? '\t' : ',';
}

static int scanned_layout(const struct csv_scan *c, struct mr_layout *layout, struct mr_error *err)
{
    struct csv_layout l = {.flags = c->in.gzip ? CSV_GZIP : 0, .separator = c->separator, .fields = c->columns};
    bool labelled = c->has_header && c->label_column != NO_COLUMN && !c->label_bad;
    if (labelled) {
        l.flags |= CSV_LABEL;
        l.label_column = c->label_column;
    }
    if (c->samples && c->numbers && !c->label_bad) {
        l.flags |= CSV_NUMBERS;
        l.dtype = c->integers ? MR_I64 : MR_F64;
        l.dims = (struct mr_dims){.n = 1, .dim = {c->columns - labelled}};
    }
    return pack_layout(&l, layout, err);
}

int mr_csv_walk(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, const struct mr_csv_events *events,
                struct mr_csv_facts *facts, struct mr_layout *layout, struct mr_error *err)
{
    struct csv_scan c = {.fn = fn,
                         .user = user,
                         .err = err,
                         .events = events,
                         .separator = separator_of(path),
                         .line = 1,
                         .cr_at = UINT64_MAX - 1,
                         .label_column = NO_COLUMN,
                         .numbers = true,
                         .integers = true};
    int rc = mr_stream_in_open(s, path, NULL, &c.in, err);
    if (rc < 0)
        return rc;
    rc = scan_stream(&c);
    if (rc >= 0 && layout)
        rc = scanned_layout(&c, layout, err);
    if (facts)
        *facts = (struct mr_csv_facts){.gzip = c.in.gzip,
                                       .header = c.has_header,
                                       .numbers = c.samples && c.numbers && !c.label_bad,
                                       .integers = c.integers,
                                       .labelled = c.has_header && c.label_column != NO_COLUMN && !c.label_bad,
                                       .columns = c.columns,
                                       .separator = c.separator};
    mr_stream_in_close(&c.in);
    free(c.first_text);
    return rc < 0 ? rc : 0;
}

static int csv_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                    struct mr_error *err)
{
    return mr_csv_walk(s, path, fn, user, NULL, NULL, layout, err);
}

/* ---- reading ---- */

static int csv_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct csv_layout l = {0};
    if (mr_csv_is_cell(layout))
        return mr_csv_cell_cost(layout, out, err);
    int rc = unpack_layout(layout, &l, err);
    if (rc < 0)
        return rc;
    bool gzip = l.flags & CSV_GZIP, numbers = l.flags & CSV_NUMBERS;
    *out = (struct mr_read_cost){
        .access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
        .bytes_read_per_payload_byte = numbers ? mr_text_amplification(l.dtype) : 1.0,
        .verbatim = !gzip && !numbers,
        .note = gzip      ? "gzip: the whole file is inflated once"
                : numbers ? "text: every number is parsed"
                          : "the bytes of the record",
    };
    return 0;
}

static int csv_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                      struct mr_error *err)
{
    struct csv_layout l = {.flags = mr_csv_cell_gzip(layout) ? CSV_GZIP : 0};
    int rc = mr_csv_is_cell(layout) ? 0 : unpack_layout(layout, &l, err);
    if (rc < 0)
        return rc;
    return l.flags & CSV_GZIP ? mr_gzip_inflate(raw, len, out, out_len, err)
                              : mr_format_no_unpack(layout, raw, len, out, out_len, err);
}

struct csv_cursor {
    const char *p, *end;
    char separator;
    const char *field;
    size_t len;
    bool last;
};

/* Cuts the next field; a quoted one without its quotes (numbers hold no doubled quotes). */
static bool next_field(struct csv_cursor *c)
{
    if (c->p < c->end && *c->p == '"') {
        const char *close = memchr(c->p + 1, '"', (size_t)(c->end - c->p - 1));
        if (!close || (close + 1 < c->end && close[1] != c->separator))
            return false;
        c->field = c->p + 1;
        c->len = (size_t)(close - c->field);
        c->p = close + 1;
    } else {
        const char *q = c->p;
        while (q < c->end && *q != c->separator)
            q++;
        c->field = c->p;
        c->len = (size_t)(q - c->p);
        c->p = q;
    }
    c->last = c->p == c->end;
    c->p += !c->last;
    trim(&c->field, &c->len);
    return true;
}

/* The plain bytes from here, but not beyond the label's column nor the last, which has no separator. */
static uint32_t fast_bytes(const struct csv_layout *l, struct csv_cursor *c, uint32_t column, struct mr_text_sink *sink)
{
    uint32_t upto = (l->flags & CSV_LABEL) && column <= l->label_column ? l->label_column : l->fields - 1;
    size_t room = MR_MIN((size_t)(upto - column), sink->cap_bytes - sink->bytes);
    size_t n = mr_text_run_u8(c->p, c->end, c->separator, sink->dst + sink->bytes, room, &c->p);
    sink->bytes += n;
    return (uint32_t)n;
}

static int parse_record(const struct csv_layout *l, struct csv_cursor *c, const struct mr_sample_ref *ref,
                        struct mr_text_sink *sink, int64_t *label, struct mr_error *err)
{
    struct mr_number num;
    uint32_t column = 0;
    do {
        if (sink->component == MR_U8 && column < l->fields)
            column += fast_bytes(l, c, column, sink);
        bool is_label = (l->flags & CSV_LABEL) && column == l->label_column;
        column++;
        if (!next_field(c))
            return mr_error_plain(err, MR_E_FORMAT, "record at offset %llu: field %u has a wrong quote",
                                  (ull)ref->raw.offset, column);
        if (is_label && !c->len)
            continue;
        bool ok = c->len && mr_number_lex(c->field, c->field + c->len, true, &num) == c->len &&
                  (is_label ? mr_number_to_int64(&num, label) : mr_text_sink_add(sink, &num));
        if (!ok)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "record at offset %llu: field %u, '%.*s', is not a number of type %s",
                                  (ull)ref->raw.offset, column, (int)MR_MIN(c->len, (size_t)40), c->field,
                                  is_label ? "i8" : mr_dtype_numpy(l->dtype));
    } while (!c->last && column < l->fields);
    if (!c->last || column != l->fields)
        return mr_error_plain(err, MR_E_FORMAT,
                              "record at offset %llu has the wrong number of fields (want %u, have %s%u)",
                              (ull)ref->raw.offset, l->fields, c->last ? "" : "more than ", column);
    return 0;
}

static int csv_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                      unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct csv_layout l = {0};
    struct mr_text_sink sink;
    if (mr_csv_is_cell(layout))
        return mr_csv_cell_decode(d, layout, ref, raw, len, out, err);
    int rc = unpack_layout(layout, &l, err);
    if (rc < 0)
        return rc;
    if (!(l.flags & CSV_NUMBERS))
        return mr_format_decode_bytes(d, layout, ref, flags, raw, len, out, err);
    unsigned per_element;
    unsigned size = mr_dtype_bytes(mr_text_component(l.dtype, &per_element));
    size_t need = (size_t)(l.fields - !!(l.flags & CSV_LABEL)) * size;
    /* Every number takes at least one byte of text and, but for the last, a separator. */
    if ((uint64_t)l.fields > (uint64_t)len + 1)
        return mr_error_plain(err, MR_E_FORMAT, "record at offset %llu of %zu bytes cannot hold %u fields",
                              (ull)ref->raw.offset, len, l.fields);
    if (out->dst && out->dst_cap < need) {
        out->bytes = need;
        return mr_error_plain(err, MR_E_LIMIT, "the sample has %zu bytes, the buffer %zu", need, out->dst_cap);
    }
    void *dst = out->dst ? out->dst : mr_decoder_scratch(d, 0, need + 1);
    if (!dst)
        return mr_error_set(err, -ENOMEM, "cannot decode a sample of %zu bytes", need);
    int64_t label = ref->label;
    mr_text_sink_init(&sink, l.dtype, dst, need);
    rc = parse_record(&l, &(struct csv_cursor){.p = raw, .end = (const char *)raw + len, .separator = l.separator}, ref,
                      &sink, &label, err);
    if (rc < 0)
        return rc;
    out->data = dst;
    out->bytes = need;
    out->dtype = l.dtype;
    out->dims = l.dims;
    out->label = label;
    return 0;
}

const struct mr_format_ops mr_format_csv = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "csv",
    .doc = "Comma- or tab-separated values (RFC 4180), one record per sample; numbers are parsed; optionally gzip.",
    .extensions = ".csv,.tsv,.csv.gz,.tsv.gz",
    .caps = MR_FMT_MULTI | MR_FMT_LABEL | MR_FMT_DTYPE,
    .shape = mr_format_shape_flat,
    .synth = mr_text_synth,
    .check = mr_text_check,
    .writer_open = csv_writer_open,
    .sample_begin = csv_sample_begin,
    .sample_data = csv_sample_data,
    .sample_end = csv_sample_end,
    .writer_close = csv_writer_close,
    .writer_abort = csv_writer_abort,
    .side_suffixes = "",
    .scan = csv_scan,
    .cost = csv_cost,
    .unpack = csv_unpack,
    .plan = mr_format_plan_single,
    .decode = csv_decode,
    .fields = &mr_csv_field_ops,
};
