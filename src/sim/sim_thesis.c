/* The thesis engine: reproduces the published simulator of "Clairvoyant Prefetching for Machine Learning I/O", quirks
 * included, because its tables can only be compared with the same rules:
 *
 *   Q1  Nodes run one after another inside a step; a barrier takes the slowest.
 *   Q2  A PFS read by one thread gets t(gamma)/gamma for itself; gamma = 1 + other nodes that have logged a PFS read
 *       at or after now. (Six threads of a node get six times that: the PFS is not really shared.)
 *   Q3  Staging is scheduled at the start of a step as far ahead as the buffer and the epoch reach, on p_0 threads
 *       taken round robin by one counter shared by all nodes; the previous step's samples are released at that moment.
 *   Q4  A request takes the better of the staged copy and the best direct fetch + write.
 *   Q5  A class delivers r_j(p_j) to each reader.
 *   Q6  Preloading runs p_j threads at t(N)/N each plus write; the run starts when the last node has finished.
 *   Q7  A remote look-up finds the node that stored the sample last, and only that one.
 *   Q8  lbann-dynamic reads the first epoch at t(N)/N per thread.
 *   Q9  parallel-staging on node i leaves out every peer's id at or above i*F/N.
 *   Q10 nopfs fills its classes in the background up to the start of the step; its staging uses local classes or the
 *       PFS, never peers. Equal frequencies are taken in the order of ids.
 *   Q11 A sample's staging space is counted on its first staging by a node only; later stagings take none.
 *
 * Of these Q8, the reach of Q3 up to the end of an epoch, and in Q10 "up to the start of the step" and the order of
 * equal frequencies are not stated by the source: they were chosen because the published tables come out. */
#include "sim/sim_world.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOT_HELD INFINITY
#define NO_HOLDER UINT32_MAX

struct filler { /* background fill of one class of one node (nopfs) */
    uint32_t *list;
    uint64_t n, at;
    double *clock; /* p_j threads */
};

enum space { NEVER_STAGED, COUNTED, FREE_FROM_NOW_ON };

struct node {
    double *staging_clock; /* p_0 threads */
    double *staged_at;     /* this epoch's accesses */
    uint64_t staged;       /* accesses scheduled in this epoch */
    unsigned char *space;  /* per sample, enum space (Q11) */
    double staged_mb;      /* space in use */
    double pfs_log;        /* start of the latest PFS read */
    double *held_at;       /* per sample: when it is in a local class */
    unsigned char *held_in;
    struct filler fill[MR_CLASS_MAX];
};

struct thesis {
    struct mr_sim_workload *w;
    const struct mr_scenario *s;
    enum mr_policy_id policy;
    struct mr_sim_world world; /* the policy of every node: what it fills, and whether it can run at all */
    struct node *nodes;
    uint32_t *holder; /* per sample, Q7 */
    uint32_t epoch;
    double now;
    uint64_t next_thread; /* Q3 */
    bool uses_staging, staging_from_classes, staging_from_peers, direct_from_classes;
    struct mr_sim_result *out;
};

/* A way to get a sample, and what it costs from `start` on. */
struct source {
    double seconds;
    int class;     /* -1: PFS */
    uint32_t node; /* where */
};

static double size_of(const struct thesis *t, uint32_t id)
{
    return t->w->size_mb[id];
}

static double write_s(const struct thesis *t, uint32_t id)
{
    const struct mr_system *m = &t->s->system;
    const struct mr_storage_class *staging = &m->classes[0];
    double mb = size_of(t, id);
    return fmax(mb / m->preprocess_mbps, mb * staging->threads / mr_class_write_mbps(staging));
}

static double pfs_s(const struct thesis *t, uint32_t id, unsigned gamma)
{
    const struct mr_system *m = &t->s->system;
    return size_of(t, id) / fmin(m->pfs_link_mbps, mr_curve_at(&m->pfs_mbps, gamma) / gamma);
}

