/* The parts that saves, loads and drains are made of. They work on one place: a folder on a store. A checkpointer has
 * one place, or with a burst buffer two. See README.md for the invariants.
 *
 * A job is one pass over the files of a list: writing this rank's share, reading it back, or copying all of it from one
 * place to another. Its threads each have a buffer and take one file at a time. */
#ifndef MR_CHECKPOINT_CHECKPOINT_ENGINE_H
#define MR_CHECKPOINT_CHECKPOINT_ENGINE_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_list.h"
#include "store/store.h"

#include <millrace/checkpoint.h>
#include <stdatomic.h>

struct mr_pace;
struct mr_traffic;
struct mr_checkpoint_place {
    struct mr_store *store;
    char *folder;
    struct mr_traffic *device; /* that the folder is on, or NULL */
    bool shared;               /* all ranks see one store */
    bool lead; /* this rank does what is done once: rank 0, and every rank where the store is private to its process */
    bool fsync;
    unsigned keep_last; /* 0 = all */
};

/* Strings are copied. Calls of the store are told to `events`, if it wants them. */
int mr_checkpoint_place_open(const char *folder, const char *store, uint32_t rank, struct mr_events *events,
                             struct mr_checkpoint_place *out, struct mr_error *err);
void mr_checkpoint_place_close(struct mr_checkpoint_place *p);

struct mr_checkpoint_job {
    const struct mr_checkpoint_params *p;        /* rank, world, threads, buffers, content; its strings are not used */
    const struct mr_checkpoint_place *at, *from; /* from: copies only */
    const char *dir, *from_dir;
    struct mr_checkpoint_list list;
    bool (*stopped)(void *user); /* or NULL */
    void *user;
    struct mr_pace *pace; /* copies only: how fast; NULL: as fast as it goes */
    uint8_t **buffers;    /* per thread */
    _Atomic uint64_t io_ns, fsync_ns;
};

/* Clears what a killed save left and makes the empty folder `tmp`. Nobody else may be writing to the place. */
int mr_checkpoint_begin(const struct mr_checkpoint_place *at, const char *tmp, struct mr_error *err);
/* This rank's files, and unless it leads the list of them for the leader. */
int mr_checkpoint_write_share(struct mr_checkpoint_job *j, struct mr_error *err);
/* Leader: the lists of all ranks as one, after all have written. */
int mr_checkpoint_join(struct mr_checkpoint_job *j, struct mr_checkpoint_list *all, struct mr_error *err);
/* Leader: checkpoint.json, durability, the name; then older ones are retired. */
int mr_checkpoint_publish(struct mr_checkpoint_job *j, const struct mr_checkpoint_list *all, const char *final,
                          struct mr_error *err);
/* Removes all but the newest keep_last; the one just saved stays even if its step is lower than others'. */
int mr_checkpoint_retire_older(const struct mr_checkpoint_place *at, uint64_t just_saved, struct mr_error *err);
/* Reads the files of j->list and compares them with it. */
int mr_checkpoint_read_share(struct mr_checkpoint_job *j, struct mr_error *err);
/* Copies the files of j->list from j->from_dir to j->dir; lengths and checksums are compared on the way. */
int mr_checkpoint_copy(struct mr_checkpoint_job *j, struct mr_error *err);
/* The list of the checkpoint in `dir`; -ENOENT when there is none. */
int mr_checkpoint_read_list(const struct mr_checkpoint_place *at, const char *dir, struct mr_checkpoint_list *out,
                            struct mr_error *err);

#endif
