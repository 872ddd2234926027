/* The loader: batches of samples in an exact order, ahead of time, in bounded memory. The benchmark, the Python front
 * ends and a user's own C program all use this interface and nothing below it.
 *
 *   order cursor -> look-ahead of K batches -> fetch -> format decode -> [preprocess, transform] -> row of a slab
 *                                                                                                     |
 *                                                       next() <- batches in order, each complete <---+
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
 * Threads. One consumer thread at a time calls start_epoch, next, next_timed, release, get_state, resume, restart and
 * close. mr_loader_stop and mr_loader_get_stats may be called from any thread while the loader is open. Different
 * loaders share nothing but what the operating system shares.
 *
 * Ownership. open makes the loader, close frees it. Everything a batch points to belongs to the loader and is valid
 * from the next() that returned the batch to its release(). Strings and structs in the parameters are copied by open
 * unless their comment says "borrowed"; borrowed ones must live until close.
 *
 * Errors. Functions return 0 (or a count) or a negative code and fill `err`, which may be NULL (see error.h). A sample
 * that cannot be read makes the next() of its batch return the error, with sample, file, offset, want and have; batches
 * before it are delivered first. After that the epoch cannot go on: start it again, resume behind it, or close.
 *
 * Compatibility. Fields are only ever appended to the structs below. A program compiled against an older header keeps
 * working with a newer library: the parameters carry their size, get_stats is told the size of its result, and a batch
 * is the library's own memory, of which an older program reads the front part. */
#ifndef MILLRACE_LOADER_H
#define MILLRACE_LOADER_H

#include <millrace/dataset.h>
#include <millrace/error.h>
#include <millrace/field.h>
#include <millrace/order.h>
#include <millrace/preprocess.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* How the bytes of samples are read. It changes speed, never content or order. */
enum mr_loader_io {
    /* Threads; a queue where reads bypass the page cache (MR_LOADER_DIRECT). */
    MR_LOADER_IO_AUTO,
    /* Each engine thread reads with direct calls: best where the page cache, or the storage, answers in microseconds.
     * Costs one thread per request in flight. */
    MR_LOADER_IO_THREADS,
    /* Each engine thread keeps its share of `queue_depth` requests in flight and decodes what comes back: best for cold
     * storage. Costs up to 32 MiB of further batches where the look-ahead has too few rows for so many requests. */
    MR_LOADER_IO_QUEUE,
};

enum mr_loader_flags {
    /* Check the formats' stored checksums (TFRecord, zip, PNG ...). Costs the checksum and, where it lies outside the
     * payload, a longer read; rows can then not be read in place. A mismatch is MR_E_CORRUPT. */
    MR_LOADER_VERIFY = 1,
    /* Generated sets only: compare every byte, or picture, and label with what (seed, sample) must be, before
     * preprocessing. Costs making the content a second time. Not with RAW. A difference is MR_E_CORRUPT. */
    MR_LOADER_VERIFY_CONTENT = 2,
    /* Do not decode: rows hold the sample's bytes as stored (JPEG files, records). You lose dtype and shape (rows are
     * flat "u1"), checksums and preprocessing. */
    MR_LOADER_RAW = 4,
    /* Bypass the page cache. Reads take whole blocks of 4 KiB; where the file system refuses, the cache is used and the
     * log says so once. You lose what the cache would have kept for the next epoch. */
    MR_LOADER_DIRECT = 8,
    /* Rows may start at any byte: a sample read directly into a row by a queue stays where its blocks put it, which
     * saves moving it to an aligned place. You lose alignment and mr_batch.data. */
    MR_LOADER_IN_PLACE = 16,
    /* Read the whole data set once, all of it on every rank, and serve every epoch from memory: by mr_loader_load, or
     * else by the first mr_loader_start_epoch. What is kept is what is stored; decoding, preprocessing and the
     * transform happen in every epoch. Costs the bytes of the set as memory, beside memory_bytes, and no storage is
     * read later. */
    MR_LOADER_IN_MEMORY = 32,
    /* Rows lie directly one behind the other where all have one size, so that a batch is one array without gaps. You
     * lose the alignment of rows; a batch stays aligned to 64 bytes. */
    MR_LOADER_DENSE = 64,
    /* A sample that cannot be read or decoded is left out of its batch, which then has fewer rows; mr_loader_skipped
     * counts them and has the first one's error. A batch of which no sample is left fails. Not with rows of differing
     * sizes. */
    MR_LOADER_SKIP_BAD = 128,
};

