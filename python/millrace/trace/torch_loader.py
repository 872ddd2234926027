"""PyTorch's DataLoader, instrumented so that a wait can be matched with the work it waited for.

Main process: `DataLoader.next` is the wait for a batch, with batch, epoch and loader; `DataLoader.end` the call that
ends an epoch, `DataLoader.iter` the start of one (workers are started in it). Workers: `fetch` is the work for a
batch, with the same numbers and the worker's; inside it are the items of the data set and `collate`.

How numbers reach the workers. A worker is told its loader and epoch by multiprocessing's own configuration of a
process, which its children inherit however they are started (fork, spawn, forkserver): an entry of plain numbers, so
that a worker that is not instrumented works as ever. The batch comes with the index: the queue of indices is wrapped
in the worker, where a message is (batch, indices), and one of another kind says that an epoch of persistent workers
begins. Numbers are kept by thread: a worker may be one.

What must stay true: every class keeps its name, every method its arguments and its exceptions; a name that a version
of PyTorch does not have is left alone; nothing here may fail where the original would not.
"""

import functools
import itertools
import multiprocessing.process
import os
import sys
import threading

from . import _trace, accelerator, cpu, handover, now, places, span

TOLD = "millrace"  # the entry: loader and epoch
_loaders = itertools.count()  # numbers of DataLoader objects, in the order of their first use
_here = handover.loader = threading.local()  # args: what the thread is working for


def _loader_number(loader):
    number = getattr(loader, "_millrace_loader", None)
    if number is None:
        number = next(_loaders)
        try:
            loader._millrace_loader = number
            places.tell_loader(loader, number)
        except Exception:  # a class that keeps its attributes to itself: every iterator counts as a loader of its own
            pass
    return number


def _begin_epoch(iterator, loader):
    """Numbers of an iterator; loaders count their iterators."""
    handover.loader_used()
    epoch = getattr(loader, "_millrace_epoch", -1) + 1
    try:
        loader._millrace_epoch = epoch
        workers = getattr(loader, "num_workers", 0) or 0
        iterator._millrace = {
            "batch": 0,
            "epoch": epoch,
            "loader": _loader_number(loader),
            "workers": workers,
            "prefetch": (getattr(loader, "prefetch_factor", None) or 0) * workers,
        }
    except Exception:
        pass


