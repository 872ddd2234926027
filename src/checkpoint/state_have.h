/* Which checkpoints are whole in the tiers of all ranks: each rank says in the final folder which shares it finds, and
 * reads what the others find (FOLDER/.have-WHAT-JOB/rank-R, a line each). One rank needs no folder for it. A step that
 * two jobs saved is two checkpoints: ranks must not load one each.
 *
 * A share is what one rank of the job that saved has in a tier: TIER/rank-R/step-N. Rank r of a job of another size takes
 * the shares that are r modulo its world. */
#ifndef MR_CHECKPOINT_STATE_HAVE_H
#define MR_CHECKPOINT_STATE_HAVE_H

#include "checkpoint/state_save.h"

/* A share; in the list of what is common, the whole checkpoint. */
struct mr_state_had {
    uint64_t step, bytes, time_ns; /* time: of the newest list */
    char id[64];                   /* of the save; "-": of a version that named none, "": damaged */
    bool fsync;
    uint32_t share, world; /* of the job that saved it */
    size_t tier;           /* of a share */
};

struct mr_state_have {
    struct mr_state_had *item;
    size_t n, cap;
};

/* All of one job in one folder, TIER/step-N: what older versions left in a burst buffer. */
#define MR_STATE_ALL_SHARES UINT32_MAX

/* TIER/rank-R, or TIER. */
struct mr_path mr_state_tier_folder(const char *tier, uint32_t share);
/* The folder of that rank in a tier. */
int mr_state_tier_open(const struct mr_saver_tier *of, uint32_t rank, struct mr_events *events,
                       struct mr_checkpoint_place *out, struct mr_error *err);
/* Waits for all ranks, as long as a save may. *mine: the shares of this rank, by tier, step, save and share. */
int mr_state_have_common(const struct mr_save_place *final, const struct mr_checkpoint_place *const *tier, size_t tiers,
                         const char *what, struct mr_state_have *mine, struct mr_state_have *common,
                         struct mr_error *err);
/* The newest usable one there, or that of a step: 1, 0 (none), or why that cannot be seen. Without a readable list only its
 * step is set. */
int mr_state_have_in(const struct mr_checkpoint_place *at, uint64_t step, struct mr_state_had *out,
                     struct mr_error *err);
const struct mr_state_had *mr_state_have_find(const struct mr_state_have *h, uint64_t step, const char *id);
void mr_state_have_done(struct mr_state_have *h);

#endif
