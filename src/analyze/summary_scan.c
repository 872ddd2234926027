/* Counting. Chunks are taken in the order of time, a few million events at once: first they are counted and their
 * intervals listed, in parallel over chunks; then the intervals are united, in parallel over slices of time. Lists that
 * reach beyond these events stay for the next round, so nothing is decoded twice. */
#include "analyze/summary_internal.h"
#include "base/common.h"
#include "base/workers.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_EVENTS (4u << 20)
#define SLICE_EVENTS 50000u /* fewer are not worth a slice of their own */

static struct summary_tally *tally_get(struct summary_worker *w, uint32_t function)
{
    struct summary_tally *f = &w->tally[function];
    if (!f->count)
        f->dur_min = UINT64_MAX;
    return f->failed ? NULL : f;
}

static void count_bucket(struct summary_tally *f, unsigned bucket, uint64_t n)
{
    if (MR_LIKELY(f->dur != NULL))
        f->dur->bucket[bucket] += n;
    else if (n)
        mr_summary_count_new_bucket(f, bucket, n);
}

static bool wanted(const struct summary_job *j, uint32_t group, uint32_t file, uint64_t start)
{
    return (!j->file_wanted || j->file_wanted[file]) &&
           (j->opt->step_from < 0 || mr_intervals_has(&j->steps[group], start));
}

static void count_row(struct mr_file_row *row, unsigned kind, uint64_t dur, int64_t result)
{
    row->calls++;
    row->dur_ns += dur;
    row->opens += kind == MR_EV_OPEN && (result >= 0 || result == MR_NO_RESULT);
    if (result > 0) {
        row->read_bytes += kind == MR_EV_READ || kind == MR_EV_COPY ? (uint64_t)result : 0;
        row->written_bytes += kind == MR_EV_WRITE ? (uint64_t)result : 0; /* the file of a copy is the one it reads */
    }
}

static void count_event(struct summary_tally *f, unsigned kind, uint64_t dur, int64_t result)
{
    f->count++;
    f->dur_ns += dur;
    f->dur_min = MR_MIN(f->dur_min, dur);
    f->dur_max = MR_MAX(f->dur_max, dur);
    count_bucket(f, mr_tally_bucket(dur), 1);
    if (result < 0) {
        f->errors += result != MR_NO_RESULT;
    } else if (mr_kind_moves_data(kind)) {
        uint64_t size = (uint64_t)result;
        f->bytes += size;
        struct mr_map_slot *last = f->sizes.slots ? &f->sizes.slot[f->last] : NULL;
        if (MR_LIKELY(last && last->value && last->key == size))
            last->value++;
        else
            mr_summary_count_size(f, size, 1);
    }
}

static uint32_t function_of(const struct summary_job *j, uint32_t process, unsigned call, uint32_t id)
{
    const struct mr_trace_process *p = &j->t->process[process];
    if (MR_LIKELY(call > MR_CALL_metadata) || !id || id >= p->strings)
        return call; /* calls of the program itself come first in the table */
    return j->site_of[process][id] ? j->site_of[process][id] : call;
}

/* ---- whole blocks, by what they say themselves ---- */

struct visit {
    struct summary_job *j;
    struct summary_worker *w;
};

static void visit_function(void *user, const struct mr_mrt_aggregate *a)
{
    struct visit *v = user;
    struct summary_worker *w = v->w;
    uint32_t function = function_of(v->j, w->process, a->call, a->site);
    w->now = NULL;
    if (a->call == MR_CALL_metadata || a->call == MR_CALL_counter) {
        w->odd = true;
        return;
    }
    assert(function < v->j->function.n);
    uint8_t klass = v->j->function_class.item[function];
    w->classes |= klass;
    w->mixed |= !klass;
    w->now = tally_get(w, function);
    if (!w->now) {
        w->failed = true;
        return;
    }
    w->now->count += a->count;
    w->now->errors += a->errors;
    w->now->bytes += a->bytes;
    w->now->dur_ns += a->dur_sum;
    w->now->dur_min = MR_MIN(w->now->dur_min, a->dur_min);
    w->now->dur_max = MR_MAX(w->now->dur_max, a->dur_max);
}

static void visit_duration(void *user, unsigned bucket, uint64_t count)
{
    struct visit *v = user;
    if (v->w->now)
        count_bucket(v->w->now, bucket, count);
}

static void visit_size(void *user, uint64_t size, uint64_t count)
{
    struct visit *v = user;
    if (v->w->now && count)
        mr_summary_count_size(v->w->now, size, count);
}

