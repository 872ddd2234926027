/* What a traced program writes while it runs: 32-byte records in per-thread rings inside a shared, mapped spool file.
 * Only the preload library writes records; only the collector, `millrace recover` or the library itself (when nobody
 * drains) reads them. Layout in doc/trace-format.md; private to one version on one machine.
 *
 * Invariants
 *  R1. A slot has one writer, its thread. head is stored (release) after the records it covers.
 *  R2. tail <= written <= head. Records [written, head) are valid and nowhere else; written moves only after they are safe in a
 *      file, tail only after written, both by whoever holds the slot's drain lock.
 *  R3. An event and its continuation records are published by one store of head, so a reader never sees a part of it.
 *  R4. A slot goes FREE -> LIVE (claimed by a thread) -> DONE (thread ended) -> FREE (all drained); positions go on
 *      counting over reuse, so (slot, position) names a record once per process.
 *  R5. Strings are complete before strings_used covers them, and strings_used covers them before a record refers to them.
 *  R6. The drainer gives memory of [tail, written) back, notes that in `freed`, then moves tail: it is never memory that the
 *      thread may write to, and a thread that sees the new tail sees `freed` as well.
 *  R7. A thread that finds the start of its ring drained may start over there instead of taking more memory: a record MR_MORE_SKIP, and
 *      head moves to the next multiple of MR_RING_RECORDS. At most one such gap lies between tail and head. */
#ifndef MR_EVENT_RAW_H
#define MR_EVENT_RAW_H

#include <stdatomic.h>
#include <stdint.h>

struct mr_raw {
    uint64_t word[4];
};

/* Continuation records: word 0 value, word 1 low half type, high half key, word 2 low 16 bits MR_CALL_more. */
enum mr_more {
    MR_MORE_INT = 1,    /* value: int64 */
    MR_MORE_UINT,       /* value: uint64 */
    MR_MORE_DOUBLE,     /* value: bits of a double */
    MR_MORE_TEXT,       /* value: string id */
    MR_MORE_COUNT,      /* value: requested bytes, when not equal to the result */
    MR_MORE_FILE2,      /* value: second file (rename target, copy destination) */
    MR_MORE_OFFSET,     /* value: all 64 bits of the offset */
    MR_MORE_RESULT,     /* value: all 64 bits of the result */
    MR_MORE_DURATION,   /* value: all 64 bits of the duration, ticks */
    MR_MORE_SKIP,       /* belongs to no event: the next record is at the ring's start */
};
#define MR_MORE_LAST_STORED MR_MORE_FILE2 /* types above are folded into their columns */

enum mr_string_kind { MR_STR_PATH, MR_STR_SITE, MR_STR_KEY, MR_STR_TEXT };

#define MR_RING_MAGIC 0x3147534e5252u /* "RRNSG1" */
#define MR_RING_VERSION 4u /* of the layout below; library and command must agree */
#define MR_RING_RECORDS 1048576u /* address space; memory comes as it is needed */
#define MR_BLOCK_EVENTS 32768u /* records per block */
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
    _Atomic uint64_t freed;     /* the last position whose memory was given back */
    _Atomic uint32_t drain_lock; /* 0 free, else tid of the drainer; a dead holder is ignored by recover */
    _Alignas(MR_RING_LINE) _Atomic uint64_t lost;
    _Atomic uint64_t skip_at;   /* 1 + position of the last MR_MORE_SKIP; 0: none */
    uint64_t populated;         /* memory of records is present up to here; the thread's own, kept for the slot's next thread */
    /* Sampling: calls made so far, and calls left out, by number. Written by the slot's thread only. */
    _Atomic uint32_t made[MR_SLOT_CALLS];
    _Atomic uint64_t skipped[MR_SLOT_CALLS];
    _Alignas(4096) struct mr_raw record[MR_RING_RECORDS];
};

struct mr_ring_header {
    uint64_t magic;
    uint32_t version, segment;
    uint64_t key;              /* process key */
    uint32_t pid, process_bytes;
    _Atomic uint32_t state;    /* enum mr_ring_state */
    _Atomic uint32_t segments; /* segment 0: how many exist */
    uint64_t tick0, mono0, real0;
    uint64_t pid_space;        /* inode of the pid namespace that pid belongs to; 0 unknown */
    uint32_t tick_is_tsc, slots_present; /* slots whose first pages are there */
    _Atomic uint64_t last_tick, last_mono; /* a later pair, refreshed by slow paths */
    _Atomic uint64_t strings_used; /* bytes of the arena, segment 0 */
    _Atomic uint32_t strings;      /* number of strings */
    _Atomic uint32_t strings_full; /* names that did not fit */
    _Atomic uint32_t starved;      /* segment 0: a thread finds no memory for its records */
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
};
#define MR_SESSION_OFF 2u
#define MR_SESSION_MAGIC 0x314e4f495353454dull /* "MESSION1" */

/* One of the file `moved` in the spool folder, which is there when page faults are watched: the kernel tells of mappings, but not of those that
 * mremap moves or extends. */
struct mr_moved {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t from, to, len;
    uint32_t pid, unused;
};

/* Positions in [from, head) that hold no record (R7). */
static inline uint64_t mr_slot_gap(const struct mr_slot *s, uint64_t from, uint64_t head)
{
    uint64_t at = atomic_load_explicit(&s->skip_at, memory_order_relaxed);
    return at > from && at <= head ? MR_RING_RECORDS - at % MR_RING_RECORDS : 0;
}

static inline unsigned mr_raw_call(const struct mr_raw *r)
{
    return (unsigned)(r->word[2] & 0xffff);
}

#endif
