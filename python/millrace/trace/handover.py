"""Training loops that have no data loader: what the thread that trains did between two steps, what it took from
others, and what pools did for it.

Train spans (`backward`, `optimizer.step`) carry `awake_ns`: since the thread's last one, how long it was on a CPU or
ready to run. What is left of that time it slept; in which call the trace knows, or it was a wait that nobody sees. In
a process that uses a DataLoader, whose waits tell more, they say nothing. `major_faults` counts the pages of mapped
files for which the thread slept.

They also carry `forward_ns`: how long before the span the thread first called a module that has parameters, since its
last one. What a loop computes between reading and that is its data's, what follows is the model's. For that
torch.nn.Module's call is watched, until the process uses a DataLoader. Each call of a whole model (a module that has
parameters, called by no other one) is a span, too: `forward`, with `evaluates` where it is in eval mode or computes no
gradients. Between the last train span and that call the accelerator's idle time is measured, as it is during a
DataLoader's waits (accelerator.py). `device` says that a model lies on a CUDA device: then copies may wait for the
device before the forward pass. (That CUDA was initialised says little: a look at the device does it.)

Handovers are the calls by which a thread takes the result of another thread or process: futures, pools, queues between
processes. Only a thread that trains tells of them, and not inside a wait of PyTorch's DataLoader; workers and
libraries use the same classes. Before its first step a thread remembers the last one, which is the wait for its first
batch.

Tasks are what a pool's worker was given to do, with its CPU time: they say what a handover waited for. What a thread
or process does between two puts into a queue of batches is a task, too.
"""

import functools
import itertools
import os
import sys
import threading
from time import perf_counter_ns, thread_time_ns

from . import _trace, accelerator, cpu, now, span

_delay = getattr(_trace, "cpu_delay", int)
_faults = getattr(_trace, "major_faults", int)
# since: when this thread's last train span ended; forward: when it called a module, 0 not yet; first: its last
# handover before; asks_all: it slept long, so that it is worth while to ask about other threads
_here = threading.local()
TOGETHER_NS = 100000  # between handovers for one batch
saved = threading.local()  # at: when this thread's last checkpoint was written; None: it has trained since
_optimizers = itertools.count()
loader = _here  # torch_loader's: `inside` while the thread is in a wait of a DataLoader


def _forget():
    _here.__dict__.clear()  # a forked worker is not the thread that trained


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Watch:
    """torch.nn.Module.__call__, replaced while it is watched."""

    put = owner = original = None
    loader_used = False


def compiling():  # instrument.py puts PyTorch's here
    """Whether a compiler traces the code now; instrument.py puts PyTorch's function here."""
    return False


def modules(module, put):
    """torch.nn.modules.module"""
    _Watch.put, _Watch.owner = put, getattr(module, "Module", None)
    _watch()


def _watch():
    """Replaces the call, once."""
    original = getattr(_Watch.owner, "__dict__", {}).get("__call__")
    if _Watch.loader_used or _Watch.original is not None or original is None:
        return

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if compiling() or getattr(_here, "within", False):
            return original(self, *args, **kwargs)
        weight = next(self.parameters(), None)
        if weight is None:
            return original(self, *args, **kwargs)
        if getattr(weight, "is_cuda", False):
            _here.device = True
        evaluates = not (self.training and sys.modules["torch"].is_grad_enabled())
        if not evaluates and getattr(_here, "forward", None) == 0:
            _here.forward = perf_counter_ns()
            accelerator.wait_ends(_here.__dict__.pop("idle", None), {"batch": -1, "epoch": -1, "loader": -1})
        begin, said = train_begins(False) if evaluates else (now(), None)
        if not begin:
            return original(self, *args, **kwargs)
        _here.within = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _here.within = False
            if evaluates:
                span("train", "forward", begin, dict(said, evaluates=1))
                _since()
            else:
                span("train", "forward", begin, None)

    _Watch.original = original
    _Watch.put(_Watch.owner, "__call__", __call__)


