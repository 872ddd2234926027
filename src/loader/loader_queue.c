/* Queued reading: one thread keeps `depth` requests in flight and finishes the samples that come back. This is what
 * cold storage needs: queue depth, not threads.
 *
 *   take ticket ──> plan ──> place ──> start ┐
 *        ^                                   ├── the source's queue (dataset/fetch.h)
 *        └── finish the row <── reap <───────┘
 *
 * A sample that needs no decoding is read straight into its row. Direct reads take whole blocks, so the row has room
 * for the blocks around the sample; it is moved to the row's start afterwards, or stays where it is
 * (MR_LOADER_IN_PLACE). Others are read into a buffer and decoded from there. A sample of very many ranges, or of a
 * file that must be unpacked as a whole, is read with direct calls in between.
 *
 * Nothing here waits for a batch: samples of the next batches are in flight while the last rows of this one arrive, and
 * all that is ready goes to the store in one submission.
 *
 * Invariants: Q1 a request is on the free list or with the source, or being planned or finished. Q2 on return nothing
 * is with the source. */
#include "loader/loader_internal.h"
#include "base/strbuf.h"
#include "base/clock.h"
#include "dataset/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 32u /* of a sample that goes through the queue */

/* One sample. */
struct request {
    struct mr_fetch_job job; /* first: the source gives it back */
    uint64_t batch;
    uint32_t row;
    bool in_row;
    uint8_t *buf;
    size_t cap;
    struct request *next_free;
};

struct queue_reader {
    struct engine_thread *thread;
    struct mr_fetch_planner planner;
    struct mr_fetch_source *source;
    struct mr_decoder *decoder;
    unsigned depth, free_count;
    struct request *requests, *free_requests;
    uint64_t transfer_bytes, decode_ns;
    unsigned plan_flags;
};

/* ---- making and freeing ---- */

static int open_source(struct queue_reader *q, struct mr_error *err)
{
    const struct mr_loader *l = q->thread->loader;
    enum mr_order_mode mode = mr_order_mode_of(l->order);
    const struct mr_fetch_store_options o = {.open_flags = l->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0,
                                             .open_files = mr_loader_files_per_thread(l),
                                             .transfer_bytes = q->transfer_bytes,
                                             .depth = q->depth,
                                             .scattered = mode != MR_ORDER_SEQUENTIAL && mode != MR_ORDER_FILE,
                                             .stamps = l->tells_samples,
                                             .slab = l->slab_parts,
                                             .n_slabs = l->n_slab_parts};
    return mr_fetch_store_create(l->dataset, &o, &q->source, err);
}

int mr_queue_reader_create(struct engine_thread *t, unsigned depth, struct queue_reader **out, struct mr_error *err)
{
    struct queue_reader *q = calloc(1, sizeof(*q));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot make a queue");
    const struct mr_loader *l = t->loader;
    q->thread = t;
    q->depth = depth;
    q->transfer_bytes = l->p.transfer_bytes;
    bool checks = l->p.flags & (l->p.flags & MR_LOADER_RAW ? LOADER_RAW_WITH_CHECKSUMS : MR_LOADER_VERIFY);
    q->plan_flags = checks ? MR_READ_VERIFY : 0;
    mr_fetch_planner_init(&q->planner, l->dataset, l->p.flags & MR_LOADER_DIRECT ? MR_FETCH_BLOCK : 1,
                          q->transfer_bytes == 0, RANGES_MAX);
    q->decoder = mr_decoder_create();
    q->requests = calloc(depth, sizeof(*q->requests));
    int rc = q->decoder && q->requests ? open_source(q, err)
                                       : mr_error_set(err, -ENOMEM, "cannot make a queue of %u requests", depth);
    if (rc) {
        mr_queue_reader_free(q);
        return rc;
    }
    for (unsigned i = 0; i < depth; i++) {
        q->requests[i].next_free = q->free_requests;
        q->free_requests = &q->requests[i];
        q->free_count++;
    }
    *out = q;
    return 0;
}

