/* The wire inside one process: two or three nodes that reach each other over loopback. What goes wrong on purpose (the
 * fault shim) is done at random messages, 20 times here and 500 times with MR_TEST_FULL=1.
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "amount.h"
#include "base/clock.h"
#include "base/common.h"
#include "comm/comm.h"
#include "wire/wire_fault.h"
#include "wire/wire_frame.h"
#include "wire/wire_greet.h"
#include "wire_testlib.h"

#define NODES 2

static const struct mr_wire_params defaults = {
    .serve = wire_source_serve,
    .release = wire_source_release,
    .transports = "tcp",
    .devices = "lo",
};

/* What the exchange carried last, so that a stranger can use the addresses. */
static uint8_t captured[2][NODES * 4096];
static size_t captured_len[2];
static unsigned captured_rounds;

static int capture(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct mr_comm *c = ctx;
    int rc = mr_comm_exchange(ctx, mine, len, all, err);
    if (rc == 0 && c->rank == 0 && len <= 4096) {
        memcpy(captured[captured_rounds % 2], all, len * NODES);
        captured_len[captured_rounds++ % 2] = len;
    }
    return rc;
}

struct node {
    struct mr_comm *comm;
    struct mr_wire_params p;
    struct mr_wire *wire;
    struct wire_source source;
    struct mr_error err;
    int rc;
};

static void *open_node(void *arg)
{
    struct node *n = arg;
    n->p.rank = n->comm->rank;
    n->p.world = n->comm->world;
    n->p.exchange = capture;
    n->p.exchange_ctx = n->comm;
    n->p.serve_ctx = &n->source;
    n->rc = mr_wire_open(&n->p, &n->wire, &n->err);
    mr_comm_close(n->comm);
    return NULL;
}

static void open_nodes(struct node n[NODES])
{
    struct mr_comm *comm[NODES];
    pthread_t thread[NODES];
    captured_rounds = 0;
    assert_int_equal(mr_comm_threads_open(NODES, comm, NULL), 0);
    for (unsigned i = 0; i < NODES; i++) {
        n[i].comm = comm[i];
        pthread_create(&thread[i], NULL, open_node, &n[i]);
    }
    for (unsigned i = 0; i < NODES; i++)
        pthread_join(thread[i], NULL);
}

static void open_pair(struct node n[NODES], const struct mr_wire_params *p)
{
    memset(n, 0, NODES * sizeof(*n));
    for (unsigned i = 0; i < NODES; i++)
        n[i].p = p ? *p : defaults;
    open_nodes(n);
    for (unsigned i = 0; i < NODES; i++)
        if (n[i].rc)
            fail_msg("node %u: %s", i, n[i].err.message);
}

static void close_pair(struct node n[NODES])
{
    for (unsigned i = 0; i < NODES; i++)
        mr_wire_close(n[i].wire);
    for (unsigned i = 0; i < NODES; i++)
        assert_int_equal(n[i].source.pinned, n[i].source.released);
}

