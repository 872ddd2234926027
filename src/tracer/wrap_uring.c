/* liburing: submissions are read from the ring's memory when they are handed over, completions when they become visible at the
 * next call into the library; both are matched by user_data. An operation is one event, from its submission to the moment its
 * completion was seen. A program that polls the rings by itself, without calling liburing, is seen at its next call.
 *
 * Programs without liburing (fio, Rust's io-uring) are followed by their system calls: io_uring_setup, the mappings of its descriptor, and
 * io_uring_enter, through syscall(2) or, with --strays, by instruction. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <liburing.h>
#include <string.h>

#define PENDING 4096u /* operations in flight that are remembered per ring; more are counted by their completion only */
#define RINGS 64u

struct operation {
    uint64_t user_data, t0, offset;
    uint32_t count, file;
    int32_t fd;
    uint8_t opcode, used;
};

struct ring_state {
    struct io_uring *ring;
    unsigned sq_seen, cq_seen; /* positions up to which entries were read */
    unsigned in_flight;
    _Atomic uint32_t lock;
    struct operation *op; /* open addressing by user_data; PENDING entries */
};

static struct ring_state rings[RINGS];
static _Atomic uint32_t rings_lock;

static void lock(_Atomic uint32_t *l)
{
    while (atomic_exchange_explicit(l, 1, memory_order_acquire))
        mr_sys0(SYS_sched_yield);
}

static void unlock(_Atomic uint32_t *l)
{
    atomic_store_explicit(l, 0, memory_order_release);
}

static struct ring_state *state_of(struct io_uring *ring, bool create)
{
    struct ring_state *found = NULL, *free_slot = NULL;
    lock(&rings_lock);
    for (unsigned i = 0; i < RINGS && !found; i++) {
        if (rings[i].ring == ring)
            found = &rings[i];
        else if (!rings[i].ring && !free_slot)
            free_slot = &rings[i];
    }
    if (!found && create && free_slot) {
        long p = free_slot->op ? (long)free_slot->op : mr_sys6(SYS_mmap, 0, PENDING * sizeof(struct operation), 3, 0x22, -1, 0);
        if (p > 0 || p < -4095) {
            free_slot->op = (void *)p;
            memset(free_slot->op, 0, PENDING * sizeof(struct operation));
            free_slot->in_flight = 0;
            free_slot->sq_seen = *ring->sq.khead;
            free_slot->cq_seen = *ring->cq.khead;
            free_slot->ring = ring;
            found = free_slot;
        }
    }
    unlock(&rings_lock);
    return found;
}

static unsigned call_of(uint8_t opcode)
{
    switch (opcode) {
    case IORING_OP_READ: case IORING_OP_READ_FIXED: return CALL(uring_read);
    case IORING_OP_READV: return CALL(uring_readv);
    case IORING_OP_WRITE: case IORING_OP_WRITE_FIXED: return CALL(uring_write);
    case IORING_OP_WRITEV: return CALL(uring_writev);
    case IORING_OP_RECV: case IORING_OP_RECVMSG: return CALL(uring_recv);
    case IORING_OP_SEND: case IORING_OP_SENDMSG: return CALL(uring_send);
    case IORING_OP_OPENAT: case IORING_OP_OPENAT2: return CALL(uring_open);
    case IORING_OP_CLOSE: return CALL(uring_close);
    case IORING_OP_FSYNC: case IORING_OP_SYNC_FILE_RANGE: return CALL(uring_fsync);
    case IORING_OP_STATX: return CALL(uring_statx);
    case IORING_OP_FADVISE: case IORING_OP_MADVISE: return CALL(uring_advise);
    case IORING_OP_FALLOCATE: return CALL(uring_fallocate);
    case IORING_OP_SPLICE: case IORING_OP_TEE: return CALL(uring_splice);
    case IORING_OP_UNLINKAT: return CALL(uring_unlink);
    case IORING_OP_RENAMEAT: return CALL(uring_rename);
    case IORING_OP_MKDIRAT: return CALL(uring_mkdir);
    case IORING_OP_LINKAT: case IORING_OP_SYMLINKAT: return CALL(uring_link);
    default: return CALL(uring_other);
    }
}

static bool names_path(unsigned call)
{
    return call == CALL(uring_open) || call == CALL(uring_statx) || call == CALL(uring_unlink) || call == CALL(uring_mkdir);
}

static bool has_offset(unsigned call)
{
    return call == CALL(uring_read) || call == CALL(uring_readv) || call == CALL(uring_write) || call == CALL(uring_writev);
}

