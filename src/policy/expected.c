/* Expected behaviour of the policies: see expected.h.
 *
 * Shards (preloading policies, lbann-dynamic after its first epoch): the job holds h = min(1, N d / S) of the set, a
 * node finds h/N of it at home. millrace: the own share is that of Belady with bypass on a node's random stream,
 * computed as a fluid (fluid_belady). nopfs: a sample's number of uses on a node is Binomial(E, 1/N); the classes are
 * filled by descending number, each in the order of first use. A filler's progress is its position in that list (MB);
 * tables translate it into the epoch up to which first uses are covered. */
#include "policy/expected.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8 /* points per epoch of all tables */

struct nopfs_class {
    double accesses; /* share of a node's accesses that go to samples planned for this class */
    double *held;    /* [point]: share of all accesses whose sample is of this class and was used before the point */
    double *list_mb; /* [point]: MB of the class's list first used before the point */
};

struct mr_expected {
    enum mr_policy_id policy;
    const struct mr_system *system;
    uint32_t nodes, epochs;
    double total_mb;
    unsigned shard_class; /* preloading policies and lbann-dynamic */
    bool preloads;
    double shard_held; /* h */
    double *own;       /* millrace: [epoch], share found at home */
    double *held_mb;   /* millrace: [epoch], MB a node holds at the end of the epoch */
    double lost;       /* millrace: share that nobody can hold */
    struct nopfs_class plan[MR_CLASS_MAX];
    double *filled_mb;           /* nopfs and preloading: [node * MR_CLASS_MAX + class], position in the list */
    double homeless;             /* nopfs: share of accesses to samples that no node plans to keep */
    double staged0, staged0_pfs; /* nopfs: shares summed over first-epoch steps, and of these from the PFS */
};

static uint64_t points(const struct mr_expected *x)
{
    return (uint64_t)x->epochs * SLOTS;
}

/* ---- millrace ---- */

/* Belady with bypass as a fluid: mass[t] is the share of all samples that a node holds for its use at point t. At every
 * point the node uses p/SLOTS of all samples; each is used again g epochs later with probability p q^(g-1). What
 * exceeds the capacity is dropped from the farthest end. */
static void fluid_belady(struct mr_expected *x, double capacity, double *mass)
{
    double p = 1.0 / x->nodes, held = 0;
    uint64_t n = points(x), top = 0;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t epoch = k / SLOTS;
        double hits = mass[k];
        held -= hits;
        mass[k] = 0;
        x->own[epoch] += hits / p;
        double each = p / SLOTS * p / SLOTS;
        for (uint64_t e = epoch + 1; e < x->epochs && each > 1e-18; e++, each *= 1 - p)
            for (uint64_t b = 0; b < SLOTS; b++) {
                mass[e * SLOTS + b] += each;
                held += each;
                top = MR_MAX(top, e * SLOTS + b);
            }
        while (held > capacity && top > k) {
            double drop = fmin(mass[top], held - capacity);
            mass[top] -= drop;
            held -= drop;
            if (held > capacity)
                top--;
        }
        x->held_mb[epoch] = held * x->total_mb;
    }
}

static double node_capacity(const struct mr_expected *x)
{
    double mb = 0;
    for (unsigned j = 1; j < x->system->n_classes; j++)
        mb += x->system->classes[j].capacity_mb;
    return mb;
}

static int create_millrace(struct mr_expected *x)
{
    double *mass = calloc(points(x), sizeof(*mass));
    x->own = calloc(x->epochs, sizeof(*x->own));
    x->held_mb = calloc(x->epochs, sizeof(*x->held_mb));
    int rc = mass && x->own && x->held_mb ? 0 : -ENOMEM;
    if (!rc) {
        fluid_belady(x, node_capacity(x) / x->total_mb, mass);
        x->lost = fmax(0, 1 - x->nodes * node_capacity(x) / x->total_mb);
    }
    free(mass);
    return rc;
}

/* Class 1 is filled first, then class 2: the shares of `held` MB, times `share`. */
static void spread(const struct mr_expected *x, double held, double share, double *class)
{
    double left = held;
    for (unsigned j = 1; j < x->system->n_classes && held > 0; j++) {
        double mb = j + 1 < x->system->n_classes ? fmin(left, x->system->classes[j].capacity_mb) : left;
        class[j] = share * mb / held;
        left -= mb;
    }
}

static unsigned pick_class(const double *shares, unsigned n, double draw)
{
    double sum = 0;
    for (unsigned j = 1; j < n; j++)
        sum += shares[j];
    draw *= sum;
    for (unsigned j = 1; j + 1 < n; j++) {
        if (draw < shares[j])
            return j;
        draw -= shares[j];
    }
    return n > 1 ? n - 1 : 0;
}

