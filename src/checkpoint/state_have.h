/* Which checkpoints all ranks have in their tiers: each says in the final folder what it has, and reads what the others
 * have (FOLDER/.have-WHAT-JOB/rank-R, one step a line). One rank needs no folder for it. */
#ifndef MR_CHECKPOINT_STATE_HAVE_H
#define MR_CHECKPOINT_STATE_HAVE_H

#include "checkpoint/state_save.h"

struct mr_state_have {
    uint64_t *step; /* ascending */
    size_t n, cap;
};

/* TIER/rank-R. */
void mr_state_tier_folder(const char *tier, uint32_t rank, char out[MR_CHECKPOINT_PATH]);
/* Waits for all ranks, as long as a save may. */
int mr_state_have_common(const struct mr_save_place *final, const struct mr_save_place *const *tier, size_t tiers,
                         const char *job, const char *what, struct mr_state_have *out, struct mr_error *err);
bool mr_state_have_step(const struct mr_state_have *h, uint64_t step);
void mr_state_have_done(struct mr_state_have *h);
/* Leader, when a job begins: what earlier jobs said. */
void mr_state_have_forget(const struct mr_save_place *final, const char *job);

#endif
