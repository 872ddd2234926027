/* liburing: submissions are read from the ring's memory when they are handed over, completions when they become visible
 * at the next call into the library; both are matched by user_data. An operation is one event, from its submission to
 * the moment its completion was seen. A program that polls the rings by itself, without calling liburing, is seen at
 * its next call.
 *
 * Programs without liburing (fio, Rust's io-uring) are followed by their system calls: io_uring_setup, the mappings of
 * its descriptor, and io_uring_enter, through syscall(2) or, with --strays, by instruction. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <limits.h>
#include <liburing.h>
#include <string.h>

#define RINGS 1024u
#define FIRST_SLOTS 256u
#define FIXED_FILES (1u << 20) /* as many as the kernel takes */

struct operation {
    uint64_t user_data, t0, offset, count;
    uint32_t file, file2;
    int32_t fd;
    uint32_t slot;   /* of a fixed file that is opened or closed, as in the entry: number + 1, or ALLOC; 0 none */
    uint32_t before; /* the file that had the slot */
    uint32_t next;   /* in its chain, or of those that are free: number + 1; 0 none */
    uint8_t opcode;
    bool any_length; /* the kernel picks the buffer, and with it how much */
    bool elsewhere;  /* an open: the kernel will know the file's name */
};
#define ALLOC (~0u) /* IORING_FILE_INDEX_ALLOC */

struct chain {
    uint32_t first, last;
};

struct ring_state {
    struct io_uring *ring;
    unsigned sq_seen, cq_seen; /* positions up to which entries were read */
    unsigned in_flight;
    _Atomic uint32_t lock;
    struct operation *op; /* in flight or free, below `top` */
    struct chain *chain;  /* of those in flight, by user_data, oldest first */
    uint32_t slots;       /* of both, a power of two */
    uint32_t top, free;
    uint32_t *fixed; /* files that were registered, by number */
    /* Where completions are: the program's struct may be gone when it exits, the ring's memory is not. */
    struct io_uring_cq cq;
    unsigned flags;
    uint32_t epoch;
};

static struct ring_state rings[RINGS];
static unsigned rings_top; /* all that were ever used are below */
static _Atomic uint32_t rings_lock, rings_epoch;
static __thread struct ring_state *last __attribute__((tls_model("initial-exec")));

static void lock(_Atomic uint32_t *l)
{
    while (atomic_exchange_explicit(l, 1, memory_order_acquire))
        mr_sys0(SYS_sched_yield);
}

static void unlock(_Atomic uint32_t *l)
{
    atomic_store_explicit(l, 0, memory_order_release);
}

/* The first look in a forked child: another thread of the parent may have held any lock. */
static void after_fork(void)
{
    for (unsigned i = 0; i < rings_top; i++)
        unlock(&rings[i].lock);
    unlock(&rings_lock);
    atomic_store(&rings_epoch, mr_core.epoch);
}

/* ---- operations in flight ---- */

static struct chain *chain_of(const struct ring_state *s, uint64_t user_data)
{
    return &s->chain[(unsigned)((user_data * 0x9e3779b97f4a7c15ull) >> 40) & (s->slots - 1)];
}

/* At the end of its chain; there is room. */
static void op_add(struct ring_state *s, const struct operation *o)
{
    struct chain *c = chain_of(s, o->user_data);
    uint32_t place = s->free ? s->free : ++s->top; /* number + 1 */
    if (s->free)
        s->free = s->op[s->free - 1].next;
    s->op[place - 1] = *o;
    s->op[place - 1].next = 0;
    *(c->last ? &s->op[c->last - 1].next : &c->first) = place;
    c->last = place;
    s->in_flight++;
}

static bool ops_begin(struct ring_state *s, uint32_t slots)
{
    void *memory = mr_map_pages(slots * (sizeof(*s->op) + sizeof(*s->chain)));
    if (!memory)
        return false;
    s->op = memory;
    s->chain = (struct chain *)(void *)(s->op + slots);
    s->slots = slots;
    s->top = s->free = s->in_flight = 0;
    return true;
}

static void ops_end(struct ring_state *s)
{
    if (s->op)
        mr_sys2(SYS_munmap, s->op, s->slots * (sizeof(*s->op) + sizeof(*s->chain)));
    s->op = NULL;
}

