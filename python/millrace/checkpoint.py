"""Checkpoints of real trainings: a copy while the training waits, written behind its back, never torn, readable as safetensors.

    from millrace import checkpoint

    saver = checkpoint.Saver("checkpoints", keep_last=3)
    for step, batch in enumerate(loader):
        ...
        if step % 1000 == 0:
            saver.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    saver.close()                                   # waits; raises what could not be written

    state = checkpoint.load("checkpoints")          # the newest complete one, verified; the same nested dict

A state is any nesting of dicts, lists and tuples with tensors (PyTorch on the CPU or on CUDA, NumPy, JAX) and plain values (str, int, float,
bool, None, bytes). Nothing is pickled: another object is a TypeError that names where it lies. Tensors of a flat state dict keep their names in
the safetensors file, nested ones are named by their path ("model.layer1.weight").

`save` returns when the tensors may change again: after a copy into memory that is kept from save to save. With `overlapped=True` it returns at once,
and the copy goes on during the next forward and backward pass; it is waited for before an optimizer's step (PyTorch 2.0 or later), or by `fence()`.
Small tensors, BatchNorm's running statistics among them, are copied at once, because a forward pass changes them.

Several ranks: give each its `rank`, `world` and a `job` name that all of them share and no other job has (torchrun's variables are read when `rank`
is left out). Every rank saves the same steps; the files of all of them make one checkpoint.
"""
import atexit
import base64
import json
import math
import os
import sys
import weakref
from typing import Any, Optional

from . import _core

__all__ = ["Saver", "load", "save", "wait"]

_SMALL = 1 << 20  # bytes: tensors up to this size are copied at once in an overlapped save

_TORCH_DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int16": "I16", "uint16": "U16",
                 "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64", "float64": "F64",
                 "int64": "I64", "uint64": "U64"}
