/* The drain: a thread of the leading rank that copies complete checkpoints from the burst buffer to where they stay, in
 * the order in which they were saved, and frees the buffer.
 *
 *   save ──add──> [ waiting ][ waiting ] ──> draining ──> on the final storage, out of the buffer
 *     ^                                         └──fails──> failed: stays in the buffer, the next run tries again
 *     └── room: waits while what is in the buffer and the new one exceed its capacity
 *
 * README.md has the invariants (B1 to B6). Thread safety: add, room, idle and records are for the thread that owns the
 * checkpointer; the drain's own thread is inside. */
#ifndef MR_CHECKPOINT_CHECKPOINT_DRAIN_H
#define MR_CHECKPOINT_CHECKPOINT_DRAIN_H

#include "checkpoint/checkpoint_engine.h"

struct mr_checkpoint_drainer;

/* All pointers are borrowed and outlive the drainer. capacity 0: what the buffer's file system has free. */
int mr_checkpoint_drainer_create(const struct mr_checkpoint_params *p, const struct mr_checkpoint_place *buffer,
                                 const struct mr_checkpoint_place *final, uint64_t capacity,
                                 struct mr_checkpoint_drainer **out, struct mr_error *err);
/* Cuts a drain that is under way short (the next run finishes it) and waits for the thread. Accepts NULL. */
void mr_checkpoint_drainer_free(struct mr_checkpoint_drainer *d);
/* Once, before the first save: clears the buffer's folder of unfinished saves and queues what an earlier run left. */
int mr_checkpoint_drainer_recover(struct mr_checkpoint_drainer *d, unsigned *found, struct mr_error *err);
/* Waits until the buffer has room for a checkpoint of so many bytes. 0; MR_E_LIMIT when it never will (err says why);
 * MR_E_INTERRUPTED; -ENOMEM. After 0 an add cannot fail. */
int mr_checkpoint_drainer_room(struct mr_checkpoint_drainer *d, uint64_t step, uint64_t bytes, struct mr_error *err);
/* The checkpoint is complete in the buffer. */
void mr_checkpoint_drainer_add(struct mr_checkpoint_drainer *d, uint64_t step, uint64_t bytes);
/* While idle: removes what the buffer has of this step; nothing is told if that fails, the next run will find it. */
void mr_checkpoint_drainer_drop(struct mr_checkpoint_drainer *d, uint64_t step);
/* Waits until nothing waits or drains. 0 or MR_E_INTERRUPTED; failed drains do not matter here. */
int mr_checkpoint_drainer_idle(struct mr_checkpoint_drainer *d, struct mr_error *err);
/* The first failure so far, 0 without one. */
int mr_checkpoint_drainer_failure(struct mr_checkpoint_drainer *d, struct mr_error *err);
/* Checkpoints that are in the buffer. */
uint64_t mr_checkpoint_drainer_left(struct mr_checkpoint_drainer *d);
/* Finished drains from number `first` on; how many were written to `out`. */
uint64_t mr_checkpoint_drainer_records(struct mr_checkpoint_drainer *d, uint64_t first,
                                       struct mr_checkpoint_drained *out, uint64_t cap);

#endif
