/* The fast part of millrace.trace: a callable that times a function, a context manager that times a block, something
 * whose items are timed. Limited API of Python 3.10, so one file serves every later version. The tracer's functions are
 * weak references: without the tracer in the process, calls pass straight through. Everything runs under the
 * interpreter's lock. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include <structmember.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <millrace/trace.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* A site that owns its names. */
typedef struct {
    struct millrace_site site;
    PyObject *category, *name;
} named_site;

/* The bytes of a text, which belong to *hold (a new reference). File names that are not UTF-8 come as lone surrogates:
 * they become the bytes they stand for; bytes are themselves. NULL with an exception: not a text. */
static const char *text_bytes(PyObject *text, PyObject **hold)
{
    if (PyBytes_Check(text)) {
        *hold = Py_NewRef(text);
        return PyBytes_AsString(text);
    }
    const char *bytes = PyUnicode_AsUTF8AndSize(text, NULL);
    if (bytes) {
        *hold = Py_NewRef(text);
        return bytes;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear();
    PyObject *encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
    if (!encoded) { /* other surrogates, which stand for nothing */
        PyErr_Clear();
        encoded = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    }
    if (!encoded)
        return NULL;
    *hold = encoded;
    return PyBytes_AsString(encoded);
}

/* The same of any object (a path, a number): what is no text says what it is. */
static const char *name_bytes(PyObject *name, PyObject **hold)
{
    if (PyUnicode_Check(name) || PyBytes_Check(name))
        return text_bytes(name, hold);
    PyObject *text = PyObject_Str(name);
    const char *bytes = text ? text_bytes(text, hold) : NULL;
    Py_XDECREF(text);
    return bytes;
}

/* Names may be anything: without the tracer nobody looks at them, so they must not fail with it. */
static int site_init(named_site *s, PyObject *category, PyObject *name)
{
    PyObject *held = NULL;
    const char *c = name_bytes(category, &held);
    if (!c)
        return -1;
    const char *n = name_bytes(name, &s->name);
    if (!n) {
        Py_DECREF(held);
        return -1;
    }
    s->category = held;
    s->site = (struct millrace_site){.category = c, .name = n};
    return 0;
}

static void site_clear(named_site *s)
{
    Py_CLEAR(s->category);
    Py_CLEAR(s->name);
}

static uint64_t now(void)
{
    return millrace_trace_now ? millrace_trace_now() : 0;
}

static int type_is(PyObject *value, const char *wanted)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    int is = text && !strcmp(text, wanted);
    Py_XDECREF(name);
    PyErr_Clear();
    return is;
}

/* NumPy's truth values, which as an index cause a warning; 0 or 1, -1 if it is another object. */
static int truth_of(PyObject *value)
{
    int truth = type_is(value, "bool_") || type_is(value, "bool") ? PyObject_IsTrue(value) : -1;
    PyErr_Clear();
    return truth;
}

/* NumPy's arrays with dimensions: one of a single element could be a number, but saying so causes a warning. */
static int is_array(PyObject *value)
{
    int is = type_is(value, "ndarray") && PySequence_Size(value) >= 0;
    PyErr_Clear();
    return is;
}

/* Integers and floats of any library (NumPy's and PyTorch's scalars have __index__ or __float__); false: it is a text.
 */
static int number_arg(PyObject *value, struct millrace_arg *a)
{
    int overflow = 0;
    if (PyFloat_Check(value)) {
        a->type = MILLRACE_DOUBLE;
        a->value.d = PyFloat_AsDouble(value);
        return 1;
    }
    if (PyUnicode_Check(value) || PyBytes_Check(value) || !PyNumber_Check(value) ||
        (!PyLong_Check(value) && is_array(value)))
        return 0;
    int truth = PyLong_Check(value) ? -1 : truth_of(value);
    if (truth >= 0) {
        a->type = MILLRACE_INT;
        a->value.i = truth;
        return 1;
    }
    PyObject *number = PyLong_Check(value) ? Py_NewRef(value) : PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (number) {
        a->type = MILLRACE_INT;
        a->value.i = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow > 0) {
            a->type = MILLRACE_UINT;
            a->value.u = PyLong_AsUnsignedLongLong(number);
            overflow = PyErr_Occurred() != NULL;
            PyErr_Clear();
        }
        Py_DECREF(number);
        return !overflow;
    }
    PyErr_Clear();
    number = PyNumber_Float(value);
    if (!number) {
        PyErr_Clear();
        return 0;
    }
    a->type = MILLRACE_DOUBLE;
    a->value.d = PyFloat_AsDouble(number);
    Py_DECREF(number);
    return 1;
}

