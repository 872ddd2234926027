/* Sample sizes: see sizes.h. The inner parameter of each distribution (deviation before cutting, sigma) is found by
 * bisection on the deviation of the very quantiles the set will use, at most GRID of them. */
#include "base/sizes.h"
#include "base/common.h"
#include "base/rng.h"

#include <math.h>

#define GRID 65536u /* quantiles looked at when solving; beyond it the moments no longer move by 0.1 % */

/* P. Acklam's rational approximation: a central and a tail part. */
double mr_normal_quantile(double p)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                               1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                               6.680131188771972e+01, -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                               -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00};
    if (p > 0.5)
        return -mr_normal_quantile(1 - p);
    if (p < 0.02425) {
        double q = sqrt(-2 * log(p));
        return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
               ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    }
    double q = p - 0.5, r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

/* A Feistel network on 2 * half_bits bits, walked until it lands below n: a permutation of 0..n-1. */
uint64_t mr_sizes_permute(uint64_t seed, uint64_t n, unsigned half_bits, uint64_t i)
{
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = i >> half_bits, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (mr_rng_at(seed, MR_RNG_SIZE, right << 2 | round) & mask);
            left = right;
            right = next;
        }
        i = left << half_bits | right;
    } while (i >= n);
    return i;
}

static double at_quantile(const struct mr_sizes *s, double p)
{
    if (s->kind == MR_SIZE_LOGNORMAL)
        return 1 + s->scale * exp(s->spread * mr_normal_quantile(p));
    double z = mr_normal_quantile(s->tail + p * (1 - 2 * s->tail));
    double x = s->spread * z;
    return s->mean + MR_MAX(-s->cut, MR_MIN(s->cut, x));
}

static void moments(const struct mr_sizes *s, double *mean, double *stdev)
{
    uint64_t n = MR_MIN(s->samples, GRID);
    double sum = 0, square = 0, shift = s->mean;
    for (uint64_t i = 0; i < n; i++) {
        double x = at_quantile(s, ((double)i + 0.5) / (double)n) - shift;
        sum += x;
        square += x * x;
    }
    double m = sum / (double)n, v = square / (double)n - m * m;
    *mean = m + shift;
    *stdev = v > 0 ? sqrt(v) : 0;
}

static void set_spread(struct mr_sizes *s, double spread)
{
    s->spread = spread;
    if (s->kind == MR_SIZE_NORMAL) {
        s->tail = 0.5 * erfc(s->cut / spread / sqrt(2));
        return;
    }
    double mean, stdev;
    s->scale = 1;
    moments(s, &mean, &stdev);
    s->scale = (s->mean - 1) / (mean - 1); /* makes the mean exact for any spread */
}

int mr_sizes_init(struct mr_sizes *s, uint64_t samples, uint64_t seed, double mean, double stdev, struct mr_error *err)
{
    *s = (struct mr_sizes){.samples = samples, .seed = seed, .mean = mean, .got_mean = mean};
    if (mean < 1 || stdev < 0)
        return mr_error_set(err, MR_E_USAGE, "bad sample size: mean %g, standard deviation %g bytes", mean, stdev);
    if (stdev == 0 || samples < 2)
        return 0;
    while ((uint64_t)1 << (2 * s->half_bits) < samples)
        s->half_bits++;
    s->cut = mean - 1;
    s->kind = stdev <= 0.5 * s->cut ? MR_SIZE_NORMAL : MR_SIZE_LOGNORMAL;
    double low = s->kind == MR_SIZE_NORMAL ? stdev * 0.5 : 1e-3, high = s->kind == MR_SIZE_NORMAL ? 100 * s->cut : 6;
    for (int step = 0; step < 50; step++) {
        double mid = sqrt(low * high);
        set_spread(s, mid);
        moments(s, &s->got_mean, &s->got_stdev);
        if (s->got_stdev < stdev)
            low = mid;
        else
            high = mid;
        if (fabs(s->got_stdev - stdev) < 1e-6 * stdev)
            break;
    }
    if (fabs(s->got_stdev - stdev) > 0.005 * stdev) {
        mr_error_set(err, MR_E_USAGE,
                     "%llu samples with a mean of %.0f bytes cannot have a standard deviation of %.0f bytes",
                     (unsigned long long)samples, mean, stdev);
        return mr_error_hint(err, "the nearest possible one is about %.0f bytes", s->got_stdev), MR_E_USAGE;
    }
    return 0;
}

uint64_t mr_sizes_at(const struct mr_sizes *s, uint64_t i)
{
    if (s->kind == MR_SIZE_CONSTANT)
        return (uint64_t)(s->mean + 0.5);
    uint64_t rank = mr_sizes_permute(s->seed, s->samples, s->half_bits, i);
    double bytes = at_quantile(s, ((double)rank + 0.5) / (double)s->samples);
    return bytes < 1 ? 1 : (uint64_t)(bytes + 0.5);
}
