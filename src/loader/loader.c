/* The loader's consumer side: opening, epochs, next and release, state, statistics. The engine threads are in
 * loader_engine.c, queued reading in loader_queue.c. See README.md for the invariants (L1 ...). */
#include "loader/loader_internal.h"
#include "base/clock.h"
#include "base/workers.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define ROW_ALIGN 64u
#define BLOCK 4096u /* direct reads take whole blocks; no file system asks for larger ones */
#define HUGE_PAGE (2 * MR_MIB)
#define OPEN_FILES_MAX 1024u
#define QUEUE_ROOM (32 * MR_MIB)
#define PREFAULT_MAX (64 * MR_MIB) /* larger slabs are faulted by their first use, in parallel */

void mr_loader_params_init(struct mr_loader_params *p)
{
    *p = (struct mr_loader_params){.order = {.mode = MR_ORDER_AUTO, .world = 1, .shuffle_each_epoch = true},
                                   .batch_size = 1,
                                   .lookahead = 2,
                                   .policy = "staging"};
}

/* ---- slots ---- */

/* Memory of all batches. Huge pages first, faults second: memory that is there already stays in small pages, and a
 * direct read has to pin each of them and hand each to the device. One mapping that starts on a huge page, because each
 * slab of its own would have small pages at both ends. What a kernel refuses here only costs time. */
static void *map_slabs(uint64_t bytes, bool prefault)
{
    uint64_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : BLOCK, room = bytes + align - BLOCK;
    uint8_t *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint64_t head = (align - (uintptr_t)p % align) % align, tail = room - head - bytes;
    if (head)
        munmap(p, head);
    if (tail)
        munmap(p + head + bytes, tail);
    p += head;
    madvise(p, bytes, MADV_HUGEPAGE);
    if (prefault)
        madvise(p, bytes, MADV_POPULATE_WRITE);
    return p;
}

static int alloc_slot(struct mr_loader *l, struct slot *s, uint8_t *slab, uint64_t slab_bytes)
{
    uint32_t n = l->p.batch_size;
    s->slab_bytes = slab_bytes;
    s->slab = slab;
    s->rows = calloc(n, sizeof(*s->rows));
    s->ids = calloc(n, sizeof(*s->ids));
    s->bytes = calloc(n, sizeof(*s->bytes));
    s->labels = calloc(n, sizeof(*s->labels));
    s->overflow = calloc(n, sizeof(*s->overflow));
    return s->rows && s->ids && s->bytes && s->labels && s->overflow ? 0 : -ENOMEM;
}

static void forget_overflow(struct mr_loader *l, struct slot *s)
{
    for (uint32_t i = 0; s->overflow && i < l->p.batch_size; i++) {
        free(s->overflow[i]);
        s->overflow[i] = NULL;
    }
}

static void free_slot(struct mr_loader *l, struct slot *s)
{
    forget_overflow(l, s);
    free(s->rows);
    free(s->ids);
    free(s->bytes);
    free(s->labels);
    free(s->overflow);
}

void *mr_loader_row(struct mr_loader *l, struct slot *s, uint32_t row, uint64_t need, uint64_t slack)
{
    if (l->p.row_bytes && need > l->p.row_bytes)
        return NULL;
    uint64_t room = MR_ALIGN_UP(MR_MAX(need + slack, 1u), (uint64_t)l->row_align);
    if (!l->packed && room <= l->row_bytes)
        return s->slab + (uint64_t)row * l->row_bytes;
    if (l->packed) {
        uint64_t at = atomic_fetch_add(&s->slab_used, room);
        if (at + room <= s->slab_bytes)
            return s->slab + at;
    }
    free(s->overflow[row]);
    s->overflow[row] = aligned_alloc(l->row_align, room);
    return s->overflow[row];
}

