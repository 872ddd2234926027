/* Batches that few ranks read and all get.
 *
 *   ranks 0, 1, ... readers-1 read        rank r's batch is read by rank r mod readers
 *   every rank                            gets it by broadcast
 *
 *     reader g:  next of the feed of g, g + readers, ...  ──┐ status of all       for g = 0 ... readers-1:
 *     others:    nothing                                  ──┴─ maximum ──────>    broadcast sizes, then rows; keep own
 *
 * It saves opens and reads on a file system that slows down with many clients; the cost is that every rank receives
 * every row.
 *
 * Invariants
 *  G1 Every rank enters the same collectives: one that failed or was stopped reports it in the status, and then there is
 *     no broadcast. Only the rank that failed returns its error, the others MR_E_INTERRUPTED, so that the agreement of
 *     the ranks names the right one.
 *  G2 A batch that was read is released when all ranks have it; after a stop it is kept for the next attempt.
 *
 * All functions are called from the thread of the collectives, except stop. */
#ifndef MR_BENCH_FEED_EXCHANGE_H
#define MR_BENCH_FEED_EXCHANGE_H

#include "bench/bench_feed.h"

/* Collective calls around the readers' reading; NULL: none. `before` fails on all ranks alike. */
struct feed_around {
    int (*before)(void *user, struct mr_error *err);
    int (*after)(void *user, struct mr_error *err);
    void *user;
};

struct feed_exchange;

/* How many ranks this one reads for: its own, then every readers-th. */
uint32_t mr_feed_exchange_feeds(const struct mr_comm *c, uint32_t readers);
/* `feed` are those of the ranks that this one reads for, in that order; the array is copied, the feeds are borrowed. Not
 * collective. */
int mr_feed_exchange_create(struct mr_comm *c, uint32_t readers, uint32_t batch_size, struct feed *const *feed,
                            const struct feed_around *around, struct feed_exchange **out, struct mr_error *err);
void mr_feed_exchange_free(struct feed_exchange *x); /* releases the batches it holds; accepts NULL */
int mr_feed_exchange_start_epoch(struct feed_exchange *x, uint64_t epoch, struct mr_error *err); /* not collective */
/* Collective. This rank's rows, valid until the next call; read_bytes includes the bytes read for other ranks. */
int mr_feed_exchange_next(struct feed_exchange *x, bool stopped, struct feed_batch *out, struct mr_error *err);

#endif
