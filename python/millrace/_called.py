"""Data sets that are read by calling them: torch's worker processes behind our order and state, or threads of this process."""
import threading
from collections import deque
from typing import Any, Callable, Deque, Iterator, List, Optional

import torch
from torch.utils.data import DataLoader as TorchLoader


class Turn:
    """A batch sampler for torch's loader: the batches of the epoch that begins."""

    def __init__(self) -> None:
        self.batches: List[List[int]] = []

    def __iter__(self) -> Iterator[List[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Processes:
    """torch's own loader. The numbers it takes for its workers are those that torch would take: `start` is the generator's state
    before the epoch's order was drawn."""

    def __init__(self, make: Callable[..., TorchLoader]) -> None:
        self._turn, self._generator = Turn(), torch.Generator()
        self._loader = make(batch_sampler=self._turn, generator=self._generator)

    def epoch(self, batches: List[List[int]], start: Optional[torch.Tensor]) -> Iterator[Any]:
        self._turn.batches = batches
        if start is not None:
            self._generator.set_state(start)
        return iter(self._loader)


class _Batch:
    """One in the making: the thread that finishes its last sample puts it together."""

    def __init__(self, indices: List[int]) -> None:
        self.indices, self.samples = indices, [None] * len(indices)
        self.left, self.result, self.error = len(indices), None, None
        self.done = False


class Threads:
    """Calls the data set in threads of this process, sample by sample: no copies between processes, and a slow sample keeps one
    thread busy, not a batch of others. For code that gives up the interpreter's lock (most that reads, decodes or computes
    in C), or an interpreter without one."""

    def __init__(self, dataset: Any, threads: int, ahead: int, collate: Callable[[List[Any]], Any], init: Optional[Callable[[int], None]]) -> None:
        self.dataset, self.threads, self.ahead, self.collate, self.init = dataset, threads, ahead, collate, init

    def epoch(self, batches: List[List[int]], start: Optional[torch.Tensor]) -> Iterator[Any]:
        return _Epoch(_Run(self, batches))


class _Run:
    """One epoch of Threads, as its threads see it. What changes is under `changed`."""

    def __init__(self, owner: Threads, batches: List[List[int]]) -> None:
        self.owner, self._coming = owner, iter(batches)
        self._window: Deque[_Batch] = deque()  # in order; the first is delivered next
        self._work: Deque[Any] = deque()  # (batch, row) that nobody has begun
        self._ended, self._more = False, True
        self._changed = threading.Condition()
        with self._changed:
            self._refill()
        for i in range(owner.threads):
            threading.Thread(target=_work, args=(self, i), name=f"millrace-call-{i}", daemon=True).start()

    def _refill(self) -> None:
        while self._more and len(self._window) < self.owner.ahead:
            indices = next(self._coming, None)
            if indices is None:
                self._more = False
                break
            batch = _Batch(list(indices))
            self._window.append(batch)
            self._work.extend((batch, row) for row in range(len(batch.indices)))
        self._changed.notify_all()

    def job(self) -> Any:
        """A sample to make; None: there will be none."""
        with self._changed:
            while not self._work and self._more and not self._ended:
                self._changed.wait()
            return self._work.popleft() if self._work and not self._ended else None

    def finish(self, batch: _Batch, row: int, sample: Any, error: Optional[BaseException]) -> None:
        with self._changed:
            batch.samples[row] = sample
            batch.error = batch.error or error
            batch.left -= 1
            if batch.left:
                return
        try:
            if batch.error is None:
                batch.result = self.owner.collate(batch.samples)
        except BaseException as why:
            batch.error = why
        with self._changed:
            batch.samples, batch.done = [], True
            self._changed.notify_all()

    def take(self) -> Optional[_Batch]:
        """The next batch, complete; None at the end."""
        with self._changed:
            if not self._window or self._ended:
                return None
            while not self._window[0].done:
                self._changed.wait(0.1)  # in slices: Ctrl-C is looked at in between
            batch = self._window.popleft()
            self._refill()
            return batch

    def end(self) -> None:
        """Nothing new is begun; what runs comes to its end by itself."""
        with self._changed:
            self._ended = True
            self._work.clear()
            self._changed.notify_all()


class _Epoch:
    """The consumer's hold on a run: without it the threads end."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Any:
        batch = self._run.take()
        if batch is None or batch.error is not None:
            self._run.end()
            raise StopIteration if batch is None else batch.error
        return batch.result

    def __del__(self) -> None:
        self._run.end()


def _call(run: _Run, index: int, refused: Optional[BaseException]) -> Any:
    if refused is not None:
        return None, refused
    try:
        return run.owner.dataset[index], None
    except BaseException as why:
        return None, why


def _work(run: _Run, number: int) -> None:
    refused: Optional[BaseException] = None  # what the caller's initialisation of this thread said
    try:
        if run.owner.init is not None:
            run.owner.init(number)
    except BaseException as why:
        refused = why
    while (job := run.job()) is not None:
        batch, row = job
        run.finish(batch, row, *_call(run, batch.indices[row], refused))
        del job, batch
