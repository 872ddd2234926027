/* Plans: from a sample to what is read for it; see fetch.h. */
#include "base/rng.h"
#include "dataset/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_LAYOUT UINT64_MAX
#define EXTENTS 16u

void mr_fetch_planner_init(struct mr_fetch_planner *p, const struct mr_dataset *ds, unsigned align, bool merge,
                           unsigned max_ranges)
{
    *p = (struct mr_fetch_planner){.ds = ds,
                                   .manifest = mr_dataset_manifest(ds),
                                   .format = mr_dataset_format(ds),
                                   .align = align,
                                   .merge = merge,
                                   .max_ranges = max_ranges,
                                   .cost_layout = NO_LAYOUT};
}

void mr_fetch_planner_done(struct mr_fetch_planner *p)
{
    free(p->extent);
    free(p->field);
    p->field = NULL;
    p->extent = NULL;
    p->extent_cap = 0;
}

void mr_fetch_done(struct mr_fetch *f)
{
    free(f->range);
    free(f->read);
    free(f->slice);
    *f = (struct mr_fetch){0};
}

int mr_fetch_reserve(struct mr_fetch *f, unsigned n, struct mr_error *err)
{
    if (MR_LIKELY(n <= f->cap))
        return 0;
    unsigned cap = MR_MAX(n, 4u);
    struct mr_fetch_range *range = realloc(f->range, cap * sizeof(*range));
    f->range = range ? range : f->range;
    struct mr_fetch_read *read = realloc(f->read, cap * sizeof(*read));
    f->read = read ? read : f->read;
    if (!range || !read)
        return mr_error_set(err, -ENOMEM, "cannot plan a sample of %u ranges", n);
    f->cap = cap;
    return 0;
}

/* The file's layout, and what reading it costs; mostly those of the file before. */
static int load_layout(struct mr_fetch_planner *p, struct mr_fetch *f, struct mr_error *err)
{
    uint64_t id = mr_manifest_file_layout_id(p->manifest, f->pos.file);
    if (MR_UNLIKELY(id != p->cost_layout)) {
        p->cost_layout = NO_LAYOUT;
        mr_manifest_file_layout(p->manifest, f->pos.file, &p->layout);
        p->cost = (struct mr_read_cost){0};
        int rc = p->format->cost(&p->layout, &p->cost, err);
        if (rc < 0)
            return rc;
        p->cost_layout = id;
    }
    f->layout = p->layout;
    f->access = p->cost.access;
    f->verbatim = p->cost.verbatim;
    return 0;
}

static int grow_extents(struct mr_fetch_planner *p, unsigned n, struct mr_error *err)
{
    struct mr_extent *grown = realloc(p->extent, n * sizeof(*grown));
    if (!grown)
        return mr_error_set(err, -ENOMEM, "cannot plan a sample of %u ranges", n);
    p->extent = grown;
    p->extent_cap = n;
    return 0;
}

/* The format's ranges, in p->extent. */
int mr_fetch_ask_format(struct mr_fetch_planner *p, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                        unsigned flags, unsigned *n, struct mr_error *err)
{
    int rc = p->extent ? 0 : grow_extents(p, EXTENTS, err);
    if (rc)
        return rc;
    *n = 0;
    rc = p->format->plan(layout, ref, flags, p->extent, p->extent_cap, n, err);
    if (MR_UNLIKELY(rc == MR_E_LIMIT && *n > p->extent_cap)) {
        if (*n > p->max_ranges)
            return p->max_ranges < (1u << 24) ? MR_FETCH_MANY : rc;
        if ((rc = grow_extents(p, *n, err)))
            return rc;
        rc = p->format->plan(layout, ref, flags, p->extent, p->extent_cap, n, err);
    }
    if (rc >= 0 && *n > p->max_ranges)
        return MR_FETCH_MANY;
    return rc < 0 ? rc : 0;
}

