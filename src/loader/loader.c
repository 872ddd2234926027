/* The loader's consumer side: opening, epochs, next and release, state, statistics. The engine threads are in
 * loader_engine.c, queued reading in loader_queue.c. See README.md for the invariants (L1 ...). */
#include "loader/loader_internal.h"
#include "base/clock.h"
#include "base/workers.h"
#include "dataset/unit_cache.h"
#include "event/emit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define OPEN_FILES_MAX 1024u

/* ---- open and close ---- */

static int open_plan(struct mr_loader *l, struct mr_error *err)
{
    if (!(l->p.flags & MR_LOADER_VERIFY_CONTENT))
        return 0;
    l->plan = malloc(sizeof(*l->plan));
    if (!l->plan)
        return mr_error_set(err, -ENOMEM, "cannot check the content of '%s'", l->dataset_path);
    if (!mr_gen_plan_of_manifest(mr_dataset_manifest(l->dataset), &l->plan_arena, l->plan, NULL))
        return mr_error_plain(err, MR_E_USAGE,
                              "content can only be checked in sets that this version's 'millrace gen' could have made");
    return 0;
}

/* A queue pays where reads are cold: many requests in flight from few threads. */
static void choose_queue(struct mr_loader *l)
{
    l->queue_depth = l->p.queue_depth ? l->p.queue_depth : 32;
    bool fields = l->p.n_fields && !(l->p.flags & MR_LOADER_RAW); /* are read with direct calls */
    l->queued = l->read_ahead && !l->tiered && !fields && !(l->p.flags & MR_LOADER_IN_MEMORY) &&
                (l->p.io == MR_LOADER_IO_AUTO ? (l->p.flags & MR_LOADER_DIRECT) != 0 : l->p.io == MR_LOADER_IO_QUEUE);
}

void mr_loader_fill_order(const struct mr_loader *l, struct mr_order_params *out)
{
    *out = l->p.order;
    out->samples = l->info.samples;
    if (out->mode == MR_ORDER_FILE && !out->file_first && !out->samples_per_file)
        out->samples_per_file = l->info.samples_per_file ? l->info.samples_per_file : 1;
}

static int open_order(struct mr_loader *l, struct mr_error *err)
{
    struct mr_order_params o;
    mr_loader_fill_order(l, &o);
    return mr_order_create(&o, &l->order, err);
}

uint64_t mr_loader_files_per_thread(const struct mr_loader *l)
{
    struct rlimit limit;
    uint64_t files = MR_MIN(l->info.files, OPEN_FILES_MAX);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        files = MR_MIN(files, (uint64_t)limit.rlim_cur / 2 / l->n_threads);
    return MR_MAX(files, 16u);
}

static int open_threads(struct mr_loader *l, struct mr_error *err)
{
    l->n_threads = !l->read_ahead ? 1 : l->p.threads ? l->p.threads : mr_cpus_available();
    l->threads = calloc(l->n_threads, sizeof(*l->threads));
    if (!l->threads)
        return mr_error_set(err, -ENOMEM, "cannot make %u threads", l->n_threads);
    for (unsigned i = 0; i < l->n_threads; i++) {
        struct engine_thread *t = &l->threads[i];
        t->loader = l;
        t->field = calloc(l->n_fields + 1, sizeof(*t->field));
        if (!t->field)
            return mr_error_set(err, -ENOMEM, "cannot make %u threads", l->n_threads);
        int rc = mr_dataset_reader_create(l->dataset, &t->reader, err);
        if (rc)
            return rc;
        if (l->p.preprocess && (rc = mr_preprocess_create(&l->preprocess, &t->preprocess, err)))
            return rc;
        rc = mr_dataset_reader_tune(t->reader, l->p.transfer_bytes, l->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0,
                                    l->queued ? 0 : mr_loader_files_per_thread(l), err);
        if (rc)
            return rc;
    }
    return 0;
}

/* What this rank reads in the epoch, or the rest of it, that the order is in; it has read `before` samples of it. As
 * mr_schedule_rows. */