void mr_queue_reader_free(struct queue_reader *q)
{
    if (!q)
        return;
    mr_fetch_source_free(q->source);
    for (unsigned i = 0; q->requests && i < q->depth; i++) {
        mr_fetch_done(&q->requests[i].job.plan);
        free(q->requests[i].buf);
    }
    mr_fetch_planner_done(&q->planner);
    mr_decoder_free(q->decoder);
    free(q->requests);
    free(q);
}

void mr_queue_reader_leave(struct queue_reader *q)
{
    q->source->ops->leave(q->source);
}

uint64_t mr_queue_reader_waits_since(const struct queue_reader *q)
{
    return atomic_load_explicit(&q->source->wait_since, memory_order_relaxed);
}

/* ---- planning ---- */

static int grow(struct request *r, uint64_t bytes, struct mr_error *err)
{
    if (bytes <= r->cap)
        return 0;
    uint64_t cap = MR_ALIGN_UP(bytes + bytes / 8, (uint64_t)MR_FETCH_BLOCK);
    free(r->buf);
    r->cap = 0;
    r->buf = aligned_alloc(MR_FETCH_BLOCK, cap);
    if (!r->buf)
        return mr_error_set(err, -ENOMEM, "cannot get a buffer of %llu bytes", (unsigned long long)cap);
    r->cap = cap;
    return 0;
}

/* Where the bytes go: the row, if they are what belongs there and it has room for what is read around them. */
static int choose_place(struct queue_reader *q, struct request *r, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    const struct mr_fetch *f = &r->job.plan;
    bool fits = f->n_ranges == 1 || l->packed || f->room <= l->row_bytes;
    r->in_row = fits && (l->p.flags & MR_LOADER_RAW || (f->verbatim && !q->plan_flags)) && !q->thread->preprocess;
    if (r->in_row) {
        r->job.place = mr_loader_row(l, slot_of(l, r->batch), r->row, f->length, f->room - f->length);
        return r->job.place ? 0 : mr_loader_no_row(l, f->id, f->length, err);
    }
    int rc = grow(r, f->room, err);
    r->job.place = r->buf;
    return rc;
}

enum started { STARTED, START_DIRECT, START_LATER }; /* in the queue; to be read with direct calls; reap first */

/* Plans the sample and hands it to the source; negative on error. */
static int start(struct queue_reader *q, struct request *r, uint64_t id, struct mr_error *err)
{
    struct mr_fetch *f = &r->job.plan;
    int rc = mr_fetch_plan(&q->planner, id, q->plan_flags, f, err);
    if (rc == MR_FETCH_MANY || (rc == 0 && (f->access != MR_ACCESS_RANGE || f->n_reads == 0)))
        return START_DIRECT;
    if (rc || (rc = choose_place(q, r, err)))
        return rc;
    rc = q->source->ops->start(q->source, &r->job, err);
    return rc == MR_FETCH_LATER ? START_LATER : rc;
}

/* ---- finishing ---- */

static struct mr_sample sample_of(const struct request *r, const struct mr_sample_out *out, const void *data)
{
    struct mr_sample s = {.data = data, .bytes = out->bytes, .n_dims = out->dims.n};
    s.label = r->job.plan.pos.ref.label != MR_LABEL_NONE ? r->job.plan.pos.ref.label : out->label;
    memcpy(s.dtype, mr_dtype_numpy(out->dtype), strlen(mr_dtype_numpy(out->dtype)) + 1);
    for (unsigned d = 0; d < out->dims.n; d++)
        s.dims[d] = out->dims.dim[d];
    return s;
}

