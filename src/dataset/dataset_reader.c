/* Reading samples, one thread at a time: see <millrace/dataset.h>. Steps: plan (manifest, format) -> ranges, source ->
 * bytes (fetch.h), format decode -> payload. Files that must be unpacked as a whole stay unpacked in a cache that
 * forgets the least recently used.
 *
 * Hot path (file open, buffers grown): no malloc, no lock, one read per range or fewer. Payload bytes that need no
 * decoding are read straight into their destination. */
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/common.h"
#include "dataset/reader_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_FILES 16u /* unless tuned */
#define RANGES_MAX (1u << 24)

static int open_source(struct mr_dataset_reader *r, unsigned open_flags, uint64_t open_files, struct mr_error *err)
{
    const struct mr_fetch_store_options o = {
        .open_flags = open_flags, .open_files = MR_MAX(open_files, OPEN_FILES), .transfer_bytes = r->transfer_bytes};
    struct mr_fetch_source *made;
    int rc = mr_fetch_store_create(r->ds, &o, &made, err);
    if (rc)
        return rc;
    mr_fetch_source_free(r->own);
    r->own = r->source = made;
    return 0;
}

int mr_dataset_reader_create(struct mr_dataset *ds, struct mr_dataset_reader **out, struct mr_error *err)
{
    struct mr_dataset_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return mr_error_set(err, -ENOMEM, "cannot make a reader");
    r->ds = ds;
    r->manifest = mr_dataset_manifest(ds);
    r->format = mr_dataset_format(ds);
    mr_fetch_planner_init(&r->planner, ds, 1, true, RANGES_MAX);
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        r->unpacked[i].file = NO_FILE;
    r->decoder = mr_decoder_create();
    int rc = r->decoder ? open_source(r, 0, OPEN_FILES, err) : mr_error_set(err, -ENOMEM, "cannot make a reader");
    if (rc)
        mr_dataset_reader_free(r);
    else
        *out = r;
    return rc;
}

static void forget_unpacked(struct mr_dataset_reader *r, struct unpacked_file *f)
{
    r->unpacked_bytes -= f->len;
    free(f->data);
    *f = (struct unpacked_file){.file = NO_FILE};
}

void mr_dataset_reader_free(struct mr_dataset_reader *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].data)
            forget_unpacked(r, &r->unpacked[i]);
    mr_fetch_source_free(r->own);
    mr_fetch_done(&r->fetch);
    mr_reader_free_fields(r);
    mr_fetch_planner_done(&r->planner);
    mr_decoder_free(r->decoder);
    free(r->raw);
    free(r);
}

int mr_dataset_reader_tune(struct mr_dataset_reader *r, uint64_t transfer_bytes, unsigned open_flags,
                           uint64_t open_files, struct mr_error *err)
{
    r->transfer_bytes = transfer_bytes;
    r->planner.merge = transfer_bytes == 0; /* who cuts reads wants certain calls */
    return open_source(r, open_flags, open_files, err);
}

void mr_dataset_reader_use(struct mr_dataset_reader *r, struct mr_fetch_source *source)
{
    r->source = source ? source : r->own;
}

void mr_dataset_reader_choose(struct mr_dataset_reader *r, mr_choose_part_fn *choose, void *user)
{
    r->choose = choose;
    r->choose_user = user;
}

const struct mr_part *mr_dataset_reader_part(const struct mr_dataset_reader *r)
{
    return r->part.full_height ? &r->part : NULL;
}

struct mr_reader_times *mr_dataset_reader_times(struct mr_dataset_reader *r)
{
    return &r->times;
}