/* Hands *held over to the list `hold`; false with an exception. */
static int keep(PyObject *hold, PyObject **held)
{
    int ok = !*held || PyList_Append(hold, *held) == 0;
    Py_CLEAR(*held);
    return ok;
}

/* A value as an argument; texts live as long as `hold`. 1: done, 0: it is left out, -1 with an exception. */
static int fill_value(PyObject *value, struct millrace_arg *a, PyObject *hold)
{
    PyObject *held = NULL;
    if (number_arg(value, a))
        return 1;
    PyObject *text = PyUnicode_Check(value) || PyBytes_Check(value) ? Py_NewRef(value) : PyObject_Str(value);
    a->type = MILLRACE_TEXT;
    a->value.s = text ? text_bytes(text, &held) : NULL;
    Py_XDECREF(text);
    PyErr_Clear(); /* an object that cannot say what it is is left out rather than disturb the program */
    return keep(hold, &held) ? a->value.s != NULL : -1;
}

/* Keyword arguments as arguments of a span. While a value says what it is, other threads may change the dictionary. */
static int fill_args(PyObject *dict, struct millrace_arg *out, unsigned *n, PyObject *hold)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    *n = 0;
    while (dict && PyDict_Check(dict) && *n < MILLRACE_ARGS_MAX && PyDict_Next(dict, &at, &key, &value)) {
        struct millrace_arg *a = &out[*n];
        if (value == Py_None)
            continue;
        PyObject *held = NULL;
        a->key = PyUnicode_Check(key) ? text_bytes(key, &held) : NULL;
        Py_INCREF(value);
        int rc = !keep(hold, &held) ? -1 : a->key ? fill_value(value, a, hold) : 0;
        Py_DECREF(value);
        if (rc < 0)
            return -1;
        *n += (unsigned)rc;
    }
    return 0;
}

/* `end` is 0 for now. */
static void put(named_site *s, uint64_t begin, uint64_t end, const struct millrace_arg *args, unsigned n)
{
    if (end)
        millrace_trace_span_between(&s->site, begin, end, args, n);
    else
        millrace_trace_span(&s->site, begin, args, n);
}

static int emit_until(named_site *s, uint64_t begin, uint64_t end, PyObject *dict)
{
    struct millrace_arg args[MILLRACE_ARGS_MAX];
    unsigned n = 0;
    if (!begin)
        return 0;
    if (!dict || !PyDict_Check(dict) || PyDict_Size(dict) == 0) {
        put(s, begin, end, NULL, 0);
        return 0;
    }
    PyObject *hold = PyList_New(0);
    int rc = hold ? fill_args(dict, args, &n, hold) : -1;
    if (rc == 0)
        put(s, begin, end, args, n);
    Py_XDECREF(hold);
    return rc;
}

static int emit(named_site *s, uint64_t begin, PyObject *dict)
{
    return emit_until(s, begin, 0, dict);
}

/* ---- Region: with Region(category, name, args) ---- */

typedef struct {
    PyObject_HEAD named_site site;
    PyObject *args; /* dict or NULL */
    PyObject *open; /* begin and thread of each entry that is open beside the last one, for a region entered twice; NULL
                       if it never was */
    uint64_t begin;
    unsigned long thread; /* which entered last */
} Region;

static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"category", "name", "args", NULL};
    PyObject *category, *name, *dict = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O", words, &category, &name, &dict))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Region *r = (Region *)alloc(type, 0);
    if (!r)
        return NULL;
    if (site_init(&r->site, category, name) < 0) {
        Py_DECREF(r);
        return NULL;
    }
    if (dict && dict != Py_None) {
        Py_INCREF(dict);
        r->args = dict;
    }
    return (PyObject *)r;
}

