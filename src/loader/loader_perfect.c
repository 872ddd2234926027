/* Policy "perfect": what would a loader give that costs nothing? The first batches are made once, as many as there are
 * places for, and handed out in turn for every step. Their samples are those of the first epoch's beginning, whatever
 * the step: ids and content go together, the order does not. */
#include "loader/loader_internal.h"

static int wait_for_all(struct mr_loader *l, struct mr_error *err)
{
    for (uint64_t b = 0; b < l->stream.batches; b++) {
        struct slot *s = slot_of(l, b);
        int rc = mr_loader_wait_ready(l, s, MR_LOADER_FOREVER, err);
        if (rc)
            return rc;
        if (atomic_load(&s->failed)) {
            if (err)
                *err = s->error;
            return atomic_load(&s->failed);
        }
    }
    return 0;
}

int mr_perfect_start(struct mr_loader *l, struct mr_error *err)
{
    struct stream *s = &l->stream;
    if (l->prepared) {
        l->base = l->delivered;
        return 0;
    }
    s->batches = MR_MIN((uint64_t)l->n_slots, s->head_batches);
    s->samples = MR_MIN(s->head_samples, s->batches * l->p.batch_size);
    mr_loader_start_stream(l);
    int rc = wait_for_all(l, err);
    if (rc) {
        mr_loader_end_stream(l);
        return rc;
    }
    if (s->batches) {
        l->prepared = true;
        l->ring = (unsigned)s->batches;
    }
    return 0;
}

struct slot *mr_perfect_next(struct mr_loader *l)
{
    struct slot *s = slot_of(l, l->delivered);
    uint64_t index = l->delivered - l->base, left = l->n_samples - index * l->p.batch_size;
    s->batch.n = (uint32_t)MR_MIN((uint64_t)s->n, left);
    s->batch.epoch = l->epoch;
    s->batch.index = l->first_batch + index;
    s->batch.wait_ns = 0;
    s->batch.read_bytes = l->delivered < l->ring ? atomic_load(&s->read_bytes) : 0;
    if (l->tells_steps) {
        uint64_t now = mr_now_ns();
        mr_loader_tell_wait(l, s, now, now, true);
    }
    return s;
}
