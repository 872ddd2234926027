/* Writing Parquet: rows are gathered until a row group is full, then its columns are written as pages of about 1 MiB,
 * PLAIN, each with a checksum; at the end an index of pages per column chunk and the footer. Files of one payload have
 * one column, `data`.
 *
 *   value            column
 *   one number       required, of its type (integers below 32 bits: INT32 with their width)
 *   array of u1      required BYTE_ARRAY; characters: a string
 *   other arrays     required list of required items, C order
 *   label            required INT64
 *
 * Shapes that all values have stand in the footer, under millrace.shape.NAME, so that they survive.
 *
 * Invariants: W1 all columns have as many rows in the group between samples. W2 what a page refers to was written before
 * it; the output only grows. Memory: a row group, GROUP_BYTES, or one row if that is larger. */
#include "format/parquet_write.h"
#include "base/vec.h"
#include "format/array_common.h"
#include "format/parquet_scan.h"
#include "format/parquet_thrift.h"
#include "format/parquet_unit.h"

#include <assert.h>
#include <errno.h>
#include <libdeflate.h>
#include <millrace/version.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_BYTES (32 * MR_MIB)
#define PAGE_BYTES MR_MIB
#define OUT_BYTES (512u * 1024u)

typedef unsigned long long ull;

struct page {
    uint64_t offset, first_row; /* first_row: of its group */
    uint32_t bytes;             /* with its header */
};

struct chunk {
    uint64_t offset, bytes, unpacked_bytes, values;
    size_t first_page, n_pages;
    uint64_t index, index_bytes;
};

struct column {
    char name[MR_FIELD_NAME_MAX];
    struct mr_pq_type type;
    bool is_label, is_text, has_dims;
    struct mr_dims dims;
    unsigned each; /* bytes of an item as it comes */
    uint8_t *data; /* of the rows of the group */
    size_t at, cap;
    MR_VEC(uint64_t) ends; /* of the rows of the group, in `data` */
    MR_VEC(struct page) pages;
    MR_VEC(struct chunk) chunks;
    uint64_t min_bytes, max_bytes, bytes;
};

struct pq_writer {
    struct mr_writer base;
    struct mr_stream_out *out;
    char *path;
    unsigned n;
    struct column *column;
    uint64_t samples, rows; /* announced; written, of all groups */
    uint64_t group_most, group_rows, group_bytes;
    MR_VEC(uint64_t) groups; /* rows of each */
    struct mr_sample_info info;
    uint64_t got;
    unsigned now;
    struct libdeflate_compressor *gzip;
    struct mr_strbuf page; /* body of the page being made */
    uint8_t *packed;
    size_t packed_cap;
};

/* ---- opening ---- */

static int physical_of(struct column *c, const struct mr_field *f, bool array, struct mr_error *err)
{
    struct mr_pq_type *t = &c->type;
    t->dtype = (uint8_t)f->dtype;
    switch (f->dtype) {
    case MR_U8:
    case MR_I8:
    case MR_U16:
    case MR_I16:
    case MR_U32:
    case MR_I32: t->physical = MR_PQ_INT32; break;
    case MR_U64:
    case MR_I64: t->physical = MR_PQ_INT64; break;
    case MR_F32: t->physical = MR_PQ_FLOAT; break;
    case MR_F64: t->physical = MR_PQ_DOUBLE; break;
    case MR_BOOL: t->physical = MR_PQ_BOOLEAN; break;
    case MR_F16: t->physical = MR_PQ_FIXED, t->length = 2; break;
    default:
        return mr_error_plain(err, MR_E_UNSUPPORTED, "Parquet has no type for field '%s' of %s", f->name,
                              mr_dtype_numpy(f->dtype));
    }
    if (array && f->dtype == MR_U8) {
        t->physical = MR_PQ_BYTES;
    } else if (array) {
        t->max_rep = t->max_def = t->list_def = 1;
    }
    return 0;
}

