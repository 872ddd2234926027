/* Plans of several fields: see fetch.h and doc/internals/fields.md. Each field is planned by its format as if it were a
 * sample of its own; the ranges of all of them, in the order of the selection, are the sample's. Ranges of small fields
 * that lie near each other are read together; a large one that is its own value is read alone, so that it can be read
 * in place. */
#include "dataset/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_LAYOUT UINT64_MAX

static int reserve_slices(struct mr_fetch_planner *p, struct mr_fetch *f, unsigned n, struct mr_error *err)
{
    if (MR_UNLIKELY(!p->field)) {
        p->field = calloc(n, sizeof(*p->field));
        for (unsigned i = 0; p->field && i < n; i++)
            p->field[i].cost_layout = NO_LAYOUT;
    }
    if (MR_UNLIKELY(f->slice_cap < n)) {
        struct mr_fetch_slice *grown = realloc(f->slice, n * sizeof(*grown));
        f->slice = grown ? grown : f->slice;
        f->slice_cap = grown ? n : f->slice_cap;
    }
    return p->field && f->slice_cap >= n ? 0 : mr_error_set(err, -ENOMEM, "cannot plan a sample of %u fields", n);
}

/* What reading the field costs; mostly as in the file before. */
static int load_layout(struct mr_fetch_planner *p, struct mr_planned_field *c, uint64_t layout_id,
                       struct mr_fetch_slice *s, struct mr_error *err)
{
    if (MR_UNLIKELY(layout_id != c->cost_layout)) {
        c->cost_layout = NO_LAYOUT;
        mr_manifest_layout(p->manifest, layout_id, &c->layout);
        c->cost = (struct mr_read_cost){0};
        int rc = p->format->cost(&c->layout, &c->cost, err);
        if (rc < 0)
            return rc;
        c->cost_layout = layout_id;
    }
    s->layout = c->layout;
    s->access = c->cost.access;
    s->verbatim = c->cost.verbatim;
    s->unpack_key = c->cost.unpack_key;
    return 0;
}

static int add_ranges(struct mr_fetch_planner *p, struct mr_fetch *f, struct mr_fetch_slice *s, unsigned n,
                      bool can_be_alone, bool last_alone, struct mr_error *err)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += p->extent[i].length;
    s->alone = can_be_alone && s->verbatim && s->access == MR_ACCESS_RANGE && n == 1 && bytes >= MR_FETCH_SMALL;
    s->n_ranges = n;
    for (unsigned i = 0; i < n; i++) {
        uint64_t gap = i ? MR_FETCH_GAP : s->alone || last_alone ? MR_FETCH_APART : MR_FETCH_FIELD_GAP;
        int rc = mr_fetch_add_range(p, f, &p->extent[i], s->access != MR_ACCESS_UNPACK, gap, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int plan_field(struct mr_fetch_planner *p, struct mr_fetch *f, struct mr_fetch_slice *s,
                      struct mr_planned_field *c, unsigned field, unsigned flags, bool last_alone, struct mr_error *err)
{
    struct mr_field_place place;
    unsigned n = 0;
    int rc = mr_manifest_locate_field(p->manifest, field, f->id, &f->pos, &place, err);
    if (rc)
        return rc;
    *s = (struct mr_fetch_slice){
        .field = field, .ref = place.ref, .first_range = f->n_ranges, .first_read = f->n_reads, .at = f->length};
    if (mr_manifest_schema(p->manifest)->field[field].field.storage == MR_FIELD_LABEL)
        return 0;
    if ((rc = load_layout(p, c, place.layout_id, s, err)) ||
        (rc = mr_fetch_ask_format(p, &s->layout, &s->ref, flags, &n, err)) ||
        (rc = mr_fetch_reserve(f, f->n_ranges + n, err)))
        return rc;
    rc = add_ranges(p, f, s, n, !(flags & MR_READ_VERIFY), last_alone, err);
    s->length = f->length - s->at;
    s->n_reads = f->n_reads - s->first_read;
    if (s->access == MR_ACCESS_UNPACK || f->access == MR_ACCESS_RANGE)
        f->access = s->access;
    return rc;
}

int mr_fetch_plan_fields(struct mr_fetch_planner *p, struct mr_fetch *f, unsigned flags, struct mr_error *err)
{
    const unsigned *field;
    static const unsigned primary;
    unsigned n = mr_dataset_selected(p->ds, &field);
    field = n ? field : &primary;
    n = n ? n : 1;
    int rc = reserve_slices(p, f, n, err);
    f->n_ranges = f->n_reads = 0;
    f->length = f->room = 0;
    f->access = MR_ACCESS_RANGE;
    f->verbatim = false;
    for (unsigned k = 0; k < n && !rc; k++) {
        rc = plan_field(p, f, &f->slice[k], &p->field[k], field[k], flags, k && f->slice[k - 1].alone, err);
        if (rc < 0)
            mr_error_context(err, "in field '%s'", mr_manifest_schema(p->manifest)->field[field[k]].field.name);
    }
    f->n_slices = n;
    return !rc && f->n_ranges > p->max_ranges ? MR_FETCH_MANY : rc;
}

int mr_fetch_plan_one(struct mr_fetch_planner *p, struct mr_fetch *f, uint64_t id, unsigned field, struct mr_error *err)
{
    const unsigned *selected;
    unsigned n = mr_dataset_selected(p->ds, &selected), k = 0;
    int rc = mr_manifest_locate(p->manifest, id, &f->pos, err);
    if (rc || (rc = reserve_slices(p, f, MR_MAX(n, 1u), err)))
        return rc;
    while (k + 1 < n && selected[k] != field)
        k++;
    f->id = id;
    f->n_ranges = f->n_reads = 0;
    f->length = f->room = 0;
    f->access = MR_ACCESS_RANGE;
    f->verbatim = false;
    f->n_slices = 1;
    return plan_field(p, f, &f->slice[0], &p->field[k], field, 0, false, err);
}
