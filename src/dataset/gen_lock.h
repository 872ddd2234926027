/* One generator at a time in a folder. The lock is an advisory one (flock) on `.millrace-gen.lock` in the folder: it
 * goes with the process, also with kill -9, and a file that a dead process left behind locks nobody out. It holds
 * between the processes of one machine and, where the file system carries flock over the network (NFS, Lustre with -o
 * flock), between machines. Only stores whose content outlives the process need one. */
#ifndef MR_DATASET_GEN_LOCK_H
#define MR_DATASET_GEN_LOCK_H

#include "store/store.h"

#define MR_GEN_LOCK_NAME ".millrace-gen.lock"

struct mr_gen_lock;

/* 1: *out is the lock. 0: nothing to lock, since the folder is not there, cannot be written to, or the file system
 * knows no such lock. -EBUSY: another process is writing there. */
int mr_gen_lock_take(struct mr_store *s, const char *folder, struct mr_gen_lock **out, struct mr_error *err);
/* Accepts NULL. Removes the file. */
void mr_gen_lock_release(struct mr_gen_lock *l);

#endif
