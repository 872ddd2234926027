/* The expected-value forms of the policies: what they do on average, without tables of who holds what, for runs so
 * large that one byte per node and sample would not fit. Under full shuffling a node reads a sample in an epoch with
 * probability 1/N, independently from epoch to epoch, so the share of its accesses that find the sample in an own
 * class, at a peer or only on the PFS follows from the position in the run. doc/guides/simulator.md derives the
 * formulas and states the error against the exact engine. Nodes are alike: capacities are those of node 0.
 *
 * Shards (preloading policies, lbann-dynamic after its first epoch): the job holds h = min(1, N d / S) of the set, a
 * node finds h/N of it at home. millrace: the own share is that of Belady with bypass on a node's random stream,
 * computed as a fluid (fluid_belady). nopfs: a sample's number of uses on a node is Binomial(E, 1/N); the classes are
 * filled by descending number, each in the order of first use. A filler's progress is its position in that list (MB);
 * tables translate it into the epoch up to which first uses are covered. */
#include "policy/policy_internal.h"
#include "base/common.h"
#include "model/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8 /* points per epoch of all tables */

struct nopfs_class {
    double accesses;    /* share of a node's accesses that go to samples planned for this class */
    double *held;       /* [point]: share of all accesses whose sample is of this class and was used before the point */
    double *list_bytes; /* [point]: MB of the class's list first used before the point */
};

struct expected {
    unsigned classes;
    double capacity[MR_POLICY_CLASS_MAX], total; /* bytes, of a node and of the set */
    uint32_t nodes, epochs;
    double left_out;      /* share of the samples that an epoch does not read */
    double per_node;      /* samples of a node in a step; locality-aware */
    unsigned shard_class; /* preloading policies and lbann-dynamic */
    bool preloads, exchanges;
    double shard_held;  /* h */
    double *own;        /* millrace: [epoch], share found at home */
    double *held_bytes; /* millrace: [epoch], what a node holds at the end of the epoch */
    double lost;        /* millrace: share that nobody can hold */
    struct nopfs_class plan[MR_POLICY_CLASS_MAX];
    double *filled;              /* nopfs and preloading: [node * MR_POLICY_CLASS_MAX + class], position in the list */
    double homeless;             /* nopfs: share of accesses to samples that no node plans to keep */
    double staged0, staged0_pfs; /* nopfs: shares summed over first-epoch steps, and of these from the PFS */
};

static uint64_t points(const struct expected *x)
{
    return (uint64_t)x->epochs * SLOTS;
}

/* ---- millrace ---- */

/* Belady with bypass as a fluid: mass[t] is the share of all samples that a node holds for its use at point t. At every
 * point the node uses p/SLOTS of all samples; each is used again g epochs later with probability p q^(g-1). What
 * exceeds the capacity is dropped from the farthest end. */
static void fluid_belady(struct expected *x, double capacity, double *mass)
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
        x->held_bytes[epoch] = held * x->total;
    }
}

static double node_capacity(const struct expected *x)
{
    double bytes = 0;
    for (unsigned j = 1; j < x->classes; j++)
        bytes += x->capacity[j];
    return bytes;
}

static int plan_millrace(struct expected *x)
{
    double *mass = calloc(points(x), sizeof(*mass));
    x->own = calloc(x->epochs, sizeof(*x->own));
    x->held_bytes = calloc(x->epochs, sizeof(*x->held_bytes));
    int rc = mass && x->own && x->held_bytes ? 0 : -ENOMEM;
    if (!rc) {
        fluid_belady(x, node_capacity(x) / x->total, mass);
        x->lost = fmax(0, 1 - x->nodes * node_capacity(x) / x->total);
    }
    free(mass);
    return rc;
}

