/* The loader: batches of samples in an exact order, ahead of time, in bounded memory. The benchmark, the Python front
 * ends and a user's own C program all use this interface and nothing below it.
 *
 *   order cursor ──> look-ahead of K batches ──> store ──> format decode ──> [preprocess, transform] ──> row of a batch
 * slab ──> next()
 *
 * The unit of work is a sample: any engine thread completes any sample of the next K batches, so one slow sample delays
 * only itself; batches are delivered in order. Slabs are allocated and faulted once and reused; a batch is leased by
 * mr_loader_next and given back by mr_loader_release. Position is one number, so state and resume cost nothing.
 *
 *     struct mr_loader_params p;
 *     mr_loader_params_init(&p);
 *     p.dataset = "/data/imagenet";  p.batch_size = 64;  p.threads = 8;
 *     mr_loader_open(&p, &loader, &err);
 *     for (uint64_t epoch = 0; epoch < 90; epoch++) {
 *         mr_loader_start_epoch(loader, epoch, &err);
 *         while ((rc = mr_loader_next(loader, &batch, &err)) > 0) { train(batch); mr_loader_release(loader, batch); }
 *     }
 *     mr_loader_close(loader);
 *
 * Threads: one consumer thread calls start_epoch, next, release, state and resume; get_stats may be called from any
 * thread. Errors: a failing sample makes the mr_loader_next of its batch return the error (sample, file, offset,
 * want/have); the loader stays usable for closing and for its statistics. */
#ifndef MILLRACE_LOADER_H
#define MILLRACE_LOADER_H

#include <millrace/error.h>
#include <millrace/order.h>
#include <millrace/preprocess.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum mr_loader_io {
    MR_LOADER_IO_AUTO,    /* threads that read and decode; a queue where the store can and reads are cold (direct) */
    MR_LOADER_IO_THREADS, /* each engine thread reads with direct calls */
    MR_LOADER_IO_QUEUE,   /* one submitter keeps `queue_depth` requests in flight, threads only decode */
};

enum mr_loader_flags {
    MR_LOADER_VERIFY = 1,         /* check the formats' stored checksums */
    MR_LOADER_VERIFY_CONTENT = 2, /* generated sets: compare every byte, or picture, and label with (seed, sample),
                                     before preprocessing; not with RAW */
    MR_LOADER_RAW = 4,            /* do not decode: rows hold the sample's bytes as stored (JPEG files, records) */
    MR_LOADER_DIRECT = 8,         /* bypass the page cache */
    MR_LOADER_IN_PLACE =
        16, /* rows may start at any byte: a sample read directly into a row by a queue stays where its blocks put
               it, which saves moving it to an aligned place. You lose alignment and `data` */
};

/* Called by an engine thread for each decoded sample; may change the row in place or write to it. `row` has row_bytes
 * bytes, of which `bytes` hold the sample. Returns the new number of bytes, or a negative code. Must be thread-safe. */
typedef int64_t mr_loader_transform_fn(void *user, uint64_t epoch, uint64_t id, void *row, size_t row_bytes,
                                       size_t bytes);

struct mr_loader_params {
    const char *dataset;          /* folder or manifest */
    const char *store;            /* storage stack; NULL or "" = posix */
    struct mr_order_params order; /* samples is filled in; rank, world, mode, seed, drop_last ... are the caller's */
    uint32_t batch_size;
    bool drop_last_batch; /* leave out a last, smaller batch; all ranks have equally many either way */
    unsigned threads;     /* engine threads; 0 = the CPUs this process may use */
    unsigned lookahead;   /* batches read ahead (staging); 0: the next one is read, by all threads, when the last is
                             released */
    uint64_t
        memory_bytes; /* limit on slabs and I/O buffers; 0 = what lookahead needs. Too small is an error with numbers */
    const char *policy; /* "staging": read ahead in access order; "naive": read when asked, in the consumer's thread */
    enum mr_loader_io io;
    unsigned queue_depth; /* of all threads together; 0 = 32. Where look-ahead has too few rows for so many requests, up
                             to 32 MiB of batches are added (within memory_bytes) */
    unsigned flags;
    uint64_t row_bytes; /* bytes per row of a batch; a longer sample is an error. 0 = as large as each sample needs */
    uint64_t transfer_bytes; /* split reads into pieces of at most this; 0 = one read per sample */
    const struct mr_preprocess_params
        *preprocess;                   /* crop, resize, flip, normalise every sample; or NULL. Copied. Not with RAW */
    mr_loader_transform_fn *transform; /* after that; or NULL */
    void *transform_user;
    uint64_t max_samples; /* of this rank per epoch; 0 = all */
    uint64_t last_epoch;  /* the caller will read the epochs up to this one in turn: the look-ahead goes on from the end
                             of an  epoch into the next, which short epochs need. 0: each epoch is read when it is
                             started, e.g. because  the page cache is dropped in between. A caller that does something
                             else all the same only  loses what was read in vain */
};
void mr_loader_params_init(struct mr_loader_params *p);

