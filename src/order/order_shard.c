/* Rank-local orders over contiguous shards: shard (shuffled inside) and buffer (streamed through a shuffle buffer).
 *
 * shard: rank r's slice under a cipher keyed by (seed, epoch, r): no table, any rank at any place.
 *
 * buffer: what tf.data's shard().shuffle(window) does. The slice arrives in sequence; the buffer holds the next
 * `window` of it; every step one slot is drawn, its sample is read and the next arriving one takes the slot; when
 * nothing arrives any more the slots that are left empty in random order. What comes out depends on all earlier draws,
 * so the plan of a rank is computed once per epoch and kept (4 bytes per sample of the slice, 8 above 2^32): O(slice)
 * time, then any position in O(1). The own rank's plan is made by prepare; another rank's on the first question about
 * it. */
#include "order/order_modes.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static size_t fill_shard(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count)
{
    struct mr_slice s = mr_order_slice(o, rank);
    struct mr_cipher c;
    mr_cipher_init(&c, s.len, mr_order_key(o, 1 + (uint64_t)rank));
    assert(k + count <= s.len);
    mr_cipher_fill(&c, k, 1, ids, count);
    for (size_t i = 0; i < count; i++)
        ids[i] += s.first;
    return count;
}

static void find_shard(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = mr_order_slice_of(o, ids[i]);
        struct mr_slice s = mr_order_slice(o, rank);
        struct mr_cipher c;
        mr_cipher_init(&c, s.len, mr_order_key(o, 1 + (uint64_t)rank));
        places[i] = mr_cipher_inverse(&c, ids[i] - s.first) * o->p.world + rank;
    }
}

const struct mr_order_ops mr_order_shard = {.rank_local = true, .fill_local = fill_shard, .find = find_shard};

/* Samples of one rank in reading order, as offsets in its slice. */
struct plan {
    bool wide;
    union {
        uint32_t *narrow;
        uint64_t *ids;
    };
    struct plan *inverse; /* or NULL: place of each offset; made by mr_order_index */
};

/* Invariant: plan[r] is NULL or complete; it is published with release order under `lock` and never changes until the
 * next prepare, which no reader may overlap (the contract of set_epoch). */
struct plans {
    pthread_mutex_t lock;
    _Atomic(struct plan *) plan[];
};

static void free_plan(struct plan *p)
{
    if (p) {
        free_plan(p->inverse);
        free(p->narrow);
    }
    free(p);
}

static inline uint64_t plan_get(const struct plan *p, uint64_t i)
{
    return p->wide ? p->ids[i] : p->narrow[i];
}

static inline void plan_set(struct plan *p, uint64_t i, uint64_t v)
{
    if (p->wide)
        p->ids[i] = v;
    else
        p->narrow[i] = (uint32_t)v;
}

/* Slot j holds the sample that arrived when j was last drawn; `slot` is the buffer. */
static void stream(struct plan *p, uint64_t *slot, uint64_t len, uint64_t window, uint64_t key)
{
    uint64_t arrived = 0, left = window;
    for (; arrived < window; arrived++)
        slot[arrived] = arrived;
    for (uint64_t t = 0; t < len; t++) {
        uint64_t j = mr_rng_below(mr_rng_at(key, MR_RNG_ORDER, t), left);
        plan_set(p, t, slot[j]);
        slot[j] = arrived < len ? arrived++ : slot[--left];
    }
    assert(arrived == len && left == 0); /* every sample has come out once */
}

static struct plan *make_plan(const struct mr_order *o, uint32_t rank)
{
    uint64_t len = mr_order_slice(o, rank).len, window = MR_MIN(o->p.window, len);
    if (len > SIZE_MAX / 16)
        return NULL;
    struct plan *p = calloc(1, sizeof(*p));
    uint64_t *slot = malloc((size_t)MR_MAX(window, (uint64_t)1) * sizeof(*slot));
    if (p) {
        p->wide = len > UINT32_MAX;
        p->narrow = malloc((size_t)MR_MAX(len, (uint64_t)1) * (p->wide ? 8 : 4));
    }
    if (!p || !slot || !p->narrow) {
        free_plan(p);
        free(slot);
        return NULL;
    }
    stream(p, slot, len, window, mr_order_key(o, 1 + (uint64_t)rank));
    free(slot);
    return p;
}

