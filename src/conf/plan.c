/* Arithmetic over a resolved workload; see plan.h for the definitions. */
#include "conf/plan.h"

#include "base/common.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define SANE 1e18 /* figures beyond this are mistakes in the file */

static bool is_transformer(const struct mr_workload *w)
{
    return !strcasecmp(w->model.type, "transformer");
}

/* Embedding and output head, layers (two norms, Q and the narrower K and V, the dense projection, the gated
 * feed-forward of three matrices), final norm. Double for the bounds check first, then exact. */
static int count_parameters(const struct mr_workload *w, uint64_t *out, struct mr_error *err)
{
    const struct mr_conf_transformer *t = &w->transformer;
    uint64_t h = (uint64_t)t->hidden_size, ffn = (uint64_t)t->ffn_hidden_size, vocab = (uint64_t)t->vocab_size;
    uint64_t layers = (uint64_t)MR_MAX(w->model.num_layers, 0);
    uint64_t kv = h / (uint64_t)t->num_attention_heads * (uint64_t)t->num_kv_heads;
    double layer_d = 2.0 * (double)h + (double)h * ((double)h + 2.0 * (double)kv) + (double)h * (double)h +
                     3.0 * (double)ffn * (double)h;
    if (2.0 * (double)vocab * (double)h + (double)layers * layer_d > SANE)
        return mr_error_plain(err, MR_E_CONFIG, "the model has more than 1e18 parameters");
    uint64_t layer = 2 * h + h * (h + 2 * kv) + h * h + 3 * ffn * h;
    *out = 2 * vocab * h + layers * layer + h;
    return 0;
}

static double sum(const struct mr_uints *list)
{
    double s = 0;
    for (unsigned i = 0; i < list->n; i++)
        s += (double)list->item[i];
    return s;
}

static void checkpoint_files(const struct mr_workload *w, uint64_t ranks, bool subset, struct mr_plan_checkpoint *c)
{
    uint64_t tp = (uint64_t)w->parallelism.tensor, pp = (uint64_t)w->parallelism.pipeline;
    uint64_t layers = (uint64_t)MR_MAX(w->model.num_layers, 0) + 3; /* embedding, output head, final norm */
    uint64_t group = subset ? MR_MIN(tp * pp, ranks) : tp * pp;
    switch (w->parallelism.zero_stage) {
    case 0: c->model_files = c->optimizer_files = group; break;
    case 1:
    case 2:
        if (pp == 1)
            c->model_files = group;
        else
            c->model_files = subset ? (uint64_t)ceil((double)layers * (double)group / (double)pp) : layers * tp;
        c->optimizer_files = ranks;
        break;
    default: c->model_files = c->optimizer_files = ranks; break;
    }
}

/* Explicit tensor lengths: layer_parameters are those of one layer on one tensor rank, optimization_groups of a rank.
 */
static void explicit_sizes(const struct mr_workload *w, uint64_t ranks, struct mr_plan_checkpoint *c)
{
    const struct mr_conf_model *m = &w->model;
    if (m->layer_parameters.n)
        c->model_bytes = (double)MR_MAX(m->num_layers, 1) * sum(&m->layer_parameters) * (double)w->parallelism.tensor *
                         mr_conf_datatype_bytes((enum mr_conf_datatype)m->model_datatype);
    if (m->optimization_groups.n)
        c->optimizer_bytes = (double)ranks * sum(&m->optimization_groups) *
                             mr_conf_datatype_bytes((enum mr_conf_datatype)m->optimizer_datatype);
}

uint64_t mr_plan_blob_writers(const struct mr_workload *w, uint64_t ranks)
{
    return w->checkpoint.type == MR_CKPT_ALL_RANKS ? ranks : 1;
}

uint64_t mr_plan_blob_files(const struct mr_workload *w)
{
    if (w->checkpoint.files.n)
        return w->checkpoint.files.n;
    return w->top.framework == MR_FRAMEWORK_TENSORFLOW && w->model.model_size_bytes >= 1000 ? 3 : 1;
}

