/* Fields of tables: numbers of one shape that lie in units which many samples share, such as the columns of Parquet.
 * Reading them sample by sample costs more than the values; here a thread takes a run of rows of a batch and reads one
 * field after the other, all rows of it at once (field_rows.c of the data set).
 *
 *   ticket: rows [r, r + n) of a batch ──> for each field: units at hand, or read and decoded ──> n values into its region
 *
 * Where rows lie is known beforehand, so the tables of rows are filled once per slab, not per batch. Rows of a run that
 * cannot be read are read again one by one, which says which of them is wrong. */
#include "base/clock.h"
#include "dataset/unit_cache.h"
#include "loader/loader_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RUN_MOST 8192u
#define UNIT_BYTES MR_GIB /* of decoded units that are kept */

void mr_loader_choose_columns(struct mr_loader *l)
{
    bool can = l->n_fields && l->read_ahead && !l->tiered && !l->p.transform &&
               !(l->p.flags & (MR_LOADER_IN_MEMORY | MR_LOADER_VERIFY_CONTENT)) && mr_dataset_reads_rows(l->dataset);
    for (unsigned k = 0; k < l->n_fields && can; k++)
        can = l->field[k].fixed && l->field[k].use == MR_USE_VALUE;
    const struct mr_schema *s = mr_manifest_schema(mr_dataset_manifest(l->dataset));
    for (unsigned i = 0; i < s->n; i++)
        l->has_labels = l->has_labels || s->field[i].field.storage == MR_FIELD_LABEL;
    for (unsigned k = 0; k < l->n_fields && can; k++)
        l->column_bytes += mr_loader_shape_bytes(&l->field[k].shape);
    l->units = can ? mr_unit_cache_create(UNIT_BYTES, l->p.order.mode == MR_ORDER_SEQUENTIAL) : NULL;
    l->columns = l->units != NULL;
}

uint64_t mr_loader_column_run(const struct mr_loader *l)
{
    uint64_t share = (l->p.batch_size + l->n_threads - 1) / l->n_threads;
    return MR_MAX(1u, MR_MIN(MR_MAX(share, MR_MIN(l->p.batch_size, 1024u)), RUN_MOST));
}

int mr_loader_alloc_columns(struct mr_loader *l, unsigned n_slabs, struct mr_error *err)
{
    const size_t n = (size_t)n_slabs + l->n_slots, each = (size_t)l->n_fields * l->p.batch_size;
    if (!l->columns)
        return 0;
    l->column_table = calloc(n, sizeof(*l->column_table));
    l->column_rows = calloc(n * each, sizeof(*l->column_rows)); /* memory is taken as slabs are used */
    if (!l->column_table || !l->column_rows)
        return mr_error_set(err, -ENOMEM, "cannot make %u batches of %u fields", l->n_slots, l->n_fields);
    for (size_t i = 0; i < n; i++)
        l->column_table[i].rows = l->column_rows + i * each;
    return 0;
}

void mr_loader_free_columns(struct mr_loader *l)
{
    free(l->column_table);
    free(l->column_rows);
}

/* Rows of all fields, in the slab that the slot has now. */
static void lay_out(struct mr_loader *l, struct slot *s)
{
    const unsigned slabs = l->n_slots + l->p.spare;
    unsigned number = mr_loader_slab_number(l, s->slab);
    struct column_table *t = &l->column_table[number < slabs ? number : slabs + (unsigned)(s - l->slots)];
    for (unsigned k = 0; k < l->n_fields; k++) {
        const struct loader_field *x = &l->field[k];
        const uint8_t *at = s->slab + x->at;
        const uint64_t stride = x->stride;
        s->field[k].rows = t->rows + (size_t)k * l->p.batch_size;
        for (uint32_t i = 0; t->slab != s->slab && i < l->p.batch_size; i++)
            s->field[k].rows[i] = at + i * stride;
    }
    t->slab = s->slab;
}

void mr_loader_prepare_columns(struct mr_loader *l, struct slot *s)
{
    lay_out(l, s);
    if (s->field[0].laid_out)
        return;
    for (unsigned k = 0; k < l->n_fields; k++) {
        const uint64_t bytes = mr_loader_shape_bytes(&l->field[k].shape);
        for (uint32_t i = 0; i < l->p.batch_size; i++)
            s->field[k].bytes[i] = bytes;
        s->field[k].laid_out = true;
    }
    for (uint32_t i = 0; i < l->p.batch_size; i++) {
        s->bytes[i] = l->column_bytes;
        s->labels[i] = MR_SAMPLE_NO_LABEL;
    }
}

