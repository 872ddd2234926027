/* Figures of an execution: the calls that the trace shim saw, the steps' times, and from both what the expectations of
 * a preset ask for. */
#include "base/common.h"
#include "job/check_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Undoes the slowdown: times are given as on the emulated device. */
static void undo_slowdown(struct check_job *j, struct mr_check_run *out)
{
    double k = j->slowdown;
    uint64_t t0 = j->start_ns;
    if (k <= 1)
        return;
#define SHRINK(t) ((t) = t0 + (uint64_t)((double)((t)-t0) / k))
    for (size_t i = 0; i < out->calls.n; i++) {
        struct mr_event *e = &out->calls.events[i];
        e->start_ns = e->start_ns < t0 ? t0 : e->start_ns;
        SHRINK(e->start_ns);
        e->dur_ns = (uint64_t)((double)e->dur_ns / k);
    }
    SHRINK(out->calls.train_start_ns);
    SHRINK(out->calls.end_ns);
#undef SHRINK
    for (uint32_t i = 0; i < j->world; i++)
        for (uint64_t s = 0; s < j->ranks[i].n_steps; s++) {
            struct mr_step *p = &j->ranks[i].steps[s];
            uint64_t *const times[] = {&p->start_ns,   &p->end_ns,        &p->load_ns,        &p->compute_ns,
                                       &p->barrier_ns, &p->checkpoint_ns, &p->compute_wall_ns};
            for (size_t t = 0; t < MR_ARRAY_LEN(times); t++)
                *times[t] = (uint64_t)((double)*times[t] / k);
        }
    for (uint32_t i = 0; i < j->world; i++) {
        struct check_rank *r = &j->ranks[i];
        for (uint64_t d = 0; d < r->n_drains; d++) {
            r->drains[d].start_ns = (uint64_t)((double)r->drains[d].start_ns / k);
            r->drains[d].duration_ns = (uint64_t)((double)r->drains[d].duration_ns / k);
        }
    }
}

static int by_file_offset(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    if (x->path_id != y->path_id)
        return x->path_id < y->path_id ? -1 : 1;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

/* How often each sample's bytes were read, from the offsets of the calls. */
static int count_samples(const struct check_job *j, struct mr_check_run *out)
{
    const struct mr_check_data *d = j->data;
    const struct mr_event **v = malloc((out->calls.n + 1) * sizeof(*v));
    size_t n = 0, at = 0;
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < out->calls.n; i++) {
        const struct mr_event *e = &out->calls.events[i];
        if (e->kind == MR_EV_READ && e->result > 0 && e->path_id <= d->n_files &&
            e->start_ns >= j->ranks[e->rank].opened_ns)
            v[n++] = e;
    }
    qsort(v, n, sizeof(*v), by_file_offset);
    double epochs = (double)out->epochs_run;
    for (uint64_t s = 0; s < d->n_samples; s++) {
        const struct mr_check_extent *x = &d->sample[s];
        uint64_t read = 0, end = x->offset + x->bytes;
        while (at < n && (v[at]->path_id < x->file + 1 ||
                          (v[at]->path_id == x->file + 1 && v[at]->offset + (uint64_t)v[at]->result <= x->offset)))
            at++;
        for (size_t i = at; i < n && v[i]->path_id == x->file + 1 && v[i]->offset < end; i++) {
            uint64_t from = MR_MAX(v[i]->offset, x->offset), to = MR_MIN(v[i]->offset + (uint64_t)v[i]->result, end);
            read += to > from ? to - from : 0;
        }
        double times = x->bytes ? (double)read / (double)x->bytes : epochs;
        out->repeated_samples += times > epochs + 0.01;
        out->missed_samples += times < epochs - 0.01;
    }
    free(v);
    double left_out = (double)j->shape->plan.samples_left_out * epochs;
    out->missed_samples = MR_MAX(0.0, out->missed_samples - left_out);
    return 0;
}

