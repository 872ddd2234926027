/* The order of PyTorch's DistributedSampler(shuffle=True), bit for bit: torch.randperm on the CPU with a generator
 * seeded by seed + epoch. That is MT19937 seeded with the low 32 bits, and
 *   n <  214748364 (2^32 / 20): forward Fisher-Yates, one 32-bit draw modulo (n - i) per step; every torch version
 *   n >= 214748364: inside-out Fisher-Yates with 64-bit draws (two 32-bit draws, the first is the high half); torch
 *        2.6 and later. Older ones kept the first algorithm for all n, whose draws are uneven there.
 * doc/reference/order.md says which versions were compared.
 *
 * Draws do not depend on the table, so they are made a block ahead and the places they will touch prefetched: the table
 * is larger than any cache, and waiting for one miss per sample is what torch itself spends its time on. */
#include "order/order_modes.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MT_N 624u
#define MT_M 397u
#define WIDE_FROM (UINT32_MAX / 20)

struct mt19937 {
    uint32_t state[MT_N];
    uint32_t out[MT_N];
    unsigned used;
};

struct table {
    void *ids;
    void *places; /* the inverse, or NULL until mr_order_index */
    size_t bytes;
    bool wide;    /* 8 bytes per id instead of 4 */
    bool indexed; /* places are those of the prepared epoch */
};

static void mt_seed(struct mt19937 *m, uint32_t seed)
{
    m->state[0] = seed;
    for (uint32_t i = 1; i < MT_N; i++)
        m->state[i] = 1812433253u * (m->state[i - 1] ^ m->state[i - 1] >> 30) + i;
    m->used = MT_N;
}

static inline uint32_t mt_twist(uint32_t u, uint32_t v)
{
    return ((u & 0x80000000u) | (v & 0x7fffffffu)) >> 1 ^ ((0u - (v & 1u)) & 0x9908b0dfu);
}

static void mt_refill(struct mt19937 *m)
{
    uint32_t *s = m->state;
    for (unsigned i = 0; i < MT_N - MT_M; i++)
        s[i] = s[i + MT_M] ^ mt_twist(s[i], s[i + 1]);
    for (unsigned i = MT_N - MT_M; i < MT_N - 1; i++)
        s[i] = s[i + MT_M - MT_N] ^ mt_twist(s[i], s[i + 1]);
    s[MT_N - 1] = s[MT_M - 1] ^ mt_twist(s[MT_N - 1], s[0]);
    for (unsigned i = 0; i < MT_N; i++) {
        uint32_t y = s[i];
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        m->out[i] = y ^ y >> 18;
    }
    m->used = 0;
}

static inline uint32_t mt_next(struct mt19937 *m)
{
    if (MR_UNLIKELY(m->used == MT_N))
        mt_refill(m);
    return m->out[m->used++];
}

static inline uint64_t mt_next64(struct mt19937 *m)
{
    uint64_t high = mt_next(m);
    return high << 32 | mt_next(m);
}

#define AHEAD 64u

/* n < WIDE_FROM, so 32 bits hold everything. */
static void permute_forward(struct mt19937 *m, uint32_t *t, uint32_t n)
{
    uint32_t target[AHEAD];
    for (uint32_t i = 0; i < n; i++)
        t[i] = i;
    for (uint32_t i = 0; i + 1 < n;) {
        uint32_t run = MR_MIN(AHEAD, n - 1 - i);
        for (uint32_t j = 0; j < run; j++) {
            target[j] = i + j + mt_next(m) % (n - i - j);
            __builtin_prefetch(&t[target[j]], 1);
        }
        for (uint32_t j = 0; j < run; j++, i++) {
            uint32_t save = t[i];
            t[i] = t[target[j]];
            t[target[j]] = save;
        }
    }
}

#define INSIDE_OUT(NAME, TYPE)                                                                                         \
    static void NAME(struct mt19937 *m, TYPE *t, uint64_t n)                                                           \
    {                                                                                                                  \
        uint64_t target[AHEAD];                                                                                        \
        for (uint64_t i = 0; i < n;) {                                                                                 \
            uint64_t run = MR_MIN((uint64_t)AHEAD, n - i);                                                             \
            for (uint64_t j = 0; j < run; j++) {                                                                       \
                target[j] = mt_next64(m) % (i + j + 1);                                                                \
                __builtin_prefetch(&t[target[j]], 1);                                                                  \
            }                                                                                                          \
            for (uint64_t j = 0; j < run; j++, i++) {                                                                  \
                t[i] = (TYPE)i;                                                                                        \
                t[i] = t[target[j]];                                                                                   \
                t[target[j]] = (TYPE)i;                                                                                \
            }                                                                                                          \
        }                                                                                                              \
    }
