"""Checkpoints of real trainings: a copy while the training waits, written behind its back, never torn, readable as safetensors.

    from millrace import checkpoint

    saver = checkpoint.Saver("checkpoints", keep_last=3)
    for step, batch in enumerate(loader):
        ...
        if step % 1000 == 0:
            saver.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    saver.close()                                   # waits; raises what could not be written

    state = checkpoint.load("checkpoints")          # the newest complete one, verified; the same nested dict

A state is any nesting of dicts (ordered ones, Counters and defaultdicts too), lists, tuples and sets with tensors (PyTorch on the CPU or on CUDA, NumPy, JAX) and plain
values (str, int, float, complex, bool, None, bytes, PyTorch's dtypes and devices); with JAX also its sharded arrays, keys and registered classes. Nothing is pickled: another object is a TypeError that names where it lies. Tensors of a flat state dict keep their names in
the safetensors file, nested ones are named by their path ("model.layer1.weight").

`save` returns when the tensors may change again: after a copy into memory that is kept from save to save. With `overlapped=True` it returns at once,
and the copy goes on during the next forward and backward pass; it is waited for before an optimizer's step (PyTorch 2.0 or later), or by `fence()`.
Small tensors, BatchNorm's running statistics among them, are copied at once, because a forward pass changes them.

Several ranks: give each its `rank`, `world` and a `job` name that all of them share and no other job has (torchrun's variables are read when `rank`
is left out). Every rank saves the same steps; the files of all of them make one checkpoint.
"""
import atexit
import base64
import collections
import json
import math
import operator
import os
import re
import signal
import sys
import threading
import time
import uuid
import weakref
from typing import Any, Optional

from . import _core, _jax_state

__all__ = ["Saver", "latest", "load", "save", "wait"]

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


_FACTORIES = {"dict": dict, "list": list, "set": set, "int": int, "float": float, "str": str}


def _instead(x: Any) -> str:
    """What to save of something that cannot be saved."""
    if hasattr(type(x), "__dataclass_fields__"):
        return ": save dataclasses.asdict() of it"
    if hasattr(x, "state_dict"):
        return ": save its state_dict()"
    if not _is_torch(x):
        return ""
    if x.device.type == "meta":
        return ": it has no values"
    if x.is_quantized:
        return ": save its int_repr(), scales and zero points"
    return ": save its indices() and values(), or to_dense()" if "sparse" in str(x.layout) else ": save .cpu() of it"


