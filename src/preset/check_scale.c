/* Making a preset small: less data, fewer steps, the same pattern. The factor applies to the bytes of the data set:
 *
 *   1. fewer files, but not fewer than the ranks and two batches need; as many for every rank if that was so before;
 *   2. then fewer samples per file, unless num_samples_per_file is kept;
 *   3. then smaller records, unless record_length_bytes is kept.
 *
 * The batch shrinks with the file (so that a file still makes as many steps) or with the record count, unless
 * batch_size is kept; compute time shrinks with the bytes of a step, so the demand in bytes per second stays. At most
 * RANKS_MAX ranks. */
#include "base/common.h"
#include "preset/check.h"

#include <math.h>
#include <string.h>

#define RANKS_MAX 8      /* MR_CHECK_RANKS_MAX */
#define MEMORY_RUN_S 6.0 /* a run from memory repeats itself; this long is enough */
#define LOADER_EPOCHS 2
#define LOADER_RUN_S 2.0

static bool kept(const struct mr_workload *w, const char *key)
{
    for (unsigned i = 0; i < w->extra.scale_keep.n; i++) {
        const char *k = w->extra.scale_keep.item[i];
        if (!strcmp(k, key) || (!strcmp(k, "record_length") && !strcmp(key, "record_length_bytes")) ||
            (!strcmp(k, "samples_per_file") && !strcmp(key, "num_samples_per_file")))
            return true;
    }
    return false;
}

static int64_t at_least(double v, double least)
{
    return (int64_t)llround(MR_MAX(v, least));
}

/* Files, samples per file, record: steps 1 to 3. */
static void scale_data(const struct mr_workload *w, double factor, struct mr_check_shape *s)
{
    struct mr_conf_dataset *d = &s->w.dataset;
    const struct mr_conf_dataset *o = &w->dataset;
    double files = (double)o->num_files_train, spf = (double)o->num_samples_per_file;
    bool keep_spf = kept(w, "num_samples_per_file") || spf <= 1, loader = w->pattern.unit == MR_CONF_UNIT_SAMPLE;
    double least = keep_spf ? (loader ? ceil(2.0 * (double)w->reader.batch_size / spf) : 2) : 2.0 * s->ranks;
    d->num_files_train = at_least(files * factor, MR_MIN(files, least));
    bool even = w->pattern.unit == MR_CONF_UNIT_FILE && o->num_files_train % (int64_t)s->full.ranks == 0;
    if (even && d->num_files_train % (int64_t)s->ranks && d->num_files_train > (int64_t)s->ranks)
        d->num_files_train -= d->num_files_train % (int64_t)s->ranks;
    double left = factor * files / (double)d->num_files_train;
    if (!keep_spf && left < 1) {
        double enough = loader ? ceil(2.0 * (double)w->reader.batch_size / (double)d->num_files_train) : 2;
        d->num_samples_per_file = at_least(spf * left, MR_MIN(spf, enough));
        left *= spf / (double)d->num_samples_per_file;
    }
    s->record_ratio = 1;
    if (!kept(w, "record_length_bytes") && !o->record_dims.n && !o->fields.n && left < 0.99 &&
        o->record_length_bytes * left >= 1) {
        s->record_ratio = left;
        d->record_length_bytes *= left;
        d->record_length_bytes_stdev *= left;
    }
    d->num_files_eval = 0;
    s->data_bytes = (double)d->num_files_train * (double)d->num_samples_per_file * mr_workload_record_bytes(&s->w);
}

/* What the loader reads is proven over whole epochs; compute is cut to a few seconds in all. */
static void shorten_loader_run(const struct mr_workload *w, struct mr_check_shape *s)
{
    const struct mr_conf_dataset *d = &s->w.dataset;
    s->w.train.epochs = MR_MIN(w->train.epochs, LOADER_EPOCHS);
    s->w.train.total_training_steps = -1;
    s->w.workflow.checkpoint = false;
    s->w.workflow.train = true;
    s->steps = 0;
    double samples = (double)d->num_files_train * (double)d->num_samples_per_file * (double)s->w.train.epochs;
    double total = s->step_s * samples / (double)s->w.reader.batch_size / s->ranks;
    s->compute_cut = total > LOADER_RUN_S;
    if (s->compute_cut)
        s->step_s *= LOADER_RUN_S / total;
}

static void scale_steps(const struct mr_workload *w, struct mr_check_shape *s)
{
    const struct mr_conf_dataset *o = &w->dataset, *d = &s->w.dataset;
    struct mr_conf_reader *r = &s->w.reader;
    double data =
        s->data_bytes / ((double)o->num_files_train * (double)o->num_samples_per_file * mr_workload_record_bytes(w));
    double spf_ratio = (double)d->num_samples_per_file / (double)o->num_samples_per_file;
    double steps = (double)s->full.total_steps * data, batch = (double)w->reader.batch_size;
    bool keep = kept(w, "batch_size");
    if (w->pattern.unit == MR_CONF_UNIT_FILE && !keep) {
        r->batch_size = at_least(batch * spf_ratio, 1);
        steps = steps * batch / (double)r->batch_size;
    } else if (w->pattern.unit == MR_CONF_UNIT_RECORD && !keep) {
        double want = MR_MIN((double)s->full.total_steps, MR_MAX(steps, 10));
        r->batch_size = at_least(batch * steps / want, 1);
        steps = steps * batch / (double)r->batch_size;
    }
    if (w->train.total_training_steps > 0)
        s->steps = (uint64_t)at_least(steps, 1);
    s->step_s = s->full.compute_s * (double)r->batch_size / batch * s->record_ratio;
    if (w->pattern.unit == MR_CONF_UNIT_SAMPLE)
        shorten_loader_run(w, s);
    double per_epoch = s->step_s * (double)d->num_files_train * (double)d->num_samples_per_file /
                       (double)r->batch_size / (w->pattern.same_offsets ? 1 : s->ranks);
    /* With more data to read the run is longer, or reading would be more of it than it should. */
    double enough = MEMORY_RUN_S * MR_MAX(1, s->factor / w->extra.scale);
    if (w->reader.read_type == MR_CONF_READ_MEMORY && per_epoch * (double)w->train.epochs > enough)
        s->w.train.epochs = at_least(enough / per_epoch, 1);
}

