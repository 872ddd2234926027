"""Data sets that are read by calling them: torch's worker processes behind our order and state, or threads of this
process."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from . import _core

SKIPPED = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    RuntimeError,
)  # what decoders raise: Pillow's are the first three


class Rows(list[Any]):
    """Samples of a batch, and why others are not among them."""

    def __init__(self, *rows: Any) -> None:
        super().__init__(*rows)
        self.bad: list[str] = []


class Skipping(Dataset):
    """A data set whose broken samples are left out of their batch."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: list[int]) -> Rows:
        out = Rows()
        for i in indices:
            try:
                out.append(self.dataset[i])
            except SKIPPED as why:
                out.bad.append(f"sample {i}: {type(why).__name__}: {why}")
        return out


class Telling:
    """A collate function with the reasons for missing samples: (batch, reasons)."""

    def __init__(self, collate: Callable[[list[Any]], Any] | None) -> None:
        self.collate = collate or torch.utils.data.default_collate

    def __call__(self, rows: Rows) -> Any:
        if not rows:
            raise _core.DataError(
                f"no sample of a batch can be read; the first: {rows.bad[0] if rows.bad else 'there is none'}"
            )
        return self.collate(list(rows)), rows.bad


class Turn:
    """A batch sampler for torch's loader: the batches of the epoch that begins."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Processes:
    """torch's own loader. The numbers it takes for its workers are those that torch would take: `start` is the
    generator's state before the epoch's order was drawn."""

    def __init__(self, make: Callable[..., TorchLoader], single: bool) -> None:
        self._turn, self._generator = Turn(), torch.Generator()
        batching: dict[str, Any] = (
            {"batch_size": None, "sampler": self._turn} if single else {"batch_sampler": self._turn}
        )
        self._loader = make(generator=self._generator, **batching)

    def epoch(self, batches: list[list[int]], start: torch.Tensor | None) -> Iterator[Any]:
        self._turn.batches = batches
        if start is not None:
            self._generator.set_state(start)
        return iter(self._loader)


_MISSING = object()


class _Batch:
    """One in the making: the thread that finishes its last sample puts it together."""

    def __init__(self, indices: list[int]) -> None:
        self.indices = indices
        self.samples: list[Any] = [None] * len(indices)
        self.left = len(indices)  # samples that are not made yet
        self.result: Any = None
        self.error: BaseException | None = None
        self.bad: list[str] = []
        self.done = False

    def rows(self) -> Rows:
        out = Rows([sample for sample in self.samples if sample is not _MISSING])
        out.bad = self.bad
        return out


class Threads:
    """Calls the data set in threads of this process, sample by sample: no copies between processes, and a slow sample
    keeps one thread busy, not a batch of others. For code that releases the interpreter's lock (most that reads,
    decodes or computes in C), or an interpreter without one."""

    def __init__(
        self,
        dataset: Any,
        threads: int,
        ahead: int,
        collate: Callable[[Any], Any],
        init: Callable[[int], None] | None,
        skip: bool,
    ) -> None:
        self.dataset, self.threads, self.ahead, self.collate, self.init, self.skip = (
            dataset,
            threads,
            ahead,
            collate,
            init,
            skip,
        )

    def epoch(self, batches: list[list[int]], start: torch.Tensor | None) -> Iterator[Any]:
        return _Epoch(_Run(self, batches))


class _Run:
    """One epoch of Threads, as its threads see it. What changes is under `changed`."""

    def __init__(self, owner: Threads, batches: list[list[int]]) -> None:
        self.owner, self._coming = owner, iter(batches)
        self._window: deque[_Batch] = deque()  # in order; the first is delivered next
        self._work: deque[Any] = deque()  # (batch, row) that nobody has begun
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

    def finish(self, batch: _Batch, row: int, sample: Any, error: BaseException | None) -> None:
        with self._changed:
            batch.samples[row] = sample
            if self.owner.skip and isinstance(error, SKIPPED):
                batch.samples[row] = _MISSING
                batch.bad.append(f"sample {batch.indices[row]}: {type(error).__name__}: {error}")
            else:
                batch.error = batch.error or error
            batch.left -= 1
            if batch.left:
                return
        try:
            if batch.error is None:
                batch.result = self.owner.collate(batch.rows() if self.owner.skip else batch.samples)
        except BaseException as why:
            batch.error = why
        with self._changed:
            batch.samples, batch.done = [], True
            self._changed.notify_all()

    def take(self) -> _Batch | None:
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
        if batch is None:
            self._run.end()
            raise StopIteration
        if batch.error is not None:
            raise batch.error
        return batch.result

    def __del__(self) -> None:
        self._run.end()


def _call(run: _Run, index: int, refused: BaseException | None) -> Any:
    if refused is not None:
        return None, refused
    try:
        return run.owner.dataset[index], None
    except BaseException as why:
        return None, why


def _work(run: _Run, number: int) -> None:
    refused: BaseException | None = None  # what the caller's initialisation of this thread said
    try:
        if run.owner.init is not None:
            run.owner.init(number)
    except BaseException as why:
        refused = why
    while (job := run.job()) is not None:
        batch, row = job
        run.finish(batch, row, *_call(run, batch.indices[row], refused))
        del job, batch
