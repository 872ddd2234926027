/* Reading samples of several fields: see dataset_parts.h and doc/internals/fields.md. From the store, large fields that
 * are their own value are read straight to where they go; what the others take is read together and decoded from there.
 * From any other source the whole sample's bytes are at hand, one field behind the other.
 *
 * Hot path (file open, buffers grown): no malloc, no lock. Every decoded value is held against the schema (F2). */
#include "dataset/reader_internal.h"
#include "base/clock.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mr_reader_free_fields(struct mr_dataset_reader *r)
{
    for (unsigned k = 0; k < r->n_fields; k++)
        free(r->field[k].data);
    free(r->field);
    mr_decoder_free(r->pictures);
    mr_fetch_done(&r->part_fetch);
}

uint64_t mr_dataset_reader_field_ns(const struct mr_dataset_reader *r, unsigned k)
{
    return k < r->n_fields ? r->field[k].decode_ns : 0;
}

uint64_t mr_dataset_reader_field_bytes(const struct mr_dataset_reader *r, unsigned k)
{
    return k < r->fetch.n_slices ? r->fetch.slice[k].length : 0;
}

/* Memory of n fields, and one more: of all their bytes together. */
int mr_reader_reserve_fields(struct mr_dataset_reader *r, unsigned n, struct mr_error *err)
{
    if (MR_LIKELY(n < r->n_fields))
        return 0;
    r->field = calloc(n + 1, sizeof(*r->field));
    r->n_fields = r->field ? n + 1 : 0;
    return r->field ? 0 : mr_error_set(err, -ENOMEM, "cannot read %u fields", n);
}

static int grow_field(struct mr_dataset_reader *r, unsigned k, uint64_t bytes, struct mr_error *err)
{
    struct field_memory *m = &r->field[k];
    if (MR_LIKELY(bytes <= m->cap && m->data))
        return 0;
    uint64_t cap = MR_ALIGN_UP(bytes + bytes / 4 + 1, (uint64_t)4096);
    free(m->data);
    m->data = aligned_alloc(4096, cap);
    m->cap = m->data ? cap : 0;
    return m->data ? 0 : mr_error_set(err, -ENOMEM, "cannot get a buffer of %llu bytes", (unsigned long long)cap);
}

/* ---- from the store ---- */

/* Is it read with the others, before decoding begins? */
static bool is_gathered(const struct mr_fetch_slice *s)
{
    return s->access == MR_ACCESS_RANGE && s->n_ranges && !s->alone;
}

static void add_part(struct mr_fetch *part, const struct mr_fetch *f, const struct mr_fetch_slice *s, unsigned *taken)
{
    for (unsigned i = s->first_range; i < s->first_range + s->n_ranges; i++) {
        struct mr_fetch_range r = f->range[i];
        part->length += r.extent.length;
        unsigned n = *taken ? *taken - 1 : 0; /* the last read that was taken over may hold it, too */
        while (r.extent.length && (r.at < f->read[n].at || r.at >= f->read[n].at + (f->read[n].to - f->read[n].from)))
            n++;
        if (r.extent.length && n >= *taken) {
            part->read[part->n_reads] = f->read[n];
            part->read[part->n_reads].at = part->room;
            part->room += f->read[n].to - f->read[n].from;
            part->n_reads++;
            *taken = n + 1;
        }
        if (r.extent.length)
            r.at = part->read[part->n_reads - 1].at + (r.at - f->read[n].at);
        else
            r.at = part->room;
        part->range[part->n_ranges++] = r;
    }
}

/* What fields [from, to) that are gathered take, as a plan of its own. */
static int make_part(struct mr_dataset_reader *r, unsigned from, unsigned to, bool whole, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    struct mr_fetch *part = &r->part_fetch;
    unsigned taken = 0;
    int rc = mr_fetch_reserve(part, MR_MAX(f->n_ranges, 1u), err);
    if (rc)
        return rc;
    part->id = f->id;
    part->pos = f->pos;
    part->access = MR_ACCESS_RANGE;
    part->n_ranges = part->n_reads = 0;
    part->length = part->room = 0;
    for (unsigned k = from; k < to; k++)
        if (whole || is_gathered(&f->slice[k]))
            add_part(part, f, &f->slice[k], &taken);
    return 0;
}