static void region_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    Region *r = (Region *)o;
    site_clear(&r->site);
    Py_CLEAR(r->args);
    Py_CLEAR(r->open);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

static int push_number(PyObject *list, uint64_t number)
{
    PyObject *item = PyLong_FromUnsignedLongLong(number);
    int rc = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return rc;
}

/* Keeps the last entry while the same object is entered again. */
static int region_push(Region *r)
{
    if (!r->open && !(r->open = PyList_New(0)))
        return -1;
    return push_number(r->open, r->begin) < 0 || push_number(r->open, r->thread) < 0 ? -1 : 0;
}

/* Takes the last of the kept entries that a thread made, or of all; false if there is none. */
static int region_take(Region *r, const unsigned long *thread, uint64_t *begin, unsigned long *of)
{
    for (Py_ssize_t at = r->open ? PyList_Size(r->open) - 2 : -1; at >= 0; at -= 2) {
        *of = PyLong_AsUnsignedLong(PyList_GetItem(r->open, at + 1));
        if (thread && *of != *thread)
            continue;
        *begin = PyLong_AsUnsignedLongLong(PyList_GetItem(r->open, at));
        return PyList_SetSlice(r->open, at, at + 2, NULL) == 0;
    }
    return 0;
}

static PyObject *region_enter(PyObject *o, PyObject *unused)
{
    Region *r = (Region *)o;
    (void)unused;
    if (r->begin && region_push(r) < 0)
        return NULL;
    r->begin = now();
    r->thread = PyThread_get_thread_ident();
    Py_INCREF(o);
    return o;
}

static PyObject *region_exit(PyObject *o, PyObject *args)
{
    Region *r = (Region *)o;
    uint64_t begin = r->begin;
    unsigned long self = PyThread_get_thread_ident(), of;
    (void)args;
    if (r->thread == self ||
        !region_take(r, &self, &begin, &of)) { /* what it entered last; else another thread has entered since */
        r->begin = 0;
        region_take(r, NULL, &r->begin, &r->thread);
    }
    if (emit(&r->site, begin, r->args) < 0)
        return NULL;
    Py_RETURN_FALSE;
}

static PyObject *region_update(PyObject *o, PyObject *args, PyObject *kwargs)
{
    Region *r = (Region *)o;
    if (args && PyTuple_Size(args))
        return PyErr_Format(PyExc_TypeError, "update() takes keyword arguments only");
    if (!millrace_trace_now) /* nothing will be recorded; the object may be shared */
        return Py_NewRef(o);
    if (!r->args && !(r->args = PyDict_New()))
        return NULL;
    if (kwargs && PyDict_Update(r->args, kwargs) < 0)
        return NULL;
    Py_INCREF(o);
    return o;
}

static PyMethodDef region_methods[] = {
    {"__enter__", region_enter, METH_NOARGS, "Starts the span."},
    {"__exit__", region_exit, METH_VARARGS, "Ends the span."},
    {"update", (PyCFunction)(void (*)(void))region_update, METH_VARARGS | METH_KEYWORDS, "Adds arguments to the span."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot region_slots[] = {
    {Py_tp_new, region_new},
    {Py_tp_dealloc, region_dealloc},
    {Py_tp_methods, region_methods},
    {Py_tp_doc, "A span of the program: with Region(category, name, args): ..."},
    {0, NULL},
};
static PyType_Spec region_spec = {"millrace.trace._trace.Region", sizeof(Region), 0, Py_TPFLAGS_DEFAULT, region_slots};

/* ---- Traced: a function whose calls are spans ---- */

typedef struct {
    PyObject_HEAD named_site site;
    PyObject *function, *args, *dict, *weak;
} Traced;

static PyObject *method_type; /* types.MethodType */

static PyObject *traced_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"function", "category", "name", "args", NULL};
    PyObject *function, *category, *name, *dict = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O", words, &function, &category, &name, &dict))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Traced *t = (Traced *)alloc(type, 0);
    if (!t)
        return NULL;
    if (site_init(&t->site, category, name) < 0) {
        Py_DECREF(t);
        return NULL;
    }
    Py_INCREF(function);
    t->function = function;
    if (dict && dict != Py_None) {
        Py_INCREF(dict);
        t->args = dict;
    }
    return (PyObject *)t;
}