/* The sample lies in its row's place, behind the part of its first block that belongs to something else. */
static int finish_in_row(struct queue_reader *q, struct request *r, struct slot *s, const struct mr_layout *layout,
                         struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    uint64_t room = r->job.plan.room;
    uint8_t *raw = mr_fetch_collect(&r->job.plan, r->job.place);
    struct mr_sample_out out = {.data = raw,
                                .bytes = r->job.plan.length,
                                .dtype = MR_U8,
                                .dims = {1, {r->job.plan.length}},
                                .label = r->job.plan.pos.ref.label};
    if (!(l->p.flags & MR_LOADER_RAW)) {
        int rc = mr_dataset_format(l->dataset)
                     ->decode(q->decoder, layout, &r->job.plan.pos.ref, 0, raw, r->job.plan.length, &out, err);
        if (rc < 0)
            return rc;
    }
    if (!l->packed && room < l->row_bytes)
        room = l->row_bytes;
    if (!l->in_place || out.data != raw) { /* a decoder may leave out bytes, or have made others */
        if (out.data != r->job.place)
            memmove(r->job.place, out.data, out.bytes);
        raw = r->job.place;
    }
    struct mr_sample sample = sample_of(r, &out, raw);
    return mr_loader_finish_row(q->thread, s, r->row, r->job.plan.id, raw, room - (uint64_t)(raw - r->job.place),
                                &sample, err);
}

/* The decoded sample stays in the decoder's scratch memory; what is made of it goes to the row. */
static int finish_preprocessed(struct queue_reader *q, struct request *r, struct slot *s,
                               const struct mr_layout *layout, struct mr_error *err)
{
    const struct mr_loader *l = q->thread->loader;
    struct part_of of = {.thread = q->thread, .epoch = s->batch.epoch, .id = r->job.plan.id};
    struct mr_sample_out out = {.label = r->job.plan.pos.ref.label,
                                .choose_part = mr_loader_decodes_parts(l) ? mr_loader_choose_part : NULL,
                                .choose_user = &of};
    int rc = mr_dataset_format(l->dataset)
                 ->decode(q->decoder, layout, &r->job.plan.pos.ref, q->plan_flags,
                          mr_fetch_collect(&r->job.plan, r->job.place), r->job.plan.length, &out, err);
    if (rc < 0)
        return rc;
    struct mr_sample sample = sample_of(r, &out, out.data);
    const struct mr_part *part = out.part.full_height ? &out.part : NULL;
    return mr_loader_preprocess_row(q->thread, s, r->row, r->job.plan.id, &sample, part, err);
}

static int finish_decoded(struct queue_reader *q, struct request *r, struct slot *s, const struct mr_layout *layout,
                          struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    uint64_t need = l->packed ? r->job.plan.pos.ref.raw.length : l->row_room;
    const uint8_t *raw = mr_fetch_collect(&r->job.plan, r->job.place);
    for (int attempt = 0;; attempt++) {
        void *at = mr_loader_row(l, s, r->row, need, 0);
        if (!at)
            return mr_loader_no_row(l, r->job.plan.id, need, err);
        struct mr_sample_out out = {.dst = at, .dst_cap = need, .label = r->job.plan.pos.ref.label};
        int rc =
            mr_dataset_format(l->dataset)
                ->decode(q->decoder, layout, &r->job.plan.pos.ref, q->plan_flags, raw, r->job.plan.length, &out, err);
        if ((rc == MR_E_LIMIT || rc >= 0) && out.bytes > need && attempt == 0) {
            need = out.bytes;
            continue;
        }
        if (rc < 0)
            return rc;
        if (out.data != at)
            memcpy(at, out.data, out.bytes);
        struct mr_sample sample = sample_of(r, &out, at);
        return mr_loader_finish_row(q->thread, s, r->row, r->job.plan.id, at, need, &sample, err);
    }
}

