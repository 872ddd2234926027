/* The .mrt container: numbers of doc/reference/trace-format.md and the encoder of blocks. The encoder is part of the
 * preload library: no malloc, no stdio, no system call; all memory comes from the caller. */
#ifndef MR_EVENT_MRT_H
#define MR_EVENT_MRT_H

#include "event/raw.h"

#include <stddef.h>
#include <stdint.h>

#define MR_MRT_HEADER 64u
#define MR_MRT_MAJOR 2u
#define MR_MRT_BLOCK_MAGIC 0x3142524du
#define MR_MRT_MAGIC "\x89MRT\r\n\x1a\n"
#define MR_MRT_FOOT_MAGIC "MRTFOOT1"
#define MR_MRT_EVENTS_FIXED 56u
#define MR_MRT_COLUMN_ROW 16u

enum mr_mrt_type {
    MR_MRT_PROCESS = 1,
    MR_MRT_STRINGS,
    MR_MRT_EVENTS,
    MR_MRT_END,
    MR_MRT_FOOTER,
    MR_MRT_MOUNTS,
    MR_MRT_START,
    MR_MRT_PROBE
};
enum mr_mrt_how { MR_HOW_EXIT = 1, MR_HOW_EXEC, MR_HOW_KILLED, MR_HOW_RUNNING };

enum mr_mrt_column {
    MR_COL_GAP = 1,
    MR_COL_DURATION,
    MR_COL_CALL,
    MR_COL_FILE,
    MR_COL_FD,
    MR_COL_OFFSET,
    MR_COL_RESULT,
    MR_COL_ARG_EVENT,
    MR_COL_ARG_KEY,
    MR_COL_ARG_TYPE,
    MR_COL_ARG_VALUE,
    MR_COLS
};

struct mr_mrt_block {
    uint16_t type, flags;
    uint32_t payload_bytes, crc;
    uint64_t key;
    uint32_t tid, count;
    uint64_t sequence, first_ns, last_ns, lost;
};

/* Two points of the counter against the clocks; ticks between them are interpolated. */
struct mr_calibration {
    uint64_t tick0, mono0, real0, tick1, mono1;
};

struct mr_process_info {
    uint64_t key;
    uint32_t pid, ppid;
    uint64_t start_ns, start_real_ns;
    int32_t rank, world, local_rank, local_world;
    uint32_t uid, flags;
    const char *host, *exe, *cmdline; /* not NUL-terminated */
    uint32_t host_len, exe_len, cmdline_len;
    uint64_t names_key; /* with MR_PROCESS_SHARES_NAMES: the process whose strings this one uses */
};
#define MR_PROCESS_FORKED 1u
#define MR_PROCESS_TSC 2u
#define MR_PROCESS_SHARES_NAMES 4u

/* LEB128 and zigzag, as everywhere in the container. */
static inline uint8_t *mr_put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}
static inline uint64_t mr_zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t mr_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* Bytes of scratch memory an encoder needs, 64-byte aligned, zeroed before the first use (fresh mmap is). */
size_t mr_mrt_workspace_bytes(void);
/* Blocks encoded with it take at most this many events, fewer than MR_BLOCK_EVENTS, their arguments counted in. */
void mr_mrt_workspace_block(void *workspace, uint32_t events);
#define MR_LIMIT_PARTS 64u /* where a file's size is limited: bytes of the limit per event of a block */
/* An output buffer of this many bytes always suffices for an events block. */
#define MR_MRT_EVENTS_MAX (5u << 20)

/* Encodes the events in the cells [carry->at, to) of a ring into one complete block (header, payload, padding) at
 * `out`. About MR_BLOCK_EVENTS events are taken, their arguments counted in; *carry then tells of the position after
 * the last one, *block what the header says. Returns the bytes written; 0 only if carry->at == to. A carry of {0} will
 * do for records without repeats. */
size_t mr_mrt_encode_events(void *workspace, const uint64_t *ring, uint64_t mask, uint64_t to, struct mr_carry *carry,
                            const struct mr_calibration *cal, uint64_t key, uint32_t tid, uint64_t sequence,
                            uint64_t lost, uint8_t *out, struct mr_mrt_block *block);
/* The same of n records. */
size_t mr_mrt_encode_records(void *workspace, const struct mr_raw *record, uint32_t n, const struct mr_calibration *cal,
                             uint64_t key, uint32_t tid, uint64_t sequence, uint64_t lost, uint8_t *out,
                             uint32_t *taken, struct mr_mrt_block *block);
/* A strings block from arena entries; the first has id `first`. Stops before exceeding half of `cap`, and at some 128
 * KiB; *taken_bytes and *taken say how far it came. Returns bytes written. */
#define MR_MRT_STRINGS_PACKED 1u /* flag of the block: u32 length, zstd frame */
size_t mr_mrt_encode_strings(void *workspace, const uint8_t *arena, uint64_t len, uint64_t key, uint32_t first,
                             uint8_t *out, size_t cap, uint64_t *taken_bytes, uint32_t *taken);
/* Payload of a process block, at most MR_RING_PROCESS_BYTES; longer command lines are cut. */
size_t mr_mrt_encode_process(const struct mr_process_info *p, uint8_t *out, size_t cap);
/* Wraps a payload that already lies at out + 64 into a block. Returns its bytes with padding. */
size_t mr_mrt_seal(uint8_t *out, const struct mr_mrt_block *b);
/* `skipped` (may be NULL) has MR_SLOT_CALLS counts of calls that sampling left out. */
size_t mr_mrt_encode_end(uint64_t key, enum mr_mrt_how how, uint32_t threads, uint64_t events, uint64_t lost,
                         uint64_t end_ns, const uint64_t *skipped, uint8_t *out);
void mr_mrt_file_header(uint64_t real_ns, const uint8_t id[16], uint8_t out[MR_MRT_HEADER]);

/* ns of a tick value. */
uint64_t mr_ticks_to_ns(const struct mr_calibration *cal, uint64_t tick);

#endif
