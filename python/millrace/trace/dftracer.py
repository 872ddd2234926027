"""DFTracer's Python names over Millrace's tracer: dftracer, dft_fn, ai.

Programs that say `from dftracer.logger import dftracer, dft_fn` or `from dftracer.python import ai` run unchanged with
python/dropin on PYTHONPATH. Log files and data folders given here have no effect: what is recorded and where is
decided by `millrace trace`.
"""

import contextvars
import enum
import functools
import inspect
import numbers
import os
import sys
import threading
import time

from . import _flags, _of_coroutine, _of_function, _trace, _wants_function, counter, instant, metadata, now, span

DFTRACER_ENABLE = True  # programs ask; here `millrace trace` decides
DFTRACER_INIT_PRELOAD = os.getenv("DFTRACER_INIT", "PRELOAD") == "PRELOAD"
DFTRACER_LOG_LEVEL = os.getenv("DFTRACER_LOG_LEVEL", "ERROR")


_FIRST = (now(), time.time_ns())


def _stamp_of(us):
    """The time stamp of a moment in microseconds since 1970; 0 before this program. Stamps have a unit of their own,
    known from two of them."""
    tick, ns = now(), time.time_ns()
    rate = (tick - _FIRST[0]) / max(1, ns - _FIRST[1])
    return max(0, int(tick - (ns - us * 1000) * rate)) if tick and _FIRST[0] and us * 1000 >= _FIRST[1] else 0


class dftracer:
    """The logger. There is one; programs also make objects of it."""

    __instance = None
    logger = dbg_logging = None

    def __init__(self):
        self.start_time = self.get_time()
        dftracer.__instance = self

    @classmethod
    def get_instance(cls, *args, **kwargs):
        """The one logger."""
        return cls.__instance or dftracer()

    @staticmethod
    def initialize_log(logfile=None, data_dir=None, process_id=-1):
        """The one logger; where to write is the tracer's decision."""
        return dftracer.get_instance()

    def get_time(self):
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def enter_event(self):
        """Without effect: spans have their own begin."""

    def exit_event(self):
        """Without effect: spans have their own end."""

    def log_event(self, name, cat, start_time, duration, int_args=None, float_args=None, string_args=None, **more):
        """A span with times in microseconds; one that was not in the time of this program is a moment with its times
        as arguments."""
        args = {}
        for given in (int_args, float_args, string_args):
            for key, value in (given or {}).items():
                args[str(key)] = value[-1] if isinstance(value, tuple) else value  # DFTracer's pairs of kind and value
        args.update((k, v) for k, v in more.items() if isinstance(v, (int, float, str)))
        begin, end = _stamp_of(start_time), min(now(), _stamp_of(start_time + duration))
        if 0 < begin <= end:
            span(cat, name, begin, args, end)
        else:
            _trace.instant(cat, name, dict(args, logged_start_us=int(start_time), logged_dur_us=int(duration)))

    def log_metadata_event(self, key, value):
        """A property of the run."""
        metadata(**{str(key): value})

    set_app_metadata_int = set_app_metadata_string = log_metadata_event

    def get_config(self, key):
        """No configuration is kept: an empty text."""
        return ""

    def mark_used(self, name):
        """Without effect."""

    def declare_entity(self, type, key, store=0, uri=""):
        """A number for the entity; relations are not recorded."""
        return _entity(type, key)

    def declare_entity_type(self, type, role=0, description=""):
        """Without effect."""

    def relate_entities(self, relation, subject, object):
        """Without effect."""

    def finalize(self):
        """Without effect: the tracer ends with the program."""


def _entity(type, key):
    """The id of what DFTracer calls an entity, the same in every program: FNV-1a of type, 0x1f and key; 0 if nothing
    is recorded."""
    number = 1469598103934665603
    for byte in ("%s\x1f%s" % (type, key)).encode("utf-8", "surrogateescape") if now() else ():
        number = (number ^ byte) * 1099511628211 % (1 << 64)
    return number if now() else 0