static int init_column(struct column *c, const struct mr_field *f, unsigned codec, struct mr_error *err)
{
    bool fixed = f->variable == MR_FIELD_FIXED, array = f->dims.n > 0 || !fixed;
    snprintf(c->name, sizeof c->name, "%s", f->name);
    c->type.codec = (uint8_t)codec;
    c->each = mr_dtype_bytes(f->dtype);
    c->min_bytes = UINT64_MAX;
    if (f->storage == MR_FIELD_LABEL) {
        c->is_label = true;
        c->type.physical = MR_PQ_INT64;
        c->type.dtype = MR_I64;
        c->each = 8;
        return 0;
    }
    c->is_text = f->storage == MR_FIELD_TEXT;
    if (!fixed && (f->variable != 0 || f->dims.n != 1))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "values of field '%s' differ in more than their length", f->name);
    c->has_dims = fixed && f->dims.n > 0;
    for (unsigned d = 0; d < f->dims.n && fixed; d++)
        c->has_dims = c->has_dims && f->dims.dim[d] > 0;
    c->dims = c->has_dims ? f->dims : (struct mr_dims){0};
    return physical_of(c, f, array, err);
}

static void writer_free(struct pq_writer *w)
{
    for (unsigned i = 0; w->column && i < w->n; i++) {
        struct column *c = &w->column[i];
        free(c->data);
        free(c->ends.item);
        free(c->pages.item);
        free(c->chunks.item);
    }
    free(w->column);
    free(w->groups.item);
    mr_strbuf_done(&w->page);
    free(w->packed);
    libdeflate_free_compressor(w->gzip);
    free(w->path);
    free(w);
}

void mr_pq_abort(struct mr_writer *base)
{
    struct pq_writer *w = (struct pq_writer *)base;
    if (!w)
        return;
    mr_stream_out_abort(w->out);
    writer_free(w);
}

static int no_memory(const struct pq_writer *w, struct mr_error *err)
{
    return mr_error_set(err, -ENOMEM, "cannot write '%s'", w->path ? w->path : "a Parquet file");
}

static int init_writer(struct pq_writer *w, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_error *err)
{
    unsigned codec = spec->compression == MR_COMP_NONE ? MR_PQ_UNCOMPRESSED : MR_PQ_GZIP;
    if (spec->compression == MR_COMP_ZIP)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "Parquet files are compressed with gzip, not zip");
    w->base.ops = &mr_format_parquet;
    w->samples = spec->samples;
    w->path = strdup(path);
    w->column = calloc(n, sizeof(*w->column));
    w->n = n;
    w->group_most = spec->chunk_dims.n ? MR_MAX(spec->chunk_dims.dim[0], 1u) : UINT64_MAX;
    if (codec == MR_PQ_GZIP)
        w->gzip = libdeflate_alloc_compressor(mr_array_deflate_level(spec->compression_level));
    if (!w->path || !w->column || (codec == MR_PQ_GZIP && !w->gzip))
        return no_memory(w, err);
    int rc = 0;
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = init_column(&w->column[i], &fields[i], codec, err);
    return rc;
}

int mr_pq_fields_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                      const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err)
{
    struct pq_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = init_writer(w, path, spec, fields, n, err);
    if (rc == 0)
        rc = mr_stream_out_open(s, path, MR_COMP_NONE, 0, OUT_BYTES, &w->out, err);
    if (rc == 0)
        rc = mr_stream_out_put(w->out, "PAR1", 4, err);
    if (rc < 0)
        mr_pq_abort(&w->base);
    else
        *out = &w->base;
    return rc;
}

int mr_pq_writer_open(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                      struct mr_error *err)
{
    struct mr_field f = {.name = "data", .dtype = spec->dtype, .dims = spec->dims, .variable = MR_FIELD_FIXED};
    if (!spec->fixed_size) {
        f.variable = 0;
        f.dims = (struct mr_dims){.n = 1};
    }
    return mr_pq_fields_open(s, path, spec, &f, 1, out, err);
}

/* ---- pages ---- */

/* A run of n equal levels of one bit. */
static void put_level_run(struct mr_strbuf *b, uint64_t n, unsigned value)
{
    if (n == 0)
        return;
    mr_thrift_put_varint(b, n << 1);
    mr_strbuf_putc(b, (char)value);
}

