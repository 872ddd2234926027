/* What every policy must do, whoever wrote it: one instance per node, driven by a small engine over random worlds
 * (orders, ranks per node, unequal nodes and sizes, padding, drop_last, limits, a start in the middle of an epoch),
 * which does what the policy says in the order in which the job reads, and checks
 *  1. every access of the schedule is planned once, and each plan ends with the PFS;
 *  2. no class ever holds more than its capacity, fills and evictions included;
 *  3. an own class named as a source has the sample, a peer holds it by the rule, and really, but for few (there may be
 * no room for what a node ought to keep);
 *  4. all nodes give the same answer to who holds what, and whoever reads something that is held by the rule asks a
 * holder;
 *  5. bytes are conserved: what is read is what is consumed, by source, and what is held came from somewhere;
 *  6. the same world gives the same decisions, whatever the order in which nodes are asked and whatever became of
 * reads;
 *  7. a redrawn epoch has as many samples, all of which exist; an exchange inside batches leaves the batches as they
 * are;
 *  8. a world that does not suit a policy is refused with a reason;
 *  9. millrace reads a sample from the PFS once, where the job has room for the set.
 * MR_TEST_FULL=1 tries far more worlds. */
#include "amount.h"
#include "base/common.h"
#include "base/rng.h"
#include "conformance/conformance_plugins.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { NODES_MAX = 5, CLASSES_MAX = 3 };

struct world {
    struct mr_policy_world w;
    struct mr_schedule_params p;
    struct mr_policy_memo memo;
    struct mr_policy nodes[NODES_MAX];
    uint64_t capacity[NODES_MAX * CLASSES_MAX];
    uint32_t first_rank[NODES_MAX + 1];
    uint64_t seed, *bytes;
    uint8_t *held; /* [node * samples + id]: class or MR_NOT_HELD */
    uint64_t used[NODES_MAX * CLASSES_MAX];
    uint64_t trail; /* hash of all decisions */
    uint64_t reads, peer_reads, peer_misses, consumed, moved, pfs_reads, distinct;
    uint8_t *seen; /* per sample: has been read */
    bool shake;    /* nodes in another order, some reads fail */
};

static const char *only;

static uint64_t draw(const struct world *w, uint64_t what, uint64_t below)
{
    return mr_rng_below(mr_rng_at(w->seed, MR_RNG_TEST, what), below);
}

static void note(struct world *w, uint64_t what)
{
    w->trail = mr_mix64(w->trail ^ what);
}

static uint64_t bytes_of(void *user, uint64_t id)
{
    return ((const struct world *)user)->bytes[id];
}

/* ---- random worlds ---- */

static void draw_schedule(struct world *w)
{
    struct mr_schedule_params *p = &w->p;
    p->nodes = (uint32_t)draw(w, 1, NODES_MAX) + 1;
    uint32_t each = (uint32_t)draw(w, 2, 3) + 1, world = p->nodes * each;
    if (draw(w, 3, 4) == 0) { /* nodes with unequally many ranks */
        world = 0;
        for (uint32_t n = 0; n < p->nodes; n++)
            w->first_rank[n + 1] = world += (uint32_t)draw(w, 40 + n, 3) + 1;
        p->first_rank = w->first_rank;
    }
    p->epochs = draw(w, 4, 12) + 1;
    p->local_batch = draw(w, 5, 3) + 1;
    p->whole_steps = draw(w, 6, 2);
    p->rank_max = draw(w, 7, 4) ? 0 : draw(w, 8, 12) + 1;
    p->order = (struct mr_order_params){.mode = (enum mr_order_mode)(1 + draw(w, 9, 6)),
                                        .samples = (draw(w, 10, 12) + 2) * world + draw(w, 11, 7),
                                        .seed = w->seed,
                                        .epoch = draw(w, 12, 3),
                                        .world = world,
                                        .drop_last = draw(w, 13, 2),
                                        .shuffle_each_epoch = draw(w, 14, 10) != 0,
                                        .window = 5,
                                        .samples_per_file = 4};
    if (draw(w, 9, 2)) /* half of them what most people use */
        p->order.mode = draw(w, 15, 2) ? MR_ORDER_TORCH : MR_ORDER_CIPHER;
    if (draw(w, 16, 2))
        p->position = p->order.mode >= MR_ORDER_SHARD ? draw(w, 17, p->order.samples / world) * world
                                                      : draw(w, 17, p->order.samples);
}