/* Called by an engine thread for each decoded (and preprocessed) sample. `row` has row_bytes bytes of room, of which
 * `bytes` hold the sample; the function may change them in place. It returns the number of bytes the row has now, or a
 * negative code, which fails the sample. A row that keeps its number of bytes keeps its dtype and shape; with another
 * number it is a flat array of "u1". Must be thread-safe; must not call the loader, except mr_loader_stop. */
typedef int64_t mr_loader_transform_fn(void *user, uint64_t epoch, uint64_t id, void *row, size_t row_bytes,
                                       size_t bytes);

/* All-gather among all ranks of the order: every rank gives `len` bytes (the same len everywhere) and gets world * len
 * in the order of the ranks. Returns 0 or a negative code. */
typedef int mr_loader_exchange_fn(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err);

/* Do nodes ask each other for samples? */
enum mr_loader_peers {
    MR_LOADER_PEERS_AUTO, /* where there are several nodes and the transport is there */
    MR_LOADER_PEERS_ON,   /* a transport that cannot be used is an error */
    MR_LOADER_PEERS_OFF,
};

/* Values that differ in one axis from sample to sample: what a batch of them is. */
enum mr_loader_ragged {
    MR_RAGGED_LIST, /* rows of their own; mr_batch_field.data is NULL */
    MR_RAGGED_PAD,  /* one array, as long as the longest of the batch, zeros behind the others; `lengths` has the true
                       ones. Any number of axes may differ */
    MR_RAGGED_PACK, /* one array, one value behind the other along the first axis, which is the one that differs; value i
                       is [offsets[i], offsets[i + 1]) of it, as attention kernels take it (cu_seqlens) */
};

/* What becomes of a field's values with `preprocess`: geometry is drawn once per sample and done to all of them. */
enum mr_field_use {
    MR_USE_AUTO,  /* IMAGE for the first input that is stored as JPEG or PNG, or of shape height x width (x channels) of
                     u1. With it MASK for targets that are pictures or height x width integers, and BOXES for arrays of
                     four columns called boxes, bboxes or bbox; else VALUE */
    MR_USE_VALUE, /* as it is */
    MR_USE_IMAGE, /* all of preprocess */
    MR_USE_MASK, /* height x width, or masks x height x width: crop, resize (nearest) and flip as torchvision v2's masks;
                     dtype stays. A grey picture has no axis of channels then */
    MR_USE_BOXES, /* n x 4 floats or integers, x0 y0 x1 y1 in pixels: moved, clipped and scaled as torchvision v2's; none
                     is dropped */
};

struct mr_events; /* where the loader tells what it does; inside Millrace only */

#define MR_LOADER_KEY_BYTES 32

