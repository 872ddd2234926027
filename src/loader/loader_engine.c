/* The loader's engine threads: each takes the next sample of the stream (a ticket), waits until its batch has a slot,
 * reads and decodes it into its row. Tickets are given out in order by one atomic counter, in small runs when samples
 * are small, so the counter is not a bottleneck and no batch waits behind a later one (L2).
 *
 * Hot path (mr_loader_read_row): no malloc, no lock except for the last row of a batch. */
#include "loader/loader_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

bool mr_loader_ended(const struct mr_loader *l)
{
    return atomic_load(&l->cancel) || atomic_load(&l->closing);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * MR_NS_PER_S + (uint64_t)t.tv_nsec;
}

static int verify_content(const struct mr_loader *l, uint64_t id, const struct mr_sample *sample, struct mr_error *err)
{
    int rc = mr_gen_plan_compare(l->plan, id, sample, err);
    if (rc)
        mr_error_hint(err, "repair it with 'millrace gen --repair'");
    return rc;
}

/* Preprocessing and the caller's transform follow each other: together they are one span. */
void mr_loader_note_transform(struct engine_thread *t, uint64_t start, uint64_t end)
{
    atomic_fetch_add(&t->transform_ns, end - start);
    if (!t->row.transform_ns)
        t->row.transform_ns = start;
    t->row.transformed_ns = end;
}

static struct mr_shape shape_of(const struct mr_sample *sample)
{
    struct mr_shape x = {.n_dims = (int)sample->n_dims};
    memcpy(x.dtype, sample->dtype, sizeof x.dtype);
    for (unsigned d = 0; d < sample->n_dims; d++)
        x.dims[d] = sample->dims[d];
    return x;
}

/* Is it the shape that all rows had so far? The first row's becomes it. */
static bool is_usual(struct mr_loader *l, const struct mr_sample *sample)
{
    int known = atomic_load_explicit(&l->usual_known, memory_order_acquire);
    if (MR_UNLIKELY(known != 2)) {
        int no = 0;
        if (!atomic_compare_exchange_strong(&l->usual_known, &no, 1))
            return false;
        l->usual = shape_of(sample);
        atomic_store_explicit(&l->usual_known, 2, memory_order_release);
        return true;
    }
    bool same = l->usual.n_dims == (int)sample->n_dims && memcmp(l->usual.dtype, sample->dtype, 8) == 0;
    for (unsigned d = 0; same && d < sample->n_dims; d++)
        same = l->usual.dims[d] == sample->dims[d];
    return same;
}

/* A transform that changed the number of bytes made something of which only the caller knows what it is. */
static void set_shape(struct mr_loader *l, struct slot *s, uint32_t row, const struct mr_sample *sample, uint64_t bytes)
{
    bool kept = bytes == sample->bytes;
    s->has_shape[row] = !kept || !is_usual(l, sample);
    if (MR_LIKELY(!s->has_shape[row]))
        return;
    s->shapes[row] = kept ? shape_of(sample) : (struct mr_shape){.dtype = "u1", .n_dims = 1, .dims = {bytes}};
    atomic_fetch_add_explicit(&s->odd_rows, 1, memory_order_relaxed);
}

int mr_loader_finish_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, void *at, uint64_t cap,
                         const struct mr_sample *sample, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    int64_t bytes = (int64_t)sample->bytes;
    if ((l->p.flags & MR_LOADER_VERIFY_CONTENT) && !t->preprocess) {
        int rc = verify_content(l, id, sample, err);
        if (rc)
            return rc;
    }
    if (l->p.transform) {
        uint64_t start = mr_now_ns();
        bytes = l->p.transform(l->p.transform_user, s->batch.epoch, id, at, cap, sample->bytes);
        mr_loader_note_transform(t, start, mr_now_ns());
        if (bytes < 0)
            return mr_error_plain(err, (int)bytes, "the transform refused sample %llu", (unsigned long long)id);
    }
    s->rows[row] = at;
    s->bytes[row] = (uint64_t)bytes;
    set_shape(l, s, row, sample, (uint64_t)bytes);
    s->labels[row] = sample->label;
    return 0;
}

