/* Encodings of Parquet's values: runs of equal or bit-packed numbers (levels, dictionary indices, truth values),
 * DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT. All read from memory, check every length, and return false where the bytes do
 * not hold what they should. */
#ifndef MR_FORMAT_PARQUET_VALUES_H
#define MR_FORMAT_PARQUET_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The hybrid of runs and bit-packed groups of 8, of `width` bits each (0 to 32). Zero-initialise but for these. */
struct mr_pq_runs {
    const uint8_t *at, *end;
    unsigned width;
    uint64_t left; /* of the run at hand */
    bool packed;
    uint32_t value; /* of a run of equal ones */
    unsigned bit;   /* packed: read from bit `bit` of `at` on */
};
/* Up to `max` numbers: *n of them, all equal to *value. False: the bytes are damaged or end. */
bool mr_pq_runs_equal(struct mr_pq_runs *r, uint64_t max, uint32_t *value, uint64_t *n);
/* Up to `max` (at most MR_PQ_RUN_BLOCK) numbers into out, whatever they are; *equal: they are all out[0], and `max` may
 * have been exceeded: *n of them, of which only the first is in `out`. */
#define MR_PQ_RUN_BLOCK 1024u
bool mr_pq_runs_take(struct mr_pq_runs *r, uint64_t max, uint32_t *out, uint64_t *n, bool *equal);

/* n truth values of a bit each, into bytes. */
bool mr_pq_unpack_bits(const uint8_t *p, size_t len, uint64_t n, uint8_t *out);
/* n numbers into values of `each` bytes (1 to 8), cut to it. */
bool mr_pq_delta(const uint8_t *p, size_t len, uint64_t n, unsigned each, uint8_t *out);
/* n values of `each` bytes whose k-th bytes lie together. */
bool mr_pq_unsplit(const uint8_t *p, size_t len, uint64_t n, unsigned each, uint8_t *out);
/* Values of `from` bytes, of which the low `to` are kept. */
void mr_pq_narrow(const uint8_t *p, uint64_t n, unsigned from, unsigned to, uint8_t *out);

#endif
