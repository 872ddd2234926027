/* Values of one field of many samples at once: see dataset_parts.h. Samples that share a unit, the pages of a column, cost
 * a lookup together, not each; what is left per sample is a copy of its value. doc/internals/fields.md, "Units".
 *
 * Samples may come in any order: each run of neighbours in the list that lie in one unit is served from it. */
#include "base/clock.h"
#include "base/common.h"
#include "dataset/reader_internal.h"
#include "dataset/unit_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool mr_dataset_reads_rows(const struct mr_dataset *ds)
{
    const unsigned *field;
    unsigned n = mr_dataset_selected(ds, &field);
    const struct mr_format_ops *f = mr_dataset_format(ds);
    const struct mr_field_ops *ops = mr_format_fields(f);
    const struct mr_manifest *m = mr_dataset_manifest(ds);
    struct mr_manifest_pos pos;
    bool units = n && ops && MR_FIELD_OPS_HAVE(ops, rows) && mr_manifest_locate(m, 0, &pos, NULL) == 0;
    for (unsigned k = 0; k < n && units; k++) {
        const struct mr_field *x = &mr_manifest_schema(m)->field[field[k]].field;
        struct mr_field_place place;
        struct mr_layout layout;
        struct mr_read_cost cost;
        if (x->storage == MR_FIELD_LABEL)
            continue;
        units = x->variable == MR_FIELD_FIXED && x->storage == MR_FIELD_RAW &&
                mr_manifest_locate_field(m, field[k], 0, &pos, &place, NULL) == 0;
        if (units) {
            mr_manifest_layout(m, place.layout_id, &layout);
            units = f->cost(&layout, &cost, NULL) == 0 && cost.access == MR_ACCESS_UNIT;
        }
    }
    return units;
}

static inline void copy_values(uint8_t *dst, uint64_t stride, const uint8_t *from, uint64_t each, const uint64_t *ids,
                               uint32_t n, uint64_t first)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(dst + i * stride, from + (ids[i] - first) * each, each);
}

static void copy_run(const struct mr_row_list *rows, uint8_t *dst, uint64_t stride, const uint8_t *from, uint64_t each,
                     uint32_t n, uint64_t first)
{
    if (rows->rising && stride == each)
        memcpy(dst, from + (rows->ids[0] - first) * each, n * each);
    else if (each == 4) /* sizes known where this is compiled */
        copy_values(dst, stride, from, 4, rows->ids, n, first);
    else if (each == 8)
        copy_values(dst, stride, from, 8, rows->ids, n, first);
    else
        copy_values(dst, stride, from, each, rows->ids, n, first);
}

/* How many samples from the first on are among [first, end). */
static uint32_t count_within(const struct mr_row_list *rows, uint64_t first, uint64_t end)
{
    uint32_t k = 1;
    if (rows->rising)
        return (uint32_t)MR_MIN(rows->n, end - rows->ids[0]);
    while (k < rows->n && rows->ids[k] >= first && rows->ids[k] < end)
        k++;
    return k;
}

/* Unpacks what the reader has at `raw` into memory of the cache. */
static int unpack_unit(const struct mr_dataset_reader *r, struct mr_unit_cache *cache, const void *raw,
                       struct mr_unit_memory *m, size_t *len, struct mr_error *err)
{
    const struct mr_fetch_slice *s = &r->fetch.slice[0];
    const struct mr_field_ops *ops = mr_format_fields(r->format);
    if (!MR_FIELD_OPS_HAVE(ops, unpack_into)) {
        *m = (struct mr_unit_memory){0};
        int rc = r->format->unpack(&s->layout, raw, s->length, &m->data, len, err);
        m->cap = rc ? 0 : *len;
        return rc;
    }
    *m = mr_unit_cache_memory(cache, s->length); /* more where it was compressed */
    return ops->unpack_into(&s->layout, raw, s->length, m, len, err);
}

/* Reads a unit to where its values may stay. 1: they may not, or need not. */
static int load_here(struct mr_dataset_reader *r, struct mr_unit_cache *cache, struct mr_unit_memory *m, size_t *len,
                     struct mr_error *err)
{
    const struct mr_fetch_slice *s = &r->fetch.slice[0];
    const struct mr_field_ops *ops = mr_format_fields(r->format);
    *m = (struct mr_unit_memory){0};
    if (s->n_ranges != 1 || !MR_FIELD_OPS_HAVE(ops, unpack_here) || ops->unpack_here(&s->layout, NULL, 0, NULL, err))
        return 1;
    uint64_t begin = mr_now_ns();
    *m = mr_unit_cache_memory(cache, MR_UNIT_HEAD + s->length);
    if (!m->data)
        return mr_error_set(err, -ENOMEM, "cannot read %llu bytes", (unsigned long long)s->length);
    int rc = mr_reader_stored_bytes_to(r, 0, (uint8_t *)m->data + MR_UNIT_HEAD, err);
    uint64_t read = mr_now_ns();
    r->times.read_ns += read - begin;
    if (rc)
        return rc < 0 ? rc : MR_E_INTERNAL;
    rc = ops->unpack_here(&s->layout, m, s->length, len, err);
    if (rc == 1) { /* of another encoding */
        struct mr_unit_memory raw = *m;
        rc = unpack_unit(r, cache, (uint8_t *)raw.data + MR_UNIT_HEAD, m, len, err);
        mr_unit_cache_recycle(cache, raw);
    }
    r->times.decode_ns += mr_now_ns() - read;
    return rc < 0 ? rc : 0;
}