/* Is the range better read together with what was read before it? */
static bool joins(const struct mr_fetch_planner *p, const struct mr_fetch_read *last, const struct mr_extent *e,
                  uint64_t most)
{
    if (!p->merge || most == MR_FETCH_APART || e->offset < last->wanted_to)
        return false;
    uint64_t gap = e->offset - last->wanted_to;
    return e->offset <= last->to || (gap <= most && e->length <= MR_FETCH_SMALL);
}

static void add_read(const struct mr_fetch_planner *p, struct mr_fetch *f, struct mr_fetch_range *range, uint64_t gap)
{
    const struct mr_extent *e = &range->extent;
    uint64_t from = e->offset / p->align * p->align, to = MR_ALIGN_UP(e->offset + e->length, (uint64_t)p->align);
    struct mr_fetch_read *last = &f->read[f->n_reads ? f->n_reads - 1 : 0];
    if (f->n_reads && joins(p, last, e, gap)) {
        range->at = last->at + (e->offset - last->from);
        last->wanted_to = e->offset + e->length;
        f->room += MR_MAX(to, last->to) - last->to;
        last->to = MR_MAX(to, last->to);
        return;
    }
    f->read[f->n_reads++] =
        (struct mr_fetch_read){.from = from, .to = to, .wanted_to = e->offset + e->length, .at = f->room};
    range->at = f->room + (e->offset - from);
    f->room += to - from;
}

/* One range, read as it is: what most samples are. */
static inline bool lay_out_one(const struct mr_fetch_planner *p, struct mr_fetch *f)
{
    const struct mr_extent *e = p->extent;
    if (p->align != 1 || f->access != MR_ACCESS_RANGE || e->length == 0 || e->length > MR_LIMIT_SAMPLE_BYTES ||
        e->offset > INT64_MAX - MR_LIMIT_SAMPLE_BYTES - MR_FETCH_BLOCK)
        return false;
    f->n_ranges = f->n_reads = 1;
    f->length = f->room = e->length;
    f->range[0] = (struct mr_fetch_range){.extent = *e};
    f->read[0] =
        (struct mr_fetch_read){.from = e->offset, .to = e->offset + e->length, .wanted_to = e->offset + e->length};
    return true;
}

int mr_fetch_add_range(const struct mr_fetch_planner *p, struct mr_fetch *f, const struct mr_extent *e, bool is_read,
                       uint64_t gap, struct mr_error *err)
{
    struct mr_fetch_range *r = &f->range[f->n_ranges++];
    *r = (struct mr_fetch_range){.extent = *e, .at = f->room};
    if (__builtin_add_overflow(f->length, e->length, &f->length) || f->length > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "the ranges of the sample are beyond the limit of %llu bytes",
                              (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    if (e->length == 0 || !is_read)
        return 0;
    if (e->offset > INT64_MAX - MR_LIMIT_SAMPLE_BYTES - MR_FETCH_BLOCK)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu)",
                              (unsigned long long)e->length, (unsigned long long)e->offset);
    add_read(p, f, r, gap);
    return 0;
}

static int lay_out(const struct mr_fetch_planner *p, struct mr_fetch *f, unsigned n, struct mr_error *err)
{
    if (MR_LIKELY(n == 1) && lay_out_one(p, f))
        return 0;
    f->n_ranges = f->n_reads = 0;
    f->length = f->room = 0;
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = mr_fetch_add_range(p, f, &p->extent[i], f->access != MR_ACCESS_UNPACK, MR_FETCH_GAP, err);
    return rc;
}

