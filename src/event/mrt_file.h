/* Writing and reading .mrt files. The writer appends blocks and ends with a footer; it can continue a file that a
 * killed writer left. The scanner walks over the blocks of a mapped file, by footer or by scanning, and skips damage.
 * Neither is thread-safe; the mapped bytes may be read by many threads. */
#ifndef MR_EVENT_MRT_FILE_H
#define MR_EVENT_MRT_FILE_H

#include "event/mrt.h"
#include "event/mrt_tally.h"

#include <millrace/error.h>
#include <stdbool.h>

struct mr_mrt_writer;

/* Creates `path` (mode 0600), or with `resume` continues it after its last whole block. Fails if it is no regular file,
 * or if another writer has it. */
int mr_mrt_writer_open(const char *path, bool resume, struct mr_mrt_writer **out, struct mr_error *err);
/* Appends one sealed block of `bytes`. A full disk gives -ENOSPC; what was written stays valid. */
int mr_mrt_writer_append(struct mr_mrt_writer *w, const uint8_t *block, size_t bytes, struct mr_error *err);
uint64_t mr_mrt_writer_bytes(const struct mr_mrt_writer *w);
/* Appends all blocks of another trace but its footer; what is damaged there is left out. */
int mr_mrt_join(struct mr_mrt_writer *w, const char *path, struct mr_error *err);
/* Writes the footer, closes, frees. Accepts NULL. */
int mr_mrt_writer_close(struct mr_mrt_writer *w, struct mr_error *err);

/* One block as found in a file. */
struct mr_mrt_view {
    struct mr_mrt_block head;
    uint64_t offset;
    const uint8_t *payload;
};

struct mr_mrt_scan {
    struct mr_mrt_view *view;
    size_t views, cap;
    uint64_t skipped_bytes; /* damaged or unfinished */
    bool had_footer;
};

bool mr_mrt_is_header(const uint8_t *data, size_t len);
/* Finds the blocks of a whole file in memory. `verify` checks every checksum (scanning always does). */
int mr_mrt_scan(const uint8_t *data, size_t len, bool verify, const char *name, struct mr_mrt_scan *out,
                struct mr_error *err);
/* The same of a part of a file that is still being written: `data` begins at a block. *used says how far whole blocks
 * reach; what is behind belongs to one that is not complete yet. The footer is among the blocks. */
int mr_mrt_scan_part(const uint8_t *data, size_t len, struct mr_mrt_scan *out, size_t *used, struct mr_error *err);
void mr_mrt_scan_done(struct mr_mrt_scan *s);

/* Decoded columns of an events block; arrays are the caller's, with room for head.count (arguments: mr_mrt_args()). */
struct mr_columns {
    uint64_t *start_ns, *end_ns, *offset;
    int64_t *result;
    uint32_t *file;
    uint16_t *call, *fd;
    uint32_t *arg_event, *arg_key;
    uint8_t *arg_type;
    uint64_t *arg_value;
};
#define MR_WANT_TIME 1u
#define MR_WANT_CALL 2u
#define MR_WANT_FILE 4u
#define MR_WANT_RESULT 8u
#define MR_WANT_OFFSET 16u
#define MR_WANT_FD 32u
#define MR_WANT_ARGS 64u
#define MR_WANT_ALL 127u

uint32_t mr_mrt_args(const struct mr_mrt_view *v);
/* real ns = ns + this. */
int64_t mr_mrt_real_offset(const struct mr_mrt_view *v);
/* Decodes the wanted columns; `shift_ns` is added to times. `zstd` is a ZSTD_DCtx; `scratch` has MR_MRT_SCRATCH bytes
 * for the larger of events and arguments. */
int mr_mrt_decode(const struct mr_mrt_view *v, unsigned want, int64_t shift_ns, void *zstd, void *scratch,
                  const struct mr_columns *out, struct mr_error *err);
#define MR_MRT_SCRATCH(count) ((size_t)(count)*16 + 128)
/* Largest number of events a well-formed block can hold. */
#define MR_MRT_MAX_COUNT (1u << 20)

/* What a block says about its events without decoding them. A function is a call or, for events of the program, a call
 * and a site. */
struct mr_mrt_aggregate {
    uint32_t call, site;
    uint64_t count, errors, bytes, dur_sum, dur_min, dur_max;
};
/* Sizes of a function that has too many different ones to list them. */
struct mr_mrt_sizes {
    uint64_t min, max, bin[10]; /* bins as in mr_tally_bin */
};
/* Functions that are NULL are not called. */
struct mr_mrt_visitor {
    void (*function)(void *user, const struct mr_mrt_aggregate *a);
    /* Of the function before: its durations by bucket (< MR_HIST_BUCKETS); its sizes one by one, or a summary and
     * buckets. */
    void (*duration)(void *user, unsigned bucket, uint64_t count);
    void (*size)(void *user, uint64_t size, uint64_t count);
    void (*sizes)(void *user, const struct mr_mrt_sizes *s);
    void (*size_bucket)(void *user, unsigned bucket, uint64_t count);
    void (*file)(void *user, const struct mr_tally_file *row);
};
/* Visits the aggregates of a block. Returns what they cover: 0 nothing, MR_COVERS_FUNCTIONS all events by function, and
 * with MR_COVERS_FILES also by file; negative on damage. */
int mr_mrt_aggregates(const struct mr_mrt_view *v, const struct mr_mrt_visitor *how, void *user, struct mr_error *err);
#define MR_COVERS_FUNCTIONS 1
#define MR_COVERS_FILES 2

#endif
