/* Finding the columns and rows of a Parquet file, for the table in format_parquet.c. */
#ifndef MR_FORMAT_PARQUET_SCAN_H
#define MR_FORMAT_PARQUET_SCAN_H

#include "format/parquet_layout.h"

int mr_pq_scan(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
               struct mr_error *err);
int mr_pq_scan_fields(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                      struct mr_error *err);

/* Chunks above this are cut into units of about half of it, at pages. */
#define MR_PQ_SPLIT_BYTES ((uint64_t)512 * 1024)
/* Adds a page's bytes to the last span, or begins another one. `whole`: the page's chunk is one unit. */
struct mr_pq_spans {
    struct mr_pq_span *item;
    size_t n, cap;
};
int mr_pq_spans_add(struct mr_pq_spans *s, const struct mr_pq_span *page, bool first_of_chunk, bool whole);
/* The field that a column is. */
struct mr_field mr_pq_field(const struct mr_pq_column *c, bool primary);
/* Bytes of every value once it is decoded; 0: they differ. `dims`: of each, or NULL. */
uint64_t mr_pq_fixed_bytes(const struct mr_pq_type *t, const struct mr_dims *dims);
/* What rows take on average, at least 1 byte where there are bytes. */
uint64_t mr_pq_mean_bytes(uint64_t bytes, uint64_t rows);

#endif