static unsigned gamma_at(const struct thesis *t, uint32_t node, double when)
{
    if (t->policy == MR_POLICY_LBANN_DYNAMIC && t->epoch == 0)
        return t->s->nodes; /* Q8 */
    unsigned gamma = 1;
    for (uint32_t i = 0; i < t->s->nodes; i++)
        gamma += i != node && t->nodes[i].pfs_log >= when;
    return gamma;
}

static void consider(struct source *best, double seconds, int class, uint32_t node)
{
    if (seconds < best->seconds)
        *best = (struct source){seconds, class, node};
}

static struct source best_source(const struct thesis *t, uint32_t node, uint32_t id, double when, bool classes,
                                 bool peers)
{
    const struct mr_system *m = &t->s->system;
    struct source best = {pfs_s(t, id, gamma_at(t, node, when)), -1, node};
    const struct node *own = &t->nodes[node];
    if (classes && own->held_at[id] <= when)
        consider(&best, size_of(t, id) / mr_class_read_mbps(&m->classes[own->held_in[id]]), own->held_in[id], node);
    uint32_t h = t->holder[id];
    if (peers && h != NO_HOLDER && h != node && t->nodes[h].held_at[id] <= when) {
        double rate = fmin(m->network_mbps, mr_class_read_mbps(&m->classes[t->nodes[h].held_in[id]]));
        consider(&best, size_of(t, id) / rate, t->nodes[h].held_in[id], h);
    }
    return best;
}

/* Accounts a transfer that starts at `when`. */
static void use_source(struct thesis *t, uint32_t node, uint32_t id, double when, struct source src)
{
    if (src.class < 0) {
        t->nodes[node].pfs_log = fmax(t->nodes[node].pfs_log, when);
        t->out->pfs_mb += size_of(t, id);
    } else if (src.node != node) {
        t->out->peer_mb += size_of(t, id);
    } else {
        t->out->class_mb[src.class] += size_of(t, id);
    }
}

static void hold(struct thesis *t, uint32_t node, uint32_t id, unsigned class, double when)
{
    t->nodes[node].held_at[id] = when;
    t->nodes[node].held_in[id] = (unsigned char)class;
    t->holder[id] = node;
}

/* ---- background class fills (Q10) ---- */

static unsigned earliest(const double *clock, unsigned n)
{
    unsigned best = 0;
    for (unsigned k = 1; k < n; k++)
        if (clock[k] < clock[best])
            best = k;
    return best;
}

static void fill_classes(struct thesis *t, uint32_t node)
{
    for (unsigned j = 1; j < t->s->system.n_classes; j++) {
        struct filler *f = &t->nodes[node].fill[j];
        unsigned threads = t->s->system.classes[j].threads;
        while (f->at < f->n) {
            unsigned k = earliest(f->clock, threads);
            double start = f->clock[k];
            if (start > t->now)
                break;
            uint32_t id = f->list[f->at++];
            struct source src = best_source(t, node, id, start, false, true);
            use_source(t, node, id, start, src);
            f->clock[k] = start + src.seconds + write_s(t, id);
            hold(t, node, id, j, f->clock[k]);
        }
    }
}

/* ---- staging (Q3) ---- */

static bool held_by_anyone(const struct thesis *t, uint32_t id)
{
    return t->holder[id] != NO_HOLDER;
}

/* Preloading policies read what nobody holds directly, at the time of the request. */
static bool is_staged(const struct thesis *t, uint32_t id)
{
    switch (t->policy) {
    case MR_POLICY_STAGING:
    case MR_POLICY_LOCALITY_AWARE: /* what does not fit comes through staging, as for everybody */
    case MR_POLICY_NOPFS: return true;
    case MR_POLICY_LBANN_DYNAMIC: return t->epoch == 0 || held_by_anyone(t, id);
    default: return held_by_anyone(t, id);
    }
}

static const uint32_t *step_ids(const struct thesis *t, uint64_t step, uint32_t node)
{
    return t->w->stream + step * t->s->batch + node * t->w->per_node;
}