static struct wire_ask new_group(void)
{
    return (struct wire_ask){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
}

static uint64_t in_ms(uint64_t ms)
{
    return mr_now_ns() + ms * MR_NS_PER_MS;
}

/* Asks once and waits; the status, or the error of the request. */
static int ask(struct mr_wire *w, uint32_t peer, uint64_t id, size_t cap, uint64_t ms)
{
    struct wire_ask g = new_group();
    struct wire_one o = {.group = &g, .id = id, .bytes = malloc(cap + 1)};
    o.bytes[cap] = 0x5a;
    int rc = wire_one_start(w, peer, &o, cap, in_ms(ms));
    if (rc == 0) {
        wire_ask_wait(&g, 0);
        rc = (int)o.status;
        assert_int_equal(o.ends, 1);
    }
    if (rc == MR_WIRE_OK)
        assert_true(wire_right(o.bytes, o.len, id));
    assert_int_equal(o.bytes[cap], 0x5a);
    free(o.bytes);
    return rc;
}

static void wire_moves_samples_of_every_size(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 8192, 131072, 262143, 262144, 1000001};
    struct node n[NODES];
    (void)state;
    open_pair(n, NULL);
    for (uint64_t i = 0; i < MR_ARRAY_LEN(sizes); i++)
        for (uint32_t from = 0; from < NODES; from++) {
            assert_int_equal(ask(n[from].wire, 1 - from, i << 32 | sizes[i], sizes[i], 5000), MR_WIRE_OK);
            assert_int_equal(ask(n[from].wire, 1 - from, i << 32 | sizes[i], sizes[i] + 10, 5000), MR_WIRE_OK);
            if (sizes[i])
                assert_int_equal(ask(n[from].wire, 1 - from, i << 32 | sizes[i], sizes[i] - 1, 5000), MR_WIRE_TOO_LONG);
        }
    assert_int_equal(ask(n[0].wire, 1, WIRE_ID_LATER | 5, 100, 5000), MR_WIRE_NOT_YET);
    assert_int_equal(ask(n[0].wire, 1, WIRE_ID_NOT | 5, 100, 5000), MR_WIRE_NO);
    assert_int_equal(ask(n[0].wire, 0, 5, 100, 5000), MR_E_USAGE);
    assert_int_equal(ask(n[0].wire, 2, 5, 100, 5000), MR_E_USAGE);
    assert_int_equal(ask(n[0].wire, 1, 5, 100, 0), MR_E_TIMEOUT);
    close_pair(n);
}

static void wire_refuses_another_data_set(void **state)
{
    struct node n[NODES] = {{.p = defaults}, {.p = defaults}};
    (void)state;
    n[1].p.data_set[3] = 1;
    open_nodes(n);
    assert_int_equal(n[0].rc, MR_E_CONFIG);
    assert_int_equal(n[1].rc, MR_E_CONFIG);
    assert_non_null(strstr(n[0].err.message, "node 1 has opened another data set"));
}

/* 1,000 in flight: the 1,025th is refused, memory stays what it was, everything arrives. */
static void wire_holds_a_thousand_requests_in_bounded_memory(void **state)
{
    enum { N = 1000, SIZE = 20000, ROUNDS = 4 };
    struct node n[NODES];
    struct wire_ask g = new_group();
    struct wire_one *o = calloc(N, sizeof(*o));
    uint8_t *bytes = malloc((size_t)N * SIZE);
    size_t after_first = 0;
    (void)state;
    struct mr_wire_params p = defaults;
    p.slots = N;
    open_pair(n, &p);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < N; i++) {
            o[i] = (struct wire_one){.group = &g, .id = i << 32 | SIZE, .bytes = bytes + i * SIZE};
            while (wire_one_start(n[0].wire, 1, &o[i], SIZE, in_ms(20000)) == -EAGAIN)
                assert_int_equal(mr_wire_wait_room(n[0].wire, in_ms(20000)), 0);
        }
        wire_ask_wait(&g, 0);
        for (uint64_t i = 0; i < N; i++)
            assert_true(o[i].ends == 1 && o[i].status == MR_WIRE_OK && wire_right(o[i].bytes, o[i].len, o[i].id));
        size_t now = mallinfo2().uordblks;
        if (round == 0)
            after_first = now;
        assert_true(now < after_first + 4 * MR_MIB);
    }
    close_pair(n);
    free(bytes);
    free(o);
}

/* All slots taken: -EAGAIN, and wait_room waits. The peer is made slow, so that slots stay taken. */
static void wire_pushes_back(void **state)
{
    struct node n[NODES];
    struct wire_ask g = new_group();
    struct wire_one o[8];
    uint8_t bytes[8][100];
    struct mr_wire_fault slow = {.kind = MR_WIRE_FAULT_SLOW, .at = 0, .delay_ns = 200 * MR_NS_PER_MS};
    (void)state;
    memset(n, 0, sizeof(n));
    n[0].p = n[1].p = defaults;
    n[0].p.slots = 4;
    n[1].p.fault = &slow;
    open_nodes(n);
    for (unsigned i = 0; i < 8; i++)
        o[i] = (struct wire_one){.group = &g, .id = 100, .bytes = bytes[i]};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(wire_one_start(n[0].wire, 1, &o[i], 100, in_ms(5000)), 0);
    assert_int_equal(wire_one_start(n[0].wire, 1, &o[4], 100, in_ms(5000)), -EAGAIN);
    assert_int_equal(mr_wire_wait_room(n[0].wire, in_ms(20)), MR_E_TIMEOUT);
    assert_int_equal(mr_wire_wait_room(n[0].wire, in_ms(5000)), 0);
    assert_int_equal(wire_one_start(n[0].wire, 1, &o[4], 100, in_ms(5000)), 0);
    wire_ask_wait(&g, 0);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(o[i].status, MR_WIRE_OK);
    close_pair(n);
}