/* Class 1 is filled first, then class 2: the shares of `held` MB, times `share`. */
static void spread(const struct expected *x, double held, double share, double *class)
{
    double left = held;
    for (unsigned j = 1; j < x->classes && held > 0; j++) {
        double bytes = j + 1 < x->classes ? fmin(left, x->capacity[j]) : left;
        class[j] = share * bytes / held;
        left -= bytes;
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

/* Samples that the epochs before have left out come from the PFS, whoever would keep them. */
static void read_left_out(const struct expected *x, uint32_t epoch, struct mr_expected_split *out)
{
    double fresh = pow(x->left_out, epoch);
    for (unsigned j = 0; j < x->classes; j++)
        out->own[j] *= 1 - fresh;
    out->peer *= 1 - fresh;
    out->pfs = out->pfs * (1 - fresh) + fresh;
}

static void stage_millrace(void *state, uint32_t node, double position, double draw, struct mr_expected_split *out)
{
    const struct expected *x = state;
    uint32_t epoch = (uint32_t)position;
    (void)node;
    *out = (struct mr_expected_split){0};
    if (epoch == 0 || x->classes < 2) {
        out->pfs = 1;
        return;
    }
    double own = fmin(1, x->own[epoch]), shares[MR_POLICY_CLASS_MAX] = {0};
    if (x->lost > 0) /* one copy of each sample that is held, wherever it was read first */
        own = (1 - x->lost) / x->nodes;
    spread(x, x->held_bytes[epoch - 1], 1, shares);
    for (unsigned j = 1; j < x->classes; j++)
        out->own[j] = own * shares[j];
    out->pfs = fmin(1 - own, x->lost);
    out->peer = 1 - own - out->pfs;
    out->peer_class = pick_class(shares, x->classes, draw);
    read_left_out(x, epoch, out);
}

/* ---- shards ---- */

/* locality-aware: of a batch of B = N b samples, X of which a node holds, it reads min(X, b) of its own. X is nearly
 * Poisson with mean h b; what is too much for one node goes to others that have places left. */
static double own_of_exchange(double held, double per_node)
{
    double mean = held * per_node, own = 0, p = exp(-mean);
    if (mean > 400) /* nearly normal; E min(X, b) = b - sd (z Phi(z) + phi(z)), z = (b - mean) / sd */
    {
        double sd = sqrt(mean), z = (per_node - mean) / sd;
        double phi = exp(-z * z / 2) / sqrt(2 * 3.14159265358979), below = 0.5 * erfc(-z / sqrt(2));
        return fmin(held, (per_node - sd * (z * below + phi)) / per_node);
    }
    const unsigned end = (unsigned)ceil(mean + 12 * sqrt(mean) + 12);
    for (unsigned k = 0; k < end; k++) {
        own += fmin(k, per_node) * p;
        p *= mean / (k + 1.0);
    }
    return fmin(held, own / per_node);
}

static void stage_exchange(const struct expected *x, struct mr_expected_split *out)
{
    double own = own_of_exchange(x->shard_held, x->per_node);
    out->own[x->shard_class] = own;
    out->peer = x->shard_held - own;
    out->peer_class = x->shard_class;
    out->pfs = 1 - x->shard_held;
}

static void stage_shards(void *state, uint32_t node, double position, double draw, struct mr_expected_split *out)
{
    const struct expected *x = state;
    (void)node;
    (void)draw;
    *out = (struct mr_expected_split){0};
    if (x->exchanges) {
        stage_exchange(x, out);
        return;
    }
    uint32_t epoch = (uint32_t)position;
    double held = !x->preloads && epoch == 0 ? 0 : x->shard_held;
    out->own[x->shard_class] = held / x->nodes;
    out->peer = held - held / x->nodes;
    out->peer_class = x->shard_class;
    out->pfs = 1 - held;
    if (!x->preloads && epoch > 0)
        read_left_out(x, epoch, out);
}

static void set_shards(struct expected *x, unsigned class, bool preloads)
{
    x->shard_class = class;
    x->preloads = preloads;
    x->shard_held = fmin(1, x->nodes * x->capacity[class] / x->total);
}

/* ---- nopfs ---- */

/* Adds `share` of the samples that a node uses f times to a class's tables. */
static void plan_frequency(struct expected *x, struct nopfs_class *c, uint32_t f, double share)
{
    double accesses = f * share * x->nodes / x->epochs;
    c->accesses += accesses;
    for (uint64_t k = 0; k <= points(x); k++) {
        double rest = 1 - (double)k / (double)points(x);
        /* Of the sample's f uses one is the access at hand; the others lie in other epochs. */
        double others = fmax(0, 1 - (double)k / (double)(points(x) - SLOTS));
        c->held[k] += accesses * (1 - (f > 1 ? pow(others, f - 1) : 1));
        c->list_bytes[k] += x->total * share * (1 - pow(rest, f));
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
static int count_homeless(struct expected *x, uint32_t least, double weight)
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

static int plan_nopfs(struct expected *x)
{
    for (unsigned j = 1; j < x->classes; j++) {
        x->plan[j].held = calloc(points(x) + 1, sizeof(double));
        x->plan[j].list_bytes = calloc(points(x) + 1, sizeof(double));
        if (!x->plan[j].held || !x->plan[j].list_bytes)
            return -ENOMEM;
    }
    unsigned class = 1;
    double left = x->classes > 1 ? x->capacity[1] : 0;
    for (uint32_t f = x->epochs; f > 0; f--) {
        double share = mr_binomial_pmf(x->epochs, 1.0 / x->nodes, f);
        if (share < 1e-15)
            continue;
        double all = share;
        while (share > 0 && class < x->classes) {
            double take = fmin(share, left / x->total);
            plan_frequency(x, &x->plan[class], f, take);
            share -= take;
            left -= take * x->total;
            if (share > 0)
                left = ++class < x->classes ? x->capacity[class] : 0;
        }
        if (share > 0) { /* all nodes take the same, lowest ids of the last frequency, as the exact policy does */
            int rc = count_homeless(x, f, 1 - share / all);
            return rc ? rc : count_homeless(x, f + 1, share / all);
        }
    }
    return 0;
}

/* Linear in between; the position is in epochs. */
static double table_at(const struct expected *x, const double *table, double position)
{
    double k = fmin(position * SLOTS, (double)points(x));
    uint64_t i = MR_MIN((uint64_t)k, points(x) - 1);
    return table[i] + (table[i + 1] - table[i]) * (k - (double)i);
}

/* The position where the list reaches `bytes`. */
static double list_position(const struct expected *x, const double *table, double bytes)
{
    uint64_t low = 0, high = points(x);
    if (bytes >= table[high])
        return x->epochs;
    while (high - low > 1) {
        uint64_t mid = (low + high) / 2;
        if (table[mid] <= bytes)
            low = mid;
        else
            high = mid;
    }
    double step = table[high] - table[low];
    return ((double)low + (step > 0 ? (bytes - table[low]) / step : 0)) / SLOTS;
}

static double frontier(const struct expected *x, uint32_t node, unsigned j)
{
    return list_position(x, x->plan[j].list_bytes, x->filled[node * MR_POLICY_CLASS_MAX + j]);
}

/* How much of the first epoch staging has read from the PFS and so kept. */
static double kept_by_staging(const struct expected *x)
{
    return x->staged0 > 0 ? x->staged0_pfs / x->staged0 : 1;
}

static void stage_nopfs(void *state, uint32_t node, double position, double draw, struct mr_expected_split *out)
{
    struct expected *x = state;
    *out = (struct mr_expected_split){0};
    double own = 0, planned = 0, ahead = 0, filled = 0, list_bytes = 0;
    for (unsigned j = 1; j < x->classes; j++) {
        const struct nopfs_class *c = &x->plan[j];
        double front = frontier(x, node, j);
        planned += c->accesses;
        if (front >= position)
            out->own[j] = c->accesses;
        else if (position >= 1) {
            out->own[j] = table_at(x, c->held, front);
            if (front < 1)
                out->own[j] += kept_by_staging(x) * (table_at(x, c->held, 1) - out->own[j]);
        }
        if (front > 1)
            ahead += x->filled[node * MR_POLICY_CLASS_MAX + j] - table_at(x, c->list_bytes, 1);
        own += out->own[j];
        filled += x->filled[node * MR_POLICY_CLASS_MAX + j];
        list_bytes += c->list_bytes[points(x)];
    }
    /* In the first epoch peers hold only what their fillers fetched for later epochs; afterwards also what its user
     * kept. */
    double found = 1 - pow(1 - fmin(1, ahead / x->total), x->nodes - 1);
    if (position >= 1 && x->nodes > 1)
        found = fmax(planned, list_bytes > 0 && own < 1 ? (1 - x->homeless / (1 - own)) * filled / list_bytes : 0);
    out->peer = (1 - own) * found;
    out->pfs = fmax(0, 1 - own - out->peer);
    out->peer_class = pick_class(out->own, x->classes, draw);
    if (position < 1) {
        x->staged0 += 1;
        x->staged0_pfs += out->pfs;
    }
}

static double fill_nopfs(void *state, uint32_t node, unsigned class, double position, double max_bytes)
{
    struct expected *x = state;
    const struct nopfs_class *c = &x->plan[class];
    double *at = &x->filled[node * MR_POLICY_CLASS_MAX + class];
    /* What staging has read from the PFS in the first epoch is in place already. */
    double staged = table_at(x, c->list_bytes, fmin(position, 1));
    if (*at < staged) {
        double skip = kept_by_staging(x), gap = staged - *at, fetch = gap * (1 - skip);
        if (fetch > max_bytes) {
            *at += max_bytes / (1 - skip);
            return max_bytes;
        }
        *at = staged;
        if (fetch > 0.1 * max_bytes)
            return fetch;
    }
    double bytes = fmin(max_bytes, c->list_bytes[points(x)] - *at);
    *at += bytes;
    return bytes > 1e-6 * max_bytes ? bytes : 0;
}

/* ---- interface ---- */

static double fill_shards(void *state, uint32_t node, unsigned class, double position, double max_bytes)
{
    struct expected *x = state;
    (void)position;
    if (!x->preloads || class != x->shard_class)
        return 0;
    double *at = &x->filled[node * MR_POLICY_CLASS_MAX + class];
    double bytes = fmin(max_bytes, x->shard_held * x->total / x->nodes - *at);
    *at += bytes;
    return bytes > 1e-6 * max_bytes ? bytes : 0;
}

static void stage_pfs(void *state, uint32_t node, double position, double draw, struct mr_expected_split *out)
{
    (void)state;
    (void)node;
    (void)position;
    (void)draw;
    *out = (struct mr_expected_split){.pfs = 1};
}

static void destroy(void *state)
{
    struct expected *x = state;
    for (unsigned j = 0; j < MR_POLICY_CLASS_MAX; j++) {
        free(x->plan[j].held);
        free(x->plan[j].list_bytes);
    }
    free(x->own);
    free(x->held_bytes);
    free(x->filled);
    free(x);
}

static int create(const struct mr_policy_world *w, int (*plan)(struct expected *x), void **state, struct mr_error *err)
{
    struct expected *x = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "expected behaviour of a policy");
    *x = (struct expected){.classes = w->classes,
                           .total = (double)w->total_bytes,
                           .nodes = w->nodes,
                           .epochs = (uint32_t)w->epochs,
                           .left_out = 1 - fmin(1, w->epoch_share),
                           .per_node = w->node_batch};
    for (unsigned j = 0; j < w->classes; j++)
        x->capacity[j] = (double)mr_policy_capacity(w, 0, j);
    x->filled = calloc((uint64_t)w->nodes * MR_POLICY_CLASS_MAX, sizeof(*x->filled));
    int rc = x->filled && (!plan || plan(x) == 0) ? 0 : -ENOMEM;
    if (rc) {
        destroy(x);
        return mr_error_set(err, rc, "expected behaviour of a policy");
    }
    *state = x;
    return 0;
}

static int create_pfs(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    return create(w, NULL, state, err);
}

static int create_shards(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_class(w, err);
    rc = rc ? rc : create(w, NULL, state, err);
    if (!rc)
        set_shards(*state, 1, true);
    return rc;
}

static int create_locality(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_class(w, err);
    rc = rc ? rc : create(w, NULL, state, err);
    if (!rc) {
        set_shards(*state, w->classes - 1, true);
        ((struct expected *)*state)->exchanges = true;
    }
    return rc;
}

static int create_lbann_preload(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_memory(w, err);
    return rc ? rc : create_shards(w, state, err);
}

static int create_lbann_dynamic(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_memory(w, err);
    rc = rc ? rc : create(w, NULL, state, err);
    if (!rc)
        set_shards(*state, 1, false);
    return rc;
}

static int create_nopfs(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    return create(w, plan_nopfs, state, err);
}

static int create_millrace(const struct mr_policy_world *w, void **state, struct mr_error *err)
{
    return create(w, plan_millrace, state, err);
}

const struct mr_expected_ops mr_expected_pfs = {create_pfs, destroy, stage_pfs, NULL};
const struct mr_expected_ops mr_expected_shards = {create_shards, destroy, stage_shards, fill_shards};
const struct mr_expected_ops mr_expected_locality = {create_locality, destroy, stage_shards, fill_shards};
const struct mr_expected_ops mr_expected_lbann_preload = {create_lbann_preload, destroy, stage_shards, fill_shards};
const struct mr_expected_ops mr_expected_lbann_dynamic = {create_lbann_dynamic, destroy, stage_shards, NULL};
const struct mr_expected_ops mr_expected_nopfs = {create_nopfs, destroy, stage_nopfs, fill_nopfs};
const struct mr_expected_ops mr_expected_millrace = {create_millrace, destroy, stage_millrace, NULL};
