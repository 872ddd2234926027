/* The list of a checkpoint: which files it has, how long each is, what each hashes to and which rank wrote it. Kept as
 * JSON (checkpoint.json, and one part per rank while a save is under way); doc/reference/checkpoint.md describes the
 * keys.
 *
 * A list that was read is safe to use: file names are plain names (no '/', no leading '.', no control characters, none
 * of ours), no name occurs twice, every rank is below the world. */
#ifndef MR_CHECKPOINT_CHECKPOINT_LIST_H
#define MR_CHECKPOINT_CHECKPOINT_LIST_H

#include "checkpoint/checkpoint_folder.h"

#include <millrace/plugin_checkpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mr_checkpoint_entry {
    char name[192];
    uint64_t bytes, hash; /* hash: as checkpoint_read.h says */
    uint64_t chunk_bytes; /* 0: the hash is of the content */
    uint32_t rank;
};

struct mr_checkpoint_list {
    uint64_t step;
    uint32_t world;
    bool fsync;
    char save[64]; /* which save of which job made it; empty: nobody asks */
    struct mr_checkpoint_entry *items;
    size_t n;
};

/* MR_E_USAGE when two entries have one name: the second writer has overwritten the first. */
int mr_checkpoint_list_check(const struct mr_checkpoint_list *l, struct mr_error *err);
/* malloc'ed text. */
int mr_checkpoint_list_encode(const struct mr_checkpoint_list *l, char **text, struct mr_error *err);
/* MR_E_CORRUPT names `path` and the place. */
int mr_checkpoint_list_parse(const char *text, size_t len, const char *path, struct mr_checkpoint_list *out,
                             struct mr_error *err);
int mr_checkpoint_list_append(struct mr_checkpoint_list *l, const struct mr_checkpoint_list *more,
                              struct mr_error *err);
void mr_checkpoint_list_done(struct mr_checkpoint_list *l);

#endif