def _arguments(**known):
    return {k: v for k, v in known.items() if v is not None}


_GENERATOR, _ASYNC = 0x220, 0x280  # of co_flags


def _given(args):
    """Arguments as DFTracer takes them: values, some with a kind."""
    return {str(key): value.plain if isinstance(value, TagValue) else value for key, value in (args or {}).items()}


_KNOWN = ("epoch", "step", "image_idx", "image_size")


def _own(thing):
    """Epoch, step and image that an object has as attributes; a method of that name is none."""
    found = {}
    try:
        for key in _KNOWN:
            value = getattr(thing, key, None)
            if value is not None and isinstance(value, (int, float, str, numbers.Number)):
                found[key] = value
    except Exception:  # a property that fails: the program's own affair
        pass
    return found


def _places(signature):
    """Where a call has epoch, step and image: name, position or one that no call has, default."""
    parameters, empty = signature.parameters, inspect.Parameter.empty
    for at, (key, one) in enumerate(parameters.items()):
        if key in _KNOWN:
            by_name = one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD, one.VAR_POSITIONAL)
            yield key, sys.maxsize if by_name else at, None if one.default is empty else one.default


class dft_fn:
    """dft_fn(cat, name): context manager, or from its making to flush(); decorators log, log_init, log_static; iter().

    What update() states goes into the spans that end from then on: of this object, and of all functions it
    decorates."""

    def __init__(self, cat, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True, args=None):
        self._cat, self._name, self._enable = cat, name or sys._getframe(1).f_code.co_name, enable
        self._args = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        self._args.update(_given(args))
        self._entered = {}  # of each thread, where the blocks begin that it has not left: one object may serve many
        self._begin = now() if enable else 0

    def __enter__(self):
        self._entered.setdefault(threading.get_ident(), []).append(now() if self._enable else 0)
        self._begin = 0
        return self

    def __exit__(self, *exc):
        thread = threading.get_ident()
        blocks = self._entered.get(thread)
        if blocks:
            self._span(blocks.pop())
            if not blocks:
                del self._entered[thread]
        return False

    def _span(self, begin):
        if begin:
            span(self._cat, self._name, begin, self._args)

    def update(self, epoch=None, step=None, image_idx=None, image_size=None, args=None):
        """Adds arguments; returns the object."""
        self._args.update(_arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size))
        self._args.update(_given(args))
        return self

    def _since(self, begin):
        """Sets where the present span begins and returns where it did: the block's, or that of the object outside of
        blocks."""
        blocks = self._entered.get(threading.get_ident())
        if blocks:
            before, blocks[-1] = blocks[-1], begin
        else:
            before, self._begin = self._begin, begin
        return before

    def flush(self):
        """Ends the present span now."""
        self._span(self._since(0))
        return self

    def reset(self):
        """The present span begins anew."""
        self._since(now() if self._enable else 0)
        return self

    def log_metadata(self, key, value):
        """A property of the run."""
        metadata(**{str(key): value})

    # Relations to what DFTracer calls entities: they are accepted and not recorded.

    def relate(self, relation, entity):
        """Accepted, not recorded."""
        return self

    def relate_entity(self, relation, type, key, store=0, uri=""):
        """Accepted, not recorded; a number for the entity."""
        return _entity(type, key) if self._enable else 0

    def uses(self, type, key, store=0, uri=""):
        """Accepted, not recorded."""
        return self.relate_entity(EntityRelation.USED, type, key, store, uri)

    def generates(self, type, key, store=0, uri=""):
        """Accepted, not recorded."""
        return self.relate_entity(EntityRelation.GENERATED, type, key, store, uri)

    def _decorate(self, function, name=None, method=True):
        if not self._enable or not _trace.present:
            return function
        label = name or getattr(function, "__qualname__", None) or function.__name__
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        names = list(signature.parameters) if signature else []
        method = method and names[:1] == ["self"]
        if not _flags(function) & _GENERATOR and (method or any(key in names for key in _KNOWN)):
            return self._with_arguments(function, label, signature, method)
        if _flags(function) & _ASYNC & ~_GENERATOR:
            return _of_coroutine(function, self._cat, label, self._args)
        if _wants_function(function):
            return _of_function(function, self._cat, label, self._args)
        # Of a generator it is one event per call, as DFTracer counts: the making of it.
        return functools.update_wrapper(_trace.Traced(function, self._cat, label, self._args), function)

    def _with_arguments(self, function, label, signature, method):
        """Epoch, step and image of a call, where the function takes them or its object has them when it is called, go
        into its span; what update() says in the meantime counts before them."""
        places = list(_places(signature))

        def begun(args, kwargs):
            if not now():
                return 0, None, None
            found = _own(args[0]) if method and args else {}
            for key, at, default in places:
                value = args[at] if at < len(args) else kwargs.get(key, default)
                if value is not None:
                    found[key] = value
            return now(), found, self._args.copy()

        def ended(begin, found, before):
            if begin:
                if self._args:
                    found.update(
                        [(k, v) for k, v in self._args.copy().items() if k not in found or before.get(k) is not v]
                    )
                span(self._cat, label, begin, found)

        if _flags(function) & _ASYNC:

            @functools.wraps(function)
            async def inner(*args, **kwargs):
                call = begun(args, kwargs)
                try:
                    return await function(*args, **kwargs)
                finally:
                    ended(*call)

        else:

            @functools.wraps(function)
            def inner(*args, **kwargs):
                call = begun(args, kwargs)
                try:
                    return function(*args, **kwargs)
                finally:
                    ended(*call)

        return inner

    def log(self, func=None, name=None):
        """Decorator: every call is a span."""
        if func is None:
            return lambda f: self._decorate(f, name)
        return self._decorate(func, name)

    def log_init(self, init=None, name=None):
        """Decorator of __init__: every call is a span."""
        if init is None:
            return lambda f: self.log_init(f, name)
        return self._decorate(init, name, method=False)  # an object that is being made has nothing to tell yet

    def log_static(self, func=None, name=None):
        """Decorator of a static method: every call is a span."""
        if func is None:
            return lambda f: self.log_static(f, name)
        inner = func.__func__ if isinstance(func, staticmethod) else func
        return self._decorate(inner, name)

    def iter(self, func, name="loop", iter_name="step", include_yield=True, include_iter=True):
        """Goes through an iterable; waits and bodies are spans."""
        return _iterate(
            func,
            self._cat,
            name + ".iter" if include_iter else None,
            name + ".yield" if include_yield else None,
            lambda: self._enable,
            lambda step: dict(self._args, **{iter_name: step}),
        )


