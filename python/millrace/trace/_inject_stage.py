"""Data of a program that `millrace try` runs again, read from copies nearer to it: a path below the folder of the data
is opened below the copy. Functions that open files by themselves, without Python's open(), have a row each; what
neither reaches reads the original, and the trial says that nothing was changed where that is all.
"""

from __future__ import annotations

import functools
import os
from typing import Any


class Stage:
    """The folder of the data, and that of their copies."""

    def __init__(self, plan: dict[str, Any], tell: Any) -> None:
        self.root = plan["from"] + "/"
        self.copy: str = plan.get("to", "")  # empty: they are read where they lie
        self.where: str = plan.get("where", "")
        self.buffer: int = plan.get("buffer", 0)  # bytes that Python's open() reads at a time; 0: as it does
        self.tell = tell
        self.told = 0

    def find(self, path: Any) -> Any:
        """Where a file of the data is read."""
        if not isinstance(path, (str, os.PathLike)):
            return path
        name = os.fspath(path)
        if not isinstance(name, str):
            return path
        name = os.path.abspath(name)
        if not self.copy or not name.startswith(self.root):
            return path
        copy = os.path.join(self.copy, name[len(self.root) :])
        if not os.access(copy, os.R_OK):
            return path
        self.report("data", self.root[:-1], self.where)
        return copy

    def report(self, key: str, was: Any, now: Any) -> None:
        """Once in each process."""
        if self.told != os.getpid():
            self.told = os.getpid()
            self.tell(set={key: now}, was={key: was}, file="", line=0)

    def buffering(self, path: Any) -> int:
        """Of a file that is opened for reading with Python's own buffer; -1: as Python chooses."""
        if not self.buffer or not isinstance(path, (str, os.PathLike)):
            return -1
        name = os.fspath(path)
        if not isinstance(name, str) or not os.path.abspath(name).startswith(self.root):
            return -1
        self.report("buffering", "Python's", self.buffer)
        return self.buffer


def _first(stage: Stage, original: Any) -> Any:
    """A function whose first argument is a path."""

    @functools.wraps(original)
    def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
        return original(stage.find(path), *args, **kwargs)

    return opened


def _opening(stage: Stage, original: Any) -> Any:
    @functools.wraps(original)
    def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        reads = isinstance(mode, str) and not any(c in mode for c in "wax+")
        if reads and not args and kwargs.get("buffering", -1) == -1:
            kwargs["buffering"] = stage.buffering(file)
        return original(stage.find(file) if reads else file, mode, *args, **kwargs)

    return open


def _os_open(stage: Stage, original: Any) -> Any:
    @functools.wraps(original)
    def open(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        return original(stage.find(path) if not flags & os.O_ACCMODE else path, flags, *args, **kwargs)

    return open


def _open_of(stage: Stage, module: Any, put: Any) -> None:
    put(module, "open", _opening(stage, module.open))


def _os(stage: Stage, module: Any, put: Any) -> None:
    put(module, "open", _os_open(stage, module.open))


def _functions(*names: str) -> Any:
    def change(stage: Stage, module: Any, put: Any) -> None:
        for name in names:
            if callable(getattr(module, name, None)):
                put(module, name, _first(stage, getattr(module, name)))

    return change


def _h5py(stage: Stage, module: Any, put: Any) -> None:
    original = module.File.__init__

    @functools.wraps(original)
    def __init__(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        original(self, stage.find(name) if mode == "r" else name, mode, *args, **kwargs)

    put(module.File, "__init__", __init__)


CHANGES = {
    "builtins": _open_of,
    "io": _open_of,
    "os": _os,
    "cv2": _functions("imread"),
    "h5py._hl.files": _h5py,
    "torch.serialization": _functions("load"),
    "torchvision.io.image": _functions("read_file"),
}
