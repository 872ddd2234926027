/* One level of a mixture: which child gives item k, and how many it has given before.
 *
 * Child i is asked for A_i(k) items before item k: the integral of its weights, exact in units of 1/65,536; the sum over
 * the children is k. Its item j may stand from where A_i passes j on and must stand before A_i reaches j + 1. Of the
 * items that may stand, the next is the one that must stand first (earliest deadline first; a hash of child and deadline
 * decides among equals).
 *
 * Invariants
 * - M1 Every item stands between its release and its deadline. Taking from child i at k the share A_i(k + 1) - A_i(k)
 *   fills every place with items that may stand there, so a whole assignment exists (a bipartite graph with a fractional
 *   perfect matching has one), and with items of one length and whole releases and deadlines, earliest deadline first
 *   finds one.
 * - M2 Hence before any k a child has given floor or ceil of A_i(k): less than one off, and less than two in any window.
 *   Deadlines look at the weights of all versions, so this holds across changes.
 * - M3 What stands at k is a function of (weights, seed, items given before k): no other memory. So a start from a
 *   state goes on as the run that was interrupted.
 *
 * Within a version of the weights, everything repeats after P = 65,536 / gcd(weights) items (P is made at least 4,096:
 * all are powers of two) once the state has repeated.
 * So a version is a list of blocks of P places each, simulated until one begins with the state of an earlier one, and
 * (before a change, whose weights the last deadlines depend on) one tail block:
 *
 *   base       base + P       base + 2 P  = base + P       ...     tail                  next version
 *    | block 0   | block 1      | block 1 again             ...     | at most 131,071 places |
 *
 * From item 0, block 0 repeats at once: before place P every child has given a whole number. Blocks are filled as far as
 * they were asked for, by a walk, the state of the simulation; the tables of two versions are kept. */
#include "order/mixture_turns.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/vec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define UNIT ((uint64_t)MR_MIXTURE_UNIT)
#define NEVER UINT64_MAX
#define RANK_BITS 18u /* a block has at most 2^17 places */
#define FILL_STEP 1024u
#define PERIOD_MIN ((uint64_t)4096) /* places of a block: short periods are taken several times */

/* ---- a heap of things that are due ---- */

struct due {
    uint64_t when;
    uint32_t tie, child;
};
struct dues { /* room for all children */
    struct due *item;
    uint32_t n;
};

static inline bool sooner(const struct due *a, const struct due *b)
{
    if (a->when != b->when)
        return a->when < b->when;
    return a->tie != b->tie ? a->tie < b->tie : a->child < b->child;
}

static void push(struct dues *d, struct due x)
{
    uint32_t i = d->n++;
    for (; i && sooner(&x, &d->item[(i - 1) / 2]); i = (i - 1) / 2)
        d->item[i] = d->item[(i - 1) / 2];
    d->item[i] = x;
}

static struct due pop(struct dues *d)
{
    struct due top = d->item[0], last = d->item[--d->n];
    uint32_t i = 0;
    for (uint32_t c; (c = 2 * i + 1) < d->n; i = c) {
        if (c + 1 < d->n && sooner(&d->item[c + 1], &d->item[c]))
            c++;
        if (!sooner(&d->item[c], &last))
            break;
        d->item[i] = d->item[c];
    }
    d->item[i] = last;
    return top;
}

/* ---- the turns of one node ---- */

struct block {
    uint64_t k;      /* its first place */
    uint32_t n;      /* places */
    uint32_t filled; /* of them */
    uint64_t *given; /* by each child before its first place */
    uint32_t *place; /* child << RANK_BITS | items of that child in this block before it */
};

struct version {
    uint64_t from;
    uint64_t period;
    uint32_t *weight;
    uint64_t *asked; /* of each child before `from`, in units */
    /* What is known of its places; nothing before `base` is set. */
    bool has_base;
    uint64_t base, *base_given; /* its first place, or the start, and what was given before */
    MR_VEC(struct block) blocks;
    uint32_t again;     /* block to which `blocks.n` returns, once it `repeats` */
    bool repeats, ends; /* the last block is the tail */
};

struct mr_turns {
    uint32_t n;
    uint64_t seed, start;
    uint64_t *start_given;
    MR_VEC(struct version) versions;
    uint32_t current; /* the version that was asked for last */
    /* The walk, which stands at place `at` of version `walker`. */
    uint32_t walker;
    uint64_t at, *given;
    struct dues waiting, released;
};

