/* The schedule: see <millrace/schedule.h>. Orders of consecutive epochs lie in a ring of slots, epoch e in slot
 * e mod span, so a window of up to `span` epochs is at hand without any search.
 *
 * Invariants
 *  1. slot[i].order, where it is not NULL, has slot[i].epoch prepared and indexed and is not sought: positions are
 *     those of the epoch's beginning, the start position is added here.
 *  2. rows(first) and rows(later) are all there is to know about lengths: every later epoch is alike. */
#include "order/order_modes.h"
#include "base/common.h"

#include <millrace/schedule.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_MAX 4096u /* slots; more epochs than anybody looks ahead */

struct slot {
    uint64_t epoch;
    struct mr_order *order;
};

struct mr_schedule {
    struct mr_schedule_params p; /* order.file_first and first_rank point to our own copies */
    uint64_t *file_first;
    uint32_t *first_rank, *node_of_rank; /* or NULL: ranks_per_node each */
    uint32_t ranks_per_node;
    bool rank_local;
    uint64_t rows_first, rows_later, stride, span;
    struct slot *slots;
};

static int check(const struct mr_schedule_params *p, struct mr_error *err)
{
    if (p->epochs == 0 || p->local_batch == 0 || p->nodes == 0)
        return mr_error_plain(err, MR_E_USAGE,
                              "a schedule needs at least one epoch, one node and a batch of one sample");
    if (!p->first_rank && p->order.world % p->nodes)
        return mr_error_plain(err, MR_E_USAGE, "%u ranks do not divide by %u nodes", p->order.world, p->nodes);
    for (uint32_t n = 0; p->first_rank && n < p->nodes; n++)
        if (p->first_rank[n] >= p->first_rank[n + 1] || p->first_rank[0] || p->first_rank[p->nodes] != p->order.world)
            return mr_error_plain(err, MR_E_USAGE, "the first ranks of %u nodes do not ascend from 0 to %u", p->nodes,
                                  p->order.world);
    return 0;
}

static int copy_tables(struct mr_schedule *s, struct mr_error *err)
{
    const struct mr_schedule_params *p = &s->p;
    size_t files = p->order.file_first ? (size_t)(p->order.n_files + 1) * sizeof(uint64_t) : 0;
    size_t ranks = p->first_rank ? ((size_t)p->nodes + 1) * sizeof(uint32_t) : 0;
    if ((files && !(s->file_first = malloc(files))) || (ranks && !(s->first_rank = malloc(ranks))) ||
        (ranks && !(s->node_of_rank = malloc(p->order.world * sizeof(uint32_t)))))
        return mr_error_set(err, -ENOMEM, "a schedule of %u nodes", p->nodes);
    if (files)
        s->p.order.file_first = memcpy(s->file_first, p->order.file_first, files);
    if (ranks)
        s->p.first_rank = memcpy(s->first_rank, p->first_rank, ranks);
    for (uint32_t n = 0; ranks && n < p->nodes; n++)
        for (uint32_t r = s->first_rank[n]; r < s->first_rank[n + 1]; r++)
            s->node_of_rank[r] = n;
    return 0;
}

/* Rows of an epoch of which each rank has read `before` already. */
static uint64_t limit_rows(const struct mr_schedule_params *p, uint64_t rows, uint64_t before)
{
    if (p->rank_max)
        rows = MR_MIN(rows, p->rank_max > before ? p->rank_max - before : 0);
    return p->whole_steps ? rows - rows % p->local_batch : rows;
}

static uint64_t choose_span(const struct mr_schedule *s, enum mr_order_mode mode)
{
    uint64_t most = s->p.order.shuffle_each_epoch ? MR_MIN(s->p.epochs, (uint64_t)SPAN_MAX) : 1;
    if ((mode != MR_ORDER_TORCH && mode != MR_ORDER_BUFFER) || !s->p.table_bytes)
        return most;
    uint64_t each = s->p.order.samples * (s->p.order.samples > UINT32_MAX ? 16 : 8);
    return MR_MIN(most, MR_MAX(s->p.table_bytes / each, (uint64_t)2));
}

static uint64_t order_epoch(const struct mr_schedule *s, uint64_t epoch)
{
    return s->p.order.shuffle_each_epoch ? epoch : 0;
}

