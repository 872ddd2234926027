/* JSON: one array of records per file (json), or one record per line (jsonl; any white space between records will do).
 * A sample is one record, its ref the record's byte range. We write
 *
 *   {"label":3,"dtype":"u1","x":[17,4,...]}      with "shape":[224,224,3] before "x" unless the sample has one
 * dimension
 *
 * so that a file says by itself what it holds. Reading takes the numbers of the array called x, data, image, values,
 * features or pixels (the first there is), or of a record that is an array itself; nested arrays must be rectangular
 * and give the shape. Without a dtype, integers become int64 and others float64. When any record of a file has no such
 * array, all samples of the file are the bytes of their records.
 *
 * Layout: byte 0 version = 1, byte 1 flags (1 gzip, 2 numbers), byte 2 element type. */
#include "format/format_bytes.h"
#include "format/gzip_inflate.h"
#include "format/field_names.h"
#include "format/json_parts.h"
#include "format/stream_in.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JSON_LAYOUT_VERSION 1
#define JSON_GZIP 1
#define JSON_NUMBERS 2

typedef unsigned long long ull;

extern const struct mr_format_ops mr_format_json, mr_format_jsonl;

/* ---- one record ---- */

enum wanted { W_OTHER, W_LABEL, W_DTYPE, W_SHAPE, W_PAYLOAD };

/* Follows the tokens of one record and notes what it is. With a sink, the numbers are stored as they come. */
struct record {
    unsigned base; /* depth of the record itself */
    bool started, is_object;
    enum wanted key;
    unsigned payload_depth; /* of the payload array; 0 = none yet */
    bool in_payload, payload_seen, in_shape;
    bool numbers; /* payload there, nothing but numbers, rectangular */
    bool integers;
    uint64_t count;
    unsigned rank; /* nested arrays of the payload */
    uint64_t have[MR_DIMS_MAX], dim[MR_DIMS_MAX];
    bool dim_known[MR_DIMS_MAX];
    struct mr_dims shape; /* as stated */
    bool shape_given, dtype_given;
    enum mr_dtype dtype;
    int64_t label;
    struct mr_text_sink *sink;
    bool sink_failed;
};

static void record_init(struct record *r, unsigned base, struct mr_text_sink *sink)
{
    *r = (struct record){.base = base, .numbers = true, .integers = true, .label = MR_LABEL_NONE, .sink = sink};
}

static enum wanted key_of(const struct mr_json_token *t)
{
    static const struct {
        const char *name;
        enum wanted key;
    } keys[] = {{"label", W_LABEL},    {"dtype", W_DTYPE},      {"shape", W_SHAPE},
                {"x", W_PAYLOAD},      {"data", W_PAYLOAD},     {"image", W_PAYLOAD},
                {"values", W_PAYLOAD}, {"features", W_PAYLOAD}, {"pixels", W_PAYLOAD}};
    for (size_t i = 0; i < MR_ARRAY_LEN(keys); i++)
        if (strlen(keys[i].name) == t->len && memcmp(keys[i].name, t->text, t->len) == 0)
            return keys[i].key;
    return W_OTHER;
}

static void payload_open(struct record *r, unsigned level)
{
    if (level >= MR_DIMS_MAX) {
        r->numbers = false;
        return;
    }
    /* An array beside a number, or numbers above the deepest level seen, is not rectangular. */
    if (level && r->count && r->rank <= level)
        r->numbers = false;
    if (level)
        r->have[level - 1]++;
    r->rank = MR_MAX(r->rank, level + 1);
    r->have[level] = 0;
}

static void payload_close(struct record *r, unsigned level)
{
    if (level >= MR_DIMS_MAX)
        return;
    if (r->dim_known[level] && r->dim[level] != r->have[level])
        r->numbers = false;
    r->dim[level] = r->have[level];
    r->dim_known[level] = true;
}

static void payload_number(struct record *r, const struct mr_json_token *t)
{
    int64_t v;
    unsigned level = t->depth - r->payload_depth - 1;
    if (level + 1 != r->rank || level >= MR_DIMS_MAX) {
        r->numbers = false;
        return;
    }
    r->have[level]++;
    r->count++;
    if (r->sink)
        r->sink_failed |= !mr_text_sink_add(r->sink, t->number);
    else if (r->integers && !mr_number_to_int64(t->number, &v))
        r->integers = false;
}

