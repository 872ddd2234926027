/* Fields: the schema of a data set as Python sees it, and batches of several fields. */
#include "py_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the schema ---- */

static PyObject *dims_of(const struct mr_field *f)
{
    if (f->variable == MR_FIELD_ANY_SHAPE)
        return Py_NewRef(Py_None);
    PyObject *dims = PyTuple_New((Py_ssize_t)f->dims.n);
    for (unsigned d = 0; dims && d < f->dims.n; d++) {
        PyObject *n = (int)d == f->variable ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(f->dims.dim[d]);
        if (!n || PyTuple_SetItem(dims, (Py_ssize_t)d, n) < 0) {
            Py_DECREF(dims);
            return NULL;
        }
    }
    return dims;
}

static PyObject *field_of(const struct mr_field *f)
{
    PyObject *dims = dims_of(f);
    return dims ? Py_BuildValue("{s:s,s:s,s:N,s:s,s:s}", "name", f->name, "dtype", mr_dtype_numpy(f->dtype), "dims",
                                dims, "role", mr_field_role_name(f->role), "storage", mr_field_storage_name(f->storage))
                : NULL;
}

PyObject *core_schema(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *list = NULL;
    const char *store = NULL;
    struct mr_dataset *ds = NULL;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "O&|z:schema", PyUnicode_FSConverter, &path, &store))
        return NULL;
    const char *from = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS
    rc = mr_dataset_open(from, store, &ds, &err);
    Py_END_ALLOW_THREADS
    if (rc) {
        Py_DECREF(path);
        return raise_error(PyModule_GetState(module), &err);
    }
    list = PyList_New(0);
    for (unsigned i = 0; list && i < mr_dataset_fields(ds); i++) {
        PyObject *field = field_of(mr_dataset_field(ds, i));
        if (!field || PyList_Append(list, field) < 0)
            Py_CLEAR(list);
        Py_XDECREF(field);
    }
    mr_dataset_close(ds);
    Py_DECREF(path);
    return list;
}

/* ---- parameters ---- */

void fields_wanted_free(struct fields_wanted *w)
{
    free(w->name);
    free(w->use);
    *w = (struct fields_wanted){0};
}

static int take_use(PyObject *item, enum mr_field_use *out)
{
    static const char *const names[] = {[MR_USE_AUTO] = "auto",
                                        [MR_USE_VALUE] = "value",
                                        [MR_USE_IMAGE] = "image",
                                        [MR_USE_MASK] = "mask",
                                        [MR_USE_BOXES] = "boxes"};
    const char *text = PyUnicode_AsUTF8AndSize(item, NULL);
    for (unsigned i = 0; text && i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i])) {
            *out = (enum mr_field_use)i;
            return 0;
        }
    if (text)
        PyErr_Format(PyExc_ValueError, "a field's use is auto, value, image, mask or boxes, not '%s'", text);
    return -1;
}

int take_fields(PyObject *names, PyObject *uses, const char *ragged, struct fields_wanted *w,
                struct mr_loader_params *p)
{
    static const char *const kinds[] = {[MR_RAGGED_LIST] = "list", [MR_RAGGED_PAD] = "pad", [MR_RAGGED_PACK] = "pack"};
    if (!names || names == Py_None)
        return 0;
    Py_ssize_t n = PySequence_Size(names);
    if (n < 0)
        return -1;
    w->name = calloc((size_t)n + 1, sizeof(*w->name));
    w->use = calloc((size_t)n + 1, sizeof(*w->use));
    if (!w->name || !w->use) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(names, i); /* the sequence keeps it */
        PyObject *use = uses && uses != Py_None ? PySequence_GetItem(uses, i) : NULL;
        w->name[i] = item ? PyUnicode_AsUTF8AndSize(item, NULL) : NULL;
        int rc = !w->name[i] ? -1 : uses && uses != Py_None ? (use ? take_use(use, &w->use[i]) : -1) : 0;
        Py_XDECREF(item);
        Py_XDECREF(use);
        if (rc < 0)
            return -1;
    }
    p->fields = w->name;
    p->n_fields = (uint32_t)n;
    p->uses = uses && uses != Py_None ? w->use : NULL;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(ragged, kinds[i])) {
            p->ragged = (enum mr_loader_ragged)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "values that differ are delivered as 'list', 'pad' or 'pack', not '%s'", ragged);
    return -1;
}

/* ---- taking a batch: no Python here (P2) ---- */

static int copy_field_facts(const struct mr_batch_field *f, uint32_t n, struct taken_field *t)
{
    *t = (struct taken_field){.shape = f->shape, .row_bytes = f->row_bytes, .data = (void *)(uintptr_t)f->data};
    strncpy(t->name, f->name, sizeof t->name - 1);
    unsigned dims = f->shape.n_dims > 0 ? (unsigned)f->shape.n_dims : 1;
    bool apart = !f->data; /* else the one array is all there is to say */
    t->row = apart ? malloc((n + 1) * sizeof(*t->row)) : NULL;
    t->shapes = apart ? malloc((n + 1) * sizeof(*t->shapes)) : NULL;
    t->offsets = f->offsets ? malloc(((size_t)n + 1) * sizeof(*t->offsets)) : NULL;
    t->lengths = f->lengths ? malloc(((size_t)n + 1) * dims * sizeof(*t->lengths)) : NULL;
    if ((apart && (!t->row || !t->shapes)) || (f->offsets && !t->offsets) || (f->lengths && !t->lengths))
        return -ENOMEM;
    for (uint32_t i = 0; apart && i < n; i++) {
        t->row[i] = (void *)(uintptr_t)f->rows[i];
        t->shapes[i] = f->shapes ? f->shapes[i] : f->shape;
    }
    if (f->offsets)
        memcpy(t->offsets, f->offsets, ((size_t)n + 1) * sizeof(*t->offsets));
    if (f->lengths) {
        t->n_lengths = n * dims;
        memcpy(t->lengths, f->lengths, t->n_lengths * sizeof(*t->lengths));
    }
    return 0;
}

