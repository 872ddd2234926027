/* The store as a source: see fetch.h. Reads with direct calls, or keeps many requests in flight through the store's
 * queue, which is what cold storage needs: queue depth, not threads.
 *
 *   start: job ──> pieces ──> flush: one submission ──> store queue (io_uring or worker threads)
 *                                                         │
 *   reap: jobs that are complete <── last piece of a job <─┘
 *
 * A piece is a read, or a part of one where reads are cut. A file is reached through the cache of open files, or by
 * path, which the store opens and closes in the queue as well.
 *
 * Invariants: S1 a job, its place and its path stay put while a piece of it is in flight. S2 a file is held while a job
 * uses it. S3 a job is in one place: current (not issued to its end), in flight with pieces > 0, or on the list of done
 * ones. S4 pieces on the free list, pending and in flight are `depth` together. S5 without a queue nothing is in
 * flight: one that cannot be reaped is freed, which waits, and its jobs fail with its reason. */
#include "base/clock.h"
#include "dataset/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PIECE_MAX ((uint64_t)1 << 30)

struct piece {
    struct mr_io io; /* its user is the piece */
    struct mr_fetch_job *job;
    const struct mr_fetch_read *read;
    bool submitted; /* in the store's hands */
    struct piece *next_free;
};

struct store_source {
    struct mr_fetch_source base;
    const struct mr_dataset *ds;
    struct mr_fetch_store_options o;
    struct mr_file_cache *cache;
    bool plain; /* a read is one call */
    uint64_t n_files;
    struct mr_ioq *ioq;
    struct mr_io **pending; /* prepared, not submitted yet: one submission for several */
    struct mr_io **reaped;
    struct piece *pieces, *free_pieces;
    unsigned n_pending;
    struct mr_fetch_job *current, *done, **done_tail;
};

static struct store_source *self(struct mr_fetch_source *s)
{
    return (struct store_source *)s;
}

/* ---- direct calls ---- */

/* One sample per file: opened for this read only. */
static bool keeps(const struct store_source *s, uint64_t file)
{
    uint64_t first, n;
    mr_manifest_file_samples(mr_dataset_manifest(s->ds), file, &first, &n);
    return n > 1;
}

static int read_cut(struct store_source *s, struct mr_object *o, const struct mr_fetch_read *r, uint8_t *place,
                    struct mr_error *err)
{
    uint64_t bytes = r->to - r->from, most = s->o.transfer_bytes ? s->o.transfer_bytes : bytes;
    int rc = 0;
    for (uint64_t at = 0; !rc && at < bytes;) {
        uint64_t n = MR_MIN(most, bytes - at);
        rc = mr_object_read(o, place + r->at + at, n, r->from + at, err);
        at += n;
        s->base.read_bytes += rc ? 0 : n;
    }
    return rc;
}

static int read_all(struct store_source *s, struct mr_object *o, const struct mr_fetch *f, uint8_t *place,
                    struct mr_error *err)
{
    int rc = 0;
    for (unsigned i = 0; !rc && i < f->n_reads; i++)
        rc = read_cut(s, o, &f->read[i], place, err);
    return rc;
}

static int store_read(struct mr_fetch_source *base, const struct mr_fetch *f, void *place, struct mr_error *err)
{
    struct store_source *s = self(base);
    struct mr_cached_file *file;
    struct mr_object *o = mr_file_cache_peek(s->cache, f->pos.file);
    /* Whoever reads now does nothing else with the cache meanwhile: an open file need not be held. */
    if (MR_LIKELY(o && f->n_reads == 1 && s->plain)) {
        const struct mr_fetch_read *r = &f->read[0];
        uint64_t bytes = r->to - r->from;
        int rc = mr_object_read(o, (uint8_t *)place + r->at, bytes, r->from, err);
        base->read_bytes += rc ? 0 : bytes;
        return rc;
    }
    if (o)
        return read_all(s, o, f, place, err);
    if (keeps(s, f->pos.file)) {
        int rc = mr_file_cache_get(s->cache, f->pos.file, &file, err);
        if (rc == 0) {
            rc = read_all(s, file->object, f, place, err);
            mr_file_cache_put(file);
        }
        if (rc != MR_FILE_CACHE_BUSY) /* else the queue holds all its places */
            return rc;
    }
    int rc = mr_file_cache_open(s->cache, f->pos.file, &o, err);
    if (rc)
        return rc;
    rc = read_all(s, o, f, place, err);
    mr_object_close(o, NULL); /* nothing can be lost */
    return rc;
}

