/* Inside the loader: slots, engine threads and the rules between them (README.md has the invariants by number). */
#ifndef MR_LOADER_LOADER_INTERNAL_H
#define MR_LOADER_LOADER_INTERNAL_H

#include "base/clock.h"
#include "base/common.h"
#include "dataset/dataset_parts.h"
#include "dataset/gen_spec.h"
#include "event/emit.h"
#include "loader/loader_fields.h"
#include "loader/preprocess_part.h"
#include "tier/segment.h"

#include <millrace/loader.h>
#include <pthread.h>
#include <stdatomic.h>

/* Epochs are read as one stream: what is left of the first, then whole ones up to the last that the caller announced.
 * Batches and samples (tickets) are numbered through, so the look-ahead crosses the border like any other place. */
struct stream {
    uint64_t epoch;                        /* the first one's number */
    uint64_t head_samples, head_batches;   /* of this rank in the first epoch */
    uint64_t epoch_samples, epoch_batches; /* in every later one */
    uint64_t samples, batches;             /* in all of it; saturated */
};

#define CACHE_LINE 64

/* One batch in the making or in the consumer's hands. */
struct slot {
    struct mr_batch batch; /* what next() hands out; first member */
    uint8_t *slab;         /* a part of the pool's mapping, or the caller's */
    uint64_t slab_bytes;
    _Atomic uint64_t slab_used; /* packed rows: bump pointer */
    uint32_t n;                 /* rows of the batch in it (batch.n is the consumer's mark) */
    const void **rows;
    uint64_t *ids, *bytes;
    int64_t *labels;
    struct mr_shape *shapes;  /* of rows that are not like the others */
    uint8_t *has_shape;       /* which those are */
    uint8_t *bad;             /* rows to leave out (MR_LOADER_SKIP_BAD) */
    uint64_t *stored;         /* bytes of rows that were left as stored, 0: others */
    void **overflow;          /* rows that did not fit the slab, freed on reuse */
    struct field_slot *field; /* of each field, where there are several */
    const struct mr_batch_field **field_out;
    _Atomic int failed;    /* first error's code */
    struct mr_error error; /* under loader.lock */
    /* Every thread changes these for every row, and reads those above: they have a cache line of their own. */
    _Alignas(CACHE_LINE) _Atomic uint32_t left; /* rows not complete yet */
    _Atomic uint64_t read_bytes;
    _Atomic uint32_t bad_rows;
    _Atomic uint32_t to_join;  /* with fields: rows that are not there yet */
    _Atomic uint32_t odd_rows; /* rows with a shape of their own; changes only where samples differ */
};

/* An epoch in the caller's own order. */
struct id_list {
    uint64_t epoch, n;
    uint64_t *ids; /* NULL: there is none */
};

/* The mapping that slabs lie in. It outlives the loader while a batch of it is kept (mr_loader_take). */
struct slab_pool {
    pthread_mutex_t lock;
    unsigned users;  /* the loader and every slab that is out */
    unsigned n_free; /* spare slabs */
    uint8_t **free;
    uint8_t *memory;
    uint64_t bytes;
};

/* When the row that a thread is making passed its stations; 0: it did not. */
struct row_times {
    uint64_t fetch_ns, fetched_ns, decode_ns, decoded_ns, transform_ns, transformed_ns;
};

/* Samples of a thread that came from one of the tiers. Written by the thread alone. */
struct from_sums {
    _Atomic uint64_t samples, bytes, fetch_ns;
};

struct mr_fetch_source;
struct engine_thread {
    struct mr_loader *loader;
    struct row_times row;  /* the thread's own, as is the next */
    uint64_t idle_seen_ns; /* idle_ns at the last sample */
    pthread_t id;
    bool started;
    struct mr_dataset_reader *reader;
    struct queue_reader *queue;       /* or NULL: direct reads */
    struct mr_preprocess *preprocess; /* or NULL */
    struct mr_decoder *pictures;      /* of pictures inside of other formats; NULL until there is one */
    struct mr_fetch_source *tier;     /* or NULL: no tiers */
    uint64_t ticket;                  /* of the row that it makes: the number of the tiers' delivery */
    enum mr_tier_from from;           /* where the last row's bytes came from */
    struct from_sums came[MR_TIER_FROMS];
    struct field_sums *field; /* of each field */
    _Atomic uint64_t transform_ns, idle_ns, cpu_ns;
    _Atomic uint64_t idle_since;         /* when the wait for a slot that it is in began; 0: it is in none */
    _Atomic uint64_t read_ns, decode_ns; /* copies of the reader's sums, for other threads to look at */
    char pad[128];                       /* the next thread's are in other cache lines */
};

