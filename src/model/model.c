/* Curves, checks and the closed forms of the performance model. */
#include "model/model.h"

#include <math.h>

double mr_curve_at(const struct mr_curve *c, double x)
{
    if (c->n == 0)
        return 0;
    if (x <= c->x[0])
        return c->y[0];
    for (unsigned i = 1; i < c->n; i++)
        if (x <= c->x[i])
            return c->y[i - 1] + (c->y[i] - c->y[i - 1]) * (x - c->x[i - 1]) / (c->x[i] - c->x[i - 1]);
    return c->y[c->n - 1];
}

int mr_curve_add(struct mr_curve *c, double x, double y, struct mr_error *err)
{
    if (c->n == MR_CURVE_MAX)
        return mr_error_set(err, MR_E_CONFIG, "more than %d points in a rate table", MR_CURVE_MAX);
    if (c->n && x <= c->x[c->n - 1])
        return mr_error_set(err, MR_E_CONFIG, "counts of a rate table must ascend (%g after %g)", x, c->x[c->n - 1]);
    if (!(x >= 0) || !(y > 0) || !isfinite(y))
        return mr_error_set(err, MR_E_CONFIG, "bad point %g: %g in a rate table (rates must be positive)", x, y);
    c->x[c->n] = x;
    c->y[c->n] = y;
    c->n++;
    return 0;
}

double mr_class_read_mbps(const struct mr_storage_class *k)
{
    return mr_curve_at(&k->read_mbps, k->threads);
}

double mr_class_write_mbps(const struct mr_storage_class *k)
{
    return mr_curve_at(k->write_mbps.n ? &k->write_mbps : &k->read_mbps, k->threads);
}

static const struct mr_kind_rates *rates_of(const struct mr_request_rates *r, bool buffered)
{
    return buffered ? &r->buffered : &r->direct;
}

/* The rate at `mb` from those of two sizes around it. */
static double rate_between(double mb, double mb_a, double rate_a, double mb_b, double rate_b)
{
    if (mb <= mb_a)
        return mb * rate_a / mb_a;
    if (mb >= mb_b || mb_b <= mb_a)
        return rate_b;
    double a = mb_a / rate_a, b = mb_b / rate_b;
    return mb / (a + (b - a) * (mb - mb_a) / (mb_b - mb_a));
}

bool mr_system_fit(struct mr_system *s, double request_mb, bool buffered)
{
    const struct mr_request_rates *a = NULL, *b = NULL;
    for (unsigned i = 0; i < s->n_requests; i++) {
        const struct mr_request_rates *r = &s->requests[i];
        if (!(rates_of(r, buffered)->mbps > 0))
            continue;
        if (!a || r->mb <= request_mb)
            a = r;
        if (!b || b->mb < request_mb)
            b = r;
    }
    if (!a)
        return false;
    const struct mr_kind_rates *x = rates_of(a, buffered), *y = rates_of(b, buffered);
    s->pfs_mbps = (struct mr_curve){.n = 1, .x = {1}, .y = {rate_between(request_mb, a->mb, x->mbps, b->mb, y->mbps)}};
    s->pfs_stream_mbps =
        x->stream_mbps > 0 ? rate_between(request_mb, a->mb, x->stream_mbps, b->mb, y->stream_mbps) : 0;
    s->pfs_spread = fmax(x->spread, y->spread);
    s->pfs_latency_s = 0; /* in the time of a request */
    return true;
}

int mr_system_check(const struct mr_system *s, struct mr_error *err)
{
    if (s->n_classes == 0)
        return mr_error_set(err, MR_E_CONFIG, "system '%s' has no storage class; class 0 is the staging buffer",
                            s->name);
    if (s->pfs_mbps.n == 0)
        return mr_error_set(err, MR_E_CONFIG, "system '%s' has no PFS rate table", s->name);
    if (!(s->preprocess_mbps > 0) || !(s->network_mbps > 0) || !(s->pfs_link_mbps > 0))
        return mr_error_set(err, MR_E_CONFIG, "system '%s': preprocessing, network and PFS link rates must be positive",
                            s->name);
    unsigned threads = 0;
    for (unsigned j = 0; j < s->n_classes; j++)
        threads += s->classes[j].threads;
    if (threads > MR_NODE_THREADS_MAX)
        return mr_error_set(err, MR_E_CONFIG, "system '%s': %u threads per node over all classes, at most %d", s->name,
                            threads, MR_NODE_THREADS_MAX);
    for (unsigned j = 0; j < s->n_classes; j++) {
        const struct mr_storage_class *k = &s->classes[j];
        if (!(k->capacity_mb >= 0) || k->threads == 0 || k->read_mbps.n == 0)
            return mr_error_set(err, MR_E_CONFIG,
                                "system '%s': class %u ('%s') needs a capacity, threads and a read table", s->name, j,
                                k->name);
    }
    return 0;
}

double mr_binomial_pmf(uint64_t n, double p, uint64_t k)
{
    if (k > n)
        return 0;
    if (p <= 0 || p >= 1)
        return (p <= 0 ? k == 0 : k == n) ? 1 : 0;
    double log_pmf = lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) + (double)k * log(p) +
                     (double)(n - k) * log1p(-p);
    return exp(log_pmf);
}

double mr_model_hot_samples(uint64_t samples, uint64_t epochs, uint64_t nodes, double delta)
{
    double p = 1.0 / (double)nodes;
    double threshold = (1 + delta) * (double)epochs * p;
    double tail = 0;
    /* A product that is an integer on paper may come out a hair below it; the inequality is strict. */
    for (uint64_t k = (uint64_t)floor(threshold * (1 + 1e-12)) + 1; k <= epochs; k++)
        tail += mr_binomial_pmf(epochs, p, k);
    return tail * (double)samples;
}