static void wire_finds_a_closed_peer_gone(void **state)
{
    struct node n[NODES];
    (void)state;
    open_pair(n, NULL);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 5000), MR_WIRE_OK);
    mr_wire_close(n[1].wire);
    uint64_t start = mr_now_ns();
    int rc = ask(n[0].wire, 1, 100, 100, 500);
    assert_true(rc == MR_WIRE_GONE || rc == MR_WIRE_LATE || rc == MR_E_PEER);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 500), MR_E_PEER);
    assert_false(mr_wire_peer_is_up(n[0].wire, 1));
    assert_true(mr_now_ns() - start < 2 * MR_NS_PER_S);
    mr_wire_close(n[0].wire);
}

static void wire_ends_requests_when_closed(void **state)
{
    struct node n[NODES];
    struct wire_ask g = new_group();
    struct wire_one o = {.group = &g, .id = 100};
    uint8_t bytes[100];
    struct mr_wire_fault silent = {.kind = MR_WIRE_FAULT_SILENT};
    (void)state;
    memset(n, 0, sizeof(n));
    n[0].p = n[1].p = defaults;
    n[1].p.fault = &silent;
    open_nodes(n);
    o.bytes = bytes;
    assert_int_equal(wire_one_start(n[0].wire, 1, &o, 100, in_ms(60000)), 0);
    mr_wire_close(n[0].wire);
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.status, MR_WIRE_CLOSED);
    mr_wire_close(n[1].wire);
    mr_wire_close(NULL);
}

/* ---- strangers ---- */

static unsigned replayed;
static int replay(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    (void)ctx;
    (void)err;
    memcpy(all, captured[replayed % 2], len * NODES);
    replayed++;
    memcpy(all, mine, len); /* one's own part is one's own */
    return 0;
}

/* Somebody with the addresses and our program, but not the secret. */
static void wire_gives_nothing_to_a_stranger(void **state)
{
    struct node n[NODES];
    struct mr_wire *stranger = NULL;
    struct mr_wire_stats s;
    uint8_t wrong[MR_WIRE_SECRET_BYTES] = {1, 2, 3};
    struct mr_error err;
    (void)state;
    open_pair(n, NULL);
    struct mr_wire_params p = defaults;
    p.world = NODES;
    p.exchange = replay;
    p.secret = wrong;
    replayed = 0;
    if (captured_len[1] > 4096 || mr_wire_open(&p, &stranger, &err) != 0)
        fail_msg("the stranger could not even start");
    int rc = ask(stranger, 1, 100, 100, 300);
    assert_true(rc == MR_WIRE_LATE || rc == MR_WIRE_GONE);
    mr_wire_stats(stranger, &s); /* it is the first to see that they have not the same secret */
    assert_true(s.strangers >= 1);
    mr_wire_stats(n[1].wire, &s);
    assert_int_equal(s.served, 0);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 5000), MR_WIRE_OK); /* the job goes on */
    mr_wire_close(stranger);
    assert_int_equal(ask(n[1].wire, 0, 100, 100, 5000), MR_WIRE_OK);
    close_pair(n);
}

/* Is this socket, by its inode, one of this process? */
static bool is_ours(unsigned long inode)
{
    for (int fd = 3; fd < 1024; fd++) {
        char path[64], link[64], want[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        snprintf(want, sizeof(want), "socket:[%lu]", inode);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n > 0 && (size_t)n == strlen(want) && memcmp(link, want, (size_t)n) == 0)
            return true;
    }
    return false;
}

