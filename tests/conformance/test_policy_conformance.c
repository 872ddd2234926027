/* What every policy must do, whoever wrote it: driven by a small engine over random worlds (nodes, classes, capacities,
 * sizes, orders), which reads, fills and keeps as the policy says and checks after every step
 *  1. no class ever holds more than its capacity, and the directory's sums are those of what is held;
 *  2. a source that is named has the sample: the own class, or a peer other than the node itself;
 *  3. what is filled is a sample that exists and that the node does not have;
 *  4. a redrawn epoch has as many samples, all of which exist;
 *  5. the same world gives the same decisions;
 *  6. a scenario that does not suit a policy is refused with a reason. */
#include "base/common.h"
#include "base/rng.h"
#include "conformance/conformance_plugins.h"
#include "policy/policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { NODES_MAX = 5, EPOCHS = 3, FILLS = 4 };

struct world {
    struct mr_system system;
    struct mr_directory dir;
    struct mr_policy policy;
    uint32_t nodes;
    uint64_t samples, steps, per_node, seed;
    float *size_mb;
    uint32_t *ids;  /* an epoch of all nodes: [node][steps * per_node] */
    uint64_t trail; /* hash of all decisions */
    uint64_t reads, kept_moves;
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

/* Ids that node reads in an epoch: a permutation of all samples, dealt to the nodes. */
static int stream(void *user, uint32_t epoch, uint32_t node, uint32_t *out, struct mr_error *err)
{
    struct world *w = user;
    uint64_t n = w->steps * w->per_node;
    uint32_t *all = malloc(w->samples * sizeof(*all));
    (void)err;
    assert_non_null(all);
    for (uint32_t i = 0; i < w->samples; i++)
        all[i] = i;
    for (uint64_t i = w->samples - 1; i > 0; i--) {
        uint64_t k = mr_rng_below(mr_rng_at(w->seed + 1 + epoch, MR_RNG_TEST, i), i + 1);
        uint32_t x = all[i];
        all[i] = all[k];
        all[k] = x;
    }
    for (uint64_t k = 0; k < n; k++)
        out[k] = all[(k * w->nodes + node) % w->samples];
    free(all);
    return 0;
}

static void moved(void *user, uint32_t from, uint32_t to, uint32_t id)
{
    struct world *w = user;
    assert_true(from < w->nodes && to < w->nodes && from != to && id < w->samples);
    w->kept_moves++;
    note(w, (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ id);
}

/* Invariant 1. */
static void check_directory(const struct world *w)
{
    const struct mr_directory *d = &w->dir;
    for (uint32_t n = 0; n < w->nodes; n++) {
        double used[MR_CLASS_MAX] = {0};
        for (uint64_t id = 0; id < w->samples; id++) {
            uint8_t at = d->held[n * d->samples + id];
            if (at < MR_INCOMING) {
                assert_true(at < w->system.n_classes && at > 0);
                used[at] += d->size_mb[id];
            }
        }
        for (unsigned c = 1; c < w->system.n_classes; c++) {
            double have = mr_directory_used_mb(d, n, c), cap = w->system.classes[c].capacity_mb;
            if (fabs(have - used[c]) > 1e-3 * (1 + used[c]))
                fail_msg("node %u class %u: the directory says %.3f MB, held are %.3f", n, c, have, used[c]);
            if (used[c] > cap * (1 + 1e-6))
                fail_msg("node %u class %u holds %.3f of %.3f MB", n, c, used[c], cap);
        }
    }
}

static void init_world(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed};
    w->nodes = (uint32_t)draw(w, 1, NODES_MAX) + 1;
    w->per_node = draw(w, 2, 3) + 1;
    w->steps = draw(w, 3, 12) + 2;
    w->samples = w->steps * w->per_node * w->nodes + draw(w, 4, 7); /* some are left out */
    w->size_mb = malloc(w->samples * sizeof(*w->size_mb));
    w->ids = malloc(w->nodes * w->steps * w->per_node * sizeof(*w->ids));
    assert_true(w->size_mb && w->ids);
    double total = 0;
    for (uint64_t i = 0; i < w->samples; i++)
        total += w->size_mb[i] = 0.1f + (float)draw(w, 100 + i, 50) / 10;
    w->system =
        (struct mr_system){.n_classes = (unsigned)draw(w, 5, 3) + 1, .network_mbps = 1000, .pfs_link_mbps = 1000};
    for (unsigned c = 0; c < w->system.n_classes; c++) {
        struct mr_storage_class *k = &w->system.classes[c];
        k->capacity_mb = c == 0 ? 10 : total / w->nodes * (double)(draw(w, 6 + c, 20) + 1) / 10;
        k->threads = 2;
        assert_int_equal(mr_curve_add(&k->read_mbps, 1, 1000.0 / (c + 1), NULL), 0);
        assert_int_equal(mr_curve_add(&k->write_mbps, 1, 1000.0 / (c + 1), NULL), 0);
    }
    assert_int_equal(mr_curve_add(&w->system.pfs_mbps, 1, 100, NULL), 0);
    assert_int_equal(mr_directory_init(&w->dir, w->nodes, w->samples, w->size_mb, NULL), 0);
}

static void done_world(struct world *w)
{
    mr_directory_done(&w->dir);
    free(w->size_mb);
    free(w->ids);
}

static int create(struct world *w, enum mr_policy_id id, struct mr_error *err)
{
    double total = 0;
    for (uint64_t i = 0; i < w->samples; i++)
        total += w->size_mb[i];
    const struct mr_policy_world pw = {.system = &w->system,
                                       .nodes = w->nodes,
                                       .epochs = EPOCHS,
                                       .samples = w->samples,
                                       .steps_per_epoch = w->steps,
                                       .per_node = w->per_node,
                                       .size_mb = w->size_mb,
                                       .total_mb = total,
                                       .dir = &w->dir,
                                       .stream = stream,
                                       .moved = moved,
                                       .user = w};
    return mr_policy_create(id, &pw, &w->policy, err);
}

/* Up to `max` fills per class: announced, then arrived, as the simulator does. */
static void fill(struct world *w, unsigned max)
{
    const struct mr_policy_ops *ops = w->policy.ops;
    for (uint32_t n = 0; ops->next_fill && n < w->nodes; n++)
        for (unsigned c = 1; c < w->system.n_classes; c++)
            for (unsigned k = 0; k < max; k++) {
                uint32_t id = ops->next_fill(&w->policy, n, c);
                if (id == MR_NO_SAMPLE)
                    break;
                assert_true(id < w->samples); /* 3 */
                assert_int_equal(w->dir.held[n * w->samples + id], MR_NOT_HELD);
                mr_directory_announce(&w->dir, n, id);
                mr_directory_put(&w->dir, n, id, c);
                note(w, (uint64_t)id << 8 | c);
            }
}

static void read_one(struct world *w, uint32_t node, uint32_t id, uint64_t access)
{
    const struct mr_policy_ops *ops = w->policy.ops;
    struct mr_source s = mr_policy_source(&w->policy, node, id);
    if (s.kind == MR_FROM_CLASS) { /* 2 */
        assert_int_equal(w->dir.held[node * w->samples + id], s.class);
    } else if (s.kind == MR_FROM_PEER) {
        assert_int_not_equal(s.node, node);
        assert_int_equal(w->dir.held[s.node * w->samples + id], s.class);
    } else if (s.kind == MR_FROM_PFS && ops->will_keep && ops->will_keep(&w->policy, node, id)) {
        mr_directory_announce(&w->dir, node, id);
    }
    note(w, (uint64_t)s.kind << 40 ^ (uint64_t)s.node << 32 ^ id);
    if (ops->keep)
        ops->keep(&w->policy, node, id, access);
    w->reads++;
}

static void run_epoch(struct world *w, uint32_t epoch)
{
    const struct mr_policy_ops *ops = w->policy.ops;
    uint64_t n = w->steps * w->per_node;
    for (uint32_t node = 0; node < w->nodes; node++) {
        uint32_t *ids = w->ids + node * n;
        assert_int_equal(stream(w, epoch, node, ids, NULL), 0);
        if (ops->redraw)
            ops->redraw(&w->policy, epoch, node, ids, n, w->seed);
        for (uint64_t k = 0; k < n; k++)
            assert_true(ids[k] < w->samples); /* 4 */
    }
    for (uint64_t step = 0; step < w->steps; step++) {
        for (uint32_t node = 0; node < w->nodes; node++)
            for (uint64_t k = step * w->per_node; k < (step + 1) * w->per_node; k++)
                read_one(w, node, w->ids[node * n + k], epoch * n + k);
        if (!ops->preloads)
            fill(w, FILLS);
        check_directory(w);
    }
}

/* Returns the hash of the decisions; 0 when the policy refused the world. */
static uint64_t run(enum mr_policy_id id, uint64_t seed)
{
    struct world w;
    struct mr_error err = {0};
    init_world(&w, seed);
    int rc = create(&w, id, &err);
    if (rc < 0) {
        if (rc != MR_E_UNSUPPORTED || !*err.message) /* 6 */
            fail_msg("%s: %d %s", mr_policy_name(id), rc, err.message);
    } else {
        if (w.policy.ops->preloads)
            fill(&w, UINT32_MAX);
        check_directory(&w);
        for (uint32_t e = 0; e < EPOCHS; e++)
            run_epoch(&w, e);
        assert_int_equal(w.reads, EPOCHS * w.steps * w.per_node * w.nodes);
    }
    mr_policy_free(&w.policy);
    uint64_t trail = rc < 0 ? 0 : w.trail | 1;
    done_world(&w);
    return trail;
}

static bool selected(int id)
{
    return !only || strcmp(mr_policy_name((enum mr_policy_id)id), only) == 0;
}

static void random_worlds_keep_the_rules(void **state)
{
    (void)state;
    unsigned policies = 0;
    for (int id = 0; id < mr_policy_count(); id++) {
        if (!selected(id))
            continue;
        unsigned ran = 0;
        for (uint64_t seed = 1; seed <= 60; seed++) {
            uint64_t first = run((enum mr_policy_id)id, seed);
            assert_int_equal(first, run((enum mr_policy_id)id, seed)); /* 5 */
            ran += first != 0;
        }
        if (ran == 0)
            fail_msg("%s refused every world", mr_policy_name((enum mr_policy_id)id));
        policies++;
    }
    assert_true(policies > 0);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
