"""Spans for what training scripts call most, without touching them: PyTorch's DataLoader (iteration, __getitem__, collate),
torch.save and load, NumPy load and save, h5py reads, PIL opens, tf.data and Grain iterators, checkpoints of TensorFlow.

A row of PATCHES names a module and a function that changes it once it has been imported. Names that a version does not have
are left alone. MILLRACE_TRACE_PYTHON_SKIP lists modules not to touch, separated by commas.
"""
import functools
import os
import sys

from . import _trace, active, fn, now, span


_changes = []  # owner, name, what was there, what is there now


def _put(owner, name, value):
    original = owner.__dict__.get(name)
    setattr(owner, name, value)  # a class that cannot be changed refuses: nothing to take back
    _changes.append((owner, name, original, value))


def switch(on):
    """Takes the changes back, or makes them again; what has been made with them (an iterator, a worker) keeps them, and so does a name that was
    imported from the module (torch.save is torch.serialization's). With trace.stop() a program then runs as it would without the tracer."""
    for owner, name, original, traced in _changes if on else reversed(_changes):  # one name may have been changed twice
        if on or original is not None:
            setattr(owner, name, traced if on else original)
        elif name in owner.__dict__:
            delattr(owner, name)


def _wrap(owner, name, category, label=None):
    """Replaces owner.name by a traced version; a missing or foreign name stays."""
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None or isinstance(original, (_trace.Traced if isinstance(_trace.Traced, type) else ())):
        return
    label = label or (owner.__name__ + "." + name)
    try:
        if isinstance(original, type):  # programs ask isinstance(x, numpy.memmap): the class stays, making one is traced
            _wrap(original, "__new__", category, label)
        elif isinstance(original, staticmethod):
            _put(owner, name, staticmethod(fn(original.__func__, category=category, name=label)))
        elif isinstance(original, classmethod):
            _put(owner, name, classmethod(fn(original.__func__, category=category, name=label)))
        elif name == "__new__":
            _put(owner, name, staticmethod(fn(original, category=category, name=label)))
        elif callable(original):
            _put(owner, name, fn(original, category=category, name=label))
    except (AttributeError, TypeError):
        pass