def _iterate(iterable, cat, wait, body, enabled, arguments, late=False):
    """The waits and bodies of a loop as spans; one without a name is not recorded. `late`: what is said in a body goes
    for its wait, too."""
    count, iterator = 1, iter(iterable)
    while True:
        begin = now() if enabled() else 0
        try:
            item = next(iterator)
        except StopIteration:
            return
        there = now() if begin else 0
        if wait and begin and not late:
            span(cat, wait, begin, arguments(count), there)
            there = now()
        try:
            yield item
        finally:  # also when the loop is left early
            if wait and begin and late:
                span(cat, wait, begin, arguments(count), there)
            if body and there:
                span(cat, body, there, arguments(count))
        count += 1


class DFTracerAI:
    """A name of the `ai` taxonomy, or of the program's own: decorator, context manager, iter(). What update(),
    enable() and disable() say holds for all that lies below, until it is told otherwise."""

    def __init__(self, *, cat, name=None, epoch=None, step=None, image_idx=None, image_size=None, enable=True):
        self._cat, self._name = cat, name or cat
        self._enabled = enable  # None: as the one that it stands for
        self._args = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        self._below, self._of = {}, None
        self._nothing_open()

    def _nothing_open(self):
        self._open, self._started = contextvars.ContextVar(str(self._name), default=()), threading.local()

    def __getstate__(self):
        return {key: value for key, value in vars(self).items() if key not in ("_open", "_started")}

    def __setstate__(self, state):
        vars(self).update(state)
        self._nothing_open()

    def create_children(self, names):
        """Makes nodes below this one: attribute to name."""
        for attribute, name in names.items():
            setattr(self, attribute, self._child(attribute, name))

    def _child(self, key, name, category=None):
        """What is always the same one; it begins with what this one says."""
        if key not in self._below:
            self._below[key] = DFTracerAI(cat=category or self._cat, name=name, enable=self._enabled)
            self._below[key].update(args=self._all_args())
        return self._below[key]

    def _all_args(self):
        return dict(self._of._all_args(), **self._args) if self._of else self._args

    def _on(self):
        return self._of._on() if self._enabled is None and self._of else self._enabled is not False

    def __call__(self, fn=None, *, enable=None, **args):
        """As a decorator; without a function a node of the same name with arguments or a switch of its own, for one
        use."""
        if not callable(fn):
            node = DFTracerAI(cat=self._cat, name=self._name, enable=enable)
            node._of = self
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
        """The category of the spans."""
        return self._cat

    @property
    def name(self):
        """The name of the spans."""
        return self._name

    def get_time(self):
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def _begin(self):
        return now() if self._on() else 0

    def _end(self, begin):
        if begin:
            span(self._cat, self._name, begin, self._all_args())

    def reset(self):
        """The present span begins anew."""
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
        """Decorator of the initialisation, or a span of it."""
        return self.derive("init")(fn, **more)

    def start(self, metadata=False):
        """Begins a span that stop() ends; with metadata=True only the moment is kept."""
        if not metadata:
            self._stack().append(self._begin())
        elif self._on():
            instant(self._name + ".start", self._cat, **self._all_args())

    def stop(self, metadata=False):
        """Ends the span that start() began."""
        if not metadata:
            if self._stack():
                self._end(self._stack().pop())
        elif self._on():
            instant(self._name + ".end", self._cat, **self._all_args())

    def iter(self, iterator, *, include_block=True, include_iter=True, iter_name=None, block_name=None):
        """Goes through an iterable; waits and bodies are spans."""
        return _iterate(
            iterator,
            self._cat,
            (iter_name or get_iter_handle_name(self._name)) if include_iter else None,
            (block_name or get_iter_block_name(self._name)) if include_block else None,
            self._on,
            lambda count: dict(self._all_args(), count=count),
            late=True,
        )

    def update(self, epoch=None, step=None, image_idx=None, image_size=None, args=None, **more):
        """Adds arguments; returns the object."""
        said = _arguments(epoch=epoch, step=step, image_idx=image_idx, image_size=image_size)
        said.update(_given(args), **_given(more))
        self._args.update(said)
        for node in self._below.values():
            node.update(args=said)
        return self

    def _switch(self, on):
        self._enabled = on
        for node in self._below.values():
            node._switch(on)

    def enable(self):
        """Spans are recorded, of the nodes below as well."""
        self._switch(True)

    def disable(self):
        """No spans, of the nodes below either."""
        self._switch(False)

    def derive(self, name):
        """The node '<name of this one>.<name>', always the same one."""
        full = self._name + "." + name
        return self._child(full, full)


