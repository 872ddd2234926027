/* Adding up what the workers have counted: functions with their quantiles, files, ranks, processes and threads. */
#include "analyze/summary_internal.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const struct mr_map_slot *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The value at a place counted from 0. */
static uint64_t size_at(const struct mr_map_slot *s, size_t n, uint64_t place)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += s[i].value;
        if (seen > place)
            return s[i].key;
    }
    return 0;
}

/* Between two values it is interpolated, as NumPy, pandas and with them DFTracer's analyser do. */
static double exact_quantile(const struct mr_map_slot *s, size_t n, uint64_t total, double q)
{
    double place = q * (double)(total - 1);
    uint64_t below = (uint64_t)place;
    double low = (double)size_at(s, n, below), high = below + 1 < total ? (double)size_at(s, n, below + 1) : low;
    return low + (high - low) * (place - (double)below);
}

/* Exact quantiles while the different sizes are few; from the histogram (within 3.2 %) otherwise. */
static int finish_sizes(struct summary_job *j, struct mr_function *f, uint32_t index)
{
    size_t n = 0, m = 0, room = 1;
    bool spilled = false;
    for (unsigned k = 0; k < j->workers; k++)
        room += j->worker[k].tally[index].sizes.used;
    struct mr_map_slot *s = malloc(room * sizeof(*s));
    if (!s)
        return -ENOMEM;
    for (unsigned k = 0; k < j->workers; k++) {
        const struct summary_tally *t = &j->worker[k].tally[index];
        size_t at = 0;
        for (const struct mr_map_slot *one; (one = mr_map_next(&t->sizes, &at));)
            s[n++] = *one;
        spilled |= t->spilled;
    }
    qsort(s, n, sizeof(*s), by_size);
    for (size_t i = 0; i < n; i++) {
        if (m && s[m - 1].key == s[i].key)
            s[m - 1].value += s[i].value;
        else
            s[m++] = s[i];
    }
    f->sizes = j->size.count;
    f->size_min = j->size.min;
    f->size_max = j->size.max;
    f->sizes_exact = !spilled;
    double *const to[] = {&f->size_25, &f->size_median, &f->size_75};
    for (unsigned q = 0; q < 3 && f->sizes; q++)
        *to[q] =
            spilled ? mr_histogram_between(&j->size, 0.25 * (q + 1)) : exact_quantile(s, m, f->sizes, 0.25 * (q + 1));
    free(s);
    return 0;
}

/* Adds up the durations of a function: exact counts beside the buckets, as if every value had been added. */
static void finish_durations(struct summary_job *j, struct mr_function *f, uint32_t index)
{
    struct mr_histogram *h = &j->dur;
    mr_histogram_init(h);
    h->count = f->count;
    h->min = UINT64_MAX;
    for (unsigned k = 0; k < j->workers; k++) {
        const struct summary_tally *t = &j->worker[k].tally[index];
        if (!t->count)
            continue;
        mr_summary_put_buckets(h, t);
        h->min = MR_MIN(h->min, t->dur_min);
        h->max = MR_MAX(h->max, t->dur_max);
    }
    f->dur_min = h->min;
    uint64_t *const to[] = {&f->dur_25, &f->dur_median, &f->dur_75, &f->dur_99};
    static const double at[] = {0.25, 0.5, 0.75, 0.99};
    for (unsigned q = 0; q < MR_ARRAY_LEN(at); q++) {
        double ns = mr_histogram_between(h, at[q]);
        *to[q] = ns < (double)h->max ? (uint64_t)(ns + 0.5) : h->max;
    }
    f->dur_max = h->max;
}

static void add_sizes(struct summary_job *j, struct summary_tally *t)
{
    if (t->size)
        mr_histogram_merge(&j->size, t->size);
    size_t at = 0;
    for (const struct mr_map_slot *one; (one = mr_map_next(&t->sizes, &at));) {
        mr_histogram_add_n(&j->size, one->key, one->value);
        t->bin[mr_tally_bin(one->key)] += one->value;
    }
}

/* Whether filters select a part of the processes' events: calls that sampling left out have no time and no file, so
 * their number is unknown then. */
static bool is_cut(const struct summary_job *j)
{
    return j->file_wanted || j->opt->step_from >= 0 || j->opt->from_ns || j->opt->to_ns;
}

static void count_sampled_out(const struct summary_job *j, struct mr_summary *s)
{
    for (size_t p = 0; p < j->t->processes; p++)
        for (unsigned c = 0;
             j->t->process[p].skipped && mr_summary_rank_wanted(j, &j->t->process[p]) && c < MR_CALL_COUNT; c++)
            s->sampled_out += j->t->process[p].skipped[c];
}

