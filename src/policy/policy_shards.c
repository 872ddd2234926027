/* Policies that copy a fixed shard of the data set to every node before training starts: DeepIO (ordered and
 * opportunistic), LBANN's preloaded store, locality-aware loading and parallel data staging. They differ in the class
 * they use, in what follows the own shard, and in what nodes read.
 *
 *   node i holds ids [begin(i), begin(i) + count(i)) modulo F, begin(i) = i F / N: its shard, parallel-staging also the
 *   neighbours' that follow, as far as the class reaches. So N numbers say who holds what.
 *
 * locality-aware: the samples of a global batch are read by the nodes that hold them, as far as each node's share of
 * the batch goes; what is left over goes to nodes with places left, in the order of the batch. The batch stays the
 * same. What no node holds comes from the PFS through staging. Every node computes the same exchange. */
#include "policy/policy_internal.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct shards {
    const struct mr_policy_world *w;
    uint32_t node;
    unsigned class;
    bool beyond;     /* ranges may go beyond the own shard */
    uint64_t *count; /* per node */
    uint64_t filled; /* of the own range */
};

static uint64_t shard_begin(const struct mr_policy_world *w, uint32_t node)
{
    return (uint64_t)((unsigned __int128)w->samples * node / w->nodes);
}

/* How many ids from `from` on, at most `most`, fit the room. */
static uint64_t count_fitting(const struct mr_policy_world *w, uint64_t from, uint64_t most, uint64_t room)
{
    if (w->sample_bytes)
        return MR_MIN(most, room / w->sample_bytes);
    uint64_t n = 0;
    for (uint64_t bytes; n < most && (bytes = mr_policy_bytes(w, (from + n) % w->samples)) <= room; n++)
        room -= bytes;
    return n;
}

static void destroy(void *state)
{
    struct shards *s = state;
    free(s->count);
    free(s);
}

static int create(const struct mr_policy_world *w, uint32_t node, unsigned class, bool rest_too, void **state,
                  struct mr_error *err)
{
    struct shards *s = calloc(1, sizeof(*s));
    uint64_t *count = malloc(w->nodes * sizeof(*count));
    if (!s || !count) {
        free(s);
        free(count);
        return mr_error_set(err, -ENOMEM, "planning shards");
    }
    *s = (struct shards){.w = w, .node = node, .class = class, .beyond = rest_too, .count = count};
    for (uint32_t i = 0; i < w->nodes; i++) {
        uint64_t begin = shard_begin(w, i), most = rest_too ? w->samples : shard_begin(w, i + 1) - begin;
        count[i] = count_fitting(w, begin, most, mr_policy_capacity(w, i, class));
    }
    *state = s;
    return 0;
}

static int create_in_memory(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_class(w, err);
    return rc ? rc : create(w, node, 1, false, state, err);
}

static int create_in_last(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_class(w, err);
    return rc ? rc : create(w, node, w->classes - 1, false, state, err);
}

static int create_lbann(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_memory(w, err);
    return rc ? rc : create(w, node, 1, false, state, err);
}

static int create_parallel(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    int rc = mr_policy_need_class(w, err);
    return rc ? rc : create(w, node, w->classes - 1, true, state, err);
}

static bool in_range(const struct shards *s, uint32_t node, uint64_t id)
{
    uint64_t begin = shard_begin(s->w, node), at = id >= begin ? id - begin : id + s->w->samples - begin;
    return at < s->count[node];
}

/* The node whose shard has the id: the last one that begins at or before it. */
static uint32_t owner(const struct shards *s, uint64_t id)
{
    return (uint32_t)((((unsigned __int128)id + 1) * s->w->nodes - 1) / s->w->samples);
}

/* Whom to ask: the owner, or, where its class was too small, a node before it whose range reaches that far. */
static bool find_peer(const struct shards *s, uint64_t id, uint32_t *peer)
{
    uint32_t nodes = s->w->nodes, first = owner(s, id);
    for (uint32_t k = 0; k < nodes; k++) {
        *peer = (first + nodes - k) % nodes;
        if (*peer != s->node && in_range(s, *peer, id))
            return true;
        if (k == 0 && !s->beyond)
            return false;
    }
    return false;
}