/* What decoding makes of a sample, where the manifest knows one shape for all; 0: it does not. */
static uint64_t known_bytes(const struct mr_loader *l)
{
    const struct mr_dataset_info *in = &l->info;
    uint64_t bytes = strtoull(in->dtype + (in->dtype[0] != '\0'), NULL, 10); /* u1, f4, c16 */
    for (unsigned i = 0; i < in->n_dims; i++)
        if (__builtin_mul_overflow(bytes, in->dims[i], &bytes))
            return 0;
    if (!in->n_dims || !bytes)
        return 0;
    if (l->p.preprocess && (in->n_dims == 2 || in->n_dims == 3))
        return mr_preprocess_bytes(&l->preprocess, in->dims[0], in->dims[1], in->n_dims == 3 ? in->dims[2] : 1);
    return bytes;
}

/* Row sizes: a stride where all samples are equally long or the caller fixed it; packed where sizes differ. Where the
 * manifest does not say what decoding makes of a sample, a few are read. */
static int probe_decoded(struct mr_loader *l, uint64_t *bytes, struct mr_error *err)
{
    uint64_t largest = 0, n = l->info.samples;
    if ((*bytes = known_bytes(l)))
        return 0;
    for (unsigned i = 0; i < 8; i++) {
        struct mr_sample s;
        int rc = mr_dataset_read(l->threads[0].reader, n * i / 8, 0, NULL, 0, &s, err);
        if (rc < 0)
            return rc;
        uint64_t need = s.bytes;
        if (l->p.preprocess && (s.n_dims == 2 || s.n_dims == 3)) /* other shapes fail when they are read */
            need = mr_preprocess_bytes(&l->preprocess, s.dims[0], s.dims[1], s.n_dims == 3 ? s.dims[2] : 1);
        largest = MR_MAX(largest, need);
    }
    *bytes = largest;
    return 0;
}

static int choose_rows(struct mr_loader *l, uint64_t *slab_bytes, struct mr_error *err)
{
    struct mr_read_cost cost;
    int rc = mr_dataset_file_cost(l->dataset, 0, &cost, err);
    if (rc < 0)
        return rc;
    const struct mr_dataset_info *in = &l->info;
    uint64_t row = l->p.row_bytes;
    bool stored =
        ((cost.verbatim && cost.access == MR_ACCESS_RANGE) || (l->p.flags & MR_LOADER_RAW)) && !l->p.preprocess;
    bool blocks = stored && l->queued && (l->p.flags & MR_LOADER_DIRECT); /* read in place, with the blocks around it */
    uint64_t slack = blocks ? BLOCK : 0;
    l->in_place = blocks && (l->p.flags & MR_LOADER_IN_PLACE);
    l->row_align = blocks ? BLOCK : ROW_ALIGN;
    if (!row && stored && in->sample_min_bytes != in->sample_max_bytes) {
        l->packed = true;
        uint64_t mean = in->sample_bytes / in->samples + slack + l->row_align;
        /* Room for an ordinary batch and one long sample; more goes into buffers of its own. */
        *slab_bytes =
            MR_ALIGN_UP(mean * l->p.batch_size + mean * l->p.batch_size / 8 + in->sample_max_bytes + slack, BLOCK);
        return 0;
    }
    if (!row && stored)
        row = in->sample_max_bytes;
    else if (!row && (rc = probe_decoded(l, &row, err)) < 0)
        return rc;
    l->row_bytes = MR_ALIGN_UP(MR_MAX(row + slack, 1u), (uint64_t)l->row_align);
    l->row_room = l->p.row_bytes ? l->p.row_bytes : l->row_bytes;
    *slab_bytes = MR_ALIGN_UP(l->row_bytes * l->p.batch_size, BLOCK);
    return 0;
}

/* A queue stays full only if its requests find rows while the consumer holds a batch and the next one waits for its
 * last rows. Where batches are small, the look-ahead has too few of them; what is lacking is added as long as it is
 * little memory. */
static unsigned slots_for_queue(const struct mr_loader *l, uint64_t slab_bytes)
{
    uint64_t batch = l->p.batch_size, want = (l->queue_depth + batch - 1) / batch + 2;
    if (!l->queued || want <= l->n_slots)
        return 0;
    uint64_t room = QUEUE_ROOM, used = slab_bytes * l->n_slots;
    if (l->p.memory_bytes)
        room = MR_MIN(room, l->p.memory_bytes - MR_MIN(used, l->p.memory_bytes));
    return (unsigned)MR_MIN(want - l->n_slots, room / slab_bytes);
}