/* Reads the part into the reader's raw memory; *raw: where its bytes lie, one range behind the other. */
static int read_part(struct mr_dataset_reader *r, uint8_t **raw, struct mr_error *err)
{
    const struct mr_fetch *part = &r->part_fetch;
    int rc = mr_reader_grow_raw(r, MR_MAX(part->room, 1u), err);
    if (!rc && part->n_reads)
        rc = r->own->ops->read(r->own, part, r->raw, err);
    *raw = r->raw;
    if (!rc && part->n_ranges)
        *raw = mr_fetch_collect(part, r->raw);
    return rc;
}

/* One field alone to `to`, which has room for its reads. */
static int read_one(struct mr_dataset_reader *r, unsigned k, uint8_t *to, struct mr_error *err)
{
    int rc = make_part(r, k, k + 1, true, err);
    if (!rc && r->part_fetch.n_reads)
        rc = r->own->ops->read(r->own, &r->part_fetch, to, err);
    return rc;
}

/* A part of an unpacked file, put together in the field's memory where it is several ranges. */
static int take_unpacked(struct mr_dataset_reader *r, unsigned k, const uint8_t **raw, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    const struct mr_fetch_slice *s = &f->slice[k];
    const struct unpacked_file *u;
    int rc = mr_reader_get_unpacked(r, s, NULL, &u, err);
    if (!rc && s->n_ranges != 1)
        rc = grow_field(r, k, s->length, err);
    uint8_t *to = r->field[k].data;
    for (unsigned i = 0; !rc && i < s->n_ranges; i++) {
        const struct mr_extent *e = &f->range[s->first_range + i].extent;
        if (e->offset > u->len || e->length > u->len - e->offset)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "unexpected end of the unpacked file (want %llu bytes at %llu, have %zu)",
                                  (unsigned long long)e->length, (unsigned long long)e->offset, u->len);
        if (s->n_ranges == 1) {
            *raw = (const uint8_t *)u->data + e->offset;
            return 0;
        }
        memcpy(to, (const uint8_t *)u->data + e->offset, e->length);
        to += e->length;
    }
    *raw = r->field[k].data;
    return rc;
}

/* Where the stored bytes of field k lie: at `at`, if they were brought there, else by reading. `in_place`: where they
 * are to go, or NULL. */
static int stored_bytes(struct mr_dataset_reader *r, unsigned k, const uint8_t *at, uint8_t *in_place,
                        const uint8_t **raw, struct mr_error *err)
{
    const struct mr_fetch_slice *s = &r->fetch.slice[k];
    if (at || !s->n_ranges) {
        *raw = at;
        return 0;
    }
    if (s->access == MR_ACCESS_UNPACK)
        return take_unpacked(r, k, raw, err);
    int rc = in_place ? 0 : grow_field(r, k, MR_MAX(r->fetch.room, 1u), err);
    if (rc)
        return rc;
    uint8_t *to = in_place ? in_place : r->field[k].data;
    rc = read_one(r, k, to, err);
    *raw = rc || in_place ? to : mr_fetch_collect(&r->part_fetch, to);
    return rc;
}

int mr_reader_stored_bytes(struct mr_dataset_reader *r, unsigned k, const uint8_t **raw, struct mr_error *err)
{
    return stored_bytes(r, k, NULL, NULL, raw, err);
}

int mr_reader_stored_bytes_to(struct mr_dataset_reader *r, unsigned k, uint8_t *to, struct mr_error *err)
{
    const uint8_t *raw;
    assert(r->fetch.slice[k].n_ranges == 1);
    return stored_bytes(r, k, NULL, to, &raw, err);
}

