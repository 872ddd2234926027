/* Batches that few ranks read and all get: the exchange behind a loader's group (<millrace/loader.h>), for anything
 * that makes batches (loaders, the benchmark's access patterns).
 *
 *   ranks 0, 1, ... readers-1 read        rank r's batch is read by rank r mod readers
 *   every rank                            gets it by broadcast
 *
 *     reader g:  next of the feed of g, g + readers, ...  ──┐ status of all       for g = 0 ... readers-1:
 *     others:    nothing                                   ──┴─ maximum ──────>   broadcast sizes, then rows; keep own
 *
 * Invariants: G1 every rank enters the same collectives, whatever happened to it: one that failed or was told to stop
 * says so in the status, and then nobody broadcasts. Only the rank that failed returns the error; the others
 * "interrupted", so that the caller's own agreement names the right one. G2 a batch that was read is given back when
 * all have it; after a stop it is kept for the next attempt.
 *
 * All functions from the thread of the collectives, except stop. */
#ifndef MR_LOADER_GROUP_SHARE_H
#define MR_LOADER_GROUP_SHARE_H

#include <millrace/loader.h>

/* One rank's rows. */
struct mr_share_rows {
    uint32_t n;
    const void *const *rows;
    const uint64_t *bytes;
    const uint64_t *ids;           /* or NULL */
    const int64_t *labels;         /* or NULL: none */
    const struct mr_shape *shapes; /* of each; or NULL: all have `shape` */
    const struct mr_shape *shape;  /* or NULL: flat bytes */
    uint64_t read_bytes;
};

/* Who makes the batches of one rank. */
struct mr_share_feed_ops {
    int (*start_epoch)(void *feed, uint64_t epoch, struct mr_error *err);
    int (*next)(void *feed, struct mr_share_rows *out, struct mr_error *err); /* 1, or negative */
    void (*release)(void *feed);                                              /* what next gave last */
    void (*stop)(void *feed);
};

/* What every rank does around the readers' reading, collectively; NULL: nothing. `before` fails on all ranks alike. */
struct mr_share_around {
    int (*before)(void *user, struct mr_error *err);
    int (*after)(void *user, struct mr_error *err);
    void *user;
};

struct mr_group_share;

/* How many ranks this one reads for: its own, then every readers-th. */
uint32_t mr_group_feeds(const struct mr_loader_group *g);
/* `feed` are those of the ranks that this one reads for, in that order; the array is copied, they stay the caller's.
 * Not a collective call. */
int mr_group_share_create(const struct mr_loader_group *g, uint32_t batch_size, const struct mr_share_feed_ops *ops,
                          void *const *feed, const struct mr_share_around *around, struct mr_group_share **out,
                          struct mr_error *err);
void mr_group_share_free(struct mr_group_share *s); /* gives back what is held; accepts NULL */
int mr_group_share_start_epoch(struct mr_group_share *s, uint64_t epoch, struct mr_error *err); /* not collective */
/* Collective. This rank's rows, valid until the next call; read_bytes is what it read for others, too. */
int mr_group_share_next(struct mr_group_share *s, bool stopped, struct mr_share_rows *out, struct mr_error *err);
void mr_group_share_stop(struct mr_group_share *s);

/* "{rank}" in a storage stack: every rank its own trace file, for example. A rank that reads for others has one more
 * for each of them: "R-for-S". malloc'ed; NULL when spec is NULL or memory is short. */
char *mr_group_store_spec(const char *spec, uint32_t rank, uint32_t reads_for);

#endif