static void count_epoch(const struct mr_loader *l, uint64_t before, uint64_t *samples, uint64_t *batches)
{
    uint64_t left = mr_order_rank_len(l->order);
    if (l->p.max_samples)
        left = MR_MIN(left, l->p.max_samples - MR_MIN(before, l->p.max_samples));
    *samples = l->p.drop_last_batch ? left / l->p.batch_size * l->p.batch_size : left;
    *batches = (*samples + l->p.batch_size - 1) / l->p.batch_size;
}

static int open_parts(struct mr_loader *l, struct mr_error *err)
{
    int rc = mr_loader_open_store(l, err);
    if (!rc)
        rc = mr_dataset_open_in(l->dataset_path, l->store, &l->dataset, err);
    if (!rc && l->p.n_fields)
        rc = mr_loader_select_fields(l, err);
    if (rc)
        return rc;
    mr_dataset_get_info(l->dataset, &l->info);
    mr_loader_fit_events(l);
    if (l->info.samples == 0)
        return mr_error_plain(err, MR_E_FORMAT, "data set '%s' has no samples", l->dataset_path);
    if ((rc = open_plan(l, err)) || (rc = open_order(l, err)) || (rc = open_threads(l, err)) ||
        (rc = mr_loader_alloc_slots(l, err)))
        return rc;
    count_epoch(l, 0, &l->n_samples, &l->n_batches);
    return 0;
}

static int open_all(struct mr_loader *l, struct mr_error *err)
{
    int rc = mr_loader_choose_policy(l, err);
    if (rc)
        return rc;
    choose_queue(l);
    rc = open_parts(l, err);
    rc = l->tiered ? mr_loader_open_tier(l, rc, err) : rc;
    if (rc)
        return rc;
    if (l->read_ahead)
        rc = mr_engine_start(l, err);
    if (!rc)
        mr_loader_join_traffic(l);
    return rc;
}

/* Waits with a deadline count on the clock that mr_now_ns reads. */
static void init_waits(struct mr_loader *l)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, &monotonic);
    pthread_cond_init(&l->quiet, NULL);
    pthread_condattr_destroy(&monotonic);
}

int mr_loader_open(const struct mr_loader_params *params, struct mr_loader **out, struct mr_error *err)
{
    return mr_loader_open_on(params, NULL, out, err);
}

int mr_loader_open_on(const struct mr_loader_params *params, struct mr_store *store, struct mr_loader **out,
                      struct mr_error *err)
{
    struct mr_loader_params taken, *p = &taken;
    int rc = mr_loader_params_take(params, p, err);
    if (rc)
        return rc;
    struct mr_loader *l = calloc(1, sizeof(*l));
    if (!l)
        return mr_error_set(err, -ENOMEM, "cannot make a loader");
    l->p = *p;
    if (p->preprocess) {
        l->preprocess = *p->preprocess;
        l->p.preprocess = &l->preprocess;
    }
    l->store = store;
    init_waits(l);
    l->opened_ns = mr_now_ns();
    l->dataset_path = strdup(p->dataset);
    l->store_spec = p->store && *p->store ? strdup(p->store) : NULL;
    if (!l->dataset_path)
        rc = mr_error_set(err, -ENOMEM, "cannot make a loader");
    else
        rc = open_all(l, err);
    if (rc) {
        mr_loader_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

void mr_loader_close(struct mr_loader *l)
{
    if (!l)
        return;
    bool read_all = mr_loader_read_all(l);
    mr_loader_leave_traffic(l);
    mr_engine_stop(l);
    if (l->threads && l->order)
        mr_loader_tell_fields(l);
    mr_loader_forget_memory(l); /* nobody fetches from it any more */
    for (unsigned i = 0; l->threads && i < l->n_threads; i++) {
        mr_queue_reader_free(l->threads[i].queue);
        mr_dataset_reader_free(l->threads[i].reader);
        mr_preprocess_free(l->threads[i].preprocess);
        mr_decoder_free(l->threads[i].pictures);
        free(l->threads[i].field);
    }
    mr_loader_close_tier(l, read_all);
    mr_loader_free_slots(l);
    mr_loader_forget_lists(l);
    free(l->threads);
    free(l->field);
    free(l->field_name);
    mr_unit_cache_free(l->units);
    mr_order_free(l->order);
    mr_dataset_close(l->dataset);
    if (l->owns_store)
        mr_store_close(l->store);
    free(l->plan);
    mr_events_release(l->to_tracer);
    mr_arena_done(&l->plan_arena);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->quiet);
    free(l->dataset_path);
    free(l->store_spec);
    free(l);
}

uint64_t mr_loader_batches_per_epoch(const struct mr_loader *l)
{
    return l->first_batch + l->n_batches;
}

uint64_t mr_loader_samples_per_epoch(const struct mr_loader *l)
{
    return l->n_samples;
}

/* ---- epochs ---- */

/* Ends the stream the engine is in and waits until no thread works on it (L5). */
void mr_loader_end_stream(struct mr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->cancel, true);
    mr_loader_stop_tier(l);
    pthread_cond_broadcast(&l->work);
    while (l->busy_threads > 0)
        pthread_cond_wait(&l->quiet, &l->lock);
    pthread_mutex_unlock(&l->lock);
    l->in_epoch = false;
}

