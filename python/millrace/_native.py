"""The modes of millrace.torch.DataLoader in which everything runs in C threads."""

import atexit
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from . import _core, _device
from ._delivery import Delivery
from ._engine import Engine
from ._key import job_key
from ._mode import Mode, Plan
from ._options import Options
from ._sources import Source

# Batches that a program holds: the one it works on, the one before, and one it keeps (a first batch to look at).
_SPARE = 3
_U64 = 0xFFFFFFFFFFFFFFFF
# Counters that add up over native loaders; of the others those of the busiest count.
_SUMS = "batches samples sample_bytes read_bytes read_ns decode_ns transform_ns idle_ns cpu_ns slab_bytes".split()
_open_modes: "weakref.WeakSet[Native]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for mode in list(_open_modes):
        mode.close()


class NativeEpoch:
    """Batches of one epoch. Holds an engine until the epoch ends or the iteration is dropped."""

    def __init__(self, mode: "Native", engine: Engine, plan: Plan) -> None:
        self._mode, self._delivery, self.engine, self._peek = mode, mode.delivery, engine, plan.peek
        self._staged: Any = None  # the next batch, on its way to the device
        self._open = True
        self._pipeline = self._delivery.pipeline(engine)
        ahead = mode.places + (2 if self._pipeline is not None else 0)
        self._announce_at = max(1, plan.n_batches - ahead)

    def __iter__(self) -> "NativeEpoch":
        return self

    def close(self) -> None:
        """Gives the engine back."""
        if self._open:
            self._open = False
            if self._pipeline is not None:
                self._pipeline.close()
            self._mode.give_back(self.engine)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the interpreter's end
            pass

    def _fetch(self, timeout_ns: int = -1) -> Any:
        if self._pipeline is not None:
            return self._pipeline.get()
        got = self.engine.next(timeout_ns)
        return self._delivery.to_device(got, self.engine) if got else got

    def __next__(self) -> Any:
        item, self._staged = self._staged, None
        if item is None:
            item = self._fetch()
        if item is None:
            raise StopIteration
        if self._delivery.stream is not None and self._pipeline is None:
            self._staged = self._fetch(0) or None  # its copy runs while the program works on this batch
        return self._delivery.from_device(item)

    def announce(self, count: int) -> None:
        """Near the end of the epoch: lets the look-ahead go on into the next one, whose order is drawn on trial."""
        if count == self._announce_at and (ids := self._peek()):
            self.engine.core.announce(self._mode.source.take(ids))


class Native(Mode):
    """Lists of sample numbers, as torch's sampler drew them, are read by native loaders: one for each iteration at a
    time."""

    native = True

    def __init__(
        self, options: Options, source: Source, parameters: dict[str, Any] | None, seed: int, **more: Any
    ) -> None:
        super().__init__(options, None)
        self.follows = True
        self.source = source
        self.delivery = Delivery(options, source, parameters)
        self.places = options.ahead + 1
        self._engines: list[Engine] = []
        self._idle: list[Engine] = []  # those of them that no iteration has
        threads = options.num_workers if options.decode == "cpu" else _device.threads(options.num_workers)
        self._core_options: dict[str, Any] = dict(
            batch_size=options.batch_size,
            threads=threads,
            lookahead=options.ahead,
            spare=0 if self.delivery.pins else _SPARE,
            drop_last=bool(options.drop_last),
            flags=_core.DENSE | (_core.SKIP_BAD if options.skips else 0),
            seed=seed,
            preprocess=self.delivery.parameters,
        )
        if self.delivery.decoding is not None:
            single = dict(batch_size=1, threads=1, lookahead=1, spare=1, drop_last=False, flags=_core.DENSE)
            one = {**self._core_options, **single}
            self.delivery.decoding.open_one = lambda: _core.Loader(source.manifest, policy="naive", **one)
            self._bad = self.delivery.decoding.bad
        self._core_options.update(more)
        if source.fields is not None:
            self._core_options.update(source.fields.options())
        self._idle.append(self._new_engine())  # now: what is wrong with the data set is an error here
        _open_modes.add(self)

    @property
    def classes(self) -> list[str] | None:
        return self.source.classes

    def check_unchanged(self) -> None:
        check_unchanged(self.source)

    def _new_engine(self) -> Engine:
        engine = Engine(self.source.manifest, self._core_options, self.delivery.pins, self.source.fields)
        self._engines.append(engine)
        if self.delivery.decoding is not None:
            engine.core.leave_stored(self.delivery.decoding.share.rows)
        return engine

    def reseed(self, seed: int) -> None:
        if seed == self._core_options["seed"]:
            return
        self.close()
        self._core_options["seed"] = seed
        self._idle.append(self._new_engine())

    def give_back(self, engine: Engine) -> None:
        """No iteration has this engine any more."""
        if engine in self._engines:
            self._idle.append(engine)

    def epoch(self, plan: Plan) -> Iterator[Any]:
        engine = self._idle.pop() if self._idle else self._new_engine()
        size = self._options.batch_size or 1
        try:
            if not plan.indices[plan.first * size :]:
                raise ValueError(self._why_no_batch(len(plan.indices)))
            self._start(engine, plan, plan.first * size)
        except BaseException:
            self.give_back(engine)
            raise
        return NativeEpoch(self, engine, plan)

    def _start(self, engine: Engine, plan: Plan, skip: int) -> None:
        engine.core.start_list(plan.epoch, self.source.take(plan.indices), skip)

    def _why_no_batch(self, n: int) -> str:
        size, have = self._options.batch_size or 1, self.source.n
        if self._options.drop_last and size > have:
            return (
                f"the epoch has no batch: batch_size {size} is larger than the {have} samples, and drop_last leaves "
                "the rest out"
            )
        return f"nothing is left of the epoch of {n} samples"

    def delivered(self, batches: Iterator[Any], count: int) -> None:
        super().delivered(batches, count)
        if isinstance(batches, NativeEpoch):
            batches.announce(count)

    @property
    def skipped(self) -> int:
        return sum(e.core.skipped()[0] for e in self._engines) + len(self._bad)

    def first_skipped(self) -> str:
        natively = [why for n, why in (e.core.skipped() for e in self._engines) if n]
        return (natively + self._bad)[0]

    def counters(self) -> dict[str, Any]:
        each = [e.core.stats() for e in self._engines]
        if not each:
            return {}
        out = dict(max(each, key=lambda one: one["batches"]))
        for key in _SUMS:
            out[key] = sum(one[key] for one in each)
        return out

    def stats(self) -> dict[str, Any]:
        decoding = self.delivery.decoding
        return {"skipped": self.skipped, **(decoding.stats() if decoding is not None else {"reason": None})}

    def describe(self) -> str:
        decode = f", decode {self._options.decode}" if self.delivery.decoding is not None else ""
        return f"native, {self._options.num_workers or 'all'} threads{decode}"

    def close(self) -> None:
        engines, self._engines, self._idle = self._engines, [], []
        for engine in engines:
            engine.core.close()


