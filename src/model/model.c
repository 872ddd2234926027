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
