/* Checkpoints: writing the state of a model so that there is always one complete copy, and reading it back verified.
 *
 * A checkpoint is a folder `step-N`. Every rank writes its files into `step-N.tmp` and a list of their sizes and
 * XXH3-64 checksums; when all ranks have, rank 0 joins the lists into `checkpoint.json` and renames the folder. With
 * fsync everything is durable before the rename. So a folder with the final name is complete, always; a `.tmp` one is
 * not a checkpoint and the next save removes it. Saving a step again keeps the earlier copy (as `step-N.old`) until the
 * new one has its name.
 *
 *   step-000000000120.tmp/{model-00000.bin, ..., rank-00001.part} ──> checkpoint.json ──rename──> step-000000000120/
 *
 * What is in the files: tensors as (name, bytes) with content from a generator, written piece by piece through a
 * bounded buffer: a 100 GiB checkpoint needs no 100 GiB of memory.
 *
 * With a burst buffer a save writes to a fast folder only; a thread of each rank then copies its share to where it
 * stays and frees the buffer (the drain). The same rules hold on both sides, so at every moment one of them has the
 * complete checkpoint, and the final folder never a torn one. What a killed run left in the buffer is drained by the
 * next one. If the buffer is full or fails, a warning is logged and the save goes straight to the final folder; a
 * failed drain leaves the checkpoint in the buffer and is the result of mr_checkpoint_drain. The buffer may be one
 * folder that all ranks see, or one of each node.
 *
 *   save ──> BUFFER/NAME-HASH/rank-R/step-N ──drain──> FOLDER/step-N.tmp ──rename──> FOLDER/step-N, then the buffer's
 *   copy is removed
 *
 * One job at a time may save into a folder. Stores that belong to one process (memory, null) hold a checkpoint per
 * rank.
 *
 * Errors: all ranks return the same code. MR_E_USAGE (a bad or doubled file name, a bad parameter), MR_E_INCOMPLETE (no
 * complete checkpoint to load), MR_E_CORRUPT (a file is missing, has another length or checksum, or the list is
 * damaged; the message names it), MR_E_INTERRUPTED, MR_E_UNSUPPORTED (loading from the null store), -ENOSPC and other
 * errors of the system. A failed save leaves all earlier checkpoints untouched and removes what it began; if only the
 * last steps failed (making the rename durable, removing older ones), the new checkpoint is there and complete.
 *
 * Thread safety: one checkpointer belongs to one thread at a time; its own threads are inside. */
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
    char name[192]; /* plain: UTF-8, no '/', no leading '.', unique over all ranks */
    uint64_t bytes;
};

struct mr_events; /* where an embedding program's events go; millrace's own */

struct mr_checkpoint_params {
    const char *folder; /* where checkpoints are kept */
    const char *store;  /* storage stack; NULL = posix */
    uint32_t rank, world;
    bool fsync;            /* files and folders; without it a crash of the machine may lose the newest checkpoint */
    bool direct;           /* bypass the page cache */
    unsigned threads;      /* writers per rank; 0 = 1 */
    uint64_t buffer_bytes; /* memory per writer; 0 = 4 MiB */
    unsigned keep_last;    /* older ones are removed after a successful save; 0 = keep all */
    bool random_content;   /* random or constant bytes */
    uint64_t seed;
    /* Agreement between ranks: called at the phase borders with this rank's code; returns the job's. NULL for one rank.
     */
    int (*agree)(void *user, int code, struct mr_error *err);
    /* Asked before every piece; true ends the save or load with MR_E_INTERRUPTED. NULL = never. Any thread may ask. */
    bool (*stopped)(void *user);
    /* The burst buffer. NULL or "" = none. Checkpoints lie in a folder of their own below it, named after `folder`. */
    const char *burst_folder;
    const char *burst_store; /* storage stack; NULL = posix */
    uint64_t burst_bytes; /* at most so much of all ranks waits there, further saves wait; 0 = what its file system has
                             free */
    /* Replaces *value by its sum over the ranks; needed with a burst buffer and more than one rank. */
    int (*sum)(void *user, uint64_t *value, struct mr_error *err);
    void *user; /* for all of them; `stopped` is also asked by the drain */
    /* The engine: "sync" (NULL or "": this text describes it), "null" (keeps nothing), or one of a plug-in
     * (<millrace/plugin_checkpoint.h>). MR_E_CONFIG with the nearest name if there is none. */
    const char *engine;
    struct mr_events *events; /* what is written, synced and renamed is told there; NULL: nowhere */
};

struct mr_checkpoint_result {
    uint64_t bytes, files;                /* of this rank */
    uint64_t duration_ns;                 /* start to complete, this rank, agreement included */
    uint64_t write_ns, fsync_ns, read_ns; /* inside the store, summed over the threads of this rank */
    uint64_t wait_ns;                     /* burst buffer: of the duration, waiting for the drain */
    bool buffered;                        /* in the burst buffer; false after a save that had to go around it */
    char path[1024];
};

/* A finished drain; monotonic times. code 0, or why it failed. */
struct mr_checkpoint_drained {
    uint64_t step, bytes, files, queued_ns, start_ns, end_ns;
    int code;
};

struct mr_checkpointer;

int mr_checkpointer_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err);
/* A drain under way is cut short: the next run finishes it. */
void mr_checkpointer_close(struct mr_checkpointer *c);
/* Collective. `step` names the checkpoint. A rank may have no files. */
int mr_checkpoint_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err);
/* Collective. Reads this rank's share of the newest complete checkpoint (step = UINT64_MAX) or of a given one,
 * verifying every byte against the stored checksums; `shift` reads the share of rank (rank + shift) mod world instead.
 * A job of another size than the one that saved reads everything too: rank r takes the shares of the ranks that are r
 * modulo its world. Waits for the drain first; a checkpoint that could not be drained is read from the burst buffer. */
int mr_checkpoint_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err);
/* Burst buffer. Collective. Starts to drain what an earlier run left, and returns how many checkpoints those are; save,
 * load and drain do it if nobody did. Only the leading rank counts any. 0 without a burst buffer. A buffer that cannot be read is told
 * and counts as empty. */
unsigned mr_checkpoint_recover(struct mr_checkpointer *c);
/* Collective. Waits until the burst buffer is drained. The first failure of a drain (since the checkpointer was
 * opened), MR_E_INTERRUPTED. */
int mr_checkpoint_drain(struct mr_checkpointer *c, struct mr_error *err);
/* Checkpoints that are in the burst buffer now; 0 except on the leading rank. */
uint64_t mr_checkpoint_buffered(struct mr_checkpointer *c);
/* Finished drains from number `first` on, in order; how many were written to `out`. */
uint64_t mr_checkpoint_drains(struct mr_checkpointer *c, uint64_t first, struct mr_checkpoint_drained *out,
                              uint64_t cap);
/* Newest complete checkpoint, by step; MR_E_INCOMPLETE with the reason if there is none. */
int mr_checkpoint_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
