/* Whether loads that run beside each other get in each other's way, from the trace.
 *
 * A load waits for reads, servers, locks, or sleeps. Where each load has its own share of whatever it waits for, its
 * wait does not depend on how many loads run beside it; where all share one rate, one lock or one connection, it grows
 * in proportion:
 *
 *     log(wait) = a + b log(in flight meanwhile)      b = 0: own shares; b = 1: one for all
 *
 * The slope b comes with a standard error. It is that of single reads and answers from the network where they are in the
 * trace (explain_flight.c), which change their number whenever a worker opens a file or decodes. Of whole loads it is
 * used only where their number changes a lot. Waits for neither: processes that share a lock show it by waiting for it,
 * so workers of which none is seen doing that have nothing to share. Where both is possible, and with a single worker,
 * the answer is unknown. */
#include "advise/advise_internal.h"
#include "base/common.h"

#include <stdlib.h>

#define LOADS_LEAST 8u
#define SPREAD_LEAST 0.1 /* of the logarithm of the loads in flight, standard deviation */
#define ERROR_LEAST 0.05 /* of the slope: loads are not alike */
#define SURE 1.64        /* standard errors: 95 % on one side */
#define SLOWEST 1.5      /* times the median: a first load, which starts something up, or a chance */
#define HALF 0.5         /* between the slopes of own shares and of one for all */
#define FLAT 0.3         /* the same of calls */
#define LOCKED 0.25      /* of the wait in locks and messages between processes: they are the reason */
#define UNLOCKED 0.05    /* they are not */
#define BESIDE 1.3       /* loads in flight: they did run beside each other */

struct load {
    double from, to, wait;
};

struct loads {
    struct load *load;
    double *from, *to, *from_sum, *to_sum; /* sorted; sums of those before */
    size_t n;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sum of (at - v) over the sorted values v before `at`. */
static double sum_before(const double *v, const double *sum, size_t n, double at)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (v[mid] <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return at * (double)low - sum[low];
}

/* Seconds that all loads together took until then. */
static double taken(const struct loads *l, double at)
{
    return sum_before(l->from, l->from_sum, l->n, at) - sum_before(l->to, l->to_sum, l->n, at);
}

static double in_flight(const struct loads *l, const struct load *one)
{
    return (taken(l, one->to) - taken(l, one->from)) / (one->to - one->from);
}

/* Of its worker in its epoch, or in the run: it starts up what the others find there. */
static bool is_first(const struct mr_explanation *x, size_t i)
{
    const struct mr_explain_step *s = &x->step[x->batch[i].step];
    for (size_t k = i; k-- && i - k <= 64;) {
        const struct mr_explain_step *t = &x->step[x->batch[k].step];
        if (t->rank != s->rank || t->epoch != s->epoch)
            return true;
        if (t->worker == s->worker)
            return false;
    }
    return true;
}

static bool open_loads(const struct mr_explanation *x, struct loads *l)
{
    size_t n = x->batches;
    *l = (struct loads){.load = malloc((n + 1) * sizeof(*l->load)), .from = malloc((4 * n + 4) * sizeof(double))};
    if (!l->load || !l->from)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct mr_explain_batch *b = &x->batch[i];
        double wait = (double)b->meta_s + (double)b->read_s + (double)b->other_s;
        if (b->known && b->to_ns > b->from_ns && wait > 0)
            l->load[l->n++] =
                (struct load){(double)b->from_ns / 1e9, (double)b->to_ns / 1e9, is_first(x, i) ? 0 : wait};
    }
    l->to = l->from + l->n;
    l->from_sum = l->to + l->n;
    l->to_sum = l->from_sum + l->n + 1;
    for (size_t i = 0; i < l->n; i++) {
        l->from[i] = l->load[i].from;
        l->to[i] = l->load[i].to;
    }
    qsort(l->from, l->n, sizeof(double), ascending);
    qsort(l->to, l->n, sizeof(double), ascending);
    l->from_sum[0] = l->to_sum[0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        l->from_sum[i + 1] = l->from_sum[i] + l->from[i];
        l->to_sum[i + 1] = l->to_sum[i] + l->to[i];
    }
    return true;
}

static double median_wait(const struct loads *l)
{
    double *v = malloc((l->n + 1) * sizeof(*v)), out = INFINITY;
    for (size_t i = 0; v && i < l->n; i++)
        v[i] = l->load[i].wait;
    if (v && l->n) {
        qsort(v, l->n, sizeof(*v), ascending);
        out = v[l->n / 2];
    }
    free(v);
    return out;
}