static int finish_function(struct summary_job *j, struct mr_summary *s, uint32_t index)
{
    struct mr_function f = j->function.item[index];
    uint8_t kind = j->call_kind[f.call];
    bool io = j->function_class.item[index] & MR_CLASS_P;
    for (unsigned k = 0; k < j->workers; k++)
        f.count += j->worker[k].tally[index].count;
    if (!f.count)
        return 0;
    if (j->size.count || j->size.max)
        mr_histogram_init(&j->size);
    for (unsigned k = 0; k < j->workers; k++) {
        struct summary_tally *t = &j->worker[k].tally[index];
        if (t->failed)
            return -ENOMEM;
        f.errors += t->errors;
        f.dur_ns += t->dur_ns;
        f.bytes += t->bytes;
        add_sizes(j, t);
        for (unsigned b = 0; b < MR_TALLY_BINS && io; b++)
            s->size_bins[b] += t->bin[b];
    }
    for (size_t p = 0; f.call && !is_cut(j) && p < j->t->processes; p++)
        if (j->t->process[p].skipped && mr_summary_rank_wanted(j, &j->t->process[p]))
            f.skipped += j->t->process[p].skipped[f.call];
    finish_durations(j, &f, index);
    int rc = finish_sizes(j, &f, index);
    if (io && f.sizes) { /* totals are those of POSIX: layers above it would count the same bytes again */
        s->read_bytes += kind != MR_EV_WRITE ? f.bytes : 0;
        s->read_calls += kind != MR_EV_WRITE ? f.sizes : 0;
        s->written_bytes += kind != MR_EV_READ ? f.bytes : 0;
        s->write_calls += kind != MR_EV_READ ? f.sizes : 0;
    }
    if (io)
        *(mr_kind_moves_data(kind) ? &s->data_ns : &s->metadata_ns) += f.dur_ns;
    s->function[s->functions++] = f;
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct mr_function *x = a, *y = b;
    if (x->dur_ns != y->dur_ns)
        return x->dur_ns > y->dur_ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_bytes(const void *a, const void *b)
{
    const struct mr_file_row *x = a, *y = b;
    uint64_t p = x->read_bytes + x->written_bytes, q = y->read_bytes + y->written_bytes;
    if (p != q)
        return p > q ? -1 : 1;
    if (x->calls != y->calls)
        return x->calls > y->calls ? -1 : 1;
    int order = memcmp(x->path, y->path, MR_MIN(x->path_len, y->path_len));
    return order ? order : (x->path_len > y->path_len) - (x->path_len < y->path_len);
}

static void sort_files(struct mr_summary *s, size_t top)
{
    qsort(s->file, s->file_rows, sizeof(*s->file), by_bytes);
    s->file_rows = MR_MIN(s->file_rows, top);
}

/* Typically ten of a million files are listed: rows are collected up to twice that number, sorted, and from then on
 * only those that beat the worst of the best are collected. */
static int finish_files(struct summary_job *j, struct mr_summary *s)
{
    size_t top = j->opt->top_files ? MR_MIN(j->opt->top_files, j->file.n) : j->file.n,
           room = MR_MIN(2 * top, j->file.n);
    const struct mr_file_row *worst = NULL; /* of the best ones, once there are enough */
    s->file = mr_arena_alloc(&s->arena, (room + 1) * sizeof(*s->file));
    if (!s->file)
        return -ENOMEM;
    for (size_t i = 0; i < j->file.n; i++) {
        struct mr_file_row r = j->file.item[i];
        for (unsigned k = 0; k < j->workers; k++) {
            const struct mr_file_row *w = &j->worker[k].file[i];
            r.calls += w->calls;
            r.read_bytes += w->read_bytes;
            r.written_bytes += w->written_bytes;
            r.dur_ns += w->dur_ns;
            r.opens += w->opens;
        }
        if (!r.calls)
            continue;
        s->files++;
        if (worst && by_bytes(&r, worst) > 0)
            continue;
        if (s->file_rows == room) {
            sort_files(s, top);
            worst = &s->file[top - 1];
        }
        s->file[s->file_rows++] = r;
    }
    sort_files(s, top);
    return 0;
}

struct pair {
    uint32_t node, pid, again;
};

static int by_pair(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->again < y->again ? -1 : x->again > y->again;
}

static bool is_present(const struct summary_job *j, size_t chunk)
{
    bool there = !is_cut(j);
    for (unsigned k = 0; k < j->workers && !there; k++)
        there = j->worker[k].present[j->lane_of[chunk]] != 0;
    return there;
}

/* Processes are counted by node and pid: after an exec it is still the same process. With filters, only those count
 * that have events left. */
static int count_processes(struct summary_job *j, struct mr_summary *s)
{
    struct pair *p = malloc((j->t->processes + 1) * sizeof(*p));
    bool *there = calloc(j->t->processes + 1, sizeof(*there));
    size_t n = 0;
    if (!p || !there) {
        free(p);
        free(there);
        return -ENOMEM;
    }
    for (size_t i = 0; i < j->t->chunks && is_cut(j); i++)
        if (mr_summary_rank_wanted(j, &j->t->process[j->t->chunk[i].process]))
            there[j->t->chunk[i].process] |= is_present(j, i);
    for (size_t i = 0; i < j->t->processes; i++)
        if (mr_summary_rank_wanted(j, &j->t->process[i]) && (there[i] || !is_cut(j)))
            p[n++] = (struct pair){j->t->process[i].node, j->t->process[i].pid, j->t->process[i].again};
    free(there);
    qsort(p, n, sizeof(*p), by_pair);
    for (size_t i = 0; i < n; i++) {
        s->processes += !i || by_pair(&p[i], &p[i - 1]);
        s->nodes += !i || p[i].node != p[i - 1].node;
    }
    free(p);
    return 0;
}

static void add_split(struct mr_time_split *to, const struct mr_time_split *from)
{
    for (unsigned n = 0; n < MR_SETS; n++)
        to->ns[n] += from->ns[n];
    to->a_and_c += from->a_and_c;
    to->p_and_c += from->p_and_c;
}

/* Rows of ranks, and the whole. */
static int finish_times(struct summary_job *j, struct mr_summary *s)
{
    uint64_t first = UINT64_MAX, last = 0;
    struct mr_time_split all = {0};
    s->rank = mr_arena_alloc(&s->arena, (j->groups + 1) * sizeof(*s->rank));
    if (!s->rank)
        return -ENOMEM;
    for (uint32_t g = 0; g < j->groups; g++) {
        struct mr_rank_row *r = &s->rank[s->ranks];
        uint64_t from = UINT64_MAX, to = 0;
        *r = (struct mr_rank_row){.rank = j->group_rank[g]};
        for (unsigned k = 0; k < j->workers; k++) {
            const struct summary_worker *w = &j->worker[k];
            r->events += w->group_events[g];
            from = MR_MIN(from, w->group_first[g]);
            to = MR_MAX(to, w->group_last[g]);
            add_split(&r->time, &w->group[g]);
        }
        r->total_ns = to > from ? to - from : 0;
        first = MR_MIN(first, from);
        last = MR_MAX(last, to);
        s->events += r->events;
        s->ranks += r->events != 0;
    }
    for (unsigned k = 0; k < j->workers; k++)
        add_split(&all, &j->worker[k].all);
    assert(s->ranks <= j->groups);
    s->total_ns = last > first ? last - first : 0;
    s->app_io_ns = all.ns[MR_SET_A];
    s->compute_ns = all.ns[MR_SET_C];
    s->io_ns = all.ns[MR_SET_P];
    s->app_io_only_ns = s->app_io_ns - all.a_and_c;
    s->compute_only_app_ns = s->compute_ns - all.a_and_c;
    s->io_only_ns = s->io_ns - all.p_and_c;
    s->compute_only_ns = s->compute_ns - all.p_and_c;
    return 0;
}

struct thread {
    uint32_t node, pid, again, tid;
    bool io, compute, there;
};

static int by_thread(const void *a, const void *b)
{
    const struct thread *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->again != y->again)
        return x->again < y->again ? -1 : 1;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Threads are counted by node, pid and tid: a process may appear several times, after an exec or because its page
 * faults were traced. */
static int count_threads(const struct summary_job *j, struct mr_summary *s)
{
    struct thread *t = calloc((size_t)j->lanes + 1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    for (size_t i = 0; i < j->t->chunks; i++) {
        const struct mr_trace_process *p = &j->t->process[j->t->chunk[i].process];
        uint32_t l = j->lane_of[i];
        if (!mr_summary_rank_wanted(j, p))
            continue;
        t[l] = (struct thread){
            .node = p->node, .pid = p->pid, .again = p->again, .tid = j->t->chunk[i].tid, .there = is_present(j, i)};
        for (unsigned k = 0; k < j->workers; k++) {
            t[l].io |= j->worker[k].did_io[l] != 0;
            t[l].compute |= j->worker[k].did_compute[l] != 0;
        }
    }
    qsort(t, j->lanes, sizeof(*t), by_thread);
    for (uint32_t i = 0; i < j->lanes; i++) {
        bool next = i + 1 < j->lanes && by_thread(&t[i], &t[i + 1]) == 0;
        if (next) { /* one thread: what it did is passed on */
            t[i + 1].io |= t[i].io;
            t[i + 1].compute |= t[i].compute;
            t[i + 1].there |= t[i].there;
            continue;
        }
        s->threads += t[i].there;
        s->io_threads += t[i].io;
        s->compute_threads += t[i].compute;
    }
    free(t);
    return 0;
}

int mr_summary_finish(struct summary_job *j, struct mr_summary *s)
{
    s->function = mr_arena_alloc(&s->arena, (j->function.n + 1) * sizeof(*s->function));
    int rc = s->function ? count_processes(j, s) : -ENOMEM;
    for (uint32_t i = 0; i < j->function.n && rc == 0; i++)
        rc = finish_function(j, s, i);
    rc = rc ? rc : finish_files(j, s);
    rc = rc ? rc : finish_times(j, s);
    if (rc < 0)
        return rc;
    qsort(s->function, s->functions, sizeof(*s->function), by_time);
    if (count_threads(j, s) < 0)
        return -ENOMEM;
    count_sampled_out(j, s);
    s->lost = j->t->lost;
    s->skipped_bytes = j->t->skipped_bytes;
    s->skipped_lines = j->t->skipped_lines;
    s->gone = j->t->gone;
    return 0;
}
