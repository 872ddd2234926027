/* Figures of an execution: everything is computed from its trace, by src/analyze and src/metrics. */
#include "analyze/run_trace.h"
#include "base/common.h"
#include "preset/check_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ---- */

/* The data's files are numbered from 1 as in the data set; every other path gets a number behind them. */
struct paths {
    const struct mr_check_data *data;
    const char **other; /* borrowed from the trace, with their lengths */
    uint32_t *other_len;
    uint32_t n_other, cap;
    uint32_t hint; /* the last file: calls come in runs */
    bool failed;
};

static bool is_file(const struct mr_check_data *d, uint32_t f, const char *path, uint32_t len)
{
    return strlen(d->path[f]) == len && !memcmp(d->path[f], path, len);
}

/* What the checkpoint engine writes for itself is no file of the application. */
static bool is_bookkeeping(const char *path, uint32_t len)
{
    static const char *const ends[] = {"/checkpoint.json", ".part", ".tmp"};
    for (size_t i = 0; i < MR_ARRAY_LEN(ends); i++) {
        size_t n = strlen(ends[i]);
        if (len >= n && !memcmp(path + len - n, ends[i], n))
            return true;
    }
    return false;
}

static uint32_t add_other(struct paths *p, const char *path, uint32_t len)
{
    for (uint32_t i = p->n_other; i-- > 0;)
        if (p->other_len[i] == len && !memcmp(p->other[i], path, len))
            return i + 1;
    if (p->n_other == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : 64;
        const char **other = realloc(p->other, cap * sizeof(*other));
        p->other = other ? other : p->other;
        uint32_t *lens = other ? realloc(p->other_len, cap * sizeof(*lens)) : NULL;
        p->other_len = lens ? lens : p->other_len;
        if (!lens) {
            p->failed = true;
            return 0;
        }
        p->cap = cap;
    }
    p->other[p->n_other] = path;
    p->other_len[p->n_other] = len;
    return ++p->n_other;
}

static uint32_t number_of(void *user, const char *path, uint32_t len)
{
    struct paths *p = user;
    const struct mr_check_data *d = p->data;
    uint32_t files = d ? d->n_files : 0;
    if (is_bookkeeping(path, len))
        return 0;
    for (uint32_t k = 0; k < files; k++) {
        uint32_t f = (p->hint + k) % files;
        if (is_file(d, f, path, len)) {
            p->hint = f;
            return f + 1;
        }
    }
    uint32_t other = add_other(p, path, len);
    return other ? files + other : 0;
}

/* ---- times ---- */

static uint64_t shrink(uint64_t t, uint64_t start, double k)
{
    return t <= start ? start : start + (uint64_t)((double)(t - start) / k);
}

/* Undoes the slowdown: times are given as on the emulated device. */
static void undo_slowdown(struct mr_run_trace *t, uint64_t start, double k, struct mr_check_run *out)
{
    if (k <= 1)
        return;
    for (size_t i = 0; i < out->calls.n; i++) {
        struct mr_event *e = &out->calls.events[i];
        e->start_ns = shrink(e->start_ns, start, k);
        e->dur_ns = (uint64_t)((double)e->dur_ns / k);
    }
    for (uint32_t r = 0; r < t->world; r++) {
        struct mr_run_rank *rank = &t->rank[r];
        for (size_t s = 0; s < rank->steps.n; s++) {
            struct mr_step *p = &rank->steps.item[s];
            uint64_t *const times[] = {&p->start_ns,   &p->end_ns,        &p->load_ns,        &p->compute_ns,
                                       &p->barrier_ns, &p->checkpoint_ns, &p->compute_wall_ns};
            for (size_t i = 0; i < MR_ARRAY_LEN(times); i++)
                *times[i] = (uint64_t)((double)*times[i] / k);
        }
        for (size_t d = 0; d < rank->drains.n; d++) {
            rank->drains.item[d].start_ns = (uint64_t)((double)rank->drains.item[d].start_ns / k);
            rank->drains.item[d].duration_ns = (uint64_t)((double)rank->drains.item[d].duration_ns / k);
        }
        rank->origin_ns = shrink(rank->origin_ns, start, k);
        rank->end_ns = shrink(rank->end_ns, start, k);
        if (rank->first_compute_ns != UINT64_MAX)
            rank->first_compute_ns = shrink(rank->first_compute_ns, start, k);
    }
}

/* The run lasts from when its ranks begin to open their data to the last step's end, or, where files are written
 * afterwards or there are no steps, to the end. */
static void set_times(const struct check_job *j, const struct mr_run_trace *t, uint64_t start, struct mr_check_run *out)
{
    bool to_the_end = j->w.pattern.outputs.n > 0;
    out->calls.start_ns = start;
    out->calls.train_start_ns = UINT64_MAX;
    for (uint32_t r = 0; r < t->world; r++) {
        const struct mr_run_rank *rank = &t->rank[r];
        const struct mr_step *last = rank->steps.n ? &rank->steps.item[rank->steps.n - 1] : NULL;
        uint64_t end = last && !to_the_end ? rank->origin_ns + last->end_ns + last->checkpoint_ns : rank->end_ns;
        out->calls.end_ns = MR_MAX(out->calls.end_ns, end);
        out->calls.train_start_ns = MR_MIN(out->calls.train_start_ns, rank->first_compute_ns);
    }
    if (out->calls.train_start_ns == UINT64_MAX)
        out->calls.train_start_ns = out->calls.end_ns;
    out->runtime_s = (double)(out->calls.end_ns - start) / 1e9;
}

