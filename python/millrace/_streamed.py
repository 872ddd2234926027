"""The modes of millrace.torch.DataLoader whose order nobody knows before it is there: an IterableDataset, and a sampler
without a length. torch's loader draws it, batch by batch; a state has what the data set and the sampler say of
themselves (torchdata's `state_dict` and `load_state_dict`).

A stream that says nothing is read again up to where it was: exact where it gives the same again. A sampler without a
length has to say where it is.
"""

import copy
import itertools
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler
from torch.utils.data import DataLoader as TorchLoader

from . import _processes, _protocol, _recipe, _served
from ._calling import Plain, moving, serves, torch_loader, workers_of
from ._options import Options
from ._position import STATE_VERSION, Position, State
from ._processes import Standing
from ._protocol import has_state, state_of
from ._ranks import Ranks
from ._served import Stream


class Streamed(Plain):
    """An IterableDataset."""

    kind = "stream"

    def __init__(self, options: Options, dataset: Any, reason: str, **batching: Any) -> None:
        super().__init__(options, dataset, reason, **batching)
        self._workers: _processes.Workers | None = None
        self._here: _Here | None = None  # the epoch that this process reads by itself
        self._unordered: TorchLoader | None = None
        self._begin: dict[str, Any] | None = None  # of the generator, at the epoch's beginning
        self._draws_seed = True  # for the workers of the next epoch: torch seeds persistent ones once

    # ---- epochs ----

    def _draw(self, resume: State | None) -> torch.Tensor:
        """The state of the generator from which this epoch's workers take their seeds; the program's goes on, as with
        torch's loader."""
        generator = self._options.generator if self._options.generator is not None else torch.default_generator
        before = generator.get_state()
        if resume is not None:
            generator.set_state(_recipe.unpack(resume["order"]["generator"]))
            self._draws_seed = bool(resume["order"]["draws_seed"])
        self._begin = {"generator": _recipe.pack(generator), "draws_seed": self._draws_seed}
        start = generator.get_state()
        if self._draws_seed:
            torch.empty((), dtype=torch.int64).random_(generator=generator)
        if resume is not None and generator is torch.default_generator:
            generator.set_state(before)
        self._draws_seed = not (self._options.persistent_workers and self._options.num_workers)
        return start

    def epoch_of(self, position: Position) -> tuple[Iterator[Any], int]:
        """The batches of the epoch that begins, and how many of it were delivered before."""
        resume = position.take_resume(1 << 62)
        standing = _processes.standing_of(position.take_data(resume))
        first = resume["batch"] if resume is not None else 0
        return moving(self._start(resume, standing, first), self._options), first

    def _start(self, resume: State | None, standing: Standing | None, first: int) -> Any:
        start = self._draw(resume)
        if self._options.num_workers and not self._options.in_order:
            return self._any_order(start)
        if self._options.num_workers:
            self._workers = self._workers or self._make_workers()
            made = self._workers.begin(None, start, standing)
            return _Counted(made, self.loader, self._dataset, first)
        self._here = _Here(self, start)
        return self._here.begin(standing)

    def _any_order(self, start: torch.Tensor) -> Iterator[Any]:
        """Batches as they come: torch's own loader, and no states."""
        if self._unordered is None:
            self._unordered = torch_loader(self._options, self._dataset, generator=torch.Generator(), **self._batching)
        self._unordered.generator.set_state(start)
        self._unordered._IterableDataset_len_called = getattr(self.loader, "_IterableDataset_len_called", None)
        return iter(self._unordered)

    def _make_workers(self) -> _processes.Workers:
        options, single = self._options, self._batching.get("batch_size") is None
        default = torch.utils.data.default_convert if single else torch.utils.data.default_collate
        stream = Stream(self._batching.get("batch_size"), bool(self._batching.get("drop_last")))
        joins = not single and _processes.joins(options.collate_fn)
        collate = options.collate_fn or default
        served = _served.Served(self._dataset, self._dataset, collate, stream, joins, every=options.snapshot_every)
        return workers_of(options, served)

    def stats(self) -> dict[str, Any]:
        together = {"batches_per_message": self._workers.pace.size} if self._workers is not None else {}
        return {**super().stats(), **together}

    # ---- states ----

    def _standing(self, inside: bool) -> Standing | None:
        if self._options.num_workers:
            return self._workers.standing(inside) if self._workers is not None else None
        if inside:
            return self._here.standing() if self._here is not None else None
        if self._here is None and hasattr(self._dataset, "__next__"):
            return None  # it is its own iterator, and has not begun
        iterator = self._here.iterator if self._here is not None else None
        return Standing(0, [dict(state=state_of(self._dataset, iterator), ended=False, since=0)]).between()

    def state(self, position: Position, ranks: Ranks, seed: int) -> State:
        """What a program saves."""
        if position.resume is not None:
            return dict(position.resume)
        inside = position.running is not None
        data = position.data or _processes.saved(self._options.num_workers, self._standing(inside))
        return {
            "version": STATE_VERSION,
            "epoch": position.epoch,
            "batch": position.batch,
            "in_epoch": inside,
            "start": 0,
            "batch_size": self._batching.get("batch_size", self._options.batch_size),
            "samples": None,
            "seed": seed,
            "rank": ranks.rank,
            "world": ranks.world,
            "order": {"kind": self.kind, "data_set": type(self._dataset).__name__, **self._order_state(inside)},
            **({"data": copy.deepcopy(data)} if data is not None else {}),
        }

    def _order_state(self, inside: bool) -> dict[str, Any]:
        if inside and self._begin is not None:
            return self._begin
        generator = self._options.generator if self._options.generator is not None else torch.default_generator
        return {"generator": _recipe.pack(generator), "draws_seed": self._draws_seed}

    def load(self, state: State, position: Position, ranks: Ranks) -> None:
        """The next iteration continues there. ValueError: why it cannot."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"this state is of version {state.get('version')}, not {STATE_VERSION}")
        order, data = state["order"], state.get("data")
        why = None
        if order["kind"] != self.kind or order["data_set"] != type(self._dataset).__name__:
            theirs = order.get("data_set", "a data set with numbered samples")
            why = f"its data set is '{theirs}', here it is '{type(self._dataset).__name__}'"
        elif (state["rank"], state["world"]) != (ranks.rank, ranks.world):
            why = f"it is that of rank {state['rank']} of {state['world']}, this is rank {ranks.rank} of {ranks.world}"
        elif state["in_epoch"] and state["batch_size"] != self._batching.get("batch_size", self._options.batch_size):
            why = f"its batches have {state['batch_size']} samples, here {self._batching.get('batch_size')}"
        if why is not None:
            raise ValueError(f"this state cannot be continued: {why}")
        _processes.check_workers(data, self._options.num_workers)
        if not state["in_epoch"] and "generator" in order:
            generator = self._options.generator
            if generator is not None and not order["generator"]["global"]:
                generator.set_state(_recipe.unpack(order["generator"]))
            self._draws_seed = True  # its workers are new
        self._workers = self._here = None
        position.put(state)


class _Counted:
    """Batches of worker processes, with torch's warning where there are more than len() had said."""

    def __init__(self, batches: "_processes.Batches", loader: Any, dataset: Any, first: int) -> None:
        self._batches, self._dataset, self._count = batches, dataset, first
        self._said = getattr(loader, "_IterableDataset_len_called", None)

    def __iter__(self) -> "_Counted":
        return self

    def __next__(self) -> Any:
        made = next(self._batches)
        self._count += 1
        if self._said is not None and self._count > self._said:
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {self._said} (when accessing "
                f"len(dataloader)), but {self._count} samples have been fetched. For multiprocessing data-loading, "
                "this could be caused by not properly configuring the IterableDataset replica at each worker. Please "
                "see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples.",
                stacklevel=2,
            )
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)


