/* Tiers of a rank: opening and closing together with the others, seeking, figures. What the node does is its leader's
 * executor's (executor.h). */
#include "tier/tier.h"
#include "tier/executor.h"
#include "tier/peers.h"
#include "cache/ssd.h"
#include "tier/tier_internal.h"
#include "tier/tier_node.h"
#include "tier/tier_spec.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "dataset/dataset_parts.h"
#include "dataset/fetch.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mr_tier {
    struct mr_tier_params p;
    struct mr_tier_node node;
    struct mr_tier_spec spec; /* the leader's */
    struct mr_tier_need need;
    struct mr_ssd *ssd[MR_TIER_SSDS_MAX];
    struct mr_segment *segment;
    struct mr_executor *executor; /* the leader's; NULL elsewhere */
    struct mr_tier_board *board;
    uint32_t classes;
    uint64_t *capacity; /* [node * classes + class] */
    atomic_bool stopped;
    bool joined, drained;
    char chosen[512];
};

struct mr_segment *mr_tier_segment(struct mr_tier *t)
{
    return t->segment;
}

uint32_t mr_tier_local_rank(const struct mr_tier *t)
{
    return t->node.local_rank;
}

bool mr_tier_stopped(void *t)
{
    return atomic_load(&((struct mr_tier *)t)->stopped);
}

static bool leads(const struct mr_tier *t)
{
    return t->node.local_rank == 0;
}

/* ---- what the nodes have ---- */

/* What a leader says of its node. */
#define CAPACITY_MAX ((uint64_t)1 << 60) /* of a class */
struct about {
    uint32_t classes;
    uint64_t capacity[MR_POLICY_CLASS_MAX];
};

