/* The streams of the shared engine: which samples a node reads, in which item, and how large they are. */
#include "sim/sim_shared_internal.h"
#include "base/common.h"

#include <assert.h>
#include <string.h>

static int load_ids(struct shared *x, uint64_t epoch)
{
    int rc = mr_sim_load_epoch(x->w, (uint32_t)epoch, x->err);
    uint32_t *into = x->ids[epoch % 2];
    for (uint64_t step = 0; step < x->w->steps_per_epoch && !rc; step++)
        for (uint32_t i = 0; i < x->s->nodes; i++)
            memcpy(into + i * x->epoch_len + step * x->w->per_node,
                   x->w->stream + step * x->s->batch + i * x->w->per_node, x->w->per_node * sizeof(*into));
    if (!rc && x->policy.ops->redraw)
        for (uint32_t i = 0; i < x->s->nodes; i++)
            x->policy.ops->redraw(&x->policy, (uint32_t)epoch, i, into + i * x->epoch_len, x->epoch_len, x->s->seed);
    return rc;
}

int mr_shared_load_epoch(struct shared *x, uint64_t epoch)
{
    int rc = x->expected ? 0 : load_ids(x, epoch);
    x->base_s[epoch % 2] = x->now;
    for (uint64_t k = 0; k < x->s->nodes * x->items_per_epoch; k++)
        x->done_at[epoch % 2][k] = -1;
    x->epoch_loaded = epoch + 1;
    return rc;
}

int mr_shared_policy_stream(void *user, uint32_t epoch, uint32_t node, uint32_t *out, struct mr_error *err)
{
    struct shared *x = user;
    if (x->epoch_loaded != epoch + 1u || x->training) {
        int rc = mr_sim_load_epoch(x->w, epoch, err);
        if (rc)
            return rc;
        x->epoch_loaded = epoch + 1u;
    }
    for (uint64_t step = 0; step < x->w->steps_per_epoch; step++)
        memcpy(out + step * x->w->per_node, x->w->stream + step * x->s->batch + node * x->w->per_node,
               x->w->per_node * sizeof(*out));
    return 0;
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
    if (x->expected)
        return x->w->step_mb[item * x->s->nodes + node];
    struct item_ids it = mr_shared_item_ids(x, node, item);
    double mb = 0;
    for (uint64_t k = 0; k < it.n; k++)
        mb += x->w->size_mb[it.ids[k]];
    return mb;
}
