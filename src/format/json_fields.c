/* JSON whose records have several members: a field per member. Numbers and arrays of numbers are i8 where all of a file
 * are integers, else f8 (null is NaN); strings are text; anything else is text as it is written. Records with an array
 * called x, data and so on stay one array and a label, unless members are asked for by name. An integer member "label" is
 * kept in the manifest.
 *
 * A ref is the value's text. Layout version 2:
 *
 *   0  1  version = 2
 *   1  1  flags: 1 gzip
 *   2  1  element type of numbers
 *   3  1  0 text, 1 numbers
 *   4  1  dims n of all values; 255: as they are nested in the text
 *   5     n times 8 bytes */
#include "format/field_gather.h"
#include "format/field_names.h"
#include "format/json_parts.h"
#include "format/stream_out.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER_VERSION 2
#define MEMBER_HEAD 5u
#define MEMBER_GZIP 1
#define AS_NESTED 255u

typedef unsigned long long ull;

/* ---- layout and reading ---- */

struct member_layout {
    bool gzip, numbers, nested;
    enum mr_dtype dtype;
    struct mr_dims dims;
};

bool mr_json_is_member(const struct mr_layout *layout)
{
    return layout->len >= MEMBER_HEAD && *(const uint8_t *)layout->data == MEMBER_VERSION;
}

bool mr_json_member_gzip(const struct mr_layout *layout)
{
    return mr_json_is_member(layout) && (((const uint8_t *)layout->data)[1] & MEMBER_GZIP);
}

static int put_layout(const struct member_layout *l, struct mr_layout *out, struct mr_error *err)
{
    uint8_t b[MEMBER_HEAD + 8 * MR_DIMS_MAX] = {MEMBER_VERSION, l->gzip ? MEMBER_GZIP : 0, (uint8_t)l->dtype,
                                                l->numbers, l->nested ? AS_NESTED : (uint8_t)l->dims.n};
    unsigned n = l->nested ? 0 : l->dims.n;
    for (unsigned i = 0; i < n; i++)
        mr_store_le64(b + MEMBER_HEAD + 8 * i, l->dims.dim[i]);
    return mr_layout_make(b, MEMBER_HEAD + 8 * n, out, err);
}

static int get_layout(const struct mr_layout *layout, struct member_layout *l, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    unsigned n = b[4] == AS_NESTED ? 0 : b[4];
    if (b[1] > MEMBER_GZIP || b[2] >= MR_DTYPE_COUNT || b[3] > 1 || n > MR_DIMS_MAX ||
        layout->len != MEMBER_HEAD + 8 * n)
        return mr_error_plain(err, MR_E_FORMAT, "bad layout of a JSON member (%zu bytes)", layout->len);
    *l = (struct member_layout){.gzip = b[1], .numbers = b[3], .nested = b[4] == AS_NESTED, .dtype = b[2]};
    l->dims.n = n;
    for (unsigned i = 0; i < n; i++)
        l->dims.dim[i] = mr_load_le64(b + MEMBER_HEAD + 8 * i);
    return 0;
}

