/* The schedule: who reads which sample when, over all ranks, nodes and epochs of a run. It is the access order
 * (<millrace/order.h>) with what a run adds to it: several ranks per node, batches, samples left out or repeated, the
 * position at which the run began, and the inverse: given a sample, its access in any epoch. Placement policies live on
 * it; every node computes the same answers without talking to the others.
 *
 *   access   one read of one sample by one rank. Its number is epoch * stride + position, with the position of the
 *            order: rank r of w reads position start + k * w + r in its k-th row (start is 0 but in the epoch at which
 *            the run began). So numbers ascend in the order in which the job reads, and comparing two of them says
 *            which comes first; they have gaps between epochs.
 *   row      k: how many samples each rank has read before in this epoch (since the start)
 *
 * A sample normally has one access per epoch. Padding repeats some (the head of the sequence), drop_last, whole steps
 * and rank_max leave some out, and those read before the start position are not read again in that epoch.
 *
 * Orders of several epochs are kept at hand: 0.5 KiB each (sequential, cipher, shard, file), in torch and buffer mode
 * tables of 8 bytes per sample and epoch (16 above 2^32 samples), as many epochs as table_bytes allows, at least two.
 * Asking for others evicts and builds: O(samples) in those modes.
 *
 * Thread safety: one thread at a time (questions may build tables). */
#ifndef MILLRACE_SCHEDULE_H
#define MILLRACE_SCHEDULE_H

#include <millrace/order.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_NO_ACCESS UINT64_MAX

struct mr_schedule_params {
    struct mr_order_params order; /* world: all ranks of the job; epoch: the first one; rank is not used */
    uint64_t position;            /* samples that all ranks together had consumed in that epoch; as mr_order_seek */
    uint64_t epochs;              /* that are known, the first one included; at least 1 */
    uint32_t nodes;
    const uint32_t *first_rank; /* nodes + 1 entries, borrowed for create only; NULL: equally many ranks on each node */
    uint64_t local_batch;       /* samples of a rank in a step; at least 1 */
    bool whole_steps;           /* rows that do not fill a step are left out */
    uint64_t rank_max;          /* rows of an epoch at most, counted from its beginning; 0: all */
    uint64_t table_bytes;       /* most memory for tables; 0: no limit */
};

struct mr_schedule;
/* Errors: MR_E_USAGE for impossible parameters, those of mr_order_create and mr_order_seek, -ENOMEM. */
int mr_schedule_create(const struct mr_schedule_params *p, struct mr_schedule **out, struct mr_error *err);
void mr_schedule_free(struct mr_schedule *s);

uint32_t mr_schedule_nodes(const struct mr_schedule *s);
uint64_t mr_schedule_samples(const struct mr_schedule *s);
/* Epochs are first ... last, as the order counts them. */
uint64_t mr_schedule_first_epoch(const struct mr_schedule *s);
uint64_t mr_schedule_last_epoch(const struct mr_schedule *s);
/* How many epochs can be at hand at once. */
uint64_t mr_schedule_span(const struct mr_schedule *s);
/* Ranks of a node: first_rank(node) ... first_rank(node + 1) - 1. */
uint32_t mr_schedule_first_rank(const struct mr_schedule *s, uint32_t node);
/* Rows that each rank reads in the epoch, from the start position on. */
uint64_t mr_schedule_rows(const struct mr_schedule *s, uint64_t epoch);
uint64_t mr_schedule_local_batch(const struct mr_schedule *s);
/* Number of accesses between two rows. */
uint32_t mr_schedule_world(const struct mr_schedule *s);
/* The distance of the same position in two consecutive epochs. */
uint64_t mr_schedule_stride(const struct mr_schedule *s);
bool mr_schedule_rank_local(const struct mr_schedule *s);

uint64_t mr_schedule_access(const struct mr_schedule *s, uint64_t epoch, uint64_t row, uint32_t rank);
uint64_t mr_schedule_epoch_of(const struct mr_schedule *s, uint64_t access);
uint64_t mr_schedule_row_of(const struct mr_schedule *s, uint64_t access);
uint32_t mr_schedule_rank_of(const struct mr_schedule *s, uint64_t access);
uint32_t mr_schedule_node_of(const struct mr_schedule *s, uint64_t access);

/* The nodes of accesses that are all of one epoch; MR_NO_ACCESS gives UINT32_MAX. */
void mr_schedule_readers(const struct mr_schedule *s, uint64_t epoch, const uint64_t *accesses, uint32_t *nodes,
                         size_t n);

/* Ids that a rank reads from `row` on; sets up to n of them, returns how many (fewer only at the end of the epoch), or
 * negative: -ENOMEM. */
int64_t mr_schedule_ids(struct mr_schedule *s, uint64_t epoch, uint32_t rank, uint64_t row, uint64_t *ids, size_t n,
                        struct mr_error *err);
/* The first access of each id in the epoch, MR_NO_ACCESS where there is none. -ENOMEM. */
int mr_schedule_find(struct mr_schedule *s, uint64_t epoch, const uint64_t *ids, uint64_t *accesses, size_t n,
                     struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
