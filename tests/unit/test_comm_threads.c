/* Ranks that are threads: collectives give the same answer on every rank, whatever the number of ranks, and nobody
 * waits for a rank that failed or left. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "comm/comm.h"

#define WORLD_MAX 7u

struct member {
    struct mr_comm *c;
    int mode; /* 0: all collectives; 1: rank 1 fails; 2: rank 1 leaves */
    int rc;
    unsigned wrong;
    char message[256];
    pthread_t id;
};

static void collectives(struct member *m)
{
    struct mr_comm *c = m->c;
    struct mr_error e;
    uint32_t w = c->world;
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t v[3] = {c->rank + round, c->rank + round, c->rank + round}, all[WORLD_MAX] = {0};
        double d[2] = {c->rank, -(double)c->rank};
        m->wrong += mr_comm_allreduce_u64(c, &v[0], 1, MR_COMM_SUM, &e) || v[0] != w * (w - 1) / 2 + w * round;
        m->wrong += mr_comm_allreduce_u64(c, &v[1], 1, MR_COMM_MIN, &e) || v[1] != round;
        m->wrong += mr_comm_allreduce_u64(c, &v[2], 1, MR_COMM_MAX, &e) || v[2] != round + w - 1;
        m->wrong += mr_comm_allreduce_f64(c, d, 2, MR_COMM_SUM, &e) || d[0] != -d[1];
        uint64_t root = round % w, word = c->rank == root ? round * 7 : 0;
        m->wrong += mr_comm_bcast(c, &word, sizeof word, (uint32_t)root, &e) || word != round * 7;
        word = c->rank * 11 + round;
        m->wrong += mr_comm_gather(c, &word, sizeof word, c->rank == root ? all : NULL, (uint32_t)root, &e) != 0;
        for (uint32_t r = 0; c->rank == root && r < w; r++)
            m->wrong += all[r] != r * 11 + round;
        if (w > 1 && c->rank == 0)
            m->wrong += mr_comm_send(c, &round, sizeof round, 1, &e) != 0;
        if (c->rank == 1)
            m->wrong += mr_comm_recv(c, &word, sizeof word, 0, &e) || word != round;
        m->wrong += mr_comm_agree(c, round == 50 && c->rank == w - 1 ? mr_error_plain(&e, MR_E_FORMAT, "bad") : 0,
                                  &e) != (round == 50 ? MR_E_FORMAT : 0);
    }
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct mr_error e = {0}, why;
    if (m->mode == 0)
        collectives(m);
    else if (m->c->rank == 1 && m->mode == 1)
        mr_comm_fail(m->c, (mr_error_plain(&why, MR_E_FORMAT, "rank 1 has no more data"), &why));
    else if (m->c->rank != 1)
        m->rc = mr_comm_barrier(m->c, &e);
    snprintf(m->message, sizeof m->message, "%.200s", e.message);
    mr_comm_close(m->c);
    return NULL;
}

static void run_team(uint32_t world, int mode, struct member *m)
{
    struct mr_comm *c[WORLD_MAX];
    struct mr_error e;
    assert_int_equal(mr_comm_threads_open(world, c, &e), 0);
    for (uint32_t r = 0; r < world; r++) {
        m[r] = (struct member){.c = c[r], .mode = mode};
        assert_int_equal(c[r]->rank, r);
        assert_false(mr_comm_is_forked(c[r]) || mr_comm_is_launched(c[r]));
    }
    for (uint32_t r = 0; r < world; r++)
        assert_int_equal(pthread_create(&m[r].id, NULL, member_main, &m[r]), 0);
    for (uint32_t r = 0; r < world; r++)
        pthread_join(m[r].id, NULL);
}

static void collectives_agree_on_every_rank(void **state)
{
    struct member m[WORLD_MAX];
    (void)state;
    for (uint32_t world = 1; world <= WORLD_MAX; world += world == 3 ? 4 : 1) {
        run_team(world, 0, m);
        for (uint32_t r = 0; r < world; r++)
            assert_int_equal(m[r].wrong, 0);
    }
}

static void nobody_waits_for_a_rank_that_failed_or_left(void **state)
{
    struct member m[WORLD_MAX];
    (void)state;
    for (int mode = 1; mode <= 2; mode++) {
        run_team(3, mode, m);
        assert_int_equal(m[0].rc, MR_E_PEER);
        assert_int_equal(m[2].rc, MR_E_PEER);
        assert_non_null(strstr(m[0].message, mode == 1 ? "rank 1 has no more data" : "rank"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_agree_on_every_rank),
        cmocka_unit_test(nobody_waits_for_a_rank_that_failed_or_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
