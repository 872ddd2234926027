/* Memory between the caller's tensors and the storage: slots of one chunk (MR_STATE_CHUNK) each, touched once and used again and again,
 * because writing into pages that were never touched costs six times as much as copying. Who copies takes a free slot
 * and waits where there is none; who has written it gives it back. That wait is the back-pressure of a saver: by bytes,
 * not by saves. */
#ifndef MR_CHECKPOINT_STATE_RING_H
#define MR_CHECKPOINT_STATE_RING_H

#include "base/vec.h"

#include <millrace/error.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct mr_pace;
struct mr_state_ring {
    MR_VEC(uint8_t *) slot; /* all */
    size_t pinned;          /* so many of them are known to CUDA devices */
    pthread_mutex_t lock;
    pthread_cond_t given;   /* a slot is free */
    MR_VEC(uint8_t *) free; /* stack; room for all slots; under the lock */
};

void mr_state_ring_init(struct mr_state_ring *r);
/* All slots must have been given back. */
void mr_state_ring_done(struct mr_state_ring *r);
/* At least so many slots, touched by `threads` threads; never fewer than before. One thread at a time. */
int mr_state_ring_grow(struct mr_state_ring *r, size_t slots, unsigned threads, struct mr_error *err);
/* From now on the slots' memory is known to CUDA devices. */
void mr_state_ring_pin(struct mr_state_ring *r);
/* Waits, which hurries the writers (`pace`) and is added to *waited_ns. Slots are aligned to pages. */
uint8_t *mr_state_ring_take(struct mr_state_ring *r, struct mr_pace *pace, uint64_t *waited_ns);
void mr_state_ring_give(struct mr_state_ring *r, uint8_t *slot);

#endif
