"""The position of a loader: the one place that counts batches.

Everything else that needs the count is given it from here: the sampler's tail (`_order.Tail`), the state that a program
saves, the statistics. The native loader counts for itself, too, but runs ahead: batches are staged for a device or
made in a thread before the program has them.

N1  `Epoch.delivered` is the number of batches of the epoch that the program has, and changes in `Position.deliver`
    alone.
N2  Each iteration has its own Epoch. `Position.running` is the one that delivered last, None between epochs.
N3  A loaded state (`resume`) is kept as it is until an iteration begins with it: saving it again gives the same state.
"""

from collections.abc import Callable
from typing import Any

from ._order import Order, Tail

STATE_VERSION = 2
State = dict[str, Any]


class Epoch:
    """An epoch that one iteration goes through."""

    def __init__(self, first: int, tail: Tail | None) -> None:
        self.delivered, self.tail = first, tail
        if tail is not None:
            tail.delivered(first)


class Position:
    """Where a loader is, over its epochs."""

    def __init__(self) -> None:
        self.epoch = 0  # the number of the running epoch, or of the next one
        self.running: Epoch | None = None
        self.resume: State | None = None
        self.start = 0  # samples of the running epoch that other numbers of ranks have read together
        self.data: State | None = None  # of a state between epochs: where the data set goes on

    @property
    def batch(self) -> int:
        """Batches of the running epoch that the program has; 0 between epochs."""
        if self.resume is not None:
            return int(self.resume["batch"])
        return self.running.delivered if self.running is not None else 0

    @property
    def moved(self) -> bool:
        """Is there a position other than the beginning?"""
        return bool(self.epoch) or self.running is not None or self.resume is not None

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of this epoch."""
        if self.resume is not None and self.resume["epoch"] != epoch:
            self.resume = None
        if epoch != self.epoch:
            self.data = None
        self.epoch, self.running = epoch, None

    def take_resume(self, n_batches: int) -> State | None:
        """An iteration begins: the state that it begins with. An epoch whose batches were all delivered to a program
        that did not ask for its end (zip) is over."""
        resume, self.resume = self.resume, None
        self.start = 0
        if resume is not None:
            self.epoch = resume["epoch"]
        elif self.running is not None and self.running.delivered >= n_batches:
            self._next()
        return resume

    def take_data(self, resume: State | None) -> State | None:
        """An iteration begins: where the data set goes on."""
        data, self.data = self.data, None
        return resume.get("data") if resume is not None else data

    def begin(self, first: int, tail: Tail | None) -> Epoch:
        """The epoch of an iteration; `first` of its batches were delivered before."""
        self.running = Epoch(first, tail)
        return self.running

    def deliver(self, epoch: Epoch) -> None:
        """A batch of this iteration's epoch is the program's."""
        epoch.delivered += 1
        if epoch.tail is not None:
            epoch.tail.delivered(epoch.delivered)
        if self.running is not None:
            self.running = epoch

    def end(self, epoch: Epoch) -> None:
        """This iteration came to its end."""
        if epoch.tail is not None:
            epoch.tail.delivered(epoch.delivered + 1)
        self._next()

    def _next(self) -> None:
        self.running = None
        self.epoch += 1

    def state(
        self,
        order: Order,
        batch_size: int | None,
        samples: int | None,
        seed: int,
        data: "Callable[[bool], State | None]",
    ) -> State:
        """What a program saves: enough to continue behind the last batch that was delivered. All of it is plain: JSON
        can hold it, if it can hold what the data set says of itself (`data`)."""
        if self.resume is not None:
            return dict(self.resume)
        inside = self.running is not None
        own = self.data if self.data is not None else data(inside)
        return {
            "version": STATE_VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "in_epoch": inside,
            "start": self.start if inside else 0,
            "batch_size": batch_size,
            "samples": samples,
            "seed": seed,
            "rank": order.ranks.rank,
            "world": order.ranks.world,
            "order": order.state(inside),
            **({"data": own} if own is not None else {}),
        }

    def load(self, state: State, order: Order, batch_size: int | None, samples: int, seed: int | None) -> None:
        """The next iteration continues there. ValueError: the state is not of this run. `seed`: None: the state's."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"this state is of version {state.get('version')}, not {STATE_VERSION}")
        for key, here in (("samples", samples), ("seed", seed)):
            if state[key] != here and here is not None:
                raise ValueError(f"this state is of another run: {key} {state[key]}, here {here}")
        same_ranks, inside = state["world"] == order.ranks.world, state["in_epoch"]
        if inside and state["batch_size"] != batch_size and same_ranks:
            raise ValueError(f"this state is of another run: batch_size {state['batch_size']}, here {batch_size}")
        if inside or same_ranks:
            order.check(state["order"], same_ranks and not state["start"], inside)
        if state.get("data") is not None and (state["rank"], state["world"]) != order.ranks[:2]:
            raise ValueError(
                f"this state cannot be continued: its data set has a state of its own, that of rank {state['rank']} of "
                f"{state['world']}, and this is rank {order.ranks.rank} of {order.ranks.world}"
            )
        self.put(state)

    def put(self, state: State) -> None:
        """The next iteration begins there."""
        inside = state["in_epoch"]
        self.epoch, self.running = state["epoch"], None
        self.resume, self.data = (state, None) if inside else (None, state.get("data"))

    def take_up(self, order: Order, state: State, batch_size: int | None, drop_last: bool) -> tuple[list[int], int]:
        """What this rank reads of the epoch of a loaded state, and how many batches of it were delivered."""
        saved = state["order"]
        known = order.state(False)["kind"] == saved["kind"]
        if known and not state["start"] and state["world"] == order.ranks.world:
            return order.draw_again(saved), state["batch"]
        self.start = state["start"] + state["batch"] * (state["batch_size"] or 1) * state["world"]
        return order.rest(saved, self.start, drop_last, batch_size), 0
