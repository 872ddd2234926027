/* Which files and records a rank reads, in which order: item numbers to places. Pure but for the order's epoch. */
#include "bench/pattern_internal.h"

#include <errno.h>
#include <math.h>

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
    uint64_t epochs = s->memory ? 1 : (uint64_t)w->train.epochs, per_epoch = order_len * s->run;
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

/* Places are found in ascending item order: the order has one epoch at a time. */
int mr_pattern_locate(struct mr_pattern *s, uint64_t item, struct pattern_slot *out, struct mr_error *err)
{
    uint64_t in_order = s->p.file_passes ? item : item % s->per_epoch;
    uint64_t epoch = s->p.file_passes ? in_order / s->order_len : item / s->per_epoch, k = in_order % s->order_len,
             unit;
    const struct mr_manifest *m = mr_dataset_manifest(s->p.dataset);
    int rc = epoch == mr_order_epoch(s->order) ? 0 : mr_order_set_epoch(s->order, epoch, err);
    if (rc)
        return rc;
    if (mr_order_get(s->order, k / s->run, &unit, 1) != 1)
        return mr_error_plain(err, MR_E_INTERNAL, "the access order ended at item %llu", (unsigned long long)item);
    out->epoch = s->p.file_passes ? 0 : item / s->per_epoch;
    if (s->files) {
        uint64_t n;
        out->file = unit;
        out->offset = 0;
        out->bytes = mr_manifest_file_bytes(m, unit);
        mr_manifest_file_samples(m, unit, &out->first_id, &n);
    } else {
        struct mr_manifest_pos pos;
        out->first_id = (unit * s->run + k % s->run) % s->info.samples;
        if ((rc = mr_manifest_locate(m, out->first_id, &pos, err)))
            return rc;
        out->file = pos.file;
        out->offset = pos.ref.raw.offset;
        out->bytes = pos.ref.raw.length;
    }
    out->bytes = (uint64_t)llround((double)out->bytes * s->p.workload->pattern.part);
    return 0;
}
