/* Figures over storage calls, by name (io_pattern.h). Each is computed from the selected calls when it is asked for:
 * lists are at most some hundred thousand calls and figures a dozen, so nothing is kept between them.
 *
 * Selected calls lie in an array of indices in the order (rank, start); figures per stream or file sort a copy. */
#include "metrics/io_pattern.h"

#include "base/common.h"
#include "metrics/intervals.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct selection {
    struct mr_io_calls *c;
    const struct mr_event **e;
    size_t n;
    uint16_t kind;
};

static int by_rank_start(const void *a, const void *b)
{
    const struct mr_event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->start_ns != y->start_ns ? (x->start_ns < y->start_ns ? -1 : 1) : 0;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Opens come before the calls of the same moment, so that they begin a new stream. */
static int by_stream(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    int d = compare(x->rank, y->rank);
    if (!d)
        d = compare(x->tid, y->tid);
    if (!d)
        d = compare(x->path_id, y->path_id);
    if (!d)
        d = compare(x->start_ns, y->start_ns);
    return d ? d : compare(x->kind, y->kind);
}

static int by_rank_file(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    int d = compare(x->rank, y->rank);
    if (!d)
        d = compare(x->path_id, y->path_id);
    return d ? d : compare(x->start_ns, y->start_ns);
}

static int by_file_rank(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    int d = compare(x->path_id, y->path_id);
    if (!d)
        d = compare(x->rank, y->rank);
    return d ? d : compare(x->offset, y->offset);
}

static int by_size(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    return compare((uint64_t)x->result, (uint64_t)y->result);
}

/* ---- sums ---- */

static double bytes_of(const struct selection *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->e[i]->result;
    return sum;
}

static double duration_of(const struct selection *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->e[i]->dur_ns;
    return sum / 1e9;
}

/* Seconds with any of the calls in flight; rank < 0: of all ranks together. */
static double union_of(const struct selection *s, int64_t rank)
{
    struct mr_intervals v = {0};
    double out = NAN;
    for (size_t i = 0; i < s->n; i++)
        if ((rank < 0 || s->e[i]->rank == (uint32_t)rank) &&
            mr_intervals_add(&v, s->e[i]->start_ns, s->e[i]->start_ns + s->e[i]->dur_ns))
            goto done;
    mr_intervals_normalise(&v);
    out = (double)mr_intervals_length(&v) / 1e9;
done:
    mr_intervals_done(&v);
    return out;
}

/* ---- sizes ---- */

static double modal_size(struct selection *s)
{
    size_t best = 0, run = 0;
    double mode = NAN;
    qsort(s->e, s->n, sizeof(*s->e), by_size);
    for (size_t i = 0; i < s->n; i++) {
        run = i && s->e[i]->result == s->e[i - 1]->result ? run + 1 : 1;
        if (run > best) {
            best = run;
            mode = (double)s->e[i]->result;
        }
    }
    return mode;
}

/* "2000+6000" */
static int size_share(const struct selection *s, const char *sizes, double *out)
{
    size_t hits = 0;
    while (*sizes) {
        char *end;
        long long size = strtoll(sizes, &end, 10);
        if (end == sizes || (*end && *end != '+'))
            return -ENOENT;
        for (size_t i = 0; i < s->n; i++)
            hits += s->e[i]->result == size;
        sizes = end + (*end == '+');
    }
    *out = s->n ? (double)hits / (double)s->n : NAN;
    return 0;
}

/* ---- order inside files ---- */

static double order_share(struct selection *s, bool consecutive, bool darshan)
{
    struct mr_io_calls *c = s->c;
    const struct mr_event **all = malloc((c->n + 1) * sizeof(*all));
    size_t n = 0, follow = 0, hits = 0;
    if (!all)
        return NAN;
    for (size_t i = 0; i < s->n; i++)
        all[n++] = s->e[i];
    for (size_t i = 0; i < c->n && !darshan; i++)
        if (c->events[i].kind == MR_EV_OPEN)
            all[n++] = &c->events[i];
    qsort(all, n, sizeof(*all), darshan ? by_rank_file : by_stream);
    bool fresh = true;
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mr_event *e = all[i], *last = i ? all[i - 1] : NULL;
        if (!last || last->rank != e->rank || last->path_id != e->path_id || (!darshan && last->tid != e->tid))
            fresh = true;
        if (e->kind == MR_EV_OPEN) {
            fresh = true;
            continue;
        }
        /* Darshan starts with a last byte of 0: a first call at offset 0 is neither, one further on is sequential. */
        if (!fresh)
            hits += consecutive ? e->offset == end : e->offset >= end;
        else if (darshan)
            hits += !consecutive && e->offset > 0;
        follow += !fresh || darshan;
        fresh = false;
        end = e->offset + (uint64_t)e->result;
    }
    free(all);
    return follow ? (double)hits / (double)follow : NAN;
}

