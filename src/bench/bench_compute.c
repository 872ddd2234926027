/* Emulated time: draws from the distributions a workload may name, and three ways to spend what was drawn. */
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "bench/bench.h"

#include <math.h>
#include <time.h>

/* ---- draws ---- */

/* A stream of uniforms of its own for every draw, for methods that need an unknown number of them. */
struct uniforms {
    uint64_t seed, stream, next;
};

static double uniform(struct uniforms *u)
{
    double x = mr_rng_unit(mr_rng_at(u->seed, u->stream, u->next++));
    return x > 0 ? x : 0x1p-54;
}

static double normal(struct uniforms *u)
{
    double r = sqrt(-2 * log(uniform(u)));
    return r * cos(2 * M_PI * uniform(u));
}

/* Marsaglia and Tsang, 2000; shapes below 1 by the usual boost. */
static double gamma_draw(struct uniforms *u, double shape)
{
    double boost = 1;
    if (shape < 1) {
        boost = pow(uniform(u), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = normal(u), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(uniform(u)) < 0.5 * x * x + d - d * v + d * log(v))
            return boost * d * v;
    }
}

/* Counts exponential gaps; far from zero the normal distribution is closer than any test could tell. */
static double poisson_draw(struct uniforms *u, double mean)
{
    if (mean > 1000)
        return floor(fmax(0, mean + sqrt(mean) * normal(u) + 0.5));
    double k = 0, left = mean + log(uniform(u));
    while (left > 0) {
        k += 1;
        left += log(uniform(u));
    }
    return k;
}

double mr_bench_draw(const struct mr_dist *d, uint64_t seed, uint64_t stream, uint64_t counter)
{
    struct uniforms u = {.seed = mr_rng_at(seed, stream, counter), .stream = stream};
    switch (d->kind) {
    case MR_DIST_NORMAL: return fabs(d->a + d->b * normal(&u));
    case MR_DIST_UNIFORM: return fabs(d->a + (d->b - d->a) * uniform(&u));
    case MR_DIST_GAMMA: return d->a > 0 ? fabs(d->b * gamma_draw(&u, d->a)) : 0;
    case MR_DIST_EXPONENTIAL: return fabs(d->a * -log(uniform(&u)));
    case MR_DIST_POISSON: return poisson_draw(&u, fabs(d->a));
    default: return fabs(d->a);
    }
}

/* ---- spending ---- */

#define GEMM_N 64

/* One small matrix product: about 0.5 MFLOP, all of it in the first-level cache, as a kernel tile is. */
MR_SIMD_CLONES static float multiply(float *restrict c, const float *restrict a, const float *restrict b)
{
    for (int i = 0; i < GEMM_N; i++)
        for (int k = 0; k < GEMM_N; k++)
            for (int j = 0; j < GEMM_N; j++)
                c[i * GEMM_N + j] += a[i * GEMM_N + k] * b[k * GEMM_N + j];
    return c[0];
}

static void gemm_until(uint64_t deadline, const _Atomic uint32_t *stop)
{
    static _Thread_local float a[GEMM_N * GEMM_N], b[GEMM_N * GEMM_N], c[GEMM_N * GEMM_N];
    volatile float sink = 0;
    for (int i = 0; i < GEMM_N * GEMM_N; i++) {
        a[i] = (float)(i % 7) * 1e-3f;
        b[i] = (float)(i % 5) * 1e-3f;
        c[i] = 0;
    }
    while (mr_now_ns() < deadline && !atomic_load_explicit(stop, memory_order_relaxed))
        sink = sink + multiply(c, a, b);
    (void)sink;
}

/* Sleeps in pieces, so that a stop is seen within 50 ms. Deadlines are absolute: pieces add no error. */
static void sleep_until(uint64_t deadline, const _Atomic uint32_t *stop)
{
    for (uint64_t now = mr_now_ns(); now < deadline && !atomic_load(stop); now = mr_now_ns())
        mr_clock_sleep_until(mr_clock_real(), MR_MIN(deadline, now + 50 * MR_NS_PER_MS), NULL);
}

uint64_t mr_bench_compute(enum mr_bench_compute kind, uint64_t ns, const _Atomic uint32_t *stop)
{
    if (ns == 0)
        return 0;
    uint64_t start = mr_now_ns(), deadline = start + ns;
    if (kind == MR_COMPUTE_SLEEP)
        sleep_until(deadline, stop);
    else if (kind == MR_COMPUTE_GEMM)
        gemm_until(deadline, stop);
    else
        while (mr_now_ns() < deadline && !atomic_load_explicit(stop, memory_order_relaxed))
            ;
    uint64_t took = mr_now_ns() - start;
    return MR_MIN(took, ns); /* what came on top is not compute */
}