static int traced_clear(PyObject *o)
{
    Traced *t = (Traced *)o;
    site_clear(&t->site);
    Py_CLEAR(t->function);
    Py_CLEAR(t->args);
    Py_CLEAR(t->dict);
    return 0;
}

static int traced_traverse(PyObject *o, visitproc visit, void *arg)
{
    Traced *t = (Traced *)o;
    Py_VISIT(t->function);
    Py_VISIT(t->args);
    Py_VISIT(t->dict);
    return 0;
}

static void traced_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (((Traced *)o)->weak)
        PyObject_ClearWeakRefs(o);
    traced_clear(o);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

static PyObject *traced_call(PyObject *o, PyObject *args, PyObject *kwargs)
{
    Traced *t = (Traced *)o;
    uint64_t begin = now();
    PyObject *result = PyObject_Call(t->function, args, kwargs);
    if (begin) {
        PyObject *type, *value, *trace;
        if (result) {
            if (emit(&t->site, begin, t->args) < 0)
                Py_CLEAR(result);
        } else {
            PyErr_Fetch(&type, &value, &trace);
            emit(&t->site, begin, t->args);
            PyErr_Restore(type, value, trace);
        }
    }
    return result;
}

/* As a method, what Python's own functions become. Calls of methods do not come here: see the type's flags. */
static PyObject *traced_get(PyObject *o, PyObject *object, PyObject *owner)
{
    (void)owner;
    return !object || object == Py_None ? Py_NewRef(o) : PyObject_CallFunctionObjArgs(method_type, o, object, NULL);
}

/* What a function has and we have not (__code__, __defaults__, a library's own attributes) is the function's. */
static PyObject *traced_getattr(PyObject *o, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(o, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    PyObject *function = ((Traced *)o)->function;
    if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) /* whoever wraps us may say otherwise */
        return Py_NewRef(function);
    return PyObject_GetAttr(function, name);
}

static PyObject *traced_repr(PyObject *o)
{
    return PyUnicode_FromFormat("<traced %R>", ((const Traced *)o)->function);
}