static int open_ssds(struct mr_tier *t, struct mr_error *err)
{
    for (unsigned i = 0; i < t->spec.n_ssds; i++) {
        struct mr_ssd_params p = {.folder = t->spec.ssd[i].folder,
                                  .capacity = t->spec.ssd[i].capacity,
                                  .name = t->p.name ? t->p.name : "",
                                  .samples = mr_dataset_count(t->p.dataset)};
        mr_stored_key(t->p.dataset, t->p.read_flags, p.data_set);
        int rc = mr_ssd_open(&p, &t->ssd[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

/* A class of samples as policies count them: what the folder takes for its own files and for whole blocks is not for
 * samples, and what the device does not have is not there. */
static uint64_t ssd_for_samples(const struct mr_tier *t, unsigned i, const struct mr_dataset_info *info)
{
    uint64_t asked = t->spec.ssd[i].capacity, usable = mr_ssd_usable(t->ssd[i]), own = MR_SSD_OVERHEAD(usable);
    char has[MR_HUMAN_LEN], wants[MR_HUMAN_LEN];
    if (usable < asked - asked / 100)
        mr_log(MR_LOG_NOTE, "the SSD folder '%s' has room for %s of the %s that it may take", t->spec.ssd[i].folder,
               mr_human_bytes((double)usable, has), mr_human_bytes((double)asked, wants));
    double each = (double)info->sample_bytes / (double)MR_MAX(info->samples, 1u);
    const uint64_t largest = MR_SSD_TAKES(info->sample_max_bytes), empty = MR_SSD_TAKES(0);
    double blocks = info->sample_min_bytes == info->sample_max_bytes ? (double)largest : each + 2048 + (double)empty;
    double counted = (double)t->need.set_bytes / (double)MR_MAX(info->samples, 1u);
    return usable > own ? (uint64_t)((double)(usable - own) * MR_MIN(counted / blocks, 1.0)) : 0;
}

static int look_at_node(struct mr_tier *t, struct about *me, struct mr_error *err)
{
    struct mr_dataset_info info;
    enum mr_policy_id policy;
    mr_dataset_get_info(t->p.dataset, &info);
    t->need = (struct mr_tier_need){.set_bytes = mr_executor_set_bytes(&info, t->p.read_flags),
                                    .largest = info.sample_max_bytes + (t->p.read_flags & MR_DATASET_VERIFY ? 64 : 0),
                                    .local_ranks = t->node.local_ranks};
    int rc = mr_policy_parse(t->p.policy, &policy, err);
    if (!rc && mr_policy_reorders(policy))
        rc = mr_error_plain(err, MR_E_UNSUPPORTED, "policy '%s' changes the order of samples, and the loader keeps it",
                            t->p.policy);
    if (rc || !leads(t))
        return rc;
    rc = mr_tier_spec_parse(t->p.spec, &t->need, &t->spec, err);
    if (!rc)
        rc = open_ssds(t, err);
    if (rc)
        return rc;
    if (t->spec.readers)
        t->p.threads = t->spec.readers;
    me->classes = 2 + t->spec.n_ssds;
    me->capacity[0] = t->spec.staging;
    me->capacity[1] = t->spec.ram;
    for (unsigned i = 0; i < t->spec.n_ssds; i++)
        me->capacity[2 + i] = ssd_for_samples(t, i, &info);
    return 0;
}

/* Another rank's numbers: within what the policies have room for, and small enough that their sums do not overflow. */
static int check_about(const struct about *a, uint32_t node, struct mr_error *err)
{
    if (a->classes < 2 || a->classes > MR_ARRAY_LEN(a->capacity))
        return mr_error_plain(err, MR_E_PEER, "node %u has %u storage classes; want 2 to %zu", node, a->classes,
                              MR_ARRAY_LEN(a->capacity));
    for (uint32_t c = 0; c < a->classes; c++)
        if (a->capacity[c] > CAPACITY_MAX)
            return mr_error_plain(err, MR_E_PEER, "node %u has %llu bytes in class %u; want at most %llu", node,
                                  (unsigned long long)a->capacity[c], c, (unsigned long long)CAPACITY_MAX);
    return 0;
}

static int gather_capacities(struct mr_tier *t, const struct about *me, struct mr_error *err)
{
    struct about *all = calloc(t->node.nodes, sizeof(*all));
    int rc = all ? 0 : mr_error_set(err, -ENOMEM, "no memory for a job of %u nodes", t->node.nodes);
    if (!rc)
        rc = mr_tier_node_gather(&t->node, me, sizeof(*me), all, err);
    for (uint32_t n = 0; !rc && n < t->node.nodes; n++)
        rc = check_about(&all[n], n, err);
    for (uint32_t n = 0; !rc && n < t->node.nodes; n++)
        t->classes = MR_MAX(t->classes, all[n].classes);
    if (!rc) {
        t->capacity = calloc((size_t)t->node.nodes * t->classes, sizeof(*t->capacity));
        if (!t->capacity)
            rc = mr_error_set(err, -ENOMEM, "no memory for a job of %u nodes", t->node.nodes);
    }
    uint64_t most =
        UINT64_MAX / ((uint64_t)MR_MAX(t->node.nodes, 1u) * MR_POLICY_CLASS_MAX); /* sums of them do not overflow */
    for (uint32_t n = 0; !rc && n < t->node.nodes; n++)
        for (uint32_t c = 0; c < t->classes; c++)
            t->capacity[(size_t)n * t->classes + c] = MR_MIN(all[n].capacity[c], most);
    free(all);
    return rc;
}

/* ---- opening ---- */

static int make_segment(struct mr_tier *t, struct mr_error *err)
{
    struct mr_segment_params p = {
        .ranks = t->node.local_ranks,
        .depth = mr_executor_depth(&t->p, t->node.local_ranks, t->spec.staging),
        .data_bytes = mr_tier_spec_memory(&t->spec, &t->need),
        .first_rank = t->node.first_rank[t->node.node],
    };
    return mr_segment_create(&p, &t->segment, err);
}

static int make_executor(struct mr_tier *t, struct mr_error *err)
{
    struct mr_executor_params p = {.tier = &t->p,
                                   .segment = t->segment,
                                   .board = t->board,
                                   .node = t->node.node,
                                   .nodes = t->node.nodes,
                                   .first_rank = t->node.first_rank,
                                   .classes = t->classes,
                                   .capacity = t->capacity,
                                   .ssd = t->ssd,
                                   .n_ssds = t->spec.n_ssds,
                                   .alone = !t->p.peers};
    return mr_executor_create(&p, &t->executor, err);
}

/* With peers_optional a wire that cannot be opened is said, and every node goes on alone. */
static int open_peers(struct mr_tier *t, struct mr_error *err)
{
    struct mr_peers *peers = NULL;
    int rc = mr_peers_open(&t->p, &t->node, t->executor, &peers, err);
    if (t->executor && peers)
        mr_executor_use_peers(t->executor, peers);
    rc = mr_tier_node_agree(&t->node, rc, err);
    if (!rc || !t->p.peers_optional)
        return rc;
    if (leads(t))
        mr_log(MR_LOG_WARN, "peers are off: %s", err->message);
    t->p.peers = false;
    return t->executor ? mr_executor_alone(t->executor, err) : 0;
}

static void describe(struct mr_tier *t)
{
    char spec[384] = "as its leader chose";
    if (leads(t))
        mr_tier_spec_text(&t->spec, spec, sizeof spec);
    snprintf(t->chosen, sizeof t->chosen, "node %u of %u: %s, peers %s, policy %s", t->node.node, t->node.nodes, spec,
             t->p.peers ? "on" : "off", t->p.policy);
}

static int open_all(struct mr_tier *t, struct mr_error *err)
{
    struct about me = {0};
    int rc = mr_tier_node_find(&t->p, &t->node, err);
    if (rc)
        return rc;
    t->p.peers &= t->node.nodes > 1;
    rc = mr_tier_node_agree(&t->node, look_at_node(t, &me, err), err);
    if (!rc)
        rc = mr_tier_node_agree(&t->node, gather_capacities(t, &me, err), err);
    if (!rc)
        rc = mr_tier_node_share(&t->node, leads(t) ? make_segment(t, err) : 0, &t->segment, err);
    if (rc)
        return rc;
    t->board = mr_segment_shared(t->segment);
    mr_segment_join(t->segment, t->node.local_rank);
    t->joined = true;
    rc = mr_tier_node_agree(&t->node, leads(t) ? make_executor(t, err) : 0, err);
    if (!rc && t->p.peers)
        rc = open_peers(t, err);
    if (rc)
        return rc;
    rc = mr_tier_node_agree(&t->node, leads(t) ? mr_executor_start(t->executor, err) : 0, err);
    if (!rc)
        describe(t);
    return rc;
}

int mr_tier_open(const struct mr_tier_params *p, struct mr_tier **out, struct mr_error *err)
{
    struct mr_tier *t = calloc(1, sizeof(*t));
    if (!t)
        return mr_error_set(err, -ENOMEM, "no memory for tiers");
    t->p = *p;
    t->p.order.samples = mr_dataset_count(p->dataset);
    int rc = open_all(t, err);
    t->p.key = NULL; /* the caller's, of open only */
    if (rc)
        mr_tier_close(t, false);
    else
        *out = t;
    return rc;
}

void mr_tier_close(struct mr_tier *t, bool clean)
{
    if (!t)
        return;
    struct mr_error err;
    if (clean && t->joined && !t->drained)
        mr_tier_drain(t, &err);
    mr_tier_stop(t);
    if (clean && t->joined) /* nobody's peer or leader goes while others still read */
        mr_tier_node_agree(&t->node, 0, &err);
    if (t->joined)
        mr_segment_leave(t->segment, t->node.local_rank);
    mr_executor_free(t->executor);
    mr_segment_close(t->segment);
    for (unsigned i = 0; i < MR_TIER_SSDS_MAX; i++)
        mr_ssd_close(t->ssd[i]);
    mr_tier_spec_done(&t->spec);
    mr_tier_node_done(&t->node);
    free(t->capacity);
    free(t);
}

/* ---- use ---- */

int mr_tier_seek(struct mr_tier *t, uint64_t epoch, uint64_t position, struct mr_error *err)
{
    atomic_store(&t->stopped, false);
    t->drained = false;
    return mr_segment_seek(t->segment, t->node.local_rank, epoch, position, mr_tier_stopped, t, err);
}

int mr_tier_drain(struct mr_tier *t, struct mr_error *err)
{
    t->drained = true;
    return mr_executor_drain(t->executor, mr_tier_stopped, t, err);
}

void mr_tier_stop(struct mr_tier *t)
{
    atomic_store(&t->stopped, true);
    if (t->segment)
        mr_segment_interrupt(t->segment, t->node.local_rank);
}

void mr_tier_count_found(struct mr_tier *t, uint64_t bytes)
{
    struct mr_tier_count *c = &t->board->from[MR_TIER_RAM];
    atomic_fetch_add_explicit(&c->samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
}

static struct mr_tier_counter counter(struct mr_tier_count *c)
{
    return (struct mr_tier_counter){.samples = atomic_load_explicit(&c->samples, memory_order_relaxed),
                                    .bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed),
                                    .wait_ns = atomic_load_explicit(&c->wait_ns, memory_order_relaxed)};
}

/* Both parts belong together: where one changed in between, the sum is beyond any time that can have passed. */
static uint64_t busy_ns(struct mr_tier_board *b)
{
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t now = mr_now_ns(), busy = atomic_load(&b->source_busy_ns);
        busy += atomic_load(&b->source_reading) ? now : 0;
        if (busy < now)
            return busy;
    }
    return 0;
}

void mr_tier_get_stats(struct mr_tier *t, struct mr_tier_stats *out)
{
    struct mr_tier_board *b = t->board;
    const uint64_t *mine = t->capacity + (size_t)t->node.node * t->classes;
    *out = (struct mr_tier_stats){
        .node = t->node.node, .nodes = t->node.nodes, .staging_capacity = mine[0], .ram_capacity = mine[1]};
    for (unsigned i = 0; i < MR_TIER_FROMS; i++) {
        out->from[i] = counter(&b->from[i]);
        out->fills[i] = counter(&b->fills[i]);
    }
    for (uint32_t c = 2; c < t->classes; c++)
        out->ssd_capacity += mine[c];
#define COPY(field) out->field = atomic_load_explicit(&b->field, memory_order_relaxed)
    COPY(source_bytes);
    COPY(source_reads);
    COPY(distinct_bytes);
    COPY(served);
    COPY(served_bytes);
    COPY(refetched);
    COPY(corrupt);
    COPY(ssd_refused);
    COPY(ram_bytes);
    COPY(ssd_bytes);
    COPY(threads);
    COPY(peers_lost);
#undef COPY
    out->source_busy_ns = busy_ns(b);
}

const char *mr_tier_chosen(const struct mr_tier *t)
{
    return t->chosen;
}