static uint64_t row_start(const struct column *c, uint64_t row)
{
    return row ? c->ends.item[row - 1] : 0;
}

/* Levels stand behind their length, which is patched in. */
static size_t begin_levels(struct mr_strbuf *b)
{
    mr_strbuf_add(b, "\0\0\0\0", 4);
    return b->len;
}

static void end_levels(struct mr_strbuf *b, size_t from)
{
    if (!b->failed)
        mr_store_le32(b->text + from - 4, (uint32_t)(b->len - from));
}

/* Repetition and definition levels of rows [first, to); returns how many entries there are. */
static uint64_t put_levels(struct pq_writer *w, const struct column *c, uint64_t first, uint64_t to)
{
    uint64_t entries = 0, equal = 0;
    bool had_items = true;
    size_t at = begin_levels(&w->page);
    for (uint64_t r = first; r < to; r++) {
        uint64_t items = (c->ends.item[r] - row_start(c, r)) / c->each;
        put_level_run(&w->page, 1, 0);
        put_level_run(&w->page, items ? items - 1 : 0, 1);
        entries += MR_MAX(items, 1u);
    }
    end_levels(&w->page, at);
    at = begin_levels(&w->page);
    for (uint64_t r = first; r < to; r++) {
        uint64_t items = (c->ends.item[r] - row_start(c, r)) / c->each;
        if ((items > 0) != had_items) {
            put_level_run(&w->page, equal, had_items);
            had_items = items > 0;
            equal = 0;
        }
        equal += MR_MAX(items, 1u);
    }
    put_level_run(&w->page, equal, had_items);
    end_levels(&w->page, at);
    return entries;
}

static void put_widened(struct mr_strbuf *b, const struct column *c, const uint8_t *p, uint64_t n)
{
    bool is_signed = c->type.dtype == MR_I8 || c->type.dtype == MR_I16;
    for (uint64_t i = 0; i < n; i++, p += c->each) {
        uint8_t le[4];
        int32_t v =
            c->each == 1 ? (is_signed ? (int8_t)p[0] : p[0]) : (is_signed ? (int16_t)mr_load_le16(p) : mr_load_le16(p));
        mr_store_le32(le, (uint32_t)v);
        mr_strbuf_add(b, (char *)le, 4);
    }
}

static void put_bits(struct mr_strbuf *b, const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 8) {
        unsigned bits = 0;
        for (uint64_t k = 0; k < 8 && i + k < n; k++)
            bits |= (unsigned)(p[i + k] != 0) << k;
        mr_strbuf_putc(b, (char)bits);
    }
}

static void put_values(struct pq_writer *w, const struct column *c, uint64_t first, uint64_t to)
{
    const uint8_t *p = c->data + row_start(c, first);
    uint64_t bytes = row_start(c, to) - row_start(c, first);
    if (c->type.physical == MR_PQ_BYTES) {
        for (uint64_t r = first; r < to; r++) {
            uint64_t from = row_start(c, r), n = c->ends.item[r] - from;
            uint8_t le[4];
            mr_store_le32(le, (uint32_t)n);
            mr_strbuf_add(&w->page, (char *)le, 4);
            mr_strbuf_add(&w->page, (const char *)c->data + from, n);
        }
    } else if (c->type.physical == MR_PQ_BOOLEAN) {
        put_bits(&w->page, p, bytes);
    } else if (c->each < mr_pq_physical_bytes(&c->type)) {
        put_widened(&w->page, c, p, bytes / c->each);
    } else {
        mr_strbuf_add(&w->page, (const char *)p, bytes);
    }
}

/* The page's stored bytes: as they are, or compressed. */
static int pack_page(struct pq_writer *w, const char **out, size_t *len, struct mr_error *err)
{
    *out = w->page.text;
    *len = w->page.len;
    if (!w->gzip || w->page.len == 0)
        return 0;
    size_t bound = libdeflate_gzip_compress_bound(w->gzip, w->page.len);
    if (bound > w->packed_cap) {
        free(w->packed);
        w->packed = malloc(bound);
        w->packed_cap = w->packed ? bound : 0;
        if (!w->packed)
            return no_memory(w, err);
    }
    *out = (char *)w->packed;
    *len = libdeflate_gzip_compress(w->gzip, w->page.text, w->page.len, w->packed, w->packed_cap);
    return *len ? 0 : mr_error_plain(err, MR_E_INTERNAL, "a page of %zu bytes was not compressed", w->page.len);
}

