"""Runs a program that somebody else wrote: a copy of its checkout (the second argument of the case), with few edits, as
a user would run it. Clocks lie around DataLoaders' iterators, around functions that the case names, and around
torch.save; backward passes say when the loop began and ended. From these the class follows (doc/reference/advice.md:
5 % of the time for data beyond the first batch, 3 % for checkpoints)."""

import os
import pathlib
import runpy
import shutil
import sys
import time

import case
import torch

_loop = [0.0, 0.0]
_backward = torch.Tensor.backward


def _clocked(self: torch.Tensor, *args: object, **kwargs: object) -> None:
    _loop[0] = _loop[0] or time.perf_counter()
    _backward(self, *args, **kwargs)
    _loop[1] = time.perf_counter()


torch.Tensor.backward = _clocked  # type: ignore[method-assign]


def checkout(part: str = "") -> pathlib.Path:
    """A copy of the checkout, or of a folder of it, in the case's folder."""
    to = pathlib.Path(case.FOLDER) / "checkout"
    shutil.copytree(os.path.join(sys.argv[2], part), to, ignore=shutil.ignore_patterns(".git"))
    return to


def run(script: pathlib.Path, *arguments: object, edits: "dict[str, str] | None" = None) -> None:
    """Runs the script in its folder with these arguments; `edits`: text that is replaced, and must be there."""
    text = script.read_text()
    for old, new in (edits or {}).items():
        if old not in text:
            raise RuntimeError("'%s' is not in %s any more" % (old, script.name))
        text = text.replace(old, new)
    script.write_text(text)
    sys.argv = [str(script)] + [str(a) for a in arguments]
    sys.path.insert(0, str(script.parent))
    os.chdir(script.parent)
    case.clock_loaders()
    case.clock_saves()
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout = stdout


def answer(causes: "list[str] | None" = None, first: "list[str] | None" = None) -> None:
    """The class follows from the clocks; causes and first findings are of a program that waits for data or saves."""
    loop = max(_loop[1], case.ended) - _loop[0]
    data, saved = (case.waited - case.first) / loop, case.saved / loop
    kind = (
        "input-bound"
        if data >= 0.05 and data >= saved
        else "checkpoint-bound"
        if saved >= 0.03
        else "input-bound"
        if data >= 0.05
        else "healthy"
    )
    if kind != "input-bound":
        causes, first = None, ["CK1", "CK2", "CK4"] if kind == "checkpoint-bound" else []
    case.answer(kind, causes, first, data=round(data, 3), saved=round(saved, 3), loop_s=round(loop, 2))