static int collect(struct check_job *j, struct mr_check_run *out, struct mr_error *err)
{
    struct mr_check_paths paths = {.data = j->data};
    struct mr_rank_series *series = calloc(j->world, sizeof(*series));
    size_t cap = 0;
    char file[4200];
    uint32_t files = j->data ? j->data->n_files : 0;
    int rc = series ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the steps of the check");
    for (uint32_t i = 0; i < j->world && !rc; i++) {
        struct check_rank *r = &j->ranks[i];
        mr_store_close(r->store); /* writes the rest of its trace */
        r->store = NULL;
        snprintf(file, sizeof file, "%s/rank-%u.tsv", j->folder, i);
        rc = mr_check_trace_read(file, i, &paths, &out->calls.events, &out->calls.n, &cap, err);
        out->calls.train_start_ns = i ? MR_MIN(out->calls.train_start_ns, r->train_start_ns) : r->train_start_ns;
        out->calls.end_ns = MR_MAX(out->calls.end_ns, r->end_ns);
    }
    out->calls.ranks = j->world;
    out->calls.start_ns = j->start_ns;
    out->calls.n_paths = files + paths.n_other;
    out->calls.dataset_bytes = j->data ? j->data->bytes : 0;
    out->file_bytes = calloc(out->calls.n_paths + 1, sizeof(*out->file_bytes));
    if (!rc && !out->file_bytes)
        rc = mr_error_set(err, -ENOMEM, "cannot keep the files of the check");
    for (uint32_t f = 0; !rc && f < files; f++)
        out->file_bytes[f + 1] = j->data->file_bytes[f];
    out->calls.file_bytes = out->file_bytes;
    for (uint32_t i = 0; i < paths.n_other; i++)
        free(paths.other[i]);
    free(paths.other);
    if (!rc)
        undo_slowdown(j, out);
    for (uint32_t i = 0; !rc && i < j->world; i++)
        series[i] = (struct mr_rank_series){.rank = i,
                                            .steps = j->ranks[i].steps,
                                            .n = j->ranks[i].n_steps,
                                            .checkpoints = j->ranks[i].checkpoints,
                                            .n_checkpoints = j->ranks[i].n_checkpoints,
                                            .drains = j->ranks[i].drains,
                                            .n_drains = j->ranks[i].n_drains};
    out->metrics = rc ? NULL : calloc(1, sizeof(*out->metrics));
    if (out->metrics)
        mr_metrics_compute(series, j->world, &(struct mr_metrics_params){.seed = 1, .exclude_start = 1}, out->metrics);
    free(series);
    return rc;
}

static void sum_up(const struct check_job *j, struct mr_check_run *out)
{
    const struct check_rank *r = &j->ranks[0];
    double steps = 0, saves = 0;
    out->runtime_s = (double)(out->calls.end_ns - out->calls.start_ns) / 1e9;
    out->steps = r->n_steps;
    out->epochs_run = (uint32_t)j->w->train.epochs;
    for (uint64_t i = 0; i < r->n_steps; i++) {
        steps += (double)(r->steps[i].end_ns - r->steps[i].start_ns);
        saves += (double)r->steps[i].checkpoint_ns;
    }
    out->checkpoints = r->n_checkpoints;
    out->checkpoint_s = r->n_checkpoints ? saves / 1e9 / (double)r->n_checkpoints : 0;
    out->checkpoint_share = steps + saves > 0 ? saves / (steps + saves) : 0;
    if (!out->metrics)
        return;
    out->drains = out->metrics->drain.drains;
    out->drain_s = out->metrics->drain.drain_s.mean;
    out->drain_overlap = out->metrics->drain.overlap_share;
}

int mr_check_collect(struct check_job *j, struct mr_check_run *out, struct mr_error *err)
{
    int rc = collect(j, out, err);
    if (rc)
        return rc;
    sum_up(j, out);
    if (j->w->pattern.unit == MR_UNIT_SAMPLE && count_samples(j, out))
        rc = mr_error_set(err, -ENOMEM, "cannot count the samples of the check");
    return rc;
}

void mr_check_run_done(struct mr_check_run *r)
{
    free(r->calls.events);
    free(r->file_bytes);
    free(r->metrics);
    memset(r, 0, sizeof(*r));
}