unsigned mr_loader_read_flags(const struct mr_loader *l)
{
    if (l->p.flags & MR_LOADER_RAW)
        return MR_DATASET_RAW | (l->p.flags & LOADER_RAW_WITH_CHECKSUMS ? MR_DATASET_VERIFY : 0);
    return l->p.flags & MR_LOADER_VERIFY ? MR_DATASET_VERIFY : 0;
}

int mr_loader_choose_part(void *user, struct mr_part *part, struct mr_error *err)
{
    const struct part_of *of = user;
    struct mr_preprocess_plan plan;
    int rc =
        mr_preprocess_plan(of->thread->preprocess, of->epoch, of->id, part->full_height, part->full_width, &plan, err);
    if (rc)
        return rc;
    part->top = plan.need.top;
    part->left = plan.need.left;
    part->height = plan.need.height;
    part->width = plan.need.width;
    part->shrink = mr_preprocess_shrink(of->thread->preprocess, &plan);
    return 0;
}

static int name_file(const struct mr_loader *l, uint64_t id, int rc, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    struct mr_manifest_pos pos;
    if (mr_manifest_locate(mr_dataset_manifest(l->dataset), id, &pos, NULL) == 0 &&
        mr_dataset_file_path(l->dataset, pos.file, path, NULL) == 0)
        mr_error_context(err, "in sample %llu of '%s'", (unsigned long long)id, path);
    return rc;
}

int mr_loader_preprocess_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id,
                             const struct mr_sample *stored, const struct mr_part *part, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    int rc = l->p.flags & MR_LOADER_VERIFY_CONTENT ? verify_content(l, id, stored, err)
                                                   : 0; /* while it is what was stored */
    if (rc)
        return rc;
    struct mr_sample opened = *stored, *sample = &opened;
    struct mr_part opened_part = {0};
    if ((rc = mr_loader_decode_picture(t, s->batch.epoch, id, sample, &opened_part, err)))
        return name_file(l, id, rc, err);
    if (opened_part.full_height)
        part = &opened_part;
    struct mr_sample made = *sample;
    if (part) {
        made.dims[0] = part->full_height;
        made.dims[1] = part->full_width;
    }
    uint64_t start = mr_now_ns(), channels = sample->n_dims == 3 ? sample->dims[2] : 1;
    bool shaped = sample->n_dims == 2 || sample->n_dims == 3; /* else run says what is wrong */
    uint64_t need = shaped ? mr_preprocess_bytes(&l->preprocess, made.dims[0], made.dims[1], channels) : 0;
    void *at = mr_loader_row(l, s, row, need, 0);
    if (!at)
        return mr_loader_no_row(l, id, need, err);
    rc = mr_preprocess_run_part(t->preprocess, s->batch.epoch, id, sample, part, at, need, &made.bytes, err);
    mr_loader_note_transform(t, start, mr_now_ns());
    made.data = at;
    if (rc < 0)
        return name_file(l, id, rc, err);
    mr_preprocess_shape(&l->preprocess, &made);
    return mr_loader_finish_row(t, s, row, id, at, need, &made, err);
}

int mr_loader_no_row(const struct mr_loader *l, uint64_t id, uint64_t need, struct mr_error *err)
{
    if (l->p.row_bytes && need > l->p.row_bytes)
        return mr_error_plain(err, MR_E_LIMIT, "sample %llu has %llu bytes, a row %llu", (unsigned long long)id,
                              (unsigned long long)need, (unsigned long long)l->p.row_bytes);
    return mr_error_set(err, -ENOMEM, "no memory for a sample of %llu bytes", (unsigned long long)need);
}

/* Reads into a row whose size is a guess; asks again with what the sample needs. */
static int read_into_row(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_sample *sample,
                         void **at, uint64_t *cap, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    unsigned flags = mr_loader_read_flags(l);
    uint64_t need = l->row_room;
    if (l->packed) {
        struct mr_manifest_pos pos;
        int rc = mr_manifest_locate(mr_dataset_manifest(l->dataset), id, &pos, err);
        if (rc < 0)
            return rc;
        need = mr_dataset_selected(l->dataset, NULL) ? mr_dataset_stored_bytes(l->dataset, id) : pos.ref.raw.length;
        need += l->row_extra;
    }
    for (int attempt = 0;; attempt++) {
        *at = mr_loader_row(l, s, row, need, 0);
        *cap = need;
        if (!*at)
            return mr_loader_no_row(l, id, need, err);
        sample->bytes = 0;
        int rc = mr_dataset_read(t->reader, id, flags, *at, need, sample, err);
        if (rc != MR_E_LIMIT || sample->bytes <= need || attempt)
            return rc;
        need = sample->bytes;
    }
}