class _Here:
    """Batches of a stream that is read in this process."""

    def __init__(self, mode: Streamed, start: torch.Tensor) -> None:
        self._mode = mode
        self._source = _served.Here(mode._dataset)
        generator = torch.Generator()
        generator.set_state(start)
        self._loader = torch_loader(mode._options, self._source, generator=generator, **mode._batching)
        said = getattr(mode.loader, "_IterableDataset_len_called", None)
        if said is not None:
            self._loader._IterableDataset_len_called = said
        self._batches: Any = None
        self._since, self._has_state, self._ended = 0, False, False

    def begin(self, standing: Standing | None) -> "_Here":
        """The iteration, from there on."""
        one: dict[str, Any] = {"state": None, "ended": False, "since": 0}
        if standing is not None:
            one = standing.each[0]
        self._source.start = one["state"]
        self._batches = iter(self._loader)
        self._has_state = bool(state_of(self._source.dataset, self._source.iterator))
        if one["ended"]:
            self._ended = True
        for _ in range(one["since"]):
            next(self)
        return self

    @property
    def iterator(self) -> Any:
        """The stream's own, where it has begun."""
        return self._source.iterator

    def __iter__(self) -> "_Here":
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        made = next(self._batches)
        self._since += 1
        return made

    def standing(self) -> Standing:
        """Where the stream is."""
        state = state_of(self._source.dataset, self._source.iterator)
        ended = self._ended or bool(getattr(getattr(self._batches, "_dataset_fetcher", None), "ended", False))
        return Standing(0, [dict(state=state or None, ended=ended and bool(state), since=0 if state else self._since)])

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)


