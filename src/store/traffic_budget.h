/* How much background traffic a device may take without being felt: a bucket of tokens, one per byte, filled at a rate
 * that follows the latency of the requests somebody waits for. Where it is the limit, it grows by a little while that
 * latency stays near what it is without background; it is halved when it does not.
 *
 *     mr_budget_init(&b, 64 * MR_MIB);
 *     mr_budget_quiet(&b, ns);                   requests took so long while there was no background
 *     mr_budget_latency(&b, ns, 1.5, now);       now they take so long; up to 1.5 times that is fine
 *     if (mr_budget_take(&b, bytes, now)) ...    background work of so many bytes may go now
 *     else  wait mr_budget_wait_ns(&b)
 *
 * Not thread-safe. */
#ifndef MR_STORE_TRAFFIC_BUDGET_H
#define MR_STORE_TRAFFIC_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct mr_traffic_budget {
    double rate, floor;      /* bytes per second; never less than floor */
    double tokens, burst;    /* bytes */
    uint64_t filled_ns;      /* when tokens were added last; 0: never */
    double best_ns, mean_ns; /* latency of demand: without background, or its best; the moving mean */
    uint64_t judged_ns;      /* when the rate was changed last */
    bool short_of;           /* tokens, since then: a rate that nobody needs says nothing */
};
void mr_budget_init(struct mr_traffic_budget *b, double rate);
void mr_budget_quiet(struct mr_traffic_budget *b, double ns);
void mr_budget_latency(struct mr_traffic_budget *b, double ns, double slower, uint64_t now);
/* Halves the rate, unless that was done a moment ago. */
void mr_budget_cut(struct mr_traffic_budget *b, uint64_t now);
/* Takes the tokens if the bucket is not in debt; a request larger than the burst puts it into debt. */
bool mr_budget_take(struct mr_traffic_budget *b, uint64_t bytes, uint64_t now);
uint64_t mr_budget_wait_ns(const struct mr_traffic_budget *b);

#endif
