/* What a path is that holds no checkpoints of ours: of another program, or one of our own folders given at the wrong
 * level. People point a load at all of them. */
#ifndef MR_CHECKPOINT_CHECKPOINT_FOREIGN_H
#define MR_CHECKPOINT_CHECKPOINT_FOREIGN_H

#include "store/store.h"

/* Gives the error a hint that says what it is and what reads it, where that can be told. Accepts a NULL error. */
void mr_checkpoint_hint_foreign(struct mr_store *s, const char *path, struct mr_error *err);

#endif