/* Sends nonsense to every port that this process listens on. */
static unsigned poke_listeners(void)
{
    char line[512];
    unsigned poked = 0;
    FILE *f = fopen("/proc/self/net/tcp", "r");
    while (f && fgets(line, sizeof(line), f)) {
        unsigned address, port, state;
        unsigned long inode;
        if (sscanf(line, " %*u: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &address, &port, &state, &inode) !=
                4 ||
            state != 10 || !is_ours(inode))
            continue;
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {address}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
            char text[4096];
            memset(text, 'x', sizeof(text));
            poked += send(fd, text, sizeof(text), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
        }
        close(fd);
    }
    if (f)
        fclose(f);
    return poked;
}

static void wire_survives_nonsense_on_its_port(void **state)
{
    struct node n[NODES];
    (void)state;
    open_pair(n, NULL);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 5000), MR_WIRE_OK);
    assert_true(poke_listeners() >= 2);
    assert_int_equal(ask(n[0].wire, 1, 7ull << 32 | 200000, 200000, 5000), MR_WIRE_OK);
    assert_int_equal(ask(n[1].wire, 0, 7ull << 32 | 200000, 200000, 5000), MR_WIRE_OK);
    close_pair(n);
}

/* ---- a guest in somebody's process ---- */

static void wire_is_not_used_in_a_forked_child(void **state)
{
    struct node n[NODES];
    (void)state;
    open_pair(n, NULL);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 5000), MR_WIRE_OK);
    pid_t child = fork();
    if (child == 0) {
        uint8_t b[100];
        bool good = mr_wire_request(n[0].wire, 1, 100, b, 100, in_ms(1000), wire_one_done, NULL) == MR_E_UNSUPPORTED &&
                    mr_wire_wait_room(n[0].wire, in_ms(1)) == MR_E_UNSUPPORTED && !mr_wire_peer_is_up(n[0].wire, 1);
        mr_wire_close(n[0].wire);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ask(n[0].wire, 1, 100, 100, 5000), MR_WIRE_OK);
    close_pair(n);
}

/* UCX must leave error signals and the code of mmap and its kin alone. */
static void wire_leaves_signals_and_memory_functions_alone(void **state)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    void *const functions[] = {(void *)mmap, (void *)munmap, (void *)mremap, (void *)madvise, (void *)sbrk};
    uint8_t code[MR_ARRAY_LEN(functions)][16];
    struct sigaction before, after;
    struct node n[NODES];
    (void)state;
    for (unsigned i = 0; i < MR_ARRAY_LEN(functions); i++)
        memcpy(code[i], functions[i], 16);
    for (unsigned i = 0; i < MR_ARRAY_LEN(signals); i++) {
        sigaction(signals[i], NULL, &before);
        if (i == 0)
            open_pair(n, NULL);
        sigaction(signals[i], NULL, &after);
        assert_true(after.sa_sigaction == before.sa_sigaction);
    }
    assert_int_equal(ask(n[0].wire, 1, 1000000, 1000000, 5000), MR_WIRE_OK);
    for (unsigned i = 0; i < MR_ARRAY_LEN(functions); i++)
        assert_memory_equal(code[i], functions[i], 16);
    close_pair(n);
}

/* ---- faults ---- */

/* Sanitizers are slow, and a late reply on a busy machine looks like a fault: then faults take longer to be noticed. */
#if defined(__SANITIZE_THREAD__)
#define SLOWER 6
#elif defined(__SANITIZE_ADDRESS__)
#define SLOWER 2
#else
#define SLOWER 1
#endif
enum { ASKED = 60, AT_ONCE = 12, DEADLINE_MS = 200 * SLOWER };

