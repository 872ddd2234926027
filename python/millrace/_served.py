"""What torch's worker processes get in place of a data set of the program's: it makes several batches for one message
where samples are small, and says what the data set's own state is behind each of them.

    Task    from the loader to a worker: which batches are to be made
    Group   back: these batches, in order, and how the worker stands

What must stay true:

W1  A worker makes the batches that torch's loader would give it, in the same order and with the same random numbers.
W2  The data set, the collate function and the initialisation of a worker see what torch's worker shows them:
    `get_worker_info().dataset` is the program's data set.
W3  An exception belongs to one batch, with torch's words around it, and is raised when that batch is asked for.
W4  Batches that were collated together are what each would be alone: samples of one type, dtype and shape only
    (`_joined.py`).
"""

import pickle
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from ._joined import Joined, Memory, Packed, Space, join, pack
from ._protocol import begin, state_of

# Samples that are collated at once, at least; or as many as have so many bytes: more would leave the CPU's caches.
JOINED_ROWS, JOINED_BYTES = 64, 96 << 10


class Task(NamedTuple):
    """What a worker makes for one message."""

    wanted: list[Any]  # of each batch: its indices; None: the next ones of a stream
    drop: int  # so many of the first were delivered before: they are made again and not handed over
    place: int  # the part of the shared memory that is this task's; -1: none
    begins: bool  # the worker's first one of an epoch
    ends: bool = False  # and its last one, where that is known


class Failure(NamedTuple):
    """In place of a batch: why there is none."""

    why: ExceptionWrapper


class Group:
    """What a worker has made for one Task."""

    def __init__(self, worker: int, place: int) -> None:
        self.worker, self.place = worker, place
        self.batches: list[Any] = []  # as torch hands them over, or a Joined with the next ones, a Packed or a Failure
        self.states: list[bytes | None] = []  # behind each batch, pickled; None: not taken
        self.before: bytes | None = None  # before the first batch of an epoch
        self.after: bytes | None = None  # behind the end of a stream, or of the worker's part of an epoch
        self.ended = False
        self.seconds, self.bytes = 0.0, 0  # for all of them

    def take(self, number: int) -> Any:
        """A batch, in order, or the exception in its place."""
        made = self.batches[number]
        if type(made) is Joined:
            return made.take()
        self.batches[number] = None
        if type(made) is Failure:
            made.why.reraise()
        return made.open() if type(made) is Packed else made

    def pin_memory(self) -> "Group":
        """torch's thread for pinned memory calls it."""
        for k, one in enumerate(self.batches):
            if type(one) is not Failure:
                self.batches[k] = pin_memory(self.take(k))
        return self


class Stream(NamedTuple):
    """How an IterableDataset is cut into batches."""

    batch_size: int | None  # None: single samples
    drop_last: bool


class Start(NamedTuple):
    """Where a worker goes on from a saved state."""

    state: dict[str, Any] | None
    ended: bool  # its stream was at its end


