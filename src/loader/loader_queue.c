/* Queued reading: one thread keeps `depth` samples in flight through the store's queue and decodes what comes back. This is what
 * cold storage needs: queue depth, not threads.
 *
 *   take ticket ──> plan ──> submit ┐
 *        ^                          ├── store queue (io_uring or worker threads)
 *        └── decode into row <── reap┘
 *
 * A sample of one range is read in one request, aligned so that direct I/O needs no second copy in the store; a sample of
 * several ranges, or of a file that must be unpacked as a whole, is read with direct calls in between.
 *
 * Invariants: Q1 a request's buffer and path stay put while it is in flight. Q2 an object is closed only when no request uses it.
 * Q3 on return nothing is in flight. */
#include "loader/loader_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 4096u
#define OBJECTS 64u
#define NO_FILE UINT64_MAX

struct cached_object {
    struct mr_object *object;
    uint64_t file, used;
    unsigned in_flight;
};

struct request {
    struct mr_io io;
    uint64_t batch, id;
    uint32_t row;
    struct mr_manifest_pos pos;
    struct mr_extent extent;
    uint8_t *buf;
    size_t cap;
    struct cached_object *object; /* or NULL: READ_PATH */
    char path[2 * MR_NAME_MAX];
    struct request *next_free;
};

struct queue_reader {
    struct engine_thread *thread;
    struct mr_store *store;
    struct mr_ioq *ioq;
    struct mr_decoder *decoder;
    unsigned depth, in_flight, n_pending;
    struct mr_io **pending; /* prepared, not submitted yet: one submission for several requests */
    struct request *requests, *free_list;
    struct mr_io **batch_ios;
    struct cached_object objects[OBJECTS];
    uint64_t tick, read_ns, decode_ns;
    unsigned plan_flags, open_flags;
};

int mr_queue_reader_create(struct engine_thread *t, unsigned depth, struct queue_reader **out, struct mr_error *err)
{
    struct queue_reader *q = calloc(1, sizeof(*q));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot make a queue");
    q->thread = t;
    q->depth = depth;
    q->store = mr_dataset_store(t->loader->dataset);
    q->open_flags = t->loader->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0;
    q->plan_flags = t->loader->p.flags & MR_LOADER_VERIFY ? MR_READ_VERIFY : 0;
    q->decoder = mr_decoder_create();
    q->requests = calloc(depth, sizeof(*q->requests));
    q->batch_ios = calloc(depth, sizeof(*q->batch_ios));
    q->pending = calloc(depth, sizeof(*q->pending));
    if (!q->decoder || !q->requests || !q->batch_ios || !q->pending) {
        mr_queue_reader_free(q);
        return mr_error_set(err, -ENOMEM, "cannot make a queue of %u requests", depth);
    }
    for (unsigned i = 0; i < depth; i++) {
        q->requests[i].next_free = q->free_list;
        q->free_list = &q->requests[i];
    }
    *out = q;
    return 0;
}

void mr_queue_reader_free(struct queue_reader *q)
{
    if (!q)
        return;
    for (unsigned i = 0; i < OBJECTS; i++)
        mr_object_close(q->objects[i].object, NULL);
    for (unsigned i = 0; q->requests && i < q->depth; i++)
        free(q->requests[i].buf);
    mr_decoder_free(q->decoder);
    free(q->requests);
    free(q->batch_ios);
    free(q->pending);
    free(q);
}

/* An open object for a file of several samples; NULL with *rc = 0 when all are in use and the caller must reap first. */
static struct cached_object *get_object(struct queue_reader *q, uint64_t file, int *rc, struct mr_error *err)
{
    struct cached_object *oldest = NULL;
    *rc = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        struct cached_object *o = &q->objects[i];
        if (o->object && o->file == file) {
            o->used = ++q->tick;
            return o;
        }
        if (o->in_flight == 0 && (!oldest || o->used < oldest->used))
            oldest = o;
    }
    if (!oldest)
        return NULL;
    mr_object_close(oldest->object, NULL); /* read only: nothing can be lost */
    *oldest = (struct cached_object){.file = NO_FILE};
    char path[2 * MR_NAME_MAX];
    *rc = mr_dataset_file_path(q->thread->loader->dataset, file, path, err);
    if (*rc >= 0)
        *rc = mr_object_open(q->store, path, MR_OBJ_READ | q->open_flags, &oldest->object, err);
    if (*rc < 0)
        return NULL;
    *rc = 0;
    oldest->file = file;
    oldest->used = ++q->tick;
    return oldest;
}

