/* Reading the files of checkpoints as their lists say they are: all of them once, by several threads, each compared with
 * its checksum. Loads of an emulated training and `millrace ckpt verify` need no more; a drain copies what passes by. */
#ifndef MR_CHECKPOINT_CHECKPOINT_READ_H
#define MR_CHECKPOINT_CHECKPOINT_READ_H

#include "base/arena.h"
#include "base/vec.h"
#include "checkpoint/checkpoint_place.h"
#include "checkpoint/state_pace.h"

/* The checksum of a checkpoint's file. Of a file that is written front to back it is the XXH3-64 of its content. Of one
 * whose chunks are written, and later read, in any order by many threads it is the XXH3-64 of the chunks' XXH3-64, eight
 * little-endian bytes each, in the order of the chunks; the list then has the size of a chunk (`chunk_bytes`). From the
 * chunks' own, which are kept as they are hashed and stored: little-endian. */
uint64_t mr_checkpoint_hash_of_chunks(const uint64_t *chunk, size_t n);

/* Opens a file of the list in `dir`; MR_E_CORRUPT when it is missing or has another length. */
int mr_checkpoint_open_entry(const struct mr_checkpoint_place *at, const char *dir, const struct mr_checkpoint_entry *e,
                             bool direct, struct mr_object **out, struct mr_error *err);

/* What one thread reads front to back: a file, or a chunk of one that has checksums of its chunks. */
struct mr_checkpoint_unit {
    size_t file; /* in `list` */
    uint64_t at, bytes;
    const char *dir;
    uint64_t start_ns; /* of its latest piece */
};

/* Set `at` to `stop`, the rest zero; add lists; run; done. */
struct mr_checkpoint_reading {
    const struct mr_checkpoint_place *at;
    bool direct;
    unsigned threads;
    uint64_t piece_bytes;        /* read in one go; a multiple of 4096 */
    struct mr_pace *pace;        /* holds it back; or NULL */
    bool (*stopped)(void *user); /* before each piece: MR_E_INTERRUPTED; or NULL */
    const atomic_bool *stop;     /* before each unit; or NULL */
    /* What to do with a piece that was read; or NULL. Any thread. */
    int (*take)(void *user, const struct mr_checkpoint_unit *u, uint64_t at, const void *buf, size_t n,
                struct mr_error *err);
    void *user;
    _Atomic uint64_t read_ns;       /* what the reads took */
    struct mr_checkpoint_list list; /* of all that were added */
    struct mr_arena names;
    MR_VEC(struct mr_checkpoint_unit) unit; /* file by file */
    uint64_t *sum;                          /* of each unit, little-endian */
    uint8_t *buf;
};

/* The files of `more`, which lie in `dir`. */
int mr_checkpoint_reading_add(struct mr_checkpoint_reading *r, const char *dir, const struct mr_checkpoint_list *more,
                              struct mr_error *err);
/* MR_E_CORRUPT names the file. */
int mr_checkpoint_reading_run(struct mr_checkpoint_reading *r, struct mr_error *err);
void mr_checkpoint_reading_done(struct mr_checkpoint_reading *r);

/* Reads all files of a list and compares them with it: threads, buffer_bytes, direct and stopped of the parameters. Adds
 * what the reads took. */
int mr_checkpoint_verify(const struct mr_checkpoint_params *p, const struct mr_checkpoint_place *at, const char *dir,
                         const struct mr_checkpoint_list *l, uint64_t *read_ns, struct mr_error *err);

#endif
