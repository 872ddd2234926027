/* Arrays: memory of a batch as numpy (__array_interface__) and every DLPack consumer see it, without a copy. DLPack's
 * versioned form is returned where version 1 or later is requested, the old one to others. */
#include "py_core.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define AXES_MAX (MR_SAMPLE_DIMS_MAX + 1)

/* ---- DLPack's structs (dmlc/dlpack, version 1.0) ---- */

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};
struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };
enum { DL_CPU = 1 };

/* What a tensor that was given away needs: freed by its deleter, which may run without the interpreter. */
struct export
{
    struct owner *owner;
    int64_t shape[AXES_MAX], strides[AXES_MAX];
    union {
        struct dl_managed plain;
        struct dl_versioned versioned;
    } tensor;
};

typedef struct {
    PyObject ob_base;
    struct owner *owner;
    void *data;
    int n_dims;
    int64_t shape[AXES_MAX], strides[AXES_MAX]; /* strides in bytes */
    char dtype[8];                              /* numpy's, without byte order */
    unsigned item_bytes;
} Array;

/* ---- owners ---- */

struct owner *owner_create(struct mr_slab *slab, void *block)
{
    struct owner *o = malloc(sizeof(*o));
    if (!o)
        return NULL;
    atomic_init(&o->users, 1);
    o->slab = slab;
    o->block = block;
    return o;
}

void owner_drop(struct owner *o)
{
    if (!o || atomic_fetch_sub(&o->users, 1) != 1)
        return;
    mr_slab_free(o->slab);
    free(o->block);
    free(o);
}

/* ---- making one ---- */

static unsigned bytes_of(const char *dtype)
{
    const char *digits = dtype + strcspn(dtype, "0123456789");
    return (unsigned)strtoul(digits, NULL, 10);
}

PyObject *array_create(struct core_state *state, struct owner *owner, void *data, const struct mr_shape *shape,
                       int64_t rows, uint64_t stride_bytes, int has_rows)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(state->array, Py_tp_alloc);
    Array *a = (Array *)alloc(state->array, 0);
    if (!a)
        return NULL;
    memcpy(a->dtype, shape->dtype, sizeof a->dtype);
    a->item_bytes = bytes_of(a->dtype);
    a->data = data;
    a->n_dims = shape->n_dims + (has_rows ? 1 : 0);
    int64_t step = a->item_bytes;
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        int at = d + (has_rows ? 1 : 0);
        a->shape[at] = (int64_t)shape->dims[d];
        a->strides[at] = step;
        step *= (int64_t)shape->dims[d];
    }
    if (has_rows) {
        a->shape[0] = rows;
        a->strides[0] = (int64_t)stride_bytes;
    }
    atomic_fetch_add(&owner->users, 1);
    a->owner = owner;
    return (PyObject *)a;
}

PyObject *array_of_integers(struct core_state *state, const char *dtype, const void *from, uint32_t n)
{
    struct mr_shape one = {.n_dims = 0};
    strncpy(one.dtype, dtype, sizeof one.dtype - 1);
    void *copy = malloc(n ? 8 * (size_t)n : 8);
    struct owner *owner = copy ? owner_create(NULL, copy) : NULL;
    if (!owner) {
        free(copy);
        return PyErr_NoMemory();
    }
    memcpy(copy, from, 8 * (size_t)n);
    PyObject *a = array_create(state, owner, copy, &one, n, 8, 1);
    owner_drop(owner);
    return a;
}

