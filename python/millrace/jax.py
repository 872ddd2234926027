"""Batches for JAX: an iterator of pytrees whose position can be saved, arrays spread over devices, and a data source
for Grain.

    import jax
    from millrace.jax import Loader, data_sharding

    loader = Loader("/data/imagenet/train", 256, shuffle=True, seed=1, epochs=90, pictures={"size": 224},
                    sharding=data_sharding())
    for batch in loader:                       # {"data": jax.Array (256, 224, 224, 3), "label": jax.Array (256,)}
        params = step(params, batch)

Without `sharding` leaves are numpy arrays: the loader's own memory, which jax.device_put and jit take (on a CPU
without a copy where their alignment allows; it is used again only when nobody refers to it any more). With it they are
jax.Arrays, and the copy of the next batch to the devices is under way while the program works on this one.

`get_state` and `set_state` are Grain's: bytes, of the position behind the last batch that was delivered. Orbax saves
them with grain.checkpoint.CheckpointSave(iterator), or put them into a checkpoint as they are.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from . import numpy as _plain
from .mixtures import stream_of

__all__ = ["BatchIterator", "Loader", "Source", "data_sharding", "shard"]


def data_sharding(devices: Sequence[Any] | None = None, axis: str = "data") -> jax.sharding.NamedSharding:
    """The first axis of every leaf cut into equal parts, one for each of `devices` (all that there are, of all
    processes)."""
    mesh = jax.sharding.Mesh(np.asarray(devices if devices is not None else jax.devices()), (axis,))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axis))


def shard(batch: Any, sharding: jax.sharding.Sharding) -> Any:
    """This process's leaves as parts of global jax.Arrays. All processes call it with equally large ones."""
    parts = _parts(sharding)

    def place(leaf: Any) -> Any:
        if parts and np.ndim(leaf) and len(leaf) % parts:
            raise ValueError(
                f"{len(leaf)} rows cannot be cut into {parts} equal parts, one for each device: "
                "take a batch_size that can, and drop_last=True"
            )
        if jax.process_count() == 1:
            return jax.device_put(leaf, sharding)
        return jax.make_array_from_process_local_data(sharding, leaf)

    return jax.tree_util.tree_map(place, batch)


