/* What an events block says about itself before its columns: per function counts, times and sizes, per file calls and
 * bytes. Filled while records are unpacked, written as the block's aggregates (doc/reference/trace-format.md). Part of
 * the preload library: no malloc, no libc beyond memcpy; a tally lives in zeroed memory and mr_tally_put leaves it
 * zeroed, apart from numbers that count what is used.
 *
 * Limits: a block with more than MR_TALLY_FUNCTIONS functions has no aggregates; one with more than MR_TALLY_FILES
 * files lists no files; a function with more than MR_TALLY_SIZES different sizes has a histogram of them. Readers
 * decode the columns then. */
#ifndef MR_EVENT_MRT_TALLY_H
#define MR_EVENT_MRT_TALLY_H

#include "base/common.h"
#include "base/histogram.h"
#include "event/calls.h"

#define MR_TALLY_FUNCTIONS 64
#define MR_TALLY_SIZES 256
#define MR_TALLY_FILES 256
#define MR_TALLY_BINS 10
#define MR_TALLY_NONE 0xffffu /* number of aggregates of a block that has none */

struct mr_tally_size {
    uint64_t size;
    uint32_t count; /* 0: free */
};

struct mr_tally_file {
    uint32_t id, calls, opens;
    uint64_t read_bytes, written_bytes, dur_ns;
};

struct mr_tally_function {
    uint32_t call, site, count, errors, listed;
    uint8_t moves, reads, writes, opens, on_file;
    bool spilled; /* sizes are in the histogram */
    uint64_t bytes, dur_sum, dur_min, dur_max, size_min, size_max;
    uint32_t dur[MR_HIST_BUCKETS], size[MR_HIST_BUCKETS], bin[MR_TALLY_BINS];
    struct mr_tally_size slot[MR_TALLY_SIZES * 2];
};

struct mr_tally {
    struct mr_tally_file *row; /* of the streak */
    uint32_t functions, files;
    bool too_many_functions, too_many_files;
    uint8_t function_of[MR_CALL_COUNT]; /* 1 + index; calls that are no regions */
    uint8_t site_slot[MR_TALLY_FUNCTIONS * 2];
    uint16_t file_slot[MR_TALLY_FILES * 2];
    struct mr_tally_file nowhere, row_of[MR_TALLY_FILES];
    struct mr_tally_function function[MR_TALLY_FUNCTIONS];
};

/* The bucket of a value in struct mr_histogram. */
static inline unsigned mr_tally_bucket(uint64_t v)
{
    if (v < (1u << MR_HIST_SUB_BITS))
        return (unsigned)v;
    unsigned shift = 63 - (unsigned)__builtin_clzll(v) - MR_HIST_SUB_BITS;
    return ((shift + 1) << MR_HIST_SUB_BITS) + (unsigned)((v >> shift) & ((1u << MR_HIST_SUB_BITS) - 1));
}

/* Darshan's size classes: up to 100, 1 Ki, 10 Ki, 100 Ki, 1 Mi, 4 Mi, 10 Mi, 100 Mi, 1 Gi, more. */
unsigned mr_tally_bin(uint64_t size);

/* Whether events of a call count as calls on their file: layers above POSIX would count its bytes again, and regions
 * name sites. */
static inline bool mr_call_on_file(unsigned call)
{
    uint8_t layer = mr_call_get(call)->layer;
    return layer != MR_LAYER_APP && layer != MR_LAYER_HDF5 && layer != MR_LAYER_MPIIO;
}

/* Events of one function on one file in a row. It is kept in registers; mr_tally_end adds it to the tally. */
struct mr_tally_streak {
    unsigned call;
    uint32_t file, count, errors, same; /* same: events of size `size` */
    uint64_t dur_sum, dur_min, dur_max, bytes, size;
    struct mr_tally_function *f; /* NULL: the block is to have no aggregates */
    bool moves;
};

void mr_tally_begin(struct mr_tally *t, struct mr_tally_streak *s, unsigned call, uint32_t file);
void mr_tally_end(struct mr_tally *t, const struct mr_tally_streak *s);
/* `n` events of a size. */
void mr_tally_add_size(struct mr_tally_function *f, uint64_t size, uint32_t n);

static inline __attribute__((always_inline)) void
mr_tally_add(struct mr_tally *t, struct mr_tally_streak *s, unsigned call, uint32_t file, uint64_t dur, int64_t result)
{
    if (MR_UNLIKELY(call != s->call || file != s->file || !s->count)) {
        mr_tally_end(t, s);
        mr_tally_begin(t, s, call, file);
    }
    s->count++;
    s->dur_sum += dur;
    s->dur_min = MR_MIN(s->dur_min, dur);
    s->dur_max = MR_MAX(s->dur_max, dur);
    if (MR_LIKELY(s->f != NULL))
        s->f->dur[mr_tally_bucket(dur)]++;
    if (MR_UNLIKELY(result < 0)) {
        s->errors++;
    } else if (s->moves) {
        s->bytes += (uint64_t)result;
        if (MR_UNLIKELY((uint64_t)result != s->size)) {
            mr_tally_add_size(s->f, s->size, s->same);
            s->size = (uint64_t)result;
            s->same = 0;
        }
        s->same++;
    }
}

/* Writes the aggregates and empties the tally. *count is the number for the block's directory. */
uint8_t *mr_tally_put(struct mr_tally *t, uint8_t *out, uint16_t *count);

#endif
