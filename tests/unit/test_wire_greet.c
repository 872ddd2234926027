/* Who is let in: the keyed hash, the greeting as bytes, and the exchange over TCP with strangers at its door, before and
 * while the ranks come. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "wire/wire.h"
#include "wire/wire_greet.h"

static const uint8_t key[MR_MAC_BYTES] = {1, 2, 3}, other_key[MR_MAC_BYTES] = {1, 2, 4};

/* ---- the keyed hash ---- */

/* Of the reference implementation: key 0, 1 ... 31, data 0, 1 ... n - 1. */
static void mac_is_that_of_the_reference(void **state)
{
    static const struct {
        size_t n;
        const char *hex;
    } rows[] = {{0, "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49"},
                {1, "40d15fee7c328830166ac3f918650f807e7e01e177258cdc0a39b11f598066f1"},
                {64, "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4"},
                {255, "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd"}};
    uint8_t k[MR_MAC_BYTES], data[255], out[MR_MAC_BYTES];
    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    memcpy(k, data, sizeof k);
    for (unsigned r = 0; r < MR_ARRAY_LEN(rows); r++)
        for (size_t piece = 1; piece < 130; piece += 43) {
            struct mr_mac m;
            char hex[65];
            mr_mac_init(&m, k);
            for (size_t at = 0; at < rows[r].n; at += piece)
                mr_mac_add(&m, data + at, MR_MIN(piece, rows[r].n - at));
            mr_mac_done(&m, out);
            for (unsigned i = 0; i < sizeof out; i++)
                snprintf(hex + 2 * (size_t)i, 3, "%02x", out[i]);
            assert_string_equal(hex, rows[r].hex);
        }
}

/* ---- the greeting ---- */

struct both {
    struct mr_greet_self a, b; /* initiator, responder */
    struct mr_greet ga, gb;
    uint8_t hello[MR_GREET_HELLO_BYTES], challenge[MR_GREET_CHALLENGE_BYTES], proof[MR_GREET_PROOF_BYTES];
};

static struct both pair_of(void)
{
    return (struct both){.a = {.key = key, .use = MR_GREET_WIRE, .rank = 1, .world = 4, .window = 7},
                         .b = {.key = key, .use = MR_GREET_WIRE, .rank = 2, .world = 4, .window = 9}};
}

/* How far it gets: 0 not even a challenge, 1 the initiator refuses, 2 the responder refuses, 3 both are content. */
static int greet(struct both *p)
{
    assert_true(mr_greet_begin(&p->a, &p->ga, 2, p->hello));
    if (!mr_greet_answer(&p->b, &p->gb, p->hello, sizeof p->hello, p->challenge))
        return 0;
    if (!mr_greet_prove(&p->a, &p->ga, p->challenge, sizeof p->challenge, p->proof))
        return 1;
    return mr_greet_accept(&p->b, &p->gb, p->proof, sizeof p->proof) ? 3 : 2;
}

static void both_sides_end_with_the_same(void **state)
{
    struct both p = pair_of(), q = pair_of();
    (void)state;
    assert_int_equal(greet(&p), 3);
    assert_true(p.ga.done && p.gb.done && p.ga.peer == 2 && p.gb.peer == 1 && p.ga.window == 9 && p.gb.window == 7);
    assert_memory_equal(p.ga.session, p.gb.session, MR_MAC_BYTES);
    assert_int_equal(greet(&q), 3);
    assert_memory_not_equal(p.ga.session, q.ga.session, MR_MAC_BYTES);
    for (size_t i = 0; i + 4 < sizeof p.proof; i++) /* nothing of the key is in any message */
        assert_memory_not_equal(p.proof + i, key, 4);
}

static void who_differs_is_refused(void **state)
{
    struct both p = pair_of();
    (void)state;
    p.a.key = other_key;
    assert_int_equal(greet(&p), 1); /* the initiator sees that the responder does not have its key */
    p = pair_of();
    p.a.data_set[3] = 1;
    assert_int_equal(greet(&p), 1);
    p = pair_of();
    p.a.world = 5;
    assert_int_equal(greet(&p), 0);
    p = pair_of();
    p.a.use = MR_GREET_EXCHANGE;
    assert_int_equal(greet(&p), 0);
    p = pair_of();
    p.a.rank = 2; /* the responder's own number */
    assert_int_equal(greet(&p), 0);
    p = pair_of();
    p.a.rank = 4;
    assert_int_equal(greet(&p), 0);
    p = pair_of();
    p.a.window = 0;
    assert_int_equal(greet(&p), 0);
    p = pair_of();
    p.b.rank = 3; /* not the one that was meant */
    assert_int_equal(greet(&p), 0);
}