static uint64_t first_start(const struct mr_run_trace *t)
{
    uint64_t start = UINT64_MAX;
    for (uint32_t r = 0; r < t->world; r++)
        start = t->rank[r].known ? MR_MIN(start, t->rank[r].open_ns) : start;
    return start;
}

/* ---- samples ---- */

static int by_file_offset(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    if (x->path_id != y->path_id)
        return x->path_id < y->path_id ? -1 : 1;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

/* How often each sample's bytes were read, from the offsets of the calls. */
static int count_samples(const struct check_job *j, const struct mr_run_trace *t, struct mr_check_run *out)
{
    const struct mr_check_data *d = j->data;
    const struct mr_event **v = malloc((out->calls.n + 1) * sizeof(*v));
    size_t n = 0, at = 0;
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < out->calls.n; i++) {
        const struct mr_event *e = &out->calls.events[i];
        if (e->kind == MR_EV_READ && e->result > 0 && e->path_id <= d->n_files && e->rank < t->world &&
            e->start_ns >= t->rank[e->rank].origin_ns)
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

/* ---- all of it ---- */

static int compute_metrics(const struct mr_run_trace *t, struct mr_check_run *out)
{
    struct mr_rank_series *series = calloc(t->world, sizeof(*series));
    out->metrics = series ? calloc(1, sizeof(*out->metrics)) : NULL;
    if (out->metrics) {
        mr_run_trace_series(t, series);
        mr_metrics_compute(series, t->world, &(struct mr_metrics_params){.seed = 1, .exclude_start = 1}, out->metrics);
    }
    free(series);
    return out->metrics ? 0 : -ENOMEM;
}

static void sum_up(const struct check_job *j, const struct mr_run_trace *t, struct mr_check_run *out)
{
    const struct mr_run_rank *r = &t->rank[0];
    double steps = 0, saves = 0;
    out->steps = r->steps.n;
    out->epochs_run = (uint32_t)j->w.train.epochs;
    for (size_t i = 0; i < r->steps.n; i++) {
        steps += (double)(r->steps.item[i].end_ns - r->steps.item[i].start_ns);
        saves += (double)r->steps.item[i].checkpoint_ns;
    }
    out->checkpoints = r->checkpoints.n;
    out->checkpoint_s = r->checkpoints.n ? saves / 1e9 / (double)r->checkpoints.n : 0;
    out->checkpoint_share = steps + saves > 0 ? saves / (steps + saves) : 0;
    out->drains = out->metrics->drain.drains;
    out->drain_s = out->metrics->drain.drain_s.mean;
    out->drain_overlap = out->metrics->drain.overlap_share;
}

/* The calls of the storage stacks, and the sizes of the files they went to. */
static int take_calls(const struct check_job *j, const struct mr_trace *trace, struct mr_check_run *out,
                      struct mr_error *err)
{
    struct paths paths = {.data = j->data};
    uint32_t files = j->data ? j->data->n_files : 0;
    int rc = mr_run_trace_calls(trace, number_of, &paths, &out->calls.events, &out->calls.n, err);
    out->calls.ranks = j->world;
    out->calls.n_paths = files + paths.n_other;
    out->calls.dataset_bytes = j->data ? j->data->bytes : 0;
    out->file_bytes = calloc(out->calls.n_paths + 1, sizeof(*out->file_bytes));
    if (!rc && (!out->file_bytes || paths.failed))
        rc = mr_error_set(err, -ENOMEM, "cannot keep the files of the check");
    for (uint32_t f = 0; !rc && f < files; f++)
        out->file_bytes[f + 1] = j->data->file_bytes[f];
    out->calls.file_bytes = out->file_bytes;
    free(paths.other);
    free(paths.other_len);
    return rc;
}

static int collect(const struct check_job *j, const struct mr_trace *trace, struct mr_check_run *out,
                   struct mr_error *err)
{
    struct mr_run_trace *t = NULL;
    int rc = mr_run_trace_read(trace, &t, err);
    if (!rc)
        rc = take_calls(j, trace, out, err);
    if (!rc)
        rc = j->w.pattern.unit == MR_CONF_UNIT_SAMPLE
                 ? mr_check_out_of_order(j, t, &out->out_of_order, err)
                 : mr_check_items_out_of_order(j, &out->calls, &out->out_of_order, err);
    if (!rc) {
        uint64_t start = first_start(t);
        out->barrier_violations = mr_check_barrier_violations(t);
        undo_slowdown(t, start, j->slowdown, out);
        set_times(j, t, start, out);
        rc = compute_metrics(t, out);
        if (!rc)
            sum_up(j, t, out);
        if (!rc && j->w.pattern.unit == MR_CONF_UNIT_SAMPLE)
            rc = count_samples(j, t, out);
        if (rc)
            mr_error_set(err, rc, "cannot compute the figures of the check");
    }
    mr_run_trace_free(t);
    return rc;
}

int mr_check_collect(const struct check_job *j, struct mr_check_run *out, struct mr_error *err)
{
    struct mr_trace *trace;
    char path[4200];
    snprintf(path, sizeof path, "%s/run.mrt", j->folder);
    int rc = mr_trace_create(&trace, err);
    if (rc)
        return rc;
    rc = mr_trace_add(trace, path, err);
    if (!rc)
        rc = mr_trace_finish(trace, err);
    if (!rc)
        rc = collect(j, trace, out, err);
    mr_trace_free(trace);
    return rc;
}

void mr_check_run_done(struct mr_check_run *r)
{
    free(r->calls.events);
    free(r->file_bytes);
    free(r->metrics);
    memset(r, 0, sizeof(*r));
}