/* What reads and files at this scale are of those at full scale. */
static void set_ratios(const struct mr_workload *w, struct mr_check_shape *s)
{
    const struct mr_conf_dataset *o = &w->dataset, *d = &s->w.dataset;
    double files = (double)o->num_files_train, small = (double)d->num_files_train, same = 1;
    double sample = (double)d->num_samples_per_file * mr_workload_record_bytes(&s->w) /
                    ((double)o->num_samples_per_file * mr_workload_record_bytes(w));
    s->files_ratio = small / files;
    if (w->pattern.file_passes) {
        s->file_passes = (uint64_t)at_least((double)w->pattern.file_passes * small / files, 1);
        s->files_ratio = (double)s->file_passes / (double)w->pattern.file_passes;
    } else if (w->reader.read_type != MR_CONF_READ_MEMORY) {
        s->files_ratio *= (double)s->w.train.epochs / (double)w->train.epochs;
    }
    if (w->pattern.same_offsets)
        same = s->ranks_ratio;
    s->bytes_ratio = s->files_ratio * sample * same;
    if (w->pattern.unit == MR_CONF_UNIT_RECORD && s->steps && w->reader.read_type != MR_CONF_READ_MEMORY)
        s->bytes_ratio = (double)s->steps * (double)s->w.reader.batch_size * s->ranks /
                         ((double)s->full.total_steps * (double)w->reader.batch_size * s->full.ranks) * s->record_ratio;
}

static void scale_checkpoint(const struct mr_workload *w, struct mr_check_shape *s)
{
    s->write_ratio = 1;
    s->writes_checkpoints = w->workflow.checkpoint && w->workflow.train &&
                            w->checkpoint.steps_between_checkpoints > 0 && w->checkpoint.files.n > 0;
    if (!s->writes_checkpoints)
        return;
    s->write_ratio = kept(w, "checkpoint_files") ? 1 : s->factor;
    s->checkpoint_files = MR_MIN(w->checkpoint.files.n, (unsigned)MR_ARRAY_LEN(s->checkpoint_bytes));
    for (unsigned i = 0; i < s->checkpoint_files; i++)
        s->checkpoint_bytes[i] = (uint64_t)at_least((double)w->checkpoint.files.item[i] * s->write_ratio, 1);
}

int mr_check_scale(const struct mr_workload *w, double factor, struct mr_check_shape *out, struct mr_error *err)
{
    struct mr_check_shape s = {.w = *w, .factor = factor > 0 ? factor : w->extra.scale};
    int rc = mr_plan_make(w, 0, &s.full, err);
    if (rc)
        return rc;
    s.reads = w->pattern.unit != MR_CONF_UNIT_NONE && w->dataset.format != MR_CF_SYNTHETIC &&
              (w->workflow.train || w->workflow.generate_data);
    bool header_only = !s.reads && w->pattern.header_file > 0;
    s.ranks = MR_MIN(s.full.ranks, (uint32_t)RANKS_MAX);
    s.bytes_ratio = s.files_ratio = s.record_ratio = 1;
    s.step_s = s.full.compute_s * (w->pattern.unit == MR_CONF_UNIT_NONE ? s.factor : 1);
    if (s.reads) {
        scale_data(w, s.factor, &s);
        uint64_t files = (uint64_t)s.w.dataset.num_files_train;
        if (files < s.ranks && w->dataset.num_files_train > 1 && !w->pattern.same_offsets)
            s.ranks = (uint32_t)MR_MAX(files / 2, 1u);
        if (w->pattern.unit == MR_CONF_UNIT_SAMPLE)
            s.ranks = s.full.ranks > 1 ? 2 : 1;
    }
    s.ranks_ratio = (double)s.ranks / s.full.ranks;
    if (s.reads) {
        scale_steps(w, &s);
        set_ratios(w, &s);
    } else if (w->train.total_training_steps > 0) {
        s.steps = (uint64_t)w->train.total_training_steps;
    }
    scale_checkpoint(w, &s);
    if (header_only) {
        s.reads = true;
        s.data_bytes = (double)w->pattern.header_file;
    }
    /* A model split over more ranks than are run here keeps its plan: nothing of it is executed. */
    s.plan = s.full;
    rc = s.reads && !header_only ? mr_plan_make(&s.w, s.ranks, &s.plan, err) : 0;
    if (!rc)
        *out = s;
    return rc;
}
