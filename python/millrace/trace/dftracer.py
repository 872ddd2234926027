"""DFTracer's Python names over Millrace's tracer: dftracer, dft_fn, ai.

Programs that say `from dftracer.logger import dftracer, dft_fn` or `from dftracer.python import ai` run unchanged with
python/dropin on PYTHONPATH. Log files and data folders given here have no effect: what is recorded and where is decided by
`millrace trace`.
"""
import functools
import inspect
import sys
import time

from . import _trace, counter, instant, metadata, now, span

DFTRACER_ENABLE = True  # programs ask; here `millrace trace` decides


class _Log:
    """What DFTracer calls the logger object."""

    def initialize_log(self, logfile=None, data_dir=None, process_id=-1):
        return self

    def get_time(self):
        return time.time_ns() // 1000

    def enter_event(self):
        pass

    def exit_event(self):
        pass

    def log_event(self, name, cat, start_time, duration, int_args=None, float_args=None, string_args=None, **more):
        args = {"logged_start_us": int(start_time), "logged_dur_us": int(duration)}
        for given in (int_args, float_args, string_args):
            for key, value in (given or {}).items():
                args[str(key)] = value[-1] if isinstance(value, tuple) else value  # DFTracer's pairs of kind and value
        args.update((k, v) for k, v in more.items() if isinstance(v, (int, float, str)))
        _trace.instant(cat, name, args)

    def log_metadata_event(self, key, value):
        metadata(**{str(key): value})

    set_app_metadata_int = set_app_metadata_string = log_metadata_event

    def get_config(self, key):
        return ""

    def mark_used(self, name):
        pass

    def finalize(self):
        pass


class dftracer:
    __instance = None

    @classmethod
    def get_instance(cls, *args, **kwargs):
        if cls.__instance is None:
            cls.__instance = _Log()
        return cls.__instance

    @staticmethod
    def initialize_log(logfile=None, data_dir=None, process_id=-1):
        return dftracer.get_instance()


def _arguments(**known):
    return {k: v for k, v in known.items() if v is not None}


_KNOWN = ("epoch", "step", "image_idx", "image_size")


class dft_fn:
    """dft_fn(cat, name): context manager, or from its making to flush(); decorators log, log_init, log_static; iter()."""

    def __init__(self, cat, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True, args=None):
        self._cat, self._name, self._enable = cat, name or sys._getframe(1).f_code.co_name, enable
        self._args = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        self._args.update(args or {})
        self._begin = now() if enable else 0

    def __enter__(self):
        self._begin = now() if self._enable else 0
        return self

    def __exit__(self, *exc):
        self.flush()
        return False

    def update(self, epoch=None, step=None, image_idx=None, image_size=None, args=None):
        self._args.update(_arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size))
        self._args.update(args or {})
        return self

    def flush(self):
        if self._begin:
            span(self._cat, self._name, self._begin, self._args)
        self._begin = 0
        return self

    def reset(self):
        self._begin = now() if self._enable else 0
        return self

    def log_metadata(self, key, value):
        metadata(**{str(key): value})

    def _decorate(self, function, name=None):
        if not self._enable:
            return function
        label = name or getattr(function, "__qualname__", function.__name__)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        if signature and any(key in signature.parameters for key in _KNOWN):
            return self._with_arguments(function, label, signature)
        traced = _trace.Traced(function, self._cat, label, None)
        try:
            functools.update_wrapper(traced, function)
        except (AttributeError, TypeError):
            pass
        return traced

    def _with_arguments(self, function, label, signature):
        """Epoch, step and image of a call, where the function takes them, go into its span."""
        known = [key for key in _KNOWN if key in signature.parameters]

        @functools.wraps(function)
        def inner(*args, **kwargs):
            begin = now()
            try:
                return function(*args, **kwargs)
            finally:
                if begin:
                    try:
                        given = signature.bind(*args, **kwargs)
                        given.apply_defaults()
                        span(self._cat, label, begin, _arguments(**{key: given.arguments[key] for key in known}))
                    except TypeError:  # a call that failed for its arguments
                        span(self._cat, label, begin, None)

        return inner

    def log(self, function=None, name=None):
        if function is None:
            return lambda f: self._decorate(f, name)
        return self._decorate(function, name)

    log_init = log

    def log_static(self, function=None, name=None):
        if function is None:
            return lambda f: self.log_static(f, name)
        inner = function.__func__ if isinstance(function, staticmethod) else function
        return self._decorate(inner, name)

    def iter(self, iterable, name="loop", iter_name="step"):
        step, iterator = 1, iter(iterable)
        while True:
            begin = now() if self._enable else 0
            try:
                item = next(iterator)
            except StopIteration:
                return
            span(self._cat, name + ".iter", begin, dict(self._args, **{iter_name: step}))
            begin = now() if self._enable else 0
            yield item
            span(self._cat, name + ".yield", begin, dict(self._args, **{iter_name: step}))
            step += 1


