/* The world of a node's policy, and the walk through the node's accesses: row by row, in a row rank by rank (E1). */
#include "tier/executor_internal.h"

#include <errno.h>
#include <stdlib.h>

#define EPOCHS_UNKNOWN 64u /* assumed to come where nobody said how many */

uint64_t mr_executor_bytes_of(void *user, uint64_t id)
{
    const struct mr_executor *x = user;
    struct mr_manifest_pos pos;
    uint64_t bytes = x->info.sample_max_bytes;
    if (x->info.sample_min_bytes != x->info.sample_max_bytes &&
        mr_manifest_locate(mr_dataset_manifest(x->p.dataset), id, &pos, NULL) >= 0)
        bytes = mr_dataset_stored_bytes(x->p.dataset, id);
    return MR_ALIGN_UP(MR_MAX(bytes + x->extra, 1u), (uint64_t)MR_SPACE_ALIGN);
}

/* Rounded; where sizes differ by half a place on average. */
static uint64_t total_bytes(const struct mr_dataset_info *info, unsigned extra)
{
    uint64_t each = MR_ALIGN_UP(MR_MAX(info->sample_max_bytes + extra, 1u), (uint64_t)MR_SPACE_ALIGN);
    if (info->sample_min_bytes == info->sample_max_bytes)
        return info->samples * each;
    return info->sample_bytes + info->samples * (extra + MR_SPACE_ALIGN / 2);
}

uint64_t mr_executor_set_bytes(const struct mr_dataset_info *info, unsigned read_flags)
{
    uint64_t total = total_bytes(info, read_flags & MR_DATASET_VERIFY ? EXECUTOR_EXTRA : 0);
    return total + total / 500 + 4096;
}

uint64_t mr_executor_exact_bytes(struct mr_executor *x, uint64_t id)
{
    unsigned flags = x->read_flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0;
    if (mr_fetch_plan(&x->sizer, id, flags, &x->sized, NULL))
        return mr_executor_bytes_of(x, id); /* reading it says what is wrong */
    return x->sized.length;
}

void mr_executor_free_world(struct mr_executor *x)
{
    mr_policy_free(&x->policy);
    mr_schedule_free(x->schedule);
    x->schedule = NULL;
    free(x->walk.ids);
    x->walk = (struct walk){0};
}

static int make_schedule(struct mr_executor *x, uint64_t epoch, uint64_t position, struct mr_error *err)
{
    const struct mr_tier_params *p = &x->p;
    uint64_t epochs = p->last_epoch == UINT64_MAX ? EPOCHS_UNKNOWN : MR_MAX(p->last_epoch, epoch) - epoch + 1;
    struct mr_schedule_params s = {.order = p->order,
                                   .position = position,
                                   .epochs = epochs,
                                   .nodes = x->nodes,
                                   .first_rank = x->first_rank,
                                   .local_batch = p->batch_size,
                                   .whole_steps = p->whole_steps,
                                   .rank_max = p->rank_max};
    s.order.epoch = epoch;
    s.order.rank = 0;
    return mr_schedule_create(&s, &x->schedule, err);
}

static void describe_world(struct mr_executor *x)
{
    struct mr_schedule *s = x->schedule;
    uint64_t first = mr_schedule_first_epoch(s), last = mr_schedule_last_epoch(s), n = x->info.samples;
    bool equal = x->info.sample_min_bytes == x->info.sample_max_bytes;
    uint64_t world = mr_schedule_world(s), each = mr_executor_bytes_of(x, 0);
    double share = (double)(mr_schedule_rows(s, last) * world) / (double)n;
    x->world = (struct mr_policy_world){
        .nodes = x->nodes,
        .classes = x->classes,
        .capacity = x->capacity,
        .samples = n,
        .epochs = last - first + 1,
        .node_batch = (double)x->p.batch_size * (double)world / x->nodes,
        .epoch_share = MR_MIN(share, 1.0),
        .sample_bytes = equal ? each : 0,
        .total_bytes = total_bytes(&x->info, x->extra),
        .bytes_of = mr_executor_bytes_of,
        .user = x,
        .schedule = s,
        .skew = (x->depth + x->p.batch_size) * world,
        .seed = x->p.order.seed,
    };
    x->world.memory_bytes = mr_policy_memory(&x->world);
}

int mr_executor_make_world(struct mr_executor *x, uint64_t epoch, uint64_t position, struct mr_error *err)
{
    mr_executor_free_world(x);
    int rc = make_schedule(x, epoch, position, err);
    if (rc)
        return rc;
    describe_world(x);
    rc = mr_policy_create(x->policy_id, &x->world, x->node, &x->policy, err);
    if (rc) {
        mr_error_context(err, "policy '%s'", x->p.policy);
        return rc;
    }
    x->walk = (struct walk){.epoch = epoch};
    x->walk.ids = malloc((size_t)x->ranks * EXECUTOR_BLOCK * sizeof(*x->walk.ids));
    if (!x->walk.ids)
        return mr_error_set(err, -ENOMEM, "no memory to plan %u ranks", x->ranks);
    x->world_epoch = epoch;
    x->world_position = position;
    x->fills_end = false;
    return 0;
}

/* The ids of the next rows of all ranks of the node. */
static int load_block(struct mr_executor *x, struct mr_error *err)
{
    struct walk *k = &x->walk;
    uint64_t left = mr_schedule_rows(x->schedule, k->epoch) - k->row, rows = MR_MIN(left, (uint64_t)EXECUTOR_BLOCK);
    for (uint32_t r = 0; r < x->ranks; r++) {
        int64_t n = mr_schedule_ids(x->schedule, k->epoch, x->first_rank[x->node] + r, k->row,
                                    k->ids + (size_t)r * EXECUTOR_BLOCK, rows, err);
        if (n != (int64_t)rows)
            return n < 0 ? (int)n : mr_error_plain(err, MR_E_INTERNAL, "the schedule ends before its epoch");
    }
    k->block = k->row;
    k->rows = rows;
    return 0;
}

bool mr_executor_at(struct mr_executor *x, uint64_t *id, uint64_t *access)
{
    struct walk *k = &x->walk;
    while (!k->end && k->row >= mr_schedule_rows(x->schedule, k->epoch)) {
        k->end = k->epoch >= mr_schedule_last_epoch(x->schedule);
        k->epoch++;
        k->row = k->rows = k->block = 0;
    }
    if (k->end)
        return false;
    if (k->row >= k->block + k->rows) {
        struct mr_error err;
        if (load_block(x, &err)) {
            mr_segment_fail(x->segment, &err);
            x->failed = k->end = true;
            return false;
        }
    }
    *id = k->ids[(size_t)k->rank * EXECUTOR_BLOCK + (k->row - k->block)];
    *access = mr_schedule_access(x->schedule, k->epoch, k->row, x->first_rank[x->node] + k->rank);
    return true;
}

void mr_executor_advance(struct mr_executor *x)
{
    struct walk *k = &x->walk;
    k->planned = false;
    if (++k->rank == x->ranks) {
        k->rank = 0;
        k->row++;
    }
}