/* An impostor that goes on all the same cannot make the proof, and gets nothing by sending back what it has. */
static void without_the_key_there_is_no_proof(void **state)
{
    struct both p = pair_of(), wrong = pair_of();
    uint8_t out[MR_GREET_CHALLENGE_BYTES], back[MR_GREET_PROOF_BYTES];
    (void)state;
    wrong.a.key = other_key;
    wrong.ga.begun = false;
    assert_true(mr_greet_begin(&wrong.a, &wrong.ga, 2, p.hello));
    assert_true(mr_greet_answer(&p.b, &p.gb, p.hello, sizeof p.hello, p.challenge));
    assert_false(mr_greet_prove(&wrong.a, &wrong.ga, p.challenge, sizeof p.challenge, p.proof));
    memcpy(back, p.hello, sizeof back); /* the responder's own proof as the initiator's */
    back[4] = MR_GREET_PROOF;
    memcpy(back + 32, p.challenge + 64, 32);
    assert_false(mr_greet_accept(&p.b, &p.gb, back, sizeof back));
    memset(back + 32, 0, 32);
    assert_false(mr_greet_accept(&p.b, &p.gb, back, sizeof back));
    assert_false(p.gb.done);
    /* One's own messages, sent back. */
    p = pair_of();
    assert_int_equal(greet(&p), 3);
    struct mr_greet fresh = {0};
    assert_false(mr_greet_answer(&p.a, &fresh, p.hello, sizeof p.hello, out));
    assert_false(mr_greet_answer(&p.b, &fresh, p.challenge, sizeof p.challenge, out));
    assert_false(mr_greet_prove(&p.b, &fresh, p.challenge, sizeof p.challenge, back));
}

/* A whole greeting, recorded: neither side takes the other's part of it again. */
static void a_replay_is_refused(void **state)
{
    struct both p = pair_of(), later = pair_of();
    uint8_t out[MR_GREET_CHALLENGE_BYTES];
    (void)state;
    assert_int_equal(greet(&p), 3);
    assert_true(mr_greet_answer(&later.b, &later.gb, p.hello, sizeof p.hello, out));
    assert_memory_not_equal(out, p.challenge, sizeof out);
    assert_false(mr_greet_accept(&later.b, &later.gb, p.proof, sizeof p.proof));
    assert_true(mr_greet_begin(&later.a, &later.ga, 2, later.hello));
    assert_false(mr_greet_prove(&later.a, &later.ga, p.challenge, sizeof p.challenge, later.proof));
}

/* Of every bit of every message. */
static void a_changed_message_is_refused(void **state)
{
    (void)state;
    for (unsigned m = 0; m < 3; m++) {
        size_t len = m == 1 ? MR_GREET_CHALLENGE_BYTES : MR_GREET_HELLO_BYTES;
        for (size_t bit = 0; bit < 8 * len; bit++) {
            struct both p = pair_of();
            uint8_t flip = (uint8_t)(1u << bit % 8);
            assert_true(mr_greet_begin(&p.a, &p.ga, 2, p.hello));
            if (m == 0)
                p.hello[bit / 8] ^= flip;
            bool going = mr_greet_answer(&p.b, &p.gb, p.hello, sizeof p.hello, p.challenge);
            if (m == 1)
                p.challenge[bit / 8] ^= flip;
            going = going && mr_greet_prove(&p.a, &p.ga, p.challenge, sizeof p.challenge, p.proof);
            bool unused = m == 2 && bit / 8 >= 24 && bit / 8 < 32;
            if (m == 2)
                p.proof[bit / 8] ^= flip;
            going = going && mr_greet_accept(&p.b, &p.gb, p.proof, sizeof p.proof);
            if (going != unused)
                fail_msg("bit %zu of message %u", bit, m + 1);
        }
    }
}

static void lengths_and_repeats_are_bounded(void **state)
{
    struct both p = pair_of();
    uint8_t again[MR_GREET_CHALLENGE_BYTES];
    (void)state;
    assert_int_equal(greet(&p), 3);
    for (size_t n = 0; n < sizeof p.hello; n++) {
        struct mr_greet fresh = {0};
        assert_false(mr_greet_answer(&p.b, &fresh, p.hello, n, again));
    }
    unsigned answers = 0;
    while (answers < 100 && mr_greet_answer(&p.b, &p.gb, p.hello, sizeof p.hello, again)) {
        assert_memory_equal(again, p.challenge, sizeof again);
        answers++;
    }
    assert_in_range(answers, 1, 20);
    assert_true(mr_greet_begin(&p.a, &p.ga, 2, p.hello)); /* the same HELLO */
    assert_memory_equal(p.hello, p.ga.hello, sizeof p.hello);
}