/* The sums at one moment; the statistics of the last second are the difference of two. */
struct moment {
    uint64_t at_ns;
    double samples, sample_bytes, read_bytes, wait_ns, read_ns, decode_ns, transform_ns, idle_ns;
};
/* Of all threads, what they are in the middle of included. */
struct loader_sums {
    uint64_t read_ns, decode_ns, transform_ns, idle_ns;
};
#define MOMENTS 32u
#define MOMENT_NS (50 * MR_NS_PER_MS) /* at least so far apart: MOMENTS of them reach back beyond a second */

/* Inside the loader only: RAW rows hold what a check of stored checksums needs, too. */
#define LOADER_RAW_WITH_CHECKSUMS (1u << 16)

struct mr_loader {
    struct mr_loader_params p;
    struct mr_preprocess_params preprocess;
    char *dataset_path, *store_spec;
    struct mr_dataset *dataset;
    struct mr_dataset_info info;
    struct mr_gen_plan *plan; /* with VERIFY_CONTENT: what the samples must hold */
    struct mr_arena plan_arena;
    struct mr_order *order;
    bool tells_steps, tells_samples; /* which events somebody wants */
    uint64_t fields_told;            /* `delivered` when the costs of fields were emitted last */
    struct mr_events *to_tracer;     /* of a program that is traced; else NULL */
    struct mr_store *store;          /* the data set's; its calls may be traced */
    bool owns_store;
    struct mr_traffic *device;        /* of the data set */
    struct mr_traffic_reader *reader; /* NULL: there is none, or tiers read */
    struct mr_memory_set *memory;     /* the set in memory, or NULL (loader_memory.c) */
    struct mr_loader *filler;         /* lock: who reads it */
    bool loaded;                      /* all of it is there */
    bool fills;                       /* this is a filler */
    bool tiered;                      /* samples come from tiers (loader_tier.c) */
    struct mr_tier *tier;             /* NULL while it is opened */
    struct mr_wire_tcp *tcp;          /* how ranks find each other, or NULL: the caller's way */
    bool waits_tier;                  /* lock: the consumer, in a seek or drain, which a stop ends */
    bool together;                    /* all ranks close it now */
    bool is_perfect, prepared;        /* hands out prepared batches (loader_perfect.c); they are there */
    _Atomic uint64_t loaded_bytes;
    struct mr_shape usual;   /* the first row's: most sets have one shape, which need not be written per row */
    _Atomic int usual_known; /* 0 no, 1 being written, 2 yes */
    bool read_ahead;
    bool queued;                   /* engine threads read through queues */
    unsigned queue_depth;          /* of all threads together */
    bool packed;                   /* rows of differing sizes one behind the other */
    uint64_t row_bytes;            /* stride when not packed */
    uint64_t row_room;             /* bytes offered to a sample whose size is not known beforehand */
    unsigned row_extra;            /* bytes that a row needs beyond the sample: checksums kept with stored bytes */
    unsigned row_align;            /* of the place of a row: a block when direct reads go there */
    struct loader_field *field;    /* n_fields 0: rows are the primary field, or stored bytes */
    unsigned n_fields, main_field; /* the one that the batch's own rows are */
    const char **field_name;
    bool has_labels;                   /* the manifest has some */
    struct mr_unit_cache *units;       /* where columns are read */
    uint64_t column_bytes;             /* of all fields of a sample, where columns are read */
    struct column_table *column_table; /* of each slab of the pool, then of each slot for other slabs */
    const void **column_rows;          /* of all tables */
    bool columns;  /* fields are read one after the other, for many samples at once (loader_columns.c) */
    bool in_place; /* samples stay where a direct read put them, at any alignment */
    unsigned n_slots, n_threads;
    unsigned ring; /* slots in use, in turn: all, or those that were prepared */
    struct slot *slots;
    struct slab_pool *pool;
    uint64_t slab_bytes; /* of one */
    uint64_t slabs_bytes;
    struct iovec slab_parts[64]; /* the same, for queues that want to know their memory; none: rows are not read into */
    unsigned n_slab_parts;
    struct engine_thread *threads; /* threads[0] also serves the consumer's own reads (naive) */

