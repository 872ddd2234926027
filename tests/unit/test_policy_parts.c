/* What millrace is made of: chains of readers cover all time and are computed alike from whatever is in sight; the
 * shelf gives up what a plain search would, and never more than it has; homes fit their nodes, equal or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "policy/chain.h"
#include "policy/homes.h"
#include "policy/policy.h"
#include "policy/shelf.h"

static uint64_t draw(uint64_t seed, uint64_t what, uint64_t below)
{
    return mr_rng_below(mr_rng_at(seed, MR_RNG_TEST, what), below);
}

/* ---- chain ---- */

enum { EPOCHS = 40, STRIDE = 1000 };

/* The reads of a sample over a run; some epochs leave it out. */
struct run {
    bool read[EPOCHS];
    uint64_t when[EPOCHS];
    uint32_t node[EPOCHS];
};

static void draw_run(struct run *r, uint64_t seed)
{
    uint64_t nodes = 2 + draw(seed, 1, 12), skip = draw(seed, 2, 3) ? 1000 : 10;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        r->read[e] = draw(seed, 100 + e, skip) != 0;
        r->when[e] = e * STRIDE + draw(seed, 200 + e, STRIDE);
        r->node[e] = (uint32_t)draw(seed, 300 + e, nodes);
    }
}

static void in_sight(const struct run *r, uint64_t low, uint64_t high, struct mr_chain *c)
{
    c->n = 0;
    for (uint64_t e = low; e <= MR_MIN(high, (uint64_t)EPOCHS - 1); e++)
        if (r->read[e]) {
            c->epoch[c->n] = e;
            c->when[c->n] = r->when[e];
            c->node[c->n++] = r->node[e];
        }
}

/* What the reader of `epoch` keeps, computed in its window with `more` further epochs in sight. */
static uint8_t kept_by(const struct run *r, uint64_t epoch, uint64_t reach, uint64_t more, uint64_t *until)
{
    uint8_t keep[MR_CHAIN_MAX];
    struct mr_chain c;
    uint64_t anchor = mr_chain_anchor(0, epoch, MR_CHAIN_WINDOW), margin = MR_CHAIN_MARGIN - 1 + more;
    in_sight(r, anchor > margin ? anchor - margin : 0, anchor + MR_CHAIN_WINDOW + margin, &c);
    mr_chain_cover(&c, anchor, MR_CHAIN_WINDOW, reach, keep);
    unsigned i = 0;
    while (c.epoch[i] != epoch)
        i++;
    unsigned own = mr_chain_next_own(&c, i);
    *until = 0;
    if (keep[i] & MR_CHAIN_OWN)
        *until = c.when[own];
    if (keep[i] & MR_CHAIN_NEXT)
        *until = MR_MAX(*until, i + 1 < c.n ? c.when[i + 1] : UINT64_MAX);
    return keep[i];
}

static void chain_covers_all_time(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct run r;
        uint64_t reach = draw(seed, 3, 9) * STRIDE, covered = 0, until, again;
        draw_run(&r, seed);
        for (uint64_t e = 0; e < EPOCHS - 1; e++) {
            if (!r.read[e])
                continue;
            if (covered && r.when[e] > covered)
                fail_msg("seed %d: nobody keeps it from %d to %d", (int)seed, (int)covered, (int)r.when[e]);
            uint8_t keep = kept_by(&r, e, reach, 0, &until);
            assert_int_equal(keep, kept_by(&r, e, reach, 4, &again)); /* who sees more decides alike */
            assert_true(until == again);
            covered = MR_MAX(covered, until ? until : r.when[e]);
        }
    }
}

/* With nothing to gain from stays the last reader keeps it; with everything, every reader that comes again does. */
static void chain_at_its_ends(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct run r;
        uint64_t until;
        draw_run(&r, seed);
        for (uint64_t e = 0; e < MR_CHAIN_WINDOW; e++) {
            if (!r.read[e])
                continue;
            uint8_t none = kept_by(&r, e, 0, 0, &until), all = kept_by(&r, e, UINT64_MAX / 4, 0, &until);
            bool again = false;
            for (uint64_t q = e + 1; q <= e + MR_CHAIN_MARGIN; q++)
                again |= r.read[q] && r.node[q] == r.node[e];
            assert_true(none == MR_CHAIN_NEXT || none == MR_CHAIN_OWN);
            assert_true(!again || (all & MR_CHAIN_OWN));
        }
    }
}

