/* Layouts of Parquet columns: see parquet_layout.h. */
#include "format/parquet_layout.h"
#include "format/array_common.h"
#include "format/parquet_unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define HEAD 40u
#define UNIT 24u
#define TEXT 1
#define DIMS 2

typedef unsigned long long ull;

static uint64_t regular_rows(const struct mr_pq_span *s, uint64_t n, uint64_t rows)
{
    uint64_t each = n > 1 ? s[1].first_row - s[0].first_row : MR_MAX(rows, 1u);
    for (uint64_t i = 0; i < n; i++)
        if (s[i].first_row != i * each)
            return 0;
    return rows - (n ? s[n - 1].first_row : 0) <= each ? each : 0;
}

int mr_pq_layout_make(const struct mr_pq_layout *l, const struct mr_pq_span *span, uint64_t n, struct mr_layout *out,
                      struct mr_error *err)
{
    uint64_t each = regular_rows(span, n, l->rows);
    unsigned dims = l->has_dims ? l->dims.n : 0;
    size_t len = HEAD + 8u * dims + n * UNIT + (each ? 0 : n * 8);
    uint8_t *b = calloc(1, len), *p = b;
    if (!b || n > UINT32_MAX)
        return free(b), mr_error_set(err, -ENOMEM, "cannot keep a map of %llu units", (ull)n);
    const uint8_t head[] = {VERSION,          (uint8_t)((l->is_text ? TEXT : 0) | (l->has_dims ? DIMS : 0)),
                            l->type.physical, l->type.codec,
                            l->type.max_def,  l->type.max_rep,
                            l->type.list_def, l->type.dtype};
    memcpy(p, head, sizeof head);
    mr_store_le32(p + 8, l->type.length);
    mr_store_le32(p + 12, (uint32_t)n);
    mr_store_le64(p + 16, l->rows);
    mr_store_le64(p + 24, each);
    p[32] = (uint8_t)dims;
    p += HEAD;
    for (unsigned d = 0; d < dims; d++, p += 8)
        mr_store_le64(p, l->dims.dim[d]);
    for (uint64_t i = 0; i < n; i++, p += UNIT) {
        mr_store_le64(p, span[i].offset);
        mr_store_le32(p + 8, span[i].bytes);
        mr_store_le32(p + 12, span[i].dictionary_bytes);
        mr_store_le64(p + 16, span[i].dictionary);
    }
    for (uint64_t i = 0; !each && i < n; i++, p += 8)
        mr_store_le64(p, span[i].first_row);
    *out = (struct mr_layout){.data = b, .len = len};
    return 0;
}

static int bad(const char *why, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_FORMAT, "bad layout of a Parquet column: %s", why);
}

static int check_type(const struct mr_pq_type *t, struct mr_error *err)
{
    unsigned physical = mr_pq_physical_bytes(t), each = mr_pq_value_bytes(t);
    bool narrows = t->physical == MR_PQ_INT32 && each <= physical;
    bool same = t->physical == MR_PQ_BYTES || t->physical == MR_PQ_BOOLEAN || physical == each;
    if (t->physical > MR_PQ_FIXED || t->physical == MR_PQ_INT96 || t->dtype >= MR_DTYPE_COUNT)
        return bad("there is no such type", err);
    if ((!same && !narrows) || (t->physical == MR_PQ_BOOLEAN && t->dtype != MR_BOOL))
        return bad("its types do not fit each other", err);
    if (t->physical == MR_PQ_FIXED && (t->length == 0 || t->length > MR_PQ_PAGE_MAX))
        return bad("its values have no length", err);
    if (t->max_rep > 1 || t->max_def > 3 || t->list_def > t->max_def || (t->max_rep == 0) != (t->list_def == 0) ||
        t->max_def - t->list_def > 1)
        return bad("its levels do not fit each other", err);
    if (t->max_rep && (t->physical == MR_PQ_BYTES || (t->physical == MR_PQ_FIXED && t->dtype != MR_F16)))
        return bad("it has lists of byte strings", err);
    if (t->physical == MR_PQ_FIXED && t->dtype != MR_U8 && t->length != mr_dtype_bytes(t->dtype))
        return bad("its values have another length than their type", err);
    return t->physical == MR_PQ_BYTES && t->dtype != MR_U8 ? bad("byte strings are u1", err) : 0;
}

int mr_pq_layout_get(const struct mr_layout *layout, struct mr_pq_layout *out, struct mr_error *err)
{
    const uint8_t *p = layout->data;
    if (layout->len < HEAD || p[0] != VERSION)
        return bad("it is cut, or of a newer version", err);
    struct mr_pq_layout l = {.type = {.physical = p[2],
                                      .codec = p[3],
                                      .max_def = p[4],
                                      .max_rep = p[5],
                                      .list_def = p[6],
                                      .dtype = p[7],
                                      .length = mr_load_le32(p + 8)},
                             .is_text = p[1] & TEXT,
                             .has_dims = p[1] & DIMS,
                             .units = mr_load_le32(p + 12),
                             .rows = mr_load_le64(p + 16),
                             .unit_rows = mr_load_le64(p + 24),
                             .dims.n = p[32]};
    if (l.dims.n > MR_DIMS_MAX || layout->len != HEAD + 8 * l.dims.n + l.units * (UNIT + (l.unit_rows ? 0 : 8u)))
        return bad("it has another length than its numbers say", err);
    int rc = check_type(&l.type, err);
    if (rc)
        return rc;
    for (unsigned d = 0; d < l.dims.n; d++)
        l.dims.dim[d] = mr_load_le64(p + HEAD + 8 * d);
    if (l.has_dims && (!mr_array_bytes(&l.dims, l.type.dtype, &l.value_bytes) || l.value_bytes > MR_LIMIT_SAMPLE_BYTES))
        return bad("its values are too large", err);
    if (l.unit_rows ? l.rows > l.units * l.unit_rows || l.unit_rows > INT64_MAX / (l.units + 1) : l.rows && !l.units)
        return bad("it has more rows than its units", err);
    l.table = p + HEAD + 8 * l.dims.n;
    *out = l;
    return 0;
}

static uint64_t first_row(const struct mr_pq_layout *l, uint64_t unit)
{
    if (unit >= l->units)
        return l->rows;
    return l->unit_rows ? unit * l->unit_rows : mr_load_le64(l->table + l->units * UNIT + 8 * unit);
}

void mr_pq_layout_unit(const struct mr_pq_layout *l, uint64_t row, struct mr_pq_span *out, uint64_t *rows)
{
    uint64_t lo = 0, hi = l->units;
    if (l->unit_rows)
        lo = row / l->unit_rows;
    else
        while (hi - lo > 1) {
            uint64_t mid = lo + (hi - lo) / 2;
            if (first_row(l, mid) <= row)
                lo = mid;
            else
                hi = mid;
        }
    const uint8_t *p = l->table + lo * UNIT;
    *out = (struct mr_pq_span){.offset = mr_load_le64(p),
                               .bytes = mr_load_le32(p + 8),
                               .dictionary_bytes = mr_load_le32(p + 12),
                               .dictionary = mr_load_le64(p + 16),
                               .first_row = first_row(l, lo)};
    *rows = MR_MIN(first_row(l, lo + 1), l->rows) - out->first_row;
}
