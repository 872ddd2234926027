/* Reading one item: the calls a pattern makes for a file or a record. */
#include "bench/pattern_internal.h"
#include "base/clock.h"
#include "base/content.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLANNED_MAX 16u   /* ranges of a sample that are compared */
#define ALIGN_BYTES 4096u /* so that direct reads need no second buffer */

bool mr_pattern_over(const struct mr_pattern *s)
{
    return atomic_load(&s->stopped) || (s->p.over && s->p.over(s->p.user));
}

static int grow(struct mr_pattern *s, struct pattern_slot *slot, size_t bytes, struct mr_error *err)
{
    if (slot->cap >= bytes)
        return 0;
    size_t cap = MR_ALIGN_UP(bytes, (size_t)ALIGN_BYTES);
    uint8_t *b = aligned_alloc(ALIGN_BYTES, cap);
    if (!b)
        return mr_error_set(err, -ENOMEM, "no memory for a read of %zu bytes", bytes);
    atomic_fetch_add(&s->held_bytes, cap - slot->cap);
    free(slot->buf);
    slot->buf = b;
    slot->cap = cap;
    return 0;
}

struct fetching {
    struct mr_pattern_source *source;
    uint8_t *to;
    bool kept;
};

static int fetch_range(void *user, const struct mr_pattern_range *r, struct mr_error *err)
{
    struct fetching *f = user;
    struct mr_pattern_range range = *r;
    range.overwrite = !f->kept;
    int rc = f->source->read(f->source, &range, f->to, err);
    f->to += f->kept ? r->bytes : 0;
    return rc;
}

/* Kept items lie in one piece; of others each read overwrites the last. */
static int fetch_item(struct pattern_hand *h, struct pattern_slot *slot, struct mr_error *err)
{
    struct mr_pattern *s = h->s;
    const struct mr_pattern_cut cut = mr_pattern_cut(s->p.workload);
    struct fetching f = {.source = s->p.source ? s->p.source : h->source, .kept = s->p.keep && !s->drain};
    struct pattern_slot *to = f.kept ? slot : &h->scratch;
    uint64_t room = f.kept ? slot->bytes : mr_pattern_cut_largest(&cut, slot->bytes);
    int rc = grow(s, to, MR_MAX(room, 1u), err);
    if (rc)
        return rc;
    uint64_t start = mr_now_ns(), before = f.source->read_bytes;
    f.to = to->buf;
    rc = mr_pattern_each_range(s, slot, fetch_range, &f, err);
    atomic_fetch_add_explicit(&s->read_ns, mr_now_ns() - start, memory_order_relaxed);
    if (!rc)
        atomic_fetch_add_explicit(&s->read_bytes, f.source->read_bytes - before, memory_order_relaxed);
    return rc;
}

/* ---- checking ---- */

/* Where in the slot the bytes of a file lie; NULL: they were not read. */
struct finding {
    uint64_t file;
    struct mr_extent extent;
    const uint8_t *at, *found;
};

static int find_range(void *user, const struct mr_pattern_range *r, struct mr_error *err)
{
    struct finding *f = user;
    const struct mr_extent *e = &f->extent;
    (void)err;
    if (r->file == f->file && e->offset >= r->offset && e->offset + e->length <= r->offset + r->bytes)
        f->found = f->at + (e->offset - r->offset);
    f->at += r->bytes;
    return f->found != NULL;
}

/* The planned ranges out of the item's bytes, one behind the other; NULL when they were not all read. */
static const void *gather(struct pattern_hand *h, const struct pattern_slot *slot, uint64_t file,
                          const struct mr_extent *e, unsigned n, size_t *len)
{
    const uint8_t *part[PLANNED_MAX];
    *len = 0;
    for (unsigned i = 0; i < n; i++) {
        struct finding f = {.file = file, .extent = e[i], .at = slot->buf};
        if (mr_pattern_each_range(h->s, slot, find_range, &f, NULL) < 0 || !f.found)
            return NULL;
        part[i] = f.found;
        *len += e[i].length;
    }
    if (n == 1)
        return part[0];
    uint8_t *out = mr_decoder_scratch(h->decoder, 3, *len), *to = out;
    for (unsigned i = 0; out && i < n; i++) {
        memcpy(to, part[i], e[i].length);
        to += e[i].length;
    }
    return out;
}

static int verify_field(struct pattern_hand *h, const struct pattern_slot *slot, uint64_t id, unsigned field,
                        struct mr_error *err)
{
    const struct mr_manifest *m = mr_dataset_manifest(h->s->p.dataset);
    const struct mr_format_ops *f = mr_dataset_format(h->s->p.dataset);
    struct mr_manifest_pos pos;
    struct mr_field_place place;
    struct mr_layout layout;
    struct mr_extent e[PLANNED_MAX];
    struct mr_sample_out out = {0};
    unsigned n;
    size_t len;
    int rc = mr_manifest_locate(m, id, &pos, err);
    if (!rc)
        rc = mr_manifest_locate_field(m, field, id, &pos, &place, err);
    if (rc)
        return rc;
    mr_manifest_layout(m, place.layout_id, &layout);
    rc = f->plan(&layout, &place.ref, 0, e, MR_ARRAY_LEN(e), &n, err);
    const void *raw = rc ? NULL : gather(h, slot, pos.file, e, n, &len);
    if (rc || !raw)
        return rc; /* not all of it was read: nothing to compare */
    rc = f->decode(h->decoder, &layout, &place.ref, 0, raw, len, &out, err);
    if (rc)
        return rc;
    /* By the format's own rule: text cannot hold every float that the content would be. */
    const struct mr_content c = mr_dataset_field_content(h->s->p.dataset, field);
    const struct mr_writer_spec spec = {.dtype = out.dtype, .dims = out.dims};
    const struct mr_sample_info info = {
        .id = id, .dtype = out.dtype, .dims = out.dims, .bytes = out.bytes, .label = out.label};
    rc = f->check(&spec, &c, &info, &out, err);
    if (rc)
        mr_error_hint(err, "repair it with 'millrace gen --repair'");
    return rc;
}