static uint32_t access_id(const struct thesis *t, uint32_t node, uint64_t k)
{
    return step_ids(t, k / t->w->per_node, node)[k % t->w->per_node];
}

static void stage_one(struct thesis *t, uint32_t node, uint32_t id, uint64_t k)
{
    struct node *n = &t->nodes[node];
    unsigned thread = (unsigned)(t->next_thread++ % t->s->system.classes[0].threads);
    double start = fmax(n->staging_clock[thread], t->now);
    struct source src = best_source(t, node, id, start, t->staging_from_classes, t->staging_from_peers);
    use_source(t, node, id, start, src);
    n->staging_clock[thread] = start + src.seconds + write_s(t, id);
    n->staged_at[k] = n->staging_clock[thread];
}

static void stage_ahead(struct thesis *t, uint32_t node, uint64_t step)
{
    struct node *n = &t->nodes[node];
    uint64_t epoch_len = t->w->steps_per_epoch * t->w->per_node;
    if (step > 0)
        for (uint64_t k = 0; k < t->w->per_node; k++) {
            uint32_t id = step_ids(t, step - 1, node)[k];
            if (n->space[id] == COUNTED) {
                n->staged_mb -= size_of(t, id);
                n->space[id] = FREE_FROM_NOW_ON;
            }
        }
    n->staged = MR_MAX(
        n->staged, step * t->w->per_node); /* a buffer smaller than a step: what has been used is not staged any more */
    while (n->staged < epoch_len) {
        uint32_t id = access_id(t, node, n->staged);
        double mb = n->space[id] == NEVER_STAGED ? size_of(t, id) : 0;
        if (n->staged_mb + mb > t->s->system.classes[0].capacity_mb)
            break;
        n->staged_mb += mb;
        if (n->space[id] == NEVER_STAGED)
            n->space[id] = COUNTED;
        if (is_staged(t, id))
            stage_one(t, node, id, n->staged);
        else
            n->staged_at[n->staged] = INFINITY;
        n->staged++;
    }
}

/* ---- one step of one node ---- */

static double request(struct thesis *t, uint32_t node, uint64_t k, uint32_t id, double when)
{
    double staged = INFINITY;
    if (t->uses_staging && k < t->nodes[node].staged)
        staged = fmax(when, t->nodes[node].staged_at[k]);
    struct source src = best_source(t, node, id, when, t->direct_from_classes, t->direct_from_classes);
    double direct = when + src.seconds + write_s(t, id);
    if (staged <= direct)
        return staged;
    use_source(t, node, id, when, src);
    return direct;
}

static double run_node_step(struct thesis *t, uint32_t node, uint64_t step)
{
    if (t->policy == MR_POLICY_NOPFS)
        fill_classes(t, node);
    if (t->uses_staging)
        stage_ahead(t, node, step);
    const uint32_t *ids = step_ids(t, step, node);
    double when = t->now;
    for (uint64_t k = 0; k < t->w->per_node; k++) {
        if (t->policy != MR_POLICY_PERFECT)
            when = request(t, node, step * t->w->per_node + k, ids[k], when);
        when += size_of(t, ids[k]) / t->s->system.compute_mbps;
        t->out->consumed_mb += size_of(t, ids[k]);
    }
    return when;
}

/* In its first epoch lbann-dynamic keeps what a node read, as far as class 1 reaches. */
static void keep_first_epoch(struct thesis *t)
{
    for (uint32_t i = 0; i < t->s->nodes; i++) {
        double left = t->s->system.classes[1].capacity_mb;
        for (uint64_t k = 0; k < t->w->steps_per_epoch * t->w->per_node; k++) {
            uint32_t id = access_id(t, i, k);
            if (size_of(t, id) > left)
                break;
            left -= size_of(t, id);
            hold(t, i, id, 1, t->now);
        }
    }
}

/* ---- preparation ---- */

static uint32_t shard_begin(const struct thesis *t, uint32_t node)
{
    return (uint32_t)((uint64_t)node * t->s->samples / t->s->nodes);
}