class Tiered(Native):
    """With tiers: the native loader has to know the order of all epochs, so it draws it itself, as DistributedSampler
    does."""

    def __init__(
        self,
        options: Options,
        source: Source,
        parameters: dict[str, Any] | None,
        sampler: DistributedSampler,
        tiers: dict[str, Any],
    ) -> None:
        self._sampler, self._tiers = sampler, tiers
        super().__init__(options, source, parameters, sampler.seed & _U64, **tiers, **self._order_of(sampler))

    @staticmethod
    def _order_of(sampler: DistributedSampler) -> dict[str, Any]:
        order = "torch" if sampler.shuffle else "sequential"
        return dict(order=order, rank=sampler.rank, world=sampler.num_replicas, drop_last_samples=sampler.drop_last)

    def use(self, sampler: DistributedSampler) -> None:
        now = dict(self._order_of(sampler), seed=sampler.seed & _U64)
        self._sampler = sampler
        if any(self._core_options[key] != value for key, value in now.items()):
            self.close()  # it was opened for other ranks
            self._core_options.update(now)
            self._idle.append(self._new_engine())

    def reseed(self, seed: int) -> None:
        """The order has the same seed: `use` has it."""

    @staticmethod
    def check(source: Source | None, reason: str | None, sampler: Any) -> None:
        """NotImplementedError: why tiers are not possible."""
        if source is None:
            raise NotImplementedError(f"tiers need a data set that is read natively: {reason}")
        if type(sampler) is not DistributedSampler:
            raise NotImplementedError(
                "tiers need an order that is a function of seed and epoch: no sampler, or torch's DistributedSampler, "
                f"not '{type(sampler).__name__}'"
            )
        if source.ids is not None and any(i != k for k, i in enumerate(source.ids)):
            raise NotImplementedError("tiers need all files of a data set, in the order of their names")

    def _new_engine(self) -> Engine:
        if self._engines:
            raise RuntimeError("a loader with tiers has one iteration at a time")
        self._core_options["key"] = job_key(self._sampler.rank, self._sampler.num_replicas)
        try:
            return super()._new_engine()
        finally:
            del self._core_options["key"]

    def _start(self, engine: Engine, plan: Plan, skip: int) -> None:
        engine.core.start_epoch(self._sampler.epoch, plan.start + skip * self._sampler.num_replicas)

    def delivered(self, batches: Iterator[Any], count: int) -> None:
        Mode.delivered(self, batches, count)  # nothing to announce: the native loader knows the next epoch

    def stats(self) -> dict[str, Any]:
        out = super().stats()
        return {**out, "tiers": self._engines[0].core.tiers()} if self._engines else out

    def describe(self) -> str:
        return f"{super().describe()}, tiers {self._tiers['tiers'] or 'auto'}"


def check_unchanged(source: Source) -> None:
    """RuntimeError where a data set has another transform than it had when the loader was made."""
    if any(data.transform is not transform for data, transform in source.seen):
        raise RuntimeError("the data set's transform was changed after the loader was made: make a new loader")