/* What to load and how. Always start from mr_loader_params_init, which sets `size` and the defaults. */
struct mr_loader_params {
    /* sizeof(struct mr_loader_params) as the caller was compiled; set by init. Fields that an older, smaller struct
     * does not have are at their defaults. A larger struct than the library knows is accepted if what the library does
     * not know is zero, else MR_E_UNSUPPORTED. */
    size_t size;
    /* Folder of the data set, or its manifest; "PATH@files=N" is its first N files. Required. */
    const char *dataset;
    /* Storage stack, e.g. "uring" or "throttle(latency=1ms):posix"; NULL or "" = "posix". See 'millrace help store'. */
    const char *store;
    /* Which samples this rank reads when. `samples` is filled in; rank, world, mode, seed, drop_last ... are the
     * caller's. This struct never grows: what is new in an order comes as a field of its own here. */
    struct mr_order_params order;
    /* Rows of a batch, at least 1. Default 1. */
    uint32_t batch_size;
    /* Leave out a last, smaller batch. All ranks have equally many batches either way. */
    bool drop_last_batch;
    /* Engine threads; 0 = as many as the CPUs this process may use. */
    unsigned threads;
    /* Batches read ahead of the consumer. Default 2. 0: the next one is read, by all threads, when the last is
     * released. Each costs one slab of batch_size rows. */
    unsigned lookahead;
    /* Limit on slabs and I/O buffers; 0 = what lookahead needs. Too small for the look-ahead: MR_E_CONFIG, with the
     * numbers. */
    uint64_t memory_bytes;
    /* Prefetching and caching policy. NULL (default): "millrace" where `tiers` is given, else "staging".
     * "staging": engine threads read ahead in access order and keep nothing. "naive": the consumer's own thread reads a
     * batch when it asks for it; no engine threads exist. "millrace", "nopfs", "lbann-dynamic" and whatever else of
     * 'millrace sim' keeps samples and the order: with tiers, see below. "perfect": the first batches are made once and
     * handed out for every step, so the data are NOT those of the order (mr_batch.ids says whose they are): what would
     * a loader give that costs nothing? Policies that change the order are MR_E_UNSUPPORTED. mr_loader_choose
     * resolves a name and tiers without opening anything. */
    const char *policy;
    /* Default AUTO. */
    enum mr_loader_io io;
    /* Requests in flight of all threads together, with a queue; 0 = 32. */
    unsigned queue_depth;
    /* MR_LOADER_* or'ed. */
    unsigned flags;
    /* Bytes per row of a batch; a longer sample is MR_E_LIMIT. 0 = as large as each sample needs, found without reading
     * where the manifest knows it, else from eight samples. */
    uint64_t row_bytes;
    /* Split reads into pieces of at most this, as another program would; 0 = one read per range, and neighbouring
     * ranges of a sample in one read. */
    uint64_t transfer_bytes;
    /* Crop, resize, flip, normalise every sample; or NULL. Copied. Not with RAW. */
    const struct mr_preprocess_params *preprocess;
    /* Called after that; or NULL. transform_user is borrowed. */
    mr_loader_transform_fn *transform;
    void *transform_user;
    /* Samples of this rank per epoch; 0 = all. */
    uint64_t max_samples;
    /* The caller will read the epochs up to this one in turn: the look-ahead goes on from the end of an epoch into the
     * next, which short epochs need. 0: each epoch is read when it is started, e.g. because the page cache is dropped
     * in between. A caller that does something else all the same only loses what was read in vain. */
    uint64_t last_epoch;
    /* Borrowed; NULL outside Millrace. */
    struct mr_events *events;
    /* Batches that a caller may keep beyond their release with mr_loader_take while reading goes on: each costs one
     * more slab. Default 0. */
    unsigned spare;

    /* Tiers: stored bytes stay in the node's memory, on its SSDs and with its peers, as the policy decides;
     * doc/guides/tiers.md is the manual. With a policy that keeps samples, mr_loader_open is collective among all ranks
     * of the order, and so is every start_epoch that the look-ahead has not come to by itself (another epoch than
     * announced, a resume): all ranks do the same. `last_epoch` (and epochs_known) should be set: the policy plans for
     * what is still to come. A loader that was read to the end of the last epoch closes together with the others; any
     * other closes alone. Not with IN_MEMORY or mr_loader_start_list; `io`, `queue_depth` and
     * `transfer_bytes` have no effect. */
    /* "ram=2GiB,ssd=/nvme/cache:100GiB,staging=64MiB", each optional; "" or "auto": chosen from the machine. NULL
     * (default): "auto" if the policy keeps samples, else none. Borrowed for open only. */
    const char *tiers;
    enum mr_loader_peers peers;
    /* How ranks find each other, in open and close only; ctx is borrowed. NULL with more than one rank: over TCP, by
     * torchrun's variables and with a key (below), else MR_E_USAGE. */
    mr_loader_exchange_fn *exchange;
    void *exchange_ctx;
    /* last_epoch is the last one that is read, also where it is 0. Without this, a last_epoch of 0 is: not known, and
     * tiers look 64 epochs ahead. */
    bool epochs_known;
    /* A secret of the job's ranks, the same on all of them: MR_LOADER_KEY_BYTES random bytes, or a file that holds them,
     * a regular one of this user with mode 0600 or less. With it ranks prove to each other who they are
     * (doc/internals/wire.md), and it is never sent. Needed for the exchange over TCP; without it a caller's `exchange`
     * carries a secret for the rest. One of the two; borrowed for open only. Bytes on a command line or in the
     * environment are no secret. */
    const uint8_t *key;
    const char *key_file;

