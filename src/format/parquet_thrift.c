/* Thrift's compact protocol: see parquet_thrift.h. */
#include "format/parquet_thrift.h"

#define DEPTH_MAX 32u /* of what is skipped; Parquet's own structs nest to 6 */

static uint8_t byte(struct mr_thrift *t)
{
    if (t->failed || t->at == t->end) {
        t->failed = true;
        return 0;
    }
    return *t->at++;
}

uint64_t mr_thrift_varint(struct mr_thrift *t)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t b = byte(t);
        v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128))
            return v;
    }
    t->failed = true;
    return 0;
}

static int64_t zigzag(struct mr_thrift *t)
{
    uint64_t v = mr_thrift_varint(t);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

bool mr_thrift_next(struct mr_thrift *t, struct mr_thrift_field *f)
{
    uint8_t b = byte(t);
    if (t->failed || b == 0)
        return false;
    int64_t id = b >> 4 ? f->id + (b >> 4) : zigzag(t);
    f->type = b & 15;
    if (id < INT16_MIN || id > INT16_MAX || f->type == 0 || f->type > MR_THRIFT_STRUCT)
        t->failed = true;
    f->id = t->failed ? 0 : (int)id;
    return !t->failed;
}

int64_t mr_thrift_int(struct mr_thrift *t, unsigned type)
{
    switch (type) {
    case MR_THRIFT_TRUE: return 1;
    case MR_THRIFT_FALSE: return 0;
    case MR_THRIFT_I8: return (int8_t)byte(t);
    case MR_THRIFT_I16:
    case MR_THRIFT_I32:
    case MR_THRIFT_I64: return zigzag(t);
    default: mr_thrift_skip(t, type); return 0;
    }
}

const uint8_t *mr_thrift_bytes(struct mr_thrift *t, unsigned type, size_t *len)
{
    const uint8_t *p = t->at;
    *len = 0;
    if (type != MR_THRIFT_BINARY) {
        mr_thrift_skip(t, type);
        return p;
    }
    uint64_t n = mr_thrift_varint(t);
    if (n > (uint64_t)(t->end - t->at))
        t->failed = true;
    if (t->failed)
        return t->end;
    p = t->at;
    t->at += n;
    *len = (size_t)n;
    return p;
}

uint64_t mr_thrift_list(struct mr_thrift *t, unsigned type, unsigned *item)
{
    *item = 0;
    if (type != MR_THRIFT_LIST && type != MR_THRIFT_SET) {
        mr_thrift_skip(t, type);
        return 0;
    }
    uint8_t b = byte(t);
    uint64_t n = b >> 4 == 15 ? mr_thrift_varint(t) : b >> 4;
    *item = b & 15;
    if (n > (uint64_t)(t->end - t->at)) /* every item takes a byte at least */
        t->failed = true;
    return t->failed ? 0 : n;
}

bool mr_thrift_more(struct mr_thrift *t, uint64_t *left)
{
    if (t->failed || *left == 0)
        return false;
    --*left;
    return true;
}

static void skip(struct mr_thrift *t, unsigned type, unsigned depth, bool item);

static void skip_list(struct mr_thrift *t, unsigned type, unsigned depth)
{
    unsigned item;
    uint64_t n = mr_thrift_list(t, type, &item);
    while (mr_thrift_more(t, &n))
        skip(t, item, depth + 1, true);
}

static void skip_map(struct mr_thrift *t, unsigned depth)
{
    uint64_t n = mr_thrift_varint(t);
    if (n == 0)
        return;
    uint8_t types = byte(t);
    if (n > (uint64_t)(t->end - t->at))
        t->failed = true;
    while (mr_thrift_more(t, &n)) {
        skip(t, types >> 4, depth + 1, true);
        skip(t, types & 15, depth + 1, true);
    }
}

/* item: a truth value in a list takes a byte; that of a field is its type. */
static void skip(struct mr_thrift *t, unsigned type, unsigned depth, bool item)
{
    struct mr_thrift_field f = {0};
    size_t len;
    if (depth > DEPTH_MAX)
        t->failed = true;
    if (t->failed)
        return;
    switch (type) {
    case MR_THRIFT_TRUE:
    case MR_THRIFT_FALSE:
        if (item)
            byte(t);
        return;
    case MR_THRIFT_I8: byte(t); return;
    case MR_THRIFT_I16:
    case MR_THRIFT_I32:
    case MR_THRIFT_I64: mr_thrift_varint(t); return;
    case MR_THRIFT_DOUBLE:
        for (unsigned i = 0; i < 8; i++)
            byte(t);
        return;
    case MR_THRIFT_BINARY: mr_thrift_bytes(t, type, &len); return;
    case MR_THRIFT_LIST:
    case MR_THRIFT_SET: skip_list(t, type, depth); return;
    case MR_THRIFT_MAP: skip_map(t, depth); return;
    case MR_THRIFT_STRUCT:
        while (mr_thrift_next(t, &f))
            skip(t, f.type, depth + 1, false);
        return;
    default: t->failed = true;
    }
}

void mr_thrift_skip(struct mr_thrift *t, unsigned type)
{
    skip(t, type, 0, false);
}

/* ---- writing ---- */

void mr_thrift_put_varint(struct mr_strbuf *s, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        mr_strbuf_putc(s, (char)(v | 128));
    mr_strbuf_putc(s, (char)v);
}

void mr_thrift_put_int(struct mr_strbuf *s, int64_t v)
{
    mr_thrift_put_varint(s, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

void mr_thrift_put_field(struct mr_strbuf *s, int *last, int id, enum mr_thrift_type type)
{
    int step = id - *last;
    if (step > 0 && step < 16) {
        mr_strbuf_putc(s, (char)(step << 4 | (int)type));
    } else {
        mr_strbuf_putc(s, (char)type);
        mr_thrift_put_int(s, id);
    }
    *last = id;
}

void mr_thrift_put_i32(struct mr_strbuf *s, int *last, int id, int32_t v)
{
    mr_thrift_put_field(s, last, id, MR_THRIFT_I32);
    mr_thrift_put_int(s, v);
}

void mr_thrift_put_i64(struct mr_strbuf *s, int *last, int id, int64_t v)
{
    mr_thrift_put_field(s, last, id, MR_THRIFT_I64);
    mr_thrift_put_int(s, v);
}

void mr_thrift_put_text(struct mr_strbuf *s, int *last, int id, const char *text, size_t len)
{
    mr_thrift_put_field(s, last, id, MR_THRIFT_BINARY);
    mr_thrift_put_varint(s, len);
    mr_strbuf_add(s, text, len);
}

void mr_thrift_put_bool(struct mr_strbuf *s, int *last, int id, bool v)
{
    mr_thrift_put_field(s, last, id, v ? MR_THRIFT_TRUE : MR_THRIFT_FALSE);
}

void mr_thrift_put_list(struct mr_strbuf *s, int *last, int id, enum mr_thrift_type item, uint64_t n)
{
    mr_thrift_put_field(s, last, id, MR_THRIFT_LIST);
    mr_strbuf_putc(s, (char)((n < 15 ? n : 15) << 4 | item));
    if (n >= 15)
        mr_thrift_put_varint(s, n);
}

void mr_thrift_put_stop(struct mr_strbuf *s)
{
    mr_strbuf_putc(s, 0);
}
