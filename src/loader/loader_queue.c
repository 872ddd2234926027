/* Queued reading: one thread keeps `depth` requests in flight through the store's queue and finishes the samples that
 * come back. This is what cold storage needs: queue depth, not threads.
 *
 *   take ticket ──> plan ──> pieces ──> submit ┐
 *        ^                                     ├── store queue (io_uring or worker threads)
 *        └── finish the row <── last piece <── reap
 *
 * A sample that needs no decoding is read straight into its row. Direct reads take whole blocks, so the row has room
 * for the blocks around the sample; it is moved to the row's start afterwards, or stays where it is
 * (MR_LOADER_IN_PLACE). Others are read into a buffer and decoded from there, several ranges (HDF5 chunks) one behind
 * the other. A sample of very many ranges, or of a file that must be unpacked as a whole, is read with direct calls in
 * between.
 *
 * Nothing here waits for a batch: pieces of the next batches are in flight while the last rows of this one arrive, and
 * all that is ready goes to the store in one submission.
 *
 * Invariants: Q1 a request's place and path stay put while a piece of it is in flight. Q2 an object is closed only when
 * no request uses it. Q3 on return nothing is in flight: a queue that cannot be reaped is freed, which waits. Q4 a
 * request is in one place: free list, current (not yet issued to its end), or in flight with pieces > 0. */
#include "loader/loader_internal.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 4096u
#define WAYS 8u /* places where a file's object may be */
#define NO_FILE UINT64_MAX
#define PIECE_MAX ((uint64_t)1 << 30)
#define SEGMENTS 32u /* ranges of a sample that go through the queue */

struct cached_object {
    struct mr_object *object;
    uint64_t file, used;
    unsigned users;
};

/* One range of a sample, and what is read for it: the range itself, in blocks when direct. */
struct segment {
    struct mr_extent extent;
    uint64_t from, to;
    uint64_t at; /* where `from` goes, from the request's place on */
};

/* One sample. */
struct request {
    uint64_t batch, id;
    uint32_t row;
    struct mr_manifest_pos pos;
    struct segment segment[SEGMENTS];
    unsigned n_segments;
    unsigned now; /* segment whose [from, issued) has been given to pieces; those before it entirely */
    uint64_t issued;
    uint64_t length, blocks; /* of all segments: wanted, read */
    uint64_t got;            /* bytes that came */
    bool is_short;           /* some wanted ones did not */
    unsigned pieces;         /* in flight or pending */
    uint64_t submit_ns;      /* when the first went out, where somebody wants to know */
    int code;                /* first failure */
    struct mr_error error;
    uint8_t *at; /* where it goes: the row's place or buf */
    bool in_row;
    uint8_t *buf;
    size_t cap;
    struct cached_object *object; /* or NULL: READ_PATH */
    char path[2 * MR_NAME_MAX];
    struct request *next_free;
};

struct piece {
    struct mr_io io; /* its user is the piece */
    struct request *request;
    const struct segment *segment;
    bool submitted; /* in the store's hands */
    struct piece *next_free;
};

struct queue_reader {
    struct engine_thread *thread;
    struct mr_store *store;
    struct mr_ioq *ioq;
    struct mr_decoder *decoder;
    unsigned depth, in_flight, n_pending;
    struct mr_io **pending; /* prepared, not submitted yet: one submission for several */
    struct mr_io **reaped;
    struct request *requests, *free_requests, *current;
    struct piece *pieces, *free_pieces;
    struct cached_object *objects; /* file f in one of the WAYS places from f % n_sets * WAYS on */
    unsigned n_sets;
    uint64_t tick, read_ns, decode_ns, reaped_ns; /* when something came back last */
    uint64_t n_files, cost_layout;                /* layout that `cost` is about */
    struct mr_read_cost cost;
    unsigned plan_flags, open_flags;
    bool scattered; /* neighbours in the order lie in different files */
};

