"""torch's worker processes, as a loader uses them that calls the program's data set: several batches in one message
where samples are small, and the states of data sets that have one.

    Source ──> Run.tasks (torch's batch sampler) ──Task──> worker w ──Group──> Batches ──> the program
                          └──────────── Pace: how many batches per message ─────────┘

Batch n of an epoch is worker n modulo (number of workers)'s, as with torch's loader: a Task of several batches has
every so-manieth one, and Batches puts them back into order. Batches of a stream (an IterableDataset) come from each
worker in turn; one whose stream has ended is left out.

P1  Delivered is what the program has; what workers have made beyond that has no effect on a state.
P2  A Run, which a loader keeps to say where it is, does not keep torch's iterator, which keeps worker processes.
P3  A part of the shared memory belongs to one Task from when it is made until the last batch of its Group was copied.
    An epoch begins with all parts free: torch's loader has then waited for the Tasks of the one before.
"""

import itertools
import pickle
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader as TorchLoader

from . import _joined, _protocol
from ._joined import Memory
from ._served import Group, Served, Start, Task

MESSAGE_S = 0.004  # what a worker makes for one message takes about so long
MOST_BATCHES = 256  # in one message
MEMORY_BYTES = 64 << 20  # shared with the workers of a loader, at most
PART_BYTES = 4 << 20