/* ---- the exchange over TCP ---- */

#define WORLD 3u

struct tcp_rank {
    struct mr_wire_tcp_params p;
    int rc;
    uint64_t all[WORLD];
    uint64_t took_ns;
    struct mr_error err;
};

static void *exchange(void *arg)
{
    struct tcp_rank *r = arg;
    struct mr_wire_tcp *t = NULL;
    uint64_t mine = 100 + r->p.rank, start = mr_now_ns();
    r->rc = mr_wire_tcp_open(&r->p, &t, &r->err);
    if (!r->rc)
        r->rc = mr_wire_exchange_tcp(t, &mine, sizeof mine, r->all, &r->err);
    r->took_ns = mr_now_ns() - start;
    mr_wire_tcp_close(t);
    return NULL;
}

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    getsockname(fd, (struct sockaddr *)&a, &len);
    close(fd);
    return (uint16_t)(ntohs(a.sin_port) - 1);
}

static struct tcp_rank rank_at(uint32_t rank, uint16_t port, const uint8_t *with, uint64_t timeout_ms)
{
    return (struct tcp_rank){.p = {.host = "127.0.0.1",
                                   .port = port,
                                   .rank = rank,
                                   .world = WORLD,
                                   .key = with,
                                   .timeout_ns = timeout_ms * MR_NS_PER_MS}};
}

static int connect_to(uint16_t port, unsigned tries)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)(port + 1)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (unsigned i = 0; i < tries; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

/* Bytes that came before the other side hung up or 2 s were over. */
static size_t read_all(int fd, uint8_t *buf, size_t cap)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n < cap && poll(&p, 1, 2000) > 0) {
        ssize_t got = recv(fd, buf + n, cap - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    return n;
}

static void finish(struct tcp_rank *r, pthread_t *thread, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < n; i++) {
        if (r[i].rc)
            fail_msg("rank %u: %s", r[i].p.rank, r[i].err.message);
        for (uint64_t k = 0; k < WORLD; k++)
            assert_int_equal(r[i].all[k], 100 + k);
    }
}

/* The one who came first as rank 1 was rank 1, and was given whatever the ranks exchange. */
static void an_impostor_without_the_key_gets_nothing(void **state)
{
    uint16_t port = free_port();
    struct tcp_rank r[WORLD], impostor = rank_at(1, port, other_key, 600);
    pthread_t thread[WORLD], its;
    uint8_t heard[512], hello[MR_GREET_HELLO_BYTES];
    (void)state;
    for (uint32_t i = 0; i < WORLD; i++)
        r[i] = rank_at(i, port, key, 20000);
    pthread_create(&thread[0], NULL, exchange, &r[0]);
    int fd = connect_to(port, 500); /* knows the protocol, and that rank 1 is missing */
    struct mr_greet_self self = {.key = other_key, .use = MR_GREET_EXCHANGE, .rank = 1, .world = WORLD};
    struct mr_greet g = {0};
    assert_true(mr_greet_begin(&self, &g, 0, hello));
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, heard, MR_GREET_CHALLENGE_BYTES, MSG_WAITALL), MR_GREET_CHALLENGE_BYTES);
    hello[4] = MR_GREET_PROOF;
    memcpy(hello + 32, heard + 64, 32);
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(read_all(fd, heard, sizeof heard), 0); /* hung up, without a byte */
    close(fd);
    pthread_create(&its, NULL, exchange, &impostor);
    pthread_join(its, NULL);
    assert_int_equal(impostor.rc, MR_E_TIMEOUT);
    assert_non_null(strstr(impostor.err.hint, "key"));
    for (unsigned i = 1; i < WORLD; i++)
        pthread_create(&thread[i], NULL, exchange, &r[i]);
    finish(r, thread, WORLD);
}

