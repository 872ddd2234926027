/* Token corpora and mixtures of millrace.tokens and millrace.mixtures: thin skins over <millrace/tokens.h> and
 * <millrace/mixture.h>. A Tokens may be read by several threads at once, without the interpreter's lock; a Mixture is used
 * with it. Sample numbers come as bytes of unsigned 64-bit integers. */
#include "py_core.h"

#include <errno.h>
#include <millrace/mixture.h>
#include <millrace/tokens.h>
#include <stdlib.h>
#include <string.h>

static struct core_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static void release_self(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* An array of rows x columns (columns 0: one dimension) over a block, which becomes its own. */
static PyObject *take_block(struct core_state *state, void *block, const char *dtype, uint64_t rows, uint64_t columns)
{
    struct mr_shape shape = {.n_dims = columns ? 1 : 0};
    uint64_t item = (uint64_t)(dtype[1] - '0');
    strncpy(shape.dtype, dtype, sizeof shape.dtype - 1);
    shape.dims[0] = columns;
    struct owner *owner = block ? owner_create(NULL, block) : NULL;
    if (!owner) {
        free(block);
        return PyErr_NoMemory();
    }
    PyObject *a = array_create(state, owner, block, &shape, (int64_t)rows, item * (columns ? columns : 1), 1);
    owner_drop(owner);
    return a;
}

/* ---- Tokens ---- */

struct tokens {
    PyObject_HEAD struct mr_tokens *t;
    enum mr_tokens_cut cut;
    uint64_t length, row;
};

/* The strings of a list as file names; *hold keeps their bytes. */
static const char **paths_of(PyObject *list, PyObject **hold, uint32_t *n)
{
    Py_ssize_t count = PyList_Size(list);
    const char **out = count >= 0 ? calloc((size_t)count + 1, sizeof(*out)) : NULL;
    *hold = out ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; *hold && i < count; i++) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(PyList_GetItem(list, i), &bytes) || PyList_Append(*hold, bytes) < 0) {
            Py_XDECREF(bytes);
            free(out);
            return NULL;
        }
        out[i] = PyBytes_AsString(bytes); /* *hold has a reference */
        Py_DECREF(bytes);
    }
    if (!out && !PyErr_Occurred())
        PyErr_NoMemory();
    *n = (uint32_t)(count < 0 ? 0 : count);
    return *hold ? out : NULL;
}

static PyObject *tokens_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"paths",  "cut",   "length", "step",  "extra", "window", "drop_tails",
                            "format", "dtype", "column", "store", "eos",   NULL};
    struct mr_tokens_params p = {0};
    PyObject *list, *hold = NULL, *eos = Py_None;
    unsigned long long length = 0, step = 0;
    unsigned extra = 0, window = 0;
    int drop = 0, cut, rc;
    struct mr_error err;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iKKIIpzzzzO:Tokens", names, &PyList_Type, &list, &cut, &length,
                                     &step, &extra, &window, &drop, &p.format, &p.dtype, &p.column, &p.store, &eos))
        return NULL;
    p.cut = (enum mr_tokens_cut)cut;
    p.length = length;
    p.step = step;
    p.extra = extra;
    p.window = window;
    p.drop_tails = drop;
    p.has_eos = eos != Py_None;
    p.eos = p.has_eos ? PyLong_AsLongLong(eos) : 0;
    if (PyErr_Occurred())
        return NULL;
    const char **paths = paths_of(list, &hold, &p.n_paths);
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct tokens *self = paths ? (struct tokens *)alloc(type, 0) : NULL;
    if (self) {
        struct mr_tokens *t = NULL;
        p.paths = paths;
        Py_BEGIN_ALLOW_THREADS
        rc = mr_tokens_open(&p, &t, &err);
        Py_END_ALLOW_THREADS
        self->t = t;
        self->cut = p.cut;
        self->length = length;
        self->row = length + extra;
        if (rc < 0) {
            raise_error(state_of((PyObject *)self), &err);
            Py_DECREF(self);
            self = NULL;
        }
    }
    free(paths);
    Py_XDECREF(hold);
    return (PyObject *)self;
}

static void tokens_dealloc(PyObject *self)
{
    mr_tokens_free(((struct tokens *)self)->t);
    release_self(self);
}

static PyObject *tokens_info(PyObject *self, PyObject *none)
{
    struct mr_tokens_info i;
    (void)none;
    mr_tokens_get_info(((struct tokens *)self)->t, &i);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:s,s:s}", "samples", (unsigned long long)i.samples, "files",
                         (unsigned long long)i.files, "documents", (unsigned long long)i.documents, "tokens",
                         (unsigned long long)i.tokens, "delivered", (unsigned long long)i.delivered, "windows",
                         (unsigned long long)i.windows, "format", i.format, "dtype", mr_dtype_numpy(i.dtype));
}