static void draw_sizes(struct world *w)
{
    uint64_t n = w->p.order.samples;
    bool equal = draw(w, 20, 2);
    w->bytes = malloc(n * sizeof(*w->bytes));
    assert_non_null(w->bytes);
    for (uint64_t i = 0; i < n; i++)
        w->w.total_bytes += w->bytes[i] = equal ? 1000 : 100 + draw(w, 1000 + i, 3000);
    w->w.sample_bytes = equal ? 1000 : 0;
}

static void init_world(struct world *w, uint64_t seed, bool shake)
{
    *w = (struct world){.seed = seed, .shake = shake};
    draw_schedule(w);
    draw_sizes(w);
    w->w.nodes = w->p.nodes;
    w->w.classes = (uint32_t)draw(w, 21, CLASSES_MAX) + 1;
    bool unequal = draw(w, 22, 2);
    for (uint32_t i = 0; i < w->w.nodes; i++)
        for (unsigned c = 0; c < w->w.classes; c++)
            w->capacity[i * w->w.classes + c] =
                (uint64_t)((double)w->w.total_bytes / w->w.nodes *
                           (double)(draw(w, 60 + c + (unequal ? 10 * i : 0), 20) + 1) / 10);
    w->w.capacity = w->capacity;
    w->w.samples = w->p.order.samples;
    w->w.epochs = w->p.epochs;
    w->w.node_batch = (double)w->p.local_batch * w->p.order.world / w->p.nodes;
    w->w.epoch_share = 1;
    w->w.bytes_of = bytes_of;
    w->w.user = w;
    w->w.skew = draw(w, 23, 2) * w->p.order.world;
    w->w.horizon = w->p.epochs;
    w->w.seed = seed;
    w->w.memo = draw(w, 24, 2) ? &w->memo : NULL;
    struct mr_error err = {0};
    if (mr_schedule_create(&w->p, &w->w.schedule, &err))
        fail_msg("seed %d: %s", (int)seed, err.message);
    w->held = malloc(w->w.nodes * w->w.samples);
    w->seen = calloc(w->w.samples, 1);
    assert_true(w->held && w->seen);
    memset(w->held, MR_NOT_HELD, w->w.nodes * w->w.samples);
}

static void done_world(struct world *w)
{
    for (uint32_t i = 0; i < w->w.nodes; i++)
        mr_policy_free(&w->nodes[i]);
    mr_policy_memo_done(&w->memo);
    mr_schedule_free(w->w.schedule);
    free(w->bytes);
    free(w->held);
    free(w->seen);
}

/* ---- a small engine ---- */

static uint8_t *held(struct world *w, uint32_t node, uint64_t id)
{
    return &w->held[node * w->w.samples + id];
}

static void drop(struct world *w, uint32_t node, uint64_t id)
{
    assert_true(id < w->w.samples);
    uint8_t *at = held(w, node, id);
    if (*at == MR_NOT_HELD) {
        assert_true(w->shake); /* only what is there is evicted, unless it never came */
        return;
    }
    w->used[node * CLASSES_MAX + *at] -= w->bytes[id];
    *at = MR_NOT_HELD;
}

/* Invariant 2. */
static void put(struct world *w, uint32_t node, uint64_t id, unsigned class)
{
    assert_true(class > 0 && class < w->w.classes);
    uint8_t *at = held(w, node, id);
    if (*at != MR_NOT_HELD) {
        assert_int_equal(*at, class);
        return;
    }
    *at = (uint8_t) class;
    uint64_t used = w->used[node * CLASSES_MAX + class] += w->bytes[id];
    if (used > mr_policy_capacity(&w->w, node, class))
        fail_msg("seed %d: node %u class %u holds %llu of %llu bytes", (int)w->seed, node, class,
                 (unsigned long long)used, (unsigned long long)mr_policy_capacity(&w->w, node, class));
}

/* Invariants 3 and 4. */
static bool peer_has(struct world *w, uint32_t asker, uint32_t peer, uint64_t id, uint64_t access)
{
    assert_true(peer < w->w.nodes && peer != asker);
    for (uint32_t i = 0; i < w->w.nodes; i++)
        if (!mr_policy_holds(&w->nodes[i], peer, id, access))
            fail_msg("seed %d: node %u says that node %u does not hold sample %d at %llu, node %u asks it",
                     (int)w->seed, i, peer, (int)id, (unsigned long long)access, asker);
    w->peer_reads++;
    bool has = *held(w, peer, id) != MR_NOT_HELD;
    w->peer_misses += !has;
    return has;
}

