/* Layouts of Parquet columns: what the manifest keeps of a column of a file, so that a run opens no footer. The bytes
 * are in doc/reference/format-parquet.md. A layout is as untrusted as a file. */
#ifndef MR_FORMAT_PARQUET_LAYOUT_H
#define MR_FORMAT_PARQUET_LAYOUT_H

#include "format/parquet_meta.h"

/* Pages that are read and decoded together: a column chunk, or some of its data pages with its dictionary. */
struct mr_pq_span {
    uint64_t offset, dictionary; /* dictionary: where its page lies, if it is not among the unit's own bytes */
    uint32_t bytes, dictionary_bytes;
    uint64_t first_row;
};

struct mr_pq_layout {
    struct mr_pq_type type;
    bool is_text, has_dims;
    struct mr_dims dims;  /* of each value, where has_dims */
    uint64_t value_bytes; /* of each, where has_dims */
    uint64_t rows, units;
    uint64_t unit_rows;   /* of each unit but the last; 0: they differ */
    const uint8_t *table; /* units, then (unit_rows 0) first rows */
};

/* l->units, unit_rows and table follow from the spans. */
int mr_pq_layout_make(const struct mr_pq_layout *l, const struct mr_pq_span *span, uint64_t n, struct mr_layout *out,
                      struct mr_error *err);
int mr_pq_layout_get(const struct mr_layout *layout, struct mr_pq_layout *out, struct mr_error *err);
/* The unit of a row below l->rows, and how many rows it has. */
void mr_pq_layout_unit(const struct mr_pq_layout *l, uint64_t row, struct mr_pq_span *out, uint64_t *rows);

/* A sample's ref says which row it is. Its length is for sums and sizes only: a value's bytes where all have equally
 * many, else (of scanned files) the mean of what a row takes in the file. */
#define MR_PQ_AUX_BITS 24u
static inline struct mr_sample_ref mr_pq_ref(uint64_t row, uint64_t bytes)
{
    return (struct mr_sample_ref){.raw = {row >> MR_PQ_AUX_BITS, bytes},
                                  .aux = (uint32_t)(row & ((1u << MR_PQ_AUX_BITS) - 1)),
                                  .label = MR_LABEL_NONE};
}
static inline uint64_t mr_pq_row(const struct mr_sample_ref *ref)
{
    return ref->raw.offset << MR_PQ_AUX_BITS | ref->aux;
}

#endif
