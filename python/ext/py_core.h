/* The Python extension millrace._core: a thin skin over <millrace/loader.h> and <millrace/dataset.h>. Limited API of
 * Python 3.10, so one file serves every later version; nothing of the tree but the public headers.
 *
 * Who owns what. A Loader owns an mr_loader. A batch that next() returns is taken out of the loader at once: its rows
 * belong to a `struct owner`, which Arrays and the DLPack tensors made of them share and which may outlive the Loader.
 *
 * Invariants
 * - P1 An owner is freed by its last user, in whatever thread that is, with or without the interpreter's lock: freeing
 * it touches no Python object.
 * - P2 Every call into the loader holds the Loader's mutex and not the interpreter's lock; the interpreter's lock is
 * never waited for with the mutex held.
 * - P3 After a fork the child has none of the loader's threads: its Loader refuses to work and is not closed there. */
#ifndef MR_PYTHON_PY_CORE_H
#define MR_PYTHON_PY_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <millrace/loader.h>
#include <millrace/preprocess.h>
#include <stdatomic.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden)

struct core_state {
    PyTypeObject *loader, *batch, *array, *saver, *stored, *tokens, *mixture;
    PyObject *data_error;
};

/* Memory that arrays share (P1): a batch's slab, or a block of malloc. */
struct owner {
    atomic_uint users;
    struct mr_slab *slab;
    void *block;
};
struct owner *owner_create(struct mr_slab *slab, void *block); /* one user; NULL: no memory, and nothing was taken */
void owner_drop(struct owner *o);                              /* accepts NULL */

/* A new Array over memory of `owner`, of which it becomes a user. n_dims + (rows ? 1 : 0) axes: `rows` rows,
 * stride_bytes apart, of `shape`. */
PyObject *array_create(struct core_state *state, struct owner *owner, void *data, const struct mr_shape *shape,
                       int64_t rows, uint64_t stride_bytes, int has_rows);
/* A new Array of n 8-byte integers that are copied. */
PyObject *array_of_integers(struct core_state *state, const char *dtype, const void *from, uint32_t n);

/* Raises the Python exception for an error; returns NULL. */
PyObject *raise_error(struct core_state *state, const struct mr_error *err);

/* A dict of numbers by the names of struct mr_preprocess_params. 0, or -1 with an exception. */
int take_preprocess(PyObject *dict, uint64_t seed, struct mr_preprocess_params *p);
/* What becomes of n pictures of these sizes (height, width): bytes of PLAN_FIELDS int32 each. */
#define PLAN_FIELDS 18
PyObject *make_plans(struct core_state *state, const struct mr_preprocess *x, uint64_t epoch, const uint64_t *ids,
                     const uint32_t *sizes, Py_ssize_t n);

/* One field of a batch that was taken out of the loader. */
struct taken_field {
    char name[MR_FIELD_NAME_MAX];
    struct mr_shape shape, *shapes;
    void *data; /* NULL: rows are of their own */
    void **row;
    uint64_t row_bytes, *offsets, *lengths;
    uint32_t n_lengths;
};

/* A batch taken out of the loader. */
struct taken {
    uint32_t n;
    uint64_t epoch, index, row_bytes;
    uint64_t *ids;
    int64_t *labels;
    uint64_t *stored;        /* bytes of rows that are as stored, 0: others */
    void **row;              /* where each row lies; all of them in the owner's memory */
    struct mr_shape shape;   /* of every row, if regular */
    struct mr_shape *shapes; /* else */
    struct owner *owner;
    bool regular, labelled, fresh;
    struct taken_field *field; /* instead of rows, where fields were asked for */
    uint32_t n_fields;
};
/* Takes the batch's rows out of the loader (with `fresh`: in exchange for that memory) and releases it. No Python.
 * Returns 0, -ENOMEM, or -EINVAL: rows of differing sizes, which cannot be exchanged. */
int batch_take(struct mr_loader *l, struct mr_batch *b, void *fresh, struct taken *out);
/* The Python object for it; frees `t` in any case. */
PyObject *batch_create(struct core_state *state, struct taken *t);
void taken_free(struct taken *t);

/* Fields: py_fields.c. Names and uses of a loader's parameters; both sequences of str, or None. */
struct fields_wanted {
    const char **name;
    enum mr_field_use *use;
};
int take_fields(PyObject *names, PyObject *uses, const char *ragged, struct fields_wanted *w,
                struct mr_loader_params *p);
void fields_wanted_free(struct fields_wanted *w);
int fields_take(struct mr_loader *l, struct mr_batch *b, struct taken *t);
void fields_free(struct taken *t);
/* A list of (name, Array or list of them, lengths or None, offsets or None). */
PyObject *fields_object(struct core_state *state, const struct taken *t);
PyObject *fields_stats(struct mr_loader *l);
PyObject *core_schema(PyObject *module, PyObject *args);

/* millrace.checkpoint's: py_state.c */
PyObject *core_nearest(PyObject *module, PyObject *args);

extern PyType_Spec loader_spec, batch_spec, array_spec, saver_spec, stored_spec, tokens_spec, mixture_spec;

#pragma GCC visibility pop
#endif