    pthread_mutex_t lock;
    pthread_cond_t work, ready, quiet;
    atomic_bool stop;      /* next() returns, until restart; the engine does not care */
    atomic_bool closing;   /* ends the engine's threads */
    atomic_bool cancel;    /* ends the stream */
    uint64_t generation;   /* lock: streams started */
    unsigned busy_threads; /* lock: threads inside the current stream */

    struct stream stream;         /* changes only between streams (L5) */
    _Atomic uint64_t next_ticket; /* next sample of the stream to be given out */
    _Atomic uint64_t slot_limit;  /* batches [0, slot_limit) have a slot; raised by release */

    struct id_list list, next_list; /* the consumer's: the running epoch's order and the announced one's */
    _Atomic uint32_t stored_rows;   /* of each batch, the last ones (mr_loader_leave_stored) */
    _Atomic uint64_t skipped;
    struct mr_error first_skipped; /* lock */

    /* The consumer's alone. */
    uint64_t epoch, resume_epoch, resume_position;
    uint64_t first_batch;          /* index of the first batch after a resume */
    uint64_t first_position;       /* global position where this epoch started */
    uint64_t base;                 /* batch of the stream with which this epoch starts */
    uint64_t n_batches, n_samples; /* of this rank in (the rest of) the epoch */
    uint64_t order_epoch;          /* the epoch the order is in: that of the last batch prepared */
    uint64_t delivered, released;  /* batches of the stream */
    bool in_epoch, failed;
    uint32_t here_rows; /* naive: rows of the next batch that are read */
    uint64_t waited_ns; /* for the next batch, by calls that timed out or were interrupted */

    /* Statistics of the consumer's side. */
    _Atomic uint64_t batches, samples, sample_bytes, read_bytes, wait_ns;
    _Atomic uint64_t wait_since;     /* when the next() that is running began; 0: none is */
    struct moment moment[MOMENTS];   /* lock: a ring, newest at last_moment */
    unsigned n_moments, last_moment; /* lock */
    uint64_t opened_ns;
    uint64_t ready_seen_ns;                  /* lock */
    int64_t ready_count;                     /* lock: batches that were completed and not taken */
    double ready_area, empty_ns, watched_ns; /* lock */
};

/* Rows of the epoch's k-th sample of this rank: which slot and row. */
static inline struct slot *slot_of(struct mr_loader *l, uint64_t batch)
{
    return &l->slots[batch % l->ring];
}

/* Files that one thread keeps open: all there are, if half of the descriptors that this process may have, shared by the
 * threads, allow it. */
uint64_t mr_loader_files_per_thread(const struct mr_loader *l);

/* Which batch and row of the stream sample k is. */
static inline uint64_t stream_batch(const struct mr_loader *l, uint64_t k, uint32_t *row)
{
    const struct stream *s = &l->stream;
    uint64_t batch = 0;
    if (k >= s->head_samples) {
        k -= s->head_samples;
        batch = s->head_batches + k / s->epoch_samples * s->epoch_batches;
        k %= s->epoch_samples;
    }
    *row = (uint32_t)(k % l->p.batch_size);
    return batch + k / l->p.batch_size;
}

/* Parameters (loader_params.c): those of a caller of any size, checked. */
int mr_loader_params_take(const struct mr_loader_params *from, struct mr_loader_params *out, struct mr_error *err);

/* Slots (loader_slots.c). */
int mr_loader_alloc_slots(struct mr_loader *l, struct mr_error *err);
void mr_loader_free_slots(struct mr_loader *l);
/* Moves the rows that are left of a batch together; returns how many there are. */
uint32_t mr_loader_leave_out_bad(struct mr_loader *l, struct slot *s);
/* Frees the rows that did not fit the slab. */
/* Its number in the pool; n_slots + spare: it is none of the pool's. */
unsigned mr_loader_slab_number(const struct mr_loader *l, const uint8_t *slab);
void mr_loader_forget_overflow(struct mr_loader *l, struct slot *s);

