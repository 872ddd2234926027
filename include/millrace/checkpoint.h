/* Checkpoints: writing the state of a model so that there is always one complete copy, and reading it back verified.
 *
 * A checkpoint is a folder `step-N`. Every rank writes its files into `step-N.tmp`, with a list of their sizes and XXH3-64
 * checksums; when all ranks have, rank 0 joins the lists into `checkpoint.json` and renames the folder. With fsync everything is
 * durable before the rename. So a folder with the final name is complete, always; a `.tmp` one is not a checkpoint and is
 * removed by the next save of that step.
 *
 *   step-000120.tmp/{model-00000.bin, ..., rank-00000.part} ──> checkpoint.json ──rename──> step-000120/
 *
 * What is in the files: tensors as (name, bytes) with content from a generator, written piece by piece through a bounded
 * buffer: a 100 GiB checkpoint needs no 100 GiB of memory.
 *
 * Errors: -ENOSPC and others leave the previous checkpoint untouched and remove what was begun. */
#ifndef MILLRACE_CHECKPOINT_H
#define MILLRACE_CHECKPOINT_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* One file of a rank's share. */
struct mr_checkpoint_file {
    char name[192];
    uint64_t bytes;
};

struct mr_checkpoint_params {
    const char *folder;   /* where checkpoints are kept */
    const char *store;    /* storage stack; NULL = posix */
    uint32_t rank, world;
    bool fsync;           /* files and folders; without it a crash of the machine may lose the newest checkpoint */
    bool direct;          /* bypass the page cache */
    unsigned threads;     /* writers per rank; 0 = 1 */
    uint64_t buffer_bytes;/* memory per writer; 0 = 4 MiB */
    unsigned keep_last;   /* older ones are removed after a successful save; 0 = keep all */
    bool random_content;  /* random or constant bytes */
    uint64_t seed;
    /* Agreement between ranks: called at the phase borders with this rank's code; returns the job's. NULL for one rank. */
    int (*agree)(void *user, int code, struct mr_error *err);
    void *user;
};

struct mr_checkpoint_result {
    uint64_t bytes, files;      /* of this rank */
    uint64_t duration_ns;       /* start to complete, this rank, agreement included */
    uint64_t write_ns, fsync_ns, read_ns;
    char path[1024];
};

struct mr_checkpointer;

int mr_checkpointer_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err);
void mr_checkpointer_close(struct mr_checkpointer *c);
/* Collective. `step` names the checkpoint. A rank may have no files. */
int mr_checkpoint_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err);
/* Collective. Reads this rank's share of the newest complete checkpoint (step = UINT64_MAX) or of a given one, verifying every
 * byte against the stored checksums; `shift` reads the share of rank (rank + shift) mod world instead. */
int mr_checkpoint_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err);
/* Newest complete checkpoint; MR_E_INCOMPLETE with the reason if there is none. */
int mr_checkpoint_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
