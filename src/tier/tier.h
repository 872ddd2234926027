/* Tiers: samples from the node's memory, its SSDs, its peers and the source, as a policy decides. What the loader uses.
 *
 *     mr_tier_open(&p, &tier, &err);                      collective: all ranks of the job
 *     source = mr_tier_source(tier);                      one per engine thread
 *     mr_dataset_reader_use(reader, source);
 *     mr_tier_seek(tier, epoch, position, &err);          all ranks alike; begins the reading
 *       mr_tier_source_at(source, n, id);                 n-th sample of this rank since the seek
 *       mr_dataset_read(reader, id, ...);                 borrows the stored bytes from the segment
 *       mr_tier_source_done(source);                      the row is made: the bytes may go
 *     mr_tier_close(tier);                                collective
 *
 * The world (schedule, sizes, capacities of all nodes) is made at open and at each seek; see doc/internals/policy.md.
 * Deliveries come in the order of each rank; the loader's tickets are their numbers.
 *
 * A sample has `stored bytes`: what MR_DATASET_RAW gives (with MR_DATASET_VERIFY in read_flags, checksums included),
 * the ranges of its fetch plan one behind the other. These are kept in every class, and borrowed.
 *
 * Errors of open: MR_E_CONFIG (a bad spec, a folder that cannot be used), MR_E_UNSUPPORTED (the policy does not suit),
 * -ENOMEM, MR_E_PEER. Later errors come out of the read of the sample concerned, or of seek. */
#ifndef MR_TIER_TIER_H
#define MR_TIER_TIER_H

#include "tier/segment.h"

#include <millrace/order.h>

struct mr_dataset;
struct mr_store;
struct mr_fetch_source;
struct mr_tier;

/* All-gather among all ranks of the job, as mr_wire_exchange_fn. NULL is allowed where the order's world is 1. Used by
 * open and close only. */
typedef int mr_tier_exchange_fn(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err);

struct mr_events;
struct mr_tier_params {
    struct mr_dataset *dataset;   /* borrowed, as all here */
    struct mr_store *store;       /* the source */
    const char *name;             /* of the data set, for people */
    unsigned read_flags;          /* MR_DATASET_*: as the loader's reads have them */
    unsigned open_flags;          /* MR_OBJ_DIRECT ... of the source's files */
    struct mr_order_params order; /* this rank's; samples filled in */
    uint64_t batch_size;          /* of a rank */
    bool whole_steps;             /* drop_last_batch */
    uint64_t rank_max;            /* samples of a rank per epoch; 0: all */
    uint64_t last_epoch;          /* UINT64_MAX: not known; then 64 epochs from each seek on are assumed */
    const char *policy;           /* a name of src/policy that keeps the order */
    const char *spec;             /* "ram=2GiB,ssd=/nvme/cache:100GiB,staging=64MiB"; "" or "auto": from the machine */
    bool peers;                   /* ask and answer other nodes */
    bool peers_optional;          /* ... if the wire can be opened; said once if not */
    unsigned threads;             /* that read the source; 0: found by measuring */
    mr_tier_exchange_fn *exchange;
    void *exchange_ctx;
    struct mr_events *events; /* told of fills and copies to SSDs; or NULL */
    const uint8_t *key;       /* 32 bytes that the job's ranks have in common and nobody else; NULL: the exchange is
                                 trusted to carry one */
    uint32_t ranks_per_node;  /* 0: those of a machine; otherwise so many make a node, for tests */
};
int mr_tier_open(const struct mr_tier_params *p, struct mr_tier **out, struct mr_error *err);
/* Waits for what is in flight. With `clean` all ranks meet first, so that nobody's peer goes away too early; without it
 * (after an error) it does not wait for anybody. Accepts NULL. */
void mr_tier_close(struct mr_tier *t, bool clean);

/* Begins at `position` (samples that all ranks together had consumed) of the epoch; deliveries count from 0 again. What
 * the classes hold stays there and is used. Waits for the other ranks of the node. Errors: MR_E_INTERRUPTED after stop.
 */
int mr_tier_seek(struct mr_tier *t, uint64_t epoch, uint64_t position, struct mr_error *err);
/* Ends waits of this rank's threads until the next seek. From any thread. */
void mr_tier_stop(struct mr_tier *t);

/* The training is over: waits until copies of samples to SSDs that wait are written (the leader; the others return at
 * once). close does it with `clean` if nobody has. MR_E_INTERRUPTED after stop. */
int mr_tier_drain(struct mr_tier *t, struct mr_error *err);

/* A source for one engine thread; freed by mr_fetch_source_free before the tier is closed. */
struct mr_fetch_source *mr_tier_source(struct mr_tier *t, struct mr_error *err);
/* The next read is of delivery n, which must be sample id (MR_E_INTERNAL otherwise). */
void mr_tier_source_at(struct mr_fetch_source *s, uint64_t n, uint64_t id);
/* Gives the bytes back; what it was (from, times) is in *d if that is not NULL. from is MR_TIER_FROMS if nothing came.
 */
void mr_tier_source_done(struct mr_fetch_source *s, struct mr_delivery *d);

/* Of the node, since open; every rank of it sees the same figures (they lie in the segment). */
struct mr_tier_counter {
    uint64_t samples, bytes, wait_ns; /* wait_ns: of the device or the peer, summed */
};
struct mr_tier_stats {
    struct mr_tier_counter from[MR_TIER_FROMS];  /* deliveries by where their bytes came from */
    struct mr_tier_counter fills[MR_TIER_FROMS]; /* brought into a class ahead of use */
    uint64_t source_bytes, source_reads;         /* read from the source by this node, for whatever reason */
    uint64_t distinct_bytes;       /* of the samples that this node has read from the source at least once */
    uint64_t served, served_bytes; /* to peers */
    uint64_t refetched;            /* corrupt entries, answers that did not come: read from the source */
    uint64_t corrupt;              /* SSD entries with a wrong checksum */
    uint64_t ssd_refused;          /* writes that found no room or a broken device */
    uint64_t ram_bytes, ram_capacity, ssd_bytes, ssd_capacity, staging_capacity;
    uint32_t node, nodes, threads;
    uint32_t peers_lost;
    uint64_t source_busy_ns; /* in which at least one read of the source was in flight; 0: not measured */
};
void mr_tier_get_stats(struct mr_tier *t, struct mr_tier_stats *out);
/* What was chosen, in one line for people: "node 0 of 4: ram 2 GiB, ssd /nvme/cache 100 GiB, peers on, policy
 * millrace". */
const char *mr_tier_chosen(const struct mr_tier *t);

#endif