int mr_json_member_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct member_layout l = {0};
    int rc = get_layout(layout, &l, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){.access = l.gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
                                 .bytes_read_per_payload_byte = l.numbers ? mr_text_amplification(l.dtype) : 1.0,
                                 .note = l.gzip      ? "gzip: the whole file is inflated once"
                                         : l.numbers ? "text: every number is parsed"
                                                     : "the text of the member"};
    return 0;
}

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        v = v << 4 | (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static size_t put_utf8(char *dst, unsigned c)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    static const unsigned lead[] = {0, 0xc0, 0xe0, 0xf0};
    unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    dst[0] = (char)(lead[more] | c >> (6 * more));
    for (unsigned i = 1; i <= more; i++)
        dst[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

/* A string without its quotes and escapes; its text was checked when it was found, and may have changed since. */
static bool unescape(const char *p, size_t len, char *dst, size_t *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t n = 0, i = 1;
    for (; i + 1 < len; i++) {
        if (p[i] != '\\') {
            dst[n++] = p[i];
            continue;
        }
        if (++i + 1 >= len)
            return false;
        const char *at = strchr(from, p[i]);
        if (at && *at) {
            dst[n++] = to[at - from];
            continue;
        }
        if (p[i] != 'u' || i + 5 >= len)
            return false;
        unsigned c = hex4(p + i + 1);
        i += 4;
        if (c >= 0xd800 && c < 0xdc00 && i + 7 < len && p[i + 1] == '\\') {
            c = 0x10000 + ((c - 0xd800) << 10) + (hex4(p + i + 3) & 0x3ff);
            i += 6;
        }
        n += put_utf8(dst + n, c & 0x1fffff);
    }
    *out = n;
    return i < len && p[i] == '"';
}

static int deliver_text(struct mr_decoder *d, const struct mr_sample_ref *ref, const char *raw, size_t len,
                        struct mr_sample_out *out, struct mr_error *err)
{
    char *text = mr_decoder_scratch(d, 0, len + 4);
    size_t n = len;
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot decode a text of %zu bytes", len);
    if (len && *raw != '"')
        memcpy(text, raw, len);
    else if (!unescape(raw, len, text, &n))
        return mr_error_plain(err, MR_E_FORMAT, "the member at offset %llu is no string", (ull)ref->raw.offset);
    out->dtype = MR_U8;
    out->dims = (struct mr_dims){1, {n}};
    out->bytes = n;
    if (out->dst && out->dst_cap < n)
        return mr_error_plain(err, MR_E_LIMIT, "the text has %zu bytes, the buffer %zu", n, out->dst_cap);
    if (out->dst && n)
        memcpy(out->dst, text, n);
    out->data = out->dst ? out->dst : text;
    return 0;
}

static int deliver_number(struct mr_decoder *d, const struct mr_sample_ref *ref, enum mr_dtype dtype, const char *raw,
                          size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_number num;
    struct mr_text_sink sink;
    bool null = len == 4 && memcmp(raw, "null", 4) == 0;
    const char *p = null ? "nan" : raw;
    size_t n = null ? 3 : len;
    out->dtype = dtype;
    out->dims = (struct mr_dims){.n = 0};
    out->bytes = mr_dtype_bytes(dtype);
    if (out->dst && out->dst_cap < out->bytes)
        return mr_error_plain(err, MR_E_LIMIT, "a number has %zu bytes, the buffer %zu", out->bytes, out->dst_cap);
    void *dst = out->dst ? out->dst : mr_decoder_scratch(d, 1, 16);
    if (!dst)
        return mr_error_set(err, -ENOMEM, "cannot decode a number");
    mr_text_sink_init(&sink, dtype, dst, out->bytes);
    if (mr_number_lex(p, p + n, true, &num) != n || !mr_text_sink_add(&sink, &num) || sink.bytes != out->bytes)
        return mr_error_plain(err, MR_E_FORMAT, "the member at offset %llu, '%.*s', is no number of type %s",
                              (ull)ref->raw.offset, (int)MR_MIN(len, (size_t)40), raw, mr_dtype_numpy(dtype));
    out->data = dst;
    return 0;
}

int mr_json_member_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                          const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct member_layout l = {0};
    uint64_t want = 1, have = 1;
    int rc = get_layout(layout, &l, err);
    out->label = ref->label;
    if (rc < 0)
        return rc;
    if (!l.numbers)
        return deliver_text(d, ref, raw, len, out, err);
    bool array = len && *(const char *)raw == '[';
    rc = array ? mr_json_array_decode(d, ref, l.dtype, raw, len, out, err)
               : deliver_number(d, ref, l.dtype, raw, len, out, err);
    out->label = ref->label;
    if (rc < 0 || l.nested)
        return rc;
    for (unsigned i = 0; i < l.dims.n; i++)
        if (__builtin_mul_overflow(want, l.dims.dim[i], &want))
            want = UINT64_MAX;
    for (unsigned i = 0; i < out->dims.n; i++)
        have *= out->dims.dim[i];
    if (want != have)
        return mr_error_plain(err, MR_E_FORMAT, "the member at offset %llu has %llu numbers, want %llu",
                              (ull)ref->raw.offset, (ull)have, (ull)want);
    out->dims = l.dims;
    return 0;
}

/* ---- finding ---- */

/* Bits of mr_gather_field.any. */
#define HAS_TEXT 1u
#define HAS_FLOAT 2u
#define HAS_NUMBER 4u
#define NO_LABEL 8u

struct fields_scan {
    struct mr_gather g;
    struct mr_json_facts facts;
    unsigned label; /* field */
    bool has_label;
    struct mr_gather_whole whole;
};

static int take_member(void *user, const struct mr_json_member *m, struct mr_error *err)
{
    struct fields_scan *t = user;
    struct mr_gather_value v = {.ref = {.raw = m->where}, .dtype = MR_U8, .storage = MR_FIELD_TEXT, .dims = m->dims};
    unsigned k;
    int rc = mr_gather_find(&t->g, m->name, m->name_len, NULL, &k, err);
    if (rc)
        return rc == MR_GATHER_SKIP ? 0 : rc;
    bool label = m->name_len == 5 && memcmp(m->name, "label", 5) == 0;
    if (!t->g.samples && label) {
        t->label = k;
        t->has_label = true;
    } else if (!t->g.samples && !t->g.has_primary) {
        t->g.primary = k;
        t->g.has_primary = true;
    }
    struct mr_gather_field *f = &t->g.field[k];
    bool number = m->kind == MR_MEMBER_NUMBER || m->kind == MR_MEMBER_ARRAY;
    f->any |= number ? HAS_NUMBER : m->kind == MR_MEMBER_NULL ? HAS_FLOAT : HAS_TEXT;
    f->any |= number && !m->integers ? HAS_FLOAT : 0;
    bool small = m->kind == MR_MEMBER_NUMBER && m->integers && m->value > INT32_MIN && m->value <= INT32_MAX;
    f->any |= small ? 0 : NO_LABEL;
    if (label && small)
        t->g.label = m->value;
    return mr_gather_value(&t->g, k, &v, NULL, err);
}

static int take_record(void *user, uint64_t record, struct mr_error *err)
{
    struct fields_scan *t = user;
    (void)record;
    return mr_gather_sample(&t->g, NULL, err);
}

static int settle_member(void *user, struct mr_gather_field *f, unsigned k, bool primary, struct mr_layout *out,
                         struct mr_error *err)
{
    const struct fields_scan *t = user;
    bool numbers = !(f->any & HAS_TEXT) && (f->any & HAS_NUMBER);
    bool label = t->has_label && k == t->label && !primary && numbers && !(f->any & NO_LABEL);
    struct member_layout l = {.gzip = t->facts.gzip, .numbers = numbers, .nested = true};
    l.dtype = !numbers ? MR_U8 : f->any & HAS_FLOAT ? MR_F64 : MR_I64;
    f->field.role = primary ? MR_FIELD_INPUT : mr_field_role_of_name(f->name);
    f->field.dtype = l.dtype;
    f->field.storage = label ? MR_FIELD_LABEL : numbers ? MR_FIELD_RAW : MR_FIELD_TEXT;
    if (!numbers) {
        f->field.variable = 0;
        f->field.dims = (struct mr_dims){.n = 1};
    }
    return label ? 0 : put_layout(&l, out, err);
}

/* Records as they are: an array of numbers, or their bytes; and their labels. */
static int report_whole(struct fields_scan *t, const struct mr_field_sink *sink, struct mr_layout *whole,
                        struct mr_error *err)
{
    bool numbers = t->facts.numbers;
    const struct mr_field data = {.name = "data",
                                  .dtype = numbers ? t->facts.dtype : MR_U8,
                                  .storage = numbers ? MR_FIELD_RAW : MR_FIELD_TEXT,
                                  .role = MR_FIELD_INPUT,
                                  .variable = numbers ? t->facts.shape.variable : 0,
                                  .dims = numbers ? t->facts.shape.dims : (struct mr_dims){.n = 1}};
    return mr_gather_whole_report(&t->whole, &data, true, whole, sink, err);
}

static int scan_fields(struct mr_store *s, const char *path, bool lines, const struct mr_field_sink *sink,
                       struct mr_error *err)
{
    struct fields_scan t = {0};
    const struct mr_json_events events = {.user = &t, .member = take_member, .record = take_record};
    struct mr_layout whole = {0};
    mr_gather_init(&t.g, sink, path, "member");
    int rc = mr_json_walk(s, path, lines, mr_gather_whole_keep, &t.whole, NULL, &t.facts, &whole, err);
    bool members = rc >= 0 && t.whole.n && (sink->n_wanted || !t.facts.numbers);
    struct mr_error why = {0};
    if (members) {
        rc = mr_json_walk(s, path, lines, NULL, NULL, &events, NULL, NULL, &why);
        bool no_objects = rc == MR_E_FORMAT && !t.g.samples && !sink->n_wanted && !t.g.n;
        members = !no_objects; /* records that are no objects are their bytes */
        if (no_objects)
            rc = 0;
        else if (rc < 0 && err)
            *err = why;
    }
    if (rc >= 0)
        rc = members && t.g.n ? mr_gather_finish(&t.g, settle_member, &t, err) : report_whole(&t, sink, &whole, err);
    free(whole.data);
    mr_gather_done(&t.g);
    free(t.whole.item);
    return rc < 0 ? rc : 0;
}

static int json_scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                            struct mr_error *err)
{
    (void)flags;
    return scan_fields(s, path, false, sink, err);
}

