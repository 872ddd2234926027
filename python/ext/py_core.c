/* The module millrace._core: its types, exceptions and functions. See py_core.h. */
#include "py_core.h"

#include <errno.h>
#include <millrace/version.h>
#include <stdlib.h>
#include <string.h>

/* The class for a code: Python's own where there is one. DataError is an OSError, as Pillow's for broken pictures is.
 */
static PyObject *class_of(struct core_state *state, int code)
{
    switch (code) {
    case MR_E_USAGE:
    case MR_E_CONFIG:
    case MR_E_LIMIT: return PyExc_ValueError;
    case MR_E_FORMAT:
    case MR_E_CORRUPT:
    case MR_E_CHANGED: return state->data_error;
    case MR_E_UNSUPPORTED: return PyExc_NotImplementedError;
    case MR_E_TIMEOUT: return PyExc_TimeoutError;
    case MR_E_INCOMPLETE: return PyExc_FileNotFoundError;
    case -ENOMEM: return PyExc_MemoryError;
    default: return code > -4096 ? PyExc_OSError : PyExc_RuntimeError;
    }
}

PyObject *raise_error(struct core_state *state, const struct mr_error *err)
{
    char text[sizeof(*err) + 64];
    snprintf(text, sizeof text, "%s%s%s%s%s", err->message, err->context[0] ? "\n  " : "", err->context,
             err->hint[0] ? "\n  hint: " : "", err->hint);
    PyObject *class = class_of(state, err->code);
    if (class == PyExc_OSError) { /* with its number it becomes FileNotFoundError and the like */
        PyObject *args = Py_BuildValue("(is)", -err->code, text);
        if (args)
            PyErr_SetObject(class, args);
        Py_XDECREF(args);
    } else {
        PyErr_SetString(class, text);
    }
    return NULL;
}

/* The strings of a list, borrowed from it as file names: *hold keeps their bytes. */
static const char **names_of(PyObject *list, PyObject **hold, uint64_t *n)
{
    Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return NULL;
    const char **out = malloc(((size_t)count + 1) * sizeof(*out));
    *hold = PyList_New(0);
    for (Py_ssize_t i = 0; out && *hold && i < count; i++) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(PyList_GetItem(list, i), &bytes) || PyList_Append(*hold, bytes) < 0) {
            Py_XDECREF(bytes);
            free(out);
            return NULL;
        }
        out[i] = PyBytes_AsString(bytes); /* *hold has a reference */
        Py_DECREF(bytes);
    }
    if (!out)
        PyErr_NoMemory();
    *n = (uint64_t)count;
    return out;
}

static PyObject *index_files(PyObject *module, PyObject *args)
{
    struct mr_file_list list = {0};
    PyObject *root = NULL, *names, *manifest = NULL, *hold = NULL, *result = NULL;
    const char *labels;
    Py_ssize_t labels_len;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "O&Oz#sO&|I:index_files", PyUnicode_FSConverter, &root, &names, &labels, &labels_len,
                          &list.format, PyUnicode_FSConverter, &manifest, &list.threads)) {
        Py_XDECREF(root);
        Py_XDECREF(manifest);
        return NULL;
    }
    const char **text = names_of(names, &hold, &list.n);
    if (text && labels && (uint64_t)labels_len != 8 * list.n) {
        PyErr_SetString(PyExc_ValueError, "as many labels as files are needed");
    } else if (text) {
        int rc;
        list.root = PyBytes_AsString(root);
        list.names = text;
        list.labels = (const int64_t *)(const void *)labels;
        const char *path = PyBytes_AsString(manifest);
        Py_BEGIN_ALLOW_THREADS
        rc = mr_dataset_index_files(&list, path, &err);
        Py_END_ALLOW_THREADS
        result = rc ? raise_error(PyModule_GetState(module), &err) : Py_NewRef(Py_None);
    }
    free(text);
    Py_XDECREF(hold);
    Py_DECREF(root);
    Py_DECREF(manifest);
    return result;
}