static void stage_millrace(const struct mr_expected *x, uint32_t epoch, double draw, struct mr_expected_split *out)
{
    if (epoch == 0 || x->system->n_classes < 2) {
        out->pfs = 1;
        return;
    }
    double own = fmin(1, x->own[epoch]), shares[MR_CLASS_MAX] = {0};
    if (x->lost > 0) /* one copy of each sample that is held, wherever it was read first */
        own = (1 - x->lost) / x->nodes;
    spread(x, x->held_mb[epoch - 1], 1, shares);
    for (unsigned j = 1; j < x->system->n_classes; j++)
        out->class[j] = own * shares[j];
    out->pfs = fmin(1 - own, x->lost);
    out->peer = 1 - own - out->pfs;
    out->peer_class = pick_class(shares, x->system->n_classes, draw);
}

/* ---- shards ---- */

static void stage_shards(const struct mr_expected *x, uint32_t epoch, struct mr_expected_split *out)
{
    double held = !x->preloads && epoch == 0 ? 0 : x->shard_held;
    out->class[x->shard_class] = held / x->nodes;
    out->peer = held - held / x->nodes;
    out->peer_class = x->shard_class;
    out->pfs = 1 - held;
}

static int create_shards(struct mr_expected *x, unsigned class, bool preloads, struct mr_error *err)
{
    if (x->system->n_classes < 2)
        return mr_error_set(err, MR_E_UNSUPPORTED, "needs a storage class beside the staging buffer");
    x->shard_class = class;
    x->preloads = preloads;
    x->shard_held = fmin(1, x->nodes * x->system->classes[class].capacity_mb / x->total_mb);
    if (x->policy == MR_POLICY_LBANN_PRELOAD && x->shard_held < 1)
        return mr_error_set(err, MR_E_UNSUPPORTED, "the data set (%.0f MB) does not fit all nodes' class 1 (%.0f MB)",
                            x->total_mb, x->shard_held * x->total_mb);
    return 0;
}

/* ---- nopfs ---- */

/* Adds `share` of the samples that a node uses f times to a class's tables. */
static void plan_frequency(struct mr_expected *x, struct nopfs_class *c, uint32_t f, double share)
{
    double accesses = f * share * x->nodes / x->epochs;
    c->accesses += accesses;
    for (uint64_t k = 0; k <= points(x); k++) {
        double rest = 1 - (double)k / (double)points(x);
        /* Of the sample's f uses one is the access at hand; the others lie in other epochs. */
        double others = fmax(0, 1 - (double)k / (double)(points(x) - SLOTS));
        c->held[k] += accesses * (1 - (f > 1 ? pow(others, f - 1) : 1));
        c->list_mb[k] += x->total_mb * share * (1 - pow(rest, f));
    }
}

static double poisson_pmf(double mean, uint32_t k)
{
    return exp(k * log(mean) - mean - lgamma(k + 1.0));
}

/* out = a * b, as polynomials up to degree n; out is none of them. */
static void multiply(const double *a, const double *b, double *out, uint32_t n)
{
    memset(out, 0, (n + 1) * sizeof(*out));
    for (uint32_t i = 0; i <= n; i++)
        for (uint32_t k = 0; a[i] > 1e-300 && k <= n - i; k++)
            out[i + k] += a[i] * b[k];
}

/* Adds `weight` times the share of accesses to samples that every node uses fewer than `least` times, so that nobody
 * plans them. All uses of a sample add up to E, so a sample that is rare here is frequent elsewhere: given r uses on
 * the other N-1 nodes, the chance that none of them plans it is the coefficient of z^r in (fewer than `least`
 * uses)^(N-1), relative to that of any uses, when uses are Poisson. */
static int count_homeless(struct mr_expected *x, uint32_t least, double weight)
{
    uint32_t n = x->epochs;
    double mean = (double)n / x->nodes;
    double *base = calloc(3 * (n + 1ull), sizeof(*base)), *power = base + n + 1, *next = power + n + 1;
    if (!base)
        return -ENOMEM;
    for (uint32_t k = 0; k < MR_MIN(least, n + 1); k++)
        base[k] = poisson_pmf(mean, k);
    power[0] = 1;
    for (uint32_t left = x->nodes - 1; left; left /= 2) {
        if (left % 2) {
            multiply(power, base, next, n);
            memcpy(power, next, (n + 1) * sizeof(*next));
        }
        multiply(base, base, next, n);
        memcpy(base, next, (n + 1) * sizeof(*next));
    }
    for (uint32_t f = 1; f < MR_MIN(least, n + 1); f++) {
        double here = weight * mr_binomial_pmf(n, 1.0 / x->nodes, f) * f / mean;
        double all = x->nodes > 1 ? poisson_pmf(mean * (x->nodes - 1), n - f) : 1;
        x->homeless += here * (x->nodes > 1 ? fmin(1, power[n - f] / all) : 1);
    }
    free(base);
    return 0;
}