/* The manifest's labels, and the field that they are, if it is selected. */
static int read_labels(struct engine_thread *t, struct slot *s, uint32_t row, uint32_t n, struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    const struct mr_manifest *m = mr_dataset_manifest(l->dataset);
    unsigned k = 0;
    while (k < l->n_fields && l->field[k].field->storage != MR_FIELD_LABEL)
        k++;
    for (uint32_t i = row; i < row + n; i++) {
        struct mr_manifest_pos pos;
        int rc = mr_manifest_locate(m, s->ids[i], &pos, err);
        if (rc)
            return rc;
        s->labels[i] = pos.ref.label;
        if (k == l->n_fields)
            continue;
        uint64_t le;
        if (pos.ref.label == MR_SAMPLE_NO_LABEL)
            return mr_error_plain(err, MR_E_FORMAT, "the sample has no label");
        mr_store_le64(&le, (uint64_t)pos.ref.label);
        memcpy(s->slab + l->field[k].at + i * l->field[k].stride, &le, mr_loader_shape_bytes(&l->field[k].shape));
    }
    return 0;
}

static int read_field(struct engine_thread *t, struct slot *s, unsigned k, const struct mr_row_list *rows, uint32_t row,
                      struct mr_error *err)
{
    struct mr_loader *l = t->loader;
    const struct loader_field *x = &l->field[k];
    struct field_sums *sums = &t->field[k];
    uint64_t each = mr_loader_shape_bytes(&x->shape), stored = 0, begin = mr_now_ns();
    uint64_t read_before = mr_dataset_reader_times(t->reader)->read_ns;
    if (x->field->storage == MR_FIELD_LABEL)
        return 0;
    const struct mr_field_rows to = {
        .k = k, .dst = s->slab + x->at + row * x->stride, .stride = x->stride, .each = each, .cache = l->units};
    int rc = mr_dataset_read_rows(t->reader, &to, rows, &stored, err);
    uint64_t reading = mr_dataset_reader_times(t->reader)->read_ns - read_before;
    atomic_fetch_add_explicit(&sums->stored_bytes, stored, memory_order_relaxed);
    atomic_fetch_add_explicit(&sums->decode_ns, mr_now_ns() - begin - reading, memory_order_relaxed);
    if (rc == 0) {
        atomic_fetch_add_explicit(&sums->samples, rows->n, memory_order_relaxed);
        atomic_fetch_add_explicit(&sums->bytes, rows->n * each, memory_order_relaxed);
    }
    return rc;
}

/* Samples of a run take the run's times: it is read and decoded in turns, reading first for the clock. */
static void tell_rows(struct engine_thread *t, const struct slot *s, uint32_t row, uint32_t n, uint64_t begin,
                      uint64_t read_ns)
{
    uint64_t end = mr_now_ns();
    for (uint32_t i = row; i < row + n; i++) {
        t->row.fetch_ns = begin;
        t->row.fetched_ns = t->row.decode_ns = MR_MIN(begin + read_ns, end);
        t->row.decoded_ns = end;
        t->row.transform_ns = t->row.transformed_ns = 0;
        mr_loader_tell_row(t, s, i, (int64_t)t->loader->column_bytes);
    }
}

void mr_loader_read_columns(struct engine_thread *t, struct slot *s, uint64_t batch, uint32_t row, uint32_t n)
{
    struct mr_loader *l = t->loader;
    struct mr_reader_times *times = mr_dataset_reader_times(t->reader);
    struct mr_error err;
    uint64_t before = times->read_bytes;
    struct mr_row_list rows = {.ids = s->ids + row, .n = n, .rising = true};
    for (uint32_t i = 1; i < n && rows.rising; i++)
        rows.rising = rows.ids[i] == rows.ids[i - 1] + 1;
    int rc = l->has_labels ? read_labels(t, s, row, n, &err) : 0;
    uint64_t begin = mr_now_ns(), read_before = times->read_ns;
    atomic_store_explicit(&times->reading_since, begin, memory_order_relaxed);
    /* Each thread begins with another field, so that they do not all wait for one unit. */
    unsigned first = (unsigned)(t - l->threads) * l->n_fields / l->n_threads;
    for (unsigned i = 0; i < l->n_fields && rc == 0; i++)
        rc = read_field(t, s, (first + i) % l->n_fields, &rows, row, &err);
    atomic_store_explicit(&times->reading_since, 0, memory_order_relaxed);
    atomic_fetch_add(&s->read_bytes, times->read_bytes - before);
    atomic_store_explicit(&t->read_ns, times->read_ns, memory_order_relaxed);
    atomic_store_explicit(&t->decode_ns, times->decode_ns, memory_order_relaxed);
    if (rc == 0) {
        if (l->tells_samples)
            tell_rows(t, s, row, n, begin, times->read_ns - read_before);
        mr_loader_rows_done(l, s, n);
        return;
    }
    for (uint32_t i = row; i < row + n; i++) /* which one it is, and why */
        mr_loader_read_row(t, batch, i, s->ids[i]);
}