/* The order of an epoch (invariant 1), or NULL with the reason in err. */
static const struct mr_order *order_of(struct mr_schedule *s, uint64_t epoch, struct mr_error *err)
{
    epoch = order_epoch(s, epoch);
    struct slot *slot = &s->slots[epoch % s->span];
    if (slot->order && slot->epoch == epoch)
        return slot->order;
    slot->epoch = UINT64_MAX; /* until it is ready */
    if (slot->order && (mr_order_set_epoch(slot->order, epoch, err) || mr_order_index(slot->order, err)))
        return NULL;
    if (!slot->order) {
        struct mr_order_params p = s->p.order;
        struct mr_order *o;
        p.epoch = epoch;
        p.rank = 0;
        if (mr_order_create(&p, &o, err))
            return NULL;
        if (mr_order_index(o, err)) {
            mr_order_free(o);
            return NULL;
        }
        slot->order = o;
    }
    slot->epoch = epoch;
    return slot->order;
}

/* Lengths, checked by the order itself: what is left after the start, and a whole epoch. */
static int measure(struct mr_schedule *s, struct mr_error *err)
{
    struct mr_order_params p = s->p.order;
    struct mr_order *o;
    p.rank = 0;
    s->rank_local = p.mode >= MR_ORDER_SHARD;
    p.mode = s->rank_local ? MR_ORDER_SHARD : MR_ORDER_SEQUENTIAL; /* as long, and costs nothing to prepare */
    int rc = mr_order_create(&p, &o, err);
    if (rc)
        return rc;
    s->rows_later = limit_rows(&s->p, mr_order_rank_len(o), 0);
    rc = mr_order_seek(o, s->p.position, err);
    s->rows_first = rc ? 0 : limit_rows(&s->p, mr_order_rank_len(o), s->p.position / p.world);
    mr_order_free(o);
    return rc;
}

