/* The generator: one split of a data set, written by any number of ranks and threads. Phases, in this order on every
 * rank, with an agreement of the ranks between them:
 *
 *   mr_gen_open      all ranks   no I/O
 *   mr_gen_prepare   rank 0      looks at what is there, refuses or removes it, checks space, makes folders
 *   mr_gen_run       all ranks   writes the files i with i mod world == rank that are not there yet
 *   mr_gen_finish    rank 0      merges the journals into the manifest
 *
 * Promises: a file with its final name is whole. Killed at any moment, the same call later writes only what is missing
 * and the result is byte-identical. Content does not depend on ranks or threads. See README.md for the invariants. */
#ifndef MR_DATASET_GENERATE_H
#define MR_DATASET_GENERATE_H

#include "base/progress.h"
#include "dataset/gen_spec.h"

#include <stdatomic.h>

struct mr_gen_options {
    struct mr_store *store; /* borrowed, as all here */
    const char *folder;     /* of the split; created */
    const struct mr_gen_plan *plan;
    uint32_t rank, world;
    unsigned threads;
    bool overwrite; /* replace another data set that lies in the folder */
    bool repair;    /* compare every finished file byte by byte, not only its size, and write bad ones again */
    bool fsync;     /* make each file durable before it gets its name */
    const atomic_bool *stop;
    atomic_bool *all_stop; /* shared memory of the local ranks, or NULL: an interruption of one ends all */
    struct mr_progress *progress;
};

struct mr_gen_result {
    uint64_t files_written, bytes_written, files_kept, bytes_kept;
    bool was_complete; /* a manifest with the same spec was there */
};

struct mr_gen_estimate {
    uint64_t files, samples, bytes, inodes;
};

struct mr_gen;

/* `progress` of the options may also be set later, e.g. after mr_gen_prepare. */
int mr_gen_open(const struct mr_gen_options *o, struct mr_gen **out, struct mr_error *err);
void mr_gen_set_progress(struct mr_gen *g, struct mr_progress *progress);
void mr_gen_close(struct mr_gen *g);
/* What the whole split will take on storage; writes one small file to memory to learn the format's overhead. */
int mr_gen_estimate(const struct mr_gen_plan *p, struct mr_gen_estimate *out, struct mr_error *err);
/* Free space where the folder is or will be: the nearest existing parent, whose path goes to `where` (MR_NAME_MAX). */
int mr_gen_free_space(struct mr_store *s, const char *folder, char *where, uint64_t *bytes, uint64_t *inodes,
                      struct mr_error *err);
/* MR_E_CONFIG: another data set or foreign files are there; -ENOSPC: it will not fit; -EBUSY: another process is
 * writing there. Holds the lock of the folder until mr_gen_close. */
int mr_gen_prepare(struct mr_gen *g, struct mr_error *err);
/* Removes the generated set that lies in `folder`, whole or begun, as --overwrite does; foreign files stay. *removed:
 * there was one. */
int mr_gen_remove(struct mr_store *s, const char *folder, bool *removed, struct mr_error *err);
int mr_gen_run(struct mr_gen *g, struct mr_error *err);
int mr_gen_finish(struct mr_gen *g, struct mr_error *err);
void mr_gen_get_result(const struct mr_gen *g, struct mr_gen_result *out); /* of this rank */

#endif
