"""DFTracer's Python names over Millrace's tracer: dftracer, dft_fn, ai.

Programs that say `from dftracer.logger import dftracer, dft_fn` or `from dftracer.python import ai` run unchanged with
python/dropin on PYTHONPATH. Log files and data folders given here have no effect: what is recorded and where is decided by
`millrace trace`.
"""
import functools
import time

from . import _trace, counter, instant, metadata, now, span


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

    def log_event(self, name, cat, start_time, duration, string_args=None, **more):
        args = dict(string_args or {}, **{k: v for k, v in more.items() if isinstance(v, (int, float, str))})
        args["logged_start_us"], args["logged_dur_us"] = int(start_time), int(duration)
        instant(name, cat, **{str(k): v for k, v in args.items()})

    def log_metadata_event(self, key, value):
        metadata(**{str(key): value})

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


class dft_fn:
    """dft_fn(cat, name): context manager, and decorators log, log_init, log_static, and iter()."""

    def __init__(self, cat, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True, args=None):
        self._cat, self._name, self._enable = cat, name or cat, enable
        self._args = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        self._args.update(args or {})
        self._begin = 0

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

    def reset(self):
        self._begin = now() if self._enable else 0

    def _decorate(self, function, name=None):
        if not self._enable:
            return function
        label = name or getattr(function, "__qualname__", function.__name__)
        traced = _trace.Traced(function, self._cat, label, None)
        try:
            functools.update_wrapper(traced, function)
        except (AttributeError, TypeError):
            pass
        return traced

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

    def __call__(self, function=None, **args):
        if callable(function):
            @functools.wraps(function)
            def inner(*a, **k):
                with self:
                    return function(*a, **k)
            return inner
        if args:
            self.update(**args)
        return self

    def __enter__(self):
        self._stack.append(now() if self._on() else 0)
        return self

    def __exit__(self, *exc):
        span(self._cat, self._name, self._stack.pop(), self._all_args())
        return False

    def init(self, function):
        return self.derive(self._name + ".init")(function)

    def start(self):
        instant(self._name + ".start", self._cat, **self._all_args())

    def stop(self):
        instant(self._name + ".end", self._cat, **self._all_args())

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
            ("other", ("log",)),
        ):
            self._add(name, _Node("ai", name, self, children))


ai = _AI()
__all__ = ["ai", "counter", "dft_fn", "dftracer"]