static int store_read_file(struct mr_fetch_source *base, uint64_t file, void *to, uint64_t bytes, struct mr_error *err)
{
    struct store_source *s = self(base);
    struct mr_object *o;
    uint64_t have;
    int rc = mr_file_cache_open(s->cache, file, &o, err);
    if (rc)
        return rc;
    rc = mr_object_size(o, &have, err);
    if (!rc && have != bytes)
        rc = mr_error_plain(err, MR_E_CHANGED, "the file has %llu bytes, the manifest says %llu",
                            (unsigned long long)have, (unsigned long long)bytes);
    if (!rc)
        rc = mr_object_read(o, to, bytes, 0, err);
    s->base.read_bytes += rc ? 0 : bytes;
    mr_object_close(o, NULL);
    return rc < 0 ? rc : 0;
}

static const void *store_borrow(struct mr_fetch_source *base, const struct mr_fetch *f)
{
    (void)base, (void)f;
    return NULL;
}

/* ---- issuing ---- */

static uint64_t piece_bytes(const struct store_source *s)
{
    uint64_t t = s->o.transfer_bytes;
    if (!t)
        return PIECE_MAX;
    return MR_MIN(s->o.open_flags & MR_OBJ_DIRECT ? MR_MAX(t / MR_FETCH_BLOCK * MR_FETCH_BLOCK, MR_FETCH_BLOCK) : t,
                  PIECE_MAX);
}

static bool store_room(struct mr_fetch_source *base)
{
    const struct store_source *s = self(base);
    return s->free_pieces && !s->current;
}

/* Through an open file, or by path where the file would not stay open. */
static int choose_file(struct store_source *s, struct mr_fetch_job *j, struct mr_error *err)
{
    const struct mr_fetch *f = &j->plan;
    j->file = NULL;
    if (f->n_reads == 1 && f->room <= piece_bytes(s) && !mr_file_cache_has(s->cache, f->pos.file) &&
        (!keeps(s, f->pos.file) || (s->o.scattered && s->n_files > mr_file_cache_files(s->cache))))
        return mr_dataset_file_path(s->ds, f->pos.file, j->path, err);
    int rc = mr_file_cache_get(s->cache, f->pos.file, &j->file, err);
    return rc == MR_FILE_CACHE_BUSY ? MR_FETCH_LATER : rc;
}

/* Gives the next part of the current job to a piece. */
static void issue_piece(struct store_source *s)
{
    struct mr_fetch_job *j = s->current;
    struct piece *p = s->free_pieces;
    const struct mr_fetch_read *r = &j->plan.read[j->now];
    uint64_t len = MR_MIN(r->to - j->issued, piece_bytes(s));
    assert(j->issued < r->wanted_to); /* blocks behind the last wanted byte are not read by themselves */
    s->free_pieces = p->next_free;
    p->job = j;
    p->read = r;
    p->io = (struct mr_io){.op = j->file ? MR_IO_READ : MR_IO_READ_PATH,
                           .flags = s->o.open_flags,
                           .buf = j->place + r->at + (j->issued - r->from),
                           .len = len,
                           .enough = MR_MIN(len, r->wanted_to - j->issued),
                           .offset = j->issued,
                           .user = p};
    if (j->file)
        p->io.object = j->file->object;
    else
        p->io.path = j->path;
    j->issued += len;
    j->pieces++;
    s->pending[s->n_pending++] = &p->io;
    if (j->issued < r->to)
        return;
    if (++j->now < j->plan.n_reads)
        j->issued = j->plan.read[j->now].from;
    else
        s->current = NULL;
}

static void issue(struct store_source *s)
{
    while (s->current && s->free_pieces)
        issue_piece(s);
}

static int store_start(struct mr_fetch_source *base, struct mr_fetch_job *j, struct mr_error *err)
{
    struct store_source *s = self(base);
    assert(!s->current && s->free_pieces); /* S3, S4: the caller asked for room */
    int rc = choose_file(s, j, err);
    if (rc)
        return rc;
    j->code = 0;
    j->is_short = false;
    j->got = j->submit_ns = 0;
    j->now = j->pieces = 0;
    j->issued = j->plan.read[0].from;
    s->current = j;
    issue(s);
    return 0;
}