/* The numbers in an argument of bytes: n of them, copied to be aligned; NULL with an exception. */
static uint64_t *take_ids(PyObject *bytes, size_t *n)
{
    char *text;
    Py_ssize_t len;
    if (PyBytes_AsStringAndSize(bytes, &text, &len) < 0)
        return NULL;
    uint64_t *ids = malloc((size_t)len + 8);
    if (!ids) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(ids, text, (size_t)len);
    *n = (size_t)len / 8;
    return ids;
}

struct read_call {
    struct mr_token_rows rows;
    uint64_t *lengths, total; /* DOCUMENTS */
};

static int read_rows(const struct tokens *self, const uint64_t *ids, size_t n, struct read_call *c, int more,
                     struct mr_error *err)
{
    uint64_t cells = n * (self->cut == MR_TOKENS_PACKED ? self->length : self->row);
    bool packed = self->cut == MR_TOKENS_PACKED && more;
    if (self->cut == MR_TOKENS_DOCUMENTS) {
        c->lengths = malloc((n + 1) * sizeof(*c->lengths));
        int rc = c->lengths ? mr_tokens_lengths(self->t, ids, n, c->lengths, err) : -ENOMEM;
        for (size_t i = 0; rc >= 0 && i < n; i++)
            c->total += c->lengths[i];
        if (rc < 0)
            return c->lengths ? rc : mr_error_set(err, -ENOMEM, "cannot hold %zu documents", n);
        cells = c->total;
    }
    c->rows.tokens = malloc(cells * 8 + 8);
    if (packed) {
        c->rows.targets = malloc(cells * 8 + 8);
        c->rows.segments = malloc(cells * 4 + 8);
        c->rows.positions = malloc(cells * 4 + 8);
        c->rows.borders = malloc((cells + n + 1) * 4);
    }
    if (!c->rows.tokens ||
        (packed && (!c->rows.targets || !c->rows.segments || !c->rows.positions || !c->rows.borders)))
        return mr_error_set(err, -ENOMEM, "cannot hold %zu samples of tokens", n);
    return mr_tokens_read(self->t, ids, n, &c->rows, err);
}

static void call_free(struct read_call *c)
{
    free(c->rows.tokens);
    free(c->rows.targets);
    free(c->rows.segments);
    free(c->rows.positions);
    free(c->rows.borders);
    free(c->lengths);
}

static PyObject *tokens_read(PyObject *object, PyObject *args)
{
    struct tokens *self = (struct tokens *)object;
    struct core_state *state = state_of(object);
    struct read_call c = {0};
    struct mr_error err;
    PyObject *bytes;
    size_t n = 0;
    int rc, more = 1;
    long long pad = 0;
    if (!PyArg_ParseTuple(args, "S|Lp:read", &bytes, &pad, &more))
        return NULL;
    uint64_t *ids = take_ids(bytes, &n);
    if (!ids)
        return NULL;
    c.rows.pad = pad;
    Py_BEGIN_ALLOW_THREADS
    rc = read_rows(self, ids, n, &c, more, &err);
    Py_END_ALLOW_THREADS
    free(ids);
    if (rc < 0) {
        call_free(&c);
        return raise_error(state, &err);
    }
    if (self->cut == MR_TOKENS_FIXED)
        return take_block(state, c.rows.tokens, "i8", n, self->row);
    if (self->cut == MR_TOKENS_DOCUMENTS)
        return Py_BuildValue("NN", take_block(state, c.rows.tokens, "i8", c.total, 0),
                             take_block(state, c.lengths, "u8", n, 0));
    if (!more)
        return take_block(state, c.rows.tokens, "i8", n, self->length);
    return Py_BuildValue("NNNNN", take_block(state, c.rows.tokens, "i8", n, self->length),
                         take_block(state, c.rows.targets, "i8", n, self->length),
                         take_block(state, c.rows.segments, "i4", n, self->length),
                         take_block(state, c.rows.positions, "i4", n, self->length),
                         take_block(state, c.rows.borders, "i4", c.rows.n_borders, 0));
}

static PyObject *tokens_place(PyObject *self, PyObject *args)
{
    unsigned long long id;
    struct mr_token_place p;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "K:place", &id))
        return NULL;
    if (mr_tokens_place(((struct tokens *)self)->t, id, &p, &err) < 0)
        return raise_error(state_of(self), &err);
    return Py_BuildValue("IKK", p.file, (unsigned long long)p.window, (unsigned long long)p.position);
}

