"""Batches of numpy arrays from a data set with a manifest (`millrace gen` or `millrace scan` makes one).

    from millrace.numpy import Loader

    loader = Loader("/data/set", batch_size=64, shuffle=True, seed=1)
    for epoch in range(3):
        for batch in loader:            # batch.data: numpy array, batch.labels: int64 array or None, batch.ids
            ...

A folder with one sub-folder of pictures per class works, too; `pictures` says what to make of them:

    Loader("/data/imagenet/train", 256, shuffle=True, pictures={"size": 224})                   # random part, flip
    Loader("/data/imagenet/val", 256, pictures={"size": 224, "resize": 256, "train": False})    # the middle

Arrays are the loader's own memory, without a copy; it is used again when nobody refers to them any more. Where samples
differ in shape, `data` is a list of arrays. Every epoch has its own order, which is a function of (seed, epoch, rank,
world) alone.
"""

import os
import threading
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from . import _core, _fields, _pickled, _pictures, _ranks
from ._key import job_key
from ._sources import path_source
from .mixtures import stream_of

__all__ = ["Batch", "Loader", "Samples"]

_GLOBAL_ORDERS = ("sequential", "torch", "cipher")  # the same sequence whatever the number of ranks
_SPARE = 3  # batches that a program holds without a copy


class _Parts(NamedTuple):
    data: np.ndarray | list[np.ndarray]
    labels: np.ndarray | None
    ids: np.ndarray


class Batch(_Parts):
    """One batch: (data, labels, ids). `data` is an array, or a list of arrays where samples differ. `fields`: the
    arrays by name, where samples have several; `data` is then the first of them."""

    fields: dict[str, Any] | None = None