static void payload_token(struct record *r, const struct mr_json_token *t)
{
    unsigned level = t->depth - r->payload_depth;
    switch (t->event) {
    case MR_PUSH_ARRAY: payload_open(r, level); break;
    case MR_PUSH_ARRAY_END:
        payload_close(r, level);
        if (!level)
            r->in_payload = false;
        break;
    case MR_PUSH_NUMBER: payload_number(r, t); break;
    default: r->numbers = false; break;
    }
}

static void shape_number(struct record *r, const struct mr_json_token *t)
{
    int64_t v;
    if (r->shape.n < MR_DIMS_MAX && mr_number_to_int64(t->number, &v) && v >= 0)
        r->shape.dim[r->shape.n++] = (uint64_t)v;
    else
        r->numbers = false;
}

static void member_value(struct record *r, const struct mr_json_token *t)
{
    char name[32] = "";
    if (r->key == W_PAYLOAD && t->event == MR_PUSH_ARRAY && !r->payload_seen) {
        r->payload_seen = r->in_payload = true;
        r->payload_depth = t->depth;
        payload_token(r, t);
    } else if (r->key == W_LABEL && t->event == MR_PUSH_NUMBER) {
        if (!mr_number_to_int64(t->number, &r->label))
            r->label = MR_LABEL_NONE;
    } else if (r->key == W_SHAPE && t->event == MR_PUSH_ARRAY) {
        r->in_shape = r->shape_given = true;
        r->shape.n = 0;
    } else if (r->key == W_DTYPE && t->event == MR_PUSH_STRING && t->len < sizeof name) {
        memcpy(name, t->text, t->len);
        r->dtype_given = mr_dtype_parse(name, &r->dtype, NULL, NULL) == 0;
    }
}

/* Takes one token of the record; returns true when it was the last. */
static bool record_token(struct record *r, const struct mr_json_token *t)
{
    bool first = !r->started;
    r->started = true;
    if (r->in_payload) {
        payload_token(r, t);
    } else if (r->in_shape) {
        if (t->event == MR_PUSH_NUMBER)
            shape_number(r, t);
        else if (t->event == MR_PUSH_ARRAY_END)
            r->in_shape = false;
        else
            r->numbers = false;
    } else if (first) {
        r->is_object = t->event == MR_PUSH_OBJECT;
        r->key = W_PAYLOAD;
        if (t->event == MR_PUSH_ARRAY)
            member_value(r, t);
    } else if (r->is_object && t->depth == r->base + 1) {
        if (t->event == MR_PUSH_KEY)
            r->key = key_of(t);
        else
            member_value(r, t);
    }
    bool opens = t->event == MR_PUSH_OBJECT || t->event == MR_PUSH_ARRAY;
    return t->depth == r->base && !opens;
}

/* The shape of the payload, or false when the stated one does not fit the numbers. */
static bool record_dims(const struct record *r, enum mr_dtype dtype, struct mr_dims *out)
{
    unsigned per_element;
    mr_text_component(dtype, &per_element);
    if (r->shape_given) {
        uint64_t n = per_element;
        for (unsigned i = 0; i < r->shape.n; i++)
            if (__builtin_mul_overflow(n, r->shape.dim[i], &n))
                return false;
        *out = r->shape;
        return n == r->count;
    }
    *out = (struct mr_dims){.n = r->rank};
    for (unsigned i = 0; i < r->rank; i++)
        out->dim[i] = r->dim[i];
    if (!r->rank || out->dim[r->rank - 1] % per_element)
        return false;
    out->dim[r->rank - 1] /= per_element;
    return true;
}

static bool record_is_numbers(const struct record *r)
{
    struct mr_dims dims;
    return r->payload_seen && r->numbers && record_dims(r, r->dtype_given ? r->dtype : MR_F64, &dims);
}

/* ---- writing ---- */

struct json_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    struct mr_text_printer printer;
    struct mr_sample_info info;
    enum mr_dtype dtype;
    uint64_t start, written, samples;
    bool lines, gzip;
};

static int put_text(struct mr_stream_out *o, const char *text, struct mr_error *err)
{
    return mr_stream_out_put(o, text, strlen(text), err);
}

static int open_writer(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, bool lines,
                       struct mr_writer **out, struct mr_error *err)
{
    struct json_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    w->lines = lines;
    w->gzip = spec->compression == MR_COMP_GZIP;
    w->dtype = spec->dtype;
    int rc = mr_stream_out_open(s, path, spec->compression, spec->compression_level, 0, &w->out, err);
    if (rc < 0) {
        free(w);
        return rc;
    }
    *out = &w->base;
    return 0;
}