def _size(batch):
    """Rows and bytes of a batch, as far as the outermost values tell."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else (batch,)
    rows, size = None, 0
    for value in itertools.islice(values, 8):
        shape = getattr(value, "shape", None)
        if shape is None:
            continue
        if rows is None and len(shape):
            rows = int(shape[0])
        size += value.nbytes if hasattr(value, "nbytes") else value.numel() * value.element_size()
    return rows, size


def _of_next(original):
    @functools.wraps(original)
    def __next__(self):
        args = getattr(self, "_millrace", None)
        begin = now()
        if not begin or args is None or getattr(_here, "inside", False):
            return original(self)
        _here.inside = True  # a class whose __next__ calls its parent's waits once
        _here.args = {
            "batch": args["batch"],
            "epoch": args["epoch"],
            "loader": args["loader"],
        }  # for its own fetch, without workers
        idle = accelerator.begin()
        try:
            batch = original(self)
        except StopIteration:
            span("data_loader", "DataLoader.end", begin, {"epoch": args["epoch"], "loader": args["loader"]})
            accelerator.look()
            raise
        except BaseException:
            span("data_loader", "DataLoader.next", begin, args)
            raise
        finally:
            _here.inside, _here.args = False, None
        _waited(self, args, begin, idle, batch)
        return batch

    return __next__


def _served(iterator, batch):
    """The number under which workers know what has just come: a data set that ends early in one of them leaves numbers
    out, and in_order=False gives them as they come."""
    if not getattr(iterator, "_in_order", True):
        return getattr(iterator, "_millrace_got", batch)
    following = getattr(iterator, "_rcvd_idx", None)
    return batch if following is None else following - 1


def _of_get_data(original):
    @functools.wraps(original)
    def _get_data(self, *args, **kwargs):
        data = original(self, *args, **kwargs)
        if isinstance(data, tuple) and isinstance(data[0], int):
            self._millrace_got = data[0]
        return data

    return _get_data


def _waited(iterator, args, begin, idle, batch):
    args["batch"] = _served(iterator, args["batch"])
    said = dict(args)
    try:
        rows, size = _size(batch)
        if rows is not None:
            said["rows"] = rows
        if size:
            said["bytes"] = size
    except Exception:  # an object that does not like to be asked
        pass
    span("data_loader", "DataLoader.next", begin, said)
    accelerator.wait_ends(idle, args)
    args["batch"] += 1


def _config():
    """What the processes started from here on inherit, by whatever way they are started; {} where there is nothing
    like it."""
    try:
        return multiprocessing.process.current_process()._config
    except Exception:
        return {}


def _of_init(original):
    @functools.wraps(original)
    def __init__(self, loader, *args, **kwargs):
        config = _config()
        config[TOLD] = (_loader_number(loader), getattr(loader, "_millrace_epoch", -1) + 1)
        try:
            original(self, loader, *args, **kwargs)
        finally:
            config.pop(TOLD, None)

    return __init__


def _of_base_init(original):
    @functools.wraps(original)
    def __init__(self, loader, *args, **kwargs):
        _begin_epoch(self, loader)
        original(self, loader, *args, **kwargs)

    return __init__


def _of_shutdown(original):
    """Workers are ended: at the end of an epoch inside its last call, else where the iterator is thrown away: maybe
    when the interpreter ends, and this module has no names any more."""
    clock, tell, here = now, span, _here

    @functools.wraps(original)
    def _shutdown_workers(self):
        begin = 0 if getattr(here, "inside", False) or getattr(self, "_shutdown", True) else clock()
        if not begin:
            return original(self)
        try:
            return original(self)
        finally:
            said = getattr(self, "_millrace", None) or {}
            tell("data_loader", "DataLoader.shutdown", begin, {k: said[k] for k in ("epoch", "loader") if k in said})

    return _shutdown_workers


def _of_reset(original):
    """Persistent workers: the iterator of the first epoch serves the others too."""

    @functools.wraps(original)
    def _reset(self, loader, first_iter=False, *args, **kwargs):
        if not first_iter:
            _begin_epoch(self, loader)
        return original(self, loader, first_iter, *args, **kwargs)

    return _reset


def _of_iter(original):
    @functools.wraps(original)
    def __iter__(self):
        begin = now()
        iterator = original(self)
        said = getattr(iterator, "_millrace", None)
        span(
            "data_loader",
            "DataLoader.iter",
            begin,
            said and {k: said[k] for k in ("epoch", "loader", "workers", "prefetch")},
        )
        return iterator

    return __iter__


def _of_loader_init(original):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        places.loader_made(self, sys._getframe(1))

    return __init__


def loader(module, put):
    """torch.utils.data.dataloader; put(owner, name, value) changes a name so that it can be changed back."""
    base = getattr(module, "_BaseDataLoaderIter", None)
    multi = getattr(module, "_MultiProcessingDataLoaderIter", None)
    for name in ("_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        owner = getattr(module, name, None)
        if owner is not None and "__next__" in owner.__dict__:
            put(owner, "__next__", _of_next(owner.__dict__["__next__"]))
    if base is not None and "__init__" in base.__dict__:
        put(base, "__init__", _of_base_init(base.__dict__["__init__"]))
    if multi is not None:
        put(multi, "__init__", _of_init(multi.__dict__["__init__"]))
        if "_shutdown_workers" in multi.__dict__:
            put(multi, "_shutdown_workers", _of_shutdown(multi.__dict__["_shutdown_workers"]))
        if "_get_data" in multi.__dict__:
            put(multi, "_get_data", _of_get_data(multi.__dict__["_get_data"]))
        if "_reset" in multi.__dict__:
            put(multi, "_reset", _of_reset(multi.__dict__["_reset"]))
    if hasattr(module, "DataLoader"):
        put(module.DataLoader, "__init__", _of_loader_init(module.DataLoader.__dict__["__init__"]))
        put(module.DataLoader, "__iter__", _of_iter(module.DataLoader.__dict__["__iter__"]))


class _Passing:
    """Something that is another object but for a method."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class _Indices(_Passing):
    """The queue that tells a worker what to fetch: what comes out of it is what the thread works for."""

    def __init__(self, inner, said):
        super().__init__(inner)
        self._said = said

    def get(self, *args, **kwargs):
        message = self._inner.get(*args, **kwargs)
        if isinstance(message, tuple):
            self._said["batch"] = message[0]
        elif message is not None:  # the next epoch of a persistent worker
            self._said["epoch"] += 1
        return message


class _Results(_Passing):
    """The queue that a worker puts its batches in."""

    def put(self, message, *args, **kwargs):
        begin = now()
        self._inner.put(message, *args, **kwargs)
        said = _here.args
        if isinstance(message, tuple) and said is not None and message[0] == said["batch"]:
            span("queue", "put", begin, said)