struct asker {
    struct node *node;
    uint32_t peer;
    unsigned ends[MR_WIRE_STATUSES], refused, wrong, twice;
    uint64_t seed, deadline_ms;
};

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static void *ask_many(void *arg)
{
    struct asker *a = arg;
    struct wire_ask g = new_group();
    struct wire_one o[ASKED];
    memset(o, 0, sizeof(o));
    for (uint64_t i = 0; i < ASKED; i++) {
        size_t size = draw(&a->seed) % 3 ? 1 + draw(&a->seed) % 40000 : 300000; /* eager and rendezvous */
        o[i] = (struct wire_one){.group = &g, .id = i << 32 | size, .bytes = malloc(size)};
        wire_ask_wait(&g, AT_ONCE - 1);
        int rc = wire_one_start(a->node->wire, a->peer, &o[i], size, in_ms(a->deadline_ms));
        a->refused += rc == MR_E_PEER;
        a->wrong += rc != 0 && rc != MR_E_PEER;
        if (rc)
            o[i].ends = 2;
    }
    wire_ask_wait(&g, 0);
    for (unsigned i = 0; i < ASKED; i++) {
        if (o[i].ends == 1) {
            a->ends[o[i].status]++;
            a->wrong += o[i].status == MR_WIRE_OK && !wire_right(o[i].bytes, o[i].len, o[i].id);
        } else if (o[i].ends != 2) {
            a->twice++;
        }
        free(o[i].bytes);
    }
    return NULL;
}

/* Both ask each other; node 1 misbehaves. */
static void one_fault(struct mr_wire_fault *f, uint64_t seed)
{
    struct node n[NODES];
    struct mr_wire_params p = defaults;
    bool timing = f->kind == MR_WIRE_FAULT_CLOSED || f->kind == MR_WIRE_FAULT_SILENT || f->kind == MR_WIRE_FAULT_SLOW;
    uint64_t deadline_ms = timing ? DEADLINE_MS : 20000; /* the others must not depend on time */
    p.stall_ns = (timing ? 2ull * DEADLINE_MS : 20000) * MR_NS_PER_MS;
    memset(n, 0, sizeof(n));
    n[0].p = n[1].p = p;
    n[1].p.fault = f;
    uint64_t start = mr_now_ns();
    open_nodes(n);
    if (n[0].rc || n[1].rc)
        fail_msg("%s%s", n[0].err.message, n[1].err.message);
    struct asker a[NODES] = {{.node = &n[0], .peer = 1, .seed = seed, .deadline_ms = deadline_ms},
                             {.node = &n[1], .peer = 0, .seed = seed + 1, .deadline_ms = deadline_ms}};
    pthread_t other;
    pthread_create(&other, NULL, ask_many, &a[1]);
    ask_many(&a[0]);
    pthread_join(other, NULL);
    struct mr_wire_stats s;
    mr_wire_stats(n[0].wire, &s);
    uint64_t took_ms = (mr_now_ns() - start) / MR_NS_PER_MS;
    close_pair(n);
    bool good = took_ms < 8000 * SLOWER && s.timeouts <= 1;
    for (unsigned i = 0; i < NODES; i++)
        good &= a[i].wrong == 0 && a[i].twice == 0;
    bool changed = f->kind == MR_WIRE_FAULT_FLIP || f->kind == MR_WIRE_FAULT_SHORT || f->kind == MR_WIRE_FAULT_LONG;
    good &= a[0].ends[MR_WIRE_CORRUPT] == (changed ? f->happened : 0) && a[1].ends[MR_WIRE_CORRUPT] == 0;
    good &= a[0].ends[MR_WIRE_LATE] <= 1; /* one timeout, once */
    if (changed || f->kind == MR_WIRE_FAULT_NONE)
        good &= a[0].ends[MR_WIRE_OK] + f->happened == ASKED && a[1].ends[MR_WIRE_OK] == ASKED;
    if (!good)
        fail_msg("%s at %llu, seed %llu: %llu ms, timeouts %llu, node 0: ok %u late %u gone %u corrupt %u refused %u "
                 "wrong %u twice %u; node 1: ok %u late %u gone %u refused %u wrong %u",
                 mr_wire_fault_name(f->kind), (unsigned long long)f->at, (unsigned long long)seed,
                 (unsigned long long)took_ms, (unsigned long long)s.timeouts, a[0].ends[MR_WIRE_OK],
                 a[0].ends[MR_WIRE_LATE], a[0].ends[MR_WIRE_GONE], a[0].ends[MR_WIRE_CORRUPT], a[0].refused, a[0].wrong,
                 a[0].twice, a[1].ends[MR_WIRE_OK], a[1].ends[MR_WIRE_LATE], a[1].ends[MR_WIRE_GONE], a[1].refused,
                 a[1].wrong);
}

