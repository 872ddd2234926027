/* See traffic_budget.h. */
#include "store/traffic_budget.h"
#include "base/common.h"

#define JUDGE_NS (50 * MR_NS_PER_MS)
#define RATE_MAX 1e11  /* bytes per second: no limit to speak of */
#define RATE_FLOOR 1e5 /* from which it can come back within seconds */
#define BURST_S 0.01   /* of the rate */
#define BURST_MIN 262144

static void set_rate(struct mr_traffic_budget *b, double rate)
{
    b->rate = MR_MIN(MR_MAX(rate, b->floor), RATE_MAX);
    b->burst = MR_MAX(b->rate * BURST_S, (double)BURST_MIN);
    b->tokens = MR_MAX(b->tokens, -b->burst); /* debts of faster times are forgotten */
}

void mr_budget_init(struct mr_traffic_budget *b, double rate)
{
    *b = (struct mr_traffic_budget){.floor = RATE_FLOOR};
    set_rate(b, rate);
    b->tokens = BURST_MIN;
}

void mr_budget_quiet(struct mr_traffic_budget *b, double ns)
{
    b->best_ns = b->mean_ns = MR_MAX(ns, 1.0);
}

void mr_budget_latency(struct mr_traffic_budget *b, double ns, double slower, uint64_t now)
{
    double x = MR_MAX(ns, 1.0);
    b->mean_ns = b->mean_ns > 0 ? b->mean_ns + (x - b->mean_ns) / 4 : x;
    if (b->best_ns <= 0 || b->mean_ns < b->best_ns)
        b->best_ns = b->mean_ns;
    if (b->mean_ns > slower * b->best_ns) {
        mr_budget_cut(b, now);
    } else if (now - b->judged_ns >= JUDGE_NS) {
        b->judged_ns = now;
        if (b->short_of)
            set_rate(b, b->rate * 1.1);
        b->short_of = false;
    }
}

void mr_budget_cut(struct mr_traffic_budget *b, uint64_t now)
{
    if (now - b->judged_ns < JUDGE_NS)
        return;
    b->judged_ns = now;
    set_rate(b, b->rate * 0.5);
    b->short_of = false;
}

bool mr_budget_take(struct mr_traffic_budget *b, uint64_t bytes, uint64_t now)
{
    if (b->filled_ns && now > b->filled_ns)
        b->tokens = MR_MIN(b->burst, b->tokens + b->rate * (double)(now - b->filled_ns) / 1e9);
    b->filled_ns = now;
    b->short_of |= b->tokens <= 0;
    if (b->tokens <= 0)
        return false;
    b->tokens -= (double)bytes;
    return true;
}

uint64_t mr_budget_wait_ns(const struct mr_traffic_budget *b)
{
    return b->tokens > 0 ? 0 : (uint64_t)((1 - b->tokens) / b->rate * 1e9);
}
