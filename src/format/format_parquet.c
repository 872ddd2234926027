/* Parquet: a row is a sample, a column a field. Flat columns and lists of one level; the footer is read by scan and kept
 * in the manifest, so that a run reads pages only. doc/reference/format-parquet.md has the bytes and what is refused.
 *
 *   parquet_thrift   Thrift's compact protocol          parquet_scan     columns, units, refs
 *   parquet_meta     footer, page headers               parquet_layout   what the manifest keeps
 *   parquet_codec    compression                        parquet_unit     pages -> values of rows
 *   parquet_values   encodings                          parquet_write    the writer
 *
 * Rows share pages, so access is by units (MR_ACCESS_UNIT): plan names the pages of the row's unit, unpack decodes them
 * all, decode points at the row. */
#include "format/array_common.h"
#include "format/parquet_scan.h"
#include "format/parquet_unit.h"
#include "format/parquet_write.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static int no_row(uint64_t row, uint64_t rows, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_FORMAT, "row %llu of a file of %llu rows", (ull)row, (ull)rows);
}

static int parquet_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err)
{
    struct mr_pq_layout l;
    int rc = mr_pq_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    *out = (struct mr_read_cost){.access = MR_ACCESS_UNIT,
                                 .bytes_read_per_payload_byte = l.units ? (double)l.rows / (double)l.units : 1,
                                 .note = "rows share pages: in file order each is read once, in any other order the "
                                         "rows beside it are read with it"};
    return 0;
}

static int parquet_plan(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                        struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err)
{
    struct mr_pq_layout l;
    struct mr_pq_span s;
    uint64_t row = mr_pq_row(ref), rows;
    (void)flags; /* checksums lie in page headers */
    int rc = mr_pq_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    if (row >= l.rows)
        return no_row(row, l.rows, err);
    mr_pq_layout_unit(&l, row, &s, &rows);
    *n = s.dictionary_bytes ? 2 : 1;
    if (*n > max)
        return mr_error_plain(err, MR_E_LIMIT, "the sample has %u ranges, room for %u", *n, max);
    ext[0] = (struct mr_extent){s.offset, s.bytes};
    if (*n == 2)
        ext[1] = (struct mr_extent){s.dictionary, s.dictionary_bytes};
    return 0;
}

static int parquet_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                          struct mr_error *err)
{
    struct mr_pq_layout l;
    int rc = mr_pq_layout_get(layout, &l, err);
    struct mr_unit_memory m = {0};
    if (rc == 0)
        rc = mr_pq_unit_decode(&l.type, raw, len, &m, out_len, err);
    if (rc == 0)
        *out = m.data;
    else
        free(m.data);
    return rc;
}

static int parquet_unpack_into(const struct mr_layout *layout, const void *raw, size_t len, struct mr_unit_memory *m,
                               size_t *out_len, struct mr_error *err)
{
    struct mr_pq_layout l;
    int rc = mr_pq_layout_get(layout, &l, err);
    return rc < 0 ? rc : mr_pq_unit_decode(&l.type, raw, len, m, out_len, err);
}

static int parquet_unpack_here(const struct mr_layout *layout, struct mr_unit_memory *m, size_t len, size_t *out_len,
                               struct mr_error *err)
{
    struct mr_pq_layout l;
    int rc = mr_pq_layout_get(layout, &l, err);
    if (rc < 0)
        return rc;
    return len ? mr_pq_unit_here(&l.type, m, len, out_len, err) : !mr_pq_unit_may_stay(&l.type);
}

/* The unit's values where its rows are as many as the layout says: else others would be taken for them. */
static int check_rows(const struct mr_pq_layout *l, uint64_t row, const void *unit, size_t len, uint64_t *first,
                      struct mr_error *err)
{
    struct mr_pq_span s;
    struct mr_pq_unit u;
    uint64_t rows;
    if (row >= l->rows)
        return no_row(row, l->rows, err);
    if (len < sizeof u)
        return mr_error_plain(err, MR_E_FORMAT, "a unit of %zu bytes is none", len);
    memcpy(&u, unit, sizeof u);
    mr_pq_layout_unit(l, row, &s, &rows);
    *first = s.first_row;
    return u.rows == rows ? 0
                          : mr_error_plain(err, MR_E_FORMAT, "the pages at %llu have %llu rows, want %llu",
                                           (ull)s.offset, (ull)u.rows, (ull)rows);
}

