"""DFTracer's Python names over Millrace's tracer: dftracer, dft_fn, ai.

Programs that say `from dftracer.logger import dftracer, dft_fn` or `from dftracer.python import ai` run unchanged with
python/dropin on PYTHONPATH. Log files and data folders given here have no effect: what is recorded and where is decided by
`millrace trace`.
"""
import contextvars
import enum
import functools
import inspect
import sys
import threading
import time

from . import _trace, counter, fn, instant, metadata, now, span

DFTRACER_ENABLE = True  # programs ask; here `millrace trace` decides


_FIRST = (now(), time.time_ns())


def _ticks_before(us):
    """The time stamp of a moment `us` ago; stamps have a unit of their own, known from two of them."""
    tick, ns = now(), time.time_ns()
    rate = (tick - _FIRST[0]) / max(1, ns - _FIRST[1])
    return max(1, int(tick - us * 1000 * rate)) if tick and _FIRST[0] else tick


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
        """A span that has just ended; one that ended long ago stays a moment with its times as arguments."""
        args = {}
        for given in (int_args, float_args, string_args):
            for key, value in (given or {}).items():
                args[str(key)] = value[-1] if isinstance(value, tuple) else value  # DFTracer's pairs of kind and value
        args.update((k, v) for k, v in more.items() if isinstance(v, (int, float, str)))
        age = time.time_ns() / 1000 - start_time  # us
        if 0 <= duration <= age <= duration + max(1000, duration / 100):
            span(cat, name, _ticks_before(age), args)
        else:
            _trace.instant(cat, name, dict(args, logged_start_us=int(start_time), logged_dur_us=int(duration)))

    def log_metadata_event(self, key, value):
        metadata(**{str(key): value})

    set_app_metadata_int = set_app_metadata_string = log_metadata_event

    def get_config(self, key):
        return ""

    def mark_used(self, name):
        pass

    def declare_entity(self, *args, **kwargs):
        return 0  # DFTracer's "no entity": what a program touches is in the trace

    declare_entity_type = relate_entities = declare_entity

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


_GENERATOR, _ASYNC = 0x220, 0x280  # of co_flags


def _flags(function):
    return getattr(getattr(function, "__code__", None), "co_flags", 0)


def _given(args):
    """Arguments as DFTracer takes them: values, some with a kind."""
    return {str(key): value.plain if isinstance(value, TagValue) else value for key, value in (args or {}).items()}


_KNOWN = ("epoch", "step", "image_idx", "image_size")


def _own(thing):
    """Epoch, step and image that an object has as attributes; a method of that name is none."""
    try:
        found = {key: getattr(thing, key, None) for key in _KNOWN}
    except Exception:  # a property that fails: the program's own affair
        return {}
    return {key: value for key, value in found.items() if isinstance(value, (int, float, str))}


class dft_fn:
    """dft_fn(cat, name): context manager, or from its making to flush(); decorators log, log_init, log_static; iter()."""

    def __init__(self, cat, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True, args=None):
        self._cat, self._name, self._enable = cat, name or sys._getframe(1).f_code.co_name, enable
        self._args = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        self._args.update(_given(args))
        self._begin = now() if enable else 0

    def __enter__(self):
        self._begin = now() if self._enable else 0
        return self

    def __exit__(self, *exc):
        self.flush()
        return False

    def update(self, epoch=None, step=None, image_idx=None, image_size=None, args=None):
        self._args.update(_arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size))
        self._args.update(_given(args))
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

    # Relations to what DFTracer calls entities: they are accepted, what a program touches is in the trace.

    def relate(self, relation, entity):
        return self

    def relate_entity(self, relation, type, key, store=0, uri=""):
        return 0

    def uses(self, type, key, store=0, uri=""):
        return 0

    generates = uses

    def _decorate(self, function, name=None):
        if not self._enable or not _trace.present:
            return function
        label = name or getattr(function, "__qualname__", function.__name__)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        names = list(signature.parameters) if signature else []
        if not _flags(function) & _ASYNC and (names[:1] == ["self"] or any(key in names for key in _KNOWN)):
            return self._with_arguments(function, label, signature)
        if _flags(function) & _GENERATOR:  # one event per call, as DFTracer counts: the making of the generator
            return functools.update_wrapper(_trace.Traced(function, self._cat, label, None), function)
        return fn(function, category=self._cat, name=label)

    def _with_arguments(self, function, label, signature):
        """Epoch, step and image of a call, where the function takes them or its object has them, go into its span."""
        known = [key for key in _KNOWN if key in signature.parameters]
        method = next(iter(signature.parameters)) == "self"

        @functools.wraps(function)
        def inner(*args, **kwargs):
            begin = now()
            try:
                return function(*args, **kwargs)
            finally:
                if begin:
                    found = _own(args[0]) if method and args else {}
                    if known:
                        try:
                            given = signature.bind(*args, **kwargs)
                            given.apply_defaults()
                            found.update(_arguments(**{key: given.arguments[key] for key in known}))
                        except TypeError:  # a call that failed for its arguments
                            pass
                    span(self._cat, label, begin, found)

        return inner

    def log(self, func=None, name=None):
        if func is None:
            return lambda f: self._decorate(f, name)
        return self._decorate(func, name)

    def log_init(self, init=None, name=None):
        return self.log(init, name)

    def log_static(self, func=None, name=None):
        if func is None:
            return lambda f: self.log_static(f, name)
        inner = func.__func__ if isinstance(func, staticmethod) else func
        return self._decorate(inner, name)

    def iter(self, func, name="loop", iter_name="step", include_yield=True, include_iter=True):
        return _iterate(func, self._cat, name + ".iter" if include_iter else None, name + ".yield" if include_yield else None,
                        lambda: self._enable, lambda step: dict(self._args, **{iter_name: step}))