static int plan_model(const struct mr_workload *w, uint64_t ranks, struct mr_plan_checkpoint *c, struct mr_error *err)
{
    const struct mr_conf_model *m = &w->model;
    bool explicit_lengths = m->layer_parameters.n || m->optimization_groups.n;
    if (!is_transformer(w) && !explicit_lengths) {
        uint64_t writers = mr_plan_blob_writers(w, ranks);
        c->model_bytes =
            (w->checkpoint.files.n ? sum(&w->checkpoint.files) : (double)m->model_size_bytes) * (double)writers;
        c->model_files = writers * mr_plan_blob_files(w);
        return 0;
    }
    uint64_t need = (uint64_t)w->parallelism.tensor * (uint64_t)w->parallelism.pipeline;
    assert(need > 0 && ranks > 0); /* bounds of the option rows */
    bool subset = w->checkpoint.mode == MR_CKPT_SUBSET;
    if (ranks % need && !subset) {
        mr_error_plain(err, MR_E_CONFIG,
                       "the model is split over %llu ranks (tensor %lld x pipeline %lld), which %llu ranks "
                       "are no multiple of",
                       (unsigned long long)need, (long long)w->parallelism.tensor, (long long)w->parallelism.pipeline,
                       (unsigned long long)ranks);
        return mr_error_hint(err, "use '--ranks %llu', or 'checkpoint.mode=subset' for a part of the job",
                             (unsigned long long)need),
               MR_E_CONFIG;
    }
    checkpoint_files(w, ranks, subset, c);
    if (is_transformer(w)) {
        int rc = count_parameters(w, &c->parameters, err);
        if (rc)
            return rc;
        c->model_bytes = (double)c->parameters * mr_conf_datatype_bytes((enum mr_conf_datatype)m->model_datatype);
        c->optimizer_bytes = (3.0 * (double)c->parameters + 15.0 * (double)w->transformer.hidden_size) *
                             mr_conf_datatype_bytes((enum mr_conf_datatype)m->optimizer_datatype);
    }
    explicit_sizes(w, ranks, c);
    if (!c->optimizer_bytes)
        c->optimizer_files = 0;
    if (subset) {
        double full = (double)need * (double)MR_MAX(w->parallelism.data, 1), part = fmin(1, (double)ranks / full);
        c->model_bytes *= part;
        if (!m->optimization_groups.n)
            c->optimizer_bytes *= part;
    }
    return 0;
}

/* How often something happens that starts after epoch `first` and repeats every `every` epochs. */
static uint64_t occurrences(uint64_t epochs, int64_t first, int64_t every)
{
    assert(first >= 0 && every > 0); /* bounds of the option rows */
    return epochs >= (uint64_t)first ? (epochs - (uint64_t)first) / (uint64_t)every + 1 : 0;
}

/* The last one may have been cut short by total_training_steps; it is followed by its evaluation and checkpoint all the
 * same. */
static uint64_t trained_epochs(const struct mr_workload *w, const struct mr_workload_plan *p)
{
    if (!w->workflow.train || !p->steps_per_epoch)
        return 0;
    uint64_t epochs = p->total_steps / p->steps_per_epoch + (p->total_steps % p->steps_per_epoch != 0);
    return MR_MIN(epochs, (uint64_t)w->train.epochs);
}

