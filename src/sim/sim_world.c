/* From a scenario to the world of policies: see sim_world.h. */
#include "sim/sim_world.h"
#include "base/common.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MB 1e6

uint64_t mr_sim_bytes(const struct mr_sim_workload *w, uint64_t id)
{
    return MR_MAX((uint64_t)1, (uint64_t)llround((double)w->size_mb[id] * MB));
}

static uint64_t bytes_of(void *user, uint64_t id)
{
    return mr_sim_bytes(user, id);
}

/* Nodes stage ahead as far as their buffers reach, an epoch at most, and are a step apart at a barrier. */
static uint64_t skew_of(const struct mr_sim_workload *w)
{
    const struct mr_scenario *s = w->scenario;
    double rows = s->system.classes[0].capacity_mb * (double)s->samples / w->total_mb + 2 * (double)w->per_node;
    return (uint64_t)fmin((rows + 1) * s->nodes, (double)s->samples);
}

static int make_schedule(const struct mr_sim_workload *w, struct mr_schedule **out, struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    const struct mr_schedule_params p = {.order = {.mode = s->order_mode,
                                                   .samples = s->samples,
                                                   .seed = s->seed,
                                                   .world = s->nodes,
                                                   .drop_last = true,
                                                   .shuffle_each_epoch = true},
                                         .epochs = s->epochs,
                                         .nodes = s->nodes,
                                         .local_batch = w->per_node,
                                         .whole_steps = true};
    return mr_schedule_create(&p, out, err);
}

static int make_nodes(struct mr_sim_world *sw, enum mr_policy_id policy, struct mr_error *err)
{
    int rc = 0;
    sw->nodes = calloc(sw->world.nodes, sizeof(*sw->nodes));
    if (!sw->nodes)
        return mr_error_set(err, -ENOMEM, "policies of %u nodes", sw->world.nodes);
    for (uint32_t i = 0; i < sw->world.nodes && !rc; i++)
        rc = mr_policy_create(policy, &sw->world, i, &sw->nodes[i], err);
    return rc;
}

int mr_sim_world_init(struct mr_sim_world *sw, struct mr_sim_workload *w, enum mr_policy_id policy, bool expected,
                      struct mr_error *err)
{
    const struct mr_scenario *s = w->scenario;
    unsigned classes = s->system.n_classes;
    *sw = (struct mr_sim_world){.capacity = malloc((uint64_t)s->nodes * classes * sizeof(*sw->capacity))};
    if (!sw->capacity)
        return mr_error_set(err, -ENOMEM, "capacities of %u nodes", s->nodes);
    for (uint32_t i = 0; i < s->nodes; i++)
        for (unsigned j = 0; j < classes; j++)
            sw->capacity[i * classes + j] = (uint64_t)fmin(s->system.classes[j].capacity_mb * MB, 0x1p62);
    sw->world = (struct mr_policy_world){.nodes = s->nodes,
                                         .classes = classes,
                                         .capacity = sw->capacity,
                                         .samples = s->samples,
                                         .epochs = s->epochs,
                                         .node_batch = (double)w->per_node,
                                         .epoch_share = (double)(w->steps_per_epoch * s->batch) / (double)s->samples,
                                         .total_bytes = (uint64_t)llround(w->total_mb * MB),
                                         .bytes_of = bytes_of,
                                         .user = w,
                                         .skew = skew_of(w),
                                         .horizon = s->epochs,
                                         .memory_bytes = (uint64_t)1 << 44, /* the exact engine has checked */
                                         .seed = s->seed,
                                         .memo = &sw->memo};
    if (s->size_stdev_mb <= 0)
        sw->world.sample_bytes = mr_sim_bytes(w, 0);
    int rc = expected ? 0 : make_schedule(w, &sw->world.schedule, err);
    if (!rc && !expected)
        rc = make_nodes(sw, policy, err);
    if (rc)
        mr_sim_world_done(sw);
    return rc;
}

void mr_sim_world_done(struct mr_sim_world *sw)
{
    for (uint32_t i = 0; sw->nodes && i < sw->world.nodes; i++)
        mr_policy_free(&sw->nodes[i]);
    free(sw->nodes);
    mr_policy_memo_done(&sw->memo);
    mr_schedule_free(sw->world.schedule);
    free(sw->capacity);
    *sw = (struct mr_sim_world){0};
}
