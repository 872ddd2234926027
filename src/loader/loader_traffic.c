/* What this loader wants of its data set's device, as the device's arbiter sees it (store/traffic.h): figures that the
 * statistics keep anyway, read by another thread. Reading a sample costs nothing more. */
#include "loader/loader_internal.h"
#include "store/traffic.h"

#define WAIT_NS MR_NS_PER_MS /* shorter waits of the consumer are the hand-over of a batch */

static void look(void *user, uint64_t now_ns, struct mr_demand *out)
{
    struct mr_loader *l = user;
    uint64_t waits = atomic_load_explicit(&l->wait_since, memory_order_relaxed);
    out->reads = atomic_load_explicit(l->read_ahead ? &l->next_ticket : &l->samples, memory_order_relaxed);
    out->threads = l->n_threads;
    out->waits = waits && now_ns > waits + WAIT_NS;
    for (unsigned i = 0; i < l->n_threads; i++) {
        out->read_ns += atomic_load_explicit(&l->threads[i].read_ns, memory_order_relaxed);
        out->reading += mr_loader_reads_since(&l->threads[i]) != 0;
    }
}

void mr_loader_join_traffic(struct mr_loader *l)
{
    if (l->tiered || l->is_perfect || l->p.flags & MR_LOADER_IN_MEMORY) /* somebody else reads, or nobody does */
        return;
    l->device = mr_traffic_get(l->store, mr_dataset_root(l->dataset));
    l->reader = mr_traffic_join(l->device, look, l);
}

void mr_loader_leave_traffic(struct mr_loader *l)
{
    mr_traffic_leave(l->reader);
    mr_traffic_put(l->device);
}
