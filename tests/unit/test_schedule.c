/* The schedule against the order itself, sought and read rank by rank: every access of every epoch, over random modes,
 * worlds, positions, batches and limits; and its inverse against a walk over all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include <millrace/schedule.h>

static uint64_t seed;

static uint64_t draw(uint64_t what, uint64_t below)
{
    return mr_rng_below(mr_rng_at(seed, MR_RNG_TEST, what), below);
}

static struct mr_schedule_params random_params(uint32_t *first_rank)
{
    struct mr_schedule_params p = {.epochs = draw(1, 4) + 1, .local_batch = draw(2, 5) + 1, .whole_steps = draw(3, 2)};
    p.nodes = (uint32_t)draw(4, 4) + 1;
    uint32_t each = (uint32_t)draw(5, 3) + 1, world = p.nodes * each;
    if (draw(6, 3) == 0) { /* unequal nodes */
        world = first_rank[0] = 0;
        for (uint32_t n = 0; n < p.nodes; n++)
            first_rank[n + 1] = world += (uint32_t)draw(20 + n, 3) + 1;
        p.first_rank = first_rank;
    }
    p.order = (struct mr_order_params){.mode = (enum mr_order_mode)(1 + draw(7, 6)),
                                       .samples = world + draw(8, 200),
                                       .seed = seed,
                                       .epoch = draw(9, 5),
                                       .world = world,
                                       .drop_last = draw(10, 2),
                                       .shuffle_each_epoch = draw(11, 8) != 0,
                                       .window = 5,
                                       .samples_per_file = 7};
    p.rank_max = draw(12, 3) ? 0 : draw(13, 30) + 1;
    p.table_bytes = draw(14, 2) ? 0 : 1; /* no limit, or two epochs at hand */
    uint64_t rows = (p.order.samples + world - 1) / world;
    if (draw(15, 2))
        p.position = p.order.mode >= MR_ORDER_SHARD ? draw(16, rows) * world : draw(16, p.order.samples);
    return p;
}

/* first[id] of one epoch, from the order alone. */
static void walk(const struct mr_schedule_params *p, const struct mr_schedule *s, struct mr_schedule *lazy,
                 uint64_t epoch, uint64_t *first)
{
    struct mr_order_params op = p->order;
    struct mr_order *o;
    op.epoch = epoch;
    assert_int_equal(mr_order_create(&op, &o, NULL), 0);
    uint64_t start = epoch == p->order.epoch ? p->position : 0, rows;
    assert_int_equal(mr_order_seek(o, start, NULL), 0);
    rows = mr_order_rank_len(o);
    if (p->rank_max)
        rows = MR_MIN(rows, p->rank_max - MR_MIN(p->rank_max, start / op.world));
    if (p->whole_steps)
        rows -= rows % p->local_batch;
    assert_int_equal(mr_schedule_rows(s, epoch), rows);
    memset(first, 0xff, op.samples * sizeof(*first));
    for (uint64_t k = 0; k < rows; k++)
        for (uint32_t r = 0; r < op.world; r++) {
            uint64_t id, have, access = mr_schedule_access(s, epoch, k, r);
            assert_int_equal(mr_order_get_for(o, r, k, &id, 1), 1);
            assert_int_equal(mr_schedule_ids(lazy, epoch, r, k, &have, 1, NULL), 1);
            assert_true(id == have);
            assert_true(mr_schedule_epoch_of(s, access) == epoch && mr_schedule_row_of(s, access) == k);
            assert_int_equal(mr_schedule_rank_of(s, access), r);
            uint32_t node = mr_schedule_node_of(s, access);
            assert_true(mr_schedule_first_rank(s, node) <= r && r < mr_schedule_first_rank(s, node + 1));
            if (first[id] == MR_NO_ACCESS)
                first[id] = access;
            assert_true(first[id] <= access); /* numbers ascend in the order of reading */
        }
    uint64_t past;
    assert_int_equal(mr_schedule_ids(lazy, epoch, 0, rows, &past, 1, NULL), 0);
    mr_order_free(o);
}

static void schedule_equals_the_order_and_its_inverse(void **state)
{
    (void)state;
    for (seed = 1; seed <= 300; seed++) {
        uint32_t first_rank[8];
        struct mr_schedule_params p = random_params(first_rank);
        struct mr_schedule *s;
        struct mr_error err = {0};
        if (mr_schedule_create(&p, &s, &err))
            fail_msg("seed %d: %s", (int)seed, err.message);
        uint64_t *first = malloc(p.order.samples * sizeof(*first)), *have = malloc(p.order.samples * sizeof(*have)),
                 *ids = malloc(p.order.samples * sizeof(*ids));
        for (uint64_t i = 0; i < p.order.samples; i++)
            ids[i] = i;
        for (unsigned round = 0; round < 2; round++) /* epochs evicted and built again */
            for (uint64_t e = mr_schedule_first_epoch(s); e <= mr_schedule_last_epoch(s); e++) {
                walk(&p, s, s, e, first);
                assert_int_equal(mr_schedule_find(s, e, ids, have, p.order.samples, NULL), 0);
                for (uint64_t i = 0; i < p.order.samples; i++)
                    if (first[i] != have[i])
                        fail_msg("seed %d, mode %d, epoch %d, sample %d: found at %lld, read at %lld", (int)seed,
                                 (int)p.order.mode, (int)e, (int)i, (long long)have[i], (long long)first[i]);
            }
        free(first);
        free(have);
        free(ids);
        mr_schedule_free(s);
    }
}

static void impossible_schedules_are_refused(void **state)
{
    (void)state;
    struct mr_schedule_params good = {.order = {.mode = MR_ORDER_CIPHER, .samples = 10, .world = 4},
                                      .epochs = 1,
                                      .nodes = 2,
                                      .local_batch = 1},
                              p = good;
    struct mr_schedule *s = NULL;
    const uint32_t bad[] = {0, 3, 3};
    assert_int_equal(mr_schedule_create(&good, &s, NULL), 0);
    mr_schedule_free(s);
    p.nodes = 3;
    assert_int_equal(mr_schedule_create(&p, &s, NULL), MR_E_USAGE);
    p = good;
    p.first_rank = bad;
    assert_int_equal(mr_schedule_create(&p, &s, NULL), MR_E_USAGE);
    p = good;
    p.epochs = 0;
    assert_int_equal(mr_schedule_create(&p, &s, NULL), MR_E_USAGE);
    p = good;
    p.position = 100;
    assert_int_equal(mr_schedule_create(&p, &s, NULL), MR_E_USAGE);
    p = good;
    p.order.mode = MR_ORDER_BUFFER; /* no window */
    struct mr_error err = {0};
    assert_int_equal(mr_schedule_create(&p, &s, &err), MR_E_USAGE);
    mr_schedule_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_equals_the_order_and_its_inverse),
        cmocka_unit_test(impossible_schedules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
