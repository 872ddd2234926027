"""Batches of numpy arrays from a data set with a manifest (`millrace gen` or `millrace scan` makes one).

    from millrace.numpy import Loader

    loader = Loader("/data/set", batch_size=64, shuffle=True, seed=1)
    for epoch in range(3):
        for batch in loader:            # batch.data: numpy array, batch.labels: int64 array or None, batch.ids
            ...

Arrays are the loader's own memory, without a copy; it is used again when nobody refers to them any more. Where samples differ in
shape, `data` is a list of arrays. Every epoch has its own order, which is a function of (seed, epoch, rank, world) alone.
"""
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Union
import os

import numpy as np

from . import _core

__all__ = ["Batch", "Loader"]

_SPARE = 2


class Batch(NamedTuple):
    """One batch. `data` is an array, or a list of arrays where samples differ."""

    data: Union[np.ndarray, List[np.ndarray]]
    labels: Optional[np.ndarray]
    ids: np.ndarray


class Loader:
    """An iterable over epochs: each `for` is the next one.

    dataset      the folder of a data set, or its manifest
    shuffle      order "torch" (torch.randperm and DistributedSampler), else "sequential"; `order` names any other
    rank, world  this process reads every world-th sample
    drop_last    leave out a last, smaller batch
    threads      0: as many as there are CPUs
    lookahead    batches read ahead
    in_memory    read the set once and serve every epoch from memory
    verify       check stored checksums
    store        a storage stack, see `millrace help store`
    """

    def __init__(
        self,
        dataset: Union[str, "os.PathLike[str]"],
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        order: Optional[str] = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        threads: int = 0,
        lookahead: int = 3,
        in_memory: bool = False,
        verify: bool = False,
        on_error: str = "raise",
        store: Optional[str] = None,
        direct_io: bool = False,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', not '{on_error}'")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        flags = _core.DENSE | (_core.IN_MEMORY if in_memory else 0) | (_core.VERIFY if verify else 0)
        flags |= _core.SKIP_BAD if on_error == "skip" else 0
        self.batch_size, self.seed, self.world = batch_size, seed, world
        self._core = _core.Loader(
            os.fspath(dataset),
            batch_size,
            threads=threads,
            lookahead=lookahead,
            spare=_SPARE,
            drop_last=drop_last,
            flags=flags,
            store=store,
            order=order or ("torch" if shuffle else "sequential"),
            seed=seed,
            rank=rank,
            world=world,
            direct_io=direct_io,
            epochs=1 << 40,
        )
        self._epoch, self._batches, self._in_epoch = 0, 0, False
        self._first = 0  # global position where the running epoch was entered
        self._resume = 0

    @property
    def info(self) -> Dict[str, Any]:
        """What the data set is: samples, files, format, dtype."""
        return self._core.info()

    @property
    def skipped(self) -> int:
        """Samples left out so far with on_error="skip"."""
        return self._core.skipped()[0]

    def __len__(self) -> int:
        return self._core.batches

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of epoch `epoch`."""
        self._epoch, self._resume, self._in_epoch = epoch, 0, False

    def __iter__(self) -> Iterator[Batch]:
        position, self._resume = self._resume, 0
        self._core.start_epoch(self._epoch, position)
        self._first, self._batches, self._in_epoch = position, 0, True
        while (batch := self._core.next()) is not None:
            self._batches += 1
            yield _numpy(batch)
        self._in_epoch = False
        self._epoch += 1

    def state_dict(self) -> Dict[str, int]:
        """The position behind the last batch that was delivered; another `world` may continue it in global orders."""
        position = self._first + self._batches * self.batch_size * self.world if self._in_epoch else self._resume
        return {"version": 1, "epoch": self._epoch, "position": position, "seed": self.seed, "samples": self.info["samples"]}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        """The next iteration continues there."""
        for key, here in (("version", 1), ("seed", self.seed), ("samples", self.info["samples"])):
            if state[key] != here:
                raise ValueError(f"this state is of another run: {key} {state[key]}, here {here}")
        self._epoch, self._resume, self._in_epoch = state["epoch"], state["position"], False

    def stats(self) -> Dict[str, Any]:
        """What the loader has done and what limits it now."""
        return self._core.stats()

    def close(self) -> None:
        """Ends the threads and frees the memory, but for arrays that are still in use."""
        self._core.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _numpy(batch: Any) -> Batch:
    data = np.asarray(batch.data) if batch.data is not None else [np.asarray(row) for row in batch.rows]
    return Batch(data, np.asarray(batch.labels) if batch.labels is not None else None, np.asarray(batch.ids))