/* Reads and decodes the unit of the field that is planned. */
static int load_unit(struct mr_dataset_reader *r, struct mr_unit_cache *cache, struct mr_unit_memory *m, size_t *len,
                     uint64_t *stored, struct mr_error *err)
{
    const uint8_t *raw;
    *stored += r->fetch.slice[0].length;
    int rc = load_here(r, cache, m, len, err);
    if (rc != 1)
        return rc;
    uint64_t begin = mr_now_ns();
    rc = mr_reader_stored_bytes(r, 0, &raw, err);
    uint64_t read = mr_now_ns();
    if (!rc)
        rc = unpack_unit(r, cache, raw, m, len, err);
    r->times.read_ns += read - begin;
    r->times.decode_ns += mr_now_ns() - read;
    return rc < 0 ? rc : 0;
}

static int get_unit(struct mr_dataset_reader *r, struct mr_unit_cache *cache, struct mr_cached_unit **out,
                    uint64_t *stored, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    bool mine;
    struct mr_cached_unit *u =
        mr_unit_cache_get(cache, f->pos.file, f->n_ranges ? f->range[0].extent.offset : UINT64_MAX, &mine);
    if (!u)
        return mr_error_set(err, -ENOMEM, "cannot keep what samples share");
    struct mr_unit_memory m = {0};
    size_t len = 0;
    int rc = mine ? load_unit(r, cache, &m, &len, stored, err) : 0;
    if (mine && rc) {
        mr_unit_cache_recycle(cache, m);
        m.data = NULL;
    }
    if (mine)
        mr_unit_cache_fill(cache, u, m, len);
    if (!rc && !u->data) /* for another thread; the sample by itself says why */
        rc = mr_error_plain(err, MR_E_FORMAT, "what samples share cannot be read");
    if (rc)
        mr_unit_cache_put(cache, u, 0, 0);
    else
        *out = u;
    return rc;
}

/* As many of the samples from the first on as lie in its unit. */
static int read_run(struct mr_dataset_reader *r, const struct mr_field_rows *to, const struct mr_row_list *list,
                    uint8_t *dst, uint32_t *done, uint64_t *stored, struct mr_error *err)
{
    const struct mr_field_ops *ops = mr_format_fields(r->format);
    const unsigned *field;
    struct mr_cached_unit *u = NULL;
    struct mr_unit_rows rows;
    mr_dataset_selected(r->ds, &field);
    int rc = mr_fetch_plan_one(&r->planner, &r->fetch, list->ids[0], field[to->k], err);
    if (!rc)
        rc = get_unit(r, to->cache, &u, stored, err);
    if (rc)
        return rc;
    rc = ops->rows(&r->fetch.slice[0].layout, &r->fetch.slice[0].ref, u->data, u->len, &rows, err);
    if (!rc && rows.each != to->each)
        rc = mr_error_plain(err, MR_E_FORMAT, "a value has %llu bytes, the schema promises %llu",
                            (unsigned long long)rows.each, (unsigned long long)to->each);
    if (!rc) {
        uint64_t first = list->ids[0] - rows.before;
        *done = count_within(list, first, first + rows.n);
        copy_run(list, dst, to->stride, rows.values, to->each, *done, first);
    }
    mr_unit_cache_put(to->cache, u, rc ? 0 : *done, rc ? 0 : rows.n);
    return rc;
}

int mr_dataset_read_rows(struct mr_dataset_reader *r, const struct mr_field_rows *to, const struct mr_row_list *rows,
                         uint64_t *stored, struct mr_error *err)
{
    int rc = mr_reader_reserve_fields(r, mr_dataset_selected(r->ds, NULL), err);
    *stored = 0;
    for (uint32_t i = 0, done = 0; i < rows->n && !rc; i += done) {
        const struct mr_row_list rest = {rows->ids + i, rows->n - i, rows->rising};
        rc = read_run(r, to, &rest, (uint8_t *)to->dst + i * to->stride, &done, stored, err);
    }
    r->times.read_bytes = r->own->read_bytes;
    r->times.now_ns = 0;
    return rc;
}