/* ---- shelf ---- */

enum { IDS = 200, ROOM = 40 };

/* The same by searching: equal sizes, one class. */
struct plain {
    uint64_t next[IDS];
    bool held[IDS];
    unsigned n;
};

static void shelf_gives_up_the_farthest(void **state)
{
    (void)state;
    uint64_t capacity[2] = {0, ROOM * 10};
    struct mr_policy_world w = {.nodes = 1, .classes = 2, .capacity = capacity, .samples = IDS, .sample_bytes = 10};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct mr_shelf s;
        struct plain p = {.n = 0};
        mr_shelf_init(&s, &w, 0, draw(seed, 1, 2), UINT64_MAX);
        for (uint64_t now = 1; now < 5000; now++) {
            uint64_t id = draw(seed, 10 + now, IDS), next = now + 1 + draw(seed, 10000 + now, 3000), far = IDS;
            mr_shelf_begin(&s, now);
            assert_int_equal(mr_shelf_class(&s, id) != MR_NOT_HELD, p.held[id]);
            for (uint64_t k = 0; k < IDS; k++)
                if (p.held[k] && k != id && (far == IDS || p.next[k] > p.next[far]))
                    far = k;
            if (p.held[id]) {
                mr_shelf_touch(&s, id, next, 0);
                p.next[id] = next;
                continue;
            }
            bool fits = p.n < ROOM, better = !fits && p.next[far] > next;
            unsigned class = mr_shelf_keep(&s, id, next, 0);
            assert_int_equal(class, fits || better ? 1 : MR_NOT_HELD);
            assert_int_equal(s.evicted.n, better ? 1 : 0);
            if (better) {
                assert_int_equal(p.next[s.evicted.item[0]], p.next[far]); /* ties are anybody's */
                p.held[s.evicted.item[0]] = false;
                p.n--;
            }
            if (fits || better) {
                p.held[id] = true;
                p.next[id] = next;
                p.n++;
            }
        }
        mr_shelf_done(&s);
    }
}

static void shelf_keeps_what_has_to_stay(void **state)
{
    (void)state;
    uint64_t capacity[3] = {0, 30, 20};
    struct mr_policy_world w = {
        .nodes = 1, .classes = 3, .capacity = capacity, .samples = IDS, .sample_bytes = 10, .skew = 5};
    struct mr_shelf s;
    mr_shelf_init(&s, &w, 0, true, UINT64_MAX);
    mr_shelf_begin(&s, 1);
    for (uint64_t id = 0; id < 5; id++) /* five fit, two of them in the second class */
        assert_int_equal(mr_shelf_keep(&s, id, 1000 + id, id < 4 ? 100 : 0), id < 3 ? 1 : 2);
    assert_int_equal(mr_shelf_keep(&s, 10, 2000, 0), MR_NOT_HELD); /* later than the only spare one */
    assert_int_equal(mr_shelf_keep(&s, 11, 2000, 50), 2);          /* has to stay: the spare one goes */
    assert_true(s.evicted.n == 1 && s.evicted.item[0] == 4);
    assert_int_equal(mr_shelf_keep(&s, 12, 20, 50), MR_NOT_HELD); /* nothing is spare any more */
    assert_int_equal(s.refused, 1);
    mr_shelf_begin(&s, 53); /* 11 is in its time of grace: as if used at 55 */
    assert_int_equal(mr_shelf_keep(&s, 13, 60, 0), MR_NOT_HELD);
    mr_shelf_begin(&s, 56);
    assert_int_equal(mr_shelf_keep(&s, 13, 60, 0), 2);
    assert_true(s.evicted.n == 1 && s.evicted.item[0] == 11);
    mr_shelf_forget(&s, 0);
    assert_int_equal(mr_shelf_room(&s, 10), 1);
    mr_shelf_done(&s);
    mr_shelf_init(&s, &w, 0, false, 4096); /* memory for few: refused as if there were no room */
    capacity[1] = 1000000;
    mr_shelf_done(&s);
    mr_shelf_init(&s, &w, 0, false, 4096);
    unsigned kept = 0;
    for (uint64_t id = 0; id < IDS; id++)
        kept += mr_shelf_keep(&s, id, MR_SHELF_FOREVER, MR_SHELF_FOREVER) != MR_NOT_HELD;
    assert_int_equal(kept, mr_shelf_most(false, 4096));
    mr_shelf_done(&s);
}

