"""Spans for what training scripts call most, without touching them: PyTorch's DataLoader (torch_loader.py), optimiser
steps and backward passes, transforms, decoding of images, torch.save and load, NumPy load and save, h5py reads,
tf.data and Grain iterators, checkpoints of TensorFlow, and the import of the framework itself. The table of names is
in doc/guides/tracing.md: the analysis relies on it.

A row of PATCHES names a module and a function that changes it once it has been imported. Names that a version does not
have are left alone. MILLRACE_TRACE_PYTHON_SKIP lists modules not to touch, separated by commas.
"""

import functools
import io
import os
import sys
from time import monotonic_ns

from . import _trace, fn, handover, now, places, span

note = getattr(_trace, "note", lambda text: None)  # told at the end of `millrace trace`


_changes = []  # owner, name, what was there, what is there now


def _put(owner, name, value):
    original = owner.__dict__.get(name)
    setattr(owner, name, value)  # a class that cannot be changed refuses: nothing to take back
    _changes.append((owner, name, original, value))


def switch(on):
    """Takes the changes back, or makes them again; what has been made with them (an iterator, a worker) keeps them,
    and so does a name that was imported from the module (torch.save is torch.serialization's). With trace.stop() a
    program then runs as it would without the tracer."""
    for owner, name, original, traced in _changes if on else reversed(_changes):  # one name may have been changed twice
        if on or original is not None:
            setattr(owner, name, traced if on else original)
        elif name in owner.__dict__:
            delattr(owner, name)


def _wrap(owner, name, category, label=None):
    """Replaces owner.name by a traced version; a missing or foreign name stays."""
    original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if original is None or isinstance(original, (_trace.Traced if isinstance(_trace.Traced, type) else ())):
        return
    label = label or (owner.__name__ + "." + name)
    try:
        if isinstance(
            original, type
        ):  # programs ask isinstance(x, numpy.memmap): the class stays, making one is traced
            _wrap(original, "__new__", category, label)
        elif isinstance(original, staticmethod):
            _put(owner, name, staticmethod(fn(original.__func__, category=category, name=label)))
        elif isinstance(original, classmethod):
            _put(owner, name, classmethod(fn(original.__func__, category=category, name=label)))
        elif name == "__new__":
            _put(owner, name, staticmethod(fn(original, category=category, name=label)))
        elif callable(original):
            _put(owner, name, fn(original, category=category, name=label))
    except (AttributeError, TypeError):
        pass


def _torch(part):
    """A part of torch_loader, which is imported with PyTorch only."""

    def patch(module):
        from . import torch_loader

        getattr(torch_loader, part)(module, _put)

    return patch


def _ranks(part):
    """Waits for other ranks."""

    def patch(module):
        from . import collectives

        getattr(collectives, part)(module, _put)

    return patch


def _pipeline(part):
    """tf.data and Grain."""

    def patch(module):
        from . import pipelines

        getattr(pipelines, part)(module, _put)

    return patch


def _jax(part):
    """Compiled functions of JAX's, waits for its devices and processes."""

    def patch(module):
        from . import jax_loop

        getattr(jax_loop, part)(module, _put)

    return patch


def _handover(part):
    """What a loop without a data loader waits for."""
    return lambda module: getattr(handover, part)(module, _put)


def _plain(original, category, label):
    """A traced function that PyTorch's compiler sees through: while it compiles, there is nothing but the original.
    `label` is a name, or a function of the first argument."""

    def traced(*args, **kwargs):
        begin = 0 if _compiling() else now()
        if not begin:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            span(category, label if isinstance(label, str) else label(args[0]), begin, None)

    return functools.update_wrapper(traced, original)


def _never():
    return False


_compiling = _never


def _torch_compiler(module):
    global _compiling
    _compiling = handover.compiling = getattr(module, "is_compiling", None) or getattr(
        module, "is_dynamo_compiling", _never
    )