/* ---- decoding ---- */

struct reading {
    struct mr_dataset_reader *r;
    const struct mr_fetch *f;
    unsigned flags; /* the format's */
    const struct mr_field_consumer *to;
};

static bool is_picture(const struct mr_field *f)
{
    return f->storage == MR_FIELD_JPEG || f->storage == MR_FIELD_PNG;
}

/* Bytes of a value whose shape the schema promises; 0: it promises none, or decoding makes another one. */
static uint64_t promised_bytes(const struct mr_field *f)
{
    uint64_t bytes = mr_dtype_bytes(f->dtype);
    if (f->variable != MR_FIELD_FIXED || is_picture(f))
        return 0;
    for (unsigned d = 0; d < f->dims.n; d++)
        if (__builtin_mul_overflow(bytes, f->dims.dim[d], &bytes))
            return 0;
    return bytes;
}

static void print_dims(const struct mr_dims *d, int variable, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, "%s", d->n ? "" : "one number");
    for (unsigned i = 0; i < d->n && n < cap; i++)
        n += (size_t)((int)i == variable
                          ? snprintf(out + n, cap - n, "%s?", i ? " x " : "")
                          : snprintf(out + n, cap - n, "%s%llu", i ? " x " : "", (unsigned long long)d->dim[i]));
}

/* F2. */
static int check_promise(const struct mr_field *f, const struct mr_sample_out *o, struct mr_error *err)
{
    char want[128], have[128];
    bool ok = o->dtype == f->dtype && (f->variable == MR_FIELD_ANY_SHAPE || o->dims.n == f->dims.n);
    for (unsigned d = 0; ok && f->variable != MR_FIELD_ANY_SHAPE && d < f->dims.n; d++)
        ok = (int)d == f->variable || o->dims.dim[d] == f->dims.dim[d];
    if (MR_LIKELY(ok))
        return 0;
    print_dims(&f->dims, f->variable, want, sizeof want);
    print_dims(&o->dims, MR_FIELD_FIXED, have, sizeof have);
    if (f->variable == MR_FIELD_ANY_SHAPE)
        snprintf(want, sizeof want, "of any shape");
    return mr_error_plain(err, MR_E_FORMAT, "the schema promises %s, %s; it is %s, %s", mr_dtype_numpy(f->dtype), want,
                          mr_dtype_numpy(o->dtype), have);
}

static void sample_of(const struct mr_sample_out *o, const void *data, struct mr_sample *s)
{
    *s = (struct mr_sample){.data = data, .bytes = o->bytes, .label = o->label, .n_dims = o->dims.n};
    mr_reader_name_dtype(o->dtype, s->dtype);
    for (unsigned d = 0; d < o->dims.n; d++)
        s->dims[d] = o->dims.dim[d];
}

/* The manifest's label as a number of the field's type. */
static int give_label(const struct reading *g, unsigned k, const struct mr_field *f, struct mr_error *err)
{
    int64_t label = g->f->pos.ref.label;
    uint64_t le;
    unsigned bytes = mr_dtype_bytes(f->dtype);
    if (label == MR_LABEL_NONE)
        return mr_error_plain(err, MR_E_FORMAT, "the sample has no label");
    mr_store_le64(&le, (uint64_t)label);
    uint8_t *dst = g->to->room(g->to->user, k, bytes, err);
    struct mr_sample s = {.data = dst ? dst : (uint8_t *)&le, .bytes = bytes, .label = label};
    mr_reader_name_dtype(f->dtype, s.dtype);
    if (dst)
        memcpy(dst, &le, bytes);
    return g->to->value(g->to->user, k, &s, NULL, err);
}

/* A decoded value to where it goes. */
static int give(const struct reading *g, unsigned k, const struct mr_sample_out *o, void *dst, bool asked,
                struct mr_error *err)
{
    struct mr_sample s;
    if (!asked)
        dst = g->to->room(g->to->user, k, o->bytes, err);
    if (dst && o->data != dst)
        memcpy(dst, o->data, o->bytes);
    sample_of(o, dst ? dst : o->data, &s);
    const struct mr_part *part = o->part.full_height ? &o->part : NULL;
    return g->to->value(g->to->user, k, &s, part, err);
}