static int json_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                            struct mr_writer **out, struct mr_error *err)
{
    return open_writer(s, path, spec, false, out, err);
}

static int jsonl_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                             struct mr_writer **out, struct mr_error *err)
{
    return open_writer(s, path, spec, true, out, err);
}

static size_t print_head(const struct mr_sample_info *info, char *p, size_t cap)
{
    size_t n = 0;
    n += (size_t)snprintf(p + n, cap - n, "{");
    if (info->label != MR_LABEL_NONE)
        n += (size_t)snprintf(p + n, cap - n, "\"label\":%lld,", (long long)info->label);
    n += (size_t)snprintf(p + n, cap - n, "\"dtype\":\"%s\",", mr_dtype_numpy(info->dtype));
    if (info->dims.n != 1) {
        n += (size_t)snprintf(p + n, cap - n, "\"shape\":[");
        for (unsigned i = 0; i < info->dims.n && i < MR_DIMS_MAX; i++)
            n += (size_t)snprintf(p + n, cap - n, "%s%llu", i ? "," : "", (ull)info->dims.dim[i]);
        n += (size_t)snprintf(p + n, cap - n, "],");
    }
    n += (size_t)snprintf(p + n, cap - n, "\"x\":[");
    return n;
}

static int json_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    struct json_writer *w = (struct json_writer *)base;
    int rc = 0;
    if (!w->lines)
        rc = put_text(w->out, w->samples ? ",\n" : "[\n", err);
    if (rc < 0)
        return rc;
    char *room = mr_stream_out_room(w->out, 512, err);
    if (!room)
        return err ? err->code : MR_E_INTERNAL;
    w->info = *info;
    w->dtype = info->dtype;
    w->start = mr_stream_out_position(w->out);
    w->written = 0;
    w->samples++;
    w->printer = (struct mr_text_printer){.dtype = info->dtype, .json = true};
    mr_stream_out_advance(w->out, print_head(info, room, 512));
    return 0;
}

static int json_sample_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct json_writer *w = (struct json_writer *)base;
    w->written += len;
    return mr_text_print(&w->printer, w->out, data, len, err);
}

static int json_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct json_writer *w = (struct json_writer *)base;
    int rc = mr_format_check_written(&w->info, w->written, err);
    if (rc >= 0)
        rc = put_text(w->out, "]}", err);
    if (rc < 0)
        return rc;
    uint64_t end = mr_stream_out_position(w->out);
    if (w->lines)
        rc = put_text(w->out, "\n", err);
    if (rc < 0)
        return rc;
    *ref = (struct mr_sample_ref){.raw = {w->start, end - w->start}, .label = w->info.label};
    return 0;
}