/* ---- concurrency ---- */

struct edge {
    uint64_t at;
    uint32_t rank;
    int step;
};

static int by_edge(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    int d = compare(x->rank, y->rank);
    if (!d)
        d = compare(x->at, y->at);
    return d ? d : x->step - y->step; /* an end and a start at the same moment do not overlap */
}

static double concurrency(const struct selection *s)
{
    struct edge *v = malloc((2 * s->n + 1) * sizeof(*v));
    long now = 0, most = 0;
    if (!v)
        return NAN;
    for (size_t i = 0; i < s->n; i++) {
        v[2 * i] = (struct edge){s->e[i]->start_ns, s->e[i]->rank, 1};
        v[2 * i + 1] = (struct edge){s->e[i]->start_ns + s->e[i]->dur_ns, s->e[i]->rank, -1};
    }
    qsort(v, 2 * s->n, sizeof(*v), by_edge);
    for (size_t i = 0; i < 2 * s->n; i++) {
        now += v[i].step;
        most = MR_MAX(most, now);
    }
    free(v);
    return (double)most;
}

/* ---- files ---- */

struct file_sums {
    double touched, passes, once, disjoint; /* files */
    double mean, m2;                        /* of bytes per pass, running */
    double distinct, per_rank, by_all;      /* bytes */
    double rank_files;                      /* (rank, file) pairs */
};

/* Bytes inside `depth` of the intervals at once. */
static double bytes_at_depth(struct edge *v, size_t n, long depth)
{
    double sum = 0;
    long now = 0;
    qsort(v, n, sizeof(*v), by_edge);
    for (size_t i = 0; i < n; i++) {
        now += v[i].step;
        if (now == depth && i + 1 < n)
            sum += (double)(v[i + 1].at - v[i].at);
    }
    return sum;
}

/* What each rank touched of one file, without repetitions, as edges; *bytes counts repetitions too. */
static int rank_edges(const struct selection *s, size_t first, size_t last, struct edge *v, size_t *n, uint32_t *ranks,
                      double *bytes)
{
    struct mr_intervals mine = {0};
    for (size_t i = first; i < last;) {
        uint32_t rank = s->e[i]->rank;
        mine.n = 0;
        for (; i < last && s->e[i]->rank == rank; i++) {
            *bytes += (double)s->e[i]->result;
            if (mr_intervals_add(&mine, s->e[i]->offset, s->e[i]->offset + (uint64_t)s->e[i]->result)) {
                mr_intervals_done(&mine);
                return -ENOMEM;
            }
        }
        mr_intervals_normalise(&mine);
        for (size_t k = 0; k < mine.n; k++) {
            v[(*n)++] = (struct edge){mine.item[k].start, 0, 1};
            v[(*n)++] = (struct edge){mine.item[k].end, 0, -1};
        }
        ++*ranks;
    }
    mr_intervals_done(&mine);
    return 0;
}

