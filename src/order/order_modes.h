/* Inside src/order: what a mode provides, and the keyed permutation that several of them share.
 *
 * A global mode gives g(i) for i < n; order.c strides it over the ranks and repeats the head as padding. A rank-local
 * mode gives the k-th sample of one rank's slice; order.c pads. To add a mode: one ops struct, one row in order.c. */
#ifndef MR_ORDER_ORDER_MODES_H
#define MR_ORDER_ORDER_MODES_H

#include <millrace/order.h>

/* A permutation of 0 ... n-1 without a table: see order_cipher.c. */
#define MR_CIPHER_ROUNDS_MAX 16
struct mr_cipher {
    uint64_t n;
    uint32_t a, b; /* a * b >= n; a value is (left, right) with left < a, right < b */
    unsigned rounds;
    uint32_t key[MR_CIPHER_ROUNDS_MAX][2];
};
void mr_cipher_init(struct mr_cipher *c, uint64_t n, uint64_t key);
/* places[i] with permutation(places[i]) == ids[i]; all ids must be < n. */
void mr_cipher_find(const struct mr_cipher *c, const uint64_t *ids, uint64_t *places, size_t count);
/* ids[i] = permutation(at + i * stride); all arguments must be < n. */
void mr_cipher_fill(const struct mr_cipher *c, uint64_t at, uint64_t stride, uint64_t *ids, size_t count);
uint64_t mr_cipher_at(const struct mr_cipher *c, uint64_t x);
uint64_t mr_cipher_inverse(const struct mr_cipher *c, uint64_t y);

struct mr_order_ops {
    bool rank_local;
    /* Prepares p.epoch. The mode's own memory is `mode_state`; on failure it is as before. */
    int (*prepare)(struct mr_order *o, struct mr_error *err);
    void (*done)(struct mr_order *o);
    /* Global: ids[i] = g(at + i * stride), every index < n. */
    void (*fill_global)(const struct mr_order *o, uint64_t at, uint64_t stride, uint64_t *ids, size_t count);
    /* Rank-local: samples k ... k+count-1 of the rank's slice, all inside it. 0 if memory is exhausted, else count. */
    size_t (*fill_local)(const struct mr_order *o, uint32_t rank, uint64_t k, uint64_t *ids, size_t count);
    /* The inverse: see mr_order_places. index is NULL where nothing has to be prepared. */
    int (*index)(struct mr_order *o, struct mr_error *err);
    void (*find)(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count);
};

struct mr_order {
    struct mr_order_params p; /* mode resolved; file_first points to our own copy */
    const struct mr_order_ops *ops;
    uint64_t start; /* sought position */
    void *mode_state;
};

struct mr_slice {
    uint64_t first, len;
};
/* Rank r's part of 0 ... n-1 in rank-local modes. */
struct mr_slice mr_order_slice(const struct mr_order *o, uint32_t rank);
/* The rank whose slice has `at`, a place of 0 ... n-1. */
uint32_t mr_order_slice_of(const struct mr_order *o, uint64_t at);
/* The key all random choices of the prepared epoch derive from; `which` separates independent uses. */
uint64_t mr_order_key(const struct mr_order *o, uint64_t which);

extern const struct mr_order_ops mr_order_sequential, mr_order_torch, mr_order_cipher, mr_order_shard, mr_order_buffer,
    mr_order_file;

#endif