class _Node:
    """A name of the `ai` taxonomy: decorator, context manager, iter(), update() inherited by what lies below."""

    def __init__(self, category, name, parent=None, children=()):
        self._cat, self._name, self._parent = category, name, parent
        self._enabled, self._args, self._stack = True, {}, []
        self._children = {}
        for child in children:
            label, below = child if isinstance(child, tuple) else (child, ())
            self._add(label, _Node(name if parent is not None or category else name, label, self, below))

    def _add(self, label, node):
        node._cat = self._name
        self._children[label] = node
        setattr(self, label, node)

    def _all_args(self):
        args = dict(self._parent._all_args()) if self._parent else {}
        args.update(self._args)
        return args

    def _on(self):
        return self._enabled and (self._parent is None or self._parent._on())

    def __call__(self, function=None, enable=None, **args):
        if args:
            self.update(**args)
        if enable is not None and not callable(function):
            self._enabled = enable
        if not callable(function):
            return self
        if enable is False:
            return function

        @functools.wraps(function)
        def inner(*a, **k):
            with self:
                return function(*a, **k)

        return inner

    @property
    def cat(self):
        return self._cat

    @property
    def name(self):
        return self._name

    def get_time(self):
        return time.time_ns() // 1000

    def reset(self):
        if self._stack:
            self._stack[-1] = now() if self._on() else 0

    def __enter__(self):
        self._stack.append(now() if self._on() else 0)
        return self

    def __exit__(self, *exc):
        span(self._cat, self._name, self._stack.pop(), self._all_args())
        return False

    def init(self, function):
        return self.derive(self._name + ".init")(function)

    def start(self, metadata=False):
        """Begins a span that stop() ends; with metadata=True only the moment is kept."""
        if metadata:
            instant(self._name + ".start", self._cat, **self._all_args())
        else:
            self.__enter__()

    def stop(self, metadata=False):
        if metadata:
            instant(self._name + ".end", self._cat, **self._all_args())
        elif self._stack:
            self.__exit__()

    def iter(self, iterable, include_block=True):
        count, iterator = 1, iter(iterable)
        while True:
            begin = now() if self._on() else 0
            try:
                item = next(iterator)
            except StopIteration:
                return
            span(self._cat, self._name + ".iter", begin, dict(self._all_args(), count=count))
            begin = now() if self._on() and include_block else 0
            yield item
            span(self._cat, self._name + ".block", begin, dict(self._all_args(), count=count))
            count += 1

    def update(self, epoch=None, step=None, args=None, **more):
        self._args.update(_arguments(epoch=epoch, step=step))
        self._args.update(args or {})
        self._args.update(more)
        return self

    def enable(self):
        self._enabled = True

    def disable(self):
        self._enabled = False

    def derive(self, name):
        return _Node(self._cat, name, self)


class _AI(_Node):
    def __init__(self):
        super().__init__("ai", "ai")
        io = ("io", ("open", "read", "write", "close"))
        for name, children in (
            ("compute", ("forward", "backward", "step")),
            ("data", ("preprocess", "item", io)),
            ("dataloader", ("fetch",)),
            ("comm", ("send", "receive", "barrier", "bcast", "reduce", "all_reduce", "gather", "all_gather", "scatter",
                      "reduce_scatter", "all_to_all")),
            ("device", ("transfer",)),
            ("checkpoint", ("capture", "restart", io)),
            ("pipeline", ("epoch", "train", "evaluate", "test")),
            ("other", ("log", io)),
        ):
            self._add(name, _Node("ai", name, self, children))


ai = _AI()
checkpoint, comm, compute, data, dataloader, device, pipeline = (
    ai.checkpoint, ai.comm, ai.compute, ai.data, ai.dataloader, ai.device, ai.pipeline)
__all__ = ["DFTRACER_ENABLE", "ai", "checkpoint", "comm", "compute", "counter", "data", "dataloader", "device", "dft_fn", "dftracer", "pipeline"]