static PyMemberDef traced_members[] = {
    {"_category", T_OBJECT, offsetof(Traced, site.category), READONLY, NULL},
    {"_label", T_OBJECT, offsetof(Traced, site.name), READONLY, NULL},
    {"_args", T_OBJECT, offsetof(Traced, args), READONLY, NULL},
    {"_function", T_OBJECT, offsetof(Traced, function), 0,
     NULL}, /* written by unpickling, which makes the object first */
    {"__dictoffset__", T_PYSSIZET, offsetof(Traced, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Traced, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef traced_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot traced_slots[] = {
    {Py_tp_new, traced_new},
    {Py_tp_dealloc, traced_dealloc},
    {Py_tp_traverse, traced_traverse},
    {Py_tp_clear, traced_clear},
    {Py_tp_call, traced_call},
    {Py_tp_getattro, traced_getattr},
    {Py_tp_repr, traced_repr},
    {Py_tp_descr_get, traced_get},
    {Py_tp_members, traced_members},
    {Py_tp_getset, traced_getset},
    {Py_tp_doc, "A function whose calls are spans."},
    {0, NULL},
};
/* METHOD_DESCRIPTOR: x.f(a) calls f(x, a) without making a method. */
static PyType_Spec traced_spec = {"millrace.trace._trace.Traced", sizeof(Traced), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, traced_slots};

/* ---- Items: x[i] as a span with the index, for what is asked for every sample ---- */

typedef struct {
    PyObject_HEAD named_site site;
    PyObject *inner;
} Items;

static PyObject *items_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"inner", "category", "name", NULL};
    PyObject *inner, *category, *name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", words, &inner, &category, &name))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Items *t = (Items *)alloc(type, 0);
    if (!t)
        return NULL;
    t->inner = Py_NewRef(inner);
    if (site_init(&t->site, category, name) < 0) {
        Py_DECREF(t);
        return NULL;
    }
    return (PyObject *)t;
}

static int items_clear(PyObject *o)
{
    Items *t = (Items *)o;
    site_clear(&t->site);
    Py_CLEAR(t->inner);
    return 0;
}

static int items_traverse(PyObject *o, visitproc visit, void *arg)
{
    Py_VISIT(((Items *)o)->inner);
    Py_VISIT(Py_TYPE(o));
    return 0;
}

static void items_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    items_clear(o);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

static PyObject *items_get(PyObject *o, PyObject *index)
{
    Items *t = (Items *)o;
    uint64_t begin = now();
    PyObject *result = PyObject_GetItem(t->inner, index);
    int wide = 1;
    if (begin && result && PyLong_CheckExact(index)) { /* nearly always; short, because it comes with every sample */
        struct millrace_arg a = {.key = "sample", .type = MILLRACE_INT};
        a.value.i = PyLong_AsLongLongAndOverflow(index, &wide);
        if (!wide)
            millrace_trace_span(&t->site.site, begin, &a, 1);
    }
    if (begin && wide) {
        struct millrace_arg a = {.key = "sample"};
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        unsigned n = PyIndex_Check(index) && number_arg(index, &a);
        PyErr_Clear();
        millrace_trace_span(&t->site.site, begin, &a, n);
        PyErr_Restore(type, value, trace);
    }
    return result;
}

static PyMemberDef items_members[] = {
    {"_inner", T_OBJECT, offsetof(Items, inner), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot items_slots[] = {
    {Py_tp_new, items_new},
    {Py_tp_dealloc, items_dealloc},
    {Py_tp_traverse, items_traverse},
    {Py_tp_clear, items_clear},
    {Py_mp_subscript, items_get},
    {Py_tp_members, items_members},
    {Py_tp_doc, "Something whose items are spans."},
    {0, NULL},
};
static PyType_Spec items_spec = {"millrace.trace._trace.Items", sizeof(Items), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, items_slots};

/* ---- module ---- */

static PyObject *py_active(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyBool_FromLong(millrace_trace_active && millrace_trace_active());
}
static PyObject *py_start(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    if (millrace_trace_start)
        millrace_trace_start();
    Py_RETURN_NONE;
}
static PyObject *py_stop(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    if (millrace_trace_stop)
        millrace_trace_stop();
    Py_RETURN_NONE;
}
static PyObject *py_now(PyObject *m, PyObject *unused)
{
    (void)m, (void)unused;
    return PyLong_FromUnsignedLongLong(now());
}

static PyObject *py_span(PyObject *m, PyObject *args)
{
    PyObject *category, *name, *dict = NULL;
    unsigned long long begin, end = 0;
    named_site s = {.name = NULL};
    (void)m;
    if (!PyArg_ParseTuple(args, "OOK|OK", &category, &name, &begin, &dict, &end))
        return NULL;
    if (!begin)
        Py_RETURN_NONE;
    int rc = site_init(&s, category, name);
    if (rc == 0)
        rc = emit_until(&s, begin, end, dict == Py_None ? NULL : dict);
    site_clear(&s);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *py_instant(PyObject *m, PyObject *args)
{
    PyObject *category, *name, *dict = NULL, *hold;
    struct millrace_arg a[MILLRACE_ARGS_MAX];
    named_site s = {.name = NULL};
    unsigned n = 0;
    (void)m;
    if (!PyArg_ParseTuple(args, "OO|O", &category, &name, &dict))
        return NULL;
    if (!millrace_trace_instant)
        Py_RETURN_NONE;
    hold = PyList_New(0);
    int rc = hold ? fill_args(dict, a, &n, hold) : -1;
    if (rc == 0)
        rc = site_init(&s, category, name);
    if (rc == 0)
        millrace_trace_instant(&s.site, a, n);
    site_clear(&s);
    Py_XDECREF(hold);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *py_counter(PyObject *m, PyObject *args)
{
    PyObject *category, *name;
    named_site s = {.name = NULL};
    double value;
    (void)m;
    if (!PyArg_ParseTuple(args, "OOd", &category, &name, &value))
        return NULL;
    if (site_init(&s, category, name) < 0)
        return NULL;
    if (millrace_trace_counter)
        millrace_trace_counter(&s.site, value);
    site_clear(&s);
    Py_RETURN_NONE;
}

static PyObject *py_metadata(PyObject *m, PyObject *args, PyObject *kwargs)
{
    struct millrace_arg a[MILLRACE_ARGS_MAX];
    unsigned n = 0;
    PyObject *hold;
    (void)m;
    if (PyTuple_Size(args))
        return PyErr_Format(PyExc_TypeError, "metadata() takes keyword arguments only");
    if (!millrace_trace_metadata)
        Py_RETURN_NONE;
    hold = PyList_New(0);
    if (!hold || fill_args(kwargs, a, &n, hold) < 0) {
        Py_XDECREF(hold);
        return NULL;
    }
    millrace_trace_metadata(a, n);
    Py_DECREF(hold);
    Py_RETURN_NONE;
}

/* For the line at the end of `millrace trace`; no part of <millrace/trace.h>. */
static PyObject *py_note(PyObject *m, PyObject *text)
{
    void (*note)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "millrace_trace_python");
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    (void)m;
    if (bytes && note)
        note(bytes);
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* System calls that are not the program's: the tracer sees those of the C library, also of syscall(). */
static long quiet_call(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b, c);
#endif
}

/* A small file of /proc; false: it cannot be read. */
static int read_proc(const char *path, char *text, size_t cap)
{
    long fd = quiet_call(SYS_openat, AT_FDCWD, (long)(intptr_t)path, O_RDONLY | O_CLOEXEC);
    long n = fd >= 0 ? quiet_call(SYS_read, fd, (long)(intptr_t)text, (long)cap - 1) : 0;
    if (fd >= 0)
        quiet_call(SYS_close, fd, 0, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The second number of the thread's schedstat; 0 where the kernel does not count it. By system calls of its own: what
 * the tracer is asked is not what the program does. */
static PyObject *py_cpu_delay(PyObject *self, PyObject *nothing)
{
    char text[96];
    unsigned long long ran = 0, delay = 0;
    (void)self, (void)nothing;
    if (!read_proc("/proc/thread-self/schedstat", text, sizeof text) || sscanf(text, "%llu %llu", &ran, &delay) != 2)
        delay = 0;
    return PyLong_FromUnsignedLongLong(delay);
}

/* Bytes free where temporary files go; 0 where that is memory or part of a container's layers. */
static unsigned long long local_free(void)
{
    const char *folder = getenv("TMPDIR");
    struct statfs fs;
    if (statfs(folder && *folder ? folder : "/tmp", &fs) != 0 || fs.f_type == 0x01021994 || fs.f_type == 0x794c7630)
        return 0;
    return (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize;
}

static PyObject *py_machine(PyObject *self, PyObject *nothing)
{
    char text[4096], *at;
    unsigned long long total = 0, free = 0, cpus = 0;
    unsigned long mask[1024 / sizeof(unsigned long)] = {0};
    (void)self, (void)nothing;
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) > 0)
        for (size_t i = 0; i < sizeof mask / sizeof mask[0]; i++)
            cpus += (unsigned)__builtin_popcountl(mask[i]);
    if (read_proc("/proc/meminfo", text, sizeof text)) {
        if ((at = strstr(text, "MemTotal:")))
            sscanf(at, "MemTotal: %llu", &total);
        if ((at = strstr(text, "MemAvailable:")))
            sscanf(at, "MemAvailable: %llu", &free);
    }
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "cpus", cpus, "memory_bytes", total * 1024, "memory_free_bytes",
                         free * 1024, "local_free_bytes", local_free());
}

/* Page faults of this thread so far that had to wait for the disk. */
static PyObject *py_major_faults(PyObject *self, PyObject *nothing)
{
    struct rusage used;
    (void)self, (void)nothing;
    return PyLong_FromLong(getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_majflt : 0);
}

/* The same, and how often the thread slept of its own accord: between two equal numbers it was taken off its CPU only by
 * others. */
static PyObject *py_thread_usage(PyObject *self, PyObject *nothing)
{
    struct rusage used;
    (void)self, (void)nothing;
    if (getrusage(RUSAGE_THREAD, &used) != 0)
        return Py_BuildValue("(ll)", 0L, 0L);
    return Py_BuildValue("(ll)", used.ru_majflt, used.ru_nvcsw);
}

enum { THREADS_MOST = 64 };
/* An entry of getdents64. */
struct entry {
    uint64_t inode;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* CPU time of a process so far, in ns; 0 where it is gone. */
static unsigned long long cpu_of(unsigned pid)
{
    char path[64], text[512];
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    const char *behind = read_proc(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!behind || sscanf(behind, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        return 0;
    return (user + system) * (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}

/* Adds what a thread waited for a CPU, and the CPU time of the children that it started. */
static void add_thread(const char *name, unsigned long long *delays, unsigned long long *children)
{
    char path[64], text[512];
    unsigned long long ran, delay;
    snprintf(path, sizeof path, "/proc/self/task/%.16s/schedstat", name);
    if (read_proc(path, text, sizeof text) && sscanf(text, "%llu %llu", &ran, &delay) == 2)
        *delays += delay;
    snprintf(path, sizeof path, "/proc/self/task/%.16s/children", name);
    if (!read_proc(path, text, sizeof text))
        return;
    char *at = text, *end;
    for (unsigned long pid; (pid = strtoul(at, &end, 10)) && end != at; at = end)
        *children += cpu_of((unsigned)pid);
}

/* Of all threads of the process: their run-queue delay, and the CPU time of the children that live. (0, 0) where threads
 * are too many to ask each of them. */
static PyObject *py_others(PyObject *self, PyObject *nothing)
{
    _Alignas(8) char list[8192];
    unsigned long long delays = 0, children = 0;
    unsigned threads = 0;
    long n, fd = quiet_call(SYS_openat, AT_FDCWD, (long)(intptr_t) "/proc/self/task", O_RDONLY | O_DIRECTORY);
    (void)self, (void)nothing;
    while (fd >= 0 && (n = quiet_call(SYS_getdents64, fd, (long)(intptr_t)list, sizeof list)) > 0)
        for (long at = 0; at < n; at += ((struct entry *)(void *)(list + at))->size) {
            const char *name = ((struct entry *)(void *)(list + at))->name;
            if (name[0] != '.' && ++threads <= THREADS_MOST)
                add_thread(name, &delays, &children);
        }
    if (fd >= 0)
        quiet_call(SYS_close, fd, 0, 0);
    return threads <= THREADS_MOST ? Py_BuildValue("(KK)", delays, children) : Py_BuildValue("(ii)", 0, 0);
}

/* CPU time of the children that have ended and been waited for. */
static PyObject *py_children_cpu(PyObject *self, PyObject *nothing)
{
    struct rusage used;
    (void)self, (void)nothing;
    if (getrusage(RUSAGE_CHILDREN, &used) != 0)
        return PyLong_FromLong(0);
    return PyLong_FromLongLong((used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000ll +
                               (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000ll);
}

/* ---- CPU time of the process at any moment of the last seconds ----
 *
 * A wait that is over before anybody in Python hears of it (compiled_waits.py) wants to know what the process computed
 * meanwhile. A thread looks every 2 ms; the reader has the interpreter's lock, the writer has not, so that a sample is
 * taken for what it is only if its number is the same before and after reading it. */
enum { SAMPLES = 4096, SAMPLE_NS = 2000000 };
static struct cpu_sample {
    _Atomic uint64_t number, at, cpu; /* number: + 1 once it is written; 0 while it is being written */
} samples[SAMPLES];
static _Atomic uint64_t sampled;
static pid_t sampler; /* the process that has the thread */

static void *sample_cpu(void *unused)
{
    (void)unused;
    for (;;) {
        struct timespec cpu, pause = {.tv_nsec = SAMPLE_NS};
        uint64_t at = now(), n = atomic_load(&sampled);
        struct cpu_sample *s = &samples[n % SAMPLES];
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        if (at) {
            atomic_store(&s->number, 0);
            atomic_store(&s->at, at);
            atomic_store(&s->cpu, (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
            atomic_store(&s->number, n + 1);
            atomic_store(&sampled, n + 1);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static PyObject *py_cpu_watch(PyObject *self, PyObject *nothing)
{
    pthread_t thread;
    sigset_t all, before;
    (void)self, (void)nothing;
    if (sampler == getpid())
        Py_RETURN_NONE;
    sampler = getpid(); /* a forked child has no such thread */
    atomic_store(&sampled, 0);
    sigfillset(&all); /* the program's signals are for its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, sample_cpu, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    Py_RETURN_NONE;
}

/* Sample n, if it is still there. */
static int sample_at(uint64_t n, uint64_t *at, uint64_t *cpu)
{
    struct cpu_sample *s = &samples[n % SAMPLES];
    if (atomic_load(&s->number) != n + 1)
        return 0;
    *at = atomic_load(&s->at);
    *cpu = atomic_load(&s->cpu);
    return atomic_load(&s->number) == n + 1;
}

static PyObject *py_cpu_at(PyObject *self, PyObject *when)
{
    uint64_t want = PyLong_AsUnsignedLongLong(when), n = atomic_load(&sampled), at, cpu, later = 0, later_cpu = 0;
    (void)self;
    if (PyErr_Occurred())
        return NULL;
    for (uint64_t left = SAMPLES - 1; n-- > 0 && left-- > 0 && sample_at(n, &at, &cpu); later = at, later_cpu = cpu) {
        if (at > want)
            continue;
        if (later > at) /* between two samples */
            cpu += (uint64_t)((double)(want - at) / (double)(later - at) * (double)(later_cpu - cpu));
        return PyLong_FromUnsignedLongLong(cpu);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"cpu_watch", py_cpu_watch, METH_NOARGS, "From now on cpu_at() can tell."},
    {"cpu_at", py_cpu_at, METH_O,
     "CPU time of the process at a time stamp of now(), in ns; None if nobody looked then."},
    {"cpu_delay", py_cpu_delay, METH_NOARGS, "Nanoseconds that this thread could have run and had no CPU, so far."},
    {"major_faults", py_major_faults, METH_NOARGS, "Page faults of this thread that had to wait for the disk, so far."},
    {"thread_usage", py_thread_usage, METH_NOARGS, "Such faults of this thread, and how often it slept, so far."},
    {"others", py_others, METH_NOARGS, "As cpu_delay, of all threads; CPU time of living children; (0, 0): too many."},
    {"children_cpu", py_children_cpu, METH_NOARGS, "CPU time of children that have ended, in ns."},
    {"machine", py_machine, METH_NOARGS, "CPUs and memory that this process may use, as a dict."},
    {"note", py_note, METH_O, "Tells `millrace trace` what was instrumented."},
    {"active", py_active, METH_NOARGS, "True while the tracer records."},
    {"start", py_start, METH_NOARGS, "Switches recording on."},
    {"stop", py_stop, METH_NOARGS, "Switches recording off."},
    {"now", py_now, METH_NOARGS, "A time stamp for span(); 0 without the tracer."},
    {"span", py_span, METH_VARARGS,
     "span(category, name, begin, args=None, end=0): a span from `begin` to `end`, or to now."},
    {"instant", py_instant, METH_VARARGS, "instant(category, name, args=None)."},
    {"counter", py_counter, METH_VARARGS, "counter(category, name, value)."},
    {"metadata", (PyCFunction)(void (*)(void))py_metadata, METH_VARARGS | METH_KEYWORDS,
     "metadata(**facts): facts about this process."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_trace", "The fast part of millrace.trace.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__trace(void);
PyMODINIT_FUNC PyInit__trace(void)
{
    PyObject *m = PyModule_Create(&module), *region = PyType_FromSpec(&region_spec),
             *traced = PyType_FromSpec(&traced_spec);
    PyObject *items = PyType_FromSpec(&items_spec);
    PyObject *types = PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    if (!m || !method_type || !region || !traced || PyModule_AddObject(m, "Region", region) < 0 ||
        PyModule_AddObject(m, "Traced", traced) < 0 || !items || PyModule_AddObject(m, "Items", items) < 0 ||
        PyModule_AddIntConstant(m, "present", millrace_trace_now != NULL) < 0)
        return NULL;
    return m;
}
