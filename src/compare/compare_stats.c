/* Statistics of comparisons: see compare_stats.h. */
#include "compare/compare_stats.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DRAWS 1000 /* a standard error within 2 % */
#define LEAST_BLOCKS 4

/* ---- Student's t ---- */

/* Continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 500; m++) {
        for (int odd = 0; odd < 2; odd++) {
            double k = odd ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                           : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
            d = 1 + k * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + k / c;
            c = fabs(c) < tiny ? tiny : c;
            h *= d * c;
        }
        if (fabs(d * c - 1) < 1e-14)
            break;
    }
    return h;
}

static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double mr_student_p(double t, double df)
{
    return isnan(t) || isnan(df) ? NAN : isinf(t) ? 0 : incomplete_beta(df / 2, 0.5, df / (df + t * t));
}

double mr_student_quantile(double p, double df)
{
    double low = 0, high = 1;
    while (mr_student_p(high, df) > p && high < 1e12)
        high *= 2;
    for (int i = 0; i < 100; i++) {
        double mid = (low + high) / 2;
        *(mr_student_p(mid, df) > p ? &low : &high) = mid;
    }
    return (low + high) / 2;
}

/* ---- differences ---- */

#define F_LEVEL 0.05

/* Variance of one run's value: by the runs, and never less than what their steps say. */
static double variance_of(const struct mr_runs_mean *s)
{
    double floor = isnan(s->floor) ? 0 : s->floor * s->floor;
    return fmax(s->sd * s->sd, floor);
}

double mr_f_test(double ratio, double df, double other_df)
{
    return isnan(ratio) ? NAN : incomplete_beta(other_df / 2, df / 2, other_df / (other_df + df * ratio));
}

/* Whether chance explains that two variances differ so much (two-sided F-test). */
static bool is_one_spread(double x, double y, double x_df, double y_df)
{
    if (x <= 0 || y <= 0)
        return x == y;
    double upper = mr_f_test(x / y, x_df, y_df);
    return 2 * fmin(upper, 1 - upper) > F_LEVEL;
}

struct mr_difference mr_difference_of(const struct mr_runs_mean *a, const struct mr_runs_mean *b)
{
    struct mr_difference d = {.change = b->mean - a->mean, .error = NAN, .df = NAN, .p = NAN};
    if (a->n < 2 || b->n < 2 || isnan(d.change))
        return d;
    double n = (double)a->n, m = (double)b->n, x = variance_of(a), y = variance_of(b);
    if (is_one_spread(x, y, n - 1, m - 1)) {
        double both = ((n - 1) * x + (m - 1) * y) / (n + m - 2);
        d.error = sqrt(both / n + both / m);
        d.df = n + m - 2;
    } else {
        double p = x / n, q = y / m;
        d.error = sqrt(p + q);
        d.df = (p + q) * (p + q) / (p * p / (n - 1) + q * q / (m - 1));
    }
    d.p = d.error > 0 ? mr_student_p(fabs(d.change) / d.error, d.df) : d.change != 0 ? 0 : 1;
    return d;
}

struct weighted {
    double *p, weight;
};

static int ascending(const void *a, const void *b)
{
    const struct weighted *x = a, *y = b;
    double l = *x->p / x->weight, r = *y->p / y->weight;
    return (l > r) - (l < r);
}

int mr_holm(double *p, const double *weight, size_t n)
{
    struct weighted *sorted = malloc((n + 1) * sizeof(*sorted));
    double before = 0, left = 0;
    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = (struct weighted){&p[i], weight[i]};
        left += weight[i];
    }
    qsort(sorted, n, sizeof(*sorted), ascending);
    for (size_t i = 0; i < n; i++) {
        before = *sorted[i].p = fmin(1, fmax(before, *sorted[i].p / sorted[i].weight * left));
        left -= sorted[i].weight;
    }
    free(sorted);
    return 0;
}

/* ---- steps ---- */

struct ordered {
    float value;
    uint32_t step;
};

static int descending(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    return (x->value < y->value) - (x->value > y->value);
}

/* The steps by one part, longest first: a quantile of a draw is found by walking from the top. */
static int by_part(const struct mr_compare_step *step, size_t n, enum mr_compare_part part, uint32_t **out)
{
    struct ordered *o = malloc((n + 1) * sizeof(*o));
    uint32_t *index = malloc((n + 1) * sizeof(*index));
    if (!o || !index) {
        free(o);
        free(index);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        o[i] = (struct ordered){step[i].s[part], (uint32_t)i};
    qsort(o, n, sizeof(*o), descending);
    for (size_t i = 0; i < n; i++)
        index[i] = o[i].step;
    free(o);
    *out = index;
    return 0;
}

void mr_step_figures_of(const struct mr_compare_step *step, size_t n, struct mr_step_figures *out)
{
    uint32_t *order;
    *out = (struct mr_step_figures){.p99_step = NAN, .p99_stall = NAN};
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < MR_PART_COUNT; k++)
            out->sum[k] += step[i].s[k];
    if (n && by_part(step, n, MR_PART_STEP, &order) == 0) {
        out->p99_step = step[order[n / 100]].s[MR_PART_STEP];
        free(order);
    }
    if (n && by_part(step, n, MR_PART_STALL, &order) == 0) {
        out->p99_stall = step[order[n / 100]].s[MR_PART_STALL];
        free(order);
    }
}