ITER_COUNT_NAME, INIT_NAME = "count", "init"


def get_iter_handle_name(name):
    """The name of spans of waits for items."""
    return name if name.endswith(".iter") else name + ".iter"


def get_iter_block_name(name):
    """The name of spans of loop bodies."""
    return name if name.endswith(".block") else name + ".block"


class TagType(enum.Enum):
    """How DFTracer aggregates an argument; here all are kept."""

    KEY, VALUE, IGNORE = 0, 1, 2

    def __int__(self):
        return self.value


class TagDType(enum.Enum):
    """The kind of a value."""

    INT, FLOAT, STRING = 0, 1, 2

    def __int__(self):
        return self.value


class TagValue:
    """A value of a kind; without a kind it stays what it is."""

    def __init__(self, value, dtype=None, tag_type=TagType.KEY):
        made = {TagDType.INT: int, TagDType.FLOAT: float, TagDType.STRING: str}.get(dtype)
        self.plain, self.dtype, self.tag_type = made(value) if made else value, dtype, tag_type

    def value(self):
        """The pair of kind and value."""
        return (self.tag_type.value, self.plain)


EntityStore = enum.IntEnum(
    "EntityStore",
    "MEMORY GPU_MEMORY LOCAL_DISK PARALLEL_FS BURST_BUFFER OBJECT_STORE DATABASE NETWORK OTHER",
    start=0,
    module=__name__,
)
EntityRole = enum.IntEnum(
    "EntityRole", "UNKNOWN INPUT OUTPUT INTERMEDIATE PARAMETER REFERENCE", start=0, module=__name__
)
EntityRelation = enum.IntEnum(
    "EntityRelation",
    {
        "USED": 0,
        "GENERATED": 1,
        "INVALIDATED": 2,
        "UPDATED": 3,
        "DERIVED_FROM": 16,
        "REVISION_OF": 17,
        "CONTAINS": 18,
        "PART_OF": 19,
        "SPECIALIZATION_OF": 20,
        "ALTERNATE_OF": 21,
        "DEPENDS_ON": 22,
    },
    module=__name__,
)


