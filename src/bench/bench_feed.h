/* Inside the trainer: where batches come from. A feed is a loader (with the set in memory for reader.read_type memory),
 * an access pattern (pattern.unit file or record), or nothing at all (synthetic data). With file_access collective some
 * ranks read for all (a loader in a group, or bench_share.c for patterns), and next is a collective call. */
#ifndef MR_BENCH_BENCH_FEED_H
#define MR_BENCH_BENCH_FEED_H

#include "bench/pattern.h"
#include "bench/trainer.h"

struct feed;

struct feed_batch {
    uint32_t n;
    const void *const *rows;
    const uint64_t *bytes;
    uint64_t sample_bytes, read_bytes;
    struct mr_batch *loader_batch; /* the loader's, or NULL */
};

/* Opens; the caller agrees with the other ranks afterwards. The training feed of a collective workload is opened by all
 * ranks together. */
int mr_feed_open(const struct mr_bench_params *p, bool eval, struct feed **out, struct mr_error *err);
/* The feed of rank `rank`, read here; a pattern through `source` if there is one. */
int mr_feed_open_for(const struct mr_bench_params *p, bool eval, uint32_t rank, struct mr_fetch_source *source,
                     struct feed **out, struct mr_error *err);
void mr_feed_close(struct feed *f);
/* The same by all ranks, in the thread of the collectives. */
void mr_feed_close_together(struct feed *f);
/* Gives back what must go in the thread of the collectives; close may then run in another. */
void mr_feed_detach(struct feed *f);
uint64_t mr_feed_batches(const struct feed *f); /* per epoch */
int mr_feed_start_epoch(struct feed *f, uint64_t epoch, struct mr_error *err);
int mr_feed_next(struct feed *f, struct feed_batch *out, struct mr_error *err);
void mr_feed_release(struct feed *f, struct feed_batch *b);
/* Calls the next batch of a pattern takes; 0 for other feeds. */
uint64_t mr_feed_pieces(struct feed *f);
/* After the last step: waits until tiers have kept what is for the next run; a stop ends it. */
int mr_feed_drain(struct feed *f, struct mr_error *err);
/* After the last step: what a pattern reads beyond it. */
int mr_feed_finish(struct feed *f, struct mr_error *err);
/* Wakes a waiting next; any thread. */
void mr_feed_stop(struct feed *f);
void mr_feed_stats(struct feed *f, struct mr_bench_loader_stats *out);

/* The training feed is opened by all ranks together, in the thread of the collectives: ranks that read for others, or
 * tiers. */
bool mr_feed_opens_together(const struct mr_bench_params *p);

/* bench_share.c: ranks that read for others. */
bool mr_share_wanted(const struct mr_bench_params *p);
int mr_share_check(const struct mr_bench_params *p, struct mr_error *err); /* the same answer on every rank */
struct mr_loader_group mr_share_group(const struct mr_bench_params *p);    /* over the trainer's ranks */
/* Patterns that few ranks read and all get. */
struct share;
/* Collective. `*batches`: per epoch, the same on all ranks. */
int mr_share_open(const struct mr_bench_params *p, struct share **out, uint64_t *batches, struct mr_error *err);
void mr_share_close(struct share *s);
void mr_share_detach(struct share *s);
int mr_share_start_epoch(struct share *s, uint64_t epoch, struct mr_error *err);
int mr_share_next(struct share *s, struct feed_batch *out, struct mr_error *err);
int mr_share_finish(struct share *s, struct mr_error *err);
void mr_share_stop(struct share *s);
void mr_share_stats(struct share *s, struct mr_bench_loader_stats *out);

#endif