def _torch_tensor(module):
    original = module.Tensor.__dict__.get("backward") if hasattr(module, "Tensor") else None
    if original is None:
        return
    from . import collectives

    @functools.wraps(original)
    def backward(self, *args, **kwargs):
        if _compiling():
            return original(self, *args, **kwargs)
        begin, said = handover.train_begins()
        if not begin:
            return original(self, *args, **kwargs)
        end = collectives.backward_begins(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            collectives.backward_ended(end)
            handover.train_ends("backward", begin, said)

    _put(module.Tensor, "backward", backward)


def _stepping(original):
    """An optimiser's step: as _plain; the span says what the thread did since its last train span."""

    def traced(*args, **kwargs):
        if _compiling():
            return original(*args, **kwargs)
        begin, said = handover.train_begins()
        if not begin:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            handover.train_ends("optimizer.step", begin, said, args[0])

    return functools.update_wrapper(traced, original)


def _torch_optimizer(module):
    """Steps of optimisers tell training from evaluation. PyTorch's own hooks leave the classes alone."""
    if not hasattr(module, "register_optimizer_step_pre_hook") or not hasattr(
        module, "register_optimizer_step_post_hook"
    ):
        _old_optimizer(module)
        return

    def before(optimizer, args, kwargs):
        if not _compiling():
            optimizer._millrace_begin = handover.train_begins()

    def after(optimizer, args, kwargs):
        if not _compiling():
            begin, said = getattr(optimizer, "_millrace_begin", (0, None))
            if begin:
                handover.train_ends("optimizer.step", begin, said, optimizer)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _old_optimizer(module):
    """Before PyTorch 2.0 every class has its step wrapped for the profiler when the first of its objects is made: so
    do we, then."""
    original = module.Optimizer.__dict__.get("_hook_for_profile")
    if original is None:
        return

    @functools.wraps(original)
    def _hook_for_profile(self):
        original(self)
        owner = type(self)
        if not getattr(owner.step, "_millrace", False):
            owner.step = _stepping(owner.step)
            owner.step._millrace = True

    _put(module.Optimizer, "_hook_for_profile", _hook_for_profile)


def _class_name(x):
    return type(x).__name__


def _compose(module):
    """torchvision's first transforms: Compose and every transform in it."""
    compose = getattr(module, "Compose", None)
    original = compose.__dict__.get("__call__") if compose is not None else None
    if original is None:
        return

    @functools.wraps(original)
    def __call__(self, img):
        begin = now()
        if not begin:
            return original(self, img)
        try:
            for one in self.transforms:
                start = now()
                img = one(img)
                span("transform", type(one).__name__, start, None)
            return img
        finally:
            span("transform", "Compose", begin, None)

    _put(compose, "__call__", __call__)


def _transform_v2(name):
    def patch(module):
        owner = getattr(module, name, None)
        if owner is not None and "forward" in owner.__dict__:
            _put(owner, "forward", _plain(owner.__dict__["forward"], "transform", _class_name))

    return patch


def _pil_load(owner_name):
    """Decoding is put off until the pixels are wanted: the first load() of an image does it, later ones find nothing
    to do."""

    def patch(module):
        owner = getattr(module, owner_name, None)
        original = owner.__dict__.get("load") if owner is not None else None
        if original is None:
            return

        @functools.wraps(original)
        def load(self, *args, **kwargs):
            begin = (
                now()
                if getattr(self, "tile", None) or owner_name != "ImageFile" and not getattr(self, "_millrace", False)
                else 0
            )
            if not begin:
                return original(self, *args, **kwargs)
            if owner_name != "ImageFile":
                self._millrace = True  # these have no tiles; an animation's later frames are not told
            try:
                return original(self, *args, **kwargs)
            finally:
                span("decode", "Image.load", begin, None)

        _put(owner, "load", load)

    return patch


def _functions(category, *names):
    """As _names, but they stay functions of Python's own."""

    def patch(module):
        for name in names:
            original = getattr(module, name, None)
            if callable(original):
                _put(module, name, _plain(original, category, name))

    return patch


def _names(category, *names):
    def patch(module):
        for name in names:
            _wrap(module, name, category)

    return patch


def _h5py_dataset(module):
    for name in ("__getitem__", "__setitem__", "read_direct", "write_direct"):
        _wrap(module.Dataset, name, "reader", "h5py.Dataset." + name)


def _h5py_file(module):
    """Opening and closing. h5py also makes a File around an open one whenever an object is asked for its file: not a
    span."""
    original = module.File.__init__
    opening = fn(original, category="reader", name="h5py.File.__init__")

    @functools.wraps(original)
    def __init__(self, name, *args, **kwargs):
        wraps = type(name).__module__.startswith("h5py.")
        (original if wraps else opening)(self, name, *args, **kwargs)

    _put(module.File, "__init__", __init__)
    _wrap(module.File, "close", "reader", "h5py.File.close")


BEHIND = 200000000  # ns after a checkpoint
_saved = handover.saved


def _saves(*names):
    """Functions that write a checkpoint; what is renamed right behind it belongs to it."""

    def patch(module):
        for name in names:
            original = getattr(module, name, None)
            if callable(original):
                whole = module.__name__ + "." + name
                _put(
                    module,
                    name,
                    _saving(original, name, whole) if module.__name__ == "os" else _saving(original, whole),
                )

    return patch


def _saving(original, label, behind=None):
    """`behind`: its name where it follows a save at once, and so is a part of it; a sync that follows none is no save
    (a log that is synced). A save into memory (`memory`) is written by what follows it."""

    def traced(*args, **kwargs):
        begin = now()
        memory = any(isinstance(a, io.BytesIO) for a in args[1:2]) or isinstance(kwargs.get("f"), io.BytesIO)
        if begin and not behind:
            places.call("torch.save" if label == "torch.serialization.save" else label)
        at = getattr(_saved, "at", None) if behind else None
        follows = at is not None and monotonic_ns() - at < BEHIND
        try:
            return original(*args, **kwargs)
        finally:
            if begin:
                span("checkpoint", behind if follows else label, begin, {"memory": 1} if memory else None)
                if follows or not behind:
                    _saved.at = monotonic_ns()

    return functools.update_wrapper(traced, original)


def _behind_save(*names):
    """Functions of os: a checkpoint gets its name."""

    def behind(original, name):
        def traced(*args, **kwargs):
            at = getattr(_saved, "at", None)
            begin = now() if at is not None and monotonic_ns() - at < BEHIND else 0
            if not begin:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                span("checkpoint", "os." + name, begin, None)
                _saved.at = monotonic_ns()

        return functools.update_wrapper(traced, original)

    def patch(module):
        for name in names:
            original = getattr(module, name, None)
            if not callable(original):
                continue
            _put(module, name, behind(original, name))
            if original in getattr(module, "supports_dir_fd", ()):
                module.supports_dir_fd.add(getattr(module, name))

    return patch


def _methods(owner, category, names, label=None):
    """Methods of a class; `label` stands for the class's name."""

    def patch(module):
        for name in names if hasattr(module, owner) else ():
            _wrap(getattr(module, owner), name, category, (label or owner) + "." + name.strip("_"))

    return patch


def _all(*patches):
    def patch(module):
        for one in patches:
            one(module)

    return patch


PATCHES = {
    "os": _all(
        _saves("fsync", "fdatasync", "sync"), _behind_save("rename", "replace")
    ),  # who syncs makes a checkpoint durable
    "queue": _handover("thread_queues"),  # a loop that gets its batches from a thread of its own
    "concurrent.futures._base": _handover("futures"),
    "concurrent.futures.thread": _handover("thread_executor"),
    "concurrent.futures.process": _handover("process_executor"),
    "multiprocessing.pool": _handover("pool"),
    "multiprocessing.queues": _handover("queues"),
    "torch.utils.data.dataloader": _torch("loader"),
    "torch.utils.data._utils.worker": _torch("worker"),
    "torch.utils.data._utils.fetch": _torch("fetch"),
    "torch.utils.data._utils.pin_memory": _torch("pin_memory"),
    "millrace.torch": _torch("own_torch"),
    "millrace.numpy": _torch("own_numpy"),
    "torch.compiler": _torch_compiler,
    "torch.nn.modules.module": _handover("modules"),
    "torch._tensor": _torch_tensor,
    "torch.optim.optimizer": _torch_optimizer,
    "torchvision.transforms.transforms": _compose,
    "torchvision.transforms.v2._container": _transform_v2("Compose"),
    "torchvision.transforms.v2._transform": _transform_v2("Transform"),
    "torchvision.io.image": _all(
        _functions("reader", "read_file"),
        _functions("decode", "decode_image", "decode_jpeg", "decode_png", "decode_webp"),
    ),
    "cv2": _functions("decode", "imread", "imdecode"),
    "torch.distributed": _ranks("buffers"),
    "torch.distributed.distributed_c10d": _ranks("work"),
    "torch.nn.parallel.distributed": _ranks("parallel"),
    "torch.serialization": _all(_saves("save"), _names("checkpoint", "load")),
    "torch.distributed.checkpoint.state_dict_saver": _names("checkpoint", "save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": _names("checkpoint", "load"),
    "safetensors.torch": _all(_saves("save_file", "save_model"), _names("checkpoint", "load_file")),
    "safetensors.numpy": _all(_saves("save_file"), _names("checkpoint", "load_file")),
    "safetensors.flax": _all(_saves("save_file"), _names("checkpoint", "load_file")),
    # All that one checkpoint of a framework writes: its parts lie inside.
    "lightning.pytorch.trainer.trainer": _methods("Trainer", "checkpoint", ("save_checkpoint",), "lightning"),
    "pytorch_lightning.trainer.trainer": _methods("Trainer", "checkpoint", ("save_checkpoint",), "lightning"),
    "lightning.fabric.fabric": _methods("Fabric", "checkpoint", ("save", "load")),
    "transformers.trainer": _methods("Trainer", "checkpoint", ("_save_checkpoint",), "transformers"),
    "accelerate.accelerator": _methods("Accelerator", "checkpoint", ("save_state", "load_state")),
    "orbax.checkpoint.checkpoint_manager": _methods(
        "CheckpointManager", "checkpoint", ("save", "restore", "wait_until_finished")
    ),
    "orbax.checkpoint._src.checkpointers.checkpointer": _methods("Checkpointer", "checkpoint", ("save", "restore")),
    "orbax.checkpoint._src.checkpointers.async_checkpointer": _methods(
        "AsyncCheckpointer", "checkpoint", ("save", "wait_until_finished")
    ),
    "flax.training.checkpoints": _names("checkpoint", "save_checkpoint", "restore_checkpoint"),
    "jax": _jax("compiled"),
    "jax._src.array": _jax("arrays"),
    "jax._src.distributed": _jax("distributed"),
    "jax.experimental.multihost_utils": _jax("collectives"),
    "numpy": _names(
        "reader", "load", "save", "savez", "savez_compressed", "fromfile", "memmap", "loadtxt", "savetxt", "genfromtxt"
    ),
    "h5py._hl.dataset": _h5py_dataset,
    "h5py._hl.files": _h5py_file,
    "PIL.Image": _names("reader", "open"),
    "PIL.ImageFile": _pil_load("ImageFile"),
    "PIL.WebPImagePlugin": _pil_load("WebPImageFile"),
    "PIL.AvifImagePlugin": _pil_load("AvifImageFile"),
    "tensorflow.python.data.ops.iterator_ops": _pipeline("tensorflow"),
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": _pipeline("tensorflow_function"),
    "tensorflow.python.eager.def_function": _pipeline("tensorflow_function"),
    "tensorflow.python.eager.backprop": _pipeline("tensorflow_gradients"),
    "tensorflow.python.checkpoint.checkpoint": _methods(
        "Checkpoint", "checkpoint", ("save", "restore", "write", "read"), "tf.Checkpoint"
    ),
    "torchdata.nodes.loader": _pipeline("torchdata_loader"),
    "torchdata.nodes.map": _pipeline("torchdata_workers"),
    "nvidia.dali.plugin.pytorch": _pipeline("dali"),
    "nvidia.dali.plugin.jax.iterator": _pipeline("dali"),
    "ray.data._internal.execution.operators.map_operator": _pipeline("ray_tasks"),
    "grain._src.python.data_loader": _pipeline("grain_loader"),
    "grain._src.python.dataset.dataset": _pipeline("grain_dataset"),
    "grain._src.python.dataset.transformations.prefetch": _pipeline("grain_threads"),
    "grain._src.python.dataset.transformations.process_prefetch": _pipeline("grain_workers"),
    "grain._src.python.dataset.transformations.source": _methods(
        "SourceMapDataset", "data_loader", ("__getitem__",), "grain.source"
    ),
}


# Importing these takes seconds: start-up.
STARTUP = (
    "torch",
    "tensorflow",
    "jax",
    "keras",
    "torchvision",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "flax",
)


def _startup(name):
    begin = now()
    return lambda: span("startup", "import " + name, begin, None)


class _Finder:
    """Watches imports: when a module of PATCHES has been executed, changes it; those of STARTUP are spans."""

    def __init__(self, skip):
        self._waiting = {k: v for k, v in PATCHES.items() if k.split(".")[0] not in skip}
        self._timed = {k for k in STARTUP if k not in skip}
        self.late = []  # modules of PATCHES whose import had begun before us

    def _look_at_late(self):
        for module in [m for m in self.late if not _begun(m)]:
            self.late.remove(module)
            patch = self._waiting.pop(module.__name__, None)
            if patch is not None:
                _change(module.__name__, patch, module)

    def find_spec(self, name, path=None, target=None):
        if self.late:
            self._look_at_late()
        patch = self._waiting.get(name)
        if patch is None and name not in self._timed:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        if spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            ended = _startup(name) if name in self._timed else None
            try:
                run(module)
            finally:
                if ended is not None:
                    ended()
            self._timed.discard(name)
            if (
                self._waiting.pop(name, None) is not None
            ):  # only now: programs also look for modules without importing them
                _change(name, patch, module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass
        return spec


def _begun(module):
    """Whether its import has begun, and has not ended."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _change(name, patch, module):
    try:
        patch(module)
        note("m" + name)
    except Exception as error:
        sys.stderr.write("millrace: '%s' is not instrumented: %s\n" % (name, error))


_installed = False


def install():
    """Instruments what is imported from now on, and what already was."""
    global _installed
    if _installed:
        return
    _installed = True
    if os.environ.get("MILLRACE_TRY"):  # `millrace try` runs this program again
        from . import _inject

        _inject.add_to(PATCHES, _put)
    skip = set(filter(None, os.environ.get("MILLRACE_TRACE_PYTHON_SKIP", "").split(",")))
    note("y")
    if hasattr(_trace, "machine") and now():  # a report may be read on another one
        span("startup", "machine", now(), _trace.machine())
    finder = _Finder(skip)
    for name, patch in list(finder._waiting.items()):
        module = sys.modules.get(name)
        if module is not None and _begun(module):
            finder.late.append(module)
        elif module is not None:
            del finder._waiting[name]
            _change(name, patch, module)
    sys.meta_path.insert(0, finder)
