/* One drain: copies a checkpoint from a tier to a later place, where it becomes one as every save does. */
#ifndef MR_CHECKPOINT_STATE_DRAIN_H
#define MR_CHECKPOINT_STATE_DRAIN_H

#include "checkpoint/checkpoint_read.h"
#include "checkpoint/state_save.h"

struct mr_state_drain {
    const struct mr_save_place *from, *to;
    struct mr_pace *pace;
    const atomic_bool *cut;            /* set: end now, with MR_E_INTERRUPTED */
    struct mr_save *save;              /* step, id and by are set; the caller calls mr_save_done */
    struct mr_checkpoint_reading read; /* zero at first; mr_state_drain_run ends it */
};

/* A folder that has a share of this rank's; perhaps there is none. */
int mr_state_drain_add(struct mr_state_drain *d, const char *folder, struct mr_error *err);
/* After these, `rc` is their result. */
int mr_state_drain_run(struct mr_state_drain *d, int rc, struct mr_error *err);

#endif
