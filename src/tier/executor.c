/* The executor's life: made, planning, seeking, freed. See executor.h. */
#include "tier/executor.h"
#include "tier/executor_internal.h"
#include "tier/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MIN 64u
#define DEPTH_MAX 4096u
#define WAIT_NS (50 * MR_NS_PER_MS)

static uint32_t power_of_two(uint64_t n)
{
    uint32_t p = DEPTH_MIN;
    while (p < n && p < DEPTH_MAX)
        p *= 2;
    return p;
}

uint32_t mr_executor_depth(const struct mr_tier_params *p, uint32_t local_ranks, uint64_t staging)
{
    struct mr_dataset_info info;
    mr_dataset_get_info(p->dataset, &info);
    uint64_t mean = MR_MAX(info.sample_bytes / MR_MAX(info.samples, 1u), 1u);
    return power_of_two(MR_MAX(staging / mean / MR_MAX(local_ranks, 1u), 2 * p->batch_size));
}

static int alloc_rings(struct mr_executor *x, struct mr_error *err)
{
    size_t n = (size_t)x->ranks * x->depth;
    x->slot_holding = malloc(n * sizeof(*x->slot_holding));
    x->slot_next = malloc(n * sizeof(*x->slot_next));
    x->planned = calloc(x->ranks, sizeof(*x->planned));
    x->was_read = calloc(x->info.samples / 8 + 1, 1); /* without it everything counts as read before */
    if (!x->slot_holding || !x->slot_next || !x->planned)
        return mr_error_set(err, -ENOMEM, "no memory for the rings of %u ranks", x->ranks);
    memset(x->slot_holding, 0xff, n * sizeof(*x->slot_holding));
    memset(x->slot_next, 0xff, n * sizeof(*x->slot_next));
    return 0;
}

/* What others could hold is no use without asking them. */
static void forget_others(struct mr_executor *x)
{
    for (uint32_t n = 0; n < x->nodes; n++)
        if (n != x->node)
            memset(x->capacity + (size_t)n * x->classes, 0, x->classes * sizeof(*x->capacity));
    x->alone = true;
}

static int copy_world(struct mr_executor *x, const struct mr_executor_params *p, struct mr_error *err)
{
    size_t n = (size_t)p->nodes * p->classes;
    x->first_rank = malloc((p->nodes + 1) * sizeof(*x->first_rank));
    x->capacity = malloc(n * sizeof(*x->capacity));
    if (!x->first_rank || !x->capacity)
        return mr_error_set(err, -ENOMEM, "no memory for a job of %u nodes", p->nodes);
    memcpy(x->first_rank, p->first_rank, (p->nodes + 1) * sizeof(*x->first_rank));
    memcpy(x->capacity, p->capacity, n * sizeof(*x->capacity));
    x->ranks = x->first_rank[x->node + 1] - x->first_rank[x->node];
    if (p->alone)
        forget_others(x);
    return 0;
}

int mr_executor_create(const struct mr_executor_params *p, struct mr_executor **out, struct mr_error *err)
{
    struct mr_executor *x = calloc(1, sizeof(*x));
    if (!x)
        return mr_error_set(err, -ENOMEM, "no memory for the tiers");
    x->p = *p->tier;
    x->segment = p->segment;
    x->board = p->board;
    x->node = p->node;
    x->nodes = p->nodes;
    x->classes = p->classes;
    x->depth = mr_segment_depth(p->segment);
    x->read_flags = MR_DATASET_RAW | (p->tier->read_flags & MR_DATASET_VERIFY);
    x->extra = p->tier->read_flags & MR_DATASET_VERIFY ? EXECUTOR_EXTRA : 0;
    x->n_ssds = p->n_ssds;
    for (uint32_t i = 0; i < p->n_ssds; i++)
        x->ssd[i] = (struct ssd_device){.ssd = p->ssd[i], .x = x, .index = (uint8_t)i};
    mr_dataset_get_info(x->p.dataset, &x->info);
    x->p.order.samples = x->info.samples;
    mr_fetch_planner_init(&x->sizer, x->p.dataset, 1, true, 1u << 24);
    pthread_mutex_init(&x->lock, NULL);
    int rc = mr_policy_parse(x->p.policy, &x->policy_id, err);
    if (!rc && mr_policy_reorders(x->policy_id))
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "policy '%s' changes the order of samples; the loader keeps it",
                            x->p.policy);
    if (!rc)
        rc = copy_world(x, p, err);
    if (!rc) {
        x->staging = x->capacity[(size_t)x->node * x->classes];
        x->spill_limit = 2 * x->staging; /* places are taken from staging: no limit to speak of */
        rc = alloc_rings(x, err);
    }
    uint64_t bytes = mr_segment_data_bytes(x->segment);
    if (!rc && mr_holdings_init(&x->h, bytes))
        rc = mr_error_set(err, -ENOMEM, "no memory to keep books of %llu bytes", (unsigned long long)bytes);
    if (!rc)
        rc = mr_executor_make_world(x, x->p.order.epoch, 0, err);
    if (rc)
        mr_executor_free(x);
    else
        *out = x;
    return rc;
}