static int decode(const struct reading *g, unsigned k, const struct mr_field *f, const uint8_t *raw, void *dst,
                  uint64_t promised, struct mr_error *err)
{
    const struct mr_fetch_slice *s = &g->f->slice[k];
    struct mr_dataset_reader *r = g->r;
    struct mr_sample_out o = {.label = g->f->pos.ref.label};
    size_t len = s->length;
    if (s->access == MR_ACCESS_UNIT) {
        const struct unpacked_file *u;
        int rc = mr_reader_get_unpacked(r, s, raw, &u, err);
        if (rc)
            return rc;
        raw = u->data;
        len = u->len;
    }
    if (dst && raw != dst) {
        o.dst = dst;
        o.dst_cap = promised;
    } else if (!dst && g->to->choose) {
        o.choose_part = g->to->choose(g->to->user, k, &o.choose_user);
    }
    uint64_t begin = mr_now_ns();
    int rc = r->format->decode(r->decoder, &s->layout, &s->ref, g->flags, raw, len, &o, err);
    if (rc >= 0 && is_picture(f) && o.dims.n == 1 && o.dtype == MR_U8)
        rc = mr_reader_decode_picture(r, &o, err);
    r->field[k].decode_ns += mr_now_ns() - begin;
    if (rc == MR_E_LIMIT && dst) { /* it has more than the schema promises: the whole of it says what it is */
        o = (struct mr_sample_out){.label = o.label};
        rc = r->format->decode(r->decoder, &s->layout, &s->ref, g->flags, raw, len, &o, err);
    }
    if (rc >= 0)
        rc = check_promise(f, &o, err);
    return rc < 0 ? rc : give(g, k, &o, dst, dst != NULL, err);
}

/* `at`: its stored bytes, where they are at hand. */
static int read_field(const struct reading *g, unsigned k, const uint8_t *at, struct mr_error *err)
{
    const struct mr_fetch_slice *s = &g->f->slice[k];
    const struct mr_schema *schema = mr_manifest_schema(g->r->manifest);
    const struct mr_field *f = &schema->field[s->field].field;
    const uint8_t *raw = NULL;
    int rc = 0;
    if (f->storage == MR_FIELD_LABEL) {
        rc = give_label(g, k, f, err);
    } else {
        const struct unpacked_file *there;
        uint64_t promised = promised_bytes(f);
        uint8_t *dst = promised ? g->to->room(g->to->user, k, promised, err) : NULL;
        bool in_place = dst && s->alone && s->length == promised;
        bool cached = s->access == MR_ACCESS_UNIT && !at && mr_reader_get_unpacked(g->r, s, NULL, &there, err) == 0;
        if (!cached)
            rc = stored_bytes(g->r, k, at, in_place ? dst : NULL, &raw, err);
        if (!rc)
            rc = decode(g, k, f, raw, dst, promised, err);
    }
    if (MR_UNLIKELY(rc < 0))
        mr_error_context(err, "in field '%s'", f->name);
    return rc;
}

/* Every field, with its bytes from `all` on, or (NULL) from what was gathered at `gathered`. */
static int decode_all(const struct reading *g, const uint8_t *all, const uint8_t *gathered, struct mr_error *err)
{
    const struct mr_fetch *f = g->f;
    int rc = 0;
    unsigned first = g->to->first < f->n_slices ? g->to->first : 0;
    for (unsigned i = 0; i < f->n_slices && !rc; i++) {
        unsigned k = i == 0 ? first : i <= first ? i - 1 : i;
        const uint8_t *at = all ? all + f->slice[k].at : NULL;
        if (!all && is_gathered(&f->slice[k])) {
            at = gathered;
            for (unsigned before = 0; before < k; before++)
                at += is_gathered(&f->slice[before]) ? f->slice[before].length : 0;
        }
        rc = read_field(g, k, at, err);
    }
    return rc;
}

