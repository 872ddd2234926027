/* Which checkpoints all ranks have in their tiers: each says in the final folder what it has, and reads what the others
 * have (FOLDER/.have-WHAT-JOB/rank-R, a line each with the step and which save it is of). One rank needs no folder for
 * it. A step that two jobs saved is two checkpoints: ranks must not load one each. */
#ifndef MR_CHECKPOINT_STATE_HAVE_H
#define MR_CHECKPOINT_STATE_HAVE_H

#include "checkpoint/state_save.h"

struct mr_state_had {
    uint64_t step, save; /* hash of the save's id */
};

struct mr_state_have {
    struct mr_state_had *item; /* ascending */
    size_t n, cap;
};

/* TIER/rank-R. */
void mr_state_tier_folder(const char *tier, uint32_t rank, char out[MR_CHECKPOINT_PATH]);
/* Waits for all ranks, as long as a save may. */
int mr_state_have_common(const struct mr_save_place *final, const struct mr_save_place *const *tier, size_t tiers,
                         const char *job, const char *what, struct mr_state_have *out, struct mr_error *err);
bool mr_state_have_step(const struct mr_state_have *h, uint64_t step, const char *id);
uint64_t mr_state_save_hash(const char *id);
void mr_state_have_done(struct mr_state_have *h);
/* Leader, when a job begins: what earlier jobs said. */
void mr_state_have_forget(const struct mr_save_place *final, const char *job);

#endif