static void put_page_header(struct mr_strbuf *h, uint64_t entries, size_t unpacked, size_t len, uint32_t crc)
{
    int last = 0, inner = 0;
    mr_thrift_put_i32(h, &last, 1, MR_PQ_DATA_PAGE);
    mr_thrift_put_i32(h, &last, 2, (int32_t)unpacked);
    mr_thrift_put_i32(h, &last, 3, (int32_t)len);
    mr_thrift_put_i32(h, &last, 4, (int32_t)crc);
    mr_thrift_put_field(h, &last, 5, MR_THRIFT_STRUCT);
    mr_thrift_put_i32(h, &inner, 1, (int32_t)entries);
    mr_thrift_put_i32(h, &inner, 2, MR_PQ_PLAIN);
    mr_thrift_put_i32(h, &inner, 3, MR_PQ_RLE);
    mr_thrift_put_i32(h, &inner, 4, MR_PQ_RLE);
    mr_thrift_put_stop(h);
    mr_thrift_put_stop(h);
}

static int write_page(struct pq_writer *w, struct column *c, struct chunk *k, uint64_t first, uint64_t to,
                      struct mr_error *err)
{
    const char *body;
    size_t len;
    struct mr_strbuf head = {0};
    w->page.len = 0;
    uint64_t entries = c->type.max_rep ? put_levels(w, c, first, to) : to - first;
    put_values(w, c, first, to);
    if (w->page.failed)
        return no_memory(w, err);
    if (w->page.len > MR_PQ_PAGE_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "a value of column '%s' takes a page of %zu bytes, over the limit of %u",
                              c->name, w->page.len, MR_PQ_PAGE_MAX);
    int rc = pack_page(w, &body, &len, err);
    if (rc)
        return rc;
    put_page_header(&head, entries, w->page.len, len, libdeflate_crc32(0, body, len));
    struct page *p = head.failed ? NULL : MR_VEC_ADD(&c->pages);
    if (!p) {
        mr_strbuf_done(&head);
        return no_memory(w, err);
    }
    *p = (struct page){
        .offset = mr_stream_out_position(w->out), .first_row = first, .bytes = (uint32_t)(head.len + len)};
    k->n_pages++;
    k->values += entries;
    k->bytes += p->bytes;
    k->unpacked_bytes += head.len + w->page.len;
    rc = mr_stream_out_put(w->out, head.text, head.len, err);
    if (rc == 0)
        rc = mr_stream_out_put(w->out, body, len, err);
    mr_strbuf_done(&head);
    return rc;
}

/* The group's rows of a column, as many to a page as make PAGE_BYTES. */
static int write_chunk(struct pq_writer *w, struct column *c, struct mr_error *err)
{
    struct chunk k = {.offset = mr_stream_out_position(w->out), .first_page = c->pages.n};
    int rc = 0;
    for (uint64_t first = 0; first < c->ends.n && rc == 0;) {
        uint64_t to = first + 1;
        while (to < c->ends.n && c->ends.item[to] - row_start(c, first) <= PAGE_BYTES)
            to++;
        rc = write_page(w, c, &k, first, to, err);
        first = to;
    }
    struct chunk *kept = rc ? NULL : MR_VEC_ADD(&c->chunks);
    if (rc == 0 && !kept)
        rc = no_memory(w, err);
    if (rc == 0)
        *kept = k;
    c->bytes += k.bytes;
    c->ends.n = 0;
    c->at = 0;
    return rc;
}

static int flush_group(struct pq_writer *w, struct mr_error *err)
{
    int rc = 0;
    if (w->group_rows == 0)
        return 0;
    uint64_t *rows = MR_VEC_ADD(&w->groups);
    if (!rows)
        return no_memory(w, err);
    *rows = w->group_rows;
    for (unsigned i = 0; i < w->n && rc == 0; i++) {
        assert(w->column[i].ends.n == w->group_rows); /* W1 */
        rc = write_chunk(w, &w->column[i], err);
    }
    w->group_rows = w->group_bytes = 0;
    return rc;
}