/* Epoch of a batch of the stream, and its number there. */
static uint64_t epoch_of(const struct stream *s, uint64_t batch, uint64_t *in_epoch)
{
    *in_epoch = batch;
    if (batch < s->head_batches)
        return s->epoch;
    batch -= s->head_batches;
    *in_epoch = batch % s->epoch_batches;
    return s->epoch + 1 + batch / s->epoch_batches;
}

/* Makes the batch's slot ready to be filled. Batches come in ascending order, so the order goes from epoch to epoch
 * once. On failure the batch has no slot, and starting its epoch says why. */
static int prepare_slot(struct mr_loader *l, uint64_t batch)
{
    struct slot *s = slot_of(l, batch);
    uint64_t index, epoch = epoch_of(&l->stream, batch, &index), first = index * l->p.batch_size;
    bool head = epoch == l->stream.epoch;
    s->n =
        (uint32_t)MR_MIN((uint64_t)l->p.batch_size, (head ? l->stream.head_samples : l->stream.epoch_samples) - first);
    if (l->list.ids) {
        int rc = mr_loader_list_get(l, epoch, first + (head ? l->first_position : 0), s->ids, s->n);
        if (rc < 0)
            return rc;
    } else if (epoch != l->order_epoch) {
        int rc = mr_order_set_epoch(l->order, epoch, NULL);
        if (rc < 0)
            return rc;
        l->order_epoch = epoch;
    }
    mr_loader_forget_overflow(l, s);
    s->batch = (struct mr_batch){.epoch = epoch,
                                 .index = (head ? l->first_batch : 0) + index,
                                 .n = s->n,
                                 .rows = s->rows,
                                 .data = l->packed || l->in_place ? NULL : s->slab,
                                 .row_bytes = l->row_bytes,
                                 .ids = s->ids,
                                 .labels = s->labels,
                                 .bytes = s->bytes,
                                 .stored = s->stored};
    if (l->n_fields)
        mr_loader_prepare_fields(l, s);
    else
        memset(s->stored, 0, s->n * sizeof(*s->stored));
    atomic_store(&s->slab_used, 0);
    atomic_store(&s->read_bytes, 0);
    atomic_store(&s->failed, 0);
    atomic_store(&s->odd_rows, 0);
    atomic_store(&s->bad_rows, 0);
    if (l->p.flags & MR_LOADER_SKIP_BAD)
        memset(s->bad, 0, s->n);
    if (!l->list.ids)
        mr_order_get(l->order, first, s->ids, s->n);
    atomic_store(&s->left, s->n);
    return 0;
}