    /* Fields of a sample (millrace/field.h, doc/internals/fields.md). NULL (default): the primary field and the label,
     * as ever. Else batches have mr_batch.fields, in this order: names of fields, or one name "*" for all of them that
     * are delivered by default (roles input, target and weight). Bytes of fields that are not named are not read.
     * Borrowed for open only. Not with MR_LOADER_IN_PLACE; MR_LOADER_RAW delivers what is stored of all of them as one
     * row. `transform` gets the value of the first input (or of the first), and must keep its number of bytes. */
    const char *const *fields;
    uint32_t n_fields;
    enum mr_loader_ragged ragged;
    const enum mr_field_use *uses; /* of each of `fields`; NULL: AUTO. Borrowed for open only */
};
/* Sets the defaults in the caller's struct, whatever its size. No errors. */
void mr_loader_params_init_sized(struct mr_loader_params *p, size_t size);
static inline void mr_loader_params_init(struct mr_loader_params *p)
{
    mr_loader_params_init_sized(p, sizeof(*p));
}

/* The policy and the tiers that a loader with these parameters uses. This struct never grows. */
struct mr_loader_choice {
    const char *policy; /* its name; the library's, or the plug-in's that brought it */
    const char *tiers;  /* the specification, the caller's or a constant; NULL: no tiers. With tiers, mr_loader_open is
                           collective and `last_epoch` should be set */
    bool reads_ahead;   /* batches are read before the consumer asks for them */
    bool is_perfect;    /* prepared batches are handed out, not the data of the order */
};
/* What `policy` and `tiers` of the parameters amount to; NULL and "" are: not given. Opens nothing, reads nothing but
 * the specification. mr_loader_open decides by the same rules. Errors: MR_E_CONFIG (tiers that cannot be parsed),
 * MR_E_USAGE (no such policy, tiers for a policy that keeps nothing), MR_E_UNSUPPORTED (a policy that changes the
 * order). From any thread. */
int mr_loader_choose(const char *policy, const char *tiers, struct mr_loader_choice *out, struct mr_error *err);

/* What the bytes of a row are: an array in C order. */
struct mr_shape {
    char dtype[8]; /* numpy's code without byte order: "u1", "f4", "c16"; always little-endian. "" where rows differ */
    int n_dims;    /* 0: one number. -1: rows differ */
    uint64_t dims[MR_SAMPLE_DIMS_MAX];
};

/* One field of a batch. Structs are pointed to, so that this one may grow at its end. */
struct mr_batch_field {
    const char *name;
    enum mr_field_role role;
    /* As those of mr_batch. With MR_RAGGED_PACK rows lie one directly behind the other. */
    const void *const *rows;
    const void *data; /* all rows, row_bytes apart; packed: the one array; NULL: rows are of their own */
    size_t row_bytes;
    const uint64_t *bytes;
    struct mr_shape shape;         /* of a row; padded: with the padding; packed: of the whole array */
    const struct mr_shape *shapes; /* of each row without padding, where they differ; else NULL */
    const uint64_t *offsets;       /* n + 1, with MR_RAGGED_PACK; else NULL */
    const uint64_t *lengths;       /* n times shape.n_dims, with MR_RAGGED_PAD where rows differ; else NULL */
};

/* A batch. The struct and all it points to belong to the loader and stay as they are until release. */
struct mr_batch {
    uint64_t epoch, index;   /* index-th batch of the epoch, from 0 (also after a resume) */
    uint32_t n;              /* rows: batch_size, or fewer in the last batch of an epoch */
    const void *const *rows; /* where each row lies, 64-byte aligned (any byte with MR_LOADER_IN_PLACE) */
    const void *data;        /* the first row when rows lie row_bytes apart; NULL when sizes differ and rows are packed,
                                or with IN_PLACE */
    size_t row_bytes;        /* distance of rows when `data` is set */
    const uint64_t *ids;     /* sample of each row */
    const int64_t *labels;   /* MR_SAMPLE_NO_LABEL where there is none */
    const uint64_t *bytes;   /* valid bytes of each row; what follows in the row is undefined */
    uint64_t wait_ns;        /* how long next() waited for it, timed-out calls included */
    uint64_t read_bytes;     /* bytes read from storage for it */
    /* dtype and dims that all rows have: with n_dims >= 0 and `data` set the batch is one strided array of n times that
     * shape. n_dims -1: rows differ; dtype is set all the same if at least that is common. */
    struct mr_shape shape;
    const struct mr_shape *shapes; /* of each row; NULL when all rows have `shape`. See mr_batch_shape */
    /* Bytes of each row that was left as stored (mr_loader_leave_stored), 0 for the others. Such a row
     * holds these bytes, and `bytes` and `shape` say what is to be made of them. */
    const uint64_t *stored;
    /* The fields that were asked for, in that order; 0 and NULL where none were. `rows`, `data`, `bytes` and `shape`
     * above are then those of the first input among them (or of the first), `labels` are the manifest's. */
    uint32_t n_fields;
    const struct mr_batch_field *const *fields;
};
/* What row `row` is. */
static inline const struct mr_shape *mr_batch_shape(const struct mr_batch *b, uint32_t row)
{
    return b->shapes ? &b->shapes[row] : &b->shape;
}

