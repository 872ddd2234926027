/* What one node of a large job costs itself, with everything but bytes and wire: schedule, policy, the books of its
 * tiers, the state of its wire. For bench/run_scale and doc/internals/scale.md.
 *
 *     bench_scale NODES SAMPLES SHARE EPOCHS
 *
 * Samples have 128 KiB; a node has memory for SHARE of its part of the set (1: exactly its part). The node plans all
 * its accesses of EPOCHS epochs in cipher order and keeps its books as the executor does; a fake wire has what is asked
 * for at once. Prints a line of JSON. */
#include "bench_self.h"
#include "base/common.h"
#include "policy/policy.h"
#include "tier/holdings.h"
#include "wire/wire_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_BYTES 131072u
#define BLOCK 4096u
#define EPOCHS_MAX 16

struct node {
    struct mr_schedule *schedule;
    struct mr_policy policy;
    struct mr_holdings books;
    uint32_t self;
    uint64_t from[EPOCHS_MAX][3]; /* samples by enum mr_source_kind */
    uint64_t *asked;              /* of each node, in the last epoch */
    double plan_s, book_s;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_scale: %s\n", what);
    exit(1);
}

static void give_up(struct node *n, const struct mr_plan *plan)
{
    for (unsigned i = 0; i < plan->n_evict; i++) {
        struct mr_holding *e = mr_holdings_find(&n->books, plan->evict[i]);
        if (!e)
            continue;
        mr_holdings_set_class(&n->books, e, MR_CLASS_NONE);
        mr_holdings_settle(&n->books, e);
    }
}

/* What the executor's books do with an access whose bytes come at once and are used at once. */
static void keep_books(struct node *n, uint64_t id, const struct mr_plan *plan)
{
    give_up(n, plan);
    struct mr_holding *e = mr_holdings_find(&n->books, id);
    if (!e && !(e = mr_holdings_add(&n->books, id)))
        die("no memory");
    mr_holdings_claim(&n->books, e);
    if (e->state == MR_HOLDING_AWAY) {
        if (!mr_holdings_place(&n->books, e, SAMPLE_BYTES))
            die("no room: the plan keeps more than the node has");
        mr_holdings_ready(&n->books, e, SAMPLE_BYTES);
    }
    if (plan->keep != MR_NOT_HELD)
        mr_holdings_set_class(&n->books, e, plan->keep);
    mr_holdings_unclaim(&n->books, e);
}

static uint64_t run_epoch(struct node *n, uint64_t epoch, bool is_last)
{
    static uint64_t ids[BLOCK];
    static struct mr_plan plans[BLOCK];
    struct mr_error err = {0};
    uint64_t done = 0;
    for (int64_t got; (got = mr_schedule_ids(n->schedule, epoch, n->self, done, ids, BLOCK, &err)) != 0;) {
        if (got < 0)
            die(err.message);
        double start = cpu_s();
        for (int64_t k = 0; k < got; k++)
            mr_policy_plan(&n->policy, mr_schedule_access(n->schedule, epoch, done + (uint64_t)k, n->self), ids[k],
                           &plans[k]);
        double planned = cpu_s();
        for (int64_t k = 0; k < got; k++)
            keep_books(n, ids[k], &plans[k]);
        n->book_s += cpu_s() - planned;
        n->plan_s += planned - start;
        for (int64_t k = 0; k < got; k++) {
            n->from[epoch][plans[k].source[0].kind]++;
            if (is_last && plans[k].source[0].kind == MR_FROM_PEER)
                n->asked[plans[k].source[0].node]++;
        }
        done += (uint64_t)got;
    }
    return done;
}

/* Seconds of CPU per look-up of an id that another node asks for, there or not. */
static double look_up_ns(const struct node *n, uint64_t samples)
{
    uint64_t found = 0, id = 12345, tries = 2000000;
    double start = cpu_s();
    for (uint64_t i = 0; i < tries; i++) {
        id = (id * 6364136223846793005ull + 1442695040888963407ull);
        found += mr_holdings_find(&n->books, (id >> 20) % samples) != NULL;
    }
    double seconds = cpu_s() - start;
    return found <= tries ? 1e9 * seconds / (double)tries : 0;
}

