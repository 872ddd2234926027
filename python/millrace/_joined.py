"""How several batches of small samples travel from a worker process in one message: their tensors lie in memory that
the worker shares with the program.

    join    samples of several batches, collated at once: one tensor for all of them
    pack    a batch that some function has made, whatever it is: a pickle, but for its tensors

What comes out is what torch hands over for each batch alone, in memory of its own:

J1  Batches are joined where torch's default_collate makes the same of them: samples of one structure, in which every
    tensor or array has one dtype and shape, and every number one type.
J2  Tensors are packed that are contiguous, on the CPU, without gradients and share no storage with another one of the
    batch; an object that is in a batch twice stays one object. A batch with others is left to torch.
"""

import io
import itertools
import math
import mmap
import os
import pickle
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils import collate as torchs

_ALIGN = 64
INLINE_BYTES = 256 << 10  # of tensors that travel in the message where there is no shared memory
_MAP = "default_collate_fn_map"
_known = dict(getattr(torchs, _MAP, {}))
_keys = itertools.count()
_memories: "weakref.WeakValueDictionary[int, Memory]" = weakref.WeakValueDictionary()  # of this process, by their keys


class Differs(Exception):
    """These rows cannot be collated together, or this batch cannot be packed."""


def is_usual() -> bool:
    """False: the program has given default_collate functions of its own."""
    return bool(getattr(torchs, _MAP, {}) == _known)


class Memory:
    """Anonymous memory in equal parts that the program and its workers share. Inherited by a fork; in a pickle for a
    spawned process its descriptor travels."""

    def __init__(self, parts: int, part_bytes: int) -> None:
        self.parts, self.part_bytes, self.key = parts, part_bytes, next(_keys)
        fd = os.memfd_create("millrace-batches", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, parts * part_bytes)
            self._open(fd)
        except BaseException:
            os.close(fd)
            raise
        _memories[self.key] = self

    def _open(self, fd: int) -> None:
        self._map = mmap.mmap(fd, self.parts * self.part_bytes)
        self._fd = fd

    def __getstate__(self) -> dict[str, Any]:
        from multiprocessing.reduction import DupFd

        return {"parts": self.parts, "part_bytes": self.part_bytes, "key": self.key, "fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parts, self.part_bytes, self.key = state["parts"], state["part_bytes"], state["key"]
        self._open(state["fd"].detach())

    def __del__(self, close: Any = os.close) -> None:  # `os` may be gone at the end of the program
        if hasattr(self, "_fd"):
            close(self._fd)

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...], count: int) -> torch.Tensor:
        """The memory itself, as a tensor."""
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)