class Late(Streamed):
    """A data set with numbered samples whose sampler has no length."""

    kind = "sampler without a length"

    def __init__(self, options: Options, dataset: Any, reason: str, batch_sampler: Any, single: bool) -> None:
        batching = {"batch_size": None, "sampler": batch_sampler} if single else {"batch_sampler": batch_sampler}
        super().__init__(options, dataset, reason, **batching)
        self._feed, self._single = _Feed(batch_sampler), single

    def use(self, sampler: Any) -> None:
        pass

    def _start(self, resume: State | None, standing: Standing | None, first: int) -> Any:
        feed, options = self._feed, self._options
        feed.begin(resume["order"]["sampler"] if resume is not None else None, first)
        if serves(options, self._dataset):
            self._workers = self._workers or self._make_workers()
            return _Fed(self._workers.begin(_processes.Source(feed, first), None, standing), feed)
        batching: dict[str, Any] = {"batch_size": None, "sampler": feed} if self._single else {"batch_sampler": feed}
        made = iter(torch_loader(options, self._dataset, generator=options.generator, **batching))
        if standing is not None:
            self._dataset.load_state_dict(standing.each[0]["state"]["dataset"])
        return _Fed(made, feed)

    def _make_workers(self) -> _processes.Workers:
        options = self._options
        default = torch.utils.data.default_convert if self._single else torch.utils.data.default_collate
        collate = options.collate_fn or default
        served = _served.Served(self._dataset, self._dataset, collate, None, False, self._single)
        generator = options.generator if options.generator is not None else torch.default_generator
        return workers_of(options, served, generator)

    def _standing(self, inside: bool) -> Standing | None:
        if not has_state(self._dataset):
            return None
        if not self._options.num_workers:
            return Standing(0, [dict(state=state_of(self._dataset, None), ended=False, since=0)])
        return super()._standing(inside)

    def _order_state(self, inside: bool) -> dict[str, Any]:
        return {"sampler": self._feed.state() if inside else self._feed.now()}

    def _check(self) -> None:
        if not self._feed.has_state or (self._options.num_workers and not serves(self._options, self._dataset)):
            raise NotImplementedError(f"there is no position: {self.reason}, and no state_dict and load_state_dict")

    def state(self, position: Position, ranks: Ranks, seed: int) -> State:
        """What a program saves."""
        self._check()
        return super().state(position, ranks, seed)

    def load(self, state: State, position: Position, ranks: Ranks) -> None:
        """The next iteration continues there."""
        self._check()
        super().load(state, position, ranks)
        if not state["in_epoch"]:
            self._feed.load(state["order"]["sampler"])


class _Feed:
    """A sampler of the program's, asked for each batch as late as torch's loader asks, and its state behind each."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        cuts = type(sampler) is BatchSampler  # torch's hides the sampler inside, and its iterator
        self._inner = sampler.sampler if cuts else sampler
        self._size = sampler.batch_size if cuts else 0
        self._drop_last = cuts and sampler.drop_last
        self._iterator: Any = None
        self._start: dict[str, Any] | None = None
        self._states: deque[tuple[int, dict[str, Any]]] = deque()  # behind so many batches
        self._count, self.delivered = 0, 0

    @property
    def has_state(self) -> bool:
        """Can it go on where it was?"""
        return has_state(self._inner) or has_state(self._iterator)

    def now(self) -> dict[str, Any]:
        """Its state, without that of an iterator."""
        return {"dataset": copy.deepcopy(self._inner.state_dict())} if has_state(self._inner) else {}

    def load(self, state: dict[str, Any]) -> None:
        """Its state between epochs."""
        if "dataset" in state:
            self._inner.load_state_dict(state["dataset"])

    def begin(self, start: dict[str, Any] | None, first: int) -> None:
        """An epoch, behind so many batches."""
        self._start, self._first, self.delivered = start, first, first

    def __iter__(self) -> "_Feed":
        self._iterator = _protocol.begin(self._inner, self._start)
        self._count = self._first
        self._states = deque([(self._count, self._start or copy.deepcopy(state_of(self._inner, self._iterator)))])
        return self

    def __next__(self) -> Any:
        drawn = list(itertools.islice(self._iterator, self._size)) if self._size else next(self._iterator)
        if self._size and (not drawn or (self._drop_last and len(drawn) < self._size)):
            raise StopIteration
        self._count += 1
        self._states.append((self._count, copy.deepcopy(state_of(self._inner, self._iterator))))
        return drawn

    def deliver(self) -> None:
        """One more batch is the program's: the states before it are forgotten."""
        self.delivered += 1
        while len(self._states) > 1 and self._states[1][0] <= self.delivered:
            self._states.popleft()

    def state(self) -> dict[str, Any]:
        """Behind the last batch that was delivered."""
        return self._states[0][1]


class _Fed:
    """Batches of an epoch whose sampler is asked late."""

    def __init__(self, batches: Any, feed: _Feed) -> None:
        self._batches, self._feed = batches, feed

    def __iter__(self) -> "_Fed":
        return self

    def __next__(self) -> Any:
        made = next(self._batches)
        self._feed.deliver()
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)