INSIDE_OUT(permute_inside_out_narrow, uint32_t)
INSIDE_OUT(permute_inside_out_wide, uint64_t)

static int make_table(struct mr_order *o, struct mr_error *err)
{
    uint64_t n = o->p.samples;
    bool wide = n > UINT32_MAX;
    struct table *t = malloc(sizeof(*t));
    void *ids = MAP_FAILED;
    size_t bytes = n <= SIZE_MAX / 8 ? (size_t)n * (wide ? 8 : 4) : SIZE_MAX;
    if (t)
        ids = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ids == MAP_FAILED) {
        free(t);
        mr_error_set(err, -ENOMEM, "cannot hold the permutation of %" PRIu64 " samples", n);
        mr_error_hint(err, "use the order mode 'cipher', which needs no table");
        return -ENOMEM;
    }
    madvise(ids, bytes, MADV_HUGEPAGE); /* far fewer address-translation misses; only a wish */
    *t = (struct table){.ids = ids, .bytes = bytes, .wide = wide};
    o->mode_state = t;
    return 0;
}

static int prepare_torch(struct mr_order *o, struct mr_error *err)
{
    int code = o->mode_state ? 0 : make_table(o, err);
    if (code)
        return code;
    struct table *t = o->mode_state;
    t->indexed = false;
    struct mt19937 m;
    mt_seed(&m, (uint32_t)(o->p.seed + (o->p.shuffle_each_epoch ? o->p.epoch : 0)));
    if (o->p.samples < WIDE_FROM)
        permute_forward(&m, t->ids, (uint32_t)o->p.samples);
    else if (t->wide)
        permute_inside_out_wide(&m, t->ids, o->p.samples);
    else
        permute_inside_out_narrow(&m, t->ids, o->p.samples);
    return 0;
}

static void done_torch(struct mr_order *o)
{
    struct table *t = o->mode_state;
    if (t)
        munmap(t->ids, t->bytes);
    if (t && t->places)
        munmap(t->places, t->bytes);
    free(t);
}

static void fill_torch(const struct mr_order *o, uint64_t at, uint64_t stride, uint64_t *ids, size_t count)
{
    const struct table *t = o->mode_state;
    const uint32_t *narrow = t->ids;
    const uint64_t *wide = t->ids;
    assert(count == 0 || at + (count - 1) * stride < o->p.samples);
    for (size_t i = 0; i < count; i++)
        ids[i] = t->wide ? wide[at + i * stride] : narrow[at + i * stride];
}

/* Writes are scattered over a table larger than any cache; the processor keeps many of them in flight by itself. */
static int index_torch(struct mr_order *o, struct mr_error *err)
{
    struct table *t = o->mode_state;
    if (!t->places) {
        void *places = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (places == MAP_FAILED)
            return mr_error_set(err, -ENOMEM, "cannot hold the places of %" PRIu64 " samples", o->p.samples);
        madvise(places, t->bytes, MADV_HUGEPAGE);
        t->places = places;
    }
    const uint32_t *narrow = t->ids;
    const uint64_t *wide = t->ids;
    for (uint64_t i = 0; i < o->p.samples && !t->indexed; i++)
        if (t->wide)
            ((uint64_t *)t->places)[wide[i]] = i;
        else
            ((uint32_t *)t->places)[narrow[i]] = (uint32_t)i;
    t->indexed = true;
    return 0;
}

static void find_torch(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    const struct table *t = o->mode_state;
    assert(t->indexed); /* mr_order_index has been called for this epoch */
    for (size_t i = 0; i < count; i++) {
        assert(ids[i] < o->p.samples);
        places[i] = t->wide ? ((const uint64_t *)t->places)[ids[i]] : ((const uint32_t *)t->places)[ids[i]];
    }
}

const struct mr_order_ops mr_order_torch = {
    .prepare = prepare_torch, .done = done_torch, .fill_global = fill_torch, .index = index_torch, .find = find_torch};
