/* Which files a rank writes at a checkpoint: the plan's sizes (src/conf/plan.h) dealt to ranks. Rank r is tensor rank
 * r mod T, pipeline stage r / T mod P, replica r / (T P).
 *
 * Invariant: over all ranks the bytes add up to the plan's model and optimizer bytes, exactly, and so do the counts. */
#include "base/common.h"
#include "base/vec.h"
#include "bench/trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct list {
    struct mr_checkpoint_file *item;
    size_t n, cap;
    bool failed;
};

static void add(struct list *l, uint64_t bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(struct list *l, uint64_t bytes, const char *fmt, ...)
{
    if (mr_vec_reserve(&l->item, &l->cap, l->n + 1, sizeof(*l->item)) < 0) {
        l->failed = true;
        return;
    }
    struct mr_checkpoint_file *f = &l->item[l->n++];
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->name, sizeof f->name, fmt, args);
    va_end(args);
    f->bytes = bytes;
}

/* Part i of n of a whole, so that all parts together are the whole. */
static uint64_t part(double whole, uint64_t i, uint64_t n)
{
    unsigned __int128 w = (unsigned __int128)whole;
    return (uint64_t)(w * (i + 1) / n - w * i / n);
}

/* One blob. TensorFlow writes three files: the graph, the index of the tensors, and the tensors. */
static void add_blob(const struct mr_workload *w, const struct mr_workload_plan *p, uint32_t rank, struct list *l)
{
    uint64_t bytes = w->model.model_size_bytes;
    if (rank >= mr_plan_blob_writers(w, p->ranks))
        return;
    for (unsigned i = 0; i < w->checkpoint.files.n; i++) /* the application's own files, where they are known */
        add(l, w->checkpoint.files.item[i], "model-%05u-%u.bin", rank, i);
    if (w->checkpoint.files.n)
        return;
    if (mr_plan_blob_files(w) == 1) {
        add(l, bytes, "model-%05u.bin", rank);
        return;
    }
    uint64_t meta = bytes / 100, index = bytes / 10000;
    add(l, meta, "model-%05u.meta", rank);
    add(l, index, "model-%05u.index", rank);
    add(l, bytes - meta - index, "model-%05u.data-00000-of-00001", rank);
}

/* Bytes of layer `k` of a transformer with L layers: 0 is the embedding, 1 ... L the layers, then final norm and head.
 */
static uint64_t layer_parameters(const struct mr_workload *w, uint64_t k)
{
    const struct mr_conf_transformer *t = &w->transformer;
    uint64_t layers = (uint64_t)MR_MAX(w->model.num_layers, 0), h = (uint64_t)t->hidden_size;
    uint64_t kv = h / (uint64_t)t->num_attention_heads * (uint64_t)t->num_kv_heads;
    if (k == 0 || k == layers + 2)
        return (uint64_t)t->vocab_size * h;
    if (k == layers + 1)
        return h;
    return 2 * h + h * (h + 2 * kv) + h * h + 3 * (uint64_t)t->ffn_hidden_size * h;
}

/* ZeRO 1 and 2 with pipeline stages: one file per layer and tensor rank, layers dealt to the stages in runs. */
static void add_layers(const struct mr_workload *w, const struct mr_workload_plan *p, uint64_t t, uint64_t stage,
                       struct list *l)
{
    uint64_t tp = (uint64_t)w->parallelism.tensor, pp = (uint64_t)w->parallelism.pipeline;
    uint64_t layers = (uint64_t)MR_MAX(w->model.num_layers, 0) + 3;
    bool exact = p->checkpoint.parameters && w->checkpoint.mode != MR_CKPT_SUBSET && !w->model.layer_parameters.n;
    double each = mr_conf_datatype_bytes((enum mr_conf_datatype)w->model.model_datatype);
    for (uint64_t k = stage * layers / pp; k < (stage + 1) * layers / pp; k++) {
        uint64_t bytes = exact ? part((double)layer_parameters(w, k) * each, t, tp)
                               : part(p->checkpoint.model_bytes, k * tp + t, layers * tp);
        add(l, bytes, "layer_%03llu-tensor_%02llu-model.bin", (unsigned long long)k, (unsigned long long)t);
    }
}

static void add_model(const struct mr_workload *w, const struct mr_workload_plan *p, uint32_t rank, struct list *l)
{
    const struct mr_plan_checkpoint *c = &p->checkpoint;
    uint64_t tp = (uint64_t)w->parallelism.tensor, pp = (uint64_t)w->parallelism.pipeline,
             group = MR_MIN(tp * pp, p->ranks);
    bool first_replica = rank < tp * pp;
    if (w->parallelism.zero_stage == 3) {
        add(l, part(c->model_bytes, rank, p->ranks), "zero_rank_%05u-model.bin", rank);
    } else if (first_replica && w->parallelism.zero_stage == 0) {
        add(l, part(c->model_bytes, rank, group), "mp_rank_%05u-model.bin", rank);
    } else if (first_replica && pp == 1) {
        add(l, part(c->model_bytes, rank, group), "mp_rank_%05u-model.bin", rank);
    } else if (first_replica) {
        add_layers(w, p, rank % tp, rank / tp, l);
    }
    if (c->optimizer_bytes <= 0)
        return;
    if (w->parallelism.zero_stage > 0)
        add(l, part(c->optimizer_bytes, rank, p->ranks), "zero_rank_%05u-optimizer.bin", rank);
    else if (first_replica)
        add(l, part(c->optimizer_bytes, rank, group), "mp_rank_%05u-optimizer.bin", rank);
}

int mr_bench_checkpoint_files(const struct mr_workload *w, const struct mr_workload_plan *p, uint32_t rank,
                              struct mr_checkpoint_file **out, uint64_t *n, struct mr_error *err)
{
    struct list l = {0};
    bool blob = strcasecmp(w->model.type, "transformer") != 0 && !w->model.layer_parameters.n &&
                !w->model.optimization_groups.n;
    if (blob)
        add_blob(w, p, rank, &l);
    else
        add_model(w, p, rank, &l);
    if (l.failed) {
        free(l.item);
        return mr_error_set(err, -ENOMEM, "cannot list the files of a checkpoint");
    }
    double scale = p->checkpoint.scale;
    for (uint64_t i = 0; i < l.n && scale > 0 && scale < 1; i++)
        l.item[i].bytes = (uint64_t)ceil((double)l.item[i].bytes * scale);
    *out = l.item;
    *n = l.n;
    return 0;
}
