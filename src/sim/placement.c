/* Analysis helpers on an access order: see placement.h. All work on one node's stream of the whole run. */
#include "sim/placement.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT32_MAX

/* A node's accesses of all epochs, in order. */
static int node_stream(struct mr_sim_workload *w, uint32_t node, uint32_t *ids, struct mr_error *err)
{
    for (uint32_t e = 0; e < w->scenario->epochs; e++) {
        int rc = mr_sim_load_epoch(w, e, err);
        if (rc)
            return rc;
        for (uint64_t step = 0; step < w->steps_per_epoch; step++) {
            memcpy(ids, w->stream + step * w->scenario->batch + node * w->per_node, w->per_node * sizeof(*ids));
            ids += w->per_node;
        }
    }
    return 0;
}

static uint64_t run_len(const struct mr_sim_workload *w)
{
    return w->steps_per_epoch * w->per_node * w->scenario->epochs;
}

/* Fills misses: a sample of the chosen set is fetched once, at its first use; the others at every use. */
static uint64_t static_misses(const uint32_t *ids, uint64_t n, unsigned char *chosen)
{
    uint64_t misses = 0;
    for (uint64_t k = 0; k < n; k++) {
        if (chosen[ids[k]] == 0) {
            misses++;
        } else if (chosen[ids[k]] == 1) {
            misses++;
            chosen[ids[k]] = 2;
        }
    }
    return misses;
}

static void choose_random(const struct mr_scenario *s, uint32_t node, uint64_t capacity, uint32_t *pool,
                          unsigned char *chosen)
{
    for (uint32_t id = 0; id < s->samples; id++)
        pool[id] = id;
    for (uint64_t k = 0; k < capacity; k++) {
        uint64_t pick = k + mr_rng_below(mr_rng_at(s->seed, MR_RNG_TEST, (uint64_t)node << 40 | k), s->samples - k);
        uint32_t id = pool[pick];
        pool[pick] = pool[k];
        chosen[id] = 1;
    }
}

static void choose_frequent(const struct mr_scenario *s, const uint32_t *ids, uint64_t n, uint64_t capacity,
                            uint32_t *count, unsigned char *chosen)
{
    memset(count, 0, s->samples * sizeof(*count));
    for (uint64_t k = 0; k < n; k++)
        count[ids[k]]++;
    for (uint32_t freq = s->epochs; freq > 0 && capacity; freq--)
        for (uint64_t id = 0; id < s->samples && capacity; id++)
            if (count[id] == freq) {
                chosen[id] = 1;
                capacity--;
            }
}

/* Belady with bypass. The cache always holds the samples with the nearest next uses, so it is enough to know, among the
 * held ones, the farthest: a bucket per access number (a sample's next use is unique) and a pointer that only moves
 * down between insertions. */
static uint64_t belady_misses(const uint32_t *ids, uint64_t n, uint64_t samples, uint64_t capacity, uint32_t *next,
                              uint32_t *last, uint32_t *held_until)
{
    memset(last, 0xff, samples * sizeof(*last));
    for (uint64_t k = n; k-- > 0;) {
        next[k] = last[ids[k]];
        last[ids[k]] = (uint32_t)k;
    }
    /* held_until[k] != NEVER: some sample is held whose next use is access k. */
    memset(held_until, 0xff, n * sizeof(*held_until));
    uint64_t held = 0, misses = 0, farthest = 0;
    for (uint64_t k = 0; k < n; k++) {
        bool hit = held_until[k] != NEVER;
        if (hit) {
            held_until[k] = NEVER;
            held--;
        } else {
            misses++;
        }
        uint32_t until = next[k];
        if (until == NEVER || capacity == 0)
            continue;
        while (farthest > k && held_until[farthest] == NEVER)
            farthest--;
        if (held == capacity) {
            if (until >= farthest)
                continue; /* bypass */
            held_until[farthest] = NEVER;
            held--;
        }
        held_until[until] = ids[k];
        held++;
        farthest = MR_MAX(farthest, (uint64_t)until);
    }
    return misses;
}