/* Room for one more; false without memory. */
static bool op_room(struct ring_state *s)
{
    if (s->in_flight < s->slots)
        return true;
    struct ring_state bigger = {0};
    if (!ops_begin(&bigger, s->slots * 2))
        return false;
    for (uint32_t i = 0; i < s->slots; i++) /* along the chains: those of one tag stay in order */
        for (uint32_t at = s->chain[i].first; at; at = s->op[at - 1].next)
            op_add(&bigger, &s->op[at - 1]);
    ops_end(s);
    s->op = bigger.op;
    s->chain = bigger.chain;
    s->slots = bigger.slots;
    s->top = bigger.top;
    s->free = 0;
    return true;
}

/* The oldest operation with this tag; many may have the same. *before is the link that leads to it. */
static struct operation *op_find(struct ring_state *s, uint64_t user_data, uint32_t *before)
{
    *before = 0;
    for (uint32_t at = chain_of(s, user_data)->first; at; at = s->op[at - 1].next) {
        if (s->op[at - 1].user_data == user_data)
            return &s->op[at - 1];
        *before = at;
    }
    return NULL;
}

static void op_remove(struct ring_state *s, struct operation *o, uint32_t before)
{
    struct chain *c = chain_of(s, o->user_data);
    uint32_t place = (uint32_t)(o - s->op) + 1;
    *(before ? &s->op[before - 1].next : &c->first) = o->next;
    if (c->last == place)
        c->last = before;
    o->next = s->free;
    s->free = place;
    s->in_flight--;
}

/* ---- rings ---- */

static bool state_begin(struct ring_state *s, struct io_uring *ring)
{
    ops_end(s);
    bool there = ops_begin(s, FIRST_SLOTS);
    if (s->fixed)
        mr_sys2(SYS_munmap, s->fixed, FIXED_FILES * sizeof(*s->fixed));
    s->fixed = NULL;
    s->sq_seen = *ring->sq.khead;
    s->cq_seen = *ring->cq.khead;
    s->cq = ring->cq;
    s->flags = ring->flags;
    s->epoch = mr_core.epoch;
    if (there)
        s->ring = ring;
    return there;
}

static struct ring_state *state_of(struct io_uring *ring, bool create)
{
    struct ring_state *found = NULL, *unused = NULL;
    if (MR_UNLIKELY(atomic_load_explicit(&rings_epoch, memory_order_relaxed) != mr_core.epoch))
        after_fork();
    if (last && last->ring == ring)
        return last;
    lock(&rings_lock);
    for (unsigned i = 0; i < rings_top && !found; i++) {
        if (rings[i].ring == ring)
            found = &rings[i];
        else if (!rings[i].ring && !unused)
            unused = &rings[i];
    }
    if (!found && create) {
        if (!unused && rings_top < RINGS)
            unused = &rings[rings_top++];
        if (unused && state_begin(unused, ring))
            found = unused;
    }
    unlock(&rings_lock);
    if (found)
        last = found;
    return found;
}

/* ---- fixed files ---- */

static void fixed_set(struct ring_state *s, uint32_t number, uint32_t file)
{
    if (number >= FIXED_FILES)
        return;
    if (!s->fixed)
        s->fixed = mr_map_pages(FIXED_FILES * sizeof(*s->fixed)); /* pages come when they are used */
    if (s->fixed)
        s->fixed[number] = file;
}

static void fixed_register(struct ring_state *s, uint32_t from, const int *fd, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (fd[i] != -2) /* IORING_REGISTER_FILES_SKIP */
            fixed_set(s, from + i, fd[i] >= 0 ? mr_file_of(fd[i]) : 0);
}

static uint32_t fixed_get(const struct ring_state *s, int32_t number)
{
    return s->fixed && (uint32_t)number < FIXED_FILES ? s->fixed[number] : 0;
}

