"""Annotations of Python programs in the same trace as their I/O calls.

    from millrace import trace

    @trace.fn                                   # every call is a span named by module and function
    def read(path): ...

    with trace.region("step", category="train", epoch=1, step=7):
        ...
    for batch in trace.iterate(loader, "batch"):    # "batch.iter" is the wait, "batch.yield" the body
        ...
    trace.metadata(model="unet3d", epoch=3)
    trace.counter("queue", 12)

Without the tracer in the process (see `millrace trace`) all of this costs next to nothing and records nothing.
"""

from __future__ import annotations

import copyreg as _copyreg
import functools as _functools
import sys as _sys
import types as _types
from operator import length_hint as _length_hint

TYPE_CHECKING = False  # importing typing costs every traced program some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

try:
    from . import _trace as _trace
except ImportError:  # not built for this interpreter: annotations pass through
    from . import _passthrough as _trace  # type: ignore[no-redef]

active = _trace.active
start = _trace.start
stop = _trace.stop
now = _trace.now
span = _trace.span
metadata = _trace.metadata
Region = _trace.Region

__all__ = [
    "active",
    "counter",
    "fn",
    "instant",
    "iterate",
    "metadata",
    "now",
    "region",
    "span",
    "start",
    "stop",
    "timed",
]


_NOTHING = Region("", "")  # without the tracer one region serves all: it keeps nothing


def region(name: str, category: str = "app", **args: Any) -> Any:
    """A context manager: the block is a span with these arguments; update() adds more."""
    return Region(category, name, args or None) if _trace.present else _NOTHING


def fn(function: Any = None, *, category: str | None = None, name: str | None = None, **args: Any) -> Any:
    """Decorator: every call is a span. Use as @fn or @fn(category=..., name=..., key=value).

    Of an async function it is the time until its result; of a generator each step to the next item, so that what its
    user does in between does not count. Static methods, class methods and properties stay what they are; of a class it
    is `__init__`.
    """
    if function is None:
        return lambda f: fn(f, category=category, name=name, **args)
    if not _trace.present:
        return function
    if isinstance(function, (staticmethod, classmethod)):
        inner = fn(function.__func__, category=category, name=name, **args)
        return inner if isinstance(inner, classmethod) else type(function)(inner)
    if isinstance(function, property):
        for part, changed in ((function.fget, "getter"), (function.fset, "setter"), (function.fdel, "deleter")):
            if part is not None:  # as Python does it, by which a class of the program's own stays
                function = getattr(function, changed)(fn(part, category=category, name=name, **args))
        return function
    if not callable(function):  # an object that makes methods; cached_property has the function inside
        if isinstance(function, _functools.cached_property):
            function.func = fn(function.func, category=category, name=name, **args)
        return function
    label = name or str(getattr(function, "__qualname__", getattr(function, "__name__", "function")))
    kind = category or getattr(function, "__module__", None) or "app"
    if isinstance(function, type):
        made: Any = function
        try:
            if "__init__" in made.__dict__:
                made.__init__ = fn(made.__init__, category=kind, name=label, **args)
        except TypeError:  # a class of the interpreter itself
            pass
        return function
    flags = _flags(function)
    for flag, made in _STEPWISE:
        if flags & flag:
            return made(function, kind, label, args or None)
    if _wants_function(function):
        return _of_function(function, kind, label, args or None)
    traced = _trace.Traced(function, kind, label, args or None)
    try:
        _functools.update_wrapper(traced, function)
    except (AttributeError, TypeError):
        pass
    return classmethod(traced) if getattr(function, "__name__", "") in _CLASS_METHODS else traced


def _wants_function(function: Any) -> bool:
    """Whether a function must become one of Python's own, which is slower: for libraries that take nothing else, or to
    have a name at all. PyTorch's compilers want one for `forward` of a module."""
    if not _HAS_DICTS or getattr(function, "__name__", "") == "forward":
        return True
    return hasattr(function, "__code__") and any(library in _sys.modules for library in _FUNCTIONS_ONLY)


def _flags(function: Any) -> int:
    while isinstance(function, _functools.partial):
        function = function.func
    return getattr(getattr(function, "__code__", None), "co_flags", 0)


def _of_function(function: Any, category: str, label: str, args: Any) -> Any:
    def traced(*given: Any, **named: Any) -> Any:
        begin = now()
        try:
            return function(*given, **named)
        finally:
            span(category, label, begin, args)

    return _functools.update_wrapper(traced, function)


def _of_coroutine(function: Any, category: str, label: str, args: Any) -> Any:
    @_functools.wraps(function)
    async def traced(*given: Any, **named: Any) -> Any:
        begin = now()
        try:
            return await function(*given, **named)
        finally:
            span(category, label, begin, args)

    return traced


