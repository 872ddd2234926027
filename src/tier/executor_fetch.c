/* Fetching: a sample on its way from one of its sources into its place, and what happens when it is there. */
#include "tier/executor_internal.h"
#include "event/emit.h"
#include "tier/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct mr_fetching *mr_fetching_new(struct mr_executor *x, struct mr_holding *e)
{
    struct mr_fetching *f = x->free_fetches;
    assert(e->state == MR_HOLDING_COMING); /* E2 */
    assert(!e->fetch);                     /* E3 */
    if (f)
        x->free_fetches = f->next;
    else if (!(f = malloc(sizeof(*f))))
        return NULL;
    *f = (struct mr_fetching){.x = x,
                              .e = e,
                              .job = {.at = MR_WORK_IDLE, .bytes = e->bytes},
                              .asked_ns = mr_now_ns(),
                              .first_waiter = MR_HOLDING_NONE,
                              .last_waiter = MR_HOLDING_NONE,
                              .ssd = EXECUTOR_NO_SSD};
    e->fetch = f;
    x->fetches++;
    return f;
}

static void free_fetch(struct mr_executor *x, struct mr_fetching *f)
{
    assert(x->fetches && x->fills >= f->fill);
    assert(f->job.at == MR_WORK_IDLE); /* W1: no device has it */
    x->fetches--;
    x->fills -= f->fill;
    f->next = x->free_fetches;
    x->free_fetches = f;
}

static struct mr_work *device_of(struct mr_executor *x, const struct mr_fetching *f)
{
    return f->ssd != EXECUTOR_NO_SSD ? x->ssd[f->ssd].reads : x->source;
}

void mr_fetching_join(struct mr_executor *x, struct mr_fetching *f, uint32_t slot, uint64_t access)
{
    assert(f->e->fetch == f && x->slot_holding[slot] == f->e->self); /* E3: what it claimed is under way */
    x->slot_next[slot] = MR_HOLDING_NONE;
    if (f->last_waiter == MR_HOLDING_NONE)
        f->first_waiter = slot;
    else
        x->slot_next[f->last_waiter] = slot;
    f->last_waiter = slot;
    mr_work_raise(device_of(x, f), &f->job, mr_work_key(MR_URGENT_READ, access));
}

/* ---- the end of a fetch ---- */

struct ranks_to_wake {
    uint64_t bits;
    bool planner;
};

static void wake(struct mr_executor *x, const struct ranks_to_wake *w)
{
    for (uint32_t r = 0; w->bits && r < x->ranks; r++)
        if (w->bits >> (r % 64) & 1)
            mr_segment_wake(x->segment, r);
    if (w->planner)
        mr_segment_kick(x->segment);
}

/* The delivery that uses this place of a ring now. */
static uint64_t delivery_of_slot(const struct mr_executor *x, uint32_t rank, uint32_t slot)
{
    uint64_t first = mr_segment_reclaimed(x->segment, rank);
    return first + ((slot - (uint32_t)first) & (x->depth - 1));
}

static void add_result(struct mr_executor *x, const struct mr_fetching *f, const struct mr_outcome *o)
{
    struct planned_result *r = f->tells ? MR_VEC_ADD(&x->results) : NULL;
    if (r) /* else the policy believes what it planned */
        *r = (struct planned_result){.access = f->access, .id = f->e->id, .outcome = *o};
}

/* Without the time in our own queue. */
static uint64_t took_ns(const struct mr_fetching *f, uint64_t now)
{
    return now - (f->began_ns ? f->began_ns : f->asked_ns);
}

static void deliver_all(struct mr_executor *x, struct mr_fetching *f, enum mr_tier_from from,
                        const struct mr_error *err, struct ranks_to_wake *w)
{
    struct mr_holding *e = f->e;
    uint64_t now = mr_now_ns();
    struct mr_delivery d = {.id = e->id,
                            .at = e->at,
                            .bytes = err ? 0 : e->bytes,
                            .began_ns = now - took_ns(f, now),
                            .came_ns = now,
                            .code = err ? err->code : 0,
                            .from = from};
    for (uint32_t s = f->first_waiter; s != MR_HOLDING_NONE; s = x->slot_next[s]) {
        uint32_t rank = s / x->depth;
        uint64_t n = delivery_of_slot(x, rank, s & (x->depth - 1));
        assert(n < x->planned[rank] && !mr_segment_has_come(x->segment, rank, n)); /* E6: once */
        mr_segment_deliver(x->segment, rank, n, &d, err);
        w->bits |= (uint64_t)1 << (rank % 64);
        if (!err)
            count_up(&x->board->from[d.from], e->bytes, s == f->first_waiter ? took_ns(f, now) : 0);
        d.from = MR_TIER_RAM; /* those who joined read what the first one brought */
        d.began_ns = 0;
    }
}