/* The stream that starts with the order's epoch and position. */
static void plan_stream(struct mr_loader *l, uint64_t epoch, uint64_t epoch_samples, uint64_t epoch_batches)
{
    struct stream *s = &l->stream;
    uint64_t last = mr_loader_last_epoch(l, epoch), tail;
    uint64_t more = l->read_ahead && epoch < last && epoch_batches ? last - epoch : 0;
    *s = (struct stream){.epoch = epoch, .epoch_samples = epoch_samples, .epoch_batches = epoch_batches};
    count_epoch(l, l->first_position / l->p.order.world, &s->head_samples, &s->head_batches);
    s->samples = s->head_samples;
    s->batches = s->head_batches;
    if (more && !__builtin_mul_overflow(more, epoch_samples, &tail) &&
        tail < UINT64_MAX / 2) { /* beyond: nobody lives to see it */
        s->samples += tail;
        s->batches += more * epoch_batches;
    }
}

/* Hands the stream to the engine. */
void mr_loader_start_stream(struct mr_loader *l)
{
    uint64_t slots = MR_MIN((uint64_t)l->n_slots, l->stream.batches), ready = 0;
    l->delivered = l->released = l->base = 0;
    l->here_rows = 0;
    l->waited_ns = 0;
    pthread_mutex_lock(&l->lock);
    while (l->read_ahead && ready < slots && prepare_slot(l, ready) == 0)
        ready++;
    atomic_store(&l->next_ticket, 0);
    atomic_store(&l->slot_limit, ready);
    atomic_store(&l->cancel, false);
    l->ready_count = 0;
    l->ready_seen_ns = mr_now_ns();
    mr_loader_keep_moment(l, l->ready_seen_ns);
    l->generation++;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* The engine is in this epoch already: it was announced, the one before is read to its end, and nothing else was asked
 * for. */
static bool continues_stream(const struct mr_loader *l, uint64_t epoch)
{
    return l->in_epoch && !l->failed && !l->resume_position && epoch == l->epoch + 1 &&
           l->delivered - l->base == l->n_batches && l->delivered < l->stream.batches &&
           l->delivered < atomic_load(&l->slot_limit);
}

int mr_loader_start_epoch(struct mr_loader *l, uint64_t epoch, struct mr_error *err)
{
    if (l->delivered != l->released)
        return mr_error_plain(err, MR_E_USAGE, "%llu batches of the last epoch have not been released",
                              (unsigned long long)(l->delivered - l->released));
    if (continues_stream(l, epoch)) {
        l->base = l->delivered;
        l->epoch = epoch;
        l->first_batch = l->first_position = 0;
        l->n_samples = l->stream.epoch_samples;
        l->n_batches = l->stream.epoch_batches;
        return 0;
    }
    mr_loader_end_stream(l);
    mr_loader_forget_lists(l);
    uint64_t epoch_samples, epoch_batches;
    int rc = mr_loader_load(l, MR_LOADER_FOREVER, err);
    if (!rc)
        rc = mr_order_set_epoch(l->order, epoch, err);
    if (rc)
        return rc;
    count_epoch(l, 0, &epoch_samples, &epoch_batches);
    l->order_epoch = epoch;
    l->first_position = l->resume_position && l->resume_epoch == epoch ? l->resume_position : 0;
    if (l->first_position && (rc = mr_order_seek(l->order, l->first_position, err)))
        return rc;
    l->resume_position = 0;
    l->epoch = epoch;
    l->first_batch = l->first_position / ((uint64_t)l->p.batch_size * l->p.order.world);
    plan_stream(l, epoch, epoch_samples, epoch_batches);
    l->n_samples = l->stream.head_samples;
    l->n_batches = l->stream.head_batches;
    l->failed = false;
    rc = l->is_perfect ? mr_perfect_start(l, err) : mr_loader_seek_tier(l, epoch, l->first_position, err);
    if (rc)
        return rc;
    l->in_epoch = true;
    if (!l->is_perfect)
        mr_loader_start_stream(l);
    return 0;
}

/* K2: rows that differ are joined when all are there. */
static void join_rows(struct mr_loader *l, struct slot *s, uint32_t n)
{
    if (atomic_fetch_sub(&s->to_join, n) != n || atomic_load(&s->failed) || mr_loader_ended(l))
        return;
    int rc = mr_loader_join_fields(l, s);
    if (!rc)
        return;
    pthread_mutex_lock(&l->lock);
    if (rc == -ENOMEM)
        mr_error_set(&s->error, rc, "no memory to join the rows of a batch");
    else
        mr_error_plain(&s->error, rc, "values of differing numbers of axes cannot be padded to one array");
    atomic_store(&s->failed, rc);
    pthread_mutex_unlock(&l->lock);
}

void mr_loader_row_done(struct mr_loader *l, struct slot *s, uint64_t batch)
{
    (void)batch;
    mr_loader_rows_done(l, s, 1);
}

void mr_loader_rows_done(struct mr_loader *l, struct slot *s, uint32_t n)
{
    if (l->n_fields)
        join_rows(l, s, n);
    uint64_t epoch = 0, index = 0;
    uint32_t rows = 0;
    bool tells = l->tells_steps && !mr_loader_ended(l);
    if (tells) { /* another batch's once the last row is counted */
        epoch = s->batch.epoch;
        index = s->batch.index;
        rows = s->n;
    }
    if (atomic_fetch_sub(&s->left, n) != n)
        return;
    pthread_mutex_lock(&l->lock);
    uint64_t now = mr_loader_watch_ready(l, 1);
    pthread_mutex_unlock(&l->lock);
    pthread_cond_signal(
        &l->ready); /* without the lock, which the consumer would run into when it takes over this CPU */
    if (tells)
        mr_loader_tell_batch(l, epoch, index, rows, now);
}

/* A sample that may be left out only marks its row; the first one's error is kept. */
static void skip_row(struct mr_loader *l, struct slot *s, uint32_t row, const struct mr_error *err)
{
    s->bad[row] = 1;
    atomic_fetch_add(&s->bad_rows, 1);
    pthread_mutex_lock(&l->lock);
    if (!l->first_skipped.code)
        l->first_skipped = *err;
    pthread_mutex_unlock(&l->lock);
}

void mr_loader_row_failed(struct mr_loader *l, struct slot *s, uint64_t batch, uint32_t row, int code,
                          const struct mr_error *err)
{
    if (l->p.flags & MR_LOADER_SKIP_BAD && code != -ENOMEM) {
        skip_row(l, s, row, err);
        mr_loader_row_done(l, s, batch);
        return;
    }
    pthread_mutex_lock(&l->lock);
    if (atomic_load(&s->failed) == 0) {
        s->error = *err;
        atomic_store(&s->failed, code);
    }
    pthread_mutex_unlock(&l->lock);
    mr_loader_row_done(l, s, batch);
}

static int interrupted(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped");
}

static int out_of_time(struct mr_error *err)
{
    return mr_error_plain(err, MR_E_TIMEOUT, "the next batch is not complete yet");
}

/* naive: the consumer reads the whole batch now, or goes on where a stop or the end of its time left it. */
static int read_batch_here(struct mr_loader *l, uint64_t deadline_ns, struct mr_error *err)
{
    struct slot *s = slot_of(l, l->delivered);
    if (l->here_rows == 0)
        prepare_slot(l, l->delivered); /* cannot fail: the order is in this epoch */
    while (l->here_rows < s->n) {
        if (atomic_load(&l->stop))
            return interrupted(err);
        mr_loader_read_row(&l->threads[0], l->delivered, l->here_rows, s->ids[l->here_rows]);
        l->here_rows++;
        if (deadline_ns != MR_LOADER_FOREVER && l->here_rows < s->n && mr_now_ns() >= deadline_ns)
            return out_of_time(err);
    }
    return 0;
}

int mr_loader_wait_ready(struct mr_loader *l, struct slot *s, uint64_t deadline_ns, struct mr_error *err)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / MR_NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % MR_NS_PER_S)};
    int late = 0;
    pthread_mutex_lock(&l->lock);
    while (atomic_load(&s->left) > 0 && !atomic_load(&l->stop) && !late) {
        if (deadline_ns == MR_LOADER_FOREVER)
            pthread_cond_wait(&l->ready, &l->lock);
        else
            late = pthread_cond_timedwait(&l->ready, &l->lock, &until);
    }
    bool there = atomic_load(&s->left) == 0;
    if (there)
        mr_loader_watch_ready(l, -1);
    pthread_mutex_unlock(&l->lock);
    if (there)
        return 0;
    return atomic_load(&l->stop) ? interrupted(err) : out_of_time(err);
}