static bool holds(void *state, uint32_t node, uint64_t id, uint64_t access)
{
    (void)access;
    return in_range(state, node, id);
}

static void plan(void *state, uint64_t access, uint64_t id, struct mr_plan *out)
{
    const struct shards *s = state;
    uint32_t peer = 0;
    bool own = in_range(s, s->node, id), ask = find_peer(s, id, &peer);
    (void)access;
    mr_plan_sources(out, own ? s->class : MR_NOT_HELD, &peer, ask);
    out->keep = own ? s->class : MR_NOT_HELD;
}

static bool next_fill(void *state, unsigned class, uint64_t horizon, struct mr_fill *out)
{
    struct shards *s = state;
    (void)horizon; /* everything is due before the first access */
    if (class != s->class || s->filled == s->count[s->node])
        return false;
    uint64_t id = (shard_begin(s->w, s->node) + s->filled++) % s->w->samples;
    uint32_t peer = owner(s, id);
    *out = (struct mr_fill){.id = id, .storage_class = class};
    if (peer != s->node && in_range(s, peer, id))
        out->source[out->n_sources++] = (struct mr_plan_source){.kind = MR_FROM_PEER, .node = peer};
    out->source[out->n_sources++] = (struct mr_plan_source){.kind = MR_FROM_PFS};
    return true;
}

/* ---- other samples than the order says ---- */

/* Draws the node's accesses without replacement from what it and `partner` hold, again from the start when that runs
 * out. */
static void redraw_from(const struct shards *s, uint64_t epoch, uint32_t partner, uint64_t *ids, uint64_t n)
{
    const struct mr_policy_world *w = s->w;
    uint64_t most = s->count[s->node] + (partner != s->node ? s->count[partner] : 0), m = 0;
    uint64_t *pool = malloc(MR_MAX(most, (uint64_t)1) * sizeof(*pool));
    for (uint64_t k = 0; pool && k < s->count[s->node]; k++)
        pool[m++] = (shard_begin(w, s->node) + k) % w->samples;
    for (uint64_t k = 0; pool && partner != s->node && k < s->count[partner]; k++)
        pool[m++] = (shard_begin(w, partner) + k) % w->samples;
    for (uint64_t k = 0; k < n && m; k++) {
        uint64_t at = k % m, draw = mr_rng_at(w->seed + epoch, MR_RNG_ORDER, (uint64_t)s->node << 40 | k);
        uint64_t pick = at + mr_rng_below(draw, m - at), id = pool[pick];
        pool[pick] = pool[at];
        pool[at] = id;
        ids[k] = id;
    }
    free(pool);
}

static void redraw_local(void *state, uint64_t epoch, uint64_t *ids, uint64_t n)
{
    const struct shards *s = state;
    redraw_from(s, epoch, s->node, ids, n);
}

static void redraw_with_previous(void *state, uint64_t epoch, uint64_t *ids, uint64_t n)
{
    const struct shards *s = state;
    redraw_from(s, epoch, (s->node + s->w->nodes - 1) % s->w->nodes, ids, n);
}

struct exchange {    /* one step */
    uint64_t *batch; /* the ids of all ranks, in the order of their positions */
    uint64_t *left;  /* per node: places */
    uint64_t n;
};

static int load_step(const struct shards *s, uint64_t epoch, uint64_t row, uint64_t rows, uint64_t *column,
                     struct exchange *x)
{
    struct mr_schedule *sc = s->w->schedule;
    uint32_t world = mr_schedule_world(sc);
    for (uint32_t r = 0; r < world; r++) {
        if (mr_schedule_ids(sc, epoch, r, row, column, rows, NULL) != (int64_t)rows)
            return -ENOMEM;
        for (uint64_t k = 0; k < rows; k++)
            x->batch[k * world + r] = column[k];
    }
    x->n = rows * world;
    for (uint32_t i = 0; i < s->w->nodes; i++)
        x->left[i] = rows * (mr_schedule_first_rank(sc, i + 1) - mr_schedule_first_rank(sc, i));
    return 0;
}