/* The calls of one file: they lie in [first, last), sorted by rank and offset. */
static int add_file(const struct selection *s, size_t first, size_t last, struct file_sums *f)
{
    struct edge *v = malloc(2 * (last - first) * sizeof(*v));
    double bytes = 0, size = (double)s->c->file_bytes[s->e[first]->path_id];
    uint32_t ranks = 0;
    size_t n = 0;
    if (!v || rank_edges(s, first, last, v, &n, &ranks, &bytes)) {
        free(v);
        return -ENOMEM;
    }
    for (uint32_t d = 1; d <= ranks; d++) {
        double here = bytes_at_depth(v, n, d);
        f->distinct += here;
        f->per_rank += d * here;
        f->by_all += d == s->c->ranks ? here : 0;
    }
    free(v);
    double passes = size > 0 ? bytes / size : 0, each = bytes / MR_MAX(1.0, round(passes));
    f->touched++;
    f->passes += passes;
    f->once += passes < 1.5;
    f->disjoint += ranks == 1;
    f->rank_files += ranks;
    double delta = each - f->mean;
    f->mean += delta / f->touched;
    f->m2 += delta * (each - f->mean);
    return 0;
}

static int sum_files(struct selection *s, struct file_sums *f)
{
    memset(f, 0, sizeof(*f));
    qsort(s->e, s->n, sizeof(*s->e), by_file_rank);
    for (size_t i = 0, last; i < s->n; i = last) {
        for (last = i; last < s->n && s->e[last]->path_id == s->e[i]->path_id; last++)
            ;
        int rc = add_file(s, i, last, f);
        if (rc)
            return rc;
    }
    return 0;
}

static double over(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static int file_figure(struct selection *s, const char *name, double *out)
{
    struct file_sums f;
    int rc = sum_files(s, &f);
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"files_touched", f.touched},
        {"file_passes", f.passes},
        {"passes_per_file", over(f.passes, f.touched)},
        {"files_per_rank", over(f.rank_files, s->c->ranks)},
        {"once_share", over(f.once, f.touched)},
        {"pass_bytes_cv", over(f.touched > 0 ? sqrt(f.m2 / f.touched) : 0, f.mean)},
        {"disjoint_files_share", over(f.disjoint, f.touched)},
        {"sharing_degree", over(f.per_rank, f.distinct)},
        {"rank_overlap_share", over(f.by_all, f.distinct)},
    };
    for (size_t i = 0; !rc && i < MR_ARRAY_LEN(rows); i++)
        if (!strcmp(name, rows[i].name)) {
            *out = rows[i].value;
            return 0;
        }
    return rc ? rc : -ENOENT;
}

/* ---- the simple ones ---- */

static double opens_of(const struct selection *s)
{
    bool *used = calloc(s->c->n_paths + 1, sizeof(*used));
    double opens = 0;
    if (!used)
        return NAN;
    for (size_t i = 0; i < s->n; i++)
        used[s->e[i]->path_id] = true;
    for (size_t i = 0; i < s->c->n; i++)
        opens += s->c->events[i].kind == MR_EV_OPEN && used[s->c->events[i].path_id];
    free(used);
    return opens;
}

static double max_size(const struct selection *s)
{
    int64_t most = -1;
    for (size_t i = 0; i < s->n; i++)
        most = MR_MAX(most, s->e[i]->result);
    return most < 0 ? NAN : (double)most;
}

/* Bytes (or calls) that began before the first compute. */
static double before_training(const struct selection *s, bool count)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->e[i]->start_ns < s->c->train_start_ns)
            sum += count ? 1 : (double)s->e[i]->result;
    return sum;
}