static int alloc_slots(struct mr_loader *l, struct mr_error *err)
{
    uint64_t slab_bytes;
    int rc = choose_rows(l, &slab_bytes, err);
    if (rc < 0)
        return rc;
    l->n_slots = l->read_ahead ? l->p.lookahead + 1 : 1;
    l->n_slots += slots_for_queue(l, slab_bytes);
    if (l->p.memory_bytes && slab_bytes * l->n_slots > l->p.memory_bytes) {
        mr_error_plain(err, MR_E_CONFIG, "%u batches of %u rows need %llu bytes of memory, the limit is %llu",
                       l->n_slots, l->p.batch_size, (unsigned long long)(slab_bytes * l->n_slots),
                       (unsigned long long)l->p.memory_bytes);
        return mr_error_hint(err, "read fewer batches ahead, or allow more memory"), MR_E_CONFIG;
    }
    l->slots = calloc(l->n_slots, sizeof(*l->slots));
    if (!l->slots)
        return mr_error_set(err, -ENOMEM, "cannot make %u batches", l->n_slots);
    l->slabs_bytes = slab_bytes * l->n_slots;
    uint64_t rounded = MR_ALIGN_UP(l->slabs_bytes, HUGE_PAGE);
    if (l->slabs_bytes >= 8 * HUGE_PAGE && (!l->p.memory_bytes || rounded <= l->p.memory_bytes))
        l->slabs_bytes = rounded; /* the last pages are huge, too */
    l->slabs = map_slabs(l->slabs_bytes, slab_bytes <= PREFAULT_MAX);
    bool failed = !l->slabs;
    for (unsigned i = 0; i < l->n_slots && !failed; i++)
        failed = alloc_slot(l, &l->slots[i], l->slabs + i * slab_bytes, slab_bytes) < 0;
    if (failed)
        return mr_error_set(err, -ENOMEM, "cannot get %u batches of %llu bytes", l->n_slots,
                            (unsigned long long)slab_bytes);
    return 0;
}

/* ---- open and close ---- */

static int check_params(const struct mr_loader_params *p, struct mr_error *err)
{
    if (!p->dataset || !*p->dataset)
        return mr_error_plain(err, MR_E_USAGE, "the loader needs a data set");
    if (p->batch_size == 0)
        return mr_error_plain(err, MR_E_USAGE, "the batch size must be at least 1");
    if (p->flags & MR_LOADER_RAW && (p->preprocess || (p->flags & MR_LOADER_VERIFY_CONTENT)))
        return mr_error_plain(err, MR_E_USAGE,
                              "stored bytes can neither be preprocessed nor compared with generated content");
    return 0;
}

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

static int choose_policy(struct mr_loader *l, struct mr_error *err)
{
    enum mr_policy_id id;
    int rc = mr_policy_parse(l->p.policy ? l->p.policy : "staging", &id, err);
    if (rc)
        return rc;
    const struct mr_policy_ops *ops = mr_policy_get_ops(id);
    if (id == MR_POLICY_PERFECT || ops->from_classes || ops->from_peers || ops->next_fill) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "policy '%s' cannot run for real yet", l->p.policy);
        return mr_error_hint(err, "'naive' and 'staging' can; 'millrace sim' simulates the others"), MR_E_UNSUPPORTED;
    }
    l->read_ahead = ops->prefetches;
    l->queue_depth = l->p.queue_depth ? l->p.queue_depth : 32;
    /* A queue pays where reads are cold: many requests in flight from few threads. */
    l->queued = l->read_ahead &&
                (l->p.io == MR_LOADER_IO_AUTO ? (l->p.flags & MR_LOADER_DIRECT) != 0 : l->p.io == MR_LOADER_IO_QUEUE);
    return 0;
}