/* ---- completing ---- */

static void finish(struct store_source *s, struct mr_fetch_job *j)
{
    if (j->file)
        mr_file_cache_put(j->file); /* S2 */
    j->file = NULL;
    s->base.read_bytes += j->got;
    j->next = NULL;
    *s->done_tail = j;
    s->done_tail = &j->next;
}

/* The rest of the job need not be read. */
static void fail(struct store_source *s, struct mr_fetch_job *j, int code, const struct mr_error *why)
{
    if (j->code == 0) {
        j->code = code;
        j->error = *why;
    }
    j->now = j->plan.n_reads;
    s->current = s->current == j ? NULL : s->current;
}

/* A piece is back, or nobody waits for it any more. */
static void free_piece(struct store_source *s, struct piece *p)
{
    struct mr_fetch_job *j = p->job;
    p->submitted = false;
    p->next_free = s->free_pieces;
    s->free_pieces = p;
    if (--j->pieces == 0 && j->now == j->plan.n_reads)
        finish(s, j);
}

static void end_piece(struct store_source *s, struct piece *p)
{
    struct mr_fetch_job *j = p->job;
    struct mr_error why;
    if (p->io.result < 0) {
        fail(s, j, mr_io_error(&p->io, &why), &why);
    } else {
        uint64_t got = (uint64_t)p->io.result;
        j->got += got;
        if (got < p->io.len && p->io.offset + got < p->read->wanted_to)
            j->is_short = true;
    }
    free_piece(s, p);
}

/* The queue belongs to the thread that makes it. */
static int need_queue(struct store_source *s, struct mr_error *err)
{
    if (MR_LIKELY(s->ioq != NULL))
        return 0;
    int rc = s->o.store->ops->ioq_create(s->o.store, s->o.depth, &s->ioq, err);
    if (rc < 0)
        return rc;
    if (s->o.n_slabs)
        s->o.store->ops->ioq_register(s->ioq, s->o.slab, s->o.n_slabs, NULL); /* without it reads only cost more */
    return 0;
}

/* Submits what is prepared; if the queue refuses, the jobs fail with its reason. */
static void store_flush(struct mr_fetch_source *base)
{
    struct store_source *s = self(base);
    struct mr_error err;
    unsigned n = s->n_pending;
    if (!n || need_queue(s, &err)) /* reap says why there is none */
        return;
    int rc = s->o.store->ops->ioq_submit(s->ioq, s->pending, n, &err);
    uint64_t now = s->o.stamps ? mr_now_ns() : 0;
    s->n_pending = 0;
    if (rc >= 0)
        s->base.in_flight += n;
    for (unsigned i = 0; i < n; i++) {
        struct piece *p = s->pending[i]->user;
        p->submitted = rc >= 0;
        p->job->submit_ns = p->job->submit_ns ? p->job->submit_ns : now;
        if (rc < 0) {
            fail(s, p->job, rc, &err);
            free_piece(s, p);
        }
    }
}

/* Nothing is written to a place any more once the queue is freed (S5). */
static void give_up_queue(struct store_source *s, int code, struct mr_error *err)
{
    s->o.store->ops->ioq_free(s->ioq);
    s->ioq = NULL;
    s->base.in_flight = 0;
    mr_error_context(err, "waiting for the storage queue");
    for (unsigned i = 0; i < s->o.depth; i++)
        if (s->pieces[i].submitted) {
            fail(s, s->pieces[i].job, code, err);
            free_piece(s, &s->pieces[i]);
        }
}

static struct mr_fetch_job *take_done(struct store_source *s)
{
    struct mr_fetch_job *done = s->done;
    s->done = NULL;
    s->done_tail = &s->done;
    return done;
}