/* Samples of this rank by where their bytes came from. */
struct mr_loader_from {
    uint64_t samples, bytes; /* as stored */
    /* What devices and peers took, from the start of a read or request to its end, without waits in our own queues, summed
     * over the samples; 0 for what was there. Reads overlap: the sum exceeds the time that passed where several were in
     * flight. */
    uint64_t fetch_ns;
};

/* What tiers have done; all 0 without. ram, ssd, peer and source are this rank's, the rest is of its node and the
 * same for all of the node's ranks. */
struct mr_loader_tier_stats {
    bool used;
    struct mr_loader_from ram, ssd, peer, source;
    uint64_t source_bytes, source_reads; /* read from the data set's files by the node, for whatever reason */
    uint64_t distinct_bytes;             /* of the samples among them, each counted once */
    uint64_t filled_bytes;               /* brought into a class ahead of use */
    uint64_t served, served_bytes;       /* to other nodes */
    uint64_t refetched;                  /* entries with a wrong checksum, answers that did not come: read again */
    uint64_t corrupt;                    /* entries of the SSD with a wrong checksum */
    uint64_t ssd_refused;                /* writes that found no room, or a device that fails */
    uint64_t ram_bytes, ram_capacity, ssd_bytes, ssd_capacity, staging_capacity;
    uint32_t node, nodes, threads; /* threads: of the node, that read the source */
    uint32_t peers_lost;
    uint64_t source_busy_ns; /* in which at least one read of the source was in flight; 0: not known */
    uint64_t set_bytes;      /* of all samples of the data set, as stored */
};

/* What the loader has done. Sums are over its life. */
struct mr_loader_stats {
    uint64_t batches, samples, sample_bytes, read_bytes; /* delivered by next(); read from storage for that */
    uint64_t wait_ns;                                    /* consumer waiting in next() */
    uint64_t read_ns, decode_ns, transform_ns; /* summed over engine threads; transform: preprocessing and transform */
    uint64_t idle_ns;                          /* engine threads with nothing to do (look-ahead full) */
    uint64_t cpu_ns;                           /* CPU time of the engine threads */
    double ready_mean;                         /* time-weighted number of batches ready */
    double empty_ratio;                        /* share of time in which none was ready */
    uint64_t slab_bytes;                       /* memory of all batches */
    unsigned threads;
    const char *limiter; /* what the last second was limited by: "storage" (threads mostly read), "decode" (decode and
                            transform) or "consumer" (threads mostly idle). A string constant */
    const char *lifetime_limiter; /* the same over the loader's life */
    /* The last second; right after the start, the time since then. */
    uint64_t recent_ns; /* how long that is */
    double recent_samples_per_s, recent_bytes_per_s, recent_read_bytes_per_s;
    double recent_wait_ratio; /* share of it that the consumer waited in next() */
    uint64_t loaded_bytes;    /* read from storage by MR_LOADER_IN_MEMORY */
    struct mr_loader_tier_stats tier;
};

/* What one of the fields cost. Sums over the loader's life. */
struct mr_loader_field_stats {
    const char *name;                      /* the loader's */
    uint64_t samples, stored_bytes, bytes; /* as stored, and as delivered */
    uint64_t decode_ns, transform_ns;      /* summed over engine threads */
};

/* A position: enough to continue exactly, in 40 bytes. Seed, order and data set are the caller's and are checked on
 * resume. This struct never grows; write it to a checkpoint field by field. */
struct mr_loader_state {
    uint64_t epoch, position; /* samples of all ranks together delivered in the epoch */
    uint64_t seed, samples, order_version;
};

struct mr_loader;

#define MR_LOADER_FOREVER UINT64_MAX /* a timeout that never comes */