/* ---- samples ---- */

static int append(struct pq_writer *w, struct column *c, const void *data, size_t len, struct mr_error *err)
{
    size_t need = c->at + len;
    if (need > c->cap && mr_vec_reserve(&c->data, &c->cap, need, 1) < 0)
        return no_memory(w, err);
    if (len)
        memcpy(c->data + c->at, data, len);
    c->at = need;
    w->group_bytes += len;
    return 0;
}

static int end_row(struct pq_writer *w, struct column *c, struct mr_error *err)
{
    uint64_t *end = MR_VEC_ADD(&c->ends);
    if (!end)
        return no_memory(w, err);
    *end = c->at;
    return 0;
}

int mr_pq_begin(struct mr_writer *base, unsigned field, const struct mr_sample_info *info, struct mr_error *err)
{
    struct pq_writer *w = (struct pq_writer *)base;
    const struct column *c = &w->column[field];
    uint64_t bytes = 0;
    w->now = field;
    w->info = *info;
    w->got = 0;
    if (info->dtype != c->type.dtype || !mr_array_bytes(&info->dims, info->dtype, &bytes) || bytes != info->bytes)
        return mr_error_plain(err, MR_E_USAGE, "sample %llu of field '%s' has %llu bytes of %s, its shape needs %llu",
                              (ull)info->id, c->name, (ull)info->bytes, mr_dtype_numpy(info->dtype), (ull)bytes);
    bool fits = c->has_dims ? info->dims.n == c->dims.n &&
                                  memcmp(info->dims.dim, c->dims.dim, c->dims.n * sizeof(c->dims.dim[0])) == 0
                            : info->dims.n == (c->type.max_rep || c->type.physical == MR_PQ_BYTES ? 1u : 0u);
    if (!fits)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "sample %llu differs in shape from others of field '%s': only the length may differ",
                              (ull)info->id, c->name);
    return info->bytes > INT32_MAX ? mr_error_plain(err, MR_E_UNSUPPORTED,
                                                    "sample %llu has %llu bytes; a value of Parquet has at most 2 GiB",
                                                    (ull)info->id, (ull)info->bytes)
                                   : 0;
}

int mr_pq_sample_begin(struct mr_writer *base, const struct mr_sample_info *info, struct mr_error *err)
{
    return mr_pq_begin(base, 0, info, err);
}

int mr_pq_data(struct mr_writer *base, const void *data, size_t len, struct mr_error *err)
{
    struct pq_writer *w = (struct pq_writer *)base;
    w->got += len;
    return append(w, &w->column[w->now], data, len, err);
}

/* The row is complete behind its last field. */
static int finish_row(struct pq_writer *w, struct mr_error *err)
{
    w->group_rows++;
    w->rows++;
    return w->group_rows == w->group_most || w->group_bytes >= GROUP_BYTES ? flush_group(w, err) : 0;
}

int mr_pq_end(struct mr_writer *base, unsigned field, struct mr_sample_ref *ref, struct mr_error *err)
{
    struct pq_writer *w = (struct pq_writer *)base;
    int rc = mr_format_check_written(&w->info, w->got, err);
    uint64_t row = w->rows;
    if (rc == 0)
        rc = end_row(w, &w->column[field], err);
    unsigned next = field + 1;
    for (; next < w->n && w->column[next].is_label && rc == 0; next++) {
        uint64_t le;
        mr_store_le64(&le, (uint64_t)w->info.label);
        rc = append(w, &w->column[next], &le, sizeof le, err);
        if (rc == 0)
            rc = end_row(w, &w->column[next], err);
    }
    if (rc == 0 && next == w->n)
        rc = finish_row(w, err);
    if (rc < 0)
        return rc;
    *ref = mr_pq_ref(row, w->info.bytes);
    ref->label = w->info.label;
    return 0;
}

int mr_pq_sample_end(struct mr_writer *base, struct mr_sample_ref *ref, struct mr_error *err)
{
    return mr_pq_end(base, 0, ref, err);
}