/* Sums of a straight line. */
struct line {
    double n, x, y, xx, xy, yy;
};

static struct line line_of(const struct loads *l)
{
    struct line s = {0};
    double most = SLOWEST * median_wait(l);
    for (size_t i = 0; i < l->n; i++) {
        if (!(l->load[i].wait > 0) || l->load[i].wait > most)
            continue;
        double x = log(fmax(1, in_flight(l, &l->load[i]))), y = log(l->load[i].wait);
        s.n++;
        s.x += x;
        s.y += y;
        s.xx += x * x;
        s.xy += x * y;
        s.yy += y * y;
    }
    return s;
}

/* The slope of loads; UNKNOWN as well where their number hardly changes. */
static enum mr_scales of_loads(const struct line *s, struct mr_scaling *out)
{
    double sxx = s->xx - s->x * s->x / fmax(1, s->n), sxy = s->xy - s->x * s->y / fmax(1, s->n);
    double syy = s->yy - s->y * s->y / fmax(1, s->n);
    if (s->n < LOADS_LEAST || !(sxx > s->n * SPREAD_LEAST * SPREAD_LEAST))
        return MR_SCALES_UNKNOWN;
    out->slope = sxy / sxx;
    out->error = fmax(ERROR_LEAST, sqrt(fmax(0, syy - sxy * sxy / sxx) / (s->n - 2) / sxx));
    return out->slope + SURE * out->error < HALF   ? MR_SCALES_GROWS
           : out->slope - SURE * out->error > HALF ? MR_SCALES_SHARED
                                                   : MR_SCALES_UNKNOWN;
}

/* Of reads or answers. One behind the other they hardly change in number, which makes the slope too flat. */
static enum mr_scales of_calls(double slope, double error)
{
    double around = SURE * fmax(error, ERROR_LEAST / 2);
    if (!mr_known(slope))
        return MR_SCALES_UNKNOWN;
    return slope + around < FLAT            ? MR_SCALES_GROWS
           : slope > FLAT && slope > around ? MR_SCALES_SHARED
                                            : MR_SCALES_UNKNOWN;
}

/* Of waits for neither reads nor the network. */
static enum mr_scales of_others(const struct mr_scaling *s, enum mr_scales loads)
{
    if (loads != MR_SCALES_UNKNOWN)
        return loads;
    if (s->lock_share >= LOCKED)
        return MR_SCALES_SHARED;
    return s->in_flight > BESIDE && s->lock_share < UNLOCKED ? MR_SCALES_GROWS : MR_SCALES_UNKNOWN;
}

static void sum_waits(const struct mr_explanation *x, const struct loads *l, struct mr_scaling *out)
{
    double read = 0, lock = 0, other = 0, flying = 0, network = x->facts.net_answer_s + x->facts.net_transfer_s;
    for (size_t i = 0; i < l->n; i++)
        flying += in_flight(l, &l->load[i]) / (double)l->n;
    for (size_t i = 0; i < x->batches; i++) {
        const struct mr_explain_batch *b = &x->batch[i];
        read += b->known ? (double)b->meta_s + (double)b->read_s : 0;
        other += b->known ? (double)b->other_s : 0;
        lock += b->known ? (double)b->lock_s : 0;
    }
    out->in_flight = l->n ? flying : NAN;
    out->waits_for = other >= read ? MR_WAITS_OTHER : network > 0.5 * read ? MR_WAITS_NETWORK : MR_WAITS_STORAGE;
    out->lock_share = read + other > 0 ? lock / (read + other) : 0;
}

bool mr_scaling_of(const struct mr_explanation *x, struct mr_scaling *out)
{
    const struct mr_explain_facts *f = &x->facts;
    struct loads l;
    *out = (struct mr_scaling){.slope = NAN, .error = NAN, .in_flight = NAN};
    bool ok = open_loads(x, &l);
    if (ok) {
        struct line s = line_of(&l);
        enum mr_scales loads = of_loads(&s, out);
        sum_waits(x, &l, out);
        out->scales = out->waits_for == MR_WAITS_OTHER     ? of_others(out, loads)
                      : out->waits_for == MR_WAITS_NETWORK ? of_calls(f->answer_slope, f->answer_error)
                                                           : of_calls(f->flight_slope, f->flight_error);
    }
    free(l.load);
    free(l.from);
    return ok;
}