/* Loads the node's shard, as far as the class reaches; returns the seconds it takes (Q6). */
static double preload_shard(struct thesis *t, uint32_t node, unsigned class, double *left)
{
    struct mr_fill f;
    double seconds = 0;
    while (mr_policy_next_fill(&t->world.nodes[node], class, MR_NO_ACCESS, &f)) {
        uint32_t id = (uint32_t)f.id;
        if (id < shard_begin(t, node) || id >= shard_begin(t, node + 1))
            break; /* parallel-staging goes on with other shards, by Q9 */
        *left -= size_of(t, id);
        seconds += pfs_s(t, id, t->s->nodes) + write_s(t, id);
        t->out->pfs_mb += size_of(t, id);
        hold(t, node, id, class, 0);
    }
    return seconds / t->s->system.classes[class].threads;
}

/* The rest from peers, with the off-by-one shard of Q9. */
static double preload_from_peers(struct thesis *t, uint32_t node, unsigned class, double left)
{
    const struct mr_system *m = &t->s->system;
    double rate = fmin(m->network_mbps, mr_class_read_mbps(&m->classes[class]));
    double seconds = 0;
    for (uint32_t id = 0; id < shard_begin(t, node); id++) {
        if (t->nodes[node].held_at[id] <= 0 || !held_by_anyone(t, id))
            continue;
        if (size_of(t, id) > left)
            break;
        left -= size_of(t, id);
        seconds += size_of(t, id) / rate + write_s(t, id);
        t->out->peer_mb += size_of(t, id);
        t->nodes[node].held_at[id] = 0;
        t->nodes[node].held_in[id] = (unsigned char)class;
    }
    return seconds / m->classes[class].threads;
}

static int preload(struct thesis *t, unsigned class)
{
    double *left = calloc(t->s->nodes, sizeof(*left));
    if (!left)
        return -ENOMEM;
    double seconds = 0;
    for (uint32_t i = 0; i < t->s->nodes; i++) {
        left[i] = t->s->system.classes[class].capacity_mb;
        seconds = preload_shard(t, i, class, &left[i]);
    }
    if (t->policy == MR_POLICY_PARALLEL_STAGING) {
        double rest = 0;
        for (uint32_t i = 0; i < t->s->nodes; i++)
            rest = preload_from_peers(t, i, class, left[i]);
        seconds += rest;
    }
    free(left);
    t->now = t->out->preload_s = seconds; /* the last node's, Q6 */
    for (uint32_t i = 0; i < t->s->nodes; i++)
        for (uint64_t id = 0; id < t->s->samples; id++)
            if (t->nodes[i].held_at[id] <= 0)
                t->nodes[i].held_at[id] = seconds;
    return 0;
}

/* Takes over what every node fills into its classes, in that order. */
static int list_fills(struct thesis *t)
{
    for (uint32_t i = 0; i < t->s->nodes; i++)
        for (unsigned j = 1; j < t->s->system.n_classes; j++) {
            struct filler *f = &t->nodes[i].fill[j];
            struct mr_fill next;
            f->list = malloc(t->s->samples * sizeof(*f->list));
            if (!f->list)
                return -ENOMEM;
            while (mr_policy_next_fill(&t->world.nodes[i], j, MR_NO_ACCESS, &next))
                f->list[f->n++] = (uint32_t)next.id;
            uint32_t *fit = realloc(f->list, MR_MAX(f->n, (uint64_t)1) * sizeof(*f->list));
            f->list = fit ? fit : f->list;
        }
    return 0;
}

