"""Checkpoints of real trainings: a copy while the training waits, written in the background, never torn, readable as
safetensors.

    from millrace import checkpoint

    saver = checkpoint.Saver("checkpoints", keep_last=3)
    for step, batch in enumerate(loader):
        ...
        if step % 1000 == 0:
            saver.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    saver.close()                                   # waits; raises what could not be written

    state = checkpoint.load("checkpoints")          # the newest complete one, verified; the same nested dict

A state is any nesting of dicts (ordered ones, Counters and defaultdicts too), lists, tuples and sets with tensors
(PyTorch on the CPU or on CUDA, NumPy, JAX) and plain values (str, int, float, complex, bool, None, bytes, PyTorch's
dtypes and devices); with JAX also its sharded arrays, keys and registered classes. Nothing is pickled: another object
is a TypeError that names where it lies. Tensors of a flat state dict keep their names in the safetensors file, nested
ones are named by their path ("model.layer1.weight").

`save` returns when the tensors may change again: after a copy into memory that is kept from save to save. With
`overlapped=True` it returns at once, and the copy goes on during the next forward and backward pass; it is waited for
before an optimizer's step (PyTorch 2.0 or later), or by `fence()`. Small tensors, BatchNorm's running statistics among
them, are copied at once, because a forward pass changes them.

Several ranks: give each its `rank`, `world` and a `job` name that all of them share and no other job has (torchrun's
variables are read when `rank` is left out). Every rank saves the same steps; the files of all of them make one
checkpoint.
"""

import atexit
import json
import os
import re
import sys
from typing import Any

from . import _core, _jax_state
from ._saver import Saver, is_url, open_savers, place_key, report_failure, tier_rows, who
from ._tree import FREE, Reading, inlined_value, is_torch

__all__ = ["Saver", "latest", "load", "save", "wait"]


def latest(folder: "str | os.PathLike[str]") -> int | None:
    """The step of the newest complete checkpoint, None if there is none. An OSError where that cannot be
    seen: a wrong key, a server that is away."""
    try:
        return _core.nearest(os.fspath(folder), [], None, 0, 1, 0)[0]
    except FileNotFoundError:
        return None


def _from_tiers(folder: str, tiers: Any, job: str | None, rank: int, world: int, load_one: Any) -> Any:
    """Loads the newest step that all ranks have, from the nearest place that has it whole."""
    rows = tier_rows(tiers)
    step, place = _core.nearest(folder, rows, job, rank, world, 0)
    places = [os.path.join(t[0], f"rank-{rank:05d}") for t in rows] + [folder]
    for at in places[place:]:
        try:
            return load_one(at, step)
        except (_core.DataError, _jax_state.Lacking) as error:  # damaged, not there, or only a part of it
            if at == folder:
                raise
            sys.stderr.write(f"millrace: step {step} in '{at}' cannot be used, the next tier is: {error}\n")


def _step_folder(folder: str, step: int | None) -> tuple[Any, ...]:
    """FOLDER/step-N as well, where that is one of ours."""
    path = folder.rstrip("/")
    named = re.fullmatch(r"step-(\d{12,})", os.path.basename(path))
    if step is not None or named is None:
        return folder, step
    if not is_url(path) and not os.path.isfile(os.path.join(path, "checkpoint.json")):
        return folder, step
    return os.path.dirname(path) or ".", int(named.group(1))


