/* Inside the pattern engine: pattern_items.c says what is read, pattern_read.c and pattern_source.c read it, pattern.c hands it out. */
#ifndef MR_BENCH_PATTERN_INTERNAL_H
#define MR_BENCH_PATTERN_INTERNAL_H

#include "base/common.h"
#include "bench/pattern.h"

#include <pthread.h>
#include <stdatomic.h>

/* One item on its way: which it is, and its bytes once they are there. A record lies in the ranges of
 * mr_pattern_each_range, a file is one; a slot has them one behind the other. */
struct pattern_slot {
    uint64_t item, epoch, bytes, first_id;
    uint64_t file; /* unit file */
    uint8_t *buf;
    size_t cap;
    bool done;
    struct pattern_slot *next_free;
};

/* A thread that reads: its source, and a buffer for what is not kept. */
struct pattern_hand {
    struct mr_pattern *s;
    struct mr_pattern_source *source; /* its own */
    struct pattern_slot scratch;
    struct mr_decoder *decoder;
};

struct mr_pattern {
    struct mr_pattern_params p;
    struct mr_dataset_info info;
    struct mr_order *order; /* lock */
    struct mr_order *again; /* memory: the order of later epochs, or NULL */
    bool files, memory;
    bool units; /* records share what is read (MR_ACCESS_UNIT): it is read once for a run of them, and not decoded */
    uint32_t batch_size;
    const unsigned *field; /* of a sample; the primary one where none was selected */
    unsigned n_fields;
    uint64_t run, rows_per_item, order_len; /* samples per jump; samples of an item; items of one pass of the order */
    uint64_t items_per_run;
    uint64_t per_epoch, batches, rows, n_items;

    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t next, frontier, allowed, consumed; /* lock */
    struct pattern_slot **ring, *free_slots;    /* lock: items consumed .. next; buffers to use again */
    uint64_t ring_cap;
    atomic_bool drain; /* what is read now is for nobody */
    int rc;            /* lock: the first failure */
    struct mr_error err;
    atomic_bool stopped;

    struct pattern_hand own, *hands;
    pthread_t *threads;
    unsigned n_threads, started;

    uint64_t step; /* the consumer's: next one to be asked for */
    bool leased;
    const void **rows_out;
    uint64_t *bytes_out, *ids_out;
    uint64_t read_before; /* read_bytes at the last batch */

    _Atomic uint64_t read_bytes, read_ns, prepare_ns, idle_ns, wait_ns, batches_out, samples_out, bytes_given,
        held_bytes;
    uint64_t opened_ns;
};

/* pattern_items.c */
int mr_pattern_items_open(struct mr_pattern *s, struct mr_error *err);
/* Items that must be there for `step`; items nobody needs after it. */
uint64_t mr_pattern_need(const struct mr_pattern *s, uint64_t step);
uint64_t mr_pattern_used_up(const struct mr_pattern *s, uint64_t step);
int mr_pattern_locate(struct mr_pattern *s, uint64_t item, struct pattern_slot *out, struct mr_error *err);

typedef int mr_pattern_range_fn(void *user, const struct mr_pattern_range *r, struct mr_error *err);
/* Every range of the item in the order in which they are read; ends with the function's first code that is not 0. */
int mr_pattern_each_range(const struct mr_pattern *s, const struct pattern_slot *slot, mr_pattern_range_fn *fn,
                          void *user, struct mr_error *err);
/* Bytes of the item's i-th sample: of its first field in the slot, and of all of them together. */
int mr_pattern_find_row(const struct mr_pattern *s, const struct pattern_slot *slot, uint64_t i, uint64_t *from,
                        uint64_t *bytes, uint64_t *all, struct mr_error *err);

/* pattern_source.c: the store as a source, for one thread. */
int mr_pattern_open_source(const struct mr_pattern *p, struct mr_pattern_source **out, struct mr_error *err);

/* pattern_read.c */
bool mr_pattern_over(const struct mr_pattern *s);
int mr_pattern_read_item(struct pattern_hand *h, struct pattern_slot *slot, struct mr_error *err);
void mr_pattern_drop_hand(struct pattern_hand *h);

#endif
