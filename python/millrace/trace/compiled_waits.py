"""Waits for tf.data inside compiled functions: Keras' fit, and training steps that call next(iterator) in a
tf.function.

In a compiled function Python is not there when the batch is fetched. While the function is being traced, the
iterator's operation gets a time stamp before it and one after it; both go into a queue of this function alone, which
is emptied after some calls:

    Timestamp ──control──> IteratorGetNext ──control──> Timestamp ──> queue of (begin, end)

Only where the wait can be nothing but a wait: one iterator, in the outermost function's own graph, without a
distribution strategy. In a loop of the graph (steps_per_execution > 1) the next batch is fetched while the last one is
computed, and no stamp tells which of it was waited for: such programs are left as they are, and so is everything that
this version of TensorFlow does not have. Results are the same: no operation of the program gets another input, and
random numbers are counted by graph operations that draw them.

A function that computes gradients while it is traced trains: its calls tell `optimizer.step`, by which training is
told from evaluation.
"""

import atexit
import functools
import itertools
import os
import sys
import threading
import time

from . import _trace, accelerator, now, span

MOST = 256  # waits that a function keeps until they are told
OFTEN_S = 0.5  # at least so often
AUTO = 2  # batches ahead where tf.data chooses

_here = threading.local()  # call: the outermost function being called
_numbers = itertools.count()  # of functions with waits: each has a loader of its own, as far as anybody can see
_watch = getattr(_trace, "cpu_watch", lambda: None)
_cpu_at = getattr(_trace, "cpu_at", lambda at: None)


class _Stamps:
    """What one function tells of its waits. The queue is emptied now and then, because whoever asks TensorFlow for a
    value gives up Python's lock, and may
    wait for it. It has no limit: nothing in the program may ever wait for us."""

    def __init__(self, queue, graph):
        self.queue, self.graph, self.blind = queue, graph, False
        self.calls = []  # those not told yet
        self.batch, self.epoch, self.loader, self.told, self.ahead = 0, -1, next(_numbers), time.time(), {}


def _modules():
    """TensorFlow's own, as it has been imported."""
    names = (
        "tensorflow.python.framework.ops",
        "tensorflow.python.ops.gen_logging_ops",
        "tensorflow.python.ops.data_flow_ops",
        "tensorflow.python.util.nest",
        "tensorflow.python.distribute.distribute_lib",
    )
    return [sys.modules[name] for name in names]


def _stampable(call, ops, distribute):
    """The graph of the outermost function itself, and nothing that spreads it over devices."""
    graph = ops.get_default_graph()
    if (
        call is None
        or distribute.has_strategy()
        or type(graph).__name__ != "FuncGraph"
        or getattr(call, "_jit_compile", None)
    ):
        return None
    with ops.init_scope():
        eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly()
    outer = getattr(graph, "outer_graph", None)
    return graph if eager and not hasattr(outer, "captures") else None


def in_graph(original, iterator, args, kwargs):
    """Called for an iterator of a graph being built."""
    call = getattr(_here, "call", None)
    stamps = getattr(call, "_millrace_waits", None)
    try:
        ops, logging, queues, nest, distribute = _modules()
        graph = _stampable(call, ops, distribute)
        if graph is None or (
            stamps is not None and stamps.graph is graph
        ):  # a second wait: nobody knows which is which
            if stamps is not None:
                stamps.blind = True
            return original(iterator, *args, **kwargs)
        if stamps is None:
            with ops.init_scope(), ops.device("CPU:0"):
                stamps = _Stamps(queues.FIFOQueue(-1, ["float64", "float64"], [[], []], name="millrace_waits"), graph)
            atexit.register(_flush, stamps)
        with ops.device("CPU:0"):
            before = logging.timestamp()
    except Exception:
        return original(iterator, *args, **kwargs)
    with ops.control_dependencies([before]):
        batch = original(iterator, *args, **kwargs)
    try:
        outputs = [t for t in nest.flatten(batch, expand_composites=True) if hasattr(t, "op")]
        with ops.control_dependencies(outputs), ops.device("CPU:0"):
            after = logging.timestamp()
            stamps.queue.enqueue([before, after])
        stamps.graph = graph
        call._millrace_waits = stamps
        _watch()
    except Exception:
        call._millrace_waits = None
    return batch