static int read_from_store(const struct reading *g, struct mr_error *err)
{
    struct mr_dataset_reader *r = g->r;
    uint8_t *gathered = NULL;
    int rc = make_part(r, 0, r->fetch.n_slices, false, err);
    if (!rc)
        rc = read_part(r, &gathered, err);
    return rc ? rc : decode_all(g, NULL, gathered, err);
}

int mr_reader_read_fields(struct mr_dataset_reader *r, unsigned flags, const struct mr_field_consumer *to,
                          struct mr_error *err)
{
    const struct reading g = {.r = r, .f = &r->fetch, .flags = flags, .to = to};
    const uint8_t *raw = NULL;
    int rc = mr_reader_reserve_fields(r, r->fetch.n_slices, err);
    if (rc)
        return rc;
    if (r->source == r->own)
        return read_from_store(&g, err);
    rc = mr_reader_fetch_fields(r, NULL, 0, &raw, err);
    return rc ? rc : decode_all(&g, raw, NULL, err);
}

/* ---- the stored bytes, as one row ---- */

/* Some of the fields lie in files that are unpacked as a whole: one field behind the other. */
static int gather_mixed(struct mr_dataset_reader *r, uint8_t *to, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    int rc = 0;
    for (unsigned k = 0; k < f->n_slices && !rc; k++) {
        const uint8_t *raw = NULL;
        rc = stored_bytes(r, k, NULL, NULL, &raw, err);
        assert(rc || raw || !f->slice[k].length); /* nothing to read only where nothing is stored */
        if (!rc && f->slice[k].length)
            memcpy(to + f->slice[k].at, raw, f->slice[k].length);
    }
    return rc;
}

int mr_reader_fetch_fields(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw,
                           struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    if (r->source != r->own || f->access != MR_ACCESS_UNPACK) {
        struct mr_fetch *x = &r->fetch;
        enum mr_access access = x->access;
        x->access = r->source == r->own || access != MR_ACCESS_UNPACK ? MR_ACCESS_RANGE : access;
        int rc = f->n_ranges ? mr_reader_fetch(r, dst, cap, raw, err) : 0;
        x->access = access;
        if (!f->n_ranges)
            *raw = dst ? dst : r->raw;
        return rc;
    }
    bool fits = dst && f->length <= cap;
    int rc = mr_reader_reserve_fields(r, f->n_slices, err);
    if (!rc && !fits)
        rc = grow_field(r, f->n_slices, f->length, err);
    if (rc)
        return rc;
    *raw = fits ? dst : r->field[f->n_slices].data;
    return gather_mixed(r, fits ? dst : r->field[f->n_slices].data, err);
}

/* ---- the interface ---- */

int mr_dataset_read_to(struct mr_dataset_reader *r, uint64_t id, unsigned flags, const struct mr_field_consumer *to,
                       struct mr_error *err)
{
    struct mr_reader_times *t = &r->times;
    unsigned format_flags = flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0;
    r->fetch.pos.file = NO_FILE;
    t->start_ns = mr_now_ns();
    t->now_ns = t->decoded_ns = 0;
    atomic_store_explicit(&t->reading_since, t->start_ns, memory_order_relaxed);
    uint64_t before = 0, after = 0;
    for (unsigned k = 0; k < r->n_fields; k++)
        before += r->field[k].decode_ns;
    int rc = mr_fetch_plan(&r->planner, id, format_flags, &r->fetch, err);
    if (rc >= 0)
        rc = mr_reader_read_fields(r, format_flags, to, err);
    atomic_store_explicit(&t->reading_since, 0, memory_order_relaxed);
    for (unsigned k = 0; k < r->n_fields; k++)
        after += r->field[k].decode_ns;
    /* Reading and decoding take turns; for the clock all decoding follows all reading. */
    t->decoded_ns = mr_now_ns();
    t->fetched_ns = MR_MAX(t->start_ns, t->decoded_ns - MR_MIN(after - before, t->decoded_ns - t->start_ns));
    t->read_ns += t->fetched_ns - t->start_ns;
    t->decode_ns += after - before;
    t->read_bytes = r->own->read_bytes;
    t->fetched_bytes = r->fetch.length;
    if (rc < 0 && r->fetch.pos.file != NO_FILE)
        rc = mr_reader_explain(r, id, rc, err);
    return rc < 0 ? rc : 0;
}