struct draw {
    const struct mr_compare_step *step;
    size_t n, blocks, block;
    double (*block_sum)[MR_PART_COUNT];
    uint32_t *count, *block_steps; /* [blocks]: how often drawn; steps in it */
    uint32_t *by_step, *by_stall;  /* steps, longest first */
};

static size_t block_of(const struct draw *d, size_t step)
{
    return MR_MIN(step / d->block, d->blocks - 1); /* the last one takes the rest */
}

static double top_percent(const struct draw *d, const uint32_t *order, enum mr_compare_part part, uint64_t drawn)
{
    uint64_t above = 0;
    for (size_t i = 0; i < d->n; i++) {
        above += d->count[block_of(d, order[i])];
        if (above > drawn / 100)
            return d->step[order[i]].s[part];
    }
    return NAN;
}

#define FIGURES (2 * MR_PART_COUNT + 2)
static void draw_once(struct draw *d, uint64_t seed, uint64_t at, double out[FIGURES])
{
    double sum[MR_PART_COUNT] = {0};
    uint64_t drawn = 0;
    memset(d->count, 0, d->blocks * sizeof(*d->count));
    for (size_t i = 0; i < d->blocks; i++) {
        size_t b = (size_t)mr_rng_below(mr_rng_at(seed, at, i), d->blocks);
        d->count[b]++;
        drawn += d->block_steps[b];
        for (int k = 0; k < MR_PART_COUNT; k++)
            sum[k] += d->block_sum[b][k];
    }
    for (int k = 0; k < MR_PART_COUNT; k++) {
        out[k] = sum[k] * (double)d->n / (double)drawn; /* the last block may be longer: sums of n steps */
        out[MR_PART_COUNT + k] = sum[MR_PART_STEP] > 0 ? sum[k] / sum[MR_PART_STEP] : 0;
    }
    out[FIGURES - 2] = top_percent(d, d->by_step, MR_PART_STEP, drawn);
    out[FIGURES - 1] = top_percent(d, d->by_stall, MR_PART_STALL, drawn);
}

static int draw_init(struct draw *d)
{
    d->block_sum = calloc(d->blocks, sizeof(*d->block_sum));
    d->count = calloc(d->blocks, sizeof(*d->count));
    d->block_steps = calloc(d->blocks, sizeof(*d->block_steps));
    if (!d->block_sum || !d->count || !d->block_steps || by_part(d->step, d->n, MR_PART_STEP, &d->by_step) ||
        by_part(d->step, d->n, MR_PART_STALL, &d->by_stall))
        return -ENOMEM;
    for (size_t i = 0; i < d->n; i++) {
        size_t b = block_of(d, i);
        d->block_steps[b]++;
        for (int k = 0; k < MR_PART_COUNT; k++)
            d->block_sum[b][k] += d->step[i].s[k];
    }
    return 0;
}

static void draw_done(struct draw *d)
{
    free(d->block_sum);
    free(d->count);
    free(d->block_steps);
    free(d->by_step);
    free(d->by_stall);
}

int mr_step_errors_of(const struct mr_compare_step *step, size_t n, uint64_t seed, struct mr_step_errors *out)
{
    struct draw d = {.step = step, .n = n, .block = MR_MAX((size_t)ceil(cbrt((double)n)), (size_t)1)};
    double mean[FIGURES] = {0}, square[FIGURES] = {0}, error[FIGURES], x[FIGURES];
    d.blocks = n / d.block;
    if (d.blocks < LEAST_BLOCKS) {
        for (int k = 0; k < MR_PART_COUNT; k++)
            out->sum[k] = out->share[k] = NAN;
        out->p99_step = out->p99_stall = NAN;
        return 0;
    }
    int rc = draw_init(&d);
    for (uint64_t i = 0; i < DRAWS && !rc; i++) {
        draw_once(&d, seed, i, x);
        for (int k = 0; k < FIGURES; k++) {
            double off = x[k] - mean[k];
            mean[k] += off / (double)(i + 1);
            square[k] += off * (x[k] - mean[k]);
        }
    }
    draw_done(&d);
    if (rc)
        return rc;
    for (int k = 0; k < FIGURES; k++)
        error[k] = sqrt(square[k] / (DRAWS - 1));
    for (int k = 0; k < MR_PART_COUNT; k++) {
        out->sum[k] = error[k];
        out->share[k] = error[MR_PART_COUNT + k];
    }
    out->p99_step = error[FIGURES - 2];
    out->p99_stall = error[FIGURES - 1];
    return 0;
}