void mr_loader_read_row(struct engine_thread *t, uint64_t batch, uint32_t row, uint64_t id)
{
    struct slot *s = slot_of(t->loader, batch);
    struct mr_sample sample;
    struct mr_error err;
    void *at;
    struct mr_reader_times *times = mr_dataset_reader_times(t->reader);
    uint64_t cap, before = times->read_bytes;
    int rc;
    t->row.transform_ns = t->row.transformed_ns = 0;
    if (t->tier)
        mr_loader_tier_at(t, id);
    if (t->loader->n_fields) {
        rc = mr_loader_read_fields(t, s, row, id, &err);
    } else if (t->preprocess && (rc = mr_loader_leave_row(t, s, row, id, &err))) {
        rc = rc > 0 ? 0 : rc;
    } else if (t->preprocess) {
        struct part_of of = {.thread = t, .epoch = s->batch.epoch, .id = id};
        mr_dataset_reader_choose(t->reader, mr_loader_decodes_parts(t->loader) ? mr_loader_choose_part : NULL, &of);
        rc = mr_dataset_read(t->reader, id, mr_loader_read_flags(t->loader), NULL, 0, &sample, &err);
        mr_dataset_reader_choose(t->reader, NULL, NULL);
        if (!rc)
            rc = mr_loader_preprocess_row(t, s, row, id, &sample, mr_dataset_reader_part(t->reader), &err);
    } else {
        rc = read_into_row(t, s, row, id, &sample, &at, &cap, &err);
        if (!rc)
            rc = mr_loader_finish_row(t, s, row, id, at, cap, &sample, &err);
    }
    uint64_t read = times->read_bytes - before;
    read += t->tier ? mr_loader_tier_done(t, rc == 0) : 0;
    atomic_fetch_add(&s->read_bytes, read);
    if (t->loader->tells_samples) {
        t->row.fetch_ns = times->start_ns;
        t->row.fetched_ns = t->row.decode_ns = times->fetched_ns;
        t->row.decoded_ns = times->decoded_ns;
        bool near = t->loader->loaded || t->tier; /* fetched, and not read from storage for it */
        mr_loader_tell_row(t, s, row, rc ? rc : (int64_t)(near ? times->fetched_bytes : read));
    }
    atomic_store_explicit(&t->read_ns, times->read_ns, memory_order_relaxed);
    atomic_store_explicit(&t->decode_ns, times->decode_ns, memory_order_relaxed);
    if (MR_UNLIKELY(rc) && !(t->tier && mr_loader_ended(t->loader)))
        mr_loader_row_failed(t->loader, s, batch, row, rc, &err);
    else
        mr_loader_row_done(t->loader, s, batch);
}

bool mr_loader_wait_slot(struct engine_thread *t, uint64_t batch)
{
    struct mr_loader *l = t->loader;
    if (MR_LIKELY(batch < atomic_load(&l->slot_limit)))
        return !mr_loader_ended(l);
    uint64_t start = mr_now_ns();
    atomic_store_explicit(&t->idle_since, start, memory_order_relaxed);
    pthread_mutex_lock(&l->lock);
    while (batch >= atomic_load(&l->slot_limit) && !mr_loader_ended(l))
        pthread_cond_wait(&l->work, &l->lock);
    pthread_mutex_unlock(&l->lock);
    atomic_store_explicit(&t->idle_since, 0, memory_order_relaxed);
    atomic_fetch_add(&t->idle_ns, mr_now_ns() - start);
    atomic_store(&t->cpu_ns, thread_cpu_ns());
    return !mr_loader_ended(l);
}

/* Small samples are taken several at a time, but never so many that a batch waits for one thread. */
static uint64_t ticket_run(const struct mr_loader *l)
{
    if (l->columns)
        return mr_loader_column_run(l);
    uint64_t mean = l->info.sample_bytes / l->info.samples;
    uint64_t by_size = mean < 4096 ? 16 : mean < 65536 ? 4 : 1;
    return MR_MAX(1u, MR_MIN(by_size, l->p.batch_size / (2u * l->n_threads)));
}