/* Operations that older headers do not name. */
enum {
    OP_MSG_RING = 40,
    OP_SETXATTR = 42,
    OP_GETXATTR = 44,
    OP_SOCKET = 45,
    OP_SEND_ZC = 47,
    OP_SENDMSG_ZC = 48,
    OP_READ_MULTISHOT = 49,
    OP_WAITID = 50,
    OP_FUTEX_WAIT = 51,
    OP_FUTEX_WAKE = 52,
    OP_FUTEX_WAITV = 53,
    OP_FTRUNCATE = 55,
    OP_READV_FIXED = 60,
    OP_WRITEV_FIXED = 61,
    OP_PIPE = 62
};

#define CQE_F_NOTIF (1u << 3)

static unsigned call_of(uint8_t opcode)
{
    switch (opcode) {
    case IORING_OP_READ:
    case IORING_OP_READ_FIXED:
    case OP_READ_MULTISHOT: return CALL(uring_read);
    case IORING_OP_READV:
    case OP_READV_FIXED: return CALL(uring_readv);
    case IORING_OP_WRITE:
    case IORING_OP_WRITE_FIXED: return CALL(uring_write);
    case IORING_OP_WRITEV:
    case OP_WRITEV_FIXED: return CALL(uring_writev);
    case IORING_OP_RECV:
    case IORING_OP_RECVMSG: return CALL(uring_recv);
    case IORING_OP_SEND:
    case IORING_OP_SENDMSG:
    case OP_SEND_ZC:
    case OP_SENDMSG_ZC: return CALL(uring_send);
    case IORING_OP_OPENAT:
    case IORING_OP_OPENAT2: return CALL(uring_open);
    case IORING_OP_CLOSE: return CALL(uring_close);
    case IORING_OP_FSYNC:
    case IORING_OP_SYNC_FILE_RANGE: return CALL(uring_fsync);
    case IORING_OP_STATX: return CALL(uring_statx);
    case IORING_OP_FADVISE:
    case IORING_OP_MADVISE: return CALL(uring_advise);
    case IORING_OP_FALLOCATE:
    case OP_FTRUNCATE: return CALL(uring_fallocate);
    case IORING_OP_SPLICE:
    case IORING_OP_TEE: return CALL(uring_splice);
    case IORING_OP_UNLINKAT: return CALL(uring_unlink);
    case IORING_OP_RENAMEAT: return CALL(uring_rename);
    case IORING_OP_MKDIRAT: return CALL(uring_mkdir);
    case IORING_OP_LINKAT:
    case IORING_OP_SYMLINKAT: return CALL(uring_link);
    default: return CALL(uring_other);
    }
}

static bool names_path(unsigned call)
{
    return call == CALL(uring_open) || call == CALL(uring_statx) || call == CALL(uring_unlink) ||
           call == CALL(uring_mkdir);
}

/* Whether an operation has a descriptor; of the others many have something else in its place. */
static bool has_fd(uint8_t opcode)
{
    switch (opcode) {
    case IORING_OP_NOP:
    case IORING_OP_TIMEOUT:
    case IORING_OP_TIMEOUT_REMOVE:
    case IORING_OP_ASYNC_CANCEL:
    case IORING_OP_LINK_TIMEOUT:
    case IORING_OP_FILES_UPDATE:
    case IORING_OP_MADVISE:
    case IORING_OP_PROVIDE_BUFFERS:
    case IORING_OP_REMOVE_BUFFERS:
    case OP_MSG_RING:
    case OP_SETXATTR:
    case OP_GETXATTR:
    case OP_SOCKET:
    case OP_WAITID:
    case OP_FUTEX_WAIT:
    case OP_FUTEX_WAKE:
    case OP_FUTEX_WAITV:
    case OP_PIPE: return false;
    default: return true;
    }
}

static uint64_t offset_in(const struct io_uring_sqe *q)
{
    switch (q->opcode) {
    case IORING_OP_READ:
    case IORING_OP_READ_FIXED:
    case IORING_OP_READV:
    case OP_READV_FIXED:
    case OP_READ_MULTISHOT:
    case IORING_OP_WRITE:
    case IORING_OP_WRITE_FIXED:
    case IORING_OP_WRITEV:
    case OP_WRITEV_FIXED:
    case IORING_OP_FALLOCATE:
    case OP_FTRUNCATE:
    case IORING_OP_FADVISE:
    case IORING_OP_SYNC_FILE_RANGE: return q->off;
    case IORING_OP_SPLICE: return q->splice_off_in;
    case IORING_OP_OPENAT: return q->open_flags;
    default: return MR_NO_OFFSET;
    }
}