class _Flat:
    """A state taken apart: tensors by name, and JSON that puts them together again."""

    def __init__(self, state: Any, overlapped: bool = False):
        self.tensors: list = []
        self.keep: list = []  # what the addresses point to
        self.names: set = set()
        self.overlapped = overlapped
        self.devices: set = set()
        self.small: dict = {}  # PyTorch's small tensors, by dtype and device: number and tensor
        torch = sys.modules.get("torch")
        self.torch = torch
        self.tensor_type: Any = torch.Tensor if torch is not None else _Flat
        if torch is not None and not _torch_dtypes:
            _torch_dtypes.update({getattr(torch, k): v for k, v in _TORCH_DTYPES.items() if hasattr(torch, k)})
        self.tree = self.node(state, "")
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

    def name(self, path: str) -> str:
        path = path.replace("\0", "\\0")  # names only: the state's own keys are in its JSON
        if not path.isascii():
            path = path.encode("utf-8", "backslashreplace").decode()
        base = name = path or "value"
        k = 1
        while name in self.names or name == "__metadata__":
            k += 1
            name = f"{base}#{k}"
        self.names.add(name)
        return name

    def torch_tensor(self, x: Any, path: str) -> dict:
        torch = self.torch
        dtype, device = _torch_dtypes.get(x.dtype), x.device
        on, node = device.type, {"torch": True}
        if x.layout is not torch.strided or (on != "cpu" and on != "cuda") or (dtype is None and x.is_quantized):
            raise TypeError(f"'{path}': a tensor of {x.dtype}, {x.layout}, on {device} cannot be saved{_instead(x)}")
        if type(x) is not torch.Tensor:
            if hasattr(x, "to_local"):  # a DTensor: this rank's part
                x = x.to_local()
            x = x.detach()
        if dtype == "C64" or x.is_complex():
            x = x.resolve_conj()
        if dtype is None:
            dtype, x, node = self.viewed(x, path, node)
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
        return self.add(x, path, dtype, tuple(x.shape), strides, x.data_ptr(), cuda, node)

    def viewed(self, x: Any, path: str, node: dict) -> tuple:
        """A dtype that safetensors files do not have: the same bytes as another one."""
        torch = self.torch
        node = {**node, "view": str(x.dtype).split(".")[-1]}
        if x.dtype is torch.complex128:
            return "F64", torch.view_as_real(x), node
        if x.element_size() != 1:
            raise TypeError(f"'{path}': a tensor of {x.dtype} cannot be saved")
        return "U8", x.view(torch.uint8), node

    def array(self, x: Any, path: str) -> dict:
        numpy = sys.modules["numpy"]
        if _jax_state.is_key(x):
            jax = sys.modules["jax"]
            return {"jax_key": str(jax.random.key_impl(x)), "data": self.array(jax.random.key_data(x), path)}
        if _jax_state.is_jax(x):
            return self.jax_array(x, path)
        kind = "numpy" if isinstance(x, numpy.ndarray) else "array"
        x = numpy.asarray(x)
        node = {kind: True}
        if x.dtype == numpy.complex128 and x.dtype.isnative:
            node["view"] = "complex128"
            x = numpy.ascontiguousarray(x).view(numpy.float64).reshape(x.shape + (2,))
        dtype = _TORCH_DTYPES.get(x.dtype.name)
        if dtype is None or not x.dtype.isnative:
            native = "" if x.dtype.isnative or x.dtype.name not in _TORCH_DTYPES else f": save .astype('{x.dtype.name}') of it"
            raise TypeError(f"'{path}': an array of {x.dtype} cannot be saved{native}")
        if self.overlapped and x.nbytes <= _SMALL:
            x = x.copy()
        strides = None if x.flags.c_contiguous else tuple(x.strides)
        return self.add(x, path, dtype, tuple(x.shape), strides, x.__array_interface__["data"][0], 0, node)

    def jax_array(self, x: Any, path: str) -> dict:
        """In the parts in which it lies on its devices."""
        numpy = sys.modules["numpy"]
        parts = [{"tensor": self.array(numpy.asarray(data), path)["tensor"], "box": box} for box, data in _jax_state.own_parts(x)]
        return {"jax": _TORCH_DTYPES.get(x.dtype.name), "key": path, "shape": list(x.shape), "parts": parts}

    def add(self, x: Any, path: str, dtype: str, shape: tuple, strides: Optional[tuple], address: int, cuda: int, node: dict) -> dict:
        name = self.name(path)
        self.keep.append(x)
        self.tensors.append((name, dtype, shape, strides, address, cuda))
        return {"tensor": name, **node}

    def node(self, x: Any, path: str) -> Any:
        """What `x` is, as JSON; its tensors are noted. An overlapped save does this for a thousand tensors in milliseconds."""
        kind = type(x)
        if isinstance(x, self.tensor_type):
            return self.torch_tensor(x, path)
        if kind is str or x is None or kind is bool:
            return x
        if isinstance(x, dict):
            base = path + "." if path else ""
            rows = [[k if type(k) is str else self.node(k, path), self.node(v, f"{base}{k}")] for k, v in x.items()]
            return {"dict": rows} if kind is dict else {"dict": rows, **self.kind_of(x, path)}
        if isinstance(x, (list, tuple)):
            return self.sequence(x, [self.node(v, f"{path}.{i}" if path else str(i)) for i, v in enumerate(x)])
        return self.value(x, path)

    def kind_of(self, x: dict, path: str) -> dict:
        """Of a dict that is more than one: a module's state dict is ordered and has versions, a scheduler's has a Counter. Others come back as dicts."""
        if isinstance(x, collections.OrderedDict):
            versions = getattr(x, "_metadata", None)
            return {"kind": "OrderedDict", **({"metadata": self.node(versions, path)} if isinstance(versions, dict) else {})}
        if isinstance(x, collections.Counter):
            return {"kind": "Counter"}
        if type(x) is collections.defaultdict and (x.default_factory is None or x.default_factory in _FACTORIES.values()):
            return {"kind": "defaultdict", "of": next((n for n, f in _FACTORIES.items() if f is x.default_factory), None)}
        return {}

    def sequence(self, x: Any, each: list) -> Any:
        if isinstance(x, list):
            return each
        return {"tuple": each, "named": type(x).__name__, "fields": list(x._fields)} if hasattr(x, "_fields") else {"tuple": each}

    def value(self, x: Any, path: str) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(x, numpy.generic):
            return {"scalar": x.dtype.str, "value": self.node(x.item(), path)}
        if isinstance(x, (bool, str)):
            return x
        if isinstance(x, int):
            return x if -(2**53) < x < 2**53 else {"int": str(x)}
        if isinstance(x, float):
            return x if math.isfinite(x) else {"float": repr(x)}
        if isinstance(x, (bytes, bytearray)):
            return {"bytes": base64.b64encode(bytes(x)).decode()}
        if isinstance(x, complex):
            return {"complex": [repr(x.real), repr(x.imag)]}
        if isinstance(x, (set, frozenset)):
            return {"set": [self.node(v, path) for v in x], "frozen": isinstance(x, frozenset)}
        if self.torch is not None and isinstance(x, (self.torch.dtype, self.torch.device)):
            return {"torch_dtype" if isinstance(x, self.torch.dtype) else "torch_device": str(x).split("torch.")[-1]}
        if _is_array(x):
            return self.array(x, path)
        parts = _jax_state.children(x)
        if parts is not None:
            return {"node": f"{type(x).__module__}.{type(x).__qualname__}", "children": [self.node(v, f"{path}.{i}") for i, v in enumerate(parts)]}
        raise TypeError(f"'{path}' is a {type(x).__module__}.{type(x).__qualname__}: a checkpoint holds tensors, str, int, float, complex, bool, "
                        f"None, bytes, and dicts, lists, tuples and sets of them (nothing is pickled){_instead(x)}")


