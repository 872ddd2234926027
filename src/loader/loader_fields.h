/* Samples of several fields in the loader: loader_fields.c puts values into rows, loader_ragged.c joins rows that
 * differ, loader_columns.c reads many rows of numbers at once.
 *
 * Invariants (beside those of README.md): K1 a slab has a region per field, one behind the other; a fixed field's rows
 * lie at multiples of its stride, others where there is room. K2 rows of differing fields are joined by the thread that
 * completes the batch, before the batch counts as complete. */
#ifndef MR_LOADER_LOADER_FIELDS_H
#define MR_LOADER_LOADER_FIELDS_H

#include "dataset/dataset_parts.h"

#include <millrace/loader.h>

struct mr_loader;
struct slot;
struct engine_thread;

/* A field of the loader. */
struct loader_field {
    const struct mr_field *field; /* the data set's */
    enum mr_field_use use;
    bool use_given;                   /* by the caller */
    bool fixed;                       /* all values have `shape` */
    struct mr_shape shape;            /* fixed; else the dtype */
    uint64_t stride;                  /* fixed: between rows */
    uint64_t at, bytes;               /* its region of the slab: rows */
    uint64_t joined_at, joined_bytes; /* and, where rows differ, the array they are joined to */
};

/* One field of one batch. */
struct field_slot {
    struct mr_batch_field out;
    const void **rows;
    uint64_t *bytes, *offsets, *lengths;
    struct mr_shape *shapes;
    void **overflow; /* rows that did not fit their region */
    void *joined;    /* an array that did not fit its region */
    uint64_t joined_cap;
    _Atomic uint64_t used; /* of the region, where rows differ */
    bool laid_out;         /* columns: `bytes` are set, which stay */
};

/* What a field cost one thread. */
struct field_sums {
    _Atomic uint64_t samples, stored_bytes, bytes, decode_ns, transform_ns;
};

/* Opening: selects the fields, before readers are made; decides where they lie, after. *slab_bytes: of all regions. */
int mr_loader_select_fields(struct mr_loader *l, struct mr_error *err);
int mr_loader_place_fields(struct mr_loader *l, uint64_t *slab_bytes, struct mr_error *err);
int mr_loader_alloc_fields(struct mr_loader *l, struct slot *s);
void mr_loader_free_fields(struct mr_loader *l, struct slot *s);
/* A batch begins: no row is there. */
void mr_loader_prepare_fields(struct mr_loader *l, struct slot *s);
/* Reads and decodes all fields of a sample into their rows. */
int mr_loader_read_fields(struct engine_thread *t, struct slot *s, uint32_t row, uint64_t id, struct mr_error *err);
/* Bytes of a value of this shape. */
uint64_t mr_loader_shape_bytes(const struct mr_shape *s);
/* Where columns are read, rows of a slab lie where they lay: tables of them, one for each slab. */
struct column_table {
    const uint8_t *slab; /* NULL: not filled yet */
    const void **rows;   /* of each field, batch_size of them */
};
int mr_loader_alloc_columns(struct mr_loader *l, unsigned n_slabs, struct mr_error *err);
void mr_loader_free_columns(struct mr_loader *l);
/* A batch begins whose fields are read as columns. */
void mr_loader_prepare_columns(struct mr_loader *l, struct slot *s);
/* Can fields be read one after the other, for many samples at once? When the loader is opened; sets l->columns. */
void mr_loader_choose_columns(struct mr_loader *l);
/* Samples that one thread reads at once. */
uint64_t mr_loader_column_run(const struct mr_loader *l);
/* Rows [row, row + n) of the batch in the slot, all fields; errors are the rows'. */
void mr_loader_read_columns(struct engine_thread *t, struct slot *s, uint64_t batch, uint32_t row, uint32_t n);
/* K2. 0 or -ENOMEM. */
int mr_loader_join_fields(struct mr_loader *l, struct slot *s);
/* The batch's description, when it is handed out. */
void mr_loader_describe_fields(struct mr_loader *l, struct slot *s);
/* Row `from` becomes row `to`. */
void mr_loader_move_fields(struct mr_loader *l, struct slot *s, uint32_t from, uint32_t to);
/* Do all rows and joined arrays lie in the slab? */
bool mr_loader_fields_in_slab(const struct mr_loader *l, const struct slot *s);

#endif
