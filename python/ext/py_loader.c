/* millrace._core.Loader: an mr_loader with the interpreter's lock given up while it works or waits. */
#include "py_core.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define POLL_NS 50000000u /* how often a wait looks for Ctrl-C */

typedef struct {
    PyObject ob_base;
    struct mr_loader *loader; /* NULL: closed */
    pthread_mutex_t lock;     /* P2 */
    bool lock_made;
    pid_t pid;
    struct mr_dataset_info info;
    struct mr_preprocess *planner; /* or NULL: samples are no pictures */
} Loader;

static struct core_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- parameters ---- */

static int take_mode(const char *name, struct mr_loader_params *p, struct core_state *state)
{
    struct mr_error err;
    int rc = mr_order_mode_parse(name, &p->order.mode, &p->order.window, &err);
    if (rc)
        raise_error(state, &err);
    return rc ? -1 : 0;
}

static int open_loader(Loader *self, struct mr_loader_params *p)
{
    struct mr_error err;
    int rc;
    struct mr_loader *made = NULL;
    struct mr_dataset *ds = NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = mr_dataset_open(p->dataset, p->store, &ds, &err);
    if (!rc) {
        mr_dataset_get_info(ds, &self->info);
        mr_dataset_close(ds);
        rc = mr_loader_open(p, &made, &err);
    }
    if (!rc && p->preprocess && (rc = mr_preprocess_create(p->preprocess, &self->planner, &err)))
        mr_loader_close(made);
    Py_END_ALLOW_THREADS
    if (rc) {
        raise_error(state_of((PyObject *)self), &err);
        return -1;
    }
    self->loader = made;
    self->pid = getpid();
    return 0;
}

static int take_peers(const char *text, struct mr_loader_params *p)
{
    static const char *const names[] = {
        [MR_LOADER_PEERS_AUTO] = "auto", [MR_LOADER_PEERS_ON] = "on", [MR_LOADER_PEERS_OFF] = "off"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(text, names[i])) {
            p->peers = (enum mr_loader_peers)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "peers is 'auto', 'on' or 'off', not '%s'", text);
    return -1;
}

static int loader_init(PyObject *self_, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dataset",
                            "batch_size",
                            "threads",
                            "lookahead",
                            "spare",
                            "drop_last",
                            "flags",
                            "store",
                            "order",
                            "seed",
                            "preprocess",
                            "rank",
                            "world",
                            "policy",
                            "epochs",
                            "direct_io",
                            "drop_last_samples",
                            "tiers",
                            "peers",
                            "last_epoch",
                            "key",
                            "key_file",
                            "fields",
                            "uses",
                            "ragged",
                            NULL};
    Loader *self = (Loader *)self_;
    struct mr_loader_params p;
    struct mr_preprocess_params preprocess;
    mr_loader_params_init(&p);
    const char *store = NULL, *order = "sequential", *policy = NULL, *peers = "auto";
    PyObject *path = NULL, *dict = Py_None, *key_file = NULL, *fields = NULL, *uses = NULL;
    const char *ragged = "list";
    struct fields_wanted wanted = {0};
    const char *key = NULL;
    Py_ssize_t key_bytes = 0;
    unsigned long long seed = 0, epochs = 0;
    long long last_epoch = -1; /* the last one that is read; -1: not known */
    int drop_last = 0, direct = 0, drop_samples = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&I|$IIIpIzsKOIIzKppzsLz#O&OOs:Loader", names,
                                     PyUnicode_FSConverter, &path, &p.batch_size, &p.threads, &p.lookahead, &p.spare,
                                     &drop_last, &p.flags, &store, &order, &seed, &dict, &p.order.rank, &p.order.world,
                                     &policy, &epochs, &direct, &drop_samples, &p.tiers, &peers, &last_epoch, &key,
                                     &key_bytes, PyUnicode_FSConverter, &key_file, &fields, &uses, &ragged))
        return -1;
    int rc = -1;
    if (self->lock_made) {
        PyErr_SetString(PyExc_RuntimeError, "a Loader is made once");
        goto done;
    }
    pthread_mutex_init(&self->lock, NULL);
    self->lock_made = true;
    p.dataset = PyBytes_AsString(path);
    p.store = store;
    p.drop_last_batch = drop_last;
    p.order.drop_last = drop_samples;
    p.order.seed = seed;
    p.order.shuffle_each_epoch = true;
    p.last_epoch = last_epoch >= 0 ? (uint64_t)last_epoch : epochs;
    p.epochs_known = last_epoch >= 0;
    if (policy)
        p.policy = policy;
    if (take_peers(peers, &p) < 0 || take_fields(fields, uses, ragged, &wanted, &p) < 0)
        goto done;
    if (key && key_bytes != MR_LOADER_KEY_BYTES) {
        PyErr_Format(PyExc_ValueError, "a key has %d bytes, not %zd", MR_LOADER_KEY_BYTES, key_bytes);
        goto done;
    }
    p.key = (const uint8_t *)key;
    p.key_file = key_file ? PyBytes_AsString(key_file) : NULL;
    if (direct)
        p.flags |= MR_LOADER_DIRECT;
    if (take_mode(order, &p, state_of(self_)) < 0 || (dict != Py_None && take_preprocess(dict, seed, &preprocess) < 0))
        goto done;
    p.preprocess = dict != Py_None ? &preprocess : NULL;
    rc = open_loader(self, &p);