/* A path in an entry; one that cannot be read gives 0, as the kernel will say -EFAULT. */
static uint32_t path_in(int dirfd, uint64_t address)
{
    return mr_path_failed(MR_UNREAD, dirfd, (const char *)(uintptr_t)address);
}

static uint32_t file_in(const struct ring_state *s, const struct io_uring_sqe *q)
{
    return q->flags & IOSQE_FIXED_FILE ? fixed_get(s, q->fd) : q->fd >= 0 ? mr_file_of(q->fd) : 0;
}

/* Which files an operation is about. */
static void name_files(struct ring_state *s, const struct io_uring_sqe *q, unsigned call, struct operation *o)
{
    if (names_path(call)) {
        o->file = path_in(q->fd, q->addr);
        o->slot = call == CALL(uring_open) ? q->file_index : 0;
        o->elsewhere = call == CALL(uring_open) && o->file && !o->slot &&
                       mr_leads_elsewhere((const char *)(uintptr_t)q->addr, offset_in(q));
        if (o->slot && o->slot != ALLOC) { /* already now: reads that are linked behind it come in the same batch */
            o->before = fixed_get(s, (int32_t)(o->slot - 1));
            fixed_set(s, o->slot - 1, o->file);
        }
    } else if (call == CALL(uring_rename) || (call == CALL(uring_link) && q->opcode != IORING_OP_SYMLINKAT)) {
        o->file = path_in(q->fd, q->addr);
        o->file2 = path_in((int32_t)q->len, q->off);
    } else if (call == CALL(uring_link)) {
        o->file = path_in(q->fd, q->off);
    } else if (call == CALL(uring_close) && q->file_index) {
        o->slot = q->file_index;
        o->file = fixed_get(s, (int32_t)(q->file_index - 1));
    } else if (call == CALL(uring_splice)) {
        bool fixed = q->splice_flags & 1u << 31; /* SPLICE_F_FD_IN_FIXED */
        o->file = fixed ? fixed_get(s, q->splice_fd_in) : q->splice_fd_in >= 0 ? mr_file_of(q->splice_fd_in) : 0;
        o->file2 = file_in(s, q);
    } else if (q->opcode == OP_SETXATTR || q->opcode == OP_GETXATTR) {
        uint64_t words[sizeof(*q) / 8];
        memcpy(words, q, sizeof(*q));
        o->file = path_in(AT_FDCWD, words[6]); /* addr3, which older headers do not have */
    } else if (has_fd(q->opcode)) {
        o->fd = q->flags & IOSQE_FIXED_FILE ? -1 : q->fd;
        o->file = file_in(s, q);
    }
}

static bool has_count(uint8_t opcode)
{
    return mr_kind_moves_data(mr_call_get(call_of(opcode))->kind) || opcode == IORING_OP_FALLOCATE ||
           opcode == IORING_OP_FADVISE || opcode == IORING_OP_SYNC_FILE_RANGE;
}

static void put_operation(const struct operation *o, uint64_t now, int64_t result)
{
    unsigned call = call_of(o->opcode), extras = 0;
    struct mr_extra extra[2];
    if (o->file == MR_FILE_EXCLUDED && (!o->file2 || o->file2 == MR_FILE_EXCLUDED))
        return;
    if (o->file2)
        extra[extras++] =
            (struct mr_extra){.type = MR_MORE_FILE2, .value = o->file2 == MR_FILE_EXCLUDED ? 0 : o->file2};
    if (has_count(o->opcode) && (int64_t)o->count != result && !(o->any_length && result >= 0))
        extra[extras++] = (struct mr_extra){.type = MR_MORE_COUNT, .value = o->count};
    int fd = call == CALL(uring_open) && !o->slot && result >= 0 ? (int)result : o->fd;
    uint32_t file = o->file == MR_FILE_EXCLUDED ? 0 : o->file, fd1 = fd >= 0 ? mr_fd1(fd) : 0;
    if (extras)
        mr_put_slow(o->t0, now, call, file, fd1, o->offset, result, extra, extras);
    else
        mr_put(o->t0, now, call, file, fd1, o->offset, result);
}

