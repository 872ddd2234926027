"""Spans for what training scripts call most, without touching them: PyTorch's DataLoader (iteration, __getitem__, collate),
torch.save and load, NumPy load and save, h5py reads, PIL opens, tf.data and Grain iterators.

A row of PATCHES names a module and a function that changes it once it has been imported. Names that a version does not have
are left alone. MILLRACE_TRACE_PYTHON_SKIP lists modules not to touch, separated by commas.
"""
import os
import sys

from . import _trace, active, fn, now, span


def _wrap(owner, name, category, label=None):
    """Replaces owner.name by a traced version; a missing or foreign name stays."""
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None or isinstance(original, (_trace.Traced if isinstance(_trace.Traced, type) else ())):
        return
    label = label or (owner.__name__ + "." + name)
    try:
        if isinstance(original, staticmethod):
            setattr(owner, name, staticmethod(fn(original.__func__, category=category, name=label)))
        elif isinstance(original, classmethod):
            setattr(owner, name, classmethod(fn(original.__func__, category=category, name=label)))
        elif callable(original):
            setattr(owner, name, fn(original, category=category, name=label))
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
                self.collate_fn = fn(self.collate_fn, category="data_loader", name="collate")
                if hasattr(self, "dataset") and not hasattr(self, "dataset_iter"):
                    self.dataset = _Dataset(self.dataset)
            begin = now()
            try:
                return original(self, index)
            finally:
                span("data_loader", "fetch", begin, None)

        cls.fetch = fetch

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        if hasattr(module, name):
            traced_fetch(getattr(module, name))


class _Dataset:
    """A data set whose items are spans; everything else is the data set's own."""

    def __init__(self, inner):
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_label", type(inner).__name__ + ".__getitem__")

    def __getitem__(self, index):
        begin = now()
        try:
            return self._inner[index]
        finally:
            span("data_loader", self._label, begin, {"image_idx": index} if isinstance(index, int) else None)

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        setattr(self._inner, name, value)


def _names(category, *names):
    def patch(module):
        for name in names:
            _wrap(module, name, category)

    return patch


def _h5py(module):
    for owner, names in (("Dataset", ("__getitem__", "__setitem__", "read_direct")), ("File", ("__init__", "close"))):
        if hasattr(module, owner):
            for name in names:
                _wrap(getattr(module, owner), name, "reader", "h5py.%s.%s" % (owner, name))


def _iterator(owner, category):
    def patch(module):
        if hasattr(module, owner):
            _wrap(getattr(module, owner), "__next__", category, owner + ".next")

    return patch


PATCHES = {
    "torch.utils.data.dataloader": _torch_loader,
    "torch.utils.data._utils.fetch": _torch_fetch,
    "torch.serialization": _names("checkpoint", "save", "load"),
    "numpy": _names("reader", "load", "save", "savez", "savez_compressed", "fromfile", "memmap"),
    "h5py._hl.dataset": _h5py,
    "h5py._hl.files": _h5py,
    "PIL.Image": _names("reader", "open"),
    "tensorflow.python.data.ops.iterator_ops": _iterator("OwnedIterator", "data_loader"),
    "grain._src.python.data_loader": _iterator("PyGrainDatasetIterator", "data_loader"),
    "grain._src.python.dataset.dataset": _iterator("DatasetIterator", "data_loader"),
}


class _Finder:
    """Watches imports: when a module of PATCHES has been executed, changes it."""

    def __init__(self, skip):
        self._waiting = {k: v for k, v in PATCHES.items() if k.split(".")[0] not in skip}

    def find_spec(self, name, path=None, target=None):
        patch = self._waiting.pop(name, None)
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