static bool same_shape(const struct mr_shape *a, const struct mr_shape *b)
{
    bool same = a->n_dims == b->n_dims;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

/* A call of memcmp per row costs more than the comparison. */
static bool same_dtype(const struct mr_shape *a, const struct mr_shape *b)
{
    uint64_t x, y;
    _Static_assert(sizeof a->dtype == sizeof x, "a dtype is compared as one word");
    memcpy(&x, a->dtype, sizeof x);
    memcpy(&y, b->dtype, sizeof y);
    return x == y;
}

/* What the rows of a complete batch have in common, from the shapes of all. */
static void join_shapes(struct mr_batch *b)
{
    struct mr_shape *all = &b->shape;
    *all = b->n ? b->shapes[0] : (struct mr_shape){.n_dims = -1};
    for (uint32_t i = 1; i < b->n; i++) {
        if (!same_dtype(&b->shapes[i], &b->shapes[0]))
            *all = (struct mr_shape){.n_dims = -1};
        else if (all->n_dims >= 0 && !same_shape(&b->shapes[i], all))
            all->n_dims = -1;
        if (!all->dtype[0])
            return;
    }
}

static void describe(const struct mr_loader *l, struct slot *s)
{
    s->batch.shapes = NULL;
    s->batch.shape = l->usual;
    if (MR_LIKELY(atomic_load(&s->odd_rows) == 0))
        return;
    for (uint32_t i = 0; i < s->batch.n; i++)
        if (!s->has_shape[i])
            s->shapes[i] = l->usual;
    s->batch.shapes = s->shapes;
    join_shapes(&s->batch);
    if (s->batch.shape.n_dims >= 0)
        s->batch.shapes = NULL;
}

/* Hands the batch out. */
static int deliver(struct mr_loader *l, struct slot *s, struct mr_batch **out)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->batch.n && !l->columns; i++)
        bytes += s->bytes[i];
    if (l->columns)
        bytes = s->batch.n * l->column_bytes;
    if (l->n_fields)
        mr_loader_describe_fields(l, s);
    else
        describe(l, s);
    l->delivered++;
    l->here_rows = 0;
    l->batches++;
    l->samples += s->batch.n;
    l->read_bytes += s->batch.read_bytes;
    l->sample_bytes += bytes;
    *out = &s->batch;
    return 1;
}

