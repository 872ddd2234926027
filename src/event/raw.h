/* What a traced program writes while it runs: records in per-thread rings inside a shared, mapped spool file. A record
 * takes four cells of 8 bytes; one like the record before it, which most reads and writes are, takes two
 * (MR_RAW_REPEAT), or one if it also comes soon after, is short, and not far from it in the file (MR_RAW_SHORT). Only
 * the preload library writes records; only the collector, `millrace recover` or the library itself (when nobody drains)
 * reads them. Layout in doc/reference/trace-format.md; private to one version on one machine.
 *
 * Invariants
 *  R1. A slot has one writer, its thread. head is stored (release) after the records it covers. Positions count cells.
 *  R2. tail <= written <= head. Records [written, head) are valid and nowhere else; written moves only after they are
 *      safe in a file, tail only after written, both by whoever holds the slot's drain lock.
 *  R3. An event and its continuation records are published by one store of head, so a reader never sees a part of it.
 *  R4. A slot goes FREE -> LIVE (claimed by a thread) -> DONE (thread ended) -> FREE (all drained). Positions keep
 *      counting when a slot is reused, so (slot, position) identifies a record within a process.
 *  R5. Strings are complete before strings_used covers them, and strings_used covers them before a record refers to
 *      them.
 *  R6. The drainer frees the memory of [tail, written), notes that in `freed`, then moves tail. So it never frees
 *      memory that the thread may write to, and a thread that sees the new tail sees `freed` as well.
 *  R7. A thread that finds the start of its ring drained may wrap there instead of taking more memory: it writes a
 *      cell MR_RAW_SKIP and moves head to the next multiple of MR_RING_CELLS. At most one such gap lies between tail
 *      and head.
 *  R8. What a repeat at `written` repeats is in the one of the slot's two carries that names this position. The
 *      drainer writes the other one before it moves written, so that a killed drainer leaves a valid one.
 *  R9. The event of an exec waits in `exec` until the outcome is known: if exec fails, its thread removes it and
 *      records the failure; if the process is gone, the drainer writes it after the slot's last event. */
#ifndef MR_EVENT_RAW_H
#define MR_EVENT_RAW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Word 0 offset << 16 | call, word 1 file << 32 | duration, word 2 start, word 3 result << 16 | descriptor + 1. */
struct mr_raw {
    uint64_t word[4];
};

/* A repeat: word 0 offset << 16 | MR_RAW_REPEAT | call, word 1 start - end of the event before << 32 | duration. File
 * and descriptor are those of the event before; the result of lseek is its offset, others have that of the last record.
 */
#define MR_RAW_REPEAT 0x4000u
/* A short repeat: offset - offset of the event before << 32 | duration << 16 | MR_RAW_SHORT | start - end of the event
 * before << 3 | enum mr_short. */
#define MR_RAW_SHORT 0x8000u
#define MR_SHORT_GAP_BITS 12
#define MR_SHORT_DURATION_BITS 16

/* The calls that may be repeats. Reads and writes have no offset; then the event before is the last repeat that has
 * one, or the last record. */
enum mr_short { MR_SHORT_read, MR_SHORT_write, MR_SHORT_pread, MR_SHORT_pwrite, MR_SHORT_lseek, MR_SHORTS = 8 };

/* What a repeat needs of the events before it. */
struct mr_carry {
    uint64_t at;             /* position of the next event */
    uint64_t end, result_fd; /* result << 16 | descriptor + 1 */
    uint64_t file, offset;
};

/* Continuation records: word 0 MR_CALL_more, word 1 low half type, high half key, word 2 value. */
enum mr_more {
    MR_MORE_INT = 1,  /* value: int64 */
    MR_MORE_UINT,     /* value: uint64 */
    MR_MORE_DOUBLE,   /* value: bits of a double */
    MR_MORE_TEXT,     /* value: string id */
    MR_MORE_COUNT,    /* value: requested bytes, when not equal to the result */
    MR_MORE_FILE2,    /* value: second file (rename target, copy destination) */
    MR_MORE_OFFSET,   /* value: all 64 bits of the offset */
    MR_MORE_RESULT,   /* value: all 64 bits of the result */
    MR_MORE_DURATION, /* value: all 64 bits of the duration, ticks */
};
#define MR_RAW_SKIP 0x10001u /* one cell, of no event (R7); otherwise the high bits of such a word 0 are 0 */
#define MR_MORE_LAST_STORED MR_MORE_FILE2 /* types above are folded into their columns */

