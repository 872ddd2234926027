/* One save, and the steps by which it becomes a checkpoint: the files of this rank, its part of the list, the name.
 * Saves of trainings, of emulated ones, and drains all take these steps; README.md has the order of things and why no
 * moment leaves a torn one. Ranks meet in the folder (markers, parts, reasons of failures), or by calls where the
 * caller has a way to agree (`agree`). */
#ifndef MR_CHECKPOINT_STATE_SAVE_H
#define MR_CHECKPOINT_STATE_SAVE_H

#include "base/arena.h"
#include "checkpoint/checkpoint_place.h"

#include <millrace/state.h>
#include <pthread.h>
#include <stdatomic.h>

struct mr_pace;

/* What an emulated training wants; all zero for a real one. */
struct mr_saver_hooks {
    bool emulated;        /* no file `latest`; the tier is a burst buffer, which keeps nothing that is drained */
    bool files;           /* each tensor becomes a file of its name, without a header */
    uint64_t chunk_bytes; /* written in one go; 0: MR_STATE_CHUNK */
    /* As in struct mr_checkpoint_params. agree and sum only of a synchronous saver; without agree ranks meet in the folder.
     * stopped also before every piece. */
    int (*agree)(void *user, int code, struct mr_error *err);
    int (*sum)(void *user, uint64_t *value, struct mr_error *err);
    bool (*stopped)(void *user);
    void *user;
};

/* What all saves of a saver have in common. */
struct mr_save_place {
    struct mr_checkpoint_place at;
    char job[32]; /* its name: the same on all ranks, unlike any other's */
    uint32_t rank, world;
    bool direct;
    uint64_t timeout_ns;
    bool rank_is_late;       /* the last save but those that failed here waited for another rank in vain */
    const atomic_bool *stop; /* set: give up waiting for other ranks */
    struct mr_events *events;
    struct mr_saver_hooks hooks;
};

/* Checks the parameters and opens their folder. */
int mr_save_place_open(const struct mr_saver_params *p, const struct mr_saver_hooks *hooks, const atomic_bool *stop,
                       struct mr_save_place *out, struct mr_error *err);

/* The first of several failures; the later ones follow from it. */
struct mr_failure {
    int code; /* 0: none */
    struct mr_error why;
};
void mr_failure_keep(struct mr_failure *f, int code, const struct mr_error *why);
/* 0: none. `forget`: it is returned once. */
int mr_failure_get(struct mr_failure *f, bool forget, struct mr_error *err);

/* A file of this rank's part. */
struct mr_save_file {
    struct mr_checkpoint_entry is;
    struct mr_object *object; /* while it is written */
    uint64_t left;            /* bytes that are not written yet */
    bool opened;
    size_t first; /* in `sum` */
};

struct mr_save {
    struct mr_save_place *place;    /* where it is written to */
    enum mr_checkpoint_kind target; /* of its folder there; from its beginning on */
    uint64_t step, bytes;           /* of all files */
    char id[64];                    /* which save of which job: the same on all ranks */
    char by[72];    /* which job drains it, "" for a save: a job before may have left the marks of its own drain */
    uint32_t world; /* how many ranks saved it; 0: the place's */
    struct mr_save_file *file; /* [files], then the small ones that are made at the end */
    size_t files, small;
    uint64_t chunk_bytes; /* unit of checksums; 0: the files have theirs already */
    uint64_t *sum;        /* XXH3-64 of each chunk, file by file; little-endian, as they are stored */
    size_t chunks;
    bool sums;                 /* they get a file, too */
    const char *json, *loader; /* NULL: none */
    struct mr_arena memory;    /* of all these */
    bool begun, drained;       /* drained: its pieces are a drain's in the trace */
    struct mr_pace *pace;      /* holds its writes back; NULL: nothing does */
    pthread_mutex_t lock;
    _Atomic uint64_t io_ns, fsync_ns;
    uint64_t held_bytes, wait_ns;  /* what it counts as in a tier, and how long it waited for room there */
    uint64_t durable_ns;           /* when it had its name; 0 before */
    uint64_t all_bytes, all_files; /* of all ranks, once it has its name; leader */
    uint64_t made_ns;              /* since when other ranks could have begun it; 0: of a drain, long ago */
    bool leader_is_gone;           /* it did not begin this save: nothing is said to it, either */
};

size_t mr_save_chunks(uint64_t bytes, uint64_t chunk_bytes);
/* Once, before all other calls; `place` is set by the caller. Takes copies of the entries; chunk_bytes as in the struct.
 * -ENOMEM. */
int mr_save_init(struct mr_save *s, const struct mr_checkpoint_entry *file, size_t files, uint64_t chunk_bytes);
void mr_save_done(struct mr_save *s);
/* After a failure: another attempt, there. */
void mr_save_again(struct mr_save *s, struct mr_save_place *place);
/* Chunk number `index`: its file, its place there and its length. */
struct mr_save_file *mr_save_chunk(const struct mr_save *s, size_t index, uint64_t *at, size_t *n);
/* Leader: clears what a killed save left and opens the folder for all ranks. Others: wait for that. */
int mr_save_begin(struct mr_save *s, struct mr_error *err);
/* Bytes of a file, in any order, from any thread, each once. */
int mr_save_write(struct mr_save *s, struct mr_save_file *f, uint64_t at, const void *buf, size_t n,
                  struct mr_error *err);
/* All is written (rc 0), or not: makes the rank's part complete and, on the leader, waits for the parts of the others
 * and gives the checkpoint its name; the others wait for that. On failure nothing is left of it, and other ranks learn
 * the reason. `err`, which is not NULL, has that of `rc`. */
int mr_save_end(struct mr_save *s, int rc, struct mr_error *err);

/* Waiting for what another rank does in the folder: looks ever more rarely, as long as the timeout. After a save that
 * waited in vain, what is left of the time from made_ns on: saves that queued up behind a dead rank do not cost the whole
 * timeout each. */
struct mr_save_wait {
    uint64_t pause_ns, deadline_ns;
};
struct mr_save_wait mr_save_wait_for(const struct mr_save_place *p, uint64_t made_ns);
/* A pause, 0 to look again; else MR_E_TIMEOUT or MR_E_INTERRUPTED: the rank did not do `what`. */
int mr_save_wait(const struct mr_save_place *p, struct mr_save_wait *w, uint32_t rank, const char *what,
                 struct mr_error *err);
/* The code of all ranks; the caller's own where ranks do not meet by calls. */
int mr_save_agree(const struct mr_save_place *p, int rc, struct mr_error *err);

/* Leader, when the job begins: removes what earlier jobs left of saves that failed, of what they found (state_have.h), and of
 * `latest` when they were killed. */
void mr_save_forget(const struct mr_save_place *p);
#define MR_SAVE_HAVE ".have-"

/* Names of a rank's files in a checkpoint. */
struct mr_path mr_save_file_name(uint32_t rank, const char *ending);
/* Whether it is the file of tensors of a rank. */
bool mr_state_holds_tensors(const struct mr_checkpoint_entry *e);
#define MR_SAVE_TENSORS ".safetensors"
#define MR_SAVE_SUMS ".sums"
#define MR_SAVE_STATE ".state.json"
#define MR_SAVE_LOADER ".loader.json"
/* The file of checksums: this magic, bytes of a chunk, number of chunks, then the chunks', all little-endian. */
#define MR_SAVE_SUMS_MAGIC "MRSUMS1\n"

#endif
