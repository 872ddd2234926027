/* Linux's own asynchronous I/O, through libaio, syscall(2) or by instruction: operations are read when they are
 * submitted and found again by their control block when their completion is seen. An operation is one event from
 * submission to completion, `io_read`, `io_write`, `io_fsync`; the calls themselves are events too. libaio's functions
 * return the negative error. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/uio.h>

#define MOST_AT_ONCE 65536 /* that one call submits */

/* What was submitted. The kernel has its own copy from then on: the program may use the control block again, also
 * before this one ends, or free it. */
struct operation {
    uint64_t block, t0, offset, bytes; /* block 0: free slot */
    uint32_t file;
    int fd;
    unsigned call; /* 0: not known */
};

#define FIRST_SLOTS 512u

static struct {
    struct operation *op; /* open addressing by control block, without gaps */
    uint32_t slots, used; /* a power of two, at least twice as many as are in flight */
} table;
static _Atomic uint32_t table_lock;
static uint32_t table_epoch;

/* Locks the table, with signals blocked. */
static uint64_t lock_table(void)
{
    uint64_t signals = mr_signals_block();
    if (table_epoch != mr_core.epoch) { /* a forked child has none of its parent's operations, nor its lock */
        table_epoch = mr_core.epoch;
        atomic_store(&table_lock, 0);
        table.op = NULL;
        table.slots = table.used = 0;
    }
    mr_spin_lock(&table_lock);
    return signals;
}

static void unlock_table(uint64_t signals)
{
    mr_spin_unlock(&table_lock);
    mr_signals_restore(signals);
}

static uint32_t home_of(uint64_t block, uint32_t slots)
{
    return (uint32_t)(block * 0x9e3779b97f4a7c15ull >> 40) & (slots - 1);
}

static void insert(struct operation *op, uint32_t slots, const struct operation *o)
{
    uint32_t i = home_of(o->block, slots);
    while (op[i].block)
        i = (i + 1) & (slots - 1);
    op[i] = *o;
}

/* Room for one more; false without memory. */
static bool make_room(void)
{
    uint32_t slots = table.slots ? table.slots * 2 : FIRST_SLOTS;
    if (table.used * 2 + 2 <= table.slots)
        return true;
    struct operation *bigger = mr_map_pages(slots * sizeof(*bigger));
    if (!bigger)
        return false;
    for (uint32_t i = 0; i < table.slots; i++)
        if (table.op[i].block)
            insert(bigger, slots, &table.op[i]);
    if (table.op)
        mr_sys2(SYS_munmap, table.op, table.slots * sizeof(*table.op));
    table.op = bigger;
    table.slots = slots;
    return true;
}

static void remember(const struct operation *o)
{
    uint64_t signals = lock_table();
    if (make_room()) {
        insert(table.op, table.slots, o);
        table.used++;
    }
    unlock_table(signals);
}

/* Removes one and moves up those behind it, so that no search ends early. */
static void remove_at(uint32_t hole)
{
    uint32_t mask = table.slots - 1;
    for (uint32_t i = (hole + 1) & mask; table.op[i].block; i = (i + 1) & mask)
        if (((i - home_of(table.op[i].block, table.slots)) & mask) >= ((i - hole) & mask)) {
            table.op[hole] = table.op[i];
            hole = i;
        }
    table.op[hole].block = 0;
    table.used--;
}

/* Takes out the oldest operation of a control block, or the newest. */
static struct operation recall(uint64_t block, bool newest)
{
    struct operation found = {.call = 0};
    uint64_t signals = lock_table();
    uint32_t best = table.slots;
    for (uint32_t i = table.slots ? home_of(block, table.slots) : 0; table.slots && table.op[i].block;
         i = (i + 1) & (table.slots - 1))
        if (table.op[i].block == block && (best == table.slots || (newest ? table.op[i].t0 >= table.op[best].t0
                                                                          : table.op[i].t0 < table.op[best].t0)))
            best = i;
    if (best < table.slots) {
        found = table.op[best];
        remove_at(best);
    }
    unlock_table(signals);
    return found;
}

static unsigned call_of(const struct iocb *b)
{
    switch (b->aio_lio_opcode) {
    case IOCB_CMD_PREAD:
    case IOCB_CMD_PREADV: return CALL(io_read);
    case IOCB_CMD_PWRITE:
    case IOCB_CMD_PWRITEV: return CALL(io_write);
    case IOCB_CMD_FSYNC:
    case IOCB_CMD_FDSYNC: return CALL(io_fsync);
    default: return CALL(io_other);
    }
}

