/* Our policy. Every access of every node is known, so
 *
 *   1. every sample that the job can hold has an agreed holder at any time (homes.h): it is read from the PFS once, and
 *      everybody who does not have it asks the holder;
 *   2. what has to stay for others stays; in the rest of its space a node keeps what it will use soonest, and does not
 *      admit a sample whose next use lies behind that of everything it could give up (shelf.h: Belady with bypass);
 *   3. where the job cannot hold the set, the same samples stay for the whole run. Choosing them anew by next use would
 *      read a few per cent less from the PFS, but all of it towards the end of an epoch, which staging buffers do not
 * even out: runs take longer.
 *
 * The node's accesses are looked up in blocks: its next ids, the readers that matter for them, and its own next uses.
 * Invariant: the block at hand covers the access being planned, or is loaded for it; nothing in it depends on results.
 */
#include "policy/homes.h"
#include "policy/policy_internal.h"
#include "policy/shelf.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256u
#define AHEAD 12u /* places: by then the table's line has arrived */
#define MEMORY_DEFAULT ((uint64_t)64 << 20)
#define HORIZON_DEFAULT 8u

/* What is known of the node's next accesses: rows `row` ... of `epoch`, [row][rank of the node]. */
struct block {
    uint64_t epoch, row, rows;
    uint64_t expected, at;              /* the access that usually comes next, and its place */
    uint64_t *id, *first, *next, *when; /* when: one epoch's answers */
    uint32_t *reader, *node;
    struct mr_chain *chain; /* MR_HOME_CHAIN */
};

/* The global sequence from the start on, in which a node looks for what is dealt to it. */
struct walk {
    uint64_t epoch, row, at, n;
    uint64_t *id, *first, *access;
    uint32_t *reader;
};

struct millrace {
    const struct mr_policy_world *w;
    uint32_t node, ranks;
    const struct mr_homes *homes;
    bool owns_homes, scarce;
    struct mr_shelf shelf;
    struct block block;
    struct walk walk;
};

/* ---- set-up ---- */

static void free_homes(void *data)
{
    mr_homes_free(data);
}

static int get_homes(struct millrace *s, uint64_t memory, struct mr_error *err)
{
    struct mr_policy_memo *memo = s->w->memo;
    struct mr_homes_options o = {.classes = s->w->classes,
                                 .deal = true,
                                 .may_chain = true,
                                 .entries_max = mr_shelf_most(false, memory),
                                 .entries_max_chain = mr_shelf_most(true, memory)};
    struct mr_homes *h;
    if (memo && memo->data) {
        s->homes = memo->data;
        return 0;
    }
    int rc = mr_homes_create(s->w, &o, &h, err);
    if (rc)
        return rc;
    s->homes = h;
    s->owns_homes = !memo;
    if (memo)
        *memo = (struct mr_policy_memo){.data = h, .free = free_homes};
    return 0;
}

static void destroy(void *state)
{
    struct millrace *s = state;
    mr_shelf_done(&s->shelf);
    free(s->block.id);
    free(s->block.first);
    free(s->block.next);
    free(s->block.when);
    free(s->block.reader);
    free(s->block.node);
    free(s->block.chain);
    free(s->walk.id);
    free(s->walk.first);
    free(s->walk.access);
    free(s->walk.reader);
    if (s->owns_homes)
        mr_homes_free((struct mr_homes *)(uintptr_t)s->homes);
    free(s);
}

static int alloc_block(struct millrace *s)
{
    struct block *b = &s->block;
    uint64_t n = MR_MAX(BLOCK / s->ranks, 1u) * s->ranks;
    bool chain = s->homes->rule == MR_HOME_CHAIN;
    b->epoch = b->expected = MR_NO_ACCESS;
    b->id = malloc(n * sizeof(*b->id));
    b->first = malloc(n * sizeof(*b->first));
    b->next = malloc(n * sizeof(*b->next));
    b->when = malloc(n * sizeof(*b->when));
    b->reader = malloc(n * sizeof(*b->reader));
    b->node = malloc(n * sizeof(*b->node));
    b->chain = chain ? malloc(n * sizeof(*b->chain)) : NULL;
    return b->id && b->first && b->next && b->when && b->reader && b->node && (!chain || b->chain) ? 0 : -ENOMEM;
}