/* Every sample of the batch was bad. */
static int fail_empty(struct mr_loader *l, struct slot *s, struct mr_error *err)
{
    struct mr_error first;
    uint64_t skipped = mr_loader_skipped(l, &first);
    l->failed = true;
    s->batch.n = s->n;
    mr_error_plain(err, MR_E_FORMAT, "none of the %u samples of batch %llu can be read; %llu were left out so far",
                   s->n, (unsigned long long)s->batch.index, (unsigned long long)skipped);
    mr_error_context(err, "the first one: %s", first.message);
    return MR_E_FORMAT;
}

static int check_next(const struct mr_loader *l, struct mr_error *err)
{
    if (!l->in_epoch)
        return mr_error_plain(err, MR_E_USAGE, "no epoch has been started");
    if (l->failed)
        return mr_error_plain(err, MR_E_USAGE, "a batch of this epoch failed; start the epoch again");
    if (atomic_load(&l->stop))
        return interrupted(err);
    if (l->delivered - l->base < l->n_batches && l->delivered - l->released >= l->ring)
        return mr_error_plain(err, MR_E_USAGE, "all %u batches are in use; release one first", l->ring);
    return 0;
}

int mr_loader_next_timed(struct mr_loader *l, uint64_t timeout_ns, struct mr_batch **out, struct mr_error *err)
{
    int rc = check_next(l, err);
    if (rc || l->delivered - l->base == l->n_batches) {
        mr_loader_tell_fields(l);
        return rc;
    }
    if (l->prepared)
        return deliver(l, mr_perfect_next(l), out);
    struct slot *s = slot_of(l, l->delivered);
    uint64_t start = mr_now_ns(), deadline = timeout_ns > INT64_MAX - start ? MR_LOADER_FOREVER : start + timeout_ns;
    atomic_store_explicit(&l->wait_since, start, memory_order_relaxed);
    rc = l->read_ahead ? 0 : read_batch_here(l, deadline, err);
    if (!rc)
        rc = mr_loader_wait_ready(l, s, deadline, err);
    uint64_t end = mr_now_ns(), waited = end - start;
    if (l->tells_steps)
        mr_loader_tell_wait(l, s, start, end, rc == 0);
    atomic_store_explicit(&l->wait_since, 0, memory_order_relaxed);
    l->wait_ns += waited;
    l->waited_ns += waited;
    if (rc)
        return rc;
    s->batch.wait_ns = l->waited_ns;
    s->batch.read_bytes = atomic_load(&s->read_bytes);
    l->waited_ns = 0;
    if (atomic_load(&s->failed)) {
        l->failed = true;
        if (err)
            *err = s->error;
        return atomic_load(&s->failed);
    }
    uint32_t bad = atomic_load(&s->bad_rows);
    atomic_fetch_add(&l->skipped, bad); /* of batches that were delivered, not of those read ahead */
    if (bad && !(s->batch.n = mr_loader_leave_out_bad(l, s)))
        return fail_empty(l, s, err);
    return deliver(l, s, out);
}