enum mr_string_kind { MR_STR_PATH, MR_STR_SITE, MR_STR_KEY, MR_STR_TEXT };

#define MR_RING_MAGIC 0x3147534e5252u /* "RRNSG1" */
#define MR_RING_VERSION 8u            /* of the layout below; library and command must agree */
#define MR_RING_CELLS 4194304u        /* address space; memory comes as it is needed */
#define MR_BLOCK_EVENTS 32768u        /* events per block */
#define MR_RECORD_CELLS 4u
#define MR_BLOCK_CELLS (MR_RECORD_CELLS * MR_BLOCK_EVENTS)
#define MR_RING_SLOTS 8u
#define MR_RING_SEGMENTS 512u /* of a process */
#define MR_RING_PROCESS_BYTES (60u << 10)
#define MR_RING_STRING_BYTES (256ull << 20)
#define MR_RING_LINE 64
#define MR_SLOT_CALLS 512u /* room for every number in calls.h */

enum mr_slot_state { MR_SLOT_FREE, MR_SLOT_LIVE, MR_SLOT_DONE };
enum mr_ring_state { MR_RING_RUNNING = 1, MR_RING_EXITED, MR_RING_EXEC };

#define MR_NO_OFFSET UINT64_MAX

/* A value is given to continuation records only if it does not fit 48 bits signed. */
#define MR_RAW_FITS48(v) ((int64_t)((uint64_t)(v) << 16) >> 16 == (int64_t)(v))

struct mr_slot {
    _Atomic uint32_t state; /* enum mr_slot_state */
    uint32_t tid;
    _Alignas(MR_RING_LINE) _Atomic uint64_t head;
    _Alignas(MR_RING_LINE) _Atomic uint64_t tail;
    _Atomic uint64_t written;
    _Atomic uint64_t freed;      /* the last position whose memory was given back */
    _Atomic uint32_t drain_lock; /* 0 free, else tid of the drainer; a dead holder is ignored by recover */
    _Alignas(MR_RING_LINE) _Atomic uint64_t lost;
    _Atomic uint64_t skip_at; /* 1 + position of the last MR_RAW_SKIP; 0: none */
    struct mr_carry carry[2]; /* R8 */
    struct mr_raw exec;       /* R9 */
    _Atomic uint32_t exec_set;
    uint64_t populated; /* memory of cells is present up to here; the thread's own, kept for the slot's next thread */
    /* Sampling: calls made so far, and calls left out, by number. Written by the slot's thread only. */
    _Atomic uint32_t made[MR_SLOT_CALLS];
    _Atomic uint64_t skipped[MR_SLOT_CALLS];
    _Alignas(4096) uint64_t cell[MR_RING_CELLS];
};

struct mr_ring_header {
    uint64_t magic;
    uint32_t version, segment;
    uint64_t key; /* process key */
    uint32_t pid, process_bytes;
    _Atomic uint32_t state;    /* enum mr_ring_state */
    _Atomic uint32_t segments; /* segment 0: how many exist */
    uint64_t tick0, mono0, real0;
    uint64_t pid_space;                    /* inode of the pid namespace that pid belongs to; 0 unknown */
    uint32_t tick_is_tsc, slots_present;   /* slots whose first pages are there */
    _Atomic uint64_t last_tick, last_mono; /* a later pair, refreshed by slow paths */
    _Atomic uint64_t strings_used;         /* bytes of the arena, segment 0 */
    _Atomic uint32_t strings;              /* number of strings */
    _Atomic uint32_t strings_full;         /* names that did not fit */
    _Atomic uint32_t starved;              /* segment 0: a thread finds no memory for its records */
    _Atomic uint64_t lost;                 /* segment 0: events of threads that found no slot */
};