_FREE = object()  # `like`: nothing to be like


class _Reading:
    """Puts a state together again: plan() says what is to be read and returns a call that gives the value afterwards."""

    def __init__(self, stored: Any = None, rank: int = 0, where: Any = None):
        self.stored, self.rank, self.where = stored, rank, where
        self.rows = stored.tensors() if stored is not None else []
        self.index = {(r, name): i for i, (name, r, *_) in enumerate(self.rows)}
        self.ranges: list = []
        self.after: list = []
        self.made: list = []  # PyTorch's, for their devices
        self.parts: Optional[dict] = None  # of JAX's arrays, by key, of all ranks

    def read(self) -> None:
        _before_reading(self.made)
        self.stored.read(self.ranges)
        for f in self.after:
            f()

    def value(self, tree: Any, like: Any = _FREE) -> Any:
        give = self.plan(tree, like, ())
        if self.ranges:
            self.read()
        return give()

    def plan(self, tree: Any, like: Any, path: tuple) -> Any:
        if isinstance(tree, list):
            return self.sequence(tree, like, path, list)
        if not isinstance(tree, dict):
            return lambda: tree
        if "dict" in tree:
            return self.dictionary(tree, like, path)
        if "tuple" in tree:
            named = collections.namedtuple(tree["named"], tree["fields"]) if "named" in tree and like is _FREE else None
            return self.sequence(tree["tuple"], like, path, (lambda v: named(*v)) if named else tuple)
        if "tensor" in tree:
            return self.tensor(tree, like, path)
        if "jax" in tree:
            return self.jax_array(tree, like, path)
        if "node" in tree:
            return self.registered(tree, like, path)
        if "jax_key" in tree:
            import jax

            data = self.plan(tree["data"], jax.random.key_data(like) if _jax_state.is_key(like) else _FREE, path)
            return lambda: jax.random.wrap_key_data(data(), impl=tree["jax_key"])
        if "complex" in tree:
            return lambda: complex(*map(float, tree["complex"]))
        if "set" in tree:
            each = [self.plan(v, _FREE, path) for v in tree["set"]]
            return lambda: (frozenset if tree["frozen"] else set)(v() for v in each)
        if "torch_dtype" in tree or "torch_device" in tree:
            import torch

            return lambda: getattr(torch, tree["torch_dtype"]) if "torch_dtype" in tree else torch.device(tree["torch_device"])
        if "int" in tree:
            return lambda: int(tree["int"])
        if "float" in tree:
            return lambda: float(tree["float"])
        if "bytes" in tree:
            return lambda: base64.b64decode(tree["bytes"])
        if "scalar" in tree:
            import numpy

            value = self.plan(tree["value"], _FREE, path)()
            return lambda: numpy.dtype(tree["scalar"]).type(value)
        raise ValueError(f"the state has a part that this version does not know: {sorted(tree)}")

    def sequence(self, tree: list, like: Any, path: tuple, kind: Any) -> Any:
        if like is not _FREE:
            self.fits(like, path, (list, tuple), len(tree))
            kind = type(like) if not hasattr(like, "_fields") else lambda v: type(like)(*v)
        each = [self.plan(v, _FREE if like is _FREE else like[i], path + (i,)) for i, v in enumerate(tree)]
        return lambda: kind([v() for v in each])

    def dictionary(self, node: dict, like: Any, path: tuple) -> Any:
        tree = node["dict"]
        keys = [self.plan(k, _FREE, path)() for k, _ in tree]
        if like is not _FREE:
            self.fits(like, path, (dict,), len(tree))
            strange = [k for k in keys if k not in like]
            if strange:
                raise ValueError(f"'{'.'.join(map(str, path))}': the checkpoint has {strange[0]!r}, the target does not")
        each = [(k, self.plan(v, _FREE if like is _FREE else like[k], path + (k,))) for k, (_, v) in zip(keys, tree)]
        kind = _dict_kind(node) if like is _FREE else dict if type(like) is dict else type(like)
        versions = self.plan(node["metadata"], _FREE, path)() if like is _FREE and "metadata" in node else None
        return lambda: _with_versions(kind((k, v()) for k, v in each), versions)

    def registered(self, tree: dict, like: Any, path: tuple) -> Any:
        at = f"'{'.'.join(map(str, path))}' is a {tree['node']}"
        if like is _FREE:
            raise ValueError(f"{at}: give load() a state with objects of this class as `like`")
        parts = _jax_state.children(like)
        if parts is None or len(parts) != len(tree["children"]):
            raise ValueError(f"{at} with {len(tree['children'])} parts, the target has a {type(like).__qualname__}")
        each = [self.plan(v, p, path + (i,)) for i, (v, p) in enumerate(zip(tree["children"], parts))]
        return lambda: _jax_state.rebuilt(like, [v() for v in each])

    def fits(self, like: Any, path: tuple, kinds: tuple, n: int) -> None:
        if not isinstance(like, kinds) or len(like) != n:
            raise ValueError(f"'{'.'.join(map(str, path))}': the checkpoint has a {kinds[0].__name__} of {n}, the target a {type(like).__qualname__}"
                             + (f" of {len(like)}" if isinstance(like, kinds) else ""))

    def tensor(self, node: dict, like: Any, path: tuple) -> Any:
        i = self.index[self.rank, node["tensor"]]
        where = like.device if _is_torch(like) else self.where
        value, address = _empty(self.rows[i][2], self.rows[i][3], node, where)
        self.made.append(value)
        if self.rows[i][4]:
            self.ranges.append((i, 0, self.rows[i][4], address, _cuda_of(value)))
        return (lambda: _viewed(value, node["view"])) if "view" in node else lambda: value

    def jax_array(self, node: dict, like: Any, path: tuple) -> Any:
        if self.parts is None:
            self.parts = {}
            for r in range(self.stored.info()[1]):
                _find_parts(json.loads(self.stored.json(r, "state") or "null"), lambda n, r=r: self.parts.setdefault(n["key"], []).extend(
                    (tuple(map(tuple, p["box"])), self.index[r, p["tensor"]]) for p in n["parts"]))
        name = ".".join(map(str, path))
        stored = _jax_state.Stored(tuple(node["shape"]), self.parts[node["key"]])
        pending: list = []
        give = _jax_state.place(stored, name, _numpy_dtype(node["jax"]), None if like is _FREE else like, pending)
        for reads, after in pending:
            self.ranges += reads
            self.after += after
        return give