static void json_writer_abort(struct mr_writer *base)
{
    struct json_writer *w = (struct json_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    free(w);
}

static int make_layout(bool gzip, bool numbers, enum mr_dtype dtype, struct mr_layout *layout, struct mr_error *err)
{
    uint8_t flags = (uint8_t)((gzip ? JSON_GZIP : 0) | (numbers ? JSON_NUMBERS : 0));
    return mr_layout_make((uint8_t[]){JSON_LAYOUT_VERSION, flags, (uint8_t)dtype}, 3, layout, err);
}

static int json_writer_close(struct mr_writer *base, struct mr_layout *layout, uint64_t *file_bytes,
                             struct mr_error *err)
{
    struct json_writer *w = (struct json_writer *)base;
    struct mr_layout made = {0};
    uint64_t bytes = 0;
    bool gzip = w->gzip;
    enum mr_dtype dtype = w->dtype;
    int rc = w->lines ? 0 : put_text(w->out, w->samples ? "\n]\n" : "[]\n", err);
    if (rc < 0)
        mr_stream_out_abort(w->out);
    else
        rc = mr_stream_out_close(w->out, &bytes, err);
    free(w);
    if (rc >= 0)
        rc = make_layout(gzip, true, dtype, &made, err);
    if (rc < 0)
        return rc;
    *layout = made;
    *file_bytes = bytes;
    return 0;
}

/* ---- finding ---- */

struct json_scan {
    struct mr_stream_in in;
    mr_scan_fn *fn;
    void *user;
    unsigned base; /* depth of records: 0 in lines, 1 inside the array */
    struct record record;
    uint64_t start, samples;
    bool numbers, integers, dtype_given;
    enum mr_dtype dtype;
    struct mr_field shape; /* of the payloads */
    /* For a scan of members: */
    const struct mr_json_events *events;
    struct record value;
    char name[MR_JSON_TOKEN];
    size_t name_len;
    uint64_t value_start;
};

static void widen_shape(struct json_scan *s, const struct mr_dims *dims)
{
    const struct mr_field one = {.variable = MR_FIELD_FIXED, .dims = *dims};
    if (!s->samples)
        s->shape = one;
    mr_field_widen(&s->shape, &one);
}

static int end_sample(struct json_scan *s, uint64_t end, struct mr_error *err)
{
    const struct record *r = &s->record;
    struct mr_dims dims;
    bool numbers = record_is_numbers(r);
    if (numbers && record_dims(r, r->dtype_given ? r->dtype : MR_F64, &dims))
        widen_shape(s, &dims);
    if (!s->samples) {
        s->dtype_given = r->dtype_given;
        s->dtype = r->dtype;
    }
    s->numbers &= numbers && r->dtype_given == s->dtype_given && (!r->dtype_given || r->dtype == s->dtype);
    s->integers &= r->integers;
    s->samples++;
    struct mr_sample_ref ref = {.raw = {s->start, end - s->start}, .label = r->label};
    record_init(&s->record, s->base, NULL);
    return s->fn(s->user, &ref, NULL, err);
}

/* A value of the record, which is complete. */
static int end_value(struct json_scan *s, const struct mr_json_token *t, struct mr_error *err)
{
    const struct record *v = &s->value;
    struct mr_json_member m = {.record = s->samples,
                               .name = s->name,
                               .name_len = s->name_len,
                               .where = {s->value_start, t->end - s->value_start},
                               .kind = MR_MEMBER_TEXT};
    if (t->event == MR_PUSH_STRING) {
        m.kind = MR_MEMBER_STRING;
    } else if (t->event == MR_PUSH_NUMBER) {
        m.kind = MR_MEMBER_NUMBER;
        m.integers = mr_number_to_int64(t->number, &m.value);
    } else if (t->event == MR_PUSH_TRUE || t->event == MR_PUSH_FALSE) {
        m.kind = MR_MEMBER_TEXT;
    } else if (t->event == MR_PUSH_NULL) {
        m.kind = MR_MEMBER_NULL;
    } else if (t->event == MR_PUSH_ARRAY_END && v->payload_seen && v->numbers && record_dims(v, MR_F64, &m.dims)) {
        m.kind = MR_MEMBER_ARRAY;
        m.integers = v->integers;
    }
    record_init(&s->value, s->base + 1, NULL);
    return s->events->member(s->events->user, &m, err);
}

static int member_token(struct json_scan *s, const struct mr_json_token *t, struct mr_error *err)
{
    bool is_object = s->record.started;
    if (!is_object) {
        s->record.started = true;
        if (t->event != MR_PUSH_OBJECT)
            return mr_error_plain(err, MR_E_FORMAT, "record %llu is no object, so it has no members", (ull)s->samples);
        record_init(&s->value, s->base + 1, NULL);
        return 0;
    }
    if (t->depth == s->base && t->event == MR_PUSH_OBJECT_END) {
        s->record.started = false;
        return s->events->record(s->events->user, s->samples++, err);
    }
    if (t->depth == s->base + 1 && t->event == MR_PUSH_KEY) {
        s->name_len = MR_MIN(t->len, sizeof s->name);
        memcpy(s->name, t->text, s->name_len);
        return 0;
    }
    if (!s->value.started)
        s->value_start = t->start;
    return record_token(&s->value, t) ? end_value(s, t, err) : 0;
}

static int scan_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    struct json_scan *s = user;
    if (t->depth < s->base) {
        if (t->event == MR_PUSH_ARRAY || t->event == MR_PUSH_ARRAY_END)
            return 0;
        mr_error_plain(err, MR_E_FORMAT, "the file must hold one array of records (offset %llu)", (ull)t->start);
        return mr_error_hint(err, "records one after the other are format 'jsonl'"), MR_E_FORMAT;
    }
    if (s->events)
        return member_token(s, t, err);
    if (!s->record.started)
        s->start = t->start;
    return record_token(&s->record, t) ? end_sample(s, t->end, err) : 0;
}

static int scan_tokens(struct json_scan *s, struct mr_error *err)
{
    const uint8_t *p;
    int64_t n;
    uint64_t at = 0;
    struct mr_json j;
    mr_json_init(&j, s->base == 0, 0, scan_token, s);
    while ((n = mr_stream_in_chunk(&s->in, at, &p, err)) > 0) {
        size_t skip = at == 0 && n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        j.offset += skip;
        int rc = mr_json_feed(&j, p + skip, (size_t)n - skip, err);
        if (rc < 0)
            return rc;
        at += (uint64_t)n;
    }
    return n < 0 ? (int)n : mr_json_end(&j, err);
}