static int jsonl_scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                             struct mr_error *err)
{
    (void)flags;
    return scan_fields(s, path, true, sink, err);
}

/* ---- writing ---- */

struct fields_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_text_printer printer;
    struct mr_sample_info info;
    uint64_t start, written, samples;
    bool gzip, lines;
    unsigned n;
    struct mr_field field[]; /* names are borrowed until the writer is closed */
};

static int put_text(struct fields_writer *w, const char *text, struct mr_error *err)
{
    return mr_stream_out_put(w->out, text, strlen(text), err);
}

static void fields_abort(struct mr_writer *base)
{
    struct fields_writer *w = (struct fields_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int open_fields(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, bool lines, struct mr_writer **out,
                       struct mr_error *err)
{
    struct fields_writer *w = calloc(1, sizeof(*w) + n * sizeof(w->field[0]));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->n = n;
    w->lines = lines;
    memcpy(w->field, fields, n * sizeof(w->field[0]));
    w->gzip = spec->compression == MR_COMP_GZIP;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc >= 0 && !lines)
        rc = put_text(w, "[", err);
    if (rc < 0)
        fields_abort(&w->base);
    else
        *out = &w->base;
    return rc < 0 ? rc : 0;
}

static int json_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                            const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    return open_fields(s, path, spec, fields, n, false, out, err);
}