/* ---- footer ---- */

static void put_element(struct mr_strbuf *s, const char *name, int type, uint32_t length, int repetition, int children)
{
    int last = 0;
    if (type >= 0)
        mr_thrift_put_i32(s, &last, 1, type);
    if (length)
        mr_thrift_put_i32(s, &last, 2, (int32_t)length);
    if (repetition >= 0)
        mr_thrift_put_i32(s, &last, 3, repetition);
    mr_thrift_put_text(s, &last, 4, name, strlen(name));
    if (children)
        mr_thrift_put_i32(s, &last, 5, children);
}

/* Annotations that readers need: of integers of other widths, characters and half floats. The element is open. */
static void put_annotation(struct mr_strbuf *s, const struct column *c, int last)
{
    static const struct {
        int8_t bits, is_signed;
        uint8_t converted;
    } widths[MR_DTYPE_COUNT] = {[MR_U8] = {8, 0, 11},   [MR_U16] = {16, 0, 12}, [MR_U32] = {32, 0, 13},
                                [MR_U64] = {64, 0, 14}, [MR_I8] = {8, 1, 15},   [MR_I16] = {16, 1, 16}};
    int in = 0, deep = 0;
    const bool is_int = c->type.physical == MR_PQ_INT32 || c->type.physical == MR_PQ_INT64;
    if (is_int && widths[c->type.dtype].bits) {
        mr_thrift_put_i32(s, &last, 6, widths[c->type.dtype].converted);
        mr_thrift_put_field(s, &last, 10, MR_THRIFT_STRUCT);
        mr_thrift_put_field(s, &in, 10, MR_THRIFT_STRUCT);
        mr_thrift_put_field(s, &deep, 1, MR_THRIFT_I8);
        mr_strbuf_putc(s, widths[c->type.dtype].bits);
        mr_thrift_put_bool(s, &deep, 2, widths[c->type.dtype].is_signed);
        mr_thrift_put_stop(s);
        mr_thrift_put_stop(s);
    } else if (c->is_text || c->type.physical == MR_PQ_FIXED) {
        if (c->is_text)
            mr_thrift_put_i32(s, &last, 6, 0);
        mr_thrift_put_field(s, &last, 10, MR_THRIFT_STRUCT);
        mr_thrift_put_field(s, &in, c->is_text ? 1 : 15, MR_THRIFT_STRUCT);
        mr_thrift_put_stop(s);
        mr_thrift_put_stop(s);
    }
    mr_thrift_put_stop(s);
}

static void put_column_schema(struct mr_strbuf *s, const struct column *c)
{
    int in = 0, last = 5;
    if (!c->type.max_rep) {
        put_element(s, c->name, c->type.physical, c->type.length, 0, 0);
        put_annotation(s, c, 4);
        return;
    }
    put_element(s, c->name, -1, 0, 0, 1);
    mr_thrift_put_i32(s, &last, 6, 3); /* LIST */
    mr_thrift_put_field(s, &last, 10, MR_THRIFT_STRUCT);
    mr_thrift_put_field(s, &in, 3, MR_THRIFT_STRUCT);
    mr_thrift_put_stop(s);
    mr_thrift_put_stop(s);
    mr_thrift_put_stop(s);
    put_element(s, "list", -1, 0, 2, 1);
    mr_thrift_put_stop(s);
    put_element(s, "element", c->type.physical, c->type.length, 0, 0);
    put_annotation(s, c, 4);
}

static void put_word(struct mr_strbuf *s, const char *word)
{
    mr_thrift_put_varint(s, strlen(word));
    mr_strbuf_puts(s, word);
}

