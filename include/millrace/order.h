/* The access order: which sample each rank reads when. The only place in Millrace that decides it.
 *
 * An order is a pure function (seed, epoch, rank, world) -> sample ids. Nothing is drawn as a side effect: any rank can
 * compute what any other rank will read in any epoch, which is what prefetching, simulation, resuming and proofs need.
 *
 *   global sequence of an epoch   g(0), g(1), ... g(total-1), the same on every rank, whatever the world size
 *   rank r of w reads             g(r), g(r + w), g(r + 2w), ...
 *
 * so a position is one number, the count of samples consumed globally; resuming at position p with another world size
 * continues the same global sequence. total is n rounded up to a multiple of world (pad: the head is repeated, as
 * PyTorch's DistributedSampler does) or down (drop_last), so all ranks get equally many.
 *
 * The rank-local modes (shard, buffer, file) cut 0 ... n-1 (file: the samples in shuffled file order) into `world`
 * contiguous slices that differ by at most one sample, and define g through them: g(k * w + r) is the k-th sample of
 * rank r's slice. The position stays one number, a multiple of the world size there; resuming with another world size
 * is refused with a clear error, because no order can be both.
 *
 * Ownership: mr_order_create allocates, mr_order_free releases and accepts NULL. Thread-safety: an order is immutable
 * except for mr_order_set_epoch, _seek and _restore; mr_order_get and _get_for are safe from all threads between them.
 * Everything a mode means, with costs, is in doc/reference/order.md. */
#ifndef MILLRACE_ORDER_H
#define MILLRACE_ORDER_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_ORDER_VERSION 1 /* changes when any mode would yield other ids for the same parameters */

#define MR_ORDER_MAX_SAMPLES ((uint64_t)1 << 62)
#define MR_ORDER_AUTO_TORCH_MAX 100000000ull /* AUTO takes torch up to here, cipher above */

enum mr_order_mode {
    MR_ORDER_AUTO,       /* torch up to MR_ORDER_AUTO_TORCH_MAX samples, cipher above */
    MR_ORDER_SEQUENTIAL, /* 0, 1, 2, ... */
    MR_ORDER_TORCH,      /* bit-identical to torch.randperm + DistributedSampler; 4 or 8 bytes per sample */
    MR_ORDER_CIPHER,     /* exact global permutation by a keyed cipher; O(1) memory */
    MR_ORDER_SHARD,      /* each rank owns one contiguous shard for the whole run, shuffled inside it every epoch */
    MR_ORDER_BUFFER,     /* tf.data-like: each rank streams its shard through a shuffle buffer of `window` samples */
    MR_ORDER_FILE,       /* files shuffled globally and dealt to ranks, samples of a file in sequence */
};

struct mr_order_params {
    enum mr_order_mode mode;
    uint64_t samples; /* n: 1 ... MR_ORDER_MAX_SAMPLES */
    uint64_t seed;
    uint32_t rank, world;       /* rank < world */
    uint64_t epoch;             /* the epoch create prepares; later ones by mr_order_set_epoch */
    bool drop_last;             /* false: pad by repeating the head of the sequence */
    bool shuffle_each_epoch;    /* false: every epoch uses epoch 0's permutation */
    uint64_t window;            /* BUFFER: samples in the buffer (>= 1) */
    uint64_t samples_per_file;  /* FILE, when all files hold equally many; else file_first below */
    const uint64_t *file_first; /* FILE: first sample of each file, n_files + 1 entries, borrowed for create only */
    uint64_t n_files;
};

struct mr_order;

/* Makes the order and prepares p->epoch. Errors: MR_E_USAGE for impossible parameters (rank >= world, no samples, no
 * window, files that do not add up), -ENOMEM. */
int mr_order_create(const struct mr_order_params *p, struct mr_order **out, struct mr_error *err);
void mr_order_free(struct mr_order *o);
/* The mode in force: AUTO resolved. */
enum mr_order_mode mr_order_mode_of(const struct mr_order *o);

/* Prepares epoch e (0, 1, ...) and goes to its start. O(n) time for torch, O(n / world) for buffer, O(files) for file
 * with files of unequal sizes, O(1) otherwise. On failure the order keeps the epoch it had. */
int mr_order_set_epoch(struct mr_order *o, uint64_t epoch, struct mr_error *err);
uint64_t mr_order_epoch(const struct mr_order *o);
/* Samples this rank reads in an epoch (after a seek: in what is left of it); equal on all ranks. */
uint64_t mr_order_rank_len(const struct mr_order *o);
/* Samples all ranks read in an epoch: rank_len * world. */
uint64_t mr_order_total(const struct mr_order *o);
/* Ids of this rank from its k-th on (k = 0 ... rank_len-1): fills up to n, returns how many (0 past the end). No
 * allocation, no lock. */
size_t mr_order_get(const struct mr_order *o, uint64_t k, uint64_t *ids, size_t n);
/* The same for any rank: clairvoyance. In buffer mode the first question about another rank computes that rank's plan
 * (O(n / world) time, kept until the epoch changes) and returns 0 if memory for it is exhausted. */
size_t mr_order_get_for(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t n);

/* The inverse, for whoever wants to know who reads a sample, and when: places[i] is where ids[i] stands in the epoch's
 * sequence, g(places[i]) == ids[i], places[i] < samples. In rank-local modes place = k * world + r says that it is the
 * k-th sample of rank r's slice, and may lie behind `samples` by less than world. Padding repeats the head (rank-local:
 * of the slice), so a sample may be read at a later position as well; drop_last may leave its place out. mr_order_index
 * prepares it for the epoch at hand and is to be called again after mr_order_set_epoch: nothing to do for sequential,
 * cipher, shard and file; torch and buffer build a table of 4 bytes per sample (8 above 2^32). -ENOMEM. mr_order_places
 * allocates nothing and takes no lock; every id must be < samples. */
int mr_order_index(struct mr_order *o, struct mr_error *err);
void mr_order_places(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t n);

/* Sets the start to global position `pos` (samples consumed by all ranks together in this epoch): afterwards index k =
 * 0 of every rank is the first unread one, and the lengths above count what is left. For global modes (sequential,
 * torch, cipher) any world size may continue any position; rank-local modes want a multiple of the world size. The
 * position after every rank has read k samples is the sought position + k * world. Errors: MR_E_USAGE beyond the end.
 */
int mr_order_seek(struct mr_order *o, uint64_t pos, struct mr_error *err);

/* The state of a run as one line of text, for checkpoints: order version, all parameters the ids depend on, the epoch
 * and the position. `k` is how many samples each rank has read since the start or the last seek. */
#define MR_ORDER_STATE_LEN 320
int mr_order_save(const struct mr_order *o, uint64_t k, char out[MR_ORDER_STATE_LEN]);
/* Continues a saved state: sets epoch and position. Errors: MR_E_USAGE naming the parameter that differs (another data
 * set, seed, mode; another world size in a rank-local mode), MR_E_FORMAT for text that is not a state. */
int mr_order_restore(struct mr_order *o, const char *state, struct mr_error *err);

const char *mr_order_mode_name(enum mr_order_mode mode);
/* MR_E_USAGE with the list of names if unknown. "buffer(1024)" sets *window. */
int mr_order_mode_parse(const char *name, enum mr_order_mode *mode, uint64_t *window, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