/* Opens the data set and makes slabs and engine threads; reads nothing but the manifest (and eight samples where
 * decoded sizes are not known). Costs O(slabs) to fault memory, O(samples) for order "torch". Errors: MR_E_USAGE
 * (parameters that contradict each other or were not initialised), MR_E_UNSUPPORTED (newer parameters, policies that
 * cannot run), MR_E_CONFIG (memory limit, unknown store), MR_E_FORMAT, MR_E_CORRUPT, MR_E_CHANGED (the manifest),
 * -ENOMEM, -errno. *out is set on success only. */
int mr_loader_open(const struct mr_loader_params *p, struct mr_loader **out, struct mr_error *err);
/* Ends reading, waits for what is in flight, frees everything. Accepts NULL. All batches become invalid; releasing them
 * first is not needed. With tiers, a loader that was read to the end of the last epoch waits for the other ranks to
 * close theirs; any other closes alone. */
void mr_loader_close(struct mr_loader *l);
/* The same, as a collective call of all ranks: tiers end in good order although the epochs were not read to their end.
 * A loader that was stopped or failed still closes alone, so make sure that either all ranks stopped theirs or none.
 * Without tiers it is mr_loader_close. Accepts NULL. */
void mr_loader_close_together(struct mr_loader *l);
/* After the last batch: waits until tiers have copied to the SSDs the samples that the next run finds there; returns at
 * once without tiers. close does it too; a caller that wants to be interruptible, or to measure it, calls this first.
 * Returns 0 or MR_E_INTERRUPTED (mr_loader_stop was called; nothing is lost but reads of the next run). By the
 * consumer. */
int mr_loader_drain(struct mr_loader *l, struct mr_error *err);
/* Of this rank: batches of the epoch that was started last (of any, before the first), and samples, of what was left of
 * it when it was started. No errors, O(1). */
uint64_t mr_loader_batches_per_epoch(const struct mr_loader *l);
uint64_t mr_loader_samples_per_epoch(const struct mr_loader *l);
/* With MR_LOADER_IN_MEMORY: reads the set, for no longer than timeout_ns; 0 when all of it is there (at once without
 * the flag). Errors: MR_E_TIMEOUT and MR_E_INTERRUPTED (call again to go on), -ENOMEM, and those of mr_loader_next,
 * after which it begins anew. By the consumer. */
int mr_loader_load(struct mr_loader *l, uint64_t timeout_ns, struct mr_error *err);
/* Starts reading epoch `epoch` from its beginning (or from where resume set it). Any epoch, in any order, also in the
 * middle of another one, which is abandoned. Free when the epoch was announced by last_epoch and the one before it read
 * to its end; else waits for samples being read. Errors: MR_E_USAGE (batches not released; a position beyond the end),
 * -ENOMEM (the order). */
int mr_loader_start_epoch(struct mr_loader *l, uint64_t epoch, struct mr_error *err);
/* The next batch. Returns 1 and a batch; 0 at the end of the epoch. Errors: MR_E_INTERRUPTED after mr_loader_stop (call
 * mr_loader_restart to go on); MR_E_USAGE (no epoch started, all batches in use, epoch failed before); else what was
 * wrong with a sample: MR_E_FORMAT, MR_E_CORRUPT, MR_E_CHANGED, MR_E_LIMIT, -errno, or what the transform returned.
 * Takes a lock once; waits only if the batch is not complete. */
int mr_loader_next(struct mr_loader *l, struct mr_batch **out, struct mr_error *err);
/* The same, waiting no longer than timeout_ns (0: not at all). When the time is over it returns MR_E_TIMEOUT, nothing
 * is lost, and it may be called again. With policy "naive" reading a sample cannot be interrupted: it ends after the
 * sample during which the time ran out, and the next call goes on behind it. */
int mr_loader_next_timed(struct mr_loader *l, uint64_t timeout_ns, struct mr_batch **out, struct mr_error *err);
/* Gives a batch back, after which its memory is overwritten. Batches may be given back in any order; memory is reused
 * when those before are back, too. No errors. */
void mr_loader_release(struct mr_loader *l, struct mr_batch *b);
/* The memory of a batch, kept beyond its release. */
struct mr_slab;
/* Keeps the rows of a batch: `rows`, `data` and what they point to stay valid until mr_slab_free(*out), whatever
 * becomes of the batch and the loader; ids, labels, bytes and shapes do not. Release the batch as always; its place in
 * the ring goes on with a spare slab. With `fresh` (as long as mr_loader_slab_bytes says, aligned to 64 bytes) it goes
 * on with that memory instead, *out is NULL and the old memory, if it came this way, is the caller's again. Returns 0,
 * or -EAGAIN: no slab is spare, or rows lie outside their slab; copy them. By the consumer. */