/* Stored bytes that could not be read into the row. */
static int finish_raw(struct queue_reader *q, struct request *r, struct slot *s, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    uint64_t length = r->job.plan.length;
    void *at = mr_loader_row(l, s, r->row, length, 0);
    if (!at)
        return mr_loader_no_row(l, r->job.plan.id, length, err);
    mr_fetch_copy(&r->job.plan, r->job.place, at);
    const struct mr_sample_out out = {.bytes = length, .dtype = MR_U8, .dims = {1, {length}}, .label = MR_LABEL_NONE};
    struct mr_sample sample = sample_of(r, &out, at);
    return mr_loader_finish_row(q->thread, s, r->row, r->job.plan.id, at, length, &sample, err);
}

static int finish_sample(struct queue_reader *q, struct request *r, struct slot *s, struct mr_error *err)
{
    struct mr_layout layout;
    if (r->job.code < 0) {
        *err = r->job.error;
        return r->job.code;
    }
    mr_manifest_file_layout(mr_dataset_manifest(q->thread->loader->dataset), r->job.plan.pos.file, &layout);
    if (q->thread->preprocess)
        return finish_preprocessed(q, r, s, &layout, err);
    if (r->in_row)
        return finish_in_row(q, r, s, &layout, err);
    return q->thread->loader->p.flags & MR_LOADER_RAW ? finish_raw(q, r, s, err)
                                                      : finish_decoded(q, r, s, &layout, err);
}

/* Interrupted, or shorter than it must be: direct calls try again, and say what is wrong if something is. */
static bool needs_retry(const struct request *r)
{
    return r->job.code == -EINTR || r->job.code == -EAGAIN || (r->job.code == 0 && r->job.is_short);
}

static void finish_row(struct queue_reader *q, struct request *r)
{
    struct mr_loader *l = q->thread->loader;
    struct slot *s = slot_of(l, r->batch);
    struct mr_error err;
    struct row_times *x = &q->thread->row;
    *x = (struct row_times){.fetch_ns = r->job.submit_ns, .fetched_ns = q->source->reaped_ns, .decode_ns = mr_now_ns()};
    int rc = finish_sample(q, r, s, &err);
    x->decoded_ns = x->transform_ns ? x->transform_ns : mr_now_ns();
    q->decode_ns += x->decoded_ns - x->decode_ns;
    atomic_store_explicit(&q->thread->decode_ns, q->decode_ns, memory_order_relaxed);
    atomic_fetch_add(&s->read_bytes, r->job.got);
    if (l->tells_samples)
        mr_loader_tell_row(q->thread, s, r->row, rc < 0 ? rc : (int64_t)r->job.got);
    if (rc >= 0) {
        mr_loader_row_done(l, s, r->batch);
        return;
    }
    char path[2 * MR_NAME_MAX], word[1024];
    rc = mr_dataset_blame_change(l->dataset, r->job.plan.pos.file, rc, &err);
    if (mr_dataset_file_path(l->dataset, r->job.plan.pos.file, path, NULL) >= 0)
        mr_error_context(&err, "in sample %llu of '%s'", (unsigned long long)r->job.plan.id, path);
    if (rc != MR_E_LIMIT)
        mr_error_hint(&err, "'millrace verify %s' lists all that is wrong",
                      mr_shell_word(mr_dataset_root(l->dataset), word, sizeof word));
    mr_loader_row_failed(l, s, r->batch, r->row, rc, &err);
}

static void give_back(struct queue_reader *q, struct request *r)
{
    r->next_free = q->free_requests;
    q->free_requests = r;
    q->free_count++;
}

/* The source is done with it. */
static void finish(struct queue_reader *q, struct request *r)
{
    struct mr_loader *l = q->thread->loader;
    if (mr_loader_ended(l))
        mr_loader_row_done(l, slot_of(l, r->batch), r->batch);
    else if (MR_UNLIKELY(needs_retry(r)))
        mr_loader_read_row(q->thread, r->batch, r->row, r->job.plan.id);
    else
        finish_row(q, r);
    give_back(q, r);
}

static void finish_all(struct queue_reader *q, struct mr_fetch_job *done)
{
    for (struct mr_fetch_job *j = done, *next; j; j = next) {
        next = j->next;
        finish(q, (struct request *)j);
    }
}