/* Does anything fall to this node that it does not read first itself? */
static bool has_dealt(const struct millrace *s)
{
    const struct mr_homes *h = s->homes;
    uint64_t begin = s->node ? h->dealt_end[s->node - 1] : h->readers_end;
    return h->dealt_end[s->node] > MR_MAX(begin, h->readers_end);
}

static int start_walk(struct millrace *s)
{
    uint64_t world = mr_schedule_world(s->w->schedule), n = MR_MAX(BLOCK / world, (uint64_t)1) * world;
    if (!has_dealt(s))
        return 0;
    s->walk = (struct walk){.epoch = mr_schedule_first_epoch(s->w->schedule)};
    s->walk.id = malloc(n * sizeof(*s->walk.id));
    s->walk.first = malloc(n * sizeof(*s->walk.first));
    s->walk.access = malloc(n * sizeof(*s->walk.access));
    s->walk.reader = malloc(n * sizeof(*s->walk.reader));
    return s->walk.id && s->walk.first && s->walk.access && s->walk.reader ? 0 : -ENOMEM;
}

static int create(const struct mr_policy_world *w, uint32_t node, void **state, struct mr_error *err)
{
    struct millrace *s = calloc(1, sizeof(*s));
    uint64_t memory = w->memory_bytes ? w->memory_bytes : MEMORY_DEFAULT, capacity = 0;
    if (!s)
        return mr_error_set(err, -ENOMEM, "planning millrace");
    s->w = w;
    s->node = node;
    s->ranks = mr_schedule_first_rank(w->schedule, node + 1) - mr_schedule_first_rank(w->schedule, node);
    for (unsigned j = 1; j < w->classes; j++)
        capacity += mr_policy_capacity(w, node, j);
    int rc = get_homes(s, memory, err);
    if (!rc) {
        /* What a node reads in the whole run, with a margin for unequal sizes, is all it could ever keep. */
        double share = (double)s->ranks / mr_schedule_world(w->schedule);
        double all = (double)w->total_bytes * MR_MIN(1.001, 1.1 * (double)w->epochs * share);
        s->scarce = (double)capacity < all && w->classes > 1;
        mr_shelf_init(&s->shelf, w, node, s->homes->rule == MR_HOME_CHAIN, memory);
        if (alloc_block(s) || start_walk(s))
            rc = mr_error_set(err, -ENOMEM, "planning millrace");
    }
    if (rc) {
        destroy(s);
        return rc;
    }
    *state = s;
    return 0;
}

/* ---- looking ahead ---- */

/* The node's own next uses, as far as the horizon reaches. */
static void find_next(struct millrace *s, uint64_t n)
{
    struct block *b = &s->block;
    struct mr_schedule *sc = s->w->schedule;
    uint64_t horizon = s->w->horizon ? s->w->horizon : HORIZON_DEFAULT, left = n;
    uint64_t last = MR_MIN(mr_schedule_last_epoch(sc), b->epoch + MR_MIN(horizon, mr_schedule_span(sc)));
    for (uint64_t i = 0; i < n; i++)
        b->next[i] = MR_SHELF_FOREVER;
    for (uint64_t e = b->epoch + 1; e <= last && left && s->scarce; e++) {
        if (mr_schedule_find(sc, e, b->id, b->when, n, NULL))
            return;
        mr_schedule_readers(sc, e, b->when, b->node, n);
        for (uint64_t i = 0; i < n; i++)
            if (b->node[i] == s->node && b->next[i] == MR_SHELF_FOREVER) {
                b->next[i] = b->when[i];
                left--;
            }
    }
}

/* The reads of each sample in the epochs that decide about it. */
static void find_chains(struct millrace *s, uint64_t n)
{
    struct block *b = &s->block;
    uint64_t low, high;
    mr_homes_sight(s->homes, b->epoch, &low, &high);
    for (uint64_t i = 0; i < n; i++)
        b->chain[i].n = 0;
    for (uint64_t e = low; e <= high; e++) {
        if (mr_schedule_find(s->w->schedule, e, b->id, b->when, n, NULL))
            continue;
        mr_schedule_readers(s->w->schedule, e, b->when, b->node, n);
        for (uint64_t i = 0; i < n; i++) {
            struct mr_chain *c = &b->chain[i];
            if (b->when[i] == MR_NO_ACCESS)
                continue;
            c->epoch[c->n] = e;
            c->when[c->n] = b->when[i];
            c->node[c->n++] = b->node[i];
        }
    }
}