static uint64_t bytes_of(const struct iocb *b)
{
    if (b->aio_lio_opcode != IOCB_CMD_PREADV && b->aio_lio_opcode != IOCB_CMD_PWRITEV)
        return b->aio_nbytes;
    const struct iovec *v = (const void *)(uintptr_t)b->aio_buf;
    uint64_t sum = 0;
    if (b->aio_nbytes > 1024 || !mr_readable(v, b->aio_nbytes * sizeof(*v)))
        return 0;
    for (uint64_t i = 0; i < b->aio_nbytes; i++)
        sum += v[i].iov_len;
    return sum;
}

void mr_libaio_submitting(struct iocb *const *block, long n, uint64_t t0)
{
    uintptr_t good = 1; /* the page that the last block ends in; they mostly lie side by side */
    if (n <= 0 || n > MOST_AT_ONCE || !mr_readable(block, (uint64_t)n * sizeof(*block)))
        return;
    for (long i = 0; i < n; i++) {
        const struct iocb *b = block[i];
        uintptr_t first = (uintptr_t)b >> 12, last = ((uintptr_t)b + sizeof(*b) - 1) >> 12;
        if ((first != good || last != good) && !mr_readable(b, sizeof(*b)))
            return; /* the kernel stops here too */
        good = last;
        const struct operation o = {
            (uintptr_t)b,       t0,        (uint64_t)b->aio_offset, bytes_of(b), mr_file_of((int)b->aio_fildes),
            (int)b->aio_fildes, call_of(b)};
        remember(&o);
    }
}

/* The kernel has taken `taken` of n; the others were not submitted. */
void mr_libaio_submitted(struct iocb *const *block, long n, long taken)
{
    if (n <= 0 || n > MOST_AT_ONCE || taken >= n || !mr_readable(block, (uint64_t)n * sizeof(*block)))
        return;
    for (long i = n - 1; i >= (taken > 0 ? taken : 0); i--)
        recall((uintptr_t)block[i], true);
}

void mr_libaio_completed(const struct io_event *e, long n, uint64_t now)
{
    for (long i = 0; i < n; i++) {
        struct operation o = recall(e[i].obj, false);
        if (!o.call) {
            mr_put(now, now, CALL(io_other), 0, 0, MR_NO_OFFSET, e[i].res);
            continue;
        }
        bool moves = o.call == CALL(io_read) || o.call == CALL(io_write);
        const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = moves ? o.bytes : 0};
        if (o.file != MR_FILE_EXCLUDED)
            mr_put_slow(o.t0, now, o.call, o.file, o.fd >= 0 ? mr_fd1(o.fd) : 0, moves ? o.offset : MR_NO_OFFSET,
                        e[i].res, &extra, moves && (int64_t)extra.value != e[i].res);
    }
}

/* ---- libaio ---- */

/* What libaio does by instruction inside is not recorded once more. */
#define MR_AIO(ret, name, params, args, before, after)                                                                 \
    MR_REAL(ret, name, params, args)                                                                                   \
    MR_SYMBOL(ret, name, params)                                                                                       \
    {                                                                                                                  \
        if (!mr_enter())                                                                                               \
            return real_##name args;                                                                                   \
        uint64_t t0 = mr_stamp();                                                                                      \
        before;                                                                                                        \
        mr_strays_quiet(1);                                                                                            \
        ret r = real_##name args;                                                                                      \
        mr_strays_quiet(-1);                                                                                           \
        uint64_t t1 = mr_stamp();                                                                                      \
        after;                                                                                                         \
        return r;                                                                                                      \
    }
#define DONE(c) mr_put(t0, t1, CALL(c), 0, 0, NONE, (int64_t)r)
MR_AIO(int, io_setup, (int n, void *c), (n, c), (void)0, DONE(io_setup))
MR_AIO(int, io_destroy, (void *c), (c), (void)0, DONE(io_destroy))
MR_AIO(int, io_submit, (void *c, long n, struct iocb **b), (c, n, b), mr_libaio_submitting(b, n, t0),
       mr_libaio_submitted(b, n, r);
       DONE(io_submit))
MR_AIO(int, io_getevents, (void *c, long m, long n, struct io_event *e, struct timespec *t), (c, m, n, e, t), (void)0,
       mr_libaio_completed(e, r, t1);
       DONE(io_getevents))
MR_AIO(int, io_pgetevents, (void *c, long m, long n, struct io_event *e, struct timespec *t, sigset_t *s),
       (c, m, n, e, t, s), (void)0, mr_libaio_completed(e, r, t1);
       DONE(io_getevents))
MR_AIO(int, io_cancel, (void *c, struct iocb *b, struct io_event *e), (c, b, e), (void)0,
       if (r == 0) mr_libaio_completed(e, 1, t1);
       DONE(io_cancel))
