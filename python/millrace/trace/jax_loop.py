"""JAX: the calls of functions that the program compiles (`jax.jit`, `jax.pmap`), and its waits for the device. JAX has
no optimiser and no step; which of the compiled functions is the training's is decided by the explanation, from all
calls (src/explain/explain_jit.c).

A call is a span `train`, `jit NAME`: what the thread did since its last one, as in train spans of PyTorch
(handover.py), `optimizer`, a number for each function, and, where the function's name says so, `evaluates`: 1 for one
that evaluates or predicts, 0 for one that trains. Calls return while the device computes. `wait for device` are the
program's waits for results that are not ready: block_until_ready, and values that are turned into Python's or NumPy's.

What must stay true: a compiled function keeps its methods (lower, trace ...), its name, signature and pickling; calls
inside of other compiled functions, which are made while those are being traced, tell nothing. JAX's own functions are
compiled by internal names and tell nothing either.
"""

import functools
import itertools
import re
import threading
import types

from . import handover, now, span

_EVALUATES = re.compile(r"eval|valid|test|predict|infer|sampl|generat|init|metric|accura", re.IGNORECASE)
_TRAINS = re.compile(r"train|update|step|optim|fit", re.IGNORECASE)
_here = threading.local()  # within: in a call of a compiled function
_numbers = itertools.count()


class _Compiled:
    """A compiled function whose calls are spans; everything else is the function's own."""

    def __init__(self, function):
        self._function = function
        functools.update_wrapper(self, function)
        self.__wrapped__ = getattr(function, "__wrapped__", function)
        name = str(getattr(function, "__name__", "") or "function").strip("<>")
        self._label, self._number = "jit " + name, next(_numbers)
        self._evaluates = 1 if _EVALUATES.search(name) else 0 if _TRAINS.search(name) else None

    def __call__(self, *args, **kwargs):
        if getattr(_here, "within", False):
            return self._function(*args, **kwargs)
        begin, said = handover.train_begins()
        if not begin:
            return self._function(*args, **kwargs)
        said["optimizer"] = self._number
        if self._evaluates is not None:
            said["evaluates"] = self._evaluates
        _here.within = True
        try:
            return self._function(*args, **kwargs)
        finally:
            _here.within = False
            handover.train_ends(self._label, begin, said)

    def __get__(self, owner, kind=None):
        return self if owner is None else types.MethodType(self, owner)

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "_function"), name)

    def __repr__(self):
        return repr(self._function)

    def __reduce__(self):
        return _Compiled, (self._function,)


def _compiling(original):
    """jax.jit and jax.pmap, also as decorators with arguments."""

    @functools.wraps(original)
    def traced(*args, **kwargs):
        made = original(*args, **kwargs)
        if hasattr(made, "lower") and not isinstance(made, type):
            return _Compiled(made)
        return _after(made) if callable(made) else made

    return traced


def _after(decorator):
    @functools.wraps(decorator)
    def decorated(*args, **kwargs):
        made = decorator(*args, **kwargs)
        return _Compiled(made) if hasattr(made, "lower") else made

    return decorated


def compiled(module, put):
    """jax"""
    for name in ("jit", "pmap"):
        if callable(getattr(module, name, None)):
            put(module, name, _compiling(getattr(module, name)))
    original = getattr(module, "block_until_ready", None)
    if callable(original):
        put(module, "block_until_ready", _blocking(original))


def _blocking(original):
    @functools.wraps(original)
    def block_until_ready(x):
        begin = 0 if getattr(_here, "within", False) or getattr(_here, "waits", False) else now()
        if not begin:
            return original(x)
        _here.waits = True
        try:
            return original(x)
        finally:
            _here.waits = False
            span("train", "wait for device", begin, None)

    return block_until_ready


def _when_ready(original):
    """A method of an array that waits for its values. It may be one of C++, whose names are not Python's."""

    def traced(self, *args, **kwargs):
        begin = 0
        if not (getattr(_here, "within", False) or getattr(_here, "waits", False)):
            try:
                begin = 0 if self.is_ready() else now()
            except Exception:  # a deleted array: the original says so
                pass
        if not begin:
            return original(self, *args, **kwargs)
        _here.waits = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _here.waits = False
            span("train", "wait for device", begin, None)

    traced.__name__, traced.__doc__ = str(getattr(original, "__name__", "traced")), getattr(original, "__doc__", None)
    return traced


def arrays(module, put):
    """jax._src.array: what turns an array into values goes through `_value`."""
    owner = getattr(module, "ArrayImpl", None)
    known = getattr(owner, "__dict__", {})
    if callable(known.get("block_until_ready")):
        put(owner, "block_until_ready", _when_ready(known["block_until_ready"]))
    value = known.get("_value")
    if isinstance(value, property) and value.fget is not None:
        put(owner, "_value", property(_when_ready(value.fget), value.fset, value.fdel, value.__doc__))


def _rank(original, module):
    @functools.wraps(original)
    def initialize(*args, **kwargs):
        begin = now()
        result = original(*args, **kwargs)
        try:
            state = module.global_state
            span("startup", "init_process_group", begin, {"rank": state.process_id, "world": state.num_processes})
        except Exception:  # a version that keeps its numbers elsewhere
            pass
        return result

    return initialize


def distributed(module, put):
    """jax._src.distributed: which process this is."""
    owner = getattr(module, "State", None)
    if callable(getattr(module, "initialize", None)) and owner is not None:
        put(module, "initialize", _rank(module.initialize, module))


def collectives(module, put):
    """jax.experimental.multihost_utils: waits for other processes that Python makes."""

    def waiting(original, label):
        @functools.wraps(original)
        def traced(*args, **kwargs):
            begin = now()
            try:
                return original(*args, **kwargs)
            finally:
                if begin:
                    span("barrier", label, begin, None)

        return traced

    for name in ("sync_global_devices", "process_allgather", "broadcast_one_to_all", "reached_preemption_sync_point"):
        if callable(getattr(module, name, None)):
            put(module, name, waiting(getattr(module, name), "jax." + name))