static void load_block(struct millrace *s, uint64_t epoch, uint64_t row)
{
    struct block *b = &s->block;
    struct mr_schedule *sc = s->w->schedule;
    uint64_t most = MR_MAX(BLOCK / s->ranks, 1u), left = mr_schedule_rows(sc, epoch) - row;
    uint32_t rank = mr_schedule_first_rank(sc, s->node);
    b->epoch = epoch;
    b->row = row;
    b->rows = MR_MIN(most, left);
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (mr_schedule_ids(sc, epoch, rank + r, row, b->when, b->rows, NULL) != (int64_t)b->rows)
            b->epoch = MR_NO_ACCESS; /* no memory for the order: plan does without */
        for (uint64_t k = 0; k < b->rows; k++)
            b->id[k * s->ranks + r] = b->when[k];
    }
    uint64_t n = b->rows * s->ranks;
    if (b->epoch == MR_NO_ACCESS)
        return;
    if (s->homes->rule == MR_HOME_CHAIN)
        find_chains(s, n);
    else
        mr_homes_first(s->homes, b->id, b->first, b->reader, n);
    find_next(s, n);
}

/* Steps to the place behind `i`. */
static void expect_next(struct millrace *s, uint64_t i, uint64_t access)
{
    struct block *b = &s->block;
    assert(s->ranks > 0);
    uint32_t column = s->ranks == 1 ? 0 : (uint32_t)(i % s->ranks);
    b->at = i + 1;
    b->expected = column + 1 < s->ranks ? access + 1 : access + mr_schedule_world(s->w->schedule) - column;
    if (b->at == b->rows * s->ranks)
        b->expected = MR_NO_ACCESS;
}

/* The place of an access in the block, which is loaded for it if need be; UINT64_MAX when nothing is known. */
static uint64_t look_up(struct millrace *s, uint64_t access, uint64_t id)
{
    struct block *b = &s->block;
    uint64_t i = b->at;
    if (access != b->expected) {
        struct mr_schedule *sc = s->w->schedule;
        uint64_t epoch = mr_schedule_epoch_of(sc, access), row = mr_schedule_row_of(sc, access);
        uint32_t rank = mr_schedule_rank_of(sc, access) - mr_schedule_first_rank(sc, s->node);
        assert(rank < s->ranks); /* one of the node's own accesses */
        if (b->epoch != epoch || row < b->row || row >= b->row + b->rows)
            load_block(s, epoch, row);
        if (b->epoch == MR_NO_ACCESS) {
            b->expected = MR_NO_ACCESS;
            return UINT64_MAX;
        }
        i = (row - b->row) * s->ranks + rank;
    }
    assert(b->id[i] == id);
    (void)id;
    if (i + AHEAD < b->rows * s->ranks)
        mr_shelf_prefetch(&s->shelf, b->id[i + AHEAD]);
    expect_next(s, i, access);
    return i;
}

/* ---- decisions ---- */

struct decision {
    uint32_t peers[3];
    unsigned n_peers;
    uint64_t until; /* it has to stay, until then */
};

/* Peers come without the node itself. */
static void decide_first(const struct millrace *s, uint64_t i, uint64_t access, uint64_t hash, struct decision *d)
{
    uint32_t home = s->block.reader[i];
    bool ready = s->block.first[i] < access;
    if (!mr_homes_by_readers(s->homes, hash)) {
        home = mr_homes_dealt(s->homes, hash);
        ready = s->block.first[i] <= access; /* fetched ahead of its first use */
    }
    if (home == s->node)
        d->until = MR_SHELF_FOREVER;
    else if (home != UINT32_MAX && ready)
        d->peers[d->n_peers++] = home;
}

static void decide_chain(const struct millrace *s, uint64_t i, uint64_t access, struct decision *d)
{
    const struct mr_chain *c = &s->block.chain[i];
    uint32_t holders[4];
    unsigned at, n = mr_homes_before(s->homes, c, access, holders, 4, &at);
    for (unsigned k = 0; k < n && d->n_peers < 2; k++)
        if (holders[k] != s->node)
            d->peers[d->n_peers++] = holders[k];
    /* Padding repeats a sample that was read before in this epoch, as the chain knows: nobody counts on this read.
     * Where memory for the order is exhausted the chain is empty. */
    if (at < c->n && c->when[at] == access)
        d->until = mr_homes_until(s->homes, c, at);
}

