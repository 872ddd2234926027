"""Where the program makes what findings speak of: file and line of the call, and the arguments that a change is about.

A place is a span `place` with the name of what was called, told once. The line is that of the program's own code: the
call itself, or, where a library makes the object (`by`), the program's call of that library. A library that makes a
loader anew from one of the program's (Lightning, accelerate) has the place of that one: they share their data set.

What is a library: modules of Python itself and of site-packages, and the frameworks below wherever they lie. Code
without a file (`python -c`, a notebook's cell) has no place.
"""

import os
import sys
from _weakref import ref

from . import now, span

FRAMEWORKS = (
    "accelerate",
    "lightning",
    "millrace",
    "pytorch_lightning",
    "timm",
    "torch",
    "torchvision",
    "transformers",
)
_OWN = os.path.join(os.path.dirname(os.__file__), "")
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_told = set()  # process, target, place
_loaders = []  # weak references to loaders of the program's own
try:
    _begun_in = os.getcwd()  # scripts may have names relative to it
except OSError:
    _begun_in = ""


def _library(frame):
    """The library that a frame is of; None: it is the program's."""
    name, file = str(frame.f_globals.get("__name__") or ""), frame.f_code.co_filename
    first = name.partition(".")[0]
    if first in FRAMEWORKS or file.startswith(_OWN) or any(part in file for part in _INSTALLED):
        return first or "python"
    return "python" if file.startswith("<frozen") else None


def of_call(frame):
    """(file, line, library) of the call that `frame` makes; None: no code of the program's is behind it."""
    by = None
    while frame is not None:
        library = _library(frame)
        if library is None:
            file = frame.f_code.co_filename
            return None if file.startswith("<") else (os.path.join(_begun_in, file), frame.f_lineno, by)
        by = by or library
        frame = frame.f_back
    return None


def _maker(made, frame):
    """The frame that makes an object: not those of its class's own constructors, or of what wraps them (Lightning)."""
    while frame is not None and frame.f_code.co_argcount:
        if frame.f_locals.get(frame.f_code.co_varnames[0]) is not made:
            break
        frame = frame.f_back
    return frame


def loader_made(loader, frame):
    """A DataLoader has been made: `frame` called its constructor."""
    try:
        place = of_call(_maker(loader, frame))
        if place is not None and place[2] is not None:
            place = _of_same_data(loader) or place
        elif place is not None:
            _loaders[:] = [r for r in _loaders if r() is not None]
            _loaders.append(ref(loader))
        loader._millrace_place = place
    except Exception:  # a class that keeps its attributes to itself
        pass


def _of_same_data(loader):
    for reference in reversed(_loaders):
        other = reference()
        if other is not None and other is not loader and other.dataset is loader.dataset:
            return other._millrace_place
    return None


def _batches(loader):
    """Of an epoch, where the data set has a length; asking a stream for one can cost a pass over it."""
    try:
        return len(loader) if hasattr(loader.dataset, "__getitem__") else None
    except Exception:  # the program's own code
        return None


def tell_loader(loader, number):
    """A DataLoader is used for the first time."""
    place = getattr(loader, "_millrace_place", None)
    begin = now()
    if not begin or not hasattr(loader, "dataset"):
        return
    said = {"loader": number, "data_set": type(loader.dataset).__name__}
    batch = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    values = {
        "workers": getattr(loader, "num_workers", None),
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
        "persistent_workers": getattr(loader, "persistent_workers", None),
        "pin_memory": getattr(loader, "pin_memory", None),
        "batch_size": batch,
        "batches": _batches(loader),
    }
    said.update({k: int(v) for k, v in values.items() if isinstance(v, (bool, int))})
    own = type(loader).__module__.partition(".")[0] == "millrace"
    _tell("millrace.torch.DataLoader" if own else "torch.utils.data.DataLoader", begin, place, said)


def call(target):
    """The caller's caller calls `target`: told once for each line."""
    place = of_call(sys._getframe(2))
    key, begin = (os.getpid(), target, place), now()
    if begin and place is not None and key not in _told:
        _told.add(key)
        _tell(target, begin, place, {})


def _tell(target, begin, place, said):
    if place is not None:
        said["file"], said["line"] = place[0], place[1]
        if place[2] is not None:
            said["by"] = place[2]
    span("place", target, begin, said)