static int open_order(struct mr_loader *l, struct mr_error *err)
{
    struct mr_order_params o = l->p.order;
    o.samples = l->info.samples;
    if (o.mode == MR_ORDER_FILE && !o.file_first && !o.samples_per_file)
        o.samples_per_file = l->info.samples_per_file ? l->info.samples_per_file : 1;
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
        int rc = mr_dataset_reader_create(l->dataset, &t->reader, err);
        if (rc)
            return rc;
        if (l->p.preprocess && (rc = mr_preprocess_create(&l->preprocess, &t->preprocess, err)))
            return rc;
        mr_dataset_reader_tune(t->reader, l->p.transfer_bytes, l->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0,
                               l->queued ? 0 : mr_loader_files_per_thread(l));
    }
    return 0;
}

/* What this rank reads in the epoch, or the rest of it, that the order is in. */
static void count_epoch(const struct mr_loader *l, uint64_t *samples, uint64_t *batches)
{
    uint64_t left = mr_order_rank_len(l->order);
    if (l->p.max_samples)
        left = MR_MIN(left, l->p.max_samples);
    *samples = l->p.drop_last_batch ? left / l->p.batch_size * l->p.batch_size : left;
    *batches = (*samples + l->p.batch_size - 1) / l->p.batch_size;
}

static int open_all(struct mr_loader *l, struct mr_error *err)
{
    int rc = choose_policy(l, err);
    if (!rc)
        rc = mr_dataset_open(l->dataset_path, l->store_spec, &l->dataset, err);
    if (rc)
        return rc;
    mr_dataset_get_info(l->dataset, &l->info);
    if (l->info.samples == 0)
        return mr_error_plain(err, MR_E_FORMAT, "data set '%s' has no samples", l->dataset_path);
    if ((rc = open_plan(l, err)) || (rc = open_order(l, err)) || (rc = open_threads(l, err)) ||
        (rc = alloc_slots(l, err)))
        return rc;
    count_epoch(l, &l->n_samples, &l->n_batches);
    return l->read_ahead ? mr_engine_start(l, err) : 0;
}

int mr_loader_open(const struct mr_loader_params *p, struct mr_loader **out, struct mr_error *err)
{
    int rc = check_params(p, err);
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
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->quiet, NULL);
    l->dataset_path = strdup(p->dataset);
    l->store_spec = p->store && *p->store ? strdup(p->store) : NULL;
    rc = l->dataset_path ? open_all(l, err) : mr_error_set(err, -ENOMEM, "cannot make a loader");
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
    mr_engine_stop(l);
    for (unsigned i = 0; l->threads && i < l->n_threads; i++) {
        mr_queue_reader_free(l->threads[i].queue);
        mr_dataset_reader_free(l->threads[i].reader);
        mr_preprocess_free(l->threads[i].preprocess);
    }
    for (unsigned i = 0; l->slots && i < l->n_slots; i++)
        free_slot(l, &l->slots[i]);
    if (l->slabs)
        munmap(l->slabs, l->slabs_bytes);
    free(l->slots);
    free(l->threads);
    mr_order_free(l->order);
    mr_dataset_close(l->dataset);
    free(l->plan);
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
static void end_stream(struct mr_loader *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->cancel, true);
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
    if (epoch != l->order_epoch) {
        int rc = mr_order_set_epoch(l->order, epoch, NULL);
        if (rc < 0)
            return rc;
        l->order_epoch = epoch;
    }
    s->n =
        (uint32_t)MR_MIN((uint64_t)l->p.batch_size, (head ? l->stream.head_samples : l->stream.epoch_samples) - first);
    forget_overflow(l, s);
    s->batch = (struct mr_batch){.epoch = epoch,
                                 .index = (head ? l->first_batch : 0) + index,
                                 .n = s->n,
                                 .rows = s->rows,
                                 .data = l->packed || l->in_place ? NULL : s->slab,
                                 .row_bytes = l->row_bytes,
                                 .ids = s->ids,
                                 .labels = s->labels,
                                 .bytes = s->bytes};
    atomic_store(&s->slab_used, 0);
    atomic_store(&s->read_bytes, 0);
    atomic_store(&s->failed, 0);
    mr_order_get(l->order, first, s->ids, s->n);
    atomic_store(&s->left, s->n);
    return 0;
}

