/* Saver and State: <millrace/state.h> for Python. Tensors come and go as (name, dtype, shape, strides, address, cuda):
 * who owns the memory behind an address keeps it until the call (save, read) or the fence (begin) is over. The Python
 * side, millrace/_saver.py, sees to that. Calls release the interpreter's lock; an object belongs to one thread at
 * a time. */
#include "py_core.h"

#include <errno.h>
#include <millrace/state.h>
#include <stdlib.h>
#include <string.h>

static struct core_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- tensors ---- */

struct tensors {
    struct mr_tensor *item;
    uint64_t (*shape)[MR_TENSOR_DIMS];
    int64_t (*strides)[MR_TENSOR_DIMS];
    size_t n;
};

static void tensors_free(struct tensors *t)
{
    free(t->item);
    free(t->shape);
    free(t->strides);
}

/* A tuple of integers; how many, -1 with an exception set. */
static int integers(PyObject *tuple, int64_t *out)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    if (n > MR_TENSOR_DIMS)
        PyErr_Format(PyExc_ValueError, "a tensor has %zd dimensions, at most %d are possible", n, MR_TENSOR_DIMS);
    if (n < 0 || n > MR_TENSOR_DIMS)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

static int tensor_from(PyObject *row, struct tensors *t, size_t i)
{
    PyObject *shape, *strides;
    unsigned long long address;
    struct mr_tensor *out = &t->item[i];
    if (!PyArg_ParseTuple(row, "ssO!OKi:tensor", &out->name, &out->dtype, &PyTuple_Type, &shape, &strides, &address,
                          &out->cuda))
        return -1;
    int dims = integers(shape, (int64_t *)t->shape[i]);
    if (dims < 0)
        return -1;
    out->dims = (unsigned)dims;
    out->shape = t->shape[i];
    out->data = (const void *)(uintptr_t)address;
    if (strides != Py_None) {
        if (integers(strides, t->strides[i]) != dims) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a tensor needs as many strides as dimensions");
            return -1;
        }
        out->strides = t->strides[i];
    }
    return 0;
}

/* Names and dtypes are borrowed from the list's tuples. */
static int tensors_from(PyObject *list, struct tensors *t)
{
    Py_ssize_t n = PyList_Size(list);
    if (n < 0)
        return -1;
    *t = (struct tensors){.n = (size_t)n};
    t->item = calloc((size_t)n + 1, sizeof(*t->item));
    t->shape = calloc((size_t)n + 1, sizeof(*t->shape));
    t->strides = calloc((size_t)n + 1, sizeof(*t->strides));
    if (!t->item || !t->shape || !t->strides) {
        tensors_free(t);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (tensor_from(PyList_GetItem(list, i), t, (size_t)i) < 0) {
            tensors_free(t);
            return -1;
        }
    return 0;
}

/* ---- Saver ---- */

struct saver {
    PyObject_HEAD struct mr_saver *s;
};

/* A list of (folder, capacity, keep_last): folders are borrowed from its tuples. How many, -1 with an exception set. */
static int tiers_from(PyObject *list, struct mr_saver_tier *out)
{
    Py_ssize_t n = list ? PyList_Size(list) : 0;
    if (n > MR_SAVER_TIERS)
        PyErr_Format(PyExc_ValueError, "%zd tiers, at most %d are possible", n, MR_SAVER_TIERS);
    if (n < 0 || n > MR_SAVER_TIERS)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned long long capacity;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sKI:tier", &out[i].folder, &capacity, &out[i].keep_last))
            return -1;
        out[i].capacity = capacity;
    }
    return (int)n;
}

static PyObject *saver_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char *names[] = {"folder",
                            "job",
                            "rank",
                            "world",
                            "fsync",
                            "direct",
                            "copy_threads",
                            "write_threads",
                            "ring_bytes",
                            "keep_last",
                            "bytes_per_s",
                            "commit_timeout_s",
                            "tiers",
                            "drain_bytes_per_s",
                            NULL};
    struct mr_saver_tier tier[MR_SAVER_TIERS] = {0};
    struct mr_saver_params p = {.size = sizeof p, .world = 1, .tier = tier};
    PyObject *folder, *tiers = NULL;
    int fsync = 1, direct = 1;
    unsigned long long ring = 0, rate = 0, drain = 0;
    struct mr_error err;
    struct mr_saver *s;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O&|zIIppIIKIKIO!K:Saver", names, PyUnicode_FSConverter, &folder, &p.job,
                                     &p.rank, &p.world, &fsync, &direct, &p.copy_threads, &p.write_threads, &ring,
                                     &p.keep_last, &rate, &p.commit_timeout_s, &PyList_Type, &tiers, &drain))
        return NULL;
    int n = tiers_from(tiers, tier);
    if (n < 0) {
        Py_DECREF(folder);
        return NULL;
    }
    p.tiers = (size_t)n;
    p.folder = PyBytes_AsString(folder);
    p.fsync = fsync;
    p.direct = direct;
    p.ring_bytes = ring;
    p.bytes_per_s = rate;
    p.drain_bytes_per_s = drain;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_open(&p, &s, &err);
    Py_END_ALLOW_THREADS
    Py_DECREF(folder);
    if (rc)
        return raise_error(PyType_GetModuleState(type), &err);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct saver *self = (struct saver *)alloc(type, 0);
    if (self)
        self->s = s;
    else
        mr_saver_close(s, NULL);
    return (PyObject *)self;
}