def _iterate(iterable, cat, wait, body, enabled, arguments):
    """The waits and bodies of a loop as spans; one without a name is not recorded."""
    count, iterator = 1, iter(iterable)
    while True:
        begin = now() if wait and enabled() else 0
        try:
            item = next(iterator)
        except StopIteration:
            return
        if begin:
            span(cat, wait, begin, arguments(count))
        begin = now() if body and enabled() else 0
        try:
            yield item
        finally:  # also when the loop is left early
            if begin:
                span(cat, body, begin, arguments(count))
        count += 1


class _Node:
    """A name of the `ai` taxonomy: decorator, context manager, iter(), update() inherited by what lies below."""

    def __init__(self, category, name, parent=None, children=(), enabled=True):
        self._cat, self._name, self._parent = category, name, parent
        self._enabled, self._args = enabled, {}
        self._open, self._started = contextvars.ContextVar(name, default=()), threading.local()
        self._derived = {}
        for child in children:
            setattr(self, child, _Node(category, child, self))

    def _all_args(self):
        args = dict(self._parent._all_args()) if self._parent else {}
        args.update(self._args)
        return args

    def _on(self):
        return self._enabled and (self._parent is None or self._parent._on())

    def __call__(self, fn=None, *, enable=None, **args):
        """As a decorator; without a function a node of the same name with arguments or a switch of its own, for one use."""
        if not callable(fn):
            node = _Node(self._cat, self._name, self, enabled=enable is not False)
            return node.update(**args)
        if args or enable is not None:
            return self(enable=enable, **args)(fn)
        return self._traced(fn) if _trace.present else fn

    def _traced(self, function):
        if _flags(function) & _ASYNC & ~_GENERATOR:  # a coroutine: its time is that until its result

            @functools.wraps(function)
            async def inner(*a, **k):
                begin = self._begin()
                try:
                    return await function(*a, **k)
                finally:
                    self._end(begin)

            return inner

        @functools.wraps(function)
        def inner(*a, **k):
            begin = self._begin()
            try:
                return function(*a, **k)
            finally:
                self._end(begin)

        return inner

    @property
    def cat(self):
        return self._cat

    @property
    def name(self):
        return self._name

    def get_time(self):
        return time.time_ns() // 1000

    def _begin(self):
        return now() if self._on() else 0

    def _end(self, begin):
        if begin:
            span(self._cat, self._name, begin, self._all_args())

    def reset(self):
        entered, started = self._open.get(), self._stack()
        if entered:
            self._open.set(entered[:-1] + (self._begin(),))
        elif started:
            started[-1] = self._begin()

    # Nodes belong to all: what is entered and not left is kept for each thread and each task of asyncio.

    def __enter__(self):
        self._open.set(self._open.get() + (self._begin(),))
        return self

    def __exit__(self, *exc):
        entered = self._open.get()
        if entered:
            self._open.set(entered[:-1])
            self._end(entered[-1])
        return False

    def _stack(self):
        """Started and not stopped in this thread: a task may start what another one stops."""
        try:
            return self._started.stack
        except AttributeError:
            self._started.stack = []
            return self._started.stack

    def init(self, fn=None, **more):
        return self.derive("init")(fn, **more)

    def start(self, metadata=False):
        """Begins a span that stop() ends; with metadata=True only the moment is kept."""
        if not metadata:
            self._stack().append(self._begin())
        elif self._on():
            instant(self._name + ".start", self._cat, **self._all_args())

    def stop(self, metadata=False):
        if not metadata:
            if self._stack():
                self._end(self._stack().pop())
        elif self._on():
            instant(self._name + ".end", self._cat, **self._all_args())

    def iter(self, iterator, *, include_block=True, include_iter=True, iter_name=None, block_name=None):
        return _iterate(iterator, self._cat, (iter_name or get_iter_handle_name(self._name)) if include_iter else None,
                        (block_name or get_iter_block_name(self._name)) if include_block else None,
                        self._on, lambda count: dict(self._all_args(), count=count))

    def update(self, epoch=None, step=None, image_idx=None, image_size=None, args=None, **more):
        self._args.update(_arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size))
        self._args.update(_given(args))
        self._args.update(_given(more))
        return self

    def enable(self):
        self._enabled = True

    def disable(self):
        self._enabled = False

    def derive(self, name):
        """The node '<name of this one>.<name>', always the same one."""
        if name not in self._derived:
            self._derived[name] = _Node(self._cat, self._name + "." + name, self)
        return self._derived[name]