static void faults_are_read_from_text(void **state)
{
    (void)state;
    struct mr_wire_fault f;
    uint32_t node = 9;
    assert_true(mr_wire_fault_parse("1:flip:12", &node, &f));
    assert_true(node == 1 && f.kind == MR_WIRE_FAULT_FLIP && f.at == 12 && f.delay_ns == 0);
    assert_true(mr_wire_fault_parse("0:slow:0:250", &node, &f));
    assert_true(node == 0 && f.kind == MR_WIRE_FAULT_SLOW && f.delay_ns == 250 * MR_NS_PER_MS);
    static const char *const wrong[] = {
        "", "flip", "1:flip", "1:flip:", "1:flop:2", "x:flip:2", "1:flip:2:3:4", "1:flip:-2"};
    for (unsigned i = 0; i < MR_ARRAY_LEN(wrong); i++)
        if (mr_wire_fault_parse(wrong[i], &node, &f))
            fail_msg("'%s' was read", wrong[i]);
}

static void wire_survives_faults_at_random_messages(void **state)
{
    const char *full = getenv("MR_TEST_FULL"), *fixed = getenv("MR_WIRE_SEED");
    unsigned runs = full && *full == '1' ? 500 : 21 / mr_test_stride(3);
    uint64_t seed = fixed ? strtoull(fixed, NULL, 10) : mr_wall_ns();
    unsigned happened = 0;
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < runs; i++) {
        struct mr_wire_fault f = {
            .kind = (enum mr_wire_fault_kind)(i % MR_WIRE_FAULT_KINDS),
            .at = draw(&seed) % (i % 2 ? 100 : 10),
            .delay_ns = draw(&seed) % (2 * DEADLINE_MS) * MR_NS_PER_MS,
        };
        one_fault(&f, draw(&seed));
        happened += f.happened > 0;
    }
    assert_true(happened >= runs / 2);
}

/* ---- frames ---- */

static void frames_come_back_as_they_were(void **state)
{
    uint8_t b[MR_WIRE_MESSAGE_BYTES];
    struct mr_wire_message
        m = {.kind = MR_WIRE_REQUEST, .rank = 1, .token = 2, .slot = 3, .seq = 4, .id = 1ull << 60, .time_us = 6},
        m2;
    (void)state;
    mr_wire_message_encode(&m, b);
    assert_int_equal(mr_greet_kind(b, sizeof b), 0);
    assert_false(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES - 1, &m2));
    assert_true(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES, &m2));
    assert_true(m2.id == 1ull << 60 && m2.time_us == 6 && m2.slot == 3 && m2.seq == 4 && m2.token == 2);
    m.kind = MR_WIRE_REPLY;
    m.len = 10;
    m.hash = 11;
    mr_wire_message_encode(&m, b);
    assert_true(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES, &m2) && m2.len == 10 && m2.hash == 11);
    b[5] = MR_WIRE_FRAME_STATUSES;
    assert_false(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES, &m2));
    b[5] = 0;
    b[4] = MR_WIRE_KINDS;
    assert_false(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES, &m2));
    b[4] = MR_WIRE_REPLY;
    b[0] ^= 1;
    assert_false(mr_wire_message_decode(b, MR_WIRE_MESSAGE_BYTES, &m2));
}

/* ---- exchange over TCP ---- */

struct tcp_rank {
    struct mr_wire_tcp_params p;
    int rc;
    uint64_t all[4], again[4];
};

static void *tcp_exchange(void *arg)
{
    struct tcp_rank *r = arg;
    struct mr_wire_tcp *t;
    uint64_t mine = 100 + r->p.rank;
    r->rc = mr_wire_tcp_open(&r->p, &t, NULL);
    if (r->rc)
        return NULL;
    r->rc = mr_wire_exchange_tcp(t, &mine, sizeof(mine), r->all, NULL);
    mine *= 2;
    if (!r->rc)
        r->rc = mr_wire_exchange_tcp(t, &mine, sizeof(mine), r->again, NULL);
    mr_wire_tcp_close(t);
    return NULL;
}

