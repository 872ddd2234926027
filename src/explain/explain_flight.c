/* Reads in flight and what they bring together: see explain_flight.h. For each read, the mean number of reads in flight
 * while it lasted (a sweep over all starts and ends) and its own rate; their product is what the storage gave to all.
 */
#include "explain/explain_flight.h"
#include "base/common.h"
#include "explain/explain.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define READS_MOST (1u << 17) /* that are looked at; a worker keeps twice as many: some MB */
#define READS_LEAST 64u
#define APART 1.6 /* so many more in flight: less tells nothing */
#define SHARED 0.2
#define OWN 0.6
#define ALIKE 1.5 /* sizes: so many times */
#define FEW 0.75  /* of nearly the most reads in flight: clearly fewer */
#define MANY 0.9
#define FEW_LEAST 5u
#define MANY_LEAST 20u
#define NORMAL_MEDIAN 1.86 /* standard error of a median over the median deviation, x sqrt(n) */

static int by_start(const void *a, const void *b)
{
    const struct explain_read *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void mr_explain_flight_add(struct explain_flight *f, uint64_t start, uint64_t end, uint64_t bytes)
{
    if (end <= start || !bytes)
        return;
    if (f->read.n == 2 * READS_MOST) {
        qsort(f->read.item, f->read.n, sizeof(*f->read.item), by_start);
        f->read.n = READS_MOST;
    }
    struct explain_read *r = MR_VEC_ADD(&f->read);
    if (r)
        *r = (struct explain_read){start, end, bytes};
}

/* How many reads were in flight while this one was, itself counted in, and how quick it was. */
struct shared_read {
    double flying, rate, bytes;
};

struct edge {
    uint64_t at;
    double sum; /* of the time in flight of all reads until then, ns */
    int step;   /* a read begins or ends */
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_flying(const void *a, const void *b)
{
    const struct shared_read *x = a, *y = b;
    if (x->flying != y->flying)
        return x->flying < y->flying ? -1 : 1;
    if (x->rate != y->rate)
        return x->rate < y->rate ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Time in flight of all reads together until `at`, which is one of the edges. */
static double sum_until(const struct edge *e, size_t n, uint64_t at)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (e[mid].at < at)
            low = mid + 1;
        else
            high = mid;
    }
    return e[low].sum;
}

static void sum_up(struct edge *e, size_t n)
{
    int flying = 0;
    double sum = 0;
    qsort(e, n, sizeof(*e), by_time);
    for (size_t i = 0; i < n; i++) {
        sum += i ? (double)(e[i].at - e[i - 1].at) * flying : 0;
        e[i].sum = sum;
        flying += e[i].step;
    }
}

struct quarter {
    double flying, bytes, seconds, n;
};

static void add(struct quarter *q, const struct shared_read *r)
{
    q->flying += r->flying;
    q->bytes += r->bytes;
    q->seconds += r->bytes / r->rate;
    q->n++;
}

/* Bytes per second while at least one read was in flight. */
static double busy_rate(const struct shared_read *r, size_t n, const struct edge *e, size_t edges)
{
    double bytes = 0, ns = 0;
    int flying = 0;
    for (size_t i = 0; i < n; i++)
        bytes += r[i].bytes;
    for (size_t i = 0; i < edges; i++) {
        ns += flying ? (double)(e[i].at - e[i - 1].at) : 0;
        flying += e[i].step;
    }
    return ns > 0 ? bytes / ns * 1e9 : NAN;
}

/* The quarter with fewest others beside it, and the one with most: what the storage gave to all of them together. Where
 * that is the same, it is what the storage gave whenever it was busy: single reads that waited for others, or for a
 * credit that a throttle had saved up, tell less. */
static void compare(struct shared_read *r, size_t n, double busy, double ranks, struct mr_explain_facts *f)
{
    struct quarter few = {0}, many = {0};
    qsort(r, n, sizeof(*r), by_flying);
    for (size_t i = 0; i < n / 4; i++) {
        add(&few, &r[i]);
        add(&many, &r[n - 1 - i]);
    }
    if (many.flying < APART * few.flying || many.bytes > 2 * few.bytes || few.bytes > 2 * many.bytes)
        return; /* always about as many, or other requests: nothing to compare */
    double less = few.flying / few.n * few.bytes / few.seconds, more = many.flying / many.n * many.bytes / many.seconds;
    /* 0: all share one rate; 1: each has its own. What lies between is no answer. */
    double grows = log(more / less) / log(many.flying / few.flying);
    if (grows > SHARED && grows < OWN)
        return;
    f->streams[0] = few.flying / few.n / fmax(1, ranks);
    f->streams[1] = many.flying / many.n / fmax(1, ranks);
    f->stream_bytes_per_s[0] = grows <= SHARED ? busy : less;
    f->stream_bytes_per_s[1] = grows <= SHARED ? fmax(1, fmin(more / less, 1.1)) * busy : more;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle of reads [from, to) by flying: logarithms of how many there were and of how long they took, and the
 * standard error of the latter. `v`: room for all. */
struct middle {
    double n, flying, took, error;
};

static struct middle middle_of(const struct shared_read *r, size_t from, size_t to, double *v)
{
    size_t n = to - from;
    struct middle m = {.n = (double)n, .flying = log(r[from + n / 2].flying)};
    for (size_t i = 0; i < n; i++)
        v[i] = log(r[from + i].bytes / r[from + i].rate);
    qsort(v, n, sizeof(*v), ascending);
    m.took = v[n / 2];
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - m.took);
    qsort(v, n, sizeof(*v), ascending);
    m.error = NORMAL_MEDIAN * v[n / 2] / sqrt((double)n);
    return m;
}

static size_t below(const struct shared_read *r, size_t n, double flying)
{
    size_t k = 0;
    while (k < n && r[k].flying < flying)
        k++;
    return k;
}

/* Whether reads take longer the more of them there are: those with nearly all others beside them against those with
 * clearly fewer. In between tells nothing: a reader that pauses for less than a turn has its place in the queue again
 * before it is missed. Reads of like size only, medians, since first reads start things up. Sorts them. */
static int slope_of(struct shared_read *r, size_t n, double *slope, double *error)
{
    double bytes = 0, *v = malloc((n + 1) * sizeof(*v));
    size_t m = 0;
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        bytes += r[i].bytes / (double)n;
    for (size_t i = 0; i < n; i++)
        if (r[i].bytes >= bytes / ALIKE && r[i].bytes <= ALIKE * bytes)
            r[m++] = r[i];
    qsort(r, m, sizeof(*r), by_flying);
    double most = m ? r[m - 1 - m / 20].flying : 0;
    size_t few = below(r, m, FEW * most), many = below(r, m, MANY * most);
    if (few >= FEW_LEAST && m - many >= MANY_LEAST) {
        struct middle a = middle_of(r, 0, few, v), b = middle_of(r, many, m, v);
        *slope = (b.took - a.took) / (b.flying - a.flying);
        *error = sqrt(a.error * a.error + b.error * b.error) / (b.flying - a.flying);
    }
    free(v);
    return 0;
}

/* The reads of all, with those that flew beside each. */
struct reads {
    struct edge *e;
    struct shared_read *r;
    size_t n, edges;
};

static int join(struct explain_flight *const *flight, unsigned n, struct reads *out)
{
    size_t reads = 0, kept = 0;
    for (unsigned i = 0; i < n; i++)
        reads += flight[i]->read.n;
    *out = (struct reads){0};
    if (reads < READS_LEAST)
        return 0;
    struct explain_read *all = malloc(reads * sizeof(*all));
    out->e = malloc(2 * reads * sizeof(*out->e));
    out->r = malloc(reads * sizeof(*out->r));
    if (!all || !out->e || !out->r) {
        free(all);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < n; i++) {
        if (flight[i]->read.n)
            memcpy(all + kept, flight[i]->read.item, flight[i]->read.n * sizeof(*all));
        kept += flight[i]->read.n;
    }
    qsort(all, kept, sizeof(*all), by_start);
    out->n = MR_MIN(kept, (size_t)READS_MOST);
    for (size_t k = 0; k < out->n; k++) {
        out->e[out->edges++] = (struct edge){.at = all[k].start, .step = 1};
        out->e[out->edges++] = (struct edge){.at = all[k].end, .step = -1};
    }
    sum_up(out->e, out->edges);
    for (size_t i = 0; i < out->n; i++) {
        double ns = (double)(all[i].end - all[i].start);
        double together = sum_until(out->e, out->edges, all[i].end) - sum_until(out->e, out->edges, all[i].start);
        out->r[i] = (struct shared_read){together / ns, (double)all[i].bytes / ns * 1e9, (double)all[i].bytes};
    }
    free(all);
    return 0;
}

static void done(struct reads *r)
{
    free(r->e);
    free(r->r);
}

int mr_explain_flight_facts(struct explain_flight *const *flight, unsigned n, double ranks, struct mr_explain_facts *f)
{
    struct reads r;
    int rc = join(flight, n, &r);
    if (!rc && r.n && !isfinite(f->streams[0]))
        compare(r.r, r.n, busy_rate(r.r, r.n, r.e, r.edges), ranks, f);
    if (!rc && r.n) /* leaves those of like size: last */
        rc = slope_of(r.r, r.n, &f->flight_slope, &f->flight_error);
    done(&r);
    return rc;
}

int mr_explain_flight_slope(struct explain_flight *const *flight, unsigned n, double *slope, double *error)
{
    struct reads r;
    int rc = join(flight, n, &r);
    if (!rc && r.n)
        rc = slope_of(r.r, r.n, slope, error);
    done(&r);
    return rc;
}

int mr_explain_flight_mean(struct explain_flight *const *flight, unsigned n, double *mean)
{
    struct reads r;
    int rc = join(flight, n, &r), flying = 0;
    double busy = 0, sum = 0;
    uint64_t before = 0;
    for (size_t i = 0; !rc && r.e && i < r.edges; i++) {
        double since = (double)(r.e[i].at - before);
        busy += flying ? since : 0;
        sum += since * flying;
        flying += r.e[i].step;
        before = r.e[i].at;
    }
    if (busy > 0)
        *mean = sum / busy;
    done(&r);
    return rc;
}