static int prepare_buffer(struct mr_order *o, struct mr_error *err)
{
    struct plans *all = o->mode_state;
    struct plan *own = make_plan(o, o->p.rank);
    if (own && !all) {
        all = calloc(1, sizeof(*all) + o->p.world * sizeof(all->plan[0]));
        if (all)
            pthread_mutex_init(&all->lock, NULL);
    }
    if (!own || !all) {
        free_plan(own);
        mr_error_set(err, -ENOMEM, "cannot plan a shuffle buffer of %" PRIu64 " over %" PRIu64 " samples on %u ranks",
                     o->p.window, o->p.samples, o->p.world);
        mr_error_hint(err, "use the order mode 'cipher', which needs no table");
        return -ENOMEM;
    }
    o->mode_state = all;
    for (uint32_t r = 0; r < o->p.world; r++) {
        free_plan(atomic_load(&all->plan[r]));
        atomic_store(&all->plan[r], r == o->p.rank ? own : NULL);
    }
    return 0;
}

static void done_buffer(struct mr_order *o)
{
    struct plans *all = o->mode_state;
    if (!all)
        return;
    for (uint32_t r = 0; r < o->p.world; r++)
        free_plan(atomic_load(&all->plan[r]));
    pthread_mutex_destroy(&all->lock);
    free(all);
}

static const struct plan *plan_of(const struct mr_order *o, uint32_t rank)
{
    struct plans *all = o->mode_state;
    assert(rank < o->p.world && all);
    struct plan *p = atomic_load_explicit(&all->plan[rank], memory_order_acquire);
    if (p)
        return p;
    pthread_mutex_lock(&all->lock);
    p = atomic_load(&all->plan[rank]);
    if (!p) {
        p = make_plan(o, rank);
        atomic_store_explicit(&all->plan[rank], p, memory_order_release);
    }
    pthread_mutex_unlock(&all->lock);
    return p;
}

static size_t fill_buffer(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count)
{
    const struct plan *p = plan_of(o, rank);
    if (!p)
        return 0;
    uint64_t first = mr_order_slice(o, rank).first;
    assert(k + count <= mr_order_slice(o, rank).len);
    for (size_t i = 0; i < count; i++)
        ids[i] = first + plan_get(p, k + i);
    return count;
}

static int invert_plan(struct plan *p, uint64_t len)
{
    if (p->inverse)
        return 0;
    struct plan *inverse = calloc(1, sizeof(*inverse));
    if (!inverse || !(inverse->narrow = malloc((size_t)MR_MAX(len, (uint64_t)1) * (p->wide ? 8 : 4)))) {
        free(inverse);
        return -ENOMEM;
    }
    inverse->wide = p->wide;
    for (uint64_t i = 0; i < len; i++)
        plan_set(inverse, plan_get(p, i), i);
    p->inverse = inverse;
    return 0;
}

static int index_buffer(struct mr_order *o, struct mr_error *err)
{
    struct plans *all = o->mode_state;
    for (uint32_t r = 0; r < o->p.world; r++)
        if (!plan_of(o, r) || invert_plan(atomic_load(&all->plan[r]), mr_order_slice(o, r).len))
            return mr_error_set(err, -ENOMEM, "cannot hold the places of %" PRIu64 " samples", o->p.samples);
    return 0;
}

static void find_buffer(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = mr_order_slice_of(o, ids[i]);
        const struct plan *p = plan_of(o, rank);
        assert(p && p->inverse); /* mr_order_index has been called */
        places[i] = plan_get(p->inverse, ids[i] - mr_order_slice(o, rank).first) * o->p.world + rank;
    }
}

const struct mr_order_ops mr_order_buffer = {.rank_local = true,
                                             .prepare = prepare_buffer,
                                             .done = done_buffer,
                                             .fill_local = fill_buffer,
                                             .index = index_buffer,
                                             .find = find_buffer};