/* With somebody on the first port already, as torchrun may be, and one rank with a wrong key. */
static void tcp_exchange_gathers_all_ranks(void **state)
{
    uint8_t key[MR_WIRE_SECRET_BYTES] = {5}, wrong[MR_WIRE_SECRET_BYTES] = {6};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    struct tcp_rank r[5];
    pthread_t thread[5];
    (void)state;
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(taken, (struct sockaddr *)&a, sizeof(a)), 0);
    listen(taken, 5);
    getsockname(taken, (struct sockaddr *)&a, &len);
    for (unsigned i = 0; i < 5; i++) {
        r[i] = (struct tcp_rank){.p = {.host = "127.0.0.1",
                                       .port = (uint16_t)(ntohs(a.sin_port) - 1),
                                       .rank = i % 4,
                                       .world = 4,
                                       .key = key,
                                       .timeout_ns = 20 * MR_NS_PER_S}};
        if (i == 4) {
            r[i].p.key = wrong;
            r[i].p.rank = 2;
            r[i].p.timeout_ns = 300 * MR_NS_PER_MS;
        }
    }
    pthread_create(&thread[4], NULL, tcp_exchange, &r[4]);
    for (unsigned i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, tcp_exchange, &r[i]);
    for (unsigned i = 0; i < 5; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(r[i].rc, 0);
        for (uint64_t k = 0; k < 4; k++)
            assert_true(r[i].all[k] == 100 + k && r[i].again[k] == 200 + 2 * k);
    }
    assert_int_equal(r[4].rc, MR_E_TIMEOUT);
    close(taken);
}

static void torchrun_variables_are_read(void **state)
{
    struct mr_wire_tcp_params p;
    (void)state;
    setenv("MASTER_ADDR", "10.1.2.3", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("RANK", "3", 1);
    setenv("WORLD_SIZE", "4", 1);
    assert_true(mr_wire_tcp_from_torchrun(&p));
    assert_true(strcmp(p.host, "10.1.2.3") == 0 && p.port == 29500 && p.rank == 3 && p.world == 4);
    setenv("RANK", "4", 1);
    assert_false(mr_wire_tcp_from_torchrun(&p));
    setenv("RANK", "x", 1);
    assert_false(mr_wire_tcp_from_torchrun(&p));
    unsetenv("MASTER_ADDR");
    assert_false(mr_wire_tcp_from_torchrun(&p));
}

int main(void)
{
    const struct CMUnitTest always[] = {
        cmocka_unit_test(frames_come_back_as_they_were),
        cmocka_unit_test(tcp_exchange_gathers_all_ranks),
        cmocka_unit_test(torchrun_variables_are_read),
        cmocka_unit_test(faults_are_read_from_text),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_leaves_signals_and_memory_functions_alone), /* first: it looks before UCX is loaded */
        cmocka_unit_test(wire_moves_samples_of_every_size),
        cmocka_unit_test(wire_refuses_another_data_set),
        cmocka_unit_test(wire_holds_a_thousand_requests_in_bounded_memory),
        cmocka_unit_test(wire_pushes_back),
        cmocka_unit_test(wire_finds_a_closed_peer_gone),
        cmocka_unit_test(wire_ends_requests_when_closed),
        cmocka_unit_test(wire_gives_nothing_to_a_stranger),
        cmocka_unit_test(wire_survives_nonsense_on_its_port),
        cmocka_unit_test(wire_is_not_used_in_a_forked_child),
        cmocka_unit_test(wire_survives_faults_at_random_messages),
    };
    char path[4096];
    int failed = cmocka_run_group_tests(always, NULL, NULL);
    if (!mr_wire_module_find(path, sizeof(path))) {
        printf("SKIP: this build has no wire module; scripts/setup test installs libucx-dev\n");
        return failed ? failed : 77;
    }
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
