/* A place: a folder on a store that checkpoints are kept in, and the steps by which a folder there becomes one. Saves,
 * tiers and loads are built on it. README.md has the invariants. */
#ifndef MR_CHECKPOINT_CHECKPOINT_PLACE_H
#define MR_CHECKPOINT_CHECKPOINT_PLACE_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_list.h"
#include "event/emit.h"
#include "store/store.h"

#include <millrace/checkpoint.h>

struct mr_traffic;
struct mr_checkpoint_place {
    struct mr_store *store;
    char *folder;
    char *base;                /* of a tier: the folder of all ranks */
    struct mr_traffic *device; /* that the folder is on, or NULL */
    bool shared;               /* all ranks see one store */
    bool by_list;              /* object storage: a checkpoint is complete by its list, not by its name (C9) */
    bool lead; /* this rank does what is done once: rank 0, and every rank where the store is private to its process */
    bool fsync;
    unsigned keep_last; /* 0 = all */
    int lock_fd;        /* mr_checkpoint_lock; -1: none */
};

/* A span of a step's checkpoint in the trace, if there is one. */
void mr_checkpoint_emit(struct mr_events *events, enum mr_span what, uint64_t step, uint64_t start_ns, uint64_t end_ns,
                        uint64_t bytes);

/* Strings are copied. Calls of the store go to `events`, if it wants them. */
int mr_checkpoint_place_open(const char *folder, const char *store, uint32_t rank, struct mr_events *events,
                             struct mr_checkpoint_place *out, struct mr_error *err);
void mr_checkpoint_place_close(struct mr_checkpoint_place *p); /* also of one that was never opened */

/* Clears what a killed save left and makes the empty folder step-N.tmp. Nobody else may be writing to the place. */
int mr_checkpoint_begin(const struct mr_checkpoint_place *at, uint64_t step, struct mr_error *err);
/* Where the files of a save of that step go: step-N.tmp; on object storage the one of step-N and step-N.again that is not
 * complete. */
int mr_checkpoint_target(const struct mr_checkpoint_place *at, uint64_t step, enum mr_checkpoint_kind *out,
                         struct mr_error *err);
/* step-N.tmp becomes step-N. One that is there already steps aside first and comes back if the renaming fails, so a
 * complete copy exists at every moment (C1, C2). On object storage the list has made the target complete; the other copy
 * loses its list, then goes. */
int mr_checkpoint_publish(const struct mr_checkpoint_place *at, uint64_t step, enum mr_checkpoint_kind target,
                          struct mr_error *err);
/* Removes all but the newest keep_last; the one just saved stays even if its step is lower than others'. */
int mr_checkpoint_retire_older(const struct mr_checkpoint_place *at, uint64_t just_saved, struct mr_error *err);
/* The list of the checkpoint in `dir`; MR_E_CORRUPT when there is none, or that of another step. */
int mr_checkpoint_read_list(const struct mr_checkpoint_place *at, const char *dir, struct mr_checkpoint_list *out,
                            struct mr_error *err);
/* Whether the checkpoint in `dir` was made by that save. */
bool mr_checkpoint_is_of(const struct mr_checkpoint_place *at, const char *dir, const char *save);
/* The same list of any path; -ENOENT. */
int mr_checkpoint_read_part(const struct mr_checkpoint_place *at, const char *path, struct mr_checkpoint_list *out,
                            struct mr_error *err);

#endif