_torch_dtypes: dict = {}  # by PyTorch's own objects, once it is there
_DTYPE_NAMES = {v: k for k, v in _TORCH_DTYPES.items()}


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_array(x: Any) -> bool:
    """NumPy's, JAX's, and whatever else gives a buffer by __array__ without being a plain value."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (isinstance(x, numpy.ndarray) or (hasattr(x, "__array__") and hasattr(x, "shape") and not _is_torch(x)
                                                                  and not isinstance(x, numpy.generic)))


class _Flat:
    """A state taken apart: tensors by name, and JSON that puts them together again."""

    def __init__(self, state: Any, overlapped: bool = False):
        self.tensors: list = []
        self.keep: list = []  # what the addresses point to
        self.names: set = set()
        self.overlapped = overlapped
        self.devices: set = set()
        self.small: dict = {}  # PyTorch's small tensors, by dtype and device: number and tensor
        self.tree = self.node(state, ())
        for group in self.small.values():
            self.copy_small(group)

    def copy_small(self, group: list) -> None:
        """All of them in one operation: hundreds of copies would take longer than the save may."""
        together = sys.modules["torch"].cat([x.reshape(-1) for _, x in group])
        self.keep.append(together)
        address, each = together.data_ptr(), together.element_size()
        for number, x in group:
            row = self.tensors[number]
            self.tensors[number] = row[:4] + (address, row[5])
            address += x.numel() * each

    def name(self, path: tuple) -> str:
        base = ".".join(str(p) for p in path) or "value"
        name, k = base, 1
        while name in self.names or name == "__metadata__":
            k += 1
            name = f"{base}#{k}"
        self.names.add(name)
        return name

    def torch_tensor(self, x: Any, path: tuple) -> dict:
        torch = sys.modules["torch"]
        if not _torch_dtypes:
            _torch_dtypes.update({getattr(torch, k): v for k, v in _TORCH_DTYPES.items() if hasattr(torch, k)})
        dtype, device = _torch_dtypes.get(x.dtype), x.device
        on = device.type
        if dtype is None or x.layout is not torch.strided or (on != "cpu" and on != "cuda"):
            raise TypeError(f"'{'.'.join(map(str, path))}': a tensor of {x.dtype}, {x.layout}, on {device} cannot be saved")
        if type(x) is not torch.Tensor:
            if hasattr(x, "to_local"):  # a DTensor: this rank's part
                x = x.to_local()
            x = x.detach()
        if dtype == "C64":
            x = x.resolve_conj()
        if x.is_neg():
            x = x.resolve_neg()
        cuda, plain, each = 0, x.is_contiguous(), x.element_size()
        if on == "cuda":
            cuda = device.index + 1
            self.devices.add(device.index)
            if not plain:
                x, plain = x.contiguous(), True
        if self.overlapped and 0 < x.numel() * each <= _SMALL:
            self.small.setdefault((x.dtype, device), []).append((len(self.tensors), x))
            plain = True
        strides = None if plain else tuple(s * each for s in x.stride())
        return self.add(x, path, dtype, tuple(x.shape), strides, x.data_ptr(), cuda, {"torch": True})

    def array(self, x: Any, path: tuple) -> dict:
        numpy = sys.modules["numpy"]
        kind = "numpy" if isinstance(x, numpy.ndarray) else "array"
        x = numpy.asarray(x)
        dtype = _TORCH_DTYPES.get(x.dtype.name)
        if dtype is None or not x.dtype.isnative:
            raise TypeError(f"'{'.'.join(map(str, path))}': an array of {x.dtype} cannot be saved")
        if self.overlapped and x.nbytes <= _SMALL:
            x = x.copy()
        strides = None if x.flags.c_contiguous else tuple(x.strides)
        return self.add(x, path, dtype, tuple(x.shape), strides, x.__array_interface__["data"][0], 0, {kind: True})

    def add(self, x: Any, path: tuple, dtype: str, shape: tuple, strides: Optional[tuple], address: int, cuda: int, node: dict) -> dict:
        name = self.name(path)
        self.keep.append(x)
        self.tensors.append((name, dtype, shape, strides, address, cuda))
        return {"tensor": name, **node}

    def node(self, x: Any, path: tuple) -> Any:
        if _is_torch(x):
            return self.torch_tensor(x, path)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(x, numpy.generic):
            return {"scalar": x.dtype.str, "value": self.node(x.item(), path)}
        if x is None or isinstance(x, (bool, str)):
            return x
        if isinstance(x, int):
            return x if -(2**53) < x < 2**53 else {"int": str(x)}
        if isinstance(x, float):
            return x if math.isfinite(x) else {"float": repr(x)}
        if isinstance(x, (bytes, bytearray)):
            return {"bytes": base64.b64encode(bytes(x)).decode()}
        if isinstance(x, dict):
            return {"dict": [[self.node(k, path), self.node(v, path + (k,))] for k, v in x.items()]}
        if isinstance(x, tuple):
            return {"tuple": [self.node(v, path + (i,)) for i, v in enumerate(x)]}
        if isinstance(x, list):
            return [self.node(v, path + (i,)) for i, v in enumerate(x)]
        if _is_array(x):
            return self.array(x, path)
        raise TypeError(f"'{'.'.join(map(str, path))}' is a {type(x).__module__}.{type(x).__qualname__}: a checkpoint holds tensors, str, int, float, bool, "
                        f"None, bytes, and dicts, lists and tuples of them (nothing is pickled)")


def _together(tree: Any, tensor: Any) -> Any:
    """The state again; `tensor(name, node)` gives the tensors."""
    if isinstance(tree, list):
        return [_together(v, tensor) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if "dict" in tree:
        return {_together(k, tensor): _together(v, tensor) for k, v in tree["dict"]}
    if "tuple" in tree:
        return tuple(_together(v, tensor) for v in tree["tuple"])
    if "tensor" in tree:
        return tensor(tree["tensor"], tree)
    if "int" in tree:
        return int(tree["int"])
    if "float" in tree:
        return float(tree["float"])
    if "bytes" in tree:
        return base64.b64decode(tree["bytes"])
    if "scalar" in tree:
        import numpy

        return numpy.dtype(tree["scalar"]).type(tree["value"])
    raise ValueError(f"the state has a part that this version does not know: {sorted(tree)}")


_savers: "weakref.WeakSet[Saver]" = weakref.WeakSet()


def _fence_all(*_: Any) -> None:
    for s in list(_savers):
        if s._behind:
            s.fence()


class Saver:
    """Saves states into one folder.

    folder: where checkpoints are kept, one folder `step-N` each.
    rank, world, job: of this process, how many there are, and a name that all of them share and no other job has. Left out: torchrun's RANK,
        WORLD_SIZE and run id, else one process.
    keep_last: older checkpoints are removed after a successful save; 0 keeps all.
    fsync: a checkpoint is durable before it has its name. direct: past the page cache.
    ring_bytes: memory for what is not written yet; 0: as much as the first state needs, at most half of what is free.
    copy_threads, write_threads: 0 chooses. bytes_per_s: write no faster; 0: no limit.
    """

    def __init__(self, folder: "str | os.PathLike", *, rank: Optional[int] = None, world: Optional[int] = None, job: Optional[str] = None, keep_last: int = 0,
                 fsync: bool = True, direct: bool = True, ring_bytes: int = 0, copy_threads: int = 0, write_threads: int = 0, bytes_per_s: int = 0,
                 commit_timeout_s: int = 0):
        env = os.environ
        if rank is None and world is None and "RANK" in env and "WORLD_SIZE" in env:
            rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
            job = job or ":".join((env.get("TORCHELASTIC_RUN_ID", ""), env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""),
                                   env.get("TORCHELASTIC_RESTART_COUNT", "0")))
        self.folder = os.fspath(folder)
        self._core = _core.Saver(self.folder, job, rank or 0, world or 1, fsync, direct, copy_threads, write_threads, ring_bytes, keep_last, bytes_per_s,
                                 commit_timeout_s)
        self._behind: Optional[_Flat] = None
        self._hooked = False
        _savers.add(self)

    def save(self, step: int, state: Any, *, loader: Any = None, overlapped: bool = False) -> dict:
        """Saves `state` as the checkpoint of `step`. loader: the data loader, or its state_dict(), kept beside it. Returns what it cost: bytes,
        blocked_s, copy_s, room_s. An error of an earlier save is raised here, once; this one is made all the same."""
        if self._behind:
            self.fence()
        flat = _Flat(state, overlapped)
        if loader is not None:
            loader = loader.state_dict() if hasattr(loader, "state_dict") else loader
        text = json.dumps(flat.tree, allow_nan=False)
        aside = None if loader is None else json.dumps(_Flat(loader).tree, allow_nan=False)
        stream = self._cuda(flat)
        if not overlapped:
            return self._core.save(step, flat.tensors, text, aside, stream)
        self._hook()
        result = self._core.begin(step, flat.tensors, text, aside, stream)
        self._behind = flat
        return result

    def _cuda(self, flat: _Flat) -> int:
        if not flat.devices:
            return 0
        torch = sys.modules["torch"]
        first = flat.tensors[next(i for i, t in enumerate(flat.tensors) if t[5])][5] - 1
        for device in flat.devices - {first}:
            torch.cuda.synchronize(device)
        return torch.cuda.current_stream(first).cuda_stream

    def _hook(self) -> None:
        """Before any optimizer's step the copy must be complete."""
        torch = sys.modules.get("torch")
        if self._hooked or torch is None:
            return
        try:
            from torch.optim.optimizer import register_optimizer_step_pre_hook
        except ImportError:
            raise NotImplementedError("overlapped saves need PyTorch 2.0 or later, or NumPy/JAX states and your own call of fence()") from None
        global _hook
        if _hook is None:
            _hook = register_optimizer_step_pre_hook(_fence_all)
        self._hooked = True

    def fence(self) -> dict:
        """Waits until the copy of an overlapped save is complete: the tensors may change again."""
        try:
            return self._core.fence()
        finally:
            self._behind = None

    def wait(self, step: Optional[int] = None) -> None:
        """Waits until the checkpoint of that step, or all, are on storage. Raises what failed."""
        if self._behind:
            self.fence()
        self._core.wait() if step is None else self._core.wait(step)

    def done(self) -> bool:
        """Whether everything that was saved is on storage."""
        return not self._behind and self._core.pending() == 0

    def last(self) -> Optional[dict]:
        """The last save that is over: step, bytes, durable_s (seconds from the call until it was durable), code (0, or an error)."""
        return self._core.last()

    def reserve(self, nbytes: int) -> None:
        """Gets the memory for a state of that size now, instead of in the first save."""
        self._core.reserve(nbytes)

    def close(self) -> None:
        """Waits for everything; raises what failed and was not told."""
        _savers.discard(self)
        try:
            if self._behind:
                self.fence()
        finally:
            self._core.close()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_hook: Any = None


