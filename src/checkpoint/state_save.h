/* One save under way, and the steps by which it becomes a checkpoint. Called by the writing threads of a saver, one at
 * a time per save; doc/guides/state.md has the order of things and why no moment leaves a torn one. */
#ifndef MR_CHECKPOINT_STATE_SAVE_H
#define MR_CHECKPOINT_STATE_SAVE_H

#include "checkpoint/checkpoint_engine.h"

#include <millrace/state.h>

/* What all saves of a saver have in common. */
struct mr_save_place {
    struct mr_checkpoint_place at;
    uint32_t rank, world;
    bool direct;
    uint64_t timeout_ns;
    const atomic_bool *stop; /* set: give up waiting for other ranks */
    struct mr_events *events;
};

struct mr_save {
    uint64_t step, bytes; /* of the file */
    char id[64];          /* which save of which job: the same on all ranks */
    char by[72];   /* which job drains it, "" for a save: a job before may have left the marks of its own drain */
    uint64_t *sum; /* XXH3-64 of each chunk */
    size_t chunks;
    char *json, *loader; /* NULL: none */
    struct mr_object *file;
    uint64_t durable_ns;  /* when it had its name; 0 before */
    uint64_t patience_ns; /* for how long other ranks are waited for; 0: the place's timeout */
    bool leader_is_gone;  /* it did not begin this save: nothing is said to it, either */
};

/* Leader: clears what a killed save left and opens the folder for all ranks. Others: wait for that. Then the rank's
 * file. */
int mr_save_begin(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err);
/* All chunks are written: makes the rank's part complete and, on the leader, waits for the parts of the others and
 * gives the checkpoint its name; the others wait for that. On failure nothing is left of it, and other ranks learn. */
int mr_save_commit(const struct mr_save_place *p, struct mr_save *s, struct mr_error *err);
/* A save that failed before it was complete: tells the other ranks `why` and leaves nothing. */
void mr_save_abandon(const struct mr_save_place *p, struct mr_save *s, const struct mr_error *why);

/* How long a save that was made at `made_ns` waits for other ranks after the one before it had waited in vain: the rest
 * of the timeout. Saves that had queued up behind a dead rank do not cost the whole timeout each. */
uint64_t mr_save_patience(const struct mr_save_place *p, uint64_t made_ns);

/* Leader, when the job begins: removes what earlier jobs said of saves that failed. */
void mr_save_forget_failures(const struct mr_save_place *p);

/* Names of a rank's files in a checkpoint. */
void mr_save_file_name(uint32_t rank, const char *ending, char out[64]);
#define MR_SAVE_TENSORS ".safetensors"
#define MR_SAVE_SUMS ".sums"
#define MR_SAVE_STATE ".state.json"
#define MR_SAVE_LOADER ".loader.json"
/* The file of checksums: this magic, bytes of a chunk, number of chunks, then the chunks', all little-endian. */
#define MR_SAVE_SUMS_MAGIC "MRSUMS1\n"

#endif