int mr_loader_next(struct mr_loader *l, struct mr_batch **out, struct mr_error *err)
{
    return mr_loader_next_timed(l, MR_LOADER_FOREVER, out, err);
}

/* Batches may be given back in any order, but a slot is reused only when all before it are back, so that slots follow
 * batches. */
void mr_loader_release(struct mr_loader *l, struct mr_batch *b)
{
    b->n = 0; /* marks it */
    while (l->released < l->delivered && slot_of(l, l->released)->batch.n == 0)
        l->released++;
    mr_loader_raise_limit(l);
}

void mr_loader_raise_limit(struct mr_loader *l)
{
    uint64_t limit = atomic_load(&l->slot_limit), before = limit;
    while (l->read_ahead && !l->is_perfect && limit < l->released + l->n_slots && limit < l->stream.batches &&
           prepare_slot(l, limit) == 0)
        limit++;
    if (limit == before)
        return;
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->slot_limit, limit);
    pthread_mutex_unlock(&l->lock);
    pthread_cond_broadcast(&l->work);
}

/* ---- state and statistics ---- */

void mr_loader_get_state(const struct mr_loader *l, struct mr_loader_state *out)
{
    uint64_t samples = MR_MIN((l->delivered - l->base) * l->p.batch_size, l->n_samples);
    *out = (struct mr_loader_state){.epoch = l->epoch,
                                    .position = l->first_position + samples * l->p.order.world,
                                    .seed = l->p.order.seed,
                                    .samples = l->info.samples,
                                    .order_version = MR_ORDER_VERSION};
}

int mr_loader_resume(struct mr_loader *l, const struct mr_loader_state *s, struct mr_error *err)
{
    if (s->seed != l->p.order.seed || s->samples != l->info.samples || s->order_version != MR_ORDER_VERSION)
        return mr_error_plain(
            err, MR_E_USAGE,
            "this state is of another run: seed %llu, %llu samples, order version %llu; here seed %llu, %llu "
            "samples, order version %d",
            (unsigned long long)s->seed, (unsigned long long)s->samples, (unsigned long long)s->order_version,
            (unsigned long long)l->p.order.seed, (unsigned long long)l->info.samples, MR_ORDER_VERSION);
    l->resume_epoch = s->epoch;
    l->resume_position = s->position;
    return 0;
}

void mr_loader_stop(struct mr_loader *l)
{
    atomic_store(&l->stop, true);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->ready);
    if (l->filler)
        mr_loader_stop(l->filler);
    if (l->waits_tier)
        mr_loader_stop_tier(l);
    pthread_mutex_unlock(&l->lock);
}

void mr_loader_restart(struct mr_loader *l)
{
    atomic_store(&l->stop, false);
    if (l->filler)
        mr_loader_restart(l->filler);
}