/* Records what rank 1 says through a relay, then says it again to a listener of the same job. */
static void a_recorded_rank_is_refused(void **state)
{
    uint8_t said[2 * MR_GREET_HELLO_BYTES + 64], heard[512];
    uint16_t port = free_port();
    struct tcp_rank r[WORLD];
    pthread_t thread[WORLD];
    struct mr_greet_self root = {.key = key, .use = MR_GREET_EXCHANGE, .rank = 0, .world = WORLD},
                         one = {.key = key, .use = MR_GREET_EXCHANGE, .rank = 1, .world = WORLD};
    struct mr_greet gr = {0}, g1 = {0};
    (void)state;
    assert_true(mr_greet_begin(&one, &g1, 0, said));
    assert_true(mr_greet_answer(&root, &gr, said, MR_GREET_HELLO_BYTES, heard));
    assert_true(mr_greet_prove(&one, &g1, heard, MR_GREET_CHALLENGE_BYTES, said + MR_GREET_HELLO_BYTES));
    assert_true(mr_greet_accept(&root, &gr, said + MR_GREET_HELLO_BYTES, MR_GREET_PROOF_BYTES));
    for (uint32_t i = 0; i < WORLD; i++)
        r[i] = rank_at(i, port, key, 20000);
    pthread_create(&thread[0], NULL, exchange, &r[0]);
    int fd = connect_to(port, 500);
    assert_int_equal(send(fd, said, 2 * MR_GREET_HELLO_BYTES, MSG_NOSIGNAL), 2 * MR_GREET_HELLO_BYTES);
    assert_int_equal(read_all(fd, heard, sizeof heard), MR_GREET_CHALLENGE_BYTES); /* a new challenge, then the end */
    close(fd);
    for (unsigned i = 1; i < WORLD; i++)
        pthread_create(&thread[i], NULL, exchange, &r[i]);
    finish(r, thread, WORLD);
}

/* More connections than there are places, of which some say nothing, some half a HELLO byte by byte, some nonsense. */
static atomic_bool crowd_leaves;
static void *crowd(void *arg)
{
    uint16_t port = *(uint16_t *)arg;
    enum { CROWD = 400 };
    int fd[CROWD];
    for (unsigned i = 0; i < CROWD; i++)
        fd[i] = connect_to(port, i ? 1 : 500);
    for (unsigned round = 0; !atomic_load(&crowd_leaves); round++) {
        for (unsigned i = 0; i < CROWD; i++)
            if (i % 3 == 1)
                send(fd[i], "MRWI\1\1\2\0" + round % 8, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            else if (i % 3 == 2)
                send(fd[i], "GET / HTTP/1.1\r\nHost: somebody-else.example\r\nAccept: anything, really\r\n\r\n", 73,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
        usleep(20000);
    }
    for (unsigned i = 0; i < CROWD; i++)
        close(fd[i]);
    return NULL;
}

static void a_crowd_at_the_door_delays_nobody(void **state)
{
    uint16_t port = free_port();
    struct tcp_rank r[WORLD];
    pthread_t thread[WORLD], strangers;
    (void)state;
    for (uint32_t i = 0; i < WORLD; i++)
        r[i] = rank_at(i, port, key, 20000);
    atomic_store(&crowd_leaves, false);
    pthread_create(&thread[0], NULL, exchange, &r[0]);
    pthread_create(&strangers, NULL, crowd, &port);
    usleep(300000);
    for (unsigned i = 1; i < WORLD; i++)
        pthread_create(&thread[i], NULL, exchange, &r[i]);
    finish(r, thread, WORLD);
    atomic_store(&crowd_leaves, true);
    pthread_join(strangers, NULL);
    for (unsigned i = 1; i < WORLD; i++)
        assert_in_range(r[i].took_ns, 0, 4 * MR_NS_PER_S);
}

/* Somebody who listens where rank 0 would, takes connections and says nothing, or the wrong thing. */
static void a_false_rank_0_costs_a_moment(void **state)
{
    uint16_t port = free_port();
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)(port + 1)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct tcp_rank r[WORLD];
    pthread_t thread[WORLD];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    (void)state;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 50), 0);
    for (uint32_t i = 0; i < WORLD; i++) {
        r[i] = rank_at(i, port, key, 20000);
        pthread_create(&thread[i], NULL, exchange, &r[i]);
    }
    finish(r, thread, WORLD);
    for (unsigned i = 1; i < WORLD; i++)
        assert_in_range(r[i].took_ns, 0, 6 * MR_NS_PER_S);
    close(fd);
}

static void without_a_key_there_is_no_exchange(void **state)
{
    struct tcp_rank r = rank_at(0, 20000, NULL, 100);
    (void)state;
    exchange(&r);
    assert_int_equal(r.rc, MR_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mac_is_that_of_the_reference),
        cmocka_unit_test(both_sides_end_with_the_same),
        cmocka_unit_test(who_differs_is_refused),
        cmocka_unit_test(without_the_key_there_is_no_proof),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(a_changed_message_is_refused),
        cmocka_unit_test(lengths_and_repeats_are_bounded),
        cmocka_unit_test(an_impostor_without_the_key_gets_nothing),
        cmocka_unit_test(a_recorded_rank_is_refused),
        cmocka_unit_test(a_crowd_at_the_door_delays_nobody),
        cmocka_unit_test(a_false_rank_0_costs_a_moment),
        cmocka_unit_test(without_a_key_there_is_no_exchange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
