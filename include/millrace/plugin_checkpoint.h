/* A checkpoint engine, as a plug-in provides it (and as the built-in "sync" and "null" do): how the state of a job
 * becomes a checkpoint and comes back. The functions of <millrace/checkpoint.h> check their parameters and call the
 * engine that the workload names (`checkpoint.engine`), so a program that saves needs no change for another engine.
 *
 * What must stay true, whatever fails and whenever the process is killed:
 *   - A checkpoint that `newest` names and `load` reads is complete. A torn one is never taken for one.
 *   - A failed save leaves the earlier checkpoints as they were.
 *   - All ranks return the same code: end each phase with p->agree(p->user, code, err), which every rank reaches
 * whatever happened to it; NULL with one rank. How the engine does it is its own business: rename when complete, write
 * the list last, two generations.
 *
 * Content: an emulated job has no tensors, so the engine makes the bytes of each file with mr_checkpoint_content, piece
 * by piece through a bounded buffer.
 * Ownership: `open` returns a malloc'ed object whose first member is struct mr_checkpointer; `close` frees it. Strings
 * of the parameters are the caller's: copy them.
 * Thread safety: an object belongs to one thread at a time; what the engine starts inside is its own.
 * Errors: those of <millrace/checkpoint.h>. An engine that does not know a parameter (a burst buffer, threads, direct)
 * refuses it with MR_E_UNSUPPORTED where that changes what the user gets, and ignores it where it only changes speed.
 *
 * How to write one: examples/plugins/checkpoint_engine_skeleton.c; the conformance suite takes plug-ins
 * (doc/guides/plugins.md). */
#ifndef MILLRACE_PLUGIN_CHECKPOINT_H
#define MILLRACE_PLUGIN_CHECKPOINT_H

#include <millrace/checkpoint.h>
#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_CHECKPOINT_ENGINE_ABI 1

/* Each operation is the function of the same name in <millrace/checkpoint.h>; none is NULL, see the stubs below. */
struct mr_checkpoint_engine_ops {
    uint32_t abi, size; /* MR_CHECKPOINT_ENGINE_ABI, sizeof(struct mr_checkpoint_engine_ops) */
    const char *name, *doc;
    int (*open)(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err);
    void (*close)(struct mr_checkpointer *c); /* never NULL */
    int (*save)(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                struct mr_checkpoint_result *out, struct mr_error *err);
    int (*load)(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                struct mr_error *err);
    int (*newest)(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err);
    unsigned (*recover)(struct mr_checkpointer *c);
    int (*drain)(struct mr_checkpointer *c, struct mr_error *err);
    uint64_t (*buffered)(struct mr_checkpointer *c);
    uint64_t (*drains)(struct mr_checkpointer *c, uint64_t first, struct mr_checkpoint_drained *out, uint64_t cap);
};

/* The first member of every engine's own struct. */
struct mr_checkpointer {
    const struct mr_checkpoint_engine_ops *ops;
};

/* Adds an engine under its name; `ops` must outlive all use. abi, size, name and operations are checked:
 * MR_E_UNSUPPORTED, MR_E_USAGE, -EEXIST (the name is taken), MR_E_LIMIT. At the start, before checkpointers are opened.
 */
int mr_checkpoint_engine_register(const struct mr_checkpoint_engine_ops *ops, struct mr_error *err);
const struct mr_checkpoint_engine_ops *const *mr_checkpoint_engine_registry(void); /* NULL-terminated */

/* Stubs for an engine whose saves are final when they return: nothing is buffered, nothing to drain. */
unsigned mr_checkpoint_no_recover(struct mr_checkpointer *c);
int mr_checkpoint_no_drain(struct mr_checkpointer *c, struct mr_error *err);
uint64_t mr_checkpoint_no_buffered(struct mr_checkpointer *c);
uint64_t mr_checkpoint_no_drains(struct mr_checkpointer *c, uint64_t first, struct mr_checkpoint_drained *out,
                                 uint64_t cap);

/* Opens the storage stack that the parameters name (posix when they name none), so that its calls are in the run's
 * trace when the user asked for that. mr_store_close closes it. */
struct mr_store;
int mr_checkpoint_open_store(const struct mr_checkpoint_params *p, struct mr_store **out, struct mr_error *err);

/* What an engine is doing, for the run's trace and report: times of CLOCK_MONOTONIC in nanoseconds, bytes where there
 * are any. An engine that tells nothing works as well; its saves are then one block. Any thread; about 100 ns, nothing
 * when nobody wants to know. */
enum mr_checkpoint_part {
    MR_CHECKPOINT_SNAPSHOT, /* making the bytes */
    MR_CHECKPOINT_WRITE,
    MR_CHECKPOINT_FSYNC,
    MR_CHECKPOINT_RENAME,
};
void mr_checkpoint_tell(const struct mr_checkpoint_params *p, enum mr_checkpoint_part part, uint64_t step,
                        uint64_t start_ns, uint64_t end_ns, uint64_t bytes);

/* Bytes [offset, offset + len) of file `name` in the checkpoint of `step`, as the parameters ask for (random_content,
 * seed). Depends on nothing else, so what was read can be compared. About as fast as memset for constant content. */
void mr_checkpoint_content(const struct mr_checkpoint_params *p, uint64_t step, const char *name, uint64_t offset,
                           void *out, size_t len);
/* May this be the name of a file of a checkpoint? 0 or MR_E_USAGE; `cap` is the size of the array it stands in. */
int mr_checkpoint_name_check(const char *name, size_t cap, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
