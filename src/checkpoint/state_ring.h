/* Memory between the caller's tensors and the storage: slots of one chunk (MR_STATE_CHUNK) each, touched once and used again and again,
 * because writing into pages that were never touched costs six times as much as copying. Who copies takes a free slot
 * and waits where there is none; who has written it gives it back. That wait is the back-pressure of a saver: by bytes,
 * not by saves. */
#ifndef MR_CHECKPOINT_STATE_RING_H
#define MR_CHECKPOINT_STATE_RING_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

struct mr_state_ring;

int mr_state_ring_create(struct mr_state_ring **out, struct mr_error *err);
/* All slots must have been given back. Accepts NULL. */
void mr_state_ring_free(struct mr_state_ring *r);
size_t mr_state_ring_slots(const struct mr_state_ring *r);
/* At least so many slots, touched by `threads` threads; never fewer than before. One thread at a time. */
int mr_state_ring_grow(struct mr_state_ring *r, size_t slots, unsigned threads, struct mr_error *err);
/* From now on the slots' memory is known to CUDA devices. */
void mr_state_ring_pin(struct mr_state_ring *r);
/* NULL: none is free. */
uint8_t *mr_state_ring_try(struct mr_state_ring *r);
/* Waits; adds to *waited_ns if it had to. Slots are aligned to pages. */
uint8_t *mr_state_ring_take(struct mr_state_ring *r, uint64_t *waited_ns);
void mr_state_ring_give(struct mr_state_ring *r, uint8_t *slot);

#endif
