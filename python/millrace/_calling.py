"""The modes of millrace.torch.DataLoader in which Python code of the program makes samples, or a part of them."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterDataPipe, MapDataPipe
from torch.utils.data import DataLoader as TorchLoader

from . import _called, _processes, _protocol, _served
from ._delivery import mover
from ._mode import Mode, Plan
from ._native import check_unchanged
from ._options import Options
from ._order import Order
from ._pictures import Parts
from ._sources import Source
from ._split import Split
from ._warn import warn

_NATIVE_ONLY = ("uint8_transfer", "fast", "channels_last", "structure")  # options without effect here


_KNOWN = frozenset(inspect.signature(TorchLoader.__init__).parameters)


def torch_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Those that mean something and that this version of torch's loader has: defaults differ from version to
    version."""
    return {name: value for name, value in given.items() if name in _KNOWN and value not in (None, "")}


def torch_loader(options: Options, dataset: Any, **batching: Any) -> TorchLoader:
    """torch's loader with these options."""
    more: dict[str, Any] = {}
    if options.num_workers:
        more = dict(
            prefetch_factor=options.prefetch_factor or 2,
            multiprocessing_context=options.multiprocessing_context,
            persistent_workers=options.persistent_workers,
            pin_memory_device=options.pin_memory_device,
            in_order=options.in_order,
        )
    given = dict(
        num_workers=options.num_workers,
        collate_fn=_called.Telling(options.collate_fn) if options.skips else options.collate_fn,
        pin_memory=options.pin_memory,
        timeout=options.timeout,
        worker_init_fn=options.worker_init_fn,
    )
    return TorchLoader(dataset, **{**given, **torch_arguments(more), **batching})


def serves(options: Options, dataset: Any) -> bool:
    """Do worker processes hand over several batches at a time, and states? Not data pipes, which torch's loader has to
    see; nor batches in any order; nor in a traced program, where each wait is matched with the work of one batch."""
    is_traced = hasattr(TorchLoader.__iter__, "__wrapped__")
    if not options.num_workers or not options.in_order or isinstance(dataset, (IterDataPipe, MapDataPipe)):
        return False
    return not is_traced or _protocol.has_state(dataset)


def workers_of(options: Options, served: "_served.Served", generator: Any = None) -> "_processes.Workers":
    """Worker processes with these options. `generator`: where torch draws their seeds; None: one of theirs."""

    def make(data: "_served.Served", turn: Any, own: torch.Generator) -> TorchLoader:
        init = _served.Initial(options.worker_init_fn)
        more: dict[str, Any] = dict(collate_fn=_served.only, worker_init_fn=init, generator=generator or own)
        return torch_loader(options, data, batch_sampler=turn, **more)

    ahead = options.prefetch_factor or 2
    return _processes.Workers(make, served, options.num_workers, ahead, options.persistent_workers)


def warn_fallback(options: Options, reason: str, rest: "list[Any] | None" = None) -> None:
    """Once, when the loader is made: what runs in Python, where, and why. rest: transforms that are not native."""
    what = "falling back to the Python dataset"
    if rest is not None:
        names = ", ".join(type(t).__name__ for t in rest)
        python = (
            f"{names} {'runs' if len(rest) == 1 else 'run'} in Python" if rest else "batches are collated in Python"
        )
        what = f"reading, decoding and the first transforms are native; {python}"
    unused = [name for name in _NATIVE_ONLY if getattr(options, name)]
    unused += ["variable"] if options.variable != "list" else []
    if not unused and getattr(options.collate_fn, "__module__", None) == "millrace._mixed":
        return  # token corpora and mixtures of them are meant to be read this way
    ignored = f"; without effect then: {', '.join(unused)}" if unused else ""
    warn(f"millrace.torch: {what} ({options.where()}): {reason}{ignored}")


def moving(batches: Iterator[Any], options: Options) -> Iterator[Any]:
    """Their tensors where they are wanted; the iterator itself where nothing has to move."""
    move = mover(options)
    return batches if move is None else Finishing(batches, move)


class Finishing:
    """An iterator of torch's, or of threads, with something done to each batch; its other attributes are that one's."""

    def __init__(self, batches: Iterator[Any], finish: Callable[[Any], Any]) -> None:
        self._batches, self._finish = batches, finish

    def __iter__(self) -> "Finishing":
        return self

    def __next__(self) -> Any:
        return self._finish(next(self._batches))

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)


def check_decode(options: Options, reason: str) -> None:
    """NotImplementedError: Python's code does not decode on a device."""
    if options.decode != "cpu":
        raise NotImplementedError(f"decode='{options.decode}' is not possible here: {reason}")