int mr_queue_reader_create(struct engine_thread *t, unsigned depth, struct queue_reader **out, struct mr_error *err)
{
    struct queue_reader *q = calloc(1, sizeof(*q));
    if (!q)
        return mr_error_set(err, -ENOMEM, "cannot make a queue");
    const struct mr_loader *l = t->loader;
    enum mr_order_mode mode = mr_order_mode_of(l->order);
    q->thread = t;
    q->depth = depth;
    q->store = mr_dataset_store(l->dataset);
    q->n_files = l->info.files;
    q->cost_layout = NO_FILE;
    q->scattered = mode != MR_ORDER_SEQUENTIAL && mode != MR_ORDER_FILE;
    q->open_flags = l->p.flags & MR_LOADER_DIRECT ? MR_OBJ_DIRECT : 0;
    q->plan_flags = l->p.flags & MR_LOADER_VERIFY && !(l->p.flags & MR_LOADER_RAW) ? MR_READ_VERIFY : 0;
    q->decoder = mr_decoder_create();
    q->n_sets = (unsigned)((mr_loader_files_per_thread(l) + WAYS - 1) / WAYS);
    q->objects = calloc(q->n_sets, WAYS * sizeof(*q->objects));
    q->requests = calloc(depth, sizeof(*q->requests));
    q->pieces = calloc(depth, sizeof(*q->pieces));
    q->pending = calloc(depth, sizeof(struct mr_io *));
    q->reaped = calloc(depth, sizeof(struct mr_io *));
    if (!q->decoder || !q->objects || !q->requests || !q->pieces || !q->pending || !q->reaped) {
        mr_queue_reader_free(q);
        return mr_error_set(err, -ENOMEM, "cannot make a queue of %u requests", depth);
    }
    for (unsigned i = 0; i < depth; i++) {
        q->requests[i].next_free = q->free_requests;
        q->free_requests = &q->requests[i];
        q->pieces[i].next_free = q->free_pieces;
        q->free_pieces = &q->pieces[i];
    }
    *out = q;
    return 0;
}

void mr_queue_reader_free(struct queue_reader *q)
{
    if (!q)
        return;
    for (unsigned i = 0; q->objects && i < q->n_sets * WAYS; i++)
        mr_object_close(q->objects[i].object, NULL);
    for (unsigned i = 0; q->requests && i < q->depth; i++)
        free(q->requests[i].buf);
    mr_decoder_free(q->decoder);
    free(q->objects);
    free(q->requests);
    free(q->pieces);
    free(q->pending);
    free(q->reaped);
    free(q);
}

void mr_queue_reader_leave(struct queue_reader *q)
{
    if (q->ioq)
        q->store->ops->ioq_free(q->ioq);
    q->ioq = NULL;
}

/* ---- planning ---- */

/* The file's object when it is open; else NULL, and in *oldest the entry that may be replaced, if any. */
static struct cached_object *find_object(struct queue_reader *q, uint64_t file, struct cached_object **oldest)
{
    *oldest = NULL;
    struct cached_object *set = &q->objects[file % q->n_sets * WAYS];
    for (struct cached_object *o = set; o < set + WAYS; o++) {
        if (o->object && o->file == file)
            return o;
        if (o->users == 0 && (!*oldest || o->used < (*oldest)->used))
            *oldest = o;
    }
    return NULL;
}

