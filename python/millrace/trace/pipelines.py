"""Input pipelines of which nobody says who made which batch: tf.data, Grain, torchdata's nodes, DALI
and Ray Data.

tf.data works in threads of its own, whose calls are in the trace and whose computing is not: a wait says how much CPU
time the process used during it (`cpu_ns`), which is theirs, as the program waits, and how much its other threads used
since the wait before (`between_ns`). Grain's threads and worker processes are Python: an element that a thread reads
ahead is `grain.element`, what a worker process makes is `fetch`, in the order in which the program gets them. Threads
and processes of torchdata's nodes tell what they map one by one, too (`torchdata.element`).

What must stay true is that of torch_loader.py: names, arguments and exceptions are the original's, and what a version
does not have is left alone.
"""

import functools
import threading
from time import process_time_ns, thread_time_ns

from . import compiled_waits, cpu, now, span

_here = threading.local()  # inside: this thread waits already; begin: since when a worker process is at its element


def _waiting(original, label, ahead=None):
    """`ahead`: what the iterator says of its readers, as arguments of the wait."""

    @functools.wraps(original)
    def traced(self, *args, **kwargs):
        begin = now()
        if not begin:
            return original(self, *args, **kwargs)
        if getattr(_here, "inside", False):  # a stage of the pipeline inside another one
            try:
                return original(self, *args, **kwargs)
            finally:
                span("data_loader", label + ".next", begin)
        used, own, name = process_time_ns(), thread_time_ns(), label + ".next"
        last = getattr(_here, "last", None)
        said = (
            {} if last is None else {"between_ns": max(used - own - last, 0)}
        )  # by other threads, since the last wait
        _here.inside, begun = True, cpu.begin()
        try:
            return original(self, *args, **kwargs)
        except StopIteration:
            name = label + ".end"
            raise
        finally:
            _here.inside = False
            cpu.end(begun, said)
            all_threads = process_time_ns() - used
            others = said.pop("threads_delay_ns", 0)
            if 2 * said["cpu_ns"] < all_threads:  # else this thread does the work itself, and waits for a CPU itself
                said.pop("delay_ns", None)
                if others:
                    said["threads_delay_ns"] = others
            said["cpu_ns"] = all_threads
            if ahead is not None:
                said.update(ahead(self))
            _here.last = process_time_ns() - thread_time_ns()
            span("data_loader", name, begin, said)

    return traced


def tensorflow(module, put):
    """tensorflow.python.data.ops.iterator_ops: eagerly a wait, in a graph that is being built something to put stamps
    around."""
    owner = getattr(module, "OwnedIterator", None)
    eager = getattr(getattr(module, "context", None), "executing_eagerly", lambda: True)

    def change(name, original):
        waits = _waiting(original, "OwnedIterator")

        @functools.wraps(original)
        def traced(self, *args, **kwargs):
            if eager():
                return waits(self, *args, **kwargs)
            return compiled_waits.in_graph(original, self, args, kwargs)

        put(owner, name, traced)

    for name in ("__next__", "get_next"):
        if owner is not None and name in owner.__dict__:
            change(name, owner.__dict__[name])


def tensorflow_function(module, put):
    """tf.function: see compiled_waits.py."""
    compiled_waits.function(module, put)


def tensorflow_gradients(module, put):
    """tf.GradientTape: see compiled_waits.py."""
    compiled_waits.gradients(module, put)


def torchdata_loader(module, put):
    """torchdata.nodes.loader: the iterator that a program sees."""
    owner = getattr(module, "LoaderIterator", None)
    if owner is not None and "next" in owner.__dict__:
        put(owner, "next", _waiting(owner.__dict__["next"], "torchdata.LoaderIterator"))


