/* One drain: copies a checkpoint from a tier to a later place, where it becomes one as every save does. */
#ifndef MR_CHECKPOINT_STATE_DRAIN_H
#define MR_CHECKPOINT_STATE_DRAIN_H

#include "checkpoint/state_save.h"

struct mr_pace;
struct mr_state_drain {
    const struct mr_save_place *from, *to;
    struct mr_pace *pace;
    const atomic_bool *cut; /* set: end now, with MR_E_INTERRUPTED */
};

/* share: the folders that have this rank's shares of it, perhaps none. Of `s` the caller has set step, id and by; it
 * calls mr_save_done afterwards. */
int mr_state_drain(const struct mr_state_drain *how, struct mr_save *s, char *const *share, size_t shares,
                   struct mr_error *err);

#endif