/* Events (loader_events.c). Opens the store, with its calls told where they are wanted. */
int mr_loader_open_store(struct mr_loader *l, struct mr_error *err);
/* When the data set is known: how much the tracer is told. */
void mr_loader_fit_events(struct mr_loader *l);
/* What became of a row of which the thread noted the times: `fetched` bytes came, or a negative code. While the row
 * still counts as not complete. */
struct loader_sums mr_loader_thread_sums(struct mr_loader *l, uint64_t now);
void mr_loader_tell_row(struct engine_thread *t, const struct slot *s, uint32_t row, int64_t fetched);
void mr_loader_tell_fields(struct mr_loader *l);
void mr_loader_tell_batch(struct mr_loader *l, uint64_t epoch, uint64_t index, uint32_t rows, uint64_t now_ns);
void mr_loader_tell_wait(struct mr_loader *l, const struct slot *s, uint64_t start_ns, uint64_t end_ns, bool delivered);

/* Opens on a store that stays the caller's; NULL: opens params->store. */
int mr_loader_open_on(const struct mr_loader_params *params, struct mr_store *store, struct mr_loader **out,
                      struct mr_error *err);

/* The set in memory (loader_memory.c): frees it, with who reads it. */
void mr_loader_forget_memory(struct mr_loader *l);

/* Background traffic on the data set's device, such as checkpoints, yields to this loader (loader_traffic.c). */
void mr_loader_join_traffic(struct mr_loader *l);
void mr_loader_leave_traffic(struct mr_loader *l);
/* When the read that the thread is in began; 0: it is in none. */
uint64_t mr_loader_reads_since(const struct engine_thread *t);

/* Statistics (loader_stats.c). One batch more or less is ready; under the lock. Returns the time. */
uint64_t mr_loader_watch_ready(struct mr_loader *l, int change);
/* Keeps the sums of now for the statistics of the last second, unless that was done lately; under the lock. */
void mr_loader_keep_moment(struct mr_loader *l, uint64_t now);

/* Where a sample of `need` bytes goes, with `slack` bytes around it for the blocks that a direct read takes: the row's
 * place, or a buffer of its own when it does not fit. NULL: out of memory or beyond row_bytes. */
void *mr_loader_row(struct mr_loader *l, struct slot *s, uint32_t row, uint64_t need, uint64_t slack);
/* Says why there is none. */
int mr_loader_no_row(const struct mr_loader *l, uint64_t id, uint64_t need, struct mr_error *err);
/* The row is there: counts it and wakes the consumer when it was the last. */
void mr_loader_row_done(struct mr_loader *l, struct slot *s, uint64_t batch);
/* The same for n rows at once. */
void mr_loader_rows_done(struct mr_loader *l, struct slot *s, uint32_t n);
void mr_loader_row_failed(struct mr_loader *l, struct slot *s, uint64_t batch, uint32_t row, int code,
                          const struct mr_error *err);
/* Reads one sample into its row with direct calls. */
void mr_loader_read_row(struct engine_thread *t, uint64_t batch, uint32_t row, uint64_t id);
/* Makes the row from a decoded sample that lies elsewhere: preprocess, then finish. */
int mr_loader_preprocess_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id,
                             const struct mr_sample *sample, const struct mr_part *part, struct mr_error *err);
/* Leaves the sample of a row as stored, where the caller wants that and can decode it (loader_stored.c): 1. 0: decode
 * it as always. */
int mr_loader_leave_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_error *err);
/* Decodes a sample that is a picture's file, inside of another format (loader_picture.c); leaves any other as it is. */
int mr_loader_decode_picture(struct engine_thread *t, uint64_t epoch, uint64_t id, struct mr_sample *sample,
                             struct mr_part *part, struct mr_error *err);