static void visit_sizes(void *user, const struct mr_mrt_sizes *s)
{
    struct visit *v = user;
    struct summary_tally *f = v->w->now;
    struct mr_histogram *h = f ? mr_summary_size_histogram(f) : NULL;
    if (!h)
        return;
    h->min = h->count ? MR_MIN(h->min, s->min) : s->min;
    h->max = MR_MAX(h->max, s->max);
    for (unsigned b = 0; b < MR_TALLY_BINS; b++)
        f->bin[b] += s->bin[b];
}

static void visit_size_bucket(void *user, unsigned bucket, uint64_t count)
{
    struct visit *v = user;
    struct mr_histogram *h = v->w->now ? mr_summary_size_histogram(v->w->now) : NULL;
    if (!h)
        return;
    h->bucket[bucket] += count;
    h->count += count;
}

static void visit_file(void *user, const struct mr_tally_file *row)
{
    struct visit *v = user;
    uint32_t file = row->id < v->j->t->process[v->w->process].strings ? v->j->file_of[v->w->process][row->id] : 0;
    if (!file)
        return;
    struct mr_file_row *r = &v->w->file[file - 1];
    v->w->mixed |= v->j->file_apart.item[file - 1];
    r->calls += row->calls;
    r->opens += row->opens;
    r->read_bytes += row->read_bytes;
    r->written_bytes += row->written_bytes;
    r->dur_ns += row->dur_ns;
}

static const struct mr_mrt_visitor visitor = {.function = visit_function,
                                              .duration = visit_duration,
                                              .size = visit_size,
                                              .sizes = visit_sizes,
                                              .size_bucket = visit_size_bucket,
                                              .file = visit_file};

/* ---- chunks ---- */

/* Lists the events of a block that all belong to one set. */
static void list_all(const struct mr_event_batch *b, struct mr_intervals *list, bool *normal)
{
    struct mr_interval *item = list->item;
    const uint64_t *start = b->c.start_ns, *end = b->c.end_ns;
    size_t n = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        /* Almost always one call after the other. */
        if (MR_LIKELY(n && start[i] > item[n - 1].end && end[i] > start[i]))
            item[n++] = (struct mr_interval){start[i], end[i]};
        else
            mr_run_append(item, &n, start[i], end[i], normal);
    }
    list->n = n;
}

/* What is to be done with the events of a chunk one by one. */
struct task {
    bool count, rows, list, filtered;
};

#define AHEAD 24 /* events */

/* With many files neither their rows nor the ids of their names stay in the cache. Always inline: gcc drops calls of a
 * function that only prefetches, as one without effect. */
static inline __attribute__((always_inline)) void fetch_ahead(const struct summary_worker *w, const uint32_t *file_of,
                                                              uint32_t strings, const uint32_t *id)
{
    if (id[2 * AHEAD] < strings)
        __builtin_prefetch(&file_of[id[2 * AHEAD]]);
    uint32_t soon = id[AHEAD] < strings ? file_of[id[AHEAD]] : 0;
    if (soon)
        __builtin_prefetch(&w->file[soon - 1], 1);
}

/* Goes through the events of a decoded chunk. `list` is false for chunks of one set, which list_all does. */
static int go_through(struct summary_job *j, struct summary_worker *w, const struct mr_trace_chunk *c, uint32_t lane,
                      const struct task *todo, struct mr_run *run, uint8_t *seen, bool normal[MR_SETS])
{
    const struct mr_event_batch *b = &w->batch;
    const uint32_t *file_of = j->file_of[c->process];
    uint32_t strings = j->t->process[c->process].strings, group = j->group_of[c->process];
    uint64_t first = w->group_first[group], last = w->group_last[group];
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
        uint32_t id = b->c.file[i];
        unsigned call = b->c.call[i];
        if (todo->rows && i + 2 * AHEAD < b->count)
            fetch_ahead(w, file_of, strings, b->c.file + i);
        if (start >= j->to_ns || (end <= j->from_ns && start < j->from_ns))
            continue;
        bool aside = call == MR_CALL_metadata || call == MR_CALL_counter; /* an event that belongs to no function */
        uint32_t file = id < strings && !aside ? file_of[id] : 0;
        if (todo->filtered && !wanted(j, group, file, start))
            continue;
        if (todo->count) { /* what overlaps the wanted part makes its thread present; it is counted if it starts there
                            */
            w->present[lane] = 1;
            w->group_events[group] += start >= j->from_ns;
            first = MR_MIN(first, MR_MAX(start, j->from_ns));
            last = MR_MAX(last, MR_MIN(end, j->to_ns));
        }
        if (aside)
            continue;
        uint32_t function = function_of(j, c->process, call, id);
        uint8_t klass = j->function_class.item[function];
        if (file && j->file_apart.item[file - 1])
            klass &= (uint8_t)~MR_CLASS_P;
        for (unsigned s = 0; todo->list && klass >> s; s++)
            if (klass & 1u << s)
                mr_run_append(run->set[s].item, &run->set[s].n, start, end, &normal[s]);
        *seen |= klass;
        if (start < j->from_ns)
            continue;
        if (todo->rows && file && j->call_on_file[call])
            count_row(&w->file[file - 1], j->call_kind[call], end - start, b->c.result[i]);
        if (!todo->count)
            continue;
        struct summary_tally *f = tally_get(w, function);
        if (!f)
            return -ENOMEM;
        count_event(f, j->call_kind[call], end - start, b->c.result[i]);
    }
    w->group_first[group] = first;
    w->group_last[group] = last;
    return 0;
}

