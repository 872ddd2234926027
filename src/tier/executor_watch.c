/* Watching: what the planner looks at now and then, and what it does when ranks wait although a device has time.
 *
 *   copies to an SSD fill the staging, and the source idles   they are given up, and fewer are begun from then on
 *   an SSD that is slower than the source has a queue         its last jobs go to the source, while that has time
 *
 * So a slow SSD costs what it does not keep, and never makes a run slower than reading everything from the source. */
#include "tier/executor_internal.h"
#include "tier/peers.h"

#define WATCH_NS (5 * MR_NS_PER_MS)
#define STALL_NS (100 * MR_NS_PER_MS) /* within CALM_NS */
#define CALM_NS MR_NS_PER_S
#define COUNT_NS (200 * MR_NS_PER_MS)

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

/* Copies that wait are given up. */
static void shed(struct mr_executor *x)
{
    mr_executor_cancel_spills(x, EXECUTOR_NO_SSD);
    x->spill_limit = MR_MAX(MR_MIN(x->spill_limit, x->staging) / 2, x->staging / 16);
}

/* Jobs of the SSD's queue that are due last, as many as the source has time for. */
static void divert(struct mr_executor *x, struct ssd_device *d, const struct mr_work_load *source)
{
    struct mr_work_load ssd;
    mr_work_load(d->reads, &ssd);
    bool slower = ssd.rate > 0 && source->rate > ssd.rate;
    unsigned most = MR_MAX(2 * source->threads, 2u);
    for (unsigned i = source->waiting; slower && i < most && i < ssd.waiting; i++) {
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
    uint64_t passed = MR_MIN(now - x->watched_ns, 4 * WATCH_NS);
    if (now - x->watched_ns < WATCH_NS)
        return;
    x->watched_ns = now;
    pthread_mutex_lock(&x->lock);
    bool starving = is_starving(x, &unplanned);
    mr_work_ahead(x->source, !starving);
    mr_work_load(x->source, &source);
    board_set(x->board->threads, source.threads);
    board_set(x->board->source_busy_ns, source.busy_ns);
    if (starving && x->n_ssds)
        help(x, unplanned, &source, passed);
    if (now - x->calm_since >= CALM_NS) { /* no trouble for a while */
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