/* The part of a picture that preprocessing needs: for decoders. `user` is a struct part_of. */
struct part_of {
    struct engine_thread *thread;
    uint64_t epoch, id;
};
void mr_loader_note_transform(struct engine_thread *t, uint64_t start, uint64_t end);
int mr_loader_choose_part(void *user, struct mr_part *part, struct mr_error *err);
/* May only a part be decoded? Not where the content is compared. */
static inline bool mr_loader_decodes_parts(const struct mr_loader *l)
{
    return l->p.preprocess && !(l->p.flags & MR_LOADER_VERIFY_CONTENT);
}
/* Everything after the payload is in memory: verify, transform, label. */
int mr_loader_finish_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, void *at, uint64_t cap,
                         const struct mr_sample *sample, struct mr_error *err);
/* Waits until `batch` has a slot; false when the stream ends first. */
bool mr_loader_wait_slot(struct engine_thread *t, uint64_t batch);
bool mr_loader_ended(const struct mr_loader *l);

/* Orders of the caller's own (loader_list.c). The ids of n samples of an epoch from its k-th on; -EAGAIN: the epoch has
 * not been announced. */
int mr_loader_list_get(struct mr_loader *l, uint64_t epoch, uint64_t k, uint64_t *ids, uint32_t n);
void mr_loader_forget_lists(struct mr_loader *l);
/* Gives the batches that may have one now their slots (loader.c). */
void mr_loader_raise_limit(struct mr_loader *l);
void mr_loader_end_stream(struct mr_loader *l);
void mr_loader_start_stream(struct mr_loader *l);

/* Tiers (loader_tier.c). What policy and tiers amount to. */
int mr_loader_choose_policy(struct mr_loader *l, struct mr_error *err);
/* Collective with tiers. `code` and `err` say how this rank's own parts were opened: all ranks fail if one does. */
int mr_loader_open_tier(struct mr_loader *l, int code, struct mr_error *err);
/* Has this rank read all that was announced? Then the others have, too, and close with it. */
bool mr_loader_read_all(const struct mr_loader *l);
void mr_loader_close_tier(struct mr_loader *l, bool clean);
/* The last epoch that a stream from this one on reads. */
uint64_t mr_loader_last_epoch(const struct mr_loader *l, uint64_t from);
int mr_loader_seek_tier(struct mr_loader *l, uint64_t epoch, uint64_t position, struct mr_error *err);
void mr_loader_stop_tier(struct mr_loader *l); /* ends what waits for it; does nothing without */
/* Around the making of a row; done returns the bytes that were read from the source for it. */
void mr_loader_tier_at(struct engine_thread *t, uint64_t id);
uint64_t mr_loader_tier_done(struct engine_thread *t, bool made);
enum mr_span mr_loader_fetch_span(const struct engine_thread *t);
void mr_loader_tier_stats(struct mr_loader *l, struct mr_loader_tier_stats *out);
/* The order with what the data set adds to it; the flags of a sample's read. */
void mr_loader_fill_order(const struct mr_loader *l, struct mr_order_params *out);
unsigned mr_loader_read_flags(const struct mr_loader *l);

/* Policy perfect (loader_perfect.c): makes the batches before the first epoch; the batch for the next step. */
int mr_perfect_start(struct mr_loader *l, struct mr_error *err);
struct slot *mr_perfect_next(struct mr_loader *l);
int mr_loader_wait_ready(struct mr_loader *l, struct slot *s, uint64_t deadline_ns, struct mr_error *err);

/* Engine threads (loader_engine.c). */
int mr_engine_start(struct mr_loader *l, struct mr_error *err);
void mr_engine_stop(struct mr_loader *l);

/* Queued reading (loader_queue.c): keeps many requests in flight from one thread. */
struct queue_reader;
int mr_queue_reader_create(struct engine_thread *t, unsigned depth, struct queue_reader **out, struct mr_error *err);
void mr_queue_reader_free(struct queue_reader *q);
/* When the wait for the storage that it is in began; 0: it is in none. From any thread. */
uint64_t mr_queue_reader_waits_since(const struct queue_reader *q);
/* Works through tickets until the stream ends. */
void mr_queue_reader_run(struct queue_reader *q);
/* Gives the store's queue back; by the thread that ran. */
void mr_queue_reader_leave(struct queue_reader *q);

#endif
