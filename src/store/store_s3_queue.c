/* Queues of the store s3: one lane each, all its requests at once up to the lane's limit.
 *
 *   mr_io ──> flight ──> pieces (ranges, one op each) ──> lane ──> land ──> done list ──> reap
 *
 * Invariants
 *  1. A request is with the caller, under way (a flight with `left` > 0) or on the done list.
 *  2. A flight's pieces stay put until the lane hands them back; the flight ends with the last of them.
 *  3. The pieces of one read are of one version of the object: their ETags agree, or it fails with MR_E_CHANGED. */
#include "base/common.h"
#include "store/store_s3.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct flight {
    struct mr_io *io;
    struct flight *next;
    char bucket[MR_S3_BUCKET_MAX];
    unsigned left, pieces;
    int code;
    uint64_t got, short_at; /* short_at: a piece ended there; what follows does not count */
    char etag[MR_S3_ETAG_MAX];
};

struct piece {
    struct mr_s3_op op;
    struct flight *flight;
    struct piece *next_free;
};

struct s3_queue {
    struct mr_ioq base;
    struct mr_s3_lane *lane;
    struct flight *flights, *free_flights;
    struct piece *free_pieces;
    struct mr_io *done, **done_tail;
    unsigned in_flight, n_done;
};

void mr_s3_ioq_free(struct mr_ioq *base)
{
    struct s3_queue *q = (struct s3_queue *)base;
    struct mr_io *done;
    if (!q)
        return;
    while (q->in_flight)
        base->store->ops->ioq_reap(base, 1, 1, &done, NULL);
    while (q->free_pieces) {
        struct piece *p = q->free_pieces;
        q->free_pieces = p->next_free;
        free(p);
    }
    if (q->lane)
        mr_s3_lane_put(q->lane);
    free(q->flights);
    free(q);
}

int mr_s3_ioq_create(struct mr_store *base, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    int rc = mr_ioq_check_depth(depth, err);
    if (rc)
        return rc;
    struct s3_queue *q = calloc(1, sizeof(*q));
    struct flight *flights = q ? calloc(depth, sizeof(*flights)) : NULL;
    if (!flights) {
        free(q);
        return mr_error_set(err, -ENOMEM, "cannot create an I/O queue of depth %u", depth);
    }
    q->base = (struct mr_ioq){.store = base, .depth = depth};
    q->flights = flights;
    q->done_tail = &q->done;
    for (unsigned i = 0; i < depth; i++) {
        flights[i].next = q->free_flights;
        q->free_flights = &flights[i];
    }
    rc = mr_s3_lane_get(store_of(base)->client, &q->lane, err);
    if (rc) {
        mr_s3_ioq_free(&q->base);
        return rc;
    }
    *out = &q->base;
    return 0;
}

static void complete(struct s3_queue *q, struct mr_io *io, int64_t result)
{
    io->result = result;
    if (store_of(q->base.store)->timing)
        io->done_ns = mr_now_ns();
    io->next = NULL;
    *q->done_tail = io;
    q->done_tail = &io->next;
    q->n_done++;
}

static void end_flight(struct s3_queue *q, struct flight *f)
{
    struct s3_store *s = store_of(q->base.store);
    const struct mr_io *io = f->io;
    const char *path = io->op == MR_IO_READ_PATH ? io->path : io->object->path;
    struct mr_error why;
    if (!f->code && f->got && *f->etag && io->op == MR_IO_READ_PATH)
        if ((f->code = mr_s3_store_check_etag(s, path, f->etag, &why)))
            mr_store_note_failure(path, &why);
    uint64_t n = MR_MIN(f->got, f->short_at);
    complete(q, f->io, f->code ? f->code : (int64_t)n);
    f->io = NULL;
    f->next = q->free_flights;
    q->free_flights = f;
}

/* One piece has come back. */
static void land(struct s3_queue *q, struct piece *p)
{
    struct flight *f = p->flight;
    struct mr_s3_op *op = &p->op;
    const char *path = f->io->op == MR_IO_READ_PATH ? f->io->path : f->io->object->path;
    if (op->code && !f->code) {
        f->code = op->code;
        mr_store_note_failure(path, &op->why);
    }
    if (!op->code && op->got && *f->etag && strcmp(f->etag, op->etag) != 0)
        f->code = MR_E_CHANGED;
    if (!op->code && op->got && !*f->etag)
        memcpy(f->etag, op->etag, sizeof f->etag);
    f->got += op->got;
    if (!op->code && op->got < op->room)
        f->short_at = MR_MIN(f->short_at, op->from + op->got - f->io->offset);
    mr_s3_op_done(op);
    p->next_free = q->free_pieces;
    q->free_pieces = p;
    assert(f->left > 0); /* invariant 2 */
    if (--f->left == 0)
        end_flight(q, f);
}