static void remember(struct ring_state *s, const struct io_uring_sqe *q, uint64_t now)
{
    if (s->in_flight >= PENDING / 2)
        return;
    unsigned i = (unsigned)((q->user_data * 0x9e3779b97f4a7c15ull) >> 40) % PENDING;
    while (s->op[i].used == 1)
        i = (i + 1) % PENDING;
    struct operation *o = &s->op[i];
    unsigned call = call_of(q->opcode);
    *o = (struct operation){.user_data = q->user_data, .t0 = now, .opcode = q->opcode, .used = 1, .fd = -1, .offset = MR_NO_OFFSET};
    if (names_path(call)) {
        o->file = mr_path_id(q->fd, (const char *)(uintptr_t)q->addr);
    } else if (q->opcode != IORING_OP_NOP && q->opcode != IORING_OP_TIMEOUT && !(q->flags & IOSQE_FIXED_FILE)) {
        o->fd = q->fd;
        o->file = q->fd >= 0 ? mr_file_of(q->fd) : 0;
    }
    if (has_offset(call))
        o->offset = q->off;
    o->count = q->len;
    if (q->opcode == IORING_OP_READV || q->opcode == IORING_OP_WRITEV) {
        const struct iovec *v = (const void *)(uintptr_t)q->addr;
        o->count = 0;
        for (unsigned k = 0; k < q->len; k++)
            o->count += (uint32_t)v[k].iov_len;
    }
    s->in_flight++;
}

static void complete(struct ring_state *s, const struct io_uring_cqe *c, uint64_t now)
{
    unsigned i = (unsigned)((c->user_data * 0x9e3779b97f4a7c15ull) >> 40) % PENDING;
    struct operation *oldest = NULL;
    for (unsigned n = 0; n < PENDING && s->op[i].used; n++, i = (i + 1) % PENDING)
        if (s->op[i].used == 1 && s->op[i].user_data == c->user_data && (!oldest || s->op[i].t0 < oldest->t0))
            oldest = &s->op[i];
    if (!oldest)
        return;
    unsigned call = call_of(oldest->opcode);
    struct operation o = *oldest; /* before the table may be cleared */
    if (!(c->flags & IORING_CQE_F_MORE)) {
        oldest->used = 2; /* a gap that searches pass over */
        if (--s->in_flight == 0)
            memset(s->op, 0, PENDING * sizeof(*s->op));
    }
    if (call == CALL(uring_open) && c->res >= 0)
        mr_file_set(c->res, o.file);
    if (call == CALL(uring_close) && c->res >= 0 && o.fd >= 0)
        mr_file_set(o.fd, 0);
    if (o.file == MR_FILE_EXCLUDED)
        return;
    const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = o.count};
    bool moves = mr_kind_moves_data(mr_call_get(call)->kind);
    if (moves && (int64_t)o.count != c->res)
        mr_put_slow(o.t0, now, call, o.file, (uint32_t)(o.fd + 1), o.offset, c->res, &extra, 1);
    else
        mr_put(o.t0, now, call, o.file, (uint32_t)(o.fd + 1), o.offset, c->res);
}

/* Entries the program has filled in since the last look: from our position to the library's own tail. */
static void read_submissions(struct ring_state *s)
{
    struct io_uring_sq *sq = &s->ring->sq;
    unsigned mask = *sq->kring_mask, shift = s->ring->flags & IORING_SETUP_SQE128 ? 1 : 0, tail = sq->sqe_tail;
    uint64_t now = mr_stamp();
    if (tail - s->sq_seen > *sq->kring_entries)
        s->sq_seen = tail - *sq->kring_entries;
    for (; s->sq_seen != tail; s->sq_seen++)
        remember(s, &sq->sqes[(s->sq_seen & mask) << shift], now);
}

static void read_completions(struct ring_state *s)
{
    struct io_uring_cq *cq = &s->ring->cq;
    unsigned mask = *cq->kring_mask, shift = s->ring->flags & IORING_SETUP_CQE32 ? 1 : 0;
    unsigned tail = __atomic_load_n(cq->ktail, __ATOMIC_ACQUIRE);
    uint64_t now = mr_stamp();
    if (tail - s->cq_seen > *cq->kring_entries)
        s->cq_seen = tail - *cq->kring_entries;
    for (; s->cq_seen != tail; s->cq_seen++)
        complete(s, &cq->cqes[(s->cq_seen & mask) << shift], now);
}

/* ---- rings without the library ---- */

#define RAW_RINGS 32u