static PyObject *index_records(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *manifest = NULL;
    unsigned long long skip, bytes, step;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "O&KKKO&:index_records", PyUnicode_FSConverter, &path, &skip, &bytes, &step,
                          PyUnicode_FSConverter, &manifest)) {
        Py_XDECREF(path);
        Py_XDECREF(manifest);
        return NULL;
    }
    const char *from = PyBytes_AsString(path), *to = PyBytes_AsString(manifest);
    Py_BEGIN_ALLOW_THREADS
    rc = mr_dataset_index_records(from, skip, bytes, step, to, &err);
    Py_END_ALLOW_THREADS
    PyObject *result = rc ? raise_error(PyModule_GetState(module), &err) : Py_NewRef(Py_None);
    Py_DECREF(path);
    Py_DECREF(manifest);
    return result;
}

static int add_types(PyObject *module, struct core_state *s)
{
    const struct {
        PyTypeObject **type;
        PyType_Spec *spec;
    } types[] = {{&s->loader, &loader_spec},  {&s->batch, &batch_spec},   {&s->array, &array_spec},
                 {&s->saver, &saver_spec},    {&s->stored, &stored_spec}, {&s->tokens, &tokens_spec},
                 {&s->mixture, &mixture_spec}};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        *types[i].type = (PyTypeObject *)PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        if (!*types[i].type || PyModule_AddType(module, *types[i].type) < 0)
            return -1;
    }
    return 0;
}

static int exec(PyObject *module)
{
    struct core_state *s = PyModule_GetState(module);
    s->data_error = PyErr_NewExceptionWithDoc(
        "millrace.DataError", "A file of the data set is damaged, truncated, changed or not what it is called.",
        PyExc_OSError, NULL);
    if (!s->data_error || PyModule_AddObjectRef(module, "DataError", s->data_error) < 0 || add_types(module, s) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", MR_VERSION) < 0 ||
                   PyModule_AddIntConstant(module, "DENSE", MR_LOADER_DENSE) < 0 ||
                   PyModule_AddIntConstant(module, "SKIP_BAD", MR_LOADER_SKIP_BAD) < 0 ||
                   PyModule_AddIntConstant(module, "VERIFY", MR_LOADER_VERIFY) < 0 ||
                   PyModule_AddIntConstant(module, "IN_MEMORY", MR_LOADER_IN_MEMORY) < 0 ||
                   PyModule_AddIntConstant(module, "RAW", MR_LOADER_RAW) < 0
               ? -1
               : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    struct core_state *s = PyModule_GetState(module);
    Py_VISIT(s->loader);
    Py_VISIT(s->batch);
    Py_VISIT(s->array);
    Py_VISIT(s->saver);
    Py_VISIT(s->stored);
    Py_VISIT(s->tokens);
    Py_VISIT(s->mixture);
    Py_VISIT(s->data_error);
    return 0;
}

static int clear(PyObject *module)
{
    struct core_state *s = PyModule_GetState(module);
    Py_CLEAR(s->loader);
    Py_CLEAR(s->batch);
    Py_CLEAR(s->array);
    Py_CLEAR(s->saver);
    Py_CLEAR(s->stored);
    Py_CLEAR(s->tokens);
    Py_CLEAR(s->mixture);
    Py_CLEAR(s->data_error);
    return 0;
}

static void release(void *module)
{
    clear(module);
}

static PyMethodDef functions[] = {
    {"index_files", index_files, METH_VARARGS,
     "index_files(root, names, labels, format, manifest, threads=0): writes a manifest of pictures, one per file."},
    {"nearest", core_nearest, METH_VARARGS,
     "nearest(folder, tiers, job, rank, world, timeout_s): (newest step all ranks can load, number of the nearest "
     "place that has it)."},
    {"schema", core_schema, METH_VARARGS,
     "schema(dataset, store=None): the fields of its samples, as dicts of name, dtype, dims, role and storage."},
    {"index_records", index_records, METH_VARARGS,
     "index_records(path, skip_bytes, record_bytes, step_bytes, manifest): writes a manifest of the records of one "
     "plain "
     "file."},
    {NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec}, {0, NULL}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "millrace._core",
                                        .m_doc = "What the front ends are made of.",
                                        .m_size = sizeof(struct core_state),
                                        .m_methods = functions,
                                        .m_slots = slots,
                                        .m_traverse = traverse,
                                        .m_clear = clear,
                                        .m_free = release};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