/* Deals the batch; what falls to this node goes to `out`, returns how many. */
static uint64_t deal_step(const struct shards *s, struct exchange *x, uint64_t *out)
{
    uint64_t taken = 0, rest = 0;
    for (uint64_t k = 0; k < x->n; k++) {
        uint64_t id = x->batch[k];
        uint32_t holder = owner(s, id);
        if (!in_range(s, holder, id) || x->left[holder] == 0) {
            x->batch[rest++] = id;
            continue;
        }
        x->left[holder]--;
        if (holder == s->node)
            out[taken++] = id;
    }
    for (uint64_t k = 0, node = 0; k < rest; k++) {
        while (x->left[node] == 0)
            node++;
        x->left[node]--;
        if (node == s->node)
            out[taken++] = x->batch[k];
    }
    return taken;
}

/* `n` is rows times the node's ranks; a step has local_batch rows. Where memory is exhausted the order stays. */
static void exchange_steps(void *state, uint64_t epoch, uint64_t *ids, uint64_t n)
{
    const struct shards *s = state;
    struct mr_schedule *sc = s->w->schedule;
    uint64_t rows = mr_schedule_rows(sc, epoch), step = MR_MIN(mr_schedule_local_batch(sc), MR_MAX(rows, (uint64_t)1));
    uint64_t world = mr_schedule_world(sc), done = 0;
    struct exchange x = {.batch = malloc(step * world * sizeof(*x.batch)),
                         .left = malloc(s->w->nodes * sizeof(*x.left))};
    uint64_t *column = malloc(step * sizeof(*column));
    for (uint64_t row = 0; x.batch && x.left && column && row < rows && done < n; row += step)
        if (load_step(s, epoch, row, MR_MIN(step, rows - row), column, &x) == 0)
            done += deal_step(s, &x, ids + done);
    free(x.batch);
    free(x.left);
    free(column);
}

#define SHARD_OPS                                                                                                      \
    .prefetches = true, .keeps = true, .preloads = true, .destroy = destroy, .plan = plan, .next_fill = next_fill,     \
    .holds = holds

const struct mr_policy_ops mr_policy_deepio_ordered_ops = {
    MR_POLICY_HEAD, .name = "deepio-ordered",   .doc = "shards preloaded into memory, staged from own or peer memory",
    SHARD_OPS,      .create = create_in_memory, .expected = &mr_expected_shards};
const struct mr_policy_ops mr_policy_deepio_opportunistic_ops = {
    MR_POLICY_HEAD,
    .name = "deepio-opportunistic",
    .doc = "as deepio-ordered, batches redrawn from cached samples",
    .reorders = true,
    SHARD_OPS,
    .create = create_in_memory,
    .redraw = redraw_with_previous};
const struct mr_policy_ops mr_policy_lbann_preload_ops = {
    MR_POLICY_HEAD, .name = "lbann-preload", .doc = "as deepio-ordered; needs the data set to fit all nodes' memory",
    SHARD_OPS,      .create = create_lbann,  .expected = &mr_expected_lbann_preload};
const struct mr_policy_ops mr_policy_locality_aware_ops = {
    MR_POLICY_HEAD,
    .name = "locality-aware",
    .doc = "shards preloaded into the last class, batch items swapped to the nodes that hold them",
    .reorders = true,
    SHARD_OPS,
    .create = create_in_last,
    .redraw = exchange_steps,
    .expected = &mr_expected_locality};
const struct mr_policy_ops mr_policy_parallel_staging_ops = {
    MR_POLICY_HEAD,
    .name = "parallel-staging",
    .doc = "shards copied to the last class, batches redrawn from local samples",
    .reorders = true,
    SHARD_OPS,
    .create = create_parallel,
    .redraw = redraw_local};