class Called(Mode):
    """Our order and state over torch's worker processes, or threads of this process. `split`: the source whose samples
    the native loader reads and decodes, and the transforms that are left for Python. `single`: samples instead of
    batches (batch_size=None)."""

    def __init__(
        self,
        options: Options,
        dataset: Any,
        order: Order,
        seed: int,
        reason: str,
        split: tuple[Source, Parts] | None,
        single: bool = False,
    ) -> None:
        super().__init__(options, reason)
        check_decode(options, reason)
        warn_fallback(options, reason, split[1].rest if split is not None else None)
        self._order, self._split, self._dataset, self._single = order, split, dataset, single
        # One of these is made when an epoch begins.
        self._caller: _called.Processes | _called.Threads | None = None
        self._workers: _processes.Workers | None = None
        self._in_processes: Any = dataset  # what worker processes get
        self._keeps_state = split is None and options.workers == "processes" and _protocol.has_state(dataset)
        self.native = "in part" if split is not None else False
        self._seed = seed
        if split is not None:
            self._in_processes = self._make_split(split, seed)
        elif options.skips:
            self._in_processes = _called.Skipping(dataset)

    def _make_split(self, split: tuple[Source, Parts], seed: int) -> Split:
        return Split(*split, seed, alone=not self._options.num_workers, skip=self._options.skips)

    def reseed(self, seed: int) -> None:
        if self._split is not None and seed != self._seed:
            self._seed, self._in_processes = seed, self._make_split(self._split, seed)
            self._caller = self._workers = None

    @property
    def classes(self) -> list[str] | None:
        return self._split[0].classes if self._split is not None else None

    def check_unchanged(self) -> None:
        if self._split is not None:
            check_unchanged(self._split[0])

    def _make_caller(self) -> "_called.Processes | _called.Threads":
        options = self._options
        if options.workers == "processes":
            return _called.Processes(partial(torch_loader, options, self._in_processes), self._single)
        collate: Any = options.collate_fn or torch.utils.data.default_collate
        if options.skips:
            collate = _called.Telling(collate)
        threads = max(1, options.num_workers)
        return _called.Threads(
            self._dataset, threads, options.ahead + 1, collate, options.worker_init_fn, options.skips
        )

    def _make_workers(self) -> "_processes.Workers":
        options = self._options
        default = torch.utils.data.default_convert if self._single else torch.utils.data.default_collate
        collate: Any = options.collate_fn or default
        served = _served.Served(
            self._in_processes,
            self._dataset if self._split is None else self._in_processes,
            _called.Telling(options.collate_fn) if options.skips else collate,
            None,
            not options.skips and not self._single and _processes.joins(options.collate_fn),
            self._single,
            options.snapshot_every,
            self._keeps_state,
        )
        return workers_of(options, served)

    def epoch(self, plan: Plan) -> Iterator[Any]:
        size, batches = self._options.batch_size, self._order.batches
        if size and type(self._order.batch_sampler) is BatchSampler and plan.indices is not self._order.flat:
            # a state's: perhaps what other ranks have left
            batches = [list(plan.indices[i : i + size]) for i in range(0, len(plan.indices), size)]
        states = self._order.start_states
        return self._deliver(plan, batches, states[0] if states else None)

    def _deliver(self, plan: Plan, batches: list[list[int]], start: torch.Tensor | None) -> Iterator[Any]:
        wanted: list[Any] = batches
        if self._split is not None:
            wanted = [[(plan.epoch, i) for i in batch] for batch in batches]
        if self._single:
            wanted = list(plan.indices)
        if self._options.workers == "processes" and serves(self._options, self._dataset):
            self._workers = self._workers or self._make_workers()
            source = _processes.Source(wanted, plan.first)
            begun = self._workers.begin(source, start, _processes.standing_of(plan.data))
            return self._finish(begun)
        if self._caller is None:
            self._caller = self._make_caller()
        made = self._caller.epoch(wanted[plan.first :], start)
        if plan.data is not None:
            self._dataset.load_state_dict(plan.data["each"][0]["state"]["dataset"])
        return self._finish(made)

    def data_state(self, inside: bool) -> dict[str, Any] | None:
        if not self._keeps_state:
            return None
        number = self._options.num_workers
        if not number:
            state = _protocol.state_of(self._dataset, None)
            return _processes.saved(0, _processes.Standing(0, [dict(state=state, ended=False, since=0)]))
        return _processes.saved(number, self._workers.standing(inside) if self._workers is not None else None)

    def check_data(self, data: dict[str, Any] | None) -> None:
        if data is not None and not self._keeps_state:
            super().check_data(data)
        _processes.check_workers(data, self._options.num_workers)

    def restart(self) -> None:
        if self._keeps_state:
            self._workers = None

    def stats(self) -> dict[str, Any]:
        together = {"batches_per_message": self._workers.pace.size} if self._workers is not None else {}
        return {**super().stats(), **together}

    def _finish(self, batches: Iterator[Any]) -> Iterator[Any]:
        return moving(Finishing(batches, self._unpack) if self._options.skips else batches, self._options)

    def _unpack(self, item: Any) -> Any:
        item, bad = item
        self._bad += bad
        return item

    def describe(self) -> str:
        part = "native in part, " if self._split is not None else ""
        return f"{part}Python dataset ({self._options.where()}): {self.reason}"


class Plain(Mode):
    """torch's own loader as it is. There is no order of ours, and so no position to save."""

    def __init__(self, options: Options, dataset: Any, reason: str, **batching: Any) -> None:
        super().__init__(options, reason)
        check_decode(options, reason)
        warn_fallback(options, reason)
        if options.skips:
            raise NotImplementedError(f"on_error='skip' is not possible here: {reason}")
        self._dataset, self._batching = dataset, batching
        self.loader = torch_loader(options, dataset, generator=options.generator, **batching)

    def use(self, sampler: Any) -> None:
        if self._batching.get("sampler") not in (None, sampler):
            self._batching["sampler"] = sampler
            self.loader = torch_loader(
                self._options, self._dataset, generator=self._options.generator, **self._batching
            )

    def batches(self) -> Iterator[Any]:
        """Of one epoch."""
        return moving(iter(self.loader), self._options)

    def describe(self) -> str:
        return f"Python dataset ({self._options.where()}): {self.reason}"