class Leaf(NamedTuple):
    """A tensor: in shared memory at `offset`, or its bytes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    values: int
    offset: int
    content: Any  # a bytearray; None: in shared memory

    def tensor(self, key: int) -> torch.Tensor:
        """Not a copy."""
        if self.content is not None:
            return torch.frombuffer(self.content, dtype=self.dtype).view(self.shape)
        return _memories[key].tensor(self.offset, self.dtype, self.shape, self.values)


class Space:
    """Where the tensors of one message go. `part`: of the memory; -1: they travel in the message."""

    def __init__(self, memory: Memory | None, part: int) -> None:
        self._memory = memory if part >= 0 else None
        self.key = memory.key if memory is not None else -1
        self._begin = part * memory.part_bytes if memory is not None else 0
        self.used = 0
        self.wanted = 0  # bytes, also of tensors that had no place

    def new(self, dtype: torch.dtype, shape: tuple[int, ...], size: int) -> tuple[Leaf, torch.Tensor]:
        """A place for a tensor of `size` bytes. Differs: there is none."""
        count = math.prod(shape)
        if not size:
            raise Differs
        self.wanted += size
        if self._memory is None:
            if self.used + size > INLINE_BYTES:
                raise Differs
            leaf = Leaf(dtype, shape, count, 0, bytearray(size))
            self.used += size
            return leaf, leaf.tensor(-1)
        offset = -(-self.used // _ALIGN) * _ALIGN
        if offset + size > self._memory.part_bytes:
            raise Differs
        self.used = offset + size
        leaf = Leaf(dtype, shape, count, self._begin + offset, None)
        return leaf, self._memory.tensor(leaf.offset, dtype, shape, count)


# ---- joined batches ----


class Strings(NamedTuple):
    """Texts or bytes of all rows, which torch leaves as they are: in a list, or in a tuple inside of a sequence."""

    rows: Sequence[Any]


class Joined:
    """Batches that were collated at once."""

    def __init__(self, tree: Any, sizes: list[int], key: int) -> None:
        self.sizes = sizes
        self._tree, self._key, self._is_open, self._taken = tree, key, False, 0

    def take(self) -> Any:
        """The next batch, in memory of its own."""
        if not self._is_open:
            self._tree, self._is_open = _opened(self._tree, self._key), True
        begin, self._taken = self._taken, self._taken + 1
        size = self.sizes[begin]
        begin = sum(self.sizes[:begin]) if size != self.sizes[0] else begin * size
        return _part(self._tree, begin, begin + size)


def _opened(tree: Any, key: int) -> Any:
    if type(tree) is Leaf:
        return tree.tensor(key)
    if type(tree) is dict:
        return {name: _opened(value, key) for name, value in tree.items()}
    return [_opened(one, key) for one in tree] if type(tree) is list else tree


def _part(tree: Any, begin: int, end: int) -> Any:
    if type(tree) is torch.Tensor:
        return tree[begin:end].clone()
    if type(tree) is Strings:
        return tree.rows[begin:end]
    if type(tree) is dict:
        return {name: _part(value, begin, end) for name, value in tree.items()}
    return [_part(one, begin, end) for one in tree]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad


def _tensors(rows: Sequence[torch.Tensor], space: Space) -> Leaf:
    first, n = rows[0], len(rows)
    dtype = first.dtype
    if not _is_plain(first) or any(row.dtype is not dtype for row in rows):
        raise Differs
    leaf, place = space.new(dtype, (n, *first.shape), n * first.numel() * first.element_size())
    torch.stack(list(rows), out=place)  # refuses other shapes, and tensors with gradients
    return leaf


def _numbers(made: torch.Tensor, space: Space) -> Leaf:
    leaf, place = space.new(made.dtype, tuple(made.shape), made.numel() * made.element_size())
    place.copy_(made)
    return leaf


def _column(rows: Sequence[Any], space: Space) -> Any:
    kind = type(rows[0])
    if any(type(row) is not kind for row in rows):
        raise Differs
    if kind is torch.Tensor:
        return _tensors(rows, space)
    if kind is int or kind is float or kind is bool:
        return _numbers(torch.tensor(rows, dtype=torch.float64) if kind is float else torch.tensor(rows), space)
    if kind is str or kind is bytes:
        return Strings(rows)
    if kind is dict:
        names = list(rows[0])
        if any(list(row) != names for row in rows):
            raise Differs
        return {name: _column([row[name] for row in rows], space) for name in names}
    if kind is tuple or kind is list:
        n = len(rows[0])
        if any(len(row) != n for row in rows):
            raise Differs
        return [_column(column, space) for column in zip(*rows)]
    if kind.__module__ == "numpy":
        return _numpy(rows, space)
    raise Differs


def _numpy(rows: Sequence[Any], space: Space) -> Leaf:
    if rows[0].dtype.kind not in "biuf":
        raise Differs
    if type(rows[0]).__name__ in ("ndarray", "memmap"):
        return _tensors([torch.as_tensor(row) for row in rows], space)
    dtype = rows[0].dtype
    if rows[0].shape != () or any(row.dtype != dtype for row in rows):
        raise Differs
    return _numbers(torch.as_tensor(rows), space)


def join(batches: list[list[Any]], space: Space) -> Joined | None:
    """default_collate of each of these, at once; None: they differ."""
    try:
        if any(type(rows) is not list or not rows for rows in batches):
            return None
        tree = _column([row for rows in batches for row in rows], space)
    except Exception:  # torch's collate function says what is wrong, batch by batch
        return None
    return Joined(tree, [len(rows) for rows in batches], space.key)


# ---- packed batches ----


def _storage_of(tensor: torch.Tensor) -> int:
    """Where it lies; 0: nowhere. PyTorch before 2.0 has another name for it."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor._storage()
    return int(storage.data_ptr())


class Packed(NamedTuple):
    """A batch in a pickle whose tensors lie elsewhere."""

    content: bytes
    leaves: list[Leaf]
    key: int

    def open(self) -> Any:
        """The batch, in memory of its own."""
        reader = pickle.Unpickler(io.BytesIO(self.content))
        made: dict[int, torch.Tensor] = {}

        def load(number: int) -> torch.Tensor:
            if number not in made:
                made[number] = self.leaves[number].tensor(self.key).clone()
            return made[number]

        reader.persistent_load = load  # type: ignore[method-assign]
        return reader.load()


def pack(batch: Any, space: Space) -> Any:
    """A Packed; or the batch as it is, for torch to hand over."""
    leaves: list[Leaf] = []
    numbers: dict[int, int] = {}  # of tensors, by id
    storages: set[int] = set()

    def place(thing: Any) -> int | None:
        if not isinstance(thing, torch.Tensor):
            if isinstance(thing, (torch.UntypedStorage, torch.TypedStorage)):
                raise Differs
            return None
        if id(thing) in numbers:
            return numbers[id(thing)]
        where = _storage_of(thing) if type(thing) is torch.Tensor and _is_plain(thing) else 0
        if not where or where in storages or not thing.is_contiguous() or thing.__dict__:
            raise Differs
        leaf, memory = space.new(thing.dtype, tuple(thing.shape), thing.numel() * thing.element_size())
        memory.copy_(thing)
        storages.add(where)
        leaves.append(leaf)
        numbers[id(thing)] = len(leaves) - 1
        return numbers[id(thing)]

    out = io.BytesIO()
    writer = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    writer.persistent_id = place  # type: ignore[method-assign]
    try:
        writer.dump(batch)
    except Exception:
        return batch
    return Packed(out.getvalue(), leaves, space.key)