/* Policies that change the order: every node draws its accesses of the epoch from the ids it may use. */
static int redraw_epoch(struct thesis *t)
{
    uint64_t epoch_len = t->w->steps_per_epoch * t->w->per_node;
    uint32_t *ids = malloc(t->s->samples * sizeof(*ids));
    unsigned char *seen = calloc(t->s->samples, 1);
    if (!ids || !seen) {
        free(ids);
        free(seen);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < t->s->nodes; i++) {
        uint32_t previous = (i + t->s->nodes - 1) % t->s->nodes;
        uint64_t n = 0;
        for (uint32_t id = 0; id < t->s->samples; id++)
            if (t->nodes[i].held_at[id] < NOT_HELD ||
                (t->policy == MR_POLICY_DEEPIO_OPPORTUNISTIC && t->nodes[previous].held_at[id] < NOT_HELD))
                ids[n++] = id;
        for (uint64_t k = 0; k < epoch_len && n; k++) {
            uint64_t at = k % n;
            uint64_t pick =
                at + mr_rng_below(mr_rng_at(t->s->seed + t->epoch, MR_RNG_ORDER, (uint64_t)i << 40 | k), n - at);
            uint32_t id = ids[pick];
            ids[pick] = ids[at];
            ids[at] = id;
            t->w->stream[k / t->w->per_node * t->s->batch + i * t->w->per_node + k % t->w->per_node] = id;
            seen[id] = 1;
        }
    }
    uint64_t distinct = 0;
    for (uint64_t id = 0; id < t->s->samples; id++)
        distinct += seen[id];
    t->out->randomness += (double)distinct / (double)t->s->samples / t->s->epochs;
    free(ids);
    free(seen);
    return 0;
}

static int alloc_node(const struct thesis *t, struct node *n)
{
    const struct mr_system *m = &t->s->system;
    n->staging_clock = calloc(m->classes[0].threads, sizeof(double));
    n->staged_at = malloc(t->w->steps_per_epoch * t->w->per_node * sizeof(double));
    n->held_at = malloc(t->s->samples * sizeof(double));
    n->held_in = calloc(t->s->samples, 1);
    n->space = calloc(t->s->samples, 1);
    n->pfs_log = -1;
    if (!n->staging_clock || !n->staged_at || !n->held_at || !n->held_in || !n->space)
        return -ENOMEM;
    for (uint64_t id = 0; id < t->s->samples; id++)
        n->held_at[id] = NOT_HELD;
    for (unsigned j = 1; j < m->n_classes; j++)
        if (!(n->fill[j].clock = calloc(m->classes[j].threads, sizeof(double))))
            return -ENOMEM;
    return 0;
}

static void thesis_done(struct thesis *t)
{
    for (uint32_t i = 0; t->nodes && i < t->s->nodes; i++) {
        struct node *n = &t->nodes[i];
        free(n->staging_clock);
        free(n->staged_at);
        free(n->held_at);
        free(n->held_in);
        free(n->space);
        for (unsigned j = 1; j < MR_CLASS_MAX; j++) {
            free(n->fill[j].list);
            free(n->fill[j].clock);
        }
    }
    free(t->nodes);
    free(t->holder);
    mr_sim_world_done(&t->world);
}

static int thesis_init(struct thesis *t)
{
    t->nodes = calloc(t->s->nodes, sizeof(*t->nodes));
    t->holder = malloc(t->s->samples * sizeof(*t->holder));
    if (!t->nodes || !t->holder)
        return -ENOMEM;
    memset(t->holder, 0xff, t->s->samples * sizeof(*t->holder));
    for (uint32_t i = 0; i < t->s->nodes; i++)
        if (alloc_node(t, &t->nodes[i]))
            return -ENOMEM;
    enum mr_policy_id p = t->policy;
    t->uses_staging = p != MR_POLICY_NAIVE && p != MR_POLICY_PERFECT;
    t->staging_from_classes = t->uses_staging && p != MR_POLICY_STAGING;
    t->staging_from_peers = t->staging_from_classes && p != MR_POLICY_NOPFS;
    t->direct_from_classes = t->staging_from_classes;
    return 0;
}

/* MR_E_UNSUPPORTED with the reason when the policy cannot run here. */
static int make_world(struct thesis *t, struct mr_error *err)
{
    if (t->policy >= MR_POLICY_MILLRACE) /* and those of plug-ins, which the published model does not know */
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "not part of the published simulator; run it without --compat thesis");
    return mr_sim_world_init(&t->world, t->w, t->policy, false, err);
}