static struct raw_ring {
    int fd;         /* 0: free; a ring never has descriptor 0 in a program with standard input */
    uint32_t epoch; /* a forked child may not have the memory */
    struct io_uring_params p;
    uint8_t *sq, *cq;
    struct io_uring ring; /* as the library would have it */
} raw_rings[RAW_RINGS];
static _Atomic uint32_t raw_used;

static struct raw_ring *raw_find(int fd)
{
    for (unsigned i = 0; i < RAW_RINGS && atomic_load_explicit(&raw_used, memory_order_relaxed); i++)
        if (raw_rings[i].fd == fd && fd > 0 && raw_rings[i].epoch == mr_core.epoch)
            return &raw_rings[i];
    return NULL;
}

static void forget(struct io_uring *ring)
{
    lock(&rings_lock);
    for (unsigned i = 0; i < RINGS; i++)
        if (rings[i].ring == ring)
            rings[i].ring = NULL;
    unlock(&rings_lock);
}

void mr_ring_made(int fd, const void *params)
{
    lock(&rings_lock);
    struct raw_ring *r = raw_find(fd);
    for (unsigned i = 0; i < RAW_RINGS && !r; i++)
        if (!raw_rings[i].fd || raw_rings[i].epoch != mr_core.epoch)
            r = &raw_rings[i];
    unlock(&rings_lock);
    if (!r || fd <= 0)
        return;
    forget(&r->ring);
    *r = (struct raw_ring){.fd = fd, .epoch = mr_core.epoch};
    memcpy(&r->p, params, sizeof(r->p));
    atomic_store(&raw_used, 1);
}

void mr_ring_forget(int fd)
{
    struct raw_ring *r = raw_find(fd);
    if (r) {
        forget(&r->ring);
        r->fd = 0;
    }
}

void mr_ring_unmapped(const void *at, uint64_t len)
{
    for (unsigned i = 0; i < RAW_RINGS && atomic_load_explicit(&raw_used, memory_order_relaxed); i++) {
        struct raw_ring *r = &raw_rings[i];
        uintptr_t from = (uintptr_t)at;
        if (r->fd && ((uintptr_t)r->sq - from < len || (uintptr_t)r->cq - from < len || (uintptr_t)r->ring.sq.sqes - from < len))
            mr_ring_forget(r->fd);
    }
}

void mr_ring_mapped(int fd, uint64_t offset, void *at)
{
    struct raw_ring *r = raw_find(fd);
    if (!r)
        return;
    if (offset == IORING_OFF_SQES)
        r->ring.sq.sqes = at;
    else if (offset == IORING_OFF_CQ_RING)
        r->cq = at;
    else if (offset == IORING_OFF_SQ_RING)
        r->sq = at;
    if (r->p.features & IORING_FEAT_SINGLE_MMAP)
        r->cq = r->sq;
    if (!r->sq || !r->cq || !r->ring.sq.sqes)
        return;
    const struct io_sqring_offsets *q = &r->p.sq_off;
    const struct io_cqring_offsets *c = &r->p.cq_off;
    r->ring.ring_fd = fd;
    r->ring.flags = r->p.flags;
    r->ring.sq.khead = (unsigned *)(void *)(r->sq + q->head);
    r->ring.sq.ktail = (unsigned *)(void *)(r->sq + q->tail);
    r->ring.sq.kring_mask = (unsigned *)(void *)(r->sq + q->ring_mask);
    r->ring.sq.kring_entries = (unsigned *)(void *)(r->sq + q->ring_entries);
    r->ring.sq.array = q->array ? (unsigned *)(void *)(r->sq + q->array) : NULL;
    r->ring.cq.khead = (unsigned *)(void *)(r->cq + c->head);
    r->ring.cq.ktail = (unsigned *)(void *)(r->cq + c->tail);
    r->ring.cq.kring_mask = (unsigned *)(void *)(r->cq + c->ring_mask);
    r->ring.cq.kring_entries = (unsigned *)(void *)(r->cq + c->ring_entries);
    r->ring.cq.cqes = (struct io_uring_cqe *)(void *)(r->cq + c->cqes);
}

/* Entries up to the tail that the kernel sees, through the ring's table of indices. */
static void read_raw_submissions(struct ring_state *s)
{
    struct io_uring_sq *sq = &s->ring->sq;
    unsigned mask = *sq->kring_mask, shift = s->ring->flags & IORING_SETUP_SQE128 ? 1 : 0;
    unsigned tail = __atomic_load_n(sq->ktail, __ATOMIC_ACQUIRE);
    uint64_t now = mr_stamp();
    if (tail - s->sq_seen > *sq->kring_entries)
        s->sq_seen = tail - *sq->kring_entries;
    for (; s->sq_seen != tail; s->sq_seen++) {
        unsigned at = sq->array ? sq->array[s->sq_seen & mask] : s->sq_seen & mask;
        if (at <= mask)
            remember(s, &sq->sqes[at << shift], now);
    }
}