int mr_json_walk(struct mr_store *store, const char *path, bool lines, mr_scan_fn *fn, void *user,
                 const struct mr_json_events *events, struct mr_json_facts *facts, struct mr_layout *layout,
                 struct mr_error *err)
{
    struct json_scan *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot scan '%s'", path);
    *s = (struct json_scan){
        .fn = fn, .user = user, .events = events, .base = lines ? 0 : 1, .numbers = true, .integers = true};
    record_init(&s->record, s->base, NULL);
    int rc = mr_stream_in_open(store, path, NULL, &s->in, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    rc = scan_tokens(s, err);
    const bool numbers = s->samples && s->numbers;
    const enum mr_dtype dtype = s->dtype_given ? s->dtype : s->integers ? MR_I64 : MR_F64;
    if (facts)
        *facts = (struct mr_json_facts){.gzip = s->in.gzip, .numbers = numbers, .dtype = dtype, .shape = s->shape};
    if (rc < 0)
        mr_error_context(err, "in '%s'", path);
    else if (layout)
        rc = make_layout(s->in.gzip, numbers, dtype, layout, err);
    mr_stream_in_close(&s->in);
    free(s);
    return rc < 0 ? rc : 0;
}

static int json_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                     struct mr_error *err)
{
    return mr_json_walk(s, path, false, fn, user, NULL, NULL, layout, err);
}

static int jsonl_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                      struct mr_error *err)
{
    return mr_json_walk(s, path, true, fn, user, NULL, NULL, layout, err);
}

/* ---- reading ---- */

static int check_layout(const struct mr_layout *layout, unsigned *flags, enum mr_dtype *dtype, struct mr_error *err)
{
    const uint8_t *b = layout->data;
    if (layout->len != 3 || b[0] != JSON_LAYOUT_VERSION || b[1] > 3 || b[2] >= MR_DTYPE_COUNT)
        return mr_error_plain(err, MR_E_FORMAT,
                              "bad layout of a JSON file (want 3 bytes of version %d, have %zu bytes)",
                              JSON_LAYOUT_VERSION, layout->len);
    *flags = b[1];
    *dtype = b[2];
    return 0;
}

static int json_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    unsigned flags = 0;
    enum mr_dtype dtype = MR_U8;
    if (mr_json_is_member(layout))
        return mr_json_member_cost(layout, out, err);
    int rc = check_layout(layout, &flags, &dtype, err);
    if (rc < 0)
        return rc;
    bool gzip = flags & JSON_GZIP, numbers = flags & JSON_NUMBERS;
    *out = (struct mr_read_cost){
        .access = gzip ? MR_ACCESS_UNPACK : MR_ACCESS_RANGE,
        .bytes_read_per_payload_byte = numbers ? mr_text_amplification(dtype) : 1.0,
        .verbatim = !gzip && !numbers,
        .note = gzip      ? "gzip: the whole file is inflated once"
                : numbers ? "text: every number is parsed"
                          : "the bytes of the record",
    };
    return 0;
}

static int json_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                       struct mr_error *err)
{
    unsigned flags = mr_json_member_gzip(layout) ? JSON_GZIP : 0;
    enum mr_dtype dtype = MR_U8;
    int rc = mr_json_is_member(layout) ? 0 : check_layout(layout, &flags, &dtype, err);
    if (rc < 0)
        return rc;
    return flags & JSON_GZIP ? mr_gzip_inflate(raw, len, out, out_len, err)
                             : mr_format_no_unpack(layout, raw, len, out, out_len, err);
}

static int decode_token(void *user, const struct mr_json_token *t, struct mr_error *err)
{
    (void)err;
    record_token(user, t);
    return 0;
}

static size_t decode_run(void *user, unsigned depth, const char *p, const char *end)
{
    struct record *r = user;
    struct mr_text_sink *s = r->sink;
    unsigned level = depth - r->payload_depth - 1;
    const char *rest;
    if (!r->in_payload || level + 1 != r->rank || level >= MR_DIMS_MAX || s->bytes >= s->cap_bytes)
        return 0;
    size_t n = mr_text_run_u8(p, end, ',', s->dst + s->bytes, s->cap_bytes - s->bytes, &rest);
    s->bytes += n;
    r->have[level] += n;
    r->count += n;
    return (size_t)(rest - p);
}