static struct piece *get_piece(struct s3_queue *q)
{
    struct piece *p = q->free_pieces;
    if (!p)
        return calloc(1, sizeof(*p));
    q->free_pieces = p->next_free;
    return p;
}

/* Where the bytes are, and which of them: 0, or what the request ends with at once (1: nothing to read). */
static int aim(struct s3_queue *q, struct mr_io *io, struct flight *f, struct mr_s3_op *op, uint64_t *len)
{
    *op = (struct mr_s3_op){.verb = MR_S3_GET, .ranged = true, .verb_text = "read", .bucket = f->bucket};
    *len = io->len;
    if (io->op == MR_IO_READ_PATH) {
        struct mr_error why;
        int rc = mr_s3_split(io->path, f->bucket, &op->key, &why);
        if (rc)
            mr_store_note_failure(io->path, &why);
        return rc ? rc : *len == 0;
    }
    const struct s3_object *o = (const struct s3_object *)io->object;
    if (o->upload)
        return -EBADF;
    (void)q;
    op->bucket = o->bucket;
    op->key = o->key;
    op->if_match = o->info.etag;
    if (o->has_info)
        *len = io->offset < o->info.bytes ? MR_MIN(*len, o->info.bytes - io->offset) : 0;
    return *len == 0;
}

static void take_off(struct s3_queue *q, struct mr_io *io)
{
    uint64_t range = store_of(q->base.store)->range, len;
    struct flight *f = q->free_flights;
    struct mr_s3_op plan;
    q->free_flights = f->next;
    *f = (struct flight){.io = io, .short_at = UINT64_MAX};
    int rc = aim(q, io, f, &plan, &len);
    for (uint64_t at = 0; !rc && at < len; at += range) {
        struct piece *p = get_piece(q);
        if (!p) {
            rc = -ENOMEM;
            break;
        }
        *p = (struct piece){.op = plan, .flight = f};
        p->op.from = io->offset + at;
        p->op.place = (char *)io->buf + at;
        p->op.room = (size_t)MR_MIN(range, len - at);
        f->left++;
        mr_s3_lane_start(q->lane, &p->op);
    }
    f->code = rc < 0 ? rc : 0;
    if (f->left == 0)
        end_flight(q, f);
}

int mr_s3_ioq_submit(struct mr_ioq *base, struct mr_io *const *ios, unsigned n, struct mr_error *err)
{
    struct s3_queue *q = (struct s3_queue *)base;
    int rc = mr_ioq_check_room(base, q->in_flight, n, err);
    if (rc)
        return rc;
    uint64_t now = store_of(base->store)->timing ? mr_now_ns() : 0;
    q->in_flight += n;
    for (unsigned i = 0; i < n; i++) {
        struct mr_io *io = ios[i];
        io->submit_ns = now;
        if (io->op == MR_IO_READ || io->op == MR_IO_READ_PATH)
            take_off(q, io);
        else
            complete(q, io, mr_io_exec_generic(base->store, io)); /* a write copies into its upload */
    }
    return 0;
}

int mr_s3_ioq_reap(struct mr_ioq *base, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    struct s3_queue *q = (struct s3_queue *)base;
    (void)err;
    min = MR_MIN(MR_MIN(min, max), q->in_flight);
    for (struct mr_s3_op *op; (op = mr_s3_lane_wait(q->lane, q->n_done < min ? UINT64_MAX : 0));)
        land(q, (struct piece *)op);
    unsigned n = 0;
    while (n < max && q->done) {
        done[n++] = q->done;
        q->done = q->done->next;
    }
    if (!q->done)
        q->done_tail = &q->done;
    assert(q->n_done >= n && q->in_flight >= n); /* invariant 1 */
    q->n_done -= n;
    q->in_flight -= n;
    return (int)n;
}

int mr_s3_ioq_register(struct mr_ioq *base, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    return mr_ioq_check_register(((struct s3_queue *)base)->in_flight, iov, n, err);
}
