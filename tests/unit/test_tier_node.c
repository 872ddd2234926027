/* Properties of finding nodes and handing over their segments: threads and forked processes of one machine share one,
 * whatever a rank fails with is everybody's failure, and strangers get nothing. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/common.h"
#include "comm/comm.h"
#include "tier/tier_node.h"
#include "wire/wire.h"

#define WORLD 5u

struct rank {
    struct mr_comm *comm;
    uint32_t per_node, fails; /* rank that fails, + 1 */
    int code;
    struct mr_error err;
    struct mr_tier_node node;
    uint64_t capacity[WORLD];
    bool saw_mark;
    unsigned exchanges;
    int stranger; /* a connection of somebody who does not know the secret */
};

static bool stranger_knocks;

/* At the door with this name, which everybody on the machine can see, as rank 1. */
static int knock(const uint8_t name[16])
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = (size_t)snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "millrace-tier-");
    for (unsigned k = 0; k < 16; k++)
        len += (size_t)snprintf(a.sun_path + 1 + len, sizeof a.sun_path - 1 - len, "%02x", name[k]);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    uint8_t guess[36] = {[32] = 1};
    if (connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) != 0 ||
        send(fd, guess, sizeof guess, MSG_NOSIGNAL) != sizeof guess) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The second exchange tells the others where the door is; it is open by then, so a stranger can be the first. */
static int exchange_and_knock(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct rank *k = ctx;
    if (++k->exchanges == 2 && k->comm->rank == 0 && stranger_knocks)
        k->stranger = knock((const uint8_t *)mine + sizeof(int32_t));
    return mr_comm_exchange(k->comm, mine, len, all, err);
}

static struct mr_segment *make(const struct rank *k)
{
    struct mr_segment_params p = {.ranks = k->node.local_ranks, .depth = 8, .data_bytes = 65536};
    struct mr_segment *s = NULL;
    return mr_segment_create(&p, &s, NULL) == 0 ? s : NULL;
}

/* Finds its node, shares the segment, sees what the leader wrote there. */
static void *be_rank(void *arg)
{
    struct rank *k = arg;
    struct mr_tier_params p = {.order = {.rank = k->comm->rank, .world = k->comm->world},
                               .exchange = exchange_and_knock,
                               .exchange_ctx = k,
                               .ranks_per_node = k->per_node};
    struct mr_segment *s = NULL;
    k->code = mr_tier_node_find(&p, &k->node, &k->err);
    if (k->code != 0)
        return NULL;
    int code = 0;
    if (k->fails == k->comm->rank + 1) {
        code = mr_error_plain(&k->err, -ENOMEM, "no memory on rank %u", k->comm->rank);
        mr_error_hint(&k->err, "buy some");
    } else if (k->node.local_rank == 0) {
        s = make(k);
        *(uint64_t *)mr_segment_shared(s) = 4711 + k->node.node;
    }
    k->code = mr_tier_node_share(&k->node, code, &s, &k->err);
    k->saw_mark = s && *(uint64_t *)mr_segment_shared(s) == 4711 + k->node.node;
    if (k->code == 0) {
        uint64_t mine = 100 + k->comm->rank;
        k->code = mr_tier_node_gather(&k->node, &mine, sizeof mine, k->capacity, &k->err);
    }
    if (k->code == 0)
        k->code = mr_tier_node_agree(&k->node, 0, &k->err); /* nobody has closed before all have looked */
    mr_segment_close(s);
    return NULL;
}

static void run_threads(struct rank *k, uint32_t per_node, uint32_t fails)
{
    struct mr_comm *comm[WORLD];
    pthread_t t[WORLD];
    assert_int_equal(mr_comm_threads_open(WORLD, comm, NULL), 0);
    for (uint32_t r = 0; r < WORLD; r++) {
        k[r] = (struct rank){.comm = comm[r], .per_node = per_node, .fails = fails, .stranger = -1};
        assert_int_equal(pthread_create(&t[r], NULL, be_rank, &k[r]), 0);
    }
    for (uint32_t r = 0; r < WORLD; r++)
        pthread_join(t[r], NULL);
    for (uint32_t r = 0; r < WORLD; r++)
        mr_comm_close(comm[r]);
}