class Served(Dataset):
    """A data set whose items are Groups: torch's fetcher asks for one Task at a time. `visible` is what the program's
    code sees as the data set; `joins`: batches may be collated together; `keeps`: the data set's own state is asked
    for, behind every `every`th batch."""

    def __init__(
        self,
        dataset: Any,
        visible: Any,
        collate: Callable[[Any], Any],
        stream: Stream | None,
        joins: bool,
        single: bool = False,
        every: int = 1,
        keeps: bool = True,
    ) -> None:
        self.dataset, self.visible, self.collate, self.stream = dataset, visible, collate, stream
        self.joins, self._single, self._every, self._keeps = joins, single, every, keeps
        self.memory: Memory | None = None
        self.starts: list[Start] | None = None  # of all workers, when an epoch begins in the middle
        self._iterator: Any = None
        self._ended, self._made = False, 0
        self._at_once = JOINED_ROWS
        self._fresh = True  # nothing was made by this worker

    def restore(self, worker: int) -> None:
        """Once in each worker, behind the program's initialisation: numbered samples go on from a saved state."""
        if self.starts is not None and self.stream is None:
            state = self.starts[worker].state
            if state is not None and "dataset" in state:
                self.visible.load_state_dict(state["dataset"])

    def _begin(self, worker: int) -> None:
        start = self.starts[worker] if self.starts is not None and self._fresh else Start(None, False)
        self._fresh, self._made = False, 0
        if self.stream is not None:
            self._ended = start.ended
            self._iterator = begin(self.dataset, start.state)

    def _state(self) -> bytes | None:
        state = state_of(self.visible, self._iterator) if self._keeps else {}
        return pickle.dumps((state, self._ended)) if state or self._ended else None

    def _rows(self, wanted: Any) -> Any:
        if self.stream is not None:
            return self._next_rows(self.stream)
        if self._single:
            return self.dataset[wanted]
        dataset = self.dataset
        several = getattr(dataset, "__getitems__", None)
        return several(wanted) if several else [dataset[index] for index in wanted]

    def _next_rows(self, stream: Stream) -> Any:
        """StopIteration: the stream has ended."""
        if self._ended:
            raise StopIteration
        rows: list[Any] = []
        try:
            if stream.batch_size is None:
                return next(self._iterator)
            for _ in range(stream.batch_size):
                rows.append(next(self._iterator))
        except StopIteration:
            self._ended = True
            if not rows or stream.drop_last:
                raise
        return rows

    def __getitem__(self, task: Task) -> Group:
        info = get_worker_info()
        group, begun = Group(info.id, task.place), perf_counter()
        where = f"in DataLoader worker process {info.id}"
        try:
            if task.begins:
                self._begin(info.id)
                group.before = self._state()
        except Exception:
            made = Failure(ExceptionWrapper(where=where))
            group.ended = self.stream is not None  # its iterator could not be made
            group.batches = [made] * (1 if group.ended else len(task.wanted) - task.drop)
            group.states = [None] * len(group.batches)
            return group
        space = Space(self.memory, task.place) if len(task.wanted) > 1 else None
        self._make(task, group, where, space)
        if task.ends and self._keeps and self._every > 1:
            group.after = self._state()
        group.ended = self._ended
        group.bytes = space.wanted if space is not None else 0
        group.seconds = perf_counter() - begun
        return group

    def _make(self, task: Task, group: Group, where: str, space: Space | None) -> None:
        """space: None: torch hands over what is made."""
        joins = self.joins and space is not None
        rows = 0  # of the last batches, which are not collated yet
        first = 0
        for number, wanted in enumerate(task.wanted):
            state, made = None, None
            try:
                made = self._rows(wanted)
                rows += len(made) if joins else 0
                made = made if joins else self.collate(made)
                self._made += 1
                if self._keeps and self._made % self._every == 0:
                    state = self._state()
            except Exception as error:
                if isinstance(error, StopIteration) and self.stream is not None and self._ended:
                    group.after = self._state()
                    break
                made = Failure(ExceptionWrapper(where=where))
            if number >= task.drop:
                group.batches.append(made if space is None or joins or type(made) is Failure else pack(made, space))
                group.states.append(state)
            if rows >= self._at_once and space is not None:
                before = space.wanted
                self._collate(group, first, where, space)
                self._at_once = min(JOINED_ROWS, JOINED_BYTES * rows // max(1, space.wanted - before))
                first, rows = len(group.batches), 0
        if joins and space is not None:
            self._collate(group, first, where, space)

    def _collate(self, group: Group, first: int, where: str, space: Space) -> None:
        """Rows of batches from the `first` on are collated at once, or, where they differ, batch by batch."""
        batches, wanted = group.batches[first:], space.wanted
        if batches and not any(type(rows) is Failure for rows in batches):
            joined = join(batches, space)
            if joined is not None:
                group.batches[first:] = [joined] * len(batches)
                return
        space.wanted = wanted
        for k, made in enumerate(batches, first):
            if type(made) is not Failure:
                try:
                    group.batches[k] = pack(self.collate(made), space)
                except Exception:
                    group.batches[k] = Failure(ExceptionWrapper(where=where))


class Initial:
    """worker_init_fn: shows the program's data set, calls the program's function, and then takes the saved state."""

    def __init__(self, function: Callable[[int], None] | None) -> None:
        self.function = function

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        served = info.dataset
        object.__setattr__(info, "dataset", served.visible)  # it refuses to be changed otherwise
        if self.function is not None:
            self.function(worker)
        served.restore(worker)


def only(items: list[Group]) -> Group:
    """torch's collate function: one Task, one Group."""
    return items[0]


class Here(torch.utils.data.IterableDataset):
    """An IterableDataset that is read in this process: keeps its iterator, whose state may be asked for."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.iterator: Any = None
        self.start: dict[str, Any] | None = None  # where the next iteration begins

    def __iter__(self) -> Iterator[Any]:
        start, self.start = self.start, None
        self.iterator = begin(self.dataset, start)
        return self.iterator

    def __str__(self) -> str:
        return str(self.dataset)
