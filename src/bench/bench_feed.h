/* Inside the trainer: where batches come from. One interface, four kinds of feeds:
 *
 *   feed_loader.c     the loader (with the set in memory for reader.read_type memory)
 *   feed_pattern.c    an access pattern (pattern.unit file or record)
 *   feed_synthetic.c  nothing is read (synthetic data, pattern.unit none)
 *   feed_shared.c     reader.file_access collective and mpio: some ranks read for all, and next is a collective call
 *
 * To add one: embed struct feed as the first member, fill a struct feed_ops, call mr_feed_init in an open function of
 * its own, and add that to mr_feed_open_for. */
#ifndef MR_BENCH_BENCH_FEED_H
#define MR_BENCH_BENCH_FEED_H

#include "bench/pattern.h"
#include "bench/trainer.h"

struct feed;

struct feed_batch {
    uint32_t n;
    const void *const *rows; /* NULL: there are none */
    const uint64_t *bytes;
    uint64_t sample_bytes, read_bytes;
    struct mr_batch *loader_batch; /* the loader's, or NULL */
};

/* What a kind of feed does. NULL: nothing to do. All but stop and stats are called by the trainer's thread; the feed
 * passed in is always one of this kind. */
struct feed_ops {
    int (*start_epoch)(struct feed *f, uint64_t epoch, struct mr_error *err);
    /* Required. 1 and a batch, 0 at the end of the epoch, or a negative code. *out is zero before. */
    int (*next)(struct feed *f, struct feed_batch *out, struct mr_error *err);
    void (*release)(struct feed *f, struct feed_batch *b);
    uint64_t (*pieces)(struct feed *f);
    int (*drain)(struct feed *f, struct mr_error *err);
    int (*finish)(struct feed *f, struct mr_error *err);
    void (*stop)(struct feed *f);
    void (*stats)(struct feed *f, struct mr_bench_loader_stats *out);
    void (*detach)(struct feed *f);
    /* Closes what the kind opened, also of a feed that was opened in part; `together`: all ranks do it. The struct is
     * freed afterwards. */
    void (*close)(struct feed *f, bool together);
};

/* The first member of every feed. */
struct feed {
    const struct feed_ops *ops;
    uint64_t n_batches;     /* per epoch */
    char dataset[4096];     /* what is read, for mr_dataset_open */
    char *store_spec;       /* "{rank}" replaced */
    struct mr_store *store; /* of a pattern and its header; or NULL */
    struct mr_dataset *set; /* a pattern's: where samples lie; or NULL */
};

/* What a feed is opened for. */
struct feed_request {
    const struct mr_bench_params *p;
    bool eval;
    uint32_t rank;   /* whose batches */
    bool for_others; /* part of a shared feed: no step of this rank waits for it, and none is emitted */
    struct mr_pattern_source *source; /* what a pattern is read through; NULL: the store */
};

/* Opens; the caller agrees with the other ranks afterwards. A shared feed is opened by all ranks together. */
int mr_feed_open(const struct mr_bench_params *p, bool eval, struct feed **out, struct mr_error *err);
/* The feed of one rank, read here. */
int mr_feed_open_for(const struct feed_request *q, struct feed **out, struct mr_error *err);
void mr_feed_close(struct feed *f); /* accepts NULL */
/* The same by all ranks, in the thread of the collectives. */
void mr_feed_close_together(struct feed *f);
/* Gives back what must go in the thread of the collectives; close may then run in another. Accepts NULL. */
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
/* Some ranks read for all: reader.file_access collective or mpio. */
bool mr_feed_is_shared(const struct mr_bench_params *p);

/* ---- for the kinds ---- */

/* Fills the base: what is read, and with `with_files` or pattern.header_reads the store and the data set; reads the
 * header. On failure the caller closes the feed. */
int mr_feed_init(struct feed *f, const struct feed_ops *ops, const struct feed_request *q, bool with_files,
                 struct mr_error *err);
int mr_feed_loader_open(const struct feed_request *q, struct feed **out, struct mr_error *err);
int mr_feed_pattern_open(const struct feed_request *q, struct feed **out, struct mr_error *err);
int mr_feed_synthetic_open(const struct feed_request *q, struct feed **out, struct mr_error *err);
int mr_feed_shared_open(const struct mr_bench_params *p, struct feed **out, struct mr_error *err);
/* *out = f where rc is 0; otherwise closes it and returns rc. */
int mr_feed_finish_open(struct feed *f, int rc, struct feed **out);

/* Emulated preprocessing (bench_preprocess.c): reader.preprocess_time and the bytes that a sample keeps. */
struct mr_feed_work {
    struct mr_dist time;
    uint64_t seed, resize_bytes;
    bool sleeps;
    const _Atomic uint32_t *stop;
};
struct mr_feed_work mr_feed_work_of(const struct mr_bench_params *p);
bool mr_feed_work_takes_time(const struct mr_feed_work *w);
/* A mr_loader_transform_fn; `work` is a struct mr_feed_work. */
int64_t mr_feed_work_do(void *work, uint64_t epoch, uint64_t id, void *row, size_t row_bytes, size_t bytes);

#endif
