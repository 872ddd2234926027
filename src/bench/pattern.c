/* Handing out a pattern's batches: see pattern.h for the picture.
 *
 * Invariants
 *  P1 `lock` guards next, frontier, allowed, consumed, the ring and the order; it is never held during I/O or sleep.
 *  P2 consumed <= frontier <= next <= allowed (allowed may run ahead of n_items), and ring[i] exists for consumed <= i
 * < next. P3 An item's bytes have one writer, the thread that took it, until it is done; then one reader, the consumer,
 * until release moves `consumed` past it. Buffers are used again after that. P4 The order is asked for items in
 * ascending order only, when they are taken: it holds one epoch at a time. P5 A failure or stop is seen by every wait
 * within 50 ms. Lock order: there is one lock. */
#include "bench/pattern_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* At most 50 ms: the caller looks again, so a lost wake-up or stop costs no more than that. */
static void wait_a_while(struct mr_pattern *s)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 50000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->cond, &s->lock, &t);
}

static void fail(struct mr_pattern *s, int rc, const struct mr_error *why)
{
    pthread_mutex_lock(&s->lock);
    if (!s->rc) {
        s->rc = rc;
        s->err = *why;
    }
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

/* lock held */
static bool ended(const struct mr_pattern *s)
{
    return s->rc || mr_pattern_over(s);
}

/* ---- the ring (lock held) ---- */

static struct pattern_slot **ring_at(struct mr_pattern *s, uint64_t item)
{
    return &s->ring[item % s->ring_cap];
}

static bool ring_grow(struct mr_pattern *s)
{
    uint64_t cap = MR_MAX(2 * s->ring_cap, 64u);
    struct pattern_slot **ring = calloc(cap, sizeof(struct pattern_slot *));
    if (!ring)
        return false;
    for (uint64_t i = s->consumed; i < s->next; i++)
        ring[i % cap] = *ring_at(s, i);
    free(s->ring);
    s->ring = ring;
    s->ring_cap = cap;
    return true;
}

static struct pattern_slot *new_slot(struct mr_pattern *s)
{
    struct pattern_slot *slot = s->free_slots;
    if (slot)
        s->free_slots = slot->next_free;
    return slot ? slot : calloc(1, sizeof(*slot));
}

static void free_up_to(struct mr_pattern *s, uint64_t item)
{
    for (; s->consumed < MR_MIN(item, s->frontier); s->consumed++) {
        struct pattern_slot *slot = *ring_at(s, s->consumed);
        slot->next_free = s->free_slots;
        s->free_slots = slot;
    }
}

/* ---- readers ---- */

static int take_locked(struct mr_pattern *s, struct pattern_slot **out, struct mr_error *err)
{
    if (s->next - s->consumed >= s->ring_cap && !ring_grow(s))
        return mr_error_set(err, -ENOMEM, "cannot list what to read");
    struct pattern_slot *slot = new_slot(s);
    if (!slot)
        return mr_error_set(err, -ENOMEM, "cannot list what to read");
    slot->item = s->next;
    slot->done = false;
    *ring_at(s, s->next) = slot;
    int rc = mr_pattern_locate(s, s->next++, slot, err);
    *out = slot;
    return rc;
}

/* The next allowed item, or NULL at the end. */
static struct pattern_slot *take_item(struct mr_pattern *s, bool wait)
{
    struct pattern_slot *slot = NULL;
    struct mr_error err;
    uint64_t start = wait ? mr_now_ns() : 0;
    pthread_mutex_lock(&s->lock);
    while (wait && s->next < s->n_items && s->next >= s->allowed && !ended(s))
        wait_a_while(s);
    if (s->next < MR_MIN(s->allowed, s->n_items) && !ended(s)) {
        int rc = take_locked(s, &slot, &err);
        if (rc && !s->rc) {
            s->rc = rc;
            s->err = err;
        }
        if (rc)
            slot = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (wait)
        atomic_fetch_add_explicit(&s->idle_ns, mr_now_ns() - start, memory_order_relaxed);
    return slot;
}

static void finish_item(struct mr_pattern *s, struct pattern_slot *slot)
{
    pthread_mutex_lock(&s->lock);
    slot->done = true;
    while (s->frontier < s->next && (*ring_at(s, s->frontier))->done)
        s->frontier++;
    if (atomic_load(&s->drain))
        free_up_to(s, s->frontier);
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

static void read_allowed(struct pattern_hand *h, bool wait)
{
    struct pattern_slot *slot;
    struct mr_error err;
    while ((slot = take_item(h->s, wait))) {
        int rc = mr_pattern_read_item(h, slot, &err);
        if (rc)
            fail(h->s, rc, &err);
        else
            finish_item(h->s, slot);
    }
}

static void *reader_main(void *arg)
{
    struct pattern_hand *h = arg;
    prctl(PR_SET_TIMERSLACK, 1, 0, 0,
          0); /* emulated storage sleeps; 50 us of slack would be a quarter of a fast request */
    read_allowed(h, true);
    mr_pattern_drop_hand(h);
    return NULL;
}

static void allow(struct mr_pattern *s, uint64_t items)
{
    pthread_mutex_lock(&s->lock);
    if (items > s->allowed) {
        s->allowed = items;
        pthread_cond_broadcast(&s->cond);
    }
    pthread_mutex_unlock(&s->lock);
}

static int wait_for_items(struct mr_pattern *s, uint64_t items, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    pthread_mutex_lock(&s->lock);
    while (s->frontier < MR_MIN(items, s->n_items) && !ended(s))
        wait_a_while(s);
    int rc = s->rc;
    if (rc)
        *err = s->err;
    else if (s->frontier < MR_MIN(items, s->n_items))
        rc = mr_error_plain(err, MR_E_INTERRUPTED, "the reading was stopped");
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add_explicit(&s->wait_ns, mr_now_ns() - start, memory_order_relaxed);
    return rc;
}

/* ---- batches ---- */

static uint64_t row_number(struct mr_pattern *s, uint64_t epoch, uint64_t k)
{
    uint64_t at = k;
    if (s->again && epoch > 0 && mr_order_get(s->again, k, &at, 1) != 1)
        at = k;
    return at;
}

/* Where row k of the epoch lies: a record is an item, a sample of a file a part of it that may not have been read. */
static int set_row(struct mr_pattern *s, uint64_t epoch, uint64_t k, uint32_t row, uint64_t *sample_bytes,
                   struct mr_error *err)
{
    uint64_t at = row_number(s, epoch, k), item = (s->memory ? 0 : epoch * s->per_epoch) + at / s->rows_per_item;
    pthread_mutex_lock(&s->lock); /* the ring may be moving */
    const struct pattern_slot *slot = *ring_at(s, item);
    pthread_mutex_unlock(&s->lock);
    uint64_t i = at % s->rows_per_item, from, bytes, all;
    int rc = mr_pattern_find_row(s, slot, i, &from, &bytes, &all, err);
    if (rc)
        return rc;
    s->rows_out[row] = slot->buf + from;
    s->bytes_out[row] = bytes;
    s->ids_out[row] = (slot->first_id + i) % s->info.samples;
    *sample_bytes += all;
    return 0;
}

static int make_batch(struct mr_pattern *s, struct mr_pattern_batch *out, struct mr_error *err)
{
    uint64_t epoch = s->step / MR_MAX(s->batches, 1u), first = s->step % MR_MAX(s->batches, 1u) * s->batch_size;
    uint64_t read = atomic_load(&s->read_bytes);
    int rc = 0;
    *out = (struct mr_pattern_batch){.n = (uint32_t)MR_MIN((uint64_t)s->batch_size, s->rows - MR_MIN(first, s->rows)),
                                     .read_bytes = read - s->read_before};
    s->read_before = read;
    if (s->p.keep && s->again && epoch != mr_order_epoch(s->again))
        rc = mr_order_set_epoch(s->again, epoch, err);
    for (uint32_t i = 0; !rc && s->p.keep && i < out->n; i++)
        rc = set_row(s, epoch, first + i, i, &out->sample_bytes, err);
    if (s->p.keep) {
        out->rows = s->rows_out;
        out->bytes = s->bytes_out;
        out->ids = s->ids_out;
    }
    return rc;
}

int mr_pattern_next(struct mr_pattern *s, struct mr_pattern_batch *out, struct mr_error *err)
{
    uint64_t items = mr_pattern_need(s, s->step);
    if (items > s->n_items) {
        mr_error_plain(err, MR_E_CONFIG, "step %llu needs %llu files or records of a rank, the pattern has %llu",
                       (unsigned long long)s->step, (unsigned long long)items, (unsigned long long)s->n_items);
        return mr_error_hint(err, "raise pattern.file_passes or lower train.total_training_steps"), MR_E_CONFIG;
    }
    allow(s, items);
    if (s->n_threads == 0)
        read_allowed(&s->own, false);
    int rc = wait_for_items(s, items, err);
    if (rc)
        return rc;
    if (s->n_threads)
        allow(s, mr_pattern_need(s, s->step + s->p.prefetch));
    rc = make_batch(s, out, err);
    s->leased = !rc;
    if (rc)
        return rc;
    atomic_fetch_add(&s->batches_out, 1);
    atomic_fetch_add(&s->samples_out, out->n);
    atomic_fetch_add(&s->bytes_given, out->sample_bytes);
    return 1;
}

void mr_pattern_release(struct mr_pattern *s)
{
    if (!s->leased)
        return;
    s->leased = false;
    pthread_mutex_lock(&s->lock);
    free_up_to(s, mr_pattern_used_up(s, s->step));
    pthread_mutex_unlock(&s->lock);
    s->step++;
}

struct counting {
    struct mr_pattern_cut cut;
    uint64_t n;
};

static int count_pieces(void *user, const struct mr_pattern_range *r, struct mr_error *err)
{
    struct counting *c = user;
    (void)err;
    c->n += mr_pattern_cut_count(&c->cut, r->bytes);
    return 0;
}

uint64_t mr_pattern_pieces(struct mr_pattern *s)
{
    struct counting c = {.cut = mr_pattern_cut(s->p.workload)};
    struct pattern_slot slot;
    uint64_t until = MR_MIN(mr_pattern_need(s, s->step), s->n_items);
    pthread_mutex_lock(&s->lock);
    for (uint64_t i = s->next; i < until && mr_pattern_locate(s, i, &slot, NULL) == 0; i++)
        mr_pattern_each_range(s, &slot, count_pieces, &c, NULL);
    pthread_mutex_unlock(&s->lock);
    return c.n;
}

int mr_pattern_preload(struct mr_pattern *s, struct mr_error *err)
{
    if (!s->memory) {
        if (s->n_threads && s->p.prefetch)
            allow(s, mr_pattern_need(s, s->p.prefetch - 1)); /* the queue fills before anybody asks */
        return 0;
    }
    allow(s, s->n_items);
    if (s->n_threads == 0)
        read_allowed(&s->own, false);
    return wait_for_items(s, s->n_items, err);
}

int mr_pattern_finish(struct mr_pattern *s, struct mr_error *err)
{
    mr_pattern_release(s);
    pthread_mutex_lock(&s->lock);
    if (!s->files || !(s->p.file_passes || s->p.whole_epochs))
        s->n_items = MR_MIN(s->n_items, s->next); /* records nobody asked for are not read */
    atomic_store(&s->drain, true);
    free_up_to(s, s->frontier);
    s->allowed = UINT64_MAX;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
    if (s->n_threads == 0)
        read_allowed(&s->own, false);
    return wait_for_items(s, UINT64_MAX, err);
}

void mr_pattern_stop(struct mr_pattern *s)
{
    atomic_store(&s->stopped, true);
}

/* ---- opening and closing ---- */

static int check_fit(struct mr_pattern *s, struct mr_error *err)
{
    struct mr_read_cost cost;
    int rc = mr_dataset_file_cost(s->p.dataset, 0, &cost, err);
    if (rc)
        return rc;
    if (s->files && s->info.samples_per_file == 0)
        return mr_error_plain(err, MR_E_CONFIG, "pattern.unit file needs files with equally many samples");
    if (s->units && s->p.verify) {
        mr_error_plain(err, MR_E_CONFIG,
                       "samples that share pages are read without being decoded here, so they cannot "
                       "be compared");
        return mr_error_hint(err, "leave out --verify, or read them through the loader (pattern.unit=sample)"),
               MR_E_CONFIG;
    }
    if (s->p.keep && cost.access == MR_ACCESS_UNPACK && (!s->files || s->info.samples_per_file > 1))
        return mr_error_plain(err, MR_E_CONFIG,
                              "pattern.unit %s cannot find samples in files that are compressed as a whole",
                              s->files ? "file" : "record");
    return 0;
}

static int start_readers(struct mr_pattern *s, struct mr_error *err)
{
    unsigned n = s->n_items && !s->p.source ? s->p.readers : 0;
    s->threads = calloc(n + 1, sizeof(*s->threads));
    s->hands = calloc(n + 1, sizeof(*s->hands));
    if (!s->threads || !s->hands)
        return mr_error_set(err, -ENOMEM, "cannot start the readers");
    s->n_threads = n;
    for (; s->started < n; s->started++) {
        s->hands[s->started].s = s;
        int rc = pthread_create(&s->threads[s->started], NULL, reader_main, &s->hands[s->started]);
        if (rc)
            return mr_error_set(err, -rc, "cannot start the readers");
    }
    return 0;
}

static int open_parts(struct mr_pattern *s, struct mr_error *err)
{
    int rc = check_fit(s, err);
    if (!rc)
        rc = mr_pattern_items_open(s, err);
    if (rc)
        return rc;
    s->rows_out = calloc(s->batch_size, sizeof(*s->rows_out));
    s->bytes_out = calloc(s->batch_size, sizeof(*s->bytes_out));
    s->ids_out = calloc(s->batch_size, sizeof(*s->ids_out));
    if (!s->rows_out || !s->bytes_out || !s->ids_out)
        return mr_error_set(err, -ENOMEM, "cannot make a batch of %u rows", s->batch_size);
    return start_readers(s, err);
}

int mr_pattern_open(const struct mr_pattern_params *p, struct mr_pattern **out, struct mr_error *err)
{
    static const unsigned primary;
    struct mr_pattern *s = calloc(1, sizeof(*s));
    pthread_condattr_t monotonic;
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot replay the access pattern");
    s->p = *p;
    s->own.s = s;
    mr_dataset_get_info(p->dataset, &s->info);
    s->files = p->workload->pattern.unit == MR_CONF_UNIT_FILE;
    s->memory = p->workload->reader.read_type == MR_CONF_READ_MEMORY;
    s->batch_size = (uint32_t)p->workload->reader.batch_size;
    s->run = s->files ? 1 : (uint64_t)p->workload->pattern.sequential_samples;
    s->n_fields = mr_dataset_selected(p->dataset, &s->field);
    if (!s->n_fields) {
        s->field = &primary;
        s->n_fields = 1;
    }
    struct mr_read_cost cost = {0};
    s->units = !s->files && mr_dataset_file_cost(p->dataset, 0, &cost, NULL) == 0 && cost.access == MR_ACCESS_UNIT;
    s->rows_per_item = s->files ? MR_MAX(s->info.samples_per_file, 1u) : s->n_fields > 1 || s->units ? s->run : 1;
    s->items_per_run = s->files ? 1 : s->run / s->rows_per_item;
    s->opened_ns = mr_now_ns();
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = open_parts(s, err);
    if (rc) {
        mr_pattern_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_pattern_close(struct mr_pattern *s)
{
    if (!s)
        return;
    mr_pattern_stop(s);
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->started; i++)
        pthread_join(s->threads[i], NULL);
    mr_pattern_drop_hand(&s->own);
    for (uint64_t i = s->consumed; i < s->next; i++) {
        struct pattern_slot *slot = *ring_at(s, i);
        slot->next_free = s->free_slots;
        s->free_slots = slot;
    }
    for (struct pattern_slot *slot = s->free_slots, *next; slot; slot = next) {
        next = slot->next_free;
        free(slot->buf);
        free(slot);
    }
    mr_order_free(s->order);
    mr_order_free(s->again);
    free(s->ring);
    free(s->threads);
    free(s->hands);
    free(s->rows_out);
    free(s->bytes_out);
    free(s->ids_out);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->cond);
    free(s);
}

uint64_t mr_pattern_batches(const struct mr_pattern *s)
{
    return s->batches;
}

uint64_t mr_pattern_items(const struct mr_pattern *s)
{
    return s->n_items;
}

void mr_pattern_get_stats(struct mr_pattern *s, struct mr_loader_stats *out)
{
    uint64_t wait = atomic_load(&s->wait_ns), lived = mr_now_ns() - s->opened_ns;
    const char *limiter = 20 * wait > lived ? "storage" : "consumer";
    *out = (struct mr_loader_stats){.batches = atomic_load(&s->batches_out),
                                    .samples = atomic_load(&s->samples_out),
                                    .sample_bytes = atomic_load(&s->bytes_given),
                                    .read_bytes = atomic_load(&s->read_bytes),
                                    .wait_ns = wait,
                                    .read_ns = atomic_load(&s->read_ns),
                                    .transform_ns = atomic_load(&s->prepare_ns),
                                    .idle_ns = atomic_load(&s->idle_ns),
                                    .slab_bytes = atomic_load(&s->held_bytes),
                                    .threads = s->n_threads,
                                    .limiter = limiter,
                                    .lifetime_limiter = limiter};
}
