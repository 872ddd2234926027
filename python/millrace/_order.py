"""The order of an epoch, drawn from torch's own sampler objects exactly as torch.utils.data.DataLoader draws it, and
looked at ahead of time where that has no effect that anybody could notice."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler


def _generators(loader_generator: torch.Generator | None, sampler: Any) -> list[torch.Generator]:
    """The generators that drawing an epoch's order takes numbers from."""
    out = [loader_generator if loader_generator is not None else torch.default_generator]
    own = getattr(sampler, "generator", None) if type(sampler) is RandomSampler else None
    own = own if own is not None else torch.default_generator
    if type(sampler) is RandomSampler and own is not out[0]:
        out.append(own)
    return out


class Tail:
    """What torch's RandomSampler still draws when it is asked for more than it has: numbers of its generator that an
    epoch which was given up never takes. torch asks ahead of the loop, so when that is depends on the workers and on
    how full the last batch is."""

    def __init__(self, sampler: Any, rest: Iterator[int], at: int, ahead: int) -> None:
        self._sampler, self._rest, self._at, self._ahead = sampler, rest, at, ahead
        self._pending = True

    def delivered(self, batches: int) -> None:
        """So many were delivered; one more than there are: the end was asked for."""
        if self._pending and batches + self._ahead >= self._at:
            self._pending = False
            for _ in self._rest:
                pass

    def on_trial(self) -> None:
        """The same numbers, for somebody who puts the generator back."""
        if self._pending and not self._sampler.replacement and self._sampler.generator is not None:
            torch.randperm(len(self._sampler.data_source), generator=self._sampler.generator)


class Order:
    """Draws the batches of one epoch after another. State and look-ahead are its business."""

    def __init__(
        self,
        sampler: Any,
        batch_sampler: Any,
        generator: torch.Generator | None,
        workers: int = 0,
        persistent: bool = False,
        prefetch: int = 2,
    ) -> None:
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self._workers, self._persistent = workers, persistent and workers > 0
        self._seeded = self._was_seeded = False  # torch seeds persistent workers once
        self.start_states: list[torch.Tensor] | None = None  # of the generators, before this epoch's draw
        self.batches: list[list[int]] = []  # of the epoch that was drawn last, as the batch sampler gave them
        self.tail: Tail | None = None  # of the epoch that was drawn last
        self._ahead = prefetch * workers  # batches that torch asks its sampler for before they are wanted
        self._random = type(batch_sampler) is BatchSampler and type(sampler) is RandomSampler
        self._peeked: list[int] | None = None
        self._can_peek = type(batch_sampler) is BatchSampler and type(sampler) in (
            RandomSampler,
            SequentialSampler,
            DistributedSampler,
        )

    def _draw(self) -> list[int]:
        # torch's iterators begin with the sampler, draw a base seed for their workers, begin anew where there are
        # workers, and only then ask for batches: torch's own samplers draw when they are asked, others perhaps when
        # they begin.
        batches = iter(self.batch_sampler)
        if not (self._persistent and self._seeded):
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            batches = iter(self.batch_sampler) if self._workers else batches
        if self._random:
            return self._draw_all_but_the_tail()
        self._drawn = [list(batch) for batch in batches]
        return [index for batch in self._drawn for index in batch]

    def _draw_all_but_the_tail(self) -> list[int]:
        rest, size = iter(self.sampler), self.batch_sampler.batch_size
        drawn = list(islice(rest, len(self.sampler)))
        full = len(drawn) // size
        if self.batch_sampler.drop_last:
            drawn = drawn[: full * size]
        self._drawn = [drawn[i : i + size] for i in range(0, len(drawn), size)]
        self._drawn_tail = Tail(
            self.sampler, rest, len(self._drawn) + (1 if len(self._drawn) == full else 0), self._ahead
        )
        return drawn

    def draw(self) -> list[int]:
        """Sample numbers of the epoch that begins now, batch after batch."""
        self.start_states = [g.get_state() for g in _generators(self.generator, self.sampler)]
        drawn = self._draw()
        self.batches, self._was_seeded, self._seeded = self._drawn, self._seeded, True
        self.tail = self._drawn_tail if self._random else None
        if self._peeked is not None and self._peeked != drawn:
            self._can_peek = False  # the program draws from the same generator: looking ahead is in vain
        self._peeked = None
        return drawn

    def peek(self) -> list[int] | None:
        """What the next draw() will probably be, leaving every generator and sampler as it is; None: unknown."""
        if not self._can_peek:
            return None
        generators = _generators(self.generator, self.sampler)
        states = [g.get_state() for g in generators]
        distributed = isinstance(self.sampler, DistributedSampler)
        try:
            if distributed:
                self.sampler.epoch += 1
            if self.tail is not None:
                self.tail.on_trial()
            self._peeked = self._draw()
        finally:
            if distributed:
                self.sampler.epoch -= 1
            for g, state in zip(generators, states):
                g.set_state(state)
        return self._peeked

    def state(self) -> dict[str, Any]:
        """Enough to draw the running epoch again."""
        out: dict[str, Any] = {"generators": self.start_states, "seeded": self._was_seeded}
        if isinstance(self.sampler, DistributedSampler):
            out.update(epoch=self.sampler.epoch, world=self.sampler.num_replicas)
        return out

    def draw_again(self, state: dict[str, Any]) -> list[int]:
        """The epoch of a saved state. A private generator goes on from there; torch's global one is left alone."""
        generators = _generators(self.generator, self.sampler)
        now = [g.get_state() for g in generators]
        for g, saved in zip(generators, state.get("generators") or []):
            g.set_state(saved)
        if isinstance(self.sampler, DistributedSampler):
            self.sampler.epoch = state.get("epoch", self.sampler.epoch)
        self._seeded = state.get("seeded", False)
        drawn = self.draw()
        for g, before in zip(generators, now):
            if g is torch.default_generator:
                g.set_state(before)
        return drawn

    def rest(self, epoch: int, chain: list[Any]) -> list[int]:
        """What this rank reads of an epoch that other numbers of ranks have begun: `chain` has (ranks, samples that
        they have read together) of each run in turn."""
        s = self.sampler
        s.epoch = epoch
        parts = []
        for rank in range(chain[0][0]):
            part = DistributedSampler(
                s.dataset, num_replicas=chain[0][0], rank=rank, shuffle=s.shuffle, seed=s.seed, drop_last=s.drop_last
            )
            part.epoch = epoch
            parts.append(list(part))
        left = [i for group in zip(*parts) for i in group]
        for (_, position), world in zip(chain, [world for world, _ in chain[1:]] + [s.num_replicas]):
            left = left[position:]
            if s.drop_last:
                left = left[: len(left) // world * world]
            elif left and len(left) % world:
                left += (left * world)[: world - len(left) % world]
        return left[s.rank :: s.num_replicas]