void mr_executor_use_peers(struct mr_executor *x, struct mr_peers *peers)
{
    x->peers = peers;
}

int mr_executor_alone(struct mr_executor *x, struct mr_error *err)
{
    mr_peers_close(x->peers);
    x->peers = NULL;
    forget_others(x);
    return mr_executor_make_world(x, x->world_epoch, x->world_position, err);
}

/* ---- the planner ---- */

static void begin_anew(struct mr_executor *x, uint64_t epoch, uint64_t position)
{
    struct mr_error err;
    pthread_mutex_lock(&x->lock);
    mr_executor_empty_rings(x);
    bool same = !x->sought && epoch == x->world_epoch && position == x->world_position;
    int rc = same ? 0 : mr_executor_make_world(x, epoch, position, &err);
    x->sought = true;
    x->failed |= rc != 0;
    pthread_mutex_unlock(&x->lock);
    if (rc)
        mr_segment_fail(x->segment, &err);
    else
        mr_segment_seek_done(x->segment);
}

/* What waits for a peer is asked again; returns how long the planner may rest. */
static uint64_t ask_again(struct mr_executor *x)
{
    if (!x->peers)
        return WAIT_NS;
    pthread_mutex_lock(&x->lock);
    uint64_t rest = mr_peers_tick(x->peers);
    pthread_mutex_unlock(&x->lock);
    return rest ? rest : WAIT_NS;
}

static void *planner_main(void *arg)
{
    struct mr_executor *x = arg;
    x->planner_self = pthread_self();
    while (!atomic_load(&x->closing)) {
        uint64_t epoch, position;
        bool gone = false, busy = false;
        if (mr_segment_seek_asked(x->segment, &epoch, &position, &gone))
            begin_anew(x, epoch, position);
        if (gone) {
            pthread_mutex_lock(&x->lock);
            x->failed = true;
            pthread_mutex_unlock(&x->lock);
        }
        if (x->sought && !x->failed) {
            mr_executor_reclaim(x);
            busy = mr_executor_plan(x);
            busy |= mr_executor_fill(x);
            mr_executor_watch(x);
        }
        mr_segment_wait_ranks(x->segment, busy ? 0 : ask_again(x));
    }
    return NULL;
}

int mr_executor_start(struct mr_executor *x, struct mr_error *err)
{
    int rc = mr_executor_start_source(x, err);
    if (!rc)
        rc = mr_executor_start_ssds(x, err);
    if (rc)
        return rc;
    mr_executor_count(x);
    x->begun_ns = mr_now_ns();
    rc = pthread_create(&x->planner, NULL, planner_main, x);
    if (rc)
        return mr_error_set(err, -rc, "cannot start the planning thread");
    x->started = true;
    return 0;
}

void mr_executor_free(struct mr_executor *x)
{
    if (!x)
        return;
    atomic_store(&x->closing, true);
    if (x->started) {
        mr_segment_kick(x->segment);
        pthread_join(x->planner, NULL);
    }
    mr_peers_close(x->peers);
    mr_work_stop(x->source);
    for (uint32_t i = 0; i < x->n_ssds; i++) {
        mr_work_stop(x->ssd[i].reads);
        mr_work_stop(x->ssd[i].writes);
        mr_traffic_put(x->ssd[i].device);
    }
    mr_traffic_put(x->source_device);
    mr_executor_free_world(x);
    mr_holdings_done(&x->h);
    while (x->free_fetches) {
        struct mr_fetching *f = x->free_fetches;
        x->free_fetches = f->next;
        free(f);
    }
    mr_fetch_planner_done(&x->sizer);
    mr_fetch_done(&x->sized);
    free(x->results.item);
    free(x->slot_holding);
    free(x->slot_next);
    free(x->planned);
    free(x->was_read);
    free(x->first_rank);
    free(x->capacity);
    pthread_mutex_destroy(&x->lock);
    free(x);
}
