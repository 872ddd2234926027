"""What the modes of millrace.torch.DataLoader have in common, and the iterator that a program holds.

Native   everything in C threads (_native.py); Tiered: with stored bytes kept from epoch to epoch
Called   the data set's Python code makes samples, or the last part of them (_calling.py)
Plain    torch's own loader as it is: an IterableDataset, a sampler without a length, no batches (_calling.py)
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from ._options import Options
from ._position import Epoch, Position
from ._warn import warn
from ._watch import Watch


class Plan(NamedTuple):
    """An epoch that is to begin."""

    epoch: int  # its number: of crops and flips
    indices: Sequence[int]  # the samples of this rank, batch after batch
    first: int  # batches of them that were delivered before
    n_batches: int
    start: int  # with tiers: samples that other numbers of ranks have read together
    peek: Callable[[], list[int] | None]  # what the epoch behind it will probably be
    data: "dict[str, Any] | None" = None  # of a loaded state: where the data set itself goes on


class Mode:
    """How the batches of a loader are made."""

    native: "bool | str" = False

    def __init__(self, options: Options, reason: str | None) -> None:
        self._options, self.reason = options, reason
        self.follows = options.skips  # delivered() wants to be called
        self._bad: list[str] = []  # why samples that no native loader counts were left out
        self._has_warned = False

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes, where the mode has them."""
        return None

    @property
    def skipped(self) -> int:
        """Samples left out so far."""
        return len(self._bad)

    def first_skipped(self) -> str:
        """Why the first sample was left out."""
        return self._bad[0]

    def check_unchanged(self) -> None:
        """RuntimeError where a data set has another transform than it had."""

    def use(self, sampler: Any) -> None:
        """Epochs that begin from now on have the order of this sampler."""

    def reseed(self, seed: int) -> None:
        """Crops and flips of epochs that begin from now on are those of this seed."""

    def epoch(self, plan: Plan) -> Iterator[Any]:
        """The batches of an epoch. It may have close(), which ends it early."""
        raise NotImplementedError

    def data_state(self, inside: bool) -> "dict[str, Any] | None":
        """The data set's own state, behind the last batch that was delivered; None: it has none. `inside`: of an
        epoch."""
        return None

    def check_data(self, data: "dict[str, Any] | None") -> None:
        """ValueError: why the data set cannot go on from this state."""
        if data is not None:
            raise ValueError(
                "this state cannot be continued: its data set has a state of its own, the one here has not"
            )

    def restart(self) -> None:
        """A state was loaded: what worker processes of an earlier epoch have made of their data set has no effect."""

    def delivered(self, batches: Iterator[Any], count: int) -> None:
        """So many batches of this epoch are the program's."""
        if self._options.skips and not self._has_warned and self.skipped:
            self._has_warned = True
            warn(f"millrace.torch: samples that cannot be decoded are left out; the first one: {self.first_skipped()}")

    def counters(self) -> dict[str, Any]:
        """Of all native loaders of this object together; {} without any."""
        return {}

    def stats(self) -> dict[str, Any]:
        """What this mode adds to the loader's statistics."""
        return {"reason": self.reason}

    def describe(self) -> str:
        """For repr()."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the threads and frees the memory, but for batches that are still in use."""


class Iteration:
    """Batches of one epoch, as the program iterates over them."""

    def __init__(
        self,
        batches: "Iterator[Any] | Generator[Any, None, None]",
        mode: Mode,
        epoch: Epoch,
        position: Position,
        watch: Watch,
        n_batches: int | None,
    ) -> None:
        self._batches: Any = batches  # None: it is over
        self._mode, self._epoch, self._position, self._watch = mode, epoch, position, watch
        self._n_batches = n_batches
        self._delivered = mode.delivered if mode.follows else None

    def __iter__(self) -> "Iteration":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an iteration cannot be pickled; its loader can, and goes on where it is")

    def __len__(self) -> int:
        if self._n_batches is None:
            raise TypeError("the length of this iteration is not known")
        return self._n_batches - self._epoch.delivered

    def __getattr__(self, name: str) -> Any:
        theirs = self.__dict__.get("_batches") or self.__dict__.get("_over")
        if name.startswith("__") or theirs is None:  # programs look for torch's `_workers`
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(theirs, name)

    def _finish(self) -> None:
        batches, self._batches = self._batches, None
        if hasattr(batches, "close"):
            batches.close()

    def __next__(self) -> Any:
        batches = self._batches
        if batches is None:
            raise StopIteration
        begin = perf_counter()
        try:
            item = next(batches)
        except StopIteration:
            self._position.end(self._epoch)
            self._over = batches if self._mode.native is not True else None
            self._finish()
            raise
        except Exception:
            if self._mode.native is not True:
                self._position.deliver(self._epoch)  # the next one can be had, as from torch's loader
            else:
                self._finish()
            raise
        except BaseException:
            self._finish()
            raise
        now, watch = perf_counter(), self._watch
        watch.waited += now - begin
        if now >= watch.look_at:
            watch.look(now, self._mode.counters)
        self._position.deliver(self._epoch)
        if self._delivered is not None:
            self._delivered(batches, self._epoch.delivered)
        return item