def _of_generator(function: Any, category: str, label: str, args: Any) -> Any:
    @_functools.wraps(function)
    def traced(*given: Any, **named: Any) -> Any:
        inner = function(*given, **named)
        step, value = inner.send, None
        while True:
            begin = now()
            try:
                item = step(value)
            except StopIteration as end:
                return end.value
            finally:
                span(category, label, begin, args)
            try:
                step, value = inner.send, (yield item)
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                step, value = inner.throw, error

    return _types.coroutine(traced) if _flags(function) & 0x100 else traced  # one that can be awaited stays so


def _of_async_generator(function: Any, category: str, label: str, args: Any) -> Any:
    @_functools.wraps(function)
    async def traced(*given: Any, **named: Any) -> Any:
        inner = function(*given, **named)
        step, value = inner.asend, None
        while True:
            begin = now()
            try:
                item = await step(value)
            except StopAsyncIteration:
                return
            finally:
                span(category, label, begin, args)
            try:
                step, value = inner.asend, (yield item)
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:
                step, value = inner.athrow, error

    return traced


_FUNCTIONS_ONLY = ("pydantic", "ray", "tensorflow")
# Before 3.9 objects of an extension like ours have no attributes of their own: no name to be pickled by.
_HAS_DICTS = _sys.version_info >= (3, 9)
# Python makes them class methods by itself, but only functions of its own.
_CLASS_METHODS = ("__init_subclass__", "__class_getitem__")
# inspect.CO_...; importing it takes 10 ms.
_STEPWISE = ((0x20, _of_generator), (0x80, _of_coroutine), (0x200, _of_async_generator))


def _reduce(traced: Any) -> Any:
    """Pickles a traced function as Python pickles functions: by name; one without a name of its own is made again."""
    found: Any = _sys.modules.get(traced.__module__)
    for part in traced.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is traced and not (traced.__module__ == "__main__" and _by_value(_sys._getframe(1))):
        return traced.__qualname__
    return _unfilled, (traced._category, traced._label, traced._args), (vars(traced), {"_function": traced._function})


def _by_value(frame: Any) -> bool:
    """Whether who pickles would carry a function of the script itself: cloudpickle (joblib, Dask, Ray) and dill do."""
    name = "pickle"
    while frame is not None and name == "pickle":
        name, frame = frame.f_globals.get("__name__", ""), frame.f_back
    return "cloudpickle" in name or name.split(".")[0] == "dill"


def _unfilled(category: str, label: str, args: Any) -> Any:
    """A traced function before its function is known, which may refer to it."""
    return _trace.Traced(_unfilled, category, label, args)


if isinstance(_trace.Traced, type):
    _copyreg.pickle(_trace.Traced, _reduce)


def iterate(iterable: Iterable[Any], name: str = "iterate", category: str = "app", **args: Any) -> Iterator[Any]:
    """Goes through an iterable; the wait for each item is a span '<name>.iter', the body '<name>.yield', with
    `step`."""
    iterator = iter(iterable)
    if not _trace.present:
        return iterator
    spans = _iterate(iterator, Region(category, f"{name}.iter", args), Region(category, f"{name}.yield", args), args)
    return (_SizedIteration if hasattr(type(iterator), "__len__") else _Iteration)(iterator, spans)


class _Iteration:
    """What iterate() goes through: an iterator whose steps are spans; everything else is the iterator's own."""

    __slots__ = ("_iterator", "_spans", "__weakref__")

    def __init__(self, iterator: Any, spans: Iterator[Any]) -> None:
        self._iterator, self._spans = iterator, spans

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        return next(self._spans)

    def __length_hint__(self) -> int:
        return _length_hint(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_iterator"), name)  # which a copy that is being made has not yet


class _SizedIteration(_Iteration):
    """Of a DataLoader, say, whose iterators have a length."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self._iterator)


def _iterate(iterator: Iterator[Any], wait: Any, body: Any, args: dict[str, Any]) -> Iterator[Any]:
    step = 0
    while True:
        wait.__enter__()
        try:
            item = next(iterator)
        except StopIteration:
            return
        args["step"] = step
        wait.__exit__()
        body.__enter__()
        try:
            yield item
        finally:  # also when the loop is left early
            body.__exit__()
        step += 1


def instant(name: str, category: str = "app", **args: Any) -> None:
    """A point in time."""
    _trace.instant(category, name, args or None)


def counter(name: str, value: float, category: str = "app") -> None:
    """A value over time."""
    _trace.counter(category, name, float(value))


def timed(name: str, epoch: int | None = None, category: str = "time") -> Any:
    """Names a snippet: with timed("augment", epoch): ... Node, process, thread, start and end are in the trace
    anyway."""
    return Region(category, name, None if epoch is None else {"epoch": epoch}) if _trace.present else _NOTHING
