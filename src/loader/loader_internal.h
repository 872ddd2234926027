/* Inside the loader: slots, engine threads and the rules between them (README.md has the invariants by number). */
#ifndef MR_LOADER_LOADER_INTERNAL_H
#define MR_LOADER_LOADER_INTERNAL_H

#include "base/common.h"
#include "dataset/dataset_parts.h"

#include <millrace/loader.h>
#include <pthread.h>
#include <stdatomic.h>

/* One batch in the making or in the consumer's hands. */
struct slot {
    struct mr_batch batch; /* what next() hands out; first member */
    uint8_t *slab;
    uint64_t slab_bytes;
    _Atomic uint64_t slab_used; /* packed rows: bump pointer */
    const void **rows;
    uint64_t *ids, *bytes;
    int64_t *labels;
    void **overflow;            /* rows that did not fit the slab, freed on reuse */
    _Atomic uint32_t left;      /* rows not complete yet */
    _Atomic uint64_t read_bytes;
    _Atomic int failed;         /* first error's code */
    struct mr_error error;      /* under loader.lock */
};

struct engine_thread {
    struct mr_loader *loader;
    pthread_t id;
    bool started;
    struct mr_dataset_reader *reader;
    struct queue_reader *queue; /* or NULL: direct reads */
    _Atomic uint64_t transform_ns, idle_ns, cpu_ns;
    _Atomic uint64_t read_ns, decode_ns; /* copies of the reader's sums, for other threads to look at */
};

struct mr_loader {
    struct mr_loader_params p;
    char *dataset_path, *store_spec;
    struct mr_dataset *dataset;
    struct mr_dataset_info info;
    struct mr_order *order;
    bool read_ahead;
    bool packed;           /* rows of differing sizes one behind the other */
    uint64_t row_bytes;    /* stride when not packed */
    unsigned n_slots, n_threads;
    struct slot *slots;
    struct engine_thread *threads; /* threads[0] also serves the consumer's own reads (naive) */

    pthread_mutex_t lock;
    pthread_cond_t work, ready, quiet;
    atomic_bool stop;           /* ends everything */
    atomic_bool cancel;         /* ends the epoch */
    uint64_t generation;        /* lock: epochs started */
    unsigned busy_threads;      /* lock: threads inside the current epoch */

    uint64_t epoch, resume_epoch, resume_position;
    uint64_t first_batch;       /* index of the first batch after a resume */
    uint64_t first_position;    /* global position where this epoch started */
    uint64_t n_batches, n_samples; /* of this rank in the rest of the epoch */
    _Atomic uint64_t next_ticket;  /* next sample of the epoch to be given out */
    _Atomic uint64_t slot_limit;   /* batches [0, slot_limit) have a slot; raised by release */
    uint64_t delivered;         /* batches handed out in this epoch */
    uint64_t released;
    bool in_epoch, failed;

    /* Statistics of the consumer's side. */
    _Atomic uint64_t batches, samples, sample_bytes, read_bytes, wait_ns;
    uint64_t ready_seen_ns, ready_count;  /* lock */
    double ready_area, empty_ns, watched_ns; /* lock */
};

/* Rows of the epoch's k-th sample of this rank: which slot and row. */
static inline struct slot *slot_of(struct mr_loader *l, uint64_t batch)
{
    return &l->slots[batch % l->n_slots];
}

/* Where a sample of `need` bytes goes: the row's place, or a buffer of its own when it does not fit. NULL: out of memory
 * or beyond row_bytes. */
void *mr_loader_row(struct mr_loader *l, struct slot *s, uint32_t row, uint64_t need);
/* The row is there: counts it and wakes the consumer when it was the last. */
void mr_loader_row_done(struct mr_loader *l, struct slot *s, uint64_t batch);
void mr_loader_row_failed(struct mr_loader *l, struct slot *s, uint64_t batch, int code, const struct mr_error *err);
/* Reads one sample into its row with direct calls. */
void mr_loader_read_row(struct engine_thread *t, uint64_t batch, uint32_t row, uint64_t id);
/* Everything after the payload is in memory: verify, transform, label. */
int mr_loader_finish_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, void *at, uint64_t cap,
                         const struct mr_sample *sample, struct mr_error *err);
/* Waits until `batch` has a slot; false when the epoch ends first. */
bool mr_loader_wait_slot(struct engine_thread *t, uint64_t batch);
bool mr_loader_ended(const struct mr_loader *l);

/* Queued reading (loader_queue.c): keeps many requests in flight from one thread. */
struct queue_reader;
int mr_queue_reader_create(struct engine_thread *t, unsigned depth, struct queue_reader **out, struct mr_error *err);
void mr_queue_reader_free(struct queue_reader *q);
/* Works through tickets until the epoch ends. */
void mr_queue_reader_run(struct queue_reader *q);

#endif