int mr_reader_grow_raw(struct mr_dataset_reader *r, uint64_t bytes, struct mr_error *err)
{
    if (bytes <= r->raw_cap)
        return 0;
    uint64_t cap = MR_ALIGN_UP(bytes + bytes / 4 + 1, 4096);
    if (bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a sample of %llu bytes is beyond the limit of %llu",
                              (unsigned long long)bytes, (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    free(r->raw);
    r->raw_cap = 0;
    r->raw = aligned_alloc(4096, cap);
    if (!r->raw)
        return mr_error_set(err, -ENOMEM, "cannot get a buffer of %llu bytes", (unsigned long long)cap);
    r->raw_cap = cap;
    return 0;
}

static int read_and_unpack(struct mr_dataset_reader *r, const struct mr_layout *layout, void **data, size_t *len,
                           struct mr_error *err)
{
    uint64_t file = r->fetch.pos.file, bytes = mr_manifest_file_bytes(r->manifest, file);
    int rc = mr_reader_grow_raw(r, bytes, err);
    if (!rc)
        rc = r->own->ops->read_file(r->own, file, r->raw, bytes, err);
    return rc < 0 ? rc : r->format->unpack(layout, r->raw, bytes, data, len, err);
}

static struct unpacked_file *free_slot(struct mr_dataset_reader *r)
{
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file == NO_FILE)
            return &r->unpacked[i];
    return NULL;
}

static struct unpacked_file *oldest_unpacked(struct mr_dataset_reader *r)
{
    struct unpacked_file *oldest = NULL;
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file != NO_FILE && (!oldest || r->unpacked[i].used < oldest->used))
            oldest = &r->unpacked[i];
    return oldest;
}

static struct unpacked_file *find_unpacked(struct mr_dataset_reader *r, uint64_t key, bool is_unit)
{
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file == r->fetch.pos.file && r->unpacked[i].key == key && r->unpacked[i].is_unit == is_unit)
            return &r->unpacked[i];
    return NULL;
}

int mr_reader_get_unpacked(struct mr_dataset_reader *r, const struct mr_fetch_slice *s, const void *raw,
                           const struct unpacked_file **out, struct mr_error *err)
{
    bool is_unit = s->access == MR_ACCESS_UNIT;
    uint64_t key = !is_unit ? s->unpack_key : s->n_ranges ? r->fetch.range[s->first_range].extent.offset : 0;
    struct unpacked_file *slot = find_unpacked(r, key, is_unit);
    if (slot) {
        slot->used = ++r->tick;
        *out = slot;
        return 0;
    }
    if (is_unit && !raw)
        return MR_READER_READ_UNIT;
    void *data = NULL;
    size_t len = 0;
    int rc = is_unit ? r->format->unpack(&s->layout, raw, s->length, &data, &len, err)
                     : read_and_unpack(r, &s->layout, &data, &len, err);
    if (rc < 0)
        return rc;
    while (!(slot = free_slot(r)) || (r->unpacked_bytes && r->unpacked_bytes + len > UNPACKED_BYTES))
        forget_unpacked(r, oldest_unpacked(r));
    *slot = (struct unpacked_file){
        .file = r->fetch.pos.file, .key = key, .is_unit = is_unit, .used = ++r->tick, .data = data, .len = len};
    r->unpacked_bytes += len;
    *out = slot;
    return 0;
}

/* The ranges out of the unpacked file: in place when there is one, else copied together. */
static int take_unpacked(struct mr_dataset_reader *r, const uint8_t **raw, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    const struct unpacked_file *u;
    const struct mr_fetch_slice whole = {.layout = f->layout, .access = MR_ACCESS_UNPACK};
    int rc = mr_reader_get_unpacked(r, &whole, NULL, &u, err);
    for (unsigned i = 0; !rc && i < f->n_ranges; i++) {
        const struct mr_extent *e = &f->range[i].extent;
        if (e->offset > u->len || e->length > u->len - e->offset)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "unexpected end of the unpacked file (want %llu bytes at %llu, have %zu)",
                                  (unsigned long long)e->length, (unsigned long long)e->offset, u->len);
    }
    if (rc)
        return rc;
    if (f->n_ranges == 1) {
        *raw = (const uint8_t *)u->data + f->range[0].extent.offset;
        return 0;
    }
    if ((rc = mr_reader_grow_raw(r, MR_MAX(f->length, 1u), err)))
        return rc;
    uint8_t *to = r->raw;
    for (unsigned i = 0; i < f->n_ranges; i++) {
        memcpy(to, (const uint8_t *)u->data + f->range[i].extent.offset, f->range[i].extent.length);
        to += f->range[i].extent.length;
    }
    *raw = r->raw;
    return 0;
}

/* Brings the planned bytes into memory: into the caller's buffer where they are the payload, else wherever they are at
 * hand. */
