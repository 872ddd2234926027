/* What planning costs: plans per second of one core and memory of one node's instance of millrace, for
 * bench/run_policy.
 *
 *     bench_policy NODES SAMPLES MODE SHARE EPOCHS [PLANS]
 *
 * Samples have 128 KiB; a node can hold SHARE of its part of the set (1: exactly its part). One node plans its accesses
 * of EPOCHS epochs from the start, at most PLANS; ids come in blocks from the order, as a loader has them. Prints a
 * line of JSON: plans, CPU seconds, plans per second, the rule, the most memory beyond what the schedule had at the
 * start (in torch mode it builds tables later). */
#include "bench_self.h"
#include "base/common.h"
#include "policy/homes.h"
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_BYTES 131072u
#define BLOCK 4096u

static double peak_mib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

static void die(const struct mr_error *err)
{
    fprintf(stderr, "bench_policy: %s\n", err->message);
    exit(1);
}

/* Plans a node's accesses of an epoch; returns how many. */
static uint64_t plan_epoch(struct mr_schedule *s, const struct mr_policy *p, uint32_t node, uint64_t epoch,
                           uint64_t most, uint64_t sources[3])
{
    static uint64_t ids[BLOCK];
    struct mr_error err = {0};
    uint64_t done = 0;
    for (int64_t n; done < most && (n = mr_schedule_ids(s, epoch, node, done, ids, BLOCK, &err)) != 0;) {
        if (n < 0)
            die(&err);
        for (int64_t k = 0; k < n; k++) {
            struct mr_plan plan;
            mr_policy_plan(p, mr_schedule_access(s, epoch, done + (uint64_t)k, node), ids[k], &plan);
            sources[plan.source[0].kind]++;
        }
        done += (uint64_t)n;
    }
    return done;
}

int main(int argc, char **argv)
{
    struct mr_error err = {0};
    if (argc < 6)
        return fprintf(stderr, "bench_policy NODES SAMPLES MODE SHARE EPOCHS [PLANS]\n"), 2;
    uint32_t nodes = (uint32_t)strtoul(argv[1], NULL, 10), node = nodes / 2;
    uint64_t samples = strtoull(argv[2], NULL, 10), epochs = strtoull(argv[5], NULL, 10);
    uint64_t most = argc > 6 ? strtoull(argv[6], NULL, 10) : UINT64_MAX, window, sources[3] = {0}, plans = 0;
    struct mr_schedule_params p = {.order = {.samples = samples, .seed = 7, .world = nodes, .shuffle_each_epoch = true},
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
    for (uint32_t i = 0; capacity && i < nodes; i++)
        capacity[2 * i + 1] = (uint64_t)(strtod(argv[4], NULL) * (double)w.total_bytes / nodes);
    w.capacity = capacity;
    if (!capacity || mr_order_mode_parse(argv[3], &p.order.mode, &window, &err) ||
        mr_schedule_create(&p, &w.schedule, &err))
        die(&err);
    struct mr_policy policy;
    struct mr_policy_memo memo = {0};
    w.memo = &memo;
    double before = resident_mib(), start = cpu_s();
    if (mr_policy_create(MR_POLICY_MILLRACE, &w, node, &policy, &err))
        die(&err);
    double create_s = cpu_s() - start;
    start = cpu_s();
    for (uint64_t e = 0; e < epochs && plans < most; e++)
        plans += plan_epoch(w.schedule, &policy, node, e, most - plans, sources);
    double seconds = cpu_s() - start;
    const struct mr_homes *h = memo.data;
    printf("{\"nodes\": %u, \"samples\": %llu, \"mode\": \"%s\", \"rule\": \"%s\", \"plans\": %llu, \"cpu_s\": %.4f, "
           "\"plans_per_s\": %.0f, \"create_s\": %.3f, \"memory_mib\": %.1f, \"from_pfs\": %llu, \"from_peers\": %llu, "
           "\"from_classes\": %llu}\n",
           nodes, (unsigned long long)samples, argv[3], h->rule == MR_HOME_CHAIN ? "chain" : "first reader",
           (unsigned long long)plans, seconds, (double)plans / seconds, create_s, peak_mib() - before,
           (unsigned long long)sources[MR_FROM_PFS], (unsigned long long)sources[MR_FROM_PEER],
           (unsigned long long)sources[MR_FROM_CLASS]);
    mr_policy_free(&policy);
    mr_policy_memo_done(&memo);
    mr_schedule_free(w.schedule);
    free(capacity);
    return 0;
}
