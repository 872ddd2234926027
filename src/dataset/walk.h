/* Walking a folder tree through a store: all files below a root, folders listed in parallel, level by level. Hidden
 * entries (leading '.') are skipped. A link that leads back to a folder above it is not followed. The order of the
 * calls is not fixed. */
#ifndef MR_DATASET_WALK_H
#define MR_DATASET_WALK_H

#include "store/store.h"

#include <stdatomic.h>

/* `name` is relative to the root; `thread` tells the caller's per-thread state apart. */
typedef int mr_walk_fn(void *user, unsigned thread, const char *name, struct mr_error *err);
int mr_walk(struct mr_store *s, const char *root, unsigned threads, const atomic_bool *stop, mr_walk_fn *fn, void *user,
            struct mr_error *err);

/* An error of the storage (no permission, a bad disk), not of what lies on it: then nothing is known about a file. */
bool mr_is_storage_error(int code);

#endif