def _torch_loader(module):
    for name in ("_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        iterator = getattr(module, name, None)
        if iterator is not None:
            _wrap(iterator, "__next__", "data_loader", "DataLoader.next")
            _wrap(iterator, "_next_data", "data_loader", "DataLoader.fetch")
    if hasattr(module, "DataLoader"):
        _wrap(module.DataLoader, "__iter__", "data_loader", "DataLoader.iter")


def _torch_fetch(module):
    """The fetchers call dataset[i] and collate in whichever process does the work."""

    def traced_fetch(cls):
        original = cls.__dict__.get("fetch")
        if original is None:
            return

        def fetch(self, index):
            if active() and not getattr(self, "_millrace", False):
                self._millrace = True
                self.collate_fn = _trace.Traced(self.collate_fn, "data_loader", "collate")  # a function or a class
                if hasattr(self, "dataset_iter"):
                    self.dataset_iter = _Items(self.dataset_iter, type(self.dataset).__name__ + ".__next__")
                elif hasattr(self, "dataset"):
                    self.dataset = _Dataset(self.dataset)
            return original(self, index)

        _put(cls, "fetch", fn(fetch, category="data_loader", name="fetch"))

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        if hasattr(module, name):
            traced_fetch(getattr(module, name))


class _Dataset(getattr(_trace, "Items", object)):
    """A data set whose items are spans; everything else is the data set's own."""

    def __new__(cls, inner):
        return super().__new__(cls, inner, "data_loader", type(inner).__name__ + ".__getitem__")

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "__getitems__" and callable(found):  # a whole batch at once, since PyTorch 2.0
            return fn(found, category="data_loader", name=type(self._inner).__name__ + ".__getitems__")
        return found

    def __setattr__(self, name, value):
        setattr(self._inner, name, value)


class _Items:
    """An iterator whose items are spans."""

    def __init__(self, inner, label):
        self._inner, self._label = inner, label

    def __iter__(self):
        return self

    def __next__(self):
        begin = now()
        try:
            return next(self._inner)
        finally:
            span("data_loader", self._label, begin, None)


def _names(category, *names):
    def patch(module):
        for name in names:
            _wrap(module, name, category)

    return patch


def _h5py_dataset(module):
    for name in ("__getitem__", "__setitem__", "read_direct", "write_direct"):
        _wrap(module.Dataset, name, "reader", "h5py.Dataset." + name)


def _h5py_file(module):
    """Opening and closing. h5py also makes a File around an open one whenever an object is asked for its file: not a span."""
    original = module.File.__init__
    opening = fn(original, category="reader", name="h5py.File.__init__")

    @functools.wraps(original)
    def __init__(self, name, *args, **kwargs):
        wraps = type(name).__module__.startswith("h5py.")
        (original if wraps else opening)(self, name, *args, **kwargs)

    _put(module.File, "__init__", __init__)
    _wrap(module.File, "close", "reader", "h5py.File.close")


def _methods(owner, category, names, label=None):
    """Methods of a class; `label` stands for the class's name."""

    def patch(module):
        for name in names if hasattr(module, owner) else ():
            _wrap(getattr(module, owner), name, category, (label or owner) + "." + name.strip("_"))

    return patch


def _grain_dataset(module):
    """Grain's iterators are subclasses, one per stage: each is changed when it is defined."""
    base = getattr(module, "DatasetIterator", None)
    if base is None:
        return
    _wrap(base, "__next__", "data_loader", "DatasetIterator.next")

    def __init_subclass__(cls, **kwargs):
        super(base, cls).__init_subclass__(**kwargs)
        _wrap(cls, "__next__", "data_loader", cls.__name__.lstrip("_") + ".next")

    if "__init_subclass__" not in base.__dict__:
        _put(base, "__init_subclass__", classmethod(__init_subclass__))


def _all(*patches):
    def patch(module):
        for one in patches:
            one(module)

    return patch


PATCHES = {
    "torch.utils.data.dataloader": _torch_loader,
    "torch.utils.data._utils.fetch": _torch_fetch,
    "torch.serialization": _names("checkpoint", "save", "load"),
    "torch.distributed.checkpoint.state_dict_saver": _names("checkpoint", "save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": _names("checkpoint", "load"),
    "safetensors.torch": _names("checkpoint", "save_file", "load_file"),
    "numpy": _names("reader", "load", "save", "savez", "savez_compressed", "fromfile", "memmap", "loadtxt", "savetxt", "genfromtxt"),
    "h5py._hl.dataset": _h5py_dataset,
    "h5py._hl.files": _h5py_file,
    "PIL.Image": _names("reader", "open"),
    "tensorflow.python.data.ops.iterator_ops": _methods("OwnedIterator", "data_loader", ("__next__", "get_next")),
    "tensorflow.python.checkpoint.checkpoint": _methods("Checkpoint", "checkpoint", ("save", "restore", "write", "read"), "tf.Checkpoint"),
    "grain._src.python.data_loader": _all(_methods("DataLoaderIterator", "data_loader", ("__next__",), "grain.DataLoader"),
                                          _methods("PyGrainDatasetIterator", "data_loader", ("__next__",), "grain.DataLoader")),
    "grain._src.python.dataset.dataset": _grain_dataset,
    "grain._src.python.dataset.transformations.source": _methods("SourceMapDataset", "data_loader", ("__getitem__",), "grain.source"),
}


class _Finder:
    """Watches imports: when a module of PATCHES has been executed, changes it."""

    def __init__(self, skip):
        self._waiting = {k: v for k, v in PATCHES.items() if k.split(".")[0] not in skip}

    def find_spec(self, name, path=None, target=None):
        patch = self._waiting.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        if spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self._waiting.pop(name, None)  # only now: programs also look for modules without importing them
            try:
                patch(module)
            except Exception as error:
                sys.stderr.write("millrace: '%s' is not instrumented: %s\n" % (name, error))

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass
        return spec


def install():
    """Instruments what is imported from now on, and what already was."""
    skip = set(filter(None, os.environ.get("MILLRACE_TRACE_PYTHON_SKIP", "").split(",")))
    for name, patch in PATCHES.items():
        if name in sys.modules and name.split(".")[0] not in skip:
            patch(sys.modules[name])
    sys.meta_path.insert(0, _Finder(skip))