int mr_dataset_decode_to(struct mr_dataset_reader *r, const struct mr_fetch *f, unsigned flags, const void *raw,
                         const struct mr_field_consumer *to, struct mr_error *err)
{
    const struct reading g = {.r = r, .f = f, .flags = flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0, .to = to};
    int rc = mr_reader_reserve_fields(r, f->n_slices, err);
    return rc ? rc : decode_all(&g, raw, NULL, err);
}

/* ---- values that stay in the reader ---- */

struct keeping {
    struct mr_dataset_reader *r;
    struct mr_sample *out;
    unsigned n;
};

static void *no_room(void *user, unsigned k, uint64_t bytes, struct mr_error *err)
{
    (void)user, (void)k, (void)bytes, (void)err;
    return NULL;
}

/* Decoders and labels may say something in memory that the next field uses, too. */
static int keep_value(void *user, unsigned k, struct mr_sample *s, const struct mr_part *part, struct mr_error *err)
{
    struct keeping *keep = user;
    struct mr_dataset_reader *r = keep->r;
    (void)part;
    if (k >= keep->n)
        return 0;
    const uint8_t *data = s->data;
    bool stays = data >= r->field[k].data && data < r->field[k].data + r->field[k].cap;
    if (!stays) {
        int rc = grow_field(r, k, MR_MAX(s->bytes, 1u), err);
        if (rc)
            return rc;
        memcpy(r->field[k].data, data, s->bytes);
        s->data = r->field[k].data;
    }
    keep->out[k] = *s;
    return 0;
}

int mr_dataset_read_fields(struct mr_dataset_reader *r, uint64_t id, unsigned flags, struct mr_sample *out, unsigned n,
                           struct mr_error *err)
{
    if (!mr_dataset_selected(r->ds, NULL))
        return n ? mr_dataset_read(r, id, flags, NULL, 0, out, err)
                 : mr_error_plain(err, MR_E_USAGE, "no room for the sample");
    if (n < mr_dataset_selected(r->ds, NULL))
        return mr_error_plain(err, MR_E_USAGE, "room for %u fields, and %u are selected", n,
                              mr_dataset_selected(r->ds, NULL));
    struct keeping keep = {.r = r, .out = out, .n = n};
    const struct mr_field_consumer to = {.user = &keep, .room = no_room, .value = keep_value};
    return mr_dataset_read_to(r, id, flags & MR_DATASET_VERIFY, &to, err);
}

/* The first of them, for callers that expect one value. */
static int keep_first(void *user, unsigned k, struct mr_sample *s, const struct mr_part *part, struct mr_error *err)
{
    return k ? 0 : keep_value(user, k, s, part, err);
}

int mr_reader_read_first(struct mr_dataset_reader *r, unsigned flags, void *dst, size_t cap, struct mr_sample *out,
                         struct mr_error *err)
{
    struct keeping keep = {.r = r, .out = out, .n = 1};
    const struct mr_field_consumer to = {.user = &keep, .room = no_room, .value = keep_first};
    int rc = mr_reader_read_fields(r, flags, &to, err);
    if (rc || !dst)
        return rc;
    if (out->bytes > cap)
        return mr_error_plain(err, MR_E_LIMIT, "the sample has %zu bytes, the buffer %zu", out->bytes, cap);
    memcpy(dst, out->data, out->bytes);
    out->data = dst;
    return 0;
}
