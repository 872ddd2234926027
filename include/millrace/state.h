/* Saving the state of a real training: the caller's tensors, copied in milliseconds, written behind its back, never
 * torn, readable by everybody.
 *
 *     struct mr_saver *s;
 *     mr_saver_open(&(struct mr_saver_params){.size = sizeof(struct mr_saver_params), .folder = "ckpt", .world = 1,
 *                                             .fsync = true, .direct = true}, &s, &err);
 *     mr_saver_save(s, step, &state, &result, &err);     // returns when the tensors may change again
 *     ...train on...
 *     mr_saver_wait(s, MR_ALL_STEPS, &err);               // everything is durable
 *     mr_saver_close(s);
 *
 * What is saved: tensors (name, dtype, shape, strides, where they lie) into one safetensors file per rank, other state
 * as JSON beside it, in a folder `step-N` with the list that every checkpoint of Millrace has
 * (doc/reference/checkpoint.md). The list is written last and the folder gets its name by one rename: `step-N` is
 * complete and verified, always.
 *
 * `save` blocks for a copy into memory that is there from the first save on (the ring). With a ring smaller than the
 * state it also waits for room: memory is bounded by ring_bytes, never by the state. Tensors may come from a callback
 * piece by piece, so a state larger than memory can be saved.
 *
 * Ranks do not talk: each writes its file and its part of the list, the threads of rank 0 count the parts. All ranks
 * give the same `job` (a text that no other job has) and save the same steps in the same order. A rank that fails says
 * so in the folder; one that dies costs commit_timeout_s. Either way the earlier checkpoints stay.
 *
 * Errors of what is written behind are returned by the next call (save, wait) once, and by close. A save that returns
 * the error of an earlier one is made all the same, so that all ranks make the same saves.
 * Thread safety: a saver belongs to one thread at a time; after fork only the process that opened it may use it.
 * Errors: MR_E_USAGE (bad name, dtype or shape, two tensors of one name), MR_E_CORRUPT (a load that does not match its
 * checksums; the message names file and tensor), MR_E_INCOMPLETE (nothing complete to load), -EBUSY (another saver
 * works in this folder), -ENOSPC and other errors of the system. */
#ifndef MILLRACE_STATE_H
#define MILLRACE_STATE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_TENSOR_DIMS 32
#define MR_ALL_STEPS UINT64_MAX

struct mr_tensor {
    const char *name;  /* UTF-8, not empty, not "__metadata__"; any other text, also one that looks like a path */
    const char *dtype; /* safetensors': BOOL U8 I8 F8_E5M2 F8_E4M3 I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 */
    unsigned dims;     /* 0: one value */
    const uint64_t *shape;
    const int64_t *strides; /* in bytes, may be 0 or negative; NULL: row by row without gaps */
    const void *data;       /* the element at index 0, 0, ...; NULL with `pull` or without elements */
    int cuda;               /* 0: memory of the host; n: of CUDA device n - 1, without strides */
    /* Instead of data: copies n bytes from `offset` of the tensor, row by row, to `into`. Several threads may ask at
     * once, each piece once. Negative code with err filled: the save fails. */
    int (*pull)(void *user, uint64_t offset, void *into, size_t n, struct mr_error *err);
    void *user;
};

struct mr_state {
    size_t size; /* sizeof(struct mr_state) */
    const struct mr_tensor *tensor;
    size_t tensors;
    const char *json;   /* what is not a tensor, as JSON; NULL: nothing */
    const char *loader; /* the loader's state, as JSON; NULL: nothing */
    void *cuda_stream;  /* tensors on a CUDA device are copied after what was begun on this stream; NULL: the default */
};

struct mr_events; /* millrace's own */

/* A tier before the folder: memory (a folder of tmpfs) or a disk of the node. Each rank has a folder of its own in it,
 * TIER/rank-R; from each tier the checkpoints are drained to the next, and to the folder. */
#define MR_SAVER_TIERS 4
struct mr_saver_tier {
    const char *folder, *store;
    uint64_t capacity;  /* of this rank's checkpoints in it; 0: what the file system has */
    unsigned keep_last; /* of those that are drained, for a fast restart; 0: one. They make room when it is needed */
};

struct mr_saver_params {
    size_t size;        /* sizeof(struct mr_saver_params) */
    const char *folder; /* where checkpoints are kept */
    const char *store;  /* storage stack; NULL = posix */
    const char *job;    /* same on all ranks, unlike any other job's; NULL: made up, for one rank */
    uint32_t rank, world;
    bool fsync;                           /* durable before it has its name */
    bool direct;                          /* past the page cache, where the file system can */
    unsigned copy_threads, write_threads; /* 0: all CPUs; 4 */
    uint64_t ring_bytes;  /* memory for what is not written yet; 0: the size of the first state, at most half of what is
                             free. At least two chunks of 8 MiB */
    unsigned keep_last;   /* older ones are removed after a successful save; 0 = keep all */
    uint64_t bytes_per_s; /* write no faster; 0: no limit */
    unsigned commit_timeout_s; /* how long rank 0 waits for the others; 0: 600 */
    struct mr_events *events;
    const struct mr_saver_tier *tier; /* nearest first; `folder` comes after them */
    size_t tiers;
    uint64_t drain_bytes_per_s; /* drain no faster; 0: no limit but that of mr_saver_step */
    /* save and begin write from the caller's memory, with copy_threads, and return when the checkpoint is complete in the
     * folder or the first tier: no ring, no copy, nothing behind but drains. */
    bool sync;
};