void mr_ring_look(int fd, bool submits)
{
    struct raw_ring *r = raw_find(fd);
    if (!r || !r->ring.cq.cqes)
        return;
    struct ring_state *s = state_of(&r->ring, true);
    if (!s)
        return;
    lock(&s->lock);
    if (submits)
        read_raw_submissions(s);
    read_completions(s);
    unlock(&s->lock);
}

/* ---- the library ---- */

static void before(struct io_uring *ring, bool submits)
{
    mr_ring_forget(ring->ring_fd); /* seen by its system calls as well: once is enough */
    struct ring_state *s = state_of(ring, true);
    if (!s)
        return;
    lock(&s->lock);
    if (submits)
        read_submissions(s);
    read_completions(s);
    unlock(&s->lock);
}

static void after(struct io_uring *ring)
{
    struct ring_state *s = state_of(ring, false);
    if (!s)
        return;
    lock(&s->lock);
    read_completions(s);
    unlock(&s->lock);
}

#define MR_URING(ret, name, call, submits, params, args)                                                             \
    MR_REAL(ret, name, params, args)                                                                                 \
    MR_SYMBOL(ret, name, params)                                                                                     \
    {                                                                                                                \
        if (!mr_enter())                                                                                             \
            return real_##name args;                                                                                 \
        before(ring, submits);                                                                                       \
        mr_strays_quiet(1); /* io_uring_enter of the library itself */                                               \
        uint64_t t0 = mr_stamp();                                                                                    \
        ret r = real_##name args;                                                                                    \
        uint64_t t1 = mr_stamp();                                                                                    \
        mr_strays_quiet(-1);                                                                                         \
        after(ring);                                                                                                 \
        mr_put(t0, t1, CALL(call), 0, 0, MR_NO_OFFSET, (int64_t)r);                                                  \
        return r;                                                                                                    \
    }
MR_URING(int, io_uring_submit, io_uring_submit, true, (struct io_uring * ring), (ring))
MR_URING(int, io_uring_submit_and_wait, io_uring_submit, true, (struct io_uring * ring, unsigned n), (ring, n))
MR_URING(int, io_uring_submit_and_wait_timeout, io_uring_submit, true,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, sigset_t *m), (ring, c, n, t, m))
MR_URING(int, io_uring_submit_and_get_events, io_uring_submit, true, (struct io_uring * ring), (ring))
MR_URING(int, io_uring_wait_cqes, io_uring_wait, false,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, sigset_t *m), (ring, c, n, t, m))
MR_URING(int, io_uring_wait_cqe_timeout, io_uring_wait, false, (struct io_uring * ring, struct io_uring_cqe **c, struct __kernel_timespec *t), (ring, c, t))
MR_URING(int, __io_uring_get_cqe, io_uring_wait, true, (struct io_uring * ring, struct io_uring_cqe **c, unsigned s, unsigned n, sigset_t *m), (ring, c, s, n, m))
MR_URING(unsigned, io_uring_peek_batch_cqe, io_uring_wait, false, (struct io_uring * ring, struct io_uring_cqe **c, unsigned n), (ring, c, n))
MR_URING(int, io_uring_get_events, io_uring_wait, false, (struct io_uring * ring), (ring))

/* Completions a program took by the inline functions, before it lets go of the ring. */
static void boot_io_uring_queue_exit(struct io_uring *ring);
static void (*real_io_uring_queue_exit)(struct io_uring *) = boot_io_uring_queue_exit;
static void boot_io_uring_queue_exit(struct io_uring *ring)
{
    *(void **)&real_io_uring_queue_exit = mr_next("io_uring_queue_exit");
    real_io_uring_queue_exit(ring);
}
MR_SYMBOL(void, io_uring_queue_exit, (struct io_uring * ring))
{
    struct ring_state *s = mr_enter() ? state_of(ring, false) : NULL;
    if (s) {
        after(ring);
        lock(&rings_lock);
        s->ring = NULL;
        unlock(&rings_lock);
    }
    uint64_t t0 = mr_stamp();
    real_io_uring_queue_exit(ring);
    if (mr_enter())
        mr_put(t0, mr_stamp(), CALL(io_uring_queue_exit), 0, 0, MR_NO_OFFSET, 0);
}
