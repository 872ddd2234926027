/* Proof by exhaustion that the ranks of an epoch read every sample once. */
#ifndef MR_ORDER_ORDER_CHECK_H
#define MR_ORDER_ORDER_CHECK_H

#include <millrace/order.h>

#include <stdatomic.h>

#define MR_ORDER_CHECK_MAX ((uint64_t)1 << 32) /* samples: a bitmap of 512 MiB */

struct mr_order_check {
    uint64_t read;       /* by all ranks together */
    uint64_t repeated;   /* reads of a sample that was read before: padding */
    uint64_t left_out;   /* samples that nobody read: drop_last */
    uint64_t outside;    /* ids beyond the data set: a bug */
    bool is_permutation; /* the above are exactly what padding and drop_last explain */
};

/* Walks the whole epoch of all ranks of `p`; `order` was created from it and not moved. Takes a bit per sample and the
 * time to compute all orders. MR_E_USAGE above MR_ORDER_CHECK_MAX samples, MR_E_INTERRUPTED when *stop is set. */
int mr_order_check(const struct mr_order *order, const struct mr_order_params *p, const atomic_bool *stop,
                   struct mr_order_check *out, struct mr_error *err);

#endif