def torchdata_workers(module, put):
    """torchdata.nodes.map, or what it imports: the loop of a worker, a thread or a process, calls a function of the
    program's for each item."""
    original = getattr(module, "_apply_udf", None)
    code = getattr(original, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    if "udf" not in names:
        return
    place = names.index("udf")

    @functools.wraps(original)
    def _apply_udf(*args, **kwargs):
        if len(args) > place and now():
            args = args[:place] + (_element(args[place]),) + args[place + 1 :]
        return original(*args, **kwargs)

    put(module, "_apply_udf", _apply_udf)


def _element(function):
    def element(*args, **kwargs):
        begin, begun = now(), cpu.begin()
        try:
            return function(*args, **kwargs)
        finally:
            span("data_loader", "torchdata.element", begin, cpu.end(begun, {}))

    return element


def grain_loader(module, put):
    """grain ... data_loader: the iterators that a program sees."""
    for name in ("DataLoaderIterator", "PyGrainDatasetIterator"):
        owner = getattr(module, name, None)
        if owner is not None and "__next__" in owner.__dict__:
            put(owner, "__next__", _waiting(owner.__dict__["__next__"], "grain.DataLoader"))


def grain_dataset(module, put):
    """grain ... dataset: iterators are subclasses, one per stage; each is changed when it is defined."""
    base = getattr(module, "DatasetIterator", None)
    if base is None:
        return

    def change(owner):
        if "__next__" in owner.__dict__:
            put(owner, "__next__", _waiting(owner.__dict__["__next__"], owner.__name__.lstrip("_")))

    def __init_subclass__(cls, **kwargs):
        super(base, cls).__init_subclass__(**kwargs)
        change(cls)

    change(base)
    if "__init_subclass__" not in base.__dict__:
        put(base, "__init_subclass__", classmethod(__init_subclass__))


def grain_threads(module, put):
    """grain ... prefetch: _getitem runs in a thread of the pool, or in the program's own where nothing is read
    ahead."""
    original = getattr(module, "_getitem", None)
    if original is None:
        return

    @functools.wraps(original)
    def _getitem(*args, **kwargs):
        begin, begun = now(), cpu.begin()
        try:
            return original(*args, **kwargs)
        finally:
            span("data_loader", "grain.element", begin, cpu.end(begun, {}))

    put(module, "_getitem", _getitem)


def _dali_ahead(iterator):
    try:
        pipe = iterator._pipes[0]
        return {"workers": int(pipe.num_threads), "prefetch": int(pipe.cpu_queue_size)}
    except Exception:  # another kind of iterator, or version
        return {}


def dali(module, put):
    """nvidia.dali.plugin.pytorch and others: threads of C++ make the batches."""
    owner = getattr(module, "DALIGenericIterator", None)
    if owner is not None and "__next__" in owner.__dict__:
        put(owner, "__next__", _waiting(owner.__dict__["__next__"], "DALIIterator", _dali_ahead))


def ray_tasks(module, put):
    """ray.data ... map_operator: a task of Ray Data's, in a worker process, makes its blocks one by one."""
    original = getattr(module, "_map_task", None)
    if not callable(original):
        return

    @functools.wraps(original)
    def _map_task(*args, **kwargs):
        blocks, said = original(*args, **kwargs), None
        while True:
            begin = now()
            begun = cpu.begin() if begin else None
            try:
                block = blocks.send(said)
            except StopIteration as end:
                return end.value
            finally:
                if begin:
                    span("pool", "ray task", begin, cpu.end(begun, {}))
            said = yield block  # Ray answers with what it measured

    put(module, "_map_task", _map_task)


def grain_workers(module, put):
    """grain ... process_prefetch: the loop of a worker process, which is started by its name."""
    original = getattr(module, "_put_dataset_elements_in_buffer", None)
    queue = getattr(module, "grain_queue", None)
    give = getattr(queue, "add_element_to_queue", None)
    if original is None or give is None:
        return

    @functools.wraps(original)
    def _put_dataset_elements_in_buffer(*args, **kwargs):
        _here.begin, _here.begun = now(), cpu.begin()
        return original(*args, **kwargs)

    @functools.wraps(give)
    def add_element_to_queue(*args, **kwargs):
        began, begin = getattr(_here, "begin", None), now()
        if began is None or not begin:
            return give(*args, **kwargs)
        span("data_loader", "fetch", began, cpu.end(_here.begun, {}), begin)
        try:
            return give(*args, **kwargs)
        finally:
            _here.begin, _here.begun = now(), cpu.begin()

    put(module, "_put_dataset_elements_in_buffer", _put_dataset_elements_in_buffer)
    put(queue, "add_element_to_queue", add_element_to_queue)