int main(int argc, char **argv)
{
    struct mr_error err = {0};
    if (argc != 5)
        return fprintf(stderr, "bench_scale NODES SAMPLES SHARE EPOCHS\n"), 2;
    uint32_t nodes = (uint32_t)strtoul(argv[1], NULL, 10);
    uint64_t samples = strtoull(argv[2], NULL, 10), epochs = MR_MIN(strtoull(argv[4], NULL, 10), EPOCHS_MAX + 0ull);
    double share = strtod(argv[3], NULL), begin_mib = resident_mib();
    struct node n = {.self = nodes / 2, .asked = calloc(nodes, sizeof(uint64_t))};
    struct mr_schedule_params p = {
        .order = {.samples = samples, .seed = 7, .world = nodes, .shuffle_each_epoch = true, .mode = MR_ORDER_CIPHER},
        .epochs = MR_MAX(epochs, (uint64_t)40),
        .nodes = nodes,
        .local_batch = 32};
    struct mr_policy_world w = {.nodes = nodes,
                                .classes = 2,
                                .samples = samples,
                                .epochs = p.epochs,
                                .sample_bytes = SAMPLE_BYTES,
                                .total_bytes = samples * SAMPLE_BYTES,
                                .epoch_share = 1};
    uint64_t *capacity = calloc(2 * (uint64_t)nodes, sizeof(*capacity));
    uint64_t room = (uint64_t)(share * (double)w.total_bytes / nodes), accesses = 0;
    if (!capacity || !n.asked || !epochs)
        die("no memory");
    for (uint32_t i = 0; i < nodes; i++)
        capacity[2 * i + 1] = room;
    w.capacity = capacity;
    w.memory_bytes = mr_policy_memory(&w);
    double start = cpu_s();
    if (mr_schedule_create(&p, &w.schedule, &err) || mr_policy_create(MR_POLICY_MILLRACE, &w, n.self, &n.policy, &err))
        die(err.message);
    n.schedule = w.schedule;
    double create_s = cpu_s() - start;
    if (mr_holdings_init(&n.books, room + room / 20 + (1ull << 30)))
        die("no memory");
    for (uint64_t e = 0; e < epochs; e++)
        accesses += run_epoch(&n, e, e + 1 == epochs);
    double end_mib = resident_mib();
    uint64_t most = 0, peers = 0, asked = 0;
    for (uint32_t i = 0; i < nodes; i++) {
        most = MR_MAX(most, n.asked[i]);
        peers += n.asked[i] > 0;
        asked += n.asked[i];
    }
    printf("{\"nodes\": %u, \"samples\": %llu, \"share\": %g, \"accesses\": %llu, \"create_s\": %.3f, \"plans_per_s\": "
           "%.0f, "
           "\"books_per_s\": %.0f, \"look_up_ns\": %.0f, \"memory_mib\": %.1f, \"entries\": %u, \"entry_bytes\": %zu, "
           "\"read_bits_mib\": %.1f, \"wire_peer_bytes\": %zu, \"wire_slot_bytes\": %zu, ",
           nodes, (unsigned long long)samples, share, (unsigned long long)accesses, create_s,
           (double)accesses / n.plan_s, (double)accesses / n.book_s, look_up_ns(&n, samples), end_mib - begin_mib,
           n.books.used, sizeof(struct mr_holding), (double)samples / 8 / 1048576, sizeof(struct peer),
           sizeof(struct slot));
    printf("\"peers_asked\": %llu, \"asked\": %llu, \"asked_most\": %llu, \"epochs\": [", (unsigned long long)peers,
           (unsigned long long)asked, (unsigned long long)most);
    for (uint64_t e = 0; e < epochs; e++)
        printf("%s{\"source\": %llu, \"peers\": %llu, \"own\": %llu}", e ? ", " : "",
               (unsigned long long)n.from[e][MR_FROM_PFS], (unsigned long long)n.from[e][MR_FROM_PEER],
               (unsigned long long)n.from[e][MR_FROM_CLASS]);
    puts("]}");
    mr_holdings_done(&n.books);
    mr_policy_free(&n.policy);
    mr_schedule_free(w.schedule);
    free(capacity);
    free(n.asked);
    return 0;
}