done:
    Py_DECREF(path);
    Py_XDECREF(key_file);
    fields_wanted_free(&wanted);
    return rc;
}

/* ---- entering and leaving (P2, P3) ---- */

static bool is_usable(Loader *self)
{
    if (!self->loader) {
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
        return false;
    }
    if (self->pid != getpid()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the loader was made before a fork and has no threads in this process; make it in the child");
        return false;
    }
    return true;
}

static void close_loader(Loader *self)
{
    struct mr_loader *l = self->loader;
    if (!l || self->pid != getpid())
        return;
    mr_loader_stop(l); /* a next() that waits in another thread leaves */
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    l = self->loader;
    self->loader = NULL;
    mr_loader_close(l);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
}

static PyObject *loader_close(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    close_loader((Loader *)self);
    Py_RETURN_NONE;
}

static void loader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    close_loader((Loader *)self);
    mr_preprocess_free(((Loader *)self)->planner);
    if (((Loader *)self)->lock_made)
        pthread_mutex_destroy(&((Loader *)self)->lock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- epochs ---- */

static PyObject *finish(PyObject *self, int rc, const struct mr_error *err)
{
    if (rc)
        return raise_error(state_of(self), err);
    Py_RETURN_NONE;
}

static PyObject *loader_start_epoch(PyObject *self_, PyObject *args)
{
    Loader *self = (Loader *)self_;
    unsigned long long epoch, position = 0;
    struct mr_error err;
    int rc = 0;
    if (!PyArg_ParseTuple(args, "K|K:start_epoch", &epoch, &position) || !is_usable(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    struct mr_loader_state s;
    mr_loader_get_state(self->loader, &s);
    s.epoch = epoch;
    s.position = position;
    if (position)
        rc = mr_loader_resume(self->loader, &s, &err);
    if (!rc)
        rc = mr_loader_start_epoch(self->loader, epoch, &err);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    return finish(self_, rc, &err);
}

static PyObject *loader_start_list(PyObject *self_, PyObject *args)
{
    Loader *self = (Loader *)self_;
    unsigned long long epoch, skip = 0;
    const char *ids;
    Py_ssize_t len;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "Ky#|K:start_list", &epoch, &ids, &len, &skip) || !is_usable(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    rc = mr_loader_start_list(self->loader, epoch, (const uint64_t *)(const void *)ids, (uint64_t)len / 8, skip, &err);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    return finish(self_, rc, &err);
}

static PyObject *loader_announce(PyObject *self_, PyObject *args)
{
    Loader *self = (Loader *)self_;
    const char *ids;
    Py_ssize_t len;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "y#:announce", &ids, &len) || !is_usable(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    rc = mr_loader_announce(self->loader, (const uint64_t *)(const void *)ids, (uint64_t)len / 8, &err);
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS
    return finish(self_, rc, &err);
}

/* One try of at most timeout_ns: 1 and a batch taken out, 0 at the end of the epoch, or a negative code. */
static int try_next(Loader *self, uint64_t timeout_ns, void *fresh, struct taken *out, struct mr_error *err)
{
    struct mr_batch *b;
    pthread_mutex_lock(&self->lock);
    int rc = self->loader ? mr_loader_next_timed(self->loader, timeout_ns, &b, err)
                          : mr_error_plain(err, MR_E_INTERRUPTED, "the loader is closed");
    int taken = rc == 1 ? batch_take(self->loader, b, fresh, out) : 0;
    pthread_mutex_unlock(&self->lock);
    if (taken == -EINVAL)
        return mr_error_plain(err, MR_E_USAGE, "pinned memory needs samples of one shape and size");
    return taken ? mr_error_set(err, taken, "cannot keep a batch") : rc;
}

static PyObject *loader_next(PyObject *self_, PyObject *args)
{
    Loader *self = (Loader *)self_;
    unsigned long long fresh = 0;
    long long timeout = -1;
    struct taken taken;
    struct mr_error err;
    int rc;
    if (!PyArg_ParseTuple(args, "|KL:next", &fresh, &timeout) || !is_usable(self))
        return NULL;
    do { /* waits in slices, looking for Ctrl-C in between */
        Py_BEGIN_ALLOW_THREADS
        rc = try_next(self, timeout < 0 ? POLL_NS : (uint64_t)timeout, (void *)(uintptr_t)fresh, &taken, &err);
        Py_END_ALLOW_THREADS
        if (rc == MR_E_TIMEOUT && timeout >= 0)
            Py_RETURN_FALSE;
        if (rc == MR_E_TIMEOUT && PyErr_CheckSignals() < 0)
            return NULL;
    } while (rc == MR_E_TIMEOUT);
    if (rc == 0)
        Py_RETURN_NONE;
    if (rc < 0)
        return raise_error(state_of(self_), &err);
    return batch_create(state_of(self_), &taken);
}

/* ---- the rest ---- */

static PyObject *loader_stop(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    if (!is_usable((Loader *)self))
        return NULL;
    mr_loader_stop(((Loader *)self)->loader);
    Py_RETURN_NONE;
}

static PyObject *loader_set_memory(PyObject *self_, PyObject *args)
{
    unsigned index;
    unsigned long long address;
    Loader *self = (Loader *)self_;
    if (!PyArg_ParseTuple(args, "IK:set_memory", &index, &address) || !is_usable(self))
        return NULL;
    if (index >= mr_loader_places(self->loader) || address % 64) {
        PyErr_SetString(PyExc_ValueError, "no such place, or memory that is not aligned to 64 bytes");
        return NULL;
    }
    mr_loader_set_memory(self->loader, index, (void *)(uintptr_t)address);
    Py_RETURN_NONE;
}

static PyObject *loader_leave_stored(PyObject *self, PyObject *args)
{
    unsigned rows;
    struct mr_error err;
    if (!PyArg_ParseTuple(args, "I:leave_stored", &rows) || !is_usable((Loader *)self))
        return NULL;
    return finish(self, mr_loader_leave_stored(((Loader *)self)->loader, rows, &err), &err);
}

static PyObject *loader_plans(PyObject *self, PyObject *args)
{
    unsigned long long epoch;
    const char *ids, *sizes;
    Py_ssize_t ids_len, sizes_len;
    const struct mr_preprocess *planner = ((Loader *)self)->planner;
    if (!PyArg_ParseTuple(args, "Ky#y#:plans", &epoch, &ids, &ids_len, &sizes, &sizes_len))
        return NULL;
    if (!planner || ids_len % 8 || sizes_len != ids_len) {
        PyErr_SetString(PyExc_ValueError, "as many sizes as sample numbers are needed, of pictures");
        return NULL;
    }
    return make_plans(state_of(self), planner, epoch, (const uint64_t *)(const void *)ids,
                      (const uint32_t *)(const void *)sizes, ids_len / 8);
}

static PyObject *loader_skipped(PyObject *self, PyObject *nothing)
{
    struct mr_error first;
    (void)nothing;
    if (!is_usable((Loader *)self))
        return NULL;
    uint64_t n = mr_loader_skipped(((Loader *)self)->loader, &first);
    if (!n)
        return Py_BuildValue("(Kz)", 0ull, NULL);
    PyObject *text = PyUnicode_FromFormat("%s%s%s", first.message, first.context[0] ? "\n  " : "", first.context);
    return text ? Py_BuildValue("(KN)", (unsigned long long)n, text) : NULL;
}

static PyObject *loader_stats(PyObject *self, PyObject *nothing)
{
    struct mr_loader_stats s;
    (void)nothing;
    if (!is_usable((Loader *)self))
        return NULL;
    mr_loader_get_stats(((Loader *)self)->loader, &s);
    PyObject *dict = Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:K,s:I,s:s,s:d,s:d}", "batches", s.batches, "samples",
        s.samples, "sample_bytes", s.sample_bytes, "read_bytes", s.read_bytes, "wait_ns", s.wait_ns, "read_ns",
        s.read_ns, "decode_ns", s.decode_ns, "transform_ns", s.transform_ns, "idle_ns", s.idle_ns, "cpu_ns", s.cpu_ns,
        "ready_mean", s.ready_mean, "empty_ratio", s.empty_ratio, "slab_bytes", s.slab_bytes, "threads", s.threads,
        "limiter", s.limiter, "recent_samples_per_s", s.recent_samples_per_s, "recent_wait_ratio", s.recent_wait_ratio);
    PyObject *fields = dict ? fields_stats(((Loader *)self)->loader) : NULL;
    if (dict && (!fields || (PyDict_Size(fields) > 0 && PyDict_SetItemString(dict, "fields", fields) < 0)))
        Py_CLEAR(dict);
    Py_XDECREF(fields);
    return dict;
}

static PyObject *tier_part(const struct mr_loader_from *f)
{
    return Py_BuildValue("{s:K,s:K,s:K}", "samples", f->samples, "bytes", f->bytes, "fetch_ns", f->fetch_ns);
}

static PyObject *loader_tiers(PyObject *self, PyObject *nothing)
{
    struct mr_loader_stats s;
    (void)nothing;
    if (!is_usable((Loader *)self))
        return NULL;
    mr_loader_get_stats(((Loader *)self)->loader, &s);
    const struct mr_loader_tier_stats *t = &s.tier;
    if (!t->used)
        Py_RETURN_NONE;
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:K,s:K,s:K,s:K,s:K,s:I,s:s}", "ram", tier_part(&t->ram), "ssd",
                         tier_part(&t->ssd), "peer", tier_part(&t->peer), "source", tier_part(&t->source),
                         "source_bytes", t->source_bytes, "distinct_bytes", t->distinct_bytes, "ram_bytes",
                         t->ram_bytes, "ssd_bytes", t->ssd_bytes, "refetched", t->refetched, "peers_lost",
                         t->peers_lost, "chosen", mr_loader_chosen(((Loader *)self)->loader));
}