static PyMethodDef tokens_methods[] = {
    {"info", tokens_info, METH_NOARGS, "info(): samples, documents, tokens and so on."},
    {"read", tokens_read, METH_VARARGS,
     "read(ids, pad=0, more=True): fixed: an array of rows; documents: (tokens, lengths); packed: (tokens, targets, "
     "segments, positions, borders), or tokens alone."},
    {"place", tokens_place, METH_VARARGS, "place(id): (file, window, position in it)."},
    {NULL},
};
static PyType_Slot tokens_slots[] = {{Py_tp_new, tokens_new},
                                     {Py_tp_dealloc, tokens_dealloc},
                                     {Py_tp_methods, tokens_methods},
                                     {Py_tp_doc, "A token corpus; see millrace.tokens."},
                                     {0, NULL}};
PyType_Spec tokens_spec = {.name = "millrace._core.Tokens",
                           .basicsize = sizeof(struct tokens),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = tokens_slots};

/* ---- Mixture ---- */

struct mixture {
    PyObject_HEAD struct mr_mixture *m;
    uint32_t nodes;
};

static int take_node(PyObject *row, struct mr_mixture_node *n)
{
    unsigned long long samples;
    PyObject *seed;
    int by_tokens, sequential;
    if (!PyArg_ParseTuple(row, "sIdKdppO:node", &n->name, &n->parent, &n->weight, &samples, &n->tokens, &by_tokens,
                          &sequential, &seed))
        return -1;
    n->samples = samples;
    n->by_tokens = by_tokens;
    n->sequential = sequential;
    n->has_seed = seed != Py_None;
    if (n->has_seed)
        n->seed = PyLong_AsUnsignedLongLongMask(seed);
    return PyErr_Occurred() ? -1 : 0;
}

/* (node, from, [weights]); the weights are malloc'ed. */
static int take_change(PyObject *row, struct mr_mixture_change *c)
{
    unsigned long long from;
    PyObject *list;
    if (!PyArg_ParseTuple(row, "IKO!:change", &c->node, &from, &PyList_Type, &list))
        return -1;
    Py_ssize_t n = PyList_Size(list);
    double *weights = malloc(((size_t)n + 1) * sizeof(*weights));
    if (!weights) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        weights[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    c->from = from;
    c->weights = weights;
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *mixture_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"nodes", "changes", "seed", NULL};
    PyObject *rows, *changes, *seed;
    struct mr_error err;
    struct mixture *self = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O:Mixture", names, &PyList_Type, &rows, &PyList_Type, &changes,
                                     &seed))
        return NULL;
    Py_ssize_t n = PyList_Size(rows), k = PyList_Size(changes);
    struct mr_mixture_node *node = calloc((size_t)n + 1, sizeof(*node));
    struct mr_mixture_change *change = calloc((size_t)k + 1, sizeof(*change));
    int rc = node && change ? 0 : -1;
    if (rc < 0)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; rc >= 0 && i < n; i++)
        rc = take_node(PyList_GetItem(rows, i), &node[i]);
    for (Py_ssize_t i = 0; rc >= 0 && i < k; i++)
        rc = take_change(PyList_GetItem(changes, i), &change[i]);
    struct mr_mixture_params p = {.seed = PyLong_AsUnsignedLongLongMask(seed),
                                  .nodes = node,
                                  .n_nodes = (uint32_t)n,
                                  .changes = change,
                                  .n_changes = (uint32_t)k};
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    if (rc >= 0 && !PyErr_Occurred())
        self = (struct mixture *)alloc(type, 0);
    if (self && mr_mixture_create(&p, &self->m, &err) < 0) {
        raise_error(state_of((PyObject *)self), &err);
        Py_DECREF(self);
        self = NULL;
    }
    if (self)
        self->nodes = p.n_nodes;
    for (Py_ssize_t i = 0; change && i < k; i++)
        free((void *)(uintptr_t)change[i].weights);
    free(node);
    free(change);
    return (PyObject *)self;
}

static void mixture_dealloc(PyObject *self)
{
    mr_mixture_free(((struct mixture *)self)->m);
    release_self(self);
}