static int verify_sample(struct pattern_hand *h, const struct pattern_slot *slot, uint64_t id, struct mr_error *err)
{
    const struct mr_schema *schema = mr_manifest_schema(mr_dataset_manifest(h->s->p.dataset));
    int rc = 0;
    for (unsigned k = 0; k < h->s->n_fields && !rc; k++) {
        const struct mr_field *f = &schema->field[h->s->field[k]].field;
        rc = f->storage == MR_FIELD_LABEL ? 0 : verify_field(h, slot, id, h->s->field[k], err);
        if (rc && h->s->n_fields > 1)
            mr_error_context(err, "in field '%s'", f->name);
    }
    return rc;
}

static int verify_item(struct pattern_hand *h, const struct pattern_slot *slot, struct mr_error *err)
{
    const struct mr_format_ops *f = mr_dataset_format(h->s->p.dataset);
    int rc = 0;
    if (!h->decoder && !(h->decoder = mr_decoder_create()))
        return mr_error_set(err, -ENOMEM, "cannot check samples");
    for (uint64_t i = 0; !rc && i < h->s->rows_per_item && !(f->caps & MR_FMT_LOSSY); i++)
        rc = verify_sample(h, slot, (slot->first_id + i) % h->s->info.samples, err);
    return rc;
}

/* ---- an item ---- */

int mr_pattern_read_item(struct pattern_hand *h, struct pattern_slot *slot, struct mr_error *err)
{
    struct mr_pattern *s = h->s;
    int rc = h->source || s->p.source ? 0 : mr_pattern_open_source(s, &h->source, err);
    if (!rc)
        rc = fetch_item(h, slot, err);
    if (!rc && s->p.verify && s->p.keep && !s->drain && !mr_pattern_over(s))
        rc = verify_item(h, slot, err);
    uint64_t start = mr_now_ns();
    if (!rc && s->p.prepare)
        s->p.prepare(s->p.user, slot->epoch, slot->first_id, s->rows_per_item);
    atomic_fetch_add_explicit(&s->prepare_ns, mr_now_ns() - start, memory_order_relaxed);
    return rc;
}

void mr_pattern_drop_hand(struct pattern_hand *h)
{
    if (h->source)
        h->source->free(h->source);
    mr_decoder_free(h->decoder);
    free(h->scratch.buf);
    *h = (struct pattern_hand){.s = h->s};
}

/* ---- the rest of a pattern ---- */

/* Consecutive as often as the source saw it, else back to a place before. */
int mr_pattern_read_header(const struct mr_conf_pattern *p, struct mr_store *store, const char *path,
                           uint64_t file_bytes, struct mr_error *err)
{
    uint64_t at = 0, n = MR_MIN(p->header_bytes, file_bytes), jump = 0;
    double consecutive = 0;
    struct mr_object *o = NULL;
    uint8_t *buf = malloc(n + 1);
    int rc = buf ? mr_object_open(store, path, MR_OBJ_READ, &o, err)
                 : mr_error_set(err, -ENOMEM, "no memory for a read of %llu bytes", (unsigned long long)n);
    for (int64_t i = 0; i < p->header_reads && !rc; i++) {
        consecutive += i ? p->header_consecutive : 0;
        if (i && consecutive >= 1 - 1e-9 && at + n <= file_bytes) {
            consecutive -= 1;
        } else if (i) {
            jump = (jump * 7 + 64) % (file_bytes - n + 1);
            at = jump == at ? jump / 2 : jump;
        }
        rc = mr_object_read(o, buf, n, at, err);
        at += n;
    }
    mr_object_close(o, NULL);
    free(buf);
    return rc;
}

static int write_one(struct mr_store *store, const char *path, const void *content, uint64_t bytes, bool fsync,
                     struct mr_error *err)
{
    struct mr_object *o = NULL;
    int rc = mr_object_open(store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (rc)
        return rc;
    rc = mr_object_write(o, content, bytes, 0, err);
    if (!rc && fsync)
        rc = o->store->ops->fsync(o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

int mr_pattern_write_files(struct mr_store *store, const char *folder, const char *stem, uint32_t rank,
                           const uint64_t *bytes, unsigned n, bool fsync, struct mr_error *err)
{
    uint64_t most = 0;
    char path[4500];
    for (unsigned i = 0; i < n; i++)
        most = MR_MAX(most, bytes[i]);
    uint8_t *content = malloc(most + 1);
    int rc = content ? 0 : mr_error_set(err, -ENOMEM, "cannot write %llu bytes at once", (unsigned long long)most);
    if (content)
        memset(content, 0x5a, most);
    for (unsigned i = 0; i < n && !rc; i++) {
        snprintf(path, sizeof path, "%s/%s-%u-%u", folder, stem, rank, i);
        rc = write_one(store, path, content, bytes[i], fsync, err);
    }
    free(content);
    return rc;
}