static int jsonl_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                             const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    return open_fields(s, path, spec, fields, n, true, out, err);
}

/* Names of generated fields have no quotes and no control characters. */
static int fields_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = 0;
    if (field == 0 && !w->lines)
        rc = put_text(w, w->samples++ ? ",\n" : "\n", err);
    if (rc >= 0)
        rc = put_text(w, field ? ",\"" : "{\"", err);
    if (rc >= 0)
        rc = put_text(w, w->field[field].name, err);
    if (rc >= 0)
        rc = put_text(w, "\":", err);
    w->info = *info;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    w->printer = (struct mr_text_printer){.dtype = info->dtype, .json = true};
    return rc < 0 || !info->dims.n ? rc : put_text(w, "[", err);
}

static int fields_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    w->written += len;
    return mr_text_print(&w->printer, w->out, data, len, err);
}

/* Behind the last field that has values: the label, and the end of the record. */
static int end_record(struct fields_writer *w, unsigned field, struct mr_error *err)
{
    char text[MR_FIELD_NAME_MAX + 32];
    int rc = 0;
    for (unsigned k = field + 1; k < w->n; k++)
        if (w->field[k].storage != MR_FIELD_LABEL)
            return 0;
    for (unsigned k = field + 1; k < w->n && rc >= 0; k++) {
        int n = snprintf(text, sizeof text, ",\"%s\":%lld", w->field[k].name, (long long)w->info.label);
        rc = mr_stream_out_put(w->out, text, (size_t)n, err);
    }
    return rc < 0 ? rc : put_text(w, w->lines ? "}\n" : "}", err);
}

static int fields_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0 && w->info.dims.n)
        rc = put_text(w, "]", err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, mr_stream_out_position(w->out) - w->start}, .label = w->info.label};
    return end_record(w, field, err);
}

static int written_layout(void *writer, unsigned k, struct mr_layout *out, struct mr_error *err)
{
    const struct fields_writer *w = writer;
    const struct member_layout l = {
        .gzip = w->gzip, .numbers = true, .dtype = w->field[k].dtype, .dims = w->field[k].dims};
    return put_layout(&l, out, err);
}

static int fields_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct fields_writer *w = (struct fields_writer *)base;
    uint64_t bytes = 0;
    int rc = w->lines ? 0 : put_text(w, "\n]\n", err);
    if (rc >= 0) {
        rc = mr_stream_out_close(w->out, &bytes, err);
        w->out = NULL;
    }
    rc = mr_field_layouts(w->field, w->n, rc, written_layout, w, layouts, err);
    if (rc >= 0)
        *file_bytes = bytes;
    fields_abort(&w->base);
    return rc;
}

#define JSON_FIELD_OPS(scan_fn, open_fn)                                                                               \
    {                                                                                                                  \
        .size = sizeof(struct mr_field_ops), .scan = scan_fn, .writer_open = open_fn, .begin = fields_begin,           \
        .data = fields_data, .end = fields_end, .writer_close = fields_close, .writer_abort = fields_abort,            \
    }

const struct mr_field_ops mr_json_field_ops = JSON_FIELD_OPS(json_scan_fields, json_fields_open);
const struct mr_field_ops mr_jsonl_field_ops = JSON_FIELD_OPS(jsonl_scan_fields, jsonl_fields_open);
