/* Tiers before the final folder of a saver: memory (a folder of tmpfs), a disk of the node, a burst buffer. Every rank
 * has a folder of its own in each (TIER/rank-R) and needs nobody there; from each tier its drain copies to the next, and
 * to the final folder together with the drains of the other ranks, as a save does.
 *
 *   save ──> [tier 0] ──drain──> [tier 1] ──drain──> final folder, completed by all ranks
 *
 * README.md has the invariants T1 to T6. */
#ifndef MR_CHECKPOINT_STATE_TIER_H
#define MR_CHECKPOINT_STATE_TIER_H

#include "checkpoint/state_have.h"

struct mr_pace;
struct mr_state_tiers;

/* `final` and `pace` are borrowed. What an earlier job left in the tiers is drained, by all ranks together. */
int mr_state_tiers_create(const struct mr_saver_params *p, const struct mr_save_place *final, struct mr_pace *pace,
                          struct mr_state_tiers **out, struct mr_error *err);
/* Cuts a drain that is under way short: the next job finishes it. Accepts NULL. */
void mr_state_tiers_free(struct mr_state_tiers *t);
/* The time is over: what is not drained stays where it is. Nobody waits for it any more. */
void mr_state_tiers_cut(struct mr_state_tiers *t);
/* Waits until the first tier has room for a save of so many bytes. MR_E_LIMIT: it never will; MR_E_INTERRUPTED. */
int mr_state_tiers_room(struct mr_state_tiers *t, uint64_t step, uint64_t bytes, struct mr_error *err);
struct mr_save_place *mr_state_tiers_first(struct mr_state_tiers *t);
/* Waits until that step, or no step at all, waits or drains; MR_E_INTERRUPTED. Drains that failed do not matter here. */
int mr_state_tiers_wait(struct mr_state_tiers *t, uint64_t step, struct mr_error *err);
/* A save is complete: in the first tier, or (it went around) in the final folder, and what the tier has of its step is out
 * of date. */
int mr_state_tiers_add(struct mr_state_tiers *t, const struct mr_save *s, struct mr_error *err);
/* Checkpoints that are not in the final folder yet; `failed`: also those that failed to get there. */
unsigned mr_state_tiers_pending(struct mr_state_tiers *t, bool failed);
/* The first failure of all, or (untold) the first that was not told yet. */
int mr_state_tiers_failure(struct mr_state_tiers *t, bool untold, struct mr_error *err);
/* How many an earlier job left that are drained now; waits until that is known. */
unsigned mr_state_tiers_recovered(struct mr_state_tiers *t);
/* Finished drains to the final folder from number `first` on; how many were written to `out`. */
uint64_t mr_state_tiers_drains(struct mr_state_tiers *t, uint64_t first, struct mr_checkpoint_drained *out,
                               uint64_t cap);
/* The newest checkpoint of the first tier that is not drained, or that of a step: how many ranks saved it, 0: none. Its
 * share R is in the folder that mr_state_tier_folder names. */
uint32_t mr_state_tiers_find(struct mr_state_tiers *t, uint64_t *step, bool *all_shares);

#endif