/* The stream that starts with the order's epoch and position. */
static void plan_stream(struct mr_loader *l, uint64_t epoch, uint64_t epoch_samples, uint64_t epoch_batches)
{
    struct stream *s = &l->stream;
    uint64_t more = l->read_ahead && epoch < l->p.last_epoch && epoch_batches ? l->p.last_epoch - epoch : 0, tail;
    *s = (struct stream){.epoch = epoch, .epoch_samples = epoch_samples, .epoch_batches = epoch_batches};
    count_epoch(l, &s->head_samples, &s->head_batches);
    s->samples = s->head_samples;
    s->batches = s->head_batches;
    if (more && !__builtin_mul_overflow(more, epoch_samples, &tail) &&
        tail < UINT64_MAX / 2) { /* beyond: nobody lives to see it */
        s->samples += tail;
        s->batches += more * epoch_batches;
    }
}

/* Hands the stream to the engine. */
static void start_stream(struct mr_loader *l)
{
    uint64_t slots = MR_MIN((uint64_t)l->n_slots, l->stream.batches), ready = 0;
    l->delivered = l->released = l->base = 0;
    pthread_mutex_lock(&l->lock);
    while (l->read_ahead && ready < slots && prepare_slot(l, ready) == 0)
        ready++;
    atomic_store(&l->next_ticket, 0);
    atomic_store(&l->slot_limit, ready);
    atomic_store(&l->cancel, false);
    l->ready_count = 0;
    l->ready_seen_ns = mr_now_ns();
    l->generation++;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* The engine is in this epoch already: it was announced, the one before is read to its end, and nothing else was asked
 * for. */
static bool goes_on(const struct mr_loader *l, uint64_t epoch)
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
    if (goes_on(l, epoch)) {
        l->base = l->delivered;
        l->epoch = epoch;
        l->first_batch = l->first_position = 0;
        l->n_samples = l->stream.epoch_samples;
        l->n_batches = l->stream.epoch_batches;
        return 0;
    }
    end_stream(l);
    uint64_t epoch_samples, epoch_batches;
    int rc = mr_order_set_epoch(l->order, epoch, err);
    if (rc)
        return rc;
    count_epoch(l, &epoch_samples, &epoch_batches);
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
    l->in_epoch = true;
    start_stream(l);
    return 0;
}

/* Integrates the number of ready batches over time; under the lock. */
static void watch_ready(struct mr_loader *l, int change)
{
    uint64_t now = mr_now_ns();
    double dt = (double)(now - l->ready_seen_ns);
    if (l->ready_count > 0)
        l->ready_area += dt * (double)l->ready_count;
    else
        l->empty_ns += dt; /* below 0 while the consumer has a batch whose last thread has not come here yet */
    l->watched_ns += dt;
    l->ready_seen_ns = now;
    l->ready_count += change;
}

void mr_loader_row_done(struct mr_loader *l, struct slot *s, uint64_t batch)
{
    (void)batch;
    if (atomic_fetch_sub(&s->left, 1) != 1)
        return;
    pthread_mutex_lock(&l->lock);
    watch_ready(l, 1);
    pthread_mutex_unlock(&l->lock);
    pthread_cond_signal(
        &l->ready); /* without the lock, which the consumer would run into when it takes over this CPU */
}

void mr_loader_row_failed(struct mr_loader *l, struct slot *s, uint64_t batch, int code, const struct mr_error *err)
{
    pthread_mutex_lock(&l->lock);
    if (atomic_load(&s->failed) == 0) {
        s->error = *err;
        atomic_store(&s->failed, code);
    }
    pthread_mutex_unlock(&l->lock);
    mr_loader_row_done(l, s, batch);
}

/* naive: the consumer reads the whole batch now. */
static void read_batch_here(struct mr_loader *l, uint64_t batch)
{
    struct slot *s = slot_of(l, batch);
    prepare_slot(l, batch); /* cannot fail: the order is in this epoch */
    for (uint32_t row = 0; row < s->batch.n && !atomic_load(&l->stop); row++)
        mr_loader_read_row(&l->threads[0], batch, row, s->ids[row]);
}