static int take_list(struct summary_job *j, struct mr_intervals *v, size_t n)
{
    pthread_mutex_lock(&j->lock);
    if (j->spares)
        *v = j->spare[--j->spares];
    pthread_mutex_unlock(&j->lock);
    v->n = 0;
    if (v->cap >= n)
        return 0;
    free(v->item);
    v->cap = MR_MAX(n, (size_t)MR_BLOCK_EVENTS);
    v->item = malloc(v->cap * sizeof(*v->item));
    if (!v->item)
        v->cap = 0;
    return v->item ? 0 : -ENOMEM;
}

static void drop_list(struct summary_job *j, struct mr_intervals *v)
{
    if (v->item && j->spares < MR_ARRAY_LEN(j->spare))
        j->spare[j->spares++] = *v;
    else
        free(v->item);
    *v = (struct mr_intervals){0};
}

/* Shrinks a complete list: sparse lists would otherwise hold far more memory than they use. */
static void trim_list(struct summary_job *j, struct mr_intervals *v)
{
    if (v->n * 4 > v->cap || !v->item)
        return;
    struct mr_intervals small = {.n = v->n, .cap = v->n, .item = v->n ? malloc(v->n * sizeof(*small.item)) : NULL};
    if (v->n && !small.item)
        return;
    if (v->n)
        memcpy(small.item, v->item, v->n * sizeof(*small.item));
    pthread_mutex_lock(&j->lock);
    drop_list(j, v);
    pthread_mutex_unlock(&j->lock);
    *v = small;
}

/* Counts a whole block by its aggregates, if it has them; *todo is what is left to do. */
static int by_aggregates(struct summary_job *j, struct summary_worker *w, const struct mr_trace_chunk *c, uint32_t lane,
                         struct task *todo, struct mr_error *err)
{
    struct visit v = {j, w};
    uint32_t group = j->group_of[c->process];
    int covers = mr_mrt_aggregates(&c->view, &visitor, &v, err);
    if (covers < 0)
        return covers;
    if (w->failed)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    if (!covers)
        return 0;
    todo->count = false;
    todo->rows = !(covers & MR_COVERS_FILES);
    todo->list = todo->rows || w->mixed || w->odd || (w->classes & (w->classes - 1));
    w->group_events[group] += c->count;
    w->group_first[group] = MR_MIN(w->group_first[group], c->first_ns);
    w->group_last[group] = MR_MAX(w->group_last[group], c->last_ns);
    w->present[lane] = 1;
    return 0;
}

