/* A unit of a column, the pages that are read and decoded together, in memory: what `unpack` makes and `decode` takes.
 * Never stored; numbers are the machine's.
 *
 *   struct mr_pq_unit
 *   values of all rows, one behind the other       from data_at on
 *   where each row's values end, in bytes, u64     from ends_at on; only where `each` is 0
 */
#ifndef MR_FORMAT_PARQUET_UNIT_H
#define MR_FORMAT_PARQUET_UNIT_H

#include "format/parquet_meta.h"

struct mr_pq_unit {
    uint64_t rows;
    uint64_t each; /* bytes of every row's value; 0: they differ (or have none) */
    uint64_t data_at, data_bytes, ends_at;
    uint64_t is_ragged; /* there are ends */
};

/* Decodes the pages in `raw` (data pages, and a dictionary page anywhere among them) to a unit in m, which grows as
 * needed. Page checksums are checked where there are any. MR_E_FORMAT, MR_E_CORRUPT, MR_E_UNSUPPORTED, MR_E_LIMIT; a
 * null is MR_E_FORMAT. */
int mr_pq_unit_decode(const struct mr_pq_type *t, const void *raw, size_t len, struct mr_unit_memory *m,
                      size_t *out_len, struct mr_error *err);
/* Makes the unit of the pages that lie in m from MR_UNIT_HEAD on: values that are stored as they are delivered stay
 * there. 1: they are not, and nothing was done. */
int mr_pq_unit_here(const struct mr_pq_type *t, struct mr_unit_memory *m, size_t len, size_t *out_len,
                    struct mr_error *err);
/* Is there a chance of that? */
bool mr_pq_unit_may_stay(const struct mr_pq_type *t);
/* The value of row `row`; false: there is no such row. */
bool mr_pq_unit_row(const void *unit, size_t len, uint64_t row, const void **data, uint64_t *bytes);
/* Bytes of a physical value; 0: they differ. */
unsigned mr_pq_physical_bytes(const struct mr_pq_type *t);
/* Bytes of a delivered value; 0: they differ. */
unsigned mr_pq_value_bytes(const struct mr_pq_type *t);

/* A unit of more bytes is refused; smaller while fuzzing. */
extern uint64_t mr_pq_unit_limit;

#endif