def loader_used():
    """A DataLoader's waits tell all there is to know."""
    if not _Watch.loader_used and _Watch.original is not None:
        _Watch.put(_Watch.owner, "__call__", _Watch.original)
    _Watch.loader_used = True


def _forward():
    begun = getattr(_here, "forward", None)
    if not begun:
        return {}
    said = {"forward_ns": perf_counter_ns() - begun}
    if getattr(_here, "device", False):
        said["device"] = 1
    return said


def train_begins(trains=True):
    """A time stamp for train_ends (0 without the tracer), and arguments of the span."""
    begin, since = now(), getattr(_here, "since", None)
    if trains:
        saved.at = None
    if since is None:
        first = _here.__dict__.pop("first", None)
        if first and begin:
            span("queue", first[0], first[1], None, first[2])
        return begin, {}
    if not begin or not since:
        return begin, {}
    wall, busy = perf_counter_ns() - since[0], thread_time_ns() - since[1]
    said, off = _forward(), wall - busy > cpu.OFF * wall
    _here.asks_all = off and wall >= cpu.ALL_NS
    if off:
        said["delay_ns"] = max(_delay() - since[2], 0)
        busy += said["delay_ns"]
        since[3].since(said, said["delay_ns"])
        if _faults() > since[4]:
            said["major_faults"] = _faults() - since[4]
    return begin, dict(said, awake_ns=min(busy, wall))


def train_ends(label, begin, said, optimizer=None):
    """The span of a step ends; said: its arguments from train_begins()."""
    if optimizer is not None:
        said["optimizer"] = _number(optimizer)
    span("train", label, begin, said)
    if _Watch.original is None:
        _watch()
    _here.forward = 0
    if not _Watch.loader_used:
        _here.idle = accelerator.begin()
    _since()


def _since():
    """From here on the thread's time is that of its next span."""
    if _Watch.loader_used:
        _here.since = ()
    else:
        others = cpu.Others(getattr(_here, "asks_all", False))
        _here.since = perf_counter_ns(), thread_time_ns(), _delay(), others, _faults()


def _number(optimizer):
    """Tells the optimisers of one loop apart: a step of training may have several."""
    number = getattr(optimizer, "_millrace_number", None)
    if number is None:
        number = optimizer._millrace_number = next(_optimizers)
    return number


def _taken(label, begin):
    if hasattr(_here, "since"):
        span("queue", label, begin, None)
        return
    first, end = getattr(_here, "first", None), now()
    _here.first = label, first[1] if first and begin - first[2] < TOGETHER_NS else begin, end


def _begins():
    return 0 if getattr(loader, "inside", False) else now()


def _taking(original, label):
    def traced(*args, **kwargs):
        begin = _begins()
        if not begin:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            _taken(label, begin)

    return functools.update_wrapper(traced, original)


def _taking_each(original, label):
    """Of a generator: each item is taken."""

    def traced(*args, **kwargs):
        inner = original(*args, **kwargs)
        try:
            while True:
                begin = _begins()
                try:
                    item = next(inner)
                except StopIteration:
                    return
                finally:
                    if begin:
                        _taken(label, begin)
                yield item
        finally:
            inner.close()

    return functools.update_wrapper(traced, original)


def _take(put, owner, name, label, wrap=_taking):
    original = getattr(owner, "__dict__", {}).get(name)
    if callable(original):
        put(owner, name, wrap(original, label))


def futures(module, put):
    """concurrent.futures._base: Executor.map asks each Future, too."""
    _take(put, getattr(module, "Future", None), "result", "Future.result")
    _take(put, module, "as_completed", "as_completed", _taking_each)
    _take(put, module, "wait", "wait")


def queues(module, put):
    """multiprocessing.queues"""
    for name in ("Queue", "SimpleQueue"):
        _take(put, getattr(module, name, None), "get", "multiprocessing.%s.get" % name)
    _give(put, getattr(module, "Queue", None))


# ---- producers: who puts into a queue made what it puts ----


def _trains():
    """A thread that takes batches: it has trained, or is the program's first."""
    return hasattr(_here, "since") or threading.current_thread() is threading.main_thread() and not _is_child()