def worker(module, put):
    """torch.utils.data._utils.worker: whatever its arguments are called in this version."""
    original = getattr(module, "_worker_loop", None)
    code = getattr(original, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    if not {"index_queue", "data_queue", "worker_id"} <= set(names):
        return
    indices, results, number = (names.index(n) for n in ("index_queue", "data_queue", "worker_id"))

    @functools.wraps(original)
    def _worker_loop(*args, **kwargs):
        if kwargs or len(args) <= max(indices, results, number) or not now():
            return original(*args, **kwargs)
        given = list(args)
        loader_number, epoch = _config().get(TOLD, (0, 0))
        _here.args = {"batch": -1, "epoch": epoch, "loader": loader_number, "worker": given[number]}
        given[indices] = _Indices(given[indices], _here.args)
        given[results] = _Results(given[results])
        try:
            return original(*given)
        finally:
            _here.args = None

    put(module, "_worker_loop", _worker_loop)


def fetch(module, put):
    """torch.utils.data._utils.fetch: the fetchers call dataset[i] and collate in whichever process does the work."""

    def of_fetch(original):
        @functools.wraps(original)
        def fetch(self, index):
            begin = now()
            if not begin:
                return original(self, index)
            if not getattr(self, "_millrace", False):
                _prepare(self)
            begun = cpu.begin()
            try:
                return original(self, index)
            finally:
                span("data_loader", "fetch", begin, cpu.end(begun, dict(getattr(_here, "args", None) or ())))

        return fetch

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        owner = getattr(module, name, None)
        if owner is not None and "fetch" in owner.__dict__:
            put(owner, "fetch", of_fetch(owner.__dict__["fetch"]))


def _prepare(fetcher):
    fetcher._millrace = True
    fetcher.collate_fn = _trace.Traced(fetcher.collate_fn, "data_loader", "collate")  # a function or a class
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = _Items(fetcher.dataset_iter, type(fetcher.dataset).__name__ + ".__next__")
    elif hasattr(fetcher, "dataset"):
        fetcher.dataset = _Dataset(fetcher.dataset)


class _Dataset(getattr(_trace, "Items", object)):
    """A data set whose items are spans; everything else is the data set's own."""

    def __new__(cls, inner):
        return super().__new__(cls, inner, "data_loader", type(inner).__name__ + ".__getitem__")

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "__getitems__" and callable(found):  # a whole batch at once, since PyTorch 2.0
            return _trace.Traced(found, "data_loader", type(self._inner).__name__ + ".__getitems__")
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


def pin_memory(module, put):
    """torch.utils.data._utils.pin_memory: copies into memory that the device can read; it calls itself for the parts
    of a batch."""
    original = getattr(module, "pin_memory", None)
    if original is None:
        return

    @functools.wraps(original)
    def pin_memory(*args, **kwargs):
        begin = now()
        if not begin or getattr(_here, "pinning", False):
            return original(*args, **kwargs)
        _here.pinning = True
        try:
            return original(*args, **kwargs)
        finally:
            _here.pinning = False
            span("copy", "pin_memory", begin, None)

    put(module, "pin_memory", pin_memory)


def own_torch(module, put):
    """millrace.torch: the wait; what its threads do shows as their calls."""
    iterator = getattr(module, "_Iterator", None)
    if iterator is None:
        return
    original = iterator.__dict__["__init__"]

    @functools.wraps(original)
    def __init__(self, owner, engine, n_batches, first):
        original(self, owner, engine, n_batches, first)
        _begin_epoch(self, owner)
        said = getattr(self, "_millrace", None)
        if said is not None:
            said.update(batch=first, workers=owner.num_workers or os.cpu_count() or 1, prefetch=owner._places - 1)

    put(iterator, "__init__", __init__)
    put(iterator, "__next__", _of_next(iterator.__dict__["__next__"]))


def own_numpy(module, put):
    """millrace.numpy: the same of a generator."""
    original = module.Loader.__dict__["__iter__"]

    class Steps:
        def __init__(self, loader):
            self._batches = original(loader)
            _begin_epoch(self, loader)

        def __next__(self):
            return next(self._batches)

    Steps.__next__ = _of_next(Steps.__next__)

    @functools.wraps(original)
    def __iter__(self):
        steps = Steps(self)
        while True:
            try:
                batch = steps.__next__()
            except StopIteration:
                return
            yield batch

    put(module.Loader, "__iter__", __iter__)