static int fetch(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    if (MR_LIKELY(dst && r->source == r->own && f->n_ranges == 1 && f->n_reads == 1 && f->room == f->length &&
                  f->length <= cap)) { /* one range, in place */
        *raw = dst;
        return r->own->ops->read(r->own, f, dst, err);
    }
    const void *there = r->source == r->own ? NULL : r->source->ops->borrow(r->source, f); /* a store lends nothing */
    if (there) {
        *raw = dst ? memcpy(dst, there, f->length) : there;
        return 0;
    }
    if (f->access == MR_ACCESS_UNPACK)
        return take_unpacked(r, raw, err);
    bool fits = dst && f->room <= cap;
    int rc = fits ? 0 : mr_reader_grow_raw(r, MR_MAX(f->room, 1u), err);
    uint8_t *place = fits ? dst : r->raw;
    if (!rc)
        rc = r->source->ops->read(r->source, f, place, err);
    if (rc)
        return rc;
    if (dst && !fits)
        mr_fetch_copy(f, place, dst);
    *raw = dst && !fits ? dst : mr_fetch_collect(f, place);
    return 0;
}

/* Fetches with the clock running. */
static int fetch_timed(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw, struct mr_error *err)
{
    struct mr_reader_times *t = &r->times;
    t->start_ns = t->now_ns ? t->now_ns : mr_now_ns();
    t->now_ns = 0;
    atomic_store_explicit(&t->reading_since, t->start_ns, memory_order_relaxed);
    int rc = r->fetch.n_slices ? mr_reader_fetch_fields(r, dst, cap, raw, err) : fetch(r, dst, cap, raw, err);
    atomic_store_explicit(&t->reading_since, 0, memory_order_relaxed);
    t->fetched_ns = mr_now_ns();
    t->read_ns += t->fetched_ns - t->start_ns;
    t->read_bytes = r->own->read_bytes;
    t->fetched_bytes = r->fetch.length;
    return rc;
}

int mr_reader_fetch(struct mr_dataset_reader *r, uint8_t *dst, size_t cap, const uint8_t **raw, struct mr_error *err)
{
    return fetch(r, dst, cap, raw, err);
}

static int decode(struct mr_dataset_reader *r, unsigned flags, const uint8_t *raw, bool in_place,
                  struct mr_sample_out *out, struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    int rc = r->format->decode(r->decoder, &f->layout, &f->pos.ref, flags, raw, f->length, out, err);
    /* Where all samples of a file are alike, or are bytes and nothing else, what was said of one holds for every one of
     * this layout and size. */
    bool alike = (r->format->caps & (MR_FMT_VARSIZE | MR_FMT_DTYPE)) != (MR_FMT_VARSIZE | MR_FMT_DTYPE);
    r->learns = rc >= 0 && in_place && alike && out->bytes == f->length && out->label == f->pos.ref.label;
    if (!in_place) { /* in place there is nothing to decode, and a look at the clock costs more than the nothing */
        r->times.decoded_ns = mr_now_ns();
        r->times.decode_ns += r->times.decoded_ns - r->times.fetched_ns;
    }
    return rc;
}

static int read_planned(struct mr_dataset_reader *r, unsigned flags, void *dst, size_t cap, struct mr_sample_out *out,
                        struct mr_error *err)
{
    const struct mr_fetch *f = &r->fetch;
    unsigned format_flags = flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0;
    const uint8_t *raw = NULL;
    bool in_place = dst && (f->verbatim || flags & MR_DATASET_RAW) && !format_flags && f->access == MR_ACCESS_RANGE &&
                    f->length <= cap;
    int rc = fetch_timed(r, in_place ? dst : NULL, cap, &raw, err);
    if (rc < 0)
        return rc;
    if (flags & MR_DATASET_RAW) {
        *out = (struct mr_sample_out){
            .data = raw, .bytes = f->length, .dtype = MR_U8, .dims = {1, {f->length}}, .label = out->label};
        return 0;
    }
    out->dst = in_place ? NULL : dst;
    out->dst_cap = in_place ? 0 : cap;
    return decode(r, format_flags, raw, in_place, out, err);
}