static int grow(struct request *r, uint64_t bytes, struct mr_error *err)
{
    if (bytes <= r->cap)
        return 0;
    uint64_t cap = MR_ALIGN_UP(bytes + bytes / 8, (uint64_t)ALIGN);
    free(r->buf);
    r->cap = 0;
    r->buf = aligned_alloc(ALIGN, cap);
    if (!r->buf)
        return mr_error_set(err, -ENOMEM, "cannot get a buffer of %llu bytes", (unsigned long long)cap);
    r->cap = cap;
    return 0;
}

enum prepared { PREPARED, PREPARED_DIRECT, PREPARED_LATER }; /* queued; read with direct calls; reap first */

/* Plans the request's sample; negative on error. */
static int prepare(struct queue_reader *q, struct request *r, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    const struct mr_manifest *m = mr_dataset_manifest(l->dataset);
    struct mr_layout layout;
    struct mr_read_cost cost;
    unsigned n = 0;
    int rc = mr_manifest_locate(m, r->id, &r->pos, err);
    if (rc < 0 || (rc = mr_dataset_file_cost(l->dataset, r->pos.file, &cost, err)) < 0)
        return rc;
    if (cost.access != MR_ACCESS_RANGE || l->p.transfer_bytes || (l->p.flags & MR_LOADER_RAW))
        return PREPARED_DIRECT;
    mr_manifest_file_layout(m, r->pos.file, &layout);
    rc = mr_dataset_format(l->dataset)->plan(&layout, &r->pos.ref, q->plan_flags, &r->extent, 1, &n, err);
    if (rc == MR_E_LIMIT || n != 1 || r->extent.length == 0)
        return PREPARED_DIRECT;
    if (rc < 0)
        return rc;
    uint64_t from = r->extent.offset / ALIGN * ALIGN, to = MR_ALIGN_UP(r->extent.offset + r->extent.length, (uint64_t)ALIGN);
    if ((rc = grow(r, to - from, err)) < 0)
        return rc;
    uint64_t first, in_file;
    mr_manifest_file_samples(m, r->pos.file, &first, &in_file);
    r->object = NULL;
    r->io = (struct mr_io){.op = MR_IO_READ_PATH, .flags = q->open_flags, .buf = r->buf, .len = to - from, .offset = from, .user = r};
    if (in_file == 1) {
        if ((rc = mr_dataset_file_path(l->dataset, r->pos.file, r->path, err)) < 0)
            return rc;
        r->io.path = r->path;
        return PREPARED;
    }
    r->object = get_object(q, r->pos.file, &rc, err);
    if (!r->object)
        return rc < 0 ? rc : PREPARED_LATER;
    r->object->in_flight++;
    r->io.op = MR_IO_READ;
    r->io.object = r->object->object;
    return PREPARED;
}

static int decode(struct queue_reader *q, struct request *r, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    struct slot *s = slot_of(l, r->batch);
    uint64_t skip = r->extent.offset - r->io.offset;
    if (r->io.result < 0)
        return mr_io_error(&r->io, err);
    if ((uint64_t)r->io.result < skip + r->extent.length)
        return mr_error_plain(err, MR_E_FORMAT, "unexpected end of file (want %llu bytes at %llu, have %lld)",
                              (unsigned long long)r->extent.length, (unsigned long long)r->extent.offset,
                              (long long)r->io.result - (long long)skip);
    struct mr_layout layout;
    mr_manifest_file_layout(mr_dataset_manifest(l->dataset), r->pos.file, &layout);
    uint64_t need = l->packed ? r->pos.ref.raw.length : l->row_bytes;
    for (int attempt = 0;; attempt++) {
        void *at = mr_loader_row(l, s, r->row, need);
        if (!at)
            return mr_error_plain(err, MR_E_LIMIT, "no row for a sample of %llu bytes", (unsigned long long)need);
        struct mr_sample_out out = {.dst = at, .dst_cap = need, .label = r->pos.ref.label};
        int rc = mr_dataset_format(l->dataset)->decode(q->decoder, &layout, &r->pos.ref, q->plan_flags, r->buf + skip,
                                                       r->extent.length, &out, err);
        if (((rc == MR_E_LIMIT) || (rc >= 0 && out.bytes > need)) && out.bytes > need && attempt == 0) {
            need = out.bytes;
            continue;
        }
        if (rc < 0)
            return rc;
        if (out.data != at)
            memcpy(at, out.data, out.bytes);
        int64_t label = r->pos.ref.label != MR_LABEL_NONE ? r->pos.ref.label : out.label;
        struct mr_sample sample = {.data = at, .bytes = out.bytes, .label = label};
        return mr_loader_finish_row(q->thread, s, r->row, r->id, at, need, &sample, err);
    }
}