static int wait_ready(struct mr_loader *l, struct slot *s, struct mr_error *err)
{
    pthread_mutex_lock(&l->lock);
    while (atomic_load(&s->left) > 0 && !atomic_load(&l->stop))
        pthread_cond_wait(&l->ready, &l->lock);
    bool stopped = atomic_load(&s->left) > 0;
    if (!stopped)
        watch_ready(l, -1);
    pthread_mutex_unlock(&l->lock);
    return stopped ? mr_error_plain(err, MR_E_INTERRUPTED, "the loader was stopped") : 0;
}

int mr_loader_next(struct mr_loader *l, struct mr_batch **out, struct mr_error *err)
{
    if (!l->in_epoch)
        return mr_error_plain(err, MR_E_USAGE, "no epoch has been started");
    if (l->failed)
        return mr_error_plain(err, MR_E_USAGE, "a batch of this epoch failed; start the epoch again");
    if (l->delivered - l->base == l->n_batches)
        return 0;
    struct slot *s = slot_of(l, l->delivered);
    if (l->delivered - l->released >= l->n_slots)
        return mr_error_plain(err, MR_E_USAGE, "all %u batches are in use; release one first", l->n_slots);
    uint64_t start = mr_now_ns();
    if (!l->read_ahead)
        read_batch_here(l, l->delivered);
    int rc = wait_ready(l, s, err);
    if (rc)
        return rc;
    s->batch.wait_ns = mr_now_ns() - start;
    s->batch.read_bytes = atomic_load(&s->read_bytes);
    l->wait_ns += s->batch.wait_ns;
    if (atomic_load(&s->failed)) {
        l->failed = true;
        if (err)
            *err = s->error;
        return atomic_load(&s->failed);
    }
    l->delivered++;
    l->batches++;
    l->samples += s->batch.n;
    l->read_bytes += s->batch.read_bytes;
    for (uint32_t i = 0; i < s->batch.n; i++)
        l->sample_bytes += s->bytes[i];
    *out = &s->batch;
    return 1;
}

/* Batches may be given back in any order, but a slot is reused only when all before it are back, so that slots follow
 * batches. */
void mr_loader_release(struct mr_loader *l, struct mr_batch *b)
{
    uint64_t limit = atomic_load(&l->slot_limit), before = limit;
    b->n = 0; /* marks it */
    while (l->released < l->delivered && slot_of(l, l->released)->batch.n == 0) {
        l->released++;
        if (l->read_ahead && limit == l->released + l->n_slots - 1 && limit < l->stream.batches &&
            prepare_slot(l, limit) == 0)
            limit++;
    }
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

static const char *find_limiter(const struct mr_loader_stats *s)
{
    double work = (double)(s->read_ns + s->decode_ns + s->transform_ns);
    if (work + (double)s->idle_ns <= 0 || (double)s->idle_ns > work)
        return "consumer";
    return s->read_ns >= s->decode_ns + s->transform_ns ? "storage" : "decode";
}

void mr_loader_get_stats(struct mr_loader *l, struct mr_loader_stats *out)
{
    struct mr_loader_stats s = {.batches = l->batches,
                                .samples = l->samples,
                                .sample_bytes = l->sample_bytes,
                                .read_bytes = l->read_bytes,
                                .wait_ns = l->wait_ns,
                                .threads = l->n_threads};
    for (unsigned i = 0; i < l->n_threads; i++) {
        s.read_ns += atomic_load(&l->threads[i].read_ns);
        s.decode_ns += atomic_load(&l->threads[i].decode_ns);
        s.transform_ns += atomic_load(&l->threads[i].transform_ns);
        s.idle_ns += atomic_load(&l->threads[i].idle_ns);
        s.cpu_ns += atomic_load(&l->threads[i].cpu_ns);
    }
    for (unsigned i = 0; i < l->n_slots; i++)
        s.slab_bytes += l->slots[i].slab_bytes;
    pthread_mutex_lock(&l->lock);
    s.ready_mean = l->watched_ns > 0 ? l->ready_area / l->watched_ns : 0;
    s.empty_ratio = l->watched_ns > 0 ? l->empty_ns / l->watched_ns : 0;
    pthread_mutex_unlock(&l->lock);
    s.limiter = find_limiter(&s);
    *out = s;
}

void mr_loader_stop(struct mr_loader *l)
{
    atomic_store(&l->stop, true);
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->ready);
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}