int mr_schedule_create(const struct mr_schedule_params *p, struct mr_schedule **out, struct mr_error *err)
{
    int rc = check(p, err);
    if (rc)
        return rc;
    struct mr_schedule *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "a schedule");
    s->p = *p;
    if (p->order.mode == MR_ORDER_AUTO)
        s->p.order.mode = p->order.samples <= MR_ORDER_AUTO_TORCH_MAX ? MR_ORDER_TORCH : MR_ORDER_CIPHER;
    s->ranks_per_node = p->first_rank ? 0 : p->order.world / p->nodes;
    s->stride = p->order.samples + p->order.world;
    rc = copy_tables(s, err);
    if (!rc)
        rc = measure(s, err);
    if (!rc) {
        s->span = choose_span(s, s->p.order.mode);
        s->slots = calloc(s->span, sizeof(*s->slots));
        rc = s->slots ? 0 : mr_error_set(err, -ENOMEM, "a schedule of %" PRIu64 " epochs", s->span);
    }
    if (!rc && !order_of(s, p->order.epoch, err)) /* what the order refuses, it refuses now */
        rc = err && err->code < 0 ? err->code : -ENOMEM;
    if (rc) {
        mr_schedule_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_schedule_free(struct mr_schedule *s)
{
    if (!s)
        return;
    for (uint64_t i = 0; s->slots && i < s->span; i++)
        mr_order_free(s->slots[i].order);
    free(s->slots);
    free(s->file_first);
    free(s->first_rank);
    free(s->node_of_rank);
    free(s);
}

uint32_t mr_schedule_nodes(const struct mr_schedule *s)
{
    return s->p.nodes;
}

uint64_t mr_schedule_samples(const struct mr_schedule *s)
{
    return s->p.order.samples;
}

uint64_t mr_schedule_first_epoch(const struct mr_schedule *s)
{
    return s->p.order.epoch;
}

uint64_t mr_schedule_last_epoch(const struct mr_schedule *s)
{
    return s->p.order.epoch + s->p.epochs - 1;
}

uint64_t mr_schedule_span(const struct mr_schedule *s)
{
    return s->p.order.shuffle_each_epoch ? s->span : s->p.epochs;
}

uint64_t mr_schedule_local_batch(const struct mr_schedule *s)
{
    return s->p.local_batch;
}

uint32_t mr_schedule_world(const struct mr_schedule *s)
{
    return s->p.order.world;
}

uint64_t mr_schedule_stride(const struct mr_schedule *s)
{
    return s->stride;
}

bool mr_schedule_rank_local(const struct mr_schedule *s)
{
    return s->rank_local;
}

uint32_t mr_schedule_first_rank(const struct mr_schedule *s, uint32_t node)
{
    return s->first_rank ? s->first_rank[node] : node * s->ranks_per_node;
}

uint64_t mr_schedule_rows(const struct mr_schedule *s, uint64_t epoch)
{
    return epoch == s->p.order.epoch ? s->rows_first : s->rows_later;
}

static uint64_t start_of(const struct mr_schedule *s, uint64_t epoch)
{
    return epoch == s->p.order.epoch ? s->p.position : 0;
}

uint64_t mr_schedule_access(const struct mr_schedule *s, uint64_t epoch, uint64_t row, uint32_t rank)
{
    return epoch * s->stride + start_of(s, epoch) + row * s->p.order.world + rank;
}

uint64_t mr_schedule_epoch_of(const struct mr_schedule *s, uint64_t access)
{
    return access / s->stride;
}

static uint64_t offset_of(const struct mr_schedule *s, uint64_t access)
{
    uint64_t epoch = access / s->stride;
    assert(access - epoch * s->stride >= start_of(s, epoch));
    return access - epoch * s->stride - start_of(s, epoch);
}

uint64_t mr_schedule_row_of(const struct mr_schedule *s, uint64_t access)
{
    return offset_of(s, access) / s->p.order.world;
}

uint32_t mr_schedule_rank_of(const struct mr_schedule *s, uint64_t access)
{
    return (uint32_t)(offset_of(s, access) % s->p.order.world);
}

uint32_t mr_schedule_node_of(const struct mr_schedule *s, uint64_t access)
{
    uint32_t rank = mr_schedule_rank_of(s, access);
    return s->node_of_rank ? s->node_of_rank[rank] : rank / s->ranks_per_node;
}

/* x % d by two multiplications, magic = ceil(2^64 / d): exact for 32 bits (Lemire, Kaser, Kurz 2019). */
static inline uint32_t modulo(uint32_t x, uint32_t d, uint64_t magic)
{
    return (uint32_t)((unsigned __int128)(magic * x) * d >> 64);
}

void mr_schedule_readers(const struct mr_schedule *s, uint64_t epoch, const uint64_t *accesses, uint32_t *nodes,
                         size_t n)
{
    uint64_t base = epoch * s->stride + start_of(s, epoch);
    uint32_t world = s->p.order.world, each = s->ranks_per_node;
    uint64_t magic = UINT64_MAX / world + 1;
    for (size_t i = 0; i < n; i++) {
        if (accesses[i] == MR_NO_ACCESS) {
            nodes[i] = UINT32_MAX;
            continue;
        }
        uint64_t at = accesses[i] - base;
        uint32_t rank = MR_UNLIKELY(at >> 32) ? (uint32_t)(at % world) : modulo((uint32_t)at, world, magic);
        nodes[i] = s->node_of_rank ? s->node_of_rank[rank] : each == 1 ? rank : rank / each;
    }
}

/* Position `at` of the epoch lies behind the start: mr_order_get_for counts rows of the unsought order, which differ
 * from ours when the start is no multiple of the world. A sought order would do, but the slots serve all epochs. */
int64_t mr_schedule_ids(struct mr_schedule *s, uint64_t epoch, uint32_t rank, uint64_t row, uint64_t *ids, size_t n,
                        struct mr_error *err)
{
    const struct mr_order *o = order_of(s, epoch, err);
    if (!o)
        return -ENOMEM;
    uint64_t rows = mr_schedule_rows(s, epoch), w = s->p.order.world;
    if (row >= rows)
        return 0;
    n = (size_t)MR_MIN((uint64_t)n, rows - row);
    uint64_t at = start_of(s, epoch) + row * w + rank, samples = s->p.order.samples;
    if (s->rank_local) /* the start is a multiple of the world */
        return (int64_t)mr_order_get_for(o, rank, at / w, ids, n);
    for (size_t done = 0, run; done < n; done += run, at += run * w) {
        uint64_t i = at % samples, fit = (samples - 1 - i) / w + 1;
        run = (size_t)MR_MIN((uint64_t)(n - done), fit);
        o->ops->fill_global(o, i, w, ids + done, run);
    }
    return (int64_t)n;
}

/* A place that lies before the start or is left out may still be read as padding: places repeat every `period`
 * positions, of the whole sequence in global modes, of the rank's slice in rank-local ones. */
static uint64_t first_read(uint64_t place, uint64_t begin, uint64_t end, uint64_t period, uint64_t base)
{
    if (MR_UNLIKELY(place < begin))
        place += (begin - place + period - 1) / period * period;
    return place < end ? base + place : MR_NO_ACCESS;
}

int mr_schedule_find(struct mr_schedule *s, uint64_t epoch, const uint64_t *ids, uint64_t *accesses, size_t n,
                     struct mr_error *err)
{
    const struct mr_order *o = order_of(s, epoch, err);
    if (!o)
        return -ENOMEM;
    uint64_t w = s->p.order.world, begin = start_of(s, epoch), end = begin + mr_schedule_rows(s, epoch) * w;
    uint64_t base = epoch * s->stride, period = s->p.order.samples;
    mr_order_places(o, ids, accesses, n);
    for (size_t i = 0; i < n; i++) {
        if (s->rank_local)
            period = mr_order_slice(o, (uint32_t)(accesses[i] % w)).len * w;
        accesses[i] = first_read(accesses[i], begin, end, period, base);
    }
    return 0;
}