static size_t round_up(size_t n)
{
    return (n + 63) / 64 * 64;
}

static size_t bytes_of_field(const struct mr_batch_field *f, uint32_t n)
{
    size_t total = 0;
    if (f->data && !f->offsets)
        return round_up(n * f->row_bytes);
    for (uint32_t i = 0; i < n; i++)
        total += f->offsets ? f->bytes[i] : round_up(f->bytes[i]);
    return round_up(total);
}

static uint8_t *copy_field(const struct mr_batch_field *f, uint32_t n, struct taken_field *t, uint8_t *to)
{
    if (f->data) {
        size_t bytes = bytes_of_field(f, n);
        t->data = to;
        size_t exact = f->offsets ? 0 : n ? (n - 1) * f->row_bytes + f->bytes[n - 1] : 0;
        for (uint32_t i = 0; f->offsets && i < n; i++)
            exact += f->bytes[i];
        memcpy(to, f->data, exact);
        return to + bytes;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to, f->rows[i], f->bytes[i]);
        t->row[i] = to;
        to += round_up(f->bytes[i]);
    }
    return to;
}

static int copy_fields(const struct mr_batch *b, struct taken *t)
{
    size_t total = 0;
    for (uint32_t k = 0; k < b->n_fields; k++)
        total += bytes_of_field(b->fields[k], b->n);
    uint8_t *block = aligned_alloc(64, total + 64);
    if (!block || !(t->owner = owner_create(NULL, block))) {
        free(block);
        return -ENOMEM;
    }
    for (uint32_t k = 0; k < b->n_fields; k++)
        block = copy_field(b->fields[k], b->n, &t->field[k], block);
    return 0;
}

int fields_take(struct mr_loader *l, struct mr_batch *b, struct taken *t)
{
    struct mr_slab *slab;
    t->field = calloc(b->n_fields, sizeof(*t->field));
    t->n_fields = t->field ? b->n_fields : 0;
    int rc = t->field ? 0 : -ENOMEM;
    for (uint32_t k = 0; !rc && k < b->n_fields; k++)
        rc = copy_field_facts(b->fields[k], b->n, &t->field[k]);
    if (rc)
        return rc;
    if (mr_loader_take(l, b, NULL, &slab) < 0)
        return copy_fields(b, t);
    if ((t->owner = owner_create(slab, NULL)))
        return 0;
    mr_slab_free(slab);
    return -ENOMEM;
}

void fields_free(struct taken *t)
{
    for (uint32_t k = 0; k < t->n_fields; k++) {
        free(t->field[k].row);
        free(t->field[k].shapes);
        free(t->field[k].offsets);
        free(t->field[k].lengths);
    }
    free(t->field);
    t->field = NULL;
    t->n_fields = 0;
}

/* ---- making the Python object ---- */

static PyObject *rows_of(struct core_state *state, const struct taken *t, const struct taken_field *f)
{
    PyObject *rows = PyList_New(0);
    for (uint32_t i = 0; rows && i < t->n; i++) {
        PyObject *row = array_create(state, t->owner, f->row[i], &f->shapes[i], 0, 0, 0);
        if (!row || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *field_object(struct core_state *state, const struct taken *t, const struct taken_field *f)
{
    PyObject *data, *offsets = Py_NewRef(Py_None), *lengths = Py_NewRef(Py_None);
    if (!f->data)
        data = rows_of(state, t, f);
    else
        data = array_create(state, t->owner, f->data, &f->shape, t->n, f->row_bytes, !f->offsets);
    if (data && f->offsets) {
        Py_DECREF(offsets);
        offsets = array_of_integers(state, "i8", f->offsets, t->n + 1);
    }
    if (data && f->lengths) {
        Py_DECREF(lengths);
        lengths = array_of_integers(state, "i8", f->lengths, f->n_lengths);
    }
    return Py_BuildValue("(sNNN)", f->name, data, lengths, offsets); /* NULL among them: NULL */
}

PyObject *fields_object(struct core_state *state, const struct taken *t)
{
    PyObject *list = PyList_New(0);
    for (uint32_t k = 0; list && k < t->n_fields; k++) {
        PyObject *field = field_object(state, t, &t->field[k]);
        if (!field || PyList_Append(list, field) < 0)
            Py_CLEAR(list);
        Py_XDECREF(field);
    }
    return list;
}

PyObject *fields_stats(struct mr_loader *l)
{
    struct mr_loader_field_stats s;
    PyObject *dict = PyDict_New();
    for (uint32_t k = 0; dict && mr_loader_get_field_stats(l, k, &s); k++) {
        PyObject *one =
            Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "samples", (unsigned long long)s.samples, "stored_bytes",
                          (unsigned long long)s.stored_bytes, "bytes", (unsigned long long)s.bytes, "decode_ns",
                          (unsigned long long)s.decode_ns, "transform_ns", (unsigned long long)s.transform_ns);
        if (!one || PyDict_SetItemString(dict, s.name, one) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(one);
    }
    return dict;
}