ITER_COUNT_NAME, INIT_NAME = "count", "init"


def get_iter_handle_name(name):
    return name if name.endswith(".iter") else name + ".iter"


def get_iter_block_name(name):
    return name if name.endswith(".block") else name + ".block"


class TagType(enum.Enum):
    """How DFTracer aggregates an argument; here all are kept."""

    KEY, VALUE, IGNORE = 0, 1, 2

    def __int__(self):
        return self.value


class TagDType(enum.Enum):
    INT, FLOAT, STRING = 0, 1, 2

    def __int__(self):
        return self.value


class TagValue:
    """A value of a kind; without a kind it stays what it is."""

    def __init__(self, value, dtype=None, tag_type=TagType.KEY):
        made = {TagDType.INT: int, TagDType.FLOAT: float, TagDType.STRING: str}.get(dtype)
        self.plain, self.dtype, self.tag_type = made(value) if made else value, dtype, tag_type

    def value(self):
        return (self.tag_type.value, self.plain)


EntityStore = enum.IntEnum(
    "EntityStore", "MEMORY GPU_MEMORY LOCAL_DISK PARALLEL_FS BURST_BUFFER OBJECT_STORE DATABASE NETWORK OTHER", start=0, module=__name__)
EntityRole = enum.IntEnum("EntityRole", "UNKNOWN INPUT OUTPUT INTERMEDIATE PARAMETER REFERENCE", start=0, module=__name__)
EntityRelation = enum.IntEnum("EntityRelation", {
    "USED": 0, "GENERATED": 1, "INVALIDATED": 2, "UPDATED": 3, "DERIVED_FROM": 16, "REVISION_OF": 17, "CONTAINS": 18, "PART_OF": 19,
    "SPECIALIZATION_OF": 20, "ALTERNATE_OF": 21, "DEPENDS_ON": 22}, module=__name__)


def _events(name, *words):
    """An enumeration whose values are the words in lower case, usable as texts."""
    made = enum.Enum(name, {word.upper(): word for word in words}, type=str, module=__name__)
    made.__str__ = lambda self: self.value
    return made


_TAXONOMY = {
    "compute": ("forward", "backward", "step"),
    "data": ("preprocess", "item"),
    "dataloader": ("fetch",),
    "comm": ("send", "receive", "barrier", "bcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
             "all_to_all"),
    "device": ("transfer",),
    "checkpoint": ("capture", "restart"),
    "pipeline": ("epoch", "train", "evaluate", "test"),
    "other": ("log",),
}
_IO = ("open", "read", "write", "close")
ProfileCategory = _events("ProfileCategory", *_TAXONOMY)
ComputeEvent = _events("ComputeEvent", *_TAXONOMY["compute"])
DataEvent = _events("DataEvent", *_TAXONOMY["data"])
DataLoaderEvent = _events("DataLoaderEvent", *_TAXONOMY["dataloader"])
CommunicationEvent = _events("CommunicationEvent", *_TAXONOMY["comm"])
DeviceEvent = _events("DeviceEvent", *_TAXONOMY["device"])
CheckpointEvent = _events("CheckpointEvent", *_TAXONOMY["checkpoint"])
PipelineEvent = _events("PipelineEvent", *_TAXONOMY["pipeline"])
OtherEvent = _events("OtherEvent", *_TAXONOMY["other"])
IOEvent = _events("IOEvent", *_IO)


class _AI(_Node):
    """The root. A category is a span of its own too (`with ai.compute`), with its name as name and category."""

    def __init__(self):
        super().__init__("ai_root", "ai_root")
        for name, children in _TAXONOMY.items():
            node = _Node(name, name, self, children)
            setattr(self, name, node)
            if name in ("data", "checkpoint", "other"):
                node.io = _Node(name, name + ".io", node)
                for call in _IO:
                    setattr(node.io, call, _Node(name, name + ".io." + call, node.io))
        self.other.log = _Node("other", "other.log", self.other)


ai = _AI()
checkpoint, comm, compute, data, dataloader, device, pipeline = (
    ai.checkpoint, ai.comm, ai.compute, ai.data, ai.dataloader, ai.device, ai.pipeline)
other = ai.other
__all__ = [
    "CheckpointEvent", "CommunicationEvent", "ComputeEvent", "DFTRACER_ENABLE", "DataEvent", "DataLoaderEvent", "DeviceEvent", "EntityRelation",
    "EntityRole", "EntityStore", "INIT_NAME",
    "IOEvent", "ITER_COUNT_NAME", "OtherEvent", "PipelineEvent", "ProfileCategory", "TagDType", "TagType", "TagValue", "ai", "checkpoint",
    "comm", "compute", "counter", "data", "dataloader", "device", "dft_fn", "dftracer", "get_iter_block_name", "get_iter_handle_name",
    "other", "pipeline",
]
