/* The streams of the shared engine: which samples a node reads, in which item, and how large they are. */
#include "sim/sim_shared_internal.h"
#include "base/common.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Policies count in 64 bits. */
static int redraw(struct shared *x, uint64_t epoch, uint32_t node, uint32_t *ids)
{
    uint64_t *wide = malloc(x->epoch_len * sizeof(*wide));
    if (!wide)
        return -ENOMEM;
    for (uint64_t k = 0; k < x->epoch_len; k++)
        wide[k] = ids[k];
    x->ops->redraw(x->world.nodes[node].state, epoch, wide, x->epoch_len);
    for (uint64_t k = 0; k < x->epoch_len; k++)
        ids[k] = (uint32_t)wide[k];
    free(wide);
    return 0;
}

static int load_ids(struct shared *x, uint64_t epoch)
{
    int rc = mr_sim_load_epoch(x->w, (uint32_t)epoch, x->err);
    uint32_t *into = x->ids[epoch % 2];
    for (uint64_t step = 0; step < x->w->steps_per_epoch && !rc; step++)
        for (uint32_t i = 0; i < x->s->nodes; i++)
            memcpy(into + i * x->epoch_len + step * x->w->per_node,
                   x->w->stream + step * x->s->batch + i * x->w->per_node, x->w->per_node * sizeof(*into));
    for (uint32_t i = 0; i < x->s->nodes && !rc && x->ops->redraw; i++)
        rc = redraw(x, epoch, i, into + i * x->epoch_len);
    return rc;
}

uint64_t mr_shared_access(const struct shared *x, uint32_t node, uint64_t k)
{
    return mr_schedule_access(x->world.world.schedule, k / x->epoch_len, k % x->epoch_len, node);
}

int mr_shared_load_epoch(struct shared *x, uint64_t epoch)
{
    int rc = mr_is_expected(x) ? 0 : load_ids(x, epoch);
    x->base_s[epoch % 2] = x->now;
    for (uint64_t k = 0; k < x->s->nodes * x->items_per_epoch; k++)
        x->done_at[epoch % 2][k] = -1;
    x->epoch_loaded = epoch + 1;
    return rc;
}

struct item_ids mr_shared_item_ids(const struct shared *x, uint32_t node, uint64_t item)
{
    uint64_t epoch = item / x->items_per_epoch, in_epoch = item % x->items_per_epoch;
    uint64_t step = in_epoch / x->items_per_step, first = in_epoch % x->items_per_step * x->grain;
    uint64_t at = step * x->w->per_node + first;
    assert(epoch + 2 >= x->epoch_loaded && epoch < x->epoch_loaded); /* S3: two epochs are at hand */
    return (struct item_ids){x->ids[epoch % 2] + node * x->epoch_len + at, MR_MIN(x->grain, x->w->per_node - first),
                             epoch * x->epoch_len + at};
}

double mr_shared_item_mb(const struct shared *x, uint32_t node, uint64_t item)
{
    if (mr_is_expected(x))
        return x->w->step_mb[item * x->s->nodes + node];
    struct item_ids it = mr_shared_item_ids(x, node, item);
    double mb = 0;
    for (uint64_t k = 0; k < it.n; k++)
        mb += x->w->size_mb[it.ids[k]];
    return mb;
}
