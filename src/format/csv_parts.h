/* What the two sides of CSV share: records as they are (format_csv.c) and a field per column (csv_fields.c). */
#ifndef MR_FORMAT_CSV_PARTS_H
#define MR_FORMAT_CSV_PARTS_H

#include "format/format.h"

/* A cell of a record; record 0 may be the header. */
struct mr_csv_cell {
    uint64_t record;
    uint32_t column;
    struct mr_extent where; /* with its quotes */
    const char *text;       /* without them: the first `len` of `full_len` bytes, until the function returns */
    size_t len, full_len;
    bool number, integer, empty;
    int64_t value; /* of an integer */
};
struct mr_csv_events {
    void *user;
    int (*cell)(void *user, const struct mr_csv_cell *cell, struct mr_error *err);
    int (*record)(void *user, uint64_t record, struct mr_error *err); /* its cells were there; not for record 0 */
};
/* What a file is, once all of it was seen. */
struct mr_csv_facts {
    bool gzip, header, numbers, integers, labelled;
    uint32_t columns;
    char separator;
};
/* Every record to `fn`; or with `events` every cell, the header's as well. layout and facts may be NULL. */
int mr_csv_walk(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, const struct mr_csv_events *events,
                struct mr_csv_facts *facts, struct mr_layout *layout, struct mr_error *err);

/* Layout version 2: a cell. */
bool mr_csv_is_cell(const struct mr_layout *layout);
bool mr_csv_cell_gzip(const struct mr_layout *layout);
int mr_csv_cell_cost(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);
int mr_csv_cell_decode(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                       const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err);
extern const struct mr_field_ops mr_csv_field_ops;

#endif