def _is_child():
    parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
    return parent is not None and parent() is not None


def _produces(queue):
    """Whether this thread makes what a thread that trains takes from the queue. What another process takes is not
    known: a child that puts into a queue is taken for a producer."""
    if _Watch.loader_used or getattr(loader, "args", None) is not None or _trains():
        return False
    return getattr(queue, "_millrace_taken", False) or _is_child()


def _giving(original):
    """put(): since the thread's last one it made what it puts now: a task."""

    def traced(self, *args, **kwargs):
        begin = now() if _produces(self) else 0
        if not begin:
            return original(self, *args, **kwargs)
        made = _here.__dict__.pop("made", None)
        if made is not None and made[0]:
            span("pool", "task", made[0], cpu.end(made[1], {}), begin)
        try:
            return original(self, *args, **kwargs)
        finally:
            _here.made = now(), cpu.begin()

    return functools.update_wrapper(traced, original)


def _give(put, owner):
    original = getattr(owner, "__dict__", {}).get("put")
    if callable(original):
        put(owner, "put", _giving(original))


def thread_queues(module, put):
    """queue: every get is a span; a queue from which a thread takes batches is remembered."""
    owner = getattr(module, "Queue", None)
    original = getattr(owner, "__dict__", {}).get("get")
    if not callable(original):
        return

    @functools.wraps(original)
    def get(self, *args, **kwargs):
        begin = now()
        if not begin:
            return original(self, *args, **kwargs)
        if _trains():
            self._millrace_taken = True
        try:
            return original(self, *args, **kwargs)
        finally:
            span("queue", "Queue.get", begin, None)

    put(owner, "get", get)
    _give(put, owner)


# ---- pools ----


def _task(function):
    def task(*args, **kwargs):
        begin = now()
        if not begin:
            return function(*args, **kwargs)
        begun = cpu.begin()
        try:
            return function(*args, **kwargs)
        finally:
            span("pool", "task", begin, cpu.end(begun, {}))

    return task


class _Tasks:
    """The queue from which a pool's worker gets what to do; everything else is the queue's own."""

    def __init__(self, inner, change):
        self._inner, self._change = inner, change

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get(self, *args, **kwargs):
        return self._change(self._inner.get(*args, **kwargs))


def _of_worker(original, change):
    """A worker's loop, whose first argument is the queue of its tasks."""

    def traced(queue, *args, **kwargs):
        return original(_Tasks(queue, change) if now() else queue, *args, **kwargs)

    return functools.update_wrapper(traced, original)


def pool(module, put):
    """multiprocessing.pool, of processes and of threads"""
    _take(put, getattr(module, "ApplyResult", None), "get", "ApplyResult.get")
    for name in ("next", "__next__"):
        _take(put, getattr(module, "IMapIterator", None), name, "IMapIterator.next")
    raises = getattr(module, "_helper_reraises_exception", None)  # the loop asks for it by name

    def change(task):
        if not isinstance(task, tuple) or len(task) != 5 or task[2] is raises:
            return task
        return task[:2] + (_task(task[2]),) + task[3:]

    if callable(getattr(module, "worker", None)):
        put(module, "worker", _of_worker(module.worker, change))


def process_executor(module, put):
    """concurrent.futures.process"""

    def change(item):
        if hasattr(item, "fn"):
            item.fn = _task(item.fn)
        return item

    if callable(getattr(module, "_process_worker", None)):
        put(module, "_process_worker", _of_worker(module._process_worker, change))


def thread_executor(module, put):
    """concurrent.futures.thread: the task ends before its result is there for others."""
    owner = getattr(module, "_WorkItem", None)
    original = getattr(owner, "__dict__", {}).get("run")
    if original is None:
        return

    @functools.wraps(original)
    def run(self, *args, **kwargs):
        if now():
            if hasattr(self, "fn"):
                self.fn = _task(self.fn)
            elif isinstance(getattr(self, "task", None), tuple):  # since Python 3.14
                self.task = (_task(self.task[0]),) + self.task[1:]
        return original(self, *args, **kwargs)

    put(owner, "run", run)