static int plan_checkpoint(const struct mr_workload *w, struct mr_workload_plan *p, struct mr_error *err)
{
    const struct mr_conf_checkpoint *c = &w->checkpoint;
    if (!w->workflow.checkpoint)
        return 0;
    int rc = plan_model(w, p->ranks, &p->checkpoint, err);
    if (rc)
        return rc;
    if (!w->workflow.train) {
        p->checkpoint.writes = (uint64_t)MR_MAX(c->num_checkpoints_write, 0);
        p->checkpoint.reads = (uint64_t)MR_MAX(c->num_checkpoints_read, 0);
        uint64_t all = p->checkpoint.writes + p->checkpoint.reads, pauses = all ? all - 1 : 0;
        p->pause_s = (double)pauses * fmax(0, c->time_between_checkpoints);
    } else if (c->steps_between_checkpoints > 0) {
        p->checkpoint.writes = p->total_steps / (uint64_t)c->steps_between_checkpoints;
    } else {
        p->checkpoint.writes =
            occurrences(trained_epochs(w, p), c->checkpoint_after_epoch, c->epochs_between_checkpoints);
    }
    return 0;
}

static uint64_t steps(uint64_t samples, uint64_t ranks, uint64_t batch, bool drop_last)
{
    if (drop_last)
        return samples / ranks / batch;
    uint64_t per_rank = (samples + ranks - 1) / ranks;
    return (per_rank + batch - 1) / batch;
}

/* Ranks deal single samples, or with a pattern whole files or runs of samples; with same_offsets each reads all of
 * them. */
static uint64_t training_steps(const struct mr_workload *w, const struct mr_workload_plan *p)
{
    bool files = w->pattern.unit == MR_CONF_UNIT_FILE, records = w->pattern.unit == MR_CONF_UNIT_RECORD;
    uint64_t unit = files     ? (uint64_t)w->dataset.num_samples_per_file
                    : records ? (uint64_t)w->pattern.sequential_samples
                              : 1;
    uint64_t ranks = (files || records) && w->pattern.same_offsets ? 1 : p->ranks;
    uint64_t units = p->train_samples / unit + (!w->reader.drop_last && p->train_samples % unit != 0);
    uint64_t per_rank = w->reader.drop_last ? units / ranks : (units + ranks - 1) / ranks;
    return steps(per_rank * unit, 1, (uint64_t)w->reader.batch_size, w->reader.drop_last);
}

static void plan_training(const struct mr_workload *w, struct mr_workload_plan *p)
{
    uint64_t batch = (uint64_t)w->reader.batch_size, epochs = (uint64_t)w->train.epochs;
    p->steps_per_epoch = training_steps(w, p);
    uint64_t read = p->steps_per_epoch * batch * p->ranks;
    if (w->reader.drop_last)
        p->samples_left_out = p->train_samples - MR_MIN(p->train_samples, read);
    if (__builtin_mul_overflow(p->steps_per_epoch, epochs, &p->total_steps))
        p->total_steps = UINT64_MAX;       /* refused by check_bounds */
    if (w->train.total_training_steps > 0) /* 0: no limit, as in DLIO */
        p->total_steps = MR_MIN(p->total_steps, (uint64_t)w->train.total_training_steps);
    p->compute_s = mr_dist_mean(&w->train.computation_time);
    if (p->compute_s > 0)
        p->need_bytes_per_s = (double)batch * p->read_bytes / p->compute_s;
    if (p->need_bytes_per_s > SANE) /* as good as no compute at all */
        p->need_bytes_per_s = 0;
    p->train_s = (double)p->total_steps * p->compute_s;
}

static void plan_evaluation(const struct mr_workload *w, struct mr_workload_plan *p)
{
    p->eval_steps = steps(p->eval_samples, p->ranks, (uint64_t)w->reader.batch_size_eval, w->reader.drop_last);
    p->evaluations = p->eval_samples ? occurrences(trained_epochs(w, p), w->evaluation.eval_after_epoch,
                                                   w->evaluation.epochs_between_evals)
                                     : 0;
    p->eval_s = (double)p->evaluations * (double)p->eval_steps * mr_dist_mean(&w->evaluation.eval_time);
}