/* What is submitted need not be right; then the completion says so, not a crash here. */
static uint64_t iovec_bytes(const struct io_uring_sqe *q)
{
    const struct iovec *v = (const void *)(uintptr_t)q->addr;
    uint64_t sum = 0;
    if (q->len > IOV_MAX || !mr_readable(v, q->len * sizeof(*v)))
        return 0;
    for (unsigned k = 0; k < q->len; k++)
        sum += v[k].iov_len;
    return sum;
}

static void remember(struct ring_state *s, const struct io_uring_sqe *q, uint64_t now)
{
    unsigned call = call_of(q->opcode);
    struct operation o = {.user_data = q->user_data, .t0 = now, .opcode = q->opcode, .fd = -1, .offset = offset_in(q)};
    name_files(s, q, call, &o);
    o.count = q->opcode == IORING_OP_FALLOCATE ? q->addr : q->len; /* fallocate has its mode there */
    o.any_length = q->flags & IOSQE_BUFFER_SELECT && !q->len;
    if (call == CALL(uring_readv) || call == CALL(uring_writev))
        o.count = iovec_bytes(q);
    if (q->opcode == IORING_OP_FILES_UPDATE && mr_readable((const void *)(uintptr_t)q->addr, q->len * sizeof(int)))
        fixed_register(s, (uint32_t)q->off, (const int *)(uintptr_t)q->addr, q->len);
    if (q->flags & IOSQE_CQE_SKIP_SUCCESS) {
        /* Only a failure will have a completion; the operation is recorded as the success it asks for. */
        put_operation(&o, now, mr_kind_moves_data(mr_call_get(call)->kind) ? (int64_t)o.count : 0);
    } else if (op_room(s)) {
        op_add(s, &o);
    }
}

/* A completion may be seen late: the program has taken it by the inline functions, closed the file and opened another
 * with the number. */
static bool is_known(int fd)
{
    return (uint32_t)fd < mr_core.files && atomic_load_explicit(&mr_core.file_of[fd], memory_order_relaxed);
}

/* What an operation did to the descriptors. */
static void follow_files(struct ring_state *s, const struct operation *o, int result)
{
    unsigned call = call_of(o->opcode);
    if (result < 0) {
        if (call == CALL(uring_open) && o->slot && o->slot != ALLOC && fixed_get(s, (int32_t)(o->slot - 1)) == o->file)
            fixed_set(s, o->slot - 1, o->before);
        return;
    }
    if (call == CALL(uring_rename))
        mr_cwd_changed();
    else if (call == CALL(uring_open) && o->slot)
        fixed_set(s, o->slot == ALLOC ? (uint32_t)result : o->slot - 1, o->file);
    else if (call == CALL(uring_open) && !is_known(result))
        mr_file_set(result, o->file);
    else if (call == CALL(uring_close) && o->slot)
        fixed_set(s, o->slot - 1, 0);
    else if (call == CALL(uring_close) && o->fd >= 0)
        mr_file_set(o->fd, 0);
}

static void complete(struct ring_state *s, const struct io_uring_cqe *c, uint64_t now)
{
    uint32_t before;
    struct operation *found = op_find(s, c->user_data, &before);
    if (!found)
        return; /* a message from another ring, or a failure that was not to be reported */
    struct operation o = *found;
    if (!(c->flags & IORING_CQE_F_MORE))
        op_remove(s, found, before);
    if (c->flags & CQE_F_NOTIF)
        return; /* the second completion of a zero copy send: its buffer is free */
    if (o.elsewhere && c->res >= 0 && !is_known(c->res)) {
        uint32_t file = mr_file_resolve(c->res);
        o.file = file ? file : o.file;
    }
    follow_files(s, &o, c->res);
    put_operation(&o, now, c->res);
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
    const struct io_uring_cq *cq = &s->cq;
    unsigned mask = *cq->kring_mask, shift = s->flags & IORING_SETUP_CQE32 ? 1 : 0;
    unsigned tail = __atomic_load_n(cq->ktail, __ATOMIC_ACQUIRE);
    uint64_t now = mr_stamp();
    if (tail - s->cq_seen > *cq->kring_entries)
        s->cq_seen = tail - *cq->kring_entries;
    for (; s->cq_seen != tail; s->cq_seen++)
        complete(s, &cq->cqes[(s->cq_seen & mask) << shift], now);
}