struct mr_save_result {
    uint64_t bytes;      /* of this rank's tensors */
    uint64_t blocked_ns; /* inside save */
    uint64_t copy_ns;    /* of it, from the first to the last copied byte */
    uint64_t room_ns;    /* of it, waiting for room in the ring, summed over threads */
};

/* What became of a save, once it is over. */
struct mr_saved {
    uint64_t step, bytes, start_ns, durable_ns, end_ns; /* monotonic; durable: it had its name, in the first tier if
                                                           there are any; 0: never */
    int code;
};

struct mr_saver;
int mr_saver_open(const struct mr_saver_params *p, struct mr_saver **out, struct mr_error *err);
/* Fills the ring's memory now, instead of at the first save: `bytes` as ring_bytes. */
int mr_saver_reserve(struct mr_saver *s, uint64_t bytes, struct mr_error *err);
int mr_saver_save(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_save_result *out,
                  struct mr_error *err);
/* The same without waiting for the copy: the tensors must stay and not change before mr_saver_fence has returned.
 * Names, shapes and strides are copied. A save or another begin waits for the fence of the one before. */
int mr_saver_begin(struct mr_saver *s, uint64_t step, const struct mr_state *state, struct mr_error *err);
/* Waits until what mr_saver_begin was given is copied; 0, or why it could not be. Returns at once if there is none. */
int mr_saver_fence(struct mr_saver *s, struct mr_save_result *out, struct mr_error *err);
/* Instead of a save that this rank cannot make: the others learn at once, with the reason, instead of waiting for it.
 * One rank: nothing to do. */
int mr_saver_fail(struct mr_saver *s, uint64_t step, const char *why, struct mr_error *err);
/* A step of the training has ended. Who tells of every step lets the drain of tiers slow down before it costs one. */
void mr_saver_step(struct mr_saver *s);
/* The program ends soon (SIGTERM before a preemption): from now on nothing is slowed down, and what is not complete
 * within that time is given up, with MR_E_TIMEOUT; what is complete in a tier by then stays there. Save, wait and close
 * as always. */
int mr_saver_end_within(struct mr_saver *s, uint64_t ns, struct mr_error *err);
/* Waits until that step, or all, are complete in the folder (a step that is not under way: not at all); 0 or the first
 * error nobody was told yet. */
int mr_saver_wait(struct mr_saver *s, uint64_t step, struct mr_error *err);
/* Saves that are not over, and checkpoints that are not drained. */
unsigned mr_saver_pending(struct mr_saver *s);
/* The last save that is over; false: none. */
bool mr_saver_last(struct mr_saver *s, struct mr_saved *out);
/* The n-th that is over, from 0, or with MR_ALL_STEPS the last; false: not so many. */
bool mr_saver_saved(struct mr_saver *s, uint64_t n, struct mr_saved *out);
/* Waits for all saves; the first error nobody was told yet. Frees in any case. Accepts NULL. */
int mr_saver_close(struct mr_saver *s, struct mr_error *err);

/* ---- loading ---- */

struct mr_stored_tensor {
    const char *name, *dtype; /* of the reader */
    uint32_t rank;            /* who saved it */
    unsigned dims;
    const uint64_t *shape;
    uint64_t bytes;
};

struct mr_state_params {
    size_t size;
    const char *folder, *store;
    uint64_t step;    /* MR_ALL_STEPS: the newest */
    unsigned threads; /* 0: eight */
    bool direct;
};

/* One range of one tensor. */
struct mr_state_range {
    size_t tensor; /* its number */
    uint64_t offset, bytes;
    void *into;
    int cuda; /* 0: memory of the host; n: of CUDA device n - 1, which must be idle there */
};

struct mr_state_reader;
/* The newest step that all ranks can load: each from a tier of its own or from the folder (p->folder, which may be
 * lacking). Every rank of the job calls it with the same `job`. *place: the number of the nearest tier that has it
 * here, p->tiers for the folder. MR_E_INCOMPLETE: there is none. */
int mr_state_nearest(const struct mr_saver_params *p, uint64_t *step, size_t *place, struct mr_error *err);
int mr_state_open(const struct mr_state_params *p, struct mr_state_reader **out, struct mr_error *err);
void mr_state_close(struct mr_state_reader *r);
uint64_t mr_state_step(const struct mr_state_reader *r);
uint32_t mr_state_world(const struct mr_state_reader *r); /* of the job that saved */
size_t mr_state_tensors(const struct mr_state_reader *r);
const struct mr_stored_tensor *mr_state_tensor(const struct mr_state_reader *r, size_t i);
/* The number of the tensor of that name that `rank` saved, or with rank UINT32_MAX the first of any rank; SIZE_MAX. */
size_t mr_state_find(const struct mr_state_reader *r, uint32_t rank, const char *name);
/* The other state of that rank; *text is malloc'ed, NULL if it saved none. `what`: "state" or "loader". */
int mr_state_json(struct mr_state_reader *r, uint32_t rank, const char *what, char **text, struct mr_error *err);
/* Reads all ranges, in parallel; every byte that is given out was compared with its checksum. */
int mr_state_read(struct mr_state_reader *r, const struct mr_state_range *range, size_t n, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
