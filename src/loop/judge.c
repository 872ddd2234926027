/* Savings with their intervals, and the verdict: see judge.h. */
#include "loop/judge.h"
#include "base/common.h"
#include "compare/compare_stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BLOCKS 10u
#define LEVEL 0.05   /* of intervals */
#define CHANCE 0.05  /* of the F-test between runs and blocks */
#define NEAR 0.15    /* of what was predicted: as large */
#define WIDE 0.25    /* half an interval, of what was predicted: its size is known */
#define NOTHING 0.02 /* of the window: a gain below is none */
#define REACH 0.5    /* of what was predicted: a saving below for sure, that may be none, is none */
#define LOSS 0.01    /* of the window: a loss above is harm */
#define REPEATS_MOST 100u

static const char *const names[] = {
#define TRY_NAME(name, text) text,
    MR_TRIAL_VERDICTS(TRY_NAME)
#undef TRY_NAME
};

const char *mr_trial_verdict_name(enum mr_trial_verdict v)
{
    return names[v];
}

/* ---- one side ---- */

struct spread {
    double mean, variance, df; /* of one run's figure */
};

/* The figure of steps [first, last) of a window: bit k of `parts` is part k. */
static double figure(const struct mr_window *w, unsigned parts, size_t first, size_t last)
{
    double sum = 0;
    for (size_t i = first; i < last; i++)
        for (unsigned k = 0; k < MR_WINDOW_PART_COUNT; k++)
            sum += parts >> k & 1 ? w->step[i].s[k] : 0;
    return sum;
}

/* Variance over the runs of the same steps. */
static double variance(const struct mr_window *w, size_t n, unsigned parts, size_t first, size_t last, double *mean)
{
    double sum = 0, square = 0;
    for (size_t r = 0; r < n; r++)
        sum += figure(&w[r], parts, first, last) / (double)n;
    for (size_t r = 0; r < n; r++) {
        double off = figure(&w[r], parts, first, last) - sum;
        square += off * off;
    }
    *mean = sum;
    return n > 1 ? square / (double)(n - 1) : NAN;
}

/* J1. Blocks of neighbouring steps give more degrees of freedom than whole runs; they count where the runs differ by no
 * more than they say. */
static struct spread spread_of(const struct mr_window *w, size_t n, unsigned parts)
{
    struct spread s;
    double blocks = 0, ignored;
    size_t steps = w[0].steps, many = MR_MIN((size_t)BLOCKS, steps);
    s.variance = variance(w, n, parts, 0, steps, &s.mean);
    s.df = (double)n - 1;
    for (size_t k = 0; k < many; k++)
        blocks += variance(w, n, parts, steps * k / many, steps * (k + 1) / many, &ignored);
    double df = (double)(many * (n - 1));
    if (n > 1 && many > 1 && blocks > 0 && mr_f_test(s.variance / blocks, s.df, df) > CHANCE) {
        s.variance = fmax(blocks, s.variance);
        s.df = df;
    }
    return s;
}

/* ---- both ---- */

static double half_width(const struct spread *a, const struct spread *b, size_t n)
{
    double p = a->variance / (double)n, q = b->variance / (double)n;
    if (!(p + q > 0))
        return isnan(p + q) ? NAN : 0;
    double df = (p + q) * (p + q) / (p * p / a->df + q * q / b->df);
    return mr_student_quantile(LEVEL, df) * sqrt(p + q);
}

/* Nothing takes less than no time. */
static struct mr_saving saving(const struct mr_window *a, const struct mr_window *b, size_t n, unsigned parts)
{
    struct spread x = spread_of(a, n, parts), y = spread_of(b, n, parts);
    double half = half_width(&x, &y, n), saved = x.mean - y.mean;
    return (struct mr_saving){x.mean, y.mean, saved, saved - half, fmin(saved + half, fmax(saved, x.mean))};
}

/* Runs of each side until half an interval is `wanted`: it falls with their root, and with the quantile. */
static size_t runs_for(double half, double wanted, size_t n)
{
    if (!(half > 0) || !(wanted > 0))
        return 0;
    for (size_t m = n + 1; m <= REPEATS_MOST; m++) {
        double now = mr_student_quantile(LEVEL, 2 * (double)(n - 1)),
               then = mr_student_quantile(LEVEL, 2 * (double)(m - 1));
        if (half * then / now * sqrt((double)n / (double)m) <= wanted)
            return m;
    }
    return 0;
}

static enum mr_trial_verdict verdict_of(const struct mr_judgement *j, double wall)
{
    const struct mr_saving *g = &j->gain;
    double p = j->predicted_s, low = fmin(j->predicted_low_s, (1 - NEAR) * p);
    if (isnan(g->low))
        return MR_TRIAL_UNDECIDED;
    if (g->high < 0 && g->saved < -LOSS * wall)
        return MR_TRIAL_HARMFUL;
    if (g->high < NOTHING * wall || (!(g->low > 0) && g->high < REACH * low)) /* NAN: nothing was promised */
        return MR_TRIAL_NO_GAIN;
    if (!(g->low > 0) || g->saved < NOTHING * wall)
        return MR_TRIAL_UNDECIDED;
    if (isnan(p) || g->saved >= low)
        return MR_TRIAL_CONFIRMED;
    return g->high < low || g->high - g->saved < WIDE * p ? MR_TRIAL_SMALLER : MR_TRIAL_UNDECIDED;
}

static double between(const struct mr_window *w, size_t n)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, w[i].wait_s);
        most = fmax(most, w[i].wait_s);
    }
    return most - least;
}

/* J3: the rest of the steps is part of the gain where it changed for sure. */
static struct mr_saving gain_of(const struct mr_judgement *j, const struct mr_saving *all)
{
    bool sure = j->rest.low > 0 || j->rest.high < 0;
    return sure ? *all : j->wait;
}

int mr_judge(const struct mr_window *a, const struct mr_window *b, size_t n,
             const struct mr_prediction_share *predicted, struct mr_judgement *out, struct mr_error *err)
{
    const unsigned every = (1u << MR_WINDOW_PART_COUNT) - 1, rest = 1u << MR_WINDOW_REST;
    struct mr_judgement j = {0};
    for (size_t i = 0; i < n; i++)
        if (a[i].steps != a[0].steps || b[i].steps != a[0].steps || !a[0].steps)
            return mr_error_plain(err, MR_E_INTERNAL, "windows of other lengths cannot be compared");
    const struct mr_saving all = saving(a, b, n, every);
    j.wait = saving(a, b, n, every & ~rest);
    j.rest = saving(a, b, n, rest);
    j.gain = gain_of(&j, &all);
    j.between_a = between(a, n);
    j.predicted_s = predicted->share * j.wait.a;
    j.predicted_low_s = predicted->low * j.wait.a;
    j.predicted_high_s = predicted->high * j.wait.a;
    j.verdict = verdict_of(&j, all.a);
    if (j.verdict == MR_TRIAL_UNDECIDED && n > 1) {
        double wanted = fmax(fabs(j.gain.saved) * (isnan(j.predicted_s) ? 1 : WIDE), NOTHING * all.a);
        j.more = runs_for(j.gain.high - j.gain.saved, wanted, n);
    }
    *out = j;
    return 0;
}