def _parts(sharding: jax.sharding.Sharding) -> int:
    """Into how many parts a batch of this process is cut; 0: unknown."""
    spec = getattr(sharding, "spec", None)
    if not spec or spec[0] is None:
        return 0
    names = spec[0] if isinstance(spec[0], tuple) else (spec[0],)
    cut = 1
    for name in names:
        cut *= sharding.mesh.shape[name]
    return max(1, cut // jax.process_count())


class BatchIterator:
    """Batches of one epoch after another. `next` and `get_state` may be called by one thread at a time."""

    def __init__(self, owner: "Loader") -> None:
        self._owner = owner
        self._batches: Iterator[Any] | None = None
        self._staged: tuple[Any, dict[str, Any]] | None = None
        self._state = owner._plain.state_dict()

    def __iter__(self) -> "BatchIterator":
        return self

    def _read(self) -> tuple[Any, dict[str, Any]] | None:
        """The next batch and the position behind it; None behind the last epoch."""
        plain = self._owner._plain
        while True:
            if self._batches is None:
                if self._owner.epochs is not None and plain.epoch >= self._owner.epochs:
                    return None
                self._batches = iter(plain)
            batch = next(self._batches, None)
            if batch is not None:
                return self._owner._tree(batch), plain.state_dict()
            self._batches = None

    def __next__(self) -> Any:
        got, self._staged = self._staged or self._read(), None
        if got is None:
            raise StopIteration
        self._state = got[1]
        if self._owner.sharding is not None:
            self._staged = self._read()
        return got[0]

    def start_prefetch(self) -> None:
        """Begins to read; Grain's checkpoints call it after set_state."""
        self._staged = self._staged or self._read()

    def get_state(self) -> bytes:
        """The position behind the last batch that next() returned."""
        return json.dumps(self._state).encode()

    def set_state(self, state: bytes | str | dict[str, Any]) -> None:
        """The next batch is the one behind that position."""
        values = state if isinstance(state, dict) else json.loads(state)
        self._owner._plain.load_state_dict(values)
        self._batches = self._staged = None
        self._state = values


class Loader:
    """An iterable over `epochs` epochs (None: without an end) of batches as pytrees.

    dataset, batch_size and the options of millrace.numpy.Loader; besides
    epochs     1
    rank, world  jax.process_index() and jax.process_count(), where there are several; else as millrace.numpy.Loader's
    structure  "dict": {"data": ..., "label": ...}; "tuple": (data, label). The label is left out where samples have
               none. Samples of several fields: the fields by their names, or in their order
    keys       names in the dict
    sharding   where batches go: a jax.sharding.Sharding, see data_sharding, or a device; None: numpy arrays
    """

    def __new__(cls, dataset: Any, *arguments: Any, sharding: Any = None, **options: Any) -> Any:
        """Of a mixture or a token corpus: a Stream of millrace.mixtures, whose rows are spread by `sharding`."""
        spread = None if sharding is None else lambda leaf: shard(leaf, sharding) if leaf.ndim == 2 else leaf
        if (stream := stream_of(dataset, *arguments, convert=spread, **options)) is not None:
            return stream
        return super().__new__(cls)

    def __init__(
        self,
        dataset: "str | os.PathLike[str]",
        batch_size: int = 1,
        *,
        epochs: int | None = 1,
        rank: int | None = None,
        world: int | None = None,
        structure: str = "dict",
        keys: tuple[str, str] = ("data", "label"),
        sharding: Any = None,
        **options: Any,
    ) -> None:
        if structure not in ("dict", "tuple"):
            raise ValueError(f"structure is 'dict' or 'tuple', not '{structure}'")
        if (rank is None) != (world is None):
            raise ValueError("rank and world go together")
        if rank is None and jax.process_count() > 1:
            rank, world = jax.process_index(), jax.process_count()
        self.epochs, self.structure, self.keys = epochs, structure, keys
        self.sharding = jax.sharding.SingleDeviceSharding(sharding) if isinstance(sharding, jax.Device) else sharding
        if self.sharding is not None:
            parts = _parts(self.sharding)
            if parts and batch_size % parts:
                raise ValueError(f"batch_size {batch_size} cannot be cut into {parts} equal parts, one for each device")
        self._plain = _plain.Loader(dataset, batch_size, rank=rank, world=world, epochs=epochs, **options)
        if not len(self._plain):
            raise ValueError(
                f"an epoch has no batch: batch_size {batch_size} times {self._plain.world} processes is larger than "
                f"the {self._plain.info['samples']} samples, and drop_last leaves the rest out"
            )

    def _tree(self, batch: _plain.Batch) -> Any:
        leaves = (batch.data,) if batch.labels is None else (batch.data, batch.labels)
        tree: Any = dict(zip(self.keys, leaves)) if self.structure == "dict" else leaves
        if batch.fields is not None:
            tree = batch.fields if self.structure == "dict" else tuple(batch.fields.values())
            for name, value in batch.fields.items() if self.sharding is not None else ():
                if isinstance(value, list):
                    raise ValueError(
                        f"values of field '{name}' differ in shape, so devices cannot share them: say variable='pad'"
                    )
        return tree if self.sharding is None else shard(tree, self.sharding)

    @property
    def info(self) -> dict[str, Any]:
        """What the data set is: samples, files, format, dtype."""
        return self._plain.info

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._plain)

    def __iter__(self) -> BatchIterator:
        """Goes on where the last iteration was left, or from epoch 0 when it came to its end."""
        if self.epochs is not None and self._plain.epoch >= self.epochs:
            self._plain.set_epoch(0)
        return BatchIterator(self)

    def stats(self) -> dict[str, Any]:
        """What the loader has done and what limits it now."""
        return self._plain.stats()

    def close(self) -> None:
        """Ends the threads and frees the memory, but for arrays that are still in use."""
        self._plain.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Source(_plain.Samples):
    """Samples by their numbers: a RandomAccessDataSource for Grain, which orders, batches and transforms them itself.

        source = millrace.jax.Source("/data/set")
        loader = grain.DataLoader(data_source=source, sampler=grain.samplers.IndexSampler(len(source), ...), ...)

    Samples are dicts or tuples as Loader's batches are. Each thread that asks reads for itself; it may be pickled into
    worker processes. Loader is faster, because it knows what comes next.
    """

    def __init__(
        self,
        dataset: "str | os.PathLike[str]",
        *,
        structure: str = "dict",
        keys: tuple[str, str] = ("data", "label"),
        **options: Any,
    ) -> None:
        if structure not in ("dict", "tuple"):
            raise ValueError(f"structure is 'dict' or 'tuple', not '{structure}'")
        super().__init__(dataset, **options)
        self._structure, self._keys = structure, keys

    def __getitem__(self, index: Any) -> Any:
        data, label = super().__getitem__(index)
        leaves = (data,) if label is None else (data, label)
        return dict(zip(self._keys, leaves)) if self._structure == "dict" else leaves

    def __repr__(self) -> str:
        return f"millrace.jax.Source('{self.path}', samples={len(self)})"  # Grain compares it on resuming
