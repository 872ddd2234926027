"""millrace.torch.save and load: torch.save and torch.load of state dicts, as checkpoints that are copied at once,
written behind and never torn."""

import os
from typing import Any

import torch

from . import checkpoint


def save(
    obj: Any, f: Any, *_pickle: Any, step: int | None = None, overlapped: bool = False, **options: Any
) -> dict[str, Any] | None:
    """torch.save(obj, f) for states of tensors and plain values. Returns when they may change again; load(), wait()
    and the end of the program wait for storage.

    f: a path, which becomes a folder with the newest checkpoint (millrace.checkpoint.load and `millrace ckpt` read it
    too); a file object goes to torch.save. Options are those of millrace.checkpoint.Saver; keep_last is 1, and one
    process saves for itself, also under torchrun, unless `rank` and `world` say otherwise. An error of an earlier save
    is raised here, once."""
    if hasattr(f, "write"):
        return torch.save(obj, f)
    if os.path.isfile(f):
        raise FileExistsError(
            f"'{os.fspath(f)}' is a file, and this save makes a folder: remove it or choose another name "
            "(load reads either)"
        )
    given = {k: v for k, v in options.items() if not k.startswith(("pickle_", "_use_"))}
    return checkpoint.save(obj, f, step, overlapped=overlapped, **{"keep_last": 1, "rank": 0, "world": 1, **given})


def load(
    f: Any,
    map_location: Any = None,
    *_pickle: Any,
    step: int | None = None,
    rank: int = 0,
    threads: int = 0,
    weights_only: bool = True,
    mmap: Any = None,
    **_other: Any,
) -> Any:
    """torch.load(f, map_location) of what save wrote (after waiting for it), of a .safetensors file, or of a file of
    torch.save."""
    if hasattr(f, "read") or (os.path.isfile(f) and not os.fspath(f).endswith(".safetensors")):
        return torch.load(f, map_location=map_location, weights_only=weights_only)
    if map_location is not None and not isinstance(map_location, (str, int, torch.device)):
        raise TypeError("map_location is a device here: the tensors are read to where they belong")
    checkpoint.wait(f)
    return checkpoint.load(f, step, rank=rank, map_location=map_location, threads=threads)


wait = checkpoint.wait
