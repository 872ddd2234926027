/* See work_budget.h. */
#include "tier/work_budget.h"
#include "base/common.h"

#define JUDGE_NS (50 * MR_NS_PER_MS)
#define SLOWER 1.5     /* of the best latency: background is felt */
#define RATE_MAX 1e11  /* bytes per second: no limit to speak of */
#define RATE_FLOOR 2e6 /* something always goes */
#define BURST_S 0.05   /* of the rate */
#define BURST_MIN 262144

void mr_budget_init(struct mr_budget *b, double rate)
{
    *b = (struct mr_budget){.rate = rate, .floor = RATE_FLOOR};
    b->burst = MR_MAX(rate * BURST_S, (double)BURST_MIN);
    b->tokens = b->burst;
}

static void judge(struct mr_budget *b, uint64_t now)
{
    if (now - b->judged_ns < JUDGE_NS)
        return;
    b->judged_ns = now;
    b->rate *= b->mean_ns > SLOWER * b->best_ns ? 0.5 : 1.1;
    b->rate = MR_MIN(MR_MAX(b->rate, b->floor), RATE_MAX);
    b->burst = MR_MAX(b->rate * BURST_S, (double)BURST_MIN);
    b->best_ns *= 1.002; /* devices change */
}

void mr_budget_latency(struct mr_budget *b, uint64_t ns, uint64_t now)
{
    double x = (double)MR_MAX(ns, 1u);
    b->mean_ns = b->mean_ns > 0 ? b->mean_ns + (x - b->mean_ns) / 16 : x;
    if (b->best_ns <= 0 || b->mean_ns < b->best_ns)
        b->best_ns = b->mean_ns;
    judge(b, now);
}

bool mr_budget_take(struct mr_budget *b, uint64_t bytes, uint64_t now)
{
    if (b->filled_ns && now > b->filled_ns)
        b->tokens = MR_MIN(b->burst, b->tokens + b->rate * (double)(now - b->filled_ns) / 1e9);
    b->filled_ns = now;
    if (b->tokens <= 0)
        return false;
    b->tokens -= (double)bytes;
    return true;
}

uint64_t mr_budget_wait_ns(const struct mr_budget *b)
{
    return b->tokens > 0 ? 0 : (uint64_t)((1 - b->tokens) / b->rate * 1e9);
}