static uint32_t choose_ranks(const struct mr_workload *w, uint32_t ranks)
{
    if (ranks)
        return ranks;
    if (w->extra.ranks)
        return w->extra.ranks;
    if (w->workflow.checkpoint && (is_transformer(w) || w->model.layer_parameters.n))
        return (uint32_t)MR_MIN(w->parallelism.tensor * w->parallelism.pipeline, 1000000);
    return 1;
}

/* Figures that leave 64 bits come from mistakes; later arithmetic relies on their absence. */
static int check_bounds(const struct mr_workload *w, const struct mr_workload_plan *p, struct mr_error *err)
{
    const struct mr_plan_checkpoint *c = &p->checkpoint;
    double steps_d = (double)p->steps_per_epoch * (double)w->train.epochs;
    double seconds = p->train_s + p->eval_s + p->pause_s;
    if (!(seconds < SANE)) {
        mr_error_plain(err, MR_E_CONFIG, "the workload is beyond all bounds: %.3g seconds of compute", seconds);
        return mr_error_hint(err, "check 'train.computation_time' and 'evaluation.eval_time'"), MR_E_CONFIG;
    }
    if (p->train_bytes + p->eval_bytes < SANE && c->model_bytes + c->optimizer_bytes < SANE && steps_d < SANE)
        return 0;
    mr_error_plain(err, MR_E_CONFIG,
                   "the workload is beyond all bounds: %.3g bytes of data, %.3g bytes per checkpoint, "
                   "%.3g steps",
                   p->train_bytes + p->eval_bytes, c->model_bytes + c->optimizer_bytes, steps_d);
    return mr_error_hint(err, "check the sizes and counts of 'dataset', 'model' and 'train'"), MR_E_CONFIG;
}

int mr_plan_make(const struct mr_workload *w, uint32_t ranks, struct mr_workload_plan *out, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &w->dataset;
    struct mr_workload_plan p = {.ranks = choose_ranks(w, ranks)};
    bool needs_data = w->workflow.train || w->workflow.generate_data || w->workflow.evaluation;
    p.record_bytes = mr_workload_record_bytes(w);
    p.read_bytes = mr_workload_read_bytes(w);
    if (needs_data) {
        p.train_files = (uint64_t)d->num_files_train;
        p.eval_files = (uint64_t)d->num_files_eval;
        p.train_samples = p.train_files * (uint64_t)d->num_samples_per_file;
        p.eval_samples = p.eval_files * (uint64_t)d->num_samples_per_file;
        p.train_bytes = (double)p.train_samples * p.record_bytes;
        p.eval_bytes = (double)p.eval_samples * p.record_bytes;
    }
    if (w->workflow.train && p.train_samples == 0) {
        mr_error_plain(err, MR_E_CONFIG, "there is nothing to train on: num_files_train is 0");
        return mr_error_hint(err, "set 'dataset.num_files_train', or 'workflow.train=false'"), MR_E_CONFIG;
    }
    if (w->workflow.train)
        plan_training(w, &p);
    if (w->workflow.train && p.steps_per_epoch == 0) {
        bool files = w->pattern.unit == MR_CONF_UNIT_FILE,
             runs = w->pattern.unit == MR_CONF_UNIT_RECORD && w->pattern.sequential_samples > 1;
        mr_error_plain(err, MR_E_CONFIG, "not one full batch: %llu samples for %u ranks x batch_size %lld%s",
                       (unsigned long long)p.train_samples, p.ranks, (long long)w->reader.batch_size,
                       files  ? ", dealt in whole files"
                       : runs ? ", dealt in runs of pattern.sequential_samples"
                              : "");
        return mr_error_hint(err, "use more files, fewer ranks, a smaller batch, or 'reader.drop_last=false'"),
               MR_E_CONFIG;
    }
    if (w->workflow.evaluation)
        plan_evaluation(w, &p);
    int rc = plan_checkpoint(w, &p, err);
    if (!rc)
        rc = check_bounds(w, &p, err);
    if (!rc)
        *out = p;
    return rc;
}