static enum mr_source_kind read_from(struct world *w, uint32_t node, uint64_t id, uint64_t access,
                                     const struct mr_plan_source *source, unsigned n)
{
    assert_true(n >= 1 && n <= 3);
    assert_int_equal(source[n - 1].kind, MR_FROM_PFS); /* 1 */
    for (unsigned i = 0; i < n; i++) {
        note(w, (uint64_t)source[i].kind << 40 ^ (uint64_t)source[i].node << 20 ^ source[i].storage_class);
        if (source[i].kind == MR_FROM_CLASS) {
            if (!w->shake)
                assert_int_equal(*held(w, node, id), source[i].storage_class); /* 3 */
            if (*held(w, node, id) != MR_NOT_HELD)
                return MR_FROM_CLASS;
        } else if (source[i].kind == MR_FROM_PEER && peer_has(w, node, source[i].node, id, access)) {
            return MR_FROM_PEER;
        }
    }
    return MR_FROM_PFS;
}

/* Invariant 4, second half. */
static void check_holders(struct world *w, uint32_t node, uint64_t id, uint64_t access, const struct mr_plan *plan)
{
    if (plan->n_sources > 1)
        return;
    for (uint32_t i = 0; i < w->w.nodes; i++)
        if (i != node && mr_policy_holds(&w->nodes[node], i, id, access))
            fail_msg("seed %d: node %u reads sample %d from the PFS at %llu, node %u holds it", (int)w->seed, node,
                     (int)id, (unsigned long long)access, i);
}

static void read_one(struct world *w, uint32_t node, uint64_t id, uint64_t access)
{
    struct mr_plan plan;
    memset(&plan, 0xee, sizeof plan); /* every field is set */
    mr_policy_plan(&w->nodes[node], access, id, &plan);
    note(w, access ^ id << 32);
    check_holders(w, node, id, access, &plan);
    enum mr_source_kind from = read_from(w, node, id, access, plan.source, plan.n_sources);
    w->pfs_reads += from == MR_FROM_PFS;
    w->distinct += !w->seen[id];
    w->seen[id] = 1;
    for (unsigned i = 0; i < plan.n_evict; i++) {
        assert_true(plan.evict[i] != id);
        note(w, plan.evict[i]);
        drop(w, node, plan.evict[i]);
    }
    note(w, plan.keep);
    bool failed = w->shake && from != MR_FROM_CLASS && mr_rng_below(mr_rng_at(w->seed, MR_RNG_FAULT, access), 10) == 0;
    if (plan.keep != MR_NOT_HELD && !failed && !(plan.keep_only_from_pfs && from != MR_FROM_PFS))
        put(w, node, id, plan.keep);
    w->reads++;
    w->consumed += w->bytes[id];
    w->moved += w->bytes[id]; /* 5: one source delivered all of it */
    struct mr_outcome o = {.from = from, .kept = *held(w, node, id) != MR_NOT_HELD, .failed = failed};
    mr_policy_result(&w->nodes[node], access, id, &o);
}

static void fill(struct world *w, uint32_t node, unsigned max)
{
    struct mr_fill f;
    for (unsigned c = 1; c < w->w.classes; c++)
        for (unsigned k = 0; k < max && mr_policy_next_fill(&w->nodes[node], c, MR_NO_ACCESS, &f); k++) {
            assert_true(f.id < w->w.samples && f.storage_class > 0 && f.storage_class < w->w.classes);
            assert_int_equal(*held(w, node, f.id), MR_NOT_HELD);
            for (unsigned i = 0; i < f.n_evict; i++)
                drop(w, node, f.evict[i]);
            assert_true(f.n_sources >= 1 && f.source[f.n_sources - 1].kind == MR_FROM_PFS);
            put(w, node, f.id, f.storage_class);
            w->pfs_reads += f.source[0].kind == MR_FROM_PFS;
            struct mr_outcome o = {.from = MR_FROM_PFS, .kept = true};
            mr_policy_result(&w->nodes[node], f.deadline, f.id, &o);
        }
}

/* ---- a run ---- */

static int by_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct epoch {
    uint64_t rows, *ids; /* [row * world + rank], as read */
};

static void load_epoch(struct world *w, uint64_t epoch, struct epoch *e)
{
    struct mr_schedule *s = w->w.schedule;
    uint64_t world = mr_schedule_world(s), id;
    e->rows = mr_schedule_rows(s, epoch);
    e->ids = malloc((e->rows * world + 1) * sizeof(*e->ids));
    assert_non_null(e->ids);
    for (uint64_t row = 0; row < e->rows; row++)
        for (uint32_t r = 0; r < world; r++) {
            assert_int_equal(mr_schedule_ids(s, epoch, r, row, &id, 1, NULL), 1);
            e->ids[row * world + r] = id;
        }
}