static int work_chunk(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct summary_job *j = ctx->user;
    struct summary_worker *w = &j->worker[ctx->thread];
    size_t chunk = j->order[j->first_chunk + index];
    const struct mr_trace_chunk *c = &j->t->chunk[chunk];
    struct mr_run *run = &j->run.item[j->first_run + index];
    struct task todo = {
        .count = true, .rows = true, .list = true, .filtered = j->file_wanted || j->opt->step_from >= 0};
    bool whole = !c->imported && !todo.filtered && c->first_ns >= j->from_ns && c->last_ns < j->to_ns,
         normal[MR_SETS] = {true, true, true};
    uint8_t seen = 0;
    int rc = 0;
    w->classes = w->mixed = 0;
    w->odd = w->failed = false;
    w->process = c->process;
    if (whole)
        rc = by_aggregates(j, w, c, j->lane_of[chunk], &todo, err);
    bool one_by_one = todo.count || todo.rows || todo.list;
    if (rc == 0 && (one_by_one || w->classes))
        rc = mr_trace_read(j->t, chunk,
                           MR_WANT_TIME | (one_by_one ? MR_WANT_CALL | MR_WANT_FILE : 0) |
                               (todo.count || todo.rows ? MR_WANT_RESULT : 0),
                           &w->batch, err);
    if (rc < 0)
        return rc;
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++)
        if (todo.list || w->classes & 1u << s)
            rc = take_list(j, &run->set[s], c->count);
    if (rc == 0 && one_by_one)
        rc = go_through(j, w, c, j->lane_of[chunk], &todo, run, &seen, normal);
    for (unsigned s = 0; s < MR_SETS && rc == 0 && !todo.list; s++)
        if (w->classes & 1u << s)
            list_all(&w->batch, &run->set[s], &normal[s]);
    for (unsigned s = 0; s < MR_SETS && rc == 0; s++) {
        if (!normal[s])
            mr_intervals_normalise(&run->set[s]);
        trim_list(j, &run->set[s]);
    }
    seen |= todo.list ? 0 : w->classes;
    w->did_io[j->lane_of[chunk]] |= seen & MR_CLASS_P;
    w->did_compute[j->lane_of[chunk]] |= (seen & MR_CLASS_C) != 0;
    return rc < 0 ? mr_error_set(err, rc, "cannot summarise") : 0;
}

static int work_slice(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct summary_job *j = ctx->user;
    struct summary_worker *w = &j->worker[ctx->thread];
    uint64_t span = j->slice_to - j->slice_from;
    uint64_t from = j->slice_from + (uint64_t)((unsigned __int128)span * index / j->slices);
    uint64_t to = j->slice_from + (uint64_t)((unsigned __int128)span * (index + 1) / j->slices);
    assert(from <= to && to <= j->slice_to);
    int rc = mr_timeline_slice(&w->timeline, j->run.item, j->run.n, from, to, &w->all, w->group);
    return rc < 0 ? mr_error_set(err, rc, "cannot summarise") : 0;
}

static int by_group(const void *a, const void *b)
{
    const struct mr_run *x = a, *y = b;
    return x->group != y->group      ? (x->group < y->group ? -1 : 1)
           : x->last_ns < y->last_ns ? -1
                                     : x->last_ns > y->last_ns;
}

void mr_summary_drop_runs(struct summary_job *j, uint64_t before)
{
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) {
        if (j->run.item[i].last_ns > before) {
            j->run.item[n++] = j->run.item[i];
            continue;
        }
        for (unsigned s = 0; s < MR_SETS; s++)
            drop_list(j, &j->run.item[i].set[s]);
    }
    j->run.n = n;
}

/* Counts the next chunks in time, and measures up to where the chunks after them start. */
static int work_round(struct summary_job *j, const atomic_bool *stop, struct mr_error *err)
{
    uint64_t events = 0, begin = MR_MAX(j->t->chunk[j->order[j->first_chunk]].first_ns, j->from_ns);
    size_t n = 0;
    while (j->first_chunk + n < j->ordered && events < ROUND_EVENTS)
        events += j->t->chunk[j->order[j->first_chunk + n++]].count;
    if (MR_VEC_RESERVE(&j->run, j->run.n + n) < 0)
        return mr_error_set(err, -ENOMEM, "cannot summarise");
    j->first_run = j->run.n;
    for (size_t i = 0; i < n; i++) {
        const struct mr_trace_chunk *c = &j->t->chunk[j->order[j->first_chunk + i]];
        j->run.item[j->run.n++] = (struct mr_run){.group = j->group_of[c->process], .last_ns = c->last_ns};
    }
    int rc = mr_workers_run(j->workers, n, 1, work_chunk, j, stop, err);
    if (rc < 0)
        return rc;
    j->first_chunk += n;
    assert(j->first_chunk <= j->ordered && n > 0);
    uint64_t end = j->first_chunk < j->ordered ? j->t->chunk[j->order[j->first_chunk]].first_ns : j->to_ns;
    qsort(j->run.item, j->run.n, sizeof(*j->run.item), by_group);
    j->slice_from = MR_MIN(begin, end);
    j->slice_to = MR_MIN(MR_MAX(end, begin), j->to_ns);
    j->slices = (unsigned)MR_MIN(events / SLICE_EVENTS + 1, (uint64_t)j->workers * 4);
    rc = mr_workers_run(j->workers, j->slices, 1, work_slice, j, stop, err);
    mr_summary_drop_runs(j, end);
    return rc;
}

int mr_summary_work_all(struct summary_job *j, const atomic_bool *stop, struct mr_error *err)
{
    int rc = 0;
    while (rc == 0 && j->first_chunk < j->ordered)
        rc = work_round(j, stop, err);
    return rc;
}