def _events(name, *words):
    """An enumeration whose values are the words in lower case, usable as texts."""
    made = enum.Enum(name, {word.upper(): word for word in words}, type=str, module=__name__)
    made.__str__ = lambda self: self.value
    return made


_TAXONOMY = {
    "compute": ("forward", "backward", "step"),
    "data": ("preprocess", "item"),
    "dataloader": ("fetch",),
    "comm": (
        "send",
        "receive",
        "barrier",
        "bcast",
        "reduce",
        "all_reduce",
        "gather",
        "all_gather",
        "scatter",
        "reduce_scatter",
        "all_to_all",
    ),
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


class AI(DFTracerAI):
    """The root. A category is a span of its own too (`with ai.compute`), with its name as name and category."""

    def __init__(self):
        super().__init__(cat="ai_root", name="ai_root")
        for name, children in _TAXONOMY.items():
            node = self._child(name, name, category=name)
            setattr(self, name, node)
            node.create_children({child: child if name != "other" else "other." + child for child in children})
            if name in ("data", "checkpoint", "other"):
                node.create_children({"io": name + ".io"})
                node.io.create_children({call: name + ".io." + call for call in _IO})


ai = AI()
checkpoint, comm, compute, data, dataloader, device, pipeline = (
    ai.checkpoint,
    ai.comm,
    ai.compute,
    ai.data,
    ai.dataloader,
    ai.device,
    ai.pipeline,
)
other = ai.other
__all__ = [
    "AI",
    "CheckpointEvent",
    "CommunicationEvent",
    "ComputeEvent",
    "DFTRACER_ENABLE",
    "DFTRACER_INIT_PRELOAD",
    "DFTRACER_LOG_LEVEL",
    "DFTracerAI",
    "DataEvent",
    "DataLoaderEvent",
    "DeviceEvent",
    "EntityRelation",
    "EntityRole",
    "EntityStore",
    "INIT_NAME",
    "IOEvent",
    "ITER_COUNT_NAME",
    "OtherEvent",
    "PipelineEvent",
    "ProfileCategory",
    "TagDType",
    "TagType",
    "TagValue",
    "ai",
    "checkpoint",
    "comm",
    "compute",
    "counter",
    "data",
    "dataloader",
    "device",
    "dft_fn",
    "dftracer",
    "get_iter_block_name",
    "get_iter_handle_name",
    "other",
    "pipeline",
]