int mr_fetch_plan(struct mr_fetch_planner *p, uint64_t id, unsigned flags, struct mr_fetch *f, struct mr_error *err)
{
    unsigned n;
    int rc = mr_manifest_locate(p->manifest, id, &f->pos, err);
    if (rc < 0)
        return rc;
    f->id = id;
    f->n_slices = 0;
    if (MR_UNLIKELY(mr_dataset_selected(p->ds, NULL)))
        return mr_fetch_plan_fields(p, f, flags, err);
    if ((rc = load_layout(p, f, err)))
        return rc;
    if (MR_UNLIKELY(f->access == MR_ACCESS_UNIT))
        return mr_fetch_plan_fields(p, f, flags, err);
    if ((rc = mr_fetch_ask_format(p, &f->layout, &f->pos.ref, flags, &n, err)) || (rc = mr_fetch_reserve(f, n, err)))
        return rc;
    return lay_out(p, f, n, err);
}

/* Do the stored bytes grow when they are to be verified? One sample tells where all files are alike. */
static bool has_checksums(const struct mr_dataset *ds)
{
    struct mr_fetch_planner p;
    struct mr_fetch plain = {0}, checked = {0};
    if (mr_manifest_layouts(mr_dataset_manifest(ds)) > 1)
        return true;
    mr_fetch_planner_init(&p, ds, 1, true, 1u << 20);
    bool same = mr_fetch_plan(&p, 0, 0, &plain, NULL) == 0 &&
                mr_fetch_plan(&p, 0, MR_READ_VERIFY, &checked, NULL) == 0 && plain.length == checked.length &&
                plain.access == checked.access;
    mr_fetch_done(&plain);
    mr_fetch_done(&checked);
    mr_fetch_planner_done(&p);
    return !same;
}

void mr_stored_key(const struct mr_dataset *ds, unsigned flags, uint8_t out[16])
{
    const unsigned *field;
    bool checked = flags & MR_DATASET_VERIFY && has_checksums(ds);
    uint64_t seed = checked ? MR_DATASET_VERIFY : 0;
    for (unsigned i = 0, n = mr_dataset_selected(ds, &field); i < n; i++)
        seed = mr_mix64(seed + field[i] + 2);
    mr_manifest_hash(mr_dataset_manifest(ds), seed, out);
}

uint8_t *mr_fetch_collect(const struct mr_fetch *f, uint8_t *place)
{
    if (MR_LIKELY(f->n_ranges == 1))
        return place + f->range[0].at;
    if (f->n_ranges == 0)
        return place;
    uint64_t to = f->range[0].at;
    unsigned i = 0;
    while (i < f->n_ranges && f->range[i].at == to)
        to += f->range[i++].extent.length;
    if (i == f->n_ranges)
        return place + f->range[0].at;
    to = 0;
    for (i = 0; i < f->n_ranges; i++) { /* ranges lie in ascending places, so none is overwritten before it is moved */
        if (f->range[i].at != to)
            memmove(place + to, place + f->range[i].at, f->range[i].extent.length);
        to += f->range[i].extent.length;
    }
    return place;
}

void mr_fetch_copy(const struct mr_fetch *f, const uint8_t *place, uint8_t *to)
{
    for (unsigned i = 0; i < f->n_ranges; i++) {
        memcpy(to, place + f->range[i].at, f->range[i].extent.length);
        to += f->range[i].extent.length;
    }
}

/* ---- for sources ---- */

void mr_fetch_source_free(struct mr_fetch_source *s)
{
    if (s)
        s->ops->free(s);
}

bool mr_fetch_no_room(struct mr_fetch_source *s)
{
    (void)s;
    return false;
}

int mr_fetch_no_start(struct mr_fetch_source *s, struct mr_fetch_job *j, struct mr_error *err)
{
    (void)j;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "source '%s' has no queue", s->ops->name);
}

void mr_fetch_no_flush(struct mr_fetch_source *s)
{
    (void)s;
}

int mr_fetch_no_reap(struct mr_fetch_source *s, struct mr_fetch_job **done, struct mr_error *err)
{
    (void)s, (void)err;
    *done = NULL;
    return 0;
}

void mr_fetch_no_drain(struct mr_fetch_source *s, struct mr_fetch_job **done)
{
    (void)s;
    *done = NULL;
}
