/* See change_points.h. */
#include "history/change_points.h"
#include "base/common.h"
#include "compare/compare_stats.h"

#include <math.h>

#define PART_LEAST 2u
#define RESOLUTION 1e-9 /* of the mean: below it spread is rounding */

struct found {
    struct mr_change_point *out;
    size_t n, cap;
};

struct series {
    const double *value;
    double level, least;
    int absolute;
};

static double mean_of(const double *v, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += v[i];
    return sum / (double)(to - from);
}

static double squares_of(const double *v, size_t from, size_t to)
{
    double m = mean_of(v, from, to), sum = 0;
    for (size_t i = from; i < to; i++)
        sum += (v[i] - m) * (v[i] - m);
    return sum;
}

/* t of the split at `k`. */
static double t_of(const struct series *s, size_t from, size_t k, size_t to)
{
    double a = mean_of(s->value, from, k), b = mean_of(s->value, k, to);
    double df = (double)(to - from - 2), inside = squares_of(s->value, from, k) + squares_of(s->value, k, to);
    double floor = RESOLUTION * fmax(fabs(a), fabs(b)), spread = fmax(sqrt(inside / df), floor);
    double error = spread * sqrt(1.0 / (double)(k - from) + 1.0 / (double)(to - k));
    return error > 0 ? fabs(b - a) / error : 0;
}

static int is_large(const struct series *s, double before, double after)
{
    double change = fabs(after - before);
    return s->absolute ? change >= s->least : change >= s->least * fabs(before);
}

static void search(const struct series *s, size_t from, size_t to, struct found *f)
{
    size_t best = 0;
    double most = 0;
    if (to - from < 2 * PART_LEAST || f->n == f->cap)
        return;
    for (size_t k = from + PART_LEAST; k + PART_LEAST <= to; k++) {
        double t = t_of(s, from, k, to);
        if (t > most) {
            most = t;
            best = k;
        }
    }
    if (!best)
        return;
    double places = (double)(to - from - 2 * PART_LEAST + 1), df = (double)(to - from - 2);
    double p = fmin(1, places * mr_student_p(most, df));
    double before = mean_of(s->value, from, best), after = mean_of(s->value, best, to);
    if (!(p < s->level) || !is_large(s, before, after))
        return;
    search(s, from, best, f);
    if (f->n < f->cap)
        f->out[f->n++] = (struct mr_change_point){best, before, after, p};
    search(s, best, to, f);
}

size_t mr_change_points(const double *value, size_t n, double level, double least, int absolute,
                        struct mr_change_point *out, size_t cap)
{
    const struct series s = {value, level, least, absolute};
    struct found f = {.out = out, .cap = cap};
    search(&s, 0, n, &f);
    for (size_t i = 0; i < f.n; i++) { /* the levels next to each change, now that all are known */
        size_t from = i ? out[i - 1].at : 0, to = i + 1 < f.n ? out[i + 1].at : n;
        out[i].before = mean_of(value, from, out[i].at);
        out[i].after = mean_of(value, out[i].at, to);
    }
    return f.n;
}