static void put_chunk(struct mr_strbuf *s, const struct column *c, const struct chunk *k)
{
    int last = 0, in = 0;
    bool list = c->type.max_rep;
    mr_thrift_put_i64(s, &last, 2, 0);
    mr_thrift_put_field(s, &last, 3, MR_THRIFT_STRUCT);
    mr_thrift_put_i32(s, &in, 1, c->type.physical);
    mr_thrift_put_list(s, &in, 2, MR_THRIFT_I32, 2);
    mr_thrift_put_int(s, MR_PQ_PLAIN);
    mr_thrift_put_int(s, MR_PQ_RLE);
    mr_thrift_put_list(s, &in, 3, MR_THRIFT_BINARY, list ? 3 : 1);
    put_word(s, c->name);
    if (list) {
        put_word(s, "list");
        put_word(s, "element");
    }
    mr_thrift_put_i32(s, &in, 4, c->type.codec);
    mr_thrift_put_i64(s, &in, 5, (int64_t)k->values);
    mr_thrift_put_i64(s, &in, 6, (int64_t)k->unpacked_bytes);
    mr_thrift_put_i64(s, &in, 7, (int64_t)k->bytes);
    mr_thrift_put_i64(s, &in, 9, (int64_t)k->offset);
    mr_thrift_put_stop(s);
    mr_thrift_put_i64(s, &last, 4, (int64_t)k->index);
    mr_thrift_put_i32(s, &last, 5, (int32_t)k->index_bytes);
    mr_thrift_put_stop(s);
}

static void put_group(struct mr_strbuf *s, const struct pq_writer *w, size_t g)
{
    int last = 0;
    uint64_t bytes = 0, packed = 0;
    mr_thrift_put_list(s, &last, 1, MR_THRIFT_STRUCT, w->n);
    for (unsigned i = 0; i < w->n; i++) {
        const struct chunk *k = &w->column[i].chunks.item[g];
        put_chunk(s, &w->column[i], k);
        bytes += k->unpacked_bytes;
        packed += k->bytes;
    }
    mr_thrift_put_i64(s, &last, 2, (int64_t)bytes);
    mr_thrift_put_i64(s, &last, 3, (int64_t)w->groups.item[g]);
    mr_thrift_put_i64(s, &last, 5, (int64_t)w->column[0].chunks.item[g].offset);
    mr_thrift_put_i64(s, &last, 6, (int64_t)packed);
    mr_thrift_put_stop(s);
}

static void put_shapes(struct mr_strbuf *s, int *last, const struct pq_writer *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n; i++)
        n += w->column[i].has_dims;
    if (n == 0)
        return;
    mr_thrift_put_list(s, last, 5, MR_THRIFT_STRUCT, n);
    for (unsigned i = 0; i < w->n; i++) {
        const struct column *c = &w->column[i];
        char key[MR_FIELD_NAME_MAX + 32], value[24 * MR_DIMS_MAX];
        int in = 0;
        size_t len = 0;
        if (!c->has_dims)
            continue;
        snprintf(key, sizeof key, MR_PQ_SHAPE_KEY "%s", c->name);
        for (unsigned d = 0; d < c->dims.n; d++)
            len += (size_t)snprintf(value + len, sizeof value - len, "%s%llu", d ? "x" : "", (ull)c->dims.dim[d]);
        mr_thrift_put_text(s, &in, 1, key, strlen(key));
        mr_thrift_put_text(s, &in, 2, value, len);
        mr_thrift_put_stop(s);
    }
}

static void put_footer(struct mr_strbuf *s, const struct pq_writer *w)
{
    static const char by[] = "millrace version " MR_VERSION;
    unsigned elements = 1;
    int last = 0;
    for (unsigned i = 0; i < w->n; i++)
        elements += w->column[i].type.max_rep ? 3 : 1;
    mr_thrift_put_i32(s, &last, 1, 2);
    mr_thrift_put_list(s, &last, 2, MR_THRIFT_STRUCT, elements);
    put_element(s, "schema", -1, 0, -1, (int)w->n);
    mr_thrift_put_stop(s);
    for (unsigned i = 0; i < w->n; i++)
        put_column_schema(s, &w->column[i]);
    mr_thrift_put_i64(s, &last, 3, (int64_t)w->rows);
    mr_thrift_put_list(s, &last, 4, MR_THRIFT_STRUCT, w->groups.n);
    for (size_t g = 0; g < w->groups.n; g++)
        put_group(s, w, g);
    put_shapes(s, &last, w);
    mr_thrift_put_text(s, &last, 6, by, sizeof by - 1);
    mr_thrift_put_stop(s);
}