static int figure(struct selection *s, const char *name, double *out)
{
    double n = (double)s->n, bytes = bytes_of(s), ranks = s->c->ranks;
    if (!strncmp(name, "size_share.", 11))
        return size_share(s, name + 11, out);
    if (!strcmp(name, "count"))
        *out = n;
    else if (!strcmp(name, "bytes"))
        *out = bytes;
    else if (!strcmp(name, "count_per_rank"))
        *out = n / ranks;
    else if (!strcmp(name, "bytes_per_rank"))
        *out = bytes / ranks;
    else if (!strcmp(name, "mean_size"))
        *out = over(bytes, n);
    else if (!strcmp(name, "modal_size"))
        *out = modal_size(s);
    else if (!strcmp(name, "max_size"))
        *out = max_size(s);
    else if (!strcmp(name, "sequential_share") || !strcmp(name, "consecutive_share"))
        *out = order_share(s, name[0] == 'c', false);
    else if (!strcmp(name, "sequential_share_darshan") || !strcmp(name, "consecutive_share_darshan"))
        *out = order_share(s, name[0] == 'c', true);
    else if (!strcmp(name, "request_bytes_per_s"))
        *out = over(bytes, duration_of(s));
    else if (!strcmp(name, "busy_bytes_per_s"))
        *out = over(bytes, union_of(s, -1));
    else if (!strcmp(name, "concurrency_in_rank"))
        *out = concurrency(s);
    else if (!strcmp(name, "per_dataset_byte"))
        *out = over(bytes, (double)s->c->dataset_bytes);
    else if (!strcmp(name, "per_open"))
        *out = over(n, opens_of(s));
    else if (!strcmp(name, "before_training_share"))
        *out = over(before_training(s, false), bytes);
    else if (!strcmp(name, "during_training_count"))
        *out = n - before_training(s, true);
    else
        return file_figure(s, name, out);
    return 0;
}

/* ---- selecting ---- */

/* Keeps the first `limit` calls of each rank, or those after them. The list is in rank and start order. */
static void cut(struct selection *s, size_t limit, bool head)
{
    size_t kept = 0, seen = 0;
    for (size_t i = 0; i < s->n; i++) {
        seen = i && s->e[i]->rank == s->e[i - 1]->rank ? seen + 1 : 1;
        if ((seen <= limit) == head)
            s->e[kept++] = s->e[i];
    }
    s->n = kept;
}

static int selected(struct mr_io_calls *c, const char *name, uint16_t kind, double *out)
{
    struct selection s = {.c = c, .e = malloc((c->n + 1) * sizeof(*s.e)), .kind = kind};
    if (!s.e)
        return -ENOMEM;
    for (size_t i = 0; i < c->n; i++)
        if (c->events[i].kind == kind && (kind == MR_EV_OPEN || c->events[i].result > 0))
            s.e[s.n++] = &c->events[i];
    bool head = !strncmp(name, "head", 4), tail = !strncmp(name, "tail", 4);
    int rc = 0;
    if (head || tail) {
        char *end;
        unsigned long limit = strtoul(name + 4, &end, 10);
        rc = end == name + 4 || *end != '.' ? -ENOENT : 0;
        name = rc ? name : end + 1;
        if (!rc)
            cut(&s, limit, head);
    }
    if (!rc)
        rc = figure(&s, name, out);
    free(s.e);
    return rc;
}

static int io_share(struct mr_io_calls *c, bool darshan, double *out)
{
    struct selection s = {.c = c, .e = malloc((c->n + 1) * sizeof(*s.e))};
    double t = (double)(c->end_ns - c->start_ns) / 1e9, sum = 0;
    if (!s.e)
        return -ENOMEM;
    for (size_t i = 0; i < c->n; i++)
        s.e[s.n++] = &c->events[i];
    for (uint32_t r = 0; r < c->ranks && !darshan; r++)
        sum += union_of(&s, r);
    if (darshan)
        sum = duration_of(&s);
    free(s.e);
    *out = over(sum / c->ranks, t);
    return 0;
}

int mr_io_pattern_get(struct mr_io_calls *c, const char *name, double *out)
{
    static const struct {
        const char *prefix;
        uint16_t kind;
    } kinds[] = {{"posix.read.", MR_EV_READ}, {"posix.write.", MR_EV_WRITE}, {"posix.open.", MR_EV_OPEN}};
    double value = NAN;
    int rc = -ENOENT;
    qsort(c->events, c->n, sizeof(*c->events), by_rank_start);
    for (size_t i = 0; i < MR_ARRAY_LEN(kinds); i++)
        if (!strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)))
            rc = selected(c, name + strlen(kinds[i].prefix), kinds[i].kind, &value);
    if (!strcmp(name, "io.share_darshan") || !strcmp(name, "io.share_union"))
        rc = io_share(c, name[9] == 'd', &value);
    if (!rc)
        *out = value;
    return rc;
}