def _empty(dtype: str, shape: tuple, node: dict) -> tuple:
    """Memory for a tensor, and its address."""
    name = _DTYPE_NAMES[dtype]
    if node.get("torch"):
        import torch

        t = torch.empty(shape, dtype=getattr(torch, name))
        return t, t.data_ptr()
    import numpy

    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes  # JAX brings it

        a = numpy.empty(shape, dtype=getattr(ml_dtypes, name))
    else:
        a = numpy.empty(shape, dtype=name)
    return a, a.__array_interface__["data"][0]


def load(folder: "str | os.PathLike", step: Optional[int] = None, *, rank: Optional[int] = None, map_location: Any = None, what: str = "state",
         threads: int = 0, direct: bool = False) -> Any:
    """The state of the newest complete checkpoint, or of `step`, as it was given to `save`. Every byte is compared with its checksum.

    rank: whose state; left out: this process's by torchrun's RANK, else rank 0. map_location: where PyTorch's tensors go ("cuda", a device).
    what="loader": the data loader's state that was saved beside it, None if there was none.
    A path that ends in .safetensors is read as the flat dict of tensors it is (PyTorch's if that is imported, else NumPy's)."""
    stored = _core.State(os.fspath(folder), -1 if step is None else step, threads, direct)
    rows = stored.tensors()
    bare = os.fspath(folder).endswith(".safetensors")
    if rank is None:
        rank = int(os.environ.get("RANK", 0)) if not bare and stored.info()[1] > 1 else 0
    tree = json.loads(stored.json(rank, what) or "null")
    if what != "state":
        return None if tree is None else _together(tree, None)
    if tree is None:  # of another program, or of the emulated training
        kind = {"torch": True} if "torch" in sys.modules else {"numpy": True}
        tree = {"dict": [[name, {"tensor": name, **kind}] for name, r, *_ in rows if r == rank]}
    index = {name: i for i, (name, r, *_) in enumerate(rows) if r == rank}
    ranges, made = [], {}

    def tensor(name: str, node: dict) -> Any:
        i = index[name]
        value, address = _empty(rows[i][2], rows[i][3], node)
        if rows[i][4]:
            ranges.append((i, 0, rows[i][4], address))
        made[id(value)] = value
        return value

    state = _together(tree, tensor)
    stored.read(ranges)
    return state if map_location is None else _moved(state, map_location)


