/* The io_uring backend: posix files whose queues are rings, one ring per queue, so one thread keeps many requests in
 * flight without helpers. Direct calls, paths and page-cache control are posix's own.
 *
 *    submit ──> SQEs ──(one system call per batch)──> kernel ──> CQEs ──> pieces left? ──yes──> SQE again
 *                                                                             └──no──> done list ──> reap
 *
 * A READ_PATH is a linked pair: open into a registered descriptor, read; no descriptor table, no wake-up between the
 * steps, and one CQE: an open that succeeds says nothing. There is no close: the next open into the same place replaces
 * the file, and when nothing is in flight all are closed by one call. A READ or WRITE is cut into pieces where the
 * kernel's transfer limit or direct I/O's alignment asks for it; pieces of one request follow each other.
 *
 * io_uring is probed when the store is opened and again by every queue; where it is missing, forbidden (containers
 * often forbid it) or lacks registered descriptors, the queue is served by posix threads, with one note in the log.
 *
 * Invariants (a queue belongs to one thread, so there is no lock)
 *  1. A slot is idle, or holds one request for which exactly one CQE is still to come.
 *  2. At most 2 SQEs per slot are outstanding, and both rings are sized for 2 x depth: neither can overflow.
 *  3. A slot becomes idle only after its CQE and with its bounce buffer given back.
 *  4. Nothing is allocated by submit and reap in the steady state.
 *  5. fixed[] is sorted by address, its ranges are disjoint, and entry i is buffer i of the ring; it changes only with
 *     nothing in flight. */
#include "base/common.h"
#include "base/log.h"
#include "store/store_internal.h"
#include "store/store_posix.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct slot {
    struct mr_io *io;
    size_t moved;
    unsigned retries;
    bool direct;  /* READ_PATH is opened with O_DIRECT */
    void *bounce; /* kept from the first piece that needs it to the end of the request */
    bool bounced; /* the piece in flight goes through it */
    size_t skip;  /* bytes in front of the wanted ones in the bounce buffer */
    size_t piece; /* bytes of the request that the piece in flight covers */
    struct iovec iov[2];
};

struct uringq {
    struct mr_ioq base;
    struct mr_posix_store *store;
    struct mr_ioq *fallback; /* a queue of posix threads; everything else is unused then */
    struct io_uring ring;
    bool needs_enable; /* created disabled, so that the first submitter becomes the ring's owner */
    bool defer;
    unsigned in_flight, idle_count;
    unsigned *idle;
    struct mr_io *done, **done_tail;
    unsigned done_count;
    bool to_submit;
    bool holds_files;    /* registered descriptors may be open */
    int *no_files;       /* depth times -1 */
    struct iovec *fixed; /* registered buffers */
    unsigned fixed_count;
    struct slot slot[];
};

struct uring_store {
    struct mr_posix_store posix;
    bool available;
    atomic_bool noted, noted_fixed;
};

/* Orders the end of one ring before the start of the next, which may get the same addresses: the kernel does so anyway,
 * but liburing unmaps and maps by itself, so nothing else would tell a race detector. */
static atomic_uint rings_ended;

static void note_fallback(struct uring_store *s, int code)
{
    if (!atomic_exchange(&s->noted, true))
        mr_log(MR_LOG_NOTE, "io_uring is not available (%s); store 'uring' uses posix threads", strerror(-code));
}

/* ---- finishing ---- */

static void finish(struct uringq *q, struct slot *s, int64_t result)
{
    assert(s->io && q->idle_count < q->base.depth); /* invariants 1 and 3 */
    struct mr_io *io = s->io;
    if (s->bounce) {
        mr_bounce_give(&q->store->bounce, s->bounce);
        s->bounce = NULL;
    }
    s->io = NULL;
    q->idle[q->idle_count++] = (unsigned)(s - q->slot);
    io->result = result;
    if (q->store->timing)
        io->done_ns = mr_now_ns();
    io->next = NULL;
    *q->done_tail = io;
    q->done_tail = &io->next;
    q->done_count++;
}

