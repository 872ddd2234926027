"""The samplers of a millrace.torch.DataLoader: those that torch.utils.data.DataLoader would make, and a
DistributedSampler where the program has ranks and passes no sampler (`_ranks.py` decides)."""

from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from . import _ranks
from ._mixed import Mixture, MixtureSampler
from ._ranks import ALONE, Ranks
from ._warn import warn

_READ_ALL = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)


class Samplers(NamedTuple):
    """What decides about the order, and the size of batches that goes with it."""

    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool


def make(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
    generator: torch.Generator | None,
) -> Samplers:
    """As torch.utils.data.DataLoader does."""
    if batch_sampler is not None:
        if batch_size not in (None, 1) or shuffle or sampler is not None or drop_last:
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        return Samplers(
            getattr(batch_sampler, "sampler", batch_sampler),
            batch_sampler,
            getattr(batch_sampler, "batch_size", None),
            getattr(batch_sampler, "drop_last", False),
        )
    if sampler is not None and shuffle:
        raise ValueError("sampler excludes shuffle")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
    if sampler is None:
        sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    batches = BatchSampler(sampler, batch_size, drop_last) if batch_size is not None else None
    return Samplers(sampler, batches, batch_size, drop_last)


def ranks_of(sampler: Any) -> Ranks:
    """Among how many a sampler of the program's divides the data, as far as it can be seen."""
    if isinstance(getattr(sampler, "num_replicas", None), int) and isinstance(getattr(sampler, "rank", None), int):
        return Ranks(sampler.rank, sampler.num_replicas, type(sampler).__name__)
    return ALONE if type(sampler) in _READ_ALL else _ranks.decide(None)


class Choice:
    """The samplers of one loader. Those that the program passed stay; its own depend on the ranks that there are when
    an epoch begins."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool | None,
        sampler: Any,
        batch_sampler: Any,
        drop_last: bool,
        generator: torch.Generator | None,
        seed: int | None,
        distributed: bool | None,
        tiers: bool,
    ) -> None:
        self._arguments = dataset, batch_size, drop_last, generator
        self.shuffle, self._distributed = bool(shuffle), distributed
        self.own = sampler is None and batch_sampler is None  # made here
        self.seed = seed  # of the order of ranks; None: the program gave none
        self._has_warned = False
        self._ranks = ALONE
        self._by_epoch = tiers  # the order is a function of seed and epoch for a single process, too
        self._seed_alone = 0  # of that order, where the program gave none
        if not self.own:
            made = make(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last, generator)
            self.now = made
            return
        try:
            self._ranks = _ranks.decide(distributed)
        except ValueError:  # what is missing may be there when an epoch begins
            pass
        self.now = self._make()

    def _make(self) -> Samplers:
        dataset, batch_size, drop_last, generator = self._arguments
        ranks, sampler = self._ranks, None
        if isinstance(dataset, Mixture):
            sampler = MixtureSampler(dataset, ranks.world, ranks.rank)
        elif ranks.world > 1 or self._by_epoch:
            seed = self.seed if self.seed is not None else self._seed_alone if ranks.world == 1 else 0
            sampler = DistributedSampler(dataset, ranks.world, ranks.rank, shuffle=self.shuffle, seed=seed)
        if ranks.world > 1 and self._distributed is None:
            hint = "distributed=False reads all of it, distributed=True silences this warning"
            _ranks.warn_of_part(ranks, "millrace.torch", ", in DistributedSampler's order", hint)
        shuffle = None if sampler is not None else self.shuffle
        made = make(dataset, batch_size, shuffle, sampler, None, drop_last, generator)
        if sampler is not None and made.batch_sampler is not None:
            # transformers' Trainer goes on in the middle of an epoch with a batch sampler around this one, and sets
            # the epoch here.
            made.batch_sampler.set_epoch = sampler.set_epoch
        return made

    def fix_by_epoch(self) -> bool:
        """accelerate has the loader: as with its own loaders, the order becomes a function of seed and epoch, so that
        a program that skips the batches of a stopped epoch goes on where it was, and ranks share what one of torch's
        samplers of the whole set would give each of them. False: another sampler that does not divide the data among
        the ranks of the process group."""
        if not self.own and self._take_over():
            self.own = True
        if self.own and not self._by_epoch and self.shuffle:
            generator = self._arguments[3]
            self._seed_alone = (generator.initial_seed() if generator is not None else torch.initial_seed()) % 2**63
            self._by_epoch = True
            self.now = self._make()
        everyone, parts = _ranks.group(), getattr(self.now.sampler, "num_replicas", 1)
        return self.own or everyone is None or everyone.world <= parts

    def _take_over(self) -> bool:
        """Is the program's sampler what torch's loader makes of `shuffle`? Then the loader makes its own from now
        on."""
        dataset, sampler, batches = self._arguments[0], self.now.sampler, self.now.batch_sampler
        if type(batches) not in (BatchSampler, type(None)):
            return False
        if type(sampler) is RandomSampler:
            whole = not sampler.replacement and sampler.num_samples == len(dataset)
        else:
            whole = type(sampler) is SequentialSampler
        if not whole or len(sampler.data_source) != len(dataset):
            return False
        self.shuffle = type(sampler) is RandomSampler
        self._arguments = dataset, self.now.batch_size, self.now.drop_last, self._arguments[3]
        return True

    def settle(self) -> Samplers:
        """The samplers for the ranks that there are now."""
        if self.own:
            ranks = _ranks.decide(self._distributed)
            if ranks[:2] != self._ranks[:2]:
                self._ranks = ranks
                self.now = self._make()
        return self.now

    @property
    def ranks(self) -> Ranks:
        """Among whom the samplers divide the data."""
        return self._ranks if self.own else ranks_of(self.now.sampler)

    def adopt_seed(self, seed: int) -> None:
        """The order of ranks is that of this seed, where the program gave none."""
        if self.own and self.seed is None:
            self.seed = seed
            self.now = self._make()

    def warn(self) -> None:
        """An epoch begins: is it certain that not every rank reads everything?"""
        world, everyone = self.ranks.world, _ranks.group()
        if everyone is not None and everyone.world > world and not self._has_warned:
            self._has_warned = True
            why = "distributed=False" if self.own else f"'{type(self.now.sampler).__name__}'"
            each = "every rank reads all of the data" if world == 1 else f"the sampler divides the data among {world}"
            warn(
                f"millrace.torch: the process group has {everyone.world} ranks, but {each} ({why}): the same samples "
                "are trained on several times; leave the sampler out, or give it the ranks"
            )
        elif self.own and everyone is None and world == 1 and self._distributed is None:
            _ranks.warn_of_launcher(
                "millrace.torch",
                "initialise torch.distributed, or pass distributed=True to share it, distributed=False to read all",
            )