static struct version *version_at(const struct mr_turns *p, uint64_t k)
{
    size_t lo = 0, hi = p->versions.n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (p->versions.item[mid].from <= k)
            lo = mid;
        else
            hi = mid;
    }
    return &p->versions.item[lo];
}

static uint64_t end_of(const struct mr_turns *p, const struct version *v)
{
    size_t i = (size_t)(v - p->versions.item);
    return i + 1 < p->versions.n ? p->versions.item[i + 1].from : NEVER;
}

static uint64_t asked_in(const struct version *v, uint32_t child, uint64_t k)
{
    return v->asked[child] + (k - v->from) * v->weight[child];
}

/* The first k before which a child is asked for `units`, looking from version *v on, and the version that has the place
 * before it; NEVER. */
static uint64_t when_asked(const struct mr_turns *p, const struct version **v, uint32_t child, uint64_t units)
{
    for (;; (*v)++) {
        uint64_t end = end_of(p, *v), w = (*v)->weight[child];
        if (units <= (*v)->asked[child])
            return (*v)->from;
        if (w) {
            uint64_t k = (*v)->from + (units - (*v)->asked[child] + w - 1) / w;
            if (k <= end)
                return k;
        }
        if (end == NEVER)
            return NEVER;
    }
}

static struct due deadline_of(const struct mr_turns *p, const struct version *v, uint32_t child, uint64_t number)
{
    uint64_t when = when_asked(p, &v, child, (number + 1) * UNIT);
    /* The hash repeats with the period, as the deadlines do, and does not depend on where the walk stands (M3). */
    uint32_t tie = (uint32_t)mr_rng_at(p->seed, child, when == NEVER ? UNIT : when % v->period);
    return (struct due){.when = when, .tie = tie, .child = child};
}

/* Puts the next item of a child where it belongs, seen from place k. */
static void queue_next(struct mr_turns *p, const struct version *v, uint32_t child, uint64_t k)
{
    uint64_t number = p->given[child];
    const struct version *in = v;
    uint64_t release = when_asked(p, &in, child, number * UNIT + 1);
    if (release == NEVER)
        push(&p->waiting, (struct due){.when = NEVER, .child = child});
    else if (release <= k + 1)
        push(&p->released, deadline_of(p, v, child, number));
    else
        push(&p->waiting, (struct due){.when = release - 1, .child = child});
}

/* The walk now stands at place k of version v, with these items given. */
static void stand_at(struct mr_turns *p, const struct version *v, uint64_t k, const uint64_t *given)
{
    p->walker = (uint32_t)(v - p->versions.item);
    p->at = k;
    memmove(p->given, given, p->n * sizeof(*given));
    p->waiting.n = p->released.n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        queue_next(p, v, i, k);
}

/* The child of the place where the walk stands, which goes on by one. */
static uint32_t step(struct mr_turns *p, const struct version *v)
{
    while (p->waiting.n && p->waiting.item[0].when <= p->at) {
        uint32_t child = pop(&p->waiting).child;
        push(&p->released, deadline_of(p, v, child, p->given[child]));
    }
    assert(p->released.n); /* M1: what is asked for before at + 1 is more than what was given before `at` */
    uint32_t child = pop(&p->released).child;
    p->given[child]++;
    p->at++;
    queue_next(p, v, child, p->at);
    return child;
}

/* ---- blocks ---- */

static int add_block(struct mr_turns *p, struct version *v, uint64_t k, uint64_t n, const uint64_t *given,
                     struct mr_error *err)
{
    assert(n >= 1 && n < (uint64_t)1 << RANK_BITS);
    struct block b = {.k = k, .n = (uint32_t)n};
    b.given = malloc(p->n * sizeof(*b.given));
    b.place = malloc(n * sizeof(*b.place));
    struct block *to = b.given && b.place ? MR_VEC_ADD(&v->blocks) : NULL;
    if (!to) {
        free(b.given);
        free(b.place);
        return mr_error_set(err, -ENOMEM, "cannot hold the order of a mixture of %u", p->n);
    }
    memcpy(b.given, given, p->n * sizeof(*given));
    *to = b;
    stand_at(p, v, k, b.given);
    return 0;
}