/* No more than a quarter at once, so that the queue is filled up before all of it has been dealt with. */
static void wait_for_some(struct store_source *s)
{
    struct mr_error err;
    uint64_t start = mr_now_ns();
    atomic_store_explicit(&s->base.wait_since, start, memory_order_relaxed);
    int n = s->o.store->ops->ioq_reap(s->ioq, 1, MR_MAX(s->o.depth / 4, 1u), s->reaped, &err);
    atomic_store_explicit(&s->base.wait_since, 0, memory_order_relaxed);
    s->base.reaped_ns = mr_now_ns();
    s->base.wait_ns += s->base.reaped_ns - start;
    if (MR_UNLIKELY(n < 0)) { /* stores repeat interrupted waits themselves */
        give_up_queue(s, n, &err);
        return;
    }
    for (int i = 0; i < n; i++) {
        s->base.in_flight--;
        end_piece(s, s->reaped[i]->user);
    }
}

static int store_reap(struct mr_fetch_source *base, struct mr_fetch_job **done, struct mr_error *err)
{
    struct store_source *s = self(base);
    int rc = need_queue(s, err);
    if (rc) {
        *done = NULL;
        return rc;
    }
    store_flush(base);
    if (s->base.in_flight && !s->done)
        wait_for_some(s);
    issue(s);
    *done = take_done(s);
    return 0;
}

/* What waits for a queue that cannot be made, or is not wanted any more. */
static void drop_unsent(struct store_source *s)
{
    struct mr_error why;
    int code = mr_error_plain(&why, MR_E_INTERRUPTED, "the reading was stopped");
    unsigned n = s->n_pending;
    struct mr_fetch_job *j = s->current;
    s->n_pending = 0;
    if (j) {
        bool last = j->pieces == 0;
        fail(s, j, code, &why);
        if (last)
            finish(s, j);
    }
    for (unsigned i = 0; i < n; i++) {
        struct piece *p = s->pending[i]->user;
        fail(s, p->job, code, &why);
        free_piece(s, p);
    }
}

static void store_drain(struct mr_fetch_source *base, struct mr_fetch_job **done)
{
    struct store_source *s = self(base);
    drop_unsent(s);
    while (s->base.in_flight)
        wait_for_some(s);
    assert(!s->current && s->n_pending == 0);
    *done = take_done(s);
}

static void store_leave(struct mr_fetch_source *base)
{
    struct store_source *s = self(base);
    if (s->ioq)
        s->o.store->ops->ioq_free(s->ioq);
    s->ioq = NULL;
}

/* ---- making and freeing ---- */

static void store_free(struct mr_fetch_source *base)
{
    struct store_source *s = self(base);
    store_leave(base);
    mr_file_cache_free(s->cache);
    free(s->pieces);
    free(s->pending);
    free(s->reaped);
    free(s);
}

static const struct mr_fetch_source_ops store_ops = {
    .name = "store",
    .kind = MR_FETCH_STORE,
    .borrow = store_borrow,
    .read = store_read,
    .read_file = store_read_file,
    .room = store_room,
    .start = store_start,
    .flush = store_flush,
    .reap = store_reap,
    .drain = store_drain,
    .leave = store_leave,
    .free = store_free,
};

static int make_queue(struct store_source *s, struct mr_error *err)
{
    unsigned depth = s->o.depth;
    s->pieces = calloc(depth, sizeof(*s->pieces));
    s->pending = calloc(depth, sizeof(struct mr_io *));
    s->reaped = calloc(depth, sizeof(struct mr_io *));
    if (!s->pieces || !s->pending || !s->reaped)
        return mr_error_set(err, -ENOMEM, "cannot make a queue of %u requests", depth);
    for (unsigned i = 0; i < depth; i++) {
        s->pieces[i].next_free = s->free_pieces;
        s->free_pieces = &s->pieces[i];
    }
    return 0;
}

int mr_fetch_store_create(const struct mr_dataset *ds, const struct mr_fetch_store_options *o,
                          struct mr_fetch_source **out, struct mr_error *err)
{
    struct store_source *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot fetch from a store");
    s->base.ops = &store_ops;
    s->ds = ds;
    s->o = *o;
    s->o.store = o->store ? o->store : mr_dataset_store(ds);
    s->n_files = mr_manifest_get_info(mr_dataset_manifest(ds))->files;
    s->done_tail = &s->done;
    s->plain = !o->transfer_bytes;
    int rc = mr_file_cache_create(ds, s->o.store, o->open_flags, o->open_files, &s->cache, err);
    if (!rc && o->depth)
        rc = make_queue(s, err);
    if (rc)
        store_free(&s->base);
    else
        *out = &s->base;
    return rc;
}