int mr_sim_outside_reads(struct mr_sim_workload *w, double cache_ratio, enum mr_placement placement, double *out,
                         struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    uint64_t n = run_len(w), capacity = (uint64_t)((double)s->samples * cache_ratio), misses = 0;
    uint32_t *ids = malloc(n * sizeof(*ids)), *next = malloc(n * sizeof(*next)), *held = malloc(n * sizeof(*held));
    uint32_t *table = malloc(s->samples * sizeof(*table));
    unsigned char *chosen = malloc(s->samples);
    int rc = ids && next && held && table && chosen ? 0 : mr_error_set(err, -ENOMEM, "analysing the order");
    for (uint32_t node = 0; node < s->nodes && !rc; node++) {
        rc = node_stream(w, node, ids, err);
        if (rc)
            break;
        memset(chosen, 0, s->samples);
        if (placement == MR_PLACE_NEXT_USE) {
            misses += belady_misses(ids, n, s->samples, capacity, next, table, held);
            continue;
        }
        if (placement == MR_PLACE_RANDOM)
            choose_random(s, node, capacity, table, chosen);
        else
            choose_frequent(s, ids, n, capacity, table, chosen);
        misses += static_misses(ids, n, chosen);
    }
    free(ids);
    free(next);
    free(held);
    free(table);
    free(chosen);
    if (!rc)
        *out = (double)misses / (double)n / s->nodes;
    return rc;
}

int mr_sim_frequency(struct mr_sim_workload *w, uint64_t *counts, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    uint64_t n = run_len(w);
    uint32_t *ids = malloc(n * sizeof(*ids)), *count = calloc(s->samples, sizeof(*count));
    int rc = ids && count ? node_stream(w, 0, ids, err) : mr_error_set(err, -ENOMEM, "counting accesses");
    if (!rc) {
        for (uint64_t k = 0; k < n; k++)
            count[ids[k]]++;
        memset(counts, 0, (s->epochs + 1) * sizeof(*counts));
        for (uint64_t id = 0; id < s->samples; id++)
            counts[count[id]]++;
    }
    free(ids);
    free(count);
    return rc;
}

/* Distinct samples between two uses, by a Fenwick tree over access numbers with a one at each sample's latest use. */
static void tree_add(uint32_t *tree, uint64_t n, uint64_t at, int delta)
{
    for (at++; at <= n; at += at & -at)
        tree[at] = (uint32_t)((int64_t)tree[at] + delta);
}

static uint64_t tree_sum(const uint32_t *tree, uint64_t at)
{
    uint64_t sum = 0;
    for (; at > 0; at -= at & -at)
        sum += tree[at];
    return sum;
}

int mr_sim_reuse_distance(struct mr_sim_workload *w, uint64_t *hist, unsigned bins, uint64_t *cold,
                          struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    uint64_t n = run_len(w);
    uint32_t *ids = malloc(n * sizeof(*ids)), *last = malloc(s->samples * sizeof(*last)),
             *tree = calloc(n + 1, sizeof(*tree));
    int rc = ids && last && tree ? node_stream(w, 0, ids, err) : mr_error_set(err, -ENOMEM, "measuring reuse");
    if (!rc) {
        memset(last, 0xff, s->samples * sizeof(*last));
        memset(hist, 0, bins * sizeof(*hist));
        *cold = 0;
        for (uint64_t k = 0; k < n; k++) {
            /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): node_stream fills all n */
            uint32_t before = last[ids[k]];
            if (before == NEVER) {
                (*cold)++;
            } else {
                uint64_t distinct = tree_sum(tree, k) - tree_sum(tree, before + 1);
                hist[MR_MIN(distinct * bins / s->samples, (uint64_t)bins - 1)]++;
                tree_add(tree, n, before, -1);
            }
            tree_add(tree, n, k, 1);
            last[ids[k]] = (uint32_t)k;
        }
    }
    free(ids);
    free(last);
    free(tree);
    return rc;
}
