/* Tiers before the final folder of a saver: memory (a folder of tmpfs), a disk of the node. Every rank has a folder of
 * its own in each (TIER/rank-R) and needs nobody there; from each tier its drain copies to the next, and to the final
 * folder together with the drains of the other ranks, as a save does.
 *
 *   save ──> [tier 0] ──drain──> [tier 1] ──drain──> final folder, completed by all ranks
 *
 * Invariants
 *  T1 A checkpoint leaves a tier only after a later one has it complete. After a kill, one of them has it.
 *  T2 What a tier holds never exceeds its capacity; the ones that are drained make room first, oldest first. A save
 * that will never fit goes to the final folder directly, when the drain is idle. T3 One thread drains, one checkpoint
 * at a time, the oldest of the nearest tier first. What it reads is compared with its checksums before it is given on.
 *  T4 A step that is not drained yet is not saved again before it is. */
#ifndef MR_CHECKPOINT_STATE_TIER_H
#define MR_CHECKPOINT_STATE_TIER_H

#include "checkpoint/state_save.h"

struct mr_pace;
struct mr_state_tiers;

/* `final` and `pace` are borrowed. job: of the saver, the same on all ranks. What an earlier job left in the tiers is
 * drained, of several ranks what all of them have. */
int mr_state_tiers_create(const struct mr_saver_params *p, const struct mr_save_place *final, const char *job,
                          struct mr_pace *pace, struct mr_state_tiers **out, struct mr_error *err);
/* Cuts a drain that is under way short: the next job finishes it. Accepts NULL. */
void mr_state_tiers_free(struct mr_state_tiers *t);
/* The time is over: what is not drained stays where it is. Nobody waits for it any more. */
void mr_state_tiers_cut(struct mr_state_tiers *t);
/* Where a save of so many bytes is written to; may wait for a drain. */
const struct mr_save_place *mr_state_tiers_place(struct mr_state_tiers *t, uint64_t step, uint64_t bytes);
/* The same, after that place failed before anything was written: the final folder. */
const struct mr_save_place *mr_state_tiers_around(struct mr_state_tiers *t);
/* A save is complete at that place. */
int mr_state_tiers_add(struct mr_state_tiers *t, const struct mr_save_place *at, const struct mr_save *s,
                       struct mr_error *err);
/* Checkpoints that are not in the final folder yet. */
unsigned mr_state_tiers_pending(struct mr_state_tiers *t);
/* Waits until that one, or all, are there or failed to get there; 0 or the first error nobody was told yet. */
int mr_state_tiers_wait(struct mr_state_tiers *t, uint64_t step, struct mr_error *err);
int mr_state_tiers_error(struct mr_state_tiers *t, struct mr_error *err);

#endif
