/* Inside the trainer: where batches come from. A feed is a loader, a data set held in memory (reader.read_type memory),
 * or nothing at all (synthetic data). */
#ifndef MR_BENCH_BENCH_FEED_H
#define MR_BENCH_BENCH_FEED_H

#include "bench/bench.h"

struct feed;

struct feed_batch {
    uint32_t n;
    const void *const *rows;
    const uint64_t *bytes;
    uint64_t sample_bytes, read_bytes;
    struct mr_batch *loader_batch; /* the loader's, or NULL */
};

/* Opens; the caller agrees with the other ranks afterwards. */
int mr_feed_open(const struct mr_bench_params *p, bool eval, struct feed **out, struct mr_error *err);
void mr_feed_close(struct feed *f);
uint64_t mr_feed_batches(const struct feed *f); /* per epoch */
int mr_feed_start_epoch(struct feed *f, uint64_t epoch, struct mr_error *err);
int mr_feed_next(struct feed *f, struct feed_batch *out, struct mr_error *err);
void mr_feed_release(struct feed *f, struct feed_batch *b);
/* Wakes a waiting next; any thread. */
void mr_feed_stop(struct feed *f);
void mr_feed_stats(struct feed *f, struct mr_bench_loader_stats *out);

#endif