static void threads_share_the_memory_of_their_node(void **state)
{
    (void)state;
    for (uint32_t per_node = 0; per_node <= WORLD; per_node++) {
        struct rank k[WORLD];
        uint32_t each = per_node ? per_node : WORLD;
        run_threads(k, per_node, 0);
        for (uint32_t r = 0; r < WORLD; r++) {
            const struct mr_tier_node *n = &k[r].node;
            assert_int_equal(k[r].code, 0);
            assert_true(k[r].saw_mark);
            assert_int_equal(n->nodes, (WORLD + each - 1) / each);
            assert_int_equal(n->node, r / each);
            assert_int_equal(n->local_rank, r % each);
            assert_int_equal(n->first_rank[n->node] + n->local_rank, r);
            assert_int_equal(n->first_rank[n->nodes], WORLD);
            assert_int_equal(n->local_ranks, n->first_rank[n->node + 1] - n->first_rank[n->node]);
            for (uint32_t d = 0; d < n->nodes; d++)
                assert_int_equal(k[r].capacity[d], 100 + n->first_rank[d]);
            mr_tier_node_done(&k[r].node);
        }
    }
}

static void the_failure_of_one_rank_is_everybodys(void **state)
{
    (void)state;
    for (uint32_t fails = 1; fails <= WORLD; fails++) {
        struct rank k[WORLD];
        char text[64];
        snprintf(text, sizeof text, "no memory on rank %u", fails - 1);
        run_threads(k, 3, fails);
        for (uint32_t r = 0; r < WORLD; r++) {
            assert_int_equal(k[r].code, -ENOMEM);
            assert_string_equal(k[r].err.message, text);
            assert_string_equal(k[r].err.hint, "buy some");
            mr_tier_node_done(&k[r].node);
        }
    }
}

static void forked_ranks_share_the_memory_of_their_node(void **state)
{
    (void)state;
    pid_t pid = fork(); /* the ranks that fork end there, not in this program */
    if (pid == 0) {
        struct rank k = {.per_node = 2};
        if (mr_comm_open(WORLD, 1, &k.comm, NULL) != 0)
            _exit(2);
        be_rank(&k);
        bool good = k.code == 0 && k.saw_mark;
        uint64_t bad = !good;
        if (mr_comm_allreduce_u64(k.comm, &bad, 1, MR_COMM_SUM, NULL) != 0)
            bad = 99;
        mr_comm_close(k.comm);
        _exit((int)bad);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int alternate(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    (void)err;
    for (unsigned r = 0; r < 3; r++)
        memcpy((uint8_t *)all + r * len, mine, len);
    ((uint8_t *)all)[len * 1]++; /* rank 1 runs on a machine with another name */
    *(unsigned *)ctx += 1;
    return 0;
}

static void ranks_of_a_node_that_do_not_follow_each_other_are_refused(void **state)
{
    (void)state;
    unsigned calls = 0;
    struct mr_error err;
    struct mr_tier_node n;
    struct mr_tier_params p = {.order = {.rank = 0, .world = 3}, .exchange = alternate, .exchange_ctx = &calls};
    assert_int_equal(mr_tier_node_find(&p, &n, &err), MR_E_CONFIG);
    assert_non_null(strstr(err.message, "ranks 0 and 2 share a machine"));
    assert_non_null(strstr(err.hint, "--map-by slot"));
    p.exchange = NULL;
    assert_int_equal(mr_tier_node_find(&p, &n, &err), MR_E_USAGE);
    p.order.world = 1;
    assert_int_equal(mr_tier_node_find(&p, &n, &err), 0);
    assert_int_equal(n.nodes, 1);
    mr_tier_node_done(&n);
}

static void who_does_not_know_the_secret_gets_nothing_and_disturbs_nobody(void **state)
{
    (void)state;
    struct rank k[WORLD];
    uint8_t answer;
    stranger_knocks = true;
    run_threads(k, 0, 0);
    stranger_knocks = false;
    assert_true(k[0].stranger >= 0);
    assert_int_equal(recv(k[0].stranger, &answer, 1, MSG_DONTWAIT), 0); /* closed, without a word */
    close(k[0].stranger);
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(k[r].code, 0);
        assert_true(k[r].saw_mark);
        mr_tier_node_done(&k[r].node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_the_memory_of_their_node),
        cmocka_unit_test(the_failure_of_one_rank_is_everybodys),
        cmocka_unit_test(forked_ranks_share_the_memory_of_their_node),
        cmocka_unit_test(ranks_of_a_node_that_do_not_follow_each_other_are_refused),
        cmocka_unit_test(who_does_not_know_the_secret_gets_nothing_and_disturbs_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