/* ---- the stream ---- */

struct ticket {
    bool have;
    uint64_t k;
};

static bool take_ticket(struct queue_reader *q, struct ticket *t)
{
    if (!t->have) {
        t->k = atomic_fetch_add(&q->thread->loader->next_ticket, 1);
        t->have = t->k < q->thread->loader->stream.samples;
    }
    return t->have;
}

/* Starts the ticket's sample; false when something must be reaped first, or the stream has ended. */
static bool start_sample(struct queue_reader *q, struct ticket *t, bool busy)
{
    struct mr_loader *l = q->thread->loader;
    struct request *r = q->free_requests;
    uint32_t row;
    uint64_t batch = stream_batch(l, t->k, &row);
    if (batch >= atomic_load(&l->slot_limit) && busy)
        return false;
    if (!r || !mr_loader_wait_slot(q->thread, batch))
        return false;
    struct slot *s = slot_of(l, batch);
    struct mr_error err;
    uint64_t id = s->ids[row];
    r->batch = batch;
    r->row = row;
    q->free_requests = r->next_free;
    q->free_count--;
    int rc = start(q, r, id, &err);
    if (rc != STARTED)
        give_back(q, r); /* Q1 */
    if (rc == START_LATER)
        return false;
    t->have = false;
    if (rc == START_DIRECT) {
        q->source->ops->flush(q->source); /* what is planned need not wait for it */
        mr_loader_read_row(q->thread, batch, row, id);
    } else if (rc < 0) {
        mr_error_context(&err, "in sample %llu", (unsigned long long)id);
        mr_loader_row_failed(l, s, batch, row, rc, &err);
    }
    return true;
}

/* Starts samples until the queue is full, the tickets are out or something has to come back first. */
static bool fill(struct queue_reader *q, struct ticket *t)
{
    bool started = false;
    while (q->source->ops->room(q->source) && !mr_loader_ended(q->thread->loader)) {
        if (!take_ticket(q, t))
            return false;
        if (!start_sample(q, t, started || q->source->in_flight))
            break;
        started = true;
    }
    return true;
}

/* No queue can be made: every sample of ours fails with the reason. */
static void fail_all(struct queue_reader *q, struct ticket *t, int code, const struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    struct mr_fetch_job *done;
    uint32_t row;
    q->source->ops->drain(q->source, &done);
    for (struct mr_fetch_job *j = done; j; j = j->next) {
        j->code = code;
        j->error = *err;
    }
    finish_all(q, done);
    for (; take_ticket(q, t); t->have = false) {
        uint64_t batch = stream_batch(l, t->k, &row);
        if (!mr_loader_wait_slot(q->thread, batch))
            return;
        mr_loader_row_failed(l, slot_of(l, batch), batch, row, code, err);
    }
}

/* Waits for something that is in flight and finishes it. */
static int reap(struct queue_reader *q, struct mr_error *err)
{
    struct mr_fetch_job *done;
    int rc = q->source->ops->reap(q->source, &done, err);
    atomic_store_explicit(&q->thread->read_ns, q->source->wait_ns, memory_order_relaxed);
    if (!rc)
        finish_all(q, done);
    return rc;
}

void mr_queue_reader_run(struct queue_reader *q)
{
    struct mr_loader *l = q->thread->loader;
    struct mr_fetch_job *done;
    struct ticket t = {0};
    struct mr_error err;
    int rc = 0;
    for (bool more = true; !rc && !mr_loader_ended(l) && (more || q->free_count < q->depth);) {
        more = fill(q, &t);
        rc = reap(q, &err);
    }
    if (rc) {
        fail_all(q, &t, rc, &err);
        return;
    }
    q->source->ops->drain(q->source, &done); /* Q2 */
    finish_all(q, done);
    assert(q->free_count == q->depth);
}
