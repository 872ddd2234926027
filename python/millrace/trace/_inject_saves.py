"""Where a program that `millrace try` runs again saves: beside the user's checkpoints, in folders that the trial
removes, which is the same storage; or through our own saver, where the plan says so. Both sides of a trial do.

A file is moved by its name: what torch.save, safetensors or open() for writing would put at a path of a checkpoint lies
elsewhere, and whoever renames, copies, loads or removes that path in this process finds it there. Files of the user's
in folders that the program saves to are not removed, as a program does that keeps the newest three.
"""

from __future__ import annotations

import functools
import os
import queue
import shutil
import threading
from typing import Any

NAME = ".millrace-try-"  # src/loop/scratch.h
HOLDS = "millrace: save %d\n"


class Saves:
    """Names of this process' saves: as the program has them, and where they lie."""

    def __init__(self, plan: dict[str, Any], tell: Any) -> None:
        self.others: str = plan["others"]  # folders that the trial removes, a line each
        self.known = [(k["folder"], k["suffix"]) for k in plan.get("files", [])]  # of the recorded run
        self.saver: bool = plan.get("saver", False)
        self.tier: str = plan.get("tier", "")  # a folder of memory: files lie there, and are copied behind
        self.drained: Any = None
        self.keep: bool = plan.get("keep", False)  # files lie where the program has them
        self.tell = tell
        self.moved: dict[str, str] = {}
        self.folders: dict[str, str] = {}
        self.drains: dict[str, str] = {}
        self.own: Any = None
        self.saved = 0

    def folder(self, folder: str) -> str:
        """Ours for a folder of the program's."""
        if folder not in self.folders:
            os.makedirs(folder, exist_ok=True)
            self.folders[folder] = self.make(self.tier or folder)
            self.tell(saves=folder)
        return self.folders[folder]

    def make(self, folder: str) -> str:
        """A new folder that the trial removes; noted before it is made."""
        path = os.path.join(folder, NAME + os.urandom(8).hex())
        with _open(self.others, "a") as f:
            f.write(path + "\n")
        os.mkdir(path, 0o700)
        return path

    def drain(self, name: str, folder: str) -> None:
        """Copies a file of the tier to where the program saves, in the background, one at a time."""
        if self.drained is None:
            self.drained = queue.SimpleQueue()
            threading.Thread(target=_drain, args=(self.drained,), daemon=True).start()
            self.tell(set={"saver": "a copy in memory, drained behind"}, was={"saver": "torch.save"}, file="", line=0)
        self.drained.put((_open(name, "rb"), os.path.join(self.beside(folder), os.path.basename(name))))

    def beside(self, folder: str) -> str:
        """A folder of the storage that the program saves to."""
        if folder not in self.drains:
            self.drains[folder] = self.make(folder)
        return self.drains[folder]

    def place(self, path: Any) -> str:
        """Where a file that the program saves goes."""
        name = os.path.abspath(os.fspath(path))
        if self.keep:
            self.moved[name] = name
        elif NAME not in name and name not in self.moved:
            self.moved[name] = os.path.join(self.folder(os.path.dirname(name)), os.path.basename(name))
        return self.moved.get(name, name)

    def find(self, path: Any) -> Any:
        """Where a path of the program's lies: the path itself, where it was not moved."""
        if not isinstance(path, (str, os.PathLike)) or not self.moved:
            return path
        return self.moved.get(os.path.abspath(os.fspath(path)), path)

    def is_moved(self, path: Any) -> bool:
        return self.find(path) is not path

    def is_known(self, path: Any) -> bool:
        """Whether a file to be written is one of those that the recorded run saved, by folder and ending."""
        name = os.path.abspath(path)
        return any(os.path.dirname(name) == folder and name.endswith(suffix) for folder, suffix in self.known)

    def save(self, state: Any, path: Any) -> bool:
        """By our own saver; a file with the number of the save takes the place of the program's, to be renamed and
        copied. False: it does not take this state."""
        from millrace import checkpoint

        if self.own is None:
            self.own = checkpoint.Saver(
                self.folder(os.getcwd() if not self.known else self.known[0][0]), rank=0, world=1
            )
            self.tell(set={"saver": "millrace.checkpoint.Saver"}, was={"saver": "torch.save"}, file="", line=0)
        try:
            self.own.save(self.saved, state)
        except TypeError as error:
            self.tell(refused="the saver does not take this state: %s" % error)
            return False
        with _open(self.place(path), "w") as f:
            f.write(HOLDS % self.saved)
        self.saved += 1
        return True

    def load(self, path: Any) -> Any:
        """What save() wrote under this name; None: another file."""
        if self.own is None or not self.is_moved(path):
            return None
        with _open(self.find(path), "rb") as f:
            text = f.read(100)
        if not text.startswith(HOLDS.split("%")[0].encode()):
            return None
        from millrace import checkpoint

        self.own.wait()
        return checkpoint.load(self.own.folder, int(text.split()[-1]))


_open = open


def _drain(files: Any) -> None:
    while True:
        source, to = files.get()
        with source, _open(to, "wb") as f:
            shutil.copyfileobj(source, f, 4 << 20)