static const char dtype_name[MR_DTYPE_COUNT][sizeof(((struct mr_sample *)0)->dtype)] = {
#define DTYPE_NAME(name, numpy, bytes) [name] = numpy,
    MR_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

void mr_reader_name_dtype(enum mr_dtype t, char out[8])
{
    memcpy(out, dtype_name[t], sizeof dtype_name[t]);
}

/* Decoders may hand out a pointer into the raw bytes; a caller who gave a buffer wants them there. */
static int deliver(const struct mr_sample_out *o, void *dst, size_t cap, struct mr_sample *out, struct mr_error *err)
{
    out->bytes = o->bytes;
    if (dst && o->data != dst) {
        if (o->bytes > cap)
            return mr_error_plain(err, MR_E_LIMIT, "the sample has %zu bytes, the buffer %zu", o->bytes, cap);
        memcpy(dst, o->data, o->bytes);
    }
    out->data = dst ? dst : o->data;
    out->label = o->label;
    out->n_dims = o->dims.n;
    for (unsigned d = 0; d < o->dims.n; d++)
        out->dims[d] = o->dims.dim[d];
    memcpy(out->dtype, dtype_name[o->dtype], sizeof out->dtype);
    return 0;
}

/* In place, and of a layout and size of which it is known what they are: nothing is left but the read. */
static inline bool is_known(const struct mr_dataset_reader *r, unsigned flags, const void *dst, size_t cap)
{
    const struct mr_fetch *f = &r->fetch;
    return dst && !flags && f->verbatim && f->access == MR_ACCESS_RANGE && f->length <= cap && f->length &&
           r->known.bytes == f->length && r->known_layout == r->planner.cost_layout;
}

static int read_known(struct mr_dataset_reader *r, void *dst, size_t cap, struct mr_sample *out, struct mr_error *err)
{
    const uint8_t *raw = NULL;
    int rc = fetch_timed(r, dst, cap, &raw, err);
    if (rc < 0)
        return rc;
    *out = r->known;
    out->data = raw;
    out->label = r->fetch.pos.ref.label;
    return 0;
}

static int read_any(struct mr_dataset_reader *r, unsigned flags, void *dst, size_t cap, struct mr_sample *out,
                    struct mr_error *err)
{
    int64_t label = r->fetch.pos.ref.label;
    struct mr_sample_out o = {.choose_part = dst ? NULL : r->choose, .choose_user = r->choose_user, .label = label};
    r->learns = false;
    int rc = read_planned(r, flags, dst, cap, &o, err);
    if (label != MR_LABEL_NONE)
        o.label = label;
    r->part = o.part;
    if (rc >= 0)
        rc = deliver(&o, dst, cap, out, err);
    else if (rc == MR_E_LIMIT && o.bytes > cap && dst)
        out->bytes = o.bytes;
    if (rc >= 0 && r->learns) {
        r->known = *out;
        r->known_layout = r->planner.cost_layout;
    }
    return rc;
}

int mr_reader_explain(struct mr_dataset_reader *r, uint64_t id, int rc, struct mr_error *err)
{
    uint64_t file = r->fetch.pos.file;
    char word[1024];
    rc = mr_dataset_blame_change(r->ds, file, rc, err);
    if (mr_dataset_file_path(r->ds, file, r->path, NULL) < 0)
        snprintf(r->path, sizeof r->path, "file %llu", (unsigned long long)file);
    mr_error_context(err, "in sample %llu of '%s'", (unsigned long long)id, r->path);
    if (rc != MR_E_LIMIT)
        mr_error_hint(err, "'millrace verify %s' lists all that is wrong",
                      mr_shell_word(mr_dataset_root(r->ds), word, sizeof word));
    return rc;
}

int mr_dataset_read(struct mr_dataset_reader *r, uint64_t id, unsigned flags, void *dst, size_t cap,
                    struct mr_sample *out, struct mr_error *err)
{
    r->part.full_height = 0;
    r->fetch.pos.file = NO_FILE;
    r->times.start_ns = r->times.fetched_ns = r->times.decoded_ns = 0;
    int rc = mr_fetch_plan(&r->planner, id, flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0, &r->fetch, err);
    if (MR_UNLIKELY(r->fetch.pos.file == NO_FILE))
        return rc;
    if (rc >= 0 && r->fetch.n_slices && !(flags & MR_DATASET_RAW))
        rc = mr_reader_read_first(r, flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0, dst, cap, out, err);
    else if (rc >= 0)
        rc = is_known(r, flags, dst, cap) ? read_known(r, dst, cap, out, err) : read_any(r, flags, dst, cap, out, err);
    if (MR_UNLIKELY(rc < 0))
        rc = mr_reader_explain(r, id, rc, err);
    return rc < 0 ? rc : 0;
}