static enum mr_source_kind source_kind(enum mr_tier_from from)
{
    return from == MR_TIER_PEER ? MR_FROM_PEER : from == MR_TIER_SOURCE ? MR_FROM_PFS : MR_FROM_CLASS;
}

/* Where the source is one of enum mr_tier_from, and the class one of the policy's. */
static void tell_fill(struct mr_executor *x, uint64_t id, uint64_t start, uint64_t bytes, enum mr_tier_from from,
                      unsigned storage_class)
{
    struct mr_where at = MR_NOWHERE;
    at.sample = id;
    const struct mr_emit_arg arg[] = {{.name = "bytes", .value = (int64_t)bytes},
                                      {.name = "source", .value = (int64_t)from},
                                      {.name = "class", .value = (int64_t)storage_class}};
    mr_emit_args(x->p.events, MR_SPAN_FILL, start, mr_now_ns(), &at, (int64_t)bytes, arg, MR_ARRAY_LEN(arg));
}

void mr_fetch_completed(struct mr_executor *x, struct mr_fetching *f, uint64_t bytes, enum mr_tier_from from)
{
    struct ranks_to_wake w = {0};
    pthread_mutex_lock(&x->lock);
    struct mr_holding *e = f->e;
    assert(e->fetch == f); /* E3 */
    mr_holdings_ready(&x->h, e, bytes);
    if (f->only_from_pfs && from == MR_TIER_PEER)
        mr_holdings_set_class(&x->h, e, MR_CLASS_NONE);
    struct mr_outcome o = {.from = source_kind(from), .kept = e->storage_class != MR_CLASS_NONE};
    add_result(x, f, &o);
    bool fill = f->fill;
    unsigned kept = e->storage_class;
    uint64_t id = e->id, start = f->began_ns ? f->began_ns : f->asked_ns;
    if (fill)
        count_up(&x->board->fills[from], bytes, took_ns(f, mr_now_ns()));
    deliver_all(x, f, from, NULL, &w);
    w.planner = x->waits_for_room || f->fill;
    free_fetch(x, f);
    if (e->storage_class >= 2 && e->storage_class != MR_CLASS_NONE)
        mr_executor_spill(x, e);
    else if (e->storage_class == MR_CLASS_RAM && x->n_ssds && from != MR_TIER_SSD)
        mr_executor_copy(x, e);
    mr_holdings_settle(&x->h, e);
    pthread_mutex_unlock(&x->lock);
    wake(x, &w);
    if (fill)
        tell_fill(x, id, start, bytes, from, kept);
}

/* Nobody gets bytes of it: claims of those who wait end here, and the place goes. */
static void fail(struct mr_executor *x, struct mr_fetching *f, const struct mr_error *err, struct ranks_to_wake *w)
{
    struct mr_holding *e = f->e;
    struct mr_outcome o = {.failed = true};
    add_result(x, f, &o);
    deliver_all(x, f, MR_TIER_SOURCE, err, w);
    for (uint32_t s = f->first_waiter; s != MR_HOLDING_NONE; s = x->slot_next[s]) {
        assert(x->slot_holding[s] == e->self && e->claims);
        x->slot_holding[s] = MR_HOLDING_NONE;
        e->claims--;
    }
    free_fetch(x, f);
    e->fetch = NULL;
    mr_holdings_set_class(&x->h, e, MR_CLASS_NONE);
    mr_holdings_unplace(&x->h, e);
    mr_holdings_settle(&x->h, e);
    w->planner = true;
}

void mr_fetching_failed(struct mr_executor *x, struct mr_fetching *f, const struct mr_error *err)
{
    struct ranks_to_wake w = {0};
    pthread_mutex_lock(&x->lock);
    fail(x, f, err, &w);
    pthread_mutex_unlock(&x->lock);
    wake(x, &w);
}

/* ---- sources ---- */