/* nearest(folder, tiers, job, rank, world, timeout_s): (step, number of the place). */
PyObject *core_nearest(PyObject *module, PyObject *args)
{
    struct mr_saver_tier tier[MR_SAVER_TIERS] = {0};
    struct mr_saver_params p = {.size = sizeof p, .tier = tier};
    PyObject *folder, *tiers;
    struct mr_error err;
    uint64_t step;
    size_t place;
    int rc, n = -1;
    if (!PyArg_ParseTuple(args, "O&O!zIII:nearest", PyUnicode_FSConverter, &folder, &PyList_Type, &tiers, &p.job,
                          &p.rank, &p.world, &p.commit_timeout_s))
        return NULL;
    if ((n = tiers_from(tiers, tier)) < 0) {
        Py_DECREF(folder);
        return NULL;
    }
    p.tiers = (size_t)n;
    p.folder = PyBytes_AsString(folder);
    Py_BEGIN_ALLOW_THREADS
    rc = mr_state_nearest(&p, &step, &place, &err);
    Py_END_ALLOW_THREADS
    Py_DECREF(folder);
    if (rc)
        return raise_error(PyModule_GetState(module), &err);
    return Py_BuildValue("Kn", (unsigned long long)step, (Py_ssize_t)place);
}

static struct mr_saver *use(struct saver *self)
{
    if (!self->s)
        PyErr_SetString(PyExc_ValueError, "the saver is closed");
    return self->s;
}

static PyObject *result_dict(const struct mr_save_result *r)
{
    return Py_BuildValue("{s:K, s:d, s:d, s:d}", "bytes", (unsigned long long)r->bytes, "blocked_s",
                         (double)r->blocked_ns * 1e-9, "copy_s", (double)r->copy_ns * 1e-9, "room_s",
                         (double)r->room_ns * 1e-9);
}

static PyObject *saver_start(struct saver *self, PyObject *args, bool behind)
{
    unsigned long long step, stream = 0;
    PyObject *list;
    struct mr_state st = {.size = sizeof st};
    struct mr_save_result r = {0};
    struct mr_error err;
    struct tensors t;
    int rc;
    if (!PyArg_ParseTuple(args, "KO!zz|K:save", &step, &PyList_Type, &list, &st.json, &st.loader, &stream) ||
        !use(self) || tensors_from(list, &t) < 0)
        return NULL;
    st.tensor = t.item;
    st.tensors = t.n;
    st.cuda_stream = (void *)(uintptr_t)stream;
    Py_BEGIN_ALLOW_THREADS
    rc = behind ? mr_saver_begin(self->s, step, &st, &err) : mr_saver_save(self->s, step, &st, &r, &err);
    Py_END_ALLOW_THREADS
    tensors_free(&t);
    return rc ? raise_error(state_of((PyObject *)self), &err) : result_dict(&r);
}

static PyObject *saver_save(PyObject *self, PyObject *args)
{
    return saver_start((struct saver *)self, args, false);
}

static PyObject *saver_begin(PyObject *self, PyObject *args)
{
    return saver_start((struct saver *)self, args, true);
}

static PyObject *saver_fence(PyObject *self, PyObject *unused)
{
    struct mr_saver *s = use((struct saver *)self);
    struct mr_save_result r = {0};
    struct mr_error err;
    int rc;
    (void)unused;
    if (!s)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_fence(s, &r, &err);
    Py_END_ALLOW_THREADS
    return rc ? raise_error(state_of(self), &err) : result_dict(&r);
}