static void plan(void *state, uint64_t access, uint64_t id, struct mr_plan *out)
{
    struct millrace *s = state;
    struct decision d = {0};
    uint64_t i = look_up(s, access, id), next = MR_SHELF_FOREVER;
    unsigned own = mr_shelf_class(&s->shelf, id);
    mr_shelf_begin(&s->shelf, access);
    if (i != UINT64_MAX) {
        next = s->block.next[i];
        if (s->homes->rule == MR_HOME_CHAIN)
            decide_chain(s, i, access, &d);
        else
            decide_first(s, i, access, mr_homes_hash(id), &d);
    }
    mr_plan_sources(out, own, d.peers, d.n_peers);
    out->keep = own;
    if (own != MR_NOT_HELD)
        mr_shelf_touch(&s->shelf, id, next, d.until);
    else if (d.until || next != MR_SHELF_FOREVER || !s->scarce)
        out->keep = mr_shelf_keep(&s->shelf, id, next, d.until);
    out->n_evict = (unsigned)s->shelf.evicted.n;
    out->evict = s->shelf.evicted.item;
}

static void on_result(void *state, uint64_t access, uint64_t id, const struct mr_outcome *o)
{
    struct millrace *s = state;
    (void)access;
    if (o->failed)
        mr_shelf_forget(&s->shelf, id);
}

static bool holds(void *state, uint32_t node, uint64_t id, uint64_t access)
{
    const struct millrace *s = state;
    return mr_homes_holds(s->homes, node, id, access);
}

/* ---- what is dealt to the node ---- */

/* The next rows of all ranks, in the order in which the job reads them; false at the end. */
static bool load_walk(struct millrace *s)
{
    struct walk *k = &s->walk;
    struct mr_schedule *sc = s->w->schedule;
    uint64_t world = mr_schedule_world(sc), rows = MR_MAX(BLOCK / world, (uint64_t)1);
    uint64_t last = MR_MIN(mr_schedule_first_epoch(sc) + MR_HOME_EPOCHS - 1, mr_schedule_last_epoch(sc));
    while (k->epoch <= last && k->row >= mr_schedule_rows(sc, k->epoch)) {
        k->epoch++;
        k->row = 0;
    }
    if (k->epoch > last)
        return false;
    rows = MR_MIN(rows, mr_schedule_rows(sc, k->epoch) - k->row);
    for (uint32_t r = 0; r < world; r++) {
        uint64_t column[BLOCK];
        if (mr_schedule_ids(sc, k->epoch, r, k->row, column, rows, NULL) != (int64_t)rows)
            return false;
        for (uint64_t i = 0; i < rows; i++) {
            k->id[i * world + r] = column[i];
            k->access[i * world + r] = mr_schedule_access(sc, k->epoch, k->row + i, r);
        }
    }
    k->n = rows * world;
    k->at = 0;
    k->row += rows;
    mr_homes_first(s->homes, k->id, k->first, k->reader, k->n);
    return true;
}

static bool next_fill(void *state, unsigned class, uint64_t horizon, struct mr_fill *out)
{
    struct millrace *s = state;
    struct walk *k = &s->walk;
    (void)class; /* whichever thread is free: the shelf knows where there is room */
    while (k->id && (k->at < k->n || load_walk(s))) {
        uint64_t id = k->id[k->at], when = k->access[k->at];
        if (when >= horizon)
            return false;
        bool mine = k->first[k->at++] == when && mr_homes_dealt(s->homes, mr_homes_hash(id)) == s->node;
        if (!mine || mr_shelf_class(&s->shelf, id) != MR_NOT_HELD)
            continue;
        mr_shelf_begin(&s->shelf, 0);
        unsigned into = mr_shelf_keep(&s->shelf, id, MR_SHELF_FOREVER, MR_SHELF_FOREVER);
        if (into == MR_NOT_HELD)
            continue;
        *out = (struct mr_fill){.id = id,
                                .deadline = when,
                                .storage_class = into,
                                .n_sources = 1,
                                .source[0] = {.kind = MR_FROM_PFS},
                                .n_evict = (unsigned)s->shelf.evicted.n,
                                .evict = s->shelf.evicted.item};
        return true;
    }
    return false;
}

const struct mr_policy_ops mr_policy_millrace_ops = {
    MR_POLICY_HEAD,
    .name = "millrace",
    .doc = "PFS only for what no peer holds in time; agreed holders, next-use placement",
    .prefetches = true,
    .keeps = true,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .next_fill = next_fill,
    .on_result = on_result,
    .holds = holds,
    .expected = &mr_expected_millrace};
