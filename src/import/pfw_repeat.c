/* Events that stand in a .pfw more than once. DFTracer collects events in memory, and a fork copies what is not written
 * yet: every worker of a DataLoader then writes its parent's events, under the parent's numbers, once more. An event
 * has an id that grows within its process, so a repeated one is an id that was seen before with the same content; two
 * short calls of the same microsecond have two ids and stay two.
 *
 * Cost: a comparison per event while ids grow; from the first one that does not, a look-up per event of the thread. */
#include "base/common.h"
#include "base/rng.h"
#include "import/pfw_internal.h"

#include <errno.h>

static uint64_t content_key(const struct pfw_lane *l, uint32_t i)
{
    const struct mr_columns *c = &l->c;
    uint64_t key = mr_mix64(c->start_ns[i] ^ mr_mix64(l->id[i]));
    key = mr_mix64(key ^ c->end_ns[i]);
    key = mr_mix64(key ^ ((uint64_t)c->file[i] << 16 | c->call[i]));
    return mr_mix64(key ^ (uint64_t)c->result[i] ^ mr_mix64(c->offset[i]));
}

int mr_pfw_repeats(struct pfw_lane *l, int64_t id)
{
    uint32_t i = l->n;
    l->id[i] = id >= 0 ? (uint64_t)id + 1 : 0;
    bool fresh = l->id[i] > l->top_id, looked = l->seen.used;
    l->top_id = MR_MAX(l->top_id, l->id[i]);
    if (id < 0 || (fresh && !looked) || l->top_id < 2) /* ids that are all the same tell nothing */
        return 0;
    for (uint32_t e = 0; !looked && e < i; e++) {
        uint64_t *at = l->id[e] ? mr_map_put(&l->seen, content_key(l, e)) : NULL;
        if (l->id[e] && !at)
            return -ENOMEM;
        if (at)
            *at = 1;
    }
    uint64_t *at = mr_map_put(&l->seen, content_key(l, i));
    if (!at)
        return -ENOMEM;
    return (int)(*at)++ > 0;
}