/* ---- rings without the library ---- */

#define RAW_RINGS 128u
/* What older headers do not have: the flag, and where its addresses stand in the offsets. */
#define SETUP_NO_MMAP (1u << 14)
#define USER_ADDR 32

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
    for (unsigned i = 0; i < rings_top; i++)
        if (rings[i].ring == ring)
            rings[i].ring = NULL;
    unlock(&rings_lock);
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
        if (r->fd &&
            ((uintptr_t)r->sq - from < len || (uintptr_t)r->cq - from < len || (uintptr_t)r->ring.sq.sqes - from < len))
            mr_ring_forget(r->fd);
    }
}

/* All of the ring's memory is known. */
static void raw_begin(struct raw_ring *r)
{
    const struct io_sqring_offsets *q = &r->p.sq_off;
    const struct io_cqring_offsets *c = &r->p.cq_off;
    r->ring.ring_fd = r->fd;
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
    if (r->p.flags & SETUP_NO_MMAP) { /* the program has brought the memory */
        uint64_t entries, both;
        memcpy(&entries, (const char *)&r->p.sq_off + USER_ADDR, sizeof(entries));
        memcpy(&both, (const char *)&r->p.cq_off + USER_ADDR, sizeof(both));
        r->ring.sq.sqes = (void *)(uintptr_t)entries;
        r->sq = r->cq = (void *)(uintptr_t)both;
        raw_begin(r);
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
    if (r->sq && r->cq && r->ring.sq.sqes)
        raw_begin(r);
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

/* Descriptors of rings that the thread has registered, by number (IORING_REGISTER_RING_FDS). */
#define REGISTERED 16u /* as many as the kernel takes */
static __thread int registered[REGISTERED] __attribute__((tls_model("initial-exec")));

int mr_ring_fd(int fd, unsigned flags)
{
    return flags & 1u << 4 /* IORING_ENTER_REGISTERED_RING */ ? ((unsigned)fd < REGISTERED ? registered[fd] : -1) : fd;
}

static void note_registered(const void *updates, unsigned n)
{
    const struct {
        uint32_t offset, resv;
        uint64_t data;
    } *u = updates;
    for (unsigned i = 0; i < n; i++)
        if (u[i].offset < REGISTERED)
            registered[u[i].offset] = (int)u[i].data;
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
    s->cq = ring->cq; /* a ring may have been resized */
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

/* Completions that the program took by inline functions since its last call, when it ends. */
void mr_rings_last_look(void)
{
    if (!rings_top || !mr_enter() || atomic_load(&rings_epoch) != mr_core.epoch)
        return;
    for (unsigned i = 0; i < rings_top; i++) {
        struct ring_state *s = &rings[i];
        uint32_t open = 0;
        if (s->ring && s->epoch == mr_core.epoch && atomic_compare_exchange_strong(&s->lock, &open, 1)) {
            read_completions(s);
            unlock(&s->lock);
        }
    }
}

static void __attribute__((destructor)) at_exit(void)
{
    mr_rings_last_look();
}

/* The library calls its own functions too: only the outer one is an event. */
#define MR_URING(ret, name, call, submits, params, args)                                                               \
    MR_REAL(ret, name, params, args)                                                                                   \
    MR_SYMBOL(ret, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter() || mr_strays_silent)                                                                           \
            return real_##name args;                                                                                   \
        before(ring, submits);                                                                                         \
        mr_strays_quiet(1); /* io_uring_enter of the library itself */                                                 \
        uint64_t t0 = mr_stamp();                                                                                      \
        ret r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        mr_strays_quiet(-1);                                                                                           \
        after(ring);                                                                                                   \
        mr_put(t0, t1, CALL(call), 0, 0, MR_NO_OFFSET, (int64_t)r);                                                    \
        return r;                                                                                                      \
    }
MR_URING(int, io_uring_submit, io_uring_submit, true, (struct io_uring * ring), (ring))
MR_URING(int, io_uring_submit_and_wait, io_uring_submit, true, (struct io_uring * ring, unsigned n), (ring, n))
MR_URING(int, io_uring_submit_and_wait_timeout, io_uring_submit, true,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, sigset_t *m),
         (ring, c, n, t, m))
MR_URING(int, io_uring_submit_and_get_events, io_uring_submit, true, (struct io_uring * ring), (ring))
MR_URING(int, io_uring_wait_cqes, io_uring_wait, false,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, sigset_t *m),
         (ring, c, n, t, m))