static int describe(const struct mr_pq_layout *l, uint64_t bytes, struct mr_sample_out *out, struct mr_error *err)
{
    unsigned each = mr_dtype_bytes((enum mr_dtype)l->type.dtype);
    bool bytes_fixed = l->type.physical == MR_PQ_FIXED && l->type.dtype == MR_U8;
    out->dtype = (enum mr_dtype)l->type.dtype;
    out->dims = (struct mr_dims){0};
    if (l->has_dims) {
        out->dims = l->dims;
        if (bytes != l->value_bytes)
            return mr_error_plain(err, MR_E_FORMAT, "the row has %llu bytes, its shape needs %llu", (ull)bytes,
                                  (ull)l->value_bytes);
    } else if (l->type.max_rep || l->type.physical == MR_PQ_BYTES || bytes_fixed) {
        out->dims = (struct mr_dims){.n = 1, .dim = {bytes / each}};
    }
    return 0;
}

static int parquet_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                          unsigned flags, const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_pq_layout l;
    const void *data;
    uint64_t row = mr_pq_row(ref), first = 0, bytes = 0;
    (void)d, (void)flags;
    int rc = mr_pq_layout_get(layout, &l, err);
    if (rc == 0)
        rc = check_rows(&l, row, raw, len, &first, err);
    if (rc < 0)
        return rc;
    if (!mr_pq_unit_row(raw, len, row - first, &data, &bytes))
        return no_row(row, l.rows, err);
    if ((rc = describe(&l, bytes, out, err)) < 0)
        return rc;
    out->label = ref->label;
    if (out->dst && out->dst_cap < bytes)
        out->bytes = bytes;
    return mr_array_deliver(data, bytes, out, err);
}

static int parquet_rows(const struct mr_layout *layout, const struct mr_sample_ref *ref, const void *unit, size_t len,
                        struct mr_unit_rows *out, struct mr_error *err)
{
    struct mr_pq_layout l;
    struct mr_pq_unit u;
    uint64_t row = mr_pq_row(ref), first = 0;
    int rc = mr_pq_layout_get(layout, &l, err);
    if (rc == 0)
        rc = check_rows(&l, row, unit, len, &first, err);
    if (rc < 0)
        return rc;
    memcpy(&u, unit, sizeof u);
    *out = (struct mr_unit_rows){
        .values = (const uint8_t *)unit + u.data_at, .each = u.each, .n = u.rows, .before = row - first};
    return 0;
}

/* ---- generated content ---- */

/* A truth value is a bit in the file, so generated ones are 0 or 1. */
static void parquet_synth(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                          uint64_t offset, void *dst, size_t len)
{
    uint8_t *p = dst;
    mr_format_synth_content(spec, content, info, offset, dst, len);
    for (size_t i = 0; info->dtype == MR_BOOL && i < len; i++)
        p[i] &= 1;
}

static int parquet_check(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                         const struct mr_sample_out *have, struct mr_error *err)
{
    uint8_t want[4096];
    if (info->dtype != MR_BOOL || have->bytes != info->bytes)
        return mr_format_check_equal(spec, content, info, have, err);
    for (uint64_t at = 0; at < info->bytes; at += sizeof want) {
        size_t n = (size_t)MR_MIN(info->bytes - at, sizeof want);
        parquet_synth(spec, content, info, at, want, n);
        if (memcmp(want, (const uint8_t *)have->data + at, n) != 0)
            return mr_error_plain(err, MR_E_CORRUPT, "sample %llu differs from its content in bytes %llu to %llu",
                                  (ull)info->id, (ull)at, (ull)(at + n - 1));
    }
    return 0;
}

static const struct mr_field_ops field_ops = {
    .size = sizeof(struct mr_field_ops),
    .scan = mr_pq_scan_fields,
    .by_field = false,
    .writer_open = mr_pq_fields_open,
    .begin = mr_pq_begin,
    .data = mr_pq_data,
    .end = mr_pq_end,
    .writer_close = mr_pq_close,
    .writer_abort = mr_pq_abort,
    .rows = parquet_rows,
    .unpack_into = parquet_unpack_into,
    .unpack_here = parquet_unpack_here,
};

const struct mr_format_ops mr_format_parquet = {
    .abi = MR_FORMAT_ABI,
    .size = sizeof(struct mr_format_ops),
    .name = "parquet",
    .doc =
        "Parquet tables: rows are samples, columns are fields. Flat columns and lists; snappy, zstd, LZ4, gzip. Needs "
        "no Parquet library.",
    .extensions = ".parquet,.parq,.pq",
    .caps = MR_FMT_MULTI | MR_FMT_VARSIZE | MR_FMT_DTYPE | MR_FMT_CHECKSUM,
    .shape = mr_format_shape_flat,
    .synth = parquet_synth,
    .check = parquet_check,
    .writer_open = mr_pq_writer_open,
    .sample_begin = mr_pq_sample_begin,
    .sample_data = mr_pq_data,
    .sample_end = mr_pq_sample_end,
    .writer_close = mr_pq_close,
    .writer_abort = mr_pq_abort,
    .side_suffixes = "",
    .scan = mr_pq_scan,
    .cost = parquet_cost,
    .unpack = parquet_unpack,
    .plan = parquet_plan,
    .decode = parquet_decode,
    .fields = &field_ops,
};