static int prepare(struct thesis *t)
{
    unsigned last = t->s->system.n_classes - 1;
    switch (t->policy) {
    case MR_POLICY_PARALLEL_STAGING:
    case MR_POLICY_LOCALITY_AWARE: return preload(t, last);
    case MR_POLICY_DEEPIO_ORDERED:
    case MR_POLICY_DEEPIO_OPPORTUNISTIC:
    case MR_POLICY_LBANN_PRELOAD: return preload(t, 1);
    case MR_POLICY_NOPFS: return list_fills(t);
    default: return 0;
    }
}

static void run_step(struct thesis *t, uint64_t step)
{
    double slowest = 0, sum = 0;
    for (uint32_t i = 0; i < t->s->nodes; i++) {
        double end = run_node_step(t, i, step);
        slowest = fmax(slowest, end);
        sum += end - t->now;
    }
    double mean = sum / t->s->nodes;
    if (mean > 0)
        t->out->imbalance += fmax(0, slowest - t->now - mean) / mean / (double)mr_sim_steps(t->w);
    t->now = slowest;
}

/* locality-aware's swap of items inside a batch does nothing in the published simulator. */
static bool redraws(enum mr_policy_id policy)
{
    return mr_policy_reorders(policy) && policy != MR_POLICY_LOCALITY_AWARE;
}

static int run_epoch(struct thesis *t, const atomic_bool *stop, struct mr_error *err)
{
    int rc = mr_sim_load_epoch(t->w, t->epoch, err);
    if (!rc && redraws(t->policy))
        rc = redraw_epoch(t);
    for (uint32_t i = 0; i < t->s->nodes; i++) {
        t->nodes[i].staged = 0;
        t->nodes[i].staged_mb = 0;
        for (uint64_t id = 0; id < t->s->samples; id++)
            if (t->nodes[i].space[id] == COUNTED)
                t->nodes[i].space[id] = FREE_FROM_NOW_ON;
    }
    uint64_t left = mr_sim_steps(t->w) - t->epoch * t->w->steps_per_epoch;
    for (uint64_t step = 0; step < MR_MIN(left, t->w->steps_per_epoch) && !rc; step++) {
        run_step(t, step);
        if (stop && atomic_load(stop))
            return mr_error_set(err, MR_E_INTERRUPTED, "stopped in epoch %u", t->epoch);
    }
    if (!rc && t->policy == MR_POLICY_LBANN_DYNAMIC && t->epoch == 0)
        keep_first_epoch(t);
    if (t->epoch == 0)
        t->out->first_epoch_s = t->now;
    return rc;
}

int mr_sim_thesis(struct mr_sim_workload *w, enum mr_policy_id policy, const atomic_bool *stop,
                  struct mr_sim_result *out, struct mr_error *err)
{
    struct mr_sim_result r = {.policy = policy, .possible = true};
    struct thesis t = {.w = w, .s = w->scenario, .policy = policy, .out = &r};
    struct mr_error why = {0};
    int rc = make_world(&t, &why);
    if (rc == MR_E_UNSUPPORTED) {
        r = (struct mr_sim_result){.policy = policy};
        memcpy(r.why, why.message, sizeof r.why - 1);
        *out = r;
        return 0;
    }
    if (rc && err)
        *err = why;
    if (!rc)
        rc = thesis_init(&t);
    if (!rc)
        rc = prepare(&t);
    for (t.epoch = 0; t.epoch < t.s->epochs && !rc; t.epoch++)
        rc = run_epoch(&t, stop, err);
    thesis_done(&t);
    if (rc == -ENOMEM)
        mr_error_set(err, rc, "simulating '%s'", mr_policy_name(policy));
    if (rc)
        return rc;
    r.time_s = t.now;
    if (!redraws(policy))
        r.randomness = 1;
    *out = r;
    return 0;
}