/* What is left of the request, by plain system calls: the rare cases that a ring cannot do in one chain. */
static void finish_by_calls(struct uringq *q, struct slot *s)
{
    struct mr_io rest = *s->io;
    rest.buf = (char *)rest.buf + s->moved;
    rest.len -= s->moved;
    rest.offset += s->moved;
    int64_t r = mr_posix_exec(&q->store->base, &rest);
    finish(q, s, r < 0 ? r : (int64_t)s->moved + r);
}

/* ---- preparing ---- */

static struct io_uring_sqe *new_sqe(struct uringq *q)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&q->ring); /* never NULL: invariant 2 */
    if (!e) {
        io_uring_submit(&q->ring);
        e = io_uring_get_sqe(&q->ring);
    }
    q->to_submit = true;
    return e;
}

/* After preparing: older versions of liburing clear it there. */
static void mark(const struct uringq *q, const struct slot *s, struct io_uring_sqe *e)
{
    io_uring_sqe_set_data64(e, (uint64_t)(s - q->slot));
}

static bool is_aligned(const void *p, uint64_t align)
{
    return (uintptr_t)p % align == 0;
}

/* The registered buffer that holds the whole range, or -1 (invariant 5). */
static int find_fixed(const struct uringq *q, const void *buf, size_t len)
{
    uintptr_t from = (uintptr_t)buf;
    unsigned lo = 0, hi = q->fixed_count;
    while (lo < hi) { /* the first that starts behind `from` */
        unsigned mid = lo + (hi - lo) / 2;
        if ((uintptr_t)q->fixed[mid].iov_base <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return -1;
    const struct iovec *v = &q->fixed[lo - 1];
    size_t skip = from - (uintptr_t)v->iov_base;
    return skip <= v->iov_len && len <= v->iov_len - skip ? (int)(lo - 1) : -1;
}

static void fill_read(const struct uringq *q, struct io_uring_sqe *e, int fd, const struct iovec *v, uint64_t at)
{
    int index = find_fixed(q, v->iov_base, v->iov_len);
    if (index < 0)
        io_uring_prep_read(e, fd, v->iov_base, (unsigned)v->iov_len, at);
    else
        io_uring_prep_read_fixed(e, fd, v->iov_base, (unsigned)v->iov_len, at, index);
}

/* Where the next piece of a read lands: in the caller's buffer, or in a bounce buffer. False: no memory. */
static bool plan_read(struct uringq *q, struct slot *s, unsigned off_align, unsigned mem_align, struct iovec *v,
                      uint64_t *at)
{
    size_t left = s->io->len - s->moved;
    char *to = (char *)s->io->buf + s->moved;
    uint64_t offset = s->io->offset + s->moved;
    s->skip = 0;
    s->bounced = false;
    *at = offset;
    if (!off_align || (offset % off_align == 0 && is_aligned(to, mem_align) && left >= off_align)) {
        s->piece = MR_MIN(off_align ? left - left % off_align : left, MR_STORE_MAX_TRANSFER);
        *v = (struct iovec){.iov_base = to, .iov_len = s->piece};
        return true;
    }
    if (!s->bounce && !(s->bounce = mr_bounce_take(&q->store->bounce)))
        return false;
    s->bounced = true;
    s->skip = (size_t)(offset % off_align);
    size_t want = MR_MIN(MR_ALIGN_UP(s->skip + MR_MIN(left, MR_BOUNCE_BYTES), off_align), MR_BOUNCE_BYTES);
    s->piece = MR_MIN(want - s->skip, left);
    *v = (struct iovec){.iov_base = s->bounce, .iov_len = want};
    *at = offset - s->skip;
    return true;
}

static void prep_read(struct uringq *q, struct slot *s)
{
    const struct mr_posix_object *o = (const struct mr_posix_object *)s->io->object;
    struct iovec v;
    uint64_t at;
    if (!plan_read(q, s, atomic_load_explicit(&o->off_align, memory_order_relaxed), o->mem_align, &v, &at)) {
        finish(q, s, -ENOMEM);
        return;
    }
    struct io_uring_sqe *e = new_sqe(q);
    fill_read(q, e, o->fd, &v, at);
    mark(q, s, e);
}

static void prep_write(struct uringq *q, struct slot *s)
{
    const struct mr_posix_object *o = (const struct mr_posix_object *)s->io->object;
    /* Whole pages directly, the ends through the page cache; see store_posix_io.c. */
    size_t align = atomic_load_explicit(&o->off_align, memory_order_relaxed) ? MR_BOUNCE_ALIGN : 0;
    size_t left = s->io->len - s->moved;
    char *from = (char *)s->io->buf + s->moved;
    uint64_t offset = s->io->offset + s->moved;
    int fd = o->fd;
    s->piece = MR_MIN(left, MR_STORE_MAX_TRANSFER);
    if (align && (offset % align || left < align)) {
        fd = o->fd_buffered;
        s->piece = MR_MIN(left, align - (size_t)(offset % align));
    } else if (align) {
        s->piece -= s->piece % align;
        if (!is_aligned(from, o->mem_align)) {
            if (!s->bounce && !(s->bounce = mr_bounce_take(&q->store->bounce))) {
                finish(q, s, -ENOMEM);
                return;
            }
            s->piece = MR_MIN(s->piece, MR_BOUNCE_BYTES);
            memcpy(s->bounce, from, s->piece);
            from = s->bounce;
        }
    }
    struct io_uring_sqe *e = new_sqe(q);
    int index = find_fixed(q, from, s->piece);
    if (index < 0)
        io_uring_prep_write(e, fd, from, (unsigned)s->piece, offset);
    else
        io_uring_prep_write_fixed(e, fd, from, (unsigned)s->piece, offset, index);
    mark(q, s, e);
}

/* The range of a READ_PATH as one read; false when it takes more than one and plain calls must do it. */
static bool plan_path(struct uringq *q, struct slot *s, unsigned *count, uint64_t *at)
{
    const struct mr_io *io = s->io;
    size_t align = s->direct ? MR_BOUNCE_ALIGN : 1;
    *count = 1;
    if (io->len > MR_STORE_MAX_TRANSFER)
        return false;
    bool placed = io->offset % align == 0 && is_aligned(io->buf, align);
    size_t tail = io->len % align;
    if (s->direct && placed && tail && io->len > align) {
        /* The aligned front straight to the caller, the rest through the bounce buffer. */
        if (!(s->bounce = mr_bounce_take(&q->store->bounce)))
            return false;
        s->iov[0] = (struct iovec){.iov_base = io->buf, .iov_len = io->len - tail};
        s->iov[1] = (struct iovec){.iov_base = s->bounce, .iov_len = align};
        *count = 2;
        *at = io->offset;
        s->bounced = true;
        s->skip = 0;
        s->piece = io->len;
        return true;
    }
    return plan_read(q, s, s->direct ? MR_BOUNCE_ALIGN : 0, MR_BOUNCE_ALIGN, s->iov, at) && s->piece == io->len;
}

static void prep_path(struct uringq *q, struct slot *s)
{
    unsigned count, index = (unsigned)(s - q->slot);
    uint64_t at;
    if (!plan_path(q, s, &count, &at)) {
        finish_by_calls(q, s);
        return;
    }
    struct io_uring_sqe *e = new_sqe(q);
    io_uring_prep_openat_direct(e, AT_FDCWD, s->io->path, O_RDONLY | (s->direct ? O_DIRECT : 0), 0, index);
    e->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS; /* if it fails, its CQE is the only one */
    mark(q, s, e);
    e = new_sqe(q);
    if (count == 1)
        fill_read(q, e, (int)index, &s->iov[0], at);
    else
        io_uring_prep_readv(e, (int)index, s->iov, count, at);
    e->flags |= IOSQE_FIXED_FILE;
    mark(q, s, e);
    q->holds_files = true;
}

static void prep(struct uringq *q, struct slot *s)
{
    if (s->io->op == MR_IO_READ_PATH) {
        prep_path(q, s);
    } else if (s->io->op == MR_IO_FSYNC) {
        struct io_uring_sqe *e = new_sqe(q);
        io_uring_prep_fsync(e, ((struct mr_posix_object *)s->io->object)->fd, 0);
        mark(q, s, e);
    } else if (s->io->len == 0) {
        finish(q, s, 0);
    } else if (s->io->op == MR_IO_WRITE) {
        prep_write(q, s);
    } else {
        prep_read(q, s);
    }
}

/* ---- completing ---- */

/* Puts what a read brought into the bounce buffer where it belongs; returns how many wanted bytes came. */
static size_t land(struct slot *s, size_t got)
{
    if (!s->bounced)
        return got;
    if (s->io->op == MR_IO_READ_PATH && s->iov[0].iov_base != s->bounce) { /* two places: see plan_path */
        size_t front = s->iov[0].iov_len;
        if (got <= front)
            return got;
        size_t extra = MR_MIN(got - front, s->io->len - front);
        memcpy((char *)s->io->buf + front, s->bounce, extra);
        return front + extra;
    }
    size_t n = got > s->skip ? MR_MIN(got - s->skip, s->piece) : 0;
    memcpy((char *)s->io->buf + s->moved, (char *)s->bounce + s->skip, n);
    return n;
}

static void give_bounce(struct uringq *q, struct slot *s)
{
    if (s->bounce)
        mr_bounce_give(&q->store->bounce, s->bounce);
    s->bounce = NULL;
}

/* `code` is the read's result, or the open's when that failed. */
static void path_done(struct uringq *q, struct slot *s, int code)
{
    if ((code == -EINTR || code == -EAGAIN) && ++s->retries < MR_STORE_MAX_RETRIES) {
        give_bounce(q, s);
        prep(q, s);
    } else if (code == -ECANCELED) { /* the kernel could not take the read and tells only that the open was given up */
        give_bounce(q, s);
        finish_by_calls(q, s);
    } else if (code == -EINVAL && s->direct) {
        mr_posix_note_no_direct(q->store, s->io->path);
        s->direct = false;
        give_bounce(q, s);
        prep(q, s);
    } else if (code < 0) {
        finish(q, s, code);
    } else {
        finish(q, s, (int64_t)land(s, (size_t)code));
    }
}

static bool is_direct(const struct mr_io *io)
{
    return atomic_load_explicit(&((struct mr_posix_object *)io->object)->off_align, memory_order_relaxed) != 0;
}

/* A piece of a READ or WRITE, or an FSYNC, has ended. */
static void move_done(struct uringq *q, struct slot *s, int code)
{
    if ((code == -EINTR || code == -EAGAIN) && ++s->retries < MR_STORE_MAX_RETRIES) {
        prep(q, s);
    } else if (s->io->op == MR_IO_FSYNC) {
        finish(q, s, code);
    } else if (code == -EINVAL && is_direct(s->io)) {
        finish_by_calls(q, s); /* posix takes this object off direct I/O and says so */
    } else if (code < 0) {
        finish(q, s, code);
    } else {
        size_t n = land(s, (size_t)code);
        s->moved += n;
        if (n == 0 || s->moved == s->io->len || (s->io->enough && s->moved >= s->io->enough))
            finish(q, s, (int64_t)s->moved);
        else
            prep(q, s);
    }
}

static void harvest(struct uringq *q)
{
    struct io_uring_cqe *c;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&q->ring, head, c)
    {
        count++;
        struct slot *s = &q->slot[io_uring_cqe_get_data64(c)];
        if (s->io->op == MR_IO_READ_PATH)
            path_done(q, s, c->res);
        else
            move_done(q, s, c->res);
    }
    io_uring_cq_advance(&q->ring, count);
}

/* ---- the queue ---- */

/* Hands prepared SQEs to the kernel, takes what has ended, and waits for `wait` completions. Taking is part of every
 * call: it is what starts the read behind an open, and it often saves the next call. */
static int enter(struct uringq *q, unsigned wait)
{
    if (q->needs_enable) {
        /* By number: liburing 2.3 declares io_uring_enable_rings but its shared library lacks it. */
        if (syscall(__NR_io_uring_register, q->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
            return -errno;
        q->needs_enable = false;
        io_uring_register_ring_fd(&q->ring); /* saves a lookup per call; a refusal changes nothing */
    }
    for (unsigned tries = 0;; tries++) {
        int rc = wait ? io_uring_submit_and_wait(&q->ring, wait) : io_uring_submit_and_get_events(&q->ring);
        if (rc >= 0) {
            q->to_submit = io_uring_sq_ready(&q->ring) > 0;
            return 0;
        }
        if ((rc != -EINTR && rc != -EBUSY && rc != -EAGAIN) || tries >= MR_STORE_MAX_RETRIES)
            return rc;
        if (rc == -EINTR)
            continue;
        /* BUSY and AGAIN: the kernel is short of something. Taking completions helps; else give it a moment. */
        if (io_uring_cq_ready(&q->ring) > 0)
            return 0;
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_NS_PER_MS, NULL);
    }
}

static int uring_submit(struct mr_ioq *base, struct mr_io *const *ios, unsigned n, struct mr_error *err)
{
    struct uringq *q = (struct uringq *)base;
    if (q->fallback)
        return mr_workq_submit(q->fallback, ios, n, err);
    int rc = mr_ioq_check_room(base, q->in_flight, n, err);
    if (rc < 0 || n == 0)
        return rc;
    uint64_t now = q->store->timing ? mr_now_ns() : 0;
    for (unsigned i = 0; i < n; i++) {
        struct slot *s = &q->slot[q->idle[--q->idle_count]];
        *s = (struct slot){.io = ios[i], .direct = q->store->direct || (ios[i]->flags & MR_OBJ_DIRECT)};
        ios[i]->submit_ns = now;
        q->in_flight++;
        prep(q, s);
    }
    /* A failure here is not lost: reap enters the kernel again and reports it. */
    if (q->to_submit)
        (void)enter(q, 0);
    return 0;
}

/* Closes what the last READ_PATHs have left open. */
static void close_files(struct uringq *q)
{
    q->holds_files = io_uring_register_files_update(&q->ring, 0, q->no_files, q->base.depth) < 0;
}

static int uring_reap(struct mr_ioq *base, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    struct uringq *q = (struct uringq *)base;
    if (q->fallback)
        return mr_workq_reap(q->fallback, min, max, done, err);
    min = MR_MIN(MR_MIN(min, max), q->in_flight);
    harvest(q);
    bool entered = false;
    while (q->done_count < min || q->to_submit || (!entered && q->defer && q->done_count == 0 && q->in_flight > 0)) {
        int rc = enter(q, q->done_count < min ? min - q->done_count : 0);
        if (rc < 0)
            return mr_error_set(err, rc, "io_uring failed with %u requests in flight", q->in_flight);
        entered = true;
        harvest(q);
    }
    unsigned n = 0;
    while (n < max && q->done) {
        done[n++] = q->done;
        q->done = q->done->next;
    }
    if (!q->done)
        q->done_tail = &q->done;
    q->done_count -= n;
    assert(q->in_flight >= n && q->idle_count + q->in_flight >= q->base.depth); /* invariant 1 */
    q->in_flight -= n;
    if (q->in_flight == 0 && q->holds_files)
        close_files(q);
    return (int)n;
}

static void uring_free(struct mr_ioq *base)
{
    if (!base)
        return;
    struct uringq *q = (struct uringq *)base;
    if (q->fallback) {
        mr_workq_free(q->fallback);
    } else {
        struct mr_io *done;
        while (q->in_flight > 0 && uring_reap(base, 1, 1, &done, NULL) > 0) {
        }
        atomic_fetch_add(&rings_ended, 1);
        io_uring_queue_exit(&q->ring);
    }
    free(q->fixed);
    free(q->no_files);
    free(q->idle);
    free(q);
}

/* ---- registered buffers ---- */

#define FIXED_MAX_BYTES ((size_t)1 << 30) /* of one buffer, by the kernel; longer ones are registered in pieces */
#define FIXED_MAX 1024u                   /* what every kernel takes */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct iovec *)a)->iov_base, y = (uintptr_t)((const struct iovec *)b)->iov_base;
    return (x > y) - (x < y);
}

/* Cuts, sorts and checks; the ranges go to *out, which the caller frees. How many, 0 when they are too many. */
static int cut_fixed(const struct iovec *iov, unsigned n, struct iovec **out, struct mr_error *err)
{
    struct iovec *list = malloc(FIXED_MAX * sizeof(*list));
    unsigned count = 0;
    if (!list)
        return mr_error_set(err, -ENOMEM, "cannot register %u buffers", n);
    for (unsigned i = 0; i < n; i++)
        for (size_t at = 0; at < iov[i].iov_len; at += FIXED_MAX_BYTES) {
            if (count == FIXED_MAX) {
                free(list);
                return 0;
            }
            list[count++] = (struct iovec){.iov_base = (char *)iov[i].iov_base + at,
                                           .iov_len = MR_MIN(iov[i].iov_len - at, FIXED_MAX_BYTES)};
        }
    qsort(list, count, sizeof(*list), by_address);
    for (unsigned i = 1; i < count; i++)
        if ((char *)list[i - 1].iov_base + list[i - 1].iov_len > (char *)list[i].iov_base) {
            free(list);
            return mr_error_plain(err, MR_E_USAGE, "cannot register %u buffers: two of them overlap", n);
        }
    *out = list;
    return (int)count;
}

static int uring_register(struct mr_ioq *base, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    struct uringq *q = (struct uringq *)base;
    if (q->fallback)
        return mr_workq_register(q->fallback, iov, n, err);
    struct iovec *list = NULL;
    int rc = mr_ioq_check_register(q->in_flight, iov, n, err);
    int count = rc < 0 || n == 0 ? rc : cut_fixed(iov, n, &list, err);
    if (count < 0)
        return count;
    if (q->fixed_count > 0)
        io_uring_unregister_buffers(&q->ring);
    free(q->fixed);
    q->fixed = NULL;
    q->fixed_count = 0;
    if (count == 0)
        return 0;
    rc = io_uring_register_buffers(&q->ring, list, (unsigned)count);
    if (rc <
        0) { /* ENOMEM: RLIMIT_MEMLOCK; EFAULT, EOPNOTSUPP: memory that cannot be pinned. Plain reads still work. */
        if (!atomic_exchange(&((struct uring_store *)base->store)->noted_fixed, true))
            mr_log(MR_LOG_NOTE, "cannot register I/O buffers (%s); 'ulimit -l' shows how much may be pinned",
                   strerror(-rc));
        free(list);
        return 0;
    }
    q->fixed = list;
    q->fixed_count = (unsigned)count;
    return 1;
}

/* The best set-up this kernel has: one submitter and completions run only when we ask (6.1), then ever plainer. */
static int setup_ring(struct uringq *q, unsigned depth)
{
    static const unsigned flags[] = {IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                     IORING_SETUP_COOP_TASKRUN, 0};
    int rc = -EINVAL;
    unsigned features = 0;
    for (unsigned i = 0; rc == -EINVAL && i < MR_ARRAY_LEN(flags); i++) {
        struct io_uring_params p = {.flags = flags[i]};
        rc = io_uring_queue_init_params(2 * depth, &q->ring, &p);
        features = p.features;
        q->needs_enable = flags[i] & IORING_SETUP_R_DISABLED;
        q->defer = flags[i] & IORING_SETUP_DEFER_TASKRUN;
    }
    (void)atomic_load(&rings_ended);
    if (rc < 0)
        return rc;
    rc = features & IORING_FEAT_CQE_SKIP ? io_uring_register_files_sparse(&q->ring, depth) : -EOPNOTSUPP;
    if (rc < 0)
        io_uring_queue_exit(&q->ring);
    return rc < 0 ? rc : 0;
}

static int uring_create(struct mr_store *base, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    struct uring_store *s = (struct uring_store *)base;
    int rc = mr_ioq_check_depth(depth, err);
    if (rc < 0)
        return rc;
    struct uringq *q = calloc(1, sizeof(*q) + depth * sizeof(q->slot[0]));
    unsigned *idle = calloc(depth, sizeof(*idle));
    int *no_files = calloc(depth, sizeof(*no_files));
    if (!q || !idle || !no_files) {
        free(q);
        free(idle);
        free(no_files);
        return mr_error_set(err, -ENOMEM, "cannot create an I/O queue of depth %u", depth);
    }
    q->base = (struct mr_ioq){.store = base, .depth = depth};
    q->store = &s->posix;
    q->idle = idle;
    q->no_files = no_files;
    memset(no_files, -1, depth * sizeof(*no_files));
    q->done_tail = &q->done;
    for (unsigned i = 0; i < depth; i++)
        q->idle[q->idle_count++] = depth - 1 - i;
    int ring = s->available ? setup_ring(q, depth) : -ENOSYS;
    if (ring < 0) {
        note_fallback(s, ring);
        rc = mr_workq_create(s->posix.pool, depth, &q->fallback, err);
        if (rc < 0) {
            free(no_files);
            free(idle);
            free(q);
            return rc;
        }
    }
    *out = &q->base;
    return 0;
}

/* 0 when a ring can be made and knows our operations. */
static int probe_kernel(void)
{
    static const int needed[] = {IORING_OP_OPENAT, IORING_OP_READ,  IORING_OP_READV,
                                 IORING_OP_WRITE,  IORING_OP_CLOSE, IORING_OP_FSYNC};
    struct io_uring ring;
    int rc = io_uring_queue_init(8, &ring, 0);
    if (rc < 0)
        return rc;
    struct io_uring_probe *p = io_uring_get_probe_ring(&ring);
    rc = p ? 0 : -ENOSYS;
    for (unsigned i = 0; rc == 0 && i < MR_ARRAY_LEN(needed); i++)
        if (!io_uring_opcode_supported(p, needed[i]))
            rc = -EOPNOTSUPP;
    io_uring_free_probe(p);
    io_uring_queue_exit(&ring);
    return rc;
}

static int uring_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    struct uring_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'uring'");
    int rc = mr_posix_init(&s->posix, &mr_store_uring_ops, options, mr_posix_exec, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    rc = probe_kernel();
    s->available = rc == 0;
    if (rc < 0)
        note_fallback(s, rc);
    *out = &s->posix.base;
    return 0;
}

const struct mr_store_ops mr_store_uring_ops = {
    MR_POSIX_OPS,
    .name = "uring",
    .doc = "Files through io_uring: one thread keeps many requests in flight. Falls back to posix, saying so.",
    .options = {.section = "uring",
                .doc = "Files through io_uring",
                .options = mr_posix_option_rows,
                .struct_bytes = sizeof(struct mr_posix_options)},
    .open = uring_open,
    .ioq_create = uring_create,
    .ioq_free = uring_free,
    .ioq_submit = uring_submit,
    .ioq_reap = uring_reap,
    .ioq_register = uring_register,
};