def _viewed(value: Any, dtype: str) -> Any:
    """The dtype it had, of the one it is stored as."""
    if not _is_torch(value):
        return value.view(dtype).reshape(value.shape[:-1])
    torch = sys.modules["torch"]
    return torch.view_as_complex(value) if dtype == "complex128" else value.view(getattr(torch, dtype))


def _dict_kind(node: dict) -> Any:
    kind = node.get("kind")
    if kind == "defaultdict":
        return lambda rows: collections.defaultdict(_FACTORIES.get(node["of"]), rows)
    return {"OrderedDict": collections.OrderedDict, "Counter": lambda rows: collections.Counter(dict(rows))}.get(kind, dict)


def _with_versions(made: Any, versions: Any) -> Any:
    if versions is not None:
        made._metadata = versions
    return made


def _find_parts(tree: Any, found: Any) -> None:
    if isinstance(tree, dict) and "jax" in tree:
        found(tree)
        return
    for v in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        _find_parts(v, found)


_savers: "weakref.WeakSet[Saver]" = weakref.WeakSet()


def _loader_tree(state: Any) -> Any:
    flat = _Flat(state)
    if flat.tensors:
        raise TypeError(f"the loader's state has a tensor, '{flat.tensors[0][0]}': plain values only, or put it into the state")
    return flat.tree


