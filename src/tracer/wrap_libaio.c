/* Linux's own asynchronous I/O, through libaio, syscall(2) or by instruction: operations are read when they are submitted and found again by
 * their control block when their completion is seen. An operation is one event from submission to completion, `io_read`, `io_write`,
 * `io_fsync`; the calls themselves are events too. libaio's functions return the negative error. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/uio.h>

#define IN_FLIGHT 8192u /* operations that are remembered; of more, only the completion is timed */
#define PROBES 64u

struct operation {
    uint64_t block, t0; /* block 0: free */
    uint32_t file;
};

static struct operation *table; /* by control block */
static _Atomic uint32_t table_lock;
static uint32_t table_epoch;

/* The table, locked with signals blocked; NULL without memory. */
static struct operation *lock_table(uint64_t *signals)
{
    *signals = mr_signals_block();
    if (table_epoch != mr_core.epoch) { /* a forked child has none of its parent's operations, nor its lock */
        table_epoch = mr_core.epoch;
        atomic_store(&table_lock, 0);
        table = NULL;
    }
    mr_spin_lock(&table_lock);
    if (!table)
        table = mr_map(IN_FLIGHT * sizeof(*table));
    return table;
}

static void unlock_table(uint64_t signals)
{
    mr_spin_unlock(&table_lock);
    mr_signals_restore(signals);
}

static unsigned slot_of(uint64_t block)
{
    return (unsigned)(block * 0x9e3779b97f4a7c15ull >> 51) % IN_FLIGHT;
}

static void remember(uint64_t block, uint64_t t0, uint32_t file)
{
    uint64_t signals;
    struct operation *t = lock_table(&signals);
    for (unsigned i = 0, at = slot_of(block); t && i < PROBES; i++, at = (at + 1) % IN_FLIGHT)
        if (!t[at].block || t[at].block == block) {
            t[at] = (struct operation){block, t0, file};
            break;
        }
    unlock_table(signals);
}

static struct operation recall(uint64_t block, uint64_t now)
{
    struct operation found = {.t0 = now};
    uint64_t signals;
    struct operation *t = lock_table(&signals);
    for (unsigned i = 0, at = slot_of(block); t && i < PROBES; i++, at = (at + 1) % IN_FLIGHT)
        if (t[at].block == block) {
            found = t[at];
            t[at].block = 0;
            break;
        }
    unlock_table(signals);
    return found;
}

static unsigned call_of(const struct iocb *b)
{
    switch (b->aio_lio_opcode) {
    case IOCB_CMD_PREAD: case IOCB_CMD_PREADV: return CALL(io_read);
    case IOCB_CMD_PWRITE: case IOCB_CMD_PWRITEV: return CALL(io_write);
    case IOCB_CMD_FSYNC: case IOCB_CMD_FDSYNC: return CALL(io_fsync);
    default: return CALL(io_other);
    }
}

static uint64_t bytes_of(const struct iocb *b)
{
    if (b->aio_lio_opcode != IOCB_CMD_PREADV && b->aio_lio_opcode != IOCB_CMD_PWRITEV)
        return b->aio_nbytes;
    const struct iovec *v = (const void *)(uintptr_t)b->aio_buf;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < b->aio_nbytes; i++)
        sum += v[i].iov_len;
    return sum;
}

void mr_libaio_submitting(struct iocb *const *block, long n, uint64_t t0)
{
    for (long i = 0; i < n && i < (long)IN_FLIGHT; i++) {
        const struct iocb *b = block[i];
        remember((uintptr_t)b, t0, mr_file_of((int)b->aio_fildes));
    }
}

void mr_libaio_completed(const struct io_event *e, long n, uint64_t now)
{
    for (long i = 0; i < n; i++) {
        const struct iocb *b = (const void *)(uintptr_t)e[i].obj;
        struct operation o = recall(e[i].obj, now);
        unsigned call = call_of(b);
        bool moves = call == CALL(io_read) || call == CALL(io_write);
        uint32_t file = o.block ? o.file : mr_file_of((int)b->aio_fildes);
        const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = moves ? bytes_of(b) : 0};
        if (file != MR_FILE_EXCLUDED)
            mr_put_slow(o.t0, now, call, file, (uint32_t)MR_MIN(b->aio_fildes, 0xfffeu) + 1, moves ? (uint64_t)b->aio_offset : MR_NO_OFFSET,
                        e[i].res, &extra, moves && (int64_t)extra.value != e[i].res);
    }
}

/* ---- libaio ---- */

/* What libaio does by instruction inside is not recorded once more. */
#define MR_AIO(ret, name, params, args, before, after)                                                               \
    MR_REAL(ret, name, params, args)                                                                                 \
    MR_SYMBOL(ret, name, params)                                                                                     \
    {                                                                                                                \
        if (!mr_enter())                                                                                             \
            return real_##name args;                                                                                 \
        uint64_t t0 = mr_stamp();                                                                                    \
        before;                                                                                                      \
        mr_strays_quiet(1);                                                                                          \
        ret r = real_##name args;                                                                                    \
        mr_strays_quiet(-1);                                                                                         \
        uint64_t t1 = mr_stamp();                                                                                    \
        after;                                                                                                       \
        return r;                                                                                                    \
    }
#define DONE(c) mr_put(t0, t1, CALL(c), 0, 0, NONE, (int64_t)r)
MR_AIO(int, io_setup, (int n, void *c), (n, c), (void)0, DONE(io_setup))
MR_AIO(int, io_destroy, (void *c), (c), (void)0, DONE(io_destroy))
MR_AIO(int, io_submit, (void *c, long n, struct iocb **b), (c, n, b), mr_libaio_submitting(b, n, t0), DONE(io_submit))
MR_AIO(int, io_getevents, (void *c, long m, long n, struct io_event *e, struct timespec *t), (c, m, n, e, t), (void)0,
       mr_libaio_completed(e, r, t1); DONE(io_getevents))
MR_AIO(int, io_pgetevents, (void *c, long m, long n, struct io_event *e, struct timespec *t, sigset_t *s), (c, m, n, e, t, s), (void)0,
       mr_libaio_completed(e, r, t1); DONE(io_getevents))
MR_AIO(int, io_cancel, (void *c, struct iocb *b, struct io_event *e), (c, b, e), (void)0, if (r == 0) mr_libaio_completed(e, 1, t1); DONE(io_cancel))