static void complete(struct queue_reader *q, struct request *r)
{
    struct mr_loader *l = q->thread->loader;
    struct slot *s = slot_of(l, r->batch);
    struct mr_error err;
    if (r->object)
        r->object->in_flight--;
    int rc = 0;
    if (!mr_loader_ended(l)) {
        uint64_t start = mr_now_ns();
        rc = decode(q, r, &err);
        q->decode_ns += mr_now_ns() - start;
        atomic_store_explicit(&q->thread->decode_ns, q->decode_ns, memory_order_relaxed);
        if (r->io.result > 0)
            atomic_fetch_add(&s->read_bytes, (uint64_t)r->io.result);
    }
    if (rc < 0) {
        mr_error_context(&err, "in sample %llu", (unsigned long long)r->id);
        mr_loader_row_failed(l, s, r->batch, rc, &err);
    } else {
        mr_loader_row_done(l, s, r->batch);
    }
    r->next_free = q->free_list;
    q->free_list = r;
}

/* Waits for at least one completion when something is in flight. */
static void reap(struct queue_reader *q)
{
    struct mr_error err;
    uint64_t start = mr_now_ns();
    int n = q->in_flight ? q->store->ops->ioq_reap(q->ioq, 1, q->depth, q->batch_ios, &err) : 0;
    q->read_ns += mr_now_ns() - start;
    atomic_store_explicit(&q->thread->read_ns, q->read_ns, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        q->in_flight--;
        complete(q, q->batch_ios[i]->user);
    }
}

struct ticket {
    bool have;
    uint64_t k;
};

static bool take_ticket(struct queue_reader *q, struct ticket *t)
{
    if (!t->have) {
        t->k = atomic_fetch_add(&q->thread->loader->next_ticket, 1);
        t->have = t->k < q->thread->loader->n_samples;
    }
    return t->have;
}

/* Starts one sample; false when something must be reaped first. */
static bool start_one(struct queue_reader *q, struct ticket *t)
{
    struct mr_loader *l = q->thread->loader;
    uint64_t batch = t->k / l->p.batch_size;
    if (batch >= atomic_load(&l->slot_limit) && (q->in_flight || q->n_pending))
        return false;
    if (!mr_loader_wait_slot(q->thread, batch))
        return false;
    struct slot *s = slot_of(l, batch);
    struct request *r = q->free_list;
    struct mr_error err;
    r->batch = batch;
    r->row = (uint32_t)(t->k % l->p.batch_size);
    r->id = s->ids[r->row];
    int rc = prepare(q, r, &err);
    if (rc == PREPARED_LATER)
        return false;
    t->have = false;
    if (rc == PREPARED_DIRECT) {
        mr_loader_read_row(q->thread, r->batch, r->row, r->id);
        return true;
    }
    if (rc < 0) {
        mr_loader_row_failed(l, s, batch, rc, &err);
        return true;
    }
    q->free_list = r->next_free;
    q->pending[q->n_pending++] = &r->io;
    return true;
}

/* Submits what is prepared; if the queue refuses, the samples fail with its reason. */
static void submit_pending(struct queue_reader *q)
{
    struct mr_error err;
    int rc = q->n_pending ? q->store->ops->ioq_submit(q->ioq, q->pending, q->n_pending, &err) : 0;
    for (unsigned i = 0; rc < 0 && i < q->n_pending; i++) {
        struct request *r = q->pending[i]->user;
        if (r->object)
            r->object->in_flight--;
        mr_loader_row_failed(q->thread->loader, slot_of(q->thread->loader, r->batch), r->batch, rc, &err);
        r->next_free = q->free_list;
        q->free_list = r;
    }
    if (rc >= 0)
        q->in_flight += q->n_pending;
    q->n_pending = 0;
}

/* The queue belongs to the thread that makes it, so it lives for one epoch. */
void mr_queue_reader_run(struct queue_reader *q)
{
    struct mr_loader *l = q->thread->loader;
    struct mr_error err;
    struct ticket t = {0};
    int rc = q->store->ops->ioq_create(q->store, q->depth, &q->ioq, &err);
    while (!mr_loader_ended(l)) {
        bool more = take_ticket(q, &t);
        if (rc < 0 && more) { /* no queue: every sample of ours fails with the reason */
            uint64_t batch = t.k / l->p.batch_size;
            if (!mr_loader_wait_slot(q->thread, batch))
                break;
            t.have = false;
            mr_loader_row_failed(l, slot_of(l, batch), batch, rc, &err);
            continue;
        }
        bool blocked = !more || !q->free_list;
        if (!blocked && q->n_pending < MR_MAX(q->depth / 4, 1u)) {
            if (start_one(q, &t))
                continue;
            blocked = true;
        }
        submit_pending(q);
        if (!blocked)
            continue;
        if (!more && q->in_flight == 0)
            break;
        if (q->in_flight)
            reap(q);
    }
    if (rc >= 0)
        submit_pending(q);
    while (q->in_flight) /* Q3 */
        reap(q);
    if (rc >= 0)
        q->store->ops->ioq_free(q->ioq);
    q->ioq = NULL;
}
