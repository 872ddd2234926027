/* Watching: what the planner looks at now and then, and what it does when ranks wait although a device has time.
 *
 *   copies to an SSD fill the staging, and the source idles   they are given up, and fewer are begun from then on
 *   an SSD that is slower than the source has a queue         its last jobs go to the source, while that has time; what
 *                                                             is planned then goes where it comes first
 *
 * So a slow SSD costs what it does not keep, and never makes a run slower than reading everything from the source. */
#include "tier/executor_internal.h"
#include "tier/peers.h"

#define WATCH_NS (5 * MR_NS_PER_MS)
#define STALL_NS (100 * MR_NS_PER_MS) /* within CALM_NS */
#define CALM_NS MR_NS_PER_S
#define COUNT_NS (200 * MR_NS_PER_MS)
#define STARVED_NS (2 * MR_NS_PER_S) /* waits before the source, which others share, is read for what an SSD has */
#define PROBE_NS (10 * MR_NS_PER_S)

/* Does a rank wait, and for something that is not planned yet? */
static bool is_starving(const struct mr_executor *x, bool *unplanned)
{
    bool any = false;
    *unplanned = false;
    for (uint32_t r = 0; r < x->ranks; r++) {
        uint64_t n = mr_segment_wanted(x->segment, r);
        any |= n != UINT64_MAX;
        *unplanned |= n != UINT64_MAX && n >= x->planned[r];
    }
    return any;
}

static bool has_slow_ssd(struct mr_executor *x)
{
    bool slow = false;
    for (uint32_t i = 0; i < x->n_ssds; i++)
        slow |= x->ssd[i].writes && mr_executor_writes_slowly(x, &x->ssd[i]);
    return slow;
}

/* Copies that wait are given up. Each stall costs a wait: an SSD that is known to be slow has only one. */
static void shed(struct mr_executor *x)
{
    mr_executor_cancel_spills(x, EXECUTOR_NO_SSD, false);
    x->spill_limit = MR_MAX(MR_MIN(x->spill_limit, x->staging) / (has_slow_ssd(x) ? 16 : 2), x->staging / 16);
}

double mr_executor_source_rate(const struct mr_executor *x, const struct mr_work_load *source)
{
    return source->rate > 0 ? source->rate : (double)atomic_load(&x->source_one) * source->threads;
}

bool mr_executor_source_is_sooner(const struct mr_executor *x, uint8_t ssd)
{
    struct mr_work_load source, reads;
    if (x->starved_sum_ns < STARVED_NS || mr_now_ns() - x->starved_ns > CALM_NS)
        return false;
    mr_work_load(x->source, &source);
    mr_work_load(x->ssd[ssd].reads, &reads);
    double rate = mr_executor_source_rate(x, &source);
    return reads.rate > 0 && rate > reads.rate &&
           (reads.waiting + reads.running + 1) * rate > (source.waiting + source.running + 1) * reads.rate;
}

/* How many jobs of an SSD's queue the source may have: as many as it has time for where it is faster; one, seldom, where
 * nothing is known of it, because all was there. */
static unsigned worth_diverting(struct mr_executor *x, double ssd_rate, const struct mr_work_load *source)
{
    double rate = mr_executor_source_rate(x, source);
    if (ssd_rate <= 0 || x->starved_sum_ns < STARVED_NS)
        return 0;
    if (rate > 0)
        return rate > ssd_rate ? MR_MAX(2 * source->threads, 2u) : 0;
    if (x->watched_ns - x->probed_ns < PROBE_NS)
        return 0;
    x->probed_ns = x->watched_ns;
    return 1;
}

/* Jobs of the SSD's queue that are due last. */
static void divert(struct mr_executor *x, struct ssd_device *d, const struct mr_work_load *source)
{
    struct mr_work_load ssd;
    mr_work_load(d->reads, &ssd);
    unsigned most = ssd.waiting ? worth_diverting(x, ssd.rate, source) : 0;
    for (unsigned i = source->waiting; i < most && i < ssd.waiting; i++) {
        struct mr_work_job *j = mr_work_take_last(d->reads);
        if (!j)
            return;
        struct mr_fetching *f = (struct mr_fetching *)j;
        f->ssd = EXECUTOR_NO_SSD;
        mr_fetching_go(x, f);
    }
}

/* `passed`: since it was looked at last. */
static void help(struct mr_executor *x, bool unplanned, const struct mr_work_load *source, uint64_t passed)
{
    bool idle = source->waiting + source->running == 0;
    if (unplanned && x->waits_for_room && x->spills && idle)
        x->stalled_ns += passed;
    if (x->stalled_ns >= STALL_NS) {
        shed(x);
        x->stalled_ns = 0;
        x->calm_since = x->watched_ns;
    }
    for (uint32_t i = 0; i < x->n_ssds; i++)
        if (x->ssd[i].reads && source->waiting < source->threads)
            divert(x, &x->ssd[i], source);
}

void mr_executor_count(struct mr_executor *x)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < x->n_ssds; i++)
        if (x->ssd[i].ssd) {
            struct mr_ssd_stats s;
            mr_ssd_stats(x->ssd[i].ssd, &s);
            bytes += s.bytes;
        }
    board_set(x->board->ssd_bytes, bytes);
    board_set(x->board->peers_lost, x->peers ? mr_peers_lost(x->peers) : 0);
}

void mr_executor_watch(struct mr_executor *x)
{
    uint64_t now = mr_now_ns();
    struct mr_work_load source;
    bool unplanned;
    uint64_t passed = MR_MIN(now - x->watched_ns, 10 * WATCH_NS); /* the planner rests for as long */
    if (now - x->watched_ns < WATCH_NS)
        return;
    x->watched_ns = now;
    pthread_mutex_lock(&x->lock);
    bool starving = is_starving(x, &unplanned);
    x->starved_ns = starving ? now : x->starved_ns;
    x->starved_sum_ns += starving ? passed : 0;
    mr_work_ahead(x->source, !starving);
    mr_work_load(x->source, &source);
    board_set(x->board->threads, source.threads);
    board_set(x->board->source_busy_ns, source.busy_ns);
    if (starving && x->n_ssds)
        help(x, unplanned, &source, passed);
    if (now - x->calm_since >= CALM_NS) { /* no trouble for a while */
        if (!has_slow_ssd(x))
            x->spill_limit = MR_MIN(x->spill_limit + x->spill_limit / 4, 2 * x->staging);
        x->stalled_ns = 0;
        x->calm_since = now;
    }
    pthread_mutex_unlock(&x->lock);
    if (now - x->counted_ns >= COUNT_NS) {
        x->counted_ns = now;
        mr_executor_count(x);
    }
}