/* ---- homes ---- */

/* Bytes that fall to each node when all samples have been read once. */
static void homes_fit_unequal_nodes(void **state)
{
    (void)state;
    enum { NODES = 6, SAMPLES = 6000 };
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t capacity[2 * NODES] = {0}, sum = 0, fell[NODES] = {0}, held = 0;
        for (unsigned i = 0; i < NODES; i++)
            sum += capacity[2 * i + 1] = draw(seed, i, 2000) * 10;
        struct mr_schedule_params p = {.order = {.mode = MR_ORDER_CIPHER,
                                                 .samples = SAMPLES,
                                                 .seed = seed,
                                                 .world = NODES,
                                                 .shuffle_each_epoch = true},
                                       .position = draw(seed, 50, SAMPLES),
                                       .epochs = 3,
                                       .nodes = NODES,
                                       .local_batch = 1};
        struct mr_policy_world w = {.nodes = NODES,
                                    .classes = 2,
                                    .capacity = capacity,
                                    .samples = SAMPLES,
                                    .epochs = 3,
                                    .sample_bytes = 10,
                                    .total_bytes = 10 * SAMPLES};
        struct mr_homes_options o = {.classes = 2, .deal = true, .entries_max = UINT64_MAX / 4};
        struct mr_homes *h;
        assert_int_equal(mr_schedule_create(&p, &w.schedule, NULL), 0);
        assert_int_equal(mr_homes_create(&w, &o, &h, NULL), 0);
        for (uint64_t id = 0; id < SAMPLES; id++)
            for (uint32_t i = 0; i < NODES; i++)
                if (mr_homes_holds(h, i, id, mr_schedule_access(w.schedule, 2, 0, 0))) {
                    fell[i] += 10;
                    held += 10;
                }
        for (uint32_t i = 0; i < NODES; i++)
            assert_true(fell[i] <= capacity[2 * i + 1]);
        if ((double)held < 0.98 * (double)MR_MIN(sum, w.total_bytes))
            fail_msg("seed %d: %d of %d bytes are held", (int)seed, (int)held, (int)MR_MIN(sum, w.total_bytes));
        mr_homes_free(h);
        mr_schedule_free(w.schedule);
    }
}

/* An instance can remember every copy that the node with the most room holds, by either rule; small worlds take what
 * they always took. */
static void memory_is_enough_for_the_room(void **state)
{
    (void)state;
    for (uint64_t samples = 1000; samples <= 10000000000; samples *= 10)
        for (unsigned part = 1; part <= 8; part *= 2) {
            const uint64_t bytes = 5000, room = samples / part * bytes;
            const uint64_t capacity[] = {0, room / 3, 0, 0, room, 0, 0, room / 2, room / 4};
            struct mr_policy_world w = {
                .nodes = 3, .classes = 3, .capacity = capacity, .samples = samples, .total_bytes = samples * bytes};
            uint64_t memory = mr_policy_memory(&w);
            assert_true(memory >= 64 * MR_MIB && memory <= MR_MAX(64 * MR_MIB, 200 * (samples / part)));
            assert_true(mr_shelf_most(false, memory) >= samples / part);
            assert_true(mr_shelf_most(true, memory) >= samples / part);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_covers_all_time),       cmocka_unit_test(chain_at_its_ends),
        cmocka_unit_test(shelf_gives_up_the_farthest), cmocka_unit_test(shelf_keeps_what_has_to_stay),
        cmocka_unit_test(homes_fit_unequal_nodes),     cmocka_unit_test(memory_is_enough_for_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
