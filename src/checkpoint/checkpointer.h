/* What the engines of this folder share: their ops, and the limits that parameters are checked by. */
#ifndef MR_CHECKPOINT_CHECKPOINTER_H
#define MR_CHECKPOINT_CHECKPOINTER_H

#include <millrace/plugin_checkpoint.h>

#define MR_CHECKPOINT_BURST_NAME 64 /* bytes of the folder's name below the burst buffer */

/* The code of all ranks. */
int mr_checkpoint_agree(const struct mr_checkpoint_params *p, int code, struct mr_error *err);

extern const struct mr_checkpoint_engine_ops mr_checkpoint_sync_engine, mr_checkpoint_async_engine,
    mr_checkpoint_null_engine;

#endif
