/* Who may use a folder of checkpoints: one live job at a time, and in a tier only jobs of the user and the final folder
 * that it was made for. Folders of the operating system only; stores without such files have no guard. */
#ifndef MR_CHECKPOINT_CHECKPOINT_GUARD_H
#define MR_CHECKPOINT_CHECKPOINT_GUARD_H

#include <millrace/error.h>
#include <stdbool.h>

/* Locks FOLDER/.saver, which goes with the process. *fd: to be closed, -1 where there are no locks. -EBUSY names the
 * host and the process that has it; a link or a pipe in the place of the file is refused. */
int mr_checkpoint_lock(const char *folder, bool owner_only, int *fd, struct mr_error *err);
/* Refuses a tier's folder of another user, one that others can write to, and one that belongs to another final folder
 * (FOLDER/.tier names it; written here unless `look`). A folder that is not there passes. */
int mr_checkpoint_claim(const char *tier, const char *final, bool look, struct mr_error *err);
/* What of a path exists without links, the rest as it is: the same folder has one name. */
void mr_checkpoint_canonical(const char *folder, char *out, int cap);

#endif