def load(
    folder: "str | os.PathLike[str]",
    step: int | None = None,
    *,
    rank: int | None = None,
    map_location: Any = None,
    what: str = "state",
    like: Any = FREE,
    threads: int = 0,
    direct: bool = True,
    tiers: "list[Any] | tuple[Any, ...] | None" = (),
    job: str | None = None,
    world: int | None = None,
) -> Any:
    """The state of the newest complete checkpoint, or of `step`, as it was given to `save`. Every byte is compared
    with its checksum.

    rank: whose state; left out: this process's by torchrun's RANK, else rank 0. map_location: where PyTorch's tensors
    go ("cuda", a device; to CUDA devices they are read directly, through pinned buffers). what="loader": the data
    loader's state that was saved beside it, None if there was none.
    like: a state of the same structure: what comes back has its classes (NamedTuples, dataclasses that are registered
    with JAX), PyTorch's tensors lie on its devices, JAX's arrays are sharded like its arrays or jax.ShapeDtypeStructs.
    Without it JAX's arrays go to the default device. Nothing complete to load is a FileNotFoundError.
    tiers: as of the Saver: the newest checkpoint that all ranks have, from the nearest place. Several ranks give `job`
    and `world` as well (torchrun's are read), and all of them call it, before they open their savers.
    direct: past the page cache, as the files were written.
    A path that ends in .safetensors is read as the flat dict of tensors it is (PyTorch's if that is imported, else
    NumPy's)."""
    if tiers:
        if step is not None:
            raise TypeError("either `step` or `tiers`: with tiers the newest that all ranks have is loaded")
        rank, world, job = who(rank, world, job, f"load/{place_key(folder)}")
        options = {
            "rank": rank,
            "map_location": map_location,
            "what": what,
            "like": like,
            "threads": threads,
            "direct": direct,
        }
        return _from_tiers(os.fspath(folder), tiers, job, rank, world, lambda at, s: load(at, s, **options))
    place, step = _step_folder(os.fspath(folder), step)
    stored = _core.State(place, -1 if step is None else step, threads, direct)
    bare = place.endswith(".safetensors")
    if rank is None:
        rank = int(os.environ.get("RANK", 0)) if not bare and stored.info()[1] > 1 else 0
    if not 0 <= rank < stored.info()[1]:
        raise ValueError(
            f"rank {rank} saved nothing in '{place}': {stored.info()[1]} ranks did; give `rank` one of theirs"
        )
    text = stored.json(rank, what)
    tree = json.loads(text or "null")
    if what != "state":
        return None if tree is None else inlined_value(tree)
    if text is None:  # of another program, or of the emulated training
        kind = {"torch": True} if "torch" in sys.modules else {"numpy": True}
        tree = {"dict": [[name, {"tensor": name, **kind}] for name, r, *_ in stored.tensors() if r == rank]}
    if isinstance(tree, dict) and "dcp" in tree:
        raise ValueError(
            f"the checkpoint in '{place}' was saved through torch.distributed.checkpoint: load it with "
            f"dcp.load(state, storage_reader=millrace.dcp.StorageReader(folder))"
        )
    where = _device(map_location)
    direct_to = where if where is None or where.type in ("cpu", "cuda") else None
    state = Reading(stored, rank, direct_to).value(tree, like)
    return state if where is direct_to else _moved(state, where)


def _device(where: Any) -> Any:
    """The device, with its number: torch.device("cuda") is the current one."""
    if where is None:
        return None
    import torch

    device = torch.device(where)
    return (
        torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device
    )


def _moved(state: Any, where: Any) -> Any:
    if is_torch(state):
        return state.to(where)
    if isinstance(state, dict):
        for k, v in state.items():
            state[k] = _moved(v, where)
        return state
    if hasattr(state, "_fields"):
        return type(state)(*(_moved(v, where) for v in state))
    if isinstance(state, (list, tuple)):
        return type(state)(_moved(v, where) for v in state)
    return state


_by_folder: dict[str, Any] = {}


def save(
    state: Any, folder: "str | os.PathLike[str]", step: int | None = None, *, overlapped: bool = False, **options: Any
) -> dict[str, Any]:
    """`torch.save(state, file)` with a folder in place of the file. Returns after the copy; `wait()` or the end of the
    program waits for storage.
    step: left out, it is one more than the newest in the folder. Options are those of Saver, of the first save into
        that folder.
    A new folder each time is fine: the memory of a saver whose saves are on storage goes over to the next one."""
    key = place_key(folder)
    saver = _by_folder.get(key)
    if saver is None:
        _close_idle()
        saver = _by_folder[key] = Saver(folder, **options)
        try:
            saver._next = _core.State(key, -1, 1, False).info()[0] + 1
        except FileNotFoundError:
            pass  # nothing there yet
    if step is None:
        step = saver._next
    result = saver.save(step, state, overlapped=overlapped)
    saver._next = step + 1
    return result


def _close_idle() -> None:
    """Savers of other folders that have nothing left to do, nor a failure to raise."""
    for key, saver in list(_by_folder.items()):
        last = saver.last()
        if saver.done() and last is not None and last["code"] == 0:
            del _by_folder[key]
            saver.close()


def wait(folder: "str | os.PathLike[str] | None" = None) -> None:
    """Waits for what `save` wrote into that folder, or into all."""
    for key, saver in list(_by_folder.items()):
        if folder is None or key == place_key(folder):
            saver.wait()


@atexit.register
def _end() -> None:
    """Waits for whatever is still open; failures are written to stderr."""
    for saver in list(open_savers):
        try:
            saver.close()
        except Exception as error:
            report_failure(saver, error)
    _by_folder.clear()