class Loader:
    """An iterable over epochs: each `for` is the next one.

    dataset      the folder of a data set, or its manifest; or a folder of class folders with JPEG and PNG files
    pictures     for pictures: `size` (a number, or height and width), `train` (True), `resize`, `flip`, `scale`,
                 `ratio`, `mean`, `std`, `floats` (True), `channels_first` (False), `fast` (False). Training takes a
                 random part of each picture, made `size` large, and flips half of them; else the shorter side is made
                 `resize` long and the middle taken
    shuffle      order "torch" (torch.randperm and DistributedSampler), else "sequential"; `order` names any other
    rank, world  this process reads every world-th sample; left out: those of an initialised process group, else of
                 torchrun's RANK and WORLD_SIZE, when an epoch begins; 0 and 1: everything on each
    drop_last    leave out a last, smaller batch
    threads      0: as many as there are CPUs
    lookahead    batches read ahead
    in_memory    read the set once and serve every epoch from memory
    verify       check stored checksums
    store        a storage stack, see `millrace help store`
    tiers        keep stored bytes near from epoch to epoch: "ram=2GiB,ssd=/nvme/cache:100GiB", or "auto"
                 (doc/guides/tiers.md); all ranks of `world` open and start epochs together then (torchrun's
                 environment tells how they find each other)
    policy       which policy decides what is kept ("millrace"); peers: do nodes ask each other ("auto", "on", "off")
    epochs       how many epochs will be read, where it is known: tiers plan for them
    key_file     with tiers and several ranks: a file of 32 random bytes, mode 0600, the same on all ranks, by which
                 they recognise each other; not given: a key comes through the process group of torch.distributed
    fields       names of the fields to read, "*" or a dict of names and uses ("image", "mask", "boxes"); by default
                 all, where samples have several. The others are not read (doc/guides/fields.md)
    variable     of fields whose values differ: "list", one array each; "pad": one array with zeros behind, and
                 `x_lengths`; "pack": one value behind the other, and `x_offsets`
    """

    def __new__(cls, dataset: Any, *arguments: Any, **options: Any) -> Any:
        """Of a mixture or a token corpus: a Stream of millrace.mixtures."""
        if (stream := stream_of(dataset, *arguments, **options)) is not None:
            return stream
        return super().__new__(cls)

    def __init__(
        self,
        dataset: "str | os.PathLike[str]",
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        order: str | None = None,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        drop_last: bool = False,
        threads: int = 0,
        lookahead: int = 3,
        in_memory: bool = False,
        verify: bool = False,
        on_error: str = "raise",
        store: str | None = None,
        direct_io: bool = False,
        pictures: dict[str, Any] | None = None,
        tiers: str | None = None,
        policy: str | None = None,
        peers: str = "auto",
        epochs: int | None = None,
        key_file: "str | os.PathLike[str] | None" = None,
        fields: Any = None,
        variable: str = "list",
    ) -> None:
        self._arguments = _pickled.arguments(locals())
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', not '{on_error}'")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        flags = _core.DENSE | (_core.IN_MEMORY if in_memory else 0) | (_core.VERIFY if verify else 0)
        flags |= _core.SKIP_BAD if on_error == "skip" else 0
        self.batch_size, self.seed = batch_size, seed
        self._decides = rank is None and world is None
        rank, world = (rank or 0, world or 1) if not self._decides else _ranks.decide(None)[:2]
        self._source = path_source(os.fspath(dataset))
        self._options: dict[str, Any] = dict(
            batch_size=batch_size,
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
            epochs=0 if tiers or policy else 1 << 40,
            last_epoch=-1 if epochs is None else max(0, epochs - 1),
            tiers=tiers,
            policy=policy,
            peers=peers,
            **self._key(tiers or policy, rank, world, key_file),
            preprocess=_pictures.recipe(pictures),
        )
        self._fields = _fields.choose(self._source.manifest, fields, variable, store)
        if self._fields is not None:
            self._options.update(self._fields.options())
        self._core = _core.Loader(self._source.manifest, **self._options)
        self._warn_of_part()
        self._epoch, self._batches, self._in_epoch = 0, 0, False
        self._first = 0  # global position where the running epoch was entered
        self._resume = 0
        self._at_end = False  # the last batch of the running epoch was delivered
        self._turn = 0  # counts iterations: a new one ends those before

    @staticmethod
    def _key(tiered: str | None, rank: int, world: int, key_file: "str | os.PathLike[str] | None") -> dict[str, Any]:
        if key_file is not None:
            return {"key_file": key_file}
        return {"key": job_key(rank, world) if tiered else None}

    def _warn_of_part(self) -> None:
        ranks = _ranks.decide(None)
        if self._decides and ranks.world > 1:
            hint = "rank=0, world=1 reads all of it, rank= and world= silence this warning"
            _ranks.warn_of_part(ranks, "millrace.numpy", "", hint)

    def _settle(self) -> None:
        """Opens the data set again where the ranks are others now than before."""
        if not self._decides:
            return
        rank, world = _ranks.decide(None)[:2]
        if (rank, world) == (self._options["rank"], self._options["world"]):
            return
        self._core.close()
        self._options.update(rank=rank, world=world)
        if self._options.get("key_file") is None:
            self._options["key"] = job_key(rank, world) if self._options["tiers"] or self._options["policy"] else None
        self._core = _core.Loader(self._source.manifest, **self._options)
        self._warn_of_part()

    def __reduce__(self) -> Any:
        """Into another process: a loader of its own, at the same position."""
        return _again, (self._arguments, self.state_dict())

    @property
    def rank(self) -> int:
        """Which part this process reads."""
        return int(self._options["rank"])

    @property
    def world(self) -> int:
        """How many parts there are."""
        return int(self._options["world"])

    @property
    def classes(self) -> list[str]:
        """Names of the classes of a folder of pictures."""
        return self._source.classes

    @property
    def epoch(self) -> int:
        """The epoch that runs, or will."""
        return self._epoch

    @property
    def info(self) -> dict[str, Any]:
        """What the data set is: samples, files, format, dtype."""
        return self._core.info()

    @property
    def skipped(self) -> int:
        """Samples left out so far with on_error="skip"."""
        return self._core.skipped()[0]

    def __len__(self) -> int:
        self._settle()
        return self._core.batches

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of epoch `epoch`."""
        self._epoch, self._resume, self._in_epoch = epoch, 0, False

    def seek(self, epoch: int, batch: int) -> None:
        """The next iteration begins with that batch of that epoch."""
        self._settle()
        self.set_epoch(epoch)
        self._resume = batch * self.batch_size * self.world

    def __iter__(self) -> Iterator[Batch]:
        self._settle()
        if self._decides and self.world == 1:
            _ranks.warn_of_launcher("millrace.numpy", "pass rank= and world= to share it")
        position, self._resume = self._resume, 0
        self._turn += 1
        turn = self._turn
        self._core.start_epoch(self._epoch, position)
        self._first, self._batches, self._in_epoch, self._at_end = position, 0, True, False
        while (batch := self._core.next()) is not None:
            self._batches += 1
            self._at_end = batch.index + 1 >= self._core.batches
            yield _numpy(batch, self._fields)
            if turn != self._turn:
                raise RuntimeError("another iteration of this loader has begun since; two at a time need two loaders")
        self._in_epoch = False
        self._epoch += 1

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch that was delivered; another `world` may continue it in global orders."""
        epoch, position = self._epoch, self._resume
        if self._in_epoch:
            position = self._first + self._batches * self.batch_size * self.world
            if self._at_end:
                epoch, position = epoch + 1, 0
        out = {"version": 1, "epoch": epoch, "position": position, "seed": self.seed, "samples": self.info["samples"]}
        return {**out, "order": self._options["order"], "rank": self.rank, "world": self.world}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration continues there, or ValueError: why it cannot."""
        self._settle()
        order = self._options["order"]
        for key, here in (("version", 1), ("seed", self.seed), ("samples", self.info["samples"]), ("order", order)):
            if state.get(key, here) != here:
                raise ValueError(f"this state is of another run: {key} {state[key]}, here {here}")
        ranks = state.get("world", self.world)
        if state["position"] and ranks != self.world and order not in _GLOBAL_ORDERS:
            raise ValueError(
                f"this state cannot be continued: the order '{order}' of {ranks} ranks is none of {self.world} ranks"
            )
        self._epoch, self._resume, self._in_epoch = state["epoch"], state["position"], False

    def stats(self) -> dict[str, Any]:
        """What the loader has done and what limits it now; with tiers, `tiers`: where samples came from."""
        out = self._core.stats()
        tiers = self._core.tiers()
        return dict(out, tiers=tiers) if tiers is not None else out

    def close(self) -> None:
        """Ends the threads and frees the memory, but for arrays that are still in use."""
        self._core.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _again(arguments: dict[str, Any], state: dict[str, Any]) -> Loader:
    loader = Loader(**arguments)
    loader.load_state_dict(state)
    return loader


def _numpy(batch: Any, selection: "_fields.Selection | None" = None) -> Batch:
    if selection is not None:
        made = _fields.collect(selection, batch.fields, np.asarray)
        labels = np.asarray(batch.labels) if batch.labels is not None else None
        out = Batch(made[selection.names[0]], labels, np.asarray(batch.ids))
        out.fields = made
        return out
    data = np.asarray(batch.data) if batch.data is not None else [np.asarray(row) for row in batch.rows]
    return Batch(data, np.asarray(batch.labels) if batch.labels is not None else None, np.asarray(batch.ids))


class Samples:
    """Samples by their numbers, as (array, label or None). Each thread that asks reads for itself; it may be pickled
    into other processes. `epoch` is that of random crops and flips."""

    def __init__(
        self,
        dataset: "str | os.PathLike[str]",
        *,
        seed: int = 0,
        epoch: int = 0,
        verify: bool = False,
        store: str | None = None,
        pictures: dict[str, Any] | None = None,
    ) -> None:
        path = os.fspath(dataset)
        self.path, self.epoch = path if path.startswith("s3://") else os.path.abspath(path), epoch
        self._options = dict(
            threads=1,
            policy="naive",
            flags=_core.DENSE | (_core.VERIFY if verify else 0),
            seed=seed,
            store=store,
            preprocess=_pictures.recipe(pictures),
        )
        self._threads = threading.local()
        self._n = self._reader().info()["samples"]

    def _reader(self) -> Any:
        here = self._threads
        if getattr(here, "pid", None) != os.getpid():  # a fork has no use for the reader of its parent
            here.source = path_source(self.path)
            here.reader, here.pid = _core.Loader(here.source.manifest, 1, **self._options), os.getpid()
        return here.reader

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_threads"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._threads = threading.local()

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        i = index.__index__()
        if not -self._n <= i < self._n:
            raise IndexError(f"sample {i} of {self._n}")
        reader = self._reader()
        reader.start_list(self.epoch, array("Q", [i % self._n]).tobytes())
        data, labels, _ = _numpy(reader.next())
        return data[0], labels[0] if labels is not None else None
