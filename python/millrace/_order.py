"""The order of an epoch, drawn from torch's own sampler objects exactly as torch.utils.data.DataLoader draws it, and
looked at ahead of time where that has no effect that anybody could notice."""

import copy
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from . import _recipe
from ._protocol import has_state
from ._ranks import ALONE, Ranks
from ._recipe import Recipe


def _generators(loader_generator: torch.Generator | None, sampler: Any) -> list[torch.Generator]:
    """The generators that drawing an epoch's order takes numbers from: of the loader, and of the sampler."""
    out = [loader_generator if loader_generator is not None else torch.default_generator]
    own = getattr(sampler, "generator", None)
    own = own if isinstance(own, torch.Generator) else torch.default_generator
    if own is not out[0] and not isinstance(sampler, (SequentialSampler, DistributedSampler)):
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
        self.generator = generator
        self._workers, self._persistent = workers, persistent and workers > 0
        self._draws_seed = True  # for the workers of the epoch that is drawn next: torch seeds persistent ones once
        self.start_states: list[torch.Tensor] | None = None  # of the generators, before this epoch's draw
        self.batches: list[list[int]] = []  # of the epoch that was drawn last, as the batch sampler gave them
        self.flat: list[int] = []  # what draw() returned then
        self.tail: Tail | None = None  # of the epoch that was drawn last
        self._ahead = prefetch * workers  # batches that torch asks its sampler for before they are wanted
        self._peeked: list[int] | None = None
        self._recipe: Recipe | None = None  # of the epoch that was drawn last
        self._verified: list[list[int]] | None = None  # the epoch of a loaded state, drawn again to be compared
        self.sampler: Any = None
        self.batch_sampler: Any = None
        self._given: Any = None  # the batch sampler that the program has; None: it has none
        self.use(sampler, batch_sampler, ALONE)

    def use(self, sampler: Any, batch_sampler: Any, ranks: Ranks) -> None:
        """Epochs come from these samplers, which divide the data among `ranks`."""
        self.ranks = ranks
        if sampler is self.sampler and batch_sampler is self._given:
            return
        self.sampler, self._given = sampler, batch_sampler
        if batch_sampler is None:  # single samples
            batch_sampler = BatchSampler(sampler, 1, False)
        self.batch_sampler = batch_sampler
        self._random = type(batch_sampler) is BatchSampler and type(sampler) is RandomSampler
        self._sequential = type(batch_sampler) is BatchSampler and type(sampler) is SequentialSampler
        self._sequence: list[int] = []  # what a SequentialSampler gives, the same in every epoch
        self._peeked = None
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
        if self._draws_seed:
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            batches = iter(self.batch_sampler) if self._workers else batches
        if self._random:
            return self._draw_all_but_the_tail()
        if self._sequential:
            return self._draw_in_sequence()
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

    def _draw_in_sequence(self) -> list[int]:
        """Without asking the sampler for each number, which takes longer than reading a row of a table."""
        n, size = len(self.sampler), self.batch_sampler.batch_size
        if self.batch_sampler.drop_last:
            n -= n % size
        if len(self._sequence) != n:
            self._sequence = list(range(n))
        self._drawn = [self._sequence[i : i + size] for i in range(0, n, size)]
        return self._sequence

    def draw(self) -> list[int]:
        """Sample numbers of the epoch that begins now, batch after batch."""
        self._verified = None
        self._recipe = self._write()
        self.start_states = [g.get_state() for g in _generators(self.generator, self.sampler)]
        drawn = self._draw()
        self.batches, self._draws_seed, self.flat = self._drawn, not self._persistent, drawn
        self.tail = self._drawn_tail if self._random else None
        if self._peeked is not None and self._peeked is not drawn and self._peeked != drawn:
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

    # ---- states ----

    def _own_state(self) -> Any:
        """What has a state of its own to go on from: a sampler or batch sampler of the program's, or None. One of
        torch's DistributedSamplers is a function of its epoch."""
        source = self.sampler if type(self.batch_sampler) is BatchSampler else self.batch_sampler
        return source if has_state(source) and not isinstance(source, DistributedSampler) else None

    def _write(self) -> Recipe:
        """Of the epoch that would be drawn now."""
        generators = [_recipe.pack(g) for g in _generators(self.generator, self.sampler)]
        more = {"generators": generators, "draws_seed": self._draws_seed}
        own = self._own_state()
        if own is not None:
            more["state"] = copy.deepcopy(own.state_dict())
        return {**_recipe.write(self.sampler, self.batch_sampler), **more}

    def state(self, inside: bool) -> dict[str, Any]:
        """Enough to draw the running epoch again, or, between epochs, the next one."""
        out = self._recipe if inside and self._recipe is not None else self._write()
        if inside and out["kind"] == "other" and "digest" not in out:
            out["digest"] = _recipe.digest(self.batches)
        return {**out, "rank": self.ranks.rank, "world": self.ranks.world}

    def check(self, saved: dict[str, Any], same_run: bool, inside: bool) -> None:
        """ValueError: the order of this state cannot be continued here. `same_run`: with as many ranks and
        batches of the same size."""
        why = _recipe.why_not(saved, self._write(), same_run)
        if why is None and inside and saved["kind"] == "other":
            batches = self._redraw(saved)
            if saved["digest"] not in (_recipe.digest(batches), self._digest_of_rank(saved)):
                why = (
                    f"'{saved['sampler']}' gives other samples here than where rank {saved['rank']} of "
                    f"{saved['world']} saved it: give it the same arguments, seed and epoch before load_state_dict, "
                    "and each rank the state that it saved"
                )
            self._verified = batches
        if why is not None:
            raise ValueError(f"this state cannot be continued: {why}")
        if not inside:
            self._set_generators(saved)

    def _set_generators(self, saved: Recipe) -> None:
        """Private generators and samplers go on from a state between epochs; torch's global one is the program's."""
        self._load_own(saved)
        for g, packed in zip(_generators(self.generator, self.sampler), saved["generators"]):
            if not packed["global"] and g is not torch.default_generator:
                g.set_state(_recipe.unpack(packed))
        self._draws_seed = not self._persistent or saved["draws_seed"]

    def _load_own(self, saved: Recipe) -> None:
        own = self._own_state()
        if own is not None and "state" in saved:
            own.load_state_dict(copy.deepcopy(saved["state"]))

    def _redraw(self, saved: Recipe) -> list[list[int]]:
        """Draws the epoch of a saved state. A private generator goes on from there; torch's global one is as before."""
        generators = _generators(self.generator, self.sampler)
        now = [g.get_state() for g in generators]
        for g, packed in zip(generators, saved["generators"]):
            g.set_state(_recipe.unpack(packed))
        if saved["epoch"] is not None and hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(saved["epoch"])
        self._draws_seed = saved["draws_seed"]
        self._load_own(saved)
        self.draw()
        for g, before in zip(generators, now):
            if g is torch.default_generator:
                g.set_state(before)
        return self.batches

    def _digest_of_rank(self, saved: Recipe) -> str | None:
        """Of the epoch as the rank that saved it reads it, where the sampler can be another rank's."""
        if not isinstance(self.sampler, DistributedSampler) or type(self.batch_sampler) is not BatchSampler:
            return None
        before = self.sampler, self.batch_sampler, self._recipe, self.batches, self.start_states
        self.sampler = copy.copy(self.sampler)
        self.sampler.rank = saved["rank"]
        self.batch_sampler = BatchSampler(self.sampler, self.batch_sampler.batch_size, self.batch_sampler.drop_last)
        try:
            return _recipe.digest(self._redraw(saved))
        finally:
            self.sampler, self.batch_sampler, self._recipe, self.batches, self.start_states = before

    def draw_again(self, saved: Recipe) -> list[int]:
        """The epoch of a saved state, as the rank that saved it or another one of as many reads it."""
        batches = self._verified if self._verified is not None else self._redraw(saved)
        self._verified = None
        return [index for batch in batches for index in batch]

    def rest(self, saved: Recipe, read: int, drop_last: bool, size: int | None) -> list[int]:
        """What this rank reads of an epoch of which other ranks have read so many samples together. `drop_last` and
        `size` are the loader's."""
        if saved["kind"] == "random" and self._random:
            self._redraw(saved)  # the program's generator goes on behind this epoch
            if self.tail is not None:
                self.tail.delivered(len(self.batches) + 1)
        left = _recipe.sequence(saved)[read:]
        mine = _recipe.share(left, self.ranks.rank, self.ranks.world, bool(getattr(self.sampler, "drop_last", False)))
        if saved["epoch"] is not None and isinstance(self.sampler, DistributedSampler):
            self.sampler.epoch = saved["epoch"]
        size = size or 1
        mine = mine[: len(mine) // size * size] if drop_last else mine
        self._recipe, self.tail, self._peeked = (
            {k: v for k, v in saved.items() if k not in ("rank", "world")},
            None,
            None,
        )
        self.start_states = None
        self.batches = [mine[i : i + size] for i in range(0, len(mine), size)]
        return mine