/* Reads the record; the sink counts what it needs even when it has no room. */
static int parse_record(const struct mr_sample_ref *ref, const void *raw, size_t len, struct record *r,
                        struct mr_error *err)
{
    struct mr_json j;
    mr_json_init(&j, false, ref->raw.offset, decode_token, r);
    if (r->sink->component == MR_U8)
        j.run = decode_run;
    int rc = mr_json_feed(&j, raw, len, err);
    if (rc >= 0)
        rc = mr_json_end(&j, err);
    if (rc < 0)
        return rc;
    if (r->sink_failed || !r->payload_seen || !r->numbers)
        return mr_error_plain(err, MR_E_FORMAT, "record at offset %llu: %s", (ull)ref->raw.offset,
                              r->sink_failed ? "a number does not fit the element type"
                                             : "no rectangular array of numbers");
    return 0;
}

int mr_json_array_decode(struct mr_decoder *d, const struct mr_sample_ref *ref, enum mr_dtype dtype, const void *raw,
                         size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_dims dims;
    unsigned per_element;
    unsigned size = mr_dtype_bytes(mr_text_component(dtype, &per_element));
    /* A number and its separator take at least two bytes of text. */
    size_t most = (len / 2 + 1) * size;
    size_t cap = out->dst ? out->dst_cap : most;
    void *dst = out->dst ? out->dst : mr_decoder_scratch(d, 0, most);
    if (!dst)
        return mr_error_set(err, -ENOMEM, "cannot decode a record of %zu bytes", len);
    struct mr_text_sink sink;
    struct record r;
    mr_text_sink_init(&sink, dtype, dst, cap);
    record_init(&r, 0, &sink);
    int rc = parse_record(ref, raw, len, &r, err);
    if (rc < 0)
        return rc;
    if (!record_dims(&r, dtype, &dims))
        return mr_error_plain(err, MR_E_FORMAT, "record at offset %llu: its shape does not fit its %llu numbers",
                              (ull)ref->raw.offset, (ull)r.count);
    out->bytes = sink.bytes;
    if (sink.bytes > cap)
        return mr_error_plain(err, MR_E_LIMIT, "the sample has %zu bytes, the buffer %zu", sink.bytes, cap);
    out->data = dst;
    out->dtype = dtype;
    out->dims = dims;
    out->label = r.label != MR_LABEL_NONE ? r.label : ref->label;
    return 0;
}

static int json_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                       unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    unsigned layout_flags = 0;
    enum mr_dtype dtype = MR_U8;
    if (mr_json_is_member(layout))
        return mr_json_member_decode(d, layout, ref, raw, len, out, err);
    int rc = check_layout(layout, &layout_flags, &dtype, err);
    if (rc < 0)
        return rc;
    if (!(layout_flags & JSON_NUMBERS))
        return mr_format_decode_bytes(d, layout, ref, flags, raw, len, out, err);
    return mr_json_array_decode(d, ref, dtype, raw, len, out, err);
}

#define JSON_OPS(format_name, format_doc, ext, open_fn, scan_fn, field_ops)                                            \
    {                                                                                                                  \
        .abi = MR_FORMAT_ABI, .size = sizeof(struct mr_format_ops), .name = format_name, .doc = format_doc,            \
        .extensions = ext, .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_LABEL | MR_FMT_DTYPE,                        \
        .shape = mr_format_shape_flat, .synth = mr_text_synth, .check = mr_text_check, .writer_open = open_fn,         \
        .sample_begin = json_sample_begin, .sample_data = json_sample_data, .sample_end = json_sample_end,             \
        .writer_close = json_writer_close, .writer_abort = json_writer_abort, .side_suffixes = "", .scan = scan_fn,    \
        .cost = json_cost, .unpack = json_unpack, .plan = mr_format_plan_single, .decode = json_decode,                \
        .fields = &field_ops,                                                                                          \
    }

const struct mr_format_ops mr_format_json =
    JSON_OPS("json", "A JSON array of records, each with its label and numbers; optionally gzip.", ".json,.json.gz",
             json_writer_open, json_scan, mr_json_field_ops);
const struct mr_format_ops mr_format_jsonl =
    JSON_OPS("jsonl", "JSON lines: one record per line, each with its label and numbers; optionally gzip.",
             ".jsonl,.ndjson,.jsonl.gz", jsonl_writer_open, jsonl_scan, mr_jsonl_field_ops);