def _save(saves: Saves, original: Any) -> Any:
    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(f, (str, os.PathLike)):
            if saves.saver and saves.own is None:
                saves.tell(refused="torch.save is given an open file; ours takes the place of torch.save(STATE, PATH)")
            return original(obj, f, *args, **kwargs)
        if saves.saver and saves.save(obj, f):
            return None
        placed = saves.place(f)
        done = original(obj, placed, *args, **kwargs)
        if saves.tier:
            saves.drain(placed, os.path.dirname(os.path.abspath(os.fspath(f))))
        return done

    return save


def _save_tensors(saves: Saves, original: Any) -> Any:
    @functools.wraps(original)
    def save_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return original(tensors, saves.place(filename), *args, **kwargs)

    return save_file


def _reading(saves: Saves, original: Any) -> Any:
    """A function of one path that only looks."""

    @functools.wraps(original)
    def look(path: Any, *args: Any, **kwargs: Any) -> Any:
        return original(saves.find(path), *args, **kwargs)

    return look


def _load(saves: Saves, original: Any) -> Any:
    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        state = saves.load(f)
        return original(saves.find(f), *args, **kwargs) if state is None else state

    return load


def _renaming(saves: Saves, original: Any, keeps: bool) -> Any:
    """From a path to another one: what is moved stays so under its new name. keeps: it is copied."""

    @functools.wraps(original)
    def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
        if not saves.is_moved(src):
            return original(src, dst, *args, **kwargs)
        to = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
        done = original(saves.find(src), saves.place(to), *args, **kwargs)
        if not keeps:
            saves.moved.pop(os.path.abspath(src), None)
        return done

    return rename


def _removing(saves: Saves, original: Any) -> Any:
    @functools.wraps(original)
    def remove(path: Any, *args: Any, **kwargs: Any) -> Any:
        if saves.is_moved(path):
            original(saves.find(path), *args, **kwargs)
            saves.moved.pop(os.path.abspath(path), None)
        elif not (isinstance(path, str) and os.path.dirname(os.path.abspath(path)) in saves.folders):
            original(path, *args, **kwargs)

    return remove


def _opening(saves: Saves, original: Any) -> Any:
    @functools.wraps(original)
    def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        if isinstance(file, (str, os.PathLike)) and isinstance(mode, str):
            if any(c in mode for c in "wax+") and isinstance(os.fspath(file), str) and saves.is_known(os.fspath(file)):
                file = saves.place(file)
            elif saves.moved:
                file = saves.find(file)
        return original(file, mode, *args, **kwargs)

    return open


def _torch(saves: Saves, module: Any, put: Any) -> None:
    """Behind the tracing: its span is around what we do."""
    from . import instrument

    traced = module.save
    real = getattr(traced, "__wrapped__", traced)
    saving: Any = instrument._saving
    put(module, "save", saving(_save(saves, real), module.__name__ + ".save"))
    put(module, "load", _load(saves, module.load))


def _safetensors(saves: Saves, module: Any, put: Any) -> None:
    put(module, "save_file", _save_tensors(saves, module.save_file))


def _transformers(saves: Saves, module: Any, put: Any) -> None:
    original = module.Trainer.__dict__.get("_save_checkpoint")
    if original is None:
        return

    @functools.wraps(original)
    def _save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        was = self.args.output_dir
        self.args.output_dir = saves.folder(os.path.abspath(was))
        try:
            return original(self, *args, **kwargs)
        finally:
            self.args.output_dir = was

    put(module.Trainer, "_save_checkpoint", _save_checkpoint)


def _lightning(saves: Saves, module: Any, put: Any) -> None:
    original = module.Trainer.__dict__.get("save_checkpoint")
    if original is None:
        return

    @functools.wraps(original)
    def save_checkpoint(self: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, filepath if "://" in str(filepath) else saves.place(filepath), *args, **kwargs)

    put(module.Trainer, "save_checkpoint", save_checkpoint)


def _accelerate(saves: Saves, module: Any, put: Any) -> None:
    original = module.Accelerator.__dict__.get("save_state")
    if original is None:
        return

    @functools.wraps(original)
    def save_state(self: Any, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        if output_dir is not None:
            whole = os.path.abspath(output_dir)
            output_dir = os.path.join(saves.folder(os.path.dirname(whole)), os.path.basename(whole))
        return original(self, output_dir, *args, **kwargs)

    put(module.Accelerator, "save_state", save_state)


def _os(saves: Saves, module: Any, put: Any) -> None:
    for name in ("rename", "replace"):
        put(module, name, _renaming(saves, getattr(module, name), False))
    for name in ("remove", "unlink"):
        put(module, name, _removing(saves, getattr(module, name)))


def _shutil(saves: Saves, module: Any, put: Any) -> None:
    for name in ("copyfile", "copy", "copy2", "move"):
        put(module, name, _renaming(saves, getattr(module, name), name != "move"))


def _paths(saves: Saves, module: Any, put: Any) -> None:
    for name in ("exists", "isfile", "getsize", "getmtime"):
        put(module, name, _reading(saves, getattr(module, name)))


def _open_of(saves: Saves, module: Any, put: Any) -> None:
    put(module, "open", _opening(saves, module.open))


CHANGES = {
    "builtins": _open_of,
    "io": _open_of,
    "os": _os,
    "posixpath": _paths,
    "shutil": _shutil,
    "torch.serialization": _torch,
    "safetensors.torch": _safetensors,
    "lightning.pytorch.trainer.trainer": _lightning,
    "pytorch_lightning.trainer.trainer": _lightning,
    "transformers.trainer": _transformers,
    "accelerate.accelerator": _accelerate,
}