static int open_object(struct queue_reader *q, struct cached_object *o, uint64_t file, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    mr_object_close(o->object, NULL); /* read only: nothing can be lost */
    *o = (struct cached_object){.file = NO_FILE};
    int rc = mr_dataset_file_path(q->thread->loader->dataset, file, path, err);
    if (rc >= 0)
        rc = mr_object_open(q->store, path, MR_OBJ_READ | q->open_flags, &o->object, err);
    if (rc >= 0)
        o->file = file;
    return rc < 0 ? rc : 0;
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

static int know_cost(struct queue_reader *q, uint64_t file, struct mr_error *err)
{
    const struct mr_dataset *ds = q->thread->loader->dataset;
    uint64_t id = mr_manifest_file_layout_id(mr_dataset_manifest(ds), file);
    if (MR_LIKELY(id == q->cost_layout))
        return 0;
    q->cost_layout = NO_FILE;
    int rc = mr_dataset_file_cost(ds, file, &q->cost, err);
    if (rc >= 0)
        q->cost_layout = id;
    return rc < 0 ? rc : 0;
}

enum planned { PLANNED, PLANNED_DIRECT, PLANNED_LATER }; /* to be queued; read with direct calls; reap first */

/* How a request gets at its file: through an open object, or by path, which the store opens and closes in the queue,
 * too. */
static int choose_object(struct queue_reader *q, struct request *r, bool one_piece, struct mr_error *err)
{
    struct cached_object *oldest, *o = find_object(q, r->pos.file, &oldest);
    uint64_t first, in_file;
    r->object = NULL;
    if (!o && one_piece) {
        mr_manifest_file_samples(mr_dataset_manifest(q->thread->loader->dataset), r->pos.file, &first, &in_file);
        if (in_file == 1 || (q->n_files > q->n_sets * WAYS && q->scattered)) {
            int rc = mr_dataset_file_path(q->thread->loader->dataset, r->pos.file, r->path, err);
            return rc < 0 ? rc : PLANNED;
        }
    }
    if (!o && !oldest)
        return PLANNED_LATER;
    if (!o) {
        int rc = open_object(q, oldest, r->pos.file, err);
        if (rc < 0)
            return rc;
        o = oldest;
    }
    o->used = ++q->tick;
    o->users++;
    r->object = o;
    return PLANNED;
}

static uint64_t piece_bytes(const struct queue_reader *q)
{
    uint64_t t = q->thread->loader->p.transfer_bytes;
    if (!t)
        return PIECE_MAX;
    return MR_MIN(q->open_flags & MR_OBJ_DIRECT ? MR_MAX(t / ALIGN * ALIGN, ALIGN) : t, PIECE_MAX);
}

/* Where the bytes go. */
static int choose_place(struct queue_reader *q, struct request *r, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    bool joined = r->n_segments == 1 || r->blocks == r->length; /* nothing in between */
    r->in_row = joined && (q->cost.verbatim || l->p.flags & MR_LOADER_RAW) && !q->plan_flags && !q->thread->preprocess;
    if (r->in_row) {
        r->at = mr_loader_row(l, slot_of(l, r->batch), r->row, r->length, r->blocks - r->length);
        return r->at ? 0 : mr_loader_no_row(l, r->id, r->length, err);
    }
    int rc = grow(r, r->blocks, err);
    r->at = r->buf;
    return rc;
}

/* Lays the ranges out. False: no file has such ranges, and direct calls say what is wrong. */
static bool lay_out(struct request *r, const struct mr_extent *e, unsigned n, uint64_t align)
{
    r->n_segments = n;
    r->length = r->blocks = r->got = 0;
    r->now = r->pieces = 0;
    r->is_short = false;
    r->code = 0;
    r->submit_ns = 0;
    for (unsigned i = 0; i < n; i++) {
        if (e[i].length == 0 || e[i].length > MR_LIMIT_SAMPLE_BYTES ||
            e[i].offset > INT64_MAX - MR_LIMIT_SAMPLE_BYTES - ALIGN)
            return false;
        struct segment *s = &r->segment[i];
        *s = (struct segment){.extent = e[i],
                              .from = e[i].offset / align * align,
                              .to = MR_ALIGN_UP(e[i].offset + e[i].length, align),
                              .at = r->blocks};
        r->length += e[i].length;
        r->blocks += s->to - s->from;
    }
    r->issued = r->segment[0].from;
    return n > 0 && r->length <= MR_LIMIT_SAMPLE_BYTES;
}

/* Plans the request's sample; negative on error. */
static int plan(struct queue_reader *q, struct request *r, struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    const struct mr_manifest *m = mr_dataset_manifest(l->dataset);
    struct mr_layout layout;
    struct mr_extent extent[SEGMENTS];
    unsigned n = 0;
    int rc = mr_manifest_locate(m, r->id, &r->pos, err);
    if (rc < 0 || (rc = know_cost(q, r->pos.file, err)) < 0)
        return rc;
    if (q->cost.access != MR_ACCESS_RANGE)
        return PLANNED_DIRECT;
    mr_manifest_file_layout(m, r->pos.file, &layout);
    rc = mr_dataset_format(l->dataset)->plan(&layout, &r->pos.ref, q->plan_flags, extent, SEGMENTS, &n, err);
    if (rc < 0 && rc != MR_E_LIMIT)
        return rc;
    if (rc == MR_E_LIMIT || n == 0 || !lay_out(r, extent, n, q->open_flags & MR_OBJ_DIRECT ? ALIGN : 1))
        return PLANNED_DIRECT;
    rc = choose_object(q, r, n == 1 && r->blocks <= piece_bytes(q), err);
    if (rc != PLANNED)
        return rc;
    rc = choose_place(q, r, err);
    if (rc < 0 && r->object)
        r->object->users--;
    return rc < 0 ? rc : PLANNED;
}

/* ---- finishing ---- */

/* The wanted bytes, one range behind the other: what lies between them is closed up. */
static uint8_t *collect(struct request *r)
{
    uint64_t to = 0;
    if (r->n_segments == 1)
        return r->at + (r->segment[0].extent.offset - r->segment[0].from);
    for (unsigned i = 0; i < r->n_segments; i++) {
        const struct segment *s = &r->segment[i];
        uint8_t *from = r->at + s->at + (s->extent.offset - s->from);
        if (from != r->at + to)
            memmove(r->at + to, from, s->extent.length);
        to += s->extent.length;
    }
    return r->at;
}

static struct mr_sample sample_of(const struct request *r, const struct mr_sample_out *out, const void *data)
{
    struct mr_sample s = {.data = data, .bytes = out->bytes, .n_dims = out->dims.n};
    s.label = r->pos.ref.label != MR_LABEL_NONE ? r->pos.ref.label : out->label;
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
    uint64_t room = r->blocks;
    uint8_t *raw = collect(r);
    struct mr_sample_out out = {
        .data = raw, .bytes = r->length, .dtype = MR_U8, .dims = {1, {r->length}}, .label = r->pos.ref.label};
    if (!(l->p.flags & MR_LOADER_RAW)) {
        int rc = mr_dataset_format(l->dataset)->decode(q->decoder, layout, &r->pos.ref, 0, raw, r->length, &out, err);
        if (rc < 0)
            return rc;
    }
    if (!l->packed && room < l->row_bytes)
        room = l->row_bytes;
    if (!l->in_place || out.data != raw) { /* a decoder may leave out bytes, or have made others */
        if (out.data != r->at)
            memmove(r->at, out.data, out.bytes);
        raw = r->at;
    }
    struct mr_sample sample = sample_of(r, &out, raw);
    return mr_loader_finish_row(q->thread, s, r->row, r->id, raw, room - (uint64_t)(raw - r->at), &sample, err);
}

/* The decoded sample stays in the decoder's scratch memory; what is made of it goes to the row. */
static int finish_preprocessed(struct queue_reader *q, struct request *r, struct slot *s,
                               const struct mr_layout *layout, struct mr_error *err)
{
    struct mr_sample_out out = {.label = r->pos.ref.label};
    int rc = mr_dataset_format(q->thread->loader->dataset)
                 ->decode(q->decoder, layout, &r->pos.ref, q->plan_flags, collect(r), r->length, &out, err);
    if (rc < 0)
        return rc;
    struct mr_sample sample = sample_of(r, &out, out.data);
    return mr_loader_preprocess_row(q->thread, s, r->row, r->id, &sample, err);
}

static int finish_decoded(struct queue_reader *q, struct request *r, struct slot *s, const struct mr_layout *layout,
                          struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    uint64_t need = l->packed ? r->pos.ref.raw.length : l->row_room;
    const uint8_t *raw = collect(r);
    for (int attempt = 0;; attempt++) {
        void *at = mr_loader_row(l, s, r->row, need, 0);
        if (!at)
            return mr_loader_no_row(l, r->id, need, err);
        struct mr_sample_out out = {.dst = at, .dst_cap = need, .label = r->pos.ref.label};
        int rc = mr_dataset_format(l->dataset)
                     ->decode(q->decoder, layout, &r->pos.ref, q->plan_flags, raw, r->length, &out, err);
        if ((rc == MR_E_LIMIT || rc >= 0) && out.bytes > need && attempt == 0) {
            need = out.bytes;
            continue;
        }
        if (rc < 0)
            return rc;
        if (out.data != at)
            memcpy(at, out.data, out.bytes);
        struct mr_sample sample = sample_of(r, &out, at);
        return mr_loader_finish_row(q->thread, s, r->row, r->id, at, need, &sample, err);
    }
}

static int finish_sample(struct queue_reader *q, struct request *r, struct slot *s, struct mr_error *err)
{
    struct mr_layout layout;
    if (r->code < 0) {
        *err = r->error;
        return r->code;
    }
    mr_manifest_file_layout(mr_dataset_manifest(q->thread->loader->dataset), r->pos.file, &layout);
    if (q->thread->preprocess)
        return finish_preprocessed(q, r, s, &layout, err);
    return r->in_row ? finish_in_row(q, r, s, &layout, err) : finish_decoded(q, r, s, &layout, err);
}

/* Interrupted, or shorter than it must be: direct calls try again, and say what is wrong if something is. */
static bool came_short(const struct request *r)
{
    return r->code == -EINTR || r->code == -EAGAIN || (r->code == 0 && r->is_short);
}

static void finish_row(struct queue_reader *q, struct request *r)
{
    struct mr_loader *l = q->thread->loader;
    struct slot *s = slot_of(l, r->batch);
    struct mr_error err;
    struct row_times *x = &q->thread->row;
    *x = (struct row_times){.fetch_ns = r->submit_ns, .fetched_ns = q->reaped_ns, .decode_ns = mr_now_ns()};
    int rc = finish_sample(q, r, s, &err);
    x->decoded_ns = x->transform_ns ? x->transform_ns : mr_now_ns();
    q->decode_ns += x->decoded_ns - x->decode_ns;
    atomic_store_explicit(&q->thread->decode_ns, q->decode_ns, memory_order_relaxed);
    atomic_fetch_add(&s->read_bytes, r->got);
    if (l->tells_samples)
        mr_loader_tell_row(q->thread, s, r->row, rc < 0 ? rc : (int64_t)r->got);
    if (rc >= 0) {
        mr_loader_row_done(l, s, r->batch);
        return;
    }
    char path[2 * MR_NAME_MAX];
    if (mr_dataset_file_path(l->dataset, r->pos.file, path, NULL) >= 0)
        mr_error_context(&err, "in sample %llu of '%s'", (unsigned long long)r->id, path);
    if (rc != MR_E_LIMIT)
        mr_error_hint(&err, "'millrace verify %s' lists all that is wrong", mr_dataset_root(l->dataset));
    mr_loader_row_failed(l, s, r->batch, rc, &err);
}

/* All pieces are back. */
static void finish(struct queue_reader *q, struct request *r)
{
    struct mr_loader *l = q->thread->loader;
    if (r->object)
        r->object->users--;
    if (mr_loader_ended(l))
        mr_loader_row_done(l, slot_of(l, r->batch), r->batch);
    else if (MR_UNLIKELY(came_short(r)))
        mr_loader_read_row(q->thread, r->batch, r->row, r->id);
    else
        finish_row(q, r);
    r->next_free = q->free_requests;
    q->free_requests = r;
}

/* ---- moving ---- */

/* A piece has ended, or could not be submitted. */
static void end_piece(struct queue_reader *q, struct piece *p)
{
    struct request *r = p->request;
    if (p->io.result < 0 && r->code == 0) {
        r->code = mr_io_error(&p->io, &r->error);
        r->now = r->n_segments; /* the rest need not be read */
        q->current = q->current == r ? NULL : q->current;
    } else if (p->io.result >= 0) {
        const struct mr_extent *e = &p->segment->extent;
        r->got += (uint64_t)p->io.result;
        if ((uint64_t)p->io.result < p->io.len && p->io.offset + (uint64_t)p->io.result < e->offset + e->length)
            r->is_short = true;
    }
    p->submitted = false;
    p->next_free = q->free_pieces;
    q->free_pieces = p;
    if (--r->pieces == 0 && r->now == r->n_segments)
        finish(q, r);
}

/* The queue can no longer tell what became of its requests: they fail with its reason. Freeing it waits until nothing
 * is written to their memory any more (Q1); the stream goes on with a new queue. */
static void give_up_queue(struct queue_reader *q, int code, const struct mr_error *err)
{
    q->store->ops->ioq_free(q->ioq);
    q->ioq = NULL;
    q->in_flight = 0;
    for (unsigned i = 0; i < q->depth; i++) {
        struct piece *p = &q->pieces[i];
        if (!p->submitted)
            continue;
        struct request *r = p->request;
        if (r->code == 0) {
            r->code = code;
            r->error = *err;
            mr_error_context(&r->error, "waiting for the storage queue");
        }
        r->now = r->n_segments;
        q->current = q->current == r ? NULL : q->current;
        p->io.result = (int64_t)p->io.len;
        end_piece(q, p);
    }
}

/* Waits for at least one completion when something is in flight. No more than a quarter at once, so that the queue is
 * filled up before the samples of all of it have been dealt with. */
static void reap(struct queue_reader *q)
{
    struct mr_error err;
    if (!q->in_flight)
        return;
    uint64_t start = mr_now_ns();
    atomic_store_explicit(&q->thread->read_since, start, memory_order_relaxed);
    int n = q->store->ops->ioq_reap(q->ioq, 1, MR_MAX(q->depth / 4, 1u), q->reaped, &err);
    q->reaped_ns = mr_now_ns();
    q->read_ns += q->reaped_ns - start;
    atomic_store_explicit(&q->thread->read_since, 0, memory_order_relaxed);
    atomic_store_explicit(&q->thread->read_ns, q->read_ns, memory_order_relaxed);
    if (MR_UNLIKELY(n < 0)) { /* stores repeat interrupted waits themselves */
        give_up_queue(q, n, &err);
        return;
    }
    for (int i = 0; i < n; i++) {
        q->in_flight--;
        end_piece(q, q->reaped[i]->user);
    }
}

/* Submits what is prepared; if the queue refuses, the samples fail with its reason. */
static void submit_pending(struct queue_reader *q)
{
    struct mr_error err;
    unsigned n = q->n_pending;
    int rc = n ? q->store->ops->ioq_submit(q->ioq, q->pending, n, &err) : 0;
    q->n_pending = 0;
    if (rc >= 0)
        q->in_flight += n;
    uint64_t now = n && q->thread->loader->tells_samples ? mr_now_ns() : 0;
    for (unsigned i = 0; rc >= 0 && i < n; i++) {
        struct piece *p = q->pending[i]->user;
        p->submitted = true;
        p->request->submit_ns = p->request->submit_ns ? p->request->submit_ns : now;
    }
    for (unsigned i = 0; rc < 0 && i < n; i++) {
        struct piece *p = q->pending[i]->user;
        if (p->request->code == 0) {
            p->request->code = rc;
            p->request->error = err;
        }
        p->request->now = p->request->n_segments;
        q->current = q->current == p->request ? NULL : q->current;
        p->io.result = (int64_t)p->io.len;
        end_piece(q, p);
    }
}

/* Gives the next part of the current request to a piece. */
static void issue_piece(struct queue_reader *q)
{
    struct request *r = q->current;
    struct piece *p = q->free_pieces;
    const struct segment *s = &r->segment[r->now];
    uint64_t len = MR_MIN(s->to - r->issued, piece_bytes(q));
    q->free_pieces = p->next_free;
    p->request = r;
    p->segment = s;
    uint64_t wanted =
        s->extent.offset + s->extent.length - r->issued; /* more than 0: blocks behind the range are not read */
    p->io = (struct mr_io){.op = r->object ? MR_IO_READ : MR_IO_READ_PATH,
                           .flags = q->open_flags,
                           .buf = r->at + s->at + (r->issued - s->from),
                           .len = len,
                           .enough = MR_MIN(len, wanted),
                           .offset = r->issued,
                           .user = p};
    if (r->object)
        p->io.object = r->object->object;
    else
        p->io.path = r->path;
    r->issued += len;
    r->pieces++;
    q->pending[q->n_pending++] = &p->io;
    if (r->issued < s->to)
        return;
    if (++r->now < r->n_segments)
        r->issued = r->segment[r->now].from;
    else
        q->current = NULL;
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
static bool start_sample(struct queue_reader *q, struct ticket *t)
{
    struct mr_loader *l = q->thread->loader;
    struct request *r = q->free_requests;
    uint32_t row;
    uint64_t batch = stream_batch(l, t->k, &row);
    if (batch >= atomic_load(&l->slot_limit) && (q->in_flight || q->n_pending))
        return false;
    if (!r || !mr_loader_wait_slot(q->thread, batch))
        return false;
    struct slot *s = slot_of(l, batch);
    struct mr_error err;
    r->batch = batch;
    r->row = row;
    r->id = s->ids[row];
    int rc = plan(q, r, &err);
    if (rc == PLANNED_LATER)
        return false;
    t->have = false;
    if (rc == PLANNED_DIRECT) {
        submit_pending(q); /* what is planned need not wait for it */
        mr_loader_read_row(q->thread, batch, row, r->id);
    } else if (rc < 0) {
        mr_error_context(&err, "in sample %llu", (unsigned long long)r->id);
        mr_loader_row_failed(l, s, batch, rc, &err);
    } else {
        q->free_requests = r->next_free;
        q->current = r;
    }
    return true;
}

/* Ends the request of which a part has not been issued. */
static void drop_current(struct queue_reader *q)
{
    struct request *r = q->current;
    q->current = NULL;
    r->now = r->n_segments;
    finish(q, r);
}

/* No queue can be made: every sample of ours fails with the reason. */
static void fail_all(struct queue_reader *q, struct ticket *t, int code, const struct mr_error *err)
{
    struct mr_loader *l = q->thread->loader;
    uint32_t row;
    if (q->current) { /* between two pieces when the last queue broke; nothing is in flight without one */
        q->current->code = code;
        q->current->error = *err;
        drop_current(q);
    }
    for (; take_ticket(q, t); t->have = false) {
        uint64_t batch = stream_batch(l, t->k, &row);
        if (!mr_loader_wait_slot(q->thread, batch))
            return;
        mr_loader_row_failed(l, slot_of(l, batch), batch, code, err);
    }
}

/* Prepares pieces until the queue is full, the tickets are out or something has to come back first. */
static bool fill(struct queue_reader *q, struct ticket *t)
{
    while (q->free_pieces && !mr_loader_ended(q->thread->loader)) {
        if (q->current) {
            issue_piece(q);
            continue;
        }
        if (!take_ticket(q, t))
            return false;
        if (!start_sample(q, t))
            break;
    }
    return true;
}

/* The queue belongs to the thread that makes it, and is kept from stream to stream. */
static int need_queue(struct queue_reader *q, struct mr_error *err)
{
    int rc = q->ioq ? 0 : q->store->ops->ioq_create(q->store, q->depth, &q->ioq, err);
    return rc < 0 ? rc : 0;
}

void mr_queue_reader_run(struct queue_reader *q)
{
    struct mr_loader *l = q->thread->loader;
    struct ticket t = {0};
    struct mr_error err;
    for (bool more = true; !mr_loader_ended(l) && (more || q->in_flight);) {
        int rc = need_queue(q, &err);
        if (rc) {
            fail_all(q, &t, rc, &err);
            return;
        }
        more = fill(q, &t);
        submit_pending(q);
        reap(q);
    }
    submit_pending(q);
    while (q->in_flight) /* Q3 */
        reap(q);
    if (q->current) /* ended between two pieces */
        drop_current(q);
}