static PyObject *saver_fail(PyObject *self, PyObject *args)
{
    unsigned long long step;
    const char *why;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "Ks:fail", &step, &why) || !use((struct saver *)self))
        return NULL;
    struct mr_saver *s = ((struct saver *)self)->s;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_fail(s, step, why, &err);
    Py_END_ALLOW_THREADS
    return rc ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static PyObject *saver_wait(PyObject *self, PyObject *args)
{
    unsigned long long step = MR_ALL_STEPS;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "|K:wait", &step) || !use((struct saver *)self))
        return NULL;
    struct mr_saver *s = ((struct saver *)self)->s;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_wait(s, step, &err);
    Py_END_ALLOW_THREADS
    return rc ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static PyObject *saver_pending(PyObject *self, PyObject *unused)
{
    struct mr_saver *s = use((struct saver *)self);
    (void)unused;
    return s ? PyLong_FromUnsignedLong(mr_saver_pending(s)) : NULL;
}

static PyObject *saver_end_within(PyObject *self, PyObject *args)
{
    double seconds;
    struct mr_error err;
    struct mr_saver *s = use((struct saver *)self);
    if (!s || !PyArg_ParseTuple(args, "d:end_within", &seconds))
        return NULL;
    uint64_t ns = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9) : 0;
    return mr_saver_end_within(s, ns, &err) ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static PyObject *saver_step(PyObject *self, PyObject *unused)
{
    struct mr_saver *s = use((struct saver *)self);
    (void)unused;
    if (!s)
        return NULL;
    mr_saver_step(s);
    return Py_NewRef(Py_None);
}

static PyObject *saver_last(PyObject *self, PyObject *unused)
{
    struct mr_saver *s = use((struct saver *)self);
    struct mr_saved d;
    (void)unused;
    if (!s)
        return NULL;
    if (!mr_saver_last(s, &d))
        return Py_NewRef(Py_None);
    return Py_BuildValue("{s:K, s:K, s:d, s:i}", "step", (unsigned long long)d.step, "bytes",
                         (unsigned long long)d.bytes, "durable_s",
                         d.durable_ns ? (double)(d.durable_ns - d.start_ns) * 1e-9 : -1.0, "code", d.code);
}

static PyObject *saver_reserve(PyObject *self, PyObject *args)
{
    unsigned long long bytes;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "K:reserve", &bytes) || !use((struct saver *)self))
        return NULL;
    struct mr_saver *s = ((struct saver *)self)->s;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_reserve(s, bytes, &err);
    Py_END_ALLOW_THREADS
    return rc ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static PyObject *saver_close(PyObject *self, PyObject *unused)
{
    struct saver *me = (struct saver *)self;
    struct mr_saver *s = me->s;
    struct mr_error err;
    int rc;
    (void)unused;
    me->s = NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_saver_close(s, &err);
    Py_END_ALLOW_THREADS
    return rc ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static void saver_dealloc(PyObject *self)
{
    struct saver *me = (struct saver *)self;
    PyTypeObject *type = Py_TYPE(self);
    struct mr_saver *s = me->s;
    Py_BEGIN_ALLOW_THREADS
    mr_saver_close(s, NULL);
    Py_END_ALLOW_THREADS
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef saver_methods[] = {
    {"save", saver_save, METH_VARARGS,
     "save(step, tensors, json, loader, cuda_stream=0): returns when the tensors may change."},
    {"begin", saver_begin, METH_VARARGS,
     "begin(step, tensors, json, loader, cuda_stream=0): returns at once; fence() before they change."},
    {"fence", saver_fence, METH_NOARGS, "fence(): waits for the copy that begin() started."},
    {"fail", saver_fail, METH_VARARGS, "fail(step, why): this rank cannot make that save; the others learn."},
    {"wait", saver_wait, METH_VARARGS, "wait([step]): until it, or all, are on storage; raises what failed."},
    {"pending", saver_pending, METH_NOARGS, "pending(): saves that are not on storage yet."},
    {"end_within", saver_end_within, METH_VARARGS, "end_within(seconds): gives up what is not complete by then."},
    {"step", saver_step, METH_NOARGS, "step(): a step of the training has ended."},
    {"last", saver_last, METH_NOARGS, "last(): the last save that is over, or None."},
    {"reserve", saver_reserve, METH_VARARGS, "reserve(bytes): gets the memory for the copy now."},
    {"close", saver_close, METH_NOARGS, "close(): waits for all; raises what failed."},
    {NULL},
};
static PyType_Slot saver_slots[] = {{Py_tp_new, saver_new},
                                    {Py_tp_dealloc, saver_dealloc},
                                    {Py_tp_methods, saver_methods},
                                    {Py_tp_doc, "Saves states; see millrace.checkpoint."},
                                    {0, NULL}};
PyType_Spec saver_spec = {.name = "millrace._core.Saver",
                          .basicsize = sizeof(struct saver),
                          .flags = Py_TPFLAGS_DEFAULT,
                          .slots = saver_slots};

/* ---- State ---- */

struct stored {
    PyObject_HEAD struct mr_state_reader *r;
};

static PyObject *stored_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char *names[] = {"folder", "step", "threads", "direct", NULL};
    PyObject *folder;
    long long step = -1;
    int direct = 0, rc;
    struct mr_state_params p = {.size = sizeof p};
    struct mr_state_reader *r;
    struct mr_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O&|LIp:State", names, PyUnicode_FSConverter, &folder, &step, &p.threads,
                                     &direct))
        return NULL;
    p.folder = PyBytes_AsString(folder);
    p.step = step < 0 ? MR_ALL_STEPS : (uint64_t)step;
    p.direct = direct;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_state_open(&p, &r, &err);
    Py_END_ALLOW_THREADS
    Py_DECREF(folder);
    if (rc)
        return raise_error(PyType_GetModuleState(type), &err);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct stored *self = (struct stored *)alloc(type, 0);
    if (self)
        self->r = r;
    else
        mr_state_close(r);
    return (PyObject *)self;
}