/* The last row's fetch was the last that this thread did: the next one begins where it ended. */
static void follow_on(struct engine_thread *t)
{
    struct mr_reader_times *x = mr_dataset_reader_times(t->reader);
    bool idled = atomic_load_explicit(&t->idle_ns, memory_order_relaxed) != t->idle_seen_ns;
    t->idle_seen_ns = atomic_load_explicit(&t->idle_ns, memory_order_relaxed);
    if (!idled && !x->decoded_ns && !t->row.transformed_ns && !(t->loader->p.flags & MR_LOADER_VERIFY_CONTENT))
        x->now_ns = x->fetched_ns;
}

/* Samples [first, end) of the stream as runs of rows, each in one batch. */
static bool read_column_run(struct engine_thread *t, uint64_t first, uint64_t end)
{
    struct mr_loader *l = t->loader;
    for (uint64_t k = first; k < end;) {
        uint32_t row;
        uint64_t batch = stream_batch(l, k, &row);
        if (!mr_loader_wait_slot(t, batch))
            return false;
        struct slot *s = slot_of(l, batch);
        uint32_t n = (uint32_t)MR_MIN(end - k, s->n - row);
        t->ticket = k;
        mr_loader_read_columns(t, s, batch, row, n);
        k += n;
    }
    return true;
}

static void run_stream(struct engine_thread *t)
{
    struct mr_loader *l = t->loader;
    uint64_t run = ticket_run(l);
    bool small = run > 1 && !l->tells_samples;
    for (;;) {
        uint64_t first = atomic_fetch_add(&l->next_ticket, run);
        if (first >= l->stream.samples)
            return;
        if (l->columns) {
            if (!read_column_run(t, first, MR_MIN(first + run, l->stream.samples)))
                return;
            continue;
        }
        for (uint64_t k = first; k < MR_MIN(first + run, l->stream.samples); k++) {
            uint32_t row;
            uint64_t batch = stream_batch(l, k, &row);
            if (!mr_loader_wait_slot(t, batch))
                return;
            if (small && k > first) /* a look at the clock is a good part of such a sample's cost */
                follow_on(t);
            t->ticket = k;
            mr_loader_read_row(t, batch, row, slot_of(l, batch)->ids[row]);
        }
    }
}

static void *engine_main(void *arg)
{
    struct engine_thread *t = arg;
    struct mr_loader *l = t->loader;
    uint64_t seen = 0;
    pthread_mutex_lock(&l->lock);
    while (!atomic_load(&l->closing)) {
        if (l->generation == seen || atomic_load(&l->cancel)) { /* between streams the order may be changing (L5) */
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        seen = l->generation;
        l->busy_threads++;
        pthread_mutex_unlock(&l->lock);
        if (t->queue)
            mr_queue_reader_run(t->queue);
        else
            run_stream(t);
        atomic_store(&t->cpu_ns, thread_cpu_ns());
        pthread_mutex_lock(&l->lock);
        if (--l->busy_threads == 0)
            pthread_cond_broadcast(&l->quiet);
    }
    pthread_mutex_unlock(&l->lock);
    if (t->queue)
        mr_queue_reader_leave(t->queue);
    return NULL;
}

int mr_engine_start(struct mr_loader *l, struct mr_error *err)
{
    for (unsigned i = 0; i < l->n_threads; i++) {
        struct engine_thread *t = &l->threads[i];
        if (l->queued) {
            int rc = mr_queue_reader_create(t, MR_MAX(1u, (l->queue_depth + l->n_threads - 1) / l->n_threads),
                                            &t->queue, err);
            if (rc)
                return rc;
        }
        int rc = pthread_create(&t->id, NULL, engine_main, t);
        if (rc)
            return mr_error_set(err, -rc, "cannot start engine thread %u of %u", i + 1, l->n_threads);
        t->started = true;
    }
    return 0;
}

void mr_engine_stop(struct mr_loader *l)
{
    atomic_store(&l->closing, true);
    mr_loader_stop_tier(l);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; l->threads && i < l->n_threads; i++)
        if (l->threads[i].started) {
            pthread_join(l->threads[i].id, NULL);
            l->threads[i].started = false;
        }
}