class Pace:
    """How many batches travel in one message: as many as a worker makes in a few milliseconds."""

    def __init__(self, part_bytes: int) -> None:
        self.size, self._part_bytes = 1, part_bytes
        self._batch_bytes = 0  # of the largest ones

    def observe(self, group: Group, asked: int) -> None:
        """A worker has made these."""
        if not asked or group.ended and len(group.states) < asked:
            return
        want = int(MESSAGE_S * asked / max(group.seconds, 1e-9))
        self._batch_bytes = max(self._batch_bytes, group.bytes // asked)
        if self._batch_bytes:
            want = min(want, self._part_bytes // self._batch_bytes)
        want = max(1, min(want, MOST_BATCHES))
        if want > self.size:
            self.size = min(want, self.size * 4)
        elif want <= self.size // 2:
            self.size = want


class Standing(NamedTuple):
    """Where workers are, as a state has it."""

    turn: int  # the worker whose batch is next
    each: list[dict[str, Any]]  # "state": the data set's, or None; "ended": its stream; "since": batches behind that

    def between(self) -> "Standing | None":
        """Behind the end of an epoch, where another one begins."""
        each = [one["state"] and _protocol.between(one["state"]) for one in self.each]
        return Standing(0, [dict(state=state or None, ended=False, since=0) for state in each]) if any(each) else None


def saved(number: int, standing: "Standing | None") -> dict[str, Any] | None:
    """For a loader's state. `number`: of worker processes; 0: the program's own."""
    return None if standing is None else {"workers": number, "turn": standing.turn, "each": standing.each}


def standing_of(data: "dict[str, Any] | None") -> Standing | None:
    """From a loader's state."""
    return None if data is None else Standing(data["turn"], data["each"])


def check_workers(data: "dict[str, Any] | None", number: int) -> None:
    """ValueError: a data set's states are those of its copies, one in each worker process."""
    if data is not None and data["workers"] != number:
        raise ValueError(
            f"this state cannot be continued: its data set was read with num_workers={data['workers']} and has a state "
            f"in each of them, here it is {number}"
        )


class Source(NamedTuple):
    """The batches of an epoch with numbered samples, of which the first ones were delivered before."""

    batches: list[Any] | Iterator[Any]  # an iterator: it is asked for each one as late as torch's loader asks
    first: int


class Turn:
    """A batch sampler for torch's loader, whose items are Tasks for the workers in turn. torch begins it anew before
    it asks for any."""

    def __init__(self) -> None:
        self.make: Callable[[], Iterator[list[Task]]] = lambda: iter(())

    def __iter__(self) -> Iterator[list[Task]]:
        return self.make()


class Workers:
    """The worker processes of one loader, over its epochs. `make` makes torch's loader."""

    def __init__(
        self,
        make: Callable[[Served, Turn, torch.Generator], TorchLoader],
        served: Served,
        number: int,
        prefetch: int,
        persistent: bool,
    ) -> None:
        self.number, self.served, self.persistent = number, served, persistent
        self._parts = (prefetch + 1) * number + 1
        self._part_bytes = min(PART_BYTES, MEMORY_BYTES // self._parts // 4096 * 4096)
        self.pace = Pace(self._part_bytes)
        self._turn, self._generator = Turn(), torch.Generator()
        self._make = make
        self._loader: TorchLoader | None = None
        self.run: Run | None = None  # the epoch that was begun last

    def standing(self, inside: bool) -> Standing | None:
        """Where the data sets of the workers are. Between epochs that is of importance for persistent ones only."""
        if self.run is None or not (inside or self.persistent):
            return None
        return self.run.standing() if inside else self.run.standing().between()

    def begin(self, source: Source | None, start: torch.Tensor | None, saved: Standing | None) -> "Batches":
        """An epoch; source: None: of a stream. `start`: of the generator that workers are numbered from. `saved`:
        workers are made anew and begin there."""
        served = self.served
        if saved is not None or self._loader is None:
            self._loader = self._make(served, self._turn, self._generator)
        served.starts = None
        if saved is not None:
            served.starts = [Start(one["state"], bool(one["ended"])) for one in saved.each]
        if served.memory is None or saved is not None or not self.persistent:
            served.memory = Memory(self._parts, self._part_bytes)
        if start is not None:
            self._generator.set_state(start)
        is_new = saved is not None or not self.persistent or self.run is None
        run = Run(self, served.memory, source, saved, is_new)
        self._turn.make = run.tasks
        groups = iter(self._loader)
        run.groups = weakref.ref(groups)
        self.run = run
        return Batches(run, groups)


class Run:
    """One epoch: what workers are to do, and what the program has of it. `is_new`: the workers were made for it."""

    def __init__(
        self, workers: Workers, memory: Memory, source: Source | None, saved: Standing | None, is_new: bool
    ) -> None:
        n = workers.number
        self._pace, self._source, self._n = workers.pace, source, n
        self.groups: Callable[[], Any] = lambda: None  # torch's iterator, as long as there is one
        self.memory = memory  # leaves of groups refer to it by its key
        self._free = list(range(memory.parts))
        self._asked: dict[int, deque[int]] = {w: deque() for w in range(n)}  # batches of each Task under way
        self._queues: list[deque[tuple[Group, int]]] = [deque() for _ in range(n)]
        self._ended, self._over = [False] * n, False
        self._begun = [is_new] * n  # what its state was when the epoch began is known
        self._states: list[bytes | None] = [None] * n
        self._since = [0] * n
        if saved is not None:
            self._since = [int(one["since"]) for one in saved.each]
            self._states = [_pack(one) for one in saved.each]
        self._drop = list(self._since)
        self._next = source.first if source is not None else 0  # the batch that is delivered next
        self._turn = saved.turn if saved is not None else self._next % n

    # ---- what workers are to do ----

    def tasks(self) -> Iterator[list[Task]]:
        """All Tasks of the epoch, one worker after another."""
        for asked in self._asked.values():
            asked.clear()
        if self._source is None:
            return self._stream_tasks()
        batches, first = self._source
        return self._list_tasks(batches, first) if isinstance(batches, list) else self._late_tasks(batches, first)

    def _task(self, worker: int, wanted: list[Any], begins: bool, drop: int, ends: bool = False) -> list[Task]:
        place = self._free.pop() if len(wanted) > 1 and self._free else -1
        self._asked[worker].append(len(wanted))
        return [Task(wanted, drop, place, begins, ends)]

    def _stream_tasks(self) -> Iterator[list[Task]]:
        begins = True
        while not self._over:
            size = self._pace.size
            for worker in range(self._n):
                drop = self._drop[worker] if begins else 0
                yield self._task(worker, [None] * (size + drop), begins, drop)
            begins = False

    def _list_tasks(self, batches: list[Any], position: int) -> Iterator[list[Task]]:
        n, total, begins = self._n, len(batches), True
        while position < total:
            stop = min(total, (position // n + self._pace.size) * n)
            for worker in range(n):
                first = position + (worker - position) % n
                drop = self._drop[worker] if begins else 0
                yield self._task(worker, batches[first - drop * n : stop : n], begins, drop, stop == total)
            position, begins = stop, False

    def _late_tasks(self, batches: Iterator[Any], position: int) -> Iterator[list[Task]]:
        source = iter(batches)  # once: a sampler begins anew each time
        for k in itertools.count():
            worker = k % self._n
            if worker == position % self._n:
                try:
                    wanted = next(source)
                except StopIteration:
                    return
                yield self._task(worker, [wanted], k < self._n, 0)
                position += 1
            else:  # it is not this worker's turn yet
                yield self._task(worker, [], True, 0)

    # ---- what they have done ----

    def _pull(self, groups: Iterator[Group]) -> None:
        group = next(groups)
        asked = self._asked[group.worker].popleft()
        if group.before is not None:
            self._states[group.worker] = group.before
        self._begun[group.worker] = True
        self._pace.observe(group, asked)
        queue = self._queues[group.worker]
        for k in range(len(group.states)):
            queue.append((group, k))
        if not group.states:
            self._done(group)

    def _done(self, group: Group) -> None:
        """Its last batch was taken."""
        if group.place >= 0:
            self._free.append(group.place)
        if group.after is not None:
            self._states[group.worker], self._since[group.worker] = group.after, 0
        if group.ended:
            self._ended[group.worker] = True

    def take(self, groups: Iterator[Group]) -> Any:
        """The next batch. StopIteration: there is none."""
        queue = self._queues[self._turn]
        while not queue:
            if self._is_over():
                raise StopIteration
            if self._ended[self._turn]:
                self._turn = (self._turn + 1) % self._n
                queue = self._queues[self._turn]
                continue
            try:
                self._pull(groups)
            except StopIteration:  # a sampler whose length nobody knew
                self._over = True
        group, k = queue.popleft()
        worker = self._turn
        self._turn = (worker + 1) % self._n
        self._next += 1
        if group.states[k] is not None:
            self._states[worker], self._since[worker] = group.states[k], 0
        else:
            self._since[worker] += 1
        try:
            return group.take(k)
        finally:
            if k + 1 == len(group.states):
                self._done(group)

    def _is_over(self) -> bool:
        if self._source is None:
            return all(self._ended)
        return self._over or isinstance(self._source.batches, list) and self._next >= len(self._source.batches)

    def end(self, groups: Iterator[Group]) -> None:
        """torch's loader ends its workers when it has been asked for what is behind the last batch."""
        self._over = True
        for _ in groups:
            pass

    def standing(self) -> Standing:
        """Where the workers were behind the last batch that was delivered."""
        while not all(self._begun) and (groups := self.groups()) is not None:
            self._pull(groups)
        each = []
        for state, since in zip(self._states, self._since):
            content, at_end = pickle.loads(state) if state is not None else (None, False)
            each.append({"state": content or None, "ended": bool(at_end), "since": since})
        return Standing(self._turn, each)


class Batches:
    """The batches of a Run, in order, as long as the program wants them."""

    def __init__(self, run: Run, groups: Any) -> None:
        self.run, self.groups = run, groups
        self._is_open = True

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Any:
        try:
            return self.run.take(self.groups)
        except StopIteration:
            if self._is_open:
                self._is_open = False
                self.run.end(self.groups)
            raise

    def __getattr__(self, name: str) -> Any:
        if name == "groups":
            raise AttributeError(name)
        return getattr(self.groups, name)


def _pack(one: dict[str, Any]) -> bytes | None:
    return pickle.dumps((one["state"] or {}, one["ended"])) if one["state"] is not None or one["ended"] else None


def joins(collate: Any) -> bool:
    """May batches be collated together?"""
    return collate in (None, torch.utils.data.default_collate) and _joined.is_usual()