static void stored_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    mr_state_close(((struct stored *)self)->r);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *stored_info(PyObject *self, PyObject *unused)
{
    const struct mr_state_reader *r = ((struct stored *)self)->r;
    (void)unused;
    return Py_BuildValue("KI", (unsigned long long)mr_state_step(r), mr_state_world(r));
}

static PyObject *stored_tensors(PyObject *self, PyObject *unused)
{
    const struct mr_state_reader *r = ((struct stored *)self)->r;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (size_t i = 0; list && i < mr_state_tensors(r); i++) {
        const struct mr_stored_tensor *t = mr_state_tensor(r, i);
        PyObject *shape = PyTuple_New(t->dims);
        for (unsigned d = 0; shape && d < t->dims; d++)
            PyTuple_SetItem(shape, d, PyLong_FromUnsignedLongLong(t->shape[d]));
        PyObject *row =
            shape ? Py_BuildValue("sIsNK", t->name, t->rank, t->dtype, shape, (unsigned long long)t->bytes) : NULL;
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *stored_json(PyObject *self, PyObject *args)
{
    unsigned rank;
    const char *what;
    char *text;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "Is:json", &rank, &what))
        return NULL;
    if (mr_state_json(((struct stored *)self)->r, rank, what, &text, &err))
        return raise_error(state_of(self), &err);
    PyObject *out = text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
    free(text);
    return out;
}

/* read([(tensor, offset, bytes, address, cuda), ...]) */
static PyObject *stored_read(PyObject *self, PyObject *list)
{
    struct mr_state_reader *r = ((struct stored *)self)->r;
    struct mr_error err;
    Py_ssize_t n = PyList_Size(list);
    int rc = 0;
    if (n < 0)
        return NULL;
    struct mr_state_range *g = calloc((size_t)n + 1, sizeof(*g));
    if (!g)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned long long offset, bytes, address;
        Py_ssize_t tensor;
        int cuda = 0;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "nKKK|i:range", &tensor, &offset, &bytes, &address, &cuda)) {
            free(g);
            return NULL;
        }
        g[i] = (struct mr_state_range){(size_t)tensor, offset, bytes, (void *)(uintptr_t)address, cuda};
    }
    Py_BEGIN_ALLOW_THREADS
    rc = mr_state_read(r, g, (size_t)n, &err);
    Py_END_ALLOW_THREADS
    free(g);
    return rc ? raise_error(state_of(self), &err) : Py_NewRef(Py_None);
}

static PyMethodDef stored_methods[] = {
    {"info", stored_info, METH_NOARGS, "info(): (step, ranks that saved)."},
    {"tensors", stored_tensors, METH_NOARGS, "tensors(): [(name, rank, dtype, shape, bytes)]."},
    {"json", stored_json, METH_VARARGS, "json(rank, 'state' or 'loader'): the text, or None."},
    {"read", stored_read, METH_O, "read([(tensor, offset, bytes, address, cuda)]): verified bytes to these addresses."},
    {NULL},
};
static PyType_Slot stored_slots[] = {{Py_tp_new, stored_new},
                                     {Py_tp_dealloc, stored_dealloc},
                                     {Py_tp_methods, stored_methods},
                                     {Py_tp_doc, "A saved state; see millrace.checkpoint."},
                                     {0, NULL}};
PyType_Spec stored_spec = {.name = "millrace._core.State",
                           .basicsize = sizeof(struct stored),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = stored_slots};
