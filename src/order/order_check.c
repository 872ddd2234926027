/* A bitmap of the samples; every id of every rank sets its bit once. */
#include "order/order_check.h"
#include "base/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static void mark(const uint64_t *ids, size_t n, uint64_t samples, uint64_t *bitmap, struct mr_order_check *c)
{
    c->read += n;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= samples) {
            c->outside++;
            continue;
        }
        uint64_t bit = 1ull << (ids[i] & 63), *word = &bitmap[ids[i] >> 6];
        c->repeated += (*word & bit) != 0;
        *word |= bit;
    }
}

static int walk(const struct mr_order *order, const struct mr_order_params *p, const atomic_bool *stop,
                uint64_t *bitmap, struct mr_order_check *c)
{
    uint64_t ids[1024];
    for (uint32_t r = 0; r < p->world; r++)
        for (uint64_t k = 0, n; (n = mr_order_get_for(order, r, k, ids, MR_ARRAY_LEN(ids))) > 0; k += n) {
            if (atomic_load(stop))
                return MR_E_INTERRUPTED;
            mark(ids, n, p->samples, bitmap, c);
        }
    return 0;
}

int mr_order_check(const struct mr_order *order, const struct mr_order_params *p, const atomic_bool *stop,
                   struct mr_order_check *out, struct mr_error *err)
{
    struct mr_order_check c = {0};
    uint64_t n = p->samples, total = mr_order_total(order);
    if (n > MR_ORDER_CHECK_MAX) {
        mr_error_plain(err, MR_E_USAGE, "cannot check %" PRIu64 " samples: at most %" PRIu64, n, MR_ORDER_CHECK_MAX);
        return mr_error_hint(err, "check a smaller number; the construction does not depend on it"), MR_E_USAGE;
    }
    uint64_t *bitmap = calloc((size_t)(n / 64 + 1), sizeof(*bitmap));
    if (!bitmap)
        return mr_error_set(err, -ENOMEM, "cannot hold a bitmap of %" PRIu64 " samples", n);
    int rc = walk(order, p, stop, bitmap, &c);
    free(bitmap);
    if (rc)
        return mr_error_plain(err, rc, "interrupted");
    c.left_out = n - (c.read - c.repeated - c.outside);
    c.is_permutation = c.read == total && !c.outside && c.repeated == (p->drop_last ? 0 : total - n) &&
                       c.left_out == (p->drop_last ? n - total : 0);
    *out = c;
    return 0;
}