int mr_loader_take(struct mr_loader *l, struct mr_batch *b, void *fresh, struct mr_slab **out);
/* Gives the memory back; from any thread, at any time, also after close. Accepts NULL. */
void mr_slab_free(struct mr_slab *slab);
/* Replaces the memory of batch place `index` (0 to mr_loader_places - 1), before the first epoch: for memory that a
 * device can read. As `fresh` above. */
void mr_loader_set_memory(struct mr_loader *l, unsigned index, void *fresh);
unsigned mr_loader_places(const struct mr_loader *l);
uint64_t mr_loader_slab_bytes(const struct mr_loader *l);
/* From now on the last `rows` rows of every batch are pictures as stored, for a decoder of the caller's (on a device):
 * JPEG files of one or three channels whose bytes fit a row. Others are decoded and preprocessed as always, and so are
 * rows of batches that are being read. May be called at any time, from any thread. 0, or MR_E_UNSUPPORTED: no
 * preprocessing to one size, a queue, a transform, or a check of content. */
int mr_loader_leave_stored(struct mr_loader *l, uint32_t rows, struct mr_error *err);
/* Samples left out of the batches delivered so far with MR_LOADER_SKIP_BAD; why the first one was (may be NULL; set if
 * the count is not 0). From any thread. */
uint64_t mr_loader_skipped(struct mr_loader *l, struct mr_error *first);
/* Starts an epoch of the caller's own order: these n sample numbers, of which the first `skip` were delivered before
 * (a multiple of the batch size). The order in the parameters is not used; last_epoch neither, but see
 * mr_loader_announce. The list is copied. Errors: as mr_loader_start_epoch; MR_E_USAGE for a number beyond the end. */
int mr_loader_start_list(struct mr_loader *l, uint64_t epoch, const uint64_t *ids, uint64_t n, uint64_t skip,
                         struct mr_error *err);
/* What mr_loader_start_list will be called with for the next epoch, so that the look-ahead goes on into it. If the call
 * then has another list, what was read ahead is dropped. Nothing happens if n is not that of the running epoch. By the
 * consumer, in an epoch that start_list started. */
int mr_loader_announce(struct mr_loader *l, const uint64_t *ids, uint64_t n, struct mr_error *err);
/* The position after the last batch that next() returned. O(1), no errors. */
void mr_loader_get_state(const struct mr_loader *l, struct mr_loader_state *out);
/* Makes the next start_epoch(state->epoch) continue there; also with another world size in the global order modes (see
 * order.h). Errors: MR_E_USAGE naming what differs: seed, number of samples, version of the order. */
int mr_loader_resume(struct mr_loader *l, const struct mr_loader_state *s, struct mr_error *err);
/* What tiers and policy were chosen, in one line for people; "" without tiers. The loader's. */
const char *mr_loader_chosen(const struct mr_loader *l);
/* What the loader did and does. Costs a lock and some loads per thread; often enough for a progress line, not for every
 * batch. No errors. */
void mr_loader_get_stats_sized(struct mr_loader *l, struct mr_loader_stats *out, size_t size);
static inline void mr_loader_get_stats(struct mr_loader *l, struct mr_loader_stats *out)
{
    mr_loader_get_stats_sized(l, out, sizeof(*out));
}
/* The same per field, for field `index` of those that were asked for; false: there is no such. From any thread. */
bool mr_loader_get_field_stats_sized(struct mr_loader *l, uint32_t index, struct mr_loader_field_stats *out,
                                     size_t size);
static inline bool mr_loader_get_field_stats(struct mr_loader *l, uint32_t index, struct mr_loader_field_stats *out)
{
    return mr_loader_get_field_stats_sized(l, index, out, sizeof(*out));
}
/* Makes a waiting next() and all later ones return MR_E_INTERRUPTED, until mr_loader_restart. Engine threads fill the
 * look-ahead they have and no more. From any thread; takes a lock, so not from a signal handler itself. */
void mr_loader_stop(struct mr_loader *l);
/* Undoes mr_loader_stop: the next next() returns the batch behind the last one delivered, as if nothing had happened;
 * what was read meanwhile is used. Nothing if the loader was not stopped. By the consumer. No errors. */
void mr_loader_restart(struct mr_loader *l);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