struct mr_batch {
    uint64_t epoch, index;   /* index-th batch of the epoch, from 0 (also after a resume) */
    uint32_t n;              /* rows */
    const void *const *rows; /* where each row lies, 64-byte aligned (any byte with MR_LOADER_IN_PLACE) */
    const void *
        data; /* the first row when rows lie row_bytes apart; NULL when sizes differ and rows are packed, or IN_PLACE */
    size_t row_bytes;
    const uint64_t *ids;
    const int64_t *labels; /* MR_SAMPLE_NO_LABEL where there is none */
    const uint64_t *bytes; /* valid bytes of each row */
    uint64_t wait_ns;      /* how long mr_loader_next waited for it */
    uint64_t read_bytes;   /* bytes read from the store for it */
};

struct mr_loader_stats {
    uint64_t batches, samples, sample_bytes, read_bytes;
    uint64_t wait_ns;                          /* consumer waiting in next() */
    uint64_t read_ns, decode_ns, transform_ns; /* summed over engine threads; transform: preprocessing and transform */
    uint64_t idle_ns;                          /* engine threads with nothing to do (look-ahead full) */
    uint64_t cpu_ns;                           /* CPU time of the engine threads */
    double ready_mean;                         /* time-weighted number of batches ready */
    double empty_ratio;                        /* share of time in which none was ready */
    uint64_t slab_bytes;                       /* memory of all batches */
    unsigned threads;
    const char *limiter; /* "storage", "decode", "consumer": what the last second was limited by */
};

/* Enough to continue exactly: seed, order and data set are the caller's and are checked on resume. */
struct mr_loader_state {
    uint64_t epoch, position; /* samples of all ranks together delivered in the epoch */
    uint64_t seed, samples, order_version;
};

struct mr_loader;

int mr_loader_open(const struct mr_loader_params *p, struct mr_loader **out, struct mr_error *err);
void mr_loader_close(struct mr_loader *l); /* accepts NULL; all batches must have been released */
uint64_t mr_loader_batches_per_epoch(const struct mr_loader *l);
uint64_t mr_loader_samples_per_epoch(const struct mr_loader *l); /* of this rank */
/* Starts reading epoch `epoch` from its beginning (or from where resume set it). */
int mr_loader_start_epoch(struct mr_loader *l, uint64_t epoch, struct mr_error *err);
/* 1 and a batch; 0 at the end of the epoch; negative on error. */
int mr_loader_next(struct mr_loader *l, struct mr_batch **out, struct mr_error *err);
void mr_loader_release(struct mr_loader *l, struct mr_batch *b);
/* The state after the last batch that next() returned. */
void mr_loader_get_state(const struct mr_loader *l, struct mr_loader_state *out);
/* Makes the next start_epoch(state->epoch) continue there; also with another world size in the global order modes. */
int mr_loader_resume(struct mr_loader *l, const struct mr_loader_state *s, struct mr_error *err);
void mr_loader_get_stats(struct mr_loader *l, struct mr_loader_stats *out);
/* Wakes a waiting next() with MR_E_INTERRUPTED; safe from a signal handler's thread or any other. */
void mr_loader_stop(struct mr_loader *l);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
