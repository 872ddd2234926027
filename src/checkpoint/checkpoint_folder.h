/* The folder that checkpoints are kept in: naming, finding and removing them.
 *
 *   step-000000000120       a complete checkpoint
 *   step-000000000120.tmp   one being written or removed: not a checkpoint
 *   step-000000000120.old   the complete one that is being replaced; it counts only while step-...120 is missing
 *
 * Object storage has no rename. There a folder is complete once it has its list (checkpoint.json, the object written
 * last), and loses it first when it is removed:
 *
 *   step-000000000120         with its list: complete; without: being written or removed
 *   step-000000000120.again   the same step saved again: counts, with its list, once step-...120 has none any more
 *   step-000000000120.tmp     what ranks leave for each other while it is written
 *
 * Anything else in the folder is left alone. */
#ifndef MR_CHECKPOINT_CHECKPOINT_FOLDER_H
#define MR_CHECKPOINT_CHECKPOINT_FOLDER_H

#include "store/store.h"

#define MR_CHECKPOINT_LIST_NAME "checkpoint.json"
/* Highest step: what 18 decimal digits hold. */
#define MR_CHECKPOINT_STEP_MAX 999999999999999999ull
/* Longest path of the folder; paths below it fit into MR_CHECKPOINT_PATH. */
#define MR_CHECKPOINT_FOLDER_MAX 900
#define MR_CHECKPOINT_PATH 1280

/* A path as a value, for the call that needs it: unlink(s, mr_path("%s/%s", dir, name).text, err). */
struct mr_path {
    char text[MR_CHECKPOINT_PATH + 256];
};
struct mr_path mr_path(const char *fmt, ...) MR_PRINTF(1, 2);

enum mr_checkpoint_kind { MR_CHECKPOINT_COMPLETE, MR_CHECKPOINT_OLD, MR_CHECKPOINT_AGAIN, MR_CHECKPOINT_TMP };

struct mr_checkpoint_dir {
    uint64_t step;
    enum mr_checkpoint_kind kind;
    bool usable; /* what a reader should use for its step */
};

/* What is there, by step and then kind. */
struct mr_checkpoint_dirs {
    struct mr_checkpoint_dir *item;
    size_t n, cap;
};

struct mr_path mr_checkpoint_dir_path(const char *folder, uint64_t step, enum mr_checkpoint_kind kind);
uint64_t mr_checkpoint_step_of(const char *dir_path);
int mr_checkpoint_dirs_read(struct mr_store *s, const char *folder, struct mr_checkpoint_dirs *out,
                            struct mr_error *err);
void mr_checkpoint_dirs_done(struct mr_checkpoint_dirs *d);
/* The path of the complete checkpoint of that step, or of the newest (UINT64_MAX). MR_E_INCOMPLETE says that there is
 * none; other errors are the store's. */
int mr_checkpoint_find(struct mr_store *s, const char *folder, uint64_t step, struct mr_path *out,
                       struct mr_error *err);
/* Removes a folder of files, or a file; a missing one is fine. Where its list makes it complete, that goes first. */
int mr_checkpoint_dir_remove(struct mr_store *s, const char *dir, struct mr_error *err);
/* Whether there is a list in the folder: 1, 0, or the error of the look. */
int mr_checkpoint_has_list(struct mr_store *s, const char *dir, struct mr_error *err);
/* Removes a complete checkpoint: under its final name it is whole at every moment. */
int mr_checkpoint_retire(struct mr_store *s, const char *folder, uint64_t step, struct mr_error *err);
/* Clears what a killed save left: removes what is not complete, and .old ones or puts them back. */
int mr_checkpoint_folder_repair(struct mr_store *s, const char *folder, struct mr_error *err);

#endif