void mr_fetching_go(struct mr_executor *x, struct mr_fetching *f)
{
    if (f->ssd == EXECUTOR_NO_SSD && f->n_peers && mr_peers_ask(x->peers, f))
        return;
    if (mr_work_push(device_of(x, f), &f->job))
        return;
    struct mr_error err;
    struct ranks_to_wake w = {0};
    mr_error_set(&err, -ENOMEM, "cannot ask for sample %llu", (unsigned long long)f->e->id);
    fail(x, f, &err, &w); /* who waits looks now and then */
}

void mr_fetching_next(struct mr_executor *x, struct mr_fetching *f)
{
    pthread_mutex_lock(&x->lock);
    board_add(x->board->refetched, 1);
    f->ssd = EXECUTOR_NO_SSD;
    mr_fetching_go(x, f);
    pthread_mutex_unlock(&x->lock);
}

static void *enter_source(void *user)
{
    struct mr_executor *x = user;
    struct mr_dataset_reader *r = NULL;
    if (mr_dataset_reader_create(x->p.dataset, &r, NULL))
        return NULL;
    if (mr_dataset_reader_tune(r, 0, x->p.open_flags | MR_FILE_CACHE_CHECK, 0, NULL)) {
        mr_dataset_reader_free(r);
        return NULL;
    }
    return r;
}

static void leave_source(void *user, void *mine)
{
    (void)user;
    mr_dataset_reader_free(mine);
}

static void count_source(struct mr_executor *x, uint64_t id, uint64_t read_bytes, uint64_t bytes)
{
    board_add(x->board->source_bytes, read_bytes);
    board_add(x->board->source_reads, 1);
    uint8_t bit = (uint8_t)(1u << (id % 8));
    uint8_t was = x->was_read ? __atomic_fetch_or(&x->was_read[id / 8], bit, __ATOMIC_RELAXED) : bit;
    if (!(was & bit))
        board_add(x->board->distinct_bytes, bytes);
}

static uint64_t run_source(void *user, void *mine, struct mr_work_job *job)
{
    struct mr_executor *x = user;
    struct mr_fetching *f = (struct mr_fetching *)job;
    struct mr_holding *e = f->e; /* E1 of the holding: it stays while it is COMING */
    struct mr_sample sample;
    struct mr_error err;
    if (!mine) {
        mr_error_set(&err, -ENOMEM, "no memory to read the source");
        mr_fetching_failed(x, f, &err);
        return 0;
    }
    uint64_t before = mr_dataset_reader_times(mine)->read_bytes, begins = mr_now_ns();
    f->began_ns = begins; /* a peer may have been at it before */
    if (atomic_fetch_add(&x->board->source_reading, 1) == 0)
        atomic_fetch_sub(&x->board->source_busy_ns, begins);
    int rc = mr_dataset_read(mine, e->id, x->read_flags, mr_segment_data(x->segment, e->at), e->bytes, &sample, &err);
    uint64_t read = mr_dataset_reader_times(mine)->read_bytes - before, bytes = sample.bytes;
    uint64_t ends = mr_now_ns();
    if (!rc && read)
        atomic_store_explicit(&x->source_one, (uint64_t)((double)read * 1e9 / (double)MR_MAX(ends - begins, 1u)),
                              memory_order_relaxed);
    if (atomic_fetch_sub(&x->board->source_reading, 1) == 1)
        atomic_fetch_add(&x->board->source_busy_ns, ends);
    count_source(x, e->id, read, rc ? 0 : bytes);
    if (rc)
        mr_fetching_failed(x, f, &err);
    else
        mr_fetch_completed(x, f, bytes, MR_TIER_SOURCE);
    return rc ? 0 : bytes;
}

static void drop_source(void *user, struct mr_work_job *job)
{
    struct mr_error err;
    mr_error_plain(&err, MR_E_INTERRUPTED, "the tiers were closed");
    mr_fetching_failed(user, (struct mr_fetching *)job, &err);
}

int mr_executor_start_source(struct mr_executor *x, struct mr_error *err)
{
    x->source_device = mr_traffic_get(x->p.store, mr_dataset_root(x->p.dataset));
    struct mr_work_params w = {.name = "the source",
                               .device = x->source_device,
                               .threads = x->p.threads,
                               .user = x,
                               .enter = enter_source,
                               .leave = leave_source,
                               .run = run_source,
                               .drop = drop_source};
    return mr_work_start(&w, &x->source, err);
}