/* The last place that no deadline behind the end of the version has an influence on, in whole periods from its base. */
static uint64_t tail_of(const struct mr_turns *p, const struct version *v)
{
    uint64_t end = end_of(p, v), tail = end;
    if (end == NEVER)
        return NEVER;
    for (uint32_t i = 0; i < p->n; i++)
        if (v->weight[i])
            tail = MR_MIN(tail, end - MR_MIN(end - v->base, asked_in(v, i, end) % UNIT / v->weight[i] + 1));
    return v->base + (tail - v->base) / v->period * v->period;
}

/* Does the state before place k equal that before block b, but for whole periods? */
static bool same_state(const struct mr_turns *p, const struct version *v, const struct block *b, uint64_t k,
                       const uint64_t *given)
{
    for (uint32_t i = 0; i < p->n; i++)
        if ((given[i] - b->given[i]) * UNIT != asked_in(v, i, k) - asked_in(v, i, b->k))
            return false;
    return true;
}

/* The block that has place k of a version that is based, and by how many periods it lies behind it. */
static struct block *find_block(const struct version *v, uint64_t k, uint64_t *periods)
{
    *periods = 0;
    if (!v->blocks.n)
        return NULL;
    struct block *last = &v->blocks.item[v->blocks.n - 1];
    if (v->ends && k >= last->k)
        return k < last->k + last->n ? last : NULL;
    uint64_t q = (k - v->base) / v->period, known = v->blocks.n - (v->ends ? 1 : 0);
    if (q >= known && v->repeats) {
        uint64_t back = v->again + (q - v->again) % (known - v->again);
        *periods = q - back;
        q = back;
    }
    return q < known ? &v->blocks.item[q] : NULL;
}

static void given_in(const struct mr_turns *p, const struct version *v, const struct block *b, uint64_t periods,
                     uint32_t places, uint64_t *given)
{
    for (uint32_t i = 0; i < p->n; i++)
        given[i] = b->given[i] + periods * (v->weight[i] * v->period / UNIT);
    for (uint32_t at = 0; at < places; at++)
        given[b->place[at] >> RANK_BITS]++;
}

/* The first `need` places of the last block. The walk may have been elsewhere since. */
static void fill(struct mr_turns *p, struct version *v, uint32_t need)
{
    struct block *b = &v->blocks.item[v->blocks.n - 1];
    uint32_t to = (uint32_t)MR_MIN(MR_ALIGN_UP((uint64_t)need, FILL_STEP), b->n);
    if (p->walker != (uint32_t)(v - p->versions.item) || p->at != b->k + b->filled) {
        given_in(p, v, b, 0, b->filled, p->given);
        stand_at(p, v, b->k + b->filled, p->given);
    }
    while (b->filled < to) {
        uint32_t child = step(p, v);
        b->place[b->filled++] = child << RANK_BITS | (uint32_t)(p->given[child] - 1 - b->given[child]);
    }
}

/* The tail of a version whose blocks repeat. */
static int add_tail(struct mr_turns *p, struct version *v, uint64_t tail, struct mr_error *err)
{
    uint64_t periods, *given = malloc(p->n * sizeof(*given));
    if (!given)
        return mr_error_set(err, -ENOMEM, "cannot hold the order of a mixture of %u", p->n);
    const struct block *b = find_block(v, tail, &periods);
    given_in(p, v, b, periods, 0, given);
    int rc = add_block(p, v, tail, end_of(p, v) - tail, given, err);
    v->ends = rc >= 0;
    free(given);
    return rc;
}

/* Fills the last block. Does what follows it repeat an earlier one? */
static void look_for_repeats(struct mr_turns *p, struct version *v)
{
    assert(v->blocks.n && v->blocks.item);
    struct block *last = &v->blocks.item[v->blocks.n - 1];
    fill(p, v, last->n);
    for (uint32_t i = 0; i < v->blocks.n && !v->repeats; i++)
        if (same_state(p, v, &v->blocks.item[i], last->k + last->n, p->given)) {
            v->repeats = true;
            v->again = i;
        }
}

/* One more block behind those that are known, or the knowledge that they repeat. */
static int grow(struct mr_turns *p, struct version *v, struct mr_error *err)
{
    uint64_t tail = tail_of(p, v), at = v->base;
    const uint64_t *given = v->base_given;
    if (v->repeats)
        return add_tail(p, v, tail, err);
    if (v->blocks.n) {
        look_for_repeats(p, v);
        if (v->repeats)
            return 0;
        at = p->at;
        given = p->given; /* the walk stands behind the last block */
    }
    bool ends = at >= tail;
    int rc = add_block(p, v, at, ends ? end_of(p, v) - at : v->period, given, err);
    if (rc >= 0)
        v->ends = ends;
    return rc;
}

