/* Which files and records a rank reads, in which order: item numbers to places. Pure but for the order's epoch. */
#include "bench/pattern_internal.h"

#include <errno.h>
#include <math.h>

#define UNIT_RANGES 4u

void mr_pattern_order(const struct mr_workload *w, struct mr_order_params *out)
{
    const struct mr_conf_reader *r = &w->reader;
    bool shuffled = r->sample_shuffle != MR_SHUFFLE_OFF || r->file_shuffle != MR_SHUFFLE_OFF;
    bool access_set = w->origins[0] && mr_workload_is_set(w, "reader", "file_access");
    bool sliced = access_set && (r->file_access == MR_FA_SHARED || r->file_access == MR_FA_MULTI);
    out->window = (uint64_t)MR_MAX(r->shuffle_size, 1);
    if (w->pattern.unit == MR_CONF_UNIT_FILE) {
        out->mode = r->order == MR_CO_SHARD ? MR_ORDER_SHARD : shuffled ? MR_ORDER_AUTO : MR_ORDER_SEQUENTIAL;
        return;
    }
    mr_order_mode_parse(mr_workload_order_name(w), &out->mode, &out->window, NULL);
    out->window = MR_MAX(out->window, 1u);
    if (!sliced || r->order != MR_CO_AUTO)
        return;
    /* A part of its own for every rank: shuffled inside it, or in sequence (a shuffle buffer of one). */
    if (r->file_access == MR_FA_MULTI && out->mode == MR_ORDER_FILE)
        return;
    out->mode = shuffled ? MR_ORDER_SHARD : MR_ORDER_BUFFER;
    out->window = 1;
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Everything that follows from order length, batch and epochs. */
static void set_counts(struct mr_pattern *s, uint64_t order_len)
{
    const struct mr_workload *w = s->p.workload;
    uint64_t epochs = s->memory ? 1 : (uint64_t)w->train.epochs, per_epoch = order_len * s->items_per_run;
    s->order_len = per_epoch;
    if (s->p.file_passes) { /* one long pass */
        per_epoch = (s->p.file_passes + s->p.rank) / s->p.world;
        epochs = 1;
    }
    uint64_t rows = per_epoch * s->rows_per_item;
    s->batches = s->p.drop_last ? rows / s->batch_size : ceil_div(rows, s->batch_size);
    s->rows = s->p.drop_last ? s->batches * s->batch_size : rows;
    s->per_epoch = s->p.whole_epochs || s->p.file_passes || s->memory ? per_epoch : ceil_div(s->rows, s->rows_per_item);
    s->n_items = s->per_epoch * epochs;
    if (s->p.max_steps && !s->p.whole_epochs && !s->p.file_passes && !s->memory)
        s->n_items = MR_MIN(s->n_items, mr_pattern_need(s, s->p.max_steps - 1));
}

int mr_pattern_items_open(struct mr_pattern *s, struct mr_error *err)
{
    const struct mr_workload *w = s->p.workload;
    bool same = w->pattern.same_offsets;
    /* Where nothing is left out, the last run of samples goes on at the start of the set. */
    uint64_t units = s->files         ? s->info.files
                     : s->p.drop_last ? s->info.samples / s->run
                                      : ceil_div(s->info.samples, s->run);
    struct mr_order_params o = {.samples = units,
                                .rank = same ? 0 : s->p.rank,
                                .world = same ? 1 : s->p.world,
                                .seed = s->p.seed,
                                .shuffle_each_epoch = w->train.seed_change_epoch,
                                .drop_last = s->p.drop_last,
                                .samples_per_file = MR_MAX(s->info.samples_per_file / s->run, 1u)};
    if (units == 0)
        return mr_error_plain(err, MR_E_CONFIG, "the data set has fewer samples than pattern.sequential_samples");
    mr_pattern_order(w, &o);
    int rc = mr_order_create(&o, &s->order, err);
    if (rc)
        return rc;
    set_counts(s, mr_order_rank_len(s->order));
    if (!s->memory || o.mode == MR_ORDER_SEQUENTIAL || !s->rows)
        return 0;
    struct mr_order_params again = {.samples = s->per_epoch * s->rows_per_item,
                                    .world = 1,
                                    .seed = s->p.seed,
                                    .shuffle_each_epoch = w->train.seed_change_epoch};
    return mr_order_create(&again, &s->again, err);
}

uint64_t mr_pattern_need(const struct mr_pattern *s, uint64_t step)
{
    if (s->memory)
        return s->per_epoch;
    uint64_t epoch = step / MR_MAX(s->batches, 1u), in_epoch = step % MR_MAX(s->batches, 1u) + 1;
    uint64_t rows = MR_MIN(in_epoch * s->batch_size, s->rows);
    uint64_t items = in_epoch == s->batches && !s->p.file_passes ? s->per_epoch : ceil_div(rows, s->rows_per_item);
    return epoch * s->per_epoch + items;
}

uint64_t mr_pattern_used_up(const struct mr_pattern *s, uint64_t step)
{
    if (s->memory)
        return 0;
    uint64_t epoch = step / MR_MAX(s->batches, 1u), in_epoch = step % MR_MAX(s->batches, 1u) + 1;
    if (in_epoch == s->batches)
        return (epoch + 1) * s->per_epoch;
    return epoch * s->per_epoch + in_epoch * s->batch_size / s->rows_per_item;
}

/* ---- where an item lies ---- */

/* Where a field of a sample lies; 0 bytes where the manifest keeps its values. */
static int locate_field(const struct mr_pattern *s, uint64_t id, unsigned k, struct mr_pattern_range *out,
                        struct mr_error *err)
{
    const struct mr_manifest *m = mr_dataset_manifest(s->p.dataset);
    struct mr_manifest_pos pos;
    struct mr_field_place place;
    int rc = mr_manifest_locate(m, id, &pos, err);
    if (!rc)
        rc = mr_manifest_locate_field(m, s->field[k], id, &pos, &place, err);
    if (rc)
        return rc;
    bool read = mr_manifest_schema(m)->field[s->field[k]].field.storage != MR_FIELD_LABEL;
    *out = (struct mr_pattern_range){
        .file = pos.file, .offset = place.ref.raw.offset, .bytes = read ? place.ref.raw.length : 0};
    if (k == 0 && !s->files)
        out->bytes = (uint64_t)llround((double)out->bytes * s->p.workload->pattern.part);
    return 0;
}

/* The unit of the sample: what it shares with others is read once. */
static int locate_unit(const struct mr_pattern *s, uint64_t id, unsigned k, struct mr_pattern_range *out, unsigned *n,
                       struct mr_error *err)
{
    const struct mr_manifest *m = mr_dataset_manifest(s->p.dataset);
    struct mr_manifest_pos pos;
    struct mr_field_place place;
    struct mr_layout layout;
    struct mr_extent e[UNIT_RANGES];
    int rc = mr_manifest_locate(m, id, &pos, err);
    if (!rc)
        rc = mr_manifest_locate_field(m, s->field[k], id, &pos, &place, err);
    if (rc)
        return rc;
    mr_manifest_layout(m, place.layout_id, &layout);
    rc = mr_dataset_format(s->p.dataset)->plan(&layout, &place.ref, 0, e, UNIT_RANGES, n, err);
    for (unsigned i = 0; !rc && i < *n; i++)
        out[i] = (struct mr_pattern_range){.file = pos.file, .offset = e[i].offset, .bytes = e[i].length};
    return rc;
}

static bool same_range(const struct mr_pattern_range *a, const struct mr_pattern_range *b)
{
    return a->file == b->file && a->offset == b->offset && a->bytes == b->bytes;
}

/* The first sample of the run behind `i` that does not share the unit at `here`: samples of a unit follow each other. */
static int find_unit_end(const struct mr_pattern *s, const struct pattern_slot *slot, unsigned k, uint64_t i,
                         const struct mr_pattern_range *here, uint64_t *end, struct mr_error *err)
{
    struct mr_pattern_range r[UNIT_RANGES] = {0};
    uint64_t in = i, out = s->rows_per_item;
    int rc = 0;
    for (uint64_t at = out - 1; in + 1 < out && !rc; at = in + (out - in) / 2) { /* the last one first */
        unsigned n = 0;
        rc = locate_unit(s, (slot->first_id + at) % s->info.samples, k, r, &n, err);
        if (n && same_range(&r[0], here))
            in = at;
        else
            out = at;
    }
    *end = out;
    return rc;
}

static int each_unit_of_field(const struct mr_pattern *s, const struct pattern_slot *slot, unsigned k,
                              mr_pattern_range_fn *fn, void *user, struct mr_error *err)
{
    struct mr_pattern_range r[UNIT_RANGES];
    int rc = 0;
    for (uint64_t i = 0; i < s->rows_per_item && !rc;) {
        unsigned n = 0;
        rc = locate_unit(s, (slot->first_id + i) % s->info.samples, k, r, &n, err);
        for (unsigned e = 0; e < n && !rc; e++)
            rc = fn(user, &r[e], err);
        if (!rc && !n) /* a label, which the manifest keeps */
            return 0;
        if (!rc)
            rc = find_unit_end(s, slot, k, i, &r[0], &i, err);
    }
    return rc;
}

/* Values that lie one behind the other are one range. */
static int each_range_of_field(const struct mr_pattern *s, const struct pattern_slot *slot, unsigned k,
                               mr_pattern_range_fn *fn, void *user, struct mr_error *err)
{
    struct mr_pattern_range all = {0}, one;
    int rc = 0;
    for (uint64_t i = 0; i < s->rows_per_item && !rc; i++) {
        rc = locate_field(s, (slot->first_id + i) % s->info.samples, k, &one, err);
        if (!rc && all.bytes && one.file == all.file && one.offset == all.offset + all.bytes) {
            all.bytes += one.bytes;
        } else if (!rc) {
            rc = all.bytes ? fn(user, &all, err) : 0;
            all = one;
        }
    }
    return rc || !all.bytes ? rc : fn(user, &all, err);
}

int mr_pattern_each_range(const struct mr_pattern *s, const struct pattern_slot *slot, mr_pattern_range_fn *fn,
                          void *user, struct mr_error *err)
{
    int rc = 0;
    if (s->files) {
        const double bytes = (double)mr_manifest_file_bytes(mr_dataset_manifest(s->p.dataset), slot->file);
        const struct mr_pattern_range whole = {.file = slot->file,
                                               .bytes = (uint64_t)llround(bytes * s->p.workload->pattern.part)};
        return fn(user, &whole, err);
    }
    for (unsigned k = 0; k < s->n_fields && !rc; k++)
        rc = (s->units ? each_unit_of_field : each_range_of_field)(s, slot, k, fn, user, err);
    return rc;
}

static int add_bytes(void *user, const struct mr_pattern_range *r, struct mr_error *err)
{
    struct pattern_slot *slot = user;
    (void)err;
    slot->bytes += r->bytes;
    return 0;
}

int mr_pattern_find_row(const struct mr_pattern *s, const struct pattern_slot *slot, uint64_t i, uint64_t *from,
                        uint64_t *bytes, uint64_t *all, struct mr_error *err)
{
    const uint64_t id = (slot->first_id + i) % s->info.samples;
    struct mr_pattern_range r = {0};
    uint64_t before = 0;
    int rc = 0;
    if (!s->files && s->n_fields == 1 && s->rows_per_item == 1) { /* the item */
        *from = 0;
        *bytes = *all = slot->bytes;
        return 0;
    }
    if (s->units) { /* not decoded: an equal part of what was read for the run */
        *from = slot->bytes / s->rows_per_item * i;
        *bytes = *all = slot->bytes / s->rows_per_item;
        return 0;
    }
    for (uint64_t j = 0; !s->files && j < i && !rc; j++) {
        rc = locate_field(s, (slot->first_id + j) % s->info.samples, 0, &r, err);
        before += r.bytes;
    }
    *all = 0;
    for (unsigned k = s->n_fields; k-- > 0 && !rc;) { /* the first one last */
        rc = locate_field(s, id, k, &r, err);
        *all += r.bytes;
    }
    *from = MR_MIN(s->files ? r.offset : before, slot->bytes);
    *bytes = MR_MIN(r.bytes, slot->bytes - *from);
    *all = s->n_fields == 1 ? *bytes : *all;
    return rc;
}

/* Places are found in ascending item order: the order has one epoch at a time. */
int mr_pattern_locate(struct mr_pattern *s, uint64_t item, struct pattern_slot *out, struct mr_error *err)
{
    uint64_t in_order = s->p.file_passes ? item : item % s->per_epoch;
    uint64_t epoch = s->p.file_passes ? in_order / s->order_len : item / s->per_epoch, k = in_order % s->order_len,
             unit;
    int rc = epoch == mr_order_epoch(s->order) ? 0 : mr_order_set_epoch(s->order, epoch, err);
    if (rc)
        return rc;
    if (mr_order_get(s->order, k / s->items_per_run, &unit, 1) != 1)
        return mr_error_plain(err, MR_E_INTERNAL, "the access order ended at item %llu", (unsigned long long)item);
    out->epoch = s->p.file_passes ? 0 : item / s->per_epoch;
    out->bytes = 0;
    if (s->files) {
        uint64_t n;
        out->file = unit;
        mr_manifest_file_samples(mr_dataset_manifest(s->p.dataset), unit, &out->first_id, &n);
    } else {
        out->first_id = (unit * s->run + k % s->items_per_run) % s->info.samples;
    }
    return mr_pattern_each_range(s, out, add_bytes, out, err);
}