static void put_index(struct mr_strbuf *s, const struct column *c, const struct chunk *k)
{
    int last = 0;
    mr_thrift_put_list(s, &last, 1, MR_THRIFT_STRUCT, k->n_pages);
    for (size_t i = 0; i < k->n_pages; i++) {
        const struct page *p = &c->pages.item[k->first_page + i];
        int in = 0;
        mr_thrift_put_i64(s, &in, 1, (int64_t)p->offset);
        mr_thrift_put_i32(s, &in, 2, (int32_t)p->bytes);
        mr_thrift_put_i64(s, &in, 3, (int64_t)p->first_row);
        mr_thrift_put_stop(s);
    }
    mr_thrift_put_stop(s);
}

static int write_end(struct pq_writer *w, struct mr_error *err)
{
    struct mr_strbuf s = {0};
    int rc = flush_group(w, err);
    for (size_t g = 0; g < w->groups.n && rc == 0; g++)
        for (unsigned i = 0; i < w->n && rc == 0; i++) {
            struct chunk *k = &w->column[i].chunks.item[g];
            s.len = 0;
            put_index(&s, &w->column[i], k);
            k->index = mr_stream_out_position(w->out);
            k->index_bytes = s.len;
            rc = s.failed ? no_memory(w, err) : mr_stream_out_put(w->out, s.text, s.len, err);
        }
    s.len = 0;
    if (rc == 0) {
        uint8_t le[4];
        put_footer(&s, w);
        mr_store_le32(le, (uint32_t)s.len);
        mr_strbuf_add(&s, (char *)le, 4);
        mr_strbuf_puts(&s, "PAR1");
        rc = s.failed ? no_memory(w, err) : mr_stream_out_put(w->out, s.text, s.len, err);
    }
    mr_strbuf_done(&s);
    return rc;
}

/* What a scan of the file would make. */
static int make_layout(const struct pq_writer *w, const struct column *c, struct mr_layout *out, struct mr_error *err)
{
    struct mr_pq_spans spans = {0};
    struct mr_pq_layout l = {
        .type = c->type, .is_text = c->is_text, .has_dims = c->has_dims, .dims = c->dims, .rows = w->rows};
    uint64_t row = 0;
    int rc = 0;
    for (size_t g = 0; g < c->chunks.n && rc == 0; row += w->groups.item[g++]) {
        const struct chunk *k = &c->chunks.item[g];
        for (size_t i = 0; i < k->n_pages && rc == 0; i++) {
            const struct page *p = &c->pages.item[k->first_page + i];
            struct mr_pq_span span = {.offset = p->offset, .bytes = p->bytes, .first_row = row + p->first_row};
            rc = mr_pq_spans_add(&spans, &span, i == 0, k->bytes <= MR_PQ_SPLIT_BYTES);
        }
    }
    rc = rc ? no_memory(w, err) : mr_pq_layout_make(&l, spans.item, spans.n, out, err);
    free(spans.item);
    return rc;
}

int mr_pq_close(struct mr_writer *base, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err)
{
    struct pq_writer *w = (struct pq_writer *)base;
    uint64_t bytes = 0;
    int rc = w->rows == w->samples ? 0
                                   : mr_error_plain(err, MR_E_USAGE, "'%s' is closed after %llu of %llu samples",
                                                    w->path, (ull)w->rows, (ull)w->samples);
    memset(layouts, 0, w->n * sizeof(*layouts));
    if (rc == 0)
        rc = write_end(w, err);
    for (unsigned i = 0; i < w->n && rc == 0; i++)
        if (!w->column[i].is_label)
            rc = make_layout(w, &w->column[i], &layouts[i], err);
    int closed = 0;
    if (rc < 0)
        mr_stream_out_abort(w->out);
    else
        closed = mr_stream_out_close(w->out, &bytes, err);
    rc = rc < 0 ? rc : closed;
    for (unsigned i = 0; i < w->n && rc < 0; i++) {
        free(layouts[i].data);
        layouts[i] = (struct mr_layout){0};
    }
    if (rc >= 0)
        *file_bytes = bytes;
    writer_free(w);
    return rc;
}