def _fence_all(*_: Any) -> None:
    for s in list(_savers):
        if s._behind:
            s.fence()


_jobs: dict = {}  # how many names were made for a folder and purpose: the same on all ranks


def _common_job(rank: int, purpose: str) -> Optional[str]:
    """A name that no other job has, by the process group's store: nothing collective. None: there is no process group."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None
    _jobs[purpose] = _jobs.get(purpose, 0) + 1
    key = f"millrace/{purpose}/{_jobs[purpose]}"
    if rank == 0:
        store.set(key, uuid.uuid4().hex)
    return store.get(key).decode()


def _who(rank: Optional[int], world: Optional[int], job: Optional[str], purpose: str) -> tuple:
    """Rank, world and job, by torchrun's variables where they are not given. A run's id and port are those of the run before, where nobody chose them: a process
    group knows better."""
    env = os.environ
    if rank is None and world is None and "RANK" in env and "WORLD_SIZE" in env:
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        job = job or (_common_job(rank, purpose) if world > 1 else None) or ":".join((env.get("TORCHELASTIC_RUN_ID", ""), env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", ""),
                               env.get("TORCHELASTIC_RESTART_COUNT", "0")))
    return rank or 0, world or 1, job


class Saver:
    """Saves states into one folder.

    folder: where checkpoints are kept, one folder `step-N` each.
    rank, world, job: of this process, how many there are, and a name that all of them share and no other job has. Left out: torchrun's RANK,
        WORLD_SIZE and run id, else one process.
    keep_last: older checkpoints are removed after a successful save; 0 keeps all.
    fsync: a checkpoint is durable before it has its name. direct: past the page cache.
    ring_bytes: memory for what is not written yet; 0: as much as the first state needs, at most half of what is free.
    copy_threads, write_threads: 0 chooses. bytes_per_s: write no faster; 0: no limit.
    tiers: faster places before the folder, nearest first (a folder of /dev/shm, a disk of the node): paths, or dicts with folder, capacity (bytes of this rank) and
        keep_last. A save is written to the first one and drained to the folder behind; `load(tiers=...)` reads from the nearest that has it.
        drain_bytes_per_s: drain no faster.
    """

    def __init__(self, folder: "str | os.PathLike", *, rank: Optional[int] = None, world: Optional[int] = None, job: Optional[str] = None, keep_last: int = 0,
                 fsync: bool = True, direct: bool = True, ring_bytes: int = 0, copy_threads: int = 0, write_threads: int = 0, bytes_per_s: int = 0,
                 commit_timeout_s: int = 0, tiers: "list | tuple" = (), drain_bytes_per_s: int = 0):
        rank, world, job = _who(rank, world, job, f"save/{os.path.abspath(os.fspath(folder))}")
        self.folder = os.fspath(folder)
        self._core = _core.Saver(self.folder, job, rank, world, fsync, direct, copy_threads, write_threads, ring_bytes, keep_last, bytes_per_s,
                                 commit_timeout_s, _tiers(tiers), drain_bytes_per_s)
        self._end_at: Optional[float] = None  # SIGTERM came: the time by which everything has to end
        self._sigterm_s = 0.0
        self._closed = False
        self._behind: Optional[_Flat] = None
        self._hooked = False
        self._lock = threading.RLock()  # of what saves: one thread at a time
        self._idle = threading.Condition()
        self._waits = 0  # threads inside wait(), which may last beside saves; under _idle
        _savers.add(self)

    def save(self, step: int, state: Any, *, loader: Any = None, overlapped: bool = False) -> dict:
        """Saves `state` as the checkpoint of `step`. loader: the data loader, or its state_dict(), kept beside it. Returns what it cost: bytes,
        blocked_s, copy_s, room_s (overlapped: blocked_s; the others come from fence()). An error of an earlier save is raised here, once; this one is made all the same."""
        step = operator.index(step)
        if step < 0:
            raise ValueError(f"a step is a number from 0 on, not {step}")
        with self._lock:
            if self._behind:
                self.fence()
            try:
                flat = _Flat(state, overlapped)
                if loader is not None:
                    loader = _loader_tree(loader.state_dict() if hasattr(loader, "state_dict") else loader)
            except Exception as error:
                self._core.fail(step, str(error))  # the other ranks need not wait for it
                raise
            return self._start(step, flat, loader, overlapped)

    def fail(self, step: int, why: str) -> None:
        """Instead of a save that this rank cannot make: the others learn why at once."""
        self._core.fail(step, why)

    def _start(self, step: int, flat: "_Flat", loader: Any = None, overlapped: bool = False) -> dict:
        text = json.dumps(flat.tree, allow_nan=False)
        aside = None if loader is None else json.dumps(loader, allow_nan=False)
        stream = self._cuda(flat)
        if not overlapped:
            return self._core.save(step, flat.tensors, text, aside, stream)
        self._hook()
        start = time.perf_counter()
        self._core.begin(step, flat.tensors, text, aside, stream)
        self._behind = flat
        return {"blocked_s": time.perf_counter() - start}

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
        with self._lock:
            try:
                return self._core.fence()
            finally:
                self._behind = None

    def wait(self, step: Optional[int] = None) -> None:
        """Waits until the checkpoint of that step, or all, are on storage. Raises what failed."""
        if self._behind:
            self.fence()
        with self._idle:
            self._waits += 1
        try:
            self._core.wait() if step is None else self._core.wait(step)
        finally:
            with self._idle:
                self._waits -= 1
                self._idle.notify_all()

    def done(self) -> bool:
        """Whether everything that was saved is on storage."""
        return not self._behind and self._core.pending() == 0

    def last(self) -> Optional[dict]:
        """The last save that is over: step, bytes, durable_s (seconds from the call until it was durable), code (0, or an error)."""
        return self._core.last()

    def on_sigterm(self, within: float) -> None:
        """From now on SIGTERM (a job's preemption) ends the training at its next step: `step()` saves and returns True. within: seconds from the signal until
        everything must be over; what is not complete by then is given up. Called by the main thread."""
        before = signal.getsignal(signal.SIGTERM)
        self._sigterm_s = within

        def handler(number: int, frame: Any) -> None:
            if self._end_at is None:
                self._end_at = time.monotonic() + within
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, handler)

    def step(self, number: Optional[int] = None, state: Any = None, *, loader: Any = None) -> bool:
        """A step of the training has ended. Told of every step, the drain of tiers slows down before it costs one. After a SIGTERM (see on_sigterm) it saves what
        `state()` returns as the checkpoint of `number`, closes the saver in the time that is left, and returns True: leave the loop."""
        if self._end_at is None:
            self._core.step()
            return False
        self._core.end_within(max(self._end_at - time.monotonic(), 0.001))
        try:
            if state is not None:
                self.save(number, state(), loader=loader)
        finally:
            self.close()
        return True

    def reserve(self, nbytes: int) -> None:
        """Gets the memory for a state of that size now, instead of in the first save."""
        with self._lock:
            self._core.reserve(nbytes)

    def close(self) -> None:
        """Waits for everything; raises what failed and was not told."""
        _savers.discard(self)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._behind:
                    self.fence()
            finally:
                with self._idle:
                    self._idle.wait_for(lambda: self._waits == 0)
                self._core.close()

    def __del__(self) -> None:
        try:
            if hasattr(self, "_waits"):
                self.close()
        except Exception as error:
            _tell(self, error)

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_hook: Any = None


def _stored_as(dtype: Any) -> Optional[str]:
    """Safetensors' name of a PyTorch dtype."""
    return _TORCH_DTYPES.get(str(dtype).split(".")[-1])


def _cuda_of(x: Any) -> int:
    return x.device.index + 1 if _is_torch(x) and x.device.type == "cuda" else 0


def _before_reading(tensors: Any) -> None:
    """Memory on a device may still be in use by what PyTorch began there: reads go past its streams."""
    torch = sys.modules.get("torch")
    for device in {x.device.index for x in tensors if _cuda_of(x)}:
        torch.cuda.synchronize(device)


def _empty(dtype: str, shape: tuple, node: dict, where: Any = None) -> tuple:
    """Memory for a tensor, and its address. PyTorch's lie on the device `where`."""
    name = _DTYPE_NAMES[dtype]
    if node.get("torch"):
        import torch

        t = torch.empty(shape, dtype=getattr(torch, name), device=where)
        return t, t.data_ptr()
    import numpy

    a = numpy.empty(shape, dtype=_numpy_dtype(dtype))
    return a, a.__array_interface__["data"][0]


def _numpy_dtype(dtype: str) -> Any:
    import numpy

    name = _DTYPE_NAMES[dtype]
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes  # JAX brings it

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def _tiers(tiers: Any) -> list:
    """(folder, capacity, keep_last) of each."""
    rows = [t if isinstance(t, dict) else {"folder": t} for t in tiers]
    strange = [k for t in rows for k in t if k not in ("folder", "capacity", "keep_last")]
    if strange:
        raise TypeError(f"a tier has folder, capacity and keep_last, no {strange[0]!r}")
    return [(os.fspath(t["folder"]), t.get("capacity", 0), t.get("keep_last", 0)) for t in rows]


def latest(folder: "str | os.PathLike") -> Optional[int]:
    """The step of the newest complete checkpoint, None if there is none."""
    try:
        return _core.nearest(os.fspath(folder), [], None, 0, 1, 0)[0]
    except RuntimeError:
        return None


def _from_tiers(folder: str, tiers: Any, job: Optional[str], rank: int, world: int, load_one: Any) -> Any:
    """Loads the newest step that all ranks have, from the nearest place that has it whole."""
    rows = _tiers(tiers)
    step, place = _core.nearest(folder, rows, job, rank, world, 0)
    places = [os.path.join(t[0], f"rank-{rank:05d}") for t in rows] + [folder]
    for at in places[place:]:
        try:
            return load_one(at, step)
        except (_core.DataError, _jax_state.Lacking) as error:  # damaged, not there, or only a part of it
            if at == folder:
                raise
            sys.stderr.write(f"millrace: step {step} in '{at}' cannot be used, the next tier is: {error}\n")


def _step_folder(folder: str, step: Optional[int]) -> tuple:
    """FOLDER/step-N as well, where that is one of ours."""
    path = folder.rstrip("/")
    named = re.fullmatch(r"step-(\d{12,})", os.path.basename(path))
    if step is not None or named is None or not os.path.isfile(os.path.join(path, "checkpoint.json")):
        return folder, step
    return os.path.dirname(path) or ".", int(named.group(1))


def load(folder: "str | os.PathLike", step: Optional[int] = None, *, rank: Optional[int] = None, map_location: Any = None, what: str = "state",
         like: Any = _FREE, threads: int = 0, direct: bool = True, tiers: "list | tuple" = (), job: Optional[str] = None, world: Optional[int] = None) -> Any:
    """The state of the newest complete checkpoint, or of `step`, as it was given to `save`. Every byte is compared with its checksum.

    rank: whose state; left out: this process's by torchrun's RANK, else rank 0. map_location: where PyTorch's tensors go ("cuda", a device; to CUDA devices
    they are read directly, through pinned buffers). what="loader": the data loader's state that was saved beside it, None if there was none.
    like: a state of the same structure: what comes back has its classes (NamedTuples, dataclasses that are registered with JAX), PyTorch's tensors lie on its
    devices, JAX's arrays are sharded like its arrays or jax.ShapeDtypeStructs. Without it JAX's arrays go to the default device.
    tiers: as of the Saver: the newest checkpoint that all ranks have, from the nearest place. Several ranks give `job` and `world` as well (torchrun's are read),
    and all of them call it, before they open their savers.
    direct: past the page cache, as the files were written.
    A path that ends in .safetensors is read as the flat dict of tensors it is (PyTorch's if that is imported, else NumPy's)."""
    if tiers:
        if step is not None:
            raise TypeError("either `step` or `tiers`: with tiers the newest that all ranks have is loaded")
        rank, world, job = _who(rank, world, job, f"load/{os.path.abspath(os.fspath(folder))}")
        options = {"rank": rank, "map_location": map_location, "what": what, "like": like, "threads": threads, "direct": direct}
        return _from_tiers(os.fspath(folder), tiers, job, rank, world, lambda at, s: load(at, s, **options))
    folder, step = _step_folder(os.fspath(folder), step)
    stored = _core.State(folder, -1 if step is None else step, threads, direct)
    bare = os.fspath(folder).endswith(".safetensors")
    if rank is None:
        rank = int(os.environ.get("RANK", 0)) if not bare and stored.info()[1] > 1 else 0
    if not 0 <= rank < stored.info()[1]:
        raise ValueError(f"rank {rank} saved nothing in '{os.fspath(folder)}': {stored.info()[1]} ranks did; give `rank` one of theirs")
    text = stored.json(rank, what)
    tree = json.loads(text or "null")
    if what != "state":
        return None if tree is None else _Reading().value(tree)
    if text is None:  # of another program, or of the emulated training
        kind = {"torch": True} if "torch" in sys.modules else {"numpy": True}
        tree = {"dict": [[name, {"tensor": name, **kind}] for name, r, *_ in stored.tensors() if r == rank]}
    if isinstance(tree, dict) and "dcp" in tree:
        raise ValueError(f"the checkpoint in '{os.fspath(folder)}' was saved through torch.distributed.checkpoint: load it with "
                         f"dcp.load(state, storage_reader=millrace.dcp.StorageReader(folder))")
    where = _device(map_location)
    direct_to = where if where is None or where.type in ("cpu", "cuda") else None
    state = _Reading(stored, rank, direct_to).value(tree, like)
    return state if where is direct_to else _moved(state, where)


def _device(where: Any) -> Any:
    """The device, with its number: torch.device("cuda") is the current one."""
    if where is None:
        return None
    import torch

    device = torch.device(where)
    return torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device


def _moved(state: Any, where: Any) -> Any:
    if _is_torch(state):
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


def _tell(saver: Saver, error: Exception) -> None:
    sys.stderr.write(f"millrace: a checkpoint in '{saver.folder}' could not be written: {error}\n")


@atexit.register
def _end() -> None:
    """Whatever is still open is waited for; what failed is told."""
    for saver in list(_savers):
        try:
            saver.close()
        except Exception as error:
            _tell(saver, error)
    _by_folder.clear()