/* Columns of the items: node, sample, epoch, number. */
static PyObject *mixture_items(PyObject *object, PyObject *bytes)
{
    struct mixture *self = (struct mixture *)object;
    struct core_state *state = state_of(object);
    struct mr_error err;
    size_t n = 0;
    uint64_t *k = PyBytes_Check(bytes) ? take_ids(bytes, &n) : NULL;
    uint64_t *column = k ? malloc((4 * n + 1) * sizeof(*column)) : NULL;
    if (!column) {
        free(k);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "items() takes bytes");
    }
    for (size_t i = 0; i < n; i++) {
        struct mr_mixture_item item;
        if (mr_mixture_get(self->m, k[i], 1, &item, 1, &err) < 0) {
            free(k);
            free(column);
            return raise_error(state, &err);
        }
        column[i] = item.node;
        column[n + i] = item.sample;
        column[2 * n + i] = item.epoch;
        column[3 * n + i] = item.number;
    }
    free(k);
    if (n)
        return take_block(state, column, "u8", 4, n);
    free(column);
    return PyErr_Format(PyExc_ValueError, "items() needs at least one item");
}

static PyObject *mixture_shares(PyObject *object, PyObject *args)
{
    struct mixture *self = (struct mixture *)object;
    struct mr_error err;
    unsigned long long k;
    if (!PyArg_ParseTuple(args, "K:shares", &k))
        return NULL;
    struct mr_mixture_share *share = malloc(self->nodes * sizeof(*share));
    if (!share)
        return PyErr_NoMemory();
    PyObject *out = NULL;
    if (mr_mixture_shares(self->m, k, share, &err) < 0)
        raise_error(state_of(object), &err);
    else
        out = PyList_New(0);
    for (uint32_t i = 0; out && i < self->nodes; i++) {
        PyObject *row =
            Py_BuildValue("Kddd", (unsigned long long)share[i].given, share[i].asked, share[i].weight, share[i].epochs);
        if (!row || PyList_Append(out, row) < 0)
            Py_CLEAR(out);
        Py_XDECREF(row);
    }
    free(share);
    return out;
}

static PyObject *mixture_save(PyObject *object, PyObject *args)
{
    unsigned long long k;
    char *text;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "K:save", &k))
        return NULL;
    if (mr_mixture_save(((struct mixture *)object)->m, k, &text, &err) < 0)
        return raise_error(state_of(object), &err);
    PyObject *out = PyUnicode_FromString(text);
    free(text);
    return out;
}

static PyObject *mixture_restore(PyObject *object, PyObject *args)
{
    const char *text;
    uint64_t k;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "s:restore", &text))
        return NULL;
    if (mr_mixture_restore(((struct mixture *)object)->m, text, &k, &err) < 0)
        return raise_error(state_of(object), &err);
    return PyLong_FromUnsignedLongLong(k);
}

static PyObject *mixture_version(PyObject *object, PyObject *args)
{
    unsigned node;
    unsigned long long k;
    if (!PyArg_ParseTuple(args, "IK:weights_version", &node, &k))
        return NULL;
    return PyLong_FromUnsignedLong(mr_mixture_weights_version(((struct mixture *)object)->m, node, k));
}

static PyObject *mixture_sample(PyObject *object, PyObject *args)
{
    unsigned node;
    unsigned long long number;
    struct mr_mixture_item item;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "IK:sample", &node, &number))
        return NULL;
    if (mr_mixture_sample(((struct mixture *)object)->m, node, number, &item, &err) < 0)
        return raise_error(state_of(object), &err);
    return PyLong_FromUnsignedLongLong(item.sample);
}

static PyMethodDef mixture_methods[] = {
    {"sample", mixture_sample, METH_VARARGS, "sample(node, number): the sample that is a source's item."},
    {"items", mixture_items, METH_O, "items(ks): an array of 4 rows: node, sample, epoch, number of each item."},
    {"shares", mixture_shares, METH_VARARGS, "shares(k): (given, asked, weight, epochs) of each node before item k."},
    {"save", mixture_save, METH_VARARGS, "save(k): the state before item k, as text."},
    {"restore", mixture_restore, METH_VARARGS, "restore(text): continues there; returns k."},
    {"weights_version", mixture_version, METH_VARARGS, "weights_version(node, k): 0 before the first change."},
    {NULL},
};
static PyType_Slot mixture_slots[] = {{Py_tp_new, mixture_new},
                                      {Py_tp_dealloc, mixture_dealloc},
                                      {Py_tp_methods, mixture_methods},
                                      {Py_tp_doc, "The order of a mixture; see millrace.mixtures."},
                                      {0, NULL}};
PyType_Spec mixture_spec = {.name = "millrace._core.Mixture",
                            .basicsize = sizeof(struct mixture),
                            .flags = Py_TPFLAGS_DEFAULT,
                            .slots = mixture_slots};
