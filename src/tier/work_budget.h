/* How much background traffic a device may take without being felt: a bucket of tokens, one per byte, filled at a rate
 * that follows the latency of the requests somebody waits for. It grows by a little while that latency stays near its
 * best and is halved when it does not. For fills and copies to SSDs; a checkpoint's drain may use one of its own over
 * the same device, told the same latencies.
 *
 *     mr_budget_init(&b, 64 * MR_MIB);
 *     mr_budget_latency(&b, ns, now);            a demand request took so long
 *     if (mr_budget_take(&b, bytes, now)) ...    background work of so many bytes may go now
 *     else  wait mr_budget_wait_ns(&b, bytes)
 *
 * Not thread-safe. */
#ifndef MR_TIER_WORK_BUDGET_H
#define MR_TIER_WORK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct mr_budget {
    double rate, floor;      /* bytes per second; never less than floor */
    double tokens, burst;    /* bytes */
    uint64_t filled_ns;      /* when tokens were added last; 0: never */
    double best_ns, mean_ns; /* latency of demand: its best, forgotten slowly, and the moving mean */
    uint64_t judged_ns;      /* when the rate was changed last */
};
void mr_budget_init(struct mr_budget *b, double rate);
void mr_budget_latency(struct mr_budget *b, uint64_t ns, uint64_t now);
/* Takes the tokens if the bucket is not in debt; a request larger than the burst puts it into debt. */
bool mr_budget_take(struct mr_budget *b, uint64_t bytes, uint64_t now);
uint64_t mr_budget_wait_ns(const struct mr_budget *b);

#endif
