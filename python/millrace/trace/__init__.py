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
import copyreg as _copyreg
import functools as _functools
import sys as _sys

try:
    from . import _trace
except ImportError:  # not built for this interpreter: annotations pass through
    from . import _passthrough as _trace

active = _trace.active
start = _trace.start
stop = _trace.stop
now = _trace.now
span = _trace.span
metadata = _trace.metadata
Region = _trace.Region

__all__ = ["active", "counter", "fn", "instant", "iterate", "metadata", "now", "region", "span", "start", "stop", "timed"]


def region(name, category="app", **args):
    """A context manager: the block is a span with these arguments; update() adds more."""
    return Region(category, name, args or None)


def fn(function=None, *, category=None, name=None, **args):
    """Decorator: every call is a span. Use as @fn or @fn(category=..., name=..., key=value)."""
    if function is None:
        return lambda f: fn(f, category=category, name=name, **args)
    label = name or getattr(function, "__qualname__", getattr(function, "__name__", "function"))
    traced = _trace.Traced(function, category or getattr(function, "__module__", None) or "app", label, args or None)
    try:
        _functools.update_wrapper(traced, function)
    except (AttributeError, TypeError):
        pass
    return traced


def _reduce(traced):
    """Pickles a traced function as Python pickles functions: by name; one without a name of its own is made again."""
    if traced.__self__ is not None:
        return getattr, (traced.__self__, traced.__name__)
    found = _sys.modules.get(traced.__module__)
    for part in traced.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is traced:
        return traced.__qualname__
    return _trace.Traced, (traced.__wrapped__, traced._category, traced._label, traced._args)


if isinstance(_trace.Traced, type):
    _copyreg.pickle(_trace.Traced, _reduce)


def iterate(iterable, name="iterate", category="app", **args):
    """Goes through an iterable; the wait for each item is a span '<name>.iter', the body '<name>.yield', with `step`."""
    wait, body = name + ".iter", name + ".yield"
    step, iterator = 0, iter(iterable)
    while True:
        begin = now()
        try:
            item = next(iterator)
        except StopIteration:
            return
        args["step"] = step
        span(category, wait, begin, args)
        begin = now()
        yield item
        args["step"] = step
        span(category, body, begin, args)
        step += 1


def instant(name, category="app", **args):
    """A point in time."""
    _trace.instant(category, name, args or None)


def counter(name, value, category="app"):
    """A value over time."""
    _trace.counter(category, name, float(value))


def timed(name, epoch=None, category="time"):
    """Names a snippet: with timed("augment", epoch): ... Node, process, thread, start and end are in the trace anyway."""
    return Region(category, name, None if epoch is None else {"epoch": epoch})
