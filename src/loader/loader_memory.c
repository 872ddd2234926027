/* The set in memory (MR_LOADER_IN_MEMORY): a second loader, the filler, reads every sample once, as stored and in the
 * order of the files, with the same threads, queue and transfer size; afterwards all readers of the loader fetch from
 * memory (dataset/fetch_memory.h). The rest of a sample's way, from decoding on, is the same in every epoch.
 *
 * Invariants: M1 `filler` changes under `lock`, so that a stop from another thread finds it. M2 nobody fetches from the
 * set before it is complete. */
#include "loader/loader_internal.h"
#include "base/cgroup.h"
#include "dataset/fetch_memory.h"

#include <errno.h>

static void set_filler(struct mr_loader *l, struct mr_loader *filler)
{
    pthread_mutex_lock(&l->lock);
    l->filler = filler;
    if (filler && atomic_load(&l->stop))
        mr_loader_stop(filler);
    pthread_mutex_unlock(&l->lock);
}

/* What the batches of a loader take once all of them were used. */
static uint64_t ring_bytes(const struct mr_loader *l)
{
    return l->slab_bytes * l->n_slots;
}

/* The set and both rings are mapped first and taken as they fill, so each alone can find room that all together do not
 * have, which the kernel finds out by ending the process. */
static int check_room(const struct mr_loader *l, const struct mr_loader *filler, struct mr_error *err)
{
    uint64_t need = l->info.sample_bytes + ring_bytes(l) + ring_bytes(filler);
    if (!mr_memory_require(need, "the data set and its batches in memory", err))
        return 0;
    return mr_error_hint(err, "read it from storage, or keep a part: tiers ram=SIZE"), -ENOMEM;
}

/* What it reads is told as fetches without a place in the training; it keeps no consumer waiting. */
static int open_filler(struct mr_loader *l, struct mr_error *err)
{
    struct mr_loader_params p = l->p;
    struct mr_loader *filler;
    unsigned kept = MR_LOADER_DIRECT | MR_LOADER_IN_PLACE;
    p.dataset = l->dataset_path;
    p.store = NULL;
    p.order = (struct mr_order_params){.mode = MR_ORDER_SEQUENTIAL, .world = 1};
    p.flags = (p.flags & kept) | MR_LOADER_RAW | (p.flags & MR_LOADER_VERIFY ? LOADER_RAW_WITH_CHECKSUMS : 0);
    p.preprocess = NULL;
    p.transform = NULL;
    p.drop_last_batch = false;
    p.max_samples = p.last_epoch = p.row_bytes = p.memory_bytes = 0;
    p.lookahead = MR_MAX(p.lookahead, 1u);
    int rc = mr_loader_open_on(&p, l->store, &filler, err);
    if (rc)
        return rc;
    filler->fills = true;
    filler->tells_steps = false;
    rc = check_room(l, filler, err);
    if (!rc)
        rc = mr_loader_start_epoch(filler, 0, err);
    if (!rc)
        rc = mr_memory_set_create(l->info.samples, l->info.sample_bytes, &l->memory, err);
    if (rc)
        mr_loader_close(filler);
    else
        set_filler(l, filler);
    return rc;
}

static void close_filler(struct mr_loader *l)
{
    struct mr_loader *filler = l->filler;
    set_filler(l, NULL);
    mr_loader_close(filler);
}

static void forget(struct mr_loader *l)
{
    close_filler(l);
    if (l->memory)
        mr_fetch_source_free(mr_memory_set_source(l->memory));
    l->memory = NULL;
    l->loaded = false;
}

static int add_batch(struct mr_loader *l, struct mr_batch *b, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < b->n; i++)
        rc = mr_memory_set_add(l->memory, b->rows[i], b->bytes[i], err);
    l->loaded_bytes += b->read_bytes;
    mr_loader_release(l->filler, b);
    return rc;
}

static void complete(struct mr_loader *l)
{
    close_filler(l);
    for (unsigned i = 0; i < l->n_threads; i++) /* M2 */
        mr_dataset_reader_use(l->threads[i].reader, mr_memory_set_source(l->memory));
    l->loaded = true;
}

int mr_loader_load(struct mr_loader *l, uint64_t timeout_ns, struct mr_error *err)
{
    if (!(l->p.flags & MR_LOADER_IN_MEMORY) || l->loaded)
        return 0;
    uint64_t start = mr_now_ns();
    int rc = l->filler ? 0 : open_filler(l, err);
    while (!rc) {
        struct mr_batch *b;
        uint64_t used = mr_now_ns() - start;
        uint64_t left = timeout_ns == MR_LOADER_FOREVER ? timeout_ns : timeout_ns - MR_MIN(used, timeout_ns);
        rc = mr_loader_next_timed(l->filler, left, &b, err);
        if (rc == 0) {
            complete(l);
            return 0;
        }
        rc = rc > 0 ? add_batch(l, b, err) : rc;
        if (!rc && left == 0)
            rc = mr_error_plain(err, MR_E_TIMEOUT, "the data set is not in memory yet");
    }
    if (rc != MR_E_TIMEOUT && rc != MR_E_INTERRUPTED) /* begins anew next time */
        forget(l);
    return rc;
}

void mr_loader_forget_memory(struct mr_loader *l)
{
    forget(l);
}