/* Makes the places of version v up to k known; the versions before it are. */
static int reach(struct mr_turns *p, struct version *v, uint64_t k, struct block **block, uint64_t *periods,
                 struct mr_error *err)
{
    for (;;) {
        bool tail = v->repeats && !v->ends && k >= tail_of(p, v);
        *block = tail ? NULL : find_block(v, k, periods);
        if (*block)
            break;
        int rc = grow(p, v, err);
        if (rc < 0)
            return rc;
    }
    uint32_t need = (uint32_t)(k - (*block)->k - *periods * v->period) + 1;
    if ((*block)->filled < need)
        fill(p, v, need);
    return 0;
}

static void drop_blocks(struct version *v)
{
    for (size_t b = 0; b < v->blocks.n; b++) {
        free(v->blocks.item[b].given);
        free(v->blocks.item[b].place);
    }
    v->blocks.n = 0;
    v->repeats = v->ends = false;
}

/* Version v begins where the one before it ends, which is made known first. */
static int base_version(struct mr_turns *p, struct version *v, struct mr_error *err)
{
    while (!v->has_base) {
        struct version *before = v;
        while (!before->has_base)
            before--;
        struct block *b;
        uint64_t periods, end = end_of(p, before);
        int rc = reach(p, before, end - 1, &b, &periods, err);
        if (rc < 0)
            return rc;
        given_in(p, before, b, periods, (uint32_t)(end - b->k - periods * before->period), before[1].base_given);
        before[1].base = end;
        before[1].has_base = true;
        if (before != &p->versions.item[p->current])
            drop_blocks(before);
    }
    return 0;
}

/* Keeps the blocks of this version and of the one that was asked for before it: a schedule of thousands of versions has
 * the tables of two. */
static void make_current(struct mr_turns *p, const struct version *v)
{
    uint32_t number = (uint32_t)(v - p->versions.item);
    if (number == p->current)
        return;
    for (size_t i = 0; i < p->versions.n; i++)
        if (i != number && i != p->current)
            drop_blocks(&p->versions.item[i]);
    p->current = number;
}

static int locate(struct mr_turns *p, uint64_t k, struct version **v, struct block **b, uint64_t *periods,
                  struct mr_error *err)
{
    if (k < p->start || k >= MR_MIXTURE_MAX_ITEMS)
        return mr_error_plain(err, MR_E_USAGE, "item %llu of the mixture is %s %llu", (unsigned long long)k,
                              k < p->start ? "before the restored state, which begins with item"
                                           : "not below the limit of",
                              (unsigned long long)(k < p->start ? p->start : MR_MIXTURE_MAX_ITEMS));
    *v = version_at(p, k);
    int rc = base_version(p, *v, err);
    if (rc < 0)
        return rc;
    make_current(p, *v);
    return reach(p, *v, k, b, periods, err);
}

int mr_turns_at(struct mr_turns *p, uint64_t k, uint32_t *child, uint64_t *number, struct mr_error *err)
{
    struct version *v;
    struct block *b;
    uint64_t periods;
    int rc = locate(p, k, &v, &b, &periods, err);
    if (rc < 0)
        return rc;
    uint32_t place = b->place[k - b->k - periods * v->period];
    *child = place >> RANK_BITS;
    *number = b->given[*child] + (place & ((1u << RANK_BITS) - 1)) + periods * (v->weight[*child] * v->period / UNIT);
    return 0;
}

int mr_turns_given(struct mr_turns *p, uint64_t k, uint64_t *given, struct mr_error *err)
{
    struct version *v;
    struct block *b;
    uint64_t periods;
    int rc = locate(p, k, &v, &b, &periods, err);
    if (rc < 0)
        return rc;
    given_in(p, v, b, periods, (uint32_t)(k - b->k - periods * v->period), given);
    return 0;
}

uint64_t mr_turns_asked(const struct mr_turns *p, uint32_t child, uint64_t k)
{
    return asked_in(version_at(p, k), child, k);
}

uint32_t mr_turns_weight(const struct mr_turns *p, uint32_t child, uint64_t k)
{
    return version_at(p, k)->weight[child];
}

uint32_t mr_turns_version(const struct mr_turns *p, uint64_t k)
{
    return (uint32_t)(version_at(p, k) - p->versions.item);
}