/* Invariant 7. */
static void redraw_epoch(struct world *w, uint64_t epoch, struct epoch *e, bool *same_batches)
{
    struct mr_schedule *s = w->w.schedule;
    uint64_t world = mr_schedule_world(s), n = e->rows * world;
    uint64_t *before = malloc((n + 1) * sizeof(*before)), *mine = malloc((n + 1) * sizeof(*mine));
    assert_true(before && mine);
    memcpy(before, e->ids, n * sizeof(*before));
    for (uint32_t i = 0; i < w->w.nodes; i++) {
        uint32_t first = mr_schedule_first_rank(s, i), ranks = mr_schedule_first_rank(s, i + 1) - first;
        for (uint64_t k = 0; k < e->rows * ranks; k++)
            mine[k] = before[k / ranks * world + first + k % ranks];
        w->nodes[i].ops->redraw(w->nodes[i].state, epoch, mine, e->rows * ranks);
        for (uint64_t k = 0; k < e->rows * ranks; k++) {
            assert_true(mine[k] < w->w.samples);
            e->ids[k / ranks * world + first + k % ranks] = mine[k];
        }
    }
    for (uint64_t row = 0; row < e->rows; row += w->p.local_batch) {
        uint64_t len = MR_MIN(w->p.local_batch, e->rows - row) * world;
        memcpy(mine, e->ids + row * world, len * sizeof(*mine));
        qsort(before + row * world, len, sizeof(*before), by_id);
        qsort(mine, len, sizeof(*mine), by_id);
        *same_batches &= memcmp(before + row * world, mine, len * sizeof(*mine)) == 0;
    }
    free(before);
    free(mine);
}

static void run_epoch(struct world *w, uint64_t epoch, bool *same_batches)
{
    struct mr_schedule *s = w->w.schedule;
    uint64_t world = mr_schedule_world(s);
    struct epoch e;
    load_epoch(w, epoch, &e);
    if (w->nodes[0].ops->redraw)
        redraw_epoch(w, epoch, &e, same_batches);
    for (uint64_t row = 0; row < e.rows; row++) {
        for (uint32_t r = 0; r < world; r++) {
            uint64_t access = mr_schedule_access(s, epoch, row, r);
            read_one(w, mr_schedule_node_of(s, access), e.ids[row * world + r], access);
        }
        for (uint32_t i = 0; i < w->w.nodes && !w->nodes[0].ops->preloads; i++)
            fill(w, i, (unsigned)mr_rng_below(mr_rng_at(w->seed, MR_RNG_TEST, 5000 + row * w->w.nodes + i), 4));
    }
    free(e.ids);
}

struct result {
    uint64_t trail, peer_reads, peer_misses, pfs_reads, distinct;
    bool ran, same_batches, roomy;
};

/* Room for a fifth more than the set in the job, and for a few samples in every class that has any. */
static bool is_roomy(const struct world *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->w.nodes; i++)
        for (unsigned c = 1; c < w->w.classes; c++)
            sum += w->capacity[i * w->w.classes + c];
    return (double)sum > 1.2 * (double)w->w.total_bytes && w->w.samples >= 50 * w->w.nodes / 2;
}

static int create_nodes(struct world *w, enum mr_policy_id id, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t k = 0; k < w->w.nodes && rc == 0; k++) {
        uint32_t i = w->shake ? w->w.nodes - 1 - k : k;
        rc = mr_policy_create(id, &w->w, i, &w->nodes[i], err);
    }
    return rc;
}

static struct result run(enum mr_policy_id id, uint64_t seed, bool shake)
{
    struct world w;
    struct mr_error err = {0};
    struct result r = {.same_batches = true};
    init_world(&w, seed, shake);
    int rc = create_nodes(&w, id, &err);
    if (rc < 0 && (rc != MR_E_UNSUPPORTED || !*err.message)) /* 8 */
        fail_msg("%s: %d %s", mr_policy_name(id), rc, err.message);
    if (rc == 0) {
        struct mr_schedule *s = w.w.schedule;
        uint64_t want = 0;
        for (uint32_t i = 0; i < w.w.nodes; i++) /* at the start: preloads, and what is due first */
            fill(&w, i, w.nodes[0].ops->preloads || id == MR_POLICY_MILLRACE ? UINT32_MAX : 2);
        for (uint64_t e = mr_schedule_first_epoch(s); e <= mr_schedule_last_epoch(s); e++) {
            run_epoch(&w, e, &r.same_batches);
            want += mr_schedule_rows(s, e) * mr_schedule_world(s);
        }
        assert_int_equal(w.reads, want); /* 1 */
        assert_int_equal(w.moved, w.consumed);
        r = (struct result){w.trail,    w.peer_reads, w.peer_misses,  w.pfs_reads,
                            w.distinct, true,         r.same_batches, is_roomy(&w)};
    }
    done_world(&w);
    return r;
}

