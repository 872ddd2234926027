"""States in checkpoints: a nesting of dicts, lists and tensors as a list of tensors and JSON (`Flat`), and back
(`Reading`).

Nothing is pickled. A node of the JSON is a plain value, a list, or an object whose first key is its kind: "dict",
"tuple", "tensor", "jax", "jax_key", "node", "set", "complex", "int", "float", "bytes", "scalar", "torch_dtype",
"torch_device". Checkpoints of earlier versions have the same nodes: a kind may be added, none may change its meaning.
"""

import base64
import collections
import ctypes
import json
import math
import re
import sys
from typing import Any

from . import _core, _jax_state

_SMALL = 1 << 20  # bytes: tensors up to this size are copied at once in an overlapped save

_INLINE_MOST = 16 << 20  # bytes of tensors in a state's own JSON

TORCH_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}
_torch_dtypes: dict[Any, str] = {}  # by PyTorch's own objects, once it is there
_DTYPE_NAMES = {v: k for k, v in TORCH_DTYPES.items()}
_ELEMENT_BYTES = {v: 1 if v == "BOOL" or "8" in v else int(re.sub(r"\D", "", v)) // 8 for v in TORCH_DTYPES.values()}
# What a file may name: an attribute of PyTorch's is never looked up by a name that is not here.
_TORCH_NAMES = (*TORCH_DTYPES, "complex32", "complex128", "qint8", "quint8", "qint32", "quint4x2", "quint2x4",
                "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "uint1", "uint2", "uint3", "uint4", "uint5",
                "uint6", "uint7", "int1", "int2", "int3", "int4", "int5", "int6", "int7", "bits8", "bits16",
                "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2")  # fmt: skip


def torch_dtype(name: Any) -> Any:
    """PyTorch's dtype of that name, which comes from a file."""
    torch: Any = sys.modules["torch"]
    dtype = getattr(torch, name, None) if name in _TORCH_NAMES else None
    if dtype is None:
        raise _core.DataError(f"the checkpoint names the dtype {name!r}, which this PyTorch does not have")
    return dtype


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_array(x: Any) -> bool:
    """NumPy's, JAX's, and whatever else gives a buffer by __array__ without being a plain value."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (
        isinstance(x, numpy.ndarray)
        or (hasattr(x, "__array__") and hasattr(x, "shape") and not is_torch(x) and not isinstance(x, numpy.generic))
    )


_FACTORIES = {"dict": dict, "list": list, "set": set, "int": int, "float": float, "str": str}


def _instead(x: Any) -> str:
    """What to save of something that cannot be saved."""
    if hasattr(type(x), "__dataclass_fields__"):
        return ": save dataclasses.asdict() of it"
    if hasattr(x, "state_dict"):
        return ": save its state_dict()"
    if not is_torch(x):
        return ""
    if x.device.type == "meta":
        return ": it has no values"
    if x.is_quantized:
        return ": save its int_repr(), scales and zero points"
    return ": save its indices() and values(), or to_dense()" if "sparse" in str(x.layout) else ": save .cpu() of it"


class Flat:
    """A state taken apart: tensors by name, and JSON that puts them together again."""

    def __init__(self, state: Any, overlapped: bool = False):
        self.tensors: list[Any] = []
        self.keep: list[Any] = []  # what the addresses point to
        self.names: set[Any] = set()
        self.overlapped = overlapped
        self.devices: set[Any] = set()
        self.small: dict[Any, Any] = {}  # PyTorch's small tensors, by dtype and device: number and tensor
        torch: Any = sys.modules.get("torch")
        self.torch: Any = torch
        self.tensor_type: Any = torch.Tensor if torch is not None else Flat
        if torch is not None and not _torch_dtypes:
            _torch_dtypes.update({getattr(torch, k): v for k, v in TORCH_DTYPES.items() if hasattr(torch, k)})
        self.tree = self.node(state, "")
        for group in self.small.values():
            self.copy_small(group)

    def copy_small(self, group: list[Any]) -> None:
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

    def torch_tensor(self, x: Any, path: str) -> dict[str, Any]:
        torch = self.torch
        dtype, device = _torch_dtypes.get(x.dtype), x.device
        on = device.type
        node: dict[str, Any] = {"torch": True}
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

    def viewed(self, x: Any, path: str, node: dict[str, Any]) -> tuple[Any, ...]:
        """A dtype that safetensors files do not have: the same bytes as another one."""
        torch = self.torch
        node = {**node, "view": str(x.dtype).split(".")[-1]}
        if x.dtype is torch.complex128:
            return "F64", torch.view_as_real(x), node
        if x.element_size() != 1:
            raise TypeError(f"'{path}': a tensor of {x.dtype} cannot be saved")
        return "U8", x.view(torch.uint8), node

    def array(self, x: Any, path: str) -> dict[str, Any]:
        numpy = sys.modules["numpy"]
        if _jax_state.is_key(x):
            jax = sys.modules["jax"]
            return {"jax_key": str(jax.random.key_impl(x)), "data": self.array(jax.random.key_data(x), path)}
        if _jax_state.is_jax(x):
            return self.jax_array(x, path)
        kind = "numpy" if isinstance(x, numpy.ndarray) else "array"
        x = numpy.asarray(x)
        node: dict[str, Any] = {kind: True}
        if x.dtype == numpy.complex128 and x.dtype.isnative:
            node["view"] = "complex128"
            x = numpy.ascontiguousarray(x).view(numpy.float64).reshape(x.shape + (2,))
        dtype = TORCH_DTYPES.get(x.dtype.name)
        if dtype is None or not x.dtype.isnative:
            native = (
                ""
                if x.dtype.isnative or x.dtype.name not in TORCH_DTYPES
                else f": save .astype('{x.dtype.name}') of it"
            )
            raise TypeError(f"'{path}': an array of {x.dtype} cannot be saved{native}")
        if self.overlapped and x.nbytes <= _SMALL:
            x = x.copy()
        strides = None if x.flags.c_contiguous else tuple(x.strides)
        return self.add(x, path, dtype, tuple(x.shape), strides, x.__array_interface__["data"][0], 0, node)

    def jax_array(self, x: Any, path: str) -> dict[str, Any]:
        """In the parts in which it lies on its devices."""
        numpy = sys.modules["numpy"]
        parts = [
            {"tensor": self.array(numpy.asarray(data), path)["tensor"], "box": box}
            for box, data in _jax_state.own_parts(x)
        ]
        return {"jax": TORCH_DTYPES.get(x.dtype.name), "key": path, "shape": list(x.shape), "parts": parts}

    def add(
        self,
        x: Any,
        path: str,
        dtype: str,
        shape: tuple[Any, ...],
        strides: tuple[Any, ...] | None,
        address: int,
        cuda: int,
        node: dict[str, Any],
    ) -> dict[str, Any]:
        name = self.name(path)
        self.keep.append(x)
        self.tensors.append((name, dtype, shape, strides, address, cuda))
        return {"tensor": name, **node}

    def inlined(self) -> Any:
        """The JSON with the content of its tensors in it: for small states that have no file of tensors."""
        content: dict[str, Any] = {}
        room = _INLINE_MOST
        for name, dtype, shape, strides, address, cuda in self.tensors:
            if cuda:
                raise TypeError(f"'{name}' lies on a CUDA device: give .cpu() of it")
            room -= math.prod(shape) * _ELEMENT_BYTES[dtype]
            if room < 0:
                raise TypeError(f"'{name}' is too large for a state without a file of tensors: put it into the state")
            content[name] = [dtype, list(shape), base64.b64encode(_bytes_at(dtype, shape, strides, address)).decode()]
        return {"inline": content, "value": self.tree} if content else self.tree

    def node(self, x: Any, path: str) -> Any:
        """What `x` is, as JSON; its tensors are noted. An overlapped save does this for a thousand tensors in
        milliseconds."""
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

    def kind_of(self, x: dict[str, Any], path: str) -> dict[str, Any]:
        """Of a dict that is more than one: a module's state dict is ordered and has versions, a scheduler's has a
        Counter. Others come back as dicts."""
        if isinstance(x, collections.OrderedDict):
            versions = getattr(x, "_metadata", None)
            return {
                "kind": "OrderedDict",
                **({"metadata": self.node(versions, path)} if isinstance(versions, dict) else {}),
            }
        if isinstance(x, collections.Counter):
            return {"kind": "Counter"}
        if type(x) is collections.defaultdict and (
            x.default_factory is None or x.default_factory in _FACTORIES.values()
        ):
            return {
                "kind": "defaultdict",
                "of": next((n for n, f in _FACTORIES.items() if f is x.default_factory), None),
            }
        return {}

    def sequence(self, x: Any, each: list[Any]) -> Any:
        if isinstance(x, list):
            return each
        return (
            {"tuple": each, "named": type(x).__name__, "fields": list(x._fields)}
            if hasattr(x, "_fields")
            else {"tuple": each}
        )

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
            return {
                "node": f"{type(x).__module__}.{type(x).__qualname__}",
                "children": [self.node(v, f"{path}.{i}") for i, v in enumerate(parts)],
            }
        raise TypeError(
            f"'{path}' is a {type(x).__module__}.{type(x).__qualname__}: a checkpoint holds tensors, str, int, float, "
            f"complex, bool, None, bytes, and dicts, lists, tuples and sets of them (nothing is pickled){_instead(x)}"
        )


def _bytes_at(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, address: int) -> bytes:
    """The elements of a tensor in memory, row by row."""
    each = _ELEMENT_BYTES[dtype]
    if strides is None:
        return ctypes.string_at(address, each * math.prod(shape)) if math.prod(shape) else b""
    places = [address]
    for n, stride in zip(shape, strides):
        places = [at + i * stride for at in places for i in range(n)]
    return b"".join(ctypes.string_at(at, each) for at in places)


# ---- back ----

FREE = object()  # `like`: nothing to be like


class _Inlined:
    """The tensors in a state's own JSON, as those of a file."""

    def __init__(self, content: dict[str, Any]):
        self.data = {name: base64.b64decode(row[2], validate=True) for name, row in content.items()}
        self.rows = [(name, 0, row[0], tuple(row[1]), len(self.data[name])) for name, row in content.items()]
        for name, _, dtype, shape, n in self.rows:
            if dtype not in _ELEMENT_BYTES or n != _ELEMENT_BYTES[dtype] * math.prod(shape):
                raise _core.DataError(f"'{name}' has {n} bytes, its shape {shape} of {dtype} wants another number")

    def tensors(self) -> list[Any]:
        return self.rows

    def read(self, ranges: list[Any]) -> None:
        for i, offset, n, address, _ in ranges:
            ctypes.memmove(address, self.data[self.rows[i][0]][offset : offset + n], n)


def inlined_value(tree: Any) -> Any:
    """What Flat.inlined() was made of."""
    if isinstance(tree, dict) and "inline" in tree:
        return Reading(_Inlined(tree["inline"])).value(tree["value"])
    return Reading().value(tree)


class Reading:
    """Puts a state together again: plan() says what is to be read and returns a call that gives the value
    afterwards."""

    def __init__(self, stored: Any = None, rank: int = 0, where: Any = None):
        self.stored, self.rank, self.where = stored, rank, where
        self.rows = stored.tensors() if stored is not None else []
        self.index = {(r, name): i for i, (name, r, *_) in enumerate(self.rows)}
        self.ranges: list[Any] = []
        self.after: list[Any] = []
        self.made: list[Any] = []  # PyTorch's, for their devices
        self.parts: dict[str, Any] | None = None  # of JAX's arrays, by key, of all ranks

    def read(self) -> None:
        before_reading(self.made)
        self.stored.read(self.ranges)
        for f in self.after:
            f()

    def value(self, tree: Any, like: Any = FREE) -> Any:
        give = self.plan(tree, like, ())
        if self.ranges:
            self.read()
        return give()

    def plan(self, tree: Any, like: Any, path: tuple[Any, ...]) -> Any:
        if isinstance(tree, list):
            return self.sequence(tree, like, path, list)
        if not isinstance(tree, dict):
            return lambda: tree
        if "dict" in tree:
            return self.dictionary(tree, like, path)
        if "tuple" in tree:
            named = collections.namedtuple(tree["named"], tree["fields"]) if "named" in tree and like is FREE else None
            return self.sequence(tree["tuple"], like, path, (lambda v: named(*v)) if named else tuple)
        if "tensor" in tree:
            return self.tensor(tree, like, path)
        if "jax" in tree:
            return self.jax_array(tree, like, path)
        if "node" in tree:
            return self.registered(tree, like, path)
        if "jax_key" in tree:
            import jax

            data = self.plan(tree["data"], jax.random.key_data(like) if _jax_state.is_key(like) else FREE, path)
            return lambda: jax.random.wrap_key_data(data(), impl=tree["jax_key"])
        if "complex" in tree:
            return lambda: complex(*map(float, tree["complex"]))
        if "set" in tree:
            each = [self.plan(v, FREE, path) for v in tree["set"]]
            return lambda: (frozenset if tree["frozen"] else set)(v() for v in each)
        if "torch_dtype" in tree or "torch_device" in tree:
            import torch

            return lambda: (
                torch_dtype(tree["torch_dtype"]) if "torch_dtype" in tree else torch.device(tree["torch_device"])
            )
        if "int" in tree:
            return lambda: int(tree["int"])
        if "float" in tree:
            return lambda: float(tree["float"])
        if "bytes" in tree:
            return lambda: base64.b64decode(tree["bytes"])
        if "scalar" in tree:
            import numpy

            value = self.plan(tree["value"], FREE, path)()
            return lambda: numpy.dtype(tree["scalar"]).type(value)
        raise ValueError(f"the state has a part that this version does not know: {sorted(tree)}")

    def sequence(self, tree: list[Any], like: Any, path: tuple[Any, ...], kind: Any) -> Any:
        if like is not FREE:
            self.fits(like, path, (list, tuple), len(tree))
            kind = type(like) if not hasattr(like, "_fields") else lambda v: type(like)(*v)
        each = [self.plan(v, FREE if like is FREE else like[i], path + (i,)) for i, v in enumerate(tree)]
        return lambda: kind([v() for v in each])

    def dictionary(self, node: dict[str, Any], like: Any, path: tuple[Any, ...]) -> Any:
        tree = node["dict"]
        keys = [self.plan(k, FREE, path)() for k, _ in tree]
        if like is not FREE:
            self.fits(like, path, (dict,), len(tree))
            strange = [k for k in keys if k not in like]
            if strange:
                raise ValueError(
                    f"'{'.'.join(map(str, path))}': the checkpoint has {strange[0]!r}, the target does not"
                )
        each = [(k, self.plan(v, FREE if like is FREE else like[k], path + (k,))) for k, (_, v) in zip(keys, tree)]
        kind = _dict_kind(node) if like is FREE else dict if type(like) is dict else type(like)
        versions = self.plan(node["metadata"], FREE, path)() if like is FREE and "metadata" in node else None
        return lambda: _with_versions(kind((k, v()) for k, v in each), versions)

    def registered(self, tree: dict[str, Any], like: Any, path: tuple[Any, ...]) -> Any:
        at = f"'{'.'.join(map(str, path))}' is a {tree['node']}"
        if like is FREE:
            raise ValueError(f"{at}: give load() a state with objects of this class as `like`")
        parts = _jax_state.children(like)
        if parts is None or len(parts) != len(tree["children"]):
            raise ValueError(f"{at} with {len(tree['children'])} parts, the target has a {type(like).__qualname__}")
        each = [self.plan(v, p, path + (i,)) for i, (v, p) in enumerate(zip(tree["children"], parts))]
        return lambda: _jax_state.rebuilt(like, [v() for v in each])

    def fits(self, like: Any, path: tuple[Any, ...], kinds: tuple[Any, ...], n: int) -> None:
        if not isinstance(like, kinds) or len(like) != n:
            raise ValueError(
                f"'{'.'.join(map(str, path))}': the checkpoint has a {kinds[0].__name__} of {n}, "
                f"the target a {type(like).__qualname__}" + (f" of {len(like)}" if isinstance(like, kinds) else "")
            )

    def tensor(self, node: dict[str, Any], like: Any, path: tuple[Any, ...]) -> Any:
        i = self.index[self.rank, node["tensor"]]
        where = like.device if is_torch(like) else self.where
        value, address = _empty(self.rows[i][2], self.rows[i][3], node, where)
        self.made.append(value)
        if self.rows[i][4]:
            self.ranges.append((i, 0, self.rows[i][4], address, cuda_of(value)))
        return (lambda: _viewed(value, node["view"])) if "view" in node else lambda: value

    def jax_array(self, node: dict[str, Any], like: Any, path: tuple[Any, ...]) -> Any:
        if self.parts is None:
            self.parts = {}
            for r in range(self.stored.info()[1]):
                _find_parts(
                    json.loads(self.stored.json(r, "state") or "null"),
                    lambda n, r=r: self.parts.setdefault(n["key"], []).extend(
                        (tuple(map(tuple, p["box"])), self.index[r, p["tensor"]]) for p in n["parts"]
                    ),
                )
        name = ".".join(map(str, path))
        stored = _jax_state.Stored(tuple(node["shape"]), self.parts[node["key"]])
        pending: list[Any] = []
        give = _jax_state.place(stored, name, numpy_dtype(node["jax"]), None if like is FREE else like, pending)
        for reads, after in pending:
            self.ranges += reads
            self.after += after
        return give


def _viewed(value: Any, dtype: str) -> Any:
    """The dtype it had, of the one it is stored as."""
    if not is_torch(value):
        return value.view(dtype).reshape(value.shape[:-1])
    torch = sys.modules["torch"]
    return torch.view_as_complex(value) if dtype == "complex128" else value.view(torch_dtype(dtype))


def _dict_kind(node: dict[str, Any]) -> Any:
    kind: Any = node.get("kind")
    if kind == "defaultdict":
        return lambda rows: collections.defaultdict(_FACTORIES.get(node["of"]), rows)
    return {"OrderedDict": collections.OrderedDict, "Counter": lambda rows: collections.Counter(dict(rows))}.get(
        kind, dict
    )


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


def cuda_of(x: Any) -> int:
    return x.device.index + 1 if is_torch(x) and x.device.type == "cuda" else 0


def before_reading(tensors: Any) -> None:
    """Memory on a device may still be in use by what PyTorch began there: reads go past its streams."""
    torch: Any = sys.modules.get("torch")
    for device in {x.device.index for x in tensors if cuda_of(x)}:
        torch.cuda.synchronize(device)


def _empty(dtype: str, shape: tuple[Any, ...], node: dict[str, Any], where: Any = None) -> tuple[Any, ...]:
    """Memory for a tensor, and its address. PyTorch's lie on the device `where`."""
    name = _DTYPE_NAMES[dtype]
    if node.get("torch"):
        import torch

        t = torch.empty(shape, dtype=torch_dtype(name), device=where)
        return t, t.data_ptr()
    import numpy

    a = numpy.empty(shape, dtype=numpy_dtype(dtype))
    return a, a.__array_interface__["data"][0]


def numpy_dtype(dtype: str) -> Any:
    import numpy

    name = _DTYPE_NAMES[dtype]
    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes  # JAX brings it

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)