uint64_t mr_turns_hash(const struct mr_turns *p, uint64_t k)
{
    uint64_t h = mr_mix64(p->seed ^ p->n);
    for (size_t v = 0; v < p->versions.n && (v == 0 || p->versions.item[v].from < k); v++) {
        h = mr_mix64(h ^ p->versions.item[v].from);
        for (uint32_t i = 0; i < p->n; i++)
            h = mr_mix64(h + p->versions.item[v].weight[i]) + i;
    }
    return h;
}

uint64_t mr_turns_first(const struct mr_turns *p)
{
    return p->start;
}

/* ---- making one ---- */

static void base_at_start(struct mr_turns *p)
{
    for (size_t i = 0; i < p->versions.n; i++) {
        drop_blocks(&p->versions.item[i]);
        p->versions.item[i].has_base = false;
    }
    struct version *v = version_at(p, p->start);
    v->has_base = true;
    v->base = p->start;
    memcpy(v->base_given, p->start_given, p->n * sizeof(*v->base_given));
    p->current = (uint32_t)(v - p->versions.item);
    p->at = NEVER; /* the walk is nowhere */
}

int mr_turns_start(struct mr_turns *p, uint64_t k, const uint64_t *given, struct mr_error *err)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += given[i] <= k ? given[i] : k + 1;
    if (sum != k || k >= MR_MIXTURE_MAX_ITEMS)
        return mr_error_plain(err, MR_E_FORMAT, "the sources of a saved mixture have given %llu items, not %llu",
                              (unsigned long long)sum, (unsigned long long)k);
    p->start = k;
    memcpy(p->start_given, given, p->n * sizeof(*given));
    base_at_start(p);
    return 0;
}

static uint64_t period_of(const uint32_t *weights, uint32_t n)
{
    uint64_t g = UNIT; /* a power of two: so is the greatest common divisor */
    for (uint32_t i = 0; i < n; i++)
        while (weights[i] % g)
            g /= 2;
    return MR_MAX(UNIT / g, PERIOD_MIN);
}

int mr_turns_change(struct mr_turns *p, uint64_t from, const uint32_t *weights, struct mr_error *err)
{
    struct version made = {.from = from, .period = period_of(weights, p->n)};
    made.weight = malloc(p->n * sizeof(*made.weight));
    made.asked = calloc(p->n, sizeof(*made.asked));
    made.base_given = calloc(p->n, sizeof(*made.base_given));
    struct version *to = made.weight && made.asked && made.base_given ? MR_VEC_ADD(&p->versions) : NULL;
    if (!to) {
        free(made.weight);
        free(made.asked);
        free(made.base_given);
        return mr_error_set(err, -ENOMEM, "cannot hold the weights of a mixture of %u", p->n);
    }
    memcpy(made.weight, weights, p->n * sizeof(*weights));
    for (uint32_t i = 0; p->versions.n > 1 && i < p->n; i++)
        made.asked[i] = asked_in(to - 1, i, from);
    *to = made;
    base_at_start(p);
    return 0;
}

int mr_turns_create(uint32_t n, const uint32_t *weights, uint64_t seed, struct mr_turns **out, struct mr_error *err)
{
    struct mr_turns *p = calloc(1, sizeof(*p));
    if (!p)
        return mr_error_set(err, -ENOMEM, "cannot make a mixture");
    p->n = n;
    p->seed = seed;
    p->start_given = calloc(n, sizeof(*p->start_given));
    p->given = calloc(n, sizeof(*p->given));
    p->waiting.item = calloc(n, sizeof(*p->waiting.item));
    p->released.item = calloc(n, sizeof(*p->released.item));
    int rc = p->start_given && p->given && p->waiting.item && p->released.item
                 ? mr_turns_change(p, 0, weights, err)
                 : mr_error_set(err, -ENOMEM, "cannot make a mixture of %u", n);
    if (rc < 0) {
        mr_turns_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void mr_turns_free(struct mr_turns *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->versions.n; i++) {
        drop_blocks(&p->versions.item[i]);
        free(p->versions.item[i].weight);
        free(p->versions.item[i].asked);
        free(p->versions.item[i].base_given);
        free(p->versions.item[i].blocks.item);
    }
    free(p->versions.item);
    free(p->start_given);
    free(p->given);
    free(p->waiting.item);
    free(p->released.item);
    free(p);
}