static int create_nopfs(struct mr_expected *x)
{
    for (unsigned j = 1; j < x->system->n_classes; j++) {
        x->plan[j].held = calloc(points(x) + 1, sizeof(double));
        x->plan[j].list_mb = calloc(points(x) + 1, sizeof(double));
        if (!x->plan[j].held || !x->plan[j].list_mb)
            return -ENOMEM;
    }
    unsigned class = 1;
    double left = x->system->n_classes > 1 ? x->system->classes[1].capacity_mb : 0;
    for (uint32_t f = x->epochs; f > 0; f--) {
        double share = mr_binomial_pmf(x->epochs, 1.0 / x->nodes, f);
        if (share < 1e-15)
            continue;
        double all = share;
        while (share > 0 && class < x->system->n_classes) {
            double take = fmin(share, left / x->total_mb);
            plan_frequency(x, &x->plan[class], f, take);
            share -= take;
            left -= take * x->total_mb;
            if (share > 0)
                left = ++class < x->system->n_classes ? x->system->classes[class].capacity_mb : 0;
        }
        if (share > 0) { /* all nodes take the same, lowest ids of the last frequency, as the exact policy does */
            int rc = count_homeless(x, f, 1 - share / all);
            return rc ? rc : count_homeless(x, f + 1, share / all);
        }
    }
    return 0;
}

/* Linear in between; the position is in epochs. */
static double table_at(const struct mr_expected *x, const double *table, double position)
{
    double k = fmin(position * SLOTS, (double)points(x));
    uint64_t i = MR_MIN((uint64_t)k, points(x) - 1);
    return table[i] + (table[i + 1] - table[i]) * (k - (double)i);
}

/* The position where the list reaches `mb`. */
static double list_position(const struct mr_expected *x, const double *table, double mb)
{
    uint64_t low = 0, high = points(x);
    if (mb >= table[high])
        return x->epochs;
    while (high - low > 1) {
        uint64_t mid = (low + high) / 2;
        if (table[mid] <= mb)
            low = mid;
        else
            high = mid;
    }
    double step = table[high] - table[low];
    return ((double)low + (step > 0 ? (mb - table[low]) / step : 0)) / SLOTS;
}

static double frontier(const struct mr_expected *x, uint32_t node, unsigned j)
{
    return list_position(x, x->plan[j].list_mb, x->filled_mb[node * MR_CLASS_MAX + j]);
}

/* How much of the first epoch staging has read from the PFS and so kept. */
static double kept_by_staging(const struct mr_expected *x)
{
    return x->staged0 > 0 ? x->staged0_pfs / x->staged0 : 1;
}

static void stage_nopfs(struct mr_expected *x, uint32_t node, double position, double draw,
                        struct mr_expected_split *out)
{
    double own = 0, planned = 0, ahead_mb = 0, filled_mb = 0, list_mb = 0;
    for (unsigned j = 1; j < x->system->n_classes; j++) {
        const struct nopfs_class *c = &x->plan[j];
        double front = frontier(x, node, j);
        planned += c->accesses;
        if (front >= position)
            out->class[j] = c->accesses;
        else if (position >= 1) {
            out->class[j] = table_at(x, c->held, front);
            if (front < 1)
                out->class[j] += kept_by_staging(x) * (table_at(x, c->held, 1) - out->class[j]);
        }
        if (front > 1)
            ahead_mb += x->filled_mb[node * MR_CLASS_MAX + j] - table_at(x, c->list_mb, 1);
        own += out->class[j];
        filled_mb += x->filled_mb[node * MR_CLASS_MAX + j];
        list_mb += c->list_mb[points(x)];
    }
    /* In the first epoch peers hold only what their fillers fetched for later epochs; afterwards also what its user
     * kept. */
    double found = 1 - pow(1 - fmin(1, ahead_mb / x->total_mb), x->nodes - 1);
    if (position >= 1 && x->nodes > 1)
        found = fmax(planned, list_mb > 0 && own < 1 ? (1 - x->homeless / (1 - own)) * filled_mb / list_mb : 0);
    out->peer = (1 - own) * found;
    out->pfs = fmax(0, 1 - own - out->peer);
    out->peer_class = pick_class(out->class, x->system->n_classes, draw);
    if (position < 1) {
        x->staged0 += 1;
        x->staged0_pfs += out->pfs;
    }
}