MR_URING(int, io_uring_wait_cqe_timeout, io_uring_wait, false,
         (struct io_uring * ring, struct io_uring_cqe **c, struct __kernel_timespec *t), (ring, c, t))
MR_URING(int, __io_uring_get_cqe, io_uring_wait, true,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned s, unsigned n, sigset_t *m), (ring, c, s, n, m))
MR_URING(unsigned, io_uring_peek_batch_cqe, io_uring_wait, false,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n), (ring, c, n))
MR_URING(int, io_uring_submit_and_wait_min_timeout, io_uring_submit, true,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, unsigned u,
          sigset_t *m),
         (ring, c, n, t, u, m))
MR_URING(int, io_uring_wait_cqes_min_timeout, io_uring_wait, false,
         (struct io_uring * ring, struct io_uring_cqe **c, unsigned n, struct __kernel_timespec *t, unsigned u,
          sigset_t *m),
         (ring, c, n, t, u, m))
MR_URING(int, io_uring_get_events, io_uring_wait, false, (struct io_uring * ring), (ring))

/* Calls that make or prepare a ring; `after` runs when they succeed. */
#define MR_URING_SETS_UP(name, call, params, args, after)                                                              \
    MR_REAL(int, name, params, args)                                                                                   \
    MR_SYMBOL(int, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter() || mr_strays_silent)                                                                           \
            return real_##name args;                                                                                   \
        mr_strays_quiet(1);                                                                                            \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name args;                                                                                      \
        uint64_t t1 = mr_stamp();                                                                                      \
        mr_strays_quiet(-1);                                                                                           \
        if (r >= 0) {                                                                                                  \
            after;                                                                                                     \
        }                                                                                                              \
        mr_put(t0, t1, CALL(call), 0, 0, MR_NO_OFFSET, r);                                                             \
        return r;                                                                                                      \
    }

/* Making a ring: what was known of another one at the same place goes. */
#define MR_URING_MADE(name, params, args) MR_URING_SETS_UP(name, io_uring_queue_init, params, args, forget(ring))
MR_URING_MADE(io_uring_queue_init, (unsigned n, struct io_uring *ring, unsigned f), (n, ring, f))
MR_URING_MADE(io_uring_queue_init_params, (unsigned n, struct io_uring *ring, struct io_uring_params *p), (n, ring, p))
MR_URING_MADE(io_uring_queue_init_mem,
              (unsigned n, struct io_uring *ring, struct io_uring_params *p, void *b, size_t z), (n, ring, p, b, z))
MR_URING_MADE(io_uring_queue_mmap, (int fd, struct io_uring_params *p, struct io_uring *ring), (fd, p, ring))

/* Registered files: which number is which file. `does` has the ring's state as `s`. */
#define MR_URING_FILES(name, params, args, does)                                                                       \
    MR_URING_SETS_UP(                                                                                                  \
        name, io_uring_register, params, args, struct ring_state *s = state_of(ring, true); if (s) {                   \
            lock(&s->lock);                                                                                            \
            does;                                                                                                      \
            unlock(&s->lock);                                                                                          \
        })
MR_URING_FILES(io_uring_register_files, (struct io_uring * ring, const int *fd, unsigned n), (ring, fd, n),
               fixed_register(s, 0, fd, n))
MR_URING_FILES(io_uring_register_files_tags, (struct io_uring * ring, const int *fd, const void *t, unsigned n),
               (ring, fd, t, n), fixed_register(s, 0, fd, n))
MR_URING_FILES(io_uring_register_files_update, (struct io_uring * ring, unsigned at, const int *fd, unsigned n),
               (ring, at, fd, n), fixed_register(s, at, fd, (unsigned)r))
