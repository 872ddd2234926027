/* Batches as Python sees them. What a batch says of itself is copied (a few bytes per sample); its rows are taken over,
 * so that the loader goes on while Python keeps them. */
#include "py_core.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject ob_base;
    PyObject *data, *rows, *labels, *ids, *stored, *fields;
    unsigned long long epoch, index, address;
    unsigned int n;
} Batch;

/* ---- taking a batch out of the loader: no Python here (P2) ---- */

/* All rows have one shape and lie row_bytes apart. */
static bool is_regular(const struct mr_batch *b)
{
    if (!b->data || b->shape.n_dims < 0 || !b->shape.dtype[0])
        return false;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->rows[i] != (const uint8_t *)b->data + (size_t)i * b->row_bytes || b->bytes[i] != b->bytes[0])
            return false;
    return b->n > 0 && b->bytes[0] <= b->row_bytes;
}

static size_t room_of(const struct mr_batch *b, uint32_t i, bool regular)
{
    return regular ? b->bytes[i] : (b->bytes[i] + 63) / 64 * 64;
}

/* The rows in memory of their own: one behind the other, each aligned where they differ. */
static int copy_rows(const struct mr_batch *b, struct taken *t)
{
    size_t total = 0;
    for (uint32_t i = 0; i < b->n; i++)
        total += room_of(b, i, t->regular);
    uint8_t *block = aligned_alloc(64, (total + 127) / 64 * 64);
    if (!block || !(t->owner = owner_create(NULL, block))) {
        free(block);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        t->row[i] = block;
        memcpy(block, b->rows[i], b->bytes[i]);
        block += room_of(b, i, t->regular);
    }
    t->row_bytes = b->bytes[0];
    return 0;
}

static int keep_rows(struct mr_loader *l, struct mr_batch *b, struct taken *t)
{
    struct mr_slab *slab;
    if (mr_loader_take(l, b, NULL, &slab) < 0)
        return copy_rows(b, t);
    if (!(t->owner = owner_create(slab, NULL))) {
        mr_slab_free(slab);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < b->n; i++)
        t->row[i] = (void *)(uintptr_t)b->rows[i];
    return 0;
}

/* Rows in the caller's own memory: it knows whose. The owner owns nothing then. */
static int swap_rows(struct mr_loader *l, struct mr_batch *b, void *fresh, struct taken *t)
{
    struct mr_slab *none;
    t->row[0] = (void *)(uintptr_t)b->data;
    if (!t->regular || mr_loader_take(l, b, fresh, &none) < 0)
        return -EINVAL;
    return (t->owner = owner_create(NULL, NULL)) ? 0 : -ENOMEM;
}

static int copy_facts(const struct mr_batch *b, struct taken *t)
{
    bool rows = !b->n_fields; /* fields have their own */
    for (uint32_t i = 0; i < b->n && !t->labelled; i++)
        t->labelled = b->labels[i] != MR_SAMPLE_NO_LABEL;
    t->ids = malloc(b->n * sizeof(*t->ids));
    t->labels = t->labelled ? malloc(b->n * sizeof(*t->labels)) : NULL;
    t->row = rows ? malloc(b->n * sizeof(*t->row)) : NULL;
    t->shapes = rows ? malloc(b->n * sizeof(*t->shapes)) : NULL;
    t->stored = b->stored ? calloc(b->n, sizeof(*t->stored)) : NULL;
    if (!t->ids || (t->labelled && !t->labels) || (rows && (!t->row || !t->shapes)) || (b->stored && !t->stored))
        return -ENOMEM;
    memcpy(t->ids, b->ids, b->n * sizeof(*t->ids));
    if (t->labelled)
        memcpy(t->labels, b->labels, b->n * sizeof(*t->labels));
    if (b->stored)
        memcpy(t->stored, b->stored, b->n * sizeof(*t->stored));
    for (uint32_t i = 0; rows && !t->regular && i < b->n; i++)
        t->shapes[i] = *mr_batch_shape(b, i);
    return 0;
}

void taken_free(struct taken *t)
{
    free(t->ids);
    free(t->labels);
    free(t->stored);
    free(t->row);
    free(t->shapes);
    fields_free(t);
    owner_drop(t->owner);
    *t = (struct taken){0};
}

int batch_take(struct mr_loader *l, struct mr_batch *b, void *fresh, struct taken *t)
{
    *t = (struct taken){.n = b->n, .epoch = b->epoch, .index = b->index, .shape = b->shape, .fresh = fresh != NULL};
    t->regular = !b->n_fields && is_regular(b);
    t->row_bytes = b->row_bytes;
    int rc = copy_facts(b, t);
    if (!rc && b->n_fields)
        rc = fresh ? -EINVAL : fields_take(l, b, t);
    else if (!rc)
        rc = fresh ? swap_rows(l, b, fresh, t) : keep_rows(l, b, t);
    mr_loader_release(l, b);
    if (rc)
        taken_free(t);
    return rc;
}

