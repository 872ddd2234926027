"""States of JAX in checkpoints: arrays of one or many devices, keys of random numbers, pytrees of registered classes.
An array that lies in parts on several devices or processes is saved in those parts, each once, and read in whatever
parts the target wants: only the ranges that are needed."""

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Box = tuple[tuple[int, int], ...]  # first and end in each dimension


def is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def is_key(x: Any) -> bool:
    return is_jax(x) and sys.modules["jax"].numpy.issubdtype(x.dtype, sys.modules["jax"].dtypes.prng_key)


def children(x: Any) -> list[Any] | None:
    """Of a pytree whose class is registered with JAX; None: it is none."""
    jax = sys.modules.get("jax")
    if jax is None or jax.tree_util.all_leaves([x]):
        return None
    return jax.tree_util.tree_leaves(x, is_leaf=lambda y: y is not x)


def rebuilt(like: Any, parts: list[Any]) -> Any:
    jax = sys.modules["jax"]
    return jax.tree_util.tree_structure(like, is_leaf=lambda y: y is not like).unflatten(parts)


def box_of(index: tuple[Any, ...], shape: tuple[Any, ...]) -> Box:
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape))


def own_parts(x: Any) -> list[tuple[Box, Any]]:
    """What this process saves of an array: its parts, each by one process."""
    return [(box_of(s.index, x.shape), s.data) for s in x.addressable_shards if s.replica_id == 0]


def _copy_part(target: Any, beside: Any, shape: list[int], strides: list[int]) -> None:
    import numpy

    target[...] = numpy.lib.stride_tricks.as_strided(beside, tuple(shape), strides)


class Lacking(ValueError):
    """Parts of an array are somewhere else."""


class Stored:
    """An array as it lies in a checkpoint, in parts by all ranks."""

    def __init__(self, shape: tuple[Any, ...], parts: list[tuple[Box, int]]) -> None:
        self.shape, self.parts = shape, parts

    def ranges(self, want: Box, into: Any, name: str) -> "tuple[list[Any], list[Callable[[], None]]]":
        """What to read for that box, and what to do afterwards with what was read beside it."""
        import numpy

        reads: list[Any] = []
        after: list[Callable[[], None]] = []
        covered = 0
        for box, number in self.parts:
            both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, want))
            if any(a >= b for a, b in both):
                continue
            shape = [b - a for a, b in box]
            at = [p[0] - q[0] for p, q in zip(both, box)]
            n = [b - a for a, b in both]
            covered += math.prod(n)
            first = last = 0
            for size, o, k in zip(shape, at, n):
                first, last = first * size + o, last * size + o + k - 1
            count = last - first + 1 if shape else 1
            target = into[tuple(slice(p[0] - w[0], p[1] - w[0]) for p, w in zip(both, want))]
            direct = count == math.prod(n) and target.flags.c_contiguous
            beside = target if direct else numpy.empty(count, into.dtype)
            reads.append((number, first * into.itemsize, count * into.itemsize, beside.__array_interface__["data"][0]))
            if not direct:
                strides = [into.itemsize * math.prod(shape[d + 1 :]) for d in range(len(shape))]
                after.append(partial(_copy_part, target, beside, n, strides))
        if covered != math.prod(b - a for a, b in want):
            wanted = math.prod(b - a for a, b in want)
            raise Lacking(f"'{name}': the checkpoint has only {covered} of {wanted} elements of the wanted part")
        return reads, after


def place(stored: "Stored", name: str, dtype: Any, like: Any, pending: list[Any]) -> Any:
    """An array placed as `like` is (an array, a ShapeDtypeStruct with a sharding, or neither: on the default device).
    Reading is left for later, together with everything
    else: `pending` gets (reads, after); the value is what the returned call gives afterwards."""
    import jax
    import numpy

    sharding = getattr(like, "sharding", None)
    if like is not None and hasattr(like, "shape") and tuple(like.shape) != tuple(stored.shape):
        raise ValueError(f"'{name}' has shape {tuple(stored.shape)}, the target {tuple(like.shape)}")
    if sharding is None:
        boxes: dict[Box, Any] = {tuple((0, n) for n in stored.shape): None}
    else:
        boxes = {
            box_of(i, stored.shape): None
            for i in sharding.addressable_devices_indices_map(tuple(stored.shape)).values()
        }
    for box in boxes:
        boxes[box] = numpy.empty([b - a for a, b in box], dtype)
        if boxes[box].size:
            pending.append(stored.ranges(box, boxes[box], name))
    if sharding is None:
        return lambda: jax.numpy.asarray(next(iter(boxes.values())))
    return lambda: jax.make_array_from_callback(
        tuple(stored.shape), sharding, lambda index: boxes[box_of(index, stored.shape)]
    )