static void array_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    owner_drop(((Array *)self)->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- DLPack ---- */

static void export_free(struct export *e)
{
    owner_drop(e->owner);
    free(e);
}

static void plain_deleter(struct dl_managed *self)
{
    export_free(self->context);
}

static void versioned_deleter(struct dl_versioned *self)
{
    export_free(self->context);
}

/* A consumer renames the capsule when it takes the tensor over; one that was not taken over is freed here. */
static void capsule_free(PyObject *capsule)
{
    struct dl_managed *plain = NULL;
    struct dl_versioned *versioned = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor") && (plain = PyCapsule_GetPointer(capsule, "dltensor")))
        plain->deleter(plain);
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned") &&
             (versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned")))
        versioned->deleter(versioned);
}

static int dl_code(const char *dtype)
{
    if (strncmp(dtype, "bf", 2) == 0)
        return DL_BFLOAT;
    switch (dtype[0]) {
    case 'u': return DL_UINT;
    case 'i': return DL_INT;
    case 'f': return DL_FLOAT;
    case 'c': return DL_COMPLEX;
    default: return DL_BOOL;
    }
}

static void describe_tensor(const Array *a, struct export *e, struct dl_tensor *t)
{
    *t = (struct dl_tensor){.data = a->data, .ndim = a->n_dims, .shape = e->shape, .strides = e->strides};
    t->device.type = DL_CPU;
    t->dtype.code = (uint8_t)dl_code(a->dtype);
    t->dtype.bits = (uint8_t)(8 * a->item_bytes);
    t->dtype.lanes = 1;
    for (int d = 0; d < a->n_dims; d++) {
        e->shape[d] = a->shape[d];
        e->strides[d] = a->strides[d] / a->item_bytes;
    }
}

static PyObject *export_array(const Array *a, bool versioned)
{
    struct export *e = calloc(1, sizeof(*e));
    if (!e)
        return PyErr_NoMemory();
    struct dl_managed *plain = &e->tensor.plain;
    struct dl_versioned *full = &e->tensor.versioned;
    if (versioned) {
        full->version.major = 1;
        full->context = e;
        full->deleter = versioned_deleter;
    } else {
        plain->context = e;
        plain->deleter = plain_deleter;
    }
    describe_tensor(a, e, versioned ? &full->tensor : &plain->tensor);
    atomic_fetch_add(&a->owner->users, 1);
    e->owner = a->owner;
    PyObject *capsule = versioned ? PyCapsule_New(full, "dltensor_versioned", capsule_free)
                                  : PyCapsule_New(plain, "dltensor", capsule_free);
    if (!capsule)
        export_free(e);
    return capsule;
}

/* Does the consumer take version 1? */
static int wants_versioned(PyObject *max_version, bool *out)
{
    *out = false;
    if (max_version == Py_None)
        return 0;
    PyObject *major = PySequence_GetItem(max_version, 0);
    if (!major)
        return -1;
    long value = PyLong_AsLong(major);
    Py_DECREF(major);
    if (value == -1 && PyErr_Occurred())
        return -1;
    *out = value >= 1;
    return 0;
}

static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    bool versioned;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &max_version, &device, &copy))
        return NULL;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "a millrace array is handed out without a copy; copy the result");
        return NULL;
    }
    if (wants_versioned(max_version, &versioned) < 0)
        return NULL;
    return export_array((Array *)self, versioned);
}

static PyObject *array_dlpack_device(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

/* ---- numpy ---- */

static PyObject *tuple_of(const int64_t *v, int n)
{
    PyObject *t = PyTuple_New(n);
    for (int i = 0; t && i < n; i++) {
        PyObject *x = PyLong_FromLongLong(v[i]);
        if (!x || PyTuple_SetItem(t, i, x) < 0) {
            Py_DECREF(t);
            return NULL;
        }
    }
    return t;
}

static PyObject *array_interface(PyObject *self, void *nothing)
{
    (void)nothing;
    const Array *a = (const Array *)self;
    char typestr[16];
    if (strncmp(a->dtype, "bf", 2) == 0) {
        PyErr_SetString(PyExc_AttributeError, "numpy has no bfloat16; take the array by DLPack");
        return NULL;
    }
    snprintf(typestr, sizeof typestr, "%c%s", a->item_bytes == 1 ? '|' : '<', a->dtype);
    PyObject *shape = tuple_of(a->shape, a->n_dims), *strides = tuple_of(a->strides, a->n_dims);
    if (!shape || !strides) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("{s:i,s:s,s:N,s:N,s:(KO)}", "version", 3, "typestr", typestr, "shape", shape, "strides",
                         strides, "data", (unsigned long long)(uintptr_t)a->data, Py_False);
}

static PyObject *array_shape(PyObject *self, void *nothing)
{
    (void)nothing;
    return tuple_of(((Array *)self)->shape, ((Array *)self)->n_dims);
}

static PyObject *array_dtype(PyObject *self, void *nothing)
{
    (void)nothing;
    return PyUnicode_FromString(((Array *)self)->dtype);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "A DLPack capsule: the versioned form for consumers of version 1 or later, else the old one."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, "(kDLCPU, 0)."},
    {NULL},
};
static PyGetSetDef array_getset[] = {
    {"__array_interface__", array_interface, NULL, "For numpy.asarray; no copy, writable.", NULL},
    {"shape", array_shape, NULL, "The lengths of the axes.", NULL},
    {"dtype", array_dtype, NULL, "numpy's code without byte order: 'u1', 'f4'; 'bf2' is bfloat16.", NULL},
    {NULL},
};
static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_getset},
    {Py_tp_doc, "Memory of a batch. numpy.asarray and every from_dlpack take it without a copy."},
    {0, NULL},
};
PyType_Spec array_spec = {.name = "millrace._core.Array",
                          .basicsize = sizeof(Array),
                          .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                          .slots = array_slots};