MR_URING_FILES(io_uring_register_files_update_tag,
               (struct io_uring * ring, unsigned at, const int *fd, const void *t, unsigned n), (ring, at, fd, t, n),
               fixed_register(s, at, fd, (unsigned)r))
MR_URING_FILES(io_uring_register_files_sparse, (struct io_uring * ring, unsigned n), (ring, n), (void)s)
MR_URING_FILES(io_uring_unregister_files, (struct io_uring * ring), (ring),
               if (s->fixed) mr_sys2(SYS_munmap, s->fixed, FIXED_FILES * sizeof(*s->fixed));
               s->fixed = NULL)

/* The same by system call. */
void mr_ring_registered(int fd, unsigned opcode, const void *arg, unsigned n)
{
    if (opcode == 20) { /* IORING_REGISTER_RING_FDS */
        note_registered(arg, n);
        return;
    }
    struct raw_ring *r = raw_find(fd);
    struct ring_state *s = r && r->ring.cq.cqes ? state_of(&r->ring, true) : NULL;
    const struct {
        uint32_t nr, flags;
        uint64_t resv, data;
    } *all = arg;
    const struct {
        uint32_t offset, resv;
        uint64_t data;
    } *some = arg;
    if (!s)
        return;
    lock(&s->lock);
    if (opcode == 2) /* IORING_REGISTER_FILES */
        fixed_register(s, 0, arg, n);
    else if (opcode == 13 && all->data) /* FILES2 */
        fixed_register(s, 0, (const int *)(uintptr_t)all->data, all->nr);
    else if (opcode == 6 || opcode == 14) /* FILES_UPDATE, FILES_UPDATE2 */
        fixed_register(s, some->offset, (const int *)(uintptr_t)some->data,
                       opcode == 6 ? n : ((const uint32_t *)arg)[6]);
    unlock(&s->lock);
}

/* The library's functions for the system calls themselves, for programs that keep their rings without it; they return
 * the negative error. */
#define MR_URING_BARE(name, number, params, args, ...)                                                                 \
    MR_REAL(int, name, params, args)                                                                                   \
    MR_SYMBOL(int, name, params)                                                                                       \
    {                                                                                                                  \
        const long a[6] = {__VA_ARGS__};                                                                               \
        struct mr_syscall s;                                                                                           \
        if (!mr_enter() || mr_strays_silent || !mr_syscall_begin(&s, number, a))                                       \
            return real_##name args;                                                                                   \
        mr_strays_quiet(1);                                                                                            \
        int r = real_##name args, keep = errno;                                                                        \
        mr_strays_quiet(-1);                                                                                           \
        s.t1 = mr_stamp();                                                                                             \
        errno = r < 0 ? -r : 0;                                                                                        \
        mr_syscall_end(&s, r < 0 ? -1 : r, false);                                                                     \
        errno = keep;                                                                                                  \
        return r;                                                                                                      \
    }
MR_URING_BARE(io_uring_setup, SYS_io_uring_setup, (unsigned n, struct io_uring_params *p), (n, p), n, (long)p)
MR_URING_BARE(io_uring_enter, SYS_io_uring_enter, (unsigned fd, unsigned n, unsigned w, unsigned f, sigset_t *m),
              (fd, n, w, f, m), fd, n, w, f, (long)m)
MR_URING_BARE(io_uring_enter2, SYS_io_uring_enter,
              (unsigned fd, unsigned n, unsigned w, unsigned f, sigset_t *m, size_t z), (fd, n, w, f, m, z), fd, n, w,
              f, (long)m, (long)z)
MR_URING_BARE(io_uring_register, SYS_io_uring_register, (unsigned fd, unsigned op, const void *arg, unsigned n),
              (fd, op, arg, n), fd, op, (long)arg, n)

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
        forget(ring);
        mr_file_set(ring->ring_fd, 0); /* the library closes it by itself */
    }
    uint64_t t0 = mr_stamp();
    real_io_uring_queue_exit(ring);
    if (mr_enter())
        mr_put(t0, mr_stamp(), CALL(io_uring_queue_exit), 0, 0, MR_NO_OFFSET, 0);
}