def _called(call, begin, failed, args):
    """After a call. One that failed found the data at their end: nothing came."""
    stamps, end = call._millrace_waits, now()
    iterator = next((x for x in args if hasattr(x, "_dataset")), None)
    if iterator is not None and not hasattr(
        iterator, "_millrace_begun"
    ):  # a new epoch; the one before need not have come to its end
        iterator._millrace_begun, stamps.ahead = True, read_ahead(iterator._dataset)
        stamps.epoch, stamps.batch = stamps.epoch + 1, 0
    if not failed:
        said = dict(stamps.ahead, batch=stamps.batch, epoch=max(stamps.epoch, 0), loader=stamps.loader)
        stamps.calls.append((begin, end, getattr(call, "_millrace_trains", False), said))
        stamps.batch += 1
    if failed or len(stamps.calls) >= MOST or abs(time.time() - stamps.told) > OFTEN_S:
        _flush(stamps)
    if failed:
        span("data_loader", "OwnedIterator.end", begin, {"loader": stamps.loader, "epoch": stamps.epoch}, end)


def _flush(stamps):
    """Tells of the calls so far."""
    calls, stamps.calls = stamps.calls, []
    here, stamps.told = now(), time.time()
    if not calls or not here:
        return
    count = int(stamps.queue.size())
    begins, ends = (x.numpy().tolist() for x in stamps.queue.dequeue_many(count)) if count else ((), ())
    if stamps.blind or count != len(calls):  # a call that did not wait, or two: nobody knows which is which
        return
    for (begin, end, trains, said), *wait in zip(calls, begins, ends):
        wait = [here - accelerator.ticks((stamps.told - x) * 1e9) for x in wait]
        _tell([min(max(x, begin), end) for x in wait], end, trains, said)


def _tell(wait, end, trains, said):
    used = [_cpu_at(x) for x in wait]
    if None not in used:
        said["cpu_ns"] = max(used[1] - used[0], 0)
    span("data_loader", "OwnedIterator.next", wait[0], said, wait[1])
    if trains:
        span("train", "optimizer.step", wait[1], None, end)


def _injects(dataset):
    """tf.data puts a prefetch of its own behind a last stage that has none, unless the options say no."""
    options = dataset.options()
    return options.experimental_optimization.inject_prefetch is not False and options.autotune.enabled is not False


def read_ahead(dataset):
    """What a pipeline says of itself: batches ahead, calls side by side. What tf.data tunes itself counts as far as it
    may go: as many calls as there are CPUs, AUTO batches or more, which a loop that waits never finds."""
    ahead, workers = None, 1
    try:
        injects = _injects(dataset)
        for _ in range(64):
            name = type(dataset).__name__
            if name == "_PrefetchDataset" and ahead is None:
                size = int(dataset._buffer_size)
                ahead = size if size >= 0 else AUTO
            elif name in ("_ParallelMapDataset", "_ParallelInterleaveDataset", "_ParallelBatchDataset"):
                calls = int(dataset._num_parallel_calls)
                workers = max(workers, calls if calls > 0 else len(os.sched_getaffinity(0)))
            dataset = getattr(dataset, "_input_dataset", None)
            if dataset is None:
                break
    except Exception:
        return {}
    ahead = (AUTO if injects else 0) if ahead is None else ahead
    return {"prefetch": ahead, "workers": workers if ahead or workers > 1 else 0}


def function(module, put):
    """tensorflow.python.eager.polymorphic_function: a call from outside of all functions."""
    owner = getattr(module, "Function", None)
    original = owner.__dict__.get("__call__") if owner is not None else None
    if original is None or hasattr(
        original, "_millrace"
    ):  # older versions have it elsewhere, newer ones in both places
        return

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if getattr(_here, "call", None) is not None:
            return original(self, *args, **kwargs)
        begin, failed = now(), True
        if not begin:
            return original(self, *args, **kwargs)
        _here.call = self
        try:
            result = original(self, *args, **kwargs)
            failed = False
            return result
        finally:
            _here.call = None
            try:
                if getattr(self, "_millrace_waits", None) is not None:
                    _called(self, begin, failed, args)
                elif getattr(self, "_millrace_trains", False):
                    span("train", "optimizer.step", begin)
            except Exception as error:
                self._millrace_waits = None
                sys.stderr.write("millrace: the waits of a compiled function are not seen: %s\n" % error)

    __call__._millrace = True
    put(owner, "__call__", __call__)


def gradients(module, put):
    """tensorflow.python.eager.backprop: who asks for gradients trains."""
    owner = getattr(module, "GradientTape", None)
    original = owner.__dict__.get("gradient") if owner is not None else None
    if original is None:
        return

    @functools.wraps(original)
    def gradient(self, *args, **kwargs):
        call, begin = getattr(_here, "call", None), now()
        if call is not None:
            call._millrace_trains = True
        try:
            return original(self, *args, **kwargs)
        finally:
            if begin and call is None:
                span("train", "optimizer.step", begin)

    put(owner, "gradient", gradient)