static PyObject *loader_info(PyObject *self, PyObject *nothing)
{
    const struct mr_dataset_info *i = &((Loader *)self)->info;
    (void)nothing;
    return Py_BuildValue("{s:K,s:K,s:K,s:s,s:s,s:I}", "samples", i->samples, "files", i->files, "sample_bytes",
                         i->sample_bytes, "format", i->format, "dtype", i->dtype, "n_dims", i->n_dims);
}

enum { GET_PLACES, GET_SLAB_BYTES, GET_BATCHES };

static PyObject *loader_get(PyObject *self, void *which)
{
    struct mr_loader *l = ((Loader *)self)->loader;
    if (!is_usable((Loader *)self))
        return NULL;
    switch ((intptr_t)which) {
    case GET_PLACES: return PyLong_FromUnsignedLong(mr_loader_places(l));
    case GET_SLAB_BYTES: return PyLong_FromUnsignedLongLong(mr_loader_slab_bytes(l));
    default: return PyLong_FromUnsignedLongLong(mr_loader_batches_per_epoch(l));
    }
}

static PyMethodDef loader_methods[] = {
    {"start_epoch", loader_start_epoch, METH_VARARGS, "start_epoch(epoch, position=0): the loader's own order."},
    {"start_list", loader_start_list, METH_VARARGS,
     "start_list(epoch, ids, skip=0): these sample numbers (bytes of native uint64), of which `skip` were delivered."},
    {"announce", loader_announce, METH_VARARGS, "announce(ids): what the next start_list will be called with."},
    {"next", loader_next, METH_VARARGS,
     "next(fresh=0, timeout_ns=-1): the next Batch, None at the end of the epoch, False if it is not there in time. "
     "`fresh` is the address of memory that the loader goes on with instead of the batch's."},
    {"close", loader_close, METH_NOARGS, "Ends reading and frees everything but batches that are still in use."},
    {"stop", loader_stop, METH_NOARGS, "Makes a waiting next() in another thread end; from any thread."},
    {"set_memory", loader_set_memory, METH_VARARGS, "set_memory(index, address): before the first epoch."},
    {"leave_stored", loader_leave_stored, METH_VARARGS,
     "leave_stored(rows): the last rows of every batch stay as stored, where a device can decode them."},
    {"plans", loader_plans, METH_VARARGS,
     "plans(epoch, ids, sizes): what becomes of pictures of these sizes (native uint32: height, width). int32 for "
     "each: top, "
     "left, height and width of what is needed and of what is cut out; height and width that this is resized to; top "
     "and "
     "left of the result in that; is it flipped; top and left of the result in what is delivered; its height and "
     "width; the filter (0 bilinear, 1 bicubic)."},
    {"skipped", loader_skipped, METH_NOARGS, "(number of samples left out, why the first one was or None)."},
    {"stats", loader_stats, METH_NOARGS, "What the loader has done, as a dict."},
    {"tiers", loader_tiers, METH_NOARGS, "Where samples came from, as a dict; None without tiers."},
    {"info", loader_info, METH_NOARGS, "What the data set is, as a dict."},
    {NULL},
};
static PyGetSetDef loader_getset[] = {
    {"places", loader_get, NULL, "Batches in the ring.", (void *)GET_PLACES},
    {"slab_bytes", loader_get, NULL, "Bytes of a batch's memory.", (void *)GET_SLAB_BYTES},
    {"batches", loader_get, NULL, "Batches per epoch.", (void *)GET_BATCHES},
    {NULL},
};
static PyType_Slot loader_slots[] = {
    {Py_tp_init, loader_init},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_methods, loader_methods},
    {Py_tp_getset, loader_getset},
    {Py_tp_doc, "Reads batches ahead in threads of its own. The front ends use it; see <millrace/loader.h>."},
    {0, NULL},
};
PyType_Spec loader_spec = {
    .name = "millrace._core.Loader", .basicsize = sizeof(Loader), .flags = Py_TPFLAGS_DEFAULT, .slots = loader_slots};