static double fill_nopfs(struct mr_expected *x, uint32_t node, unsigned class, double position, double max_mb)
{
    const struct nopfs_class *c = &x->plan[class];
    double *at = &x->filled_mb[node * MR_CLASS_MAX + class];
    /* What staging has read from the PFS in the first epoch is in place already. */
    double staged_mb = table_at(x, c->list_mb, fmin(position, 1));
    if (*at < staged_mb) {
        double skip = kept_by_staging(x), gap = staged_mb - *at, fetch = gap * (1 - skip);
        if (fetch > max_mb) {
            *at += max_mb / (1 - skip);
            return max_mb;
        }
        *at = staged_mb;
        if (fetch > 0.1 * max_mb)
            return fetch;
    }
    double mb = fmin(max_mb, c->list_mb[points(x)] - *at);
    *at += mb;
    return mb > 1e-6 * max_mb ? mb : 0;
}

/* ---- interface ---- */

static int create(struct mr_expected *x, struct mr_error *err)
{
    switch (x->policy) {
    case MR_POLICY_NAIVE:
    case MR_POLICY_STAGING: return 0;
    case MR_POLICY_DEEPIO_ORDERED:
    case MR_POLICY_LBANN_PRELOAD: return create_shards(x, 1, true, err);
    case MR_POLICY_LOCALITY_AWARE: return create_shards(x, x->system->n_classes - 1, true, err);
    case MR_POLICY_LBANN_DYNAMIC: return create_shards(x, 1, false, err);
    case MR_POLICY_NOPFS: return create_nopfs(x);
    case MR_POLICY_MILLRACE: return create_millrace(x);
    default:
        if (x->policy >= MR_POLICY_COUNT)
            return mr_error_plain(err, MR_E_UNSUPPORTED,
                                  "comes from a plug-in, which takes the exact engine (--method exact)");
        return mr_error_set(err, MR_E_UNSUPPORTED,
                            "redraws its batches, which takes the exact engine (--method exact)");
    }
}

int mr_expected_create(enum mr_policy_id policy, const struct mr_policy_world *w, struct mr_expected **out,
                       struct mr_error *err)
{
    struct mr_expected *x = calloc(1, sizeof(*x));
    int rc = -ENOMEM;
    if (x) {
        *x = (struct mr_expected){
            .policy = policy, .system = w->system, .nodes = w->nodes, .epochs = w->epochs, .total_mb = w->total_mb};
        x->filled_mb = calloc((uint64_t)w->nodes * MR_CLASS_MAX, sizeof(*x->filled_mb));
        rc = x->filled_mb ? create(x, err) : -ENOMEM;
    }
    if (rc) {
        mr_expected_free(x);
        return rc == -ENOMEM ? mr_error_set(err, rc, "planning '%s'", mr_policy_name(policy)) : rc;
    }
    *out = x;
    return 0;
}

void mr_expected_free(struct mr_expected *x)
{
    if (!x)
        return;
    for (unsigned j = 0; j < MR_CLASS_MAX; j++) {
        free(x->plan[j].held);
        free(x->plan[j].list_mb);
    }
    free(x->own);
    free(x->held_mb);
    free(x->filled_mb);
    free(x);
}

void mr_expected_stage(struct mr_expected *x, uint32_t node, double position, double draw,
                       struct mr_expected_split *out)
{
    *out = (struct mr_expected_split){0};
    switch (x->policy) {
    case MR_POLICY_NOPFS: stage_nopfs(x, node, position, draw, out); break;
    case MR_POLICY_MILLRACE: stage_millrace(x, (uint32_t)position, draw, out); break;
    case MR_POLICY_NAIVE:
    case MR_POLICY_STAGING: out->pfs = 1; break;
    default: stage_shards(x, (uint32_t)position, out); break;
    }
}

double mr_expected_fill(struct mr_expected *x, uint32_t node, unsigned class, double position, double max_mb)
{
    if (x->policy == MR_POLICY_NOPFS)
        return fill_nopfs(x, node, class, position, max_mb);
    if (!x->preloads || class != x->shard_class)
        return 0;
    double *at = &x->filled_mb[node * MR_CLASS_MAX + class];
    double mb = fmin(max_mb, x->shard_held * x->total_mb / x->nodes - *at);
    *at += mb;
    return mb > 1e-6 * max_mb ? mb : 0;
}