/* Segment 0: header page, process payload, string arena, slots. Others: header page, slots. */
#define MR_RING_PROCESS_AT 4096ull
#define MR_RING_STRINGS_AT (64ull << 10)
#define MR_RING_SLOTS_AT(segment) ((segment) ? 4096ull : MR_RING_STRINGS_AT + MR_RING_STRING_BYTES)
#define MR_RING_SEGMENT_BYTES(segment) (MR_RING_SLOTS_AT(segment) + MR_RING_SLOTS * sizeof(struct mr_slot))

static inline struct mr_slot *mr_ring_slot(struct mr_ring_header *h, unsigned i)
{
    return (struct mr_slot *)((char *)h + MR_RING_SLOTS_AT(h->segment)) + i;
}

/* Slots that have memory. Touching an unbacked slot allocates it, or raises SIGBUS where the file system is full. */
static inline unsigned mr_ring_slots(const struct mr_ring_header *h)
{
    uint32_t n = __atomic_load_n(&h->slots_present, __ATOMIC_ACQUIRE);
    return n < MR_RING_SLOTS ? n : MR_RING_SLOTS;
}

/* A string in the arena: u32 length, u8 kind, 3 zero bytes, the bytes, padding to 4. */
struct mr_arena_string {
    uint32_t len;
    uint8_t kind, zero[3];
    char text[];
};
#define MR_ARENA_STRING_BYTES(len) ((8ull + (len) + 3) & ~3ull)

/* The collector's page `session` in the spool folder. */
struct mr_session {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t collecting; /* 1 while the collector drains; MR_SESSION_OFF: stop recording */
    uint32_t collector_pid;
    uint32_t turns;    /* files begun anew under a limit on their size: if any, OUT.1 has what is older than OUT */
    uint64_t recorded; /* events written so far, in whichever file */
    /* CLOCK_MONOTONIC, by `millrace watch`: until then the trace is read while it is written, and is kept fresh. */
    _Atomic uint64_t watched_until_ns;
};
#define MR_SESSION_OFF 2u
#define MR_SESSION_MAGIC 0x314e4f495353454dull /* "MESSION1" */

/* Whether a signal can switch recording on and off: no handler can be for two of the kernel's, nor for two of the C
 * library's. */
static inline bool mr_signal_can_switch(int64_t number)
{
    return number > 0 && number < 65 && number != 9 && number != 19 && number != 32 &&
           number != 33; /* SIGKILL, SIGSTOP */
}

/* One of the file `moved` in the spool folder, which is there when page faults are watched: the kernel tells of
 * mappings, but not of those that mremap moves or extends. */
struct mr_moved {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t from, to, len;
    uint32_t pid, unused;
};

/* Positions in [from, head) that hold no record (R7). */
static inline uint64_t mr_slot_gap(const struct mr_slot *s, uint64_t from, uint64_t head)
{
    uint64_t at = atomic_load_explicit(&s->skip_at, memory_order_relaxed);
    return at > from && at <= head ? MR_RING_CELLS - at % MR_RING_CELLS : 0;
}

/* R8. Both by the holder of the drain lock, the second one before it moves written to carry->at. */
static inline struct mr_carry mr_slot_carry(const struct mr_slot *s)
{
    uint64_t at = atomic_load_explicit(&s->written, memory_order_relaxed);
    struct mr_carry carry = s->carry[s->carry[0].at == at ? 0 : 1];
    carry.at = at; /* in a damaged ring neither may be */
    return carry;
}
static inline void mr_slot_carry_set(struct mr_slot *s, const struct mr_carry *carry)
{
    uint64_t at = atomic_load_explicit(&s->written, memory_order_relaxed);
    s->carry[s->carry[0].at == at ? 1 : 0] = *carry;
}

/* The call of the record or the repeat, not a short one, that begins with this cell. */
static inline unsigned mr_cell_call(uint64_t cell)
{
    return (unsigned)(cell & (MR_RAW_REPEAT - 1));
}

#endif