/* ---- making the Python object ---- */

static int fill_rows(struct core_state *state, Batch *self, const struct taken *t)
{
    self->rows = PyList_New(0);
    for (uint32_t i = 0; self->rows && i < t->n; i++) {
        PyObject *row = array_create(state, t->owner, t->row[i], &t->shapes[i], 0, 0, 0);
        int rc = row ? PyList_Append(self->rows, row) : -1;
        Py_XDECREF(row);
        if (rc < 0)
            return -1;
    }
    return self->rows ? 0 : -1;
}

static int fill_stored(Batch *self, const struct taken *t)
{
    self->stored = PyList_New(0);
    for (uint32_t i = 0; self->stored && t->stored && i < t->n; i++) {
        PyObject *pair =
            t->stored[i] ? Py_BuildValue("(IKK)", i, (unsigned long long)t->stored[i], (unsigned long long)t->ids[i])
                         : Py_NewRef(Py_None);
        int rc = !pair ? -1 : pair == Py_None ? 0 : PyList_Append(self->stored, pair);
        Py_XDECREF(pair);
        if (rc < 0)
            return -1;
    }
    return self->stored ? 0 : -1;
}

static int fill(struct core_state *state, Batch *self, const struct taken *t)
{
    self->n = t->n;
    self->epoch = t->epoch;
    self->index = t->index;
    self->ids = array_of_integers(state, "u8", t->ids, t->n);
    if (self->ids && t->labelled)
        self->labels = array_of_integers(state, "i8", t->labels, t->n);
    if (!self->ids || (t->labelled && !self->labels) || fill_stored(self, t) < 0)
        return -1;
    if (t->n_fields)
        return (self->fields = fields_object(state, t)) ? 0 : -1;
    if (!t->regular)
        return fill_rows(state, self, t);
    self->address = t->fresh ? (uintptr_t)t->row[0] : 0;
    self->data = array_create(state, t->owner, t->row[0], &t->shape, t->n, t->row_bytes, 1);
    return self->data ? 0 : -1;
}

PyObject *batch_create(struct core_state *state, struct taken *t)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(state->batch, Py_tp_alloc);
    Batch *self = (Batch *)alloc(state->batch, 0);
    if (self && fill(state, self, t) < 0) {
        Py_DECREF(self);
        self = NULL;
    }
    taken_free(t);
    return (PyObject *)self;
}

static void batch_dealloc(PyObject *self)
{
    Batch *b = (Batch *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(b->data);
    Py_XDECREF(b->rows);
    Py_XDECREF(b->labels);
    Py_XDECREF(b->ids);
    Py_XDECREF(b->stored);
    Py_XDECREF(b->fields);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef batch_members[] = {
    {"data", T_OBJECT, offsetof(Batch, data), READONLY, "All rows as one Array; None where rows differ."},
    {"rows", T_OBJECT, offsetof(Batch, rows), READONLY, "A list of one Array per row; None where `data` is set."},
    {"labels", T_OBJECT, offsetof(Batch, labels), READONLY, "Labels as an Array of int64, or None."},
    {"ids", T_OBJECT, offsetof(Batch, ids), READONLY, "Sample numbers as an Array of uint64."},
    {"stored", T_OBJECT, offsetof(Batch, stored), READONLY,
     "(row, bytes, sample) of rows that are as stored; see Loader.leave_stored."},
    {"fields", T_OBJECT, offsetof(Batch, fields), READONLY,
     "(name, Array or list of them, lengths, offsets) of each field, where fields were asked for; else None."},
    {"epoch", T_ULONGLONG, offsetof(Batch, epoch), READONLY, "The epoch the batch belongs to."},
    {"index", T_ULONGLONG, offsetof(Batch, index), READONLY, "It is the index-th batch of its epoch, from 0."},
    {"address", T_ULONGLONG, offsetof(Batch, address), READONLY, "Where the caller's own memory with the rows begins."},
    {"n", T_UINT, offsetof(Batch, n), READONLY, "Rows."},
    {NULL},
};
static PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_members, batch_members},
    {Py_tp_doc, "A batch of samples."},
    {0, NULL},
};
PyType_Spec batch_spec = {.name = "millrace._core.Batch",
                          .basicsize = sizeof(Batch),
                          .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          .slots = batch_slots};