def _moved(state: Any, where: Any) -> Any:
    if _is_torch(state):
        return state.to(where)
    if isinstance(state, dict):
        return {k: _moved(v, where) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_moved(v, where) for v in state)
    return state


_by_folder: dict = {}


def save(state: Any, folder: "str | os.PathLike", step: Optional[int] = None, *, overlapped: bool = False, **options: Any) -> dict:
    """`torch.save(state, file)` with a folder in place of the file. Returns after the copy; `wait()` or the end of the program waits for storage.
    step: left out, it is one more than the newest in the folder. Options are those of Saver, of the first save into that folder."""
    key = os.path.abspath(os.fspath(folder))
    saver = _by_folder.get(key)
    if saver is None:
        saver = _by_folder[key] = Saver(folder, **options)
        saver._next = 0
        try:
            saver._next = _core.State(key, -1, 1, False).info()[0] + 1
        except RuntimeError:
            pass  # nothing there yet
    if step is None:
        step = saver._next
    result = saver.save(step, state, overlapped=overlapped)
    saver._next = step + 1
    return result


def wait(folder: "str | os.PathLike | None" = None) -> None:
    """Waits for what `save` wrote into that folder, or into all."""
    for key, saver in list(_by_folder.items()):
        if folder is None or key == os.path.abspath(os.fspath(folder)):
            saver.wait()


@atexit.register
def _end() -> None:
    for saver in list(_by_folder.values()):
        try:
            saver.close()
        except Exception as error:
            sys.stderr.write(f"millrace: a checkpoint in '{saver.folder}' could not be written: {error}\n")
    _by_folder.clear()