static bool selected(int id)
{
    return !only || strcmp(mr_policy_name((enum mr_policy_id)id), only) == 0;
}

static void random_worlds_keep_the_rules(void **state)
{
    (void)state;
    unsigned policies = 0;
    uint64_t worlds = getenv("MR_TEST_FULL") ? 4000 : mr_test_few(150);
    for (int id = 0; id < mr_policy_count(); id++) {
        if (!selected(id))
            continue;
        enum mr_policy_id p = (enum mr_policy_id)id;
        unsigned ran = 0;
        uint64_t asked = 0, missed = 0, pfs = 0, distinct = 0;
        for (uint64_t seed = 1; seed <= worlds; seed++) {
            struct result a = run(p, seed, false), b = run(p, seed, false);
            assert_int_equal(a.trail, b.trail); /* 6 */
            struct result c = run(p, seed, true);
            assert_int_equal(a.ran, c.ran);
            ran += a.ran;
            asked += a.peer_reads;
            missed += a.peer_misses;
            pfs += a.ran && a.roomy ? a.pfs_reads : 0;
            distinct += a.ran && a.roomy ? a.distinct : 0;
            if (a.ran && p == MR_POLICY_LOCALITY_AWARE)
                assert_true(a.same_batches); /* 7 */
        }
        if (ran == 0)
            fail_msg("%s refused every world", mr_policy_name(p));
        /* NoPFS names whoever plans to keep a sample, fetched or not. */
        if (p != MR_POLICY_NOPFS && (double)missed > 0.02 * (double)asked)
            fail_msg("%s: %llu of %llu peers did not have what they hold by the rule", mr_policy_name(p),
                     (unsigned long long)missed, (unsigned long long)asked);
        print_message(
            "%-22s %u worlds, %llu peers asked, %llu did not have it; with room, %.3f reads from the PFS per sample\n",
            mr_policy_name(p), ran, (unsigned long long)asked, (unsigned long long)missed,
            distinct ? (double)pfs / (double)distinct : 0);
        if (p == MR_POLICY_MILLRACE && (double)pfs > 1.015 * (double)distinct) /* 9 */
            fail_msg("millrace reads %.3f times from the PFS what the job has room for",
                     (double)pfs / (double)distinct);
        policies++;
    }
    assert_true(policies > 0);
}

/* What is decided at the start position is what a run that has never been elsewhere decides: nothing is replayed, so an
 * instance for position p and one for p with another past are the same object. Here: made late, after other instances
 * of the same world have run. */
static void instances_do_not_influence_each_other(void **state)
{
    (void)state;
    for (int id = 0; id < mr_policy_count(); id++) {
        if (!selected(id))
            continue;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            uint64_t alone = run((enum mr_policy_id)id, seed, false).trail;
            (void)run((enum mr_policy_id)id, seed + 1, false);
            assert_int_equal(run((enum mr_policy_id)id, seed, false).trail, alone);
        }
    }
}

static void every_policy_declares_itself(void **state)
{
    (void)state;
    for (int id = 0; id < mr_policy_count(); id++) {
        const struct mr_policy_ops *ops = mr_policy_get_ops((enum mr_policy_id)id);
        enum mr_policy_id found;
        assert_int_equal(ops->abi, MR_POLICY_ABI);
        assert_int_equal(ops->size, sizeof(*ops));
        assert_true(strlen(ops->name) > 0 && strlen(ops->doc) > 10);
        assert_int_equal(ops->reorders, ops->redraw != NULL);
        assert_true(!ops->preloads || ops->next_fill);
        assert_true(ops->keeps || (!ops->next_fill && !ops->holds));
        assert_int_equal(mr_policy_parse(ops->name, &found, NULL), 0);
        assert_int_equal(found, id);
    }
}

int main(void)
{
    only = conformance_only();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_declares_itself),
        cmocka_unit_test(random_worlds_keep_the_rules),
        cmocka_unit_test(instances_do_not_influence_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
